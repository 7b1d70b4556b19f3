/* Prompt lookup: drafts the tokens that followed an earlier occurrence of the last tokens (draft_lookup.c). */
#ifndef PI__DRAFT_LOOKUP_H
#define PI__DRAFT_LOOKUP_H

#include "engine/drafter.h"

typedef struct pi__lookup_shape {
    int32_t max_seqs;          /* cache rows */
    int32_t longest;           /* max tokens of a sequence */
    int32_t n;                 /* min tokens that must match */
    int32_t n_max;             /* max drafts */
    int32_t shared;            /* tokens of ended requests to keep; 0 = none */
} pi__lookup_shape;

int pi__draft_lookup_create(pi__drafter **out, const pi__lookup_shape *shape, pi_error *err);
/* Bytes that create allocates. */
size_t pi__draft_lookup_bytes(const pi__lookup_shape *shape);
/* Adds the text of s, which has ended, to the shared text; only requests of its tenant (pi__tenant_of) can find it. */
void pi__draft_lookup_keep(pi__drafter *d, const pi__seq *s);
/* Drops the shared texts of a tenant (pi__tenant_of); NULL = of all tenants. */
void pi__draft_lookup_clear(pi__drafter *d, const uint64_t *tenant);

#endif
