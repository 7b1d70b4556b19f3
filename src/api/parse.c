/* Option values from text (see options.h). Pure functions without memory; any thread; independent of the locale. */
#include <stdio.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "api/options.h"
#include "backend/cuda/fuse_rules.h"
#include "base/error.h"
#include "engine/config.h"
#include "sampler/params.h"

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool pi__parse_bool(const char *s, int64_t *out)
{
    static const char *const yes[] = {"true", "1", "on", "yes", "enabled"};
    static const char *const no[] = {"false", "0", "off", "no", "disabled"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (!strcasecmp(s, yes[i])) { *out = 1; return true; }
        if (!strcasecmp(s, no[i])) { *out = 0; return true; }
    }
    return false;
}

/* Returns 10^e: exact up to 22, otherwise accurate enough for e up to a few hundred. */
static double pow10_of(int e)
{
    static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    return e <= 22 ? exact[e] : pow(10, e);
}

/* Reads digits with an optional fraction and exponent from *s on and advances *s. Up to 15 significant digits are
 * exact; the result is then the nearest double. */
static bool scan_decimal(const char **s, bool exponent, double *out)
{
    const char *p = *s;
    uint64_t m = 0;
    int scale = 0, digits = 0;
    bool point = false;
    for (;; p++) {
        if (*p == '.' && !point) {
            point = true;
            continue;
        }
        if (!is_digit(*p)) break;
        digits++;
        if (m < UINT64_C(100000000000000000)) {
            m = m * 10 + (uint64_t) (*p - '0');
            scale -= point;
        } else {
            scale += !point;
        }
    }
    if (!digits) return false;
    if (exponent && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        bool minus = *q == '-';
        q += *q == '-' || *q == '+';
        if (is_digit(*q)) {
            int e = 0;
            for (; is_digit(*q); q++) e = e > 9999 ? e : e * 10 + (*q - '0');
            scale += minus ? -e : e;
            p = q;
        }
    }
    *out = scale < 0 ? (double) m / pow10_of(scale < -400 ? 400 : -scale)
                     : (double) m * pow10_of(scale > 400 ? 400 : scale);
    *s = p;
    return true;
}

bool pi__parse_float(const char *s, bool infinite, double *out)
{
    bool minus = *s == '-';
    s += *s == '-' || *s == '+';
    double v;
    if (infinite && (!strcasecmp(s, "inf") || !strcasecmp(s, "infinity"))) {
        v = INFINITY;
    } else if (!scan_decimal(&s, true, &v) || *s || (!isfinite(v) && !infinite)) {
        return false;
    } else if (!isfinite(v)) {
        v = DBL_MAX; /* a finite number that overflowed stays finite */
    }
    *out = minus ? -v : v;
    return true;
}

/* Returns the factor of a size suffix; 0 = unknown suffix. */
static int64_t suffix_factor(const char *s)
{
    if (!*s) return 1;
    const char *units = "kmgt", *u = strchr(units, *s | 32);
    if (!u) return 0;
    bool lower = *s >= 'a';
    const char *rest = s + 1;
    bool thousand = (lower && !*rest) || !strcmp(rest, "B");
    bool binary = (!lower && !*rest) || !strcmp(rest, "i") || !strcmp(rest, "iB");
    if (!thousand && !binary) return 0;
    int64_t f = 1;
    for (const char *p = units; p <= u; p++) f *= thousand ? 1000 : 1024;
    return f;
}

bool pi__parse_int(const char *s, bool suffixes, int64_t *out)
{
    bool minus = *s == '-';
    s += *s == '-' || *s == '+';
    if (!is_digit(*s)) return false;
    const char *start = s;
    const uint64_t limit = (uint64_t) INT64_MAX + minus;
    uint64_t v = 0;
    for (; is_digit(*s); s++) {
        uint64_t d = (uint64_t) (*s - '0');
        if (v > (limit - d) / 10) return false;
        v = v * 10 + d;
    }
    double frac = 0;
    if (suffixes && *s == '.') {
        double whole;
        s = start;
        if (!scan_decimal(&s, false, &whole)) return false;
        frac = whole - (double) v;
    }
    int64_t f = suffixes ? suffix_factor(s) : *s ? 0 : 1;
    if (!f || (f == 1 && frac > 0) || v > limit / (uint64_t) f) return false;
    uint64_t r = v * (uint64_t) f, extra = (uint64_t) (frac * (double) f + 0.5);
    if (extra > limit - r) return false;
    r += extra;
    *out = !minus ? (int64_t) r : r > INT64_MAX ? INT64_MIN : -(int64_t) r;
    return true;
}

bool pi__parse_logit_bias(const char *s, int32_t *id, double *bias)
{
    int64_t v = 0;
    const char *p = s;
    for (; is_digit(*p); p++) v = v > INT32_MAX ? v : v * 10 + (*p - '0');
    if (p == s || (*p != '+' && *p != '-' && *p != '=')) return false;
    if (!pi__parse_float(*p == '=' ? p + 1 : p, true, bias)) return false;
    *id = v > INT32_MAX ? INT32_MAX : (int32_t) v;
    return true;
}

bool pi__parse_range(const char *s, uint64_t *mask)
{
    const char *dash = strchr(s, '-');
    char lo[8], hi[8];
    int64_t a = 0, b = 63;
    if (!dash || dash - s >= 8 || strlen(dash + 1) >= 8) return false;
    snprintf(lo, sizeof lo, "%.*s", (int) (dash - s), s);
    snprintf(hi, sizeof hi, "%s", dash + 1);
    if ((*lo && !pi__parse_int(lo, false, &a)) || (*hi && !pi__parse_int(hi, false, &b))) return false;
    if (a < 0 || b > 63 || a > b) return false;
    if (mask) *mask = (b - a == 63 ? UINT64_MAX : (UINT64_C(1) << (b - a + 1)) - 1) << a;
    return true;
}

size_t pi__parse_numbers(const char *s, double *out, size_t cap)
{
    double sum = 0, v;
    for (size_t n = 1; n <= 128; n++) {
        char text[32];
        const size_t len = strcspn(s, ",/");
        if (len >= sizeof text) return 0;
        snprintf(text, sizeof text, "%.*s", (int) len, s);
        if (!pi__parse_float(text, false, &v) || v < 0) return 0;
        if (n <= cap) out[n - 1] = v;
        sum += v;
        if (!s[len]) return sum > 0 ? n : 0;
        s += len + 1;
    }
    return 0;
}

/* Names and letters of the stages, indexed by enum pi__sampler_kind. */
static const struct {
    const char *names[3];
    char letter;
} stages[PI__SMP_N] = {
    [PI__SMP_PENALTIES] = {{"penalties", "penalty", NULL}, 'e'},
    [PI__SMP_DRY] = {{"dry", NULL}, 'd'},
    [PI__SMP_TOP_N_SIGMA] = {{"top-n-sigma", "top-nsigma", NULL}, 's'},
    [PI__SMP_TOP_K] = {{"top-k", NULL}, 'k'},
    [PI__SMP_TYPICAL] = {{"typ-p", "typical", "typical-p"}, 'y'},
    [PI__SMP_TOP_P] = {{"top-p", "nucleus", NULL}, 'p'},
    [PI__SMP_MIN_P] = {{"min-p", NULL}, 'm'},
    [PI__SMP_XTC] = {{"xtc", NULL}, 'x'},
    [PI__SMP_TEMPERATURE] = {{"temperature", "temp", NULL}, 't'},
    [PI__SMP_ADAPTIVE_P] = {{"adaptive-p", NULL}, 'a'},
    [PI__SMP_MIROSTAT] = {{NULL}, 0}, /* selected by option mirostat */
};

static bool same_name(const char *a, size_t n, const char *name)
{
    if (strlen(name) != n) return false;
    for (size_t i = 0; i < n; i++) {
        char c = a[i] == '_' ? '-' : (char) (a[i] >= 'A' && a[i] <= 'Z' ? a[i] | 32 : a[i]);
        if (c != name[i]) return false;
    }
    return true;
}

static int stage_by_name(const char *s, size_t n)
{
    for (int k = 0; k < PI__SMP_N; k++) {
        for (int i = 0; i < 3 && stages[k].names[i]; i++) {
            if (same_name(s, n, stages[k].names[i])) return k;
        }
    }
    return -1;
}

static int stage_by_letter(char c)
{
    for (int k = 0; k < PI__SMP_N; k++) {
        if (stages[k].letter == c) return k;
    }
    return -1;
}

int pi__parse_samplers(const char *s, uint8_t *chain, pi_error *err)
{
    bool letters = !strchr(s, ';') && stage_by_name(s, strlen(s)) < 0;
    uint32_t seen = 0;
    int n = 0;
    while (*s) {
        size_t len = letters ? 1 : strcspn(s, ";");
        int k = letters ? stage_by_letter(*s) : stage_by_name(s, len);
        if (len) {
            if (k < 0) {
                return pi__fail(err, PI_EINVAL, "samplers: '%.*s' is not a stage: give "
                                "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature;adaptive_p or the "
                                "letters edskypmxta",
                                (int) (len > 40 ? 40 : len), s);
            }
            if (seen >> k & 1) return pi__fail(err, PI_EINVAL, "samplers: '%.*s' occurs twice", (int) len, s);
            seen |= 1u << k;
            chain[n++] = (uint8_t) k;
        }
        s += len;
        if (!letters && *s == ';') s++;
    }
    chain[n] = PI__SMP_N;
    return PI_OK;
}

int pi__edit_distance(const char *a, const char *b)
{
    enum { MAX = 63 };
    int la = (int) strnlen(a, MAX), lb = (int) strnlen(b, MAX);
    int row[3][MAX + 1]; /* the last three rows of the table, in rotation */
    for (int j = 0; j <= lb; j++) row[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *cur = row[i % 3];
        const int *prev = row[(i + 2) % 3], *prev2 = row[(i + 1) % 3];
        cur[0] = i;
        for (int j = 1; j <= lb; j++) {
            int d = prev[j - 1] + (a[i - 1] != b[j - 1]);
            if (prev[j] + 1 < d) d = prev[j] + 1;
            if (cur[j - 1] + 1 < d) d = cur[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && prev2[j - 2] + 1 < d) d = prev2[j - 2] + 1;
            cur[j] = d;
        }
    }
    return row[la % 3][lb];
}

/* This library's names first, then llama.cpp's. */
static const struct { const char *name; int kind; } drafters[] = {
    {"auto", PI__SPEC_AUTO}, {"none", PI__SPEC_NONE}, {"mtp", PI__SPEC_MTP}, {"draft", PI__SPEC_DRAFT},
    {"ngram", PI__SPEC_NGRAM}, {"layer-exit", PI__SPEC_LAYER_EXIT},
    {"draft-simple", PI__SPEC_DRAFT}, {"draft-mtp", PI__SPEC_MTP}, {"ngram-simple", PI__SPEC_NGRAM},
    {"draft-dflash", PI__SPEC_DRAFT}, {"draft-dspark", PI__SPEC_DRAFT},
    {"ngram-map-k", PI__SPEC_NGRAM}, {"ngram-map-k4v", PI__SPEC_NGRAM}, {"ngram-mod", PI__SPEC_NGRAM},
    {"ngram-cache", PI__SPEC_NGRAM},
};

bool pi__parse_fuse(const char *s, bool *off, uint32_t *rules_off)
{
#define NAME(name, ops, result) #name,
    static const char *const rules[] = {PI__PLAN_RULES(NAME)};
#undef NAME
    *off = !strcasecmp(s, "off");
    *rules_off = 0;
    if (*off || !strcasecmp(s, "auto") || !strcasecmp(s, "on")) return true;
    for (bool more = true; more;) {
        const size_t n = strcspn(s, ",");
        size_t i = 0;
        while (i < sizeof rules / sizeof *rules && (strlen(rules[i]) != n || strncasecmp(s, rules[i], n))) i++;
        if (i == sizeof rules / sizeof *rules) return false;
        *rules_off |= UINT32_C(1) << i;
        more = s[n];
        s += n + more;
    }
    return true;
}

bool pi__parse_drafters(const char *s, int *first, unsigned *all)
{
    *first = PI__SPEC_AUTO;
    *all = 0;
    for (bool more = *s; more;) {
        const size_t n = strcspn(s, ",");
        size_t i = 0;
        while (i < sizeof drafters / sizeof *drafters &&
               (strlen(drafters[i].name) != n || strncasecmp(s, drafters[i].name, n))) i++;
        if (i == sizeof drafters / sizeof *drafters) return false;
        if (!*all) *first = drafters[i].kind;
        *all |= 1u << drafters[i].kind;
        more = s[n];
        s += n + more;
    }
    return true;
}
