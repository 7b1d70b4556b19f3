/* Selective scans on the CPU, and their states (op scan in ops.h).
 *
 * Channels are independent: they are divided into parts of PART. A slot and a snapshot have one record per part:
 *
 *     slot      | end | base state [N][PART] | state [N][PART] | later states [N][PART] | draft rows [2 PART + N] |
 *     snapshot  | state [N][PART] |
 *
 *     ... base ........ end ........ end + drafts      positions of the sequence
 *          |            |            |
 *          base state   state        rows: tokens that may be dropped
 *
 * `end` is the end of the verified tokens, and base is the last multiple of PI__STATE_CHUNK at or before it. The base
 * state serves snapshots; the later states do so if drafts are accepted, at multiples of PI__STATE_CHUNK after base. A
 * row has x, dt after softplus, and b after its norm. If the next step accepts drafts, it first repeats their updates
 * from the rows. A step of an early-exit drafter continues after unverified tokens: its n_verified is negative.
 *
 * Bits: a state is updated token by token, in one order, whatever the batch or the chunks.
 *
 * Memory: slots and snapshots are owned by the engine; no scratch. Threads: called by the step thread, which forks and
 * joins the pool inside. An item of work is one part of one sequence. Only this item touches the part's record. */
#include "backend/cpu/scan.h"

#include <string.h>

#include "backend/cpu/gdn.h"

enum {
    PART = 128,           /* channels of a part */
    MAX_STATE = 64,       /* max values per channel */
    HEADER = 16,          /* floats before the base state */
    SMALL_WORK = 1 << 14, /* steps with fewer updates run on the calling thread */
};

/* A part's record in a slot. */
typedef struct record {
    int32_t *end;
    float *base, *state; /* [N][PART] */
    float *later;        /* [n_later][N][PART] */
    float *rows;         /* [n_draft][2 PART + N] */
} record;

/* A sequence's part of a step, and the channels of an item. */
typedef struct scan_item {
    const pi__scan *a;
    const pi__batch *b;
    const pi__cpu_gdn_kernels *kn;
    record r;
    int32_t seq;       /* index in the batch */
    int32_t part;
    int32_t first, n;  /* index in the batch of its first token; number of its tokens */
    int32_t pos;       /* position of its first token */
    int32_t verified;  /* position after its last verified token; may be less than pos */
    int32_t channel, n_channel;
} scan_item;

typedef struct scan_job {
    const pi__scan *a;
    const pi__batch *b;
    pi__pool *pool;
    const pi__cpu_gdn_kernels *kn;
} scan_job;

/* --------------------------------------------------------------------------------------------------------- states */

static size_t state_size(const pi__state_layer *st) { return (size_t) st->dim * PART; }
static size_t row_size(const pi__state_layer *st) { return 2 * PART + (size_t) st->dim; }
static int32_t n_parts(const pi__state_layer *st) { return (st->n_v + PART - 1) / PART; }
/* Returns the max number of multiples of PI__STATE_CHUNK among the positions after a step's drafts. */
static size_t n_later(const pi__state_layer *st)
{
    return (size_t) (st->n_draft + PI__STATE_CHUNK - 1) / PI__STATE_CHUNK;
}
static size_t record_size(const pi__state_layer *st)
{
    return HEADER + (2 + n_later(st)) * state_size(st) + (size_t) st->n_draft * row_size(st);
}

static bool supported(const pi__state_layer *st)
{
    return st->n_v > 0 && st->n_v % 16 == 0 && st->dim > 0 && st->dim % 16 == 0 && st->dim <= MAX_STATE &&
           st->n_draft >= 0;
}

size_t pi__cpu_scan_state_bytes(const pi__state_layer *st)
{
    return supported(st) ? (size_t) n_parts(st) * record_size(st) * sizeof(float) : 0;
}

size_t pi__cpu_scan_snapshot_bytes(const pi__state_layer *st)
{
    return supported(st) ? (size_t) n_parts(st) * state_size(st) * sizeof(float) : 0;
}

static record record_of(const pi__state_layer *st, int32_t slot, int32_t part)
{
    float *p = (float *) (void *) (st->base + (size_t) slot * st->stride) + (size_t) part * record_size(st);
    float *base = p + HEADER, *state = base + state_size(st), *later = state + state_size(st);
    return (record) {(int32_t *) (void *) p, base, state, later, later + n_later(st) * state_size(st)};
}

static float *snap_of(const pi__state_layer *st, int32_t snap, int32_t part)
{
    return (float *) (void *) (st->snap + (size_t) snap * st->snap_stride) + (size_t) part * state_size(st);
}

static void copy_state(const pi__state_layer *st, float *to, const float *from)
{
    memcpy(to, from, state_size(st) * sizeof *to);
}

static int32_t base_of(int32_t end) { return end / PI__STATE_CHUNK * PI__STATE_CHUNK; }

/* Returns the state for a snapshot at pos: base, or a later multiple of PI__STATE_CHUNK. */
static float *state_at(const pi__state_layer *st, const record *r, int32_t base, int32_t pos)
{
    return pos == base ? r->base : r->later + (size_t) ((pos - base) / PI__STATE_CHUNK - 1) * state_size(st);
}

/* Updates the state h by the draft in a row. */
static void repeat(const scan_item *it, const float *row, float *h)
{
    const pi__state_layer *st = it->a->st;
    it->kn->scan(&(pi__scan_token) {.n = it->n_channel, .n_state = st->dim, .x = row, .dt = row + PART,
                                    .b = row + 2 * PART, .a = it->a->a + it->channel, .ld_a = st->n_v, .h = h,
                                    .ld_h = PART});
}

/* ------------------------------------------------------------------------------------------------------------- op */

/* Copies the state after p tokens to the snapshots for p, and to the base state if p is the step's last base. */
static void mark(const scan_item *it, int32_t p)
{
    const pi__state_layer *st = it->a->st;
    if (p % PI__STATE_CHUNK) return;
    for (int32_t k = it->b->save_start[it->seq]; k < it->b->save_start[it->seq + 1]; k++)
        if (it->b->save[k].pos == p) copy_state(st, snap_of(st, it->b->save[k].snap, it->part), it->r.state);
    if (p == base_of(it->verified)) copy_state(st, it->r.base, it->r.state);
}

/* Copies the snapshots for the base from before the step. */
static void save_base(const scan_item *it, int32_t base)
{
    const pi__state_layer *st = it->a->st;
    for (int32_t k = it->b->save_start[it->seq]; k < it->b->save_start[it->seq + 1]; k++)
        if (it->b->save[k].pos == base) copy_state(st, snap_of(st, it->b->save[k].snap, it->part), it->r.base);
}

/* Stores the state h after p tokens, if a snapshot may need it after the drafts up to p were accepted. */
static void keep_later(const scan_item *it, int32_t p, const float *h)
{
    const pi__state_layer *st = it->a->st;
    if (p % PI__STATE_CHUNK == 0) copy_state(st, state_at(st, &it->r, base_of(it->verified), p), h);
}

/* Brings the record to the step's last verified token or to the step's first token, whichever is first: from a zero
 * state, or by repeating accepted drafts. Then h = the state at the first token, if that is later. */
static void begin(const scan_item *it, float *h)
{
    const pi__state_layer *st = it->a->st;
    const int32_t end = it->pos ? *it->r.end : 0, last = it->verified < it->pos ? it->verified : it->pos;
    float *rows = it->r.rows;
    if (it->pos) save_base(it, base_of(end));
    else memset(it->r.state, 0, state_size(st) * sizeof *it->r.state);
    if (!it->pos) mark(it, 0);
    for (int32_t p = end; p < last; p++) {
        repeat(it, rows + (size_t) (p - end) * row_size(st), it->r.state);
        mark(it, p + 1);
    }
    if (last == it->pos) return;
    memmove(rows, rows + (size_t) (last - end) * row_size(st), (size_t) (it->pos - last) * row_size(st) * sizeof *rows);
    copy_state(st, h, it->r.state);
    for (int32_t p = last; p < it->pos; p++) {
        repeat(it, rows + (size_t) (p - last) * row_size(st), h);
        keep_later(it, p + 1, h);
    }
}

/* Copies n values of a row, normed if w is not NULL. */
static void take_normed(const scan_item *it, const float *x, const float *w, float *out)
{
    memcpy(out, x, (size_t) it->a->st->dim * sizeof *out);
    if (w) it->kn->norm(out, w, it->a->eps, it->a->st->dim);
}

/* Updates the state h by token t of the step, and writes the output. row: receives the token's inputs; NULL = not
 * kept. */
static void update(const scan_item *it, int32_t t, float *h, float *row)
{
    const pi__scan *a = it->a;
    const pi__state_layer *st = a->st;
    const int64_t at = it->first + t;
    float b[MAX_STATE], c[MAX_STATE], dt[PART], y[PART];
    const float *x = a->x + at * a->ldx + it->channel;
    const size_t n = (size_t) it->n_channel * sizeof *x;
    take_normed(it, a->b + at * a->ld_bc, a->norm_b, b);
    take_normed(it, a->c + at * a->ld_bc, a->norm_c, c);
    it->kn->scan_steps(a->dt + at * a->ld_dt + it->channel, a->dt_bias + it->channel, it->n_channel, dt);
    it->kn->scan(&(pi__scan_token) {.n = it->n_channel, .n_state = st->dim, .x = x, .dt = dt, .b = b, .c = c,
                                    .a = a->a + it->channel, .ld_a = st->n_v, .h = h, .ld_h = PART, .y = y});
    it->kn->scan_gate(y, x, a->skip + it->channel, a->z + at * a->ldz + it->channel, it->n_channel,
                      a->out + at * a->ldo + it->channel);
    if (!row) return;
    memcpy(row, x, n);
    memcpy(row + PART, dt, n);
    memcpy(row + 2 * PART, b, (size_t) st->dim * sizeof *b);
}

static void run_item(const scan_item *it)
{
    const int32_t n_verified = it->verified > it->pos ? it->verified - it->pos : 0;
    float h[MAX_STATE * PART];
    begin(it, h);
    for (int32_t t = 0; t < n_verified; t++) {
        update(it, t, it->r.state, NULL);
        mark(it, it->pos + t + 1);
    }
    if (it->verified >= it->pos && n_verified < it->n) copy_state(it->a->st, h, it->r.state);
    for (int32_t t = n_verified; t < it->n; t++) {
        update(it, t, h, it->r.rows + (size_t) (it->pos + t - it->verified) * row_size(it->a->st));
        keep_later(it, it->pos + t + 1, h);
    }
    *it->r.end = it->verified;
}

/* Runs item i: a sequence and a part of its channels. */
static void run_at(const scan_job *j, int32_t i)
{
    const pi__state_layer *st = j->a->st;
    const pi__batch *b = j->b;
    const int32_t seq = i / n_parts(st), part = i % n_parts(st), channel = part * PART, left = st->n_v - channel;
    const int32_t first = b->seq_start[seq], n = b->seq_start[seq + 1] - first;
    if (!n) return;
    const int32_t pos = b->pos[first];
    run_item(&(scan_item) {.a = j->a, .b = b, .kn = j->kn, .r = record_of(st, b->state_slot[seq], part), .seq = seq,
                           .part = part, .first = first, .n = n, .pos = pos, .verified = pos + b->n_verified[seq],
                           .channel = channel, .n_channel = left < PART ? left : PART});
}

static void scan_run(void *arg, int32_t ith, int32_t nth)
{
    const scan_job *j = arg;
    const int32_t n = j->b->n_seqs * n_parts(j->a->st);
    (void) ith;
    (void) nth;
    for (int32_t i; (i = pi__pool_next(j->pool, n)) >= 0;) run_at(j, i);
}

void pi__cpu_scan(pi__backend *be, const pi__batch *b, const pi__scan *a)
{
    const pi__cpu *cpu = (const pi__cpu *) be;
    scan_job j = {a, b, cpu->pool, cpu->gdn};
    if ((int64_t) b->n_tokens * a->st->n_v * a->st->dim >= SMALL_WORK) {
        pi__pool_run(j.pool, scan_run, &j);
        return;
    }
    for (int32_t i = 0; i < b->n_seqs * n_parts(a->st); i++) run_at(&j, i);
}

/* -------------------------------------------------------------------------------------------------- save and load */

void pi__cpu_scan_state_save(pi__backend *be, const pi__state_copy *a)
{
    (void) be;
    for (int32_t i = 0; i < n_parts(a->st); i++) {
        const record r = record_of(a->st, a->slot, i);
        copy_state(a->st, snap_of(a->st, a->snap, i), state_at(a->st, &r, base_of(*r.end), a->pos));
    }
}

void pi__cpu_scan_state_load(pi__backend *be, const pi__state_copy *a)
{
    (void) be;
    for (int32_t i = 0; i < n_parts(a->st); i++) {
        const record r = record_of(a->st, a->slot, i);
        *r.end = a->pos;
        copy_state(a->st, r.base, snap_of(a->st, a->snap, i));
        copy_state(a->st, r.state, r.base);
    }
}
