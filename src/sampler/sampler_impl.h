/* Internals of the sampler: candidates, passes over a row, a map from token to number, the stages' functions.
 *
 * The remaining candidates are either the full row of logits, or a list of 64-bit keys:
 *
 *     63                    32 31              0
 *     +-----------------------+----------------+     ascending keys = descending logits, the lower id first on ties;
 *     | ~ordered bits (logit) |       id       |     all keys differ, so any selection has one result
 *     +-----------------------+----------------+
 *
 * A stage that changes only a few tokens works on the row. The first filter makes the list; top-p may instead keep the
 * row and set removed values to -inf. Filters select with quickselect instead of sorting all candidates. The draw adds
 * weights in the order of ids. Sums are bitwise identical for a list and for a row with only the list's values. Drawing
 * from a topk result (sampler_top.c) or on a device (backend/draw.h) therefore gives the same token. Memory: the
 * scratch and the sampler. One thread at a time. */
#ifndef PI__SAMPLER_IMPL_H
#define PI__SAMPLER_IMPL_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/logits.h"
#include "sampler/sampler.h"

struct pi__sampler_scratch {
    int32_t n_vocab; /* maximum row length */
    uint64_t *key;   /* [n_vocab] the list of candidates */
    float *weight;   /* [n_vocab] by id: exp(logit - max) of the tokens in the list */
};

/* Hash map from token to number, for at most cap tokens: a dense array of entries, and a table with open addressing. */
typedef struct pi__idmap {
    struct { int32_t id, val; } *entry; /* [n] unordered */
    int32_t *slot;                      /* [mask + 1] indexes into entry; -1 = empty */
    /* number of slots - 1; the number of slots is a power of two, at least 2 * cap */
    uint32_t mask;
    int32_t n, cap;                     /* entries used; capacity */
} pi__idmap;

bool pi__idmap_init(pi__idmap *m, int32_t cap); /* false = out of memory */
void pi__idmap_free(pi__idmap *m);
int32_t *pi__idmap_get(const pi__idmap *m, int32_t id); /* valid until the map changes; NULL = absent */
/* adds the token with number 0 if absent; the map must not be full */
int32_t *pi__idmap_put(pi__idmap *m, int32_t id);
void pi__idmap_del(pi__idmap *m, int32_t id);
void pi__idmap_clear(pi__idmap *m);

/* A token sequence that ends DRY's matching: the token head, then the tail_len tokens at tail. */
typedef struct pi__dry_breaker {
    int32_t head, tail_len;
    const int32_t *tail;
} pi__dry_breaker;

typedef struct pi__dry {
    int32_t window;           /* window in tokens; 0 = off */
    int32_t max_exponent;     /* maximum exponent with a finite base^exponent; 0 = no limit */
    pi__dry_breaker *breaker; /* [n_breakers] by ascending head */
    size_t n_breakers;
    int32_t *tokens;          /* tokens of all breakers */
    int32_t *z;               /* [window] match lengths of the current call, by distance from the newest token */
    /* token -> length in tokens of the longest repetition that it would continue; of the current call */
    pi__idmap longest;
} pi__dry;

/* State of Mirostat and adaptive-p (sampler_feedback.c). */
typedef struct pi__feedback {
    float mu;              /* Mirostat: maximum surprise of a candidate, in bits */
    /* adaptive-p: sum of the accepted tokens' probabilities; sum of 1 per token; each token decays both sums */
    float weighted, total;
    int32_t id;            /* token sampled last, before its accept; -1 = none */
    float value;           /* its surprise (Mirostat) or probability (adaptive-p) */
    double sum;            /* adaptive-p: sum of the weights that the token was sampled from */
} pi__feedback;

struct pi__sampler {
    pi__sampling p;        /* parameters; bias and dry_breakers are NULL, their copies are in `bias` and `dry` */
    uint8_t chain[PI__SMP_N + 1]; /* active stages, terminated by PI__SMP_N */
    int32_t n_vocab;       /* row length */
    uint64_t key;          /* generator key, derived from the seed */
    uint64_t n_seen;       /* number of accepted tokens; also the position of the generator */
    pi__logit_bias *bias;  /* [p.n_bias] */
    int32_t *ring;         /* [ring_cap] ring buffer of the last tokens; NULL if no stage needs history */
    int32_t ring_cap;      /* length of the longest window */
    int32_t ring_next;     /* index for the next token */
    int32_t ring_len;      /* tokens in ring, at most ring_cap */
    int32_t penalty_window; /* length in tokens of the window that `counts` covers; 0 = no penalties */
    pi__idmap counts;      /* token -> occurrences in the penalty window */
    pi__dry dry;
    bool greedy;           /* the best candidate is selected without a random draw */
    bool has_feedback;     /* the chain ends with Mirostat or adaptive-p, which use `feedback` */
    pi__feedback feedback;
};

/* The candidates of one call. */
typedef struct pi__cands {
    pi__sampler_scratch *w; /* holds the list */
    float *row;             /* [n_row] logits; not valid while the candidates are a list */
    int32_t n_row;
    bool list;              /* true = the candidates are w->key[0..n); false = the row */
    bool clean;             /* the row has no NaN and no +inf */
    size_t n;               /* candidates in the list */
} pi__cands;

/* Makes a logit finite or -inf: +inf becomes FLT_MAX, NaN becomes -inf. */
static inline float pi__logit_clamp(float x) { return x > FLT_MAX ? FLT_MAX : x == x ? x : -INFINITY; }

/* ---- passes over a row (sampler_row.c) */

/* Returns the largest value; ignores NaN; -inf if no value is above -inf. *odd (may be NULL): set to true if the row
 * has NaN or +inf, else to false. */
float pi__row_max(const float *x, int32_t n, bool *odd);
/* Returns the sum of exp(x - max) over a clean row (no NaN, no +inf). Devices add in the same order (base/logits.h). */
double pi__row_exp_sum(const float *x, int32_t n, float max);
/* Stores the keys of all values that are >= limit and > -inf, in the order of ids; returns their number. */
size_t pi__row_gather(const float *x, int32_t n, float limit, uint64_t *key);
/* Stores the keys of the k largest values, unordered, or of all values above -inf if they are fewer; returns their
 * number. key has room for n keys. */
size_t pi__row_top(const float *x, int32_t n, int32_t k, uint64_t *key);
/* Returns the index at which the running sum of exp(x - max) first exceeds u times the total; -1 if no value has a
 * weight above 0. The row must be clean. */
int32_t pi__row_draw(const float *x, int32_t n, float max, double u);
/* Like pi__row_draw, for a row with the n values of key[] and -inf everywhere else. key[] is in the order of ids.
 * Returns an id. */
int32_t pi__keys_draw(const uint64_t *key, size_t n, float max, double u);

/* ---- keys (sampler_row.c) */

/* Reorders key[0..n) so that its k smallest keys come first, unsorted. */
void pi__keys_select(uint64_t *key, size_t n, size_t k);
void pi__keys_sort(uint64_t *key, size_t n);
/* Sorts key[0..n), given in any order, by id. */
void pi__keys_sort_by_id(uint64_t *key, size_t n);
/* Reorders key[0..n) so that a set of its smallest keys comes first; returns the size of that set. It has the fewest
 * keys, at least min_n, with a sum of weights above target; all n keys if their sum is not above it. A key's weight is
 * weight[id]. */
size_t pi__keys_select_mass(uint64_t *key, size_t n, const float *weight, double target, size_t min_n);

/* ---- stages (sampler_filters.c, sampler_penalties.c, sampler_dry.c, sampler_feedback.c) */

/* Turns the row into a list of its values above -inf. No effect if the candidates are a list already. */
void pi__cands_list(pi__cands *v);
float pi__cands_max(pi__cands *v);
/* Applies top-p to a sorted list of a row's largest values. target: sum of weights to reach, in the units of
 * pi__weight_units; at least min_n candidates are kept. all: the list has every value of the row above -inf. Returns
 * false, with the list unchanged, if the result may need values that are not in the list. */
bool pi__cands_keep_mass(pi__cands *v, uint64_t target, size_t min_n, bool all);
/* Returns the smallest logit that min-p keeps if the largest logit is max. */
float pi__min_p_limit(float max, float p);
/* Runs stage `kind` (enum pi__sampler_kind) of the chain on the candidates. */
void pi__sampler_apply(pi__sampler *s, int kind, pi__cands *v);
/* Selects the token from the candidates that remain after the chain: the best one if greedy, else a random one. Records
 * it for Mirostat and adaptive-p. Returns -1 if there is no candidate. */
int32_t pi__sampler_pick(pi__sampler *s, pi__cands *v);
/* Stores the weights exp(logit - max) of the list's tokens in w->weight[id]; returns their sum. */
double pi__list_weights(pi__cands *v, float max);
/* Keeps the candidates with a logit of at least limit, as a list. */
void pi__cands_keep_from(pi__cands *v, float limit);
/* Stores the ids and log-probabilities (logit - max - log_sum) of the first n of n_key sorted keys. If n_key < n, the
 * remaining entries get id -1. */
void pi__put_logprobs(const uint64_t *key, size_t n_key, float max, double log_sum, int32_t n, pi_token_prob *out);
/* Returns true if no repeat, presence or frequency penalty can raise a logit. */
static inline bool pi__only_lowers(const pi__sampling *p)
{
    return p->repeat_penalty >= 1 && p->presence_penalty >= 0 && p->frequency_penalty >= 0;
}
/* Returns logit + bias, clamped to a finite value or -inf. */
static inline float pi__biased(float logit, float bias) { return pi__logit_clamp(logit + bias); }
void pi__stage_top_n_sigma(pi__cands *v, float n_sigma);
void pi__stage_top_k(pi__cands *v, int32_t k);
void pi__stage_typical(pi__cands *v, float p, size_t min_keep);
void pi__stage_top_p(pi__cands *v, float p, size_t min_keep);
void pi__stage_min_p(pi__cands *v, float p, size_t min_keep);
void pi__stage_xtc(pi__cands *v, float threshold, size_t min_keep);
void pi__stage_temperature(pi__cands *v, float temp);
/* Applies a temperature between temp - range (at least 0) and temp + range; it rises with the
 * entropy. */
void pi__stage_dynamic_temperature(pi__cands *v, float temp, float range, float exponent);
void pi__stage_mirostat(pi__cands *v, const pi__sampler *s);
void pi__stage_adaptive_p(pi__cands *v, pi__sampler *s);
void pi__stage_penalties(pi__cands *v, const pi__sampler *s);
void pi__stage_dry(pi__cands *v, pi__sampler *s);

int pi__dry_init(pi__sampler *s, const pi__sampling *p, int32_t max_history, pi_error *err);
void pi__dry_free(pi__dry *d);

void pi__feedback_init(pi__feedback *f, const pi__sampling *p);
/* Records id as sampled, with its surprise or probability among the candidates, for pi__feedback_accept. */
void pi__feedback_drawn(pi__sampler *s, pi__cands *v, int32_t id);
/* Updates mu, or the sums of adaptive-p, if id is the token that was recorded last. Clears the record. */
void pi__feedback_accept(pi__sampler *s, int32_t id);

/* Returns the token i positions before the newest one, which has i = 0; i < ring_len. */
static inline int32_t pi__back(const pi__sampler *s, int32_t i)
{
    int32_t at = s->ring_next - 1 - i;
    return s->ring[at < 0 ? at + s->ring_cap : at];
}

#endif
