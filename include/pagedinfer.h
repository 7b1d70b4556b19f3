/* pagedinfer.h: the public interface of libpagedinfer, and its manual.
 *
 * Three nouns. An ENGINE holds a model's weights, one paged cache and a scheduler that runs on a thread of its own.
 * A REQUEST is a prompt and one answer to it, or several (option "n"): the prompt goes in, events come out. An EVENT
 * says what happened to a request.
 *
 *     pi_options *o = pi_options_new();
 *     pi_options_set(o, "model", "gemma.gguf", &err);
 *     pi_engine *e;  pi_engine_open(&e, o, &err);
 *     pi_request *r = pi_request_new(e);
 *     pi_request_prompt_text(r, "Once upon a time", 16, &err);
 *     pi_request_submit(r, &err);
 *     while (pi_poll(e, ev, 16, -1) > 0) ...
 *
 * ERRORS. A function that can fail returns PI_OK (0) or a negative PI_E* code; where a text helps it takes a pi_error
 * (may be NULL). The library never aborts, exits or prints, and keeps no "last error".
 *
 * OWNERSHIP. What a _new or _open gave is freed by the caller with _free or _close; NULL is allowed there. Inputs are
 * copied before return. What an event points to belongs to the library until pi_event_release.
 *
 * THREADS. On one engine everything but close may be called from any thread at the same time; no call may be running or
 * follow when pi_engine_close is called. A pi_options object, and a request that was not yet submitted, belong to one
 * thread.
 *
 * DEFAULTS to know: a request generates until the model ends or the context is full ("max-tokens" = -1) and samples with
 * "temp" = 0.8 (0: always the most likely token). Other keys of every day: "ctx-size", "kv-cache-tokens", "parallel" and
 * "threads" of an engine, "stop", "seed", "timeout" of a request; `pagedinfer run --help all` prints them all.
 *
 * ABI. Structs that cross the border start with `uint32_t size`, which the caller sets to sizeof before a call that
 * fills one; fields are only ever appended. */
#ifndef PAGEDINFER_H
#define PAGEDINFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PI_API __attribute__((visibility("default")))
#else
#define PI_API
#endif

#define PI_VERSION_MAJOR 0
#define PI_VERSION_MINOR 1
#define PI_VERSION_PATCH 0
#define PI_ABI_VERSION 0

/* ------------------------------------------------------------------------------------------------ version, errors */

/* name, code, text, retryable: the same call may succeed later without any change by the caller */
#define PI_ERRORS(X)                                                                                                   \
    X(PI_OK, 0, "no error", false)                                                                                     \
    X(PI_EINVAL, -1, "invalid argument or option", false)                                                              \
    X(PI_ENOMEM, -2, "out of memory", true)                                                                            \
    X(PI_EIO, -3, "reading or writing a file failed", true)                                                            \
    X(PI_ENOENT, -4, "no such file", false)                                                                            \
    X(PI_EFORMAT, -5, "the file is not a valid model file", false)                                                     \
    X(PI_EUNSUPPORTED, -6, "not supported by this build", false)                                                       \
    X(PI_ETOOBIG, -7, "does not fit the context or the cache", false)                                                  \
    X(PI_EBUSY, -8, "busy: try again later", true)                                                                     \
    X(PI_ECANCELED, -9, "canceled", false)                                                                             \
    X(PI_EDEVICE, -10, "the device failed", false)                                                                     \
    X(PI_ETIMEDOUT, -11, "the deadline passed", true)                                                                  \
    X(PI_ECLOSED, -12, "the engine is closing or failed", false)                                                       \
    X(PI_EINTERNAL, -13, "internal error", false)

enum {
#define PI__X(name, code, text, retryable) name = code,
    PI_ERRORS(PI__X)
#undef PI__X
};

/* Filled where a call fails, left alone where it succeeds. */
typedef struct pi_error {
    int code;      /* PI_OK or PI_E* */
    char msg[240]; /* one line that names the cause and, where there is one, the remedy */
} pi_error;

/* PI_ABI_VERSION of the library that was loaded. */
PI_API int pi_abi_version(void);
/* "0.1.0" */
PI_API const char *pi_version(void);
/* The text of a code, "unknown error" for one that is not in the table. Never NULL. */
PI_API const char *pi_strerror(int code);
/* "PI_ENOMEM"; "PI_UNKNOWN" for a code that is not in the table. */
PI_API const char *pi_err_name(int code);

/* The allocator for everything the library holds. Hooks must be thread safe; map returns zeroed, page-aligned memory.
 * map and unmap may both be NULL (then mmap is used). Set it before any other call, or never: memory is freed through
 * the allocator in force at that time. NULL restores the default. Returns PI_OK or PI_EINVAL (a hook is missing). */
typedef struct pi_allocator {
    uint32_t size;                                      /* sizeof(pi_allocator) */
    void *ud;                                           /* first argument of every hook */
    void *(*malloc)(void *ud, size_t size);             /* as malloc */
    void *(*realloc)(void *ud, void *p, size_t size);   /* as realloc; p may be NULL */
    void (*free)(void *ud, void *p);                    /* as free; p may be NULL */
    void *(*map)(void *ud, size_t size);                /* zeroed pages, or NULL */
    void (*unmap)(void *ud, void *p, size_t size);      /* gives them back */
} pi_allocator;
PI_API int pi_set_allocator(const pi_allocator *a);

/* --------------------------------------------------------------------------------------------------------- options */

enum { PI_LOG_NONE = 0, PI_LOG_ERROR = 1, PI_LOG_WARN = 2, PI_LOG_INFO = 3, PI_LOG_DEBUG = 4 };
/* msg is one line without a newline, valid during the call. May be called from any thread of the engine. */
typedef void (*pi_log_fn)(void *ud, int level, const char *msg);

typedef struct pi_options pi_options;

/* What an option is; fills what --help, man pages and docs print. Strings are static. */
typedef struct pi_option_info {
    uint32_t size;       /* sizeof(pi_option_info) */
    const char *key;     /* "ctx-size": what pi_options_set and pi_request_set take */
    const char *type;    /* "bool", "int", "float", "size", "string", "enum" or "list" */
    const char *def;     /* default as text; "" where there is none */
    const char *range;   /* "1..1024", "f32|f16|bf16", or "" */
    const char *flags;   /* command line spellings, "-c --ctx-size"; "--x=V" takes no value and means V, "--x?V" may;
                            "" where only programs set it */
    const char *section; /* help section: "model", "kv", "cpu", "sampling", ... */
    const char *help;    /* one sentence */
    int scope;           /* PI_SCOPE_*; TOOL: of the command line alone, which the library describes none of */
    bool common;         /* among the few that --help shows */
    const char *env;     /* environment variables beside PAGEDINFER_X and LLAMA_ARG_X, which exist for each long --x */
} pi_option_info;
enum { PI_SCOPE_ENGINE = 0, PI_SCOPE_REQUEST = 1, PI_SCOPE_TOOL = 2 };

/* NULL: out of memory. Starts with every default. */
PI_API pi_options *pi_options_new(void);
/* Sets an engine option, or the default of a request option for every request of the engine. key may also be a long
 * command line spelling without its dashes, "_" stands for "-", and numbers may end in k, M, GiB.... Options that
 * only the command line has are unknown here. PI_EINVAL: unknown key (err names the nearest known one) or a value outside its
 * range (err says the range). */
PI_API int pi_options_set(pi_options *o, const char *key, const char *value, pi_error *err);
/* Log lines up to level go to fn (NULL: none). */
PI_API void pi_options_set_log(pi_options *o, pi_log_fn fn, void *ud, int level);
/* What pi_engine_open is doing. */
enum {
    PI_LOAD_READ = 1,    /* a file is copied into memory (load-mode read alone); the files of a model, one after the other */
    PI_LOAD_WEIGHTS = 2, /* tensors, those of a drafter too, are brought into the layout of the device */
};
/* done of total bytes of the file have passed. Called on the thread that opens: when a stage begins (done is 0), then each
 * 16 MiB or less; done never falls until the next one begins, and ends at total. Return quickly. true: cancel. */
typedef bool (*pi_progress_fn)(void *ud, int stage, uint64_t done, uint64_t total);
/* fn (NULL: nobody) is told how far opening an engine is, and may cancel it: then pi_engine_open has freed everything and
 * returns PI_ECANCELED. fn must not use the options. */
PI_API void pi_options_set_progress(pi_options *o, pi_progress_fn fn, void *ud);
/* Option number i, from 0; PI_ENOENT past the last. */
PI_API int pi_options_describe(size_t i, pi_option_info *out);
PI_API void pi_options_free(pi_options *o);

/* --------------------------------------------------------------------------------------------------------- devices */

/* Where a model can run: what this build has code for, whether this machine has it or not. */
typedef struct pi_device {
    uint32_t size;         /* sizeof(pi_device) */
    char name[16];         /* what option "device" takes: "cpu", "cuda" */
    char desc[96];         /* "NVIDIA H200, sm_90", or "" */
    char lacks[256];       /* what it cannot run; where it is not usable, why; "": nothing */
    uint64_t memory_bytes; /* that it has, 0: not known */
    bool usable;           /* it is there, and this build can use it */
} pi_device;
/* Device number i, from 0, the one that "auto" would take first; PI_ENOENT past the last. May wake up a driver. */
PI_API int pi_device_describe(size_t i, pi_device *out);

/* ---------------------------------------------------------------------------------------------------------- engine */

typedef struct pi_engine pi_engine;

/* What running a model with these options costs, to the byte; the same numbers allocate. */
typedef struct pi_plan {
    uint32_t size;                /* sizeof(pi_plan) */
    uint64_t weights_bytes;       /* weights in the device's layout */
    uint64_t kv_bytes;            /* cache pools of all groups */
    uint64_t scratch_bytes;       /* activations and logits of one step */
    uint64_t total_bytes;         /* the sum of the above; with split-mode tensor, all of them of each device */
    uint64_t kv_tokens;           /* tokens the groups that keep everything can hold */
    uint32_t n_groups;            /* entries used in group[] */
    struct {
        char name[16];            /* "full", "window", "recurrent" (whose blocks are snapshots of states) */
        uint32_t n_layers;        /* layers in the group */
        uint32_t block_size;      /* tokens a block; snapshots are taken at multiples of it */
        uint32_t window;          /* tokens attended to, 0: all */
        uint64_t n_blocks;        /* blocks in the pool */
        uint64_t block_bytes;     /* bytes a block, all layers of the group */
    } group[8];
    uint32_t ctx_size;            /* longest request, prompt and answer */
    uint64_t state_bytes;         /* recurrent states of the requests that run at once; part of total_bytes */
    uint32_t n_places;            /* entries used in place[]: 2 where the model is split between a device and the CPU;
                                   * with split-mode layer one a device */
    struct {
        char name[64];            /* "cuda (...)", "cpu (avx2)", "layers 0-9: cuda (...)" */
        uint64_t weights_bytes, kv_bytes, state_bytes, scratch_bytes; /* of the sums above */
    } place[8];
    uint64_t host_cache_bytes;    /* most that evicted prefixes take in the host's memory; beside total_bytes */
} pi_plan;
/* Reads the metadata of the model and computes; loads nothing. */
PI_API int pi_engine_plan(const pi_options *o, pi_plan *out, pi_error *err);

/* Loads the model, allocates everything it will ever use and starts the step thread. *out is NULL on failure. */
PI_API int pi_engine_open(pi_engine **out, const pi_options *o, pi_error *err);
/* Cancels what runs, stops the threads, frees all. Requests of the engine must be freed before, or by their callback in
 * their last event, which close waits for. Events that were not released become invalid. Works on a failed engine. */
PI_API void pi_engine_close(pi_engine *e);

enum { PI_STATE_READY = 0, PI_STATE_DRAINING = 1, PI_STATE_FAILED = 2 };
PI_API int pi_engine_state(const pi_engine *e);

/* Static facts of a loaded model; strings live as long as the engine. */
typedef struct pi_info {
    uint32_t size;         /* sizeof(pi_info) */
    const char *arch;      /* "gemma3" */
    const char *name;      /* general.name, or "" */
    const char *type_desc; /* "gemma3 270M Q4_K - Medium", as llama-bench's first column */
    uint64_t n_params;     /* parameters */
    uint64_t file_bytes;   /* bytes of all tensors in the file */
    uint32_t n_vocab;      /* tokens in the vocabulary */
    uint32_t n_ctx_train;  /* context the model was trained for */
    uint32_t n_embd;       /* embedding length */
    uint32_t n_layer;      /* layers */
    uint32_t ctx_size;     /* longest request of this engine */
    uint32_t n_threads;    /* CPU threads of a step */
    const char *device;    /* "cpu (avx512-vnni)" */
    int32_t bos, eos;      /* token ids, -1: none */
    const char *chat_template; /* the GGUF's template text, or "" */
    const char *pooling;   /* what the model's vectors are made of by its metadata: "none", "mean", "cls", "last", "rank";
                              "": unsaid */
    uint32_t n_labels;     /* scores that its classifier gives a text (option "pooling", rank); 0: it has none */
    const char *const *labels; /* [n_labels] their names, "" for one without */
} pi_info;
PI_API int pi_engine_info(const pi_engine *e, pi_info *out);
/* Metadata of the model's file ("general.license", "llama.context_length"), with what option "override-kv" made of it, as
 * text: a string as it is, numbers in decimal, true or false, an array as JSON. Writes as snprintf does: the final NUL
 * included, cut to cap bytes. Returns the number of bytes without the NUL, which may exceed what was written; PI_ENOENT:
 * there is no such key; PI_EINVAL. */
PI_API int64_t pi_engine_meta(const pi_engine *e, const char *key, char *out, size_t cap);
/* Key number i, from 0, in the order of the file, in the same way; PI_ENOENT past the last. */
PI_API int64_t pi_engine_meta_key(const pi_engine *e, size_t i, char *out, size_t cap);

enum { PI_N_STEP_BOUNDS = 20 };
/* A snapshot; each number is exact at some moment of the call, not all at the same one. Lock free. A request counts as
 * many times as it has answers (option "n"). */
typedef struct pi_stats {
    uint32_t size;                     /* sizeof(pi_stats) */
    uint32_t n_waiting, n_running;     /* requests by state */
    uint64_t n_finished;               /* requests ended, whatever the reason */
    uint64_t n_preempted;              /* times a request was put back for lack of blocks */
    uint64_t n_steps;                  /* steps run */
    uint64_t prompt_tokens;            /* prompt tokens of all requests that started */
    uint64_t cached_tokens;            /* of them, taken from the cache */
    uint64_t generated_tokens;         /* tokens sampled */
    uint32_t n_groups;                 /* entries used in group[] */
    struct {
        uint64_t n_blocks, n_free, n_used, n_cached; /* all = free + used; cached: free ones that still hold a prefix */
        uint64_t n_shared;             /* used by more than one request */
        uint64_t n_evicted;            /* prefixes forgotten so far to make room */
        uint64_t committed_bytes;      /* memory that the blocks written so far take; falls when the engine is idle */
    } group[8];
    double last_step_ms;               /* duration of the last step */
    uint64_t n_prefix_hits;            /* requests that found a part of their prompt in the cache */
    uint64_t n_snapshots_saved;        /* copies of recurrent states taken */
    uint64_t n_snapshots_restored;     /* requests that went on from one */
    const char *group_name[8];         /* "full", "window", "recurrent"; static text */
    uint64_t disk_entries, disk_bytes; /* of this model in prefix-cache-dir; and what all models take there */
    uint64_t n_drafted, n_accepted;    /* drafts that were verified, and those that were right */
    uint64_t disk_reads, disk_writes;  /* blocks and snapshots taken from there, and put there */
    uint64_t host_entries, host_bytes; /* what the device evicted and the host keeps (cache-ram); 0 on the CPU */
    uint64_t host_reads, host_writes;  /* blocks and snapshots taken from there, and put there */
    double step_total_ms;              /* durations of all steps, added up */
    double step_bound_ms[PI_N_STEP_BOUNDS];    /* bounds of durations, ascending; the same for the engine's life */
    uint64_t step_count[PI_N_STEP_BOUNDS + 1]; /* steps of at most bound i, above the one before; last: above them all */
    double draft_total_ms;             /* of step_total_ms, what drafters took, and choosing how much they draft */
    uint64_t key_blocks_attended, key_blocks_possible; /* of sparse prefill (prefill-sparsity): blocks of keys attended to, and
                                        * all there were, added up over layers, heads and blocks of 128 tokens */
} pi_stats;
PI_API int pi_engine_stats(const pi_engine *e, pi_stats *out);

/* Refuses new requests from now on (PI_ECLOSED), for good, and waits until all have ended, or timeout_ms (-1: no limit)
 * passed: PI_ETIMEDOUT. */
PI_API int pi_engine_drain(pi_engine *e, int timeout_ms);
/* Forgets the cached prefixes of the requests with this cache-salt ("": those without one), in memory and on disk; NULL:
 * all. Running requests go on with what they hold, but nobody else finds it any more. */
PI_API int pi_engine_cache_clear(pi_engine *e, const char *salt);

/* A change of what the prefix cache holds, for routers that send a request to the engine that knows its beginning (the
 * server publishes these as vLLM does). The unit is a block of n_tokens / n_hashes tokens, the same for the life of the
 * engine. A block is stored while a new request could take over a prefix that has it: of models with windows or recurrent
 * layers these are fewer than the blocks in memory. Prefixes under a cache-salt, and those of requests with cache off, are
 * not told, nor is what lies on disk or in cache-ram only. */
enum { PI_CACHE_STORED = 1, PI_CACHE_REMOVED = 2, PI_CACHE_CLEARED = 3 };
typedef struct pi_cache_event {
    int kind;               /* PI_CACHE_* */
    const uint64_t *hashes; /* [n_hashes] blocks; a hash stands for all tokens up to the block's end. Stored: in order */
    size_t n_hashes;        /* 0 of PI_CACHE_CLEARED: all blocks are gone */
    const int32_t *tokens;  /* stored: [n_tokens] those of the blocks; else NULL */
    size_t n_tokens;        /* of all blocks together */
    uint64_t parent;        /* stored: the block before the first one, where has_parent is not 0 */
    int has_parent;         /* 0: the first one begins the prompt */
} pi_cache_event;
/* Called on the STEP thread; ev is valid during the call. Everyone waits for fn; it must not call the library. */
typedef void (*pi_cache_event_fn)(void *ud, const pi_cache_event *ev);
/* fn is told of every change from now on. Once, and before the first request is submitted: PI_EBUSY after it. PI_ENOMEM. */
PI_API int pi_engine_on_cache_event(pi_engine *e, pi_cache_event_fn fn, void *ud, pi_error *err);

/* ADAPTERS (LoRA). An engine may have many of them beside the model, and each request its own (option "lora"): requests with
 * and without adapters are in the same step, and what one computes depends on nobody else's. A prefix is found again by
 * requests with the same adapters at the same scales alone. Files are GGUFs of llama.cpp's convert_lora_to_gguf.
 *
 * Adapters are for the matrices of layers (attention, feed-forward, delta nets, routers, experts), the embedding and the output.
 * Memory beside the plan: about that of the file, on each device that has a part of the model. */
typedef struct pi_lora {
    uint32_t size;       /* sizeof(pi_lora) */
    char name[128];      /* as it was loaded */
    char path[512];      /* the same, cut */
    float scale;         /* of requests without option "lora"; 0: they do not have it */
    uint32_t rank;       /* the largest of its matrices */
    uint32_t n_matrices; /* of the model that it changes */
    uint64_t bytes;      /* of device memory */
    uint32_t n_running;  /* requests with it that have not ended */
} pi_lora;
/* Loads an adapter under a name (not empty, at most 127 bytes, without "," and ":"), while requests run or not; returns when
 * requests can have it. scale: as above. Any thread. PI_EBUSY: there is one of that name; PI_EINVAL: it was made for another
 * model (err says what does not fit), no such name, or a ninth with a scale; PI_ENOENT, PI_EIO, PI_EFORMAT
 * (damaged, or no adapter), PI_EUNSUPPORTED, PI_ENOMEM, PI_ECLOSED. */
PI_API int pi_lora_load(pi_engine *e, const char *name, const char *path, float scale, pi_error *err);
/* The same in the place of the adapter of that name, whose scale and number it gets: at every moment requests find one of them,
 * the old one as long as the new one cannot be had, and where it cannot, from then on. Requests that have the old one go on with
 * it, as when it is unloaded. PI_ENOENT: no such file, or no adapter of that name; others as pi_lora_load. */
PI_API int pi_lora_replace(pi_engine *e, const char *name, const char *path, pi_error *err);
/* Nobody finds it any more. Requests that have it go on with it; with the last of them its memory is given back. PI_ENOENT. */
PI_API int pi_lora_unload(pi_engine *e, const char *name, pi_error *err);
/* Changes the scale that requests without option "lora" have from now on. PI_ENOENT; PI_EINVAL: 8 others have one. */
PI_API int pi_lora_scale(pi_engine *e, const char *name, float scale, pi_error *err);
/* Adapter number i, from 0, in the order in which they were loaded; PI_ENOENT past the last. */
PI_API int pi_lora_describe(pi_engine *e, size_t i, pi_lora *out);

/* Weights that several processes of a machine share: loads and packs them as pi_engine_open with these options would, and
 * passes them on through a Unix socket that appears at this path, to engines with option weights-from, until closed. Those
 * map the same memory, read-only: one of them more opens at once and takes no second copy. They must have the same model
 * file, version of this library, processor, devices and placement of layers; others get an error, as do other users. What was
 * mapped stays when the owner is closed or dies. Weights on a CUDA device are shared where its driver makes file descriptors
 * of memory (PI_EUNSUPPORTED elsewhere), those of ranks and of the CPU as several devices are not. With load-mode auto the file
 * is read past the page cache. Nothing else of w is used meanwhile: it has a thread of its own.
 * The errors of pi_engine_open; PI_EBUSY: another owner answers at that path. */
typedef struct pi_weights pi_weights;
PI_API int pi_weights_open(pi_weights **out, const pi_options *o, const char *socket, pi_error *err);
PI_API void pi_weights_close(pi_weights *w); /* NULL is fine */

/* Processes that work as one, on one machine or several: started by mpirun, srun or torchrun, each with a device of its own.
 * Rank 0 opens engines with option ranks set to auto, and is all that callers see; the others call
 * pi_rank_follow, which does what rank 0 asks. They need no model. MPI, if it is by that, then stays until the process exits.
 *
 * pi_rank: the number of this process among those that option ranks means, by what its launcher says; *n (may be NULL): how
 * many there are, 1 where it is alone or the option is off. PI_EUNSUPPORTED: they were launched in a way that cannot join them.
 *
 * pi_rank_follow: blocks until rank 0's process exits, PI_OK, or is not heard of for rank-timeout seconds, or another rank is
 * not, PI_EDEVICE: then the engine of rank 0 fails, too, and all have to be started again. PI_EINVAL: this is rank 0. Any
 * thread, one at a time, in a process without engines of its own ranks. */
PI_API int pi_rank(const pi_options *o, int *n, pi_error *err);
PI_API int pi_rank_follow(const pi_options *o, pi_error *err);

/* ------------------------------------------------------------------------------------------------- limits of work */

/* A limit for calls whose work depends on a client's input: tokenizing, rendering a conversation, compiling a schema or
 * a grammar. Servers give each client request one, and cancel it when the client disconnects. A call that reaches the
 * limit returns, within a millisecond or two, PI_ETIMEDOUT (time), PI_ETOOBIG (steps or memory) or PI_ECANCELED; further calls
 * with the same pi_work return the same. A pi_work belongs to one thread at a time, except for pi_work_cancel. */
typedef struct pi_work pi_work;
/* max_steps: of 10 to 100 ns each; processor time of 100 ns for each step is a limit, too. max_bytes: of memory that the calls
 * use at a time, without their results; 0 = no limit. timeout_ms: from now, -1 = no limit. NULL: out of memory. */
PI_API pi_work *pi_work_new(uint64_t max_steps, size_t max_bytes, int timeout_ms);
/* The call that runs, and each further one, returns PI_ECANCELED. Any thread. */
PI_API void pi_work_cancel(pi_work *w);
/* PI_OK while there is time left, or why the work has to end: for loops of the caller. */
PI_API int pi_work_check(pi_work *w);
/* No call may be running with it, and no unsubmitted request may refer to it. */
PI_API void pi_work_free(pi_work *w);

/* ------------------------------------------------------------------------------------------------------------ text */

enum {
    PI_TOK_BOS = 1,     /* add BOS/EOS as the model's metadata says */
    PI_TOK_SPECIAL = 2, /* text of control tokens ("<bos>") becomes the token */
};
/* Tokenises text (any bytes, invalid UTF-8 included). Returns the number of tokens, which may exceed cap: then only cap
 * were written. Negative: PI_E*. */
PI_API int64_t pi_tokenize(const pi_engine *e, const char *text, size_t len, int flags, int32_t *out, size_t cap);
/* pi_tokenize with a limit of work (NULL = none). */
PI_API int64_t pi_work_tokenize(pi_work *w, const pi_engine *e, const char *text, size_t len, int flags, int32_t *out,
                                size_t cap);
/* Text of n tokens. Returns the number of bytes, which may exceed cap (then cap were written), or PI_E*. No final NUL.
 * flags: PI_TOK_SPECIAL prints control tokens too. */
PI_API int64_t pi_detokenize(const pi_engine *e, const int32_t *ids, size_t n, int flags, char *out, size_t cap);

/* A conversation as text, the way the model's chat template writes it; the template is that of the GGUF, or of the
 * options "chat-template" and "chat-template-file"; a model without one whose vocabulary has <|im_start|> gets ChatML.
 *     messages  JSON list, as in OpenAI's API: role, content (a string, or parts of type text), tool_calls,
 *               tool_call_id, reasoning_content
 *     tools     JSON list of functions, or NULL
 *     options   JSON object, or NULL: variables of the template. "add_generation_prompt" (true unless given) begins
 *               the model's answer; many templates know "enable_thinking"; "chat-template-kwargs" are the defaults
 *               "tool_choice" ("auto", "none", "required" or {"type": "function", "function": {"name": ...}}) and
 *               "parallel_tool_calls" are as in OpenAI's API; with "none" the template gets no tools;
 *               "continue_final_message": true ends the text where the last message's does, which is the assistant's
 *               and is to be gone on with
 * Submit the whole conversation for every turn: what is in the cache is not computed again. The text is meant for
 * pi_request_prompt_text: the BOS that this adds is left out here. Caveat: text of control tokens within a message
 * ("<|im_end|>") becomes those tokens there; pi_request_prompt_chat has no such caveat.
 * Returns the number of bytes, which may exceed cap (then cap were written), or PI_EINVAL (no such JSON; the template
 * failed or refused, err has its words), PI_EUNSUPPORTED (no template; content that is no text), PI_ETOOBIG (too deep,
 * too long), PI_ENOMEM. No final NUL. Needs 1 MiB of stack. */
PI_API int64_t pi_chat_render(const pi_engine *e, const char *messages, const char *tools, const char *options, char *out,
                              size_t cap, pi_error *err);
/* pi_chat_render with a limit of work (NULL = none). */
PI_API int64_t pi_work_chat_render(pi_work *w, const pi_engine *e, const char *messages, const char *tools,
                                   const char *options, char *out, size_t cap, pi_error *err);
/* The token ids of a conversation as a prompt: exactly those that pi_request_prompt_chat gives to a request, so text in
 * messages never becomes a control token. Arguments and errors of pi_chat_render. Returns the number of ids, which may
 * exceed cap (then cap were written). Needs 1 MiB of stack. */
PI_API int64_t pi_chat_tokenize(const pi_engine *e, const char *messages, const char *tools, const char *options,
                                int32_t *out, size_t cap, pi_error *err);
/* pi_chat_tokenize with a limit of work (NULL = none). */
PI_API int64_t pi_work_chat_tokenize(pi_work *w, const pi_engine *e, const char *messages, const char *tools,
                                     const char *options, int32_t *out, size_t cap, pi_error *err);

/* What fills the middle between a prefix and a suffix, for models whose vocabulary has tokens for it (Qwen Coder, StarCoder,
 * DeepSeek Coder, ...). Texts are any bytes and never become control tokens, but those of typed. The prompt is
 *
 *     [REP] repo [SEP] name of a file, its text ... [SEP] name [BOS] [PRE] prefix typed [SUF] suffix [MID]
 *
 * with those tokens that the vocabulary has. Where it would be longer than max_tokens, the suffix loses its end and the
 * prefix its beginning, so that three quarters are left for the prefix, and the files their beginning. */
typedef struct pi_infill_file {
    const char *name; /* NULL: "tmp" */
    const char *text;
    size_t len;       /* bytes of text */
} pi_infill_file;
typedef struct pi_infill_parts {
    const char *prefix, *suffix, *typed;       /* typed: what the user began to write there; NULL with length 0: none */
    size_t prefix_len, suffix_len, typed_len;  /* bytes */
    const pi_infill_file *files;               /* other files, the most important one last */
    size_t n_files;
    const char *repo, *name;                   /* of the repository and of the file; NULL: "myproject", "filename" */
    size_t max_tokens;                         /* of the prompt; 0: any number */
    int suffix_first;                          /* not 0: [SUF] suffix [PRE] prefix typed [MID] */
} pi_infill_parts;
/* That prompt's tokens, for pi_request_prompt_tokens. Returns their number, which may exceed cap (then cap were written),
 * or PI_EUNSUPPORTED (no such tokens), PI_EINVAL (typed alone is longer than max_tokens), PI_ENOMEM. Any thread. */
PI_API int64_t pi_infill(const pi_engine *e, const pi_infill_parts *in, int32_t *out, size_t cap, pi_error *err);
/* pi_infill with a limit of work (NULL = none). */
PI_API int64_t pi_work_infill(pi_work *w, const pi_engine *e, const pi_infill_parts *in, int32_t *out, size_t cap,
                              pi_error *err);

/* A vocabulary alone, without an engine; also from GGUFs that hold nothing else. */
typedef struct pi_vocab pi_vocab;
PI_API int pi_vocab_open(pi_vocab **out, const char *path, pi_error *err);
PI_API int64_t pi_vocab_tokenize(const pi_vocab *v, const char *text, size_t len, int flags, int32_t *out, size_t cap);
PI_API int64_t pi_vocab_detokenize(const pi_vocab *v, const int32_t *ids, size_t n, int flags, char *out, size_t cap);
PI_API void pi_vocab_free(pi_vocab *v);

/* -------------------------------------------------------------------------------------------------------- requests */

typedef struct pi_request pi_request;

enum {
    PI_FINISH_NONE = 0,   /* still running */
    PI_FINISH_STOP = 1,   /* an end-of-generation token, a stop token or a stop string */
    PI_FINISH_LENGTH = 2, /* max tokens or the context's end */
    PI_FINISH_CANCEL = 3, /* pi_request_cancel */
    PI_FINISH_ERROR = 4,  /* see result.code */
    PI_FINISH_TOOL_CALLS = 5, /* of pi_chat_parser_end alone: it stopped, and there are calls */
};

/* How a request went, or one answer of it; complete once it finished. */
typedef struct pi_result {
    uint32_t size;              /* sizeof(pi_result) */
    int code;                   /* PI_OK, or why it failed */
    int finish_reason;          /* PI_FINISH_* */
    uint32_t prompt_tokens;     /* tokens of the prompt */
    uint32_t cached_tokens;     /* of them, taken from the cache */
    uint32_t generated_tokens;  /* tokens sampled */
    uint32_t n_preempted;       /* times it lost its blocks and resumed */
    const char *miss_reason;    /* why no more was taken from the cache; "" when nothing was missed */
    double queue_ms;            /* submit to first scheduled */
    double prefill_ms;          /* first scheduled to first token */
    double decode_ms;           /* first token to last */
    const char *stop;           /* the stop string that ended it, or "" */
    char msg[240];              /* text of code */
    uint32_t n_drafted;         /* drafts that were verified */
    uint32_t n_accepted;        /* of them, those that were right: tokens that took no step of their own */
} pi_result;

/* A new request with the engine's defaults. NULL: out of memory.
 *
 * SAMPLES. With option "n" above 1 it makes so many answers to its prompt at the same time: samples 0 to n - 1. The
 * first computes the prompt, the others take over its blocks of the cache; with option "cache" off, too, but then
 * nobody else finds them (with the engine's "prefix-cache" off each computes all of it). Sample i draws with seed + i:
 * it is what a request of its own with that seed gives. Each has its own events, with its number in them, ends by
 * itself, and counts as one request in the queue. */
PI_API pi_request *pi_request_new(pi_engine *e);
/* STRUCTURED OUTPUT. One of the options "json-schema", "grammar" (GBNF), "regex" and "choice" holds the answer to a form:
 * only tokens are sampled with which it can still become a text of the form, exactly, and the end only where it is one. It
 * is compiled at submit (PI_EINVAL with line, column and reason; PI_EUNSUPPORTED names what is not supported) and kept for
 * requests with the same. With "grammar-trigger" (JSON array of texts and control tokens) the answer is free until one of
 * them came; the form is of what follows. Control tokens are part of a form only by name (<|im_end|> in GBNF).
 * Log-probabilities are of the tokens that the form allows. Where the text is complete and nothing can follow, the answer
 * ends, whatever "ignore-eos" and "min-tokens" say. A form that asks for more than it may (too many ways open at once)
 * ends the request with PI_EUNSUPPORTED; repetitions have no upper limit. JSON has white space of at most one space, or
 * two line ends and 20 spaces or tabs; a schema's properties come in its order, others only with additionalProperties or
 * patternProperties (docs/SERVER.md lists the keywords of JSON Schema).
 * Memory beside the plan: the vocabulary as a trie, made for the first form (20 to 60 MB for Gemma 3's 262,144 tokens);
 * of each of the last 64 forms, and of those in use, at most 30 MB, in pages that are taken as its states are met. */

/* Sets a request option ("max-tokens", "temp", "stop", ...); keys and ranges from pi_options_describe. "stop" and
 * "logit-bias" add to what is there, an empty value clears. */
PI_API int pi_request_set(pi_request *r, const char *key, const char *value, pi_error *err);
/* The limit for pi_request_prompt_* and pi_request_submit of this request, NULL = none; the request does not own it. It
 * has no effect on the request once that is submitted. */
PI_API void pi_request_set_work(pi_request *r, pi_work *w);
/* The whole prompt, every time: reuse of what earlier requests computed is the engine's business. Ids are taken as they
 * are; text is tokenised with BOS and special tokens. A second call replaces the first. */
PI_API int pi_request_prompt_tokens(pi_request *r, const int32_t *ids, size_t n, pi_error *err);
PI_API int pi_request_prompt_text(pi_request *r, const char *text, size_t len, pi_error *err);
/* A query and a document as the prompt of a reranker, whose score says how well the one answers the other (option "pooling",
 * rank): in the model's template "rerank", or else as [BOS] query [EOS] [SEP] document [EOS] with the tokens that its
 * metadata asks for. What query and document spell never becomes a control token of the template. PI_EUNSUPPORTED: the
 * model has no form for pairs. */
PI_API int pi_request_prompt_rank(pi_request *r, const char *query, size_t query_len, const char *document,
                                  size_t document_len, pi_error *err);
/* A conversation as the prompt: arguments and errors of pi_chat_render, but tokenised here, where it is known of every
 * byte whether the template wrote it. Only the template's own text becomes control tokens, and tokens that it uses as
 * markup ("<think>"); what is in messages, tools and options stays text, whatever it spells. Where they spell no such
 * token, the ids are those of pi_chat_render and pi_request_prompt_text.
 * TOOLS. A template that has no place for tools, or whose form of calls is not known here, gets them described in the system
 * message, with calls as JSON between <tool_call> tags. Past calls and results that a template does not place become text.
 * With tools the answer is held to a grammar of their calls. Where "tool_choice" asks for a call, the answer is one from the
 * start, or behind thoughts; one that names a function asks for exactly one call. Otherwise the answer is free until, outside
 * of thoughts, a call begins with the tag of the form. The call has the name of a tool and arguments by its schema, and
 * nothing but calls follows. Llama's calls that are bare JSON stay free, and so do those that lack the tag. All calls stay
 * free where a schema has a keyword that no grammar can be made of. PI_EUNSUPPORTED: a call is required, but a schema has
 * such a keyword.
 * FORMS. One of the options for an answer's form ("json-schema", ...) holds the content of the answer: calls may come instead
 * of it, and must where one is required. Thoughts may come before either, where the prompt opened them, or where the template
 * knows their tags and neither "enable_thinking" nor "thinking" is false. With "grammar-trigger" the form alone counts.
 * Needs 1 MiB of stack. */
PI_API int pi_request_prompt_chat(pi_request *r, const char *messages, const char *tools, const char *options,
                                  pi_error *err);

typedef struct pi_event pi_event;
/* Events of this request go to fn instead of pi_poll. Called on the engine's dispatch thread, one call at a time; the
 * event is released after fn returns. fn may call anything but pi_engine_close, pi_engine_drain and pi_request_wait;
 * it may free r when ev is the last one (PI_EVENT_DONE with n_left 0). */
typedef void (*pi_event_fn)(void *ud, const pi_event *ev);
PI_API void pi_request_on_event(pi_request *r, pi_event_fn fn, void *ud);

/* For evaluation tools: the logits of positions, called on the STEP thread with n_vocab floats that are valid during
 * the call. pos is the token index in prompt+answer whose successor the row predicts. Everyone waits for fn; it must
 * not call the library. Which rows: option "logits" = "none", "last" (of the prompt) or "all" (of the prompt; with
 * "logits-from", those of that position and later), or "generated" (last of the prompt and each generated token). Of
 * several samples only the first gives rows. */
typedef void (*pi_logits_fn)(void *ud, uint32_t pos, const float *logits, size_t n_vocab);
PI_API void pi_request_on_logits(pi_request *r, pi_logits_fn fn, void *ud);

/* Validates everything and queues the request, all of its samples or none. It may be submitted once. PI_ETOOBIG (err
 * names the number that would fit), PI_EBUSY (queue full), PI_ECLOSED, PI_EINVAL, PI_EUNSUPPORTED. After an error
 * it is still unsubmitted. */
PI_API int pi_request_submit(pi_request *r, pi_error *err);
/* In any state, from any thread, any number of times; before submit it does nothing. Each sample that runs ends with
 * its PI_EVENT_DONE. */
PI_API void pi_request_cancel(pi_request *r);
/* Blocks until all of it ended (PI_OK) or timeout_ms passed (PI_ETIMEDOUT; -1: no limit). PI_EINVAL: not submitted. */
PI_API int pi_request_wait(pi_request *r, int timeout_ms);
/* PI_EBUSY while it runs: the numbers so far. PI_EINVAL: not submitted. Strings live as long as the request. Of several
 * samples: prompt, cached tokens and miss_reason of the first; how it ended, of the first that failed (or else of the
 * first); the other counts are sums, and the times go from submit to the first start, the first token and the last. */
PI_API int pi_request_result(const pi_request *r, pi_result *out);
/* All tokens of sample 0 so far: returns their number, writes at most cap. */
PI_API size_t pi_request_tokens(const pi_request *r, int32_t *out, size_t cap);
/* The same two of one sample. PI_EINVAL, and 0 tokens: it has none of this number, or was not submitted. */
PI_API int pi_request_sample(const pi_request *r, uint32_t index, pi_result *out);
PI_API size_t pi_request_sample_tokens(const pi_request *r, uint32_t index, int32_t *out, size_t cap);
/* Cancels if it runs, and frees as soon as the engine let go of it. Its events that were not taken, by pi_poll or by its
 * callback, are forgotten: who wants them frees in or after the last PI_EVENT_DONE. Those that were stay valid until
 * released. When it returns, no callback of r runs or will run (but the one that it was called from). */
PI_API void pi_request_free(pi_request *r);

/* ---------------------------------------------------------------------------------------------------------- events */

enum {
    PI_EVENT_TEXT = 1, /* tokens were generated; text may be empty while a UTF-8 sequence is incomplete */
    PI_EVENT_DONE = 2, /* the last event of a sample; it may carry the rest of the text */
    PI_EVENT_PROMPT = 3, /* option "prompt-logprobs": tokens are the last ones of the prompt (all but the first, or those
                            behind "logits-from"), logprobs theirs. Once, before any text of sample 0; not where there is
                            no such token or the request ended before. That end of the prompt is computed, not taken from
                            the cache */
    PI_EVENT_EMBEDDING = 4, /* option "pooling": the vectors of the prompt, or its scores. Once, before PI_EVENT_DONE */
    PI_EVENT_PROGRESS = 5, /* option "prompt-progress": the prompt is being computed. After each step with some of it, before
                              any text of sample 0; steps that were not polled yet are one event. After a preemption it
                              begins again */
};

typedef struct pi_token_prob {
    int32_t id;    /* token */
    float logprob; /* natural logarithm of its probability before temperature and filters */
} pi_token_prob;

struct pi_event {
    uint32_t size;                 /* sizeof(pi_event) */
    int kind;                      /* PI_EVENT_* */
    pi_request *request;           /* whose */
    void *user;                    /* of pi_request_set_user */
    const char *text;              /* whole UTF-8 characters, NUL terminated */
    size_t text_len;               /* bytes in text, which may contain NULs itself */
    const int32_t *tokens;         /* ids in this event */
    size_t n_tokens;               /* how many */
    const pi_token_prob *logprobs; /* n_tokens x n_logprobs: the token itself first, then the most likely ones */
    size_t n_logprobs;             /* 0 unless option "logprobs" is set: 1 + its value; or "prompt-logprobs" */
    int finish_reason;             /* PI_FINISH_*; in PI_EVENT_DONE */
    int code;                      /* in PI_EVENT_DONE: PI_OK, PI_ECANCELED, or why it failed (pi_result.msg says more) */
    uint32_t index;                /* the sample that it is about; 0 unless option "n" is above 1 */
    uint32_t n_left;               /* in PI_EVENT_DONE: samples that have not ended; 0: the request's last event */
    const float *embedding;        /* [n_embeddings, n_embd] in PI_EVENT_EMBEDDING */
    size_t n_embd;                 /* values a vector: the model's n_embd, or option "dimensions"; with pooling rank the
                                      scores, n_labels of pi_info */
    size_t n_embeddings;           /* 1, or with pooling none the tokens of the prompt */
    bool calls_bound;              /* in PI_EVENT_TEXT: the grammar of tool calls (pi_request_prompt_chat) held the last of
                                      the tokens, and holds what follows: see pi_chat_parser_bind */
    uint32_t n_prompt;             /* in PI_EVENT_PROGRESS: tokens of the prompt, */
    uint32_t n_cached;             /* those that the cache had, */
    uint32_t n_computed;           /* those that are there now, the cached ones included; */
    double prompt_ms;              /* and the time since it was started */
};

/* A pointer that its events carry. */
PI_API void pi_request_set_user(pi_request *r, void *user);
/* Up to cap events of requests without a callback, in order. Waits up to timeout_ms (0: not at all, -1: no limit) for
 * the first. Returns their number, 0: timed out or nothing left to wait for (no request unfinished), or PI_E*. Each
 * event must be released. With a time limit 0 does not tell the two apart: count the last events. */
PI_API int pi_poll(pi_engine *e, pi_event **buf, size_t cap, int timeout_ms);
/* A descriptor that is readable while pi_poll has something, for event loops; negative: PI_E*. It is the engine's: do not
 * read it, and take it out of the loop before pi_engine_close. Requests with a callback never make it readable. */
PI_API int pi_poll_fd(const pi_engine *e);
PI_API void pi_event_release(pi_event *ev);

/* ---------------------------------------------------------------------------------------------------------- answers */

/* An answer to a conversation, told apart while it streams in: thoughts, content and tool calls, in the form that the
 * model's chat template implies (Qwen 3.5 and 3 Coder, Hermes and Qwen 2.5 and 3, Gemma 4, DeepSeek R1, V3.1, V3.2, V4 and
 * V4.1, Llama 3 and 4, LFM2, Mistral, Command R7B, Nemotron Nano v2, Apriel, Granite 3, GLM, MiniMax M2, Kimi K2 and K3, Seed,
 * gpt-oss, and functions in tags in general), or in the form that pi_request_prompt_chat describes for other templates.
 *
 *     pi_chat_parser *p;  pi_chat_parser_new(&p, e, tools, options, &err);
 *     for each event:  pi_chat_parser_feed(p, ev->text, ev->text_len);
 *                      if (ev->calls_bound) pi_chat_parser_bind(p);
 *                      pi_chat_delta d = {sizeof d};  while (pi_chat_parser_next(p, &d)) ...
 *     pi_chat_parser_end(p, finish_reason), and deltas once more
 *
 * Set option "special" of the request: tags of thoughts and calls may be control tokens, which events print only then.
 * A call counts where it is complete, its name is that of a tool and its arguments are a JSON object. What is none is
 * content, markup and all: without calls and thoughts the content is the text that was fed, to the byte. However the
 * text is cut, the answer is the same. White space around thoughts and line breaks in front of calls are dropped. So are
 * headers and ends of gpt-oss's messages, tags around the content, and messages to tools that are no functions of the request.
 * A call within thoughts is a part of them, unless the answer ends behind it without the thoughts' closing tag.
 *
 * A parser belongs to one thread at a time and must be freed before its engine is closed. */
typedef struct pi_chat_parser pi_chat_parser;

enum {
    PI_CHAT_CONTENT = 1,      /* text: more of the content */
    PI_CHAT_REASONING = 2,    /* text: more of the thoughts */
    PI_CHAT_CALL = 3,         /* call number index begins: id, name */
    PI_CHAT_ARGUMENTS = 4,    /* text: more of its arguments; all so far begin a JSON object */
    PI_CHAT_CALL_END = 5,     /* it is complete */
    PI_CHAT_CALL_DROPPED = 6, /* it was no call after all: forget it, its text follows as content. Of one that is sure
                                 only where the answer was cut off */
};
typedef struct pi_chat_delta {
    uint32_t size;    /* sizeof(pi_chat_delta) */
    int kind;         /* PI_CHAT_* */
    const char *text; /* text_len bytes, or "" */
    size_t text_len;  /* bytes */
    uint32_t index;   /* of the call, from 0; never used again where it was dropped */
    const char *id;   /* of the call, made here unless the model gives one: "call_...", 9 letters for Mistral */
    const char *name; /* of its function */
    bool sure;        /* of a call: a grammar sees to it that it becomes complete unless the answer is cut off, by
                         max-tokens say. It may be shown while it grows; one that is not sure, when it is complete */
} pi_chat_delta;

/* A complete call. */
typedef struct pi_chat_call {
    uint32_t size;         /* sizeof(pi_chat_call) */
    uint32_t index;        /* as in deltas */
    const char *id, *name; /* as in deltas */
    const char *arguments; /* a JSON object as text, NUL terminated */
    size_t arguments_len;  /* bytes */
} pi_chat_call;

/* tools and options: those of pi_request_prompt_chat, which tell types of arguments, whether there may be calls, and
 * whether the prompt ends within thoughts. In options also "parse_reasoning": false leaves thoughts in the content; and
 * "answer_format": true says that a form holds the content, so that calls come first or not at all.
 * PI_EINVAL, PI_EUNSUPPORTED (no chat template), PI_ETOOBIG, PI_ENOMEM. Needs 1 MiB of stack. */
PI_API int pi_chat_parser_new(pi_chat_parser **out, const pi_engine *e, const char *tools, const char *options,
                              pi_error *err);
PI_API void pi_chat_parser_free(pi_chat_parser *p);
/* The answer's next piece, as text (of events) or as tokens, whose text is taken with control tokens, but without those
 * that end an answer; stop strings are not looked for. PI_OK, or PI_ENOMEM: then the answer is lost. */
PI_API int pi_chat_parser_feed(pi_chat_parser *p, const char *text, size_t len);
PI_API int pi_chat_parser_feed_tokens(pi_chat_parser *p, const int32_t *ids, size_t n);
/* After the text of an event with calls_bound: the call that is open, and all that follow, are sure. */
PI_API void pi_chat_parser_bind(pi_chat_parser *p);
/* Nothing follows. Returns how it ended: PI_FINISH_TOOL_CALLS where finish is PI_FINISH_STOP and at least one call is
 * complete, finish otherwise; or PI_ENOMEM. With another finish than PI_FINISH_STOP the answer was cut off: a call or a tag that
 * is incomplete there is dropped, and is no content. Give PI_FINISH_LENGTH where a stop string ended the answer. */
PI_API int pi_chat_parser_end(pi_chat_parser *p, int finish);
/* The next delta that is known; false: none yet. Its strings are valid until the next feed. */
PI_API bool pi_chat_parser_next(pi_chat_parser *p, pi_chat_delta *out);
/* All of it so far: content and thoughts (not NUL terminated; NULL gives only the length), and complete call number i,
 * PI_ENOENT past the last. Valid until the next feed. */
PI_API size_t pi_chat_parser_content(const pi_chat_parser *p, const char **text);
PI_API size_t pi_chat_parser_reasoning(const pi_chat_parser *p, const char **text);
PI_API int pi_chat_parser_call(const pi_chat_parser *p, uint32_t i, pi_chat_call *out);

/* ----------------------------------------------------------------------------------------------------- model files */

/* Visits metadata and tensors of a GGUF (all splits) for `inspect`: fn gets ready-made lines, one item each. */
typedef void (*pi_line_fn)(void *ud, const char *line);
PI_API int pi_model_inspect(const char *path, bool tensors, pi_line_fn fn, void *ud, pi_error *err);
/* The same for programs: each line is a JSON object. In this order
 *     {"file": "m.gguf", "version": 3, "alignment": 32, "bytes": N, "files": 1, "kind": "model"}
 *         kind: "model", "model with a draft head", "drafter" (for option "model-draft"), "vocabulary"
 *     {"key": "general.name", "type": "str", "value": "Gemma"}, for each entry; an array has "length" too, and "cut": true
 *         where value has the first elements only, which is without PI_JSON_ALL for those of more than 64
 *     {"tensors": 236, "parameters": N, "bytes": N, "types": {"Q4_K": {"tensors": N, "parameters": N, "bytes": N}, ...}}
 *     {"tensor": "blk.0.attn_k.weight", "type": "Q5_0", "shape": [640, 256], "bytes": N, "file": 0, "offset": N}, for each
 * Bytes that are no UTF-8 become U+FFFD, numbers that are not finite null. */
enum { PI_JSON_TENSORS = 1 /* tensors too */, PI_JSON_ALL = 2 /* arrays in full */ };
PI_API int pi_model_json(const char *path, int flags, pi_line_fn fn, void *ud, pi_error *err);

/* Rewrites a GGUF with its matrices in another format; file types are the mixtures of llama-quantize ("Q4_K_M").
 * options: "key=value" strings, NULL terminated, or NULL:
 *     pure=1                    all matrices in the one format, no mixture
 *     output-tensor-type=TYPE   of output.weight ("Q6_K")
 *     token-embedding-type=TYPE of token_embd.weight
 *     tensor-type=REGEX=TYPE    of the matrices whose name the pattern finds; repeatable, the first that matches decides
 *     leave-output-tensor=1     output.weight stays as it is
 *     allow-requantize=1        quantised input too (it loses more than F16, BF16 or F32 input)
 *     imatrix=FILE              importance of the columns, as llama-imatrix writes it (GGUF)
 *     include-weights=NAME      use it for tensors alone whose name has NAME in it; repeatable
 *     exclude-weights=NAME      do not use it for those; repeatable, not with include-weights
 *     override-kv=KEY=TYPE:VALUE  sets metadata of the output, TYPE int, float, bool or str; repeatable
 *     prune-layers=N,N...       leaves layers out; those behind them are counted anew
 *     dry-run=1                 report types and sizes, and write nothing; out may be NULL
 *     threads=N                 0: all; the result is the same for any number
 * progress (may be NULL) gets a line for each tensor, on the calling thread. out appears when it is complete, or not at
 * all: PI_EIO (disk full), PI_EINVAL (option; quantised input), PI_EFORMAT, PI_EUNSUPPORTED, PI_ENOENT, PI_ENOMEM. */
PI_API int pi_quantize(const char *in, const char *out, const char *type, const char *const *options, pi_line_fn progress,
                       void *ud, pi_error *err);
/* Name number i of the types pi_quantize takes; NULL past the last. "COPY" changes no tensor. */
PI_API const char *pi_quantize_type(size_t i);

typedef struct pi_quantize_info {
    uint32_t size;        /* sizeof(pi_quantize_info) */
    int32_t number;       /* general.file_type, which pi_quantize also takes as the type's name ("15"); -1: none */
    const char *name;     /* "Q4_K_M" */
    const char *matrices; /* format of most matrices, "Q4_K"; "": as they were */
    double bits;          /* a weight in that format */
} pi_quantize_info;
/* The same list with what is known of each; PI_ENOENT past the last. */
PI_API int pi_quantize_describe(size_t i, pi_quantize_info *out);

/* ------------------------------------------------------------------------------------------------------- measuring */

/* What one op of the device took by itself, in all layers of a model. */
typedef struct pi_op_time {
    uint32_t size;      /* of this struct */
    const char *what;   /* "decode": a token of each sequence; "prompt"; "save", "load": a snapshot of one sequence; "read",
                         * "integers", "floats": a rate */
    uint32_t n_seqs;    /* sequences at once */
    uint32_t n_tokens;  /* of each */
    double ns;          /* the median of some rounds */
    uint64_t bytes;     /* of memory that it has to read or write */
    double bandwidth;   /* bytes a second that the same threads read from memory */
    double products;    /* multiply-adds a second, of "integers" and "floats"; else 0 */
} pi_op_time;
/* true: enough measured. */
typedef bool (*pi_op_time_fn)(void *ud, const pi_op_time *t);
/* Measures an op ("gdn": the delta rule of recurrent layers; "rates": what the processor can do at best, bytes read from memory
 * and products of matrices in its caches, which has no shape and takes 128 MiB) with the options' threads and instruction set, without a
 * model; fn gets each time on the calling thread. shape: "KEY_HEADS,VALUE_HEADS,HEAD_SIZE,LAYERS", NULL or "": those of
 * Qwen 3.5 9B. Takes some seconds and 16 sequences' states of memory. PI_EINVAL, PI_EUNSUPPORTED, PI_ENOMEM. */
PI_API int pi_bench_op(const pi_options *o, const char *op, const char *shape, pi_op_time_fn fn, void *ud, pi_error *err);

/* What one kind of op took in an engine's steps, or of what the step thread does between them: "(batch)", "(between ops)",
 * "(tokens)" (sampling, text, events) and "(schedule)". */
typedef struct pi_op_share {
    uint32_t size;      /* of this struct */
    uint32_t decode;    /* 1: in steps in which all tokens are generated ones; 0: in those with tokens of prompts */
    const char *op;     /* "linear q4_K 1024 x 6144": name and shape; valid during the call */
    uint64_t n_steps;   /* steps of that kind */
    uint64_t n_calls;   /* in all of them, as are all that follow */
    double ns;          /* time that passed; with one thread the time that it ran */
    uint64_t bytes;     /* matrices, keys and values, states and activations, each once a call */
    uint64_t integers;  /* multiply-adds with matrices of quantised formats, one a weight and token */
    uint64_t floats;    /* all others */
} pi_op_share;
/* true: enough heard. */
typedef bool (*pi_op_share_fn)(void *ud, const pi_op_share *s);
/* Tells what ops took since the engine was opened, or since the last call, which starts anew. For engines with option
 * profile-ops on the CPU; fn must not call into the engine. From any thread. PI_EINVAL: without that option. */
PI_API int pi_engine_profile(pi_engine *e, pi_op_share_fn fn, void *ud, pi_error *err);

/* Checks a device: every kernel of the build on real and on odd shapes against references on the host, replay of captured
 * work, copies, two devices where there are two; and how fast it is beside what is published. Of the options, device (one)
 * and those of threads and kernels are used; there is no model. checks: words separated by commas, a family ("linear",
 * "attention", "rates"...) or one of its checks ("linear.formats"); NULL or "": all, which takes a minute or two and some
 * GiB on a GPU. fn gets the report, a page of text to paste, line by line on the calling thread. On the CPU it covers the
 * products of each instruction set. PI_OK: all is right. PI_EDEVICE: something is not, the report says what; PI_EINVAL,
 * PI_EUNSUPPORTED, PI_ENOMEM: it could not be done. */
PI_API int pi_selftest(const pi_options *o, const char *checks, pi_line_fn fn, void *ud, pi_error *err);

#ifdef __cplusplus
}
#endif
#endif
