/* Shared by attention_kernels.cuh and attention_wgmma_kernels.cuh: the walk over tiles of keys, splits and spans; the
 * steps of the softmax; P as operand A of the next products. */
#ifndef PI_ATTENTION_WALK_CUH
#define PI_ATTENTION_WALK_CUH

#include "attention_scores.cuh"

namespace attention {

/* Finds the first and last tile of keys of a block (tile of rows, kv head, unit): all tiles that its rows attend to, or
 * only the unit's. Returns false if the unit has no tiles. */
template <class S> PI_FN bool find_tiles(const attn_job &j, const work &w, int32_t *first, int32_t *last)
{
    *first = w.lo / S::TILE, *last = max(w.hi / S::TILE, *first);
    if (!j.n_units) return true;
    const int32_t number = (w.lo >> j.unit_shift) + (int32_t) blockIdx.z;
    if (number > w.hi >> j.unit_shift) return false;
    *first = max(*first, (number << j.unit_shift) / S::TILE);
    *last = max(min(*last, ((number + 1) << j.unit_shift) / S::TILE - 1), *first);
    return true;
}

/* Walks key tiles `tile` to `last` and writes each span's sum (put_span). do_split(tile, stop, acc) adds tiles `tile`
 * to `stop` of a split to acc and returns the next tile after them. run: the span's running sum. */
template <class S, template <int> class SUMS, class F>
PI_FN void walk_splits(const attn_job &j, block_facts<S> &facts, int32_t tile, int32_t last, SUMS<S::N> &run,
                       const F &do_split)
{
    sums<S::N> acc;
    clear<S::N>(run);
    while (tile <= last) {
        clear(acc);
        const int32_t stop = min(last, tile | ((1 << KV_SHIFT) / S::TILE - 1)); /* last tile of the split */
        tile = do_split(tile, stop, acc);
        fold_split(acc, run);
        if (tile <= last && tile / ((1 << SPAN_SHIFT) / S::TILE) == stop / ((1 << SPAN_SHIFT) / S::TILE)) continue;
        put_span<S>(j, facts.w, tile > last, run, facts.all[S::thread()]);
    }
}

/* Replaces the scores s of the S::STEP keys from key0 by P, in f32, and raises the row maxima m. c: factors by which
 * the new maxima scale the old sums. */
template <class S>
PI_FN void softmax(const pi__k_attn &a, const block_facts<S> &facts, int32_t key0, float (&s)[S::STEP / 8][4],
                   float (&m)[2], float (&c)[2])
{
    const int lane = S::thread() % 32, group = S::group();
    float top[2] = {PI_MINUS_INF, PI_MINUS_INF}, base[2];
    if (a.softcap != 0) {
#pragma unroll
        for (int i = 0; i < S::STEP / 2; i++) s[i / 4][i % 4] = capped(s[i / 4][i % 4], a.softcap);
    }
    /* Mask the keys that a row may not attend to, only in tiles that need it. */
    if (key0 < facts.group[group].all_from || key0 + S::STEP - 1 > facts.group[group].all_to) {
        const row_keys of[2] = {facts.row[16 * group + lane / 4], facts.row[16 * group + lane / 4 + 8]};
#pragma unroll
        for (int i = 0; i < S::STEP / 2; i++) {
            const int32_t key = key0 + lane % 4 * 2 + i / 4 * 8 + i % 2;
            if (key < of[i % 4 / 2].lo || key > of[i % 4 / 2].hi) s[i / 4][i % 4] = PI_MINUS_INF;
        }
    }
    /* Row maxima: over the thread's scores, then over the four lanes of a row. */
#pragma unroll
    for (int i = 0; i < S::STEP / 2; i++) top[i % 4 / 2] = fmaxf(top[i % 4 / 2], s[i / 4][i % 4]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        for (int o = 1; o < 4; o *= 2) top[r] = fmaxf(top[r], __shfl_xor_sync(PI_FULL, top[r], o));
        const float old = m[r];
        m[r] = fmaxf(old, top[r] * LOG2E);
        base[r] = m[r] == PI_MINUS_INF ? 0.0f : m[r];
        c[r] = ptx_exp2(old - base[r]);
    }
#pragma unroll
    for (int i = 0; i < S::STEP / 2; i++)
        s[i / 4][i % 4] = ptx_exp2(fmaf(s[i / 4][i % 4], LOG2E, -base[i % 4 / 2]));
}

/* True if a maximum of the warp's rows has changed: the running sums must then be scaled by c. */
PI_FN bool is_new(const float (&c)[2]) { return __any_sync(PI_FULL, c[0] != 1.0f || c[1] != 1.0f); }
template <int N> PI_FN void scale(const float (&c)[2], sums<N> &acc)
{
#pragma unroll
    for (int i = 0; i < N * 4; i++) acc.o[i / 4][i % 4] *= c[i % 4 / 2];
    acc.l[0] *= c[0], acc.l[2] *= c[1];
}

/* Converts P of 16 keys, 8 in `first` and 8 in `next`, into mma operand A in f16. LOW: `low` receives the remainders,
 * for HILO. */
template <bool LOW>
PI_FN void make_a(const float (&first)[4], const float (&next)[4], uint32_t (&high)[4], uint32_t *low)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        /* GCC with -fsanitize=undefined treats an array chosen by ?: as the first one. */
        const float *of = i < 2 ? first : next;
        const float x = of[i % 2 * 2], y = of[i % 2 * 2 + 1];
        high[i] = ptx_half2(x, y);
        if (LOW) low[i] = ptx_half2(x - ptx_floats(high[i]).x, y - ptx_floats(high[i]).y);
    }
}

} /* namespace attention */

#endif
