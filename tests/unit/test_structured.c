/* Structured output through the public interface, on tiny random models. Every answer satisfies its constraint, and
 * is the same in any batch, with and without forced tokens or drafts, and after preemption. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "pagedinfer.h"
#include "random_model.h"
#include "template/value.h"

static char model[256], drafted[256];

#define LIST(...) ((const char *const[]) {__VA_ARGS__, NULL})
#define SCHEMA                                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":6},\"n\":{\"type\":\"integer\"," \
    "\"minimum\":-5,\"maximum\":120},\"list\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"maxItems\":3}},"  \
    "\"required\":[\"name\",\"n\"]}"

static void set_all(void *object, int (*set)(void *, const char *, const char *, pi_error *), const char *const *kv)
{
    for (; kv && *kv; kv++) {
        char key[64];
        pi_error err = {0};
        snprintf(key, sizeof key, "%.*s", (int) strcspn(*kv, "="), *kv);
        if (set(object, key, strchr(*kv, '=') + 1, &err)) fail_msg("%s", err.msg);
    }
}

static int set_option(void *o, const char *k, const char *v, pi_error *err) { return pi_options_set(o, k, v, err); }
static int set_request(void *r, const char *k, const char *v, pi_error *err) { return pi_request_set(r, k, v, err); }

static pi_engine *open_with(const char *path, const char *const *kv)
{
    pi_options *o = pi_options_new();
    pi_error err = {0};
    pi_engine *e = NULL;
    set_all(o, set_option, (const char *const[]) {"threads=2", "ctx-size=400", "kv-cache-tokens=4096", NULL});
    if (pi_options_set(o, "model", path, &err)) fail_msg("%s", err.msg);
    set_all(o, set_option, kv);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return e;
}

static pi_request *request_of(pi_engine *e, const char *prompt, const char *const *kv)
{
    pi_request *r = pi_request_new(e);
    pi_error err = {0};
    if (pi_request_prompt_text(r, prompt, strlen(prompt), &err)) fail_msg("%s", err.msg);
    set_all(r, set_request, kv);
    return r;
}

typedef struct answer {
    int32_t ids[400];
    size_t n;
    char text[2000];
    int reason;
} answer;

static void take(pi_engine *e, pi_request *r, uint32_t sample, answer *a)
{
    pi_result s = {.size = sizeof s};
    assert_int_equal(pi_request_wait(r, 60000), PI_OK);
    assert_int_equal(pi_request_sample(r, sample, &s), PI_OK);
    if (s.code) fail_msg("%s", s.msg);
    a->reason = s.finish_reason;
    a->n = pi_request_sample_tokens(r, sample, a->ids, 400);
    while (a->n && a->ids[a->n - 1] == TINY_EOS) a->n--;
    const int64_t n = pi_detokenize(e, a->ids, a->n, PI_TOK_SPECIAL, a->text, sizeof a->text - 1);
    assert_true(n >= 0 && n < (int64_t) sizeof a->text);
    a->text[n] = 0;
}

static void ask(pi_engine *e, const char *prompt, const char *const *kv, answer *a)
{
    pi_request *r = request_of(e, prompt, kv);
    pi_error err = {0};
    if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
    take(e, r, 0, a);
    pi_request_free(r);
}

/* Checks that the answer matches SCHEMA. */
static void check_person(const answer *a)
{
    pi__zone z;
    pi__val v;
    pi_error err;
    pi__zone_init(&z, 1 << 20);
    if (pi__json_read(&z, a->text, strlen(a->text), "the answer", &v, &err)) fail_msg("%s in %s", err.msg, a->text);
    assert_int_equal(v.type, PI__V_MAP);
    const pi__val *name = pi__dict_get_str(v.map, "name"), *n = pi__dict_get_str(v.map, "n"),
        *l = pi__dict_get_str(v.map, "list");
    assert_true(name && name->type == PI__V_STR && pi__str_length(name->s) <= 6);
    assert_true(n && n->type == PI__V_INT && n->i >= -5 && n->i <= 120);
    assert_true(!l || (l->type == PI__V_LIST && l->list->n <= 3));
    assert_true(v.map->n == (l ? 3u : 2u));
    pi__zone_free(&z);
}

static void same(const answer *a, const answer *b)
{
    if (a->n != b->n || memcmp(a->ids, b->ids, a->n * sizeof *a->ids)) fail_msg("%s\nis not\n%s", a->text, b->text);
}

/* ----------------------------------------------------------------------------------------------------------- tests */

enum { N_SEEDS = 6 };

/* Generates answers of SCHEMA for some seeds, the first one greedy; concurrently if at_once, otherwise one by one. */
static void people(pi_engine *e, bool at_once, const char *const *more, answer *out)
{
    pi_request *r[N_SEEDS];
    for (int i = 0; i < N_SEEDS; i++) {
        char seed[32];
        pi_error err = {0};
        snprintf(seed, sizeof seed, "seed=%d", i);
        r[i] = request_of(e, "ab hello", LIST("json-schema=" SCHEMA, i ? "temp=1.5" : "temp=0", "top-k=0", "min-p=0",
                                              "top-p=1", seed));
        set_all(r[i], set_request, more);
        if (pi_request_submit(r[i], &err)) fail_msg("%s", err.msg);
        if (!at_once) take(e, r[i], 0, &out[i]);
    }
    for (int i = 0; i < N_SEEDS; i++) {
        take(e, r[i], 0, &out[i]);
        pi_request_free(r[i]);
        if (out[i].reason == PI_FINISH_STOP) check_person(&out[i]);
    }
}

static void answers_have_the_form(void **state)
{
    (void) state;
    static answer alone[N_SEEDS], now[N_SEEDS];
    pi_engine *e = open_with(model, NULL);
    int complete = 0;
    people(e, false, NULL, alone);
    for (int i = 0; i < N_SEEDS; i++) complete += alone[i].reason == PI_FINISH_STOP;
    assert_true(complete > N_SEEDS / 2);
    people(e, true, NULL, now); /* in a batch */
    for (int i = 0; i < N_SEEDS; i++) same(&now[i], &alone[i]);
    people(e, true, LIST("logprobs=3"), now); /* with full logits rows */
    for (int i = 0; i < N_SEEDS; i++) same(&now[i], &alone[i]);
    pi_engine_close(e);
    e = open_with(model, LIST("kv-cache-tokens=480", "ctx-size=400", "prefix-cache=false"));
        /* too few cache tokens for all: sequences wait or are preempted */
    people(e, true, NULL, now);
    for (int i = 0; i < N_SEEDS; i++) same(&now[i], &alone[i]);
    pi_engine_close(e);
}

static void nothing(void *ud, uint32_t pos, const float *row, size_t n) { (void) pos, (void) row, (void) n,
                                                                         ++*(int *) ud; }

/* Tokens without an alternative take no steps of their own, and a request for all logits rows gets equal results. */
static void jumping_ahead(void **state)
{
    (void) state;
    static answer fast, slow;
    static const char *const form[] =
        {"grammar=root ::= \"\\n\" [x-z] \"########################################\" [0-9] \"\\n\"", "temp=0.9",
                                       "seed=7", "logprobs=2", NULL};
    pi_engine *e = open_with(model, NULL);
    pi_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    pi_error err = {0};
    int rows = 0;
    assert_int_equal(pi_engine_stats(e, &before), PI_OK);
    ask(e, "ab", form, &fast);
    assert_int_equal(pi_engine_stats(e, &after), PI_OK);
    assert_int_equal(strlen(fast.text), 44);
    assert_int_equal(fast.reason, PI_FINISH_STOP);
    assert_true(after.n_steps - before.n_steps < 12);
    pi_request *r = request_of(e, "ab", form);
    set_all(r, set_request, LIST("logits=generated"));
    pi_request_on_logits(r, nothing, &rows);
    if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
    take(e, r, 0, &slow);
    pi_request_free(r);
    assert_true(rows >= 40);
    same(&fast, &slow);
    pi_engine_close(e);
}

static void drafts(void **state)
{
    (void) state;
    static answer want[N_SEEDS], got[N_SEEDS];
    pi_engine *e = open_with(drafted, LIST("spec-type=none"));
    people(e, true, NULL, want);
    pi_engine_close(e);
    e = open_with(drafted, LIST("spec-type=mtp", "spec-adaptive=false", "spec-draft-n-max=3"));
    people(e, true, NULL, got);
    for (int i = 0; i < N_SEEDS; i++) same(&got[i], &want[i]);
    pi_engine_close(e);
}

static void other_forms(void **state)
{
    (void) state;
    static answer a;
    pi_engine *e = open_with(model, NULL);
    ask(e, "ab", LIST("choice=[\"yes\", \"no\", \"n\xC3\xA9\"]", "temp=1"), &a);
    assert_true(!strcmp(a.text, "yes") || !strcmp(a.text, "no") || !strcmp(a.text, "n\xC3\xA9"));
    ask(e, "ab", LIST("regex=\\d{3}-[a-f]{2}", "temp=1"), &a);
    assert_int_equal(strlen(a.text), 6);
    assert_true(a.text[3] == '-' && a.text[0] >= '0' && a.text[0] <= '9' && a.text[5] >= 'a' && a.text[5] <= 'f');
    /* the constraint takes precedence */
    ask(e, "ab", LIST("choice=[\"yes\"]", "ignore-eos=true", "min-tokens=50"), &a);
    assert_string_equal(a.text, "yes");
    ask(e, "ab", LIST("choice=[\"yes\"]", "no-stop=true"), &a);
    assert_string_equal(a.text, "yes");
    ask(e, "ab", LIST("regex=a{90,}", "max-tokens=9"), &a);
    assert_int_equal(a.reason, PI_FINISH_LENGTH);
    ask(e, "ab", LIST("regex=\\d+", "grammar-trigger=[\"h\", \"e\", \"l\", \"o\", \"a\", \"b\", \"c\"]",
                      "max-tokens=60", "temp=2", "top-k=0", "min-p=0"), &a);
    /* these tokens do not trigger the grammar */
    for (char *c; (c = strstr(a.text, "<bos>")) || (c = strstr(a.text, "<pad>"));) memset(c, '.', 5);
    const char *t = strpbrk(a.text, "heloabc");
    if (t) assert_int_equal(strlen(t + 1), strspn(t + 1, "0123456789"));
    pi_engine_close(e);
}

static void samples_and_cancels(void **state)
{
    (void) state;
    static answer a;
    pi_engine *e = open_with(model, NULL);
    pi_error err = {0};
    pi_request *r = request_of(e, "hello", LIST("n=4", "json-schema=" SCHEMA, "temp=1.5", "seed=11"));
    if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
    for (uint32_t i = 0; i < 4; i++) {
        take(e, r, i, &a);
        if (a.reason == PI_FINISH_STOP) check_person(&a);
    }
    pi_request_free(r);
    for (int i = 0; i < 20; i++) {
        r = request_of(e, "hello", LIST("json-schema=" SCHEMA, "temp=1.5"));
        if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
        if (i % 2) usleep((unsigned) i * 200);
        pi_request_cancel(r);
        pi_request_free(r);
    }
    pi_engine_close(e);
}

/* Very many active grammar states; a mask takes longer than a step may wait. */
static const char *slow_form(void)
{
    static char text[120000];
    size_t k = (size_t) sprintf(text, "regex=");
    for (int i = 0; i < 3000; i++) k += (size_t) sprintf(text + k, "%s[^0-9]{9,%d}%d", i ? "|" : "", 500 + i, i);
    return text;
}

/* A sequence with a pending mask skips steps, while others continue; it continues later with unchanged results. It
 * can be canceled, exceed its deadline, or still wait when the engine closes. */
static void slow_masks(void **state)
{
    (void) state;
    static answer alone, now, other, free_alone;
    const char *const *slow = LIST(slow_form(), "max-tokens=12", "temp=1", "seed=3"),
        *const *quick = LIST("json-schema=" SCHEMA, "temp=1", "seed=4", "max-tokens=60");
    pi_engine *e = open_with(model, NULL);
    pi_error err = {0};
    ask(e, "ab", slow, &alone);
    ask(e, "ab", quick, &free_alone);
    assert_int_equal(alone.n, 12);
    pi_engine_close(e);
    e = open_with(model, NULL);
    pi_request *r = request_of(e, "ab", slow);
    if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
    ask(e, "ab", quick, &other);
    take(e, r, 0, &now);
    pi_request_free(r);
    same(&other, &free_alone);
    same(&now, &alone);
    pi_engine_close(e);
    e = open_with(drafted, LIST("spec-type=mtp", "spec-adaptive=false", "spec-draft-n-max=3"));
    ask(e, "ab", LIST(slow_form(), "max-tokens=12", "temp=0"), &now);
    ask(e, "ab", LIST(slow_form(), "max-tokens=12", "temp=0"), &other); /* all masks are cached now */
    same(&now, &other);
    pi_engine_close(e);
    e = open_with(model, NULL);
    for (int i = 0; i < 6; i++) {
        r = request_of(e, "hello", LIST(slow_form(), i % 2 ? "deadline=0.005" : "temp=1", "max-tokens=300"));
        if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
        if (i % 3) usleep((unsigned) i * 2000);
        if (i % 2 == 0) pi_request_cancel(r);
        assert_int_equal(pi_request_wait(r, 60000), PI_OK);
        pi_request_free(r);
    }
    r = request_of(e, "hello", slow);
    if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
    pi_request_free(r); /* its mask may still be pending */
    pi_engine_close(e);
}

static void refused(void **state)
{
    (void) state;
    static const struct { const char *kv[3]; const char *why;
    } cases[] = {
        {{"grammar=root ::= \"a\nb ::=", NULL}, "line 1"},
        {{"json-schema={\"type\": \"object\"", NULL}, "line 1"},
        {{"json-schema={\"type\": \"array\", \"uniqueItems\": true}", NULL}, "json-schema: #/uniqueItems: "},
        {{"regex=(?=a)", NULL}, "lookahead"},
        {{"choice=[]", NULL}, "JSON array"},
        {{"regex=a", "choice=[\"a\"]"}, "one constraint"},
        {{"grammar-trigger=[\"a\"]", NULL}, "no constraint to start"},
    };
    pi_engine *e = open_with(model, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi_error err = {0};
        pi_request *r = request_of(e, "ab", cases[i].kv);
        assert_true(pi_request_submit(r, &err) < 0);
        if (!strstr(err.msg, cases[i].why)) fail_msg("%s: %s", cases[i].kv[0], err.msg);
        pi_request_free(r);
    }
    pi_engine_close(e);
}

static int setup(void **state)
{
    (void) state;
    return tiny_write(tiny_path(model, "structured"), NULL, NULL) ||
           tiny_write(tiny_path(drafted, "structured-mtp"), &(tiny_spec) {.arch = "qwen35"}, NULL);
}

static int teardown(void **state)
{
    (void) state;
    return unlink(model) | unlink(drafted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_have_the_form), cmocka_unit_test(jumping_ahead), cmocka_unit_test(drafts),
        cmocka_unit_test(other_forms), cmocka_unit_test(samples_and_cancels), cmocka_unit_test(slow_masks),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("structured", tests, setup, teardown);
}
