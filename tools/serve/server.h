/* State shared by the parts of `pagedinfer serve`: the server, its counters and keys. Everything runs on the loop's
 * thread unless a function says otherwise. */
#ifndef PAGEDINFER_SERVE_SERVER_H
#define PAGEDINFER_SERVE_SERVER_H

#include "cli.h"
#include "serve/conn.h"
#include "serve/keys.h"
#include "serve/kv_events.h"
#include "serve/metrics.h"
#include "serve/prep.h"
#include "serve/store.h"
#include "serve/text.h"

struct gen;
struct router;
struct supervised;

enum serve_state {
    SERVE_LOADING,
    SERVE_READY,
    SERVE_DRAINING, /* no new requests; running ones may finish */
    SERVE_ENDING,   /* everything is being closed */
};

typedef struct server {
    const cli *c;
    uv_loop_t loop;
    net net;
    keys keys;
    metrics metrics;
    pi_engine *e;            /* NULL until the model is loaded */
    pi_info info;            /* of e */
    double step_target_ms;   /* option step-target-ms of e; 0 = no target */
    bool suffix_first;       /* --spm-infill */
    pi_plan plan;            /* of e */
    const char *alias;       /* the model's name: first name of --alias, else the file's name; not owned */
    const char *aliases;     /* further names of --alias, separated by commas; "" = none; not owned */
    char *names;             /* copy of an --alias with several names, to which both point; owned; NULL = none */
    char build[48];          /* build of this program in llama-server's format: "bNUMBER-COMMIT" */
    int64_t created;         /* start of the server, seconds since 1970 */
    enum serve_state state;
    int exit_code;
    /* Set when the engine is ready, constant afterwards: thread-safe. */
    int32_t anchor;          /* a token that prints text: other tokens are decoded after it; -1 = none found */
    size_t anchor_len;       /* bytes of the anchor's text */
    bool can_call, can_think; /* the chat template has tools; it switches reasoning on and off */
    bool has_structure;      /* the library supports json-schema, grammar, ... */
    response_store *store;   /* --response-store; NULL = disabled */
    struct gen *gens;        /* generations, from the arrival of their body to their end */
    size_t n_gens;           /* generations in gens */
    size_t n_jobs;           /* other work on the pool */
    preps preps;             /* lanes of the pool */
    uint64_t n_ids;          /* number of ids made by server_new_id so far */
    int64_t priority_lo, priority_hi; /* range of priorities that clients may request */
    int64_t ping_s;          /* a silent stream gets a comment after this many seconds; below 1 = never */
    size_t send_max;         /* unwritten bytes of a stream's choice at which it is canceled */
    uint64_t last_steps;     /* the engine's n_steps at the last check by server_hangs */
    uint64_t step_at;        /* uv_now at which a check found new steps or new work; 0 = no work */
    uint64_t n_ticks;        /* ticks of the timer */
    uint64_t id_seed;        /* makes ids differ from those of other runs */
    kv_events *kv;           /* publisher of prefix cache changes; NULL = disabled */
    char media_marker[128];  /* marks images in prompts of /completion; constant after the start */
    bool kv_warned;          /* a log line about lost changes was written */
    struct router *router;   /* the models of a front end, which has no engine; NULL = one model in this process */
    struct supervised *supervised; /* connection to the front end of this process; NULL = none */
} server;

/* Writes prefix and a new unique id to out, for example "chatcmpl-...". */
void server_new_id(server *s, const char *prefix, char out[64]);
/* For /health: true if the engine failed, or a step or a preparation takes longer than --hang-timeout; *why is the
 * reason. Updates last_steps and step_at. */
bool server_hangs(server *s, const char **why);
/* Returns the seconds since step_at; 0 if the engine has no work. */
double server_step_age(const server *s);
/* Writes the text of one token, as it appears within a text, to out; at most cap bytes. Returns its full length in
 * bytes. Thread-safe. */
size_t server_token_text(const server *s, int32_t id, bool special, char *out, size_t cap);
/* Returns the bytes of UTF-8 text that become complete if the token's bytes are added to h. Updates h, and adds the
 * number of these characters to *chars. Thread-safe. */
size_t server_token_count(const server *s, int32_t id, bool special, utf8_hold *h, size_t *chars);
/* Stores the adapter with this name of n bytes in *out; false if it is not loaded. Thread-safe. */
bool server_adapter(const server *s, const char *name, size_t n, pi_lora *out);
/* Returns the adapters as a JSON list of entries for /v1/models; parent: the model's name. NULL = out of memory. */
json_t *adapter_models(const server *s, const char *parent);
/* True if the model has this name of n bytes. */
bool server_is_named(const server *s, const char *name, size_t n);
/* Returns the HTTP status for an error code of the library. */
int status_of(int pi_code);

/* Describes this process's model for a front end: {"model": entry of /v1/models, "tags", "ps": entries of Ollama's
 * lists, "show": its answer to /api/show, "vision"}. NULL = out of memory. */
json_t *server_description(const server *s);
/* ollama.c: the model's entry in /api/tags or, if running, in /api/ps. */
json_t *ollama_entry(const server *s, bool running);
/* ollama.c: the answer to /api/show. */
json_t *ollama_properties(const server *s, bool verbose);

/* page.html; generated by CMake. */
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
void handle_live(server *s, exchange *ex);
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
void handle_response_get(server *s, exchange *ex);
void handle_response_delete(server *s, exchange *ex);
void handle_ollama_version(server *s, exchange *ex);
void handle_ollama_tags(server *s, exchange *ex);
void handle_ollama_ps(server *s, exchange *ex);
void handle_ollama_show(server *s, exchange *ex);
void handle_ollama_chat(server *s, exchange *ex);
void handle_ollama_generate(server *s, exchange *ex);
void handle_model_load(server *s, exchange *ex);
void handle_model_unload(server *s, exchange *ex);
void handle_model_events(server *s, exchange *ex);
void route_request(void *ud, exchange *ex);
int route_head(void *ud, const http_request *req, const char **why);

#endif
