/* The attention kernels, written once: included by one file an instruction set, which defines before
 *
 *     vf                      vectors, by one of vec_ISA.h
 *     PI__ROWS_MAX            rows the register file holds in pv()
 *     PI__QK_TILES(R)         key tiles that qk() does at once with R rows
 *     PI__PV_VECS             vf that pv() does at once, 1 or 2
 *     PI__KERNELS             name of the table defined here
 *
 * No memory and no state; any thread. The order of operations on a row is that of attention.h; on one instruction set
 * every kernel of this file gives the same bits for a row whatever the number of rows or tiles it does at once. */
#include <string.h>

#include "backend/cpu/attention.h"

enum { KV_F32, KV_F16, KV_BF16, KV_Q8_0, KV_Q4_0, N_KV_TYPES };

static int kv_index(int32_t type)
{
    switch (type) {
    case PI__F32: return KV_F32;
    case PI__F16: return KV_F16;
    case PI__BF16: return KV_BF16;
    case PI__Q8_0: return KV_Q8_0;
    default: return KV_Q4_0;
    }
}

/* Bytes of 32 dims x 16 keys. */
PI__INLINE size_t block_bytes(int t)
{
    return t == KV_F32 ? 2048 : t == KV_Q8_0 ? 544 : t == KV_Q4_0 ? 288 : 1024;
}

/* -------------------------------------------------------------------------------------------------- reading the cache */

/* Keys: dim i (0..31) of a block of 32 dims, all 16 keys. scale: of the block's keys. */
PI__INLINE vf load_k(int t, const char *block, int i, vf scale)
{
    switch (t) {
    case KV_F32: return vf_load((const float *) block + i * 16);
    case KV_F16: return vf_load_f16((const uint16_t *) block + i * 16);
    case KV_BF16: return vf_load_bf16((const uint16_t *) block + i * 16);
    case KV_Q8_0: return vf_mul(vf_load_i8((const int8_t *) block + 32 + i * 16), scale);
    default: return vf_mul(vf_load_u4((const uint8_t *) block + 32 + i % 16 * 16, i >= 16), scale);
    }
}

/* Values: dims half * 16 .. + 15 of a block of 32 dims, key j. scale: of each of the block's 16 keys. */
PI__INLINE vf load_v(int t, const char *block, int j, int half, const float *scale)
{
    switch (t) {
    case KV_F32: return vf_load((const float *) block + j * 32 + half * 16);
    case KV_F16: return vf_load_f16((const uint16_t *) block + j * 32 + half * 16);
    case KV_BF16: return vf_load_bf16((const uint16_t *) block + j * 32 + half * 16);
    case KV_Q8_0: return vf_mul(vf_load_i8((const int8_t *) block + 32 + j * 32 + half * 16), vf_set1(scale[j]));
    default: return vf_mul(vf_load_u4((const uint8_t *) block + 32 + j * 16, half), vf_set1(scale[j]));
    }
}

PI__INLINE bool has_scale(int t) { return t == KV_Q8_0 || t == KV_Q4_0; }

/* ------------------------------------------------------------------------------------------------------------- scores */

/* s[r * S_STRIDE + 16 * n + lane] = q row r . key lane of tile n, for R rows and N tiles. */
PI__INLINE void qk(int t, int R, int N, const float *qt, int32_t head_dim, const char *const *tile, float *s)
{
    vf acc[PI__ATTN_MAX_ROWS * 4];
    const char *b[4];
    PI__UNROLL for (int i = 0; i < R * N; i++) acc[i] = vf_zero();
    PI__UNROLL for (int n = 0; n < N; n++) b[n] = tile[n];
    for (int32_t d = 0; d < head_dim; d += 32) {
        vf scale[4];
        PI__UNROLL for (int n = 0; n < N; n++) scale[n] = has_scale(t) ? vf_load_f16((const uint16_t *) b[n]) : vf_zero();
        for (int i = 0; i < 32; i++) {
            vf k[4];
            PI__UNROLL for (int n = 0; n < N; n++) k[n] = load_k(t, b[n], i, scale[n]);
            PI__UNROLL for (int r = 0; r < R; r++) {
                vf q = vf_set1(qt[r]);
                PI__UNROLL for (int n = 0; n < N; n++) acc[r * N + n] = vf_fma(q, k[n], acc[r * N + n]);
            }
            qt += R;
        }
        PI__UNROLL for (int n = 0; n < N; n++) b[n] += block_bytes(t);
    }
    PI__UNROLL for (int r = 0; r < R; r++) {
        PI__UNROLL for (int n = 0; n < N; n++) vf_store(s + r * PI__ATTN_S_STRIDE + n * 16, acc[r * N + n]);
    }
}

/* ------------------------------------------------------------------------------------------------------------- values */

/* Which keys of the part the rows see, as distances from its start; [lo, hi] of a row that sees none is empty. */
typedef struct span {
    int32_t lo[PI__ATTN_MAX_ROWS], hi[PI__ATTN_MAX_ROWS]; /* of each row */
    int32_t any_lo, any_hi;                               /* the first and last key that some row sees */
    int32_t all_lo, all_hi;                               /* the keys that all rows see */
} span;

/* acc[r][d0 .. d0 + 16 * V) = sum of p[r][key] * value[key], over the keys that row r sees. A key that it does not see
 * is not touched, as its value may be anything, NaN included. */
PI__INLINE void pv_dims(int t, int R, int V, const span *sp, const float *p, const char *const *tile, int32_t head_dim,
                        int32_t d0, float *out)
{
    vf acc[PI__ATTN_MAX_ROWS * 2];
    PI__UNROLL for (int i = 0; i < R * V; i++) acc[i] = vf_zero();
    for (int32_t n = sp->any_lo / 16; n <= sp->any_hi / 16; n++) {
        const char *block = tile[n] + (size_t) (d0 / 32) * block_bytes(t);
        float scale[16] = {0};
        if (has_scale(t)) vf_store(scale, vf_load_f16((const uint16_t *) block));
        int32_t first = n * 16 > sp->any_lo ? n * 16 : sp->any_lo;
        int32_t last = n * 16 + 15 < sp->any_hi ? n * 16 + 15 : sp->any_hi;
        for (int32_t key = first; key <= last; key++) {
            const float *pk = p + key;
            vf v[2];
            PI__UNROLL for (int i = 0; i < V; i++) v[i] = load_v(t, block, key & 15, (d0 / 16 + i) & 1, scale);
            if (key >= sp->all_lo && key <= sp->all_hi) {
                PI__UNROLL for (int r = 0; r < R; r++) {
                    vf w = vf_set1(pk[r * PI__ATTN_S_STRIDE]);
                    PI__UNROLL for (int i = 0; i < V; i++) acc[r * V + i] = vf_fma(w, v[i], acc[r * V + i]);
                }
            } else {
                PI__UNROLL for (int r = 0; r < R; r++) {
                    if (key < sp->lo[r] || key > sp->hi[r]) continue;
                    vf w = vf_set1(pk[r * PI__ATTN_S_STRIDE]);
                    PI__UNROLL for (int i = 0; i < V; i++) acc[r * V + i] = vf_fma(w, v[i], acc[r * V + i]);
                }
            }
        }
    }
    PI__UNROLL for (int r = 0; r < R; r++) {
        PI__UNROLL for (int i = 0; i < V; i++) vf_store(out + (size_t) r * head_dim + d0 + i * 16, acc[r * V + i]);
    }
}

PI__INLINE void pv(int t, int R, const span *sp, const float *p, const char *const *tile, int32_t head_dim, float *out)
{
    for (int32_t d = 0; d < head_dim; d += 16 * PI__PV_VECS) pv_dims(t, R, PI__PV_VECS, sp, p, tile, head_dim, d, out);
}

/* ------------------------------------------------------------------- the two above, for each type and number of rows */

typedef void (*qk_fn)(const float *qt, int32_t head_dim, const char *const *tile, float *s);
typedef void (*pv_fn)(const span *sp, const float *p, const char *const *tile, int32_t head_dim, float *out);

#define PI__FN(T, R)                                                                                                   \
    static void qk1_##T##_##R(const float *qt, int32_t head_dim, const char *const *tile, float *s)                    \
    {                                                                                                                  \
        qk(T, R, 1, qt, head_dim, tile, s);                                                                            \
    }                                                                                                                  \
    static void qkn_##T##_##R(const float *qt, int32_t head_dim, const char *const *tile, float *s)                    \
    {                                                                                                                  \
        qk(T, R, PI__QK_TILES(R), qt, head_dim, tile, s);                                                              \
    }                                                                                                                  \
    static void pv_##T##_##R(const span *sp, const float *p, const char *const *tile, int32_t head_dim, float *out)    \
    {                                                                                                                  \
        pv(T, R, sp, p, tile, head_dim, out);                                                                          \
    }

#if PI__ROWS_MAX == 12
#define PI__EACH_R(X, T) X(T, 1) X(T, 2) X(T, 4) X(T, 6) X(T, 8) X(T, 12)
#elif PI__ROWS_MAX == 6
#define PI__EACH_R(X, T) X(T, 1) X(T, 2) X(T, 4) X(T, 6)
#else
#define PI__EACH_R(X, T) X(T, 1) X(T, 2) X(T, 4)
#endif
#define PI__EACH_T(X) PI__EACH_R(X, KV_F32) PI__EACH_R(X, KV_F16) PI__EACH_R(X, KV_BF16) PI__EACH_R(X, KV_Q8_0) \
    PI__EACH_R(X, KV_Q4_0)
PI__EACH_T(PI__FN)

/* By type and rows. */
#define PI__QK1(T, R) [T][R] = qk1_##T##_##R,
#define PI__QKN(T, R) [T][R] = qkn_##T##_##R,
#define PI__PV(T, R) [T][R] = pv_##T##_##R,
static const qk_fn qk1_table[N_KV_TYPES][PI__ROWS_MAX + 1] = {PI__EACH_T(PI__QK1)};
static const qk_fn qkn_table[N_KV_TYPES][PI__ROWS_MAX + 1] = {PI__EACH_T(PI__QKN)};
static const pv_fn pv_table[N_KV_TYPES][PI__ROWS_MAX + 1] = {PI__EACH_T(PI__PV)};

static int32_t round_rows(int32_t n)
{
    while (!pv_table[KV_F32][n]) n++;
    return n;
}

/* -------------------------------------------------------------------------------------------------- one part of keys */

static void pack(const pi__attn_rows *w, float *qt)
{
    for (int32_t r = 0; r < w->n_padded; r++) {
        const float *q = w->q[r < w->n ? r : w->n - 1];
        for (int32_t d = 0; d < w->head_dim; d++) qt[d * w->n_padded + r] = q[d];
    }
}

static void set_span(const pi__attn_rows *w, int32_t base, span *sp)
{
    sp->any_lo = sp->all_lo = 0;
    sp->any_hi = sp->all_hi = PI__ATTN_PART - 1;
    for (int32_t r = 0; r < w->n_padded; r++) {
        int32_t i = r < w->n ? r : w->n - 1;
        int32_t lo = w->lo[i] > base ? w->lo[i] - base : 0;
        int32_t hi = w->hi[i] - base < PI__ATTN_PART - 1 ? w->hi[i] - base : PI__ATTN_PART - 1;
        sp->lo[r] = lo;
        sp->hi[r] = hi;
        if (lo > sp->all_lo) sp->all_lo = lo;
        if (hi < sp->all_hi) sp->all_hi = hi;
        if (r == 0 || lo < sp->any_lo) sp->any_lo = lo;
        if (r == 0 || hi > sp->any_hi) sp->any_hi = hi;
    }
}

/* Scores s of keys lo..hi become e^(s - max): their maximum to m, their sum to l. */
static void softmax(float *s, int32_t lo, int32_t hi, float cap, float *m, float *l)
{
    vf lowest = vf_set1(-INFINITY), top = lowest, sum = vf_zero();
    for (int32_t n = lo / 16; n <= hi / 16; n++) {
        vf x = vf_load(s + n * 16);
        if (cap != 0) x = vf_mul(vf_tanh(vf_div(x, vf_set1(cap))), vf_set1(cap));
        if (n * 16 < lo || n * 16 + 15 > hi) x = vf_keep(x, lo - n * 16, hi - n * 16, lowest);
        vf_store(s + n * 16, x);
        top = vf_max(top, x);
    }
    *m = vf_hmax(top);
    top = vf_set1(*m);
    for (int32_t n = lo / 16; n <= hi / 16; n++) {
        vf e = vf_exp(vf_sub(vf_load(s + n * 16), top));
        vf_store(s + n * 16, e);
        sum = vf_add(sum, e);
    }
    *l = vf_hsum(sum);
}

static void part(const pi__attn_rows *w, const float *qt, int32_t ipart, const char *const *k, const char *const *v,
                 float *s, pi__attn_sum *out)
{
    span sp;
    set_span(w, ipart * PI__ATTN_PART, &sp);
    int32_t n = sp.any_lo / 16, end = sp.any_hi / 16 + 1;
    int tk = kv_index(w->type_k), tv = kv_index(w->type_v);
    int32_t step = PI__QK_TILES(w->n_padded);
    for (; n + step <= end; n += step) qkn_table[tk][w->n_padded](qt, w->head_dim, k + n, s + n * 16);
    for (; n < end; n++) qk1_table[tk][w->n_padded](qt, w->head_dim, k + n, s + n * 16);
    for (int32_t r = 0; r < w->n; r++) {
        if (sp.lo[r] > sp.hi[r]) continue;
        softmax(s + r * PI__ATTN_S_STRIDE, sp.lo[r], sp.hi[r], w->softcap, &out->m[r], &out->l[r]);
    }
    pv_table[tv][w->n_padded](&sp, s, v, w->head_dim, out->acc);
}

static void fold(const pi__attn_rows *w, int32_t ipart, pi__attn_sum *run, const pi__attn_sum *sum)
{
    for (int32_t r = 0; r < w->n; r++) {
        int32_t first = w->lo[r] / PI__ATTN_PART, last = w->hi[r] / PI__ATTN_PART;
        if (ipart < first || ipart > last) continue;
        float *restrict acc = run->acc + (size_t) r * w->head_dim;
        const float *restrict add = sum->acc + (size_t) r * w->head_dim;
        if (ipart == first) {
            run->m[r] = sum->m[r];
            run->l[r] = sum->l[r];
            memcpy(acc, add, (size_t) w->head_dim * sizeof(float));
            continue;
        }
        float m = sum->m[r] > run->m[r] ? sum->m[r] : run->m[r];
        float a = exp1(run->m[r] - m), b = exp1(sum->m[r] - m);
        run->m[r] = m;
        run->l[r] = run->l[r] * a + sum->l[r] * b;
        for (int32_t d = 0; d < w->head_dim; d++) acc[d] = acc[d] * a + add[d] * b;
    }
}

static void finish(const pi__attn_rows *w, const pi__attn_sum *run)
{
    for (int32_t r = 0; r < w->n; r++) {
        float l = run->l[r], scale = 1;
        if (w->has_sinks) {
            float m = w->sink[r] > run->m[r] ? w->sink[r] : run->m[r];
            scale = exp1(run->m[r] - m);
            l = l * scale + exp1(w->sink[r] - m);
        }
        scale /= l;
        const float *restrict acc = run->acc + (size_t) r * w->head_dim;
        float *restrict out = w->out[r];
        for (int32_t d = 0; d < w->head_dim; d++) out[d] = acc[d] * scale;
        if (!w->gate[r]) continue;
        for (int32_t d = 0; d < w->head_dim; d += 16) {
            vf_store(out + d, vf_mul(vf_load(out + d), vf_sigmoid(vf_load(w->gate[r] + d))));
        }
    }
}

/* ------------------------------------------------------------------------------------------------- into the cache */

static void rotate(const pi__head_prep *p, float *x)
{
    int32_t half = p->n_rot / 2;
    const float *restrict c = p->rope, *restrict s = p->rope + half;
    float *restrict lo = x, *restrict hi = x + p->pair_stride;
    for (int32_t i = 0; i < half; i++) {
        float a = lo[i], b = hi[i];
        lo[i] = a * c[i] - b * s[i];
        hi[i] = a * s[i] + b * c[i];
    }
}

static void prep(const pi__head_prep *p, const float *src, float *dst)
{
    int32_t n = p->head_dim;
    float f = p->norm ? rms_factor(src, n, p->eps) : 1.0f;
    const float *w = p->norm ? p->w : NULL;
    for (int32_t i = 0; i < n; i += 16) {
        vf x = vf_load(src + i);
        if (p->norm) x = vf_mul(x, vf_set1(f));
        if (w) x = vf_mul(x, vf_load(w + i));
        vf_store(dst + i, x);
    }
    if (p->rope) rotate(p, dst);
    if (p->scale != 1.0f) {
        for (int32_t i = 0; i < n; i++) dst[i] *= p->scale;
    }
}

/* n values (a multiple of 16) as halves of either kind, rounded to nearest even. */
static void to_16(int t, const float *x, uint16_t *h, int32_t n)
{
    if (t == KV_F16) {
        for (int32_t i = 0; i < n; i += 16) vf_store_f16(h + i, vf_load(x + i));
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        uint32_t nan = (u & 0x7fffffff) > 0x7f800000 ? 0x40 : 0, round = nan ? 0 : 0x7fff + (u >> 16 & 1);
        h[i] = (uint16_t) ((u + round) >> 16 | nan);
    }
}

/* 32 values as a block of Q8_0 or Q4_0: the half of the scale, then 32 or 16 bytes. The largest magnitude decides the
 * scale; searching for a better one, as is done for files, would cost more than attention itself. NaN becomes 0, values
 * outside the range of a half are cut. */
static void to_block(int t, const float *src, uint8_t *block)
{
    float clean[32];
    vf a = vf_load(src), b = vf_load(src + 16), limit = vf_set1(65504.0f);
    float over = vf_hmax(vf_add(vf_select_lt(vf_abs(a), limit, vf_zero(), vf_set1(1)),
                                vf_select_lt(vf_abs(b), limit, vf_zero(), vf_set1(1))));
    if (over != 0) { /* NaN is not less than anything */
        for (int i = 0; i < 32; i++) {
            float x = src[i];
            clean[i] = x != x ? 0.0f : x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
        }
        a = vf_load(clean);
        b = vf_load(clean + 16);
    }
    float top = vf_hmax(vf_max(a, b)), bottom = -vf_hmax(vf_max(vf_sub(vf_zero(), a), vf_sub(vf_zero(), b)));
    float largest = top >= -bottom ? top : bottom;
    float d = t == KV_Q8_0 ? fabsf(largest) / 127 : largest / -8;
    uint16_t half = pi__f32_to_f16(d);
    d = pi__f16_to_f32(half); /* codes for the scale as it is stored */
    vf inv = vf_set1(fabsf(d) > 0 ? 1 / d : 0.0f);
    memcpy(block, &half, 2);
    int8_t code[32];
    if (t == KV_Q8_0) {
        vf lo = vf_set1(-127), hi = vf_set1(127);
        vf_store_i8((int8_t *) block + 2, vf_min(vf_max(vf_mul(a, inv), lo), hi));
        vf_store_i8((int8_t *) block + 18, vf_min(vf_max(vf_mul(b, inv), lo), hi));
    } else {
        vf lo = vf_set1(-8), hi = vf_set1(7);
        vf_store_i8(code, vf_min(vf_max(vf_mul(a, inv), lo), hi));
        vf_store_i8(code + 16, vf_min(vf_max(vf_mul(b, inv), lo), hi));
        for (int i = 0; i < 16; i++) block[2 + i] = (uint8_t) ((code[i] + 8) | (code[i + 16] + 8) << 4);
    }
}

static void store_k(int32_t type, char *tile, int32_t lane, int32_t head_dim, const float *x)
{
    int t = kv_index(type);
    if (t == KV_F32) {
        for (int32_t d = 0; d < head_dim; d++) ((float *) tile)[d * 16 + lane] = x[d];
    } else if (t == KV_F16 || t == KV_BF16) {
        uint16_t h[PI__MAX_HEAD_DIM];
        to_16(t, x, h, head_dim);
        for (int32_t d = 0; d < head_dim; d++) ((uint16_t *) tile)[d * 16 + lane] = h[d];
    } else {
        int n = t == KV_Q8_0 ? 32 : 16; /* bytes of 32 values; a half before them is the scale */
        for (int32_t d = 0; d < head_dim; d += 32, tile += block_bytes(t)) {
            uint8_t b[34];
            to_block(t, x + d, b);
            memcpy(tile + lane * 2, b, 2);
            for (int i = 0; i < n; i++) tile[32 + i * 16 + lane] = (char) b[2 + i];
        }
    }
}

static void store_v(int32_t type, char *tile, int32_t lane, int32_t head_dim, const float *x)
{
    int t = kv_index(type);
    size_t size = block_bytes(t);
    if (t == KV_F32) {
        for (int32_t d = 0; d < head_dim; d += 32, tile += size) memcpy(tile + lane * 128, x + d, 128);
    } else if (t == KV_F16 || t == KV_BF16) {
        for (int32_t d = 0; d < head_dim; d += 32, tile += size) to_16(t, x + d, (uint16_t *) tile + lane * 32, 32);
    } else {
        int n = t == KV_Q8_0 ? 32 : 16;
        for (int32_t d = 0; d < head_dim; d += 32, tile += size) {
            uint8_t b[34];
            to_block(t, x + d, b);
            memcpy(tile + lane * 2, b, 2);
            memcpy(tile + 32 + lane * n, b + 2, (size_t) n);
        }
    }
}

static void store_row(int32_t type, char *dst, int32_t n, const float *x)
{
    int t = kv_index(type);
    if (t == KV_F32) memcpy(dst, x, (size_t) n * sizeof *x);
    else if (t == KV_F16 || t == KV_BF16) to_16(t, x, (uint16_t *) dst, n);
    else for (int32_t d = 0; d < n; d += 32, dst += t == KV_Q8_0 ? 34 : 18) to_block(t, x + d, (uint8_t *) dst);
}

static void load_row(int32_t type, const char *src, int32_t n, float *x)
{
    int t = kv_index(type);
    if (t == KV_F32) memcpy(x, src, (size_t) n * sizeof *x);
    else if (t == KV_F16) for (int32_t d = 0; d < n; d += 16) vf_store(x + d, vf_load_f16((const uint16_t *) src + d));
    else if (t == KV_BF16) for (int32_t d = 0; d < n; d += 16) vf_store(x + d, vf_load_bf16((const uint16_t *) src + d));
    else for (int32_t d = 0; d < n; d += 32, src += t == KV_Q8_0 ? 34 : 18) {
        uint16_t half;
        memcpy(&half, src, 2);
        const vf scale = vf_set1(pi__f16_to_f32(half));
        for (int i = 0; i < 2; i++) {
            vf code = t == KV_Q8_0 ? vf_load_i8((const int8_t *) src + 2 + 16 * i) : vf_load_u4((const uint8_t *) src + 2, i);
            vf_store(x + d + 16 * i, vf_mul(code, scale));
        }
    }
}

/* ---------------------------------------------------------------------------------------------------- rows of floats */

static void add_norm(float *x, const float *y, const float *w, float eps, float scale, int64_t n)
{
    float f = w ? rms_factor(y, n, eps) : 1.0f;
    for (int64_t i = 0; i < n; i++) x[i] = (x[i] + (w ? y[i] * f * w[i] : y[i])) * scale;
}

static void softcap(float *x, float cap, size_t n)
{
    vf c = vf_set1(cap);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) vf_store(x + i, vf_mul(vf_tanh(vf_div(vf_load(x + i), c)), c));
    if (i == n) return;
    float t[16];
    vf_store(t, vf_mul(vf_tanh(vf_div(vf_load_tail(x + i, (int) (n - i), 0), c)), c));
    memcpy(x + i, t, (n - i) * sizeof(float));
}

const pi__cpu_attn_kernels PI__KERNELS = {
    PI__ROWS_MAX, round_rows, pack, part, fold, finish, prep, store_k, store_v, store_row, load_row, add_norm,
    softcap,
};
