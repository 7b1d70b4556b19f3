/* Structured output: computes the set of vocabulary tokens that may come next.
 *
 * A grammar (GBNF, JSON Schema, a regular expression, a list of choices) is compiled to expressions (expr.h), then to a
 * machine over bytes (machine.h). Its nodes read a byte, a character of a class or a single token, choose, call a rule,
 * or end one. A position in a grammar is a STATE: the set of (node, return stack) pairs that match the text so far.
 * States and stacks are created on demand, each exists once, and their transitions are cached. Following known text
 * then costs one table look-up per byte. A state's MASK has one bit per token. It is computed by walking the
 * vocabulary's token trie (tokens.h) from the state. In the middle of a run of characters of one class (a JSON string
 * body, for example), all tokens made of these characters are allowed without being walked. Masks are cached per state.
 *
 *     {"name": "Ad            state 17  =  { (string body, stack: object's rest > end) }
 *                 |  "a", "am", "amélie" ...    run: the subtree is allowed in one step
 *                 |  "\",", "\"}"               followed byte by byte: past the end of the string, into the object
 *
 * A grammar is compiled once and shared by all requests that give the same text, together with all of its tables. A
 * sequence owns only its current state. Masks are exact: a token is allowed if and only if text plus its bytes is a
 * prefix of a text of the grammar. This holds for any tokenization and for tokens that split UTF-8 characters. Control
 * tokens have no text and match only by name.
 *
 * Memory: compile reserves everything. Tables are a mapping of fixed size (machine.h), committed as it is used. When a
 * table is full, states that no matcher is in are dropped. Following a text allocates nothing.
 * Threads: each grammar has a lock; any thread may use its own matchers. A mask that takes longer than its caller can
 * wait is computed by a worker thread in small chunks, and other threads get the lock in between. After llama.cpp's
 * grammars, XGrammar (arXiv 2411.15100) and llguidance. */
#ifndef PI__GRAMMAR_H
#define PI__GRAMMAR_H

#include "pagedinfer.h"
#include "tokenizer/vocab.h"

enum pi__grammar_kind { PI__GRAMMAR_GBNF, PI__GRAMMAR_SCHEMA, PI__GRAMMAR_REGEX, PI__GRAMMAR_CHOICE };

typedef struct pi__grammar_spec {
    int kind;            /* enum pi__grammar_kind */
    const char *text;    /* as the caller gave it */
    const char *trigger; /* JSON array of texts; the grammar binds after any of them; NULL or "" = from the start */
    int thoughts;        /* PI__THOUGHTS_*, see template/chat_form.h: triggers inside reasoning do not count */
} pi__grammar_spec;

/* The parts of an answer's grammar: lead (before form after | calls). `form` is the constraint of the content; the
 * other parts are GBNF texts around it. NULL = empty; a NULL `calls` = no alternative with calls. */
typedef struct pi__grammar_parts {
    pi__grammar_spec form;
    const char *lead, *before, *after, *calls;
    const char *start;   /* start rule of a GBNF constraint; NULL = "root" */
} pi__grammar_parts;

/* ---- an engine's grammars */

typedef struct pi__grammars pi__grammars;
typedef struct pi__grammar pi__grammar; /* compiled; reference-counted */

/* Creates the set of grammars for vocabulary v, which must outlive it. n_vocab: length of a logits row. never:
 * [n_never] ids that no mask allows; copied. */
int pi__grammars_create(pi__grammars **out, const pi__vocab *v, int32_t n_vocab, const int32_t *never, int32_t n_never,
                        pi_error *err);
/* Sets the callback for masks that pi__matcher_ready handed to the worker. The worker calls it on its own thread, with
 * no lock held, when a mask is done. Call before the first grammar is compiled. */
void pi__grammars_on_ready(pi__grammars *gs, void (*fn)(void *ud), void *ud);
/* Frees gs. All matchers and all references to its grammars must have been released. */
void pi__grammars_free(pi__grammars *gs);
/* Returns the compiled grammar, cached or compiled now within the budget of `work`; the caller owns a reference.
 * PI_EINVAL: not a grammar (err has line, column and reason), or too large. PI_EUNSUPPORTED: err names the unsupported
 * feature. PI_ECANCELED, PI_ETIMEDOUT: `work` was stopped. Time and memory are linear in the text. */
int pi__grammar_get_within(pi__grammars *gs, const pi__grammar_parts *parts, pi__work *work, pi__grammar **out,
                           pi_error *err);
/* pi__grammar_get_within for a single spec, with no limits except the grammar's own. */
static inline int pi__grammar_get(pi__grammars *gs, const pi__grammar_spec *spec, pi__grammar **out, pi_error *err)
{
    return pi__grammar_get_within(gs, &(pi__grammar_parts) {.form = *spec}, NULL, out, err);
}
pi__grammar *pi__grammar_retain(pi__grammar *g);
void pi__grammar_release(pi__grammar *g); /* may be NULL */

/* ---- a sequence's position in a grammar */

typedef struct pi__matcher pi__matcher;

typedef struct pi__mask {
    const uint64_t *bits; /* [(n_vocab + 63) / 64] one bit per token, until the matcher's next call; NULL if n is 0 */
    int32_t n;            /* number of allowed tokens; 0 = the text is complete and no token may follow */
    int32_t only;         /* the single allowed token if n is 1 */
} pi__mask;

static inline bool pi__mask_has(const pi__mask *m, int32_t id) { return m->bits[id >> 6] >> (id & 63) & 1; }

/* Creates a matcher at the start of g and takes a reference to g. */
int pi__matcher_create(pi__matcher **out, pi__grammar *g, pi_error *err);
void pi__matcher_free(pi__matcher *m); /* may be NULL */
/* Stores in *out the mask of tokens that may come next; with n 0 the matcher is over from now on. end = false leaves
 * out the tokens that end the text, unless nothing else can follow. PI_EUNSUPPORTED: the grammar exceeds its limit of
 * work or memory. PI_EINVAL: no token of the vocabulary can continue the text. */
int pi__matcher_mask(pi__matcher *m, bool end, pi__mask *out, pi_error *err);
/* Computes the mask of m in at most *steps steps of work (10 to 20 ns each), and reduces *steps by the work done.
 * Returns true if the mask, or its error, is ready, so that pi__matcher_mask does no further work. On false a worker
 * thread continues and calls the function of pi__grammars_on_ready when it is done. */
bool pi__matcher_ready(pi__matcher *m, uint64_t *steps);
/* Advances m by a generated token, which must be in the last mask. PI_EINVAL: the grammar does not allow it. */
int pi__matcher_accept(pi__matcher *m, int32_t id, pi_error *err);
/* Returns the number of leading ids, out of n, that the grammar allows one after the other. Does not move m. */
int32_t pi__matcher_count(pi__matcher *m, const int32_t *ids, int32_t n);
/* True if an end token was accepted, or no token can follow. */
bool pi__matcher_is_over(const pi__matcher *m);
/* True if the grammar constrains the next token: it has no trigger, or a trigger was seen. */
bool pi__matcher_is_bound(pi__matcher *m);

/* Counters of masks, states and work, for tests and reports. */
typedef struct pi__grammar_counts {
    uint64_t n_masks, n_masks_made;          /* masks requested; masks computed */
    uint64_t n_states, n_collections;        /* states created; collections of full tables */
    uint64_t n_handed_over, work;            /* masks handed to the worker; total steps of work */
    double compile_ms, mask_ms, mask_max_ms; /* compile time; sum over all computed masks; slowest mask */
    size_t bytes;                            /* memory in use: program, states, masks */
} pi__grammar_counts;
void pi__grammar_count(pi__grammar *g, pi__grammar_counts *out);

#endif
