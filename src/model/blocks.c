/* Scratch, logits rows, RoPE, feed-forward, experts and head (see blocks.h). Attention is in block_attn.c. */
#include "model/blocks.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/* -------------------------------------------------------------------------------------------------------- scratch */

static int64_t widest(int64_t a, int64_t b) { return a > b ? a : b; }

void pi__work_layout(const pi__model *m, pi__work *w, pi__arena *a, size_t n_tokens)
{
    const size_t row = n_tokens * sizeof(float), E = (size_t) m->n_embd;
    w->x = pi__arena_take(a, row * E);
    w->qkv = pi__arena_take(a, row * (size_t) w->max_qkv);
    w->att = pi__arena_take(a, row * (size_t) w->max_att);
    w->y = pi__arena_take(a, row * E);
    w->ff = pi__arena_take(a, row * (size_t) w->max_ff);
    w->routes = pi__arena_take(a, row * (size_t) w->n_expert);
    w->rows = pi__arena_take(a, m->target ? 0 : row * E);
}

pi__stream pi__stream_of(const pi__work *w, const pi__batch *b)
{
    return (pi__stream) {.b = b, .n = b->n_tokens, .x = w->x, .qkv = w->qkv, .att = w->att, .y = w->y, .ff = w->ff};
}

void pi__gather_logits_rows(pi__model *m, const pi__batch *b, const float *x, int64_t n, float *out)
{
    pi__op_gather_rows(m->be, NULL,
                       &(pi__gather_rows) {.row = b->logits_indices, .n_rows = b->n_rows, .x = x, .n = n, .out = out});
    if (m->lora) m->lora = &b->logits_batch->lora;
}

void pi__stream_logits_rows(pi__model *m, pi__stream *s, int64_t ld, float *rows)
{
    const pi__batch *b = s->b;
    float *was = s->qkv;
    pi__gather_logits_rows(m, b, s->x, m->n_embd, rows);
    pi__gather_logits_rows(m, b, s->qkv, ld, s->att);
    s->b = b->logits_batch;
    s->n = b->n_rows;
    s->x = rows;
    s->qkv = s->att;
    s->att = was;
}

void pi__stream_result_rows(pi__model *m, pi__stream *s, int64_t n, float *rows)
{
    pi__gather_logits_rows(m, s->b, s->x, m->n_embd, rows);
    pi__gather_logits_rows(m, s->b, s->att, n, s->qkv);
    s->x = rows;
    s->att = s->qkv;
    s->n = s->b->n_rows;
}

void pi__capture_layout(pi__model *m, pi__arena *a, size_t n_tokens)
{
    m->captured.x = pi__arena_take(a, n_tokens * (size_t) m->captured.n * (size_t) m->n_embd * sizeof(float));
}

int32_t pi__last_captured(const pi__model *m)
{
    int32_t last = -1;
    for (int32_t k = 0; k < m->captured.n; k++) last = m->captured.layer[k] > last ? m->captured.layer[k] : last;
    return last;
}

void pi__capture(pi__model *m, const pi__batch *b, int32_t layer, const float *x)
{
    const pi__captured *c = &m->captured;
    const int64_t E = m->n_embd;
    for (int32_t k = 0; k < c->n; k++)
        if (c->layer[k] == layer)
            pi__op_copy_2d(m->be, NULL, &(pi__copy_2d) {.x = x, .ldx = E, .n_shards = 1, .n_rows = b->n_tokens, .n = E,
                                                        .y = c->x + k * E, .ldy = c->n * E});
}

static void place(pi__model *m, const pi__batch *b, int32_t part, float *x)
{
    if (!b->input_row || !m->image_rows) return;
    pi__op_place_rows(m->be, NULL,
                      &(pi__place_rows) {.x = x,
                                         .rows = m->image_rows + (int64_t) part * m->n_embd,
                                         .ldr = m->image_ld,
                                         .row = b->input_row,
                                         .n_rows = b->n_tokens,
                                         .n = m->n_embd,
                                         .add = part > 0});
}

void pi__place_images(pi__model *m, const pi__batch *b, float *x) { place(m, b, 0, x); }

void pi__add_deepstack(pi__model *m, const pi__stream *s, int32_t layer)
{
    if (layer < m->n_deepstack) place(m, s->b, 1 + layer, s->x);
}

/* Returns the max rank for this target of the current rows' adapter runs; 0 = no adapter changes it. */
static int32_t lora_rank(const pi__model *m, int32_t target)
{
    int32_t most = 0;
    for (int32_t i = 0; m->lora && i < m->lora->n_runs && target; i++)
        most = m->lora->run[i].rank[target] > most ? m->lora->run[i].rank[target] : most;
    return most;
}

/* Runs op lora for matrix i of op linear a and the later matrices with the same placement. done[]: set for these
 * matrices; matrices that are done are skipped. */
static void add_adapters(pi__model *m, const pi__linear *a, int32_t i, bool *done)
{
    pi__lora lora = {.of = *a, .rows = m->lora};
    lora.of.n_lin = 0;
    for (int32_t k = i; k < a->n_lin; k++) {
        const pi__weight *w = a->lin[k].w;
        const int32_t rank = lora_rank(m, w->target);
        if (done[k] || w->placement != a->lin[i].w->placement) continue;
        done[k] = true;
        if (!rank) continue;
        lora.rank[lora.of.n_lin] = rank;
        lora.of.lin[lora.of.n_lin++] = a->lin[k];
    }
    if (lora.of.n_lin) pi__op_lora(m->be, NULL, &lora);
}

void pi__multiply(pi__model *m, const pi__linear *a)
{
    bool done[PI__MAX_LIN] = {false};
    pi__op_linear(m->be, NULL, a);
    for (int32_t i = 0; m->lora && i < a->n_lin; i++)
        if (!done[i]) add_adapters(m, a, i, done);
}

void pi__multiply_heads(pi__model *m, const pi__head_linear *a)
{
    const pi__linear as = {.in = {.kind = PI__IN_PLAIN, .x = a->x, .ldx = a->ldx}, .n_rows = a->n_rows, .n_lin = 1,
                           .lin = {{a->w, a->y, a->ldy}}};
    bool done[PI__MAX_LIN] = {false};
    pi__assert(a->ldx == a->w->n_mat * a->x_step && a->ldy == a->w->n_mat * a->y_step);
    pi__op_head_linear(m->be, NULL, a);
    if (m->lora) add_adapters(m, &as, 0, done);
}

void pi__matmul(pi__model *m, const pi__lin_in *in, int32_t n, const pi__weight *w, float *y, int64_t ld)
{
    pi__multiply(m, &(pi__linear) {.in = *in, .n_rows = n, .n_lin = 1, .lin = {{w, y, ld}}});
}

pi__lin_in pi__normed(const pi__model *m, const float *x, const float *w, float eps)
{
    if (!w) return (pi__lin_in) {.kind = PI__IN_PLAIN, .x = x, .ldx = m->n_embd};
    return (pi__lin_in) {.kind = PI__IN_RMSNORM, .x = x, .ldx = m->n_embd, .w = w, .eps = eps};
}

void pi__layer_normed(pi__model *m, const pi__shifted_norm *norm, const float *x, int32_t n, float *out)
{
    const int64_t E = m->n_embd;
    pi__op_copy_2d(m->be, NULL, &(pi__copy_2d) {.x = x, .ldx = E, .n_shards = 1, .n_rows = n, .n = E, .y = out,
                                                .ldy = E});
    pi__op_layer_norm(m->be, NULL,
                      &(pi__layer_norm) {
                          .x = out, .w = norm->w, .shift = norm->shift, .eps = norm->eps, .n_rows = n, .n = E});
}

/* ------------------------------------------------------------------------------------------------------- rotation */

void pi__rotation_declare(pi__model *m, pi__rotation *r, int32_t n_rot, const char *base_key, float base, bool scaled)
{
    r->n_rot = n_rot;
    r->n_freq = n_rot / 2;
    if (n_rot % 2)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.rope.dimension_count is %d, expected an even number",
                         m->arch->name, n_rot);
    r->freq = pi__model_calloc(m, (size_t) r->n_freq, sizeof *r->freq, "rope frequencies");
    r->mscale = pi__rope_freqs(m, base_key, base, scaled, n_rot, r->freq);
}

void pi__rotation_factors(pi__model *m, pi__rotation *r, bool needed)
{
    if (!needed && !pi__has_tensor(m, "rope_freqs.weight", PI__OF_FILE)) return;
    r->factor = pi__model_calloc(m, (size_t) r->n_freq, sizeof *r->factor, "rope frequencies");
    r->factor_name = "rope_freqs.weight";
    pi__declare_host(m, r->factor, r->n_freq, r->factor_name, PI__OF_FILE);
}

void pi__rotation_long(pi__model *m, pi__rotation *r)
{
    const int32_t trained = pi__hp_u32_or(m, "rope.scaling.original_context_length", (uint32_t) m->n_ctx_train, 1,
                                          1 << 28);
    const char *name = m->n_ctx > trained ? "rope_factors_long.weight" : "rope_factors_short.weight";
    if (!pi__has_tensor(m, name, PI__OF_FILE)) return;
    m->long_rope = m->n_ctx > trained;
    r->factor = pi__model_calloc(m, (size_t) r->n_freq, sizeof *r->factor, "rope frequencies");
    r->factor_name = name;
    pi__declare_host(m, r->factor, r->n_freq, name, PI__OF_FILE);
}

void pi__rotation_sections(pi__model *m, pi__rotation *r, bool interleaved, bool needed)
{
    char key[96];
    int64_t sum = 0;
    snprintf(key, sizeof key, "%s.rope.dimension_sections", m->arch->name);
    const pi__gguf_kv *kv = pi__model_ok(m) ? pi__gguf_find(m->g, key) : NULL;
    const bool numbers = kv && kv->type == PI__GGUF_ARR && kv->n >= 3 &&
                         (kv->arr_type == PI__GGUF_I32 || kv->arr_type == PI__GGUF_U32);
    r->interleaved = interleaved;
    for (uint64_t i = 0; numbers && i < 3; i++) {
        const uint64_t n = pi__gguf_elem_u64(kv, i);
        if (n > PI__MAX_HEAD_DIM) pi__model_refuse(m, PI_EFORMAT, "metadata %s has a number above %d", key,
                                                   PI__MAX_HEAD_DIM);
        else r->section[i] = (int32_t) n, sum += r->section[i];
    }
    if ((kv && !numbers) || (needed && !sum))
        pi__model_refuse(m, PI_EFORMAT, "metadata %s needs the numbers of pairs for time, row and column", key);
    m->mrope = sum > 0;
}

void pi__rotation_loaded(pi__model *m, pi__rotation *r)
{
    if (!r->factor) return;
    const int32_t n = r->n_rot / 2;
    r->n_freq = 0;
    for (int32_t i = 0; i < n; i++) {
        const float f = r->factor[i];
        if (!(f > 0) || !isfinite(f))
            pi__model_refuse(m, PI_EFORMAT, "tensor %s: value %d is %g", r->factor_name, i, (double) f);
        r->freq[i] /= f;
        if (f < 1e20f) r->n_freq = i + 1; /* a factor of 1e30 means "not rotated" */
    }
}

void pi__rotation_layout(pi__rotation *r, pi__arena *a, size_t n_tokens)
{
    r->table = pi__arena_take(a, n_tokens * (size_t) r->n_rot * sizeof(float));
    if (r->temp_len) r->q_table = pi__arena_take(a, n_tokens * (size_t) r->n_rot * sizeof(float));
}

void pi__rotation_forward(pi__model *m, const pi__rotation *r, const pi__batch *b)
{
    if (!r->n_freq) return;
    pi__rope own = {.freq = r->freq, .n_freq = r->n_freq, .mscale = r->mscale, .table = r->table,
                   .section = {r->section[0], r->section[1], r->section[2]}, .interleaved = r->interleaved};
    pi__op_rope(m->be, b, &own);
    if (!r->temp_len) return;
    own.temp = r->temp, own.temp_len = r->temp_len, own.table = r->q_table;
    pi__op_rope(m->be, b, &own);
}

/* --------------------------------------------------------------------------------------------------- feed-forward */

void pi__mlp_declare(pi__model *m, pi__mlp *l, const char *kind, int32_t layer, pi__work *w)
{
    char gate[48], up[48], down[48];
    const int64_t E = m->n_embd, F = l->n_ff;
    snprintf(gate, sizeof gate, "ffn_gate%s.weight", kind);
    snprintf(up, sizeof up, "ffn_up%s.weight", kind);
    snprintf(down, sizeof down, "ffn_down%s.weight", kind);
    if (l->fused) {
        pi__declare_gate_up(m, &l->gate, E, F, up, layer);
    } else if (l->ungated) {
        pi__declare_weight(m, &l->up, E, F, up, layer);
        snprintf(up, sizeof up, "ffn_up%s.bias", kind);
        snprintf(gate, sizeof gate, "ffn_down%s.bias", kind);
        pi__declare_vec_or_not(m, &l->up_bias, F, up, layer);
        pi__declare_vec_or_not(m, &l->down_bias, E, gate, layer);
    } else {
        pi__declare_weight(m, &l->gate, E, F, gate, layer);
        pi__declare_weight(m, &l->up, E, F, up, layer);
    }
    pi__declare_weight(m, &l->down, F, E, down, layer);
    w->max_ff = widest(w->max_ff, l->ungated ? F : 2 * F);
}

void pi__mlp_gate_up(pi__model *m, const pi__mlp *l, const pi__lin_in *in, int32_t n, float *ff)
{
    const int64_t F = l->n_ff;
    const pi__linear both = {
        .in = *in, .n_rows = n, .n_lin = l->fused ? 1 : 2, .lin = {{&l->gate, ff, 2 * F}, {&l->up, ff + F, 2 * F}}};
    pi__multiply(m, &both);
}

void pi__mlp_down(pi__model *m, const pi__mlp *l, const float *ff, int32_t n, float *y)
{
    const int64_t F = l->n_ff;
    const pi__lin_in h = {.kind = l->act, .x = ff, .ldx = 2 * F, .x2 = ff + F, .ldx2 = 2 * F, .limit = l->limit};
    pi__matmul(m, &h, n, &l->down, y, m->n_embd);
}

/* y [n, E] = down of f(up of `in` + up_bias); ff: scratch [n, F]. */
static void ungated_forward(pi__model *m, const pi__mlp *l, const pi__lin_in *in, int32_t n, float *ff, float *y)
{
    const pi__lin_in h = {.kind = PI__IN_PLAIN, .x = ff, .ldx = l->n_ff};
    pi__activate f = {.x = ff, .b = l->up_bias, .n_rows = n, .n = l->n_ff, .kind = l->kind};
    memcpy(f.p, l->p, sizeof f.p);
    pi__matmul(m, in, n, &l->up, ff, l->n_ff);
    pi__op_activate(m->be, NULL, &f);
    pi__matmul(m, &h, n, &l->down, y, m->n_embd);
}

void pi__mlp_forward(pi__model *m, const pi__mlp *l, const pi__lin_in *in, int32_t n, float *ff, float *y)
{
    if (l->ungated) {
        ungated_forward(m, l, in, n, ff, y);
        return;
    }
    pi__mlp_gate_up(m, l, in, n, ff);
    pi__mlp_down(m, l, ff, n, y);
}

/* -------------------------------------------------------------------------------------------------------- experts */

void pi__experts_read(pi__model *m, pi__experts *e, bool needed)
{
    e->n_expert = needed ? pi__hp_u32(m, "expert_count", 1, PI__MAX_EXPERTS)
                         : pi__hp_u32_or(m, "expert_count", 0, 0, PI__MAX_EXPERTS);
    if (!e->n_expert) return;
    e->n_used = pi__hp_u32(m, "expert_used_count", 1, PI__MAX_USED);
    if (e->n_used > e->n_expert)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.expert_used_count %d is more than expert_count %d", m->arch->name,
                         e->n_used, e->n_expert);
    if (m->n_used > e->n_expert || m->n_used > PI__MAX_USED)
        pi__model_refuse(m, PI_EINVAL, "moe-n-expert is %d, expected 1 to %d", m->n_used,
                         e->n_expert < PI__MAX_USED ? e->n_expert : PI__MAX_USED);
    e->weights_scale = 1.0f;
}

static void read_groups(pi__model *m, pi__experts *e)
{
    e->n_group = pi__hp_u32_or(m, "expert_group_count", 0, 0, PI__MAX_EXPERT_GROUPS);
    e->n_group_used = pi__hp_u32_or(m, "expert_group_used_count", (uint32_t) e->n_group, 0, PI__MAX_EXPERT_GROUPS);
    if (e->n_group <= 1 || e->n_group_used == e->n_group) { /* all groups are selectable */
        e->n_group = e->n_group_used = 0;
        return;
    }
    if (e->n_expert % e->n_group || e->n_group_used < 1 || e->n_group_used > e->n_group ||
        e->n_expert / e->n_group * e->n_group_used < e->n_used)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s: %d experts in %d groups (expert_group_count): %d groups "
                         "(expert_group_used_count) have fewer than %d experts (expert_used_count)", m->arch->name,
                         e->n_expert, e->n_group, e->n_group_used, e->n_used);
}

void pi__experts_read_router(pi__model *m, pi__experts *e, uint32_t func, bool divided)
{
    enum { SOFTMAX = 1, SIGMOID = 2 };
    const int32_t f = pi__hp_u32_or(m, "expert_gating_func", func, 0, 99);
    const float scale = pi__hp_f32_or(m, "expert_weights_scale", 1);
    if (f != SOFTMAX && f != SIGMOID)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "metadata %s.expert_gating_func is %d, expected 1 (softmax) or 2 (sigmoid)", m->arch->name, f);
    if (scale > 0) e->weights_scale = scale;
    e->gating = f == SIGMOID ? PI__GATE_SIGMOID : PI__GATE_SOFTMAX;
    e->undivided = !pi__hp_u32_or(m, "expert_weights_norm", divided, 0, 1);
    read_groups(m, e);
}

void pi__experts_declare(pi__model *m, pi__experts *e, bool fused, int32_t layer, pi__work *w)
{
    const int64_t E = e->n_in ? e->n_in : m->n_embd, F = e->n_ff, X = e->n_expert;
    pi__need_experts(m, e->n_expert, e->n_used, E, F);
    if (e->ungated) pi__declare_experts(m, &e->gate, E, F, X, "ffn_up_exps.weight", layer);
    else if (fused) pi__declare_gate_up_or_not(m, &e->gate, E, F, X, "ffn_gate_up_exps.weight", layer);
    if (!e->gate.n_out) {
        pi__declare_experts(m, &e->gate, E, F, X, "ffn_gate_exps.weight", layer);
        pi__declare_experts(m, &e->up, E, F, X, "ffn_up_exps.weight", layer);
    }
    pi__declare_experts(m, &e->down, F, E, X, "ffn_down_exps.weight", layer);
    /* files of Hunyuan 3 have the name without the suffix */
    const char *bias = pi__name_of(m, "exp_probs_b", "exp_probs_b.bias", layer);
    if (e->gating == PI__GATE_SIGMOID) pi__declare_vec(m, &e->bias, X, bias, layer);
    if (e->gating == PI__GATE_SOFTMAX_CHOICE) pi__declare_vec_or_not(m, &e->bias, X, bias, layer);
    if (e->biases) {
        pi__declare_vec(m, &e->bias, X, "ffn_gate_inp.bias", layer);
        pi__declare_table(m, &e->gate_bias, X, F, "ffn_gate_exps.bias", layer);
        pi__declare_table(m, &e->up_bias, X, F, "ffn_up_exps.bias", layer);
        pi__declare_table(m, &e->down_bias, X, E, "ffn_down_exps.bias", layer);
    }
    if (e->n_expert > w->n_expert) w->n_expert = e->n_expert;
}

pi__moe pi__experts_args(const pi__model *m, const pi__experts *e, const pi__lin_in *in, int32_t n, const float *logits,
                         int64_t ldl, float *y)
{
    return (pi__moe) {.n_rows = n,
                      .in = *in,
                      .logits = logits,
                      .ldl = ldl,
                      .n_expert = e->n_expert,
                      .n_used = e->n_used,
                      .weights_scale = e->weights_scale,
                      .undivided = e->undivided,
                      .n_group = e->n_group,
                      .n_group_used = e->n_group_used,
                      .gate = &e->gate,
                      .up = e->ungated ? &e->gate : e->up.n_out ? &e->up : NULL,
                      .down = &e->down,
                      .act = e->act,
                      .limit = e->limit,
                      .gate_bias = e->gate_bias,
                      .up_bias = e->up_bias,
                      .down_bias = e->down_bias,
                      .ld_down_bias = e->n_in ? e->n_in : m->n_embd,
                      .gating = e->gating,
                      .bias = e->bias,
                      .table = e->table,
                      .y = y,
                      .ldy = e->n_in ? e->n_in : m->n_embd};
}

void pi__experts_forward(pi__model *m, const pi__experts *e, const pi__lin_in *in, int32_t n, const float *logits,
                         int64_t ldl, const pi__batch *b, float *y)
{
    const pi__weight *const w[PI__N_LORA_MOE] = {&e->gate, e->ungated ? &e->gate : &e->up, &e->down};
    pi__moe moe = pi__experts_args(m, e, in, n, logits, ldl, y);
    moe.lora.fused = !moe.up;
    for (int i = 0; i < PI__N_LORA_MOE; i++) {
        moe.lora.rank[i] = lora_rank(m, w[i]->target);
        if (moe.lora.rank[i]) moe.lora.target[i] = w[i]->target, moe.lora.rows = m->lora;
    }
    pi__op_moe(m->be, e->table ? b : NULL, &moe);
}

/* ----------------------------------------------------------------------------------------------------------- head */

void pi__head_declare(pi__model *m, pi__head *h, bool tied)
{
    pi__read_vocab_size(m);
    pi__declare_weight(m, &h->tok_embd, m->n_embd, m->n_vocab, "token_embd.weight", PI__OF_FILE);
    if (tied) pi__declare_weight_or_not(m, &h->output, m->n_embd, m->n_vocab, "output.weight", PI__OF_FILE);
    else pi__declare_weight(m, &h->output, m->n_embd, m->n_vocab, "output.weight", PI__OF_FILE);
    const char *norm = h->norm_name ? h->norm_name : "output_norm.weight";
    pi__declare_vec(m, &h->output_norm, m->n_embd, norm, PI__OF_FILE);
    if (h->logit_scale != 0)
        pi__declare_vec_times(m, &h->logits_norm, m->n_embd, h->logit_scale, norm, PI__OF_FILE);
    if (h->layer_norm) pi__declare_vec_or_not(m, &h->output_shift, m->n_embd, "output_norm.bias", PI__OF_FILE);
    if (h->biased) pi__declare_vec(m, &h->output_bias, m->n_vocab, "output.bias", PI__OF_FILE);
    if (!h->output.n_out) pi__adapter_tied(m, &h->tok_embd);
    m->head = h;
}

void pi__head_embed(pi__model *m, const pi__head *h, const pi__batch *b, float *x)
{
    const int32_t rank = lora_rank(m, m->lora_embd);
    pi__op_embed(m->be, b, &(pi__embed) {.w = &h->tok_embd, .scale = h->embd_scale, .out = x});
    if (rank)
        pi__op_lora_embed(m->be, b,
                          &(pi__lora_embed) {.w = &h->tok_embd,
                                             .target = m->lora_embd,
                                             .rank = rank,
                                             .rows = m->lora,
                                             .scale = h->embd_scale,
                                             .out = x});
    pi__place_images(m, b, x);
}

void pi__head_hidden(pi__model *m, const pi__head *h, const float *x, int32_t n, float *out)
{
    if (h->layer_norm) {
        pi__layer_normed(m, &(pi__shifted_norm) {h->output_norm, h->output_shift, h->eps}, x, n, out);
        return;
    }
    pi__op_norm(
        m->be, NULL,
        &(pi__norm) {
            .out = out, .ldo = m->n_embd, .x = x, .w = h->output_norm, .eps = h->eps, .n_rows = n, .n = m->n_embd});
}

const pi__weight *pi__head_output(const pi__head *h) { return h->output.n_out ? &h->output : &h->tok_embd; }

void pi__head_logits(pi__model *m, const pi__head *h, const float *x, int32_t n, float *out)
{
    float *const w = h->logits_norm ? h->logits_norm : h->output_norm;
    if (h->layer_norm) pi__layer_normed(m, &(pi__shifted_norm) {w, h->output_shift, h->eps}, x, n, h->normed);
    const pi__lin_in in = h->layer_norm ? pi__normed(m, h->normed, NULL, 0) : pi__normed(m, x, w, h->eps);
    pi__best_rows *best = h->output_bias ? NULL : m->best; /* a bias changes the order of the logits */
    /* Close to the softcap, different logits may have equal softcapped values. */
    if (best)
        best->margin = h->softcap > 0 ? 1e-4f * h->softcap : 0, best->most = h->softcap > 0 ? 3 * h->softcap : FLT_MAX;
    pi__multiply(m,
                 &(pi__linear) {
                     .in = in, .n_rows = n, .n_lin = 1, .lin = {{pi__head_output(h), out, m->n_vocab}}, .best = best});
    if (h->output_bias)
        pi__op_activate(m->be, NULL, &(pi__activate) {.x = out, .b = h->output_bias, .n_rows = n, .n = m->n_vocab,
                                                      .kind = PI__ACT_NONE});
    if (h->softcap > 0)
        pi__op_softcap(m->be, NULL, &(pi__softcap) {.x = out, .cap = h->softcap, .n_rows = n, .n = m->n_vocab});
}
