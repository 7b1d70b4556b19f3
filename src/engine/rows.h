/* Buffers for logits rows: the device computes up to max_rows per pass; the host gets the rows or the top-k results.
 * For a sequence that requests vectors (pooling) a row is a hidden state instead. A step with at most max_rows rows can
 * be captured together with its topk, and can stay in flight. So on a device max_rows covers all sequences with their
 * drafts, up to PI__MAX_ROWS.
 *
 * If the device can, it finds the top values of each row (op topk) and only these are copied. Otherwise, or for
 * samplers that need more, the full row is copied. Rows are numbered from 0 within a pass. Owned: the rows, the
 * requests and their results. Memory: allocated at init. Step thread only. */
#ifndef PI__ROWS_H
#define PI__ROWS_H

#include "backend/device.h"
#include "engine/special.h"
#include "sampler/sampler.h"

typedef struct pi__rows {
    pi__backend *be;           /* backend that computes the rows */
    int32_t n_vocab;           /* logits per row */
    int32_t n_embd;            /* values per hidden state */
    int32_t max_rows;          /* max rows per pass */
    float *logits;             /* [max_rows, n_vocab] on the device */
    float *hidden;             /* [max_rows, n_embd] on the device, after logits */
    float *host;               /* host copy of both; equals `logits` where the host can read device memory */
    /* [n_skip] suppressed tokens, then eog tokens: topk skips them; NULL = no topk on the device */
    int32_t *skip;
    int32_t n_skip;            /* entries in skip */
    uint64_t *topk_result;     /* [max_rows, 2 + topk_k] topk result of each row: see op topk */
    int32_t topk_k;            /* values per row in topk_result */
    pi__topk_request *request; /* [max_rows] request of each row; k 0 = none, the full row is copied */
    pi__best_rows wanted;      /* values of the step's rows that samplers need, for backends that compute only these */
    pi__draw *draw;            /* [max_rows] sampling parameters of steps that stay in flight (opt->draw) */
    uint32_t *seen;            /* [max_rows, PI__MAX_SEEN] token ids with penalties, for steps that stay in flight */
    int32_t *ids;              /* [max_rows] argmax of each row, set by pi__rows_pick */
    uint64_t *best[2];         /* by mark: [max_rows, 3] results of a decode step in flight (opt->mark) */
} pi__rows;

/* special: the ids that topk skips; need not outlive init. */
int pi__rows_init(pi__rows *rows, pi__backend *be, int32_t max_rows, int32_t n_vocab, int32_t n_embd,
                  const pi__special *special, pi_error *err);
/* Bytes of host memory that init allocates, without buffers that the device and the host share. */
size_t pi__rows_bytes(bool discrete, int32_t max_rows, int32_t n_vocab, int32_t n_embd);
void pi__rows_destroy(pi__rows *rows);

/* Returns the bytes of logits and hidden states on the device. */
size_t pi__rows_device_bytes(int32_t max_rows, int32_t n_vocab, int32_t n_embd);
/* Return the host copy of row r: the logits (pi__row), the hidden state (pi__row_hidden). */
float *pi__row(const pi__rows *rows, int32_t r);
float *pi__row_hidden(const pi__rows *rows, int32_t r);
/* Queues the copy of rows r..r+n to the host; no-op where the host reads device memory. */
void pi__rows_copy(pi__rows *rows, int32_t r, int32_t n);
/* Queues the copy of hidden states r..r+n to the host. */
void pi__rows_copy_hidden(pi__rows *rows, int32_t r, int32_t n);
/* Queues topk for the requests of the first n rows. False = all of them have k 0, or the device cannot search: full
 * rows have to be copied. */
bool pi__rows_request(pi__rows *rows, int32_t n);
/* topk as a part of the step. rows_of_step describes the requests of the first n rows, all rows of the step, for the
 * batch; they must stay unchanged until the step has ended. request_in_step queues the op in that step, for n rows
 * with padding. False = full rows have to be copied. */
pi__step_top pi__rows_of_step(pi__rows *rows, int32_t n);
bool pi__rows_request_in_step(pi__rows *rows, const pi__batch *b, int32_t n);
/* Returns the topk result of row r, which must have been requested. */
pi__top pi__rows_topk(const pi__rows *rows, int32_t r);
/* True if the device can search rows. Up to PI__MAX_DRAFT searches can be waited for together. See also
 * pi__rows_pick. */
bool pi__rows_searches(const pi__rows *rows);
/* Queues the i-th search: the argmax of the first n rows, no token skipped. Overwrites their requests. sum: also
 * compute the probability of the argmax. */
void pi__rows_search(pi__rows *rows, int32_t n, int32_t i, bool sum);
/* Returns the result of the i-th search in row r; -1 = no usable value, or less probable than `least` (0 = accept
 * any, else the search needs sum). Call after waiting for the device. */
int32_t pi__rows_found(const pi__rows *rows, int32_t i, int32_t r, float least);
/* rows_mark ends a step with mark i of the device, 0 or 1. Each of its first n rows must have one requested value or
 * a drawn token. rows_best returns the best or the drawn token of row r once that mark was waited for; -1 = no
 * token. */
void pi__rows_mark(pi__rows *rows, int i, int32_t n);
int32_t pi__rows_best(const pi__rows *rows, int i, int32_t r);
/* Waits for the device and stores the argmax of the first n rows in ids, no token skipped; -1 = no usable value, or
 * less probable than `least`. Returns PI_EDEVICE on failure. */
int pi__rows_pick(pi__rows *rows, int32_t n, float least, pi_error *err);

#endif
