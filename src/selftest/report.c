/* Lines of the self-test's report, and the list of words that selects checks. Uses only the stack; any thread. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "selftest/selftest.h"

void pi__selftest_line(const pi__selftest *t, const char *fmt, ...)
{
    char line[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    t->fn(t->ud, line);
}

bool pi__selftest_any_word(const char *list, bool (*f)(void *ud, const char *word, size_t n), void *ud)
{
    for (const char *p = list ? list : ""; *p;) {
        const size_t n = strcspn(p, ", ");
        if (n && f(ud, p, n)) return true;
        p += n + (p[n] != 0);
    }
    return false;
}

typedef struct wish {
    const char *family, *check; /* check NULL: true if any check of the family is selected */
} wish;

static bool asks_for(void *ud, const char *word, size_t n)
{
    const wish *w = ud;
    const size_t f = strlen(w->family);
    if (n < f || memcmp(word, w->family, f)) return false;
    if (n == f || !w->check) return n == f || word[f] == '.';
    return word[f] == '.' && n - f - 1 == strlen(w->check) && !memcmp(word + f + 1, w->check, n - f - 1);
}

bool pi__selftest_wants(const pi__selftest *t, const char *family, const char *check)
{
    wish w = {family, check};
    return !t->checks || !*t->checks || pi__selftest_any_word(t->checks, asks_for, &w);
}
