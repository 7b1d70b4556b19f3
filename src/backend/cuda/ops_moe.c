/* Op moe, routed experts (kernels/moe*_kernels.cuh). The step thread. Memory: of the backend's scratch, in this order,
 *
 *     [ids][weights][columns][rows][three lists of tiles][their lengths][marks][first columns][expert choice]
 *     [packed activations][results]
 */
#include "backend/cuda/impl.h"
#include "backend/cuda/lora_groups.h"

#include "formats/formats.h"

/* Layout of the op's scratch, in bytes from its start. A pair is a row and one of its experts. */
typedef struct moe_layout {
    size_t id, weight, column, row; /* arrays of pi__k_routes, [pairs] each */
    size_t tile[3], n_tile;         /* three lists of tiles; their lengths, [3] */
    size_t marks, first;            /* [pi__k_route_scratch_words] each */
    size_t table, own_weight, token; /* [pairs], [pairs], [rows]: table, weight and token of pi__k_expert_choice */
    size_t mid;                     /* [pairs, F] packed input of down, by column */
    size_t out;                     /* [pairs, 2F] results of gate and up, then [pairs, E] of down, by column */
    size_t end;
} moe_layout;

/* Returns the layout from offset `at` on. n_in: columns of gate, E. n_ff: columns of down, F. */
static moe_layout layout(size_t at, int32_t n_rows, int32_t n_expert, int32_t n_used, int64_t n_in, int64_t n_ff)
{
    const int64_t pairs = (int64_t) n_rows * n_used, wide = n_in > 2 * n_ff ? n_in : 2 * n_ff;
    moe_layout p;
    p.id = pi__cuda_take(&at, (size_t) pairs * sizeof(int32_t));
    p.weight = pi__cuda_take(&at, (size_t) pairs * sizeof(float));
    p.column = pi__cuda_take(&at, (size_t) pairs * sizeof(int32_t));
    p.row = pi__cuda_take(&at, (size_t) pairs * sizeof(int32_t));
    for (int i = 0; i < 3; i++)
        p.tile[i] = pi__cuda_take(&at, (size_t) pi__k_max_tiles(n_rows, n_expert, n_used, i) * sizeof(pi__k_tile));
    p.n_tile = pi__cuda_take(&at, 3 * sizeof(int32_t));
    p.marks = pi__cuda_take(&at, pi__k_route_scratch_words(n_rows, n_expert) * sizeof(uint32_t));
    p.first = pi__cuda_take(&at, pi__k_route_scratch_words(n_rows, n_expert) * sizeof(int32_t));
    p.table = pi__cuda_take(&at, (size_t) pairs * sizeof(int32_t));
    p.own_weight = pi__cuda_take(&at, (size_t) pairs * sizeof(float));
    p.token = pi__cuda_take(&at, (size_t) n_rows * sizeof(int32_t));
    /* size of the largest format: 6 bytes per value; floats take 4, integers 2.5 */
    p.mid = pi__cuda_take(&at, pi__k_mma16_packed_x_bytes(PI__BF16, (int32_t) pairs, n_ff));
    p.out = pi__cuda_take(&at, (size_t) (pairs * wide) * sizeof(float));
    p.end = at;
    return p;
}

size_t pi__cuda_moe_bytes(const pi__limits *lim)
{
    if (!lim->max_expert) return 0;
    return layout(0, lim->max_tokens, lim->max_expert, lim->max_used, lim->max_in_exp, (lim->max_ff_exp + 1) / 2).end;
}

int pi__cuda_experts(void *stream, int form, const pi__k_routes *r, const pi__k_experts *e, const void *prepared)
{
    if (form == PI__FORM_FP4) return pi__k_fp4_experts(stream, r, e, prepared);
    if (form == PI__FORM_W4A8) return pi__k_w4a8_experts(stream, r, e, prepared);
    if (form == PI__FORM_MMA16) return pi__k_mma16_experts(stream, r, e, prepared);
    if (form == PI__FORM_W16) return pi__k_w16_experts(stream, r, e, prepared);
    return pi__k_experts_run(stream, r, e, prepared);
}

/* Queues the products of gate and up; results go to h [pairs, 2F], by column: gate's F values, then up's. A shard
 * writes only its own part of each half. Each row is packed once for all its experts, unless `ready` already has the
 * input, packed for the router or the shared expert. */
static void gate_up(pi__cuda *c, cuda_packed_x *ready, const pi__moe *a, const pi__k_routes *r, float *h)
{
    const int64_t n_ff = a->down->n_in;
    if (a->shard) h += n_ff / a->shard->n * a->shard->i;
    void *stream = pi__rt_stream(c->rt);
    pi__k_experts e = {.w = pi__cuda_matrix(a->gate), .row = r->row, .y = h, .ldy = 2 * n_ff, .n_sm = c->info.n_sm,
                       .moved = pi__cuda_moved(c, a->gate)};
    const int form = pi__form(&c->f, e.w.type, e.w.n_in);
    void *x = pi__cuda_packed_x(c, ready, form, &a->in, e.w.type, r->n_rows, e.w.n_in);
    if (a->up && a->up->type == a->gate->type) {
        e.data2 = a->up->data;
        e.moved2 = pi__cuda_moved(c, a->up);
        e.scale2 = a->up->scale;
        e.y2 = h + n_ff;
    }
    pi__cuda_keep_experts(c, a, r);
    PI__QUEUE(c, pi__cuda_experts(stream, form, r, &e, x));
    if (!a->up || e.data2) return;
    e.w = pi__cuda_matrix(a->up);
    e.moved = pi__cuda_moved(c, a->up);
    e.y = h + n_ff;
    const int form2 = pi__form(&c->f, e.w.type, e.w.n_in);
    x = pi__cuda_packed_x(c, ready, form2, &a->in, e.w.type, r->n_rows, e.w.n_in);
    PI__QUEUE(c, pi__cuda_experts(stream, form2, r, &e, x));
}

void pi__cuda_gate_up(pi__cuda *c, cuda_packed_x *ready, const pi__moe *a, const cuda_moe *at)
{
    const int64_t n_ff = a->down->n_in;
    pi__k_experts e = {.w = pi__cuda_matrix(a->gate), .row = at->r.row, .n_sm = c->info.n_sm, .mid = at->mid,
                       .act = a->act, .mid_type = pi__cuda_packed_type(a->down->type), .limit = a->limit,
                       .arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived), .waits = pi__cuda_waits(c)};
    const int form = pi__form(&c->f, e.w.type, e.w.n_in);
    e.data2 = a->up ? a->up->data : e.w.data + (size_t) (n_ff / 16) * e.w.shape.tile_bytes;
    e.moved = pi__cuda_moved(c, a->gate);
    e.moved2 = pi__cuda_moved(c, a->up ? a->up : a->gate);
    e.scale2 = a->up ? a->up->scale : e.w.scale;
    e.w.n_out = n_ff;
    void *x = pi__cuda_packed_x(c, ready, form, &a->in, e.w.type, a->n_rows, e.w.n_in);
    pi__cuda_keep_experts(c, a, &at->r);
    PI__QUEUE(c, pi__cuda_experts(pi__rt_stream(c->rt), form, &at->r, &e, x));
}

pi__k_down pi__cuda_down_of(const pi__cuda *c, const pi__moe *a, const cuda_moe *at)
{
    const pi__k_experts e = {.w = pi__cuda_matrix(a->down), .y = at->h, .ldy = a->down->n_out, .n_sm = c->info.n_sm,
                             .moved = pi__cuda_moved(c, a->down)};
    return (pi__k_down) {.routes = at->r, .experts = e, .mid = at->mid};
}

/* Down writes its results over the results of gate and up at h, as it reads only the packed activations at mid. */
void pi__cuda_gate_up_down(pi__cuda *c, cuda_packed_x *ready, const pi__moe *a, const cuda_moe *at)
{
    const int64_t n_ff = a->down->n_in;
    const int32_t pairs = a->n_rows * a->n_used;
    void *stream = pi__rt_stream(c->rt);
    float *h = at->h;
    const pi__k_experts down = {.w = pi__cuda_matrix(a->down), .y = h, .ldy = a->down->n_out, .n_sm = c->info.n_sm,
                                .moved = pi__cuda_moved(c, a->down)};
    const int form = pi__form(&c->f, down.w.type, n_ff);
    const bool there = !a->lora.rows && pi__experts_have_glu(&c->f, a);
    if (there) pi__cuda_gate_up(c, ready, a, at);
    else gate_up(c, ready, a, &at->r, h);
    if (a->shard) a->shard->complete(a->shard, h, pairs, n_ff);
    pi__cuda_lora_gate_up(c, a, at);
    if (a->gate_bias) PI__QUEUE(c, pi__k_add_biases(stream, &at->r, h, a->gate_bias, a->up_bias, n_ff));
    pi__cuda_lora_down(c, a, at, false);
    const pi__k_input glu = {
        .kind = a->act, .x = h, .ldx = 2 * n_ff, .x2 = h + n_ff, .ldx2 = 2 * n_ff, .limit = a->limit};
    if (form == PI__FORM_W16) {
        if (!there) PI__QUEUE(c, pi__k_w16_mid(stream, &glu, down.w.type, pairs, n_ff, at->mid));
        PI__QUEUE(c, pi__k_w16_down(stream, &at->r, &down, at->mid));
    } else {
        if (!there) PI__QUEUE(c, pi__cuda_pack_x(stream, form, &glu, down.w.type, pairs, n_ff, at->mid));
        PI__QUEUE(c, pi__cuda_experts(stream, form, &at->r, &down, at->mid));
    }
    pi__cuda_lora_down(c, a, at, true);
}

bool pi__cuda_moe_at(pi__cuda *c, const pi__batch *b, const pi__moe *a, cuda_moe *to)
{
    const moe_layout p = layout(c->at.experts, a->n_rows, a->n_expert, a->n_used, a->gate->n_in, a->down->n_in);
    if (p.end > c->at.heads) {
        c->no_room = true;
        return false;
    }
    to->row0 = 0;
    to->mid = c->scratch + p.mid;
    to->h = (float *) (void *) (c->scratch + p.out);
    to->r = (pi__k_routes) {
        .logits = a->logits, .ldl = a->ldl, .n_rows = a->n_rows, .n_expert = a->n_expert, .n_used = a->n_used,
        .gating = a->gating, .bias = a->bias, .table = a->table,
        .token = a->table ? pi__cuda_batch_of(c, b)->token : NULL, .weights_scale = a->weights_scale,
        .id = (int32_t *) (void *) (c->scratch + p.id),
        .weight = (float *) (void *) (c->scratch + p.weight), .column = (int32_t *) (void *) (c->scratch + p.column),
        .row = (int32_t *) (void *) (c->scratch + p.row), .n_tile = (int32_t *) (void *) (c->scratch + p.n_tile),
        .marks = (uint32_t *) (void *) (c->scratch + p.marks), .first = (int32_t *) (void *) (c->scratch + p.first),
    };
    for (int i = 0; i < 3; i++) to->r.tile[i] = (pi__k_tile *) (void *) (c->scratch + p.tile[i]);
    to->choice = (pi__k_expert_choice) {
        .r = to->r, .n_group = a->n_group, .n_group_used = a->n_group_used, .undivided = a->undivided,
        .table = (int32_t *) (void *) (c->scratch + p.table), .token = (int32_t *) (void *) (c->scratch + p.token),
        .weight = (float *) (void *) (c->scratch + p.own_weight),
    };
    to->chooses = a->n_group || a->undivided;
    if (to->chooses) to->r.weight = to->choice.weight;
    return true;
}

pi__k_sum pi__cuda_sum_of(const pi__moe *a, const cuda_moe *at)
{
    return (pi__k_sum) {.n_rows = a->n_rows,
                        .n_used = a->n_used,
                        .column = at->r.column,
                        .weight = at->r.weight,
                        .x = at->h,
                        .bias = a->down_bias,
                        .id = at->r.id,
                        .ldb = a->ld_down_bias,
                        .n = a->down->n_out,
                        .y = a->y,
                        .ldy = a->ldy};
}

void pi__cuda_route(pi__cuda *c, const cuda_moe *at)
{
    void *stream = pi__rt_stream(c->rt);
    PI__QUEUE(c, at->chooses ? pi__k_expert_choice_run(stream, &at->choice) : pi__k_route(stream, &at->choice.r));
}

/* Runs op a, which has all rows of the caller's op or those of one pass, from its row row0 on. */
static void run_rows(pi__cuda *c, cuda_packed_x *ready, const pi__batch *b, const pi__moe *a, int32_t row0)
{
    cuda_moe at;
    if (a->n_rows < 1 || !pi__cuda_moe_at(c, b, a, &at)) return;
    at.row0 = row0;
    if (at.choice.r.token) at.choice.r.token += row0;
    at.r.token = at.choice.r.token;
    pi__cuda_route(c, &at);
    const pi__k_sum sum = pi__cuda_sum_of(a, &at);
    pi__cuda_gate_up_down(c, ready, a, &at);
    PI__QUEUE(c, pi__k_add_experts(pi__rt_stream(c->rt), &sum));
}

void pi__cuda_queue_moe(pi__cuda *c, cuda_packed_x *ready, const pi__batch *b, const pi__moe *a)
{
    const int32_t most = pi__lora_moe_rows(&c->f.lim, a);
    if (most >= a->n_rows) {
        run_rows(c, ready, b, a, 0);
        return;
    }
    for (int32_t r = 0; r < a->n_rows; r += most) {
        cuda_packed_x none = {.n_rows = 0};
        pi__moe some = *a;
        some.n_rows = a->n_rows - r < most ? a->n_rows - r : most;
        some.in.x += r * a->in.ldx;
        if (some.in.x2) some.in.x2 += r * a->in.ldx2;
        some.logits += r * a->ldl;
        some.y += r * a->ldy;
        run_rows(c, &none, b, &some, r);
    }
}

void pi__cuda_moe(pi__backend *be, const pi__batch *b, const pi__moe *a)
{
    cuda_packed_x none = {.n_rows = 0};
    pi__cuda_queue_moe((pi__cuda *) be, &none, b, a);
}
