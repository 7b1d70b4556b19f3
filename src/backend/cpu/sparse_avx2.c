/* Kernels of DeepSeek V4's attention for AVX2 (see vec_avx2.h). */
#include "backend/cpu/vec_avx2.h"

#define PI__SPARSE_K 4
#define PI__SPARSE_R 4
#define PI__KERNELS pi__cpu_sparse_avx2
#include "backend/cpu/sparse_kernels.h"
