/* Kernels of the gated delta rule for AVX2 (see vec_avx2.h). */
#include "backend/cpu/vec_avx2.h"

#define PI__GDN_ROWS 6
#define PI__GDN_VECS 1
#define PI__GDN_FOLD 4
#define PI__KERNELS pi__cpu_gdn_avx2
#include "backend/cpu/gdn_kernels.h"
