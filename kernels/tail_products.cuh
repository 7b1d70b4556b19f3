/* The epilogue of products, one copy for all kernels (declared in tail.cuh, compiled in launch_tail_products.cu). With
 * a copy in each kernel, the epilogue was up to 96 % of a kernel's code. Then each launch fetched its own copy from
 * memory, on one multiprocessor, while all other blocks had ended.
 *
 * Kernels that call it have at most 128 registers (two blocks of 256 threads per multiprocessor), so
 * launch_tail_products.cu is compiled for at most 128 registers. */
#ifndef PI_TAIL_PRODUCTS_CUH
#define PI_TAIL_PRODUCTS_CUH

#include "tail_row.cuh"

/* Does op qkv for the block's share s of (token, head) pairs, one warp per pair. rows: shared memory, head_dim floats
 * per warp of the block. */
PI_CALL void share_heads(tail_share s, const pi__k_qkv &a, float *rows)
{
    const int32_t warps = (int32_t) blockDim.x / 32, warp = (int32_t) threadIdx.x / 32, heads = qkv_heads(a);
    for (int32_t i = s.part * warps + warp; i < a.n_tokens * heads; i += s.parts * warps) {
        qkv_head(a, i / heads, i % heads, rows + warp * a.cache.head_dim, (int) threadIdx.x % 32);
        __syncwarp();
    }
}

PI_SHARED void do_share(const pi__k_tail &t, tail_share s, float *scratch, bool begun)
{
    if (t.qkv.n_tokens) return share_heads(s, t.qkv, scratch);
    if (t.n_rows <= 0) return;
    share_rows(s, t.n_rows, rows_are_whole(t), [&](int32_t row, row_share of) {
        if (!begun || row != s.part) copy_given(t, row, scratch);
        copy_made(t, row, scratch);
        tail_row(t, row, of, scratch);
    });
}
PI_FN void begin_share(const pi__k_tail &t, tail_share s, float *scratch)
{
    if (!t.qkv.n_tokens && s.part < t.n_rows) copy_given(t, s.part, scratch);
}

PI_SHARED void run_tail(const pi__k_tail &t, unsigned char *shared)
{
    float *scratch = (float *) shared;
    const auto begin = [&](tail_share share) { begin_share(t, share, scratch); };
    const tail_share s = arrive(t, (uint32_t *) (scratch + 96), begin);
    if (s.parts) do_share(t, s, scratch, true);
}

#endif
