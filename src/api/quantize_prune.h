/* Layers that `quantize` removes (--prune-layers), and the new names of the others. One block of memory. */
#ifndef PI__QUANTIZE_PRUNE_H
#define PI__QUANTIZE_PRUNE_H

#include <stdbool.h>

#include "gguf/gguf.h"

typedef struct pi__prune {
    bool *gone;          /* [n_layer] true = removed */
    int n_layer, n_gone; /* layers of the model; removed layers, 0 = no pruning */
} pi__prune;

/* Sets the removed layers from a list "0,3,5". PI_EINVAL: bad layer numbers, or all layers; PI_EUNSUPPORTED: metadata
 * of g has an array with a value per layer; PI_ENOMEM. */
int pi__prune_init(pi__prune *p, const char *list, const pi__gguf *g, pi_error *err);
void pi__prune_free(pi__prune *p);
/* True if t belongs to a removed layer. */
bool pi__prune_drops(const pi__prune *p, const pi__tensor *t);
/* Writes the tensor's output name, with its layer renumbered and a NUL, to out[t->name.n + 1]. */
void pi__prune_name(const pi__prune *p, const pi__tensor *t, char *out);

#endif
