/* Importance matrices (option imatrix-file): for each matrix of the model, the sum over all computed tokens of the
 * squared inputs, by column. They are written when the engine closes, as a GGUF in the format of llama.cpp's
 * llama-imatrix, which pi_quantize and llama-quantize read:
 *
 *     general.type "imatrix", imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size
 *     NAME.in_sum2 [n_in, 1], NAME.counts [1, 1]     of the matrix NAME, F32
 *
 * For a stack of experts the shapes are [n_in, n_expert] and [1, n_expert]. A stack with a matrix per head has [n_in *
 * n_head, 1] and one count.
 *
 * The ops linear, moe and head_linear of the backend are replaced by ones that read the inputs. So the backend must
 * compute on the host and at once: only a CPU. Op moe is fused: it passes the inputs of the experts' down matrices to
 * a reader (backend/cpu/moe.h). The output matrix is left out, as llama-imatrix does.
 *
 * Memory: the sums, in doubles, not part of the plan. Threads: the step thread, then the thread that closes. */
#ifndef PI__IMATRIX_H
#define PI__IMATRIX_H

#include "model/model.h"

typedef struct pi__sums pi__sums;

/* Starts counting for the ops of be with the matrices of m. chunk: tokens of a chunk, for the file. Returns
 * PI_EUNSUPPORTED or PI_ENOMEM on failure. */
int pi__sums_new(pi__sums **out, pi__backend *be, const pi__model *m, const char *path, const char *dataset,
                 int32_t chunk, pi_error *err);
/* Writes the file, unless no token was computed, and logs the result. m must still exist. Then frees s and restores the
 * ops. s may be NULL. */
void pi__sums_close(pi__sums *s, pi__backend *be, const pi__log *log);

#endif
