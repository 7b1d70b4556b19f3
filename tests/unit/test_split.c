/* Two backends as one (src/backend/split.c); both are CPUs here. Random ops on random rows give bitwise the results
 * of one CPU, for any backend of each op. simt/test_sides.cpp covers models on the emulated device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/split.h"
#include "counting_alloc.h"
#include "formats/formats.h"

enum { N = 32, SLOT = 512, N_SLOTS = 12, ALL = SLOT * N_SLOTS, ROWS = 4 };

static uint64_t seed;
static uint32_t below(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (seed >> 33) % n;
}
static float value(void) { return (float) below(2001) / 1000.0f - 1.0f; }

/* Equal memory twice: of the combined backend and of a single CPU. */
typedef struct fixture {
    pi__backend *two, *one;
    float *x, *x1;         /* [ALL] rows of both */
    float *w, *w1;         /* [N] a vector of the model, for both */
    pi__weight mat[3];     /* [N, N] on the device; on the CPU; and of `one` */
    float rows[N * N];     /* file layout */
} fixture;

static pi__backend *cpu(void)
{
    pi__backend *be;
    const pi__cpu_params p = {.n_threads = 1, .isa = "auto"};
    assert_int_equal(pi__cpu_create(&be, &p, NULL, NULL), PI_OK);
    return be;
}

static void load(pi__backend *be, pi__weight *w, int32_t place, const float *rows)
{
    *w = (pi__weight) {.type = PI__F32, .placement = place, .n_in = N, .n_out = N, .n_mat = 1};
    w->size = be->dev->weight_size(be, w);
    w->data = be->dev->alloc(be, w->size);
    assert_non_null(w->data);
    be->dev->weight_load(be, w, 0, 0, N, rows);
}

static void *both(pi__backend *be, size_t n)
{
    void *p = be->dev->alloc(be, n * sizeof(float));
    assert_non_null(p);
    return p;
}

static void open_fixture(fixture *v)
{
    const pi__limits lim = {.max_tokens = ROWS,
                            .max_seqs = 1,
                            .max_rows = 1,
                            .max_ctx = 16,
                            .max_n_in = N,
                            .max_n_out = N,
                            .max_n_head = 1,
                            .max_head_dim = 32};
    static const pi__batch none;
    seed = 5;
    v->one = cpu();
    assert_int_equal(pi__split_create(&v->two, cpu(), cpu(), NULL), PI_OK);
    pi__backend *be[] = {v->two, v->one};
    for (int i = 0; i < N * N; i++) v->rows[i] = value() / N;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(be[i]->dev->reserve(be[i], &lim, NULL), PI_OK);
        assert_ptr_equal(be[i]->dev->begin(be[i], &none, PI__STEP_DECODE), &none);
        load(v->two->at[i], &v->mat[i], i, v->rows);
    }
    load(v->one, &v->mat[2], 0, v->rows);
    v->x = both(v->two, ALL);
    v->x1 = both(v->one, ALL);
    v->w = both(v->two, N);
    v->w1 = both(v->one, N);
    for (int i = 0; i < ALL; i++) v->x1[i] = value();
    for (int i = 0; i < N; i++) v->w1[i] = 1 + value() / 4;
    v->two->dev->upload(v->two, v->x, v->x1, ALL * sizeof(float));
    v->two->dev->upload(v->two, v->w, v->w1, N * sizeof(float));
}

static void close_fixture(fixture *v)
{
    pi__backend *be[] = {v->two->at[0], v->two->at[1], v->one};
    for (int i = 0; i < 3; i++) be[i]->dev->free(be[i], v->mat[i].data, v->mat[i].size);
    v->two->dev->free(v->two, v->x, ALL * sizeof(float));
    v->two->dev->free(v->two, v->w, N * sizeof(float));
    v->one->dev->free(v->one, v->x1, ALL * sizeof(float));
    v->one->dev->free(v->one, v->w1, N * sizeof(float));
    v->two->dev->destroy(v->two);
    v->one->dev->destroy(v->one);
}

/* Checks that n floats from `at` on are equal. */
static void check(fixture *v, int32_t at, int32_t n, int step)
{
    static float got[ALL];
    v->two->dev->download(v->two, got, v->x + at, (size_t) n * sizeof *got);
    assert_int_equal(v->two->dev->finish(v->two, NULL), PI_OK);
    for (int32_t i = 0; i < n; i++)
        if (memcmp(&got[i], &v->x1[at + i], sizeof *got))
            fail_msg("step %d: value %d of slot %d", step, (at + i) % SLOT, (at + i) / SLOT);
}

/* Multiplies slot b by the matrix of backend `side` into slot a; side 2 = both matrices, with results adjacent in
 * each row. */
static void multiply(fixture *v, int32_t side, int32_t a, int32_t b, int32_t rows)
{
    const int64_t ld = N + below(16), ldy = 2 * N + below(16);
    const int first = side == 2 ? (int) below(2) : side;
    for (int i = 0; i < 2; i++) {
        pi__backend *be = i ? v->one : v->two;
        float *x = i ? v->x1 : v->x;
        pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = x + b * SLOT, .ldx = ld, .w = i ? v->w1 : v->w, .eps = 1e-5f};
        pi__lin lin[] = {{&v->mat[i ? 2 : first], x + a * SLOT, ldy}, {&v->mat[i ? 2 : !first], x + a * SLOT + N, ldy}};
        const pi__linear all = pi__linear_of(&in, rows, lin, side == 2 ? 2 : 1);
        pi__op_linear(be, NULL, &all);
    }
}

static void cap(fixture *v, int32_t at, int32_t n)
{
    pi__op_softcap(v->two, NULL, &(pi__softcap) {v->x + at, 2.0f, 1, n});
    pi__op_softcap(v->one, NULL, &(pi__softcap) {v->x1 + at, 2.0f, 1, n});
}

/* Runs an elementwise op on the backend of the previous op, from slot b to slot a. */
static void small_op(fixture *v, int kind, int32_t a, int32_t b, int32_t rows)
{
    int32_t row[ROWS];
    for (int i = 0; i < ROWS; i++) row[i] = (int32_t) below(SLOT / N + 1) - 1;
    const bool vector = below(2);
    const int64_t ld = N + below(2) * below(32);
    for (int i = 0; i < 2; i++) {
        pi__backend *be = i ? v->one : v->two;
        float *x = (i ? v->x1 : v->x) + a * SLOT, *w = vector ? (i ? v->w1 : v->w) : NULL;
        const float *y = (i ? v->x1 : v->x) + b * SLOT;
        if (kind == 0) pi__op_add_norm(be, NULL, &(pi__add_norm) {.x = x, .y = y, .w = w, .eps = 1e-5f, .scale = 0.5f,
                                                                  .n_rows = rows, .n = N});
        if (kind == 1) pi__op_norm(be, NULL, &(pi__norm) {.out = x, .ldo = ld, .x = y, .w = i ? v->w1 : v->w,
                                                          .eps = 1e-5f, .n_rows = rows, .n = N});
        if (kind == 2)
            pi__op_gather_rows(be, NULL, &(pi__gather_rows) {.row = row, .n_rows = rows, .x = y, .n = N, .out = x});
        if (kind == 3) pi__op_add_gated(be, NULL, &(pi__add_gated) {.y = x, .x = y, .gate = y + N * ROWS, .ldg = ld,
                                                                    .n_rows = rows, .n = N});
    }
    if (kind == 3) cap(v, a * SLOT, rows * N);
}

static void put(fixture *v, int32_t at, int32_t n)
{
    for (int32_t i = at; i < at + n; i++) v->x1[i] = value();
    v->two->dev->upload(v->two, v->x + at, v->x1 + at, (size_t) n * sizeof(float));
}

static void test_ops(void **state)
{
    (void) state;
    static fixture v;
    open_fixture(&v);
    for (int step = 0; step < 4000; step++) {
        int32_t a = (int32_t) below(N_SLOTS), b = (a + 1 + (int32_t) below(N_SLOTS - 1)) % N_SLOTS;
        int32_t rows = 1 + (int32_t) below(ROWS), at = (int32_t) below(ALL - SLOT), n = 1 + (int32_t) below(SLOT);
        switch (below(8)) {
        case 0: case 1: multiply(&v, (int32_t) below(3), a, b, rows); break;
        case 2: case 3: case 4: small_op(&v, (int) below(4), a, b, rows); break;
        case 5: cap(&v, at, 1 + (int32_t) below(40)); break;
        case 6: put(&v, at, n); break;
        default: check(&v, at, n, step);
        }
    }
    check(&v, 0, ALL, 4000);
    close_fixture(&v);
}

/* Creates more ranges than the list has entries; the newer copy alternates between both memories, in any order. */
static void test_pieces(void **state)
{
    (void) state;
    static fixture v;
    open_fixture(&v);
    for (int step = 0; step < 3000; step++) {
        if (below(3)) multiply(&v, (int32_t) below(2), 0, 1, 1);
        cap(&v, SLOT * 2 + (int32_t) below(ALL - SLOT * 2 - 8), 1 + (int32_t) below(8));
        if (step % 500 == 499) check(&v, 0, ALL, step);
    }
    close_fixture(&v);
}

/* Recorded calls of both backends in order: lowercase = device, uppercase = CPU, with the row counts of products. */
static char asked[256];
static const pi__device_fns *cpu_ops;
static const pi__backend *traced_cpu;

static void note(const char *what, int32_t rows)
{
    const size_t n = strlen(asked);
    snprintf(asked + n, sizeof asked - n, rows ? "%s%d " : "%s ", what, rows);
}

static const pi__batch *traced_begin(pi__backend *be, const pi__batch *b, int kind)
{
    static pi__batch padded;
    (void) be;
    note(kind == PI__STEP_SEGMENTS ? "parts" : kind == PI__STEP_ANY ? "any" : "?", 0);
    padded = *b;
    padded.n_tokens = padded.n_seqs = padded.n_rows = ROWS;
    return kind == PI__STEP_SEGMENTS ? &padded : b;
}
static void traced_part(pi__backend *be) { (void) be, note("part", 0); }
static bool traced_queued(pi__backend *be) { return (void) be, note("queued", 0), true; }
static void traced_upload(pi__backend *be, void *dst, const void *src, size_t n)
{
    note("up", 0);
    cpu_ops->upload(be, dst, src, n);
}
static void traced_download(pi__backend *be, void *dst, const void *src, size_t n)
{
    note("down", 0);
    cpu_ops->download(be, dst, src, n);
}
static int traced_finish(pi__backend *be, pi_error *err)
{
    note("wait", 0);
    return cpu_ops->finish(be, err);
}
static void (*plain_linear)(pi__backend *be, const pi__batch *b, const pi__linear *a);
static void traced_linear(pi__backend *be, const pi__batch *b, const pi__linear *a)
{
    note(be == traced_cpu ? "CPU" : "dev", a->n_rows);
    plain_linear(be, b, a);
}

static void asks(const char *want)
{
    assert_string_equal(asked, want);
    *asked = 0;
}

/* Slot a = matrix of backend `side` times slot b. */
static void product(fixture *v, int32_t side, int32_t a, int32_t b, int32_t rows)
{
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = v->x + b * SLOT, .ldx = N};
    pi__op_linear(v->two, NULL, &(pi__linear) {.in = in, .n_rows = rows, .n_lin = 1, .lin = {{&v->mat[side],
                                                                                              v->x + a * SLOT, N}}});
}

/* The device receives a decode step as graph segments, each between two CPU ops, padded to the number of rows that it
 * prefers. The CPU computes only the actual rows. No data of an earlier step is copied. */
static void test_parts(void **state)
{
    (void) state;
    static fixture v;
    static float got[ROWS * N];
    pi__device_fns dev;
    pi__device_opt opt;
    const pi__batch b = {.n_tokens = 3, .n_seqs = 3, .n_rows = 3};
    open_fixture(&v);
    const pi__device_fns *op = v.two->dev;
    const pi__op_fns *fns = v.one->ops;
    pi__op_fns traced = *fns;
    cpu_ops = v.one->dev;
    plain_linear = fns->linear;
    traced.linear = traced_linear;
    traced_cpu = v.two->at[PI__AT_CPU];
    dev = *cpu_ops;
    opt = *v.one->opt;
    dev.begin = traced_begin, opt.graph_segment = traced_part, opt.end_capture = traced_queued,
    dev.upload = traced_upload;
    dev.download = traced_download, dev.finish = traced_finish;
    v.two->at[PI__AT_DEVICE]->dev = &dev;
    v.two->at[PI__AT_DEVICE]->opt = &opt;
    for (int i = 0; i < 2; i++) v.two->at[i]->ops = &traced;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(op->begin(v.two, &b, PI__STEP_DECODE)->n_tokens, ROWS);
        product(&v, PI__AT_CPU, 0, 1, ROWS);
        asks("parts CPU3 ");
        product(&v, PI__AT_DEVICE, 2, 0, ROWS);
        product(&v, PI__AT_DEVICE, 3, 2, ROWS);
        asks("part up dev4 dev4 ");
        product(&v, PI__AT_CPU, 4, 3, ROWS);
        product(&v, PI__AT_CPU, 5, 4, ROWS);
        asks("down queued wait CPU3 CPU3 ");
        product(&v, PI__AT_CPU, 6, 2, ROWS); /* no other work is in progress */
        asks("part down queued wait CPU3 ");
        product(&v, PI__AT_DEVICE, 7, 6, ROWS);
        product(&v, PI__AT_DEVICE, 1, 7, ROWS);
        op->download(v.two, got, v.x + SLOT, sizeof got);
        product(&v, PI__AT_DEVICE, 8, 1, 2);
        assert_int_equal(op->finish(v.two, NULL), PI_OK);
        asks("part up dev4 dev4 queued down dev2 wait ");
    }
    assert_int_equal(op->begin(v.two, &b, PI__STEP_ANY)->n_tokens, 3);
    product(&v, PI__AT_CPU, 0, 1, 3);
    product(&v, PI__AT_DEVICE, 0, 0, 3);
    assert_int_equal(op->finish(v.two, NULL), PI_OK);
    asks("any down wait CPU3 up dev3 wait ");
    v.two->at[PI__AT_DEVICE]->dev = cpu_ops;
    v.two->at[PI__AT_DEVICE]->opt = v.one->opt;
    for (int i = 0; i < 2; i++) v.two->at[i]->ops = fns;
    close_fixture(&v);
}

/* Memory has regions for all requests of a model, but a bounded number; an allocation failure is reported. */
static void test_memory(void **state)
{
    (void) state;
    pi__backend *two;
    void *p[200];
    int n = 0;
    assert_int_equal(pi__split_create(&two, cpu(), cpu(), NULL), PI_OK);
    while (n < 200 && (p[n] = two->dev->alloc(two, 4096))) n++;
    assert_in_range(n, 6, 199);
    two->dev->free(two, p[--n], 4096);
    assert_non_null(p[n] = two->dev->alloc(two, 4096));
    for (int i = 0; i <= n; i++) two->dev->free(two, p[i], 4096);
    two->dev->free(two, NULL, 0);
    two->dev->destroy(two);

    static counting_alloc a;
    for (long i = 0; i < 2; i++) { /* the device's memory, then the CPU's */
        counting_use(&a, -1);
        assert_int_equal(pi__split_create(&two, cpu(), cpu(), NULL), PI_OK);
        const long live = a.live;
        a.fail_at = a.count + i;
        assert_null(two->dev->alloc(two, 4096));
        assert_int_equal(a.live, live);
        two->dev->destroy(two);
        assert_int_equal(a.live, 0);
        pi_set_allocator(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ops), cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_parts), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
