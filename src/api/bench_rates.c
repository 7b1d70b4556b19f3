/* pi_bench_op("rates"): the CPU's limits. Measures bytes per second that all threads read from memory, and
 * multiply-adds per second of op linear with matrix and activations in the caches, for integer codes and for floats.
 *
 * Memory: a region to read and a small matrix, freed on return. Threads: the caller's, and the pool of the options.
 * With one thread, times are thread CPU times, as in a profile of ops. */
#include "api/bench_rates.h"

#include <string.h>

#include "api/config.h"
#include "backend/cpu/pool.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "formats/formats.h"

enum { ROUNDS = 9, REGION = 128 << 20, N_IN = 1024, N_ROWS = 128 };

typedef struct region {
    const uint64_t *at;
    size_t lines; /* lines of 64 bytes */
} region;

static double now(int32_t n_threads) { return n_threads == 1 ? pi__thread_ms() * 1e6 : (double) pi__now_ns(); }

static void read_run(void *arg, int32_t ith, int32_t nth)
{
    const region *r = arg;
    uint64_t sum[8] = {0};
    const size_t from = r->lines * (size_t) ith / (size_t) nth, end = r->lines * (size_t) (ith + 1) / (size_t) nth;
    for (size_t i = from; i < end; i++)
        for (int k = 0; k < 8; k++) sum[k] += r->at[i * 8 + (size_t) k];
    volatile uint64_t sink = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    (void) sink;
}

/* Stores the bytes per second that all threads read from memory in *t: the best of ROUNDS rounds, as an upper bound. */
static int read_rate(const pi__cpu_params *cpu, pi_op_time *t, pi_error *err)
{
    pi__pool *pool;
    int rc = pi__pool_create(&pool, cpu->n_threads, cpu->affinity, cpu->poll, err);
    if (rc) return rc;
    char *p = pi__map(REGION);
    region r = {(const uint64_t *) (const void *) p, REGION / 64};
    if (p) memset(p, 1, REGION);
    t->ns = 1e300;
    for (int i = 0; i < ROUNDS && p; i++) {
        const double t0 = now(pi__pool_size(pool));
        pi__pool_run(pool, read_run, &r);
        const double ns = now(pi__pool_size(pool)) - t0;
        if (ns < t->ns) t->ns = ns;
    }
    t->what = "read";
    t->bytes = REGION;
    t->bandwidth = REGION / t->ns * 1e9;
    pi__unmap(p, REGION);
    pi__pool_destroy(pool);
    return p ? PI_OK : pi__fail_mem(err, "memory to read");
}

static double multiply_ns(pi__backend *be, const pi__weight *w, const float *x, float *y)
{
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = x, .ldx = N_IN};
    const pi__lin lin = {w, y, w->n_out};
    const pi__linear a = pi__linear_of(&in, N_ROWS, &lin, 1);
    const double t0 = now(be->dev->n_threads(be));
    pi__op_linear(be, NULL, &a);
    return now(be->dev->n_threads(be)) - t0;
}

/* Stores the multiply-adds per second of op linear in *t, from the best of ROUNDS rounds. The matrix has n_out rows of
 * N_IN zeros and fills half of an L2 cache. */
static int product_rate(pi__backend *be, int32_t type, int64_t n_out, pi_op_time *t, pi_error *err)
{
    pi__weight w = {.type = type, .n_in = N_IN, .n_out = n_out, .n_mat = 1};
    const size_t row = pi__row_size(pi__type_info_of(type), N_IN);
    w.size = be->dev->weight_size(be, &w);
    w.data = be->dev->alloc(be, w.size);
    void *zeros = pi__calloc((size_t) n_out, row);
    float *x = pi__calloc(N_ROWS * N_IN, sizeof *x), *y = pi__calloc(N_ROWS * (size_t) n_out, sizeof *y);
    const bool ok = w.data && zeros && x && y;
    for (int64_t i = 0; i < n_out && ok; i += PI__LOAD_ROWS)
        be->dev->weight_load(be, &w, 0, i, PI__LOAD_ROWS, (const char *) zeros + (size_t) i * row);
    t->ns = 1e300;
    for (int i = 0; i < ROUNDS && ok; i++) {
        const double ns = multiply_ns(be, &w, x, y);
        if (ns < t->ns) t->ns = ns;
    }
    t->bytes = w.size;
    t->products = (double) (N_ROWS * N_IN * n_out) / t->ns * 1e9;
    if (w.data) be->dev->free(be, w.data, w.size);
    pi__free(zeros);
    pi__free(x);
    pi__free(y);
    return ok ? PI_OK : pi__fail_mem(err, "a matrix to measure with");
}

int pi__bench_rates(const pi_options *o, pi_op_time_fn fn, void *ud, pi_error *err)
{
    static const struct { const char *what; int32_t type; int64_t n_out; } kinds[] = {{"integers", PI__Q8_0, 512},
                                                                                      {"floats", PI__F32, 128}};
    const pi__cpu_params cpu = pi__cpu_params_of(o);
    const pi__limits lim = {.max_tokens = N_ROWS, .max_n_in = N_IN, .max_n_out = 512, .max_seqs = 1, .max_rows = 1};
    pi_op_time t = {.size = sizeof t, .n_seqs = 1};
    int rc = read_rate(&cpu, &t, err);
    bool stop = !rc && fn(ud, &t);
    /* created after the read pool is destroyed: two spinning pools would slow each other down */
    pi__backend *be = NULL;
    if (!rc && !stop) rc = pi__cpu_create(&be, &cpu, &(pi__log) {0}, err);
    if (be) rc = be->dev->reserve(be, &lim, err);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !rc && !stop; i++) {
        t = (pi_op_time) {.size = sizeof t, .what = kinds[i].what, .n_seqs = 1, .n_tokens = N_ROWS};
        rc = product_rate(be, kinds[i].type, kinds[i].n_out, &t, err);
        stop = !rc && fn(ud, &t);
    }
    if (be) be->dev->destroy(be);
    return rc;
}
