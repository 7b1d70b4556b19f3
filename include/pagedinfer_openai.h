/* pagedinfer_openai.h: OpenAI's chat completions without a server, and its manual.
 *
 * libpagedinfer-openai takes the body of a request to /v1/chat/completions as JSON text, and returns the response as
 * JSON text. It is a second library next to libpagedinfer, because it needs jansson and, for images, the libraries of
 * their formats. `pagedinfer serve` is built from the same code, so both give the same responses.
 *
 *     pi_openai *o;  pi_openai_new(&o, engine, &err);
 *     pi_completion *c;  pi_chat_completions(&c, o, request, strlen(request), NULL, &err);
 *     while (pi_openai_poll(o, chunks, 16, -1) > 0) ... pi_chunk_release(chunks[i]);
 *     pi_completion_free(c);  pi_openai_free(o);
 *
 * REQUESTS. docs/FIELDS.md lists the fields, with their ranges: messages with images, tools, tool_choice,
 * response_format, stop, n, logprobs, stream, stream_options and others. "model" selects an adapter by its name; any
 * other name is accepted. Texts of errors name options by the server's spelling. --mmproj is an option of the engine;
 * pi_openai_set has the others.
 *
 * CHUNKS. A response consists of chunks. With "stream": true they are the JSON of the server's events. Otherwise the
 * response is one chunk. An error is a chunk with an error object, {"error": {"message", "type", "param", "code"}},
 * also for a request that is not valid. Exactly one chunk of a response has `last`. A stream without error ends with
 * an empty chunk, at which a server writes [DONE].
 *
 * DELIVERY. By default chunks go into one queue per pi_openai; pi_openai_poll takes them, and pi_openai_poll_fd gives
 * a descriptor for event loops. A completion with a callback (pi_completion_params.fn) gets its chunks by callback
 * instead. The text of a slow reader is merged into fewer and longer chunks.
 *
 * CONVENTIONS of pagedinfer.h apply: return values, ownership, size-versioned structs. Events of the engine's other
 * requests are not affected; pi_poll never returns events of completions.
 *
 * THREADS. All functions may be called from any thread at any time, with these exceptions. pi_openai_set comes before
 * the first completion. pi_openai_free comes after all completions are freed, and before the engine is closed. Calls on
 * a completion begin when pi_chat_completions has returned, except in its callback. None may run during or follow
 * pi_completion_free.
 *
 * JANSSON. The first pi_openai_new of a process wraps jansson's allocation functions (json_set_alloc_funcs), so that a
 * failed allocation becomes an error. The functions set before stay in use. Set your own ones before that call. The
 * library cannot be unloaded. */
#ifndef PAGEDINFER_OPENAI_H
#define PAGEDINFER_OPENAI_H

#include <pagedinfer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------------------------------------------- completions
 *
 * Completions belong to a handle, and a handle to an engine. Free them in the opposite order. */

/* An engine, with the settings and the queue of its completions; opaque. */
typedef struct pi_openai pi_openai;
/* One request and its response; opaque. */
typedef struct pi_completion pi_completion;

/* A part of a response. Only the library allocates it, so fields can be appended; `size` says how many bytes are
 * valid. */
typedef struct pi_chunk {
    uint32_t size;             /* bytes of this struct that the library filled */
    pi_completion *completion; /* the completion it belongs to */
    void *user;                /* pi_completion_params.user */
    const char *json;          /* JSON text, NUL terminated; "" at the end of a stream */
    size_t len;                /* bytes of json */
    int status;                /* HTTP status that the server responds with: 200, or the status of the error */
    int code;                  /* PI_OK, or the PI_E* of the error */
    bool last;                 /* the last chunk of the completion */
} pi_chunk;

/* Receives one chunk, valid during the call. The engine's dispatch thread calls it, one call at a time. For a request
 * that is not valid, pi_chat_completions calls it. All requests with callbacks wait meanwhile, so return quickly. The
 * function may call everything except pi_engine_close, pi_engine_drain, pi_request_wait and pi_openai_free. It may
 * free the completion in the last chunk. */
typedef void (*pi_chunk_fn)(void *ud, const pi_chunk *chunk);

/* Parameters of a completion. Size-versioned: the caller sets `size`, and zeroes the rest. */
typedef struct pi_completion_params {
    uint32_t size;      /* sizeof(pi_completion_params) */
    pi_chunk_fn fn;     /* receives the chunks; NULL = pi_openai_poll returns them */
    void *ud;           /* first argument of fn */
    void *user;         /* copied to each chunk */
    pi_work *work;      /* work budget of pi_chat_completions; NULL = no limit. The caller keeps ownership */
    const char *tenant; /* request option "tenant", the share of the engine's time; NULL = none. Copied */
} pi_completion_params;

/* Creates a handle for completions on an engine. Returns PI_OK and the handle in *out, which the caller frees; on
 * failure *out is NULL. Errors: PI_EINVAL, PI_ENOMEM, PI_EIO (no descriptor is left). Thread-safe. */
PI_API int pi_openai_new(pi_openai **out, pi_engine *e, pi_error *err);
/* Sets an option of `pagedinfer serve`: "alias" (the model's name in responses), "reasoning", "reasoning-format",
 * "reasoning-effort", "prefill-assistant", "max-images", "max-image-bytes", "max-image-pixels" or "media-path".
 * docs/OPTIONS.md describes them. Returns PI_OK, PI_ENOMEM, PI_EBUSY (a completion exists), or PI_EINVAL: unknown key,
 * or value outside its range. One thread at a time. key and value are copied. */
PI_API int pi_openai_set(pi_openai *o, const char *key, const char *value, pi_error *err);
/* Frees a handle; NULL is allowed. Free its completions before. Chunks that were not released stay valid. */
PI_API void pi_openai_free(pi_openai *o);

/* Starts a completion: reads len bytes of JSON text and submits the request. p NULL = default parameters. Returns
 * PI_OK and the completion in *out, which the caller frees. PI_OK does not mean that the request is valid: an error of
 * the request arrives as its only chunk. On failure *out is NULL: PI_EINVAL, PI_ENOMEM. Does not wait for the answer.
 * The function renders and tokenizes the conversation, compiles its schemas and decodes its images, in time that
 * depends on the request; a work budget limits it. Callbacks may run before it returns, after *out is set. Needs 1 MiB
 * of stack. Thread-safe. The text is copied. */
PI_API int pi_chat_completions(pi_completion **out, pi_openai *o, const char *request, size_t len,
                               const pi_completion_params *p, pi_error *err);
/* Cancels a completion. It ends with an error chunk of code PI_ECANCELED and status 499, soon after, unless it has
 * ended. NULL is allowed. Thread-safe. */
PI_API void pi_completion_cancel(pi_completion *c);
/* Cancels a running completion and frees it. Chunks in the queue are dropped; chunks from pi_openai_poll stay valid
 * until they are released. When this function returns, no callback of c runs or will run, except the one that called
 * it. NULL is allowed. */
PI_API void pi_completion_free(pi_completion *c);

/* Takes up to cap chunks from the queue, in order, and stores pointers to them in buf. Waits for the first one up to
 * timeout_ms (0 = does not wait, -1 = no limit). Returns the number of chunks. 0 means a timeout, or that no
 * unfinished completion without a callback is left. PI_EINVAL for a NULL pointer or cap 0. The caller releases each
 * chunk. Thread-safe. */
PI_API int pi_openai_poll(pi_openai *o, pi_chunk **buf, size_t cap, int timeout_ms);
/* Returns a descriptor that is readable while pi_openai_poll has chunks or work. Such work may give no chunk, so poll
 * with a timeout of 0. The handle owns the descriptor: do not read or close it. PI_EINVAL if o is NULL.
 * Thread-safe. */
PI_API int pi_openai_poll_fd(const pi_openai *o);
/* Frees a chunk from pi_openai_poll. NULL is allowed. No effect on a chunk passed to a callback. Thread-safe. */
PI_API void pi_chunk_release(pi_chunk *chunk);

#ifdef __cplusplus
}
#endif
#endif
