/* Characters as Python's str knows them: letter case, classes, which ones repr() shows as they are, and what is left of a
 * character without its accents. Tables of constants (unicode.c): any number of threads. */
#ifndef PI__UNICODE_H
#define PI__UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pi__uset {
    PI__U_PRINT,     /* isprintable() */
    PI__U_ALPHA,     /* isalpha() */
    PI__U_NUMERIC,   /* isalnum(), but not isalpha() */
    PI__U_DECIMAL,   /* isdecimal(): digits of a number, ten in a row from 0 to 9 */
    PI__U_DIGIT,     /* isdigit() */
    PI__U_CASED,     /* upper, lower or title case */
    PI__U_TITLE,     /* titlecase: one character for two letters, the first of them uppercase */
    PI__U_UPPER_ODD, /* uppercase without a lowercase form, or the other way round: see pi__uis_upper */
    PI__U_IGNORABLE, /* may stand within a word without being part of it: accents, apostrophes */
    PI__U_MARK,      /* category Mn: accents that take no room of their own */
    PI__U_PUNCT,     /* categories P*: punctuation */
};
bool pi__uis(uint32_t cp, enum pi__uset set);
bool pi__uis_upper(uint32_t cp);
bool pi__uis_lower(uint32_t cp);
bool pi__uis_white(uint32_t cp); /* isspace() */
int pi__udigit(uint32_t cp);     /* 0 to 9 where cp is in PI__U_DECIMAL, otherwise -1 */

enum { PI__UCASE_MAX = 3 }; /* characters that one becomes at most */
/* cp in another case: 'U' upper, 'L' lower, 'T' title. Returns how many characters are in out. A sigma's lowercase
 * depends on the word around it: that is the caller's. */
size_t pi__ucase(uint32_t cp, char how, uint32_t out[PI__UCASE_MAX]);
/* The characters that cp is made of, without those of PI__U_MARK (canonical decomposition): at most PI__UBARE_MAX of them, 0
 * for such a mark itself. */
enum { PI__UBARE_MAX = 3 };
size_t pi__ubare(uint32_t cp, uint32_t out[PI__UBARE_MAX]);

#endif
