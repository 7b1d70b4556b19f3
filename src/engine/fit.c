/* A model that may be too large for its device: implements gpu-layers auto, and suggests a placement that fits
 * otherwise.
 *
 * The plan reports the exact device memory of a placement. So a placement is tried by declaring the model with it,
 * and the best one that fits is found by binary search. For a model with experts, the experts of the first layers
 * move to the CPU first, as with n-cpu-moe: they take much memory and little of it is read per token. Then complete
 * layers move, from the first on:
 *
 *     all on the device  ->  experts of layers 0..n on the CPU  ->  all of layers 0..n on the CPU  ->  CPU only
 *
 * Some free memory is left for captured steps, device libraries and other users of the device. Memory: as declaring
 * needs. Opening thread only, before anything is loaded. */
#include "engine/fit.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const uint64_t MARGIN = UINT64_C(1) << 30; /* bytes to leave free, at most an eighth of the free memory */

static pi__backend *device_of(const pi__setup *s) { return pi__backend_at(s->be, PI__AT_DEVICE); }

/* Returns the free bytes of the device; 0 = unknown, or no discrete device. */
static int free_memory(pi__setup *s, uint64_t *bytes, pi_error *err)
{
    pi__backend *dev = device_of(s);
    *bytes = dev->discrete && dev->opt->free_memory ? dev->opt->free_memory(dev) : 0;
    return *bytes || !dev->discrete ? PI_OK : dev->dev->finish(dev, err);
}

/* Declares the model with these rules. *need: bytes of device memory; 0 if the CPU has everything. */
static int try_rules(pi__setup *s, const pi__placement_rules *r, uint64_t *need, pi_error *err)
{
    *need = 0;
    pi__setup_undeclare(s);
    pi__placement_free(s->placement);
    s->placement = NULL;
    int rc = pi__placement_create(&s->placement, r, pi__setup_device(s), s->g, err);
    if (!rc) rc = pi__setup_declare(s, err);
    if (!rc && !pi__placement_cpu(s->placement)) rc = pi__setup_device_need(s, need, err);
    return rc;
}

/* Returns the rules that move the experts of n layers, or n complete layers, to the CPU. */
static pi__placement_rules rules_of(const pi__setup *s, bool experts, int32_t n)
{
    pi__placement_rules r = s->cfg.placement;
    r.limited = !experts;
    r.gpu_layers = experts ? 0 : s->m->n_layer + 1 - n;
    r.n_cpu_moe = experts ? n : r.n_cpu_moe;
    return r;
}

/* Finds the smallest n in lo..hi for which the device part fits `room` bytes; hi + 1 = none fits. */
static int find_min_n(pi__setup *s, bool experts, int32_t lo, int32_t hi, uint64_t room, int32_t *n, pi_error *err)
{
    int rc = PI_OK;
    for (hi++; lo < hi && !rc;) {
        const int32_t mid = lo + (hi - lo) / 2;
        const pi__placement_rules r = rules_of(s, experts, mid);
        uint64_t need;
        rc = try_rules(s, &r, &need, err);
        if (need <= room) hi = mid;
        else lo = mid + 1;
    }
    *n = lo;
    return rc;
}

/* Finds the rules that move the least to the CPU; s has two backends. *n: layers to move; *experts: only the experts of
 * these layers. */
static int search_rules(pi__setup *s, uint64_t room, bool *experts, int32_t *n, pi_error *err)
{
    const int32_t n_layer = s->m->n_layer, given = s->cfg.placement.n_cpu_moe;
    int rc = PI_OK;
    *experts = false;
    if (s->m->lim.max_expert && given < n_layer) {
        rc = find_min_n(s, true, given + 1, n_layer, room, n, err);
        *experts = *n <= n_layer;
        if (rc || *experts) return rc;
        s->cfg.placement.n_cpu_moe = n_layer;
    }
    return find_min_n(s, false, 1, n_layer + 1, room, n, err);
}

/* Describes the placement that was found. */
static void describe_rules(const pi__setup *s, bool experts, int32_t n, char *text, size_t size)
{
    const int32_t n_layer = s->m->n_layer, moe = s->cfg.placement.n_cpu_moe;
    char also[64] = "";
    if (!experts && moe) snprintf(also, sizeof also, " and n-cpu-moe %d", moe < n_layer ? moe : n_layer);
    if (experts) snprintf(text, size, "n-cpu-moe %d", n);
    else snprintf(text, size, "gpu-layers %d of %d%s", n_layer + 1 - n, n_layer + 1, also);
}

/* Replaces the device by the CPU: the device would have no part of the model. */
static int run_on_cpu(pi__setup *s, pi_error *err)
{
    pi__setup_undeclare(s);
    s->be->dev->destroy(s->be);
    s->be = NULL;
    int rc = pi__device_create(&s->be, "cpu", false, &s->cfg.params, &s->cfg.log, err);
    return rc ? rc : pi__setup_declare(s, err);
}

int pi__fit(pi__setup *s, pi_error *err)
{
    uint64_t left, all, need;
    bool experts;
    int32_t n;
    char what[96];
    if (!s->be->discrete || s->be->n_ranks > 1 || s->be->n_stages) return PI_OK;
    if (s->cfg.weights_from && *s->cfg.weights_from) return PI_OK; /* the weights' owner has placed them */
    int rc = free_memory(s, &left, err);
    if (rc || !left) return rc;
    const uint64_t usual = left / 8 < MARGIN ? left / 8 : MARGIN,
                   margin = s->cfg.fit_margin ? s->cfg.fit_margin : usual;
    const uint64_t room = left > margin ? left - margin : 0;
    rc = pi__setup_device_need(s, &all, err);
    if (rc || all <= room) return rc;
    if (!s->be->at[PI__AT_CPU]) rc = pi__setup_add_cpu(s, err);
    if (!rc) rc = search_rules(s, room, &experts, &n, err);
    if (rc) return rc;
    /* placement rules of the user may still name the device */
    if (!experts && n > s->m->n_layer + 1) n = s->m->n_layer + 1;
    s->cfg.placement = rules_of(s, experts, n);
    rc = try_rules(s, &s->cfg.placement, &need, err);
    if (rc) return rc;
    describe_rules(s, experts, n, what, sizeof what);
    pi__logf(&s->cfg.log, PI_LOG_INFO,
             "%s has %llu MiB free, and all of the model would take %llu with its cache: %s, which "
             "takes %llu there; the CPU has the rest",
             device_of(s)->dev->describe(device_of(s)), (unsigned long long) left >> 20, (unsigned long long) all >> 20,
             what, (unsigned long long) need >> 20);
    return pi__placement_cpu(s->placement) ? run_on_cpu(s, err) : PI_OK;
}

/* Checks that each stage's device has memory for its part. */
static int check_stages(pi__setup *s, pi_error *err)
{
    pi_plan p = {.size = sizeof p};
    int rc = pi__setup_size(s, err);
    if (!rc) pi__setup_tell(s, 0, &p);
    for (uint32_t i = 0; i < p.n_places && !rc; i++) {
        pi__backend *dev = s->be->at[i];
        const uint64_t left = dev->discrete && dev->opt->free_memory ? dev->opt->free_memory(dev) : 0;
        const uint64_t need = p.place[i].weights_bytes + p.place[i].kv_bytes + p.place[i].state_bytes +
                              p.place[i].scratch_bytes;
        if (left && need > left)
            rc = pi__fail(err, PI_ENOMEM,
                          "%s, stage %u of %u, has %llu MiB free, and what the model has there takes %llu: give it a "
                          "smaller part (tensor-split), or lower ctx-size or kv-cache-tokens",
                          dev->dev->describe(dev), i + 1, p.n_places, (unsigned long long) left >> 20,
                          (unsigned long long) need >> 20);
    }
    return rc;
}

int pi__fit_check(pi__setup *s, pi_error *err)
{
    uint64_t left, need;
    bool experts;
    int32_t n;
    char device[96], what[128] = "lower ctx-size or kv-cache-tokens";
    if (s->be->n_stages) return check_stages(s, err);
    int rc = free_memory(s, &left, err);
    if (!rc && left) rc = pi__setup_device_need(s, &need, err);
    if (rc || !left || need <= left) return rc;
    snprintf(device, sizeof device, "%.90s", device_of(s)->dev->describe(device_of(s)));
    if (s->be->n_ranks > 1) {
        snprintf(what, sizeof what, "use more devices, or lower ctx-size or kv-cache-tokens");
    } else if (!s->cfg.weights_from || !*s->cfg.weights_from) { /* the owner chose a placement that fits */
        if (!s->be->at[PI__AT_CPU]) rc = pi__setup_add_cpu(s, err);
        if (!rc) rc = search_rules(s, left, &experts, &n, err);
        if (rc) return rc;
        if (experts || n <= s->m->n_layer + 1) {
            describe_rules(s, experts, n, what, sizeof what);
            strncat(what, " would fit", sizeof what - strlen(what) - 1);
        }
    }
    return pi__fail(err, PI_ENOMEM, "%s has %llu MiB free, and what the model has there takes %llu: %s", device,
                    (unsigned long long) left >> 20, (unsigned long long) need >> 20, what);
}
