/* pagedinfer.h as recorded by tests/scripts/check_abidiff.py --record. */
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
typedef struct pi_error {
    int code;
    char msg[240];
} pi_error;
PI_API int pi_abi_version(void);
PI_API const char *pi_version(void);
PI_API const char *pi_strerror(int code);
PI_API const char *pi_err_name(int code);
typedef struct pi_allocator {
    uint32_t size;
    void *ud;
    void *(*malloc)(void *ud, size_t size);
    void *(*realloc)(void *ud, void *p, size_t size);
    void (*free)(void *ud, void *p);
    void *(*map)(void *ud, size_t size);
    void (*unmap)(void *ud, void *p, size_t size);
} pi_allocator;
PI_API int pi_set_allocator(const pi_allocator *a);
enum {
    PI_LOG_NONE = 0,
    PI_LOG_ERROR = 1,
    PI_LOG_WARN = 2,
    PI_LOG_INFO = 3,
    PI_LOG_DEBUG = 4
};
typedef void (*pi_log_fn)(void *ud, int level, const char *msg);
typedef struct pi_options pi_options;
typedef struct pi_option_info {
    uint32_t size;
    const char *key;
    const char *type;
    const char *def;
    const char *range;
    const char *flags;
    const char *section;
    const char *help;
    int scope;
    bool common;
    const char *env;
} pi_option_info;
enum {
    PI_SCOPE_ENGINE = 0,
    PI_SCOPE_REQUEST = 1,
    PI_SCOPE_TOOL = 2
};
PI_API pi_options *pi_options_new(void);
PI_API int pi_options_set(pi_options *o, const char *key, const char *value, pi_error *err);
PI_API void pi_options_set_log(pi_options *o, pi_log_fn fn, void *ud, int level);
enum {
    PI_LOAD_READ = 1,
    PI_LOAD_WEIGHTS = 2,
};
typedef bool (*pi_progress_fn)(void *ud, int stage, uint64_t done, uint64_t total);
PI_API void pi_options_set_progress(pi_options *o, pi_progress_fn fn, void *ud);
PI_API int pi_options_describe(size_t i, pi_option_info *out);
PI_API void pi_options_free(pi_options *o);
typedef struct pi_device {
    uint32_t size;
    char name[16];
    char desc[96];
    char lacks[256];
    uint64_t memory_bytes;
    bool usable;
} pi_device;
PI_API int pi_device_describe(size_t i, pi_device *out);
typedef struct pi_engine pi_engine;
typedef struct pi_plan {
    uint32_t size;
    uint64_t weights_bytes;
    uint64_t kv_bytes;
    uint64_t scratch_bytes;
    uint64_t total_bytes;
    uint64_t kv_tokens;
    uint32_t n_groups;
    struct {
        char name[16];
        uint32_t n_layers;
        uint32_t block_size;
        uint32_t window;
        uint64_t n_blocks;
        uint64_t block_bytes;
    } group[8];
    uint32_t ctx_size;
    uint64_t state_bytes;
    uint32_t n_places;
    struct {
        char name[64];
        uint64_t weights_bytes, kv_bytes, state_bytes, scratch_bytes;
    } place[8];
    uint64_t host_cache_bytes;
    int32_t cache_limit;
    uint32_t n_requests;
    uint32_t n_requests_1k;
    uint32_t max_requests;
    uint64_t free_bytes;
} pi_plan;
enum {
    PI_CACHE_LIMIT_OPTION = 0,
    PI_CACHE_LIMIT_PARALLEL = 1,
    PI_CACHE_LIMIT_MEMORY = 2,
    PI_CACHE_LIMIT_UNKNOWN = 3
};
PI_API int pi_engine_plan(const pi_options *o, pi_plan *out, pi_error *err);
PI_API int pi_engine_open(pi_engine **out, const pi_options *o, pi_error *err);
PI_API void pi_engine_close(pi_engine *e);
PI_API int pi_engine_memory(const pi_engine *e, pi_plan *out);
enum {
    PI_STATE_READY = 0,
    PI_STATE_DRAINING = 1,
    PI_STATE_FAILED = 2
};
PI_API int pi_engine_state(const pi_engine *e);
typedef struct pi_info {
    uint32_t size;
    const char *arch;
    const char *name;
    const char *type_desc;
    uint64_t n_params;
    uint64_t file_bytes;
    uint32_t n_vocab;
    uint32_t n_ctx_train;
    uint32_t n_embd;
    uint32_t n_layer;
    uint32_t ctx_size;
    uint32_t n_threads;
    const char *device;
    int32_t bos, eos;
    const char *chat_template;
    const char *pooling;
    uint32_t n_labels;
    const char *const *labels;
    uint32_t modalities;
} pi_info;
enum {
    PI_MODALITY_VISION = 1,
    PI_MODALITY_AUDIO = 2
};
PI_API int pi_engine_info(const pi_engine *e, pi_info *out);
PI_API int64_t pi_engine_meta(const pi_engine *e, const char *key, char *out, size_t cap);
PI_API int64_t pi_engine_meta_key(const pi_engine *e, size_t i, char *out, size_t cap);
enum { PI_N_STEP_BOUNDS = 20  };
typedef struct pi_stats {
    uint32_t size;
    uint32_t n_waiting, n_running;
    uint64_t n_finished;
    uint64_t n_preempted;
    uint64_t n_steps;
    uint64_t prompt_tokens;
    uint64_t cached_tokens;
    uint64_t generated_tokens;
    uint32_t n_groups;
    struct {
        uint64_t n_blocks, n_free, n_used, n_cached;
        uint64_t n_shared;
        uint64_t n_evicted;
        uint64_t committed_bytes;
    } group[8];
    double last_step_ms;
    uint64_t n_prefix_hits;
    uint64_t n_snapshots_saved;
    uint64_t n_snapshots_restored;
    const char *group_name[8];
    uint64_t disk_entries, disk_bytes;
    uint64_t n_drafted, n_accepted;
    uint64_t disk_reads, disk_writes;
    uint64_t host_entries, host_bytes;
    uint64_t host_reads, host_writes;
    double step_total_ms;
    double step_bound_ms[PI_N_STEP_BOUNDS];
    uint64_t step_count[PI_N_STEP_BOUNDS + 1];
    double draft_total_ms;
    uint64_t key_blocks_attended, key_blocks_possible;
    uint64_t n_block_waits;
} pi_stats;
PI_API int pi_engine_stats(const pi_engine *e, pi_stats *out);
PI_API int pi_engine_drain(pi_engine *e, int timeout_ms);
PI_API int pi_engine_cache_clear(pi_engine *e, const char *salt);
enum {
    PI_CACHE_STORED = 1,
    PI_CACHE_REMOVED = 2,
    PI_CACHE_CLEARED = 3
};
typedef struct pi_cache_event {
    int kind;
    const uint64_t *hashes;
    size_t n_hashes;
    const int32_t *tokens;
    size_t n_tokens;
    uint64_t parent;
    int has_parent;
} pi_cache_event;
typedef void (*pi_cache_event_fn)(void *ud, const pi_cache_event *ev);
PI_API int pi_engine_on_cache_event(pi_engine *e, pi_cache_event_fn fn, void *ud, pi_error *err);
typedef struct pi_lora {
    uint32_t size;
    char name[128];
    char path[512];
    float scale;
    uint32_t rank;
    uint32_t n_matrices;
    uint64_t bytes;
    uint32_t n_running;
} pi_lora;
PI_API int pi_lora_load(pi_engine *e, const char *name, const char *path, float scale, pi_error *err);
PI_API int pi_lora_replace(pi_engine *e, const char *name, const char *path, pi_error *err);
PI_API int pi_lora_unload(pi_engine *e, const char *name, pi_error *err);
PI_API int pi_lora_scale(pi_engine *e, const char *name, float scale, pi_error *err);
PI_API int pi_lora_describe(pi_engine *e, size_t i, pi_lora *out);
typedef struct pi_weights pi_weights;
PI_API int pi_weights_open(pi_weights **out, const pi_options *o, const char *socket, pi_error *err);
PI_API void pi_weights_close(pi_weights *w);
PI_API int pi_rank(const pi_options *o, int *n, pi_error *err);
PI_API int pi_rank_follow(const pi_options *o, pi_error *err);
typedef struct pi_work pi_work;
PI_API pi_work *pi_work_new(uint64_t max_steps, size_t max_bytes, int timeout_ms);
PI_API void pi_work_cancel(pi_work *w);
PI_API int pi_work_check(pi_work *w);
PI_API void pi_work_free(pi_work *w);
enum {
    PI_TOK_BOS = 1,
    PI_TOK_SPECIAL = 2,
};
PI_API int64_t pi_tokenize(const pi_engine *e, const char *text, size_t len, int flags, int32_t *out, size_t cap);
PI_API int64_t pi_work_tokenize(pi_work *w, const pi_engine *e, const char *text, size_t len, int flags, int32_t *out,
                                size_t cap);
PI_API int64_t pi_detokenize(const pi_engine *e, const int32_t *ids, size_t n, int flags, char *out, size_t cap);
PI_API int64_t pi_chat_render(const pi_engine *e, const char *messages, const char *tools, const char *options,
                              char *out, size_t cap, pi_error *err);
PI_API int64_t pi_work_chat_render(pi_work *w, const pi_engine *e, const char *messages, const char *tools,
                                   const char *options, char *out, size_t cap, pi_error *err);
PI_API int64_t pi_chat_tokenize(const pi_engine *e, const char *messages, const char *tools, const char *options,
                                int32_t *out, size_t cap, pi_error *err);
PI_API int64_t pi_work_chat_tokenize(pi_work *w, const pi_engine *e, const char *messages, const char *tools,
                                     const char *options, int32_t *out, size_t cap, pi_error *err);
typedef struct pi_infill_file {
    const char *name;
    const char *text;
    size_t len;
} pi_infill_file;
typedef struct pi_infill_parts {
    const char *prefix, *suffix, *typed;
    size_t prefix_len, suffix_len, typed_len;
    const pi_infill_file *files;
    size_t n_files;
    const char *repo, *name;
    size_t max_tokens;
    int suffix_first;
} pi_infill_parts;
PI_API int64_t pi_infill(const pi_engine *e, const pi_infill_parts *in, int32_t *out, size_t cap, pi_error *err);
PI_API int64_t pi_work_infill(pi_work *w, const pi_engine *e, const pi_infill_parts *in, int32_t *out, size_t cap,
                              pi_error *err);
typedef struct pi_vocab pi_vocab;
PI_API int pi_vocab_open(pi_vocab **out, const char *path, pi_error *err);
PI_API int64_t pi_vocab_tokenize(const pi_vocab *v, const char *text, size_t len, int flags, int32_t *out, size_t cap);
PI_API int64_t pi_vocab_detokenize(const pi_vocab *v, const int32_t *ids, size_t n, int flags, char *out, size_t cap);
PI_API void pi_vocab_free(pi_vocab *v);
typedef struct pi_request pi_request;
enum {
    PI_FINISH_NONE = 0,
    PI_FINISH_STOP = 1,
    PI_FINISH_LENGTH = 2,
    PI_FINISH_CANCEL = 3,
    PI_FINISH_ERROR = 4,
    PI_FINISH_TOOL_CALLS = 5,
};
typedef struct pi_result {
    uint32_t size;
    int code;
    int finish_reason;
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t generated_tokens;
    uint32_t n_preempted;
    const char *miss_reason;
    double queue_ms;
    double prefill_ms;
    double decode_ms;
    const char *stop;
    char msg[240];
    uint32_t n_drafted;
    uint32_t n_accepted;
} pi_result;
PI_API pi_request *pi_request_new(pi_engine *e);
PI_API int pi_request_set(pi_request *r, const char *key, const char *value, pi_error *err);
PI_API void pi_request_set_work(pi_request *r, pi_work *w);
typedef struct pi_image {
    uint32_t size;
    uint32_t width, height;
    const uint8_t *rgb;
    const void *source;
    size_t source_len;
    uint32_t min_tokens;
    uint32_t max_tokens;
} pi_image;
PI_API int pi_request_image(pi_request *r, const pi_image *image, pi_error *err);
PI_API int pi_image_tokens(const pi_engine *e, uint32_t width, uint32_t height, uint32_t min_tokens,
                           uint32_t max_tokens, uint32_t *n, pi_error *err);
PI_API int pi_request_prompt_tokens(pi_request *r, const int32_t *ids, size_t n, pi_error *err);
PI_API int pi_request_prompt_text(pi_request *r, const char *text, size_t len, pi_error *err);
PI_API int pi_request_prompt_rank(pi_request *r, const char *query, size_t query_len, const char *document,
                                  size_t document_len, pi_error *err);
PI_API int pi_request_prompt_chat(pi_request *r, const char *messages, const char *tools, const char *options,
                                  pi_error *err);
typedef struct pi_event pi_event;
typedef void (*pi_event_fn)(void *ud, const pi_event *ev);
PI_API void pi_request_on_event(pi_request *r, pi_event_fn fn, void *ud);
typedef void (*pi_logits_fn)(void *ud, uint32_t pos, const float *logits, size_t n_vocab);
PI_API void pi_request_on_logits(pi_request *r, pi_logits_fn fn, void *ud);
PI_API int pi_request_submit(pi_request *r, pi_error *err);
PI_API void pi_request_cancel(pi_request *r);
PI_API int pi_request_wait(pi_request *r, int timeout_ms);
PI_API int pi_request_result(const pi_request *r, pi_result *out);
PI_API size_t pi_request_tokens(const pi_request *r, int32_t *out, size_t cap);
PI_API int pi_request_sample(const pi_request *r, uint32_t index, pi_result *out);
PI_API size_t pi_request_sample_tokens(const pi_request *r, uint32_t index, int32_t *out, size_t cap);
PI_API void pi_request_free(pi_request *r);
enum {
    PI_EVENT_TEXT = 1,
    PI_EVENT_DONE = 2,
    PI_EVENT_PROMPT = 3,
    PI_EVENT_EMBEDDING = 4,
    PI_EVENT_PROGRESS = 5,
};
typedef struct pi_token_prob {
    int32_t id;
    float logprob;
} pi_token_prob;
struct pi_event {
    uint32_t size;
    int kind;
    pi_request *request;
    void *user;
    const char *text;
    size_t text_len;
    const int32_t *tokens;
    size_t n_tokens;
    const pi_token_prob *logprobs;
    size_t n_logprobs;
    int finish_reason;
    int code;
    uint32_t index;
    uint32_t n_left;
    const float *embedding;
    size_t n_embd;
    size_t n_embeddings;
    bool calls_bound;
    uint32_t n_prompt;
    uint32_t n_cached;
    uint32_t n_computed;
    double prompt_ms;
};
PI_API void pi_request_set_user(pi_request *r, void *user);
PI_API int pi_poll(pi_engine *e, pi_event **buf, size_t cap, int timeout_ms);
PI_API int pi_poll_fd(const pi_engine *e);
PI_API void pi_event_release(pi_event *ev);
typedef struct pi_chat_parser pi_chat_parser;
enum {
    PI_CHAT_CONTENT = 1,
    PI_CHAT_REASONING = 2,
    PI_CHAT_CALL = 3,
    PI_CHAT_ARGUMENTS = 4,
    PI_CHAT_CALL_END = 5,
    PI_CHAT_CALL_DROPPED = 6,
};
typedef struct pi_chat_delta {
    uint32_t size;
    int kind;
    const char *text;
    size_t text_len;
    uint32_t index;
    const char *id;
    const char *name;
    bool sure;
} pi_chat_delta;
typedef struct pi_chat_call {
    uint32_t size;
    uint32_t index;
    const char *id, *name;
    const char *arguments;
    size_t arguments_len;
} pi_chat_call;
PI_API int pi_chat_parser_new(pi_chat_parser **out, const pi_engine *e, const char *tools, const char *options,
                              pi_error *err);
PI_API void pi_chat_parser_free(pi_chat_parser *p);
PI_API int pi_chat_parser_feed(pi_chat_parser *p, const char *text, size_t len);
PI_API int pi_chat_parser_feed_tokens(pi_chat_parser *p, const int32_t *ids, size_t n);
PI_API void pi_chat_parser_bind(pi_chat_parser *p);
PI_API int pi_chat_parser_end(pi_chat_parser *p, int finish);
PI_API bool pi_chat_parser_next(pi_chat_parser *p, pi_chat_delta *out);
PI_API size_t pi_chat_parser_content(const pi_chat_parser *p, const char **text);
PI_API size_t pi_chat_parser_reasoning(const pi_chat_parser *p, const char **text);
PI_API int pi_chat_parser_call(const pi_chat_parser *p, uint32_t i, pi_chat_call *out);
typedef void (*pi_line_fn)(void *ud, const char *line);
PI_API int pi_model_inspect(const char *path, bool tensors, pi_line_fn fn, void *ud, pi_error *err);
enum { PI_JSON_TENSORS = 1 , PI_JSON_ALL = 2  };
PI_API int pi_model_json(const char *path, int flags, pi_line_fn fn, void *ud, pi_error *err);
PI_API int pi_quantize(const char *in, const char *out, const char *type, const char *const *options,
                       pi_line_fn progress, void *ud, pi_error *err);
PI_API const char *pi_quantize_type(size_t i);
typedef struct pi_quantize_info {
    uint32_t size;
    int32_t number;
    const char *name;
    const char *matrices;
    double bits;
} pi_quantize_info;
PI_API int pi_quantize_describe(size_t i, pi_quantize_info *out);
typedef struct pi_op_time {
    uint32_t size;
    const char *what;
    uint32_t n_seqs;
    uint32_t n_tokens;
    double ns;
    uint64_t bytes;
    double bandwidth;
    double products;
} pi_op_time;
typedef bool (*pi_op_time_fn)(void *ud, const pi_op_time *t);
PI_API int pi_bench_op(const pi_options *o, const char *op, const char *shape, pi_op_time_fn fn, void *ud,
                       pi_error *err);
typedef struct pi_op_share {
    uint32_t size;
    uint32_t decode;
    const char *op;
    uint64_t n_steps;
    uint64_t n_calls;
    double ns;
    uint64_t bytes;
    uint64_t integers;
    uint64_t floats;
} pi_op_share;
typedef bool (*pi_op_share_fn)(void *ud, const pi_op_share *s);
PI_API int pi_engine_profile(pi_engine *e, pi_op_share_fn fn, void *ud, pi_error *err);
PI_API int pi_selftest(const pi_options *o, const char *checks, pi_line_fn fn, void *ud, pi_error *err);
typedef struct pi_selftest_params {
    uint32_t size;
    const char *checks;
    uint32_t stress;
    bool json;
    uint64_t seed;
} pi_selftest_params;
PI_API int pi_selftest_run(const pi_options *o, const pi_selftest_params *p, pi_line_fn fn, void *ud, pi_error *err);
#ifdef __cplusplus
}
#endif
#endif
