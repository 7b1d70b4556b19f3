/* Layers that `quantize` leaves out (--prune-layers), and what the others are called then. One block of memory. */
#ifndef PI__QUANTIZE_PRUNE_H
#define PI__QUANTIZE_PRUNE_H

#include <stdbool.h>

#include "gguf/gguf.h"

typedef struct pi__prune {
    bool *gone;          /* [n_layer] */
    int n_layer, n_gone; /* layers of the model; of them left out, 0: nothing is */
} pi__prune;

/* Reads "0,3,5". PI_EINVAL: no numbers of layers, or all of them; PI_EUNSUPPORTED: metadata of g has a value for each layer
 * in an array; PI_ENOMEM. */
int pi__prune_init(pi__prune *p, const char *list, const pi__gguf *g, pi_error *err);
void pi__prune_free(pi__prune *p);
bool pi__prune_drops(const pi__prune *p, const pi__tensor *t);
/* The tensor's name in the output, its layer counted anew. out has t->name.n + 1 bytes. */
void pi__prune_name(const pi__prune *p, const pi__tensor *t, char *out);

#endif
