/* Command R, Aya 23 and Aya Expanse 32B (GGUF architecture "command-r"), Command R7B, Command A and Aya Expanse of 2025
 * ("cohere2"): dense transformers with parallel blocks.
 *
 *     x = x + attention(norm(x)) + feed-forward(norm(x))       logits = logit_scale * output(norm(x))
 *
 * Norms are LayerNorms without bias. The file has interleaved RoPE pairs. In cohere2, three of four layers have a
 * sliding window and RoPE, the others neither. Command R+ has LayerNorms on query and key heads, which are not
 * supported. After the models' cards and configurations. */
#include "model/dense.h"

static pi__dense *read(pi__model *m)
{
    pi__dense *d = pi__dense_read_layered(m);
    d->parallel = true;
    d->interleaved_rope = true;
    d->head.logit_scale = pi__hp_f32_or(m, "logit_scale", 0);
    if (pi__has_tensor(m, "attn_q_norm.weight", 0))
        pi__model_refuse(m, PI_EUNSUPPORTED, "tensor blk.0.attn_q_norm.weight: a %s model with norms of queries "
                         "(Command R+) is not supported", m->arch->name);
    return d;
}

static void command_r(pi__model *m) { pi__dense_declare(m, read(m)); }

static void cohere2(pi__model *m)
{
    pi__dense *d = read(m);
    pi__hp_u32(m, "attention.sliding_window", 1, 1 << 28); /* required */
    pi__dense_windows(m, d, 4, &d->rot, NULL);
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_command_r = {.name = "command-r", .declare = command_r, PI__DENSE_ARCH};
const pi__arch pi__arch_cohere2 = {.name = "cohere2", .declare = cohere2, PI__DENSE_ARCH};
