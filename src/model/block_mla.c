/* Multi-head latent attention (MLA) of DeepSeek V2 (arXiv 2405.04434): the cache stores one row per token for all
 * heads.
 *
 *     row     [norm of the latent: rank | rotated part of the key: n_rot]
 *     key     of head h:  K[h] latent | rotated part         value of head h:  V[h] latent
 *
 * K[h] and V[h] are never multiplied by cached rows (weight absorption). Instead, the non-rotated part of a query is
 * multiplied by K[h]^T (k_b). The query is then as long as a row, and their dot product is the score. The
 * softmax-weighted sum of latents is multiplied by V[h] (v_b), once per head:
 *
 *     q . K c = (K^T q) . c             sum p_i V c_i = V sum p_i c_i
 *
 * So attention is multi-query (op sparse over all rows): all heads have the same keys, and the first `rank` values
 * of a key are its value. */
#include <math.h>

#include "model/adapter.h"
#include "model/blocks.h"

enum { MOST_ROW = 576 /* max values of a row: all these models use it, and device kernels support no more */ };

static int64_t widest(int64_t a, int64_t b) { return a > b ? a : b; }

/* row_width returns the values of a cache row; q_width those of a row of queries before k_b; low_width those of ff. */
static int32_t row_width(const pi__mla *a) { return a->rank + a->n_rot; }
static int64_t q_width(const pi__mla *a) { return (int64_t) a->n_head * (a->n_key + a->n_rot); }
static int64_t low_width(const pi__mla *a) { return a->rank_q + row_width(a); }

int64_t pi__mla_width(const pi__mla *a) { return (int64_t) a->n_head * row_width(a); }

/* Sets k_row and v_row for older files, which stack the keys and values of each head in one matrix (attn_kv_b). */
static void read_order(pi__model *m, pi__mla *a)
{
    const int32_t each = a->n_key + a->n_value;
    if (!pi__model_ok(m) || pi__has_tensor(m, "attn_k_b.weight", 0) || !pi__has_tensor(m, "attn_kv_b.weight", 0))
        return;
    int32_t *k = pi__model_calloc(m, (size_t) (a->n_head * a->n_key), sizeof *k, "the order of rows");
    int32_t *v = pi__model_calloc(m, (size_t) (a->n_head * a->n_value), sizeof *v, "the order of rows");
    if (!k || !v) return;
    for (int32_t h = 0; h < a->n_head; h++) {
        for (int32_t i = 0; i < a->n_key; i++) k[h * a->n_key + i] = h * each + i;
        for (int32_t i = 0; i < a->n_value; i++) v[h * a->n_value + i] = h * each + a->n_key + i;
    }
    a->k_row = k;
    a->v_row = v;
}

void pi__mla_read(pi__model *m, pi__mla *a)
{
    const char *arch = m->arch->name;
    a->n_head = pi__hp_u32(m, "attention.head_count", 1, PI__MAX_HEADS);
    a->rank = pi__hp_u32(m, "attention.kv_lora_rank", 16, MOST_ROW);
    a->rank_q = pi__hp_u32_or(m, "attention.q_lora_rank", 0, 0, PI__MAX_EMBD);
    a->n_rot = pi__hp_u32(m, "rope.dimension_count", 2, PI__MAX_HEAD_DIM);
    /* key_length is the row size in files that have the _mla keys; else it is the head size. */
    const int32_t own = pi__hp_u32_or(m, "attention.key_length", 0, 0, PI__MAX_HEAD_DIM);
    const int32_t own_value = pi__hp_u32_or(m, "attention.value_length", 0, 0, PI__MAX_HEAD_DIM);
    const int32_t key = pi__hp_u32_or(m, "attention.key_length_mla", (uint32_t) own, 0, PI__MAX_HEAD_DIM);
    a->n_value = pi__hp_u32_or(m, "attention.value_length_mla", (uint32_t) own_value, 0, PI__MAX_HEAD_DIM);
    a->n_key = key - a->n_rot;
    a->eps = pi__hp_f32(m, "attention.layer_norm_rms_epsilon");
    a->q_scale = 1.0f / sqrtf((float) key);
    if (a->n_key < 16 || a->n_key % 16 || a->n_value < 16 || a->n_value % 16 || a->rank % 16 || a->n_rot % 16)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.attention: key_length_mla %d with rope.dimension_count %d, "
                         "value_length_mla %d and kv_lora_rank %d: only multiples of 16 are supported",
                         arch, key, a->n_rot,
                         a->n_value, a->rank);
    if (row_width(a) > MOST_ROW)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "metadata %s.attention.kv_lora_rank %d with rope.dimension_count %d: rows of more than "
                         "%d values are not supported",
                         arch, a->rank, a->n_rot, MOST_ROW);
    if (q_width(a) > PI__MAX_EMBD || pi__mla_width(a) > PI__MAX_EMBD || (int64_t) a->n_head * a->n_value > PI__MAX_EMBD)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.head_count: %d heads of %d values are more than %d",
                         arch, a->n_head, row_width(a), PI__MAX_EMBD);
    read_order(m, a);
}

static void want_heads(pi__model *m, pi__mla *a, int32_t layer)
{
    static const char both[] = "attn_kv_b.weight", k[] = "attn_k_b.weight", v[] = "attn_v_b.weight";
    const int32_t each = a->n_key + a->n_value;
    const int64_t H = a->n_head;
    if (a->k_row) {
        pi__declare_head_rows(m, &a->k_b, a->n_key, a->rank, H, a->k_row, true, H * each, both, layer);
        pi__declare_head_rows(m, &a->v_b, a->rank, a->n_value, H, a->v_row, false, H * each, both, layer);
    } else {
        pi__declare_head_linear(m, &a->k_b, a->n_key, a->rank, H, k, layer);
        pi__declare_head_linear(m, &a->v_b, a->rank, a->n_value, H, v, layer);
    }
    pi__adapter_heads(m, &a->k_b, layer, k, both, &(pi__lora_target) {.each = each, .turned = true});
    pi__adapter_heads(m, &a->v_b, layer, v, both, &(pi__lora_target) {.each = each, .first = a->n_key});
}

static void want_queries(pi__model *m, pi__mla *a, int32_t layer)
{
    const int64_t E = m->n_embd, Q = a->rank_q;
    if (!Q) {
        pi__declare_weight(m, &a->q, E, q_width(a), "attn_q.weight", layer);
        return;
    }
    pi__declare_weight(m, &a->q_a, E, Q, "attn_q_a.weight", layer);
    pi__declare_vec(m, &a->q_norm, Q, "attn_q_a_norm.weight", layer);
    pi__declare_weight(m, &a->q_b, Q, q_width(a), "attn_q_b.weight", layer);
}

void pi__mla_declare(pi__model *m, pi__mla *a, int32_t layer, pi__work *w)
{
    const bool draft = layer >= m->n_trunk;
    const pi__row_group group = {.name = draft ? "draft" : "full", .draft = draft};
    const int64_t H = a->n_head, results = H * a->n_value;
    a->rows = pi__declare_rows(m, m, layer, &group, 1, row_width(a), false);
    want_queries(m, a, layer);
    pi__declare_weight(m, &a->kv, m->n_embd, row_width(a), "attn_kv_a_mqa.weight", layer);
    pi__declare_vec(m, &a->kv_norm, a->rank, "attn_kv_a_norm.weight", layer);
    want_heads(m, a, layer);
    if (a->head_gates) pi__declare_weight(m, &a->gate, m->n_embd, H, "attn_gate.weight", layer);
    pi__declare_weight(m, &a->wo, results, m->n_embd, "attn_output.weight", layer);
    if (a->index.n_head && !a->index.shared) pi__index_declare(m, &a->index, layer, a->rank_q);
    w->max_qkv = widest(w->max_qkv, widest(pi__mla_width(a), results));
    w->max_att = widest(w->max_att, widest(q_width(a), results));
    w->max_ff = widest(w->max_ff, widest(low_width(a), H));
    if (a->n_head > m->lim.max_n_head) m->lim.max_n_head = a->n_head;
    if (row_width(a) > m->lim.max_row) m->lim.max_row = row_width(a);
}

/* Returns true if the layer computes a selection of rows itself. */
static bool selects(const pi__mla *a) { return a->index.n_head && !a->index.shared; }

/* s->att [n, H*(n_key + n_rot)] = queries; s->ff [n, Q | rank + n_rot] = the low-rank queries, then the cache row
 * before its norm. Also the products of the layer's indexer. */
static void queries_and_row(pi__model *m, const pi__mla *a, const pi__stream *s)
{
    const int64_t ld = low_width(a), Q = a->rank_q, HD = q_width(a);
    const pi__index *x = &a->index;
    const pi__index_work *w = x->work;
    const pi__lin first = Q ? (pi__lin) {&a->q_a, s->ff, ld} : (pi__lin) {&a->q, s->att, HD};
    pi__linear all = {.in = pi__normed(m, s->x, a->norm, a->eps), .n_rows = s->n, .n_lin = 2,
                      .lin = {first, {&a->kv, s->ff + Q, ld}}};
    if (selects(a)) {
        all.lin[all.n_lin++] = (pi__lin) {&x->k, w->k, x->dim};
        all.lin[all.n_lin++] = (pi__lin) {&x->w, w->w, x->n_head};
    }
    pi__multiply(m, &all);
    if (!Q) return;
    pi__linear low = {.in = {.kind = PI__IN_RMSNORM, .x = s->ff, .ldx = ld, .w = a->q_norm, .eps = a->eps},
                      .n_rows = s->n, .n_lin = 1, .lin = {{&a->q_b, s->att, HD}}};
    if (selects(a)) low.lin[low.n_lin++] = (pi__lin) {&x->q, w->q, (int64_t) x->n_head * x->dim};
    pi__multiply(m, &low);
}

void pi__mla_project(pi__model *m, const pi__mla *a, const pi__stream *s)
{
    const int64_t wide = pi__mla_width(a);
    queries_and_row(m, a, s);
    if (a->temper)
        pi__op_scale(m->be, NULL, &(pi__scale) {.x = s->att, .y = a->temper->factor, .factor = 1.0f, .lo = -INFINITY,
                                                .hi = INFINITY, .n_rows = s->n, .n = q_width(a)});
    const pi__head_linear through = {.w = &a->k_b,
                                     .n_rows = s->n,
                                     .x = s->att,
                                     .ldx = q_width(a),
                                     .x_step = a->n_key + a->n_rot,
                                     .n_tail = a->n_rot,
                                     .y = s->qkv,
                                     .ldy = wide,
                                     .y_step = row_width(a)};
    pi__multiply_heads(m, &through);
    const pi__mla_qkv prep = {.rows = &m->kv[a->rows],
                              .q = s->qkv,
                              .ldq = wide,
                              .n_head = a->n_head,
                              .dim = row_width(a),
                              .q_scale = a->q_scale,
                              .row = s->ff + a->rank_q,
                              .ldr = low_width(a),
                              .norm = a->kv_norm,
                              .n_norm = a->rank,
                              .eps = a->eps,
                              .rope = a->rot ? a->rot->table : NULL,
                              .n_rot = a->rot ? a->n_rot : 0};
    pi__op_mla_qkv(m->be, s->b, &prep);
    if (selects(a)) pi__index_select(m, &a->index, s->b, a->rot->table, a->n_rot);
}

/* s->att = the heads' outputs times the sigmoids of their gates. The gates are computed from x, not in project: then
 * only rows that are needed have them. */
static void apply_gates(pi__model *m, const pi__mla *a, const pi__stream *s)
{
    const pi__lin_in in = pi__normed(m, s->x, a->norm, a->eps);
    pi__matmul(m, &in, s->n, &a->gate, s->ff, a->n_head);
    pi__op_gate_heads(m->be, NULL, &(pi__gate_heads) {.x = s->att, .gate = s->ff, .ldg = a->n_head, .n_rows = s->n,
                                                      .n_head = a->n_head, .n = a->n_value});
}

void pi__mla_attend(pi__model *m, const pi__mla *a, const pi__stream *s, int32_t first)
{
    const int64_t wide = pi__mla_width(a);
    pi__sparse att = {.rows = &m->kv[a->rows], .q = s->qkv, .ldq = wide, .n_head = a->n_head, .dim = row_width(a),
                      .dim_v = a->rank, .window = INT32_MAX, .first = first, .out = s->qkv, .ldo = wide};
    if (a->index.n_head) { /* no window: the selected rows are the op's entries */
        att.entries = att.rows;
        att.window = 0;
        att.pick = a->index.work->pick;
        att.n_top = a->index.n_top;
    }
    pi__op_sparse(m->be, s->b, &att);
    const pi__head_linear values = {.w = &a->v_b,
                                    .n_rows = s->n,
                                    .x = s->qkv,
                                    .ldx = wide,
                                    .x_step = row_width(a),
                                    .y = s->att,
                                    .ldy = (int64_t) a->n_head * a->n_value,
                                    .y_step = a->n_value};
    pi__multiply_heads(m, &values);
    if (a->head_gates) apply_gates(m, a, s);
}

/* -------------------------------------------------------------------------------------------- factors by position */

void pi__temper_layout(pi__temper *t, pi__arena *a, size_t n_tokens)
{
    if (t->temp == 0) return;
    t->table = pi__arena_take(a, n_tokens * 2 * PI__TEMPER_PART * sizeof(float));
    t->factor = pi__arena_take(a, n_tokens * (size_t) t->n * sizeof(float));
}

void pi__temper_forward(pi__model *m, const pi__temper *t, const pi__batch *b)
{
    if (t->temp == 0) return;
    pi__op_rope(m->be, b, &(pi__rope) {.freq = t->freq, .n_freq = PI__TEMPER_PART, .mscale = 1.0f, .temp = t->temp,
                                       .temp_len = t->temp_len, .table = t->table});
    pi__op_copy_2d(m->be, NULL, &(pi__copy_2d) {.x = t->table, .ldx = 2 * PI__TEMPER_PART, .n_rows = b->n_tokens,
                                                .n_shards = t->n / PI__TEMPER_PART, .n = PI__TEMPER_PART,
                                                .y = t->factor, .ldy = t->n});
}

void pi__mla_output(pi__model *m, const pi__mla *a, const pi__stream *s)
{
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s->att, .ldx = (int64_t) a->n_head * a->n_value};
    pi__matmul(m, &in, s->n, &a->wo, s->y, m->n_embd);
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = s->x, .y = s->y, .scale = 1.0f, .n_rows = s->n, .n = m->n_embd});
}
