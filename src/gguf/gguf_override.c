/* Metadata entries that a user sets by a rule KEY=TYPE:VALUE, in place of the file's entry or in addition to it.
 *
 * Applied after opening, before other code uses the reader. Afterwards overrides look like entries of the file,
 * except in error texts. Memory: one block per entry, freed with the reader. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf_priv.h"

/* Parses the value of a rule. Returns false if it does not match the type. */
static bool parse(const char *type, size_t n_type, const char *value, pi__gguf_override *o)
{
    static const struct { const char *name; int32_t type; } types[] = {
        {"int", PI__GGUF_I64}, {"float", PI__GGUF_F64}, {"bool", PI__GGUF_BOOL}, {"str", PI__GGUF_STR}};
    char *end = NULL;
    size_t i = 0;
    while (i < 4 && (strlen(types[i].name) != n_type || memcmp(types[i].name, type, n_type))) i++;
    if (i == 4 || (!*value && i != 3)) return false;
    o->type = types[i].type;
    errno = 0;
    switch (o->type) {
    case PI__GGUF_I64: o->i = strtoll(value, &end, 10); return !*end && !errno;
    case PI__GGUF_F64: o->f = strtod(value, &end); return !*end && isfinite(o->f);
    case PI__GGUF_BOOL:
        o->b = !strcmp(value, "true");
        return o->b || !strcmp(value, "false");
    default: o->s = (pi__str) {value, strlen(value)}; return true;
    }
}

/* Returns the entry of that key, added at the end if it is new; NULL = out of memory. */
static pi__gguf_kv *entry_of(pi__gguf *g, pi__str key)
{
    pi__gguf_meta *m = &g->meta;
    int64_t i = pi__strmap_find(&m->index, key.p, key.n);
    if (i >= 0) return &m->kv[i];
    pi__gguf_kv *kv = pi__realloc_array(m->kv, m->n + 1, sizeof *kv);
    if (!kv) return NULL;
    m->kv = kv;
    kv[m->n] = (pi__gguf_kv) {.key = key};
    pi__strmap index;
    size_t dup;
    m->index.items = (const char *) kv; /* the entries may have moved */
    if (pi__strmap_build(&index, kv, sizeof *kv, m->n + 1, &dup)) {
        pi__strmap_free(&index);
        return NULL;
    }
    pi__strmap_free(&m->index);
    m->index = index;
    return &kv[m->n++];
}

int pi__gguf_override_kv(pi__gguf *g, const char *rule, pi_error *err)
{
    const char *eq = strchr(rule, '='), *colon = eq ? strchr(eq, ':') : NULL;
    size_t n = strlen(rule);
    pi__gguf_override *o = pi__calloc(1, sizeof *o + n + 1);
    if (!o) return pi__fail_mem(err, "override-kv");
    memcpy(o->text, rule, n + 1);
    const pi__str key = {o->text, eq ? (size_t) (eq - rule) : 0};
    if (!colon || !key.n || !parse(eq + 1, (size_t) (colon - eq - 1), o->text + (colon + 1 - rule), o)) {
        pi__free(o);
        return pi__fail(err, PI_EINVAL,
                        "override-kv '%.100s': expected KEY=int:N, KEY=float:X, KEY=bool:true (or false) or "
                        "KEY=str:TEXT",
                        rule);
    }
    pi__str *strs = o->type == PI__GGUF_STR ? pi__calloc(1, sizeof *strs) : NULL;
    pi__gguf_kv *kv = o->type == PI__GGUF_STR && !strs ? NULL : entry_of(g, key);
    if (!kv) {
        pi__free(strs);
        pi__free(o);
        return pi__fail_mem(err, "override-kv");
    }
    if (strs) *strs = o->s;
    pi__free(kv->strs);
    *kv = (pi__gguf_kv) {.key = kv->key, .type = o->type, .arr_type = o->type, .n = 1, .data = &o->i, .strs = strs};
    o->next = g->overrides;
    g->overrides = o;
    return PI_OK;
}

void pi__gguf_free_overrides(pi__gguf *g)
{
    while (g->overrides) {
        pi__gguf_override *o = g->overrides;
        g->overrides = o->next;
        pi__free(o);
    }
}
