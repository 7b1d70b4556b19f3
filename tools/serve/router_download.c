/* POST /models: downloads a model into the cache. `pagedinfer pull` does it, in a process of its own: first a dry run,
 * which finds out whether the model exists, then the download. Runs on the loop's thread. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "hub_names.h"
#include "json.h"
#include "serve/log.h"
#include "serve/router_impl.h"

enum { MAX_DOWNLOADS = 4, MAX_ORDER = 4096 };

struct download {
    router *r;
    model_process *p;     /* NULL = ended */
    exchange *ex;         /* the client of the order, during the dry run; NULL = gone, or it has its response */
    char name[MODEL_NAME_MAX]; /* USER/NAME or USER/NAME:QUANT */
    size_t id;            /* number of its options file in r->dir */
    bool dry;             /* the dry run */
    bool canceled;
    json_t *files;        /* {URL: {"done": bytes, "total": bytes}} */
    char tail[LOG_TAIL];  /* log of the dry run, last log line of the download */
    download *next;
};

static download *find(const router *r, const char *name)
{
    download *d = r->downloads;
    while (d && strcmp(d->name, name)) d = d->next;
    return d;
}

static void download_free(download *d)
{
    download **at = &d->r->downloads;
    char path[108];
    while (*at != d) at = &(*at)->next;
    *at = d->next;
    private_dir_path(&d->r->dir, "download-", d->id, ".ini", path);
    remove(path);
    json_decref(d->files);
    free(d);
}

/* Ends the wait of the client. why: NULL = the download begins. */
static void respond(download *d, int status, const char *why)
{
    exchange *ex = d->ex;
    d->ex = NULL;
    if (!ex) return;
    ex->on_gone = NULL;
    if (why) answer_error(ex, status, "model", "download_failed", "%s", why);
    else answer_json(ex, 200, json_pack("{s:b}", "success", 1));
}

/* -------------------------------------------------------------------------------------------------------- processes */

static bool start(download *d);

static void on_line(void *ud, const char *line)
{
    download *d = ud;
    uint64_t done, total;
    int n = 0;
    if (sscanf(line, "progress %" SCNu64 " %" SCNu64 " %n", &done, &total, &n) < 2 || !n || d->canceled) return;
    json_object_set_new(d->files, line + n, json_pack("{s:I, s:I}", "done", (json_int_t) done, "total",
                                                      (json_int_t) total));
    router_event(d->r, d->name, "download_progress", json_pack("{s:O}", "progress", d->files));
}

static void on_log(void *ud, const char *line)
{
    static const char mine[] = "pagedinfer pull: ";
    download *d = ud;
    size_t n = d->dry ? strlen(d->tail) : 0;
    if (!strncmp(line, mine, sizeof mine - 1)) line += sizeof mine - 1;
    snprintf(d->tail + n, sizeof d->tail - n, "%s%s", n ? "\n" : "", line);
}

/* The dry run has ended. */
static void validated(download *d, int status, int signal)
{
    router *r = d->r;
    if (!status && !signal && !d->canceled && !r->ending) {
        d->dry = false;
        *d->tail = 0;
        if (start(d)) {
            log_line(r->s, PI_LOG_WARN, "model %s: downloading", d->name);
            router_event(r, d->name, "model_status", json_pack("{s:s}", "status", "downloading"));
            respond(d, 200, NULL);
            return;
        }
        respond(d, 503, "the process of the download cannot be started");
    } else if (d->canceled || r->ending) {
        respond(d, 503, "the download was canceled");
    } else {
        respond(d, status == CLI_NO_INPUT ? 404 : status == CLI_USAGE ? 400 : 502,
                *d->tail ? d->tail : "the download failed");
    }
    download_free(d);
}

static void on_process_exit(void *ud, int status, int signal)
{
    download *d = ud;
    router *r = d->r;
    d->p = NULL;
    if (d->dry) {
        validated(d, status, signal);
        return;
    }
    if (!status && !signal) {
        log_line(r->s, PI_LOG_WARN, "model %s: downloaded", d->name);
        router_event(r, d->name, "download_finished", NULL);
    } else {
        log_line(r->s, PI_LOG_ERROR, "model %s: the download %s: %s", d->name, d->canceled ? "was canceled" : "failed",
                 d->tail);
        router_event(r, d->name, "download_failed", d->canceled ? NULL : json_pack("{s:o}", "message",
                                                                text_json(d->tail, strlen(d->tail))));
    }
    const bool ok = !status && !signal;
    download_free(d);
    if (ok) router_reload(r, NULL);
}

static bool start(download *d)
{
    const router *r = d->r;
    const process_events events = {.on_line = on_line, .on_log = on_log, .on_exit = on_process_exit, .ud = d};
    char path[108];
    int rc;
    cli c;
    if (!cli_copy(&c, r->s->c)) return false;
    model_list_unset_one(&c);
    private_dir_path(&r->dir, "download-", d->id, ".ini", path);
    const bool ok = cli_set(&c, "hf-repo", d->name) && cli_set(&c, "download-progress", "true") &&
                    cli_set(&c, "dry-run", d->dry ? "true" : "false") && router_write_options(&c, path, "");
    cli_free(&c);
    if (ok) d->p = model_process_start(&r->s->loop, "pull", path, &events, &rc);
    return d->p != NULL;
}

/* --------------------------------------------------------------------------------------------------- for the router */

static void cancel(download *d)
{
    d->canceled = true;
    if (d->p) model_process_signal(d->p, SIGTERM);
}

bool router_cancel_download(router *r, const char *name)
{
    download *d = find(r, name);
    if (d) cancel(d);
    return d != NULL;
}

void router_cancel_downloads(router *r)
{
    for (download *d = r->downloads; d; d = d->next) cancel(d);
}

void router_kill_downloads(router *r)
{
    for (download *d = r->downloads; d; d = d->next)
        if (d->p) model_process_signal(d->p, SIGKILL);
}

size_t router_n_downloads(const router *r)
{
    size_t n = 0;
    for (const download *d = r->downloads; d; d = d->next) n++;
    return n;
}

void router_list_downloads(const router *r, json_t *list)
{
    for (const download *d = r->downloads; d; d = d->next) {
        if (d->dry) continue;
        const json_t *v;
        const char *url;
        double done = 0, total = 0;
        json_object_foreach(d->files, url, v) {
            done += json_number_value(json_object_get(v, "done"));
            total += json_number_value(json_object_get(v, "total"));
        }
        json_array_append_new(list, json_pack("{s:s, s:[], s:s, s:I, s:s, s:s, s:b, s:{s:s, s:f, s:b, s:i, s:i}}", "id",
                                              d->name, "aliases", "object", "model", "created",
                                              (json_int_t) r->s->created, "owned_by", "pagedinfer", "source", "cache",
                                              "can_remove", 1, "status", "value", "downloading", "progress",
                                              total > 0 ? done / total : 0.0, "pinned", 0, "requests", 0, "waiting",
                                              0));
    }
}

/* ----------------------------------------------------------------------------------------------------------- orders */

bool router_may_update(server *s, exchange *ex)
{
    if (!s->router)
        answer_error(ex, 404, NULL, NULL, "this server has one model: start it with --models-dir for several");
    else if (s->router->ending)
        answer_error(ex, 503, NULL, NULL, "the server is shutting down");
    else if (!cli_bool(s->c, "models-updates"))
        answer_error(ex, 403, NULL, NULL, "downloading and removing models is disabled: start the server with "
                     "--models-updates");
    else
        return true;
    return false;
}

static void on_gone(exchange *ex)
{
    ((download *) ex->job)->ex = NULL;
    exchange_abort(ex);
}

void handle_model_add(server *s, exchange *ex)
{
    router *r = s->router;
    const buf *b = &ex->req.body;
    body_fields f;
    char id[257], quant[65];
    if (!router_may_update(s, ex)) return;
    body_scan(b->p ? b->p : "", b->n < MAX_ORDER ? b->n : 0, "model", &f);
    if (f.fault != BODY_OK || !hub_split_name(f.model, id, quant)) {
        answer_error(ex, 400, "model", NULL, "the body must be {\"model\": \"USER/NAME\"} or \"USER/NAME:QUANT\"");
        return;
    }
    if (model_list_find(&r->list, f.model) < r->list.n || find(r, f.model)) {
        answer_error(ex, 400, "model", NULL, "model '%.200s' already exists, or is being downloaded", f.model);
        return;
    }
    if (router_n_downloads(r) >= MAX_DOWNLOADS) {
        answer_error(ex, 429, NULL, NULL, "%d downloads are running: try again when one has ended", MAX_DOWNLOADS);
        return;
    }
    download *d = calloc(1, sizeof *d);
    if (d) *d = (download) {.r = r, .ex = ex, .id = r->n_ids++, .dry = true, .files = json_object(),
                            .next = r->downloads};
    if (!d || !d->files) {
        free(d);
        answer_error(ex, 503, NULL, NULL, "out of memory");
        return;
    }
    snprintf(d->name, sizeof d->name, "%s", f.model);
    r->downloads = d;
    ex->job = d;
    ex->on_gone = on_gone;
    if (start(d)) return;
    respond(d, 503, "the process of the download cannot be started");
    download_free(d);
}
