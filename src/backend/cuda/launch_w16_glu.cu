/* Launches of kernels/w16_glu_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "w16_glu_kernels.cuh"

template <int TYPE> static int run_both(void *stream, const w16_both &a, const pi__k_split *split)
{
    constexpr int64_t VALUES = 16 * W16_MANY_TILES * 8 * W16_MANY_GROUPS, ROWS = 16 * W16_MANY_TILES / 2;
    const unsigned columns = (unsigned) ((a.p.n_rows + W16_MANY_GROUPS * 8 - 1) / (W16_MANY_GROUPS * 8));
    const unsigned blocks = (unsigned) ((a.p.w[0].n_out + ROWS - 1) / ROWS);
    const unsigned parts = (unsigned) split_parts(split, {(int64_t) columns * blocks, VALUES * 32 * a.p.shape.n_block / 512, VALUES});
    return pi_launch_dependent(stream, w16_glu<TYPE>, dim3(columns, blocks, parts), dim3(THREADS),
                               pipe_bytes<W16_STAGES>(w16_stage<TYPE>::SIZE), a);
}

static int run_round(void *stream, const pi__k_w16_glu *a, int32_t n_rows)
{
    const int64_t n = a->gate.n_out;
    auto kernel = pi__k_w16_input(a->mid_type) ? w16_round<true> : w16_round<false>;
    return pi_launch_dependent(stream, kernel, dim3((unsigned) ((n_rows + 7) / 8 * 8)), dim3(THREADS), 0, (const float *) a->y, a->ldy,
                               a->most, n_rows, n, (uint4 *) a->mid, (float *) ((char *) a->mid + w16_rows_bytes(n_rows, n)));
}

int pi__k_w16_glu_run(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows, const pi__k_split *split)
{
    const pi__k_matrix &m = a->gate;
    if (n_rows < 1) return 0;
    if (n_rows <= PI__K_MMA_ROWS || m.n_out < 1 || m.n_out % 32 || a->ldy % 4 || (uintptr_t) a->y % 16) return 1;
    w16_both both = {{m.shape, (const uint4 *) prepared, (const float *) ((const char *) prepared + w16_rows_bytes(n_rows, m.n_in)),
                      n_rows, 2, {}, {}, {}}, a->act, a->limit, a->most};
    both.p.w[0] = {m.data, m.scale, a->y, a->ldy, m.n_out, 0, 0};
    both.p.w[1] = {a->up, a->up_scale, nullptr, 0, m.n_out, 0, 0};
    if (split) both.p.split = {split->sums, split->arrived};
    int code = 1;
    switch (m.type) {
#define RUN(t) case PI__##t: code = run_both<PI__##t>(stream, both, split); break;
        W16_TYPES(RUN)
#undef RUN
    default: break;
    }
    return code ? code : run_round(stream, a, n_rows);
}
