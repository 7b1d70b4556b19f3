/* A rank's part of the memory and of the matrices of a tensor-parallel backend (see tensor.c): its address of rank 0's
 * memory, and its rows of a matrix. No memory. Threads: any rank's; nothing here is written. */
#include <string.h>

#include "backend/tensor_impl.h"

static size_t align64(size_t n) { return (n + 63) & ~(size_t) 63; }

void *pi__tensor_at(const rank *k, const void *p)
{
    if (!p || !k->i) return (void *) p;
    for (const region *r = k->t->region; r < k->t->region + MAX_REGIONS; r++) {
        const uintptr_t off = (uintptr_t) p - (uintptr_t) r->base;
        if (r->base && off < r->size) return r->at[k->i] + off;
    }
    return k->t->ranks ? NULL : (void *) p; /* p is a host address of rank 0: NULL if that is another process */
}

/* Sets rows to the rows of each matrix fused in w, or to all rows; returns the number of entries. */
static int32_t fused_rows_of(const pi__weight *w, int64_t rows[MAX_FUSED])
{
    int32_t n = 0;
    while (n < MAX_FUSED && w->fused_rows[n]) rows[n] = w->fused_rows[n], n++;
    if (!n) rows[n++] = w->n_out;
    return n;
}

bool pi__tensor_is_cut(const pi__tensor *t, const pi__weight *w)
{
    int64_t rows[MAX_FUSED], unit = (int64_t) PI__TILE_ROWS * t->n;
    /* Columns of an expert's down are rows of its gate and up, and vice versa: all three are sharded, or none. */
    if (w->whole) return false;
    if (w->routed && (!t->rank[t->first].be->opt->moe_shards || w->n_in % unit)) return false;
    for (int32_t p = 0, n = fused_rows_of(w, rows); p < n; p++)
        if (rows[p] % unit) return false;
    return true;
}

int32_t pi__tensor_pieces(const rank *k, const pi__weight *w, piece out[MAX_FUSED])
{
    int64_t rows[MAX_FUSED], first = 0;
    int32_t n = fused_rows_of(w, rows);
    char *data = pi__tensor_at(k, w->data);
    for (int32_t p = 0; p < n; p++) {
        out[p] = (piece) {.w = *w, .first = first, .n = rows[p] / k->t->n};
        out[p].w.n_out = out[p].n;
        out[p].w.data = data;
        out[p].w.scale = pi__tensor_at(k, w->scale);
        memset(out[p].w.fused_rows, 0, sizeof w->fused_rows);
        out[p].w.size = k->be->dev->weight_size(k->be, &out[p].w);
        if (data) data += align64(out[p].w.size);
        first += rows[p];
    }
    return n;
}

bool pi__tensor_share(const piece *p, int32_t r, int64_t row, int64_t n, int64_t *lo, int64_t *hi)
{
    const int64_t at = p->first + r * p->n;
    *lo = row > at ? row : at;
    *hi = row + n < at + p->n ? row + n : at + p->n;
    return *lo < *hi;
}
