/* Regular languages of characters as deterministic automata: intersection, complement, lengths (see regular.c). */
#ifndef PI__GRAMMAR_REGULAR_H
#define PI__GRAMMAR_REGULAR_H

#include "grammar/expr.h"

enum {
    PI__REG_DEAD = UINT32_MAX, /* a state from which no text is accepted */
    PI__REG_STATES = 8192,     /* maximum number of states of one automaton */
    PI__REG_PARTS = 64,        /* maximum number of languages in one product */
};

typedef struct pi__reg {
    uint32_t *cut;    /* [n_cuts] first characters of the alphabet's intervals, sorted; cut[0] is 0 */
    uint32_t *symbol; /* [n_cuts] symbol of each interval; all characters of a symbol have the same transitions */
    size_t n_cuts;
    uint32_t n_symbols;
    uint32_t *to;     /* [n_states * n_symbols] next state, or PI__REG_DEAD; state 0 is the start */
    /* [n_states] bit i = the text so far is in language i of the product; a single language uses bit 0 */
    uint64_t *mark;
    uint32_t n_states;
} pi__reg;

/* Builds the language of an expression without rules and tokens. `what` names it in messages. NULL: b->code is set. */
pi__reg *pi__reg_of(pi__builder *b, const pi__expr *x, const char *what);
/* Returns the automaton that runs all n languages in parallel; part i has bit i of the marks. A text outside a language
 * of `must` (one bit per part) is dead. Bit 63 of a mark: the text has at least min characters. A text of more than max
 * characters is dead (PI__REP_INF = no limit). NULL: b->code is set. */
pi__reg *pi__reg_product(pi__builder *b, pi__reg *const *part, size_t n, uint64_t must, uint32_t min, uint32_t max,
                         const char *what);
/* Returns an expression for the texts with (mark & care) == want. map builds the expression of each character class. */
pi__expr *pi__reg_expr(pi__builder *b, const pi__reg *r, uint64_t care, uint64_t want, pi__class_fn map);
/* Stores the lengths in characters of the shortest and longest text with (mark & care) == want. *max PI__REP_INF =
 * unlimited, or too costly to compute. false = there is no text, or b->code is set. */
bool pi__reg_lengths(pi__builder *b, const pi__reg *r, uint64_t care, uint64_t want, uint32_t *min, uint32_t *max);
/* Returns the mark of a UTF-8 text; 0 if it is dead. */
uint64_t pi__reg_mark(const pi__reg *r, pi__str text);
/* Builds the language of decimal numbers (-12.50) that are multiples of step * 10^-places; step > 0. */
pi__reg *pi__reg_multiples(pi__builder *b, uint32_t step, uint32_t places);

#endif
