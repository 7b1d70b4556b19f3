/* Op linear in the mode that computes only the largest values. Op topk returns bitwise the result of the full
 * product, for each format and instruction set. Covers ties, NaN and infinite values, and rows that need all
 * values. */
#include "rounds.h"
#include "weights.h"

enum { N_IN = 512, N_OUT = 3007, ROWS = 19, WORDS = 2 + PI__MAX_TOP };

static float *x, whole[ROWS * N_OUT], y[ROWS * N_OUT];
static uint64_t want[ROWS * WORDS], got[ROWS * WORDS];

static void find(pi__cpu *cpu, float *of, const pi__topk_request *request, const int32_t *skip, uint64_t *out)
{
    memset(out, 0, ROWS * WORDS * sizeof *out);
    pi__cpu_topk(
        &cpu->be, NULL,
        &(pi__topk) {.x = of, .n_rows = ROWS, .n = N_OUT, .skip = skip, .n_skip = 3, .request = request, .out = out});
}

/* Returns the number of values that differ from the full product. */
static int check(fixture *f, int32_t most_k, float margin, bool whole_rows)
{
    const int32_t skip[3] = {(int32_t) (rnd() % N_OUT), 100, (int32_t) (rnd() % N_OUT)};
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = x, .ldx = N_IN};
    pi__topk_request request[ROWS];
    pi__best_rows best = {.request = request, .margin = margin, .most = 1e30f};
    int n = 0;
    for (int r = 0; r < ROWS; r++)
        request[r] = (pi__topk_request) {r ? 1 + (int32_t) (rnd() % (uint32_t) most_k) : most_k, r % 4, 0};
    if (whole_rows) request[3].k = 0, request[7].sum = request[8].sum = 1;
    pi__cpu_linear(&f->cpu.be, NULL,
                   &(pi__linear) {.in = in, .n_rows = ROWS, .n_lin = 1, .lin = {{&f->w, whole, N_OUT}}});
    pi__cpu_linear(&f->cpu.be, NULL,
                   &(pi__linear) {.in = in, .n_rows = ROWS, .n_lin = 1, .lin = {{&f->w, y, N_OUT}}, .best = &best});
    for (int i = 3 * N_OUT; i < 4 * N_OUT && whole_rows; i++) assert_memory_equal(&y[i], &whole[i], sizeof y[i]);
    for (int i = 0; i < ROWS * N_OUT; i++) n += memcmp(&y[i], &whole[i], sizeof y[i]) != 0;
    assert_true(n == 0 || best.partial);
    find(&f->cpu, whole, request, skip, want);
    find(&f->cpu, y, request, skip, got);
    if (memcmp(want, got, sizeof want)) fail_msg("%s, type %d, %d values", f->cpu.lin->name, f->w.type, most_k);
    return n;
}

static void run_type(int isa, int type)
{
    fixture f = {0};
    const pi__limits lim = {.max_tokens = ROWS, .max_rows = ROWS, .max_n_in = N_IN, .n_vocab = N_OUT};
    const size_t row = pi__row_size(pi__type_info_of(type), N_IN);
    cpu_start(&f.cpu, pi__cpu_linear_kernels_of(isa, 15), 2, &lim);
    f.cpu.isa = isa;
    f.cpu.top = pi__cpu_top_kernels_of(isa);
    free(f.cpu.scratch);
    f.cpu.scratch_size = pi__cpu_linear_scratch(&f.cpu, &lim) + pi__cpu_topk_scratch(&f.cpu, &lim);
    f.cpu.scratch = aligned(f.cpu.scratch_size);
    weight_make(&f, type, N_IN, N_OUT, 1);
    for (size_t i = 0; i < 40; i++) memcpy(f.src + (100 + 31 * i) * row, f.src, row); /* ties */
    load_all(&f);
    x = random_rows(ROWS * N_IN);
    assert_true(check(&f, 1, 0, false) > ROWS * N_OUT / 2); /* most are not computed with 15 bits */
    check(&f, 40, 0.01f, false);
    check(&f, PI__MAX_TOP, 0, true);
    for (int i = 0; i < N_IN; i++) x[i] = i % 100 ? 0 : 50 * normalish(), x[N_IN + i] *= 1e-20f;
    check(&f, 7, 0, true);
    x[0] = NAN, x[N_IN] = INFINITY, x[2 * N_IN] = 3e38f;
    check(&f, 7, 0, true);
    memset(x, 0, ROWS * N_IN * sizeof *x);
    check(&f, 7, 0, true);
    free(x);
    weight_drop(&f);
    pi__free(f.cpu.norms.tile);
    backend_stop(&f.cpu);
}

static void test_same(void **state)
{
    (void) state;
    for (int isa = crossed(); isa < PI__N_ISAS; isa++) { /* plain C runs natively in other builds */
        if (!pi__isa_available(isa) || !pi__cpu_linear_kernels_of(isa, 15)) continue;
        for (int t = 0; t < N_TYPES; t += emulated() ? 5 : 1)
            if (!is_float(all_types[t])) run_type(isa, all_types[t]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same)};
    return cmocka_run_group_tests_name("linear_best", tests, NULL, NULL);
}
