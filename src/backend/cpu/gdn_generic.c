/* Kernels of the gated delta rule for any processor (see vec_generic.h). */
#include "backend/cpu/vec_generic.h"

#define PI__GDN_ROWS 2
#define PI__GDN_VECS 1
#define PI__GDN_FOLD 2
#define PI__KERNELS pi__cpu_gdn_generic
#include "backend/cpu/gdn_kernels.h"
