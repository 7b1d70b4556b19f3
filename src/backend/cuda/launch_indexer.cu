/* Launches of kernels/indexer_kernels.cuh: variant, grid, shared memory (see kernels.h). Grids: index_scores x = range
 * of entries, y = token; pick_some x = PART entries, y = token; pick_rest x = token. Tokens that do not fit into
 * scratch are processed in further passes. */
#include "backend/cuda/launch.cuh"
#include "indexer_kernels.cuh"

using namespace indexer;

/* Scratch of one token: [scores of its entries][best entries of each part of PART entries, if there are several]. */
typedef struct room {
    int64_t score, some; /* 4-byte values in each of the two arrays */
    size_t bytes;        /* bytes of both */
} room;

/* most: max entries that a token sees. */
static room room_of(int32_t most)
{
    const int64_t n = (most + 3) / 4 * 4;
    return {n, most > PART ? n : 0, (size_t) (most > PART ? 2 * n : n) * 4};
}

size_t pi__k_indexer_scratch(int32_t most) { return room_of(most).bytes; }

/* Returns the number of entries per block, 128 to 2048: the fewest for which n_tokens tokens need at most four blocks
 * per SM, because each block loads the token's queries. */
static int32_t entries_of_block(const pi__k_indexer *a, int32_t n_tokens)
{
    const int64_t all = (int64_t) a->most * n_tokens, blocks = 4 * (int64_t) max(a->n_sm, 1);
    int64_t each = 128;
    while (each < 2048 && each * blocks < all) each *= 2;
    return (int32_t) each;
}

template <bool SPLIT, int TILES>
static int score_by(void *stream, const pi__k_indexer *a, int32_t first, int32_t n, float *score, int64_t to)
{
    const int32_t each = entries_of_block(a, n), n_block = a->entries.cache.head_dim / 32;
    const size_t shared = (size_t) n_block * TILES * 4 * 32 * sizeof(uint4) + 16 * TILES * sizeof(float);
    dim3 grid((unsigned) ((a->most + each - 1) / each), (unsigned) n);
    return pi_launch_dependent(stream, index_scores<SPLIT, TILES>, grid, dim3(SCORE_WARPS * 32), shared, *a, first,
                               each, score, to);
}

/* Queues the scores of n tokens from `first` on; row i of `score`, at distance `to` in floats, is for token first + i.
 * A block passes over its entries once for each 16 * TILES heads, the number that fits into shared memory. */
static int score_tokens(void *stream, const pi__k_indexer *a, int32_t first, int32_t n, float *score, int64_t to)
{
    bool split = false;
#define ROW(t, fn, side, minimum, wide, ...) split = split || (a->entries.cache.type_k == PI__##t && wide);
    PI__CACHE_TYPES(ROW)
#undef ROW
    if (a->entries.cache.head_dim > 256) return split ? score_by<true, 1>(stream, a, first, n, score, to)
                                                      : score_by<false, 1>(stream, a, first, n, score, to);
    return split ? score_by<true, 4>(stream, a, first, n, score, to)
                 : score_by<false, 4>(stream, a, first, n, score, to);
}

int pi__k_indexer_run(void *stream, const pi__k_indexer *a)
{
    const room r = room_of(a->most);
    if (a->n_tokens < 1 || a->most < 1) return 0;
    const size_t fit = a->scratch_size / r.bytes;
    if (!fit) return 1;
    int code = 0;
    for (int32_t first = 0, n; first < a->n_tokens && !code; first += n) {
        n = (int32_t) min((size_t) (a->n_tokens - first), min(fit, (size_t) 65535));
        float *score = (float *) a->scratch;
        int32_t *some = (int32_t *) (score + n * r.score);
        if (a->most > a->a.n_top) code = score_tokens(stream, a, first, n, score, r.score);
        dim3 parts((unsigned) ((a->most + PART - 1) / PART), (unsigned) n);
        if (!code)
            code = pi_launch_dependent(stream, pick_some, parts, dim3(PICK_THREADS), sizeof(counts), *a, first, score,
                                       r.score, some, r.some);
        if (!code && a->most > PART)
            code = pi_launch_dependent(stream, pick_rest, dim3((unsigned) n), dim3(PICK_THREADS), sizeof(counts), *a,
                                       first, score, r.score, some, r.some);
    }
    return code;
}
