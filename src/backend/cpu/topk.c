/* The largest values of logits rows on the CPU, for the sampler (op topk). All threads take part, because a scan of
 * n_vocab logits per sequence by one thread would leave the others idle.
 *
 * A row is cut into enough pieces to keep the threads busy. For each piece, a thread collects the keys of the k largest
 * values in a heap with the smallest of these values at its root. A block of values is skipped if its max is not above
 * the root's value. Then a row's heaps are merged. All keys differ, so the result does not depend on the number of
 * pieces. The sum of exponentials, if requested, is computed by blocks, in the order of base/logits.h.
 *
 *     row     [ piece | piece | piece | piece ]     heap of k keys each
 *     out     word 0: NaN or +inf flag, missing keys; word 1: sum; then k keys, best first
 *
 * Memory: the backend's scratch. Threads: called by the step thread, which forks and joins the pool inside. */
#include "backend/cpu/top.h"

#include <float.h>
#include <math.h>

#include "backend/cpu/simd.h"
#include "base/alloc.h"

enum {
    A_THREAD = 4,         /* min pieces per thread */
    SMALL_WORK = 1 << 14, /* with fewer values in all rows, the calling thread does everything */
};

typedef struct top_job {
    pi__cpu *cpu;
    const pi__topk *a;
    int32_t k;        /* keys per row in out */
    int32_t pieces;   /* pieces per row */
    int64_t length;   /* values per piece, a multiple of the block */
    int64_t n_blocks; /* blocks per row */
    uint64_t *key;    /* [n_rows, pieces, k] heaps */
    int32_t *n_key;   /* [n_rows, pieces] number of keys */
    bool *odd;        /* [n_rows, pieces] true = the piece has a NaN or +inf */
    double *sum;      /* [n_rows, n_blocks] sums of exponentials */
} top_job;

static float *row_of(const top_job *j, int32_t row) { return j->a->x + row * j->a->n; }
static uint64_t *out_of(const top_job *j, int32_t row) { return j->a->out + (size_t) row * (size_t) (2 + j->k); }
static int32_t div_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

/* ---------------------------------------------------------------------------------------------------------- heaps */

/* Moves the key at i down to its place in a heap of n keys. Both subtrees of i must be heaps. */
static void sift(uint64_t *key, int32_t n, int32_t i)
{
    const uint64_t k = key[i];
    for (int32_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && key[c + 1] > key[c]) c++;
        if (key[c] <= k) break;
        key[i] = key[c];
    }
    key[i] = k;
}

int32_t pi__top_put(uint64_t *key, int32_t n, int32_t k, uint64_t x)
{
    if (n == k) {
        if (x >= key[0]) return n;
        key[0] = x;
        sift(key, n, 0);
        return n;
    }
    int32_t i = n;
    for (; i && key[(i - 1) / 2] < x; i = (i - 1) / 2) key[i] = key[(i - 1) / 2];
    key[i] = x;
    return n + 1;
}

/* Sorts a heap of n keys in place, ascending. */
static void sort(uint64_t *key, int32_t n)
{
    while (--n > 0) {
        const uint64_t k = key[n];
        key[n] = key[0];
        key[0] = k;
        sift(key, n, 0);
    }
}

/* --------------------------------------------------------------------------------------------------------- pieces */

/* Collects the keys of the k largest of values first..end - 1 of x in the heap `key`. Returns the number of keys, less
 * than k if fewer values are above -inf. Sets *odd to true if a value is NaN or +inf. */
static int32_t best_of(const top_job *j, const float *x, int64_t first, int64_t end, int32_t k, uint64_t *key,
                       bool *odd)
{
    /* value of the full heap's root; later equal values are not collected, because lower indices win ties */
    float least = -INFINITY;
    int32_t n = 0;
    for (int64_t i = first; i < end; i += PI__LOGITS_BLOCK) {
        const int32_t len = (int32_t) (end - i < PI__LOGITS_BLOCK ? end - i : PI__LOGITS_BLOCK);
        if (!(j->cpu->top->max(x + i, len, odd) > least)) continue;
        for (int64_t t = i; t < i + len; t++) {
            if (!(x[t] > least)) continue;
            n = pi__top_put(key, n, k, pi__logit_key(x[t], (int32_t) t));
            if (n == k) least = pi__key_logit(key[0]);
        }
    }
    return n;
}

static void find_pieces(void *arg, int32_t ith, int32_t nth)
{
    (void) ith, (void) nth;
    const top_job *j = arg;
    for (int32_t u; (u = pi__pool_next(j->cpu->pool, j->a->n_rows * j->pieces)) >= 0;) {
        const int32_t row = u / j->pieces, k = j->a->request[row].k;
        const int64_t first = u % j->pieces * j->length, end = first + j->length;
        j->odd[u] = false;
        j->n_key[u] = !k ? 0
                         : best_of(j, row_of(j, row), first, end < j->a->n ? end : j->a->n, k,
                                   j->key + (size_t) u * (size_t) j->k, &j->odd[u]);
    }
}

/* ------------------------------------------------------------------------------------------------------------- rows */

static void merge_rows(void *arg, int32_t ith, int32_t nth)
{
    (void) ith, (void) nth;
    const top_job *j = arg;
    for (int32_t row; (row = pi__pool_next(j->cpu->pool, j->a->n_rows)) >= 0;) {
        const int32_t k = j->a->request[row].k;
        uint64_t *out = out_of(j, row);
        int32_t n = 0;
        bool odd = false;
        if (!k) continue;
        for (int32_t u = row * j->pieces; u < (row + 1) * j->pieces; u++) {
            const uint64_t *key = j->key + (size_t) u * (size_t) j->k;
            odd |= j->odd[u];
            for (int32_t i = 0; i < j->n_key[u]; i++) n = pi__top_put(out + 2, n, k, key[i]);
        }
        sort(out + 2, n);
        out[0] = (uint64_t) odd << 32 | (uint32_t) (k - n);
        out[1] = 0;
    }
}

/* Returns true if the row's sum of exponentials is requested, and the row has a value above -inf and no NaN or +inf. */
static bool is_summed(const top_job *j, int32_t row)
{
    const pi__topk_request *r = &j->a->request[row];
    const uint64_t word = out_of(j, row)[0];
    return r->k && r->sum && !(word >> 32) && (int32_t) (uint32_t) word < r->k;
}

static void sum_pieces(void *arg, int32_t ith, int32_t nth)
{
    (void) ith, (void) nth;
    const top_job *j = arg;
    for (int32_t u; (u = pi__pool_next(j->cpu->pool, j->a->n_rows * j->pieces)) >= 0;) {
        const int32_t row = u / j->pieces;
        const int64_t first = u % j->pieces * j->length,
                      end = first + j->length < j->a->n ? first + j->length : j->a->n;
        if (!is_summed(j, row)) continue;
        const float *x = row_of(j, row), max = pi__key_logit(out_of(j, row)[2]);
        double *sum = j->sum + row * j->n_blocks;
        for (int64_t i = first; i < end; i += PI__LOGITS_BLOCK) {
            const int64_t len = end - i < PI__LOGITS_BLOCK ? end - i : PI__LOGITS_BLOCK;
            sum[i / PI__LOGITS_BLOCK] = j->cpu->top->exp_sum(x + i, (int32_t) len, max);
        }
    }
}

static void fold_sums(const top_job *j, int32_t row)
{
    double s[PI__LOGITS_RUNS] = {0}, sum = 0;
    for (int64_t b = 0; b < j->n_blocks; b++) s[b % PI__LOGITS_RUNS] += j->sum[row * j->n_blocks + b];
    for (int i = 0; i < PI__LOGITS_RUNS; i++) sum += s[i];
    memcpy(out_of(j, row) + 1, &sum, sizeof sum);
}

/* --------------------------------------------------------------------------------------------------------- the op */

static void lay_out(top_job *j, pi__arena *ar, int32_t n_rows, int64_t n)
{
    const int32_t wanted = A_THREAD * pi__pool_size(j->cpu->pool);
    j->n_blocks = (n + PI__LOGITS_BLOCK - 1) / PI__LOGITS_BLOCK;
    j->pieces = n_rows ? div_up(wanted, n_rows) : 1;
    if (j->pieces > j->n_blocks) j->pieces = (int32_t) j->n_blocks;
    j->length = (j->n_blocks + j->pieces - 1) / j->pieces * PI__LOGITS_BLOCK;
    const size_t units = (size_t) n_rows * (size_t) j->pieces;
    j->key = pi__arena_take(ar, units * (size_t) j->k * sizeof *j->key);
    j->n_key = pi__arena_take(ar, units * sizeof *j->n_key);
    j->odd = pi__arena_take(ar, units * sizeof *j->odd);
    j->sum = pi__arena_take(ar, (size_t) n_rows * (size_t) j->n_blocks * sizeof *j->sum);
}

/* Returns the scratch bytes for up to lim->max_rows rows. Fewer rows have more pieces each, but n_rows * pieces is
 * always less than max_rows + A_THREAD * threads. */
size_t pi__cpu_topk_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    top_job j = {.cpu = (pi__cpu *) cpu, .k = PI__MAX_TOP};
    pi__arena ar = {0};
    if (!lim->max_rows || lim->n_vocab < 1) return 0;
    lay_out(&j, &ar, lim->max_rows + A_THREAD * pi__pool_size(cpu->pool), lim->n_vocab);
    return ar.used;
}

static void run(const top_job *j, pi__job_fn fn)
{
    if (j->a->n_rows * j->a->n >= SMALL_WORK) {
        pi__pool_run(j->cpu->pool, fn, (void *) j);
        return;
    }
    pi__pool_reset(j->cpu->pool);
    fn((void *) j, 0, 1);
}

void pi__cpu_topk(pi__backend *be, const pi__batch *b, const pi__topk *a)
{
    pi__cpu *cpu = (pi__cpu *) be;
    top_job j = {.cpu = cpu, .a = a, .k = b && a->request == b->top.request ? b->top.k : 0};
    pi__arena ar = {.base = cpu->scratch, .size = cpu->scratch_size};
    bool sums = false;
    for (int32_t r = 0; r < a->n_rows; r++) {
        const pi__topk_request *q = &a->request[r];
        for (int32_t i = 0; i < q->n_skip && q->k; i++) row_of(&j, r)[a->skip[i]] = -INFINITY;
        if (q->k > j.k) j.k = q->k;
        sums |= q->k && q->sum;
    }
    if (!j.k) return;
    lay_out(&j, &ar, a->n_rows, a->n);
    run(&j, find_pieces);
    run(&j, merge_rows);
    if (!sums) return;
    run(&j, sum_pieces);
    for (int32_t r = 0; r < a->n_rows; r++)
        if (is_summed(&j, r)) fold_sums(&j, r);
}

/* Returns true: op topk can run on the CPU, because the CPU's ops write logits rows to memory that it can read. */
bool pi__cpu_topk_here(const pi__backend *be)
{
    (void) be;
    return true;
}

const pi__cpu_top_kernels *pi__cpu_top_kernels_of(int isa)
{
#if defined(PI__SIMD_X86)
    PI__RETURN_X86(isa, pi__cpu_top);
#elif defined(PI__SIMD_ARM)
    if (isa == PI__ISA_SVE256) return &pi__cpu_top_sve256;
    if (isa != PI__ISA_GENERIC) return &pi__cpu_top_neon;
#endif
    (void) isa;
    return &pi__cpu_top_generic;
}
