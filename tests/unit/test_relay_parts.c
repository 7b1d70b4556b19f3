/* Parts of the front end of several models that know no sockets: the model's name in a body or query, and the parser of
 * a process's responses, at every cut of the input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/http_reply.h"
#include "serve/model_name.h"

static void names(void **state)
{
    (void) state;
    static const struct {
        const char *body, *model;
        enum body_fault fault;
        bool stream;
    } cases[] = {
        {"{\"model\":\"a\"}", "a", BODY_OK, false},
        {"\xEF\xBB\xBF { \"x\" : [1,{\"model\":\"no\"}] , \"model\" : \"a b\" , \"stream\" : true }", "a b", BODY_OK,
         true},
        {"{\"stream\":false,\"model\":\"a\\u002fb\\\"\"}", "a/b\"", BODY_OK, false},
        {"{\"m\\u006fdel\":\"a\"}", "a", BODY_OK, false},
        {"{\"model\":\"a\",\"model\":\"b\"}", "b", BODY_OK, false},
        {"{\"model\":\"a\",\"model\":1}", "", BODY_NOT_TEXT, false},
        {"{\"messages\":\"}\\\"{\\\\\",\"model\":\"a\"}", "a", BODY_OK, false},
        {"{\"model\":null}", "", BODY_NO_MODEL, false},
        {"{\"model\":\"a\\u0000b\"}", "", BODY_NOT_TEXT, false},
        {"{\"model\":[\"a\"]}", "", BODY_NOT_TEXT, false},
        {"{\"model\":\"\\x\"}", "", BODY_NOT_TEXT, false},
        {"{\"model\":\"a\",\"x\":tru", "a", BODY_OK, false}, /* the process reports the fault */
        {"{}", "", BODY_NO_MODEL, false},
        {"{\"x\":1}", "", BODY_NO_MODEL, false},
        {"{\"x\":1", "", BODY_NOT_OBJECT, false},
        {"{\"x\"", "", BODY_NOT_OBJECT, false},
        {"{\"model\":\"a", "", BODY_NOT_OBJECT, false},
        {"{\"x\\", "", BODY_NOT_OBJECT, false},
        {"[{\"model\":\"a\"}]", "", BODY_NOT_OBJECT, false},
        {"model", "", BODY_NOT_OBJECT, false},
        {"", "", BODY_NOT_OBJECT, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t n = strlen(cases[i].body);
        char *copy = malloc(n + 1); /* exact size: a sanitizer sees reads past the end */
        body_fields f;
        memcpy(copy, cases[i].body, n);
        copy = realloc(copy, n ? n : 1);
        body_scan(copy, n, "model", &f);
        if (f.fault != cases[i].fault || strcmp(f.model, cases[i].model)) print_error("%s\n", cases[i].body);
        assert_int_equal(f.fault, cases[i].fault);
        assert_string_equal(f.model, cases[i].model);
        assert_int_equal(f.stream, cases[i].stream);
        free(copy);
    }
}

/* Long names and deep bodies cost one pass. */
static void large_bodies(void **state)
{
    (void) state;
    enum { N = 1 << 20 };
    char *body = malloc(N + 64);
    assert_non_null(body);
    body_fields f;
    size_t n = (size_t) sprintf(body, "{\"x\":");
    memset(body + n, '[', N);
    n += N;
    body_scan(body, n, "model", &f);
    assert_int_equal(f.fault, BODY_NOT_OBJECT);
    n = (size_t) sprintf(body, "{\"model\":\"");
    memset(body + n, 'a', N);
    n += N;
    n += (size_t) sprintf(body + n, "\"}");
    body_scan(body, n, "model", &f);
    assert_int_equal(f.fault, BODY_OK);
    assert_int_equal(strlen(f.model), MODEL_NAME_MAX - 1);
    n = (size_t) sprintf(body, "{\"model\":\"%0600d\"}", 1);
    body_scan(body, n, "model", &f);
    assert_int_equal(f.fault, BODY_OK);
    assert_int_equal(strlen(f.model), MODEL_NAME_MAX - 1);
    free(body);
}

static void queries(void **state)
{
    (void) state;
    static const struct {
        const char *query, *value;
    } cases[] = {{"?model=a", "a"},          {"?x=1&model=a%2Fb+c&y", "a/b c"}, {"?model=", ""},      {"?", NULL},
                 {"", NULL},                 {"?model", NULL},                  {"?xmodel=a", NULL},
                 {"?model=%2", NULL},
                 {"?model=%zz", NULL},       {"?model=%00", NULL},              {"?model=abcdefgh", NULL},
                 {"?a&&model=b", "b"},       {"?model=a&model=b", "a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[8];
        const bool got = query_value(cases[i].query, strlen(cases[i].query), "model", out, sizeof out);
        assert_int_equal(got, cases[i].value != NULL);
        if (got) assert_string_equal(out, cases[i].value);
    }
}

/* Feeds the text in parts of `step` bytes. Returns END, BAD, or MORE if the text is incomplete; appends the body. */
static enum reply_what feed(http_reply *r, const char *text, size_t step, buf *body)
{
    const size_t n = strlen(text);
    for (size_t i = 0; i < n; i += step) {
        const size_t part = n - i < step ? n - i : step;
        char *copy = malloc(part);
        memcpy(copy, text + i, part);
        for (size_t at = 0, used = 0;; at += used) {
            const char *p = NULL;
            size_t k = 0;
            const enum reply_what what = http_reply_feed(r, copy + at, part - at, &used, &p, &k);
            if (what == REPLY_BODY) buf_put(body, p, k);
            if (what == REPLY_END || what == REPLY_BAD) return free(copy), what;
            if (what == REPLY_MORE) break;
        }
        free(copy);
    }
    return REPLY_MORE;
}

static void replies(void **state)
{
    (void) state;
    static const char h[] = "HTTP/1.1 200 OK\r\n";
    static const struct {
        const char *text, *body;
        enum reply_what end;
    } cases[] = {
        {"Content-Length: 5\r\nX: y\r\nContent-Type: a/b\r\n\r\nhello", "hello", REPLY_END},
        {"Content-Length: 0\r\n\r\n", "", REPLY_END},
        {"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", "abc0123456789", REPLY_END},
        {"Content-Length: 5\r\n\r\nhell", "hell", REPLY_MORE},
        {"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", "abc", REPLY_MORE},
        {"\r\n", "", REPLY_BAD},
        {"Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "", REPLY_BAD},
        {"Content-Length: -5\r\n\r\n", "", REPLY_BAD},
        {"Content-Length: 5\nX: y\r\n\r\n", "", REPLY_BAD},
        {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "", REPLY_BAD},
        {"Transfer-Encoding: gzip\r\n\r\n", "", REPLY_BAD},
        {"no colon\r\n\r\n", "", REPLY_BAD},
        {"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "", REPLY_BAD},
        {"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", "abc", REPLY_BAD},
        {"Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n", "", REPLY_BAD},
        {"Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n", "", REPLY_BAD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text, "%s%s", h, cases[i].text);
        for (size_t step = 1; step <= strlen(text); step++) {
            http_reply r = {0};
            buf body = {0};
            assert_int_equal(feed(&r, text, step, &body), cases[i].end);
            assert_string_equal(body.p ? body.p : "", cases[i].body);
            if (!i) assert_string_equal(r.type, "a/b");
            if (!i) assert_string_equal(r.fields.p, "X: y\r\n");
            buf_free(&body);
            http_reply_free(&r);
        }
    }
}

static void reply_limits(void **state)
{
    (void) state;
    static const char *const bad[] = {"HTTP/1.0 200 OK\r\n", "HTTP/1.1 20 OK\r\n", "HTTP/1.1 100 Continue\r\n",
                                      "HTTP/1.1 999 x\r\n", "ICY 200\r\n"};
    buf body = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        http_reply r = {0};
        assert_int_equal(feed(&r, bad[i], 100, &body), REPLY_BAD);
        http_reply_free(&r);
    }
    char *text = malloc(20000);
    assert_non_null(text);
    memset(text, 'a', 19999);
    text[19999] = 0;
    http_reply r = {0};
    assert_int_equal(feed(&r, text, 100, &body), REPLY_BAD); /* a head without an end */
    http_reply_free(&r);
    free(text);
    r = (http_reply) {.no_body = true};
    assert_int_equal(feed(&r, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", 100, &body), REPLY_END);
    http_reply_free(&r);
    r = (http_reply) {0};
    assert_int_equal(feed(&r, "HTTP/1.1 204 No Content\r\n\r\n", 100, &body), REPLY_END);
    http_reply_free(&r);
    buf_free(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(large_bodies),
                                       cmocka_unit_test(queries), cmocka_unit_test(replies),
                                       cmocka_unit_test(reply_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
