/* Internals of the sampler: candidates, passes over a row, the map from token to number.
 *
 * The tokens that are still in the running are either the whole row of logits ("full"), or a list of 64-bit keys:
 *
 *     63                    32 31              0
 *     +-----------------------+----------------+     ascending keys = descending logits, the lower id first on ties;
 *     | ~ordered bits (logit) |       id       |     all keys differ, so any selection has one result
 *     +-----------------------+----------------+
 *
 * A stage that only looks at a few tokens works on the row; the first filter makes the list, or takes what it does not keep
 * from the row, where that is much. Nothing is ever sorted whole: filters select. The token is drawn in the order of ids, with
 * sums that are the same for a list and for a row that has only the list's values: so whoever has only the topk result of
 * the row (sampler_top.c), or is a device (backend/draw.h), draws the same. Memory is the scratch's and the sampler's, one
 * thread at a time. */
#ifndef PI__SAMPLER_IMPL_H
#define PI__SAMPLER_IMPL_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/logits.h"
#include "sampler/sampler.h"

struct pi__sampler_scratch {
    int32_t n_vocab; /* longest row */
    uint64_t *key;   /* [n_vocab] the list of candidates */
    float *weight;   /* [n_vocab] by id: exp(logit - max) of the tokens in the list */
};

/* Token -> number, open addressing over a dense array; at most cap tokens. */
typedef struct pi__idmap {
    struct { int32_t id, val; } *entry; /* [n] in no order */
    int32_t *slot;                      /* [mask + 1] index into entry, -1: empty */
    uint32_t mask;                      /* slots - 1; slots are a power of two, at least 2 * cap */
    int32_t n, cap;                     /* entries used, entries there are */
} pi__idmap;

bool pi__idmap_init(pi__idmap *m, int32_t cap); /* false: out of memory */
void pi__idmap_free(pi__idmap *m);
int32_t *pi__idmap_get(const pi__idmap *m, int32_t id); /* its number, NULL: absent; valid until the map changes */
int32_t *pi__idmap_put(pi__idmap *m, int32_t id);       /* its number, 0 when it is new; there must be room */
void pi__idmap_del(pi__idmap *m, int32_t id);
void pi__idmap_clear(pi__idmap *m);

/* A sequence of tokens that DRY does not look across: head, then tail_len tokens at tail. */
typedef struct pi__dry_breaker {
    int32_t head, tail_len;
    const int32_t *tail;
} pi__dry_breaker;

typedef struct pi__dry {
    int32_t window;           /* tokens looked back at, 0: off */
    int32_t max_exponent;     /* so that base^exponent stays finite, 0: no limit */
    pi__dry_breaker *breaker; /* [n_breakers] by ascending head */
    size_t n_breakers;
    int32_t *tokens;          /* all breakers' tokens */
    int32_t *z;               /* [window] repeat lengths of one call */
    pi__idmap longest;        /* token -> longest repetition that it would continue, of one call */
} pi__dry;

/* What Mirostat and adaptive-p know of the tokens that were given (sampler_feedback.c). */
typedef struct pi__feedback {
    float mu;              /* Mirostat: the most surprise that a candidate may have, in bits */
    float weighted, total; /* adaptive-p: decaying sum of probabilities, and of their weights */
    int32_t id;            /* the last token sampled, until one is accepted; -1: none */
    float value;           /* its surprise (Mirostat) or probability (adaptive-p) */
    double sum;            /* adaptive-p: of the weights that it was sampled from */
} pi__feedback;

struct pi__sampler {
    pi__sampling p;        /* parameters; bias points to the sampler's copy, the breakers are in dry */
    uint8_t chain[PI__SMP_N + 1]; /* stages that do something, ended by PI__SMP_N */
    int32_t n_vocab;       /* row length */
    uint64_t key;          /* of the generator, from the seed */
    uint64_t n_seen;       /* tokens accepted: the position that the generator's next numbers belong to */
    pi__logit_bias *bias;  /* [p.n_bias] */
    int32_t *ring;         /* [ring_cap] the last tokens; NULL when nothing looks back */
    int32_t ring_cap;      /* the longest window */
    int32_t ring_next;     /* where the next token goes */
    int32_t ring_len;      /* tokens in it */
    int32_t penalty_window; /* tokens in counts, 0: off */
    pi__idmap counts;      /* token -> how often it is in the penalty window */
    pi__dry dry;
    bool greedy;           /* the best candidate is taken, without a draw */
    bool has_feedback;     /* the chain ends with Mirostat or adaptive-p */
    pi__feedback feedback;
};

/* The candidates of one call. */
typedef struct pi__cands {
    pi__sampler_scratch *w; /* where the list is */
    float *row;             /* [n_row] logits; stale once there is a list */
    int32_t n_row;
    bool list;              /* the candidates are w->key[0..n) */
    bool clean;             /* row holds no NaN and no +inf */
    size_t n;               /* candidates in the list */
} pi__cands;

/* A logit that a stage computed: infinities and NaN would make differences of logits meaningless. */
static inline float pi__logit_clamp(float x) { return x > FLT_MAX ? FLT_MAX : x == x ? x : -INFINITY; }

/* ---- passes over a row (sampler_row.c) */

/* Largest value, -inf when nothing is above; NaN never wins. *odd (may be NULL): whether there is a NaN or +inf. */
float pi__row_max(const float *x, int32_t n, bool *odd);
/* Sum of exp(x - max) over a clean row. Devices add up in the same order (base/logits.h). */
double pi__row_exp_sum(const float *x, int32_t n, float max);
/* Keys of the values >= limit and > -inf, in the order of ids; returns their number. */
size_t pi__row_gather(const float *x, int32_t n, float limit, uint64_t *key);
/* Keys of the k largest values (in no order); fewer when fewer are above -inf. key has room for n. */
size_t pi__row_top(const float *x, int32_t n, int32_t k, uint64_t *key);
/* The index at which the running sum of exp(x - max) first exceeds u of the whole; -1: nothing is above -inf. Clean row. */
int32_t pi__row_draw(const float *x, int32_t n, float max, double u);
/* The same of a row in which all but n values are -inf, in the order of ids. */
int32_t pi__keys_draw(const uint64_t *key, size_t n, float max, double u);

/* ---- keys (sampler_row.c) */

/* Moves the k smallest of key[0..n) to the front, in no order. */
void pi__keys_select(uint64_t *key, size_t n, size_t k);
void pi__keys_sort(uint64_t *key, size_t n);
/* From any order to that of ids. */
void pi__keys_sort_by_id(uint64_t *key, size_t n);
/* Moves to the front the fewest smallest keys, at least min_n, whose weights (by the low half of the key: weight[id])
 * sum to more than target; returns their number. */
size_t pi__keys_select_mass(uint64_t *key, size_t n, const float *weight, double target, size_t min_n);

/* ---- stages (sampler_filters.c, sampler_penalties.c, sampler_dry.c, sampler_feedback.c) */

/* Makes v a list of everything above -inf. */
void pi__cands_list(pi__cands *v);
float pi__cands_max(pi__cands *v);
/* Of a sorted list, the first ones of a row: top-p of that, with at least min_n. all: there are no others. false: what it keeps
 * is not in the list, and nothing changed. */
bool pi__cands_keep_mass(pi__cands *v, uint64_t target, size_t min_n, bool all);
/* Least logit that min-p keeps where the largest is max. */
float pi__min_p_limit(float max, float p);
/* One stage of the chain. */
void pi__sampler_apply(pi__sampler *s, int kind, pi__cands *v);
/* The token that the chain's candidates give. */
int32_t pi__sampler_pick(pi__sampler *s, pi__cands *v);
/* Weights of the list's tokens, exp(logit - max) at weight[id]; returns their sum. */
double pi__list_weights(pi__cands *v, float max);
/* Keeps the candidates whose logit is at least limit, as a list. */
void pi__cands_keep_from(pi__cands *v, float limit);
/* Logarithms of probability of the first n of the sorted keys. */
void pi__put_logprobs(const uint64_t *key, size_t n_key, float max, double log_sum, int32_t n, pi_token_prob *out);
/* No penalty makes a token more likely. */
static inline bool pi__only_lowers(const pi__sampling *p)
{
    return p->repeat_penalty >= 1 && p->presence_penalty >= 0 && p->frequency_penalty >= 0;
}
/* Adds a bias to a logit. */
static inline float pi__biased(float logit, float bias) { return pi__logit_clamp(logit + bias); }
void pi__stage_top_n_sigma(pi__cands *v, float n_sigma);
void pi__stage_top_k(pi__cands *v, int32_t k);
void pi__stage_typical(pi__cands *v, float p, size_t min_keep);
void pi__stage_top_p(pi__cands *v, float p, size_t min_keep);
void pi__stage_min_p(pi__cands *v, float p, size_t min_keep);
void pi__stage_xtc(pi__cands *v, float threshold, size_t min_keep);
void pi__stage_temperature(pi__cands *v, float temp);
/* A temperature between temp - range (not below 0) and temp + range. */
void pi__stage_dynamic_temperature(pi__cands *v, float temp, float range, float exponent);
void pi__stage_mirostat(pi__cands *v, const pi__sampler *s);
void pi__stage_adaptive_p(pi__cands *v, pi__sampler *s);
void pi__stage_penalties(pi__cands *v, const pi__sampler *s);
void pi__stage_dry(pi__cands *v, pi__sampler *s);

int pi__dry_init(pi__sampler *s, const pi__sampling *p, int32_t max_history, pi_error *err);
void pi__dry_free(pi__dry *d);

void pi__feedback_init(pi__feedback *f, const pi__sampling *p);
/* id was drawn from the candidates, and may be accepted. */
void pi__feedback_drawn(pi__sampler *s, pi__cands *v, int32_t id);
void pi__feedback_accept(pi__sampler *s, int32_t id);

/* Token number i back from the newest (0); i < ring_len. */
static inline int32_t pi__back(const pi__sampler *s, int32_t i)
{
    int32_t at = s->ring_next - 1 - i;
    return s->ring[at < 0 ? at + s->ring_cap : at];
}

#endif
