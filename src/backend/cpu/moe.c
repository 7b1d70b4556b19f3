/* Routed experts on the CPU: routing of rows to experts, and the experts' matrices.
 *
 * A pair is a row and one of its experts. Pairs are sorted by expert. Pair number j in this order is column j: column j
 * of the activations and row j of the results. Each expert's matrices are read once for all of its columns, so decode
 * and prefill use the same code:
 *
 *     rows      r0      r1      r2            activations packed once each
 *     experts   4 1     1 7     1 4           each row's experts, in the order of choice
 *     columns   [e1: r0 r1 r2] [e4: r0 r2] [e7: r1]
 *
 * Routing is a separate step. Then one pool job runs phases with barriers between them: pack the rows' activations;
 * gather them into the experts' groups; gate and up; biases and activation function; down; sum each row's results in
 * the order of its experts. With adapters there are three jobs: adapters (moe_lora.c) are added after gate and up, and
 * after down. Items are some tiles of one expert's matrix times its columns, so even a single row keeps many threads
 * busy.
 *
 * Memory: cpu->scratch, laid out here. Invariant: one kernel call sums each result over all columns (linear.h), and a
 * row only adds the results of its own pairs, so the op is batch-invariant. */
#include <math.h>
#include <string.h>

#include "backend/cpu/linear.h"
#include "backend/cpu/lora.h"
#include "backend/cpu/moe.h"
#include "backend/operands.h"
#include "base/alloc.h"

enum { ITEM_BYTES = 64 * 1024, FEW_LOGITS = 8192 };
/* min divisor: a row's routing weights are divided by max(their sum, LEAST_SUM) */
static const float LEAST_SUM = 6.1e-5f;

/* Columns of packed activations, read by the matrices of one pass. */
typedef struct acts {
    char *base;    /* column i starts at base + i * stride */
    size_t stride; /* bytes */
    int64_t n_in;  /* values */
    int64_t n_blk; /* blocks of 32 */
    int32_t digits; /* digits of an activation */
    uint32_t want; /* bit i set = a matrix that reads them has enum pi__lin_kind i */
    bool floats;   /* true = a matrix that reads them has a float format */
} acts;

/* The matrices of each expert that read the same activations: gate and up, or down. */
typedef struct pass {
    const acts *x;           /* activations, one column per pair */
    /* activations by batch row, read instead of x by experts with a single column; NULL = all experts read x */
    const acts *row;
    int32_t n;               /* matrices per expert */
    const pi__weight *w[2];  /* stacks of matrices, one matrix per expert */
    pi__lin_shape shape[2];  /* shapes of w */
    float *y[2];             /* [n_pair, ld] results */
    int64_t ld;              /* floats between rows of y */
    int64_t step[2];         /* tiles per item of each stack */
    int32_t n_items[2];      /* items per matrix of each stack */
} pass;

typedef struct moe_job {
    pi__cpu *cpu;
    const int32_t *token; /* with a table: [n_rows] token ids */
    const pi__moe *a;
    int32_t n_rows;   /* rows */
    int32_t n_pair;   /* n_rows * n_used */
    int32_t n_active; /* number of experts with columns */
    /* true = an expert has more than one column, so its activations have to be gathered into a group */
    bool gathers;
    bool ungated;     /* up is gate, which is computed once */
    acts row;         /* [n_rows] input of the experts, packed once per row */
    acts col;         /* [n_pair] the same activations, gathered by column */
    acts mid;         /* [n_pair] input of down: packed act(gate) * up */
    pass first, last; /* first: gate and up; last: down */
    float *h;         /* [n_pair, 2F] results of gate (F values), then of up (F values); F = mid.n_in */
    /* [n_pair, rows of down] results of down, in the memory of col, which is not read after gate and up */
    float *out;
    char *tiles;      /* one canonical tile per thread; address of thread 0's */
    size_t tile_size; /* bytes of a thread's tile */
    int32_t *id;      /* [n_pair] experts of the pairs: row r's expert of rank i is at r * n_used + i */
    float *weight;    /* [n_pair] routing weights, in the order of id */
    int32_t *position; /* [n_pair] column of each pair */
    int32_t *pair;    /* [n_pair] pair of each column */
    int32_t *start;   /* [n_expert + 1] first column of each expert */
    int32_t *active;  /* [n_expert] experts with columns, ascending */
    pi__cpu_moe_lora lora; /* adapters; lora.a NULL = no row has an adapter */
} moe_job;

/* ---- memory */

static acts acts_take(pi__arena *a, int32_t digits, size_t n, int64_t n_in, uint32_t want, size_t at_least)
{
    acts t = {.n_in = n_in, .n_blk = (n_in + 31) / 32, .digits = digits, .want = want, .floats = want >> PI__LK_F32};
    t.stride = pi__lin_row_stride(digits, t.n_blk, t.floats);
    t.base = pi__arena_take(a, n * (t.stride > at_least ? t.stride : at_least));
    return t;
}

static void layout(moe_job *m, pi__arena *a, int32_t n_expert)
{
    const int32_t nth = pi__pool_size(m->cpu->pool), digits = m->cpu->lin->digits;
    const size_t n = (size_t) m->n_pair, most = (size_t) (m->row.n_in > m->mid.n_in ? m->row.n_in : m->mid.n_in);
    const size_t n_out = (size_t) m->row.n_in * sizeof(float);
    m->tile_size = pi__lin_tile_bytes((int64_t) (most + 31) / 32);
    m->tiles = pi__arena_take(a, (size_t) nth * m->tile_size);
    m->row = acts_take(a, digits, (size_t) m->n_rows, m->row.n_in, m->row.want, 0);
    m->col = acts_take(a, digits, n, m->row.n_in, m->row.want, n_out);
    m->mid = acts_take(a, digits, n, m->mid.n_in, m->mid.want, 0);
    m->out = (float *) (void *) m->col.base;
    m->h = pi__arena_take(a, n * 2 * (size_t) m->mid.n_in * sizeof(float));
    m->id = pi__arena_take(a, n * sizeof(int32_t));
    m->weight = pi__arena_take(a, n * sizeof(float));
    m->position = pi__arena_take(a, n * sizeof(int32_t));
    m->pair = pi__arena_take(a, n * sizeof(int32_t));
    m->start = pi__arena_take(a, ((size_t) n_expert + 1) * sizeof(int32_t));
    m->active = pi__arena_take(a, (size_t) n_expert * sizeof(int32_t));
    if (m->lora.a) pi__cpu_moe_lora_layout(&m->lora, a, (int64_t) most);
}

size_t pi__cpu_moe_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    static const pi__moe_lora some = {.fused = false};
    if (!lim->max_expert) return 0;
    moe_job m = {.cpu = (pi__cpu *) cpu, .n_rows = lim->max_tokens, .n_pair = lim->max_tokens * lim->max_used};
    m.lora = (pi__cpu_moe_lora) {.a = &some, .n_rows = lim->max_tokens, .n_used = lim->max_used};
    m.row.n_in = lim->max_in_exp;
    m.mid.n_in = (lim->max_ff_exp + 1) / 2;
    m.row.want = m.mid.want = UINT32_MAX; /* as if all matrix kinds were used: reserves all optional arrays */
    pi__arena a = {0};
    layout(&m, &a, lim->max_expert);
    return a.used;
}

/* ---- routing */

void pi__cpu_best_of(const float *logits, int32_t n, int32_t n_used, int32_t *id)
{
    int32_t k = 0;
    for (int32_t e = 0; e < n; e++) {
        if (k == n_used && !(logits[e] > logits[id[k - 1]]) && !isnan(logits[id[k - 1]])) continue;
        int32_t i = k < n_used ? k++ : k - 1;
        for (; i > 0 && (logits[e] > logits[id[i - 1]] || isnan(logits[id[i - 1]])); i--) id[i] = id[i - 1];
        id[i] = e;
    }
}

/* sqrt(log(1 + e^x)) */
static float sqrt_softplus(float x) { return sqrtf((x > 0 ? x : 0) + log1pf(expf(-fabsf(x)))); }

/* Returns log(sum of e^logit) of a row for SOFTMAX_CHOICE; 0 for other gating functions, which do not use it. */
static float log_sum(const pi__moe *a, const float *logits)
{
    if (a->gating != PI__GATE_SOFTMAX_CHOICE) return 0;
    float max = logits[0], all = 0;
    for (int32_t e = 1; e < a->n_expert; e++) max = logits[e] > max ? logits[e] : max;
    for (int32_t e = 0; e < a->n_expert; e++) all += expf(logits[e] - max);
    return max + logf(all);
}

/* Returns the routing weight of logit x for all gating functions except SOFTMAX. log_all: log_sum of the row. */
static float own_gate(const pi__moe *a, float x, float log_all)
{
    if (a->gating == PI__GATE_SOFTMAX_CHOICE) return expf(x - log_all);
    return a->gating == PI__GATE_SIGMOID ? 1.0f / (1.0f + expf(-x)) : sqrt_softplus(x);
}

/* Sets p of all experts outside the n_group_used best groups to -INFINITY, so that these experts are not selected. A
 * group's score is the sum of its two largest p; with softmax gating, the largest p. */
static void keep_groups(const pi__moe *a, float *p)
{
    const int32_t each = a->n_expert / a->n_group;
    float best[PI__MAX_EXPERT_GROUPS];
    int32_t id[PI__MAX_EXPERT_GROUPS];
    bool in[PI__MAX_EXPERT_GROUPS] = {false};
    for (int32_t g = 0; g < a->n_group; g++) {
        int32_t two[2] = {0};
        const int32_t n = each > 1 && a->gating != PI__GATE_SOFTMAX ? 2 : 1;
        pi__cpu_best_of(p + g * each, each, n, two);
        best[g] = p[g * each + two[0]];
        if (n > 1) best[g] += p[g * each + two[1]];
    }
    pi__cpu_best_of(best, a->n_group, a->n_group_used, id);
    for (int32_t i = 0; i < a->n_group_used; i++) in[id[i]] = true;
    for (int32_t e = 0; e < a->n_expert; e++)
        if (!in[e / each]) p[e] = -INFINITY;
}

/* Sets id and weight [n_used] of a row, for all gating functions except SOFTMAX. Returns the sum of the weights. token:
 * the row's token id, which selects the experts if a->table is not NULL. */
static float choose_own(const pi__moe *a, const float *logits, int32_t token, int32_t *id, float *weight)
{
    const float log_all = log_sum(a, logits);
    float p[PI__MAX_EXPERTS], sum = 0;
    if (a->table) {
        memcpy(id, a->table + (size_t) token * (size_t) a->n_used, (size_t) a->n_used * sizeof *id);
    } else {
        for (int32_t e = 0; e < a->n_expert; e++)
            p[e] = own_gate(a, logits[e], log_all) + (a->bias ? a->bias[e] : 0);
        if (a->n_group) keep_groups(a, p);
        pi__cpu_best_of(p, a->n_expert, a->n_used, id);
    }
    for (int32_t i = 0; i < a->n_used; i++) sum += weight[i] = own_gate(a, logits[id[i]], log_all);
    return sum;
}

static float choose_softmax(const pi__moe *a, const float *logits, int32_t *id, float *weight)
{
    float biased[PI__MAX_EXPERTS], kept[PI__MAX_EXPERTS];
    const float *choice = logits;
    if (a->bias) {
        for (int32_t e = 0; e < a->n_expert; e++) biased[e] = logits[e] + a->bias[e];
        choice = logits = biased;
    }
    if (a->n_group) {
        memcpy(kept, logits, (size_t) a->n_expert * sizeof *kept);
        keep_groups(a, kept);
        choice = kept;
    }
    pi__cpu_best_of(choice, a->n_expert, a->n_used, id);
    const float max = logits[id[0]];
    float all = 0, sum = 0;
    for (int32_t e = 0; e < a->n_expert; e++) all += expf(logits[e] - max);
    for (int32_t i = 0; i < a->n_used; i++) sum += weight[i] = expf(logits[id[i]] - max) / all;
    return sum;
}

/* True if logit x is close to the chosen logit c (PI__MIXER_REACH). */
static bool is_close(float x, float c) { return c - x <= PI__MIXER_REACH * (fabsf(x) > c ? fabsf(x) : c); }

/* Sets id and weight [n_used] of a row for SPARSEMIXER: the weight of a chosen expert is its softmax over itself and
 * the close experts that were not chosen before it. Returns 1: the weights are not divided. */
static float choose_mixed(const pi__moe *a, const float *logits, int32_t *id, float *weight)
{
    pi__cpu_best_of(logits, a->n_expert, a->n_used, id);
    for (int32_t i = 0; i < a->n_used; i++) {
        const float c = logits[id[i]];
        float sum = 0;
        for (int32_t e = 0; e < a->n_expert; e++) {
            bool before = false;
            for (int32_t k = 0; k < i; k++) before |= id[k] == e;
            if (!before && (e == id[i] || is_close(logits[e], c))) sum += expf(logits[e] - c);
        }
        weight[i] = 1 / sum;
    }
    return 1;
}

/* Sets id and weight [n_used] of row r by the gating function. Returns the sum of the weights. */
static float choose(const moe_job *m, int32_t r, const float *logits, int32_t *id, float *weight)
{
    const pi__moe *a = m->a;
    if (a->gating == PI__GATE_SOFTMAX) return choose_softmax(a, logits, id, weight);
    if (a->gating == PI__GATE_SPARSEMIXER) return choose_mixed(a, logits, id, weight);
    return choose_own(a, logits, m->token ? m->token[r] : 0, id, weight);
}

static void route_row(const moe_job *m, int32_t r)
{
    const pi__moe *a = m->a;
    const float *logits = a->logits + r * a->ldl;
    int32_t *id = m->id + (size_t) r * (size_t) a->n_used;
    float *weight = m->weight + (size_t) r * (size_t) a->n_used;
    float sum = choose(m, r, logits, id, weight);
    if (sum < LEAST_SUM) sum = LEAST_SUM;
    if (a->undivided) sum = 1;
    for (int32_t i = 0; i < a->n_used; i++) weight[i] = weight[i] / sum * a->weights_scale;
}

static void route_main(void *arg, int32_t ith, int32_t nth)
{
    const moe_job *m = arg;
    const int64_t n = m->n_rows;
    for (int32_t r = (int32_t) (n * ith / nth); r < (int32_t) (n * (ith + 1) / nth); r++) route_row(m, r);
}

/* Assigns columns to pairs: sets start, pair, position, active, n_active and gathers. Counting sort: counts each
 * expert's columns, then assigns them in row order. */
static void sort_pairs(moe_job *m)
{
    const int32_t n_expert = m->a->n_expert;
    memset(m->start, 0, ((size_t) n_expert + 1) * sizeof *m->start);
    for (int32_t p = 0; p < m->n_pair; p++) m->start[m->id[p] + 1]++;
    m->n_active = 0;
    m->gathers = false;
    for (int32_t e = 0; e < n_expert; e++) {
        if (m->start[e + 1]) m->active[m->n_active++] = e;
        if (m->start[e + 1] > 1) m->gathers = true;
        m->start[e + 1] += m->start[e];
    }
    /* here start[e] is the next free column of expert e; after the loop it is the first column of expert e + 1 */
    for (int32_t p = 0; p < m->n_pair; p++) {
        m->position[p] = m->start[m->id[p]]++;
        m->pair[m->position[p]] = p;
    }
    memmove(m->start + 1, m->start, (size_t) n_expert * sizeof *m->start);
    m->start[0] = 0;
}

/* ---- columns */

/* Returns the number of activation groups for n columns of one expert. Group sizes differ by at most one column. */
static int32_t n_groups(const moe_job *m, int32_t n) { return (n + m->cpu->lin->max_cols - 1) / m->cpu->lin->max_cols; }

static void group_at(const acts *t, int32_t start, int32_t cols, pi__lin_x *x)
{
    pi__lin_group(t->base + (size_t) start * t->stride, t->digits, t->n_blk, cols, t->floats, x);
}

/* Sets x to the activation group of t that contains column j. Returns the index of the group's first column. */
static int32_t group_of(const moe_job *m, const acts *t, int32_t j, pi__lin_x *x)
{
    const int32_t e = m->id[m->pair[j]], first = m->start[e], n = m->start[e + 1] - first, n_g = n_groups(m, n);
    int32_t g = 0;
    while (first + (int32_t) ((int64_t) n * (g + 1) / n_g) <= j) g++;
    const int32_t start = first + (int32_t) ((int64_t) n * g / n_g),
                  end = first + (int32_t) ((int64_t) n * (g + 1) / n_g);
    group_at(t, start, end - start, x);
    return start;
}

/* A thread's part of n columns of n_blk blocks: a range of columns, or if there are fewer columns than threads, a range
 * of blocks of all columns. */
typedef struct share {
    int32_t c0, c1; /* columns */
    int64_t b0, b1; /* blocks */
} share;

static share share_of(int32_t n, int64_t n_blk, int32_t ith, int32_t nth)
{
    if (n < nth) return (share) {0, n, n_blk * ith / nth, n_blk * (ith + 1) / nth};
    return (share) {(int32_t) ((int64_t) n * ith / nth), (int32_t) ((int64_t) n * (ith + 1) / nth), 0, n_blk};
}

static void round_rows(const moe_job *m, int32_t ith, int32_t nth)
{
    const share s = share_of(m->n_rows, m->row.n_blk, ith, nth);
    for (int32_t r = s.c0; r < s.c1; r++) {
        pi__lin_x x;
        group_at(&m->row, r, 1, &x);
        m->cpu->lin->input(&m->a->in, m->row.n_in, r, 1, s.b0, s.b1, &x, 0, m->row.want);
    }
}

/* Copies the codes of one block at `from` (layout of a group of one column) to block b of column c of the group
 * `to`. */
static void copy_codes(int32_t line_cols, int32_t digits, const int8_t *from, const pi__lin_x *to, int64_t b, int32_t c)
{
    int step;
    int8_t *q = to->q + pi__lin_codes_at(line_cols, digits, to->cols, b, c, &step);
    if (step == 8) memcpy(q, from, 32 * (size_t) digits);
    else for (int k = 0; k < 4 * digits; k++) memcpy(q + step * k, from + 8 * k, 8);
}

/* Copies blocks b0..b1 - 1 of `from`, a group of one column, to column c of the group `to`. Copies only the arrays that
 * the matrix kinds in t->want read. */
static void copy_column(int32_t line_cols, const acts *t, const pi__lin_x *from, const pi__lin_x *to, int32_t c,
                        int64_t b0, int64_t b1)
{
    const size_t q = 32 * (size_t) t->digits;
    const uint32_t want = t->want;
    for (int64_t b = b0; b < b1; b++) {
        const int64_t i = b * to->cols + c, h = 2 * b * to->cols + c;
        if (want >> PI__LK_F32) memcpy(to->f + 32 * i, from->f + 32 * b, 32 * sizeof *to->f);
        if (!(want & ((1u << PI__LK_F32) - 1))) continue;
        copy_codes(line_cols, t->digits, from->q + (size_t) b * q, to, b, c);
        to->d[i] = from->d[b];
        if (want & 1u << PI__LK_OFF32) to->n7[i] = from->n7[b];
        if (want & 1u << PI__LK_MIN32) to->ds[i] = from->ds[b];
        if (want & 1u << PI__LK_OFF16) {
            to->n7h[h] = from->n7h[2 * b];
            to->n7h[h + to->cols] = from->n7h[2 * b + 1];
        }
        if (want & 1u << PI__LK_MIN16) {
            to->dsh[h] = from->dsh[2 * b];
            to->dsh[h + to->cols] = from->dsh[2 * b + 1];
        }
    }
}

static void gather(const moe_job *m, int32_t ith, int32_t nth)
{
    const share s = share_of(m->n_pair, m->row.n_blk, ith, nth);
    for (int32_t j = s.c0; j < s.c1; j++) {
        pi__lin_x from, to;
        const int32_t start = group_of(m, &m->col, j, &to);
        if (to.cols == 1) continue; /* an expert's only column is read from m->row */
        group_at(&m->row, m->pair[j] / m->a->n_used, 1, &from);
        copy_column(m->cpu->lin->line_cols, &m->row, &from, &to, j - start, s.b0, s.b1);
    }
}

/* Adds the biases of column j's expert to values i0..i1 - 1 of gate and of up in row j of h. */
static void add_biases(const moe_job *m, int32_t j, int64_t i0, int64_t i1)
{
    const int64_t n_ff = m->mid.n_in, e = m->id[m->pair[j]];
    float *restrict gate = m->h + j * 2 * n_ff, *restrict up = gate + n_ff;
    const float *restrict gate_bias = m->a->gate_bias + e * n_ff, *restrict up_bias = m->a->up_bias + e * n_ff;
    for (int64_t i = i0; i < i1; i++) gate[i] += gate_bias[i], up[i] += up_bias[i];
}

/* Returns the input of down: h, with gate and up, or with one result if the experts have no gate. */
static pi__lin_in mid_input(const moe_job *m)
{
    const int64_t n_ff = m->mid.n_in;
    return (pi__lin_in) {.kind = m->a->act, .x = m->h, .ldx = 2 * n_ff, .x2 = m->ungated ? m->h : m->h + n_ff,
                         .ldx2 = 2 * n_ff, .limit = m->a->limit};
}

/* mid = act(gate + bias) * (up + bias), packed directly into the groups that down reads. Thread ith of nth computes its
 * part. */
static void activate(const moe_job *m, int32_t ith, int32_t nth)
{
    const share s = share_of(m->n_pair, m->mid.n_blk, ith, nth);
    const int64_t n_ff = m->mid.n_in;
    const pi__lin_in in = mid_input(m);
    const int64_t i0 = 32 * s.b0, i1 = 32 * s.b1 < n_ff ? 32 * s.b1 : n_ff;
    for (int32_t j = s.c0; j < s.c1 && m->a->gate_bias; j++) add_biases(m, j, i0, i1);
    for (int32_t j = s.c0, end; j < s.c1; j = end) {
        pi__lin_x x;
        const int32_t start = group_of(m, &m->mid, j, &x);
        end = start + x.cols < s.c1 ? start + x.cols : s.c1;
        m->cpu->lin->input(&in, n_ff, j, end - j, s.b0, s.b1, &x, j - start, m->mid.want);
    }
}

/* ---- matrices */

/* Computes item `item` of pass p for expert e: a range of tiles of one of the expert's matrices times all its columns.
 * buf: memory for a canonical tile. */
static void run_item(const moe_job *m, const pass *p, int32_t e, int32_t item, uint8_t *buf)
{
    const int32_t l = item >= p->n_items[0], i = l ? item - p->n_items[0] : item;
    const int32_t first = m->start[e], n = m->start[e + 1] - first, n_g = n_groups(m, n);
    int64_t t1 = (i + 1) * p->step[l];
    if (t1 > p->shape[l].n_tile) t1 = p->shape[l].n_tile;
    for (int64_t t = i * p->step[l]; t < t1; t++) {
        pi__lin_tile tile = pi__lin_tile_of(m->cpu->lin, p->w[l], &p->shape[l], e, t, buf);
        for (int32_t g = 0; g < n_g; g++) {
            const int32_t a = first + (int32_t) ((int64_t) n * g / n_g),
                          b = first + (int32_t) ((int64_t) n * (g + 1) / n_g);
            pi__lin_x x;
            if (b - a == 1 && p->row) group_at(p->row, m->pair[a] / m->a->n_used, 1, &x);
            else group_at(p->x, a, b - a, &x);
            pi__lin_tile_mul(&tile, &x, p->y[l] + a * p->ld + 16 * t, p->ld, n_g == 1);
        }
    }
}

static void run_pass(const moe_job *m, const pass *p, int32_t ith)
{
    const int32_t each = p->n_items[0] + p->n_items[1];
    uint8_t *buf = (uint8_t *) m->tiles + (size_t) ith * m->tile_size;
    for (int32_t i; (i = pi__pool_next(m->cpu->pool, each * m->n_active)) >= 0;)
        run_item(m, p, m->active[i / each], i % each, buf);
}

/* Sets the tiles per item: about ITEM_BYTES to amortize the item counter, but at least 4 items per thread over all
 * active experts. If experts have on average more than max_cols columns, an item is a single tile. */
static void plan_items(const moe_job *m, pass *p)
{
    const int32_t nth = pi__pool_size(m->cpu->pool);
    for (int32_t l = 0; l < p->n; l++) {
        const pi__lin_shape *s = &p->shape[l];
        int64_t step = (int64_t) (ITEM_BYTES / s->tile) + 1, most = s->n_tile * m->n_active / (4 * nth) + 1;
        if (m->n_pair > (int64_t) m->n_active * m->cpu->lin->max_cols) most = 1;
        p->step[l] = step < most ? step : most;
        p->n_items[l] = (int32_t) ((s->n_tile + p->step[l] - 1) / p->step[l]);
    }
}

/* ---- the op */

static void add_biased(float *restrict y, float w, const float *restrict x, const float *restrict bias, int64_t i0,
                       int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) y[i] += w * (x[i] + bias[i]);
}

static void add_up(const moe_job *m, int32_t ith, int32_t nth)
{
    const int32_t n_used = m->a->n_used;
    const int64_t n = m->last.ld;
    const share s = share_of(m->n_rows, (n + 31) / 32, ith, nth);
    const int64_t i0 = 32 * s.b0, i1 = 32 * s.b1 < n ? 32 * s.b1 : n;
    for (int32_t r = s.c0; r < s.c1; r++) {
        float *restrict y = m->a->y + r * m->a->ldy;
        for (int32_t k = 0; k < n_used; k++) {
            const int32_t p = r * n_used + k;
            const float w = m->weight[p], *restrict x = m->out + m->position[p] * n;
            if (m->a->down_bias && !k) memset(y + i0, 0, (size_t) (i1 - i0) * sizeof *y);
            if (m->a->down_bias) add_biased(y, w, x, m->a->down_bias + m->id[p] * m->a->ld_down_bias, i0, i1);
            else if (k) for (int64_t i = i0; i < i1; i++) y[i] += w * x[i];
            else for (int64_t i = i0; i < i1; i++) y[i] = w * x[i];
        }
    }
}

static void gate_up_main(void *arg, int32_t ith, int32_t nth)
{
    const moe_job *m = arg;
    pi__pool *pool = m->cpu->pool;
    round_rows(m, ith, nth);
    pi__pool_barrier(pool);
    if (m->gathers) {
        gather(m, ith, nth);
        pi__pool_barrier(pool);
    }
    run_pass(m, &m->first, ith);
}

static void down_main(void *arg, int32_t ith, int32_t nth)
{
    const moe_job *m = arg;
    activate(m, ith, nth);
    pi__pool_barrier(m->cpu->pool);
    run_pass(m, &m->last, ith);
}

static void add_up_main(void *arg, int32_t ith, int32_t nth) { add_up(arg, ith, nth); }

static void complete(const moe_job *m)
{
    const pi__moe_shard *part = m->a->shard;
    if (part) part->complete(part, m->h, m->n_pair, m->mid.n_in);
}

static void moe_main(void *arg, int32_t ith, int32_t nth)
{
    const moe_job *m = arg;
    pi__pool *pool = m->cpu->pool;
    gate_up_main(arg, ith, nth);
    pi__pool_barrier(pool);
    if (!ith) {
        complete(m);
        pi__pool_reset(pool);
    }
    if (m->a->shard) pi__pool_barrier(pool);
    down_main(arg, ith, nth);
    pi__pool_barrier(pool);
    add_up(m, ith, nth);
}

/* Appends matrix i (PI__LORA_*) to w->lin, if an adapter targets it: rows first..first + n_out - 1 of stack `of`, with
 * results y. */
static void add_target(const moe_job *m, int i, const pi__weight *of, int64_t n_out, int64_t first, float *y,
                       pi__cpu_lora_work *w)
{
    const pi__moe_lora *a = &m->a->lora;
    if (!a->target[i]) return;
    w->lin[w->n_lin++] = (pi__cpu_lora_lin) {
        a->target[i], a->rank[i], n_out, first, y, i == PI__LORA_DOWN ? n_out : 2 * m->mid.n_in, pi__lora_scale(of)};
}

/* Runs the op as three pool jobs and adds the adapters between them. With a shard, h is completed from all ranks first
 * (all-gather), and each rank adds the adapters of gate and up to all of h. */
static void run_adapted(moe_job *m)
{
    const int64_t F = m->mid.n_in, E = m->last.ld;
    pi__cpu_lora_work first = {.in = m->a->in, .n_in = m->row.n_in, .scale = 1.0f}, last = {.n_in = F, .scale = 1.0f};
    last.in = mid_input(m);
    add_target(m, PI__LORA_GATE, m->a->gate, m->a->lora.fused ? 2 * F : F, 0, m->h, &first);
    if (!m->ungated) add_target(m, PI__LORA_UP, m->a->up, F, 0, m->h + F, &first);
    add_target(m, PI__LORA_DOWN, m->a->down, E, m->a->shard ? m->a->shard->i * E : 0, m->out, &last);
    pi__pool_run(m->cpu->pool, gate_up_main, m);
    complete(m);
    pi__cpu_moe_lora_add(m->cpu, &m->lora, &first, true);
    pi__pool_run(m->cpu->pool, down_main, m);
    pi__cpu_moe_lora_add(m->cpu, &m->lora, &last, false);
    pi__pool_run(m->cpu->pool, add_up_main, m);
}

/* Appends the stack w, which reads x, to a pass, and adds its kind to x->want. Returns false if no kernel supports its
 * type or shape. */
static bool pass_add(pass *p, acts *x, const pi__weight *w)
{
    p->w[p->n] = w;
    x->want |= 1u << pi__lin_format_of(w->type).kind;
    return pi__lin_shape_of(w, &p->shape[p->n++]);
}

void pi__cpu_moe_watched(pi__backend *be, const pi__batch *b, const pi__moe *a, const pi__moe_watch *watch)
{
    pi__cpu *cpu = (pi__cpu *) be;
    moe_job m = {.cpu = cpu, .a = a, .n_rows = a->n_rows, .n_pair = a->n_rows * a->n_used};
    if (a->n_rows <= 0) return;
    if (a->table) m.token = b->token;
    m.ungated = a->up == a->gate;
    m.row.n_in = a->gate->n_in;
    m.mid.n_in = a->down->n_in;
    if (!pass_add(&m.first, &m.row, a->gate) || (a->up && !m.ungated && !pass_add(&m.first, &m.row, a->up)) ||
        !pass_add(&m.last, &m.mid, a->down)) return;
    pi__arena arena = {.base = cpu->scratch, .size = cpu->scratch_size};
    if (a->lora.rows) m.lora = (pi__cpu_moe_lora) {.a = &a->lora, .n_rows = a->n_rows, .n_used = a->n_used};
    layout(&m, &arena, a->n_expert);
    m.lora.pair = m.pair, m.lora.id = m.id;
    m.first.x = &m.col;
    m.first.row = &m.row;
    /* index in gate's and in up's F results of this shard's first result */
    const int64_t own = a->shard ? m.mid.n_in / a->shard->n * a->shard->i : 0;
    m.first.ld = 2 * m.mid.n_in;
    m.first.y[0] = m.h + own;
    m.first.y[1] = m.h + m.mid.n_in + own;
    m.last.x = &m.mid;
    m.last.ld = a->down->n_out;
    m.last.y[0] = m.out;

    if ((int64_t) a->n_rows * a->n_expert < FEW_LOGITS) route_main(&m, 0, 1);
    else pi__pool_run(cpu->pool, route_main, &m);
    sort_pairs(&m);
    plan_items(&m, &m.first);
    plan_items(&m, &m.last);
    if (a->lora.rows) run_adapted(&m);
    else pi__pool_run(cpu->pool, moe_main, &m);
    const pi__lin_in down = mid_input(&m);
    if (watch) watch->read(watch, a, &down, m.n_pair, m.pair, m.id);
}

void pi__cpu_moe(pi__backend *be, const pi__batch *b, const pi__moe *a) { pi__cpu_moe_watched(be, b, a, NULL); }
