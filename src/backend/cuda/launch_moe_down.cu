/* Launches of kernels/moe_down_kernels.cuh: variant, grid, shared memory (see kernels_down.h). Persistent blocks divide
 * the items: FEW_TILES tiles of 16 rows of W, with a tile of an expert's columns or with all rows of the shared
 * expert. */
#include "backend/cuda/kernels_down.h"
#include "backend/cuda/launch_moe.cuh"
#include "moe_down_kernels.cuh"

using namespace moe;

enum { USUAL_SM = 128 /* assumed number of SMs if n_sm is 0 */ };

/* Returns the bytes of shared memory that a block needs for a matrix of this type. */
template <int NT, bool MID, class P> static size_t bytes_for(int32_t type)
{
    switch (type) {
#define RUN(t) case PI__##t: return expert_stream<PI__##t, NT, MID, P>::BYTES;
        W16_TYPES(RUN)
#undef RUN
    default: return 0;
    }
}

/* Launches the number of blocks that are resident at the same time, at most one per item. tiles: max tiles of columns
 * of all experts. */
template <int NT> static int run(void *stream, w16_down &p, uint64_t tiles)
{
    const uint64_t items = tiles * p.routed.n_item + p.shared.n_item;
    const uint64_t most = (uint64_t) (p.routed.a.n_sm > 0 ? p.routed.a.n_sm : (int) USUAL_SM) * (NT == 1 ? 2 : 1);
    size_t bytes = max(bytes_for<NT, true, w16_experts>(p.routed.a.w.type),
                       bytes_for<NT, false, w16_shared>(p.shared.a.w.type));
    if (p.tail.arrived) bytes = tail_bytes(p.tail, THREADS / 32, bytes);
    return pi_launch_dependent(stream, moe_down<NT>, dim3((unsigned) min(items, most)), dim3(THREADS), bytes, p);
}

static uint32_t items_of(int64_t n_out) { return (uint32_t) ((n_out + FEW_TILES * 16 - 1) / (FEW_TILES * 16)); }

int pi__k_w16_down_shared(void *stream, const pi__k_down *a, const pi__k_product *shared, const void *prepared,
                          const pi__k_tail *t)
{
    const pi__k_routes &r = a->routes;
    const int64_t pairs = (int64_t) r.n_rows * r.n_used;
    if (r.n_rows < 1) return 0;
    if (r.n_rows > PI__K_DOWN_ROWS || a->experts.row || a->experts.mid || a->experts.data2) return 1;
    if (!pi__k_w16_has(a->experts.w.type) || !pi__k_w16_has(shared->w.type)) return 1;
    const size_t rows = w16_rows_bytes(r.n_rows, shared->w.n_in);
    if (pi__k_w16_mid_bytes(pairs, a->experts.w.n_in) / 4 > UINT32_MAX || rows / 16 > UINT32_MAX) return 1;
    w16_down p = {};
    p.routed.a = a->experts, p.routed.n_tile = r.n_tile, p.routed.x = (const uint8_t *) a->mid;
    for (int i = 0; i < 3; i++) p.routed.tile[i] = r.tile[i];
    p.routed.n_item = items_of(a->experts.w.n_out), p.routed.by = 1.0f;
    p.shared.a.w = shared->w, p.shared.a.y = shared->y, p.shared.a.ldy = shared->ldy, p.shared.n_rows = r.n_rows;
    p.shared.x = (const uint8_t *) prepared, p.shared.factor = (const float *) ((const char *) prepared + rows);
    p.shared.n_item = items_of(shared->w.n_out), p.shared.by = 1.0f;
    if (t) p.tail = *t;
    uint64_t tiles = 0;
    for (int i = 0; i < 2; i++) tiles += (uint64_t) pi__k_max_tiles(r.n_rows, r.n_expert, r.n_used, i);
    tiles = min(tiles, (uint64_t) pairs);
    if (tiles * p.routed.n_item + p.shared.n_item > UINT32_MAX) return 1;
    return r.n_rows <= FEW ? run<FEW / 8>(stream, p, tiles) : run<PI__K_DOWN_ROWS / 8>(stream, p, tiles);
}
