/* Times the matrices of a small model (shapes of Gemma 3 270M, separate weights per layer). Prints weight bytes per
 * second and multiplications per second. For kernel developers; not a test.
 *
 *     tool_bench_linear [threads [isa [rounds [rows]]]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/linear.h"

enum { LAYERS = 18, MAX_ROWS = 512 };

typedef struct matrix {
    pi__weight w[LAYERS];
} matrix;

/* One thread is timed in processor time, because other programs disturb it less. */
static double now(const pi__backend *be)
{
    struct timespec t;
    clock_gettime(be->dev->n_threads(be) == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static uint32_t rnd(void)
{
    static uint64_t s = 88172645463325252u;
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return (uint32_t) (s >> 24);
}

/* Returns random weights in file layout. NULL = the type has no writer, or out of memory. */
static uint8_t *file_rows(int type, int64_t n_in, int64_t n_out)
{
    const size_t row = pi__row_size(pi__type_info_of(type), n_in);
    float *v = malloc((size_t) n_in * sizeof *v);
    uint8_t *src = malloc(row * (size_t) n_out);
    for (int64_t r = 0; src && v && r < n_out; r++) {
        if (r >= 16) { /* quantizing every row would take longer than the whole measurement */
            memcpy(src + (size_t) r * row, src + (size_t) (r - 16) * row, row);
            continue;
        }
        for (int64_t k = 0; k < n_in; k++) v[k] = (float) (rnd() & 0xffff) / 32768.0f - 1.0f;
        if (!pi__quantize_row(type, v, src + (size_t) r * row, n_in, NULL)) memset(src + (size_t) r * row, 0x11, row);
    }
    free(v);
    return src;
}

/* All weights are in one region, as in an engine, because only a large region gets huge pages. */
static void make(pi__backend *be, matrix *m, int type, int64_t n_in, int64_t n_out, int layers)
{
    static char *region;
    static size_t used;
    const size_t size = 280u << 20;
    uint8_t *src = file_rows(type, n_in, n_out);
    if (!region) region = be->dev->alloc(be, size);
    if (!src || !region) exit(1);
    for (int i = 0; i < layers; i++) {
        m->w[i] = (pi__weight) {.type = type, .n_in = n_in, .n_out = n_out, .n_mat = 1};
        m->w[i].size = be->dev->weight_size(be, &m->w[i]);
        if (used + m->w[i].size > size) exit(1);
        m->w[i].data = region + used;
        used += (m->w[i].size + 63) & ~(size_t) 63;
        be->dev->weight_load(be, &m->w[i], 0, 0, n_out, src);
    }
    free(src);
}

typedef struct bench {
    pi__backend *be;
    float *x, *x2, *norm, *y[2];
    int rounds;
    double sum; /* sum of the best times in seconds */
} bench;

/* Sums each layer's best round over all layers; the minimum excludes interference by other processes. */
static void time_op(bench *b, const char *name, int kind, matrix **m, int n_m, int layers, int32_t rows)
{
    double best[LAYERS] = {0}, total = 0, bytes = 0, macs = 0;
    const int64_t n_in = m[0]->w[0].n_in;
    pi__lin_in in = {.kind = kind, .x = b->x, .ldx = n_in, .x2 = b->x2, .ldx2 = n_in, .w = b->norm, .eps = 1e-6f};
    for (int r = 0; r < b->rounds; r++)
        for (int i = 0; i < layers; i++) {
            pi__lin lin[4];
            for (int j = 0; j < n_m; j++) lin[j] = (pi__lin) {&m[j]->w[i], b->y[j % 2], m[j]->w[i].n_out};
            double t = now(b->be);
            const pi__linear all = pi__linear_of(&in, rows, lin, n_m);
            pi__op_linear(b->be, NULL, &all);
            t = now(b->be) - t;
            if (r == 0 || t < best[i]) best[i] = t;
        }
    for (int i = 0; i < layers; i++) total += best[i];
    for (int j = 0; j < n_m; j++) {
        bytes += (double) m[j]->w[0].size * layers;
        macs += (double) (m[j]->w[0].n_in * m[j]->w[0].n_out) * layers * rows;
    }
    b->sum += total;
    printf("%-16s %4d rows %9.1f us %8.1f GB/s %8.1f GMAC/s\n", name, rows, total / layers * 1e6, bytes / total * 1e-9,
           macs / total * 1e-9);
}

int main(int argc, char **argv)
{
    static const int32_t rows[] = {1, 2, 4, 8, 16, 32, 128, 512};
    static matrix q, k, v8, v5, o, gate, up, down6, down4, head;
    bench b = {.rounds = argc > 3 ? atoi(argv[3]) : 10};
    pi__cpu_params p = {.n_threads = argc > 1 ? atoi(argv[1]) : 0, .poll = 50, .isa = argc > 2 ? argv[2] : "auto"};
    pi_error err;
    if (pi__cpu_create(&b.be, &p, NULL, &err) != PI_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    pi__limits lim = {.max_tokens = MAX_ROWS, .max_rows = MAX_ROWS, .max_seqs = 1, .max_ctx = 512, .max_n_in = 2048,
                      .max_n_out = 1 << 18, .max_n_head = 4, .max_head_dim = 256};
    if (b.be->dev->reserve(b.be, &lim, &err) != PI_OK) return 1;
    make(b.be, &q, PI__Q5_0, 640, 1024, LAYERS);
    make(b.be, &k, PI__Q5_0, 640, 256, LAYERS);
    make(b.be, &v8, PI__Q8_0, 640, 256, LAYERS / 2);
    make(b.be, &v5, PI__Q5_0, 640, 256, LAYERS / 2);
    make(b.be, &o, PI__Q4_K, 1024, 640, LAYERS);
    make(b.be, &gate, PI__Q5_0, 640, 2048, LAYERS);
    make(b.be, &up, PI__Q5_0, 640, 2048, LAYERS);
    make(b.be, &down6, PI__Q6_K, 2048, 640, LAYERS / 2);
    make(b.be, &down4, PI__Q4_K, 2048, 640, LAYERS / 2);
    make(b.be, &head, PI__Q8_0, 640, 1 << 18, 1);
    b.x = malloc(MAX_ROWS * 2048 * sizeof *b.x);
    b.x2 = malloc(MAX_ROWS * 2048 * sizeof *b.x);
    b.norm = malloc(2048 * sizeof *b.x);
    for (int i = 0; i < 2; i++) b.y[i] = malloc((size_t) (1 << 18) * 32 * sizeof *b.x);
    if (!b.x || !b.x2 || !b.norm || !b.y[0] || !b.y[1]) return 1;
    for (int i = 0; i < MAX_ROWS * 2048; i++) b.x[i] = b.x2[i] = (float) (rnd() & 0xffff) / 32768.0f - 1.0f;
    for (int i = 0; i < 2048; i++) b.norm[i] = 1.0f;
    printf("%s, %d threads\n", b.be->dev->describe(b.be), b.be->dev->n_threads(b.be));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int32_t n = rows[i];
        if (argc > 4 && n != atoi(argv[4])) continue;
        b.sum = 0;
        time_op(&b, "norm q k v(q8)", PI__IN_RMSNORM, (matrix *[]) {&q, &k, &v8}, 3, LAYERS / 2, n);
        time_op(&b, "norm q k v(q5)", PI__IN_RMSNORM, (matrix *[]) {&q, &k, &v5}, 3, LAYERS / 2, n);
        time_op(&b, "o (q4_k)", PI__IN_PLAIN, (matrix *[]) {&o}, 1, LAYERS, n);
        time_op(&b, "norm gate up", PI__IN_RMSNORM, (matrix *[]) {&gate, &up}, 2, LAYERS, n);
        time_op(&b, "geglu down(q6_k)", PI__IN_GEGLU, (matrix *[]) {&down6}, 1, LAYERS / 2, n);
        time_op(&b, "geglu down(q4_k)", PI__IN_GEGLU, (matrix *[]) {&down4}, 1, LAYERS / 2, n);
        double layers = b.sum;
        time_op(&b, "norm head (q8_0)", PI__IN_RMSNORM, (matrix *[]) {&head}, 1, 1, n < 32 ? n : 1);
        printf("%4d rows: layers %.3f ms, with head %.3f ms, %.1f rows/s\n\n", n, layers * 1e3, b.sum * 1e3, n / b.sum);
    }
    return 0;
}
