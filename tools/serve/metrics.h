/* Counters and histograms of /metrics. The loop's thread. */
#ifndef PAGEDINFER_SERVE_METRICS_H
#define PAGEDINFER_SERVE_METRICS_H

#include <stdint.h>

enum { METRIC_BUCKETS = 20, METRIC_MISSES = 12 };

typedef struct histogram {
    uint64_t count[METRIC_BUCKETS + 1]; /* by upper bound (histogram_bounds); the last bucket has no upper bound */
    double sum;                         /* sum of all observations, seconds */
} histogram;

enum { END_STOP, END_LENGTH, END_ABORT, END_ERROR, N_ENDS };

typedef struct metrics {
    /* per generation: first_token, request; per answer: queue, prefill, decode; per token: inter_token; per work on the
     * pool: preparation */
    histogram first_token, inter_token, queue, prefill, decode, request, preparation;
    uint64_t ended[N_ENDS];      /* answers, by reason of their end (END_*) */
    uint64_t status[6];          /* HTTP responses, by the first digit of their status */
    /* answers with incomplete reuse of their prompt, by pi_result.miss_reason; n == 0: the entry is unused; reasons
     * without a free entry are dropped */
    struct { char reason[64]; uint64_t n; } miss[METRIC_MISSES];
    uint64_t slow_clients;       /* generations canceled because the client did not read its stream */
    uint64_t gone_clients;       /* generations canceled because the client disconnected */
    double prompt_seconds, decode_seconds; /* sums over ended answers with at least one token */
    uint64_t max_answer_tokens;        /* largest number of tokens of an answer, prompt included */
} metrics;

void histogram_add(histogram *h, double seconds);
/* Counts a prompt whose reuse was incomplete; reason is copied. "" is not counted. */
void metrics_miss(metrics *m, const char *reason);

#endif
