/* Names of repositories, cache folders and model files: valid ones are parsed, all others are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hub_names.h"

static void names_of_repositories(void **state)
{
    (void) state;
    char id[257], quant[65], text[600];
    assert_true(hub_split_name("user/na-me.1:q4_k_m", id, quant));
    assert_string_equal(id, "user/na-me.1");
    assert_string_equal(quant, "q4_k_m");
    assert_true(hub_split_name("u/n", id, quant));
    assert_string_equal(quant, "");
    static const char *const bad[] = {
        "",     "u",      "/n",   "u/",   "u/n/f",   "../n",    "u/..",  "-u/n",     "u/n:",
        "u//n", "u/n--m", ".u/n", "u/n.", "u/n:a/b", "u/n:a:b", "u n/m", "u/n\x1b", "u\\v/n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(hub_split_name(bad[i], id, quant));
    memset(text, 'a', sizeof text);
    text[1] = '/';
    text[257] = 0;
    assert_false(hub_split_name(text, id, quant));
    text[256] = 0;
    assert_true(hub_split_name(text, id, quant));
}

static void folders_of_repositories(void **state)
{
    (void) state;
    char id[257], text[600] = "models--u--";
    assert_true(hub_id_of_folder("models--user--na-me.1", id));
    assert_string_equal(id, "user/na-me.1");
    static const char *const bad[] = {
        "",               "models--",       "models--u",        "models--u--",    "models----n",
        "model--u--n",    "models--u--n--m", "models--..--n",   "models--u--..",  "models--u--n/m",
        "models--u/v--n", "datasets--u--n", "models--u--n\x1b", "models--u---n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(hub_id_of_folder(bad[i], id));
    memset(text + 11, 'n', 500);
    assert_false(hub_id_of_folder(text, id));
}

static void links_to_blobs(void **state)
{
    (void) state;
    char oid[65], link[200];
    static const char hash[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    snprintf(link, sizeof link, "../../blobs/%s", hash);
    assert_true(hub_blob_of_link(link, 2, oid));
    assert_string_equal(oid, hash);
    assert_false(hub_blob_of_link(link, 1, oid));
    assert_false(hub_blob_of_link(link, 3, oid));
    snprintf(link, sizeof link, "../../../blobs/%.40s", hash);
    assert_true(hub_blob_of_link(link, 3, oid));
    static const char *const form[] = {
        "../../blobs/%.39s",  "../../blobs/%.40s/", "../../blobs/../%.40s", "/blobs/%.40s",
        "../..//blobs/%.40s", "../../blob/%.40s",   "../../blobs/%.40s ",   "../../blobs/%.63sx"};
    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(link, sizeof link, form[i], hash);
#pragma GCC diagnostic pop
        assert_false(hub_blob_of_link(link, 2, oid));
    }
}

static void paths_inside(void **state)
{
    (void) state;
    static const char *const good[] = {"a", "a/b.gguf", "a..b", ".a", "a/.b"};
    static const char *const bad[] = {"",       "/",    "/a", "a/",  "..",    "a/..", "../a",
                                      "a/../b", "a//b", ".",  "./a", "a\\b", "a\nb", "a\x7f"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(hub_is_inside(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(hub_is_inside(bad[i]));
}

static void quantizations(void **state)
{
    (void) state;
    static const char *const cases[][2] = {
        {"m-Q4_K_M.gguf", "Q4_K_M"},         {"m.q8_0.gguf", "Q8_0"},
        {"m-IQ2_XXS-00001-of-00002.gguf", "IQ2_XXS"},
        {"Q6_K/m-00001-of-00002.gguf", "Q6_K"}, {"m-UD-Q4_K_XL.gguf", "Q4_K_XL"}, {"m_TQ1_0.gguf", "TQ1_0"},
        {"m-BF16.gguf", "BF16"},             {"m-f32.gguf", "F32"},               {"m-mxfp4_moe.gguf", "MXFP4_MOE"},
        {"m-MXFP4.gguf", "MXFP4"},           {"m.gguf", ""},                      {"Qwen3-1B.gguf", ""},
        {"q4-model-Q5_0.gguf", "Q5_0"},      {"Q4_K_M", ""},                      {"", ""},
        {"mQ4_0.gguf", ""},                  {"m-Q.gguf", ""},                    {"m-IF16.gguf", ""},
        {"m-Q4_.gguf", ""},                  {"m-F16x.gguf", ""},                 {"m-Q4_0_4_8.gguf", "Q4_0_4_8"}};
    char quant[65], text[400] = "m-Q4";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hub_quant_of(cases[i][0], quant);
        assert_string_equal(quant, cases[i][1]);
        if (*quant && !strchr(cases[i][0], '/')) assert_true(hub_has_quant(cases[i][0], quant));
    }
    for (size_t n = 4; n < 300; n += 2) memcpy(text + n, "_0", 3);
    strcat(text, ".gguf");
    hub_quant_of(text, quant); /* longer than a quant may be */
    assert_string_equal(quant, "");
}

static void parts(void **state)
{
    (void) state;
    assert_int_equal(hub_parts("m-00002-of-00003.gguf"), 3);
    assert_int_equal(hub_part_number("m-00002-of-00003.gguf"), 2);
    char *name = hub_part_name("d/m-00002-of-00003.gguf", 1);
    assert_string_equal(name, "d/m-00001-of-00003.gguf");
    free(name);
    static const char *const single[] = {
        "m.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-0001-of-00003.gguf",
        "",       "-00001-of-00003.gguf",  "m-00001-of-00003.bin"};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        assert_int_equal(hub_parts(single[i]), 1);
        assert_int_equal(hub_part_number(single[i]), 1);
        name = hub_part_name(single[i], 1);
        assert_string_equal(name, single[i]);
        free(name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_repositories), cmocka_unit_test(folders_of_repositories),
        cmocka_unit_test(links_to_blobs),        cmocka_unit_test(paths_inside),
        cmocka_unit_test(quantizations),         cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
