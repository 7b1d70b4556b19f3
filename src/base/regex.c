/* Regular expressions. Memory comes from the library's allocator. PCRE2 copies the hooks into each object, so no
 * context outlives the call that needed it. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/regex.h"

#include <pcre2.h>
#include <stdio.h>

#include "base/alloc.h"
#include "pagedinfer.h"

static void *pcre_malloc(size_t n, void *ud) { (void) ud; return pi__malloc(n); }
static void pcre_free(void *p, void *ud) { (void) ud; pi__free(p); }

int pi__regex_compile(pi__regex **out, const char *expr, size_t n, bool unicode, char why[PI__REGEX_ERROR])
{
    int number = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *code = NULL;
    pcre2_general_context *gc = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    pcre2_compile_context *cc = gc ? pcre2_compile_context_create(gc) : NULL;
    const uint32_t options = unicode ? PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE : 0;
    if (cc) code = pcre2_compile((PCRE2_SPTR) expr, n, options, &number, &at, cc);
    pcre2_compile_context_free(cc);
    pcre2_general_context_free(gc);
    if (!cc || (!code && number == PCRE2_ERROR_HEAP_FAILED)) return PI_ENOMEM;
    if (!code) {
        char text[100] = "";
        pcre2_get_error_message(number, (PCRE2_UCHAR *) text, sizeof text);
        snprintf(why, PI__REGEX_ERROR, "%s at byte %zu", text, (size_t) at);
        return PI_EINVAL;
    }
    if (unicode) (void) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without JIT, PCRE2 interprets */
    *out = (pi__regex *) (void *) code;
    return PI_OK;
}

void pi__regex_free(pi__regex *re) { pcre2_code_free((pcre2_code *) (void *) re); }

pi__regex_scratch *pi__regex_scratch_new(void)
{
    pcre2_general_context *gc = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    pcre2_match_data *md = gc ? pcre2_match_data_create(1, gc) : NULL;
    pcre2_general_context_free(gc);
    return (pi__regex_scratch *) (void *) md;
}

void pi__regex_scratch_free(pi__regex_scratch *s) { pcre2_match_data_free((pcre2_match_data *) (void *) s); }

int pi__regex_find(const pi__regex *re, pi__regex_scratch *s, const char *text, size_t n, size_t *from, size_t *to)
{
    const pcre2_code *code = (const pcre2_code *) (const void *) re;
    pcre2_match_data *md = (pcre2_match_data *) (void *) s;
    int rc = pcre2_match(code, (PCRE2_SPTR) text, n, *from, PCRE2_NO_UTF_CHECK, md, NULL);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(code, (PCRE2_SPTR) text, n, *from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, md, NULL);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) return rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT ? PI_ENOMEM : PI_EINTERNAL;
    const PCRE2_SIZE *ov = pcre2_get_ovector_pointer(md);
    *from = ov[0];
    *to = ov[1];
    return 1;
}

int pi__regex_test(const pi__regex *re, pi__regex_scratch *s, const char *text, size_t n)
{
    size_t from = 0, to = 0;
    return pi__regex_find(re, s, text, n, &from, &to);
}
