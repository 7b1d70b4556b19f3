/* Groups of rows with adapters (see lora_groups.h). No memory; any thread. */
#include "backend/cuda/lora_groups.h"

enum { T_FLOATS = 128 /* floats of t per token of the limits */ };

/* T_FLOATS per token, at least enough for one group of all matrices of a linear, and for one row of op moe. */
size_t pi__lora_t_floats(const pi__limits *lim)
{
    const size_t group = (size_t) PI__K_LORA_ROWS * PI__MAX_LIN * PI__MAX_LORA_RANK,
                 n = (size_t) lim->max_tokens * T_FLOATS;
    const size_t pairs = (size_t) lim->max_used * PI__MAX_LORA * PI__MAX_LORA_RANK,
                 least = pairs > group ? pairs : group;
    return n > least ? n : least;
}

int32_t pi__lora_groups_of(const pi__lora_run *run) { return (run->n + PI__K_LORA_ROWS - 1) / PI__K_LORA_ROWS; }

/* Returns the number of groups of up to PI__K_LORA_ROWS rows into which runs r0 to r1 - 1 are cut. rounded: rounds
 * the total up to a power of two, as in captured steps. */
static int32_t groups_in(const pi__lora_rows *rows, int32_t r0, int32_t r1, bool rounded)
{
    int32_t n = 0, up = 1;
    for (int32_t r = r0; r < r1; r++) n += pi__lora_groups_of(&rows->run[r]);
    while (up < n) up *= 2;
    return rounded ? up : n;
}

int32_t pi__lora_count_groups(const pi__lora_rows *rows, bool rounded, int32_t *n_groups, int32_t *n_levels)
{
    int32_t n = 0;
    *n_levels = 0;
    for (int32_t r = 0, end; r < rows->n_runs; r = end) {
        end = pi__lora_level_end(rows, r);
        n += n_groups[(*n_levels)++] = groups_in(rows, r, end, rounded);
    }
    return n;
}

int32_t pi__lora_moe_rows(const pi__limits *lim, const pi__moe *a)
{
    const int32_t *rank = a->lora.rank;
    int32_t n_groups[PI__MAX_LORA], n_levels;
    if (!a->lora.rows) return a->n_rows;
    pi__lora_count_groups(a->lora.rows, false, n_groups, &n_levels);
    const int64_t first = rank[PI__LORA_GATE] + rank[PI__LORA_UP], last = (int64_t) n_levels * rank[PI__LORA_DOWN];
    const int64_t most = (int64_t) pi__lora_t_floats(lim) / (a->n_used * (first > last ? first : last));
    return most < a->n_rows ? (int32_t) most : a->n_rows;
}
