/* Chat templates by name, for models whose file has none or a bad one: the names of llama.cpp's --chat-template. Each
 * row is Jinja text with the same output for system, user and assistant messages. Tools need a model's own template.
 * The rows serve the options' help and chat_names.c; no memory, no state. */
#ifndef PI__CHAT_NAMES_H
#define PI__CHAT_NAMES_H

#define PI__TPL_CONTENT "{{ m.content or '' }}"
#define PI__TPL_TRIM "{{ (m.content or '') | trim }}"
#define PI__TPL_EACH "{% for m in messages %}"
#define PI__TPL_END(gen) "{% endfor %}{% if add_generation_prompt %}" gen "{% endif %}"
/* before the role, between role and content, after the content; start of the assistant's turn */
#define PI__TPL_ROLES(before, between, content, behind, gen)                                                           \
    PI__TPL_EACH before "{{ m.role }}" between content behind PI__TPL_END(gen)
/* text for each system, user, assistant and other message */
#define PI__TPL_TURNS(system, user, assistant, others, gen)                                                            \
    PI__TPL_EACH "{% if m.role == 'system' %}" system "{% elif m.role == 'user' %}" user                               \
    "{% elif m.role == 'assistant' %}" assistant "{% else %}" others "{% endif %}" PI__TPL_END(gen)
/* open: start of the first turn; again: start of later turns; an assistant message ends a turn */
#define PI__TPL_INST(open, again, system, user, assistant)                                                             \
    PI__TPL_EACH "{% if loop.first %}" open "{% elif messages[loop.index0 - 1].role not in ['system', 'user'] %}"      \
    again "{% endif %}{% if m.role == 'system' %}" system "{% elif m.role == 'user' %}" user "{% else %}" assistant    \
    "{% endif %}{% endfor %}"
#define PI__TPL_LLAMA2(again, system, content)                                                                         \
    PI__TPL_INST("[INST] ", again, system, content " [/INST]", content "</s>")
#define PI__TPL_LLAMA2_SYS(content) "<<SYS>>\n" content "\n<</SYS>>\n\n"
#define PI__TPL_MISTRAL(open, user_end, assistant)                                                                     \
    PI__TPL_INST(open, open, PI__TPL_CONTENT "\n\n", PI__TPL_CONTENT user_end, assistant "</s>")
/* Puts the system text before the first user's text. */
#define PI__TPL_MERGED(system) "{% set ns = namespace(system='') %}" PI__TPL_EACH                                      \
    "{% if m.role == 'system' %}{% set ns.system = ns.system + " system " %}{% else %}"
#define PI__TPL_MERGE "{% if ns.system %}{{ ns.system }}{{ '\\n\\n' }}{% set ns.system = '' %}{% endif %}"
#define PI__TPL_GRANITE PI__TPL_ROLES("<|start_of_role|>", "<|end_of_role|>", PI__TPL_CONTENT, "<|end_of_text|>\n",    \
                                      "<|start_of_role|>assistant<|end_of_role|>")
#define PI__TPL_EXAONE(user, others)                                                                                   \
    PI__TPL_TURNS("[|system|]" PI__TPL_TRIM "[|endofturn|]\n", "[|user|]" PI__TPL_TRIM "\n",                           \
                  "[|assistant|]" PI__TPL_TRIM "[|endofturn|]\n", others, "[|assistant|]")
#define PI__TPL_BAILING(begin, behind, gen)                                                                            \
    begin PI__TPL_EACH "<role>{% if m.role == 'user' %}HUMAN{% else %}{{ m.role | upper }}{% endif %}</role>"          \
    PI__TPL_CONTENT behind PI__TPL_END("<role>ASSISTANT</role>" gen)

#define PI__CHAT_NAMES(X)                                                                                              \
    X("chatml", PI__TPL_ROLES("<|im_start|>", "{{ '\\n' }}", PI__TPL_CONTENT, "<|im_end|>\n", "<|im_start|>assistant\n")) \
    X("llama2", PI__TPL_LLAMA2("[INST] ", PI__TPL_CONTENT "\n", PI__TPL_CONTENT))                                      \
    X("llama2-sys", PI__TPL_LLAMA2("[INST] ", PI__TPL_LLAMA2_SYS(PI__TPL_CONTENT), PI__TPL_CONTENT))                   \
    X("llama2-sys-bos", PI__TPL_LLAMA2("<s>[INST] ", PI__TPL_LLAMA2_SYS(PI__TPL_CONTENT), PI__TPL_CONTENT))            \
    X("llama2-sys-strip", PI__TPL_LLAMA2("[INST] ", PI__TPL_LLAMA2_SYS(PI__TPL_TRIM), PI__TPL_TRIM))                   \
    X("llama3", PI__TPL_ROLES("<|start_header_id|>", "<|end_header_id|>\n\n", PI__TPL_TRIM, "<|eot_id|>",              \
                              "<|start_header_id|>assistant<|end_header_id|>\n\n"))                                    \
    X("llama4", PI__TPL_ROLES("<|header_start|>", "<|header_end|>\n\n", PI__TPL_TRIM, "<|eot|>",                       \
                              "<|header_start|>assistant<|header_end|>\n\n"))                                          \
    X("mistral-v1", PI__TPL_MISTRAL(" [INST] ", " [/INST]", " " PI__TPL_CONTENT))                                      \
    X("mistral-v3", PI__TPL_MISTRAL("[INST] ", "[/INST]", " " PI__TPL_TRIM))                                           \
    X("mistral-v3-tekken", PI__TPL_MISTRAL("[INST]", "[/INST]", PI__TPL_CONTENT))                                      \
    X("mistral-v7", PI__TPL_TURNS("[SYSTEM_PROMPT] " PI__TPL_CONTENT "[/SYSTEM_PROMPT]",                               \
                                  "[INST] " PI__TPL_CONTENT "[/INST]", " " PI__TPL_CONTENT "</s>",                     \
                                  " " PI__TPL_CONTENT "</s>", ""))                                                     \
    X("mistral-v7-tekken", PI__TPL_TURNS("[SYSTEM_PROMPT]" PI__TPL_CONTENT "[/SYSTEM_PROMPT]",                         \
                                         "[INST]" PI__TPL_CONTENT "[/INST]", PI__TPL_CONTENT "</s>",                   \
                                         PI__TPL_CONTENT "</s>", ""))                                                  \
    X("gemma", PI__TPL_MERGED("(m.content or '') | trim")                                                              \
      "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}{{ '\\n' }}"                                   \
      "{% if m.role != 'assistant' %}" PI__TPL_MERGE "{% endif %}" PI__TPL_TRIM "<end_of_turn>\n{% endif %}"           \
      PI__TPL_END("<start_of_turn>model\n"))                                                                           \
    X("phi3", PI__TPL_ROLES("<|", "|>\n", PI__TPL_CONTENT, "<|end|>\n", "<|assistant|>\n"))                            \
    X("phi4", PI__TPL_ROLES("<|im_start|>", "<|im_sep|>", PI__TPL_CONTENT, "<|im_end|>", "<|im_start|>assistant<|im_sep|>")) \
    X("falcon3", PI__TPL_ROLES("<|", "|>\n", PI__TPL_CONTENT, "\n", "<|assistant|>\n"))                                \
    X("zephyr", PI__TPL_ROLES("<|", "|>\n", PI__TPL_CONTENT, "<|endoftext|>\n", "<|assistant|>\n"))                    \
    X("monarch", PI__TPL_EACH "{% if not loop.first %}<s>{% endif %}{{ m.role }}{{ '\\n' }}" PI__TPL_CONTENT "</s>\n"  \
      PI__TPL_END("<s>assistant\n"))                                                                                   \
    X("orion", PI__TPL_MERGED("(m.content or '')") "{% if m.role == 'user' %}Human: " PI__TPL_MERGE PI__TPL_CONTENT    \
      "\n\nAssistant: </s>{% else %}" PI__TPL_CONTENT "</s>{% endif %}{% endif %}{% endfor %}")                        \
    X("openchat", PI__TPL_TURNS(PI__TPL_CONTENT "<|end_of_turn|>", "GPT4 Correct User: " PI__TPL_CONTENT "<|end_of_turn|>", \
                                "GPT4 Correct Assistant: " PI__TPL_CONTENT "<|end_of_turn|>",                          \
                                "GPT4 Correct {{ m.role | capitalize }}: " PI__TPL_CONTENT "<|end_of_turn|>",          \
                                "GPT4 Correct Assistant:"))                                                            \
    X("vicuna", PI__TPL_TURNS(PI__TPL_CONTENT "\n\n", "USER: " PI__TPL_CONTENT "\n", "ASSISTANT: " PI__TPL_CONTENT "</s>\n", \
                              "", "ASSISTANT:"))                                                                       \
    X("vicuna-orca", PI__TPL_TURNS("SYSTEM: " PI__TPL_CONTENT "\n", "USER: " PI__TPL_CONTENT "\n",                     \
                                   "ASSISTANT: " PI__TPL_CONTENT "</s>\n", "", "ASSISTANT:"))                          \
    X("deepseek", PI__TPL_TURNS(PI__TPL_CONTENT, "### Instruction:\n" PI__TPL_CONTENT "\n",                            \
                                "### Response:\n" PI__TPL_CONTENT "\n<|EOT|>\n", "", "### Response:\n"))               \
    X("deepseek2", PI__TPL_TURNS(PI__TPL_CONTENT "\n\n", "User: " PI__TPL_CONTENT "\n\n",                              \
                                 "Assistant: " PI__TPL_CONTENT "<｜end▁of▁sentence｜>", "", "Assistant:"))                  \
    X("deepseek3", PI__TPL_TURNS(PI__TPL_CONTENT "\n\n", "<｜User｜>" PI__TPL_CONTENT,                                  \
                                 "<｜Assistant｜>" PI__TPL_CONTENT "<｜end▁of▁sentence｜>", "", "<｜Assistant｜>"))           \
    X("deepseek-ocr", PI__TPL_EACH PI__TPL_CONTENT "{% endfor %}")                                                     \
    X("command-r", PI__TPL_TURNS("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>" PI__TPL_TRIM "<|END_OF_TURN_TOKEN|>",       \
                                 "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>" PI__TPL_TRIM "<|END_OF_TURN_TOKEN|>",         \
                                 "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>" PI__TPL_TRIM "<|END_OF_TURN_TOKEN|>", "",  \
                                 "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"))                                          \
    X("chatglm3", "[gMASK]sop" PI__TPL_ROLES("<|", "|>\n ", PI__TPL_CONTENT, "", "<|assistant|>"))                     \
    X("chatglm4", "[gMASK]<sop>" PI__TPL_ROLES("<|", "|>\n", PI__TPL_CONTENT, "", "<|assistant|>\n"))                  \
    X("glmedge", PI__TPL_ROLES("<|", "|>\n", PI__TPL_CONTENT, "", "<|assistant|>"))                                    \
    X("minicpm", PI__TPL_EACH "{% if m.role == 'user' %}<用户>" PI__TPL_TRIM "<AI>{% else %}" PI__TPL_TRIM               \
      "{% endif %}{% endfor %}")                                                                                       \
    X("exaone3", PI__TPL_EXAONE("", ""))                                                                               \
    X("exaone4", PI__TPL_EXAONE("", "{% if m.role == 'tool' %}[|tool|]" PI__TPL_TRIM "[|endofturn|]\n{% endif %}"))    \
    X("exaone-moe", PI__TPL_ROLES("<|", "|>\n", PI__TPL_TRIM, "<|endofturn|>\n", "<|assistant|>\n"))                   \
    X("rwkv-world", PI__TPL_TURNS("System: " PI__TPL_TRIM "\n\n",                                                      \
                                  "User: " PI__TPL_TRIM "\n\n{% if loop.last %}Assistant:{% endif %}",                 \
                                  "Assistant: " PI__TPL_TRIM "\n\n", "", ""))                                          \
    X("granite", PI__TPL_GRANITE)                                                                                      \
    X("granite-4.0", PI__TPL_GRANITE)                                                                                  \
    X("granite-4.1", PI__TPL_GRANITE)                                                                                  \
    X("gigachat", "<s>" PI__TPL_TURNS("{% if loop.first %}" PI__TPL_CONTENT "<|message_sep|>{% endif %}",              \
                                      "user<|role_sep|>" PI__TPL_CONTENT "<|message_sep|>"                             \
                                      "available functions<|role_sep|>[]<|message_sep|>",                              \
                                      "assistant<|role_sep|>" PI__TPL_CONTENT "<|message_sep|>", "", "assistant<|role_sep|>")) \
    X("megrez", PI__TPL_ROLES("<|role_start|>", "<|role_end|>", PI__TPL_CONTENT, "<|turn_end|>",                       \
                              "<|role_start|>assistant<|role_end|>"))                                                  \
    X("yandex", PI__TPL_TURNS("", " Пользователь: " PI__TPL_CONTENT "\n\n", " Ассистент: " PI__TPL_CONTENT "\n\n", "",  \
                              " Ассистент:[SEP]"))                                                                      \
    X("bailing", PI__TPL_BAILING("", "", ""))                                                                          \
    X("bailing-think", PI__TPL_BAILING("", "", "<think>"))                                                             \
    X("bailing2", PI__TPL_BAILING("{% if not messages or messages[0].role != 'system' %}<role>SYSTEM</role>"           \
                                  "detailed thinking off<|role_end|>{% endif %}", "<|role_end|>", ""))                 \
    X("smolvlm", "<|im_start|>" PI__TPL_TURNS(PI__TPL_CONTENT "\n\n", "User: " PI__TPL_CONTENT "<end_of_utterance>\n", \
                                              "Assistant: " PI__TPL_CONTENT "<end_of_utterance>\n",                    \
                                              "Assistant: " PI__TPL_CONTENT "<end_of_utterance>\n", "Assistant:"))     \
    X("hunyuan-moe", PI__TPL_TURNS("<|startoftext|>" PI__TPL_CONTENT "<|extra_4|>",                                    \
                                   "<|startoftext|>" PI__TPL_CONTENT "<|extra_0|>", PI__TPL_CONTENT "<|eos|>",         \
                                   "<|startoftext|>" PI__TPL_CONTENT "<|extra_0|>", ""))                               \
    X("hunyuan-dense", PI__TPL_TURNS("{% if loop.first %}" PI__TPL_CONTENT "<｜hy_place▁holder▁no▁3｜>{% endif %}",      \
                                     "<｜hy_User｜>" PI__TPL_CONTENT "<｜hy_Assistant｜>",                               \
                                     "<｜hy_Assistant｜>" PI__TPL_CONTENT "<｜hy_place▁holder▁no▁2｜>", "", ""))           \
    X("hunyuan-vl", "<｜hy_begin▁of▁sentence｜>"                                                                         \
      PI__TPL_TURNS("{% if loop.first %}" PI__TPL_CONTENT "<｜hy_place▁holder▁no▁3｜>{% endif %}",                       \
                    PI__TPL_CONTENT "<｜hy_User｜>", PI__TPL_CONTENT "<｜hy_Assistant｜>", "", ""))                      \
    X("gpt-oss", PI__TPL_EACH "<|start|>{{ m.role }}<|message|>" PI__TPL_CONTENT                                       \
      "{{ '<|return|>' if m.role == 'assistant' else '<|end|>' }}" PI__TPL_END("<|start|>assistant"))                  \
    X("kimi-k2", PI__TPL_TURNS("<|im_system|>system<|im_middle|>" PI__TPL_CONTENT "<|im_end|>",                        \
                               "<|im_user|>user<|im_middle|>" PI__TPL_CONTENT "<|im_end|>",                            \
                               "<|im_assistant|>assistant<|im_middle|>" PI__TPL_CONTENT "<|im_end|>",                  \
                               "{% if m.role == 'tool' %}<|im_system|>tool<|im_middle|>{% endif %}" PI__TPL_CONTENT "<|im_end|>", \
                               "<|im_assistant|>assistant<|im_middle|>"))                                              \
    X("seed_oss", PI__TPL_EACH "<seed:bos>{{ m.role }}{{ '\\n' }}{% if m.role == 'assistant' %}" PI__TPL_TRIM "{% else %}" \
      PI__TPL_CONTENT "{% endif %}<seed:eos>" PI__TPL_END("<seed:bos>assistant\n"))                                    \
    X("grok-2", PI__TPL_TURNS("System: " PI__TPL_TRIM "<|separator|>\n\n", "Human: " PI__TPL_TRIM "<|separator|>\n\n", \
                              "Assistant: " PI__TPL_CONTENT "<|separator|>\n\n", "", "Assistant:"))                    \
    X("pangu-embedded", PI__TPL_EACH "{% if loop.first and m.role != 'system' %}[unused9]系统：[unused10]{% endif %}"     \
      "{% if m.role == 'system' %}[unused9]系统：{% elif m.role == 'user' %}[unused9]用户：{% elif m.role == 'assistant' %}" \
      "[unused9]助手：{% elif m.role == 'tool' %}[unused9]工具：{% else %}[unused9]方法：{% endif %}" PI__TPL_CONTENT    \
      "[unused10]" PI__TPL_END("[unused9]助手："))                                                                      \
    X("solar-open", PI__TPL_ROLES("<|begin|>", "<|content|>", PI__TPL_CONTENT, "<|end|>", "<|begin|>assistant"))

/* " chatml llama2 ...", for help texts. */
#define PI__CHAT_NAME(name, ...) " " name
#define PI__CHAT_NAME_LIST PI__CHAT_NAMES(PI__CHAT_NAME)

/* Returns the template with this name; NULL if it does not exist. */
const char *pi__chat_named(const char *name);

#endif
