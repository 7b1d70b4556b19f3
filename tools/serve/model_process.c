/* The process of a model (see model_process.h). */
#include "serve/model_process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/buf.h"

extern char **environ;

enum { LINE_MAX_BYTES = 1 << 20, LOG_MAX_BYTES = 8 << 10, READ_BYTES = 4096 };

/* A stream from the process. */
typedef struct output {
    uv_pipe_t pipe;
    model_process *p;
    char bytes[READ_BYTES];
    buf line;         /* the line so far */
    size_t max;       /* bytes of a line; longer ones are cut into several */
    void (*take)(void *ud, const char *line);
} output;

struct model_process {
    uv_process_t handle;
    uv_pipe_t in;
    output out, err;
    int n_open;       /* handles that are not closed yet */
    bool ended;       /* status and signal are set */
    int status, signal;
    process_events events;
};

/* ------------------------------------------------------------------------------------------------------------ lines */

static void take_line(output *o)
{
    if (!o->line.n) return;
    o->line.p[o->line.n] = 0;
    o->line.n = 0;
    o->take(o->p->events.ud, o->line.p);
}

static void take_bytes(output *o, const char *p, size_t n)
{
    while (n) {
        const char *end = memchr(p, '\n', n);
        const size_t room = o->max - o->line.n, part = end ? (size_t) (end - p) : n, k = part < room ? part : room;
        buf_put(&o->line, p, k);
        if (o->line.failed) {
            buf_free(&o->line); /* the line is lost */
            o->line = (buf) {0};
        }
        p += k;
        n -= k;
        if (k == part && end) p++, n--;
        if ((k == part && end) || o->line.n == o->max) take_line(o);
    }
}

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *b)
{
    output *o = h->data;
    (void) size;
    *b = uv_buf_init(o->bytes, sizeof o->bytes);
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *b)
{
    if (n > 0) take_bytes(h->data, b->base, (size_t) n);
    else if (n < 0) uv_read_stop(h);
}

/* Reads what is left in the pipe of an ended process. A process that it has started may still hold the other end, so
 * the end of the stream is not awaited. */
static void drain(output *o)
{
    uv_os_fd_t fd;
    ssize_t n = 0;
    if (uv_fileno((uv_handle_t *) &o->pipe, &fd)) return;
    for (int i = 0; i < 256 && (n = read(fd, o->bytes, sizeof o->bytes)) > 0; i++) take_bytes(o, o->bytes, (size_t) n);
    take_line(o);
}

/* -------------------------------------------------------------------------------------------------------------- end */

static void on_closed(uv_handle_t *h)
{
    output *o = h->data;
    model_process *p = o->p;
    if (--p->n_open) return;
    buf_free(&p->out.line);
    buf_free(&p->err.line);
    if (p->ended) p->events.on_exit(p->events.ud, p->status, p->signal);
    free(p);
}

static void close_all(model_process *p)
{
    uv_handle_t *const all[] = {(uv_handle_t *) &p->handle, (uv_handle_t *) &p->in, (uv_handle_t *) &p->out.pipe,
                                (uv_handle_t *) &p->err.pipe};
    for (int i = 0; i < 4; i++) {
        p->n_open++;
        uv_close(all[i], on_closed);
    }
}

static void on_process_exit(uv_process_t *h, int64_t status, int signal)
{
    output *o = h->data;
    model_process *p = o->p;
    p->ended = true;
    p->status = (int) status;
    p->signal = signal;
    drain(&p->out);
    drain(&p->err);
    close_all(p);
}

/* ------------------------------------------------------------------------------------------------------------ start */

/* True for variables that are meant for this process only. */
static bool is_own(const char *var)
{
    static const char *const names[] = {"NOTIFY_SOCKET=", "LISTEN_FDS=", "LISTEN_PID=", "WATCHDOG_USEC=",
                                        "WATCHDOG_PID="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(var, names[i], strlen(names[i]))) return true;
    return false;
}

/* Returns the environment of the process; its texts are not copied. NULL = out of memory. */
static char **environment(void)
{
    size_t n = 0, k = 0;
    while (environ[n]) n++;
    char **env = malloc((n + 1) * sizeof *env);
    for (size_t i = 0; env && i < n; i++)
        if (!is_own(environ[i])) env[k++] = environ[i];
    if (env) env[k] = NULL;
    return env;
}

static int spawn(uv_loop_t *loop, model_process *p, const char *command, const char *ini)
{
    char exe[4096], name[] = "pagedinfer", config[] = "--config";
    size_t n = sizeof exe;
    char *file = strdup(ini), *what = strdup(command), **env = environment();
    int rc = file && what && env ? uv_exepath(exe, &n) : UV_ENOMEM;
    char *args[] = {name, what, config, file, NULL};
    uv_stdio_container_t io[3] = {
        {UV_CREATE_PIPE | UV_READABLE_PIPE, {.stream = (uv_stream_t *) &p->in}},
        {UV_CREATE_PIPE | UV_WRITABLE_PIPE, {.stream = (uv_stream_t *) &p->out.pipe}},
        {UV_CREATE_PIPE | UV_WRITABLE_PIPE, {.stream = (uv_stream_t *) &p->err.pipe}},
    };
    const uv_process_options_t o = {.exit_cb = on_process_exit, .file = exe, .args = args, .env = env, .stdio_count = 3,
                                    .stdio = io, .flags = UV_PROCESS_DETACHED};
    if (!rc) rc = uv_spawn(loop, &p->handle, &o);
    free(file);
    free(what);
    free(env);
    return rc;
}

model_process *model_process_start(uv_loop_t *loop, const char *command, const char *ini,
                                   const process_events *events, int *rc)
{
    model_process *p = calloc(1, sizeof *p);
    *rc = UV_ENOMEM;
    if (!p) return NULL;
    p->events = *events;
    p->out.p = p->err.p = p;
    p->out.max = LINE_MAX_BYTES;
    p->err.max = LOG_MAX_BYTES;
    p->out.take = events->on_line;
    p->err.take = events->on_log;
    uv_pipe_init(loop, &p->in, 0);
    uv_pipe_init(loop, &p->out.pipe, 0);
    uv_pipe_init(loop, &p->err.pipe, 0);
    *rc = spawn(loop, p, command, ini);
    p->handle.data = p->in.data = p->out.pipe.data = &p->out;
    p->err.pipe.data = &p->err;
    if (!*rc) *rc = uv_read_start((uv_stream_t *) &p->out.pipe, on_alloc, on_read);
    if (!*rc) *rc = uv_read_start((uv_stream_t *) &p->err.pipe, on_alloc, on_read);
    if (!*rc) return p;
    if (uv_process_get_pid(&p->handle) > 0) uv_process_kill(&p->handle, SIGKILL);
    close_all(p);
    return NULL;
}

void model_process_say(model_process *p, const char *command)
{
    char line[64];
    const int n = snprintf(line, sizeof line, "%s\n", command);
    uv_buf_t b = uv_buf_init(line, (unsigned) n);
    /* A pipe holds more than all commands of a process. An error means that the process has ended. */
    if (!p->ended) uv_try_write((uv_stream_t *) &p->in, &b, 1);
}

void model_process_signal(model_process *p, int signal)
{
    if (!p->ended) uv_process_kill(&p->handle, signal);
}
