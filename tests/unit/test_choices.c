/* Data files of multiple-choice tasks: parsing of valid files, selection of tasks, and errors for invalid files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "choices.h"

static char msg[160];

static void expect_choice(const choice_task *t, size_t i, const char *text, size_t n_head, bool right)
{
    assert_true(i < t->n);
    assert_string_equal(t->choice[i].text, text);
    assert_int_equal(t->choice[i].n, strlen(text));
    assert_int_equal(t->choice[i].n_head, n_head);
    assert_int_equal(t->choice[i].right, right);
}

static void test_hellaswag(void **state)
{
    static const char file[] = "Go: he\n2\na.\nb.\nc.\nd.";
    choice_list l;
    (void) state;
    assert_null(choices_hellaswag(file, sizeof file - 1, 0, &l, msg));
    assert_int_equal(l.n, 1);
    assert_int_equal(l.task[0].n, 4);
    expect_choice(&l.task[0], 0, "Go: he a.", 9, false);
    expect_choice(&l.task[0], 2, "Go: he c.", 9, true);
    choices_free(&l);
    static const char *const bad[] = {"", "\n", "a\n1\nb\nc\nd\n", "a\n4\nb\nc\nd\ne\n", "a\n-1\nb\nc\nd\ne\n",
                                      "a\n\nb\nc\nd\ne\n", "a\nx\nb\nc\nd\ne\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_non_null(choices_hellaswag(bad[i], strlen(bad[i]), 0, &l, msg));
        assert_int_equal(l.n, 0);
        assert_null(l.task);
    }
}

/* The task order equals std::mt19937(1) with libstdc++'s std::uniform_int_distribution. */
static void test_order(void **state)
{
    static const int first[] = {291, 698, 503, 651, 0, 90, 211, 699};
    char *file = malloc(700 * 32), *p = file;
    uint32_t hash = 0;
    choice_list l;
    (void) state;
    assert_non_null(file);
    for (int i = 0; i < 700; i++) p += sprintf(p, "%d\n0\na\nb\nc\nd\n", i);
    assert_null(choices_hellaswag(file, (size_t) (p - file), 0, &l, msg));
    assert_int_equal(l.n, 700);
    for (size_t i = 0; i < 700; i++) {
        int which = atoi(l.task[i].choice[0].text);
        if (i < 8) assert_int_equal(which, first[i]);
        hash = hash * 31 + (uint32_t) which;
    }
    assert_int_equal(hash, 1835163510);
    choices_free(&l);
    assert_null(choices_hellaswag(file, (size_t) (p - file), 3, &l, msg));
    assert_int_equal(l.n, 3);
    assert_int_equal(l.n_file, 700);
    assert_int_equal(atoi(l.task[2].choice[1].text), first[2]);
    choices_free(&l);
    free(file);
}

static void test_winogrande(void **state)
{
    static const char file[] =
        "0,A _ b.,x,yy,2\n1,\"A, _, b.\",x,y,1\nno task\n2,no gap,x,y,1\n3,_,x,y,3\n4,_,x,y,\n\n5,_z,x,y,1";
    choice_list l;
    size_t n_bad;
    (void) state;
    assert_null(choices_winogrande(file, sizeof file - 1, 0, &l, &n_bad, msg));
    assert_int_equal(l.n, 3);
    assert_int_equal(n_bad, 5);
    expect_choice(&l.task[0], 0, "A x b.", 3, false);
    expect_choice(&l.task[0], 1, "A yy b.", 4, true);
    expect_choice(&l.task[1], 0, "A, x, b.", 4, true);
    expect_choice(&l.task[2], 1, "yz", 1, false);
    choices_free(&l);
    static const char *const bad[] = {"", "\n\n", "0,\"_,x,y,1\n", "0,_,x,y\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_non_null(choices_winogrande(bad[i], strlen(bad[i]), 0, &l, &n_bad, msg));
    /* Selects ten of 121 tasks, with one random float per pick. */
    static const int picked[] = {50, 119, 85, 110, 0, 14, 34, 113, 16, 26};
    char *many = malloc(121 * 32), *p = many;
    assert_non_null(many);
    for (int i = 0; i < 121; i++) p += sprintf(p, "%d,%d _,x,y,1\n", i, i);
    assert_null(choices_winogrande(many, (size_t) (p - many), 10, &l, &n_bad, msg));
    assert_int_equal(l.n, 10);
    for (size_t i = 0; i < 10; i++) assert_int_equal(atoi(l.task[i].choice[0].text), picked[i]);
    choices_free(&l);
    free(many);
}

static size_t put_u32(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (char) (v >> 8 * i);
    return 4;
}

static size_t put_text(char *p, const char *s)
{
    size_t n = put_u32(p, (uint32_t) strlen(s));
    memcpy(p + n, s, strlen(s));
    return n + strlen(s);
}

/* Writes two tasks with 2 and 3 answers; returns the size. */
static size_t write_multiple(char *p)
{
    static const char *const answers[] = {"one", "two", "three"};
    size_t n = put_u32(p, 2) + 8;
    for (uint32_t i = 0; i < 2; i++) {
        put_u32(p + 4 + 4 * i, (uint32_t) n);
        n += put_text(p + n, i ? "How?" : "Who?");
        n += put_u32(p + n, 2 + i);
        for (uint32_t k = 0; k < 2 + i; k++) n += put_text(p + n, answers[k]);
        for (uint32_t k = 0; k < 2 + i; k++) n += put_u32(p + n, k == 1);
        n += put_u32(p + n, 0);
    }
    return n;
}

static void test_multiple(void **state)
{
    char file[256], broken[256];
    size_t n = write_multiple(file);
    choice_list l;
    (void) state;
    assert_null(choices_multiple(file, n, 0, &l, msg));
    assert_int_equal(l.n, 2);
    expect_choice(&l.task[0], 1, "Who? two", 8, true);
    expect_choice(&l.task[1], 2, "How? three", 10, false);
    choices_free(&l);
    assert_null(choices_multiple(file, n, 1, &l, msg));
    assert_int_equal(l.n, 1);
    choices_free(&l);
    /* Truncation at any byte is an error, except in the unused list at the end; changing any byte never crashes. */
    for (size_t i = 0; i < n - 4; i++) assert_non_null(choices_multiple(file, i, 0, &l, msg));
    for (size_t i = 0; i < n; i++) {
        for (int v = 0; v < 256; v += 5) {
            memcpy(broken, file, n);
            broken[i] = (char) v;
            char *exact = malloc(n); /* exact size, so that a sanitizer detects reads past the end */
            assert_non_null(exact);
            memcpy(exact, broken, n);
            choices_multiple(exact, n, 0, &l, msg);
            choices_free(&l);
            free(exact);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hellaswag),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_winogrande),
        cmocka_unit_test(test_multiple),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
