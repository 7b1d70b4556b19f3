/* Counters and histograms of /metrics. The loop's thread. */
#ifndef PAGEDINFER_SERVE_METRICS_H
#define PAGEDINFER_SERVE_METRICS_H

#include <stdint.h>

enum { METRIC_BUCKETS = 20 };

typedef struct histogram {
    uint64_t count[METRIC_BUCKETS + 1]; /* by upper bound (histogram_bounds); the last one: above all of them */
    double sum;                         /* of all that was observed, seconds */
} histogram;

enum { END_STOP, END_LENGTH, END_ABORT, END_ERROR, N_ENDS };

typedef struct metrics {
    histogram first_token, inter_token, queue, prefill, decode, request, preparation;
    uint64_t ended[N_ENDS];      /* answers, by how they ended */
    uint64_t status[6];          /* answers of HTTP, by the first digit of their status */
    uint64_t slow_clients;       /* generations canceled because nobody took their text */
    uint64_t gone_clients;       /* those canceled because the client went away */
    double prompt_seconds, decode_seconds; /* of answers that ended */
    uint64_t most_tokens;        /* of one of them with its prompt */
} metrics;

void histogram_add(histogram *h, double seconds);

#endif
