/* Launches of kernels/moe_w16_kernels.cuh: variant, grid, shared memory (see kernels.h). Persistent blocks divide the
 * items: FEW_TILES or MANY_TILES tiles of 16 rows of W, with one tile of an expert's columns. */
#include "backend/cuda/kernels_heads.h"
#include "backend/cuda/launch_moe.cuh"
#include "moe_w16_kernels.cuh"

using namespace moe;

/* MAX_FEW: max rows (r->n_rows) for kernel experts_w16_few. USUAL_SM: assumed number of SMs if n_sm is 0. */
enum { MAX_FEW = 32, USUAL_SM = 128 };

/* Returns the grid: the number of blocks that are resident at the same time (`each` per SM), at most one per item. */
static dim3 blocks_of(const pi__k_experts &a, uint64_t items, unsigned each)
{
    const uint64_t most = (uint64_t) (a.n_sm > 0 ? a.n_sm : USUAL_SM) * each;
    return dim3((unsigned) (items < most ? items : most));
}

template <int TYPE, int NT, bool MID> static int run_few(void *stream, const w16_experts &p, uint64_t tiles)
{
    return pi_launch_dependent(stream, experts_w16_few<TYPE, NT, MID>,
                               blocks_of(p.a, tiles * p.n_item, NT == 1 ? 2 : 1), dim3(THREADS),
                               expert_stream<TYPE, NT, MID>::BYTES, p);
}

template <int TYPE, bool MID> static int run_w16(void *stream, const pi__k_routes *r, w16_experts p)
{
    const bool many = r->n_rows > MAX_FEW;
    const int64_t rows = (many ? (int) MANY_TILES : (int) FEW_TILES) * 16 / (p.a.data2 ? 2 : 1);
    uint64_t tiles = 0;
    p.n_item = (uint32_t) ((p.a.w.n_out + rows - 1) / rows);
    p.many = many ? 2 : 1;
    for (int k = 0; k < 3; k++)
        tiles += r->tile[k] ? (uint64_t) pi__k_max_tiles(r->n_rows, r->n_expert, r->n_used, k) : 0;
    if (tiles > (uint64_t) r->n_rows * (uint64_t) r->n_used) tiles = (uint64_t) r->n_rows * (uint64_t) r->n_used;
    if (tiles * p.n_item > UINT32_MAX) return 1;
    if (r->n_rows <= FEW) return run_few<TYPE, FEW / 8, MID>(stream, p, tiles);
    if (!many) return run_few<TYPE, MAX_FEW / 8, MID>(stream, p, tiles);
    return pi_launch_dependent(stream, experts_w16_many<TYPE, MID>, blocks_of(p.a, tiles * p.n_item, 1), dim3(THREADS),
                     many_stage<TYPE, MID>::BYTES, p);
}

template <bool MID> static int run_type(void *stream, const pi__k_routes *r, const w16_experts &p)
{
    switch (p.a.w.type) {
#define RUN(t) case PI__##t: return run_w16<PI__##t, MID>(stream, r, p);
        W16_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}

/* Queues products of packed rows. y_step: floats from the results of expert e to the results of expert e + 1, in
 * addition to the columns' distance; 0 = none. by: factor of the results. */
static int run_prepared(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared,
                        int64_t y_step, float by)
{
    if (r->n_rows < 1) return 0;
    const int64_t rows = a->row ? r->n_rows : (int64_t) r->n_rows * r->n_used;
    const size_t size = w16_rows_bytes(rows, a->w.n_in);
    if (size / 16 > UINT32_MAX || (a->mid && (!a->data2 || a->w.n_out % 32))) return 1;
    return run_type<false>(stream, r,
                           {*a,
                            {r->tile[0], r->tile[1], r->tile[2]},
                            r->n_tile,
                            (const uint8_t *) prepared,
                            (const float *) ((const char *) prepared + size),
                            0,
                            a->mid && pi__k_w16_input(a->mid_type),
                            1,
                            y_step,
                            by});
}

int pi__k_w16_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared)
{
    return run_prepared(stream, r, a, prepared, 0, 1.0f);
}

int pi__k_w16_heads(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared, int64_t y_step,
                    float by)
{
    if (a->row || a->mid || a->data2) return 1;
    return run_prepared(stream, r, a, prepared, y_step - r->n_rows * a->ldy, by);
}

size_t pi__k_w16_mid_bytes(int64_t n_columns, int64_t n_in)
{
    return (size_t) ((n_columns + 7) / 8 * (n_in / 32)) * MID_BLOCK;
}

int pi__k_w16_mid(void *stream, const pi__k_input *in, int32_t type, int32_t n_columns, int64_t n_in, void *mid)
{
    if (n_columns < 1) return 0;
    if (!in->x2) return 1;
    return pi_launch_dependent(stream, w16_mid, dim3((unsigned) n_columns), dim3(THREADS), 0, *in, n_in,
                               pi__k_w16_input(type), (uint8_t *) mid);
}

int pi__k_w16_down(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *mid)
{
    if (r->n_rows < 1) return 0;
    if (a->row || a->mid || pi__k_w16_mid_bytes((int64_t) r->n_rows * r->n_used, a->w.n_in) / 4 > UINT32_MAX) return 1;
    return run_type<true>(
        stream, r,
        {*a, {r->tile[0], r->tile[1], r->tile[2]}, r->n_tile, (const uint8_t *) mid, nullptr, 0, false, 1, 0, 1.0f});
}
