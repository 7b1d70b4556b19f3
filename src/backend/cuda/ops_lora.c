/* Adapters (LoRA) on a device: op lora as the kernels have it.
 *
 * Which rows have which adapter is the same for all matrices of a step, but for those behind the narrowing to logits rows: runs,
 * by level, are cut into groups of a few rows. A level is a launch of each kernel, or several where t has no room for all of
 * its rows; ranks decide that, and it changes no bit.
 *
 * A step that can be captured brings its groups and rows with its image (step.c). What launches know of them is its shape: of
 * each level as many groups as a power of two, of which the last may be empty, and of each matrix the largest rank; so one
 * capture is for all mixes of adapters that are alike in this. Adapters of one recipe always are:
 *
 *     3 rows of a, 1 of b     [a 3][b 1]           2 groups   \  the same graph
 *     5 rows of c             [c 4][c 1]           2 groups   /
 *     5 rows of a, 1 of b     [a 4][a 1][b 1][ ]   4 groups      another one
 *
 * Other steps bring them when an op first asks for them.
 *
 * Memory: scratch + at.lora, [groups][rows][t]. Threads: the step thread. */
#include <string.h>

#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_lora.h"

enum { T_FLOATS = 128 /* a row, of those that there is room for at once */, UPLOAD = 64 /* groups a copy */,
       GROUP_INTS = sizeof(pi__k_lora_group) / sizeof(int32_t), RANKS = 64 /* looked at at a time */,
       CAPTURED = 2 /* groups a sequence, and rows a token, of a step that can be captured: at most */ };

/* Entries of all levels; a run's last group may have one row alone. */
static size_t most_rows(const pi__limits *lim) { return (size_t) lim->max_tokens * PI__MAX_LORA; }
static size_t group_bytes(const pi__limits *lim) { return most_rows(lim) * sizeof(pi__k_lora_group); }
static size_t t_floats(const pi__limits *lim)
{
    const size_t least = (size_t) PI__K_LORA_ROWS * PI__MAX_LIN * PI__MAX_LORA_RANK, n = (size_t) lim->max_tokens * T_FLOATS;
    return n > least ? n : least;
}

size_t pi__cuda_lora_bytes(const pi__limits *lim)
{
    return group_bytes(lim) + most_rows(lim) * sizeof(int32_t) + t_floats(lim) * sizeof(float);
}

/* -------------------------------------------------------------------------------------------------------------- groups */

static int32_t groups_of(const pi__lora_run *run) { return (run->n + PI__K_LORA_ROWS - 1) / PI__K_LORA_ROWS; }

static pi__k_lora_group group_of(const pi__lora_run *run, int32_t i)
{
    const int32_t at = i * PI__K_LORA_ROWS, left = run->n - at;
    return (pi__k_lora_group) {run->pair, run->scale, run->first + at, left < PI__K_LORA_ROWS ? left : PI__K_LORA_ROWS, 0};
}

/* The first run behind those of r's level. */
static int32_t level_end(const pi__lora_rows *rows, int32_t r)
{
    const int32_t level = rows->run[r].level;
    while (r < rows->n_runs && rows->run[r].level == level) r++;
    return r;
}

/* Groups of the runs r0..r1; rounded: as captured steps have them. */
static int32_t groups_in(const pi__lora_rows *rows, int32_t r0, int32_t r1, bool rounded)
{
    int32_t n = 0, up = 1;
    for (int32_t r = r0; r < r1; r++) n += groups_of(&rows->run[r]);
    while (up < n) up *= 2;
    return rounded ? up : n;
}

static int32_t groups_in_all(const pi__lora_rows *rows)
{
    int32_t n = 0;
    for (int32_t r = 0, end; r < rows->n_runs; r = end) {
        end = level_end(rows, r);
        n += groups_in(rows, r, end, true);
    }
    return n;
}

static int32_t rank_of(const pi__lora_rows *rows, int32_t r0, int32_t r1, int32_t target)
{
    int32_t most = 0;
    for (int32_t r = r0; r < r1; r++) most = rows->run[r].rank[target] > most ? rows->run[r].rank[target] : most;
    return most;
}

/* ------------------------------------------------------------------------------------------------------ captured steps */

size_t pi__cuda_lora_ints(const pi__lora_rows *rows) { return (size_t) groups_in_all(rows) * GROUP_INTS + (size_t) rows->n; }

size_t pi__cuda_lora_most_ints(const pi__limits *lim)
{
    return CAPTURED * ((size_t) lim->max_seqs * GROUP_INTS + (size_t) lim->max_tokens) + 1;
}

/* Of the runs r0..r1, which are of one level. */
static uint64_t shape_of_level(const pi__lora_rows *rows, int32_t r0, int32_t r1, uint64_t h)
{
    const int32_t n_groups = groups_in(rows, r0, r1, true), n_targets = rows->run[r0].rank[0];
    int32_t rank[RANKS];
    h = pi__hash64(&n_groups, sizeof n_groups, h);
    for (int32_t first = 1; first <= n_targets; first += RANKS) {
        const int32_t left = n_targets - first + 1, n = left < RANKS ? left : RANKS;
        for (int32_t i = 0; i < n; i++) rank[i] = rank_of(rows, r0, r1, first + i);
        h = pi__hash64(rank, (size_t) n * sizeof *rank, h);
    }
    return h;
}

uint64_t pi__cuda_lora_shape(const pi__limits *lim, const pi__lora_rows *rows)
{
    uint64_t h = 0;
    if (groups_in_all(rows) > CAPTURED * lim->max_seqs || rows->n > CAPTURED * lim->max_tokens) return 0;
    for (int32_t r = 0, end; r < rows->n_runs; r = end) {
        end = level_end(rows, r);
        h = shape_of_level(rows, r, end, h);
    }
    return h ? h : 1;
}

/* Adds groups of runs, and empty ones up to n. Returns where the next one goes. */
static int32_t *put_groups(const pi__lora_rows *rows, int32_t r0, int32_t r1, int32_t n, int32_t *to)
{
    int32_t put = 0;
    for (int32_t r = r0; r < r1; r++)
        for (int32_t i = 0; i < groups_of(&rows->run[r]); i++, put++, to += GROUP_INTS) {
            const pi__k_lora_group g = group_of(&rows->run[r], i);
            memcpy(to, &g, sizeof g);
        }
    memset(to, 0, (size_t) (n - put) * sizeof(pi__k_lora_group));
    return to + (size_t) (n - put) * GROUP_INTS;
}

void pi__cuda_lora_fill(pi__cuda *c, const pi__lora_rows *rows, int32_t *to, const int32_t *d)
{
    cuda_adapters *a = &c->adapters;
    const int32_t *first = to;
    *a = (cuda_adapters) {.of = rows->run, .in_step = true, .group = d};
    for (int32_t r = 0, end, level = 0; r < rows->n_runs; r = end, level++) {
        end = level_end(rows, r);
        a->n_groups[level] = groups_in(rows, r, end, true);
        to = put_groups(rows, r, end, a->n_groups[level], to);
    }
    a->row = d + (to - first);
    memcpy(to, rows->row, (size_t) rows->n * sizeof *to);
}

/* --------------------------------------------------------------------------------------------------------- other steps */

/* Groups and rows of all runs. */
static void bring(pi__cuda *c, const pi__lora_rows *rows)
{
    pi__k_lora_group some[UPLOAD], *to = (pi__k_lora_group *) (void *) (c->scratch + c->at.lora);
    int32_t *row = (int32_t *) (void *) (c->scratch + c->at.lora + group_bytes(&c->lim));
    int32_t n = 0;
    c->adapters = (cuda_adapters) {.of = rows->run, .group = to, .row = row};
    for (int32_t r = 0; r < rows->n_runs; r++) {
        for (int32_t i = 0; i < groups_of(&rows->run[r]); i++) {
            some[n++] = group_of(&rows->run[r], i);
            if (n < UPLOAD) continue;
            pi__cuda_upload(&c->be, to, some, sizeof some);
            to += n, n = 0;
        }
    }
    if (n) pi__cuda_upload(&c->be, to, some, (size_t) n * sizeof *some);
    pi__cuda_upload(&c->be, row, rows->row, (size_t) rows->n * sizeof *rows->row);
    for (int32_t r = 0, end, level = 0; r < rows->n_runs; r = end, level++) {
        end = level_end(rows, r);
        c->adapters.n_groups[level] = groups_in(rows, r, end, false);
    }
}

/* -------------------------------------------------------------------------------------------------------------- the op */

/* Those of the op's matrices that the runs have something for. */
static void take_matrices(const pi__lora *a, int32_t r0, int32_t r1, pi__k_lora *k)
{
    for (int32_t l = 0; l < a->of.n_lin; l++) {
        const pi__lin *lin = &a->of.lin[l];
        const int32_t rank = rank_of(a->rows, r0, r1, lin->w->target), n = k->n_lin;
        if (!rank) continue;
        k->lin[n].n_out = lin->w->n_out, k->lin[n].ldy = lin->ldy, k->lin[n].y = lin->y;
        k->lin[n].target = lin->w->target, k->lin[n].at = k->ldt;
        k->n_lin++;
        k->ldt += rank;
        k->max_rank = rank > k->max_rank ? rank : k->max_rank;
        k->max_out = lin->w->n_out > k->max_out ? lin->w->n_out : k->max_out;
    }
}

/* The runs r0..r1, which are of one level: n groups from number `first` on. */
static void run_level(pi__cuda *c, const pi__lora *a, int32_t r0, int32_t r1, int32_t first, int32_t n)
{
    const pi__k_lora_group *group = c->adapters.group;
    pi__k_lora k = {.in = pi__cuda_input(&a->of.in), .n_in = a->of.lin[0].w->n_in, .row = c->adapters.row};
    k.t = (float *) (void *) (c->scratch + c->at.lora + group_bytes(&c->lim) + most_rows(&c->lim) * sizeof(int32_t));
    take_matrices(a, r0, r1, &k);
    if (!k.n_lin) return;
    const int32_t room = (int32_t) (t_floats(&c->lim) / ((size_t) k.ldt * PI__K_LORA_ROWS)); /* one group at least */
    for (int32_t i = 0; i < n; i += room) {
        k.group = group + first + i;
        k.n_groups = n - i < room ? n - i : room;
        PI__QUEUE(c, pi__k_lora_run(pi__rt_stream(c->rt), &k));
    }
}

void pi__cuda_lora(pi__backend *be, const pi__batch *b, const pi__lora *a)
{
    pi__cuda *c = (pi__cuda *) be;
    (void) b;
    if (!c->adapters.in_step && c->adapters.of != a->rows->run) bring(c, a->rows);
    for (int32_t r = 0, end, level = 0, group = 0; r < a->rows->n_runs; r = end, level++) {
        end = level_end(a->rows, r);
        run_level(c, a, r, end, group, c->adapters.n_groups[level]);
        group += c->adapters.n_groups[level];
    }
}
