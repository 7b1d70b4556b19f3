/* Launches of kernels/centroid_head_kernels.cuh (see kernels.h). Grids: pick_centroids x = 32 clusters, y = row;
 * scatter_logits x = BLOCK_LOGITS logits, y = row. */
#include "backend/cuda/launch.cuh"
#include "centroid_head_kernels.cuh"

using namespace centroid_head;

int pi__k_pick_centroids(void *stream, const pi__k_centroids *a, const pi__k_routes *r)
{
    if (a->n_rows < 1) return 0;
    if (a->n_pick < 1 || a->n_pick > a->n_mat || (int64_t) a->n_rows * a->n_pick > PI__K_MAX_PAIRS) return 1;
    const dim3 grid((unsigned) (a->n_mat + 31) / 32, (unsigned) a->n_rows);
    return pi_launch_dependent(stream, pick_centroids, grid, dim3(THREADS), (CHUNK + THREADS) * sizeof(uint32_t), *a,
                               r->row, r->tile[0], r->n_tile);
}

int pi__k_scatter_logits(void *stream, const pi__k_centroids *a)
{
    if (a->n_rows < 1) return 0;
    const dim3 grid((unsigned) ((a->n_mat * a->n + BLOCK_LOGITS - 1) / BLOCK_LOGITS), (unsigned) a->n_rows);
    return pi_launch_dependent(stream, scatter_logits, grid, dim3(THREADS), WARPS * sizeof(float), *a);
}
