/* The drafters of an engine, made from its setup. */
#ifndef PI__DRAFTERS_H
#define PI__DRAFTERS_H

#include "engine/drafting.h"
#include "engine/rows.h"
#include "engine/setup.h"

/* Drafting with all drafters that the setup has. draft_cache: of a model beside. Borrows all of them. On errors, too, it is destroyed as
 * always. */
int pi__drafters_create(pi__drafting *d, const pi__setup *s, pi__cache *cache, pi__cache *draft_cache, pi__rows *rows,
                        pi_error *err);
/* Bytes of the host's memory that create allocates. */
size_t pi__drafters_bytes(const pi__setup *s);
/* s has ended and gave nothing back yet: what it said may be of use to others of its tenant. */
void pi__drafters_keep(pi__drafting *d, const pi__seq *s);
/* Forgets what was kept of a tenant (pi__tenant_of); of all with NULL. */
void pi__drafters_clear(pi__drafting *d, const uint64_t *tenant);
/* Bits of the cache groups in which a sequence with this drafter has nothing: those of a drafter that is not its own. */
uint32_t pi__drafter_without(const pi__setup *s, int kind);
/* Who drafts for a request that asks for this PI__SPEC_*. PI_EINVAL: the engine has it not. */
int pi__drafter_of(const pi__setup *s, int asked, int *kind, pi_error *err);

#endif
