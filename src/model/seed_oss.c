/* Seed-OSS (GGUF architecture "seed_oss"): a dense transformer.
 *
 * Like Qwen 2, with a head size of its own. The feed-forward's norm is named post_attention_norm. After the model's
 * card and configuration. */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->norm_post_attention_name = true;
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_layer == 64 ? "36B" : NULL; }

const pi__arch pi__arch_seed_oss = {.name = "seed_oss", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
