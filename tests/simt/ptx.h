/* Declarations of the instructions that kernels/ptx.cuh wraps, for the host compiler. ptx.cpp moves data; mma.cpp and
 * wgmma.cpp compute.
 *
 * Fragments have the layouts of the PTX manual; scale selectors are {byte, thread} as in the block-scaled forms. */
#ifndef SIMT_PTX_H
#define SIMT_PTX_H

#include "simt.h"

namespace simt {

/* cp.async of `size` bytes (4, 8 or 16) to shared address dst: n bytes from src, then zeros. */
void cp_async(uint32_t dst, const void *src, unsigned size, unsigned n, const char *file, int line);
void cp_async_commit();
/* Waits until at most n groups of this thread are pending. */
void cp_async_wait(unsigned n, const char *file, int line);

/* mbarriers: a phase ends after `count` arrivals and all expected bytes. The mbarrier word in memory is opaque. */
void mbarrier_init(uint32_t at, unsigned count, const char *file, int line);
/* Makes this thread's mbarrier inits visible to bulk copies, and its writes to shared memory visible to wgmma. */
void fence_async();
void mbarrier_arrive_expect(uint32_t at, unsigned bytes, const char *file, int line);
/* Waits until the phase of that parity has ended. A thread that waits for a barrier must wait for each of its phases:
 * skipping a phase is an error. */
void mbarrier_wait(uint32_t at, unsigned parity, const char *file, int line);
/* cp.async.bulk from global to shared memory. */
void bulk_copy(uint32_t dst, const void *src, unsigned size, uint32_t mbarrier, const char *file, int line);

/* ldmatrix of n (1, 2, 4) 8x8 matrices of 16-bit values. */
void ldmatrix(uint32_t *r, int n, bool trans, uint32_t address, const char *file, int line);
/* ldmatrix m8n16 b8x16.b4x16_p64: rows of 16 codes of 4 bits (8 bytes, 8 of padding), each code widened to a byte. */
void ldmatrix_b4(uint32_t *r, int n, uint32_t address, const char *file, int line);

/* D = A B + D. d: 4 values, a: 4 words (s8 k16: 2), b: 2 words (s8 k16: 1). */
void mma_bf16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line);
void mma_f16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line);
void mma_tf32(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line);
void mma_s8_k32(int32_t *d, const uint32_t *a, const uint32_t *b, const char *file, int line);
void mma_s8_k16(int32_t *d, const uint32_t *a, const uint32_t *b, const char *file, int line);

/* wgmma of 16-bit floats, m64nNk16: D += A B, with A from registers (4 words), B by its descriptor, n / 2 values of
 * D. A warp computes its 16 of the 64 rows. The other instructions of sm_90a:
 *
 *     fence   makes earlier writes to words of A readable for later instructions
 *     commit  puts the issued instructions into a group
 *     wait    waits until at most n groups are pending
 *
 * Errors: registers of A without a fence after their last change, or changed before the wait; registers of D written
 * before the wait; instructions in flight when the block ends; warps of a warpgroup that issue different numbers; B
 * written by a thread, or copied without a bulk copy, without a fence. D read before the wait is NaN. */
struct wgmma_kind {
    int n;      /* columns of B */
    bool first; /* D = A B */
    bool mn;    /* B is MN-major, else K-major */
    bool bf16;
};
void wgmma(float *d, const wgmma_kind &kind, const uint32_t *a, uint64_t b, const char *file, int line);
void wgmma_fence(const uint32_t *a, int words);
void wgmma_commit();
void wgmma_wait(unsigned n, const char *file, int line);

struct scales {
    uint32_t a, b;           /* this lane's scale words */
    int byte_a, thread_a;    /* selectors */
    int byte_b, thread_b;
};
enum class mx { e4m3, e5m2, e3m2, e2m3, e2m1 };
void mma_mxf4nvf4(float *d, const uint32_t *a, const uint32_t *b, const scales &s, const char *file, int line);
void mma_mxf4(float *d, const uint32_t *a, const uint32_t *b, const scales &s, const char *file, int line);
void mma_mxf8f6f4(float *d, const uint32_t *a, const uint32_t *b, mx type_a, mx type_b, const scales &s,
                  const char *file, int line);

/* a * b + c of both halves, rounded once to nearest even. A NaN is 0x7fff. */
uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c);
uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c);

/* cvt.rn.satfinite of one value to a code. NaN gives the NaN code for e4m3, the largest value for e2m1. */
uint8_t to_e4m3(float f);
uint8_t to_e2m1(float f);
/* cvt.rn.f16.f32 and cvt.rn.bf16.f32 (a NaN gives 0x7fff), and the inverse conversions. */
inline uint16_t to_half(float f)
{
    const uint32_t u = __float_as_uint(f), sign = u >> 16 & 0x8000, m = u & 0x7fffffff;
    if (m > 0x7f800000) return 0x7fff;
    if (m >= 0x477ff000) return (uint16_t) (sign | 0x7c00);
    /* below the smallest normal half: adding 0.5 rounds at 2^-24 */
    if (m < 0x38800000) return (uint16_t) (sign | (__float_as_uint(__uint_as_float(m) + 0.5f) - 0x3f000000));
    return (uint16_t) (sign | ((m + 0xfff + (m >> 13 & 1) - (112u << 23)) >> 13));
}
inline float from_half(uint16_t h)
{
    const uint32_t sign = (uint32_t) (h & 0x8000) << 16, m = h & 0x7fff;
    if (m > 0x7c00) return __uint_as_float(0x7fffffff);
    if (m < 0x400) return __uint_as_float(sign | __float_as_uint((float) m * 0x1p-24f));
    return __uint_as_float(sign | ((m << 13) + (m < 0x7c00 ? 112u << 23 : 224u << 23)));
}
inline uint16_t to_bf16(float f)
{
    const uint32_t u = __float_as_uint(f);
    return (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (uint16_t) ((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
inline float from_bf16(uint16_t h) { return __uint_as_float((uint32_t) h << 16); }

} // namespace simt

#endif
