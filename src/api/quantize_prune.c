/* Removal of layers (see quantize_prune.h). */
#include "api/quantize_prune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/quantize_mix.h"
#include "base/alloc.h"
#include "base/error.h"

/* Returns a metadata array ARCH.* with one value per layer, or NULL. */
static const pi__gguf_kv *by_layer(const pi__gguf *g, pi__str arch, int n_layer)
{
    for (size_t i = 0; i < pi__gguf_n_kv(g); i++) {
        const pi__gguf_kv *kv = pi__gguf_kv_at(g, i);
        bool of_arch = kv->key.n > arch.n && !memcmp(kv->key.p, arch.p, arch.n) && kv->key.p[arch.n] == '.';
        if (of_arch && kv->type == PI__GGUF_ARR && kv->n == (uint64_t) n_layer) return kv;
    }
    return NULL;
}

static int read_list(pi__prune *p, const char *list, pi_error *err)
{
    for (const char *s = list;; s++) {
        char *end;
        long layer = strtol(s, &end, 10);
        if (end == s || (*end && *end != ',') || layer < 0 || layer >= p->n_layer)
            return pi__fail(err, PI_EINVAL,
                            "prune-layers=%.80s: expected numbers of layers from 0 to %d, with commas between", list,
                            p->n_layer - 1);
        p->n_gone += !p->gone[layer];
        p->gone[layer] = true;
        s = end;
        if (!*s) break;
    }
    if (p->n_gone == p->n_layer) return pi__fail(err, PI_EINVAL,
                                                 "prune-layers=%.80s: no layer is left: leave at least one", list);
    return PI_OK;
}

int pi__prune_init(pi__prune *p, const char *list, const pi__gguf *g, pi_error *err)
{
    pi__str arch;
    char key[96];
    uint32_t n = 0;
    *p = (pi__prune) {0};
    int rc = pi__gguf_get_str(g, "general.architecture", &arch, err);
    if (rc) return rc;
    snprintf(key, sizeof key, "%.*s.block_count", arch.n < 64 ? (int) arch.n : 64, arch.p);
    rc = pi__gguf_get_u32(g, key, &n, 0, err);
    if (rc) return rc;
    if (n < 1 || n > 1u << 20) return pi__fail(err, PI_EINVAL,
                                               "prune-layers: a layer count of %u in the model is not supported", n);
    const pi__gguf_kv *kv = by_layer(g, arch, (int) n);
    if (kv)
        return pi__fail(err, PI_EUNSUPPORTED, "prune-layers: %.*s has a value per layer, which is not supported",
                        (int) kv->key.n, kv->key.p);
    p->n_layer = (int) n;
    p->gone = pi__calloc(n, sizeof *p->gone);
    if (!p->gone) return pi__fail_mem(err, "the list of layers");
    return read_list(p, list, err);
}

void pi__prune_free(pi__prune *p)
{
    pi__free(p->gone);
    *p = (pi__prune) {0};
}

bool pi__prune_drops(const pi__prune *p, const pi__tensor *t)
{
    const int32_t layer = p->n_gone ? pi__gguf_layer(t->cname, NULL) : -1;
    return layer >= 0 && layer < p->n_layer && p->gone[layer];
}

void pi__prune_name(const pi__prune *p, const pi__tensor *t, char *out)
{
    const char *rest = t->cname;
    const int32_t layer = p->n_gone ? pi__gguf_layer(t->cname, &rest) : -1;
    int32_t now = layer;
    memcpy(out, t->name.p, t->name.n);
    out[t->name.n] = 0;
    for (int32_t i = 0; i < layer && i < p->n_layer; i++) now -= p->gone[i];
    if (now == layer) return;
    const size_t from = (size_t) (rest - t->cname), n = t->name.n - from; /* the name may be longer than cname */
    char *at = strstr(out, "blk.") + 4;                                    /* the new number is never longer */
    at += snprintf(at, from, "%d.", now);
    memcpy(at, t->name.p + from, n);
    at[n] = 0;
}
