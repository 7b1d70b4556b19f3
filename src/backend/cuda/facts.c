/* Answers of facts.h. A function with a comment only there has its whole contract there. */
#include "backend/cuda/facts.h"

#include "backend/cuda/kernels_down.h"
#include "backend/cuda/kernels_heads.h"
#include "backend/cuda/kernels_mma16.h"
#include "formats/formats.h"

int32_t pi__tail_rows(const pi__facts *f) { return 2 * f->places < PI__K_TAIL_ROWS ? 2 * f->places : PI__K_TAIL_ROWS; }

/* ----------------------------------------------------------------------------------------------- activation
 * formats */

int pi__form(const pi__facts *f, int32_t type, int64_t n_in)
{
    const int ways = f->matmul_modes;
    const bool fp4 = type == PI__NVFP4 || type == PI__MXFP4, in_16 = type == PI__F16 || type == PI__BF16;
    if (ways & PI__WAY_FP4 && fp4) return PI__FORM_FP4;
    if (ways & PI__WAY_W4A8 && type == PI__MXFP4) return PI__FORM_W4A8;
    if (ways & PI__WAY_W4A16 && fp4) return PI__FORM_W16;
    if (ways & PI__WAY_MMA16 && in_16 && n_in % 8 == 0) return PI__FORM_MMA16;
    if (ways & PI__WAY_W16 && pi__type_in(f->w16, type)) return PI__FORM_W16;
    return pi__type_is_float(type) ? PI__FORM_FLOATS : PI__FORM_INTEGERS;
}

int pi__linear_form(const pi__facts *f, int32_t type, const pi__linear *a)
{
    const int form = pi__form(f, type, a->lin[0].w->n_in);
    return form == PI__FORM_MMA16 && f->blas && a->n_rows >= PI__CUDA_BLAS_ROWS ? PI__FORM_HILO : form;
}

static int32_t packed_type(const pi__linear *a, int32_t i) { return pi__cuda_packed_type(a->lin[i].w->type); }

int pi__form_of(const pi__facts *f, const pi__linear *a, int32_t i) { return pi__linear_form(f, packed_type(a, i), a); }

bool pi__reads_in_place(int form, const pi__lin_in *in, int32_t n_rows, int64_t n_in)
{
    return form == PI__FORM_FLOATS && in->kind == PI__IN_PLAIN && (in->ldx == n_in || n_rows == 1);
}

bool pi__same_input(const pi__lin_in *a, const pi__lin_in *b)
{
    const bool gated = pi__in_gated(a->kind);
    return a->kind == b->kind && a->x == b->x && a->ldx == b->ldx && (!gated || a->x2 == b->x2) && a->ldx2 == b->ldx2 &&
           a->w == b->w && a->eps == b->eps && a->limit == b->limit;
}

pi__targets pi__targets_of(const pi__facts *f, const pi__linear *next)
{
    const int64_t n_in = next->lin[0].w->n_in;
    const int32_t n_rows = next->n_rows;
    pi__targets t = {.integers = false};
    for (int32_t i = 0; i < next->n_lin; i++) {
        const int32_t type = packed_type(next, i);
        const int form = pi__linear_form(f, type, next);
        if (form == PI__FORM_FLOATS && !pi__reads_in_place(form, &next->in, n_rows, n_in)) t.floats = true;
        if (form == PI__FORM_MMA16 && n_rows <= pi__tail_rows(f)) t.terms = true, t.terms_type = type;
        if (t.integers || t.halves || t.fp4) continue; /* these three share one region */
        if (form == PI__FORM_INTEGERS) t.integers = true;
        if (form == PI__FORM_W16) t.halves = true, t.bf16 = pi__w16_input(f, type);
        if (form == PI__FORM_FP4 || form == PI__FORM_W4A8)
            t.fp4 = true, t.fp4_type = type, t.fp8 = form == PI__FORM_W4A8;
    }
    if (t.floats) t.terms = false; /* these two share the other one */
    return t;
}

bool pi__reads_fp4(const pi__facts *f, const pi__linear *a)
{
    bool does = false;
    for (int32_t i = 0; i < a->n_lin; i++) {
        const int form = pi__form_of(f, a, i);
        does = does || form == PI__FORM_FP4 || form == PI__FORM_W4A8;
    }
    return does;
}

static int32_t input_of(const pi__facts *f, const pi__linear *a, int32_t i)
{
    return pi__w16_input(f, packed_type(a, i));
}

bool pi__reads_same(const pi__facts *f, const pi__linear *a, const pi__linear *next)
{
    const int form = pi__form_of(f, next, 0);
    bool same = false;
    for (int32_t i = 0; i < a->n_lin; i++)
        same = same ||
               (pi__form_of(f, a, i) == form && (form != PI__FORM_W16 || input_of(f, a, i) == input_of(f, next, 0)));
    return same && pi__same_input(&a->in, &next->in);
}

/* ----------------------------------------------------------------------------------------------------------
 * linear */

/* True if matrix i of the linear can be in a mixed launch (matrices of several types), also as the last matrix of a
 * launch with an epilogue. */
static bool mixes(const pi__facts *f, const pi__linear *a, int32_t i)
{
    const int form = pi__form_of(f, a, i);
    if (form == PI__FORM_FLOATS) return a->lin[i].w->type == PI__F32 && a->n_rows <= PI__K_ROUTER_ROWS;
    return form == PI__FORM_W16 && a->n_rows <= PI__K_MIXED_ROWS;
}

/* True if matrix i can be in a mixed launch with its input as 16-bit terms. Then it may not be the last matrix of a
 * launch with an epilogue. */
static bool mixes_terms(const pi__facts *f, const pi__linear *a, int32_t i)
{
    return pi__form_of(f, a, i) == PI__FORM_MMA16 && a->n_rows <= PI__K_MIXED_ROWS && a->n_rows <= pi__tail_rows(f);
}

/* Matrices that read packed 16-bit floats must agree on F16 or BF16. The other matrices must have one type, as floats
 * and terms use the same region of scratch. */
int32_t pi__run_of_mixed(const pi__facts *f, const pi__linear *a, int32_t i)
{
    int32_t n = 0, like = -1, other = -1;
    for (; i + n < a->n_lin && n < PI__K_MAX_MIXED; n++) {
        const bool packed = pi__form_of(f, a, i + n) == PI__FORM_W16;
        int32_t *const one = packed ? &like : &other, own = packed ? input_of(f, a, i + n) : a->lin[i + n].w->type;
        if (!mixes(f, a, i + n) && !mixes_terms(f, a, i + n)) break;
        if (*one >= 0 && *one != own) break;
        *one = own;
    }
    return n;
}

int32_t pi__run_of_type(const pi__facts *f, const pi__linear *a, int32_t i)
{
    const int32_t most = pi__form_of(f, a, i) == PI__FORM_MMA16 ? PI__K_MAX_MMA16 : PI__K_MAX_LINEAR;
    int32_t n = 1;
    while (n < most && i + n < a->n_lin && a->lin[i + n].w->type == a->lin[i].w->type) n++;
    return n;
}

bool pi__is_mix(const pi__facts *f, const pi__linear *a)
{
    const pi__weight *w = a->lin[0].w;
    const int64_t n = w->n_in / PI__STREAMS;
    if (a->n_lin != 1 || !pi__type_is_float(w->type) || w->scale || a->in.kind != PI__IN_PLAIN) return false;
    if (!n || n != f->lim.max_stream) return false;
    if (w->n_in != PI__STREAMS * n || (w->n_out != PI__HYPER_MIX && w->n_out != PI__STREAMS)) return false;
    return a->in.ldx == w->n_in && a->lin[0].ldy == w->n_out;
}

bool pi__has_tail(const pi__facts *f, const pi__linear *a)
{
    const int form = pi__form_of(f, a, a->n_lin - 1);
    if (a->n_rows < 1 || a->n_rows > pi__tail_rows(f)) return false;
    if (form == PI__FORM_FP4 || form == PI__FORM_W4A8) return true;
    return form == PI__FORM_W16 || form == PI__FORM_INTEGERS || mixes(f, a, a->n_lin - 1);
}

bool pi__has_routes(const pi__facts *f, const pi__linear *a, int32_t n_expert)
{
    return a->n_rows > 0 && mixes(f, a, a->n_lin - 1) && n_expert <= PI__MAX_EXPERTS;
}

bool pi__has_latent(const pi__facts *f, const pi__linear *a)
{
    return a->n_rows > 0 && a->n_rows <= PI__K_MIXED_ROWS && pi__run_of_mixed(f, a, 0) == a->n_lin;
}

bool pi__has_streams(const pi__facts *f, const pi__linear *a)
{
    return a->n_lin == 1 && a->lin[0].w->type != PI__F32 && a->n_rows <= pi__tail_rows(f) && pi__has_latent(f, a);
}

bool pi__fits_down(const pi__facts *f, const pi__linear *a)
{
    return a->n_lin == 1 && a->n_rows <= PI__K_DOWN_ROWS && pi__form_of(f, a, 0) == PI__FORM_W16;
}

bool pi__adds_itself(const pi__facts *f, const pi__linear *a, const pi__add_norm *add)
{
    const pi__weight *w = a->lin[0].w;
    const int form = pi__form_of(f, a, 0);
    const bool fp4 = form == PI__FORM_FP4 || form == PI__FORM_W4A8;
    if (a->n_lin != 1 || add->w || add->bias || add->scale == 0) return false;
    if (add->y != a->lin[0].y || a->lin[0].ldy != add->n || w->n_out != add->n) return false;
    /* as pi__k_fp4_adds() and pi__k_w16_adds(); the launch functions refuse what they cannot add */
    return fp4 ? a->n_rows > PI__CUDA_FEW_ROWS : form == PI__FORM_W16 && a->n_rows > PI__K_MMA_ROWS;
}

/* True if the results of linear a, which has two matrices, or one with the rows of gate and then of up, are reads->x
 * and reads->x2, with n values per row each. */
static bool makes_halves(const pi__linear *a, const pi__lin_in *reads, int64_t n)
{
    const pi__weight *w = a->lin[0].w, *w2 = a->lin[a->n_lin - 1].w;
    if (a->n_lin > 2 || a->lin[0].y != reads->x || a->lin[0].ldy != reads->ldx || w->type != w2->type) return false;
    if (a->n_lin == 1) return w->n_out == 2 * n && reads->x2 == reads->x + n && reads->ldx2 == reads->ldx;
    return w->n_out == n && w2->n_out == n && a->lin[1].y == reads->x2 && a->lin[1].ldy == reads->ldx2;
}

/* gated() of the kernels that compute the activation of their own results has no erf. */
static bool needs_erf(int kind) { return kind == PI__IN_GEGLU_ERF || kind == PI__IN_GELU; }

bool pi__has_glu(const pi__facts *f, const pi__linear *a, const pi__linear *next)
{
    const pi__lin_in *reads = &next->in;
    const int form = pi__form_of(f, next, 0);
    const int32_t type = packed_type(a, 0);
    const int64_t n = next->lin[0].w->n_in;
    if (!pi__in_gated(reads->kind) || needs_erf(reads->kind)) return false;
    if (f->disabled.glu || next->n_lin != 1) return false;
    if (next->n_rows != a->n_rows || a->n_rows < 1 || !makes_halves(a, reads, n)) return false;
    if (pi__form_of(f, a, 0) != form) return false;
    if (form == PI__FORM_FP4 || form == PI__FORM_W4A8) return type == packed_type(next, 0);
    const bool few = a->n_rows <= PI__K_MMA_ROWS;
    if (form != PI__FORM_W16 || (!few && f->wgmma && !pi__type_in(f->wgmma_glu, type))) return false;
    return n % 32 == 0 && reads->ldx % 4 == 0 && (uintptr_t) reads->x % 16 == 0;
}

pi__linear pi__linear_part(const pi__linear *a, int32_t first, int32_t n)
{
    return pi__linear_of(&a->in, a->n_rows, a->lin + first, n);
}

/* ---------------------------------------------------------------------------------------------------------
 * experts */

pi__linear pi__moe_reads(const pi__moe *a)
{
    const pi__lin gate = {a->gate, NULL, 0};
    return pi__linear_of(&a->in, a->n_rows, &gate, 1);
}

/* down reads the format that gate and up read: 16-bit floats; or FP4 or FP8, with matrices of one type. */
bool pi__experts_have_glu(const pi__facts *f, const pi__moe *a)
{
    const int32_t type = pi__cuda_packed_type(a->gate->type), down = pi__cuda_packed_type(a->down->type);
    const int form = pi__form(f, type, a->gate->n_in);
    const bool fp4 = (form == PI__FORM_FP4 || form == PI__FORM_W4A8) && down == type && f->fuses && !f->disabled.glu;
    if ((form != PI__FORM_W16 && !fp4) || pi__form(f, down, a->down->n_in) != form) return false;
    return !needs_erf(a->act) && !a->shard && !a->gate_bias && (!a->up || a->up->type == a->gate->type);
}

/* -------------------------------------------------------------------------------------------------------
 * attention */

bool pi__heads_in_16(const pi__facts *f, const pi__head_linear *a)
{
    return a->n_rows > 0 && pi__form(f, pi__cuda_packed_type(a->w->type), a->w->n_in) == PI__FORM_W16;
}

bool pi__heads_apart(const pi__head_linear *a) { return a->large && a->n_rows > PI__CUDA_HEAD_ROWS; }

bool pi__heads_take_groups(const pi__facts *f, const pi__head_linear *a)
{
    if (pi__heads_apart(a))
        return !f->disabled.many_rows &&
               (size_t) a->w->n_mat * pi__k_heads_row_bytes(a->n_rows, a->w->n_in) <= f->prepared_bytes;
    if (a->n_rows > PI__CUDA_HEAD_ROWS) return false;
    return a->n_rows > PI__K_HEADS_ROWS || !pi__k_heads_are_short(a->n_rows, a->w->n_in, a->n_tail);
}

/* The first token of a sequence sees the earliest key; the last token, or the end of its image, is the end of the
 * range. */
int32_t pi__max_keys(const pi__batch *b, int32_t window)
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

int32_t pi__most_seen(const pi__facts *f, const pi__batch *b)
{
    const int32_t keys = f->keys ? f->keys : pi__max_keys(b, 0);
    return keys < f->lim.max_ctx ? keys : f->lim.max_ctx;
}

bool pi__picks_all(const pi__facts *f, const pi__batch *b, const pi__kv_layer *entries, int32_t n_top)
{
    return pi__most_seen(f, b) / entries->ratio <= n_top;
}

bool pi__gdn_has_tail(const pi__facts *f, const pi__batch *b, const pi__gdn *a)
{
    const int32_t drafted = a->st->n_draft + 1, few = drafted < f->gdn_few ? drafted : f->gdn_few;
    int32_t most = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const int32_t n = b->seq_start[i + 1] - b->seq_start[i];
        most = n > most ? n : most;
    }
    return a->st->ssd || (most <= few && !a->st->kda);
}
