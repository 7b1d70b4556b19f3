/* The engine without strings: weights, cache, scheduler and the thread that runs steps.
 *
 * src/api turns options and requests into the plain structs here, and calls back into text and events. Prompts are ids,
 * answers are ids; this layer knows no text. */
#ifndef PI__CORE_H
#define PI__CORE_H

#include "backend/device.h"
#include "sampler/params.h"
#include "model/place.h"
#include "pagedinfer.h"
#include "tokenizer/vocab.h"

enum { PI__POLICY_FCFS, PI__POLICY_PRIORITY };
enum { PI__SPEC_AUTO, PI__SPEC_NONE, PI__SPEC_MTP, PI__SPEC_DRAFT }; /* auto: a draft model, if one is given */
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
    const char *const *override_kv; /* "KEY=TYPE:VALUE" over the model's metadata */
    size_t n_override_kv;      /* how many */
    bool check_tensors;        /* weights that are no numbers are refused */
    pi__rope_config rope;      /* over the model's */
    int32_t ctx_size;          /* longest prompt + answer; 0: what the model was trained for */
    int32_t max_batch_tokens;  /* token budget of a step (512 by default) */
    int32_t max_seqs;          /* requests that run at once (16 by default) */
    int32_t max_queue;         /* requests that wait at most */
    int32_t block_size;        /* 16, 32 or 64 */
    int32_t type_k, type_v;    /* enum pi__type of the cache */
    bool window_differs;       /* window layers have another: */
    int32_t type_window;       /* of their keys and values */
    uint64_t kv_bytes;         /* bytes of all pools; 0: by kv_tokens */
    uint64_t kv_tokens;        /* tokens the cache holds; 0 with kv_bytes 0: one request of ctx_size, at most 32768 */
    bool kv_commit;            /* take the pools' memory at once instead of as blocks are first used */
    bool prefix_cache;         /* find and keep prefixes across requests */
    uint64_t snapshot_bytes;   /* for snapshots of recurrent states; 0: as much as the other pools take */
    int32_t snapshot_interval; /* tokens from one snapshot to the next where nothing else asks for one */
    int64_t cache_ram;         /* bytes of host memory for what a far device evicts; -1: all that is free, 0: none */
    const char *prefix_dir;    /* directory of the disk tier; NULL or "": none */
    uint64_t prefix_dir_bytes; /* its limit */
    int policy;                /* PI__POLICY_* */
    int spec;                  /* PI__SPEC_* */
    const char *draft_model;   /* path of a drafter's GGUF; NULL or "": none */
    int32_t n_draft;           /* most drafts a sequence gets in a step, at most PI__MAX_DRAFT */
    const char *device;        /* "auto", or of pi__devices: see pi__devices_named */
    bool tensor;               /* several of them work as one */
    pi__place_rules places;    /* what of the model is with the CPU beside it */
    pi__cpu_params cpu;        /* threads and instruction set */
    pi__log log;               /* where lines go */
} pi__config;

typedef struct pi__core pi__core;

/* Reads metadata only. */
int pi__core_plan(const pi__config *c, pi_plan *out, pi_error *err);
/* Loads, allocates everything and starts the step thread. Strings of c are copied. */
int pi__core_open(pi__core **out, const pi__config *c, pi_error *err);
/* Every job still there ends with PI_ECLOSED (its on_done is called); joins the thread; frees. */
void pi__core_close(pi__core *e);
/* From any thread. */
int pi__core_state(const pi__core *e);
const pi__vocab *pi__core_vocab(const pi__core *e);
int pi__core_info(const pi__core *e, pi_info *out);
int pi__core_stats(const pi__core *e, pi_stats *out);
int pi__core_drain(pi__core *e, int timeout_ms);
void pi__core_cache_clear(pi__core *e, const char *salt); /* NULL: of all tenants */

/* One sampled token. */
typedef struct pi__token_out {
    int32_t id;                 /* the token */
    bool eog;                   /* it ends the generation (its text is not part of the answer) */
    const pi_token_prob *probs; /* 1 + n_logprobs entries, or NULL; valid during the call */
    int32_t n_probs;            /* entries in probs */
} pi__token_out;

/* How a job ended. */
typedef struct pi__job_end {
    int reason;               /* PI_FINISH_* */
    int code;                 /* PI_OK or PI_E* */
    const char *msg;          /* of code; valid during the call */
    uint32_t prompt_tokens, cached_tokens, generated_tokens, n_preempted, n_drafted, n_accepted;
    const char *miss_reason;  /* static text, "" where nothing was missed */
    double queue_ms, prefill_ms, decode_ms;
} pi__job_end;

typedef struct pi__job {
    const int32_t *prompt; /* copied; at least one token */
    size_t n_prompt;       /* tokens in prompt */
    pi__gen_params params; /* bias, stop_ids and dry_breakers are copied */
    void *ud;              /* first argument of the callbacks, which are called without any lock held */
    /* On the step thread, after each token; short. true: the answer is complete (a stop string). */
    bool (*on_token)(void *ud, const pi__token_out *t);
    /* On the step thread (or the closing one), exactly once for each submitted job, the last call with ud. */
    void (*on_done)(void *ud, const pi__job_end *end);
    pi_logits_fn on_logits; /* see pi_request_on_logits; NULL with PI__LOGITS_NONE */
    void *logits_ud;        /* its first argument */
} pi__job;

typedef struct pi__seq pi__seq; /* a submitted job; reference counted */

/* Validates and queues j[0..n), all of them or none; n is at least 1. out[i] is a reference that pi__seq_release gives
 * back (before or after on_done). Jobs of one call share what their prompts have in common even where params.cache is
 * false: then nobody else finds it, and it is forgotten with the last of them. */
int pi__core_submit(pi__core *e, const pi__job *j, size_t n, pi__seq **out, pi_error *err);
/* In any state, any thread, any number of times, while the reference is held. */
void pi__seq_cancel(pi__core *e, pi__seq *s);
void pi__seq_release(pi__seq *s);

#endif
