/* Adapters (LoRA) on a device: ops lora and lora_embed, and what adapters add inside of moe, as the kernels have it.
 *
 * Which rows have which adapter is the same for all matrices of a step, but for those behind the narrowing to logits rows:
 * runs, cut into groups of a few rows, are brought to the device when an op first asks for them. Steps with adapters are not
 * captured (engine/runner.c), so copies are in order with what reads them. A level of runs is a launch of each kernel, or
 * several where t has no room for all of its rows; ranks decide that, and it changes no bit. What an adapter has for an
 * expert's down reads what down reads, which its results write over: so t is made before for all levels, and op moe takes as
 * many rows at once as that has room for.
 *
 * Memory: scratch + at.lora, [groups][rows][t]. Threads: the step thread. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_lora.h"
#include "backend/operands.h"

enum { T_FLOATS = 128 /* a row, of those that there is room for at once */, UPLOAD = 64 /* groups a copy */ };

/* Entries of all levels; a run's last group may have one row alone. */
static size_t most_rows(const pi__limits *lim) { return (size_t) lim->max_tokens * PI__MAX_LORA; }
static size_t group_bytes(const pi__limits *lim) { return most_rows(lim) * sizeof(pi__k_lora_group); }
static size_t t_floats(const pi__limits *lim)
{
    const size_t group = (size_t) PI__K_LORA_ROWS * PI__MAX_LIN * PI__MAX_LORA_RANK, n = (size_t) lim->max_tokens * T_FLOATS;
    const size_t pairs = (size_t) lim->max_used * PI__MAX_LORA * PI__MAX_LORA_RANK, least = pairs > group ? pairs : group;
    return n > least ? n : least;
}

size_t pi__cuda_lora_bytes(const pi__limits *lim)
{
    return group_bytes(lim) + most_rows(lim) * sizeof(int32_t) + t_floats(lim) * sizeof(float);
}

static const pi__k_lora_group *groups(const pi__cuda *c) { return (const pi__k_lora_group *) (const void *) (c->scratch + c->at.lora); }
static const int32_t *rows_at(const pi__cuda *c)
{
    return (const int32_t *) (const void *) (c->scratch + c->at.lora + group_bytes(&c->lim));
}
static float *t_at(const pi__cuda *c)
{
    return (float *) (void *) (c->scratch + c->at.lora + group_bytes(&c->lim) + most_rows(&c->lim) * sizeof(int32_t));
}

static int32_t groups_of(const pi__lora_run *run) { return (run->n + PI__K_LORA_ROWS - 1) / PI__K_LORA_ROWS; }

/* Groups and rows of all runs, if they are not there. */
static void bring(pi__cuda *c, const pi__lora_rows *rows)
{
    pi__k_lora_group some[UPLOAD], *to = (pi__k_lora_group *) (void *) (c->scratch + c->at.lora);
    int32_t n = 0;
    if (rows->no && c->lora == rows->no) return;
    for (int32_t r = 0; r < rows->n_runs; r++) {
        const pi__lora_run *run = &rows->run[r];
        for (int32_t i = 0; i < run->n; i += PI__K_LORA_ROWS) {
            const int32_t left = run->n - i, of = left < PI__K_LORA_ROWS ? left : PI__K_LORA_ROWS;
            some[n++] = (pi__k_lora_group) {run->pair, run->scale, run->first + i, of, 0};
            if (n < UPLOAD) continue;
            pi__cuda_upload(&c->be, to, some, sizeof some);
            to += n, n = 0;
        }
    }
    if (n) pi__cuda_upload(&c->be, to, some, (size_t) n * sizeof *some);
    pi__cuda_upload(&c->be, c->scratch + c->at.lora + group_bytes(&c->lim), rows->row, (size_t) rows->n * sizeof *rows->row);
    c->lora = rows->no;
}

/* The first run behind r that is of another level, or behind the last; *n: groups of those before it. */
static int32_t end_of_level(const pi__lora_rows *rows, int32_t r, int32_t *n)
{
    const int32_t level = rows->run[r].level;
    *n = 0;
    for (; r < rows->n_runs && rows->run[r].level == level; r++) *n += groups_of(&rows->run[r]);
    return r;
}

static int32_t n_levels(const pi__lora_rows *rows)
{
    int32_t n = 0, some;
    for (int32_t r = 0; r < rows->n_runs; n++) r = end_of_level(rows, r, &some);
    return n;
}

/* ------------------------------------------------------------------------------------------------------ lora, lora_embed */

static void add_lin(pi__k_lora *k, int32_t target, int32_t rank, int64_t n_out, float *y, int64_t ldy)
{
    const int32_t n = k->n_lin++;
    k->lin[n].n_out = n_out, k->lin[n].ldy = ldy, k->lin[n].y = y;
    k->lin[n].target = target, k->lin[n].at = k->ldt;
    k->ldt += rank;
    k->max_rank = rank > k->max_rank ? rank : k->max_rank;
    k->max_out = n_out > k->max_out ? n_out : k->max_out;
}

/* The runs r0..r1, which are of one level; group: number of their first group. */
static void run_level(pi__cuda *c, const pi__k_lora *of, const pi__lora_rows *rows, int32_t r0, int32_t r1, int32_t group)
{
    pi__k_lora k = *of;
    const int64_t room = k.ldt ? (int64_t) (t_floats(&c->lim) / (size_t) k.ldt) : 0;
    for (int32_t r = r0; r < r1; r++) {
        for (int32_t i = 0, n = groups_of(&rows->run[r]); i < n; i++, group++) {
            const int32_t first = rows->run[r].first + i * PI__K_LORA_ROWS;
            if (k.n_groups && first + PI__K_LORA_ROWS - k.first > room) {
                PI__QUEUE(c, pi__k_lora_run(pi__rt_stream(c->rt), &k));
                k.n_groups = 0;
            }
            if (!k.n_groups) k.first = first, k.group = groups(c) + group;
            k.n_groups++;
        }
    }
    PI__QUEUE(c, pi__k_lora_run(pi__rt_stream(c->rt), &k));
}

static void run_levels(pi__cuda *c, pi__k_lora *k, const pi__lora_rows *rows)
{
    bring(c, rows);
    k->row = rows_at(c);
    k->t = t_at(c);
    for (int32_t r = 0, end, group = 0, n; r < rows->n_runs; r = end, group += n) {
        end = end_of_level(rows, r, &n);
        run_level(c, k, rows, r, end, group);
    }
}

void pi__cuda_lora(pi__backend *be, const pi__batch *b, const pi__lora *a)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__k_lora k = {.in = pi__cuda_input(&a->of.in), .n_in = a->of.lin[0].w->n_in, .scale = 1.0f};
    (void) b;
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

/* ------------------------------------------------------------------------------------------------------------------ moe */

int32_t pi__cuda_lora_moe_rows(const pi__cuda *c, const pi__moe *a)
{
    const int32_t *rank = a->lora.rank;
    if (!a->lora.rows) return a->n_rows;
    const int64_t first = rank[PI__LORA_GATE] + rank[PI__LORA_UP], last = (int64_t) n_levels(a->lora.rows) * rank[PI__LORA_DOWN];
    const int64_t most = (int64_t) t_floats(&c->lim) / (a->n_used * (first > last ? first : last));
    return most < a->n_rows ? (int32_t) most : a->n_rows;
}

static void add_expert_lin(pi__k_lora_experts *k, const pi__moe_lora *a, int i, const pi__weight *of, int64_t n_out, int64_t first,
                           float *y, int64_t ldy)
{
    if (!a->target[i]) return;
    const int32_t n = k->n_lin++;
    k->lin[n].n_out = n_out, k->lin[n].ldy = ldy, k->lin[n].y = y, k->lin[n].first = (int32_t) first;
    k->lin[n].target = a->target[i], k->lin[n].at = k->ldt, k->lin[n].scale = pi__lora_scale(of);
    k->ldt += a->rank[i];
    k->max_rank = a->rank[i] > k->max_rank ? a->rank[i] : k->max_rank;
    k->max_out = n_out > k->max_out ? n_out : k->max_out;
}

/* All levels: what reads the input, or what is added, or both in turn. apart: each level has a t of its own. */
static void run_experts(pi__cuda *c, const pi__k_lora_experts *of, const pi__lora_rows *rows, bool shrinks, bool expands, bool apart)
{
    pi__k_lora_experts k = *of;
    k.row = rows_at(c);
    k.t = t_at(c);
    if (!k.n_lin) return;
    for (int32_t r = 0, group = 0; r < rows->n_runs; group += k.n_groups) {
        r = end_of_level(rows, r, &k.n_groups);
        k.group = groups(c) + group;
        if (shrinks) PI__QUEUE(c, pi__k_lora_experts_shrink(pi__rt_stream(c->rt), &k));
        if (expands) PI__QUEUE(c, pi__k_lora_experts_expand(pi__rt_stream(c->rt), &k));
        if (apart) k.t += (int64_t) k.n_rows * k.n_used * k.ldt;
    }
}

static pi__k_lora_experts of_pairs(const pi__moe *a, const cuda_moe *at)
{
    return (pi__k_lora_experts) {.row0 = at->row0, .n_rows = a->n_rows, .n_used = a->n_used, .id = at->r.id, .column = at->r.column};
}

void pi__cuda_lora_gate_up(pi__cuda *c, const pi__moe *a, const cuda_moe *at)
{
    const int64_t F = a->down->n_in;
    pi__k_lora_experts k = of_pairs(a, at);
    if (!a->lora.rows) return;
    bring(c, a->lora.rows);
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
