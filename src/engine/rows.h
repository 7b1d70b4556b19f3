/* The logits rows at hand: computed max_rows at a time on the device, and what of them comes to the host. A row of a sequence
 * that wants vectors instead (pooling) is a hidden state. A step with no more of them than that may be captured with what is
 * asked of them, and stay in flight: so on a device that is as many as sequences and their drafts have, up to PI__MAX_ROWS.
 *
 * Where the device can, it looks for the best values of each row itself (op topk) and only those are copied; else, or
 * for samplers that need more, a row comes as a whole. A row is numbered from 0 among those at hand. Owned: the rows,
 * the requests and their results. Memory: all of it at init. Only the step thread is here. */
#ifndef PI__ROWS_H
#define PI__ROWS_H

#include "backend/device.h"
#include "engine/special.h"
#include "sampler/sampler.h"

typedef struct pi__rows {
    pi__backend *be;           /* where they are computed */
    int32_t n_vocab;           /* logits a row */
    int32_t n_embd;            /* values of a hidden state */
    int32_t max_rows;          /* at hand at most */
    float *logits;             /* [max_rows, n_vocab] on the device */
    float *hidden;             /* [max_rows, n_embd] behind them */
    float *host;               /* both on the host; logits itself where the host reads device memory */
    int32_t *skip;             /* [n_skip] suppressed tokens, then eog: topk skips them; NULL: no topk on the device */
    int32_t n_skip;            /* how many */
    uint64_t *topk_result;     /* [max_rows, 2 + topk_k] topk result of each row: see op topk */
    int32_t topk_k;            /* values of a row there */
    pi__topk_request *request; /* [max_rows] of each row; k 0: none, the whole row is here */
    pi__best_rows wanted;      /* of the step's rows, where the backend computes no more than that */
    pi__draw *draw;            /* [max_rows] of steps that stay in flight (dev->draw), */
    uint32_t *seen;            /* [max_rows, PI__MAX_SEEN] and what has penalties there */
    int32_t *ids;              /* [max_rows] argmax of each row, of pi__rows_pick */
    uint64_t *best[2];         /* [max_rows, 3] results of decode steps in flight (dev->mark) */
} pi__rows;

/* special: the ids that topk skips; need not outlive init. */
int pi__rows_init(pi__rows *rows, pi__backend *be, int32_t max_rows, int32_t n_vocab, int32_t n_embd,
                  const pi__special *special, pi_error *err);
/* Bytes of the host's memory that init takes, but for rows that are the device's as well. */
size_t pi__rows_bytes(bool discrete, int32_t max_rows, int32_t n_vocab, int32_t n_embd);
void pi__rows_destroy(pi__rows *rows);

/* Bytes of logits and hidden states on the device. */
size_t pi__rows_device_bytes(int32_t max_rows, int32_t n_vocab, int32_t n_embd);
/* Row r on the host: its logits, its hidden state. */
float *pi__row(const pi__rows *rows, int32_t r);
float *pi__row_hidden(const pi__rows *rows, int32_t r);
/* Queues the copy of rows r..r+n to the host, where they are not there. */
void pi__rows_copy(pi__rows *rows, int32_t r, int32_t n);
/* The same of hidden states. */
void pi__rows_copy_hidden(pi__rows *rows, int32_t r, int32_t n);
/* Queues topk for the requests of the first n rows. false: whole rows have to be copied. */
bool pi__rows_request(pi__rows *rows, int32_t n);
/* Or as a part of the step: what its batch says of the requests of its first n rows, all there are, which stay until the step
 * has ended; and the op, in that step, of n rows with padding. false: as above. */
pi__step_top pi__rows_of_step(pi__rows *rows, int32_t n);
bool pi__rows_request_in_step(pi__rows *rows, const pi__batch *b, int32_t n);
/* The topk result of row r, which was requested. */
pi__top pi__rows_topk(const pi__rows *rows, int32_t r);
/* Searches on the device, of which up to PI__MAX_DRAFT are waited for together; false: it cannot (see pi__rows_pick). */
bool pi__rows_searches(const pi__rows *rows);
/* Queues the i-th: for the argmax of the first n rows, nothing skipped. sum: with how probable it is. */
void pi__rows_search(pi__rows *rows, int32_t n, int32_t i, bool sum);
/* What it found in row r, -1: nothing, or a token less probable than `least` (0: any is probable enough; else with sum). The
 * device was waited for. */
int32_t pi__rows_found(const pi__rows *rows, int32_t i, int32_t r, float least);
/* Ends a step whose rows, the first n, were asked for one value each, or a token was drawn from each, with mark i of the device, 0 or
 * 1; and once that was waited for, the best token of row r, or the one drawn, -1: there is none. */
void pi__rows_mark(pi__rows *rows, int i, int32_t n);
int32_t pi__rows_best(const pi__rows *rows, int i, int32_t r);
/* Waits for the device, and for the argmax of the first n rows to come to ids, nothing skipped; -1 where there is none, or one
 * less probable than `least`. PI_EDEVICE. */
int pi__rows_pick(pi__rows *rows, int32_t n, float least, pi_error *err);

#endif
