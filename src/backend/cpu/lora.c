/* Adapters (LoRA) on the CPU: y += scale * B (A in) for the rows that have one (op lora).
 *
 * One pool job a call, in chunks of PIECE rows' entries. The threads make the rows' inputs in floats, meet, take rows of A times
 * the entries of a run from a common counter, meet, and take columns of y, to which runs are added in their order:
 *
 *     in [entries, n_in] -> t = A in [entries, rank of each matrix] -> y += factor * B t
 *
 * An adapter's A and B are read once for all of its rows in a chunk. Memory: cpu->scratch, laid out here. Invariant: each sum
 * is one kernel's own (lora_kernels.h), so neither batch nor threads nor chunks can change it. */
#include "backend/cpu/lora.h"

#include "backend/cpu/linear.h"
#include "backend/cpu/simd.h"

enum { PIECE = 64 /* entries at once */, DOTS = 4 /* rows of A an item */, COLUMNS = 256 /* of y an item */ };

typedef struct lora_job {
    pi__cpu *cpu;
    const pi__lora *a;
    int64_t ldx, ldt;        /* floats from entry to entry */
    float *x, *t;            /* [PIECE, ldx], [PIECE, ldt] */
    int32_t at[PI__MAX_LIN]; /* of each matrix, where its values of t begin */
    int32_t first, n;        /* entries of the chunk */
    int32_t run0, run1;      /* the runs that have some of them */
    int32_t n_dots;          /* items of A for each run: groups of DOTS rows, of all matrices */
} lora_job;

const pi__cpu_lora_kernels *pi__cpu_lora_kernels_of(int isa)
{
#if defined(PI__SIMD_X86)
    if (isa >= PI__ISA_AVX512) return &pi__cpu_lora_avx512;
    if (isa >= PI__ISA_AVX2) return &pi__cpu_lora_avx2;
#elif defined(PI__SIMD_ARM)
    if (isa == PI__ISA_SVE256) return &pi__cpu_lora_sve256;
    if (isa != PI__ISA_GENERIC) return &pi__cpu_lora_neon;
#endif
    (void) isa;
    return &pi__cpu_lora_generic;
}

static int64_t up32(int64_t n) { return (n + 31) / 32 * 32; }

size_t pi__cpu_lora_scratch(const pi__limits *lim)
{
    return PIECE * sizeof(float) * (size_t) (up32(lim->max_n_in) + PI__MAX_LIN * PI__MAX_LORA_RANK);
}

/* The entries of a run that are in the chunk. */
static int32_t part_of(const lora_job *j, const pi__lora_run *run, int32_t *first)
{
    const int32_t end = run->first + run->n < j->first + j->n ? run->first + run->n : j->first + j->n;
    *first = run->first > j->first ? run->first : j->first;
    return end - *first;
}

/* Inputs of the chunk's entries, with the prologue. */
static void make_inputs(const lora_job *j, int32_t ith, int32_t nth)
{
    const int64_t n_in = j->a->of.lin[0].w->n_in, n_blk = up32(n_in) / 32;
    for (int32_t i = j->n * ith / nth; i < j->n * (ith + 1) / nth; i++) {
        const pi__lin_x x = {.cols = 1, .f = j->x + i * j->ldx};
        j->cpu->lin->input(&j->a->of.in, n_in, j->a->rows->row[j->first + i], 1, 0, n_blk, &x, 0, 1u << PI__LK_F32);
    }
}

static const pi__lora_pair *pair_of(const lora_job *j, const pi__lora_run *run, int32_t l)
{
    return &run->pair[j->a->of.lin[l].w->target];
}

static size_t size_of(const pi__lora_pair *p) { return p->type == PI__F32 ? sizeof(float) : sizeof(uint16_t); }

/* Pieces of matrices are too short, and too far apart, for the processor to see a stream in them. */
static void fetch(const void *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64) __builtin_prefetch((const char *) p + i, 0, 2);
}

/* Item i of a run: some rows of one matrix's A, r0 and on. */
static const pi__lora_pair *item_of(const lora_job *j, const pi__lora_run *run, int32_t i, int32_t *l, int32_t *r0)
{
    for (*l = 0; *l + 1 < j->a->of.n_lin && i >= (j->at[*l + 1] + DOTS - 1) / DOTS;) ++*l;
    *r0 = DOTS * i - j->at[*l];
    return pair_of(j, run, *l);
}

/* The rows of the item that a thread takes after this one, if all take one in turn. */
static void fetch_dots(const lora_job *j, int32_t i, int32_t nth)
{
    int32_t l, r0;
    if (i + nth >= (j->run1 - j->run0) * j->n_dots) return;
    const pi__lora_pair *p = item_of(j, &j->a->rows->run[j->run0 + (i + nth) / j->n_dots], (i + nth) % j->n_dots, &l, &r0);
    const int32_t n = p->rank - r0 < DOTS ? p->rank - r0 : DOTS;
    if (n > 0) fetch((const char *) p->a + (size_t) r0 * (size_t) p->lda * size_of(p), (size_t) n * (size_t) p->lda * size_of(p));
}

/* Item i of a run: some rows of one matrix's A times its entries. */
static void run_dots(const lora_job *j, const pi__lora_run *run, int32_t i)
{
    int32_t l, r0, first;
    const pi__lora_pair *p = item_of(j, run, i, &l, &r0);
    const int32_t n = part_of(j, run, &first);
    const size_t row = (size_t) p->lda * size_of(p);
    for (int32_t r = r0; r < r0 + DOTS && r < p->rank; r++)
        j->cpu->lora->dot(p->type, (const char *) p->a + (size_t) r * row, p->lda, j->x + (first - j->first) * j->ldx, j->ldx, n,
                          j->t + (first - j->first) * j->ldt + j->at[l] + r, j->ldt);
}

static void fetch_columns(const pi__lora_pair *p, int64_t c, int64_t n)
{
    fetch((const char *) p->b + (size_t) (c * p->rank) * size_of(p), (size_t) (n * p->rank) * size_of(p));
}

/* Columns c.. of one matrix's y: what all runs give its rows, in their order. */
static void run_columns(const lora_job *j, int32_t l, int64_t c)
{
    const pi__lin *lin = &j->a->of.lin[l];
    const int64_t n = lin->w->n_out - c < COLUMNS ? lin->w->n_out - c : COLUMNS;
    for (int32_t k = j->run0; k < j->run1; k++) {
        const pi__lora_run *run = &j->a->rows->run[k];
        const pi__lora_pair *p = pair_of(j, run, l);
        const char *b = (const char *) p->b + (size_t) (c * p->rank) * size_of(p);
        float *y[PIECE];
        int32_t first;
        const int32_t m = part_of(j, run, &first);
        if (k + 1 < j->run1) fetch_columns(pair_of(j, run + 1, l), c, n);
        if (!p->rank) continue;
        for (int32_t i = 0; i < m; i++) y[i] = lin->y + j->a->rows->row[first + i] * lin->ldy + c;
        j->cpu->lora->add(p->type, b, p->rank, j->t + (first - j->first) * j->ldt + j->at[l], j->ldt, m, run->scale * p->factor, y, n);
    }
}

static int32_t column_items(const pi__lin *lin) { return (int32_t) ((lin->w->n_out + COLUMNS - 1) / COLUMNS); }

/* The chunk's inputs and A; the counter is reset behind them. */
static void first_half(const lora_job *j, int32_t ith, int32_t nth)
{
    pi__pool *pool = j->cpu->pool;
    make_inputs(j, ith, nth);
    pi__pool_barrier(pool);
    for (int32_t i, n = (j->run1 - j->run0) * j->n_dots; (i = pi__pool_next(pool, n)) >= 0;) {
        fetch_dots(j, i, nth);
        run_dots(j, &j->a->rows->run[j->run0 + i / j->n_dots], i % j->n_dots);
    }
    pi__pool_barrier(pool);
    if (!ith) pi__pool_reset(pool);
    pi__pool_barrier(pool);
}

static void lora_main(void *arg, int32_t ith, int32_t nth)
{
    const lora_job *j = arg;
    int32_t n = 0;
    for (int32_t l = 0; l < j->a->of.n_lin; l++) n += column_items(&j->a->of.lin[l]);
    first_half(j, ith, nth);
    for (int32_t i; (i = pi__pool_next(j->cpu->pool, n)) >= 0;) {
        int32_t l = 0;
        while (i >= column_items(&j->a->of.lin[l])) i -= column_items(&j->a->of.lin[l++]);
        run_columns(j, l, (int64_t) i * COLUMNS);
    }
}

/* Where each matrix's values of t are: as many as its largest rank, in groups of DOTS. */
static void lay_out(lora_job *j)
{
    j->ldt = 0;
    for (int32_t l = 0; l < j->a->of.n_lin; l++) {
        int32_t most = 0;
        for (int32_t k = 0; k < j->a->rows->n_runs; k++) {
            const int32_t rank = j->a->rows->run[k].rank[j->a->of.lin[l].w->target];
            most = rank > most ? rank : most;
        }
        j->at[l] = (int32_t) j->ldt;
        j->ldt += (most + DOTS - 1) / DOTS * DOTS;
    }
    j->n_dots = (int32_t) j->ldt / DOTS;
}

void pi__cpu_lora(pi__backend *be, const pi__batch *b, const pi__lora *a)
{
    pi__cpu *cpu = (pi__cpu *) be;
    (void) b;
    lora_job j = {.cpu = cpu, .a = a, .ldx = up32(a->of.lin[0].w->n_in)};
    lay_out(&j);
    j.x = (float *) (void *) cpu->scratch;
    j.t = j.x + PIECE * j.ldx;
    for (; j.first < a->rows->n && j.ldt; j.first += j.n) {
        j.n = a->rows->n - j.first < PIECE ? a->rows->n - j.first : PIECE;
        while (a->rows->run[j.run0].first + a->rows->run[j.run0].n <= j.first) j.run0++;
        for (j.run1 = j.run0; j.run1 < a->rows->n_runs && a->rows->run[j.run1].first < j.first + j.n;) j.run1++;
        pi__pool_run(cpu->pool, lora_main, &j);
    }
}
