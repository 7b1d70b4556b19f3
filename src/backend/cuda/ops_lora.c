/* Adapters (LoRA) on a device: ops lora and lora_embed, and the adapters of experts inside moe.
 *
 * The assignment of rows to adapters is the same for all matrices of a step, until layers narrow the step to its logits
 * rows. The runs of a level are cut into groups of up to PI__K_LORA_ROWS rows. A level is one launch of each kernel, or
 * several if scratch t (the products A x) is too small for all groups; results are bitwise identical. An adapter of an
 * expert's down reads the input of down, and down's results overwrite that input. So A x of down is computed before
 * down, for all levels, and op moe limits its rows per pass so that t has space for these products.
 *
 * A step that can be captured uploads its groups and rows with its image (step.c). Launches depend only on its shape:
 * for each level the number of groups, rounded up to a power of two (the last ones may be empty), and for each matrix
 * the max rank. So one capture serves all mixes of adapters with an equal shape. Adapters of one training recipe have
 * equal shapes:
 *
 *     3 rows of a, 1 of b     [a 3][b 1]           2 groups   \  the same graph
 *     5 rows of c             [c 4][c 1]           2 groups   /
 *     5 rows of a, 1 of b     [a 4][a 1][b 1][ ]   4 groups      another one
 *
 * Other steps upload groups and rows when an op first needs them.
 *
 * Memory: scratch + at.lora, [groups][rows][t]. Threads: the step thread. */
#include <string.h>

#include "backend/cuda/impl.h"
#include "backend/cuda/lora_groups.h"

/* UPLOAD: groups per copy. CAPTURED: max groups per sequence, and max rows with adapters per token, of a step that can
 * be captured. */
enum { UPLOAD = 64, GROUP_INTS = sizeof(pi__k_lora_group) / sizeof(int32_t), CAPTURED = 2 };

/* Returns the max number of rows in the runs of all levels; also the max number of groups, as a group may have one
 * row. */
static size_t most_rows(const pi__limits *lim) { return (size_t) lim->max_tokens * PI__MAX_LORA; }
static size_t group_bytes(const pi__limits *lim) { return most_rows(lim) * sizeof(pi__k_lora_group); }
size_t pi__cuda_lora_bytes(const pi__limits *lim)
{
    return group_bytes(lim) + most_rows(lim) * sizeof(int32_t) + pi__lora_t_floats(lim) * sizeof(float);
}

static float *t_at(const pi__cuda *c)
{
    const size_t rows = most_rows(&c->f.lim) * sizeof(int32_t);
    return (float *) (void *) (c->scratch + c->at.lora + group_bytes(&c->f.lim) + rows);
}

/* --------------------------------------------------------------------------------------------------------------
 * groups */

/* Returns group i of the run; the last group may have fewer than PI__K_LORA_ROWS rows. */
static pi__k_lora_group group_of(const pi__lora_run *run, int32_t i)
{
    const int32_t at = i * PI__K_LORA_ROWS, left = run->n - at;
    return (pi__k_lora_group) {run->pair, run->scale, run->first + at, left < PI__K_LORA_ROWS ? left : PI__K_LORA_ROWS,
                               0};
}

/* ------------------------------------------------------------------------------------------------------ captured
 * steps */

size_t pi__cuda_lora_ints(const pi__lora_rows *rows)
{
    int32_t n_groups[PI__MAX_LORA], n_levels;
    return (size_t) pi__lora_count_groups(rows, true, n_groups, &n_levels) * GROUP_INTS + (size_t) rows->n;
}

size_t pi__cuda_lora_most_ints(const pi__limits *lim)
{
    return CAPTURED * ((size_t) lim->max_seqs * GROUP_INTS + (size_t) lim->max_tokens) + 1;
}

uint64_t pi__cuda_lora_shape(const pi__limits *lim, const pi__lora_rows *rows)
{
    int32_t n_groups[PI__MAX_LORA], n_levels;
    if (pi__lora_count_groups(rows, true, n_groups, &n_levels) > CAPTURED * lim->max_seqs ||
        rows->n > CAPTURED * lim->max_tokens)
        return 0;
    const uint64_t ranks = pi__lora_ranks(rows);
    pi__hasher h;
    pi__hash_begin(&h, PI__HASH_LORA_SHAPE);
    pi__hash_field(&h, &ranks, sizeof ranks);
    pi__hash_field(&h, n_groups, (size_t) n_levels * sizeof *n_groups);
    const pi__digest d = pi__hash_end(&h);
    return pi__digest_word(&d) | 1;
}

/* Writes the groups of runs r0 to r1 - 1 to `to`, then empty groups up to n. Returns the address after them. */
static int32_t *put_groups(const pi__lora_rows *rows, int32_t r0, int32_t r1, int32_t n, int32_t *to)
{
    int32_t put = 0;
    for (int32_t r = r0; r < r1; r++)
        for (int32_t i = 0; i < pi__lora_groups_of(&rows->run[r]); i++, put++, to += GROUP_INTS) {
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
    *a = (cuda_adapters) {.no = rows->no, .in_step = true, .group = d};
    pi__lora_count_groups(rows, true, a->n_groups, &a->n_levels);
    for (int32_t r = 0, end, level = 0; r < rows->n_runs; r = end, level++) {
        end = pi__lora_level_end(rows, r);
        to = put_groups(rows, r, end, a->n_groups[level], to);
    }
    a->row = d + (to - first);
    memcpy(to, rows->row, (size_t) rows->n * sizeof *to);
}

/* --------------------------------------------------------------------------------------------------------- other
 * steps */

/* Uploads the groups and rows of all runs, and sets c->adapters. Does nothing if they are in the step's image, or if
 * this list of runs was uploaded before. */
static void bring(pi__cuda *c, const pi__lora_rows *rows)
{
    pi__k_lora_group some[UPLOAD], *to = (pi__k_lora_group *) (void *) (c->scratch + c->at.lora);
    int32_t *row = (int32_t *) (void *) (c->scratch + c->at.lora + group_bytes(&c->f.lim));
    int32_t n = 0;
    if (c->adapters.in_step || (rows->no && c->adapters.no == rows->no)) return;
    c->adapters = (cuda_adapters) {.no = rows->no, .group = to, .row = row};
    for (int32_t r = 0; r < rows->n_runs; r++) {
        for (int32_t i = 0; i < pi__lora_groups_of(&rows->run[r]); i++) {
            some[n++] = group_of(&rows->run[r], i);
            if (n < UPLOAD) continue;
            pi__cuda_upload(c, to, some, sizeof some);
            to += n, n = 0;
        }
    }
    if (n) pi__cuda_upload(c, to, some, (size_t) n * sizeof *some);
    pi__cuda_upload(c, row, rows->row, (size_t) rows->n * sizeof *rows->row);
    pi__lora_count_groups(rows, false, c->adapters.n_groups, &c->adapters.n_levels);
}

/* ------------------------------------------------------------------------------------------------------ lora,
 * lora_embed */

/* Appends a matrix to k->lin. Its A x takes `rank` floats of a row of t. */
static void add_lin(pi__k_lora *k, int32_t target, int32_t rank, int64_t n_out, float *y, int64_t ldy)
{
    const int32_t n = k->n_lin++;
    k->lin[n].n_out = n_out, k->lin[n].ldy = ldy, k->lin[n].y = y;
    k->lin[n].target = target, k->lin[n].at = k->ldt;
    k->ldt += rank;
    k->max_rank = rank > k->max_rank ? rank : k->max_rank;
    k->max_out = n_out > k->max_out ? n_out : k->max_out;
}

/* Queues the kernels for all levels, in order; a launch has at most the number of groups that fit into t. */
static void run_levels(pi__cuda *c, const pi__k_lora *of, const pi__lora_rows *rows)
{
    pi__k_lora k = *of;
    if (!k.ldt) return;
    bring(c, rows);
    const pi__k_lora_group *group = c->adapters.group;
    /* number of groups that fit into t, at least one */
    const int32_t room = (int32_t) (pi__lora_t_floats(&c->f.lim) / ((size_t) k.ldt * PI__K_LORA_ROWS));
    k.row = c->adapters.row;
    k.t = t_at(c);
    for (int32_t level = 0; level < c->adapters.n_levels; group += c->adapters.n_groups[level++]) {
        const int32_t n = c->adapters.n_groups[level];
        for (int32_t i = 0; i < n; i += room) {
            k.group = group + i;
            k.n_groups = n - i < room ? n - i : room;
            PI__QUEUE(c, pi__k_lora_run(pi__rt_stream(c->rt), &k));
        }
    }
}

/* Runs op lora for per-head matrices, one launch per level. */
static void run_heads(pi__cuda *c, const pi__lora *a)
{
    const pi__lin *lin = &a->of.lin[0];
    const int64_t n_head = lin->w->n_mat;
    bring(c, a->rows);
    pi__k_lora_heads k = {.x = a->of.in.x,
                          .ldx = a->of.in.ldx,
                          .x_step = a->of.in.ldx / n_head,
                          .n_in = lin->w->n_in,
                          .y = lin->y,
                          .ldy = lin->ldy,
                          .y_step = lin->ldy / n_head,
                          .n_out = lin->w->n_out,
                          .n_head = (int32_t) n_head,
                          .target = lin->w->target,
                          .max_rank = a->rank[0],
                          .group = c->adapters.group,
                          .row = c->adapters.row};
    for (int32_t level = 0; level < c->adapters.n_levels; level++, k.group += k.n_groups) {
        k.n_groups = c->adapters.n_groups[level];
        PI__QUEUE(c, pi__k_lora_heads_run(pi__rt_stream(c->rt), &k));
    }
}

void pi__cuda_lora(pi__backend *be, const pi__batch *b, const pi__lora *a)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__k_lora k = {.in = pi__cuda_input(&a->of.in), .n_in = a->of.lin[0].w->n_in, .scale = 1.0f};
    (void) b;
    if (a->of.lin[0].w->n_mat > 1) {
        run_heads(c, a);
        return;
    }
    for (int32_t l = 0; l < a->of.n_lin; l++) {
        const pi__lin *lin = &a->of.lin[l];
        add_lin(&k, lin->w->target, a->rank[l], lin->w->n_out, lin->y, lin->ldy);
    }
    run_levels(c, &k, a->rows);
}

void pi__cuda_lora_embed(pi__backend *be, const pi__batch *b, const pi__lora_embed *a)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__k_lora k = {.token = pi__cuda_batch_of(c, b)->token, .scale = a->scale};
    add_lin(&k, a->target, a->rank, a->w->n_in, a->out, a->w->n_in);
    run_levels(c, &k, a->rows);
}

/* ------------------------------------------------------------------------------------------------------------------
 * moe */

/* Appends expert matrix i (PI__LORA_GATE, UP or DOWN) to k->lin, unless it has no adapter. first: row of B for column 0
 * of y. */
static void add_expert_lin(pi__k_lora_experts *k, const pi__moe_lora *a, int i, const pi__weight *of, int64_t n_out,
                           int64_t first, float *y, int64_t ldy)
{
    if (!a->target[i]) return;
    const int32_t n = k->n_lin++;
    k->lin[n].n_out = n_out, k->lin[n].ldy = ldy, k->lin[n].y = y, k->lin[n].first = (int32_t) first;
    k->lin[n].target = a->target[i], k->lin[n].at = k->ldt, k->lin[n].scale = pi__lora_scale(of);
    k->ldt += a->rank[i];
    k->max_rank = a->rank[i] > k->max_rank ? a->rank[i] : k->max_rank;
    k->max_out = n_out > k->max_out ? n_out : k->max_out;
}

/* For each level: queues shrink (t = A x) if `shrinks`, then expand (y += B t) if `expands`. apart: each level has its
 * own part of t, so that a later call can expand all levels. */
static void run_experts(pi__cuda *c, const pi__k_lora_experts *of, const pi__lora_rows *rows, bool shrinks,
                        bool expands, bool apart)
{
    pi__k_lora_experts k = *of;
    if (!k.n_lin) return;
    bring(c, rows);
    k.group = c->adapters.group;
    k.row = c->adapters.row;
    k.t = t_at(c);
    for (int32_t level = 0; level < c->adapters.n_levels; level++, k.group += k.n_groups) {
        k.n_groups = c->adapters.n_groups[level];
        if (shrinks) PI__QUEUE(c, pi__k_lora_experts_shrink(pi__rt_stream(c->rt), &k));
        if (expands) PI__QUEUE(c, pi__k_lora_experts_expand(pi__rt_stream(c->rt), &k));
        if (apart) k.t += (int64_t) k.n_rows * k.n_used * k.ldt;
    }
}

static pi__k_lora_experts of_pairs(const pi__moe *a, const cuda_moe *at)
{
    return (pi__k_lora_experts) {
        .row0 = at->row0, .n_rows = a->n_rows, .n_used = a->n_used, .id = at->r.id, .column = at->r.column};
}

void pi__cuda_lora_gate_up(pi__cuda *c, const pi__moe *a, const cuda_moe *at)
{
    const int64_t F = a->down->n_in;
    pi__k_lora_experts k = of_pairs(a, at);
    if (!a->lora.rows) return;
    k.in = pi__cuda_input(&a->in), k.n_in = a->gate->n_in;
    add_expert_lin(&k, &a->lora, PI__LORA_GATE, a->gate, a->lora.fused ? 2 * F : F, 0, at->h, 2 * F);
    add_expert_lin(&k, &a->lora, PI__LORA_UP, a->up, F, 0, at->h + F, 2 * F);
    run_experts(c, &k, a->lora.rows, true, true, false);
}

void pi__cuda_lora_down(pi__cuda *c, const pi__moe *a, const cuda_moe *at, bool after)
{
    const int64_t F = a->down->n_in, E = a->down->n_out;
    pi__k_lora_experts k = of_pairs(a, at);
    if (!a->lora.rows) return;
    k.in = (pi__k_input) {.kind = a->act, .x = at->h, .ldx = 2 * F, .x2 = at->h + F, .ldx2 = 2 * F, .limit = a->limit};
    k.n_in = F, k.by_column = 1;
    add_expert_lin(&k, &a->lora, PI__LORA_DOWN, a->down, E, a->shard ? a->shard->i * E : 0, at->h, E);
    run_experts(c, &k, a->lora.rows, !after, after, true);
}