/* Automata of regular languages: minimum and maximum length of their texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/regular.h"

static void lengths(void **state)
{
    (void) state;
    static const struct { const char *regex; bool any; uint32_t min, max; } c[] = {
        {"", true, 0, 0}, {"a", true, 1, 1}, {"a|bcd|", true, 0, 3}, {"a*", true, 0, PI__REP_INF},
        {"ab*c", true, 2, PI__REP_INF}, {"(ab|c)+", true, 1, PI__REP_INF}, {"[a-z]{2,5}\\.[a-z]{3}", true, 6, 9},
        {"a{0,300}b", true, 1, 301}, {"[a-z]{20,}", true, 20, PI__REP_INF}, {"(a|bb){3}", true, 3, 6},
        {"x(a{2}b)*y|z{7}", true, 2, PI__REP_INF}, {"[^\\s\\S]", false, 0, 0}, {"a|[^\\s\\S]b*", true, 1, 1}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        pi__builder b;
        pi_error err = {0};
        uint32_t min, max;
        pi__builder_init(&b, NULL, &err);
        const pi__expr *x = pi__read_regex(&b, c[i].regex, strlen(c[i].regex), "regex", false, NULL);
        const pi__reg *r = pi__reg_of(&b, x, "regex");
        if (!r) fail_msg("%s: %s", c[i].regex, err.msg);
        const bool any = pi__reg_lengths(&b, r, 1, 1, &min, &max);
        if (any != c[i].any || (any && (min != c[i].min || max != c[i].max)))
            fail_msg("%s: %d, %u to %u characters", c[i].regex, any, min, max);
        pi__builder_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(lengths)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
