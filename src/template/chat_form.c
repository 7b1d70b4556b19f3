/* The table of formats (see chat_form.h). A format similar to an existing one needs only a row. */
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
     .open = "<|channel|>commentary to=functions.", .answer_open = "<|channel|>final<|message|>"},
    {.name = "minimax-m3", .sign = {"]<]minimax[>["}},
    {.name = "apriel", .kind = PI__FORM_MISTRAL, .sign = {"<tool_calls>["}, .open = "<tool_calls>",
     .close = "</tool_calls>"},
    {.name = "nemotron-v2", .kind = PI__FORM_MISTRAL, .sign = {"<TOOLCALL>["}, .open = "<TOOLCALL>",
     .close = "</TOOLCALL>"},
    {.name = "command-r7b", .kind = PI__FORM_MISTRAL, .sign = {"<|START_ACTION|>", "\"tool_name\""},
     .open = "<|START_ACTION|>", .close = "<|END_ACTION|>", .name_word = "tool_name", .args_word = "parameters",
     .answer_open = "<|START_RESPONSE|>", .answer_close = "<|END_RESPONSE|>"},
    {.name = "granite3", .kind = PI__FORM_MISTRAL, .sign = {"<|tool_call|>", "JSON list of tools"},
     .open = "<|tool_call|>"},
    {.name = "lfm2", .kind = PI__FORM_PYTHON, .sign = {"<|tool_call_start|>"}, .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>"},
    {.name = "lfm2", .kind = PI__FORM_PYTHON, .sign = {"List of tools: <|tool_list_start|>["},
     .open = "<|tool_call_start|>", .close = "<|tool_call_end|>"},
    {.name = "lfm2", .kind = PI__FORM_PYTHON, .sign = {"List of tools: [", "keep_past_thinking"},
     .open = "<|tool_call_start|>", .close = "<|tool_call_end|>"},
    {.name = "llama4", .kind = PI__FORM_PYTHON, .sign = {"<|python_start|>"}, .open = "<|python_start|>",
     .close = "<|python_end|>", .bare = true},
    {.name = "kimi-k3", .kind = PI__FORM_TAGS, .body = PI__BODY_PARAMS, .sign = {"<|open|>", "<|sep|>"}, .xtml = true,
     .open = "<|open|>tools<|sep|>", .close = "<|close|>tools<|sep|>",
     .call = "<|open|>call tool=\"", .call_end = "<|sep|>", .call_close = "<|close|>call<|sep|>",
     .param = "<|open|>argument key=\"", .key_end = "<|sep|>", .param_close = "<|close|>argument<|sep|>",
     .answer_open = "<|open|>response<|sep|>", .answer_close = "<|close|>response<|sep|>",
     .end = "<|close|>message<|sep|>"},
    {.name = "deepseek-v4.1", .kind = PI__FORM_TAGS, .body = PI__BODY_PARAMS, .sign = {"<" DSML " calls>"},
     .open = "<" DSML " calls>", .close = "</" DSML " calls>",
     .call = "<" DSML " invoke name=\"", .call_end = "\">", .call_close = "</" DSML " invoke>",
     .param = "<" DSML " parameter name=\"", .key_end = "\"", .param_close = "</" DSML " parameter>", .attribute = true},
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
     .call_close = "<|tool_call_end|>", .section = true, .spaces = true},
    {.name = "gemma4", .kind = PI__FORM_GEMMA, .sign = {"<|tool_call>"}, .open = "<|tool_call>",
     .close = "<tool_call|>", .spaces = true},
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
    {.name = "llama3", .kind = PI__FORM_LLAMA, .sign = {"<|python_tag|>"}, .open = "<|python_tag|>", .spaces = true},
    {.name = "llama3", .kind = PI__FORM_LLAMA, .sign = {"ipython", "\"parameters\": "}, .open = "<|python_tag|>", .spaces = true},
};

const pi__chat_form pi__chat_form_generic = {
    .name = "generic", .kind = PI__FORM_TAGS, .body = PI__BODY_JSON, .open = "<tool_call>", .close = "</tool_call>",
    .call = "<function=", .call_end = ">", .call_close = "</function>",
    .param = "<parameter=", .key_end = ">", .param_close = "</parameter>", .newline = true,
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

const pi__reasoning_tags pi__thought_tags_of[PI__N_THOUGHT_TAGS] = {
    {"<think>", "</think>", false}, {"<|channel>thought", "<channel|>", true}, {"[THINK]", "[/THINK]", false},
    {"<seed:think>", "</seed:think>", false}, {"<thinking>", "</thinking>", false},
    {"<|START_THINKING|>", "<|END_THINKING|>", false}, {"<|open|>think<|sep|>", "<|close|>think<|sep|>", false},
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
