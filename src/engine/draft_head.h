/* The drafter that reads the target's hidden states: an MTP head, or a small model made for the target (draft_head.c). */
#ifndef PI__DRAFT_HEAD_H
#define PI__DRAFT_HEAD_H

#include "engine/batch.h"
#include "engine/drafter.h"
#include "engine/rows.h"
#include "model/model.h"

/* drafter: a model that drafts, the target itself or one beside it. cache: the target's, which has the drafter's keys and
 * values, too. shape: of a batch without rows. p_min: a token that is
 * less probable is no draft. Borrows all pointers. */
int pi__draft_head_create(pi__drafter **out, pi__model *drafter, pi__backend *be, pi__cache *cache, pi__rows *rows,
                          const pi__batch_shape *shape, int32_t n_max, float p_min, pi_error *err);
/* Bytes that create allocates. */
size_t pi__draft_head_bytes(const pi__batch_shape *shape);

#endif
