/* The block drafter: drafts a block of tokens in one pass (draft_block.c). */
#ifndef PI__DRAFT_BLOCK_H
#define PI__DRAFT_BLOCK_H

#include "engine/batch.h"
#include "engine/drafter.h"
#include "engine/rows.h"
#include "model/model.h"

typedef struct pi__draft_block_config {
    pi__model *drafter;        /* block drafter model, separate from the target */
    pi__backend *be;           /* runs target and drafter */
    pi__cache *cache;          /* the target's cache; also holds the drafter's keys and values */
    pi__rows *rows;            /* buffers for logits */
    int32_t n_max;             /* max drafts */
    float p_min;               /* a draft less probable than this ends the drafts of a block */
} pi__draft_block_config;

/* shape: of a batch without logits rows. Borrows all pointers. */
int pi__draft_block_create(pi__drafter **out, const pi__draft_block_config *c, const pi__batch_shape *shape,
                           pi_error *err);
/* Bytes that create allocates. */
size_t pi__draft_block_bytes(const pi__model *drafter, const pi__batch_shape *shape, int32_t max_rows);

#endif
