/* The drafter that reads the target's hidden states: an MTP head, or a small model trained for the target
 * (draft_head.c). */
#ifndef PI__DRAFT_HEAD_H
#define PI__DRAFT_HEAD_H

#include "engine/batch.h"
#include "engine/drafter.h"
#include "engine/rows.h"
#include "model/model.h"

/* drafter: the drafting model, either the target itself or a separate one. cache: the target's cache; also holds the
 * drafter's keys and values. shape: of a batch without logits rows. p_min: a less probable token is not drafted.
 * Borrows all pointers. */
int pi__draft_head_create(pi__drafter **out, pi__model *drafter, pi__backend *be, pi__cache *cache, pi__rows *rows,
                          const pi__batch_shape *shape, int32_t n_max, float p_min, pi_error *err);
/* Bytes that create allocates. */
size_t pi__draft_head_bytes(const pi__batch_shape *shape);

#endif
