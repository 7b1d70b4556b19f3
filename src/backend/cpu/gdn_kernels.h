/* The kernels of the gated delta rule, Mamba and Kimi delta attention, written once for all instruction sets. Each
 * kernels_ISA.c includes this file and first defines:
 *
 *     vf              vectors, by one of vec_ISA.h;
 *     PI__GDN_ROWS    rows of k and q that products() multiplies in one pass, at least 2;
 *     PI__GDN_VECS    vf per row that products() computes in one pass, 1 or 2;
 *     PI__GDN_FOLD    rows of S0 that fold_rows() updates in one call: 2, 4 or 8
 *     PI__KERNELS     name of the table defined here
 *
 * No memory and no state. Threads: any. Each sum has the order that gdn.h gives, for every number of rows in a pass. */
#include "backend/cpu/gdn.h"

enum {
    C = PI__GDN_CHUNK,
    PANEL = PI__GDN_PANEL,
    AHEAD = 1024, /* prefetch distance in floats; used for a single token, which reads S0 from memory once */
};

/* ------------------------------------------------------------------------------------------ rows before the state */

PI__INLINE void put_silu(vf s, const float *bias, int32_t c, float *y)
{
    if (bias) s = vf_add(s, vf_load(bias + c));
    vf_store(y + c, vf_mul(s, vf_sigmoid(s)));
}

static void conv4(const float *const *x, const float *w, const float *bias, int32_t dim, float *y)
{
    for (int32_t c = 0; c < dim; c += 16) {
        vf tap[4];
        vf_load4(w + c * 4, tap);
        vf s = vf_mul(tap[0], vf_load(x[0] + c));
        PI__UNROLL for (int i = 1; i < 4; i++) s = vf_fma(tap[i], vf_load(x[i] + c), s);
        put_silu(s, bias, c, y);
    }
}

static void conv(const float *const *x, const float *w, const float *bias, int32_t n_conv, int32_t dim, float *y)
{
    if (n_conv == 4) {
        conv4(x, w, bias, dim, y);
        return;
    }
    for (int32_t c = 0; c < dim; c += 16) {
        vf s = vf_zero();
        for (int32_t i = 0; i < n_conv; i++) {
            float tap[16];
            for (int32_t n = 0; n < 16; n++) tap[n] = w[(c + n) * n_conv + i];
            s = i ? vf_fma(vf_load(tap), vf_load(x[i] + c), s) : vf_mul(vf_load(tap), vf_load(x[0] + c));
        }
        put_silu(s, bias, c, y);
    }
}

static void l2norm(float *x, int32_t dim, float eps, float scale)
{
    vf sum = vf_zero();
    for (int32_t i = 0; i < dim; i += 16) sum = vf_fma(vf_load(x + i), vf_load(x + i), sum);
    vf f = vf_set1(scale / sqrtf(vf_hsum(sum) + eps));
    for (int32_t i = 0; i < dim; i += 16) vf_store(x + i, vf_mul(vf_load(x + i), f));
}

static void dots(const float *x, const float *const *row, int32_t n, int32_t dim, float *out)
{
    for (int32_t r = 0; r < n; r++) {
        vf sum = vf_zero();
        for (int32_t i = 0; i < dim; i += 16) sum = vf_fma(vf_load(x + i), vf_load(row[r] + i), sum);
        out[r] = vf_hsum(sum);
    }
}

static void gates(float alpha[C], float beta[C], float dt, float a)
{
    vf_store(beta, vf_sigmoid(vf_load(beta)));
    vf_store(alpha, vf_mul(vf_set1(a), vf_softplus(vf_add(vf_load(alpha), vf_set1(dt)))));
}

static void steps(float alpha[C], float beta[C], float dt, float a)
{
    const vf step = vf_softplus(vf_add(vf_load(alpha), vf_set1(dt)));
    vf_store(beta, step);
    vf_store(alpha, vf_mul(vf_set1(a), step));
}

static void decays(const float *alpha, const float *dt, float a, float min, int32_t dim, float *d)
{
    const vf va = vf_set1(a), vmin = vf_set1(min);
    for (int32_t i = 0; i < dim; i += 16) {
        const vf x = vf_add(vf_load(alpha + i), vf_load(dt + i));
        const vf log = min < 0 ? vf_mul(vmin, vf_sigmoid(vf_mul(va, x))) : vf_mul(va, vf_softplus(x));
        vf_store(d + i, vf_exp(log));
    }
}

static void decay_row(float *decay, const float *d, int32_t dim, float *k, float *q)
{
    for (int32_t i = 0; i < dim; i += 16) {
        const vf e = vf_mul(vf_load(decay + i), vf_load(d + i));
        vf_store(decay + i, e);
        vf_store(k + i, vf_mul(vf_load(k + i), e));
        vf_store(q + i, vf_mul(vf_load(q + i), e));
    }
}

static void decayed_dots(const float *q, const float *const *key, const float *const *d, int32_t n, int32_t dim,
                         float *kk, float *qk)
{
    float decay[PI__GDN_MAX_DIM]; /* of rows l + 1 .. n */
    dots(q, key + n, 1, dim, qk + n);
    for (int32_t l = n - 1; l >= 0; l--) {
        vf k_sum = vf_zero(), q_sum = vf_zero();
        for (int32_t i = 0; i < dim; i += 16) {
            vf e = vf_load(d[l + 1] + i);
            if (l < n - 1) e = vf_mul(vf_load(decay + i), e);
            vf_store(decay + i, e);
            const vf k = vf_mul(vf_load(key[l] + i), e);
            k_sum = vf_fma(vf_load(key[n] + i), k, k_sum);
            q_sum = vf_fma(vf_load(q + i), k, q_sum);
        }
        kk[l] = vf_hsum(k_sum);
        qk[l] = vf_hsum(q_sum);
    }
}

static void decay_keys(const float *const key[C], const float *const d[C], int32_t dim, float *out, float *all)
{
    for (int32_t i = 0; i < dim; i += 16) {
        vf e = vf_set1(1);
        for (int32_t l = C - 1; l >= 0; l--) {
            vf_store(out + l * dim + i, vf_mul(vf_load(key[l] + i), e));
            e = vf_mul(e, vf_load(d[l] + i));
        }
        vf_store(all + i, e);
    }
}

static void skip_gate(const float *o, const float *v, const float *z, float skip, int32_t dim, float *out)
{
    for (int32_t i = 0; i < dim; i += 16) {
        const vf gate = vf_load(z + i), x = vf_fma(vf_set1(skip), vf_load(v + i), vf_load(o + i));
        vf_store(out + i, vf_mul(x, vf_mul(gate, vf_sigmoid(gate))));
    }
}

static void norm(float *x, const float *w, float eps, int32_t n)
{
    const vf f = vf_set1(rms_factor(x, n, eps));
    for (int32_t i = 0; i < n; i += 16) vf_store(x + i, vf_mul(vf_mul(vf_load(x + i), f), vf_load(w + i)));
}

static void gate_norm(float *o, const float *z, const float *w, float eps, int32_t dim, bool kda)
{
    vf f = vf_set1(rms_factor(o, dim, eps));
    for (int32_t i = 0; i < dim; i += 16) {
        vf gate = vf_load(z + i);
        gate = kda ? vf_sigmoid(gate) : vf_mul(gate, vf_sigmoid(gate));
        vf_store(o + i, vf_mul(vf_mul(vf_mul(vf_load(o + i), f), vf_load(w + i)), gate));
    }
}

/* --------------------------------------------------------------------------------------------- rows and the state */

/* Factors of a chunk's rows. They are equal in all panels, so they are computed once. [new row] counts from n_old. */
typedef struct factors {
    float ck[C][C];  /* [new row][l] e^(G_i - G_l) k_i . k_l, l < i */
    float cq[C][C];  /* [new row][l] e^(G_i - G_l) q_i . k_l, l <= i */
    float eg[C];     /* e^G_i of row i of the chunk */
    float left[C];   /* e^(G_15 - G_i), the decay of row i in a fold */
} factors;

/* set_factors() with kda: the decays are in keys, queries and dot products. */
static void set_ones(const pi__gdn_chunk *c, factors *f)
{
    vf_store(f->eg, vf_set1(1));
    vf_store(f->left, vf_set1(1));
    for (int32_t r = 0; r < c->n_rows - c->n_old; r++) {
        vf_store(f->ck[r], vf_load(c->dots + (size_t) r * 2 * C));
        vf_store(f->cq[r], vf_load(c->dots + (size_t) r * 2 * C + C));
    }
}

/* Computes f. Factors of rows from n_rows on are undefined and are not read later. */
static void set_factors(const pi__gdn_chunk *c, factors *f)
{
    float g[C];
    if (c->kda) {
        set_ones(c, f);
        return;
    }
    for (int32_t i = 0; i < C; i++) g[i] = c->g[i < c->n_rows ? i : c->n_rows - 1];
    vf all = vf_load(g);
    vf_store(f->eg, vf_exp(all));
    vf_store(f->left, vf_exp(vf_sub(vf_set1(g[C - 1]), all)));
    for (int32_t r = 0; r < c->n_rows - c->n_old; r++) {
        vf e = vf_exp(vf_sub(vf_set1(g[c->n_old + r]), all));
        if (!c->ssd) vf_store(f->ck[r], vf_mul(e, vf_load(c->dots + (size_t) r * 2 * C)));
        vf_store(f->cq[r], vf_mul(e, vf_load(c->dots + (size_t) r * 2 * C + C)));
    }
}

/* y[r][0 .. 16 V - 1] = sum over a of x[r][a] * s[a][0 .. 16 V - 1], for R rows x[r] of dim values, ldx floats apart,
 * and a panel s [dim][PANEL]. */
PI__INLINE void products_of(int R, int V, const float *x, int32_t ldx, int32_t dim, const float *s, float *y)
{
    vf acc[PI__GDN_ROWS * PI__GDN_VECS];
    PI__UNROLL for (int i = 0; i < R * V; i++) acc[i] = vf_zero();
    for (int32_t a = 0; a < dim; a++) {
        vf sv[PI__GDN_VECS];
        if (R <= 2) {
            __builtin_prefetch(s + a * PANEL + AHEAD, 0, 2);
            __builtin_prefetch(s + a * PANEL + AHEAD + 16, 0, 2);
        }
        PI__UNROLL for (int i = 0; i < V; i++) sv[i] = vf_load(s + a * PANEL + i * 16);
        PI__UNROLL for (int r = 0; r < R; r++) {
            vf xa = vf_set1(x[r * ldx + a]);
            PI__UNROLL for (int i = 0; i < V; i++) acc[r * V + i] = vf_fma(xa, sv[i], acc[r * V + i]);
        }
    }
    PI__UNROLL for (int r = 0; r < R; r++) {
        PI__UNROLL for (int i = 0; i < V; i++) vf_store(y + r * PANEL + i * 16, acc[r * V + i]);
    }
}

/* y[i][PANEL] = x[i] . s, for n rows x[i] of dim values, ldx floats apart, and a panel s [dim][PANEL]. */
static void products(const float *x, int32_t n, int32_t ldx, int32_t dim, const float *s, float *y)
{
    for (int32_t r = 0, step; r < n; r += step) {
        const int32_t left = n - r;
        step = left >= PI__GDN_ROWS                ? PI__GDN_ROWS
               : left >= 6 && PI__GDN_ROWS > 6 ? 6
               : left >= 4 && PI__GDN_ROWS > 4 ? 4
               : left >= 2                         ? 2
                                                   : 1;
        for (int32_t i = 0; i < PANEL; i += 16 * PI__GDN_VECS) {
            const float *xr = x + r * ldx, *si = s + i;
            float *yr = y + r * PANEL + i;
            if (step == PI__GDN_ROWS) products_of(PI__GDN_ROWS, PI__GDN_VECS, xr, ldx, dim, si, yr);
            else if (step == 6 && PI__GDN_ROWS > 6) products_of(6, PI__GDN_VECS, xr, ldx, dim, si, yr);
            else if (step == 4 && PI__GDN_ROWS > 4) products_of(4, PI__GDN_VECS, xr, ldx, dim, si, yr);
            else if (step == 2) products_of(2, PI__GDN_VECS, xr, ldx, dim, si, yr);
            else products_of(1, PI__GDN_VECS, xr, ldx, dim, si, yr);
        }
    }
}

/* Computes u and o of the new rows in columns panel..panel + PANEL - 1. y [new rows][2][PANEL]: products of the new
 * rows' k and q with S0. */
static void rows(const pi__gdn_chunk *c, const factors *f, int32_t panel, const float *y)
{
    for (int32_t r = 0; r < c->n_rows - c->n_old; r++) {
        int32_t n = c->n_old + r;
        const float *yr = y + r * 2 * PANEL, *u = c->u + panel;
        vf eg = vf_set1(f->eg[n]), beta = vf_set1(c->beta[r]), p[2], o[2];
        PI__UNROLL for (int i = 0; i < 2; i++) {
            p[i] = vf_mul(eg, vf_load(yr + i * 16));
            o[i] = vf_mul(eg, vf_load(yr + PANEL + i * 16));
        }
        for (int32_t l = 0; l < n; l++, u += c->dim_v) {
            vf ck = vf_set1(f->ck[r][l]), cq = vf_set1(f->cq[r][l]);
            PI__UNROLL for (int i = 0; i < 2; i++) {
                p[i] = vf_fma(ck, vf_load(u + i * 16), p[i]);
                o[i] = vf_fma(cq, vf_load(u + i * 16), o[i]);
            }
        }
        float *un = c->u + n * c->dim_v + panel, *on = c->o + r * c->ldo + panel;
        const float *v = c->v + r * c->dim_v + panel;
        PI__UNROLL for (int i = 0; i < 2; i++) {
            vf x = vf_mul(beta, vf_sub(vf_load(v + i * 16), p[i]));
            vf_store(un + i * 16, x);
            vf_store(on + i * 16, vf_fma(vf_set1(f->cq[r][n]), x, o[i]));
        }
    }
}

/* rows() for Mamba-2: u_i = beta_i v_i. y [new rows][PANEL]: products of the new rows' q with S0. */
static void ssd_rows(const pi__gdn_chunk *c, const factors *f, int32_t panel, const float *y)
{
    for (int32_t r = 0; r < c->n_rows - c->n_old; r++) {
        const int32_t n = c->n_old + r;
        const float *u = c->u + panel, *v = c->v + r * c->dim_v + panel;
        float *un = c->u + n * c->dim_v + panel, *on = c->o + r * c->ldo + panel;
        const vf eg = vf_set1(f->eg[n]), beta = vf_set1(c->beta[r]);
        vf o[2];
        PI__UNROLL for (int i = 0; i < 2; i++) {
            vf_store(un + i * 16, vf_mul(beta, vf_load(v + i * 16)));
            o[i] = vf_mul(eg, vf_load(y + r * PANEL + i * 16));
        }
        for (int32_t l = 0; l <= n; l++, u += c->dim_v) {
            const vf cq = vf_set1(f->cq[r][l]);
            PI__UNROLL for (int i = 0; i < 2; i++) o[i] = vf_fma(cq, vf_load(u + i * 16), o[i]);
        }
        PI__UNROLL for (int i = 0; i < 2; i++) vf_store(on + i * 16, o[i]);
    }
}

/* Folds the chunk into rows a .. a + A - 1 of a panel, V vectors per row: out[r] = eg * s[r] + sum over l of k[l][a +
 * r] * u[l]. u: [16][PANEL], already multiplied by the `left` factors. eg: e^G_15, unless c->decay has one per row. */
PI__INLINE void fold_rows(int A, int V, const pi__gdn_chunk *c, int32_t a, const float *u, float eg, const float *s,
                          float *out)
{
    vf acc[PI__GDN_FOLD * PI__GDN_VECS];
    PI__UNROLL for (int r = 0; r < A; r++) {
        const vf e = vf_set1(c->kda ? c->decay[a + r] : eg);
        PI__UNROLL for (int i = 0; i < V; i++) acc[r * V + i] = vf_mul(e, vf_load(s + r * PANEL + i * 16));
    }
    for (int32_t l = 0; l < C; l++) {
        const float *k = c->k[l] + a;
        vf ul[PI__GDN_VECS];
        PI__UNROLL for (int i = 0; i < V; i++) ul[i] = vf_load(u + l * PANEL + i * 16);
        PI__UNROLL for (int r = 0; r < A; r++) {
            vf kr = vf_set1(k[r]);
            PI__UNROLL for (int i = 0; i < V; i++) acc[r * V + i] = vf_fma(kr, ul[i], acc[r * V + i]);
        }
    }
    PI__UNROLL for (int r = 0; r < A; r++) {
        PI__UNROLL for (int i = 0; i < V; i++) vf_store(out + r * PANEL + i * 16, acc[r * V + i]);
    }
}

static void fold_panel(const pi__gdn_chunk *c, const factors *f, int32_t panel)
{
    float u[C * PANEL];
    for (int32_t l = 0; l < C; l++) {
        const float *ul = c->u + l * c->dim_v + panel;
        for (int32_t i = 0; i < PANEL; i += 16)
            vf_store(u + l * PANEL + i, vf_mul(vf_set1(f->left[l]), vf_load(ul + i)));
    }
    const float *s = c->s + (size_t) panel * (size_t) c->dim;
    float *out = c->s_out + (size_t) panel * (size_t) c->dim;
    for (int32_t a = 0; a < c->dim; a += PI__GDN_FOLD) {
        for (int32_t i = 0; i < PANEL; i += 16 * PI__GDN_VECS) {
            int32_t at = a * PANEL + i;
            fold_rows(PI__GDN_FOLD, PI__GDN_VECS, c, a, u + i, f->eg[C - 1], s + at, out + at);
        }
    }
}

static void chunk(const pi__gdn_chunk *c)
{
    factors f;
    float y[2 * C * PANEL];
    const int32_t n = c->n_rows - c->n_old, dim = c->dim;
    set_factors(c, &f);
    for (int32_t panel = 0; panel < c->dim_v; panel += PANEL) {
        const float *s = c->s + (size_t) panel * (size_t) dim;
        if (c->ssd) products(c->kq + dim, n, 2 * dim, dim, s, y);
        else products(c->kq, 2 * n, dim, dim, s, y);
        if (c->ssd) ssd_rows(c, &f, panel, y);
        else rows(c, &f, panel, y);
        if (c->s_out) fold_panel(c, &f, panel);
    }
}

static void fold_chunk(const pi__gdn_chunk *c)
{
    factors f;
    set_factors(c, &f);
    for (int32_t panel = 0; panel < c->dim_v; panel += PANEL) fold_panel(c, &f, panel);
}

/* -------------------------------------------------------------------------------------------------- selective scan */

static void scan(const pi__scan_token *t)
{
    for (int32_t i = 0; i < t->n; i += 16) {
        const vf dt = vf_load(t->dt + i), u = vf_mul(dt, vf_load(t->x + i));
        vf y = vf_zero();
        for (int32_t s = 0; s < t->n_state; s++) {
            float *h = t->h + s * t->ld_h + i;
            const vf decay = vf_exp(vf_mul(dt, vf_load(t->a + s * t->ld_a + i)));
            const vf next = vf_fma(decay, vf_load(h), vf_mul(u, vf_set1(t->b[s])));
            vf_store(h, next);
            if (t->c) y = vf_fma(vf_set1(t->c[s]), next, y);
        }
        if (t->c) vf_store(t->y + i, y);
    }
}

static void scan_steps(const float *raw, const float *bias, int32_t n, float *dt)
{
    for (int32_t i = 0; i < n; i += 16) vf_store(dt + i, vf_softplus(vf_add(vf_load(raw + i), vf_load(bias + i))));
}

static void scan_gate(const float *y, const float *x, const float *skip, const float *z, int32_t n, float *out)
{
    for (int32_t i = 0; i < n; i += 16) {
        const vf gate = vf_load(z + i), sum = vf_fma(vf_load(skip + i), vf_load(x + i), vf_load(y + i));
        vf_store(out + i, vf_mul(sum, vf_mul(gate, vf_sigmoid(gate))));
    }
}

const pi__cpu_gdn_kernels PI__KERNELS = {conv,      l2norm,       dots,       gates, steps,      decays,
                                         decay_row, decayed_dots, decay_keys, chunk, fold_chunk, gate_norm,
                                         skip_gate, norm,         scan,       scan_steps,        scan_gate};

#undef PI__GDN_ROWS
#undef PI__GDN_VECS
#undef PI__GDN_FOLD
#undef PI__KERNELS
