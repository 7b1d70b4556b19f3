/* Launches of kernels/moe_fp4_kernels.cuh: variant, grid, shared memory (see kernels.h). One persistent block per SM,
 * at most one per item. An item is a tile of an expert's columns with 128 rows of W; in launches that write mid, with
 * 64 rows of gate and of up. */
#include "backend/cuda/launch.cuh"
#include "moe_fp4_kernels.cuh"

using namespace moe;

enum { USUAL_SM = 148 }; /* assumed number of SMs if n_sm is 0 */

/* Returns the max number of tiles, over all three lists together. */
static int64_t most_tiles(const pi__k_routes *r)
{
    int64_t tiles = 0;
    for (int k = 0; k < 3; k++)
        if (r->tile[k]) tiles += pi__k_max_tiles(r->n_rows, r->n_expert, r->n_used, k);
    return tiles;
}

enum { FEW_COLUMNS = 512 /* max columns for which the last blocks convert NVFP4 scales; more use pi__k_fp4_end */ };

template <int WAY> static int run_glu(void *stream, const pi__k_routes *r, fp4_grouped &p, int64_t sms)
{
    using L = fp4_mid_lists<WAY>;
    const int64_t n = p.a.w.n_out, columns = (int64_t) r->n_rows * r->n_used;
    const int64_t items = most_tiles(r) * ((n + 63) / 64);
    const bool few = columns <= FEW_COLUMNS && p.a.arrived;
    if (!p.a.data2 || p.a.mid_type != p.a.w.type || n % (fp4_way<WAY>::NV ? 64 : 32) || items > INT32_MAX / 2) return 1;
    p.mid_factors = (float *) ((uint8_t *) p.a.mid + fp4_factors_at(WAY, columns, n));
    p.mid_chunks = (int32_t) ((n + 63) / 64);
    p.mid_steps = fp4_steps(p.mid_chunks);
    const int code = pi_launch_dependent(stream, fp4_experts_glu<WAY>, dim3((unsigned) (items < sms ? items : sms)),
                                         dim3(FP4_THREADS), L::BYTES, p, few ? (int32_t) columns : 0);
    return code || few || !fp4_way<WAY>::NV ? code : pi__k_fp4_end(stream, p.a.mid, columns, n);
}

template <int WAY> static int run_fp4(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared)
{
    using L = fp4_lists<WAY>;
    const int32_t n_rows = a->row ? r->n_rows : r->n_rows * r->n_used;
    const int64_t items = most_tiles(r) * ((a->w.n_out + 127) / 128) * (a->data2 ? 2 : 1),
                  sms = a->n_sm ? a->n_sm : USUAL_SM;
    const uint8_t *x = (const uint8_t *) prepared;
    fp4_grouped p = {*a, {r->tile[0], r->tile[1], r->tile[2]}, r->n_tile, x,
                           (const float *) (x + fp4_factors_at(WAY, n_rows, a->w.n_in)),
                           fp4_steps((int32_t) ((a->w.n_in + 63) / 64)), nullptr, 0, 0};
    if (a->mid) return run_glu<WAY>(stream, r, p, sms);
    if (items > INT32_MAX / 2) return 1;
    return pi_launch_dependent(stream, fp4_experts<WAY>, dim3((unsigned) (items < sms ? items : sms)),
                               dim3(FP4_THREADS), L::ring::bytes(L::many::STAGE), p);
}

int pi__k_w4a8_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared)
{
    if (r->n_rows < 1) return 0;
    return a->w.type == PI__MXFP4 ? run_fp4<FP4_MX8>(stream, r, a, prepared) : 1;
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
