/* KL divergence from a base model on the same text: llama-perplexity's --kl-divergence.
 *
 * The base model's log-probabilities come from a file written by either tool (layout in eval.h). The file contains the
 * tokens, so no text is needed. The file is untrusted: sizes, counts and ids are checked before use. It is read, not
 * mapped, so truncation while it is in use is safe. Statistics are accumulated in text order. */
#include "eval.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rows.h"

/* Values kept for each scored token. */
typedef struct point {
    float nll, nll_base; /* -log p of the text's token, in this and in the base model */
    double kld;          /* KL divergence of the full distribution */
    bool same_top;       /* both models have the same most likely token */
} point;

typedef struct sums {
    size_t n, n_same_top;
    double nll, nll2, base, base2, nll_base; /* sums of -log p, of its square, and of the product of both models */
    double kld, kld2;
    double dp, dp2, dp4;                     /* sums of the probability difference and of its powers */
} sums;

typedef struct kl {
    const cli *c;
    base_file base;
    int32_t *tokens;   /* [n_chunk * n_ctx] */
    size_t n_chunk;    /* number of compared chunks */
    point *points;     /* [n_chunk * rows]; owned by the engine's thread until the chunk is done */
    float *kld, *dp;   /* [n_chunk * rows] for percentiles */
    uint8_t *row;      /* one row of the file */
    int read_errno;    /* errno of a failed read; -1 = end of file */
    sums s;
} kl;

static void kl_row(void *ud, size_t chunk, int32_t i, const float *logits, size_t n_vocab)
{
    kl *k = ud;
    if (k->read_errno) return;
    if (!base_pread(&k->base, k->row, base_row_bytes(k->base.n_vocab), base_row_offset(&k->base, chunk, i))) {
        k->read_errno = errno ? errno : -1;
        return;
    }
    row_q16 base = {.q = (const uint16_t *) (const void *) (k->row + 8)};
    memcpy(&base.scale, k->row, 4);
    memcpy(&base.min, k->row + 4, 4);
    int32_t id = k->tokens[chunk * (size_t) k->base.n_ctx + (size_t) (k->base.n_ctx / 2 + 1 + i)];
    row_sum s = rows_sum(logits, n_vocab);
    point *p = &k->points[chunk * (size_t) eval_rows(k->base.n_ctx) + (size_t) i];
    p->nll = s.max + (float) s.log_sum - logits[id];
    p->nll_base = -(base.scale * (float) base.q[id] + base.min);
    p->kld = rows_kl(logits, n_vocab, s, base);
    p->same_top = rows_argmax(logits, n_vocab) == rows_argmax_q16(base.q, n_vocab);
}

/* ------------------------------------------------------------------------------------------------------ statistics */

typedef struct estimate { double value, error; } estimate;

static estimate mean_of(double sum, double sum2, size_t n)
{
    if (!n) return (estimate) {0, 0};
    double m = sum / (double) n, var = sum2 / (double) n - m * m;
    return (estimate) {m, var > 0 && n > 10 ? sqrt(var / (double) (n - 1)) : 0};
}

/* Returns the covariance of the two means of -log p. */
static double covariance(const sums *s)
{
    if (s->n < 10) return 0;
    double n = (double) s->n;
    return (s->nll_base / n - s->nll / n * (s->base / n)) / (n - 1);
}

static estimate log_ratio(const sums *s)
{
    estimate q = mean_of(s->nll, s->nll2, s->n), b = mean_of(s->base, s->base2, s->n);
    return (estimate) {q.value - b.value, sqrt(q.error * q.error + b.error * b.error - 2 * covariance(s))};
}

static estimate rms_of(const sums *s)
{
    estimate mse = mean_of(s->dp2, s->dp4, s->n);
    double rms = sqrt(mse.value);
    return (estimate) {rms, 0.5 / rms * mse.error};
}

static estimate same_top_of(const sums *s)
{
    double p = (double) s->n_same_top / (double) s->n;
    return (estimate) {p, sqrt(p * (1 - p) / (double) (s->n - 1))};
}

static void add_point(kl *k, size_t at)
{
    const point *p = &k->points[at];
    sums *s = &k->s;
    float dp = expf(-p->nll) - expf(-p->nll_base);
    double nll = (double) p->nll, base = (double) p->nll_base, dp2 = (double) dp * (double) dp;
    s->n++;
    s->n_same_top += p->same_top;
    s->nll += nll;
    s->nll2 += nll * nll;
    s->base += base;
    s->base2 += base * base;
    s->nll_base += nll * base;
    s->kld += p->kld;
    s->kld2 += p->kld * p->kld;
    s->dp += (double) dp;
    s->dp2 += dp2;
    s->dp4 += dp2 * dp2;
    k->kld[at] = (float) p->kld;
    k->dp[at] = dp;
}

static int kl_done(void *ud, size_t chunk)
{
    kl *k = ud;
    size_t rows = (size_t) eval_rows(k->base.n_ctx);
    if (k->read_errno)
        return cli_error(k->c, k->read_errno < 0 ? CLI_DATA : CLI_IO, "%s: %s", k->base.path,
                         k->read_errno < 0 ? "the file ends too early" : strerror(k->read_errno));
    for (size_t i = 0; i < rows; i++) add_point(k, chunk * rows + i);
    const sums *s = &k->s;
    if (chunk == 0) {
        printf("\nchunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence"
               "              Δp RMS            Same top p\n");
    }
    estimate q = mean_of(s->nll, s->nll2, s->n), ratio = log_ratio(s), kld = mean_of(s->kld, s->kld2, s->n);
    estimate rms = rms_of(s), top = same_top_of(s);
    printf("%4zu    %9.4f ± %9.4f    %10.5f ± %10.5f", chunk + 1, exp(q.value), exp(q.value) * q.error, ratio.value,
           ratio.error);
    printf("    %10.5f ± %10.5f    %6.3f ± %6.3f %%    %6.3f ± %6.3f %%\n", kld.value, kld.error, 100 * rms.value,
           100 * rms.error, 100 * top.value, 100 * top.error);
    fflush(stdout);
    return CLI_OK;
}

static int by_value(const void *a, const void *b)
{
    float x, y;
    memcpy(&x, a, 4);
    memcpy(&y, b, 4);
    return x < y ? -1 : x > y;
}

/* Returns a percentile of sorted values, with linear interpolation. */
static float percentile(const float *v, size_t n, float fraction)
{
    float at = fraction * (float) (n - 1);
    size_t i = (size_t) at < n - 1 ? (size_t) at : n - 1;
    at -= (float) i;
    return (1 - at) * v[i] + at * v[i + 1 < n ? i + 1 : n - 1];
}

static float median(const float *v, size_t n) { return n % 2 ? v[n / 2] : 0.5f * (v[n / 2] + v[n / 2 - 1]); }

static void print_perplexities(const sums *s)
{
    estimate q = mean_of(s->nll, s->nll2, s->n), b = mean_of(s->base, s->base2, s->n), r = log_ratio(s);
    double ppl = exp(q.value), ppl_b = exp(b.value), err = ppl * q.error, err_b = ppl_b * b.error;
    double diff_err = sqrt(err * err + err_b * err_b - 2 * ppl * ppl_b * covariance(s));
    printf("====== Perplexity statistics ======\n");
    printf("Mean PPL(Q)                   : %10.6f ± %10.6f\n", ppl, err);
    printf("Mean PPL(base)                : %10.6f ± %10.6f\n", ppl_b, err_b);
    printf("Cor(ln(PPL(Q)), ln(PPL(base))): %6.2f%%\n", 100 * covariance(s) / (q.error * b.error));
    printf("Mean ln(PPL(Q)/PPL(base))     : %10.6f ± %10.6f\n", r.value, r.error);
    printf("Mean PPL(Q)/PPL(base)         : %10.6f ± %10.6f\n", exp(r.value), exp(r.value) * r.error);
    printf("Mean PPL(Q)-PPL(base)         : %10.6f ± %10.6f\n\n", ppl - ppl_b, diff_err);
}

static void print_divergences(const sums *s, float *v)
{
    static const struct { const char *name; float fraction; } high[] = {
        {"99.9%", 0.999f}, {"99.0%", 0.990f}, {"95.0%", 0.950f}, {"90.0%", 0.900f}},
        low[] = {{"10.0%", 0.100f}, {" 5.0%", 0.050f}, {" 1.0%", 0.010f}, {" 0.1%", 0.001f}};
    estimate kld = mean_of(s->kld, s->kld2, s->n);
    qsort(v, s->n, sizeof *v, by_value);
    printf("====== KL divergence statistics ======\n");
    printf("Mean    KLD: %10.6f ± %10.6f\n", kld.value, kld.error);
    printf("Maximum KLD: %10.6f\n", (double) v[s->n - 1]);
    for (size_t i = 0; i < 4; i++)
        printf("%s   KLD: %10.6f\n", high[i].name, (double) percentile(v, s->n, high[i].fraction));
    printf("Median  KLD: %10.6f\n", (double) median(v, s->n));
    for (size_t i = 0; i < 4; i++)
        printf("%s   KLD: %10.6f\n", low[i].name, (double) percentile(v, s->n, low[i].fraction));
    printf("Minimum KLD: %10.6f\n\n", (double) v[0]);
}

static void print_probabilities(const sums *s, float *v)
{
    static const struct { const char *name; float fraction; } high[] = {
        {"99.9%", 0.999f}, {"99.0%", 0.990f}, {"95.0%", 0.950f}, {"90.0%", 0.900f}, {"75.0%", 0.750f}},
        low[] = {{"25.0%", 0.250f}, {"10.0%", 0.100f}, {" 5.0%", 0.050f}, {" 1.0%", 0.010f}, {" 0.1%", 0.001f}};
    estimate dp = mean_of(s->dp, s->dp2, s->n), rms = rms_of(s), top = same_top_of(s);
    qsort(v, s->n, sizeof *v, by_value);
    printf("====== Token probability statistics ======\n");
    printf("Mean    Δp: %6.3f ± %5.3f %%\n", 100 * dp.value, 100 * dp.error);
    printf("Maximum Δp: %6.3f%%\n", 100 * (double) v[s->n - 1]);
    for (size_t i = 0; i < 5; i++)
        printf("%s   Δp: %6.3f%%\n", high[i].name, 100 * (double) percentile(v, s->n, high[i].fraction));
    printf("Median  Δp: %6.3f%%\n", 100 * (double) median(v, s->n));
    for (size_t i = 0; i < 5; i++)
        printf("%s   Δp: %6.3f%%\n", low[i].name, 100 * (double) percentile(v, s->n, low[i].fraction));
    printf("Minimum Δp: %6.3f%%\n", 100 * (double) v[0]);
    printf("RMS Δp    : %6.3f ± %5.3f %%\n", 100 * rms.value, 100 * rms.error);
    printf("Same top p: %6.3f ± %5.3f %%\n", 100 * top.value, 100 * top.error);
}

/* -------------------------------------------------------------------------------------------------------- the file */

/* Checks that the file contains everything that its header describes. */
static int check_header(const kl *k, uint64_t file_size)
{
    const base_file *b = &k->base;
    if (b->n_ctx < 4 || b->n_ctx > INT32_MAX / 2)
        return cli_error(k->c, CLI_DATA, "%s: n_ctx is %u", b->path, (uint32_t) b->n_ctx);
    if (b->n_vocab < 1) return cli_error(k->c, CLI_DATA, "%s: n_vocab is %d", b->path, b->n_vocab);
    if (b->n_chunk < 1) return cli_error(k->c, CLI_DATA, "%s: n_chunk is %d", b->path, b->n_chunk);
    /* 2^30 * 2^31 tokens fit in 64 bits; the rows may not. */
    uint64_t rows = (uint64_t) b->n_chunk * (uint64_t) eval_rows(b->n_ctx), bytes;
    if (__builtin_mul_overflow(rows, base_row_bytes(b->n_vocab), &bytes) ||
        __builtin_add_overflow(bytes, base_row_offset(b, 0, 0), &bytes) || bytes > file_size)
        return cli_error(k->c, CLI_DATA, "%s: %d chunks of %d tokens need more than the file's %llu bytes", b->path,
                         b->n_chunk, b->n_ctx, (unsigned long long) file_size);
    return CLI_OK;
}

static int open_base(kl *k)
{
    const cli *c = k->c;
    base_file *b = &k->base;
    char magic[8];
    int32_t head[3];
    struct stat st;
    b->path = cli_str(c, "kl-divergence-base");
    b->fd = open(b->path, O_RDONLY | O_CLOEXEC);
    if (b->fd < 0) return cli_error(c, errno == ENOENT ? CLI_NO_INPUT : CLI_IO, "%s: %s", b->path, strerror(errno));
    if (fstat(b->fd, &st)) return cli_error(c, CLI_IO, "%s: %s", b->path, strerror(errno));
    if (!base_pread(b, magic, 8, 0) || memcmp(magic, "_logits_", 8) || !base_pread(b, head, sizeof head, 8))
        return cli_error(c, CLI_DATA, "%s: not a file of base logits", b->path);
    b->n_ctx = head[0];
    b->n_vocab = head[1];
    b->n_chunk = head[2];
    int code = check_header(k, (uint64_t) st.st_size);
    if (code) return code;
    size_t n = (size_t) b->n_ctx * (size_t) b->n_chunk;
    k->tokens = malloc(n * sizeof *k->tokens);
    if (!k->tokens) return cli_error(c, CLI_OS, "out of memory");
    if (!base_pread(b, k->tokens, n * sizeof *k->tokens, BASE_HEADER))
        return cli_error(c, CLI_IO, "%s: %s", b->path, errno ? strerror(errno) : "the file ends too early");
    for (size_t i = 0; i < n; i++) {
        if (k->tokens[i] < 0 || k->tokens[i] >= b->n_vocab)
            return cli_error(c, CLI_DATA, "%s: token %zu is %d; the vocabulary has %d", b->path, i, k->tokens[i],
                             b->n_vocab);
    }
    return CLI_OK;
}

static int compare(kl *k, pi_engine *e, const pi_info *info)
{
    const cli *c = k->c;
    int64_t limit = cli_int(c, "chunks");
    int32_t bos = -1;
    if ((int64_t) info->n_vocab != k->base.n_vocab)
        return cli_error(c, CLI_DATA, "%s has a vocabulary of %d tokens, the model has %u", k->base.path,
                         k->base.n_vocab, info->n_vocab);
    int code = eval_bos(c, e, info, &bos);
    if (code) return code;
    k->n_chunk = limit > 0 && limit < k->base.n_chunk ? (size_t) limit : (size_t) k->base.n_chunk;
    size_t n = k->n_chunk * (size_t) eval_rows(k->base.n_ctx);
    k->points = calloc(n, sizeof *k->points);
    k->kld = calloc(n, sizeof *k->kld);
    k->dp = calloc(n, sizeof *k->dp);
    k->row = malloc(base_row_bytes(k->base.n_vocab));
    if (!k->points || !k->kld || !k->dp || !k->row) return cli_error(c, CLI_OS, "out of memory");
    const int32_t n_ctx = k->base.n_ctx;
    const chunk_run run = {c, e, k->tokens, k->n_chunk, n_ctx, (size_t) n_ctx, n_ctx / 2, bos, false, k, kl_row,
                           kl_done};
    code = eval_chunks(&run);
    if (code) return code;
    printf("\n");
    if (k->s.n < 100) { /* too few tokens for the statistics below */
        fprintf(stderr, "%zu tokens are too few for statistics\n", k->s.n);
        return CLI_OK;
    }
    print_perplexities(&k->s);
    print_divergences(&k->s, k->kld);
    print_probabilities(&k->s, k->dp);
    return CLI_OK;
}

int eval_kl(const cli *c)
{
    kl k = {.c = c, .base = {.fd = -1}};
    pi_options *o = NULL;
    pi_engine *e = NULL;
    pi_info info;
    int code = open_base(&k);
    if (!code) code = eval_open_chunks(c, &k.base.n_ctx, &o, &e, &info);
    if (!code) code = compare(&k, e, &info);
    cli_close(c, e);
    pi_options_free(o);
    if (k.base.fd >= 0) close(k.base.fd);
    free(k.row);
    free(k.points);
    free(k.kld);
    free(k.dp);
    free(k.tokens);
    return code;
}
