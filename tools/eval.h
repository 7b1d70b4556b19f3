/* Shared by the files of `pagedinfer eval`. */
#ifndef PAGEDINFER_EVAL_H
#define PAGEDINFER_EVAL_H

#include "cli.h"

/* The jobs; each returns an exit code. */
int eval_cases(const cli *c);      /* --cases */
int eval_perplexity(const cli *c); /* -f, with or without writing --kl-divergence-base */
int eval_kl(const cli *c);         /* --kl-divergence */
int eval_choices(const cli *c);    /* --hellaswag, --winogrande, --multiple-choice */
int eval_suite(const cli *c);      /* --concurrency-suite; 1: rules were broken */

/* pi_options_set that says what went wrong; returns an exit code. */
int eval_set(const cli *c, pi_options *o, const char *key, const char *value);
int eval_set_int(const cli *c, pi_options *o, const char *key, int64_t value);
int eval_request_set(const cli *c, pi_request *r, const char *key, const char *value);
/* Opens the engine; *info describes it. */
int eval_open(const cli *c, pi_options *o, pi_engine **e, pi_info *info);
/* The exit code after cli_poll gave n <= 0. */
int eval_interrupted(const cli *c, int n);

/* Evaluates a text in independent chunks of n_ctx tokens, step tokens apart, and hands over the rows of logits from the
 * one of position first on; llama-perplexity's are n_ctx apart, and their second halves count. */
typedef struct chunk_run {
    const cli *c;
    pi_engine *e;
    const int32_t *tokens; /* [(n_chunk - 1) * step + n_ctx] */
    size_t n_chunk;
    int32_t n_ctx;
    size_t step;           /* tokens from the start of a chunk to that of the next */
    int32_t first;         /* in [0, n_ctx - 1) */
    int32_t bos;           /* takes the place of each chunk's first token; -1: nothing does */
    void *ud;              /* first argument of the functions */
    /* Row i of a chunk, i in [0, n_ctx - 1 - first): predicts token first + 1 + i of it. On the engine's thread. */
    void (*row)(void *ud, size_t chunk, int32_t i, const float *logits, size_t n_vocab);
    /* All rows of the chunk were given; chunks come in order. Not 0: stop with this exit code. */
    int (*done)(void *ud, size_t chunk);
} chunk_run;
int eval_chunks(const chunk_run *run);
static inline int32_t eval_rows(int32_t n_ctx) { return n_ctx - 1 - n_ctx / 2; } /* of second halves */

/* Options for evaluating chunks of n_ctx tokens (0: of --ctx-size, 512 when it is not given), and the engine. *n_ctx is
 * what the chunks have. *o is freed by the caller in any case. */
int eval_open_chunks(const cli *c, int32_t *n_ctx, pi_options **o, pi_engine **e, pi_info *info);
/* The token that starts each chunk, -1: none; an exit code if the model cannot be evaluated so. */
int eval_bos(const cli *c, const pi_engine *e, const pi_info *info, int32_t *bos);

/* A base-logits file as llama-perplexity writes it, little-endian:
 *
 *     "_logits_"  u32 n_ctx  i32 n_vocab  i32 n_chunk  i32 tokens[n_chunk * n_ctx]
 *     then for each chunk and each of its eval_rows(n_ctx) rows:
 *     f32 scale  f32 min  u16 q[n_vocab rounded up to even]      log p(i) = scale * q[i] + min */
typedef struct base_file {
    int fd;
    const char *path;
    int32_t n_ctx, n_vocab, n_chunk;
} base_file;
enum { BASE_HEADER = 20 };
static inline size_t base_row_bytes(int32_t n_vocab) { return 8 + ((size_t) n_vocab + 1) / 2 * 2 * sizeof(uint16_t); }
static inline uint64_t base_row_offset(const base_file *b, size_t chunk, int32_t i)
{
    return BASE_HEADER + (uint64_t) b->n_ctx * (uint64_t) b->n_chunk * 4 +
           ((uint64_t) chunk * (uint64_t) eval_rows(b->n_ctx) + (uint64_t) i) * base_row_bytes(b->n_vocab);
}
/* All n bytes or false with errno set (0: the file ended). */
bool base_pread(const base_file *b, void *p, size_t n, uint64_t at);
bool base_pwrite(const base_file *b, const void *p, size_t n, uint64_t at);

#endif
