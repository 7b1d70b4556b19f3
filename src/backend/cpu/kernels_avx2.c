/* Kernels of attention, gated delta rule, DeepSeek V4 attention, adapters and op topk for AVX2 (see vec_avx2.h).
 * The values below tell each header how much of its work fits in the registers. */
#include "backend/cpu/vec_avx2.h"

#define PI__ROWS_MAX 6
#define PI__QK_TILES(R) ((R) <= 2 ? 2 : 1)
#define PI__PV_VECS 1
#define PI__KERNELS pi__cpu_attn_avx2
#include "backend/cpu/attention_kernels.h"

#define PI__GDN_ROWS 6
#define PI__GDN_VECS 1
#define PI__GDN_FOLD 4
#define PI__KERNELS pi__cpu_gdn_avx2
#include "backend/cpu/gdn_kernels.h"

#define PI__SPARSE_K 4
#define PI__SPARSE_R 4
#define PI__KERNELS pi__cpu_sparse_avx2
#include "backend/cpu/sparse_kernels.h"

#define PI__KERNELS pi__cpu_lora_avx2
#include "backend/cpu/lora_kernels.h"

#define PI__KERNELS pi__cpu_top_avx2
#include "backend/cpu/top_kernels.h"
