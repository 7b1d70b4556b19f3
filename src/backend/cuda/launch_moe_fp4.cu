/* Launches of kernels/moe_fp4_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "moe_fp4_kernels.cuh"

enum { USUAL_SM = 148 }; /* multiprocessors, where nobody says how many there are */

/* Most items that there can be, of a matrix or two. */
static int64_t most_items(const pi__k_routes *r, const pi__k_experts *a)
{
    int64_t tiles = 0;
    for (int k = 0; k < 3; k++)
        if (r->tile[k]) tiles += pi__k_max_tiles(r->n_rows, r->n_expert, r->n_used, k);
    return tiles * ((a->w.n_out + 127) / 128) * (a->data2 ? 2 : 1);
}

template <int WAY> static int run_fp4(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared)
{
    using L = fp4_lists<WAY>;
    const int32_t n_rows = a->row ? r->n_rows : r->n_rows * r->n_used;
    const int64_t items = most_items(r, a), sms = a->n_sm ? a->n_sm : USUAL_SM;
    const uint8_t *x = (const uint8_t *) prepared;
    const fp4_grouped p = {*a, {r->tile[0], r->tile[1], r->tile[2]}, r->n_tile, x,
                           (const float *) (x + fp4_factors_at(WAY, n_rows, a->w.n_in)),
                           fp4_steps((int32_t) ((a->w.n_in + 63) / 64))};
    if (items > INT32_MAX / 2) return 1;
    return pi_launch(stream, fp4_experts<WAY>, dim3((unsigned) (items < sms ? items : sms)), dim3(FP4_THREADS),
                     L::ring::bytes(L::many::STAGE), p);
}

int pi__k_fp4_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared)
{
    if (r->n_rows < 1) return 0;
    switch (a->w.type) {
    case PI__NVFP4: return run_fp4<FP4_NV>(stream, r, a, prepared);
    case PI__MXFP4: return run_fp4<FP4_MX>(stream, r, a, prepared);
    default: return 1;
    }
}
