/* The option table as data, and sets of option values (pi_options_*; see options.h).
 *
 * Memory: strings and lists of a set. Threads: the table is constant; a set belongs to one thread. Invariant: a value
 * in a set has passed the check of its row, so readers need not check it again. */
#include "api/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"
#include "base/versioned.h"

typedef struct row {
    const char *key, *def, *range, *flags, *env, *section, *help;
    int type;  /* enum pi__opt_type */
    int scope; /* PI_SCOPE_* */
    bool common;
} row;

#define ROW(scope, key, type, def, range, flags, env, section, common, help)                                           \
    {key, def, range, flags, env, section, help, PI__T_##type, scope, common},
#define ENGINE_ROW(id, ...) [PI__OPT_##id] = ROW(PI_SCOPE_ENGINE, __VA_ARGS__)
#define REQUEST_ROW(id, ...) [PI__OPT_##id] = ROW(PI_SCOPE_REQUEST, __VA_ARGS__)
static const row table[PI__N_OPTIONS] = {
    PI__ENGINE_OPTIONS(ENGINE_ROW)
    PI__REQUEST_OPTIONS(REQUEST_ROW)
};

static const char *const type_names[] = {"bool", "int", "size", "float", "string", "enum", "list"};

int pi_options_describe(size_t i, pi_option_info *out)
{
    if (i >= PI__N_OPTIONS) return PI_ENOENT;
    if (pi__versioned_check(out)) return PI_EINVAL;
    const row *r = &table[i];
    pi_option_info info = {0,          r->key,  type_names[r->type], r->def,    r->range, r->flags,
                           r->section, r->help, r->scope,            r->common, r->env};
    return pi__versioned_copy(out, &info, sizeof info);
}

/* ---------------------------------------------------------------------------------------------------------- values */

/* Returns the index of a word in "a|b|c", or -1. */
static int64_t word_index(const char *range, const char *word)
{
    size_t n = strlen(word);
    int64_t i = 0;
    for (const char *p = range; *p; i++) {
        size_t len = strcspn(p, "|");
        if (len == n && !strncasecmp(p, word, n)) return i;
        p += len + (p[len] == '|');
    }
    return -1;
}

/* Splits "LO..HI"; a missing side becomes "". */
static void range_sides(const char *range, char lo[32], char hi[32])
{
    const char *dots = strstr(range, "..");
    snprintf(lo, 32, "%.*s", dots ? (int) (dots - range) : 0, range);
    snprintf(hi, 32, "%s", dots ? dots + 2 : "");
}

static bool int_in_range(const char *range, int64_t v)
{
    char lo[32], hi[32];
    int64_t b;
    range_sides(range, lo, hi);
    return !(pi__parse_int(lo, false, &b) && v < b) && !(pi__parse_int(hi, false, &b) && v > b);
}

static bool float_in_range(const char *range, double v)
{
    char lo[32], hi[32];
    double b;
    range_sides(range, lo, hi);
    return !(pi__parse_float(lo, false, &b) && v < b) && !(pi__parse_float(hi, false, &b) && v > b);
}

static int refuse_value(const row *r, const char *value, const char *why, pi_error *err)
{
    return pi__fail(err, PI_EINVAL, "%s: '%.60s' %s%s%s%s", r->key, value, why, *r->range ? " (" : "", r->range,
                    *r->range ? ")" : "");
}

/* Checks a stop string: valid UTF-8, because text is shown in complete characters and can end only between them. */
static int check_stop(const char *value, pi_error *err)
{
    size_t n = strlen(value), valid = pi__utf8_valid(value, n);
    if (n > 4096) return pi__fail(err, PI_EINVAL, "stop: the text is longer than 4096 bytes");
    if (valid == n) return PI_OK;
    return pi__fail(err, PI_EINVAL, "stop: byte %zu of the text (0x%02X) is not UTF-8: give complete characters",
                    valid, (unsigned char) value[valid]);
}

/* Checks an entry of option logit-bias: its syntax, the token id's range and the bias's range. */
static int check_logit_bias(const row *r, const char *value, pi_error *err)
{
    int32_t token;
    double bias;
    if (!pi__parse_logit_bias(value, &token, &bias))
        return refuse_value(r, value, "is not ID+BIAS, ID-BIAS or ID-inf", err);
    bool finite = bias >= -PI__MAX_LOGIT_BIAS && bias <= PI__MAX_LOGIT_BIAS, forbids = isinf(bias) && bias < 0;
    if (token < INT32_MAX && (finite || forbids)) return PI_OK;
    return pi__fail(err, PI_EINVAL, "%s: '%.60s' is out of range (token ids are below %d; a bias is -%d to %d, "
                    "or -inf)", r->key, value, INT32_MAX, PI__MAX_LOGIT_BIAS, PI__MAX_LOGIT_BIAS);
}

/* Checks a value of an option of type LIST or STRING, if the option has its own syntax. */
static int check_form(const row *r, const char *value, pi_error *err)
{
    enum pi__opt_id id = (enum pi__opt_id) (r - table);
    int64_t n;
    uint8_t chain[32];
    switch (id) {
    case PI__OPT_STOP_TOKEN:
        if (pi__parse_int(value, false, &n) && n >= 0 && n <= INT32_MAX) break;
        return refuse_value(r, value, "is not a token id", err);
    case PI__OPT_LOGIT_BIAS: return check_logit_bias(r, value, err);
    case PI__OPT_GPU_LAYERS:
        if (!strcasecmp(value, "auto") || !strcasecmp(value, "all") || pi__parse_int(value, false, &n)) break;
        return refuse_value(r, value, "is not a number of layers: give a number, auto or all", err);
    case PI__OPT_SPEC_TYPE: {
        int first;
        unsigned all;
        if (pi__parse_drafters(value, &first, &all)) break;
        return refuse_value(
            r, value, "is not a list of drafters: give auto, none, mtp, draft, ngram or layer-exit, with commas", err);
    }
    case PI__OPT_CUDA_FUSE: {
        bool off;
        uint32_t rules;
        if (pi__parse_fuse(value, &off, &rules)) break;
        return refuse_value(r, value, "is not auto, on, off, or names of rules with commas: docs/design/cuda.md has "
                            "the names", err);
    }
    case PI__OPT_SAMPLERS: return pi__parse_samplers(value, chain, err);
    case PI__OPT_CPU_RANGE:
        if (!*value || pi__parse_range(value, NULL)) break;
        return refuse_value(r, value, "is not a range of CPUs: give LO-HI, 0 to 63", err);
    case PI__OPT_TENSOR_SPLIT:
    case PI__OPT_FIT_TARGET:
        if (!*value || pi__parse_numbers(value, NULL, 0) > 0) break;
        return refuse_value(r, value, "is not a list of parts: give up to 128 numbers of 0 or more, as 1,0,1", err);
    case PI__OPT_CPU_MASK: {
        const char *h = !strncmp(value, "0x", 2) || !strncmp(value, "0X", 2) ? value + 2 : value;
        if (strlen(h) > 16 || h[strspn(h, "0123456789abcdefABCDEF")] || (*value && !*h)) {
            return refuse_value(r, value, "is not a hexadecimal mask of up to 64 CPUs", err);
        }
        break;
    }
    case PI__OPT_STOP: return check_stop(value, err);
    default: break;
    }
    return PI_OK;
}

/* Checks value against the row. Stores numbers, bools and words in *out; strings and lists are only checked. */
static int parse_value(const row *r, const char *value, pi__opt_value *out, pi_error *err)
{
    switch (r->type) {
    case PI__T_BOOL: return pi__parse_bool(value, &out->i) ? PI_OK
                            : refuse_value(r, value, "is neither true nor false", err);
    case PI__T_INT:
    case PI__T_SIZE:
        if (!pi__parse_int(value, true, &out->i)) return refuse_value(r, value, "is not a whole number", err);
        return int_in_range(r->range, out->i) ? PI_OK : refuse_value(r, value, "is out of range", err);
    case PI__T_FLOAT:
        if (!pi__parse_float(value, false, &out->f)) return refuse_value(r, value, "is not a number", err);
        return float_in_range(r->range, out->f) ? PI_OK : refuse_value(r, value, "is out of range", err);
    case PI__T_ENUM:
        out->i = word_index(r->range, value);
        return out->i >= 0 ? PI_OK : refuse_value(r, value, "is not an allowed value", err);
    default: return check_form(r, value, err);
    }
}

static void list_clear(pi__opt_list *l)
{
    for (size_t i = 0; i < l->n; i++) pi__free(l->item[i]);
    pi__free(l->item);
    memset(l, 0, sizeof *l);
}

static bool list_add(pi__opt_list *l, const char *s)
{
    char *copy = pi__strdup(s);
    if (!copy || !pi__grow(&l->item, &l->cap, l->n + 1, sizeof *l->item)) {
        pi__free(copy);
        return false;
    }
    l->item[l->n++] = copy;
    return true;
}

/* Stores a checked value in s: a LIST appends it (an empty value clears the list), other types replace theirs. */
static int store_value(pi__opt_set *s, const row *r, const char *value, const pi__opt_value *parsed, pi_error *err)
{
    pi__opt_value *v = &s->v[r - table];
    if (r->type == PI__T_STRING) {
        char *copy = pi__strdup(value);
        if (!copy) return pi__fail_mem(err, r->key);
        pi__free(v->s);
        v->s = copy;
    } else if (r->type == PI__T_LIST) {
        if (!*value) list_clear(&v->list);
        else if (!list_add(&v->list, value)) return pi__fail_mem(err, r->key);
    } else {
        *v = *parsed;
    }
    return PI_OK;
}

/* ------------------------------------------------------------------------------------------------------------ sets */

int pi__opt_init(pi__opt_set *s)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < PI__N_OPTIONS; i++) {
        const row *r = &table[i];
        pi__opt_value parsed = {0};
        if (r->type == PI__T_LIST || (r->type == PI__T_STRING && !*r->def)) continue;
        int rc = parse_value(r, r->def, &parsed, NULL);
        if (!rc) rc = store_value(s, r, r->def, &parsed, NULL);
        if (rc) {
            pi__opt_clear(s);
            return rc;
        }
    }
    return PI_OK;
}

int pi__opt_copy(pi__opt_set *dst, const pi__opt_set *src, bool requests_only)
{
    memset(dst, 0, sizeof *dst);
    for (int i = 0; i < PI__N_OPTIONS; i++) {
        const row *r = &table[i];
        const pi__opt_value *v = &src->v[i];
        if (r->type != PI__T_STRING && r->type != PI__T_LIST) {
            dst->v[i] = *v;
            continue;
        }
        if (requests_only && r->scope != PI_SCOPE_REQUEST) continue;
        bool ok = true;
        if (r->type == PI__T_STRING && v->s) ok = (dst->v[i].s = pi__strdup(v->s)) != NULL;
        for (size_t k = 0; r->type == PI__T_LIST && ok && k < v->list.n; k++) {
            ok = list_add(&dst->v[i].list, v->list.item[k]);
        }
        if (!ok) {
            pi__opt_clear(dst);
            return PI_ENOMEM;
        }
    }
    return PI_OK;
}

void pi__opt_clear(pi__opt_set *s)
{
    for (int i = 0; i < PI__N_OPTIONS; i++) {
        if (table[i].type == PI__T_STRING) pi__free(s->v[i].s);
        if (table[i].type == PI__T_LIST) list_clear(&s->v[i].list);
    }
    memset(s, 0, sizeof *s);
}

/* ------------------------------------------------------------------------------------------------------------ keys */

/* True if a, with underscores read as dashes, equals the n characters at b. */
static bool same_key(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((a[i] == '_' ? '-' : a[i]) != b[i]) return false;
    }
    return !a[n];
}

/* Returns the next plain long spelling "--x" in flags without its dashes, with its length in *n; NULL = no more. */
static const char *next_long(const char **flags, size_t *n)
{
    for (const char *p = *flags; *p;) {
        size_t len = strcspn(p, " ");
        const char *word = p;
        p += len + (p[len] == ' ');
        size_t name = strcspn(word, " =?");
        if (name > 2 && !strncmp(word, "--", 2) && word[name] != '=') {
            *flags = p;
            *n = name - 2;
            return word + 2;
        }
    }
    return NULL;
}

static const row *find_row(const char *key)
{
    for (int i = 0; i < PI__N_OPTIONS; i++) {
        if (same_key(key, table[i].key, strlen(table[i].key))) return &table[i];
    }
    for (int i = 0; i < PI__N_OPTIONS; i++) {
        const char *flags = table[i].flags, *name;
        size_t n;
        while ((name = next_long(&flags, &n))) {
            if (same_key(key, name, n)) return &table[i];
        }
    }
    return NULL;
}

/* Copies name to best if it is closer to key than the current best. */
static void consider_name(const char *key, const char *name, size_t n, char best[64], int *dist)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int) n, name);
    int d = pi__edit_distance(key, word);
    if (d >= *dist) return;
    *dist = d;
    memcpy(best, word, sizeof word);
}

static int unknown_key(unsigned scope_mask, const char *key, pi_error *err)
{
    char given[64], best[64] = "";
    int dist = 1 + (int) strlen(key) / 2;
    if (dist < 3) dist = 3;
    snprintf(given, sizeof given, "%s", key);
    for (char *p = given; *p; p++) *p = *p == '_' ? '-' : *p;
    for (int i = 0; i < PI__N_OPTIONS; i++) {
        if (!(scope_mask >> table[i].scope & 1)) continue;
        consider_name(given, table[i].key, strlen(table[i].key), best, &dist);
        const char *flags = table[i].flags, *name;
        size_t n;
        while ((name = next_long(&flags, &n))) consider_name(given, name, n, best, &dist);
    }
    if (!*best) return pi__fail(err, PI_EINVAL, "the library has no option '%.63s'", given);
    return pi__fail(err, PI_EINVAL, "the library has no option '%.63s': did you mean '%s'?", given, best);
}

int pi__opt_set_text(pi__opt_set *s, unsigned scope_mask, const char *key, const char *value, pi_error *err)
{
    if (!key || !value) return pi__fail(err, PI_EINVAL, "option key and value must not be NULL");
    const row *r = find_row(key);
    if (!r) return unknown_key(scope_mask, key, err);
    if (!(scope_mask >> r->scope & 1)) {
        return pi__fail(err, PI_EINVAL, "'%s' is an option of %s", r->key,
                        r->scope == PI_SCOPE_ENGINE ? "the engine" : "a request");
    }
    pi__opt_value parsed = {0};
    bool clears = r->type == PI__T_LIST && !*value;
    int rc = clears ? PI_OK : parse_value(r, value, &parsed, err);
    if (!rc) rc = store_value(s, r, value, &parsed, err);
    return rc;
}

const char *pi__opt_word(const pi__opt_set *s, enum pi__opt_id id, size_t *n)
{
    const char *p = table[id].range;
    for (int64_t i = s->v[id].i; i > 0; i--) p += strcspn(p, "|") + 1;
    *n = strcspn(p, "|");
    return p;
}

bool pi__opt_is(const pi__opt_set *s, enum pi__opt_id id, const char *word)
{
    size_t n;
    const char *p = pi__opt_word(s, id, &n);
    return strlen(word) == n && !memcmp(p, word, n);
}

/* ---------------------------------------------------------------------------------------------------------- public */

pi_options *pi_options_new(void)
{
    pi_options *o = pi__calloc(1, sizeof *o);
    if (o && pi__opt_init(&o->set)) {
        pi__free(o);
        return NULL;
    }
    return o;
}

int pi_options_set(pi_options *o, const char *key, const char *value, pi_error *err)
{
    if (!o) return pi__fail(err, PI_EINVAL, "options must not be NULL");
    const unsigned all = 1u << PI_SCOPE_ENGINE | 1u << PI_SCOPE_REQUEST;
    return pi__opt_set_text(&o->set, all, key, value, err);
}

void pi_options_set_log(pi_options *o, pi_log_fn fn, void *ud, int level)
{
    if (!o) return;
    o->log_fn = fn;
    o->log_ud = ud;
    o->set.v[PI__OPT_LOG_LEVEL].i = level < PI_LOG_NONE ? PI_LOG_NONE : level > PI_LOG_DEBUG ? PI_LOG_DEBUG : level;
}

void pi_options_set_progress(pi_options *o, pi_progress_fn fn, void *ud)
{
    if (!o) return;
    o->progress_fn = fn;
    o->progress_ud = ud;
}

void pi_options_free(pi_options *o)
{
    if (!o) return;
    pi__opt_clear(&o->set);
    pi__free(o);
}
