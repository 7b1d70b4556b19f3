/* Launches of kernels/w16_glu_kernels.cuh for many rows: variant, grid, shared memory (see kernels_w16_glu.h). w16_glu:
 * x = 128 rows of x, y = 64 rows of gate and the same 64 of up, z = part of K. w16_round: one block per row, rounded up
 * to a multiple of 8 rows. */
#include "backend/cuda/launch.cuh"
#include "w16_glu_kernels.cuh"

template <int TYPE> static int run_both(void *stream, const w16_both &a, const pi__k_split *split)
{
    constexpr int64_t VALUES = 16 * W16_MANY_TILES * 8 * W16_MANY_GROUPS, ROWS = 16 * W16_MANY_TILES / 2;
    const unsigned columns = (unsigned) ((a.p.n_rows + W16_MANY_GROUPS * 8 - 1) / (W16_MANY_GROUPS * 8));
    const unsigned blocks = (unsigned) ((a.p.w[0].n_out + ROWS - 1) / ROWS);
    const unsigned parts = (unsigned) split_parts(
        split, {(int64_t) columns * blocks, VALUES * 32 * a.p.shape.n_block / 512, VALUES});
    return pi_launch_dependent(stream, w16_glu<TYPE>, dim3(columns, blocks, parts), dim3(THREADS),
                               pipe_bytes<W16_STAGES>(w16_stage<TYPE>::SIZE), a);
}

int pi__k_w16_round(void *stream, const pi__k_w16_glu *a, int32_t n_rows)
{
    const int64_t n = a->gate.n_out;
    return pi_launch_dependent(stream, w16_round<uint4>, dim3((unsigned) ((n_rows + 7) / 8 * 8)), dim3(THREADS), 0,
                               (const float *) a->y, a->ldy, a->most, n_rows, n,
                               (bool) pi__k_w16_input(a->mid_type), (uint4 *) a->mid,
                               (float *) ((char *) a->mid + w16_rows_bytes(n_rows, n)));
}

int pi__k_w16_glu_run(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows,
                      const pi__k_split *split)
{
    w16_both both;
    if (n_rows < 1) return 0;
    if (n_rows <= PI__K_MMA_ROWS || !w16_both_of(*a, prepared, n_rows, &both)) return 1;
    if (split) both.p.split = {split->sums, split->arrived};
    int code = 1;
    switch (a->gate.type) {
#define RUN(t) case PI__##t: code = run_both<PI__##t>(stream, both, split); break;
        W16_TYPES(RUN)
#undef RUN
    default: break;
    }
    return code ? code : pi__k_w16_round(stream, a, n_rows);
}
