/* Minimal templates, one per tool call format; the parser recognizes the format from their marks. Also the tags of
 * DeepSeek R1 and V3.1 and of Kimi K2. */
#ifndef TESTS_CHAT_FORMS_H
#define TESTS_CHAT_FORMS_H

#define D "\xEF\xBD\x9C" "DSML" "\xEF\xBD\x9C"
#define FORM_SHOWS "{{ messages[0].content }}{{ tools or '' }} "
#define HERMES FORM_SHOWS "{# <tool_call> #}"
#define QWEN FORM_SHOWS "{# <tool_call> <function= <parameter= #}"
#define FUNCTIONS FORM_SHOWS "{# <function= #}"
#define GEMMA FORM_SHOWS "{# <|tool_call> #}"
#define LISTS FORM_SHOWS "{# [TOOL_CALLS] #}"
#define LLAMA FORM_SHOWS "{# <|python_tag|> #}"
#define GLM FORM_SHOWS "{# <tool_call> <arg_key> #}"
#define V4 FORM_SHOWS "{# " D " #}"
#define DEEP(words) "<\xEF\xBD\x9Ctool\xE2\x96\x81" words "\xEF\xBD\x9C>"
#define CALLS DEEP("calls\xE2\x96\x81" "begin")
#define CALLS_END DEEP("calls\xE2\x96\x81" "end")
#define CALL DEEP("call\xE2\x96\x81" "begin")
#define CALL_END DEEP("call\xE2\x96\x81" "end")
#define SEP DEEP("sep")
#define R1 FORM_SHOWS "{# " CALLS "```json #}"
#define V31 FORM_SHOWS "{# " CALLS " #}"
#define KIMI_CALLS "<|tool_calls_section_begin|>"
#define KIMI_END "<|tool_call_end|>"
#define KIMI_CALLS_END "<|tool_calls_section_end|>"
#define KIMI_CALL(id) "<|tool_call_begin|>" id "<|tool_call_argument_begin|>"
#define V41 FORM_SHOWS "{# <" D " calls> #}"
#define K3 FORM_SHOWS "{# <|open|> <|sep|> #}"
#define LFM2 FORM_SHOWS "{# <|tool_call_start|> #}"
#define LLAMA4 FORM_SHOWS "{# <|python_start|> #}"
#define R7B FORM_SHOWS "{# <|START_ACTION|> \"tool_name\" #}"
#define NEMOTRON FORM_SHOWS "{# <TOOLCALL>[ #}"
#define APERTUS FORM_SHOWS "{# <|tools_prefix|> <|tools_suffix|> #}"
#define HY3 FORM_SHOWS "{# <tool_sep{}> ':opensource' #}"
#define HY3_KEY(key) "<arg_key:opensource>" key "</arg_key:opensource>"
#define HY3_VALUE(value) "<arg_value:opensource>" value "</arg_value:opensource>"
#define GENERIC "{% for m in messages %}{{ m.content }}{% endfor %}"
#define KIMI FORM_SHOWS "{# " KIMI_CALLS " #}"

#endif
