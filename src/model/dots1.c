/* dots.llm1, Ling 2 and Hunyuan 3 (GGUF architectures "dots1", "bailingmoe2", "hy_v3"): dense transformers. Their first
 * layers have a feed-forward, the others routed experts and a shared expert.
 *
 * Query and key heads have norms. The router uses sigmoid gates. A correction bias is added for expert selection only,
 * and the weights of the selected experts are divided by their sum. Ling 2 rotates half of each head, stacks queries,
 * keys and values, and selects groups of experts first. Hunyuan 3's files have the size of all shared experts together.
 * Its files may have a draft head ("nextn", see nextn.h), whose block has the layers' structure. Draft heads of Ling 2
 * are not loaded. After "dots.llm1" (arXiv 2506.05767) and the models' configurations. */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_QK_NORM;
    pi__dense_read_experts(m, d);
    const int32_t each =
        pi__hp_u32_or(m, "expert_shared_feed_forward_length", (uint32_t) d->experts.n_ff, 1, PI__MAX_EMBD);
    d->n_ff_shared = each * pi__hp_u32_or(m, "expert_shared_count", m->arch == &pi__arch_hy_v3, 0, 64);
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m)
{
    switch (m->n_trunk) {
    case 20: return "16B-A1B";
    case 32: return "100B-A6B";
    case 48: return "30B-A3B";
    case 62: return "142B-A14B";
    default: return NULL;
    }
}

const pi__arch pi__arch_dots1 = {.name = "dots1", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
const pi__arch pi__arch_bailingmoe2 = {
    .name = "bailingmoe2", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
const pi__arch pi__arch_hy_v3 = {.name = "hy_v3", .declare = declare, .size_name = size_name, PI__DENSE_ARCH,
                                 .draft = pi__dense_draft, .draft_has_cache = true};
