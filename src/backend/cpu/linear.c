/* Matrices on the CPU: size and loading of weights, op linear, and op embed. The products are in linear_run.c.
 *
 * Memory: cpu->scratch. Threads: called by the step thread, which forks and joins the pool inside. */
#include "backend/cpu/linear.h"

#include <string.h>

#include "base/alloc.h"

/* ---- weights */

size_t pi__cpu_weight_size(const pi__backend *be, pi__weight *w)
{
    (void) be;
    pi__lin_shape s;
    size_t size;
    if (!pi__lin_shape_of(w, &s) || !pi__mul_ok(s.mat, (size_t) w->n_mat, &size)) return 0;
    w->layout = pi__lin_format_of(w->type).code_bytes ? 1 : 0;
    return size;
}

typedef struct load_job {
    pi__pool *pool;
    const pi__weight *w;
    const uint8_t *src; /* file rows; the first one is row 0 of tile tile0 */
    uint8_t *dst;       /* start of the matrix in the weight's data */
    pi__lin_shape s;
    int64_t tile0, n_tile; /* index in the matrix of the first tile to load; number of tiles */
    int64_t n_rows;     /* number of rows at src */
    int64_t step;       /* tiles per item of the pool job */
} load_job;

static void load_tiles(const load_job *job, int64_t t0, int64_t t1)
{
    const pi__weight *w = job->w;
    if (!w->layout) {
        size_t a = (size_t) t0 * 16 * job->s.row,
               b = (size_t) (t1 * 16 < job->n_rows ? t1 * 16 : job->n_rows) * job->s.row;
        memcpy(job->dst + (size_t) job->tile0 * 16 * job->s.row + a, job->src + a, b - a);
        return;
    }
    for (int64_t t = t0; t < t1; t++) {
        int32_t lanes = (int32_t) (job->n_rows - 16 * t < 16 ? job->n_rows - 16 * t : 16);
        pi__lin_pack_tile(w->type, job->src + (size_t) t * 16 * job->s.row, job->s.row, lanes, w->n_in,
                          job->s.tile, job->dst + (size_t) (job->tile0 + t) * job->s.tile);
    }
}

static void load_main(void *arg, int32_t ith, int32_t nth)
{
    const load_job *job = arg;
    const int32_t n = (int32_t) ((job->n_tile + job->step - 1) / job->step);
    (void) ith, (void) nth;
    for (int32_t i; (i = pi__pool_next(job->pool, n)) >= 0;) {
        int64_t t0 = i * job->step, t1 = t0 + job->step;
        load_tiles(job, t0, t1 < job->n_tile ? t1 : job->n_tile);
    }
}

void pi__cpu_weight_load(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src)
{
    pi__cpu *cpu = (pi__cpu *) be;
    load_job job = {.pool = cpu->pool, .w = w, .src = src, .tile0 = row / 16, .n_tile = (n + 15) / 16, .n_rows = n};
    if (!pi__lin_shape_of(w, &job.s)) return;
    job.dst = (uint8_t *) w->data + (size_t) mat * job.s.mat;
    job.step = (int64_t) (1 << 18) / (int64_t) job.s.tile + 1;
    /* min tiles per item: keeps the number of items below 2^24, far from int32 overflow */
    int64_t least = job.n_tile / (1 << 24) + 1;
    if (job.step < least) job.step = least;
    pi__pool_run(cpu->pool, load_main, &job);
}

/* ---- linear */

size_t pi__cpu_linear_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    const int64_t n_blk = (lim->max_n_in + 31) / 32;
    const int64_t n_rows = lim->max_tokens > lim->max_rows ? lim->max_tokens : lim->max_rows;
    const int32_t digits = cpu->lin->digits;
    size_t each = pi__lin_own_bytes(digits) + pi__lin_tile_bytes(n_blk); /* bytes per thread */
    if (each < pi__lin_best_bytes(n_blk)) each = pi__lin_best_bytes(n_blk);
    return (size_t) n_rows * pi__lin_row_stride(digits, n_blk, true) + (size_t) pi__pool_size(cpu->pool) * each;
}

void pi__cpu_linear(pi__backend *be, const pi__batch *b, const pi__linear *a)
{
    (void) b;
    pi__cpu *cpu = (pi__cpu *) be;
    if (a->n_rows <= 0 || (a->best && pi__lin_best(cpu, a))) return;
    pi__lin_run(cpu, cpu->lin, &a->in, a->n_rows, a->lin, a->n_lin);
}

/* ---- embedding */

/* Writes row `lane` of the n_blk canonical blocks at p to out [32 * n_blk] as floats, bitwise identical to
 * pi__dequantize_row. */
static void read_canonical(const pi__cpu_linear_kernels *kernels, int32_t type, const uint8_t *p, int32_t lane,
                           int64_t n_blk, float *out)
{
    const int32_t line_cols = kernels->line_cols, kind = pi__lin_format_of(type).kind;
    const pi__lin_codes codes = pi__lin_codes_of(kernels, type);
    const int halves = kind == PI__LK_OFF16 || kind == PI__LK_MIN16 ? 2 : 1;
    const bool min = kind == PI__LK_MIN32 || kind == PI__LK_MIN16;
    for (int64_t b = 0; b < n_blk; b++, p += pi__lin_block_size(kind)) {
        for (int k = 0; k < 32; k++) {
            const int h = halves == 2 ? k / 16 : 0;
            uint8_t c = p[line_cols * (k / line_cols * 16 + lane) + k % line_cols];
            float s, m = 0;
            memcpy(&s, p + 512 + 64 * h + 4 * lane, sizeof s);
            if (min) memcpy(&m, p + 512 + 64 * (halves + h) + 4 * lane, sizeof m);
            float v = s * (float) pi__lin_code(codes, c);
            out[32 * b + k] = min ? v + m : v;
        }
    }
}

static void embed_row(pi__cpu *cpu, const pi__weight *w, const pi__lin_shape *s, int64_t row, float *out)
{
    const pi__lin_format f = pi__lin_format_of(w->type);
    const pi__type_info *t = pi__type_info_of(w->type);
    const uint8_t *data = (const uint8_t *) w->data, *tile = data + (size_t) (row / 16) * s->tile;
    const int32_t lane = (int32_t) (row % 16);
    if (!f.code_bytes) {
        pi__dequantize_row(w->type, data + (size_t) row * s->row, out, w->n_in);
    } else if (f.kind >= PI__LK_F32) {
        for (int64_t k = 0; k < w->n_in; k++)
            pi__dequantize_row(w->type, tile + (size_t) (16 * k + lane) * t->type_size, out + k, 1);
    } else { /* packed types: unpacks one record at a time into a stack buffer */
        uint8_t buf[8 * 768];
        for (int64_t b = 0; b < s->n_blk; b += f.rec_blocks, tile += pi__lin_record(&f)) {
            cpu->lin->unpack[w->type](&(pi__lin_w) {.data = tile, .n_in = 32 * f.rec_blocks}, buf);
            read_canonical(cpu->lin, w->type, buf, lane, f.rec_blocks, out + 32 * b);
        }
    }
}

typedef struct embed_job {
    pi__cpu *cpu;
    const pi__batch *b;
    const pi__weight *w;
    float scale;
    float *out;
    pi__lin_shape s;
} embed_job;

static void embed_main(void *arg, int32_t ith, int32_t nth)
{
    const embed_job *job = arg;
    const int64_t n = job->w->n_in, n_tokens = job->b->n_tokens;
    const int32_t *row = job->b->embd_row ? job->b->embd_row : job->b->token;
    for (int64_t i = n_tokens * ith / nth; i < n_tokens * (ith + 1) / nth; i++) {
        float *out = job->out + i * n;
        embed_row(job->cpu, job->w, &job->s, row[i], out);
        if (job->w->scale)
            for (int64_t k = 0; k < n; k++) out[k] *= job->w->scale[0];
        for (int64_t k = 0; k < n; k++) out[k] *= job->scale;
    }
}

void pi__cpu_embed(pi__backend *be, const pi__batch *b, const pi__embed *a)
{
    pi__cpu *cpu = (pi__cpu *) be;
    embed_job job = {cpu, b, a->w, a->scale, a->out, {0}};
    if (!pi__lin_shape_of(a->w, &job.s)) return;
    if (b->n_tokens < 8) embed_main(&job, 0, 1);
    else pi__pool_run(cpu->pool, embed_main, &job);
}
