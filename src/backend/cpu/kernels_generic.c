/* Kernels of attention, gated delta rule, DeepSeek V4 attention, adapters and op topk for any processor (see
 * vec_generic.h). The values below tell each header how much of its work fits in the registers. */
#include "backend/cpu/vec_generic.h"

#define PI__ROWS_MAX 4
#define PI__QK_TILES(R) 1
#define PI__PV_VECS 1
#define PI__KERNELS pi__cpu_attn_generic
#include "backend/cpu/attention_kernels.h"

#define PI__GDN_ROWS 2
#define PI__GDN_VECS 1
#define PI__GDN_FOLD 2
#define PI__KERNELS pi__cpu_gdn_generic
#include "backend/cpu/gdn_kernels.h"

#define PI__SPARSE_K 2
#define PI__SPARSE_R 2
#define PI__KERNELS pi__cpu_sparse_generic
#include "backend/cpu/sparse_kernels.h"

#define PI__KERNELS pi__cpu_lora_generic
#include "backend/cpu/lora_kernels.h"

#define PI__KERNELS pi__cpu_top_generic
#include "backend/cpu/top_kernels.h"
