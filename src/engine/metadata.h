/* Overrides of the metadata of a model file by options (metadata.c). */
#ifndef PI__METADATA_H
#define PI__METADATA_H

#include "engine/config.h"
#include "gguf/gguf.h"

/* Overrides the metadata of g by c->override_kv and c->rope. */
int pi__override_metadata(pi__gguf *g, const pi__config *c, pi_error *err);

#endif
