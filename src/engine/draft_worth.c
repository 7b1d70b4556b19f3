/* Chooses how many drafts to verify (see draft_worth.h). */
#include "engine/draft_worth.h"

#include <math.h>

enum {
    EXACT_ROWS = 32,           /* row counts with a cell of their own; above, four cells per doubling */
    OLD = 512,                 /* steps after which a cell is stale */
    OLD_BASE = 192,            /* steps after which a cell without drafts (the baseline) is stale */
    MOST_MEAN = 8,             /* max samples in a running mean */
    BUCKETS = 48,              /* probability classes, a quarter of a doubling each */
    PROVEN = 16,               /* recently checked drafts after which a drafter is proven */
    TRIAL = 4,                 /* max drafts per step, all sequences together, of an unproven drafter */
};

static const float cheap_row = 0.03f;   /* assumed part of a step that a row costs, until one was measured */
static const float min_gain = 1.03f;  /* min gain of the rate over a step without drafts */
/* decay of tries and hits per verification: of a sequence, of a drafter */
static const float fade = 0.9f, fade_all = 0.99f;
static const float back = 0.98f, back_all = 0.998f; /* decay per step without drafts: of a sequence, of a drafter */
/* max loss of a drafter before it pauses; max saving in its account, which it may lose again; in steps' time */
static const float may_lose = 3, may_keep = 32;
static const float may_owe = 4;           /* max credit for prompts of an unproven drafter, in steps' time */
static const float income = 0.012f;       /* part of the steps' time that a drafter may lose in the long run */

/* ---- time */

static int32_t log_cell(int32_t n, int32_t exact, int32_t per_doubling, int32_t most)
{
    if (n <= exact) return n - 1;
    const int32_t i = exact + (int32_t) ((float) per_doubling * log2f((float) n / (float) exact));
    return i < most ? i : most - 1;
}

static int32_t class_of(int32_t n_seqs) { return log_cell(n_seqs, 4, 1, PI__WORTH_CLASSES); }
static int32_t cell_of(int32_t n_rows) { return log_cell(n_rows, EXACT_ROWS, 4, PI__WORTH_ROWS); }

/* Returns the smallest number of rows that falls into the cell. */
static float rows_of(int32_t cell)
{
    return cell < EXACT_ROWS ? (float) (cell + 1) : (float) EXACT_ROWS * exp2f((float) (cell - EXACT_ROWS) / 4);
}

static bool is_known(const pi__worth *w, const pi__worth_cell *c, uint32_t old)
{
    return c->n && w->n_steps - c->last < old;
}

void pi__worth_step(pi__worth *w, int32_t n_seqs, int32_t n_rows, double ms)
{
    pi__worth_cell *c = &w->step[class_of(n_seqs)][cell_of(n_rows)];
    w->n_steps++;
    w->n_seqs = n_seqs;
    if (!is_known(w, c, OLD)) c->n = 0;
    float v = (float) ms;
    if (c->n >= 4 && v > 2 * c->ms) v = 2 * c->ms; /* an outlier: another process used the machine */
    if (!c->n) c->ms = v;
    if (c->n < MOST_MEAN) c->n++;
    c->ms += (v - c->ms) / (float) c->n;
    c->last = w->n_steps;
}

/* Returns the expected time of a step with n_rows rows, ms; interpolates between known cells. 0 = no cell is known. */
static float step_ms(const pi__worth *w, int32_t n_seqs, int32_t n_rows)
{
    const pi__worth_cell *c = w->step[class_of(n_seqs)];
    const int32_t at = cell_of(n_rows);
    int32_t lo = at, hi = at;
    while (lo >= 0 && !is_known(w, &c[lo], OLD)) lo--;
    while (hi < PI__WORTH_ROWS && !is_known(w, &c[hi], OLD)) hi++;
    if (lo == at && n_rows <= EXACT_ROWS) return c[at].ms;
    if (lo < 0) return hi < PI__WORTH_ROWS ? c[hi].ms : 0;
    const float more = (float) n_rows - rows_of(lo);
    if (hi == PI__WORTH_ROWS || hi == lo) return c[lo].ms * (1 + cheap_row * more);
    return c[lo].ms + (c[hi].ms - c[lo].ms) * more / (rows_of(hi) - rows_of(lo));
}

static void take_mean(float *mean, float v)
{
    *mean += *mean > 0 ? ((v > 3 * *mean ? 3 * *mean : v) - *mean) / MOST_MEAN : v;
}

void pi__worth_drafting(pi__worth *w, int kind, int32_t n_passes, double ms)
{
    w->lost[kind] += (float) ms;
    if (n_passes) take_mean(&w->pass_ms[kind], (float) ms / (float) n_passes);
}

/* Returns the measured or assumed time of a drafter's pass, ms. alone: time of a step without drafts, ms. */
static float pass_ms(const pi__worth *w, int kind, float alone)
{
    return w->pass_ms[kind] > 0 ? w->pass_ms[kind] : w->share[kind] * alone;
}

/* ---- the accounts */

void pi__worth_caught_up(pi__worth *w, int kind, int32_t n, double ms, bool prompts)
{
    if (!n) return;
    *(prompts ? &w->owed[kind] : &w->lost[kind]) += (float) ms;
    take_mean(&w->token_ms[kind], (float) ms / (float) n);
}

void pi__worth_ended(pi__worth *w, int32_t n) { take_mean(&w->answer, (float) n); }

/* Takes ms from the first account down to 0, and the rest from the second one down to least. */
static void settle_accounts(float *first, float *second, float ms, float least)
{
    const float part = *first <= 0 ? 0 : *first < ms ? *first : ms;
    *first -= part;
    *second -= ms - part;
    if (*second < least) *second = least;
}

void pi__worth_settle(pi__worth *w, int kind, int32_t n_seqs, int32_t n_rows, int32_t n_drafts, int32_t n_right)
{
    const float alone = step_ms(w, n_seqs, n_seqs), now = step_ms(w, n_seqs, n_rows);
    float *lost = &w->lost[kind], *owed = &w->owed[kind];
    if (n_drafts) *lost += (now - alone) * (float) n_drafts / (float) (n_rows - n_seqs);
    else w->pass_ms[kind] *= back_all; /* decays the estimate, so that drafting is tried again */
    settle_accounts(owed, lost, alone * (float) n_right / (float) n_seqs, -may_keep * alone);
    if (*lost > 0) *lost -= income * now;
    else if (*owed > 0) *owed -= income * now;
}

/* True if the drafter has not lost too much. */
static bool may_draft(const pi__worth *w, int kind, float alone) { return w->lost[kind] < may_lose * alone; }

/* ---- probability */

/* Returns the assumed acceptance probability before any draft was checked. */
static float prior_probability(int kind, int32_t level)
{
    return kind == PI__SPEC_NGRAM ? 0.4f + 0.07f * (float) level : 0.7f;
}

/* Returns the probability that the next draft of s is accepted if all before it were. */
static float accept_probability(const pi__worth *w, const pi__seq *s)
{
    enum { WEIGHT_ALL = 4, WEIGHT = 2 }; /* weights of the prior, in tries */
    const int kind = s->spec.kind;
    const int32_t level = s->spec.level;
    const float assumed = WEIGHT_ALL * prior_probability(kind, level);
    const float all = (w->hits[kind][level] + assumed) / (w->tries[kind][level] + WEIGHT_ALL);
    const float p = (s->spec.hits[level] + WEIGHT * all) / (s->spec.tries[level] + WEIGHT);
    return p < 0.99f ? p : 0.99f;
}

void pi__worth_verified(pi__worth *w, pi__seq *s, int32_t n, int32_t right)
{
    const int32_t level = s->spec.level;
    float *tries = &w->tries[s->spec.kind][level], *hits = &w->hits[s->spec.kind][level];
    const float looked_at = (float) (right < n ? right + 1 : n);
    s->spec.tries[level] = fade * s->spec.tries[level] + looked_at;
    s->spec.hits[level] = fade * s->spec.hits[level] + (float) right;
    *tries = fade_all * *tries + looked_at;
    *hits = fade_all * *hits + (float) right;
}

/* Decays the statistics while nothing is tried, so that drafting is tried again. */
static void decay_statistics(pi__worth *w, pi__seq *s)
{
    const int32_t level = s->spec.level;
    s->spec.tries[level] *= back, s->spec.hits[level] *= back;
    w->tries[s->spec.kind][level] *= back_all, w->hits[s->spec.kind][level] *= back_all;
}

/* True if enough drafts were checked that the estimate is not mostly the prior. */
static bool is_proven(const pi__worth *w, int kind)
{
    float n = 0;
    for (int32_t l = 0; l < PI__DRAFT_LEVELS; l++) n += w->tries[kind][l];
    return n >= PROVEN;
}

/* ---- the choice */

static int32_t bucket_of(float p)
{
    const float b = -4 * log2f(p);
    return b < BUCKETS - 1 ? (int32_t) b : BUCKETS - 1;
}

/* The offered drafts by probability class: their number, the sum of their probabilities, and by drafter the largest
 * number of drafts of one sequence up to this class. */
typedef struct tally {
    int32_t n[BUCKETS];
    float p[BUCKETS];
    int32_t depth[BUCKETS][PI__N_SPEC];
} tally;

static void count_probabilities(const pi__worth *w, const pi__seq *s, tally *t)
{
    const float p = accept_probability(w, s);
    float right = p;
    for (int32_t j = 1; j <= s->n_wish; j++, right *= p) {
        const int32_t b = bucket_of(right);
        t->n[b]++;
        t->p[b] += right;
        t->depth[b][s->spec.kind] = j > t->depth[b][s->spec.kind] ? j : t->depth[b][s->spec.kind];
    }
}

/* Returns the last probability class from which drafts are taken; -1 = take no drafts. */
static int32_t choose_buckets(const pi__worth *w, const tally *t, int32_t n_seqs, float alone)
{
    float best = min_gain * (float) n_seqs / alone, tokens = (float) n_seqs;
    int32_t rows = n_seqs, last = -1;
    float passes[PI__N_SPEC] = {0};
    for (int32_t b = 0; b < BUCKETS; b++) {
        if (!t->n[b]) continue;
        rows += t->n[b];
        tokens += t->p[b];
        float ms = step_ms(w, n_seqs, rows);
        for (int k = 0; k < PI__N_SPEC; k++) {
            if (t->depth[b][k]) passes[k] = w->once[k] ? 1 : (float) t->depth[b][k];
            ms += passes[k] * pass_ms(w, k, alone);
        }
        if (tokens / ms <= best) continue;
        best = tokens / ms;
        last = b;
    }
    return last;
}

/* Gives all sequences of model drafters the mean of their numbers, limited by spec.n_offer, the number they could
 * get. */
static void make_alike(pi__seq *const *seq, int32_t n)
{
    int32_t all = 0, models = 0;
    for (int32_t i = 0; i < n; i++)
        if (seq[i]->spec.kind != PI__SPEC_NGRAM) all += seq[i]->n_wish, models++;
    const int32_t each = models ? (all + models / 2) / models : 0;
    for (int32_t i = 0; i < n; i++)
        if (seq[i]->spec.kind != PI__SPEC_NGRAM)
            seq[i]->n_wish = each < seq[i]->spec.n_offer ? each : seq[i]->spec.n_offer;
}

/* Limits each unproven drafter to TRIAL drafts: one for each sequence of a full batch could cost as much as steps. */
static void only_try(const pi__worth *w, pi__seq *const *seq, int32_t n)
{
    int32_t left[PI__N_SPEC];
    for (int k = 0; k < PI__N_SPEC; k++) left[k] = is_proven(w, k) ? INT32_MAX : TRIAL;
    for (int32_t i = 0; i < n; i++) {
        int32_t *of = &left[seq[i]->spec.kind];
        if (*of == INT32_MAX) continue;
        if (seq[i]->n_wish > *of) seq[i]->n_wish = *of;
        *of -= seq[i]->n_wish;
    }
}

void pi__worth_choose(pi__worth *w, pi__seq *const *seq, int32_t n, int32_t n_seqs, bool alike)
{
    const pi__worth_cell *base = &w->step[class_of(n_seqs)][cell_of(n_seqs)];
    const float alone = step_ms(w, n_seqs, n_seqs);
    tally t = {0};
    int32_t last = -1;
    for (int32_t i = 0; i < n; i++)
        if (may_draft(w, seq[i]->spec.kind, alone)) count_probabilities(w, seq[i], &t);
    /* without a recent baseline this is a step without drafts, to be measured */
    if (is_known(w, base, OLD_BASE)) last = choose_buckets(w, &t, n_seqs, alone);
    for (int32_t i = 0; i < n; i++) {
        pi__seq *s = seq[i];
        const float p = accept_probability(w, s);
        float right = p;
        int32_t take = 0;
        if (may_draft(w, s->spec.kind, alone))
            for (; take < s->n_wish && bucket_of(right) <= last; take++) right *= p;
        if (s->n_wish && !take) decay_statistics(w, s);
        s->spec.n_offer = s->n_wish;
        s->n_wish = take;
    }
    if (alike) make_alike(seq, n);
    else only_try(w, seq, n);
}

bool pi__worth_wants(const pi__worth *w, const pi__seq *s, int32_t n, int32_t n_max)
{
    enum { ANSWER = 128 /* assumed length of an answer before one has ended, tokens */ };
    const int kind = s->spec.kind;
    const int32_t n_seqs = w->n_seqs > 1 ? w->n_seqs : 1;
    const float alone = step_ms(w, n_seqs, n_seqs), pass = pass_ms(w, kind, alone), p = accept_probability(w, s);
    if (alone <= 0 || !may_draft(w, kind, alone)) return false;
    float gain = 0, tokens = 1, right = p; /* gain: best ratio of the rate with k drafts per sequence to that without */
    for (int32_t k = 1; k <= n_max; k++, right *= p) {
        tokens += right;
        const float ms = step_ms(w, n_seqs, n_seqs * (k + 1)) + (w->once[kind] ? 1 : (float) k) * pass;
        gain = tokens * alone / ms > gain ? tokens * alone / ms : gain;
    }
    if (gain < min_gain) return false;
    if (!is_proven(w, kind) && w->owed[kind] >= may_owe * alone) return false;
    /* many tokens are computed in one pass */
    const float token = w->token_ms[kind] > 0 ? w->token_ms[kind] : pass / 8;
    const float left = (float) (s->max_total - s->n_tokens), answer = w->answer > 0 ? w->answer : ANSWER;
    return (float) n * token < (left < answer ? left : answer) * (1 - 1 / gain) * alone / (float) n_seqs;
}
