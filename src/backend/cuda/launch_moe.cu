/* Launches of kernels/moe_kernels.cuh: variant, grid, shared memory (see kernels.h). Products: x = 16 rows of W (packed
 * types) or FLOAT_WARPS rows (floats), y = tile of a list, z = first or second matrix; y has the max number of tiles,
 * and blocks past the list's end return. */
#include "backend/cuda/launch_moe.cuh"
#include "moe_kernels.cuh"

using namespace moe;

int32_t pi__k_max_tiles(int32_t n_rows, int32_t n_expert, int32_t n_used, int list)
{
    int64_t pairs = (int64_t) n_rows * n_used;
    /* an expert has at most one partial tile */
    int64_t last = min(pairs / (list == 0 ? 1 : list == 1 ? FEW + 1 : SOME + 1), (int64_t) n_expert);
    return (int32_t) (list < 2 ? last : last + (pairs - last * (SOME + 1)) / MANY);
}

/* True if one block sorts all pairs: it keeps the routing data in shared memory. */
static bool in_one_block(int32_t n_rows, int32_t n_expert) { return n_rows <= 32 && n_expert <= PI__MAX_EXPERTS; }

size_t pi__k_route_scratch_words(int32_t n_rows, int32_t n_expert)
{
    return in_one_block(n_rows, n_expert) ? 0 : (size_t) ((n_rows + 31) / 32) * (size_t) n_expert;
}

int pi__k_route(void *stream, const pi__k_routes *a)
{
    if (a->n_rows < 1) return 0;
    if (a->n_used < 1 || a->n_used > a->n_expert) return 1;
    const size_t marks = sizeof(uint32_t) * (size_t) a->n_expert;
    if (in_one_block(a->n_rows, a->n_expert)) {
        return pi_launch_dependent(stream, route_few, dim3(1), dim3(FEW_WARPS * 32), route_bytes(*a), *a);
    }
    unsigned groups = (unsigned) (a->n_rows + 31) / 32, blocks = (unsigned) (a->n_rows + ROUTE_WARPS - 1) / ROUTE_WARPS;
    int code = pi_launch_dependent(stream, route_rows, dim3(groups), dim3(32 * 32), marks, *a);
    if (!code) code = pi_launch_dependent(stream, count_marks, dim3(1), dim3(32 * 32), ROUTE_SUMS_BYTES, *a);
    return code ? code : pi_launch_dependent(stream, sort_pairs, dim3(blocks), dim3(ROUTE_WARPS * 32), 0, *a);
}

template <int TYPE> static int run_packed(void *stream, const pi__k_routes *r, const grouped &p)
{
    unsigned rows = (unsigned) ((p.a.w.n_out + 15) / 16), n = p.a.data2 ? 2 : 1;
    return each_list(r, p, [=](int list, unsigned most, const grouped &q) {
        dim3 grid(rows, most, n);
        const pi__cuda_shape &s = q.a.w.shape;
        if (list == 0)
            return pi_launch_dependent(stream, experts<TYPE, FEW / 8>, grid, dim3(THREADS),
                                       slice_bytes<TYPE, FEW / 8>(s), q);
        if (list == 1)
            return pi_launch_dependent(stream, experts<TYPE, SOME / 8>, grid, dim3(THREADS),
                                       slice_bytes<TYPE, SOME / 8>(s), q);
        return pi__k_experts_many(stream, q, most);
    });
}

template <int TYPE> static int run_floats(void *stream, const pi__k_routes *r, const grouped &p)
{
    unsigned rows = (unsigned) ((p.a.w.n_out + FLOAT_WARPS - 1) / FLOAT_WARPS), n = p.a.data2 ? 2 : 1;
    return each_list(r, p, [=](int, unsigned most, const grouped &q) {
        return pi_launch_dependent(stream, experts_floats<TYPE>, dim3(rows, most, n), dim3(FLOAT_WARPS * 32), 0, q);
    });
}

int pi__k_experts_run(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared)
{
    if (r->n_rows < 1) return 0;
    const uint8_t *codes = (const uint8_t *) prepared;
    int64_t n_rows = a->row ? r->n_rows : (int64_t) r->n_rows * r->n_used;
    if (codes_bytes(n_rows, a->w.n_in) / sizeof(uint4) > UINT32_MAX) return 1;
    grouped p = {*a,
                 nullptr,
                 nullptr,
                 (const uint4 *) codes,
                 (const block_meta *) (codes + codes_bytes(n_rows, a->w.n_in)),
                 (const float *) prepared,
                 nullptr,
                 nullptr};
    switch (a->w.type) {
#define RUN(t, ...) case PI__##t: return run_packed<PI__##t>(stream, r, p);
        PACKED_TYPES(RUN)
#undef RUN
#define RUN(t, ...) case PI__##t: return run_floats<PI__##t>(stream, r, p);
        FLOAT_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}

int pi__k_add_biases(void *stream, const pi__k_routes *r, float *h, const float *bias, const float *bias2, int64_t n)
{
    if (r->n_rows < 1) return 0;
    const dim3 pairs((unsigned) r->n_rows * (unsigned) r->n_used);
    return pi_launch_dependent(stream, add_biases, pairs, dim3(THREADS), 0, *r, h, bias, bias2, n);
}

int pi__k_add_experts(void *stream, const pi__k_sum *a)
{
    if (a->n_rows < 1) return 0;
    /* few rows: up to 16 blocks per row, to reduce latency */
    const unsigned parts = (unsigned) min((a->n + THREADS - 1) / THREADS, (int64_t) (a->n_rows > 64 ? 1 : 16));
    return pi_launch_dependent(stream, add_experts, dim3((unsigned) a->n_rows, parts), dim3(THREADS), 0, *a);
}
