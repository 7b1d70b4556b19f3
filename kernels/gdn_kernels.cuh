/* The gated delta rule over all sequences of a step (gdn.cuh: formulas, layout of states).
 *
 * A block of heads() has W columns of a value head of a sequence. Its threads hold S0's [D][W] in registers, as ROW_GROUPS
 * groups of D / ROW_GROUPS rows, 4 columns a thread, while the block walks the sequence's chunks:
 *
 *     stage       old rows out of the slot, new ones; factors e^(G_i - G_l) k_i.k_l and q_i.k_l
 *     products    k . S0 and q . S0: each group a sum over its rows, then the sums of the groups in order
 *     solve       a thread a column: p, u of one row after the other
 *     outputs     o
 *     fold        S0 in registers, if the chunk is full; to the slot, once, if all of it is verified
 *
 * FEW tokens (a token and its drafts): one launch. W = D, a block has the whole head, computes keys and queries by itself
 * and ends with the gated norm; S0 is on its way from memory while the rows are made, and only read unless a chunk fills.
 * MANY (prefill): rows() makes keys, queries and their products for all blocks that use them, heads() with slices of
 * W = 32 columns leaves o, finish() does the gated norm and keeps keys. A step with both launches both.
 *
 * Why it is batch-invariant, whatever the chunks and the path: a row's sums are the functions of gdn.cuh, or run over
 * rows of the chunk in order, or are those of products(), with the same groups for every W.
 *
 * Left for later: copying the next chunk while one is computed, tensor cores (three tf32 terms would keep the
 * precision; both paths would have to use them to keep the bits), more blocks for a long prefill. */
#ifndef PI_GDN_KERNELS_CUH
#define PI_GDN_KERNELS_CUH

#include "gdn.cuh"

enum {
    ROWS_THREADS = 128,
    MOST_FEW = 5, /* new rows with which two blocks of 128 columns have registers and shared memory enough */
};

/* Sizes of a block; what lies in shared memory, in floats. */
template <int D, int W, int NEW> struct shape {
    static constexpr int A = D / ROW_GROUPS;    /* rows of S0 a thread has */
    static constexpr int THREADS = ROW_GROUPS * W / 4;
    static constexpr int BATCH = 256 / W;       /* products at a time */
    static constexpr int k = 0;                 /* [C][D] the chunk's keys */
    static constexpr int q = k + C * D;         /* [NEW][D] new queries */
    static constexpr int v = q + NEW * D;       /* [NEW][W] new values */
    static constexpr int u = v + NEW * W;       /* [C][W] */
    static constexpr int yk = u + C * W;        /* [NEW][W] k . S0 */
    static constexpr int yq = yk + NEW * W;     /* [NEW][W] q . S0, then o; few tokens: all of the step's */
    static constexpr int row_sums = yq + NEW * W; /* [BATCH][ROW_GROUPS][W] */
    static constexpr int ck = row_sums + BATCH * ROW_GROUPS * W; /* [NEW][C] e^(G_i - G_l) k_i . k_l, l < i */
    static constexpr int cq = ck + NEW * C;     /* [NEW][C] e^(G_i - G_l) q_i . k_l, l <= i */
    static constexpr int g = cq + NEW * C;      /* [C] G */
    static constexpr int eg = g + C;            /* [NEW] e^G_i */
    static constexpr int beta = eg + C;         /* [NEW] */
    static constexpr int left = beta + C;       /* [C + 1] e^(G_15 - G_i), then e^G_15 */
    static constexpr int who = left + C + 4;    /* a sequence and a work: registers are for S0 */
    static constexpr size_t bytes = sizeof(float) * (size_t) who + sizeof(sequence) + sizeof(work);
};

/* ------------------------------------------------------------------------------------------------- S0, in registers */

template <class S> PI_FN size_t first_value(int D, int W, int32_t col, int i)
{
    int row_group = (int) threadIdx.x / (W / 4), group = (int) threadIdx.x % (W / 4);
    return (size_t) ((row_group * S::A + i) * D + col + 4 * group);
}

template <int D, int W, class S> PI_FN void load_state(const float *s, int32_t col, float4 (&st)[S::A])
{
#pragma unroll
    for (int i = 0; i < S::A; i++) st[i] = *(const float4 *) (s + first_value<S>(D, W, col, i));
}

template <int D, int W, class S> PI_FN void store_state(float *s, int32_t col, const float4 (&st)[S::A])
{
#pragma unroll
    for (int i = 0; i < S::A; i++) *(float4 *) (s + first_value<S>(D, W, col, i)) = st[i];
}

/* S0 is the state at pos: to the snapshots that are wanted of it. */
template <int D, int W, class S>
PI_FN void save_state(const job &j, const sequence &s, const work &w, int32_t pos, const float4 (&st)[S::A])
{
#pragma unroll 1
    for (int32_t i = 0; i < s.n_save; i++) {
        if (s.save[2 * i] != pos) continue;
        store_state<D, W, S>(s_at(j, snap_at(j.a.state, s.save[2 * i + 1]), 0, w.head), w.col, st);
    }
}

/* S0 <- e^G_15 S0 + sum over l of e^(G_15 - G_l) k_l (outer) u_l */
template <int D, int W, class S> PI_FN void fold(const float *sm, float4 (&st)[S::A])
{
    int row_group = (int) threadIdx.x / (W / 4), group = (int) threadIdx.x % (W / 4);
    float all = sm[S::left + C];
#pragma unroll
    for (int i = 0; i < S::A; i++) st[i] = mul4(all, st[i]);
#pragma unroll 1
    for (int l = 0; l < C; l++) {
        float4 u = mul4(sm[S::left + l], *(const float4 *) (sm + S::u + l * W + 4 * group));
        const float *k = sm + S::k + l * D + row_group * S::A;
#pragma unroll
        for (int i = 0; i < S::A; i++) st[i] = fma4(k[i], u, st[i]);
    }
}

/* ---------------------------------------------------------------------------------------------------- stage of a chunk */

/* Rows of the chunk that the slot has: u, G, and keys where they are needed. */
template <int D, int W, class S>
PI_FN void stage_old(const job &j, const sequence &s, const work &w, const chunk &c, bool keys, float *sm)
{
    int tid = (int) threadIdx.x;
#pragma unroll 1
    for (int i = tid; keys && i < c.n_old * (D / 4); i += S::THREADS) {
        const float *k = k_at(j, s.slot, w.k_head, c.from + i / (D / 4));
        ((float4 *) (sm + S::k))[i] = ((const float4 *) k)[i % (D / 4)];
    }
#pragma unroll 1
    for (int i = tid; i < c.n_old * (W / 4); i += S::THREADS) {
        const float *u = u_at(j, s.slot, w.head, c.from + i / (W / 4)) + w.col;
        ((float4 *) (sm + S::u))[i] = ((const float4 *) u)[i % (W / 4)];
    }
    if (tid < c.n_old) sm[S::g + tid] = *g_at(j, s.slot, w.head, w.col, c.from + tid);
}

/* G and beta of the new rows, a lane a row; by the first warp. */
template <int W, class S> PI_FN void gates(const job &j, const sequence &s, const work &w, const chunk &c, float *sm)
{
    int32_t lane = (int32_t) threadIdx.x, i = c.n_old + lane, token = s.first + c.from + i - s.pos;
    bool there = lane < c.n_new;
    float decay = 0, sum = c.n_old ? *g_at(j, s.slot, w.head, w.col, c.from + c.n_old - 1) : 0.0f, mine = 0;
    if (there) {
        float x = j.a.alpha[token * j.a.ld_ab + w.head] + j.a.dt_bias[w.head];
        decay = j.a.a[w.head] * (x > 20.0f ? x : log1pf(expf(x)));
    }
    for (int32_t r = 0; r < c.n_new; r++) {
        sum += __shfl_sync(PI_FULL, decay, r);
        if (r == lane) mine = sum;
    }
    if (!there) return;
    sm[S::g + i] = mine;
    sm[S::eg + lane] = expf(mine);
    sm[S::beta + lane] = sigmoid(j.a.beta[token * j.a.ld_ab + w.head]);
    if (c.from < s.keep) return;
    for (int32_t k = 0; k < W; k += SLICE) *g_at(j, s.slot, w.head, w.col + k, c.from + i) = mine;
}

/* New keys and queries, computed. The first value head of a key head keeps its keys. */
template <int D, class S> PI_FN void make_rows(const job &j, const sequence &s, const work &w, const chunk &c, float *sm)
{
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    for (int n = warp; n < 2 * c.n_new; n += S::THREADS / 32) {
        int32_t r = n / 2, i = c.n_old + r, p = c.from + i;
        bool query = n % 2, kept = !query && w.head == w.k_head && c.from >= s.keep;
        float *to = query ? sm + S::q + r * D : sm + S::k + i * D;
        key_or_query<D, false>(j, s, w.k_head, p, query, lane, to);
#pragma unroll 1
        for (int d = lane; kept && d < D; d += 32) k_at(j, s.slot, w.k_head, p)[d] = to[d];
    }
}

/* The same, made by rows(). */
template <int D, class S> PI_FN void copy_rows(const job &j, const sequence &s, const work &w, const chunk &c, float *sm)
{
    const float4 *from = (const float4 *) new_kq(j, w.k_head, s.first + c.from + c.n_old - s.pos);
    for (int i = (int) threadIdx.x; i < c.n_new * (D / 4); i += S::THREADS) {
        int r = i / (D / 4), d = i % (D / 4);
        ((float4 *) (sm + S::k))[c.n_old * (D / 4) + i] = from[2 * r * (D / 4) + d];
        ((float4 *) (sm + S::q))[i] = from[(2 * r + 1) * (D / 4) + d];
    }
}

PI_FN void set_factor(float *sm, int g, int ck, int cq, int r, int i, int l, float kk, float qk)
{
    float e = expf(sm[g + i] - sm[g + l]);
    sm[ck + r * C + l] = e * kk;
    sm[cq + r * C + l] = e * qk;
}

/* Products of new keys and queries with the chunk's keys up to their own, and what decay leaves of them. */
template <int D, class S, bool FEW>
PI_FN void factors(const job &j, const sequence &s, const work &w, const chunk &c, float *sm)
{
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    if (FEW) {
        for (int n = warp; n < c.n_new * C; n += S::THREADS / 32) {
            int r = n / C, l = n % C, i = c.n_old + r;
            if (l > i) continue;
            float kk = dot<D>(sm + S::k + i * D, sm + S::k + l * D, lane);
            float qk = dot<D>(sm + S::q + r * D, sm + S::k + l * D, lane);
            if (lane == 0) set_factor(sm, S::g, S::ck, S::cq, r, i, l, kk, qk);
        }
        return;
    }
    const float *dots = new_dots(j, w.k_head, s.first + c.from + c.n_old - s.pos);
    for (int n = (int) threadIdx.x; n < c.n_new * C; n += S::THREADS) {
        int r = n / C, l = n % C, i = c.n_old + r;
        if (l <= i) set_factor(sm, S::g, S::ck, S::cq, r, i, l, dots[2 * r * C + l], dots[(2 * r + 1) * C + l]);
    }
}

/* What a fold leaves of each row; the chunk has all of them. */
template <class S> PI_FN void fold_factors(float *sm)
{
    int tid = (int) threadIdx.x;
    if (tid < C) sm[S::left + tid] = expf(sm[S::g + C - 1] - sm[S::g + tid]);
    if (tid == C) sm[S::left + C] = expf(sm[S::g + C - 1]);
}

/* ------------------------------------------------------------------------------------------------- rows and the state */

/* New keys and queries times S0. */
template <int D, int W, class S> PI_FN void products(const chunk &c, const float4 (&st)[S::A], float *sm, float *yq)
{
    int tid = (int) threadIdx.x, row_group = tid / (W / 4), group = tid % (W / 4);
    const float *k = sm + S::k + c.n_old * D, *q = sm + S::q;
    for (int v0 = 0; v0 < 2 * c.n_new; v0 += S::BATCH) {
        int n = min(2 * c.n_new - v0, (int) S::BATCH);
#pragma unroll 1
        for (int v = 0; v < n; v++) {
            int r = (v0 + v) / 2;
            const float *x = ((v0 + v) % 2 ? q + r * D : k + r * D) + row_group * S::A;
            float4 sum = {0, 0, 0, 0};
#pragma unroll
            for (int i = 0; i < S::A; i++) sum = fma4(x[i], st[i], sum);
            *(float4 *) (sm + S::row_sums + (v * ROW_GROUPS + row_group) * W + 4 * group) = sum;
        }
        __syncthreads();
        for (int i = tid; i < n * W; i += S::THREADS) {
            int v = i / W, b = i % W, r = (v0 + v) / 2;
            float sum = 0;
#pragma unroll 4
            for (int p = 0; p < ROW_GROUPS; p++) sum += sm[S::row_sums + (v * ROW_GROUPS + p) * W + b];
            ((v0 + v) % 2 ? yq : sm + S::yk)[r * W + b] = sum;
        }
        __syncthreads();
    }
}

/* u of the new rows, one after the other; a thread a column. NEW sums at a time in registers, each in the order of l. */
template <int D, int W, int NEW, class S>
PI_FN void solve(const job &j, const sequence &s, const work &w, const chunk &c, float *sm)
{
    int b = (int) threadIdx.x;
    float p[NEW], *u = sm + S::u + b;
#pragma unroll
    for (int r = 0; r < NEW; r++) p[r] = r < c.n_new ? sm[S::eg + r] * sm[S::yk + r * W + b] : 0.0f;
#pragma unroll 1
    for (int l = 0; l < c.n_old; l++) {
#pragma unroll
        for (int r = 0; r < NEW; r++) {
            if (r < c.n_new) p[r] = fmaf(sm[S::ck + r * C + l], u[l * W], p[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < NEW; r++) {
        if (r >= c.n_new) break;
        int32_t l = c.n_old + r;
        float x = sm[S::beta + r] * (sm[S::v + r * W + b] - p[r]);
        u[l * W] = x;
        if (c.from >= s.keep) u_at(j, s.slot, w.head, c.from + l)[w.col + b] = x;
#pragma unroll
        for (int n = r + 1; n < NEW; n++) {
            if (n < c.n_new) p[n] = fmaf(sm[S::ck + n * C + l], x, p[n]);
        }
    }
}

/* o of the new rows, in place of q . S0. */
template <int W, class S> PI_FN void outputs(const chunk &c, const float *sm, float *yq)
{
    for (int n = (int) threadIdx.x; n < c.n_new * W; n += S::THREADS) {
        int r = n / W;
        float o = sm[S::eg + r] * yq[n];
#pragma unroll 2
        for (int l = 0; l <= c.n_old + r; l++) o = fmaf(sm[S::cq + r * C + l], sm[S::u + l * W + n % W], o);
        yq[n] = o;
    }
}

/* Raw inputs of the block's own channels: to snapshots, and what later steps need to the slot. */
template <int D, int W> PI_FN void keep_raw(const job &j, const sequence &s, const work &w)
{
    const pi__k_state &st = j.a.state;
    int kind = (int) threadIdx.x / W; /* queries, keys, values; the last quarter of the threads has nothing to do */
    if (kind > 2 || (kind < 2 && w.head != w.k_head)) return;
    int32_t c = (kind == 0 ? w.head : kind == 1 ? st.n_k + w.head : 2 * st.n_k + w.head) * D + w.col + (int) threadIdx.x % W;
    const float *raw = j.a.qkv + (int64_t) s.first * j.a.ld_qkv + c;
#pragma unroll 1
    for (int32_t i = 0; i < s.n_save; i++) {
#pragma unroll 1
        for (int32_t h = 0; h < j.at.history; h++) {
            int32_t p = s.save[2 * i] - j.at.history + h;
            float x = p >= s.pos ? raw[(p - s.pos) * j.a.ld_qkv] : edge_at(j, s.slot, p)[c];
            snap_raw(j, snap_at(st, s.save[2 * i + 1]))[h * n_channels(st) + c] = x;
        }
    }
#pragma unroll 1
    for (int32_t p = max(s.pos, s.keep - j.at.history); p < s.end; p++) {
        float x = raw[(p - s.pos) * j.a.ld_qkv];
        if (p >= s.verified - j.at.history) recent_at(j, s.slot, p)[c] = x;
        if (p % C >= C - j.at.history) edge_at(j, s.slot, p)[c] = x;
    }
}

/* ------------------------------------------------------------------------------------------------------------- kernels */

/* W columns of a value head of a sequence: block (head and slice, sequence). */
template <int D, int W, int NEW, bool FEW> __global__ void __launch_bounds__(4 * W, FEW ? 2 : 1) heads(job j)
{
    using S = shape<D, W, NEW>;
    PI_SMEM(raw);
    float *sm = (float *) raw;
    sequence found;
    if (!find_sequence(j, (int32_t) blockIdx.y, found) || (found.end - found.pos <= j.few) != FEW) return;
    sequence &s = *(sequence *) (sm + S::who);
    work &w = *(work *) (&s + 1);
    int32_t head = (int32_t) blockIdx.x / (D / W), col = (int32_t) blockIdx.x % (D / W) * W;
    if (threadIdx.x == 0) {
        s = found;
        w = {head, head % j.a.state.n_k, col};
    }
    int32_t from = found.pos ? *base_at(j, found.slot, head, col) : 0;
    float4 st[S::A];
    load_state<D, W, S>(s_at(j, found.slot, j.at.s, head), col, st);
    __syncthreads();

    for (; from < s.end; from += C) {
        chunk c = chunk_of(s, from);
        bool full = from + C <= s.verified || from + C < s.end;
        __syncthreads(); /* the last chunk's rows are done with */
        stage_old<D, W, S>(j, s, w, c, FEW || full, sm);
        if (threadIdx.x < 32) gates<W, S>(j, s, w, c, sm);
        if (FEW) make_rows<D, S>(j, s, w, c, sm);
        else copy_rows<D, S>(j, s, w, c, sm);
#pragma unroll 1
        for (int n = (int) threadIdx.x; n < c.n_new * W; n += S::THREADS) {
            sm[S::v + n] = convolved<!FEW>(j, s, from + c.n_old + n / W, (2 * j.a.state.n_k + w.head) * D + w.col + n % W);
        }
        __syncthreads();
        factors<D, S, FEW>(j, s, w, c, sm);
        if (full) fold_factors<S>(sm);
        if (from == 0) {
#pragma unroll
            for (int i = 0; i < S::A; i++) st[i] = {0, 0, 0, 0};
        }
        if (from <= s.verified) save_state<D, W, S>(j, s, w, from, st);

        float *yq = sm + S::yq + (FEW ? (from + c.n_old - s.pos) * W : 0);
        products<D, W, S>(c, st, sm, yq);
        if (c.n_new && threadIdx.x < W) solve<D, W, NEW, S>(j, s, w, c, sm);
        __syncthreads();
        outputs<W, S>(c, sm, yq);
        if (full) fold<D, W, S>(sm, st);
        if (from + C == s.keep) store_state<D, W, S>(s_at(j, s.slot, j.at.s, w.head), w.col, st);
        if (!FEW) { /* each thread its own o */
            int32_t token = s.first + from + c.n_old - s.pos;
            for (int n = (int) threadIdx.x; n < c.n_new * W; n += S::THREADS) {
                j.a.out[(token + n / W) * j.a.ldo + w.head * D + w.col + n % W] = yq[n];
            }
        }
    }
    if (from <= s.verified) save_state<D, W, S>(j, s, w, from, st);
    __syncthreads();
    for (int r = (int) threadIdx.x / 32; FEW && r < s.end - s.pos; r += S::THREADS / 32) {
        gated_norm<D>(j, sm + S::yq + r * W, s.first + r, w.head, (int) threadIdx.x % 32);
    }
    if (threadIdx.x < W / SLICE) base_at(j, s.slot, w.head, w.col)[threadIdx.x] = s.keep;
    keep_raw<D, W>(j, s, w);
}

/* Keys and queries of a chunk's new rows and their products with its keys: block (tile, key head). */
template <int D> __global__ void __launch_bounds__(ROWS_THREADS) rows(job j)
{
    PI_SMEM(raw);
    float *k = (float *) raw, *q = k + C * D; /* [C][D] both */
    sequence s;
    chunk c;
    if (!find_tile(j, (int32_t) blockIdx.x, s, c)) return;
    int32_t head = (int32_t) blockIdx.y, token = s.first + c.from + c.n_old - s.pos;
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    for (int i = (int) threadIdx.x; i < c.n_old * D; i += ROWS_THREADS) k[i] = k_at(j, s.slot, head, c.from + i / D)[i % D];
    for (int n = warp; n < 2 * c.n_new; n += ROWS_THREADS / 32) {
        int32_t r = n / 2, i = c.n_old + r;
        bool query = n % 2;
        float *to = query ? q + r * D : k + i * D, *copy = new_kq(j, head, token + r) + (query ? D : 0);
        key_or_query<D, true>(j, s, head, c.from + i, query, lane, to);
        for (int d = lane; d < D; d += 32) copy[d] = to[d];
    }
    __syncthreads();
    for (int n = warp; n < c.n_new * C; n += ROWS_THREADS / 32) {
        int32_t r = n / C, l = n % C, i = c.n_old + r;
        if (l > i) continue;
        float kk = dot<D>(k + i * D, k + l * D, lane), qk = dot<D>(q + r * D, k + l * D, lane);
        float *to = new_dots(j, head, token + r) + l;
        if (lane) continue;
        to[0] = kk;
        to[C] = qk;
    }
}

/* The rest for many tokens, after heads(): the gated norm, and keys that later steps need. Block (tile, value head). */
template <int D> __global__ void __launch_bounds__(ROWS_THREADS) finish(job j)
{
    sequence s;
    chunk c;
    if (!find_tile(j, (int32_t) blockIdx.x, s, c)) return;
    int32_t head = (int32_t) blockIdx.y, token = s.first + c.from + c.n_old - s.pos;
    int lane = (int) threadIdx.x % 32;
    for (int r = (int) threadIdx.x / 32; r < c.n_new; r += ROWS_THREADS / 32) {
        gated_norm<D>(j, j.a.out + (token + r) * j.a.ldo + head * D, token + r, head, lane);
        if (head >= j.a.state.n_k || c.from < s.keep) continue;
        const float *k = new_kq(j, head, token + r);
        float *to = k_at(j, s.slot, head, c.from + c.n_old + r);
        for (int i = lane; i < D; i += 32) to[i] = k[i];
    }
}

/* Outside of steps: a slice of a value head, block (slice, head). Raw inputs of its channels, as in keep_raw(). */
template <int D> PI_FN void move_raw(const job &j, const work &w, float *slot, float *snap, int32_t pos, bool load)
{
    int kind = (int) threadIdx.x / SLICE;
    if (kind > 2 || (kind < 2 && w.head != w.k_head)) return;
    int32_t n_k = j.a.state.n_k, c = (kind == 0 ? w.head : kind == 1 ? n_k + w.head : 2 * n_k + w.head) * D + w.col +
                                     (int) threadIdx.x % SLICE;
    for (int32_t h = 0; h < j.at.history; h++) {
        int32_t p = pos - j.at.history + h;
        float *kept = snap_raw(j, snap) + h * n_channels(j.a.state) + c;
        if (load) recent_at(j, slot, p)[c] = edge_at(j, slot, p)[c] = *kept;
        else *kept = edge_at(j, slot, p)[c];
    }
}

PI_FN work slice_of(const job &j)
{
    int32_t head = (int32_t) blockIdx.y;
    return {head, head % j.a.state.n_k, (int32_t) blockIdx.x * SLICE};
}

template <int D> __global__ void __launch_bounds__(4 * SLICE) save(job j, int32_t slot_index, int32_t pos, int32_t snap_index)
{
    using S = shape<D, SLICE, C>;
    PI_SMEM(raw);
    float *sm = (float *) raw, *snap = snap_at(j.a.state, snap_index);
    work w = slice_of(j);
    sequence s = {};
    s.slot = slot_at(j.a.state, slot_index);
    s.pos = pos;
    int32_t base = *base_at(j, s.slot, w.head, w.col);
    float4 st[S::A];
    load_state<D, SLICE, S>(s_at(j, s.slot, j.at.s, w.head), w.col, st);
    if (base == 0) {
        for (int i = 0; i < S::A; i++) st[i] = {0, 0, 0, 0};
    }
    for (int32_t from = base; from < pos; from += C) {
        __syncthreads();
        stage_old<D, SLICE, S>(j, s, w, {from, C, 0}, true, sm);
        __syncthreads();
        fold_factors<S>(sm);
        __syncthreads();
        fold<D, SLICE, S>(sm, st);
    }
    store_state<D, SLICE, S>(s_at(j, snap, 0, w.head), w.col, st);
    move_raw<D>(j, w, s.slot, snap, pos, false);
}

template <int D> __global__ void __launch_bounds__(4 * SLICE) load(job j, int32_t slot_index, int32_t pos, int32_t snap_index)
{
    using S = shape<D, SLICE, C>;
    float *slot = slot_at(j.a.state, slot_index), *snap = snap_at(j.a.state, snap_index);
    work w = slice_of(j);
    float4 st[S::A];
    load_state<D, SLICE, S>(s_at(j, snap, 0, w.head), w.col, st);
    store_state<D, SLICE, S>(s_at(j, slot, j.at.s, w.head), w.col, st);
    if (threadIdx.x == 0) *base_at(j, slot, w.head, w.col) = pos;
    move_raw<D>(j, w, slot, snap, pos, true);
}

#endif
