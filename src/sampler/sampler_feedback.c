/* Samplers with feedback from the probability of their tokens: Mirostat 1 and 2, adaptive-p.
 *
 * Mirostat (Basu et al., arXiv 2007.14966) keeps the surprise of tokens (-log2 of the probability) near a target. It
 * drops candidates with a surprise above mu, and corrects mu by the error of each token. Adaptive-p prefers tokens with
 * a probability near a target. If recent tokens were more probable on average, the target is lowered; if less probable,
 * it is raised. Definitions are llama.cpp's.
 *
 * The state (mu, sums) changes when a token is accepted, not when one is sampled. Resampling at a position (rejected
 * draft, preemption) therefore gives the same token. No memory; one thread at a time. */
#include "sampler/sampler_impl.h"

enum { N_FITTED = 100 }; /* Mirostat 1 estimates the exponent of Zipf's law from this many best tokens */

void pi__feedback_init(pi__feedback *f, const pi__sampling *p)
{
    *f = (pi__feedback) {.mu = 2 * p->mirostat_tau, .id = -1};
    if (p->adaptive_target < 0) return;
    f->total = 1 / (1 - p->adaptive_decay);
    f->weighted = p->adaptive_target * f->total;
}

/* Returns the exponent s of Zipf's law, p(i) ~ i^-s, fitted to the n sorted keys. */
static double zipf_exponent(const uint64_t *key, size_t n)
{
    double tb = 0, tt = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const double t = log((double) (i + 2) / (double) (i + 1));
        tb += t * ((double) pi__key_logit(key[i]) - (double) pi__key_logit(key[i + 1]));
        tt += t * t;
    }
    return tb / tt;
}

/* Returns the number of candidates to keep for a maximum surprise of mu, under Zipf's law with exponent s. */
static int32_t mirostat_k(double s, double mu, int32_t n_vocab)
{
    const double e = s - 1, k = pow(e * exp2(mu) / (1 - pow((double) n_vocab, -e)), 1 / s);
    return !(k >= 1) ? 1 : k < (double) n_vocab ? (int32_t) k : n_vocab;
}

static void mirostat_1(pi__cands *v, float mu, int32_t n_vocab)
{
    pi__cands best = *v;
    pi__stage_top_k(&best, N_FITTED);
    pi__keys_sort(best.w->key, best.n);
    const int32_t k = best.n < 2 ? 1 : mirostat_k(zipf_exponent(best.w->key, best.n), (double) mu, n_vocab);
    pi__stage_top_k(v, k);
}

static void mirostat_2(pi__cands *v, float mu)
{
    const float max = pi__cands_max(v);
    if (max == -INFINITY) return;
    const double sum = v->list ? pi__list_weights(v, max) : pi__row_exp_sum(v->row, v->n_row, max);
    const double limit = (double) max + log(sum) - (double) mu * 0.693147180559945309;
    if (limit > (double) max) pi__stage_top_k(v, 1);
    else pi__cands_keep_from(v, (float) limit);
}

void pi__stage_mirostat(pi__cands *v, const pi__sampler *s)
{
    if (s->p.mirostat == 1) mirostat_1(v, s->feedback.mu, s->n_vocab);
    else mirostat_2(v, s->feedback.mu);
}

/* Maps a probability to a logit: highest at the target, falling quadratically near it and linearly far from it. */
static float near_target(double p, double target)
{
    const double PEAK = 5, SHARPNESS = 10, WIDTH = 0.3, d = fabs(p - target) / WIDTH;
    return (float) (PEAK - SHARPNESS * d * d / (1 + d));
}

static double between_0_and_1(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

void pi__stage_adaptive_p(pi__cands *v, pi__sampler *s)
{
    pi__feedback *f = &s->feedback;
    const float max = pi__cands_max(v);
    if (max == -INFINITY) return;
    pi__cands_list(v);
    f->sum = pi__list_weights(v, max);
    const double target = between_0_and_1(2 * (double) s->p.adaptive_target - (double) f->weighted / (double) f->total);
    for (size_t i = 0; i < v->n; i++) {
        const int32_t id = pi__key_id(v->w->key[i]);
        v->w->key[i] = pi__logit_key(near_target((double) v->w->weight[id] / f->sum, target), id);
    }
}

/* Returns the surprise of id among the candidates, in bits. */
static float surprise(pi__cands *v, int32_t id)
{
    const float max = pi__cands_max(v);
    pi__cands_list(v);
    const double sum = pi__list_weights(v, max);
    return (float) (log2(sum) - log2((double) v->w->weight[id]));
}

void pi__feedback_drawn(pi__sampler *s, pi__cands *v, int32_t id)
{
    pi__feedback *f = &s->feedback;
    f->id = id;
    if (id < 0) return;
    f->value = s->p.mirostat ? surprise(v, id) : (float) ((double) v->w->weight[id] / f->sum);
}

void pi__feedback_accept(pi__sampler *s, int32_t id)
{
    pi__feedback *f = &s->feedback;
    if (id == f->id && s->p.mirostat) {
        f->mu -= s->p.mirostat_eta * (f->value - s->p.mirostat_tau);
    } else if (id == f->id) {
        f->weighted = f->value + s->p.adaptive_decay * f->weighted;
        f->total = 1 + s->p.adaptive_decay * f->total;
    }
    f->id = -1;
}
