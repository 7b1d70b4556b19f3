/* Models with mixers of Mamba-2 (block_ssd.c), except Granite, and of Mamba (block_mamba.c):
 *
 * "nemotron_h", "nemotron_h_moe": each layer is one block with one norm: a Mamba-2 mixer, attention without RoPE, or a
 * feed-forward with a squared ReLU and without a gate. With experts, the router has sigmoid gates and a correction for
 * the choice. Larger sizes have latent experts: a matrix shortens their input, another one lengthens their output. The
 * file has feed_forward_length 0 for layers without a feed-forward, and head_count_kv 0 for layers without attention.
 * After "Nemotron-H" (arXiv 2504.03624).
 *
 * "falcon-h1": each layer has a Mamba-2 mixer and attention, which read the same norm and whose outputs are added. The
 * converter folds all multipliers into the weights. After "Falcon-H1" (arXiv 2507.22448).
 *
 * "mamba2": each layer is a Mamba-2 mixer. Files have attention.head_count 0 and feed_forward_length 0. The norm of the
 * mixer's output is over the heads of one key head, as in the models' own code and llama.cpp; transformers takes all
 * heads together, which differs for several key heads (Codestral Mamba).
 *
 * "mamba": each layer is a Mamba mixer; Mamba 1 and Falcon Mamba. With ssm.dt_b_c_rms, time steps, B and C have norms
 * without weights. Their epsilon is not in the file: it is that of transformers' configuration; llama.cpp takes that of
 * the other norms. After "Mamba" (arXiv 2312.00752).
 *
 * "jamba": each layer has a Mamba mixer, or attention without RoPE if its head_count_kv is not 0; then a feed-forward,
 * or experts if the file has a router for it. The weights of the chosen experts are not divided by their sum. After
 * "Jamba" (arXiv 2403.19887).
 *
 * transformers clamps time steps of prompts at time_step_min (Nemotron-H), and those of single tokens not. Here, as in
 * llama.cpp, they are never clamped. */
#include <stdio.h>

#include "model/dense.h"

#define FALCON_EPS 1e-6f /* mixer_rms_eps of Falcon Mamba */

static void give_mixers(pi__model *m, pi__dense *d)
{
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++)
        if (!d->single || (d->layers[i].no_attn && d->layers[i].no_ffn)) d->layers[i].ssd = d->ssd;
}

static void read_experts(pi__model *m, pi__dense *d)
{
    pi__experts *e = &d->experts;
    pi__experts_read_router(m, e, 2, true);
    e->n_ff = pi__hp_u32_or(m, "expert_feed_forward_length", (uint32_t) d->n_ff, 1, PI__MAX_EMBD);
    e->n_in = pi__hp_u32_or(m, "moe_latent_size", 0, 0, PI__MAX_EMBD);
    e->ungated = true;
    d->n_ff_shared = pi__hp_u32_or(m, "expert_shared_feed_forward_length", 0, 0, PI__MAX_EMBD);
}

static void nemotron(pi__model *m)
{
    const char *rms = "attention.layer_norm_rms_epsilon";
    pi__dense *d = pi__dense_read_hybrid(m, pi__has_key(m, rms) ? rms : "attention.layer_norm_epsilon");
    pi__ssd_read(m, &d->ssd, d->attn.eps);
    d->single = d->ungated = true;
    d->kind = PI__ACT_RELU2;
    d->act = PI__IN_RELU2;
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, 1);
    if (d->n_next >= m->n_layer) d->n_next = 0;
    d->n_rot = 0;
    for (int32_t i = 0; i < m->n_layer && d->layers; i++) d->layers[i].attn.rot = NULL;
    for (int32_t i = 0; i < m->n_layer - d->n_next && pi__model_ok(m); i++)
        if (!d->layers[i].no_attn && !d->layers[i].no_ffn)
            pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s: layer %d has attention (attention.head_count_kv) and a "
                             "feed-forward (feed_forward_length), expected one of them", m->arch->name, i);
    if (d->experts.n_expert) read_experts(m, d);
    give_mixers(m, d);
    pi__dense_declare(m, d);
}

static void falcon_h1(pi__model *m)
{
    pi__dense *d = pi__dense_read_hybrid(m, "attention.layer_norm_rms_epsilon");
    pi__ssd_read(m, &d->ssd, d->attn.eps);
    d->ssd.norm_optional = true;
    give_mixers(m, d);
    pi__dense_declare(m, d);
}

/* Layers are mixers only. */
static pi__dense *read_mixers(pi__model *m)
{
    pi__dense *d = pi__dense_read_hybrid(m, "attention.layer_norm_rms_epsilon");
    d->single = true;
    if (d->attn.n_head_kv || d->n_ff)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.attention.head_count is %d and feed_forward_length %d, "
                         "expected 0: the architecture has Mamba layers only", m->arch->name, d->attn.n_head, d->n_ff);
    return d;
}

static void mamba2(pi__model *m)
{
    pi__dense *d = read_mixers(m);
    pi__ssd_read(m, &d->ssd, d->attn.eps);
    give_mixers(m, d);
    pi__dense_declare(m, d);
}

static void mamba(pi__model *m)
{
    pi__dense *d = read_mixers(m);
    char key[64];
    snprintf(key, sizeof key, "%s.ssm.dt_b_c_rms", m->arch->name);
    pi__mamba_read(m, &d->mamba);
    if (pi__model_ok(m)) pi__gguf_get_bool(m->g, key, &d->mamba.plain_norms, false, &m->error);
    d->mamba.norm_eps = FALCON_EPS;
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) d->layers[i].mamba = d->mamba;
    pi__dense_declare(m, d);
}

static void jamba(pi__model *m)
{
    bool *attends = pi__model_calloc(m, (size_t) m->n_layer, sizeof *attends, "the layers");
    pi__dense *d = pi__dense_read_mixed(m, attends);
    pi__mamba_read(m, &d->mamba);
    d->mamba.norms = true;
    d->mamba.norm_eps = d->attn.eps;
    d->n_rot = 0;
    d->some_routed = true;
    if (d->experts.n_expert) pi__experts_read_router(m, &d->experts, 1, false);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) {
        d->layers[i].attn.rot = NULL;
        d->layers[i].no_attn = !attends[i];
        if (!attends[i]) d->layers[i].mamba = d->mamba;
    }
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_nemotron_h = {.name = "nemotron_h", .declare = nemotron, PI__DENSE_ARCH};
const pi__arch pi__arch_nemotron_h_moe = {.name = "nemotron_h_moe", .declare = nemotron, PI__DENSE_ARCH};
const pi__arch pi__arch_falcon_h1 = {.name = "falcon-h1", .declare = falcon_h1, PI__DENSE_ARCH};
const pi__arch pi__arch_mamba2 = {.name = "mamba2", .declare = mamba2, PI__DENSE_ARCH};
const pi__arch pi__arch_mamba = {.name = "mamba", .declare = mamba, PI__DENSE_ARCH};
const pi__arch pi__arch_jamba = {.name = "jamba", .declare = jamba, PI__DENSE_ARCH};
