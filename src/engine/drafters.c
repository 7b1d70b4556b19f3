/* The drafters of an engine (see drafters.h). Opening thread, then step thread. */
#include "engine/drafters.h"

#include "base/error.h"
#include "engine/draft_block.h"
#include "engine/draft_head.h"
#include "engine/draft_lookup.h"
#include "engine/draft_model.h"

/* the names in the options */
static const char *const names[PI__N_SPEC] = {"auto", "none", "mtp", "draft", "ngram", "layer-exit"};

static bool has_drafter(const pi__setup *s, int kind) { return s->kinds >> kind & 1; }

/* Returns the shape of batches that drafters run. */
static pi__batch_shape shape_of(const pi__setup *s, const pi__memory *mem, bool rows)
{
    const pi__limits *lim = &s->mem.lim;
    pi__batch_shape shape = pi__batch_shape_of(mem->spec, mem->map.n_groups, lim->max_tokens, lim->max_seqs,
                                               s->mem.longest, rows ? lim->max_rows : 0);
    shape.images = s->encoder != NULL && mem == &s->mem;
    shape.mrope = shape.images && s->encoder->mrope && s->m->mrope;
    return shape;
}

/* Returns the assumed time of a pass of the separate draft model as a fraction of a target step: each reads its weights
 * once. */
static float share_of(const pi__setup *s)
{
    uint64_t own = 0, all = 0;
    for (int i = 0; i < PI__N_REGIONS; i++) own += s->draft_model->weights_size[i], all += s->m->weights_size[i];
    return all ? (float) own / (float) all : 0;
}

/* Returns the configuration of early exit, or of the separate draft model. */
static pi__draft_model_config model_of(const pi__setup *s, int kind, pi__cache *cache, pi__rows *rows)
{
    const bool own = kind == PI__SPEC_DRAFT;
    pi__model *m = own ? s->draft_model : s->m;
    const int32_t half = m->n_trunk > 1 ? m->n_trunk / 2 : 1;
    return (pi__draft_model_config) {
        .m = m, .n_layer = own ? m->n_trunk : s->cfg.draft_layers ? s->cfg.draft_layers : half, .own = own, .be = s->be,
        .prefix_cache = own && s->draft_model_cfg.prefix_cache, .cache = cache, .rows = rows, .n_max = s->cfg.n_draft,
        .p_min = s->cfg.draft_p_min, .share = own ? share_of(s) : 0};
}

static int add_model(pi__drafting *d, const pi__setup *s, int kind, pi__cache *cache, pi__rows *rows, pi_error *err)
{
    const pi__draft_model_config c = model_of(s, kind, cache, rows);
    const pi__batch_shape shape = shape_of(s, c.own ? &s->draft_model_mem : &s->mem, true);
    pi__drafter *one = NULL;
    int rc = pi__draft_model_create(&one, &c, &shape, err);
    if (!rc) pi__drafting_add(d, kind, one);
    return rc;
}

static pi__lookup_shape lookup_of(const pi__setup *s)
{
    return (pi__lookup_shape) {.max_seqs = s->mem.lim.max_seqs,
                               .longest = s->mem.longest,
                               .n = s->cfg.ngram_n ? s->cfg.ngram_n : 3,
                               .n_max = s->cfg.ngram_m,
                               .shared = s->cfg.ngram_shared};
}

size_t pi__drafters_bytes(const pi__setup *s)
{
    if (!s->kinds) return 0;
    const pi__batch_shape shape = shape_of(s, &s->mem, false), exit = shape_of(s, &s->mem, true);
    const pi__lookup_shape lookup = lookup_of(s);
    size_t n = pi__drafting_bytes(s->mem.lim.max_seqs);
    if (s->drafter && s->drafter->block.size) n += pi__draft_block_bytes(s->drafter, &shape, s->mem.lim.max_rows);
    else if (s->drafter) n += pi__draft_head_bytes(&shape);
    if (has_drafter(s, PI__SPEC_NGRAM)) n += pi__draft_lookup_bytes(&lookup);
    if (has_drafter(s, PI__SPEC_LAYER_EXIT)) n += pi__draft_model_bytes(&exit);
    if (!s->draft_model) return n;
    const pi__batch_shape draft = shape_of(s, &s->draft_model_mem, true);
    n += pi__draft_model_bytes(&draft);
    return n;
}

int pi__drafters_create(pi__drafting *d, const pi__setup *s, pi__cache *cache, pi__cache *draft_cache, pi__rows *rows,
                        pi_error *err)
{
    if (!s->kinds) return PI_OK;
    const pi__batch_shape shape = shape_of(s, &s->mem, false);
    const pi__lookup_shape lookup = lookup_of(s);
    pi__drafter *one = NULL;
    int rc = pi__drafting_init(d, cache, s->mem.lim.max_seqs, s->cfg.n_draft_least, s->cfg.draft_adaptive,
                               s->be->discrete, err);
    if (!rc && s->drafter && s->drafter->block.size) {
        const pi__draft_block_config c = {s->drafter, s->be, cache, rows, s->cfg.n_draft, s->cfg.draft_p_min};
        rc = pi__draft_block_create(&one, &c, &shape, err);
        if (!rc) pi__drafting_add(d, PI__SPEC_DRAFT, one);
    } else if (!rc && s->drafter) {
        rc = pi__draft_head_create(&one, s->drafter, s->be, cache, rows, &shape, s->cfg.n_draft, s->cfg.draft_p_min,
                                   err);
        if (!rc) pi__drafting_add(d, s->drafter == s->m ? PI__SPEC_MTP : PI__SPEC_DRAFT, one);
    }
    if (!rc && has_drafter(s, PI__SPEC_NGRAM)) {
        rc = pi__draft_lookup_create(&one, &lookup, err);
        if (!rc) pi__drafting_add(d, PI__SPEC_NGRAM, one);
    }
    if (!rc && s->draft_model) rc = add_model(d, s, PI__SPEC_DRAFT, draft_cache, rows, err);
    if (!rc && has_drafter(s, PI__SPEC_LAYER_EXIT)) rc = add_model(d, s, PI__SPEC_LAYER_EXIT, cache, rows, err);
    return rc;
}

void pi__drafters_keep(pi__drafting *d, const pi__seq *s)
{
    if (d->of[PI__SPEC_NGRAM]) pi__draft_lookup_keep(d->of[PI__SPEC_NGRAM], s);
}

void pi__drafters_clear(pi__drafting *d, const uint64_t *tenant)
{
    if (d->of[PI__SPEC_NGRAM]) pi__draft_lookup_clear(d->of[PI__SPEC_NGRAM], tenant);
}

uint32_t pi__drafter_skip_groups(const pi__setup *s, int kind)
{
    const int whose = s->drafter == s->m ? PI__SPEC_MTP : PI__SPEC_DRAFT;
    uint32_t groups = 0;
    for (int32_t i = 0; i < s->m->n_groups; i++)
        if (s->m->group[i].draft && kind != whose) groups |= 1u << i;
    return groups;
}

int pi__drafter_of(const pi__setup *s, int asked, int *kind, pi_error *err)
{
    *kind = asked == PI__SPEC_AUTO ? s->cfg.spec : asked;
    if (*kind == PI__SPEC_NONE || has_drafter(s, *kind)) return PI_OK;
    if (*kind != s->cfg.spec)
        return pi__fail(err, PI_EINVAL,
                        "spec-type %s: the engine was not opened with that drafter: add it to the engine's "
                        "spec-type, or ask for none",
                        names[*kind]);
    *kind = PI__SPEC_NONE; /* the engine's default, disabled by its options */
    return PI_OK;
}
