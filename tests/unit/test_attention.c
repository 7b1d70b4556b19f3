/* Attention over the paged cache: compared with a double-precision reference. Also batch-invariant: bitwise identical
 * in every batch, chunking, block size and thread count, for each available instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "attention_fixture.h"
#include "formats/cache_rotation.h"
#include "isas.h"
#include "rounds.h"

static int isas[PI__N_ISAS], n_isas;

static int find_isas(void **state)
{
    (void) state;
    for (int i = PI__ISA_GENERIC; i < PI__N_ISAS; i++) {
        if (own_kernels(i)) isas[n_isas++] = i;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------- reference */

#define TYPE(type, ...) PI__##type,
static const int32_t all_types[] = {PI__CACHE_TYPES(TYPE)};
#undef TYPE
enum { N_TYPES = PI__N_KV_TYPES };

/* Bytes of scales and offsets of 32 values. */
static int side_of(int32_t type)
{
    switch (type) {
#define TYPE(type, fn, side, ...) case PI__##type: return side;
        PI__CACHE_TYPES(TYPE)
#undef TYPE
    default: return 0;
    }
}

static float half_at(uint8_t *p, float x)
{
    uint16_t h = pi__f32_to_f16(x);
    memcpy(p, &h, 2);
    return pi__f16_to_f32(h);
}

/* Returns the code of x for scale d, limited to lo..hi. */
static int code_of(float x, float d, int lo, int hi)
{
    float inv = d != 0 ? 1 / d : 0;
    return (int) rintf(fminf(fmaxf(x * inv, (float) lo), (float) hi));
}

static int iq4_code(float x, float d)
{
    float inv = d != 0 ? 1 / d : 0, best = INFINITY;
    int at = 0;
    for (int i = 0; i < 16; i++) {
        const float far = fabsf(x * inv - (float) pi__iq4nl_values[i]);
        if (far < best) best = far, at = i;
    }
    return at;
}

static const int tq_values[2][16] = {{PI__TQ4_0_VALUES}, {PI__TQ3_0_VALUES}};

/* Computes the codes of 32 rotated values y with root mean square `rms`. *xc, *cc: sums of products of magnitudes. The
 * sums combine lanes at distances 16, 8, 4, 2, 1. */
static void tq_codes(const float *y, float rms, float sum, const int *table, int n, int *code, float *xc, float *cc)
{
    float x[32], c[32];
    const float inv = sum > 0 ? rms / sqrtf(sum / 32) : 0;
    for (int i = 0; i < 32; i++) {
        int k = n / 2;
        while (k < n - 1 && 0.5f * (float) (table[k] + table[k + 1]) < fabsf(y[i] * inv)) k++;
        code[i] = y[i] * inv < 0 ? n - 1 - k : k;
        x[i] = fabsf(y[i]) * (float) table[k];
        c[i] = (float) (table[k] * table[k]);
    }
    for (int o = 16; o; o /= 2)
        for (int i = 0; i < o; i++) x[i] += x[i + o], c[i] += c[i + o];
    *xc = x[0];
    *cc = c[0];
}

/* Encodes 32 values in a rotated type (formats/cache_rotation.h). */
static void tq_bytes(int32_t type, const float *x, uint8_t *to)
{
    static const float tries[] = {PI__ROTATION_TRIES};
    const int n = type == PI__TQ4_0 ? 16 : 8;
    float y[32], s[32], best = -1, scale = 0;
    int code[32], kept[32] = {0};
    for (int i = 0; i < 32; i++) {
        y[i] = isnan(x[i]) ? 0 : fminf(fmaxf(x[i], -65504), 65504);
        y[i] *= PI__ROTATION_SIGNS >> i & 1 ? -PI__ROTATION_SCALE : PI__ROTATION_SCALE;
    }
    for (int o = 16; o; o /= 2)
        for (int i = 0; i < 32; i++) {
            if (i & o) continue;
            const float a = y[i], b = y[i + o];
            y[i] = a + b;
            y[i + o] = a - b;
        }
    for (int i = 0; i < 32; i++) s[i] = y[i] * y[i];
    for (int o = 16; o; o /= 2)
        for (int i = 0; i < o; i++) s[i] += s[i + o];
    for (int t = 0; t < (int) (sizeof tries / sizeof *tries); t++) {
        float xc, cc;
        tq_codes(y, (n == 16 ? PI__TQ4_0_RMS : PI__TQ3_0_RMS) * tries[t], s[0], tq_values[n == 8], n, code, &xc, &cc);
        if (!(xc * (xc / cc) > best)) continue;
        best = xc * (xc / cc);
        scale = xc / cc;
        memcpy(kept, code, sizeof kept);
    }
    half_at(to, scale);
    memset(to + 2, 0, (size_t) n == 16 ? 16 : 12);
    for (int i = 0; i < 32; i++) {
        if (n == 16) to[2 + i % 16] = (uint8_t) (to[2 + i % 16] | kept[i] << i / 16 * 4);
        for (int b = 0; n == 8 && b < 3; b++)
            to[2 + (3 * i + b) / 8] = (uint8_t) (to[2 + (3 * i + b) / 8] | (kept[i] >> b & 1) << (3 * i + b) % 8);
    }
}

/* Decodes 32 values with the explicit matrix of elements 1 and -1. */
static void from_tq_bytes(int32_t type, const uint8_t *p, float *x)
{
    uint16_t half;
    double y[32];
    memcpy(&half, p, 2);
    for (int i = 0; i < 32; i++) {
        int code = type == PI__TQ4_0 ? p[2 + i % 16] >> i / 16 * 4 & 15 : 0;
        for (int b = 0; type == PI__TQ3_0 && b < 3; b++) code |= (p[2 + (3 * i + b) / 8] >> (3 * i + b) % 8 & 1) << b;
        y[i] = (double) pi__f16_to_f32(half) * tq_values[type == PI__TQ3_0][code];
    }
    for (int i = 0; i < 32; i++) {
        double sum = 0;
        for (int j = 0; j < 32; j++) sum += __builtin_popcount((unsigned) (i & j)) % 2 ? -y[j] : y[j];
        x[i] = (float) (sum / sqrt(32) * (PI__ROTATION_SIGNS >> i & 1 ? -1 : 1));
    }
}

/* Decodes row p of n values to floats. */
static void from_bytes(int32_t type, const uint8_t *p, float *x, int n)
{
    if (!pi__kv_rotated(type)) assert_true(pi__dequantize_row(type, p, x, n));
    else for (int i = 0; i < n; i += 32, p += pi__kv_row_size(type, 32)) from_tq_bytes(type, p, x + i);
}

/* Encodes row x of n values in the file format; the cache holds equal bytes in another order. The scale comes from the
 * largest magnitude, or from the range between minimum and maximum. */
static void to_bytes(int32_t type, const float *x, uint8_t *row, int n)
{
    const int side = side_of(type);
    if (!side) {
        assert_true(pi__quantize_row(type, x, row, n, NULL));
        return;
    }
    for (; pi__kv_rotated(type) && n; n -= 32, x += 32, row += pi__kv_row_size(type, 32)) tq_bytes(type, x, row);
    const bool five = type == PI__Q5_0 || type == PI__Q5_1, over_min = type == PI__Q4_1 || type == PI__Q5_1;
    for (; n; n -= 32, x += 32) {
        float top = -INFINITY, minus_low = -INFINITY, c[32];
        int code[32];
        for (int i = 0; i < 32; i++) {
            c[i] = isnan(x[i]) ? 0 : fminf(fmaxf(x[i], -65504), 65504);
            top = fmaxf(top, c[i]);
            minus_low = fmaxf(minus_low, 0 - c[i]);
        }
        const float low = -minus_low, max = top >= -low ? top : low, min = over_min ? half_at(row + 2, low) : 0;
        const int span = five ? 31 : 15, half = (span + 1) / 2;
        const float d = half_at(row, type == PI__Q8_0 ? fabsf(max) / 127 : type == PI__IQ4_NL ? max / -127 :
                                     over_min ? (top - low) / (float) span : max / (float) -half);
        for (int i = 0; i < 32; i++)
            code[i] = type == PI__Q8_0 ? code_of(c[i], d, -127, 127) : type == PI__IQ4_NL ? iq4_code(c[i], d) :
                      over_min ? code_of(c[i] - min, d, 0, span) : code_of(c[i], d, -half, half - 1) + half;
        uint8_t *bits = row + (over_min ? 4 : 2);
        if (five) memset(bits, 0, 4);
        for (int i = 0; five && i < 32; i++) bits[i / 8] = (uint8_t) (bits[i / 8] | code[i] >> 4 << i % 8);
        row += side;
        if (type == PI__Q8_0) for (int i = 0; i < 32; i++) *row++ = (uint8_t) (int8_t) code[i];
        else for (int i = 0; i < 16; i++) *row++ = (uint8_t) ((code[i] & 15) | (code[i + 16] & 15) << 4);
    }
}

/* Rounds row x of n values to the cache type. */
static void through(int32_t type, const float *x, float *y, int n)
{
    uint8_t tmp[4 * 512];
    to_bytes(type, x, tmp, n);
    from_bytes(type, tmp, y, n);
}

/* Computes the reference result of token t, head h of s. k, v: the cache's values, [len, n_head_kv, head_dim]. */
static void reference(const fixture *w, const sequence *s, const float *k, const float *v, int t, int h, double *out)
{
    const config *c = &w->c;
    int d = c->head_dim, kvh = h / (c->n_head / c->n_head_kv), lo = c->window && t >= c->window ? t - c->window + 1 : 0;
    int hi = t >= c->span_from && t < c->span_from + c->span_n ? c->span_from + c->span_n - 1 : t;
    if (hi >= s->len) hi = s->len - 1;
    double *p = must(malloc(sizeof(double) * (size_t) (hi + 1))), max = -1e300, sum = 0;
    for (int j = lo; j <= hi; j++) {
        double dot = 0;
        for (int i = 0; i < d; i++)
            dot += (double) s->q[(t * c->n_head + h) * d + i] * k[(j * c->n_head_kv + kvh) * d + i];
        const int reach = c->n_rel / 2, far = j - t < -reach ? -reach : j - t > reach ? reach : j - t;
        if (c->n_rel == 1) dot -= (double) w->rel[h] * (t - j);
        if (c->n_rel > 1) dot += w->rel[h * c->n_rel + far + reach];
        if (c->softcap != 0) dot = c->softcap * tanh(dot / c->softcap);
        p[j] = dot;
        if (dot > max) max = dot;
    }
    for (int j = lo; j <= hi; j++) sum += p[j] = exp(p[j] - max);
    if (c->sinks) sum += exp(w->sinks[h] - max);
    for (int i = 0; i < d; i++) out[i] = 0;
    for (int j = lo; j <= hi; j++) {
        for (int i = 0; i < d; i++) out[i] += p[j] / sum * v[(j * c->n_head_kv + kvh) * d + i];
    }
    for (int i = 0; c->gate && i < d; i++) out[i] /= 1 + exp(-(double) s->gate[(t * c->n_head + h) * d + i]);
    free(p);
}

/* Compares every `every`-th row with the reference. */
static void check(const fixture *w, int every)
{
    const config *c = &w->c;
    int d = c->head_dim;
    size_t nk = (size_t) c->n_head_kv * (size_t) d;
    for (int i = 0; i < w->n_seqs; i++) {
        const sequence *s = &w->seq[i];
        float *k = must(malloc((size_t) s->len * nk * 4)), *v = must(malloc((size_t) s->len * nk * 4));
        for (size_t j = 0; j < (size_t) (s->len * c->n_head_kv); j++) {
            through(c->type_k, s->k + j * (size_t) d, k + j * (size_t) d, d);
            through(c->type_v, s->v + j * (size_t) d, v + j * (size_t) d, d);
        }
        for (int t = 0; t < s->len; t++) {
            if (t % every && t != s->len - 1) continue;
            for (int h = 0; h < c->n_head; h++) {
                double ref[512], worst = 0;
                reference(w, s, k, v, t, h, ref);
                for (int e = 0; e < d; e++) {
                    double diff = fabs(ref[e] - s->out[(t * c->n_head + h) * d + e]);
                    if (!(diff <= worst)) worst = diff;
                }
                if (worst <= 1e-5) continue;
                fail_msg("isa %d k %d v %d heads %d/%d dim %d window %d block %d: seq %d token %d head %d is off by %g",
                         c->isa, c->type_k, c->type_v, c->n_head, c->n_head_kv, d, c->window, c->block_size, i, t, h,
                         worst);
            }
        }
        free(k);
        free(v);
    }
}

static void run_and_check(const config *c, int n_seqs, const int *lens, int every)
{
    for (int i = 0; i < n_isas; i++) {
        config ci = *c;
        ci.isa = isas[i];
        fixture w;
        fixture_init(&w, &ci, n_seqs, lens);
        fixture_run(&w);
        check(&w, every);
        fixture_free(&w);
    }
}

static const config base = {.n_threads = 2, .block_size = 16, .type_k = PI__F16, .type_v = PI__F16, .n_head = 4,
                            .n_head_kv = 1, .head_dim = 64, .chunk = 64};

static void identity(const config *c0, int n_seqs, const int *lens);

/* Tokens of a span see the later ones of the span, within the window: across tiles, KV splits and blocks; the result
 * does not depend on chunks, blocks or threads. */
static void test_spans(void **state)
{
    (void) state;
    static const int lens[] = {420, 61};
    static const int spans[][2] = {{3, 40}, {0, 16}, {31, 1}, {200, 120}, {250, 64}};
    for (int i = 0; i < 5; i++) {
        for (int window = 0; window < 120; window += 50) {
            if (emulated() && (i + window / 50) % (slow_vectors() ? 5 : 3)) continue;
            config c = base;
            c.span_from = spans[i][0];
            c.span_n = spans[i][1];
            c.window = window;
            run_and_check(&c, 2, lens, 3);
            identity(&c, 2, lens);
        }
    }
}

/* Every pair of K and V types matches the reference in every block size. */
static void test_types(void **state)
{
    (void) state;
    static const int lens[] = {70, 19};
    for (int k = 0; k < N_TYPES; k++) {
        for (int v = 0; v < N_TYPES; v++) {
            if (emulated() && v != (k + 1) % N_TYPES && (crossed() || v != k)) continue;
            config c = base;
            c.type_k = all_types[k];
            c.type_v = all_types[v];
            c.block_size = 16 << (k + v) % 3;
            c.chunk = 23;
            run_and_check(&c, 2, lens, 5);
        }
    }
}

static void test_shapes(void **state)
{
    (void) state;
    static const int heads[][2] = {{4, 1}, {8, 2}, {1, 1}, {6, 6}, {16, 1}, {5, 1}, {14, 2}}, lens[] = {21, 1, 17};
    static const int dims[] = {32, 64, 80, 96, 112, 128, 256, 512};
    for (int h = 0; h < 7; h++) {
        for (int d = 0; d < 8; d++) {
            if (emulated() && (h + d) % (crossed() ? 8 : 4)) continue;
            config c = base;
            c.n_head = heads[h][0];
            c.n_head_kv = heads[h][1];
            c.head_dim = dims[d];
            if (dims[d] % 32 && h % 3) c.type_k = h % 3 == 1 ? PI__F32 : PI__BF16;
            if (dims[d] % 32 && h % 2) c.type_v = h % 4 == 1 ? PI__F32 : PI__BF16;
            c.chunk = d % 2 ? 5 : 100;
            c.gate = (h + d) % 3 == 0;
            run_and_check(&c, 3, lens, 4);
        }
    }
}

static void test_long(void **state)
{
    (void) state;
    const int lens[] = {slow_vectors() ? 500 : 1100, 256, 257};
    static const int windows[] = {0, 1, 64, 512};
    for (int i = 0; i < 4; i += slow_vectors() ? 2 : 1) {
        config c = base;
        c.window = windows[i];
        c.n_head = 2;
        c.head_dim = 32;
        c.block_size = 16 << i % 3;
        c.chunk = 200;
        run_and_check(&c, 3, lens, 131);
        c.chunk = 400;
        c.softcap = i % 2 ? 2.0f : 30.0f;
        c.n_rel = i < 2 ? 0 : i == 2 ? 1 : MAX_REL;
        c.sinks = true;
        run_and_check(&c, 3, lens, 211);
    }
}

/* Sequences decoded token by token, long enough for a KV split over threads, match the reference. */
static void test_decode(void **state)
{
    (void) state;
    static const int lens[] = {530};
    for (int window = 0; window <= 100; window += slow_vectors() ? 200 : 100) {
        config c = base;
        c.window = window;
        c.n_threads = 3;
        c.chunk = 1;
        c.head_dim = 32;
        run_and_check(&c, 1, lens, 23);
    }
}

/* Small softmax weights are accurate relative to their own size: two keys with scores c and 0, of which only the first
 * has values. Below -87 a weight is at most about e^-87. */
static void test_small_weights(void **state)
{
    (void) state;
    static const int lens[] = {2};
    config c = base;
    c.type_k = c.type_v = PI__F32;
    c.n_head = 64;
    for (int i = 0; i < n_isas; i++) {
        c.isa = isas[i];
        fixture w;
        fixture_init(&w, &c, 1, lens);
        sequence *s = &w.seq[0];
        const size_t d = (size_t) c.head_dim, row = (size_t) c.n_head * d;
        memset(s->q, 0, 2 * row * sizeof(float));
        memset(s->k, 0, 2 * d * sizeof(float));
        memset(s->v, 0, 2 * d * sizeof(float));
        s->k[0] = 1;
        for (size_t j = 0; j < d; j++) s->v[j] = 1;
        for (int h = 0; h < c.n_head; h++) s->q[row + (size_t) h * d] = -1.4653f * (float) h;
        fixture_run(&w);
        for (int h = 0; h < c.n_head; h++) {
            const double x = s->q[row + (size_t) h * d], want = exp(x) / (1 + exp(x));
            const float got = s->out[row + (size_t) h * d];
            if (x > -87 ? fabs(got - want) > (4e-7 - 7e-8 * x) * want : !(got >= 0 && got < 1.7e-38f))
                fail_msg("isa %d: the weight of score %g is %g, not %g", c.isa, x, (double) got, want);
        }
        fixture_free(&w);
    }
}

/* ----------------------------------------------------------------------------------------------- bitwise identical */

static void assert_same(const fixture *a, const fixture *b, const char *what)
{
    for (int i = 0; i < a->n_seqs; i++) {
        size_t n = (size_t) a->seq[i].len * (size_t) (a->c.n_head * a->c.head_dim);
        for (size_t j = 0; j < n; j++) {
            if (!memcmp(&a->seq[i].out[j], &b->seq[i].out[j], 4)) continue;
            fail_msg("%s: isa %d sequence %d token %d head %d: %a is not %a", what, a->c.isa, i,
                     (int) (j / (size_t) (a->c.n_head * a->c.head_dim)),
                     (int) (j / (size_t) a->c.head_dim) % a->c.n_head, (double) a->seq[i].out[j],
                     (double) b->seq[i].out[j]);
        }
    }
}

static void same_as(const fixture *a, config c, int n_seqs, const int *lens, const char *what)
{
    fixture b;
    fixture_init(&b, &c, n_seqs, lens);
    fixture_run(&b);
    assert_same(a, &b, what);
    fixture_free(&b);
}

static void identity(const config *c0, int n_seqs, const int *lens)
{
    config c = *c0;
    c.block_size = 16;
    c.n_threads = 1;
    c.apart = true;
    c.chunk = 10000;
    fixture a;
    fixture_init(&a, &c, n_seqs, lens);
    fixture_run(&a);
    c.apart = false;
    same_as(&a, c, n_seqs, lens, "in one batch");
    c.n_threads = 2;
    same_as(&a, c, n_seqs, lens, "two threads");
    c.block_size = 32;
    c.ids = 5;
    c.chunk = 64;
    same_as(&a, c, n_seqs, lens, "blocks of 32, chunks of 64");
    c.n_threads = 3;
    c.block_size = 64;
    c.chunk = 7;
    same_as(&a, c, n_seqs, lens, "blocks of 64, chunks of 7, three threads");
    c.chunk = 1;
    c.apart = true;
    same_as(&a, c, n_seqs, lens, "token by token, apart, three threads");
    c.n_threads = 1;
    same_as(&a, c, n_seqs, lens, "token by token, apart, one thread");
    fixture_free(&a);
}

static void test_identity(void **state)
{
    (void) state;
    const int lens[] = {slow_vectors() ? 120 : 300, 65, 1, 40};
    for (int i = 0; i < n_isas; i++) {
        for (int v = 0; v < N_TYPES; v += slow_vectors() ? 6 : crossed() ? 3 : emulated() ? 2 : 1) {
            config c = base;
            c.isa = isas[i];
            c.type_k = all_types[v];
            c.type_v = all_types[(v * 2 + 1) % N_TYPES];
            c.head_dim = v == 0 ? 96 : 32;
            c.n_head = v == 1 ? 6 : 4;
            c.n_head_kv = v == 1 ? 6 : v == 2 ? 2 : 1;
            c.window = v % 2 ? 50 : 0;
            c.softcap = v == 3 ? 5.0f : 0;
            c.sinks = v == 4;
            c.n_rel = v == 0 ? MAX_REL : v == 2;
            c.gate = v % 3 == 1;
            identity(&c, v ? 4 : 2, lens);
        }
    }
}

/* A few tokens late in a long sequence: a KV split over threads in several waves gives the same bits as one thread. */
static void test_waves(void **state)
{
    (void) state;
    static const int lens[] = {1290};
    if (slow_vectors()) skip(); /* the distribution of KV splits does not depend on the instruction set */
    for (int i = 0; i < n_isas; i++) {
        fixture w[2];
        for (int t = 0; t < 2; t++) {
            config c = base;
            c.isa = isas[i];
            c.n_threads = t ? 2 : 1;
            c.n_head = c.n_head_kv = 4;
            c.head_dim = 32;
            c.sinks = true;
            c.chunk = 2;
            fixture_init(&w[t], &c, 1, lens);
            int n = 1280;
            fixture_step(&w[t], &n);
            fixture_run(&w[t]);
        }
        assert_same(&w[0], &w[1], "waves");
        check(&w[1], 1285);
        fixture_free(&w[0]);
        fixture_free(&w[1]);
    }
}

/* Tokens with infinite values do not affect tokens that do not attend to them, even in the same batch. */
static void test_poison(void **state)
{
    (void) state;
    static const int lens[] = {90};
    for (int i = 0; i < n_isas; i++) {
        config c = base;
        c.isa = isas[i];
        c.window = 20;
        c.chunk = 1;
        fixture a, b;
        fixture_init(&a, &c, 1, lens);
        fixture_run(&a);
        c.chunk = 50;
        fixture_init(&b, &c, 1, lens);
        for (int d = 0; d < c.head_dim; d++) b.seq[0].v[40 * c.head_dim + d] = d % 2 ? INFINITY : NAN;
        fixture_run(&b);
        size_t n = (size_t) (c.n_head * c.head_dim);
        for (int t = 0; t < 90; t++) {
            bool same = !memcmp(a.seq[0].out + (size_t) t * n, b.seq[0].out + (size_t) t * n, n * 4);
            if (same != (t < 40 || t >= 60)) fail_msg("isa %d, token %d: same is %d", c.isa, t, same);
        }
        fixture_free(&a);
        fixture_free(&b);
    }
}

/* ------------------------------------------------------------------------------------------------------ qkv, sizes */

static void test_kv_bytes(void **state)
{
    (void) state;
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F16, PI__F16, 1, 256, 16), 16 * 256 * 4);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F32, PI__BF16, 2, 128, 32), 32 * 2 * 128 * 6);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__Q8_0, PI__Q4_0, 3, 64, 64), 64 * 3 * 2 * (34 + 18));
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__Q5_K, PI__F16, 1, 64, 16), 0);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__Q5_1, PI__Q5_0, 1, 64, 16), 16 * 2 * (24 + 22));
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__TQ4_0, PI__TQ3_0, 1, 192, 16), 16 * 6 * (18 + 14));
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__TQ3_0, PI__TQ4_0, 1, 80, 16), 0);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F16, 77, 1, 64, 16), 0);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F16, PI__F32, 1, 80, 16), 16 * 80 * 6);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F16, PI__Q8_0, 1, 80, 16), 0);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F16, PI__F16, 1, 72, 16), 0);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F16, PI__F16, 1, 16, 16), 0);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F16, PI__F16, 1, 1024, 16), 0);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F16, PI__F16, 1, 0, 16), 0);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F16, PI__F16, 0, 64, 16), 0);
    assert_int_equal(pi__cpu_kv_bytes(NULL, PI__F16, PI__F16, 1, 64, 48), 0);
}

/* y = rotate(norm(x + bias) * w) * scale in double precision */
static void ref_prep(const float *x, const float *bias, int n, const float *w, bool norm, bool norm_last,
                     const float *rope, int n_rot, int pair, double scale, double *y)
{
    double ss = 0;
    for (int i = 0; i < n; i++) y[i] = bias ? (double) (x[i] + bias[i]) : (double) x[i];
    for (int i = 0; i < n; i++) ss += y[i] * y[i];
    double f = norm ? 1 / sqrt(ss / n + 1e-6) : 1;
    for (int i = 0; i < n && !norm_last; i++) y[i] *= f * (w ? w[i] : 1);
    for (int i = 0; rope && i < n_rot / 2; i++) {
        double a = y[i], b = y[i + pair], c = rope[i], s = rope[n_rot / 2 + i];
        y[i] = a * c - b * s;
        y[i + pair] = a * s + b * c;
    }
    ss = 0;
    for (int i = 0; i < n; i++) ss += y[i] * y[i];
    f = norm ? 1 / sqrt(ss / n + 1e-6) : 1;
    for (int i = 0; i < n && norm_last; i++) y[i] *= f * (w ? w[i] : 1);
    for (int i = 0; i < n; i++) y[i] *= scale;
}

enum { QKV_TOKENS = 37, QKV_DIM = 64 };

static void close_to(const double *ref, float x, int i)
{
    if (!(fabs(ref[i] - x) <= 2e-6 * (1 + fabs(ref[i])))) fail();
}

/* One combination of biases, norms and rotation, with an f32 cache: q in place, k and v at their cache positions. */
static void qkv_case(int isa, bool biased, bool norm, bool last, int n_rot, int pair, bool v_norm)
{
    enum { NH = 4, NKV = 2, T = QKV_TOKENS, D = QKV_DIM, LD = (NH + 2 * NKV) * D + 3 };
    static float x[T * LD], orig[T * LD], rope[T * D], qn[D], kn[D], biases[(NH + 2 * NKV) * D];
    const float *bias = biased ? biases : NULL;
    for (int i = 0; i < (NH + 2 * NKV) * D; i++) biases[i] = normal();
    for (int i = 0; i < T * LD; i++) orig[i] = x[i] = normal();
    for (int i = 0; i < T * D; i++) rope[i] = normal();
    for (int i = 0; i < D; i++) qn[i] = normal(), kn[i] = normal();
    size_t bytes = pi__cpu_kv_bytes(NULL, PI__F32, PI__F32, NKV, D, 32);
    char *pool = must(aligned_alloc(64, bytes * 3));
    memset(pool, 0xff, bytes * 3);
    int32_t slot[T], pos[T], start[2] = {0, T}, len[1] = {T};
    for (int i = 0; i < T; i++) slot[i] = i == 5 ? -1 : (i < 32 ? 64 + i : i - 32), pos[i] = i;
    pi__batch b = {.n_tokens = T, .n_seqs = 1, .n_groups = 1, .pos = pos, .seq_start = start, .seq_len = len};
    b.kv[0] = (pi__kv_batch){32, 2, NULL, slot};
    pi__kv_layer kv = {
        .type_k = PI__F32, .type_v = PI__F32, .n_head_kv = NKV, .head_dim = D, .base = pool, .stride = bytes};
    pi__qkv a = {.kv = &kv,
                 .q = x,
                 .ldq = LD,
                 .k = x + NH * D,
                 .v = x + (NH + NKV) * D,
                 .ldk = LD,
                 .ldv = LD,
                 .n_head = NH,
                 .q_bias = bias,
                 .k_bias = bias ? bias + NH * D : NULL,
                 .v_bias = bias ? bias + (NH + NKV) * D : NULL,
                 .q_norm = norm ? qn : NULL,
                 .k_norm = norm ? kn : NULL,
                 .v_norm = v_norm,
                 .norm_last = last,
                 .eps = 1e-6f,
                 .rope = n_rot ? rope : NULL,
                 .n_rot = n_rot,
                 .pair_stride = pair,
                 .q_scale = 0.25f};
    pi__cpu cpu = {.attn = kernels_of(isa)};
    assert_int_equal(pi__pool_create(&cpu.pool, 2, 0, 50, NULL), PI_OK);
    pi__cpu_qkv(&cpu.be, &b, &a);
    for (int t = 0; t < T; t++) {
        double y[D];
        const float *r = n_rot ? rope + t * n_rot : NULL;
        for (int h = 0; h < NH; h++) {
            ref_prep(orig + t * LD + h * D, bias ? bias + h * D : NULL, D, norm ? qn : NULL, norm, last, r, n_rot, pair,
                     0.25, y);
            for (int d = 0; d < D; d++) close_to(y, x[t * LD + h * D + d], d);
        }
        if (slot[t] < 0) continue;
        for (int h = 0; h < NKV; h++) {
            const float *tile = (const float *) (pool + (size_t) (slot[t] / 32) * bytes);
            int o = slot[t] % 32;
            const float *kt = tile + (h * 2 + o / 16) * 16 * D, *vt = tile + (NKV * 2 + h * 2 + o / 16) * 16 * D;
            ref_prep(orig + t * LD + (NH + h) * D, bias ? bias + (NH + h) * D : NULL, D, norm ? kn : NULL, norm, last,
                     r, n_rot, pair, 1, y);
            for (int d = 0; d < D; d++) close_to(y, kt[d * 16 + o % 16], d);
            ref_prep(orig + t * LD + (NH + NKV + h) * D, bias ? bias + (NH + NKV + h) * D : NULL, D, NULL, v_norm,
                     false, NULL, 0, 0, 1, y);
            for (int d = 0; d < D; d++) close_to(y, vt[d / 32 * 512 + o % 16 * 32 + d % 32], d);
        }
    }
    /* Nothing else was written: not the slot of token 5, and no block except 0 and 2. */
    size_t touched = 0;
    for (size_t i = 0; i < bytes * 3 / 4; i++) touched += memcmp(pool + i * 4, "\xff\xff\xff\xff", 4) != 0;
    assert_int_equal(touched, (T - 1) * NKV * 2 * D);
    /* Without k, the op processes only q. */
    memcpy(x, orig, sizeof x);
    memset(pool, 0xff, bytes * 3);
    a.k = a.v = NULL;
    pi__cpu_qkv(&cpu.be, &b, &a);
    for (size_t i = 0; i < bytes * 3; i++) assert_int_equal((uint8_t) pool[i], 0xff);
    assert_memory_equal(x + NH * D, orig + NH * D, (LD - NH * D) * 4);
    pi__pool_destroy(cpu.pool);
    free(pool);
}

static void test_qkv(void **state)
{
    (void) state;
    for (int i = 0; i < n_isas; i++) {
        qkv_case(isas[i], false, true, false, 64, 32, false);
        qkv_case(isas[i], false, false, false, 32, 32, true);
        qkv_case(isas[i], false, true, false, 24, 12, true);
        qkv_case(isas[i], false, false, false, 0, 0, false);
        qkv_case(isas[i], true, false, false, 64, 32, false);
        qkv_case(isas[i], true, true, false, 32, 32, true);
        qkv_case(isas[i], true, true, true, 32, 32, true);
    }
}

/* Every instruction set stores the same bytes for a row, in different lanes. */
static void stored_bits(const float *x)
{
    for (int i = 0; i < n_isas; i++) {
        for (int t = 0; t < N_TYPES; t++) {
            const int side = side_of(all_types[t]), all = (int) pi__kv_row_size(all_types[t], 32), codes = all - side;
            const int unit = side ? all_types[t] == PI__TQ3_0 ? 4 : 1 : all / 32;
            uint8_t row[256], tile[16 * 256], again[256];
            float y[64];
            to_bytes(all_types[t], x, row, 64);
            kernels_of(isas[i])->store_row(all_types[t], (char *) again, 64, x);
            assert_memory_equal(again, row, 2 * all);
            kernels_of(isas[i])->load_row(all_types[t], (char *) again, 64, y);
            for (int lane = 0; lane < 16; lane += 5) {
                kernels_of(isas[i])->store_k(all_types[t], (char *) tile, lane, 64, x);
                for (int b = 0; b < 2; b++) {
                    const uint8_t *tb = tile + b * 16 * all, *rb = row + b * all;
                    for (int w = 0; w < side / 2; w++) assert_memory_equal(tb + (w * 16 + lane) * 2, rb + 2 * w, 2);
                    for (int j = 0; j < codes; j += unit)
                        assert_memory_equal(tb + 16 * side + j * 16 + lane * unit, rb + side + j, unit);
                }
                kernels_of(isas[i])->store_v(all_types[t], (char *) tile, lane, 64, x);
                for (int b = 0; b < 2; b++) {
                    const uint8_t *tb = tile + b * 16 * all, *rb = row + b * all;
                    for (int w = 0; w < side / 2; w++) assert_memory_equal(tb + (w * 16 + lane) * 2, rb + 2 * w, 2);
                    assert_memory_equal(tb + 16 * side + lane * codes, rb + side, codes);
                }
            }
            float want[64], most[2] = {0};
            from_bytes(all_types[t], row, want, 64);
            for (int d = 0; d < 64; d++) most[d / 32] = fmaxf(most[d / 32], fabsf(want[d]));
            for (int d = 0; d < 64; d++)
                if (isfinite(want[d]))
                    assert_true(fabsf(y[d] - want[d]) <= 1e-6f * fabsf(want[d]) + 1e-6f * most[d / 32]);
        }
    }
}

/* Cache contents are the same on each instruction set, including NaN and infinite values. */
static void test_stored_bits(void **state)
{
    (void) state;
    float x[64];
    for (int i = 0; i < 64; i++) x[i] = normal() * ldexpf(1, i % 40 - 25);
    x[3] = 65520.0f;
    x[4] = 5.9e-8f;
    x[5] = -0.0f;
    x[6] = 1.0f + 1.0f / 2048;
    x[7] = 1.0f + 3.0f / 2048;
    stored_bits(x);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 64; i++) x[i] = (float) (uniform() * 2 - 1);
        if (round == 1) x[7] = x[40] = NAN, x[8] = INFINITY, x[9] = -INFINITY, x[50] = -1e20f;
        for (int i = 0; round == 2 && i < 64; i++) x[i] = 0;
        for (int i = 0; round == 3 && i < 64; i++) x[i] *= 1e-9f;
        stored_bits(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),    cmocka_unit_test(test_shapes), cmocka_unit_test(test_long),
        cmocka_unit_test(test_decode),   cmocka_unit_test(test_identity), cmocka_unit_test(test_waves),
        cmocka_unit_test(test_poison),   cmocka_unit_test(test_spans),    cmocka_unit_test(test_small_weights),
        cmocka_unit_test(test_kv_bytes), cmocka_unit_test(test_qkv),    cmocka_unit_test(test_stored_bits),
    };
    return cmocka_run_group_tests(tests, find_isas, NULL);
}
