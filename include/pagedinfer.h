/* pagedinfer.h: the public interface of libpagedinfer, and its manual.
 *
 * The interface has three main objects. An ENGINE holds a model's weights, one paged KV cache and a scheduler that
 * runs on its own thread. A REQUEST is a prompt and one or several answers to it (option "n"). An EVENT reports
 * progress of a request: generated text, or its end.
 *
 *     pi_options *o = pi_options_new();
 *     pi_options_set(o, "model", "gemma.gguf", &err);
 *     pi_engine *e;  pi_engine_open(&e, o, &err);
 *     pi_request *r = pi_request_new(e);
 *     pi_request_prompt_text(r, "Once upon a time", 16, &err);
 *     pi_request_submit(r, &err);
 *     while (pi_poll(e, ev, 16, -1) > 0) ...
 *
 * RETURN VALUES. A function that can fail returns PI_OK (0) or a negative PI_E* code. Functions that return a count
 * return it, or a negative code. A required pointer that is NULL gives PI_EINVAL. A parameter `err` may be NULL.
 *
 * COUNTS. A function that fills a caller's buffer of `cap` entries returns the full number of entries. If that number
 * exceeds cap, the function has written the first cap entries. A call with cap 0 and a NULL buffer returns the
 * number.
 *
 * OWNERSHIP. The caller frees an object from a _new or _open function with the matching _free or _close function,
 * which accept NULL. The library copies its inputs before it returns. Memory that an event points to belongs to the
 * library and stays valid until pi_event_release.
 *
 * THREADS. Every function on an engine may be called from any thread at any time, except pi_engine_close: no other
 * call on the engine may run during it or follow it. A pi_options object belongs to one thread. So does a request
 * until it is submitted; afterwards any thread may use it, but no call on it may run during or follow
 * pi_request_free.
 *
 * DEFAULTS. A request generates until the model ends its answer or the context is full ("max-tokens" = -1). It
 * samples with "temp" = 0.8; 0 always picks the most likely token. Other common keys are "ctx-size",
 * "kv-cache-tokens", "parallel" and "threads" for an engine, and "stop", "seed" and "timeout" for a request.
 * `pagedinfer run --help all` prints every key.
 *
 * ABI. A struct with a field `size` is size-versioned: the caller sets it to sizeof before the call, and the library
 * fills at most that number of bytes and stores the number it filled. New fields are only appended. Structs that only
 * the library allocates can also grow at their end. Any other struct is fixed within one PI_ABI_VERSION. */
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

/* Version of this header. PI_ABI_VERSION changes when programs must be compiled again. */
#define PI_VERSION_MAJOR 0
#define PI_VERSION_MINOR 1
#define PI_VERSION_PATCH 0
#define PI_ABI_VERSION 0

/* ------------------------------------------------------------------------------------------------ version, errors
 *
 * LIBRARY AND ERRORS. The library never aborts, exits or prints, and it keeps no "last error". A failed call returns
 * a code. Where a text helps, the call also fills the caller's pi_error. The text names the cause and the remedy.
 *
 * The functions of this topic need no engine and are thread-safe, except pi_set_allocator, which comes before any
 * other call. The strings they return are static. */

/* The error table: name, code, text, retryable. A retryable call may succeed later without any change by the
 * caller. */
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

/* The reason of a failed call. A call fills it on failure and normally leaves it unchanged on success; read it only
 * after a failure. No size field: the caller allocates it, and its layout is fixed. */
typedef struct pi_error {
    int code;      /* PI_OK or PI_E* */
    char msg[240]; /* one line that names the cause and, if there is one, the remedy */
} pi_error;

/* Returns PI_ABI_VERSION of the loaded library; compare it with the macro. Thread-safe. */
PI_API int pi_abi_version(void);
/* Returns the version of the loaded library, "0.1.0" for example. The string is static. Thread-safe. */
PI_API const char *pi_version(void);
/* Returns the text of a code, or "unknown error" for a code outside the table. Never NULL; static. Thread-safe. */
PI_API const char *pi_strerror(int code);
/* Returns the name of a code, "PI_ENOMEM" for example, or "PI_UNKNOWN" for a code outside the table. Static.
 * Thread-safe. */
PI_API const char *pi_err_name(int code);

/* The allocator for all memory of the library. The library calls the hooks from several threads at the same time.
 * Size-versioned: the caller sets `size`. `map` and `unmap` are both set or both NULL; NULL = mmap is used. */
typedef struct pi_allocator {
    uint32_t size;                                      /* sizeof(pi_allocator) */
    void *ud;                                           /* first argument of every hook */
    void *(*malloc)(void *ud, size_t size);             /* like malloc */
    void *(*realloc)(void *ud, void *p, size_t size);   /* like realloc; p may be NULL */
    void (*free)(void *ud, void *p);                    /* like free; p may be NULL */
    void *(*map)(void *ud, size_t size);                /* returns zeroed, page-aligned memory, or NULL on failure */
    void (*unmap)(void *ud, void *p, size_t size);      /* frees memory from map; size is the mapped size */
} pi_allocator;
/* Replaces the library's allocator; NULL restores the default. Returns PI_OK, or PI_EINVAL if a hook is missing or
 * `size` is too small. Not thread-safe: call it before any other function, because memory is freed through the
 * allocator in force at that time. The library copies *a. */
PI_API int pi_set_allocator(const pi_allocator *a);

/* --------------------------------------------------------------------------------------------------------- options
 *
 * OPTIONS. All settings are pairs of text: a key and a value. One table describes the options of engines and of
 * requests; pi_options_describe enumerates it, and docs/OPTIONS.md lists them.
 *
 * Create a pi_options, set keys, pass it to pi_engine_open, then free it; the engine keeps its own copy. A request
 * option in a pi_options is the default of every request of the engine. pi_request_set overrides it for one request.
 *
 * Option "log-level" and pi_options_set_log control log lines; the library never prints. A pi_options belongs to one
 * thread. Several engines may be opened from one pi_options. */

/* Log levels. A logger of some level receives lines of that level and of all lower ones. */
enum {
    PI_LOG_NONE = 0,  /* no lines */
    PI_LOG_ERROR = 1, /* failures */
    PI_LOG_WARN = 2,  /* a setting or file could not be used as given */
    PI_LOG_INFO = 3,  /* memory plan; one line per finished request */
    PI_LOG_DEBUG = 4  /* details for developers */
};
/* Receives one log line. msg has no newline and is valid during the call. The library may call it from any thread,
 * and from several at the same time. */
typedef void (*pi_log_fn)(void *ud, int level, const char *msg);

/* A set of options; opaque. */
typedef struct pi_options pi_options;

/* Description of one option, as printed by --help, man page and docs. Size-versioned: the caller sets `size`.
 * All strings are static. */
typedef struct pi_option_info {
    uint32_t size;       /* sizeof(pi_option_info) */
    const char *key;     /* name for pi_options_set and pi_request_set: "ctx-size" */
    const char *type;    /* "bool", "int", "float", "size", "string", "enum" or "list" */
    const char *def;     /* default as text; "" = no default */
    const char *range;   /* "1..1024" or "f32|f16|bf16"; "" = not restricted */
    const char *flags;   /* command line spellings: "-c --ctx-size"; "" = programs only. "--x=V" takes no value
                          * and means V; "--x?V" takes an optional value and means V without one */
    const char *section; /* section of --help: "model", "kv", "cpu", "sampling", ... */
    const char *help;    /* one sentence */
    int scope;           /* PI_SCOPE_ENGINE or PI_SCOPE_REQUEST */
    bool common;         /* true = listed by plain --help */
    const char *env;     /* extra environment variables; PAGEDINFER_X and LLAMA_ARG_X exist for each long flag --x */
} pi_option_info;
/* Scope of an option. */
enum {
    PI_SCOPE_ENGINE = 0,  /* set before pi_engine_open */
    PI_SCOPE_REQUEST = 1, /* set per request; in a pi_options, the default of all requests */
    PI_SCOPE_TOOL = 2     /* of the command line tool only; pi_options_describe never returns one */
};

/* Creates a set of options that holds every default. Returns NULL if out of memory. The caller frees the set with
 * pi_options_free. Thread-safe. */
PI_API pi_options *pi_options_new(void);
/* Sets an engine option, or the engine-wide default of a request option. Values of list options accumulate; an empty
 * value clears the list. `key` may also be a long command line spelling without its dashes, and "_" stands for "-".
 * Numbers may end in k, M, GiB and similar. Returns PI_OK, PI_ENOMEM, or PI_EINVAL: the key is unknown (err names the
 * nearest known key) or the value is outside its range (err names the range). Options of the command line tool are
 * unknown here. One thread per pi_options. key and value are copied. */
PI_API int pi_options_set(pi_options *o, const char *key, const char *value, pi_error *err);
/* Sends log lines up to `level` to fn; fn NULL = no lines. Overrides option "log-level". One thread per pi_options.
 * fn and ud must stay valid until the engine is closed. */
PI_API void pi_options_set_log(pi_options *o, pi_log_fn fn, void *ud, int level);
/* Stage of pi_engine_open, for pi_progress_fn. */
enum {
    PI_LOAD_READ = 1,    /* copying a file into memory, one file after the other; only with load-mode read */
    PI_LOAD_WEIGHTS = 2, /* converting tensors, including a drafter's, to the layout of the device */
};
/* Reports that `done` of `total` bytes of a stage are processed. Returning true cancels pi_engine_open. The opening
 * thread calls it when a stage begins (done is 0) and then at least every 16 MiB. Within a stage done never
 * decreases, and it ends at total. Return quickly. The function must not use the options. */
typedef bool (*pi_progress_fn)(void *ud, int stage, uint64_t done, uint64_t total);
/* Registers fn to report the progress of pi_engine_open; fn NULL = no reports. If fn cancels, pi_engine_open frees
 * everything and returns PI_ECANCELED. One thread per pi_options. fn and ud must stay valid during pi_engine_open. */
PI_API void pi_options_set_progress(pi_options *o, pi_progress_fn fn, void *ud);
/* Describes option number i, counted from 0, in *out. Returns PI_OK, PI_ENOENT past the last option, or PI_EINVAL.
 * Thread-safe. */
PI_API int pi_options_describe(size_t i, pi_option_info *out);
/* Frees a set of options; NULL is allowed. Engines opened from it are not affected. */
PI_API void pi_options_free(pi_options *o);

/* --------------------------------------------------------------------------------------------------------- devices
 *
 * DEVICES. A build has code for one or more kinds of device: always the CPU, and CUDA if it was compiled in. Option
 * "device" selects one or several by name; "auto" takes the first usable one. */

/* A device that this build has code for, whether or not the machine has it. Size-versioned: the caller sets
 * `size`. */
typedef struct pi_device {
    uint32_t size;         /* sizeof(pi_device) */
    char name[16];         /* value for option "device": "cpu", "cuda", "cuda1" */
    char desc[96];         /* "NVIDIA H200, sm_90", or "" */
    char lacks[256];       /* features it lacks; if not usable, the reason; "" = nothing */
    uint64_t memory_bytes; /* memory of the device; 0 = unknown */
    bool usable;           /* the device is present and this build can use it */
} pi_device;
/* Describes device number i, counted from 0 in the order of "auto". Returns PI_OK, PI_ENOENT past the last device, or
 * PI_EINVAL. May load a GPU driver. Thread-safe. */
PI_API int pi_device_describe(size_t i, pi_device *out);

/* ---------------------------------------------------------------------------------------------------------- engine
 *
 * OPENING AND CLOSING AN ENGINE. pi_engine_open loads the model, allocates all memory of the engine and starts its
 * step thread. A process may have several engines. Each has its own weights, cache and threads.
 *
 * To end, free all requests, then call pi_engine_close. pi_engine_drain waits first until all running requests have
 * ended. If the device fails, the engine enters PI_STATE_FAILED and its requests end with an error. The only
 * remaining call is then pi_engine_close.
 *
 * MEMORY PLANNING. pi_engine_plan reports memory use, exact to the byte, without loading weights. pi_engine_open
 * allocates by the same numbers; pi_engine_memory returns them. Adapters and grammars come on top of the plan; see
 * ADAPTERS and STRUCTURED OUTPUT.
 *
 * The cache takes memory-utilization of the memory that is free, after weights and buffers: of the device, or of the
 * memory that the system and the process's cgroups leave. It never holds more than `parallel` requests of ctx-size
 * tokens. On the CPU its pages are committed when they are first written. Engines of one process do not count on the
 * same memory: a later engine sees the free memory without the pools of earlier ones. */

/* A loaded model with its cache and scheduler; opaque. */
typedef struct pi_engine pi_engine;

/* Memory use of a model with some options. Size-versioned: the caller sets `size`. With split-mode tensor, the byte
 * counts are per device. */
typedef struct pi_plan {
    uint32_t size;                /* sizeof(pi_plan) */
    uint64_t weights_bytes;       /* weights in the device's layout */
    uint64_t kv_bytes;            /* cache pools of all groups */
    uint64_t scratch_bytes;       /* activations and logits of one step */
    uint64_t total_bytes;         /* sum of weights, cache, states and scratch */
    uint64_t kv_tokens;           /* token capacity of the groups that keep every token */
    uint32_t n_groups;            /* entries used in group[] */
    struct {
        char name[16];            /* "full", "window" or "recurrent"; blocks of "recurrent" are state snapshots */
        uint32_t n_layers;        /* layers in the group */
        uint32_t block_size;      /* tokens per block; recurrent: snapshots are taken at multiples of it */
        uint32_t window;          /* attention window in tokens; 0 = all tokens */
        uint64_t n_blocks;        /* blocks in the pool */
        uint64_t block_bytes;     /* bytes per block, for all layers of the group */
    } group[8];
    uint32_t ctx_size;            /* maximum tokens of a request, prompt and answer together; at most the cache's */
    uint64_t state_bytes;         /* recurrent states of concurrently running requests; part of total_bytes */
    uint32_t n_places;            /* entries used in place[]: 2 if the model is split between a device and the CPU,
                                   * one per device with split-mode layer */
    struct {
        char name[64];            /* "cuda (...)", "cpu (avx2)", "layers 0-9: cuda (...)" */
        uint64_t weights_bytes, kv_bytes, state_bytes, scratch_bytes; /* this place's part of the sums above */
    } place[8];
    uint64_t host_cache_bytes;    /* maximum host memory for evicted prefixes (cache-ram); not part of total_bytes */
    int32_t cache_limit;          /* PI_CACHE_LIMIT_*: the reason why the cache is not larger */
    uint32_t n_requests;          /* requests of ctx_size tokens that the cache holds at the same time */
    uint32_t n_requests_1k;       /* requests of 1,024 tokens, or of ctx_size if that is less */
    uint32_t max_requests;        /* maximum number of running requests (parallel) */
    uint64_t free_bytes;          /* memory that was free before the engine was opened, on the device that limits the
                                   * cache; 0 = not known, or not read */
    uint64_t host_weights_bytes;  /* experts in host memory that the device reads (expert-cache); not part of
                                   * total_bytes */
} pi_plan;
/* The limit of the cache's size. */
enum {
    PI_CACHE_LIMIT_OPTION = 0,   /* kv-cache-tokens or kv-cache-bytes */
    PI_CACHE_LIMIT_PARALLEL = 1, /* parallel requests of ctx-size tokens fit: more would never be used */
    PI_CACHE_LIMIT_MEMORY = 2,   /* memory-utilization of the free memory */
    PI_CACHE_LIMIT_UNKNOWN = 3   /* the free memory is unknown: one request of ctx-size, at most 32768 tokens */
};
/* Computes the memory use of an engine with these options, from the model's metadata; loads no weights. Without
 * kv-cache-tokens and kv-cache-bytes, the size of the cache depends on the memory that is free at the call. Returns
 * PI_OK or an error of pi_engine_open. One thread per pi_options. */
PI_API int pi_engine_plan(const pi_options *o, pi_plan *out, pi_error *err);

/* Loads a model, allocates all memory of the engine and starts its step thread. Returns PI_OK and the engine in *out,
 * which the caller closes with pi_engine_close. On failure *out is NULL and everything is freed. Errors: PI_EINVAL
 * (options), PI_ENOENT, PI_EIO and PI_EFORMAT (files), PI_EUNSUPPORTED (model, device or combination of options),
 * PI_ETOOBIG, PI_ENOMEM, PI_EDEVICE, PI_ECANCELED (by the progress function). The options may be freed afterwards.
 * One thread per pi_options. */
PI_API int pi_engine_open(pi_engine **out, const pi_options *o, pi_error *err);
/* Cancels running requests, stops the threads and frees the engine. Works on a failed engine; NULL is allowed. Free
 * the requests before. A request with a callback may instead be freed by that callback in its last event, which this
 * function waits for. Events that were not released become invalid. No other call on the engine may run meanwhile. */
PI_API void pi_engine_close(pi_engine *e);

/* Fills *out with the memory plan that the engine was opened with. Returns PI_OK or PI_EINVAL. Thread-safe. */
PI_API int pi_engine_memory(const pi_engine *e, pi_plan *out);

/* State of an engine. */
enum {
    PI_STATE_READY = 0,    /* accepts requests */
    PI_STATE_DRAINING = 1, /* pi_engine_drain was called: refuses new requests */
    PI_STATE_FAILED = 2    /* the device or the engine failed: refuses new requests, close it */
};
/* Returns the engine's PI_STATE_*, or PI_EINVAL if e is NULL. Thread-safe; does not block. */
PI_API int pi_engine_state(const pi_engine *e);

/* MODEL FACTS. pi_engine_info returns static facts of the loaded model and the engine. pi_engine_meta reads single
 * metadata entries of the model's file; pi_engine_meta_key enumerates their keys. All are thread-safe and do not wait
 * for the step thread. */

/* Facts of a loaded model. Size-versioned: the caller sets `size`. Strings and arrays belong to the engine and live
 * as long as it does. */
typedef struct pi_info {
    uint32_t size;         /* sizeof(pi_info) */
    const char *arch;      /* "gemma3" */
    const char *name;      /* general.name, or "" */
    const char *type_desc; /* "gemma3 270M Q4_K - Medium", the first column of llama-bench */
    uint64_t n_params;     /* parameters */
    uint64_t file_bytes;   /* bytes of all tensors in the file */
    uint32_t n_vocab;      /* tokens in the vocabulary */
    uint32_t n_ctx_train;  /* context length used in training, in tokens */
    uint32_t n_embd;       /* embedding length */
    uint32_t n_layer;      /* layers */
    uint32_t ctx_size;     /* maximum tokens of a request on this engine */
    uint32_t n_threads;    /* CPU threads of a step */
    const char *device;    /* "cpu (avx512-vnni)" */
    int32_t bos, eos;      /* token ids; -1 = none in this model */
    const char *chat_template; /* template text of the GGUF, or "" */
    const char *pooling;   /* the metadata's pooling type: "none", "mean", "cls", "last", "rank"; "" = not given */
    uint32_t n_labels;     /* scores per text of the classifier (option "pooling", rank); 0 = no classifier */
    const char *const *labels; /* [n_labels] names of the scores; "" = unnamed */
    uint32_t modalities;   /* PI_MODALITY_* of inputs other than text, combined with |; 0 = text only */
} pi_info;
/* Kinds of input of an engine, besides text. */
enum {
    PI_MODALITY_VISION = 1, /* images: option "mmproj" names a vision model */
    PI_MODALITY_AUDIO = 2   /* reserved; no engine has it yet */
};
/* Fills *out with facts of the model. Returns PI_OK or PI_EINVAL. Thread-safe. */
PI_API int pi_engine_info(const pi_engine *e, pi_info *out);
/* Writes the value of a metadata key ("general.license", "llama.context_length") as text; option "override-kv" is
 * applied. Strings are copied, numbers are decimal, bools are true or false, arrays are JSON. Like snprintf, the
 * function writes at most cap bytes including a final NUL and returns the full length without it. Errors: PI_ENOENT
 * (unknown key), PI_EINVAL. Thread-safe. */
PI_API int64_t pi_engine_meta(const pi_engine *e, const char *key, char *out, size_t cap);
/* Writes the name of metadata key number i, counted from 0 in file order. Return value as for pi_engine_meta;
 * PI_ENOENT past the last key. Thread-safe. */
PI_API int64_t pi_engine_meta_key(const pi_engine *e, size_t i, char *out, size_t cap);

/* STATISTICS. pi_engine_stats takes a snapshot of the engine's counters without a lock, so that a monitor can poll
 * it. Each number is exact at some moment of the call, but not all at the same moment. Totals count from the opening
 * of the engine. A request with option "n" counts once per answer. For times per op see pi_engine_profile. */

enum { PI_N_STEP_BOUNDS = 20 /* entries of pi_stats.step_bound_ms */ };
/* Counters of an engine. Size-versioned: the caller sets `size`. */
typedef struct pi_stats {
    uint32_t size;                     /* sizeof(pi_stats) */
    uint32_t n_waiting, n_running;     /* requests now in each state */
    uint64_t n_finished;               /* requests ended, for any reason */
    uint64_t n_preempted;              /* times a running request returned to the queue for lack of blocks */
    uint64_t n_steps;                  /* steps run */
    uint64_t prompt_tokens;            /* prompt tokens of all started requests */
    uint64_t cached_tokens;            /* the part of prompt_tokens that came from the cache */
    uint64_t generated_tokens;         /* tokens sampled */
    uint32_t n_groups;                 /* entries used in group[] */
    struct {
        uint64_t n_blocks, n_free, n_used, n_cached; /* n_blocks = n_free + n_used; n_cached: free ones with a prefix */
        uint64_t n_shared;             /* blocks used by more than one request */
        uint64_t n_evicted;            /* cached prefix blocks reused for new data so far */
        uint64_t committed_bytes;      /* memory of the blocks written so far; falls when the engine is idle */
    } group[8];
    double last_step_ms;               /* duration of the last step */
    uint64_t n_prefix_hits;            /* requests that found a part of their prompt in the cache */
    uint64_t n_snapshots_saved;        /* snapshots of recurrent states taken */
    uint64_t n_snapshots_restored;     /* requests that continued from a snapshot */
    const char *group_name[8];         /* "full", "window", "recurrent"; static text */
    uint64_t disk_entries, disk_bytes; /* prefix-cache-dir: entries of this model; bytes of all models */
    uint64_t n_drafted, n_accepted;    /* draft tokens verified; draft tokens accepted */
    uint64_t disk_reads, disk_writes;  /* blocks and snapshots read from and written to prefix-cache-dir */
    uint64_t host_entries, host_bytes; /* device evictions kept in host memory (cache-ram); 0 on the CPU */
    uint64_t host_reads, host_writes;  /* blocks and snapshots copied from and to that host memory */
    double step_total_ms;              /* sum of all step durations */
    double step_bound_ms[PI_N_STEP_BOUNDS];    /* histogram bounds, ascending; constant for the engine's life */
    uint64_t step_count[PI_N_STEP_BOUNDS + 1]; /* steps within bound i and above bound i - 1; last: above all bounds */
    double draft_total_ms;             /* the part of step_total_ms spent in drafters and in choosing draft lengths */
    uint64_t key_blocks_attended, key_blocks_possible; /* sparse prefill (prefill-sparsity): key blocks attended to and
                                        * key blocks in total, summed over layers, heads and blocks of 128 tokens */
    uint64_t n_block_waits;            /* requests that have waited for cache blocks, each counted once */
} pi_stats;
/* Fills *out with the engine's counters. Returns PI_OK or PI_EINVAL. Thread-safe and lock-free. */
PI_API int pi_engine_stats(const pi_engine *e, pi_stats *out);

/* Refuses new requests from now on, permanently (PI_ECLOSED), and waits until all requests have ended. Returns PI_OK,
 * or PI_ETIMEDOUT after timeout_ms (-1 = no limit); the engine stays draining. Thread-safe, but not from a
 * callback. */
PI_API int pi_engine_drain(pi_engine *e, int timeout_ms);

/* CACHE. Finished blocks of the KV cache stay in memory until their space is needed. A new request reuses them if its
 * prompt begins with the same tokens, so callers submit the full prompt every time.
 *
 * Option "cache" = false excludes a request; "prefix-cache" = false disables reuse for the engine. "cache-salt"
 * separates tenants: only requests with the same salt share prefixes. A GPU engine can keep evicted prefixes in host
 * memory ("cache-ram").
 *
 * SAVING STATE. With option "prefix-cache-dir" the engine also writes prefixes to disk, and later engines of the same
 * model find them there. Saving needs no call; "prefix-cache-dir-ro" only reads.
 *
 * EVENTS. pi_engine_on_cache_event reports each block that becomes reusable or stops being so. Routers use these
 * events to send a request to the engine that holds its prefix; the server publishes them in vLLM's format. The unit
 * is a block of n_tokens / n_hashes tokens, constant for the engine's life. A block is stored while a new request
 * could reuse a prefix that contains it. With window or recurrent layers these are fewer than the blocks in memory.
 * Not reported: prefixes under a cache-salt, prefixes of requests with "cache" off, and data only on disk or in
 * cache-ram. */

/* Removes the cached prefixes of the requests with this cache-salt, in memory and on disk, and waits until that is
 * done. salt "" = requests without a salt; NULL = all prefixes. Running requests keep their blocks, but no new
 * request finds them. Returns PI_OK or PI_EINVAL. Thread-safe, but not from a callback on the step thread. */
PI_API int pi_engine_cache_clear(pi_engine *e, const char *salt);

/* Kind of a cache event. */
enum {
    PI_CACHE_STORED = 1,  /* blocks became reusable */
    PI_CACHE_REMOVED = 2, /* blocks are no longer reusable */
    PI_CACHE_CLEARED = 3  /* no block is reusable any more */
};
/* One change of the prefix cache. No size field: only the library allocates it, so fields can be appended. */
typedef struct pi_cache_event {
    int kind;               /* PI_CACHE_* */
    const uint64_t *hashes; /* [n_hashes] block hashes, each over all tokens up to the block's end; stored: in order */
    size_t n_hashes;        /* number of blocks; 0 for PI_CACHE_CLEARED */
    const int32_t *tokens;  /* stored: [n_tokens] the blocks' tokens; NULL for other kinds */
    size_t n_tokens;        /* tokens of all blocks together */
    uint64_t parent;        /* stored, if has_parent: hash of the block before the first one */
    int has_parent;         /* 0 = the first block begins the prompt */
} pi_cache_event;
/* Receives one cache event. The STEP thread calls it, and every request waits for it to return. It must not call the
 * library. *ev is valid during the call. */
typedef void (*pi_cache_event_fn)(void *ud, const pi_cache_event *ev);
/* Registers fn to be called on every cache change. Call it once, before the first request is submitted. Returns
 * PI_OK, PI_EBUSY (a request was submitted, or a function is registered), PI_EINVAL or PI_ENOMEM. fn and ud must stay
 * valid until the engine is closed. Thread-safe. */
PI_API int pi_engine_on_cache_event(pi_engine *e, pi_cache_event_fn fn, void *ud, pi_error *err);

/* -------------------------------------------------------------------------------------------------- adapters (LoRA)
 *
 * ADAPTERS. An engine can hold many LoRA adapters alongside the model. Option "lora" selects up to 8 of them per
 * request, as NAME or NAME:SCALE separated by commas, or "none". A request without the option uses every adapter with
 * a nonzero default scale.
 *
 * Requests with different adapters run in the same step, and the result of one does not depend on the others. Cached
 * prefixes are reused only by requests with the same adapters at the same scales.
 *
 * Files are GGUFs from llama.cpp's convert_lora_to_gguf. An adapter may change the matrices of layers (attention,
 * feed-forward, delta nets, routers, experts), the embedding and the output. Its memory is about the size of its
 * file, on each device that holds a part of the model, in addition to the plan.
 *
 * All functions are thread-safe and may be called while requests run. */

/* A loaded adapter. Size-versioned: the caller sets `size`. */
typedef struct pi_lora {
    uint32_t size;       /* sizeof(pi_lora) */
    char name[128];      /* name given to pi_lora_load */
    char path[512];      /* path given to pi_lora_load or pi_lora_replace, truncated to fit */
    float scale;         /* scale for requests without option "lora"; 0 = not applied to them */
    uint32_t rank;       /* largest rank of its matrices */
    uint32_t n_matrices; /* matrices of the model that it changes */
    uint64_t bytes;      /* device memory */
    uint32_t n_running;  /* requests that use it and have not ended */
} pi_lora;
/* Loads an adapter under a name and returns when requests can use it. The name has 1 to 127 bytes without "," and
 * ":", and is not "none". `scale` is the default scale; see pi_lora. Errors: PI_EBUSY (the name is taken), PI_EINVAL
 * (bad name; made for another model, err names the mismatch; a ninth adapter with a scale), PI_ENOENT, PI_EIO,
 * PI_EFORMAT (damaged, or not an adapter), PI_EUNSUPPORTED, PI_ENOMEM, PI_ECLOSED. Thread-safe. */
PI_API int pi_lora_load(pi_engine *e, const char *name, const char *path, float scale, pi_error *err);
/* Replaces a loaded adapter atomically. The new one keeps the name, scale and index. New requests use the old one
 * until the new one is ready; if loading fails, the old one stays. Running requests keep the old one, as with
 * pi_lora_unload. Errors: PI_ENOENT (file, or adapter, not found); others as for pi_lora_load. Thread-safe. */
PI_API int pi_lora_replace(pi_engine *e, const char *name, const char *path, pi_error *err);
/* Unloads an adapter for new requests. Running requests keep it; its memory is freed when the last of them ends. Does
 * not wait for that. Returns PI_OK, PI_ENOENT (no adapter of that name) or PI_EINVAL. Thread-safe. */
PI_API int pi_lora_unload(pi_engine *e, const char *name, pi_error *err);
/* Sets the scale for new requests without option "lora". Returns PI_OK, PI_ENOENT (no adapter of that name), or
 * PI_EINVAL: 8 other adapters have a scale, or the scale is not finite. Thread-safe. */
PI_API int pi_lora_scale(pi_engine *e, const char *name, float scale, pi_error *err);
/* Describes adapter number i, counted from 0 in load order. Returns PI_OK, PI_ENOENT past the last adapter, or
 * PI_EINVAL. Thread-safe. */
PI_API int pi_lora_describe(pi_engine *e, size_t i, pi_lora *out);

/* -------------------------------------------------------------------------------------------------- weights sharing
 *
 * WEIGHTS SHARING. Several processes of one machine can share one copy of the packed weights. One process, the owner,
 * calls pi_weights_open. It loads and packs the weights as pi_engine_open with these options would, and serves them
 * on a Unix socket. Engines with option "weights-from" connect to the socket and map the same memory read-only, so
 * they open fast and need no second copy.
 *
 * Clients must have the same model file, version of this library, processor, devices and placement of layers. Other
 * clients get an error, and so do processes of other users. Mapped weights stay valid when the owner closes or dies.
 *
 * Weights on a CUDA device are shared if its driver can export memory as file descriptors; otherwise the result is
 * PI_EUNSUPPORTED. Weights of ranks, and of a CPU used as several devices, are not shared. With load-mode auto the
 * owner reads the file past the page cache. The owner serves clients on its own thread. */

/* An owner of shared weights; opaque. */
typedef struct pi_weights pi_weights;
/* Loads weights and serves them at the path `socket` until pi_weights_close. Returns PI_OK and the owner in *out,
 * which the caller closes; on failure *out is NULL. Errors: as for pi_engine_open, and PI_EBUSY if another owner
 * responds at that path. One thread per pi_options. */
PI_API int pi_weights_open(pi_weights **out, const pi_options *o, const char *socket, pi_error *err);
/* Removes the socket and frees the owner. NULL is allowed. Clients keep their mappings. */
PI_API void pi_weights_close(pi_weights *w);

/* ------------------------------------------------------------------------------------------------------------ ranks
 *
 * RANKS. Several processes, on one machine or more, can run one model together, each with its own device. Start them
 * with mpirun, srun or torchrun, and set option "ranks" to auto. Rank 0 opens engines and is the only process that
 * callers use. Every other rank calls pi_rank_follow, which runs rank 0's commands. Worker ranks need no model file.
 * If MPI connects the ranks, MPI stays initialized until the process exits. */

/* Returns this process's rank according to its launcher, and stores the number of ranks in *n (may be NULL). A single
 * process, or one with option "ranks" off, has rank 0 of 1. Errors: PI_EUNSUPPORTED (the launcher's processes cannot
 * be connected), PI_EINVAL. One thread per pi_options. */
PI_API int pi_rank(const pi_options *o, int *n, pi_error *err);
/* Runs rank 0's commands; blocks until rank 0's process exits, and then returns PI_OK. Returns PI_EDEVICE if rank 0
 * or another rank is silent for "rank-timeout" seconds; rank 0's engine then fails too, and all ranks must be
 * restarted. Other errors: PI_EINVAL (this is rank 0, or the secret is not valid), PI_EUNSUPPORTED, PI_ENOMEM. Call
 * it from any thread, one call at a time, in a process that opens no engine with ranks. */
PI_API int pi_rank_follow(const pi_options *o, pi_error *err);

/* ----------------------------------------------------------------------------------------------------- work budgets
 *
 * WORK BUDGETS. Tokenizing, rendering a conversation and compiling a schema or grammar take time that depends on the
 * client's input. A pi_work limits that time and memory. A server creates one per client request, passes it to the
 * pi_work_* variants of functions or to pi_request_set_work, and cancels it when the client disconnects.
 *
 * A call that reaches the limit returns within a millisecond or two: PI_ETIMEDOUT (time), PI_ETOOBIG (steps or
 * memory) or PI_ECANCELED. Every further call with the same pi_work returns the same code. A pi_work belongs to one
 * thread at a time; pi_work_cancel may come from any thread. */

/* A limit for time and memory; opaque. */
typedef struct pi_work pi_work;
/* Creates a work budget. max_steps limits steps of 10 to 100 ns; it also limits processor time, to 100 ns per step.
 * max_bytes limits the memory in use at one time, without results. 0 = no limit for either. timeout_ms counts from
 * now; -1 = no limit. Returns NULL if out of memory. The caller frees it with pi_work_free. Thread-safe. */
PI_API pi_work *pi_work_new(uint64_t max_steps, size_t max_bytes, int timeout_ms);
/* Cancels the work: the running call and every further one return PI_ECANCELED. NULL is allowed. Thread-safe. */
PI_API void pi_work_cancel(pi_work *w);
/* Returns PI_OK while the budget lasts, otherwise the code of its end; for loops of the caller. NULL gives PI_OK. One
 * thread at a time. */
PI_API int pi_work_check(pi_work *w);
/* Frees a work budget; NULL is allowed. No call may be using it, and no unsubmitted request may refer to it. */
PI_API void pi_work_free(pi_work *w);

/* ------------------------------------------------------------------------------------------------------------ text
 *
 * TOKENIZING. These functions convert text to token ids of the model's vocabulary and back. Requests with a text or a
 * conversation as prompt tokenize by themselves; use these functions to count tokens, or to build prompts of ids. All
 * of them are thread-safe, with or without running requests. The variants that begin with pi_work_ take a work
 * budget. */

/* Flags of tokenizing functions, combined with |. */
enum {
    PI_TOK_BOS = 1,     /* add BOS/EOS if the model's metadata asks for it */
    PI_TOK_SPECIAL = 2, /* tokenize: text of control tokens ("<bos>") becomes tokens; detokenize: print them */
};
/* Tokenizes len bytes of text; any bytes are allowed, including invalid UTF-8. Returns the number of tokens, which
 * may exceed cap (then cap were written). Errors: PI_EINVAL, PI_ETOOBIG (2 GiB or more), PI_ENOMEM. Thread-safe. */
PI_API int64_t pi_tokenize(const pi_engine *e, const char *text, size_t len, int flags, int32_t *out, size_t cap);
/* Like pi_tokenize, with a work budget; w NULL = no limit. Also returns the codes of WORK BUDGETS. */
PI_API int64_t pi_work_tokenize(pi_work *w, const pi_engine *e, const char *text, size_t len, int flags, int32_t *out,
                                size_t cap);
/* Writes the text of n tokens, without a final NUL; control tokens only with PI_TOK_SPECIAL. Returns the bytes, which
 * may exceed cap (then cap were written). Errors: PI_EINVAL (also: an unknown id), PI_ENOMEM. Thread-safe. */
PI_API int64_t pi_detokenize(const pi_engine *e, const int32_t *ids, size_t n, int flags, char *out, size_t cap);

/* CHAT TEMPLATES. A chat template turns a conversation into the text that a model was trained on. The engine uses the
 * GGUF's template, or the one of options "chat-template" or "chat-template-file". A model without a template gets
 * ChatML if its vocabulary has <|im_start|>.
 *
 * Conversations are passed as JSON text, in three arguments:
 *
 *     messages  JSON list in OpenAI's format: role, content (a string, or parts of types text and image; see
 *               IMAGES), tool_calls, tool_call_id, reasoning_content
 *     tools     JSON list of functions, or NULL
 *     options   JSON object, or NULL: variables of the template. Defaults come from option "chat-template-kwargs".
 *               "add_generation_prompt": true (the default) begins the model's answer.
 *               "enable_thinking" is known to many templates.
 *               "tool_choice": "auto", "none", "required" or {"type": "function", "function": {"name": ...}}, as in
 *               OpenAI's API. With "none" the template gets no tools.
 *               "parallel_tool_calls": as in OpenAI's API.
 *               "continue_final_message": true ends the text where the last message ends. That message is the
 *               assistant's, and the model continues it.
 *
 * Use pi_request_prompt_chat to submit a conversation; it also constrains tool calls. Use pi_chat_render to see the
 * text and pi_chat_tokenize to count tokens. Submit the full conversation at every turn: the cache makes the repeated
 * part cheap. A pi_chat_parser splits the answer into thoughts, content and tool calls; see ANSWER PARSING.
 *
 * All functions are thread-safe on an engine. Rendering needs 1 MiB of stack. */

/* Renders a conversation as text, without a final NUL. The text is meant for pi_request_prompt_text, which adds the
 * BOS; a BOS written by the template is left out. Caveat: the text of a control token within a message ("<|im_end|>")
 * becomes that token there; pi_request_prompt_chat avoids this. Returns the number of bytes, which may exceed cap
 * (then cap were written). Errors: PI_EINVAL (invalid JSON; the template failed or refused, err quotes it),
 * PI_EUNSUPPORTED (no template; content that is neither text nor image), PI_ETOOBIG (too deep, too long), PI_ENOMEM.
 * An image is the template's text for it, or <__media__>. Thread-safe. Needs 1 MiB of stack. */
PI_API int64_t pi_chat_render(const pi_engine *e, const char *messages, const char *tools, const char *options,
                              char *out, size_t cap, pi_error *err);
/* Like pi_chat_render, with a work budget; w NULL = no limit. Also returns the codes of WORK BUDGETS. */
PI_API int64_t pi_work_chat_render(pi_work *w, const pi_engine *e, const char *messages, const char *tools,
                                   const char *options, char *out, size_t cap, pi_error *err);
/* Tokenizes a conversation exactly as pi_request_prompt_chat does; text in messages never becomes a control token.
 * Image i, counted from 0, is the id -1 - i; pi_image_tokens gives its number of tokens. Returns the number of ids,
 * which may exceed cap (then cap were written). Errors: as for pi_chat_render. Thread-safe. Needs 1 MiB of stack. */
PI_API int64_t pi_chat_tokenize(const pi_engine *e, const char *messages, const char *tools, const char *options,
                                int32_t *out, size_t cap, pi_error *err);
/* Like pi_chat_tokenize, with a work budget; w NULL = no limit. Also returns the codes of WORK BUDGETS. */
PI_API int64_t pi_work_chat_tokenize(pi_work *w, const pi_engine *e, const char *messages, const char *tools,
                                     const char *options, int32_t *out, size_t cap, pi_error *err);

/* FILL IN THE MIDDLE. pi_infill builds the prompt for text between a prefix and a suffix. The model's vocabulary
 * needs tokens for it (Qwen Coder, StarCoder, DeepSeek Coder and others). Texts are any bytes. They never become
 * control tokens, except in `typed`. The prompt is
 *
 *     [REP] repo [SEP] name of a file, its text ... [SEP] name [BOS] [PRE] prefix typed [SUF] suffix [MID]
 *
 * without the tokens that the vocabulary lacks. A prompt longer than max_tokens is cut. The suffix loses its end and
 * the prefix its beginning, so that three quarters of the space are left for the prefix. The files lose their
 * beginning. */

/* A context file. No size field: the caller allocates an array of them, and the layout is fixed. */
typedef struct pi_infill_file {
    const char *name; /* name in the prompt; NULL = "tmp" */
    const char *text; /* contents */
    size_t len;       /* bytes of text */
} pi_infill_file;
/* Input of pi_infill. No size field: the caller allocates it, and the layout is fixed; begin with zeros. */
typedef struct pi_infill_parts {
    const char *prefix, *suffix, *typed;       /* texts; typed: the user's beginning of the middle; NULL = empty */
    size_t prefix_len, suffix_len, typed_len;  /* bytes of each */
    const pi_infill_file *files;               /* [n_files] other files, the most important one last */
    size_t n_files;                            /* entries of files; 0 = no files */
    const char *repo, *name;                   /* repository and file name; NULL = "myproject", "filename" */
    size_t max_tokens;                         /* maximum tokens of the prompt; 0 = no limit */
    int suffix_first;                          /* nonzero = [SUF] suffix [PRE] prefix typed [MID] */
} pi_infill_parts;
/* Writes the token ids of a fill-in-the-middle prompt, for pi_request_prompt_tokens. Returns the number of ids, which
 * may exceed cap (then cap were written). Errors: PI_EUNSUPPORTED (the vocabulary lacks the tokens), PI_EINVAL
 * (`typed` alone exceeds max_tokens), PI_ENOMEM. Thread-safe. */
PI_API int64_t pi_infill(const pi_engine *e, const pi_infill_parts *in, int32_t *out, size_t cap, pi_error *err);
/* Like pi_infill, with a work budget; w NULL = no limit. Also returns the codes of WORK BUDGETS. */
PI_API int64_t pi_work_infill(pi_work *w, const pi_engine *e, const pi_infill_parts *in, int32_t *out, size_t cap,
                              pi_error *err);

/* A vocabulary without an engine; opaque. Any number of threads may use one. */
typedef struct pi_vocab pi_vocab;
/* Loads the vocabulary of a GGUF, which may contain nothing else. Returns PI_OK and the vocabulary in *out, which the
 * caller frees with pi_vocab_free; on failure *out is NULL. Errors: PI_EINVAL, PI_ENOENT, PI_EIO, PI_EFORMAT,
 * PI_EUNSUPPORTED, PI_ENOMEM. Thread-safe. */
PI_API int pi_vocab_open(pi_vocab **out, const char *path, pi_error *err);
/* Tokenizes text with a vocabulary; arguments and return value as for pi_tokenize. Thread-safe. */
PI_API int64_t pi_vocab_tokenize(const pi_vocab *v, const char *text, size_t len, int flags, int32_t *out, size_t cap);
/* Writes the text of n tokens; arguments and return value as for pi_detokenize. Thread-safe. */
PI_API int64_t pi_vocab_detokenize(const pi_vocab *v, const int32_t *ids, size_t n, int flags, char *out, size_t cap);
/* Frees a vocabulary; NULL is allowed. */
PI_API void pi_vocab_free(pi_vocab *v);

/* -------------------------------------------------------------------------------------------------------- requests
 *
 * REQUESTS AND PROMPTS. A request is one prompt and one or several answers. The order of calls is pi_request_new,
 * pi_request_set for options, one pi_request_prompt_* function, pi_request_submit, events or pi_request_wait, and
 * pi_request_free. A request is submitted once.
 *
 * The prompt always contains all tokens, including the ones that the cache has; see CACHE. The caller may set
 * options, prompt and callbacks in any order before submit. After submit only pi_request_cancel, pi_request_set_user
 * and the reading functions have an effect.
 *
 * The engine runs as many requests at the same time as options "parallel" and the cache allow; others wait in a queue
 * ("max-queue"). A request that needs blocks may be preempted: it returns to the queue and resumes later with the
 * same tokens. */

/* A prompt and its answers; opaque. */
typedef struct pi_request pi_request;

/* Reason for the end of an answer. */
enum {
    PI_FINISH_NONE = 0,   /* still running */
    PI_FINISH_STOP = 1,   /* an end-of-generation token, a stop token or a stop string */
    PI_FINISH_LENGTH = 2, /* max-tokens or the end of the context */
    PI_FINISH_CANCEL = 3, /* pi_request_cancel */
    PI_FINISH_ERROR = 4,  /* an error: see pi_result.code */
    PI_FINISH_TOOL_CALLS = 5, /* only from pi_chat_parser_end: PI_FINISH_STOP with at least one call */
};

/* Outcome and counts of a request or of one answer; final once the answer has ended. Size-versioned: the caller sets
 * `size`. Strings live as long as the request. */
typedef struct pi_result {
    uint32_t size;              /* sizeof(pi_result) */
    int code;                   /* PI_OK, or the code of the failure */
    int finish_reason;          /* PI_FINISH_* */
    uint32_t prompt_tokens;     /* tokens of the prompt */
    uint32_t cached_tokens;     /* prompt tokens taken from the cache */
    uint32_t generated_tokens;  /* tokens sampled */
    uint32_t n_preempted;       /* times it lost its blocks and resumed */
    const char *miss_reason;    /* why the cache did not cover more of the prompt; "" = it covered all it could */
    double queue_ms;            /* from submit to the first step */
    double prefill_ms;          /* from the first step to the first token */
    double decode_ms;           /* from the first token to the last */
    const char *stop;           /* stop string that ended the answer, or "" */
    char msg[240];              /* text of the failure, or "" */
    uint32_t n_drafted;         /* draft tokens verified */
    uint32_t n_accepted;        /* draft tokens accepted; these needed no step of their own */
} pi_result;

/* Creates a request with the engine's default options. Returns NULL if out of memory or if e is NULL. The caller
 * frees it with pi_request_free, before the engine is closed. Thread-safe. */
PI_API pi_request *pi_request_new(pi_engine *e);

/* SAMPLING. Options "temp", "top-k", "top-p", "min-p", penalties, "samplers" and others select the next token. With
 * "temp" 0 the most likely token is picked. "seed" fixes the random numbers; -1 draws a new seed for each submit.
 * "logprobs" reports probabilities of tokens and alternatives; see pi_token_prob.
 *
 * SAMPLES. Option "n" (1 to 64) generates several answers to one prompt at the same time, the samples 0 to n - 1.
 * Sample 0 computes the prompt and the others reuse its cache blocks. With option "cache" off they do so too, but no
 * other request finds these blocks. With the engine's "prefix-cache" off, each sample computes the prompt.
 *
 * Sample i draws with seed + i: its answer equals the one of a separate request with that seed. Each sample has its
 * own events, which carry its index, ends on its own, and counts as one request in the queue. */

/* STRUCTURED OUTPUT. Options "json-schema", "grammar" (GBNF), "regex" and "choice" constrain the answer; set at most
 * one of them. Only tokens that can still lead to a valid text are sampled, and the answer ends only where the text
 * is valid. If the text is complete and nothing can follow, the answer ends, even with "ignore-eos" or "min-tokens".
 *
 * The constraint is compiled at submit. Errors are PI_EINVAL, with line, column and reason, and PI_EUNSUPPORTED, with
 * the unsupported keyword. The engine keeps the compiled grammar for later requests with the same text. A constraint
 * with too many open alternatives ends the request with PI_EUNSUPPORTED. Repetition counts have no upper limit.
 *
 * With "grammar-trigger" (a JSON array of texts and control tokens), the answer is free until one of them appears;
 * the constraint covers the text after it. Control tokens are part of a constraint only by name (<|im_end|> in GBNF).
 * Log-probabilities cover the tokens that the constraint allows.
 *
 * JSON may contain white space of one space, or of two line ends and 20 spaces or tabs. Properties of a schema appear
 * in its order; other properties appear only with additionalProperties or patternProperties. docs/STRUCTURED.md lists
 * supported keywords of JSON Schema.
 *
 * Memory, in addition to the plan: the first constraint builds a trie of the vocabulary (20 to 60 MB for Gemma 3's
 * 262,144 tokens). Each of the last 64 constraints, and each one in use, takes at most 30 MB, allocated in pages as
 * its states are reached. */

/* Sets a request option ("max-tokens", "temp", "stop", ...); pi_options_describe lists keys and ranges. Values of
 * list options like "stop" and "logit-bias" accumulate; an empty value clears the list. Returns PI_OK, PI_ENOMEM, or
 * PI_EINVAL: unknown key, value outside its range, an engine option, or the request was submitted. One thread per
 * request. The strings are copied. */
PI_API int pi_request_set(pi_request *r, const char *key, const char *value, pi_error *err);
/* Sets the work budget of pi_request_prompt_* and pi_request_submit for this request; NULL = no limit. The caller
 * keeps ownership of w, which must stay valid until submit. The budget has no effect on the running request. One
 * thread per request. */
PI_API void pi_request_set_work(pi_request *r, pi_work *w);
/* IMAGES. A prompt can contain images if option "mmproj" names the vision model of the text model, a GGUF of its own.
 * Without it every call for images fails with PI_EUNSUPPORTED. pi_info.modalities says which inputs an engine reads.
 *
 * Pass the pixels of each image to pi_request_image, in order, and set the prompt afterwards. In a conversation a
 * content part {"type": "image"} stands for the next image of the request, in messages of any role. In a prompt of ids
 * the id -1 - i stands for image i. Every image must appear exactly once. Text is never an image, not even
 * "<|image_pad|>" or another text that templates write for images.
 *
 * The vision model turns an image into some tokens, which take part in the context, in counts and in the cache like
 * text tokens. Their number depends on the image's size, the model, and the budget: options "image-min-tokens" and
 * "image-max-tokens", or the fields of pi_image. pi_image_tokens computes it from the sizes alone. Programs can so
 * refuse an image before they decode its file.
 *
 * Prefixes with images are cached. Two images are equal for the cache if their source bytes, sizes and budgets are; an
 * image that is in the cache is not computed again. The library decodes no files: use libpng, libjpeg or others, and
 * apply the EXIF orientation first. */

/* One image as pixels. Size-versioned: the caller sets `size`. */
typedef struct pi_image {
    uint32_t size;          /* sizeof(pi_image) */
    uint32_t width, height; /* pixels, at least 1 */
    const uint8_t *rgb;     /* [height, width, 3] red, green, blue; rows from top to bottom */
    const void *source;     /* the encoded file, which identifies the image in the cache; NULL = the pixels do */
    size_t source_len;      /* bytes of source */
    uint32_t min_tokens;    /* minimum tokens of the image; 0 = option image-min-tokens */
    uint32_t max_tokens;    /* maximum tokens of the image; 0 = option image-max-tokens */
} pi_image;
/* Adds an image to the request: number 0, 1, 2 and so on. Call it before the prompt is set. Returns PI_OK,
 * PI_EUNSUPPORTED (the engine reads no images), PI_EINVAL (sizes or budget; the prompt is set; already submitted),
 * PI_ETOOBIG (more than 1,024 images, or an image with more tokens than the context) or PI_ENOMEM. One thread per
 * request. Pixels are copied; source is only hashed. */
PI_API int pi_request_image(pi_request *r, const pi_image *image, pi_error *err);
/* Computes the number of prompt tokens of an image with this width and height in *n, with the tokens that begin and
 * end it. min_tokens and max_tokens: as in pi_image; 0 = the engine's options. Returns PI_OK, PI_EUNSUPPORTED or
 * PI_EINVAL. Thread-safe. */
PI_API int pi_image_tokens(const pi_engine *e, uint32_t width, uint32_t height, uint32_t min_tokens,
                           uint32_t max_tokens, uint32_t *n, pi_error *err);

/* Sets n token ids as the prompt; replaces an earlier prompt. The ids are used unchanged and copied, except that the
 * id -1 - i becomes image i. Returns PI_OK, PI_EINVAL (empty; an id outside the vocabulary; the images are not those
 * of the request; already submitted), PI_ETOOBIG or PI_ENOMEM. One thread per request. */
PI_API int pi_request_prompt_tokens(pi_request *r, const int32_t *ids, size_t n, pi_error *err);
/* Sets text as the prompt, tokenized as with PI_TOK_BOS and PI_TOK_SPECIAL; replaces an earlier prompt. Returns
 * PI_OK, PI_EINVAL (empty; already submitted), PI_ETOOBIG, PI_ENOMEM, or a code of the work budget. One thread per
 * request. */
PI_API int pi_request_prompt_text(pi_request *r, const char *text, size_t len, pi_error *err);
/* Sets a query and a document as the prompt of a reranker, for option "pooling" = rank. The score says how well the
 * document answers the query. The prompt follows the model's template "rerank", or else is [BOS] query [EOS] [SEP]
 * document [EOS] with the tokens that the metadata asks for. Text in query and document never becomes a control
 * token. Returns PI_OK, PI_EUNSUPPORTED (the model has neither template nor tokens for pairs), PI_EINVAL, PI_ETOOBIG,
 * PI_ENOMEM, or a code of the work budget. One thread per request. */
PI_API int pi_request_prompt_rank(pi_request *r, const char *query, size_t query_len, const char *document,
                                  size_t document_len, pi_error *err);
/* TOOL CALLS. For pi_request_prompt_chat with tools. Some templates have no place for tools, or a call format unknown
 * to this library. They get the tools described in the system message, with calls as JSON between <tool_call> tags.
 * Past calls and results without a place in the template become text.
 *
 * With tools, a grammar constrains the calls of the answer. If "tool_choice" requires a call, the answer is a call
 * from the start, or after thoughts; a named function requires exactly one call. Otherwise the answer is free until a
 * call begins, outside of thoughts, with the tag of the format. The call has the name of a tool and arguments by its
 * schema, and only further calls may follow. Not constrained are Llama's calls as bare JSON, calls without the tag,
 * and all calls if a schema has a keyword that no grammar supports.
 *
 * An option of STRUCTURED OUTPUT constrains the content of the answer. Calls may come instead of the
 * content, and must if one is required. Thoughts may come first if the prompt opened them, or if the template has
 * tags for them and neither "enable_thinking" nor "thinking" is false. With "grammar-trigger" only the constraint
 * counts. */

/* Sets a conversation as the prompt; arguments and errors as for pi_chat_render. Only the template's own text becomes
 * control tokens, and so do tokens that the template uses as markup ("<think>"). Text in messages, tools and options
 * stays text. Without control tokens in them, the ids equal the ones of pi_chat_render and pi_request_prompt_text.
 * Tools and options for structured output constrain the answer; see TOOL CALLS. PI_EUNSUPPORTED also means that a
 * call is required but a schema has a keyword that no grammar supports, or that the template drops an image. PI_EINVAL
 * also means that the messages do not have as many images as the request. Needs 1 MiB of stack. The strings are
 * copied. One thread per request. */
PI_API int pi_request_prompt_chat(pi_request *r, const char *messages, const char *tools, const char *options,
                                  pi_error *err);

/* An event of a request; see EVENTS AND POLLING. */
typedef struct pi_event pi_event;
/* Receives one event. The engine's dispatch thread calls it, one call at a time, and releases the event afterwards.
 * The function may call everything except pi_engine_close, pi_engine_drain and pi_request_wait. It may free the
 * request in the last event (PI_EVENT_DONE with n_left 0). */
typedef void (*pi_event_fn)(void *ud, const pi_event *ev);
/* Sends this request's events to fn instead of pi_poll; fn NULL = pi_poll. No effect after submit. fn and ud must
 * stay valid until pi_request_free returns. One thread per request. */
PI_API void pi_request_on_event(pi_request *r, pi_event_fn fn, void *ud);

/* Receives one row of logits, for evaluation tools. `pos` is the index in prompt + answer of the token before the one
 * that the row predicts. The row has n_vocab floats, valid during the call. The STEP thread calls it, and every
 * request waits for it to return. It must not call the library. */
typedef void (*pi_logits_fn)(void *ud, uint32_t pos, const float *logits, size_t n_vocab);
/* Registers fn for rows of logits; NULL = none. Option "logits" selects the rows: "none", "last" (of the prompt),
 * "all" (of the prompt; with "logits-from", from that position on) or "generated" (the last of the prompt and one per
 * generated token). With several samples only sample 0 gives rows. No effect after submit. fn and ud must stay valid
 * until pi_request_free returns. One thread per request. */
PI_API void pi_request_on_logits(pi_request *r, pi_logits_fn fn, void *ud);

/* Validates the request and queues it, with all of its samples or none. Returns PI_OK, or an error: PI_ETOOBIG (err
 * names the number that fits), PI_EBUSY (the queue is full), PI_ENOENT (no adapter of that name), PI_EINVAL (options,
 * prompt, or submitted before). Also PI_ECLOSED, PI_EUNSUPPORTED, PI_ENOMEM and the codes of the work budget. After
 * an error the request is still unsubmitted. Does not wait for the answer. A callback may run before this function
 * returns. One thread per request. */
PI_API int pi_request_submit(pi_request *r, pi_error *err);
/* Cancels a request. Each running sample ends with its PI_EVENT_DONE, soon after. No effect before submit and after
 * the end; NULL is allowed. Thread-safe. */
PI_API void pi_request_cancel(pi_request *r);
/* Waits until all samples have ended. Returns PI_OK, PI_ETIMEDOUT after timeout_ms (-1 = no limit, 0 = test only), or
 * PI_EINVAL (not submitted). Thread-safe, but not from a callback. */
PI_API int pi_request_wait(pi_request *r, int timeout_ms);
/* Fills *out with the outcome of a request. Returns PI_OK if it has ended, PI_EBUSY with the counts so far if it
 * runs, or PI_EINVAL (not submitted). With several samples: prompt_tokens, cached_tokens and miss_reason are sample
 * 0's. The code and finish_reason are from the first failed sample, or else from sample 0. Other counts are sums.
 * Times run from submit to the first start, the first token and the last token of any sample. Thread-safe. */
PI_API int pi_request_result(const pi_request *r, pi_result *out);
/* Copies the tokens of sample 0 so far. Returns their number and writes at most cap. Thread-safe. */
PI_API size_t pi_request_tokens(const pi_request *r, int32_t *out, size_t cap);
/* Fills *out with the outcome of one sample. Returns PI_OK if it has ended, PI_EBUSY if it runs, or PI_EINVAL
 * (unknown sample, or not submitted). Thread-safe. */
PI_API int pi_request_sample(const pi_request *r, uint32_t index, pi_result *out);
/* Copies the tokens of one sample so far. Returns their number and writes at most cap; 0 for an unknown sample.
 * Thread-safe. */
PI_API size_t pi_request_sample_tokens(const pi_request *r, uint32_t index, int32_t *out, size_t cap);
/* Cancels a running request and frees it as soon as the engine no longer uses it. Events that neither pi_poll nor a
 * callback has taken are dropped: to see all events, free after the last PI_EVENT_DONE or in its callback. Events
 * taken from pi_poll stay valid until they are released. When this function returns, no callback of r runs or will
 * run, except the one that called it. NULL is allowed. */
PI_API void pi_request_free(pi_request *r);

/* ---------------------------------------------------------------------------------------------------------- events
 *
 * EVENTS AND POLLING. Events report the progress of submitted requests. By default they go into one queue per engine.
 * pi_poll takes them from the queue, and pi_event_release frees each one. A request with pi_request_on_event gets its
 * events by callback instead, and needs no release.
 *
 * Events of one sample arrive in order; the last one is PI_EVENT_DONE. New text is merged into a sample's waiting
 * event, so a slow reader loses nothing and the queue stays short. pi_poll_fd gives a descriptor for event loops.
 *
 * Any number of threads may poll one engine; each event goes to one of them. An event and all memory it points to
 * belong to the library until pi_event_release. */

/* Kind of an event. */
enum {
    PI_EVENT_TEXT = 1, /* tokens were generated; the text may be empty while a UTF-8 sequence is incomplete */
    PI_EVENT_DONE = 2, /* the last event of a sample; it may carry the rest of the text */
    PI_EVENT_PROMPT = 3, /* option "prompt-logprobs": log-probabilities of prompt tokens (all except the first, or the
                          * ones after "logits-from"). One event, before any text of sample 0. No event if the prompt
                          * has no tokens to report, or if the request ends before. The reported tokens are computed,
                          * not taken from the cache. Tokens of images have -INFINITY and no alternatives */
    PI_EVENT_EMBEDDING = 4, /* option "pooling": vectors or scores of the prompt. One event, before PI_EVENT_DONE */
    PI_EVENT_PROGRESS = 5, /* option "prompt-progress": the prompt is being computed. One event after each step with a
                            * part of it, before any text of sample 0; events that wait in the queue are merged into
                            * one. After a preemption the counts begin again */
};

/* Probability of one token. No size field: events contain arrays of it, and its layout is fixed. */
typedef struct pi_token_prob {
    int32_t id;    /* token */
    float logprob; /* natural logarithm of its probability, before temperature and filters (see "logprobs-mode") */
} pi_token_prob;

/* An event. Only the library allocates it, so fields can be appended; `size` says how many bytes are valid. */
struct pi_event {
    uint32_t size;                 /* bytes of this struct that the library filled */
    int kind;                      /* PI_EVENT_* */
    pi_request *request;           /* the request it belongs to */
    void *user;                    /* pointer from pi_request_set_user */
    const char *text;              /* complete UTF-8 characters, NUL terminated; may contain NULs */
    size_t text_len;               /* bytes of text, without the final NUL */
    const int32_t *tokens;         /* [n_tokens] token ids of this event */
    size_t n_tokens;               /* number of tokens */
    const pi_token_prob *logprobs; /* [n_tokens][n_logprobs]: the token itself first, then the most likely ones */
    size_t n_logprobs;             /* 1 + option "logprobs" or "prompt-logprobs"; 0 = not requested */
    int finish_reason;             /* PI_EVENT_DONE: PI_FINISH_* */
    int code;                      /* PI_EVENT_DONE: PI_OK, PI_ECANCELED or the failure; pi_result.msg has the text */
    uint32_t index;                /* sample number; 0 unless option "n" is above 1 */
    uint32_t n_left;               /* PI_EVENT_DONE: samples still running; 0 = the request's last event */
    const float *embedding;        /* PI_EVENT_EMBEDDING: [n_embeddings][n_embd] values */
    size_t n_embd;                 /* values per vector: the model's n_embd, or option "dimensions"; with pooling rank
                                    * the number of scores, n_labels of pi_info */
    size_t n_embeddings;           /* 1; with pooling none the number of prompt tokens */
    bool calls_bound;              /* PI_EVENT_TEXT: the grammar of tool calls constrained the last token and
                                    * constrains the following ones; see pi_chat_parser_bind */
    uint32_t n_prompt;             /* PI_EVENT_PROGRESS: tokens of the prompt */
    uint32_t n_cached;             /* PI_EVENT_PROGRESS: prompt tokens taken from the cache */
    uint32_t n_computed;           /* PI_EVENT_PROGRESS: prompt tokens ready so far, including the cached ones */
    double prompt_ms;              /* PI_EVENT_PROGRESS: time since the request's first step */
};

/* Sets a pointer that later events of the request carry. NULL at first. Thread-safe; the library never uses it. */
PI_API void pi_request_set_user(pi_request *r, void *user);
/* Takes up to cap events from the engine's queue, in order, and stores pointers to them in buf. Waits for the first
 * one up to timeout_ms (0 = does not wait, -1 = no limit). Returns the number of events. 0 means a timeout, or that
 * no unfinished request without a callback is left; with a time limit, count the last events to tell them apart.
 * Returns PI_EINVAL for a NULL pointer or cap 0. The caller releases each event. Thread-safe. */
PI_API int pi_poll(pi_engine *e, pi_event **buf, size_t cap, int timeout_ms);
/* Returns a descriptor that is readable while pi_poll has events, or PI_EINVAL. The engine owns it: do not read or
 * close it, and remove it from the event loop before pi_engine_close. Requests with a callback do not make it
 * readable. Thread-safe. */
PI_API int pi_poll_fd(const pi_engine *e);
/* Frees an event from pi_poll. NULL is allowed. No effect on an event passed to a callback. Thread-safe. */
PI_API void pi_event_release(pi_event *ev);

/* --------------------------------------------------------------------------------------------------------- answers
 *
 * ANSWER PARSING. A chat parser splits an answer to a conversation into thoughts, content and tool calls while the
 * text streams in. Create one per answer, feed it the text of each event, and read deltas:
 *
 *     pi_chat_parser *p;  pi_chat_parser_new(&p, e, tools, options, &err);
 *     for each event:  pi_chat_parser_feed(p, ev->text, ev->text_len);
 *                      if (ev->calls_bound) pi_chat_parser_bind(p);
 *                      pi_chat_delta d = {sizeof d};  while (pi_chat_parser_next(p, &d)) ...
 *     pi_chat_parser_end(p, finish_reason), and deltas once more
 *
 * Set the request's option "special": tags of thoughts and calls may be control tokens, which events print only then.
 *
 * The model's chat template implies the format: Qwen 3.5 and 3 Coder, Hermes and Qwen 2.5 and 3, Gemma 4, DeepSeek
 * R1, V3.1, V3.2, V4 and V4.1, Llama 3 and 4, LFM2, Mistral, Command R7B, Nemotron Nano v2, Apriel, Granite 3, GLM,
 * MiniMax M2, Kimi K2 and K3, Seed, gpt-oss, and functions in tags in general. Other templates get the format of
 * pi_request_prompt_chat.
 *
 * A call counts if it is complete, has the name of a tool, and has a JSON object as arguments. Other text, including
 * markup, is content. Without calls and thoughts, the content is the fed text, byte for byte. The result does not
 * depend on how the text was cut. Dropped are white space around thoughts, line breaks before calls, headers and ends
 * of gpt-oss's messages, tags around the content, and messages to tools outside the request. A call within thoughts
 * is part of them, unless the answer ends after it without the closing tag of the thoughts.
 *
 * A parser belongs to one thread at a time. Free it before its engine is closed. */

/* A parser for one answer; opaque. */
typedef struct pi_chat_parser pi_chat_parser;

/* Kind of a delta. */
enum {
    PI_CHAT_CONTENT = 1,      /* text: more content */
    PI_CHAT_REASONING = 2,    /* text: more thoughts */
    PI_CHAT_CALL = 3,         /* call number `index` begins; id and name are set */
    PI_CHAT_ARGUMENTS = 4,    /* text: more arguments of the call; all pieces together begin a JSON object */
    PI_CHAT_CALL_END = 5,     /* the call is complete */
    PI_CHAT_CALL_DROPPED = 6, /* the call is not valid: discard it; its text follows as content. For a call that is
                               * `sure`, only if the answer was cut off */
};
/* A new piece of an answer. Size-versioned: the caller sets `size`. Strings belong to the parser until the next
 * feed. */
typedef struct pi_chat_delta {
    uint32_t size;    /* sizeof(pi_chat_delta) */
    int kind;         /* PI_CHAT_* */
    const char *text; /* text_len bytes, or "" */
    size_t text_len;  /* bytes */
    uint32_t index;   /* call number, from 0; the number of a dropped call is not used again */
    const char *id;   /* id of the call, generated unless the model gives one: "call_...", 9 letters for Mistral */
    const char *name; /* function name of the call */
    bool sure;        /* calls: a grammar ensures that the call completes, unless the answer is cut off (for
                       * example by max-tokens). A sure call may be shown while it grows; any other call only
                       * when it is complete */
} pi_chat_delta;

/* A complete call. Size-versioned: the caller sets `size`. Strings belong to the parser until the next feed. */
typedef struct pi_chat_call {
    uint32_t size;         /* sizeof(pi_chat_call) */
    uint32_t index;        /* call number, as in deltas */
    const char *id, *name; /* id and function name, as in deltas */
    const char *arguments; /* a JSON object as text, NUL terminated */
    size_t arguments_len;  /* bytes of arguments */
} pi_chat_call;

/* Creates a parser. tools and options are the ones of pi_request_prompt_chat. They give the types of arguments,
 * whether calls are possible, and whether the prompt ends within thoughts. Two more options: "parse_reasoning": false
 * leaves thoughts in the content; "answer_format": true says that a constraint covers the content, so calls come
 * first or not at all. Returns PI_OK and the parser in *out, which the caller frees; on failure *out is NULL. Errors:
 * PI_EINVAL, PI_EUNSUPPORTED (no chat template), PI_ETOOBIG, PI_ENOMEM. Thread-safe. Needs 1 MiB of stack. */
PI_API int pi_chat_parser_new(pi_chat_parser **out, const pi_engine *e, const char *tools, const char *options,
                              pi_error *err);
/* Frees a parser and all strings it returned; NULL is allowed. */
PI_API void pi_chat_parser_free(pi_chat_parser *p);
/* Feeds the next piece of the answer as text. Returns PI_OK, PI_EINVAL, or PI_ENOMEM: then the answer is lost. One
 * thread at a time. The text is copied. */
PI_API int pi_chat_parser_feed(pi_chat_parser *p, const char *text, size_t len);
/* Feeds the next piece of the answer as tokens. Their text includes control tokens, except end-of-generation tokens.
 * Stop strings are not checked. Return value as for pi_chat_parser_feed. One thread at a time. */
PI_API int pi_chat_parser_feed_tokens(pi_chat_parser *p, const int32_t *ids, size_t n);
/* Tells the parser that a grammar constrains the open call and all later ones: they become `sure`, except an open call
 * with a PI_CHAT_CALL delta that was read already. Call it after the text of an event with calls_bound. NULL is
 * allowed. One thread at a time. */
PI_API void pi_chat_parser_bind(pi_chat_parser *p);
/* Ends the answer; feed nothing afterwards. `finish` is its PI_FINISH_*; pass PI_FINISH_LENGTH if a stop string ended
 * it. Any value except PI_FINISH_STOP means that the answer was cut off: an incomplete call or tag is then dropped
 * and is not content. Returns PI_FINISH_TOOL_CALLS if finish is PI_FINISH_STOP and at least one call is complete,
 * otherwise finish. Errors: PI_EINVAL, PI_ENOMEM. One thread at a time. */
PI_API int pi_chat_parser_end(pi_chat_parser *p, int finish);
/* Returns true and fills *out with the next delta, or returns false if there is none yet. The strings are valid until
 * the next feed. One thread at a time. */
PI_API bool pi_chat_parser_next(pi_chat_parser *p, pi_chat_delta *out);
/* Returns the length of the content so far, in bytes, and its text in *text. The text is not NUL terminated and is
 * valid until the next feed; text NULL = only the length. One thread at a time. */
PI_API size_t pi_chat_parser_content(const pi_chat_parser *p, const char **text);
/* Returns the length and text of the thoughts so far, as pi_chat_parser_content does for the content. */
PI_API size_t pi_chat_parser_reasoning(const pi_chat_parser *p, const char **text);
/* Fills *out with complete call number i, counted from 0. Returns PI_OK, PI_ENOENT past the last call, or PI_EINVAL.
 * The strings are valid until the next feed. One thread at a time. */
PI_API int pi_chat_parser_call(const pi_chat_parser *p, uint32_t i, pi_chat_call *out);

/* ----------------------------------------------------------------------------------------------------- model files
 *
 * MODEL FILES. These functions read and convert GGUF files without an engine. They run on the calling thread and pass
 * their output to a function, one line per call. They are thread-safe. */

/* Receives one line without a newline, valid during the call. */
typedef void (*pi_line_fn)(void *ud, const char *line);
/* Prints metadata of a GGUF, all splits included, as readable lines, one item each. tensors true = its tensors too.
 * Returns PI_OK, PI_EINVAL, PI_ENOENT, PI_EIO, PI_EFORMAT or PI_ENOMEM. Thread-safe. */
PI_API int pi_model_inspect(const char *path, bool tensors, pi_line_fn fn, void *ud, pi_error *err);
/* Flags of pi_model_json. The output has these lines, in this order:
 *     {"file": "m.gguf", "version": 3, "alignment": 32, "bytes": N, "files": 1, "kind": "model"}
 *         kind: "model", "model with a draft head", "drafter" (for option "model-draft"), "vocabulary"
 *     {"key": "general.name", "type": "str", "value": "Gemma"}, for each entry. An array also has "length".
 *         "cut": true = value has only the first elements, as for more than 64 elements without PI_JSON_ALL
 *     {"tensors": 236, "parameters": N, "bytes": N, "types": {"Q4_K": {"tensors": N, "parameters": N,
 *         "bytes": N}, ...}}
 *     {"tensor": "blk.0.attn_k.weight", "type": "Q5_0", "shape": [640, 256], "bytes": N, "file": 0,
 *         "offset": N}, for each tensor
 * Bytes that are not UTF-8 become U+FFFD; numbers that are not finite become null. */
enum { PI_JSON_TENSORS = 1 /* list tensors */, PI_JSON_ALL = 2 /* print arrays in full */ };
/* Prints a GGUF's contents for programs: each line is a JSON object. Errors: as for pi_model_inspect. Thread-safe. */
PI_API int pi_model_json(const char *path, int flags, pi_line_fn fn, void *ud, pi_error *err);

/* Rewrites a GGUF with its matrices in another format. `type` is a file type: a mixture of llama-quantize ("Q4_K_M").
 * options are "key=value" strings, terminated by NULL; NULL = no options:
 *     pure=1                    use one format for all matrices, no mixture
 *     output-tensor-type=TYPE   format of output.weight ("Q6_K")
 *     token-embedding-type=TYPE format of token_embd.weight
 *     tensor-type=REGEX=TYPE    format of matrices with a matching name; repeatable, the first match decides
 *
 *     leave-output-tensor=1     keep output.weight unchanged
 *     allow-requantize=1        accept quantized input; it loses more than F16, BF16 or F32 input
 *     imatrix=FILE              importance of the columns, as written by llama-imatrix (GGUF)
 *     include-weights=NAME      apply the imatrix only to tensors with NAME in their name; repeatable
 *     exclude-weights=NAME      do not apply it to them; repeatable, not with include-weights
 *
 *     override-kv=KEY=TYPE:VALUE  set metadata of the output, TYPE int, float, bool or str; repeatable
 *     prune-layers=N,N...       remove layers; later layers are renumbered
 *     dry-run=1                 report types and sizes and write nothing; out may be NULL
 *     threads=N                 0 = all cores; the result does not depend on N
 *
 * progress gets one line per tensor, on the calling thread; NULL = none. The file `out` appears when complete, or not
 * at all. Returns PI_OK, PI_EIO (disk full), PI_EINVAL (option; quantized input), PI_EFORMAT, PI_EUNSUPPORTED,
 * PI_ENOENT or PI_ENOMEM. Thread-safe. */
PI_API int pi_quantize(const char *in, const char *out, const char *type, const char *const *options,
                       pi_line_fn progress, void *ud, pi_error *err);
/* Returns the name of type number i of pi_quantize, or NULL past the last. "COPY" changes no tensor. The string is
 * static. Thread-safe. */
PI_API const char *pi_quantize_type(size_t i);

/* A type of pi_quantize. Size-versioned: the caller sets `size`. Strings are static. */
typedef struct pi_quantize_info {
    uint32_t size;        /* sizeof(pi_quantize_info) */
    int32_t number;       /* general.file_type; pi_quantize also accepts it as a name ("15"). -1 = no number */
    const char *name;     /* "Q4_K_M" */
    const char *matrices; /* format of most matrices, "Q4_K"; "" = unchanged */
    double bits;          /* bits per weight in that format */
} pi_quantize_info;
/* Describes type number i of pi_quantize. Returns PI_OK, PI_ENOENT past the last, or PI_EINVAL. Thread-safe. */
PI_API int pi_quantize_describe(size_t i, pi_quantize_info *out);

/* ------------------------------------------------------------------------------------------------------- measuring
 *
 * MEASURING. pi_bench_op times one op without a model. pi_engine_profile splits the step time of a running engine by
 * op. pi_selftest checks that a device computes correctly. All report to a function on the calling thread. */

/* Time of one op on its own, for all layers of a model. Only the library allocates it, so fields can be appended. */
typedef struct pi_op_time {
    uint32_t size;      /* sizeof(pi_op_time) in the library */
    const char *what;   /* "decode": one token of each sequence; "prompt"; "save", "load": a snapshot of one sequence;
                         * "read", "integers", "floats": a rate */
    uint32_t n_seqs;    /* sequences in the batch */
    uint32_t n_tokens;  /* tokens per sequence */
    double ns;          /* median over some rounds; for a rate the fastest round */
    uint64_t bytes;     /* memory that the op has to read or write */
    double bandwidth;   /* bytes per second that the same threads read from memory */
    double products;    /* "integers" and "floats": multiply-adds per second; 0 for other kinds */
} pi_op_time;
/* Receives one measurement, valid during the call. Returning true ends the measuring. */
typedef bool (*pi_op_time_fn)(void *ud, const pi_op_time *t);
/* Measures one op with the options' threads and instruction set, on the CPU, without a model. op "gdn" is the delta
 * rule of recurrent layers. op "rates" measures the processor's limits: bytes read from memory, and products of
 * matrices in its caches; it has no shape and takes 128 MiB. shape is "KEY_HEADS,VALUE_HEADS,HEAD_SIZE,LAYERS"; NULL
 * or "" = Qwen 3.5 9B. Takes some seconds, and memory for the states of 16 sequences. fn gets each time on the
 * calling thread. Returns PI_OK, PI_EINVAL, PI_EUNSUPPORTED or PI_ENOMEM. One thread per pi_options. */
PI_API int pi_bench_op(const pi_options *o, const char *op, const char *shape, pi_op_time_fn fn, void *ud,
                       pi_error *err);

/* Part of an engine's step time. Each entry is one kind of op, or work of the step thread between ops: "(batch)",
 * "(between ops)", "(tokens)" (sampling, text, events) and "(schedule)". Only the library allocates it, so fields can
 * be appended. */
typedef struct pi_op_share {
    uint32_t size;      /* sizeof(pi_op_share) in the library */
    uint32_t decode;    /* 1 = steps with generated tokens only; 0 = steps with prompt tokens */
    const char *op;     /* "linear q4_K 1024 x 6144": name and shape; valid during the call */
    uint64_t n_steps;   /* steps of that kind */
    uint64_t n_calls;   /* calls in all of these steps; the following fields are sums over them */
    double ns;          /* elapsed time; with one thread its run time */
    uint64_t bytes;     /* matrices, keys and values, states and activations, each counted once per call */
    uint64_t integers;  /* multiply-adds with matrices of quantized formats, one per weight and token */
    uint64_t floats;    /* all other multiply-adds */
} pi_op_share;
/* Receives one entry, valid during the call. Returning true ends the report. Must not call into the engine. */
typedef bool (*pi_op_share_fn)(void *ud, const pi_op_share *s);
/* Reports the time of each op since the engine was opened or since the last call, then resets the counts. For engines
 * on the CPU with option profile-ops. Returns PI_OK, or PI_EINVAL (the option is off). Thread-safe. */
PI_API int pi_engine_profile(pi_engine *e, pi_op_share_fn fn, void *ud, pi_error *err);

/* Checks a device. Runs every kernel of the build on real and odd shapes against references on the host, replays
 * captured work, copies memory, uses two devices if present, and compares speed with published figures. On the CPU it
 * covers the products of each instruction set. Uses option "device" (one) and the options for threads and kernels;
 * needs no model.
 *
 * checks is a list separated by commas. An entry is a family ("linear", "attention", "rates", ...) or one of its
 * checks ("linear.formats"). NULL or "" = all, which takes a minute or two and some GiB on a GPU. fn gets the report,
 * about one page, line by line on the calling thread. Returns PI_OK if all checks pass, PI_EDEVICE if a check fails
 * (see the report), or PI_EINVAL, PI_EUNSUPPORTED or PI_ENOMEM if a check could not run. One thread per
 * pi_options. */
PI_API int pi_selftest(const pi_options *o, const char *checks, pi_line_fn fn, void *ud, pi_error *err);

/* What pi_selftest_run does. The caller sets `size`, and zeroes the rest. */
typedef struct pi_selftest_params {
    uint32_t size;      /* sizeof(pi_selftest_params) */
    const char *checks; /* as in pi_selftest; NULL = all */
    uint32_t stress;    /* seconds of the stress test, instead of checks and rates; 0 = no stress test */
    bool json;          /* fn gets one line with a JSON object (docs/CARDS.md describes it), instead of the report */
    uint64_t seed;      /* first seed of the stress test; a failure's seed repeats the failed check first */
} pi_selftest_params;
/* Like pi_selftest, with more choices. The stress test needs a GPU: two queues of the device run random checks with
 * random shapes at the same time, and every launch must leave the same bytes as on the idle device. Errors as in
 * pi_selftest. With PI_EDEVICE for failed checks, fn got the complete report. */
PI_API int pi_selftest_run(const pi_options *o, const pi_selftest_params *p, pi_line_fn fn, void *ud, pi_error *err);

#ifdef __cplusplus
}
#endif
#endif
