/* Templates whose marks say which form calls of tools have, as short as can be; and the tags of DeepSeek R1 and V3.1, and of Kimi K2. */
#ifndef TESTS_CHAT_FORMS_H
#define TESTS_CHAT_FORMS_H

#define D "\xEF\xBD\x9C" "DSML" "\xEF\xBD\x9C"
#define HERMES "{{ messages[0].content }} {# <tool_call> #}"
#define QWEN "{{ messages[0].content }} {# <tool_call> <function= <parameter= #}"
#define FUNCTIONS "{{ messages[0].content }} {# <function= #}"
#define GEMMA "{{ messages[0].content }} {# <|tool_call> #}"
#define LISTS "{{ messages[0].content }} {# [TOOL_CALLS] #}"
#define LLAMA "{{ messages[0].content }} {# <|python_tag|> #}"
#define GLM "{{ messages[0].content }} {# <tool_call> <arg_key> #}"
#define V4 "{{ messages[0].content }} {# " D " #}"
#define DEEP(words) "<\xEF\xBD\x9Ctool\xE2\x96\x81" words "\xEF\xBD\x9C>"
#define CALLS DEEP("calls\xE2\x96\x81" "begin")
#define CALLS_END DEEP("calls\xE2\x96\x81" "end")
#define CALL DEEP("call\xE2\x96\x81" "begin")
#define CALL_END DEEP("call\xE2\x96\x81" "end")
#define SEP DEEP("sep")
#define R1 "{{ messages[0].content }} {# " CALLS "```json #}"
#define V31 "{{ messages[0].content }} {# " CALLS " #}"
#define KIMI_CALLS "<|tool_calls_section_begin|>"
#define KIMI_END "<|tool_call_end|>"
#define KIMI_CALLS_END "<|tool_calls_section_end|>"
#define KIMI_CALL(id) "<|tool_call_begin|>" id "<|tool_call_argument_begin|>"
#define KIMI "{{ messages[0].content }} {# " KIMI_CALLS " #}"

#endif
