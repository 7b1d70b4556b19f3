/* pagedinfer_openai.h as recorded by tests/scripts/check_abidiff.py --record. */
#ifndef PAGEDINFER_OPENAI_H
#define PAGEDINFER_OPENAI_H
#include <pagedinfer.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef struct pi_openai pi_openai;
typedef struct pi_completion pi_completion;
typedef struct pi_chunk {
    uint32_t size;
    pi_completion *completion;
    void *user;
    const char *json;
    size_t len;
    int status;
    int code;
    bool last;
} pi_chunk;
typedef void (*pi_chunk_fn)(void *ud, const pi_chunk *chunk);
typedef struct pi_completion_params {
    uint32_t size;
    pi_chunk_fn fn;
    void *ud;
    void *user;
    pi_work *work;
    const char *tenant;
} pi_completion_params;
PI_API int pi_openai_new(pi_openai **out, pi_engine *e, pi_error *err);
PI_API int pi_openai_set(pi_openai *o, const char *key, const char *value, pi_error *err);
PI_API void pi_openai_free(pi_openai *o);
PI_API int pi_chat_completions(pi_completion **out, pi_openai *o, const char *request, size_t len,
                               const pi_completion_params *p, pi_error *err);
PI_API void pi_completion_cancel(pi_completion *c);
PI_API void pi_completion_free(pi_completion *c);
PI_API int pi_openai_poll(pi_openai *o, pi_chunk **buf, size_t cap, int timeout_ms);
PI_API int pi_openai_poll_fd(const pi_openai *o);
PI_API void pi_chunk_release(pi_chunk *chunk);
#ifdef __cplusplus
}
#endif
#endif
