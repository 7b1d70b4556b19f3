/* Small ops of the CPU backend on float rows: residual add with norm, gated sum, RoPE tables, row gathering, softcap.
 *
 * No memory. Threads: called by the step thread. Large inputs are split over the pool by rows (softcap: by ranges of
 * values). Each value is computed from its own row alone, so it never depends on the number of threads. The arithmetic
 * of rows is in attention_kernels.h, for each instruction set. */
#include <math.h>
#include <string.h>

#include "backend/cpu/attention.h"

/* ops with fewer values run on the calling thread: waking pool threads would cost more than it saves */
enum { SMALL = 16384 };

/* ------------------------------------------------------------------------------------------------------- add_norm */

typedef struct add_norm_job {
    const pi__cpu *cpu;
    float *x;
    const float *y, *w, *bias;
    float eps, scale;
    int32_t n_rows;
    int64_t n;
} add_norm_job;

static void add_norm_run(void *arg, int32_t ith, int32_t nth)
{
    const add_norm_job *j = arg;
    int64_t rows = j->n_rows;
    for (int64_t i = rows * ith / nth; i < rows * (ith + 1) / nth; i++) {
        j->cpu->attn->add_norm(j->x + i * j->n, j->y + i * j->n, j->w, j->bias, j->eps, j->scale, j->n);
    }
}

void pi__cpu_add_norm(pi__backend *be, const pi__batch *b, const pi__add_norm *a)
{
    (void) b;
    pi__cpu *cpu = (pi__cpu *) be;
    add_norm_job j = {cpu, a->x, a->y, a->w, a->bias, a->eps, a->scale, a->n_rows, a->n};
    if (a->n_rows * a->n < SMALL) {
        add_norm_run(&j, 0, 1);
    } else {
        pi__pool_run(cpu->pool, add_norm_run, &j);
    }
}

/* ----------------------------------------------------------------------------------------------------------- norm */

typedef struct norm_job {
    const pi__cpu *cpu;
    float *out;
    int64_t ldo;
    const float *x, *w;
    float eps;
    int32_t n_rows;
    int64_t n;
} norm_job;

/* Computes the norm by the add_norm kernel: adds the normed x to a row of zeros. */
static void norm_run(void *arg, int32_t ith, int32_t nth)
{
    const norm_job *j = arg;
    int64_t rows = j->n_rows;
    for (int64_t i = rows * ith / nth; i < rows * (ith + 1) / nth; i++) {
        memset(j->out + i * j->ldo, 0, (size_t) j->n * sizeof *j->out);
        j->cpu->attn->add_norm(j->out + i * j->ldo, j->x + i * j->n, j->w, NULL, j->eps, 1.0f, j->n);
    }
}

void pi__cpu_norm(pi__backend *be, const pi__batch *b, const pi__norm *a)
{
    (void) b;
    pi__cpu *cpu = (pi__cpu *) be;
    norm_job j = {cpu, a->out, a->ldo, a->x, a->w, a->eps, a->n_rows, a->n};
    if (a->n_rows * a->n < SMALL) {
        norm_run(&j, 0, 1);
    } else {
        pi__pool_run(cpu->pool, norm_run, &j);
    }
}

/* ------------------------------------------------------------------------------------------------------- add_rows */

void pi__cpu_add_rows(pi__backend *be, const pi__batch *b, const pi__add_rows *a)
{
    (void) be;
    (void) b;
    for (int32_t r = 0; r < a->n_rows; r++) {
        float *restrict x = a->x + r * a->n;
        const float *restrict y = a->table + a->row[r] * a->n;
        for (int64_t i = 0; i < a->n; i++) x[i] += y[i];
    }
}

/* ----------------------------------------------------------------------------------------------------- place_rows */

void pi__cpu_place_rows(pi__backend *be, const pi__batch *b, const pi__place_rows *a)
{
    (void) be;
    (void) b;
    for (int32_t r = 0; r < a->n_rows; r++) {
        if (a->row[r] < 0) continue;
        float *restrict x = a->x + r * a->n;
        const float *restrict y = a->rows + a->row[r] * a->ldr;
        if (!a->add) memcpy(x, y, (size_t) a->n * sizeof *x);
        for (int64_t i = 0; i < a->n && a->add; i++) x[i] += y[i];
    }
}

/* ------------------------------------------------------------------------------------------- layer_norm, activate */

typedef struct layer_norm_job {
    const pi__cpu *cpu;
    const pi__layer_norm *a;
} layer_norm_job;

static void layer_norm_run(void *arg, int32_t ith, int32_t nth)
{
    const layer_norm_job *j = arg;
    const pi__layer_norm *a = j->a;
    const int64_t rows = a->n_rows;
    for (int64_t i = rows * ith / nth; i < rows * (ith + 1) / nth; i++)
        j->cpu->attn->layer_norm(a->x + i * a->n, a->y ? a->y + i * a->n : NULL, a->b, a->w, a->shift, a->eps, a->n);
}

void pi__cpu_layer_norm(pi__backend *be, const pi__batch *b, const pi__layer_norm *a)
{
    (void) b;
    pi__cpu *cpu = (pi__cpu *) be;
    layer_norm_job j = {cpu, a};
    if (a->n_rows * a->n < SMALL) {
        layer_norm_run(&j, 0, 1);
    } else {
        pi__pool_run(cpu->pool, layer_norm_run, &j);
    }
}

typedef struct activate_job {
    const pi__cpu *cpu;
    const pi__activate *a;
} activate_job;

static void activate_run(void *arg, int32_t ith, int32_t nth)
{
    const activate_job *j = arg;
    const pi__activate *a = j->a;
    const int64_t rows = a->n_rows;
    for (int64_t i = rows * ith / nth; i < rows * (ith + 1) / nth; i++) j->cpu->attn->activate(a, a->x + i * a->n);
}

void pi__cpu_activate(pi__backend *be, const pi__batch *b, const pi__activate *a)
{
    (void) b;
    pi__cpu *cpu = (pi__cpu *) be;
    activate_job j = {cpu, a};
    if (a->n_rows * a->n < SMALL) {
        activate_run(&j, 0, 1);
    } else {
        pi__pool_run(cpu->pool, activate_run, &j);
    }
}

/* ------------------------------------------------------------------------------------------------------ add_gated */

typedef struct add_gated_job {
    float *y;
    const float *x, *gate;
    int64_t ldg;
    int32_t n_rows;
    int64_t n;
} add_gated_job;

static void add_gated_run(void *arg, int32_t ith, int32_t nth)
{
    const add_gated_job *j = arg;
    int64_t rows = j->n_rows;
    for (int64_t i = rows * ith / nth; i < rows * (ith + 1) / nth; i++) {
        const float f = 1.0f / (1.0f + expf(-j->gate[i * j->ldg])), *restrict x = j->x + i * j->n;
        float *restrict y = j->y + i * j->n;
        for (int64_t k = 0; k < j->n; k++) y[k] += f * x[k];
    }
}

void pi__cpu_add_gated(pi__backend *be, const pi__batch *b, const pi__add_gated *a)
{
    (void) b;
    add_gated_job j = {a->y, a->x, a->gate, a->ldg, a->n_rows, a->n};
    if (a->n_rows * a->n < SMALL) {
        add_gated_run(&j, 0, 1);
    } else {
        pi__pool_run(((pi__cpu *) be)->pool, add_gated_run, &j);
    }
}

/* ----------------------------------------------------------------------------------------------------- gate_heads */

static void gate_heads_run(void *arg, int32_t ith, int32_t nth)
{
    const pi__gate_heads *a = arg;
    const int64_t heads = (int64_t) a->n_rows * a->n_head;
    for (int64_t i = heads * ith / nth; i < heads * (ith + 1) / nth; i++) {
        const float t = a->gate[i / a->n_head * a->ldg + i % a->n_head];
        const float f = a->softplus ? (t > 0 ? t : 0) + log1pf(expf(-fabsf(t))) : 1.0f / (1.0f + expf(-t));
        float *restrict x = a->x + i * a->n;
        for (int64_t k = 0; k < a->n; k++) x[k] *= f;
    }
}

void pi__cpu_gate_heads(pi__backend *be, const pi__batch *b, const pi__gate_heads *a)
{
    (void) b;
    pi__gate_heads own = *a;
    if (a->n_rows * a->n_head * a->n < SMALL) {
        gate_heads_run(&own, 0, 1);
    } else {
        pi__pool_run(((pi__cpu *) be)->pool, gate_heads_run, &own);
    }
}

/* ----------------------------------------------------------------------------------------------------- block_conv */

typedef struct block_conv_job {
    const pi__batch *b;
    const pi__block_conv *a;
} block_conv_job;

/* out[k] += (base[k] + own[k / group]) * x[k] for k < n: adds one tap of token t's convolution. x: the input of token t
 * - tap. own: the token's own weights, one per group of a->group columns. */
static void add_tap(const pi__block_conv *a, int64_t t, int32_t tap, float *restrict out)
{
    const float *restrict x = a->x + (t - tap) * a->n, *restrict base = a->base + tap * a->n;
    const float *own = a->own + t * a->ldo + tap * (a->n / a->group);
    for (int64_t c = 0; c < a->n; c += a->group)
        for (int64_t k = c; k < c + a->group; k++) out[k] += (base[k] + own[c / a->group]) * x[k];
}

static void block_conv_run(void *arg, int32_t ith, int32_t nth)
{
    const block_conv_job *j = arg;
    const pi__block_conv *a = j->a;
    const int64_t n = j->b->n_tokens;
    for (int64_t t = n * ith / nth; t < n * (ith + 1) / nth; t++) {
        const int64_t slot = t - j->b->seq_start[j->b->seq[t]];
        memset(a->out + t * a->n, 0, (size_t) a->n * sizeof *a->out);
        for (int32_t i = 0; i < a->n_tap && i <= slot; i++) add_tap(a, t, i, a->out + t * a->n);
    }
}

void pi__cpu_block_conv(pi__backend *be, const pi__batch *b, const pi__block_conv *a)
{
    block_conv_job j = {b, a};
    if ((int64_t) b->n_tokens * a->n * a->n_tap < SMALL) {
        block_conv_run(&j, 0, 1);
    } else {
        pi__pool_run(((pi__cpu *) be)->pool, block_conv_run, &j);
    }
}

/* ----------------------------------------------------------------------------------------------------------- rope */

typedef struct rope_job {
    const pi__batch *b;
    const pi__rope *a;
} rope_job;

/* Returns the index of the position (time 0, row 1, column 2) that pair i uses, see pi__rope.section. */
static int32_t rope_part(const pi__rope *a, int32_t i)
{
    const int32_t *n = a->section;
    if (a->interleaved) return i % 3 == 1 && i < 3 * n[1] ? 1 : i % 3 == 2 && i < 3 * n[2] ? 2 : 0;
    return i < n[0] || i >= n[0] + n[1] + n[2] ? 0 : i < n[0] + n[1] ? 1 : 2;
}

/* Writes token t's row of the table for a model with M-RoPE. */
static void rope_parts(const rope_job *j, int64_t t)
{
    const int32_t n_freq = j->a->n_freq, *pos = j->b->rope_pos + 3 * t;
    float *c = j->a->table + t * 2 * n_freq, *s = c + n_freq;
    for (int32_t i = 0; i < n_freq; i++) {
        const float angle = (float) pos[rope_part(j->a, i)] * j->a->freq[i];
        c[i] = cosf(angle) * j->a->mscale;
        s[i] = sinf(angle) * j->a->mscale;
    }
}

static void rope_run(void *arg, int32_t ith, int32_t nth)
{
    const rope_job *j = arg;
    int64_t n = j->b->n_tokens;
    const bool parts = j->b->rope_pos && (j->a->section[0] || j->a->section[1] || j->a->section[2]);
    for (int64_t t = n * ith / nth; t < n * (ith + 1) / nth; t++) {
        if (parts) {
            rope_parts(j, t);
            continue;
        }
        const int32_t n_freq = j->a->n_freq, p = j->b->pos[t];
        float *c = j->a->table + t * 2 * n_freq, *s = c + n_freq, scale = j->a->mscale;
        if (j->a->temp_len) scale *= 1.0f + j->a->temp * logf((float) (1 + p / j->a->temp_len));
        for (int32_t i = 0; i < n_freq; i++) {
            float angle = (float) p * j->a->freq[i];
            c[i] = cosf(angle) * scale;
            s[i] = sinf(angle) * scale;
        }
    }
}

void pi__cpu_rope(pi__backend *be, const pi__batch *b, const pi__rope *a)
{
    pi__cpu *cpu = (pi__cpu *) be;
    rope_job j = {b, a};
    /* a sine and a cosine cost about as much as 16 values of the other ops */
    if ((int64_t) b->n_tokens * a->n_freq < SMALL / 16) {
        rope_run(&j, 0, 1);
    } else {
        pi__pool_run(cpu->pool, rope_run, &j);
    }
}

/* ---------------------------------------------------------------------------------------------------- gather_rows */

void pi__cpu_copy_2d(pi__backend *be, const pi__batch *b, const pi__copy_2d *a)
{
    (void) be;
    (void) b;
    for (int32_t r = 0; r < a->n_rows; r++)
        for (int32_t p = 0; p < a->n_shards; p++)
            memcpy(a->y + r * a->ldy + p * a->n, a->x + p * a->step + r * a->ldx, (size_t) a->n * sizeof *a->y);
}

void pi__cpu_gather_rows(pi__backend *be, const pi__batch *b, const pi__gather_rows *a)
{
    (void) be;
    (void) b;
    for (int32_t i = 0; i < a->n_rows; i++) {
        if (a->row[i] < 0) memset(a->out + i * a->n, 0, (size_t) a->n * sizeof(float));
        else memcpy(a->out + i * a->n, a->x + a->row[i] * a->n, (size_t) a->n * sizeof(float));
    }
}

/* ---------------------------------------------------------------------------------------------------------- scale */

typedef struct scale_job {
    const pi__scale *a;
} scale_job;

static void scale_row(const pi__scale *a, float *x, const float *y)
{
    for (int64_t i = 0; i < a->n; i++) {
        float v = a->factor * x[i];
        if (y) v *= y[i];
        if (a->w) v *= a->w[i];
        x[i] = v < a->lo ? a->lo : v > a->hi ? a->hi : v;
    }
}

static void scale_run(void *arg, int32_t ith, int32_t nth)
{
    const pi__scale *a = ((const scale_job *) arg)->a;
    const int64_t rows = a->n_rows;
    for (int64_t i = rows * ith / nth; i < rows * (ith + 1) / nth; i++)
        scale_row(a, a->x + i * a->n, a->y ? a->y + i * a->n : NULL);
}

void pi__cpu_scale(pi__backend *be, const pi__batch *b, const pi__scale *a)
{
    (void) b;
    pi__cpu *cpu = (pi__cpu *) be;
    scale_job j = {a};
    if (a->n_rows * a->n < SMALL) scale_run(&j, 0, 1);
    else pi__pool_run(cpu->pool, scale_run, &j);
}

/* -------------------------------------------------------------------------------------------------------- softcap */

typedef struct softcap_job {
    const pi__cpu *cpu;
    float *x;
    float cap;
    size_t n;
} softcap_job;

static void softcap_run(void *arg, int32_t ith, int32_t nth)
{
    const softcap_job *j = arg;
    size_t a = j->n / (size_t) nth * (size_t) ith, b = j->n / (size_t) nth * (size_t) (ith + 1);
    if (ith == nth - 1) b = j->n;
    j->cpu->attn->softcap(j->x + a, j->cap, b - a);
}

void pi__cpu_softcap(pi__backend *be, const pi__batch *b, const pi__softcap *a)
{
    (void) b;
    pi__cpu *cpu = (pi__cpu *) be;
    softcap_job j = {cpu, a->x, a->cap, (size_t) a->n_rows * (size_t) a->n};
    if (j.n < SMALL) {
        softcap_run(&j, 0, 1);
    } else {
        pi__pool_run(cpu->pool, softcap_run, &j);
    }
}
