/* The sequence breakers of DRY (breakers.c). */
#ifndef PI__BREAKERS_H
#define PI__BREAKERS_H

#include "api/objects.h"

/* Token sequences that DRY does not cross, for one list of texts. Shared by requests. */
struct pi__breakers {
    uint32_t ref;          /* under the engine's lock */
    char *texts;           /* what it was made of: the texts, each with its NUL */
    size_t texts_len;      /* bytes in texts */
    const int32_t **seq;   /* [n] sequences, each ended by -1; they lie in ids */
    int32_t *ids;          /* all of them */
    size_t n;              /* sequences */
};

/* Finds or makes the sequences for a list of texts (NULL: the defaults), under a budget or NULL. */
int pi__breakers_get(pi_engine *e, const pi__opt_list *texts, pi__work *work, pi__breakers **out, pi_error *err);
void pi__breakers_put(pi_engine *e, pi__breakers *b);

#endif
