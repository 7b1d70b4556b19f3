/* The launches of tokens' draw (kernels/draw_kernels.cuh, draw_row_kernels.cuh), as a function; as those of kernels.h. */
#ifndef PI__CUDA_KERNELS_DRAW_H
#define PI__CUDA_KERNELS_DRAW_H

#include "backend/cuda/kernels.h"
#include "backend/draw.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi__k_draw {
    const uint64_t *found;  /* [n_rows, 2 + k] of pi__k_top */
    const int32_t *request; /* as there */
    const pi__draw *draw;   /* [n_rows] */
    const uint32_t *seen;   /* [n_rows, PI__MAX_SEEN] of pi__draws; NULL: no row has penalties */
    const int32_t *token, *index; /* a row is computed from token[index[row]]: of those whose draw asks for it */
    int32_t n_rows, k;
    uint64_t *out;          /* [n_rows, 3] as of a pi__k_top with k 1 that found the token */
    float *x;               /* [n_rows, n] the rows: of draws that may need all of theirs. NULL: there are none */
    int64_t n;
} pi__k_draw;

int pi__k_draw_run(void *stream, const pi__k_draw *a);

#ifdef __cplusplus
}
#endif
#endif
