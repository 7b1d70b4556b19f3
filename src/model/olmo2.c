/* OLMo 2 and 3 (GGUF architecture "olmo2") and OLMoE ("olmoe"): dense transformers.
 *
 * One norm spans all query heads, another all key heads. In OLMo 2 and 3 the norms follow the blocks; there are none
 * before them. In OLMo 3, three of four layers have a sliding window. YaRN, if the file has it, applies to the other
 * layers only.
 *
 * OLMoE has norms before blocks and experts in all layers. The softmax router's weights are not divided by their sum.
 *
 * After "OLMoE" (arXiv 2409.02060), "2 OLMo 2 Furious" (2501.00656), the "Olmo 3" report and the models'
 * configurations. */
#include "model/dense.h"

/* Reads the rotation of the layers with full attention. yarn_attn_factor is the whole factor of cosines and sines, so
 * it replaces YaRN's. */
static void read_rotation(pi__model *m, pi__dense *d)
{
    const char *key = "rope.scaling.yarn_attn_factor";
    pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 1e4f, true);
    d->rot.mscale = pi__hp_f32_or(m, key, d->rot.mscale);
    if (pi__model_ok(m) && !(d->rot.mscale > 0))
        pi__model_refuse(m, PI_EFORMAT, "metadata olmo2.%s must be positive", key);
}

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_WIDE_NORM;
    d->post_norms = d->no_pre_norms = true;
    read_rotation(m, d);
    if (d->window) {
        const float base = pi__hp_f32_or(m, "rope.freq_base", 1e4f);
        pi__rotation_declare(m, &d->rot_local, d->n_rot, "rope.freq_base_swa", base, false);
        pi__dense_windows(m, d, 4, &d->rot_local, &d->rot);
    }
    pi__dense_declare(m, d);
}

static void olmoe(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_WIDE_NORM;
    pi__experts_read(m, &d->experts, true);
    pi__experts_read_router(m, &d->experts, 1, false);
    pi__dense_declare(m, d);
}

static const char *olmoe_size(const pi__model *m) { return m->n_layer == 16 ? "7B-A1B" : NULL; }

static const char *size_name(const pi__model *m)
{
    switch (m->n_layer) {
    case 16: return "1B";
    case 32: return "7B";
    case 40: return "13B";
    case 64: return "32B";
    default: return NULL;
    }
}

const pi__arch pi__arch_olmoe = {.name = "olmoe", .declare = olmoe, .size_name = olmoe_size, PI__DENSE_ARCH};
const pi__arch pi__arch_olmo2 = {.name = "olmo2", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
