/* The history file of `pagedinfer chat`: content, mode, limits, and files that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "recall.h"

static char folder[64], path[160];

struct list {
    size_t n;
    char first[128], last[128];
};

static void take(void *ud, const char *text)
{
    struct list *l = ud;
    if (!l->n++) snprintf(l->first, sizeof l->first, "%s", text);
    snprintf(l->last, sizeof l->last, "%s", text);
}

static struct list load(void)
{
    struct list l = {0};
    assert_null(recall_load(path, take, &l));
    return l;
}

static void add(const char *text) { assert_null(recall_add(path, text, strlen(text))); }

static int begin(void **state)
{
    (void) state;
    snprintf(folder, sizeof folder, "/tmp/pi_recall_XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/state/pagedinfer/history", folder);
    return 0;
}

static int end(void **state)
{
    (void) state;
    char *cut = path + strlen(folder) + 1;
    unlink(path);
    for (char *p; (p = strrchr(path, '/')) && p > cut;) *p = 0, rmdir(path);
    rmdir(path);
    return rmdir(folder);
}

static void content(void **state)
{
    struct stat st;
    (void) state;
    assert_int_equal(load().n, 0);
    add("one");
    add("two\nlines \"x\" \u00e9");
    add(" private");
    add("");
    const struct list l = load();
    assert_int_equal(l.n, 2);
    assert_string_equal(l.first, "one");
    assert_string_equal(l.last, "two\nlines \"x\" \u00e9");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    char *dir = strdup(path);
    *strrchr(dir, '/') = 0;
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    free(dir);
    assert_int_equal(chmod(path, 0644), 0); /* made private again */
    add("three");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    FILE *f = fopen(path, "a");
    fputs("not json\n5\n\"\"\n[\"x\"]\n\"four\"\n\"cut", f);
    fclose(f);
    assert_int_equal(load().n, 4);
    assert_string_equal(load().last, "four");
}

static void limits(void **state)
{
    struct stat st;
    char *big = malloc(70000), text[64];
    (void) state;
    memset(big, 'x', 70000);
    big[69999] = 0;
    add("first");
    add(big); /* too long: not stored */
    assert_string_equal(load().last, "first");
    big[60000] = 0;
    off_t most = 0;
    for (int i = 0; i < 60; i++) {
        snprintf(text, sizeof text, "%d", i);
        memcpy(big, text, strlen(text));
        add(big);
        assert_int_equal(stat(path, &st), 0);
        if (st.st_size > most) most = st.st_size;
    }
    assert_true(most <= 1 << 20);
    assert_true(load().n >= 8 && load().n < 20);
    assert_memory_equal(load().last, "59x", 3);
    assert_string_not_equal(load().first, "first");
    unlink(path);
    for (int i = 0; i < 1100; i++) {
        snprintf(text, sizeof text, "line %d", i);
        add(text);
    }
    assert_int_equal(load().n, 1000);
    assert_string_equal(load().first, "line 100");
    free(big);
}

static void refused(void **state)
{
    char link[200];
    struct list l = {0};
    (void) state;
    add("one");
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink(path, link), 0);
    assert_string_equal(recall_add(link, "x", 1), "it is a link");
    assert_string_equal(recall_load(link, take, &l), "it is a link");
    unlink(link);
    assert_non_null(recall_add(folder, "x", 1)); /* a folder */
    assert_int_equal(mkfifo(link, 0600), 0);
    assert_string_equal(recall_load(link, take, &l), "it is not a regular file");
    unlink(link);
    assert_int_equal(l.n, 0);
    assert_null(recall_add(path, "\xff", 1)); /* not UTF-8: skipped */
    assert_int_equal(load().n, 1);
}

static void paths(void **state)
{
    (void) state;
    assert_null(recall_path("none"));
    assert_null(recall_path(""));
    char *p = recall_path("/x/y");
    assert_string_equal(p, "/x/y");
    free(p);
    setenv("XDG_STATE_HOME", "/s", 1);
    p = recall_path("auto");
    assert_string_equal(p, "/s/pagedinfer/history");
    free(p);
    setenv("XDG_STATE_HOME", "relative", 1);
    setenv("HOME", "/h", 1);
    p = recall_path("auto");
    assert_string_equal(p, "/h/.local/state/pagedinfer/history");
    free(p);
    unsetenv("HOME");
    assert_null(recall_path("auto"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(content, begin, end),
        cmocka_unit_test_setup_teardown(limits, begin, end),
        cmocka_unit_test_setup_teardown(refused, begin, end),
        cmocka_unit_test(paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
