/* Token sampling (kernels/draw_kernels.cuh, draw_row_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_DRAW_H
#define PI__CUDA_KERNELS_DRAW_H

#include "backend/cuda/kernels.h"
#include "backend/draw.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi__k_draw {
    const uint64_t *found;  /* [n_rows, 2 + k] results of pi__k_top */
    const int32_t *request; /* [n_rows][3] as in pi__k_top */
    const pi__draw *draw;   /* [n_rows] */
    const uint32_t *seen;   /* [n_rows, PI__MAX_SEEN] of pi__draws; NULL = no row has penalties */
    const int32_t *token, *index; /* row r is computed from the token token[index[r]]; read for draws with `fed` */
    int32_t n_rows, k;
    uint64_t *out;          /* [n_rows, 3] the drawn token, in the format of pi__k_top with k = 1 */
    /* [n_rows, n] logits, changed temporarily, for draws that may need all logits of a row; NULL = no draw needs
     * them */
    float *x;
    int64_t n;
} pi__k_draw;

/* Draws one token for each row, from `found` or, if necessary, from x. */
int pi__k_draw_run(void *stream, const pi__k_draw *a);

#ifdef __cplusplus
}
#endif
#endif
