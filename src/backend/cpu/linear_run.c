/* Products of one op linear on the CPU: the scratch layout, tiles, and the pool job (layouts and kernels: linear.h).
 *
 * One pool job per call. The threads first pack the rows of the batch into groups of activations and meet at a barrier.
 * Then each thread takes items (a range of a matrix's tiles x a span of groups) from a common counter. With few rows,
 * each thread packs all rows for itself, without a barrier. Memory: cpu->scratch, laid out here. Invariant: one kernel
 * call sums each result over all of n_in, so neither batch nor threads change it. */
#include "backend/cpu/linear_float.h"

#include "backend/cpu/simd.h"
#include "base/alloc.h"

enum {
    GROUP_BYTES = 384 * 1024,
    FLOAT_BYTES = 2 * 1024 * 1024,
    ITEM_BYTES = 64 * 1024,
    FEW_GROUPS = 4,
    OWN_BLOCKS = 128,
};

static size_t up64(size_t n) { return (n + 63) & ~(size_t) 63; }

const pi__cpu_linear_kernels *pi__cpu_linear_kernels_of(int isa, int bits)
{
    switch (isa) {
#if defined(PI__SIMD_X86)
#ifndef PI_NO_AMX
    case PI__ISA_AMX: return pi__lin_kernels_amx(bits);
#endif
#ifndef PI_NO_AVX512
    case PI__ISA_AVX512: return pi__lin_kernels_avx512(bits);
#endif
#ifndef PI_NO_AVXVNNI
    case PI__ISA_AVXVNNI: return pi__lin_kernels_avxvnni(bits);
#endif
#ifndef PI_NO_AVX2
    case PI__ISA_AVX2: return pi__lin_kernels_avx2(bits);
#endif
#elif defined(PI__SIMD_ARM)
    case PI__ISA_SVE256: return pi__lin_kernels_sve256(bits);
    case PI__ISA_I8MM: return pi__lin_kernels_i8mm(bits);
    case PI__ISA_NEON: return pi__lin_kernels_neon(bits);
#endif
    default: return pi__lin_kernels_generic(bits);
    }
}

bool pi__lin_shape_of(const pi__weight *w, pi__lin_shape *s)
{
    const pi__lin_format f = pi__lin_format_of(w->type);
    const pi__type_info *t = pi__type_info_of(w->type);
    if (f.kind == PI__LK_N || !t || !t->readable || w->n_in <= 0 || w->n_out <= 0 || w->n_mat <= 0) return false;
    if (w->n_in % t->blck_size || w->n_in > INT32_MAX || w->n_out > INT32_MAX) return false;
    s->n_blk = (w->n_in + 31) / 32;
    s->n_tile = (w->n_out + 15) / 16;
    s->row = pi__row_size(t, w->n_in);
    if (!f.code_bytes) {
        s->tile = 16 * s->row;
        return pi__mul_ok(s->row, (size_t) w->n_out, &s->mat);
    }
    s->tile = f.kind >= PI__LK_F32 ? 16 * s->row : (size_t) (s->n_blk / f.rec_blocks) * pi__lin_record(&f);
    s->tile = up64(s->tile);
    return pi__mul_ok(s->tile, (size_t) s->n_tile, &s->mat);
}

/* ---- scratch: the shared groups of all rows, or one own group per thread; then a canonical tile per thread */

size_t pi__lin_group(char *base, int32_t digits, int64_t n_blk, int32_t cols, bool floats, pi__lin_x *x)
{
    const size_t n = (size_t) n_blk * (size_t) cols, one = up64(4 * n), two = up64(8 * n);
    const size_t q = up64(32 * (size_t) digits * n), f = floats ? 128 * n : 0;
    if (x) {
        x->cols = cols;
        x->q = (int8_t *) base;
        x->d = (float *) (base + q);
        x->n7 = (int32_t *) (base + q + one);
        x->ds = (float *) (base + q + 2 * one);
        x->n7h = (int32_t *) (base + q + 3 * one);
        x->dsh = (float *) (base + q + 3 * one + two);
        x->f = (float *) (base + q + 3 * one + 2 * two);
    }
    return q + 3 * one + 2 * two + f;
}

/* A group of one row pads each array to 64 bytes, so the size per row is an upper bound for any split into groups. */
size_t pi__lin_row_stride(int32_t digits, int64_t n_blk, bool floats)
{
    return pi__lin_group(NULL, digits, n_blk, 1, floats, NULL);
}

size_t pi__lin_tile_bytes(int64_t n_blk) { return up64((size_t) n_blk * 768); }

size_t pi__lin_own_bytes(int32_t digits)
{
    return pi__lin_row_stride(digits, OWN_BLOCKS, true) + 7 * 64 * PI__LIN_COLS;
}

/* ---- the job */

typedef struct lin_job {
    pi__cpu *cpu;
    const pi__cpu_linear_kernels *k;
    const pi__lin_in *in;
    const pi__lin *lin;
    int32_t n_lin;
    int32_t n_rows;
    int32_t digits;              /* digits of an activation */
    int64_t n_in;                /* columns of all matrices */
    int64_t n_blk;               /* blocks of 32 columns */
    int32_t n_group;             /* groups that the rows are split into; their sizes differ by at most one row */
    int32_t span;                /* groups per item; an item's groups are a span */
    uint32_t want;               /* bit i set = a matrix of the op has enum pi__lin_kind i */
    const pi__lin_wide_fns *wide; /* kernels of groups with more than k->max_cols columns; NULL = no such groups */
    bool own;                    /* true = each thread packs all rows (one group) for itself */
    bool floats;                 /* true = a matrix of the op has a float format */
    char *groups;                /* groups that all threads share */
    char *own_groups;            /* group of thread 0; the next thread's is pi__lin_own_bytes() later */
    char *tiles;                 /* canonical tile of thread 0; the next thread's is pi__lin_tile_bytes later */
    struct {
        pi__lin_shape s;
        int64_t step;            /* tiles per item */
        int32_t n_items;         /* items of this matrix per span */
    } m[PI__MAX_LIN];
    int32_t n_items;             /* items of all matrices per span */
} lin_job;

static int32_t group_start(const lin_job *job, int32_t g)
{
    return (int32_t) ((int64_t) job->n_rows * g / job->n_group);
}

static void group_at(const lin_job *job, char *base, int32_t g, pi__lin_x *x)
{
    const int32_t start = group_start(job, g), cols = group_start(job, g + 1) - start;
    pi__lin_group(base + (size_t) start * pi__lin_row_stride(job->digits, job->n_blk, job->floats), job->digits,
                  job->n_blk, cols, job->floats, x);
}

/* Packs thread ith's part (of nth) of the groups at base: prologue and quantization. A part is a range of rows, or if
 * there are fewer rows than threads, a range of blocks of all rows. */
static void make_groups(const lin_job *job, char *base, int32_t ith, int32_t nth)
{
    const bool by_row = job->n_rows >= nth;
    const int64_t b0 = by_row ? 0 : job->n_blk * ith / nth, b1 = by_row ? job->n_blk : job->n_blk * (ith + 1) / nth;
    const int32_t r0 = by_row ? (int32_t) ((int64_t) job->n_rows * ith / nth) : 0;
    const int32_t r1 = by_row ? (int32_t) ((int64_t) job->n_rows * (ith + 1) / nth) : job->n_rows;
    int32_t g = 0;
    for (int32_t r = r0, end; r < r1; r = end) {
        pi__lin_x x;
        while (group_start(job, g + 1) <= r) g++;
        group_at(job, base, g, &x);
        end = group_start(job, g + 1) < r1 ? group_start(job, g + 1) : r1;
        job->k->input(job->in, job->n_in, r, end - r, b0, b1, &x, r - group_start(job, g), job->want);
    }
}

pi__lin_tile pi__lin_tile_of(const pi__cpu_linear_kernels *k, const pi__weight *w, const pi__lin_shape *s, int64_t mat,
                             int64_t tile, uint8_t *buf)
{
    const int32_t kind = pi__lin_format_of(w->type).kind;
    return (pi__lin_tile) {
        .k = k, .type = w->type, .kind = kind, .row = s->row, .buf = buf,
        .w = {.data = (const uint8_t *) w->data + (size_t) mat * s->mat + (size_t) tile * s->tile, .n_in = w->n_in},
        .lanes = (int32_t) (w->n_out - 16 * tile < 16 ? w->n_out - 16 * tile : 16),
        .scale = w->scale ? w->scale[mat] : 1.0f,
        .unpacked = kind >= PI__LK_F32,
    };
}

void pi__lin_tile_unpack(pi__lin_tile *t)
{
    if (t->unpacked) return;
    if (t->k->unpack[t->type]) t->k->unpack[t->type](&t->w, t->buf);
    else pi__lin_decode_rows(t->k, t->type, t->w.data, t->row, t->lanes, t->w.n_in, t->buf);
    t->w.data = t->buf;
    t->unpacked = true;
}

void pi__lin_tile_mul(pi__lin_tile *t, const pi__lin_x *x, float *y, int64_t ldy, bool only)
{
    const pi__lin_y out = {.y = y, .ld = ldy, .lanes = t->lanes, .scale = t->scale};
    pi__lin_mul_fn direct = x->cols <= PI__LIN_DIRECT ? t->k->direct[t->type][x->cols] : NULL;
    if (!t->unpacked && direct && only) {
        direct(&t->w, x, &out);
        return;
    }
    pi__lin_tile_unpack(t);
    t->w.next = t->next;
    t->w.next_step = t->next_step;
    const int32_t bits = pi__lin_canonical_bits(t->k, t->type);
    const pi__lin_mul_fn many = t->k->many && x->cols >= PI__LIN_MANY ? t->k->many[t->kind] : NULL;
    const pi__lin_mul_fn *mul = bits < 8 ? t->k->narrow[bits][t->kind] : t->k->mul[t->kind];
    (many ? many : mul[x->cols])(&t->w, x, &out);
}

/* Multiplies tile number `tile` of matrix l by groups g0..g1 - 1. more: this thread multiplies tile + 1 next, so that
 * tile is prefetched. base: the groups; buf: memory for a canonical tile. */
static void run_tile(const lin_job *job, char *base, uint8_t *buf, int32_t l, int64_t tile, int32_t g0, int32_t g1,
                     bool more)
{
    const pi__lin *lin = &job->lin[l];
    const pi__lin_shape *s = &job->m[l].s;
    pi__lin_tile t = pi__lin_tile_of(job->k, lin->w, s, 0, tile, buf);
    for (int32_t g = g0; g < g1; g++) {
        pi__lin_x x;
        group_at(job, base, g, &x);
        t.next = more && g == g0 ? (const uint8_t *) lin->w->data + (size_t) (tile + 1) * s->tile : NULL;
        t.next_step = up64(s->tile / (size_t) s->n_blk);
        float *y = lin->y + group_start(job, g) * lin->ldy + 16 * tile;
        const pi__lin_mul_fn wide = job->wide ? (*job->wide)[t.kind][x.cols] : NULL;
        if (wide) wide(&t.w, &x, &(pi__lin_y) {.y = y, .ld = lin->ldy, .lanes = t.lanes, .scale = t.scale});
        else pi__lin_tile_mul(&t, &x, y, lin->ldy, g1 - g0 == 1);
    }
}

static void run_item(const lin_job *job, char *base, uint8_t *buf, int32_t item)
{
    const int32_t span = item / job->n_items;
    int32_t i = item % job->n_items, l = 0;
    while (i >= job->m[l].n_items) i -= job->m[l++].n_items;
    int32_t g0 = span * job->span, g1 = g0 + job->span < job->n_group ? g0 + job->span : job->n_group;
    int64_t t0 = i * job->m[l].step, t1 = t0 + job->m[l].step;
    if (t1 > job->m[l].s.n_tile) t1 = job->m[l].s.n_tile;
    for (int64_t t = t0; t < t1; t++) run_tile(job, base, buf, l, t, g0, g1, t + 1 < t1);
}

static void lin_main(void *arg, int32_t ith, int32_t nth)
{
    const lin_job *job = arg;
    const int32_t n = job->n_items * ((job->n_group + job->span - 1) / job->span);
    char *base = job->own ? job->own_groups + (size_t) ith * pi__lin_own_bytes(job->digits) : job->groups;
    uint8_t *buf = (uint8_t *) job->tiles + (size_t) ith * pi__lin_tile_bytes(job->n_blk);
    if (job->own) {
        make_groups(job, base, 0, 1);
    } else {
        make_groups(job, base, ith, nth);
        pi__pool_barrier(job->cpu->pool);
    }
    for (int32_t i; (i = pi__pool_next(job->cpu->pool, n)) >= 0;) run_item(job, base, buf, i);
}

/* Returns the kernels of wide groups, if all matrices of the op have float formats; else NULL. */
static const pi__lin_wide_fns *wide_of(const lin_job *job)
{
    if (job->want & ((1u << PI__LK_F32) - 1)) return NULL;
#if defined(PI__SIMD_X86) && !defined(PI_NO_AVX2)
    for (int bits = 8; bits <= 15; bits += 7) {
        if (job->k == pi__lin_kernels_avx2(bits)) return &pi__lin_wide_avx2;
#ifndef PI_NO_AVXVNNI
        if (job->k == pi__lin_kernels_avxvnni(bits)) return &pi__lin_wide_avx2;
#endif
    }
#endif
    return NULL;
}

/* Sets job->span so that a span's groups fit in the second-level cache (about GROUP_BYTES). Wide groups are read in
 * order, at the third level's speed, while a tile stays in the second level: their span is about FLOAT_BYTES. Sets the
 * tiles per item: about ITEM_BYTES, and at most a quarter of a thread's part of the tiles, for load balance. */
static void plan_items(lin_job *job, int32_t nth)
{
    const int32_t cols = (job->n_rows + job->n_group - 1) / job->n_group;
    const size_t group = job->wide ? (size_t) job->n_blk * (size_t) cols * 32 * sizeof(float)
                                   : pi__lin_group(NULL, job->digits, job->n_blk, cols, false, NULL);
    job->span = (int32_t) ((job->wide ? FLOAT_BYTES : GROUP_BYTES) / group) + 1;
    if (job->span > job->n_group) job->span = job->n_group;
    job->n_items = 0;
    for (int32_t l = 0; l < job->n_lin; l++) {
        const pi__lin_shape *s = &job->m[l].s;
        int64_t step = job->n_group > FEW_GROUPS ? 1 : (int64_t) (ITEM_BYTES / s->tile) + 1,
                most = s->n_tile / (4 * nth) + 1;
        job->m[l].step = step < most ? step : most;
        job->m[l].n_items = (int32_t) ((s->n_tile + job->m[l].step - 1) / job->m[l].step);
        job->n_items += job->m[l].n_items;
    }
}

void pi__lin_run(pi__cpu *cpu, const pi__cpu_linear_kernels *k, const pi__lin_in *in, int32_t n_rows,
                 const pi__lin *lin, int32_t n_lin)
{
    const int32_t nth = pi__pool_size(cpu->pool);
    lin_job job = {.cpu = cpu, .k = k, .in = in, .lin = lin, .n_lin = n_lin, .n_rows = n_rows, .n_in = lin[0].w->n_in};
    job.digits = k->digits;
    job.n_blk = (job.n_in + 31) / 32;
    for (int32_t l = 0; l < n_lin; l++) {
        if (!pi__lin_shape_of(lin[l].w, &job.m[l].s)) return;
        job.want |= 1u << pi__lin_format_of(lin[l].w->type).kind;
    }
    job.floats = job.want >> PI__LK_F32;
    job.wide = wide_of(&job);
    const int32_t max_cols = job.wide ? PI__LIN_WIDE : k->max_cols;
    job.n_group = (n_rows + max_cols - 1) / max_cols;
    const bool glu = pi__in_gated(in->kind);
    job.own = job.n_group == 1 && n_rows * job.n_blk <= (glu ? OWN_BLOCKS / 4 : OWN_BLOCKS);
    job.groups = cpu->scratch;
    job.own_groups = cpu->scratch;
    const size_t rows = (size_t) n_rows * pi__lin_row_stride(job.digits, job.n_blk, job.floats);
    job.tiles = cpu->scratch + (job.own ? (size_t) nth * pi__lin_own_bytes(job.digits) : rows);
    plan_items(&job, nth);
    pi__pool_run(cpu->pool, lin_main, &job);
}
