/* Markdown on a terminal: the rendering of each mark, wrapping, and pieces of any size. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "markdown.h"

struct out {
    char text[65536];
    size_t n;
};

static bool put(void *ud, const char *text, size_t n)
{
    struct out *o = ud;
    assert_true(n && o->n + n < sizeof o->text);
    memcpy(o->text + o->n, text, n);
    o->n += n;
    o->text[o->n] = 0;
    return true;
}

/* Renders text in pieces of `piece` bytes. */
static void render(const char *text, size_t n, size_t columns, bool styles, size_t piece, struct out *o)
{
    o->n = 0;
    *o->text = 0;
    markdown *m = markdown_new(columns, styles, put, o);
    assert_non_null(m);
    for (size_t i = 0; i < n; i += piece) assert_true(markdown_feed(m, text + i, n - i < piece ? n - i : piece));
    assert_true(markdown_end(m));
    markdown_free(m);
}

/* Checks the output for all sizes of pieces. ~ in want is the escape character. */
static void expect(const char *text, size_t columns, bool styles, const char *want)
{
    struct out *o = malloc(sizeof *o);
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
        render(text, strlen(text), columns, styles, piece, o);
        for (size_t i = 0; i < o->n; i++)
            if (o->text[i] == '\033') o->text[i] = '~';
        assert_string_equal(o->text, want);
    }
    free(o);
}

static void marks(void **state)
{
    (void) state;
    expect("", 0, true, "");
    expect("plain\n", 0, true, "plain\n");
    expect("a **bold** b", 0, true, "a ~[0;1mbold~[0m b");
    expect("a *slanted* b", 0, true, "a ~[0;3mslanted~[0m b");
    expect("***both*** b", 0, true, "~[0;1;3mboth~[0m b");
    expect("**a *b* c**", 0, true, "~[0;1ma ~[0;1;3mb~[0;1m c~[0m");
    expect("`x * y` and `**`", 0, true, "~[0;36mx * y~[0m and ~[0;36m**~[0m");
    expect("2 * 3 * 4, a*b*c, 2**8, ** x **", 0, true, "2 * 3 * 4, a*b*c, 2**8, ** x **");
    expect("(**a**, *b*.)", 0, true, "(~[0;1ma~[0m, ~[0;3mb~[0m.)");
    expect("**open\nnext", 0, true, "~[0;1mopen~[0m\nnext");
    expect("## Head *x*\ntext", 0, true, "~[0;1;4mHead ~[0;1;4;3mx~[0;1;4m~[0m\ntext");
    expect("#no\n####### no\n#", 0, true, "#no\n####### no\n#");
    expect("- one\n  * two\n+ **three**\n-5 -- x\n-", 0, true,
           "\u2022 one\n  \u2022 two\n\u2022 ~[0;1mthree~[0m\n-5 -- x\n-");
    expect("1. one\n12) two\n1.5 x\n2024 was\n7", 0, true, "1. one\n12) two\n1.5 x\n2024 was\n7");
    expect("> said\n>x", 0, true, "\u2502 said\n>x");
    expect("| **a** | b |\n", 3, true, "| ~[0;1ma~[0m | b |\n");
    expect("``x`` `", 0, true, "``x`` ~[0;36m~[0m");
}

static void code(void **state)
{
    (void) state;
    expect("```c\nint **p; # x\n  `y`\n```\n**b**", 4, true,
           "~[0;36mint **p; # x~[0m\n~[0;36m  `y`~[0m\n~[0;1mb~[0m");
    expect("```\nopen", 0, true, "~[0;36mopen~[0m");
    expect("``\n", 0, true, "``\n");
    expect("```\nlong line of code\n```\nwrapped here", 8, false, "```\nlong line of code\n```\nwrapped\nhere");
}

static void wrapping(void **state)
{
    (void) state;
    expect("one two three four", 9, true, "one two\nthree\nfour");
    expect("one two three four\nfive", 9, false, "one two\nthree\nfour\nfive");
    expect("a incomprehensible b", 6, true, "a\nincomprehensible\nb");
    expect("- one two three\n10. one two", 9, true, "\u2022 one two\n  three\n10. one\n    two");
    expect("> one two three", 9, true, "\u2502 one two\n  three");
    expect("    deep text here", 12, true, "    deep\n    text\n    here");
    expect("**one two** three", 7, true, "~[0;1mone two~[0m\nthree");
    expect("\u4f60\u597d\u4e16\u754c\u554a", 5, true, "\u4f60\u597d\n\u4e16\u754c\n\u554a");
    expect("- x", 9, false, "- x");
    expect("**b** # x", 20, false, "**b** # x");
}

static void controls(void **state)
{
    (void) state;
    expect("a\033[31mb\a\r\bc\x7f \xc2\x85" "d", 0, true, "a[31mbc d");
    expect("a\xff\xc3(\xe2\x82", 0, true, "a\xef\xbf\xbd\xef\xbf\xbd");
    expect("a\tb", 0, true, "a    b");
}

/* Random text: the output is the same for all pieces, keeps all letters, and no row of prose is too long. */
static void random_text(void **state)
{
    static const char *const part[] = {"*", "**",   "`",      "```", "\n",   " ",  "- ",    "# ", "1. ",
                                       "> ", "|", "word", "\u00e9", "a", "\033", "  ", "\u4f60"};
    struct out *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    uint32_t seed = 7;
    (void) state;
    for (int round = 0; round < 3000; round++) {
        char text[400] = "";
        size_t letters = 0, seen = 0;
        for (int i = 0; i < 40; i++) {
            seed = seed * 1664525u + 1013904223u;
            const char *p = part[(seed >> 16) % (sizeof part / sizeof *part)];
            letters += *p == 'w';
            strcat(text, p);
        }
        render(text, strlen(text), 20, round % 2, 1, a);
        render(text, strlen(text), 20, round % 2, 1 + seed % 50, b);
        assert_int_equal(a->n, b->n);
        assert_memory_equal(a->text, b->text, a->n);
        for (const char *p = a->text; (p = strstr(p, "word")); p++) seen++;
        if (!strstr(text, "```")) assert_int_equal(seen, letters);
    }
    free(a);
    free(b);
}

static bool refuse(void *ud, const char *text, size_t n)
{
    (void) text, (void) n;
    return --*(int *) ud > 0;
}

static void failures(void **state)
{
    (void) state;
    int left = 2;
    markdown *m = markdown_new(0, true, refuse, &left);
    assert_true(markdown_feed(m, "one ", 4));
    assert_false(markdown_feed(m, "two three ", 10));
    assert_false(markdown_end(m));
    assert_int_equal(left, 0); /* nothing is written after the failure */
    markdown_free(m);
    markdown_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks),    cmocka_unit_test(code),        cmocka_unit_test(wrapping),
        cmocka_unit_test(controls), cmocka_unit_test(random_text), cmocka_unit_test(failures),
    };
    if (!setlocale(LC_CTYPE, "C.UTF-8")) {
        puts("there is no locale C.UTF-8");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
