/* Mirostat, adaptive-p and dynamic temperature, compared with a plain double-precision reference that sorts all
 * candidates: the remaining candidates and their probabilities, and the state update. Only an accepted token changes
 * the state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sampler/sampler_impl.h"

enum { MOST = 400, STEPS = 60 };

static uint64_t rng_state = 88172645463325252u;

static double rnd01(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (double) (rng_state >> 11) * 0x1p-53;
}

/* A bell so steep that some tokens are likely; or a flat row, or one with equal values. */
static void fill(float *x, int n, int kind)
{
    const double steep = kind == 1 ? 0.1 : 2 + 6 * rnd01();
    for (int i = 0; i < n; i++) {
        double g = (rnd01() + rnd01() + rnd01() + rnd01() - 2) * steep;
        x[i] = (float) (kind == 2 ? (double) (int) g : g);
    }
}

static pi__sampling params(void)
{
    pi__sampling p = {.seed = 5, .temp = 1, .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .dynatemp_exponent = 1,
                      .mirostat_tau = 3, .mirostat_eta = 0.1f, .adaptive_target = -1, .adaptive_decay = 0.9f,
                      .chain = {PI__SMP_TOP_K, PI__SMP_TEMPERATURE, PI__SMP_N}};
    return p;
}

typedef struct ref {
    int n, id[MOST];   /* by descending logit, then id */
    double l[MOST], p[MOST];
} ref;

static void softmax(ref *r)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < r->n; i++) max = r->l[i] > max ? r->l[i] : max;
    for (int i = 0; i < r->n; i++) sum += r->p[i] = exp(r->l[i] - max);
    for (int i = 0; i < r->n; i++) r->p[i] /= sum;
}

static void ref_from(ref *r, const float *x, int n, double temp)
{
    r->n = 0;
    for (int i = 0; i < n; i++) {
        int at = r->n++;
        for (; at > 0 && (double) x[i] > r->l[at - 1]; at--) r->l[at] = r->l[at - 1], r->id[at] = r->id[at - 1];
        r->l[at] = (double) x[i];
        r->id[at] = i;
    }
    for (int i = 0; i < n; i++) r->l[i] /= temp;
    softmax(r);
}

static int ref_find(const ref *r, int id)
{
    for (int i = 0; i < r->n; i++)
        if (r->id[i] == id) return i;
    return -1;
}

/* Checks the candidates that sampling left in the scratch: the weights by id of exactly the tokens in r. */
static void check_probabilities(const pi__cands *v, const ref *r)
{
    assert_true(v->list);
    assert_int_equal(v->n, r->n);
    double sum = 0, max = -INFINITY;
    for (size_t i = 0; i < v->n; i++) max = fmax(max, (double) pi__key_logit(v->w->key[i]));
    for (size_t i = 0; i < v->n; i++) sum += exp((double) pi__key_logit(v->w->key[i]) - max);
    for (size_t i = 0; i < v->n; i++) {
        const int at = ref_find(r, pi__key_id(v->w->key[i]));
        assert_true(at >= 0);
        const double p = exp((double) pi__key_logit(v->w->key[i]) - max) / sum;
        assert_true(fabs(p - r->p[at]) < 1e-4 * r->p[at] + 1e-9);
    }
}

static pi__sampler *make(const pi__sampling *p, int n)
{
    pi__sampler *s = NULL;
    assert_int_equal(pi__sampler_create(&s, p, n, 1000, NULL), PI_OK);
    return s;
}

static pi__sampler_scratch *make_scratch(void)
{
    pi__sampler_scratch *w = NULL;
    assert_int_equal(pi__sampler_scratch_create(&w, MOST, NULL), PI_OK);
    return w;
}

/* ------------------------------------------------------------------------------------------------------- Mirostat */

static int mirostat_1_keeps(const ref *r, double mu, int n_vocab)
{
    double tb = 0, tt = 0;
    for (int i = 0; i < 99 && i + 1 < r->n; i++) {
        const double t = log((i + 2.0) / (i + 1.0));
        tb += t * log(r->p[i] / r->p[i + 1]);
        tt += t * t;
    }
    const double s = tb / tt, e = s - 1, k = pow(e * pow(2, mu) / (1 - pow(n_vocab, -e)), 1 / s);
    return !(k >= 1) ? 1 : k < r->n ? (int) k : r->n;
}

static int mirostat_2_keeps(const ref *r, double mu)
{
    int n = 0;
    while (n < r->n && -log2(r->p[n]) <= mu) n++;
    return n ? n : 1;
}

static void mirostat(void **state)
{
    (void) state;
    static const int sizes[] = {2, 3, 50, 120, MOST};
    pi__sampler_scratch *w = make_scratch();
    int cut = 0, near = 0;
    for (int trial = 0; trial < 40; trial++) {
        const int n = sizes[trial % 5], version = 1 + trial / 5 % 2;
        pi__sampling p = params();
        p.mirostat = version;
        p.temp = trial % 3 ? 1 : 0.7f;
        p.seed = (uint64_t) trial;
        p.mirostat_tau = trial % 4 ? 3 : 1;
        pi__sampler *s = make(&p, n);
        double mu = 2 * (double) p.mirostat_tau;
        for (int i = 0; i < STEPS; i++) {
            float x[MOST], row[MOST];
            ref r;
            fill(x, n, i % 7 == 0 ? 1 : i % 11 == 0 ? 2 : 0);
            memcpy(row, x, sizeof x);
            ref_from(&r, x, n, (double) p.temp);
            assert_true(fabs((double) s->feedback.mu - mu) < 1e-3);
            mu = (double) s->feedback.mu; /* so that single-precision errors do not accumulate */
            const int k = version == 1 ? mirostat_1_keeps(&r, mu, n) : mirostat_2_keeps(&r, mu);
            const int same[] = {version == 1 ? mirostat_1_keeps(&r, mu - 1e-4, n) : mirostat_2_keeps(&r, mu - 1e-4),
                                version == 1 ? mirostat_1_keeps(&r, mu + 1e-4, n) : mirostat_2_keeps(&r, mu + 1e-4)};
            const int32_t id = pi__sampler_sample(s, w, row, NULL, 0);
            const float before = s->feedback.mu;
            if (same[0] == k && same[1] == k) {
                r.n = k;
                softmax(&r);
                pi__cands v = {.w = w, .row = x, .n_row = n};
                pi__sampler t = *s;
                for (const uint8_t *c = t.chain; *c != PI__SMP_N; c++) pi__sampler_apply(&t, *c, &v);
                check_probabilities(&v, &r);
                const int at = ref_find(&r, id);
                assert_true(at >= 0);
                mu -= (double) p.mirostat_eta * (-log2(r.p[at]) - (double) p.mirostat_tau);
                cut += k < n;
            } else {
                near++;
                mu = NAN;
            }
            assert_true(s->feedback.mu == before); /* sampling does not change the state */
            pi__sampler_accept(s, id);
            if (isnan(mu)) mu = (double) s->feedback.mu;
        }
        pi__sampler_free(s);
    }
    assert_in_range(cut, 40 * STEPS / 3, 40 * STEPS);
    assert_in_range(near, 0, 40 * STEPS / 10);
    pi__sampler_scratch_free(w);
}

/* Surprise converges to the target, even if the model's own surprise is far from it. */
static void mirostat_reaches_its_target(void **state)
{
    (void) state;
    pi__sampler_scratch *w = make_scratch();
    for (int version = 1; version <= 2; version++) {
        pi__sampling p = params();
        p.mirostat = version;
        p.mirostat_tau = 2;
        pi__sampler *s = make(&p, MOST);
        double sum = 0;
        int n = 0;
        for (int i = 0; i < 600; i++) {
            float row[MOST];
            ref r;
            fill(row, MOST, 1); /* flat: 8 bits of surprise */
            ref_from(&r, row, MOST, 1);
            const int32_t id = pi__sampler_sample(s, w, row, NULL, 0);
            if (i >= 200) sum += (double) s->feedback.value, n++;
            pi__sampler_accept(s, id);
        }
        assert_true(fabs(sum / n - 2) < 0.4);
        pi__sampler_free(s);
    }
    pi__sampler_scratch_free(w);
}

/* ------------------------------------------------------------------------------------------------------ adaptive-p */

static void adaptive_p(void **state)
{
    (void) state;
    pi__sampler_scratch *w = make_scratch();
    for (int trial = 0; trial < 20; trial++) {
        const int n = 2 + (int) (rnd01() * (MOST - 2));
        pi__sampling p = params();
        p.chain[0] = PI__SMP_ADAPTIVE_P; /* runs last in any case */
        p.chain[1] = PI__SMP_TOP_K;
        p.chain[2] = PI__SMP_N;
        p.top_k = trial % 2 ? 10 : 0;
        p.adaptive_target = (float) (rnd01() * 0.8);
        p.adaptive_decay = (float) (rnd01() * 0.99);
        pi__sampler *s = make(&p, n);
        double total = 1 / (1 - (double) p.adaptive_decay), weighted = (double) p.adaptive_target * total;
        for (int i = 0; i < STEPS; i++) {
            float x[MOST], row[MOST];
            ref r;
            fill(x, n, i % 7 == 0 ? 2 : 0);
            memcpy(row, x, sizeof x);
            ref_from(&r, x, n, 1);
            if (p.top_k && p.top_k < n) r.n = p.top_k;
            softmax(&r);
            double own[MOST], target = 2 * (double) p.adaptive_target - weighted / total;
            target = target < 0 ? 0 : target > 1 ? 1 : target;
            memcpy(own, r.p, sizeof own);
            for (int j = 0; j < r.n; j++) {
                const double d = fabs(r.p[j] - target) / 0.3;
                r.l[j] = 5 - 10 * d * d / (1 + d);
            }
            softmax(&r);
            const int32_t id = pi__sampler_sample(s, w, row, NULL, 0);
            pi__cands v = {.w = w, .row = x, .n_row = n};
            for (const uint8_t *c = s->chain; *c != PI__SMP_N; c++) pi__sampler_apply(s, *c, &v);
            check_probabilities(&v, &r);
            const int at = ref_find(&r, id);
            assert_true(at >= 0);
            pi__sampler_accept(s, id);
            weighted = own[at] + (double) p.adaptive_decay * weighted;
            total = 1 + (double) p.adaptive_decay * total;
            assert_true(fabs((double) s->feedback.weighted - weighted) < 1e-3 * (1 + weighted));
            assert_true(fabs((double) s->feedback.total - total) < 1e-3 * total);
        }
        pi__sampler_free(s);
    }
    pi__sampling p = params();
    p.chain[0] = PI__SMP_ADAPTIVE_P;
    pi__sampler *s = make(&p, 5);
    assert_int_equal(s->chain[0], PI__SMP_N); /* disabled by a target below 0 */
    pi__sampler_free(s);
    pi__sampler_scratch_free(w);
}

/* --------------------------------------------------------------------------------------------- dynamic temperature */

static void dynamic_temperature(void **state)
{
    (void) state;
    pi__sampler_scratch *w = make_scratch();
    for (int trial = 0; trial < 200; trial++) {
        const int n = 2 + (int) (rnd01() * (MOST - 2));
        float x[MOST];
        ref r;
        pi__sampling p = params();
        p.top_k = trial % 2 ? 12 : 0;
        p.temp = (float) rnd01();
        p.dynatemp_range = (float) (0.1 + rnd01());
        p.dynatemp_exponent = trial % 3 ? 1 : (float) (0.3 + rnd01() * 2);
        pi__sampler *s = make(&p, n);
        fill(x, n, trial % 3 ? 0 : 2);
        ref_from(&r, x, n, 1);
        if (p.top_k && p.top_k < n) r.n = p.top_k;
        softmax(&r);
        double h = 0, low = fmax(0, (double) p.temp - (double) p.dynatemp_range);
        for (int i = 0; i < r.n; i++) h -= r.p[i] > 0 ? r.p[i] * log(r.p[i]) : 0;
        const double high = (double) p.temp + (double) p.dynatemp_range;
        const double t = low + (high - low) * pow(h / log(r.n), (double) p.dynatemp_exponent);
        for (int i = 0; i < r.n; i++) r.l[i] /= t;
        softmax(&r);
        pi__cands v = {.w = w, .row = x, .n_row = n};
        for (const uint8_t *c = s->chain; *c != PI__SMP_N; c++) pi__sampler_apply(s, *c, &v);
        if (t > 0.05) check_probabilities(&v, &r); /* at lower temperatures, the rounding of the logits is visible */
        pi__sampler_free(s);
    }
    /* temperature 0 is greedy, but not as the middle of a range */
    pi__sampling p = params();
    p.temp = 0;
    for (int ranged = 0; ranged < 2; ranged++) {
        float x[MOST], row[MOST];
        int other = 0;
        p.dynatemp_range = ranged ? 1 : 0;
        pi__sampler *s = make(&p, MOST);
        assert_int_equal(pi__sampler_is_argmax(s), !ranged);
        fill(x, MOST, 1);
        for (int i = 0; i < 50; i++) {
            memcpy(row, x, sizeof x);
            const int32_t id = pi__sampler_sample(s, w, row, NULL, 0);
            other += id != pi__argmax(x, MOST);
            pi__sampler_accept(s, id);
        }
        assert_int_equal(other > 0, ranged);
        pi__sampler_free(s);
    }
    /* one candidate, and a row without entropy, whose temperature would be 0 */
    p.dynatemp_range = 1;
    p.top_k = 1;
    float peak[] = {-300, 5, -300};
    pi__sampler *s = make(&p, 3);
    assert_int_equal(pi__sampler_sample(s, w, peak, NULL, 0), 1);
    pi__sampler_free(s);
    p.top_k = 0;
    s = make(&p, 3);
    assert_int_equal(pi__sampler_sample(s, w, peak, NULL, 0), 1);
    pi__sampler_free(s);
    pi__sampler_scratch_free(w);
}

/* ----------------------------------------------------------------------------------------------------------- state */

/* Repeated sampling changes nothing, and an accepted token that was not sampled does not change the state. Odd rows
 * and greedy requests cause no errors. */
static void state_is_of_what_was_accepted(void **state)
{
    (void) state;
    pi__sampler_scratch *w = make_scratch();
    for (int kind = 0; kind < 3; kind++) {
        float x[MOST], row[MOST];
        pi__sampling p = params();
        p.mirostat = kind;
        p.chain[1] = PI__SMP_ADAPTIVE_P;
        p.adaptive_target = 0.4f;
        pi__sampler *s = make(&p, MOST);
        for (int i = 0; i < STEPS; i++) {
            int32_t id[3];
            fill(x, MOST, 0);
            for (int j = 0; j < 3; j++) {
                memcpy(row, x, sizeof x);
                if (j == 1) fill(row, MOST, 1); /* another row in between */
                id[j] = pi__sampler_sample(s, w, row, NULL, 0);
            }
            assert_int_equal(id[0], id[2]);
            const pi__feedback before = s->feedback;
            const bool other = i % 5 == 0;
            pi__sampler_accept(s, other ? (id[0] + 1) % MOST : id[0]);
            const bool moved = before.mu != s->feedback.mu || before.weighted != s->feedback.weighted;
            assert_int_equal(moved, !other);
        }
        for (int i = 0; i < MOST; i++) row[i] = i % 2 ? -INFINITY : (float) NAN;
        assert_int_equal(pi__sampler_sample(s, w, row, NULL, 0), -1);
        for (int i = 0; i < MOST; i++) row[i] = i == 7 ? 1 : -INFINITY;
        assert_int_equal(pi__sampler_sample(s, w, row, NULL, 0), 7);
        pi__sampler_accept(s, 7);
        assert_true(isfinite(s->feedback.mu) && isfinite(s->feedback.weighted));
        pi__sampler_free(s);
        p.temp = 0;
        p.chain[0] = PI__SMP_TEMPERATURE;
        s = make(&p, MOST);
        memcpy(row, x, sizeof x);
        assert_true(pi__sampler_is_argmax(s));
        assert_int_equal(pi__sampler_sample(s, w, row, NULL, 0), pi__argmax(x, MOST));
        pi__sampler_free(s);
    }
    pi__sampler_scratch_free(w);
}

static void refusals(void **state)
{
    (void) state;
    for (int i = 0; i < 8; i++) {
        pi__sampling p = params();
        if (i == 0) p.mirostat = 3;
        if (i == 1) p.mirostat = -1;
        if (i == 2) p.mirostat_tau = (float) NAN;
        if (i == 3) p.mirostat_eta = -1;
        if (i == 4) p.adaptive_target = 1.5f;
        if (i == 5) p.adaptive_decay = 1;
        if (i == 6) p.dynatemp_range = -1;
        if (i == 7) p.dynatemp_exponent = (float) NAN;
        pi__sampler *s;
        pi_error err = {0};
        assert_int_equal(pi__sampler_create(&s, &p, 10, 10, &err), PI_EINVAL);
        assert_true(err.msg[0] != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mirostat),
        cmocka_unit_test(mirostat_reaches_its_target),
        cmocka_unit_test(adaptive_p),
        cmocka_unit_test(dynamic_temperature),
        cmocka_unit_test(state_is_of_what_was_accepted),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("sampler_feedback", tests, NULL, NULL);
}
