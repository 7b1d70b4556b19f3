/* The list of all options, and value checks against their rows (see options.h). */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "options_table.h"
#include "vllm_table.h"

typedef struct row {
    const char *key, *type, *def, *range, *flags, *env, *section;
    bool common;
    const char *help;
} row;

/* Type names as in pi_option_info. */
#define TYPE_BOOL "bool"
#define TYPE_INT "int"
#define TYPE_FLOAT "float"
#define TYPE_STRING "string"
#define TYPE_ENUM "enum"
#define TYPE_LIST "list"

static const row table[] = {
#define X(key, type, ...) {key, TYPE_##type, __VA_ARGS__},
    TOOL_OPTIONS(X)
    VLLM_OPTIONS(X)
#undef X
};

/* Returns the number of library options. Uses binary search, because it is called for each row. */
static size_t n_library(void)
{
    pi_option_info info = {.size = sizeof info};
    size_t n = 0;
    for (size_t step = 256; step; step /= 2)
        while (!pi_options_describe(n + step - 1, &info)) n += step;
    return n;
}

bool options_at(size_t i, pi_option_info *out)
{
    *out = (pi_option_info) {.size = sizeof *out};
    if (!pi_options_describe(i, out)) return true;
    i -= n_library();
    if (i >= sizeof table / sizeof *table) return false;
    const row *r = &table[i];
    *out = (pi_option_info) {sizeof *out, r->key,  r->type,       r->def,    r->range, r->flags,
                             r->section,  r->help, PI_SCOPE_TOOL, r->common, r->env};
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- values */

bool options_bool(const char *s, bool *out)
{
    static const char *const words[][2] = {
        {"false", "true"}, {"0", "1"}, {"off", "on"}, {"no", "yes"}, {"disabled", "enabled"}};
    for (size_t i = 0; i < 2 * sizeof words / sizeof *words; i++) {
        if (strcasecmp(s, words[i / 2][i % 2])) continue;
        *out = i % 2;
        return true;
    }
    return false;
}

/* Returns the factor of a size suffix; 0 if the suffix is unknown. */
static int64_t suffix_factor(const char *s)
{
    if (!*s) return 1;
    static const char units[] = "kmgt";
    const char *u = strchr(units, *s | 32);
    if (!u) return 0;
    bool lower = *s >= 'a';
    bool thousand = (lower && !s[1]) || !strcmp(s + 1, "B");
    bool binary = (!lower && !s[1]) || !strcmp(s + 1, "i") || !strcmp(s + 1, "iB");
    if (!thousand && !binary) return 0;
    int64_t f = 1;
    for (const char *p = units; p <= u; p++) f *= thousand ? 1000 : 1024;
    return f;
}

bool options_int(const char *s, int64_t *out)
{
    char *end;
    if (!isdigit((unsigned char) s[*s == '-' || *s == '+'])) return false;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    int64_t factor = suffix_factor(end);
    return !errno && factor && !__builtin_mul_overflow((int64_t) v, factor, out);
}

static bool in_range(const char *range, int64_t v)
{
    const char *dots = strstr(range, "..");
    return v >= strtoll(range, NULL, 10) && v <= strtoll(dots + 2, NULL, 10);
}

static bool is_word_of(const char *range, const char *word)
{
    for (const char *p = range; *p;) {
        size_t n = strcspn(p, "|");
        if (n == strlen(word) && !strncasecmp(p, word, n)) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static const char *float_fault(const char *range, const char *value)
{
    char *end;
    double v = strtod(value, &end);
    if (!isdigit((unsigned char) value[*value == '-' || *value == '+']) || *end) return "is not a number";
    return v >= strtod(range, NULL) && v <= strtod(strstr(range, "..") + 2, NULL) ? NULL : "is out of range";
}

/* Returns the error in a value of a tool option; NULL = valid. */
static const char *fault(const pi_option_info *r, const char *value)
{
    bool b;
    int64_t v;
    if (!strcmp(r->type, TYPE_BOOL)) return options_bool(value, &b) ? NULL : "is neither true nor false";
    if (!strcmp(r->type, TYPE_ENUM)) return is_word_of(r->range, value) ? NULL : "is not an allowed value";
    if (!strcmp(r->type, TYPE_FLOAT)) return float_fault(r->range, value);
    if (strcmp(r->type, TYPE_INT)) return NULL;
    if (!options_int(value, &v)) return "is not a whole number";
    return in_range(r->range, v) ? NULL : "is out of range";
}

int options_check(pi_options *o, const pi_option_info *r, const char *value, pi_error *err)
{
    if (r->scope != PI_SCOPE_TOOL) return pi_options_set(o, r->key, value, err);
    const char *what = fault(r, value);
    if (!what) return PI_OK;
    err->code = PI_EINVAL;
    snprintf(err->msg, sizeof err->msg, "%s: '%.60s' %s%s%s%s", r->key, value, what, *r->range ? " (" : "", r->range,
             *r->range ? ")" : "");
    return PI_EINVAL;
}

/* ----------------------------------------------------------------------------------------------------------- names */

/* Returns the edit distance of a and b: insertions, deletions, substitutions and swaps of adjacent characters. Both
 * are truncated to 63 characters. */
static int edit_distance(const char *a, const char *b)
{
    int la = (int) strnlen(a, 63), lb = (int) strnlen(b, 63), row[3][64]; /* the last three rows, used round-robin */
    for (int j = 0; j <= lb; j++) row[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *cur = row[i % 3];
        const int *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        cur[0] = i;
        for (int j = 1; j <= lb; j++) {
            int d = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < d) d = up[j] + 1;
            if (cur[j - 1] + 1 < d) d = cur[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && up2[j - 2] + 1 < d) d = up2[j - 2] + 1;
            cur[j] = d;
        }
    }
    return row[la % 3][lb];
}

/* Stores the n characters at word in best if they are closer to name than the current best; leading dashes are
 * ignored. */
static void consider(const char *name, const char *word, size_t n, char best[64], int *dist)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int) n, word);
    int d = edit_distance(name, text + strspn(text, "-"));
    if (d >= *dist) return;
    *dist = d;
    memcpy(best, text, sizeof text);
}

bool options_nearest_word(const char *name, const char *words, char out[64], int *dist)
{
    const int before = *dist;
    for (const char *p = words; *p;) {
        const size_t len = strcspn(p, " ");
        consider(name, p, len, out, dist);
        p += len + (p[len] == ' ');
    }
    return *dist < before;
}

/* Searches the long or the short spellings of the rows that takes() accepts, for one with less than *dist edits; *dist
 * then is its distance. */
static bool nearest(const char *name, bool is_long, int *dist, options_filter takes, const void *ud, char out[64])
{
    pi_option_info r;
    *out = 0;
    for (size_t i = 0; options_at(i, &r); i++) {
        if (!takes(ud, &r)) continue;
        for (const char *p = r.flags; *p;) {
            size_t len = strcspn(p, " "), word = strcspn(p, " =?");
            if ((word > 2 && p[1] == '-') == is_long) consider(name, p, word, out, dist);
            p += len + (p[len] == ' ');
        }
    }
    return *out;
}

bool options_nearest(const char *name, options_filter takes, const void *ud, char out[64])
{
    const int half = 1 + (int) strlen(name) / 2;
    int dist = half < 3 ? 3 : half, dist_short = 2;
    char text[64];
    const bool found = nearest(name, true, &dist, takes, ud, out);
    if (dist < 2 || !nearest(name, false, &dist_short, takes, ud, text)) return found;
    memcpy(out, text, sizeof text); /* one edit away */
    return true;
}

/* --------------------------------------------------------------------------------------------------------- refused */

const refused_option *options_refused(size_t i)
{
    static const refused_option refused[] = {
#define LATER(flags, env, commands, why) {flags, env, commands, true, why},
#define NEVER(flags, env, commands, why) {flags, env, commands, false, why},
        REFUSED_OPTIONS(LATER, NEVER)
        VLLM_REFUSED(LATER, NEVER)
#undef LATER
#undef NEVER
    };
    return i < sizeof refused / sizeof *refused ? &refused[i] : NULL;
}
