/* Sequence breakers of DRY (breakers.c). */
#ifndef PI__BREAKERS_H
#define PI__BREAKERS_H

#include "api/objects.h"

/* Token sequences that end a match of the DRY sampler, for one list of breaker texts. Requests with equal lists may
 * share one object. */
struct pi__breakers {
    uint32_t ref;          /* references of requests and of the engine's cache; guarded by the engine's lock */
    char *texts;           /* the texts, each with its NUL; two lists are equal if these bytes are */
    size_t texts_len;      /* bytes in texts */
    const int32_t **seq;   /* [n] sequences in ids, each terminated by -1 */
    int32_t *ids;          /* tokens of all sequences; `seq` points into it */
    size_t n;              /* number of sequences */
};

/* Returns the sequences for a list of breaker texts in *out: the engine's cached object if its list is equal, else a
 * new one, which replaces the cached one. An empty list = the defaults of llama.cpp. work may be NULL. The caller
 * releases *out with pi__breakers_put. */
int pi__breakers_get(pi_engine *e, const pi__opt_list *texts, pi__work *work, pi__breakers **out, pi_error *err);
void pi__breakers_put(pi_engine *e, pi__breakers *b);

#endif
