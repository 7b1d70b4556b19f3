/* Seed-OSS (GGUF architecture "seed_oss") and openPangu-Embedded ("pangu-embedded"): dense transformers.
 *
 * Like Qwen 2, with a head size of their own. In Seed-OSS the feed-forward's norm is named post_attention_norm. In
 * openPangu the output projection has a bias, too. After the models' cards and configurations. */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->norm_post_attention_name = true;
    pi__dense_declare(m, d);
}

static void pangu(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_OUT_BIAS;
    pi__dense_declare(m, d);
}

static const char *pangu_size(const pi__model *m) { return m->n_layer == 26 ? "1B" : m->n_layer == 34 ? "7B" : NULL; }

static const char *size_name(const pi__model *m) { return m->n_layer == 64 ? "36B" : NULL; }

const pi__arch pi__arch_seed_oss = {.name = "seed_oss", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
const pi__arch pi__arch_pangu_embedded = {.name = "pangu-embedded", .declare = pangu, .size_name = pangu_size,
                                          PI__DENSE_ARCH};
