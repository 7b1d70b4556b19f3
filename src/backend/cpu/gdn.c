/* The gated delta rule on the CPU: slots, snapshots, and the distribution of a step's work (formulas: gdn.h).
 *
 * Memory: the backend's scratch; slots and snapshots are owned by the engine. Threads: called by the step thread,
 * which forks and joins the pool inside. A step has three phases:
 *
 *     rows    sequence x key head      convolution and norm of keys and queries, dot products with the chunk's keys
 *     heads   sequence x value head    values, the state, the output; u and G rows, snapshots of S0
 *     keep    sequence x key head      copies keys and raw inputs that the next step needs to the slot
 *
 * A key head and its value heads do not depend on other heads, so one thread runs all three phases for them without
 * waiting. With too few key heads for the threads, each phase is split over all threads, with barriers between phases.
 *
 * Invariant: until phase keep, the slot holds the keys and raw inputs from before the step. The slot's `base` is
 * written last. A chunk is folded into S0 as soon as it is full and all its tokens are verified. So after a step, base
 * is the last multiple of C at or before the end of the verified tokens, and at most C - 1 + n_draft rows follow it. */
#include "backend/cpu/gdn.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/short_conv.h"
#include "backend/cpu/simd.h"
#include "base/alloc.h"

enum {
    C = PI__GDN_CHUNK,
    AHEAD = 4,                  /* distance, in tokens, of prefetching the convolution's inputs */
    SMALL_WORK = 1 << 17,       /* with fewer multiply-adds, one thread computes everything */
    /* with fewer (sequence, key head) pairs per thread, each phase is split over all threads */
    HEADS_A_THREAD = 4,
};

/* Byte offsets in a slot. */
typedef struct slot_layout {
    size_t s, conv, k, u, g; /* byte offsets of S0, raw inputs, k, u, G */
    size_t size;             /* bytes of a slot */
} slot_layout;

/* A sequence of the step. Positions count the sequence's tokens from 0. */
typedef struct gdn_seq {
    char *slot;
    int32_t first, n;  /* index in the batch of its first token; number of its tokens */
    int32_t pos;       /* position of its first token in the step */
    int32_t end;       /* position after its last token in the step */
    int32_t verified;  /* position after its last verified token (later tokens are drafts) */
    int32_t base;      /* before the step: S0 includes the tokens at positions < base */
    int32_t save, n_save; /* index of its first snapshot in the batch's save; number of its snapshots */
} gdn_seq;

/* Working memory of one thread. */
typedef struct gdn_work {
    float *s; /* [dim * dim] a head's state after chunks with unverified rows, which must not change the slot's S0 */
    float *v; /* [C][dim] values of a chunk */
} gdn_work;

/* One call of op gdn, state_save or state_load. */
typedef struct gdn_job {
    pi__cpu *cpu;
    const pi__cpu_gdn_kernels *kn;
    const pi__batch *b;
    const pi__gdn *a;
    const pi__state_layer *st;
    slot_layout at;
    gdn_seq *seq;   /* [n_seqs] the sequences with tokens in the step */
    int32_t n_seqs;
    gdn_work *work; /* [threads] */
    float *kq;      /* [n_k][n_tokens][2][dim] keys and queries of the step */
    /* [n_k][n_tokens][2][C] dot products of these keys and queries with the keys of their chunk (gdn.h) */
    float *dots;
    /* state_save and state_load only: the slot, the snapshot, and the snapshot's position */
    char *slot, *snap;
    int32_t pos;
} gdn_job;

/* --------------------------------------------------------------------------------------------------------- layout */

static size_t align64(size_t n) { return (n + 63) & ~(size_t) 63; }
static size_t n_rows(const pi__state_layer *st) { return (size_t) (C + st->n_draft); }
static size_t n_channels(const pi__state_layer *st) { return (size_t) (2 * st->n_k + st->n_v) * (size_t) st->dim; }
/* Returns the number of raw inputs before a token that its convolution reads. */
static int32_t history(const pi__state_layer *st) { return st->n_conv - 1; }
static size_t head_size(const pi__state_layer *st) { return (size_t) st->dim * (size_t) st->dim; }

static slot_layout layout(const pi__state_layer *st)
{
    size_t f = sizeof(float), dim = (size_t) st->dim, n_v = (size_t) st->n_v, rows = n_rows(st);
    slot_layout at;
    at.s = 64;
    at.conv = at.s + n_v * head_size(st) * f;
    at.k = at.conv + align64((rows + (size_t) history(st)) * n_channels(st) * f);
    at.u = at.k + align64((size_t) st->n_k * rows * dim * f);
    at.g = at.u + align64(n_v * rows * dim * f);
    at.size = at.g + align64(n_v * rows * f);
    return at;
}

static bool supported(const pi__state_layer *st)
{
    return st->n_k > 0 && st->n_v > 0 && st->dim > 0 && st->dim % PI__GDN_PANEL == 0 && st->dim <= PI__GDN_MAX_DIM &&
           st->n_conv >= PI__MIN_CONV && st->n_conv <= PI__MAX_CONV && st->n_draft >= 0;
}

size_t pi__cpu_state_bytes(const pi__backend *be, const pi__state_layer *st)
{
    (void) be;
    if (pi__state_is_conv(st)) return pi__cpu_conv_state_bytes(st);
    return supported(st) ? layout(st).size : 0;
}

size_t pi__cpu_snapshot_bytes(const pi__backend *be, const pi__state_layer *st)
{
    (void) be;
    if (pi__state_is_conv(st)) return pi__cpu_conv_snapshot_bytes(st);
    if (!supported(st)) return 0;
    return align64(((size_t) st->n_v * head_size(st) + (size_t) history(st) * n_channels(st)) * sizeof(float));
}

static char *slot_of(const pi__state_layer *st, int32_t i) { return st->base + (size_t) i * st->stride; }
static char *snap_of(const pi__state_layer *st, int32_t i) { return st->snap + (size_t) i * st->snap_stride; }

/* Return the address of S0 of a value head, in a slot or in a snapshot. */
static float *slot_s(const gdn_job *j, char *slot, int32_t head)
{
    return (float *) (void *) (slot + j->at.s) + (size_t) head * head_size(j->st);
}

static float *snap_s(const gdn_job *j, char *snap, int32_t head)
{
    return (float *) (void *) snap + (size_t) head * head_size(j->st);
}

/* Return the address of row i: of raw inputs in a slot (row 0 is the token H before base) or in a snapshot, of a key
 * head's keys in a slot, of a value head's u in a slot. */
static float *slot_conv(const gdn_job *j, char *slot, int32_t i)
{
    return (float *) (void *) (slot + j->at.conv) + (size_t) i * n_channels(j->st);
}

static float *snap_conv(const gdn_job *j, char *snap, int32_t i)
{
    return (float *) (void *) snap + (size_t) j->st->n_v * head_size(j->st) + (size_t) i * n_channels(j->st);
}

static float *slot_k(const gdn_job *j, char *slot, int32_t head, int32_t i)
{
    return (float *) (void *) (slot + j->at.k) + ((size_t) head * n_rows(j->st) + (size_t) i) * (size_t) j->st->dim;
}

static float *slot_u(const gdn_job *j, char *slot, int32_t head, int32_t i)
{
    return (float *) (void *) (slot + j->at.u) + ((size_t) head * n_rows(j->st) + (size_t) i) * (size_t) j->st->dim;
}

static float *slot_g(const gdn_job *j, char *slot, int32_t head)
{
    return (float *) (void *) (slot + j->at.g) + (size_t) head * n_rows(j->st);
}

/* ------------------------------------------------------------------------------- rows of the slot and of the step */

/* Returns the raw inputs at position pos, from channel c on: in the step's qkv if pos >= s->pos, else in the slot.
 * Before position 0, at most PI__GDN_MAX_DIM zeros. */
static const float *raw_of(const gdn_job *j, const gdn_seq *s, int32_t pos, size_t c)
{
    static const float zeros[PI__GDN_MAX_DIM];
    if (pos >= s->pos) return j->a->qkv + (s->first + pos - s->pos) * j->a->ld_qkv + c;
    if (pos < 0) return zeros;
    return slot_conv(j, s->slot, pos - s->base + history(j->st)) + c;
}

/* Returns the address of a token's key in kq, for one key head; the token's query follows. */
static float *new_kq(const gdn_job *j, int32_t head, int32_t token)
{
    return j->kq + ((size_t) head * (size_t) j->b->n_tokens + (size_t) token) * 2 * (size_t) j->st->dim;
}

static float *new_dots(const gdn_job *j, int32_t head, int32_t token)
{
    return j->dots + ((size_t) head * (size_t) j->b->n_tokens + (size_t) token) * 2 * C;
}

static const float *key_of(const gdn_job *j, const gdn_seq *s, int32_t head, int32_t pos)
{
    if (pos >= s->pos) return new_kq(j, head, s->first + pos - s->pos);
    return slot_k(j, s->slot, head, pos - s->base);
}

/* Prefetches n floats at row. Rows of adjacent tokens are far apart in memory, so the hardware prefetcher does not load
 * them. */
static void fetch(const float *row, int32_t n)
{
    for (int32_t i = 0; i < n; i += 16) __builtin_prefetch(row + i, 0, 2);
}

static void convolve(const gdn_job *j, const gdn_seq *s, int32_t pos, size_t channel, float *y)
{
    const float *x[PI__MAX_CONV];
    const int32_t n = j->st->n_conv;
    for (int32_t i = 0; i < n; i++) x[i] = raw_of(j, s, pos - history(j->st) + i, channel);
    j->kn->conv(x, j->a->conv + channel * (size_t) n, n, j->st->dim, y);
}

/* -------------------------------------------------------------------------------------------------- phase 1: rows */

static void do_rows(const gdn_job *j, const gdn_seq *s, int32_t head)
{
    int32_t dim = j->st->dim;
    size_t q_channel = (size_t) head * (size_t) dim, k_channel = (size_t) (j->st->n_k + head) * (size_t) dim;
    const float *keys[C] = {0};
    for (int32_t pos = s->pos / C * C; pos < s->end; pos++) {
        keys[pos % C] = key_of(j, s, head, pos);
        if (pos < s->pos) continue;
        int32_t token = s->first + pos - s->pos;
        float *k = new_kq(j, head, token), *q = k + dim, *d = new_dots(j, head, token);
        if (pos + AHEAD < s->end) {
            fetch(raw_of(j, s, pos + AHEAD, k_channel), dim);
            fetch(raw_of(j, s, pos + AHEAD, q_channel), dim);
        }
        convolve(j, s, pos, k_channel, k);
        convolve(j, s, pos, q_channel, q);
        j->kn->l2norm(k, dim, j->a->eps, 1.0f);
        j->kn->l2norm(q, dim, j->a->eps, 1.0f / sqrtf((float) dim));
        j->kn->dots(k, keys, pos % C, dim, d);
        j->kn->dots(q, keys, pos % C + 1, dim, d + C);
    }
}

/* ------------------------------------------------------------------------------------------------- phase 2: heads */

/* Copies the head's S0 to the batch's snapshots of this sequence with save->pos == pos. S0 must be the state at pos. */
static void save_head(const gdn_job *j, const gdn_seq *s, int32_t head, int32_t pos)
{
    for (int32_t i = 0; i < s->n_save; i++) {
        const pi__save *save = &j->b->save[s->save + i];
        if (save->pos != pos) continue;
        memcpy(snap_s(j, snap_of(j->st, save->snap), head), slot_s(j, s->slot, head), head_size(j->st) * sizeof(float));
    }
}

/* Computes values (v), beta and cumulative log decay G (g) of the new rows of chunk c, which starts at position `from`.
 * v and beta are indexed from the first new row, g from the chunk's start. Prefetches the z rows of this chunk and the
 * raw inputs of the next chunk. */
static void prepare(const gdn_job *j, const gdn_seq *s, int32_t head, int32_t from, const pi__gdn_chunk *c, float *g,
                    float *v, float beta[C])
{
    float alpha[C] = {0};
    int32_t n = c->n_rows - c->n_old, token = s->first + from + c->n_old - s->pos;
    size_t channel = (size_t) (2 * j->st->n_k + head) * (size_t) c->dim;
    for (int32_t r = 0; r < C; r++) {
        beta[r] = 0;
        if (r >= n) continue;
        alpha[r] = j->a->alpha[(token + r) * j->a->ld_ab + head];
        beta[r] = j->a->beta[(token + r) * j->a->ld_ab + head];
        convolve(j, s, from + c->n_old + r, channel, v + r * c->dim);
        fetch(j->a->z + (token + r) * j->a->ld_z + head * c->dim, c->dim);
        if (from + C + r < s->end) fetch(raw_of(j, s, from + C + r, channel), c->dim);
    }
    j->kn->gates(alpha, beta, j->a->dt_bias[head], j->a->a[head]);
    for (int32_t r = 0; r < n; r++) {
        int32_t i = c->n_old + r;
        g[i] = i ? g[i - 1] + alpha[r] : alpha[r];
    }
}

/* Called when the head's first C rows have been folded into S0. Moves u and G of the `left` rows after them to row 0 of
 * the slot. left <= 0 = no rows remain. */
static void drop_rows(const gdn_job *j, const gdn_seq *s, int32_t head, int32_t left)
{
    float *g = slot_g(j, s->slot, head);
    if (left <= 0) return;
    memmove(slot_u(j, s->slot, head, 0), slot_u(j, s->slot, head, C), (size_t) (left * j->st->dim) * sizeof(float));
    memmove(g, g + C, (size_t) left * sizeof(float));
}

/* Applies norm and gate to one value head's output rows of tokens token..token + n - 1 of the batch. */
static void finish_rows(const gdn_job *j, int32_t token, int32_t n, int32_t head)
{
    const pi__gdn *a = j->a;
    int64_t dim = j->st->dim, at = dim * pi__gdn_place(j->st->n_k, j->st->n_v, a->grouped, head);
    for (int64_t t = token; t < token + n; t++) {
        j->kn->gate_norm(a->out + t * a->ldo + at, a->z + t * a->ld_z + head * dim, a->norm, a->eps, j->st->dim);
    }
}

static int32_t clamp(int32_t x, int32_t lo, int32_t hi) { return x < lo ? lo : x > hi ? hi : x; }

static void do_head(const gdn_job *j, const gdn_seq *s, int32_t head, const gdn_work *w)
{
    int32_t dim = j->st->dim, k_head = head % j->st->n_k, base = s->base;
    float *s0 = slot_s(j, s->slot, head), beta[C];
    const float *state = s0;
    if (s->pos == 0) memset(s0, 0, head_size(j->st) * sizeof *s0);
    save_head(j, s, head, base);
    for (int32_t from = base; from < s->end; from += C) {
        bool verified = from + C <= s->verified, fold = verified || from + C < s->end;
        pi__gdn_chunk c = {.dim = dim, .n_old = clamp(s->pos - from, 0, C), .n_rows = clamp(s->end - from, 0, C)};
        c.s = state;
        float *g = slot_g(j, s->slot, head) + (from - base);
        c.u = slot_u(j, s->slot, head, from - base);
        c.g = g;
        if (fold) c.s_out = verified ? s0 : w->s;
        for (int32_t i = 0; fold && i < C; i++) c.k[i] = key_of(j, s, k_head, from + i);
        if (c.n_old < c.n_rows) {
            int32_t token = s->first + from + c.n_old - s->pos;
            prepare(j, s, head, from, &c, g, w->v, beta);
            c.kq = new_kq(j, k_head, token);
            c.dots = new_dots(j, k_head, token);
            c.v = w->v;
            c.beta = beta;
            c.o = j->a->out + token * j->a->ldo +
                  (int64_t) pi__gdn_place(j->st->n_k, j->st->n_v, j->a->grouped, head) * dim;
            c.ldo = j->a->ldo;
            j->kn->chunk(&c);
            finish_rows(j, token, c.n_rows - c.n_old, head);
        } else if (fold) {
            j->kn->fold(&c);
        }
        if (verified) {
            drop_rows(j, s, head, s->pos - from - C);
            base = from + C;
            save_head(j, s, head, base);
        } else if (fold) {
            state = w->s;
        }
    }
}

/* Prefetches what a value head's first rows read besides S0: G, u and raw inputs in the slot, which are many small
 * pieces. */
static void fetch_head(const gdn_job *j, const gdn_seq *s, int32_t head)
{
    size_t channel = (size_t) (2 * j->st->n_k + head) * (size_t) j->st->dim;
    int32_t old = clamp(s->pos - s->base, 0, C);
    __builtin_prefetch(slot_g(j, s->slot, head), 0, 2);
    fetch(slot_u(j, s->slot, head, 0), old * j->st->dim);
    for (int32_t i = 0; i < history(j->st); i++) fetch(slot_conv(j, s->slot, old + i) + channel, j->st->dim);
}

/* -------------------------------------------------------------------------------------------------- phase 3: keep */

/* For dim channels from `channel` on: copies the raw inputs before each snapshot's position to the snapshot, and the
 * step's raw inputs to the slot. base: the slot's base after the step. */
static void keep_raw(const gdn_job *j, const gdn_seq *s, int32_t base, size_t channel)
{
    size_t size = (size_t) j->st->dim * sizeof(float);
    for (int32_t n = 0; n < s->n_save; n++) {
        const pi__save *save = &j->b->save[s->save + n];
        for (int32_t i = 0; i < history(j->st); i++) {
            float *to = snap_conv(j, snap_of(j->st, save->snap), i) + channel;
            memcpy(to, raw_of(j, s, save->pos - history(j->st) + i, channel), size);
        }
    }
    /* true = base is unchanged, so old rows keep their address and only the step's rows are copied */
    bool stays = base == s->base && s->pos > 0;
    for (int32_t pos = stays ? s->pos : base - history(j->st); pos < s->end; pos++) {
        memmove(slot_conv(j, s->slot, pos - base + history(j->st)) + channel, raw_of(j, s, pos, channel), size);
    }
}

static void keep(const gdn_job *j, const gdn_seq *s, int32_t head)
{
    int32_t base = s->verified / C * C, dim = j->st->dim;
    keep_raw(j, s, base, (size_t) head * (size_t) dim);
    for (int32_t i = j->st->n_k + head; i < 2 * j->st->n_k + j->st->n_v; i += j->st->n_k) {
        keep_raw(j, s, base, (size_t) i * (size_t) dim);
    }
    for (int32_t pos = base == s->base ? s->pos : base; pos < s->end; pos++) {
        memmove(slot_k(j, s->slot, head, pos - base), key_of(j, s, head, pos), (size_t) dim * sizeof(float));
    }
}

/* ------------------------------------------------------------------------------------------------------- the step */

/* Job with many key heads: an item is all three phases of a sequence's key head and its value heads. */
static void run_heads(void *arg, int32_t ith, int32_t nth)
{
    const gdn_job *j = arg;
    const int32_t n_k = j->st->n_k, n_v = j->st->n_v, n = j->n_seqs * n_k;
    for (int32_t i; (i = pi__pool_next(j->cpu->pool, n)) >= 0;) {
        const gdn_seq *s = &j->seq[i / n_k];
        const int32_t next = i + nth; /* next item, if this thread gets it */
        do_rows(j, s, i % n_k);
        if (next < n && n_k <= n_v) fetch_head(j, &j->seq[next / n_k], next % n_k);
        for (int32_t head = i % n_k; head < n_v; head += n_k) do_head(j, s, head, &j->work[ith]);
        keep(j, s, i % n_k);
    }
}

static void run_phases(void *arg, int32_t ith, int32_t nth)
{
    const gdn_job *j = arg;
    pi__pool *pool = j->cpu->pool;
    int32_t n_k = j->st->n_k, n_v = j->st->n_v, n_seqs = j->n_seqs;
    for (int32_t i = ith; i < n_seqs * n_k; i += nth) do_rows(j, &j->seq[i / n_k], i % n_k);
    pi__pool_barrier(pool);
    for (int32_t i; (i = pi__pool_next(pool, n_seqs * n_v)) >= 0;) {
        int32_t next = i + nth; /* next item, if this thread gets it */
        if (next < n_seqs * n_v) fetch_head(j, &j->seq[next / n_v], next % n_v);
        do_head(j, &j->seq[i / n_v], i % n_v, &j->work[ith]);
    }
    pi__pool_barrier(pool);
    for (int32_t i = ith; i < n_seqs * n_k; i += nth) keep(j, &j->seq[i / n_k], i % n_k);
}

static void take_scratch(gdn_job *j, pi__arena *ar, const pi__state_layer *st, int32_t n_tokens, int32_t n_seqs)
{
    size_t n_threads = (size_t) pi__pool_size(j->cpu->pool), f = sizeof(float), dim = (size_t) st->dim;
    size_t rows = (size_t) n_tokens * (size_t) st->n_k * 2;
    j->seq = pi__arena_take(ar, (size_t) n_seqs * sizeof *j->seq);
    j->work = pi__arena_take(ar, n_threads * sizeof *j->work);
    j->kq = pi__arena_take(ar, rows * dim * f);
    j->dots = pi__arena_take(ar, rows * C * f);
    for (size_t i = 0; i < n_threads; i++) {
        gdn_work w = {pi__arena_take(ar, dim * dim * f), pi__arena_take(ar, C * dim * f)};
        if (j->work) j->work[i] = w;
    }
}

size_t pi__cpu_gdn_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    if (!lim->state.dim || pi__state_is_conv(&lim->state)) return 0;
    gdn_job j = {.cpu = (pi__cpu *) cpu};
    pi__arena ar = {0};
    take_scratch(&j, &ar, &lim->state, lim->max_tokens, lim->max_seqs);
    return ar.used;
}

static gdn_seq plan_seq(const gdn_job *j, int32_t i)
{
    const pi__batch *b = j->b;
    gdn_seq s = {.slot = slot_of(j->st, b->state_slot[i]), .first = b->seq_start[i]};
    s.n = b->seq_start[i + 1] - s.first;
    s.pos = b->pos[s.first];
    s.end = s.pos + s.n;
    s.verified = s.pos + b->n_verified[i];
    if (s.pos) memcpy(&s.base, s.slot, sizeof s.base);
    s.save = b->save_start[i];
    s.n_save = b->save_start[i + 1] - s.save;
    return s;
}

void pi__cpu_gdn(pi__backend *be, const pi__batch *b, const pi__gdn *a)
{
    pi__cpu *cpu = (pi__cpu *) be;
    gdn_job j = {.cpu = cpu, .kn = cpu->gdn, .b = b, .a = a, .st = a->st, .at = layout(a->st)};
    pi__arena ar = {.base = cpu->scratch, .size = cpu->scratch_size};
    take_scratch(&j, &ar, a->st, b->n_tokens, b->n_seqs);
    for (int32_t i = 0; i < b->n_seqs; i++) {
        if (b->seq_start[i + 1] > b->seq_start[i]) j.seq[j.n_seqs++] = plan_seq(&j, i);
    }
    const bool heads = a->st->n_v <= a->st->n_k || j.n_seqs * a->st->n_k >= HEADS_A_THREAD * pi__pool_size(cpu->pool);
    if ((int64_t) b->n_tokens * a->st->n_v * a->st->dim * a->st->dim * 2 < SMALL_WORK) {
        pi__pool_reset(cpu->pool);
        run_heads(&j, 0, 1);
    } else {
        pi__pool_run(cpu->pool, heads ? run_heads : run_phases, &j);
    }
    for (int32_t i = 0; i < j.n_seqs; i++) {
        int32_t base = j.seq[i].verified / C * C;
        memcpy(j.seq[i].slot, &base, sizeof base);
    }
}

/* -------------------------------------------------------------------------------------------------- save and load */

/* Job of state_save: writes each head's state at pos to the snapshot. If pos is base, the state is the slot's S0. If
 * pos is a later multiple of C, the slot's rows up to pos are folded into a copy of S0. */
static void save_run(void *arg, int32_t ith, int32_t nth)
{
    const gdn_job *j = arg;
    int32_t base, dim = j->st->dim;
    memcpy(&base, j->slot, sizeof base);
    for (int32_t head = ith; head < j->st->n_v; head += nth) {
        const float *s0 = slot_s(j, j->slot, head);
        float *out = snap_s(j, j->snap, head);
        if (j->pos == base) memcpy(out, s0, head_size(j->st) * sizeof *out);
        for (int32_t from = 0; from + C <= j->pos - base; from += C) {
            pi__gdn_chunk c = {.dim = dim, .n_old = C, .n_rows = C, .s = from ? out : s0, .s_out = out,
                               .u = slot_u(j, j->slot, head, from), .g = slot_g(j, j->slot, head) + from};
            for (int32_t i = 0; i < C; i++) c.k[i] = slot_k(j, j->slot, head % j->st->n_k, from + i);
            j->kn->fold(&c);
        }
    }
    if (ith) return;
    memcpy(snap_conv(j, j->snap, 0), slot_conv(j, j->slot, j->pos - base),
           (size_t) history(j->st) * n_channels(j->st) * sizeof(float));
}

static void load_run(void *arg, int32_t ith, int32_t nth)
{
    const gdn_job *j = arg;
    for (int32_t head = ith; head < j->st->n_v; head += nth) {
        memcpy(slot_s(j, j->slot, head), snap_s(j, j->snap, head), head_size(j->st) * sizeof(float));
    }
    if (ith) return;
    memcpy(j->slot, &j->pos, sizeof j->pos);
    memcpy(slot_conv(j, j->slot, 0), snap_conv(j, j->snap, 0),
           (size_t) history(j->st) * n_channels(j->st) * sizeof(float));
}

static void move_state(pi__backend *be, const pi__state_layer *st, int32_t slot, int32_t pos, int32_t snap,
                       pi__job_fn fn)
{
    pi__cpu *cpu = (pi__cpu *) be;
    gdn_job j = {.cpu = cpu, .kn = cpu->gdn, .st = st, .at = layout(st), .slot = slot_of(st, slot),
                 .snap = snap_of(st, snap), .pos = pos};
    pi__pool_run(cpu->pool, fn, &j);
}

void pi__cpu_state_save(pi__backend *be, const pi__batch *b, const pi__state_copy *a)
{
    (void) b;
    if (pi__state_is_conv(a->st)) pi__cpu_conv_state_save(a);
    else move_state(be, a->st, a->slot, a->pos, a->snap, save_run);
}

void pi__cpu_state_load(pi__backend *be, const pi__batch *b, const pi__state_copy *a)
{
    (void) b;
    if (pi__state_is_conv(a->st)) pi__cpu_conv_state_load(a);
    else move_state(be, a->st, a->slot, a->pos, a->snap, load_run);
}

const pi__cpu_gdn_kernels *pi__cpu_gdn_kernels_of(int isa)
{
#if defined(PI__SIMD_X86)
    PI__RETURN_X86(isa, pi__cpu_gdn);
#elif defined(PI__SIMD_ARM)
    if (isa == PI__ISA_SVE256) return &pi__cpu_gdn_sve256;
    if (isa != PI__ISA_GENERIC) return &pi__cpu_gdn_neon;
#endif
    (void) isa;
    return &pi__cpu_gdn_generic;
}
