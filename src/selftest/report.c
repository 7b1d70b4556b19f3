/* The self-test's report, as lines or as a JSON object, and the list of words that selects checks. The object is text
 * on the heap until the end; lines need no memory. Any thread. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "selftest/selftest.h"


void pi__selftest_line(const pi__selftest *t, const char *fmt, ...)
{
    char line[600];
    va_list args;
    if (t->json.on) return;
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

static void put(pi__selftest_json *j, const char *text, size_t n)
{
    if (j->failed) return;
    if (j->size - j->n <= n) {
        const size_t size = 2 * j->size + n + 4096;
        char *p = pi__realloc_array(j->p, size, 1);
        if (!p) {
            j->failed = true;
            return;
        }
        j->p = p, j->size = size;
    }
    memcpy(j->p + j->n, text, n);
    j->n += n;
    j->p[j->n] = 0;
}

/* Writes a string: control characters and bytes that are not ASCII become question marks. */
static void put_string(pi__selftest_json *j, const char *text)
{
    put(j, "\"", 1);
    for (; *text; text++) {
        const bool plain = *text >= ' ' && *text < 127;
        if (*text == '"' || *text == '\\') put(j, "\\", 1);
        put(j, plain ? text : "?", 1);
    }
    put(j, "\"", 1);
}

static void put_key(pi__selftest_json *j, const char *key)
{
    if (j->comma) put(j, ",", 1);
    j->comma = true;
    if (!key) return;
    put_string(j, key);
    put(j, ":", 1);
}

void pi__selftest_open(pi__selftest *t, const char *key, char open)
{
    if (!t->json.on) return;
    put_key(&t->json, key);
    put(&t->json, &open, 1);
    t->json.comma = false;
}

void pi__selftest_close(pi__selftest *t, char close)
{
    if (!t->json.on) return;
    put(&t->json, &close, 1);
    t->json.comma = true;
}

void pi__selftest_text(pi__selftest *t, const char *key, const char *value)
{
    if (!t->json.on) return;
    put_key(&t->json, key);
    put_string(&t->json, value);
}

void pi__selftest_number(pi__selftest *t, const char *key, double value)
{
    char text[40];
    if (!t->json.on) return;
    put_key(&t->json, key);
    snprintf(text, sizeof text, isfinite(value) ? fabs(value) < 1e15 && value == floor(value) ? "%.0f" : "%.6g"
                                                : "null", value);
    put(&t->json, text, strlen(text));
}

void pi__selftest_bool(pi__selftest *t, const char *key, bool value)
{
    if (!t->json.on) return;
    put_key(&t->json, key);
    put(&t->json, value ? "true" : "false", value ? 4 : 5);
}

void pi__selftest_check(pi__selftest *t, const char *family, const char *check, const char *status, double seconds,
                        double worst, const char *text)
{
    char name[100];
    if (!t->json.on) return;
    snprintf(name, sizeof name, "%s.%s", family, check);
    pi__selftest_open(t, NULL, '{');
    pi__selftest_text(t, "name", name);
    pi__selftest_text(t, "status", status);
    pi__selftest_number(t, "seconds", seconds);
    if (worst > 0) pi__selftest_number(t, "error", worst);
    if (*text) pi__selftest_text(t, "text", text);
    pi__selftest_close(t, '}');
}

/* Appends text to a URL, with % escapes. */
static void add_escaped(char *url, size_t size, const char *text)
{
    size_t n = strlen(url);
    for (; *text && n + 4 < size; text++) {
        const bool plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                           (*text >= '0' && *text <= '9') || strchr("-._", *text);
        n += (size_t) snprintf(url + n, size - n, plain ? "%c" : "%%%02X", (unsigned char) *text);
    }
}

static void tell_address(const pi__selftest *t, const char *result)
{
    char url[540];
    snprintf(url, sizeof url, "%.200s/new?template=card.md&title=", t->issues && *t->issues ? t->issues : "issues");
    add_escaped(url, sizeof url, "card: ");
    add_escaped(url, sizeof url, t->summary);
    add_escaped(url, sizeof url, ", ");
    add_escaped(url, sizeof url, result);
    pi__selftest_line(t, "Nothing is sent by itself. To send this report: %s", url);
}

int pi__selftest_end(pi__selftest *t, pi_error *err)
{
    char result[80];
    if (!t->n_done) snprintf(result, sizeof result, "no check");
    else if (t->n_failed) snprintf(result, sizeof result, "%d of %d checks FAILED", t->n_failed, t->n_done);
    else snprintf(result, sizeof result, "all %d checks passed", t->n_done);
    if (t->n_done) pi__selftest_line(t, "RESULT: %s", result);
    else pi__selftest_line(t, "none of the given checks applies to this device");
    if (t->n_done && *t->summary) tell_address(t, result);
    if (!t->json.on) return PI_OK;
    pi__selftest_open(t, "result", '{');
    pi__selftest_number(t, "done", t->n_done);
    pi__selftest_number(t, "failed", t->n_failed);
    pi__selftest_close(t, '}');
    pi__selftest_close(t, '}');
    if (t->json.failed) return pi__fail_mem(err, "the report");
    t->fn(t->ud, t->json.p);
    return PI_OK;
}
