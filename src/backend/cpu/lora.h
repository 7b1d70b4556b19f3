/* Inside of adapters (LoRA) on the CPU: the kernels that each instruction set has. A's rows and B's columns lie one behind the
 * other, padded to vectors of 16 (see pi__lora_pair), so both products read memory from its first byte to its last. */
#ifndef PI__CPU_LORA_H
#define PI__CPU_LORA_H

#include "backend/cpu/cpu.h"

struct pi__cpu_lora_kernels {
    /* t[i * ldt] = a . x[i], for n_rows rows of x; n, a multiple of 16, values each. type: of a. */
    void (*dot)(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int32_t n_rows, float *t, int64_t ldt);
    /* y += scale * (sum over r of t[r] * column r of b), for the n values of y. type: of b, whose columns are ldb apart. */
    void (*add)(int32_t type, const void *b, int64_t ldb, int32_t rank, const float *t, float scale, float *y, int64_t n);
};

extern const pi__cpu_lora_kernels pi__cpu_lora_generic;
extern const pi__cpu_lora_kernels pi__cpu_lora_avx2;
extern const pi__cpu_lora_kernels pi__cpu_lora_avx512;
extern const pi__cpu_lora_kernels pi__cpu_lora_neon;

#endif
