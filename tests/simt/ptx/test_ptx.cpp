/* The PTX front end on short texts: each instruction against C++, and texts that must be refused.
 *
 * A case is a text that computes %r4 from %r1 to %r3. It runs in 96 threads, with special values and random ones. */
#include <cfenv>
#include <cmath>
#include <functional>

#include "program.h"
#include "ptx.h"
#include "simt_impl.h"
#include "simt_test.h"

using namespace simt_test;
using simt::ptx::program;

namespace {

enum { THREADS = 96 };

const char *const declarations = ".reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n.reg .b32 %f<20>;\n.reg .b64 %fd<9>;\n"
                                 ".reg .b16 %rs<20>;\n.reg .pred %p<9>;\n";

std::string module_of(const std::string &body, const std::string &before = "")
{
    return ".version 9.0\n.target sm_120f\n.address_size 64\n.extern .shared .align 16 .b8 raw[];\n" + before +
           ".visible .entry k(.param .u64 x, .param .u64 y)\n{\n" + declarations +
           "ld.param.u64 %rd1, [x];\nld.param.u64 %rd2, [y];\nmov.u32 %r10, %tid.x;\n"
           "mad.wide.u32 %rd1, %r10, 12, %rd1;\nmad.wide.u32 %rd2, %r10, 4, %rd2;\n"
           "ld.global.u32 %r1, [%rd1];\nld.global.u32 %r2, [%rd1+4];\nld.global.u32 %r3, [%rd1+8];\n"
           "mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nmov.b32 %f3, %r3;\nmov.b64 %rd3, {%r1, %r2};\n"
           "cvt.u16.u32 %rs1, %r1;\ncvt.u16.u32 %rs2, %r2;\n" +
           body + "\nst.global.u32 [%rd2], %r4;\nret;\n}\n";
}

std::vector<uint32_t> inputs()
{
    static const uint32_t special[] = {0,          1,          2,          31,         32,         33,
                                       0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000, 0xbf800000, 0x7f800000,
                                       0xff800000, 0x00000001, 0x7f7fffff, 0x4b000001, 0x43000000, 0xc2fe0000};
    std::vector<uint32_t> x;
    selftest::random r(7);
    for (size_t i = 0; i < 3 * THREADS; i++) {
        const uint32_t any = r.bits() * 2654435761u;
        x.push_back(i % 2 ? special[(i * 7) % (sizeof special / sizeof *special)] : any);
    }
    return x;
}

/* Runs a module's kernel k; returns the launch's code. */
int launch(program *p, const uint32_t *x, uint32_t *y)
{
    const simt::argument args[] = {{&x, 8, 8}, {&y, 8, 8}};
    const simt::kernel_call call = {nullptr, dim3(1), dim3(THREADS), 1024, nullptr, nullptr, args, 2};
    return p->launch(*p->find("k"), call);
}

std::vector<uint32_t> run_text(const std::string &body, const std::vector<uint32_t> &in, const std::string &before = "")
{
    program p;
    buffer<uint32_t> x(in), y((size_t) THREADS);
    try {
        p.add("text", module_of(body, before));
        if (launch(&p, x.get(), y.get())) fail_msg("%s: %s", body.c_str(), simt::last_error());
    } catch (const simt::ptx::error &e) {
        fail_msg("%s: %s", body.c_str(), e.what());
    }
    return std::vector<uint32_t>(y.get(), y.get() + THREADS);
}

typedef uint32_t (*expected_fn)(uint32_t a, uint32_t b, uint32_t c);
struct text_case {
    const char *text;
    expected_fn expected;
};

float f(uint32_t u) { return __uint_as_float(u); }
uint32_t u(float x) { return __float_as_uint(x); }
int32_t s(uint32_t x) { return (int32_t) x; }
uint32_t table_of(uint32_t table, uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d = 0;
    for (int i = 0; i < 32; i++) d |= (table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i;
    return d;
}
bool is_nan(uint32_t x) { return (x & 0x7fffffff) > 0x7f800000; }

void check_cases(const text_case *cases, size_t n, bool floats)
{
    const std::vector<uint32_t> x = inputs();
    for (size_t k = 0; k < n; k++) {
        const std::vector<uint32_t> y = run_text(cases[k].text, x);
        for (size_t i = 0; i < THREADS; i++) {
            const uint32_t e = cases[k].expected(x[3 * i], x[3 * i + 1], x[3 * i + 2]);
            if (y[i] == e || (floats && is_nan(y[i]) && is_nan(e))) continue;
            fail_msg("%s of %08x, %08x, %08x: %08x, expected %08x", cases[k].text, x[3 * i], x[3 * i + 1], x[3 * i + 2],
                     y[i], e);
        }
    }
}
#define CASE(text, expr)                                           \
    {                                                              \
        text, [](uint32_t a, uint32_t b, uint32_t c) -> uint32_t { \
            (void) a, (void) b, (void) c;                          \
            return (uint32_t) (expr);                              \
        }                                                          \
    }
#define CHECK(cases, floats) check_cases(cases, sizeof cases / sizeof *cases, floats)

void test_integers(void **)
{
    static const text_case cases[] = {
        CASE("add.s32 %r4, %r1, %r2;", a + b),
        CASE("sub.s32 %r4, %r1, %r2;", a - b),
        CASE("mul.lo.s32 %r4, %r1, %r2;", a * b),
        CASE("mul.hi.u32 %r4, %r1, %r2;", (uint64_t) a * b >> 32),
        CASE("mul.hi.s32 %r4, %r1, %r2;", (int64_t) s(a) * s(b) >> 32),
        CASE("mad.lo.s32 %r4, %r1, %r2, %r3;", a * b + c),
        CASE("mul.wide.s32 %rd4, %r1, %r2; shr.u64 %rd4, %rd4, 16; cvt.u32.u64 %r4, %rd4;",
             (int64_t) s(a) * s(b) >> 16),
        CASE("div.s32 %r4, %r1, %r2;", !b         ? ~0u
                                       : b == ~0u ? 0 - a
                                                  : (uint32_t) (s(a) / s(b))),
        CASE("rem.u32 %r4, %r1, %r2;", b ? a % b : a),
        CASE("div.u32 %r4, %r1, %r2;", b ? a / b : ~0u),
        CASE("min.s32 %r4, %r1, %r2;", s(a) < s(b) ? a : b),
        CASE("max.u32 %r4, %r1, %r2;", a < b ? b : a),
        CASE("and.b32 %r4, %r1, -64;", a & ~63u),
        CASE("not.b32 %r4, %r1;", ~a),
        CASE("neg.s32 %r4, %r1;", 0 - a),
        CASE("abs.s32 %r4, %r1;", s(a) < 0 ? 0 - a : a),
        CASE("shl.b32 %r4, %r1, %r2;", b > 31 ? 0 : a << b),
        CASE("shr.u32 %r4, %r1, %r2;", b > 31 ? 0 : a >> b),
        CASE("shr.s32 %r4, %r1, %r2;", s(a) >> (b > 31 ? 31 : b)),
        CASE("shf.l.wrap.b32 %r4, %r1, %r2, %r3;", ((uint64_t) b << 32 | a) << (c & 31) >> 32),
        CASE("shf.r.wrap.b32 %r4, %r1, %r2, %r3;", ((uint64_t) b << 32 | a) >> (c & 31)),
        CASE("bfe.u32 %r4, %r1, 5, 9;", a >> 5 & 511),
        CASE("bfe.s32 %r4, %r1, 24, 8;", s(a) >> 24),
        CASE("bfe.s32 %r4, %r1, 30, 8;", s(a) >> 30),
        CASE("bfi.b32 %r4, %r1, %r2, 4, 8;", (b & ~0xff0u) | (a & 255) << 4),
        CASE("prmt.b32 %r4, %r1, %r2, 0x5410;", (a & 0xffff) | b << 16),
        CASE("prmt.b32 %r4, %r1, %r2, 0x8f37;",
             (b >> 24) | (a >> 24) << 8 | (s(b) < 0 ? 255u << 16 : 0) | (s(a << 24) < 0 ? 255u << 24 : 0)),
        CASE("lop3.b32 %r4, %r1, %r2, %r3, 0xea;", (a & b) | c),
        CASE("lop3.b32 %r4, %r1, %r2, %r3, 0x6a;", (a & b) ^ c),
        CASE("lop3.b32 %r4, %r1, %r2, %r3, 0x1b;", table_of(0x1b, a, b, c)),
        CASE("dp2a.lo.u32.u32 %r4, %r1, %r2, %r3;", (a & 0xffff) * (b & 255) + (a >> 16) * (b >> 8 & 255) + c),
        CASE("popc.b32 %r4, %r1;", __builtin_popcount(a)),
        CASE("clz.b32 %r4, %r1;", a ? __builtin_clz(a) : 32),
        CASE("cvt.s32.s8 %r4, %r1;", (int8_t) a),
        CASE("cvt.s8.s32 %rs3, %r1; cvt.u32.u16 %r4, %rs3;", (uint16_t) (int8_t) a),
        CASE("cvt.s64.s32 %rd4, %r1; shr.s64 %rd4, %rd4, 7; cvt.u32.u64 %r4, %rd4;", (int64_t) s(a) >> 7),
        CASE("mul.wide.u16 %r4, %rs1, 256;", (a & 0xffff) * 256),
        CASE("mul.hi.u16 %rs3, %rs1, -21845; cvt.u32.u16 %r4, %rs3;", (a & 0xffff) * 43691 >> 16),
        CASE("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r4, %r3, 7, %p1;", s(a) < s(b) ? c : 7),
        CASE("setp.gt.u32 %p1, %r1, %r2; @%p1 add.s32 %r4, %r1, 1; @!%p1 mov.u32 %r4, 5;", a > b ? a + 1 : 5),
        CASE("setp.ne.s32 %p1, %r1, 0; not.pred %p2, %p1; xor.pred %p1, %p1, %p2; selp.u32 %r4, 1, 0, %p1;", 1),
        CASE("mov.b32 {%rs3, %rs4}, %r1; mov.b32 %r4, {%rs4, %rs3};", a << 16 | a >> 16),
        CASE("{ .reg .b32 t; mov.b64 {t, %r4}, %rd3; }", b),
        CASE("{ .reg .b32 %r<3>; mov.u32 %r1, 9; } mov.u32 %r4, %r1;", a)};
    CHECK(cases, false);
}

template <class F> float in_mode(int mode, F compute)
{
    std::fesetround(mode);
    volatile float r = compute();
    std::fesetround(FE_TONEAREST);
    return r;
}

void test_floats(void **)
{
    static const text_case cases[] = {
        CASE("add.rn.f32 %f4, %f1, %f2; mov.b32 %r4, %f4;", u(f(a) + f(b))),
        CASE("sub.f32 %r4, %f1, %f2;", u(f(a) - f(b))),
        CASE("mul.rn.f32 %r4, %f1, %f2;", u(f(a) * f(b))),
        CASE("div.rn.f32 %r4, %f1, %f2;", u(f(a) / f(b))),
        CASE("fma.rn.f32 %r4, %f1, %f2, %f3;", u(fmaf(f(a), f(b), f(c)))),
        CASE("sqrt.rn.f32 %r4, %f1;", u(sqrtf(f(a)))),
        CASE("rcp.rn.f32 %r4, %f1;", u(1 / f(a))),
        CASE("min.f32 %r4, %f1, %f2;", f(a) != f(a)   ? b
                                       : f(b) != f(b) ? a
                                       : f(a) == f(b) ? a | b
                                       : f(a) < f(b)  ? a
                                                      : b),
        CASE("max.f32 %r4, %f1, %f2;", f(a) != f(a)   ? b
                                       : f(b) != f(b) ? a
                                       : f(a) == f(b) ? a & b
                                       : f(a) < f(b)  ? b
                                                      : a),
        CASE("abs.f32 %r4, %f1;", a & 0x7fffffff),
        CASE("neg.f32 %r4, %f1;", a ^ 1u << 31),
        CASE("copysign.f32 %r4, %f1, %f2;", (a & 1u << 31) | (b & 0x7fffffff)),
        CASE("fma.rm.f32 %r4, %f1, %f2, %f3;", u(in_mode(FE_DOWNWARD,
                                                         [=] {
                                                             volatile float x = f(a), y = f(b), z = f(c);
                                                             return fmaf(x, y, z);
                                                         }))),
        CASE("add.rz.f32 %r4, %f1, %f2;", u(in_mode(FE_TOWARDZERO,
                                                    [=] {
                                                        volatile float x = f(a), y = f(b);
                                                        return x + y;
                                                    }))),
        CASE("setp.lt.f32 %p1, %f1, %f2; selp.u32 %r4, 1, 0, %p1;", f(a) < f(b)),
        CASE("setp.geu.f32 %p1, %f1, %f2; selp.u32 %r4, 1, 0, %p1;", !(f(a) < f(b))),
        CASE("setp.neu.f32 %p1, %f1, %f2; selp.u32 %r4, 1, 0, %p1;", f(a) != f(b)),
        CASE("setp.ne.f32 %p1, %f1, %f2; selp.u32 %r4, 1, 0, %p1;", f(a) < f(b) || f(a) > f(b)),
        CASE("setp.nan.f32 %p1, %f1, %f2; selp.u32 %r4, 1, 0, %p1;", f(a) != f(a) || f(b) != f(b)),
        CASE("cvt.rn.f32.s32 %r4, %r1;", u((float) s(a))),
        CASE("cvt.rn.f32.u32 %r4, %r1;", u((float) a)),
        CASE("cvt.rzi.u32.f32 %r4, %f1;", !(f(a) > 0)       ? 0
                                          : f(a) >= 0x1p32f ? ~0u
                                                            : (uint32_t) f(a)),
        CASE("cvt.rni.s32.f32 %r4, %f1;", f(a) != f(a)      ? 0
                                          : f(a) >= 0x1p31f ? 0x7fffffff
                                          : f(a) < -0x1p31f ? 1u << 31
                                                            : (uint32_t) (int32_t) nearbyintf(f(a))),
        CASE("cvt.rni.f32.f32 %r4, %f1;", u(nearbyintf(f(a)))),
        CASE("cvt.sat.f32.f32 %r4, %f1;", f(a) > 1   ? 0x3f800000
                                          : f(a) > 0 ? a
                                                     : 0),
        CASE("cvt.rn.f16.f32 %rs3, %f1; cvt.u32.u16 %r4, %rs3;", simt::to_half(f(a))),
        CASE("cvt.f32.f16 %r4, %rs1;", u(simt::from_half((uint16_t) a))),
        CASE("cvt.rn.f16x2.f32 %r4, %f1, %f2;", (uint32_t) simt::to_half(f(a)) << 16 | simt::to_half(f(b))),
        CASE("cvt.rn.bf16x2.f32 %r4, %f1, %f2;", (uint32_t) simt::to_bf16(f(a)) << 16 | simt::to_bf16(f(b))),
        CASE("cvt.rn.bf16.f32 %rs3, %f1; cvt.u32.u16 %r4, %rs3;", simt::to_bf16(f(a))),
        CASE("fma.rn.f16x2 %r4, %r1, %r2, %r3;", simt::fma_f16x2(a, b, c)),
        CASE("fma.rn.bf16x2 %r4, %r1, %r2, %r3;", simt::fma_bf16x2(a, b, c)),
        CASE("add.rn.f16x2 %r4, %r1, %r2;", simt::fma_f16x2(a, 0x3c003c00, b)),
        CASE("neg.f16 %rs3, %rs1; cvt.u32.u16 %r4, %rs3;", (a ^ 0x8000) & 0xffff),
        CASE("add.f32.f16 %r4, %rs1, %f2;", u(simt::from_half((uint16_t) a) + f(b))),
        CASE("ex2.approx.ftz.f32 %r4, %f1;", u(f(a) < -126 ? 0 : exp2f(f(a)))),
        CASE("rcp.approx.ftz.f32 %r4, %f1;", u(fabsf(f(a)) > 0x1p126f ? f(a) < 0 ? -0.0f : 0.0f : 1 / f(a))),
        CASE("rsqrt.approx.ftz.f32 %r4, %f1;", u(1 / sqrtf(f(a)))),
        CASE("cvt.f64.f32 %fd1, %f1; mul.rn.f64 %fd1, %fd1, 0d3FF8000000000000; cvt.rn.f32.f64 %r4, %fd1;",
             u((float) ((double) f(a) * 1.5)))};
    CHECK(cases, true);
}

/* Loads, stores and addresses: through each space, with vectors, offsets and extensions. */
void test_memory(void **)
{
    static const text_case cases[] = {
        CASE("add.s64 %rd4, %rd1, 8; ld.global.u32 %r4, [%rd4+-4];", b),
        CASE("ld.global.s8 %r4, [%rd1+1];", (int8_t) (a >> 8)),
        CASE("ld.global.u16 %r4, [%rd1+2];", a >> 16),
        CASE("ld.global.s32 %rd4, [%rd1]; shr.s64 %rd4, %rd4, 8; cvt.u32.u64 %r4, %rd4;", (int64_t) s(a) >> 8),
        CASE("mad.lo.s32 %r5, %r10, 8, 0; mov.u32 %r6, raw; add.s32 %r5, %r5, %r6; st.shared.v2.u32 [%r5], {%r2, %r1};"
             "ld.shared.u32 %r4, [%r5+4];",
             a),
        CASE("mov.u32 %r6, raw; cvt.u64.u32 %rd4, %r6; cvta.shared.u64 %rd5, %rd4; mad.wide.u32 %rd5, %r10, 4, %rd5;"
             "st.u32 [%rd5], %r3; cvta.to.shared.u64 %rd6, %rd5; cvt.u32.u64 %r5, %rd6; ld.shared.u32 %r4, [%r5];",
             c),
        CASE(".local .align 4 .b8 depot[8]; mov.b64 %rd4, depot; cvta.local.u64 %rd5, %rd4; st.local.u32 [%rd4+4], %r2;"
             "ld.u32 %r4, [%rd5+4];",
             b),
        CASE(".local .align 4 .b8 depot[8]; mov.b64 %rd4, depot; cvta.local.u64 %rd5, %rd4;"
             "st.local.v4.u8 [%rd4+4], {%rs1, %rs2, %rs1, %rs2}; ld.u32 %r4, [%rd5+4];",
             (a & 255) * 0x10001 | (b & 255) * 0x1000100),
        CASE("ld.global.v4.u8 {%rs3, %rs4, %rs5, %rs6}, [%rd1]; mov.b32 %r4, {%rs4, %rs6};",
             (a >> 8 & 255) | a >> 24 << 16),
        CASE("ld.global.v2.s8 {%rs3, %rs4}, [%rd1+2]; mov.b32 %r4, {%rs3, %rs4};",
             (uint16_t) (int8_t) (a >> 16) | (uint32_t) (int8_t) (a >> 24) << 16),
        CASE("{ .reg .b64 pol; createpolicy.fractional.L2::evict_first.b64 pol, 1.0; }"
             "mad.lo.s32 %r5, %r10, 4, 0; mov.u32 %r6, raw; add.s32 %r5, %r5, %r6; prefetch.global.L2 [%rd1];"
             "cp.async.ca.shared.global [%r5], [%rd1+4], 4; cp.async.commit_group; cp.async.wait_group 0;"
             "ld.shared.u32 %r4, [%r5];",
             b)};
    CHECK(cases, false);
    const std::vector<uint32_t> x = inputs(),
                                y = run_text("mul.wide.u32 %rd4, %r10, 2; and.b64 %rd4, %rd4, 6; mov.b64 %rd5, "
                                             "table; add.s64 %rd5, %rd5, %rd4; ld.global.u16 %r4, [%rd5];",
                                             x, ".global .align 2 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n");
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(y[i], 0x0201 + 0x0202 * (i % 4));
}

/* Collectives, and branches that split a warp before them. */
void test_warps(void **)
{
    const std::vector<uint32_t> x = inputs();
    const struct {
        const char *text;
        std::function<uint32_t(size_t i)> expected;
    } cases[] = {
        {"shfl.sync.bfly.b32 %r4|%p1, %r1, 5, 31, -1;", [&](size_t i) { return x[3 * (i ^ 5)]; }},
        {"shfl.sync.idx.b32 %r4|%p1, %r1, 3, 6175, -1;", [&](size_t i) { return x[3 * (i / 8 * 8 + 3)]; }},
        {"shfl.sync.up.b32 %r4|%p1, %r1, 3, 0, -1; @!%p1 mov.u32 %r4, 9;",
         [&](size_t i) { return i % 32 < 3 ? 9 : x[3 * (i - 3)]; }},
        {"shfl.sync.down.b32 %r4|%p1, %r1, 4, 31, -1; @!%p1 mov.u32 %r4, 9;",
         [&](size_t i) { return i % 32 >= 28 ? 9 : x[3 * (i + 4)]; }},
        {"setp.lt.u32 %p1, %r10, 40; vote.sync.ballot.b32 %r4, %p1, -1;",
         [&](size_t i) { return i < 32   ? ~0u
                                : i < 64 ? 255u
                                         : 0u; }},
        {"setp.eq.u32 %p1, %r10, 40; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r4, 1, 0, %p2;",
         [&](size_t i) { return i / 32 == 1; }},
        {"redux.sync.add.u32 %r4, %r10, -1;", [&](size_t i) { return 496 + 1024 * (i / 32); }},
        {"redux.sync.max.u32 %r4, %r10, -1;", [&](size_t i) { return i / 32 * 32 + 31; }},
        /* lanes part, meet, and pass a value through shared memory */
        {"and.b32 %r5, %r10, 1; setp.eq.s32 %p1, %r5, 0; mov.u32 %r6, raw; shl.b32 %r7, %r10, 2; add.s32 %r7, %r7, %r6;"
         "@%p1 bra EVEN; st.shared.u32 [%r7], %r1; bra.uni MEET; EVEN: st.shared.u32 [%r7], %r2; MEET: bar.sync 0;"
         "xor.b32 %r8, %r10, 33; shl.b32 %r8, %r8, 2; add.s32 %r8, %r8, %r6; setp.gt.u32 %p2, %r10, 63; mov.u32 %r4, 0;"
         "@%p2 bra END; ld.shared.u32 %r4, [%r8]; END:",
         [&](size_t i) { return i > 63 ? 0 : x[3 * (i ^ 33) + (i % 2 ? 1 : 0)]; }},
        {"and.b32 %r5, %r10, 3; brx.idx %r5, LIST; A: mov.u32 %r4, 10; bra D; B: mov.u32 %r4, 11; bra D; C: mov.u32 "
         "%r4, 12;"
         "bra D; LIST: .branchtargets A, B, C, B; D:",
         [&](size_t i) { return i % 4 == 3 ? 11 : 10 + i % 4; }}};
    for (const auto &c : cases) {
        in_all_modes([&] {
            const std::vector<uint32_t> y = run_text(c.text, x);
            for (size_t i = 0; i < THREADS; i++)
                if (y[i] != c.expected(i))
                    fail_msg("%s: thread %zu has %08x, expected %08x", c.text, i, y[i], c.expected(i));
        });
    }
}

/* Calls: parameters of several sizes, results, recursion through another function. */
void test_calls(void **)
{
    const char *const functions = ".func (.param .b32 result) twice(.param .b32 v)\n{ .reg .b32 %r<3>;\n ld.param.u32 "
                                  "%r1, [v];\n add.s32 %r2, %r1, %r1;\n"
                                  " st.param.b32 [result], %r2;\n ret; }\n"
                                  ".func (.param .b32 result) add_up(.param .align 8 .b8 pair[16], .param .b32 v)\n{ "
                                  ".reg .b32 %r<9>; .reg .b64 %rd<3>;\n"
                                  " ld.param.u64 %rd1, [pair+8];\n ld.u32 %r1, [%rd1];\n ld.param.u32 %r2, [v];\n"
                                  " { .param .b32 p0; st.param.b32 [p0], %r2; .param .b32 back; call.uni (back), "
                                  "twice, (p0); ld.param.b32 %r3, [back]; }\n"
                                  " add.s32 %r4, %r1, %r3;\n st.param.b32 [result], %r4;\n ret; }\n";
    const std::vector<uint32_t> x = inputs(),
                                y = run_text(
                                    "{ .param .align 8 .b8 p0[16]; st.param.b64 [p0], %rd2; st.param.b64 [p0+8], %rd1;"
                                    ".param .b32 p1; st.param.b32 [p1], %r2; .param .b32 back;"
                                    "call.uni (back), add_up, (p0, p1); ld.param.b32 %r4, [back]; }",
                                    x, functions);
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(y[i], x[3 * i] + 2 * x[3 * i + 1]);
}

/* An mma whose operands are registers of a text has the bits of the emulator's own. */
void test_mma(void **)
{
    std::vector<uint32_t> x;
    for (uint32_t i = 0; i < 3 * THREADS; i++) x.push_back(0x3c003800 + i * 0x10003);
    const char *const text = "mov.f32 %f4, 0f3F800000; mov.f32 %f5, %f4; mov.f32 %f6, %f4; mov.f32 %f7, %f4;"
                             "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f4,%f5,%f6,%f7}, {%r1,%r2,%r3,%r2}, "
                             "{%r3,%r1}, {%f4,%f5,%f6,%f7};";
    for (int k = 0; k < 4; k++) {
        const std::vector<uint32_t> y = run_text(text + ("mov.b32 %r4, %f" + std::to_string(4 + k)) + ";", x);
        buffer<uint32_t> in(x);
        buffer<float> out((size_t) (4 * THREADS));
        const auto kernel = [](const uint32_t *p, float *q) {
            const uint32_t t = threadIdx.x, a[4] = {p[3 * t], p[3 * t + 1], p[3 * t + 2], p[3 * t + 1]},
                           b[2] = {a[2], a[0]};
            float d[4] = {1, 1, 1, 1};
            simt::mma_f16(d, a, b, __FILE__, __LINE__);
            std::memcpy(q + 4 * t, d, sizeof d);
        };
        must_run(simt::launch(static_cast<void (*)(const uint32_t *, float *)>(kernel), dim3(1), dim3(THREADS), 0,
                              in.get(), out.get()));
        for (size_t i = 0; i < THREADS; i++) assert_int_equal(y[i], u(out[4 * i + (size_t) k]));
    }
}

void expect_error(const std::string &text, const char *what)
{
    program p;
    try {
        p.add("text", text);
        const std::vector<std::string> unknown = p.unknown();
        if (!unknown.empty()) throw simt::ptx::error("text", 0, "unknown: " + unknown[0]);
    } catch (const simt::ptx::error &e) {
        if (!strstr(e.what(), what)) fail_msg("\"%s\" instead of \"%s\"", e.what(), what);
        return;
    }
    fail_msg("no error \"%s\" for\n%s", what, text.c_str());
}

/* Texts that must be refused. Every prefix of a right text ends in an error or in a module, never in a crash. */
void test_refused(void **)
{
    const struct {
        const char *body, *what;
    } cases[] = {{"mov.u32 %r4, %r99;", "past the end of its range"},
                 {"mov.u32 %r4, %q1;", "unknown name '%q1'"},
                 {"bra NOWHERE;", "no label 'NOWHERE'"},
                 {"A: A:", "a second label 'A'"},
                 {"add.s32 %r4, %r1;", "it has 2 operands"},
                 {"add.s32 %r4, %r1, %rd1;", "a register of 8 bytes where 4 are needed"},
                 {"cvt.rn.f16.f32 %r4, %f1;", "a register of 4 bytes where 2 are needed"},
                 {"frobnicate.b32 %r4, %r1;", "unknown: text:27: frobnicate.b32"},
                 {"ld.global.bogus.u32 %r4, [%rd1];", "unknown: text:27: ld.global.bogus.u32"},
                 {"ld.global.u32 %r4, [%r1];", "an address of 4 bytes"},
                 {"bar.sync 7;", "unknown: text:27: bar.sync"},
                 {"{ .reg .b32 t; } mov.u32 %r4, t;", "unknown name 't'"},
                 {"mov.b32 %r4, {%r1, %r2};", "a register of 4 bytes where 2"}};
    for (const auto &c : cases) expect_error(module_of(c.body), c.what);
    expect_error(".version 9.0 .frob", "unknown statement '.frob'");
    expect_error(module_of("{ .param .b32 p; call.uni missing, (p); }"), "no function missing");
    const std::string right =
        module_of("{ .reg .b32 %t<3>; setp.eq.s32 %p1, %r1, 0x1F; @%p1 bra L; L: mov.u32 %r4, %r1; }");
    for (size_t n = 0; n < right.size(); n += 3) {
        program p;
        try {
            p.add("text", right.substr(0, n));
        } catch (const simt::ptx::error &) {
        }
    }
}

/* Errors while a kernel runs name the line of the text. */
void test_fails(void **)
{
    const struct {
        const char *body, *what;
    } cases[] = {{"ld.global.u32 %r4, [%rd1+2];", "misaligned: 4 bytes"},
                 {"mov.u32 %r5, raw; ld.shared.u32 %r4, [%r5+1024];", "out of bounds: 4 bytes at shared address"},
                 {"mov.u32 %r5, raw; ld.shared.u32 %r4, [%r5+-4];", "out of bounds: 4 bytes at shared address"},
                 {"setp.eq.u32 %p1, %r10, 3; @%p1 trap; mov.u32 %r4, 0;", "a trap, thread 3 of block (0,0,0), text:27"},
                 {"setp.eq.u32 %p1, %r10, 3; @%p1 ret; shfl.sync.bfly.b32 %r4|%p2, %r1, 1, 31, -1;", "deadlock"}};
    for (const auto &c : cases) {
        program p;
        buffer<uint32_t> x(inputs()), y((size_t) THREADS);
        p.add("text", module_of(c.body));
        if (!launch(&p, x.get(), y.get())) fail_msg("no error \"%s\"", c.what);
        if (!strstr(simt::last_error(), c.what)) fail_msg("\"%s\" instead of \"%s\"", simt::last_error(), c.what);
    }
    /* a launch with other parameters than the kernel has */
    program p;
    const uint32_t *x = nullptr;
    const simt::argument args[] = {{&x, 8, 8}, {&x, 4, 4}};
    p.add("text", module_of("mov.u32 %r4, 0;"));
    assert_int_equal(p.launch(*p.find("k"), {nullptr, dim3(1), dim3(32), 0, nullptr, nullptr, args, 2}), 1);
    if (!strstr(simt::last_error(), "parameter 1 of k has 8 bytes, in its launch 4"))
        fail_msg("%s", simt::last_error());
    /* a register that no instruction has written has the same strange value in every thread */
    const std::vector<uint32_t> y = run_text("mov.u32 %r4, %r17;", inputs());
    for (uint32_t v : y) assert_int_equal(v, 0x7b7b7b7b);
}

void static_kernel() {}

void test_names(void **)
{
    const std::string name = simt::ptx::host_name(reinterpret_cast<const void *>(&static_kernel));
    if (!name.empty()) assert_string_equal(name.c_str(), "_ZN12_GLOBAL__N_113static_kernelEv");
    assert_string_equal(
        simt::ptx::without_file("__nv_static_36__568a2123_14_launch_rows_cu_e807c77e__Z7pi_markv").c_str(),
        "_Z7pi_markv");
    assert_string_equal(simt::ptx::without_file("_ZN4rows4normEv").c_str(), "_ZN4rows4normEv");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_integers), cmocka_unit_test(test_floats), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_warps),    cmocka_unit_test(test_calls),  cmocka_unit_test(test_mma),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_fails),  cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
