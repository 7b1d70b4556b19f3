/* What clients see of the models of a front end: lists, health, metrics, events; and orders to load and unload. Runs on
 * the loop's thread. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/metrics.h"
#include "serve/router_impl.h"

enum { EVENTS_UNREAD_MAX = 64 << 10, MAX_ORDER = 4096 };

/* -------------------------------------------------------------------------------------------------- lists of models */

static json_t *status_json(const router *r, size_t i)
{
    const model *m = r->m[i];
    const model_status *st = &r->st[i];
    json_t *o = json_pack("{s:s, s:b, s:I, s:I}", "value", model_state_word(st->state), "pinned", (int) st->pinned,
                          "requests", (json_int_t) st->n_requests, "waiting", (json_int_t) m->n_waiting);
    if (st->bytes) json_object_set_new(o, "memory_bytes", json_integer((json_int_t) st->bytes));
    if (st->state == MODEL_LOADING) json_object_set_new(o, "progress", json_real(m->percent / 100.0));
    if (st->state != MODEL_FAILED) return o;
    json_object_set_new(o, "failed", json_true());
    json_object_set_new(o, "exit_code", json_integer(m->exit_code));
    json_object_set_new(o, "message", text_json(m->tail, m->n_tail));
    return o;
}

static json_t *aliases_json(const listed_model *l)
{
    json_t *list = json_array();
    for (const char *p = l->aliases; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",")) json_array_append_new(list, text_json(p, strcspn(p, ",")));
    return list;
}

/* Returns the model's entry in /v1/models: what its process has reported, with the state. */
static json_t *entry(const router *r, size_t i)
{
    const model *m = r->m[i];
    const json_t *known = json_object_get(m->info, "model");
    json_t *o = known ? json_copy((json_t *) known) : json_object();
    const bool vision = m->info ? json_is_true(json_object_get(m->info, "vision")) : m->l->mmproj != NULL;
    json_object_set_new(o, "id", text_json(m->l->name, strlen(m->l->name)));
    json_object_set_new(o, "aliases", aliases_json(m->l));
    json_object_set_new(o, "object", json_string("model"));
    json_object_set_new(o, "created", json_integer((json_int_t) r->s->created));
    json_object_set_new(o, "owned_by", json_string("pagedinfer"));
    json_object_set_new(o, "source", json_string(m->l->source));
    json_object_set_new(o, "can_remove", json_boolean(!strcmp(m->l->source, "cache")));
    json_object_set_new(o, "status", status_json(r, i));
    json_object_set_new(o, "architecture", json_pack("{s:[s, s*], s:[s]}", "input_modalities", "text",
                                                     vision ? "image" : NULL, "output_modalities", "text"));
    return o;
}

/* Appends an entry for each adapter of the model's process. */
static void append_adapters(const router *r, size_t i, json_t *list)
{
    const json_t *name;
    size_t k;
    json_array_foreach(r->m[i]->adapters, k, name)
        json_array_append_new(list, json_pack("{s:O, s:[], s:s, s:I, s:s, s:s, s:o, s:o, s:b}", "id", name, "aliases",
                                              "object", "model", "created", (json_int_t) r->s->created, "owned_by",
                                              "pagedinfer", "source", r->list.m[i].source, "parent",
                                              text_json(r->list.m[i].name, strlen(r->list.m[i].name)), "status",
                                              status_json(r, i), "can_remove", 0));
}

void router_answer_models(router *r, exchange *ex)
{
    json_t *data = json_array();
    for (size_t i = 0; i < r->list.n; i++) json_array_append_new(data, entry(r, i));
    for (size_t i = 0; i < r->list.n; i++) append_adapters(r, i, data);
    router_list_downloads(r, data);
    answer_json(ex, 200, json_pack("{s:s, s:o}", "object", "list", "data", data));
}

static void front_models(server *s, exchange *ex)
{
    router *r = s->router;
    static const char before[] = "/v1/models/";
    const char *name = memmem(ex->req.target.p, ex->req.path_len, before, sizeof before - 1);
    char text[MODEL_NAME_MAX];
    if (name) {
        name += sizeof before - 1;
        const int n = (int) (ex->req.path_len - (size_t) (name - ex->req.target.p));
        snprintf(text, sizeof text, "?m=%.*s", n, name); /* decodes %2F */
        size_t i = r->list.n;
        if (query_value(text, strlen(text), "m", text, sizeof text)) i = model_list_find(&r->list, text);
        if (i < r->list.n) answer_json(ex, 200, entry(r, i));
        else answer_error(ex, 404, "model", "model_not_found", "unknown model; GET /v1/models lists the models");
        return;
    }
    if (query_value(ex->req.target.p + ex->req.path_len, ex->req.target.n - ex->req.path_len, "reload", text,
                    sizeof text) && *text)
        router_reload(r, ex);
    else
        router_answer_models(r, ex);
}

/* Returns the model's entry in Ollama's lists. */
static json_t *ollama(const router *r, size_t i, const char *list)
{
    const model *m = r->m[i];
    const json_t *known = json_object_get(m->info, list);
    json_t *o = known ? json_copy((json_t *) known) : json_object(), *name = text_json(m->l->name, strlen(m->l->name));
    char when[40];
    struct tm tm;
    json_object_set(o, "name", name);
    json_object_set_new(o, "model", name);
    if (known) return o;
    gmtime_r(&m->l->modified, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_object_set_new(o, "modified_at", json_string(when));
    json_object_set_new(o, "size", json_integer((json_int_t) m->l->file_bytes));
    json_object_set_new(o, "details", json_pack("{s:s, s:s, s:s, s:[], s:s, s:s}", "parent_model", "", "format", "gguf",
                                                "family", "", "families", "parameter_size", "", "quantization_level",
                                                ""));
    return o;
}

static void front_tags(server *s, exchange *ex)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->router->list.n; i++) json_array_append_new(list, ollama(s->router, i, "tags"));
    answer_json(ex, 200, json_pack("{s:o}", "models", list));
}

static void front_ps(server *s, exchange *ex)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->router->list.n; i++)
        if (s->router->st[i].state == MODEL_LOADED) json_array_append_new(list, ollama(s->router, i, "ps"));
    answer_json(ex, 200, json_pack("{s:o}", "models", list));
}

/* -------------------------------------------------------------------------------------------------- health, metrics */

/* Not ready while the models of the start are loading for the first time. */
static void front_health(server *s, exchange *ex)
{
    const router *r = s->router;
    bool loads = false;
    for (size_t i = 0; i < r->list.n; i++)
        loads |= r->list.m[i].on_startup && !r->m[i]->n_loads && !r->m[i]->n_failures && r->m[i]->order;
    if (s->state != SERVE_READY) answer_error(ex, 503, NULL, NULL, "the server is shutting down");
    else if (loads) answer_error(ex, 503, NULL, "loading", "Loading model");
    else answer_json(ex, 200, json_pack("{s:s, s:o}", "status", "ok", "preparation", preps_json(s)));
}

static void front_live(server *s, exchange *ex)
{
    (void) s;
    answer_json(ex, 200, json_pack("{s:s}", "status", "ok"));
}

static void front_props(server *s, exchange *ex)
{
    const router *r = s->router;
    answer_json(ex, 200, json_pack("{s:s, s:I, s:b, s:I, s:s, s:s, s:s, s:{s:I, s:{}}, s:b, s:b, s:b}", "role",
                                   "router", "max_instances", (json_int_t) r->limits.max_models, "models_autoload",
                                   (int) cli_bool(s->c, "models-autoload"), "model_memory",
                                   (json_int_t) r->limits.max_bytes, "model_alias", "pagedinfer", "model_path", "none",
                                   "build_info", s->sv.build, "default_generation_settings", "n_ctx", (json_int_t) 0,
                                   "params", "endpoint_slots", (int) cli_bool(s->c, "slots"), "endpoint_props", 0,
                                   "endpoint_metrics", 1));
}

/* Appends a label value with its quotes escaped. */
static void put_label(buf *b, const char *name)
{
    for (; *name; name++) {
        if (*name == '"' || *name == '\\') buf_put(b, "\\", 1);
        buf_put(b, (unsigned char) *name < ' ' ? " " : name, 1);
    }
}

/* Writes one metric of all models. */
static void put_metric(buf *b, const router *r, const char *name, const char *type, const char *help,
                       double (*value)(const router *r, size_t i))
{
    buf_fmt(b, "# HELP pagedinfer:%s %s\n# TYPE pagedinfer:%s %s\n", name, help, name, type);
    for (size_t i = 0; i < r->list.n; i++) {
        buf_fmt(b, "pagedinfer:%s{model_name=\"", name);
        put_label(b, r->list.m[i].name);
        buf_fmt(b, "\"} %.17g\n", value(r, i));
    }
}

static double is_loaded(const router *r, size_t i) { return r->st[i].state == MODEL_LOADED; }
static double is_failed(const router *r, size_t i) { return r->st[i].state == MODEL_FAILED; }
static double n_running(const router *r, size_t i) { return (double) r->st[i].n_requests; }
static double n_waiting(const router *r, size_t i) { return (double) r->m[i]->n_waiting; }
static double n_requests(const router *r, size_t i) { return (double) r->m[i]->n_requests; }
static double n_loads(const router *r, size_t i) { return (double) r->m[i]->n_loads; }
static double n_failures(const router *r, size_t i) { return (double) r->m[i]->n_failures; }
static double load_s(const router *r, size_t i) { return r->m[i]->load_s; }
static double memory(const router *r, size_t i) { return (double) r->st[i].bytes; }

static void put_value(buf *b, const char *name, const char *type, const char *help, double v)
{
    buf_fmt(b, "# HELP pagedinfer:%s %s\n# TYPE pagedinfer:%s %s\npagedinfer:%s %.17g\n", name, help, name, type, name,
            v);
}

static void front_metrics(server *s, exchange *ex)
{
    const router *r = s->router;
    buf b = {0};
    put_metric(&b, r, "model_loaded", "gauge", "1 = the model is loaded.", is_loaded);
    put_metric(&b, r, "model_failed", "gauge", "1 = the model's process ended unexpectedly.", is_failed);
    put_metric(&b, r, "model_requests_running", "gauge", "Requests that the model's process handles.", n_running);
    put_metric(&b, r, "model_requests_waiting", "gauge", "Requests that wait for the model.", n_waiting);
    put_metric(&b, r, "model_requests_total", "counter", "Requests given to the model's process.", n_requests);
    put_metric(&b, r, "model_loads_total", "counter", "Completed loads of the model.", n_loads);
    put_metric(&b, r, "model_failures_total", "counter", "Unexpected ends of the model's process.", n_failures);
    put_metric(&b, r, "model_load_seconds", "gauge", "Time of the last load, from the start of the process.", load_s);
    put_metric(&b, r, "model_memory_bytes", "gauge", "Planned memory of the model's process.", memory);
    put_value(&b, "models_memory_limit_bytes", "gauge", "Planned memory allowed for all models; 0 = no limit.",
              (double) r->limits.max_bytes);
    put_value(&b, "connections", "gauge", "Open connections.", (double) s->net.n_conns);
    put_value(&b, "connections_accepted_total", "counter", "Accepted connections.", (double) s->net.n_accepted);
    put_value(&b, "connections_refused_total", "counter", "Connections refused above the limit.",
              (double) s->net.n_refused);
    buf_str(&b, "# HELP pagedinfer:http_responses_total HTTP responses by status.\n"
                "# TYPE pagedinfer:http_responses_total counter\n");
    for (int i = 2; i < 6; i++)
        buf_fmt(&b, "pagedinfer:http_responses_total{code=\"%dxx\"} %" PRIu64 "\n", i, s->metrics.status[i]);
    if (b.failed) answer_error(ex, 503, NULL, NULL, "out of memory");
    else answer(ex, 200, "text/plain; version=0.0.4; charset=utf-8", "", b.p, b.n);
    buf_free(&b);
}

/* ----------------------------------------------------------------------------------------------------------- events */

static void unsubscribe(exchange *ex)
{
    router *r = ((server *) ex->net->ud)->router;
    subscriber *u = ex->job, **at = &r->subscribers;
    while (*at != u) at = &(*at)->next;
    *at = u->next;
    free(u);
    exchange_abort(ex);
}

/* Writes to a subscriber; one that does not read is disconnected. */
static void put(router *r, subscriber *u, const char *text, size_t n)
{
    exchange *ex = u->ex;
    u->sent_at = uv_now(&r->s->loop);
    ex->on_gone = NULL; /* u must outlive a disconnect while writing */
    stream_put(ex, text, n);
    ex->on_gone = unsubscribe;
    if (!ex->conn || stream_waiting(ex) > EVENTS_UNREAD_MAX) unsubscribe(ex);
}

void router_event(router *r, const char *name, const char *event, json_t *data)
{
    json_t *root = json_pack("{s:o, s:s, s:o*}", "model", text_json(name, strlen(name)), "event", event, "data", data);
    char *text = r->subscribers ? json_write(root, ANSWER_DIGITS) : NULL;
    buf b = {0};
    json_decref(root);
    if (!text_failed() && text) buf_fmt(&b, "data: %s\n\n", text);
    free(text);
    for (subscriber *u = b.failed || !b.n ? NULL : r->subscribers, *next; u; u = next) {
        next = u->next;
        put(r, u, b.p, b.n);
    }
    buf_free(&b);
}

void router_publish(router *r, size_t i)
{
    if (!r->subscribers) return;
    json_t *data = status_json(r, i);
    json_object_set_new(data, "status", json_string(model_state_word(r->st[i].state)));
    router_event(r, r->list.m[i].name, "model_status", data);
}

void router_ping(router *r)
{
    const uint64_t t = uv_now(&r->s->loop);
    for (subscriber *u = r->s->ping_s > 0 ? r->subscribers : NULL, *next; u; u = next) {
        next = u->next;
        if (t >= u->sent_at + (uint64_t) r->s->ping_s * 1000) put(r, u, ":\n\n", 3);
    }
}

void handle_model_events(server *s, exchange *ex)
{
    subscriber *u = s->router ? calloc(1, sizeof *u) : NULL;
    if (!s->router || !u) {
        if (s->router) answer_error(ex, 503, NULL, NULL, "out of memory");
        else answer_error(ex, 404, NULL, NULL, "this server has one model: start it with --models-dir for several");
        return;
    }
    *u = (subscriber) {.ex = ex, .next = s->router->subscribers, .sent_at = uv_now(&s->loop)};
    s->router->subscribers = u;
    ex->job = u;
    stream_begin(ex, "text/event-stream");
    ex->on_gone = unsubscribe;
    if (!ex->conn) unsubscribe(ex);
}

/* ----------------------------------------------------------------------------------------------------------- orders */

/* Finds the model that the body names. Returns false after a response. ends: a download of that name is canceled. */
static bool ordered(server *s, exchange *ex, bool ends, size_t *i)
{
    body_fields f;
    const buf *b = &ex->req.body;
    if (!s->router) {
        answer_error(ex, 404, NULL, NULL, "this server has one model: start it with --models-dir for several");
        return false;
    }
    body_scan(b->p ? b->p : "", b->n < MAX_ORDER ? b->n : 0, "model", &f);
    if (f.fault != BODY_OK) {
        answer_error(ex, 400, "model", NULL, "the body must be {\"model\": NAME}");
        return false;
    }
    *i = model_list_find(&s->router->list, f.model);
    if (*i < s->router->list.n) return true;
    if (ends && router_cancel_download(s->router, f.model)) {
        answer_json(ex, 200, json_pack("{s:b}", "success", 1));
        return false;
    }
    answer_error(ex, 404, "model", "model_not_found", "model '%.200s' does not exist; GET /v1/models lists the models",
                 f.model);
    return false;
}

void handle_model_load(server *s, exchange *ex)
{
    size_t i;
    if (!ordered(s, ex, false, &i)) return;
    if (s->router->st[i].state == MODEL_LOADED) {
        answer_error(ex, 400, "model", NULL, "the model is already running");
        return;
    }
    router_load(s->router, i);
    answer_json(ex, 200, json_pack("{s:b}", "success", 1));
}

void handle_model_unload(server *s, exchange *ex)
{
    size_t i;
    if (!ordered(s, ex, true, &i)) return;
    const enum model_state state = s->router->st[i].state;
    if (state == MODEL_UNLOADED && !s->router->m[i]->first) {
        answer_error(ex, 400, "model", NULL, "the model is not running");
        return;
    }
    router_unload(s->router, i);
    answer_json(ex, 200, json_pack("{s:b}", "success", 1));
}

void (*router_handler(const route *rt, bool has_model))(server *s, exchange *ex)
{
    static const struct {
        void (*single)(server *s, exchange *ex);
        void (*front)(server *s, exchange *ex); /* without ?model= */
    } table[] = {{handle_page, handle_page},       {handle_version, handle_version},
                 {handle_openapi, handle_openapi}, {handle_ollama_version, handle_ollama_version},
                 {handle_models, front_models},    {handle_health, front_health},
                 {handle_live, front_live},        {handle_metrics, front_metrics},
                 {handle_props, front_props},      {handle_ollama_tags, front_tags},
                 {handle_ollama_ps, front_ps},     {handle_model_load, handle_model_load},
                 {handle_model_unload, handle_model_unload}, {handle_model_events, handle_model_events},
                 {handle_model_add, handle_model_add}, {handle_model_remove, handle_model_remove}};
    const bool detailed = rt->handle == handle_metrics || rt->handle == handle_props || rt->handle == handle_health;
    for (size_t i = 0; rt->handle && i < sizeof table / sizeof *table; i++)
        if (table[i].single == rt->handle && !(has_model && detailed)) return table[i].front;
    return NULL;
}
