/* What the parts of `pagedinfer serve` share: the server, its counters and keys. Everything is the loop's thread's but
 * where a function says otherwise. */
#ifndef PAGEDINFER_SERVE_SERVER_H
#define PAGEDINFER_SERVE_SERVER_H

#include "cli.h"
#include "serve/conn.h"
#include "serve/keys.h"
#include "serve/kv_events.h"
#include "serve/metrics.h"
#include "serve/prep.h"
#include "serve/text.h"

struct gen;

enum serve_state {
    SERVE_LOADING,
    SERVE_READY,
    SERVE_DRAINING, /* no new requests; what runs may finish */
    SERVE_ENDING,   /* everything is being closed */
};

typedef struct server {
    const cli *c;
    uv_loop_t loop;
    net net;
    keys keys;
    metrics metrics;
    pi_engine *e;            /* NULL until it is loaded */
    pi_info info;            /* of e */
    bool suffix_first;       /* --spm-infill */
    pi_plan plan;            /* of e */
    const char *alias;       /* the model's name for clients */
    const char *aliases;     /* its other names, with commas between; "": it has none */
    char *names;             /* where these are, if --alias gives several; owned */
    char build[48];          /* of this program, as llama-server writes it: "bNUMBER-COMMIT" */
    int64_t created;         /* when the server started, seconds since 1970 */
    enum serve_state state;
    int exit_code;
    /* Set when the engine is ready, constant from then on: any thread. */
    int32_t anchor;          /* a token that prints text; -1: there is none */
    size_t anchor_len;       /* bytes of its text */
    bool has_structure;      /* the library knows json-schema, grammar, ... */
    struct gen *gens;        /* generations, from their body's arrival to their end */
    size_t n_gens;           /* in the list */
    size_t n_jobs;           /* other work on the pool */
    preps preps;             /* its lanes */
    uint64_t n_ids;          /* requests so far, for their ids */
    int64_t priority_lo, priority_hi; /* that clients may ask for */
    int64_t ping_s;          /* seconds after which a silent stream gets a comment; below 1: never */
    size_t send_max;         /* bytes of an answer that may wait for a slow client */
    uint64_t last_steps;     /* n_steps at the last look, and when it changed (uv_now) */
    uint64_t step_at;
    uint64_t n_ticks;        /* of the timer */
    uint64_t id_seed;        /* makes ids differ from those of other runs */
    kv_events *kv;           /* what the cache holds, published; NULL: it is not */
    bool kv_warned;          /* the log has a line of changes that were lost */
} server;

/* "chatcmpl-..."; in out. */
void server_new_id(server *s, const char *prefix, char out[64]);
/* true: the model is not answering, and *why says so. For /health. */
bool server_hangs(server *s, const char **why);
/* Seconds since the last step, while there is something to compute; else 0. */
double server_step_age(const server *s);
/* The bytes of one token, as they come in the middle of a text; the number, of which at most cap are written. Any
 * thread. */
size_t server_token_text(const server *s, int32_t id, bool special, char *out, size_t cap);
/* Bytes of text that a token adds behind those held in h, and how many characters begin in them, added to *chars. */
size_t server_token_count(const server *s, int32_t id, bool special, utf8_hold *h, size_t *chars);
/* The adapter of this name. Any thread. */
bool server_adapter(const server *s, const char *name, size_t n, pi_lora *out);
/* Adapters as entries of a list of models. */
json_t *adapter_models(const server *s, const char *parent);
/* Status that an error of the library means to a client. */
int status_of(int pi_code);

/* page.html; made by CMake. */
extern const unsigned char page_html[];
extern const size_t page_html_size;

/* ---- handlers, by file */
void handle_page(server *s, exchange *ex);
void handle_models(server *s, exchange *ex);
void handle_version(server *s, exchange *ex);
void handle_openapi(server *s, exchange *ex);
void handle_props(server *s, exchange *ex);
void handle_slots(server *s, exchange *ex);
void handle_health(server *s, exchange *ex);
void handle_metrics(server *s, exchange *ex);
void handle_tokenize(server *s, exchange *ex);
void handle_detokenize(server *s, exchange *ex);
void handle_count_tokens(server *s, exchange *ex);
void handle_count_chat(server *s, exchange *ex);
void handle_count_response(server *s, exchange *ex);
void handle_apply_template(server *s, exchange *ex);
void handle_adapters(server *s, exchange *ex);
void handle_adapter_scales(server *s, exchange *ex);
void handle_adapter_load(server *s, exchange *ex);
void handle_adapter_unload(server *s, exchange *ex);
void route_request(void *ud, exchange *ex);
int route_head(void *ud, const http_request *req, const char **why);

#endif
