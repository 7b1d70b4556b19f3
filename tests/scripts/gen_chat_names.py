#!/usr/bin/env python3
"""Writes tests/support/chat_names_expected.h: the output of llama.cpp's llama_chat_apply_template for three
conversations, for each template name that it knows.

    gen_chat_names.py LIBLLAMA.SO > tests/support/chat_names_expected.h

LIBLLAMA.SO is a build of llama.cpp; no model is needed. The conversations are test_chat.c's."""
import ctypes
import json
import sys

TALKS = [
    ([('system', 'Be brief.'), ('user', 'Hi.'), ('assistant', 'Hello!'), ('user', 'Who are you?')], True),
    ([('user', 'Hi.')], True),
    ([('system', ' S \n'), ('user', '  hi\n'), ('assistant', ' yo '), ('user', 'x '), ('assistant', 'end ')], False),
]


class Message(ctypes.Structure):
    _fields_ = [('role', ctypes.c_char_p), ('content', ctypes.c_char_p)]


def main():
    lib = ctypes.CDLL(sys.argv[1])
    n = lib.llama_chat_builtin_templates(None, 0)
    names = (ctypes.c_char_p * n)()
    lib.llama_chat_builtin_templates(names, n)
    print('/* By gen_chat_names.py: llama.cpp\'s renderings of three conversations for each of its template names. */')
    print('#ifndef CHAT_NAMES_EXPECTED_H\n#define CHAT_NAMES_EXPECTED_H\n')
    print('static const struct {\n    const char *name, *text[3];\n} chat_names_expected[] = {')
    for name in sorted(x.decode() for x in names):
        print(f'    {{"{name}", {{')
        for messages, add in TALKS:
            array = (Message * len(messages))(*[Message(r.encode(), c.encode()) for r, c in messages])
            out = ctypes.create_string_buffer(65536)
            k = lib.llama_chat_apply_template(name.encode(), array, ctypes.c_size_t(len(messages)), add, out, len(out))
            assert k >= 0, name
            text = json.dumps(out.raw[:k].decode(), ensure_ascii=False)
            print('\n'.join('        ' + line for line in lines(text)) + ',')
        print('    }},')
    print('};\n\n#endif')


def lines(text):
    """Returns a JSON string as C string literals, one per line of limited width."""
    rest, out = text[1:-1], []
    while len(rest) > 90:
        cut = 90
        while rest[cut - 1] == '\\' or rest[cut - 2:cut] == '\\"': cut -= 1
        out.append('"' + rest[:cut] + '"')
        rest = rest[cut:]
    return out + ['"' + rest + '"']


if __name__ == '__main__':
    main()
