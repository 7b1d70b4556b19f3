/* Op moe of the CPU with a reader of its intermediate results, for importance matrices (engine/imatrix.h). */
#ifndef PI__CPU_MOE_H
#define PI__CPU_MOE_H

#include "backend/cpu/cpu.h"

/* Reads the inputs of the experts' down matrices, after the op has computed y. */
typedef struct pi__moe_watch {
    /* down: n_pairs input rows, sorted by expert. Row j belongs to pair p = pair[j]: the expert expert[p] of the op's
     * row p / n_used. */
    void (*read)(const struct pi__moe_watch *w, const pi__moe *a, const pi__lin_in *down, int32_t n_pairs,
                 const int32_t *pair, const int32_t *expert);
    void *ud; /* for read */
} pi__moe_watch;

/* Computes op moe; be is a backend of this folder. watch NULL = no reader: pi__cpu_moe. */
void pi__cpu_moe_watched(pi__backend *be, const pi__batch *b, const pi__moe *a, const pi__moe_watch *watch);

#endif
