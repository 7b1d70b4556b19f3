/* Trinity (GGUF architecture "afmoe"), Laguna ("laguna") and Muse Glimmer ("muse-glimmer"): dense transformers with
 * gates of attention's output. The first layers of Trinity and Laguna have a feed-forward, the others routed experts
 * and a shared expert. Muse Glimmer has no experts.
 *
 * Query and key heads have norms. Three of four layers have a sliding window. The router uses sigmoid gates. A
 * correction bias is added for expert selection only, and the weights of the selected experts are divided by their sum.
 *
 *     Trinity   sigmoid gates, one per value; norms before and after blocks; layers with full attention have no RoPE;
 *               embeddings are multiplied by sqrt(E)
 *     Laguna    softplus gates, one per head or per value; the layers with a window have other numbers of heads,
 *               rotated values and a RoPE base of their own; YaRN applies to full attention only
 *     Muse      as Trinity; an RMSNorm of the embeddings without weights; interleaved pairs; an epsilon of its own for
 *               norms after blocks, which is not in the file. The norms of queries and of keys have equal weights in
 *               all values of a head, so they are not reordered with the pairs
 *
 * After the models' cards and configurations. */
#include <math.h>

#include "model/dense.h"

enum { SIGMOID = 2 /* expert_gating_func */ };
#define MUSE_POST_EPS 1e-8f

static void read_routing(pi__model *m, pi__dense *d)
{
    pi__experts *e = &d->experts;
    pi__experts_read(m, e, true);
    pi__experts_read_router(m, e, SIGMOID, true);
    e->n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    d->n_lead = pi__hp_u32_or(m, "leading_dense_block_count", 0, 0, (uint32_t) m->n_layer);
}

static void trinity(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    read_routing(m, d);
    d->attn.flags = PI__ATTN_QK_NORM | PI__ATTN_GATES;
    d->post_norms = true;
    d->head.embd_scale = sqrtf((float) m->n_embd);
    d->n_ff_shared = d->experts.n_ff * pi__hp_u32_or(m, "expert_shared_count", 0, 0, 64);
    pi__hp_u32(m, "attention.sliding_window", 1, 1 << 28); /* required */
    pi__dense_windows(m, d, 4, &d->rot, NULL);
    pi__dense_declare(m, d);
}

/* Declares the rotations. yarn_attn_factor is the whole factor of cosines and sines, so it replaces YaRN's. */
static void read_rotations(pi__model *m, pi__dense *d)
{
    const int32_t D = d->attn.head_dim;
    const float base = pi__hp_f32_or(m, "rope.freq_base", 1e4f);
    const char *key = "rope.scaling.yarn_attn_factor";
    pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 1e4f, true);
    d->rot.mscale = pi__hp_f32_or(m, key, d->rot.mscale);
    if (pi__model_ok(m) && !(d->rot.mscale > 0))
        pi__model_refuse(m, PI_EFORMAT, "metadata laguna.%s must be positive", key);
    if (!d->window) return;
    const int32_t n_rot = pi__hp_u32_or(m, "rope.dimension_count_swa", (uint32_t) D, 2, (uint32_t) D);
    pi__rotation_declare(m, &d->rot_local, n_rot, "rope.freq_base_swa", base, false);
    pi__dense_windows(m, d, 4, &d->rot_local, &d->rot);
}

/* Returns the kind of gates, by the rows of the first layer's matrix. */
static int32_t gates_of(pi__model *m, const pi__dense *d)
{
    const pi__tensor *t = pi__gguf_find_tensor(m->g, "blk.0.attn_gate.weight");
    return t && t->ne[1] > d->attn.n_head ? PI__ATTN_GATES : PI__ATTN_HEAD_GATES;
}

static void laguna(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 128);
    read_routing(m, d);
    d->attn.flags = PI__ATTN_QK_NORM | PI__ATTN_SOFTPLUS | gates_of(m, d);
    d->n_ff_shared =
        pi__hp_u32_or(m, "expert_shared_feed_forward_length", (uint32_t) d->experts.n_ff, 0, PI__MAX_EMBD);
    d->full_first = true;
    read_rotations(m, d);
    pi__dense_declare(m, d);
}

static void muse(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_QK_NORM | PI__ATTN_GATES;
    d->attn.post_eps = MUSE_POST_EPS;
    d->post_norms = d->embd_rms = d->interleaved_rope = true;
    d->head.logit_scale = pi__hp_f32(m, "logit_scale");
    pi__hp_u32(m, "attention.sliding_window", 1, 1 << 28); /* required */
    pi__dense_windows(m, d, 4, &d->rot, NULL);
    pi__dense_declare(m, d);
}

static const char *trinity_size(const pi__model *m)
{
    return m->n_layer == 56 ? "6B-A1B" : m->n_layer == 32 ? "26B-A3B" : NULL;
}

static const char *laguna_size(const pi__model *m)
{
    return m->n_layer == 40 ? "30B-A3B" : m->n_layer == 48 ? "118B-A8B" : m->n_layer == 70 ? "230B-A10B" : NULL;
}

static const char *muse_size(const pi__model *m) { return m->n_layer == 52 ? "30B" : NULL; }

const pi__arch pi__arch_afmoe = {.name = "afmoe", .declare = trinity, .size_name = trinity_size, PI__DENSE_ARCH};
const pi__arch pi__arch_laguna = {.name = "laguna", .declare = laguna, .size_name = laguna_size, PI__DENSE_ARCH};
const pi__arch pi__arch_muse_glimmer = {.name = "muse-glimmer", .declare = muse, .size_name = muse_size,
                                        PI__DENSE_ARCH};
