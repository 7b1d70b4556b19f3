/* Bit-exact tensor-core arithmetic.
 *
 * The sum of products and C is one fused operation. Every term is aligned to the largest exponent and truncated
 * (toward zero) to F bits after that exponent's unit. The truncated terms are added exactly, and the total is rounded
 * toward zero to a float. F is 25 for 16-bit floats, tf32 and mxf8f6f4. F is 35 for the FP4 kinds; their terms are
 * exact sums of 16 products times their scales. This is the arithmetic of sm_90 and newer; sm_80 truncates 16-bit
 * floats to 24 bits in two passes of 8. Source: Xie et al., MMA-Sim (arXiv 2511.10909); fixtures/ holds results of
 * that model.
 *
 * The exponent of a product is the sum of its factors' exponents, without normalizing a significand of 2 or more. A
 * zero has exponent -126, like the smallest float. */
#include "ptx.h"

#include "counters.h"
#include "simt_impl.h"

#if defined __x86_64__
#include <immintrin.h>
#endif

namespace simt {

struct term {
    int64_t m; /* the value is m * 2^q */
    int q;
    int e;     /* exponent for the alignment */
    bool special; /* infinity or NaN; m is the sign, 0 for NaN */
};

static term float_term(float f)
{
    uint32_t u = __float_as_uint(f);
    int e = u >> 23 & 255;
    int64_t m = u & 0x7fffff, sign = u >> 31 ? -1 : 1;
    if (e == 255) return {m ? 0 : sign, 0, 0, true};
    m = e ? m | 1 << 23 : m;
    e = e ? e : 1;
    return {sign * m, e - 150, m ? e - 127 : -126, false};
}

/* A small float with eb exponent bits and mb fraction bits; ieee: the largest exponent means infinity or NaN. */
static term small_term(uint32_t u, int eb, int mb, bool ieee)
{
    int bias = (1 << (eb - 1)) - 1, e = (int) (u >> mb) & ((1 << eb) - 1);
    int64_t m = u & ((1u << mb) - 1), sign = u >> (eb + mb) & 1 ? -1 : 1;
    if (ieee && e == (1 << eb) - 1) return {m ? 0 : sign, 0, 0, true};
    m = e ? m | 1 << mb : m;
    e = e ? e : 1;
    return {sign * m, e - bias - mb, m ? e - bias : -126, false};
}

static term mx_term(uint8_t u, mx type)
{
    switch (type) {
    case mx::e4m3: return (u & 0x7f) == 0x7f ? term{0, 0, 0, true} : small_term(u, 4, 3, false);
    case mx::e5m2: return small_term(u, 5, 2, true);
    case mx::e3m2: return small_term(u & 0x3f, 3, 2, false);
    case mx::e2m3: return small_term(u & 0x3f, 2, 3, false);
    case mx::e2m1: break;
    }
    return small_term(u >> 2 & 15, 2, 1, false);
}

static term ue4m3_term(uint8_t u) { return mx_term(u & 0x7f, mx::e4m3); }
static term ue8m0_term(uint8_t u) { return {1, u - 127, u - 127, u == 255}; }

static term times(const term &a, const term &b)
{
    if (!a.special && !b.special) return {a.m * b.m, a.q + b.q, a.e + b.e, false};
    int64_t sa = (a.m > 0) - (a.m < 0), sb = (b.m > 0) - (b.m < 0);
    return {sa * sb, 0, 0, true}; /* infinity * 0 and NaN: m 0 means NaN */
}

/* sum * 2^q, truncated to a float. */
static float cut_to_float(int64_t sum, int q)
{
    if (!sum) return 0;
    uint32_t sign = sum < 0 ? 1u << 31 : 0;
    uint64_t u = (uint64_t) (sum < 0 ? -sum : sum);
    int top = 63 - __builtin_clzll(u) + q;
    if (top > 127) return __uint_as_float(sign | 0x7f800000);
    int lsb = top - 23 < -149 ? -149 : top - 23, shift = q - lsb, e = top < -126 ? -126 : top;
    uint64_t m = shift >= 0 ? u << shift : shift < -63 ? 0 : u >> -shift;
    return __uint_as_float(sign | (m >> 23 ? (uint32_t) (e + 127) << 23 : 0) | (uint32_t) (m & 0x7fffff));
}

static float fused_sum(const term *t, int n, int fraction)
{
    int64_t sum = 0;
    int top = t[0].e;
    bool nan = false, plus = false, minus = false;
    for (int i = 0; i < n; i++) {
        if (t[i].e > top) top = t[i].e;
        if (!t[i].special) continue;
        nan |= t[i].m == 0;
        plus |= t[i].m > 0;
        minus |= t[i].m < 0;
    }
    if (nan || (plus && minus)) return __uint_as_float(0x7fffffff);
    if (plus || minus) return __uint_as_float(plus ? 0x7f800000 : 0xff800000);
    for (int i = 0; i < n; i++) {
        if (!t[i].m) continue;
        int shift = fraction - top + t[i].q;
        int64_t m = t[i].m < 0 ? -t[i].m : t[i].m;
        m = shift >= 0 ? m << shift : shift < -62 ? 0 : m >> -shift;
        sum += t[i].m < 0 ? -m : m;
    }
    return cut_to_float(sum, top - fraction);
}

/* ------------------------------------------------------------------------------------------------------- fragments */

struct mma_arg {
    void *d;           /* float or int32_t */
    const uint32_t *a, *b;
    scales s;
    mx type_a, type_b;
};

static const mma_arg *of(void **arg, int lane) { return static_cast<const mma_arg *>(arg[lane]); }

/* Element i of a lane's words, with `bits` bits per element. A column is 32 bits wide in all shapes, so that the
 * fragments of m16n8k16 (16 bits), k32 (8 bits) and k64 (4 bits) differ only in `bits`. k: columns of A in the
 * instruction. */
static uint32_t element(const uint32_t *w, int i, int bits)
{
    int per = 32 / bits;
    return w[i / per] >> (i % per * bits) & (uint32_t) ((UINT64_C(1) << bits) - 1);
}

static void gather(void **arg, int bits, int k, uint32_t (*a)[64], uint32_t (*b)[64])
{
    int per = 32 / bits, halves = k / (4 * per); /* adjacent words in a row */
    for (int l = 0; l < 32; l++) {
        int g = l >> 2, t = l & 3;
        for (int i = 0; i < 2 * halves * per; i++) {
            int w = i / per;
            a[g + 8 * (w & 1)][per * t + i % per + 4 * per * (w >> 1)] = element(of(arg, l)->a, i, bits);
        }
        for (int i = 0; i < halves * per; i++)
            b[g][per * t + i % per + 4 * per * (i / per)] = element(of(arg, l)->b, i, bits);
    }
}

/* Row and column of a lane's element i of D. */
static int row_of(int lane, int i) { return (lane >> 2) + 8 * (i >> 1); }
static int col_of(int lane, int i) { return 2 * (lane & 3) + (i & 1); }

/* Scale byte i of row m of A, and of column n of B. */
static uint8_t scale_a(void **arg, int m, int i)
{
    const scales &s = of(arg, 0)->s;
    return (uint8_t) (of(arg, 4 * (m & 7) + (m >> 3) + 2 * s.thread_a)->s.a >> 8 * (s.byte_a + i));
}
static uint8_t scale_b(void **arg, int n, int i)
{
    const scales &s = of(arg, 0)->s;
    return (uint8_t) (of(arg, 4 * n + s.thread_b)->s.b >> 8 * (s.byte_b + i));
}

/* ----------------------------------------------------------------------------------------------------------- kinds */

/* A product of finite 16-bit floats in 32-bit integers: signed significands, and the exponents for the alignment of
 * terms. Rows of B are contiguous, so that a row of D is one vector. */
struct small_mma {
    int32_t a[16][16], a_e[16][16]; /* m, k */
    int32_t b[16][8], b_e[16][8];   /* k, n */
    /* top: C's exponents on entry, then the largest; sum: the products in units of 2^(top - 25) */
    int32_t top[16][8], sum[16][8];
};

/* A product has at most 2 MB + 2 bits, shifted to 27: sixteen of them fit in 32 bits. */
template <int MB> static inline __attribute__((always_inline)) void add_products(small_mma *x)
{
    for (int m = 0; m < 16; m++) {
        int32_t top[8], sum[8] = {};
        for (int n = 0; n < 8; n++) top[n] = x->top[m][n];
        for (int k = 0; k < 16; k++) {
            for (int n = 0; n < 8; n++) {
                const int32_t e = x->a_e[m][k] + x->b_e[k][n];
                top[n] = top[n] > e ? top[n] : e;
            }
        }
        for (int k = 0; k < 16; k++) {
            for (int n = 0; n < 8; n++) {
                const int32_t p = x->a[m][k] * x->b[k][n], sign = p >> 31, by = top[n] - (x->a_e[m][k] + x->b_e[k][n]);
                const int32_t size = (int32_t) ((uint32_t) ((p ^ sign) - sign) << (25 - 2 * MB) >> (by < 31 ? by : 31));
                sum[n] += (size ^ sign) - sign;
            }
        }
        for (int n = 0; n < 8; n++) {
            x->top[m][n] = top[n];
            x->sum[m][n] = sum[n];
        }
    }
}
#if defined __x86_64__
template <int MB> __attribute__((target("avx2"))) static void add_products_avx2(small_mma *x) { add_products<MB>(x); }
#endif

/* Returns false for infinities and NaN. */
template <int EB, int MB> static bool split_16(uint32_t h, int32_t *m, int32_t *e)
{
    const int32_t exponent = (int32_t) (h >> MB) & ((1 << EB) - 1), fraction = (int32_t) (h & ((1u << MB) - 1));
    const int32_t size = exponent ? fraction | 1 << MB : fraction;
    *m = h & 0x8000 ? -size : size;
    *e = size ? (exponent ? exponent : 1) - ((1 << (EB - 1)) - 1) : -126;
    return exponent != (1 << EB) - 1;
}

/* Returns false, without any effect, if a factor or C is infinite or NaN. */
template <int EB, int MB> static bool mma_16_finite(void **arg)
{
    small_mma x;
    bool finite = true;
    for (int l = 0; l < 32; l++) {
        const mma_arg *f = of(arg, l);
        const float *d = static_cast<const float *>(f->d);
        const int g = l >> 2, t = 2 * (l & 3);
        for (int w = 0; w < 4; w++) {
            const int m = g + 8 * (w & 1), k = t + 8 * (w >> 1);
            finite &= split_16<EB, MB>(f->a[w] & 0xffff, &x.a[m][k], &x.a_e[m][k]);
            finite &= split_16<EB, MB>(f->a[w] >> 16, &x.a[m][k + 1], &x.a_e[m][k + 1]);
        }
        for (int w = 0; w < 2; w++) {
            finite &= split_16<EB, MB>(f->b[w] & 0xffff, &x.b[t + 8 * w][g], &x.b_e[t + 8 * w][g]);
            finite &= split_16<EB, MB>(f->b[w] >> 16, &x.b[t + 8 * w + 1][g], &x.b_e[t + 8 * w + 1][g]);
        }
        for (int i = 0; i < 4; i++) {
            const term c = float_term(d[i]);
            finite &= !c.special;
            x.top[row_of(l, i)][col_of(l, i)] = c.e;
        }
    }
    if (!finite) return false;
#if defined __x86_64__
    static const bool avx2 = __builtin_cpu_supports("avx2");
    if (avx2) add_products_avx2<MB>(&x);
    else add_products<MB>(&x);
#else
    add_products<MB>(&x);
#endif
    for (int l = 0; l < 32; l++) {
        float *d = static_cast<float *>(of(arg, l)->d);
        for (int i = 0; i < 4; i++) {
            const term c = float_term(d[i]);
            const int top = x.top[row_of(l, i)][col_of(l, i)], by = top - c.e;
            const int64_t size = by < 62 ? (c.m < 0 ? -c.m : c.m) << 2 >> by : 0;
            d[i] = cut_to_float(x.sum[row_of(l, i)][col_of(l, i)] + (c.m < 0 ? -size : size), top - 25);
        }
    }
    return true;
}

template <int EB, int MB> static void mma_16(void **arg)
{
    if (mma_16_finite<EB, MB>(arg)) return;
    uint32_t a[16][64], b[8][64];
    term ta[16][16], tb[8][16], t[17];
    gather(arg, 16, 16, a, b);
    for (int k = 0; k < 16; k++) {
        for (int m = 0; m < 16; m++) ta[m][k] = small_term(a[m][k], EB, MB, true);
        for (int n = 0; n < 8; n++) tb[n][k] = small_term(b[n][k], EB, MB, true);
    }
    for (int l = 0; l < 32; l++) {
        float *d = static_cast<float *>(of(arg, l)->d);
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < 16; k++) t[k] = times(ta[row_of(l, i)][k], tb[col_of(l, i)][k]);
            t[16] = float_term(d[i]);
            d[i] = fused_sum(t, 17, 25);
        }
    }
}

template <int EB, int MB> static void do_mma_16(void **arg, const char *, int)
{
    count_op(EB == 8 ? DO_MMA_BF16 : DO_MMA_F16);
    if (!options.no_mma) mma_16<EB, MB>(arg);
}

void multiply_16(float *const *d, const uint32_t (*a)[4], const uint32_t (*b)[2], bool bf16)
{
    mma_arg x[32] = {};
    void *arg[32];
    for (int l = 0; l < 32; l++) {
        x[l].d = d[l], x[l].a = a[l], x[l].b = b[l];
        arg[l] = &x[l];
    }
    if (bf16) mma_16<8, 7>(arg);
    else mma_16<5, 10>(arg);
}

/* A lane's result: a row of A of K columns times a column of B, scaled by `unit`, plus c. */
template <int K> static float sum_of_products(const term *a, const term *b, const term &unit, float c, int fraction)
{
    term t[K + 1];
    for (int k = 0; k < K; k++) {
        t[k] = times(a[k], b[k]);
        t[k].q += unit.q;
        t[k].e += unit.e;
        if (unit.special) t[k] = {0, 0, 0, true};
    }
    t[K] = float_term(c);
    return fused_sum(t, K + 1, fraction);
}

/* The last 13 bits of each float are ignored. */
static void do_mma_tf32(void **arg, const char *, int)
{
    count_op(DO_MMA_TF32);
    if (options.no_mma) return;
    uint32_t a[16][64], b[8][64];
    term ta[16][8], tb[8][8];
    gather(arg, 32, 8, a, b);
    for (int k = 0; k < 8; k++) {
        for (int m = 0; m < 16; m++) ta[m][k] = float_term(__uint_as_float(a[m][k] & 0xffffe000));
        for (int n = 0; n < 8; n++) tb[n][k] = float_term(__uint_as_float(b[n][k] & 0xffffe000));
    }
    for (int l = 0; l < 32; l++) {
        float *d = static_cast<float *>(of(arg, l)->d);
        for (int i = 0; i < 4; i++)
            d[i] = sum_of_products<8>(ta[row_of(l, i)], tb[col_of(l, i)], {1, 0, 0, false}, d[i], 25);
    }
}

template <int K> static void do_mma_s8(void **arg, const char *, int)
{
    count_op(K == 32 ? DO_MMA_S8_K32 : DO_MMA_S8_K16);
    if (options.no_mma) return;
    uint32_t a[16][64], b[8][64];
    int16_t sa[16][K], sb[8][K];
    gather(arg, 8, K, a, b);
    for (int k = 0; k < K; k++) {
        for (int m = 0; m < 16; m++) sa[m][k] = (int8_t) a[m][k];
        for (int n = 0; n < 8; n++) sb[n][k] = (int8_t) b[n][k];
    }
    for (int l = 0; l < 32; l++) {
        int32_t *d = static_cast<int32_t *>(of(arg, l)->d);
        for (int i = 0; i < 4; i++) {
            uint32_t sum = (uint32_t) d[i];
            for (int k = 0; k < K; k++) sum += (uint32_t) (sa[row_of(l, i)][k] * sb[col_of(l, i)][k]);
            d[i] = (int32_t) sum;
        }
    }
}

/* e2m1 by e2m1 with block scales: per 16 values (nvf4: ue4m3) or per 32 (ue8m0). */
template <bool NV> static void do_mma_fp4(void **arg, const char *, int)
{
    count_op(NV ? DO_MMA_NVFP4 : DO_MMA_MXFP4);
    if (options.no_mma) return;
    static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    uint32_t a[16][64], b[8][64];
    int16_t da[16][64], db[8][64];
    gather(arg, 4, 64, a, b);
    for (int k = 0; k < 64; k++) {
        for (int m = 0; m < 16; m++) da[m][k] = doubled[a[m][k]];
        for (int n = 0; n < 8; n++) db[n][k] = doubled[b[n][k]];
    }
    for (int l = 0; l < 32; l++) {
        float *d = static_cast<float *>(of(arg, l)->d);
        for (int i = 0; i < 4; i++) {
            int m = row_of(l, i), n = col_of(l, i);
            term t[5];
            for (int j = 0; j < 4; j++) {
                int32_t sum = 0;
                for (int k = 16 * j; k < 16 * j + 16; k++) sum += da[m][k] * db[n][k];
                uint8_t ua = scale_a(arg, m, NV ? j : j / 2), ub = scale_b(arg, n, NV ? j : j / 2);
                term s = NV ? times(ue4m3_term(ua), ue4m3_term(ub)) : times(ue8m0_term(ua), ue8m0_term(ub));
                t[j] = {sum * s.m, s.q - 2, s.e, false};
                if (s.special) t[j] = {0, 0, 0, true};
            }
            t[4] = float_term(d[i]);
            d[i] = fused_sum(t, 5, 35);
        }
    }
}

static void do_mma_mx8(void **arg, const char *, int)
{
    count_op(DO_MMA_MX8);
    if (options.no_mma) return;
    uint32_t a[16][64], b[8][64];
    term ta[16][32], tb[8][32];
    gather(arg, 8, 32, a, b);
    const mx type_a = of(arg, 0)->type_a, type_b = of(arg, 0)->type_b;
    for (int k = 0; k < 32; k++) {
        for (int m = 0; m < 16; m++) ta[m][k] = mx_term((uint8_t) a[m][k], type_a);
        for (int n = 0; n < 8; n++) tb[n][k] = mx_term((uint8_t) b[n][k], type_b);
    }
    for (int l = 0; l < 32; l++) {
        float *d = static_cast<float *>(of(arg, l)->d);
        for (int i = 0; i < 4; i++) {
            const int m = row_of(l, i), n = col_of(l, i);
            d[i] = sum_of_products<32>(ta[m], tb[n],
                                       times(ue8m0_term(scale_a(arg, m, 0)), ue8m0_term(scale_b(arg, n, 0))), d[i], 25);
        }
    }
}

/* Corrupts a lane's results, to emulate broken hardware. */
template <class T> static void spoil(int what, T *d)
{
    if (options.spoil & what) d[self->lin % 4] += 4096;
}

static void issue(warp_fn fn, void *d, const uint32_t *a, const uint32_t *b, const char *file, int line)
{
    mma_arg x = {d, a, b, {0, 0, 0, 0, 0, 0}, mx::e4m3, mx::e4m3};
    warp_op(~0u, fn, &x, file, line);
}

void mma_bf16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line)
{
    issue(do_mma_16<8, 7>, d, a, b, file, line);
    spoil(SPOIL_MMA16, d);
}
void mma_f16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line)
{
    issue(do_mma_16<5, 10>, d, a, b, file, line);
    spoil(SPOIL_MMA16, d);
}
void mma_tf32(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line)
{
    issue(do_mma_tf32, d, a, b, file, line);
    spoil(SPOIL_MMA16, d);
}
void mma_s8_k32(int32_t *d, const uint32_t *a, const uint32_t *b, const char *file, int line)
{
    issue(do_mma_s8<32>, d, a, b, file, line);
    spoil(SPOIL_S8, d);
}
void mma_s8_k16(int32_t *d, const uint32_t *a, const uint32_t *b, const char *file, int line)
{
    issue(do_mma_s8<16>, d, a, b, file, line);
    spoil(SPOIL_S8, d);
}
void mma_mxf4nvf4(float *d, const uint32_t *a, const uint32_t *b, const scales &s, const char *file, int line)
{
    mma_arg x = {d, a, b, s, mx::e2m1, mx::e2m1};
    warp_op(~0u, do_mma_fp4<true>, &x, file, line);
    spoil(SPOIL_FP4, d);
}
void mma_mxf4(float *d, const uint32_t *a, const uint32_t *b, const scales &s, const char *file, int line)
{
    mma_arg x = {d, a, b, s, mx::e2m1, mx::e2m1};
    warp_op(~0u, do_mma_fp4<false>, &x, file, line);
    spoil(SPOIL_FP4, d);
}
void mma_mxf8f6f4(float *d, const uint32_t *a, const uint32_t *b, mx type_a, mx type_b, const scales &s,
                  const char *file, int line)
{
    mma_arg x = {d, a, b, s, type_a, type_b};
    warp_op(~0u, do_mma_mx8, &x, file, line);
    spoil(SPOIL_FP4, d);
}

/* ------------------------------------------------------------------------------------------------ pairs of 16 bits */

/* p + q for an exact product p, rounded to odd: a loss in the sum or in the float conversion sets the float's last
 * bit. The next rounding is then the only one that counts. */
static inline float odd_sum(double p, double q)
{
    const double s = p + q;
    float f = (float) s;
    if (!std::isfinite(f)) return f;
    const double back = s - p, lost = (p - (s - back)) + (q - back);
    if ((double) f != s || lost != 0) {
        const double over = (double) f != s ? (double) f - s : -lost; /* amount by which f is too large */
        uint32_t u = __float_as_uint(f);
        if (f != 0 && (over > 0) == (f > 0)) u--;
        f = __uint_as_float(u | 1);
    }
    return f;
}
template <float FROM(uint16_t), uint16_t TO(float)> static uint32_t fma_16(uint32_t a, uint32_t b, uint32_t c)
{
    return TO(odd_sum((double) FROM((uint16_t) a) * FROM((uint16_t) b), FROM((uint16_t) c)));
}

template <float FROM(uint16_t), uint16_t TO(float)> static uint32_t fma_both(uint32_t a, uint32_t b, uint32_t c)
{
    return fma_16<FROM, TO>(a, b, c) | fma_16<FROM, TO>(a >> 16, b >> 16, c >> 16) << 16;
}
#if defined __x86_64__
/* fma_both for F16 by the processor's conversion instructions. */
__attribute__((target("f16c"))) static uint32_t fma_both_f16c(uint32_t a, uint32_t b, uint32_t c)
{
    float x[4], y[4], z[4];
    _mm_storeu_ps(x, _mm_cvtph_ps(_mm_cvtsi32_si128((int32_t) a)));
    _mm_storeu_ps(y, _mm_cvtph_ps(_mm_cvtsi32_si128((int32_t) b)));
    _mm_storeu_ps(z, _mm_cvtph_ps(_mm_cvtsi32_si128((int32_t) c)));
    const float s0 = odd_sum((double) x[0] * y[0], z[0]), s1 = odd_sum((double) x[1] * y[1], z[1]);
    const auto both = (uint32_t) _mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ps(0, 0, s1, s0), _MM_FROUND_TO_NEAREST_INT));
    return (s0 != s0 ? 0x7fff : both & 0xffff) | (s1 != s1 ? 0x7fff0000 : both & 0xffff0000);
}
#endif
uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c)
{
#if defined __x86_64__
    static const bool f16c = __builtin_cpu_supports("f16c");
    if (f16c) return fma_both_f16c(a, b, c);
#endif
    return fma_both<from_half, to_half>(a, b, c);
}
uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) { return fma_both<from_bf16, to_bf16>(a, b, c); }

/* ----------------------------------------------------------------------------------------------------- conversions */

/* The nearest of the codes 0 .. last by value, ties to the even code. Values above the largest one saturate. */
static uint8_t nearest(float f, uint8_t last, mx type)
{
    float a = std::fabs(f);
    uint8_t code = 0;
    auto value = [type](uint8_t c) {
        term t = mx_term(type == mx::e2m1 ? (uint8_t) (c << 2) : c, type);
        return std::ldexp((float) t.m, t.q);
    };
    while (code < last && a > value((uint8_t) (code + 1))) code++;
    if (code == last) return code;
    float below = a - value(code), above = value((uint8_t) (code + 1)) - a;
    return (uint8_t) (above < below || (above == below && code % 2) ? code + 1 : code);
}

uint8_t to_e4m3(float f)
{
    uint8_t sign = __float_as_uint(f) >> 31 ? 0x80 : 0;
    return f != f ? 0x7f : (uint8_t) (sign | nearest(f, 0x7e, mx::e4m3));
}
uint8_t to_e2m1(float f)
{
    uint8_t sign = __float_as_uint(f) >> 31 ? 8 : 0;
    return f != f ? 7 : (uint8_t) (sign | nearest(f, 7, mx::e2m1));
}

} // namespace simt
