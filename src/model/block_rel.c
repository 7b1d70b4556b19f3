/* Biases of attention scores by distance (see blocks.h): ALiBi's slopes, and the buckets of T5. */
#include <math.h>

#include "model/blocks.h"

/* Slopes are powers of a base: h + 1 with base 2^(-max_bias / P) for the first P heads, P the largest power of two up
 * to n_head. The other heads have the odd powers of the base's square root. */
void pi__rel_alibi(pi__model *m, pi__rel *r, int32_t n_head, float max_bias)
{
    int32_t P = 1;
    while (2 * P <= n_head) P *= 2;
    float *slope = pi__model_calloc(m, (size_t) n_head, sizeof *slope, "slopes of ALiBi");
    for (int32_t h = 0; h < n_head && slope; h++) {
        const int32_t power = h < P ? 2 * (h + 1) : 2 * (h - P) + 1; /* of 2^(-max_bias / 2P) */
        slope[h] = (float) exp2(-(double) max_bias / 2 / P * power);
    }
    r->n = 1;
    pi__declare_values(m, &r->values, n_head, slope);
}

/* Returns the bucket of the distance `to_key` among n_bucket buckets: half of them for keys after the query. Of each
 * half, the first half has one distance per bucket. The others have exponentially growing ranges up to max_distance.
 * Single precision, as in the models' training: a range ends where its logarithm rounds down. */
static int32_t bucket_of(int32_t to_key, int32_t n_bucket, int32_t max_distance)
{
    const int32_t half = n_bucket / 2, exact = half / 2, first = to_key > 0 ? half : 0;
    const int32_t d = to_key < 0 ? -to_key : to_key;
    if (d < exact) return first + d;
    const float scale = (float) log((double) max_distance / exact);
    const int32_t step = (int32_t) (logf((float) d / (float) exact) / scale * (float) (half - exact));
    return first + (exact + step < half ? exact + step : half - 1);
}

void pi__rel_buckets(pi__model *m, pi__rel *r, int32_t n_head, int32_t n_bucket, int32_t max_distance,
                     const char *name, int layer)
{
    const int32_t n = 2 * max_distance + 1;
    int32_t *at = pi__model_calloc(m, (size_t) n_head * (size_t) n, sizeof *at, "biases of distances");
    for (int32_t h = 0; h < n_head && at; h++)
        for (int32_t i = 0; i < n; i++)
            at[(int64_t) h * n + i] = bucket_of(i - max_distance, n_bucket, max_distance) * n_head + h;
    r->n = n;
    pi__declare_table_gathered(m, &r->values, (int64_t) n_head * n, at, n_head, n_bucket, name, layer);
}
