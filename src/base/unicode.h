/* Character properties as in Python's str: letter case, classes, printability for repr(), and base letters without
 * accents. Constant tables (unicode.c): any number of threads. */
#ifndef PI__UNICODE_H
#define PI__UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pi__uset {
    PI__U_PRINT,     /* isprintable() */
    PI__U_ALPHA,     /* isalpha() */
    PI__U_NUMERIC,   /* isalnum() but not isalpha() */
    PI__U_DECIMAL,   /* isdecimal(): digits, in runs of ten from 0 to 9 */
    PI__U_DIGIT,     /* isdigit() */
    PI__U_CASED,     /* upper, lower or title case */
    PI__U_TITLE,     /* title case: one character for two letters, the first one upper case */
    PI__U_UPPER_ODD, /* upper case without a lower case form, or the reverse: see pi__uis_upper */
    PI__U_IGNORABLE, /* allowed within a word without being part of it: accents, apostrophes */
    PI__U_MARK,      /* category Mn: accents without a width of their own */
    PI__U_PUNCT,     /* categories P*: punctuation */
};
bool pi__uis(uint32_t cp, enum pi__uset set);
bool pi__uis_upper(uint32_t cp);
bool pi__uis_lower(uint32_t cp);
bool pi__uis_white(uint32_t cp); /* isspace() */
int pi__udigit(uint32_t cp);     /* 0 to 9 for members of PI__U_DECIMAL, otherwise -1 */

enum { PI__UCASE_MAX = 3 }; /* maximum characters that one becomes */
/* Converts cp to another case: how is 'U' upper, 'L' lower or 'T' title. Returns the number of characters written to
 * out. The lower case of a capital sigma depends on the following letters; the caller handles that. */
size_t pi__ucase(uint32_t cp, char how, uint32_t out[PI__UCASE_MAX]);
/* Stores the canonical decomposition of cp without marks (PI__U_MARK), at most PI__UBARE_MAX characters. Returns
 * their number; 0 if cp is a mark. */
enum { PI__UBARE_MAX = 3 };
size_t pi__ubare(uint32_t cp, uint32_t out[PI__UBARE_MAX]);

#endif
