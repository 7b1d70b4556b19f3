/* The kernels of op topk, written once for all instruction sets. Each kernels_ISA.c includes this file and first
 * defines vf (vectors, by one of vec_ISA.h) and PI__KERNELS (name of the table defined here). No memory and no state.
 * Threads: any. */
#include <float.h>

#include "backend/cpu/top.h"

enum { TOP_CHAINS = 4 /* independent running maxima, to break the dependency chain */ };

static float top_max(const float *x, int32_t n, bool *odd)
{
    vf m[TOP_CHAINS], nan = vf_zero();
    int32_t i = 0;
    PI__UNROLL for (int j = 0; j < TOP_CHAINS; j++) m[j] = vf_set1(-INFINITY);
    for (; i + 16 * TOP_CHAINS <= n; i += 16 * TOP_CHAINS) {
        PI__UNROLL for (int j = 0; j < TOP_CHAINS; j++) {
            const vf v = vf_load(x + i + 16 * j);
            m[j] = vf_select_lt(m[j], v, v, m[j]);
            nan = vf_select_nan(v, nan);
        }
    }
    for (; i < n; i += 16) {
        const vf v = n - i < 16 ? vf_load_tail(x + i, n - i, -INFINITY) : vf_load(x + i);
        m[0] = vf_select_lt(m[0], v, v, m[0]);
        nan = vf_select_nan(v, nan);
    }
    PI__UNROLL for (int j = 1; j < TOP_CHAINS; j++) m[0] = vf_max(m[0], m[j]);
    const float most = vf_hmax(m[0]);
    if (most > FLT_MAX || isnan(vf_hsum(nan))) *odd = true;
    return most;
}

/* Sums floats by lane = i mod 16, then the lanes in double (order of base/logits.h). Plain C that compilers
 * vectorize. */
static double top_exp_sum(const float *x, int32_t n, float max)
{
    float e[PI__LOGITS_BLOCK], s[16] = {0};
    double sum = 0;
    for (int32_t i = 0; i < n; i++) e[i] = pi__exp_neg(x[i] - max);
    memset(e + n, 0, (size_t) (PI__LOGITS_BLOCK - n) * sizeof *e);
    for (int32_t i = 0; i < PI__LOGITS_BLOCK; i += 16)
        for (int j = 0; j < 16; j++) s[j] += e[i + j];
    for (int j = 0; j < 16; j++) sum += (double) s[j];
    return sum;
}

const pi__cpu_top_kernels PI__KERNELS = {top_max, top_exp_sum};

#undef PI__KERNELS
