/* Validation of the commands that a worker rank receives from another process (see tensor_check.h).
 *
 * Rank 0 is not trusted to send valid commands: the sender may be faulty, another build, or an attacker on a
 * network without a secret. Each offset, length, count and index of a command is checked against this rank's own
 * memory and limits before it is used:
 *
 *     memory     A range lies in one region that rank 0 allocated here.
 *     weights    A known type, and a size in this rank's layout that fits its region.
 *     batches    Ids of tokens, sequences, blocks and slots are below their counts.
 *     calls      Host pointers are arrays that were sent with the call. All other operands lie in regions.
 *
 * Values are not checked: weights, keys and activations are arbitrary bytes, as in a model file. So an application
 * has to set a secret (option rank-secret) if other machines can reach the network between the ranks.
 *
 * No memory. Threads: that of the worker rank's loop. */
#include "backend/tensor_check.h"

#include "backend/operands.h"
#include "base/alloc.h"
#include "formats/formats.h"

/* MAX_COUNT: max rows or columns of activations, and max value of most counts. MAX_STEP: max values between rows. */
enum { MAX_COUNT = 1 << 24, MAX_STEP = 1 << 30 };

static bool within(int64_t v, int64_t lo, int64_t hi) { return v >= lo && v <= hi; }

bool pi__valid_memory(const rank *k, const void *p, size_t size)
{
    const region *all = k->t->region;
    for (const region *r = all; r < all + MAX_REGIONS; r++) {
        const uintptr_t off = (uintptr_t) p - (uintptr_t) r->base;
        if (r->base && off < r->size && size <= r->size - off) return true;
    }
    return false;
}

bool pi__valid_limits(const pi__limits *lim)
{
    const pi__state_layer *s = &lim->state;
    const int64_t counts[] = {lim->max_n_in,
                              lim->max_n_out,
                              lim->n_vocab,
                              lim->max_n_head,
                              lim->max_head_dim,
                              lim->max_expert,
                              lim->max_used,
                              lim->max_in_exp,
                              lim->max_ff_exp,
                              lim->max_order,
                              lim->max_pick,
                              lim->max_row,
                              lim->max_stream,
                              lim->n_head_mat,
                              lim->head_in,
                              lim->head_out,
                              lim->indexer_head,
                              lim->indexer_dim,
                              lim->indexer_ratio,
                              lim->key_blocks,
                              lim->sparse_heads,
                              s->n_k,
                              s->n_v,
                              s->dim,
                              s->dim_v,
                              s->n_conv,
                              s->n_draft};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!within(counts[i], 0, MAX_COUNT)) return false;
    return within(lim->max_tokens, 1, 1 << 20) && within(lim->max_seqs, 1, 1 << 20) &&
           within(lim->max_rows, 0, PI__MAX_ROWS) && within(lim->max_ctx, 1, 1 << 30) &&
           lim->max_expert <= PI__MAX_EXPERTS && lim->max_used <= PI__MAX_USED && lim->max_pick <= PI__MAX_PICK &&
           s->n_conv <= PI__MAX_CONV;
}

/* ---------------------------------------------------------------------------------------------------------- weights */

/* Returns true if fused_rows is empty, or adds up to the matrix's rows. */
static bool valid_fused(const pi__weight *w)
{
    int64_t sum = 0;
    int32_t n = 0;
    for (; n < MAX_FUSED && w->fused_rows[n]; sum += w->fused_rows[n++])
        if (!within(w->fused_rows[n], 1, w->n_out)) return false;
    return !n || sum == w->n_out;
}

bool pi__valid_weight(const rank *k, pi__weight *w)
{
    pi__fix_flag(&w->routed), pi__fix_flag(&w->whole);
    const pi__type_info *type = pi__type_info_of(w->type);
    if (!type || !within(w->n_in, 1, INT32_MAX) || !within(w->n_out, 1, INT32_MAX) || !within(w->n_mat, 1, MAX_COUNT))
        return false;
    if (w->n_in % type->blck_size || !valid_fused(w) || w->n_head < 0 || w->target < 0) return false;
    pi__weight own = *w;
    const size_t size = k->t->dev.weight_size(&k->t->be, &own);
    if (!size || own.layout != w->layout || size != w->size || !pi__valid_memory(k, w->data, size)) return false;
    return !w->scale || pi__valid_memory(k, w->scale, (size_t) w->n_mat * sizeof(float));
}

bool pi__valid_rows(const rank *k, pi__rank_rows *rows)
{
    if (!pi__valid_weight(k, &rows->w) || !!rows->cut != pi__tensor_is_cut(k->t, &rows->w)) return false;
    const pi__weight *w = &rows->w;
    return within(rows->mat, 0, w->n_mat - 1) && within(rows->row, 0, w->n_out) &&
           within(rows->n, 0, w->n_out - rows->row) && rows->row % PI__TILE_ROWS == 0 &&
           (rows->n % PI__TILE_ROWS == 0 || rows->row + rows->n == w->n_out);
}

/* ------------------------------------------------------------------------------------------------------------ batch */

/* Returns true if v is NULL or all its n values are in lo..hi - 1. */
static bool valid_ints(const int32_t *v, int32_t n, int64_t lo, int64_t hi)
{
    for (int32_t i = 0; v && i < n; i++)
        if (v[i] < lo || v[i] >= hi) return false;
    return true;
}

/* Returns true if v is NULL or holds the n + 1 starts of n adjacent ranges in 0..end - 1. all: the ranges must also
 * reach end. */
static bool valid_starts(const int32_t *v, int32_t n, int32_t end, bool all)
{
    if (!v) return true;
    for (int32_t i = 0; i < n; i++)
        if (v[i + 1] < v[i]) return false;
    return v[0] == 0 && v[n] >= 0 && (all ? v[n] == end : v[n] <= end);
}

/* Checks the slots and block table of a cache group. *n_blocks receives the largest block id, plus 1. */
static bool valid_group(const pi__batch *b, const pi__kv_batch *kv, int32_t *n_blocks)
{
    *n_blocks = 0;
    if (!kv->block_table && !kv->slot) return true;
    if (!within(kv->block_size, 1, 4096) || kv->table_stride < 0) return false;
    if (!valid_ints(kv->slot, b->n_tokens, -1, INT32_MAX)) return false;
    for (int32_t i = 0; kv->slot && i < b->n_tokens; i++)
        if (kv->slot[i] / kv->block_size >= *n_blocks) *n_blocks = kv->slot[i] / kv->block_size + 1;
    const size_t n = (size_t) b->n_seqs * (size_t) kv->table_stride;
    for (size_t i = 0; kv->block_table && i < n; i++) {
        if (kv->block_table[i] < -1 || kv->block_table[i] == INT32_MAX) return false;
        if (kv->block_table[i] >= *n_blocks) *n_blocks = kv->block_table[i] + 1;
    }
    return true;
}

/* Returns true if the tokens of each sequence are adjacent, and their positions are below its seq_len. */
static bool valid_sequences(const pi__batch *b)
{
    for (int32_t q = 0; b->n_tokens && q < b->n_seqs; q++)
        for (int32_t t = b->seq_start[q]; t < b->seq_start[q + 1]; t++)
            if (b->seq[t] != q || b->pos[t] >= b->seq_len[q] || (b->see_to && b->see_to[t] >= b->seq_len[q]))
                return false;
    return true;
}

static bool valid_snapshots(const pi__batch *b)
{
    const int32_t n = b->save_start && b->save ? b->save_start[b->n_seqs] : 0;
    for (int32_t i = 0; i < n; i++)
        if (b->save[i].pos < 0 || b->save[i].snap < 0) return false;
    return true;
}

static bool valid_runs(const pi__batch *b)
{
    const pi__runs *r = &b->runs;
    if (!r->n) return true;
    return r->n > 0 && within(r->n_blocks, 0, r->n) && valid_starts(r->start, r->n, b->n_tokens, true) &&
           valid_ints(r->seq, r->n, 0, b->n_seqs) && valid_ints(r->block, r->n, -1, r->n_blocks);
}

/* Checks the step's topk requests for its logits rows. */
static bool valid_top(const pi__batch *b)
{
    const pi__step_top *top = &b->top;
    if (!top->request) return true;
    if (!within(top->k, 0, PI__MAX_TOP) || !within(top->n_skip, 0, PI__MAX_SKIP)) return false;
    for (int32_t i = 0; i < b->n_rows; i++)
        if (!within(top->request[i].k, 0, top->k) || !within(top->request[i].n_skip, 0, top->n_skip)) return false;
    return true;
}

bool pi__valid_batch(const pi__batch *b, const pi__limits *lim, int32_t n_blocks[PI__MAX_GROUPS])
{
    const int32_t T = b->n_tokens, S = b->n_seqs;
    if (!within(T, 0, lim->max_tokens) || !within(S, 0, lim->max_seqs) || !within(b->n_rows, 0, T)) return false;
    if (T && (!b->token || !b->pos || !b->seq || !b->seq_start || !b->seq_len)) return false;
    if (!valid_ints(b->token, T, 0, INT32_MAX) || !valid_ints(b->pos, T, 0, lim->max_ctx) ||
        !valid_ints(b->seq, T, 0, S))
        return false;
    if (!valid_starts(b->seq_start, S, T, true) || !valid_ints(b->seq_len, S, 0, (int64_t) lim->max_ctx + 1))
        return false;
    if (!valid_ints(b->logits_indices, b->n_rows, 0, T) || (b->n_rows && !b->logits_indices)) return false;
    if (!valid_ints(b->hidden_row, T, -1, MAX_COUNT) || !valid_ints(b->state_slot, S, -1, MAX_COUNT)) return false;
    if (!valid_ints(b->n_verified, S, -MAX_COUNT, MAX_COUNT)) return false;
    if (!valid_ints(b->rope_pos, 3 * T, 0, lim->max_ctx) || !valid_ints(b->see_to, T, -1, lim->max_ctx)) return false;
    if (!valid_starts(b->save_start, S, MAX_COUNT, false) || !valid_snapshots(b) || !valid_runs(b) || !valid_top(b))
        return false;
    for (int32_t g = 0; g < b->n_groups; g++)
        if (!valid_group(b, &b->kv[g], &n_blocks[g])) return false;
    return valid_sequences(b);
}

/* ---------------------------------------------------------------------------------------------------- host pointers */

/* A pointer to host memory in an op's arguments, and the kind of its target; PI__VECTOR = the sender may not set it. */
typedef struct host_pointer {
    pi__op_id id;
    pi__operand_kind kind;
    size_t at;
} host_pointer;

#define PLACE(op, kind, field) \
    { \
        PI__OP_##op, PI__##kind, offsetof(pi__op_record, args.op.field) - offsetof(pi__op_record, args) \
    }
#define LINEAR(op, of) \
    PLACE(op, WEIGHT, of lin[0].w), PLACE(op, WEIGHT, of lin[1].w), PLACE(op, WEIGHT, of lin[2].w), \
        PLACE(op, WEIGHT, of lin[3].w), PLACE(op, WEIGHT, of lin[4].w), PLACE(op, WEIGHT, of lin[5].w), \
        PLACE(op, WEIGHT, of lin[6].w), PLACE(op, WEIGHT, of lin[7].w), PLACE(op, VECTOR, of best)
_Static_assert(PI__MAX_LIN == 8, "LINEAR lists all matrices of an op");
static const host_pointer host_pointers[] = {
    PLACE(embed, WEIGHT, w),
    LINEAR(linear, ),
    LINEAR(lora, of.),
    PLACE(lora, ADAPTERS, rows),
    PLACE(lora_embed, WEIGHT, w),
    PLACE(lora_embed, ADAPTERS, rows),
    PLACE(gather_rows, TOKENS, row),
    PLACE(add_rows, TOKENS, row),
    PLACE(place_rows, TOKENS, row),
    PLACE(rope, HOST, freq),
    PLACE(qkv, CACHE, kv),
    PLACE(attention, CACHE, kv),
    PLACE(moe, WEIGHT, gate),
    PLACE(moe, WEIGHT, up),
    PLACE(moe, WEIGHT, down),
    PLACE(moe, ADAPTERS, lora.rows),
    PLACE(moe, VECTOR, shard),
    PLACE(head_linear, WEIGHT, w),
    PLACE(centroid_head, WEIGHT, centroids),
    PLACE(centroid_head, WEIGHT, head),
    PLACE(centroid_head, HOST, order),
    PLACE(gdn, STATE, st),
    PLACE(short_conv, STATE, st),
    PLACE(scan, STATE, st),
    PLACE(state_save, STATE, st),
    PLACE(state_load, STATE, st),
    PLACE(mla_qkv, CACHE, rows),
    PLACE(compress, CACHE, recent),
    PLACE(compress, CACHE, entries),
    PLACE(compress, HOST, freq),
    PLACE(indexer, CACHE, entries),
    PLACE(sparse, CACHE, rows),
    PLACE(sparse, CACHE, entries),
    PLACE(topk, HOST, skip),
    PLACE(topk, HOST, request),
    PLACE(topk, HOST, out),
};
enum { N_HOST_POINTERS = sizeof host_pointers / sizeof *host_pointers };

pi__operand_kind pi__host_pointer_kind(pi__op_id id, size_t at)
{
    for (int32_t i = 0; i < N_HOST_POINTERS; i++)
        if (host_pointers[i].id == id && host_pointers[i].at == at) return host_pointers[i].kind;
    return PI__VECTOR;
}

void pi__clear_host_pointers(pi__op_id id, void *args)
{
    const void *none = NULL;
    for (int32_t i = 0; i < N_HOST_POINTERS; i++)
        if (host_pointers[i].id == id) memcpy((char *) args + host_pointers[i].at, &none, sizeof none);
}

/* ------------------------------------------------------------------------------------------------------------ calls */

/* The context of a call's checks. */
typedef struct checker {
    const pi__tensor *t;
    const rank *k;
    const pi__limits *lim;
    /* the call's batch without padding; its arrays were received. NULL = the call has no batch */
    const pi__batch *b;
    const int32_t *n_blocks; /* [PI__MAX_GROUPS] from pi__valid_batch */
    const pi__sent *sent;    /* [n_sent] arrays received with the call */
    int32_t n_sent;
} checker;

/* Returns true if an array of at least n values was received for the host pointer at byte offset `at` of the
 * arguments. */
static bool came(const checker *c, size_t at, int64_t n)
{
    for (int32_t i = 0; i < c->n_sent; i++)
        if (c->sent[i].at == at) return n >= 0 && (uint64_t) n <= c->sent[i].bytes / sizeof(int32_t);
    return false;
}
#define CAME(c, a, field, n) came(c, (size_t) ((const char *) &(a)->field - (const char *) (a)), n)

/* Returns true if p has n floats of the model in memory of this rank. optional: NULL is valid too. */
static bool valid_vector(const checker *c, const void *p, int64_t n, bool optional)
{
    if (!p) return optional;
    return within(n, 0, (int64_t) 1 << 40) && pi__valid_memory(c->k, p, (size_t) n * sizeof(float));
}

/* Checks a matrix, and that its columns fit in scratch. w is a copy in this process, so its bools can be changed. */
static bool valid_matrix(const checker *c, const pi__weight *w)
{
    return w && pi__valid_weight(c->k, (pi__weight *) (uintptr_t) w) && w->n_in <= c->lim->max_n_in;
}

/* Checks a matrix, and that a row of its results fits in the stage. */
static bool valid_product(const checker *c, const pi__weight *w)
{
    return valid_matrix(c, w) && w->n_out <= c->lim->max_n_out;
}

/* Checks a layer's cache: all blocks that the batch names lie in one region. needs_table: the op reads the block
 * table. */
static bool valid_cache(const checker *c, const pi__kv_layer *layer, bool needs_table)
{
    pi__kv_layer *kv = (pi__kv_layer *) (uintptr_t) layer;
    size_t bytes = 0, end;
    if (!kv || !c->b || !within(kv->group, 0, c->b->n_groups - 1)) return false;
    pi__fix_flag(&kv->f32);
    const pi__kv_batch *b = &c->b->kv[kv->group];
    if (b->block_size < 1 || (needs_table && !b->block_table)) return false;
    if (!kv->ratio)
        bytes = c->t->dev.kv_bytes(&c->t->be, kv->type_k, kv->type_v, kv->n_head_kv, kv->head_dim, b->block_size);
    else if (kv->ratio > 0 && b->block_size % kv->ratio == 0 && c->t->opt.row_bytes)
        bytes = c->t->opt.row_bytes(&c->t->be, kv->f32 ? PI__F32 : kv->type_k, kv->head_dim, b->block_size / kv->ratio);
    const int32_t n = c->n_blocks[kv->group];
    if (!bytes || kv->stride > SIZE_MAX / 2) return false;
    if (!n) return pi__valid_memory(c->k, kv->base, bytes);
    return kv->stride >= bytes && pi__mul_ok(kv->stride, (size_t) n - 1, &end) && pi__add_ok(end, bytes, &end) &&
           pi__valid_memory(c->k, kv->base, end);
}

/* Returns true if the block table of sequence q has blocks for positions lo to seq_len - 1. */
static bool valid_blocks(const checker *c, const pi__kv_layer *kv, int32_t q, int64_t lo)
{
    const pi__kv_batch *g = &c->b->kv[kv->group];
    for (int64_t i = (lo > 0 ? lo : 0) / g->block_size; i <= (c->b->seq_len[q] - 1) / g->block_size; i++)
        if (i >= g->table_stride || g->block_table[q * (int64_t) g->table_stride + i] < 0) return false;
    return true;
}

/* Returns true if blocks exist for the last `window` positions up to each token; window 0 = for all positions. */
static bool valid_visible(const checker *c, const pi__kv_layer *kv, int64_t window)
{
    const pi__batch *b = c->b;
    for (int32_t q = 0; q < b->n_seqs; q++) {
        const int32_t t = b->seq_start[q];
        if (t < b->seq_start[q + 1] && !valid_blocks(c, kv, q, window ? b->pos[t] - window + 1 : 0)) return false;
    }
    return true;
}

/* Returns true if blocks exist for the tokens of each window of `ratio` tokens that ends in the step; with overlap also
 * for the window before the first of these. */
static bool valid_closing(const checker *c, const pi__compress *a)
{
    const pi__batch *b = c->b;
    for (int32_t q = 0; q < b->n_seqs; q++) {
        const int32_t t = b->seq_start[q];
        if (t == b->seq_start[q + 1]) continue;
        /* first position after the first window that may end in the step */
        const int64_t closed = (int64_t) b->pos[t] / a->ratio * a->ratio + a->ratio;
        if (closed <= b->seq_len[q] &&
            !valid_blocks(c, a->recent, q, closed - (a->overlap ? 2 : 1) * (int64_t) a->ratio))
            return false;
    }
    return true;
}

/* Returns true if entry i of a pool of states (bytes each, `stride` apart) lies in a region. */
static bool valid_slot(const checker *c, const char *base, size_t stride, size_t bytes, int32_t i)
{
    size_t end;
    return bytes && i >= 0 && stride >= bytes && pi__mul_ok(stride, (size_t) i, &end) && pi__add_ok(end, bytes, &end) &&
           pi__valid_memory(c->k, base, end);
}

static bool valid_state(const checker *c, const pi__state_layer *st)
{
    const pi__limits *lim = c->lim;
    return st && c->t->dev.state_bytes(&c->t->be, st) && st->n_k <= lim->state.n_k && st->n_v <= lim->state.n_v &&
           st->dim <= lim->state.dim && st->dim_v <= lim->state.dim_v && st->n_conv <= lim->state.n_conv &&
           st->n_draft <= lim->state.n_draft && st->ssd == lim->state.ssd && st->kda == lim->state.kda &&
           (!st->n_k || st->n_v % st->n_k == 0);
}

/* Returns true if the state slots and snapshots that the batch names lie in regions. */
static bool valid_states_of_batch(const checker *c, const pi__state_layer *st)
{
    const pi__batch *b = c->b;
    const size_t slot = c->t->dev.state_bytes(&c->t->be, st), snap = c->t->dev.snapshot_bytes(&c->t->be, st);
    if (!b || !b->state_slot) return false;
    for (int32_t q = 0; q < b->n_seqs; q++)
        if (!valid_slot(c, st->base, st->stride, slot, b->state_slot[q])) return false;
    const int32_t n = b->save_start && b->save ? b->save_start[b->n_seqs] : 0;
    for (int32_t i = 0; i < n; i++)
        if (!valid_slot(c, st->snap, st->snap_stride, snap, b->save[i].snap)) return false;
    return true;
}

static bool valid_rows_of(const checker *c, int32_t n_rows) { return within(n_rows, 0, c->lim->max_tokens); }

static bool valid_input(const checker *c, const pi__lin_in *in, int64_t n_in)
{
    if (!within(in->kind, PI__IN_PLAIN, PI__N_IN - 1) || !in->x || (pi__in_gated(in->kind) && !in->x2))
        return false;
    return in->kind != PI__IN_RMSNORM || valid_vector(c, in->w, n_in, false);
}

static bool valid_linear(const checker *c, const pi__linear *a)
{
    if (!within(a->n_lin, 1, PI__MAX_LIN) || !valid_rows_of(c, a->n_rows)) return false;
    for (int32_t i = 0; i < a->n_lin; i++) {
        const pi__weight *w = a->lin[i].w;
        if (!valid_product(c, w) || w->n_in != a->lin[0].w->n_in || !a->lin[i].y || !within(a->lin[i].ldy, 0, MAX_STEP))
            return false;
        if (a->n_rows > 1 && a->lin[i].ldy < w->n_out) return false;
    }
    return valid_input(c, &a->in, a->lin[0].w->n_in);
}

/* Returns true if each adapter run has pairs up to this target in memory of this rank. */
static bool valid_adapters(const checker *c, const pi__lora_rows *rows, int32_t target)
{
    if (!rows || target < 1 || rows->n_runs > c->k->lora.most) return false;
    for (int32_t i = 0; i < rows->n_runs; i++) {
        const pi__lora_pair *pair = rows->run[i].pair;
        if (!pair || (uintptr_t) pair % _Alignof(pi__lora_pair)) return false;
        if (!pi__valid_memory(c->k, pair, ((size_t) target + 1) * sizeof *pair)) return false;
    }
    return true;
}

static bool valid_lora(const checker *c, const pi__lora *a)
{
    if (!within(a->of.n_lin, 1, PI__MAX_LIN) || !valid_rows_of(c, a->of.n_rows)) return false;
    for (int32_t i = 0; i < a->of.n_lin; i++) {
        const pi__lin *l = &a->of.lin[i];
        if (!valid_matrix(c, l->w) || !l->y || !within(l->ldy, 0, MAX_STEP) ||
            !within(a->rank[i], 0, PI__MAX_LORA_RANK))
            return false;
        if (!valid_adapters(c, a->rows, l->w->target)) return false;
    }
    return valid_input(c, &a->of.in, a->of.lin[0].w->n_in);
}

static bool valid_moe(const checker *c, pi__moe *a)
{
    pi__fix_flag(&a->undivided), pi__fix_flag(&a->lora.fused);
    if (!valid_rows_of(c, a->n_rows) || !within(a->n_expert, 1, c->lim->max_expert) ||
        !within(a->n_used, 1, c->lim->max_used))
        return false;
    if (a->n_used > a->n_expert || !within(a->gating, 0, PI__N_GATES - 1)) return false;
    if (!within(a->n_group, 0, PI__MAX_EXPERT_GROUPS) || !within(a->n_group_used, 0, a->n_group)) return false;
    if (a->n_group && (a->n_expert % a->n_group || a->n_group_used * (a->n_expert / a->n_group) < a->n_used))
        return false;
    if (!valid_matrix(c, a->gate) || !valid_matrix(c, a->down) || (a->up && !valid_matrix(c, a->up))) return false;
    if (a->gate->n_mat != a->n_expert || a->down->n_mat != a->n_expert || (a->up && a->up->n_mat != a->n_expert))
        return false;
    const int64_t n_ff = a->down->n_in, n_expert = a->n_expert;
    if (a->gate->n_out != (a->up ? n_ff : 2 * n_ff) ||
        (a->up && (a->up->n_out != n_ff || a->up->n_in != a->gate->n_in)))
        return false;
    if (!within(a->act, PI__IN_GEGLU, PI__N_IN - 1) || !a->y || (!a->logits && !a->table)) return false;
    if (!within(a->ld_down_bias, 0, MAX_STEP) || 2 * n_ff > c->lim->max_ff_exp) return false;
    if (a->down->n_out > c->lim->max_in_exp || a->down->n_out > c->lim->max_n_in) return false;
    if (a->table && (!c->b || c->b->n_tokens != a->n_rows || !pi__valid_memory(c->k, a->table, 4))) return false;
    for (int i = 0; i < PI__N_LORA_MOE; i++) {
        if (!within(a->lora.rank[i], 0, PI__MAX_LORA_RANK)) return false;
        if (a->lora.rows && a->lora.target[i] && !valid_adapters(c, a->lora.rows, a->lora.target[i])) return false;
    }
    return valid_input(c, &a->in, a->gate->n_in) && valid_vector(c, a->gate_bias, n_expert * n_ff, true) &&
           valid_vector(c, a->up_bias, n_expert * n_ff, true) && valid_vector(c, a->bias, n_expert, true) &&
           valid_vector(c, a->down_bias, (n_expert - 1) * a->ld_down_bias + a->down->n_out, true);
}

static bool valid_qkv(const checker *c, pi__qkv *a)
{
    pi__fix_flag(&a->v_norm), pi__fix_flag(&a->norm_last);
    if (!valid_cache(c, a->kv, false) || !within(a->n_head, 1, c->lim->max_n_head)) return false;
    const int64_t dim = a->kv->head_dim, q = a->n_head * dim, kv = a->kv->n_head_kv * dim;
    if (!within(a->q_stride, 0, MAX_STEP) || (a->q_stride && a->q_stride < dim) || !a->q || !a->k != !a->v)
        return false;
    if (!within(a->n_rot, 0, dim) || a->n_rot % 2 ||
        ((a->rope || a->q_rope) && !within(a->pair_stride, 1, dim - a->n_rot / 2)))
        return false;
    return valid_vector(c, a->q_bias, q, true) && valid_vector(c, a->k_bias, kv, true) &&
           valid_vector(c, a->v_bias, kv, true) && valid_vector(c, a->q_norm, dim, true) &&
           valid_vector(c, a->k_norm, dim, true) && (!a->k || c->b->kv[a->kv->group].slot);
}

static bool valid_attention(const checker *c, pi__attention *a)
{
    pi__fix_flag(&a->past), pi__fix_flag(&a->block), pi__fix_flag(&a->spans);
    return valid_cache(c, a->kv, true) && within(a->n_head, 1, c->lim->max_n_head) &&
           a->n_head % a->kv->n_head_kv == 0 && a->q && a->out && within(a->q_stride, 0, MAX_STEP) &&
           (!a->q_stride || a->q_stride >= a->kv->head_dim) && a->window >= 0 && a->first >= 0 && a->ahead >= 0 &&
           valid_vector(c, a->sinks, a->n_head, true) && (int64_t) a->n_head * a->kv->head_dim <= c->lim->max_n_in &&
           within(a->n_rel, a->rel ? 1 : 0, MAX_STEP) && (!a->rel || a->n_rel % 2) &&
           valid_vector(c, a->rel, (int64_t) a->n_head * a->n_rel, true) &&
           (a->sparsity == 0 || c->lim->key_blocks) && valid_visible(c, a->kv, a->window);
}

static bool valid_head_linear(const checker *c, pi__head_linear *a)
{
    pi__fix_flag(&a->large);
    return valid_rows_of(c, a->n_rows) && valid_matrix(c, a->w) && a->w->n_mat <= c->lim->n_head_mat &&
           a->w->n_in <= c->lim->head_in && a->w->n_out <= c->lim->head_out && within(a->x_step, 0, MAX_STEP) &&
           within(a->y_step, 0, MAX_STEP) && within(a->n_tail, 0, MAX_COUNT) && a->x && a->y;
}

static bool valid_centroid_head(const checker *c, const pi__centroid_head *a)
{
    return within(a->n_rows, 0, c->lim->max_rows) && valid_matrix(c, a->centroids) && valid_matrix(c, a->head) &&
           a->centroids->n_out == a->head->n_mat && a->centroids->n_in == a->head->n_in &&
           within(a->n_pick, 1, a->head->n_mat < PI__MAX_PICK ? a->head->n_mat : PI__MAX_PICK) &&
           a->n_pick <= c->lim->max_pick && a->head->n_mat * a->head->n_out <= c->lim->max_order &&
           CAME(c, a, order, a->head->n_mat * a->head->n_out) &&
           valid_ints(a->order, (int32_t) (a->head->n_mat * a->head->n_out), 0, a->head->n_mat * a->head->n_out) &&
           valid_input(c, &a->in, a->head->n_in) && a->scores && a->pick && a->some && a->logits;
}

static bool valid_gdn(const checker *c, pi__gdn *a)
{
    pi__fix_flag(&a->grouped);
    if (!valid_state(c, a->st) || !a->st->n_k || !valid_states_of_batch(c, a->st)) return false;
    const pi__state_layer *st = a->st;
    const int64_t channels = pi__state_channels(st), norm = st->ssd ? (int64_t) st->n_v * pi__state_dim_v(st) : st->dim;
    if (st->ssd ? a->beta || !a->grouped : !a->beta || a->conv_bias || a->skip) return false;
    if (st->kda ? !(a->min_decay <= 0) : a->min_decay != 0) return false;
    return a->qkv && a->z && a->alpha && a->out && valid_vector(c, a->conv, channels * st->n_conv, false) &&
           valid_vector(c, a->conv_bias, channels, true) && valid_vector(c, a->skip, st->n_v, true) &&
           valid_vector(c, a->dt_bias, (int64_t) st->n_v * pi__state_decays(st), false) &&
           valid_vector(c, a->a, st->n_v, false) &&
           valid_vector(c, a->norm, norm, st->ssd);
}

static bool valid_short_conv(const checker *c, pi__short_conv *a)
{
    pi__fix_flag(&a->plain);
    return valid_state(c, a->st) && pi__state_is_conv(a->st) && valid_states_of_batch(c, a->st) && a->x && a->out &&
           (a->plain ? a->st->dim % 16 == 0 : !a->bias) && valid_vector(c, a->bias, a->st->dim, true) &&
           valid_vector(c, a->conv, (int64_t) a->st->dim * a->st->n_conv, false);
}

static bool valid_scan(const checker *c, const pi__scan *a)
{
    if (!valid_state(c, a->st) || !pi__state_is_scan(a->st) || !valid_states_of_batch(c, a->st)) return false;
    const int64_t n = a->st->dim, channels = a->st->n_v;
    return a->x && a->z && a->dt && a->b && a->c && a->out && valid_vector(c, a->norm_b, n, true) &&
           valid_vector(c, a->norm_c, n, true) && valid_vector(c, a->dt_bias, channels, false) &&
           valid_vector(c, a->a, n * channels, false) && valid_vector(c, a->skip, channels, false);
}

static bool valid_state_copy(const checker *c, const pi__state_copy *a)
{
    if (!valid_state(c, a->st) || a->pos < 0) return false;
    return valid_slot(c, a->st->base, a->st->stride, c->t->dev.state_bytes(&c->t->be, a->st), a->slot) &&
           valid_slot(c, a->st->snap, a->st->snap_stride, c->t->dev.snapshot_bytes(&c->t->be, a->st), a->snap);
}

enum { MAX_ROW = 2048 /* values of a cache row */, MAX_ENTRY = 512 /* values of a compressed entry */ };
static bool valid_dim(int32_t dim, int32_t max) { return within(dim, 16, max) && dim % 16 == 0; }

static bool valid_mla_qkv(const checker *c, pi__mla_qkv *a)
{
    pi__fix_flag(&a->q_norm);
    if (!a->rows != !a->row || !a->q || !valid_dim(a->dim, MAX_ROW) || !within(a->n_head, 1, MAX_COUNT)) return false;
    if (!within(a->n_rot, 0, a->dim) || a->n_rot % 2 || (a->n_rot && !a->rope) || !within(a->n_norm, 0, a->dim))
        return false;
    return !a->rows || (valid_cache(c, a->rows, false) && a->rows->ratio && a->rows->head_dim >= a->dim &&
                        c->b->kv[a->rows->group].slot && valid_vector(c, a->norm, a->n_norm, !a->n_norm));
}

static bool valid_compress(const checker *c, pi__compress *a)
{
    pi__fix_flag(&a->overlap);
    const int64_t width = (a->overlap ? 2 : 1) * (int64_t) a->dim;
    return valid_cache(c, a->recent, true) && valid_cache(c, a->entries, false) && valid_dim(a->dim, MAX_ENTRY) &&
           within(a->ratio, 1, 128) && a->entries->ratio == a->ratio && a->entries->head_dim >= a->dim &&
           a->recent->ratio == 1 && a->recent->f32 && a->recent->head_dim >= 2 * width &&
           c->b->kv[a->recent->group].slot && c->b->kv[a->entries->group].slot && a->x && within(a->n_rot, 0, a->dim) &&
           a->n_rot % 2 == 0 && CAME(c, a, freq, a->n_rot / 2) && valid_closing(c, a) &&
           valid_vector(c, a->ape, a->ratio * width, false) && valid_vector(c, a->norm, a->dim, false);
}

static bool valid_indexer(const checker *c, const pi__indexer *a)
{
    return valid_cache(c, a->entries, true) && a->entries->ratio && valid_visible(c, a->entries, 0) &&
           within(a->dim, 16, c->lim->indexer_dim) && a->dim % 16 == 0 && a->entries->head_dim >= a->dim &&
           within(a->n_head, 1, c->lim->indexer_head) && within(a->n_top, 1, MAX_COUNT) && a->q && a->w && a->pick;
}

static bool valid_sparse(const checker *c, const pi__sparse *a)
{
    if (!valid_cache(c, a->rows, true) || !a->rows->ratio ||
        (a->entries && (!valid_cache(c, a->entries, true) || !a->entries->ratio)))
        return false;
    if (!valid_visible(c, a->rows, a->window) || (a->entries && !valid_visible(c, a->entries, 0))) return false;
    return valid_dim(a->dim, MAX_ROW) && within(a->dim_v, 16, a->dim) && a->dim_v % 16 == 0 &&
           a->rows->head_dim >= a->dim && (!a->entries || a->entries->head_dim >= a->dim) &&
           within(a->n_head, 1, MAX_COUNT) && a->window >= !a->entries && a->first >= 0 &&
           within(a->n_top, 0, MAX_COUNT) &&
           within(a->n_rot, 0, a->dim) && a->n_rot % 2 == 0 && (a->rope || !a->n_rot) && a->q && a->out &&
           valid_vector(c, a->sinks, a->n_head, true);
}

static bool valid_block_conv(const checker *c, const pi__block_conv *a)
{
    return c->b && within(a->n, 1, MAX_COUNT) && within(a->group, 1, a->n) && a->n % a->group == 0 &&
           within(a->n_tap, 1, 64) && a->x && a->own && a->out && valid_vector(c, a->base, a->n_tap * a->n, false);
}

static bool valid_streams(const checker *c, const pi__hyper *a, bool pre)
{
    const int64_t n_mix = a->n_iter ? PI__HYPER_MIX : PI__STREAMS;
    if (!valid_rows_of(c, a->n_rows) || !within(a->n, 1, c->lim->max_stream) || !within(a->n_iter, 0, 1000) || !a->x ||
        !a->y)
        return false;
    if (!pre) return a->coef;
    return a->mix && (a->coef || !a->n_iter) && valid_vector(c, a->scale, a->n_iter ? 3 : 1, false) &&
           valid_vector(c, a->base, n_mix, false);
}

/* Checks n_rows indices of rows of a model's table, or of activations: the array was received with the call, and each
 * index is at least lo. */
static bool valid_row_list(const checker *c, size_t at, const int32_t *row, int32_t n_rows, int32_t lo)
{
    return valid_rows_of(c, n_rows) && came(c, at, n_rows) && valid_ints(row, n_rows, lo, MAX_COUNT);
}

static bool valid_add_rows(const checker *c, const pi__add_rows *a)
{
    if (!valid_row_list(c, offsetof(pi__add_rows, row), a->row, a->n_rows, 0) || !within(a->n, 1, MAX_COUNT) || !a->x)
        return false;
    for (int32_t i = 0; i < a->n_rows; i++)
        if (!valid_vector(c, a->table, (a->row[i] + (int64_t) 1) * a->n, false)) return false;
    return true;
}

/* Checks op embed or lora_embed: the batch's token ids are rows of the embedding. */
static bool valid_embed(const checker *c, const pi__weight *w, const float *out)
{
    if (!c->b || !out || !valid_matrix(c, w)) return false;
    if (pi__tensor_is_cut(c->t, w) && c->t->embd_rows[c->t->kind] != w->n_out / c->t->n) return false;
    return valid_ints(c->b->token, c->b->n_tokens, 0, w->n_out);
}

/* Checks the shape of an op that needs no scratch memory, so that its rows may exceed a step's tokens. */
static bool valid_elements(int32_t n_rows, int64_t n, const void *x, const void *y)
{
    return within(n_rows, 0, MAX_COUNT) && within(n, 1, MAX_COUNT) && x && y;
}

/* Checks all fields of the call's arguments, and changes bools to 0 or 1. Then pi__operands_of can be called. */
static bool valid_fields(const checker *c, pi__op_record *r)
{
    switch (r->id) {
    case PI__OP_add_norm: {
        const pi__add_norm *a = &r->args.add_norm;
        return valid_elements(a->n_rows, a->n, a->x, a->y) && valid_vector(c, a->w, a->n, true) &&
               valid_vector(c, a->bias, a->n, true);
    }
    case PI__OP_norm: {
        const pi__norm *a = &r->args.norm;
        return valid_elements(a->n_rows, a->n, a->x, a->out) && valid_vector(c, a->w, a->n, false);
    }
    case PI__OP_layer_norm: {
        const pi__layer_norm *a = &r->args.layer_norm;
        return valid_elements(a->n_rows, a->n, a->x, a->x) && valid_vector(c, a->b, a->n, true) &&
               valid_vector(c, a->w, a->n, false) && valid_vector(c, a->shift, a->n, true);
    }
    case PI__OP_activate: {
        const pi__activate *a = &r->args.activate;
        return valid_elements(a->n_rows, a->n, a->x, a->x) && valid_vector(c, a->b, a->n, true) &&
               within(a->kind, 0, PI__N_ACTS - 1);
    }
    case PI__OP_scale: {
        const pi__scale *a = &r->args.scale;
        return valid_elements(a->n_rows, a->n, a->x, a->x) && valid_vector(c, a->w, a->n, true) && a->lo <= a->hi;
    }
    case PI__OP_add_gated: {
        const pi__add_gated *a = &r->args.add_gated;
        return valid_elements(a->n_rows, a->n, a->x, a->y) && a->gate;
    }
    case PI__OP_gate_heads: {
        pi__gate_heads *a = &r->args.gate_heads;
        pi__fix_flag(&a->softplus);
        return valid_elements(a->n_rows, a->n, a->x, a->gate) && within(a->n_head, 1, MAX_COUNT) &&
               a->n <= MAX_COUNT / a->n_head && within(a->ldg, a->n_head, MAX_STEP);
    }
    case PI__OP_softcap:
        return valid_elements(r->args.softcap.n_rows, r->args.softcap.n, r->args.softcap.x, r->args.softcap.x);
    case PI__OP_copy_2d: {
        const pi__copy_2d *a = &r->args.copy_2d;
        return valid_elements(a->n_rows, a->n, a->x, a->y) && within(a->n_shards, 1, 64) &&
               within(a->step, 0, MAX_STEP) && within(a->ldx, 0, MAX_STEP) && within(a->ldy, 0, MAX_STEP);
    }
    case PI__OP_rope: {
        pi__rope *a = &r->args.rope;
        pi__fix_flag(&a->interleaved);
        return c->b && a->table && CAME(c, a, freq, a->n_freq) && a->temp_len >= 0 &&
               within(a->section[0], 0, MAX_COUNT) && within(a->section[1], 0, MAX_COUNT) &&
               within(a->section[2], 0, MAX_COUNT);
    }
    case PI__OP_gather_rows: {
        const pi__gather_rows *a = &r->args.gather_rows;
        return valid_row_list(c, offsetof(pi__gather_rows, row), a->row, a->n_rows, -1) &&
               valid_elements(a->n_rows, a->n, a->x, a->out);
    }
    case PI__OP_add_rows: return valid_add_rows(c, &r->args.add_rows);
    case PI__OP_place_rows: {
        pi__place_rows *a = &r->args.place_rows;
        pi__fix_flag(&a->add);
        return valid_row_list(c, offsetof(pi__place_rows, row), a->row, a->n_rows, -1) &&
               valid_elements(a->n_rows, a->n, a->x, a->rows) && within(a->ldr, a->n, MAX_STEP);
    }
    case PI__OP_hyper_pre: return valid_streams(c, &r->args.hyper_pre, true);
    case PI__OP_hyper_post: return valid_streams(c, &r->args.hyper_post, false);
    case PI__OP_block_conv: return valid_block_conv(c, &r->args.block_conv);
    case PI__OP_embed: return valid_embed(c, r->args.embed.w, r->args.embed.out);
    case PI__OP_lora_embed: {
        const pi__lora_embed *a = &r->args.lora_embed;
        return valid_embed(c, a->w, a->out) && within(a->rank, 0, PI__MAX_LORA_RANK) &&
               valid_adapters(c, a->rows, a->target);
    }
    case PI__OP_linear: return valid_linear(c, &r->args.linear);
    case PI__OP_lora: return valid_lora(c, &r->args.lora);
    case PI__OP_qkv: return valid_qkv(c, &r->args.qkv);
    case PI__OP_attention: return valid_attention(c, &r->args.attention);
    case PI__OP_moe: return valid_moe(c, &r->args.moe);
    case PI__OP_head_linear: return valid_head_linear(c, &r->args.head_linear);
    case PI__OP_centroid_head: return valid_centroid_head(c, &r->args.centroid_head);
    case PI__OP_gdn: return valid_gdn(c, &r->args.gdn);
    case PI__OP_short_conv: return valid_short_conv(c, &r->args.short_conv);
    case PI__OP_scan: return valid_scan(c, &r->args.scan);
    case PI__OP_state_save: return valid_state_copy(c, &r->args.state_save);
    case PI__OP_state_load: return valid_state_copy(c, &r->args.state_load);
    case PI__OP_mla_qkv: return valid_mla_qkv(c, &r->args.mla_qkv);
    case PI__OP_compress: return valid_compress(c, &r->args.compress);
    case PI__OP_indexer: return valid_indexer(c, &r->args.indexer);
    case PI__OP_sparse: return valid_sparse(c, &r->args.sparse);
    case PI__OP_topk: return within(r->args.topk.n_rows, 0, c->lim->max_rows) && within(r->args.topk.n, 0, MAX_COUNT);
    default: return false; /* optional ops are not accepted from other processes */
    }
}

/* Returns true if the op's activations and vectors lie in regions of this rank. */
static bool valid_operands(const checker *c, const pi__op_record *r)
{
    pi__operands list;
    pi__operands_of(r->id, r->b, &r->args, &list);
    for (int32_t i = 0; i < list.n; i++) {
        const pi__operand *o = &list.op[i];
        if (o->kind > PI__VECTOR) continue;
        if (!within(o->n, 0, MAX_COUNT) || !within(o->ld, 0, MAX_STEP) || !within(o->width, 0, MAX_STEP)) return false;
        if (!pi__valid_memory(c->k, pi__operand_get(&r->args, o), pi__operand_bytes(o))) return false;
    }
    return true;
}

bool pi__valid_call(const pi__tensor *t, pi__op_record *r, const pi__sent *sent, int32_t n_sent,
                    const int32_t n_blocks[PI__MAX_GROUPS])
{
    const pi__batch *b = !r->b ? NULL : r->b == &t->b ? t->given : t->given->logits_batch;
    const checker c = {t, &t->rank[t->first], &t->lim, b, n_blocks, sent, n_sent};
    return pi__op_has(&t->be, r->id) && valid_fields(&c, r) && valid_operands(&c, r);
}
