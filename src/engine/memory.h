/* The engine's memory of keys, values and recurrent states: sizes and placement.
 *
 * The plan and the allocation are one: size computes every byte of pools and slots from a declared model, tell says them,
 * alloc takes exactly those. It may be sized again as often as the model is declared again; nothing is allocated before
 * alloc. Owned: pools and slots. Borrowed: config, backend, models. The opening thread, then the step thread. */
#ifndef PI__MEMORY_H
#define PI__MEMORY_H

#include "cache/cache.h"
#include "engine/block_map.h"
#include "engine/config.h"
#include "model/model.h"

typedef struct pi__memory {
    const pi__config *cfg;     /* as asked for */
    pi__backend *be;           /* device, or two backends */
    pi__model *m;              /* declared; its layers get their memory here */
    pi__model *drafter;        /* m itself, a model beside it, or NULL */
    pi__limits lim;            /* sizes of a step */
    int32_t ctx;               /* longest request that is allowed */
    int32_t longest;           /* longest request that the pools hold; what tables are made for */
    size_t scratch;            /* bytes of activations */
    pi__group_spec spec[PI__MAX_GROUPS]; /* name, block size, window, blocks of each group */
    pi__block_map map;         /* bytes and addresses of blocks */
    int32_t state_group;       /* the group of recurrent states, -1: the model has none */
    size_t slot_bytes[PI__N_PLACEMENTS]; /* a sequence's state, the layers on each backend; 0: none */
    char *slots[PI__N_PLACEMENTS]; /* [max_seqs] slots of slot_bytes; the slot is the table row */
} pi__memory;

/* Computes all sizes, for a model and who drafts for it (or NULL) as they are declared, up to n_draft tokens a step. */
int pi__memory_size(pi__memory *mem, const pi__config *cfg, pi__backend *be, pi__model *m, pi__model *drafter, int32_t n_draft,
                    pi_error *err);
/* The plan. host: bytes that others take of the host's memory whatever the device, which are told with scratch. */
void pi__memory_tell(const pi__memory *mem, size_t host, pi_plan *out);
/* Adds weights, pools and slots of a second model, which has no other bytes; what it computes is in the first one's scratch. */
void pi__memory_tell_beside(const pi__memory *mem, pi_plan *p);
/* Allocates pools and slots as sized, and gives layers their addresses in them. */
int pi__memory_alloc(pi__memory *mem, pi_error *err);
void pi__memory_free(pi__memory *mem);
/* Nobody runs: blocks of the cache that hold no prefix go back to the system, and all states. */
void pi__memory_trim(pi__memory *mem, pi__cache *cache);
/* Bytes of the logits that are computed at once. */
size_t pi__logits_bytes(const pi__memory *mem);

#endif
