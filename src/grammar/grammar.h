/* Structured output: what of a vocabulary may come next.
 *
 * A grammar (GBNF, JSON Schema, a regular expression, a list of choices) becomes expressions (expr.h), these a machine
 * over bytes (machine.h): nodes that read a byte, a character of a class or a whole token, choose, call a rule, or end
 * one. A place in a grammar is a STATE: the set of (node, stack of returns) that the text so far leaves possible.
 * States and stacks are made as texts lead there, each once, and kept with their transitions, so that following known
 * text is a table look-up a byte. A state's MASK, a bit a token, is made by walking the vocabulary's tokens as a trie
 * (tokens.h) from the state; where the state is in the middle of a run of characters of one class, the body of a JSON
 * string for example, all tokens made of such characters are taken without a look at them. Masks are kept with states.
 *
 *     {"name": "Ad            state 17  =  { (string body, stack: object's rest > end) }
 *                 |  "a", "am", "amélie" ...    run: subtree as a whole
 *                 |  "\",", "\"}"               followed byte by byte: through the end of the string into the object
 *
 * A grammar is compiled once and shared by all requests that give the same text; all of its tables belong to it and are
 * shared as well. What a sequence has of its own is its state. Exact: a token is allowed if and only if its bytes can
 * go on to a text of the grammar, whatever the vocabulary's way to cut texts, UTF-8 characters included. Tokens that
 * stand for no text (control tokens) are matched only by name.
 *
 * Memory: compile takes all there will be: tables are a mapping of fixed size (machine.h; committed as it is
 * used), in which states that nobody is in are dropped when it is full. Nothing is allocated while a text is followed.
 * Threads: a grammar has a lock; any thread may use its own matchers. Masks that take longer than their caller can wait
 * are made by a worker, a little at a time, so that others can have the lock. After llama.cpp's grammars, XGrammar (arXiv
 * 2411.15100) and llguidance. */
#ifndef PI__GRAMMAR_H
#define PI__GRAMMAR_H

#include "pagedinfer.h"
#include "tokenizer/vocab.h"

enum pi__grammar_kind { PI__GRAMMAR_GBNF, PI__GRAMMAR_SCHEMA, PI__GRAMMAR_REGEX, PI__GRAMMAR_CHOICE };

typedef struct pi__grammar_spec {
    int kind;            /* enum pi__grammar_kind */
    const char *text;    /* as the caller gave it */
    const char *trigger; /* JSON array of texts, after one of which the grammar binds; NULL or "": from the start */
    int thoughts;        /* PI__THOUGHTS_*, see template/chat_form.h: triggers within them do not count */
} pi__grammar_spec;

/* A form with GBNF around it, as answers of chats have: lead (before form after | calls). NULL = nothing. */
typedef struct pi__grammar_parts {
    pi__grammar_spec form;
    const char *lead, *before, *after, *calls;
    const char *start;   /* the rule that a form in GBNF begins with; NULL = "root" */
} pi__grammar_parts;

/* ---- an engine's grammars */

typedef struct pi__grammars pi__grammars;
typedef struct pi__grammar pi__grammar; /* compiled; counted references */

/* For vocabulary v, which must outlive it, and a model of n_vocab logits. never: ids that are never allowed. */
int pi__grammars_create(pi__grammars **out, const pi__vocab *v, int32_t n_vocab, const int32_t *never, int32_t n_never,
                        pi_error *err);
/* Sets the callback for masks that pi__matcher_ready handed over: the worker calls it on its own thread, without a lock,
 * when one is made. Call before the first grammar. */
void pi__grammars_on_ready(pi__grammars *gs, void (*fn)(void *ud), void *ud);
/* All matchers and references are gone. */
void pi__grammars_free(pi__grammars *gs);
/* The compiled grammar, with a reference for the caller: one that is known, or compiled now under a budget.
 * PI_EINVAL: not a grammar (err has line, column and reason), or too large; PI_EUNSUPPORTED: something that is not
 * supported, by name; PI_ECANCELED, PI_ETIMEDOUT: work ended. Time and memory are linear in the text. */
int pi__grammar_get_within(pi__grammars *gs, const pi__grammar_parts *parts, pi__work *work, pi__grammar **out, pi_error *err);
/* The same without limits but the grammar's own. */
static inline int pi__grammar_get(pi__grammars *gs, const pi__grammar_spec *spec, pi__grammar **out, pi_error *err)
{
    return pi__grammar_get_within(gs, &(pi__grammar_parts) {.form = *spec}, NULL, out, err);
}
pi__grammar *pi__grammar_retain(pi__grammar *g);
void pi__grammar_release(pi__grammar *g); /* may be NULL */

/* ---- a sequence's place in one */

typedef struct pi__matcher pi__matcher;

typedef struct pi__mask {
    const uint64_t *bits; /* [(n_vocab + 63) / 64] a bit a token; valid until the matcher's next call; NULL where n is 0 */
    int32_t n;            /* tokens allowed; 0: the text is over, or complete and no token says so */
    int32_t only;         /* the token, where n is 1 */
} pi__mask;

static inline bool pi__mask_has(const pi__mask *m, int32_t id) { return m->bits[id >> 6] >> (id & 63) & 1; }

/* At the start of g, which gets a reference. */
int pi__matcher_create(pi__matcher **out, pi__grammar *g, pi_error *err);
void pi__matcher_free(pi__matcher *m); /* may be NULL */
/* Tokens that may come next. end false: none that ends the text, unless nothing else can. PI_EUNSUPPORTED: the grammar asks
 * for more work or memory than it may take; PI_EINVAL: no token of the vocabulary goes on. */
int pi__matcher_mask(pi__matcher *m, bool end, pi__mask *out, pi_error *err);
/* true: pi__matcher_mask gives the mask, or its error, at once. false: not after *steps steps of work (10 to 20 ns each);
 * the grammars' worker makes it from now on and calls on_ready. *steps becomes the number that is left. */
bool pi__matcher_ready(pi__matcher *m, uint64_t *steps);
/* The token was generated: one of the last mask's. PI_EINVAL: the grammar does not allow it. */
int pi__matcher_accept(pi__matcher *m, int32_t id, pi_error *err);
/* How many of n tokens the grammar allows one after the other; m stays where it is. */
int32_t pi__matcher_count(pi__matcher *m, const int32_t *ids, int32_t n);
/* The end was generated, or nothing can follow. */
bool pi__matcher_is_over(const pi__matcher *m);
/* The grammar holds what comes next: it had no trigger, or one came. */
bool pi__matcher_is_bound(pi__matcher *m);

/* Tokens that it was asked for and masks that it made, for tests and reports. */
typedef struct pi__grammar_counts {
    uint64_t n_masks, n_masks_made;          /* asked for; made */
    uint64_t n_states, n_collections;        /* states made; times tables were cleaned */
    uint64_t n_handed_over, work;            /* masks that the worker was given; steps of work so far */
    double compile_ms, mask_ms, mask_max_ms; /* of compile; of all masks made; of the slowest */
    size_t bytes;                            /* memory in use: program, states, masks */
} pi__grammar_counts;
void pi__grammar_count(pi__grammar *g, pi__grammar_counts *out);

#endif
