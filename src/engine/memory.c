/* The memory of the engine (see memory.h).
 *
 * The pools hold N tokens, where N is configured or is the largest number that fits the configured bytes. A full
 * group has N / block_size blocks. A window group has blocks for the windows of all running sequences, plus one
 * step's tokens; with prefix reuse the windows count twice, so that ended conversations keep theirs. A recurrent
 * group has one slot per running sequence, and the number of snapshots that fit its budget. */
#include "engine/memory.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/versioned.h"
#include "engine/rows.h"
#include "formats/cache_types.h"

enum { DEFAULT_KV_TOKENS = 32768, MIN_SNAPSHOTS = 8, MAX_SNAPSHOTS = 4096, USUAL_REQUEST = 1024 /* tokens */ };
enum { SMALL_SNAPSHOTS = 8 /* bytes of keys and values per byte of small snapshots */ };

static int32_t ceil_div(int64_t a, int32_t b) { return (int32_t) ((a + b - 1) / b); }

/* Returns the bytes of a layer in a block; 0 = the backend does not support the layer. */
static size_t layer_bytes(const pi__memory *mem, const pi__kv_layer *kv)
{
    const pi__backend *be = pi__backend_at(mem->be, kv->placement);
    const int32_t block_size = mem->spec[kv->group].block_size;
    size_t n;
    if (!kv->ratio) n = be->dev->kv_bytes(be, kv->type_k, kv->type_v, kv->n_head_kv, kv->head_dim, block_size);
    else n = be->opt->row_bytes ? be->opt->row_bytes(be, kv->type_k, kv->head_dim, block_size / kv->ratio) : 0;
    return (n + 63) & ~(size_t) 63;
}

static int32_t blocks_for(const pi__memory *mem, const pi__group_spec *g, int64_t tokens)
{
    if (g->state) return 0;
    int64_t all = (tokens + g->block_size - 1) / g->block_size;
    if (g->window) {
        const bool twice = mem->cfg->prefix_cache && g->window > 1; /* cached prefixes need blocks, too */
        int64_t seqs = (int64_t) mem->lim.max_seqs * ((pi__group_window(g) - 1) / g->block_size + 3);
        int64_t enough = seqs * (twice ? 2 : 1) + ceil_div(mem->lim.max_tokens, g->block_size);
        if (all > enough) all = enough;
    }
    return all > INT32_MAX / 2 ? INT32_MAX / 2 : (int32_t) all;
}

/* Returns the bytes of all pools for a cache of `tokens` tokens; SIZE_MAX = overflow. */
static size_t pools_bytes(const pi__memory *mem, int64_t tokens)
{
    size_t total = 0, one;
    for (int32_t i = 0; i < mem->m->n_groups; i++) {
        if (!pi__mul_ok((size_t) blocks_for(mem, &mem->spec[i], tokens), pi__block_bytes(&mem->map, i), &one) ||
            !pi__add_ok(total, one, &total)) return SIZE_MAX;
    }
    return total;
}

/* Computes the bytes of slots and snapshots of all recurrent layers. */
static int size_states(pi__memory *mem, pi_error *err)
{
    pi__model *m = mem->m;
    memset(mem->slot_bytes, 0, sizeof mem->slot_bytes);
    mem->state_group = -1;
    for (int32_t i = 0; i < m->n_groups; i++)
        if (m->group[i].recurrent) mem->state_group = i;
    for (int32_t i = 0; i < m->n_state; i++) {
        const int32_t place = m->state[i].placement;
        const pi__backend *be = pi__backend_at(mem->be, place);
        size_t slot = be->dev->state_bytes(be, &m->state[i]), snap = be->dev->snapshot_bytes(be, &m->state[i]);
        if ((!slot || !snap) && pi__state_is_conv(&m->state[i]))
            return pi__fail(err, PI_EUNSUPPORTED, "short convolutions of %d channels with %d taps are not supported by "
                            "%s", m->state[i].dim, m->state[i].n_conv, be->dev->describe(be));
        if ((!slot || !snap) && pi__state_is_scan(&m->state[i]))
            return pi__fail(err, PI_EUNSUPPORTED, "selective scans of %d channels with %d values are not supported by "
                            "%s", m->state[i].n_v, m->state[i].dim, be->dev->describe(be));
        if (!slot || !snap)
            return pi__fail(err, PI_EUNSUPPORTED,
                            "recurrent layers of %d key and %d value heads of %d values are not "
                            "supported by %s",
                            m->state[i].n_k, m->state[i].n_v, m->state[i].dim, be->dev->describe(be));
        mem->slot_bytes[place] += (slot + 63) & ~(size_t) 63;
        mem->map.bytes[mem->state_group][place] += (snap + 63) & ~(size_t) 63;
    }
    return PI_OK;
}

/* Returns the number of snapshots if the other pools take kv bytes. By default they take as many bytes. Snapshots of
 * short convolutions take an eighth: that is one for the tokens of pi__memory_interval. */
static int32_t n_snapshots(const pi__memory *mem, size_t kv)
{
    if (!mem->cfg->prefix_cache) return 0;
    if (pi__state_is_conv(&mem->m->state[0])) kv /= SMALL_SNAPSHOTS;
    size_t one = pi__block_bytes(&mem->map, mem->state_group),
           n = (mem->cfg->snapshot_bytes ? mem->cfg->snapshot_bytes : kv) / one;
    if (!mem->cfg->snapshot_bytes && n < MIN_SNAPSHOTS) n = MIN_SNAPSHOTS;
    return n > MAX_SNAPSHOTS ? MAX_SNAPSHOTS : (int32_t) n;
}

int32_t pi__memory_interval(const pi__memory *mem)
{
    const int32_t most = mem->cfg->snapshot_interval;
    size_t kv = 0; /* bytes of 64 tokens */
    if (mem->state_group < 0 || !pi__state_is_conv(&mem->m->state[0])) return most;
    for (int32_t i = 0; i < mem->map.n_groups; i++)
        if (i != mem->state_group) kv += pi__block_bytes(&mem->map, i) * 64 / (size_t) mem->map.block_size[i];
    int32_t n = mem->map.block_size[mem->state_group];
    const size_t one = SMALL_SNAPSHOTS * 64 * pi__block_bytes(&mem->map, mem->state_group);
    while (n < most && (size_t) n * kv < one) n *= 2;
    return n < most ? n : most;
}

/* Returns the number of layers that rules may name: the model's layers and the draft layers after them. */
static int32_t n_layers(const pi__model *m)
{
    int32_t n = m->n_layer;
    for (int32_t i = 0; i < m->n_kv; i++)
        if (m->kv[i].layer >= n) n = m->kv[i].layer + 1;
    return n;
}

/* Sets the cache types of a layer by the rules. */
static void set_types(const pi__memory *mem, pi__kv_layer *kv)
{
    const pi__cache_rules *r = &mem->cfg->cache_types;
    const bool window = mem->m->group[kv->group].window;
    kv->type_k = pi__cache_rules_type(r, kv->layer, mem->m->n_layer, window, false);
    kv->type_v = pi__cache_rules_type(r, kv->layer, mem->m->n_layer, window, true);
    if (kv->type_k < 0) kv->type_k = mem->cfg->type_k;
    if (kv->type_v < 0) kv->type_v = mem->cfg->type_v;
    if (kv->f32) kv->type_k = PI__F32;
    if (kv->ratio) kv->type_v = kv->type_k;
}

/* Sets the cache types of all layers, and computes bytes and tokens of a block of each group. *block: tokens of the
 * largest block. */
static int size_blocks(pi__memory *mem, int32_t *block, pi_error *err)
{
    pi__model *m = mem->m;
    *block = mem->cfg->block_size;
    mem->map = (pi__block_map) {.n_groups = m->n_groups, .n_ranks = mem->be->n_ranks > 1 ? mem->be->n_ranks : 1};
    for (int32_t i = 0; i < m->n_groups; i++) {
        const int32_t own = m->group[i].block > mem->cfg->block_size ? m->group[i].block : mem->cfg->block_size;
        mem->spec[i] = (pi__group_spec) {m->group[i].name, own, m->group[i].window, 0, m->group[i].recurrent,
                                         m->group[i].keep};
        mem->map.block_size[i] = own;
        if (own > *block) *block = own;
    }
    int rc = pi__cache_rules_check(&mem->cfg->cache_types, n_layers(m), err);
    if (rc) return rc;
    for (int32_t i = 0; i < m->n_kv; i++) {
        pi__kv_layer *kv = &m->kv[i];
        set_types(mem, kv);
        size_t one = layer_bytes(mem, kv);
        if (!one)
            return pi__fail(err, PI_EUNSUPPORTED,
                            "layer %d: a %s/%s cache with %s of %d values is not supported: give it f16 by "
                            "cache-type, or by cache-type-k and cache-type-v, or another device",
                            kv->layer, pi__kv_name(kv->type_k), pi__kv_name(kv->type_v), kv->ratio ? "rows" : "heads",
                            kv->head_dim);
        mem->map.bytes[kv->group][kv->placement] += one;
    }
    return PI_OK;
}

static int size_groups(pi__memory *mem, pi_error *err)
{
    pi__model *m = mem->m;
    int32_t block;
    int rc = size_blocks(mem, &block, err);
    if (!rc) rc = size_states(mem, err);
    if (rc) return rc;
    int64_t tokens = (int64_t) mem->cfg->kv_tokens;
    if (mem->cfg->kv_bytes) { /* binary search for the largest number of blocks that fits */
        int64_t lo = 0, hi = INT32_MAX / block;
        while (lo < hi) {
            int64_t mid = (lo + hi + 1) / 2;
            if (pools_bytes(mem, mid * block) <= mem->cfg->kv_bytes) lo = mid;
            else hi = mid - 1;
        }
        tokens = lo * block;
        if (tokens > (int64_t) mem->lim.max_seqs * mem->ctx) tokens = (int64_t) mem->lim.max_seqs * mem->ctx;
    } else if (!tokens) {
        tokens = mem->cfg->ctx_size || mem->ctx < DEFAULT_KV_TOKENS ? mem->ctx : DEFAULT_KV_TOKENS;
        /* the default grows to one block: the user did not choose this block size */
        if (tokens < block && block > mem->cfg->block_size) tokens = block;
    }
    if (tokens < block)
        return pi__fail(err, PI_EINVAL, "the cache holds %lld tokens, less than one block of %d: raise kv-cache-%s",
                        (long long) tokens, block, mem->cfg->kv_bytes ? "bytes" : "tokens");
    for (int32_t i = 0; i < m->n_groups; i++) mem->spec[i].n_blocks = blocks_for(mem, &mem->spec[i], tokens);
    if (mem->state_group >= 0) mem->spec[mem->state_group].n_blocks = n_snapshots(mem, pools_bytes(mem, tokens));
    for (int32_t i = 0; i < m->n_groups; i++) mem->map.n_blocks[i] = mem->spec[i].n_blocks;
    return PI_OK;
}

static void tell_groups(const pi__memory *mem, pi_plan *p)
{
    uint64_t full = 0, any = UINT64_MAX;
    p->n_groups = (uint32_t) mem->m->n_groups;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const pi__group_spec *g = &mem->spec[i];
        strncpy(p->group[i].name, g->name, sizeof p->group[i].name - 1);
        p->group[i].n_layers = (uint32_t) mem->m->group[i].n_layers;
        p->group[i].block_size = (uint32_t) g->block_size;
        p->group[i].window = (uint32_t) pi__group_window(g);
        p->group[i].n_blocks = (uint64_t) g->n_blocks;
        p->group[i].block_bytes = pi__block_bytes(&mem->map, (int32_t) i);
        if (g->state) continue;
        uint64_t tokens = (uint64_t) g->n_blocks * (uint64_t) g->block_size;
        if (!g->window) full = tokens;
        if (tokens < any) any = tokens;
    }
    p->kv_tokens = full ? full : any == UINT64_MAX ? 0 : any;
}

size_t pi__logits_bytes(const pi__memory *mem)
{
    return pi__rows_device_bytes(mem->lim.max_rows, mem->m->n_vocab, mem->m->n_embd);
}

/* Returns the tokens of the longest request that the pools can hold; block tables are sized for it. A window group
 * with blocks for a window and a step holds requests of any length. */
static int32_t longest_request(const pi__memory *mem)
{
    int32_t n = mem->ctx;
    for (int32_t i = 0; i < mem->m->n_groups; i++) {
        const pi__group_spec *g = &mem->spec[i];
        if (g->state) continue;
        int64_t room = (int64_t) g->n_blocks * g->block_size;
        bool bounded = g->window && pi__group_need(g, n, mem->lim.max_tokens) <= g->n_blocks;
        if (!bounded && room < n) n = (int32_t) room;
    }
    return n;
}

/* Returns the number of requests of `tokens` tokens that the pools hold at the same time. A window group has blocks of
 * one step in addition to those of the windows. */
static int32_t requests_of(const pi__memory *mem, int32_t tokens)
{
    int32_t n = INT32_MAX;
    for (int32_t i = 0; i < mem->m->n_groups; i++) {
        const pi__group_spec *g = &mem->spec[i];
        if (g->state) continue;
        int32_t each = ceil_div(tokens, g->block_size), blocks = g->n_blocks;
        const int32_t window = (pi__group_window(g) - 1) / g->block_size + 3;
        if (g->window && window < each) {
            each = window;
            blocks -= ceil_div(mem->lim.max_tokens, g->block_size);
        }
        const int32_t fit = blocks > each ? blocks / each : 1; /* the longest request always fits */
        if (fit < n) n = fit;
    }
    return n == INT32_MAX ? mem->lim.max_seqs : n;
}

/* Adds one backend to the plan. host: bytes of host memory of other modules. */
static void tell_placement(const pi__memory *mem, pi_plan *p, int32_t placement, size_t host)
{
    const pi__backend *be = mem->be->at[placement] ? mem->be->at[placement] : mem->be;
    const pi__model *const all[] = {mem->m, mem->drafter != mem->m ? mem->drafter : NULL, mem->tower};
    const bool split = be != mem->be;
    uint32_t i = p->n_places++;
    strncpy(p->place[i].name, be->dev->describe(be), sizeof p->place[i].name - 1);
    for (int k = 0; k < 3; k++) {
        if (all[k]) p->place[i].weights_bytes += all[k]->weights_size[placement];
        if (all[k] && split) p->place[i].weights_bytes += all[k]->weights_size[PI__AT_BOTH];
    }
    for (int32_t g = 0; g < mem->map.n_groups; g++) p->place[i].kv_bytes += pi__pool_bytes(&mem->map, g, placement);
    p->place[i].state_bytes = (uint64_t) mem->lim.max_seqs * mem->slot_bytes[placement];
    p->place[i].scratch_bytes = mem->scratch + be->dev->scratch_bytes(be, &mem->lim) + pi__logits_bytes(mem) +
                                mem->image_bytes;
    /* host memory of other modules is reported with the last placement */
    if (placement == pi__n_placements(mem->be) - 1) p->place[i].scratch_bytes += host;
    p->weights_bytes += p->place[i].weights_bytes;
    p->kv_bytes += p->place[i].kv_bytes;
    p->state_bytes += p->place[i].state_bytes;
    p->scratch_bytes += p->place[i].scratch_bytes;
}

void pi__memory_tell(const pi__memory *mem, size_t host, pi_plan *out)
{
    const int32_t usual = mem->longest < USUAL_REQUEST ? mem->longest : USUAL_REQUEST;
    pi_plan p = {.size = out->size, .ctx_size = (uint32_t) mem->longest, .max_requests = (uint32_t) mem->lim.max_seqs,
                 .n_requests = (uint32_t) requests_of(mem, mem->longest),
                 .n_requests_1k = (uint32_t) requests_of(mem, usual)};
    tell_groups(mem, &p);
    /* pipeline stages: activations, logits and shared weights also have a host copy; models know its addresses */
    if (mem->be->n_stages)
        host += mem->scratch + mem->image_bytes + pi__logits_bytes(mem) + mem->m->weights_size[PI__AT_BOTH];
    const int32_t n = pi__n_placements(mem->be);
    for (int32_t placement = 0; placement < n; placement++) tell_placement(mem, &p, placement, host);
    p.total_bytes = p.weights_bytes + p.kv_bytes + p.state_bytes + p.scratch_bytes;
    for (int32_t i = 0; i < PI__N_REGIONS; i++) p.host_weights_bytes += mem->m->weights[i].host;
    (void) pi__versioned_copy(out, &p, sizeof p);
}

void pi__memory_tell_draft_model(const pi__memory *mem, pi_plan *out)
{
    pi_plan p = {.size = sizeof p};
    (void) pi__versioned_copy(&p, out, out->size);
    for (uint32_t i = 0; i < p.n_places; i++) {
        uint64_t kv = 0, weights = mem->m->weights_size[i];
        if (mem->be->n_stages || !i) weights += mem->m->weights_size[PI__AT_BOTH];
        for (int32_t g = 0; g < mem->map.n_groups; g++) kv += pi__pool_bytes(&mem->map, g, (int32_t) i);
        const uint64_t state = (uint64_t) mem->lim.max_seqs * mem->slot_bytes[i];
        p.place[i].weights_bytes += weights, p.weights_bytes += weights;
        p.place[i].kv_bytes += kv, p.kv_bytes += kv;
        p.place[i].state_bytes += state, p.state_bytes += state;
        p.total_bytes += weights + kv + state;
    }
    (void) pi__versioned_copy(out, &p, sizeof p);
}

/* Sets the limits of sparse prefill from the layers with full attention. */
static int size_sparse(pi__memory *mem, pi_error *err)
{
    pi__model *m = mem->m;
    for (int32_t i = 0; i < m->n_kv; i++) {
        const pi__kv_layer *kv = &m->kv[i];
        if (m->bidirectional || m->group[kv->group].window || m->group[kv->group].draft || kv->ratio) continue;
        if (kv->n_head_kv > mem->lim.sparse_heads) mem->lim.sparse_heads = kv->n_head_kv;
    }
    if (!mem->lim.sparse_heads)
        return pi__fail(err, PI_EUNSUPPORTED, "prefill-sparsity: a %s model has no full attention: leave it out",
                        m->arch->name);
    if (mem->lim.max_tokens < mem->lim.max_seqs + PI__SPARSE_BLOCK)
        return pi__fail(err, PI_EINVAL,
                        "prefill-sparsity: a step has to have room for %d tokens of prompts beside %d that are "
                        "answered: raise ubatch-size to %d, or lower parallel",
                        PI__SPARSE_BLOCK, mem->lim.max_seqs, PI__SPARSE_BLOCK + mem->lim.max_seqs);
    mem->lim.key_blocks = (mem->longest + PI__SPARSE_BLOCK - 1) / PI__SPARSE_BLOCK;
    m->sparsity = mem->cfg->sparsity;
    return PI_OK;
}

/* Returns the logits rows per pass. On a device: rows for all sequences with their drafts. Then the device reads the
 * output matrix once for them and samples within the step; a step with all rows in one pass can stay in flight. */
static int32_t rows_at_once(const pi__memory *mem, int32_t n_draft)
{
    int64_t most = (int64_t) mem->lim.max_seqs * (1 + n_draft);
    if (most > mem->lim.max_tokens) most = mem->lim.max_tokens;
    return mem->be->discrete && !mem->m->bidirectional ? pi__rows_per_pass(most) : PI__USUAL_ROWS;
}

int pi__memory_size(pi__memory *mem, const pi__config *cfg, pi__backend *be, pi__model *m, pi__model *drafter,
                    int32_t n_draft, pi_error *err)
{
    *mem = (pi__memory) {
        .cfg = cfg, .be = be, .m = m, .drafter = drafter, .ctx = cfg->ctx_size ? cfg->ctx_size : m->n_ctx_train};
    mem->lim.max_tokens = cfg->max_batch_tokens;
    mem->lim.max_seqs = cfg->max_seqs < cfg->max_batch_tokens ? cfg->max_seqs : cfg->max_batch_tokens;
    mem->lim.max_rows = rows_at_once(mem, n_draft);
    mem->lim.n_vocab = m->n_vocab;
    int rc = size_groups(mem, err);
    if (rc) return rc;
    mem->lim.max_ctx = mem->longest = longest_request(mem);
    if (cfg->sparsity > 0) rc = size_sparse(mem, err);
    if (rc) return rc;
    mem->scratch = pi__model_scratch(m, &mem->lim);
    if (drafter && drafter != m) mem->scratch += pi__model_scratch(drafter, &mem->lim);
    return PI_OK;
}

void pi__memory_add_images(pi__memory *mem, pi__tower *tower, size_t image_bytes)
{
    mem->image_bytes = image_bytes;
    if (!tower) return;
    mem->tower = pi__tower_model(tower);
    mem->image_bytes += pi__tower_pool_bytes(tower);
    mem->scratch += pi__tower_scratch(tower, &mem->lim);
}

/* ------------------------------------------------------------------------------------------------- pools and slots */

static size_t states_bytes(const pi__memory *mem, int32_t placement)
{
    return (size_t) mem->lim.max_seqs * mem->slot_bytes[placement];
}

/* Allocates one slot per sequence and sets the addresses of layers within slots and snapshots. */
static int alloc_states(pi__memory *mem, pi_error *err)
{
    for (int32_t i = 0; i < PI__N_PLACEMENTS; i++) {
        pi__backend *be = pi__backend_at(mem->be, i);
        if (!mem->slot_bytes[i]) continue;
        mem->slots[i] = be->dev->alloc(be, states_bytes(mem, i));
        if (!mem->slots[i])
            return pi__fail(err, PI_ENOMEM, "no memory for %zu MiB of recurrent states: lower parallel",
                            states_bytes(mem, i) >> 20);
    }
    size_t slot[PI__N_PLACEMENTS] = {0}, snap[PI__N_PLACEMENTS] = {0};
    for (int32_t i = 0; i < mem->m->n_state; i++) {
        pi__state_layer *st = &mem->m->state[i];
        const int32_t placement = st->placement;
        const pi__backend *be = pi__backend_at(mem->be, placement);
        char *pool = mem->map.pool[mem->state_group][placement];
        st->base = mem->slots[placement] + slot[placement];
        st->stride = mem->slot_bytes[placement];
        st->snap = pool ? pool + snap[placement] : NULL; /* NULL = no snapshots */
        st->snap_stride = mem->map.bytes[mem->state_group][placement];
        slot[placement] += (be->dev->state_bytes(be, st) + 63) & ~(size_t) 63;
        snap[placement] += (be->dev->snapshot_bytes(be, st) + 63) & ~(size_t) 63;
    }
    return PI_OK;
}

/* Allocates the shards of group g's blocks on one backend. */
static int alloc_pool(pi__memory *mem, int32_t g, int32_t placement, pi_error *err)
{
    pi__backend *be = pi__backend_at(mem->be, placement);
    size_t bytes = pi__pool_bytes(&mem->map, g, placement);
    if (!bytes) return PI_OK; /* no layers on this backend, or no snapshots */
    void *p = mem->map.pool[g][placement] = be->dev->alloc(be, bytes);
    if (!p)
        return pi__fail(err, PI_ENOMEM, "no memory for %zu MiB of %s cache: lower kv-cache-tokens or ctx-size",
                        bytes >> 20, mem->spec[g].name);
    if (mem->cfg->kv_commit) be->dev->commit(be, p, bytes);
    return PI_OK;
}

int pi__memory_alloc(pi__memory *mem, pi_error *err)
{
    int rc = PI_OK;
    for (int32_t i = 0; i < mem->map.n_groups; i++)
        for (int32_t placement = 0; placement < PI__N_PLACEMENTS && !rc; placement++)
            rc = alloc_pool(mem, i, placement, err);
    if (rc) return rc;
    size_t at[PI__MAX_GROUPS][PI__N_PLACEMENTS] = {0};
    for (int32_t i = 0; i < mem->m->n_kv; i++) {
        pi__kv_layer *kv = &mem->m->kv[i];
        kv->base = mem->map.pool[kv->group][kv->placement] + at[kv->group][kv->placement];
        kv->stride = mem->map.bytes[kv->group][kv->placement];
        at[kv->group][kv->placement] += layer_bytes(mem, kv);
    }
    return alloc_states(mem, err);
}

void pi__memory_free(pi__memory *mem)
{
    for (int32_t placement = 0; placement < PI__N_PLACEMENTS; placement++) {
        for (int32_t i = 0; i < PI__MAX_GROUPS; i++) {
            pi__backend *be = mem->map.pool[i][placement] ? pi__backend_at(mem->be, placement) : NULL;
            if (be) be->dev->free(be, mem->map.pool[i][placement], pi__pool_bytes(&mem->map, i, placement));
        }
        pi__backend *be = mem->slots[placement] ? pi__backend_at(mem->be, placement) : NULL;
        if (be) be->dev->free(be, mem->slots[placement], states_bytes(mem, placement));
    }
    memset(mem, 0, sizeof *mem);
}

typedef struct trim_job {
    const pi__memory *mem;
    int32_t group;
} trim_job;

static void trim_block(void *ud, int32_t id)
{
    const trim_job *j = ud;
    for (int32_t i = 0; i < PI__N_PLACEMENTS; i++) {
        pi__backend *be = pi__backend_at(j->mem->be, i);
        const size_t bytes = j->mem->map.bytes[j->group][i];
        if (bytes) be->dev->trim(be, pi__block_at(&j->mem->map, j->group, id, i), bytes);
    }
}

void pi__memory_trim(pi__memory *mem, pi__cache *cache)
{
    for (int32_t i = 0; i < PI__N_PLACEMENTS; i++) {
        pi__backend *be = pi__backend_at(mem->be, i);
        if (mem->slots[i]) be->dev->trim(be, mem->slots[i], states_bytes(mem, i));
    }
    for (int32_t i = 0; i < cache->n_groups; i++)
        pi__block_pool_trim(&cache->group[i].pool, trim_block, &(trim_job) {mem, i});
}
