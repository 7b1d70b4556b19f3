/* Models and requests of a front end (see router.h). */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/log.h"
#include "serve/relay.h"
#include "serve/router_impl.h"

enum { INLINE_BODY = 256 << 10, KILL_MS = 5000, WAITING_BYTES_MAX = 256 << 20 };

/* Options of the front end, or set for each process. */
static const char RESERVED[] =
    "help version config print-config list-devices log-file host port api-prefix api-key api-key-file cors "
    "ssl-cert-file ssl-key-file ui models-dir models-preset models-max models-autoload models-cache models-wait "
    "models-updates model-memory sleep-idle-seconds";
/* For the model of the command line, whose files this program has downloaded. */
static const char DOWNLOADS[] = " dry-run hf-repo hf-file model-url mmproj-url hf-repo-draft";

struct forward {            /* a request for a model */
    router *r;
    exchange *ex;
    model *m;               /* its model; NULL = not yet known */
    forward *prev, *next;   /* in the model's list of waiting requests */
    http_request in;        /* the request inside of --api-prefix; points into ex */
    const route *rt;
    prep scan;              /* the scan of a large body, on the pool */
    body_fields fields;
    uint64_t demand;        /* its number among all demands */
    uint64_t until;         /* uv_now at which the wait ends */
    uint64_t sent_at;       /* uv_now of the last output */
    size_t n_body;          /* bytes of its body, while it waits */
    bool waits;             /* in the list of its model */
    bool begun;             /* the stream has begun */
    bool probes;            /* /v1/responses/ID without a model: every loaded one is asked */
    size_t n_asked;         /* probes: models below this id were asked */
};

/* --------------------------------------------------------------------------------------------- requests and demands */

/* Sets the policy's view of a model's demand. */
static void set_demand(router *r, size_t i)
{
    const model *m = r->m[i];
    const uint64_t oldest = m->first ? m->first->demand : 0;
    r->st[i].demand_at = !oldest || (m->order && m->order < oldest) ? m->order : oldest;
}

static void stop_waiting(forward *f)
{
    model *m = f->m;
    if (!f->waits) return;
    *(f->prev ? &f->prev->next : &m->first) = f->next;
    *(f->next ? &f->next->prev : &m->last) = f->prev;
    f->prev = f->next = NULL;
    f->waits = false;
    f->r->waiting_bytes -= f->n_body;
    m->n_waiting--;
    set_demand(f->r, f->m->i);
}

static void forward_free(forward *f)
{
    router *r = f->r;
    stop_waiting(f);
    r->n_forwards--;
    free(f);
}

/* Ends a request that no process has got. */
static void __attribute__((format(printf, 4, 5))) refuse(forward *f, int status, const char *code, const char *fmt, ...)
{
    exchange *ex = f->ex;
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ex->on_gone = NULL;
    json_t *root = exchange_error(ex, status, status == 404 ? "model" : NULL, code, text);
    if (f->begun) relay_stream_error(ex, root);
    else answer_json(ex, status, root);
    forward_free(f);
}

static void on_gone(exchange *ex)
{
    forward *f = ex->job;
    router *r = f->r;
    ex->generates = false;
    exchange_abort(ex);
    forward_free(f);
    router_run(r); /* a planned model may have no demand any more */
}

static void relayed(void *ud)
{
    forward *f = ud;
    router *r = f->r;
    r->st[f->m->i].n_requests--;
    r->st[f->m->i].used_at = router_now(r);
    forward_free(f);
    router_run(r);
}

static void ask_next(void *ud);

/* Gives a request to the model's process. */
static void give(forward *f)
{
    router *r = f->r;
    model *m = f->m;
    char socket[108];
    private_dir_path(&r->dir, "", m->id, ".sock", socket);
    stop_waiting(f);
    r->st[m->i].n_requests++;
    r->st[m->i].used_at = router_now(r);
    m->n_requests++;
    const relay_request q = {.s = r->s, .ex = f->ex, .in = &f->in, .socket = socket, .model = m->l->name,
                             .begun = f->begun, .done = relayed,
                             .missing = f->probes ? ask_next : NULL, .ud = f};
    relay_start(&q);
}

/* Asks the next loaded model for a stored response, in the order of ids. */
static void probe(forward *f)
{
    router *r = f->r;
    model *next = NULL;
    for (size_t i = 0; i < r->list.n; i++) {
        model *m = r->m[i];
        if (r->st[i].state == MODEL_LOADED && m->id >= f->n_asked && (!next || m->id < next->id)) next = m;
    }
    f->m = next;
    if (!next) {
        refuse(f, 404, NULL, "no loaded model has this response; unloading a model drops its responses");
        return;
    }
    f->n_asked = next->id + 1;
    give(f);
}

/* A process lacks the stored response. */
static void ask_next(void *ud)
{
    forward *f = ud;
    router *r = f->r;
    r->st[f->m->i].n_requests--;
    f->ex->job = f;
    f->ex->on_gone = on_gone;
    f->ex->generates = false;
    probe(f);
    router_run(r);
}

static void wait_for(forward *f)
{
    model *m = f->m;
    f->waits = true;
    f->n_body = f->ex->req.body.n;
    f->r->waiting_bytes += f->n_body;
    f->demand = ++f->r->n_demands;
    f->until = router_now(f->r) + f->r->wait_ms;
    f->sent_at = router_now(f->r);
    f->prev = m->last;
    *(m->last ? &m->last->next : &m->first) = f;
    m->last = f;
    m->n_waiting++;
    set_demand(f->r, f->m->i);
    router_run(f->r);
}

/* Returns true if the request may load its model: ?autoload=, else --models-autoload. Scrapers of metrics load none. */
static bool may_load(const forward *f)
{
    char text[8];
    bool on = cli_bool(f->r->s->c, "models-autoload");
    const http_request *in = &f->in;
    if (f->rt->handle == handle_metrics || f->rt->handle == handle_slots) on = false;
    if (query_value(in->target.p + in->path_len, in->target.n - in->path_len, "autoload", text, sizeof text))
        on = !strcmp(text, "true") || !strcmp(text, "1");
    return on;
}

/* Answers /api/show for a model that was loaded before. Clients ask for the properties of every model in the list, and
 * must not load one after another. Returns false if the process has to answer. */
static bool answer_known(forward *f)
{
    const model *m = f->m;
    json_t *known = json_object_get(m->info, "show");
    exchange *ex = f->ex;
    if (f->rt->handle != handle_ollama_show || f->r->st[m->i].state == MODEL_LOADED || !known) return false;
    ex->on_gone = NULL;
    answer_json(ex, 200, json_incref(known));
    forward_free(f);
    return true;
}

/* The model is known: gives the request to its process, or waits for it. */
static void route_to(forward *f)
{
    const router *r = f->r;
    const model_status *st = &r->st[f->m->i];
    const char *name = f->m->l->name;
    if (r->ending) {
        refuse(f, 503, NULL, "the server is shutting down");
    } else if (st->state == MODEL_LOADED) {
        give(f);
    } else if (!may_load(f) && st->state != MODEL_SLEEPING && !st->demand_at) {
        refuse(f, 400, "model_not_loaded", "model '%s' is not loaded: send POST /models/load first", name);
    } else if (st->state == MODEL_FAILED && router_now(r) < st->retry_at) {
        refuse(f, 503, "model_failed", "model '%s' failed %u times in a row; try again in %.0f s: %s", name,
               f->m->n_failed, (double) (st->retry_at - router_now(r)) / 1e3 + 0.5, f->m->tail);
    } else if (r->waiting_bytes && r->waiting_bytes + f->ex->req.body.n > WAITING_BYTES_MAX) {
        refuse(f, 429, "too_many_waiting", "too many requests wait for models: try again when a model is loaded");
    } else {
        wait_for(f);
    }
}

/* ------------------------------------------------------------------------------------------- the model of a request */

static void unknown(forward *f, const char *name)
{
    char near[64];
    const bool found = model_list_near(&f->r->list, name, near);
    refuse(f, 404, "model_not_found", "model '%.200s' does not exist%s%s; GET /v1/models lists the models", name,
           found ? "; the nearest name is " : "", found ? near : "");
}

static void take_name(forward *f, const char *name)
{
    const router *r = f->r;
    size_t i = model_list_find(&r->list, name);
    if (i == r->list.n) i = router_find_adapter(r, name);
    if (i == r->list.n && r->list.n == 1) i = 0; /* a single model has every name */
    if (i < r->list.n) f->m = r->m[i];
    if (!f->m) unknown(f, name);
    else if (!answer_known(f)) route_to(f);
}

static void take_fields(forward *f)
{
    static const char *const why[] = {
        [BODY_NO_MODEL] = "the field 'model' is missing: name one of the models that GET /v1/models lists",
        [BODY_NOT_TEXT] = "'model' must be a string",
        [BODY_NOT_OBJECT] = "the body is no JSON object with the field 'model': add it, or ?model=NAME to the path"};
    if (f->fields.fault == BODY_OK || f->r->list.n == 1) take_name(f, f->fields.model);
    else if (f->fields.fault == BODY_NO_MEMORY) refuse(f, 503, NULL, "out of memory");
    else refuse(f, 400, "model_missing", "%s", why[f->fields.fault]);
}

static bool scan_body(prep *p)
{
    forward *f = p->owner;
    const buf *b = &f->ex->req.body;
    const char *text = b->p ? b->p : "";
    body_scan(text, b->n, "model", &f->fields);
    if (f->fields.fault == BODY_NO_MODEL && f->rt->handle == handle_ollama_show)
        body_scan(text, b->n, "name", &f->fields);
    return true;
}

/* The client has disconnected during the scan. */
static void on_gone_scan(exchange *ex)
{
    forward *f = ex->job;
    prep_cancel(&f->scan);
}

static void scanned(prep *p, int code)
{
    forward *f = p->owner;
    exchange *ex = f->ex;
    ex->on_gone = on_gone;
    if (!ex->conn) on_gone(ex);
    else if (code) refuse(f, code == PI_ENOMEM ? 503 : 504, NULL, "%s", pi_strerror(code));
    else take_fields(f);
}

static forward *forward_new(router *r, exchange *ex, const http_request *in, const route *rt)
{
    forward *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    *f = (forward) {.r = r, .ex = ex, .in = *in, .rt = rt,
                    .scan = {.owner = f, .run = scan_body, .done = scanned}};
    r->n_forwards++;
    ex->job = f;
    ex->on_gone = on_gone;
    return f;
}

void router_request(server *s, exchange *ex, const http_request *in, const route *rt)
{
    router *r = s->router;
    char name[MODEL_NAME_MAX];
    const char *query = in->target.p + in->path_len;
    const bool named = query_value(query, in->target.n - in->path_len, "model", name, sizeof name);
    void (*handle)(server *, exchange *) = router_handler(rt, named);
    if (handle) {
        handle(s, ex);
        return;
    }
    forward *f = forward_new(r, ex, in, rt);
    if (!f) {
        answer_error(ex, 503, NULL, NULL, "out of memory");
    } else if (!named && (rt->handle == handle_response_get || rt->handle == handle_response_delete)) {
        f->probes = true;
        probe(f);
    } else if (named || (in->method != HTTP_POST && r->list.n == 1)) {
        take_name(f, named ? name : "");
    } else if (in->method != HTTP_POST) {
        refuse(f, 400, "model_missing", "name a model: add ?model=NAME to the path; GET /v1/models lists the models");
    } else if (ex->req.body.n > INLINE_BODY) {
        ex->on_gone = on_gone_scan;
        prep_start_heavy(&f->scan, s, ex, ex->req.body.n);
    } else {
        scan_body(&f->scan);
        take_fields(f);
    }
}

/* -------------------------------------------------------------------------------------------------------- processes */

/* Refuses all requests that wait for the model. */
static void refuse_all(router *r, size_t i, int status, const char *code, const char *why)
{
    r->m[i]->order = 0;
    set_demand(r, i);
    /* A refused client may send its next request from within refuse: that one waits for the next attempt. */
    for (size_t n = r->m[i]->n_waiting; n && r->m[i]->first; n--) refuse(r->m[i]->first, status, code, "%s", why);
}

static void set_state(router *r, size_t i, enum model_state state)
{
    if (r->st[i].state == state) return;
    r->st[i].state = state;
    router_publish(r, i);
}

/* Appends a line to the end of the model's log, for clients. Lines of requests name other clients. */
static void keep_line(model *m, const char *line)
{
    static const char mine[] = "pagedinfer serve: ";
    if ((*line >= '0' && *line <= '9') || *line == '{' || strstr(line, " is ready: ")) return;
    if (!strncmp(line, mine, sizeof mine - 1)) line += sizeof mine - 1;
    size_t n = strnlen(line, LOG_TAIL / 3);
    while (m->n_tail && m->n_tail + n + 2 > LOG_TAIL) { /* drops the oldest line */
        const char *end = memchr(m->tail, '\n', m->n_tail);
        const size_t k = end ? (size_t) (end - m->tail) + 1 : m->n_tail;
        memmove(m->tail, m->tail + k, m->n_tail -= k);
    }
    if (m->n_tail) m->tail[m->n_tail++] = '\n';
    memcpy(m->tail + m->n_tail, line, n);
    m->tail[m->n_tail += n] = 0;
}

static void on_log(void *ud, const char *line)
{
    model *m = ud;
    const cli *c = m->r->s->c;
    keep_line(m, line);
    if (c->log_level <= PI_LOG_NONE) return;
    if (cli_bool(c, "log-json")) fprintf(c->log, "%s\n", line);
    else fprintf(c->log, "[%s] %s\n", m->l->name, line);
}

/* Returns the part of the budget for one model, bytes; 0 = no limit. */
static uint64_t part_of_budget(const router *r)
{
    size_t n = r->list.n;
    if (r->limits.max_models && r->limits.max_models < n) n = r->limits.max_models;
    return r->limits.max_bytes / (n ? n : 1);
}

static void on_free(router *r, size_t i, uint64_t bytes)
{
    char text[40];
    bool loaded = false;
    for (size_t k = 0; k < router_n_all(r); k++) loaded |= r->st[k].state >= MODEL_LOADING;
    if (r->auto_bytes && !loaded && bytes)
        r->limits.max_bytes = (uint64_t) ((double) bytes * cli_float(r->s->c, "memory-utilization"));
    snprintf(text, sizeof text, "limit %" PRIu64, part_of_budget(r));
    model_process_say(r->m[i]->p, text);
}

static void on_ready(router *r, size_t i, const char *text)
{
    model *m = r->m[i];
    json_t *info = json_loads(text, 0, NULL);
    if (info) {
        json_decref(m->info);
        m->info = info;
    }
    m->n_failed = m->n_tail = *m->tail = 0;
    m->order = 0;
    m->n_loads++;
    m->percent = 100;
    m->load_s = (double) (router_now(r) - m->began_at) / 1e3;
    r->st[i].used_at = router_now(r);
    set_state(r, i, MODEL_LOADED);
    log_line(r->s, PI_LOG_WARN, "model %s: ready after %.3f s", m->l->name, m->load_s);
    set_demand(r, i);
    while (m->first) give(m->first);
}

static void on_line(void *ud, const char *line)
{
    model *m = ud;
    router *r = m->r;
    const size_t i = m->i;
    const enum model_state state = r->st[i].state;
    uint64_t bytes;
    int percent;
    if (state == MODEL_STOPPING) return;
    if (sscanf(line, "free %" SCNu64, &bytes) == 1) {
        on_free(r, i, bytes);
    } else if (sscanf(line, "memory %" SCNu64, &bytes) == 1 && state == MODEL_PLANNING) {
        r->st[i].bytes = bytes;
        set_state(r, i, MODEL_PLANNED);
    } else if (sscanf(line, "progress %d", &percent) == 1) {
        m->percent = percent;
        router_publish(r, i);
    } else if (!strncmp(line, "adapters ", 9)) {
        json_decref(m->adapters);
        m->adapters = json_loads(line + 9, 0, NULL);
    } else if (!strncmp(line, "ready ", 6) && state == MODEL_LOADING) {
        on_ready(r, i, line + 6);
    }
    router_run(r);
}

/* The process has ended in another way than by an order. */
static void fail(router *r, size_t i, int status, int signal)
{
    model *m = r->m[i];
    const bool loaded = r->st[i].state >= MODEL_LOADED;
    char how[64], why[LOG_TAIL + 200];
    m->exit_code = signal ? 128 + signal : status;
    m->n_failures++;
    m->n_failed += !loaded;
    r->st[i].retry_at = router_now(r) + model_backoff(m->n_failed);
    if (signal) snprintf(how, sizeof how, "signal %d", signal);
    else snprintf(how, sizeof how, "exit status %d", status);
    snprintf(why, sizeof why, "model '%s' %s (%s)%s%s", m->l->name, loaded ? "ended" : "could not be loaded", how,
             m->n_tail ? ": " : "", m->tail);
    log_line(r->s, PI_LOG_ERROR, "model %s: %s (%s)", m->l->name, loaded ? "ended" : "could not be loaded", how);
    set_state(r, i, MODEL_FAILED);
    if (!loaded) refuse_all(r, i, 500, "model_failed", why);
}

/* True if a process that was told to end has done so. A crash looks like an idle model until its exit is reported, so
 * the order to end may come after it. */
static bool obeyed(const model *m, int status, int signal)
{
    if (signal == SIGKILL) return m->kill_at == UINT64_MAX || m->r->ending;
    return signal == SIGTERM || (!signal && (!status || status == 128 + SIGTERM));
}

static void on_process_exit(void *ud, int status, int signal)
{
    model *m = ud;
    router *r = m->r;
    const size_t i = m->i;
    char socket[108];
    m->p = NULL;
    private_dir_path(&r->dir, "", m->id, ".sock", socket);
    unlink(socket);
    r->st[i].bytes = 0;
    json_decref(m->adapters);
    m->adapters = NULL;
    const bool stopped = r->st[i].state == MODEL_STOPPING && obeyed(m, status, signal);
    if (stopped) set_state(r, i, m->sleeps ? MODEL_SLEEPING : MODEL_UNLOADED);
    else fail(r, i, status, signal);
    m->sleeps = false;
    router_run(r);
}

/* Sets the options that the front end decides. */
static bool set_options(const router *r, size_t i, cli *c)
{
    const listed_model *l = &r->list.m[i];
    char path[108], number[32], *names = NULL;
    bool ok = asprintf(&names, "%s%s%s", l->name, *l->aliases ? "," : "", l->aliases) >= 0;
    private_dir_path(&r->dir, "", r->m[i]->id, ".sock", path);
    ok = ok && cli_set(c, "alias", names) && cli_set(c, "unix-socket", path) && cli_set(c, "supervised", "true");
    free(names);
    snprintf(number, sizeof number, "%" PRId64, l->stop_s);
    /* The front end limits the client's part of these. */
    ok = ok && cli_set(c, "drain-timeout", number) && cli_set(c, "max-header", "65536") &&
         cli_set(c, "max-connections", "1000000") && cli_set(c, "idle-timeout", "86400");
    private_dir_path(&r->dir, "prefix-", r->m[i]->id, "", path);
    const bool has_dir = cli_given(c, "prefix-cache-dir") || cli_given(c, "ranks") || !cli_bool(c, "prefix-cache");
    if (ok && !has_dir) ok = cli_set(c, "prefix-cache-dir", path);
    return ok;
}

bool router_write_options(const cli *c, const char *path, const char *skip)
{
    char all[sizeof RESERVED + sizeof DOWNLOADS];
    unlink(path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f && fd >= 0) close(fd);
    snprintf(all, sizeof all, "%s%s", RESERVED, skip);
    bool ok = f && config_save(c, f, all);
    if (f && fclose(f)) ok = false;
    return ok;
}

/* Writes the options of a model's process. Returns false on failure. */
static bool write_options(const router *r, size_t i, const char *path)
{
    const listed_model *l = &r->list.m[i];
    cli c;
    if (!cli_copy(&c, &l->settings)) return false;
    const bool ok = set_options(r, i, &c) &&
                    router_write_options(&c, path, strcmp(l->source, "command_line") ? " dry-run" : DOWNLOADS);
    cli_free(&c);
    return ok;
}

static void start(router *r, size_t i)
{
    model *m = r->m[i];
    char path[108];
    int rc = UV_EIO;
    const process_events events = {.on_line = on_line, .on_log = on_log, .on_exit = on_process_exit, .ud = m};
    m->n_tail = *m->tail = 0;
    m->percent = 0;
    m->began_at = router_now(r);
    private_dir_path(&r->dir, "", m->id, ".ini", path);
    if (write_options(r, i, path)) m->p = model_process_start(&r->s->loop, "serve", path, &events, &rc);
    if (m->p) {
        log_line(r->s, PI_LOG_INFO, "model %s: loading", m->l->name);
        set_state(r, i, MODEL_PLANNING);
        return;
    }
    keep_line(m, uv_strerror(rc));
    fail(r, i, CLI_OS, 0);
}

static void stop(router *r, size_t i, bool sleeps)
{
    model *m = r->m[i];
    if (r->st[i].state < MODEL_LOADING) r->st[i].bytes = 0; /* nothing was loaded */
    m->sleeps = sleeps;
    m->kill_at = router_now(r) + (uint64_t) m->l->stop_s * 1000 + KILL_MS;
    set_state(r, i, MODEL_STOPPING);
    log_line(r->s, PI_LOG_INFO, "model %s: unloading%s", m->l->name, sleeps ? " after idle time" : "");
    model_process_signal(m->p, SIGTERM);
}

void router_stop(router *r, size_t i)
{
    if (r->m[i]->p && r->st[i].state != MODEL_STOPPING) stop(r, i, false);
}

static void refuse_size(router *r, size_t i)
{
    char why[400];
    snprintf(why, sizeof why, "model '%.200s' needs %" PRIu64 " MiB, and %" PRIu64 " MiB are allowed for all models: "
             "raise --model-memory, unload pinned models, or lower its ctx-size or parallel", r->list.m[i].name,
             r->st[i].bytes >> 20, r->limits.max_bytes >> 20);
    log_line(r->s, PI_LOG_ERROR, "%s", why);
    keep_line(r->m[i], why);
    refuse_all(r, i, 503, "model_too_large", why);
    stop(r, i, false);
}

static void apply(router *r, model_step step)
{
    switch (step.action) {
    case MODEL_DO_NOTHING: break;
    case MODEL_DO_START: start(r, step.i); break;
    case MODEL_DO_LOAD:
        set_state(r, step.i, MODEL_LOADING);
        model_process_say(r->m[step.i]->p, "load");
        break;
    case MODEL_DO_STOP: stop(r, step.i, false); break;
    case MODEL_DO_SLEEP: stop(r, step.i, true); break;
    case MODEL_DO_REFUSE: refuse_size(r, step.i); break;
    }
}

/* Actions may call it again through callbacks. */
void router_run(router *r)
{
    r->again = true;
    if (r->running) return;
    r->running = true;
    while (r->again && !r->ending) {
        r->again = false;
        const model_step step = model_next(r->st, router_n_all(r), &r->limits, router_now(r));
        apply(r, step);
        r->again |= step.action != MODEL_DO_NOTHING;
    }
    r->running = false;
}

void router_load(router *r, size_t i)
{
    if (r->st[i].state == MODEL_LOADED) return;
    r->m[i]->n_failed = 0;
    r->st[i].retry_at = 0;
    if (!r->m[i]->order) r->m[i]->order = ++r->n_demands;
    set_demand(r, i);
    router_run(r);
}

void router_unload(router *r, size_t i)
{
    if (!r->m[i]->p) set_state(r, i, MODEL_UNLOADED);
    refuse_all(r, i, 503, "model_unloaded", "the model was unloaded: send the request again");
    router_stop(r, i);
    router_run(r);
}

/* ------------------------------------------------------------------------------------------------------------ ticks */

/* Ends the waiting time of requests, and comments on silent streams. */
static void tick_waiting(router *r, size_t i)
{
    const uint64_t t = router_now(r);
    for (forward *f = r->m[i]->first, *next; f; f = next) {
        const wire *w = f->rt->w;
        next = f->next;
        if (t >= f->until) {
            refuse(f, 503, "model_wait_timeout", "model '%.200s' was not loaded within %" PRIu64 " s (--models-wait); "
                   "other models are busy or loading: try again, or raise --models-max or --model-memory",
                   r->list.m[i].name, r->wait_ms / 1000);
        } else if (f->fields.stream && w && w->begin && !w->json_lines && r->s->ping_s > 0 &&
                   t >= f->sent_at + (uint64_t) r->s->ping_s * 1000) {
            char text[64];
            const int n = snprintf(text, sizeof text, ": loading %d %%\n\n", r->m[i]->percent);
            exchange *ex = f->ex;
            const bool begun = f->begun;
            f->begun = true;
            f->sent_at = t;
            ex->on_gone = NULL; /* f must outlive a disconnect while writing */
            if (!begun) stream_begin(ex, "text/event-stream");
            stream_put(ex, text, (size_t) n);
            ex->on_gone = on_gone;
            if (!ex->conn) on_gone(ex);
        }
    }
}

void router_tick(server *s)
{
    router *r = s->router;
    for (size_t i = 0; i < router_n_all(r); i++) {
        model *m = r->m[i];
        tick_waiting(r, i);
        if (m->p && r->st[i].state == MODEL_STOPPING && router_now(r) >= m->kill_at) {
            log_line(s, PI_LOG_WARN, "model %s: killed, because it did not end", m->l->name);
            m->kill_at = UINT64_MAX;
            model_process_signal(m->p, SIGKILL);
        }
    }
    router_ping(r);
    router_sweep(r);
    router_run(r);
}

/* ---------------------------------------------------------------------------------------------------- start and end */

int router_open(server *s, model_list *list)
{
    const cli *c = s->c;
    router *r = calloc(1, sizeof *r);
    if (!r) return cli_error(c, CLI_OS, "out of memory");
    s->router = r;
    *r = (router) {.s = s, .dir = {.lock = -1}};
    r->limits = (model_limits) {(size_t) cli_int(c, "models-max"), (uint64_t) cli_int(c, "model-memory")};
    r->auto_bytes = !r->limits.max_bytes;
    r->wait_ms = (uint64_t) cli_int(c, "models-wait") * 1000;
    if (!router_take_list(r, list)) return cli_error(c, CLI_OS, "out of memory");
    cli_clear_env(c);
    if (private_dir_open(&r->dir)) return CLI_OK;
    return cli_error(c, CLI_OS, "cannot create a directory: set TMPDIR to a writable one");
}

void router_begin(server *s)
{
    router *r = s->router;
    for (size_t i = 0; i < r->list.n; i++)
        if (r->list.m[i].on_startup) router_load(r, i);
}

void router_end(server *s)
{
    router *r = s->router;
    if (!r || r->ending) return;
    r->ending = true;
    router_cancel_downloads(r);
    for (size_t i = 0; i < router_n_all(r); i++) {
        refuse_all(r, i, 503, NULL, "the server is shutting down");
        router_stop(r, i);
    }
}

void router_kill(server *s)
{
    for (size_t i = 0; s->router && i < router_n_all(s->router); i++)
        if (s->router->m[i]->p) model_process_signal(s->router->m[i]->p, SIGKILL);
    if (s->router) router_kill_downloads(s->router);
}

size_t router_n_requests(const server *s) { return s->router ? s->router->n_forwards : 0; }

size_t router_n_processes(const server *s)
{
    size_t n = 0;
    for (size_t i = 0; s->router && i < router_n_all(s->router); i++) n += s->router->m[i]->p != NULL;
    return n + (s->router ? router_n_downloads(s->router) : 0);
}

void router_free(server *s)
{
    router *r = s->router;
    if (!r) return;
    router_free_models(r);
    private_dir_close(&r->dir);
    free(r);
    s->router = NULL;
}
