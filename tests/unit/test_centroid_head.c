/* The centroid lm_head on the CPU; its rows are sorted into clusters. The op multiplies the clusters with the best
 * centroid scores, with the bits of an ordinary matrix; every other token gets a lower logit. Covers batches of one
 * and more, one and several threads, formats of each kind, and each available instruction set. */
#include "weights.h"

enum { E = 256, PER = 24, N_MAT = 10, N_VOCAB = PER * N_MAT, ROWS = 5 };

typedef struct head_fixture {
    fixture centroids, head;
    int32_t order[N_VOCAB];
    float *x, *norm;
    float scores[ROWS * N_MAT], some[ROWS * N_VOCAB], logits[ROWS * N_VOCAB];
    int32_t pick[ROWS * N_MAT];
} head_fixture;

static void fixture_start(head_fixture *t, const pi__cpu_linear_kernels *k, int32_t threads, int type)
{
    memset(t, 0, sizeof *t);
    cpu_start(&t->head.cpu, k, threads, &(pi__limits) {.max_tokens = ROWS, .max_rows = ROWS, .max_n_in = E});
    t->centroids.cpu = t->head.cpu;
    weight_make(&t->centroids, PI__BF16, E, N_MAT, 1);
    weight_make(&t->head, type, E, PER, N_MAT);
    for (int32_t i = 0; i < N_VOCAB; i++) t->order[i] = (i * 77 + 5) % N_VOCAB; /* 77 and 240 have no common factor */
    t->x = random_rows(ROWS * E);
    t->norm = random_rows(E);
}

static void fixture_stop(head_fixture *t)
{
    weight_drop(&t->centroids);
    weight_drop(&t->head);
    free(t->x), free(t->norm);
    backend_stop(&t->head.cpu);
}

/* Runs rows first..first + n with n_pick clusters each. */
static void run(head_fixture *t, int32_t first, int32_t n, int32_t n_pick)
{
    const pi__centroid_head a = {.n_rows = n, .in = {.kind = PI__IN_RMSNORM, .x = t->x + first * E, .ldx = E,
                                                     .w = t->norm, .eps = 1e-6f},
                             .centroids = &t->centroids.w, .head = &t->head.w, .order = t->order, .n_pick = n_pick,
                             .scores = t->scores, .pick = t->pick, .some = t->some, .logits = t->logits};
    for (int32_t i = 0; i < ROWS * N_VOCAB; i++) t->logits[i] = NAN;
    pi__cpu_centroid_head(&t->head.cpu.be, NULL, &a);
}

/* Computes row r of x times all rows of cluster c with an ordinary linear op. */
static void cluster_alone(head_fixture *t, int32_t c, int32_t r, float *y)
{
    pi__lin_shape s;
    pi__weight one = t->head.w;
    assert_true(pi__lin_shape_of(&one, &s));
    one.n_mat = 1;
    one.data = (char *) one.data + (size_t) c * s.mat;
    const pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = t->x + r * E, .ldx = E, .w = t->norm, .eps = 1e-6f};
    pi__cpu_linear(&t->head.cpu.be, NULL, &(pi__linear) {.in = in, .n_rows = 1, .n_lin = 1, .lin = {{&one, y, PER}}});
}

/* Checks row r of x, which was row `at` of the last run. */
static void check_row(head_fixture *t, int32_t r, int32_t at, int32_t n_pick)
{
    double score[N_MAT], norm = 0;
    bool picked[N_MAT] = {false};
    float y[PER], least = INFINITY;
    const float *logits = t->logits + at * N_VOCAB;
    for (int k = 0; k < E; k++) norm += (double) t->x[r * E + k] * t->x[r * E + k];
    for (int c = 0; c < N_MAT; c++) {
        score[c] = 0;
        for (int k = 0; k < E; k++)
            score[c] += t->centroids.ref[c * E + k] * (t->x[r * E + k] / sqrt(norm / E + 1e-6) * t->norm[k]);
    }
    for (int k = 0; k < n_pick; k++) picked[t->pick[at * n_pick + k]] = true;
    for (int a = 0; a < N_MAT; a++)
        for (int b = 0; b < N_MAT; b++)
            if (picked[a] && !picked[b]) assert_true(score[a] > score[b] - 1e-3);
    int seen = 0;
    for (int c = 0; c < N_MAT; c++) {
        if (!picked[c]) continue;
        cluster_alone(t, c, r, y);
        for (int i = 0; i < PER; i++) {
            assert_memory_equal(&logits[t->order[c * PER + i]], &y[i], sizeof y[i]);
            if (y[i] < least) least = y[i];
        }
        seen++;
    }
    assert_int_equal(seen, n_pick);
    for (int c = 0; c < N_MAT; c++)
        for (int i = 0; i < PER && !picked[c]; i++) assert_true(logits[t->order[c * PER + i]] == least - 1.0f);
}

static void clusters(const pi__cpu_linear_kernels *k)
{
    static const int types[] = {PI__F32, PI__BF16, PI__Q8_0, PI__Q4_K, PI__NVFP4, PI__IQ2_XXS};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        head_fixture t;
        float all[ROWS * N_VOCAB];
        fixture_start(&t, k, 1 + (int32_t) i % 3, types[i]);
        for (int32_t n_pick = 1; n_pick <= N_MAT; n_pick += 3) {
            run(&t, 0, ROWS, n_pick);
            memcpy(all, t.logits, sizeof all);
            for (int32_t r = 0; r < ROWS; r++) check_row(&t, r, r, n_pick);
            for (int32_t r = 0; r < ROWS; r++) {
                run(&t, r, 1, n_pick);
                check_row(&t, r, 0, n_pick);
                assert_memory_equal(t.logits, all + r * N_VOCAB, N_VOCAB * sizeof *all);
            }
        }
        fixture_stop(&t);
    }
}

static void test_clusters(void **st)
{
    (void) st;
    each_isa(clusters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clusters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
