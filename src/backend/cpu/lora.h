/* Inside of adapters (LoRA) on the CPU: the kernels that each instruction set has. A's rows lie one behind the other, and so
 * do tiles of B's columns (see pi__lora_pair), so both products read memory from its first byte to its last. */
#ifndef PI__CPU_LORA_H
#define PI__CPU_LORA_H

#include "backend/cpu/cpu.h"

struct pi__cpu_lora_kernels {
    /* t[i * ldt] = a . x[i], for n_rows rows of x; n, a multiple of 16, values each. type: of a. */
    void (*dot)(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int32_t n_rows, float *t, int64_t ldt);
    /* y[i] += scale * (sum over r of t[i * ldt + r] * column r of b), for the first n values of n_rows rows. type: of b, whose
     * first column's first tile is here. */
    void (*add)(int32_t type, const void *b, int32_t rank, const float *t, int64_t ldt, int32_t n_rows, float scale,
                float *const *y, int64_t n);
};

extern const pi__cpu_lora_kernels pi__cpu_lora_generic;
extern const pi__cpu_lora_kernels pi__cpu_lora_avx2;
extern const pi__cpu_lora_kernels pi__cpu_lora_avx512;
extern const pi__cpu_lora_kernels pi__cpu_lora_neon;
extern const pi__cpu_lora_kernels pi__cpu_lora_sve256;

#endif
