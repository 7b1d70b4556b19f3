/* Computes the blocks of a sequence that a group needs (pi__group_* of cache.h). No memory, any thread. */
#include "cache/cache.h"

static int32_t ceil_div(int32_t a, int32_t b) { return (int32_t) (((int64_t) a + b - 1) / b); }
static int32_t min_i32(int32_t a, int32_t b) { return a < b ? a : b; }

int32_t pi__group_behind(const pi__group_spec *g, int32_t window, int32_t n)
{
    if (!window || n < window) return 0;
    return (n - window + 1) / g->block_size;
}

int32_t pi__group_first(const pi__group_spec *g, int32_t n)
{
    const int32_t end = n / g->block_size;
    if (g->state) return end > 0 ? end - 1 : 0;
    return min_i32(pi__group_behind(g, g->window, n), end);
}

int32_t pi__group_need(const pi__group_spec *g, int32_t n_tokens, int32_t chunk)
{
    int32_t all = g->state ? 0 : ceil_div(n_tokens, g->block_size);
    if (!g->window) return all;
    int64_t span = (int64_t) pi__group_window(g) - 1 + chunk;
    int64_t most = span / g->block_size + 2; /* a range of k tokens touches at most k / block_size + 2 blocks */
    return most < all ? (int32_t) most : all;
}
