/* Regular expressions: PCRE2 with the library's allocator and errors (regex.c).
 *
 * Any number of threads may use a compiled expression; a pi__regex_scratch belongs to one call at a time. */
#ifndef PI__REGEX_H
#define PI__REGEX_H

#include <stdbool.h>
#include <stddef.h>

typedef struct pi__regex pi__regex;
typedef struct pi__regex_scratch pi__regex_scratch;

enum { PI__REGEX_ERROR = 128 }; /* bytes of an error's text */

/* Compiles the n bytes of expr. unicode: expr and the searched texts are well-formed UTF-8, classes use Unicode
 * properties, and the expression is also compiled to machine code if PCRE2 supports that. PI_ENOMEM; PI_EINVAL: `why`
 * has the error and its byte position. */
int pi__regex_compile(pi__regex **out, const char *expr, size_t n, bool unicode, char why[PI__REGEX_ERROR]);
void pi__regex_free(pi__regex *re);

/* Creates working memory for matches of any expression. NULL = out of memory. */
pi__regex_scratch *pi__regex_scratch_new(void);
void pi__regex_scratch_free(pi__regex_scratch *s);

/* Finds the first match in text[0..n) at or after *from and returns its bounds in *from and *to. 1 = found; 0 = no
 * match; PI_ENOMEM; PI_EINTERNAL: PCRE2 exceeded its step limit. */
int pi__regex_find(const pi__regex *re, pi__regex_scratch *s, const char *text, size_t n, size_t *from, size_t *to);
/* Searches all n bytes of text for a match; returns like pi__regex_find: 1, 0, PI_ENOMEM or PI_EINTERNAL. */
int pi__regex_test(const pi__regex *re, pi__regex_scratch *s, const char *text, size_t n);

#endif
