/* Automata over bytes: one character of a class in UTF-8, and texts that are looked for (see program.h).
 *
 * A class's first row tells by the first byte; a byte whose continuations are all in the class leads to a row that all
 * such share ("so many more continuation bytes"), others get rows of their own. Triggers: Aho-Corasick. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "grammar/program.h"

static uint16_t add_row(pi__dfa *d, pi__builder *b)
{
    if (b->code) return 0;
    if (d->n_rows >= PI__MAX_SUB || ++b->n_rows > PI__MAX_ROWS) pi__builder_fail(b, PI_ETOOBIG,
                                                   "a class of characters, or a trigger, is too large: split it");
    else if (!pi__grow(&d->row, &d->cap, d->n_rows + 1, sizeof *d->row)) b->code = pi__fail_mem(b->err, "the grammar");
    if (b->code) return 0;
    memset(d->row[d->n_rows], 0, sizeof *d->row);
    return (uint16_t) d->n_rows++;
}

static uint32_t add_dfa(pi__program *p, pi__builder *b)
{
    if (b->code) return 0;
    if (!pi__grow(&p->dfa, &p->cap_dfas, p->n_dfas + 1, sizeof *p->dfa)) {
        b->code = pi__fail_mem(b->err, "the grammar");
        return 0;
    }
    p->dfa[p->n_dfas] = (pi__dfa) {0};
    add_row(&p->dfa[p->n_dfas++], b);
    return (uint32_t) p->n_dfas - 1;
}

typedef struct utf8 {
    pi__dfa *d;
    pi__builder *b;
    uint16_t any[4];       /* rows: so many more continuation bytes, whichever; 0: not made yet */
    const pi__range *r;    /* [n] of the class, those of one length */
    size_t n;
} utf8;

static uint16_t any_row(utf8 *u, int more)
{
    if (!more) return PI__DFA_END;
    if (u->any[more]) return u->any[more];
    const uint16_t next = any_row(u, more - 1), row = add_row(u->d, u->b);
    for (int c = 0x80; c <= 0xBF && !u->b->code; c++) u->d->row[row][c] = next;
    return u->any[more] = row;
}

/* Where a byte leads behind which characters lo..hi are possible, with `more` bytes to come; 0: nowhere. */
static uint16_t row_of(utf8 *u, uint32_t lo, uint32_t hi, int more)
{
    size_t i = 0;
    while (i < u->n && u->r[i].hi < lo) i++;
    if (i == u->n || u->r[i].lo > hi || u->b->code) return 0;
    if (u->r[i].lo <= lo && u->r[i].hi >= hi) return any_row(u, more);
    const uint16_t row = add_row(u->d, u->b);
    const uint32_t each = (uint32_t) 1 << 6 * (more - 1);
    for (uint32_t c = 0; c < 64 && !u->b->code; c++) {
        const uint16_t to = row_of(u, lo + c * each, lo + (c + 1) * each - 1, more - 1);
        if (!u->b->code) u->d->row[row][0x80 + c] = to;
    }
    return row;
}

static uint64_t kinds_of(pi__class c)
{
    uint64_t missing = (uint64_t) 1 << PI__KIND_BROKEN;
    for (uint32_t cp = 0; cp < 0x80; cp++)
        if (!pi__class_has(c, cp)) missing |= (uint64_t) 1 << pi__char_kind(cp);
    const bool wide = pi__class_has(c, 0x80) && c.n >= 2 && c.r[c.n - 1].lo == 0xE000 && c.r[c.n - 1].hi == 0x10FFFF &&
                      c.r[c.n - 2].lo <= 0x80 && c.r[c.n - 2].hi == 0xD7FF;
    if (!wide) missing |= (uint64_t) 1 << PI__KIND_WIDE;
    return ~missing;
}

static bool same_class(pi__class a, pi__class b) { return a.n == b.n && !memcmp(a.r, b.r, a.n * sizeof *a.r); }

uint32_t pi__dfa_of_class(pi__program *p, pi__builder *b, pi__class c)
{
    static const struct { uint32_t min, max; int more; uint32_t lead, n_leads; } len[] = {
        {0, 0x7F, 0, 0, 0x80}, {0x80, 0x7FF, 1, 0xC0, 0x20}, {0x800, 0xFFFF, 2, 0xE0, 0x10}, {0x10000, 0x10FFFF, 3,
            0xF0, 8}};
    for (size_t i = p->n_dfas; i-- > 0;)
        if (p->dfa[i].cls.n && same_class(p->dfa[i].cls, c)) return (uint32_t) i;
    const uint32_t id = add_dfa(p, b);
    if (b->code) return 0;
    p->dfa[id].cls = c;
    p->dfa[id].kinds = kinds_of(c);
    utf8 u = {.d = &p->dfa[id], .b = b};
    for (int l = 0; l < 4 && !b->code; l++) {
        const pi__range limit = {len[l].min, len[l].max};
        const pi__class part = pi__class_and(b, c, (pi__class) {&limit, 1});
        u.r = part.r;
        u.n = part.n;
        for (uint32_t k = 0; k < len[l].n_leads && !b->code; k++) {
            const uint32_t each = (uint32_t) 1 << 6 * len[l].more;
            const uint16_t to = row_of(&u, k * each, (k + 1) * each - 1, len[l].more);
            if (!b->code && to) u.d->row[0][len[l].lead + k] = to;
        }
    }
    return id;
}

/* --------------------------------------------------------------------------------------------------------- triggers */

/* Rows of the texts' trie; ends are PI__DFA_END. */
static void add_text(pi__dfa *d, pi__builder *b, pi__str s)
{
    uint16_t row = 0;
    for (size_t i = 0; i < s.n && !b->code; i++) {
        const unsigned char c = (unsigned char) s.p[i];
        if (d->row[row][c] == PI__DFA_END) return; /* a shorter one is found first */
        if (i + 1 == s.n) {
            d->row[row][c] = PI__DFA_END;
        } else {
            if (!d->row[row][c]) {
                const uint16_t next = add_row(d, b);
                if (!b->code) d->row[row][c] = next;
            }
            row = d->row[row][c];
        }
    }
}

/* Missing ways lead to where the longest end of what was read leads. The start is row 0, which no way but those back to
 * it has: in these automata 0 is no dead end. */
static void link_rows(pi__dfa *d, pi__builder *b)
{
    uint16_t *queue = pi__builder_take(b, d->n_rows * sizeof *queue), *back = pi__builder_take(b,
        d->n_rows * sizeof *back);
    size_t n = 0;
    if (!queue || !back) return;
    for (int c = 0; c < 256; c++) {
        const uint16_t to = d->row[0][c];
        if (to && to != PI__DFA_END) queue[n++] = to;
    }
    for (size_t i = 0; i < n; i++) {
        const uint16_t row = queue[i], *fall = d->row[back[row]];
        for (int c = 0; c < 256; c++) {
            const uint16_t to = d->row[row][c];
            if (!to || fall[c] == PI__DFA_END) d->row[row][c] = fall[c];
            else if (to != PI__DFA_END) back[to] = fall[c], queue[n++] = to;
        }
    }
}

uint32_t pi__dfa_of_triggers(pi__program *p, pi__builder *b, const pi__str *text, size_t n)
{
    const pi__tokens *t = b->tokens;
    const uint32_t id = add_dfa(p, b);
    p->trigger = b->code ? NULL : pi__calloc(n + 1, sizeof *p->trigger);
    if (!p->trigger && !b->code) b->code = pi__fail_mem(b->err, "the grammar");
    if (b->code) return 0;
    pi__dfa *d = &p->dfa[id];
    for (size_t i = 0; i < n && !b->code; i++) {
        const int32_t token = pi__vocab_find(t->v, text[i].p, text[i].n);
        if (token >= 0 && token < t->n_vocab && (t->bare[token >> 6] >> (token & 63) & 1)) p->trigger[p->n_triggers++] =
            token;
        else add_text(d, b, text[i]);
    }
    d->kinds = UINT64_MAX; /* those that begin no trigger lead back to the start */
    for (int c = 0; c < 256 && !b->code; c++) {
        if (!d->row[0][c]) continue;
        d->kinds &= ~((uint64_t) 1 << PI__KIND_BROKEN | (uint64_t) 1 << (c < 0x80 ? pi__char_kind((uint32_t) c)
                                                                         : PI__KIND_WIDE));
    }
    if (!b->code) link_rows(d, b);
    return id;
}
