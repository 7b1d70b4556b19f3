/* Selective scans on the CPU: against the recurrence in double precision, and bitwise identical for each chunking,
 * batch, number of threads and draft, and after snapshots. Slots and snapshots begin as NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"

enum { LEN = 90, N_SEQS = 3, N_SLOTS = 4, N_SNAPS = 2, MAX_CHANNEL = 144, MAX_STATE = 64, GAP = 16 /* floats */,
       ROW = 3 * MAX_CHANNEL + 2 * MAX_STATE /* x, z, dt, b, c of a token */ };

typedef struct world {
    pi__cpu cpu;
    pi__state_layer st;
    size_t slot, snap;          /* floats from slot to slot, from snapshot to snapshot */
    bool normed;
    float row[N_SEQS][LEN][ROW], out[N_SEQS][LEN][MAX_CHANNEL];
    float dt_bias[MAX_CHANNEL], skip[MAX_CHANNEL], a[MAX_STATE * MAX_CHANNEL], norm[2][MAX_STATE];
    int32_t done[N_SEQS];
} world;

/* A sequence's part of a step: verified tokens, then drafts, of which the first `right` are its next tokens, and of
 * these the next step accepts `accepted`. */
typedef struct part {
    int32_t n, right, wrong, accepted;
} part;

static uint64_t rng;

static uint32_t below(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (rng >> 33) % n;
}
static float uniform(void) { return (float) below(1 << 20) / (1 << 19) - 1; }
static void fill(float *x, size_t n, float shift)
{
    for (size_t i = 0; i < n; i++) x[i] = uniform() + shift;
}

static void *nans(size_t n)
{
    float *p = malloc(n * sizeof *p);
    assert_non_null(p);
    memset(p, 0xFF, n * sizeof *p);
    return p;
}

static world *begin(int32_t channels, int32_t n_state, int32_t n_draft, int32_t n_threads)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    assert_int_equal(pi__pool_create(&w->cpu.pool, n_threads, 0, 50, NULL), 0);
    int isa = 0;
    assert_int_equal(pi__isa_choose(NULL, &isa, NULL), 0);
    w->cpu.gdn = pi__cpu_gdn_kernels_of(isa);
    w->st = (pi__state_layer) {.n_v = channels, .dim = n_state, .n_draft = n_draft};
    w->normed = n_state == 16;
    w->slot = pi__cpu_state_bytes(NULL, &w->st) / 4 + GAP, w->snap = pi__cpu_snapshot_bytes(NULL, &w->st) / 4 + GAP;
    w->st.base = nans(N_SLOTS * w->slot), w->st.stride = w->slot * 4;
    w->st.snap = nans(N_SNAPS * w->snap), w->st.snap_stride = w->snap * 4;
    rng = 7 + (uint64_t) channels;
    fill(w->row[0][0], (size_t) N_SEQS * LEN * ROW, 0);
    fill(w->dt_bias, MAX_CHANNEL, 0);
    fill(w->skip, MAX_CHANNEL, 0);
    fill(w->norm[0], 2 * MAX_STATE, 2);
    fill(w->a, MAX_STATE * MAX_CHANNEL, -1.1f);
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

/* Runs op scan for rows x. */
static void run(world *w, const pi__batch *b, const float *x, float *out)
{
    const pi__scan op = {.st = &w->st, .x = x, .ldx = ROW, .z = x + MAX_CHANNEL, .ldz = ROW, .dt = x + 2 * MAX_CHANNEL,
                         .ld_dt = ROW, .b = x + 3 * MAX_CHANNEL, .c = x + 3 * MAX_CHANNEL + MAX_STATE, .ld_bc = ROW,
                         .norm_b = w->normed ? w->norm[0] : NULL, .norm_c = w->normed ? w->norm[1] : NULL, .eps = 1e-5f,
                         .dt_bias = w->dt_bias, .a = w->a, .skip = w->skip, .out = out, .ldo = MAX_CHANNEL};
    pi__cpu_scan(&w->cpu.be, b, &op);
}

/* A step: the next tokens of each sequence. Sequence s uses slot s + 1. Rows of wrong drafts are NaN. save: snapshot of
 * sequence 0; NULL = none. */
static void step(world *w, const part *p, const pi__save *save)
{
    enum { MAX_ROWS = N_SEQS * (LEN + 64) };
    int32_t start[N_SEQS + 1] = {0}, slot[N_SEQS], verified[N_SEQS], saves[N_SEQS + 1] = {0}, n_seqs = 0, of[N_SEQS];
    static int32_t pos[MAX_ROWS];
    static float x[MAX_ROWS][ROW], out[MAX_ROWS][MAX_CHANNEL];
    int32_t t = 0;
    for (int s = 0; s < N_SEQS; s++) {
        if (!p[s].n) continue;
        for (int32_t i = 0; i < p[s].n + p[s].right + p[s].wrong; i++, t++) {
            pos[t] = w->done[s] + i;
            if (i < p[s].n + p[s].right) memcpy(x[t], w->row[s][w->done[s] + i], sizeof x[t]);
            else memset(x[t], 0xFF, sizeof x[t]);
        }
        slot[n_seqs] = s + 1, verified[n_seqs] = p[s].n, of[n_seqs] = s;
        saves[n_seqs + 1] = saves[n_seqs] + (s == 0 && save);
        start[++n_seqs] = t;
    }
    const pi__batch b = {.n_tokens = t, .n_seqs = n_seqs, .pos = pos, .seq_start = start, .n_verified = verified,
                         .state_slot = slot, .save_start = saves, .save = save};
    run(w, &b, x[0], out[0]);
    for (int32_t k = 0; k < n_seqs; k++) {
        const int32_t s = of[k];
        for (int32_t i = 0; i < p[s].n + p[s].right; i++)
            memcpy(w->out[s][w->done[s] + i], out[start[k] + i], sizeof out[0]);
        w->done[s] += p[s].n + p[s].accepted;
    }
}

static world *complete(int32_t channels, int32_t n_state)
{
    world *w = begin(channels, n_state, 0, 1);
    for (int s = 0; s < N_SEQS; s++) {
        part p[N_SEQS] = {{0}};
        p[s].n = LEN;
        step(w, p, NULL);
    }
    return w;
}

static void assert_same(const world *a, const world *b)
{
    for (int s = 0; s < N_SEQS; s++) {
        assert_int_equal(b->done[s], LEN);
        for (int t = 0; t < LEN; t++)
            if (memcmp(a->out[s][t], b->out[s][t], (size_t) a->st.n_v * sizeof(float)))
                fail_msg("%d channels, %d values: sequence %d token %d differs", a->st.n_v, a->st.dim, s, t);
    }
}

/* Returns the factor of the norm of n values; 1 without a norm. */
static double norm_of(const world *w, const float *x, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double) x[i] * x[i];
    return w->normed ? 1 / sqrt(sum / n + 1e-5) : 1;
}

static void check_channel(const world *w, int s, int32_t c)
{
    const int32_t n = w->st.dim, C = w->st.n_v;
    double h[MAX_STATE] = {0};
    for (int t = 0; t < LEN; t++) {
        const float *x = w->row[s][t], *b = x + 3 * MAX_CHANNEL, *q = b + MAX_STATE;
        const double z = x[MAX_CHANNEL + c], dt = log1p(exp((double) x[2 * MAX_CHANNEL + c] + w->dt_bias[c]));
        const double fb = norm_of(w, b, n), fc = norm_of(w, q, n);
        double y = (double) w->skip[c] * x[c];
        for (int32_t i = 0; i < n; i++) {
            h[i] = exp(dt * w->a[i * C + c]) * h[i] + dt * x[c] * b[i] * fb * (w->normed ? w->norm[0][i] : 1);
            y += h[i] * q[i] * fc * (w->normed ? w->norm[1][i] : 1);
        }
        assert_true(fabs(y * z / (1 + exp(-z)) - w->out[s][t][c]) < 5e-5);
    }
}

static void test_reference(void **state)
{
    (void) state;
    static const int32_t shape[][2] = {{144, 16}, {32, 64}, {128, 32}};
    for (int k = 0; k < 3; k++) {
        world *w = complete(shape[k][0], shape[k][1]);
        for (int s = 0; s < N_SEQS; s++)
            for (int32_t c = 0; c < w->st.n_v; c++) check_channel(w, s, c);
        end(w);
    }
}

/* Random chunks with right and wrong drafts, the sequences in one batch, on several threads. */
static void test_cuts(void **state)
{
    (void) state;
    static const int32_t most[] = {0, 1, 5, 40};
    for (int k = 0; k < 8; k++) {
        const int32_t channels = k % 3 ? 144 : 16, n_draft = most[k % 4];
        world *a = complete(channels, 16), *b = begin(channels, 16, n_draft, 1 + k % 3);
        rng = (uint64_t) k;
        while (b->done[0] < LEN || b->done[1] < LEN || b->done[2] < LEN) {
            part p[N_SEQS] = {{0}};
            for (int s = 0; s < N_SEQS; s++) {
                const int32_t left = LEN - b->done[s], some = 1 + (int32_t) below(below(4) ? 3 : 60);
                p[s].n = below(4) ? some < left ? some : left : 0;
                p[s].right = (int32_t) below((uint32_t) n_draft + 1);
                if (p[s].right > left - p[s].n) p[s].right = left - p[s].n;
                p[s].wrong = (int32_t) below((uint32_t) (n_draft - p[s].right) + 1);
                p[s].accepted = (int32_t) below((uint32_t) p[s].right + 1);
            }
            step(b, p, NULL);
        }
        assert_same(a, b);
        end(a);
        end(b);
    }
}

/* A snapshot continues in another sequence's slot: one that a step takes, one from the slot after the step, and one
 * from the slot after the step's drafts were accepted. */
static void test_snapshots(void **state)
{
    (void) state;
    for (int32_t pos = 16; pos <= 64; pos += 16)
        for (int k = 0; k < 3; k++) {
            world *a = complete(48, 16), *b = begin(48, 16, 20, 1);
            const int32_t from = pos - 5;
            const part first[N_SEQS] = {{.n = from}}, taken[N_SEQS] = {{.n = 7, .wrong = 4}},
                       accepted[N_SEQS] = {{.n = 2, .right = 18, .accepted = 6}};
            const part rest[N_SEQS] = {{0}, {.n = LEN - pos}};
            const pi__save save = {pos, 1};
            step(b, first, NULL);
            step(b, k < 2 ? taken : accepted, k ? NULL : &save);
            if (k) pi__cpu_state_save(&b->cpu.be, NULL, &(pi__state_copy) {&b->st, 1, pos, 1});
            memcpy(b->row[1], b->row[0], sizeof b->row[0]);
            pi__cpu_state_load(&b->cpu.be, NULL, &(pi__state_copy) {&b->st, 2, pos, 1});
            b->done[1] = pos;
            step(b, rest, NULL);
            for (int t = pos; t < LEN; t++) assert_memory_equal(a->out[0][t], b->out[1][t], 48 * sizeof(float));
            end(a);
            end(b);
        }
}

/* A pass of an early-exit drafter: n unverified tokens, `after` tokens after the sequence's last verified one. */
static void pass(world *w, int s, int32_t after, int32_t n)
{
    static float x[8][ROW];
    int32_t pos[8], verified = -after, slot = s + 1, saves[2] = {0};
    for (int32_t i = 0; i < n; i++) pos[i] = w->done[s] + after + i;
    memcpy(x, w->row[s][pos[0]], (size_t) n * sizeof x[0]);
    const pi__batch b = {.n_tokens = n, .n_seqs = 1, .pos = pos, .seq_start = (int32_t[]) {0, n}, .state_slot = &slot,
                         .n_verified = &verified, .save_start = saves};
    run(w, &b, x[0], w->out[s][pos[0]]);
}

/* Before each step the drafter's passes compute tokens that the step computes again, or that are accepted. */
static void test_early_exit(void **state)
{
    (void) state;
    world *a = complete(144, 16), *b = begin(144, 16, 6, 1);
    for (int s = 0; s < N_SEQS; s++)
        for (int k = 0; b->done[s] < LEN; k++) {
            const int32_t left = LEN - b->done[s];
            part p[N_SEQS] = {{0}};
            if (left > 6) pass(b, s, 0, 1 + s);
            if (left > 6) pass(b, s, 1 + s, 2);
            if (left > 6) pass(b, s, 3 + s, 1);
            p[s].n = 1 + k % 3 < left ? 1 + k % 3 : left;
            p[s].right = left - p[s].n < k % 4 ? left - p[s].n : k % 4;
            p[s].accepted = p[s].right / 2;
            step(b, p, NULL);
        }
    assert_same(a, b);
    end(a);
    end(b);
}

static void test_sizes(void **state)
{
    (void) state;
    const pi__state_layer st = {.n_v = 256, .dim = 16, .n_draft = 5};
    assert_int_equal(pi__cpu_state_bytes(NULL, &st), 2 * (16 + 3 * 16 * 128 + 5 * (2 * 128 + 16)) * 4);
    assert_int_equal(pi__cpu_snapshot_bytes(NULL, &st), 16 * 256 * 4);
    const pi__state_layer bad[] = {{.dim = 16, .n_v = 24}, {.dim = 24, .n_v = 64}, {.dim = 80, .n_v = 64},
                                   {.dim = 16, .n_v = 64, .n_draft = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pi__cpu_state_bytes(NULL, &bad[i]), 0);
        assert_int_equal(pi__cpu_snapshot_bytes(NULL, &bad[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_cuts),
                                       cmocka_unit_test(test_snapshots), cmocka_unit_test(test_early_exit),
                                       cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
