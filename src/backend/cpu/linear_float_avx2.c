/* Products of float weights and groups of 5 or 6 rows, for AVX2 with FMA: 6 columns x 16 rows of results are 12
 * registers, so that 8 loads feed 12 multiply-adds. With 4 columns (linear_avx2.c) loads are the limit.
 *
 * No memory and no state. Threads: any. A result is summed over n_in in order, as in linear_kernel.inc.h, so it is
 * bitwise identical for every number of columns. */
#include "backend/cpu/linear_float.h"
#include "backend/cpu/linear_ymm.h"

#define EACH(M) M(0) M(1) M(2) M(3) M(4) M(5)

/* Returns the 16 rows' values of column k of a float tile. */
OP vf line(int kind, const uint8_t *p, int64_t k)
{
    return kind == PI__LK_F32 ? vf_load(p + 64 * k) : kind == PI__LK_F16 ? vf_half(p + 32 * k) : vf_bf16(p + 32 * k);
}

OP void put(const pi__lin_y *y, int c, vf v)
{
    v = vf_mul(v, vf_set(y->scale));
    if (y->lanes == 16) vf_store(y->y + c * y->ld, v);
    else vf_store_n(y->y + c * y->ld, v, y->lanes);
}

OP void mul(int kind, int cols, const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y)
{
    const size_t size = kind == PI__LK_F32 ? 2048 : 1024;
    const uint8_t *p = w->data;
    const float *f = x->f;
    vf acc[6];
#define ZERO(c) if (c < cols) acc[c] = vf_zero();
    EACH(ZERO)
    for (int64_t left = w->n_in; left > 0; left -= 32, p += size, f += 32 * cols) {
        const int64_t n = left < 32 ? left : 32;
        for (int64_t k = 0; k < n; k++) {
            const vf v = line(kind, p, k);
#define COLUMN(c) if (c < cols) acc[c] = vf_fma(v, vf_dup(f + 32 * c + k), acc[c]);
            EACH(COLUMN)
        }
    }
#define PUT(c) if (c < cols) put(y, c, acc[c]);
    EACH(PUT)
}

#define KINDS(X, n) X(F32, n) X(F16, n) X(BF16, n)
#define DEFINE(K, n)                                                                                \
    static void mul_##K##_##n(const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y)           \
    {                                                                                               \
        mul(PI__LK_##K, n, w, x, y);                                                                \
    }
KINDS(DEFINE, 5)
KINDS(DEFINE, 6)

#define ROW(K, n) [PI__LK_##K][n] = mul_##K##_##n,
const pi__lin_wide_fns pi__lin_wide_avx2 = {KINDS(ROW, 5) KINDS(ROW, 6)};
