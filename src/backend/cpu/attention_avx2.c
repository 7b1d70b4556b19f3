/* Attention kernels for AVX2 (see vec_avx2.h). */
#include "backend/cpu/vec_avx2.h"

#define PI__ROWS_MAX 6
#define PI__QK_TILES(R) ((R) <= 2 ? 2 : 1)
#define PI__PV_VECS 1
#define PI__KERNELS pi__cpu_attn_avx2
#include "backend/cpu/attention_kernels.h"
