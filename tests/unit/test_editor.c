/* The line editor: the effect of keys on a text, and its display, for random keys on narrow screens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <locale.h>
#include <wchar.h>

#include "editor.h"

enum { MOST_ROWS = 40, MOST_COLUMNS = 100 };

/* A terminal emulator with every feature that the editor may use. */
static struct screen {
    size_t rows, columns, row, column; /* column == columns: after a full row */
    wchar_t cell[MOST_ROWS][MOST_COLUMNS + 1];
} screen;

static void size_of_screen(size_t *rows, size_t *columns)
{
    *rows = screen.rows;
    *columns = screen.columns;
}

static void clear_row(size_t row, size_t from)
{
    for (size_t i = from; i < screen.columns; i++) screen.cell[row][i] = L' ';
    screen.cell[row][screen.columns] = 0;
}

static void line_feed(void)
{
    screen.column = 0;
    if (screen.row + 1 < screen.rows) {
        screen.row++;
        return;
    }
    memmove(screen.cell[0], screen.cell[1], (screen.rows - 1) * sizeof screen.cell[0]);
    clear_row(screen.row, 0);
}

static void put(wchar_t c)
{
    int wide = wcwidth(c);
    if (wide <= 0) return;
    if (screen.column + (size_t) wide > screen.columns) line_feed();
    screen.cell[screen.row][screen.column] = c;
    if (wide == 2) screen.cell[screen.row][screen.column + 1] = 1;
    screen.column += (size_t) wide;
}

/* Executes the escape sequence at s and returns its length in bytes. */
static size_t escape(const char *s)
{
    char *end;
    assert_int_equal(s[1], '[');
    long n = strtol(s + 2, &end, 10);
    if (end == s + 2) n = *end == 'J' ? 0 : 1;
    switch (*end) {
    case 'A': screen.row -= (size_t) n < screen.row ? (size_t) n : screen.row; break;
    case 'C':
        screen.column += (size_t) n;
        assert_true(screen.column < screen.columns);
        break;
    case 'H': screen.row = screen.column = 0; break;
    case 'J':
        for (size_t i = n == 2 ? 0 : screen.row; i < screen.rows; i++)
            clear_row(i, n != 2 && i == screen.row ? screen.column : 0);
        break;
    default: fail_msg("the terminal gets %s", s);
    }
    return (size_t) (end + 1 - s);
}

static void show(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        wchar_t c;
        if (s[i] == '\033') {
            i += escape(s + i);
        } else if (s[i] == '\r') {
            screen.column = 0;
            i++;
        } else if (s[i] == '\b') {
            if (screen.column) screen.column--;
            i++;
        } else if (s[i] == '\n') {
            line_feed();
            i++;
        } else {
            size_t used = mbrtowc(&c, s + i, n - i, &(mbstate_t) {0});
            assert_true(used > 0 && used <= n - i);
            put(c);
            i += used;
        }
    }
}

struct fixture {
    editor *e;
    FILE *out;
    char *bytes;  /* the editor's output so far */
    size_t n, done;
};

static void see(struct fixture *f)
{
    fflush(f->out);
    show(f->bytes + f->done, f->n - f->done);
    f->done = f->n;
}

static void start(struct fixture *f)
{
    editor_start(f->e, "> ", 2);
    see(f);
}

static void open_fixture(struct fixture *f, size_t rows, size_t columns, bool escapes)
{
    *f = (struct fixture) {0};
    screen = (struct screen) {.rows = rows, .columns = columns};
    for (size_t i = 0; i < rows; i++) clear_row(i, 0);
    f->out = open_memstream(&f->bytes, &f->n);
    f->e = editor_new(f->out, escapes, size_of_screen);
    assert_non_null(f->e);
    start(f);
}

static void close_fixture(struct fixture *f)
{
    editor_free(f->e);
    fclose(f->out);
    free(f->bytes);
}

/* Types keys and returns the result of the last one. */
static int keys(struct fixture *f, const char *s, size_t n)
{
    int what = EDITOR_MORE;
    for (size_t i = 0; i < n; i++) what = editor_feed(f->e, (unsigned char) s[i]);
    see(f);
    return what;
}

static void expect(struct fixture *f, const char *typed, const char *text)
{
    size_t n;
    keys(f, typed, strlen(typed));
    assert_string_equal(editor_text(f->e, &n), text);
    assert_int_equal(n, strlen(text));
}

static void expect_row(size_t row, const wchar_t *text)
{
    size_t n = wcslen(text);
    assert_memory_equal(screen.cell[row], text, n * sizeof *text);
    for (size_t i = n; i < screen.columns; i++) assert_int_equal(screen.cell[row][i], L' ');
}

/* ----------------------------------------------------------------------------------------------------------- tests */

static void test_keys(void **state)
{
    struct fixture f;
    (void) state;
    open_fixture(&f, 24, 80, true);
    expect(&f, "bd\033[Dc", "bcd");
    expect(&f, "\033[Ha\033[Fe", "abcde");
    expect(&f, "\177\177", "abc");
    expect(&f, "\001\033[3~", "bc");
    expect(&f, "\005\303\251\342\202\254", "bc\303\251\342\202\254");
    expect(&f, "\177", "bc\303\251");
    expect(&f, "\033OD\033OD\004", "b\303\251");
    expect(&f, "\013", "b");
    expect(&f, " two  words\033b\033bx", "b xtwo  words");
    expect(&f, "\033fy\033d", "b xtwoy");
    expect(&f, "\027", "b ");
    expect(&f, "\025\033[99;99;99;99;99;99~\033[Zq\033\033[D\033zw", "wq");
    expect_row(0, L"> wq");
    assert_int_equal(screen.column, 3);
    assert_int_equal(keys(&f, "\r", 1), EDITOR_LINE);
    start(&f);
    assert_int_equal(keys(&f, "\004", 1), EDITOR_END);
    close_fixture(&f);
}

static void test_history(void **state)
{
    struct fixture f;
    (void) state;
    open_fixture(&f, 24, 80, true);
    const char *lines[] = {"one\r", "two\r", "two\r", "three\r"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(keys(&f, lines[i], strlen(lines[i])), EDITOR_LINE);
        start(&f);
    }
    expect(&f, "new\033[A", "three");
    expect(&f, "\033[A\033[A\033[A\033[A", "one");
    expect(&f, "\033[B", "two");
    expect(&f, "\020\016\016\016\016", "new");
    expect(&f, "\033[A!\r", "three!");
    start(&f);
    expect(&f, "\033[A", "three!");
    close_fixture(&f);
}

static void test_paste(void **state)
{
    struct fixture f;
    (void) state;
    open_fixture(&f, 24, 80, true);
    expect(&f, "\033[200~a\r\nb\rc\nd\n\033[201~!", "a\nb\nc\nd\n!");
    expect_row(0, L"> a");
    expect_row(3, L"d");
    expect_row(4, L"!");
    expect(&f, "\033[A\033[A\033[A\033[Ax", "ax\nb\nc\nd\n!"); /* up to the first line, not into the history */
    expect(&f, "\033[By", "ax\nby\nc\nd\n!");
    expect(&f, "\033[200~\033[201\033[20\033[201~", "ax\nby\033[201\033[20\nc\nd\n!");
    expect_row(1, L"by^[[201^[[20");
    close_fixture(&f);
    /* A terminal with too few rows shows the lines around the cursor. */
    open_fixture(&f, 4, 80, true);
    expect(&f, "\033[200~1\n2\n3\n4\n5\n6\033[201~", "1\n2\n3\n4\n5\n6");
    expect_row(screen.row, L"6");
    expect_row(screen.row - 1, L"5");
    expect(&f, "\033[A\033[A\033[A", "1\n2\n3\n4\n5\n6");
    expect_row(screen.row, L"3");
    close_fixture(&f);
}

static void test_without_escapes(void **state)
{
    struct fixture f;
    (void) state;
    open_fixture(&f, 24, 80, false);
    expect(&f, "ab\033[Dc\177d\344\270\226\177\177e", "abe");
    expect_row(0, L"> abe");
    expect(&f, "\025xy z\027", "xy ");
    expect_row(0, L"> xy ");
    assert_int_equal(keys(&f, "\r", 1), EDITOR_LINE);
    assert_null(memchr(f.bytes, '\033', f.n));
    close_fixture(&f);
}

/* Compares the screen with an independent layout of the text and the cursor, cell by cell. */
static void check_screen(const char *text, size_t cursor)
{
    static wchar_t rows[400][MOST_COLUMNS + 1];
    size_t row = 0, column = 2, at_row = SIZE_MAX, at_column = 0, n = strlen(text);
    wmemset(rows[0], L' ', sizeof rows / sizeof(wchar_t));
    rows[0][0] = L'>';
    for (size_t i = 0; i <= n;) {
        wchar_t c = 0;
        size_t used = i < n ? mbrtowc(&c, text + i, n - i, &(mbstate_t) {0}) : 1;
        size_t wide = c && c != L'\n' ? (size_t) wcwidth(c) : 0;
        if (column + wide > screen.columns || (i == n && column == screen.columns)) {
            row++;
            column = 0;
        }
        if (i == cursor) {
            at_row = row;
            at_column = column < screen.columns ? column : screen.columns - 1;
        }
        if (wide) rows[row][column] = c;
        if (wide == 2) rows[row][column + 1] = 1;
        column += wide;
        if (c == L'\n') {
            row++;
            column = 0;
        }
        i += used;
    }
    assert_int_equal(screen.column, at_column);
    for (size_t i = 0; i < screen.columns; i++) assert_int_equal(screen.cell[screen.row][i], rows[at_row][i]);
    if (row + 1 >= screen.rows) return; /* the screen shows only a part of the text */
    size_t top = screen.row - at_row;
    for (size_t k = 0; k <= row; k++)
        for (size_t i = 0; i < screen.columns; i++) assert_int_equal(screen.cell[top + k][i], rows[k][i]);
}

static void test_screen(void **state)
{
    static const char *const typed[] = {"a",
                                        "b",
                                        " ",
                                        "c",
                                        "\303\251",
                                        "\344\270\226",
                                        "word ",
                                        "\177",
                                        "\033[D",
                                        "\033[C",
                                        "\033[H",
                                        "\033[F",
                                        "\033[A",
                                        "\033[B",
                                        "\033[3~",
                                        "\027",
                                        "\033[200~x\nyy\n\344\270\226\033[201~",
                                        "\033[200~0123456789\033[201~",
                                        "\013"};
    uint32_t rng = 5;
    (void) state;
    for (int round = 0; round < 60; round++) {
        struct fixture f;
        open_fixture(&f, 6 + (size_t) round % 30, 7 + (size_t) round % 13, true);
        for (int i = 0; i < 120; i++) {
            rng = rng * 1664525u + 1013904223u;
            const char *k = typed[(rng >> 16) % (sizeof typed / sizeof *typed)];
            keys(&f, k, strlen(k));
            /* Types a mark and deletes it, to find the cursor position. */
            size_t n;
            char *before = strdup(editor_text(f.e, &n));
            assert_non_null(before);
            if (n > 300) {
                free(before);
                break;
            }
            editor_feed(f.e, '#');
            const char *marked = editor_text(f.e, &n);
            size_t cursor = 0;
            while (before[cursor] && marked[cursor] == before[cursor]) cursor++;
            keys(&f, "\177", 1);
            check_screen(before, cursor);
            free(before);
        }
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_paste),
        cmocka_unit_test(test_without_escapes),
        cmocka_unit_test(test_screen),
    };
    if (!setlocale(LC_CTYPE, "C.UTF-8")) {
        puts("there is no locale C.UTF-8");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
