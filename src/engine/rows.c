/* Logits rows (see rows.h). */
#include "engine/rows.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "engine/config.h"

static size_t floats(int32_t rows, int32_t width) { return (size_t) rows * (size_t) width * sizeof(float); }

size_t pi__rows_device_bytes(int32_t max_rows, int32_t n_vocab, int32_t n_embd)
{
    return floats(max_rows, n_vocab) + floats(max_rows, n_embd);
}

enum { BEST_WORDS = 3 /* uint64 words of a result with one value */ };

/* Returns the bytes of topk_result, best, request, draw, seen and ids. */
static size_t topk_bytes(int32_t max_rows)
{
    return (size_t) max_rows * ((2 + PI__MAX_TOP + 2 * BEST_WORDS) * sizeof(uint64_t) + sizeof(pi__topk_request) +
                                sizeof(pi__draw) + (PI__MAX_SEEN + 1) * sizeof(int32_t));
}

size_t pi__rows_bytes(bool discrete, int32_t max_rows, int32_t n_vocab, int32_t n_embd)
{
    return topk_bytes(max_rows) + (discrete ? pi__rows_device_bytes(max_rows, n_vocab, n_embd) : 0);
}

/* Allocates topk buffers. Enables topk on the device if it supports it, and ids to skip and row length are within its
 * limits. */
static int init_topk(pi__rows *rows, const pi__special *sp, pi_error *err)
{
    pi__backend *be = rows->be;
    const size_t n = (size_t) sp->n_suppress + (size_t) sp->n_eog;
    rows->topk_result = be->dev->host_alloc(be, topk_bytes(rows->max_rows));
    if (!rows->topk_result) return pi__fail_mem(err, "logits");
    rows->best[0] = rows->topk_result + (size_t) rows->max_rows * (2 + PI__MAX_TOP);
    rows->best[1] = rows->best[0] + (size_t) rows->max_rows * BEST_WORDS;
    rows->request = (pi__topk_request *) (void *) (rows->best[1] + (size_t) rows->max_rows * BEST_WORDS);
    rows->draw = (pi__draw *) (void *) (rows->request + rows->max_rows);
    rows->seen = (uint32_t *) (void *) (rows->draw + rows->max_rows);
    rows->ids = (int32_t *) (void *) (rows->seen + (size_t) rows->max_rows * PI__MAX_SEEN);
    if (!be->opt->topk_here || n > PI__MAX_SKIP || rows->n_vocab > PI__MAX_TOP_ROW) return PI_OK;
    rows->skip = pi__calloc(n + 1, sizeof *rows->skip);
    if (!rows->skip) return pi__fail_mem(err, "logits");
    rows->n_skip = (int32_t) n;
    if (sp->n_suppress) memcpy(rows->skip, sp->suppress, (size_t) sp->n_suppress * sizeof *rows->skip);
    if (sp->n_eog) memcpy(rows->skip + sp->n_suppress, sp->eog, (size_t) sp->n_eog * sizeof *rows->skip);
    return PI_OK;
}

int pi__rows_init(pi__rows *rows, pi__backend *be, int32_t max_rows, int32_t n_vocab, int32_t n_embd,
                  const pi__special *special, pi_error *err)
{
    const size_t bytes = pi__rows_device_bytes(max_rows, n_vocab, n_embd);
    *rows = (pi__rows) {.be = be, .n_vocab = n_vocab, .n_embd = n_embd, .max_rows = max_rows};
    rows->logits = be->dev->alloc(be, bytes);
    rows->host = be->discrete ? be->dev->host_alloc(be, bytes) : rows->logits;
    if (!rows->logits || !rows->host) return pi__fail_mem(err, "logits");
    rows->hidden = rows->logits + (size_t) max_rows * (size_t) n_vocab;
    return init_topk(rows, special, err);
}

void pi__rows_destroy(pi__rows *rows)
{
    pi__backend *be = rows->be;
    const size_t n = pi__rows_device_bytes(rows->max_rows, rows->n_vocab, rows->n_embd);
    if (rows->host && rows->host != rows->logits) be->dev->host_free(be, rows->host, n);
    if (rows->logits) be->dev->free(be, rows->logits, n);
    if (rows->topk_result) be->dev->host_free(be, rows->topk_result, topk_bytes(rows->max_rows));
    pi__free(rows->skip);
    memset(rows, 0, sizeof *rows);
}

float *pi__row(const pi__rows *rows, int32_t r)
{
    pi__assert(r >= 0 && r < rows->max_rows);
    return rows->host + (size_t) r * (size_t) rows->n_vocab;
}

float *pi__row_hidden(const pi__rows *rows, int32_t r)
{
    pi__assert(r >= 0 && r < rows->max_rows);
    return rows->host + (rows->hidden - rows->logits) + (size_t) r * (size_t) rows->n_embd;
}

void pi__rows_copy(pi__rows *rows, int32_t r, int32_t n)
{
    const size_t at = (size_t) r * (size_t) rows->n_vocab;
    pi__backend *be = rows->be;
    if (n && rows->host != rows->logits)
        be->dev->download(be, rows->host + at, rows->logits + at, floats(n, rows->n_vocab));
}

void pi__rows_copy_hidden(pi__rows *rows, int32_t r, int32_t n)
{
    pi__backend *be = rows->be;
    if (n && rows->host != rows->logits)
        be->dev->download(be, pi__row_hidden(rows, r), rows->hidden + (size_t) r * (size_t) rows->n_embd,
                          floats(n, rows->n_embd));
}

bool pi__rows_request(pi__rows *rows, int32_t n)
{
    pi__backend *be = rows->be;
    int32_t most = 0;
    for (int32_t r = 0; r < n; r++) most = rows->request[r].k > most ? rows->request[r].k : most;
    if (!most) return false; /* keeps the previous results: a drafter may run before they are read */
    rows->topk_k = most;
    if (!be->opt->topk_here(be)) return false;
    pi__op_topk(be, NULL, &(pi__topk) {.x = rows->logits, .n_rows = n, .n = rows->n_vocab, .skip = rows->skip,
                                       .n_skip = rows->n_skip, .request = rows->request, .out = rows->topk_result});
    return true;
}

/* Rounds the number of values per row: a captured step has a fixed number, so fewer numbers mean fewer captures. */
static int32_t rounded_top(int32_t k) { return k <= 1 ? 1 : k <= 64 ? 64 : PI__MAX_TOP; }

pi__step_top pi__rows_of_step(pi__rows *rows, int32_t n)
{
    pi__step_top top = {.skip = rows->skip, .n_skip = rows->n_skip};
    for (int32_t r = 0; r < n; r++) {
        if (rows->request[r].k > top.k) top.k = rows->request[r].k;
        top.sum |= rows->request[r].sum;
    }
    if (!top.k) return top;
    top.k = rows->topk_k = rounded_top(top.k);
    top.request = rows->request;
    return top;
}

bool pi__rows_request_in_step(pi__rows *rows, const pi__batch *b, int32_t n)
{
    pi__backend *be = rows->be;
    if (!be->opt->topk_here(be)) return false;
    pi__op_topk(be, b,
                &(pi__topk) {.x = rows->logits,
                             .n_rows = n,
                             .n = rows->n_vocab,
                             .skip = b->top.skip,
                             .n_skip = b->top.n_skip,
                             .request = b->top.request,
                             .out = rows->topk_result});
    return true;
}

pi__top pi__rows_topk(const pi__rows *rows, int32_t r)
{
    const uint64_t *w = rows->topk_result + (size_t) r * (size_t) (2 + rows->topk_k);
    const int32_t missing = (int32_t) (uint32_t) w[0];
    pi__top t = {.key = w + 2, .n = rows->request[r].k - missing, .all = missing > 0, .odd = w[0] >> 32};
    memcpy(&t.sum, &w[1], sizeof t.sum);
    return t;
}

_Static_assert(PI__MAX_DRAFT * BEST_WORDS <= 2 + PI__MAX_TOP, "results of all searches in topk_result");

bool pi__rows_searches(const pi__rows *rows) { return rows->skip && rows->be->opt->topk_here(rows->be); }

void pi__rows_search(pi__rows *rows, int32_t n, int32_t i, bool sum)
{
    for (int32_t r = 0; r < n; r++) rows->request[r] = (pi__topk_request) {.k = 1, .sum = sum};
    rows->topk_k = 1;
    pi__op_topk(rows->be, NULL, &(pi__topk) {.x = rows->logits, .n_rows = n, .n = rows->n_vocab, .skip = rows->skip,
                                             .n_skip = rows->n_skip, .request = rows->request,
                                             .out = rows->topk_result + (size_t) (i * rows->max_rows) * BEST_WORDS});
}

void pi__rows_mark(pi__rows *rows, int i, int32_t n) { rows->be->opt->mark(rows->be, i, rows->best[i], n); }

int32_t pi__rows_best(const pi__rows *rows, int i, int32_t r)
{
    const uint64_t *w = rows->best[i] + (size_t) r * BEST_WORDS;
    return (uint32_t) w[0] ? -1 : (int32_t) (uint32_t) w[2];
}

int32_t pi__rows_found(const pi__rows *rows, int32_t i, int32_t r, float least)
{
    const uint64_t *w = rows->topk_result + (size_t) (i * rows->max_rows + r) * BEST_WORDS;
    double sum;
    memcpy(&sum, &w[1], sizeof sum);
    if ((uint32_t) w[0] || (least > 0 && !((double) least * sum <= 1))) return -1;
    return (int32_t) (uint32_t) w[2];
}

/* Returns the argmax of row x; -1 = less probable than `least`, or no usable value. */
static int32_t best_of_row(const float *x, int32_t n, float least)
{
    const int32_t id = pi__argmax(x, n);
    float sum = 0;
    for (int32_t i = 0; i < n && id >= 0 && least > 0; i++) sum += expf(x[i] - x[id]);
    return least <= 0 || least * sum <= 1 ? id : -1;
}

static int32_t best_found(const pi__rows *rows, int32_t r, float least)
{
    const pi__top t = pi__rows_topk(rows, r);
    return least <= 0 || (double) least * t.sum <= 1 ? pi__top_best(&t) : -1;
}

int pi__rows_pick(pi__rows *rows, int32_t n, float least, pi_error *err)
{
    pi__backend *be = rows->be;
    for (int32_t r = 0; r < n; r++) rows->request[r] = (pi__topk_request) {.k = rows->skip != NULL, .sum = least > 0};
    const bool requested = pi__rows_request(rows, n);
    if (!requested) pi__rows_copy(rows, 0, n);
    const int rc = be->dev->finish(be, err);
    for (int32_t r = 0; r < n && !rc; r++)
        rows->ids[r] = requested ? best_found(rows, r, least) : best_of_row(pi__row(rows, r), rows->n_vocab, least);
    return rc;
}
