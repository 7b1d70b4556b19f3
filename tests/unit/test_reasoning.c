/* Thoughts told from answers, for every way in which a text can be cut into pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "reasoning.h"

struct got {
    char thought[512], answer[512];
};

static void take(void *ud, bool thought, const char *text, size_t n)
{
    struct got *g = ud;
    assert_true(n > 0);
    strncat(thought ? g->thought : g->answer, text, n);
}

/* In pieces of every length, and cut in two at every place. */
static void expect(const char *prompt, const char *text, const char *thought, const char *answer)
{
    size_t len = strlen(text);
    for (size_t cut = 0; cut <= 2 * len; cut++) {
        struct got g = {"", ""};
        reasoning r;
        reasoning_start(&r, prompt, strlen(prompt));
        for (size_t at = 0, n; at < len; at += n) {
            n = cut > len ? cut - len : at < cut ? cut - at : len - at;
            if (n > len - at) n = len - at;
            reasoning_feed(&r, text + at, n, take, &g);
        }
        reasoning_end(&r, take, &g);
        assert_string_equal(g.thought, thought);
        assert_string_equal(g.answer, answer);
    }
}

static void test_tags(void **state)
{
    (void) state;
    expect("", "Hello.", "", "Hello.");
    expect("", "", "", "");
    expect("", "\n <think>\nHm.\n</think>\n\nHello.\n", "Hm.\n", "Hello.\n");
    expect("", "<think></think>Hello", "", "Hello");
    expect("", "<|channel>thought\nHm<channel|>Hello", "Hm", "Hello");
    expect("", "[THINK]a[/THINK]b", "a", "b");
    expect("", "<thinking>a</think>b</thinking>c", "a</think>b", "c");
    expect("", "<think>a < b </thin </think >x</think>c", "a < b </thin </think >x", "c");
    expect("", "<think>never ends </thi", "never ends </thi", "");
    expect("", "<think>a<</think>b", "a<", "b");
}

static void test_not_tags(void **state)
{
    (void) state;
    expect("", "A <think>tag</think> in an answer", "", "A <think>tag</think> in an answer");
    expect("", "<thin", "", "<thin");
    expect("", "<thin ice", "", "<thin ice");
    expect("", "<<think>a", "", "<<think>a");
    expect("", "</think>a", "", "</think>a");
    expect("", "<think>a</think>b<think>c</think>", "a", "b<think>c</think>");
}

static void test_prompt(void **state)
{
    (void) state;
    expect("<|im_start|>assistant\n<think>\n", "\nHm.</think>\nHello", "Hm.", "Hello");
    expect("<think>", "Hm.", "Hm.", "");
    expect("<think>\n\n</think>\n\n", "Hello", "", "Hello");
    expect("<think>\n\n</think>\n\n", "<think>a</think>b", "a", "b");
    expect("think>", "a</think>b", "", "a</think>b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_not_tags),
        cmocka_unit_test(test_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
