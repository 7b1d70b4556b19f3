/* Counters and histograms of /metrics. The loop's thread. */
#ifndef PAGEDINFER_SERVE_METRICS_H
#define PAGEDINFER_SERVE_METRICS_H

#include <stdint.h>

enum { METRIC_BUCKETS = 20 };

typedef struct histogram {
    uint64_t count[METRIC_BUCKETS + 1]; /* by upper bound (histogram_bounds); the last bucket has no upper bound */
    double sum;                         /* sum of all observations, seconds */
} histogram;

enum { END_STOP, END_LENGTH, END_ABORT, END_ERROR, N_ENDS };

typedef struct metrics {
    histogram first_token, inter_token, queue, prefill, decode, request, preparation;
    uint64_t ended[N_ENDS];      /* generations, by reason of their end */
    uint64_t status[6];          /* HTTP responses, by the first digit of their status */
    uint64_t slow_clients;       /* generations canceled because the client did not read its stream */
    uint64_t gone_clients;       /* generations canceled because the client disconnected */
    double prompt_seconds, decode_seconds; /* totals of completed generations */
    uint64_t max_step_tokens;        /* maximum number of tokens of one generation, prompt included */
} metrics;

void histogram_add(histogram *h, double seconds);

#endif
