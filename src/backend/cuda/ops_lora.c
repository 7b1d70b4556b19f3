/* Adapters (LoRA) on a device: op lora as the kernels have it.
 *
 * Which rows have which adapter is the same for all matrices of a step, but for those behind the narrowing to logits rows: a
 * level of it, cut into groups of a few rows, is brought to the device when an op first asks for it. Steps with adapters are
 * not captured (engine/runner.c), so copies are in order with what reads them.
 *
 * Memory: scratch + at.lora, [groups][rows][t]. Threads: the step thread. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_lora.h"

enum { T_FLOATS = 64 /* a row, of those that there is room for at once */, LEAST_ROWS = 4, UPLOAD = 64 /* groups a copy */ };

static size_t most_rows(const pi__limits *lim) { return (size_t) lim->max_tokens + LEAST_ROWS; }
static size_t group_bytes(const pi__limits *lim) { return most_rows(lim) * sizeof(pi__k_lora_group); }
static size_t t_floats(const pi__limits *lim)
{
    const size_t least = (size_t) LEAST_ROWS * PI__MAX_LIN * PI__MAX_LORA_RANK, n = most_rows(lim) * T_FLOATS;
    return n > least ? n : least;
}

size_t pi__cuda_lora_bytes(const pi__limits *lim)
{
    return group_bytes(lim) + most_rows(lim) * sizeof(int32_t) + t_floats(lim) * sizeof(float);
}

/* Groups and rows of the runs r0..r1, which are of one level. Returns how many groups. */
static int32_t bring(pi__cuda *c, const pi__lora_rows *rows, int32_t r0, int32_t r1)
{
    pi__k_lora_group some[UPLOAD], *to = (pi__k_lora_group *) (void *) (c->scratch + c->at.lora);
    const int32_t first = rows->run[r0].first, end = rows->run[r1 - 1].first + rows->run[r1 - 1].n;
    int32_t n = 0, all = 0;
    for (int32_t r = r0; r < r1; r++) {
        const pi__lora_run *run = &rows->run[r];
        for (int32_t i = 0; i < run->n; i += PI__K_LORA_ROWS) {
            const int32_t left = run->n - i;
            const int32_t of = left < PI__K_LORA_ROWS ? left : PI__K_LORA_ROWS;
            some[n++] = (pi__k_lora_group) {run->pair, run->scale, run->first - first + i, of, 0};
            if (n < UPLOAD) continue;
            pi__cuda_upload(&c->be, to + all, some, sizeof some);
            all += n, n = 0;
        }
    }
    if (n) pi__cuda_upload(&c->be, to + all, some, (size_t) n * sizeof *some);
    pi__cuda_upload(&c->be, c->scratch + c->at.lora + group_bytes(&c->lim), rows->row + first, (size_t) (end - first) * sizeof(int32_t));
    return all + n;
}

static int32_t rank_of(const pi__lora_rows *rows, int32_t r0, int32_t r1, int32_t target)
{
    int32_t most = 0;
    for (int32_t r = r0; r < r1; r++) most = rows->run[r].rank[target] > most ? rows->run[r].rank[target] : most;
    return most;
}

/* As many of the op's matrices from l on as t has room for, of n rows. Returns how many. */
static int32_t take_matrices(const pi__cuda *c, const pi__lora *a, int32_t l, int32_t r0, int32_t r1, int32_t n, pi__k_lora *k)
{
    int32_t at = 0, taken = 0;
    k->n_lin = k->max_rank = 0;
    k->max_out = 0;
    for (; l + taken < a->of.n_lin; taken++) {
        const pi__lin *lin = &a->of.lin[l + taken];
        const int32_t rank = rank_of(a->rows, r0, r1, lin->w->target);
        if (taken && (size_t) (at + rank) * (size_t) n > t_floats(&c->lim)) break;
        if (!rank) continue;
        k->lin[k->n_lin].n_out = lin->w->n_out, k->lin[k->n_lin].ldy = lin->ldy, k->lin[k->n_lin].y = lin->y;
        k->lin[k->n_lin].target = lin->w->target, k->lin[k->n_lin].at = at;
        k->n_lin++;
        at += rank;
        k->max_rank = rank > k->max_rank ? rank : k->max_rank;
        k->max_out = lin->w->n_out > k->max_out ? lin->w->n_out : k->max_out;
    }
    k->ldt = at;
    return taken;
}

/* Groups of the level, as many at once as t has room for: a group's rows are counted from `first` on. */
static void run_level(pi__cuda *c, const pi__lora *a, int32_t r0, int32_t r1)
{
    const int32_t n_groups = bring(c, a->rows, r0, r1), n = a->rows->run[r1 - 1].first + a->rows->run[r1 - 1].n - a->rows->run[r0].first;
    char *at = c->scratch + c->at.lora;
    pi__k_lora k = {.in = pi__cuda_input(&a->of.in), .n_in = a->of.lin[0].w->n_in, .group = (pi__k_lora_group *) (void *) at};
    k.row = (const int32_t *) (void *) (at + group_bytes(&c->lim));
    k.t = (float *) (void *) (at + group_bytes(&c->lim) + most_rows(&c->lim) * sizeof(int32_t));
    for (int32_t l = 0; l < a->of.n_lin;) {
        l += take_matrices(c, a, l, r0, r1, n, &k);
        if (!k.n_lin) continue;
        if ((size_t) k.ldt * (size_t) n > t_floats(&c->lim)) c->no_room = true; /* refused when it was loaded */
        k.n_groups = n_groups;
        PI__QUEUE(c, pi__k_lora_run(pi__rt_stream(c->rt), &k));
    }
}

void pi__cuda_lora(pi__backend *be, const pi__batch *b, const pi__lora *a)
{
    pi__cuda *c = (pi__cuda *) be;
    (void) b;
    pi__cuda_forget(c);
    for (int32_t r = 0, end; r < a->rows->n_runs; r = end) {
        for (end = r + 1; end < a->rows->n_runs && a->rows->run[end].level == a->rows->run[r].level;) end++;
        run_level(c, a, r, end);
    }
}
