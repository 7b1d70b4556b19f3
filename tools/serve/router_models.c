/* Changes of a front end's list of models: GET /models?reload=1 and DELETE /models. A scan runs on the pool; its result
 * is taken on the loop's thread, like all else.
 *
 *     r->list.m   | models of clients, by name | removed ones, until their processes have ended |
 *                 0                          list.n                                       router_n_all */
#include <stdlib.h>
#include <string.h>

#include "hub_cache.h"
#include "serve/log.h"
#include "serve/router_impl.h"

typedef struct reloader { /* a client that waits for a new list */
    router *r;
    exchange *ex;
    uint64_t number;      /* of its order */
    struct reloader *next;
} reloader;

struct removal {          /* a model whose files are to be removed from the cache */
    router *r;
    model *m;
    exchange *ex;         /* NULL = the client has disconnected */
    prep work;            /* removes the files, after the process has ended */
    bool begun;           /* work was started */
    int code;             /* exit code of the removal */
    uint64_t freed;       /* bytes of removed files */
};

/* -------------------------------------------------------------------------------------------------- lists of models */

static void set_indices(router *r)
{
    for (size_t i = 0; i < router_n_all(r); i++) {
        r->m[i]->i = i;
        r->m[i]->l = &r->list.m[i];
    }
}

static void model_free(model *m)
{
    json_decref(m->info);
    json_decref(m->adapters);
    free(m->removal);
    free(m);
}

/* Returns the model of this name, also a removed one; NULL = none. */
static model *named(const router *r, const char *name)
{
    for (size_t i = 0; i < router_n_all(r); i++)
        if (!strcmp(r->list.m[i].name, name)) return r->m[i];
    return NULL;
}

/* Appends the models of r that the list lacks to the list, as removed ones. The list has capacity for them. */
static void append_removed(router *r, model_list *list, model **m, model_status *st)
{
    for (size_t i = 0; i < router_n_all(r); i++) {
        bool listed = false;
        for (size_t k = 0; k < list->n && !listed; k++) listed = m[k] == r->m[i];
        if (listed) {
            model_list_free_model(&r->list.m[i]);
            continue;
        }
        const size_t k = list->n + list->n_removed++;
        list->m[k] = r->list.m[i];
        m[k] = r->m[i];
        st[k] = r->st[i];
    }
}

/* Moves the state of a model to its new entry. Returns true if its process must end. */
static bool keep(router *r, model *m, listed_model *l, model_status *st)
{
    listed_model *old = &r->list.m[m->i];
    const bool differs = model_list_differs(old, l);
    char *name = old->name; /* running requests point to the old text, which is equal */
    old->name = l->name;
    l->name = name;
    *st = r->st[m->i];
    if (!differs) return false;
    json_decref(m->info);
    m->info = NULL;
    m->n_failed = 0;
    st->retry_at = 0;
    return true;
}

bool router_take_list(router *r, model_list *list)
{
    const size_t n_old = router_n_all(r), cap = n_old + list->n, first = r->n_ids;
    for (size_t k = list->n; k-- > 0;) {
        const model *m = named(r, list->m[k].name);
        if (m && m->removal) model_list_drop(list, k); /* its files are being removed */
    }
    model **m = calloc(cap + 1, sizeof *m);
    model_status *st = calloc(cap + 1, sizeof *st);
    bool *changed = calloc(cap + 1, sizeof *changed);
    bool ok = m && st && changed && grow(&list->m, &list->cap, cap + 1, sizeof *list->m);
    for (size_t k = 0; ok && k < list->n; k++) {
        m[k] = named(r, list->m[k].name);
        if (!m[k] && (m[k] = calloc(1, sizeof **m))) *m[k] = (model) {.r = r, .id = r->n_ids++};
        ok = m[k] != NULL;
    }
    if (!ok) {
        for (size_t k = 0; m && k < list->n; k++)
            if (m[k] && m[k]->id >= first) free(m[k]);
        free(m);
        free(st);
        free(changed);
        return false;
    }
    for (size_t k = 0; k < list->n; k++) {
        const listed_model *l = &list->m[k];
        if (m[k]->l) changed[k] = keep(r, m[k], &list->m[k], &st[k]);
        st[k].pinned = l->pinned;
        st[k].idle_ms = l->idle_s > 0 ? (uint64_t) l->idle_s * 1000 : 0;
    }
    append_removed(r, list, m, st);
    free(r->list.m);
    free(r->m);
    free(r->st);
    r->list = *list;
    r->m = m;
    r->st = st;
    *list = (model_list) {0};
    set_indices(r);
    for (size_t i = 0; i < router_n_all(r); i++) {
        if (i >= r->list.n) router_unload(r, i);
        else if (changed[i]) router_stop(r, i);
    }
    free(changed);
    return true;
}

/* Frees the removed model i. */
static void drop(router *r, size_t i)
{
    const size_t last = router_n_all(r) - 1;
    model *m = r->m[i];
    private_dir_remove(&r->dir, "prefix-", m->id);
    model_list_free_model(&r->list.m[i]);
    r->list.m[i] = r->list.m[last];
    r->m[i] = r->m[last];
    r->st[i] = r->st[last];
    r->list.n_removed--;
    model_free(m);
    set_indices(r);
}

/* Moves model i to the removed ones. */
static void hide(router *r, size_t i)
{
    model *m = r->m[i];
    const listed_model l = r->list.m[i];
    const model_status st = r->st[i];
    const size_t last = r->list.n - 1;
    memmove(&r->list.m[i], &r->list.m[i + 1], (last - i) * sizeof l);
    memmove(&r->m[i], &r->m[i + 1], (last - i) * sizeof *r->m);
    memmove(&r->st[i], &r->st[i + 1], (last - i) * sizeof st);
    r->list.m[last] = l;
    r->m[last] = m;
    r->st[last] = st;
    r->list.n--;
    r->list.n_removed++;
    set_indices(r);
}

void router_free_models(router *r)
{
    for (size_t i = 0; i < router_n_all(r); i++) model_free(r->m[i]);
    model_list_free(&r->list);
    free(r->m);
    free(r->st);
}

size_t router_find_adapter(const router *r, const char *name)
{
    const json_t *v;
    size_t k;
    for (size_t i = 0; i < r->list.n; i++)
        json_array_foreach(r->m[i]->adapters, k, v)
            if (json_is_string(v) && !strcmp(json_string_value(v), name)) return i;
    for (size_t i = 0; i < r->list.n; i++)
        if (!r->m[i]->adapters && model_list_has_adapter(&r->list.m[i], name)) return i;
    return r->list.n;
}

/* ---------------------------------------------------------------------------------------------------------- reloads */

static void begin_scan(router *r);

static bool scan(prep *p)
{
    router *r = p->owner;
    r->reload.code = model_list_build(r->s->c, &r->reload.found);
    return true;
}

static void gone_reloader(exchange *ex)
{
    reloader *w = ex->job, **at = &w->r->reload.waiting;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    free(w);
    exchange_abort(ex);
}

/* Responds to the clients whose order came before the scan. why: NULL = the list is new. */
static void answer_reloaders(router *r, int status, const char *code, const char *why)
{
    const uint64_t n = r->reload.n_begun; /* a client may send its next order from within its response */
    for (reloader **at = &r->reload.waiting; *at;) {
        reloader *w = *at;
        if (w->number > n) {
            at = &w->next;
            continue;
        }
        exchange *ex = w->ex;
        *at = w->next;
        free(w);
        ex->on_gone = NULL;
        if (why) answer_error(ex, status, NULL, code, "%s", why);
        else router_answer_models(r, ex);
        at = &r->reload.waiting;
    }
}

static void scanned(prep *p, int code)
{
    router *r = p->owner;
    model_list *found = &r->reload.found;
    const size_t first = r->n_ids;
    const bool built = !code && r->reload.code < 0;
    const char *why = "out of memory";
    r->reload.runs = false;
    if (built && !r->ending && router_take_list(r, found)) {
        log_line(r->s, PI_LOG_WARN, "%zu model%s after a reload", r->list.n, r->list.n == 1 ? "" : "s");
        for (size_t i = 0; i < r->list.n; i++)
            if (r->list.m[i].on_startup && r->m[i]->id >= first) router_load(r, i);
        router_event(r, "*", "models_reload", NULL);
        answer_reloaders(r, 200, NULL, NULL);
    } else if (!code && !built) {
        answer_reloaders(r, 500, "reload_failed", "the models cannot be listed: the server's log has the reason; the "
                         "old list stays in use");
    } else {
        if (code && code != PI_ENOMEM) why = "the server is shutting down";
        answer_reloaders(r, 503, NULL, why);
    }
    model_list_free(found);
    if (r->reload.n_asked > r->reload.n_begun && !r->reload.runs && !r->ending) begin_scan(r);
    router_run(r);
}

static void begin_scan(router *r)
{
    r->reload.runs = true;
    r->reload.n_begun = r->reload.n_asked;
    r->reload.scan = (prep) {.owner = r, .run = scan, .done = scanned};
    prep_start_heavy(&r->reload.scan, r->s, NULL, 0);
}

void router_reload(router *r, exchange *ex)
{
    reloader *w = ex ? calloc(1, sizeof *w) : NULL;
    if (ex && (!w || r->ending)) {
        answer_error(ex, 503, NULL, NULL, r->ending ? "the server is shutting down" : "out of memory");
        free(w);
        return;
    }
    if (r->ending) return;
    const uint64_t number = ++r->reload.n_asked;
    if (w) {
        *w = (reloader) {.r = r, .ex = ex, .number = number, .next = r->reload.waiting};
        r->reload.waiting = w;
        ex->job = w;
        ex->on_gone = gone_reloader;
    }
    if (!r->reload.runs) begin_scan(r);
}

/* --------------------------------------------------------------------------------------------------------- removals */

static bool remove_files(prep *p)
{
    removal *x = p->owner;
    const cli *c = x->r->s->c;
    cached_models cached;
    x->code = cached_list(c, &cached);
    for (size_t i = 0; i < cached.n && !x->code; i++) {
        if (strcmp(cached.m[i].path, x->m->l->path)) continue;
        x->code = cached_remove(c, &cached.m[i], &x->freed);
        break;
    }
    cached_free(&cached);
    return true;
}

static void finish_removal(removal *x, int status, const char *why)
{
    router *r = x->r;
    exchange *ex = x->ex;
    x->m->removal = NULL;
    free(x);
    if (!r->ending) router_reload(r, NULL); /* the model returns if its files exist */
    if (!ex) return;
    ex->on_gone = NULL;
    if (why) answer_error(ex, status, NULL, NULL, "%s", why);
    else answer_json(ex, 200, json_pack("{s:b}", "success", 1));
}

static void files_removed(prep *p, int code)
{
    removal *x = p->owner;
    router *r = x->r;
    const char *name = x->m->l->name;
    if (code) {
        finish_removal(x, 503, code == PI_ENOMEM ? "out of memory" : "the server is shutting down");
    } else if (x->code) {
        finish_removal(x, 500, "the files cannot be removed: the server's log has the reason");
    } else {
        log_line(r->s, PI_LOG_WARN, "model %s: removed %.1f MiB", name, (double) x->freed / (1 << 20));
        router_event(r, name, "model_remove", NULL);
        finish_removal(x, 200, NULL);
    }
}

static void gone_removal(exchange *ex)
{
    ((removal *) ex->job)->ex = NULL;
    exchange_abort(ex);
}

void router_sweep(router *r)
{
    for (size_t i = router_n_all(r); i-- > r->list.n;) {
        const model *m = r->m[i];
        removal *x = m->removal;
        if (m->p || m->first || r->st[i].n_requests) continue;
        if (!x) {
            drop(r, i);
        } else if (r->ending && !x->begun) {
            finish_removal(x, 503, "the server is shutting down");
        } else if (!x->begun) {
            x->begun = true;
            prep_start_heavy(&x->work, r->s, NULL, 0);
        }
    }
}

void handle_model_remove(server *s, exchange *ex)
{
    router *r = s->router;
    const http_request *q = &ex->req;
    char name[MODEL_NAME_MAX];
    if (!router_may_update(s, ex)) return;
    if (!query_value(q->target.p + q->path_len, q->target.n - q->path_len, "model", name, sizeof name)) {
        answer_error(ex, 400, "model", "model_missing", "name the model: DELETE /models?model=NAME");
        return;
    }
    if (router_cancel_download(r, name)) {
        answer_json(ex, 200, json_pack("{s:b}", "success", 1));
        return;
    }
    const size_t i = model_list_find(&r->list, name);
    if (i == r->list.n) {
        answer_error(ex, 404, "model", "model_not_found", "model '%.200s' does not exist; GET /v1/models lists the "
                     "models", name);
        return;
    }
    if (strcmp(r->list.m[i].source, "cache")) {
        answer_error(ex, 400, "model", NULL, "model '%.200s' is not in the cache: remove its file or its section, then "
                     "send GET /models?reload=1", name);
        return;
    }
    removal *x = calloc(1, sizeof *x);
    if (!x) {
        answer_error(ex, 503, NULL, NULL, "out of memory");
        return;
    }
    model *m = r->m[i];
    *x = (removal) {.r = r, .m = m, .ex = ex, .work = {.owner = x, .run = remove_files, .done = files_removed}};
    m->removal = x;
    ex->job = x;
    ex->on_gone = gone_removal;
    hide(r, i);
    router_unload(r, m->i);
}
