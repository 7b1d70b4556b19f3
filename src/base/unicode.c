/* Tables of characters (unicode_tables.h, which tools/gen/gen_unicode.py writes), and how they are read.
 *
 * A set is, for each plane, the list of code points where membership begins or ends: a character is in it if an odd number
 * of them is at or before it.
 *
 *     set_bounds   41 5B 61 7B ... | 0 C D 27 ... | ...        [A-Z], [a-z], ...; U+10000..U+1000B, ...
 *     set_start    ^ plane 0         ^ plane 1      ^ planes 2, 3, 14
 *
 * A map of letter case is a list of runs, neighbours or every second character, which are all moved by the same
 * distance, and a list of the characters that become several; so are characters with accents and what they are without. All
 * are searched by halving. No memory. */
#include "base/unicode.h"

typedef struct case_run {
    uint32_t first : 17, more : 9, skip : 1; /* first character, how many follow, whether every second one is meant */
    int32_t delta;                           /* to the other case */
} case_run;

typedef struct case_special {
    uint16_t cp, to[PI__UCASE_MAX]; /* ended by 0 */
} case_special;

typedef struct bare_char {
    uint32_t cp, to[PI__UBARE_MAX]; /* ended by 0 */
} bare_char;

#include "base/unicode_tables.h"

/* ------------------------------------------------------------------------------------------------------------- sets */

/* The last bound of the set's plane that is at or before cp, and where the plane's bounds begin; false: none. */
static bool find_bound(uint32_t cp, enum pi__uset set, size_t *first, size_t *at)
{
    uint32_t plane = cp >> 16 == 14 ? 4 : cp >> 16;
    if (plane > 4 || cp >> 16 == 4) return false;
    size_t lo = set_start[set][plane], hi = set_start[set][plane + 1];
    for (*first = lo; lo < hi;) {
        size_t mid = (lo + hi) / 2;
        if (set_bounds[mid] <= (cp & 0xFFFF)) lo = mid + 1;
        else hi = mid;
    }
    *at = lo - 1;
    return lo > *first;
}

bool pi__uis(uint32_t cp, enum pi__uset set)
{
    size_t first, at;
    return find_bound(cp, set, &first, &at) && (at - first) % 2 == 0;
}

bool pi__uis_upper(uint32_t cp)
{
    uint32_t out[PI__UCASE_MAX];
    bool changes = pi__ucase(cp, 'L', out) != 1 || out[0] != cp;
    return (changes && !pi__uis(cp, PI__U_TITLE)) != pi__uis(cp, PI__U_UPPER_ODD);
}

bool pi__uis_lower(uint32_t cp)
{
    return pi__uis(cp, PI__U_CASED) && !pi__uis_upper(cp) && !pi__uis(cp, PI__U_TITLE);
}

bool pi__uis_white(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

int pi__udigit(uint32_t cp)
{
    size_t first, at;
    if (!pi__uis(cp, PI__U_DECIMAL) || !find_bound(cp, PI__U_DECIMAL, &first, &at)) return -1;
    return (int) (((cp & 0xFFFF) - set_bounds[at]) % 10);
}

/* ------------------------------------------------------------------------------------------------------ letter case */

/* false: cp is in none of the runs. */
static bool find_run(const case_run *runs, size_t n, uint32_t cp, uint32_t *out)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (runs[mid].first <= cp) lo = mid + 1;
        else hi = mid;
    }
    if (!lo) return false;
    const case_run *r = &runs[lo - 1];
    uint32_t away = cp - r->first;
    if (away >> r->skip > r->more || (away & r->skip)) return false;
    *out = (uint32_t) ((int32_t) cp + r->delta);
    return true;
}

/* How many characters cp becomes, 0: it is not listed. */
static size_t find_special(const case_special *list, size_t n, uint32_t cp, uint32_t *out)
{
    size_t lo = 0, hi = n, k = 0;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (list[mid].cp < cp) lo = mid + 1;
        else hi = mid;
    }
    if (lo == n || list[lo].cp != cp) return 0;
    for (; k < PI__UCASE_MAX && list[lo].to[k]; k++) out[k] = list[lo].to[k];
    return k;
}

#define IN_MAP(name, cp, out)                                                                                          \
    (find_run(name##_runs, sizeof name##_runs / sizeof *name##_runs, cp, out)                                          \
         ? 1                                                                                                           \
         : find_special(name##_special, sizeof name##_special / sizeof *name##_special, cp, out))

size_t pi__ucase(uint32_t cp, char how, uint32_t out[PI__UCASE_MAX])
{
    size_t n = 0;
    if (cp < 0x80) {
        bool up = cp >= 'A' && cp <= 'Z', low = cp >= 'a' && cp <= 'z';
        out[0] = how == 'L' ? cp + (up ? 32 : 0) : cp - (low ? 32 : 0);
        return 1;
    }
    if (how == 'L') n = IN_MAP(lower, cp, out);
    if (how == 'T') n = IN_MAP(title, cp, out);
    if (how != 'L' && !n) n = IN_MAP(upper, cp, out);
    if (!n) out[n++] = cp;
    return n;
}

/* ----------------------------------------------------------------------------------------------------------- accents */

enum { HANGUL = 0xAC00, N_HANGUL = 11172, LEAD = 0x1100, VOWEL = 0x1161, TRAIL = 0x11A7, N_VOWEL = 21, N_TRAIL = 28 };

/* A syllable is its letters, by arithmetic (The Unicode Standard, 3.12). */
static size_t split_hangul(uint32_t cp, uint32_t out[PI__UBARE_MAX])
{
    const uint32_t s = cp - HANGUL;
    out[0] = LEAD + s / (N_VOWEL * N_TRAIL);
    out[1] = VOWEL + s / N_TRAIL % N_VOWEL;
    out[2] = TRAIL + s % N_TRAIL;
    return s % N_TRAIL ? 3 : 2;
}

size_t pi__ubare(uint32_t cp, uint32_t out[PI__UBARE_MAX])
{
    size_t lo = 0, hi = sizeof bare_chars / sizeof *bare_chars;
    if (cp >= HANGUL && cp < HANGUL + N_HANGUL) return split_hangul(cp, out);
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (bare_chars[mid].cp < cp) lo = mid + 1;
        else hi = mid;
    }
    const bool found = lo < sizeof bare_chars / sizeof *bare_chars && bare_chars[lo].cp == cp;
    if (!found && pi__uis(cp, PI__U_MARK)) return 0;
    size_t k = 0;
    out[0] = cp;
    for (; found && k < PI__UBARE_MAX && bare_chars[lo].to[k]; k++) out[k] = bare_chars[lo].to[k];
    return found ? k : 1;
}
