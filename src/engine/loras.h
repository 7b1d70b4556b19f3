/* The adapters of an engine by name, who uses them, and their part of a step's batch.
 *
 * An adapter that was loaded stays until it was unloaded and the last request with it has ended. Names lead to the newest:
 * another may be loaded under the same name while requests still run with the one before.
 *
 *     caller:       read -> offer -> (step thread: place) -> found by name -> use ... release -> unload
 *     step thread:  between steps, places what is offered and frees what nobody uses any more
 *
 * Memory: an entry each. Threads: all but place, sweep and destroy with the core's lock held; these on the step thread, which
 * takes the lock itself. */
#ifndef PI__LORAS_H
#define PI__LORAS_H

#include <pthread.h>

#include "base/hash.h"
#include "engine/batch.h"
#include "model/adapter.h"
#include "sampler/params.h"

typedef struct pi__lora_entry {
    struct pi__lora_entry *next;
    char *name, *path;     /* as they were given */
    pi__adapter *adapter;
    float scale;           /* of requests that do not say which they want; 0: they have it not */
    int32_t n_users;       /* requests that have not ended */
    bool there;            /* it was placed */
    bool replaces;         /* once it is placed, it takes the scale and the place of the one with its name */
    bool gone;             /* it was unloaded, or could not be placed: nobody finds it any more */
    int code;              /* of placing */
    pi_error err;          /* the same in words */
} pi__lora_entry;

typedef struct pi__loras {
    pi__lora_entry *first; /* in the order in which they were loaded */
} pi__loras;

/* What a sequence has: in the order in which it is added to its rows, which is that of the adapters' ids. */
typedef struct pi__lora_uses {
    struct { pi__lora_entry *of; float scale; } use[PI__MAX_LORA];
    int32_t n;
    pi__digest id;         /* of what they do together; of none pi__digest_none */
} pi__lora_uses;

/* A new entry, offered to the step thread; takes the adapter. old: the one that it is to replace, or NULL. NULL: out of memory,
 * and the adapter is freed. */
pi__lora_entry *pi__loras_offer(pi__loras *l, const char *name, const char *path, pi__adapter *a, float scale, pi__lora_entry *old);
/* true: one of that name is offered or there. */
bool pi__loras_taken(const pi__loras *l, const char *name);
/* NULL: there is none of that name. */
pi__lora_entry *pi__loras_find(const pi__loras *l, const char *name);
/* false: e (NULL: one more) with this scale beside the others would be more than a request can have that does not choose. */
bool pi__loras_may_have(const pi__loras *l, const pi__lora_entry *e, float scale);
/* Number i of those that can be found; NULL past the last. */
pi__lora_entry *pi__loras_at(const pi__loras *l, size_t i);
/* What a request asks for; each entry has a user more then. PI_EINVAL, PI_ENOENT: nothing changed. */
int pi__loras_use(const pi__loras *l, const pi__gen_params *p, pi__lora_uses *out, pi_error *err);
/* true: one of them is to be swept. */
bool pi__loras_release(pi__lora_uses *u);
/* Step thread, between steps: places what is offered, frees what is gone and unused; changed: of waiting callers. */
void pi__loras_serve(pi__loras *l, pi__backend *be, pthread_mutex_t *lock, pthread_cond_t *changed);
void pi__loras_destroy(pi__loras *l, pi__backend *be);

/* Sequence q of the batch that is being built has these. Before pi__batch_end. */
void pi__loras_add(pi__batch_builder *bb, int32_t q, const pi__lora_uses *u);

#endif
