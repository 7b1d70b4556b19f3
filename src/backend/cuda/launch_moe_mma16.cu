/* Launches of kernels/moe_mma16_kernels.cuh: variant, grid, shared memory (see kernels.h). Grid: x = 16 rows of W (list
 * 2: 128 rows), y = tile of a list, z = first or second matrix. */
#include "backend/cuda/launch_moe.cuh"
#include "moe_mma16_kernels.cuh"

using namespace moe;

template <int TYPE> static int run_mma16(void *stream, const pi__k_routes *r, const grouped &p)
{
    unsigned rows = (unsigned) ((p.a.w.n_out + 15) / 16), n = p.a.data2 ? 2 : 1;
    return each_list(r, p, [=](int list, unsigned most, const grouped &q) {
        dim3 few(rows, most, n), many((rows + 7) / 8, most, n);
        if (list == 0)
            return pi_launch_dependent(stream, mma16_experts<TYPE, FEW / 8>, few, dim3(THREADS), sums_bytes<FEW / 8>,
                                       q);
        if (list == 1)
            return pi_launch_dependent(stream, mma16_experts<TYPE, SOME / 8>, few, dim3(THREADS), sums_bytes<SOME / 8>,
                                       q);
        return pi_launch_dependent(stream, mma16_experts_many<TYPE>, many, dim3(THREADS),
                         pipe_bytes<MMA16_STAGES>(mma16_stage<TYPE>), q);
    });
}

int pi__k_mma16_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared)
{
    if (r->n_rows < 1) return 0;
    size_t size = mma16_bytes(a->w.type, a->row ? r->n_rows : (int64_t) r->n_rows * r->n_used, a->w.n_in);
    if (size / 4 > UINT32_MAX || !pi__k_mma16_has(a->w.type, a->w.n_in)) return 1;
    grouped p = {*a, nullptr, nullptr, nullptr, nullptr, nullptr, (const uint8_t *) prepared, nullptr};
    return a->w.type == PI__BF16 ? run_mma16<PI__BF16>(stream, r, p) : run_mma16<PI__F16>(stream, r, p);
}
