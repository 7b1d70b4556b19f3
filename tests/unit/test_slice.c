/* Slices of a vocabulary: their tokens, and the trie nodes that lead to all other tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/tokens.h"
#include "vocab_seed.h"

enum { WORDS = 140 };

/* Creates a vocabulary of bytes and of words over two letters, a digit and two signs. A fifth of the words also has a
 * non-ASCII character. */
static pi__tokens *make_tokens(pi__vocab **v)
{
    static const char letters[] = "aG1_\"";
    static char text[WORDS][12];
    static seed s;
    pi__tokens *t;
    pi_error err = {0};
    memset(&s, 0, sizeof s);
    s.model = "llama";
    seed_tok(&s, "<unk>", PI__TOK_UNKNOWN, 0);
    seed_tok(&s, "</s>", PI__TOK_CONTROL, 0);
    seed_hex_bytes(&s);
    for (uint32_t i = 0, n = sizeof letters - 1; i < WORDS; i++) {
        uint32_t len = 0;
        for (uint32_t k = i + n; k; k /= n) text[i][len++] = letters[k % n];
        if (i % 5 == 0) strcpy(text[i] + len, i % 2 ? "\xC3\xA9" : "\xC2\xA0" "b");
        seed_tok(&s, text[i], PI__TOK_NORMAL, -1);
    }
    if (seed_load(&s, v, &err)) fail_msg("refused: %s", err.msg);
    if (pi__tokens_create(&t, *v, pi__vocab_size(*v), NULL, 0, &err)) fail_msg("%s", err.msg);
    return t;
}

static bool is_in(const pi__tokens *t, uint64_t kinds, uint32_t k) { return !(t->set[t->set_of[k]] & ~kinds); }

/* True if the subtree of node i has a token that is not in the slice. */
static bool has_others(const pi__tokens *t, uint64_t kinds, uint32_t i)
{
    bool found = false;
    for (uint32_t k = t->first[i]; k < t->first[t->skip[i]] && !found; k++) found = !is_in(t, kinds, k);
    return found;
}

/* Compares the slice with a direct evaluation of the trie. */
static void check(const pi__tokens *t, uint64_t kinds)
{
    pi__slice *s;
    pi_error err = {0};
    uint32_t n = 0, n_in = 0;
    assert_int_equal(pi__slice_get(t, kinds, &s, &err), PI_OK);
    for (uint32_t k = 0; k < t->first[t->n_nodes]; k++) n_in += is_in(t, kinds, k);
    if (!s) {
        assert_true(n_in <= t->first[t->n_nodes] / 8);
        return;
    }
    assert_int_equal(s->n, n_in);
    assert_int_equal(s->upto[PI__LONG_TOKEN], n_in);
    for (uint32_t k = 0; k < t->first[t->n_nodes]; k++)
        assert_int_equal(s->bits[t->id[k] >> 6] >> (t->id[k] & 63) & 1, is_in(t, kinds, k));
    for (uint32_t i = 1; i < t->n_nodes; i++) {
        if (!has_others(t, kinds, i)) continue;
        assert_true(n < s->n_rest);
        assert_int_equal(s->node[n++], i);
    }
    assert_int_equal(s->n_rest, n);
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t end = t->skip[s->node[k]], next = s->skip[k];
        assert_true(next > k && next <= n && s->node[next - 1] < end);
        assert_true(next == n || s->node[next] >= end);
    }
    pi__slice_release(t, s);
}

static void slices_are_what_the_trie_says(void **state)
{
    (void) state;
    pi__vocab *v;
    pi__tokens *t = make_tokens(&v);
    uint64_t some = 0;
    for (const char *c = "aG1"; *c; c++) some |= (uint64_t) 1 << pi__char_kind((unsigned char) *c);
    const uint64_t quote = (uint64_t) 1 << pi__char_kind('"'), broken = (uint64_t) 1 << PI__KIND_BROKEN;
    const uint64_t sets[] = {some, ~(quote | broken), ~broken, some | quote, some | (uint64_t) 1 << PI__KIND_WIDE,
                             some & ~((uint64_t) 1 << pi__char_kind('G')), quote, 0, ~quote};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) check(t, sets[i]);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) check(t, sets[i]); /* now from the cache */
    pi__tokens_free(t);
    pi__vocab_free(v);
}

/* Tokens with equal character kinds share a set. */
static void sets_are_counted(void **state)
{
    (void) state;
    pi__vocab *v;
    pi__tokens *t = make_tokens(&v);
    uint32_t sum = 0;
    for (size_t i = 0; i < t->n_sets; i++) {
        sum += t->n_of_set[i];
        for (size_t k = 0; k < i; k++) assert_true(t->set[i] != t->set[k]);
    }
    assert_true(t->n_sets > 8 && t->n_sets < t->first[t->n_nodes] / 2);
    assert_int_equal(sum, t->first[t->n_nodes]); /* no list is long */
    pi__tokens_free(t);
    pi__vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(slices_are_what_the_trie_says),
                                     cmocka_unit_test(sets_are_counted)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
