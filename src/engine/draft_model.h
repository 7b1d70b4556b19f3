/* The drafters that are a whole model: a smaller one beside the target, or the target's own first layers (draft_model.c). */
#ifndef PI__DRAFT_MODEL_H
#define PI__DRAFT_MODEL_H

#include "engine/batch.h"
#include "engine/drafter.h"
#include "engine/rows.h"
#include "model/model.h"

typedef struct pi__draft_model_config {
    pi__model *m;              /* what drafts */
    int32_t n_layer;           /* its layers that do */
    bool own;                  /* it has a cache of its own, the one given; else that is the target's, which has its part */
    bool keeps;                /* prefixes are reused in that */
    pi__backend *be;           /* where it runs */
    pi__cache *cache;          /* of keys, values and states */
    pi__rows *rows;            /* for its logits */
    int32_t n_max;             /* most drafts */
    float share;               /* see pi__drafter */
    float p_min;               /* a less probable token is no draft; 0: any is */
} pi__draft_model_config;

/* shape: of a batch of that cache, with rows. Borrows what the config points to. */
int pi__draft_model_create(pi__drafter **out, const pi__draft_model_config *config, const pi__batch_shape *shape, pi_error *err);
/* Bytes that create allocates. */
size_t pi__draft_model_bytes(const pi__batch_shape *shape);

#endif
