/* pagedinfer serve for several models (see front.h). One libuv loop; the pool scans large request bodies. The states
 * are ready, draining and ending, as in serve.c. At the end the processes of the models write their prefixes and end;
 * those that do not are killed. */
#include "serve/front.h"

#include <stdlib.h>
#include <string.h>

#include "serve/log.h"
#include "serve/notify.h"
#include "serve/router.h"
#include "serve/start.h"

enum { TICK_MS = 100, END_MS = 20000 };

typedef struct front {
    server s;
    uv_signal_t term, intr, hup;
    uv_timer_t tick, watchdog;
    int signal;      /* the first signal received; 0 = none */
    uint64_t end_at; /* uv_now at which draining or ending is over */
} front;

bool front_serves(const cli *c)
{
    if (cli_bool(c, "supervised")) return false;
    return *cli_str(c, "models-dir") || *cli_str(c, "models-preset") || !*cli_str(c, "model") ||
           cli_int(c, "sleep-idle-seconds") > 0;
}

/* -------------------------------------------------------------------------------------------------------------- end */

static void begin_end(front *f)
{
    server *s = &f->s;
    if (s->state == SERVE_ENDING) return;
    s->state = SERVE_ENDING;
    f->end_at = uv_now(&s->loop) + END_MS;
    preps_cancel_all(s);
    router_end(s);
    net_close(&s->net);
}

static void on_signal(uv_signal_t *h, int sig)
{
    front *f = h->data;
    server *s = &f->s;
    if (f->signal) {
        s->exit_code = 128 + sig;
        begin_end(f);
        return;
    }
    f->signal = sig;
    notify("STOPPING=1");
    s->state = SERVE_DRAINING;
    f->end_at = uv_now(&s->loop) + (uint64_t) cli_int(s->c, "drain-timeout") * 1000;
    log_line(s, PI_LOG_WARN, "shutting down: %zu requests may finish; a second signal cancels them",
             router_n_requests(s));
}

static void on_hup(uv_signal_t *h, int sig)
{
    (void) sig;
    start_reload(&((front *) h->data)->s);
}

static void close_handles(front *f)
{
    uv_handle_t *const all[] = {(uv_handle_t *) &f->term, (uv_handle_t *) &f->intr, (uv_handle_t *) &f->hup,
                                (uv_handle_t *) &f->tick, (uv_handle_t *) &f->watchdog};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!uv_is_closing(all[i])) uv_close(all[i], NULL);
}

static void on_tick(uv_timer_t *t)
{
    front *f = t->data;
    server *s = &f->s;
    const bool late = f->end_at && uv_now(&s->loop) >= f->end_at;
    preps_sweep(s);
    router_tick(s);
    if (s->state == SERVE_DRAINING && (late || !router_n_requests(s))) begin_end(f);
    if (s->state == SERVE_ENDING && late) router_kill(s);
    if (s->state == SERVE_ENDING && !router_n_requests(s) && !router_n_processes(s)) close_handles(f);
}

static void on_watchdog(uv_timer_t *t)
{
    (void) t;
    notify("WATCHDOG=1");
}

/* ------------------------------------------------------------------------------------------------------------ start */

static int open_handles(front *f)
{
    uv_loop_t *loop = &f->s.loop;
    const uint64_t usec = notify_watchdog();
    uv_signal_init(loop, &f->term);
    uv_signal_init(loop, &f->intr);
    uv_signal_init(loop, &f->hup);
    uv_timer_init(loop, &f->tick);
    uv_timer_init(loop, &f->watchdog);
    f->term.data = f->intr.data = f->hup.data = f->tick.data = f;
    int rc = uv_signal_start(&f->term, on_signal, SIGTERM);
    if (!rc) rc = uv_signal_start(&f->intr, on_signal, SIGINT);
    if (!rc) rc = uv_signal_start(&f->hup, on_hup, SIGHUP);
    if (!rc) rc = uv_timer_start(&f->tick, on_tick, TICK_MS, TICK_MS);
    if (!rc && usec) rc = uv_timer_start(&f->watchdog, on_watchdog, usec / 2000, usec / 2000);
    if (!rc) rc = net_init(&f->s.net, loop);
    return rc ? cli_error(f->s.c, CLI_OS, "the event loop: %s", uv_strerror(rc)) : CLI_OK;
}

static int serve(front *f, model_list *list)
{
    server *s = &f->s;
    const size_t n = list->n;
    int code = start_access(s);
    if (!code) code = router_open(s, list);
    if (code) return code;
    code = open_handles(f);
    if (!code) code = start_listen(s);
    if (code) {
        net_close(&s->net);
        close_handles(f);
    } else {
        s->state = SERVE_READY;
        log_line(s, PI_LOG_WARN, "%zu model%s; at most %lld loaded", n, n == 1 ? "" : "s",
                 cli_int(s->c, "models-max") ? (long long) cli_int(s->c, "models-max") : (long long) n);
        router_begin(s);
        notify("READY=1\nSTATUS=ready");
    }
    uv_run(&s->loop, UV_RUN_DEFAULT);
    return code ? code : s->exit_code;
}

/* Refuses options that name one model, or that several processes cannot share. Returns an exit code, or -1. */
static int check(const cli *c)
{
    const bool several = *cli_str(c, "models-dir") || *cli_str(c, "models-preset");
    if (several && *cli_str(c, "model") && !cli_is_weak(c, "model"))
        return cli_usage_error(c, "give a model, or --models-dir and --models-preset for several");
    if ((several || !*cli_str(c, "model")) && *cli_str(c, "alias") && !cli_is_weak(c, "alias"))
        return cli_usage_error(c, "--alias names one model: write alias = NAME in the sections of --models-preset");
    if ((several || !*cli_str(c, "model")) && *cli_str(c, "kv-events"))
        return cli_usage_error(c, "--kv-events is for one model: write it in the sections of --models-preset");
    return -1;
}

/* Returns an exit code, or -1 if there are models. */
static int check_list(const cli *c, const model_list *list)
{
    if (list->n) return -1;
    if (*cli_str(c, "models-dir") || *cli_str(c, "models-preset"))
        return cli_error(c, CLI_NO_INPUT, "there is no model: put GGUF files into --models-dir, or name them in "
                         "sections of --models-preset");
    return cli_usage_error(c, "no model: give -m FILE or -hf USER/NAME, or --models-dir for several");
}

int front_run(const cli *c)
{
    model_list list = {0};
    front *f = calloc(1, sizeof *f); /* on the heap, because it holds a receive buffer */
    if (!f) return cli_error(c, CLI_OS, "out of memory");
    text_watch_memory();
    start_configure(&f->s, c);
    preps_init(&f->s);
    int code = model_list_build(c, &list);
    if (code < 0) code = check_list(c, &list);
    if (code < 0) code = check(c);
    if (code < 0 && uv_loop_init(&f->s.loop)) code = cli_error(c, CLI_OS, "cannot create an event loop");
    if (code < 0) {
        code = serve(f, &list);
        uv_run(&f->s.loop, UV_RUN_DEFAULT);
        uv_loop_close(&f->s.loop);
        router_free(&f->s);
    }
    model_list_free(&list);
    keys_free(&f->s.keys);
    tls_close(f->s.net.tls);
    free(f);
    return code;
}
