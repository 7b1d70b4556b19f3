/* The kernels of DeepSeek V4's attention, written once for all instruction sets. Each kernels_ISA.c includes this
 * file and first defines:
 *
 *     vf                vectors, by one of vec_ISA.h;
 *     PI__SPARSE_K      rows that multiply() computes in one pass, at most 8;
 *     PI__SPARSE_R      heads that add_rows() computes in one pass, at most 8;
 *     PI__KERNELS       name of the table defined here
 *
 * No memory and no state. Threads: any. Each sum has one order (sparse.h), for every number of rows or heads in a
 * pass. */
#include "backend/cpu/sparse.h"

enum { LANES = PI__SPARSE_HEADS };

/* acc[k] lane h = dot product of head h's query and row k, for K rows of dim values. qt: [dim][16] queries. */
PI__INLINE void multiply(int K, const float *qt, int32_t dim, const float *const *row, vf *acc)
{
    PI__UNROLL for (int k = 0; k < K; k++) acc[k] = vf_zero();
    for (int32_t d = 0; d < dim; d++) {
        const vf q = vf_load(qt + d * LANES);
        PI__UNROLL for (int k = 0; k < K; k++) acc[k] = vf_fma(q, vf_set1(row[k][d]), acc[k]);
    }
}

PI__INLINE void multiply_to(int K, const float *qt, int32_t dim, const float *const *row, float *s)
{
    vf acc[8];
    multiply(K, qt, dim, row, acc);
    PI__UNROLL for (int k = 0; k < K; k++) vf_store(s + k * LANES, acc[k]);
}

/* Replaces the scores s [n][16 heads] by e^(s - max), with max the head's maximum over these and earlier rows. Updates
 * sum->m and sum->l. f[head] = factor that rescales the sums of earlier rows; not set if there are none. */
static void soften(float *s, int32_t n, pi__sparse_sum *sum, float f[LANES])
{
    const vf old = sum->any ? vf_load(sum->m) : vf_set1(-INFINITY);
    vf top = old, l = vf_zero();
    for (int32_t k = 0; k < n; k++) top = vf_max(top, vf_load(s + k * LANES));
    if (sum->any) {
        const vf less = vf_exp(vf_sub(old, top));
        vf_store(f, less);
        l = vf_mul(vf_load(sum->l), less);
    }
    for (int32_t k = 0; k < n; k++) {
        const vf e = vf_exp(vf_sub(vf_load(s + k * LANES), top));
        vf_store(s + k * LANES, e);
        l = vf_add(l, e);
    }
    vf_store(sum->m, top);
    vf_store(sum->l, l);
}

/* sum->acc[g] = f[g] * sum->acc[g] + sum over n rows k of s[k][g] * row k, for heads g = h..h + R - 1 and the first
 * dim_v of dim values. */
PI__INLINE void add_rows(int R, int32_t h, int32_t dim, int32_t dim_v, const float *const *row, int32_t n,
                         const float *s, const float *f, pi__sparse_sum *sum)
{
    for (int32_t d = 0; d < dim_v; d += 16) {
        vf acc[8];
        PI__UNROLL for (int r = 0; r < R; r++)
            acc[r] = sum->any ? vf_mul(vf_load(sum->acc + (h + r) * dim + d), vf_set1(f[h + r])) : vf_zero();
        for (int32_t k = 0; k < n; k++) {
            const vf v = vf_load(row[k] + d);
            PI__UNROLL for (int r = 0; r < R; r++) acc[r] = vf_fma(vf_set1(s[k * LANES + h + r]), v, acc[r]);
        }
        PI__UNROLL for (int r = 0; r < R; r++) vf_store(sum->acc + (h + r) * dim + d, acc[r]);
    }
}

static void add_split(const float *qt, int32_t n_head, int32_t dim, int32_t dim_v, const float *const *row, int32_t n,
                      float *s, pi__sparse_sum *sum)
{
    float f[LANES] = {0};
    int32_t k = 0, h = 0;
    for (; k + PI__SPARSE_K <= n; k += PI__SPARSE_K) multiply_to(PI__SPARSE_K, qt, dim, row + k, s + k * LANES);
    for (; k < n; k++) multiply_to(1, qt, dim, row + k, s + k * LANES);
    soften(s, n, sum, f);
    for (; h + PI__SPARSE_R <= n_head; h += PI__SPARSE_R) add_rows(PI__SPARSE_R, h, dim, dim_v, row, n, s, f, sum);
    for (; h < n_head; h++) add_rows(1, h, dim, dim_v, row, n, s, f, sum);
    sum->any = true;
}

PI__INLINE void score_rows(int K, const float *qt, const float *w, int32_t n16, int32_t dim, const float *const *row,
                           float *score)
{
    vf all[8], acc[8];
    PI__UNROLL for (int k = 0; k < K; k++) all[k] = vf_zero();
    for (int32_t g = 0; g < n16; g++) {
        const vf weight = vf_load(w + g * LANES);
        multiply(K, qt + (size_t) g * (size_t) dim * LANES, dim, row, acc);
        PI__UNROLL for (int k = 0; k < K; k++) all[k] = vf_fma(vf_max(acc[k], vf_zero()), weight, all[k]);
    }
    PI__UNROLL for (int k = 0; k < K; k++) score[k] = vf_hsum(all[k]);
}

static void scores(const float *qt, const float *w, int32_t n16, int32_t dim, const float *const *row, int32_t n,
                   float *score)
{
    int32_t k = 0;
    for (; k + PI__SPARSE_K <= n; k += PI__SPARSE_K) score_rows(PI__SPARSE_K, qt, w, n16, dim, row + k, score + k);
    for (; k < n; k++) score_rows(1, qt, w, n16, dim, row + k, score + k);
}

static void pool(const float *const *v, const float *const *s, int32_t n, int32_t dim, float *out)
{
    for (int32_t d = 0; d < dim; d += 16) {
        vf top = vf_set1(-INFINITY), l = vf_zero(), sum = vf_zero();
        for (int32_t i = 0; i < n; i++) top = vf_max(top, vf_load(s[i] + d));
        for (int32_t i = 0; i < n; i++) {
            const vf e = vf_exp(vf_sub(vf_load(s[i] + d), top));
            l = vf_add(l, e);
            sum = vf_fma(e, vf_load(v[i] + d), sum);
        }
        vf_store(out + d, vf_div(sum, l));
    }
}

static float rms(const float *x, int64_t n, float eps) { return rms_factor(x, n, eps); }

const pi__cpu_sparse_kernels PI__KERNELS = {add_split, scores, pool, rms};

#undef PI__SPARSE_K
#undef PI__SPARSE_R
#undef PI__KERNELS
