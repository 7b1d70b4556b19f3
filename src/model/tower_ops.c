/* Small graphs over rows that towers share (tower_impl.h). */
#include <math.h>

#include "model/tower_impl.h"

void pi__tower_matmul(pi__tower *t, const float *x, int64_t ldx, int32_t n, const pi__weight *w, float *y)
{
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = x, .ldx = ldx};
    pi__matmul(t->m, &in, n, w, y, w->n_out);
}

void pi__tower_bias(pi__tower *t, float *x, int32_t n, int64_t size, const float *bias)
{
    if (bias)
        pi__op_add_rows(t->m->be, NULL,
                        &(pi__add_rows) {.x = x, .table = bias, .row = t->zero, .n_rows = n, .n = size});
}

void pi__tower_copy(pi__tower *t, const float *x, int32_t n, int64_t size, float *y, int64_t ldy)
{
    pi__op_copy_2d(t->m->be, NULL, &(pi__copy_2d) {.x = x, .ldx = size, .n_shards = 1, .n_rows = n, .n = size, .y = y,
                                                   .ldy = ldy});
}

void pi__tower_norm(pi__tower *t, const pi__vit_norm *w, const float *x, int32_t n, int64_t size, float eps,
                    float *out)
{
    if (!w->shift) {
        pi__op_norm(t->m->be, NULL, &(pi__norm) {.out = out, .ldo = size, .x = x, .w = w->w, .eps = eps, .n_rows = n,
                                                 .n = size});
        return;
    }
    pi__tower_copy(t, x, n, size, out, size);
    pi__op_layer_norm(t->m->be, NULL, &(pi__layer_norm) {.x = out, .w = w->w, .shift = w->shift, .eps = eps,
                                                         .n_rows = n, .n = size});
}

void pi__tower_scale(pi__tower *t, float *x, int32_t n, int64_t size, float factor, const float *y, const float *w,
                     float lo, float hi)
{
    pi__op_scale(t->m->be, NULL, &(pi__scale) {.x = x, .y = y, .w = w, .factor = factor, .lo = lo, .hi = hi,
                                               .n_rows = n, .n = size});
}

void pi__tower_pool(pi__tower *t, const float *x, int32_t n, int32_t each, int64_t size, float factor, float *y,
                    float *out)
{
    for (int32_t j = 0; j < each; j++) {
        int32_t *row = t->row + j * n; /* each gather keeps its own indices until the step ends */
        for (int32_t i = 0; i < n; i++) row[i] = i * each + j;
        pi__op_gather_rows(t->m->be, NULL,
                           &(pi__gather_rows) {.row = row, .n_rows = n, .x = x, .n = size, .out = j ? y : out});
        if (j)
            pi__op_add_norm(t->m->be, NULL,
                            &(pi__add_norm) {.x = out, .y = y, .n_rows = n, .n = size,
                                             .scale = j < each - 1 ? 1.0f : factor / (float) each});
    }
    if (each == 1 && factor != 1) pi__tower_scale(t, out, n, size, factor, NULL, NULL, -INFINITY, INFINITY);
}

void pi__tower_mlp_run(pi__tower *t, const pi__tower_mlp *p, const float *x, int32_t n)
{
    pi__tower_matmul(t, x, p->first.n_in, n, &p->first, t->ff);
    pi__op_activate(t->m->be, NULL, &(pi__activate) {.x = t->ff, .b = p->first_bias, .n_rows = n, .n = p->first.n_out,
                                             .kind = p->gelu});
    pi__tower_matmul(t, t->ff, p->first.n_out, n, &p->second, t->y);
    pi__tower_bias(t, t->y, n, t->n_out, p->second_bias);
}

void pi__tower_project(pi__tower *t, const pi__tower_mlp *p, const float *x, int32_t n, float *rows)
{
    pi__tower_mlp_run(t, p, x, n);
    pi__tower_copy(t, t->y, n, t->n_out, rows, t->width);
}
