/* The gated delta rule, Mamba-2 and Kimi delta attention on the CPU: slots, snapshots, and the distribution of a step's
 * work. gdn.h has the formulas.
 *
 * Memory: the backend's scratch; slots and snapshots are owned by the engine. Threads: called by the step thread,
 * which forks and joins the pool inside. A step has three phases:
 *
 *     rows    sequence x key head      convolution and norm of keys and queries, dot products with the chunk's keys
 *     heads   sequence x value head    values, the state, the output; u and G rows, snapshots of S0
 *     keep    sequence x key head      copies keys and raw inputs that the next step needs to the slot
 *
 * Mamba-2 norms the outputs of a key head's value heads in one, so its norm is at the end of phase 3.
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

#include "backend/cpu/scan.h"
#include "backend/cpu/short_conv.h"
#include "backend/cpu/simd.h"
#include "base/alloc.h"

enum {
    C = PI__GDN_CHUNK,
    AHEAD = 4,                  /* distance, in tokens, of prefetching the convolution's inputs */
    SMALL_WORK = 1 << 17,       /* with fewer multiply-adds, one thread computes everything */
    /* with fewer (sequence, key head) pairs per thread, each phase is split over all threads */
    HEADS_A_THREAD = 4,
    PART = 8 * C,               /* tokens of an item of phase 1 */
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
    float *s; /* [dim * V] a head's state after chunks with unverified rows, which must not change the slot's S0 */
    float *v; /* [C][V] values of a chunk */
    float *o; /* [C][V] with ssd: outputs of a chunk */
    float *k; /* [C][dim], then [dim], with kda: see decay_keys() */
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
    float *kq;      /* [n_k][n_tokens][2][dim] keys and queries of the step; with kda, times e^G_i */
    float *kd;      /* [n_k][n_tokens][2][dim] with kda: keys and decays of the step */
    /* [n_k][n_tokens][2][C] dot products of these keys and queries with the keys of their chunk (gdn.h) */
    float *dots;
    /* state_save and state_load only: the slot, the snapshot, and the snapshot's position */
    char *slot, *snap;
    int32_t pos;
} gdn_job;

/* --------------------------------------------------------------------------------------------------------- layout */

static size_t align64(size_t n) { return (n + 63) & ~(size_t) 63; }
static size_t n_rows(const pi__state_layer *st) { return (size_t) (C + st->n_draft); }
static size_t n_channels(const pi__state_layer *st) { return (size_t) pi__state_channels(st); }
/* Returns V: the values per value head, padded to panels. */
static int32_t padded(const pi__state_layer *st)
{
    return (pi__state_dim_v(st) + PI__GDN_PANEL - 1) / PI__GDN_PANEL * PI__GDN_PANEL;
}
/* Return the first channel of a key head's keys, and of a value head's values. Its queries start at head * dim. */
static size_t key_channel(const pi__state_layer *st, int32_t head) { return (size_t) ((st->n_k + head) * st->dim); }
static size_t value_channel(const pi__state_layer *st, int32_t head)
{
    return (size_t) (2 * st->n_k * st->dim + head * pi__state_dim_v(st));
}
/* Returns the number of raw inputs before a token that its convolution reads. */
static int32_t history(const pi__state_layer *st) { return st->n_conv - 1; }
static size_t head_size(const pi__state_layer *st) { return (size_t) st->dim * (size_t) padded(st); }

static slot_layout layout(const pi__state_layer *st)
{
    size_t f = sizeof(float), dim = (size_t) st->dim, n_v = (size_t) st->n_v, rows = n_rows(st);
    slot_layout at;
    at.s = 64;
    at.conv = at.s + n_v * head_size(st) * f;
    at.k = at.conv + align64((rows + (size_t) history(st)) * n_channels(st) * f);
    at.u = at.k + align64((size_t) st->n_k * rows * dim * f);
    at.g = at.u + align64(n_v * rows * (size_t) padded(st) * f);
    at.size = at.g + align64(n_v * rows * (size_t) pi__state_decays(st) * f);
    return at;
}

static bool supported(const pi__state_layer *st)
{
    const int32_t dim_v = pi__state_dim_v(st);
    if (dim_v < 1 || dim_v > PI__GDN_MAX_DIM || dim_v % 16) return false;
    if (st->ssd ? st->n_k < 1 || st->n_v % st->n_k : dim_v != st->dim) return false;
    if (st->kda && (st->ssd || st->n_v != st->n_k)) return false;
    return st->n_k > 0 && st->n_v > 0 && st->dim > 0 && st->dim % PI__GDN_PANEL == 0 && st->dim <= PI__GDN_MAX_DIM &&
           st->n_conv >= PI__MIN_CONV && st->n_conv <= PI__MAX_CONV && st->n_draft >= 0;
}

size_t pi__cpu_state_bytes(const pi__backend *be, const pi__state_layer *st)
{
    (void) be;
    if (pi__state_is_conv(st)) return pi__cpu_conv_state_bytes(st);
    if (pi__state_is_scan(st)) return pi__cpu_scan_state_bytes(st);
    return supported(st) ? layout(st).size : 0;
}

size_t pi__cpu_snapshot_bytes(const pi__backend *be, const pi__state_layer *st)
{
    (void) be;
    if (pi__state_is_conv(st)) return pi__cpu_conv_snapshot_bytes(st);
    if (pi__state_is_scan(st)) return pi__cpu_scan_snapshot_bytes(st);
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
    return (float *) (void *) (slot + j->at.u) + ((size_t) head * n_rows(j->st) + (size_t) i) * (size_t) padded(j->st);
}

static float *slot_g(const gdn_job *j, char *slot, int32_t head)
{
    return (float *) (void *) (slot + j->at.g) + (size_t) head * n_rows(j->st);
}

/* With kda: the address of a value head's decays of row i. */
static float *slot_d(const gdn_job *j, char *slot, int32_t head, int32_t i)
{
    return (float *) (void *) (slot + j->at.g) + ((size_t) head * n_rows(j->st) + (size_t) i) * (size_t) j->st->dim;
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

/* With kda: returns the address of a token's key without decays; its decays follow. */
static float *new_kd(const gdn_job *j, int32_t head, int32_t token) { return new_kq(j, head, token) - j->kq + j->kd; }

static const float *key_of(const gdn_job *j, const gdn_seq *s, int32_t head, int32_t pos)
{
    const int32_t token = s->first + pos - s->pos;
    if (pos >= s->pos) return j->st->kda ? new_kd(j, head, token) : new_kq(j, head, token);
    return slot_k(j, s->slot, head, pos - s->base);
}

static const float *decays_of(const gdn_job *j, const gdn_seq *s, int32_t head, int32_t pos)
{
    if (pos >= s->pos) return new_kd(j, head, s->first + pos - s->pos) + j->st->dim;
    return slot_d(j, s->slot, head, pos - s->base);
}

/* Prefetches n floats at row. Rows of adjacent tokens are far apart in memory, so the hardware prefetcher does not load
 * them. */
static void fetch(const float *row, int32_t n)
{
    for (int32_t i = 0; i < n; i += 16) __builtin_prefetch(row + i, 0, 2);
}

/* y = the convolution of position pos, for dim channels from `channel` on. */
static void convolve(const gdn_job *j, const gdn_seq *s, int32_t pos, size_t channel, int32_t dim, float *y)
{
    const float *x[PI__MAX_CONV], *bias = j->a->conv_bias;
    const int32_t n = j->st->n_conv;
    for (int32_t i = 0; i < n; i++) x[i] = raw_of(j, s, pos - history(j->st) + i, channel);
    j->kn->conv(x, j->a->conv + channel * (size_t) n, bias ? bias + channel : NULL, n, dim, y);
}

/* -------------------------------------------------------------------------------------------------- phase 1: rows */

/* With kda: computes a token's decays, the key and query k times e^G_i, and their dot products with earlier keys of the
 * chunk. keys, decays: rows of the chunk. n: the token's row. all: e^G of row n - 1; receives that of row n. */
static void decay_token(const gdn_job *j, int32_t head, int32_t token, int32_t n, const float *const keys[C],
                        const float *const decays[C], float *all)
{
    const int32_t dim = j->st->dim;
    const int64_t channel = (int64_t) head * dim;
    float *k = new_kq(j, head, token), *kd = new_kd(j, head, token), *d = new_dots(j, head, token);
    memcpy(kd, k, (size_t) dim * sizeof *k);
    j->kn->decays(j->a->alpha + token * j->a->ld_ab + channel, j->a->dt_bias + channel, j->a->a[head],
                  j->a->min_decay, dim, kd + dim);
    j->kn->decayed_dots(k + dim, keys, decays, n, dim, d, d + C);
    j->kn->decay_row(all, kd + dim, dim, k, k + dim);
}

/* Sets all[0 .. dim - 1] to its product with row; in row 0 of a chunk, to ones before. row NULL = ones. */
static void multiply(float *all, const float *row, int32_t dim, bool begins)
{
    for (int32_t i = 0; i < dim; i++) all[i] = (begins ? 1.0f : all[i]) * (row ? row[i] : 1.0f);
}

/* Computes the rows of positions from .. to - 1. `from` is the sequence's first position in the step, or begins a
 * chunk. */
static void do_rows(const gdn_job *j, const gdn_seq *s, int32_t head, int32_t from, int32_t to)
{
    const int32_t dim = j->st->dim;
    const size_t q_channel = (size_t) head * (size_t) dim, k_channel = key_channel(j->st, head);
    const bool kda = j->st->kda;
    const float *keys[C] = {0}, *decays[C] = {0}, eps = kda ? PI__KDA_EPS : j->a->eps;
    float all[PI__GDN_MAX_DIM];
    for (int32_t pos = from / C * C; pos < to; pos++) {
        keys[pos % C] = key_of(j, s, head, pos);
        if (kda) decays[pos % C] = decays_of(j, s, head, pos);
        if (kda) multiply(all, pos < from ? decays[pos % C] : NULL, dim, pos % C == 0);
        if (pos < from) continue;
        int32_t token = s->first + pos - s->pos;
        float *k = new_kq(j, head, token), *q = k + dim, *d = new_dots(j, head, token);
        if (pos + AHEAD < s->end) {
            fetch(raw_of(j, s, pos + AHEAD, k_channel), dim);
            fetch(raw_of(j, s, pos + AHEAD, q_channel), dim);
        }
        convolve(j, s, pos, k_channel, dim, k);
        convolve(j, s, pos, q_channel, dim, q);
        if (!j->st->ssd) {
            j->kn->l2norm(k, dim, eps, 1.0f);
            j->kn->l2norm(q, dim, eps, 1.0f / sqrtf((float) dim));
        }
        if (kda) {
            decay_token(j, head, token, pos % C, keys, decays, all);
            continue;
        }
        if (!j->st->ssd) j->kn->dots(k, keys, pos % C, dim, d);
        j->kn->dots(q, keys, pos % C + 1, dim, d + C);
    }
}

/* Returns the number of parts of PART tokens that the longest sequence of the step has. */
static int32_t n_parts(const gdn_job *j)
{
    int32_t n = 1;
    for (int32_t i = 0; i < j->n_seqs; i++) {
        const int32_t last = (j->seq[i].end - 1) / PART - j->seq[i].pos / PART + 1;
        n = last > n ? last : n;
    }
    return n;
}

/* do_rows for part i of the sequence. */
static void do_part(const gdn_job *j, const gdn_seq *s, int32_t head, int32_t i)
{
    const int32_t part = (s->pos / PART + i) * PART, end = part + PART;
    do_rows(j, s, head, part > s->pos ? part : s->pos, end < s->end ? end : s->end);
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
    const int32_t n = c->n_rows - c->n_old, token = s->first + from + c->n_old - s->pos, dim = pi__state_dim_v(j->st);
    const size_t channel = value_channel(j->st, head);
    for (int32_t r = 0; r < C; r++) {
        beta[r] = 0;
        if (r >= n) continue;
        if (!c->kda) alpha[r] = j->a->alpha[(token + r) * j->a->ld_ab + head];
        if (!c->ssd) beta[r] = j->a->beta[(token + r) * j->a->ld_ab + head];
        convolve(j, s, from + c->n_old + r, channel, dim, v + r * c->dim_v);
        memset(v + r * c->dim_v + dim, 0, (size_t) (c->dim_v - dim) * sizeof *v);
        fetch(j->a->z + (token + r) * j->a->ld_z + head * dim, dim);
        if (from + C + r < s->end) fetch(raw_of(j, s, from + C + r, channel), dim);
    }
    if (c->ssd) j->kn->steps(alpha, beta, j->a->dt_bias[head], j->a->a[head]);
    else j->kn->gates(alpha, beta, c->kda ? 0 : j->a->dt_bias[head], j->a->a[head]);
    for (int32_t r = 0; r < n && !c->kda; r++) {
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
    memmove(slot_u(j, s->slot, head, 0), slot_u(j, s->slot, head, C), (size_t) (left * padded(j->st)) * sizeof(float));
    if (!j->st->kda) memmove(g, g + C, (size_t) left * sizeof(float));
}

/* Returns the first column of a value head in a row of out. */
static int64_t out_column(const gdn_job *j, int32_t head)
{
    return (int64_t) pi__state_dim_v(j->st) * pi__gdn_place(j->st->n_k, j->st->n_v, j->a->grouped, head);
}

/* Applies norm and gate to one value head's output rows of tokens token..token + n - 1 of the batch. With ssd, writes
 * these rows from w->o and the values w->v, gated; norm_tokens() follows. */
static void finish_rows(const gdn_job *j, int32_t token, int32_t n, int32_t head, const gdn_work *w)
{
    const pi__gdn *a = j->a;
    const int32_t dim = pi__state_dim_v(j->st), ld = padded(j->st);
    for (int32_t r = 0; r < n; r++) {
        float *out = a->out + (token + r) * a->ldo + out_column(j, head);
        const float *z = a->z + (token + r) * a->ld_z + head * dim;
        if (!j->st->ssd) j->kn->gate_norm(out, z, a->norm, a->eps, dim, j->st->kda);
        else j->kn->skip_gate(w->o + r * ld, w->v + r * ld, z, a->skip ? a->skip[head] : 0, dim, out);
    }
}

/* With ssd: norms the outputs of a key head's value heads, for tokens token .. token + n - 1 of the batch. */
static void norm_tokens(const gdn_job *j, int32_t token, int32_t n, int32_t k_head)
{
    const pi__gdn *a = j->a;
    const int32_t width = j->st->n_v / j->st->n_k * pi__state_dim_v(j->st);
    if (!j->st->ssd || !a->norm) return;
    for (int64_t t = token; t < token + n; t++)
        j->kn->norm(a->out + t * a->ldo + k_head * width, a->norm + k_head * width, a->eps, width);
}

/* With kda: sets the keys and the decay of a chunk that is folded. key, decay: the chunk's rows. */
static void set_decayed(const gdn_job *j, const gdn_work *w, const float *const key[C], const float *const decay[C],
                        pi__gdn_chunk *c)
{
    const int32_t dim = j->st->dim;
    j->kn->decay_keys(key, decay, dim, w->k, w->k + C * dim);
    for (int32_t i = 0; i < C; i++) c->k[i] = w->k + i * dim;
    c->decay = w->k + C * dim;
}

/* Sets the keys of a chunk from position `from` on, which is folded. */
static void set_keys(const gdn_job *j, const gdn_seq *s, int32_t head, int32_t from, const gdn_work *w,
                     pi__gdn_chunk *c)
{
    const float *decay[C];
    for (int32_t i = 0; i < C; i++) c->k[i] = key_of(j, s, head % j->st->n_k, from + i);
    if (!c->kda) return;
    for (int32_t i = 0; i < C; i++) decay[i] = decays_of(j, s, head, from + i);
    set_decayed(j, w, c->k, decay, c);
}

static int32_t clamp(int32_t x, int32_t lo, int32_t hi) { return x < lo ? lo : x > hi ? hi : x; }

static void do_head(const gdn_job *j, const gdn_seq *s, int32_t head, const gdn_work *w)
{
    const int32_t k_head = head % j->st->n_k;
    int32_t base = s->base;
    float *s0 = slot_s(j, s->slot, head), beta[C];
    const float *state = s0;
    if (s->pos == 0) memset(s0, 0, head_size(j->st) * sizeof *s0);
    save_head(j, s, head, base);
    for (int32_t from = base; from < s->end; from += C) {
        bool verified = from + C <= s->verified, fold = verified || from + C < s->end;
        pi__gdn_chunk c = {.dim = j->st->dim, .dim_v = padded(j->st), .ssd = j->st->ssd, .kda = j->st->kda,
                           .n_old = clamp(s->pos - from, 0, C), .n_rows = clamp(s->end - from, 0, C)};
        c.s = state;
        float *g = c.kda ? NULL : slot_g(j, s->slot, head) + (from - base);
        c.u = slot_u(j, s->slot, head, from - base);
        c.g = g;
        if (fold) c.s_out = verified ? s0 : w->s;
        if (fold) set_keys(j, s, head, from, w, &c);
        if (c.n_old < c.n_rows) {
            int32_t token = s->first + from + c.n_old - s->pos;
            prepare(j, s, head, from, &c, g, w->v, beta);
            c.kq = new_kq(j, k_head, token);
            c.dots = new_dots(j, k_head, token);
            c.v = w->v;
            c.beta = beta;
            c.o = c.ssd ? w->o : j->a->out + token * j->a->ldo + out_column(j, head);
            c.ldo = c.ssd ? c.dim_v : j->a->ldo;
            j->kn->chunk(&c);
            finish_rows(j, token, c.n_rows - c.n_old, head, w);
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
    const size_t channel = value_channel(j->st, head);
    int32_t old = clamp(s->pos - s->base, 0, C);
    if (!j->st->kda) __builtin_prefetch(slot_g(j, s->slot, head), 0, 2);
    fetch(slot_u(j, s->slot, head, 0), old * padded(j->st));
    for (int32_t i = 0; i < history(j->st); i++)
        fetch(slot_conv(j, s->slot, old + i) + channel, pi__state_dim_v(j->st));
}

/* -------------------------------------------------------------------------------------------------- phase 3: keep */

/* For dim channels from `channel` on: copies the raw inputs before each snapshot's position to the snapshot, and the
 * step's raw inputs to the slot. base: the slot's base after the step. */
static void keep_raw(const gdn_job *j, const gdn_seq *s, int32_t base, size_t channel, int32_t dim)
{
    size_t size = (size_t) dim * sizeof(float);
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
    keep_raw(j, s, base, (size_t) head * (size_t) dim, dim);
    keep_raw(j, s, base, key_channel(j->st, head), dim);
    for (int32_t i = head; i < j->st->n_v; i += j->st->n_k)
        keep_raw(j, s, base, value_channel(j->st, i), pi__state_dim_v(j->st));
    for (int32_t pos = base == s->base ? s->pos : base; pos < s->end; pos++) {
        memmove(slot_k(j, s->slot, head, pos - base), key_of(j, s, head, pos), (size_t) dim * sizeof(float));
        if (j->st->kda)
            memmove(slot_d(j, s->slot, head, pos - base), decays_of(j, s, head, pos), (size_t) dim * sizeof(float));
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
        do_rows(j, s, i % n_k, s->pos, s->end);
        if (next < n && n_k <= n_v) fetch_head(j, &j->seq[next / n_k], next % n_k);
        for (int32_t head = i % n_k; head < n_v; head += n_k) do_head(j, s, head, &j->work[ith]);
        keep(j, s, i % n_k);
        norm_tokens(j, s->first, s->n, i % n_k);
    }
}

static void run_phases(void *arg, int32_t ith, int32_t nth)
{
    const gdn_job *j = arg;
    pi__pool *pool = j->cpu->pool;
    int32_t n_k = j->st->n_k, n_v = j->st->n_v, n_seqs = j->n_seqs;
    const int32_t parts = n_parts(j), n_rows = n_seqs * n_k * parts;
    for (int32_t i = ith; i < n_rows; i += nth) do_part(j, &j->seq[i / parts / n_k], i / parts % n_k, i % parts);
    pi__pool_barrier(pool);
    for (int32_t i; (i = pi__pool_next(pool, n_seqs * n_v)) >= 0;) {
        int32_t next = i + nth; /* next item, if this thread gets it */
        if (next < n_seqs * n_v) fetch_head(j, &j->seq[next / n_v], next % n_v);
        do_head(j, &j->seq[i / n_v], i % n_v, &j->work[ith]);
    }
    pi__pool_barrier(pool);
    for (int32_t i = ith; i < n_seqs * n_k; i += nth) keep(j, &j->seq[i / n_k], i % n_k);
    for (int32_t i = ith; i < j->b->n_tokens * n_k; i += nth) norm_tokens(j, i / n_k, 1, i % n_k);
}

static void take_scratch(gdn_job *j, pi__arena *ar, const pi__state_layer *st, int32_t n_tokens, int32_t n_seqs)
{
    size_t n_threads = (size_t) pi__pool_size(j->cpu->pool), f = sizeof(float), dim = (size_t) st->dim;
    size_t dim_v = (size_t) padded(st);
    size_t rows = (size_t) n_tokens * (size_t) st->n_k * 2;
    j->seq = pi__arena_take(ar, (size_t) n_seqs * sizeof *j->seq);
    j->work = pi__arena_take(ar, n_threads * sizeof *j->work);
    j->kq = pi__arena_take(ar, rows * dim * f);
    j->kd = pi__arena_take(ar, st->kda ? rows * dim * f : 0);
    j->dots = pi__arena_take(ar, rows * C * f);
    for (size_t i = 0; i < n_threads; i++) {
        gdn_work w = {pi__arena_take(ar, dim * dim_v * f), pi__arena_take(ar, C * dim_v * f),
                      pi__arena_take(ar, st->ssd ? C * dim_v * f : 0),
                      pi__arena_take(ar, st->kda ? (C + 1) * dim * f : 0)};
        if (j->work) j->work[i] = w;
    }
}

size_t pi__cpu_gdn_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    if (!lim->state.dim || !lim->state.n_k) return 0;
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
    if ((int64_t) b->n_tokens * a->st->n_v * (int64_t) head_size(a->st) * 2 < SMALL_WORK) {
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
    int32_t base;
    memcpy(&base, j->slot, sizeof base);
    for (int32_t head = ith; head < j->st->n_v; head += nth) {
        const float *s0 = slot_s(j, j->slot, head);
        float *out = snap_s(j, j->snap, head);
        if (j->pos == base) memcpy(out, s0, head_size(j->st) * sizeof *out);
        for (int32_t from = 0; from + C <= j->pos - base; from += C) {
            pi__gdn_chunk c = {.dim = j->st->dim, .dim_v = padded(j->st), .ssd = j->st->ssd, .kda = j->st->kda};
            const float *decay[C];
            c.n_old = c.n_rows = C;
            c.s = from ? out : s0;
            c.s_out = out;
            c.u = slot_u(j, j->slot, head, from);
            c.g = slot_g(j, j->slot, head) + from;
            for (int32_t i = 0; i < C; i++) c.k[i] = slot_k(j, j->slot, head % j->st->n_k, from + i);
            for (int32_t i = 0; c.kda && i < C; i++) decay[i] = slot_d(j, j->slot, head, from + i);
            if (c.kda) set_decayed(j, &j->work[ith], c.k, decay, &c);
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
    pi__arena ar = {.base = cpu->scratch, .size = cpu->scratch_size};
    take_scratch(&j, &ar, st, 0, 0);
    pi__pool_run(cpu->pool, fn, &j);
}

void pi__cpu_state_save(pi__backend *be, const pi__batch *b, const pi__state_copy *a)
{
    (void) b;
    if (pi__state_is_conv(a->st)) pi__cpu_conv_state_save(a);
    else if (pi__state_is_scan(a->st)) pi__cpu_scan_state_save(be, a);
    else move_state(be, a->st, a->slot, a->pos, a->snap, save_run);
}

void pi__cpu_state_load(pi__backend *be, const pi__batch *b, const pi__state_copy *a)
{
    (void) b;
    if (pi__state_is_conv(a->st)) pi__cpu_conv_state_load(a);
    else if (pi__state_is_scan(a->st)) pi__cpu_scan_state_load(be, a);
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
