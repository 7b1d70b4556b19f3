/* The setup of an engine: files, devices, the model as declared, and its sizes. Used by the plan, which loads
 * nothing, and by open, whose engine owns it from then on.
 *
 * Owned: all of it. The opening thread only, until the engine runs. */
#ifndef PI__SETUP_H
#define PI__SETUP_H

#include "base/hash.h"
#include "engine/config.h"
#include "engine/memory.h"
#include "gguf/gguf.h"
#include "model/model.h"

typedef struct pi__setup {
    pi__config cfg;            /* as given; strings are the caller's, and NULL once files are closed */
    pi__gguf *g;               /* open until loaded */
    pi__gguf *draft_g;         /* open until loaded */
    pi__backend *be;           /* device, or two backends */
    pi__placement *placement;  /* of weights and caches, while models are declared */
    pi__model *m;              /* weights and graph */
    pi__model *drafter;        /* who drafts by m's hidden states: m itself, a model beside it, or NULL */
    unsigned kinds;            /* bit PI__SPEC_* of each drafter that there is */
    int32_t n_draft;           /* most drafts of a sequence in a step */
    pi__memory mem;            /* sizes, then pools */
    pi__model *beside;         /* a smaller model that drafts from a cache of its own; or NULL */
    pi__config beside_cfg;     /* of its memory: */
    pi__memory beside_mem;     /* the same as mem */
    pi__progress progress;     /* of opening: who is told */
} pi__setup;

/* Opens files and devices, and declares the model, without loading. On errors, too, everything is freed by free. */
int pi__setup_open(pi__setup *s, const pi__config *c, pi_error *err);
/* Declares the model as placed, and its drafter; and the other way round. */
int pi__setup_declare(pi__setup *s, pi_error *err);
void pi__setup_undeclare(pi__setup *s);
/* The device becomes one of two backends, the CPU the other. */
int pi__setup_add_cpu(pi__setup *s, pi_error *err);
/* The name of the device beside the CPU. */
const char *pi__setup_device(const pi__setup *s);
/* Sizes everything as it is declared. */
int pi__setup_size(pi__setup *s, pi_error *err);
/* The plan, as sized. host: bytes of the host's memory beside. */
void pi__setup_tell(const pi__setup *s, size_t host, pi_plan *p);
/* Bytes of the device's memory that the engine as declared takes; sizes it. */
int pi__setup_device_need(pi__setup *s, uint64_t *bytes, pi_error *err);
/* Loads the models; what their weights come from is as configured, or, with keep, memory that can be shared. */
int pi__setup_load(pi__setup *s, bool keep, pi_error *err);
/* The model whose weights lie beside m's, or NULL. */
pi__model *pi__setup_beside(const pi__setup *s);
/* Of everything that gives a cache block's bytes their meaning; the model is loaded. */
pi__digest pi__setup_fingerprint(const pi__setup *s);
/* All that is needed of the files was copied. */
void pi__setup_close_files(pi__setup *s);
void pi__setup_free(pi__setup *s);

#endif
