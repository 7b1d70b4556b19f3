/* test_server_parts.c: parts of the server without engine and sockets: text, JSON, keys and HTTP. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/utf8.h"
#include "encoding.h"
#include "json.h"
#include "serve/http.h"
#include "serve/keys.h"
#include "serve/text.h"

/* The server's repaired text of a token equals the library's for the same bytes. */
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

/* Pieces of base64 with every padding, both alphabets and white space; and texts that are not base64. */
static void base64_is_decoded(void **state)
{
    (void) state;
    static const struct { const char *text, *bytes; } cases[] = {
        {"", ""}, {"TQ==", "M"}, {"TWE=", "Ma"}, {"TWFu", "Man"}, {"TWFuTQ", "ManM"}, {"TW\nFu TWE", "ManMa"},
        {"-_+/", "\xFB\xFF\xBF"}, {"T", NULL}, {"TWFuT", NULL}, {"TQ==TQ==", NULL}, {"TQ===", NULL}, {"T!==", NULL},
        {"TWFu\xC3\xA9", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[16];
        size_t n = 0;
        const bool ok = base64_decode(cases[i].text, strlen(cases[i].text), out, &n);
        assert_int_equal(ok, cases[i].bytes != NULL);
        if (ok) assert_int_equal(n, strlen(cases[i].bytes));
        if (ok) assert_memory_equal(out, cases[i].bytes, n);
        buf b = {0};
        buf_str(&b, "x");
        assert_int_equal(text_put_base64(cases[i].text, strlen(cases[i].text), &b), ok);
        assert_int_equal(b.n, 1 + (ok ? n : 0));
        buf_free(&b);
    }
}

/* utf8_char accepts exactly the characters that utf8_step passes unchanged. */
static void characters_are_recognized(void **state)
{
    (void) state;
    for (uint32_t i = 0; i < 1u << 24; i += i % 257 ? 1 : 63) {
        const char in[4] = {(char) (i >> 16), (char) (i >> 8), (char) i, (char) 0x80};
        const size_t n = 1 + i % 4;
        utf8_hold h = {{0}, 0};
        char out[8];
        size_t k = 0, at = 0;
        while (at < n && !k) k = utf8_step(&h, (unsigned char) in[at++], out);
        const bool same = k == at && !memcmp(in, out, k);
        assert_int_equal(utf8_char(in, n), same ? k : 0);
    }
}

/* ---- JSON */

static json_t *read_text(const char *text, size_t n)
{
    json_fault f;
    json_t *v = json_read(text, n, &f);
    if (!v) fail_msg("%.60s: line %zu, column %zu: %s", text, f.line, f.column, f.what);
    return v;
}

/* Parsing text and writing the result gives `want`. */
static void expect_json(const char *text, const char *want)
{
    json_t *v = read_text(text, strlen(text));
    char *got = json_write(v, 0);
    assert_string_equal(got, want);
    free(got);
    json_decref(v);
}

static void expect_fault(const char *text, size_t n, size_t line, size_t column, const char *what)
{
    json_fault f;
    assert_null(json_read(text, n, &f));
    assert_string_equal(f.what, what);
    assert_int_equal(f.line, line);
    assert_int_equal(f.column, column);
}

static void json_is_written_as_it_was_read(void **state)
{
    (void) state;
    expect_json(" [ ] ", "[]");
    expect_json("{\"a\" : {\"\":[true,false , null]} }", "{\"a\":{\"\":[true,false,null]}}");
    expect_json("{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}"); /* the last value, at the first position */
    expect_json("\xEF\xBB\xBF{\"a\":1}", "{\"a\":1}");
    expect_json("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\ud83d\\ude00\"",
                "\"\\\"\\\\/\\b\\f\\n\\r\\tA\xC3\xA9\xF0\x9F\x98\x80\"");
    expect_json("\"a\\u0000b\\u001f\"", "\"a\\u0000b\\u001f\"");
    expect_json("{\"k\\u0000x\":1,\"k\":2}", "{\"k\\u0000x\":1,\"k\":2}");
    expect_json("\"\\ud800\"", "\"\xEF\xBF\xBD\"");
    expect_json("\"\\udc00x\\ud800\\u0041\\ud83d\\ud83d\\ude00\"",
                "\"\xEF\xBF\xBDx\xEF\xBF\xBD" "A\xEF\xBF\xBD\xF0\x9F\x98\x80\"");
    json_t *v = read_text("\"a\\u0000b\"", 10);
    assert_int_equal(json_string_length(v), 3);
    assert_memory_equal(json_string_value(v), "a\0b", 3);
    assert_false(json_is_c_string(v));
    assert_false(json_text_is(v, "a"));
    json_decref(v);
    static const char members[] = "{\"k\":1,\"k\\u0000\":2}";
    json_t *copy = json_object();
    v = read_text(members, sizeof members - 1);
    assert_true(json_add_members(copy, v) && json_add_members(copy, NULL));
    char *text = json_write(copy, 0);
    assert_string_equal(text, members);
    free(text);
    json_decref(copy);
    json_decref(v);
}

static void json_keeps_numbers(void **state)
{
    (void) state;
    expect_json("[0,-0,1,-1,9223372036854775807,-9223372036854775808]",
                "[0,0,1,-1,9223372036854775807,-9223372036854775808]");
    expect_json("[18446744073709551615,-9223372036854775809,123456789012345678901234567890]",
                "[18446744073709551615,-9223372036854775809,123456789012345678901234567890]");
    expect_json("[1e400,-1E+999,1.5e309]", "[1e400,-1E+999,1.5e309]");
    expect_json("[0.1,1.0,1e2,2.5,-0.0,1e-400,5e-324,0.30000000000000004]",
                "[0.1,1.0,100.0,2.5,-0.0,0.0,4.94065645841247e-324,0.30000000000000004]");
    static const char text_of[] = "[18446744073709551616,1e400,1,\"\\u00ff\",{\"\\u00ff\":\"1\"}]";
    json_t *v = read_text(text_of, sizeof text_of - 1), *copy = json_deep_copy(v);
    assert_string_equal(json_number_text(json_array_get(v, 0)), "18446744073709551616");
    assert_string_equal(json_number_text(json_array_get(copy, 0)), "18446744073709551616");
    assert_string_equal(json_number_text(json_array_get(v, 1)), "1e400");
    /* numbers that a client cannot send */
    for (size_t i = 2; i < 5; i++) assert_null(json_number_text(json_array_get(v, i)));
    assert_false(json_is_string(json_array_get(v, 0)) || json_is_number(json_array_get(v, 0)));
    json_decref(copy);
    json_decref(v);
    v = json_real(0.123456789012345);
    char *text = json_write(v, 9);
    assert_string_equal(text, "0.123456789");
    free(text);
    json_decref(v);
}

static void wrong_json_is_located(void **state)
{
    (void) state;
    static const struct { const char *text; size_t line, column; const char *what;
    } list[] = {{"", 1, 1, "the text ends where a value is expected"},
                {"\xEF\xBB\xBF", 1, 1, "the text ends where a value is expected"},
                {"[1,\n 2,]", 2, 4, "expected a value"},
                {"[1 2]", 1, 4, "expected , or ]"},
                {"{\"a\" 1}", 1, 6, "expected :"},
                {"{a:1}", 1, 2, "expected a key in double quotes"},
                {"{\"a\":1", 1, 7, "expected , or }"},
                {"{\"a\":", 1, 6, "the text ends where a value is expected"},
                {"\"\xC3\xA9\" x", 1, 5, "unexpected text after the value"},
                {"\"a\nb\"", 1, 3, "a control character in a string must be written as \\u00XX"},
                {"\"abc", 1, 5, "the text ends within a string"},
                {"\"abc\\", 1, 6, "unknown escape"},
                {"\"\\x\"", 1, 3, "unknown escape"},
                {"\"\\u12g4\"", 1, 4, "expected four hexadecimal digits after \\u"},
                {"\"\xFF\"", 1, 2, "the text is not UTF-8"},
                {"\"\xED\xA0\x80\"", 1, 2, "the text is not UTF-8"},
                {"01", 1, 1, "expected a value"},
                {"1.", 1, 1, "expected a value"},
                {".5", 1, 1, "expected a value"},
                {"+1", 1, 1, "expected a value"},
                {"1e", 1, 1, "expected a value"},
                {"-", 1, 1, "expected a value"},
                {"NaN", 1, 1, "expected a value"},
                {"-Infinity", 1, 1, "expected a value"},
                {"tru", 1, 1, "expected a value"},
                {"{} {}", 1, 4, "unexpected text after the value"},
                {"'a'", 1, 1, "expected a value"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        expect_fault(list[i].text, strlen(list[i].text), list[i].line, list[i].column, list[i].what);
    expect_fault("{}\0", 3, 1, 3, "unexpected text after the value");
    expect_fault("\"\0\"", 3, 1, 2, "a control character in a string must be written as \\u00XX");
    char deep[2 * JSON_MAX_DEPTH + 4];
    memset(deep, '[', sizeof deep);
    expect_fault(deep, sizeof deep, 1, JSON_MAX_DEPTH + 1,
                 "lists and objects are nested too deeply; the limit is 256 levels");
    memset(deep + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
    json_decref(read_text(deep, (size_t) 2 * JSON_MAX_DEPTH));
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

/* ---- timing side channel of key comparison: counts the instructions one by one in a traced child */

typedef bool (*compare_fn)(const keys *k, const char *key);

/* A leaky comparison, which ends at the first different byte. */
static bool compare_early(const keys *k, const char *key)
{
    for (size_t i = 0; i < k->n; i++) {
        size_t b = 0;
        while (b < KEY_MAX && key[b] == k->list[i].text[b] && key[b]) b++;
        if (b == KEY_MAX || key[b] == k->list[i].text[b]) return true;
    }
    return false;
}

/* The child process: stops itself before and after each comparison. */
static void compare_between_stops(compare_fn f, const keys *k, char (*key)[KEY_MAX], size_t n)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) _exit(77);
    (void) f(k, key[0]); /* triggers lazy linking before the measurement */
    for (size_t i = 0; i < n; i++) {
        raise(SIGUSR1);
        (void) f(k, key[i]);
        raise(SIGUSR1);
    }
    _exit(0);
}

/* Runs the child to its next SIGUSR1 stop; step: counts the instructions in *steps. Returns false if the child
 * ended. */
static bool next_stop(pid_t child, bool step, long *steps)
{
    int status;
    for (long n = 0;; n++) {
        if (ptrace(step ? PTRACE_SINGLESTEP : PTRACE_CONT, child, NULL, NULL)) return false;
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return false;
        if (WSTOPSIG(status) == SIGUSR1) return *steps = n, true;
        if (WSTOPSIG(status) != SIGTRAP || !step) return false;
    }
}

/* Counts the instructions of each of n comparisons. Returns false if tracing is not permitted. */
static bool count_steps(compare_fn f, const keys *k, char (*key)[KEY_MAX], size_t n, long *steps)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (!child) compare_between_stops(f, k, key, n);
    assert_true(child > 0);
    bool ok = waitpid(child, &status, 0) == child && WIFSTOPPED(status);
    for (size_t i = 0; i < n && ok; i++) {
        if (i) ok = next_stop(child, false, &steps[i]);
        if (ok) ok = next_stop(child, true, &steps[i]);
    }
    if (WIFSTOPPED(status)) kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return ok;
}

/* A comparison takes the same number of instructions for any number of correct bytes of any key. */
static void time_of_keys_tells_nothing(void **state)
{
    (void) state;
    enum { N = 4 };
    static char key[N][KEY_MAX];
    /* key index, and number of correct bytes of it */
    static const struct { int key, n; } of[N] = {{0, 0}, {0, 8}, {0, 16}, {1, 16}};
    static const char right[2][17] = {"sk-aaaaaaaaaaaaa", "sk-bbbbbbbbbbbbb"};
    long steps[N];
    keys k = {0};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* would also count the sanitizer's instructions, which takes long */
#endif
    if (getenv("PI_TEST_EMULATED")) skip();
    for (int i = 0; i < 2; i++) assert_null(keys_add(&k, right[i]));
    for (size_t i = 0; i < N; i++) memcpy(memset(key[i], 'x', 16), right[of[i].key], (size_t) of[i].n);
    if (!count_steps(keys_allow, &k, key, N, steps)) {
        print_message("no process may be traced here\n");
        keys_free(&k);
        skip();
    }
    for (size_t i = 1; i < N; i++) assert_int_equal(steps[i], steps[0]);
    assert_true(steps[0] > 2 * KEY_MAX);
    assert_true(count_steps(compare_early, &k, key, N, steps));
    assert_true(steps[1] > steps[0]); /* the count detects a leaky comparison */
    keys_free(&k);
}

static void keys_come_from_a_file(void **state)
{
    (void) state;
    char path[] = "/tmp/pi_keys_XXXXXX";
    static const char text[] = "# comment\n\n  one  \r\ntwo\t second\r\nthree";
    int fd = mkstemp(path);
    keys k = {0};
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    assert_null(keys_read(&k, path));
    assert_int_equal(k.n, 3);
    assert_true(keys_allow(&k, "one") && keys_allow(&k, "two") && !keys_allow(&k, "two second"));
    assert_string_equal(keys_name(&k, "one"), "key-1");
    assert_string_equal(keys_name(&k, "two"), "second");
    assert_string_equal(keys_name(&k, "three"), "key-3");
    assert_string_equal(keys_name(&k, "four"), "");
    assert_null(keys_add(&k, "one")); /* twice: the last name counts */
    assert_string_equal(keys_name(&k, "one"), "key-4");
    keys_free(&k);
    assert_int_equal(truncate(path, (2 << 20)), 0);
    assert_non_null(keys_read(&k, path));
    unlink(path);
    assert_non_null(keys_read(&k, path));
    assert_int_equal(mkfifo(path, 0600), 0); /* a FIFO without a writer must not block */
    assert_non_null(keys_read(&k, path));
    unlink(path);
    assert_non_null(keys_read(&k, "/tmp"));
    assert_non_null(keys_read(&k, "/dev/zero"));
    assert_int_equal(k.n, 0);
}

/* After a refusal, the request can still be taken; a paused or failed parser must permit this. */
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

/* Path and query of a target, for each form of targets. */
static void targets_become_paths(void **state)
{
    (void) state;
    static const http_limits limits = {1000, 10};
    static const struct { const char *sent, *path, *rest;
    } list[] = {{"/", "/", ""},
                {"/a/b", "/a/b", ""},
                {"/a/", "/a", "/"},
                {"/a//?b=/", "/a", "//?b=/"},
                {"//", "/", "/"},
                {"/?a/", "/", "?a/"},
                {"http://host", "/", ""},
                {"http://host/", "/", ""},
                {"HTTP://[::1]:80/v1/models/?x", "/v1/models", "/?x"},
                {"https://h?a", "/", "?a"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char text[200];
        http_in in;
        http_request r;
        size_t used, n = (size_t) snprintf(text, sizeof text, "GET %s HTTP/1.1\r\n\r\n", list[i].sent);
        http_in_init(&in, &limits);
        assert_int_equal(http_feed(&in, text, n, &used), HTTP_COMPLETE);
        assert_int_equal(used, n);
        http_take(&in, &r);
        assert_int_equal(r.path_len, strlen(list[i].path));
        assert_memory_equal(r.target.p, list[i].path, r.path_len);
        assert_string_equal(r.target.p + r.path_len, list[i].rest);
        assert_string_equal(r.verb, "GET");
        assert_true(http_is_idle(&in));
        http_request_free(&r);
        http_in_free(&in);
    }
}

/* A header at its size limit still permits chunks, and the end of the body. */
static void chunks_do_not_count_as_header(void **state)
{
    (void) state;
    static const char head[] = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                      body[] = "1\r\na\r\n1\r\nb\r\n0\r\n\r\n";
    const http_limits limits = {sizeof head - 1, 10};
    http_in in;
    http_request r;
    size_t used;
    http_in_init(&in, &limits);
    assert_int_equal(http_feed(&in, head, sizeof head - 1, &used), HTTP_MORE);
    assert_int_equal(http_feed(&in, body, sizeof body - 1, &used), HTTP_COMPLETE);
    http_take(&in, &r);
    assert_string_equal(r.body.p, "ab");
    http_request_free(&r);
    http_in_free(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_repaired_as_the_library_does),
        cmocka_unit_test(base64_is_decoded),
        cmocka_unit_test(characters_are_recognized),
        cmocka_unit_test(json_is_written_as_it_was_read),
        cmocka_unit_test(json_keeps_numbers),
        cmocka_unit_test(wrong_json_is_located),
        cmocka_unit_test(keys_are_compared_whole),
        cmocka_unit_test(time_of_keys_tells_nothing),
        cmocka_unit_test(keys_come_from_a_file),
        cmocka_unit_test(refused_requests_are_taken),
        cmocka_unit_test(targets_become_paths),
        cmocka_unit_test(chunks_do_not_count_as_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
