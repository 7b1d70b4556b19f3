/* Options as typed values, for the files of src/api.
 *
 * A set of values holds the options of an engine and the defaults of its requests; each request has its own set.
 * Memory: strings and lists only. One thread at a time. */
#ifndef PI__OPTIONS_H
#define PI__OPTIONS_H

#include "api/options_table.h"
#include "base/log.h"
#include "pagedinfer.h"

enum pi__opt_id { /* index into the table and into a set of values */
#define X(id, ...) PI__OPT_##id,
    PI__ENGINE_OPTIONS(X)
    PI__REQUEST_OPTIONS(X)
#undef X
    PI__N_OPTIONS
};

enum pi__opt_type { PI__T_BOOL, PI__T_INT, PI__T_SIZE, PI__T_FLOAT, PI__T_STRING, PI__T_ENUM, PI__T_LIST };

typedef struct pi__opt_list {
    char **item;   /* owned strings */
    size_t n, cap; /* entries used, allocated */
} pi__opt_list;

typedef union pi__opt_value {
    int64_t i;         /* BOOL, INT, SIZE; ENUM: index into the range's words */
    double f;          /* FLOAT */
    char *s;           /* STRING; NULL = "" */
    pi__opt_list list; /* LIST; empty until the first value, even if the table has a default */
} pi__opt_value;

typedef struct pi__opt_set {
    pi__opt_value v[PI__N_OPTIONS]; /* by enum pi__opt_id */
} pi__opt_set;

struct pi_options {
    pi__opt_set set; /* every value */
    pi_log_fn log_fn; /* receives log lines, or NULL; the level is option log-level */
    void *log_ud;     /* first argument of log_fn */
    pi_progress_fn progress_fn; /* receives progress of opening, or NULL */
    void *progress_ud; /* first argument of progress_fn */
};

/* Sets all defaults. After a failure the set needs no clear. */
int pi__opt_init(pi__opt_set *s);
/* Initializes dst with copies of all values in src. requests_only: string and list options of the engine become empty.
 * After a failure dst needs no clear. */
int pi__opt_copy(pi__opt_set *dst, const pi__opt_set *src, bool requests_only);
void pi__opt_clear(pi__opt_set *s);
/* Sets a value by key or by a long command line spelling. scope_mask has bit PI_SCOPE_x for each accepted scope. On
 * error nothing changes. */
int pi__opt_set_text(pi__opt_set *s, unsigned scope_mask, const char *key, const char *value, pi_error *err);

static inline bool pi__opt_bool(const pi__opt_set *s, enum pi__opt_id id) { return s->v[id].i != 0; }
static inline int64_t pi__opt_int(const pi__opt_set *s, enum pi__opt_id id) { return s->v[id].i; }
static inline double pi__opt_float(const pi__opt_set *s, enum pi__opt_id id) { return s->v[id].f; }
static inline const char *pi__opt_str(const pi__opt_set *s, enum pi__opt_id id) { return s->v[id].s ? s->v[id].s : ""; }
static inline const pi__opt_list *pi__opt_list_of(const pi__opt_set *s, enum pi__opt_id id) { return &s->v[id].list; }
/* Returns the word that an ENUM holds; its length in *n (not NUL terminated). */
const char *pi__opt_word(const pi__opt_set *s, enum pi__opt_id id, size_t *n);
bool pi__opt_is(const pi__opt_set *s, enum pi__opt_id id, const char *word);

/* ---- texts to values, independent of the locale. false = bad syntax. */
bool pi__parse_bool(const char *s, int64_t *out);
/* An integer. suffixes: 32k 32K 1.5Gi 2MB; k m g t and kB MB.. are powers of 1000, K M G T and Ki KiB.. of 1024. */
bool pi__parse_int(const char *s, bool suffixes, int64_t *out);
/* A finite decimal number. With `infinite` also "inf" and "-inf". */
bool pi__parse_float(const char *s, bool infinite, double *out);
/* "LO-HI", either side optional. *mask: bit i = core i of 64 is in the range; mask NULL = only checks the syntax. */
bool pi__parse_range(const char *s, uint64_t *mask);
/* "3,1" or "3/1": at most 128 numbers, none negative, not all 0. Returns the number of numbers and writes at most cap
 * of them to out; 0 = bad syntax. */
size_t pi__parse_numbers(const char *s, double *out, size_t cap);
/* "ID+BIAS", "ID-BIAS", "ID-inf", "ID=BIAS". Ids and finite biases that overflow their type become its maximum. */
bool pi__parse_logit_bias(const char *s, int32_t *id, double *bias);
enum { PI__MAX_LOGIT_BIAS = 1000000 }; /* maximum absolute value of a finite bias */
/* Parses the sampler chain into chain[PI__SMP_N + 1]: enum pi__sampler_kind in order, terminated by PI__SMP_N. */
int pi__parse_samplers(const char *s, uint8_t *chain, pi_error *err);

/* Parses "mtp,ngram", including llama.cpp's names. Stores PI__SPEC_* of the first drafter in *first, and a mask with
 * bit PI__SPEC_* of each drafter in *all. "" = auto. false = bad syntax. */
bool pi__parse_drafters(const char *s, int *first, unsigned *all);

/* Parses option cuda-fuse: auto, on, off, or the names of rules that are disabled ("glu,pack"; fuse_rules.h). *off: no
 * ops are fused. *rules_off: bits of the disabled rules. false = bad syntax. */
bool pi__parse_fuse(const char *s, bool *off, uint32_t *rules_off);

/* Returns the number of insertions, deletions, substitutions and adjacent swaps from a to b, each cut at 63
 * characters. */
int pi__edit_distance(const char *a, const char *b);

#endif
