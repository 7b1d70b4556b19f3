/* Shared by the launches of expert products (launch_moe*.cu). */
#ifndef PI_LAUNCH_MOE_CUH
#define PI_LAUNCH_MOE_CUH

#include "backend/cuda/launch.cuh"
#include "moe.cuh"

/* Calls run(list, max tiles, p) for each of the three lists that exists and can have tiles, with p.tile and p.n_tile
 * set. Returns the first error. An expert has at most n_rows columns. */
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

/* launch_moe_many.cu: queues the tiles of the third list, of up to 64 columns; packed types. n_tile: max tiles. */
int pi__k_experts_many(void *stream, const grouped &p, unsigned n_tile);

#endif
