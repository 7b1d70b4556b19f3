/* Shared by attention_kernels.cuh and attention_wgmma_kernels.cuh: the walk over the tiles of keys, by split and span
 * (walk_splits()); the online softmax of a tile (softmax(), scale()); P as mma operand A (make_a()). */
#ifndef PI_ATTENTION_WALK_CUH
#define PI_ATTENTION_WALK_CUH

#include "attention_scores.cuh"

namespace attention {

/* Sets *first and *last to the indices of the first and last tile of keys that a block of threads processes: all tiles
 * that its rows (w) attend to, or only the tiles of its unit (blockIdx.z). Returns false if the rows have no such
 * unit. */
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

/* Walks the tiles of keys `tile` to `last`, split by split, and writes the sum of each span (put_span()).
 * do_split(tile, stop, acc) adds the tiles `tile` to `stop` of one split to acc, and returns the next tile to process.
 * run: sum of the current span, in registers or shared memory. */
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
        /* Continue if the next tile belongs to the same span. */
        if (tile <= last && tile / ((1 << SPAN_SHIFT) / S::TILE) == stop / ((1 << SPAN_SHIFT) / S::TILE)) continue;
        put_span<S>(j, facts.w, tile > last, run, facts.all[S::thread()]);
    }
}

/* Adds a.rel to the scores s of the STEP keys from position key0 (see pi__attention). */
template <class S>
PI_FN void add_rel(const pi__k_attn &a, const work &w, int32_t key0, float (&s)[S::STEP / 8][4])
{
    const int lane = S::thread() % 32, row0 = S::group() * 16 + lane / 4;
    const int32_t reach = a.n_rel / 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (!row_there(w, row0 + 8 * r)) continue;
        const float *rel = a.rel + (int64_t) row_head(w, row0 + 8 * r) * a.n_rel;
        const int32_t first = key0 + lane % 4 * 2 - a.pos[row_token(w, row0 + 8 * r)];
#pragma unroll
        for (int i = 0; i < S::STEP / 4; i++) {
            const int32_t d = first + i / 2 * 8 + i % 2;
            float &x = s[i / 2][2 * r + i % 2];
            x += a.n_rel == 1 ? -rel[0] * (float) abs(d) : rel[max(-reach, min(reach, d)) + reach];
        }
    }
}

/* One softmax step, in place: s holds the scores of the STEP keys from position key0, and receives P = exp2(score *
 * log2(e) - m), in f32. Masked keys get P = 0. m: maxima of the thread's two rows, raised to the new scores. c[r]:
 * exp2(old m - new m), the factor for the old sums of row r. */
template <class S>
PI_FN void softmax(const pi__k_attn &a, const block_facts<S> &facts, int32_t key0, float (&s)[S::STEP / 8][4],
                   float (&m)[2], float (&c)[2])
{
    const int lane = S::thread() % 32, group = S::group();
    float top[2] = {PI_MINUS_INF, PI_MINUS_INF}, base[2];
    if constexpr (S::REL) {
        if (a.rel) add_rel<S>(a, facts.w, key0, s);
    }
    if (a.softcap != 0) {
#pragma unroll
        for (int i = 0; i < S::STEP / 2; i++) s[i / 4][i % 4] = capped(s[i / 4][i % 4], a.softcap);
    }
    /* Mask keys outside a row's range. Tiles in which all 16 rows attend to all keys skip this. */
    if (key0 < facts.group[group].all_from || key0 + S::STEP - 1 > facts.group[group].all_to) {
        const row_keys of[2] = {facts.row[16 * group + lane / 4], facts.row[16 * group + lane / 4 + 8]};
#pragma unroll
        for (int i = 0; i < S::STEP / 2; i++) {
            const int32_t key = key0 + lane % 4 * 2 + i / 4 * 8 + i % 2;
            if (key < of[i % 4 / 2].lo || key > of[i % 4 / 2].hi) s[i / 4][i % 4] = PI_MINUS_INF;
        }
    }
    /* Row maxima: over the thread's scores, then over the four lanes that have the same row. */
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

/* is_new: true if the maximum of any row of the warp has changed. Only then scale() must multiply the sums O and l by
 * c. */
PI_FN bool is_new(const float (&c)[2]) { return __any_sync(PI_FULL, c[0] != 1.0f || c[1] != 1.0f); }
template <int N> PI_FN void scale(const float (&c)[2], sums<N> &acc)
{
#pragma unroll
    for (int i = 0; i < N * 4; i++) acc.o[i / 4][i % 4] *= c[i % 4 / 2];
    acc.l[0] *= c[0], acc.l[2] *= c[1];
}

/* Converts P of 16 keys, 8 in `first` and 8 in `next` (mma accumulator layout), into mma operand A in f16. high: four
 * words. LOW: low[4] receives the f16 of the remainders, for HILO; otherwise low may be NULL. */
template <bool LOW>
PI_FN void make_a(const float (&first)[4], const float (&next)[4], uint32_t (&high)[4], uint32_t *low)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        /* A pointer, not a reference: GCC with -fsanitize=undefined treats an array reference chosen by ?: as the first
         * array. */
        const float *of = i < 2 ? first : next;
        const float x = of[i % 2 * 2], y = of[i % 2 * 2 + 1];
        high[i] = ptx_half2(x, y);
        if (LOW) low[i] = ptx_half2(x - ptx_floats(high[i]).x, y - ptx_floats(high[i]).y);
    }
}

} /* namespace attention */

#endif
