/* Importance of matrix columns, measured in advance and stored in a GGUF by llama-imatrix.
 *
 * For a matrix NAME the file holds NAME.in_sum2 (per expert, the sum of squares of each column's inputs) and
 * NAME.counts (per expert, the number of inputs; a stack with a matrix per head has one count for all). Immutable after
 * opening; any thread. */
#ifndef PI__QUANTIZE_IMATRIX_H
#define PI__QUANTIZE_IMATRIX_H

#include "gguf/gguf.h"

typedef struct pi__imatrix {
    pi__gguf *g;    /* the file; NULL = no file */
    uint32_t n;     /* matrices in the file */
    uint32_t n_chunks; /* chunks of text used for the measurement */
} pi__imatrix;

/* PI_EFORMAT also for the older binary format, which llama-imatrix converts. */
int pi__imatrix_open(pi__imatrix *m, const char *path, pi_error *err);
void pi__imatrix_close(pi__imatrix *m);
/* True if the file has values for the tensor. */
bool pi__imatrix_has(const pi__imatrix *m, const pi__tensor *t);
/* Returns the column weights of t, t->ne[0] for each of t->ne[2] experts, in *out; free them with pi__free. *out is
 * NULL if the file lacks t. PI_EFORMAT: the shape differs, or a value is negative, 1e30 or more, or not a number. */
int pi__imatrix_weights(const pi__imatrix *m, const pi__tensor *t, float **out, pi_error *err);

#endif
