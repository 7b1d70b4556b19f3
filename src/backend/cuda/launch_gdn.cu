/* Launches of kernels/gdn_kernels.cuh: variant, grid, shared memory (see kernels.h). A step may use both paths:
 *
 *     sequences of up to j.few tokens   few: x = value head, y = sequence
 *     longer sequences                  prepare: x = chunk of C tokens, y = key head
 *                                       many: x = S::W columns of a value head, y = sequence
 *                                       finish: x = chunk, y = FINISH_HEADS value heads
 *
 * save and load: x = SLICE columns, y = value head.
 *
 * States with `ssd` or `kda`: launch_ssd.cu. */
#include "backend/cuda/launch_states.cuh"
#include "gdn_kernels.cuh"

using namespace gdn;

static bool supported(const pi__k_state *st)
{
    bool dim = st->dim == 32 || st->dim == 64 || st->dim == 96 || st->dim == 128;
    bool taps = st->n_conv >= PI__MIN_CONV && st->n_conv <= PI__MAX_CONV;
    return dim && taps && st->n_k > 0 && st->n_v >= st->n_k && st->n_draft >= 0;
}

/* Returns the layout of a slot: offsets in floats, and the lengths of its rings. */
static places places_of(const pi__k_state *st)
{
    size_t dim = (size_t) st->dim, n_k = (size_t) st->n_k, n_v = (size_t) st->n_v, channels = (2 * n_k + n_v) * dim,
           at = 0;
    places p;
    p.history = st->n_conv - 1;
    p.rows = ring_of(C + 2 * st->n_draft);
    p.recents = ring_of(p.history + 1 + st->n_draft);
    p.edges = ring_of(p.rows.n / C + 1);
    take(&at, n_v * dim / SLICE); /* base: position of S0, one copy per slice of columns; at offset 0 */
    p.bound = take(&at, n_v * dim / PATCH);
    p.s = take(&at, n_v * dim * dim);
    p.x = take(&at, n_v * (size_t) p.rows.n * dim);
    p.k = take(&at, n_k * (size_t) p.rows.n * dim);
    p.g = take(&at, n_v * (size_t) p.rows.n);
    p.t = take(&at, n_v * (size_t) p.rows.n * C);
    p.recent = take(&at, (size_t) p.recents.n * channels);
    p.edge = take(&at, (size_t) (p.edges.n * p.history) * channels);
    p.size = at;
    return p;
}

size_t pi__k_state_bytes(const pi__k_state *st)
{
    if (st->ssd || st->kda) return pi__k_ssd_state_bytes(st);
    return supported(st) ? places_of(st).size * sizeof(float) : 0;
}

size_t pi__k_snapshot_bytes(const pi__k_state *st)
{
    size_t dim = (size_t) st->dim, n_v = (size_t) st->n_v, channels = (2 * (size_t) st->n_k + n_v) * dim, at = 0;
    if (st->ssd || st->kda) return pi__k_ssd_snapshot_bytes(st);
    take(&at, n_v * dim * dim + (size_t) (st->n_conv - 1) * channels + n_v * dim / PATCH);
    return supported(st) ? at * sizeof(float) : 0;
}

size_t pi__k_gdn_scratch(const pi__k_state *st, int32_t n_tokens)
{
    if (st->ssd || st->kda) return pi__k_ssd_scratch(st, n_tokens);
    size_t words = (size_t) st->n_k * 2 * (size_t) st->dim + (size_t) st->n_v * (2 * MIX + N_SCALARS);
    return words * (size_t) n_tokens * sizeof(float);
}

/* Returns a job with the state's fields. few: max tokens of a sequence for kernel few(), one token and its drafts. */
static job job_of(const pi__k_state *st)
{
    job j = {};
    j.a.state = *st;
    j.at = places_of(st);
    j.few = st->n_draft < MAX_FEW ? st->n_draft + 1 : MAX_FEW;
    return j;
}

static bool aligned(const void *p, int64_t ld) { return (uintptr_t) p % 16 == 0 && ld % 4 == 0; }

template <int D, int PARTS, bool EXACT> static int run_chunks(void *stream, const job &j)
{
    using S = many_shape<D, PARTS, EXACT>;
    dim3 grid((unsigned) (j.a.state.n_v * D / S::W), (unsigned) j.a.n_seqs);
    return pi_launch_dependent(stream, many<D, PARTS, EXACT>, grid, dim3(S::THREADS), S::bytes, j);
}

/* True if kernel many() uses two warps per block instead of one, each with half of the products. Two warps finish
 * sooner if each has its own scheduler, and hardly later if they share one. So many() uses two warps while the one-warp
 * kernel would have at most one warp per scheduler; an SM has four schedulers. */
template <int D> static bool in_parts(const job &j)
{
    return D == 128 && (int64_t) j.a.n_seqs * j.a.state.n_v * (D / PATCH) <= 4 * (int64_t) j.a.n_sm;
}

/* Queues the kernels for long sequences: prepare, many and finish. FAST: the convolution has four taps and the rows of
 * qkv, z and conv are aligned to 16 bytes. EXACT: products use hi + lo sums (pi__k_state.exact). */
template <int D, bool EXACT, bool FAST> static int run_many(void *stream, const job &j)
{
    unsigned n_k = (unsigned) j.a.state.n_k, n_v = (unsigned) j.a.state.n_v, seqs = (unsigned) j.a.n_seqs;
    unsigned tiles = (unsigned) (j.a.n_tokens / C) + 2 * seqs, some = (n_v + FINISH_HEADS - 1) / FINISH_HEADS;
    int rc = pi_launch_dependent(stream, prepare<(D > 64), EXACT, FAST>, dim3(tiles, n_k), dim3(ROWS_THREADS),
                                 prepare_shape<D, EXACT>::bytes, j);
    if (!rc)
        rc = in_parts<D>(j) ? run_chunks < D, D == 128 ? 2 : 1,
        EXACT > (stream, j) : run_chunks<D, 1, EXACT>(stream, j);
    if (!rc) rc = pi_launch_dependent(stream, finish<FAST>, dim3(tiles, some), dim3(ROWS_THREADS), TILE_BYTES, j);
    return rc;
}

template <int D> static int run(void *stream, const job &j)
{
    unsigned n_v = (unsigned) j.a.state.n_v, seqs = (unsigned) j.a.n_seqs;
    int rc = 0;
    if (j.a.least <= j.few) {
        rc = pi_launch_dependent(stream, few<D>, dim3(n_v, seqs), dim3(few_shape<D>::THREADS), few_shape<D>::bytes, j);
    }
    if (rc || j.a.most <= j.few) return rc;
    bool fast = j.at.history == 3 && aligned(j.a.qkv, j.a.ld_qkv) && aligned(j.a.z, j.a.ld_z) && aligned(j.a.conv, 0);
    if (j.a.state.exact) return fast ? run_many<D, true, true>(stream, j) : run_many<D, true, false>(stream, j);
    return fast ? run_many<D, false, true>(stream, j) : run_many<D, false, false>(stream, j);
}

int pi__k_gdn_has_tail(const pi__k_gdn *a)
{
    return a->state.ssd || (a->most <= job_of(&a->state).few && !a->state.kda);
}

int pi__k_gdn_run(void *stream, const pi__k_gdn *a)
{
    if (a->n_tokens < 1) return 0;
    if (a->state.ssd || a->state.kda) return pi__k_ssd_run(stream, a);
    if (!aligned(a->out, a->ldo)) return 1;
    job j = job_of(&a->state);
    j.a = *a;
    if (a->tail && a->most > j.few) return 1;
    if (a->tail) j.tail = *a->tail;
    switch (a->state.dim) {
    case 32: return run<32>(stream, j);
    case 64: return run<64>(stream, j);
    case 96: return run<96>(stream, j);
    default: return run<128>(stream, j);
    }
}

/* Copies a state (save or load). The launches are normal, not dependent: the launch after them may be few(), which
 * reads states before it waits for its predecessors. */
static int move_state(void *stream, const pi__k_state *st, bool is_save, int32_t slot, int32_t pos, int32_t snap)
{
    if (st->ssd || st->kda) return pi__k_ssd_move(stream, st, is_save, slot, pos, snap);
    const dim3 grid((unsigned) st->dim / SLICE, (unsigned) st->n_v), block(4 * SLICE);
    if (is_save) return pi_launch(stream, save, grid, block, save_shape<128>::bytes, job_of(st), slot, pos, snap);
    return pi_launch(stream, load, grid, block, 0, job_of(st), slot, pos, snap);
}

int pi__k_state_save(void *stream, const pi__k_state *st, int32_t slot, int32_t pos, int32_t snap)
{
    return move_state(stream, st, true, slot, pos, snap);
}

int pi__k_state_load(void *stream, const pi__k_state *st, int32_t slot, int32_t pos, int32_t snap)
{
    return move_state(stream, st, false, slot, pos, snap);
}
