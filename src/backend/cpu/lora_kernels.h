/* The kernels of LoRA adapters, written once for all instruction sets. Each kernels_ISA.c includes this file and first
 * defines:
 *
 *     vf                      vectors, by one of vec_ISA.h
 *     PI__KERNELS             name of the table defined here
 *
 * No memory and no state. Threads: any. The order of a row's sums depends on its length only, not on the number of
 * rows. Dot products: lanes by position mod 32, then by halves. Sums over columns of B: in order. */
#include <string.h>

#include "backend/cpu/inline.h"
#include "backend/cpu/lora.h"
#include "formats/formats.h"

/* Returns values i to i + 15 at p (F32, F16 or BF16) as floats. */
PI__INLINE vf lora_load(int32_t type, const void *p, int64_t i)
{
    if (type == PI__F32) return vf_load((const float *) p + i);
    return type == PI__F16 ? vf_load_f16((const uint16_t *) p + i) : vf_load_bf16((const uint16_t *) p + i);
}

/* rows of x per pass of lora_dots(); sums (rows * vectors of y) per pass of lora_columns() */
enum { LORA_ROWS = 4, LORA_VECS = 4 };

PI__INLINE void lora_dots(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int rows, float *t,
                          int64_t ldt)
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

PI__INLINE void lora_dot(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int32_t n_rows, float *t,
                         int64_t ldt)
{
    int32_t r = 0;
    for (; r + LORA_ROWS <= n_rows; r += LORA_ROWS)
        lora_dots(type, a, n, x + r * ldx, ldx, LORA_ROWS, t + r * ldt, ldt);
    for (; r + 2 <= n_rows; r += 2) lora_dots(type, a, n, x + r * ldx, ldx, 2, t + r * ldt, ldt);
    if (r < n_rows) lora_dots(type, a, n, x + r * ldx, ldx, 1, t + r * ldt, ldt);
}

static void lora_dot_any(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int32_t n_rows, float *t,
                         int64_t ldt)
{
    if (type == PI__F32) lora_dot(PI__F32, a, n, x, ldx, n_rows, t, ldt);
    else if (type == PI__F16) lora_dot(PI__F16, a, n, x, ldx, n_rows, t, ldt);
    else lora_dot(PI__BF16, a, n, x, ldx, n_rows, t, ldt);
}

/* y[i] += scale * sum[i] for i < min(n, 16). */
PI__INLINE void lora_put(float *y, vf sum, float scale, int64_t n)
{
    float of[16];
    if (n >= 16) {
        vf_store(y, vf_fma(sum, vf_set1(scale), vf_load(y)));
        return;
    }
    vf_store(of, vf_fma(sum, vf_set1(scale), vf_load_tail(y, (int) n, 0)));
    memcpy(y, of, (size_t) n * sizeof *of);
}

/* y[i][at + k] += scale * (sum over r < rank of t[i * ldt + r] * b[r][k]), for i < rows and k < min(n, 16 * vecs). b:
 * column 0 of a tile from value `at` on; each next column is PI__LORA_TILE values later. */
PI__INLINE void lora_columns(int32_t type, const char *b, int32_t rank, const float *t, int64_t ldt, float scale,
                             float *const *y, int64_t at, int64_t n, int rows, int vecs)
{
    const size_t step = PI__LORA_TILE * (type == PI__F32 ? sizeof(float) : sizeof(uint16_t));
    vf sum[LORA_VECS];
    for (int v = 0; v < rows * vecs; v++) sum[v] = vf_zero();
    for (int32_t r = 0; r < rank; r++, b += step)
        for (int v = 0; v < vecs; v++) {
            const vf w = lora_load(type, b, 16 * v);
            for (int i = 0; i < rows; i++) sum[i * vecs + v] = vf_fma(w, vf_set1(t[i * ldt + r]), sum[i * vecs + v]);
        }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs && 16 * v < n; v++) lora_put(y[i] + at + 16 * v, sum[i * vecs + v], scale, n - 16 * v);
}

/* Adds one tile of B (n <= PI__LORA_TILE outputs) to y[row][at .. at + n - 1] of all n_rows rows. The tile is read from
 * memory once for all rows. */
PI__INLINE void lora_tile(int32_t type, const char *b, int32_t rank, const float *t, int64_t ldt, int32_t n_rows,
                          float scale, float *const *y, int64_t at, int64_t n)
{
    const size_t size = type == PI__F32 ? sizeof(float) : sizeof(uint16_t);
    int32_t r = 0;
    for (; r + 2 <= n_rows; r += 2)
        for (int64_t i = 0; i < n; i += 32)
            lora_columns(type, b + (size_t) i * size, rank, t + r * ldt, ldt, scale, y + r, at + i, n - i, 2, 2);
    if (r < n_rows) lora_columns(type, b, rank, t + r * ldt, ldt, scale, y + r, at, n, 1, 4);
}

PI__INLINE void lora_add(int32_t type, const void *b, int32_t rank, const float *t, int64_t ldt, int32_t n_rows,
                         float scale, float *const *y, int64_t n)
{
    const size_t size = type == PI__F32 ? sizeof(float) : sizeof(uint16_t);
    for (int64_t i = 0; i < n; i += PI__LORA_TILE)
        lora_tile(type, (const char *) b + (size_t) (i * rank) * size, rank, t, ldt, n_rows, scale, y, i,
                  n - i < PI__LORA_TILE ? n - i : PI__LORA_TILE);
}

static void lora_add_any(int32_t type, const void *b, int32_t rank, const float *t, int64_t ldt, int32_t n_rows,
                         float scale, float *const *y, int64_t n)
{
    if (type == PI__F32) lora_add(PI__F32, b, rank, t, ldt, n_rows, scale, y, n);
    else if (type == PI__F16) lora_add(PI__F16, b, rank, t, ldt, n_rows, scale, y, n);
    else lora_add(PI__BF16, b, rank, t, ldt, n_rows, scale, y, n);
}

const pi__cpu_lora_kernels PI__KERNELS = {lora_dot_any, lora_add_any};

#undef PI__KERNELS
