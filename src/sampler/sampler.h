/* From a row of logits to a token.
 *
 * One sampler a request: its generator, its history counts and its filters. The result depends on the request's
 * parameters, its history and the row alone, so it is batch-invariant: batch composition never changes it. Memory is
 * allocated by create (and grows only in accept's history, which is reserved there too); sample never allocates. One
 * thread at a time. */
#ifndef PI__SAMPLER_H
#define PI__SAMPLER_H

#include "backend/device.h"
#include "sampler/params.h"
#include "pagedinfer.h"

typedef struct pi__sampler pi__sampler;

/* Working memory that samplers of one thread share: candidates of a row. */
typedef struct pi__sampler_scratch pi__sampler_scratch;
int pi__sampler_scratch_create(pi__sampler_scratch **out, int32_t n_vocab, pi_error *err);
/* Bytes that create allocates, for the planner. */
size_t pi__sampler_scratch_bytes(int32_t n_vocab);
void pi__sampler_scratch_free(pi__sampler_scratch *s);

/* Copies what it needs of p. max_history: most tokens of prompt and answer together; of more, the oldest are forgotten.
 * PI_EINVAL: a value out of range. */
int pi__sampler_create(pi__sampler **out, const pi__sampling *p, int32_t n_vocab, int32_t max_history, pi_error *err);
void pi__sampler_free(pi__sampler *s);
/* A token of the prompt or of the answer, in order: what penalties look back at. Their number is also the position
 * that the generator's numbers belong to: sampling again before the next accept gives the same token. */
void pi__sampler_accept(pi__sampler *s, int32_t id);
/* Leaves of a row the logits of the tokens that are allowed, a bit a token. */
void pi__row_allow(float *logits, int32_t n_vocab, const uint64_t *allowed);
/* The next token. logits: n_vocab values, changed in place; forbid: ids whose probability is 0, may be NULL. NaN logits
 * never win; if all are NaN or -inf: -1 (the caller fails the request). */
int32_t pi__sampler_sample(pi__sampler *s, pi__sampler_scratch *w, float *logits, const int32_t *forbid,
                           size_t n_forbid);
/* True when sample is a plain argmax of unchanged logits (greedy, no penalties, no bias). */
bool pi__sampler_is_argmax(const pi__sampler *s);

/* How a device draws the token that sample would give, from the row and the topk result that pi__sampler_draw_top wants.
 * ahead: 0, or 1 for the token after the next one, of which the device knows what the next one is. seen: [PI__MAX_SEEN] for the tokens
 * that have penalties; NULL: nobody wants them. false: it cannot be told. */
bool pi__sampler_draw(const pi__sampler *s, int32_t ahead, pi__draw *out, uint32_t *seen);
/* Of a sampler of which it can be told: how many of the largest values, 1 at least, perhaps with their sum. */
int32_t pi__sampler_draw_top(const pi__sampler *s, bool *sum);

/* The topk result of a logits row: its largest values, as a device found them (op topk). */
typedef struct pi__top {
    const uint64_t *key; /* [n] best first: see op topk */
    int32_t n;           /* keys */
    bool all;            /* nothing else of the row is above -inf */
    bool odd;            /* the row holds NaN or +inf: only the first key is of use, and only to who takes the largest */
    double sum;          /* of exp(x - max) over the row, as pi__row_exp_sum adds it up; 0: not known */
} pi__top;

/* The best token, where there is one. */
static inline int32_t pi__top_best(const pi__top *t) { return t->n ? (int32_t) (uint32_t) t->key[0] : -1; }
/* The logit of a key. */
float pi__top_logit(uint64_t key);
/* The k of the topk request that sample_top needs, at most PI__MAX_TOP; 0: it needs the whole row. *sum: it needs
 * pi__top.sum, too. n_forbid: ids that sample_top will be told to forbid, any number where it is told what is allowed. */
int32_t pi__sampler_top(const pi__sampler *s, size_t n_forbid, bool *sum);
/* Tokens whose probability is 0. */
typedef struct pi__excluded {
    const int32_t *forbid;   /* [n_forbid] these, */
    size_t n_forbid;
    const uint64_t *allowed; /* and all without a bit here; NULL: none of them */
} pi__excluded;
/* The token that sample gives for the row, to the bit; or PI__NEED_ROW where t does not tell. scribble: n_vocab values
 * that are overwritten. */
enum { PI__NEED_ROW = -2 };
int32_t pi__sampler_sample_top(pi__sampler *s, pi__sampler_scratch *w, const pi__top *t, float *scribble,
                               const pi__excluded *x);

/* The token that sample gives, and what it was drawn from: out[0] is the token, out[1..n] the most likely of what the stages left,
 * in the order and form of pi__logprobs. */
int32_t pi__sampler_sample_drawn(pi__sampler *s, pi__sampler_scratch *w, float *logits, const int32_t *forbid, size_t n_forbid,
                                 int32_t n, pi_token_prob *out);
/* Logarithms of probability of id and of the n most likely tokens (descending, lower id first on ties), from the raw
 * row: out[0] is id, out[1..n] the others (id -1 where no more are possible). */
void pi__logprobs(const float *logits, int32_t n_vocab, int32_t id, int32_t n, pi_token_prob *out,
                  pi__sampler_scratch *w);
/* The same from the head of a row with its sum, which is not odd, holds id, and n more or all. */
void pi__logprobs_top(const pi__top *t, int32_t id, int32_t n, pi_token_prob *out);
/* Index of the largest value, the lowest on ties; NaN never wins; -1 if nothing is above -inf. */
int32_t pi__argmax(const float *x, int32_t n);

#endif
