/* The engine object: plan, open, close, and tokenizing with the engine's vocabulary.
 *
 * Memory: the object; the core holds the rest. Threads: as in the header. Closing proceeds from the outside in:
 * refuse requests, cancel running ones and wait for their ends, call their callbacks, then free the core. A callback
 * may therefore use the engine until its last event. */
#include <stdio.h>
#include <string.h>

#include "api/breakers.h"
#include "api/chat.h"
#include "api/config.h"
#include "api/events.h"
#include "api/ids.h"
#include "api/lora.h"
#include "api/objects.h"
#include "api/rank.h"
#include "api/request.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/versioned.h"
#include "tokenizer/infill.h"

/* ------------------------------------------------------------------------------------------------------------ plan */

/* Converts the options. Adapters are loaded after the core, which leaves memory for them. */
static int config_of(const pi_options *o, pi__config *c, pi_error *err)
{
    const int rc = pi__config_of(o, c, err);
    if (!rc) c->adapter_bytes = pi__lora_file_bytes(o);
    return rc;
}

int pi_engine_plan(const pi_options *o, pi_plan *out, pi_error *err)
{
    if (!o || pi__versioned_check(out)) {
        return pi__fail(err, PI_EINVAL, "pi_engine_plan: options and a plan with its size are needed");
    }
    pi__config c;
    int rc = config_of(o, &c, err);
    return rc ? rc : pi__core_plan(&c, out, err);
}

/* ----------------------------------------------------------------------------------------------------- open, close */

static void free_parts(pi_engine *e)
{
    pi__chat_free(e->chat);
    pi__free(e->rank_template);
    pi__free(e->rank_markup);
    pi__core_close(e->core);
}

int pi_engine_open(pi_engine **out, const pi_options *o, pi_error *err)
{
    if (!out) return pi__fail(err, PI_EINVAL, "pi_engine_open: out must not be NULL");
    *out = NULL;
    if (!o) return pi__fail(err, PI_EINVAL, "pi_engine_open: options must not be NULL");
    pi__config c;
    int rc = config_of(o, &c, err);
    if (rc) return rc;
    pi_engine *e = pi__calloc(1, sizeof *e);
    if (!e) return pi__fail_mem(err, "the engine");
    e->log = c.log;
    rc = pi__events_init(e, err);
    if (rc) {
        pi__free(e);
        return rc;
    }
    if (pi__opt_copy(&e->defaults, &o->set, true)) rc = pi__fail_mem(err, "options");
    if (!rc) rc = pi__core_open(&e->core, &c, err);
    if (!rc) rc = pi__engine_open_chat(e, o, err);
    if (!rc) rc = pi__engine_open_rank(e, err);
    if (!rc) rc = pi__engine_open_lora(e, o, err);
    if (rc) {
        free_parts(e);
        pi__opt_clear(&e->defaults);
        pi__events_destroy(e);
        pi__free(e);
        return rc;
    }
    *out = e;
    return PI_OK;
}

void pi_engine_close(pi_engine *e)
{
    if (!e) return;
    pi__core_drain(e->core, 0); /* refuse submits from now on */
    pthread_mutex_lock(&e->lock);
    for (pi_request *r = e->running; r; r = r->next) pi__request_cancel(r);
    pthread_mutex_unlock(&e->lock);
    pi__core_drain(e->core, -1);
    pi__dispatch_stop(e);
    pi__breakers_put(e, e->breakers);
    free_parts(e);
    pi__sampler_scratch_free(e->row_scratch);
    pi__opt_clear(&e->defaults);
    pi__events_destroy(e);
    pi__free(e);
}

int pi_engine_drain(pi_engine *e, int timeout_ms) { return e ? pi__core_drain(e->core, timeout_ms) : PI_EINVAL; }

int pi_engine_cache_clear(pi_engine *e, const char *salt)
{
    if (!e) return PI_EINVAL;
    pi__core_cache_clear(e->core, salt);
    return PI_OK;
}

int pi_engine_on_cache_event(pi_engine *e, pi_cache_event_fn fn, void *ud, pi_error *err)
{
    if (!e || !fn) return pi__fail(err, PI_EINVAL, "an engine and a function are needed");
    return pi__core_on_cache_event(e->core, fn, ud, err);
}

/* ------------------------------------------------------------------------------------------------------------ text */

int64_t pi_work_tokenize(pi_work *w, const pi_engine *e, const char *text, size_t len, int flags, int32_t *out,
                         size_t cap)
{
    if (!e || (!text && len) || (!out && cap)) return PI_EINVAL;
    pi__ids ids = {.work = w ? &w->w : NULL};
    bool bos = flags & PI_TOK_BOS, special = flags & PI_TOK_SPECIAL;
    int rc = pi__tokenize(pi__core_vocab(e->core), text ? text : "", len, bos, special, &ids);
    if (!rc && ids.n && cap) memcpy(out, ids.p, (ids.n < cap ? ids.n : cap) * sizeof *out);
    pi__free(ids.p);
    return rc ? rc : (int64_t) ids.n;
}

int64_t pi_tokenize(const pi_engine *e, const char *text, size_t len, int flags, int32_t *out, size_t cap)
{
    return pi_work_tokenize(NULL, e, text, len, flags, out, cap);
}

int64_t pi_work_infill(pi_work *w, const pi_engine *e, const pi_infill_parts *in, int32_t *out, size_t cap,
                       pi_error *err)
{
    if (!e || !in || (!out && cap)) return pi__fail(err, PI_EINVAL, "pi_infill: engine, parts and buffer are needed");
    pi__ids ids = {.work = w ? &w->w : NULL};
    int rc = pi__infill(pi__core_vocab(e->core), in, &ids, err);
    if (!rc && cap) memcpy(out, ids.p, (ids.n < cap ? ids.n : cap) * sizeof *out);
    pi__free(ids.p);
    return rc ? rc : (int64_t) ids.n;
}

int64_t pi_infill(const pi_engine *e, const pi_infill_parts *in, int32_t *out, size_t cap, pi_error *err)
{
    return pi_work_infill(NULL, e, in, out, cap, err);
}

int64_t pi_detokenize(const pi_engine *e, const int32_t *ids, size_t n, int flags, char *out, size_t cap)
{
    pi_info info = {.size = sizeof info};
    if (!e || (!ids && n) || (!out && cap)) return PI_EINVAL;
    if (pi__core_info(e->core, &info) || !pi__ids_below(ids, n, info.n_vocab)) return PI_EINVAL;
    char *text = NULL;
    size_t len = 0;
    int rc = pi__detokenize(pi__core_vocab(e->core), ids, n, flags & PI_TOK_SPECIAL, &text, &len);
    if (rc) return rc;
    if (cap && len) memcpy(out, text, len < cap ? len : cap);
    pi__free(text);
    return (int64_t) len;
}
