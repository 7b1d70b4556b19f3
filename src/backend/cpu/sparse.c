/* Attention of DeepSeek V4 on the CPU: op sparse. Each token attends to the rows of a sliding window, then to
 * compressed entries (see sparse.h).
 *
 * An item is a token and 16 of its query heads; one thread computes an item completely. Memory: the backend's scratch,
 * one region per thread. Threads: called by the step thread, which forks and joins the pool inside. */
#include "backend/cpu/sparse.h"

#include <string.h>

#include "backend/cpu/simd.h"
#include "base/alloc.h"

/* Working memory of one thread. */
typedef struct sparse_work {
    float *qt;          /* packed queries of the item: [dim][16] */
    float *s;           /* scores: [PI__SPARSE_SPLIT][16] */
    float *wide;        /* [PI__SPARSE_SPLIT][dim] rows as floats */
    pi__sparse_sum sum; /* result of the item so far */
} sparse_work;

typedef struct sparse_job {
    pi__cpu *cpu;
    const pi__batch *b;
    const pi__sparse *a;
    const pi__kv_layer *rows, *entries;
    int32_t groups;     /* groups of 16 heads */
    sparse_work *work;  /* [threads] working memory */
} sparse_job;

size_t pi__cpu_row_bytes(const pi__backend *be, int32_t type, int32_t n, int32_t n_rows)
{
    (void) be;
    if (pi__kv_index(type) < 0) return 0;
    if (n < 16 || n > 4 * PI__MAX_HEAD_DIM || n % 16 || n_rows < 1) return 0;
    const size_t size = (size_t) n_rows * pi__kv_row_size(type, pi__row_width(n));
    return (size + 63) & ~(size_t) 63;
}

/* The rows that a token attends to, in order: window rows by position, then entries. */
typedef struct list {
    int32_t first;       /* position of the window's first row */
    int32_t n_window;    /* rows of the window */
    int32_t n;           /* total number of rows */
    const int32_t *pick; /* selected entries; NULL = entries 0, 1, 2, ... */
    int32_t seq;         /* index of the sequence in the batch */
} list;

static list list_of(const sparse_job *j, int32_t t)
{
    const pi__sparse *a = j->a;
    const int32_t pos = j->b->pos[t];
    list l = {.seq = j->b->seq[t], .first = pos >= a->window ? pos - a->window + 1 : 0};
    if (l.first < a->first) l.first = a->first;
    l.n = l.n_window = pos - l.first + 1;
    if (!j->entries) return l;
    const int32_t seen = (pos + 1) / j->entries->ratio;
    l.pick = a->pick ? a->pick + (size_t) t * (size_t) a->n_top : NULL;
    l.n += l.pick && seen > a->n_top ? a->n_top : seen;
    return l;
}

/* Returns row i of the list as floats: the cached row itself if its type is F32, else buf after conversion. */
static const float *row_at(const sparse_job *j, const list *l, int32_t i, float *buf)
{
    const bool window = i < l->n_window;
    const pi__kv_layer *kv = window ? j->rows : j->entries;
    const int32_t e = i - l->n_window, pos = window ? l->first + i : (l->pick ? l->pick[e] : e) * kv->ratio;
    return pi__row_floats(j->cpu, kv, pi__row_of(kv, &j->b->kv[kv->group], l->seq, pos), buf);
}

/* Writes the outputs [dim_v] of heads h0..h0 + n_head - 1 of token t: adds the sinks to the softmax sum, divides by the
 * sum, and applies the inverse RoPE to the last n_rot values. */
static void finish(const sparse_job *j, const sparse_work *w, int32_t t, int32_t h0, int32_t n_head)
{
    const pi__sparse *a = j->a;
    for (int32_t h = 0; h < n_head; h++) {
        const float m = w->sum.m[h], sink = a->sinks ? a->sinks[h0 + h] : -INFINITY, most = sink > m ? sink : m;
        const float f = expf(m - most), scale = f / (w->sum.l[h] * f + expf(sink - most));
        const float *restrict acc = w->sum.acc + (size_t) h * (size_t) a->dim;
        float *restrict out = a->out + t * a->ldo + (size_t) (h0 + h) * (size_t) a->dim;
        for (int32_t d = 0; d < a->dim_v; d++) out[d] = acc[d] * scale;
        if (a->n_rot) pi__rotate_tail(out, a->dim, a->rope + (size_t) t * (size_t) a->n_rot, a->n_rot, -1.0f);
    }
}

static void do_item(const sparse_job *j, int32_t item, sparse_work *w)
{
    const pi__sparse *a = j->a;
    const int32_t t = item / j->groups, h0 = item % j->groups * PI__SPARSE_HEADS;
    const int32_t n_head = a->n_head - h0 < PI__SPARSE_HEADS ? a->n_head - h0 : PI__SPARSE_HEADS;
    const float *q = a->q + t * a->ldq + (size_t) h0 * (size_t) a->dim;
    for (int32_t h = 0; h < PI__SPARSE_HEADS; h++)
        for (int32_t d = 0; d < a->dim; d++)
            w->qt[d * PI__SPARSE_HEADS + h] = h < n_head ? q[(size_t) h * (size_t) a->dim + (size_t) d] : 0.0f;
    const list l = list_of(j, t);
    w->sum.any = false;
    for (int32_t i = 0; i < l.n; i += PI__SPARSE_SPLIT) {
        const float *row[PI__SPARSE_SPLIT];
        const int32_t n = l.n - i < PI__SPARSE_SPLIT ? l.n - i : PI__SPARSE_SPLIT;
        for (int32_t k = 0; k < n; k++) row[k] = row_at(j, &l, i + k, w->wide + k * pi__row_width(a->dim));
        j->cpu->sparse->split(w->qt, n_head, a->dim, a->dim_v, row, n, w->s, &w->sum);
    }
    finish(j, w, t, h0, n_head);
}

static void sparse_main(void *arg, int32_t ith, int32_t nth)
{
    const sparse_job *j = arg;
    (void) nth;
    for (int32_t i; (i = pi__pool_next(j->cpu->pool, j->b->n_tokens * j->groups)) >= 0;) do_item(j, i, &j->work[ith]);
}

static void take_scratch(sparse_job *j, pi__arena *ar, int32_t dim)
{
    const size_t wide = (size_t) pi__row_width(dim), n_threads = (size_t) pi__pool_size(j->cpu->pool),
                 f = sizeof(float);
    j->work = pi__arena_take(ar, n_threads * sizeof *j->work);
    for (size_t i = 0; i < n_threads; i++) {
        sparse_work w = {0};
        w.qt = pi__arena_take(ar, wide * PI__SPARSE_HEADS * f);
        w.s = pi__arena_take(ar, PI__SPARSE_SPLIT * PI__SPARSE_HEADS * f);
        w.wide = pi__arena_take(ar, PI__SPARSE_SPLIT * wide * f);
        w.sum.acc = pi__arena_take(ar, wide * PI__SPARSE_HEADS * f);
        if (j->work) j->work[i] = w;
    }
}

size_t pi__cpu_sparse_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    sparse_job j = {.cpu = (pi__cpu *) cpu};
    pi__arena ar = {0};
    if (!lim->max_row) return 0;
    take_scratch(&j, &ar, lim->max_row);
    return ar.used;
}

void pi__cpu_sparse(pi__backend *be, const pi__batch *b, const pi__sparse *a)
{
    pi__cpu *cpu = (pi__cpu *) be;
    sparse_job j = {.cpu = cpu, .b = b, .a = a, .rows = a->rows, .entries = a->entries};
    pi__arena ar = {.base = cpu->scratch, .size = cpu->scratch_size};
    j.groups = (a->n_head + PI__SPARSE_HEADS - 1) / PI__SPARSE_HEADS;
    take_scratch(&j, &ar, a->dim);
    pi__pool_run(cpu->pool, sparse_main, &j);
}

const pi__cpu_sparse_kernels *pi__cpu_sparse_kernels_of(int isa)
{
#if defined(PI__SIMD_X86)
    PI__RETURN_X86(isa, pi__cpu_sparse);
#elif defined(PI__SIMD_ARM)
    if (isa == PI__ISA_SVE256) return &pi__cpu_sparse_sve256;
    if (isa != PI__ISA_GENERIC) return &pi__cpu_sparse_neon;
#endif
    (void) isa;
    return &pi__cpu_sparse_generic;
}
