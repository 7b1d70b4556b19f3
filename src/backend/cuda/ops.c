/* The ops of transformers (linear, qkv, attention, ..): each converts its struct of ops.h to the kernels' struct, and
 * queues the kernels (see kernels.h). No memory of its own; the step thread. */
#include "backend/cuda/impl.h"

#include "backend/cuda/kernels_floats.h"
#include "backend/cuda/kernels_mma16.h"
#include "backend/cuda/kernels_w16_glu.h"
#include "formats/formats.h"

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

void pi__cuda_embed(pi__backend *be, const pi__batch *b, const pi__embed *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    const int32_t *row = d->embd_row ? d->embd_row : d->token;
    pi__k_matrix m = pi__cuda_matrix(a->w);
    PI__QUEUE(c, pi__k_embed(pi__rt_stream(c->rt), &m, row, b->n_tokens, a->scale, a->out));
}

int pi__cuda_form(int matmul_modes, int32_t type, int64_t n_in)
{
    const bool fp4 = type == PI__NVFP4 || type == PI__MXFP4;
    if (matmul_modes & PI__WAY_FP4 && fp4) return PI__FORM_FP4;
    if (matmul_modes & PI__WAY_W4A8 && type == PI__MXFP4) return PI__FORM_W4A8;
    if (matmul_modes & PI__WAY_W4A16 && fp4) return PI__FORM_W16;
    if (matmul_modes & PI__WAY_MMA16 && pi__k_mma16_has(type, n_in)) return PI__FORM_MMA16;
    if (matmul_modes & PI__WAY_W16 && pi__k_w16_has(type)) return PI__FORM_W16;
    return pi__type_is_float(type) ? PI__FORM_FLOATS : PI__FORM_INTEGERS;
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

static bool same_input(const pi__k_input *a, const pi__k_input *b)
{
    return a->kind == b->kind && a->x == b->x && a->ldx == b->ldx && a->x2 == b->x2 && a->ldx2 == b->ldx2 &&
           a->w == b->w && a->eps == b->eps && a->limit == b->limit;
}

/* Returns the key of a packed input: the activation format and, for formats that depend on it, `like`: the matrix type,
 * or for W16 1 = BF16, 0 = F16. */
static int known_by(int form, int like) { return form > PI__FORM_FLOATS ? form + 16 * (like + 1) : form; }

void pi__cuda_set_packed(pi__cuda *c, const pi__k_tail *t)
{
    c->ready = (cuda_packed_x) {.in = t->in, .n_rows = t->n_rows, .n_in = t->n_in, .what = {-1, -1}};
    if (t->integers) c->ready.what[0] = PI__FORM_INTEGERS, c->ready.where[0] = t->integers;
    if (t->halves) c->ready.what[0] = known_by(PI__FORM_W16, t->bf16), c->ready.where[0] = t->halves;
    if (t->terms) c->ready.what[1] = known_by(PI__FORM_MMA16, t->terms_type), c->ready.where[1] = t->terms;
    if (t->floats) c->ready.what[1] = PI__FORM_FLOATS, c->ready.where[1] = t->floats;
    if (t->fp4)
        c->ready.what[0] = known_by(t->fp8 ? PI__FORM_W4A8 : PI__FORM_FP4, t->fp4_type), c->ready.where[0] = t->fp4;
}

bool pi__cuda_reads_in_place(int form, const pi__k_input *in, int32_t n_rows, int64_t n_in)
{
    return form == PI__FORM_FLOATS && in->kind == PI__IN_PLAIN && (in->ldx == n_in || n_rows == 1);
}

/* Like pi__cuda_pack_x(). If fusing is enabled, inputs without a gate in format W16 use pi__k_finish_rows(), which
 * reads each value once. */
static int prepare(pi__cuda *c, int form, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *to)
{
    void *stream = pi__rt_stream(c->rt);
    if (!c->fuses || form != PI__FORM_W16 || in->x2) return pi__cuda_pack_x(stream, form, in, type, n_rows, n_in, to);
    const pi__k_tail rounds = {.n_rows = n_rows, .in = *in, .n_in = n_in, .halves = to, .bf16 = pi__k_w16_input(type)};
    return pi__k_finish_rows(stream, &rounds);
}

void *pi__cuda_packed_x(pi__cuda *c, int form, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in)
{
    cuda_packed_x *r = &c->ready;
    if (pi__cuda_reads_in_place(form, in, n_rows, n_in)) return (void *) (uintptr_t) in->x;
    const bool apart = form == PI__FORM_FLOATS || (form == PI__FORM_MMA16 && n_rows <= pi__cuda_tail_rows(c));
    const int at = apart ? 1 : 0, what = known_by(form, form == PI__FORM_W16 ? pi__k_w16_input(type) : type);
    if (r->n_rows != n_rows || r->n_in != n_in || !same_input(&r->in, in))
        *r = (cuda_packed_x) {.in = *in, .n_rows = n_rows, .n_in = n_in, .what = {-1, -1}};
    if (r->what[at] != what) {
        r->where[at] = c->scratch + (at ? c->at.floats : c->at.prepared);
        PI__QUEUE(c, prepare(c, form, in, type, n_rows, n_in, r->where[at]));
    }
    r->what[at] = what;
    return r->where[at];
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
    if (form == PI__FORM_W16 && c->wgmma && n_rows > PI__K_MMA_ROWS)
        return pi__k_wgmma_linear(stream, p, n, prepared, n_rows, c->info.n_sm);
    if (form != PI__FORM_HILO) return pi__cuda_product(stream, form, p, n, prepared, n_rows, &split);
    for (int32_t i = 0; i < n && !code; i++) code = pi__cuda_blas_product(c->blas, stream, &p[i], prepared, n_rows);
    return code;
}

/* Runs a linear of any number of rows in pieces of PI__CUDA_FEW_ROWS rows. */
static void linear_in_pieces(pi__backend *be, const pi__batch *b, const pi__linear *a)
{
    for (int32_t i = 0; i < a->n_rows; i += PI__CUDA_FEW_ROWS) {
        pi__linear part = *a;
        part.n_rows = a->n_rows - i < PI__CUDA_FEW_ROWS ? a->n_rows - i : PI__CUDA_FEW_ROWS;
        part.in.x += i * a->in.ldx;
        if (part.in.x2) part.in.x2 += i * a->in.ldx2;
        for (int32_t k = 0; k < a->n_lin; k++) part.lin[k].y += i * a->lin[k].ldy;
        pi__cuda_linear(be, b, &part);
    }
}

int pi__cuda_linear_form(const pi__cuda *c, int32_t type, const pi__linear *a)
{
    const int form = pi__cuda_form(c->matmul_modes, type, a->lin[0].w->n_in);
    return form == PI__FORM_MMA16 && c->blas && a->n_rows >= PI__CUDA_BLAS_ROWS ? PI__FORM_HILO : form;
}

/* Returns the activation format of the linear's matrix i. */
static int form_of(const pi__cuda *c, const pi__linear *a, int32_t i)
{
    return pi__cuda_linear_form(c, pi__cuda_packed_type(a->lin[i].w->type), a);
}

/* True if matrix i of the linear can be in a mixed launch (matrices of several types), also as the last matrix of a
 * launch with an epilogue. */
static bool mixes(const pi__cuda *c, const pi__linear *a, int32_t i)
{
    const int form = form_of(c, a, i);
    if (form == PI__FORM_FLOATS) return a->lin[i].w->type == PI__F32 && a->n_rows <= PI__K_ROUTER_ROWS;
    return form == PI__FORM_W16 && a->n_rows <= PI__K_MIXED_ROWS;
}

/* Returns the packed 16-bit format that matrix i reads: 0 = F16, 1 = BF16. */
static int w16_input(const pi__linear *a, int32_t i)
{
    return pi__k_w16_input(pi__cuda_packed_type(a->lin[i].w->type));
}

/* True if matrix i can be in a mixed launch with its input as 16-bit terms. Then it may not be the last matrix of a
 * launch with an epilogue. */
static bool mixes_terms(const pi__cuda *c, const pi__linear *a, int32_t i)
{
    return form_of(c, a, i) == PI__FORM_MMA16 && a->n_rows <= PI__K_MIXED_ROWS && a->n_rows <= pi__cuda_tail_rows(c);
}

/* Returns the number of matrices, from i on, that fit into one mixed launch. Matrices that read packed 16-bit floats
 * must agree on F16 or BF16. The other matrices must have one type, as floats and terms use the same region of
 * scratch. */
static int32_t run_of_mixed(const pi__cuda *c, const pi__linear *a, int32_t i)
{
    int32_t n = 0, like = -1, other = -1;
    for (; i + n < a->n_lin && n < PI__K_MAX_MIXED; n++) {
        const bool packed = form_of(c, a, i + n) == PI__FORM_W16;
        int32_t *const one = packed ? &like : &other, own = packed ? w16_input(a, i + n) : a->lin[i + n].w->type;
        if (!mixes(c, a, i + n) && !mixes_terms(c, a, i + n)) break;
        if (*one >= 0 && *one != own) break;
        *one = own;
    }
    return n;
}

/* Returns the number of matrices of one type, from i on, that fit into one launch. */
static int32_t run_of_type(const pi__cuda *c, const pi__linear *a, int32_t i)
{
    const int32_t most = form_of(c, a, i) == PI__FORM_MMA16 ? PI__K_MAX_MMA16 : PI__K_MAX_LINEAR;
    int32_t n = 1;
    while (n < most && i + n < a->n_lin && a->lin[i + n].w->type == a->lin[i].w->type) n++;
    return n;
}

bool pi__cuda_has_tail(const pi__cuda *c, const pi__linear *a)
{
    const int form = form_of(c, a, a->n_lin - 1);
    if (a->n_rows < 1 || a->n_rows > pi__cuda_tail_rows(c)) return false;
    if (form == PI__FORM_FP4 || form == PI__FORM_W4A8) return true;
    return form == PI__FORM_W16 || form == PI__FORM_INTEGERS || mixes(c, a, a->n_lin - 1);
}

bool pi__cuda_has_routes(const pi__cuda *c, const pi__linear *a, int32_t n_expert)
{
    return a->n_rows > 0 && mixes(c, a, a->n_lin - 1) && n_expert <= PI__MAX_EXPERTS;
}

bool pi__cuda_reads_same(const pi__cuda *c, const pi__linear *a, const pi__linear *next)
{
    const pi__k_input from = pi__cuda_input(&a->in), in = pi__cuda_input(&next->in);
    const int form = form_of(c, next, 0);
    bool same = false;
    for (int32_t i = 0; i < a->n_lin; i++)
        same = same || (form_of(c, a, i) == form && (form != PI__FORM_W16 || w16_input(a, i) == w16_input(next, 0)));
    return same && same_input(&from, &in);
}

/* Packs the linear's input in both formats that matrices i to i + n - 1 read (floats or terms, and 16-bit floats), in
 * one launch. Does nothing if they read only one format, or if c->ready has that input already. */
static void prepare_both(pi__cuda *c, const pi__linear *a, int32_t i, int32_t n)
{
    pi__linear these = {.in = a->in, .n_rows = a->n_rows, .n_lin = n};
    pi__k_tail t = {.n_rows = 0};
    for (int32_t k = 0; k < n; k++) these.lin[k] = a->lin[i + k];
    pi__cuda_add_targets(c, &these, c->scratch + c->at.prepared, c->scratch + c->at.floats, &t);
    const bool some = c->ready.n_rows == a->n_rows && c->ready.n_in == t.n_in && same_input(&c->ready.in, &t.in);
    if (some || (!t.floats && !t.terms) || !t.halves) return;
    PI__QUEUE(c, pi__k_finish_rows(pi__rt_stream(c->rt), &t));
    pi__cuda_set_packed(c, &t);
}

/* Queues n matrices of several types, from i on, as one launch with extra work `more`. then: epilogue, or NULL. */
static void queue_mixed(pi__cuda *c, const pi__linear *a, int32_t i, int32_t n, const pi__k_tail *then,
                        const pi__k_mixed_more *more)
{
    prepare_both(c, a, i, n);
    const pi__k_input in = pi__cuda_input(&a->in);
    pi__k_product p[PI__K_MAX_MIXED];
    const void *x[2] = {NULL, NULL}; /* packed 16-bit floats; floats or terms */
    for (int32_t k = 0; k < n; k++) {
        const pi__k_matrix m = pi__cuda_matrix(a->lin[i + k].w);
        const int form = form_of(c, a, i + k);
        p[k] = (pi__k_product) {.w = m, .y = a->lin[i + k].y, .ldy = a->lin[i + k].ldy};
        x[form != PI__FORM_W16] = pi__cuda_packed_x(c, form, &in, m.type, a->n_rows, m.n_in);
    }
    void *stream = pi__rt_stream(c->rt);
    PI__QUEUE(c, pi__k_mixed_linear_more(stream, p, n, x[0], x[1], a->n_rows, then, more));
}

static const pi__k_mixed_more NO_MORE = {.choice = NULL};

void pi__cuda_queue_more(pi__cuda *c, const pi__linear *a, const pi__k_tail *then, const pi__k_mixed_more *more)
{
    pi__k_input k = pi__cuda_input(&a->in);
    for (int32_t i = 0, n; i < a->n_lin; i += n) {
        const int32_t mixed = c->fuses ? run_of_mixed(c, a, i) : 0;
        const bool last = i + mixed == a->n_lin;
        const pi__k_tail *tail = last ? then : NULL; /* epilogue of the mixed launch */
        pi__k_product p[PI__K_MAX_MMA16]; /* max for matrices of one type */
        n = run_of_type(c, a, i);
        if (mixed > n || (mixed > 1 && a->lin[i].w->type == PI__F32) ||
            (mixed && last && (more->latent || more->streams)) ||
            (mixed && tail && (tail->routes.n_rows || a->lin[i].w->type == PI__F32))) {
            n = mixed;
            queue_mixed(c, a, i, n, tail, last ? more : &NO_MORE);
            continue;
        }
        for (int32_t m = 0; m < n; m++)
            p[m] = (pi__k_product) {
                .w = pi__cuda_matrix(a->lin[i + m].w), .y = a->lin[i + m].y, .ldy = a->lin[i + m].ldy};
        const int32_t type = p->w.type, form = pi__cuda_linear_form(c, type, a);
        void *x = pi__cuda_packed_x(c, form, &k, type, a->n_rows, p->w.n_in);
        PI__QUEUE(c, multiply(c, form, p, n, x, a->n_rows, i + n < a->n_lin ? NULL : then));
    }
}

void pi__cuda_queue_linear(pi__cuda *c, const pi__linear *a, const pi__k_tail *then)
{
    pi__cuda_queue_more(c, a, then, &NO_MORE);
}

bool pi__cuda_has_latent(const pi__cuda *c, const pi__linear *a)
{
    return a->n_rows > 0 && a->n_rows <= PI__K_MIXED_ROWS && run_of_mixed(c, a, 0) == a->n_lin;
}

bool pi__cuda_has_streams(const pi__cuda *c, const pi__linear *a)
{
    return a->n_lin == 1 && a->lin[0].w->type != PI__F32 && a->n_rows <= pi__cuda_tail_rows(c) &&
           pi__cuda_has_latent(c, a);
}

bool pi__cuda_fits_down_launch(const pi__cuda *c, const pi__linear *a)
{
    return a->n_lin == 1 && a->n_rows <= PI__K_DOWN_ROWS && form_of(c, a, 0) == PI__FORM_W16;
}

void pi__cuda_queue_down(pi__cuda *c, const pi__linear *a, const pi__k_down *down, const pi__k_tail *then)
{
    const pi__k_input in = pi__cuda_input(&a->in);
    const pi__k_product p = {.w = pi__cuda_matrix(a->lin[0].w), .y = a->lin[0].y, .ldy = a->lin[0].ldy};
    const void *x = pi__cuda_packed_x(c, PI__FORM_W16, &in, p.w.type, a->n_rows, p.w.n_in);
    PI__QUEUE(c, pi__k_w16_down_shared(pi__rt_stream(c->rt), down, &p, x, then));
}

bool pi__cuda_queue_added(pi__cuda *c, const pi__linear *a, const pi__k_add *add)
{
    const pi__weight *w = a->lin[0].w;
    const int32_t type = pi__cuda_packed_type(w->type), form = pi__cuda_linear_form(c, type, a);
    const bool fp4 = form == PI__FORM_FP4 || form == PI__FORM_W4A8;
    const pi__k_input in = pi__cuda_input(&a->in);
    if (a->n_lin != 1 || add->w || add->bias || add->fresh || add->scale == 0) return false;
    if (add->y != a->lin[0].y || a->lin[0].ldy != add->n || w->n_out != add->n) return false;
    if (fp4 ? !pi__k_fp4_adds(a->n_rows) : form != PI__FORM_W16 || !pi__k_w16_adds(a->n_rows)) return false;
    const pi__k_product p = {pi__cuda_matrix(w), add->x, add->n, add->scale};
    const void *x = pi__cuda_packed_x(c, form, &in, type, a->n_rows, w->n_in);
    PI__QUEUE(c, multiply(c, form, &p, 1, x, a->n_rows, NULL));
    return true;
}

/* Fills g with the gate and up matrices of linear a, which has two matrices, or one with the rows of gate and then of
 * up. Returns false if their results are not reads->x and reads->x2, with n values per row each. */
static bool halves_of(const pi__linear *a, const pi__lin_in *reads, int64_t n, pi__k_glu *g)
{
    const pi__weight *w = a->lin[0].w, *w2 = a->lin[a->n_lin - 1].w;
    if (a->n_lin > 2 || a->lin[0].y != reads->x || a->lin[0].ldy != reads->ldx || w->type != w2->type) return false;
    g->gate = pi__cuda_matrix(w);
    g->gate.n_out = n;
    g->up = a->n_lin == 2 ? w2->data : g->gate.data + (size_t) (n / 16) * g->gate.shape.tile_bytes;
    g->up_scale = w2->scale;
    if (a->n_lin == 1) return w->n_out == 2 * n && reads->x2 == reads->x + n && reads->ldx2 == reads->ldx;
    return w->n_out == n && w2->n_out == n && a->lin[1].y == reads->x2 && a->lin[1].ldy == reads->ldx2;
}

/* pi__cuda_queue_glu for gate and up in 16-bit floats; `next` may have any type with 16-bit input. */
static bool queue_glu_16(pi__cuda *c, const pi__linear *a, const pi__linear *next)
{
    const int32_t mid_type = pi__cuda_packed_type(next->lin[0].w->type), rows = a->n_rows;
    const pi__lin_in *reads = &next->in;
    const pi__k_input in = pi__cuda_input(&a->in);
    const pi__k_split split = split_of(c);
    const int64_t n = next->lin[0].w->n_in;
    pi__k_glu g = {.act = reads->kind};
    const bool few = rows <= PI__K_MMA_ROWS;
    if (!halves_of(a, reads, n, &g) || (!few && c->wgmma && !pi__k_wgmma_has_glu(g.gate.type))) return false;
    if (pi__cuda_linear_form(c, g.gate.type, a) != PI__FORM_W16 || n % 32 || reads->ldx % 4 ||
        (uintptr_t) reads->x % 16)
        return false;
    const void *x = pi__cuda_packed_x(c, PI__FORM_W16, &in, g.gate.type, rows, g.gate.n_in);
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
        .arrived = rows <= pi__cuda_tail_rows(c) ? (uint32_t *) (void *) (c->scratch + c->at.arrived) : NULL};
    if (few) PI__QUEUE(c, pi__k_w16_glu_few(pi__rt_stream(c->rt), &both, x, rows));
    else if (c->wgmma) PI__QUEUE(c, pi__k_wgmma_glu_run(pi__rt_stream(c->rt), &both, x, rows, c->info.n_sm));
    else PI__QUEUE(c, pi__k_w16_glu_run(pi__rt_stream(c->rt), &both, x, rows, &split));
    c->ready = (cuda_packed_x) {.in = pi__cuda_input(reads),
                                .n_rows = rows,
                                .n_in = n,
                                .what = {known_by(PI__FORM_W16, pi__k_w16_input(mid_type)), -1},
                                .where = {both.mid, NULL}};
    return true;
}

bool pi__cuda_queue_glu(pi__cuda *c, const pi__linear *a, const pi__linear *next)
{
    const pi__weight *down = next->lin[0].w;
    const int32_t type = pi__cuda_packed_type(down->type), rows = a->n_rows;
    const int form = pi__cuda_linear_form(c, type, next);
    const bool glu = pi__in_gated(next->in.kind);
    pi__k_input in = pi__cuda_input(&a->in);
    pi__k_glu g = {.act = next->in.kind,
                   .limit = next->in.limit,
                   .fp8 = form == PI__FORM_W4A8,
                   .mid = c->scratch + c->at.mid,
                   .arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived),
                   .waits = pi__cuda_waits(c)};
    if (!glu || c->disabled.glu || next->n_lin != 1 || next->n_rows != rows || rows < 1) return false;
    if (form == PI__FORM_W16) return queue_glu_16(c, a, next);
    if (form != PI__FORM_FP4 && form != PI__FORM_W4A8) return false;
    if (!halves_of(a, &next->in, down->n_in, &g) || g.gate.type != type || pi__cuda_linear_form(c, type, a) != form)
        return false;
    const void *x = pi__cuda_packed_x(c, form, &in, type, rows, g.gate.n_in);
    PI__QUEUE(c, pi__k_fp4_glu(pi__rt_stream(c->rt), &g, x, rows));
    c->ready = (cuda_packed_x) {.in = pi__cuda_input(&next->in), .n_rows = rows, .n_in = down->n_in,
                                .what = {known_by(form, type), -1}, .where = {g.mid, NULL}};
    return true;
}

void pi__cuda_linear(pi__backend *be, const pi__batch *b, const pi__linear *a)
{
    pi__cuda *c = (pi__cuda *) be;
    if (pi__cuda_is_mix(c, a)) pi__cuda_queue_streams(c, &(cuda_streams) {.mixes = true, .mix = *a}, NULL);
    else if (c->disabled.many_rows && a->n_rows > PI__CUDA_FEW_ROWS) linear_in_pieces(be, b, a);
    else pi__cuda_queue_linear(c, a, NULL);
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
        pi__cuda_upload(&c->be, at, freq, (size_t) n * sizeof *at);
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

/* The first token of a sequence sees the earliest key; the last token is the end of the range. */
int32_t pi__cuda_max_keys(const pi__batch *b, int32_t window)
{
    int32_t most = 0;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        if (b->seq_start[s + 1] == b->seq_start[s]) continue;
        int32_t from = b->pos[b->seq_start[s]], to = b->pos[b->seq_start[s + 1] - 1];
        int32_t lo = window > 0 && from >= window ? from - window + 1 : 0;
        if (b->see_to && b->see_to[b->seq_start[s + 1] - 1] > to) to = b->see_to[b->seq_start[s + 1] - 1];
        if (to - lo + 1 > most) most = to - lo + 1;
    }
    return most;
}

/* Returns the largest number of keys of a sequence: the bound of pi__cuda_max_keys for bidirectional attention. */
static int32_t longest(const pi__batch *b)
{
    int32_t most = 0;
    for (int32_t s = 0; s < b->n_seqs; s++) most = b->seq_len[s] > most ? b->seq_len[s] : most;
    return most;
}

/* Returns an upper bound of pi__cuda_max_keys(b, window) for captured steps, where the host does not know positions.
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
    k->taken_words = (c->lim.key_blocks + 31) / 32;
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
        .n_tokens = b->n_tokens,
        .n_seqs = b->n_seqs,
        .pos = d->pos,
        .seq_start = d->seq_start,
        .block_table = d->table[a->kv->group],
        .table_stride = b->kv[a->kv->group].table_stride,
        .seq_len = a->block ? d->seq_len : NULL,
        .max_keys = d->keys ? seen_of(b, d->keys, a->window) : a->block ? longest(b) : pi__cuda_max_keys(b, a->window),
        .cache = cache_of(b, a->kv),
        .scratch = c->disabled.splits ? NULL : c->scratch + c->at.kv_splits,
        .scratch_size = c->at.lora - c->at.kv_splits,
        .arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived) + 1,
        .waits = pi__cuda_waits(c),
        .n_sm = c->info.n_sm,
        .block = a->block,
        .ahead = a->ahead,
        .see_to = a->spans ? d->see_to : NULL,
        .tail = then,
        .fast = c->one_f16,
        .wgmma = c->info.arch == 90 && !c->disabled.wgmma_attention,
    };
    if (a->sparsity > 0 && b->runs.n_blocks && !c->disabled.key_blocks) choose_keys(c, b, a, &k);
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
