/* The sampler. Every stage is compared with a plain double-precision reference that sorts all candidates. Also the
 * distribution of draws, histories, DRY by brute force, rows with NaN and infinities, and failed allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rounds.h"
#include "sampler/sampler_impl.h"

/* ------------------------------------------------------------------------------------------------------- helpers */

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

/* kind 0: bell shaped; 1: many ties; 2: one peak; 3: flat; 4: with forbidden tokens */
static void fill(float *x, int n, int kind)
{
    for (int i = 0; i < n; i++) {
        double g = (rnd01() + rnd01() + rnd01() + rnd01() - 2) * 4;
        if (kind == 1) g = (double) rnd_int(7) - 3;
        if (kind == 2) g = i == n / 3 ? 30 : g;
        if (kind == 3) g = 1e-3 * g;
        if (kind == 4 && rnd_int(3) == 0) g = -INFINITY;
        x[i] = (float) g;
    }
}

static pi__sampling defaults(void)
{
    static const uint8_t chain[] = {PI__SMP_PENALTIES, PI__SMP_DRY, PI__SMP_TOP_N_SIGMA, PI__SMP_TOP_K, PI__SMP_TYPICAL,
                                    PI__SMP_TOP_P, PI__SMP_MIN_P, PI__SMP_XTC, PI__SMP_TEMPERATURE, PI__SMP_N};
    pi__sampling p = {.seed = 1, .temp = 1, .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .repeat_last_n = 64,
                      .dry_base = 1.75f, .dry_allowed_length = 2, .dry_penalty_last_n = -1, .xtc_threshold = 0.1f};
    memcpy(p.chain, chain, sizeof chain);
    return p;
}

static pi__sampler *make(const pi__sampling *p, int n_vocab, int max_history)
{
    pi__sampler *s = NULL;
    pi_error err;
    assert_int_equal(pi__sampler_create(&s, p, n_vocab, max_history, &err), PI_OK);
    return s;
}

static pi__sampler_scratch *make_scratch(int n)
{
    pi__sampler_scratch *w = NULL;
    assert_int_equal(pi__sampler_scratch_create(&w, n, NULL), PI_OK);
    return w;
}

/* The reference's candidates: sorted by descending logit, then id. */
typedef struct ref {
    int n;
    int id[4096];
    double l[4096], p[4096];
} ref;

static int ref_cmp(const void *a, const void *b)
{
    const double *x = a, *y = b;
    if (x[0] != y[0]) return x[0] > y[0] ? -1 : 1;
    return x[1] < y[1] ? -1 : x[1] > y[1];
}

static void ref_softmax(ref *r)
{
    double sum = 0;
    for (int i = 0; i < r->n; i++) sum += r->p[i] = exp(r->l[i] - r->l[0]);
    for (int i = 0; i < r->n; i++) r->p[i] /= sum;
}

static void ref_from(ref *r, const float *x, int n)
{
    static double pair[4096][2];
    r->n = 0;
    for (int i = 0; i < n; i++) {
        if (!(x[i] > -INFINITY)) continue;
        pair[r->n][0] = (double) x[i];
        pair[r->n++][1] = i;
    }
    qsort(pair, (size_t) r->n, sizeof pair[0], ref_cmp);
    for (int i = 0; i < r->n; i++) {
        r->l[i] = pair[i][0];
        r->id[i] = (int) pair[i][1];
    }
    ref_softmax(r);
}

/* True if two values are so close that single precision may order them either way. */
static bool close_call(double a, double b) { return fabs(a - b) <= 2e-6 * (1 + fabs(a) + fabs(b)); }

static bool ref_has(const ref *r, int id)
{
    for (int i = 0; i < r->n; i++) {
        if (r->id[i] == id) return true;
    }
    return false;
}

static void check_same(pi__cands *v, const ref *r)
{
    pi__cands_list(v);
    assert_int_equal(v->n, r->n);
    for (size_t i = 0; i < v->n; i++) {
        assert_true(ref_has(r, pi__key_id(v->w->key[i])));
        for (size_t j = 0; j < i; j++) assert_true(v->w->key[i] != v->w->key[j]);
    }
}

/* Runs body over rows of several kinds and sizes, as a row and as a shuffled list. */
#define FOR_ROWS(...)                                                                                                  \
    do {                                                                                                               \
        static const int sizes[] = {1, 2, 3, 15, 16, 17, 63, 64, 65, 200, 257, 1000};                                  \
        for (int trial = 0; trial < rounds(400); trial++) {                                                            \
            int n = sizes[rnd_int(12)];                                                                                \
            pi__sampler_scratch *w = make_scratch(n);                                                                  \
            float x[1000];                                                                                             \
            ref r;                                                                                                     \
            fill(x, n, trial % 5);                                                                                     \
            ref_from(&r, x, n);                                                                                        \
            pi__cands v = {.w = w, .row = x, .n_row = n};                                                              \
            if (trial % 2) {                                                                                           \
                pi__cands_list(&v);                                                                                    \
                for (size_t i = v.n; i > 1; i--) {                                                                     \
                    size_t j = (size_t) rnd_int((int) i);                                                              \
                    uint64_t t = w->key[i - 1];                                                                        \
                    w->key[i - 1] = w->key[j];                                                                         \
                    w->key[j] = t;                                                                                     \
                }                                                                                                      \
            }                                                                                                          \
            if (r.n > 0) __VA_ARGS__                                                                                   \
            pi__sampler_scratch_free(w);                                                                               \
        }                                                                                                              \
    } while (0)

/* ------------------------------------------------------------------------------------------- keys, rows, selection */

static void test_keys(void **state)
{
    (void) state;
    static const float order[] = {FLT_MAX, 3, 1, FLT_MIN, 0, -FLT_MIN, -1, -3, -FLT_MAX, -INFINITY};
    for (size_t i = 0; i < 10; i++) {
        assert_true(pi__key_logit(pi__logit_key(order[i], 7)) == order[i]);
        assert_int_equal(pi__key_id(pi__logit_key(order[i], 262143)), 262143);
        for (size_t j = i + 1; j < 10; j++) assert_true(pi__logit_key(order[i], 9) < pi__logit_key(order[j], 3));
    }
    assert_true(pi__logit_key(-0.0f, 5) == pi__logit_key(0.0f, 5));
    assert_true(pi__logit_key(1, 5) < pi__logit_key(1, 6));
}

static void test_argmax(void **state)
{
    (void) state;
    float x[2000];
    for (int trial = 0; trial < rounds(500); trial++) {
        int n = 1 + rnd_int(2000), want = -1;
        fill(x, n, trial % 5);
        for (int i = 0; i < n; i++) {
            if (rnd_int(20) == 0) x[i] = (float) NAN;
            if (trial % 50 == 0) x[i] = trial % 100 ? -INFINITY : (float) NAN;
            if (trial % 7 == 0 && rnd_int(300) == 0) x[i] = INFINITY;
        }
        for (int i = 0; i < n; i++) {
            if (x[i] > -INFINITY && (want < 0 || x[i] > x[want])) want = i;
        }
        assert_int_equal(pi__argmax(x, n), want);
    }
}

static void test_exp(void **state)
{
    (void) state;
    for (float x = 0; x > -87; x -= 0.00137f) {
        double want = exp((double) x);
        assert_true(fabs((double) pi__exp_neg(x) - want) <= 3e-7 * want);
    }
    assert_true(pi__exp_neg(0) == 1);
    assert_true(pi__exp_neg(-88) == 0 && pi__exp_neg(-INFINITY) == 0 && pi__exp_neg(-FLT_MAX) == 0);
}

static int u64_cmp(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return x < y ? -1 : x > y;
}

static void test_select(void **state)
{
    (void) state;
    uint64_t a[3000], b[3000];
    for (int trial = 0; trial < rounds(300); trial++) {
        size_t n = (size_t) rnd_int(3000), k = n ? (size_t) rnd_int((int) n + 1) : 0;
        for (size_t i = 0; i < n; i++) {
            float x = trial % 3 ? (float) rnd_int(50) : trial % 2 ? (float) i : -(float) i;
            a[i] = b[i] = pi__logit_key(x, (int32_t) i);
        }
        qsort(b, n, 8, u64_cmp);
        pi__keys_select(a, n, k);
        qsort(a, k, 8, u64_cmp);
        assert_memory_equal(a, b, k * 8);
        pi__keys_sort(a, n);
        assert_memory_equal(a, b, n * 8);
    }
}

/* Increasing, decreasing and constant rows: the buffer of the best values overflows repeatedly. */
static void test_top_adversarial(void **state)
{
    (void) state;
    enum { N = 20000 };
    pi__sampler_scratch *w = make_scratch(N);
    float *x = malloc(N * sizeof *x);
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < N; i++) {
            x[i] = kind == 0 ? (float) i : kind == 1 ? -(float) i : kind == 2 ? 1 : (float) (i % 100);
        }
        static const int ks[] = {1, 40, 199, 5000, N - 1, N, N + 1};
        for (size_t t = 0; t < 7; t++) {
            size_t got = pi__row_top(x, N, ks[t], w->key), want = (size_t) (ks[t] < N ? ks[t] : N);
            assert_int_equal(got, want);
            pi__keys_sort(w->key, got);
            for (size_t i = 0; i < got; i++) {
                int id = kind == 0 ? N - 1 - (int) i : (int) i;
                if (kind == 3) id = 99 - (int) i / (N / 100) + 100 * ((int) i % (N / 100));
                assert_int_equal(pi__key_id(w->key[i]), id);
            }
        }
    }
    free(x);
    pi__sampler_scratch_free(w);
}

/* --------------------------------------------------------------------------------------------------------- filters */

static void test_top_k(void **state)
{
    (void) state;
    FOR_ROWS({
        int k = 1 + rnd_int(rnd_int(2) ? 8 : 1000);
        if (k < r.n) r.n = k;
        pi__stage_top_k(&v, k);
        check_same(&v, &r);
    });
}

static void test_top_p(void **state)
{
    (void) state;
    int skipped = 0;
    FOR_ROWS({
        float p = trial % 3 ? (float) rnd01() : trial % 2 ? 0.0f : 0.99999f;
        int min_keep = rnd_int(2) ? 0 : rnd_int(9);
        double sum = 0;
        int i = 0;
        bool near = false;
        while (i < r.n) {
            sum += r.p[i++];
            near |= close_call(sum, (double) p);
            if (sum >= (double) p && i >= min_keep) break;
        }
        r.n = i;
        pi__stage_top_p(&v, p, (size_t) min_keep);
        if (near) skipped++;
        else check_same(&v, &r);
    });
    assert_in_range(skipped, 0, 60);
}

static void test_min_p(void **state)
{
    (void) state;
    int skipped = 0;
    FOR_ROWS({
        float p = (float) rnd01();
        int min_keep = rnd_int(2) ? 0 : rnd_int(9), i = 1;
        if (trial % 11 == 0) p = 1;
        bool near = false;
        for (int j = 0; j < r.n; j++) near |= p != 1 && close_call(r.l[j], r.l[0] + log((double) p));
        while (i < r.n && (r.l[i] >= r.l[0] + log((double) p) || i < min_keep)) i++;
        r.n = i;
        pi__stage_min_p(&v, p, (size_t) min_keep);
        if (near) skipped++;
        else check_same(&v, &r);
    });
    assert_in_range(skipped, 0, 60);
}

static void test_top_n_sigma(void **state)
{
    (void) state;
    int skipped = 0;
    FOR_ROWS({
        float ns = (float) (rnd01() * 3 + 0.01);
        double mean = 0, var = 0;
        for (int i = 0; i < r.n; i++) mean += r.l[i] / r.n;
        for (int i = 0; i < r.n; i++) var += (r.l[i] - mean) * (r.l[i] - mean) / r.n;
        double limit = r.l[0] - (double) ns * sqrt(var);
        bool near = false;
        int kept = 0;
        for (int i = 0; i < r.n; i++) {
            near |= close_call(r.l[i], limit);
            if (r.n == 1 || r.l[i] >= limit) kept = i + 1;
        }
        r.n = kept;
        pi__stage_top_n_sigma(&v, ns);
        pi__cands_list(&v);
        if (near && r.n > 1) skipped++;
        else if (!near) check_same(&v, &r);
    });
    assert_in_range(skipped, 0, 60);
}

static void test_typical(void **state)
{
    (void) state;
    int skipped = 0;
    FOR_ROWS({
        float p = (float) rnd01();
        int min_keep = rnd_int(2) ? 0 : rnd_int(5);
        double h = 0, sum = 0;
        static double s[4096][2];
        for (int i = 0; i < r.n; i++) h -= r.p[i] > 0 ? r.p[i] * log(r.p[i]) : 0;
        for (int i = 0; i < r.n; i++) {
            s[i][0] = -fabs(-log(r.p[i]) - h);
            s[i][1] = r.id[i];
        }
        qsort(s, (size_t) r.n, sizeof s[0], ref_cmp);
        int n_kept = 0;
        ref kept = {0};
        bool near = false;
        while (n_kept < r.n) {
            double pi = 0;
            for (int i = 0; i < r.n; i++) {
                if (r.id[i] == (int) s[n_kept][1]) pi = r.p[i];
            }
            kept.id[n_kept] = (int) s[n_kept][1];
            n_kept++;
            sum += pi;
            near |= close_call(sum, (double) p);
            if (sum > (double) p && n_kept >= min_keep) break;
        }
        /* If the next one is equally typical (a tie of both sides, or of equal logits in double only), either set is
         * correct. */
        if (n_kept < r.n) near |= close_call(s[n_kept - 1][0], s[n_kept][0]);
        kept.n = n_kept;
        pi__stage_typical(&v, p, (size_t) min_keep);
        if (near) skipped++;
        else check_same(&v, &kept);
    });
    assert_in_range(skipped, 0, 250);
}

static void test_xtc_stage(void **state)
{
    (void) state;
    int skipped = 0;
    FOR_ROWS({
        float t = trial % 5 ? (float) rnd01() * 0.5f : (float) rnd01() * 0.01f;
        int min_keep = rnd_int(2) ? 0 : rnd_int(30), last = 0;
        bool near = false;
        for (int i = 0; i < r.n; i++) {
            near |= close_call(r.p[i], (double) t);
            if (r.p[i] >= (double) t) last = i;
        }
        if (last > 0 && r.n - last >= min_keep) {
            for (int i = last; i < r.n; i++) r.id[i - last] = r.id[i];
            r.n -= last;
        }
        pi__stage_xtc(&v, t, (size_t) min_keep);
        if (near) skipped++;
        else check_same(&v, &r);
    });
    assert_in_range(skipped, 0, 60);
}

static void test_temperature_stage(void **state)
{
    (void) state;
    FOR_ROWS({
        float t = (float) (0.05 + rnd01() * 3);
        pi__stage_temperature(&v, t);
        pi__cands_list(&v);
        assert_int_equal(v.n, r.n);
        for (size_t i = 0; i < v.n; i++) {
            for (int j = 0; j < r.n; j++) {
                if (r.id[j] != pi__key_id(w->key[i])) continue;
                assert_true(close_call((double) pi__key_logit(w->key[i]), r.l[j] / (double) t));
            }
        }
    });
}

/* -------------------------------------------------------------------------------------------------- complete chain */

enum { DRAWN_TOKENS = 40000 };

/* Draws many tokens of one row and compares their counts with the probabilities. The chi-square limit is far below
 * the value of a wrong distribution; for k degrees of freedom, k + 5 sqrt(2k) is exceeded about once in a million. */
static void check_distribution(const pi__sampling *p, const float *x, int n, const double *prob)
{
    pi__sampler *s = make(p, n, DRAWN_TOKENS);
    pi__sampler_scratch *w = make_scratch(n);
    float *row = malloc((size_t) n * sizeof *row);
    double *count = calloc((size_t) n, sizeof *count), chi = 0, rest = 0, rest_count = 0;
    int k = -1;
    for (int i = 0; i < DRAWN_TOKENS; i++) {
        memcpy(row, x, (size_t) n * sizeof *row);
        int32_t id = pi__sampler_sample(s, w, row, NULL, 0);
        assert_in_range(id, 0, n - 1);
        assert_true(prob[id] > 0);
        count[id]++;
        pi__sampler_accept(s, id);
    }
    for (int i = 0; i < n; i++) {
        double e = prob[i] * DRAWN_TOKENS;
        if (e < 8) {
            rest += e;
            rest_count += count[i];
            continue;
        }
        chi += (count[i] - e) * (count[i] - e) / e;
        k++;
    }
    if (rest >= 8) {
        chi += (rest_count - rest) * (rest_count - rest) / rest;
        k++;
    }
    assert_true(chi < k + 5 * sqrt(2.0 * k) + 1);
    free(row);
    free(count);
    pi__sampler_free(s);
    pi__sampler_scratch_free(w);
}

static void probabilities(const ref *r, double temp, double *prob, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) prob[i] = 0;
    for (int i = 0; i < r->n; i++) sum += exp((r->l[i] - r->l[0]) / temp);
    for (int i = 0; i < r->n; i++) prob[r->id[i]] = exp((r->l[i] - r->l[0]) / temp) / sum;
}

static void test_distribution(void **state)
{
    (void) state;
    enum { N = 700 };
    float x[N];
    double prob[N];
    ref r = {0};
    fill(x, N, 0);
    for (int seed = 1; seed <= (crossed() ? 1 : 3); seed++) { /* the full row */
        pi__sampling p = defaults();
        p.seed = (uint64_t) seed;
        p.temp = seed == 1 ? 1 : 0.7f;
        ref_from(&r, x, N);
        probabilities(&r, (double) p.temp, prob, N);
        check_distribution(&p, x, N, prob);
        p.top_k = 20; /* a list */
        r.n = 20;
        probabilities(&r, (double) p.temp, prob, N);
        check_distribution(&p, x, N, prob);
    }
}

static void test_xtc_probability(void **state)
{
    (void) state;
    float x[] = {logf(0.4f), logf(0.3f), logf(0.2f), logf(0.1f)};
    pi__sampling p = defaults();
    p.xtc_probability = 0.5f;
    p.xtc_threshold = 0.15f;
    /* Half of the time, 0 and 1 are removed (0.2 is the last above the threshold), and 0.2 : 0.1 remains. */
    double prob[] = {0.2, 0.15, 0.1 + 1 / 3.0, 0.05 + 0.5 / 3.0};
    check_distribution(&p, x, 4, prob);
    p.xtc_threshold = 0.51f; /* disabled */
    double plain[] = {0.4, 0.3, 0.2, 0.1};
    check_distribution(&p, x, 4, plain);
    p.xtc_threshold = 0.35f; /* only one token reaches the threshold: it stays */
    check_distribution(&p, x, 4, plain);
    p.xtc_threshold = 0.15f;
    p.min_keep = 3; /* two would be left, fewer than min_keep */
    check_distribution(&p, x, 4, plain);
    p.min_keep = 2;
    check_distribution(&p, x, 4, prob);
    p.xtc_probability = 1;
    p.xtc_threshold = 0; /* all reach the threshold: the least likely remains */
    p.min_keep = 0;
    double last[] = {0, 0, 0, 1};
    check_distribution(&p, x, 4, last);
}

/* The default chain with all stages enabled, compared with the stages in double precision. */
static void test_chain(void **state)
{
    (void) state;
    enum { N = 900 };
    float x[N];
    double prob[N];
    ref r = {0};
    fill(x, N, 0);
    pi__sampling p = defaults();
    p.top_n_sigma = 2.5f;
    p.top_k = 100;
    p.top_p = 0.8f;
    p.min_p = 0.15f;
    p.temp = 1.3f;
    ref_from(&r, x, N);
    double mean = 0, var = 0, sum = 0;
    for (int i = 0; i < r.n; i++) mean += r.l[i] / r.n;
    for (int i = 0; i < r.n; i++) var += (r.l[i] - mean) * (r.l[i] - mean) / r.n;
    while (r.l[r.n - 1] < r.l[0] - 2.5 * sqrt(var)) r.n--;
    if (r.n > 100) r.n = 100;
    ref_softmax(&r);
    int keep = 0;
    while (sum < (double) p.top_p) sum += r.p[keep++];
    r.n = keep;
    while (r.l[r.n - 1] < r.l[0] + log(0.15)) r.n--;
    assert_in_range(r.n, 3, 60);
    probabilities(&r, 1.3, prob, N);
    check_distribution(&p, x, N, prob);
}

/* Temperature first: top-p sees the flattened distribution. */
static void test_chain_order(void **state)
{
    (void) state;
    float x[] = {4, 3, 2, 1, 0};
    pi__sampling p = defaults();
    p.temp = 3;
    p.top_p = 0.6f;
    double prob[5];
    ref r = {0};
    ref_from(&r, x, 5);
    r.n = 1; /* 0.64 of the raw distribution */
    probabilities(&r, 3, prob, 5);
    check_distribution(&p, x, 5, prob);
    p.chain[0] = PI__SMP_TEMPERATURE;
    p.chain[1] = PI__SMP_TOP_P;
    p.chain[2] = PI__SMP_N;
    ref_from(&r, x, 5);
    for (int i = 0; i < 5; i++) r.l[i] /= 3;
    ref_softmax(&r);
    assert_true(r.p[0] + r.p[1] < 0.6 && r.p[0] + r.p[1] + r.p[2] > 0.6);
    r.n = 3;
    probabilities(&r, 1, prob, 5);
    check_distribution(&p, x, 5, prob);
}

static void draw(const pi__sampling *p, int32_t *out, int n, pi__sampler *company)
{
    float x[300], y[300];
    pi__sampler *s = make(p, 300, 1000);
    pi__sampler_scratch *w = make_scratch(300);
    uint64_t keep = rng_state;
    for (int i = 0; i < n; i++) {
        rng_state = (uint64_t) i * 977 + 5;
        fill(x, 300, 0);
        memcpy(y, x, sizeof x);
        if (company) pi__sampler_accept(company, pi__sampler_sample(company, w, y, NULL, 0));
        out[i] = pi__sampler_sample(s, w, x, NULL, 0);
        pi__sampler_accept(s, out[i]);
    }
    rng_state = keep;
    pi__sampler_free(s);
    pi__sampler_scratch_free(w);
}

static void test_seed(void **state)
{
    (void) state;
    int32_t a[200], b[200];
    pi__sampling p = defaults();
    p.top_k = 50;
    p.repeat_penalty = 1.1f;
    p.xtc_probability = 0.3f;
    p.seed = 42;
    draw(&p, a, 200, NULL);
    draw(&p, b, 200, NULL);
    assert_memory_equal(a, b, sizeof a);
    pi__sampling q = p;
    q.seed = 7;
    pi__sampler *company = make(&q, 300, 1000);
    draw(&p, b, 200, company);
    assert_memory_equal(a, b, sizeof a);
    pi__sampler_free(company);
    draw(&q, b, 200, NULL);
    int same = 0;
    for (int i = 0; i < 200; i++) same += a[i] == b[i];
    assert_in_range(same, 0, 100);
}

/* Sampling twice at one position gives the same token; accepting a token advances the state. */
static void test_redraw(void **state)
{
    (void) state;
    float x[300], row[300];
    pi__sampling p = defaults();
    pi__sampler *s = make(&p, 300, 100);
    pi__sampler_scratch *w = make_scratch(300);
    int changes = 0;
    fill(x, 300, 3);
    for (int i = 0; i < 50; i++) {
        int32_t id[2];
        for (int j = 0; j < 2; j++) {
            memcpy(row, x, sizeof x);
            id[j] = pi__sampler_sample(s, w, row, NULL, 0);
        }
        assert_int_equal(id[0], id[1]);
        pi__sampler_accept(s, id[0]);
        memcpy(row, x, sizeof x);
        changes += pi__sampler_sample(s, w, row, NULL, 0) != id[0];
    }
    assert_in_range(changes, 45, 50);
    pi__sampler_free(s);
    pi__sampler_scratch_free(w);
}

static void test_greedy(void **state)
{
    (void) state;
    float x[500], row[500];
    pi__sampler_scratch *w = make_scratch(500);
    for (int trial = 0; trial < rounds(100); trial++) {
        fill(x, 500, trial % 5);
        pi__sampling p = defaults();
        p.temp = trial % 2 ? 0 : -1;
        p.top_k = rnd_int(50);
        p.top_p = (float) rnd01();
        p.min_p = (float) rnd01();
        p.top_n_sigma = (float) rnd01();
        p.xtc_probability = 0; /* XTC would run after the filters, before the temperature */
        pi__sampler *s = make(&p, 500, 10);
        assert_true(pi__sampler_is_argmax(s));
        memcpy(row, x, sizeof x);
        assert_int_equal(pi__sampler_sample(s, w, row, NULL, 0), pi__argmax(x, 500));
        pi__sampler_free(s);
        p.xtc_probability = 1;
        p.xtc_threshold = 0;
        p.top_p = 1;
        p.min_p = 0;
        p.top_n_sigma = 0;
        p.top_k = 2;
        s = make(&p, 500, 10); /* the better of two is always removed */
        assert_false(pi__sampler_is_argmax(s));
        memcpy(row, x, sizeof x);
        int32_t best = pi__argmax(x, 500), got = pi__sampler_sample(s, w, row, NULL, 0);
        x[best] = -INFINITY;
        assert_int_equal(got, pi__argmax(x, 500));
        pi__sampler_free(s);
    }
    pi__sampler_scratch_free(w);
}

static void test_is_argmax(void **state)
{
    (void) state;
    pi__logit_bias bias = {3, 1};
    for (int i = 0; i < 6; i++) {
        pi__sampling p = defaults();
        p.temp = 0;
        if (i == 1) p.temp = 0.1f;
        if (i == 2) p.repeat_penalty = 1.1f;
        if (i == 3) p.dry_multiplier = 1;
        if (i == 4) p.bias = &bias, p.n_bias = 1;
        if (i == 5) p.typical_p = 0.5f;
        pi__sampler *s = make(&p, 10, 10);
        assert_int_equal(pi__sampler_is_argmax(s), i == 0);
        pi__sampler_free(s);
    }
}

static void test_bias_and_forbid(void **state)
{
    (void) state;
    pi__sampling p = defaults();
    pi__logit_bias bias[] = {{1, 2.5f}, {0, -INFINITY}, {1, 0.5f}};
    p.temp = 0;
    p.bias = bias;
    p.n_bias = 3;
    pi__sampler *s = make(&p, 4, 10);
    bias[0].id = 2; /* the sampler has its own copy */
    pi__sampler_scratch *w = make_scratch(4);
    float a[] = {9, 1, 3, 3.5f}, b[] = {9, 1, 3, 4.5f};
    assert_int_equal(pi__sampler_sample(s, w, a, NULL, 0), 1);
    assert_true(a[1] == 4 && a[0] == -INFINITY);
    const int32_t forbid[] = {3, -1, 4, 1};
    assert_int_equal(pi__sampler_sample(s, w, b, forbid, 4), 2);
    pi__sampler_free(s);
    pi__sampler_scratch_free(w);
}

/* The reported token is the drawn one, and the reported probabilities are the ones after the last stage. */
static void test_drawn(void **state)
{
    (void) state;
    enum { N = 300, MOST = 12 };
    pi__sampler_scratch *w = make_scratch(N);
    for (int trial = 0; trial < rounds(200); trial++) {
        const int kind = trial % 5;
        pi_token_prob out[MOST + 1];
        float x[N], y[N];
        ref r;
        pi__sampling p = defaults();
        p.seed = (uint64_t) trial;
        p.temp = kind == 4 ? 0 : 0.5f + (float) rnd01();
        if (kind == 1 || kind == 4) p.top_k = 1 + rnd_int(MOST);
        if (kind == 2) p.top_p = (float) rnd01();
        if (kind == 3) p.min_p = 0.3f * (float) rnd01(), p.repeat_penalty = 1.2f;
        fill(x, N, trial % 4);
        memcpy(y, x, sizeof x);
        pi__sampler *s = make(&p, N, 10), *t = make(&p, N, 10);
        pi__sampler_accept(s, 5), pi__sampler_accept(t, 5);
        const int32_t id = pi__sampler_sample(s, w, y, NULL, 0);
        memcpy(y, x, sizeof x);
        assert_int_equal(pi__sampler_sample_drawn(t, w, y, NULL, 0, MOST, out), id);
        assert_int_equal(out[0].id, id);
        if (kind == 3) x[5] = x[5] > 0 ? x[5] / 1.2f : x[5] * 1.2f;
        ref_from(&r, x, N);
        double own = 0, sum = 0;
        int left = 0;
        for (; left < MOST && out[1 + left].id >= 0; left++) {
            const double q = exp((double) out[1 + left].logprob);
            sum += q;
            if (out[1 + left].id == id) own = q;
            assert_true(!left || out[1 + left].logprob <= out[left].logprob);
            if (p.temp > 0) /* ratios equal the row's ratios at this temperature */
                assert_true(fabs(log(q) - (double) out[1].logprob - (r.l[left] - r.l[0]) / (double) p.temp) < 1e-4);
        }
        assert_true(sum < 1 + 1e-5 && (left == MOST || sum > 1 - 1e-5));
        assert_true(left == MOST || fabs(own - exp((double) out[0].logprob)) < 1e-6);
        if (kind == 1) assert_int_equal(left, p.top_k);
        if (kind == 4) assert_true(left == 1 && own == 1);
        pi__sampler_free(s), pi__sampler_free(t);
    }
    pi__sampler_scratch_free(w);
}

static void test_bad_rows(void **state)
{
    (void) state;
    enum { N = 130 };
    pi__sampler_scratch *w = make_scratch(N);
    for (int kind = 0; kind < 12; kind++) {
        pi__sampling p = defaults();
        p.temp = kind == 0 ? 0 : kind == 1 ? 1 : 0.5f;
        if (kind == 3) p.top_k = 10;
        if (kind == 4) p.top_p = 0.9f;
        if (kind == 5) p.min_p = 0.1f;
        if (kind == 6) p.typical_p = 0.9f;
        if (kind == 7) p.top_n_sigma = 1;
        if (kind == 8) p.xtc_probability = 1;
        if (kind == 9) p.repeat_penalty = 1.5f;
        if (kind == 10) p.dry_multiplier = 1;
        if (kind == 11) p.temp = 1e-38f;
        pi__sampler *s = make(&p, N, 100);
        float row[N];
        for (int i = 0; i < N; i++) {
            row[i] = i % 2 ? (float) NAN : -INFINITY;
            pi__sampler_accept(s, i % 5);
        }
        assert_int_equal(pi__sampler_sample(s, w, row, NULL, 0), -1);
        for (int i = 0; i < N; i++) row[i] = i == 77 ? -5 : i % 2 ? (float) NAN : -INFINITY;
        assert_int_equal(pi__sampler_sample(s, w, row, NULL, 0), 77);
        /* +inf is larger than every finite value */
        for (int i = 0; i < N; i++) row[i] = i == 100 ? INFINITY : i % 3 ? (float) (i % 7) : (float) NAN;
        assert_int_equal(pi__sampler_sample(s, w, row, NULL, 0), 100);
        for (int i = 0; i < N; i++) row[i] = i == 99 ? FLT_MAX : i % 3 ? -FLT_MAX : -INFINITY;
        assert_int_equal(pi__sampler_sample(s, w, row, NULL, 0), 99);
        pi__sampler_free(s);
    }
    /* With a tiny temperature, the largest logit is always chosen, even with a close second. */
    pi__sampling p = defaults();
    p.temp = 1e-38f;
    pi__sampler *s = make(&p, 3, 10);
    float row[] = {5, 5.001f, 4};
    assert_int_equal(pi__sampler_sample(s, w, row, NULL, 0), 1);
    pi__sampler_free(s);
    pi__sampler_scratch_free(w);
}

/* ------------------------------------------------------------------------------------------------------- penalties */

static void test_penalties(void **state)
{
    (void) state;
    enum { N = 60, HISTORY = 400 };
    static const int windows[] = {0, 1, 2, 7, 64, 1000, -1};
    pi__sampler_scratch *w = make_scratch(N);
    for (int trial = 0; trial < rounds(60); trial++) {
        int window = windows[trial % 7], all = HISTORY / (1 + trial % 3);
        pi__sampling p = defaults();
        p.repeat_last_n = window;
        p.repeat_penalty = (float) (0.7 + rnd01());
        p.frequency_penalty = trial % 2 ? (float) rnd01() - 0.3f : 0;
        p.presence_penalty = trial % 4 < 2 ? (float) rnd01() : 0;
        if (trial % 5 == 0) p.dry_multiplier = 1e-30f; /* DRY's longer window must not disturb the counts */
        pi__sampler *s = make(&p, N, all);
        int32_t history[HISTORY];
        int reach = window < 0 || window > all ? all : window;
        for (int t = 0; t < HISTORY; t++) {
            history[t] = rnd_int(rnd_int(2) ? N : 5) - (rnd_int(30) == 0 ? 100 : 0); /* some are not tokens */
            pi__sampler_accept(s, history[t]);
            if (t % 13 && t > 20) continue;
            float x[N], y[N];
            fill(x, N, 4);
            memcpy(y, x, sizeof x);
            pi__cands v = {.w = w, .row = x, .n_row = N};
            bool list = rnd_int(2);
            if (list) pi__cands_list(&v);
            for (const uint8_t *c = s->chain; *c != PI__SMP_N; c++) {
                if (*c == PI__SMP_PENALTIES) pi__stage_penalties(&v, s);
            }
            for (size_t i = 0; list && i < v.n; i++) x[pi__key_id(w->key[i])] = pi__key_logit(w->key[i]);
            for (int id = 0; id < N; id++) {
                int count = 0;
                double want = (double) y[id];
                for (int j = t; j >= 0 && j > t - reach; j--) count += history[j] == id;
                if (count) {
                    want = want <= 0 ? want * (double) p.repeat_penalty : want / (double) p.repeat_penalty;
                    want -= count * (double) p.frequency_penalty + (double) p.presence_penalty;
                }
                if (y[id] == -INFINITY) assert_true(x[id] == -INFINITY);
                else assert_true(close_call((double) x[id], want));
            }
        }
        pi__sampler_free(s);
    }
    pi__sampler_scratch_free(w);
}

/* Computes DRY's penalty of each token directly from its definition. */
static void dry_reference(const pi__sampling *p, const int32_t *h, int n, int n_vocab, int max_history, double *out)
{
    int window = p->dry_penalty_last_n < 0 || p->dry_penalty_last_n > max_history ? max_history : p->dry_penalty_last_n;
    for (int i = 0; i < n_vocab; i++) out[i] = 0;
    if (n > window) h += n - window, n = window;
    if (n <= p->dry_allowed_length) return;
    int limit = n;
    for (int i = n - 1; i >= 0 && limit == n; i--) { /* the newest position at which a breaker starts */
        int longest = 0;
        for (size_t b = 0; b < p->n_dry_breakers; b++) {
            int len = 0;
            while (p->dry_breakers[b][len] >= 0 && i + len < n && h[i + len] == p->dry_breakers[b][len]) len++;
            if (p->dry_breakers[b][len] < 0 && len > longest) longest = len;
        }
        if (longest) limit = n - i - longest;
    }
    if (limit < p->dry_allowed_length) return;
    /* compares the tokens before `end` with the newest ones; h[end] would continue the repetition */
    for (int end = 1; end < n; end++) {
        int len = 0;
        while (len < end && h[end - 1 - len] == h[n - 1 - len]) len++;
        if (len > limit) len = limit;
        bool breaker = h[end] < 0;
        for (size_t b = 0; b < p->n_dry_breakers; b++) {
            breaker |= p->dry_breakers[b][0] == h[end] && p->dry_breakers[b][1] < 0;
        }
        if (len < p->dry_allowed_length || breaker) continue;
        double v = (double) p->dry_multiplier * pow((double) p->dry_base, len - p->dry_allowed_length);
        if (v > out[h[end]]) out[h[end]] = v;
    }
}

static void check_dry(const pi__sampling *p, const int32_t *h, int n, int n_vocab, int max_history, bool list)
{
    double want[64];
    float x[64] = {0}, y[64] = {0};
    pi__sampler_scratch *w = make_scratch(n_vocab);
    pi__sampler *s = make(p, n_vocab, max_history);
    for (int i = 0; i < n; i++) pi__sampler_accept(s, h[i]);
    dry_reference(p, h, n, n_vocab, max_history, want);
    for (int call = 0; call < 2; call++) { /* no state remains from the first call */
        pi__cands v = {.w = w, .row = x, .n_row = n_vocab};
        memcpy(x, y, sizeof x);
        if (list) pi__cands_list(&v);
        pi__stage_dry(&v, s);
        for (size_t i = 0; list && i < v.n; i++) x[pi__key_id(w->key[i])] = pi__key_logit(w->key[i]);
        for (int i = 0; i < n_vocab; i++) assert_true(close_call(-(double) x[i], want[i]));
    }
    pi__sampler_free(s);
    pi__sampler_scratch_free(w);
}

static void test_dry_worked_example(void **state)
{
    (void) state;
    enum { A, B, C, Y };
    const int32_t h[] = {A, B, C, C, B, C, Y, A, B, C};
    pi__sampling p = defaults();
    p.dry_multiplier = 0.8f;
    p.dry_base = 1.75f;
    p.dry_allowed_length = 2;
    pi__sampler *s = make(&p, 4, 100);
    pi__sampler_scratch *w = make_scratch(4);
    for (int i = 0; i < 10; i++) pi__sampler_accept(s, h[i]);
    float x[4] = {0};
    pi__cands v = {.w = w, .row = x, .n_row = 4};
    pi__stage_dry(&v, s);
    assert_true(x[A] == 0);
    assert_true(x[B] == 0); /* would repeat one token only */
    assert_true(close_call((double) x[C], -0.8 * 1.75)); /* "a b c" -> "a b c c": three */
    assert_true(close_call((double) x[Y], -0.8));        /* "b c" -> "b c y": two */
    pi__sampler_free(s);
    /* b c is a breaker: only the tokens after it count, and there are none. */
    const int32_t bc[] = {B, C, -1}, *breakers[] = {bc};
    p.dry_breakers = breakers;
    p.n_dry_breakers = 1;
    s = make(&p, 4, 100);
    for (int i = 0; i < 10; i++) pi__sampler_accept(s, h[i]);
    float z[4] = {0};
    v = (pi__cands) {.w = w, .row = z, .n_row = 4};
    pi__stage_dry(&v, s);
    for (int i = 0; i < 4; i++) assert_true(z[i] == 0);
    pi__sampler_free(s);
    pi__sampler_scratch_free(w);
}

static void test_dry_random(void **state)
{
    (void) state;
    static const int32_t b0[] = {0, -1}, b1[] = {1, 2, -1}, b2[] = {1, 2, 2, -1}, b3[] = {2, -1}, none[] = {-1};
    static const int32_t *const sets[][3] = {{b1, b2, none}, {b0, b1, b1}, {b3, b2, b0}, {b2, b2, b2}};
    int32_t h[300];
    for (int trial = 0; trial < rounds(3000); trial++) {
        int n = rnd_int(trial % 10 ? 40 : 300), alphabet = 1 + rnd_int(5), max_history = 1 + rnd_int(300);
        for (int i = 0; i < n; i++) h[i] = rnd_int(alphabet) - (trial % 4 == 0 && rnd_int(40) == 0 ? 9 : 0);
        pi__sampling p = defaults();
        p.dry_multiplier = 0.5f + (float) rnd01();
        p.dry_base = 1 + (float) rnd01() * 0.2f;
        p.dry_allowed_length = rnd_int(4);
        p.dry_penalty_last_n = trial % 3 ? -1 : 1 + rnd_int(50);
        if (trial % 2) {
            p.dry_breakers = sets[rnd_int(4)];
            p.n_dry_breakers = trial % 4 == 1 ? 3 : 1;
        }
        check_dry(&p, h, n, 8, max_history, rnd_int(2));
    }
}

/* With a long repetition, the penalty stays finite and the work linear (quadratic work would take minutes). */
static void test_dry_long(void **state)
{
    (void) state;
    enum { LONG = 300000 };
    pi__sampling p = defaults();
    p.dry_multiplier = 1;
    pi__sampler *s = make(&p, 8, LONG);
    pi__sampler_scratch *w = make_scratch(8);
    for (int i = 0; i < LONG; i++) pi__sampler_accept(s, i % 2);
    float x[8] = {0};
    pi__cands v = {.w = w, .row = x, .n_row = 8};
    pi__stage_dry(&v, s);
    assert_true(x[0] < -1e30f && x[0] > -INFINITY && x[1] == 0);
    pi__sampler_free(s);
    pi__sampler_scratch_free(w);
}

/* -------------------------------------------------------------------------------------------------------- logprobs */

static void test_logprobs(void **state)
{
    (void) state;
    enum { N = 1000 };
    float x[N];
    ref r = {0};
    pi_token_prob out[21];
    pi__sampler_scratch *w = make_scratch(N);
    for (int trial = 0; trial < rounds(50); trial++) {
        fill(x, N, trial % 5);
        if (trial % 7 == 0) x[5] = (float) NAN;
        ref_from(&r, x, N);
        int n = rnd_int(21), id = rnd_int(N);
        pi__logprobs(x, N, id, n, out, w);
        double own = -INFINITY;
        for (int i = 0; i < r.n; i++) {
            if (r.id[i] == id) own = log(r.p[i]);
        }
        assert_int_equal(out[0].id, id);
        assert_true(own == -INFINITY ? out[0].logprob == -INFINITY : close_call((double) out[0].logprob, own));
        for (int i = 0; i < n; i++) {
            assert_int_equal(out[1 + i].id, r.id[i]);
            assert_true(close_call((double) out[1 + i].logprob, log(r.p[i])));
        }
    }
    for (int i = 0; i < N; i++) x[i] = -INFINITY;
    x[3] = 1;
    pi__logprobs(x, N, 3, 2, out, w);
    assert_true(out[0].logprob == 0 && out[1].id == 3 && out[2].id == -1 && out[2].logprob == -INFINITY);
    pi__sampler_scratch_free(w);
}

/* ------------------------------------------------------------------------------------------------- errors, memory */

static void test_refusals(void **state)
{
    (void) state;
    pi__logit_bias bias = {10, 1};
    for (int i = 0; i < 20; i++) {
        pi__sampling p = defaults();
        switch (i) {
        case 0: p.temp = (float) NAN; break;
        case 1: p.temp = INFINITY; break;
        case 2: p.top_p = -0.1f; break;
        case 3: p.top_p = (float) NAN; break;
        case 4: p.min_p = 1.5f; break;
        case 5: p.typical_p = (float) NAN; break;
        case 6: p.repeat_penalty = 0; break;
        case 7: p.repeat_penalty = -1; break;
        case 8: p.presence_penalty = INFINITY; break;
        case 9: p.frequency_penalty = (float) NAN; break;
        case 10: p.repeat_last_n = -2; break;
        case 11: p.dry_penalty_last_n = -2; break;
        case 12: p.dry_allowed_length = -1; break;
        case 13: p.dry_multiplier = INFINITY; break;
        case 14: p.min_keep = -1; break;
        case 15: p.bias = &bias, p.n_bias = 1; break;
        case 16: bias.id = 9, bias.bias = (float) NAN, p.bias = &bias, p.n_bias = 1; break;
        case 17: p.chain[2] = PI__SMP_N + 1; break;
        case 18: memset(p.chain, PI__SMP_TOP_K, sizeof p.chain); break;
        default: p.xtc_threshold = (float) NAN; break;
        }
        pi__sampler *s = (pi__sampler *) (void *) &p;
        pi_error err = {0};
        assert_int_equal(pi__sampler_create(&s, &p, 10, 10, &err), PI_EINVAL);
        assert_null(s);
        assert_true(err.msg[0] != 0);
    }
    pi__sampling p = defaults();
    pi__sampler *s;
    pi__sampler_scratch *w;
    assert_int_equal(pi__sampler_create(&s, &p, 0, 10, NULL), PI_EINVAL);
    assert_int_equal(pi__sampler_create(&s, &p, 10, 0, NULL), PI_EINVAL);
    assert_int_equal(pi__sampler_scratch_create(&w, 0, NULL), PI_EINVAL);
    pi__sampler_free(NULL);
    pi__sampler_scratch_free(NULL);
}

static long fail_at, n_live;

static void *count_malloc(void *ud, size_t size)
{
    (void) ud;
    if (fail_at-- == 0) return NULL;
    n_live++;
    return malloc(size);
}

static void *count_realloc(void *ud, void *p, size_t size)
{
    if (!p) return count_malloc(ud, size);
    return fail_at-- == 0 ? NULL : realloc(p, size);
}

static void count_free(void *ud, void *p)
{
    (void) ud;
    n_live -= p != NULL;
    free(p);
}

static void test_out_of_memory(void **state)
{
    (void) state;
    if (crossed()) skip(); /* does not depend on the processor */
    const pi_allocator a = {.size = sizeof a, .malloc = count_malloc, .realloc = count_realloc, .free = count_free};
    static const int32_t b0[] = {1, 2, -1}, b1[] = {0, -1}, *breakers[] = {b0, b1};
    pi__logit_bias bias = {1, 1};
    pi__sampling p = defaults();
    p.repeat_penalty = 1.1f;
    p.dry_multiplier = 1;
    p.dry_breakers = breakers;
    p.n_dry_breakers = 2;
    p.bias = &bias;
    p.n_bias = 1;
    assert_int_equal(pi_set_allocator(&a), PI_OK);
    long failures = 0;
    for (int done = 0; !done; failures++) {
        pi__sampler *s = NULL;
        pi__sampler_scratch *w = NULL;
        pi_error err = {0};
        fail_at = failures;
        int rc = pi__sampler_scratch_create(&w, 100, &err);
        if (rc == PI_OK) rc = pi__sampler_create(&s, &p, 100, 1000, &err);
        done = rc == PI_OK;
        if (done) { /* sampling itself allocates nothing */
            float x[100] = {0};
            long live = n_live;
            fail_at = 0;
            for (int i = 0; i < 2000; i++) pi__sampler_accept(s, pi__sampler_sample(s, w, x, NULL, 0));
            assert_int_equal(n_live, live);
            assert_int_equal(fail_at, 0);
        } else {
            assert_int_equal(rc, PI_ENOMEM);
            assert_int_equal(err.code, PI_ENOMEM);
            assert_null(s);
        }
        pi__sampler_free(s);
        pi__sampler_scratch_free(w);
        assert_int_equal(n_live, 0);
    }
    assert_int_equal(pi_set_allocator(NULL), PI_OK);
    assert_in_range(failures, 13, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys), cmocka_unit_test(test_argmax), cmocka_unit_test(test_exp),
        cmocka_unit_test(test_select), cmocka_unit_test(test_top_adversarial), cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_top_p), cmocka_unit_test(test_min_p), cmocka_unit_test(test_top_n_sigma),
        cmocka_unit_test(test_typical), cmocka_unit_test(test_xtc_stage), cmocka_unit_test(test_temperature_stage),
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_xtc_probability), cmocka_unit_test(test_chain),
        cmocka_unit_test(test_chain_order), cmocka_unit_test(test_seed), cmocka_unit_test(test_redraw),
        cmocka_unit_test(test_greedy), cmocka_unit_test(test_is_argmax), cmocka_unit_test(test_bias_and_forbid),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_bad_rows), cmocka_unit_test(test_penalties), cmocka_unit_test(test_dry_worked_example),
        cmocka_unit_test(test_dry_random), cmocka_unit_test(test_dry_long), cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
