/* The drafter that looks up what followed the same words before (draft_lookup.c). */
#ifndef PI__DRAFT_LOOKUP_H
#define PI__DRAFT_LOOKUP_H

#include "engine/drafter.h"

typedef struct pi__lookup_shape {
    int32_t max_seqs;          /* rows */
    int32_t longest;           /* tokens of a sequence */
    int32_t n;                 /* tokens that have to be the same, at least */
    int32_t n_max;             /* drafts at most */
    int32_t shared;            /* tokens of requests that ended that are kept; 0: none */
} pi__lookup_shape;

int pi__draft_lookup_create(pi__drafter **out, const pi__lookup_shape *shape, pi_error *err);
/* Bytes that create allocates. */
size_t pi__draft_lookup_bytes(const pi__lookup_shape *shape);
/* s has ended, and others of its tenant (pi__tenant_of its salt) may see what it said. */
void pi__draft_lookup_keep(pi__drafter *d, const pi__seq *s);
/* Forgets the texts of a tenant (pi__tenant_of); of all with NULL. */
void pi__draft_lookup_clear(pi__drafter *d, const uint64_t *tenant);

#endif
