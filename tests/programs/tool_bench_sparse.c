/* Measures cost and recall of sparse prefill late in a long prompt:
 *
 *     tool_bench_sparse [isa] [threads] [sparsity] [keys ...]
 *
 * Not a test. For one layer's attention over a chunk of 512 tokens, prints time and bytes of sparse and dense
 * attention. Also prints the part of a needle that is found: 24 tokens a third into the prompt, to which all queries
 * are similar. Other keys are random.
 *
 * The shapes are those of attention in Gemma 3 270M and Qwen 3.5 27B. Op qkv fills the cache, as in an engine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/attention.h"
#include "base/alloc.h"
#include "backend/cpu/attention_blocks.h"

enum { CHUNK = 512, BLOCK = 16, NEEDLE = 24, LOGIT = 12 };

typedef struct shape {
    const char *name;
    int32_t n_head, n_head_kv, head_dim;
} shape;

typedef struct run {
    pi__cpu cpu;
    pi__kv_layer kv;
    shape s;
    int32_t n_keys, *table;
    float *needle;           /* [head_dim] unit vector; the needle's keys and values contain a multiple of it */
    float *q, *out;          /* [CHUNK, n_head * head_dim] */
} run;

static uint64_t rng = 1;

/* Returns a nearly normal random value. */
static float normal(void)
{
    uint64_t bits;
    float sum = 0;
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    bits = rng >> 16;
    for (int i = 0; i < 3; i++, bits >>= 16) sum += (float) (bits & 0xffff) / 32768 - 1;
    return sum;
}

static double seconds(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (double) ts.tv_sec + (double) ts.tv_nsec * 1e-9;
}

static void *must(void *p)
{
    if (p) return p;
    fprintf(stderr, "out of memory\n");
    exit(1);
}

/* Returns the batch of tokens first..first+CHUNK; the caller owns the arrays. */
static pi__batch batch_of(const run *r, int32_t first, int32_t *pos, int32_t *slot, int32_t *start, int32_t *len)
{
    for (int32_t i = 0; i < CHUNK; i++) {
        pos[i] = first + i;
        slot[i] = r->table[(first + i) / BLOCK] * BLOCK + (first + i) % BLOCK;
    }
    start[0] = 0, start[1] = CHUNK, *len = first + CHUNK;
    pi__batch b = {.n_tokens = CHUNK, .n_seqs = 1, .n_groups = 1, .pos = pos, .seq_start = start, .seq_len = len};
    b.kv[0] = (pi__kv_batch) {BLOCK, r->n_keys / BLOCK, r->table, slot};
    return b;
}

static void fill_cache(run *r)
{
    const int32_t D = r->s.head_dim, KV = r->s.n_head_kv * D, at = r->n_keys / 3;
    float *k = must(malloc((size_t) (CHUNK * KV) * 4)), *v = must(malloc((size_t) (CHUNK * KV) * 4));
    int32_t pos[CHUNK], slot[CHUNK], start[2], len;
    for (int32_t first = 0; first < r->n_keys; first += CHUNK) {
        for (int32_t i = 0; i < CHUNK * KV; i++) k[i] = normal(), v[i] = normal();
        for (int32_t t = 0; t < CHUNK; t++)
            for (int32_t d = 0; first + t >= at && first + t < at + NEEDLE && d < KV; d++) {
                k[t * KV + d] += sqrtf((float) D) * r->needle[d % D];
                v[t * KV + d] += 4 * sqrtf((float) D) * r->needle[d % D];
            }
        const pi__batch b = batch_of(r, first, pos, slot, start, &len);
        pi__cpu_qkv(&r->cpu.be, &b, &(pi__qkv) {.kv = &r->kv, .q = r->q, .ldq = KV, .k = k, .v = v, .ldk = KV, .ldv = KV,
                                                .n_head = r->s.n_head_kv, .q_scale = 1.0f});
    }
    free(k);
    free(v);
}

static void init(run *r, const shape *s, int isa, int threads, int32_t n_keys)
{
    memset(r, 0, sizeof *r);
    r->s = *s;
    r->n_keys = n_keys;
    r->cpu.isa = isa;
    r->cpu.attn = pi__cpu_attn_kernels_of(isa);
    if (pi__pool_create(&r->cpu.pool, threads, 0, 50, NULL)) must(NULL);
    const pi__limits lim = {.max_seqs = 1, .max_tokens = CHUNK, .max_head_dim = s->head_dim, .max_n_head = s->n_head,
                            .sparse_heads = s->n_head_kv, .key_blocks = n_keys / PI__SPARSE_BLOCK};
    r->cpu.scratch_size = (pi__cpu_attn_scratch(&r->cpu, &lim) + 63) & ~(size_t) 63;
    r->cpu.scratch = must(aligned_alloc(64, r->cpu.scratch_size));
    const size_t bytes = pi__cpu_kv_bytes(NULL, PI__F16, PI__F16, s->n_head_kv, s->head_dim, BLOCK);
    r->kv = (pi__kv_layer) {.type_k = PI__F16, .type_v = PI__F16, .n_head_kv = s->n_head_kv, .head_dim = s->head_dim,
                            .base = must(aligned_alloc(64, bytes * (size_t) (n_keys / BLOCK))), .stride = bytes};
    r->table = must(malloc((size_t) (n_keys / BLOCK) * sizeof *r->table));
    for (int32_t i = 0; i < n_keys / BLOCK; i++) r->table[i] = n_keys / BLOCK - 1 - i;
    const size_t n = (size_t) (CHUNK * s->n_head * s->head_dim);
    r->needle = must(malloc((size_t) s->head_dim * 4));
    r->q = must(malloc(n * 4));
    r->out = must(malloc(n * 4));
    float square = 0;
    for (int32_t d = 0; d < s->head_dim; d++) r->needle[d] = normal(), square += r->needle[d] * r->needle[d];
    for (int32_t d = 0; d < s->head_dim; d++) r->needle[d] /= sqrtf(square);
    for (size_t i = 0; i < n; i++) r->q[i] = 0;
    fill_cache(r);
    for (size_t i = 0; i < n; i++)
        r->q[i] = (LOGIT * r->needle[i % (size_t) s->head_dim] + normal()) / sqrtf((float) s->head_dim);
}

static void finish(run *r)
{
    free(r->q);
    free(r->out);
    free(r->needle);
    free(r->table);
    free(r->kv.base);
    free(r->cpu.scratch);
    pi__pool_destroy(r->cpu.pool);
}

/* Runs the last chunk; returns seconds, in thread CPU time if available. *found = mean of the outputs along the
 * needle; 1 if only the needle is attended to. */
static double attend(run *r, float sparsity, bool alone, double *found)
{
    int32_t pos[CHUNK], slot[CHUNK], start[2], len, runs[3][CHUNK / PI__SPARSE_BLOCK + 1];
    pi__batch b = batch_of(r, r->n_keys - CHUNK, pos, slot, start, &len);
    const int32_t H = r->s.n_head, D = r->s.head_dim, n = CHUNK / PI__SPARSE_BLOCK;
    for (int32_t i = 0; i <= n; i++) runs[0][i] = i * PI__SPARSE_BLOCK, runs[1][i] = 0, runs[2][i] = i;
    if (sparsity > 0) b.runs = (pi__runs) {n, n, runs[0], runs[1], runs[2]};
    const clockid_t clock = alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double t0 = seconds(clock);
    pi__cpu_attention(&r->cpu.be, &b, &(pi__attention) {.kv = &r->kv, .q = r->q, .ldq = (int64_t) H * D, .out = r->out,
                                                        .ldo = (int64_t) H * D, .n_head = H, .sparsity = sparsity});
    const double t = seconds(clock) - t0;
    *found = 0;
    for (int32_t i = 0; i < CHUNK * H; i++)
        for (int32_t d = 0; d < D; d++) *found += r->out[i * D + d] * r->needle[d];
    *found /= (double) (CHUNK * H) * 4 * sqrt((double) D);
    return t;
}

static void measure(const shape *s, int isa, int threads, float sparsity, int32_t n_keys)
{
    run r;
    double found[2];
    init(&r, s, isa, threads, n_keys);
    double best[2] = {1e9, 1e9}, t;
    for (int i = 0; i < 4; i++) {
        t = attend(&r, i % 2 ? sparsity : 0, threads == 1, &found[i % 2]);
        if (t < best[i % 2]) best[i % 2] = t;
    }
    const double row = 2.0 * s->head_dim * s->n_head_kv; /* bytes of one token's keys, or values */
    const double share = (double) r.cpu.be.n_attended / (double) r.cpu.be.n_possible;
    const double dense = 2 * row * n_keys * (CHUNK / PI__SPARSE_BLOCK), sparse = dense * share + row * n_keys;
    printf("| %s | %d | %.0f | %.0f | %.1f | %.1f %% | %.0f | %.0f | %.3f | %.3f |\n", s->name, n_keys, best[0] * 1e3,
           best[1] * 1e3, best[0] / best[1], share * 100, dense / 1048576, sparse / 1048576, found[0], found[1]);
    fflush(stdout);
    finish(&r);
}

int main(int argc, char **argv)
{
    static const shape shapes[] = {{"Gemma 3 270M", 4, 1, 256}, {"Qwen 3.5 27B", 24, 4, 256}};
    static char *lengths[] = {"32768", "65536"};
    const int threads = argc > 2 ? atoi(argv[2]) : 1, n = argc > 4 ? argc - 4 : 2;
    const float sparsity = argc > 3 ? strtof(argv[3], NULL) : 0.12f;
    int isa;
    if (pi__isa_choose(argc > 1 ? argv[1] : "auto", &isa, NULL)) return 64;
    printf("%s, %d threads, prefill-sparsity %g; ms and MiB of a chunk of %d tokens, a layer\n\n| shape | keys | dense | sparse | "
           "times | attended | dense, MiB | sparse, MiB | needle, dense | sparse |\n|---|---|---|---|---|---|---|---|---|---|\n",
           pi__isa_names[isa].desc, threads, (double) sparsity, CHUNK);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < n; k++)
            measure(&shapes[i], isa, threads, sparsity, atoi(argc > 4 ? argv[4 + k] : lengths[k]) / CHUNK * CHUNK);
    return 0;
}
