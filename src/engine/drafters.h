/* Creates the drafters of an engine from its setup. */
#ifndef PI__DRAFTERS_H
#define PI__DRAFTERS_H

#include "engine/drafting.h"
#include "engine/rows.h"
#include "engine/setup.h"

/* Creates drafting with all drafters of the setup. draft_cache: cache of a separate draft model. Borrows all
 * pointers. Destroy d also after an error. */
int pi__drafters_create(pi__drafting *d, const pi__setup *s, pi__cache *cache, pi__cache *draft_cache, pi__rows *rows,
                        pi_error *err);
/* Bytes of host memory that create allocates. */
size_t pi__drafters_bytes(const pi__setup *s);
/* Keeps the text of s, if the engine has prompt lookup with shared texts: drafts of later requests of its tenant may
 * come from it. s has ended and still has its row. */
void pi__drafters_keep(pi__drafting *d, const pi__seq *s);
/* Drops the texts kept for a tenant (pi__tenant_of); NULL = of all tenants. */
void pi__drafters_clear(pi__drafting *d, const uint64_t *tenant);
/* Returns the bits of the cache groups that a sequence with this drafter does not use: groups of another drafter. */
uint32_t pi__drafter_skip_groups(const pi__setup *s, int kind);
/* Sets *kind to the drafter for a request with PI__SPEC_* `asked`; PI__SPEC_NONE if the engine's default is disabled.
 * PI_EINVAL = the engine does not have the drafter. */
int pi__drafter_of(const pi__setup *s, int asked, int *kind, pi_error *err);

#endif
