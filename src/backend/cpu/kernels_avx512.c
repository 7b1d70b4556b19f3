/* Kernels of attention, gated delta rule, DeepSeek V4 attention, adapters and op topk for AVX-512 (see vec_avx512.h).
 * The values below tell each header how much of its work fits in the registers. */
#include "backend/cpu/vec_avx512.h"

#define PI__ROWS_MAX 12
#define PI__QK_TILES(R) ((R) <= 4 ? 4 : 2)
#define PI__PV_VECS 2
#define PI__KERNELS pi__cpu_attn_avx512
#include "backend/cpu/attention_kernels.h"

#define PI__GDN_ROWS 8
#define PI__GDN_VECS 2
#define PI__GDN_FOLD 8
#define PI__KERNELS pi__cpu_gdn_avx512
#include "backend/cpu/gdn_kernels.h"

#define PI__SPARSE_K 8
#define PI__SPARSE_R 8
#define PI__KERNELS pi__cpu_sparse_avx512
#include "backend/cpu/sparse_kernels.h"

#define PI__KERNELS pi__cpu_lora_avx512
#include "backend/cpu/lora_kernels.h"

#define PI__KERNELS pi__cpu_top_avx512
#include "backend/cpu/top_kernels.h"
