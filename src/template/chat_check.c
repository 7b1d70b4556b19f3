/* Marks in the output of a template (see chat_impl.h). */
#include <string.h>

#include "template/chat_impl.h"

/* The number of the mark at or behind *at, which moves behind it; false: there is none. */
static bool next_mark(const pi__text *t, size_t *at, size_t *number)
{
    const char *end = t->p + t->n, *p = t->n ? memmem(t->p + *at, t->n - *at, "mQ", 2) : NULL;
    for (; p; p = memmem(p, (size_t) (end - p), "mQ", 2)) {
        size_t n = 0, digits = 0;
        for (p += 2; p < end && *p >= '0' && *p <= '9' && digits < 9; p++, digits++) n = n * 10 + (size_t) (*p - '0');
        if (!digits || end - p < 2 || memcmp(p, "Qm", 2)) continue;
        *at = (size_t) (p + 2 - t->p);
        *number = n;
        return true;
    }
    return false;
}

bool pi__chat_marks_placed(const pi__text *t, size_t n, const bool *loose, bool *seen, size_t *lost)
{
    size_t i, at = 0, last = 0;
    bool ordered = true;
    while (next_mark(t, &at, &i)) {
        if (i >= n || seen[i]) continue;
        seen[i] = true;
        if (!loose || loose[i]) continue;
        ordered = ordered && i >= last;
        last = i;
    }
    for (*lost = 0; *lost < n && seen[*lost];) ++*lost;
    return *lost == n && ordered;
}
