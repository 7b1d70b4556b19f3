/* The table of formats (see chat_form.h). A new one that is like another is a row. */
#include "template/chat_form.h"

#include <string.h>

#define BAR "\xEF\xBD\x9C" /* U+FF5C */
#define DSML BAR "DSML" BAR
#define LOW "\xE2\x96\x81" /* U+2581 */
#define DEEP(words) "<" BAR words BAR ">"
#define CALLS(end) DEEP("tool" LOW "calls" LOW end)
#define CALL(end) DEEP("tool" LOW "call" LOW end)
#define SEP DEEP("tool" LOW "sep")

static const pi__chat_form forms[] = {
    {.name = "harmony", .kind = PI__FORM_HARMONY, .sign = {"<|channel|>", "<|message|>"},
     .open = "<|channel|>commentary to=functions."},
    {.name = "minimax-m3", .sign = {"]<]minimax[>["}},
    {.name = "apriel", .sign = {"<tool_calls>["}},
    {.name = "deepseek-v3.2", .kind = PI__FORM_TAGS, .body = PI__BODY_PARAMS, .sign = {DSML, "function_calls>"},
     .open = "<" DSML "function_calls>", .close = "</" DSML "function_calls>",
     .call = "<" DSML "invoke name=\"", .call_end = "\">", .call_close = "</" DSML "invoke>",
     .param = "<" DSML "parameter name=\"", .key_end = "\"", .param_close = "</" DSML "parameter>", .attribute = true},
    {.name = "deepseek-v4", .kind = PI__FORM_TAGS, .body = PI__BODY_PARAMS, .sign = {DSML},
     .open = "<" DSML "tool_calls>", .close = "</" DSML "tool_calls>",
     .call = "<" DSML "invoke name=\"", .call_end = "\">", .call_close = "</" DSML "invoke>",
     .param = "<" DSML "parameter name=\"", .key_end = "\"", .param_close = "</" DSML "parameter>", .attribute = true},
    {.name = "deepseek-r1", .kind = PI__FORM_TAGS, .body = PI__BODY_ARGUMENTS, .sign = {CALLS("begin"), "```json"},
     .open = CALLS("begin"), .close = CALLS("end"),
     .call = CALL("begin") "function" SEP, .call_end = "\n```json\n", .call_close = "```" CALL("end")},
    {.name = "deepseek-v3.1", .kind = PI__FORM_TAGS, .body = PI__BODY_ARGUMENTS, .sign = {CALLS("begin")},
     .open = CALLS("begin"), .close = CALLS("end"), .call = CALL("begin"), .call_end = SEP, .call_close = CALL("end")},
    {.name = "kimi-k2", .kind = PI__FORM_TAGS, .body = PI__BODY_ARGUMENTS, .sign = {"<|tool_calls_section_begin|>"},
     .open = "<|tool_calls_section_begin|>", .close = "<|tool_calls_section_end|>",
     .call = "<|tool_call_begin|>", .prefix = "functions.", .call_end = "<|tool_call_argument_begin|>",
     .call_close = "<|tool_call_end|>"},
    {.name = "gemma4", .kind = PI__FORM_GEMMA, .sign = {"<|tool_call>"}, .open = "<|tool_call>",
     .close = "<tool_call|>"},
    {.name = "mistral", .kind = PI__FORM_MISTRAL, .sign = {"[TOOL_CALLS]"}, .open = "[TOOL_CALLS]"},
    {.name = "seed", .kind = PI__FORM_TAGS, .body = PI__BODY_PARAMS, .sign = {"<seed:tool_call>"},
     .open = "<seed:tool_call>", .close = "</seed:tool_call>",
     .call = "<function=", .call_end = ">", .call_close = "</function>",
     .param = "<parameter=", .key_end = ">", .param_close = "</parameter>"},
    {.name = "minimax", .kind = PI__FORM_TAGS, .body = PI__BODY_PARAMS, .sign = {"minimax:tool_call", "<invoke name="},
     .open = "<minimax:tool_call>", .close = "</minimax:tool_call>",
     .call = "<invoke name=\"", .call_end = "\">", .call_close = "</invoke>",
     .param = "<parameter name=\"", .key_end = "\">", .param_close = "</parameter>"},
    {.name = "glm", .kind = PI__FORM_TAGS, .body = PI__BODY_PARAMS, .sign = {"<tool_call>", "<arg_key>"},
     .open = "<tool_call>", .call_close = "</tool_call>",
     .param = "<arg_key>", .key_end = "</arg_key>", .value = "<arg_value>", .param_close = "</arg_value>"},
    {.name = "qwen3.5", .kind = PI__FORM_TAGS, .body = PI__BODY_PARAMS, .sign = {"<function=", "<parameter="},
     .open = "<tool_call>", .close = "</tool_call>",
     .call = "<function=", .call_end = ">", .call_close = "</function>",
     .param = "<parameter=", .key_end = ">", .param_close = "</parameter>", .newline = true},
    {.name = "functions", .kind = PI__FORM_TAGS, .body = PI__BODY_ARGUMENTS, .sign = {"<function="},
     .open = "<tool_call>", .close = "</tool_call>", .lone = true,
     .call = "<function=", .call_end = ">", .call_close = "</function>",
     .param = "<parameter=", .key_end = ">", .param_close = "</parameter>", .newline = true},
    {.name = "hermes", .kind = PI__FORM_TAGS, .body = PI__BODY_JSON, .sign = {"<tool_call>"},
     .open = "<tool_call>", .close = "</tool_call>",
     .call = "<function=", .call_end = ">", .call_close = "</function>",
     .param = "<parameter=", .key_end = ">", .param_close = "</parameter>", .newline = true},
    {.name = "llama3", .kind = PI__FORM_LLAMA, .sign = {"<|python_tag|>"}, .open = "<|python_tag|>"},
    {.name = "llama3", .kind = PI__FORM_LLAMA, .sign = {"ipython", "\"parameters\": "}, .open = "<|python_tag|>"},
};

const pi__chat_form *pi__chat_form_of(pi__str t)
{
    for (size_t i = 0; t.n && i < sizeof forms / sizeof *forms; i++) {
        bool all = true;
        for (int k = 0; k < 2; k++) {
            const char *s = forms[i].sign[k];
            all = all && (!s || memmem(t.p, t.n, s, strlen(s)));
        }
        if (all) return forms[i].kind == PI__FORM_NONE ? NULL : &forms[i];
    }
    return NULL;
}

const pi__thought_tags pi__thought_tags_of[PI__N_THOUGHT_TAGS] = {
    {"<think>", "</think>", false}, {"<|channel>thought", "<channel|>", true}, {"[THINK]", "[/THINK]", false},
    {"<seed:think>", "</seed:think>", false}, {"<thinking>", "</thinking>", false},
};

int pi__thought_open_at_end(const char *text, size_t n)
{
    while (n && strchr(" \n\r\t", text[n - 1]) && text[n - 1]) n--;
    for (int i = 0; i < PI__N_THOUGHT_TAGS; i++) {
        size_t len = strlen(pi__thought_tags_of[i].open);
        if (n >= len && !memcmp(text + n - len, pi__thought_tags_of[i].open, len)) return i;
    }
    return -1;
}
