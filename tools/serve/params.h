/* What a client asks for, read from JSON: fields that several APIs share, as request options of the library. Knows no
 * engine and no connection. Memory: a params owns all that it points to, but for what it borrows from its root, which
 * it holds. One thread at a time. */
#ifndef PAGEDINFER_SERVE_PARAMS_H
#define PAGEDINFER_SERVE_PARAMS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "pagedinfer.h"
#include "serve/buf.h"

typedef struct prompt {
    const char *text;  /* or NULL: ids, or mixed */
    size_t len;        /* bytes of text */
    const char *query; /* the text is a document that is scored for it; or NULL */
    size_t query_len;  /* bytes of query */
    int32_t *ids;      /* owned */
    size_t n_ids;
    const json_t *mixed; /* texts and ids one behind the other, which become ids where the vocabulary is; or NULL */
} prompt;

typedef struct param_option {
    const char *key;   /* of pi_request_set; static */
    const char *field; /* where it comes from, for messages; static */
    char *value;       /* owned */
} param_option;

typedef struct params {
    json_t *root;             /* what was sent; texts point into it */
    param_option *option;     /* in the order in which they are set */
    size_t n_option, cap_option;
    size_t n_bias;            /* of them, biases of tokens */
    prompt *prompts;          /* of completions; chats have messages instead */
    size_t n_prompts;
    json_t *messages;         /* a list, as OpenAI has them; owned reference, or NULL */
    json_t *tools;            /* the same for functions */
    json_t *template_vars;    /* an object with variables of the chat template; owned reference, or NULL */
    json_t *namespaces;       /* offered name -> {name, namespace} of tools in a namespace; owned reference, or NULL */
    buf left_out;             /* tools and items that the server cannot offer, for the log */
    bool hide_thoughts;       /* the client wants none (Anthropic's display: omitted) */
    bool stream;
    bool include_usage;       /* a last chunk has the numbers */
    bool usage_in_all;        /* each chunk has them (continuous_usage_stats) */
    bool echo;                /* completions: the prompt is part of the answer */
    bool echo_last;           /* chats: the message that the answer goes on with is */
    bool token_ids;           /* return_token_ids */
    bool special;             /* control tokens are text (skip_special_tokens false) */
    bool timings;             /* each chunk has times (timings_per_token) */
    bool drawn;               /* probabilities are those that tokens were drawn by (post_sampling_probs) */
    bool keep_stop;           /* the stop string that ended it is part of an answer (include_stop_str_in_output) */
    bool ids_as_tokens;       /* of logprobs (return_tokens_as_token_ids) */
    bool no_bos;              /* texts of prompts get none (add_special_tokens false) */
    bool progress;            /* a stream tells how far the prompt is (return_progress) */
    int64_t ping_s;           /* sse_ping_interval, INT64_MIN: the server's */
    int64_t most_ms;          /* t_max_predict_ms: an answer ends at its first line that is complete after so long; 0: none */
    int64_t n_indent;         /* an answer ends where a line after the first has less indentation; 0: anywhere */
    int n;                    /* answers to each prompt */
    int logprobs;             /* alternatives to each token; -1: no probabilities */
    int prompt_logprobs;      /* the same of the prompt's tokens, in a list of their own */
    int64_t most_prompt;      /* truncate_prompt_tokens: the last so many of a prompt, -1: as fit; INT64_MIN: all */
    int64_t max_tokens;       /* INT64_MIN: not said */
    const char *cache_salt;   /* or NULL; in root */
    const char *bad_field;    /* where an error is, for the answer's "param"; static or in root, or NULL */
} params;

/* The JSON of a request's body. NULL: *err says why. Any thread. */
json_t *params_parse(const char *body, size_t n, pi_error *err);
/* Takes over root (an object, or else an error). Refuses what the API (API_* of fields.h; 0 = none) refuses, then reads the
 * fields that all kinds of generation share. PI_EINVAL with a text for the caller, PI_ENOMEM. On failure p is still to be
 * freed. */
int params_read(params *p, json_t *root, unsigned api, pi_error *err);
void params_free(params *p);

/* PI_EINVAL, and remembers the field. */
int params_fail(params *p, const char *field, pi_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int params_no_memory(pi_error *err);
/* An option for the requests; value is copied. */
int params_add(params *p, const char *key, const char *field, const char *value, pi_error *err);
/* The same with a JSON string; PI_EINVAL for a zero byte, which options cannot hold. */
int params_add_text(params *p, const char *key, const char *field, const json_t *text, pi_error *err);
int params_add_json(params *p, const char *key, const char *field, const json_t *value, pi_error *err);

/* Fields by kind: absent or null leaves *out alone. */
int params_bool(params *p, const json_t *o, const char *field, bool *out, pi_error *err);
int params_int(params *p, const json_t *o, const char *field, int64_t lo, int64_t hi, int64_t *out, pi_error *err);
int params_string(params *p, const json_t *o, const char *field, const char **out, pi_error *err);

/* The last value that p gives an option; NULL: none, or p is NULL. */
const char *params_value(const params *p, const char *key);
/* Options that are fields, by the fields' names: their values in p, which may be NULL, or what otherwise says. */
json_t *params_settings(const params *p, const char *(*otherwise)(const void *ud, const char *key), const void *ud);

/* "prompt": a text, ids, both in one list, {"prompt_string"} of these, or a list of such. */
int params_prompts(params *p, const char *field, pi_error *err);
/* A query, and documents: texts, or objects with a "text". */
int params_pairs(params *p, const char *query_field, const char *list_field, pi_error *err);
/* {"type": "json_schema" | "json_object" | "text", ...}. */
int params_response_format(params *p, const json_t *format, const char *field, pi_error *err);

#endif
