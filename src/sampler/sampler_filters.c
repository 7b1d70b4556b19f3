/* Filters of the sampler chain: which candidates stay.
 *
 * Meanings are llama.cpp's, stage by stage; where it sorts, these select. Every filter leaves at least one candidate of
 * those it got. They use the scratch of the caller's thread and keep nothing. Sums are in double. */
#include "sampler/sampler_impl.h"

/* The row's maximum; afterwards the row holds neither NaN nor +inf. */
static float clean_row(pi__cands *v)
{
    bool odd = false;
    float max = pi__row_max(v->row, v->n_row, &odd);
    if (odd && !v->clean) {
        for (int32_t i = 0; i < v->n_row; i++) v->row[i] = pi__logit_clamp(v->row[i]);
        max = max > FLT_MAX ? FLT_MAX : max;
    }
    v->clean = true;
    return max;
}

float pi__cands_max(pi__cands *v)
{
    if (!v->list) return clean_row(v);
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < v->n; i++) best = v->w->key[i] < best ? v->w->key[i] : best;
    return v->n ? pi__key_logit(best) : -INFINITY;
}

void pi__cands_list(pi__cands *v)
{
    if (v->list) return;
    v->n = pi__row_gather(v->row, v->n_row, -INFINITY, v->w->key);
    v->list = true;
}

double pi__list_weights(pi__cands *v, float max)
{
    double sum = 0;
    for (size_t i = 0; i < v->n; i++) {
        float p = pi__exp_neg(pi__key_logit(v->w->key[i]) - max);
        v->w->weight[pi__key_id(v->w->key[i])] = p;
        sum += (double) p;
    }
    return sum;
}

void pi__stage_top_k(pi__cands *v, int32_t k)
{
    if (v->list) {
        if ((size_t) k >= v->n) return;
        pi__keys_select(v->w->key, v->n, (size_t) k);
        v->n = (size_t) k;
        return;
    }
    v->n = pi__row_top(v->row, v->n_row, k, v->w->key);
    v->list = true;
    if (k <= PI__MAX_TOP) pi__keys_sort(v->w->key, v->n);
}

/* Keeps the list's entries whose logit is at least limit. */
static void list_keep_from(pi__cands *v, float limit)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) {
        if (pi__key_logit(v->w->key[i]) >= limit) v->w->key[n++] = v->w->key[i];
    }
    v->n = n;
}

void pi__cands_keep_from(pi__cands *v, float limit)
{
    if (v->list) {
        list_keep_from(v, limit);
        return;
    }
    v->n = pi__row_gather(v->row, v->n_row, limit, v->w->key);
    v->list = true;
}

/* Number of candidates that are at least limit. */
static size_t count_from(const pi__cands *v, float limit)
{
    size_t n = 0;
    if (v->list) {
        for (size_t i = 0; i < v->n; i++) n += pi__key_logit(v->w->key[i]) >= limit;
    } else {
        for (int32_t i = 0; i < v->n_row; i++) n += v->row[i] >= limit;
    }
    return n;
}

float pi__min_p_limit(float max, float p)
{
    float limit = max + logf(p);
    return limit > max ? max : limit;
}

void pi__stage_min_p(pi__cands *v, float p, size_t min_keep)
{
    float max = pi__cands_max(v);
    if (max == -INFINITY) return;
    float limit = pi__min_p_limit(max, p);
    if (min_keep > 1 && count_from(v, limit) < min_keep) {
        pi__stage_top_k(v, min_keep < INT32_MAX ? (int32_t) min_keep : INT32_MAX);
        return;
    }
    pi__cands_keep_from(v, limit);
}

/* Sum of the logits above -inf and of their squared distances from mean; returns their number. */
static size_t moments(const pi__cands *v, double mean, double *sum, double *squares)
{
    enum { LANES = 8 };
    double a[LANES] = {0}, b[LANES] = {0};
    size_t count = 0, i = 0, all = v->list ? v->n : (size_t) v->n_row;
    for (; i < all; i += LANES) {
        float x[LANES];
        for (size_t j = 0; j < LANES; j++) {
            if (i + j >= all) x[j] = -INFINITY;
            else x[j] = v->list ? pi__key_logit(v->w->key[i + j]) : v->row[i + j];
        }
        for (size_t j = 0; j < LANES; j++) {
            bool in = x[j] > -INFINITY;
            double d = in ? (double) x[j] - mean : 0;
            a[j] += in ? (double) x[j] : 0;
            b[j] += d * d;
            count += in;
        }
    }
    *sum = *squares = 0;
    for (size_t j = 0; j < LANES; j++) {
        *sum += a[j];
        *squares += b[j];
    }
    return count;
}

void pi__stage_top_n_sigma(pi__cands *v, float n_sigma)
{
    float max = pi__cands_max(v);
    double sum, squares, mean;
    if (max == -INFINITY) return;
    size_t n = moments(v, 0, &sum, &squares);
    if (n <= 1) return;
    mean = sum / (double) n;
    moments(v, mean, &sum, &squares);
    pi__cands_keep_from(v, (float) ((double) max - (double) n_sigma * sqrt(squares / (double) n)));
}

bool pi__cands_keep_mass(pi__cands *v, double target, size_t min_n)
{
    const float max = pi__key_logit(v->w->key[0]);
    double mass = 0;
    for (size_t i = 0; i < v->n; i++) {
        mass += (double) pi__exp_neg(pi__key_logit(v->w->key[i]) - max);
        if (mass < target || i + 1 < min_n) continue;
        v->n = i + 1;
        return true;
    }
    return false;
}

/* The candidates that top-p keeps of a row, if they are among the best that are sorted. */
static bool top_p_of_best(pi__cands *v, double target, size_t min_keep)
{
    pi__cands best = *v;
    pi__stage_top_k(&best, PI__MAX_TOP);
    if (!pi__cands_keep_mass(&best, target, min_keep)) return false;
    *v = best;
    return true;
}

void pi__stage_top_p(pi__cands *v, float p, size_t min_keep)
{
    float max = pi__cands_max(v);
    if (max == -INFINITY) return;
    double target;
    if (!v->list) {
        double sum = pi__row_exp_sum(v->row, v->n_row, max);
        target = (double) p * sum;
        if (top_p_of_best(v, target, min_keep)) return;
        /* All tokens below this limit together weigh less than (1 - p) * sum, so the border is never among them. */
        double limit = (double) max + log((1.0 - (double) p) * sum / (double) v->n_row) - 1e-3;
        pi__cands rest = *v;
        pi__cands_keep_from(&rest, limit < (double) max ? (float) limit : max);
        if (rest.n < min_keep) pi__cands_list(v);
        else *v = rest;
        pi__list_weights(v, max);
    } else {
        target = (double) p * pi__list_weights(v, max);
    }
    v->n = pi__keys_select_mass(v->w->key, v->n, v->w->weight, target, false, min_keep > 1 ? min_keep : 1);
}

/* Locally typical: nearest to the entropy first, until their probability exceeds p; the lower id first on ties. */
void pi__stage_typical(pi__cands *v, float p, size_t min_keep)
{
    float max = pi__cands_max(v);
    if (max == -INFINITY) return;
    pi__cands_list(v);
    uint64_t *key = v->w->key;
    double sum = pi__list_weights(v, max), mean = 0;
    for (size_t i = 0; i < v->n; i++) {
        float w = v->w->weight[pi__key_id(key[i])];
        if (w > 0) mean += (double) w * ((double) pi__key_logit(key[i]) - (double) max);
    }
    /* entropy = log(sum) - mean and -log p = log(sum) - (logit - max): log(sum) drops out of their difference. */
    mean /= sum;
    for (size_t i = 0; i < v->n; i++) {
        int32_t id = pi__key_id(key[i]);
        float logit = pi__key_logit(key[i]);
        v->row[id] = logit; /* the key loses it */
        float far = fabsf((float) (mean - ((double) logit - (double) max)));
        key[i] = (uint64_t) pi__f32_order(far) << 32 | (uint32_t) id;
    }
    v->n = pi__keys_select_mass(key, v->n, v->w->weight, (double) p * sum, true, min_keep > 1 ? min_keep : 1);
    for (size_t i = 0; i < v->n; i++) key[i] = pi__logit_key(v->row[pi__key_id(key[i])], pi__key_id(key[i]));
}

/* Removes all but the least probable of the tokens that reach the threshold. */
void pi__stage_xtc(pi__cands *v, float threshold, size_t min_keep)
{
    float max = pi__cands_max(v);
    if (max == -INFINITY) return;
    pi__cands_list(v);
    uint64_t *key = v->w->key, last = 0;
    double limit = (double) threshold * pi__list_weights(v, max);
    size_t n = 0, above = 0;
    if (v->n < 2) return;
    for (size_t i = 0; i < v->n; i++) {
        if ((double) v->w->weight[pi__key_id(key[i])] < limit) continue;
        above++;
        last = key[i] > last ? key[i] : last;
    }
    if (above < 2 || v->n - (above - 1) < min_keep) return;
    for (size_t i = 0; i < v->n; i++) {
        if (key[i] >= last) key[n++] = key[i];
    }
    v->n = n;
}

void pi__stage_temperature(pi__cands *v, float temp)
{
    /* Where dividing would overflow, the logits are taken relative to the largest one. */
    float max = pi__cands_max(v);
    float shift = max > -INFINITY && !(fabsf(max) / temp < 1e30f) ? max : 0;
    if (!v->list) {
        for (int32_t i = 0; i < v->n_row; i++) v->row[i] = (v->row[i] - shift) / temp;
        return;
    }
    for (size_t i = 0; i < v->n; i++) {
        float x = (pi__key_logit(v->w->key[i]) - shift) / temp;
        v->w->key[i] = pi__logit_key(x, pi__key_id(v->w->key[i]));
    }
}

/* Entropy of the list's probabilities as a part of that of as many equal ones. */
static double relative_entropy(pi__cands *v, float max)
{
    double sum = pi__list_weights(v, max), mean = 0;
    for (size_t i = 0; i < v->n; i++) {
        const float w = v->w->weight[pi__key_id(v->w->key[i])];
        if (w > 0) mean += (double) w * ((double) pi__key_logit(v->w->key[i]) - (double) max);
    }
    return (log(sum) - mean / sum) / log((double) v->n);
}

void pi__stage_dynamic_temperature(pi__cands *v, float temp, float range, float exponent)
{
    const float max = pi__cands_max(v), low = temp - range > 0 ? temp - range : 0, high = temp + range;
    if (max == -INFINITY) return;
    pi__cands_list(v);
    if (v->n < 2) return;
    const double h = relative_entropy(v, max), part = pow(h > 0 ? h : 0, (double) exponent);
    const float t = (float) ((double) low + (double) (high - low) * part);
    if (t > 0) pi__stage_temperature(v, t);
    else pi__stage_top_k(v, 1);
}
