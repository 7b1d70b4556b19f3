/* Internals of the gated delta rule, of Mamba-2 and of Kimi delta attention on the CPU: state layout, and the kernels
 * of each instruction set.
 *
 * A sequence's state is stored as S0, the state at the last chunk boundary (position `base`, a multiple of C =
 * PI__STATE_CHUNK), plus data of the rows (tokens) after base. For one value head, with k_i, q_i, v_i the key, query
 * and value of row i, beta_i its update rate, and G_i the log decay from base to row i inclusive:
 *
 *     p_i = e^G_i (k_i . S0) + sum over l < i of  e^(G_i - G_l) (k_i . k_l) u_l        the state's prediction for k_i
 *     u_i = beta_i (v_i - p_i)                                                         the update for it
 *     o_i = e^G_i (q_i . S0) + sum over l <= i of e^(G_i - G_l) (q_i . k_l) u_l        the output
 *
 * A full chunk is folded into S0:  S0 <- e^G_15 S0 + sum over i of e^(G_15 - G_i) k_i (outer) u_i.
 *
 * Mamba-2 (pi__state_layer.ssd) has no prediction: u_i = dt_i v_i, and everything else is the same. So both share
 * slots, snapshots and kernels.
 *
 * With Kimi delta attention (pi__state_layer.kda) a decay is a vector d_i, with a value per channel of the key. The
 * decays e^(G_i - G_l) are products of d, in one order from row i down to l + 1, and never exceed 1. Phase 1 multiplies
 * keys and queries by e^G_i, and includes the decays in the dot products. For a fold, keys are multiplied by
 * e^(G_15 - G_l). The other sums are then those above with all decays 1. Slots have d instead of G: [n_v][R][dim].
 *
 *     slot      | base | S0 of each value head  | raw conv inputs | k: key heads  | u: value heads | G: value heads |
 *               |      | [n_v][V/32][dim][32]   | [R + H][C']     | [n_k][R][dim] | [n_v][R][V]    | [n_v][R]       |
 *     snapshot  | S0 of each value head | the H raw inputs before the snapshot's position [H][C'] |
 *
 * "raw" = before the convolution. A slot has space for R = 16 + n_draft rows from base on. Raw inputs start H rows
 * before base; H is the number of taps minus 1. C' = 2 n_k dim + n_v dim_v channels. V is dim_v, rounded up to a
 * multiple of 32; the columns after dim_v are garbage. S0 is stored in panels of 32 columns, which are computed
 * independently. A panel of 128 rows (16 KiB) stays in the first-level cache during the products
 * with S0, the rows' u and o, and the fold.
 *
 * Batch invariance for any chunks: every sum above runs over rows in order, from a state at a multiple of C of the
 * sequence's own position. The number of rows computed in one pass only changes the use of registers. */
#ifndef PI__CPU_GDN_H
#define PI__CPU_GDN_H

#include "backend/cpu/cpu.h"

enum {
    PI__GDN_CHUNK = PI__STATE_CHUNK,
    PI__GDN_PANEL = 32,    /* columns of S0 in a panel */
    PI__GDN_MAX_DIM = 256, /* max values per head */
};

/* Rows of one chunk and one value head. u of rows 0..n_old - 1 is known from earlier steps; u and o of the new rows
 * n_old..n_rows - 1 are computed now. */
typedef struct pi__gdn_chunk {
    int32_t dim;                          /* values per key head */
    int32_t dim_v;                        /* V: columns of the state, a multiple of 32 */
    bool ssd;                             /* no prediction: u_i = beta_i v_i */
    bool kda;                             /* k, kq and dots include the decays, and g is not read */
    /* rows with known u; end of the new rows (<= 16); both counted from the chunk's start */
    int32_t n_old, n_rows;
    const float *s;                       /* [V / 32][dim][32] state of the head before the chunk */
    /* receives the state after the full chunk; may be s; NULL = the chunk is not folded */
    float *s_out;
    const float *k[PI__GDN_CHUNK];        /* [dim] key of each row, read only if s_out is set (then n_rows is 16) */
    const float *kq;                      /* [n_rows - n_old][2][dim] key and query of each new row */
    /* [n_rows - n_old][2][16] dot products of each new row's key with the keys of earlier rows of the chunk, and of its
     * query with these keys and its own; later entries are undefined */
    const float *dots;
    const float *v;                       /* [n_rows - n_old][V] new values */
    const float *beta;                    /* [n_rows - n_old] after the sigmoid; with ssd, dt */
    const float *g;                       /* [n_rows] log decay G_i */
    const float *decay;                   /* [dim] with kda, read only if s_out is set: e^G_15 */
    /* [n_rows][V] updates u_i: rows before n_old are read, later rows are written */
    float *u;
    float *o;                             /* [n_rows - n_old] rows of [V] outputs, ldo floats apart */
    int64_t ldo;                          /* floats between rows of o */
} pi__gdn_chunk;

/* One token of a selective scan (scan.c). ld: floats between rows. */
typedef struct pi__scan_token {
    int32_t n, n_state;  /* channels, a multiple of 16; values per channel */
    const float *x, *dt; /* [n] values; time steps after softplus */
    const float *b, *c;  /* [n_state]; c NULL = no output */
    const float *a;      /* [n_state] rows of [n] */
    int64_t ld_a;
    float *h;            /* [n_state] rows of [n]: the state, updated */
    int64_t ld_h;
    float *y;            /* [n] sum over s of c[s] h[s] */
} pi__scan_token;

struct pi__cpu_gdn_kernels {
    /* y[c] = silu(sum over taps i < n_conv of w[c][i] x[i][c], plus bias[c]) for dim channels c; bias NULL = 0 */
    void (*conv)(const float *const *x, const float *w, const float *bias, int32_t n_conv, int32_t dim, float *y);
    /* x *= scale / sqrt(sum of squares + eps) */
    void (*l2norm)(float *x, int32_t dim, float eps, float scale);
    /* out[i] = x . row[i] for n rows */
    void (*dots)(const float *x, const float *const *row, int32_t n, int32_t dim, float *out);
    /* For 16 rows, in place: beta = sigmoid(beta); alpha = a * softplus(alpha + dt), the log decay of each row. */
    void (*gates)(float alpha[PI__GDN_CHUNK], float beta[PI__GDN_CHUNK], float dt, float a);
    /* For 16 rows, in place: beta = softplus(alpha + dt); alpha = a * beta, the log decay of each row. */
    void (*steps)(float alpha[PI__GDN_CHUNK], float beta[PI__GDN_CHUNK], float dt, float a);
    /* d[i] = e^(log decay) of dim channels: a * softplus(alpha + dt), or min * sigmoid(a * (alpha + dt)) if min < 0 */
    void (*decays)(const float *alpha, const float *dt, float a, float min, int32_t dim, float *d);
    /* decay = decay * d, then k = k * decay and q = q * decay, for dim values in place */
    void (*decay_row)(float *decay, const float *d, int32_t dim, float *k, float *q);
    /* Dot products of row n's key and query with the keys of rows l < n, times the decays d of rows l + 1 .. n: kk[l],
     * qk[l]; also qk[n], of its query and key. d: row of each decay. */
    void (*decayed_dots)(const float *q, const float *const *key, const float *const *d, int32_t n, int32_t dim,
                         float *kk, float *qk);
    /* out [16][dim]: the keys of a full chunk's rows, times the decays of the rows after them. all [dim]: the decays of
     * all rows. */
    void (*decay_keys)(const float *const key[PI__GDN_CHUNK], const float *const d[PI__GDN_CHUNK], int32_t dim,
                       float *out, float *all);
    /* Computes u and o of the chunk's new rows. If s_out is not NULL, also writes the state after the chunk to it. */
    void (*chunk)(const pi__gdn_chunk *c);
    /* Writes the state after the chunk to s_out. All 16 rows must be known (n_rows = 16); no u or o is computed. */
    void (*fold)(const pi__gdn_chunk *c);
    /* o = o / sqrt(mean(o^2) + eps) * w * silu(z), or with kda sigmoid(z), for dim values in place */
    void (*gate_norm)(float *o, const float *z, const float *w, float eps, int32_t dim, bool kda);
    /* out = (o + skip * v) * silu(z), for dim values */
    void (*skip_gate)(const float *o, const float *v, const float *z, float skip, int32_t dim, float *out);
    /* x = x / sqrt(mean(x^2) + eps) * w, for n values in place */
    void (*norm)(float *x, const float *w, float eps, int32_t n);
    /* Updates the state by a token: h[s] = e^(dt a[s]) h[s] + dt x b[s]. Computes y. */
    void (*scan)(const pi__scan_token *t);
    /* dt = softplus(raw + bias), for n values */
    void (*scan_steps)(const float *raw, const float *bias, int32_t n, float *dt);
    /* out = (y + skip * x) * silu(z), for n values */
    void (*scan_gate)(const float *y, const float *x, const float *skip, const float *z, int32_t n, float *out);
};

extern const pi__cpu_gdn_kernels pi__cpu_gdn_generic;
extern const pi__cpu_gdn_kernels pi__cpu_gdn_avx2;
extern const pi__cpu_gdn_kernels pi__cpu_gdn_avx512;
extern const pi__cpu_gdn_kernels pi__cpu_gdn_neon;
extern const pi__cpu_gdn_kernels pi__cpu_gdn_sve256;

#endif
