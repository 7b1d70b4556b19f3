/* Shared by the files of `pagedinfer bench`: combinations of options that are measured, one measurement, output. */
#ifndef PAGEDINFER_BENCH_H
#define PAGEDINFER_BENCH_H

#include "cli.h"

/* An engine option that was given, and the values it takes in turn. */
typedef struct sweep_key {
    char key[40];    /* "ubatch-size" */
    char def[64];    /* its default */
    char **value;    /* [n] */
    size_t n, at;    /* values; the one whose turn it is */
} sweep_key;

/* One line of the table. */
typedef struct bench_test {
    int32_t n_prompt, n_gen, n_depth;
} bench_test;

/* What the machine does at best, a second. */
typedef struct bench_rates {
    double read;             /* bytes */
    double integers, floats; /* products */
} bench_rates;

typedef struct bench {
    const cli *c;
    sweep_key *key;    /* [n_key] "model" first; the last one changes fastest */
    size_t n_key;
    bench_test *test;  /* [n_test] */
    size_t n_test;
    int32_t *n_par;    /* [n_n_par] concurrency of -npl; none: tests */
    size_t n_n_par;
    struct {
        bool on;                                     /* --shared-prefix */
        int32_t n_tenants, n_prefix, n_tail, n_gen;  /* requests; tokens of each */
    } shared;
    struct {
        bool on;           /* --spec */
        char *text;        /* of --spec-text */
        size_t len;
    } spec;
    struct {
        bool on, json;     /* --ops; as JSON lines */
        bench_rates rates; /* measured before the first engine is opened */
    } ops;
    pi_engine *e;      /* of the current combination */
    pi_info info;      /* of e */
    pi_plan plan;      /* of e, for --shared-prefix */
    int32_t bos;       /* first token of prompts, -1: a random one */
    uint64_t rng;      /* for random tokens */
    double *sample_ns; /* [repetitions] of the current test */
    double *steady;    /* [repetitions] tokens/s of decode without the first tokens; 0: none */
    size_t n_sample;
    bool any_output;   /* something was printed, for JSON's commas */
} bench;

enum { BENCH_SKIP = 16 }; /* decoded tokens that the steady state leaves out */

/* The value whose turn it is; its default where the option was not given. */
const char *bench_value(const bench *b, const char *key);
/* A random token, as much a word as any: llama-bench does the same. */
int32_t bench_token(bench *b);

/* Each returns an exit code. Times are in ns. */
int bench_measure(bench *b, const bench_test *t, double *ns, double *steady);
int bench_batched(bench *b); /* the table of -npl for the current engine */
int bench_shared(bench *b);  /* the table of --shared-prefix for the current engine */
int bench_spec(bench *b);    /* the table of --spec for the current engine */
double bench_now(void);      /* ns */
/* A request that computes and generates without end-of-generation tokens counting. spec: who drafts, or NULL. */
int bench_submit(bench *b, const int32_t *ids, size_t n, int32_t max_tokens, bool cache, const char *spec, void *user,
                 pi_request **out);
/* Cancels and waits, or frees what was never submitted. */
void bench_drop(pi_request *r);
/* --op: a table of one op's times. */
int bench_op(const cli *c);
/* --ops, nothing without: measures the rates for an engine's options; forgets what steps took; prints it, and forgets it. */
int bench_ops_begin(bench *b, const pi_options *o);
int bench_ops_restart(bench *b);
int bench_ops_print(bench *b);

/* Output in the format of --output (f is stdout) or --output-err. */
void bench_print_header(const bench *b, const char *format, FILE *f);
void bench_print_test(const bench *b, const char *format, FILE *f, const bench_test *t);
void bench_print_footer(const bench *b, const char *format, FILE *f);

#endif
