/* Attention kernels for AVX-512 (see vec_avx512.h). */
#include "backend/cpu/vec_avx512.h"

#define PI__ROWS_MAX 12
#define PI__QK_TILES(R) ((R) <= 4 ? 4 : 2)
#define PI__PV_VECS 2
#define PI__KERNELS pi__cpu_attn_avx512
#include "backend/cpu/attention_kernels.h"
