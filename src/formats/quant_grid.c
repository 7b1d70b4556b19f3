/* Writers of the codebook formats IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S (layouts: dequant_iq.c).
 *
 *     value = d * (2 * scale + 1) * level * sign         IQ2, IQ3
 *     value = d * (2 * scale + 1) * (level + delta)      IQ1
 *
 * A point of 4 or 8 levels is chosen from the codebook. With weights w and a factor s, its cost is
 *
 *     sum w (x - s v)^2 = const + s (s B - 2 A),   A = sum w x v,   B = sum w v v
 *
 * So over all s only points on the convex hull of (B, A) are ever the best, usually 5 to 10 of them. They are found by
 * searches of the complete codebook. Everything else uses the hulls: each group of 16 or 32 values is fitted
 * separately; then d and the scales of all groups are chosen by exact costs, and d is solved by least squares.
 *
 * Formats with 7 sign bits for 8 values need an even number of negative ones. If it is odd, the sign of one value is
 * wrong. That lowers A by 2 w |x| v, so each point has a second A, with the value for which this is least.
 *
 * No memory, no state; about 90 KiB of stack. */
#include "formats/formats_impl.h"
#include "formats/iq_tables.h"

enum { UNITS = 32, UNIT = 8, MAX_HULL = 16, MAX_CODES = 2048, MAX_GROUPS = 16, N_FACTORS = 24, N_D = 21, ROUNDS = 4,
       LANES = 8 };

typedef struct grid {       /* a format */
    const uint16_t *codes;
    int n_codes;
    int n_points;           /* points of 8 values: 1 or 2 */
    int group;              /* units of 8 values with the same scale: 2 or 4 */
    int max_scale;
    bool parity;            /* signs have 7 bits */
    int delta_units;        /* units of 8 values with the same delta; 0 = no delta, but signs */
    float unit;             /* the stored half is d * unit */
    float lo, hi;           /* factors of a group to try, in units of its largest magnitude / largest level */
    int n_levels;
    float level[8];         /* value of a field of a point */
} grid;

#define LEVELS_IQ2 3, {8, 25, 43}
#define LEVELS_IQ1 3, {-1, 0, 1}
static const grid iq2_xxs = {pi__iq2xxs_codes, 256, 1, 4, 15, true, 0, 8, 0.35f, 2, LEVELS_IQ2};
static const grid iq2_xs = {pi__iq2xs_codes, 512, 1, 2, 15, true, 0, 8, 0.35f, 2, LEVELS_IQ2};
static const grid iq2_s = {pi__iq2s_codes, 1024, 1, 2, 15, false, 0, 8, 0.35f, 2, LEVELS_IQ2};
static const grid iq3_xxs = {pi__iq3xxs_codes, 256, 2, 4, 15, true, 0, 4, 0.4f, 1.6f, 8,
                             {4, 12, 20, 28, 36, 44, 52, 62}};
static const grid iq3_s = {pi__iq3s_codes, 512, 2, 4, 15, false, 0, 1, 0.4f, 1.6f, 8, {1, 3, 5, 7, 9, 11, 13, 15}};
static const grid iq1_s = {pi__iq1_codes, 2048, 1, 4, 7, false, 4, 1, 0.25f, 1.2f, LEVELS_IQ1};
static const grid iq1_m = {pi__iq1_codes, 2048, 1, 2, 7, false, 1, 1, 0.25f, 1.2f, LEVELS_IQ1};

typedef struct hull {       /* the best points of a codebook, by descending factor */
    int n;
    float a[MAX_HULL], b[MAX_HULL];
    uint16_t code[MAX_HULL];
} hull;

typedef struct unit {       /* 8 values */
    hull plain[2];          /* of each point; IQ1: of each delta */
    hull odd[2];            /* with one wrong sign; only if `is_odd` */
    uint8_t signs;          /* bit i: value i is negative */
    bool is_odd;            /* the number of negative values is odd, and the format needs an even one */
} unit;

typedef struct super {      /* a super-block during the fit, then its result */
    const grid *g;
    float x[PI__QK], w[PI__QK]; /* magnitudes (IQ1: values), weights */
    unit u[UNITS];
    float d;                /* as the reader computes it */
    int scale[MAX_GROUPS];
    uint16_t code[UNITS][2];
    uint8_t signs[UNITS];
    bool minus[UNITS];      /* delta is -1/8 */
} super;

typedef struct sums {       /* of chosen points */
    float a, b;
} sums;

/* ------------------------------------------------------------------------------------------------- points and hulls */

typedef struct parts {      /* sums over half of a point, by the byte of a code */
    float a[256], b[256], lost[256];
} parts;

/* Sums over n fields of `bits` bits with n_levels levels, for values x with weights w. */
static void sum_parts(const float *level, int n_levels, int bits, const float *x, const float *w, int n, parts *p)
{
    uint8_t byte[81] = {0};
    float a[81] = {0}, b[81] = {0}, lost[81] = {3.0e38f};
    int n_sums = 1;
    for (int i = 0; i < n; i++) {
        for (int l = n_levels - 1; l >= 0; l--) { /* level 0 last: it replaces the sums so far */
            const float v = level[l], t = w[i] * v, gain = t * x[i], cost = t * v;
            for (int k = 0; k < n_sums; k++) {
                const int to = l * n_sums + k;
                byte[to] = (uint8_t) (byte[k] | l << i * bits);
                a[to] = a[k] + gain;
                b[to] = b[k] + cost;
                lost[to] = gain < lost[k] ? gain : lost[k];
            }
        }
        n_sums *= n_levels;
    }
    for (int k = 0; k < n_sums; k++) {
        p->a[byte[k]] = a[k];
        p->b[byte[k]] = b[k];
        p->lost[byte[k]] = lost[k];
    }
}

/* Sets a, b and, if it is not NULL, lost [n_codes] for the point of n = 4 or 8 values x with weights w. lost: the least
 * w x v of the values. */
static void point_sums(const grid *g, const float *level, const float *x, const float *w, int n, float *a, float *b,
                       float *lost)
{
    const int bits = n == 8 ? 2 : 4, half = n / 2;
    parts lo, hi; /* of the codes' low and high bytes */
    sum_parts(level, g->n_levels, bits, x, w, half, &lo);
    sum_parts(level, g->n_levels, bits, x + half, w + half, half, &hi);
    for (int c = 0; c < g->n_codes; c++) {
        const int i = g->codes[c] & 255, k = g->codes[c] >> 8;
        a[c] = lo.a[i] + hi.a[k];
        b[c] = lo.b[i] + hi.b[k];
    }
    for (int c = 0; lost && c < g->n_codes; c++) {
        const float l = lo.lost[g->codes[c] & 255], h = hi.lost[g->codes[c] >> 8];
        lost[c] = l < h ? l : h;
    }
}

/* Returns the code with the least s b - 2 a. */
static int best_code(const float *a, const float *b, int n, float s)
{
    float best[LANES];
    int at[LANES], lane = 0;
    for (int k = 0; k < LANES; k++) best[k] = b[k] * s - 2 * a[k], at[k] = k;
    for (int i = LANES; i < n; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            const float t = b[i + k] * s - 2 * a[i + k];
            const bool less = t < best[k];
            best[k] = less ? t : best[k];
            at[k] = less ? i + k : at[k];
        }
    }
    for (int k = 1; k < LANES; k++)
        if (best[k] < best[lane]) lane = k;
    return at[lane];
}

typedef struct codes {     /* codes with their sums, in ascending order */
    int n;
    uint16_t code[MAX_CODES];
    float a[MAX_CODES], b[MAX_CODES];
} codes;

typedef struct edge {       /* between two points of the hull */
    float s;                /* the factor for which both cost the same; 0 = none */
    float limit;            /* a code with a lower s b - 2 a is a point between them */
} edge;

static edge edge_of(const float *a, const float *b, int i, int j)
{
    const float s = b[j] > b[i] ? 2 * (a[j] - a[i]) / (b[j] - b[i]) : 0;
    if (!(s > 0)) return (edge) {0, -3.0e38f};
    return (edge) {s, b[i] * s - 2 * a[i] - 1e-6f * (a[i] > 0 ? a[i] : -a[i])};
}

/* Adds the codes below the edge's limit. Few are, so LANES codes are compared first. */
static void collect(const float *a, const float *b, int n, edge e, codes *to)
{
    for (int c = 0; c < n; c += LANES) {
        int any = 0;
        for (int k = 0; k < LANES; k++) any |= b[c + k] * e.s - 2 * a[c + k] < e.limit;
        for (int k = c; k < c + LANES && any; k++) {
            to->code[to->n] = (uint16_t) k;
            to->a[to->n] = a[k];
            to->b[to->n] = b[k];
            to->n += b[k] * e.s - 2 * a[k] < e.limit;
        }
    }
}

/* Returns the farthest point below the edge, of the codes from `from` on; -1 = none. */
static int farthest(const codes *of, int from, edge e)
{
    float best = e.limit;
    int k = -1;
    for (int c = from; c < of->n; c++) {
        const float t = of->b[c] * e.s - 2 * of->a[c];
        if (t < best) best = t, k = of->code[c];
    }
    return k;
}

/* Divides the codes from `from` on between two edges: first those of `next`, then those of `now`. Drops the code k, and
 * those that are below neither. Returns the first of `now`. */
static int divide(codes *of, int from, int k, edge now, edge next)
{
    codes kept;
    int to = from;
    kept.n = 0;
    for (int c = from; c < of->n; c++) {
        const float a = of->a[c], b = of->b[c];
        const uint16_t code = of->code[c];
        of->code[to] = kept.code[kept.n] = code;
        of->a[to] = kept.a[kept.n] = a;
        of->b[to] = kept.b[kept.n] = b;
        if (code == k) continue;
        to += b * next.s - 2 * a < next.limit;
        kept.n += b * now.s - 2 * a < now.limit;
    }
    memcpy(of->code + to, kept.code, (size_t) kept.n * sizeof *kept.code);
    memcpy(of->a + to, kept.a, (size_t) kept.n * sizeof *kept.a);
    memcpy(of->b + to, kept.b, (size_t) kept.n * sizeof *kept.b);
    of->n = to + kept.n;
    return to;
}

/* Finds the points that are the best for factors from lo to hi: first the two ends. All others lie on one side of the
 * line between them, which few codes do. Then each edge is split by its farthest point, and only the codes on the outer
 * side of the two new edges are kept. */
static void make_hull(const float *a, const float *b, int n, float lo, float hi, hull *h)
{
    int code[MAX_HULL] = {best_code(a, b, n, hi), best_code(a, b, n, lo)}, n_hull = code[0] == code[1] ? 1 : 2;
    /* start: first code of each edge that is not finished, the next one last */
    int start[MAX_HULL] = {0}, n_open = n_hull - 1;
    codes left;
    left.n = 0;
    if (n_open) collect(a, b, n, edge_of(a, b, code[0], code[1]), &left);
    for (int e = 0; n_open && n_hull < MAX_HULL;) {
        const int i = code[e], j = code[e + 1], k = farthest(&left, start[n_open - 1], edge_of(a, b, i, j));
        if (k < 0 || k == i || k == j) {
            left.n = start[--n_open];
            e++;
            continue;
        }
        memmove(&code[e + 2], &code[e + 1], (size_t) (n_hull - e - 1) * sizeof *code);
        code[e + 1] = k;
        n_hull++;
        start[n_open] = divide(&left, start[n_open - 1], k, edge_of(a, b, i, k), edge_of(a, b, k, j));
        n_open++;
    }
    h->n = n_hull;
    for (int i = 0; i < n_hull; i++) {
        h->a[i] = a[code[i]];
        h->b[i] = b[code[i]];
        h->code[i] = (uint16_t) code[i];
    }
}

/* Returns the index of the best point for the factor s. *cost: s b - 2 a. */
static int best_of(const hull *h, float s, float *cost)
{
    int best = 0;
    *cost = h->b[0] * s - 2 * h->a[0];
    for (int i = 1; i < h->n; i++) {
        const float t = h->b[i] * s - 2 * h->a[i];
        if (t < *cost) *cost = t, best = i;
    }
    return best;
}

/* Computes the hulls of unit u for factors from lo to hi. */
static void make_unit(super *p, int u, float lo, float hi)
{
    const grid *g = p->g;
    const int n = UNIT / g->n_points;
    float a[MAX_CODES], b[MAX_CODES], lost[MAX_CODES], shifted[8];
    unit *o = &p->u[u];
    for (int k = 0; k < (g->delta_units ? 2 : g->n_points); k++) {
        const int at = u * UNIT + (g->delta_units ? 0 : k * n);
        const float delta = !g->delta_units ? 0 : k ? -0.125f : 0.125f;
        for (int i = 0; i < g->n_levels; i++) shifted[i] = g->level[i] + delta;
        point_sums(g, shifted, p->x + at, p->w + at, n, a, b, o->is_odd ? lost : NULL);
        make_hull(a, b, g->n_codes, lo, hi, &o->plain[k]);
        if (!o->is_odd) continue;
        for (int c = 0; c < g->n_codes; c++) a[c] -= 2 * lost[c];
        make_hull(a, b, g->n_codes, lo, hi, &o->odd[k]);
    }
}

/* ---------------------------------------------------------------------------------------------------------- choices */

/* Adds the costs of a unit with the factor s, divided by s, and its sums. delta: IQ1, 1 = -1/8. Stores the codes and
 * the point with the wrong sign (-1 = none), unless code is NULL. */
static float choose_unit(const grid *g, const unit *u, float s, int delta, sums *t, uint16_t *code, int *odd)
{
    const hull *h[2] = {&u->plain[delta], &u->plain[1]};
    float cost[2] = {0, 0}, other[2];
    const int n = g->delta_units ? 1 : g->n_points;
    int at[2], flip = -1;
    for (int k = 0; k < n; k++) at[k] = best_of(h[k], s, &cost[k]);
    if (u->is_odd) {
        int odd_at[2];
        for (int k = 0; k < n; k++) odd_at[k] = best_of(&u->odd[k], s, &other[k]);
        flip = n == 2 && other[1] - cost[1] < other[0] - cost[0];
        h[flip] = &u->odd[flip];
        at[flip] = odd_at[flip];
        cost[flip] = other[flip];
    }
    for (int k = 0; k < n; k++) {
        t->a += h[k]->a[at[k]];
        t->b += h[k]->b[at[k]];
        if (code) code[k] = h[k]->code[at[k]];
    }
    if (odd) *odd = flip;
    return cost[0] + cost[1];
}

/* Returns the cost of group i with the factor s, without the constant, and its sums. */
static float choose_group(const super *p, int i, float s, sums *t)
{
    const grid *g = p->g;
    const int span = g->delta_units ? g->delta_units : 1;
    float cost = 0;
    *t = (sums) {0, 0};
    for (int u = i * g->group; u < (i + 1) * g->group; u += span) {
        float best = 0;
        sums of = {0, 0};
        for (int delta = 0; delta < (g->delta_units ? 2 : 1); delta++) {
            float c = 0;
            sums now = {0, 0};
            for (int k = 0; k < span; k++) c += choose_unit(g, &p->u[u + k], s, delta, &now, NULL, NULL);
            if (!delta || c < best) best = c, of = now;
        }
        cost += best;
        t->a += of.a;
        t->b += of.b;
    }
    return cost * s;
}

/* Computes the hulls of group i. Returns its best factor; 0 if all values are 0. */
static float fit_group(super *p, int i)
{
    const grid *g = p->g;
    float amax = 0, top = 0, sum = 0, best = 0, factor = 0;
    for (int k = i * g->group * UNIT; k < (i + 1) * g->group * UNIT; k++) {
        const float v = p->x[k] < 0 ? -p->x[k] : p->x[k];
        amax = v > amax ? v : amax;
        sum += v;
    }
    const bool flat = sum > 0.8f * amax * (float) (g->group * UNIT); /* low levels may fit best */
    for (int k = 0; k < g->n_levels; k++) top = g->level[k] > top ? g->level[k] : top;
    const float s = amax > 0 ? amax / top : 1, lo = s * g->lo;
    const float hi = flat && !g->delta_units ? 1.05f * amax / g->level[0] : s * g->hi;
    for (int u = i * g->group; u < (i + 1) * g->group; u++) {
        if (amax > 0) make_unit(p, u, lo * 0.7f, hi * 1.4f);
        else p->u[u] = (unit) {.plain = {{.n = 1}, {.n = 1}}}; /* zeros: any point has the factor 0 */
    }
    if (!(amax > 0)) return 0;
    for (int k = 0; k < N_FACTORS; k++) {
        float try = lo + (hi - lo) * (float) k / (N_FACTORS - 1);
        for (int again = 0; again < 2; again++) {
            sums t;
            choose_group(p, i, try, &t);
            if (!(t.a > 0 && t.b > 0)) break;
            try = t.a / t.b; /* the best factor for these points */
            if (t.a * try > best) best = t.a * try, factor = try;
        }
    }
    return factor;
}

/* Returns d as the reader computes it from the stored half. */
static float rounded(const grid *g, float d) { return pi__f16_to_f32(pi__finite_half(d * g->unit)) / g->unit; }

/* Sets group i's scale to the best one from lo to hi. Returns its cost. */
static float choose_scale(super *p, int i, int lo, int hi)
{
    float best = 0;
    sums t;
    lo = lo < 0 ? 0 : lo > p->g->max_scale ? p->g->max_scale : lo;
    hi = hi < lo ? lo : hi > p->g->max_scale ? p->g->max_scale : hi;
    for (int s = lo; s <= hi; s++) {
        const float cost = choose_group(p, i, p->d * (float) (2 * s + 1), &t);
        if (s == lo || cost < best) best = cost, p->scale[i] = s;
    }
    return best;
}

/* Chooses d and the scales of n groups, whose best factors are given. */
static void fit_scales(super *p, const float *factor, int n)
{
    const grid *g = p->g;
    float top = 0, best = 0, d = 0;
    int scale[MAX_GROUPS] = {0};
    for (int i = 0; i < n; i++) top = factor[i] > top ? factor[i] : top;
    for (int k = 0; k < N_D && top > 0; k++) {
        float cost = 0;
        p->d = rounded(g, top / (float) (2 * g->max_scale + 1) * (0.75f + 0.04f * (float) k));
        for (int i = 0; i < n && p->d > 0; i++) {
            const int s = (int) ((factor[i] / p->d - 1) * 0.5f);
            cost += choose_scale(p, i, s, s + 1);
        }
        if (!(cost < best)) continue;
        best = cost;
        d = p->d;
        memcpy(scale, p->scale, sizeof scale);
    }
    for (int round = 0; round < ROUNDS && d > 0; round++) {
        float a = 0, b = 0, cost = 0;
        for (int i = 0; i < n; i++) {
            const float m = (float) (2 * scale[i] + 1);
            sums t;
            choose_group(p, i, d * m, &t);
            a += m * t.a;
            b += m * m * t.b;
        }
        p->d = b > 0 ? rounded(g, a / b) : 0;
        for (int i = 0; i < n && p->d > 0; i++) cost += choose_scale(p, i, scale[i] - 1, scale[i] + 1);
        if (!(cost < best)) break;
        best = cost;
        d = p->d;
        memcpy(scale, p->scale, sizeof scale);
    }
    p->d = d;
    memcpy(p->scale, scale, sizeof scale);
}

/* Stores the choices of the units from u with the same delta, for the factor s. */
static void take_units(super *p, int u, float s)
{
    const grid *g = p->g;
    const int span = g->delta_units ? g->delta_units : 1, n = UNIT / g->n_points, bits = n == 8 ? 2 : 4;
    float cost[2] = {0, 0};
    sums unused = {0, 0};
    for (int delta = 0; delta < (g->delta_units ? 2 : 1); delta++)
        for (int k = 0; k < span; k++) cost[delta] += choose_unit(g, &p->u[u + k], s, delta, &unused, NULL, NULL);
    const int minus = g->delta_units && cost[1] < cost[0];
    for (int k = u; k < u + span; k++) {
        int odd, flip = 0;
        float least = 3.0e38f;
        choose_unit(g, &p->u[k], s, minus, &unused, p->code[k], &odd);
        p->minus[k] = minus;
        p->signs[k] = p->u[k].signs;
        for (int i = odd * n; odd >= 0 && i < (odd + 1) * n; i++) {
            const int field = g->codes[p->code[k][odd]] >> (i - odd * n) * bits & ((1 << bits) - 1);
            const float t = p->w[k * UNIT + i] * p->x[k * UNIT + i] * g->level[field];
            if (t < least) least = t, flip = i;
        }
        if (odd >= 0) p->signs[k] ^= (uint8_t) (1 << flip);
    }
}

static void fit(super *p, const grid *g, const float *src, const float *importance)
{
    const int n = UNITS / g->group;
    float factor[MAX_GROUPS];
    p->g = g;
    pi__clean(src, p->x, PI__QK);
    pi__weights(p->x, importance, PI__QK, p->w);
    /* Points are coarse: without a weight, a value could become several times larger. The mean is 1. */
    for (int i = 0; i < PI__QK; i++) p->w[i] += 1e-3f;
    for (int u = 0; u < UNITS; u++) {
        unsigned ones = 0;
        p->u[u].signs = 0;
        for (int i = 0; i < UNIT && !g->delta_units; i++) {
            float *x = &p->x[u * UNIT + i];
            if (!(*x < 0)) continue;
            *x = -*x;
            p->u[u].signs |= (uint8_t) (1 << i);
            ones++;
        }
        p->u[u].is_odd = g->parity && ones & 1;
    }
    for (int i = 0; i < n; i++) factor[i] = fit_group(p, i);
    fit_scales(p, factor, n);
    for (int u = 0; u < UNITS; u += g->delta_units ? g->delta_units : 1)
        take_units(p, u, p->d * (float) (2 * p->scale[u / g->group] + 1));
}

/* ---------------------------------------------------------------------------------------------------------- layouts */

static uint16_t half_of(const super *p) { return pi__f32_to_f16(p->d * p->g->unit); }

/* Stores 4-bit scales of n groups. */
static void store_scales(const super *p, int n, uint8_t *dst)
{
    for (int i = 0; i < n; i += 2) dst[i / 2] = (uint8_t) (p->scale[i] | p->scale[i + 1] << 4);
}

/* Returns the word of group i: 7 sign bits of each unit, then the scale. */
static uint32_t signs_and_scale(const super *p, int i)
{
    uint32_t word = (uint32_t) p->scale[i] << 28;
    for (int k = 0; k < 4; k++) word |= (uint32_t) (p->signs[4 * i + k] & 127) << 7 * k;
    return word;
}

void pi__write_iq2_xxs(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    super p;
    for (int64_t i = 0; i < n_blocks; i++, dst += 66) {
        fit(&p, &iq2_xxs, src + i * PI__QK, importance ? importance + i * PI__QK : NULL);
        pi__store16(dst, half_of(&p));
        for (int g = 0; g < 8; g++) {
            for (int k = 0; k < 4; k++) dst[2 + 8 * g + k] = (uint8_t) p.code[4 * g + k][0];
            pi__store32(dst + 6 + 8 * g, signs_and_scale(&p, g));
        }
    }
}

void pi__write_iq2_xs(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    super p;
    for (int64_t i = 0; i < n_blocks; i++, dst += 74) {
        fit(&p, &iq2_xs, src + i * PI__QK, importance ? importance + i * PI__QK : NULL);
        pi__store16(dst, half_of(&p));
        for (int k = 0; k < UNITS; k++)
            pi__store16(dst + 2 + 2 * k, (uint16_t) (p.code[k][0] | (p.signs[k] & 127) << 9));
        store_scales(&p, 16, dst + 66);
    }
}

void pi__write_iq2_s(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    super p;
    for (int64_t i = 0; i < n_blocks; i++, dst += 82) {
        fit(&p, &iq2_s, src + i * PI__QK, importance ? importance + i * PI__QK : NULL);
        pi__store16(dst, half_of(&p));
        memset(dst + 66, 0, 8);
        for (int k = 0; k < UNITS; k++) {
            dst[2 + k] = (uint8_t) p.code[k][0];
            dst[34 + k] = p.signs[k];
            dst[66 + k / 4] |= (uint8_t) (p.code[k][0] >> 8 << k % 4 * 2);
        }
        store_scales(&p, 16, dst + 74);
    }
}

void pi__write_iq3_xxs(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    super p;
    for (int64_t i = 0; i < n_blocks; i++, dst += 98) {
        fit(&p, &iq3_xxs, src + i * PI__QK, importance ? importance + i * PI__QK : NULL);
        pi__store16(dst, half_of(&p));
        for (int k = 0; k < 2 * UNITS; k++) dst[2 + k] = (uint8_t) p.code[k / 2][k % 2];
        for (int g = 0; g < 8; g++) pi__store32(dst + 66 + 4 * g, signs_and_scale(&p, g));
    }
}

void pi__write_iq3_s(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    super p;
    for (int64_t i = 0; i < n_blocks; i++, dst += 110) {
        fit(&p, &iq3_s, src + i * PI__QK, importance ? importance + i * PI__QK : NULL);
        pi__store16(dst, half_of(&p));
        memset(dst + 66, 0, 8);
        for (int k = 0; k < 2 * UNITS; k++) {
            dst[2 + k] = (uint8_t) p.code[k / 2][k % 2];
            dst[66 + k / 8] |= (uint8_t) (p.code[k / 2][k % 2] >> 8 << k % 8);
        }
        memcpy(dst + 74, p.signs, UNITS);
        store_scales(&p, 8, dst + 106);
    }
}

void pi__write_iq1_s(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    super p;
    for (int64_t i = 0; i < n_blocks; i++, dst += 50) {
        fit(&p, &iq1_s, src + i * PI__QK, importance ? importance + i * PI__QK : NULL);
        pi__store16(dst, half_of(&p));
        for (int g = 0; g < 8; g++) {
            unsigned high = (unsigned) p.scale[g] << 12 | (p.minus[4 * g] ? 0x8000u : 0);
            for (int k = 0; k < 4; k++) {
                dst[2 + 4 * g + k] = (uint8_t) p.code[4 * g + k][0];
                high |= (unsigned) (p.code[4 * g + k][0] >> 8) << 3 * k;
            }
            pi__store16(dst + 34 + 2 * g, (uint16_t) high);
        }
    }
}

void pi__write_iq1_m(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    super p;
    for (int64_t i = 0; i < n_blocks; i++, dst += 56) {
        fit(&p, &iq1_m, src + i * PI__QK, importance ? importance + i * PI__QK : NULL);
        const unsigned d = half_of(&p);
        memset(dst + 32, 0, 16);
        for (int k = 0; k < UNITS; k++) {
            dst[k] = (uint8_t) p.code[k][0];
            dst[32 + k / 2] |= (uint8_t) ((p.code[k][0] >> 8 | (p.minus[k] ? 8 : 0)) << k % 2 * 4);
        }
        for (int g = 0; g < 4; g++) {
            unsigned scales = (d >> 4 * g & 15) << 12;
            for (int k = 0; k < 4; k++) scales |= (unsigned) p.scale[4 * g + k] << 3 * k;
            pi__store16(dst + 48 + 2 * g, (uint16_t) scales);
        }
    }
}
