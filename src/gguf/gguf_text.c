/* Metadata as text for other programs, JSON or plain, and a copy of the metadata that outlives the file.
 *
 * Text is written to a pi__sink, which also counts the bytes that do not fit, so that a caller can query the
 * length first. Numbers do not depend on the locale. Memory: a copy is one allocation. Its strings have the file's
 * layout: length and bytes, concatenated. Immutable: any thread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "gguf/gguf_priv.h"

void pi__sink_add(pi__sink *t, const char *s, size_t n)
{
    if (t->n < t->cap) memcpy(t->p + t->n, s, n < t->cap - t->n ? n : t->cap - t->n);
    t->n += n;
}

void pi__sink_puts(pi__sink *t, const char *s) { pi__sink_add(t, s, strlen(s)); }

void pi__sink_json(pi__sink *t, pi__str s)
{
    pi__sink_add(t, "\"", 1);
    for (size_t i = 0; i < s.n;) {
        const unsigned char c = (unsigned char) s.p[i];
        uint32_t cp;
        char escape[8];
        const size_t len = pi__utf8_char(s.p + i, s.n - i, &cp);
        if (!len) pi__sink_add(t, "\xEF\xBF\xBD", 3); /* U+FFFD */
        else if (c == '"' || c == '\\') pi__sink_add(t, (char[]) {'\\', (char) c}, 2);
        else if (c < 0x20) pi__sink_add(t, escape, (size_t) snprintf(escape, sizeof escape, "\\u%04x", c));
        else pi__sink_add(t, s.p + i, len);
        i += len ? len : 1;
    }
    pi__sink_add(t, "\"", 1);
}

/* Writes the shortest decimal that reads back as v. JSON has no NaN or infinity: they become null. */
static void add_float(pi__sink *t, double v, bool single, bool json)
{
    char buf[40];
    if (json && !isfinite(v)) {
        pi__sink_puts(t, "null");
        return;
    }
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (single ? strtof(buf, NULL) == (float) v : strtod(buf, NULL) == v) break;
    }
    char *comma = strchr(buf, ','); /* decimal point of a locale */
    if (comma) *comma = '.';
    pi__sink_puts(t, buf);
    if (json && !strpbrk(buf, ".e")) pi__sink_puts(t, ".0"); /* marks the number as a float */
}

static void add_number(pi__sink *t, const pi__gguf_kv *kv, uint64_t i, bool json)
{
    char buf[32];
    switch (kv->arr_type) {
    case PI__GGUF_BOOL: pi__sink_puts(t, pi__gguf_elem_u64(kv, i) ? "true" : "false"); return;
    case PI__GGUF_F32: add_float(t, pi__gguf_elem_f64(kv, i), true, json); return;
    case PI__GGUF_F64: add_float(t, pi__gguf_elem_f64(kv, i), false, json); return;
    case PI__GGUF_I8: case PI__GGUF_I16: case PI__GGUF_I32: case PI__GGUF_I64:
        snprintf(buf, sizeof buf, "%lld", (long long) pi__gguf_elem_i64(kv, i));
        break;
    default: snprintf(buf, sizeof buf, "%llu", (unsigned long long) pi__gguf_elem_u64(kv, i));
    }
    pi__sink_puts(t, buf);
}

/* Returns the string at *raw, and moves *raw to its end. */
static pi__str next_str(const char **raw)
{
    uint64_t n;
    memcpy(&n, *raw, sizeof n);
    const pi__str s = {*raw + sizeof n, (size_t) n};
    *raw = s.p + s.n;
    return s;
}

void pi__gguf_value_text(pi__sink *t, const pi__gguf_kv *kv, uint64_t most, bool json)
{
    const bool array = kv->type == PI__GGUF_ARR, strings = kv->arr_type == PI__GGUF_STR;
    const char *raw = kv->data;
    if (array) pi__sink_add(t, "[", 1);
    for (uint64_t i = 0; i < kv->n && i < most; i++) {
        const pi__str s = !strings ? (pi__str) {0} : kv->strs ? kv->strs[i] : next_str(&raw);
        if (i) pi__sink_add(t, ", ", 2);
        if (!strings) add_number(t, kv, i, json || array);
        else if (json || array) pi__sink_json(t, s);
        else pi__sink_add(t, s.p, s.n);
    }
    if (array) pi__sink_add(t, "]", 1);
}

/* ----------------------------------------------------------------------------------------------------------- a copy */

/* Returns the bytes of the value in a copy. */
static size_t value_bytes(const pi__gguf_kv *kv)
{
    static const uint8_t size[PI__GGUF_N_TYPES] = {
        [PI__GGUF_U8] = 1, [PI__GGUF_I8] = 1, [PI__GGUF_BOOL] = 1, [PI__GGUF_U16] = 2, [PI__GGUF_I16] = 2,
        [PI__GGUF_U32] = 4, [PI__GGUF_I32] = 4, [PI__GGUF_F32] = 4, [PI__GGUF_U64] = 8, [PI__GGUF_I64] = 8,
        [PI__GGUF_F64] = 8,
    };
    if (kv->arr_type != PI__GGUF_STR) return (size_t) kv->n * size[kv->arr_type];
    size_t n = 0;
    for (uint64_t i = 0; i < kv->n; i++) n += sizeof(uint64_t) + kv->strs[i].n;
    return n;
}

static void put(char **p, const void *from, size_t n)
{
    if (n) memcpy(*p, from, n);
    *p += n;
}

static void put_value(char **p, const pi__gguf_kv *kv)
{
    if (kv->arr_type != PI__GGUF_STR) put(p, kv->data, value_bytes(kv));
    for (uint64_t i = 0; kv->arr_type == PI__GGUF_STR && i < kv->n; i++) {
        const uint64_t n = kv->strs[i].n;
        put(p, &n, sizeof n);
        put(p, kv->strs[i].p, kv->strs[i].n);
    }
}

pi__gguf_copy *pi__gguf_copy_of(const pi__gguf *g)
{
    const size_t n_kv = pi__gguf_n_kv(g);
    size_t size = sizeof(pi__gguf_copy) + n_kv * sizeof(pi__gguf_kv);
    for (size_t i = 0; i < n_kv; i++) size += pi__gguf_kv_at(g, i)->key.n + value_bytes(pi__gguf_kv_at(g, i));
    pi__gguf_copy *c = pi__malloc(size);
    if (!c) return NULL;
    c->n = n_kv;
    c->kv = (pi__gguf_kv *) (void *) (c + 1);
    char *p = (char *) &c->kv[n_kv];
    for (size_t i = 0; i < n_kv; i++) {
        const pi__gguf_kv *kv = pi__gguf_kv_at(g, i);
        c->kv[i] = *kv;
        c->kv[i].strs = NULL;
        c->kv[i].key.p = p;
        put(&p, kv->key.p, kv->key.n);
        c->kv[i].data = p;
        put_value(&p, kv);
    }
    return c;
}

const pi__gguf_kv *pi__gguf_copy_find(const pi__gguf_copy *c, const char *key)
{
    const size_t n = strlen(key);
    for (size_t i = 0; i < c->n; i++)
        if (c->kv[i].key.n == n && !memcmp(c->kv[i].key.p, key, n)) return &c->kv[i];
    return NULL;
}
