/* Rules for the types of caches: what texts mean, which rule decides, what is refused and how. And in an engine: each
 * layer's blocks are of its own types, answers the same in every batch, and a directory of other types is a miss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/cache_types.h"
#include "model/cache_rules.h"

static pi__cache_rules parsed(const char *text)
{
    pi__cache_rules r = {.n = 0};
    pi_error err = {0};
    if (pi__cache_rules_parse(&r, text, &err)) fail_msg("%s: %s", text, err.msg);
    return r;
}

static void expect_types(const pi__cache_rules *r, int32_t layer, bool window, int32_t k, int32_t v)
{
    assert_int_equal(pi__cache_rules_type(r, layer, 18, window, false), k);
    assert_int_equal(pi__cache_rules_type(r, layer, 18, window, true), v);
}

static void test_first_decides(void **state)
{
    (void) state;
    pi__cache_rules r = parsed("L0-1:f16,full.k:q8_0,full.v:TQ3_0,window:q4_0,*:f32");
    expect_types(&r, 0, true, PI__F16, PI__F16);
    expect_types(&r, 1, false, PI__F16, PI__F16);
    expect_types(&r, 2, false, PI__Q8_0, PI__TQ3_0);
    expect_types(&r, 2, true, PI__Q4_0, PI__Q4_0);
    r = parsed("first2.v:bf16,last3:tq4_0,l7.K:q5_1");
    expect_types(&r, 0, true, -1, PI__BF16);
    expect_types(&r, 1, true, -1, PI__BF16);
    expect_types(&r, 2, true, -1, -1);
    expect_types(&r, 7, true, PI__Q5_1, -1);
    expect_types(&r, 14, true, -1, -1);
    expect_types(&r, 15, true, PI__TQ4_0, PI__TQ4_0);
    expect_types(&r, 17, false, PI__TQ4_0, PI__TQ4_0);
    r = parsed("");
    expect_types(&r, 0, false, -1, -1);
    pi__cache_rules_add(&r, PI__LAYERS_WINDOW, true, false, PI__Q8_0);
    expect_types(&r, 0, true, PI__Q8_0, -1);
    expect_types(&r, 0, false, -1, -1);
}

static void refused(const char *text, const char *part)
{
    pi__cache_rules r = {.n = 0};
    pi_error err = {0};
    assert_int_equal(pi__cache_rules_parse(&r, text, &err), PI_EINVAL);
    if (!strstr(err.msg, part)) fail_msg("'%s': '%s', without '%s'", text, err.msg, part);
}

static void test_refused(void **state)
{
    (void) state;
    refused("f16", "character 1: 'f16' is no rule: give WHICH:TYPE");
    refused("*:f16,L:q8_0", "character 7: 'L:q8_0' is no rule");
    refused("*:f16,L3-1:q8_0", "character 7");
    refused("first0:f16", "character 1");
    refused("last:f16", "character 1");
    refused("L99999999999:f16", "character 1");
    refused(".k:f16", "character 1");
    refused("full.x:f16", "character 1");
    refused(",*:f16", "character 1: '' is no rule");
    refused("*:f16,", "ends with a comma");
    refused("*:f16,full.v:q9", "character 14: 'q9' is no type of caches: give one of f32|f16");
    refused("*:q4_k", "'q4_k' is no type of caches");
    refused("*:", "character 3: '' is no type");
    char many[65 * 6 + 1] = "";
    for (int i = 0; i < 65; i++) strcat(many, i ? ",*:f16" : "*:f16");
    refused(many, "more than 64 rules");
}

static void test_layers_there(void **state)
{
    (void) state;
    pi_error err = {0};
    pi__cache_rules r = parsed("L0-17:f16,last18:f16,window:f16");
    assert_int_equal(pi__cache_rules_check(&r, 18, &err), PI_OK);
    assert_int_equal(pi__cache_rules_check(&r, 17, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "character 1: the model has no such layer: its 17 are L0 to L16"));
    r = parsed("*:f16,last3:q8_0");
    assert_int_equal(pi__cache_rules_check(&r, 2, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "character 7"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_decides), cmocka_unit_test(test_refused), cmocka_unit_test(test_layers_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
