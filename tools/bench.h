/* Shared by the files of `pagedinfer bench`: the option combinations, one measurement, the output. */
#ifndef PAGEDINFER_BENCH_H
#define PAGEDINFER_BENCH_H

#include "cli.h"

/* An engine option from the command line, and its values to measure. */
typedef struct sweep_key {
    char key[40];    /* "ubatch-size" */
    char def[64];    /* its default */
    char **value;    /* [n] */
    size_t n, at;    /* number of values; index of the current one */
} sweep_key;

/* One test, a line of the table. */
typedef struct bench_test {
    int32_t n_prompt, n_gen, n_depth; /* tokens to prefill; tokens to decode; tokens before them, not measured */
} bench_test;

/* Peak rates of the machine, per second. */
typedef struct bench_rates {
    double read;             /* bytes */
    double integers, floats; /* multiply-adds */
} bench_rates;

typedef struct bench {
    const cli *c;
    sweep_key *key;    /* [n_key] "model" first; the last key changes fastest */
    size_t n_key;
    bench_test *test;  /* [n_test] */
    size_t n_test;
    int32_t *n_par;    /* [n_n_par] concurrent requests of -npl; empty = run the tests in test[] */
    size_t n_n_par;
    struct {
        bool on;                                     /* --shared-prefix */
        int32_t n_tenants, n_prefix, n_tail, n_gen;  /* requests; tokens of prefix, tail, answer */
    } shared;
    struct {
        bool on;           /* --spec */
        char *text;        /* text of --spec-text */
        size_t len;
    } spec;
    struct {
        bool on, json;     /* --ops; output as JSON lines */
        bench_rates rates; /* measured before the first engine is opened */
    } ops;
    pi_engine *e;      /* engine of the current combination */
    pi_info info;      /* model and device of e */
    pi_plan plan;      /* memory plan of e, for --shared-prefix */
    int32_t bos;       /* first token of every prompt; -1 = a random one */
    uint64_t rng;      /* for random tokens */
    double *sample_ns; /* [repetitions] durations of the current test in ns */
    double *steady;    /* [repetitions] decode speed after the first BENCH_SKIP tokens, tokens/s; 0 = not measured */
    size_t n_sample;
    bool any_output;   /* something was printed; JSON needs a comma */
} bench;

enum { BENCH_SKIP = 16 }; /* decoded tokens excluded from the steady state */

/* Returns the current value of a swept option, else its default. */
const char *bench_value(const bench *b, const char *key);
/* Returns a random token, uniform over the vocabulary, as llama-bench does. */
int32_t bench_token(bench *b);

/* Each function returns an exit code, except bench_now. Times are in ns. */
/* Runs test t once. Stores its duration in *ns and the steady decode speed in tokens/s in *steady (0 = not
 * measured). */
int bench_measure(bench *b, const bench_test *t, double *ns, double *steady);
int bench_batched(bench *b); /* the table of -npl for the current engine */
int bench_shared(bench *b);  /* the table of --shared-prefix for the current engine */
int bench_spec(bench *b);    /* the table of --spec for the current engine */
double bench_now(void);      /* returns the monotonic time in ns */
/* Submits a request that ignores end-of-generation tokens; the caller ends it with bench_drop or pi_request_free.
 * cache: use the prefix cache. spec: drafter type; NULL = none. user: pointer in its events. */
int bench_submit(bench *b, const int32_t *ids, size_t n, int32_t max_tokens, bool cache, const char *spec, void *user,
                 pi_request **out);
/* Cancels a submitted request, waits for its end and frees it; frees a request that was never submitted. r may be
 * NULL. */
void bench_drop(pi_request *r);
/* --op: prints a table of the times of one op. */
int bench_op(const cli *c);
/* For --ops; without it these functions do nothing. begin measures the peak rates with an engine's options; restart
 * resets the engine's step times per op; print prints and resets them. */
int bench_ops_begin(bench *b, const pi_options *o);
int bench_ops_restart(bench *b);
int bench_ops_print(bench *b);

/* Prints in the format of --output (f is stdout) or --output-err. */
void bench_print_header(const bench *b, const char *format, FILE *f);
void bench_print_test(const bench *b, const char *format, FILE *f, const bench_test *t);
void bench_print_footer(const bench *b, const char *format, FILE *f);

#endif
