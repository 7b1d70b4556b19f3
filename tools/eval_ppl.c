/* Perplexity of a text computed like llama-perplexity, and its file of base logits.
 *
 * The text's tokens are split into chunks of n_ctx; a remainder is dropped. In each chunk the first token is replaced
 * by BOS if the model has one, and the tokens after the first half are scored: exp(mean(-log p)), with the propagated
 * standard error of the mean. With --ppl-stride S, chunks begin S tokens apart and are S/2 longer; the last S tokens
 * of each are scored. These chunks also begin with BOS; llama-perplexity intends that too, but does not do it. The
 * engine's thread processes rows as they arrive. */
#include "eval.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rows.h"

typedef struct ppl {
    const cli *c;
    const int32_t *tokens; /* tokens of the complete text */
    int32_t n_ctx;
    int32_t stride;        /* 0 = adjacent chunks */
    size_t n_chunk;
    size_t rows;           /* scored tokens per chunk */
    /* [n_chunk * rows] -log p of each scored token; owned by the engine's thread until the chunk is done */
    double *nll;
    double sum, sum2;      /* over completed chunks: sums of nll and of its square */
    size_t count;          /* tokens in completed chunks */
    base_file base;        /* fd < 0 = no file is written */
    uint8_t *row;          /* one row of the file */
    int base_errno;        /* errno of a failed row write */
    double t_start;        /* seconds, for the estimate of the remaining time */
} ppl;

static size_t step_of(const ppl *p) { return (size_t) (p->stride ? p->stride : p->n_ctx); }

static void ppl_row(void *ud, size_t chunk, int32_t i, const float *logits, size_t n_vocab)
{
    ppl *p = ud;
    size_t start = chunk * step_of(p), first = (size_t) p->n_ctx - p->rows;
    int32_t id = p->tokens[start + first + (size_t) i];
    row_sum s = rows_sum(logits, n_vocab);
    p->nll[chunk * p->rows + (size_t) i] = s.log_sum - ((double) logits[id] - (double) s.max);
    if (p->base.fd < 0 || p->base_errno) return;
    row_q16 q = rows_quantise(logits, n_vocab, s, (uint16_t *) (void *) (p->row + 8));
    memcpy(p->row, &q.scale, 4);
    memcpy(p->row + 4, &q.min, 4);
    if (!base_pwrite(&p->base, p->row, base_row_bytes(p->base.n_vocab), base_row_offset(&p->base, chunk, i)))
        p->base_errno = errno ? errno : EIO;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

/* --ppl-output-type 1: a line per chunk with its start, the mean and its error. */
static void print_chunk(const ppl *p, size_t chunk)
{
    double n = (double) p->count, mean = p->sum / n, var = p->sum2 / n - mean * mean;
    if (cli_int(p->c, "ppl-output-type") == 0) {
        printf("[%zu]%.4f,", chunk + 1, exp(mean));
    } else {
        printf("%8zu  %.4f", chunk * step_of(p), exp(mean));
        if (!p->stride) printf("  %4f  %4f", mean, var > 0 && n > 1 ? sqrt(var / (n - 1)) : 0.0);
        putchar('\n');
    }
    fflush(stdout);
}

static int ppl_done(void *ud, size_t chunk)
{
    ppl *p = ud;
    size_t rows = p->rows;
    if (p->base_errno) return cli_error(p->c, CLI_IO, "%s: %s", p->base.path, strerror(p->base_errno));
    for (size_t i = 0; i < rows; i++) {
        double v = p->nll[chunk * rows + i];
        p->sum += v;
        p->sum2 += v * v;
    }
    p->count += rows;
    if (chunk == 0 && cli_logs(p->c, PI_LOG_INFO)) {
        double t = seconds() - p->t_start;
        fprintf(stderr, "%.2f seconds per pass - ETA %.2f minutes\n", t, t * (double) p->n_chunk / 60);
    }
    print_chunk(p, chunk);
    return CLI_OK;
}

static int print_estimate(const ppl *p)
{
    double n = (double) p->count, mean = p->sum / n, var = p->sum2 / n - mean * mean;
    printf("\n");
    if (!(var > 0)) return cli_error(p->c, CLI_SOFTWARE, "the log-probabilities are constant or not finite");
    printf("Final estimate: PPL = %.4f +/- %.5f\n", exp(mean), sqrt(var / (n - 1)) * exp(mean));
    return CLI_OK;
}

/* Reads the text. Unlike in a prompt, backslashes are literal unless --escape is given. */
static int read_text(const cli *c, char **text, size_t *len)
{
    bool file = cli_given(c, "file");
    if (cli_given(c, "escape") || (!file && !cli_given(c, "prompt"))) return cli_prompt(c, false, text, len);
    if (!file) {
        *len = strlen(cli_str(c, "prompt"));
        *text = strdup(cli_str(c, "prompt"));
        return *text ? CLI_OK : cli_error(c, CLI_OS, "out of memory");
    }
    int code = cli_read_file(c, cli_str(c, "file"), text, len);
    if (!code && *len && (*text)[*len - 1] == '\n') --*len;
    return code;
}

static int tokenize_text(const cli *c, const pi_engine *e, int32_t **out, size_t *n)
{
    char *text = NULL;
    size_t len = 0;
    int code = read_text(c, &text, &len);
    int64_t got = 0;
    for (size_t cap = len / 2 + 64; !code; cap = (size_t) got) {
        free(*out);
        *out = malloc(cap * sizeof **out);
        got = *out ? pi_tokenize(e, text, len, PI_TOK_BOS, *out, cap) : PI_ENOMEM;
        if (got < 0) code = cli_error(c, cli_exit_code((int) got), "tokenizing: %s", pi_strerror((int) got));
        else if ((size_t) got <= cap) break;
    }
    free(text);
    *n = code ? 0 : (size_t) got;
    return code;
}

static int create_base(ppl *p, int32_t n_vocab)
{
    const char *path = cli_str(p->c, "kl-divergence-base");
    if (!*path) return CLI_OK;
    p->base = (base_file) {-1, path, p->n_ctx, n_vocab, (int32_t) p->n_chunk};
    p->row = calloc(1, base_row_bytes(n_vocab));
    if (!p->row) return cli_error(p->c, CLI_OS, "out of memory");
    p->base.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const int32_t head[3] = {p->n_ctx, n_vocab, p->base.n_chunk};
    if (p->base.fd < 0 || !base_pwrite(&p->base, "_logits_", 8, 0) || !base_pwrite(&p->base, head, sizeof head, 8) ||
        !base_pwrite(&p->base, p->tokens, (size_t) p->n_ctx * p->n_chunk * sizeof *p->tokens, BASE_HEADER)) {
        return cli_error(p->c, CLI_IO, "%s: %s", path, strerror(errno));
    }
    return CLI_OK;
}

static int score(ppl *p, pi_engine *e, const pi_info *info, size_t n_tokens)
{
    const cli *c = p->c;
    size_t n_ctx = (size_t) p->n_ctx;
    int64_t limit = cli_int(c, "chunks");
    int32_t bos = -1;
    int code = eval_bos(c, e, info, &bos);
    if (code) return code;
    if (n_tokens < 2 * n_ctx)
        return cli_error(c, CLI_DATA, "the text has %zu tokens; chunks of %zu need at least %zu (see --ctx-size)",
                         n_tokens, n_ctx, 2 * n_ctx);
    p->n_chunk = p->stride ? (n_tokens - n_ctx + step_of(p) - 1) / step_of(p) : n_tokens / n_ctx;
    if (limit >= 0 && p->n_chunk > (size_t) limit) p->n_chunk = (size_t) limit;
    if (p->n_chunk == 0 || p->n_chunk > INT32_MAX) return cli_usage_error(c, "--chunks: give at least 1");
    p->rows = (size_t) (p->stride ? p->stride : eval_rows(p->n_ctx));
    p->nll = calloc(p->n_chunk * p->rows, sizeof *p->nll);
    if (!p->nll) return cli_error(c, CLI_OS, "out of memory");
    code = create_base(p, (int32_t) info->n_vocab);
    if (code) return code;
    if (cli_logs(c, PI_LOG_INFO)) fprintf(stderr, "perplexity over %zu chunks of %zu tokens\n", p->n_chunk, n_ctx);
    p->t_start = seconds();
    const int32_t first = p->n_ctx - 1 - (int32_t) p->rows;
    const bool every = cli_has_section(c->cmd, "imatrix");
    const chunk_run run = {c, e, p->tokens, p->n_chunk, p->n_ctx, step_of(p), first, bos, every, p, ppl_row, ppl_done};
    code = eval_chunks(&run);
    return code ? code : print_estimate(p);
}

/* Applies --ppl-stride and the resulting chunk length. */
static int set_stride(ppl *p)
{
    int64_t stride = cli_int(p->c, "ppl-stride"), n_ctx = cli_given(p->c, "ctx-size") ? cli_int(p->c, "ctx-size") : 512;
    if (!stride) return CLI_OK;
    if (*cli_str(p->c, "kl-divergence-base"))
        return cli_usage_error(p->c, "--kl-divergence-base needs adjacent chunks: omit --ppl-stride");
    if (n_ctx < 4 || n_ctx > INT32_MAX / 4 || stride > n_ctx)
        return cli_usage_error(p->c, "--ppl-stride: give at most --ctx-size, and --ctx-size as a number");
    p->stride = (int32_t) stride;
    p->n_ctx = (int32_t) (n_ctx + stride / 2);
    return CLI_OK;
}

int eval_perplexity(const cli *c)
{
    ppl p = {.c = c, .base = {.fd = -1}};
    pi_options *o = NULL;
    pi_engine *e = NULL;
    pi_info info;
    int32_t *tokens = NULL;
    size_t n_tokens = 0;
    int code = set_stride(&p);
    if (!code) code = eval_open_chunks(c, &p.n_ctx, &o, &e, &info);
    if (!code) code = tokenize_text(c, e, &tokens, &n_tokens);
    p.tokens = tokens;
    if (!code) code = score(&p, e, &info, n_tokens);
    cli_close(c, e);
    pi_options_free(o);
    if (p.base.fd >= 0) {
        if (close(p.base.fd) && !code) code = cli_error(c, CLI_IO, "%s: %s", p.base.path, strerror(errno));
        if (code) unlink(p.base.path); /* a partial file would be refused later */
    }
    free(p.row);
    free(p.nll);
    free(tokens);
    return code;
}
