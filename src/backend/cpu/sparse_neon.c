/* Kernels of DeepSeek V4's attention for AArch64 (see vec_neon.h). */
#include "backend/cpu/vec_neon.h"

#define PI__SPARSE_K 4
#define PI__SPARSE_R 4
#define PI__KERNELS pi__cpu_sparse_neon
#include "backend/cpu/sparse_kernels.h"
