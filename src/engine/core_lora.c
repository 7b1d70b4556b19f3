/* The engine: loading, replacing, scaling and unloading LoRA adapters.
 *
 * The caller's thread reads the file. The step thread places the matrices between steps and frees them when the last
 * request that uses them has ended (loras.c). The list of adapters is guarded by the lock of the core. */
#include "engine/core.h"

#include <stdio.h>

#include "base/error.h"
#include "base/versioned.h"
#include "engine/core_impl.h"

/* Returns PI_EINVAL: requests that name no adapters would use more than PI__MAX_LORA adapters. */
static int too_many(const char *name, pi_error *err)
{
    return pi__fail(err, PI_EINVAL, "adapter '%.60s': requests without option lora would use more than %d adapters: "
                    "set the scale of some to 0", name, PI__MAX_LORA);
}

static int no_adapter(const char *name, pi_error *err)
{
    return pi__fail(err, PI_ENOENT, "adapter '%.60s' is not loaded", name);
}

/* Wakes the step thread to place entry n, and waits until n is ready or has failed. Returns the result of placing. Call
 * with the lock held; the wait releases it. */
static int await_adapter(pi__core *e, pi__lora_entry *n, pi_error *err)
{
    int rc = PI_OK;
    n->n_users++; /* this call is a user */
    e->lora_work = true;
    pthread_cond_signal(&e->wake);
    while (!n->ready && !n->removed) pthread_cond_wait(&e->changed, &e->lock);
    if (n->code) rc = pi__fail(err, n->code, "%s", n->err.msg);
    n->n_users--;
    e->lora_work |= n->removed;
    return rc;
}

int pi__core_lora_replace(pi__core *e, const char *name, const char *path, pi_error *err)
{
    pi__adapter *a;
    int rc = pi__adapter_read(&a, e->setup.m, path, err);
    if (rc) return rc;
    pthread_mutex_lock(&e->lock);
    pi__lora_entry *old = pi__loras_find(&e->loras, name);
    const bool up = e->state != PI_STATE_FAILED && !e->closing, can = old && up;
    pi__lora_entry *n = can ? pi__loras_offer(&e->loras, name, path, a, 0, old) : NULL;
    if (n) rc = await_adapter(e, n, err);
    pthread_mutex_unlock(&e->lock);
    if (n) return rc;
    if (can) return pi__fail_mem(err, "an adapter");
    pi__adapter_free(a, NULL);
    return up ? no_adapter(name, err) : pi__fail(err, PI_ECLOSED, "the engine failed or is closing");
}

int pi__core_lora_load(pi__core *e, const char *name, const char *path, float scale, pi_error *err)
{
    pi__adapter *a;
    int rc = pi__adapter_read(&a, e->setup.m, path, err);
    if (rc) return rc;
    pthread_mutex_lock(&e->lock);
    const bool taken = pi__loras_taken(&e->loras, name), up = e->state != PI_STATE_FAILED && !e->closing;
    const bool few = pi__loras_may_have(&e->loras, NULL, scale);
    pi__lora_entry *n = taken || !up || !few ? NULL : pi__loras_offer(&e->loras, name, path, a, scale, NULL);
    if (n) rc = await_adapter(e, n, err);
    pthread_mutex_unlock(&e->lock);
    if (n) return rc;
    if (taken || !up || !few) pi__adapter_free(a, NULL);
    if (!up) return pi__fail(err, PI_ECLOSED, "the engine failed or is closing");
    if (!taken && !few) return too_many(name, err);
    if (!taken) return pi__fail_mem(err, "an adapter");
    return pi__fail(err, PI_EBUSY, "adapter '%.60s' is already loaded: unload it first, or use another name",
                    name);
}

/* Finds a ready adapter by name and unloads it for new requests, or sets its scale. */
static int change_adapter(pi__core *e, const char *name, bool unload, float scale, pi_error *err)
{
    pthread_mutex_lock(&e->lock);
    pi__lora_entry *n = pi__loras_find(&e->loras, name);
    const bool few = !n || unload || pi__loras_may_have(&e->loras, n, scale);
    if (n && unload) n->removed = e->lora_work = true;
    else if (n && few) n->scale = scale;
    if (n) pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    if (!few) return too_many(name, err);
    return n ? PI_OK : no_adapter(name, err);
}

int pi__core_lora_unload(pi__core *e, const char *name, pi_error *err) { return change_adapter(e, name, true, 0, err); }
int pi__core_lora_scale(pi__core *e, const char *name, float scale, pi_error *err)
{
    return change_adapter(e, name, false, scale, err);
}

int pi__core_lora_at(pi__core *e, size_t i, pi_lora *out)
{
    int rc = pi__versioned_check(out);
    if (rc) return rc;
    pthread_mutex_lock(&e->lock);
    const pi__lora_entry *n = pi__loras_at(&e->loras, i);
    pi_lora l = {.size = sizeof l};
    if (n) {
        snprintf(l.name, sizeof l.name, "%s", n->name);
        snprintf(l.path, sizeof l.path, "%s", n->path);
        l.scale = n->scale;
        l.rank = (uint32_t) n->adapter->max_rank;
        l.n_matrices = (uint32_t) n->adapter->n_pairs;
        l.bytes = n->adapter->size;
        l.n_running = (uint32_t) n->n_users;
    }
    pthread_mutex_unlock(&e->lock);
    return n ? pi__versioned_copy(out, &l, sizeof l) : PI_ENOENT;
}
