/* Adapters (LoRA) on a device: op lora as the kernels have it.
 *
 * Which rows have which adapter is the same for all matrices of a step, but for those behind the narrowing to logits rows:
 * runs, cut into groups of a few rows, are brought to the device when an op first asks for them. Steps with adapters are not
 * captured (engine/runner.c), so copies are in order with what reads them. A level of runs is a launch of each kernel, or
 * several where t has no room for all of its rows; ranks decide that, and it changes no bit.
 *
 * Memory: scratch + at.lora, [groups][rows][t]. Threads: the step thread. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_lora.h"

enum { T_FLOATS = 128 /* a row, of those that there is room for at once */, UPLOAD = 64 /* groups a copy */ };

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

static int32_t groups_of(const pi__lora_run *run) { return (run->n + PI__K_LORA_ROWS - 1) / PI__K_LORA_ROWS; }

/* Groups and rows of all runs. */
static void bring(pi__cuda *c, const pi__lora_rows *rows)
{
    pi__k_lora_group some[UPLOAD], *to = (pi__k_lora_group *) (void *) (c->scratch + c->at.lora);
    int32_t n = 0;
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
    c->lora = rows->run;
}

static int32_t rank_of(const pi__lora_rows *rows, int32_t r0, int32_t r1, int32_t target)
{
    int32_t most = 0;
    for (int32_t r = r0; r < r1; r++) most = rows->run[r].rank[target] > most ? rows->run[r].rank[target] : most;
    return most;
}

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

/* The runs r0..r1, which are of one level; group: number of their first group. Returns the number behind their last. */
static int32_t run_level(pi__cuda *c, const pi__lora *a, int32_t r0, int32_t r1, int32_t group)
{
    char *at = c->scratch + c->at.lora, *rows = at + group_bytes(&c->lim);
    pi__k_lora k = {.in = pi__cuda_input(&a->of.in), .n_in = a->of.lin[0].w->n_in, .row = (const int32_t *) (void *) rows};
    k.t = (float *) (void *) (rows + most_rows(&c->lim) * sizeof(int32_t));
    take_matrices(a, r0, r1, &k);
    const int64_t room = k.ldt ? (int64_t) (t_floats(&c->lim) / (size_t) k.ldt) : 0;
    for (int32_t r = r0; r < r1; r++) {
        for (int32_t i = 0, n = groups_of(&a->rows->run[r]); i < n; i++, group++) {
            const int32_t first = a->rows->run[r].first + i * PI__K_LORA_ROWS;
            if (k.n_groups && first + PI__K_LORA_ROWS - k.first > room) {
                PI__QUEUE(c, pi__k_lora_run(pi__rt_stream(c->rt), &k));
                k.n_groups = 0;
            }
            if (!k.n_groups) k.first = first, k.group = (pi__k_lora_group *) (void *) at + group;
            k.n_groups++;
        }
    }
    PI__QUEUE(c, pi__k_lora_run(pi__rt_stream(c->rt), &k));
    return group;
}

void pi__cuda_lora(pi__backend *be, const pi__batch *b, const pi__lora *a)
{
    pi__cuda *c = (pi__cuda *) be;
    (void) b;
    if (c->lora != a->rows->run) bring(c, a->rows);
    for (int32_t r = 0, end, group = 0; r < a->rows->n_runs; r = end) {
        for (end = r + 1; end < a->rows->n_runs && a->rows->run[end].level == a->rows->run[r].level;) end++;
        group = run_level(c, a, r, end, group);
    }
}
