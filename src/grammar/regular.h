/* Regular languages of characters as deterministic automata: intersection, complement, lengths (see regular.c). */
#ifndef PI__GRAMMAR_REGULAR_H
#define PI__GRAMMAR_REGULAR_H

#include "grammar/expr.h"

enum {
    PI__REG_DEAD = UINT32_MAX, /* a state from which no text is accepted */
    PI__REG_STATES = 8192,     /* states of one automaton, at most */
    PI__REG_PARTS = 64,        /* languages in one product, at most */
};

typedef struct pi__reg {
    uint32_t *cut;    /* [n_cuts] first characters of the intervals of the alphabet, sorted; cut[0] is 0 */
    uint32_t *symbol; /* [n_cuts] the interval's symbol: the automaton treats its characters alike */
    size_t n_cuts;
    uint32_t n_symbols;
    uint32_t *to;     /* [n_states * n_symbols] the next state, or PI__REG_DEAD; state 0 is the start */
    /* [n_states] bit i: the text so far is in language i of the product; bit 0 of a single language */
    uint64_t *mark;
    uint32_t n_states;
} pi__reg;

/* The language of an expression without rules and tokens. NULL: b->code. what: the name in messages. */
pi__reg *pi__reg_of(pi__builder *b, const pi__expr *x, const char *what);
/* All n languages side by side, with a count of characters up to `count` where that is not 0. A text that is not in all
 * languages of `must` (a bit each) is in none. Bit 63 of a mark: the text has at least min characters; texts of more
 * than max characters are dead (PI__REP_INF: no limit). NULL: b->code. */
pi__reg *pi__reg_product(pi__builder *b, pi__reg *const *part, size_t n, uint64_t must, uint32_t min, uint32_t max,
                         const char *what);
/* Texts whose mark, of the bits in care, is want. Characters are written by map. */
pi__expr *pi__reg_expr(pi__builder *b, const pi__reg *r, uint64_t care, uint64_t want, pi__class_fn map);
/* Lengths of such texts: false where there are none. *max PI__REP_INF: no limit. */
bool pi__reg_lengths(pi__builder *b, const pi__reg *r, uint64_t care, uint64_t want, uint32_t *min, uint32_t *max);
/* The mark of a text in UTF-8; 0 where it is dead. */
uint64_t pi__reg_mark(const pi__reg *r, pi__str text);
/* Numbers in decimal (-12.50) whose value is a multiple of step * 10^-places; step > 0. */
pi__reg *pi__reg_multiples(pi__builder *b, uint32_t step, uint32_t places);

#endif
