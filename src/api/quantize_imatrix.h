/* Importance of the columns of matrices, measured elsewhere: a GGUF as llama-imatrix writes it.
 *
 * For a matrix NAME the file holds NAME.in_sum2 (sums of squares of what went into each column, for each expert) and
 * NAME.counts (how often, for each expert). Immutable once open, any thread. */
#ifndef PI__QUANTIZE_IMATRIX_H
#define PI__QUANTIZE_IMATRIX_H

#include "gguf/gguf.h"

typedef struct pi__imatrix {
    pi__gguf *g;    /* the file, NULL: none was given */
    uint32_t n;     /* matrices it knows */
    uint32_t n_chunks; /* chunks of text it was measured on */
} pi__imatrix;

/* PI_EFORMAT also for the older binary format, which llama-imatrix converts. */
int pi__imatrix_open(pi__imatrix *m, const char *path, pi_error *err);
void pi__imatrix_close(pi__imatrix *m);
/* Weights of the columns of t, t->ne[0] for each expert (t->ne[2]), to be freed with pi__free; *out is NULL where the
 * file does not know t. PI_EFORMAT where it knows it with another shape, or holds what is not a number. */
int pi__imatrix_weights(const pi__imatrix *m, const pi__tensor *t, float **out, pi_error *err);

#endif
