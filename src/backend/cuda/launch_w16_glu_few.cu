/* Launches of w16_glu_few() of kernels/w16_glu_kernels.cuh, for up to PI__K_MMA_ROWS rows: variant, grid, shared memory
 * (see kernels_w16_glu.h). One block per 8 * R rows of gate and the same rows of up, for all rows of x. */
#include "backend/cuda/launch.cuh"
#include "w16_glu_kernels.cuh"

template <int TYPE, int NT, int R> static int run(void *stream, const w16_both &a)
{
    const unsigned blocks = (unsigned) ((a.p.w[0].n_out + 8 * R - 1) / (8 * R));
    return pi_launch_dependent(stream, w16_glu_few<TYPE, NT, R>, dim3(blocks), dim3(THREADS),
                               max(w16_stream<TYPE, NT, R>::bytes(), 2 * sums_bytes<NT>), a);
}

template <int TYPE> static int run_rows(void *stream, const w16_both &a)
{
    if (a.p.n_rows <= 8 && a.p.w[0].n_out < 8 * W16_TILES * W16_MIN_BLOCKS) return run<TYPE, 1, 2>(stream, a);
    if (a.p.n_rows <= 8) return run<TYPE, 1, W16_TILES>(stream, a);
    if (a.p.n_rows <= 16) return run<TYPE, 2, W16_TILES>(stream, a);
    if (a.p.n_rows <= 32) return run<TYPE, 4, W16_TILES>(stream, a);
    return run<TYPE, 8, W16_TILES>(stream, a);
}

int pi__k_w16_glu_few(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows)
{
    w16_both both;
    if (n_rows < 1) return 0;
    if (n_rows > PI__K_MMA_ROWS || !w16_both_of(*a, prepared, n_rows, &both)) return 1;
    if (n_rows <= PI__K_TAIL_ROWS) {
        both.arrived = a->arrived, both.bf16 = pi__k_w16_input(a->mid_type);
        both.words = (uint4 *) a->mid,
        both.factor = (float *) ((char *) a->mid + w16_rows_bytes(n_rows, a->gate.n_out));
    }
    int code = 1;
    switch (a->gate.type) {
#define RUN(t) case PI__##t: code = run_rows<PI__##t>(stream, both); break;
        W16_TYPES(RUN)
#undef RUN
    default: break;
    }
    return code || both.arrived ? code : pi__k_w16_round(stream, a, n_rows);
}
