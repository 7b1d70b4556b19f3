/* The LoRA adapters of an engine by name, their users, and their part of a step's batch.
 *
 * A loaded adapter stays until it is unloaded and its last request has ended. A name finds the newest adapter:
 * another one may be loaded under a name while requests still run with the old one.
 *
 *     caller:       read -> offer -> (step thread: place) -> found by name -> use ... release -> unload
 *     step thread:  between steps, places offered adapters and frees removed ones without users
 *
 * Memory: one entry per adapter. Threads: call all functions except serve, destroy and add with the core's lock held.
 * These three run on the step thread; serve takes the lock itself. */
#ifndef PI__LORAS_H
#define PI__LORAS_H

#include <pthread.h>

#include "base/hash.h"
#include "engine/batch.h"
#include "model/adapter.h"
#include "sampler/params.h"

typedef struct pi__lora_entry {
    struct pi__lora_entry *next;
    char *name, *path;     /* copies of the caller's strings */
    pi__adapter *adapter;
    float scale;           /* scale in requests that name no adapters; 0 = not used by them */
    int32_t n_users;       /* requests that have not ended, and callers that wait for the entry */
    bool ready;            /* placed on the device */
    bool replaces;         /* once ready, replaces the adapter of the same name, with its scale and list position */
    bool removed;          /* unloaded, or placing failed; can no longer be found */
    int code;              /* PI_OK, or the error of placing */
    pi_error err;          /* message of code */
} pi__lora_entry;

typedef struct pi__loras {
    pi__lora_entry *first; /* in order of loading */
} pi__loras;

/* The adapters of a sequence, in the order in which they are added to its rows: the order of adapter ids. */
typedef struct pi__lora_uses {
    struct { pi__lora_entry *of; float scale; } use[PI__MAX_LORA];
    int32_t n;
    pi__digest id;         /* digest of all adapters with their scales; without adapters pi__digest_none */
} pi__lora_uses;

/* Adds an entry for the step thread to place; takes ownership of a. old: the entry to replace, or NULL. Returns NULL
 * when out of memory, and frees a. */
pi__lora_entry *pi__loras_offer(pi__loras *l, const char *name, const char *path, pi__adapter *a, float scale,
                                pi__lora_entry *old);
/* True if an entry of that name is waiting to be placed or ready. */
bool pi__loras_taken(const pi__loras *l, const char *name);
/* Returns the ready adapter of that name, or NULL. */
pi__lora_entry *pi__loras_find(const pi__loras *l, const char *name);
/* False if scale for e (NULL = a new adapter) would give requests that name no adapters more than PI__MAX_LORA
 * adapters. */
bool pi__loras_may_have(const pi__loras *l, const pi__lora_entry *e, float scale);
/* Returns the i-th ready adapter; NULL = past the last. */
pi__lora_entry *pi__loras_at(const pi__loras *l, size_t i);
/* Resolves the adapters of a request and adds a user to each. On PI_EINVAL and PI_ENOENT no entry has changed. */
int pi__loras_use(const pi__loras *l, const pi__gen_params *p, pi__lora_uses *out, pi_error *err);
/* Removes the request as a user of its adapters. Returns true if an adapter can be freed by serve. */
bool pi__loras_release(pi__lora_uses *u);
/* Step thread, between steps: places waiting adapters, frees removed ones without users, signals `changed`. */
void pi__loras_serve(pi__loras *l, pi__backend *be, pthread_mutex_t *lock, pthread_cond_t *changed);
void pi__loras_destroy(pi__loras *l, pi__backend *be);

/* Adds the adapters of sequence q to the batch that is being built. Call before pi__batch_end. */
void pi__loras_add(pi__batch_builder *bb, int32_t q, const pi__lora_uses *u);

#endif
