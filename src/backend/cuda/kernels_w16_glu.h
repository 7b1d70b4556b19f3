/* Launches of kernels/w16_glu_kernels.cuh and wgmma_glu_kernels.cuh. See kernels.h. */
#ifndef PI__CUDA_KERNELS_W16_GLU_H
#define PI__CUDA_KERNELS_W16_GLU_H

#include "backend/cuda/kernels_split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = act(gate x) * up x, then rounded to the packed input of the next matrix. gate and up have equal type and
 * shape. */
typedef struct pi__k_w16_glu {
    pi__k_matrix gate;     /* n_out is a multiple of 32 */
    const uint8_t *up;     /* data of up; its other fields are as in gate */
    const float *up_scale; /* as gate.scale */
    int32_t act;           /* PI__IN_* of ops.h */
    float limit;           /* as in pi__k_input */
    float *y;              /* [n_rows, ldy] scratch for values before rounding; rows start at multiples of 16 bytes */
    int64_t ldy;
    uint32_t *most;        /* [n_rows] max magnitudes of y's rows, as float bits; 0 before and after the launch */
    int32_t mid_type;      /* type of the next matrix, which selects F16 or BF16 */
    void *mid;             /* packed output in the format of pi__k_w16_pack_x; may overlap x */
    /* as in pi__k_tail, for pi__k_w16_glu_few with at most PI__K_TAIL_ROWS rows; NULL = two launches */
    uint32_t *arrived;
    pi__k_waits waits;     /* with arrived */
} pi__k_w16_glu;
/* For more than PI__K_MMA_ROWS rows: two launches, gate and up, then pi__k_w16_round. The first one can split K. split
 * NULL = never. */
int pi__k_w16_glu_run(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows,
                      const pi__k_split *split);
/* For at most PI__K_MMA_ROWS rows: one launch with `arrived`, which writes no packed rows past n_rows; else two. */
int pi__k_w16_glu_few(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows);
/* The second of two launches: rounds y to mid, with one factor per row from `most`, and resets `most` to 0. */
int pi__k_w16_round(void *stream, const pi__k_w16_glu *a, int32_t n_rows);

/* pi__k_w16_glu_run with wgmma in its first launch (sm_90), as in pi__k_wgmma_linear. has: returns not 0 if matrices of
 * this type are supported. */
int pi__k_wgmma_has_glu(int32_t type);
int pi__k_wgmma_glu_run(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows, int32_t n_sm);

#ifdef __cplusplus
}
#endif
#endif
