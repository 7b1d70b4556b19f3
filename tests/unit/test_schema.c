/* JSON Schemas: each keyword's rule, tested byte by byte with valid and invalid texts; unsupported schemas and their
 * error messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "counting_alloc.h"
#include "grammar/grammar.h"
#include "vocab_seed.h"

static pi__vocab *vocab;
static pi__grammars *all;

enum { MOST = 24 };

typedef struct rule {
    const char *schema;
    const char *yes[MOST], *no[MOST]; /* both end with NULL */
} rule;

static bool matches(pi__grammar *g, const char *text)
{
    pi__matcher *m;
    pi__mask mask;
    char name[8];
    bool ok = true;
    assert_int_equal(pi__matcher_create(&m, g, NULL), PI_OK);
    for (; *text && ok; text++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned char) *text);
        ok = !pi__matcher_accept(m, pi__vocab_find(vocab, name, strlen(name)), NULL);
    }
    ok = ok && !pi__matcher_mask(m, true, &mask, NULL) && (!mask.n || pi__mask_has(&mask, pi__vocab_eos(vocab)));
    pi__matcher_free(m);
    return ok;
}

static void check(const rule *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        pi_error err = {0};
        pi__grammar *g;
        const pi__grammar_spec spec = {PI__GRAMMAR_SCHEMA, r[i].schema, NULL, 0};
        if (pi__grammar_get(all, &spec, &g, &err)) fail_msg("%s: %s", r[i].schema, err.msg);
        for (size_t k = 0; r[i].yes[k]; k++)
            if (!matches(g, r[i].yes[k])) fail_msg("%s: %s is not let through", r[i].schema, r[i].yes[k]);
        for (size_t k = 0; r[i].no[k]; k++)
            if (matches(g, r[i].no[k])) fail_msg("%s: %s is let through", r[i].schema, r[i].no[k]);
        pi__grammar_release(g);
    }
}

#define CHECK(r) check(r, sizeof (r) / sizeof *(r))

/* --------------------------------------------------------------------------------------------------------- numbers */

static void bounds(void **state)
{
    (void) state;
    static const rule r[] = {
        {"{\"type\":\"integer\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991}",
         {"0", "-9007199254740991", "9007199254740991", "9007199254740990"},
         {"9007199254740992", "-9007199254740992", "90071992547409910", "1.5", "-0"}},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":18446744073709551615}",
         {"0", "18446744073709551615", "9223372036854775808"}, {"18446744073709551616", "-1",
         "18446744073709551620"}},
        {"{\"type\":\"integer\",\"minimum\":-9223372036854775808,"
         "\"exclusiveMaximum\":340282366920938463463374607431768211456}",
         {"-9223372036854775808", "340282366920938463463374607431768211455"},
         {"-9223372036854775809", "340282366920938463463374607431768211456"}},
        {"{\"type\":\"integer\",\"minimum\":1e3,\"maximum\":2.5e3}", {"1000", "2500"}, {"999", "2501"}},
        {"{\"type\":\"integer\",\"minimum\":-2.5,\"maximum\":-0.5}", {"-2", "-1"}, {"-3", "0", "1"}},
        {"{\"type\":\"integer\",\"maximum\":1e308}", {"5", "-5", "9999999999999999"}, {"5.5"}},
        {"{\"type\":\"number\",\"minimum\":0.00000000000000000001,\"maximum\":1}", {"1", "0.5",
         "0.00000000000000000001"},
         {"0", "0.0", "0.000000000000000000001", "1.1"}},
        {"{\"type\":\"number\",\"minimum\":5,\"exclusiveMinimum\":true,\"maximum\":6,"
         "\"exclusiveMaximum\":true}", /* draft 4 */
         {"5.5", "5.01"}, {"5", "6", "5.0"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":-1.5,\"exclusiveMaximum\":0}", {"-1", "-1.25", "-0.5"}, {"-1.5",
         "0", "-2"}},
        {"{\"const\":18446744073709551615}", {"18446744073709551615"}, {"18446744073709551616",
         "1.8446744073709552e+19"}},
    };
    CHECK(r);
}

static void multiples(void **state)
{
    (void) state;
    static const rule r[] = {
        {"{\"type\":\"integer\",\"multipleOf\":7}", {"0", "7", "14", "-21", "700007"}, {"1", "8", "7.5", "7.0"}},
        {"{\"type\":\"integer\",\"multipleOf\":15,\"minimum\":10,\"maximum\":50}", {"15", "30", "45"}, {"0", "60",
         "20", "-15"}},
        {"{\"type\":\"number\",\"multipleOf\":0.01}", {"1.25", "0.1", "-3", "19.99"}, {"1.255", "0.001"}},
        {"{\"type\":\"number\",\"multipleOf\":0.25,\"maximum\":1}", {"0.25", "0.5", "0.75", "-2.25"}, {"0.3",
         "1.25", "0.1"}},
        {"{\"type\":\"number\",\"multipleOf\":10}", {"10", "-250"}, {"5", "10.5"}},
        {"{\"type\":\"integer\",\"multipleOf\":1}", {"3"}, {"3.5"}},
        {"{\"allOf\":[{\"type\":\"integer\",\"multipleOf\":4},{\"multipleOf\":6}]}", {"12", "24"}, {"4", "6", "8"}},
        {"{\"type\":\"integer\",\"not\":{\"multipleOf\":5}}", {"1", "7", "12"}, {"0", "5", "10"}},
        {"{\"type\":\"integer\",\"not\":{\"enum\":[3,4.0]}}", {"1", "5", "33", "44"}, {"3", "4"}},
        {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", {"1.5", "0.25"}, {"1", "2.0", "1e3"}},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", {"1.5"}, {"1", "2.0"}},
        {"{\"oneOf\":[{\"type\":\"integer\",\"minimum\":0},{\"type\":\"integer\",\"maximum\":5}]}", {"6", "-1"},
         {"0", "5"}},
    };
    CHECK(r);
}

/* ----------------------------------------------------------------------------------------------------------- texts */

static void texts(void **state)
{
    (void) state;
    static const rule r[] = {
        {"{\"type\":\"string\",\"maxLength\":2147483647}", {"\"\"", "\"abc\""}, {"abc"}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\S+@\\\\S+$\",\"maxLength\":6}", {"\"a@b\"", "\"aa@bbb\""},
         {"\"aaa@bbb\"", "\"ab\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"minLength\":2,\"maxLength\":3}", {"\"ab\"", "\"abc\""},
         {"\"a\"", "\"abcd\""}},
        {"{\"type\":\"string\",\"pattern\":\"b\",\"minLength\":3}", {"\"abc\"", "\"bbb\"", "\"b\\n\\n\""},
         {"\"ab\"", "\"acc\""}},
        {"{\"type\":\"string\",\"format\":\"date\",\"maxLength\":10}", {"\"2024-02-29\""}, {"\"2023-02-29\"",
         "\"\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\",\"minLength\":21}", {"\"2024-02-28T00:00:00.5Z\"",
         "\"2024-02-28T00:00:00+01:00\""},
         {"\"2024-02-28T00:00:00Z\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\","
         "\"pattern\":\"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-"
         "[0-9a-fA-F]{12})$\"}",
         {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567-e89b-02d3-a456-426614174000\"",
         "\"123e4567-e89b-12d3-c456-426614174000\""}},
        {"{\"type\":\"string\",\"format\":\"email\",\"pattern\":\"@example\\\\.com$\",\"maxLength\":254}",
         {"\"a.b@example.com\""}, {"\"a.b@example.org\"", "\"a@@example.com\""}},
        /* lookaheads after ^: zod's email, and each kind separately */
        {"{\"type\":\"string\",\"format\":\"email\",\"pattern\":\"^(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-z0-9_'+\\\\-\\\\.]*)"
         "[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\\\-]*\\\\.)+[A-Za-z]{2,}$\"}",
         {"\"a@b.de\"", "\"a.b+c@d-e.f.org\""}, {"\".a@b.de\"", "\"a..b@c.de\"", "\"a@b\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?=.*[0-9])(?!ab|cd)[a-z0-9]{2,4}$\"}", {"\"a1\"", "\"1ab\""},
         {"\"ab1\"", "\"cd1\"", "\"abc\"", "\"1\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?!x$).\",\"maxLength\":2}", {"\"xx\"", "\"y\""},
         {"\"x\"", "\"\"", "\"yyy\""}},
        {"{\"enum\":[\"ab\",\"cd\"],\"pattern\":\"^(?!a)\"}", {"\"cd\""}, {"\"ab\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^(?!a)\"}}", {"\"ab\""}, {"\"\"", "\"b\""}},
        {"{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"pattern\":\"z$\"}]}", {"\"az\"", "\"abz\""},
         {"\"a\"", "\"z\"", "\"za\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^a\"}}", {"\"\"", "\"ba\"", "\"\\\"\""}, {"\"a\"", "\"ab\""}},
        {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"bc\"]}}", {"\"\"", "\"b\"", "\"bcd\""}, {"\"a\"",
         "\"bc\""}},
        {"{\"type\":\"string\",\"not\":{\"minLength\":2}}", {"\"\"", "\"a\""}, {"\"ab\""}},
        {"{\"type\":\"string\",\"not\":{\"format\":\"ipv4\"}}", {"\"1.1\"", "\"256.1.1.1\""}, {"\"1.1.1.1\""}},
        {"{\"enum\":[\"abc\",\"xyz\",5],\"pattern\":\"^a\"}", {"\"abc\"", "5"}, {"\"xyz\""}},
        {"{\"type\":[\"string\",\"null\"],\"enum\":[\"a\",null,1]}", {"\"a\"", "null"}, {"1"}},
        {"{\"type\":\"string\",\"nullable\":true}", {"\"a\"", "null"}, {"1"}},
        {"{\"format\":\"int-or-string\"}", {"1", "\"a\""}, {NULL}},
        {"{\"oneOf\":[{\"type\":\"string\",\"format\":\"ipv4\"},{\"type\":\"string\",\"maxLength\":7}]}",
         {"\"10.10.10.10\"", "\"abc\""}, {"\"1.1.1.1\""}},
    };
    CHECK(r);
}

static void formats(void **state)
{
    (void) state;
    static const rule r[] = {
        {"{\"type\":\"string\",\"format\":\"date\"}", {"\"2000-02-29\"", "\"1999-12-31\"", "\"0004-02-29\""},
         {"\"1900-02-29\"", "\"2001-02-29\"", "\"2001-04-31\"", "\"2001-13-01\"", "\"0000-01-01\"", "\"01-01-01\""}},
        {"{\"type\":\"string\",\"format\":\"time\"}", {"\"12:00:00Z\"", "\"23:59:59.123456+23:59\""},
         {"\"24:00:00Z\"", "\"12:60:00Z\"", "\"12:00:00\"", "\"12:00:00+24:00\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", {"\"2024-02-29T01:02:03Z\""},
         {"\"2023-02-29T01:02:03Z\"", "\"2024-02-29 01:02:03Z\""}},
        {"{\"type\":\"string\",\"format\":\"duration\"}", {"\"P1Y2M3DT4H5M6S\"", "\"PT30M\"", "\"P2W\"", "\"P1D\""},
         {"\"P\"", "\"PT\"", "\"P1YT\"", "\"P1S\"", "\"P1Y2W\"", "\"1D\"", "\"PT1H3S\""}},
        {"{\"type\":\"string\",\"format\":\"email\"}", {"\"a@b.c\"", "\"joe.o'neil+x@mail.example.com\"",
         "\"a@localhost\""},
         {"\"a\"", "\"a@\"", "\"@b\"", "\"a..b@c\"", "\".a@c\"", "\"a.@c\"", "\"a b@c\"", "\"a@b@c\"", "\"a@-b.c\"",
         "\"a@b..c\""}},
        {"{\"type\":\"string\",\"format\":\"hostname\"}", {"\"example.com\"", "\"a-b.c\"", "\"localhost\"",
         "\"a.b.c.d.e.f.g\""},
         {"\"\"", "\"-a.com\"", "\"a-.com\"", "\"a_b\"", "\"a..b\"", "\"a:80\"", "\".a\"",
          "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.com\""}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", {"\"0.0.0.0\"", "\"255.255.255.255\""}, {"\"256.0.0.0\"",
         "\"1.2.3\"", "\"01.2.3.4\""}},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}", {"\"::\"", "\"::1\"", "\"2001:db8::8a2e:370:7334\"",
         "\"1:2:3:4:5:6:7:8\"", "\"1::\"",
          "\"::ffff:10.0.0.1\"", "\"1:2:3:4:5:6:1.2.3.4\"", "\"1:2:3:4:5:6:7::\""},
         {"\"1\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\"", "\":1\"", "\"1:2:3:4:5:6:7\"",
         "\"::1%eth0\"", "\"1:2:3:4:5:6:7:8::\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}", {"\"123e4567-e89b-12d3-a456-426614174000\""},
         {"\"123e4567e89b12d3a456426614174000\""}},
        {"{\"type\":\"string\",\"format\":\"uri\"}", {"\"http://a.b/c?d=e#f\"", "\"urn:x:y\"", "\"mailto:a@b\"",
         "\"http://[::1]:80/\"",
          "\"https://u:p@h/%20\"", "\"file:///etc\""},
         {"\"a\"", "\"/a\"", "\"http://a b\"", "\"http://a/%2\"", "\"1http://a\"", "\"://a\"", "\"http://a/<b>\"",
         "\"http://[1]/\""}},
        {"{\"type\":\"string\",\"format\":\"uri-reference\"}", {"\"/a/b\"", "\"a?b\"", "\"#x\"", "\"\"",
         "\"http://a\"", "\"//h/p\""}, {"\"a b\"", "\"\\\\\\\\a\""}},
        {"{\"type\":\"string\",\"format\":\"iri\"}", {"\"http://\xC3\xA9.fr/\xC3\xBC\""}, {"\"\xC3\xA9\""}},
        {"{\"type\":\"string\",\"format\":\"json-pointer\"}", {"\"\"", "\"/a~0b/~1\""}, {"\"a\"", "\"/~\"",
         "\"/~2\""}},
        {"{\"type\":\"string\",\"format\":\"regex\"}", {"\"^[a-z]+$\"", "\"a|b\"", "\"(ab)*c{2}\""}, {"\"*\"",
         "\"(\"", "\"\\\\\"", "\"[\""}},
        {"{\"type\":\"string\",\"format\":\"color\"}", {"\"anything\""}, {NULL}},
    };
    CHECK(r);
}

/* --------------------------------------------------------------------------------------------------------- objects */

static void names(void **state)
{
    (void) state;
    static const rule r[] = {
        {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},"
         "\"additionalProperties\":{\"type\":\"number\"}}",
         {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2.5}"}, {"{\"a\":\"x\"}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\",\"maxLength\":3}}", {"{\"abc\":1}",
         "{}"}, {"{\"A\":1}", "{\"abcd\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},"
         "\"additionalProperties\":{\"type\":\"integer\"}}",
         {"{\"b\":1,\"a\":2}"}, {"{\"c\":1}", "{\"a\":null}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"const\":\"a\"},{\"minLength\":3}]}}", {"{\"a\":1}",
         "{\"xyz\":1}"}, {"{\"b\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"not\":{\"pattern\":\"_\"}}}", {"{\"a\":1}"}, {"{\"a_b\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":false}", {"{}"}, {"{\"a\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"foo\":{},\"b\":{}},\"propertyNames\":{\"maxLength\":1}}",
         {"{\"b\":1}", "{}"}, {"{\"foo\":1}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x-\":{\"type\":\"integer\"}}}", {"{}", "{\"x-a\":1}"},
         {"{\"x-a\":\"s\"}", "{\"y\":1}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x-\":{\"type\":\"integer\"}},"
         "\"additionalProperties\":{\"type\":\"string\"}}",
         {"{\"x-a\":1,\"y\":\"s\"}"}, {"{\"x-a\":\"s\"}", "{\"y\":1}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"a\":{\"minimum\":5,\"type\":\"integer\"},"
         "\"b\":{\"maximum\":7,\"type\":\"integer\"}},"
         "\"additionalProperties\":false}", {"{\"a\":9}", "{\"b\":1}", "{\"ab\":6}"}, {"{\"a\":1}", "{\"ab\":9}",
         "{\"ab\":1}", "{\"c\":6}"}},
        {"{\"type\":\"object\",\"properties\":{\"x1\":{\"type\":\"integer\"}},"
         "\"patternProperties\":{\"^x\":{\"maximum\":3}},\"required\":[\"x1\"]}",
         {"{\"x1\":3}", "{\"x1\":1,\"x2\":2}"}, {"{\"x1\":4}", "{\"x1\":1,\"x2\":5}", "{\"x2\":2}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^no\":false},"
         "\"additionalProperties\":{\"type\":\"integer\"}}", {"{\"a\":1}"}, {"{\"no\":1}"}},
        {"{\"type\":\"object\",\"not\":{\"patternProperties\":{\"^a\":{\"type\":\"integer\"}}}}",
         {"{\"ab\":\"s\"}"}, {"{}", "{\"a\":1}", "{\"b\":\"s\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"not\":{\"required\":[\"a\",\"b\"]}}", {"{}",
         "{\"a\":1}", "{\"b\":1}"},
         {"{\"a\":1,\"b\":1}"}},
    };
    CHECK(r);
}

static void combined(void **state)
{
    (void) state;
    static const rule r[] = {
        {"{\"type\":\"object\",\"properties\":{\"action\":{\"type\":\"string\"}},\"oneOf\":["
         "{\"properties\":{\"action\":{\"const\":\"go\"},\"place\":{\"enum\":[\"a\",\"b\"]}},"
         "\"required\":[\"action\",\"place\"]},"
         "{\"properties\":{\"action\":{\"const\":\"say\"},\"text\":{\"type\":\"string\"}},"
         "\"required\":[\"action\",\"text\"]}]}",
         {"{\"action\":\"go\",\"place\":\"a\"}", "{\"action\":\"say\",\"text\":\"\"}"},
         {"{\"action\":\"go\",\"text\":\"\"}", "{\"action\":\"go\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"file\":{\"type\":\"string\"},\"url\":{\"type\":\"string\"}},"
         "\"oneOf\":[{\"required\":[\"file\"]},"
         "{\"required\":[\"url\"]}]}", {"{\"file\":\"a\"}", "{\"url\":\"a\"}"}, {"{}",
         "{\"file\":\"a\",\"url\":\"b\"}"}},
        {"{\"oneOf\":[{\"type\":\"object\",\"additionalProperties\":false,"
         "\"properties\":{\"foo\":{\"type\":\"string\"}}},"
         "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"bar\":{\"type\":\"string\"}}}]}",
         {"{\"foo\":\"\"}", "{\"bar\":\"\"}"}, {"{}", "{\"foo\":\"\",\"bar\":\"\"}"}},
        {"{\"oneOf\":[{\"enum\":[\"a\",\"b\"]},{\"enum\":[\"b\",\"c\"]}]}", {"\"a\"", "\"c\""}, {"\"b\""}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
         "{\"properties\":{\"b\":{\"type\":\"string\"},\"a\":{\"maximum\":5}}}]}", {"{\"a\":5,\"b\":\"\"}",
         "{\"a\":1}"}, {"{\"b\":\"\"}", "{\"a\":6}"}},
        {"{\"allOf\":[{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}]}", {"1", "null"}, {"\"\"", "true"}},
        {"{\"$ref\":\"#/$defs/a\",\"maximum\":5,\"$defs\":{\"a\":{\"type\":\"integer\",\"minimum\":2}}}", {"2",
         "5"}, {"1", "6"}},
        {"{\"$ref\":\"#/definitions/t\",\"definitions\":{\"t\":{\"type\":\"object\","
         "\"properties\":{\"n\":{\"$ref\":\"#/definitions/t\"},"
         "\"v\":{\"not\":{\"$ref\":\"#/definitions/t\"}}}}}}", {"{\"n\":{\"n\":{}},\"v\":1}"}, {"{\"v\":{}}", "1"}},
        {"{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"a\",\"b\"]},\"n\":{\"type\":\"integer\"}},"
         "\"required\":[\"kind\"],"
         "\"if\":{\"properties\":{\"kind\":{\"const\":\"a\"}}},\"then\":{\"required\":[\"n\"]},"
         "\"else\":{\"properties\":{\"n\":false}}}",
         {"{\"kind\":\"a\",\"n\":1}", "{\"kind\":\"b\"}"}, {"{\"kind\":\"a\"}", "{\"kind\":\"b\",\"n\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"dependentRequired\":{\"a\":[\"b\"]}}",
         {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}"}, {"{\"a\":1}", "{\"a\":1,\"c\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{\"type\":\"integer\"}},"
         "\"dependencies\":{\"a\":{\"properties\":{\"b\":{\"minimum\":5}},"
         "\"required\":[\"b\"]}}}", {"{\"b\":1}", "{\"a\":1,\"b\":5}"}, {"{\"a\":1}", "{\"a\":1,\"b\":4}"}},
        {"{\"not\":{\"type\":[\"object\",\"array\",\"string\",\"number\"]}}", {"true", "null"}, {"1", "{}", "[]",
         "\"\""}},
        {"{\"not\":{\"not\":{\"type\":\"integer\"}}}", {"1"}, {"1.5", "\"\""}},
        {"{\"type\":\"boolean\",\"not\":{\"const\":true}}", {"false"}, {"true"}},
        {"{\"not\":{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":5}]},\"type\":[\"string\",\"integer\"]}", {"4",
         "-1"}, {"5", "\"\""}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"extends\":{\"x\":1},\"type\":\"integer\","
         "\"x-note\":{}}", {"1"}, {"\"\""}},
        {"{\"$id\":\"http://e/a\",\"$ref\":\"b\",\"$defs\":{\"b\":{\"$id\":\"http://e/b\",\"$ref\":\"#/$defs/c\","
         "\"$defs\":{\"c\":{\"type\":\"null\"}}}}}",
         {"null"}, {"1"}},
    };
    CHECK(r);
}

/* ----------------------------------------------------------------------------------------------------------- lists */

static void lists(void **state)
{
    (void) state;
    static const rule r[] = {
        {"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
         "\"additionalItems\":false}", /* draft 7 */
         {"[]", "[1]", "[1,\"\"]"}, {"[\"\"]", "[1,\"\",2]", "[1,2]"}},
        {"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"}],\"additionalItems\":{\"type\":\"null\"}}",
         {"[1,null,null]"}, {"[1,2]", "[null]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":\"null\"},"
         "\"minItems\":1}", {"[1]", "[1,null]"}, {"[]", "[1,1]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":1000000}", {"[]", "[1,2,3]"}, {"[\"\"]"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},\"uniqueItems\":true}", {"[]",
         "[\"b\",\"a\"]", "[\"c\",\"a\",\"b\"]"},
         {"[\"a\",\"a\"]", "[\"a\",\"b\",\"a\"]"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[0,1,2,3,4,5,6,7,8,9]},\"uniqueItems\":true,\"minItems\":2,"
         "\"maxItems\":3}",
         {"[1,2]", "[0,5,9]"}, {"[1]", "[1,1]", "[0,1,2,3]", "[]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"uniqueItems\":true}", {"[true,false]", "[false]"},
         {"[true,true]", "[true,false,true]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5}}", {"[5]", "[1,7]",
         "[9,1,1]"}, {"[]", "[1,2]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},\"minContains\":2,"
         "\"maxContains\":2,\"maxItems\":4}",
         {"[5,6]", "[1,5,2,6]"}, {"[5]", "[5,6,7]", "[1,1,1,5,6]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"null\"]},\"contains\":{\"type\":\"null\"},"
         "\"minContains\":0,\"maxContains\":1}",
         {"[]", "[1,null]"}, {"[null,null]"}},
        {"{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"integer\"}}}", {"[\"\"]", "[1,\"\"]"}, {"[]", "[1,2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"unevaluatedItems\":false}", {"[1]", "[]"},
         {"[1,2]"}},
    };
    CHECK(r);
}

/* --------------------------------------------------------------------------------------------------------- refused */

static void refused(void **state)
{
    (void) state;
    static const struct { const char *schema, *why; } r[] = {
        {"{\"properties\":{\"a/b\":{\"type\":\"array\",\"uniqueItems\":true}},\"required\":[\"a/b\"]}",
         "#/properties/a~1b/uniqueItems: "},
        {"{\"type\":\"integer\",\"minimum\":\"5\"}", "#/minimum: it is a string: give a number"},
        {"{\"type\":\"strin\"}", "#/type: give null, boolean"},
        {"{\"items\":{\"$ref\":\"#/$defs/x\"}}", "#/items/$ref: there is no \"#/$defs/x\""},
        {"{\"items\":{\"$ref\":\"http://x/y\"}}", "#/items/$ref: \"http://x/y\" is in another document"},
        {"{\"type\":\"string\",\"maxLength\":-1}", "#/maxLength: give a non-negative integer"},
        {"{\"type\":\"integer\",\"multipleOf\":0}", "#/multipleOf: give a number above 0"},
        {"{\"type\":\"integer\",\"multipleOf\":123457}", "#/multipleOf: "},
        {"{\"anyOf\":[]}", "#/anyOf: give a list of schemas"},
        {"{\"$dynamicRef\":\"#a\"}", "#/$dynamicRef: this keyword is not supported"},
        {"{\"not\":{\"type\":\"array\",\"uniqueItems\":true},\"type\":\"array\"}", "allows no text"},
        {"{\"not\":{\"uniqueItems\":true}}", "#/not: a schema with uniqueItems cannot be negated"},
        {"{\"allOf\":[{\"unevaluatedProperties\":false}]}", "#/allOf/0/unevaluatedProperties: "},
        {"{\"$schema\":\"http://json-schema.org/draft-03/schema#\",\"disallow\":\"string\"}", "#/disallow: "},
        {"{\"type\":\"object\",\"minProperties\":3}", "#/minProperties: 3 is not supported"},
    };
    for (size_t i = 0; i < sizeof r / sizeof *r; i++) {
        pi_error err = {0};
        pi__grammar *g = NULL;
        const pi__grammar_spec spec = {PI__GRAMMAR_SCHEMA, r[i].schema, NULL, 0};
        const int rc = pi__grammar_get(all, &spec, &g, &err);
        if (rc != PI_EINVAL && rc != PI_EUNSUPPORTED) fail_msg("%s: code %d", r[i].schema, rc);
        if (!strstr(err.msg, r[i].why)) fail_msg("%s: %s", r[i].schema, err.msg);
    }
}

/* Choices that multiply, exploding automata and long chains end with a message after bounded work. */
static void hostile(void **state)
{
    (void) state;
    static char text[1 << 18];
    for (int kind = 0; kind < 5; kind++) {
        pi_error err = {0};
        pi__grammar *g = NULL;
        size_t n = 0;
        const int count = kind == 1 ? 1 : 24;
        n += (size_t) snprintf(text + n, sizeof text - n, "{\"type\":\"object\",\"allOf\":[");
        for (int i = 0; i < count; i++) {
            static const char *const form[] = {
                "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
                "%s{\"patternProperties\":{\"(a|b)*a(a|b){%d}(a|b){%d}\":{}}}",
                "%s{\"dependentRequired\":{\"a%d\":[\"b%d\"]}}",
                "%s{\"not\":{\"required\":[\"a%d\",\"b%d\"]}}",
                "%s{\"oneOf\":[{\"properties\":{\"a%d\":{\"minimum\":1}}},"
                "{\"properties\":{\"b%d\":{\"maximum\":1}}}]}"};
            const int number = kind == 1 ? 20 : i;
            n += (size_t) snprintf(text + n, sizeof text - n, form[kind], i ? "," : "", number, number);
        }
        snprintf(text + n, sizeof text - n, "]}");
        const pi__grammar_spec spec = {PI__GRAMMAR_SCHEMA, text, NULL, 0};
        const int rc = pi__grammar_get(all, &spec, &g, &err);
        if (rc != PI_EINVAL && rc != PI_EUNSUPPORTED && rc) fail_msg("%d: code %d", kind, rc);
        if (rc && !err.msg[0]) fail_msg("%d: no message", kind);
        pi__grammar_release(g);
    }
}

/* Each allocation fails in turn: an error, no leak, no crash. */
static void out_of_memory(void **state)
{
    (void) state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^2\"},"
         "\"n\":{\"multipleOf\":3,\"type\":\"integer\"}},"
        "\"patternProperties\":{\"^x\":{\"not\":{\"enum\":[\"a\",2]}}},"
         "\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"n\"]}],"
        "\"if\":{\"required\":[\"a\"]},\"then\":{\"minProperties\":1}}";
    const pi__grammar_spec spec = {PI__GRAMMAR_SCHEMA, schema, NULL, 0};
    bool done = false;
    for (long n = 0; !done && n < 4000; n++) {
        counting_alloc a;
        pi__grammars *gs = NULL;
        pi__grammar *g = NULL;
        pi_error err = {0};
        counting_use(&a, n);
        int rc = pi__grammars_create(&gs, vocab, pi__vocab_size(vocab), NULL, 0, &err);
        if (!rc) rc = pi__grammar_get(gs, &spec, &g, &err);
        done = !rc;
        if (rc && rc != PI_ENOMEM) fail_msg("%s", err.msg);
        pi__grammar_release(g);
        pi__grammars_free(gs);
        pi_set_allocator(NULL);
        assert_int_equal(a.live, 0);
    }
    assert_true(done);
}

static int setup(void **state)
{
    (void) state;
    pi_error err = {0};
    seed s;
    seed_spm(&s);
    if (seed_load(&s, &vocab, &err)) return 1;
    return pi__grammars_create(&all, vocab, pi__vocab_size(vocab), NULL, 0, NULL);
}

static int teardown(void **state)
{
    (void) state;
    pi__grammars_free(all);
    pi__vocab_free(vocab);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds), cmocka_unit_test(multiples), cmocka_unit_test(texts), cmocka_unit_test(formats),
        cmocka_unit_test(names), cmocka_unit_test(combined), cmocka_unit_test(lists), cmocka_unit_test(refused),
        cmocka_unit_test(hostile), cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("schema", tests, setup, teardown);
}
