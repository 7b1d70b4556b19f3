/* Drafters that run a transformer: a separate smaller model, or the target's first layers (early exit;
 * draft_model.c). */
#ifndef PI__DRAFT_MODEL_H
#define PI__DRAFT_MODEL_H

#include "engine/batch.h"
#include "engine/drafter.h"
#include "engine/rows.h"
#include "model/model.h"

typedef struct pi__draft_model_config {
    pi__model *m;              /* model that drafts */
    int32_t n_layer;           /* number of the model's first layers to run */
    bool own;                  /* `cache` belongs to the drafter; false = the target's cache, with the same layers */
    bool prefix_cache;         /* with own: reuse prefixes in the cache */
    pi__backend *be;           /* runs the model */
    pi__cache *cache;          /* keys, values and states */
    pi__rows *rows;            /* buffers for logits */
    int32_t n_max;             /* max drafts */
    float share;               /* see pi__drafter */
    float p_min;               /* a less probable token is not drafted; 0 = accept any */
} pi__draft_model_config;

/* shape: of a batch for that cache, with logits rows. Borrows all pointers of the config. */
int pi__draft_model_create(pi__drafter **out, const pi__draft_model_config *config, const pi__batch_shape *shape,
                           pi_error *err);
/* Bytes that create allocates. */
size_t pi__draft_model_bytes(const pi__batch_shape *shape);

#endif
