/* pagedinfer serve: a server for OpenAI's API and others, on libuv.
 *
 * The loop handles all connections and never waits for the engine. The engine's events arrive through its descriptor
 * (pi_poll_fd). Long work (JSON, templates, tokenization of a large body) runs on libuv's pool. The model is loaded by
 * a thread of its own, while /health returns 503. The states are loading, ready, draining and ending. The first
 * SIGTERM or SIGINT starts draining: no new requests, running ones may finish. Ending starts when all of them are
 * done, at a timeout, or at a second signal.
 *
 * Threads: the loop; libuv's pool; the loader until it is joined; the engine's own. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef PI_HAVE_CURL
#include "net/fetch_bytes.h"
#endif
#include "serve/front.h"
#include "serve/log.h"
#include "serve/media.h"
#include "serve/notify.h"
#include "serve/reply.h"
#include "serve/start.h"
#include "serve/supervised.h"

static const char STEP_TARGET_MS[] = "200"; /* default of the server */

enum { TICK_MS = 200, EVENTS = 128, ROUNDS = 16, END_MS = 3000, KV_QUEUE_BYTES = 32 << 20 };

typedef struct app {
    server s;
    uv_signal_t term, intr, hup;
    uv_timer_t tick, watchdog;
    uv_async_t loaded;       /* the loader has finished */
    uv_poll_t events;        /* the engine has events */
    bool has_events;
    uv_thread_t loader;
    atomic_bool stop_loading; /* requests the loader to stop */
    bool loading;            /* the loader has not been joined */
    pi_options *o;           /* owned by the loader */
    pi_engine *engine;       /* the loader's result */
    pi_error err;            /* its error if `engine` is NULL */
    int load_rc;
    int signal;              /* the first signal received */
    uint64_t end_at;         /* uv_now at which draining ends */
} app;

/* --------------------------------------------------------------------------------------------- shared by the parts */

/* Records when the engine last completed a step, for /health. */
static void look_at_steps(server *s)
{
    pi_stats st = {.size = sizeof st};
    if (pi_engine_stats(s->sv.e, &st)) return;
    if (st.n_steps != s->last_steps) {
        s->last_steps = st.n_steps;
        s->step_at = uv_now(&s->loop);
    }
    if (!st.n_running && !st.n_waiting) s->step_at = 0; /* no work: not a hang */
    else if (!s->step_at) s->step_at = uv_now(&s->loop);
}

bool server_hangs(server *s, const char **why)
{
    if (s->sv.e) look_at_steps(s);
    if (s->sv.e && pi_engine_state(s->sv.e) == PI_STATE_FAILED) *why = "the engine failed";
    else if (s->step_at && (double) (uv_now(&s->loop) - s->step_at) > cli_float(s->c, "hang-timeout") * 1e3)
        *why = "a step takes too long";
    else if (preps_oldest(s) > cli_float(s->c, "hang-timeout")) *why = "the preparation of a request takes too long";
    else return false;
    return true;
}

double server_step_age(const server *s) { return s->step_at ? (double) (uv_now(&s->loop) - s->step_at) / 1e3 : 0; }

static void on_hup(uv_signal_t *h, int sig)
{
    (void) sig;
    start_reload(h->data);
}

/* ---------------------------------------------------------------------------------------------------------- events */

/* Stores all pending events first. Then pumps the replies, which may free them. */
static int take_events(server *s)
{
    pi_event *ev[EVENTS];
    reply *dirty[EVENTS];
    int n_dirty = 0, n = pi_poll(s->sv.e, ev, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        reply *r = reply_event(ev[i]);
        pi_event_release(ev[i]);
        if (!r->dirty) dirty[n_dirty++] = r;
        r->dirty = true;
    }
    for (int i = 0; i < n_dirty; i++) {
        dirty[i]->dirty = false;
        reply_pump(dirty[i]);
    }
    return n;
}

static void on_events(uv_poll_t *h, int status, int what)
{
    app *a = h->data;
    (void) what;
    if (status < 0) return;
    look_at_steps(&a->s);
    for (int i = 0; i < ROUNDS && take_events(&a->s) == EVENTS; i++) {}
}

/* --------------------------------------------------------------------------------------------------------- loading */

/* Runs on the loader's thread. */
static bool on_progress(void *ud, int stage, uint64_t done, uint64_t total)
{
    app *a = ud;
    if (a->s.supervised && stage == PI_LOAD_WEIGHTS) supervised_progress(a->s.supervised, done, total);
    return atomic_load(&a->stop_loading);
}

/* Finds out if the chat template shows tools, and if it has a switch for reasoning. Runs on the loader's thread. */
static void probe_template(app *a)
{
    static const char hi[] = "[{\"role\":\"user\",\"content\":\"a\"}]", name[] = "probe_of_tools";
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"probe_of_tools\",\"description\":"
                                "\"\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";
    enum { CAP = 1 << 16 };
    char *text[2] = {malloc(CAP), malloc(CAP)};
    for (int i = 0; text[0] && text[1] && i < 2; i++) {
        const char *vars = i ? "{\"enable_thinking\":true}" : "{\"enable_thinking\":false}";
        const int64_t n = pi_chat_render(a->engine, hi, NULL, vars, text[i], CAP - 1, NULL);
        text[i][n > 0 && n < CAP ? n : 0] = 0;
    }
    if (text[0] && text[1]) {
        a->s.can_think = strcmp(text[0], text[1]) != 0;
        const int64_t n = pi_chat_render(a->engine, hi, tools, NULL, text[0], CAP - 1, NULL);
        a->s.can_call = n > 0 && n < CAP && memmem(text[0], (size_t) n, name, sizeof name - 1);
    }
    free(text[0]);
    free(text[1]);
}

static void load(void *ud)
{
    app *a = ud;
    a->s.plan.size = sizeof a->s.plan;
    if (a->s.supervised) a->load_rc = supervised_plan(a->s.supervised, a->o, &a->err);
    pi_options_set_progress(a->o, on_progress, a);
    if (!a->load_rc) a->load_rc = pi_engine_open(&a->engine, a->o, &a->err);
    if (cli_without_mmproj(a->s.c, a->o, a->load_rc, &a->err))
        a->load_rc = pi_engine_open(&a->engine, a->o, &a->err);
    if (!a->load_rc) a->load_rc = pi_engine_memory(a->engine, &a->s.plan);
    if (!a->load_rc && a->s.kv) a->load_rc = pi_engine_on_cache_event(a->engine, kv_events_put, a->s.kv, &a->err);
    if (!a->load_rc) probe_template(a);
    uv_async_send(&a->loaded);
}

static bool knows_option(const char *key)
{
    pi_option_info o = {.size = sizeof o};
    for (size_t i = 0; !pi_options_describe(i, &o); i++) {
        if (!strcmp(o.key, key)) return true;
    }
    return false;
}

/* Logs that the server is ready, with the number of requests that the cache holds and the option that raises it. */
static void log_ready(const server *s)
{
    static const char *const more[] = {
        [PI_CACHE_LIMIT_OPTION] = "raise --kv-cache-tokens or --kv-cache-bytes, or leave them out",
        [PI_CACHE_LIMIT_PARALLEL] = "raise --parallel",
        [PI_CACHE_LIMIT_MEMORY] = "raise --memory-utilization, free memory, or use smaller --cache-type-k and -v",
        [PI_CACHE_LIMIT_UNKNOWN] = "set --kv-cache-tokens",
    };
    const pi_plan *p = &s->plan;
    const uint32_t usual = p->ctx_size < 1024 ? p->ctx_size : 1024;
    log_line(s, PI_LOG_WARN,
             "%s on %s is ready: %u tokens per request; the cache holds %u request%s of this length, or %u of %u "
             "tokens; at most %u run at the same time; %llu MiB of memory; for more requests %s",
             s->sv.alias, s->sv.info.device, p->ctx_size, p->n_requests, p->n_requests == 1 ? "" : "s",
             p->n_requests_1k, usual, p->max_requests, (unsigned long long) p->total_bytes >> 20, more[p->cache_limit]);
}

static void begin_end(app *a);

static void on_loaded(uv_async_t *h)
{
    app *a = h->data;
    server *s = &a->s;
    uv_thread_join(&a->loader);
    a->loading = false;
    if (a->load_rc) {
        if (!s->exit_code) s->exit_code = cli_pi_error(s->c, &a->err);
        begin_end(a);
        return;
    }
    service_open(&s->sv, a->engine);
    if (cli_bool(s->c, "reranking") && !s->sv.info.n_labels) {
        s->exit_code = cli_error(s->c, CLI_DATA, "--reranking: the model has no classifier: give a reranker");
        begin_end(a);
        return;
    }
    s->has_structure = knows_option("json-schema");
    int rc = uv_poll_init(&s->loop, &a->events, pi_poll_fd(s->sv.e));
    if (!rc) {
        a->has_events = true;
        a->events.data = a;
        rc = uv_poll_start(&a->events, UV_READABLE, on_events);
    }
    if (rc) {
        s->exit_code = cli_error(s->c, CLI_OS, "the engine's events: %s", uv_strerror(rc));
        begin_end(a);
        return;
    }
    if (s->state != SERVE_LOADING) return; /* a signal arrived meanwhile */
    s->state = SERVE_READY;
    log_ready(s);
    notify("READY=1\nSTATUS=ready");
    supervised_adapters(s->supervised, &s->sv);
    if (s->supervised) supervised_ready(s->supervised, server_description(s));
}

/* ---------------------------------------------------------------------------------------------------------- ending */

static void begin_end(app *a)
{
    server *s = &a->s;
    if (s->state == SERVE_ENDING) return;
    s->state = SERVE_ENDING;
    a->end_at = uv_now(&s->loop) + END_MS;
    atomic_store(&a->stop_loading, true);
    supervised_cancel(s->supervised);
    reply_cancel_all(s, "the server is shutting down");
    preps_cancel_all(s);
    net_close(&s->net);
}

static void end_after(app *a, int sig)
{
    server *s = &a->s;
    bool again = a->signal != 0;
    if (!again) a->signal = sig;
    if (again || s->state == SERVE_LOADING) {
        s->exit_code = 128 + sig;
        begin_end(a);
        return;
    }
    notify("STOPPING=1");
    s->state = SERVE_DRAINING;
    a->end_at = uv_now(&s->loop) + (uint64_t) cli_int(s->c, "drain-timeout") * 1000;
    log_line(s, PI_LOG_WARN, "shutting down: %zu requests may finish; a second signal cancels them", s->n_replies);
}

static void on_signal(uv_signal_t *h, int sig) { end_after(h->data, sig); }

/* The front end is gone, and with it all clients. */
static void on_front_end(void *ud)
{
    app *a = ud;
    if (!a->signal) end_after(a, SIGTERM);
}

static void close_handle(uv_handle_t *h)
{
    if (!uv_is_closing(h)) uv_close(h, NULL);
}

/* Closes the remaining handles, so that the loop ends. */
static void close_handles(app *a)
{
    close_handle((uv_handle_t *) &a->term);
    close_handle((uv_handle_t *) &a->intr);
    close_handle((uv_handle_t *) &a->hup);
    close_handle((uv_handle_t *) &a->tick);
    close_handle((uv_handle_t *) &a->watchdog);
    close_handle((uv_handle_t *) &a->loaded);
    if (a->has_events) close_handle((uv_handle_t *) &a->events);
    supervised_close(a->s.supervised);
}

static void on_tick(uv_timer_t *t)
{
    app *a = t->data;
    server *s = &a->s;
    preps_sweep(s);
    bool busy = s->n_replies || s->n_jobs, late = a->end_at && uv_now(&s->loop) >= a->end_at;
    if (s->sv.e) look_at_steps(s);
    reply_ping_all(s);
    if (s->kv && !s->kv_warned && kv_events_lost(s->kv)) {
        s->kv_warned = true;
        log_line(s, PI_LOG_WARN, "--kv-events: cache changes were lost; routers must clear their state");
    }
    if (s->state == SERVE_DRAINING && (!busy || late)) {
        if (late && busy)
            log_line(s, PI_LOG_WARN, "--drain-timeout has passed: %zu requests are canceled", s->n_replies);
        begin_end(a);
    } else if (s->state == SERVE_ENDING && late) {
        fflush(NULL);
        _exit(s->exit_code ? s->exit_code : CLI_SOFTWARE); /* a step hangs, or loading cannot be interrupted */
    }
    if (s->state == SERVE_ENDING && !busy && !a->loading) close_handles(a);
    if (s->state == SERVE_LOADING && !(++s->n_ticks % 25)) notify("EXTEND_TIMEOUT_USEC=30000000\nSTATUS=loading");
}

static void on_watchdog(uv_timer_t *t)
{
    app *a = t->data;
    const char *why;
    if (!server_hangs(&a->s, &why)) notify("WATCHDOG=1");
}

/* ----------------------------------------------------------------------------------------------------------- start */

static int open_handles(app *a)
{
    server *s = &a->s;
    uint64_t usec = notify_watchdog();
    uv_signal_init(&s->loop, &a->term);
    uv_signal_init(&s->loop, &a->intr);
    uv_signal_init(&s->loop, &a->hup);
    uv_timer_init(&s->loop, &a->tick);
    uv_timer_init(&s->loop, &a->watchdog);
    int rc = uv_async_init(&s->loop, &a->loaded, on_loaded);
    a->term.data = a->intr.data = a->tick.data = a->watchdog.data = a->loaded.data = a;
    a->hup.data = s;
    if (!rc) rc = uv_signal_start(&a->term, on_signal, SIGTERM);
    if (!rc) rc = uv_signal_start(&a->intr, on_signal, SIGINT);
    if (!rc) rc = uv_signal_start(&a->hup, on_hup, SIGHUP);
    if (!rc) rc = uv_timer_start(&a->tick, on_tick, TICK_MS, TICK_MS);
    if (!rc && usec) rc = uv_timer_start(&a->watchdog, on_watchdog, usec / 2000, usec / 2000);
    if (!rc) rc = net_init(&s->net, &s->loop);
    return rc ? cli_error(s->c, CLI_OS, "the event loop: %s", uv_strerror(rc)) : CLI_OK;
}

/* Parses --alias: a name, or several separated by commas. */
static void take_names(server *s, const char *said)
{
    char *comma = NULL;
    s->sv.alias = said;
    s->aliases = "";
    if (!strchr(said, ',') || !(s->names = strdup(said))) return;
    comma = strchr(s->names, ',');
    *comma = 0;
    s->sv.alias = s->names;
    s->aliases = comma + 1;
}

/* Fills the settings of generations. */
static void configure_service(service *sv, const cli *c)
{
    sv->suffix_first = cli_bool(c, "spm-infill");
    sv->limits_priority = !strcmp(cli_str(c, "policy"), "priority");
    sv->salt_by_key = cli_bool(c, "cache-salt-by-key");
    sv->timeout = cli_float(c, "timeout");
    sv->reasoning = cli_str(c, "reasoning");
    sv->reasoning_effort = cli_str(c, "reasoning-effort");
    sv->reasoning_format = cli_str(c, "reasoning-format");
    sv->no_reasoning = cli_int(c, "reasoning-budget") == 0;
    sv->prefill_assistant = cli_bool(c, "prefill-assistant");
    sv->media_path = cli_str(c, "media-path");
    sv->max_images = cli_int(c, "max-images");
    sv->max_image_bytes = cli_int(c, "max-image-bytes");
    sv->max_image_pixels = cli_int(c, "max-image-pixels");
    sv->image_min_tokens = (uint32_t) strtoul(cli_str(c, "image-min-tokens"), NULL, 10);
    sv->image_max_tokens = (uint32_t) strtoul(cli_str(c, "image-max-tokens"), NULL, 10);
#ifdef PI_HAVE_CURL
    sv->fetch = fetch_bytes;
#endif
    media_make_marker(sv);
}

/* Joins the values of --allowed-media-domains. Returns false if out of memory. */
static bool join_domains(server *s)
{
    for (size_t i = 0; i < cli_n(s->c, "allowed-media-domains"); i++)
        buf_fmt(&s->domains, "%s%s", i ? "," : "", cli_nth(s->c, "allowed-media-domains", i));
    s->sv.media_domains = s->domains.p ? s->domains.p : "";
    return !s->domains.failed;
}

static void configure(app *a, const cli *c)
{
    server *s = &a->s;
    service *sv = &s->sv;
    const char *path = cli_str(c, "model"), *slash = strrchr(path, '/');
    start_configure(s, c);
    s->sv.alias = slash ? slash + 1 : path;
    if (*cli_str(c, "alias")) take_names(s, cli_str(c, "alias"));
    configure_service(sv, c);
    s->step_target_ms = cli_given(c, "step-target-ms") ? cli_float(c, "step-target-ms") : atof(STEP_TARGET_MS);
    s->send_max = (size_t) cli_int(c, "send-buffer");
}

static bool is_open_to_all(const char *endpoint)
{
    return !strncmp(endpoint, "tcp://", 6) && strncmp(endpoint, "tcp://127.", 10) &&
           strncmp(endpoint, "tcp://[::1]", 11);
}

static int open_kv_events(server *s)
{
    const cli *c = s->c;
    const kv_events_config f = {.endpoint = cli_str(c, "kv-events"), .replay = cli_str(c, "kv-events-replay"),
                                .topic = cli_str(c, "kv-events-topic"), .keep = (size_t) cli_int(c, "kv-events-buffer"),
                                .queue_bytes = KV_QUEUE_BYTES};
    char err[256];
    if (!*f.endpoint && *f.replay) return cli_error(c, CLI_CONFIG, "--kv-events-replay needs --kv-events: give both");
    if (!*f.endpoint) return CLI_OK;
    if (!(s->kv = kv_events_open(&f, err))) return cli_error(c, CLI_CONFIG, "KV events: %s", err);
    log_line(s, PI_LOG_WARN, "KV events %s %s%s%s", kv_events_is_bound(s->kv) ? "at" : "to",
             kv_events_endpoint(s->kv, false), *f.replay ? ", replay at " : "", kv_events_endpoint(s->kv, true));
    if (is_open_to_all(kv_events_endpoint(s->kv, false)) ||
        (*f.replay && is_open_to_all(kv_events_endpoint(s->kv, true))))
        log_line(s, PI_LOG_WARN, "KV events contain prompt tokens: only routers should reach these ports");
    return CLI_OK;
}

static int serve(app *a)
{
    server *s = &a->s;
    const cli *c = s->c;
    int code = start_access(s);
    if (code) return code;
    code = open_handles(a);
    if (!code && cli_bool(c, "supervised") && !(s->supervised = supervised_open(&s->loop, on_front_end, a)))
        code = cli_error(c, CLI_USAGE, "--supervised: standard input must be a pipe");
    if (!code) code = open_kv_events(s);
    if (!code) code = start_listen(s);
    if (!code && uv_thread_create(&a->loader, load, a)) code = cli_error(c, CLI_OS, "cannot start a thread");
    if (code) {
        net_close(&s->net);
        close_handles(a);
    } else {
        a->loading = true;
    }
    uv_run(&s->loop, UV_RUN_DEFAULT);
    return code ? code : s->exit_code;
}

/* Parses LO..HI. */
static bool read_range(const char *text, int64_t *lo, int64_t *hi)
{
    char *end;
    *lo = strtoll(text, &end, 10);
    if (end == text || strncmp(end, "..", 2)) return false;
    const char *second = end + 2;
    *hi = strtoll(second, &end, 10);
    return end != second && !*end && *lo <= *hi;
}

int cmd_serve(const cli *c)
{
    int code = CLI_OK;
    int64_t lo, hi;
    if (!read_range(cli_str(c, "priority-range"), &lo, &hi))
        return cli_usage_error(c, "--priority-range %s: give LO..HI, as 0..100", cli_str(c, "priority-range"));
    const char *prefix = cli_str(c, "api-prefix");
    if (*prefix && *prefix != '/') return cli_usage_error(c, "--api-prefix %s: the path must begin with /", prefix);
    if (front_serves(c)) return front_run(c);
    if (!*cli_str(c, "model")) return cli_usage_error(c, "no model: give -m FILE or -hf USER/NAME");
    app *a = calloc(1, sizeof *a); /* on the heap, because it holds a receive buffer */
    if (!a) return cli_error(c, CLI_OS, "out of memory");
    text_watch_memory();
    configure(a, c);
    if (!join_domains(&a->s)) code = cli_error(c, CLI_OS, "out of memory");
    if (cli_int(c, "response-store") &&
        !(a->s.store = store_new((size_t) cli_int(c, "response-store"), (size_t) cli_int(c, "response-store-bytes"))))
        code = cli_error(c, CLI_OS, "out of memory");
    a->s.sv.priority_lo = lo;
    a->s.sv.priority_hi = hi;
    preps_init(&a->s);
    a->o = code ? NULL : cli_options(c, &code);
    if (a->o && !cli_given(c, "step-target-ms")) pi_options_set(a->o, "step-target-ms", STEP_TARGET_MS, NULL);
    if (a->o) pi_options_set(a->o, "pooling", "off", NULL); /* only /v1/embeddings uses it, and sets it per request */
    if (a->o && uv_loop_init(&a->s.loop)) {
        code = cli_error(c, CLI_OS, "cannot create an event loop");
    } else if (a->o) {
        code = serve(a);
        uv_loop_close(&a->s.loop);
        cli_close(c, a->engine);
    }
    pi_options_free(a->o);
    kv_events_close(a->s.kv); /* after the engine is closed, because its step thread calls it */
    keys_free(&a->s.keys);
    tls_close(a->s.net.tls);
    supervised_free(a->s.supervised);
    store_free(a->s.store);
    buf_free(&a->s.domains);
    free(a->s.names);
    free(a);
    return code;
}
