/* The steps of an epilogue for one row: sum of expert outputs, residual adds with their norms, and packing. Included
 * by the shared epilogue (tail_products.cuh), the separate launch (tail_kernels.cuh) and the residual streams
 * (hyper.cuh). */
#ifndef PI_TAIL_ROW_CUH
#define PI_TAIL_ROW_CUH

#include "tail.cuh"

/* Packs part `of` of row `row` in FP4 or FP8, on devices with FP4 tensor cores. WAY: FP4_* of fp4_rows.cuh. scratch: as
 * for fp4_put_row(). */
template <int WAY>
PI_CALL void put_fp4_way(const pi__k_tail &t, const input_row &in, int64_t row, row_share of, float *scratch)
{
    uint8_t *to = (uint8_t *) t.fp4;
    fp4_put_row<WAY>(in, row, t.n_in, true, of, to, (float *) (to + fp4_factors_at(WAY, t.n_rows, t.n_in)), scratch);
}
PI_FN void put_fp4(const pi__k_tail &t, const input_row &in, int64_t row, row_share of, float *scratch)
{
    if (!ptx_has_fp4()) return;
    if (t.fp8) put_fp4_way<FP4_MX8>(t, in, row, of, scratch);
    else if (t.fp4_type == PI__NVFP4) put_fp4_way<FP4_NV>(t, in, row, of, scratch);
    else put_fp4_way<FP4_MX>(t, in, row, of, scratch);
}

/* Packs part `of` of row `row` in every requested format except FP4 and terms. scratch: as for row_max(). */
PI_FN void put_row(const pi__k_tail &t, const input_row &in, int64_t row, row_share of, float *scratch)
{
    if (t.floats) put_floats(in, row, t.n_in, of, (float *) t.floats);
    if (t.integers) {
        uint8_t *codes = (uint8_t *) t.integers;
        block_meta *meta = (block_meta *) (codes + (size_t) ((t.n_rows + 7) / 8 * (t.n_in / 32)) * 512);
        put_integers(in, row, t.n_in, true, of, codes, meta);
    }
    if (t.halves) {
        uint16_t *words = (uint16_t *) t.halves;
        float *factor = (float *) ((char *) t.halves + w16_rows_bytes(t.n_rows, t.n_in));
        put_halves(in, row, t.n_in, true, t.bf16, of, words, factor, scratch);
    }
}

/* Returns the block's copy of operand `which` (NEAR_*) in shared memory; NULL = no copy. */
PI_FN float *near_at(const pi__k_tail &t, int which, float *scratch)
{
    return t.near[which] ? scratch + t.near[which] : nullptr;
}

/* Starts the copy of n floats from global memory to shared memory. to or from NULL = no copy. */
PI_CALL void copy_near(float *to, const float *from, int32_t n)
{
    if (!to || !from) return;
    const uint32_t at = ptx_shared(to);
#pragma unroll 2
    for (int32_t i = 4 * (int32_t) threadIdx.x; i < n; i += 4 * (int32_t) blockDim.x)
        ptx_cp_async16(at + 4 * (uint32_t) i, from + i);
}

/* copy_given() starts the copies of row `row` that do not depend on the launch's results: weights, and residuals x of
 * earlier launches. copy_made() copies the operands that the blocks of this launch have computed, and waits for all
 * copies. */
PI_CALL void copy_given(const pi__k_tail &t, int64_t row, float *scratch)
{
    const pi__k_add &a = t.add[0], &b = t.add[1];
    copy_near(near_at(t, NEAR_X, scratch), a.fresh || a.made ? nullptr : a.x + row * a.n, (int32_t) a.n);
    copy_near(near_at(t, NEAR_W, scratch), a.w ? a.w : a.bias, (int32_t) a.n);
    copy_near(near_at(t, NEAR_X2, scratch), b.fresh || b.made || b.x == a.x ? nullptr : b.x + row * b.n, (int32_t) b.n);
    copy_near(near_at(t, NEAR_W2, scratch), b.w ? b.w : b.bias, (int32_t) b.n);
    copy_near(near_at(t, NEAR_IN_W, scratch), t.in.w, (int32_t) t.n_in);
}
PI_FN void copy_made(const pi__k_tail &t, int64_t row, float *scratch)
{
    const pi__k_add &a = t.add[0], &b = t.add[1];
    if (!t.sum.n_used) copy_near(near_at(t, NEAR_Y, scratch), a.y + row * a.n, (int32_t) a.n);
    if (a.made) copy_near(near_at(t, NEAR_X, scratch), a.x + row * a.n, (int32_t) a.n);
    if (b.made) copy_near(near_at(t, NEAR_X2, scratch), b.x + row * b.n, (int32_t) b.n);
    copy_near(near_at(t, NEAR_IN_X, scratch), t.in.x + row * t.in.ldx, (int32_t) t.n_in);
    ptx_cp_async_commit();
    ptx_cp_async_wait<0>();
    __syncthreads();
}

/* Steps of tail_row() as separate functions. An epilogue executes few of them, once, and waits for instruction fetches.
 * Inlined, the code of unused steps would lie between the used ones. */
PI_CALL void tail_input(const pi__k_tail &t, const input_row &in, int64_t row, row_share of, float *scratch)
{
    put_row(t, in, row, of, scratch);
}
PI_CALL void tail_terms(const pi__k_tail &t, const input_row &in, int64_t row, row_share of)
{
    if (t.terms_type == PI__BF16) put_terms<PI__BF16>(in, row, t.n_in, true, of, (uint8_t *) t.terms);
    else put_terms<PI__F16>(in, row, t.n_in, true, of, (uint8_t *) t.terms);
}
PI_CALL float tail_add(const pi__k_add &a, int64_t row, float *scratch, float *x, const float *y, const float *w)
{
    return add_row(a, row, scratch, {x, y, w});
}
PI_CALL void tail_sum(const pi__k_sum &s, int64_t row, float *near) { sum_row(s, row, {0, 1}, near); }

/* Packs the RMSNorm of a row x of n values in shared memory: x becomes x * norm * w, and is written in the requested
 * formats (floats, terms, halves). Does the work of put_row() and tail_terms() in less code. scratch: as for
 * block_max(), whose barrier makes the new x visible to all threads. */
PI_CALL void smem_copy_norm(const pi__k_tail &t, int64_t row, float *x, const float *w, float norm, int32_t n,
                            float *scratch)
{
    const int32_t first = (int32_t) threadIdx.x, step = (int32_t) blockDim.x;
    float *floats = t.floats ? (float *) t.floats + row * n : nullptr, most = 0;
    struct factors {
        float x, w;
    };
    row_values(first, step, n, [&](int32_t i) { return factors{x[i], w[i]}; }, [&](int32_t i, const factors &of) {
        const float v = of.x * norm * of.w;
        x[i] = v;
        if (floats) floats[i] = v;
        most = fmaxf(most, abs_or_inf(v));
    });
    const row_scale scale = scale_of_row(block_max(most, scratch));
    if (t.terms) tail_terms(t, {x, nullptr, nullptr, PI__IN_PLAIN, 1.0f, 0.0f}, row, {0, 1});
    if (!t.halves) return;
    if (threadIdx.x == 0) ((float *) ((char *) t.halves + w16_rows_bytes(t.n_rows, n)))[row] = scale.factor;
    uint32_t *words = (uint32_t *) t.halves + row / 8 * (n / 32) * 128 +
                      w16_word_at((uint32_t) (row % 8), threadIdx.x % 16);
    struct pair {
        float a,
            b; /* columns c and c + 16 of a block of 32, swapped in odd half warps: no bank conflicts within a warp */
    };
    const int32_t odd = first / 16 % 2;
    const float *from = x + 16 * odd;
    row_values(
        first, step, n / 2,
        [&](int32_t i) {
            const int32_t c = i / 16 * 32 + i % 16;
            return pair {from[c], from[c + 16 - 32 * odd]};
        },
        [&](int32_t i, const pair &p) {
            const float low = scale.bad ? 0.0f : (odd ? p.b : p.a) * scale.by,
                        high = scale.bad ? 0.0f : (odd ? p.a : p.b) * scale.by;
            words[i / 16 * 128] = w16_word(low, high, t.bf16);
        });
}

/* Computes row `row` of an epilogue with t.all_near set, after the sum of expert outputs. Does the work of tail_row()
 * in less code. */
PI_CALL void near_row(const pi__k_tail &t, int64_t row, float *scratch)
{
    const pi__k_add &a = t.add[0];
    const int32_t n = (int32_t) a.n;
    float *x = scratch + t.near[NEAR_X], *to = a.x + row * n;
    const float *y = scratch + t.near[NEAR_Y], *w = a.w || a.bias ? scratch + t.near[NEAR_W] : nullptr;
    const float factor = a.w ? norm_factor(y, a.eps, n, scratch) : 1.0f;
    const float squares = add_values(a, factor, x, y, w, [&](int32_t i, float v) { to[i] = x[i] = v; });
    smem_copy_norm(t, row, x, scratch + t.near[NEAR_IN_W], norm_of(squares, t.in.eps, n, scratch + 32), n,
                   scratch + 64);
}

/* Computes part `of` of row `row` of an epilogue, by the threads of a block, in the order sum, adds, packing. Each
 * thread reads only those columns of y and x, and of their copies, that it wrote itself, so most steps need no barrier.
 * NEAR: false = no copies exist, and the code for them is left out. */
template <bool NEAR = true> PI_FN void tail_row(const pi__k_tail &t, int64_t row, row_share of, float *scratch)
{
    const pi__k_add &a = t.add[0], &b = t.add[1];
    const bool two = b.x;
    float squares = 0, *copy = near_at(t, NEAR_IN_X, scratch), *x = near_at(t, NEAR_X, scratch),
          *y = near_at(t, NEAR_Y, scratch);
    if (t.sum.n_used) tail_sum(t.sum, row, y);
    if (NEAR && t.all_near) return near_row(t, row, scratch);
    if (a.x) squares = tail_add(a, row, scratch, x, y, near_at(t, NEAR_W, scratch));
    if (two) {
        __syncthreads(); /* scratch is free again */
        y = b.y == a.x ? x : nullptr, x = near_at(t, NEAR_X2, scratch);
        squares = tail_add(b, row, scratch, x, y, near_at(t, NEAR_W2, scratch));
    }
    if (!t.floats && !t.integers && !t.halves && !t.fp4 && !t.terms) return;
    const bool last = two ? norm_is_of(t, b) : norm_is_of(t, a);
    const float *w = near_at(t, NEAR_IN_W, scratch);
    if (last) copy = x;
    input_row in = {copy ? copy : t.in.x + row * t.in.ldx,
                    t.in.x2 ? t.in.x2 + row * t.in.ldx2 : nullptr,
                    w ? w : t.in.w,
                    t.in.kind,
                    1.0f,
                    t.in.limit};
    if (in.kind == PI__IN_RMSNORM && last) in.norm = norm_of(squares, t.in.eps, t.n_in, scratch + 32);
    else if (in.kind == PI__IN_RMSNORM) in.norm = norm_factor(in.x, t.in.eps, t.n_in, scratch + 32);
    /* the sums are visible to all threads: row_max() reads columns of other threads */
    if (in.kind == PI__IN_PLAIN && a.x) __syncthreads();
    tail_input(t, in, row, of, scratch + 64);
    if (t.terms) tail_terms(t, in, row, of);
    if (!t.fp4) return;
    __syncthreads(); /* scratch is free and sums are visible: threads pack other columns than they have added */
    put_fp4(t, in, row, of, scratch + 64);
}

#endif
