/* Fuzzes the answer parser: the first byte selects a template, the second the cut points, the rest is the text. Two
 * different cuts must give the same content, thoughts and calls. Arguments are JSON objects. Without thoughts and
 * calls the content is the text. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "template/answer.h"
#include "vocab_seed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define D "\xEF\xBD\x9C" "DSML" "\xEF\xBD\x9C"

static const char *const templates[] = {
    "{{ 1 }}{# <tool_call> #}", "{{ 1 }}{# <tool_call> <function= <parameter= #}", "{{ 1 }}{# <function= #}",
    "{{ 1 }}{# <|tool_call> #}", "{{ 1 }}{# [TOOL_CALLS] #}", "{{ 1 }}{# <|python_tag|> #}",
    "{{ 1 }}{# <tool_call> <arg_key> #}", "{{ 1 }}{# " D " #}",
    "{{ 1 }}{# <\xEF\xBD\x9Ctool\xE2\x96\x81" "calls\xE2\x96\x81" "begin\xEF\xBD\x9C> ```json #}",
    "{{ 1 }}{# <|channel|> <|message|> #}", "{{ 1 }}{# minimax:tool_call <invoke name= #}<think>",
};
enum { N_TEMPLATES = sizeof templates / sizeof *templates };

static const char tools[] =
    "[{\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\"}, "
    "\"b\": {\"type\": \"integer\"}, \"c\": {\"type\": \"object\"}, \"d\": {\"type\": [\"string\", \"null\"]}}}}]";

static pi__vocab *vocab;
static pi__chat *chat[N_TEMPLATES];

static void check(bool ok)
{
    if (!ok) __builtin_trap();
}

static void load(void)
{
    seed s;
    pi_error err;
    seed_gpt2(&s);
    check(!seed_load(&s, &vocab, &err));
    for (int i = 0; i < N_TEMPLATES; i++) check(!pi__chat_new(&chat[i], vocab, templates[i], NULL, &err));
}

/* Takes all available deltas; a call is committed from its first delta to its last, or never. */
static void take_deltas(pi__answer *a, bool *sure)
{
    pi_chat_delta d = {.size = sizeof d};
    while (pi__answer_next(a, &d)) {
        check(d.kind > 0);
        if (d.kind == PI_CHAT_CALL) *sure = d.sure;
        check(d.sure == (d.kind >= PI_CHAT_CALL && *sure));
    }
}

/* Feeds the text in pieces of `step` bytes; takes deltas now or at the end. From byte `bind` on, a grammar constrains
 * it. */
static pi__answer *parse(const pi__chat *c, const char *text, size_t n, size_t step, bool take, size_t bind)
{
    pi__answer *a;
    pi_error err;
    bool sure = false;
    check(!pi__answer_new(&a, c, tools, NULL, 0, &err));
    for (size_t at = 0; at < n; at += step) {
        check(!pi__answer_feed(a, text + at, n - at < step ? n - at : step));
        if (at >= bind) pi__answer_bind(a);
        if (take) take_deltas(a, &sure);
    }
    check(!pi__answer_end(a, false));
    take_deltas(a, &sure);
    return a;
}

static bool same(pi__str a, pi__str b) { return pi__str_eq(a, b); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!vocab) load();
    if (size < 2) return 0;
    const pi__chat *c = chat[data[0] % N_TEMPLATES];
    size_t step = 1 + data[1] % 16, n = size - 2;
    const char *text = (const char *) data + 2;
    pi__answer *a = parse(c, text, n, n + 1, false, SIZE_MAX), *b = parse(c, text, n, step, true, data[1] / 16);
    check(same(pi__answer_content(a), pi__answer_content(b)) && same(pi__answer_reasoning(a), pi__answer_reasoning(b)));
    check(pi__answer_calls(a) == pi__answer_calls(b));
    for (uint32_t i = 0; i < pi__answer_calls(a); i++) {
        pi_chat_call x = {.size = sizeof x}, y = {.size = sizeof y};
        check(pi__answer_call(a, i, &x) && pi__answer_call(b, i, &y) && !strcmp(x.name, y.name) &&
              !strcmp(x.arguments, y.arguments));
        pi__zone z;
        pi__val v;
        pi__zone_init(&z, 1 << 26);
        check(!pi__json_read(&z, x.arguments, x.arguments_len, "arguments", &v, NULL) && v.type == PI__V_MAP);
        pi__zone_free(&z);
    }
    /* Without tags and calls, the content equals the text. */
    bool tags = n && (memmem(text, n, "<", 1) || memmem(text, n, "[", 1) || data[0] % N_TEMPLATES == N_TEMPLATES - 1);
    if (!tags && !pi__answer_calls(a) && pi__utf8_valid(text, n) == n)
        check(same(pi__answer_content(a), (pi__str) {text, n}));
    pi__answer_free(a);
    pi__answer_free(b);
    return 0;
}
