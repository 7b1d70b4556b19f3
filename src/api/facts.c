/* Facts of devices and of an open engine: state, properties, metadata and counters. No memory, any thread. */
#include <stdio.h>
#include <string.h>

#include "api/image_prompt.h"
#include "base/error.h"
#include "base/versioned.h"

int pi_device_describe(size_t i, pi_device *out)
{
    pi__device_info info;
    pi_device d = {0};
    if (pi__versioned_check(out)) return PI_EINVAL;
    for (int k = 0; k < pi__n_devices; k++) {
        const pi__device *kind = &pi__devices[k];
        for (int32_t index = 0; kind->tell(index, &info); index++) {
            if (i--) continue;
            if (index) snprintf(d.name, sizeof d.name, "%.4s%d", kind->name, index);
            else snprintf(d.name, sizeof d.name, "%s", kind->name);
            memcpy(d.desc, info.desc, sizeof d.desc);
            memcpy(d.lacks, info.lacks, sizeof d.lacks);
            d.memory_bytes = info.memory;
            d.usable = info.usable;
            return pi__versioned_copy(out, &d, sizeof d);
        }
    }
    return PI_ENOENT;
}

int pi_engine_state(const pi_engine *e) { return e ? pi__core_state(e->core) : PI_EINVAL; }

int pi_engine_info(const pi_engine *e, pi_info *out)
{
    pi_info info = {.size = sizeof info};
    if (!e) return PI_EINVAL;
    int rc = pi__core_info(e->core, &info);
    if (pi__engine_tower(e)) info.modalities |= PI_MODALITY_VISION;
    return rc ? rc : pi__versioned_copy(out, &info, sizeof info);
}

/* Terminates the text with a NUL within cap, like snprintf. Returns its full length. */
static int64_t finish_text(const pi__sink *t, char *out, size_t cap)
{
    if (cap) out[t->n < cap ? t->n : cap - 1] = 0;
    return (int64_t) t->n;
}

int64_t pi_engine_meta(const pi_engine *e, const char *key, char *out, size_t cap)
{
    if (!e || !key || (!out && cap)) return PI_EINVAL;
    const pi__gguf_kv *kv = pi__gguf_copy_find(pi__core_metadata(e->core), key);
    pi__sink t = {.p = out, .cap = cap};
    if (!kv) return PI_ENOENT;
    pi__gguf_value_text(&t, kv, UINT64_MAX, false);
    return finish_text(&t, out, cap);
}

int64_t pi_engine_meta_key(const pi_engine *e, size_t i, char *out, size_t cap)
{
    if (!e || (!out && cap)) return PI_EINVAL;
    const pi__gguf_copy *c = pi__core_metadata(e->core);
    pi__sink t = {.p = out, .cap = cap};
    if (i >= c->n) return PI_ENOENT;
    pi__sink_add(&t, c->kv[i].key.p, c->kv[i].key.n);
    return finish_text(&t, out, cap);
}

int pi_engine_memory(const pi_engine *e, pi_plan *out)
{
    return e ? pi__core_memory(e->core, out) : PI_EINVAL;
}

int pi_engine_stats(const pi_engine *e, pi_stats *out)
{
    return e ? pi__core_stats(e->core, out) : PI_EINVAL;
}
