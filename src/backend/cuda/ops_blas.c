/* Products of F16 and BF16 matrices with many rows by cuBLAS (option cublas). x is a sum hi + lo of two 16-bit floats,
 * so y = W lo, then y += W hi. No memory of its own; the step thread. */
#include "backend/cuda/impl.h"
#include "formats/formats.h"

int pi__cuda_blas_product(pi__blas *b, void *stream, const pi__k_product *p, const void *prepared, int32_t n_rows)
{
    const pi__k_matrix *w = &p->w;
    const uint16_t *terms = prepared;
    int code = 0;
    for (int32_t i = 0; i < 2 && !code; i++) {
        const uint16_t *x = terms + (size_t) (1 - i) * (size_t) n_rows * (size_t) w->n_in; /* lo first */
        const pi__gemm g = {.bf16 = w->type == PI__BF16, .add = i, .n_rows = n_rows, .n_in = w->n_in, .n_out = w->n_out,
                            .w = w->data, .ldw = (int64_t) (w->shape.tile_bytes / sizeof *x), .x = x, .y = p->y,
                            .ldy = p->ldy};
        code = pi__blas_gemm(b, &g);
    }
    return code ? code : pi__k_hilo_finish(stream, w, prepared, n_rows, p->y, p->ldy);
}
