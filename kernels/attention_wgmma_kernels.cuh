/* Attention of prompts with wgmma (sm_90a): tiles of many rows, KIND FAST, for F16 and BF16 caches. Kernel:
 * attention_wgmma(), for D = 64, 128 and 256. Results are bitwise identical to attention_kernels.cuh: ORDER, softmax
 * steps, splits and spans are the same. A wgmma adds its 16 products and the accumulator as mma.sync does
 * (selftest_wgmma.c checks this on the device); accumulators have the same layout.
 *
 * A team is four warps that multiply. It has 64 rows and all of their columns. For heads of 256 values two teams share
 * 64 rows: each has half of O's columns, and both compute all scores, which needs no exchange. Q and P are operand A,
 * from registers. K is operand B in the cache's layout; V is a transposed B. Four more warps copy K and V to a ring of
 * stages (wgmma_ring.cuh), TILE keys each, and convert bf16 to f16 there:
 *
 *     stage: K, then V: [D / 64 slabs][TILE keys] 128 bytes; the 16-byte pieces have the 128-byte swizzle
 *
 * A tile is one softmax step (D = 64) or two. With two steps, one wgmma computes the scores of both. At most these
 * products are in flight: the score products of one tile, and the O products of one step. S(t): scores of tile t; O(t):
 * its O products:
 *
 *     tensor cores   S(t)  [ O(t-1) last step, S(t+1) ][ O(t) first step ][ O(t) last step, S(t+2) ]
 *     others         [ parts of S(t) are added ][ softmax ][ softmax ][ parts of S(t+1) are added ] ...
 *
 * The sums of spans are in shared memory (shared_sums). Registers hold O of a split, Q, and the parts of scores. */
#ifndef PI_ATTENTION_WGMMA_KERNELS_CUH
#define PI_ATTENTION_WGMMA_KERNELS_CUH

#include "attention_walk.cuh"
#include "wgmma_ring.cuh"

namespace attention {

/* Sizes of attention_wgmma(); the names are those of struct shape. TEAMS teams of four warps multiply; SHARE teams work
 * on the same 64 rows, each on its own columns of O. */
template <int D_, int TEAMS_ = 2, int SHARE_ = (D_ > 128 ? 2 : 1)> struct wgmma_heads {
    static constexpr int D = D_, TEAMS = TEAMS_, SHARE = SHARE_, KIND = FAST, COMES = COPIED, WARPS = 1;
    /* threads that multiply; 128 more copy */
    static constexpr int R = 64 * TEAMS / SHARE, GROUPS = R / 16, THREADS = 128 * TEAMS;
    static constexpr bool REL = false; /* registers are full */
    static constexpr int STEP = head<D>::TILE, TILE = D <= 128 ? 64 : 32;
    static constexpr int COLS = D / 8, N = COLS / SHARE, STEPS = D / 16;
    static constexpr int PARTS = head<D>::PARTS, Q_TERMS = 1, PLANES = 1;
    /* PHASES: softmax steps of a tile, and groups of score parts. EACH: score parts in one group. */
    static constexpr int PHASES = TILE / STEP, EACH = PARTS / PHASES;
    static constexpr uint32_t PLANE = 2 * TILE * D, TILES = 2 * PLANE;
    static constexpr int FIRST_COPIER = THREADS, COPIERS = 128;
    static constexpr uint32_t PITCH = 128, NEXT = TILE * 128; /* bytes between rows of a slab; between slabs */

    static __device__ __forceinline__ bool has_column(int32_t d, int32_t dim) { return D != 128 || d < dim; }
    /* thread(): the index is read again at each use, because registers are full. */
    static __device__ __forceinline__ int thread() { return ptx_read_thread(); }
    static __device__ __forceinline__ int group() { return SHARE > 1 ? thread() / 32 % 4 : thread() / 32; }
    static __device__ __forceinline__ int part() { return SHARE > 1 ? thread() / 128 : 0; }
    static __device__ __forceinline__ int q_column() { return 0; }

    /* Shared memory: stages [STAGES][SIZE], sums of spans [TEAMS][RUN], seen tiles, mbarriers, facts; sizes in bytes.
     * FILLERS: number of arrivals that make a stage full, one per copying warp. */
    static constexpr int FILLERS = 4;
    static constexpr uint32_t SIZE = TILES, RUN = shared_sums<N>::SIZE, SEEN = 128;
    static constexpr uint32_t FACTS = 8192; /* max bytes of block_facts */
    static constexpr int FIT = (int) ((WGMMA_ROOM - TEAMS * RUN - SEEN - 128 - FACTS) / SIZE),
                         STAGES = FIT < 6 ? FIT : 6;
    /* number of tiles whose copies are in flight after the tile that the copying warps wait for */
    static constexpr int AHEAD = STAGES - 3;
    static constexpr uint32_t RUN_AT = STAGES * SIZE, SEEN_AT = RUN_AT + TEAMS * RUN, BARRIERS_AT = SEEN_AT + SEEN,
                              FACTS_AT = BARRIERS_AT + 128;
    /* Registers per thread. GIVEN: at launch. LEFT: in copying threads after they release some. TAKEN: in multiplying
     * threads after they take these. */
    static constexpr int GIVEN = 65536 / (THREADS + 128) / 8 * 8, LEFT = 40,
                         TAKEN = (GIVEN + (GIVEN - LEFT) / TEAMS) / 8 * 8;
};

/* -------------------------------------------------------------------------------------------------- copying warps */

/* Copying warps: copy the block's tiles of K and V into the ring. A tile is marked full when its copies have arrived,
 * bf16 is converted, and a fence makes the data visible to wgmma. The warps start the copies of AHEAD more tiles before
 * they wait for tile t. For each started tile they need a stage that the teams have released: a team releases tile t -
 * 1 after it has started the score products of tile t + 1. */
template <class S> PI_FN void copy_tiles(const attn_job &j, const block_facts<S> &facts, wgmma_ring<S> &ring)
{
    static_assert(S::AHEAD >= 1, "the next tile is copied during the wait");
    wgmma_ring<S> there = ring; /* second position in the ring: the tile that the warps wait for */
    int32_t tile, last, block[copies<S>::PASSES];
    find_tiles<S>(j, facts.w, &tile, &last);
    find_blocks<S>(j.a, facts.at, facts.w, tile * S::TILE, block);
    /* Each round starts the copy of one tile. From round AHEAD on it also completes the tile started AHEAD rounds
     * before. The last AHEAD rounds only complete tiles. */
#pragma unroll 1
    for (int32_t n = 0, ends = S::AHEAD; ends; n++) {
        if (tile <= last) {
            ring.wait_empty();
            copy_next<S>(j.a, facts.at, facts.w, tile, last, block, ptx_shared(ring.stage()));
            tile = tile < last ? next_tile<S>(facts.at, tile) : last + 1;
            ring.next();
        } else ends--;
        ptx_cp_async_commit();
        if (n < S::AHEAD) continue;
        ptx_cp_async_wait<S::AHEAD>();
        make_f16<S>(j.a.cache, there.stage());
        ptx_fence_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive(there.full(there.now));
        there.next();
    }
}

/* ---------------------------------------------------------------------------------------------- multiplying warps */

/* Low words of wgmma matrix descriptors. k_of: K of a stage. v_of: the team's columns of V of a stage. k_at: adds the
 * offset of columns 16 step .. 16 step + 15 of K. v_at: adds the offset of keys 16 j .. 16 j + 15 of V. Rows have 128
 * bytes, swizzled in groups of 8. Low words can be added without a carry, since shared memory is below 2^18 bytes. The
 * shuffle makes them warp-uniform, so that they are in uniform registers. */
template <class S> PI_FN uint32_t k_of(const wgmma_ring<S> &ring, int32_t stage)
{
    return __shfl_sync(PI_FULL, ring.at(stage) / 16, 0);
}
template <class S> PI_FN uint32_t v_of(const wgmma_ring<S> &ring, int32_t stage)
{
    const uint32_t slab = (uint32_t) S::part() * (S::N / 8); /* index of the team's first slab of 64 columns */
    return __shfl_sync(PI_FULL, (ring.at(stage) + S::PLANE + slab * S::NEXT) / 16 + (S::NEXT / 16 << 16), 0);
}
PI_FN uint64_t rows_of_128(uint32_t low) { return UINT64_C(1) << 62 | UINT64_C(1024 / 16) << 32 | low; }
template <class S> PI_FN uint64_t k_at(uint32_t of, int step)
{
    return rows_of_128(of + ((uint32_t) (step / 4) * S::NEXT + (uint32_t) (step % 4) * 32) / 16);
}
PI_FN uint64_t v_at(uint32_t of, int j) { return rows_of_128(of + (uint32_t) j * (2048 / 16)); }

/* Registers of a thread that multiplies, in addition to O. */
template <class S> struct team_state {
    queries<S> q;
    /* Score parts of the current tile, as accumulators. end_scores() adds the EACH parts of a phase into
     * part[phase][0]. */
    float part[S::PHASES][S::EACH][S::TILE / 8][4];
    /* `part` is complete for the tile in the ring's current stage, so the next split need not compute it */
    bool there;
    uint32_t a[S::STEP / 16][4];                    /* P of a softmax step, operand A */
};

/* Starts the wgmmas of the EACH score parts of `phase`, for the tile of K at `of` (k_of()). wgmma_wait() must follow
 * before `part` is read. */
template <class S> PI_FN void begin_scores(team_state<S> &t, int phase, uint32_t of)
{
    constexpr int STEPS = S::STEPS / S::PARTS;
    ptx_wgmma_fence(t.q.q[0]);
#pragma unroll
    for (int i = 0; i < S::EACH * STEPS; i++) {
        const int step = phase * S::EACH * STEPS + i;
        if (i % STEPS) ptx_wgmma_f16<false>(t.part[phase][i / STEPS], t.q.q[0][step], k_at<S>(of, step));
        else ptx_wgmma_f16<true>(t.part[phase][i / STEPS], t.q.q[0][step], k_at<S>(of, step));
    }
    ptx_wgmma_commit();
}

/* Adds the parts of a phase in pairs, after their wgmmas have finished. Result: part[phase][0]. */
template <class S> PI_FN void end_scores(team_state<S> &t, int phase)
{
    static_assert(S::EACH <= 2, "at most one pair of parts");
#pragma unroll
    for (int p = 0; p < S::EACH; p++) ptx_wgmma_pin(t.part[phase][p]);
#pragma unroll
    for (int i = 0; i < (S::EACH > 1 ? S::TILE / 2 : 0); i++)
        t.part[phase][0][i / 4][i % 4] += t.part[phase][S::EACH - 1][i / 4][i % 4];
}

/* Starts the wgmmas acc.o += P V for softmax step i of the tile of V at `of` (v_of()). P is t.a. */
template <class S> PI_FN void begin_weighing(team_state<S> &t, int i, uint32_t of, sums<S::N> &acc)
{
    constexpr int EACH = S::STEP / 16;
    ptx_wgmma_pin(acc.o);
    ptx_wgmma_fence(t.a);
#pragma unroll
    for (int k = 0; k < EACH; k++) ptx_wgmma_f16<false, true>(acc.o, t.a[k], v_at(of, i * EACH + k));
    ptx_wgmma_commit();
}

/* Processes the tile in the ring's current stage, at position key0; its score parts are complete. go_on() advances to
 * the next tile and returns true if the team's rows attend to that tile. Then `part` holds the next tile's score parts
 * at the end; otherwise this tile's again, which no caller reads. The O product of the tile's last step is not started:
 * the next call or the caller starts it. BEFORE: the split has an earlier tile, and this call starts the last O product
 * of that tile. No product is in flight before or after the call. */
template <bool BEFORE, class S, class F>
PI_FN void attend_tile(const pi__k_attn &a, const block_facts<S> &facts, int32_t key0, wgmma_ring<S> &ring,
                       team_state<S> &t, sums<S::N> &acc, const F &go_on)
{
    const int32_t before = ring.before(), now = ring.now;
    const uint32_t ones = 0x3c003c00;
    float s[S::PHASES][S::STEP / 8][4];
    if (BEFORE) begin_weighing(t, S::PHASES - 1, v_of(ring, before), acc);
    /* s = scores: the sum of both phases' parts. */
#pragma unroll
    for (int i = 0; i < S::TILE / 2; i++) {
        float &x = s[i / (S::STEP / 2)][i % (S::STEP / 2) / 4][i % 4];
        x = t.part[0][0][i / 4][i % 4];
        if (S::PHASES > 1) x += t.part[S::PHASES - 1][0][i / 4][i % 4];
    }
    /* Move to the next tile; its score products start below. */
    ring.next();
    const bool more = go_on();
    if (more) ring.wait_full();
    /* A softmax step i: the O product of the previous step and one phase of the next tile's scores run on the tensor
     * cores meanwhile. */
#pragma unroll
    for (int i = 0; i < S::PHASES; i++) {
        float c[2];
        if (i) begin_weighing(t, i - 1, v_of(ring, now), acc);
        begin_scores(t, i, k_of(ring, more ? ring.now : now));
        softmax(a, facts, key0 + i * S::STEP, s[i], acc.m, c);
        if (is_new(c)) { /* the wait is in both branches: otherwise ptxas moves it above the softmax */
            if (i || BEFORE) ptx_wgmma_wait<1>(acc.o);
            scale(c, acc);
        } else if (i || BEFORE) ptx_wgmma_wait<1>(acc.o);
        if (!i && BEFORE) ring.release(before);
        /* P of the step as operand A; l = l + P 1. */
#pragma unroll
        for (int k = 0; k < S::STEP / 16; k++) {
            make_a<false>(s[i][2 * k], s[i][2 * k + 1], t.a[k], nullptr);
            ptx_mma_f16(acc.l, t.a[k], {ones, ones});
        }
        if (S::EACH == 1 && i < S::PHASES - 1) continue;
        /* Wait for all products, then add the score parts in pairs. With EACH == 1 the last step does this for all
         * phases. */
        ptx_wgmma_wait<0>();
#pragma unroll
        for (int p = S::EACH == 1 ? 0 : i; p <= i; p++) end_scores(t, p);
    }
    t.there = true;
}

/* Index of the first and last tile in which any of the team's 64 rows attends to a key; last < first = none. find_seen:
 * computes them from `facts`. seen_by_team: the warp's copy in shared memory, since registers are full. */
struct seen_tiles {
    int32_t first, last;
};
template <class S> PI_FN seen_tiles &seen_by_team(unsigned char *shared)
{
    return ((seen_tiles *) (shared + S::SEEN_AT))[ptx_read_thread() / 32];
}
template <class S> PI_FN void find_seen(const block_facts<S> &facts, seen_tiles &found)
{
    seen_tiles seen = {INT32_MAX, -1};
    for (int i = 0; i < 4; i++) {
        const group_keys &g = facts.group[S::group() / 4 * 4 + i];
        if (g.to < g.from) continue;
        seen.first = min(seen.first, g.from / S::TILE), seen.last = max(seen.last, g.to / S::TILE);
    }
    if (S::thread() % 32 == 0) found = seen;
    __syncwarp();
}

/* Computes attention for the 64 rows and the columns of O of one team of multiplying warps. */
template <class S>
PI_FN void attend_team(const attn_job &j, block_facts<S> &facts, wgmma_ring<S> &ring, unsigned char *shared)
{
    int32_t tile, last;
    find_tiles<S>(j, facts.w, &tile, &last);
    find_seen(facts, seen_by_team<S>(shared));
    team_state<S> t = {};
    load_q(j.a, facts.w, t.q);
    shared_sums<S::N> run = {(float2 *) (shared + S::RUN_AT)};
    walk_splits<S>(j, facts, tile, last, run, [&](int32_t tile, int32_t stop, sums<S::N> &acc) {
        auto behind = [&] {
            return facts.at.taken && tile < facts.w.hi / S::TILE ? next_tile<S>(facts.at, tile) : tile + 1;
        };
        auto pass = [&] { /* releases a tile of the ring unread */
            ring.wait_full();
            ring.release(ring.now);
            ring.next();
            tile = behind();
        };
        auto go_on = [&] {
            tile = behind();
            return tile <= seen_by_team<S>(shared).last;
        };
        auto seen = [&] { return tile <= min(stop, seen_by_team<S>(shared).last); };
        /* Skip tiles before the rows' first key. The team must wait for and release every tile of the ring. */
        while (tile <= stop && tile < seen_by_team<S>(shared).first) pass();
        if (seen()) {
            /* Scores of the split's first tile, unless the previous split's last attend_tile() has computed them. */
            if (!t.there) {
                ring.wait_full();
#pragma unroll
                for (int i = 0; i < S::PHASES; i++) begin_scores(t, i, k_of(ring, ring.now));
                ptx_wgmma_wait<0>();
#pragma unroll
                for (int i = 0; i < S::PHASES; i++) end_scores(t, i);
            }
            attend_tile<false>(j.a, facts, tile * S::TILE, ring, t, acc, go_on);
#pragma unroll 1
            while (seen()) attend_tile<true>(j.a, facts, tile * S::TILE, ring, t, acc, go_on);
            /* The O product of the split's last step; then skip the tiles after the rows' last key. */
            begin_weighing(t, S::PHASES - 1, v_of(ring, ring.before()), acc);
            ptx_wgmma_wait<0>(acc.o);
            ring.release(ring.before());
        }
        while (tile <= stop) pass();
        return tile;
    });
}

/* The kernel: attention() of attention_kernels.cuh without units or epilogue. Grid: x = tile of S::R rows, in reverse
 * order; y = kv head. Block: S::THREADS threads multiply, the last 128 copy. Does nothing on devices without wgmma. */
template <class S> __global__ void __launch_bounds__(S::THREADS + 128, 1) attention_wgmma(PI_CONSTANT attn_job j)
{
    ptx_launch_dependents();
    if (!ptx_has_wgmma()) return ptx_wait_grids();
    PI_SMEM(shared);
    block_facts<S> &facts = *(block_facts<S> *) (shared + S::FACTS_AT);
    {
        work found;
        if (!find_work<S::R>(j, (int32_t) (gridDim.x - 1 - blockIdx.x), found)) return ptx_wait_grids();
        if (threadIdx.x < S::THREADS) find_facts(j.a, found, facts);
    }
    ptx_wait_grids();
    wgmma_ring<S> ring(shared);
    ring.open();
    if (wgmma_team() == S::TEAMS) {
        ptx_fewer_registers<S::LEFT>();
        copy_tiles(j, facts, ring);
        return;
    }
    ptx_more_registers<S::TAKEN>();
    attend_team(j, facts, ring, shared);
}

} /* namespace attention */

#endif
