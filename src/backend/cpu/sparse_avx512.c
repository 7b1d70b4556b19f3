/* Kernels of DeepSeek V4's attention for AVX-512 (see vec_avx512.h). */
#include "backend/cpu/vec_avx512.h"

#define PI__SPARSE_K 8
#define PI__SPARSE_R 8
#define PI__KERNELS pi__cpu_sparse_avx512
#include "backend/cpu/sparse_kernels.h"
