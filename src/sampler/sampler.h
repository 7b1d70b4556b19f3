/* Sampling: turns a row of logits into a token.
 *
 * Each request has one sampler: a random number generator, a token history and a chain of stages. The result depends
 * only on the request's parameters, its history and the row, so it is batch-invariant. create allocates all memory,
 * including that of the history; sample and accept never allocate. One thread at a time. */
#ifndef PI__SAMPLER_H
#define PI__SAMPLER_H

#include "backend/device.h"
#include "sampler/params.h"
#include "pagedinfer.h"

typedef struct pi__sampler pi__sampler;

/* Working memory for the candidates of a row; shared by all samplers of one thread. */
typedef struct pi__sampler_scratch pi__sampler_scratch;
int pi__sampler_scratch_create(pi__sampler_scratch **out, int32_t n_vocab, pi_error *err);
/* Returns the bytes that create allocates, for the planner. */
size_t pi__sampler_scratch_bytes(int32_t n_vocab);
void pi__sampler_scratch_free(pi__sampler_scratch *s);

/* Creates a sampler; copies the parts of p that it needs. max_history: maximum number of tokens of prompt and answer
 * together; of longer histories, the oldest tokens are dropped. PI_EINVAL: a value is out of range. */
int pi__sampler_create(pi__sampler **out, const pi__sampling *p, int32_t n_vocab, int32_t max_history, pi_error *err);
void pi__sampler_free(pi__sampler *s);
/* Appends a token of the prompt or answer to the history, which penalties and DRY read. Also updates the state of
 * Mirostat and adaptive-p, and advances the generator. Sampling twice without an accept in between gives the same
 * token. */
void pi__sampler_accept(pi__sampler *s, int32_t id);
/* Sets the logit of each token to -inf if its bit in `allowed` is 0. */
void pi__row_allow(float *logits, int32_t n_vocab, const uint64_t *allowed);
/* Returns the next token. logits: n_vocab values, modified in place. forbid: [n_forbid] ids with probability 0; may be
 * NULL. A NaN logit is never selected. Returns -1 if all logits are NaN or -inf; the caller then fails the request. */
int32_t pi__sampler_sample(pi__sampler *s, pi__sampler_scratch *w, float *logits, const int32_t *forbid,
                           size_t n_forbid);
/* Returns true if pi__sampler_sample is a plain argmax of unchanged logits (greedy, no penalties, no bias). */
bool pi__sampler_is_argmax(const pi__sampler *s);

/* Stores in *out how a device draws the token that pi__sampler_sample would return. The device needs the row, and a
 * topk result as pi__sampler_draw_top requests it. ahead 0: the next token; 1: the token after the next one, for a draw
 * that runs after the device has drawn the next one. seen: [PI__MAX_SEEN] receives the tokens with penalties; NULL =
 * not needed. Returns false if the device cannot draw for this sampler; *out is then invalid. */
bool pi__sampler_draw(const pi__sampler *s, int32_t ahead, pi__draw *out, uint32_t *seen);
/* Call only if pi__sampler_draw returns true. Returns the k (>= 1) of the topk request that the draw needs. *sum: set
 * to true if it also needs pi__top.sum, the row's sum of exponentials. */
int32_t pi__sampler_draw_top(const pi__sampler *s, bool *sum);

/* The topk result of a logits row: its largest values, computed by a device (op topk). */
typedef struct pi__top {
    const uint64_t *key; /* [n] best first, in the format of op topk */
    int32_t n;           /* number of keys */
    bool all;            /* the keys include every value above -inf */
    bool odd;            /* the row holds NaN or +inf: only the first key is valid, and only for argmax */
    double sum;          /* sum of exp(x - max) over the row, added in the order of pi__row_exp_sum; 0 = unknown */
} pi__top;

/* Returns the best token; -1 if there are no keys. */
static inline int32_t pi__top_best(const pi__top *t) { return t->n ? (int32_t) (uint32_t) t->key[0] : -1; }
/* Returns the logit of a key. */
float pi__top_logit(uint64_t key);
/* Returns the k of the topk request that pi__sampler_sample_top needs, at most PI__MAX_TOP; 0 = the full row is needed.
 * *sum: set to true if pi__top.sum is needed too. n_forbid: number of ids that will be excluded; must be nonzero if
 * there is a mask. */
int32_t pi__sampler_top(const pi__sampler *s, size_t n_forbid, bool *sum);
/* Tokens with probability 0. */
typedef struct pi__excluded {
    const int32_t *forbid;   /* [n_forbid] excluded ids */
    size_t n_forbid;
    const uint64_t *allowed; /* mask: tokens with bit 0 are also excluded; NULL = no mask */
} pi__excluded;
/* Returns exactly the token that pi__sampler_sample returns for the full row (-1 included), or PI__NEED_ROW if t does
 * not suffice. scribble: scratch for n_vocab values. */
enum { PI__NEED_ROW = -2 };
int32_t pi__sampler_sample_top(pi__sampler *s, pi__sampler_scratch *w, const pi__top *t, float *scribble,
                               const pi__excluded *x);

/* Returns the token that pi__sampler_sample returns, and stores log-probabilities of the candidates after the stages.
 * out[0] is the token; out[1..n] are the most likely candidates, in the order and form of pi__logprobs. */
int32_t pi__sampler_sample_drawn(pi__sampler *s, pi__sampler_scratch *w, float *logits, const int32_t *forbid,
                                 size_t n_forbid, int32_t n, pi_token_prob *out);
/* Stores log-probabilities of the raw row: out[0] for id, out[1..n] for the n most likely tokens, in descending order,
 * on ties the lower id first. Unused entries have id -1. */
void pi__logprobs(const float *logits, int32_t n_vocab, int32_t id, int32_t n, pi_token_prob *out,
                  pi__sampler_scratch *w);
/* Like pi__logprobs, but from a topk result with its sum. t->odd must be false. t must contain id and n more keys, or
 * all values above -inf. */
void pi__logprobs_top(const pi__top *t, int32_t id, int32_t n, pi_token_prob *out);
/* Returns the index of the largest value, on ties the lowest index. NaN values are ignored; -1 if no value is above
 * -inf. */
int32_t pi__argmax(const float *x, int32_t n);

#endif
