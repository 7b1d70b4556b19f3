/* Launches of kernels/moe_fp4_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch_moe.cuh"
#include "moe_fp4_kernels.cuh"

template <int TYPE> static int run_fp4(void *stream, const pi__k_routes *r, const grouped &p)
{
    unsigned rows = (unsigned) ((p.a.w.n_out + 15) / 16), n = p.a.data2 ? 2 : 1;
    return each_list(r, p, [=](int list, unsigned most, const grouped &q) {
        dim3 few(rows, most, n), many((rows + FP4_WARPS - 1) / FP4_WARPS, most, n);
        if (list == 0) return pi_launch(stream, fp4_experts<TYPE, FEW / 8>, few, dim3(THREADS), sums_bytes<FEW / 8>, q);
        if (list == 1) return pi_launch(stream, fp4_experts<TYPE, SOME / 8>, few, dim3(THREADS), sums_bytes<SOME / 8>, q);
        return pi_launch(stream, fp4_experts_many<TYPE>, many, dim3(THREADS),
                         pipe_bytes<FP4_STAGES>(fp4_stage_bytes(q.a.w.shape)), q);
    });
}

int pi__k_fp4_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared)
{
    if (r->n_rows < 1) return 0;
    const uint8_t *chunks = (const uint8_t *) prepared;
    size_t size = chunks_bytes(a->row ? r->n_rows : (int64_t) r->n_rows * r->n_used, a->w.n_in);
    if (size / 4 > UINT32_MAX) return 1;
    grouped p = {*a, nullptr, nullptr, nullptr, nullptr, nullptr, chunks, (const float *) (chunks + size)};
    switch (a->w.type) {
    case PI__NVFP4: return run_fp4<PI__NVFP4>(stream, r, p);
    case PI__MXFP4: return run_fp4<PI__MXFP4>(stream, r, p);
    default: return 1;
    }
}
