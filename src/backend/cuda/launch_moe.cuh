/* Shared by the launches of expert products (launch_moe*.cu). */
#ifndef PI_LAUNCH_MOE_CUH
#define PI_LAUNCH_MOE_CUH

#include "backend/cuda/launch.cuh"
#include "moe.cuh"

/* Calls run(k, max tiles, p) for each list k of tiles that exists and can have entries, with p.tile and p.n_tile set.
 * Tiles have up to FEW columns in list 0, up to SOME in list 1, up to MANY in list 2. An expert has at most n_rows
 * columns, so list 1 or 2 is empty if n_rows is at most FEW or SOME. Returns the first error. */
template <class F> static int each_list(const pi__k_routes *r, grouped p, F run)
{
    const int32_t more_than[3] = {0, FEW, SOME};
    int code = 0;
    for (int k = 0; k < 3 && !code && r->n_rows > more_than[k]; k++) {
        if (!r->tile[k]) continue;
        p.tile = r->tile[k];
        p.n_tile = &r->n_tile[k];
        code = run(k, (unsigned) pi__k_max_tiles(r->n_rows, r->n_expert, r->n_used, k), p);
    }
    return code;
}

/* launch_moe_many.cu: queues the products of the tiles of list 2, up to 64 columns each, for packed types. n_tile: max
 * tiles in the list. */
int pi__k_experts_many(void *stream, const grouped &p, unsigned n_tile);

#endif
