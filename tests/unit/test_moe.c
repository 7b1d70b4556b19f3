/* Routed experts on the CPU: routing and results compared with double arithmetic in every format. Also
 * batch-invariant with any number of threads. Each available instruction set runs the same tests. */
#include "rounds.h"
#include "weights.h"

typedef struct moe_fixture {
    fixture gate, up, down;           /* stacked matrices; up.w.n_mat 0 = gate holds gate and up */
    float *scale[3];                  /* per-expert factors of gate, up, down */
    float *x, *logits, *y, *w;        /* arrays of max_rows rows */
    int32_t max_rows;
    pi__moe a;
} moe_fixture;

static void fixture_start(moe_fixture *t, const pi__cpu_linear_kernels *k, int32_t threads, const int types[3],
                          int64_t E, int64_t F, int32_t n_expert, int32_t n_used, int32_t max_rows, bool fused)
{
    memset(t, 0, sizeof *t);
    pi__cpu *cpu = &t->gate.cpu;
    cpu_start(cpu, k, threads, &(pi__limits) {.max_tokens = max_rows, .max_n_in = E > F ? E : F, .max_expert = n_expert,
                                              .max_used = n_used, .max_in_exp = E, .max_ff_exp = 2 * F});
    t->up.cpu = t->down.cpu = *cpu;
    weight_make(&t->gate, types[0], E, fused ? 2 * F : F, n_expert);
    if (!fused) weight_make(&t->up, types[1], E, F, n_expert);
    weight_make(&t->down, types[2], F, E, n_expert);
    for (int i = 0; i < 3; i++) {
        t->scale[i] = random_rows(n_expert);
        fixture *f = i == 0 ? &t->gate : i == 1 ? &t->up : &t->down;
        f->w.scale = t->scale[i];
    }
    t->max_rows = max_rows;
    t->x = random_rows(max_rows * E);
    t->w = random_rows(E);
    t->logits = random_rows((int64_t) max_rows * (n_expert + 3));
    t->y = random_rows(max_rows * (E + 2));
    t->a = (pi__moe) {.in = {.kind = PI__IN_PLAIN, .x = t->x, .ldx = E, .w = t->w, .eps = 1e-6f},
                      .logits = t->logits,
                      .ldl = n_expert + 3,
                      .n_expert = n_expert,
                      .n_used = n_used,
                      .weights_scale = 1.5f,
                      .gate = &t->gate.w,
                      .up = fused ? NULL : &t->up.w,
                      .down = &t->down.w,
                      .act = PI__IN_GEGLU,
                      .y = t->y,
                      .ldy = E + 2};
}

static void fixture_stop(moe_fixture *t)
{
    weight_drop(&t->gate);
    if (t->a.up) weight_drop(&t->up);
    weight_drop(&t->down);
    for (int i = 0; i < 3; i++) free(t->scale[i]);
    free(t->x), free(t->w), free(t->logits), free(t->y);
    backend_stop(&t->gate.cpu);
}

/* Returns the logit of expert e. */
static double logit_of(const pi__moe *a, const float *logits, int32_t e)
{
    return logits[e] + (a->gating == PI__GATE_SOFTMAX && a->bias ? a->bias[e] : 0);
}

/* Returns a routing weight before normalization; `all` is the sum of the softmax. */
static double gate_of(const pi__moe *a, double logit, double all)
{
    if (a->gating == PI__GATE_SIGMOID) return 1 / (1 + exp(-logit));
    if (a->gating == PI__GATE_SQRT_SOFTPLUS) return sqrt(log1p(exp(logit)));
    return exp(logit) / all;
}

/* Returns the SparseMixer weight of the chosen expert id[i]. */
static double mixed_weight(const pi__moe *a, const float *logits, const int32_t *id, int32_t i)
{
    const double c = logits[id[i]];
    double sum = 0;
    for (int32_t e = 0; e < a->n_expert; e++) {
        bool in = e == id[i] || c - logits[e] <= 0.02 * fmax(fabs(logits[e]), c);
        for (int32_t k = 0; k < i; k++) in &= id[k] != e;
        if (in) sum += exp(logits[e] - c);
    }
    return 1 / sum;
}

static const int32_t token_of[9] = {3, 0, 1, 1, 2, 0, 3, 2, 2}; /* token of each row, for experts selected by table */

/* Computes the reference routing of row r: ids by rank and their weights. */
static void route(const pi__moe *a, int32_t r, int32_t *id, double *weight)
{
    const float *logits = a->logits + r * a->ldl;
    static double rank[20000];
    double all = 0, sum = 0;
    for (int32_t e = 0; e < a->n_expert; e++) all += exp(logit_of(a, logits, e));
    for (int32_t e = 0; e < a->n_expert; e++) {
        rank[e] = logit_of(a, logits, e);
        if (a->bias && a->gating != PI__GATE_SOFTMAX) rank[e] = gate_of(a, rank[e], all) + a->bias[e];
    }
    for (int32_t i = 0; i < a->n_used; i++) {
        id[i] = -1;
        for (int32_t e = 0; e < a->n_expert; e++) {
            bool taken = false;
            for (int32_t j = 0; j < i; j++) taken |= id[j] == e;
            if (!taken && (id[i] < 0 || rank[e] > rank[id[i]])) id[i] = e;
        }
        if (a->table) id[i] = a->table[token_of[r] * a->n_used + i];
        weight[i] = gate_of(a, logit_of(a, logits, id[i]), all);
        if (a->gating == PI__GATE_SPARSEMIXER) weight[i] = mixed_weight(a, logits, id, i);
        sum += weight[i];
    }
    if (a->undivided) sum = 1;
    for (int32_t i = 0; i < a->n_used; i++) weight[i] *= a->weights_scale / fmax(sum, 6.1e-5);
}

static double act_of(int act, double v)
{
    if (act == PI__IN_SWIGLU) return v / (1 + exp(-v));
    if (act == PI__IN_SWIGLU_OAI) return v / (1 + exp(-1.702 * v));
    return 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
}

/* Returns row o of a stack's matrix e times x; *size = bound of the error from rounding x (half a code step). */
static double dot(const fixture *f, const float *scale, int32_t e, int64_t o, const double *x, double most,
                  double *size)
{
    const float *w = f->ref + ((int64_t) e * f->w.n_out + o) * f->w.n_in;
    double sum = 0, abs = 0, half = most / (1.968 * code_max(&f->cpu));
    for (int64_t k = 0; k < f->w.n_in; k++) {
        sum += w[k] * x[k];
        abs += fabs(w[k]) * (half + 4e-6 * fabs(x[k]));
    }
    *size = abs * fabs(scale[e]);
    return sum * scale[e];
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

/* Adds weight * expert e of x to y, and the maximum error to bound. */
static void expert(const moe_fixture *t, int32_t e, double weight, const double *x, double *y, double *bound)
{
    const int64_t E = t->gate.w.n_in, F = t->down.w.n_in;
    double *mid = malloc((size_t) F * sizeof *mid), *off = malloc((size_t) F * sizeof *off);
    for (int64_t i = 0; i < F; i++) {
        double sg, su, g = dot(&t->gate, t->scale[0], e, i, x, largest(x, E), &sg), u;
        if (t->a.up) u = dot(&t->up, t->scale[1], e, i, x, largest(x, E), &su);
        else u = dot(&t->gate, t->scale[0], e, F + i, x, largest(x, E), &su);
        if (t->a.gate_bias) g += t->a.gate_bias[e * F + i], u += t->a.up_bias[e * F + i];
        const double most = fabs((double) t->a.limit);
        if (t->a.limit > 0) g = fmin(g, most);
        if (most > 0) u = fmax(fmin(u, most), -most);
        if (t->a.act == PI__IN_SWIGLU_OAI) u += 1;
        mid[i] = act_of(t->a.act, g);
        if (t->a.limit < 0) mid[i] = fmin(mid[i], most);
        mid[i] *= u;
        off[i] = 1.2 * sg * (fabs(u) + su) + (fabs(g) + sg) * su;
    }
    const double most = largest(mid, F) + largest(off, F);
    for (int64_t o = 0; o < E; o++) {
        double size, v = dot(&t->down, t->scale[2], e, o, mid, most, &size);
        for (int64_t i = 0; i < F; i++)
            size += fabs(t->down.ref[((int64_t) e * E + o) * F + i] * t->scale[2][e]) * off[i];
        if (t->a.down_bias) v += t->a.down_bias[e * t->a.ld_down_bias + o];
        y[o] += weight * v;
        bound[o] += fabs(weight) * size * 1.1 + 1e-5 * fabs(weight * v);
    }
    free(mid), free(off);
}

/* Checks the first row, one row in every `step`, and the last row. */
static void check_rows(const moe_fixture *t, int32_t n_rows, int32_t step, const char *what)
{
    const int64_t E = t->gate.w.n_in;
    double *x = malloc((size_t) E * sizeof *x), *y = malloc((size_t) E * sizeof *y),
           *bound = malloc((size_t) E * sizeof *y);
    for (int32_t r = 0; r < n_rows; r = r < n_rows - 1 && r + step >= n_rows ? n_rows - 1 : r + step) {
        int32_t id[PI__LIN_COLS];
        double weight[PI__LIN_COLS], ss = 0;
        for (int64_t k = 0; k < E; k++) ss += (double) t->x[r * E + k] * t->x[r * E + k];
        for (int64_t k = 0; k < E; k++) {
            x[k] = t->x[r * E + k];
            if (t->a.in.kind == PI__IN_RMSNORM) x[k] *= t->w[k] / sqrt(ss / (double) E + t->a.in.eps);
            y[k] = bound[k] = 0;
        }
        route(&t->a, r, id, weight);
        for (int32_t i = 0; i < t->a.n_used; i++) expert(t, id[i], weight[i], x, y, bound);
        for (int64_t o = 0; o < E; o++)
            if (!(fabs(t->y[r * t->a.ldy + o] - y[o]) <= bound[o] + 1e-6))
                fail_msg("%s, row %d, out %d: %.9g, not %.9g (bound %g)", what, r, (int) o, t->y[r * t->a.ldy + o],
                         y[o], bound[o]);
    }
    free(x), free(y), free(bound);
}

static int64_t unit_of(int type)
{
    return pi__type_info_of(type)->blck_size < 32 ? 32 : pi__type_info_of(type)->blck_size;
}

/* Every format for gate, up and down, with sizes that are not multiples of a tile, and of a block if the format
 * permits. */
static void formats(const pi__cpu_linear_kernels *k)
{
    static const int32_t experts[] = {1, 4, 7}, rows[] = {1, 3, 23};
    for (int i = 0; i < N_TYPES; i++) {
        const int types[3] = {all_types[i], all_types[(i + 7) % N_TYPES], all_types[(i + 3) % N_TYPES]};
        int64_t E = unit_of(types[0]) > unit_of(types[1]) ? unit_of(types[0]) : unit_of(types[1]),
                F = unit_of(types[2]);
        if (is_float(types[0]) && is_float(types[1])) E = 45;
        if (E == 32) E = 96;
        F = is_float(types[2]) ? 77 : F == 32 ? 160 : F;
        moe_fixture t;
        const int32_t n_expert = experts[i % 3], n_used = n_expert == 1 ? 1 : 1 + i % 3;
        fixture_start(&t, k, 2, types, E, F, n_expert, n_used, rows[i / 3 % 3], i % 4 == 0);
        t.a.act = i % 2 ? PI__IN_GEGLU : PI__IN_SWIGLU;
        t.a.in.kind = i % 3 ? PI__IN_PLAIN : PI__IN_RMSNORM;
        const float edge = t.y[E];
        t.a.n_rows = t.max_rows;
        pi__cpu_moe(&t.gate.cpu.be, NULL, &t.a);
        check_rows(&t, t.max_rows, 11, pi__type_info_of(types[0])->name);
        assert_true(t.y[E] == edge); /* nothing past E is written */
        fixture_stop(&t);
    }
}
static void test_formats(void **state) { (void) state; each_isa(formats); }

/* Softplus weights, a bias that affects only the selection, experts selected by token, and an activation limit. */
static void softplus(const pi__cpu_linear_kernels *k)
{
    static const int types[3] = {PI__F32, PI__F16, PI__BF16};
    static const float bias[6] = {0, 0, 0.4f, -0.3f, 0, 1};
    static const int32_t table[4 * 3] = {0, 1, 2, 5, 4, 3, 2, 2, 0, 1, 5, 3};
    const pi__batch batch = {.n_tokens = 9, .token = token_of};
    for (int i = 0; i < 3; i++) {
        moe_fixture t;
        fixture_start(&t, k, 2, types, 64, 48, 6, 3, 9, false);
        t.a.act = PI__IN_SWIGLU;
        t.a.gating = PI__GATE_SQRT_SOFTPLUS;
        t.a.limit = i ? 0.5f : 0;
        t.a.bias = i == 1 ? bias : NULL;
        t.a.table = i == 2 ? table : NULL;
        t.logits[3] = -40; /* rounds to a weight of zero */
        t.logits[4] = 60;
        t.a.n_rows = t.max_rows;
        pi__cpu_moe(&t.gate.cpu.be, &batch, &t.a);
        check_rows(&t, t.max_rows, 1, i == 2 ? "table" : "softplus");
        fixture_stop(&t);
    }
}
static void test_softplus(void **state) { (void) state; each_isa(softplus); }

/* SparseMixer: weights of experts with close logits, which are equal, within the bound, or negative. */
static void mixer(const pi__cpu_linear_kernels *k)
{
    static const int types[3] = {PI__F32, PI__F16, PI__BF16};
    static const float close_logits[3][6] = {
        {1, 1.01f, 0.995f, 0.2f, 1.015f, -4}, {-2, -2.01f, -2.03f, -9, -2.5f, -3}, {0, 0, 0, 0, 0, 0}};
    moe_fixture t;
    fixture_start(&t, k, 2, types, 64, 48, 6, 2, 9, false);
    t.a.act = PI__IN_SWIGLU;
    t.a.gating = PI__GATE_SPARSEMIXER;
    t.a.limit = -0.3f; /* of the activation */
    t.a.undivided = true;
    t.a.n_rows = t.max_rows;
    for (int i = 0; i < 3; i++) memcpy(t.logits + i * t.a.ldl, close_logits[i], sizeof close_logits[i]);
    pi__cpu_moe(&t.gate.cpu.be, NULL, &t.a);
    check_rows(&t, t.max_rows, 1, "sparse mixer");
    fixture_stop(&t);
}
static void test_mixer(void **state) { (void) state; each_isa(mixer); }

/* Biases of experts and of logits, sigmoid and softmax gates with a selection-only bias, and the corresponding
 * activation. */
static void biases(const pi__cpu_linear_kernels *k)
{
    enum { E = 64, F = 80, X = 6, ROWS = 23 };
    static const int types[3] = {PI__MXFP4, PI__MXFP4, PI__F32};
    static const float bias[X] = {0, 0, 0.4f, -0.3f, 0, 1};
    for (int i = 0; i < 4; i++) {
        moe_fixture t;
        fixture_start(&t, k, 2, i < 2 ? types : (const int[3]) {PI__F16, PI__Q8_0, PI__BF16}, E, F, X, 3, ROWS, i % 2);
        float *gate_bias = random_rows(X * F), *up_bias = random_rows(X * F), *down_bias = random_rows(X * (E + 1));
        t.a.act = i == 3 ? PI__IN_SWIGLU : PI__IN_SWIGLU_OAI;
        t.a.limit = i ? 0.75f : 0;
        t.a.gating = i < 2 ? PI__GATE_SOFTMAX : i == 2 ? PI__GATE_SIGMOID : PI__GATE_SOFTMAX_CHOICE;
        t.a.bias = bias;
        t.a.gate_bias = gate_bias, t.a.up_bias = up_bias;
        t.a.down_bias = i == 2 ? NULL : down_bias;
        t.a.ld_down_bias = E + 1;
        t.a.n_rows = t.max_rows;
        pi__cpu_moe(&t.gate.cpu.be, NULL, &t.a);
        check_rows(&t, t.max_rows, 3, "biases");
        t.a.n_rows = 1; /* one row gives the same bits as in a batch */
        float first[E];
        memcpy(first, t.y, sizeof first);
        pi__cpu_moe(&t.gate.cpu.be, NULL, &t.a);
        assert_memory_equal(t.y, first, sizeof first);
        fixture_stop(&t);
        free(gate_bias), free(up_bias), free(down_bias);
    }
}
static void test_biases(void **state) { (void) state; each_isa(biases); }

/* Many rows on few experts form groups of every width; equal logits select the lower index. */
static void many_rows(const pi__cpu_linear_kernels *k)
{
    static const int types[3] = {PI__Q8_0, PI__Q5_0, PI__Q4_1};
    moe_fixture t;
    fixture_start(&t, k, 3, types, 64, 32, 6, 3, 53, false);
    for (int32_t r = 0; r < t.max_rows; r++)
        for (int32_t e = 0; e < 6; e++)
            t.logits[r * t.a.ldl + e] = r % 7 == 0 ? 0.25f : r % 5 == e ? 2 : e == 4 ? 3 : (float) (e % 2);
    t.a.n_rows = t.max_rows;
    pi__cpu_moe(&t.gate.cpu.be, NULL, &t.a);
    check_rows(&t, t.max_rows, 1, "crowd");
    fixture_stop(&t);
}
static void test_many_rows(void **state) { (void) state; each_isa(many_rows); }

/* With very many equal experts, the sum of the selected routing weights is below its lower bound. */
static void test_least_sum(void **state)
{
    (void) state;
    static const int types[3] = {PI__F32, PI__F32, PI__F32};
    moe_fixture t;
    fixture_start(&t, pi__lin_kernels_generic(15), 1, types, 3, 2, 20000, 1, 1, true);
    for (int32_t e = 0; e < t.a.n_expert; e++) t.logits[e] = 1;
    t.a.n_rows = 1;
    pi__cpu_moe(&t.gate.cpu.be, NULL, &t.a);
    check_rows(&t, 1, 1, "least sum");
    fixture_stop(&t);
}

/* A row with NaN or infinite logits is invalid; the other rows are correct. */
static void test_not_finite(void **state)
{
    (void) state;
    static const int types[3] = {PI__Q8_0, PI__Q8_0, PI__Q8_0};
    moe_fixture t;
    fixture_start(&t, pi__lin_kernels_generic(15), 2, types, 32, 32, 4, 2, 3, false);
    t.a.n_rows = 3;
    pi__cpu_moe(&t.gate.cpu.be, NULL, &t.a);
    float good[32];
    memcpy(good, t.y + 2 * t.a.ldy, sizeof good);
    for (int32_t e = 0; e < 4; e++) {
        t.logits[e] = NAN;
        t.logits[t.a.ldl + e] = e == 1 ? NAN : e == 2 ? INFINITY : -INFINITY;
    }
    t.a.n_rows = 3;
    pi__cpu_moe(&t.gate.cpu.be, NULL, &t.a);
    for (int32_t i = 0; i < 32; i++) assert_false(isfinite(t.y[i]));
    assert_memory_equal(good, t.y + 2 * t.a.ldy, sizeof good);
    fixture_stop(&t);
}

/* MoE results are bitwise identical in a batch of one, in any batch and with any number of threads. */
static void same_bits(const pi__cpu_linear_kernels *k)
{
    enum { ROWS = 18, E = 256, F = 256 };
    static const int32_t counts[] = {2, 5, 18};
    for (int i = 0; i < N_TYPES; i += emulated() ? 3 : 1) {
        const int types[3] = {all_types[i], all_types[i], all_types[(i + 1) % N_TYPES]};
        float *alone = malloc(ROWS * E * sizeof *alone);
        for (int32_t threads = 1; threads <= 4; threads += 3) {
            moe_fixture t;
            seed = 4711; /* equal weights for every number of threads */
            fixture_start(&t, k, threads, types, E, F, 3, 2, ROWS, i % 2);
            t.a.ldy = E;
            t.a.in.kind = PI__IN_RMSNORM;
            for (int32_t r = 0; r < ROWS && threads == 1; r++) {
                pi__moe one = t.a;
                one.in.x += r * E;
                one.logits += r * t.a.ldl;
                one.y = alone + r * E;
                one.n_rows = 1;
                pi__cpu_moe(&t.gate.cpu.be, NULL, &one);
            }
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                memset(t.y, 0, ROWS * E * sizeof *t.y);
                t.a.n_rows = counts[c];
                pi__cpu_moe(&t.gate.cpu.be, NULL, &t.a);
                assert_memory_equal(t.y, alone, (size_t) counts[c] * E * sizeof *t.y);
            }
            fixture_stop(&t);
        }
        free(alone);
    }
}
static void test_same_bits(void **state) { (void) state; each_isa(same_bits); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),   cmocka_unit_test(test_softplus),
                                       cmocka_unit_test(test_mixer),   cmocka_unit_test(test_biases),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_least_sum), cmocka_unit_test(test_not_finite), cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
