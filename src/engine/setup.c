/* The setup of an engine (see setup.h). */
#include "engine/setup.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backend/split.h"
#include "base/error.h"
#include "engine/metadata.h"

void pi__setup_undeclare(pi__setup *s)
{
    if (s->drafter != s->m) pi__model_free(s->drafter);
    pi__model_free(s->m);
    s->drafter = s->m = NULL;
}

int pi__setup_declare(pi__setup *s, pi_error *err)
{
    const pi__config *c = &s->cfg;
    int spec = c->spec != PI__SPEC_AUTO ? c->spec : c->draft_model ? PI__SPEC_DRAFT : PI__SPEC_NONE;
    int32_t n_draft = spec == PI__SPEC_NONE ? 0 : c->n_draft;
    if (spec == PI__SPEC_DRAFT && !c->draft_model)
        return pi__fail(err, PI_EINVAL, "spec-type draft needs model-draft, the drafter's GGUF file");
    if (n_draft < 0 || n_draft > PI__MAX_DRAFT)
        return pi__fail(err, PI_EINVAL, "spec-draft-n-max is %d, expected 0 to %d", n_draft, PI__MAX_DRAFT);
    int rc = pi__model_declare(&s->m, s->g, s->be, s->be->at[PI__AT_CPU] ? s->placement : NULL, n_draft, NULL, err);
    if (rc || !n_draft) return rc;
    if (spec == PI__SPEC_DRAFT) {
        if (!s->draft_g) rc = pi__gguf_open_with(&s->draft_g, c->draft_model, c->load_mode, &s->progress, err);
        if (!rc) rc = pi__model_declare(&s->drafter, s->draft_g, s->be, NULL, n_draft, s->m, err);
        if (rc) return rc;
    } else {
        s->drafter = s->m;
    }
    if (s->drafter->arch->draft && s->drafter->no_draft)
        return pi__fail(err, PI_EUNSUPPORTED, "spec-type mtp: the draft head of a %s model is a file of its own: give it as "
                        "model-draft", s->drafter->arch->name);
    if (!s->drafter->arch->draft)
        return pi__fail(err, PI_EUNSUPPORTED, "%s: a model of architecture %s cannot draft",
                        spec == PI__SPEC_MTP ? "spec-type mtp" : "model-draft", s->drafter->arch->name);
    if (s->drafter->n_vocab != s->m->n_vocab)
        return pi__fail(err, PI_EINVAL, "model-draft has %d tokens, the model %d: it was not made for this one",
                        s->drafter->n_vocab, s->m->n_vocab);
    return PI_OK;
}

int pi__setup_add_cpu(pi__setup *s, pi_error *err)
{
    pi__backend *device = s->be, *cpu = NULL;
    int rc = pi__device_create(&cpu, "cpu", false, &s->cfg.cpu, &s->cfg.log, err);
    if (!rc) rc = pi__split_create(&s->be, device, cpu, err);
    if (rc) {
        if (cpu) cpu->dev->destroy(cpu);
        s->be = device;
    }
    return rc;
}

const char *pi__setup_device(const pi__setup *s)
{
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES];
    return pi__devices_named(s->cfg.device, dev, index) > 0 ? dev[0]->name : "cpu";
}

/* Layers were to lie on a GPU, and there is none: they run on the CPU. An embedder whose device must be there names it. */
static void note_no_gpu(const pi__setup *s)
{
    const char *device = s->cfg.device;
    if (!s->cfg.placement.asked || (device && *device && strcasecmp(device, "auto"))) return;
    if (strncmp(s->be->dev->describe(s->be), "cpu", 3)) return;
    pi__device_info info = {0};
    if (pi__n_devices > 1 && !strcmp(pi__devices[0].name, "cuda")) pi__devices[0].tell(0, &info);
    pi__logf(&s->cfg.log, PI_LOG_WARN, "gpu-layers: %s%s, so all layers run on the CPU%s", *info.lacks ? "no usable GPU: " : "",
             *info.lacks ? info.lacks : "this build has no code for GPUs", *info.lacks ? "" :
             " (-DPAGEDINFER_CUDA=ON builds it for NVIDIA GPUs)");
}

/* The device; or the CPU alone, or both, where the rules want it. */
static int open_devices(pi__setup *s, pi_error *err)
{
    const pi__config *c = &s->cfg;
    int rc = pi__placement_create(&s->placement, &c->placement, pi__setup_device(s), s->g, err);
    const bool none = !rc && pi__placement_cpu(s->placement);
    if (!rc) rc = pi__device_create(&s->be, none ? "cpu" : c->device, c->tensor, &c->cpu, &c->log, err);
    if (!rc) note_no_gpu(s);
    if (rc || !s->be->discrete || !pi__placement_both(s->placement)) return rc;
    if (s->be->n_ranks > 1)
        return pi__fail(err, PI_EUNSUPPORTED, "split-mode tensor runs all of the model on the devices: unset gpu-layers, "
                        "cpu-moe, n-cpu-moe, override-tensor and no-kv-offload, or use split-mode none");
    return pi__setup_add_cpu(s, err);
}

int pi__setup_open(pi__setup *s, const pi__config *c, pi_error *err)
{
    *s = (pi__setup) {.cfg = *c, .progress = {.fn = c->progress, .ud = c->progress_ud}};
    if (c->prefix_dir && !*c->prefix_dir) s->cfg.prefix_dir = NULL;
    if (c->draft_model && !*c->draft_model) s->cfg.draft_model = NULL;
    if (!c->model || !*c->model) return pi__fail(err, PI_EINVAL, "no model given: set option \"model\" to a GGUF file");
    if (c->block_size != 16 && c->block_size != 32 && c->block_size != 64)
        return pi__fail(err, PI_EINVAL, "block-size is %d, expected 16, 32 or 64", c->block_size);
    if (c->max_batch_tokens < 1 || c->max_seqs < 1 || c->ctx_size < 0 || c->snapshot_interval < 1)
        return pi__fail(err, PI_EINVAL, "the step budget, the number of sequences, the context and the snapshot interval "
                        "must be positive");
    int rc = pi__gguf_open_with(&s->g, c->model, c->load_mode, &s->progress, err);
    if (!rc) rc = pi__override_metadata(s->g, c, err);
    if (!rc) rc = open_devices(s, err);
    if (!rc && s->be->n_ranks > 1 && s->cfg.prefix_dir && !s->be->dev->copy_out)
        rc = pi__fail(err, PI_EUNSUPPORTED, "prefix-cache-dir and the CPU as several devices do not go together: unset it, or use "
                      "split-mode none");
    return rc ? rc : pi__setup_declare(s, err);
}

int pi__setup_size(pi__setup *s, pi_error *err) { return pi__memory_size(&s->mem, &s->cfg, s->be, s->m, s->drafter, err); }

int pi__setup_device_need(pi__setup *s, uint64_t *bytes, pi_error *err)
{
    pi_plan p = {.size = sizeof p};
    int rc = pi__setup_size(s, err);
    if (!rc) pi__memory_tell(&s->mem, 0, &p);
    *bytes = p.place[0].weights_bytes + p.place[0].kv_bytes + p.place[0].state_bytes + p.place[0].scratch_bytes;
    return rc;
}

pi__block_hash pi__setup_fingerprint(const pi__setup *s)
{
    char text[768];
    const pi__rope_config *r = &s->cfg.rope;
    int n = snprintf(text, sizeof text, "%s|%s|%s|%a|%d|%a|%lld|%a|%a|%a|%a|%d|%d|%016llx%016llx", pi_version(),
                     s->m->arch->name, s->be->dev->describe(s->be), r->base, r->scaling, r->scale, (long long) r->orig_ctx,
                     r->ext_factor.set ? r->ext_factor.value : -1, r->attn_factor.set ? r->attn_factor.value : -1,
                     r->beta_slow.set ? r->beta_slow.value : -1, r->beta_fast.set ? r->beta_fast.value : -1,
                     s->cfg.block_size, s->m->n_kv,
                     (unsigned long long) s->m->digest.hi, (unsigned long long) s->m->digest.lo);
    pi__block_hash hash = pi__hash(text, (size_t) n);
    for (size_t i = 0; i < s->cfg.n_override_kv; i++)
        hash = pi__hash_chain(hash, s->cfg.override_kv[i], strlen(s->cfg.override_kv[i]));
    for (int32_t i = 0; i < s->m->n_kv; i++) {
        const pi__kv_layer *kv = &s->m->kv[i];
        const int32_t layer[] = {kv->placement, kv->type_k, kv->type_v}; /* shards and types */
        hash = pi__block_hash_extend(hash, layer, 3);
    }
    for (int32_t i = 0; i < s->m->n_state; i++) hash = pi__block_hash_extend(hash, &s->m->state[i].placement, 1);
    return hash;
}

void pi__setup_close_files(pi__setup *s)
{
    pi__gguf_close(s->g);
    pi__gguf_close(s->draft_g);
    s->g = s->draft_g = NULL;
    s->cfg.model = s->cfg.prefix_dir = s->cfg.draft_model = NULL;
    s->cfg.cpu.isa = s->cfg.device = NULL;
    s->cfg.placement.override = s->cfg.override_kv = NULL;
}

void pi__setup_free(pi__setup *s)
{
    pi__memory_free(&s->mem);
    pi__setup_undeclare(s);
    if (s->be) s->be->dev->destroy(s->be);
    pi__placement_free(s->placement);
    pi__gguf_close(s->draft_g);
    pi__gguf_close(s->g);
    memset(s, 0, sizeof *s);
}
