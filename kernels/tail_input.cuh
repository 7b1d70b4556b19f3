/* The epilogue that only packs a PLAIN input, for kernels with blocks of any number of threads (attention, delta nets,
 * sparse attention). One copy for all kernels (declared in tail.cuh, compiled in launch_tail_input.cu). Kernels that
 * call it may have only 64 registers, so the file is compiled for at most 64. */
#ifndef PI_TAIL_INPUT_CUH
#define PI_TAIL_INPUT_CUH

#include "tail_row.cuh"

/* Packs the block's part `part` of `parts` of a PLAIN input in FP4 or FP8. */
PI_CALL void share_fp4(const pi__k_tail &t, int32_t part, int32_t parts, float *scratch)
{
    share_rows({part, parts}, t.n_rows, rows_are_whole(t), [&](int32_t row, row_share of) {
        put_fp4(t, {t.in.x + row * t.in.ldx, nullptr, nullptr, PI__IN_PLAIN, 1.0f, 0.0f}, row, of, scratch);
    });
}

/* Packs the block's share s of a PLAIN input in every format except FP4. */
PI_CALL void share_input(const pi__k_tail &t, tail_share s, float *scratch)
{
    const bool rows = t.floats || t.integers || t.halves;
    if (!rows && !t.terms) return;
    share_rows(s, t.n_rows, false, [&](int32_t row, row_share of) {
        const input_row in = {t.in.x + row * t.in.ldx, nullptr, nullptr, PI__IN_PLAIN, 1.0f, 0.0f};
        if (rows) put_row(t, in, row, of, scratch);
        if (t.terms) tail_terms(t, in, row, of);
    });
}

PI_SHARED void do_input_share(const pi__k_tail &t, tail_share s, float *scratch)
{
    if (t.fp4) share_fp4(t, s.part, s.parts, scratch);
    share_input(t, s, scratch);
}

PI_SHARED void run_input_tail(const pi__k_tail &t, unsigned char *shared)
{
    float *scratch = (float *) shared;
    const tail_share s = arrive(t, (uint32_t *) (scratch + 96));
    if (s.parts) do_input_share(t, s, scratch);
}

#endif
