/* test_server_parts.c: parts of the server that know neither engine nor sockets: text and keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "serve/http.h"
#include "serve/keys.h"
#include "serve/text.h"

/* The server's count of a token's text has to be what the library makes of the same bytes. */
static void text_is_repaired_as_the_library_does(void **state)
{
    (void) state;
    srand(7);
    for (int round = 0; round < 20000; round++) {
        char in[40], want[200], got[400], out[8];
        size_t n = (size_t) rand() % sizeof in, w, g = 0;
        for (size_t i = 0; i < n; i++) in[i] = (char) (rand() % 3 ? 0x80 + rand() % 0x80 : rand() % 0x80);
        pi__utf8_hold lib = {0};
        utf8_hold own = {{0}, 0};
        w = pi__utf8_feed(&lib, in, n, want);
        for (size_t i = 0; i < n; i++) {
            size_t k = utf8_step(&own, (unsigned char) in[i], out);
            memcpy(got + g, out, k);
            g += k;
        }
        assert_int_equal(g, w);
        assert_memory_equal(got, want, w);
        assert_int_equal(own.n, lib.n);
        json_t *s = text_json(in, n);
        w += pi__utf8_flush(&lib, want + w);
        assert_non_null(s);
        assert_int_equal(json_string_length(s), w);
        assert_memory_equal(json_string_value(s), want, w);
        json_decref(s);
    }
}

static void keys_are_compared_whole(void **state)
{
    (void) state;
    keys k = {0};
    char longest[KEY_MAX + 1];
    assert_true(keys_allow(&k, NULL));
    assert_null(keys_add(&k, " alpha , beta,,"));
    assert_int_equal(k.n, 2);
    assert_true(keys_allow(&k, "alpha"));
    assert_true(keys_allow(&k, "beta"));
    const char *const wrong[] = {"", "alph", "alphaa", "betb", "Alpha", " beta", "alpha,beta"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(keys_allow(&k, wrong[i]));
    assert_false(keys_allow(&k, NULL));
    memset(longest, 'x', KEY_MAX);
    longest[KEY_MAX] = 0;
    assert_non_null(keys_add(&k, longest));
    assert_false(keys_allow(&k, longest));
    longest[KEY_MAX - 1] = 0;
    assert_null(keys_add(&k, longest));
    assert_true(keys_allow(&k, longest));
    keys_free(&k);
}

static void keys_come_from_a_file(void **state)
{
    (void) state;
    char path[] = "/tmp/pi_keys_XXXXXX";
    static const char text[] = "# comment\n\n  one  \r\ntwo";
    int fd = mkstemp(path);
    keys k = {0};
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    assert_null(keys_read(&k, path));
    assert_int_equal(k.n, 2);
    assert_true(keys_allow(&k, "one") && keys_allow(&k, "two"));
    keys_free(&k);
    unlink(path);
    assert_non_null(keys_read(&k, path));
}

/* After a refusal the request can still be taken, which a paused or failed parser must survive. */
static void refused_requests_are_taken(void **state)
{
    (void) state;
    static const http_limits limits = {1000, 10};
    static const struct { const char *text; int status; } list[] = {
        {"GET / HTTP/3.3\r\n\r\n", 505}, {"nonsense\r\n\r\n", 400}, {"CONNECT a:1 HTTP/1.1\r\n\r\n", 405},
        {"POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n", 413},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n", 413}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        http_in in;
        http_request r;
        size_t used;
        http_in_init(&in, &limits);
        enum http_what what = http_feed(&in, list[i].text, strlen(list[i].text), &used);
        if (what == HTTP_MORE) what = http_feed(&in, "0123456789a\r\n0\r\n\r\n", 18, &used);
        assert_int_equal(what, HTTP_REFUSED);
        assert_int_equal(in.status, list[i].status);
        http_take(&in, &r);
        http_request_free(&r);
        assert_int_equal(http_feed(&in, "GET / HTTP/1.1\r\n\r\n", 18, &used), HTTP_REFUSED);
        http_in_free(&in);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_repaired_as_the_library_does),
        cmocka_unit_test(keys_are_compared_whole),
        cmocka_unit_test(keys_come_from_a_file),
        cmocka_unit_test(refused_requests_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
