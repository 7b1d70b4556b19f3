/* The configuration of an engine: src/api fills it from options; strings are the caller's until open copies what it
 * keeps. */
#ifndef PI__ENGINE_CONFIG_H
#define PI__ENGINE_CONFIG_H

#include "backend/device.h"
#include "backend/ranks.h"
#include "base/log.h"
#include "model/cache_rules.h"
#include "model/placement.h"

enum { PI__POLICY_FCFS, PI__POLICY_PRIORITY };
/* Who drafts. auto: a draft model, if one is given; of a request: the engine's first. */
enum { PI__SPEC_AUTO, PI__SPEC_NONE, PI__SPEC_MTP, PI__SPEC_DRAFT, PI__SPEC_NGRAM, PI__SPEC_LAYER_EXIT, PI__N_SPEC };
enum { PI__MAX_DRAFT = 16 };

typedef struct pi__given {
    bool set;                  /* false: the model's */
    double value;
} pi__given;

enum { PI__ROPE_MODEL, PI__ROPE_NONE, PI__ROPE_LINEAR, PI__ROPE_YARN };

/* Of the rotary embedding, over the model's metadata; 0: the model's. */
typedef struct pi__rope_config {
    double base;               /* of frequencies */
    int scaling;               /* PI__ROPE_* */
    double scale;              /* contexts become so many times as long */
    int64_t orig_ctx;          /* tokens of the context of training */
    pi__given ext_factor, attn_factor, beta_slow, beta_fast; /* of YaRN: see model/rope.c */
} pi__rope_config;

typedef struct pi__config {
    const char *model;         /* path of the GGUF (or its first split) */
    int load_mode;             /* enum pi__load_mode */
    bool mlock;                /* weights in the host's memory are kept there */
    const char *const *override_kv; /* "KEY=TYPE:VALUE" over the model's metadata */
    size_t n_override_kv;      /* how many */
    bool check_tensors;        /* weights that are no numbers are refused */
    bool trace_ops;            /* a line of the log for each op */
    bool profile_ops;          /* times of each op are kept, for pi_engine_profile */
    pi__rope_config rope;      /* over the model's */
    int32_t ctx_size;          /* longest prompt + answer; 0: what the model was trained for */
    int32_t max_batch_tokens;  /* token budget of a step, prefill and decode together (512 by default) */
    double step_target_ms;     /* prefill beside those who decode is bounded to keep steps to it; 0: no bound */
    int32_t max_seqs;          /* requests that run at once (16 by default) */
    int32_t max_queue;         /* requests that wait at most */
    int32_t block_size;        /* 16, 32 or 64 */
    pi__cache_rules cache_types; /* types of the cache by layer, */
    int32_t type_k, type_v;    /* and of layers that no rule names: of formats/cache_types.h */
    uint64_t kv_bytes;         /* bytes of all pools; 0: by kv_tokens */
    uint64_t kv_tokens;        /* tokens the cache holds; 0 with kv_bytes 0: one request of ctx_size, at most 32768 */
    bool kv_commit;            /* take the pools' memory at once instead of as blocks are first used */
    bool prefix_cache;         /* find and keep prefixes across requests */
    uint64_t snapshot_bytes;   /* for snapshots of recurrent states; 0: as much as the other pools take */
    int32_t snapshot_interval; /* tokens from one snapshot to the next where nothing else asks for one */
    int64_t cache_ram;         /* bytes of host memory for blocks evicted by a discrete device; -1: all free, 0: none */
    const char *weights_from;  /* socket of an owner of packed weights; NULL or "": none */
    const char *weights_cache; /* directory of packed weights; NULL or "": none */
    const char *prefix_dir;    /* directory of the disk tier; NULL or "": none */
    const char *prefix_key;    /* key file for it; NULL or "": its permissions protect it */
    uint64_t prefix_dir_bytes; /* its limit */
    bool prefix_dir_read_only; /* it is only read */
    float sparsity;            /* of sparse prefill (pi__attention); 0: there is none */
    int32_t sparse_from;       /* position from which on it is, rounded up to whole blocks */
    int32_t n_layer_exit;      /* layers that are computed; 0: all */
    int32_t n_expert;          /* experts a token has; 0: as the model says */
    int policy;                /* PI__POLICY_* */
    double max_wait_ms;        /* who has waited so long goes first; 0: nobody does */
    int spec;                  /* PI__SPEC_*, of requests that do not choose */
    unsigned spec_also;        /* bit PI__SPEC_* of each other that they may choose */
    const char *draft_model;   /* path of a drafter's GGUF; NULL or "": none */
    int32_t n_draft;           /* most drafts a sequence gets in a step, at most PI__MAX_DRAFT */
    int32_t n_draft_least;     /* fewer are not verified */
    float draft_p_min;         /* a drafter that is less sure of a token gives none from there on */
    bool ahead;                /* steps of a device may be fed ahead (runner.c) */
    bool draft_adaptive;       /* how many depends on what they are worth (draft_worth.h); else always as many as there are */
    int32_t draft_layers;      /* early exit: layers that draft; 0: half of them */
    int32_t ngram_n;           /* prompt lookup: tokens that have to be the same */
    int32_t ngram_m;           /* most drafts that it gives; 0: n_draft */
    int32_t ngram_shared;      /* tokens of other requests that it looks at, too; 0: none */
    char chosen_device[160];   /* where device points, if it was made from other options */
    const char *device;        /* "auto", or of pi__devices: see pi__devices_named */
    bool tensor;               /* several of them work as one, each with a shard of every layer */
    bool layers;               /* or with some of the layers, */
    double part[PI__N_PLACEMENTS]; /* these parts; 0: as there is memory */
    pi__ranks *ranks;          /* processes whose devices work as one with this one's, which is rank 0; NULL: it is alone */
    uint64_t fit_margin;       /* bytes of the device that gpu-layers auto leaves free; 0: 1 GiB, at most an eighth */
    pi__placement_rules placement; /* of weights and caches: device, or the CPU beside it */
    pi__cpu_params cpu;        /* threads and instruction set */
    pi__log log;               /* where lines go */
    pi_progress_fn progress;   /* told how far opening is; or NULL */
    void *progress_ud;         /* its first argument */
} pi__config;

#endif
