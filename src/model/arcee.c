/* Arcee AFM (GGUF architecture "arcee"), Apertus ("apertus"), StarCoder 2 ("starcoder2"), Nemotron 4 and Minitron
 * ("nemotron"), Jais 2 ("jais2"): dense transformers with a feed-forward of two matrices, without a gate.
 *
 * Arcee's activation is the squared ReLU; its files have interleaved RoPE pairs. Apertus has norms on query and key
 * heads; its activation is xIELU (arXiv 2411.13010), with parameters per layer. StarCoder 2 has LayerNorms, biases
 * everywhere, and GELU in its tanh form. Nemotron has LayerNorms, optional biases and the squared ReLU, and rotates
 * half of each head; the file's norm weights include the +1. Jais 2 has LayerNorms, biases everywhere and the squared
 * ReLU. After the models' configurations, "Apertus" (arXiv 2509.14233), "StarCoder 2 and The Stack v2" (2402.19173)
 * and "Nemotron-4 15B" (2402.16819). */
#include <math.h>

#include "model/dense.h"

static void arcee(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->interleaved_rope = true;
    d->ungated = true;
    d->kind = PI__ACT_RELU2;
    pi__dense_declare(m, d);
}

static void starcoder2(pi__model *m)
{
    pi__dense *d = pi__dense_read_layered(m);
    d->attn.flags = PI__ATTN_BIAS | PI__ATTN_OUT_BIAS;
    d->ungated = true;
    d->kind = PI__ACT_GELU_TANH;
    pi__dense_declare(m, d);
}

static void nemotron(pi__model *m)
{
    pi__dense *d = pi__dense_read_layered(m);
    if (pi__has_tensor(m, "attn_output.bias", 0)) d->attn.flags = PI__ATTN_OUT_BIAS;
    d->ungated = true;
    d->kind = PI__ACT_RELU2;
    pi__dense_declare(m, d);
}

static float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

/* Reads one parameter of xIELU per layer into the layers' mlp.p[i]. The key has one number for each layer, or one for
 * all. */
static void read_each(pi__model *m, pi__dense *d, const char *key, int i)
{
    float all = 0;
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    const bool array = kv && kv->type == PI__GGUF_ARR;
    if (!kv) pi__model_refuse(m, PI_EFORMAT, "metadata %s is missing", key);
    if (array && (kv->arr_type != PI__GGUF_F32 || kv->n < (uint64_t) m->n_layer))
        pi__model_refuse(m, PI_EFORMAT, "metadata %s needs an F32 number for each of %d layers", key, m->n_layer);
    if (!array && pi__model_ok(m)) pi__gguf_get_f32(m->g, key, &all, 0, &m->error);
    for (int32_t k = 0; k < m->n_layer && pi__model_ok(m); k++) {
        float *p = &d->layers[k].mlp.p[i];
        *p = array ? (float) pi__gguf_elem_f64(kv, (uint64_t) k) : all;
        if (!(fabsf(*p) <= 1e6f))
            pi__model_refuse(m, PI_EFORMAT, "metadata %s of layer %d is %g, expected -1e6 to 1e6", key, k, (double) *p);
    }
}

static void apertus(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_QK_NORM;
    if (pi__has_tensor(m, "attn_output.bias", 0)) d->attn.flags |= PI__ATTN_OUT_BIAS;
    d->ungated = true;
    d->kind = PI__ACT_XIELU;
    read_each(m, d, "xielu.alpha_p", 0);
    read_each(m, d, "xielu.alpha_n", 1);
    read_each(m, d, "xielu.beta", 2);
    read_each(m, d, "xielu.eps", 3);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) {
        float *p = d->layers[i].mlp.p; /* the file has the factors before softplus */
        p[0] = softplus(p[0]);
        p[1] = p[2] + softplus(p[1]);
    }
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_arcee = {.name = "arcee", .declare = arcee, PI__DENSE_ARCH};
const pi__arch pi__arch_apertus = {.name = "apertus", .declare = apertus, PI__DENSE_ARCH};
const pi__arch pi__arch_jais2 = {.name = "jais2", .declare = nemotron, PI__DENSE_ARCH};
const pi__arch pi__arch_nemotron = {.name = "nemotron", .declare = nemotron, PI__DENSE_ARCH};
const pi__arch pi__arch_starcoder2 = {.name = "starcoder2", .declare = starcoder2, PI__DENSE_ARCH};
