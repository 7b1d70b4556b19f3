/* The launches of kernels/w16_glu_kernels.cuh and wgmma_glu_kernels.cuh, as functions; as those of kernels.h. */
#ifndef PI__CUDA_KERNELS_W16_GLU_H
#define PI__CUDA_KERNELS_W16_GLU_H

#include "backend/cuda/kernels_split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* act(gate x) * up x, rounded as the input of a matrix; gate and up of one type and shape. */
typedef struct pi__k_w16_glu {
    pi__k_matrix gate;     /* n_out: a multiple of 32 */
    const uint8_t *up;
    const float *up_scale; /* as gate.scale */
    int32_t act;           /* PI__IN_* of ops.h */
    float limit;           /* as in pi__k_input */
    float *y;              /* [n_rows, ldy] where values go until they are rounded, at multiples of 16 bytes */
    int64_t ldy;
    uint32_t *most;        /* [n_rows] 0 before and after */
    int32_t mid_type;      /* of the matrix */
    void *mid;             /* its prepared input, as of pi__k_w16_prepare; may be where x is */
    uint32_t *arrived;     /* as of a tail; of few rows alone, with n_sm */
    int32_t n_sm;
} pi__k_w16_glu;
/* Two launches, of which the first may share slices (split: NULL: not). As of pi__k_w16_linear, more than PI__K_MMA_ROWS rows. */
int pi__k_w16_glu_run(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows, const pi__k_split *split);
/* Of PI__K_MMA_ROWS rows at most: one launch with up to PI__K_TAIL_ROWS, which writes no rows behind the last, else two. */
int pi__k_w16_glu_few(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows);
/* The second of the two: y's values become mid. */
int pi__k_w16_round(void *stream, const pi__k_w16_glu *a, int32_t n_rows);

/* The same two of which the first is wgmma's, as of pi__k_wgmma_linear; with matrices of this type. */
int pi__k_wgmma_has_glu(int32_t type);
int pi__k_wgmma_glu_run(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows, int32_t n_sm);

#ifdef __cplusplus
}
#endif
#endif
