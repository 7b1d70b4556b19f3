/* The configuration of an engine, filled from options by src/api. Strings belong to the caller; open copies the ones
 * that it needs later. */
#ifndef PI__ENGINE_CONFIG_H
#define PI__ENGINE_CONFIG_H

#include "backend/devices.h"
#include "backend/ranks.h"
#include "base/log.h"
#include "engine/encoder.h"
#include "model/cache_rules.h"
#include "model/placement.h"

enum { PI__POLICY_FCFS, PI__POLICY_PRIORITY };
/* Drafters. AUTO in the engine's options = the draft model if one is given; in a request = the engine's default. */
enum { PI__SPEC_AUTO, PI__SPEC_NONE, PI__SPEC_MTP, PI__SPEC_DRAFT, PI__SPEC_NGRAM, PI__SPEC_LAYER_EXIT, PI__N_SPEC };
enum { PI__MAX_DRAFT = 16 };

typedef struct pi__given {
    bool set;                  /* false = the model's own value */
    double value;
} pi__given;

enum { PI__ROPE_MODEL, PI__ROPE_NONE, PI__ROPE_LINEAR, PI__ROPE_YARN };

/* Rotary embedding, overrides the model's metadata; 0 = the model's value. */
typedef struct pi__rope_config {
    double base;               /* frequency base */
    int scaling;               /* PI__ROPE_* */
    double scale;              /* factor by which the context becomes longer than in training */
    int64_t orig_ctx;          /* context length of training, tokens */
    pi__given ext_factor, attn_factor, beta_slow, beta_fast; /* YaRN parameters, see model/rope.c */
} pi__rope_config;

typedef struct pi__config {
    const char *model;         /* path of the GGUF (or its first split) */
    int load_mode;             /* enum pi__load_mode */
    bool mlock;                /* lock weights in host memory */
    const char *const *override_kv; /* "KEY=TYPE:VALUE" overrides of the model's metadata */
    size_t n_override_kv;      /* entries in override_kv */
    bool check_tensors;        /* refuse weights that are NaN or infinite */
    bool trace_ops;            /* log a line for each op */
    const char *imatrix_file;  /* path of an importance matrix to write; "" = none */
    const char *imatrix_dataset; /* name of the text in that file */
    bool profile_ops;          /* measure each op, for pi_engine_profile */
    pi__rope_config rope;      /* overrides of the model's RoPE parameters */
    int32_t ctx_size;          /* max tokens of prompt + answer; 0 = the model's training context */
    int32_t max_batch_tokens;  /* token budget of a step, prefill and decode together (512 by default) */
    /* target time of a step that decodes, ms: fewer prefill tokens keep it below (pace.h); 0 = no limit */
    double step_target_ms;
    int32_t max_seqs;          /* max running requests (16 by default) */
    int32_t max_queue;         /* max waiting requests */
    int32_t block_size;        /* tokens per block: 16, 32 or 64 */
    pi__cache_rules cache_types; /* rules that give cache types to layers */
    int32_t type_k, type_v;    /* cache types of layers without a rule, see formats/cache_types.h */
    uint64_t kv_bytes;         /* bytes of all pools; 0 = use kv_tokens */
    uint64_t kv_tokens;        /* tokens the cache holds; 0 with kv_bytes 0 = by memory_share */
    /* part of the free memory that the engine uses if kv_tokens and kv_bytes are 0; 0 = the cache holds one request of
     * ctx_size, at most 32768 tokens without a ctx_size */
    double memory_share;
    uint64_t adapter_bytes;    /* bytes to leave free for the adapters that are loaded after opening */
    bool kv_commit;            /* commit the pools' memory at open; false = when blocks are first used */
    bool prefix_cache;         /* reuse prefixes across requests */
    uint64_t snapshot_bytes;   /* budget for snapshots of recurrent states, bytes; 0 = the bytes of all other pools */
    int32_t snapshot_interval; /* tokens between snapshots where no other reuse point is near */
    /* host memory for blocks evicted by a discrete device, bytes; -1 = 3/4 of the available memory, 0 = none */
    int64_t cache_ram;
    const char *weights_from;  /* socket of a weights owner process; NULL or "" = load from files */
    const char *weights_cache; /* directory of packed weights; NULL or "" = do not cache */
    const char *prefix_dir;    /* directory of the disk tier; NULL or "" = no disk tier */
    const char *prefix_key;    /* key file of the disk tier; NULL or "" = protected by directory permissions only */
    uint64_t prefix_dir_bytes; /* max bytes of the disk tier */
    bool prefix_dir_read_only; /* never write to the disk tier */
    float sparsity;            /* sparsity of sparse prefill (pi__attention); 0 = dense */
    int32_t sparse_from;       /* first position of sparse prefill, rounded up to a multiple of its block size */
    int32_t n_layer_exit;      /* layers to compute; 0 = all */
    int32_t n_expert;          /* experts per token; 0 = the model's value */
    int policy;                /* PI__POLICY_* */
    double max_wait_ms;        /* a request that waited longer goes first; 0 = never */
    int spec;                  /* PI__SPEC_*, default drafter of requests */
    unsigned spec_also;        /* mask: 1u << PI__SPEC_* of each drafter that a request may choose besides `spec` */
    const char *draft_model;   /* path of a drafter's GGUF; NULL or "" = no draft model */
    int32_t n_draft;           /* max drafts per sequence and step, at most PI__MAX_DRAFT */
    int32_t n_draft_least;     /* min drafts per sequence and step; fewer drafts are dropped */
    float draft_p_min;         /* a draft less probable than this is dropped, with all drafts after it */
    bool ahead;                /* allow lookahead steps on a device (runner.c) */
    /* choose the draft length by expected gain (draft_worth.h); false = always the maximum */
    bool draft_adaptive;
    int32_t draft_layers;      /* early exit: number of the first layers that draft; 0 = half of the model's layers */
    int32_t ngram_n;           /* prompt lookup: min tokens that must match */
    int32_t ngram_m;           /* prompt lookup: max drafts; 0 = n_draft */
    int32_t ngram_shared;      /* prompt lookup: tokens of ended requests to search as well; 0 = none */
    char chosen_device[160];   /* storage for `device` when it was derived from other options */
    const char *device;        /* "auto", or a name from pi__devices: see pi__devices_named */
    bool tensor;               /* tensor parallel: each device has a shard of every layer */
    bool layers;               /* pipeline parallel: each device has some of the layers */
    /* with layers: relative part of each device; 0 = in proportion to its free memory */
    double part[PI__N_PLACEMENTS];
    pi__ranks *ranks;          /* tensor parallel processes, this one is rank 0; NULL = a single process */
    /* bytes of device memory that gpu-layers auto leaves free; 0 = 1 GiB, at most an eighth of the free memory */
    uint64_t fit_margin;
    pi__placement_rules placement; /* device or CPU for weights and caches */
    pi__device_params params;  /* options of the devices */
    const char *mmproj;        /* path of the vision model's GGUF; NULL or "" = the engine reads no images */
    uint64_t mmproj_cache;     /* bytes for rows of images; 0 = by default; always at least the largest image */
    uint32_t image_max_tokens; /* max tokens of one image; 0 = the vision model's default */
    /* encodes images in the place of mmproj; must live as long as the engine. NULL = mmproj */
    const pi__encoder *encoder;
    pi__log log;               /* log sink */
    pi_progress_fn progress;   /* progress callback of open, or NULL */
    void *progress_ud;         /* first argument of progress */
} pi__config;

#endif
