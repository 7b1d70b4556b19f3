/* pi_bench_op: measures one op of the device on its own, with its own memory and without a model.
 *
 * Memory: a region of slots and snapshots for all layers, laid out as in an engine; freed on return. A step with
 * fewer sequences than slots rotates through the slots, so that a state has left the caches when it is used again. In
 * a real step the weights read in between have this effect. Threads: the caller's and the backend's pool. The
 * reference bandwidth is measured by reading the region with the same number of threads. */
#include <stdio.h>
#include <string.h>

#include "api/bench_rates.h"
#include "api/config.h"
#include "backend/cpu/pool.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

enum { MAX_SEQS = 16, PROMPT = 512, ROUNDS = 5 };

typedef struct op_bench {
    pi__backend *be;
    pi__state_layer st;      /* base and snap point to layer 0 */
    int32_t n_layers;
    size_t slot, snap;       /* bytes of one layer in a slot and in a snapshot */
    size_t region_size;
    char *region;            /* MAX_SEQS slots, one snapshot */
    float *rows, *out;       /* inputs and results of PROMPT tokens, shared by all layers */
    float *weights;          /* conv, dt_bias, a, norm */
    pi__cpu_params cpu;      /* thread options, also for reading the region */
    int32_t pos[MAX_SEQS];   /* tokens in each slot */
    pi_op_time_fn fn;
    void *ud;
    bool stop;               /* fn returned true */
} op_bench;

/* ---------------------------------------------------------------------------------------------------------- memory */

static int parse_shape(op_bench *b, const char *text, pi_error *err)
{
    int n = 0;
    if (!text || !*text) text = "16,32,128,24"; /* Qwen 3.5 9B */
    b->st = (pi__state_layer) {.n_conv = 4};
    if (sscanf(text, "%d,%d,%d,%d%n", &b->st.n_k, &b->st.n_v, &b->st.dim, &b->n_layers, &n) != 4 || text[n])
        return pi__fail(err, PI_EINVAL, "shape \"%.40s\": expected KEY_HEADS,VALUE_HEADS,HEAD_SIZE,LAYERS", text);
    if (b->st.n_k < 1 || b->st.n_k > 256 || b->st.n_v < 1 || b->st.n_v > 256 || b->n_layers < 1 || b->n_layers > 256)
        return pi__fail(err, PI_EINVAL, "shape \"%.40s\": heads and layers must be 1 to 256", text);
    b->slot = b->be->dev->state_bytes(b->be, &b->st);
    b->snap = b->be->dev->snapshot_bytes(b->be, &b->st);
    if (!b->slot) return pi__fail(err, PI_EUNSUPPORTED, "shape \"%.40s\": the head size is not supported", text);
    return PI_OK;
}

static size_t n_channels(const op_bench *b) { return (size_t) (2 * b->st.n_k + b->st.n_v) * (size_t) b->st.dim; }
static size_t n_values(const op_bench *b) { return (size_t) b->st.n_v * (size_t) b->st.dim; }
/* Returns the floats of one token's inputs: qkv, z, alpha, beta. */
static size_t n_inputs(const op_bench *b) { return n_channels(b) + n_values(b) + 2 * (size_t) b->st.n_v; }
static size_t n_weights(const op_bench *b) { return n_channels(b) * 4 + 2 * (size_t) b->st.n_v + (size_t) b->st.dim; }

static int take_memory(op_bench *b, pi_error *err)
{
    size_t layers = (size_t) b->n_layers, f = sizeof(float);
    b->region_size = (MAX_SEQS * b->slot + b->snap) * layers;
    b->region = b->be->dev->alloc(b->be, b->region_size);
    b->rows = pi__calloc(PROMPT * n_inputs(b), f);
    b->out = pi__calloc(PROMPT * n_values(b), f);
    b->weights = pi__calloc(n_weights(b), f);
    if (!b->region || !b->rows || !b->out || !b->weights) return pi__fail_mem(err, "the states to measure with");
    memset(b->region, 0, b->region_size);
    b->st.base = b->region;
    b->st.stride = b->slot * layers;
    b->st.snap = b->region + MAX_SEQS * b->st.stride;
    b->st.snap_stride = b->snap * layers;
    uint64_t rng = 1;
    for (size_t i = 0; i < PROMPT * n_inputs(b); i++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        b->rows[i] = (float) (rng >> 40) * 0x1p-23f - 1.0f;
    }
    for (size_t i = 0; i < n_weights(b); i++) b->weights[i] = i < n_channels(b) * 4 ? b->rows[i % n_inputs(b)] : -0.5f;
    pi__limits lim = {.max_tokens = PROMPT, .max_seqs = MAX_SEQS, .state = b->st};
    return b->be->dev->reserve(b->be, &lim, err);
}

/* ------------------------------------------------------------------------------------------------------- measuring */

static void read_run(void *arg, int32_t ith, int32_t nth)
{
    const op_bench *b = arg;
    size_t n = b->region_size / 64;
    const uint64_t *p = (const uint64_t *) (const void *) b->region;
    uint64_t sum[8] = {0};
    for (size_t i = n * (size_t) ith / (size_t) nth; i < n * (size_t) (ith + 1) / (size_t) nth; i++) {
        for (int k = 0; k < 8; k++) sum[k] += p[i * 8 + (size_t) k];
    }
    volatile uint64_t sink = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    (void) sink;
}

/* Runs one step of all layers: n[s] tokens for each of the n_seqs slots from `first` on. Returns ns. */
static double run_bench_step(op_bench *b, int32_t first, int32_t n_seqs, const int32_t *n)
{
    static const pi__save no_save;
    int32_t pos[PROMPT], start[MAX_SEQS + 1] = {0}, slot[MAX_SEQS], save_start[MAX_SEQS + 1] = {0};
    for (int32_t s = 0; s < n_seqs; s++) {
        slot[s] = first + s;
        start[s + 1] = start[s] + n[s];
        for (int32_t i = 0; i < n[s]; i++) pos[start[s] + i] = b->pos[first + s]++;
    }
    pi__batch batch = {.n_tokens = start[n_seqs], .n_seqs = n_seqs, .pos = pos, .seq_start = start, .n_verified = n,
                       .state_slot = slot, .save_start = save_start, .save = &no_save};
    const float *conv = b->weights, *dt = conv + n_channels(b) * 4, *a = dt + b->st.n_v, *norm = a + b->st.n_v;
    const float *z = b->rows + n_channels(b), *alpha = z + n_values(b), *beta = alpha + b->st.n_v;
    int64_t ld = (int64_t) n_inputs(b);
    pi__gdn g = {.qkv = b->rows,
                 .ld_qkv = ld,
                 .z = z,
                 .ld_z = ld,
                 .alpha = alpha,
                 .beta = beta,
                 .ld_ab = ld,
                 .conv = conv,
                 .dt_bias = dt,
                 .a = a,
                 .norm = norm,
                 .eps = 1e-6f,
                 .out = b->out,
                 .ldo = (int64_t) n_values(b)};
    int64_t t0 = pi__now_ns();
    b->be->dev->begin(b->be, &batch, PI__STEP_ANY);
    for (int32_t i = 0; i < b->n_layers; i++) {
        pi__state_layer st = b->st;
        st.base += (size_t) i * b->slot;
        g.st = &st;
        pi__op_gdn(b->be, &batch, &g);
    }
    b->be->dev->finish(b->be, NULL);
    return (double) (pi__now_ns() - t0);
}

static double median_time(double *v)
{
    for (int i = 1; i < ROUNDS; i++) {
        for (int k = i; k > 0 && v[k] < v[k - 1]; k--) {
            double t = v[k];
            v[k] = v[k - 1];
            v[k - 1] = t;
        }
    }
    return v[ROUNDS / 2];
}

/* Stores the bytes/s of reading the region in *rate. Measured for every report, because the machine's speed drifts.
 * The pool is destroyed before an op runs: two spinning pools would slow each other down. */
static int measure_bandwidth(op_bench *b, double *rate, pi_error *err)
{
    pi__pool *pool;
    double ns[ROUNDS];
    int rc = pi__pool_create(&pool, b->cpu.n_threads, b->cpu.affinity, b->cpu.poll, err);
    if (rc) return rc;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t t0 = pi__now_ns();
        pi__pool_run(pool, read_run, b);
        ns[i] = (double) (pi__now_ns() - t0);
    }
    pi__pool_destroy(pool);
    *rate = (double) b->region_size / median_time(ns) * 1e9;
    return PI_OK;
}

static int report_time(op_bench *b, const char *what, int32_t n_seqs, int32_t n_tokens, double *ns, double bytes,
                       pi_error *err)
{
    double rate;
    int rc = measure_bandwidth(b, &rate, err);
    if (rc) return rc;
    pi_op_time t = {.size = sizeof t, .what = what, .n_seqs = (uint32_t) n_seqs, .n_tokens = (uint32_t) n_tokens,
                    .ns = median_time(ns), .bytes = (uint64_t) (bytes * b->n_layers), .bandwidth = rate};
    b->stop = b->fn(b->ud, &t);
    return PI_OK;
}

/* Bytes in one layer: S0 of all heads; one token's row of keys and u. */
static double s0_bytes(const op_bench *b) { return (double) n_values(b) * b->st.dim * 4; }
static double row_bytes(const op_bench *b) { return (double) (n_values(b) + (size_t) (b->st.n_k * b->st.dim)) * 4; }

/* Measures decoding, with each sequence at a different position in its chunk. Over 16 steps, n_seqs folds happen, no
 * matter which slots the steps use. A step reads S0, on average half a chunk of rows, and 3 raw inputs. It writes one
 * row of each kind; S0 is written once in 16 steps. */
static int bench_decode(op_bench *b, int32_t n_seqs, pi_error *err)
{
    int32_t first[MAX_SEQS], one[MAX_SEQS];
    double ns[ROUNDS] = {0};
    for (int32_t s = 0; s < MAX_SEQS; s++) {
        b->pos[s] = 0;
        one[s] = 1;
        first[s] = 1 + s * 7 % PI__STATE_CHUNK;
    }
    run_bench_step(b, 0, MAX_SEQS, first);
    for (int r = -1; r < ROUNDS; r++) {
        double sum = 0;
        for (int i = 0; i < PI__STATE_CHUNK; i++) sum += run_bench_step(b, i * n_seqs % MAX_SEQS, n_seqs, one);
        if (r >= 0) ns[r] = sum / PI__STATE_CHUNK;
    }
    double each = s0_bytes(b) * (1 + 1.0 / PI__STATE_CHUNK) + row_bytes(b) * 8.5 + (double) n_channels(b) * 4 * 4;
    return report_time(b, "decode", n_seqs, 1, ns, each * n_seqs, err);
}

static int bench_prompt(op_bench *b, int32_t n_seqs, pi_error *err)
{
    int32_t n[MAX_SEQS];
    double ns[ROUNDS] = {0};
    for (int r = -1; r < ROUNDS; r++) {
        for (int32_t s = 0; s < n_seqs; s++) {
            n[s] = PROMPT / n_seqs;
            b->pos[s] = 0;
        }
        double t = run_bench_step(b, 0, n_seqs, n);
        if (r >= 0) ns[r] = t;
    }
    return report_time(b, "prompt", n_seqs, PROMPT / n_seqs, ns,
                       s0_bytes(b) * n_seqs + (double) n_inputs(b) * 4 * PROMPT, err);
}

static int bench_snapshots(op_bench *b, bool load, pi_error *err)
{
    double ns[ROUNDS] = {0};
    int32_t n = PI__STATE_CHUNK;
    b->pos[0] = 0;
    run_bench_step(b, 0, 1, &n);
    for (int r = -1; r < ROUNDS; r++) {
        int64_t t0 = pi__now_ns();
        for (int32_t i = 0; i < b->n_layers; i++) {
            pi__state_layer st = b->st;
            st.base += (size_t) i * b->slot;
            st.snap += (size_t) i * b->snap;
            if (load) pi__op_state_load(b->be, NULL, &(pi__state_copy) {.st = &st, .slot = 0, .pos = n, .snap = 0});
            else pi__op_state_save(b->be, NULL, &(pi__state_copy) {.st = &st, .slot = 0, .pos = n, .snap = 0});
        }
        if (r >= 0) ns[r] = (double) (pi__now_ns() - t0);
    }
    return report_time(b, load ? "load" : "save", 1, 0, ns, 2 * (s0_bytes(b) + (double) n_channels(b) * 3 * 4), err);
}

int pi_bench_op(const pi_options *o, const char *op, const char *shape, pi_op_time_fn fn, void *ud, pi_error *err)
{
    if (!o || !op || !fn) return pi__fail(err, PI_EINVAL, "pi_bench_op: options, an op and a function are needed");
    if (!strcmp(op, "rates")) return pi__bench_rates(o, fn, ud, err);
    if (strcmp(op, "gdn")) return pi__fail(err, PI_EINVAL, "op \"%.40s\" has no benchmark: give gdn or rates", op);
    op_bench b = {.fn = fn, .ud = ud};
    b.cpu = pi__cpu_params_of(o);
    int rc = pi__cpu_create(&b.be, &b.cpu, &(pi__log) {0}, err);
    if (!rc) rc = parse_shape(&b, shape, err);
    if (!rc) rc = take_memory(&b, err);
    for (int32_t n = 1; n <= MAX_SEQS && !rc && !b.stop; n *= 2) rc = bench_decode(&b, n, err);
    if (!rc && !b.stop) rc = bench_prompt(&b, 1, err);
    if (!rc && !b.stop) rc = bench_prompt(&b, MAX_SEQS, err);
    if (!rc && !b.stop) rc = bench_snapshots(&b, false, err);
    if (!rc && !b.stop) rc = bench_snapshots(&b, true, err);
    pi__free(b.rows);
    pi__free(b.out);
    pi__free(b.weights);
    if (b.region) b.be->dev->free(b.be, b.region, b.region_size);
    if (b.be) b.be->dev->destroy(b.be);
    return rc;
}
