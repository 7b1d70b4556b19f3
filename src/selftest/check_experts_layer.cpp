/* Checks the op of a layer of experts (pi__experts_layer): bitwise identical to the separate ops for any number of
 * rows, with fewer launches, and batch-invariant. */
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
        pi__experts_layer a = {};
        a.moe.n_rows = n, a.moe.in = {PI__IN_RMSNORM, x.get() + first * E, E, nullptr, 0, w.get(), 1e-6f, 0};
        a.moe.ldl = LD, a.moe.n_expert = X, a.moe.n_used = USED, a.moe.weights_scale = 1, a.moe.act = PI__IN_SWIGLU;
        a.moe.gate = &gate.w, a.moe.up = &up.w, a.moe.down = &down.w, a.moe.y = y.get(), a.moe.ldy = E;
        a.router = &router.w, a.beside = &beside.w, a.gate = &shared_gate.w, a.up = &shared_up.w,
        a.down = &shared_down.w;
        if (groups) {
            a.beside = nullptr, a.moe.ldl = X, a.moe.gating = PI__GATE_SIGMOID, a.moe.bias = bias.get();
            a.moe.n_group = groups, a.moe.n_group_used = 2, a.moe.weights_scale = 2.5f;
        }
        a.logits = logits.get(), a.ff = ff.get(), a.shared = shared.get(), a.x = x.get() + first * E;
        if (streams)
            a.beside = nullptr, a.moe.ldl = X, a.moe.gating = PI__GATE_SQRT_SOFTPLUS, a.shared = a.x, a.x = nullptr;
        pi__op_experts_layer(d.be, NULL, &a);
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

const entry checks[] = {{"same_bits", test_same_bits}, {"launches", test_launches}, {"modes", test_modes}};

} // namespace

const family checks_of_experts_layer = {"experts_layer", "expert layers in few launches",
                                        checks, sizeof checks / sizeof *checks};

} // namespace selftest
