/* Kernels of DeepSeek V4's attention for any processor (see vec_generic.h). */
#include "backend/cpu/vec_generic.h"

#define PI__SPARSE_K 2
#define PI__SPARSE_R 2
#define PI__KERNELS pi__cpu_sparse_generic
#include "backend/cpu/sparse_kernels.h"
