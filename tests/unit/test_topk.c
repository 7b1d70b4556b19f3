/* The CPU's op topk: the best values, the missing count and the sums are bitwise those of the full row. Covers each
 * instruction set and any number of threads and rows. Rows without a request stay unchanged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "sampler/sampler_impl.h"

enum { MOST = 70000, ROWS = 5, WORDS = 2 + PI__MAX_TOP, SKIPPED = 3 };

static float x[ROWS * MOST], copy[ROWS * MOST];
static uint64_t want[MOST + 2], out[ROWS * WORDS], unused[WORDS];
static uint64_t rng_state = 88172645463325252u;

static uint64_t rnd(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

static int rnd_int(int n) { return (int) (rnd() % (uint64_t) n); }

/* kind 0: bell shaped; 1: many ties; 2: ascending; 3: most forbidden; 4: zeros of both signs; 5: with NaN; 6: with
 * infinity; 7: all -infinity; 8: a few values */
enum { KINDS = 9 };
static void fill(float *row, int n, int kind)
{
    for (int i = 0; i < n; i++) {
        float g = (float) rnd_int(1 << 20) * 0x1p-16f + (float) rnd_int(1 << 20) * 0x1p-16f;
        if (kind == 1) g = (float) rnd_int(7) - 3;
        if (kind == 2) g = (float) i;
        if (kind == 3 && rnd_int(30)) g = -INFINITY;
        if (kind == 4) g = rnd_int(3) ? -0.0f : 0.0f;
        if (kind == 5 && rnd_int(n) < 2) g = NAN;
        if (kind == 6 && rnd_int(n) < 2) g = INFINITY;
        if (kind == 7) g = i % 2 ? -INFINITY : NAN;
        if (kind == 8 && i % 1000) g = -INFINITY;
        row[i] = g;
    }
}

/* Computes the op's expected result for a row with skipped values already set to -inf. Returns the number of words
 * that the op writes: 2 + number of keys. */
static int expected(const float *row, int n, const pi__topk_request *r)
{
    bool odd;
    const float max = pi__row_max(row, n, &odd);
    int keys = 0;
    for (int i = 0; i < n; i++)
        if (row[i] > -INFINITY) want[2 + keys++] = pi__logit_key(row[i], i);
    pi__keys_sort(want + 2, (size_t) keys);
    if (keys > r->k) keys = r->k;
    want[0] = (uint64_t) odd << 32 | (uint32_t) (r->k - keys);
    const double sum = r->sum && !odd && keys ? pi__row_exp_sum(row, n, max) : 0;
    memcpy(&want[1], &sum, sizeof sum);
    return 2 + keys;
}

static void check_rows(const pi__topk *a, int k)
{
    for (int r = 0; r < a->n_rows; r++) {
        const pi__topk_request *q = &a->request[r];
        float *row = copy + r * a->n;
        for (int i = 0; i < q->n_skip && q->k; i++) row[a->skip[i]] = -INFINITY;
        assert_memory_equal(a->x + r * a->n, row, (size_t) a->n * sizeof *row);
        if (!q->k) {
            assert_memory_equal(out + (size_t) r * (size_t) (2 + k), unused, (size_t) (2 + k) * sizeof *out);
            continue;
        }
        const int words = expected(row, (int) a->n, q);
        assert_memory_equal(out + (size_t) r * (size_t) (2 + k), want, (size_t) words * sizeof *out);
    }
}

/* Runs some rows with all kinds of requests; of_step = as a part of a step, with the result length of the batch. */
static void run_once(pi__backend *be, int n_rows, int n, bool of_step)
{
    static const int32_t ks[] = {1, 1, 0, 40, 64, 255, PI__MAX_TOP};
    pi__topk_request request[ROWS];
    const int32_t skip[SKIPPED] = {rnd_int(n), rnd_int(n), rnd_int(n)};
    int k = 0;
    for (int r = 0; r < n_rows; r++) {
        request[r] = (pi__topk_request) {ks[rnd_int(7)], rnd_int(SKIPPED + 1), rnd_int(2)};
        k = request[r].k > k ? request[r].k : k;
        fill(x + r * n, n, rnd_int(3) ? rnd_int(KINDS) : 0);
    }
    if (of_step) k = PI__MAX_TOP;
    memcpy(copy, x, (size_t) (n_rows * n) * sizeof *x);
    memset(out, 0xa5, sizeof out);
    memset(unused, 0xa5, sizeof unused);
    const pi__topk a = {
        .x = x, .n_rows = n_rows, .n = n, .skip = skip, .n_skip = SKIPPED, .request = request, .out = out};
    const pi__batch b = {.top = {.request = request, .k = k}};
    pi__op_topk(be, of_step ? &b : NULL, &a);
    check_rows(&a, k);
}

static void test_same(void **state)
{
    (void) state;
    static const char *const isas[] = {"generic", "avx2", "avx512", "neon", "sve256"};
    static const int sizes[] = {1, 15, 16, 255, 256, 257, 1000, 4096, 30011, MOST};
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            pi__backend *be;
            const pi__cpu_params p = {.n_threads = threads, .isa = isas[i]};
            if (pi__cpu_create(&be, &p, &(pi__log) {0}, NULL)) continue;
            assert_int_equal(be->dev->reserve(be, &(pi__limits) {.max_rows = ROWS, .n_vocab = MOST}, NULL), PI_OK);
            assert_true(be->opt->topk_here(be));
            for (int t = 0; t < 120; t++) run_once(be, 1 + rnd_int(ROWS), sizes[t % 10], rnd_int(2));
            be->dev->destroy(be);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same)};
    return cmocka_run_group_tests_name("topk", tests, NULL, NULL);
}
