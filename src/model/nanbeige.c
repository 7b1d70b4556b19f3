/* Nanbeige 4.2 (GGUF architecture "nanbeige"): Llama with layers that run num_loops times, one run after another. Each
 * run has keys and values of its own. The output norm is applied between two runs, too, unless skip_loop_final_norm is
 * true. After llama.cpp's converter and the model's configuration. */
#include <stdio.h>

#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    bool skip = false;
    char key[64];
    snprintf(key, sizeof key, "%s.skip_loop_final_norm", m->arch->name);
    if (pi__model_ok(m)) pi__gguf_get_bool(m->g, key, &skip, false, &m->error);
    d->interleaved_rope = true;
    d->loop_norm = !skip;
    d->n_loops = pi__hp_u32_or(m, "num_loops", 1, 1, PI__MAX_LAYERS);
    if (pi__model_ok(m) && d->n_loops * m->n_layer > PI__MAX_LAYERS)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "metadata %s.num_loops is %d: %d runs of %d layers are more than %d layers", m->arch->name,
                         d->n_loops, d->n_loops, m->n_layer, PI__MAX_LAYERS);
    if (d->n_loops > 1 && m->be->n_stages > 1)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.num_loops is %d: layers that run several times cannot be "
                         "divided between devices; use one device or split-mode tensor", m->arch->name, d->n_loops);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_embd == 2560 ? "3B" : NULL; }

/* Without `captures`: block drafters name layers, which run several times here. */
const pi__arch pi__arch_nanbeige = {.name = "nanbeige", .declare = declare, .size_name = size_name,
                                    .size = sizeof(pi__dense), .loaded = pi__dense_loaded, .layout = pi__dense_layout,
                                    .forward = pi__dense_forward, .logits = pi__dense_logits,
                                    .hidden = pi__dense_hidden, .adapters = true};
