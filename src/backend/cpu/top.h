/* Internals of op topk on the CPU: the kernels of each instruction set. */
#ifndef PI__CPU_TOP_H
#define PI__CPU_TOP_H

#include "backend/cpu/cpu.h"
#include "base/logits.h"

struct pi__cpu_top_kernels {
    /* Returns the max of n values, ignoring NaN; -inf if no value is above -inf. Sets *odd to true if a value is NaN or
     * +inf; otherwise leaves it unchanged. */
    float (*max)(const float *x, int32_t n, bool *odd);
    /* Returns the sum of exp(x[i] - max) over n values; n is at most PI__LOGITS_BLOCK. */
    double (*exp_sum)(const float *x, int32_t n, float max);
};

extern const pi__cpu_top_kernels pi__cpu_top_generic;
extern const pi__cpu_top_kernels pi__cpu_top_avx2;
extern const pi__cpu_top_kernels pi__cpu_top_avx512;
extern const pi__cpu_top_kernels pi__cpu_top_neon;
extern const pi__cpu_top_kernels pi__cpu_top_sve256;

/* topk.c: adds key x to a heap of the k smallest keys seen, if x is one of them; smaller keys are larger logits. The
 * heap has n <= k keys and its largest key at key[0]. Returns the new number of keys. */
int32_t pi__top_put(uint64_t *key, int32_t n, int32_t k, uint64_t x);

#endif
