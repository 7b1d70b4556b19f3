/* Op centroid_head on the device: an lm_head that multiplies only some clusters of rows. The product with the centroids
 * is an ordinary linear; the products with the clusters' rows use the expert kernels, a cluster being an expert
 * (kernels/centroid_head_kernels.cuh).
 *
 * Memory: of the backend's scratch, [token order][tiles][rows][number of tiles]. The step thread. Invariant: the region
 * [token order] has a copy of the host array c->order; NULL = nothing has been copied. */
#include "backend/cuda/impl.h"

/* Layout of the op's scratch: byte offsets, from the argument `at` of layout() on. A pair is a row and a cluster. */
typedef struct head_layout {
    size_t order;             /* [max_order] token of each row of the clusters */
    size_t tile, row, n_tile; /* [pairs] tiles; [pairs] input row of each column; [3] lengths */
    size_t end;
} head_layout;

static head_layout layout(size_t at, const pi__limits *lim)
{
    const size_t pairs = (size_t) lim->max_rows * (size_t) lim->max_pick;
    head_layout p;
    p.order = pi__cuda_take(&at, (size_t) lim->max_order * sizeof(int32_t));
    p.tile = pi__cuda_take(&at, pairs * sizeof(pi__k_tile));
    p.row = pi__cuda_take(&at, pairs * sizeof(int32_t));
    p.n_tile = pi__cuda_take(&at, 3 * sizeof(int32_t));
    p.end = at;
    return p;
}

size_t pi__cuda_centroid_bytes(const pi__limits *lim) { return lim->max_pick ? layout(0, lim).end : 0; }

/* Queues the products of each row with its picked clusters; results go to a->some. A row is packed once. */
static void multiply(pi__cuda *c, cuda_packed_x *ready, const pi__centroid_head *a, const pi__k_routes *r)
{
    void *stream = pi__rt_stream(c->rt);
    const pi__k_experts e = {.w = pi__cuda_matrix(a->head), .row = r->row, .y = a->some, .ldy = a->head->n_out,
                             .n_sm = c->info.n_sm};
    const int form = pi__form(&c->f, e.w.type, e.w.n_in);
    void *x = pi__cuda_packed_x(c, ready, form, &a->in, e.w.type, r->n_rows, e.w.n_in);
    PI__QUEUE(c, pi__cuda_experts(stream, form, r, &e, x));
}

void pi__cuda_centroid_head(pi__backend *be, const pi__batch *b, const pi__centroid_head *a)
{
    (void) b;
    pi__cuda *c = (pi__cuda *) be;
    const int64_t n_mat = a->head->n_mat, n = a->head->n_out;
    const head_layout p = layout(c->at.clusters, &c->f.lim);
    if (a->n_rows < 1) return;
    if (a->n_rows > c->f.lim.max_rows || a->n_pick > c->f.lim.max_pick || n_mat * n > c->f.lim.max_order) {
        c->no_room = true;
        return;
    }
    void *stream = pi__rt_stream(c->rt), *order = c->scratch + p.order;
    if (a->order != c->order) pi__cuda_upload(c, order, a->order, (size_t) (n_mat * n) * sizeof *a->order);
    if (!pi__cuda_failed(c)) c->order = a->order;
    const pi__k_routes r = {
        .n_rows = a->n_rows, .n_expert = a->n_rows * a->n_pick /* max tiles */, .n_used = a->n_pick,
        .row = (int32_t *) (void *) (c->scratch + p.row), .tile = {(pi__k_tile *) (void *) (c->scratch + p.tile)},
        .n_tile = (int32_t *) (void *) (c->scratch + p.n_tile),
    };
    const pi__k_centroids k = {.scores = a->scores,
                               .n_rows = a->n_rows,
                               .n_mat = (int32_t) n_mat,
                               .n_pick = a->n_pick,
                               .n = n,
                               .pick = a->pick,
                               .some = a->some,
                               .order = order,
                               .logits = a->logits};
    const pi__lin centroids = {a->centroids, a->scores, n_mat};
    const pi__linear scores = pi__linear_of(&a->in, a->n_rows, &centroids, 1);
    cuda_packed_x ready = {.n_rows = 0};
    pi__cuda_queue_linear(c, &ready, &scores);
    PI__QUEUE(c, pi__k_pick_centroids(stream, &k, &r));
    multiply(c, &ready, a, &r);
    PI__QUEUE(c, pi__k_scatter_logits(stream, &k));
}