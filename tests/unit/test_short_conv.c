/* Gated short convolutions on the CPU: against the convolution in double precision, and bitwise identical for each
 * chunking, batch, number of threads and draft, and after snapshots. Slots and snapshots begin as NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"

enum { LEN = 90, N_SEQS = 3, N_SLOTS = 4, N_SNAPS = 2, MAX_DIM = 200, GAP = 16 /* floats */ };

typedef struct world {
    pi__cpu cpu;
    pi__state_layer st;
    size_t slot, snap;            /* floats from slot to slot, from snapshot to snapshot */
    float x[N_SEQS][LEN][3 * MAX_DIM], conv[MAX_DIM * PI__MAX_CONV];
    float out[N_SEQS][LEN][MAX_DIM];
    int32_t done[N_SEQS];
} world;

static uint64_t rng;

static uint32_t below(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (rng >> 33) % n;
}
static float uniform(void) { return (float) below(1 << 20) / (1 << 19) - 1; }

static void *nans(size_t n)
{
    float *p = malloc(n * sizeof *p);
    assert_non_null(p);
    memset(p, 0xFF, n * sizeof *p);
    return p;
}

static world *begin(int32_t dim, int32_t n_conv, int32_t n_draft, int32_t n_threads)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    assert_int_equal(pi__pool_create(&w->cpu.pool, n_threads, 0, 50, NULL), 0);
    w->st = (pi__state_layer) {.dim = dim, .n_conv = n_conv, .n_draft = n_draft};
    w->slot = pi__cpu_state_bytes(NULL, &w->st) / 4 + GAP, w->snap = pi__cpu_snapshot_bytes(NULL, &w->st) / 4 + GAP;
    w->st.base = nans(N_SLOTS * w->slot), w->st.stride = w->slot * 4;
    w->st.snap = nans(N_SNAPS * w->snap), w->st.snap_stride = w->snap * 4;
    rng = 7 + (uint64_t) dim;
    for (int32_t i = 0; i < dim * n_conv; i++) w->conv[i] = uniform();
    for (int s = 0; s < N_SEQS; s++)
        for (int t = 0; t < LEN; t++)
            for (int32_t i = 0; i < 3 * dim; i++) w->x[s][t][i] = uniform();
    return w;
}

static void end(world *w)
{
    for (size_t i = 0; i < N_SLOTS; i++) /* nothing writes after a slot */
        for (size_t k = i * w->slot + w->slot - GAP; k < (i + 1) * w->slot; k++)
            assert_true(isnan(((float *) (void *) w->st.base)[k]));
    for (size_t i = 0; i < N_SNAPS; i++)
        for (size_t k = i * w->snap + w->snap - GAP; k < (i + 1) * w->snap; k++)
            assert_true(isnan(((float *) (void *) w->st.snap)[k]));
    pi__pool_destroy(w->cpu.pool);
    free(w->st.base);
    free(w->st.snap);
    free(w);
}

/* A step: the next n[s] tokens of each sequence, then wrong[s] wrong drafts, all NaN. Sequence s uses slot s + 1.
 * save: snapshot of sequence 0; NULL = none. */
static void step(world *w, const int32_t *n, const int32_t *wrong, const pi__save *save)
{
    const size_t dim = (size_t) w->st.dim, ldx = 3 * dim + 4, ldo = dim + 4;
    int32_t start[N_SEQS + 1] = {0}, slot[N_SEQS], verified[N_SEQS], saves[N_SEQS + 1] = {0}, n_seqs = 0, of[N_SEQS];
    static int32_t pos[N_SEQS * (LEN + 64)];
    static float x[N_SEQS * (LEN + 64) * (3 * MAX_DIM + 4)], out[N_SEQS * (LEN + 64) * (MAX_DIM + 4)];
    int32_t t = 0;
    for (int s = 0; s < N_SEQS; s++) {
        if (!n[s]) continue;
        for (int32_t i = 0; i < n[s] + wrong[s]; i++, t++) {
            pos[t] = w->done[s] + i;
            if (i < n[s]) memcpy(x + (size_t) t * ldx, w->x[s][w->done[s] + i], 3 * dim * sizeof *x);
            else memset(x + (size_t) t * ldx, 0xFF, 3 * dim * sizeof *x);
        }
        slot[n_seqs] = s + 1, verified[n_seqs] = n[s], of[n_seqs] = s;
        saves[n_seqs + 1] = saves[n_seqs] + (s == 0 && save);
        start[++n_seqs] = t;
    }
    const pi__batch b = {.n_tokens = t, .n_seqs = n_seqs, .pos = pos, .seq_start = start, .n_verified = verified,
                         .state_slot = slot, .save_start = saves, .save = save};
    pi__cpu_short_conv(&w->cpu.be, &b,
                       &(pi__short_conv) {.st = &w->st, .x = x, .ldx = (int64_t) ldx, .conv = w->conv, .out = out,
                                          .ldo = (int64_t) ldo});
    for (int32_t k = 0; k < n_seqs; k++) {
        for (int32_t i = 0; i < n[of[k]]; i++)
            memcpy(w->out[of[k]][w->done[of[k]] + i], out + (size_t) (start[k] + i) * ldo, dim * sizeof *out);
        w->done[of[k]] += n[of[k]];
    }
}

static world *whole(int32_t dim, int32_t n_conv)
{
    world *w = begin(dim, n_conv, 0, 1);
    for (int s = 0; s < N_SEQS; s++) {
        int32_t n[N_SEQS] = {0};
        n[s] = LEN;
        step(w, n, (int32_t[N_SEQS]) {0}, NULL);
    }
    return w;
}

static void assert_same(const world *a, const world *b)
{
    for (int s = 0; s < N_SEQS; s++) {
        assert_int_equal(b->done[s], LEN);
        for (int t = 0; t < LEN; t++)
            if (memcmp(a->out[s][t], b->out[s][t], (size_t) a->st.dim * sizeof(float)))
                fail_msg("dim %d, %d taps: sequence %d token %d differs", a->st.dim, a->st.n_conv, s, t);
    }
}

static void test_reference(void **state)
{
    (void) state;
    for (int32_t n_conv = PI__MIN_CONV; n_conv <= PI__MAX_CONV; n_conv++) {
        world *w = whole(n_conv * 24, n_conv);
        for (int s = 0; s < N_SEQS; s++)
            for (int t = 0; t < LEN; t++)
                for (int32_t c = 0; c < w->st.dim; c++) {
                    double sum = 0;
                    for (int back = 0; back < n_conv && back <= t; back++)
                        sum += (double) w->conv[c * n_conv + n_conv - 1 - back] * w->x[s][t - back][c] *
                               w->x[s][t - back][2 * w->st.dim + c];
                    assert_true(fabs(sum * w->x[s][t][w->st.dim + c] - w->out[s][t][c]) < 1e-6);
                }
        end(w);
    }
}

/* Random chunks with drafts, the sequences in one batch, on several threads. */
static void test_cuts(void **state)
{
    (void) state;
    static const int32_t most[] = {0, 1, 5, 40};
    for (int k = 0; k < 12; k++) {
        const int32_t dim = k % 3 ? 200 : 16, n_conv = 2 + k % 7, n_draft = most[k % 4];
        world *a = whole(dim, n_conv), *b = begin(dim, n_conv, n_draft, 1 + k % 3);
        rng = (uint64_t) k;
        while (b->done[0] < LEN || b->done[1] < LEN || b->done[2] < LEN) {
            int32_t n[N_SEQS], wrong[N_SEQS];
            for (int s = 0; s < N_SEQS; s++) {
                const int32_t left = LEN - b->done[s], some = 1 + (int32_t) below(below(4) ? 3 : 60);
                n[s] = below(4) ? some < left ? some : left : 0;
                wrong[s] = (int32_t) below((uint32_t) n_draft + 1);
            }
            step(b, n, wrong, NULL);
        }
        assert_same(a, b);
        end(a);
        end(b);
    }
}

/* A snapshot that a step takes, and one from the slot after the step, continue in another sequence's slot. */
static void test_snapshots(void **state)
{
    (void) state;
    for (int32_t pos = 16; pos <= 64; pos += 16)
        for (int32_t k = 0; k < 16; k += 5) {
            world *a = whole(72, 3), *b = begin(72, 3, 4, 1);
            const int32_t none[N_SEQS] = {0}, drafts[N_SEQS] = {4, 0, 0}, from = k % 2 ? pos - 1 : pos / 2;
            const pi__save save = {pos, 1};
            step(b, (int32_t[N_SEQS]) {from, 0, 0}, none, NULL);
            step(b, (int32_t[N_SEQS]) {pos + k - from, 0, 0}, drafts, &save);
            if (k % 2) pi__cpu_state_save(&b->cpu.be, NULL, &(pi__state_copy) {&b->st, 1, pos, 1});
            memcpy(b->x[1], b->x[0], sizeof b->x[0]);
            pi__cpu_state_load(&b->cpu.be, NULL, &(pi__state_copy) {&b->st, 2, pos, 1});
            b->done[1] = pos;
            step(b, (int32_t[N_SEQS]) {0, LEN - pos, 0}, none, NULL);
            for (int t = pos; t < LEN; t++) assert_memory_equal(a->out[0][t], b->out[1][t], 72 * sizeof(float));
            end(a);
            end(b);
        }
}

static void test_sizes(void **state)
{
    (void) state;
    const pi__state_layer st = {.dim = 2048, .n_conv = 3, .n_draft = 5};
    assert_int_equal(pi__cpu_state_bytes(NULL, &st), (2 + 16 + 5) * 2048 * 4);
    assert_int_equal(pi__cpu_snapshot_bytes(NULL, &st), 2 * 2048 * 4);
    const pi__state_layer bad[] = {{.dim = 0, .n_conv = 3}, {.dim = 64, .n_conv = 1}, {.dim = 64, .n_conv = 9},
                                   {.dim = 64, .n_conv = 3, .n_draft = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pi__cpu_state_bytes(NULL, &bad[i]), 0);
        assert_int_equal(pi__cpu_snapshot_bytes(NULL, &bad[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_cuts),
                                       cmocka_unit_test(test_snapshots), cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
