/* Matrix kernels in plain C, for processors without any instruction set that has its own file. vf_fma rounds the
 * product and the sum separately, because without hardware support fmaf() is a slow function call. */
#include "backend/cpu/linear.h"

#include <string.h>

#define PI__ISA_NAME "generic"
#define PI__ISA_COLS 4
#define PI__ISA_DIRECT 0
#define PI__ISA_BIAS 0 /* codes are signed bytes */
#define PI__ISA_SIGNED(digits) 1
#define PI__ISA_FUNC pi__lin_kernels_generic
#define PI__ISA_PLAIN
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OP static __attribute__((noinline)) /* with inlined sanitizer checks this file takes minutes to compile */
#else
#define OP static inline
#endif
#define EACH(n) for (int i = 0; i < n; i++)

typedef struct vb { uint8_t v[64]; } vb;
typedef struct vi { int32_t v[16]; } vi;
typedef struct vf { float v[16]; } vf;

OP vb vb_load(const void *p) { vb r; memcpy(&r, p, sizeof r); return r; }
OP void vb_store(void *p, vb v) { memcpy(p, &v, sizeof v); }
OP vb vb_set(uint8_t v) { vb r; memset(&r, v, sizeof r); return r; }
OP vb vb_and(vb a, vb b) { EACH(64) a.v[i] &= b.v[i]; return a; }
OP vb vb_or(vb a, vb b) { EACH(64) a.v[i] |= b.v[i]; return a; }
OP vb vb_xor(vb a, vb b) { EACH(64) a.v[i] ^= b.v[i]; return a; }
OP vb vb_add(vb a, vb b) { EACH(64) a.v[i] = (uint8_t) (a.v[i] + b.v[i]); return a; }
OP vb vb_shr(vb v, int n) { EACH(64) v.v[i] = (uint8_t) (v.v[i] >> n); return v; }
OP vb vb_shl(vb v, int n) { EACH(64) v.v[i] = (uint8_t) (v.v[i] << n); return v; }
OP vb vb_table(const uint8_t t[16]) { vb r; EACH(64) r.v[i] = t[i & 15]; return r; }
OP vb vb_lut(vb t, vb x) { EACH(64) x.v[i] = t.v[x.v[i] & 15]; return x; }

OP vi vi_set(int32_t v) { vi r; EACH(16) r.v[i] = v; return r; }
OP vi vi_dup(const int32_t *p) { return vi_set(*p); }
OP vi vi_load(const void *p) { vi r; memcpy(&r, p, sizeof r); return r; }
OP vi vi_from_u8(const uint8_t *p) { vi r; EACH(16) r.v[i] = p[i]; return r; }
OP vi vi_from_s8(const uint8_t *p) { vi r; EACH(16) r.v[i] = (int8_t) p[i]; return r; }
OP vi vi_from_u16(const uint8_t *p) { uint16_t h[16]; vi r; memcpy(h, p, 32); EACH(16) r.v[i] = h[i]; return r; }
OP vi vi_and(vi a, int32_t b) { EACH(16) a.v[i] &= b; return a; }
OP vi vi_or(vi a, vi b) { EACH(16) a.v[i] |= b.v[i]; return a; }
OP vi vi_add(vi a, vi b) { EACH(16) a.v[i] += b.v[i]; return a; }
OP vi vi_sub(vi a, vi b) { EACH(16) a.v[i] -= b.v[i]; return a; }
OP vi vi_max(vi a, vi b) { EACH(16) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
OP vi vi_shl(vi v, int n) { EACH(16) v.v[i] = (int32_t) ((uint32_t) v.v[i] << n); return v; }
OP vi vi_shr(vi v, int n) { EACH(16) v.v[i] = (int32_t) ((uint32_t) v.v[i] >> n); return v; }
OP vi vi_sar(vi v, int n) { EACH(16) v.v[i] >>= n; return v; }
OP vi vi_and_ne(vi v, vi a, int32_t b) { EACH(16) v.v[i] = a.v[i] == b ? 0 : v.v[i]; return v; }
OP vi vi_dot_canonical(vi t, vb w, const int8_t *x)
{
    EACH(16) t.v[i] += (int8_t) w.v[4 * i] * x[0] + (int8_t) w.v[4 * i + 1] * x[1] + (int8_t) w.v[4 * i + 2] * x[2] +
                       (int8_t) w.v[4 * i + 3] * x[3];
    return t;
}
OP vi vi_dot_small(vi t, vb w, const int8_t *x) { return vi_dot_canonical(t, w, x); }
OP int32_t vi_hmax(vi v) { int32_t m = v.v[0]; EACH(16) m = v.v[i] > m ? v.v[i] : m; return m; }
/* Stores the 32 codes in a and b as bytes at p; sum[0], sum[1] = sums of the codes of a and of b. */
OP void vi_store_codes(int8_t *p, vi a, vi b, int32_t sum[2])
{
    sum[0] = sum[1] = 0;
    EACH(16) p[i] = (int8_t) a.v[i], sum[0] += a.v[i];
    EACH(16) p[i + 16] = (int8_t) b.v[i], sum[1] += b.v[i];
}

OP vf vf_set(float v) { vf r; EACH(16) r.v[i] = v; return r; }
OP vf vf_zero(void) { return vf_set(0.0f); }
OP vf vf_dup(const float *p) { return vf_set(*p); }
OP vf vf_load(const void *p) { vf r; memcpy(&r, p, sizeof r); return r; }
OP void vf_store(void *p, vf v) { memcpy(p, &v, sizeof v); }
OP void vf_store_n(float *p, vf v, int n) { memcpy(p, &v, (size_t) n * sizeof *p); }
OP vf vf_half(const void *p)
{
    uint16_t h[16];
    vf r;
    memcpy(h, p, 32);
    EACH(16) r.v[i] = pi__f16_to_f32(h[i]);
    return r;
}
OP vf vf_bf16(const void *p)
{
    uint16_t h[16];
    vf r;
    memcpy(h, p, 32);
    EACH(16) r.v[i] = pi__bf16_to_f32(h[i]);
    return r;
}
OP vf vf_from_vi(vi v) { vf r; EACH(16) r.v[i] = (float) v.v[i]; return r; }
OP vf vf_bits(vi v) { vf r; memcpy(&r, &v, sizeof r); return r; }
OP vi vi_bits(vf v) { vi r; memcpy(&r, &v, sizeof r); return r; }
/* Rounds to nearest even; for magnitudes below 2^22. */
OP vi vi_round(vf v)
{
    EACH(16) v.v[i] += 0x1.8p23f;
    return vi_sub(vi_bits(v), vi_bits(vf_set(0x1.8p23f)));
}
OP vf vf_add(vf a, vf b) { EACH(16) a.v[i] += b.v[i]; return a; }
OP vf vf_sub(vf a, vf b) { EACH(16) a.v[i] -= b.v[i]; return a; }
OP vf vf_mul(vf a, vf b) { EACH(16) a.v[i] *= b.v[i]; return a; }
OP vf vf_div(vf a, vf b) { EACH(16) a.v[i] /= b.v[i]; return a; }
OP vf vf_fma(vf a, vf b, vf c) { EACH(16) a.v[i] = a.v[i] * b.v[i] + c.v[i]; return a; }
/* vf_min, vf_max: return b if a or b is NaN */
OP vf vf_min(vf a, vf b) { EACH(16) a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i]; return a; }
OP vf vf_max(vf a, vf b) { EACH(16) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }

#include "backend/cpu/linear_kernel.inc.h"
