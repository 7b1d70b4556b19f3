/* Overrides the metadata of the model's file: by rules KEY=TYPE:VALUE, and by the options of the rotary embedding,
 * which become rules, too. Allocates nothing itself; used while an engine is opened. */
#include "engine/metadata.h"

#include <stdio.h>

typedef struct rules {
    pi__gguf *g;  /* the model's file */
    pi__str arch; /* architecture of the model; .p NULL = missing, refused later */
    pi_error *err;
    int rc;
} rules;

/* Overrides ARCH.rope.NAME with value. */
static void set_rule(rules *r, const char *name, const char *value)
{
    char rule[160];
    if (r->rc || !r->arch.p) return;
    snprintf(rule, sizeof rule, "%.*s.rope.%s=%s", r->arch.n < 64 ? (int) r->arch.n : 64, r->arch.p, name, value);
    r->rc = pi__gguf_override_kv(r->g, rule, r->err);
}

static void set_number(rules *r, const char *name, bool given, const char *type, double v)
{
    char text[48];
    snprintf(text, sizeof text, "%s:%.17g", type, v);
    if (given) set_rule(r, name, text);
}

/* Returns the value of ARCH.NAME, or def if the file has none. */
static uint32_t number_at(rules *r, const char *name, uint32_t def)
{
    char key[128];
    uint32_t v = def;
    snprintf(key, sizeof key, "%.*s.%s", r->arch.n < 64 ? (int) r->arch.n : 64, r->arch.p, name);
    if (!r->rc && r->arch.p) r->rc = pi__gguf_get_u32(r->g, key, &v, def, r->err);
    return v;
}

/* Raises the context length for YaRN: a model stretched by the factor `scale` has a context longer by that factor. */
static void longer_context(rules *r, const pi__rope_config *c)
{
    const uint32_t trained = number_at(r, "rope.scaling.original_context_length", number_at(r, "context_length", 0));
    const double longer = trained * c->scale;
    char rule[160];
    set_number(r, "scaling.original_context_length", trained > 0, "int", trained);
    if (r->rc || !trained) return;
    snprintf(rule, sizeof rule, "%.*s.context_length=int:%.0f", r->arch.n < 64 ? (int) r->arch.n : 64, r->arch.p,
             longer < 1 << 28 ? longer : 1 << 28);
    r->rc = pi__gguf_override_kv(r->g, rule, r->err);
}

static int set_rope(pi__gguf *g, const pi__rope_config *c, pi_error *err)
{
    static const char *const words[] = {"", "str:none", "str:linear", "str:yarn"};
    rules r = {.g = g, .err = err};
    r.rc = pi__gguf_get_str(g, "general.architecture", &r.arch, err);
    set_number(&r, "freq_base", c->base > 0, "float", c->base);
    if (c->scaling) set_rule(&r, "scaling.type", words[c->scaling]);
    set_number(&r, "scaling.original_context_length", c->orig_ctx > 0, "int", (double) c->orig_ctx);
    if (c->scale > 0 && c->scaling == PI__ROPE_YARN) longer_context(&r, c);
    set_number(&r, "scaling.factor", c->scale > 0, "float", c->scale);
    set_number(&r, "scaling.yarn_ext_factor", c->ext_factor.set, "float", c->ext_factor.value);
    set_number(&r, "scaling.attn_factor", c->attn_factor.set, "float", c->attn_factor.value);
    set_number(&r, "scaling.yarn_beta_slow", c->beta_slow.set, "float", c->beta_slow.value);
    set_number(&r, "scaling.yarn_beta_fast", c->beta_fast.set, "float", c->beta_fast.value);
    return r.rc;
}

int pi__override_metadata(pi__gguf *g, const pi__config *c, pi_error *err)
{
    int rc = PI_OK;
    for (size_t i = 0; i < c->n_override_kv && !rc; i++) rc = pi__gguf_override_kv(g, c->override_kv[i], err);
    return rc ? rc : set_rope(g, &c->rope, err);
}
