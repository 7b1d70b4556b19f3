/* The setup of an engine: files, devices, the declared model, and its sizes. Used by the planner, which loads
 * nothing, and by open; the engine then owns it.
 *
 * Owned: everything in it. Opening thread only, until the engine runs. */
#ifndef PI__SETUP_H
#define PI__SETUP_H

#include "base/hash.h"
#include "engine/config.h"
#include "engine/memory.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "model/tower.h"

typedef struct pi__setup {
    pi__config cfg;            /* as given; strings belong to the caller and are NULL once files are closed */
    pi__gguf *g;               /* open until loaded */
    pi__gguf *draft_g;         /* open until loaded */
    pi__backend *be;           /* one device, or several backends */
    struct pi__sums *sums;     /* importance matrix (imatrix.h); NULL = none */
    pi__placement *placement;  /* placement of weights and caches, used while models are declared */
    pi__model *m;              /* weights and graph */
    pi__model *drafter;        /* drafter that reads m's hidden states: m itself, a separate model, or NULL */
    unsigned kinds;            /* bit PI__SPEC_* of each available drafter */
    int32_t n_draft;           /* max drafts per sequence and step */
    pi__memory mem;            /* sizes, then pools */
    pi__tower *tower;          /* vision model (option mmproj), or NULL */
    pi__encoder tower_encoder; /* tower as an encoder */
    const pi__encoder *encoder; /* encodes images; NULL = the engine reads no images */
    int32_t n_image_rows;      /* rows of the encoder cache */
    pi__model *draft_model;    /* a separate draft model with its own cache; or NULL */
    pi__config draft_model_cfg; /* configuration of draft_model */
    pi__memory draft_model_mem; /* sizes of draft_model, then its pools */
    pi__progress progress;     /* progress callback of opening */
    int32_t cache_limit;       /* PI_CACHE_LIMIT_*, set by pi__plan_setup */
    uint64_t free_bytes;       /* free memory of the device that limits the cache; 0 = unknown */
} pi__setup;

/* Opens files and devices and declares the model, without loading. On error, too, pi__setup_free frees everything. */
int pi__setup_open(pi__setup *s, const pi__config *c, pi_error *err);
/* Declares the model with its drafter as placed; undeclare frees both. */
int pi__setup_declare(pi__setup *s, pi_error *err);
void pi__setup_undeclare(pi__setup *s);
/* Adds the CPU: s->be becomes a split backend of the device and a new CPU backend (split.h). On error, s->be stays the
 * device. */
int pi__setup_add_cpu(pi__setup *s, pi_error *err);
/* Returns the backend name of the configured device; "cpu" if there is no device. */
const char *pi__setup_device(const pi__setup *s);
/* Computes the sizes of caches and buffers of the declared models; allocates nothing. */
int pi__setup_size(pi__setup *s, pi_error *err);
/* Fills the plan with the sizes from pi__setup_size. host: bytes of host memory of other modules. */
void pi__setup_tell(const pi__setup *s, size_t host, pi_plan *p);
/* Computes all sizes and sets *bytes to the device memory that the declared models need, caches and buffers included.
 * Weights that a weights owner holds are not counted. */
int pi__setup_device_need(pi__setup *s, uint64_t *bytes, pi_error *err);
/* Loads the models. keep false: weights come from weights-from or weights-cache if configured, else from the file. keep
 * true: weights go to memory that can be shared, for a weights owner. */
int pi__setup_load(pi__setup *s, bool keep, pi_error *err);
/* Returns the model of model-draft, either a small model or a drafter that reads hidden states; NULL = none. */
pi__model *pi__setup_second_model(const pi__setup *s);
/* Returns the digest of everything that determines the bytes of a cache block. The model must be loaded. */
pi__digest pi__setup_fingerprint(const pi__setup *s);
/* Closes the files and sets the caller's strings in cfg to NULL. Call once everything needed was copied. */
void pi__setup_close_files(pi__setup *s);
void pi__setup_free(pi__setup *s);

#endif
