/* Request parameters read from JSON: the fields shared by several APIs, as request options of the library. Independent
 * of engine and connection. Memory: a params owns all that it points to, except the strings that point into `root`,
 * which it also owns. Not thread-safe. */
#ifndef PAGEDINFER_SERVE_PARAMS_H
#define PAGEDINFER_SERVE_PARAMS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "pagedinfer.h"
#include "serve/buf.h"

typedef struct prompt {
    const char *text;  /* NULL = the prompt is ids or mixed */
    size_t len;        /* bytes of text */
    const char *query; /* rerank: the query; text is the document to score. NULL = none */
    size_t query_len;  /* bytes of query */
    int32_t *ids;      /* owned */
    size_t n_ids;
    const json_t *mixed; /* list of texts and ids, tokenized when the vocabulary is available; or NULL */
    size_t image, n_images; /* its images in params: the first, and their number */
} prompt;

typedef struct param_image { /* an image of the client, not decoded yet */
    const char *text;  /* [n] a URL (data:, http:, https:, file:) or base64; in root */
    size_t n;
    bool base64;       /* text is base64 */
    bool low;          /* detail low: few tokens are enough */
} param_image;

typedef struct param_option {
    const char *key;   /* key for pi_request_set; static */
    const char *field; /* JSON field of the value, for messages; static */
    char *value;       /* owned */
} param_option;

typedef struct params {
    json_t *root;             /* the request body; texts point into it */
    param_option *option;     /* [n_option] options of the engine requests, in the order in which they are set */
    size_t n_option, cap_option;
    size_t n_bias;            /* options that are token biases */
    prompt *prompts;          /* [n_prompts] for completions; chats have messages instead */
    size_t n_prompts;
    param_image *images;      /* [n_images] in the order of the messages, or of the prompts */
    size_t n_images, cap_images;
    bool reads_images;        /* set before the conversation is read: the engine reads images */
    json_t *messages;         /* list in OpenAI's format; owned reference, or NULL */
    json_t *tools;            /* list of functions; owned reference, or NULL */
    json_t *template_vars;    /* object with variables of the chat template; owned reference, or NULL */
    json_t *namespaces;       /* maps the name shown to the model to {name, namespace}; owned reference, or NULL */
    buf left_out;             /* names of unsupported tools and items, for the log */
    bool hide_thoughts;       /* do not return reasoning (Anthropic's display: omitted) */
    bool stream;
    bool include_usage;       /* stream: the last chunk has the usage */
    bool usage_in_all;        /* stream: each chunk has the usage (continuous_usage_stats) */
    bool echo;                /* completions: the response begins with the prompt */
    bool echo_last;           /* chats: the response begins with the continued message */
    bool token_ids;           /* return_token_ids */
    bool special;             /* control tokens are output as text (skip_special_tokens false) */
    bool timings;             /* each chunk has timings (timings_per_token) */
    bool drawn;               /* return probabilities after the sampler's stages (post_sampling_probs) */
    bool keep_stop;           /* the response includes the stop string (include_stop_str_in_output) */
    bool ids_as_tokens;       /* format of tokens in logprobs (return_tokens_as_token_ids) */
    bool no_bos;              /* do not add BOS to text prompts (add_special_tokens false) */
    bool progress;            /* stream prompt progress events (return_progress) */
    int64_t ping_s;           /* sse_ping_interval in seconds; INT64_MIN = the server's default */
    int64_t max_ms;           /* t_max_predict_ms: time since the first token after which an answer with a newline ends;
                               * 0 = no limit */
    int64_t n_indent;         /* end before the first line after line one that starts with fewer blanks; 0 = off */
    int n;                    /* answers per prompt */
    int logprobs;             /* alternatives per token; -1 = no probabilities */
    int prompt_logprobs;      /* alternatives per prompt token, returned in a separate list; -1 = none */
    /* truncate_prompt_tokens: keep the last N tokens of a prompt; -1 = fit the context; INT64_MIN = keep all */
    int64_t max_prompt_tokens;
    int64_t max_tokens;       /* INT64_MIN = not given */
    const char *cache_salt;   /* prefix cache salt of the client; NULL = none; in root */
    const char *bad_field;    /* field that caused an error, for the response; static or in root; NULL = none */
} params;

/* Parses the JSON of a request body. Returns NULL on failure and fills *err. Thread-safe. */
json_t *params_parse(const char *body, size_t n, pi_error *err);
/* Takes ownership of root, which must be an object. Checks the fields of the API (API_* of fields.h; 0 = no check),
 * then reads the fields that all generations share. Returns PI_EINVAL with a text for the client, or PI_ENOMEM. The
 * caller frees p, also after a failure. */
int params_read(params *p, json_t *root, unsigned api, pi_error *err);
void params_free(params *p);

/* Sets p->bad_field to field and err to the text; returns PI_EINVAL. */
int params_fail(params *p, const char *field, pi_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int params_no_memory(pi_error *err);
/* Adds an image; its text must be in p->root. */
int params_add_image(params *p, const param_image *image, pi_error *err);
/* Adds an option for the engine requests; value is copied. */
int params_add(params *p, const char *key, const char *field, const char *value, pi_error *err);
/* Adds an option from a JSON string. Returns PI_EINVAL if it contains a zero byte, which options cannot hold. */
int params_add_text(params *p, const char *key, const char *field, const json_t *text, pi_error *err);
int params_add_json(params *p, const char *key, const char *field, const json_t *value, pi_error *err);

/* Read a field of one type; an absent or null field leaves *out unchanged. */
int params_bool(params *p, const json_t *o, const char *field, bool *out, pi_error *err);
int params_int(params *p, const json_t *o, const char *field, int64_t lo, int64_t hi, int64_t *out, pi_error *err);
int params_string(params *p, const json_t *o, const char *field, const char **out, pi_error *err);

/* Returns the value of the last option `key` that p sets; NULL if p sets none or is NULL. */
const char *params_value(const params *p, const char *key);
/* Returns an object with the values of all options that are request fields, by field name: the value in p (which may be
 * NULL), else the result of `otherwise`. NULL = out of memory. */
json_t *params_settings(const params *p, const char *(*otherwise)(const void *ud, const char *key), const void *ud);

/* Reads field "prompt" into p->prompts: a text, ids, a mixed list, {"prompt_string"} with one of these, or a list of
 * them. */
int params_prompts(params *p, const char *field, pi_error *err);
/* Reads a query and a list of documents into p->prompts, one per document; a document is a text or an object with
 * "text". */
int params_pairs(params *p, const char *query_field, const char *list_field, pi_error *err);
/* Reads {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", ...} and adds the constraint as an
 * option. */
int params_response_format(params *p, const json_t *format, const char *field, pi_error *err);

#endif
