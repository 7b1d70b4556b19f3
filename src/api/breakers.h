/* Sequence breakers of DRY (breakers.c). */
#ifndef PI__BREAKERS_H
#define PI__BREAKERS_H

#include "api/objects.h"

/* Token sequences that end DRY's matching, for one list of texts. Shared by requests. */
struct pi__breakers {
    uint32_t ref;          /* reference count, guarded by the engine's lock */
    char *texts;           /* key of the cache: the texts, each with its NUL */
    size_t texts_len;      /* bytes in texts */
    const int32_t **seq;   /* [n] sequences in ids, each terminated by -1 */
    int32_t *ids;          /* tokens of all sequences */
    size_t n;              /* number of sequences */
};

/* Returns the sequences for a list of texts, cached or new; an empty list = the defaults. work may be NULL. The
 * caller releases *out with pi__breakers_put. */
int pi__breakers_get(pi_engine *e, const pi__opt_list *texts, pi__work *work, pi__breakers **out, pi_error *err);
void pi__breakers_put(pi_engine *e, pi__breakers *b);

#endif
