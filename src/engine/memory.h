/* The engine's memory for keys, values and recurrent states: sizes and placement.
 *
 * The plan and the allocation use the same numbers. pi__memory_size computes every byte of pools and slots from a
 * declared model, pi__memory_tell reports them, pi__memory_alloc allocates exactly these bytes. Sizing can be
 * repeated if the model is declared again; nothing is allocated before pi__memory_alloc. Owned: pools and slots.
 * Borrowed: config, backend, models. Used by the opening thread, then by the step thread. */
#ifndef PI__MEMORY_H
#define PI__MEMORY_H

#include "cache/cache.h"
#include "engine/block_map.h"
#include "engine/config.h"
#include "model/model.h"
#include "model/tower.h"

typedef struct pi__memory {
    const pi__config *cfg;     /* as configured */
    pi__backend *be;           /* one device, or several backends */
    pi__model *m;              /* declared model; alloc sets the addresses in its layers */
    pi__model *drafter;        /* m itself, a separate model, or NULL = no drafter */
    pi__limits lim;            /* sizes of a step and its buffers */
    int32_t ctx;               /* max tokens of a request by configuration or training */
    int32_t longest;           /* max tokens of a request that the pools hold; sizes the block tables */
    size_t scratch;            /* bytes for activations */
    const pi__model *tower;    /* weights of the vision model; NULL = none */
    size_t image_bytes;        /* bytes for rows of images and the vision model's pool, on every backend */
    pi__group_spec spec[PI__MAX_GROUPS]; /* name, block size, window, blocks of each group */
    pi__block_map map;         /* bytes and addresses of blocks */
    int32_t state_group;       /* cache group of recurrent states, -1 = the model has none */
    size_t slot_bytes[PI__N_PLACEMENTS]; /* bytes of a sequence's state per backend; 0 = no recurrent layers there */
    char *slots[PI__N_PLACEMENTS]; /* [max_seqs] slots of slot_bytes; slot index = table row */
} pi__memory;

/* Computes all sizes for a model and its drafter (or NULL) as declared, with up to n_draft drafts per sequence and
 * step. */
int pi__memory_size(pi__memory *mem, const pi__config *cfg, pi__backend *be, pi__model *m, pi__model *drafter,
                    int32_t n_draft, pi_error *err);
/* Adds the vision model (or NULL) with its activations and pool, and image_bytes for rows of images. */
void pi__memory_add_images(pi__memory *mem, pi__tower *tower, size_t image_bytes);
/* Fills the plan. host: bytes of host memory taken by other modules on any device, reported as scratch. */
void pi__memory_tell(const pi__memory *mem, size_t host, pi_plan *out);
/* Adds the weights, pools and slots of a separate draft model to the plan. Its activations share the first model's
 * scratch. */
void pi__memory_tell_draft_model(const pi__memory *mem, pi_plan *p);
/* Returns the tokens between snapshots that are taken everywhere (snapshots.h): the configured interval. It is smaller
 * for short convolutions, whose snapshots take few bytes compared to the keys and values between two. */
int32_t pi__memory_interval(const pi__memory *mem);
/* Allocates pools and slots as sized and sets the addresses of layers in them. */
int pi__memory_alloc(pi__memory *mem, pi_error *err);
void pi__memory_free(pi__memory *mem);
/* Returns the memory of states and of cache blocks without a prefix to the system. Call while no sequence runs. */
void pi__memory_trim(pi__memory *mem, pi__cache *cache);
/* Returns the bytes of the logits and hidden states of one pass. */
size_t pi__logits_bytes(const pi__memory *mem);

#endif
