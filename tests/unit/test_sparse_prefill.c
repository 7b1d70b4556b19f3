/* Sparse prefill on the CPU. The choice of key blocks and the output match a double-precision reference. If all
 * blocks are chosen, the output equals dense attention bitwise. Bitwise identical for every batch, chunking, block
 * size and thread count, for each available instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "attention_fixture.h"
#include "isas.h"
#include "rounds.h"

enum { B = PI__SPARSE_BLOCK };

static int isas[PI__N_ISAS], n_isas;

static int find_isas(void **state)
{
    (void) state;
    for (int i = PI__ISA_GENERIC; i < PI__N_ISAS; i++)
        if (own_kernels(i)) isas[n_isas++] = i;
    return 0;
}

static const config base = {.n_threads = 2, .block_size = 16, .type_k = PI__F16, .type_v = PI__F16, .n_head = 4,
                            .n_head_kv = 2, .head_dim = 32, .chunk = 10000, .sparsity = 0.5f, .sparse_from = 384};

/* Makes the queries of a block, head h, similar to a vector `common` that is part of some block's keys. */
static void look_for(const config *c, sequence *s, int first, int h, const float *common)
{
    const int D = c->head_dim;
    float square = 0;
    for (int d = 0; d < D; d++) square += common[d] * common[d];
    for (int t = first; t < first + B && t < s->len; t++)
        for (int d = 0; d < D; d++) s->q[(t * c->n_head + h) * D + d] += 3 * common[d] / square;
}

static void start(fixture *w, const config *c, int n_seqs, const int *lens)
{
    enum { MOST = 20 };
    static float common[MOST][512];
    fixture_init(w, c, n_seqs, lens);
    for (int i = 0; i < n_seqs; i++) {
        sequence *s = &w->seq[i];
        const int nk = c->n_head_kv * c->head_dim;
        fixture_rng = 17 + (uint64_t) i;
        for (int block = 0; block * B < s->len; block++) {
            assert_true(block < MOST);
            for (int d = 0; d < nk; d++) common[block][d] = 1.5f * normal();
            for (int t = block * B; t < (block + 1) * B && t < s->len; t++)
                for (int d = 0; d < nk; d++) s->k[t * nk + d] += common[block][d];
            for (int h = 0; h < c->n_head; h++)
                look_for(c, s, block * B, h,
                         common[(int) (uniform() * block)] + h / (c->n_head / c->n_head_kv) * c->head_dim);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------- reference */

/* Rounds row x to the cache type. */
static void through(const fixture *w, int32_t type, const float *x, float *y)
{
    char row[4 * 512];
    float whole[512] = {0}; /* rows are stored in units of 32 */
    memcpy(whole, x, (size_t) w->c.head_dim * sizeof *x);
    w->cpu.attn->store_row(type, row, w->c.head_dim, whole);
    w->cpu.attn->load_row(type, row, w->c.head_dim, y);
}

static double logit(const config *c, const float *q, const double *k)
{
    double dot = 0;
    for (int d = 0; d < c->head_dim; d++) dot += (double) q[d] * k[d];
    return c->softcap != 0 ? c->softcap * tanh(dot / c->softcap) : dot;
}

/* Adds the choice of head h of query block m of s to taken[0..m]. mean: [blocks, n_head_kv, head_dim] */
static void choose(const fixture *w, const sequence *s, const double *mean, int m, int h, bool *taken)
{
    const config *c = &w->c;
    const int D = c->head_dim, kvh = h / (c->n_head / c->n_head_kv);
    double score[64] = {0}, most = 0;
    for (int t = m * B; t < (m + 1) * B; t++) {
        double x[64], top = -INFINITY;
        for (int n = 0; n <= m; n++) {
            x[n] = logit(c, s->q + (t * c->n_head + h) * D, mean + (n * c->n_head_kv + kvh) * D);
            top = fmax(top, x[n]);
        }
        for (int n = 0; n <= m; n++) score[n] += exp(x[n] - top);
    }
    for (int n = 0; n <= m; n++) most = fmax(most, score[n]);
    for (int n = 0; n <= m; n++) {
        if (fabs(score[n] - (double) c->sparsity * most) < 1e-4 * most)
            fail_msg("the data leave it open whether block %d is chosen", n);
        taken[n] |= n < 2 || m - n < 4 || score[n] >= (double) c->sparsity * most;
    }
}

/* Computes the output of token t, head h, over the keys in taken blocks. */
static void reference(const fixture *w, const sequence *s, const double *k, const double *v, int t, int h,
                      const bool *taken, double *out)
{
    const config *c = &w->c;
    const int D = c->head_dim, kvh = h / (c->n_head / c->n_head_kv);
    double max = -INFINITY, sum = 0;
    for (int d = 0; d < D; d++) out[d] = 0;
    for (int j = 0; j <= t; j++)
        if (taken[j / B]) max = fmax(max, logit(c, s->q + (t * c->n_head + h) * D, k + (j * c->n_head_kv + kvh) * D));
    for (int j = 0; j <= t; j++) {
        if (!taken[j / B]) continue;
        const double p = exp(logit(c, s->q + (t * c->n_head + h) * D, k + (j * c->n_head_kv + kvh) * D) - max);
        sum += p;
        for (int d = 0; d < D; d++) out[d] += p * v[(j * c->n_head_kv + kvh) * D + d];
    }
    if (c->sinks) sum += exp((double) w->sinks[h] - max);
    for (int d = 0; d < D; d++) out[d] /= sum;
    for (int d = 0; c->gate && d < D; d++) out[d] /= 1 + exp(-(double) s->gate[(t * c->n_head + h) * D + d]);
}

/* Taken and all key blocks, summed over the query blocks of a sequence. */
typedef struct counts {
    int taken, all;
} counts;

static counts check_sequence(const fixture *w, int i)
{
    const config *c = &w->c;
    const sequence *s = &w->seq[i];
    const int D = c->head_dim, nk = c->n_head_kv * D, blocks = s->len / B, group = c->n_head / c->n_head_kv;
    bool chosen[4][64] = {{0}}; /* by key-value head, for t's query block */
    counts n = {0, 0};
    assert_true(c->n_head_kv <= 4);
    double *k = must(malloc((size_t) (s->len * nk) * sizeof *k)), *v = must(malloc((size_t) (s->len * nk) * sizeof *v));
    double *mean = must(calloc((size_t) (blocks * nk), sizeof *mean));
    for (int j = 0; j < s->len * c->n_head_kv; j++) {
        float y[512];
        through(w, c->type_k, s->k + j * D, y);
        for (int d = 0; d < D; d++) k[j * D + d] = (double) y[d];
        through(w, c->type_v, s->v + j * D, y);
        for (int d = 0; d < D; d++) v[j * D + d] = (double) y[d];
    }
    for (int j = 0; j < blocks * B; j++)
        for (int d = 0; d < nk; d++) mean[j / B * nk + d] += k[j * nk + d] / B;
    for (int t = 0; t < s->len; t += t % B == B - 1 ? 1 : 42) { /* three tokens per block, including the last */
        if (t % B == 126) t++;
        const bool sparse = t >= c->sparse_from && t < sparse_end(w, i);
        if (t % B == 0) { /* a query block chooses once */
            memset(chosen, !sparse, sizeof chosen);
            for (int h = 0; sparse && h < c->n_head; h++) choose(w, s, mean, t / B, h, chosen[h / group]);
            for (int h = 0; sparse && h < c->n_head_kv; h++)
                for (int b = 0; b <= t / B; b++) n.taken += chosen[h][b], n.all++;
        }
        for (int h = 0; h < c->n_head; h++) {
            const bool *taken = chosen[h / group];
            double ref[512], worst = 0;
            reference(w, s, k, v, t, h, taken, ref);
            for (int d = 0; d < D; d++)
                worst = fmax(worst, fabs(ref[d] - (double) s->out[(t * c->n_head + h) * D + d]));
            if (!(worst <= 1e-5))
                fail_msg("isa %d type %d token %d head %d is off by %g", c->isa, c->type_k, t, h, worst);
        }
    }
    free(k);
    free(v);
    free(mean);
    return n;
}

/* Runs on each instruction set; checks that the choice is neither empty nor everything. */
static void run_and_check(const config *c0, int n_seqs, const int *lens)
{
    for (int i = 0; i < n_isas; i++) {
        config c = *c0;
        c.isa = isas[i];
        fixture w;
        start(&w, &c, n_seqs, lens);
        fixture_run(&w);
        counts all = {0, 0};
        for (int s = 0; s < n_seqs; s++) {
            const counts n = check_sequence(&w, s);
            all.taken += n.taken;
            all.all += n.all;
        }
        assert_int_equal(w.cpu.be.n_attended, all.taken);
        assert_int_equal(w.cpu.be.n_possible, all.all);
        if (!all.all || all.taken == all.all)
            fail_msg("types %d, %d: all %d blocks are chosen", c.type_k, c.type_v, all.all);
        fixture_free(&w);
    }
}

static void reference_is_met(void **state)
{
    (void) state;
    static const int lens[] = {13 * B + 5, 9 * B};
    static const int32_t types[] = {PI__F32, PI__F16, PI__BF16, PI__Q8_0, PI__Q4_1, PI__TQ4_0, PI__TQ3_0};
    for (int i = 0; i < 7; i++) {
        config c = base;
        c.type_k = types[i];
        c.type_v = types[(i + 2) % 7];
        c.block_size = 16 << i % 3;
        c.softcap = i == 2 ? 8.0f : 0;
        c.sinks = i == 3;
        c.gate = i % 2;
        c.n_head = i % 3 ? 4 : 2;
        c.head_dim = i == 1 ? 80 : 32;
        if (i == 1) c.type_v = PI__F16;
        const bool few = emulated();
        run_and_check(&c, few ? 1 : 2, few ? lens + 1 : lens);
        if (i == 2 && few) return;
    }
}

/* With sparsity above 1, no score suffices: only the first two and the last four blocks are attended. The counts show
 * this. */
static void sinks_and_window(void **state)
{
    (void) state;
    static const int lens[] = {12 * B};
    config c = base;
    c.sparsity = 2;
    c.sparse_from = 0;
    c.isa = isas[n_isas - 1];
    fixture w;
    start(&w, &c, 1, lens);
    fixture_run(&w);
    check_sequence(&w, 0);
    assert_int_equal(w.cpu.be.n_attended, c.n_head_kv * (1 + 2 + 3 + 4 + 5 + 6 + 4 * 6));
    assert_int_equal(w.cpu.be.n_possible, c.n_head_kv * 55);
    fixture_free(&w);
}

/* ----------------------------------------------------------------------------------------------- bitwise identical */

static void assert_same(const fixture *a, const fixture *b, const char *what)
{
    for (int i = 0; i < a->n_seqs; i++) {
        const size_t n = (size_t) (a->seq[i].len * a->c.n_head * a->c.head_dim);
        for (size_t j = 0; j < n; j++) {
            if (!memcmp(&a->seq[i].out[j], &b->seq[i].out[j], 4)) continue;
            fail_msg("%s: isa %d: value %zu of sequence %d differs", what, a->c.isa, j, i);
        }
    }
}

static void same_as(const fixture *a, config c, const int *lens, const char *what)
{
    fixture b;
    start(&b, &c, a->n_seqs, lens);
    fixture_run(&b);
    assert_same(a, &b, what);
    fixture_free(&b);
}

static void all_blocks_are_dense(void **state)
{
    (void) state;
    static const int lens[] = {9 * B + 77, 7 * B};
    static const int32_t types[] = {PI__F32, PI__F16, PI__Q8_0, PI__TQ4_0};
    for (int i = 0; i < n_isas; i++) {
        for (int k = 0; k < 4; k += emulated() ? 3 : 1) {
            config c = base;
            c.isa = isas[i];
            c.type_k = c.type_v = types[k];
            c.gate = k == 2;
            c.sparsity = 1e-30f;
            fixture w;
            start(&w, &c, emulated() ? 1 : 2, lens);
            fixture_run(&w);
            assert_int_equal(w.cpu.be.n_attended, w.cpu.be.n_possible);
            assert_true(w.cpu.be.n_possible > 0);
            c.sparsity = 0;
            c.chunk = 300;
            same_as(&w, c, lens, "dense");
            fixture_free(&w);
        }
    }
}

static void who_shares_the_batch_changes_nothing(void **state)
{
    (void) state;
    static const int lens[] = {10 * B + 3, 8 * B + 100, 5 * B};
    for (int i = emulated() ? n_isas - 1 : 0; i < n_isas; i++) {
        config c = base;
        c.isa = isas[i];
        c.n_threads = 1;
        c.apart = true;
        fixture w;
        start(&w, &c, 3, lens);
        fixture_run(&w);
        c.apart = false;
        if (!emulated()) same_as(&w, c, lens, "in one batch");
        c.n_threads = 2;
        c.chunk = B;
        if (!emulated()) same_as(&w, c, lens, "a block at a time, two threads");
        c.n_threads = 3;
        c.block_size = 32;
        c.chunk = 3 * B - 5;
        c.ids = 4;
        same_as(&w, c, lens, "blocks of 32, chunks of two or three");
        c.block_size = 64;
        c.apart = true;
        c.chunk = 200;
        same_as(&w, c, lens, "blocks of 64, apart");
        fixture_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_is_met), cmocka_unit_test(sinks_and_window), cmocka_unit_test(all_blocks_are_dense),
        cmocka_unit_test(who_shares_the_batch_changes_nothing),
    };
    return cmocka_run_group_tests(tests, find_isas, NULL);
}
