/* Launches of kernels/w16_glu_kernels.cuh and wgmma_glu_kernels.cuh. See kernels.h. */
#ifndef PI__CUDA_KERNELS_W16_GLU_H
#define PI__CUDA_KERNELS_W16_GLU_H

#include "backend/cuda/kernels_split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* act(gate x) * up x, rounded to the packed input of the next matrix; gate and up have equal type and shape. */
typedef struct pi__k_w16_glu {
    pi__k_matrix gate;     /* n_out is a multiple of 32 */
    const uint8_t *up;
    const float *up_scale; /* as gate.scale */
    int32_t act;           /* PI__IN_* of ops.h */
    float limit;           /* as in pi__k_input */
    float *y;              /* [n_rows, ldy] scratch for values before rounding; rows start at multiples of 16 bytes */
    int64_t ldy;
    uint32_t *most;        /* [n_rows] row maxima, 0 before and after the launch */
    int32_t mid_type;      /* type of the next matrix */
    void *mid;             /* packed output, as of pi__k_w16_pack_x; may overlap x */
    uint32_t *arrived;     /* as in pi__k_tail; only for few rows, with n_sm */
    int32_t n_sm;
} pi__k_w16_glu;
/* Two launches for more than PI__K_MMA_ROWS rows, as in pi__k_w16_linear. The first one can split K (split NULL =
 * never). */
int pi__k_w16_glu_run(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows,
                      const pi__k_split *split);
/* For at most PI__K_MMA_ROWS rows: one launch up to PI__K_TAIL_ROWS, which writes no rows past the last; else two. */
int pi__k_w16_glu_few(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows);
/* The second of the two launches: rounds y to mid. */
int pi__k_w16_round(void *stream, const pi__k_w16_glu *a, int32_t n_rows);

/* Two launches, as above, with wgmma in the first one, as in pi__k_wgmma_linear. has: matrices of this type are
 * supported. */
int pi__k_wgmma_has_glu(int32_t type);
int pi__k_wgmma_glu_run(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows, int32_t n_sm);

#ifdef __cplusplus
}
#endif
#endif
