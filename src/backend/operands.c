/* The table of operands: one function per op, in the order of PI__OPS (see operands.h).
 *
 * Each function lists the operands of the op's struct `a` with READ(field, n_rows, ld, width) and similar macros:
 * a->field points to the values; ld is the distance between rows, and width the number of used values per row, both in
 * 4-byte values. Operands that are NULL are left out. */
#include "backend/operands.h"

#include <string.h>

#include "base/hash.h"
#include "formats/formats.h"

int32_t pi__lora_level_end(const pi__lora_rows *rows, int32_t r)
{
    const int32_t level = rows->run[r].level;
    while (r < rows->n_runs && rows->run[r].level == level) r++;
    return r;
}

uint64_t pi__lora_ranks(const pi__lora_rows *rows)
{
    enum { SOME = 64 };
    const int32_t n_targets = rows->run[0].rank[0];
    int32_t most[SOME];
    pi__hasher h;
    pi__hash_begin(&h, PI__HASH_LORA_RANKS);
    for (int32_t first = 1, n; first <= n_targets; first += n) {
        n = n_targets - first + 1 < SOME ? n_targets - first + 1 : SOME;
        memset(most, 0, sizeof most);
        for (int32_t r = 0; r < rows->n_runs; r++)
            for (int32_t i = 0; i < n; i++)
                if (rows->run[r].rank[first + i] > most[i]) most[i] = rows->run[r].rank[first + i];
        pi__hash_field(&h, most, (size_t) n * sizeof *most);
    }
    const pi__digest d = pi__hash_end(&h);
    return pi__digest_word(&d);
}

const float *pi__lora_scale(const pi__weight *w) { return w->type == PI__NVFP4 ? NULL : w->scale; }

static void add(pi__operands *o, const void *args, pi__operand op)
{
    if (o->n < PI__MAX_OPERANDS && pi__operand_get(args, &op)) o->op[o->n++] = op;
}

#define ACT(kind, f, n, ld, width)                                                                                     \
    add(o, a, (pi__operand) {#f, (size_t) ((const char *) &a->f - (const char *) a), kind, n, ld, width})
#define ROWS() (o->rows_at = (int32_t) ((const char *) &a->n_rows - (const char *) a))
#define READ(f, n, ld, width) ACT(PI__READ, f, n, ld, width)
#define WRITE(f, n, ld, width) ACT(PI__WRITE, f, n, ld, width)
#define UPDATE(f, n, ld, width) ACT(PI__UPDATE, f, n, ld, width)
#define SCRATCH(f, n, width) ACT(PI__SCRATCH, f, n, width, width)
#define VECTOR(f) ACT(PI__VECTOR, f, 0, 0, 0)
#define WEIGHT(f) ACT(PI__WEIGHT, f, 0, 0, 0)
#define CACHE(f) ACT(PI__CACHE, f, 0, 0, 0)
#define STATE(f) ACT(PI__STATE, f, 0, 0, 0)
#define TOKENS(f, n) ACT(PI__TOKENS, f, 1, 0, n)
#define HOST(f, n) ACT(PI__HOST, f, 1, 0, n)
#define ADAPTERS(f) ACT(PI__ADAPTERS, f, 0, 0, 0)

/* Lists the activations and the norm weight of a linear op's input. */
#define INPUT(in, n_rows, n_in)                                                                                        \
    do {                                                                                                               \
        READ(in.x, n_rows, a->in.ldx, n_in);                                                                           \
        if (pi__in_gated(a->in.kind)) READ(in.x2, n_rows, a->in.ldx2, n_in);                                           \
        VECTOR(in.w);                                                                                                  \
    } while (0)

/* Returns the number of floats from the first value of head 0 to the last value of head n_head - 1. stride: floats
 * between heads; 0 = dim. */
static int64_t heads(int32_t n_head, int64_t stride, int64_t dim)
{
    return (n_head - 1) * (stride ? stride : dim) + dim;
}

/* Returns the number of rows of x that a gather reads: the largest index in row, plus 1. */
static int64_t most_of(const int32_t *row, int32_t n)
{
    int32_t most = -1;
    for (int32_t i = 0; row && i < n; i++) /* row is NULL if the device had no memory for the batch's copy */
        most = row[i] > most ? row[i] : most;
    return most + 1;
}

static void embed(const pi__embed *a, const pi__batch *b, pi__operands *o)
{
    o->placement = a->w->placement;
    WEIGHT(w);
    WRITE(out, b->n_tokens, a->w->n_in, a->w->n_in);
}

static void linear(const pi__linear *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    o->placement = a->lin[0].w->placement;
    INPUT(in, a->n_rows, a->lin[0].w->n_in);
    for (int32_t i = 0; i < a->n_lin; i++) {
        WEIGHT(lin[i].w);
        WRITE(lin[i].y, a->n_rows, a->lin[i].ldy, a->lin[i].w->n_out);
    }
}

/* Returns the number of floats of a row that op lora uses: n, or for per-head matrices from the first head to the
 * end of the last. */
static int64_t lora_width(const pi__weight *w, int64_t ld, int64_t n)
{
    return w->n_mat > 1 ? (w->n_mat - 1) * (ld / w->n_mat) + n : n;
}

static void lora(const pi__lora *a, const pi__batch *b, pi__operands *o)
{
    const pi__weight *first = a->of.lin[0].w;
    (void) b;
    o->rows_at = (int32_t) ((const char *) &a->of.n_rows - (const char *) a);
    o->placement = first->placement;
    READ(of.in.x, a->of.n_rows, a->of.in.ldx, lora_width(first, a->of.in.ldx, first->n_in));
    if (pi__in_gated(a->of.in.kind)) READ(of.in.x2, a->of.n_rows, a->of.in.ldx2, first->n_in);
    VECTOR(of.in.w);
    for (int32_t i = 0; i < a->of.n_lin; i++) {
        WEIGHT(of.lin[i].w);
        UPDATE(of.lin[i].y, a->of.n_rows, a->of.lin[i].ldy,
               lora_width(a->of.lin[i].w, a->of.lin[i].ldy, a->of.lin[i].w->n_out));
    }
    ADAPTERS(rows);
}

static void lora_embed(const pi__lora_embed *a, const pi__batch *b, pi__operands *o)
{
    o->placement = a->w->placement;
    WEIGHT(w);
    UPDATE(out, b->n_tokens, a->w->n_in, a->w->n_in);
    ADAPTERS(rows);
}

static void add_norm(const pi__add_norm *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    READ(y, a->n_rows, a->n, a->n);
    VECTOR(w);
    VECTOR(bias);
    UPDATE(x, a->n_rows, a->n, a->n);
}

static void norm(const pi__norm *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    READ(x, a->n_rows, a->n, a->n);
    VECTOR(w);
    WRITE(out, a->n_rows, a->ldo, a->n);
}

static void layer_norm(const pi__layer_norm *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    READ(y, a->n_rows, a->n, a->n);
    VECTOR(b);
    VECTOR(w);
    VECTOR(shift);
    UPDATE(x, a->n_rows, a->n, a->n);
}

static void activate(const pi__activate *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    VECTOR(b);
    UPDATE(x, a->n_rows, a->n, a->n);
}

static void scale(const pi__scale *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    READ(y, a->n_rows, a->n, a->n);
    VECTOR(w);
    UPDATE(x, a->n_rows, a->n, a->n);
}

static void add_gated(const pi__add_gated *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    READ(x, a->n_rows, a->n, a->n);
    READ(gate, a->n_rows, a->ldg, 1);
    UPDATE(y, a->n_rows, a->n, a->n);
}

static void gate_heads(const pi__gate_heads *a, const pi__batch *b, pi__operands *o)
{
    const int64_t width = a->n_head * a->n;
    (void) b;
    ROWS();
    READ(gate, a->n_rows, a->ldg, a->n_head);
    UPDATE(x, a->n_rows, width, width);
}

static void block_conv(const pi__block_conv *a, const pi__batch *b, pi__operands *o)
{
    const int64_t n = b->n_tokens;
    READ(x, n, a->n, a->n);
    VECTOR(base);
    READ(own, n, a->ldo, a->n_tap * (a->n / a->group));
    WRITE(out, n, a->n, a->n);
}

/* Ops on either backend of a split may read the table. So `everywhere` is set: the table is copied to the CPU
 * immediately, and no later op has to wait for the copy. */
static void rope(const pi__rope *a, const pi__batch *b, pi__operands *o)
{
    o->everywhere = true;
    HOST(freq, a->n_freq);
    WRITE(table, b->n_tokens, 2 * a->n_freq, 2 * a->n_freq);
}

static void qkv(const pi__qkv *a, const pi__batch *b, pi__operands *o)
{
    const int64_t n = b->n_tokens, width = (int64_t) a->kv->n_head_kv * a->kv->head_dim;
    o->placement = a->kv->placement;
    CACHE(kv);
    UPDATE(q, n, a->ldq, heads(a->n_head, a->q_stride, a->kv->head_dim));
    READ(k, n, a->ldk, width);
    READ(v, n, a->ldv, width);
    VECTOR(q_bias);
    VECTOR(k_bias);
    VECTOR(v_bias);
    VECTOR(q_norm);
    VECTOR(k_norm);
    READ(rope, n, a->n_rot, a->n_rot);
    READ(q_rope, n, a->n_rot, a->n_rot);
}

static void attention(const pi__attention *a, const pi__batch *b, pi__operands *o)
{
    const int64_t n = b->n_tokens, width = heads(a->n_head, a->q_stride, a->kv->head_dim);
    o->placement = a->kv->placement;
    CACHE(kv);
    READ(q, n, a->ldq, width);
    READ(gate, n, a->ldq, width);
    VECTOR(sinks);
    VECTOR(rel);
    WRITE(out, n, a->ldo, (int64_t) a->n_head * a->kv->head_dim);
}

/* A layer's experts lie on one backend (model/placement.c), maybe another one than the rest of the layer. The op is a
 * side op: the following op runs with the rest of the layer, where its other inputs are. */
static void moe(const pi__moe *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    o->placement = a->down->placement;
    o->guest = true;
    INPUT(in, a->n_rows, a->gate->n_in);
    READ(logits, a->n_rows, a->ldl, a->n_expert);
    WEIGHT(gate);
    WEIGHT(up);
    WEIGHT(down);
    VECTOR(gate_bias);
    VECTOR(up_bias);
    VECTOR(down_bias);
    VECTOR(bias);
    VECTOR(table);
    ADAPTERS(lora.rows);
    WRITE(y, a->n_rows, a->ldy, a->down->n_out);
}

static void head_linear(const pi__head_linear *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    const int64_t n = a->w->n_mat - 1;
    ROWS();
    o->placement = a->w->placement;
    WEIGHT(w);
    READ(x, a->n_rows, a->ldx, n * a->x_step + a->w->n_in + a->n_tail);
    WRITE(y, a->n_rows, a->ldy, n * a->y_step + a->w->n_out + a->n_tail);
}

static void gather_rows(const pi__gather_rows *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    TOKENS(row, a->n_rows);
    READ(x, most_of(a->row, a->n_rows), a->n, a->n);
    WRITE(out, a->n_rows, a->n, a->n);
}

static void add_rows(const pi__add_rows *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    TOKENS(row, a->n_rows);
    VECTOR(table);
    UPDATE(x, a->n_rows, a->n, a->n);
}

static void place_rows(const pi__place_rows *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    TOKENS(row, a->n_rows);
    READ(rows, most_of(a->row, a->n_rows), a->ldr, a->n);
    UPDATE(x, a->n_rows, a->n, a->n);
}

static void softcap(const pi__softcap *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    UPDATE(x, a->n_rows, a->n, a->n);
}

static void centroid_head(const pi__centroid_head *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    const int64_t n_mat = a->head->n_mat, n_vocab = n_mat * a->head->n_out;
    o->placement = a->head->placement;
    INPUT(in, a->n_rows, a->head->n_in);
    WEIGHT(centroids);
    WEIGHT(head);
    HOST(order, n_vocab);
    SCRATCH(scores, a->n_rows, n_mat);
    SCRATCH(pick, a->n_rows, a->n_pick);
    SCRATCH(some, a->n_rows, a->n_pick * a->head->n_out);
    WRITE(logits, a->n_rows, n_vocab, n_vocab);
}

static void gdn(const pi__gdn *a, const pi__batch *b, pi__operands *o)
{
    const int64_t n = b->n_tokens, values = (int64_t) a->st->n_v * pi__state_dim_v(a->st);
    o->placement = a->st->placement;
    STATE(st);
    READ(qkv, n, a->ld_qkv, pi__state_channels(a->st));
    READ(z, n, a->ld_z, values);
    READ(alpha, n, a->ld_ab, (int64_t) a->st->n_v * pi__state_decays(a->st));
    READ(beta, n, a->ld_ab, a->st->n_v);
    VECTOR(conv);
    VECTOR(conv_bias);
    VECTOR(dt_bias);
    VECTOR(a);
    VECTOR(skip);
    VECTOR(norm);
    WRITE(out, n, a->ldo, values);
}

static void short_conv(const pi__short_conv *a, const pi__batch *b, pi__operands *o)
{
    o->placement = a->st->placement;
    STATE(st);
    READ(x, b->n_tokens, a->ldx, (a->plain ? 1 : 3) * (int64_t) a->st->dim);
    VECTOR(conv);
    VECTOR(bias);
    WRITE(out, b->n_tokens, a->ldo, a->st->dim);
}

static void scan(const pi__scan *a, const pi__batch *b, pi__operands *o)
{
    const int64_t n = b->n_tokens, channels = a->st->n_v;
    o->placement = a->st->placement;
    STATE(st);
    READ(x, n, a->ldx, channels);
    READ(z, n, a->ldz, channels);
    READ(dt, n, a->ld_dt, channels);
    READ(b, n, a->ld_bc, a->st->dim);
    READ(c, n, a->ld_bc, a->st->dim);
    VECTOR(norm_b);
    VECTOR(norm_c);
    VECTOR(dt_bias);
    VECTOR(a);
    VECTOR(skip);
    WRITE(out, n, a->ldo, channels);
}

static void state_copy(const pi__state_copy *a, pi__operands *o)
{
    o->placement = a->st->placement;
    o->guest = true;
    STATE(st);
}
static void state_save(const pi__state_copy *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    state_copy(a, o);
}
static void state_load(const pi__state_copy *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    state_copy(a, o);
}

static void copy_2d(const pi__copy_2d *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    READ(x, 1, 0, (a->n_shards - 1) * a->step + (a->n_rows - 1) * a->ldx + a->n);
    WRITE(y, a->n_rows, a->ldy, a->n_shards * a->n);
}

static void hyper_pre(const pi__hyper *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    const int64_t n_mix = a->n_iter ? PI__HYPER_MIX : PI__STREAMS;
    READ(x, a->n_rows, PI__STREAMS * a->n, PI__STREAMS * a->n);
    READ(mix, a->n_rows, n_mix, n_mix);
    VECTOR(scale);
    VECTOR(base);
    if (a->n_iter) WRITE(coef, a->n_rows, PI__HYPER_COEF, PI__HYPER_COEF);
    WRITE(y, a->n_rows, a->n, a->n);
}

static void hyper_post(const pi__hyper *a, const pi__batch *b, pi__operands *o)
{
    (void) b;
    ROWS();
    UPDATE(x, a->n_rows, PI__STREAMS * a->n, PI__STREAMS * a->n);
    READ(coef, a->n_rows, PI__HYPER_COEF, PI__HYPER_COEF);
    READ(y, a->n_rows, a->n, a->n);
}

/* If `rows` is NULL the op writes no cache, and runs where the last op ran. */
static void mla_qkv(const pi__mla_qkv *a, const pi__batch *b, pi__operands *o)
{
    const int64_t n = b->n_tokens, width = (int64_t) a->n_head * a->dim;
    if (a->rows) o->placement = a->rows->placement;
    CACHE(rows);
    UPDATE(q, n, a->ldq, width);
    READ(row, n, a->ldr, a->dim);
    VECTOR(norm);
    READ(rope, n, a->n_rot, a->n_rot);
}

static void compress(const pi__compress *a, const pi__batch *b, pi__operands *o)
{
    o->placement = a->recent->placement;
    CACHE(recent);
    CACHE(entries);
    READ(x, b->n_tokens, a->ldx, 2 * (a->overlap ? 2 : 1) * (int64_t) a->dim);
    VECTOR(ape);
    VECTOR(norm);
    HOST(freq, a->n_rot / 2);
}

static void indexer(const pi__indexer *a, const pi__batch *b, pi__operands *o)
{
    const int64_t n = b->n_tokens;
    o->placement = a->entries->placement;
    CACHE(entries);
    READ(q, n, a->ldq, (int64_t) a->n_head * a->dim);
    READ(w, n, a->ldw, a->n_head);
    WRITE(pick, n, a->n_top, a->n_top);
}

static void sparse(const pi__sparse *a, const pi__batch *b, pi__operands *o)
{
    const int64_t n = b->n_tokens, width = (int64_t) a->n_head * a->dim;
    o->placement = a->rows->placement;
    CACHE(rows);
    CACHE(entries);
    READ(q, n, a->ldq, width);
    READ(pick, n, a->n_top, a->n_top);
    VECTOR(sinks);
    READ(rope, n, a->n_rot, a->n_rot);
    WRITE(out, n, a->ldo, width);
}

static void topk(const pi__topk *a, const pi__batch *b, pi__operands *o)
{
    ROWS();
    o->uncaptured = !b || a->request != b->top.request;
    o->first_rank = true;
    UPDATE(x, a->n_rows, a->n, a->n);
    HOST(skip, 0); /* width 0: sizes are not needed, because only the first rank reads these arrays */
    HOST(request, 0);
    HOST(out, 0);
}

/* -------------------------------------------------------------------------------------------------------- by number */

void pi__operands_of(pi__op_id id, const pi__batch *b, const void *args, pi__operands *out)
{
    out->placement = PI__AT_LAST;
    out->guest = out->everywhere = out->uncaptured = out->first_rank = false;
    out->rows_at = -1;
    out->n = 0;
#define CASE(name, type) case PI__OP_##name: name(args, b, out); break;
    switch (id) {
        PI__OPS(CASE)
    case PI__N_OPS: break;
    }
#undef CASE
}

const char *pi__op_name(pi__op_id id)
{
#define NAME(name, type) #name,
    static const char *const names[] = {PI__OPS(NAME)};
#undef NAME
    return names[id];
}

size_t pi__op_size(pi__op_id id)
{
#define SIZE(name, type) sizeof(type),
    static const size_t sizes[] = {PI__OPS(SIZE)};
#undef SIZE
    return sizes[id];
}

void pi__op_run(pi__backend *be, pi__op_id id, const pi__batch *b, const void *args)
{
#define CASE(name, type) case PI__OP_##name: pi__op_##name(be, b, args); break;
    switch (id) {
        PI__OPS(CASE)
    case PI__N_OPS: break;
    }
#undef CASE
}

bool pi__op_has(const pi__backend *be, pi__op_id id)
{
#define CASE(name, type) case PI__OP_##name: return be->ops->name != NULL;
    switch (id) {
        PI__OPS(CASE)
    case PI__N_OPS: break;
    }
#undef CASE
    return false;
}
