/* Kernels of the gated delta rule for AArch64 (see vec_neon.h). */
#include "backend/cpu/vec_neon.h"

#define PI__GDN_ROWS 4
#define PI__GDN_VECS 1
#define PI__GDN_FOLD 4
#define PI__KERNELS pi__cpu_gdn_neon
#include "backend/cpu/gdn_kernels.h"
