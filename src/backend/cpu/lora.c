/* LoRA adapters on the CPU: y += scale * B (A in) for the rows with an adapter. Used by ops lora and lora_embed, and by
 * op moe through moe_lora.c. Per-head matrices: lora_heads.c.
 *
 * One pool job per call, in chunks of PIECE entries. First, the threads compute the entries' inputs as floats. After a
 * barrier, they take items (DOTS rows of A times the entries of a run) from a common counter. After another barrier,
 * they take items of COLUMNS columns of y, and add all runs to them in order:
 *
 *     in [entries, n_in] -> t = A in [entries, rank of each matrix] -> y += factor * B t
 *
 * For an embedding, t is a row of A. An adapter's A and B are read once for all of its entries in a chunk. Memory: the
 * scratch of the work, laid out here. Invariant: one kernel call computes each sum (lora_kernels.h), so batch, threads
 * and chunks do not change it. */
#include "backend/cpu/lora.h"

#include "backend/cpu/linear.h"
#include "backend/cpu/simd.h"
#include "formats/formats.h"

/* PIECE: entries per chunk. DOTS: rows of A per item. COLUMNS: columns of y per item */
enum { PIECE = 64, DOTS = 4, COLUMNS = 256 };

typedef struct lora_job {
    pi__cpu *cpu;
    const pi__cpu_lora_work *w;
    int64_t ldx, ldt;        /* floats from one entry to the next, in x and in t */
    float *x, *t;            /* [PIECE, ldx] inputs; [PIECE, ldt] products with A */
    int32_t at[PI__MAX_LIN]; /* offset of each matrix's values in an entry's t */
    int32_t first, n;        /* index of the chunk's first entry; entries in the chunk */
    int32_t run0, run1;      /* the runs run0..run1 - 1 have entries in the chunk */
    int32_t n_dots;          /* items per run: groups of DOTS rows of A, over all matrices */
} lora_job;

const pi__cpu_lora_kernels *pi__cpu_lora_kernels_of(int isa)
{
#if defined(PI__SIMD_X86)
    PI__RETURN_X86(isa, pi__cpu_lora);
#elif defined(PI__SIMD_ARM)
    if (isa == PI__ISA_SVE256) return &pi__cpu_lora_sve256;
    if (isa != PI__ISA_GENERIC) return &pi__cpu_lora_neon;
#endif
    (void) isa;
    return &pi__cpu_lora_generic;
}

static int64_t up32(int64_t n) { return (n + 31) / 32 * 32; }

size_t pi__cpu_lora_bytes(int64_t n_in, int64_t n_rank)
{
    return PIECE * sizeof(float) * (size_t) (up32(n_in) + n_rank);
}

size_t pi__cpu_lora_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    const size_t own = pi__cpu_lora_bytes(lim->max_n_in, (int64_t) PI__MAX_LIN * PI__MAX_LORA_RANK);
    const size_t heads = pi__cpu_lora_heads_scratch(cpu, lim);
    return own > heads ? own : heads;
}

/* Returns the number of the run's entries in the chunk. *first = index (in the work) of the first such entry. */
static int32_t part_of(const lora_job *j, const pi__lora_run *run, int32_t *first)
{
    const int32_t end = run->first + run->n < j->first + j->n ? run->first + run->n : j->first + j->n;
    *first = run->first > j->first ? run->first : j->first;
    return end - *first;
}

/* Writes the inputs of the chunk's entries, with the prologue applied, to j->x as floats. Thread ith of nth writes its
 * part of the entries. */
static void make_inputs(const lora_job *j, int32_t ith, int32_t nth)
{
    const int64_t n_in = j->w->n_in, n_blk = up32(n_in) / 32;
    for (int32_t i = j->n * ith / nth; i < j->n * (ith + 1) / nth; i++) {
        const pi__lin_x x = {.cols = 1, .f = j->x + i * j->ldx};
        j->cpu->lin->input(&j->w->in, n_in, j->w->from[j->first + i], 1, 0, n_blk, &x, 0, 1u << PI__LK_F32);
    }
}

static const pi__lora_pair *pair_of(const lora_job *j, const pi__lora_run *run, int32_t l)
{
    return &run->pair[j->w->lin[l].target];
}
static size_t value_size(const pi__lora_pair *p) { return pi__cpu_lora_value(p); }
/* Return the addresses of A and of B of the run's expert (expert 0 for ordinary matrices). */
static const char *a_of(const pi__lora_run *run, const pi__lora_pair *p) { return pi__cpu_lora_a(run, p, run->expert); }
static const char *b_of(const pi__lora_run *run, const pi__lora_pair *p) { return pi__cpu_lora_b(run, p, run->expert); }

/* Prefetches n bytes at p. Items read pieces of A and B that are too short and too far apart for the hardware
 * prefetcher. */
static void fetch(const void *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64) __builtin_prefetch((const char *) p + i, 0, 2);
}

/* Returns the run's pair for item i. *l = index of the item's matrix; *r0 = its first row of A. */
static const pi__lora_pair *item_of(const lora_job *j, const pi__lora_run *run, int32_t i, int32_t *l, int32_t *r0)
{
    for (*l = 0; *l + 1 < j->w->n_lin && i >= (j->at[*l + 1] + DOTS - 1) / DOTS;) ++*l;
    *r0 = DOTS * i - j->at[*l];
    return pair_of(j, run, *l);
}

/* Prefetches the rows of A that item i + nth reads: this thread probably gets that item next. */
static void fetch_dots(const lora_job *j, int32_t i, int32_t nth)
{
    int32_t l, r0;
    if (i + nth >= (j->run1 - j->run0) * j->n_dots) return;
    const pi__lora_run *run = &j->w->run[j->run0 + (i + nth) / j->n_dots];
    const pi__lora_pair *p = item_of(j, run, (i + nth) % j->n_dots, &l, &r0);
    const int32_t n = p->rank - r0 < DOTS ? p->rank - r0 : DOTS;
    const size_t row = (size_t) p->lda * value_size(p);
    if (n > 0) fetch(a_of(run, p) + (size_t) r0 * row, (size_t) n * row);
}

/* Computes item i of a run: j->t = DOTS rows of one matrix's A times the inputs of the run's entries in the chunk. */
static void run_dots(const lora_job *j, const pi__lora_run *run, int32_t i)
{
    int32_t l, r0, first;
    const pi__lora_pair *p = item_of(j, run, i, &l, &r0);
    const int32_t n = part_of(j, run, &first);
    const size_t row = (size_t) p->lda * value_size(p);
    for (int32_t r = r0; r < r0 + DOTS && r < p->rank; r++)
        j->cpu->lora->dot(p->type, a_of(run, p) + (size_t) r * row, p->lda, j->x + (first - j->first) * j->ldx, j->ldx,
                          n, j->t + (first - j->first) * j->ldt + j->at[l] + r, j->ldt);
}

/* Embeddings: instead of a product with A, copies the `rank` values of A for each entry's token to j->t. Thread ith of
 * nth copies its part of each run. */
static void look_up(const lora_job *j, int32_t ith, int32_t nth)
{
    const pi__cpu_lora_work *w = j->w;
    for (int32_t k = j->run0; k < j->run1; k++) {
        const pi__lora_pair *p = pair_of(j, &w->run[k], 0);
        int32_t first;
        const int32_t n = part_of(j, &w->run[k], &first);
        for (int32_t e = first + n * ith / nth; e < first + n * (ith + 1) / nth; e++) {
            const size_t at = (size_t) w->token[w->from[e]] * (size_t) p->rank;
            const float *f = (const float *) (const void *) a_of(&w->run[k], p) + at;
            const uint16_t *h = (const uint16_t *) (const void *) a_of(&w->run[k], p) + at;
            float *t = j->t + (e - j->first) * j->ldt;
            for (int32_t r = 0; r < p->rank; r++)
                t[r] = p->type == PI__F32 ? f[r] : p->type == PI__F16 ? pi__f16_to_f32(h[r]) : pi__bf16_to_f32(h[r]);
        }
    }
}

/* Prefetches the values of B for columns c..c + n - 1 of matrix l's y. */
static void fetch_columns(const lora_job *j, const pi__lora_run *run, int32_t l, int64_t c, int64_t n)
{
    const pi__lora_pair *p = pair_of(j, run, l);
    const int64_t at = j->w->lin[l].first + c;
    fetch(b_of(run, p) + (size_t) (at * p->rank) * value_size(p), (size_t) (n * p->rank) * value_size(p));
}

/* Adds a run to columns c..c + n - 1 of matrix l's y, for m entries from `first` on. The columns may begin inside a
 * tile of B and span several tiles. */
static void add_columns(const lora_job *j, const pi__lora_run *run, int32_t l, int64_t c, int64_t n, int32_t first,
                        int32_t m)
{
    const pi__cpu_lora_lin *lin = &j->w->lin[l];
    const pi__lora_pair *p = pair_of(j, run, l);
    const float *t = j->t + (first - j->first) * j->ldt + j->at[l];
    const float factor = run->scale * p->factor * j->w->scale * (lin->scale ? lin->scale[run->expert] : 1.0f);
    while (n > 0) { /* first pass: up to the end of a partial tile; then all complete tiles */
        const int64_t at = lin->first + c, in_tile = at % PI__LORA_TILE, rest = PI__LORA_TILE - in_tile;
        const int64_t some = in_tile && rest < n ? rest : n;
        const char *b = b_of(run, p) + (size_t) ((at - in_tile) * p->rank + in_tile) * value_size(p);
        float *y[PIECE];
        for (int32_t i = 0; i < m; i++) y[i] = lin->y + j->w->to[first + i] * lin->ldy + c;
        j->cpu->lora->add(p->type, b, p->rank, t, j->ldt, m, factor, y, some);
        c += some, n -= some;
    }
}

/* Adds all runs of the chunk, in order, to COLUMNS columns from c on of matrix l's y. */
static void run_columns(const lora_job *j, int32_t l, int64_t c)
{
    const pi__cpu_lora_lin *lin = &j->w->lin[l];
    const int64_t n = lin->n_out - c < COLUMNS ? lin->n_out - c : COLUMNS;
    for (int32_t k = j->run0; k < j->run1; k++) {
        int32_t first;
        const int32_t m = part_of(j, &j->w->run[k], &first);
        if (k + 1 < j->run1) fetch_columns(j, &j->w->run[k + 1], l, c, n);
        if (pair_of(j, &j->w->run[k], l)->rank) add_columns(j, &j->w->run[k], l, c, n, first, m);
    }
}

static int32_t column_items(const pi__cpu_lora_lin *lin) { return (int32_t) ((lin->n_out + COLUMNS - 1) / COLUMNS); }

/* Computes the chunk's inputs and their products t with A. Returns with the pool's item counter reset. */
static void first_half(const lora_job *j, int32_t ith, int32_t nth)
{
    pi__pool *pool = j->cpu->pool;
    if (j->w->token) {
        look_up(j, ith, nth);
        pi__pool_barrier(pool);
        return;
    }
    make_inputs(j, ith, nth);
    pi__pool_barrier(pool);
    for (int32_t i, n = (j->run1 - j->run0) * j->n_dots; (i = pi__pool_next(pool, n)) >= 0;) {
        fetch_dots(j, i, nth);
        run_dots(j, &j->w->run[j->run0 + i / j->n_dots], i % j->n_dots);
    }
    pi__pool_barrier(pool);
    if (!ith) pi__pool_reset(pool);
    pi__pool_barrier(pool);
}

static void lora_main(void *arg, int32_t ith, int32_t nth)
{
    const lora_job *j = arg;
    int32_t n = 0;
    for (int32_t l = 0; l < j->w->n_lin; l++) n += column_items(&j->w->lin[l]);
    first_half(j, ith, nth);
    for (int32_t i; (i = pi__pool_next(j->cpu->pool, n)) >= 0;) {
        int32_t l = 0;
        while (i >= column_items(&j->w->lin[l])) i -= column_items(&j->w->lin[l++]);
        run_columns(j, l, (int64_t) i * COLUMNS);
    }
}

/* Sets at, ldt and n_dots: an entry's t holds the max rank of each matrix, rounded up to a multiple of DOTS. */
static void lay_out(lora_job *j)
{
    j->ldt = 0;
    for (int32_t l = 0; l < j->w->n_lin; l++) {
        j->at[l] = (int32_t) j->ldt;
        j->ldt += (j->w->lin[l].rank + DOTS - 1) / DOTS * DOTS;
    }
    j->n_dots = (int32_t) j->ldt / DOTS;
}

void pi__cpu_lora_add(pi__cpu *cpu, const pi__cpu_lora_work *w)
{
    lora_job j = {.cpu = cpu, .w = w, .ldx = up32(w->n_in)};
    lay_out(&j);
    j.x = (float *) (void *) w->scratch;
    j.t = j.x + PIECE * j.ldx;
    for (; j.first < w->n && j.ldt; j.first += j.n) {
        j.n = w->n - j.first < PIECE ? w->n - j.first : PIECE;
        while (w->run[j.run0].first + w->run[j.run0].n <= j.first) j.run0++;
        for (j.run1 = j.run0; j.run1 < w->n_runs && w->run[j.run1].first < j.first + j.n;) j.run1++;
        pi__pool_run(cpu->pool, lora_main, &j);
    }
}

/* Returns a work with all runs of `rows`, for ops in which input row and result row of an entry are the same number. */
static pi__cpu_lora_work work_of(const pi__cpu *cpu, const pi__lora_rows *rows)
{
    return (pi__cpu_lora_work) {.run = rows->run,
                                .n_runs = rows->n_runs,
                                .from = rows->row,
                                .to = rows->row,
                                .n = rows->n,
                                .scale = 1.0f,
                                .scratch = cpu->scratch};
}

void pi__cpu_lora(pi__backend *be, const pi__batch *b, const pi__lora *a)
{
    pi__cpu_lora_work w = work_of((pi__cpu *) be, a->rows);
    (void) b;
    if (a->of.lin[0].w->n_mat > 1) {
        pi__cpu_lora_heads((pi__cpu *) be, a);
        return;
    }
    w.in = a->of.in;
    w.n_in = a->of.lin[0].w->n_in;
    w.n_lin = a->of.n_lin;
    for (int32_t l = 0; l < w.n_lin; l++) {
        const pi__lin *lin = &a->of.lin[l];
        w.lin[l] = (pi__cpu_lora_lin) {
            .target = lin->w->target, .rank = a->rank[l], .n_out = lin->w->n_out, .y = lin->y, .ldy = lin->ldy};
    }
    pi__cpu_lora_add((pi__cpu *) be, &w);
}

void pi__cpu_lora_embed(pi__backend *be, const pi__batch *b, const pi__lora_embed *a)
{
    pi__cpu_lora_work w = work_of((pi__cpu *) be, a->rows);
    w.token = b->token;
    w.scale = a->scale;
    w.n_lin = 1;
    w.lin[0] = (pi__cpu_lora_lin) {
        .target = a->target, .rank = a->rank, .n_out = a->w->n_in, .y = a->out, .ldy = a->w->n_in};
    pi__cpu_lora_add((pi__cpu *) be, &w);
}
