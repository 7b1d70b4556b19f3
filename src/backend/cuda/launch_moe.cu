/* Launches of kernels/moe_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch_moe.cuh"
#include "moe_kernels.cuh"

int32_t pi__k_max_tiles(int32_t n_rows, int32_t n_expert, int32_t n_used, int list)
{
    int64_t pairs = (int64_t) n_rows * n_used;
    return (int32_t) (list == 0 ? min(pairs, (int64_t) n_expert) : pairs / (list == 1 ? FEW + 1 : SOME + 1));
}

int pi__k_route(void *stream, const pi__k_routes *a)
{
    if (a->n_rows < 1) return 0;
    if (a->n_used < 1 || a->n_used > a->n_expert) return 1;
    if (a->n_rows <= FEW_ROWS) {
        return pi_launch(stream, route_few, dim3(1), dim3(FEW_WARPS * 32), 0, *a);
    }
    unsigned rows = (unsigned) (a->n_rows + ROUTE_WARPS - 1) / ROUTE_WARPS;
    int code = pi_launch(stream, route_rows, dim3(rows), dim3(ROUTE_WARPS * 32), 0, *a);
    if (code) return code;
    unsigned experts = (unsigned) (a->n_expert + ROUTE_WARPS - 1) / ROUTE_WARPS;
    return pi_launch(stream, sort_pairs, dim3(experts), dim3(ROUTE_WARPS * 32), 0, *a);
}

template <int TYPE> static int run_packed(void *stream, const pi__k_routes *r, const grouped &p)
{
    unsigned rows = (unsigned) ((p.a.w.n_out + 15) / 16), n = p.a.data2 ? 2 : 1;
    return each_list(r, p, [=](int list, unsigned most, const grouped &q) {
        dim3 grid(rows, most, n);
        const pi__cuda_shape &s = q.a.w.shape;
        if (list == 0) return pi_launch(stream, experts<TYPE, FEW / 8>, grid, dim3(THREADS), slice_bytes<TYPE, FEW / 8>(s), q);
        if (list == 1) return pi_launch(stream, experts<TYPE, SOME / 8>, grid, dim3(THREADS), slice_bytes<TYPE, SOME / 8>(s), q);
        return pi__k_experts_many(stream, q, most);
    });
}

template <int TYPE> static int run_floats(void *stream, const pi__k_routes *r, const grouped &p)
{
    unsigned rows = (unsigned) ((p.a.w.n_out + FLOAT_WARPS - 1) / FLOAT_WARPS), n = p.a.data2 ? 2 : 1;
    return each_list(r, p, [=](int, unsigned most, const grouped &q) {
        return pi_launch(stream, experts_floats<TYPE>, dim3(rows, most, n), dim3(FLOAT_WARPS * 32), 0, q);
    });
}

int pi__k_experts_run(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared)
{
    if (r->n_rows < 1) return 0;
    const uint8_t *codes = (const uint8_t *) prepared;
    int64_t n_rows = a->row ? r->n_rows : (int64_t) r->n_rows * r->n_used;
    if (codes_bytes(n_rows, a->w.n_in) / sizeof(uint4) > UINT32_MAX) return 1;
    grouped p = {*a, nullptr, nullptr, (const uint4 *) codes, (const block_meta *) (codes + codes_bytes(n_rows, a->w.n_in)),
                 (const float *) prepared, nullptr, nullptr};
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

int pi__k_add_experts(void *stream, const pi__k_routes *r, const float *x, int64_t n, float *y, int64_t ldy)
{
    if (r->n_rows < 1) return 0;
    return pi_launch(stream, add_experts, dim3((unsigned) r->n_rows), dim3(THREADS), 0, *r, x, n, y, ldy);
}
