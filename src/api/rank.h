/* A query and a document as one prompt (rank.c). */
#ifndef PI__RANK_H
#define PI__RANK_H

#include "api/objects.h"

/* Reads the template for query and document from the model's metadata. */
int pi__engine_open_rank(pi_engine *e, pi_error *err);

#endif
