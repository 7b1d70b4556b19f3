/* Sampling from the top-k head of a row (sampler_top.c). If it returns a token, the token and its log-probabilities
 * are bitwise those of the full row, for any chain, history, bias and row. It returns a token wherever it should. A
 * device that draws by pi__sampler_draw gets that token, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sampler/sampler_impl.h"

enum { MOST = 3001, SKIPPED = 3 };

static uint64_t rng_state = 88172645463325252u;

static uint64_t rnd(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

static double rnd01(void) { return (double) (rnd() >> 11) * 0x1p-53; }
static int rnd_int(int n) { return (int) (rnd() % (uint64_t) n); }
static float either(float a, float b) { return rnd_int(2) ? a : b; }

/* kind 0: bell shaped; 1: many ties; 2: one peak; 3: flat; 4: most forbidden; 5: zeros of both signs; 6: with NaN; 7:
 * with infinity; 8: all -infinity */
enum { KINDS = 9 };
static void fill(float *x, int n, int kind)
{
    for (int i = 0; i < n; i++) {
        double g = (rnd01() + rnd01() + rnd01() + rnd01() - 2) * 6;
        if (kind == 1) g = (double) rnd_int(7) - 3;
        if (kind == 2) g = i == n / 3 ? 30 : g;
        if (kind == 3) g = 1e-3 * g;
        if (kind == 4 && rnd_int(30)) g = -INFINITY;
        if (kind == 5) g = rnd_int(3) ? -0.0 : rnd_int(2) ? 0.0 : g;
        if (kind == 6 && rnd_int(100) == 0) g = (double) NAN;
        if (kind == 7 && rnd_int(200) == 0) g = INFINITY;
        if (kind == 8) g = i % 2 ? -INFINITY : (double) NAN;
        x[i] = (float) g;
    }
}

/* Returns random parameters: common settings in all combinations, and some unusual ones. */
static pi__sampling random_params(pi__logit_bias *bias, int n_vocab)
{
    static const uint8_t usual[] = {PI__SMP_PENALTIES, PI__SMP_DRY, PI__SMP_TOP_N_SIGMA, PI__SMP_TOP_K, PI__SMP_TYPICAL,
                                    PI__SMP_TOP_P, PI__SMP_MIN_P, PI__SMP_XTC, PI__SMP_TEMPERATURE, PI__SMP_N};
    pi__sampling p = {.seed = rnd(), .temp = rnd_int(5) ? (float) (0.2 + rnd01()) : 0, .top_p = 1, .typical_p = 1,
                      .repeat_penalty = 1, .repeat_last_n = rnd_int(2) ? 64 : -1, .dry_base = 1.75f,
                          .dry_allowed_length = 1,
                      .dry_penalty_last_n = -1, .xtc_threshold = 0.1f};
    if (rnd_int(2)) p.top_k = 1 + rnd_int(rnd_int(2) ? 40 : 400);
    if (rnd_int(2)) p.top_p = (float) rnd01();
    if (rnd_int(3) == 0) p.min_p = (float) (rnd01() * rnd01());
    if (rnd_int(8) == 0) p.typical_p = (float) rnd01();
    if (rnd_int(10) == 0) p.top_n_sigma = 1;
    if (rnd_int(4) == 0) p.repeat_penalty = rnd_int(8) ? 1.1f : 0.9f;
    if (rnd_int(6) == 0) p.presence_penalty = (float) rnd01();
    if (rnd_int(6) == 0) p.frequency_penalty = (float) rnd01();
    if (rnd_int(8) == 0) p.dry_multiplier = 0.8f;
    if (rnd_int(8) == 0) p.xtc_probability = 0.7f;
    if (rnd_int(8) == 0) p.min_keep = rnd_int(5);
    if (rnd_int(6) == 0) {
        p.n_bias = (size_t) (1 + rnd_int(3));
        for (size_t i = 0; i < p.n_bias; i++)
            bias[i] = (pi__logit_bias) {rnd_int(n_vocab), rnd_int(8) ? -either(2.5f, INFINITY) : 1.5f};
        p.bias = bias;
    }
    if (rnd_int(6) == 0) p.dynatemp_range = (float) rnd01();
    p.dynatemp_exponent = 1;
    p.adaptive_target = rnd_int(6) ? -1 : (float) rnd01();
    p.adaptive_decay = 0.9f;
    if (rnd_int(12) == 0) {
        p.mirostat = 1 + rnd_int(2);
        p.mirostat_tau = 3;
        p.mirostat_eta = 0.1f;
    }
    memcpy(p.chain, usual, sizeof usual);
    p.chain[9] = PI__SMP_ADAPTIVE_P;
    p.chain[10] = PI__SMP_N;
    for (int i = 0; i < 9 && rnd_int(10) == 0; i++) { /* another order */
        int a = rnd_int(9), b = rnd_int(9);
        uint8_t t = p.chain[a];
        p.chain[a] = p.chain[b], p.chain[b] = t;
    }
    return p;
}

/* Returns the top-k result of a row as a device reports it, with at most k values. */
static pi__top top_of(const float *row, int n, int k, bool sum, uint64_t *key)
{
    pi__top t = {.key = key};
    float max = pi__row_max(row, n, &t.odd);
    for (int i = 0; i < n; i++)
        if (row[i] > -INFINITY) key[t.n++] = pi__logit_key(row[i], i);
    pi__keys_sort(key, (size_t) t.n);
    t.all = t.n < k;
    if (t.n > k) t.n = k;
    if (sum && !t.odd && t.n) t.sum = pi__row_exp_sum(row, n, max);
    return t;
}

static void check_logprobs(const float *row, int n, const pi__top *t, int32_t id, pi__sampler_scratch *w)
{
    pi_token_prob want[9], got[9];
    if (!t->sum || t->odd || id < 0) return;
    pi__logprobs(row, n, id, 8, want, w);
    pi__logprobs_top(t, id, 8, got);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(want[i].id, got[i].id);
        assert_memory_equal(&want[i].logprob, &got[i].logprob, sizeof(float));
    }
}

/* Applies the penalties of a token to its logit; fed: the latest token, which only the device knows. */
static float lowered(const pi__draw *d, const uint32_t *seen, int32_t fed, float x, int32_t id)
{
    uint32_t count = d->fed && id == fed;
    for (int32_t k = 0; k < d->n_seen; k++)
        if ((seen[k] & ((1u << PI__SEEN_BITS) - 1)) == (uint32_t) id) count += seen[k] >> PI__SEEN_BITS;
    if (!count) return x;
    x = x <= 0 ? x * d->repeat : x / d->repeat;
    return pi__logit_clamp(x - ((float) count * d->frequency + d->presence));
}

/* Applies penalties, and keeps the part of the top k that is above every token outside of the head. */
static void look_back(const pi__draw *d, const uint32_t *seen, int32_t fed, const pi__top *t, pi__cands *v)
{
    uint64_t *key = v->w->key;
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        key[i] = pi__logit_key(lowered(d, seen, fed, pi__key_logit(key[i]), pi__key_id(key[i])), pi__key_id(key[i]));
    pi__keys_sort(key, v->n);
    while (n < v->n && pi__key_logit(key[n]) > -INFINITY && (t->all || key[n] <= t->key[t->n - 1])) n++;
    v->n = d->top_k && n > (size_t) d->top_k ? (size_t) d->top_k : n;
}

/* Returns the token that a device draws from a row's head. */
static int32_t drawn(const pi__draw *d, const uint32_t *seen, int32_t fed, const pi__top *t, pi__sampler_scratch *w,
                     const float *row, float *scribble, int n)
{
    const double u = (double) ((uint64_t) d->high << 32 | d->low) * 0x1p-53;
    pi__cands v = {.w = w, .row = scribble, .n_row = n, .list = !d->row, .n = (size_t) t->n};
    memcpy(w->key, t->key, (size_t) t->n * sizeof *t->key);
    for (int i = 0; i < n; i++) scribble[i] = lowered(d, seen, fed, row[i], i);
    if (v.list && (d->n_seen || d->fed || d->top_k)) look_back(d, seen, fed, t, &v);
    if (v.list && (!v.n || d->temp == 0)) return v.n ? pi__key_id(w->key[0]) : -1;
    if (pi__cands_max(&v) == -INFINITY) return -1;
    if (d->top_p < 1) pi__stage_top_p(&v, d->top_p, 1);
    pi__cands_keep_from(&v, fminf(pi__cands_max(&v) + d->log_min_p, pi__cands_max(&v)));
    if (d->temp != 1) pi__stage_temperature(&v, d->temp);
    pi__keys_sort_by_id(w->key, v.n);
    return pi__keys_draw(w->key, v.n, pi__cands_max(&v), u);
}

/* Returns parameters that a device can sample with, with penalties over a short or long history. */
static pi__sampling with_penalties(uint64_t seed)
{
    pi__sampling p = {.seed = seed,
                      .temp = rnd_int(4) ? (float) (0.2 + rnd01()) : 0,
                      .top_k = rnd_int(4) ? 1 + rnd_int(PI__MAX_TOP - PI__MAX_SEEN) : 0,
                      .top_p = rnd_int(2) ? 1 : (float) rnd01(),
                      .typical_p = 1,
                      .repeat_penalty = rnd_int(2) ? 1 : 1.3f,
                      .repeat_last_n = 1 + rnd_int(rnd_int(2) ? 8 : PI__MAX_SEEN),
                      .presence_penalty = (float) rnd01(),
                      .frequency_penalty = rnd_int(2) ? 0 : (float) rnd01(),
                      .adaptive_target = -1};
    const uint8_t chain[] = {PI__SMP_PENALTIES, PI__SMP_TOP_K,       PI__SMP_TOP_P,
                             PI__SMP_MIN_P,     PI__SMP_TEMPERATURE, PI__SMP_N};
    memcpy(p.chain, chain, sizeof chain);
    return p;
}

/* tokens that a device could draw; n_lowered: with penalties; n_of_row: without top-k */
static int n_drawn, n_lowered, n_of_row;

/* Runs one request: samples some tokens from the head and from the row. Counts the attempts to use the head in
 * *asked, and the tokens that it returned in *given. */
static void run_request(int n, pi__sampler_scratch *w, int *asked, int *given)
{
    static float row[MOST], copy[MOST], scribble[MOST];
    static uint64_t key[MOST];
    pi__logit_bias bias[3];
    const pi__sampling any = random_params(bias, n), p = rnd_int(8) ? any : with_penalties(any.seed);
    const int32_t skipped[SKIPPED] = {rnd_int(n), rnd_int(n), rnd_int(n)};
    pi__sampler *s = NULL;
    pi__draw d = {0};
    uint32_t seen_ahead[PI__MAX_SEEN];
    /* d was computed one token early; it covers the tokens in seen_ahead and the latest token */
    bool ahead = false;
    int32_t fed = -1;
    assert_int_equal(pi__sampler_create(&s, &p, n, 200, NULL), PI_OK);
    for (int i = rnd_int(60); i > 0; i--) pi__sampler_accept(s, rnd_int(n < 30 ? n : 30));
    for (int i = 0; i < 8; i++) {
        const int kind = rnd_int(3) ? 0 : rnd_int(KINDS);
        const size_t n_forbid = rnd_int(5) ? 0 : SKIPPED;
        bool sum;
        fill(row, n, kind);
        uint64_t allowed[(MOST + 63) / 64];
        const bool masked = rnd_int(3) == 0; /* a random part of the tokens is not allowed */
        const int share = 1 + rnd_int(8);
        memset(allowed, 0, sizeof allowed);
        for (int id = 0; id < n; id++) allowed[id >> 6] |= (uint64_t) (rnd_int(8) < share) << (id & 63);
        const int k = pi__sampler_top(s, masked ? 1 : n_forbid, &sum);
        memcpy(copy, row, sizeof copy);
        if (masked) pi__row_allow(copy, n, allowed);
        const int32_t want = pi__sampler_sample(s, w, copy, skipped, n_forbid);
        const float value = s->feedback.value;
        uint32_t seen[PI__MAX_SEEN];
        assert_in_range(k, 0, PI__MAX_TOP);
        if (!masked && !n_forbid && (ahead || pi__sampler_draw(s, 0, &d, seen))) {
            bool with_sum;
            const int most = pi__sampler_draw_top(s, &with_sum);
            const pi__top t = top_of(row, n, most, false, key);
            assert_in_range(most, 1, PI__MAX_TOP);
            if (!t.odd || d.row)
                assert_int_equal(drawn(&d, ahead ? seen_ahead : seen, fed, &t, w, row, scribble, n), want);
            n_drawn += d.temp > 0;
            n_lowered += d.n_seen || d.fed;
            n_of_row += d.row;
        }
        if (k) {
            const bool probs = rnd_int(3) == 0;
            const pi__top t = top_of(row, n, probs && k < 8 ? 8 : k, sum || probs, key);
            const pi__excluded x = {skipped, n_forbid, masked ? allowed : NULL};
            const int32_t got = pi__sampler_sample_top(s, w, &t, scribble, &x);
            if (got != PI__NEED_ROW) assert_int_equal(got, want);
            assert_true(s->feedback.value == value); /* this also determines the next token */
            if (got != PI__NEED_ROW && !masked) check_logprobs(row, n, &t, got, w);
            *asked += kind == 0 && !masked;
            *given += kind == 0 && !masked && got != PI__NEED_ROW;
        }
        ahead = pi__sampler_draw(s, 1, &d, seen_ahead); /* before the drawn token is known */
        fed = want < 0 ? 0 : want;
        pi__sampler_accept(s, fed);
    }
    pi__sampler_free(s);
}

static void test_same(void **state)
{
    static const int sizes[] = {1, 2, 7, 255, 256, 257, 600, 1000, MOST};
    (void) state;
    pi__sampler_scratch *w = NULL;
    assert_int_equal(pi__sampler_scratch_create(&w, MOST, NULL), PI_OK);
    int asked = 0, given = 0;
    for (int i = 0; i < (getenv("PI_TEST_EMULATED") ? 200 : 3000); i++)
        run_request(sizes[(size_t) i % (sizeof sizes / sizeof *sizes)], w, &asked, &given);
    assert_true(given > asked * 3 / 4);
    assert_true(n_drawn > (getenv("PI_TEST_EMULATED") ? 20 : 300));
    assert_true(n_lowered > (getenv("PI_TEST_EMULATED") ? 20 : 300));
    assert_true(n_of_row > (getenv("PI_TEST_EMULATED") ? 20 : 300));
    pi__sampler_scratch_free(w);
}

/* The top-k request to a device matches the request's parameters. */
static void test_asks(void **state)
{
    (void) state;
    static const uint8_t chain[] = {PI__SMP_PENALTIES, PI__SMP_DRY, PI__SMP_TOP_K, PI__SMP_TOP_P, PI__SMP_MIN_P,
                                    PI__SMP_TEMPERATURE, PI__SMP_N};
    static const struct { float temp, repeat, top_p, min_p; int top_k; size_t n_forbid; int k; bool sum; } cases[] = {
        {0, 1, 1, 0, 40, 0, 1, false},             {0, 1, 1, 0, 40, 2, PI__MAX_TOP, false},
        {1, 1, 0.9f, 0.1f, 40, 0, 40, false},      {1, 1, 0.9f, 0.1f, 40, 2, PI__MAX_TOP, false},
        {1, 1.1f, 0.9f, 0, 40, 0, PI__MAX_TOP, false}, {1, 1.1f, 1, 0, 200, 0, 0, false},
        {1, 0.9f, 1, 0, 40, 0, 0, false},          {1, 1, 0.9f, 0.1f, 0, 0, PI__MAX_TOP, true},
        {1, 1.1f, 0.9f, 0, 0, 0, 0, false},        {1, 1.1f, 1, 0.1f, 0, 0, PI__MAX_TOP, false},
        {1, 1, 1, 0, 0, 0, 0, false},              {1, 1, 1, 0, 256, 0, 256, false},
        {1, 1, 1, 0, 257, 0, 0, false},            {0, 1.1f, 1, 0, 0, 0, PI__MAX_TOP, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi__sampling p = {.temp = cases[i].temp, .top_p = cases[i].top_p, .min_p = cases[i].min_p, .typical_p = 1,
                          .top_k = cases[i].top_k, .repeat_penalty = cases[i].repeat, .repeat_last_n = 64};
        memcpy(p.chain, chain, sizeof chain);
        pi__sampler *s = NULL;
        bool sum;
        assert_int_equal(pi__sampler_create(&s, &p, 1000, 100, NULL), PI_OK);
        assert_int_equal(pi__sampler_top(s, cases[i].n_forbid, &sum), cases[i].k);
        assert_int_equal(sum, cases[i].sum);
        pi__sampler_free(s);
    }
}

/* Too much probability of a flat row is outside its head. Also, excluded tokens can leave too few in the head. */
static void test_not_enough(void **state)
{
    (void) state;
    enum { N = 1000 };
    static float row[N], scribble[N];
    uint64_t key[N];
    pi__sampling p = {.temp = 1, .top_p = 0.95f, .typical_p = 1, .repeat_penalty = 1};
    pi__sampler_scratch *w = NULL;
    pi__sampler *s = NULL;
    const int32_t forbid[] = {0, 1, 2, 3};
    assert_int_equal(pi__sampler_scratch_create(&w, N, NULL), PI_OK);
    for (int way = 0; way < 3; way++) {
        for (int i = 0; i < N; i++) row[i] = -1e-3f * (float) i;
        p.chain[0] = way == 0 ? PI__SMP_TOP_P : way == 1 ? PI__SMP_MIN_P : PI__SMP_TOP_K;
        p.chain[1] = PI__SMP_N;
        p.min_p = way == 1 ? 0.5f : 0;
        p.top_k = way == 2 ? 100 : 0;
        assert_int_equal(pi__sampler_create(&s, &p, N, 100, NULL), PI_OK);
        pi__top t = top_of(row, N, way == 2 ? 103 : PI__MAX_TOP, true, key);
        assert_int_equal(pi__sampler_sample_top(s, w, &t, scribble, &(pi__excluded) {.forbid = forbid,
            .n_forbid = way == 2 ? 4 : 0}), PI__NEED_ROW);
        t = top_of(row, N, 104, true, key);
        if (way == 2)
            assert_int_equal(
                pi__sampler_sample_top(s, w, &t, scribble, &(pi__excluded) {.forbid = forbid, .n_forbid = 4}),
                pi__sampler_sample(s, w, row, forbid, 4));
        pi__sampler_free(s);
    }
    pi__sampler_scratch_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_asks),
                                       cmocka_unit_test(test_not_enough)};
    return cmocka_run_group_tests_name("sampler_top", tests, NULL, NULL);
}
