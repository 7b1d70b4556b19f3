/* Selection of the entries that a token attends to, in DeepSeek V4: scores all visible entries and picks the best.
 *
 * Tokens are processed in rounds; the scratch for scores limits the tokens of a round. In a round, threads score units
 * of UNIT entries of one token. Then, for each token, one thread selects the n_top best entries. So even a single token
 * of a long sequence occupies all threads. Memory: the backend's scratch. A score is a sum in one order (sparse.h). The
 * selection does not depend on any order: it finds the n_top-th largest score by radix selection on integer keys that
 * order like the scores. */
#include <string.h>

#include "backend/cpu/sparse.h"
#include "base/alloc.h"

enum { UNIT = 8 * PI__SPARSE_SPLIT, DIGITS = 256 };

typedef struct indexer_job {
    pi__cpu *cpu;
    const pi__batch *b;
    const pi__indexer *a;
    const pi__kv_layer *entries;
    int32_t n16;        /* groups of 16 heads */
    int32_t first, n;   /* index in the batch of the round's first token; tokens in the round */
    int32_t n_units;    /* max units per token; 0 = every token selects all its entries, so nothing is scored */
    int64_t room;       /* floats from one token's scores to the next */
    float *score;       /* [n, room] scores of the round's tokens */
    size_t room_all;    /* capacity of `score` in floats */
    float **qt;         /* [threads] packed queries, [n16][dim][16] each */
    float **w;          /* [threads] packed weights of heads, [n16][16] each */
    float **wide;       /* [threads] rows converted to floats, [PI__SPARSE_SPLIT][dim] each */
} indexer_job;

/* Returns the number of entries that batch token t sees: complete windows of `ratio` tokens up to its position. */
static int32_t seen(const indexer_job *j, int32_t t) { return (j->b->pos[t] + 1) / j->entries->ratio; }

/* Packs queries and head weights (times a->scale) of token t into thread ith's qt and w. Lanes are heads; lanes from
 * n_head on are 0. */
static void pack(const indexer_job *j, int32_t t, int32_t ith)
{
    const pi__indexer *a = j->a;
    for (int32_t h = 0; h < j->n16 * 16; h++) {
        const float *q = a->q + t * a->ldq + (size_t) h * (size_t) a->dim;
        float *qt = j->qt[ith] + (size_t) (h / 16) * (size_t) a->dim * 16 + h % 16;
        for (int32_t d = 0; d < a->dim; d++) qt[d * 16] = h < a->n_head ? q[d] : 0.0f;
        j->w[ith][h] = h < a->n_head ? a->w[t * a->ldw + h] * a->scale : 0.0f;
    }
}

/* Writes token t's scores of entries first..last - 1 to j->score. Thread ith must have packed the token. */
static void score_unit(const indexer_job *j, int32_t t, int32_t first, int32_t last, int32_t ith)
{
    const pi__kv_batch *kb = &j->b->kv[j->entries->group];
    float *score = j->score + (t - j->first) * j->room;
    for (int32_t e = first; e < last; e += PI__SPARSE_SPLIT) {
        const float *row[PI__SPARSE_SPLIT];
        const int32_t n = last - e < PI__SPARSE_SPLIT ? last - e : PI__SPARSE_SPLIT;
        for (int32_t k = 0; k < n; k++)
            row[k] = pi__row_floats(j->cpu, j->entries,
                                    pi__row_of(j->entries, kb, j->b->seq[t], (e + k) * j->entries->ratio),
                                    j->wide[ith] + k * pi__row_width(j->a->dim));
        j->cpu->sparse->scores(j->qt[ith], j->w[ith], j->n16, j->a->dim, row, n, score + e);
    }
}

/* Returns an integer key with the order of the scores: a < b if and only if key(a) < key(b). Zeros of both signs have
 * the same key; NaN has the lowest key, 0. */
static uint32_t order_of(float x)
{
    uint32_t u;
    if (x != x) return 0;
    x += 0.0f; /* -0 becomes 0 */
    memcpy(&u, &x, sizeof u);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* pick[0 .. k - 1] = indices of the k largest of n scores (n > k), ascending. Of equal scores the lower index is
 * picked. Radix selection: finds the k-th largest key, 8 bits per round from the highest. */
static void choose(const float *score, int32_t n, int32_t k, int32_t *pick)
{
    uint32_t edge = 0, known = 0; /* known high bits of the k-th largest key; mask of these bits */
    int32_t left = k;             /* number of keys to select among the keys with these high bits */
    for (int shift = 24; shift >= 0; shift -= 8) {
        int32_t count[DIGITS] = {0}, d = DIGITS - 1;
        for (int32_t i = 0; i < n; i++) {
            const uint32_t u = order_of(score[i]);
            if ((u & known) == edge) count[u >> shift & 255]++;
        }
        for (; count[d] < left; d--) left -= count[d];
        edge |= (uint32_t) d << shift;
        known |= 255u << shift;
    }
    for (int32_t i = 0, m = 0; m < k; i++) {
        const uint32_t u = order_of(score[i]);
        if (u > edge || (u == edge && left-- > 0)) pick[m++] = i;
    }
}

static void pick_token(const indexer_job *j, int32_t t)
{
    const int32_t n = seen(j, t), k = j->a->n_top;
    int32_t *pick = j->a->pick + (size_t) t * (size_t) k;
    if (n > k) choose(j->score + (t - j->first) * j->room, n, k, pick);
    else for (int32_t i = 0; i < n; i++) pick[i] = i;
}

static void indexer_main(void *arg, int32_t ith, int32_t nth)
{
    const indexer_job *j = arg;
    int32_t packed = -1; /* token in this thread's qt and w; -1 = none */
    for (int32_t i; j->n_units && (i = pi__pool_next(j->cpu->pool, j->n * j->n_units)) >= 0;) {
        const int32_t t = j->first + i / j->n_units, first = i % j->n_units * UNIT, n = seen(j, t);
        /* token t selects all its entries, or has fewer units than the longest token */
        if (n <= j->a->n_top || first >= n) continue;
        if (packed != t) pack(j, t, ith);
        packed = t;
        score_unit(j, t, first, first + UNIT < n ? first + UNIT : n, ith);
    }
    pi__pool_barrier(j->cpu->pool);
    for (int32_t t = j->first + ith; t < j->first + j->n; t += nth) pick_token(j, t);
}

static void take_scratch(indexer_job *j, pi__arena *ar, int32_t n_head, int32_t dim, int64_t n_entries)
{
    const size_t nth = (size_t) pi__pool_size(j->cpu->pool), n16 = (size_t) (n_head + 15) / 16, f = sizeof(float);
    j->room_all = nth * (size_t) n_entries;
    j->score = pi__arena_take(ar, j->room_all * f);
    j->qt = pi__arena_take(ar, nth * sizeof *j->qt);
    j->w = pi__arena_take(ar, nth * sizeof *j->w);
    j->wide = pi__arena_take(ar, nth * sizeof *j->wide);
    for (size_t i = 0; i < nth; i++) {
        float *qt = pi__arena_take(ar, n16 * 16 * (size_t) dim * f), *w = pi__arena_take(ar, n16 * 16 * f);
        float *wide = pi__arena_take(ar, PI__SPARSE_SPLIT * (size_t) pi__row_width(dim) * f);
        if (!j->qt) continue;
        j->qt[i] = qt;
        j->w[i] = w;
        j->wide[i] = wide;
    }
}

size_t pi__cpu_indexer_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    indexer_job j = {.cpu = (pi__cpu *) cpu};
    pi__arena ar = {0};
    if (!lim->indexer_head) return 0;
    take_scratch(&j, &ar, lim->indexer_head, lim->indexer_dim, lim->max_ctx / lim->indexer_ratio + 1);
    return ar.used;
}

void pi__cpu_indexer(pi__backend *be, const pi__batch *b, const pi__indexer *a)
{
    pi__cpu *cpu = (pi__cpu *) be;
    indexer_job j = {.cpu = cpu, .b = b, .a = a, .entries = a->entries, .n16 = (a->n_head + 15) / 16};
    pi__arena ar = {.base = cpu->scratch, .size = cpu->scratch_size};
    take_scratch(&j, &ar, a->n_head, a->dim, cpu->lim.max_ctx / a->entries->ratio + 1);
    int32_t most = 1;
    for (int32_t t = 0; t < b->n_tokens; t++)
        if (seen(&j, t) > most) most = seen(&j, t);
    j.room = most;
    j.n_units = most > a->n_top ? (most + UNIT - 1) / UNIT : 0;
    const size_t fit = j.room_all / (size_t) most;
    for (j.first = 0; j.first < b->n_tokens; j.first += j.n) {
        j.n = fit < (size_t) (b->n_tokens - j.first) ? (int32_t) fit : b->n_tokens - j.first;
        pi__pool_run(cpu->pool, indexer_main, &j);
    }
}
