/* Shared by the files of `pagedinfer eval`. */
#ifndef PAGEDINFER_EVAL_H
#define PAGEDINFER_EVAL_H

#include "cli.h"

/* The jobs; each returns an exit code. */
int eval_cases(const cli *c);      /* --cases */
int eval_perplexity(const cli *c); /* -f, with or without writing --kl-divergence-base */
int eval_kl(const cli *c);         /* --kl-divergence */
int eval_choices(const cli *c);    /* --hellaswag, --winogrande, --multiple-choice */
int eval_suite(const cli *c);      /* --concurrency-suite; returns 1 if a check failed */

/* Call the library's setters and print an error message on failure; return an exit code. */
int eval_set(const cli *c, pi_options *o, const char *key, const char *value);
int eval_set_int(const cli *c, pi_options *o, const char *key, int64_t value);
int eval_request_set(const cli *c, pi_request *r, const char *key, const char *value);
/* Opens an engine in *e and fills *info. Returns an exit code. */
int eval_open(const cli *c, pi_options *o, pi_engine **e, pi_info *info);
/* Returns the exit code after cli_poll returned n <= 0. */
int eval_interrupted(const cli *c, int n);

/* Evaluates a text in independent chunks of n_ctx tokens that start `step` tokens apart. Passes on the logits rows
 * from position `first` on. llama-perplexity uses step = n_ctx and scores the second half of each chunk. */
typedef struct chunk_run {
    const cli *c;
    pi_engine *e;
    const int32_t *tokens; /* [(n_chunk - 1) * step + n_ctx] tokens of the text */
    size_t n_chunk;
    int32_t n_ctx;
    size_t step;           /* distance between the starts of two chunks, tokens */
    int32_t first;         /* position of the first row that is passed on, in [0, n_ctx - 1) */
    int32_t bos;           /* replaces the first token of each chunk; -1 = no replacement */
    /* Also computes what no row needs: the last token, and the last layers of the tokens before `first`. So that an
     * importance matrix counts every token in every layer. */
    bool every;
    void *ud;              /* first argument of the callbacks */
    /* Receives row i of a chunk, i in [0, n_ctx - 1 - first); row i predicts token first + 1 + i of the chunk. Runs on
     * the engine's thread. */
    void (*row)(void *ud, size_t chunk, int32_t i, const float *logits, size_t n_vocab);
    /* Called after the last row of a chunk, in chunk order. Returns 0, or an exit code to stop with. */
    int (*done)(void *ud, size_t chunk);
} chunk_run;
int eval_chunks(const chunk_run *run);
static inline int32_t eval_rows(int32_t n_ctx) { return n_ctx - 1 - n_ctx / 2; } /* rows of the second half */

/* Creates options and engine for chunks of *n_ctx tokens; *n_ctx 0: uses --ctx-size, default 512. Sets *n_ctx to the
 * chunk length, and the engine's concurrency and cache size to match, unless flags give them. Returns an exit code. The
 * caller frees *o, also after a failure. */
int eval_open_chunks(const cli *c, int32_t *n_ctx, pi_options **o, pi_engine **e, pi_info *info);
/* Sets *bos to the first token of each chunk, -1 = none. Returns an exit code; fails if the model cannot be evaluated
 * in chunks. */
int eval_bos(const cli *c, const pi_engine *e, const pi_info *info, int32_t *bos);

/* A file of base logits in llama-perplexity's format, little-endian:
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
/* Transfer all n bytes, or return false and set errno (0 = end of file). */
bool base_pread(const base_file *b, void *p, size_t n, uint64_t at);
bool base_pwrite(const base_file *b, const void *p, size_t n, uint64_t at);

#endif
