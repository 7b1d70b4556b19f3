/* Weighted sum of a row's expert outputs, as in pi__k_sum: sum of weight * (output + bias), experts in rank order, then
 * the gated shared expert. Used by the separate kernel (moe_kernels.cuh) and by epilogues (tail.cuh), with bitwise
 * identical results. */
#ifndef PI_SUM_CUH
#define PI_SUM_CUH

#include "input.cuh"

/* Returns columns i .. i + 3 of the sum of row `row`; s has no biases and no shared expert. n is a multiple of 4. */
PI_FN float4 sum_values(const pi__k_sum &s, int64_t row, int64_t i)
{
    const int32_t *column = s.column + row * s.n_used;
    const float *weight = s.weight + row * s.n_used;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 2
    for (int32_t k = 0; k < s.n_used; k++) {
        const float4 x = *(const float4 *) (s.x + column[k] * s.n + i);
        const float w = weight[k];
        sum = {fmaf(w, x.x, sum.x), fmaf(w, x.y, sum.y), fmaf(w, x.z, sum.z), fmaf(w, x.w, sum.w)};
    }
    return sum;
}

enum { SUM_AT_ONCE = 8 /* columns whose loads a thread issues together */ };

/* Writes part `of` of row `row` of s.y, by the threads of a block. smem_copy: shared memory that receives the row, too;
 * NULL = none. */
PI_FN void sum_row(const pi__k_sum &s, int64_t row, row_share of, float *smem_copy = nullptr)
{
    const int32_t *column = s.column + row * s.n_used;
    const float *weight = s.weight + row * s.n_used;
    const float gate = s.shared ? 1.0f / (1.0f + expf(-s.gate[row * s.ldg])) : 0.0f;
    const int64_t step = of.step * blockDim.x;
    for (int64_t i = of.first * blockDim.x + threadIdx.x; i < s.n; i += step * SUM_AT_ONCE) {
        float sum[SUM_AT_ONCE] = {};
#pragma unroll 2
        for (int32_t k = 0; k < s.n_used; k++) {
            const float *x = s.x + column[k] * s.n + i;
            const float w = weight[k], *bias = s.bias ? s.bias + s.id[row * s.n_used + k] * s.ldb + i : nullptr;
#pragma unroll
            for (int j = 0; j < SUM_AT_ONCE; j++)
                if (i + j * step < s.n) sum[j] = fmaf(w, bias ? x[j * step] + bias[j * step] : x[j * step], sum[j]);
        }
#pragma unroll
        for (int j = 0; j < SUM_AT_ONCE; j++) {
            const int64_t at = i + j * step;
            if (at >= s.n) break;
            const float v = s.shared ? fmaf(gate, s.shared[row * s.n + at], sum[j]) : sum[j];
            s.y[row * s.ldy + at] = v;
            if (smem_copy) smem_copy[at] = v;
        }
    }
}

#endif
