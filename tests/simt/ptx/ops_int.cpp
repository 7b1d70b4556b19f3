/* Integer and logical instructions. Results are those of the PTX manual where C++ has none: shifts by more than the
 * width, and divisions by zero, which give all ones. */
#include "code.h"

namespace simt {
namespace ptx {

namespace {

template <class T> using wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed<T>::value, int32_t, uint32_t>,
                       std::conditional_t<std::is_signed<T>::value, int64_t, uint64_t>>;
__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;
template <class T> using huge = std::conditional_t<std::is_signed<T>::value, int128, uint128>;
template <class T> using bits = std::make_unsigned_t<T>;

#define UNARY(name, expr)                                          \
    struct name {                                                  \
        template <class T> static T on(T a) { return (T) (expr); } \
    }
#define BINARY(name, expr)                                              \
    struct name {                                                       \
        template <class T> static T on(T a, T b) { return (T) (expr); } \
    }
UNARY(do_not, ~a);
UNARY(do_neg, 0 - (bits<T>) a);
UNARY(do_abs, a < 0 ? 0 - (bits<T>) a : (bits<T>) a);
BINARY(do_add, (bits<T>) a + (bits<T>) b);
BINARY(do_sub, (bits<T>) a - (bits<T>) b);
BINARY(do_mul, (uint64_t) a *(uint64_t) b);
BINARY(do_mul_high, (huge<T>) a *b >> (8 * sizeof(T)));
BINARY(do_div, !b ? -1 : std::is_signed<T>::value && b == (T) -1 ? (T) (0 - (bits<T>) a) : a / b);
BINARY(do_rem, !b ? a : std::is_signed<T>::value && b == (T) -1 ? 0 : a % b);
BINARY(do_min, b < a ? b : a);
BINARY(do_max, a < b ? b : a);
BINARY(do_and, a &b);
BINARY(do_or, a | b);
BINARY(do_xor, a ^ b);
BINARY(is_eq, a == b);
BINARY(is_ne, a != b);
BINARY(is_lt, a < b);
BINARY(is_le, a <= b);
BINARY(is_gt, a > b);
BINARY(is_ge, a >= b);

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
    put<uint8_t>(f, c->r[0], (bool) F::on(get<T>(f, c->r[1]), get<T>(f, c->r[2])));
    return c + 1;
}
template <class T, class F> const code *mad(const code *c, char *f)
{
    put<T>(f, c->r[0], do_add::on<T>(F::on(get<T>(f, c->r[1]), get<T>(f, c->r[2])), get<T>(f, c->r[3])));
    return c + 1;
}
template <class T> const code *mul_wide(const code *c, char *f)
{
    put(f, c->r[0], (wide<T>) ((wide<T>) get<T>(f, c->r[1]) * (wide<T>) get<T>(f, c->r[2])));
    return c + 1;
}
template <class T> const code *mad_wide(const code *c, char *f)
{
    const wide<T> product = (wide<T>) get<T>(f, c->r[1]) * (wide<T>) get<T>(f, c->r[2]);
    put(f, c->r[0], do_add::on<wide<T>>(product, get<wide<T>>(f, c->r[3])));
    return c + 1;
}
template <class T> const code *shift_left(const code *c, char *f)
{
    const uint32_t n = get<uint32_t>(f, c->r[2]);
    put<T>(f, c->r[0], n < 8 * sizeof(T) ? (T) (get<T>(f, c->r[1]) << n) : (T) 0);
    return c + 1;
}
template <class T> const code *shift_right(const code *c, char *f)
{
    const T a = get<T>(f, c->r[1]);
    const uint32_t n = get<uint32_t>(f, c->r[2]);
    put<T>(f, c->r[0], n < 8 * sizeof(T) ? (T) (a >> n) : (T) (a < 0 ? -1 : 0));
    return c + 1;
}
/* shf: the upper (l) or lower (r) word of b:a, shifted by c. CLAMP: by at most 32. */
template <bool LEFT, bool CLAMP> const code *funnel(const code *c, char *f)
{
    const uint64_t all = (uint64_t) get<uint32_t>(f, c->r[2]) << 32 | get<uint32_t>(f, c->r[1]);
    const uint32_t s = get<uint32_t>(f, c->r[3]), n = CLAMP ? std::min(s, 32u) : s & 31;
    put<uint32_t>(f, c->r[0],
                  LEFT      ? (uint32_t) (all << n >> 32)
                  : n == 32 ? (uint32_t) (all >> 32)
                            : (uint32_t) (all >> n));
    return c + 1;
}

/* bfe: bits from `pos` on; signed: the sign is the last bit of the field, or of the register. */
template <class T> const code *extract(const code *c, char *f)
{
    const T a = get<T>(f, c->r[1]);
    const int top = 8 * (int) sizeof(T) - 1, pos = (int) (get<uint32_t>(f, c->r[2]) & 255),
              n = (int) (get<uint32_t>(f, c->r[3]) & 255);
    const int last = std::min(pos + n - 1, top);
    const bool sign = std::is_signed<T>::value && n && (a >> last & 1);
    T d = sign ? (T) -1 : (T) 0;
    for (int i = 0; i <= top; i++) {
        const bool bit = i < n && pos + i <= top ? (a >> (pos + i) & 1) != 0 : sign;
        d = (T) (((bits<T>) d & ~((bits<T>) 1 << i)) | (bits<T>) bit << i);
    }
    put<T>(f, c->r[0], d);
    return c + 1;
}
template <class T> const code *insert(const code *c, char *f)
{
    const int pos = (int) (get<uint32_t>(f, c->r[3]) & 255), n = (int) (get<uint32_t>(f, c->r[4]) & 255);
    const T a = get<T>(f, c->r[1]);
    T d = get<T>(f, c->r[2]);
    for (int i = 0; i < n && pos + i < 8 * (int) sizeof(T); i++)
        d = (T) ((d & ~((T) 1 << (pos + i))) | (a >> i & 1) << (pos + i));
    put<T>(f, c->r[0], d);
    return c + 1;
}

/* prmt: a selector's highest bit replicates the sign of its byte. */
const code *permute(const code *c, char *f)
{
    const uint64_t all = (uint64_t) get<uint32_t>(f, c->r[2]) << 32 | get<uint32_t>(f, c->r[1]);
    const uint32_t s = get<uint32_t>(f, c->r[3]);
    uint32_t d = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t byte = (uint32_t) (all >> 8 * (s >> 4 * i & 7)) & 255;
        d |= (s >> 4 * i & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    put(f, c->r[0], d);
    return c + 1;
}
const code *lop3(const code *c, char *f)
{
    const uint32_t x[3] = {get<uint32_t>(f, c->r[1]), get<uint32_t>(f, c->r[2]), get<uint32_t>(f, c->r[3])};
    const uint32_t table = get<uint32_t>(f, c->r[4]);
    uint32_t d = 0;
    for (uint32_t i = 0; i < 8; i++)
        if (table >> i & 1) d |= (i & 4 ? x[0] : ~x[0]) & (i & 2 ? x[1] : ~x[1]) & (i & 1 ? x[2] : ~x[2]);
    put(f, c->r[0], d);
    return c + 1;
}
/* dp4a: four products of bytes; dp2a: two products of halves of a and bytes of b, from byte 2 HIGH on. */
template <class A, class B> const code *dp4a(const code *c, char *f)
{
    uint32_t d = get<uint32_t>(f, c->r[3]);
    for (uint32_t i = 0; i < 4; i++)
        d += (uint32_t) ((int32_t) get<A>(f, c->r[1] + i) * (int32_t) get<B>(f, c->r[2] + i));
    put(f, c->r[0], d);
    return c + 1;
}
template <class A, class B, int HIGH> const code *dp2a(const code *c, char *f)
{
    uint32_t d = get<uint32_t>(f, c->r[3]);
    for (uint32_t i = 0; i < 2; i++)
        d += (uint32_t) ((int32_t) get<A>(f, c->r[1] + 2 * i) * (int32_t) get<B>(f, c->r[2] + 2 * HIGH + i));
    put(f, c->r[0], d);
    return c + 1;
}
template <class T> const code *popc(const code *c, char *f)
{
    put<uint32_t>(f, c->r[0], (uint32_t) __builtin_popcountll(get<T>(f, c->r[1])));
    return c + 1;
}
template <class T> const code *clz(const code *c, char *f)
{
    const T a = get<T>(f, c->r[1]);
    put<uint32_t>(f, c->r[0], a ? (uint32_t) __builtin_clzll(a) - (64 - 8 * sizeof(T)) : 8 * sizeof(T));
    return c + 1;
}
template <class T> const code *reverse_bits(const code *c, char *f)
{
    const T a = get<T>(f, c->r[1]);
    T d = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); i++) d = (T) (d << 1 | (a >> i & 1));
    put(f, c->r[0], d);
    return c + 1;
}
template <class T> const code *select(const code *c, char *f)
{
    put<T>(f, c->r[0], get<uint8_t>(f, c->r[3]) ? get<T>(f, c->r[1]) : get<T>(f, c->r[2]));
    return c + 1;
}
template <class T> const code *copy(const code *c, char *f)
{
    put<T>(f, c->r[0], get<T>(f, c->r[1]));
    return c + 1;
}
const code *not_pred(const code *c, char *f)
{
    put<uint8_t>(f, c->r[0], !get<uint8_t>(f, c->r[1]));
    return c + 1;
}

/* cvt between integers: the value of a `from` in a register of `result` bytes, truncated to a `to` and extended. */
template <class TO, class FROM, class RESULT> const code *convert(const code *c, char *f)
{
    const TO v = (TO) get<FROM>(f, c->r[1]);
    put<RESULT>(f, c->r[0], (RESULT) v);
    return c + 1;
}

/* Adds the forms of one type: suffix of its name, digit of its size. */
template <class T> void add_type(forms *out, const std::string &t)
{
    static const char *const two[] = {"", "11", "22", "", "44", "", "", "", "88"}, *const three[] = {"", "111", "222",
                                                                                                     "", "444", "",
                                                                                                     "", "",    "888"},
                             *const four[] = {"", "", "2222", "", "4444", "", "", "", "8888"},
                             *const compared[] = {"", "", "122", "", "144", "", "", "", "188"};
    const size_t n = sizeof(T);
    const auto set = [&](const char *name, handler h, const char *sizes) { (*out)[name + t] = {h, sizes, false}; };
    set("add", binary<T, do_add>, three[n]), set("sub", binary<T, do_sub>, three[n]);
    set("mul.lo", binary<T, do_mul>, three[n]), set("mul.hi", binary<T, do_mul_high>, three[n]);
    set("div", binary<T, do_div>, three[n]), set("rem", binary<T, do_rem>, three[n]);
    set("min", binary<T, do_min>, three[n]), set("max", binary<T, do_max>, three[n]);
    set("neg", unary<T, do_neg>, two[n]), set("abs", unary<T, do_abs>, two[n]);
    set("mad.lo", mad<T, do_mul>, four[n]), set("mad.hi", mad<T, do_mul_high>, four[n]);
    set("setp.eq", compare<T, is_eq>, compared[n]), set("setp.ne", compare<T, is_ne>, compared[n]);
    set("setp.lt", compare<T, is_lt>, compared[n]), set("setp.le", compare<T, is_le>, compared[n]);
    set("setp.gt", compare<T, is_gt>, compared[n]), set("setp.ge", compare<T, is_ge>, compared[n]);
    set("setp.lo", compare<T, is_lt>, compared[n]), set("setp.ls", compare<T, is_le>, compared[n]);
    set("setp.hi", compare<T, is_gt>, compared[n]), set("setp.hs", compare<T, is_ge>, compared[n]);
    set("shr", shift_right<T>, n == 2 ? "224" : n == 4 ? "444" : "884");
    set("selp", select<T>, n == 2 ? "2221" : n == 4 ? "4441" : "8881");
    set("mov", copy<T>, two[n]);
}
template <class T> void add_wide(forms *out, const std::string &t)
{
    (*out)["mul.wide" + t] = {mul_wide<T>, sizeof(T) == 2 ? "422" : "844", false};
    (*out)["mad.wide" + t] = {mad_wide<T>, sizeof(T) == 2 ? "4224" : "8448", false};
}
template <class T> void add_bits(forms *out, const std::string &t, const std::string &s)
{
    static const char *const two[] = {"", "11", "22", "", "44", "", "", "", "88"}, *const three[] = {"", "111", "222",
                                                                                                     "", "444", "",
                                                                                                     "", "",    "888"};
    const size_t n = sizeof(T);
    const auto set = [&](const std::string &name, handler h, const char *sizes) { (*out)[name] = {h, sizes, false}; };
    set("and" + t, binary<T, do_and>, three[n]), set("or" + t, binary<T, do_or>, three[n]);
    set("xor" + t, binary<T, do_xor>, three[n]);
    if (n == 1) return;
    set("not" + t, unary<T, do_not>, two[n]);
    set("shl" + t, shift_left<T>, n == 2 ? "224" : n == 4 ? "444" : "884");
    set("shr" + t, shift_right<T>, n == 2 ? "224" : n == 4 ? "444" : "884");
    for (const std::string &name : {t, s}) {
        set("mov" + name, copy<T>, two[n]);
        set("selp" + name, select<T>, n == 2 ? "2221" : n == 4 ? "4441" : "8881");
    }
    set("setp.eq" + t, compare<T, is_eq>, n == 2 ? "122" : n == 4 ? "144" : "188");
    set("setp.ne" + t, compare<T, is_ne>, n == 2 ? "122" : n == 4 ? "144" : "188");
}

template <class TO, class FROM> void add_conversion(forms *out, const std::string &to, const std::string &from)
{
    static const char sizes[][3] = {"21", "22", "24", "28", "41", "42", "44", "48", "81", "82", "84", "88"};
    const size_t small = sizeof(TO) < 2 ? 2 : sizeof(TO);
    const char *how = sizes[0];
    for (const char *s : sizes)
        if (s[0] == (char) ('0' + small) && s[1] == (char) ('0' + sizeof(FROM))) how = s;
    handler h = small == 2   ? convert<TO, FROM, std::conditional_t<std::is_signed<TO>::value, int16_t, uint16_t>>
                : small == 4 ? convert<TO, FROM, std::conditional_t<std::is_signed<TO>::value, int32_t, uint32_t>>
                             : convert<TO, FROM, std::conditional_t<std::is_signed<TO>::value, int64_t, uint64_t>>;
    (*out)["cvt" + to + from] = {h, how, true};
}
template <class TO> void add_conversions(forms *out, const std::string &to)
{
    add_conversion<TO, uint8_t>(out, to, ".u8"), add_conversion<TO, int8_t>(out, to, ".s8");
    add_conversion<TO, uint16_t>(out, to, ".u16"), add_conversion<TO, int16_t>(out, to, ".s16");
    add_conversion<TO, uint32_t>(out, to, ".u32"), add_conversion<TO, int32_t>(out, to, ".s32");
    add_conversion<TO, uint64_t>(out, to, ".u64"), add_conversion<TO, int64_t>(out, to, ".s64");
}

} // namespace

void add_integers(forms *out)
{
    add_type<uint16_t>(out, ".u16"), add_type<int16_t>(out, ".s16"), add_type<uint32_t>(out, ".u32");
    add_type<int32_t>(out, ".s32"), add_type<uint64_t>(out, ".u64"), add_type<int64_t>(out, ".s64");
    add_wide<uint16_t>(out, ".u16"), add_wide<int16_t>(out, ".s16");
    add_wide<uint32_t>(out, ".u32"), add_wide<int32_t>(out, ".s32");
    add_bits<uint8_t>(out, ".pred", ".pred"), add_bits<uint16_t>(out, ".b16", ".f16");
    add_bits<uint32_t>(out, ".b32", ".f32"), add_bits<uint64_t>(out, ".b64", ".f64");
    add_conversions<uint8_t>(out, ".u8"), add_conversions<int8_t>(out, ".s8");
    add_conversions<uint16_t>(out, ".u16"), add_conversions<int16_t>(out, ".s16");
    add_conversions<uint32_t>(out, ".u32"), add_conversions<int32_t>(out, ".s32");
    add_conversions<uint64_t>(out, ".u64"), add_conversions<int64_t>(out, ".s64");
    const forms others = {{"mov.pred", {copy<uint8_t>, "11", false}},
                          {"not.pred", {not_pred, "11", false}},
                          {"shf.l.wrap.b32", {funnel<true, false>, "4444", false}},
                          {"shf.r.wrap.b32", {funnel<false, false>, "4444", false}},
                          {"shf.l.clamp.b32", {funnel<true, true>, "4444", false}},
                          {"shf.r.clamp.b32", {funnel<false, true>, "4444", false}},
                          {"bfe.u32", {extract<uint32_t>, "4444", false}},
                          {"bfe.s32", {extract<int32_t>, "4444", false}},
                          {"bfe.u64", {extract<uint64_t>, "8844", false}},
                          {"bfe.s64", {extract<int64_t>, "8844", false}},
                          {"bfi.b32", {insert<uint32_t>, "44444", false}},
                          {"bfi.b64", {insert<uint64_t>, "88844", false}},
                          {"prmt.b32", {permute, "4444", false}},
                          {"lop3.b32", {lop3, "44444", false}},
                          {"dp4a.u32.u32", {dp4a<uint8_t, uint8_t>, "4444", false}},
                          {"dp4a.s32.s32", {dp4a<int8_t, int8_t>, "4444", false}},
                          {"dp4a.u32.s32", {dp4a<uint8_t, int8_t>, "4444", false}},
                          {"dp4a.s32.u32", {dp4a<int8_t, uint8_t>, "4444", false}},
                          {"dp2a.lo.u32.u32", {dp2a<uint16_t, uint8_t, 0>, "4444", false}},
                          {"dp2a.hi.u32.u32", {dp2a<uint16_t, uint8_t, 1>, "4444", false}},
                          {"dp2a.lo.s32.s32", {dp2a<int16_t, int8_t, 0>, "4444", false}},
                          {"dp2a.hi.s32.s32", {dp2a<int16_t, int8_t, 1>, "4444", false}},
                          {"popc.b32", {popc<uint32_t>, "44", false}},
                          {"popc.b64", {popc<uint64_t>, "48", false}},
                          {"clz.b32", {clz<uint32_t>, "44", false}},
                          {"clz.b64", {clz<uint64_t>, "48", false}},
                          {"brev.b32", {reverse_bits<uint32_t>, "44", false}},
                          {"brev.b64", {reverse_bits<uint64_t>, "88", false}}};
    for (const auto &o : others) (*out)[o.first] = o.second;
}

} // namespace ptx
} // namespace simt
