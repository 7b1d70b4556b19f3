/* A query and a document as one prompt (rank.c). */
#ifndef PI__RANK_H
#define PI__RANK_H

#include "api/objects.h"

/* If the model's metadata has a template for query and document, copies it to e->rank_template and sets
 * e->rank_markup. */
int pi__engine_open_rank(pi_engine *e, pi_error *err);

#endif
