/* The gated delta rule in prefill, before and after the walk over chunks (many(), gdn_kernels.cuh). prepare() computes
 * everything that needs no state, for all chunks in parallel, to the scratch described in gdn.cuh. finish() computes
 * the gated norm.
 *
 * prepare() has a block per chunk and key head. Its four warps compute keys and queries, then their products with the
 * keys of the chunk. Then each warp computes gates, T, P and values of one value head that has this key head, then of
 * the next. finish() has a block per chunk and some value heads. FAST kernels handle chunks of 16 new rows without
 * conditions; other chunks use loops.
 *
 * prepare()'s instructions per token and value head:
 *
 *     row of values                       42    convolution and silu: 33
 *     row of keys and one of queries      37    a third of 2 x 55, shared by the heads of a key head; exact mode: 42
 *     products of keys and queries         6    also shared; exact mode: 9
 *     T and P                             23
 *     their factors                        9
 *     gates                                5
 *     finding sequence and addresses      16
 *
 * finish() has 41 instructions for the norm and gate of a row. */
#ifndef PI_GDN_PREPARE_CUH
#define PI_GDN_PREPARE_CUH

#include "gdn_chunk.cuh"

namespace gdn {

enum {
    ROWS_THREADS = 128,
    FINISH_HEADS = 16, /* value heads per block of finish() */
};

constexpr size_t TILE_BYTES = sizeof(sequence) + sizeof(chunk); /* bytes that one_finds_tile() writes */

/* Offsets in the shared memory of a warp, in words: factors [k, q][C][C], KIND apart; then [C] each: log2 decays,
 * -beta, 1, over, left. DOTS: words between the products of keys and of queries, [C keys] rows of PITCH words. Products
 * and factors of keys and of queries are 16 banks apart, the products of two keys 20 banks. */
struct own_shape {
    static constexpr int KIND = C * C + C, PITCH = C + 4, DOTS = C * PITCH + C;
    static constexpr int decay = 2 * KIND, minus_beta = decay + C, over = minus_beta + 2 * C;
    static constexpr int left = over + C, OWN = left + C;
};
template <int D, bool EXACT> struct prepare_shape : own_shape {
    static constexpr int dots = planes<D, EXACT>::WORDS; /* [k, q][C keys][C rows] products */
    static constexpr int own = dots + 2 * DOTS;          /* one own_shape per warp */
    static constexpr int tile = own + ROWS_THREADS / 32 * OWN;
    static constexpr size_t bytes = sizeof(float) * (size_t) tile + TILE_BYTES;
};

/* Stores the gate x of row `lane` for put_factors() to `own`; lanes 0 .. 15 only. */
PI_FN void put_gate(const gate &x, int lane, float *own)
{
    using S = own_shape;
    if (lane >= C) return;
    own[S::decay + lane] = x.decay;
    own[S::minus_beta + lane] = -x.beta;
    own[S::minus_beta + C + lane] = 1;
    own[S::over + lane] = x.over;
}

/* Computes the factors A (of keys) and M (of queries) of a chunk's rows, by a warp. Lanes 0 .. 15 compute the factors
 * of row l = lane in the keys of all rows i, the other lanes those of row l = lane % 16 in the queries:
 * own[query][i][l]. Only i >= l is valid; earlier rows i get garbage that is not read. dots: products [k, q][C keys][C
 * rows]. Adds to x.sum the decays up to row l. Returns the decay factor from row l to the chunk's end. */
PI_FN float put_factors(const float *dots, float *own, gate &x)
{
    using S = own_shape;
    const int lane = (int) threadIdx.x % 32, l = lane % C, query = lane / C;
    const int later = ptx_opaque(0xfffe << l); /* bit mask of the rows after row l */
    float decayed = 0, left = 0, decay[C / 4][4], sign[C / 4][4], dot[C / 4][4];
#pragma unroll
    for (int i = 0; i < C / 4; i++) { /* all loads come before the stores below */
        four(*(const float4 *) (own + S::decay + 4 * i), decay[i]);
        four(*(const float4 *) (own + S::minus_beta + query * C + 4 * i), sign[i]);
        four(*(const float4 *) (dots + query * S::DOTS + l * S::PITCH + 4 * i), dot[i]);
    }
#pragma unroll
    for (int i = 0; i < C; i++) {
        if (later >> i & 1) decayed += decay[i / 4][i % 4];
        else x.sum += decay[i / 4][i % 4];
        left = ptx_exp2(decayed);
        /* As factor_k() and factor_q(); the units are in `dot`. */
        own[query * S::KIND + i * C + l] = sign[i / 4][i % 4] * (left * dot[i / 4][i % 4]);
    }
    return left;
}

/* Returns the sum of factor[i] * t[i] for i < n, in order of i. */
PI_FN float add_mixed(const float *factor, int n, const float (&t)[C])
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < C; i += 4) {
        if (i >= n) break;
        float f[4];
        four(*(const float4 *) (factor + i), f);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (i + k < n) sum = fmaf(f[k], t[i + k], sum);
        }
    }
    return sum;
}

/* Computes T and P of a chunk of 16 new rows to the scratch at `to` ([C] rows of T, P: 2 MIX words each), by a warp.
 * Lanes l and l + 16 have column l of T. The lower lanes store T, the upper ones its remainders. Of P the lower lanes
 * compute the even rows, the upper ones the odd rows. T is multiplied by own[left]. */
PI_FN void put_whole_mix(float *to, const float *own)
{
    using S = own_shape;
    const int lane = (int) threadIdx.x % 32, l = lane % C, high = lane / C;
    const uint32_t first = high ? 0xffffe000 : 0; /* upper lanes: the mask of rest_of_tf32(); lower lanes: none */
    const int own_row = ptx_opaque(1 << l);
    float t[C], left[C / 4][4];
#pragma unroll
    for (int i = 0; i < C; i += 4) four(*(const float4 *) (own + S::left + i), left[i / 4]);
#pragma unroll
    for (int i = 0; i < C; i++) {
        const float sum = add_mixed(own + i * C, i, t); /* 0 for i <= l, since t is 0 before row l */
        t[i] = own_row >> i & 1 ? 1.0f : sum;
        const float x = t[i] * left[i / 4][i % 4];
        if (in_mix(i, l)) to[i * 2 * MIX + mix_at(l, high)] = x - __uint_as_float(__float_as_uint(x) & first);
    }
    own += S::KIND + high * C;
    to += high * 2 * MIX + MIX + mix_at(l, false);
#pragma unroll
    for (int i = 0; i < C; i += 2) { /* rows i and i + 1 */
        float sum = add_mixed(own + i * C, i + 1, t);
        /* separate, since t[i + 1] may be NaN and must not enter row i */
        if (high) sum = fmaf(own[i * C + i + 1], t[i + 1], sum);
        if (!in_mix(i, l)) continue;
        to[i * 2 * MIX] = sum;
        to[i * 2 * MIX + 2] = rest_of_tf32(sum);
    }
}

/* put_whole_mix() for a chunk with old or missing rows, with few registers: computes T and P of the new rows to the
 * scratch of token `token`, the first new one. T of old rows is read from the slot. own: factors and decays of the warp
 * (own_shape). */
PI_FN void put_mix(const job &j, const sequence &s, const chunk &c0, int32_t head, int32_t token, const float *own)
{
    using S = own_shape;
    const int lane = (int) threadIdx.x % 32, l = lane % C, high = lane / C;
    /* Opaque, so that this case's values are not computed before the branch, for full chunks too. */
    const chunk c = {ptx_opaque(c0.from), ptx_opaque(c0.n_old), c0.n_new};
    float *to = new_mix(j, head, token) - c.n_old * 2 * MIX, t[C];
#pragma unroll
    for (int i = 0; i < C; i++) {
        float sum = add_mixed(own + i * C, i, t);
        if (i < c.n_old) sum = l < i ? t_at(j, s.slot, head, c.from + i)[l] : 0.0f;
        t[i] = i == l ? 1.0f : sum;
        const float x = t[i] * own[S::left + i];
        if (i < c.n_old || i >= c.n_old + c.n_new || !in_mix(i, l)) continue;
        to[i * 2 * MIX + mix_at(l, high)] = high ? rest_of_tf32(x) : x;
    }
    own += S::KIND + high * C;
    to += high * 2 * MIX + MIX + mix_at(l, false);
#pragma unroll
    for (int i = 0; i < C; i += 2) { /* rows i and i + 1 */
        float sum = add_mixed(own + i * C, i + 1, t);
        sum = high ? fmaf(own[i * C + i + 1], t[i + 1], sum) : sum; /* t[i + 1] may be NaN and must not enter row i */
        const int row = i + high;
        if (row < c.n_old || row >= c.n_old + c.n_new || !in_mix(i, l)) continue;
        to[i * 2 * MIX] = sum;
        to[i * 2 * MIX + 2] = rest_of_tf32(sum);
    }
}

/* Computes gates, T, P and values (beta v, to `out`) of a chunk's new rows for a value head, by a warp. dots: [k, q][C
 * keys][C rows], products with the chunk's keys. own: the warp's memory (own_shape). */
template <int D, bool FAST>
PI_FN void prepare_head(const job &j, const sequence &s, const chunk &c, int32_t head, const float *dots, float *own)
{
    using S = own_shape;
    const int lane = (int) threadIdx.x % 32;
    const int32_t p = c.from + c.n_old, token = s.first + p - s.pos; /* position and token of the first new row */
    const bool whole = FAST && c.n_new == C;
    gate x = gate_of_row(j, s, head, c, lane);
    put_gate(x, lane, own);
    __syncwarp();
    const float left = put_factors(dots, own, x);
    if (lane >= c.n_old && lane < c.n_old + c.n_new) {
        *(float4 *) new_scalars(j, head, token + lane - c.n_old) = {of_k(x), of_s(x), 0, x.decay};
    }
    if (lane < C) own[S::left + lane] = prepared_for_fold(s, c.from, c.n_new) ? left : 1.0f;
    __syncwarp();
    if (whole) put_whole_mix(new_mix(j, head, token), own);
    else put_mix(j, s, c, head, token, own);
    const int32_t channel = (2 * j.a.state.n_k + head) * D + 4 * lane;
    float *to = j.a.out + row_at(token, j.a.ldo) + out_head(j.a, head) * D + 4 * lane;
    if (D == 128 || lane < D / 4) {
        convolution<FAST> conv;
        conv.begin(j, s, p, channel);
        const auto next = [&](int32_t r, float over) {
            float v[4];
            conv.next(j, s, p + r, channel, v);
            *(float4 *) to = {value_of(v[0], over), value_of(v[1], over), value_of(v[2], over), value_of(v[3], over)};
            to += row_at(1, j.a.ldo);
        };
#pragma unroll 1
        for (int32_t r = 0; whole && r < C; r += 4) {
            float over[4];
            four(*(const float4 *) (own + S::over + r), over);
#pragma unroll
            for (int i = 0; i < 4; i++) next(r + i, over[i]);
        }
#pragma unroll 1
        for (int32_t r = 0; !whole && r < c.n_new; r++) next(r, own[S::over + c.n_old + r]);
    }
    __syncwarp();
}

/* Finds the block's tile (blockIdx.x) in one thread, and writes its sequence and its chunk to shared memory, at `to`.
 * Called by all threads; ends with a barrier. Returns false if the index has no tile. */
PI_FN bool one_finds_tile(const job &j, sequence &to)
{
    chunk &c = *(chunk *) (&to + 1);
    if (threadIdx.x == 0) {
        sequence s;
        chunk found = {};
        if (!find_tile(j, (int32_t) blockIdx.x, s, found)) found.n_new = 0;
        to = s, c = found;
    }
    __syncthreads();
    return c.n_new > 0;
}

/* prepare() for heads of D values. raw: shared memory. */
template <int D, bool EXACT, bool FAST> PI_FN void prepare_tile(const job &j, unsigned char *raw)
{
    using P = planes<D, EXACT>;
    using S = prepare_shape<D, EXACT>;
    float *sm = (float *) raw;
    uint32_t *pl = (uint32_t *) raw;
    if (!one_finds_tile(j, *(sequence *) (sm + S::tile))) return;
    const sequence &s = *(const sequence *) (sm + S::tile);
    const chunk c = *(const chunk *) (&s + 1);
    const int32_t k_head = (int32_t) blockIdx.y, p = c.from + c.n_old, token = s.first + p - s.pos;
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    if (c.n_new < C) stage_keys<D, EXACT>(j, s, {k_head, k_head, 0}, c, ROWS_THREADS, pl);
    ptx_cp_async_commit();

    /* Two warps for keys and two for queries; each computes half of the new rows. */
    const bool query = warp % 2;
    const int32_t some = (c.n_new + 1) / 2, first = warp / 2 * some;
    constexpr int ROW = key_words(D, EXACT);
    uint32_t *copy = new_kq(j, k_head, token + first, ROW) + query * ROW;
    uint32_t *to = pl + query * P::KIND + (c.n_old + first) * P::PITCH;
    const auto put = [&](int r, int n, uint2 hi, uint2 lo) {
        ((uint2 *) (to + r * P::PITCH))[n] = ((uint2 *) (copy + r * 2 * ROW))[n] = hi;
        if (EXACT) ((uint2 *) (to + r * P::PITCH + P::PLANE))[n] = ((uint2 *) (copy + r * 2 * ROW + D / 2))[n] = lo;
    };
    keys_or_queries<D, EXACT, FAST>(j, s, k_head, query, p + first, min(some, c.n_new - first), put);
    ptx_cp_async_wait<0>();
    __syncthreads();
    /* Products of the chunk's keys with the keys and queries of a quad, one quad per warp, over both halves of D. */
    float y[2][4];
    times_keys<D, EXACT>(pl, warp, 0, lane, y[0]);
    times_keys<D, EXACT>(pl, warp, 1, lane, y[1]);
#pragma unroll
    for (int n = 0; n < 4; n += 2) { /* two adjacent rows per key */
        const bool of_query = column_of(lane, n) / 4;
        const int to = (of_query ? S::DOTS : 0) + key_of(lane, n) * S::PITCH + 4 * warp + column_of(lane, n) % 4;
        const float unit = KEY_UNIT * (of_query ? QUERY_UNIT : KEY_UNIT);
        *(float2 *) (sm + S::dots + to) = {(y[0][n] + y[1][n]) * unit, (y[0][n + 1] + y[1][n + 1]) * unit};
    }
    __syncthreads();
    /* Gates, T, P and values: each warp has one value head of the key head at a time. */
    for (int32_t head = k_head + warp * j.a.state.n_k; head < j.a.state.n_v;
         head += ROWS_THREADS / 32 * j.a.state.n_k) {
        prepare_head<D, FAST>(j, s, c, head, sm + S::dots, sm + S::own + warp * S::OWN);
    }
}

/* Computes the input of many() for a chunk's new rows, independent of S0. WIDE: heads of 96 or 128 values, else of 32
 * or 64; one kernel for all would have more than 240 KiB of code. Grid: x = tile (find_tile()); y = key head. Block: 4
 * warps. Shared: prepare_shape. FAST: as for `convolution`. */
template <bool WIDE, bool EXACT, bool FAST>
__global__ void __launch_bounds__(ROWS_THREADS, FAST ? 3 : 2) prepare(PI_CONSTANT job j)
{
    constexpr int LESS = WIDE ? 96 : 32, MORE = WIDE ? 128 : 64;
    ptx_wait_dependency();
    PI_SMEM(raw);
    if (j.a.state.dim == LESS) prepare_tile<LESS, EXACT, FAST>(j, raw);
    else prepare_tile<MORE, EXACT, FAST>(j, raw);
}

/* Writes the chunk's new rows to the slot for later steps: decays and T of a value head; for heads below n_k also the
 * keys of key head `head`. Called by a warp. */
template <int D> PI_FN void keep_rows(const job &j, const sequence &s, const chunk &c, int32_t head, int lane)
{
    for (int32_t r = 0; r < c.n_new; r++) {
        const int32_t p = c.from + c.n_old + r, token = s.first + p - s.pos;
        if (head < j.a.state.n_k) {
            const int words = key_words(D, j.a.state.exact);
            for (int i = lane; i < D; i += 32)
                k_at(j, s.slot, head, p)[i] = i < words ? new_kq(j, head, token, words)[i] : 0;
        }
        const float *mixed = new_mix(j, head, token);
        if (lane < C) t_at(j, s.slot, head, p)[lane] = in_mix(c.n_old + r, lane) ? mixed[mix_at(lane, false)] : 0.0f;
        if (lane == 0) *decay_at(j, s.slot, head, p) = new_scalars(j, head, token)[LOG_DECAY];
    }
}

/* finish() for heads of D values. */
template <int D, bool FAST> PI_FN void finish_tile(const job &j, unsigned char *raw)
{
    const sequence &s = *(const sequence *) raw;
    if (!one_finds_tile(j, *(sequence *) raw)) return;
    const chunk c = *(const chunk *) (&s + 1);
    const int32_t token = s.first + c.from + c.n_old - s.pos;
    const int lane = (int) threadIdx.x % 32, row = lane / 8;
    float norm[D / 32][4];
#pragma unroll
    for (int n = 0; n < D / 32; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) norm[n][i] = j.a.norm[32 * n + lane % 8 * 4 + i];
    }
    const int32_t warps = ROWS_THREADS / 32, step = (int32_t) gridDim.y * warps;
    for (int32_t head = (int32_t) blockIdx.y * warps + (int32_t) threadIdx.x / 32; head < j.a.state.n_v; head += step) {
        const float *z = j.a.z + row_at(token + row, j.a.ld_z) + head * D + lane % 8 * 4;
        float *out = j.a.out + row_at(token + row, j.a.ldo) + out_head(j.a, head) * D + lane % 8 * 4;
#pragma unroll 1
        for (int r = 0; r < c.n_new; r += 4, z += row_at(4, j.a.ld_z), out += row_at(4, j.a.ldo)) {
            if (r + 4 <= c.n_new) gated_norm_of_quarter<D, FAST, true>(j.a.eps, norm, z, out, true);
            else gated_norm_of_quarter<D, FAST, false>(j.a.eps, norm, z, out, r + row < c.n_new);
        }
        if (c.from >= s.keep) keep_rows<D>(j, s, c, head, lane);
    }
}

/* Completes a chunk after many(): gated norm in place in `out`, and rows to keep in the slot. Grid: x = tile
 * (find_tile()); y = FINISH_HEADS value heads, divided among 4 warps. Shared: TILE_BYTES. */
template <bool FAST> __global__ void __launch_bounds__(ROWS_THREADS, 5) finish(PI_CONSTANT job j)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    switch (j.a.state.dim) {
    case 32: return finish_tile<32, FAST>(j, raw);
    case 64: return finish_tile<64, FAST>(j, raw);
    case 96: return finish_tile<96, FAST>(j, raw);
    default: return finish_tile<128, FAST>(j, raw);
    }
}

} /* namespace gdn */

#endif
