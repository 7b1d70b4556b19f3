/* Attention kernels for AArch64 (see vec_neon.h). */
#include "backend/cpu/vec_neon.h"

#define PI__ROWS_MAX 6
#define PI__QK_TILES(R) ((R) <= 2 ? 2 : 1)
#define PI__PV_VECS 1
#define PI__KERNELS pi__cpu_attn_neon
#include "backend/cpu/attention_kernels.h"
