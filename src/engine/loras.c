/* The adapters of an engine (see loras.h). */
#include "engine/loras.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

pi__lora_entry *pi__loras_offer(pi__loras *l, const char *name, const char *path, pi__adapter *a, float scale,
                                pi__lora_entry *old)
{
    pi__lora_entry *n = pi__calloc(1, sizeof *n), **end = old ? &old->next : &l->first;
    if (n) n->name = pi__strdup(name), n->path = pi__strdup(path);
    if (!n || !n->name || !n->path) {
        if (n) pi__free(n->name), pi__free(n->path);
        pi__free(n);
        pi__adapter_free(a, NULL);
        return NULL;
    }
    n->adapter = a;
    n->scale = scale;
    n->replaces = old != NULL;
    while (!old && *end) end = &(*end)->next;
    n->next = *end;
    *end = n;
    return n;
}

bool pi__loras_taken(const pi__loras *l, const char *name)
{
    for (const pi__lora_entry *e = l->first; e; e = e->next)
        if (!e->removed && !strcmp(e->name, name)) return true;
    return false;
}

pi__lora_entry *pi__loras_find(const pi__loras *l, const char *name)
{
    for (pi__lora_entry *e = l->first; e; e = e->next)
        if (e->ready && !e->removed && !strcmp(e->name, name)) return e;
    return NULL;
}

pi__lora_entry *pi__loras_at(const pi__loras *l, size_t i)
{
    for (pi__lora_entry *e = l->first; e; e = e->next)
        if (e->ready && !e->removed && !i--) return e;
    return NULL;
}

bool pi__loras_may_have(const pi__loras *l, const pi__lora_entry *e, float scale)
{
    int32_t n = scale != 0;
    for (const pi__lora_entry *of = l->first; of; of = of->next) n += of != e && !of->removed && of->scale != 0;
    return !(scale != 0) || n <= PI__MAX_LORA;
}

/* -------------------------------------------------------------------------------------------------------- requests */

static int fail_unknown(const pi__loras *l, const char *name, pi_error *err)
{
    char known[120] = "";
    for (size_t i = 0, n = 0; pi__loras_at(l, i) && n < sizeof known; i++)
        n += (size_t) snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", pi__loras_at(l, i)->name);
    if (!*known) return pi__fail(err, PI_ENOENT, "adapter '%.60s' is not loaded: no adapter is", name);
    return pi__fail(err, PI_ENOENT, "adapter '%.60s' is not loaded: give one of %s", name, known);
}

/* Returns < 0 if a is added before b. */
static int order_of(const pi__lora_entry *a, const pi__lora_entry *b)
{
    return memcmp(&a->adapter->id, &b->adapter->id, sizeof a->adapter->id);
}

/* Inserts an adapter by id; equal ids (two files with the same content) by scale. */
static int insert_use(pi__lora_uses *u, pi__lora_entry *e, float scale, pi_error *err)
{
    int32_t at = u->n;
    if (scale == 0) return PI_OK;
    if (u->n == PI__MAX_LORA)
        return pi__fail(err, PI_EINVAL, "a request can use at most %d adapters: give fewer", PI__MAX_LORA);
    for (int32_t i = 0; i < u->n; i++)
        if (u->use[i].of == e) return pi__fail(err, PI_EINVAL, "adapter '%.60s' is named twice", e->name);
    for (; at > 0; at--) {
        const int order = order_of(e, u->use[at - 1].of);
        if (order > 0 || (!order && scale >= u->use[at - 1].scale)) break;
        u->use[at] = u->use[at - 1];
    }
    u->use[at].of = e;
    u->use[at].scale = scale;
    u->n++;
    return PI_OK;
}

static void set_uses_id(pi__lora_uses *u)
{
    for (int32_t i = 0; i < u->n; i++) {
        pi__hasher h;
        pi__hash_begin(&h, PI__HASH_ADAPTERS);
        pi__hash_field(&h, &u->id, sizeof u->id);
        pi__hash_field(&h, &u->use[i].of->adapter->id, sizeof u->id);
        pi__hash_field(&h, &u->use[i].scale, sizeof u->use[i].scale);
        u->id = pi__hash_end(&h);
    }
}

int pi__loras_use(const pi__loras *l, const pi__gen_params *p, pi__lora_uses *out, pi_error *err)
{
    int rc = PI_OK;
    *out = (pi__lora_uses) {.n = 0};
    for (pi__lora_entry *e = l->first; e && !p->lora_given && !rc; e = e->next)
        if (e->ready && !e->removed) rc = insert_use(out, e, e->scale, err);
    for (size_t i = 0; i < p->n_lora && !rc; i++) {
        pi__lora_entry *e = pi__loras_find(l, p->lora[i].name);
        rc = e ? insert_use(out, e, p->lora[i].scale, err) : fail_unknown(l, p->lora[i].name, err);
    }
    if (rc) return rc;
    for (int32_t i = 0; i < out->n; i++) out->use[i].of->n_users++;
    set_uses_id(out);
    return PI_OK;
}

static bool is_unused(const pi__lora_entry *e) { return e->removed && !e->n_users; }

bool pi__loras_release(pi__lora_uses *u)
{
    bool sweep = false;
    for (int32_t i = 0; i < u->n; i++) {
        u->use[i].of->n_users--;
        sweep = sweep || is_unused(u->use[i].of);
    }
    u->n = 0;
    return sweep;
}

/* ----------------------------------------------------------------------------------------------------- step thread */

static void entry_free(pi__lora_entry *e, pi__backend *be)
{
    pi__adapter_free(e->adapter, be);
    pi__free(e->name);
    pi__free(e->path);
    pi__free(e);
}

/* Returns the next entry to place, or to free; an entry to free is removed from the list. NULL = done. */
static pi__lora_entry *next_of(pi__loras *l, bool *frees)
{
    for (pi__lora_entry **at = &l->first, *e; (e = *at); at = &e->next) {
        *frees = is_unused(e);
        if (*frees) *at = e->next;
        if (*frees || (!e->ready && !e->removed)) return e;
    }
    return NULL;
}

/* Makes the placed entry e visible to requests. With e->replaces, e takes over the scale of the ready entry of the same
 * name, and that entry is marked as removed. */
static void publish_entry(pi__loras *l, pi__lora_entry *e)
{
    pi__lora_entry *old = e->replaces ? pi__loras_find(l, e->name) : NULL;
    if (old) e->scale = old->scale, old->removed = true;
    e->ready = true;
}

void pi__loras_serve(pi__loras *l, pi__backend *be, pthread_mutex_t *lock, pthread_cond_t *changed)
{
    pi__lora_entry *e;
    bool frees;
    pthread_mutex_lock(lock);
    while ((e = next_of(l, &frees))) {
        pthread_mutex_unlock(lock);
        if (frees) entry_free(e, be);
        pi_error err = {0};
        const int rc = frees ? PI_OK : pi__adapter_place(e->adapter, be, &err);
        pthread_mutex_lock(lock);
        if (frees) continue;
        e->code = rc;
        e->err = err;
        e->removed = rc != PI_OK;
        if (!rc) publish_entry(l, e);
        pthread_cond_broadcast(changed);
    }
    pthread_mutex_unlock(lock);
}

void pi__loras_destroy(pi__loras *l, pi__backend *be)
{
    for (pi__lora_entry *e = l->first, *next; e; e = next) {
        next = e->next;
        entry_free(e, be);
    }
    l->first = NULL;
}

/* ----------------------------------------------------------------------------------------------------------- batch */

void pi__loras_add(pi__batch_builder *bb, int32_t q, const pi__lora_uses *u)
{
    for (int32_t i = 0; i < u->n; i++)
        pi__batch_add_lora(bb, q, i, u->use[i].of->adapter->device, u->use[i].of->adapter->rank, u->use[i].scale);
}
