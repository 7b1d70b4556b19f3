/* Attention kernels for any processor (see vec_generic.h). */
#include "backend/cpu/vec_generic.h"

#define PI__ROWS_MAX 4
#define PI__QK_TILES(R) 1
#define PI__PV_VECS 1
#define PI__KERNELS pi__cpu_attn_generic
#include "backend/cpu/attention_kernels.h"
