/* Inside of op topk on the CPU: what each instruction set has of it. */
#ifndef PI__CPU_TOP_H
#define PI__CPU_TOP_H

#include "backend/cpu/cpu.h"
#include "base/logits.h"

struct pi__cpu_top_kernels {
    /* The largest of n values; -inf where nothing is above, NaN never wins. *odd is set where there is a NaN or +inf, and else
     * left alone. */
    float (*max)(const float *x, int32_t n, bool *odd);
    /* The sum of exp(x - max) of n values, at most PI__LOGITS_BLOCK. */
    double (*exp_sum)(const float *x, int32_t n, float max);
};

extern const pi__cpu_top_kernels pi__cpu_top_generic;
extern const pi__cpu_top_kernels pi__cpu_top_avx2;
extern const pi__cpu_top_kernels pi__cpu_top_avx512;
extern const pi__cpu_top_kernels pi__cpu_top_neon;
extern const pi__cpu_top_kernels pi__cpu_top_sve256;

/* topk.c: a key to a heap of the k smallest, which has n and whose first is the largest; the number it has then. */
int32_t pi__top_put(uint64_t *key, int32_t n, int32_t k, uint64_t x);

#endif
