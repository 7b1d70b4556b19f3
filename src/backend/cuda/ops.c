/* The ops of transformers (linear, qkv, attention, ..): each converts its struct of ops.h to the kernels' struct, and
 * queues the kernels (see kernels.h). No memory of its own; the step thread. */
#include "backend/cuda/impl.h"

#include "backend/cuda/kernels_floats.h"
#include "backend/cuda/kernels_mma16.h"
#include "backend/cuda/kernels_w16_glu.h"
#include "formats/formats.h"

_Static_assert(PI__N_TYPES <= 64, "a pi__type_set has one bit per type");

pi__k_matrix pi__cuda_matrix(const pi__weight *w)
{
    pi__k_matrix m = {.data = w->data, .type = pi__cuda_packed_type(w->type), .n_in = w->n_in, .n_out = w->n_out,
                      .scale = w->scale};
    pi__cuda_shape_of(w->type, w->n_in, w->n_out, &m.shape);
    return m;
}

pi__k_input pi__cuda_input(const pi__lin_in *in)
{
    const bool glu = pi__in_gated(in->kind);
    return (pi__k_input) {in->kind, in->x, in->ldx, glu ? in->x2 : NULL, in->ldx2, in->w, in->eps, in->limit};
}

void pi__cuda_kernel_facts(pi__facts *f)
{
    f->w16 = f->w16_bf16 = f->wgmma_glu = 0;
    for (int32_t t = 0; t < PI__N_TYPES; t++) {
        const pi__type_set bit = (pi__type_set) 1 << t;
        if (!pi__k_w16_has(t)) continue;
        f->w16 |= bit;
        if (pi__k_w16_input(t)) f->w16_bf16 |= bit;
        if (pi__k_wgmma_has_glu(t)) f->wgmma_glu |= bit;
    }
    /* with so many drafts, only the kernel limits the tokens */
    pi__k_gdn k = {.state.n_draft = 255, .most = 1};
    for (; k.most <= k.state.n_draft && pi__k_gdn_has_tail(&k); k.most++) f->gdn_few = k.most;
}

int pi__cuda_form(int matmul_modes, int32_t type, int64_t n_in)
{
    pi__facts f = {.matmul_modes = matmul_modes};
    pi__cuda_kernel_facts(&f);
    return pi__form(&f, type, n_in);
}

void pi__cuda_embed(pi__backend *be, const pi__batch *b, const pi__embed *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    const int32_t *row = d->embd_row ? d->embd_row : d->token;
    pi__k_matrix m = pi__cuda_matrix(a->w);
    PI__QUEUE(c, pi__k_embed(pi__rt_stream(c->rt), &m, row, b->n_tokens, a->scale, a->out));
}

int pi__cuda_pack_x(void *stream, int form, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *to)
{
    if (form == PI__FORM_FP4) return pi__k_fp4_pack_x(stream, in, type, n_rows, n_in, to);
    if (form == PI__FORM_W4A8) return pi__k_w4a8_pack_x(stream, in, type, n_rows, n_in, to);
    if (form == PI__FORM_MMA16) return pi__k_mma16_pack_x(stream, in, type, n_rows, n_in, to);
    if (form == PI__FORM_HILO) return pi__k_hilo_pack_x(stream, in, type, n_rows, n_in, to);
    if (form == PI__FORM_W16) return pi__k_w16_pack_x(stream, in, type, n_rows, n_in, to);
    return pi__k_pack_x(stream, in, n_rows, n_in, form == PI__FORM_FLOATS, to);
}

/* Queues n products with float matrices and x as floats. A matrix uses the large-batch kernel if pi__k_floats_has(). */
static int multiply_floats(void *stream, const pi__k_product *p, int32_t n, const void *prepared, int32_t n_rows)
{
    int code = 0;
    for (int32_t i = 0; i < n && !code; i++) {
        const bool many = pi__k_floats_has(p[i].w.type, p[i].w.n_out, n_rows);
        code = many ? pi__k_floats_linear(stream, &p[i], 1, prepared, n_rows)
                    : pi__k_linear(stream, &p[i], 1, prepared, n_rows);
    }
    return code;
}

int pi__cuda_product(void *stream, int form, const pi__k_product *p, int32_t n, const void *prepared, int32_t n_rows,
                     const pi__k_split *split)
{
    if (form == PI__FORM_FLOATS) return multiply_floats(stream, p, n, prepared, n_rows);
    if (form == PI__FORM_W16) return pi__k_w16_linear_split(stream, p, n, prepared, n_rows, split);
    if (form == PI__FORM_INTEGERS) return pi__k_linear(stream, p, n, prepared, n_rows);
    if (form == PI__FORM_FP4) return pi__k_fp4_linear_split(stream, p, n, prepared, n_rows, split);
    if (form == PI__FORM_W4A8) return pi__k_w4a8_linear_split(stream, p, n, prepared, n_rows, split);
    return pi__k_mma16_products(stream, p, n, prepared, n_rows);
}

/* pi__same_input() for inputs as kernels get them. */
static bool same_input(const pi__k_input *a, const pi__k_input *b)
{
    return a->kind == b->kind && a->x == b->x && a->ldx == b->ldx && a->x2 == b->x2 && a->ldx2 == b->ldx2 &&
           a->w == b->w && a->eps == b->eps && a->limit == b->limit;
}

/* Returns the key of a packed input: the activation format and, for formats that depend on it, `like`: the matrix type,
 * or for W16 1 = BF16, 0 = F16. */
static int known_by(int form, int like) { return form > PI__FORM_FLOATS ? form + 16 * (like + 1) : form; }

cuda_packed_x pi__cuda_packed_by(const pi__k_tail *t)
{
    cuda_packed_x x = {.in = t->in, .n_rows = t->n_rows, .n_in = t->n_in, .what = {-1, -1}};
    if (t->integers) x.what[0] = PI__FORM_INTEGERS, x.where[0] = t->integers;
    if (t->halves) x.what[0] = known_by(PI__FORM_W16, t->bf16), x.where[0] = t->halves;
    if (t->terms) x.what[1] = known_by(PI__FORM_MMA16, t->terms_type), x.where[1] = t->terms;
    if (t->floats) x.what[1] = PI__FORM_FLOATS, x.where[1] = t->floats;
    if (t->fp4) x.what[0] = known_by(t->fp8 ? PI__FORM_W4A8 : PI__FORM_FP4, t->fp4_type), x.where[0] = t->fp4;
    return x;
}

void pi__cuda_add_targets(const pi__cuda *c, const pi__linear *next, void *prepared, void *floats, pi__k_tail *t)
{
    const pi__targets to = pi__targets_of(&c->f, next);
    t->n_rows = next->n_rows;
    t->in = pi__cuda_input(&next->in);
    t->n_in = next->lin[0].w->n_in;
    if (to.integers) t->integers = prepared;
    if (to.halves) t->halves = prepared, t->bf16 = to.bf16;
    if (to.fp4) t->fp4 = prepared, t->fp4_type = to.fp4_type, t->fp8 = to.fp8;
    if (to.floats) t->floats = floats;
    if (to.terms) t->terms = floats, t->terms_type = to.terms_type;
}

/* Like pi__cuda_pack_x(). If fusing is enabled, inputs without a gate in format W16 use pi__k_finish_rows(), which
 * reads each value once. */
static int prepare(pi__cuda *c, int form, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *to)
{
    void *stream = pi__rt_stream(c->rt);
    if (!c->f.fuses || form != PI__FORM_W16 || in->x2) return pi__cuda_pack_x(stream, form, in, type, n_rows, n_in, to);
    const pi__k_tail rounds = {
        .n_rows = n_rows, .in = *in, .n_in = n_in, .halves = to, .bf16 = pi__w16_input(&c->f, type)};
    return pi__k_finish_rows(stream, &rounds);
}

void *pi__cuda_packed_x(pi__cuda *c, cuda_packed_x *ready, int form, const pi__lin_in *from, int32_t type,
                        int32_t n_rows, int64_t n_in)
{
    const pi__k_input in = pi__cuda_input(from);
    if (pi__reads_in_place(form, from, n_rows, n_in)) return (void *) (uintptr_t) in.x;
    const bool apart = form == PI__FORM_FLOATS || (form == PI__FORM_MMA16 && n_rows <= pi__tail_rows(&c->f));
    const int at = apart ? 1 : 0, what = known_by(form, form == PI__FORM_W16 ? pi__w16_input(&c->f, type) : type);
    if (ready->n_rows != n_rows || ready->n_in != n_in || !same_input(&ready->in, &in))
        *ready = (cuda_packed_x) {.in = in, .n_rows = n_rows, .n_in = n_in, .what = {-1, -1}};
    if (ready->what[at] != what) {
        ready->where[at] = c->scratch + (at ? c->at.floats : c->at.prepared);
        PI__QUEUE(c, prepare(c, form, &in, type, n_rows, n_in, ready->where[at]));
    }
    ready->what[at] = what;
    return ready->where[at];
}

/* Returns the scratch of split-K, and its counters. */
static pi__k_split split_of(const pi__cuda *c)
{
    return (pi__k_split) {c->info.n_sm, (float *) (void *) (c->scratch + c->at.slices), c->at.n_slices / sizeof(float),
                          (uint32_t *) (void *) (c->scratch + c->at.arrived) + PI__CUDA_SPLIT_COUNTERS};
}

/* Queues n products, with x packed in this format, and the epilogue `then`, if not NULL. HILO uses cuBLAS. Returns an
 * error code. */
static int multiply(pi__cuda *c, int form, const pi__k_product *p, int32_t n, const void *prepared, int32_t n_rows,
                    const pi__k_tail *then)
{
    void *stream = pi__rt_stream(c->rt);
    const pi__k_split split = split_of(c);
    int code = 0;
    if (then && form == PI__FORM_W16) return pi__k_w16_linear_then(stream, p, n, prepared, n_rows, then);
    if (then && form == PI__FORM_FP4) return pi__k_fp4_linear_then(stream, p, n, prepared, n_rows, then);
    if (then && form == PI__FORM_W4A8) return pi__k_w4a8_linear_then(stream, p, n, prepared, n_rows, then);
    if (then) return pi__k_linear_then(stream, p, n, prepared, n_rows, then);
    if (form == PI__FORM_W16 && c->f.wgmma && n_rows > PI__K_MMA_ROWS)
        return pi__k_wgmma_linear(stream, p, n, prepared, n_rows, c->info.n_sm);
    if (form != PI__FORM_HILO) return pi__cuda_product(stream, form, p, n, prepared, n_rows, &split);
    for (int32_t i = 0; i < n && !code; i++) code = pi__cuda_blas_product(c->blas, stream, &p[i], prepared, n_rows);
    return code;
}

/* Packs the linear's input in both formats that matrices i to i + n - 1 read (floats or terms, and 16-bit floats), in
 * one launch. Does nothing if they read only one format, or if `ready` has that input already. */
static void prepare_both(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, int32_t i, int32_t n)
{
    const pi__linear these = pi__linear_part(a, i, n);
    pi__k_tail t = {.n_rows = 0};
    pi__cuda_add_targets(c, &these, c->scratch + c->at.prepared, c->scratch + c->at.floats, &t);
    const bool some = ready->n_rows == a->n_rows && ready->n_in == t.n_in && same_input(&ready->in, &t.in);
    if (some || (!t.floats && !t.terms) || !t.halves) return;
    PI__QUEUE(c, pi__k_finish_rows(pi__rt_stream(c->rt), &t));
    *ready = pi__cuda_packed_by(&t);
}

static pi__k_product product_of(const pi__linear *a, int32_t i)
{
    return (pi__k_product) {.w = pi__cuda_matrix(a->lin[i].w), .y = a->lin[i].y, .ldy = a->lin[i].ldy};
}

/* Queues n matrices of several types, from i on, as one launch with extra work `more`. then: epilogue, or NULL. */
static void queue_mixed(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, int32_t i, int32_t n,
                        const pi__k_tail *then, const pi__k_mixed_more *more)
{
    pi__k_product p[PI__K_MAX_MIXED];
    const void *x[2] = {NULL, NULL}; /* packed 16-bit floats; floats or terms */
    prepare_both(c, ready, a, i, n);
    for (int32_t k = 0; k < n; k++) {
        const int form = pi__form_of(&c->f, a, i + k);
        p[k] = product_of(a, i + k);
        x[form != PI__FORM_W16] = pi__cuda_packed_x(c, ready, form, &a->in, p[k].w.type, a->n_rows, p[k].w.n_in);
    }
    void *stream = pi__rt_stream(c->rt);
    PI__QUEUE(c, pi__k_mixed_linear_more(stream, p, n, x[0], x[1], a->n_rows, then, more));
}

static const pi__k_mixed_more NO_MORE = {.choice = NULL};

void pi__cuda_queue_more(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, const pi__k_tail *then,
                         const pi__k_mixed_more *more)
{
    for (int32_t i = 0, n; i < a->n_lin; i += n) {
        const int32_t mixed = c->f.fuses ? pi__run_of_mixed(&c->f, a, i) : 0;
        const bool last = i + mixed == a->n_lin;
        const pi__k_tail *tail = last ? then : NULL; /* epilogue of the mixed launch */
        pi__k_product p[PI__K_MAX_MMA16]; /* max for matrices of one type */
        n = pi__run_of_type(&c->f, a, i);
        if (mixed > n || (mixed > 1 && a->lin[i].w->type == PI__F32) ||
            (mixed && last && (more->latent || more->streams)) ||
            (mixed && tail && (tail->routes.n_rows || a->lin[i].w->type == PI__F32))) {
            n = mixed;
            queue_mixed(c, ready, a, i, n, tail, last ? more : &NO_MORE);
            continue;
        }
        for (int32_t m = 0; m < n; m++) p[m] = product_of(a, i + m);
        const int32_t type = p->w.type, form = pi__linear_form(&c->f, type, a);
        void *x = pi__cuda_packed_x(c, ready, form, &a->in, type, a->n_rows, p->w.n_in);
        PI__QUEUE(c, multiply(c, form, p, n, x, a->n_rows, i + n < a->n_lin ? NULL : then));
    }
}

void pi__cuda_queue_down(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, const pi__k_down *down,
                         const pi__k_tail *then)
{
    const pi__k_product p = product_of(a, 0);
    const void *x = pi__cuda_packed_x(c, ready, PI__FORM_W16, &a->in, p.w.type, a->n_rows, p.w.n_in);
    PI__QUEUE(c, pi__k_w16_down_shared(pi__rt_stream(c->rt), down, &p, x, then));
}

void pi__cuda_queue_added(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, const pi__add_norm *add)
{
    const pi__k_product p = {pi__cuda_matrix(a->lin[0].w), add->x, add->n, add->scale};
    const int form = pi__linear_form(&c->f, p.w.type, a);
    const void *x = pi__cuda_packed_x(c, ready, form, &a->in, p.w.type, a->n_rows, p.w.n_in);
    PI__QUEUE(c, multiply(c, form, &p, 1, x, a->n_rows, NULL));
}

/* The gate and up matrices of linear a, which has two matrices, or one with the rows of gate and then of up. */
static pi__k_glu glu_of(const pi__linear *a, const pi__linear *next)
{
    const pi__weight *w2 = a->lin[a->n_lin - 1].w;
    const int64_t n = next->lin[0].w->n_in;
    pi__k_glu g = {.gate = pi__cuda_matrix(a->lin[0].w), .act = next->in.kind, .limit = next->in.limit};
    g.gate.n_out = n;
    g.up = a->n_lin == 2 ? w2->data : g.gate.data + (size_t) (n / 16) * g.gate.shape.tile_bytes;
    g.up_scale = w2->scale;
    return g;
}

/* pi__cuda_queue_glu for gate and up in 16-bit floats; `next` may have any type with 16-bit input. */
static void queue_glu_16(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, const pi__linear *next)
{
    const int32_t mid_type = pi__cuda_packed_type(next->lin[0].w->type), rows = a->n_rows;
    const pi__lin_in *reads = &next->in;
    const pi__k_split split = split_of(c);
    const pi__k_glu g = glu_of(a, next);
    const void *x = pi__cuda_packed_x(c, ready, PI__FORM_W16, &a->in, g.gate.type, rows, g.gate.n_in);
    const pi__k_w16_glu both = {
        .gate = g.gate,
        .up = g.up,
        .up_scale = g.up_scale,
        .act = g.act,
        .limit = reads->limit,
        .y = a->lin[0].y,
        .ldy = reads->ldx,
        .most = (uint32_t *) (void *) (c->scratch + c->at.row_most),
        .mid_type = mid_type,
        .mid = c->scratch + c->at.prepared,
        .waits = pi__cuda_waits(c),
        .arrived = rows <= pi__tail_rows(&c->f) ? (uint32_t *) (void *) (c->scratch + c->at.arrived) : NULL};
    if (rows <= PI__K_MMA_ROWS) PI__QUEUE(c, pi__k_w16_glu_few(pi__rt_stream(c->rt), &both, x, rows));
    else if (c->f.wgmma) PI__QUEUE(c, pi__k_wgmma_glu_run(pi__rt_stream(c->rt), &both, x, rows, c->info.n_sm));
    else PI__QUEUE(c, pi__k_w16_glu_run(pi__rt_stream(c->rt), &both, x, rows, &split));
    *ready = (cuda_packed_x) {.in = pi__cuda_input(reads),
                              .n_rows = rows,
                              .n_in = g.gate.n_out,
                              .what = {known_by(PI__FORM_W16, pi__w16_input(&c->f, mid_type)), -1},
                              .where = {both.mid, NULL}};
}

void pi__cuda_queue_glu(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, const pi__linear *next)
{
    const int form = pi__form_of(&c->f, next, 0);
    const int32_t rows = a->n_rows;
    pi__k_glu g = glu_of(a, next);
    if (form == PI__FORM_W16) {
        queue_glu_16(c, ready, a, next);
        return;
    }
    g.fp8 = form == PI__FORM_W4A8, g.mid = c->scratch + c->at.mid;
    g.arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived), g.waits = pi__cuda_waits(c);
    const void *x = pi__cuda_packed_x(c, ready, form, &a->in, g.gate.type, rows, g.gate.n_in);
    PI__QUEUE(c, pi__k_fp4_glu(pi__rt_stream(c->rt), &g, x, rows));
    *ready = (cuda_packed_x) {.in = pi__cuda_input(&next->in), .n_rows = rows, .n_in = g.gate.n_out,
                              .what = {known_by(form, g.gate.type), -1}, .where = {g.mid, NULL}};
}

/* Runs a linear of any number of rows in pieces of PI__CUDA_FEW_ROWS rows. */
static void linear_in_pieces(pi__cuda *c, const pi__linear *a)
{
    for (int32_t i = 0; i < a->n_rows; i += PI__CUDA_FEW_ROWS) {
        cuda_packed_x none = {.n_rows = 0};
        pi__linear part = *a;
        part.n_rows = a->n_rows - i < PI__CUDA_FEW_ROWS ? a->n_rows - i : PI__CUDA_FEW_ROWS;
        part.in.x += i * a->in.ldx;
        if (part.in.x2) part.in.x2 += i * a->in.ldx2;
        for (int32_t k = 0; k < a->n_lin; k++) part.lin[k].y += i * a->lin[k].ldy;
        pi__cuda_queue_linear(c, &none, &part);
    }
}

void pi__cuda_queue_linear(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a)
{
    if (pi__is_mix(&c->f, a)) pi__cuda_queue_streams(c, NULL, a, NULL, NULL);
    else if (c->f.disabled.many_rows && a->n_rows > PI__CUDA_FEW_ROWS) linear_in_pieces(c, a);
    else pi__cuda_queue_more(c, ready, a, NULL, &NO_MORE);
}

void pi__cuda_linear(pi__backend *be, const pi__batch *b, const pi__linear *a)
{
    cuda_packed_x none = {.n_rows = 0};
    (void) b;
    pi__cuda_queue_linear((pi__cuda *) be, &none, a);
}

/* Ops that are one kernel with the op's own struct. */
#define ROW_OP(name, type)                                                                                             \
    void pi__cuda_##name(pi__backend *be, const pi__batch *b, const type *a)                                           \
    {                                                                                                                  \
        pi__cuda *c = (pi__cuda *) be;                                                                                 \
        (void) b;                                                                                                      \
        PI__QUEUE(c, pi__k_##name(pi__rt_stream(c->rt), a));                                                           \
    }
PI__OPS_ROWS(ROW_OP)
#undef ROW_OP

const float *pi__cuda_frequencies(pi__cuda *c, const float *freq, int32_t n)
{
    for (int32_t i = 0; i < PI__CUDA_MAX_ROPES && n <= PI__CUDA_MAX_FREQ; i++) {
        cuda_freq *f = &c->freq[i];
        float *at = (float *) (c->scratch + c->at.freq) + i * PI__CUDA_MAX_FREQ;
        if (f->host == freq && f->n == n) return at;
        if (f->host) continue;
        pi__cuda_upload(c, at, freq, (size_t) n * sizeof *at);
        if (pi__cuda_queues(c)) *f = (cuda_freq) {freq, n};
        return at;
    }
    c->no_room = true;
    return NULL;
}

void pi__cuda_rope(pi__backend *be, const pi__batch *b, const pi__rope *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const float *f = pi__cuda_frequencies(c, a->freq, a->n_freq);
    pi__rope own = *a;
    own.freq = f;
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    const bool parts = a->section[0] || a->section[1] || a->section[2];
    PI__QUEUE(c, pi__k_rope(pi__rt_stream(c->rt), d->pos, parts ? d->rope_pos : NULL, b->n_tokens, &own));
}

void pi__cuda_block_conv(pi__backend *be, const pi__batch *b, const pi__block_conv *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    PI__QUEUE(c, pi__k_block_conv(pi__rt_stream(c->rt), a, d->seq, d->seq_start, b->n_tokens));
}

static pi__k_cache cache_of(const pi__batch *b, const pi__kv_layer *kv)
{
    return (pi__k_cache) {kv->base, kv->stride, kv->type_k, kv->type_v, kv->n_head_kv, kv->head_dim,
                          b->kv[kv->group].block_size};
}

pi__k_qkv pi__cuda_heads(const pi__cuda *c, const pi__batch *b, const pi__qkv *a)
{
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    bool store = a->k && d->slot[a->kv->group];
    return (pi__k_qkv) {
        .q = a->q,
        .ldq = a->ldq,
        .q_stride = a->q_stride ? a->q_stride : a->kv->head_dim,
        .k = store ? a->k : NULL,
        .v = store ? a->v : NULL,
        .ldk = a->ldk,
        .ldv = a->ldv,
        .n_head = a->n_head,
        .n_tokens = b->n_tokens,
        .q_bias = a->q_bias,
        .k_bias = a->k_bias,
        .v_bias = a->v_bias,
        .q_norm = a->q_norm,
        .k_norm = a->k_norm,
        .v_norm = a->v_norm,
        .norm_last = a->norm_last,
        .eps = a->eps,
        .rope = a->rope,
        .q_rope = a->q_rope ? a->q_rope : a->rope,
        .n_rot = a->n_rot,
        .pair_stride = a->pair_stride,
        .q_scale = a->q_scale,
        .slot = d->slot[a->kv->group],
        .cache = cache_of(b, a->kv),
    };
}

void pi__cuda_qkv(pi__backend *be, const pi__batch *b, const pi__qkv *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const pi__k_qkv k = pi__cuda_heads(c, b, a);
    PI__QUEUE(c, pi__k_qkv_run(pi__rt_stream(c->rt), &k));
}

/* Returns the largest number of keys of a sequence: the bound of pi__max_keys for bidirectional attention. */
static int32_t longest(const pi__batch *b)
{
    int32_t most = 0;
    for (int32_t s = 0; s < b->n_seqs; s++) most = b->seq_len[s] > most ? b->seq_len[s] : most;
    return most;
}

/* Returns an upper bound of pi__max_keys(b, window) for captured steps, where the host does not know positions.
 * keys: upper bound of the keys that a token sees. All sequences of a captured step have equally many tokens. */
static int32_t seen_of(const pi__batch *b, int32_t keys, int32_t window)
{
    const int32_t seen = window + b->n_tokens / b->n_seqs - 1;
    return window > 0 && seen < keys ? seen : keys;
}

/* Queues the selection of key blocks for the batch's query blocks, once for the adjacent query blocks of each sequence.
 * Then sets the fields of k for sparse prefill: its sequences become the runs of the batch. */
static void choose_keys(pi__cuda *c, const pi__batch *b, const pi__attention *a, pi__k_attn *k)
{
    const pi__runs *r = &b->runs;
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    k->taken = (const uint32_t *) (void *) (c->scratch + c->at.taken);
    k->taken_words = (c->f.lim.key_blocks + 31) / 32;
    for (int32_t i = 0, end; i < r->n; i = end) {
        end = i + 1;
        if (r->block[i] < 0) continue;
        while (end < r->n && r->seq[end] == r->seq[i] && r->block[end] >= 0) end++;
        const pi__k_blocks blocks = {
            .a = *k, .sparsity = a->sparsity, .seq = r->seq[i], .first_token = r->start[i],
            .first_key = b->pos[r->start[i]] / PI__SPARSE_BLOCK, .first_block = r->block[i], .n = end - i,
            .taken = (uint32_t *) (void *) (c->scratch + c->at.taken), .scratch = c->scratch + c->at.key_blocks,
            .counts = (unsigned long long *) (void *) (c->scratch + c->at.counts),
        };
        PI__QUEUE(c, pi__k_blocks_run(pi__rt_stream(c->rt), &blocks));
    }
    k->run_seq = d->run_seq;
    k->run_block = d->run_block;
    k->seq_start = d->run_start;
    k->n_seqs = r->n;
    c->counts = true;
}

void pi__cuda_attention(pi__backend *be, const pi__batch *b, const pi__attention *a)
{
    pi__cuda_queue_attention((pi__cuda *) be, b, a, NULL);
}

void pi__cuda_queue_attention(pi__cuda *c, const pi__batch *b, const pi__attention *a, const pi__k_tail *then)
{
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    const int64_t q_stride = a->q_stride ? a->q_stride : a->kv->head_dim;
    const bool turn = pi__kv_rotated(a->kv->type_v);
    pi__k_attn k = {
        .q = a->q,
        .ldq = a->ldq,
        .q_stride = q_stride,
        .gate = turn ? NULL : a->gate,
        .out = a->out,
        .ldo = a->ldo,
        .n_head = a->n_head,
        .window = a->window,
        .first = a->first,
        .past = a->past,
        .softcap = a->softcap,
        .sinks = a->sinks,
        .rel = a->rel,
        .n_rel = a->n_rel,
        .n_tokens = b->n_tokens,
        .n_seqs = b->n_seqs,
        .pos = d->pos,
        .seq_start = d->seq_start,
        .block_table = d->table[a->kv->group],
        .table_stride = b->kv[a->kv->group].table_stride,
        .seq_len = a->block ? d->seq_len : NULL,
        .max_keys = d->keys ? seen_of(b, d->keys, a->window) : a->block ? longest(b) : pi__max_keys(b, a->window),
        .cache = cache_of(b, a->kv),
        .scratch = c->f.disabled.splits ? NULL : c->scratch + c->at.kv_splits,
        .scratch_size = c->at.lora - c->at.kv_splits,
        .arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived) + 1,
        .waits = pi__cuda_waits(c),
        .n_sm = c->info.n_sm,
        .block = a->block,
        .ahead = a->ahead,
        .see_to = a->spans ? d->see_to : NULL,
        .tail = then,
        .fast = c->one_f16,
        .wgmma = c->info.arch == 90 && !c->f.disabled.wgmma_attention,
    };
    if (a->sparsity > 0 && b->runs.n_blocks && !c->f.disabled.key_blocks) choose_keys(c, b, a, &k);
    PI__QUEUE(c, pi__k_attention(pi__rt_stream(c->rt), &k));
    pi__k_unrotate t = {
        .out = a->out, .ldo = a->ldo, .gate = a->gate, .ldg = a->ldq, .gate_stride = q_stride, .n_tokens = b->n_tokens,
        .n_head = a->n_head, .head_dim = a->kv->head_dim,
    };
    if (turn) PI__QUEUE(c, pi__k_unrotate_run(pi__rt_stream(c->rt), &t));
}

void pi__cuda_add_rows(pi__backend *be, const pi__batch *b, const pi__add_rows *a)
{
    (void) b;
    pi__cuda *c = (pi__cuda *) be;
    const int32_t *row = a->row == c->batch[0].host.pos ? c->batch[0].pos : pi__cuda_rows(c, a->row, a->n_rows);
    PI__QUEUE(c, pi__k_add_rows(pi__rt_stream(c->rt), a, row));
}

void pi__cuda_place_rows(pi__backend *be, const pi__batch *b, const pi__place_rows *a)
{
    (void) b;
    pi__cuda *c = (pi__cuda *) be;
    const int32_t *row = pi__cuda_rows(c, a->row, a->n_rows);
    PI__QUEUE(c, pi__k_place_rows(pi__rt_stream(c->rt), a, row));
}

void pi__cuda_gather_rows(pi__backend *be, const pi__batch *b, const pi__gather_rows *a)
{
    (void) b;
    pi__cuda *c = (pi__cuda *) be;
    const int32_t *at = c->batch[0].logits_indices;
    for (int i = 0; i < 2; i++)
        if (a->row == c->batch[i].host.owner) at = c->batch[i].owner;
    if (a->row == c->batch[0].host.hidden_row) at = c->batch[0].hidden_row;
    if (at == c->batch[0].logits_indices && a->row != c->batch[0].host.logits_indices) {
        at = pi__cuda_rows(c, a->row, a->n_rows); /* not an array of the batch, so it is not in device memory yet */
    }
    PI__QUEUE(c, pi__k_gather_rows(pi__rt_stream(c->rt), a->x, at, a->n_rows, a->n, a->out));
}
