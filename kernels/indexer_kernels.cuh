/* The lightning indexer of DeepSeek V4 (op indexer, defined in ops.h): scores all cache entries that a token attends
 * to, and picks the n_top best. A score is the sum over the heads of weight * relu(q . k).
 *
 * index_scores. A thread block has a token and some of its entries. S = Q K^T is one 16x8 mma tile per 16 heads and 8
 * entries. Each lane applies relu and the heads' weights to its values and adds them up; then the lanes are added:
 *
 *     shared memory  Q of 64 heads as hi + lo F16, in the order of the lanes: 16 bytes per lane and load
 *     registers      K, 16 bytes per lane and load, directly from the cache: lane 4 g + t has values 8 t .. 8 t + 7 of
 *                    32 of entry g. The mma's columns are permuted equally for Q, so K needs no shuffle
 *
 * A head's query is multiplied by a power of two, so that hi + lo keeps all 22 bits; the head's weight is divided by
 * it. For keys of rotated types the query is then rotated, and keys stay as stored. A score has one order of summation
 * in every block: batch-invariant.
 *
 * pick_some, pick_rest. The n_top-th largest score is found bit by bit from the highest bit, by counting values at or
 * above a candidate. All larger values are picked, and of equal ones the first. Values are in registers, 16 per thread.
 * For a token with more than 16 K entries, each block of pick_some picks the best of 16 K entries. One block of
 * pick_rest then picks the best of these. The result is identical, since the overall best are among the best of their
 * part. */
#ifndef PI_INDEXER_KERNELS_CUH
#define PI_INDEXER_KERNELS_CUH

#include "ptx.cuh"
#include "row_cache.cuh"
#include "row_turn.cuh"
#include "warp.cuh"

namespace indexer {

enum {
    SCORE_WARPS = 4,
    PICK_THREADS = 1024,
    EACH = 16,            /* values per thread in registers, in choose() */
    PART = PICK_THREADS * EACH,
};

/* Returns the number of entries that a token attends to. */
PI_FN int32_t entries_seen(const pi__k_indexer &k, int32_t token) { return (k.pos[token] + 1) / k.entries.ratio; }

/* --------------------------------------------------------------------------------------------------------- scores */

/* Returns the index of a lane's 16 bytes in Q in shared memory: [tiles of 16 heads][blocks of 32 values][hi, lo][two
 * steps of 16 values][lanes]. */
PI_FN uint32_t word_of(int tile, int32_t n_block, int32_t block, int plane, int step, int lane)
{
    return (uint32_t) ((((tile * n_block + block) * 2 + plane) * 2 + step) * 32 + lane);
}

/* Returns values i and i + 1 of a query. head: the query's dim values. If k.rope is not NULL, they are a product's raw
 * results, and are scaled and rotated here as in make_row() of mla.cuh. */
PI_FN float2 query_pair(const pi__k_indexer &k, int32_t token, const float *head, int32_t i)
{
    const float *rope = k.rope + (size_t) token * (size_t) k.n_rot;
    const int32_t at = i - (k.a.dim - k.n_rot);
    float2 f = {head[i], head[i + 1]};
    if (!k.rope) return f;
    f.x *= k.q_scale, f.y *= k.q_scale;
    if (at >= 0) rotate_pair(f.x, f.y, rope[at / 2], rope[k.n_rot / 2 + at / 2]);
    return f;
}

/* Loads `heads` heads of the token's queries, from head `first` on, into q (layout: word_of()), and their weights into
 * w [heads]. A warp loads a head; heads beyond the end are zeros. n_block: blocks of 32 values per query. turn: also
 * rotate the queries, for keys of rotated types. */
PI_FN void load_queries(const pi__k_indexer &k, int32_t token, int32_t first, int heads, int32_t n_block, bool turn,
                        uint32_t *q, float *w)
{
    const pi__indexer &a = k.a;
    const int lane = (int) threadIdx.x % 32;
    for (int h = (int) threadIdx.x / 32; h < heads; h += SCORE_WARPS) {
        const bool there = first + h < a.n_head;
        const float *x = a.q + token * a.ldq + (int64_t) (first + h) * a.dim;
        /* Largest magnitude of the head, which determines its power of two. */
        float most = 0;
        for (int32_t i = 2 * lane; i < a.dim && there; i += 64) { /* dim is even */
            const float2 f = query_pair(k, token, x, i);
            most = fmaxf(most, fmaxf(fabsf(f.x), fabsf(f.y)));
        }
        uint32_t e = __float_as_uint(warp_max(most)) >> 23; /* up = 2^(135 - e) scales the largest to 256 .. 512 */
        e = e == 255 ? 135 : max(e, 20u);
        const float up = __uint_as_float((262 - e) << 23), down = __uint_as_float((e - 8) << 23);
        if (lane == 0) w[h] = there ? a.w[token * a.ldw + first + h] * a.scale * down : 0.0f;
        /* Scale, rotate, split into hi + lo, store. */
        for (int32_t i = 2 * lane; i - 2 * lane < 32 * n_block; i += 64) {
            const bool in = there && i < a.dim;
            float2 f = in ? query_pair(k, token, x, i) : float2{0, 0};
            f = {clean(f.x * up), clean(f.y * up)};
            if (turn) f = rotate2(f, lane);
            if (i >= 32 * n_block) break;
            uint32_t high, low;
            ptx_split(f.x, f.y, high, low);
            /* Value i of a block of 32 goes to lane 4 (h % 8) + i / 8, step i % 8 / 4, word i % 4 / 2 * 2. Heads 8 ..
             * 15 of a tile use the word after it (1 or 3). */
            const int at = h % 8 * 4 + i % 32 / 8, word = i % 4 / 2 * 2 + h % 16 / 8;
            q[word_of(h / 16, n_block, i / 32, 0, i % 8 / 4, at) * 4 + (uint32_t) word] = high;
            q[word_of(h / 16, n_block, i / 32, 1, i % 8 / 4, at) * 4 + (uint32_t) word] = low;
        }
    }
}

/* Loads values 8 i .. 8 i + 7 of a key as F16: hi, and for F32 keys (SPLIT) also lo. row.codes NULL gives zeros. */
template <bool SPLIT> PI_FN void load_key(int32_t type, cache_row row, int i, uint4 &high, uint4 &low)
{
    high = low = {0, 0, 0, 0};
    if (!row.codes) return;
    if (!SPLIT && type == PI__F16) {
        high = ((const uint4 *) row.codes)[i];
        return;
    }
    float f[8];
    cache_get8(type, row, i, f);
    ptx_split(clean(f[0]), clean(f[1]), high.x, low.x);
    ptx_split(clean(f[2]), clean(f[3]), high.y, low.y);
    ptx_split(clean(f[4]), clean(f[5]), high.z, low.z);
    ptx_split(clean(f[6]), clean(f[7]), high.w, low.w);
}

/* acc += Q K^T for two steps of 16 values. a: fragments of Q, one per step. b: the lane's words of K. */
PI_FN void multiply(const uint4 (&a)[2], uint4 b, float (&acc)[4])
{
    ptx_mma_f16(acc, {a[0].x, a[0].y, a[0].z, a[0].w}, {b.x, b.y});
    ptx_mma_f16(acc, {a[1].x, a[1].y, a[1].z, a[1].w}, {b.z, b.w});
}

/* acc = Q K^T for TILES tiles of 16 heads and 8 N entries. q: from load_queries(). row[n]: lane 4 g + t has the cache
 * row of entry 8 n + g; row.codes NULL = no entry. */
template <bool SPLIT, int TILES, int N>
PI_FN void multiply_heads(const pi__k_indexer &k, const uint4 *q, const cache_row (&row)[N], float (&acc)[TILES][N][4])
{
    const int lane = (int) threadIdx.x % 32;
    const int32_t n_block = k.entries.cache.head_dim / 32;
#pragma unroll
    for (int i = 0; i < TILES * N * 4; i++) acc[i / 4 / N][i / 4 % N][i % 4] = 0;
#pragma unroll 1
    for (int32_t c = 0; c < n_block; c++) {
        uint4 high[N], low[N];
#pragma unroll
        for (int n = 0; n < N; n++) load_key<SPLIT>(k.entries.cache.type_k, row[n], 4 * c + lane % 4, high[n], low[n]);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            uint4 qh[2], ql[2];
            for (int s = 0; s < 2; s++) {
                qh[s] = q[word_of(tile, n_block, c, 0, s, lane)];
                ql[s] = q[word_of(tile, n_block, c, 1, s, lane)];
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                if (SPLIT) multiply(qh, low[n], acc[tile][n]);
                multiply(ql, high[n], acc[tile][n]);
                multiply(qh, high[n], acc[tile][n]);
            }
        }
    }
}

/* Writes scores of entries to score [tokens, room]. Tokens with up to n_top entries are skipped: all their entries are
 * picked. Grid: x = `each` entries, y = token, from token `first` on. 16 TILES heads per pass over the entries. */
template <bool SPLIT, int TILES> __global__ void __launch_bounds__(SCORE_WARPS * 32, 3)
index_scores(pi__k_indexer k, int32_t first, int32_t each, float *score, int64_t room)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    constexpr int N = SPLIT ? 2 : 4; /* groups of 8 entries per warp and iteration */
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const int32_t token = first + (int32_t) blockIdx.y, n = entries_seen(k, token),
                  n_block = k.entries.cache.head_dim / 32;
    const int32_t from = (int32_t) blockIdx.x * each, to = min(n, from + each);
    if (n <= k.a.n_top || from >= n) return;
    uint4 *q = (uint4 *) raw;
    float *w = (float *) (q + TILES * n_block * 4 * 32);
    score += (int64_t) blockIdx.y * room;
    for (int32_t h0 = 0; h0 < k.a.n_head; h0 += 16 * TILES) {
        __syncthreads(); /* all warps have finished with the previous heads' Q */
        load_queries(k, token, h0, 16 * TILES, n_block, is_rotated(k.entries.cache.type_k), (uint32_t *) q, w);
        __syncthreads();
        for (int32_t e = from + warp * 8 * N; e < to; e += SCORE_WARPS * 8 * N) {
            cache_row row[N];
            float acc[TILES][N][4];
#pragma unroll
            for (int i = 0; i < N; i++) {
                const int32_t at = e + 8 * i + lane / 4;
                row[i] = {nullptr, nullptr};
                if (at < to) row[i] = row_of(k.entries, k.seq[token], at);
            }
            multiply_heads<SPLIT, TILES, N>(k, q, row, acc);
            /* Apply relu and weights, and sum over the heads. Iteration i has entry e + 8 (i / 2) + 2 t + i % 2. */
#pragma unroll
            for (int i = 0; i < 2 * N; i++) {
                float sum = 0;
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) {
                    sum = fmaf(fmaxf(acc[tile][i / 2][i % 2], 0.0f), w[16 * tile + lane / 4], sum);
                    sum = fmaf(fmaxf(acc[tile][i / 2][2 + i % 2], 0.0f), w[16 * tile + lane / 4 + 8], sum);
                }
                for (int o = 4; o < 32; o *= 2) sum += __shfl_xor_sync(PI_FULL, sum, o);
                const int32_t at = e + 8 * (i / 2) + 2 * (lane % 4) + i % 2;
                if (lane < 4 && at < to) score[at] = h0 ? score[at] + sum : sum;
            }
        }
    }
}

/* --------------------------------------------------------------------------------------------------------- choice */

/* Shared memory of choose(): one count per warp, double-buffered. */
struct counts {
    uint32_t of_warp[2][32];
};

/* Picks the k best of n values, n > k, by a block of PICK_THREADS. value(i) returns value i. put(i, j) is called for
 * each picked index i; j is its place (0 .. k - 1) in ascending order of i. */
template <class VALUE, class PUT>
PI_FN void choose(int32_t n, uint32_t k, counts *s, const VALUE &value, const PUT &put)
{
    uint32_t v[EACH], edge = 0, c = 0;
    int turn = 0;
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    /* Ranks of the thread's first EACH values stay in registers; later ones are read again for each count. */
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int32_t at = i * PICK_THREADS + (int32_t) threadIdx.x;
        v[i] = at < n ? rank_of(value(at)) : 0;
    }
    /* Returns the number of values that are at least `least`, over the block. */
    auto count = [&](uint32_t least) {
        uint32_t own = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) own += v[i] >= least;
        for (int32_t at = PART + (int32_t) threadIdx.x; at < n; at += PICK_THREADS) own += rank_of(value(at)) >= least;
        uint32_t *of_warp = s->of_warp[turn ^= 1];
        own = __reduce_add_sync(PI_FULL, own);
        if (lane == 0) of_warp[warp] = own;
        __syncthreads();
        return __reduce_add_sync(PI_FULL, of_warp[lane]);
    };
    /* Find the k-th largest value, `edge`, bit by bit. Invariant: at least k values are >= edge. */
    for (uint32_t bit = 1u << 31; bit && c != k; bit >>= 1) {
        const uint32_t now = count(edge | bit);
        if (now >= k) edge |= bit, c = now;
    }
    /* `left`: how many of the values equal to edge are picked. above, equal: values before this round that are larger
     * than edge, or equal to it. */
    uint32_t left = k - count(edge + 1), above = 0, equal = 0;
    /* Pick in order of index; j is the number of earlier picks. */
    for (int32_t first = 0; first < n; first += PICK_THREADS) {
        const int32_t at = first + (int32_t) threadIdx.x;
        const uint32_t x = at < n ? rank_of(value(at)) : 0;
        const bool is_above = at < n && x > edge, is_equal = at < n && x == edge;
        const uint32_t a = __ballot_sync(PI_FULL, is_above), b = __ballot_sync(PI_FULL, is_equal),
                       lower = (1u << lane) - 1;
        uint32_t *of_warp = s->of_warp[turn ^= 1];
        if (lane == 0) of_warp[warp] = (uint32_t) __popc(a) << 16 | (uint32_t) __popc(b);
        __syncthreads();
        const uint32_t before = __reduce_add_sync(PI_FULL, lane < warp ? of_warp[lane] : 0);
        const uint32_t e = equal + (before & 0xffff) + (uint32_t) __popc(b & lower);
        const uint32_t j = above + (before >> 16) + (uint32_t) __popc(a & lower) + min(e, left);
        if (is_above || (is_equal && e < left)) put(at, (int32_t) j);
        const uint32_t all = __reduce_add_sync(PI_FULL, of_warp[lane]);
        above += all >> 16;
        equal += all & 0xffff;
    }
}

/* Picks the n_top best of part blockIdx.x (PART entries) of a token. If the token has only this part, the result goes
 * to k.a.pick, else to some [tokens, room_some], for pick_rest(). Grid: x = part, y = token, from token `first` on. */
__global__ void __launch_bounds__(PICK_THREADS)
pick_some(pi__k_indexer k, int32_t first, const float *score, int64_t room, int32_t *some, int64_t room_some)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    const int32_t token = first + (int32_t) blockIdx.y, n = entries_seen(k, token), top = k.a.n_top;
    const int32_t from = (int32_t) blockIdx.x * PART, own = min((int32_t) PART, n - from);
    int32_t *to = k.a.pick + (size_t) token * (size_t) top;
    if (own <= 0) return;
    if (n > PART) to = some + (int64_t) blockIdx.y * room_some + (int64_t) blockIdx.x * min((int32_t) PART, top);
    score += (int64_t) blockIdx.y * room + from;
    if (own <= top) {
        for (int32_t i = (int32_t) threadIdx.x; i < own; i += PICK_THREADS) to[i] = from + i;
        return;
    }
    choose(
        own, (uint32_t) top, (counts *) raw, [=](int32_t i) { return score[i]; },
        [=](int32_t i, int32_t j) { to[j] = from + i; });
}

/* Picks the n_top best of pick_some's results, for tokens with more than PART entries. Grid: x = token, from `first`
 * on. */
__global__ void __launch_bounds__(PICK_THREADS)
pick_rest(pi__k_indexer k, int32_t first, const float *score, int64_t room, const int32_t *some, int64_t room_some)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    const int32_t token = first + (int32_t) blockIdx.x, n = entries_seen(k, token), top = k.a.n_top,
                  most = min((int32_t) PART, top);
    int32_t *pick = k.a.pick + (size_t) token * (size_t) top;
    if (n <= PART) return;
    const int32_t has = n / PART * most + min(n % PART, most);
    score += (int64_t) blockIdx.x * room;
    some += (int64_t) blockIdx.x * room_some;
    if (has <= top) {
        for (int32_t i = (int32_t) threadIdx.x; i < has; i += PICK_THREADS) pick[i] = some[i];
        return;
    }
    choose(has, (uint32_t) top, (counts *) raw, [=](int32_t i) { return score[some[i]]; },
           [=](int32_t i, int32_t j) { pick[j] = some[i]; });
}

} /* namespace indexer */

#endif
