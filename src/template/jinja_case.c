/* Letter case and character classes, as in Python's str methods and jinja2's filters.
 *
 * Case uses Unicode's full mapping (one character may become three) and one context rule: a capital sigma has a
 * different lower-case letter at a word's end. Work is linear in the text and counted. */
#include <string.h>

#include "template/jinja_impl.h"
#include "base/unicode.h"

typedef pi__jrun run;

/* Gets the character at byte i of s; invalid UTF-8 is taken byte by byte. */
static size_t char_at(pi__str s, size_t i, uint32_t *cp)
{
    *cp = 0xFFFD;
    size_t len = pi__utf8_char(s.p + i, s.n - i, cp);
    return len ? len : 1;
}

/* True if the word continues at byte i: a cased letter follows, after characters that may be inside a word. */
static bool word_goes_on(pi__str s, size_t i)
{
    uint32_t cp;
    for (size_t len; i < s.n; i += len) {
        len = char_at(s, i, &cp);
        if (!pi__uis(cp, PI__U_IGNORABLE)) return pi__uis(cp, PI__U_CASED);
    }
    return false;
}

/* True if jinja2's title filter starts a new word after this character. */
static bool separates(uint32_t cp) { return pi__uis_white(cp) || (cp < 0x80 && strchr("-({[<", (int) cp)); }

static void add_case(pi__text *t, uint32_t cp, char to)
{
    uint32_t out[PI__UCASE_MAX];
    char b[4];
    size_t n = pi__ucase(cp, to, out);
    for (size_t i = 0; i < n; i++) pi__text_add(t, b, pi__utf8_put(out[i], b));
}

/* Returns the case of the next character. started: it is not the first one of its word. */
static char next_case(char how, size_t at, bool started)
{
    if (how == 'C') return at ? 'L' : 'T';
    if (how == 'T') return started ? 'L' : 'T';
    return how == 'W' ? (started ? 'L' : 'U') : how;
}

bool pi__jcase(run *r, pi__str s, char how, pi__val *out)
{
    pi__text t = pi__jtext(r);
    bool started = false;
    bool cased = false; /* the last character that matters for a sigma is cased */
    for (size_t i = 0, len; i < s.n && !t.code; i += len) {
        uint32_t cp;
        len = char_at(s, i, &cp);
        char to = next_case(how, i, started);
        if (cp == 0xFFFD) pi__text_add(&t, s.p + i, len);
        else if (cp == 0x3A3 && to == 'L') pi__text_str(&t, cased && !word_goes_on(s, i + len) ? "\u03C2" : "\u03C3");
        else add_case(&t, cp, to);
        started = how == 'T' ? pi__uis(cp, PI__U_CASED) : !separates(cp);
        /* jinja2 lowers the rest of the word separately from its first letter */
        if (how == 'W' && to == 'U') cased = false;
        else if (!pi__uis(cp, PI__U_IGNORABLE)) cased = pi__uis(cp, PI__U_CASED);
    }
    return pi__jtake_text(r, &t, out) && pi__jcost(r, s.n * PI__J_LOOKUP);
}

bool pi__jis_case(pi__str s, bool upper)
{
    bool any = false;
    for (size_t i = 0, len; i < s.n; i += len) {
        uint32_t cp;
        len = char_at(s, i, &cp);
        bool up = pi__uis_upper(cp), low = pi__uis_lower(cp);
        if ((upper ? low : up) || pi__uis(cp, PI__U_TITLE)) return false;
        any |= up || low;
    }
    return any;
}

static bool is_class(uint32_t cp, char class)
{
    switch (class) {
    case 's': return pi__uis_white(cp);
    case 'd': return pi__uis(cp, PI__U_DIGIT);
    case 'D': return pi__uis(cp, PI__U_DECIMAL);
    case 'a': return pi__uis(cp, PI__U_ALPHA);
    default: return pi__uis(cp, PI__U_ALPHA) || pi__uis(cp, PI__U_NUMERIC);
    }
}

bool pi__jis_all(pi__str s, char class)
{
    uint32_t cp;
    for (size_t i = 0; i < s.n;) {
        i += char_at(s, i, &cp);
        if (!is_class(cp, class)) return false;
    }
    return s.n > 0;
}

int64_t pi__jwords(pi__str s)
{
    int64_t n = 0;
    bool in = false;
    uint32_t cp;
    for (size_t i = 0; i < s.n;) {
        i += char_at(s, i, &cp);
        bool word = cp == '_' || is_class(cp, 'w');
        n += word && !in;
        in = word;
    }
    return n;
}

size_t pi__jline(pi__str s, size_t at, size_t *next)
{
    for (size_t i = at, len; i < s.n; i += len) {
        uint32_t cp;
        len = char_at(s, i, &cp);
        bool ends = (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
        if (!ends) continue;
        *next = i + len + (cp == '\r' && i + 1 < s.n && s.p[i + 1] == '\n');
        return i;
    }
    *next = s.n;
    return s.n;
}
