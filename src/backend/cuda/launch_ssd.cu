/* Launches of kernels/ssd_kernels.cuh (see there): prepare, scan and finish for every step. */
#include "backend/cuda/launch_states.cuh"
#include "ssd_kernels.cuh"

using namespace ssd;

static bool supported(const pi__k_state *st)
{
    const bool dim = st->dim == 32 || st->dim == 64 || st->dim == 128 || st->dim == 256;
    const bool dim_v = st->dim_v >= PATCH && st->dim_v <= 256 && st->dim_v % PATCH == 0;
    const bool taps = st->n_conv >= PI__MIN_CONV && st->n_conv <= PI__MAX_CONV;
    if (st->kda && (st->ssd || st->dim > 128 || st->dim_v != st->dim || st->n_v != st->n_k)) return false;
    return dim && dim_v && taps && st->n_k > 0 && st->n_v >= st->n_k && st->n_v % st->n_k == 0 && st->n_draft >= 0;
}

static size_t channels_of(const pi__k_state *st)
{
    return 2 * (size_t) st->n_k * (size_t) st->dim + (size_t) st->n_v * (size_t) st->dim_v;
}

/* Returns the layout of a slot: offsets in floats, and the lengths of its rings. A step of one token and its drafts
 * writes rows while others are read, so the rings hold base to its end. */
static gdn::places places_of(const pi__k_state *st)
{
    const size_t dim = (size_t) st->dim, dim_v = (size_t) st->dim_v, n_k = (size_t) st->n_k, n_v = (size_t) st->n_v;
    size_t at = 0;
    gdn::places p = {};
    p.history = st->n_conv - 1;
    p.rows = gdn::ring_of(C + 2 * st->n_draft);
    p.recents = gdn::ring_of(C + 2 * st->n_draft + p.history);
    gdn::take(&at, 1); /* base: position of S0 */
    p.s = gdn::take(&at, n_v * dim * dim_v);
    p.x = gdn::take(&at, n_v * (size_t) p.rows.n * dim_v);
    p.k = gdn::take(&at, n_k * (size_t) p.rows.n * dim);
    p.g = gdn::take(&at, n_v * (size_t) p.rows.n * (st->kda ? dim : 1));
    p.recent = gdn::take(&at, (size_t) p.recents.n * channels_of(st));
    p.size = at;
    return p;
}

size_t pi__k_ssd_state_bytes(const pi__k_state *st) { return supported(st) ? places_of(st).size * sizeof(float) : 0; }

size_t pi__k_ssd_snapshot_bytes(const pi__k_state *st)
{
    size_t at = 0;
    if (!supported(st)) return 0;
    gdn::take(&at, (size_t) st->n_v * (size_t) st->dim * (size_t) st->dim_v +
                       (size_t) (st->n_conv - 1) * channels_of(st));
    return at * sizeof(float);
}

size_t pi__k_ssd_scratch(const pi__k_state *st, int32_t n_tokens)
{
    const size_t both = st->kda ? 2 : 1; /* with kda also keys and decays, and products of keys */
    const size_t words = (size_t) st->n_k * both * (2 * (size_t) st->dim + C) + 2 * (size_t) st->n_v;
    return words * (size_t) n_tokens * sizeof(float);
}

/* Returns a job with the state's fields. */
static job job_of(const pi__k_state *st)
{
    job j = {};
    j.a.state = *st;
    j.at = places_of(st);
    return j;
}

/* Returns the warps per block of scan(): as many of a head's as divide its columns, but with few heads and sequences so
 * few that every SM gets a block. */
static int warps_of(const pi__k_state *st, int64_t n_seqs, int64_t n_sm)
{
    const int all = st->dim_v / PATCH;
    int best = 1;
    for (int n = 2; n <= SCAN_THREADS / 32 && n <= all; n++)
        if (all % n == 0 && (int64_t) st->n_v * (all / n) * n_seqs >= n_sm) best = n;
    return best;
}

/* Returns scan()'s blocks of all value heads. */
static unsigned blocks_of(const pi__k_state *st, int warps)
{
    return (unsigned) (st->n_v * (st->dim_v / PATCH / warps));
}

template <int N, bool KDA> static int run(void *stream, job &j)
{
    const pi__k_state *st = &j.a.state;
    const unsigned seqs = (unsigned) j.a.n_seqs, tiles = (unsigned) (j.a.n_tokens / C) + 2 * seqs;
    const int warps = warps_of(st, j.a.n_seqs, j.a.n_sm);
    const dim3 rows(tiles, (unsigned) st->n_k);
    int rc = pi_launch_dependent(stream, prepare, rows, dim3(ROWS_THREADS), prepare_shape<N, KDA>::bytes, j);
    if (!rc)
        rc = pi_launch_dependent(stream, scan<N, KDA>, dim3(blocks_of(st, warps), seqs), dim3(32 * (unsigned) warps),
                                 scan_shape<N, KDA>::bytes(warps), j);
    if (rc) return rc;
    const size_t sums = ROWS_THREADS / 32 * sizeof(float),
                 bytes = j.tail.arrived ? tail_bytes(j.tail, ROWS_THREADS / 32, sums) : sums;
    return pi_launch_dependent(stream, finish, rows, dim3(ROWS_THREADS), bytes, j);
}

int pi__k_ssd_run(void *stream, const pi__k_gdn *a)
{
    job j = job_of(&a->state);
    j.a = *a;
    if (a->tail) j.tail = *a->tail;
    switch (a->state.dim) {
    case 32: return a->state.kda ? run<32, true>(stream, j) : run<32, false>(stream, j);
    case 64: return a->state.kda ? run<64, true>(stream, j) : run<64, false>(stream, j);
    case 128: return a->state.kda ? run<128, true>(stream, j) : run<128, false>(stream, j);
    default: return run<256, false>(stream, j);
    }
}

/* Copies a state (save or load). The launches are normal, not dependent, as in launch_gdn.cu. */
template <int N, bool KDA>
static int move(void *stream, const pi__k_state *st, bool is_save, int32_t slot, int32_t pos, int32_t snap)
{
    const int warps = warps_of(st, 1, 0);
    const dim3 grid(blocks_of(st, warps)), block(32 * (unsigned) warps);
    const size_t shared = scan_shape<N, KDA>::bytes(warps);
    if (is_save) return pi_launch(stream, save, grid, block, shared, job_of(st), slot, pos, snap);
    return pi_launch(stream, load, grid, block, 0, job_of(st), slot, pos, snap);
}

int pi__k_ssd_move(void *stream, const pi__k_state *st, bool is_save, int32_t slot, int32_t pos, int32_t snap)
{
    const bool kda = st->kda;
    switch (st->dim) {
    case 32: return (kda ? move<32, true> : move<32, false>)(stream, st, is_save, slot, pos, snap);
    case 64: return (kda ? move<64, true> : move<64, false>)(stream, st, is_save, slot, pos, snap);
    case 128: return (kda ? move<128, true> : move<128, false>)(stream, st, is_save, slot, pos, snap);
    default: return move<256, false>(stream, st, is_save, slot, pos, snap);
    }
}
