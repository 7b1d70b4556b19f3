/* A fixture for the attention ops: sequences with random q, k, v and a pool of shuffled blocks full of NaN. Its runner
 * feeds the sequences in chunks, as an engine does. Used by test_attention.c and tool_bench_attention.c. */
#ifndef ATTENTION_FIXTURE_H
#define ATTENTION_FIXTURE_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/attention.h"
#include "base/alloc.h"

enum { MAX_SEQS = 8, MAX_REL = 33 };

typedef struct config {
    int isa, n_threads, block_size;
    int32_t type_k, type_v, n_head, n_head_kv, head_dim, window;
    float softcap;
    bool sinks;
    int32_t n_rel; /* as in pi__attention; at most MAX_REL */
    bool gate;    /* queries and gates are interleaved head by head */
    int chunk;    /* tokens of a sequence per step */
    /* sparsity of query blocks from token sparse_from on, except a sequence's last two blocks; 0 = dense */
    float sparsity;
    int sparse_from;
    /* tokens span_from..span_from + span_n - 1 of each sequence see each other; chunks do not cut them */
    int span_from, span_n;
    bool apart;   /* run the sequences one after the other, not in one batch */
    unsigned ids; /* seed of the order of block ids */
    double (*clock)(void); /* returns seconds; NULL = steps are not timed */
} config;

typedef struct sequence {
    int len;            /* length in tokens */
    int done;           /* tokens already in the cache */
    float *q, *k, *v;   /* [len, heads * head_dim] */
    float *gate;        /* like q */
    float *out;         /* [len, n_head * head_dim] */
    int32_t *table;     /* block ids */
} sequence;

typedef struct fixture {
    config c;
    pi__cpu cpu;
    pi__kv_layer kv;
    size_t pool_size;
    int32_t n_blocks, n_free, *free_ids;
    int32_t table_stride;
    float sinks[64], rel[64 * MAX_REL];
    sequence seq[MAX_SEQS];
    int n_seqs;
    double time_qkv, time_attention; /* seconds that the last step took */
    bool fills;              /* steps only fill the cache and skip attention */
} fixture;

static uint64_t fixture_rng = 1;

static double uniform(void)
{
    fixture_rng = fixture_rng * 6364136223846793005u + 1442695040888963407u;
    return (double) (fixture_rng >> 11) / 9007199254740992.0;
}

/* Returns a nearly normal random value. */
static float normal(void)
{
    double s = uniform() + uniform() + uniform();
    return (float) (2 * s - 3);
}

static void *must(void *p)
{
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static const pi__cpu_attn_kernels *kernels_of(int isa) { return pi__cpu_attn_kernels_of(isa); }

/* Allocates blocks and threads for sequences of the given lengths. Sequence i's values depend only on i, heads and
 * head_dim. */
static void fixture_init(fixture *w, const config *c, int n_seqs, const int *lens)
{
    memset(w, 0, sizeof *w);
    w->c = *c;
    w->n_seqs = n_seqs;
    w->cpu.isa = c->isa;
    w->cpu.attn = kernels_of(c->isa);
    if (pi__pool_create(&w->cpu.pool, c->n_threads, 0, 50, NULL)) must(NULL);
    int max_len = 1;
    for (int i = 0; i < n_seqs; i++) max_len = lens[i] > max_len ? lens[i] : max_len;
    pi__limits lim = {.max_seqs = n_seqs, .max_head_dim = c->head_dim, .max_ctx = max_len};
    if (c->sparsity > 0) {
        lim.max_tokens = n_seqs * max_len;
        lim.max_n_head = c->n_head;
        lim.sparse_heads = c->n_head_kv;
        lim.key_blocks = (max_len + PI__SPARSE_BLOCK - 1) / PI__SPARSE_BLOCK;
    }
    w->cpu.scratch_size = pi__cpu_attn_scratch(&w->cpu, &lim);
    w->cpu.scratch = must(aligned_alloc(64, (w->cpu.scratch_size + 63) & ~(size_t) 63));
    memset(w->cpu.scratch, 0xff, w->cpu.scratch_size);

    size_t bytes = pi__cpu_kv_bytes(NULL, c->type_k, c->type_v, c->n_head_kv, c->head_dim, c->block_size);
    w->table_stride = max_len / c->block_size + 3;
    w->n_blocks = w->n_free = n_seqs * w->table_stride + 5;
    size_t stride = bytes + 192; /* includes 192 bytes per block that belong to other layers */
    w->pool_size = stride * (size_t) w->n_blocks;
    const size_t huge = w->pool_size < (2 << 20) ? 64 : 2 << 20; /* huge pages, as the backend allocates them */
    char *pool = must(aligned_alloc(huge, (w->pool_size + huge - 1) & ~(huge - 1)));
#ifdef MADV_HUGEPAGE
    if (huge > 64) (void) madvise(pool, w->pool_size, MADV_HUGEPAGE);
#endif
    memset(pool, 0xff, w->pool_size);
    w->kv = (pi__kv_layer){.type_k = c->type_k, .type_v = c->type_v, .n_head_kv = c->n_head_kv, .head_dim = c->head_dim,
                           .base = pool + 64, .stride = stride};
    w->free_ids = must(malloc(sizeof(int32_t) * (size_t) w->n_blocks));
    fixture_rng = c->ids + 99;
    for (int32_t i = 0; i < w->n_blocks; i++) {
        int32_t j = (int32_t) (uniform() * (i + 1));
        w->free_ids[i] = w->free_ids[j];
        w->free_ids[j] = i;
    }
    for (int i = 0; i < n_seqs; i++) {
        sequence *s = &w->seq[i];
        s->len = lens[i];
        size_t nq = (size_t) c->n_head * (size_t) c->head_dim, nk = (size_t) c->n_head_kv * (size_t) c->head_dim;
        size_t len = (size_t) s->len;
        s->q = must(malloc(len * nq * 4));
        s->gate = must(malloc(len * nq * 4));
        s->k = must(malloc(len * nk * 4));
        s->v = must(malloc(len * nk * 4));
        s->out = must(malloc(len * nq * 4));
        s->table = must(malloc(sizeof(int32_t) * (size_t) w->table_stride));
        memset(s->out, 0xff, len * nq * 4);
        memset(s->table, 0xff, sizeof(int32_t) * (size_t) w->table_stride);
        fixture_rng = (uint64_t) i * 7919 + (uint64_t) c->head_dim;
        for (size_t j = 0; j < len; j++) {
            for (size_t d = 0; d < nq; d++) s->q[j * nq + d] = normal() * 2 / sqrtf((float) c->head_dim);
            for (size_t d = 0; d < nk; d++) s->k[j * nk + d] = normal();
            for (size_t d = 0; d < nk; d++) s->v[j * nk + d] = normal();
        }
        for (size_t d = 0; d < len * nq; d++) s->gate[d] = 3 * normal();
    }
    for (int h = 0; h < c->n_head; h++) w->sinks[h] = (float) h / 2 - 1;
    for (int i = 0; i < c->n_head * c->n_rel; i++) w->rel[i] = c->n_rel == 1 ? 0.01f * (float) (i + 1) : normal();
}

static void fixture_free(fixture *w)
{
    for (int i = 0; i < w->n_seqs; i++) {
        sequence *s = &w->seq[i];
        free(s->q);
        free(s->gate);
        free(s->k);
        free(s->v);
        free(s->out);
        free(s->table);
    }
    free(w->kv.base - 64);
    free(w->free_ids);
    free(w->cpu.scratch);
    pi__pool_destroy(w->cpu.pool);
}

/* Returns the token after the last sparse query block of sequence i. */
static int sparse_end(const fixture *w, int i)
{
    int end = (w->seq[i].len + PI__SPARSE_BLOCK - 1) / PI__SPARSE_BLOCK * PI__SPARSE_BLOCK - 2 * PI__SPARSE_BLOCK;
    return w->c.sparsity > 0 && end > w->c.sparse_from ? end : 0;
}

/* Returns the runs of the next n[i] tokens of each sequence; the arrays have capacity for all of them. */
static pi__runs fixture_runs(const fixture *w, const int *n, int32_t *start, int32_t *seq, int32_t *block)
{
    pi__runs r = {.start = start, .seq = seq, .block = block};
    int at = 0;
    for (int i = 0; i < w->n_seqs; i++) {
        const int end = w->seq[i].done + n[i], last = sparse_end(w, i);
        for (int p = w->seq[i].done, stop; p < end; at += stop - p, p = stop) {
            const bool is_block = p >= w->c.sparse_from && p < last;
            stop = is_block                                                 ? p + PI__SPARSE_BLOCK
                   : p < w->c.sparse_from && end > w->c.sparse_from && last ? w->c.sparse_from
                                                                            : end;
            start[r.n] = at;
            seq[r.n] = i;
            block[r.n++] = is_block ? r.n_blocks++ : -1;
        }
    }
    start[r.n] = at;
    if (!r.n_blocks) r.n = 0;
    return r;
}

/* Runs one step with the next n[i] tokens of each sequence. */
static void fixture_step(fixture *w, const int *n)
{
    const config *c = &w->c;
    size_t nq = (size_t) c->n_head * (size_t) c->head_dim, nk = (size_t) c->n_head_kv * (size_t) c->head_dim;
    int total = 0, at = 0;
    for (int i = 0; i < w->n_seqs; i++) total += n[i];
    if (!total) return;
    size_t t = (size_t) total;
    size_t q_all = c->gate ? 2 * nq : nq, hd = (size_t) c->head_dim;
    size_t ldq = q_all + 2 * nk; /* each row holds q, k and v next to each other, as a fused matrix writes them */
    float *x = must(malloc(t * ldq * 4)), *out = must(malloc(t * nq * 4));
    int32_t *ints = must(malloc(t * 4 * 4)), *pos = ints, *seq = ints + t, *slot = seq + t, *see_to = slot + t;
    int32_t *tables = must(malloc(sizeof(int32_t) * (size_t) (w->n_seqs * w->table_stride)));
    int32_t seq_start[MAX_SEQS + 1], seq_len[MAX_SEQS];
    for (int i = 0; i < w->n_seqs; i++) {
        sequence *s = &w->seq[i];
        seq_start[i] = at;
        for (int j = 0; j < n[i]; j++, at++) {
            int p = s->done + j, b = p / c->block_size;
            if (p % c->block_size == 0) s->table[b] = w->free_ids[--w->n_free];
            pos[at] = p;
            seq[at] = i;
            see_to[at] = p >= c->span_from && p < c->span_from + c->span_n ? c->span_from + c->span_n - 1 : -1;
            slot[at] = s->table[b] * c->block_size + p % c->block_size;
            float *row = x + (size_t) at * ldq;
            for (size_t h = 0; h < (size_t) c->n_head; h++) {
                memcpy(row + h * hd * (c->gate ? 2 : 1), s->q + (size_t) p * nq + h * hd, hd * 4);
                if (c->gate) memcpy(row + (2 * h + 1) * hd, s->gate + (size_t) p * nq + h * hd, hd * 4);
            }
            memcpy(row + q_all, s->k + (size_t) p * nk, nk * 4);
            memcpy(row + q_all + nk, s->v + (size_t) p * nk, nk * 4);
        }
        s->done += n[i];
        seq_len[i] = s->done;
        memcpy(tables + i * w->table_stride, s->table, sizeof(int32_t) * (size_t) w->table_stride);
    }
    seq_start[w->n_seqs] = total;
    pi__batch b = {.n_tokens = total,
                   .n_seqs = w->n_seqs,
                   .n_groups = 1,
                   .pos = pos,
                   .seq = seq,
                   .seq_start = seq_start,
                   .seq_len = seq_len,
                   .see_to = c->span_n ? see_to : NULL};
    int32_t *runs = must(malloc((3 * t + 1) * sizeof *runs));
    for (int i = 0; i < w->n_seqs; i++) w->seq[i].done -= n[i];
    b.runs = fixture_runs(w, n, runs, runs + t + 1, runs + 2 * t + 1);
    for (int i = 0; i < w->n_seqs; i++) w->seq[i].done += n[i];
    b.kv[0] = (pi__kv_batch){c->block_size, w->table_stride, tables, slot};
    pi__qkv qa = {.kv = &w->kv,
                  .q = x,
                  .k = x + q_all,
                  .v = x + q_all + nk,
                  .ldq = (int64_t) ldq,
                  .ldk = (int64_t) ldq,
                  .ldv = (int64_t) ldq,
                  .q_stride = c->gate ? 2 * c->head_dim : 0,
                  .n_head = c->n_head,
                  .q_scale = 1.0f};
    double t0 = c->clock ? c->clock() : 0;
    pi__cpu_qkv(&w->cpu.be, &b, &qa);
    double t1 = c->clock ? c->clock() : 0;
    pi__attention aa = {.kv = &w->kv, .q = x, .ldq = (int64_t) ldq, .q_stride = qa.q_stride,
                        .gate = c->gate ? x + hd : NULL, .out = out,
                   .ldo = (int64_t) nq, .n_head = c->n_head, .window = c->window, .softcap = c->softcap,
                   .rel = c->n_rel ? w->rel : NULL, .n_rel = c->n_rel,
                   .sinks = c->sinks ? w->sinks : NULL, .sparsity = c->sparsity,
                        .spans = c->span_n > 0};
    if (!w->fills) pi__cpu_attention(&w->cpu.be, &b, &aa);
    w->time_qkv = t1 - t0;
    w->time_attention = c->clock ? c->clock() - t1 : 0;
    at = 0;
    for (int i = 0; i < w->n_seqs; i++) {
        sequence *s = &w->seq[i];
        memcpy(s->out + (size_t) (s->done - n[i]) * nq, out + (size_t) at * nq, (size_t) n[i] * nq * 4);
        at += n[i];
        /* A block that no later token reads is freed; the test fills it with NaN as a new owner could. */
        for (int e = 0; c->window > 0 && (e + 1) * c->block_size <= s->done - c->window + 1; e++) {
            if (s->table[e] < 0) continue;
            memset(w->kv.base + (size_t) s->table[e] * w->kv.stride, 0xff, w->kv.stride - 192);
            w->free_ids[w->n_free++] = s->table[e];
            s->table[e] = -1;
        }
    }
    free(x);
    free(runs);
    free(out);
    free(ints);
    free(tables);
}

/* Runs all tokens of all sequences. */
static inline void fixture_run(fixture *w)
{
    for (int first = 0; first < w->n_seqs; first++) {
        for (;;) {
            int n[MAX_SEQS] = {0}, any = 0;
            for (int i = w->c.apart ? first : 0; i <= (w->c.apart ? first : w->n_seqs - 1); i++) {
                int left = w->seq[i].len - w->seq[i].done, chunk = w->c.chunk + i; /* ragged */
                n[i] = left < chunk ? left : chunk;
                const int end = w->seq[i].done + n[i];
                if (end > w->c.sparse_from && end < sparse_end(w, i))
                    n[i] = end - end % PI__SPARSE_BLOCK - w->seq[i].done;
                const int from = w->c.span_from, to = from + w->c.span_n, at = w->seq[i].done;
                if (end > from && end < to) n[i] = (at < from ? from : to < w->seq[i].len ? to : w->seq[i].len) - at;
                any += n[i];
            }
            if (!any) break;
            fixture_step(w, n);
        }
    }
}

#endif
