/* Floating-point instructions. Approximate ones have the definitions of kernels/ptx.cuh, so that both front ends of the
 * emulator give the same bits. A NaN has the bits that the host's arithmetic gives it. */
#include <cfenv>
#include <cmath>

#include "code.h"
#include "ptx.h"

namespace simt {
namespace ptx {

namespace {

template <class T> bool negative(T a) { return std::signbit(a); }

#define BINARY(name, expr)                                        \
    struct name {                                                 \
        template <class T> static T on(T a, T b) { return expr; } \
    }
BINARY(do_add, a + b);
BINARY(do_sub, a - b);
BINARY(do_mul, (a) *b);
BINARY(do_div, a / b);
/* -0 is less than +0; a NaN loses against a number */
BINARY(do_min, a != a ? b : b != b ? a : a == b ? (negative(a) ? a : b) : a < b ? a : b);
BINARY(do_max, a != a ? b : b != b ? a : a == b ? (negative(a) ? b : a) : a < b ? b : a);
BINARY(do_copysign, std::copysign(b, a)); /* the sign of the first operand */
#define COMPARE(name, expr)                                          \
    struct name {                                                    \
        template <class T> static bool on(T a, T b) { return expr; } \
    }
COMPARE(is_eq, a == b);
COMPARE(is_ne, a<b || a> b);
COMPARE(is_lt, a < b);
COMPARE(is_le, a <= b);
COMPARE(is_gt, a > b);
COMPARE(is_ge, a >= b);
COMPARE(is_equ, !(a < b || a > b));
COMPARE(is_neu, a != b);
COMPARE(is_ltu, !(a >= b));
COMPARE(is_leu, !(a > b));
COMPARE(is_gtu, !(a <= b));
COMPARE(is_geu, !(a < b));
COMPARE(is_num, (a == a) && b == b);
COMPARE(is_nan, a != a || b != b);
#define UNARY(name, expr)                                    \
    struct name {                                            \
        template <class T> static T on(T a) { return expr; } \
    }
UNARY(do_abs, std::fabs(a));
UNARY(do_neg, -a);
UNARY(do_sqrt, std::sqrt(a));
UNARY(do_rcp, 1 / a);
UNARY(do_rint, std::nearbyint(a));
UNARY(do_floor, std::floor(a));
UNARY(do_ceil, std::ceil(a));
UNARY(do_trunc, std::trunc(a));
UNARY(do_saturate, a != a || a <= 0 ? 0 : a > 1 ? 1 : a);
/* As in kernels/ptx.cuh. */
UNARY(do_ex2_ftz, a < -126.0f ? 0.0f : exp2f(a));
UNARY(do_ex2, exp2f(a));
UNARY(do_rcp_ftz, std::fabs(a) > 0x1p126f ? (a < 0 ? -0.0f : 0.0f) : 1.0f / a);
UNARY(do_rsqrt, 1.0f / std::sqrt(a));
UNARY(do_lg2, log2f(a));
UNARY(do_tanh, tanhf(a));

template <class T, class F> const code *unary(const code *c, char *f)
{
    put<T>(f, c->r[0], F::on(get<T>(f, c->r[1])));
    return c + 1;
}
template <class T, class F> const code *binary(const code *c, char *f)
{
    put<T>(f, c->r[0], F::on(get<T>(f, c->r[1]), get<T>(f, c->r[2])));
    return c + 1;
}
template <class T, class F> const code *compare(const code *c, char *f)
{
    put<uint8_t>(f, c->r[0], F::on(get<T>(f, c->r[1]), get<T>(f, c->r[2])));
    return c + 1;
}
template <class T> const code *fused(const code *c, char *f)
{
    put<T>(f, c->r[0], std::fma(get<T>(f, c->r[1]), get<T>(f, c->r[2]), get<T>(f, c->r[3])));
    return c + 1;
}

/* In another rounding mode than to nearest. The operands are volatile, so that the compiler computes nothing early. */
template <class T, class F, int MODE> const code *rounded(const code *c, char *f)
{
    volatile T a = get<T>(f, c->r[1]), b = get<T>(f, c->r[2]);
    std::fesetround(MODE);
    volatile T d = F::on((T) a, (T) b);
    std::fesetround(FE_TONEAREST);
    put<T>(f, c->r[0], d);
    return c + 1;
}
template <class T, int MODE> const code *fused_rounded(const code *c, char *f)
{
    volatile T a = get<T>(f, c->r[1]), b = get<T>(f, c->r[2]), add = get<T>(f, c->r[3]);
    std::fesetround(MODE);
    volatile T d = std::fma((T) a, (T) b, (T) add);
    std::fesetround(FE_TONEAREST);
    put<T>(f, c->r[0], d);
    return c + 1;
}

/* To an integer: a NaN gives 0, values past the ends give the ends. */
template <class TO, class FROM, class ROUND> const code *to_integer(const code *c, char *f)
{
    const FROM v = ROUND::on(get<FROM>(f, c->r[1]));
    const FROM end = std::ldexp((FROM) 1, 8 * (int) sizeof(TO) - std::is_signed<TO>::value);
    TO d = 0;
    if (v >= end) d = std::numeric_limits<TO>::max();
    else if (v < (std::is_signed<TO>::value ? -end : (FROM) 0)) d = std::numeric_limits<TO>::min();
    else if (v == v) d = (TO) v;
    put<TO>(f, c->r[0], d);
    return c + 1;
}
template <class TO, class FROM> const code *to_float(const code *c, char *f)
{
    put<TO>(f, c->r[0], (TO) get<FROM>(f, c->r[1]));
    return c + 1;
}

/* -------------------------------------------------------------------------------------------------- 16-bit floats */

const code *half_of(const code *c, char *f)
{
    put<uint16_t>(f, c->r[0], to_half(get<float>(f, c->r[1])));
    return c + 1;
}
const code *float_of_half(const code *c, char *f)
{
    put<float>(f, c->r[0], from_half(get<uint16_t>(f, c->r[1])));
    return c + 1;
}
const code *bf16_of(const code *c, char *f)
{
    put<uint16_t>(f, c->r[0], to_bf16(get<float>(f, c->r[1])));
    return c + 1;
}
const code *float_of_bf16(const code *c, char *f)
{
    put<float>(f, c->r[0], from_bf16(get<uint16_t>(f, c->r[1])));
    return c + 1;
}
/* The first source is the upper half. */
const code *halves_of(const code *c, char *f)
{
    put<uint32_t>(f, c->r[0], (uint32_t) to_half(get<float>(f, c->r[1])) << 16 | to_half(get<float>(f, c->r[2])));
    return c + 1;
}
const code *bf16s_of(const code *c, char *f)
{
    put<uint32_t>(f, c->r[0], (uint32_t) to_bf16(get<float>(f, c->r[1])) << 16 | to_bf16(get<float>(f, c->r[2])));
    return c + 1;
}
const code *add_halves(const code *c, char *f)
{
    put<uint32_t>(f, c->r[0], fma_f16x2(get<uint32_t>(f, c->r[1]), 0x3c003c00, get<uint32_t>(f, c->r[2])));
    return c + 1;
}
const code *fused_halves(const code *c, char *f)
{
    put<uint32_t>(f, c->r[0],
                  fma_f16x2(get<uint32_t>(f, c->r[1]), get<uint32_t>(f, c->r[2]), get<uint32_t>(f, c->r[3])));
    return c + 1;
}
const code *fused_bf16s(const code *c, char *f)
{
    put<uint32_t>(f, c->r[0],
                  fma_bf16x2(get<uint32_t>(f, c->r[1]), get<uint32_t>(f, c->r[2]), get<uint32_t>(f, c->r[3])));
    return c + 1;
}
const code *negate_half(const code *c, char *f)
{
    put<uint16_t>(f, c->r[0], get<uint16_t>(f, c->r[1]) ^ 0x8000);
    return c + 1;
}
const code *add_half_to_float(const code *c, char *f)
{
    put<float>(f, c->r[0], from_half(get<uint16_t>(f, c->r[1])) + get<float>(f, c->r[2]));
    return c + 1;
}

template <class T> void add_type(forms *out, const std::string &t)
{
    const bool f32 = sizeof(T) == 4;
    const char *const two = f32 ? "44" : "88", *const three = f32 ? "444" : "888", *const four = f32 ? "4444" : "8888",
                      *const compared = f32 ? "144" : "188";
    const auto set = [&](const std::string &name, handler h, const char *sizes) {
        (*out)[name + t] = {h, sizes, false};
    };
    for (const std::string rn : {"", ".rn"}) {
        set("add" + rn, binary<T, do_add>, three), set("sub" + rn, binary<T, do_sub>, three);
        set("mul" + rn, binary<T, do_mul>, three);
    }
    set("div.rn", binary<T, do_div>, three), set("fma.rn", fused<T>, four), set("sqrt.rn", unary<T, do_sqrt>, two);
    set("rcp.rn", unary<T, do_rcp>, two), set("min", binary<T, do_min>, three), set("max", binary<T, do_max>, three);
    set("abs", unary<T, do_abs>, two), set("neg", unary<T, do_neg>, two);
    set("copysign", binary<T, do_copysign>, three);
    set("fma.rm", fused_rounded<T, FE_DOWNWARD>, four), set("fma.rp", fused_rounded<T, FE_UPWARD>, four);
    set("fma.rz", fused_rounded<T, FE_TOWARDZERO>, four), set("add.rz", rounded<T, do_add, FE_TOWARDZERO>, three);
    set("add.rm", rounded<T, do_add, FE_DOWNWARD>, three), set("add.rp", rounded<T, do_add, FE_UPWARD>, three);
    set("mul.rz", rounded<T, do_mul, FE_TOWARDZERO>, three), set("mul.rm", rounded<T, do_mul, FE_DOWNWARD>, three);
    set("mul.rp", rounded<T, do_mul, FE_UPWARD>, three);
    const struct {
        const char *name;
        handler h;
    } compares[] = {{"eq", compare<T, is_eq>},   {"ne", compare<T, is_ne>},   {"lt", compare<T, is_lt>},
                    {"le", compare<T, is_le>},   {"gt", compare<T, is_gt>},   {"ge", compare<T, is_ge>},
                    {"equ", compare<T, is_equ>}, {"neu", compare<T, is_neu>}, {"ltu", compare<T, is_ltu>},
                    {"leu", compare<T, is_leu>}, {"gtu", compare<T, is_gtu>}, {"geu", compare<T, is_geu>},
                    {"num", compare<T, is_num>}, {"nan", compare<T, is_nan>}};
    for (const auto &k : compares) set(std::string("setp.") + k.name, k.h, compared);
    set("cvt.rni" + t, unary<T, do_rint>, two), set("cvt.rmi" + t, unary<T, do_floor>, two);
    set("cvt.rpi" + t, unary<T, do_ceil>, two), set("cvt.rzi" + t, unary<T, do_trunc>, two);
    set("cvt.sat" + t, unary<T, do_saturate>, two);
}

template <class T, class FROM> void add_to_integer(forms *out, const std::string &to, const std::string &from)
{
    const char *sizes = sizeof(T) == 2   ? (sizeof(FROM) == 4 ? "24" : "28")
                        : sizeof(T) == 4 ? (sizeof(FROM) == 4 ? "44" : "48")
                                         : (sizeof(FROM) == 4 ? "84" : "88");
    (*out)["cvt.rni" + to + from] = {to_integer<T, FROM, do_rint>, sizes, false};
    (*out)["cvt.rzi" + to + from] = {to_integer<T, FROM, do_trunc>, sizes, false};
    (*out)["cvt.rmi" + to + from] = {to_integer<T, FROM, do_floor>, sizes, false};
    (*out)["cvt.rpi" + to + from] = {to_integer<T, FROM, do_ceil>, sizes, false};
}
template <class T> void add_integer(forms *out, const std::string &t)
{
    static const char *const to_f32[] = {"", "41", "42", "", "44", "", "", "", "48"}, *const to_f64[] = {
                                                                                          "", "81", "82", "",  "84",
                                                                                          "", "",   "",   "88"};
    (*out)["cvt.rn.f32" + t] = {to_float<float, T>, to_f32[sizeof(T)], true};
    (*out)["cvt.rn.f64" + t] = {to_float<double, T>, to_f64[sizeof(T)], true};
    if constexpr (sizeof(T) > 1) {
        add_to_integer<T, float>(out, t, ".f32");
        add_to_integer<T, double>(out, t, ".f64");
    }
}

} // namespace

void add_floats(forms *out)
{
    add_type<float>(out, ".f32"), add_type<double>(out, ".f64");
    add_integer<uint8_t>(out, ".u8"), add_integer<int8_t>(out, ".s8");
    add_integer<uint16_t>(out, ".u16"), add_integer<int16_t>(out, ".s16");
    add_integer<uint32_t>(out, ".u32"), add_integer<int32_t>(out, ".s32");
    add_integer<uint64_t>(out, ".u64"), add_integer<int64_t>(out, ".s64");
    const forms others = {{"cvt.f64.f32", {to_float<double, float>, "84", false}},
                          {"cvt.rn.f32.f64", {to_float<float, double>, "48", false}},
                          {"ex2.approx.ftz.f32", {unary<float, do_ex2_ftz>, "44", false}},
                          {"ex2.approx.f32", {unary<float, do_ex2>, "44", false}},
                          {"rcp.approx.ftz.f32", {unary<float, do_rcp_ftz>, "44", false}},
                          {"rsqrt.approx.ftz.f32", {unary<float, do_rsqrt>, "44", false}},
                          {"lg2.approx.f32", {unary<float, do_lg2>, "44", false}},
                          {"tanh.approx.f32", {unary<float, do_tanh>, "44", false}},
                          {"cvt.rn.f16.f32", {half_of, "24", false}},
                          {"cvt.f32.f16", {float_of_half, "42", false}},
                          {"cvt.rn.bf16.f32", {bf16_of, "24", false}},
                          {"cvt.f32.bf16", {float_of_bf16, "42", false}},
                          {"cvt.rn.f16x2.f32", {halves_of, "444", false}},
                          {"cvt.rn.bf16x2.f32", {bf16s_of, "444", false}},
                          {"add.rn.f16x2", {add_halves, "444", false}},
                          {"fma.rn.f16x2", {fused_halves, "4444", false}},
                          {"fma.rn.bf16x2", {fused_bf16s, "4444", false}},
                          {"neg.f16", {negate_half, "22", false}},
                          {"add.f32.f16", {add_half_to_float, "424", false}}};
    for (const auto &o : others) (*out)[o.first] = o.second;
}

} // namespace ptx
} // namespace simt
