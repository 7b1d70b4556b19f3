/* DeepSeek V4 cache writes on the CPU: rows of the window, and compressed entries of several tokens.
 *
 * A token's values and scores are first written to the cache of recent rows. An entry is computed in the step of its
 * last token, from that cache. So the distribution of its tokens over steps does not matter. Memory: only the stack.
 * Threads: called by the step thread, which forks and joins the pool inside; one thread computes a token or an
 * entry. */
#include <string.h>

#include "backend/cpu/sparse.h"

enum { SMALL = 16384 }; /* fewer values run on the calling thread: waking pool threads would cost more than it saves */

/* -------------------------------------------------------------------------------------------------------- mla_qkv */

typedef struct mla_qkv_job {
    pi__cpu *cpu;
    const pi__batch *b;
    const pi__mla_qkv *a;
    const pi__kv_layer *rows;
} mla_qkv_job;

static void put_row(const pi__cpu *cpu, const pi__kv_layer *kv, const pi__kv_batch *kb, int32_t slot, const float *x)
{
    char *dst = pi__row_in(kv, slot / kv->ratio, kb->block_size / kv->ratio);
    cpu->attn->store_row(kv->type_k, dst, pi__row_width(kv->head_dim), x);
}

static void mla_qkv_token(const mla_qkv_job *j, int32_t t)
{
    const pi__mla_qkv *a = j->a;
    const float *rope = a->n_rot ? a->rope + (size_t) t * (size_t) a->n_rot : NULL;
    pi__head_prep prep = {.head_dim = a->dim, .norm = a->q_norm, .eps = a->eps, .scale = a->q_scale};
    for (int32_t h = 0; h < a->n_head; h++) {
        float *q = a->q + t * a->ldq + (size_t) h * (size_t) a->dim;
        j->cpu->attn->prep(&prep, q, q);
        pi__rotate_tail(q, a->dim, rope, a->n_rot, 1.0f);
    }
    if (!a->row || j->b->kv[j->rows->group].slot[t] < 0) return;
    float x[PI__SPARSE_MAX_ROW] = {0};
    const float *row = a->row + t * a->ldr;
    prep = (pi__head_prep) {.head_dim = a->n_norm, .norm = true, .w = a->norm, .eps = a->eps, .scale = 1.0f};
    j->cpu->attn->prep(&prep, row, x);
    memcpy(x + a->n_norm, row + a->n_norm, (size_t) (a->dim - a->n_norm) * sizeof *x);
    pi__rotate_tail(x, a->dim, rope, a->n_rot, 1.0f);
    put_row(j->cpu, j->rows, &j->b->kv[j->rows->group], j->b->kv[j->rows->group].slot[t], x);
}

static void mla_qkv_main(void *arg, int32_t ith, int32_t nth)
{
    const mla_qkv_job *j = arg;
    const int64_t n = j->b->n_tokens;
    for (int64_t t = n * ith / nth; t < n * (ith + 1) / nth; t++) mla_qkv_token(j, (int32_t) t);
}

void pi__cpu_mla_qkv(pi__backend *be, const pi__batch *b, const pi__mla_qkv *a)
{
    mla_qkv_job j = {(pi__cpu *) be, b, a, a->rows};
    if ((int64_t) b->n_tokens * a->n_head * a->dim < SMALL) mla_qkv_main(&j, 0, 1);
    else pi__pool_run(j.cpu->pool, mla_qkv_main, &j);
}

/* ------------------------------------------------------------------------------------------------------- compress */

typedef struct compress_job {
    pi__cpu *cpu;
    const pi__batch *b;
    const pi__compress *a;
    const pi__kv_layer *recent, *entries;
    int32_t width;      /* values per token; a token has `width` scores as well */
} compress_job;

/* Writes row [2 * width] of token t to the cache of recent rows: its values, then its scores + ape (the positional bias
 * of its slot in the window). Tokens with slot -1 are not cached. */
static void keep(const compress_job *j, int32_t t)
{
    const pi__compress *a = j->a;
    const pi__kv_batch *kb = &j->b->kv[j->recent->group];
    if (kb->slot[t] < 0) return;
    const int32_t W = j->width;
    const float *x = a->x + t * a->ldx, *ape = a->ape + (size_t) (j->b->pos[t] % a->ratio) * (size_t) W;
    float *row = (float *) (void *) pi__row_in(j->recent, kb->slot[t], kb->block_size);
    memcpy(row, x, (size_t) W * sizeof *row);
    for (int32_t i = 0; i < W; i++) row[W + i] = x[W + i] + ape[i];
}

static void rotate(const pi__compress *a, float *x, int32_t pos)
{
    float rope[PI__MAX_HEAD_DIM];
    for (int32_t i = 0; i < a->n_rot / 2; i++) {
        const float angle = (float) pos * a->freq[i];
        rope[i] = cosf(angle);
        rope[a->n_rot / 2 + i] = sinf(angle);
    }
    pi__rotate_tail(x, a->dim, rope, a->n_rot, 1.0f);
}

/* Computes the entry of the window of `ratio` tokens that ends with token t and writes it to the cache. No effect if no
 * window ends with t. With overlap, the entry also covers the previous window: its tokens use the first dim values of
 * their rows, this window's tokens the second dim values. */
static void close_window(const compress_job *j, int32_t t)
{
    const pi__compress *a = j->a;
    const int32_t pos = j->b->pos[t], start = pos + 1 - a->ratio, slot = j->b->kv[j->entries->group].slot[t];
    const float *v[PI__SPARSE_SLOTS], *s[PI__SPARSE_SLOTS];
    if ((pos + 1) % a->ratio || slot < 0) return;
    int32_t n = 0;
    for (int32_t p = a->overlap && start > 0 ? start - a->ratio : start; p <= pos; p++, n++) {
        const char *row = pi__row_of(j->recent, &j->b->kv[j->recent->group], j->b->seq[t], p);
        v[n] = (const float *) (const void *) row + (a->overlap && p >= start ? a->dim : 0);
        s[n] = v[n] + j->width;
    }
    float x[PI__MAX_HEAD_DIM] = {0};
    j->cpu->sparse->pool(v, s, n, a->dim, x);
    const pi__head_prep prep = {.head_dim = a->dim, .norm = true, .w = a->norm, .eps = a->eps, .scale = 1.0f};
    j->cpu->attn->prep(&prep, x, x);
    rotate(a, x, start);
    put_row(j->cpu, j->entries, &j->b->kv[j->entries->group], slot, x);
}

static void compress_main(void *arg, int32_t ith, int32_t nth)
{
    const compress_job *j = arg;
    const int64_t n = j->b->n_tokens;
    for (int64_t t = n * ith / nth; t < n * (ith + 1) / nth; t++) keep(j, (int32_t) t);
    if (nth > 1) pi__pool_barrier(j->cpu->pool);
    for (int64_t t = n * ith / nth; t < n * (ith + 1) / nth; t++) close_window(j, (int32_t) t);
}

void pi__cpu_compress(pi__backend *be, const pi__batch *b, const pi__compress *a)
{
    compress_job j = {(pi__cpu *) be, b, a, a->recent, a->entries, a->overlap ? 2 * a->dim : a->dim};
    if ((int64_t) b->n_tokens * j.width < SMALL) compress_main(&j, 0, 1);
    else pi__pool_run(j.cpu->pool, compress_main, &j);
}
