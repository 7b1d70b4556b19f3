/* The plan: every byte that an engine will take, computed once and used both to tell and to allocate.
 *
 * The pools hold N tokens, where N is asked for directly or is the largest that fits the bytes given. A full group has
 * N / block_size blocks. A window group needs no more than the windows of all sequences that run at once, plus one
 * step's tokens; with prefix reuse as much again, so that ended conversations keep theirs. A recurrent group has a slot
 * for each sequence that runs, and as many snapshots as its own budget holds. */
#include <string.h>

#include "backend/split.h"
#include "base/error.h"
#include "engine/core_impl.h"
#include "formats/formats.h"

enum { DEFAULT_KV_TOKENS = 32768, MIN_SNAPSHOTS = 8, MAX_SNAPSHOTS = 4096 };

static int32_t ceil_div(int64_t a, int32_t b) { return (int32_t) ((a + b - 1) / b); }

size_t pi__block_bytes(const pi__core *e, int32_t g)
{
    size_t all = 0;
    for (int32_t side = 0; side < PI__N_SIDES; side++) all += e->gp[g].block_bytes[side];
    return all;
}

size_t pi__kv_bytes(const pi__core *e, const pi__kv_layer *kv)
{
    const pi__backend *be = pi__backend_at(e->be, kv->place);
    const int32_t block_size = e->gp[kv->group].spec.block_size;
    size_t n;
    if (!kv->ratio) n = be->dev->kv_bytes(be, kv->type_k, kv->type_v, kv->n_head_kv, kv->head_dim, block_size);
    else n = be->dev->row_bytes ? be->dev->row_bytes(be, kv->type_k, kv->head_dim, block_size / kv->ratio) : 0;
    return (n + 63) & ~(size_t) 63;
}

static int32_t blocks_for(const pi__core *e, const pi__group_spec *g, int64_t tokens)
{
    if (g->state) return 0;
    int64_t all = (tokens + g->block_size - 1) / g->block_size;
    if (g->window) {
        const bool twice = e->cfg.prefix_cache && g->window > 1; /* prefixes need something of it */
        int64_t seqs = (int64_t) e->lim.max_seqs * ((pi__group_window(g) - 1) / g->block_size + 3);
        int64_t enough = seqs * (twice ? 2 : 1) + ceil_div(e->lim.max_tokens, g->block_size);
        if (all > enough) all = enough;
    }
    return all > INT32_MAX / 2 ? INT32_MAX / 2 : (int32_t) all;
}

/* Bytes of all pools for a cache of so many tokens; SIZE_MAX where that overflows. */
static size_t pools_bytes(const pi__core *e, int64_t tokens)
{
    size_t total = 0, one;
    for (int32_t i = 0; i < e->m->n_groups; i++) {
        if (!pi__mul_ok((size_t) blocks_for(e, &e->gp[i].spec, tokens), pi__block_bytes(e, i), &one) ||
            !pi__add_ok(total, one, &total)) return SIZE_MAX;
    }
    return total;
}

/* Bytes of slots and snapshots of all recurrent layers. */
static int size_states(pi__core *e, pi_error *err)
{
    pi__model *m = e->m;
    memset(e->slot_bytes, 0, sizeof e->slot_bytes);
    e->state_group = -1;
    for (int32_t i = 0; i < m->n_groups; i++)
        if (m->group[i].recurrent) e->state_group = i;
    for (int32_t i = 0; i < m->n_state; i++) {
        const int32_t place = m->state[i].place;
        const pi__backend *be = pi__backend_at(e->be, place);
        size_t slot = be->dev->state_bytes(be, &m->state[i]), snap = be->dev->snapshot_bytes(be, &m->state[i]);
        if (!slot || !snap)
            return pi__fail(err, PI_EUNSUPPORTED, "recurrent layers of %d key and %d value heads of %d values are not "
                            "supported by %s", m->state[i].n_k, m->state[i].n_v, m->state[i].dim, be->dev->describe(be));
        e->slot_bytes[place] += (slot + 63) & ~(size_t) 63;
        e->gp[e->state_group].block_bytes[place] += (snap + 63) & ~(size_t) 63;
    }
    return PI_OK;
}

/* How many snapshots there are, where the other pools take kv bytes. */
static int32_t n_snapshots(const pi__core *e, size_t kv)
{
    if (!e->cfg.prefix_cache) return 0;
    size_t one = pi__block_bytes(e, e->state_group), n = (e->cfg.snapshot_bytes ? e->cfg.snapshot_bytes : kv) / one;
    if (!e->cfg.snapshot_bytes && n < MIN_SNAPSHOTS) n = MIN_SNAPSHOTS;
    return n > MAX_SNAPSHOTS ? MAX_SNAPSHOTS : (int32_t) n;
}

/* What a block of each group takes; the tokens of the largest to *block. */
static int size_blocks(pi__core *e, int32_t *block, pi_error *err)
{
    pi__model *m = e->m;
    *block = e->cfg.block_size;
    for (int32_t i = 0; i < m->n_groups; i++) {
        const int32_t own = m->group[i].block > e->cfg.block_size ? m->group[i].block : e->cfg.block_size;
        e->gp[i] = (pi__group_plan){.spec = {m->group[i].name, own, m->group[i].window, 0, m->group[i].recurrent,
                                             m->group[i].keep}, .n_layers = m->group[i].n_layers};
        if (own > *block) *block = own;
    }
    for (int32_t i = 0; i < m->n_kv; i++) {
        pi__kv_layer *kv = &m->kv[i];
        const bool other = e->cfg.window_differs && m->group[kv->group].window;
        kv->type_k = kv->f32 ? PI__F32 : other ? e->cfg.type_window : e->cfg.type_k;
        kv->type_v = kv->ratio ? kv->type_k : other ? e->cfg.type_window : e->cfg.type_v;
        size_t one = pi__kv_bytes(e, kv);
        if (!one)
            return pi__fail(err, PI_EUNSUPPORTED, "a %s/%s cache with %s of %d values is not supported",
                            pi__type_info_of(kv->type_k)->name, pi__type_info_of(kv->type_v)->name,
                            kv->ratio ? "rows" : "heads", kv->head_dim);
        e->gp[kv->group].block_bytes[kv->place] += one;
    }
    return PI_OK;
}

static int size_groups(pi__core *e, pi_error *err)
{
    pi__model *m = e->m;
    int32_t block;
    int rc = size_blocks(e, &block, err);
    if (!rc) rc = size_states(e, err);
    if (rc) return rc;
    int64_t tokens = (int64_t) e->cfg.kv_tokens;
    if (e->cfg.kv_bytes) { /* the largest number of blocks' tokens that fits */
        int64_t lo = 0, hi = INT32_MAX / block;
        while (lo < hi) {
            int64_t mid = (lo + hi + 1) / 2;
            if (pools_bytes(e, mid * block) <= e->cfg.kv_bytes) lo = mid;
            else hi = mid - 1;
        }
        tokens = lo * block;
        if (tokens > (int64_t) e->lim.max_seqs * e->ctx) tokens = (int64_t) e->lim.max_seqs * e->ctx;
    } else if (!tokens) {
        tokens = e->ctx < DEFAULT_KV_TOKENS ? e->ctx : DEFAULT_KV_TOKENS;
        if (tokens < block && block > e->cfg.block_size) tokens = block; /* nobody asked for blocks of that size */
    }
    if (tokens < block)
        return pi__fail(err, PI_EINVAL, "the cache would hold %lld tokens, less than one block of %d: raise kv-cache-%s",
                        (long long) tokens, block, e->cfg.kv_bytes ? "bytes" : "tokens");
    for (int32_t i = 0; i < m->n_groups; i++) e->gp[i].spec.n_blocks = blocks_for(e, &e->gp[i].spec, tokens);
    if (e->state_group >= 0) e->gp[e->state_group].spec.n_blocks = n_snapshots(e, pools_bytes(e, tokens));
    return PI_OK;
}

static void tell_groups(const pi__core *e, pi_plan *p)
{
    uint64_t full = 0, any = UINT64_MAX;
    p->n_groups = (uint32_t) e->m->n_groups;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const pi__group_plan *g = &e->gp[i];
        strncpy(p->group[i].name, g->spec.name, sizeof p->group[i].name - 1);
        p->group[i].n_layers = (uint32_t) g->n_layers;
        p->group[i].block_size = (uint32_t) g->spec.block_size;
        p->group[i].window = (uint32_t) pi__group_window(&g->spec);
        p->group[i].n_blocks = (uint64_t) g->spec.n_blocks;
        p->group[i].block_bytes = pi__block_bytes(e, (int32_t) i);
        if (g->spec.state) continue;
        uint64_t tokens = (uint64_t) g->spec.n_blocks * (uint64_t) g->spec.block_size;
        if (!g->spec.window) full = tokens;
        if (tokens < any) any = tokens;
    }
    p->kv_tokens = full ? full : any == UINT64_MAX ? 0 : any;
}

static size_t logits_bytes(const pi__core *e)
{
    return (size_t) e->lim.max_rows * (size_t) e->m->n_vocab * sizeof(float);
}

/* How many tokens the pools can hold of one request at most: what tables are made for. A window group that has room for a
 * window and a step holds requests of any length. */
static int32_t longest_request(const pi__core *e)
{
    int32_t n = e->ctx;
    for (int32_t i = 0; i < e->m->n_groups; i++) {
        const pi__group_spec *g = &e->gp[i].spec;
        if (g->state) continue;
        int64_t room = (int64_t) g->n_blocks * g->block_size;
        bool bounded = g->window && pi__group_need(g, n, e->lim.max_tokens) <= g->n_blocks;
        if (!bounded && room < n) n = (int32_t) room;
    }
    return n;
}

static void specs_of(const pi__core *e, pi__group_spec *spec)
{
    for (int32_t i = 0; i < e->m->n_groups; i++) spec[i] = e->gp[i].spec;
}

pi__batch_shape pi__step_shape(const pi__core *e, bool rows)
{
    pi__group_spec spec[PI__MAX_GROUPS];
    specs_of(e, spec);
    return pi__batch_shape_of(spec, e->m->n_groups, e->lim.max_tokens, e->lim.max_seqs, e->longest, rows);
}

/* Block tables and block hashes, a step's batch, and what drafts need of both. */
static size_t tables_bytes(const pi__core *e)
{
    const size_t T = (size_t) e->lim.max_tokens, S = (size_t) e->lim.max_seqs, V = (size_t) e->m->n_vocab;
    const pi__batch_shape step = pi__step_shape(e, true), draft = pi__step_shape(e, false);
    pi__group_spec spec[PI__MAX_GROUPS];
    specs_of(e, spec);
    size_t n = pi__cache_bytes(spec, e->m->n_groups, e->lim.max_seqs, e->longest) + pi__batch_bytes(&step);
    n += pi__most_saves(e) * (sizeof *e->save + sizeof *e->saving) + 2 * S * sizeof(pi__seq *);
    n += V * sizeof *e->raw_row + pi__sampler_scratch_bytes(e->m->n_vocab);
    if (e->drafter) n += pi__batch_bytes(&draft) + T * sizeof *e->draft_hidden + S * sizeof(pi__seq *);
    return n;
}

/* What is in the host's memory whatever the device. */
static size_t host_bytes(const pi__core *e)
{
    return tables_bytes(e) + pi__tiers_bytes(e) + pi__picks_bytes(e) + (e->be->far ? logits_bytes(e) : 0);
}

int pi__device_need(pi__core *e, uint64_t *bytes, pi_error *err)
{
    pi_plan p = {.size = sizeof p};
    int rc = pi__core_size(e, &p, err);
    *bytes = p.place[0].weights_bytes + p.place[0].kv_bytes + p.place[0].state_bytes + p.place[0].scratch_bytes;
    if (!rc && p.n_places == 1) *bytes -= host_bytes(e);
    return rc;
}

/* What one side takes, where activations are scratch bytes. */
static void tell_side(const pi__core *e, pi_plan *p, int32_t side, size_t scratch)
{
    const pi__backend *be = e->be->side[side] ? e->be->side[side] : e->be;
    const pi__model *beside = e->drafter != e->m ? e->drafter : NULL;
    const size_t logits = logits_bytes(e);
    const bool split = be != e->be, host = !split || side == PI__AT_CPU; /* the host's own things are told here */
    uint32_t i = p->n_places++;
    strncpy(p->place[i].name, be->dev->describe(be), sizeof p->place[i].name - 1);
    p->place[i].weights_bytes = e->m->weights_size[side] + (beside ? beside->weights_size[side] : 0);
    if (split) p->place[i].weights_bytes += e->m->weights_size[PI__AT_BOTH] + (beside ? beside->weights_size[PI__AT_BOTH] : 0);
    for (int32_t g = 0; g < e->m->n_groups; g++)
        p->place[i].kv_bytes += (uint64_t) e->gp[g].spec.n_blocks * e->gp[g].block_bytes[side];
    p->place[i].state_bytes = (uint64_t) e->lim.max_seqs * e->slot_bytes[side];
    p->place[i].scratch_bytes = scratch + be->dev->scratch_bytes(be, &e->lim) + logits;
    if (host) p->place[i].scratch_bytes += host_bytes(e);
    p->weights_bytes += p->place[i].weights_bytes;
    p->kv_bytes += p->place[i].kv_bytes;
    p->state_bytes += p->place[i].state_bytes;
    p->scratch_bytes += p->place[i].scratch_bytes;
}

int pi__core_size(pi__core *e, pi_plan *out, pi_error *err)
{
    const pi__config *c = &e->cfg;
    e->ctx = c->ctx_size ? c->ctx_size : e->m->n_ctx_train;
    e->lim.max_tokens = c->max_batch_tokens;
    e->lim.max_seqs = c->max_seqs < c->max_batch_tokens ? c->max_seqs : c->max_batch_tokens;
    e->lim.max_rows = PI__MAX_ROWS;
    e->lim.n_vocab = e->m->n_vocab;
    int rc = size_groups(e, err);
    if (rc) return rc;
    e->lim.max_ctx = e->longest = longest_request(e);
    size_t scratch = pi__model_scratch(e->m, &e->lim);
    if (e->drafter && e->drafter != e->m) scratch += pi__model_scratch(e->drafter, &e->lim);
    if (!out) return PI_OK;

    uint32_t size = out->size;
    pi_plan p = {.size = size, .ctx_size = (uint32_t) e->ctx};
    tell_groups(e, &p);
    for (int32_t side = 0; side < (e->be->side[PI__AT_CPU] ? PI__N_SIDES : 1); side++) tell_side(e, &p, side, scratch);
    p.total_bytes = p.weights_bytes + p.kv_bytes + p.state_bytes + p.scratch_bytes;
    pi__host_config host;
    if (pi__offload_plan(e, &host)) p.host_cache_bytes = pi__host_memory(&host);
    memcpy(out, &p, size < sizeof p ? size : sizeof p);
    return PI_OK;
}

void pi__core_undeclare(pi__core *e)
{
    if (e->drafter != e->m) pi__model_free(e->drafter);
    pi__model_free(e->m);
    e->drafter = e->m = NULL;
}

int pi__core_declare(pi__core *e, pi_error *err)
{
    const pi__config *c = &e->cfg;
    int spec = c->spec != PI__SPEC_AUTO ? c->spec : c->draft_model ? PI__SPEC_DRAFT : PI__SPEC_NONE;
    int32_t n_draft = spec == PI__SPEC_NONE ? 0 : c->n_draft;
    if (spec == PI__SPEC_DRAFT && !c->draft_model)
        return pi__fail(err, PI_EINVAL, "spec-type draft needs model-draft, the drafter's GGUF file");
    if (n_draft < 0 || n_draft > PI__MAX_DRAFT)
        return pi__fail(err, PI_EINVAL, "spec-draft-n-max is %d, expected 0 to %d", n_draft, PI__MAX_DRAFT);
    int rc = pi__model_declare(&e->m, e->g, e->be, e->be->side[PI__AT_CPU] ? e->places : NULL, n_draft, NULL, err);
    if (rc || !n_draft) return rc;
    if (spec == PI__SPEC_DRAFT) {
        if (!e->draft_g) rc = pi__gguf_open(&e->draft_g, c->draft_model, c->load_mode, err);
        if (!rc) rc = pi__model_declare(&e->drafter, e->draft_g, e->be, NULL, n_draft, e->m, err);
        if (rc) return rc;
    } else {
        e->drafter = e->m;
    }
    if (e->drafter->arch->draft && e->drafter->no_draft)
        return pi__fail(err, PI_EUNSUPPORTED, "spec-type mtp: the draft head of a %s model is a file of its own: give it as "
                        "model-draft", e->drafter->arch->name);
    if (!e->drafter->arch->draft)
        return pi__fail(err, PI_EUNSUPPORTED, "%s: a model of architecture %s cannot draft",
                        spec == PI__SPEC_MTP ? "spec-type mtp" : "model-draft", e->drafter->arch->name);
    if (e->drafter->n_vocab != e->m->n_vocab)
        return pi__fail(err, PI_EINVAL, "model-draft has %d tokens, the model %d: it was not made for this one",
                        e->drafter->n_vocab, e->m->n_vocab);
    return PI_OK;
}

int pi__core_add_cpu(pi__core *e, pi_error *err)
{
    pi__backend *device = e->be, *cpu = NULL;
    int rc = pi__device_create(&cpu, "cpu", false, &e->cfg.cpu, &e->cfg.log, err);
    if (!rc) rc = pi__split_create(&e->be, device, cpu, err);
    if (rc) {
        if (cpu) cpu->dev->destroy(cpu);
        e->be = device;
    }
    return rc;
}

const char *pi__core_device(const pi__core *e)
{
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES];
    return pi__devices_named(e->cfg.device, dev, index) > 0 ? dev[0]->name : "cpu";
}

/* The device; or the CPU alone, or both, where the rules want it. */
static int open_devices(pi__core *e, pi_error *err)
{
    const pi__config *c = &e->cfg;
    int rc = pi__places_create(&e->places, &c->places, pi__core_device(e), e->g, err);
    const bool none = !rc && pi__places_cpu(e->places);
    if (!rc) rc = pi__device_create(&e->be, none ? "cpu" : c->device, c->tensor, &c->cpu, &c->log, err);
    if (rc || !e->be->far || !pi__places_both(e->places)) return rc;
    if (e->be->n_ranks > 1)
        return pi__fail(err, PI_EUNSUPPORTED, "split-mode tensor runs all of the model on the devices: unset gpu-layers, "
                        "cpu-moe, n-cpu-moe, override-tensor and no-kv-offload, or use split-mode none");
    return pi__core_add_cpu(e, err);
}

int pi__core_prepare(pi__core *e, const pi__config *c, pi_error *err)
{
    e->cfg = *c;
    if (c->prefix_dir && !*c->prefix_dir) e->cfg.prefix_dir = NULL;
    if (c->draft_model && !*c->draft_model) e->cfg.draft_model = NULL;
    if (!c->model || !*c->model) return pi__fail(err, PI_EINVAL, "no model given: set option \"model\" to a GGUF file");
    if (c->block_size != 16 && c->block_size != 32 && c->block_size != 64)
        return pi__fail(err, PI_EINVAL, "block-size is %d, expected 16, 32 or 64", c->block_size);
    if (c->max_batch_tokens < 1 || c->max_seqs < 1 || c->ctx_size < 0 || c->snapshot_interval < 1)
        return pi__fail(err, PI_EINVAL, "the step budget, the number of sequences, the context and the snapshot interval "
                        "must be positive");
    int rc = pi__gguf_open(&e->g, c->model, c->load_mode, err);
    if (!rc) rc = pi__override_metadata(e, err);
    if (!rc) rc = open_devices(e, err);
    if (!rc && e->be->n_ranks > 1 && e->cfg.prefix_dir && !e->be->dev->copy_out)
        rc = pi__fail(err, PI_EUNSUPPORTED, "prefix-cache-dir and the CPU as several devices do not go together: unset it, or use "
                      "split-mode none");
    if (!rc) rc = pi__core_declare(e, err);
    if (!rc && c->places.fit) rc = pi__fit(e, err);
    return rc;
}

int pi__core_plan(const pi__config *c, pi_plan *out, pi_error *err)
{
    pi__core *e = pi__calloc(1, sizeof *e);
    if (!e) return pi__fail_mem(err, "the plan");
    int rc = pi__core_prepare(e, c, err);
    if (!rc) rc = pi__core_size(e, out, err);
    pi__core_undeclare(e);
    if (e->be) e->be->dev->destroy(e->be);
    pi__places_free(e->places);
    pi__gguf_close(e->draft_g);
    pi__gguf_close(e->g);
    pi__free(e);
    return rc;
}
