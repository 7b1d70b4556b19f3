/* Zones, lists, maps, and comparing values (see value.h).
 *
 * A map with few entries is searched linearly. Larger maps have a hash table of slots in addition to the entries, so a
 * hostile JSON object of a million keys takes linear time. */
#include "template/value.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* ----------------------------------------------------------------------------------------------------------- zones */

struct pi__zone_chunk {
    pi__zone_chunk *next; /* older */
    size_t size;          /* bytes of data after this header; with keeps_trust, the same number of flags follows */
};

enum { CHUNK_MIN = 4096, CHUNK_MAX = 1 << 20, ALIGN = 16, FEW = 12, TAIL_MIN = 64 };

void pi__zone_init(pi__zone *z, size_t limit) { *z = (pi__zone) {.limit = limit}; }

void pi__zone_free(pi__zone *z)
{
    while (z->chunk) {
        pi__zone_chunk *next = z->chunk->next;
        pi__free(z->chunk);
        z->chunk = next;
    }
    pi__work_give(z->work, z->used);
    *z = (pi__zone) {0};
}

int pi__zone_fail(const pi__zone *z, pi_error *err, const char *what)
{
    if (pi__work_code(z->work)) return pi__work_fail(z->work, err, what);
    if (z->code == PI_ETOOBIG) return pi__fail(err, PI_ETOOBIG, "%s: too large", what);
    return pi__fail_mem(err, what);
}

static size_t align_up(size_t n) { return (n + ALIGN - 1) & ~(size_t) (ALIGN - 1); }

static bool more_room(pi__zone *z, size_t n)
{
    size_t size = z->chunk ? z->chunk->size * 2 : CHUNK_MIN, max = z->used / 8;
    if (max < CHUNK_MAX) max = CHUNK_MAX; /* keeps the number of chunks small: trust is looked up in their list */
    if (size > max) size = align_up(max);
    if (size < n) size = n;
    if (size > z->limit - z->used) size = n; /* leaves the last part of the limit to requests that fit exactly */
    if (size > z->limit - z->used) {
        z->code = PI_ETOOBIG;
        return false;
    }
    if (!pi__work_take(z->work, size)) {
        z->code = z->work->code;
        return false;
    }
    pi__zone_chunk *c = pi__malloc(sizeof *c + size * (z->keeps_trust ? 2 : 1));
    if (!c) {
        pi__work_give(z->work, size);
        z->code = PI_ENOMEM;
        return false;
    }
    *c = (pi__zone_chunk) {z->chunk, size};
    if (z->keeps_trust) memset((char *) (c + 1) + size, 0, size);
    z->chunk = c;
    z->used += size;
    z->at = (char *) (c + 1);
    z->end = z->at + size;
    return true;
}

/* Takes n bytes, not zeroed; n must be a multiple of ALIGN. */
static char *take(pi__zone *z, size_t n)
{
    if (z->code) return NULL;
    if (n > SIZE_MAX / 4) {
        z->code = PI_ETOOBIG;
        return NULL;
    }
    if ((size_t) (z->end - z->at) < n && !more_room(z, n)) return NULL;
    char *p = z->at;
    z->at += n;
    return p;
}

void *pi__zone_take(pi__zone *z, size_t n)
{
    if (n > SIZE_MAX / 4) n = SIZE_MAX / 2; /* fails below */
    char *p = take(z, align_up(n ? n : 1));
    return p ? memset(p, 0, n) : NULL;
}

/* Returns the trust flags of the bytes at p; NULL if p is not in a chunk of z or z keeps no trust. */
static char *flags_at(const pi__zone *z, const char *p)
{
    for (pi__zone_chunk *c = z->keeps_trust ? z->chunk : NULL; c; c = c->next) {
        char *data = (char *) (c + 1);
        if ((uintptr_t) p - (uintptr_t) data < c->size) return data + c->size + (p - data);
    }
    return NULL;
}

static bool owns(const pi__zone *z, const char *p)
{
    for (const pi__zone_chunk *c = z ? z->chunk : NULL; c; c = c->next)
        if ((uintptr_t) p - (uintptr_t) (c + 1) < c->size) return true;
    return false;
}

void pi__zone_trust(const pi__zone *z, const char *p, size_t n, char *out)
{
    const char *flags = n ? flags_at(z, p) : NULL;
    if (flags) memcpy(out, flags, n);
    else if (n) memset(out, owns(z->trusted, p), n);
}

void pi__zone_set_trust(pi__zone *z, const char *p, size_t n, const char *flags)
{
    char *to = n ? flags_at(z, p) : NULL;
    if (to) memcpy(to, flags, n);
}

/* Copies s, with its trust, to `to`, which must be in z. */
static void copy(pi__zone *z, char *to, pi__str s)
{
    if (!s.n) return;
    memcpy(to, s.p, s.n);
    if (z->keeps_trust) pi__zone_trust(z, s.p, s.n, flags_at(z, to));
}

pi__str pi__zone_trusted_copy(pi__zone *z, pi__str s)
{
    pi__str out = pi__zone_concat(z, (pi__str) {"", 0}, s);
    char *flags = out.p ? flags_at(z, out.p) : NULL;
    if (flags) memset(flags, 1, out.n);
    return out;
}

pi__str pi__zone_concat(pi__zone *z, pi__str a, pi__str b)
{
    const pi__str failed = {NULL, 0};
    if (a.n && !b.n) return a;
    for (int i = 0; a.n && i < 4; i++) {
        if (z->tail[i].end != a.p + a.n || (size_t) (z->tail[i].cap - z->tail[i].end) < b.n) continue;
        copy(z, z->tail[i].end, b);
        z->tail[i].end += b.n;
        return (pi__str) {a.p, a.n + b.n};
    }
    size_t n = a.n + b.n, spare = a.n && n >= TAIL_MIN ? n / 2 : 0;
    if (n > SIZE_MAX / 8) {
        z->code = PI_ETOOBIG;
        return failed;
    }
    size_t size = align_up(n + spare + 1);
    char *p = take(z, size);
    if (!p) return failed;
    copy(z, p, a);
    copy(z, p + a.n, b);
    if (spare) {
        z->tail[z->n_tail % 4].end = p + n;
        z->tail[z->n_tail % 4].cap = p + size;
        z->n_tail++;
    }
    return (pi__str) {p, n};
}

/* ----------------------------------------------------------------------------------------------------------- lists */

/* Grows an array in z to at least n elements by copying n_used elements; the old array stays unchanged. False: z->code
 * is set. */
static bool grow(pi__zone *z, void *array, size_t n_used, size_t *cap, size_t n, size_t size)
{
    if (n <= *cap) return true;
    size_t want = *cap < 4 ? 4 : *cap * 2;
    if (want < n) want = n;
    void *old, *p = want > SIZE_MAX / 4 / size ? pi__zone_take(z, SIZE_MAX) : pi__zone_take(z, want * size);
    if (!p) return false;
    memcpy(&old, array, sizeof old);
    if (n_used) memcpy(p, old, n_used * size);
    memcpy(array, &p, sizeof p);
    *cap = want;
    return true;
}

bool pi__val_new_list(pi__zone *z, size_t cap, pi__val *out)
{
    pi__list *l = pi__zone_take(z, sizeof *l);
    if (!l || (cap && !grow(z, &l->v, 0, &l->cap, cap, sizeof *l->v))) return false;
    *out = (pi__val) {.type = PI__V_LIST, .list = l};
    return true;
}

bool pi__list_add(pi__zone *z, pi__list *l, pi__val v)
{
    if (!grow(z, &l->v, l->n, &l->cap, l->n + 1, sizeof *l->v)) return false;
    l->v[l->n++] = v;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ maps */

bool pi__val_new_map(pi__zone *z, pi__val *out)
{
    pi__dict *m = pi__zone_take(z, sizeof *m);
    if (!m) return false;
    *out = (pi__val) {.type = PI__V_MAP, .map = m};
    return true;
}

/* 1, 1.0 and true are the same key, as in Python. */
static bool key_equal(const pi__val *a, const pi__val *b)
{
    if (a->type == PI__V_STR || b->type == PI__V_STR) return a->type == b->type && pi__str_eq(a->s, b->s);
    if (!pi__val_is_number(a) || !pi__val_is_number(b)) return a->type == b->type;
    if (a->type != PI__V_FLOAT && b->type != PI__V_FLOAT)
        return (a->type == PI__V_INT ? a->i : a->b) == (b->type == PI__V_INT ? b->i : b->b);
    return pi__val_f64(a) == pi__val_f64(b);
}

static uint32_t key_hash(const pi__val *k)
{
    uint64_t h = 0x9E3779B97F4A7C15u;
    if (k->type == PI__V_STR) {
        for (size_t i = 0; i < k->s.n; i++) h = (h ^ (unsigned char) k->s.p[i]) * 0x100000001B3u;
    } else if (pi__val_is_number(k)) {
        double f = pi__val_f64(k) + 0.0;
        uint64_t w;
        memcpy(&w, &f, sizeof w);
        h = (h ^ w) * 0xD6E8FEB86659FD93u;
    }
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return (uint32_t) (h >> 32);
}

/* Returns the slot that holds key, or the free slot for it. */
static uint32_t *find_slot(const pi__dict *m, const pi__val *key)
{
    for (size_t i = key_hash(key);; i++) {
        uint32_t *s = &m->slot[i & (m->n_slot - 1)];
        if (!*s || key_equal(&m->e[*s - 1].key, key)) return s;
    }
}

/* Rebuilds the table of slots with at least four times the number of entries. */
static bool reindex(pi__zone *z, pi__dict *m)
{
    size_t n = 32;
    while (n < m->n * 4) n *= 2;
    uint32_t *slot = pi__zone_take(z, n * sizeof *slot);
    if (!slot) return false;
    m->slot = slot;
    m->n_slot = n;
    for (size_t i = 0; i < m->n; i++) *find_slot(m, &m->e[i].key) = (uint32_t) i + 1;
    return true;
}

pi__val *pi__dict_get(const pi__dict *m, pi__val key)
{
    if (m->n_slot) {
        uint32_t i = *find_slot(m, &key);
        return i ? &m->e[i - 1].value : NULL;
    }
    for (size_t i = 0; i < m->n; i++)
        if (key_equal(&m->e[i].key, &key)) return &m->e[i].value;
    return NULL;
}

pi__val *pi__dict_get_str(const pi__dict *m, const char *key) { return pi__dict_get(m, pi__val_str(pi__str_of(key))); }

bool pi__dict_set(pi__zone *z, pi__dict *m, pi__val key, pi__val value)
{
    pi__val *old = pi__dict_get(m, key);
    if (old) {
        *old = value;
        return true;
    }
    if (m->n >= UINT32_MAX / 8) {
        z->code = PI_ETOOBIG;
        return false;
    }
    if (!grow(z, &m->e, m->n, &m->cap, m->n + 1, sizeof *m->e)) return false;
    m->e[m->n++] = (pi__entry) {key, value};
    if (m->n <= FEW) return true;
    if (m->n > m->n_slot / 4 * 3) return reindex(z, m);
    *find_slot(m, &key) = (uint32_t) m->n;
    return true;
}

bool pi__dict_set_str(pi__zone *z, pi__dict *m, const char *key, pi__val value)
{
    return pi__dict_set(z, m, pi__val_str(pi__str_of(key)), value);
}

bool pi__dict_remove(pi__zone *z, pi__dict *m, pi__val key)
{
    pi__val *v = pi__dict_get(m, key);
    if (!v) return true;
    size_t i = 0;
    while (&m->e[i].value != v) i++;
    memmove(&m->e[i], &m->e[i + 1], (m->n - i - 1) * sizeof *m->e);
    m->n--;
    return !m->n_slot || reindex(z, m);
}

/* --------------------------------------------------------------------------------------------------------- compare */

bool pi__val_is_number(const pi__val *v)
{
    return v->type == PI__V_INT || v->type == PI__V_FLOAT || v->type == PI__V_BOOL;
}

double pi__val_f64(const pi__val *v)
{
    return v->type == PI__V_FLOAT ? v->f : v->type == PI__V_INT ? (double) v->i : v->b;
}

bool pi__val_truth(const pi__val *v)
{
    switch (v->type) {
    case PI__V_UNDEFINED:
    case PI__V_NONE: return false;
    case PI__V_BOOL: return v->b;
    case PI__V_INT: return v->i != 0;
    case PI__V_FLOAT: return v->f != 0;
    case PI__V_STR: return v->s.n > 0;
    case PI__V_LIST: return v->list->n > 0;
    case PI__V_MAP: return v->map->n > 0;
    default: return true;
    }
}

static bool map_equal(const pi__dict *a, const pi__dict *b, int depth, uint64_t *work)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const pi__val *v = pi__dict_get(b, a->e[i].key);
        if (!v || !pi__val_equal(&a->e[i].value, v, depth, work)) return false;
    }
    return true;
}

bool pi__val_equal(const pi__val *a, const pi__val *b, int depth, uint64_t *work)
{
    /* The budget is needed because work doubles with each level if lists share their elements. */
    uint64_t cost = 1 + (a->type == PI__V_STR ? a->s.n / 64 : 0);
    if (depth > PI__VAL_DEPTH || *work < cost) {
        *work = 0;
        return false;
    }
    *work -= cost;
    if (a->type != b->type || a->type < PI__V_STR)
        return a->type != PI__V_STR && b->type != PI__V_STR && key_equal(a, b);
    switch (a->type) {
    case PI__V_STR: return pi__str_eq(a->s, b->s);
    case PI__V_LIST:
        if (a->list->n != b->list->n || a->list->tuple != b->list->tuple) return false;
        for (size_t i = 0; a->list != b->list && i < a->list->n; i++)
            if (!pi__val_equal(&a->list->v[i], &b->list->v[i], depth + 1, work)) return false;
        return true;
    case PI__V_MAP: return a->map == b->map || map_equal(a->map, b->map, depth + 1, work);
    case PI__V_FUNC: return a->i == b->i;
    default: return a->obj == b->obj;
    }
}

bool pi__val_compare(const pi__val *a, const pi__val *b, int *out)
{
    if (a->type == PI__V_STR && b->type == PI__V_STR) { /* byte order equals code point order */
        size_t n = a->s.n < b->s.n ? a->s.n : b->s.n;
        int c = n ? memcmp(a->s.p, b->s.p, n) : 0;
        *out = c ? (c > 0) - (c < 0) : (a->s.n > b->s.n) - (a->s.n < b->s.n);
        return true;
    }
    if (!pi__val_is_number(a) || !pi__val_is_number(b)) return false;
    if (a->type == PI__V_FLOAT || b->type == PI__V_FLOAT) {
        double x = pi__val_f64(a), y = pi__val_f64(b);
        *out = (x > y) - (x < y);
        return !isnan(x) && !isnan(y);
    }
    int64_t x = a->type == PI__V_INT ? a->i : a->b, y = b->type == PI__V_INT ? b->i : b->b;
    *out = (x > y) - (x < y);
    return true;
}

const char *pi__val_type_name(const pi__val *v)
{
    static const char *const names[] = {"undefined", "none", "a boolean", "a number", "a number", "a string", "a list",
                                        "a mapping", "a namespace", "the loop", "a macro", "a function", "a method"};
    return names[v->type];
}

size_t pi__str_length(pi__str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((unsigned char) s.p[i] & 0xC0) != 0x80;
    return n;
}
