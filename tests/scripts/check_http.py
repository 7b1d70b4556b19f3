#!/usr/bin/env python3
"""pagedinfer serve: what arrives on its sockets, with a tiny random model.

1. JSON bodies: zero characters, byte order marks, long integers, duplicate keys, half surrogates, and the words of errors.
Exit 77: there is no server, or no tiny model."""
import json, os, subprocess, sys, tempfile

import check_server as base
from check_server import BIN, BUILD, HERMES, Server, ask, expect, fault

BOM = b'\xef\xbb\xbf'
C, CHAT = '/v1/completions', '/v1/chat/completions'


def chat(**more):
    return {'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 1, 'temperature': 0, **more}


def tool(name, bound):
    return {'type': 'function', 'function': {'name': name, 'parameters': {
        'type': 'object', 'properties': {'x': {'type': 'integer', 'maximum': bound}}}}}


def json_bodies(s):
    for what, path, body in [
            ('a zero character', C, {'prompt': 'a\0b', 'max_tokens': 1}),
            ('a zero character', CHAT, chat(messages=[{'role': 'user', 'content': 'a\0b'}])),
            ('a zero character', CHAT, chat(messages=[{'role': 'user', 'content': [{'type': 'text', 'text': 'a\0b'}]}])),
            ('a zero character', '/v1/messages', chat(messages=[{'role': 'user', 'content': 'a\0b'}])),
            ('a zero character in a result', '/v1/messages', chat(messages=[
                {'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': [
                    {'type': 'thinking', 'thinking': 'x\0y', 'signature': ''}, {'type': 'text', 'text': 'x\0y'},
                    {'type': 'tool_use', 'id': 'c', 'name': 'f', 'input': {'x': 'y\0z'}}]},
                {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'c', 'content': 'x\0y'}]}])),
            ('a zero character', '/v1/responses', {'input': 'a\0b', 'max_output_tokens': 1}),
            ('a zero character', '/v1/embeddings', {'input': ['a\0b']}),
            ('a zero character in a key', C, {'prompt': 'a', 'max_tokens': 1, 'metadata': {'k\0': '\0'}}),
            ('a long integer', CHAT, chat(tools=[tool('f', 18446744073709551615)], metadata={'n': 1 << 70})),
            ('a long integer', '/v1/messages', chat(tools=[{'name': 'f', 'input_schema': tool('f', 1 << 64)['function']['parameters']}])),
            ('a number beyond doubles', C, b'{"prompt":"a","max_tokens":1,"unread":[1e400,-1e999]}'),
            ('a byte order mark', CHAT, BOM + json.dumps(chat()).encode()),
            ('a byte order mark', '/tokenize', BOM + b'{"content":"a"}'),
            ('half a surrogate', C, b'{"prompt":"\\ud800","max_tokens":1}'),
            ('duplicate keys', C, b'{"prompt":7,"max_tokens":1,"prompt":"a"}')]:
        status, _, got = ask(s, path, body)
        if status != 200: fault(f'{what}, {path}: {status} {got}')
    one = '/tokenize'
    for what, body, same in [
            ('the last key', b'{"content":"x","content":"b"}', {'content': 'b'}),
            ('half a surrogate', b'{"content":"a\\ud83d"}', {'content': 'a\ufffd'}),
            ('a pair behind a half', b'{"content":"\\ud83d\\ud83d\\ude00"}', {'content': '\ufffd\U0001f600'})]:
        expect(what, ask(s, one, body)[2]['tokens'], ask(s, one, same)[2]['tokens'])
    for text in 'a\0b', '\0', '\0\0x', 'ab\0':
        tokens = ask(s, one, {'content': text})[2]['tokens']
        expect(f'{text!r} and back', ask(s, '/detokenize', {'tokens': tokens})[2]['content'].lstrip(' '), text)
        got = ask(s, '/apply-template', {'messages': [{'role': 'user', 'content': text}]})[2]['prompt']
        if text not in got: fault(f'the template loses {text!r}: {got!r}')
        got = ask(s, C, {'prompt': text, 'max_tokens': 1, 'echo': True})[2]['choices'][0]['text']
        if not got.startswith(text): fault(f'the echo loses {text!r}: {got!r}')


def json_errors(s):
    for path, body, param, words in [
            (C, b'{"prompt": ', None, 'the body is not JSON: the text ends where a value is expected (line 1, column 12)'),
            (C, b'{"prompt":\n"a",}', None, 'the body is not JSON: expected a key in double quotes (line 2, column 5)'),
            (C, b'{"prompt": \'a\'}', None, 'the body is not JSON: expected a value (line 1, column 12)'),
            (C, b'{"prompt": NaN}', None, 'the body is not JSON: expected a value (line 1, column 12)'),
            (C, b'{"prompt": "\xff"}', None, 'the body is not JSON: the text is not UTF-8 (line 1, column 13)'),
            (C, b'{"prompt":"a"} x', None, 'the body is not JSON: something follows the value (line 1, column 16)'),
            (C, b'', None, 'the body is not JSON: the text ends where a value is expected (line 1, column 1)'),
            ('/tokenize', b'[', None, 'the body is not JSON: the text ends where a value is expected (line 1, column 2)'),
            (C, b'{"prompt":' + b'[' * 90000, None, 'nested too deeply'), (C, b'{"a":' * 90000, None, 'nested too deeply'),
            (C, {'prompt': 'a', 'seed': 1 << 64}, 'seed', 'seed is out of range'),
            (C, {'prompt': 'a', 'max_tokens': 1 << 64}, 'max_tokens', 'max_tokens is out of range'),
            (C, b'{"prompt":"a","temperature":1e400}', 'temperature', 'temperature is out of range'),
            (C, {'prompt': 'a', 'stop': 'a\0b'}, 'stop', "'stop' must not hold a zero byte"),
            (C, {'prompt': 'a', 'stop': ['x', 'a\0b']}, 'stop', "'stop' must not hold a zero byte"),
            (C, {'prompt': 'a', 'grammar': 'a\0b'}, 'grammar', "'grammar' must not hold a zero byte"),
            (C, {'prompt': 'a', 'bad_words': ['a\0b']}, 'bad_words', "'bad_words' must not hold a zero byte"),
            (C, {'prompt': 'a', 'user': 'a\0b'}, 'user', "'user' must not hold a zero byte"),
            (CHAT, chat(tools=[tool('f\0g', 1)]), 'tools', 'zero byte'),
            (C, {'prompt': 1 << 70}, 'prompt', "'prompt' must be text")]:
        status, _, got = ask(s, path, body)
        e = got['error'] if isinstance(got, dict) and 'error' in got else {'message': got, 'param': None}
        if status != 400 or words not in e['message'] or e['param'] != param: fault(f'{str(body)[:60]}: {status} {e}')
        if 'JSON_' in e['message'] or 'jansson' in e['message']: fault(f'an error names a library: {e}')


def main():
    maker = os.path.join(BUILD, 'tests', 'tool_tiny_model')
    if subprocess.run([BIN, 'serve', '-m', '/none'], capture_output=True).returncode == 69 or not os.path.exists(maker):
        print('this build has no server, or no tiny model')
        return 77
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'tiny.gguf')
        subprocess.run([maker, model, '32768'], check=True)
        s = Server(model, '-c', '4096', '--kv-cache-tokens', '16384', '--parallel', '8', '--chat-template', HERMES)
        json_bodies(s)
        json_errors(s)
        s.quiet('at the end')
        s.end()
    print(f'http: {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
