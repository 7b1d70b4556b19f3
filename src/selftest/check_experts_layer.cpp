/* Checks a layer of experts with its router and its shared expert: fused, it has the bits of separate ops for any
 * number of rows, and fewer launches; it is batch-invariant. */
#include "selftest/op_ref.h"

#include "selftest/checks.h"

namespace selftest {
namespace {

/* Weight types: of the experts' gate and up; of their down; of the shared expert; of the router. groups > 0: as in
 * DeepSeek V3, experts are chosen from the best 2 of that many groups, by sigmoids with a bias, and the shared expert
 * has no gate. streams: as in DeepSeek V4, the shared expert has no gate, and the result is the sum of all experts. */
struct kinds {
    int32_t experts, down, shared, shared_down, router;
    int matmul;
    int32_t groups;
    bool streams = false;
};

struct layer {
    enum { E = 256, F = 128, X = 9, USED = 3, LD = X + 1 };
    device d;
    int32_t most, groups;
    bool streams;
    stack gate, up, down, router, beside, shared_gate, shared_up, shared_down;
    buffer<float> x, x0, w, bias, logits, ff, shared, y;

    layer(const kinds &k, int32_t rows, bool fuse)
        : d(false, nullptr, k.matmul, !fuse), most(rows), groups(k.groups), streams(k.streams),
          gate(with_room(d, rows), k.experts, E, F, X), up(d, k.experts, E, F, X), down(d, k.down, F, E, X),
          router(d, k.router, E, X, 1), beside(d, k.router, E, 1, 1), shared_gate(d, k.shared, E, F, 1),
          shared_up(d, k.shared, E, F, 1), shared_down(d, k.shared_down, F, E, 1), x((size_t) (rows * E)),
          x0(random(1).normals((size_t) (rows * E))), w(random(2).normals(E)), bias(random(3).normals(X)),
          logits((size_t) (rows * LD)), ff((size_t) (rows * 2 * F)), shared(x.size()), y(x.size())
    {
    }
    static device &with_room(device &d, int32_t rows)
    {
        pi__limits lim = {};
        lim.max_tokens = rows, lim.max_seqs = 1, lim.max_rows = 1, lim.max_ctx = 64, lim.max_n_in = E,
        lim.max_n_out = E;
        lim.max_n_head = 1, lim.max_head_dim = 64, lim.max_expert = X, lim.max_used = USED, lim.max_in_exp = E,
        lim.max_ff_exp = 2 * F;
        d.reserve(lim);
        return d;
    }
    /* Returns the residual stream (streams: the sum of all experts) of rows [first, first + n). */
    std::vector<float> run(int32_t first, int32_t n)
    {
        std::copy(x0.get(), x0.get() + x0.size(), x.get());
        const pi__lin_in in = {PI__IN_RMSNORM, x.get() + first * E, E, nullptr, 0, w.get(), 1e-6f, 0};
        float *const residual = x.get() + first * E, *const shared_y = streams ? residual : shared.get();
        pi__moe moe = {};
        moe.n_rows = n, moe.in = in, moe.logits = logits.get(), moe.ldl = groups || streams ? X : LD;
        moe.n_expert = X, moe.n_used = USED, moe.weights_scale = groups ? 2.5f : 1, moe.act = PI__IN_SWIGLU;
        moe.gate = &gate.w, moe.up = &up.w, moe.down = &down.w, moe.y = y.get(), moe.ldy = E;
        if (groups) moe.gating = PI__GATE_SIGMOID, moe.bias = bias.get(), moe.n_group = groups, moe.n_group_used = 2;
        if (streams) moe.gating = PI__GATE_SQRT_SOFTPLUS;
        const bool gated = !groups && !streams;
        pi__linear all = pi__linear_of(&in, n, nullptr, 0);
        all.lin[all.n_lin++] = {&router.w, logits.get(), moe.ldl};
        if (gated) all.lin[all.n_lin++] = {&beside.w, logits.get() + X, moe.ldl};
        all.lin[all.n_lin++] = {&shared_gate.w, ff.get(), 2 * F};
        all.lin[all.n_lin++] = {&shared_up.w, ff.get() + F, 2 * F};
        const pi__lin_in glu = {PI__IN_SWIGLU, ff.get(), 2 * F, ff.get() + F, 2 * F, nullptr, 0, 0};
        const pi__lin last = {&shared_down.w, shared_y, E};
        const pi__linear down_of_shared = pi__linear_of(&glu, n, &last, 1);
        pi__op_linear(d.be, NULL, &all);
        pi__op_moe(d.be, NULL, &moe);
        pi__op_linear(d.be, NULL, &down_of_shared);
        const pi__add_gated add = {y.get(), shared.get(), logits.get() + X, moe.ldl, n, E};
        if (gated) pi__op_add_gated(d.be, NULL, &add);
        const pi__add_norm routed = {residual, y.get(), nullptr, nullptr, 0, 1, n, E};
        pi__op_add_norm(d.be, NULL, &routed);
        const pi__add_norm also = {residual, shared.get(), nullptr, nullptr, 0, 1, n, E};
        if (groups) pi__op_add_norm(d.be, NULL, &also);
        d.finish();
        return std::vector<float>(x.get() + first * E, x.get() + (first + n) * E);
    }
};

void test_same_bits()
{
    const kinds all[] = {
        {PI__NVFP4, PI__NVFP4, PI__NVFP4, PI__NVFP4, PI__F32, PI__MATMUL_AUTO, 0},
        {PI__NVFP4, PI__NVFP4, PI__NVFP4, PI__NVFP4, PI__F32, PI__MATMUL_AUTO, 3},
        {PI__Q4_0, PI__Q8_0, PI__Q8_0, PI__Q4_0, PI__F32, PI__MATMUL_EXACT, 3},
        {PI__Q4_0, PI__Q8_0, PI__F16, PI__F16, PI__BF16, PI__MATMUL_AUTO, 3},
        {PI__Q4_K, PI__Q8_0, PI__Q8_0, PI__Q5_0, PI__F32, PI__MATMUL_AUTO, 0},
        {PI__Q4_0, PI__Q8_0, PI__Q4_0, PI__MXFP4, PI__F32, PI__MATMUL_EXACT, 0},
        {PI__BF16, PI__Q4_0, PI__F16, PI__F32, PI__BF16, PI__MATMUL_AUTO, 0},
        {PI__MXFP4, PI__MXFP4, PI__Q8_0, PI__Q8_0, PI__F32, PI__MATMUL_AUTO, 0},
        {PI__MXFP4, PI__MXFP4, PI__Q8_0, PI__Q8_0, PI__F32, PI__MATMUL_AUTO, 0, true},
        {PI__Q4_K, PI__Q8_0, PI__Q8_0, PI__Q8_0, PI__F32, PI__MATMUL_AUTO, 0, true},
    };
    for (const kinds &k : all) {
        about("experts in %s", pi__type_info_of(k.experts)->name);
        layer one(k, 40, true), steps(k, 40, false);
        const std::vector<float> want = steps.run(0, 40);
        expect_bytes(one.run(0, 40).data(), want.data(), want.size() * 4);
        expect_true(std::memcmp(want.data(), one.x0.get(), want.size() * 4) != 0);
        for (int32_t n : sizes<int32_t>({1, 7, 17, 32})) {
            const int32_t first = 40 - n;
            expect_bytes(one.run(first, n).data(), &want[(size_t) (first * layer::E)], (size_t) (n * layer::E) * 4);
        }
    }
}

/* Checks the number of launches of a decode step:
 *   1. the input in both formats
 *   2. the router, and the shared expert's activation
 *   3. gate and up of the experts
 *   4. all down matrices and the sum; two launches with FP8 experts
 * The first one is omitted if an earlier launch has packed the input. */
void test_launches()
{
    const kinds k = {PI__Q4_0, PI__Q4_0, PI__Q4_0, PI__Q4_0, PI__F32, PI__MATMUL_AUTO, 0};
    if (!counts_launches()) return;
    kinds of_groups = k;
    of_groups.groups = 3;
    const kinds fp8 = {PI__MXFP4, PI__MXFP4, PI__Q8_0, PI__Q8_0, PI__F32, PI__MATMUL_AUTO, 0, true};
    layer t(k, 8, true), grouped(of_groups, 8, true), apart_in_fp8(fp8, 8, true);
    for (int32_t n : sizes<int32_t>({1, 8})) {
        const unsigned long before = now->emu->launched();
        t.run(0, n);
        expect_equal(now->emu->launched() - before, 1u + 1 + 1 + 1);
        const unsigned long apart = now->emu->launched();
        grouped.run(0, n);
        expect_equal(now->emu->launched() - apart, 1u + 1 + 1 + 1);
        const unsigned long in_fp8 = now->emu->launched();
        apart_in_fp8.run(0, n);
        expect_equal(now->emu->launched() - in_fp8, 1u + 1 + 1 + 1 + 1);
    }
}

void test_modes()
{
    const kinds all[] = {{PI__Q4_0, PI__NVFP4, PI__Q4_0, PI__Q4_0, PI__F32, PI__MATMUL_AUTO, 0},
                         {PI__MXFP4, PI__MXFP4, PI__Q8_0, PI__Q8_0, PI__F32, PI__MATMUL_AUTO, 0, true}};
    for (const kinds &k : all) {
        layer t(k, 11, true);
        std::vector<float> first;
        in_all_modes([&] {
            std::vector<float> y = t.run(0, 11);
            if (first.empty()) first = y;
            expect_bytes(first.data(), y.data(), y.size() * 4);
        });
    }
}

/* More ops in one step than the device plans at once: none is lost, and they run in order. */
void test_long_step()
{
    enum { CALLS = 2100, N = 32 };
    device d;
    pi__limits lim = {};
    lim.max_tokens = 1, lim.max_seqs = 1, lim.max_rows = 1, lim.max_ctx = 64, lim.max_n_in = N, lim.max_n_out = N;
    d.reserve(lim);
    buffer<float> x(std::vector<float>((size_t) N, 0.0f)), y(std::vector<float>((size_t) N, 1.0f));
    const pi__add_norm add = {x.get(), y.get(), nullptr, nullptr, 0, 1, 1, N},
                       half = {x.get(), y.get(), nullptr, nullptr, 0, 0.5f, 1, N};
    pi__op_add_norm(d.be, NULL, &half); /* first of all: 0.5 */
    for (int i = 0; i < CALLS; i++) pi__op_add_norm(d.be, NULL, &add);
    d.finish();
    for (size_t i = 0; i < N; i++) expect_true(x[i] == CALLS + 0.5f);
}

const entry checks[] = {
    {"same_bits", test_same_bits}, {"launches", test_launches}, {"modes", test_modes}, {"long_step", test_long_step}};

} // namespace

const family checks_of_experts_layer = {"experts_layer", "expert layers in few launches",
                                        checks, sizeof checks / sizeof *checks};

} // namespace selftest
