/* Cache types by rule (see cache_rules.h). */
#include "model/cache_rules.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "formats/formats.h"

enum { MAX_NUMBER = 1 << 20 };

/* Parses an integer of at least one digit at *s, and moves *s past it. Returns false on failure. */
static bool parse_number(const char **s, const char *end, int32_t *out)
{
    int64_t n = 0;
    const char *p = *s;
    for (; p < end && *p >= '0' && *p <= '9' && n < MAX_NUMBER; p++) n = n * 10 + (*p - '0');
    if (p == *s || n >= MAX_NUMBER) return false;
    *s = p;
    *out = (int32_t) n;
    return true;
}

static bool is_word(const char *s, const char *end, const char *word)
{
    return (size_t) (end - s) == strlen(word) && !strncasecmp(s, word, strlen(word));
}

/* Parses "L2" or "L0-3" into r. */
static bool parse_layers(const char *s, const char *end, pi__cache_rule *r)
{
    if (s == end || (*s != 'L' && *s != 'l')) return false;
    s++;
    if (!parse_number(&s, end, &r->first)) return false;
    r->last = r->first;
    if (s < end && *s == '-') {
        s++;
        if (!parse_number(&s, end, &r->last)) return false;
    }
    return s == end && r->first <= r->last;
}

/* Parses a word with a number, like "first2" or "last2", into r: that many layers at one end. */
static bool parse_end(const char *s, const char *end, const char *word, bool last, pi__cache_rule *r)
{
    const size_t n = strlen(word);
    int32_t count;
    if ((size_t) (end - s) <= n || strncasecmp(s, word, n)) return false;
    s += n;
    if (!parse_number(&s, end, &count) || s != end || count < 1) return false;
    r->first = last ? -count : 0;
    r->last = last ? -1 : count - 1;
    return true;
}

/* Parses WHICH, WHICH.k or WHICH.v in s..end into r. */
static bool parse_which(const char *s, const char *end, pi__cache_rule *r)
{
    r->k = r->v = true;
    if (end - s > 2 && end[-2] == '.' && strchr("kKvV", end[-1])) {
        r->k = end[-1] == 'k' || end[-1] == 'K';
        r->v = !r->k;
        end -= 2;
    }
    r->kind = PI__LAYERS_NUMBERED;
    if (parse_layers(s, end, r) || parse_end(s, end, "first", false, r) || parse_end(s, end, "last", true, r))
        return true;
    r->kind = is_word(s, end, "*") ? PI__LAYERS_ALL : is_word(s, end, "full") ? PI__LAYERS_FULL : PI__LAYERS_WINDOW;
    return r->kind != PI__LAYERS_WINDOW || is_word(s, end, "window");
}

int pi__cache_rules_parse(pi__cache_rules *r, const char *text, pi_error *err)
{
    for (const char *p = text; *p;) {
        const char *end = p + strcspn(p, ","), *colon = memchr(p, ':', (size_t) (end - p));
        pi__cache_rule rule = {.at = (int32_t) (p - text)};
        const int at = rule.at + 1, n = end - p < 40 ? (int) (end - p) : 40;
        if (!colon || !parse_which(p, colon, &rule))
            return pi__fail(err, PI_EINVAL, "cache-type, character %d: '%.*s' is not a rule: give WHICH:TYPE, "
                            "WHICH.k:TYPE or WHICH.v:TYPE, where WHICH is *, full, window, L2, L0-3, first2 or last2",
                            at, n, p);
        rule.type = pi__kv_from_name(colon + 1, (size_t) (end - colon - 1));
        if (rule.type < 0)
            return pi__fail(err, PI_EINVAL, "cache-type, character %d: '%.*s' is not a cache type: give one of %s",
                            at + (int) (colon + 1 - p), (int) (end - colon - 1 < 20 ? end - colon - 1 : 20), colon + 1,
                            &PI__CACHE_TYPE_WORDS[1]);
        if (r->n == PI__MAX_CACHE_RULES)
            return pi__fail(err, PI_EINVAL, "cache-type, character %d: more than %d rules: join layers to ranges", at,
                            PI__MAX_CACHE_RULES);
        r->rule[r->n++] = rule;
        p = end + (*end == ',');
        if (*end == ',' && !*p)
            return pi__fail(err, PI_EINVAL, "cache-type ends with a comma: give a rule after it, or leave it out");
    }
    return PI_OK;
}

void pi__cache_rules_add(pi__cache_rules *r, int kind, bool k, bool v, int32_t type)
{
    if (r->n < PI__MAX_CACHE_RULES)
        r->rule[r->n++] = (pi__cache_rule) {.kind = kind, .k = k, .v = v, .type = type, .at = -1};
}

/* Returns the layer index of a rule's number: negative numbers count from the end (-1 = last layer). */
static int32_t layer_of(int32_t number, int32_t n_layer) { return number < 0 ? n_layer + number : number; }

static bool names(const pi__cache_rule *r, int32_t layer, int32_t n_layer, bool window)
{
    switch (r->kind) {
    case PI__LAYERS_FULL: return !window;
    case PI__LAYERS_WINDOW: return window;
    case PI__LAYERS_NUMBERED: return layer >= layer_of(r->first, n_layer) && layer <= layer_of(r->last, n_layer);
    default: return true;
    }
}

int32_t pi__cache_rules_type(const pi__cache_rules *r, int32_t layer, int32_t n_layer, bool window, bool v)
{
    for (int32_t i = 0; i < r->n; i++)
        if ((v ? r->rule[i].v : r->rule[i].k) && names(&r->rule[i], layer, n_layer, window)) return r->rule[i].type;
    return -1;
}

int pi__cache_rules_check(const pi__cache_rules *r, int32_t n_layer, pi_error *err)
{
    for (int32_t i = 0; i < r->n; i++) {
        const pi__cache_rule *one = &r->rule[i];
        if (one->kind != PI__LAYERS_NUMBERED || (one->last < n_layer && -one->first <= n_layer)) continue;
        return pi__fail(err, PI_EINVAL, "cache-type, character %d: the layer is out of range: "
                        "give one of the model's %d, L0 to L%d", one->at + 1,
                        n_layer, n_layer - 1);
    }
    return PI_OK;
}
