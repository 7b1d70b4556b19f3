/* What llama.cpp makes of three conversations for each of its template names; by gen_chat_names.py. */
#ifndef CHAT_NAMES_EXPECTED_H
#define CHAT_NAMES_EXPECTED_H

static const struct {
    const char *name, *text[3];
} chat_names_expected[] = {
    {"bailing", {
        "<role>SYSTEM</role>Be brief.<role>HUMAN</role>Hi.<role>ASSISTANT</role>Hello!<role>HUMAN</"
        "role>Who are you?<role>ASSISTANT</role>",
        "<role>HUMAN</role>Hi.<role>ASSISTANT</role>",
        "<role>SYSTEM</role> S \n<role>HUMAN</role>  hi\n<role>ASSISTANT</role> yo <role>HUMAN</rol"
        "e>x <role>ASSISTANT</role>end ",
    }},
    {"bailing-think", {
        "<role>SYSTEM</role>Be brief.<role>HUMAN</role>Hi.<role>ASSISTANT</role>Hello!<role>HUMAN</"
        "role>Who are you?<role>ASSISTANT</role><think>",
        "<role>HUMAN</role>Hi.<role>ASSISTANT</role><think>",
        "<role>SYSTEM</role> S \n<role>HUMAN</role>  hi\n<role>ASSISTANT</role> yo <role>HUMAN</rol"
        "e>x <role>ASSISTANT</role>end ",
    }},
    {"bailing2", {
        "<role>SYSTEM</role>Be brief.<|role_end|><role>HUMAN</role>Hi.<|role_end|><role>ASSISTANT</"
        "role>Hello!<|role_end|><role>HUMAN</role>Who are you?<|role_end|><role>ASSISTANT</role>",
        "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>Hi.<|role_end|><role"
        ">ASSISTANT</role>",
        "<role>SYSTEM</role> S \n<|role_end|><role>HUMAN</role>  hi\n<|role_end|><role>ASSISTANT</r"
        "ole> yo <|role_end|><role>HUMAN</role>x <|role_end|><role>ASSISTANT</role>end <|role_end|>",
    }},
    {"chatglm3", {
        "[gMASK]sop<|system|>\n Be brief.<|user|>\n Hi.<|assistant|>\n Hello!<|user|>\n Who are you"
        "?<|assistant|>",
        "[gMASK]sop<|user|>\n Hi.<|assistant|>",
        "[gMASK]sop<|system|>\n  S \n<|user|>\n   hi\n<|assistant|>\n  yo <|user|>\n x <|assistant|"
        ">\n end ",
    }},
    {"chatglm4", {
        "[gMASK]<sop><|system|>\nBe brief.<|user|>\nHi.<|assistant|>\nHello!<|user|>\nWho are you?<"
        "|assistant|>\n",
        "[gMASK]<sop><|user|>\nHi.<|assistant|>\n",
        "[gMASK]<sop><|system|>\n S \n<|user|>\n  hi\n<|assistant|>\n yo <|user|>\nx <|assistant|>"
        "\nend ",
    }},
    {"chatml", {
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assi"
        "stant\nHello!<|im_end|>\n<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>system\n S \n<|im_end|>\n<|im_start|>user\n  hi\n<|im_end|>\n<|im_start|>assis"
        "tant\n yo <|im_end|>\n<|im_start|>user\nx <|im_end|>\n<|im_start|>assistant\nend <|im_end|"
        ">\n",
    }},
    {"command-r", {
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be brief.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN"
        "|><|USER_TOKEN|>Hi.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hello!<|EN"
        "D_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Who are you?<|END_OF_TURN_TOKEN|><|S"
        "TART_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHAT"
        "BOT_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER"
        "_TOKEN|>hi<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>yo<|END_OF_TURN_TOK"
        "EN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>x<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CH"
        "ATBOT_TOKEN|>end<|END_OF_TURN_TOKEN|>",
    }},
    {"deepseek", {
        "Be brief.### Instruction:\nHi.\n### Response:\nHello!\n<|EOT|>\n### Instruction:\nWho are "
        "you?\n### Response:\n",
        "### Instruction:\nHi.\n### Response:\n",
        " S \n### Instruction:\n  hi\n\n### Response:\n yo \n<|EOT|>\n### Instruction:\nx \n### Res"
        "ponse:\nend \n<|EOT|>\n",
    }},
    {"deepseek-ocr", {
        "Be brief.Hi.Hello!Who are you?",
        "Hi.",
        " S \n  hi\n yo x end ",
    }},
    {"deepseek2", {
        "Be brief.\n\nUser: Hi.\n\nAssistant: Hello!<｜end▁of▁sentence｜>User: Who are you?\n\nAssist"
        "ant:",
        "User: Hi.\n\nAssistant:",
        " S \n\n\nUser:   hi\n\n\nAssistant:  yo <｜end▁of▁sentence｜>User: x \n\nAssistant: end <｜en"
        "d▁of▁sentence｜>",
    }},
    {"deepseek3", {
        "Be brief.\n\n<｜User｜>Hi.<｜Assistant｜>Hello!<｜end▁of▁sentence｜><｜User｜>Who are you?<｜Assist"
        "ant｜>",
        "<｜User｜>Hi.<｜Assistant｜>",
        " S \n\n\n<｜User｜>  hi\n<｜Assistant｜> yo <｜end▁of▁sentence｜><｜User｜>x <｜Assistant｜>end <｜en"
        "d▁of▁sentence｜>",
    }},
    {"exaone-moe", {
        "<|system|>\nBe brief.<|endofturn|>\n<|user|>\nHi.<|endofturn|>\n<|assistant|>\nHello!<|end"
        "ofturn|>\n<|user|>\nWho are you?<|endofturn|>\n<|assistant|>\n",
        "<|user|>\nHi.<|endofturn|>\n<|assistant|>\n",
        "<|system|>\nS<|endofturn|>\n<|user|>\nhi<|endofturn|>\n<|assistant|>\nyo<|endofturn|>\n<|u"
        "ser|>\nx<|endofturn|>\n<|assistant|>\nend<|endofturn|>\n",
    }},
    {"exaone3", {
        "[|system|]Be brief.[|endofturn|]\n[|user|]Hi.\n[|assistant|]Hello![|endofturn|]\n[|user|]W"
        "ho are you?\n[|assistant|]",
        "[|user|]Hi.\n[|assistant|]",
        "[|system|]S[|endofturn|]\n[|user|]hi\n[|assistant|]yo[|endofturn|]\n[|user|]x\n[|assistant"
        "|]end[|endofturn|]\n",
    }},
    {"exaone4", {
        "[|system|]Be brief.[|endofturn|]\n[|user|]Hi.\n[|assistant|]Hello![|endofturn|]\n[|user|]W"
        "ho are you?\n[|assistant|]",
        "[|user|]Hi.\n[|assistant|]",
        "[|system|]S[|endofturn|]\n[|user|]hi\n[|assistant|]yo[|endofturn|]\n[|user|]x\n[|assistant"
        "|]end[|endofturn|]\n",
    }},
    {"falcon3", {
        "<|system|>\nBe brief.\n<|user|>\nHi.\n<|assistant|>\nHello!\n<|user|>\nWho are you?\n<|ass"
        "istant|>\n",
        "<|user|>\nHi.\n<|assistant|>\n",
        "<|system|>\n S \n\n<|user|>\n  hi\n\n<|assistant|>\n yo \n<|user|>\nx \n<|assistant|>\nend"
        " \n",
    }},
    {"gemma", {
        "<start_of_turn>user\nBe brief.\n\nHi.<end_of_turn>\n<start_of_turn>model\nHello!<end_of_tu"
        "rn>\n<start_of_turn>user\nWho are you?<end_of_turn>\n<start_of_turn>model\n",
        "<start_of_turn>user\nHi.<end_of_turn>\n<start_of_turn>model\n",
        "<start_of_turn>user\nS\n\nhi<end_of_turn>\n<start_of_turn>model\nyo<end_of_turn>\n<start_o"
        "f_turn>user\nx<end_of_turn>\n<start_of_turn>model\nend<end_of_turn>\n",
    }},
    {"gigachat", {
        "<s>Be brief.<|message_sep|>user<|role_sep|>Hi.<|message_sep|>available functions<|role_sep"
        "|>[]<|message_sep|>assistant<|role_sep|>Hello!<|message_sep|>user<|role_sep|>Who are you?<"
        "|message_sep|>available functions<|role_sep|>[]<|message_sep|>assistant<|role_sep|>",
        "<s>user<|role_sep|>Hi.<|message_sep|>available functions<|role_sep|>[]<|message_sep|>assis"
        "tant<|role_sep|>",
        "<s> S \n<|message_sep|>user<|role_sep|>  hi\n<|message_sep|>available functions<|role_sep|"
        ">[]<|message_sep|>assistant<|role_sep|> yo <|message_sep|>user<|role_sep|>x <|message_sep|"
        ">available functions<|role_sep|>[]<|message_sep|>assistant<|role_sep|>end <|message_sep|>",
    }},
    {"glmedge", {
        "<|system|>\nBe brief.<|user|>\nHi.<|assistant|>\nHello!<|user|>\nWho are you?<|assistant|>",
        "<|user|>\nHi.<|assistant|>",
        "<|system|>\n S \n<|user|>\n  hi\n<|assistant|>\n yo <|user|>\nx <|assistant|>\nend ",
    }},
    {"gpt-oss", {
        "<|start|>system<|message|>Be brief.<|end|><|start|>user<|message|>Hi.<|end|><|start|>assis"
        "tant<|message|>Hello!<|return|><|start|>user<|message|>Who are you?<|end|><|start|>assista"
        "nt",
        "<|start|>user<|message|>Hi.<|end|><|start|>assistant",
        "<|start|>system<|message|> S \n<|end|><|start|>user<|message|>  hi\n<|end|><|start|>assist"
        "ant<|message|> yo <|return|><|start|>user<|message|>x <|end|><|start|>assistant<|message|>"
        "end <|return|>",
    }},
    {"granite", {
        "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n<|start_of_role|>user<|end"
        "_of_role|>Hi.<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Hello!<|end_of_text"
        "|>\n<|start_of_role|>user<|end_of_role|>Who are you?<|end_of_text|>\n<|start_of_role|>assi"
        "stant<|end_of_role|>",
        "<|start_of_role|>user<|end_of_role|>Hi.<|end_of_text|>\n<|start_of_role|>assistant<|end_of"
        "_role|>",
        "<|start_of_role|>system<|end_of_role|> S \n<|end_of_text|>\n<|start_of_role|>user<|end_of_"
        "role|>  hi\n<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|> yo <|end_of_text|>"
        "\n<|start_of_role|>user<|end_of_role|>x <|end_of_text|>\n<|start_of_role|>assistant<|end_o"
        "f_role|>end <|end_of_text|>\n",
    }},
    {"granite-4.0", {
        "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n<|start_of_role|>user<|end"
        "_of_role|>Hi.<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Hello!<|end_of_text"
        "|>\n<|start_of_role|>user<|end_of_role|>Who are you?<|end_of_text|>\n<|start_of_role|>assi"
        "stant<|end_of_role|>",
        "<|start_of_role|>user<|end_of_role|>Hi.<|end_of_text|>\n<|start_of_role|>assistant<|end_of"
        "_role|>",
        "<|start_of_role|>system<|end_of_role|> S \n<|end_of_text|>\n<|start_of_role|>user<|end_of_"
        "role|>  hi\n<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|> yo <|end_of_text|>"
        "\n<|start_of_role|>user<|end_of_role|>x <|end_of_text|>\n<|start_of_role|>assistant<|end_o"
        "f_role|>end <|end_of_text|>\n",
    }},
    {"granite-4.1", {
        "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n<|start_of_role|>user<|end"
        "_of_role|>Hi.<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Hello!<|end_of_text"
        "|>\n<|start_of_role|>user<|end_of_role|>Who are you?<|end_of_text|>\n<|start_of_role|>assi"
        "stant<|end_of_role|>",
        "<|start_of_role|>user<|end_of_role|>Hi.<|end_of_text|>\n<|start_of_role|>assistant<|end_of"
        "_role|>",
        "<|start_of_role|>system<|end_of_role|> S \n<|end_of_text|>\n<|start_of_role|>user<|end_of_"
        "role|>  hi\n<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|> yo <|end_of_text|>"
        "\n<|start_of_role|>user<|end_of_role|>x <|end_of_text|>\n<|start_of_role|>assistant<|end_o"
        "f_role|>end <|end_of_text|>\n",
    }},
    {"grok-2", {
        "System: Be brief.<|separator|>\n\nHuman: Hi.<|separator|>\n\nAssistant: Hello!<|separator|"
        ">\n\nHuman: Who are you?<|separator|>\n\nAssistant:",
        "Human: Hi.<|separator|>\n\nAssistant:",
        "System: S<|separator|>\n\nHuman: hi<|separator|>\n\nAssistant:  yo <|separator|>\n\nHuman:"
        " x<|separator|>\n\nAssistant: end <|separator|>\n\n",
    }},
    {"hunyuan-dense", {
        "Be brief.<｜hy_place▁holder▁no▁3｜><｜hy_User｜>Hi.<｜hy_Assistant｜><｜hy_Assistant｜>Hello!<｜hy_"
        "place▁holder▁no▁2｜><｜hy_User｜>Who are you?<｜hy_Assistant｜>",
        "<｜hy_User｜>Hi.<｜hy_Assistant｜>",
        " S \n<｜hy_place▁holder▁no▁3｜><｜hy_User｜>  hi\n<｜hy_Assistant｜><｜hy_Assistant｜> yo <｜hy_pla"
        "ce▁holder▁no▁2｜><｜hy_User｜>x <｜hy_Assistant｜><｜hy_Assistant｜>end <｜hy_place▁holder▁no▁2｜>",
    }},
    {"hunyuan-moe", {
        "<|startoftext|>Be brief.<|extra_4|><|startoftext|>Hi.<|extra_0|>Hello!<|eos|><|startoftext"
        "|>Who are you?<|extra_0|>",
        "<|startoftext|>Hi.<|extra_0|>",
        "<|startoftext|> S \n<|extra_4|><|startoftext|>  hi\n<|extra_0|> yo <|eos|><|startoftext|>x"
        " <|extra_0|>end <|eos|>",
    }},
    {"hunyuan-vl", {
        "<｜hy_begin▁of▁sentence｜>Be brief.<｜hy_place▁holder▁no▁3｜>Hi.<｜hy_User｜>Hello!<｜hy_Assistan"
        "t｜>Who are you?<｜hy_User｜>",
        "<｜hy_begin▁of▁sentence｜>Hi.<｜hy_User｜>",
        "<｜hy_begin▁of▁sentence｜> S \n<｜hy_place▁holder▁no▁3｜>  hi\n<｜hy_User｜> yo <｜hy_Assistant｜>"
        "x <｜hy_User｜>end <｜hy_Assistant｜>",
    }},
    {"kimi-k2", {
        "<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_user|>user<|im_middle|>Hi.<|im_end"
        "|><|im_assistant|>assistant<|im_middle|>Hello!<|im_end|><|im_user|>user<|im_middle|>Who ar"
        "e you?<|im_end|><|im_assistant|>assistant<|im_middle|>",
        "<|im_user|>user<|im_middle|>Hi.<|im_end|><|im_assistant|>assistant<|im_middle|>",
        "<|im_system|>system<|im_middle|> S \n<|im_end|><|im_user|>user<|im_middle|>  hi\n<|im_end|"
        "><|im_assistant|>assistant<|im_middle|> yo <|im_end|><|im_user|>user<|im_middle|>x <|im_en"
        "d|><|im_assistant|>assistant<|im_middle|>end <|im_end|>",
    }},
    {"llama2", {
        "[INST] Be brief.\nHi. [/INST]Hello!</s>[INST] Who are you? [/INST]",
        "[INST] Hi. [/INST]",
        "[INST]  S \n\n  hi\n [/INST] yo </s>[INST] x  [/INST]end </s>",
    }},
    {"llama2-sys", {
        "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi. [/INST]Hello!</s>[INST] Who are you? [/INST]",
        "[INST] Hi. [/INST]",
        "[INST] <<SYS>>\n S \n\n<</SYS>>\n\n  hi\n [/INST] yo </s>[INST] x  [/INST]end </s>",
    }},
    {"llama2-sys-bos", {
        "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi. [/INST]Hello!</s><s>[INST] Who are you? [/INST]",
        "[INST] Hi. [/INST]",
        "[INST] <<SYS>>\n S \n\n<</SYS>>\n\n  hi\n [/INST] yo </s><s>[INST] x  [/INST]end </s>",
    }},
    {"llama2-sys-strip", {
        "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi. [/INST]Hello!</s>[INST] Who are you? [/INST]",
        "[INST] Hi. [/INST]",
        "[INST] <<SYS>>\nS\n<</SYS>>\n\nhi [/INST]yo</s>[INST] x [/INST]end</s>",
    }},
    {"llama3", {
        "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|"
        "end_header_id|>\n\nHi.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello!<|e"
        "ot_id|><|start_header_id|>user<|end_header_id|>\n\nWho are you?<|eot_id|><|start_header_id"
        "|>assistant<|end_header_id|>\n\n",
        "<|start_header_id|>user<|end_header_id|>\n\nHi.<|eot_id|><|start_header_id|>assistant<|end"
        "_header_id|>\n\n",
        "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_head"
        "er_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nyo<|eot_id|><|star"
        "t_header_id|>user<|end_header_id|>\n\nx<|eot_id|><|start_header_id|>assistant<|end_header_"
        "id|>\n\nend<|eot_id|>",
    }},
    {"llama4", {
        "<|header_start|>system<|header_end|>\n\nBe brief.<|eot|><|header_start|>user<|header_end|>"
        "\n\nHi.<|eot|><|header_start|>assistant<|header_end|>\n\nHello!<|eot|><|header_start|>user"
        "<|header_end|>\n\nWho are you?<|eot|><|header_start|>assistant<|header_end|>\n\n",
        "<|header_start|>user<|header_end|>\n\nHi.<|eot|><|header_start|>assistant<|header_end|>\n"
        "\n",
        "<|header_start|>system<|header_end|>\n\nS<|eot|><|header_start|>user<|header_end|>\n\nhi<|"
        "eot|><|header_start|>assistant<|header_end|>\n\nyo<|eot|><|header_start|>user<|header_end|"
        ">\n\nx<|eot|><|header_start|>assistant<|header_end|>\n\nend<|eot|>",
    }},
    {"megrez", {
        "<|role_start|>system<|role_end|>Be brief.<|turn_end|><|role_start|>user<|role_end|>Hi.<|tu"
        "rn_end|><|role_start|>assistant<|role_end|>Hello!<|turn_end|><|role_start|>user<|role_end|"
        ">Who are you?<|turn_end|><|role_start|>assistant<|role_end|>",
        "<|role_start|>user<|role_end|>Hi.<|turn_end|><|role_start|>assistant<|role_end|>",
        "<|role_start|>system<|role_end|> S \n<|turn_end|><|role_start|>user<|role_end|>  hi\n<|tur"
        "n_end|><|role_start|>assistant<|role_end|> yo <|turn_end|><|role_start|>user<|role_end|>x "
        "<|turn_end|><|role_start|>assistant<|role_end|>end <|turn_end|>",
    }},
    {"minicpm", {
        "Be brief.<用户>Hi.<AI>Hello!<用户>Who are you?<AI>",
        "<用户>Hi.<AI>",
        "S<用户>hi<AI>yo<用户>x<AI>end",
    }},
    {"mistral-v1", {
        " [INST] Be brief.\n\nHi. [/INST] Hello!</s> [INST] Who are you? [/INST]",
        " [INST] Hi. [/INST]",
        " [INST]  S \n\n\n  hi\n [/INST]  yo </s> [INST] x  [/INST] end </s>",
    }},
    {"mistral-v3", {
        "[INST] Be brief.\n\nHi.[/INST] Hello!</s>[INST] Who are you?[/INST]",
        "[INST] Hi.[/INST]",
        "[INST]  S \n\n\n  hi\n[/INST] yo</s>[INST] x [/INST] end</s>",
    }},
    {"mistral-v3-tekken", {
        "[INST]Be brief.\n\nHi.[/INST]Hello!</s>[INST]Who are you?[/INST]",
        "[INST]Hi.[/INST]",
        "[INST] S \n\n\n  hi\n[/INST] yo </s>[INST]x [/INST]end </s>",
    }},
    {"mistral-v7", {
        "[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST] Hi.[/INST] Hello!</s>[INST] Who are you?[/"
        "INST]",
        "[INST] Hi.[/INST]",
        "[SYSTEM_PROMPT]  S \n[/SYSTEM_PROMPT][INST]   hi\n[/INST]  yo </s>[INST] x [/INST] end </s"
        ">",
    }},
    {"mistral-v7-tekken", {
        "[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi.[/INST]Hello!</s>[INST]Who are you?[/INST"
        "]",
        "[INST]Hi.[/INST]",
        "[SYSTEM_PROMPT] S \n[/SYSTEM_PROMPT][INST]  hi\n[/INST] yo </s>[INST]x [/INST]end </s>",
    }},
    {"monarch", {
        "system\nBe brief.</s>\n<s>user\nHi.</s>\n<s>assistant\nHello!</s>\n<s>user\nWho are you?</"
        "s>\n<s>assistant\n",
        "user\nHi.</s>\n<s>assistant\n",
        "system\n S \n</s>\n<s>user\n  hi\n</s>\n<s>assistant\n yo </s>\n<s>user\nx </s>\n<s>assist"
        "ant\nend </s>\n",
    }},
    {"openchat", {
        "Be brief.<|end_of_turn|>GPT4 Correct User: Hi.<|end_of_turn|>GPT4 Correct Assistant: Hello"
        "!<|end_of_turn|>GPT4 Correct User: Who are you?<|end_of_turn|>GPT4 Correct Assistant:",
        "GPT4 Correct User: Hi.<|end_of_turn|>GPT4 Correct Assistant:",
        " S \n<|end_of_turn|>GPT4 Correct User:   hi\n<|end_of_turn|>GPT4 Correct Assistant:  yo <|"
        "end_of_turn|>GPT4 Correct User: x <|end_of_turn|>GPT4 Correct Assistant: end <|end_of_turn"
        "|>",
    }},
    {"orion", {
        "Human: Be brief.\n\nHi.\n\nAssistant: </s>Hello!</s>Human: Who are you?\n\nAssistant: </s>",
        "Human: Hi.\n\nAssistant: </s>",
        "Human:  S \n\n\n  hi\n\n\nAssistant: </s> yo </s>Human: x \n\nAssistant: </s>end </s>",
    }},
    {"pangu-embedded", {
        "[unused9]系统：Be brief.[unused10][unused9]用户：Hi.[unused10][unused9]助手：Hello![unused10][unuse"
        "d9]用户：Who are you?[unused10][unused9]助手：",
        "[unused9]系统：[unused10][unused9]用户：Hi.[unused10][unused9]助手：",
        "[unused9]系统： S \n[unused10][unused9]用户：  hi\n[unused10][unused9]助手： yo [unused10][unused9]"
        "用户：x [unused10][unused9]助手：end [unused10]",
    }},
    {"phi3", {
        "<|system|>\nBe brief.<|end|>\n<|user|>\nHi.<|end|>\n<|assistant|>\nHello!<|end|>\n<|user|>"
        "\nWho are you?<|end|>\n<|assistant|>\n",
        "<|user|>\nHi.<|end|>\n<|assistant|>\n",
        "<|system|>\n S \n<|end|>\n<|user|>\n  hi\n<|end|>\n<|assistant|>\n yo <|end|>\n<|user|>\nx"
        " <|end|>\n<|assistant|>\nend <|end|>\n",
    }},
    {"phi4", {
        "<|im_start|>system<|im_sep|>Be brief.<|im_end|><|im_start|>user<|im_sep|>Hi.<|im_end|><|im"
        "_start|>assistant<|im_sep|>Hello!<|im_end|><|im_start|>user<|im_sep|>Who are you?<|im_end|"
        "><|im_start|>assistant<|im_sep|>",
        "<|im_start|>user<|im_sep|>Hi.<|im_end|><|im_start|>assistant<|im_sep|>",
        "<|im_start|>system<|im_sep|> S \n<|im_end|><|im_start|>user<|im_sep|>  hi\n<|im_end|><|im_"
        "start|>assistant<|im_sep|> yo <|im_end|><|im_start|>user<|im_sep|>x <|im_end|><|im_start|>"
        "assistant<|im_sep|>end <|im_end|>",
    }},
    {"rwkv-world", {
        "System: Be brief.\n\nUser: Hi.\n\nAssistant: Hello!\n\nUser: Who are you?\n\nAssistant:",
        "User: Hi.\n\nAssistant:",
        "System: S\n\nUser: hi\n\nAssistant: yo\n\nUser: x\n\nAssistant: end\n\n",
    }},
    {"seed_oss", {
        "<seed:bos>system\nBe brief.<seed:eos><seed:bos>user\nHi.<seed:eos><seed:bos>assistant\nHel"
        "lo!<seed:eos><seed:bos>user\nWho are you?<seed:eos><seed:bos>assistant\n",
        "<seed:bos>user\nHi.<seed:eos><seed:bos>assistant\n",
        "<seed:bos>system\n S \n<seed:eos><seed:bos>user\n  hi\n<seed:eos><seed:bos>assistant\nyo<s"
        "eed:eos><seed:bos>user\nx <seed:eos><seed:bos>assistant\nend<seed:eos>",
    }},
    {"smolvlm", {
        "<|im_start|>Be brief.\n\nUser: Hi.<end_of_utterance>\nAssistant: Hello!<end_of_utterance>"
        "\nUser: Who are you?<end_of_utterance>\nAssistant:",
        "<|im_start|>User: Hi.<end_of_utterance>\nAssistant:",
        "<|im_start|> S \n\n\nUser:   hi\n<end_of_utterance>\nAssistant:  yo <end_of_utterance>\nUs"
        "er: x <end_of_utterance>\nAssistant: end <end_of_utterance>\n",
    }},
    {"solar-open", {
        "<|begin|>system<|content|>Be brief.<|end|><|begin|>user<|content|>Hi.<|end|><|begin|>assis"
        "tant<|content|>Hello!<|end|><|begin|>user<|content|>Who are you?<|end|><|begin|>assistant",
        "<|begin|>user<|content|>Hi.<|end|><|begin|>assistant",
        "<|begin|>system<|content|> S \n<|end|><|begin|>user<|content|>  hi\n<|end|><|begin|>assist"
        "ant<|content|> yo <|end|><|begin|>user<|content|>x <|end|><|begin|>assistant<|content|>end"
        " <|end|>",
    }},
    {"vicuna", {
        "Be brief.\n\nUSER: Hi.\nASSISTANT: Hello!</s>\nUSER: Who are you?\nASSISTANT:",
        "USER: Hi.\nASSISTANT:",
        " S \n\n\nUSER:   hi\n\nASSISTANT:  yo </s>\nUSER: x \nASSISTANT: end </s>\n",
    }},
    {"vicuna-orca", {
        "SYSTEM: Be brief.\nUSER: Hi.\nASSISTANT: Hello!</s>\nUSER: Who are you?\nASSISTANT:",
        "USER: Hi.\nASSISTANT:",
        "SYSTEM:  S \n\nUSER:   hi\n\nASSISTANT:  yo </s>\nUSER: x \nASSISTANT: end </s>\n",
    }},
    {"yandex", {
        " Пользователь: Hi.\n\n Ассистент: Hello!\n\n Пользователь: Who are you?\n\n Ассистент:[SEP"
        "]",
        " Пользователь: Hi.\n\n Ассистент:[SEP]",
        " Пользователь:   hi\n\n\n Ассистент:  yo \n\n Пользователь: x \n\n Ассистент: end \n\n",
    }},
    {"zephyr", {
        "<|system|>\nBe brief.<|endoftext|>\n<|user|>\nHi.<|endoftext|>\n<|assistant|>\nHello!<|end"
        "oftext|>\n<|user|>\nWho are you?<|endoftext|>\n<|assistant|>\n",
        "<|user|>\nHi.<|endoftext|>\n<|assistant|>\n",
        "<|system|>\n S \n<|endoftext|>\n<|user|>\n  hi\n<|endoftext|>\n<|assistant|>\n yo <|endoft"
        "ext|>\n<|user|>\nx <|endoftext|>\n<|assistant|>\nend <|endoftext|>\n",
    }},
};

#endif
