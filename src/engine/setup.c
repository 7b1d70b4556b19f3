/* The setup of an engine (see setup.h). */
#include "engine/setup.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backend/devices.h"
#include "backend/profile.h"
#include "backend/split.h"
#include "base/error.h"
#include "engine/imatrix.h"
#include "engine/media.h"
#include "engine/metadata.h"
#include "engine/vocab_compare.h"

void pi__setup_undeclare(pi__setup *s)
{
    if (s->drafter != s->m) pi__model_free(s->drafter);
    pi__model_free(s->draft_model);
    pi__tower_free(s->tower);
    pi__model_free(s->m);
    s->drafter = s->draft_model = s->m = NULL;
    s->tower = NULL;
    s->encoder = NULL;
}

static bool has_drafter(const pi__setup *s, int kind) { return s->kinds >> kind & 1; }

/* Resolves the drafters from the options and checks the combination. *n_draft: max drafts per sequence and step. */
static int choose_drafters(pi__setup *s, int32_t *n_draft, pi_error *err)
{
    pi__config *c = &s->cfg;
    if (c->spec == PI__SPEC_AUTO) c->spec = c->draft_model ? PI__SPEC_DRAFT : PI__SPEC_NONE;
    s->kinds = (1u << c->spec | c->spec_also) & ~(1u << PI__SPEC_NONE | 1u << PI__SPEC_AUTO);
    if (!c->n_draft) s->kinds &= 1u << PI__SPEC_NGRAM;
    if (!c->ngram_m) c->ngram_m = c->n_draft;
    if (!c->ngram_m) s->kinds &= ~(1u << PI__SPEC_NGRAM);
    if (has_drafter(s, PI__SPEC_DRAFT) && !c->draft_model)
        return pi__fail(err, PI_EINVAL, "spec-type draft needs model-draft, the drafter's GGUF file");
    if (c->n_draft < 0 || c->n_draft > PI__MAX_DRAFT)
        return pi__fail(err, PI_EINVAL, "spec-draft-n-max is %d, expected 0 to %d", c->n_draft, PI__MAX_DRAFT);
    *n_draft = s->kinds & ~(1u << PI__SPEC_NGRAM) ? c->n_draft : 0;
    if (has_drafter(s, PI__SPEC_NGRAM) && c->ngram_m > *n_draft) *n_draft = c->ngram_m;
    return PI_OK;
}

/* Opens the file of model-draft. *head: the model reads the target's hidden states. */
static int open_drafter(pi__setup *s, bool *head, pi_error *err)
{
    int rc = PI_OK;
    if (!s->draft_g) rc = pi__gguf_open_with(&s->draft_g, s->cfg.draft_model, s->cfg.load_mode, &s->progress, err);
    *head = !rc && pi__model_kind(s->draft_g) == PI__KIND_DRAFTER;
    return rc;
}

static void tower_begin(void *ud, pi__picture *p) { pi__tower_begin(ud, p); }
static void tower_cancel(void *ud) { pi__tower_cancel(ud); }
static int tower_step(void *ud, pi__backend *be, float *rows, pi__image_part *p, pi_error *err)
{
    (void) be;
    return pi__tower_step(ud, rows, p, err);
}

/* Returns the id of the entry with this text in the vocabulary of file ud; -1 = none. */
static int32_t token_of(void *ud, const char *text)
{
    const pi__gguf_kv *kv = pi__gguf_find(ud, "tokenizer.ggml.tokens");
    const uint64_t n = kv && kv->type == PI__GGUF_ARR && kv->arr_type == PI__GGUF_STR ? kv->n : 0;
    for (uint64_t i = 0; i < n && i < INT32_MAX; i++) {
        const pi__str s = pi__gguf_elem_str(kv, i);
        if (s.n == strlen(text) && !memcmp(s.p, text, s.n)) return (int32_t) i;
    }
    return -1;
}

/* Opens the vision model of option mmproj, as the encoder. */
static int open_tower(pi__setup *s, pi_error *err)
{
    const pi__tower_text text = {.arch = s->m->arch->name, .n_embd = s->m->n_embd, .n_deepstack = s->m->n_deepstack,
                                 .per_layer_embd = s->m->per_layer_embd, .token = token_of, .ud = s->g};
    const pi__tower_use use = {.load_mode = s->cfg.load_mode, .max_tokens = s->cfg.image_max_tokens};
    enum { LEAST = 64 /* tokens of a step that a tower needs */ };
    if (s->cfg.max_batch_tokens < LEAST)
        return pi__fail(err, PI_EINVAL, "mmproj: a step has to have room for %d patches: raise ubatch-size to %d",
                        LEAST, LEAST);
    int rc = pi__tower_open(&s->tower, s->cfg.mmproj, s->be, &text, &use, err);
    if (rc) return rc;
    const pi__image_frame *frame = pi__tower_frame(s->tower);
    s->tower_encoder = (pi__encoder) {.ud = s->tower,
                                      .width = pi__tower_width(s->tower),
                                      .max_tokens = (int32_t) pi__tower_rules(s->tower)->max_tokens,
                                      .attention = frame->attention,
                                      .mrope = frame->mrope,
                                      .begin = tower_begin,
                                      .step = tower_step,
                                      .cancel = tower_cancel};
    s->encoder = &s->tower_encoder;
    return PI_OK;
}

/* Sets up the encoder of images, if there is one. */
static int set_encoder(pi__setup *s, pi_error *err)
{
    static const int spans[] = {[PI__SPAN_CAUSAL] = PI__SPANS_NONE, [PI__SPAN_SLIDING] = PI__SPANS_WINDOW,
                                [PI__SPAN_ALL] = PI__SPANS_ALL};
    pi__model *m = s->m;
    const bool given = s->cfg.mmproj && *s->cfg.mmproj;
    s->encoder = s->cfg.encoder;
    if (!s->encoder && !given) return PI_OK;
    if (m->bidirectional)
        return pi__fail(err, PI_EUNSUPPORTED, "mmproj: a %s model reads no images", m->arch->name);
    const int rc = s->encoder ? PI_OK : open_tower(s, err);
    const pi__encoder *en = s->encoder;
    if (rc) return rc;
    if (en->width != m->n_embd * (1 + m->n_deepstack))
        return pi__fail(err, PI_EINVAL,
                        "mmproj: its rows have %d values, and the model needs %d (embeddings of %d, DeepStack layers: "
                        "%d): give the vision model of this model",
                        en->width, m->n_embd * (1 + m->n_deepstack), m->n_embd, m->n_deepstack);
    if (en->mrope && !m->mrope)
        return pi__fail(err, PI_EINVAL,
                        "mmproj: the vision model needs M-RoPE, and the model's file has no "
                        "%s.rope.dimension_sections: convert the model again",
                        m->arch->name);
    m->image_spans = spans[en->attention];
    s->n_image_rows = pi__media_rows_of(en, s->cfg.mmproj_cache);
    return PI_OK;
}

/* Declares a separate, smaller model with the target's vocabulary. */
static int declare_beside(pi__setup *s, pi_error *err)
{
    const pi__model_use use = {.n_draft = s->cfg.n_draft};
    int rc = pi__model_declare(&s->draft_model, s->draft_g, s->be, &use, err);
    if (!rc && s->draft_model->bidirectional)
        rc = pi__fail(err, PI_EUNSUPPORTED, "model-draft: a %s model generates nothing", s->draft_model->arch->name);
    if (!rc) rc = pi__vocab_compare(s->g, s->draft_g, err);
    if (!rc && s->draft_model->n_vocab > s->m->n_vocab)
        rc = pi__fail(err, PI_EINVAL, "model-draft has %d tokens, the model %d: give a drafter of this model",
                      s->draft_model->n_vocab, s->m->n_vocab);
    return rc;
}

/* Declares the drafter that reads the target's hidden states: the target itself, or with `own_file` the one of
 * model-draft. */
static int declare_head(pi__setup *s, bool own_file, pi_error *err)
{
    int rc = PI_OK;
    if (!own_file) s->drafter = s->m;
    const pi__model_use use = {.target = s->m, .n_draft = s->cfg.n_draft};
    if (own_file && !rc) rc = pi__model_declare(&s->drafter, s->draft_g, s->be, &use, err);
    if (rc) return rc;
    if (s->drafter->arch->draft && s->drafter->no_draft)
        return pi__fail(err, PI_EUNSUPPORTED,
                        "spec-type mtp: the draft head of a %s model is a file of its own: give it as "
                        "model-draft",
                        s->drafter->arch->name);
    if (!s->drafter->arch->draft && !s->drafter->arch->inject)
        return pi__fail(err, PI_EUNSUPPORTED, "%s: a model of architecture %s cannot draft",
                        own_file ? "model-draft" : "spec-type mtp", s->drafter->arch->name);
    if (s->drafter->n_vocab != s->m->n_vocab)
        return pi__fail(err, PI_EINVAL, "model-draft has %d tokens, the model %d: give a drafter of this model",
                        s->drafter->n_vocab, s->m->n_vocab);
    return PI_OK;
}

int pi__setup_declare(pi__setup *s, pi_error *err)
{
    const bool placed = s->be->at[PI__AT_CPU] || s->cfg.placement.n_slot;
    pi__model_use use = {.placement = placed ? s->placement : NULL, .n_exit = s->cfg.n_layer_exit,
                         .n_used = s->cfg.n_expert, .n_ctx = s->cfg.ctx_size};
    int rc = choose_drafters(s, &use.n_draft, err);
    if (!rc && has_drafter(s, PI__SPEC_MTP) && has_drafter(s, PI__SPEC_DRAFT))
        rc = pi__fail(err, PI_EUNSUPPORTED, "spec-type mtp and model-draft: give one of them");
    if (rc) return rc;
    use.with_head = has_drafter(s, PI__SPEC_MTP);
    s->n_draft = use.n_draft;
    rc = pi__model_declare(&s->m, s->g, s->be, &use, err);
    bool head = false;
    if (!rc && s->m->bidirectional && s->cfg.draft_model)
        rc = pi__fail(err, PI_EUNSUPPORTED, "a %s model generates nothing: leave out model-draft", s->m->arch->name);
    if (!rc && has_drafter(s, PI__SPEC_DRAFT)) rc = open_drafter(s, &head, err);
    if (!rc && has_drafter(s, PI__SPEC_DRAFT) && !head) rc = declare_beside(s, err);
    if (!rc && (has_drafter(s, PI__SPEC_MTP) || head)) rc = declare_head(s, head, err);
    if (!rc) rc = set_encoder(s, err);
    if (!rc && has_drafter(s, PI__SPEC_LAYER_EXIT) && s->cfg.draft_layers >= s->m->n_trunk)
        rc = pi__fail(err, PI_EINVAL, "spec-draft-layers is %d, but the model has %d layers: give fewer",
                      s->cfg.draft_layers, s->m->n_trunk);
    return rc;
}

int pi__setup_add_cpu(pi__setup *s, pi_error *err)
{
    pi__backend *device = s->be, *cpu = NULL;
    int rc = pi__device_create(&cpu, "cpu", false, &s->cfg.params, &s->cfg.log, err);
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

/* Warns if layers were requested on a GPU but run on the CPU. Not if the embedder named a device. */
static void note_no_gpu(const pi__setup *s)
{
    const char *device = s->cfg.device;
    if (!s->cfg.placement.asked || (device && *device && strcasecmp(device, "auto"))) return;
    if (strncmp(s->be->dev->describe(s->be), "cpu", 3)) return;
    pi__device_info info = {0};
    if (pi__n_devices > 1 && !strcmp(pi__devices[0].name, "cuda")) pi__devices[0].tell(0, &info);
    pi__logf(&s->cfg.log, PI_LOG_WARN, "gpu-layers: %s%s, so all layers run on the CPU%s",
             *info.lacks ? "no usable GPU: " : "", *info.lacks ? info.lacks : "this build has no GPU support",
             *info.lacks ? "" : " (-DPAGEDINFER_CUDA=ON builds it for NVIDIA GPUs)");
}

/* Assigns layers to devices: by tensor-split, or in proportion to free memory, or equally. */
static int place_stages(pi__setup *s, pi_error *err)
{
    double part[PI__N_PLACEMENTS], least = 1;
    const int32_t n = s->be->n_stages;
    if (pi__placement_both(s->placement))
        return pi__fail(err, PI_EUNSUPPORTED,
                        "split-mode layer runs all of the model on the devices: unset gpu-layers, cpu-moe, "
                        "n-cpu-moe, override-tensor and no-kv-offload, or use split-mode none");
    for (int32_t i = 0; i < n; i++) {
        pi__backend *dev = s->be->at[i];
        part[i] = dev->discrete && dev->opt->free_memory ? (double) dev->opt->free_memory(dev) : 0;
        least = part[i] < least ? part[i] : least;
    }
    for (int32_t i = 0; i < n; i++) {
        if (least <= 0) part[i] = 1;
        if (s->cfg.part[i] > 0) part[i] = s->cfg.part[i];
    }
    return pi__placement_stages(s->placement, part, n, err);
}

/* Checks that the device can have copies of experts. If its memory is the host's, copies save nothing, and the option
 * is ignored. */
static int check_slots(pi__setup *s, pi_error *err)
{
    const pi__backend *be = s->be;
    if (!s->cfg.placement.n_slot) return PI_OK;
    if (be->n_stages || be->n_ranks > 1 || s->cfg.ranks)
        return pi__fail(err, PI_EUNSUPPORTED,
                        "expert-cache works with one device: unset it, or use split-mode none and ranks off");
    if (!be->discrete || be->integrated) {
        pi__logf(&s->cfg.log, PI_LOG_INFO, "expert-cache is ignored: %s uses the host's memory",
                 be->dev->describe(be));
        s->cfg.placement.n_slot = 0;
        pi__placement_free(s->placement);
        return pi__placement_create(&s->placement, &s->cfg.placement, pi__setup_device(s), s->g, err);
    }
    if (be->page && be->opt->slots_bytes) return PI_OK;
    return pi__fail(err, PI_EUNSUPPORTED, "expert-cache: %s cannot read experts in host memory: leave it out",
                    be->dev->describe(be));
}

/* Opens the device, or the CPU only, or both, as the placement rules require. */
static int open_devices(pi__setup *s, pi_error *err)
{
    const pi__config *c = &s->cfg;
    int rc = pi__placement_create(&s->placement, &c->placement, pi__setup_device(s), s->g, err);
    const bool none = !rc && pi__placement_cpu(s->placement);
    const char *device = none ? "cpu" : c->device;
    const int split = c->layers ? PI__SPLIT_LAYER : c->tensor ? PI__SPLIT_TENSOR : PI__SPLIT_NONE;
    if (!rc) rc = c->ranks ? pi__device_create_rank(&s->be, device, c->ranks, &c->params, &c->log, err)
                           : pi__device_create(&s->be, device, split, &c->params, &c->log, err);
    if (!rc) note_no_gpu(s);
    if (!rc) rc = check_slots(s, err);
    if (!rc && s->be->n_stages) return place_stages(s, err);
    if (rc || !s->be->discrete || !pi__placement_both(s->placement)) return rc;
    if (s->be->n_ranks > 1)
        return pi__fail(err, PI_EUNSUPPORTED,
                        "split-mode tensor and ranks run all of the model on the devices: unset gpu-layers, "
                        "cpu-moe, n-cpu-moe, override-tensor and no-kv-offload, or use split-mode none and ranks off");
    return pi__setup_add_cpu(s, err);
}

int pi__setup_open(pi__setup *s, const pi__config *c, pi_error *err)
{
    *s = (pi__setup) {.cfg = *c, .progress = {.fn = c->progress, .ud = c->progress_ud}};
    if (c->prefix_dir && !*c->prefix_dir) s->cfg.prefix_dir = NULL;
    if (c->prefix_key && !*c->prefix_key) s->cfg.prefix_key = NULL;
    if (c->draft_model && !*c->draft_model) s->cfg.draft_model = NULL;
    if (!c->model || !*c->model) return pi__fail(err, PI_EINVAL, "no model given: set option \"model\" to a GGUF file");
    if (c->block_size != 16 && c->block_size != 32 && c->block_size != 64)
        return pi__fail(err, PI_EINVAL, "block-size is %d, expected 16, 32 or 64", c->block_size);
    if (c->max_batch_tokens < 1 || c->max_seqs < 1 || c->ctx_size < 0 || c->snapshot_interval < 1)
        return pi__fail(err, PI_EINVAL,
                        "the step budget, the number of sequences, the context and the snapshot interval "
                        "must be positive");
    if (s->cfg.prefix_key && !s->cfg.prefix_dir)
        return pi__fail(
            err, PI_EINVAL,
            "prefix-cache-key is given, and no directory that it protects: set prefix-cache-dir, or unset it");
    int rc = pi__gguf_open_with(&s->g, c->model, c->load_mode, &s->progress, err);
    if (!rc) rc = pi__override_metadata(s->g, c, err);
    if (!rc) rc = open_devices(s, err);
    if (!rc && s->be->n_ranks > 1 && s->cfg.prefix_dir && !s->be->opt->copy_out)
        rc = pi__fail(err, PI_EUNSUPPORTED,
                      "prefix-cache-dir and the CPU as several devices, or ranks, do not go together: unset "
                      "it, or use split-mode none and ranks off");
    return rc ? rc : pi__setup_declare(s, err);
}

/* Returns the number of tokens that the pools hold, at least the longest request. */
static int64_t cache_tokens(const pi__memory *mem)
{
    int64_t most = mem->longest;
    for (int32_t i = 0; i < mem->map.n_groups; i++)
        if (pi__group_is_full(&mem->spec[i])) most = (int64_t) mem->spec[i].n_blocks * mem->spec[i].block_size;
    return most;
}

/* Sizes the cache of the separate draft model for the same number of tokens. Its recurrent states get no snapshots,
 * so a model with states does not reuse prefixes. */
static int size_draft_model(pi__setup *s, pi_error *err)
{
    s->draft_model_cfg = s->cfg;
    s->draft_model_cfg.kv_bytes = 0;
    s->draft_model_cfg.sparsity = 0;
    s->draft_model_cfg.kv_tokens = (uint64_t) cache_tokens(&s->mem);
    s->draft_model_cfg.ctx_size = s->mem.ctx;
    s->draft_model_cfg.prefix_cache = s->cfg.prefix_cache && !s->draft_model->n_state;
    int rc = pi__memory_size(&s->draft_model_mem, &s->draft_model_cfg, s->be, s->draft_model, NULL, s->n_draft, err);
    if (rc) return rc;
    s->mem.scratch += pi__model_scratch(s->draft_model, &s->mem.lim);
    return PI_OK;
}

int pi__setup_size(pi__setup *s, pi_error *err)
{
    int rc = pi__memory_size(&s->mem, &s->cfg, s->be, s->m, s->drafter, s->n_draft, err);
    if (rc) return rc;
    if (s->encoder) pi__memory_add_images(&s->mem, s->tower, pi__media_device_bytes(s->encoder, s->n_image_rows));
    return s->draft_model ? size_draft_model(s, err) : PI_OK;
}

void pi__setup_tell(const pi__setup *s, size_t host, pi_plan *p)
{
    pi__memory_tell(&s->mem, host, p);
    if (s->draft_model) pi__memory_tell_draft_model(&s->draft_model_mem, p);
    for (int32_t i = 0; i < s->be->n_stages && p->size >= sizeof *p; i++) {
        int32_t first;
        const int32_t n = pi__placement_layers(s->placement, i, &first);
        const pi__backend *dev = s->be->at[i];
        snprintf(p->place[i].name, sizeof p->place[i].name, "layers %d-%d: %.40s", first, first + n - 1,
                 dev->dev->describe(dev));
    }
}

int pi__setup_device_need(pi__setup *s, uint64_t *bytes, pi_error *err)
{
    pi_plan p = {.size = sizeof p};
    int rc = pi__setup_size(s, err);
    if (!rc) pi__setup_tell(s, 0, &p);
    const bool shared = s->cfg.weights_from && *s->cfg.weights_from; /* the owner process has the memory already */
    *bytes = (shared ? 0 : p.place[0].weights_bytes) + p.place[0].kv_bytes + p.place[0].state_bytes +
             p.place[0].scratch_bytes;
    return rc;
}

pi__model *pi__setup_second_model(const pi__setup *s)
{
    return s->draft_model ? s->draft_model : s->drafter != s->m ? s->drafter : NULL;
}

/* Starts the op profile. A device that runs asynchronously cannot be measured: an op returns before it has run. */
static int start_profile(pi__setup *s, pi_error *err)
{
    if (s->be->discrete || s->be->n_ranks > 1)
        return pi__fail(err, PI_EUNSUPPORTED, "profile-ops measures only the CPU: give device cpu");
    s->be->profile = pi__profile_new(s->be);
    return s->be->profile ? PI_OK : pi__fail_mem(err, "the profile of ops");
}

/* Starts the importance matrix. The matrices of a second model would have the same numbers. */
static int start_sums(pi__setup *s, pi_error *err)
{
    if (pi__setup_second_model(s))
        return pi__fail(err, PI_EUNSUPPORTED, "imatrix-file does not support drafters: leave out model-draft");
    return pi__sums_new(&s->sums, s->be, s->m, s->cfg.imatrix_file, s->cfg.imatrix_dataset,
                        s->cfg.ctx_size > 0 ? s->cfg.ctx_size : 512, err);
}

int pi__setup_load(pi__setup *s, bool keep, pi_error *err)
{
    pi__model *m[] = {s->m, pi__setup_second_model(s)};
    pi__model *tower = s->tower && !keep ? pi__tower_model(s->tower) : NULL; /* each process loads its own */
    uint64_t all = tower ? pi__model_load_bytes(tower) : 0;
    int rc = s->be->dev->reserve(s->be, &s->mem.lim, err);
    if (!rc && s->cfg.trace_ops) s->be->trace = &s->cfg.log;
    if (!rc && s->cfg.profile_ops) rc = start_profile(s, err);
    if (!rc && s->cfg.imatrix_file && *s->cfg.imatrix_file) rc = start_sums(s, err);
    for (int i = 0; i < 2 && m[i]; i++) {
        m[i]->want_digest = s->cfg.prefix_dir != NULL; /* the model's cache groups may include the drafter's */
        m[i]->check_tensors = s->cfg.check_tensors;
        m[i]->image.source = (pi__weights_source) {keep ? NULL : s->cfg.weights_from,
                                                   keep ? NULL : s->cfg.weights_cache, keep, s->cfg.log};
        all += pi__model_load_bytes(m[i]);
    }
    if (!rc) rc = pi__progress_begin(&s->progress, PI_LOAD_WEIGHTS, all, err);
    for (int i = 0; i < 2 && m[i] && !rc; i++) rc = pi__model_load(m[i], &s->mem.lim, &s->progress, err);
    if (tower) tower->check_tensors = s->cfg.check_tensors;
    if (tower && !rc) rc = pi__model_load(tower, &s->mem.lim, &s->progress, err);
    return rc ? rc : s->be->dev->finish(s->be, err); /* errors of uploads are reported only here */
}

static void add_text(pi__hasher *h, const char *text) { pi__hash_field(h, text, strlen(text)); }

/* Hashes a metadata value: a field for type and length, then one field per element. */
static void add_value(pi__hasher *h, const pi__gguf_kv *kv)
{
    const int32_t type = kv->type == PI__GGUF_ARR ? kv->arr_type : kv->type;
    const uint64_t what[] = {(uint64_t) kv->type, (uint64_t) type, kv->n};
    pi__hash_field(h, what, sizeof what);
    for (uint64_t i = 0; i < kv->n; i++) {
        const pi__str text = type == PI__GGUF_STR ? pi__gguf_elem_str(kv, i) : (pi__str) {NULL, 0};
        const bool real = type == PI__GGUF_F32 || type == PI__GGUF_F64;
        const double d = real ? pi__gguf_elem_f64(kv, i) : 0;
        const uint64_t u = type == PI__GGUF_STR || real ? 0 : pi__gguf_elem_u64(kv, i);
        if (type == PI__GGUF_STR) pi__hash_field(h, text.p, text.n);
        else pi__hash_field(h, real ? (const void *) &d : &u, sizeof u);
    }
}

/* Hashes the overridden metadata of the file (hyperparameters), and each tensor's name, type and shape. Names,
 * descriptions and the tokenizer are left out: they do not change keys and values of given token ids. */
static void add_file(pi__hasher *h, const pi__gguf *g)
{
    for (size_t i = 0; i < pi__gguf_n_kv(g); i++) {
        const pi__gguf_kv *kv = pi__gguf_kv_at(g, i);
        if ((kv->key.n > 8 && !memcmp(kv->key.p, "general.", 8)) ||
            (kv->key.n > 10 && !memcmp(kv->key.p, "tokenizer.", 10)))
            continue;
        pi__hash_field(h, kv->key.p, kv->key.n);
        add_value(h, kv);
    }
    for (size_t i = 0; i < pi__gguf_n_tensors(g); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(g, i);
        pi__hash_field(h, t->name.p, t->name.n);
        pi__hash_field(h, &t->type, sizeof t->type);
        pi__hash_field(h, t->ne, sizeof t->ne);
    }
}

/* Hashes the placement and cache types of all layers, in model order. */
static void add_layers(pi__hasher *h, const pi__model *m)
{
    for (int32_t i = 0; i < m->n_kv; i++) {
        /* determines shards and types */
        const int32_t layer[] = {m->kv[i].placement, m->kv[i].type_k, m->kv[i].type_v};
        pi__hash_field(h, layer, sizeof layer);
    }
    for (int32_t i = 0; i < m->n_state; i++) pi__hash_field(h, &m->state[i].placement, sizeof m->state[i].placement);
}

pi__digest pi__setup_fingerprint(const pi__setup *s)
{
    char text[512];
    pi__hasher h;
    const pi__rope_config *r = &s->cfg.rope;
    const pi__device_params *p = &s->cfg.params;
    /* modes that change result bits */
    const int products = s->be->discrete ? p->cuda.matmul << 4 | p->cuda.fp4 << 1 | p->cuda.blas : 0;
    const bool drafts = s->drafter && s->drafter != s->m;
    const int n = snprintf(text, sizeof text, "%d|%d|%d|%d|%a|%d|%a|%lld|%a|%a|%a|%a|%d|%d|%d|%d|%zu|%d", s->m->n_exit,
                           s->m->n_used, s->m->long_rope, products, r->base, r->scaling, r->scale,
                           (long long) r->orig_ctx, r->ext_factor.set ? r->ext_factor.value : -1,
                           r->attn_factor.set ? r->attn_factor.value : -1, r->beta_slow.set ? r->beta_slow.value : -1,
                           r->beta_fast.set ? r->beta_fast.value : -1, s->cfg.block_size, s->m->n_kv, s->m->n_state,
                           p->cpu.act8, s->cfg.n_override_kv, drafts);
    pi__hash_begin(&h, PI__HASH_FINGERPRINT);
    pi__hash_field(&h, text, (size_t) n);
    pi__hash_field(&h, &s->cfg.sparsity, sizeof s->cfg.sparsity);
    add_text(&h, pi_version());
    add_text(&h, s->m->arch->name);
    add_text(&h, s->be->dev->describe(s->be));
    for (size_t i = 0; i < s->cfg.n_override_kv; i++) add_text(&h, s->cfg.override_kv[i]);
    pi__hash_field(&h, &s->m->digest, sizeof s->m->digest);
    if (drafts) pi__hash_field(&h, &s->drafter->digest, sizeof s->drafter->digest);
    add_layers(&h, s->m);
    add_file(&h, s->g);
    return pi__hash_end(&h);
}

void pi__setup_close_files(pi__setup *s)
{
    pi__gguf_close(s->g);
    pi__gguf_close(s->draft_g);
    s->g = s->draft_g = NULL;
    s->cfg.model = s->cfg.prefix_dir = s->cfg.prefix_key = s->cfg.draft_model = s->cfg.weights_from =
        s->cfg.weights_cache = s->cfg.imatrix_file = s->cfg.imatrix_dataset = s->cfg.mmproj = NULL;
    s->cfg.params.cpu.isa = s->cfg.device = NULL;
    s->cfg.placement.override = s->cfg.override_kv = NULL;
}

void pi__setup_free(pi__setup *s)
{
    pi__sums_close(s->sums, s->be, &s->cfg.log);
    s->sums = NULL;
    pi__memory_free(&s->draft_model_mem);
    pi__memory_free(&s->mem);
    pi__setup_undeclare(s);
    if (s->be) pi__profile_free(s->be->profile);
    if (s->be) s->be->dev->destroy(s->be);
    pi__placement_free(s->placement);
    pi__gguf_close(s->draft_g);
    pi__gguf_close(s->g);
    memset(s, 0, sizeof *s);
}
