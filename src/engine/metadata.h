/* Options over the metadata of a model's file (metadata.c). */
#ifndef PI__METADATA_H
#define PI__METADATA_H

#include "engine/config.h"
#include "gguf/gguf.h"

/* Sets what c overrides, as rules over g. */
int pi__override_metadata(pi__gguf *g, const pi__config *c, pi_error *err);

#endif
