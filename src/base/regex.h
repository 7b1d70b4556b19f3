/* Regular expressions: PCRE2 with the library's allocator and errors (regex.c).
 *
 * A compiled expression is read by any number of threads; a pi__regex_scratch belongs to one call at a time. */
#ifndef PI__REGEX_H
#define PI__REGEX_H

#include <stdbool.h>
#include <stddef.h>

typedef struct pi__regex pi__regex;
typedef struct pi__regex_scratch pi__regex_scratch;

enum { PI__REGEX_ERROR = 128 }; /* bytes of an error's text */

/* Compiles n bytes. unicode: expression and texts are well-formed UTF-8, classes know Unicode, and there is JIT code
 * where PCRE2 has it. PI_ENOMEM; PI_EINVAL: why says what is wrong and at which byte. */
int pi__regex_compile(pi__regex **out, const char *expr, size_t n, bool unicode, char why[PI__REGEX_ERROR]);
void pi__regex_free(pi__regex *re);

/* Working memory of a match; serves any expression. NULL: out of memory. */
pi__regex_scratch *pi__regex_scratch_new(void);
void pi__regex_scratch_free(pi__regex_scratch *s);

/* The first match in text[0..n) at or after *from, as *from..*to. 1: found; 0: none; PI_ENOMEM; PI_EINTERNAL: PCRE2 gave
 * up at its limit of steps. */
int pi__regex_find(const pi__regex *re, pi__regex_scratch *s, const char *text, size_t n, size_t *from, size_t *to);
/* Searches for the expression anywhere; returns as pi__regex_find. */
int pi__regex_test(const pi__regex *re, pi__regex_scratch *s, const char *text, size_t n);

#endif
