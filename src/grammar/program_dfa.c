/* Automata over bytes: one character of a class in UTF-8, and a search for trigger texts (see program.h).
 *
 * A class's first row is indexed by the lead byte. If all continuations of a byte are in the class, it leads to a
 * shared row ("n more continuation bytes"). Other bytes get rows of their own.
 *
 * Triggers use Aho-Corasick in the text. If reasoning tags are known, one more automaton per closing tag is added:
 *
 *     begin --open tag k--> reasoning k --closing tag k--> text --trigger--> END
 *       \------------- anything else --------------------^
 *
 * A trigger inside reasoning therefore does not count. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "grammar/program.h"

static uint16_t add_row(pi__dfa *d, pi__builder *b)
{
    if (!pi__builder_step(b, 8)) return 0;
    if (d->n_rows >= PI__MAX_SUB || ++b->n_rows > PI__MAX_ROWS) pi__builder_fail(b, PI_EINVAL,
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
    uint16_t any[4];       /* rows for this many more continuation bytes of any value; 0 = not made yet */
    const pi__range *r;    /* [n] ranges of the class with one encoded length */
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

/* Returns the row after a prefix that allows characters lo..hi, with `more` bytes to come; 0 = none is in the class. */
static uint16_t row_of(utf8 *u, uint32_t lo, uint32_t hi, int more)
{
    size_t i = 0, end = u->n; /* first range that ends at or after lo */
    while (i < end) {
        const size_t mid = i + (end - i) / 2;
        if (u->r[mid].hi < lo) i = mid + 1;
        else end = mid;
    }
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
    uint32_t from = 0x80; /* characters from here on are not checked yet */
    for (size_t i = 0; i <= c.n; i++) {
        const uint32_t lo = i < c.n ? c.r[i].lo : 0x110000;
        if (lo > from && !(from == 0xD800 && lo == 0xE000)) missing |= pi__wide_kinds(from, lo - from);
        if (i < c.n && c.r[i].hi >= from) from = c.r[i].hi + 1;
    }
    return ~missing;
}

static bool same_class(pi__class a, pi__class b) { return a.n == b.n && !memcmp(a.r, b.r, a.n * sizeof *a.r); }

uint32_t pi__dfa_of_class(pi__program *p, pi__builder *b, pi__class c)
{
    static const struct { uint32_t min, max; int more; uint32_t lead, n_leads; } len[] = {
        {0, 0x7F, 0, 0, 0x80}, {0x80, 0x7FF, 1, 0xC0, 0x20}, {0x800, 0xFFFF, 2, 0xE0, 0x10}, {0x10000, 0x10FFFF, 3,
            0xF0, 8}};
    if (!b->class_slot) b->class_slot = pi__builder_take(b, PI__CLASS_SLOTS * sizeof *b->class_slot);
    if (!pi__builder_step(b, 1 + c.n / 16)) return 0;
    size_t h = pi__hash64(c.r, c.n * sizeof *c.r, 0) % PI__CLASS_SLOTS;
    for (; b->class_slot[h]; h = (h + 1) % PI__CLASS_SLOTS)
        if (same_class(p->dfa[b->class_slot[h] - 1].cls, c)) return b->class_slot[h] - 1;
    const uint32_t id = add_dfa(p, b);
    if (b->code) return 0;
    b->class_slot[h] = id + 1;
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

enum { /* temporary targets while an automaton is made: to the text, or to reasoning by tag index */
    GO_TEXT = PI__DFA_END - 1,
    GO_THOUGHTS = GO_TEXT - PI__N_THOUGHT_TAGS,
};

static bool is_end(uint16_t to) { return to >= GO_THOUGHTS; }

/* Adds the text to the trie that starts at row home; its last byte leads to `end`. */
static void add_text(pi__dfa *d, pi__builder *b, uint16_t home, pi__str s, uint16_t end)
{
    uint16_t row = home;
    for (size_t i = 0; i < s.n && !b->code; i++) {
        const unsigned char c = (unsigned char) s.p[i];
        if (is_end(d->row[row][c])) return; /* a shorter text ends here and is found first */
        if (i + 1 == s.n) {
            d->row[row][c] = end;
        } else {
            if (!d->row[row][c]) {
                const uint16_t next = add_row(d, b);
                if (!b->code) d->row[row][c] = next;
            }
            row = d->row[row][c];
        }
    }
}

/* Adds the failure links. A missing transition goes where the longest suffix of the text read so far goes, or to home,
 * where nothing has begun. Row 0 is the home of text: in these automata it is not a dead end. */
static void link_rows(pi__dfa *d, pi__builder *b, uint16_t home)
{
    uint16_t *queue = pi__builder_take(b, d->n_rows * sizeof *queue), *back = pi__builder_take(b,
        d->n_rows * sizeof *back);
    size_t n = 0;
    if (!queue || !back) return;
    for (int c = 0; c < 256; c++) {
        const uint16_t to = d->row[home][c];
        if (!to) d->row[home][c] = home;
        else if (!is_end(to)) back[to] = home, queue[n++] = to;
    }
    for (size_t i = 0; i < n; i++) {
        const uint16_t row = queue[i], *fall = d->row[back[row]];
        for (int c = 0; c < 256; c++) {
            const uint16_t to = d->row[row][c];
            if (!to || is_end(fall[c])) d->row[row][c] = fall[c];
            else if (!is_end(to)) back[to] = fall[c], queue[n++] = to;
        }
    }
    d->home[d->n_homes++] = home;
}

/* Adds the row at the start of an answer, where reasoning may open after white space. Anything else is text. */
static uint16_t add_begin(pi__dfa *d, pi__builder *b)
{
    const uint16_t home = add_row(d, b);
    for (int k = 0; k < PI__N_THOUGHT_TAGS; k++)
        add_text(d, b, home, pi__str_of(pi__thought_tags_of[k].open), (uint16_t) (GO_THOUGHTS + k));
    uint16_t *queue = pi__builder_take(b, d->n_rows * sizeof *queue), *text = pi__builder_take(b,
        d->n_rows * sizeof *text); /* text[row]: text row after the same bytes; row 0 after white space */
    size_t n = 0;
    if (!queue || !text || b->code) return 0;
    for (queue[n++] = home; n; ) {
        const uint16_t row = queue[--n];
        for (int c = 0; c < 256; c++) {
            const uint16_t to = d->row[row][c], plain = d->row[text[row]][c];
            if (!to) d->row[row][c] = row == home && c && strchr(" \n\r\t", c) ? home : plain;
            else if (is_end(to)) continue;
            else if (is_end(plain)) d->row[row][c] = plain; /* a trigger inside the tag is found first */
            else text[to] = plain, queue[n++] = to;
        }
    }
    d->home[d->n_homes++] = home;
    return home;
}

/* Adds the start row, the opening tags, and one automaton per kind of reasoning up to its closing tag. */
static void add_thoughts(pi__dfa *d, pi__builder *b)
{
    uint16_t home[PI__N_THOUGHT_TAGS], begin;
    for (int k = 0; k < PI__N_THOUGHT_TAGS; k++)
        if (pi__thought_tags_of[k].anywhere)
            add_text(d, b, 0, pi__str_of(pi__thought_tags_of[k].open), (uint16_t) (GO_THOUGHTS + k));
    if (!b->code) link_rows(d, b, 0);
    begin = b->code ? 0 : add_begin(d, b);
    d->n_outside = (uint16_t) d->n_rows;
    for (int k = 0; k < PI__N_THOUGHT_TAGS && !b->code; k++) {
        home[k] = add_row(d, b);
        add_text(d, b, home[k], pi__str_of(pi__thought_tags_of[k].close), GO_TEXT);
        if (!b->code) link_rows(d, b, home[k]);
    }
    if (b->code) return;
    d->start = b->thoughts == PI__THOUGHTS_MAY ? begin : home[b->thoughts - PI__THOUGHTS_OPEN];
    for (size_t i = 0; i < d->n_rows; i++) {
        for (int c = 0; c < 256; c++) {
            const uint16_t to = d->row[i][c];
            if (is_end(to) && to != PI__DFA_END) d->row[i][c] = to == GO_TEXT ? 0 : home[to - GO_THOUGHTS];
        }
    }
}

/* Returns the kinds of characters that begin nothing in any home row. */
static uint64_t kinds_of_homes(const pi__dfa *d)
{
    uint64_t kinds = UINT64_MAX;
    for (uint32_t i = 0; i < d->n_homes; i++) {
        for (int c = 0; c < 256; c++) {
            const uint16_t to = d->row[d->home[i]][c];
            if (!to || to == d->home[i]) continue;
            kinds &= ~((uint64_t) 1 << PI__KIND_BROKEN |
                       (c < 0x80 ? (uint64_t) 1 << pi__char_kind((uint32_t) c) : pi__wide_kinds(0x80, 0x10FF80)));
        }
    }
    return kinds;
}

uint32_t pi__dfa_of_triggers(pi__program *p, pi__builder *b)
{
    const pi__tokens *t = b->tokens;
    const uint32_t id = add_dfa(p, b);
    p->trigger = b->code ? NULL : pi__calloc(b->n_triggers + 1, sizeof *p->trigger);
    if (!p->trigger && !b->code) b->code = pi__fail_mem(b->err, "the grammar");
    if (b->code) return 0;
    pi__dfa *d = &p->dfa[id];
    for (size_t i = 0; i < b->n_triggers && !b->code; i++) {
        const pi__str text = b->trigger[i];
        const int32_t token = pi__vocab_find(t->v, text.p, text.n);
        if (token >= 0 && token < t->n_vocab && (t->bare[token >> 6] >> (token & 63) & 1))
            p->trigger[p->n_triggers++] = token;
        else add_text(d, b, 0, text, PI__DFA_END);
    }
    if (!b->code && b->thoughts) add_thoughts(d, b);
    else if (!b->code) link_rows(d, b, 0);
    if (!b->thoughts) d->n_outside = (uint16_t) d->n_rows;
    d->kinds = kinds_of_homes(d);
    return id;
}
