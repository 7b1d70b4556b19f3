/* The kernels of adapters, written once: included by each kernels_ISA.c, which defines before
 *
 *     vf                      vectors, by one of vec_ISA.h
 *     PI__KERNELS             name of the table defined here
 *
 * No memory and no state; any thread. A row's sums are in an order that depends on its length alone, however many rows are
 * done at once: of a dot, lanes by position mod 32, then by halves; of B's columns, in order. */
#include <string.h>

#include "backend/cpu/inline.h"
#include "backend/cpu/lora.h"
#include "formats/formats.h"

/* 16 values from number i on. */
PI__INLINE vf lora_load(int32_t type, const void *p, int64_t i)
{
    if (type == PI__F32) return vf_load((const float *) p + i);
    return type == PI__F16 ? vf_load_f16((const uint16_t *) p + i) : vf_load_bf16((const uint16_t *) p + i);
}

enum { LORA_ROWS = 4, LORA_VECS = 4 }; /* rows of a dot at once; vectors of y */

PI__INLINE void lora_dots(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int rows, float *t, int64_t ldt)
{
    vf even[LORA_ROWS], odd[LORA_ROWS];
    int64_t i = 0;
    for (int r = 0; r < rows; r++) even[r] = odd[r] = vf_zero();
    for (; i + 32 <= n; i += 32) {
        const vf w = lora_load(type, a, i), v = lora_load(type, a, i + 16);
        for (int r = 0; r < rows; r++) {
            even[r] = vf_fma(w, vf_load(x + r * ldx + i), even[r]);
            odd[r] = vf_fma(v, vf_load(x + r * ldx + i + 16), odd[r]);
        }
    }
    for (int r = 0; r < rows; r++) {
        if (i < n) even[r] = vf_fma(lora_load(type, a, i), vf_load(x + r * ldx + i), even[r]);
        t[r * ldt] = vf_hsum(vf_add(even[r], odd[r]));
    }
}

PI__INLINE void lora_dot(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int32_t n_rows, float *t, int64_t ldt)
{
    int32_t r = 0;
    for (; r + LORA_ROWS <= n_rows; r += LORA_ROWS) lora_dots(type, a, n, x + r * ldx, ldx, LORA_ROWS, t + r * ldt, ldt);
    for (; r < n_rows; r++) lora_dots(type, a, n, x + r * ldx, ldx, 1, t + r * ldt, ldt);
}

static void lora_dot_any(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int32_t n_rows, float *t, int64_t ldt)
{
    if (type == PI__F32) lora_dot(PI__F32, a, n, x, ldx, n_rows, t, ldt);
    else if (type == PI__F16) lora_dot(PI__F16, a, n, x, ldx, n_rows, t, ldt);
    else lora_dot(PI__BF16, a, n, x, ldx, n_rows, t, ldt);
}

/* vecs vectors of y, of which the last has `last` values. b: column 0's. */
PI__INLINE void lora_columns(int32_t type, const char *b, size_t ldb, int32_t rank, const float *t, float scale, float *y,
                             int vecs, int last)
{
    vf sum[LORA_VECS];
    for (int v = 0; v < vecs; v++) sum[v] = vf_zero();
    for (int32_t r = 0; r < rank; r++)
        for (int v = 0; v < vecs; v++) sum[v] = vf_fma(lora_load(type, b + (size_t) r * ldb, 16 * v), vf_set1(t[r]), sum[v]);
    for (int v = 0; v < vecs; v++) {
        float of[16];
        const int n = v == vecs - 1 ? last : 16;
        if (n == 16) {
            vf_store(y + 16 * v, vf_fma(sum[v], vf_set1(scale), vf_load(y + 16 * v)));
            continue;
        }
        vf_store(of, vf_fma(sum[v], vf_set1(scale), vf_load_tail(y + 16 * v, n, 0)));
        memcpy(y + 16 * v, of, (size_t) n * sizeof *of);
    }
}

PI__INLINE void lora_add(int32_t type, const void *b, int64_t ldb, int32_t rank, const float *t, float scale, float *y, int64_t n)
{
    const size_t size = type == PI__F32 ? sizeof(float) : sizeof(uint16_t);
    const char *p = b;
    int64_t i = 0;
    for (; i + 16 * LORA_VECS <= n; i += 16 * LORA_VECS)
        lora_columns(type, p + (size_t) i * size, (size_t) ldb * size, rank, t, scale, y + i, LORA_VECS, 16);
    for (; i < n; i += 16)
        lora_columns(type, p + (size_t) i * size, (size_t) ldb * size, rank, t, scale, y + i, 1, n - i < 16 ? (int) (n - i) : 16);
}

static void lora_add_any(int32_t type, const void *b, int64_t ldb, int32_t rank, const float *t, float scale, float *y, int64_t n)
{
    if (type == PI__F32) lora_add(PI__F32, b, ldb, rank, t, scale, y, n);
    else if (type == PI__F16) lora_add(PI__F16, b, ldb, rank, t, scale, y, n);
    else lora_add(PI__BF16, b, ldb, rank, t, scale, y, n);
}

const pi__cpu_lora_kernels PI__KERNELS = {lora_dot_any, lora_add_any};

#undef PI__KERNELS
