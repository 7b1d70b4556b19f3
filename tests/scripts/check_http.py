#!/usr/bin/env python3
"""Checks the HTTP input of pagedinfer serve, with a tiny random model.

1. JSON bodies: zero characters, byte order marks, long integers, duplicate keys, lone surrogates, and the error
   messages.
2. HTTP: input that two parsers could read as different requests is refused and the connection closed. Trailers change
   nothing.
3. Request ids: in every response, in the log, and in the errors of Anthropic's API.
4. Clients that pipeline requests and disconnect: their generations stop, over TCP, TLS and unix sockets.
5. Key and certificate files that are pipes, devices or folders, at startup and on SIGHUP.
6. One request of each kind.
run.sh also runs it with a server that clang has built with UBSan, which reports a kind of error that gcc's does not.
Exit 77: there is no server, or no tiny model."""
import json, os, re, signal, socket, ssl, struct, subprocess, sys, tempfile, time

import check_server as base
import check_server_faults as kinds
from check_server import BIN, HERMES, Server, ask, connect, expect, fault, read_all, read_answer, request

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
            ('a pair after a lone half', b'{"content":"\\ud83d\\ud83d\\ude00"}', {'content': '\ufffd\U0001f600'})]:
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
            (C, b'{"prompt":"a"} x', None, 'the body is not JSON: unexpected text after the value (line 1, column 16)'),
            (C, b'', None, 'the body is not JSON: the text ends where a value is expected (line 1, column 1)'),
            ('/tokenize', b'[', None, 'the body is not JSON: the text ends where a value is expected (line 1, column 2)'),
            (C, b'{"prompt":' + b'[' * 90000, None, 'nested too deeply'), (C, b'{"a":' * 90000, None, 'nested too deeply'),
            (C, {'prompt': 'a', 'seed': 1 << 64}, 'seed', 'seed is out of range'),
            (C, {'prompt': 'a', 'max_tokens': 1 << 64}, 'max_tokens', 'max_tokens is out of range'),
            (C, b'{"prompt":"a","temperature":1e400}', 'temperature', 'temperature is out of range'),
            (C, {'prompt': 'a', 'stop': 'a\0b'}, 'stop', "'stop' must not contain a zero byte"),
            (C, {'prompt': 'a', 'stop': ['x', 'a\0b']}, 'stop', "'stop' must not contain a zero byte"),
            (C, {'prompt': 'a', 'grammar': 'a\0b'}, 'grammar', "'grammar' must not contain a zero byte"),
            (C, {'prompt': 'a', 'bad_words': ['a\0b']}, 'bad_words', "'bad_words' must not contain a zero byte"),
            (C, {'prompt': 'a', 'cache_salt': 'a\0b'}, 'cache_salt', "'cache_salt' must not contain a zero byte"),
            (CHAT, chat(tools=[tool('f\0g', 1)]), 'tools', 'zero byte'),
            (C, {'prompt': 1 << 70}, 'prompt', "'prompt' must be text")]:
        status, _, got = ask(s, path, body)
        e = got['error'] if isinstance(got, dict) and 'error' in got else {'message': got, 'param': None}
        if status != 400 or words not in e['message'] or e['param'] != param: fault(f'{str(body)[:60]}: {status} {e}')
        if 'JSON_' in e['message'] or 'jansson' in e['message']: fault(f'an error names a library: {e}')


# ------------------------------------------------------------------------------------------------------------- 2. HTTP

BODY = json.dumps({'prompt': 'a', 'max_tokens': 1}).encode()
KEY = b'Authorization: Bearer alpha\r\n'


def post(head=b'', body=BODY, line=b'POST /v1/completions HTTP/1.1', close=True):
    return line + b'\r\nHost: x\r\n' + KEY + (b'Connection: close\r\n' if close else b'') + head + b'\r\n' + body


def get(target=b'/version', head=KEY, version=b'HTTP/1.1'):
    return b'GET ' + target + b' ' + version + b'\r\nHost: x\r\nConnection: close\r\n' + head + b'\r\n'


def length(n): return b'Content-Length: %d\r\n' % n


CHUNKED = b'Transfer-Encoding: chunked\r\n'
CHUNKS = b'%x\r\n' % len(BODY) + BODY + b'\r\n0\r\n\r\n'
SECOND = b'GET /version HTTP/1.1\r\nHost: x\r\n' + KEY + b'\r\n'  # a request that a second parser might see
ACCEPTED = {
    'a length': post(length(len(BODY))), 'chunks': post(CHUNKED, CHUNKS), 'another case': post(b'tRANSFER-eNCODING: Chunked\r\n', CHUNKS),
    'a tab': post(b'Transfer-Encoding:\tchunked \r\n', CHUNKS), 'an extension': post(CHUNKED, CHUNKS.replace(b'\r\n', b';a="b"\r\n', 1)),
    'zeros': post(b'Content-Length: 000%d\r\n' % len(BODY)), 'chunks of 1': post(CHUNKED, b''.join(
        b'1\r\n%c\r\n' % c for c in BODY) + b'00\r\n\r\n'), 'a slash': get(b'/version/'), 'slashes': get(b'/version//?a=b'),
    'a slash and post': post(length(len(BODY)), line=b'POST /v1/completions/ HTTP/1.1'),
    'absolute': get(b'http://127.0.0.1:8080/version'), 'absolute, TLS': get(b'HTTPS://host/version/?x'),
    'absolute post': post(length(len(BODY)), line=b'POST http://host/v1/completions HTTP/1.1'),
    'no path': get(b'http://host', b''), 'blanks after a key': get(head=b'Authorization: Bearer alpha \t \r\n'),
    'blanks before a key': get(head=b'Authorization:    Bearer   alpha\r\n'), 'no blanks': get(head=b'Authorization:Bearer alpha\r\n'),
    'X-Api-Key': get(head=b'X-Api-Key: alpha  \r\n'), 'empty lines': b'\r\n\r\n' + get(), 'HTTP/1.0': get(version=b'HTTP/1.0'),
    'HTTP/1.2': get(version=b'HTTP/1.2'), 'no Host': get().replace(b'Host: x\r\n', b''), 'bytes': get(head=KEY + b'X: \xff\xe9\r\n'),
    'an empty value': get(head=KEY + b'X:\r\n'), 'odd names': get(head=KEY + b"!#$%&'*+-.^_`|~9: x\r\n"),
    'a trailer': post(CHUNKED, CHUNKS[:-2] + b'X: y\r\nContent-Length: 5\r\n\r\n'),
}
REFUSED = {
    'length and chunks': post(length(len(CHUNKS)) + CHUNKED, CHUNKS + SECOND), 'chunks and length': post(CHUNKED + length(4), CHUNKS + SECOND),
    'a space before the colon': post(b'Transfer-Encoding : chunked\r\n', CHUNKS + SECOND),
    'a tab before the colon': post(b'Content-Length\t: 5\r\n'), 'xchunked': post(b'Transfer-Encoding: xchunked\r\n', CHUNKS + SECOND),
    'gzip': post(b'Transfer-Encoding: gzip, chunked\r\n', CHUNKS), 'gzip last': post(b'Transfer-Encoding: chunked, gzip\r\n', CHUNKS),
    'identity': post(b'Transfer-Encoding: identity\r\n' + length(len(BODY))), 'no coding': post(b'Transfer-Encoding:\r\n', CHUNKS),
    'chunked twice': post(CHUNKED * 2, CHUNKS), 'chunked, chunked': post(b'Transfer-Encoding: chunked, chunked\r\n', CHUNKS),
    'a quoted coding': post(b'Transfer-Encoding: "chunked"\r\n', CHUNKS), 'a parameter': post(b'Transfer-Encoding: chunked;a=b\r\n', CHUNKS),
    'a vertical tab': post(b'Transfer-Encoding: \x0bchunked\r\n', CHUNKS), 'chunks in HTTP/1.0': post(CHUNKED, CHUNKS, b'POST /v1/completions HTTP/1.0'),
    'a length twice': post(length(len(BODY)) * 2), 'two lengths': post(length(len(BODY)) + length(5)), 'a list': post(b'Content-Length: 29, 29\r\n'),
    'minus': post(b'Content-Length: -1\r\n'), 'plus': post(b'Content-Length: +29\r\n'), 'hexadecimal': post(b'Content-Length: 0x1d\r\n'),
    'a blank within': post(b'Content-Length: 2 9\r\n'), 'no length': post(b'Content-Length: \r\n'), 'a fraction': post(b'Content-Length: 29.0\r\n'),
    'a folded line': get(head=b'Authorization: Bearer\r\n alpha\r\n'), 'a folded tab': post(b'Transfer-Encoding:\r\n\tchunked\r\n', CHUNKS),
    'a blank first line': b'GET /version HTTP/1.1\r\n Host: x\r\n\r\n', 'LF': get().replace(b'\r\n', b'\n'), 'one LF': get(head=KEY + b'X: y\nZ: z\r\n'),
    'LF at the end': get()[:-2] + b'\n', 'CR': get().replace(b'\r\n', b'\r'), 'a CR in a value': get(head=KEY + b'X: a\rb\r\n'), 'two CR': get(head=KEY + b'X: a\r\r\n'),
    'a zero byte': get(head=KEY + b'X: a\0b\r\n'), 'a zero byte in a name': get(head=KEY + b'X\0Y: a\r\n'), 'a zero byte in a path': get(b'/vers\0ion'),
    'a delete': get(head=KEY + b'X: a\x7f\r\n'), 'an escape': get(head=KEY + b'X: \x1b[1m\r\n'), 'no name': get(head=KEY + b': b\r\n'),
    'no colon': get(head=KEY + b'Nothing\r\n'), 'a blank in a name': get(head=KEY + b'X Y: a\r\n'), 'a name in brackets': get(head=KEY + b'(X): a\r\n'),
    'bytes in a name': get(head=KEY + b'X\xff: a\r\n'), 'two hosts': get(head=KEY + b'Host: y\r\n'), 'a host with a path': get(head=KEY).replace(b'Host: x', b'Host: x/y'),
    'two keys': get(head=KEY * 2), 'two other keys': get(head=b'X-Api-Key: beta\r\nX-Api-Key: alpha\r\n'), 'no version': b'GET /version\r\n\r\n',
    'two blanks': b'GET  /version HTTP/1.1\r\n\r\n', 'a blank at the end': b'GET /version HTTP/1.1 \r\n\r\n', 'a tab between': b'GET\t/version HTTP/1.1\r\n\r\n',
    'a blank in front': b' GET /version HTTP/1.1\r\n\r\n', 'a small http': b'GET /version http/1.1\r\n\r\n', 'HTTP/11': b'GET /version HTTP/11\r\n\r\n',
    'HTTP/1.10': b'GET /version HTTP/1.10\r\n\r\n', 'bytes in a path': get(b'/\xff'), 'a fragment': get(b'/version#x'), 'no slash': get(b'version'),
    'another scheme': get(b'ftp://host/version'), 'a user': get(b'http://user@host/version'), 'no host': get(b'http:///version'), 'a star': get(b'*'),
    'a chunk of -1': post(CHUNKED, b'-1\r\nabc'), 'a chunk of zz': post(CHUNKED, b'zz\r\nabc'), 'a chunk of 0x5': post(CHUNKED, b'0x5\r\nabcde\r\n0\r\n\r\n'),
    'a blank after the size': post(CHUNKED, b'5 \r\nabcde\r\n0\r\n\r\n'), 'a blank before the size': post(CHUNKED, b' 5\r\nabcde\r\n0\r\n\r\n'),
    'no size': post(CHUNKED, b'\r\nabc'), 'a size of 17 digits': post(CHUNKED, b'00000000000000005\r\nabcde\r\n0\r\n\r\n'), 'chunks with LF': post(CHUNKED, b'1\na\n0\n\n'),
    'a chunk that is longer': post(CHUNKED, b'3\r\nabcde\r\n0\r\n\r\n'), 'a chunk without its end': post(CHUNKED, b'3\r\nabc0\r\n\r\n'),
    'an extension with LF': post(CHUNKED, b'3;a\nb\r\nabc\r\n0\r\n\r\n'), 'a bad trailer': post(CHUNKED, CHUNKS[:-2] + b'X : y\r\n\r\n'),
    'a folded trailer': post(CHUNKED, CHUNKS[:-2] + b'X: y\r\n z\r\n\r\n'), 'a trailer with LF': post(CHUNKED, CHUNKS[:-2] + b'X: y\n\r\n'),
}
OTHERS = {
    501: b'ABCDEFGHIJKLMNOPQRST / HTTP/1.1\r\n\r\n', 505: b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 405: b'CONNECT host:443 HTTP/1.1\r\nHost: x\r\n\r\n',
    413: post(length(1 << 60)), 431: get(head=b'X: ' + b'a' * 40000 + b'\r\n')}


def http_strict(s):
    def statuses(text):
        with connect(s) as c:
            c.sendall(text)
            c.settimeout(10)
            got = read_all(c)
        if re.search(rb'<\w+>$', got): fault(f'{text[:80]!r}: the connection stays open: {got[-20:]!r}')
        return [int(n) for n in re.findall(rb'HTTP/1\.1 (\d+) [A-Z]', got)]
    for what, text in ACCEPTED.items(): expect(what, statuses(text), [200])
    for what, text in REFUSED.items(): expect(what, statuses(text), [400])
    for status, text in OTHERS.items(): expect(f'status {status}', statuses(text), [status])
    for what in 'gzip', 'a chunk that is longer', 'a trailer with LF':  # the same input, sent byte by byte
        with connect(s) as c:
            for b in REFUSED[what][:-1]: c.send(bytes([b]))
            c.sendall(REFUSED[what][-1:])
            expect(f'{what}, byte by byte', read_all(c)[9:12], b'400')
    with connect(s) as c:  # thousands of pipelined requests: the responses come in order
        c.sendall(get().replace(b'Connection: close\r\n', b'') * 5000 + get())
        expect('pipelined', read_all(c).count(b'HTTP/1.1 200'), 5001)
    with connect(s) as c:  # 300 KB of bodies queued after a response
        c.sendall(post(length(len(BODY)), close=False) + (post(length(1000), b' ' * (1000 - len(BODY)) + BODY, close=False)) * 300 + get())
        expect('bodies after a response', read_all(c).count(b'HTTP/1.1 200'), 302)


def trailers(s):
    """With --cache-salt-by-key each key has its own prefixes, and no trailer changes that."""
    prompt = [40 + i % 37 for i in range(300)]
    def cached(key, trailer=b''):
        body = json.dumps({'prompt': prompt, 'max_tokens': 1}).encode()
        with connect(s) as c:
            c.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ' + key + b'\r\nConnection: close\r\n' + CHUNKED +
                      b'\r\n%x\r\n' % len(body) + body + b'\r\n0\r\n' + trailer + b'\r\n')
            return json.loads(read_all(c).split(b'\r\n\r\n', 1)[1])['usage']['prompt_tokens_details']['cached_tokens']
    expect('the first time', cached(b'alpha'), 0)
    if not cached(b'alpha'): fault('no prefix is taken over')
    expect('a trailer with another key', cached(b'beta', b'Authorization: Bearer alpha\r\nX-Api-Key: alpha\r\n'), 0)
    if not cached(b'beta', b'Authorization: x\r\n'): fault('a trailer changes the salt')
    with connect(s) as c:
        c.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\n' + CHUNKED + b'\r\n' + CHUNKS[:-2] + KEY + b'\r\n')
        expect('a key in the trailer alone', read_all(c)[9:12], b'401')


# -------------------------------------------------------------------------------------------------------------- 3. ids

def ids(s):
    def ids_of(text):
        with connect(s) as c:
            c.sendall(text)
            status, h, body = read_answer(c.makefile('rb'))
        expect('both ids', h.get('request-id'), h.get('x-request-id'))
        return status, h.get('x-request-id', ''), body
    seen = set()
    for text in (get(), get(b'/nothing'), get(head=b''), post(length(len(BODY))), post(length(1), b'{'), REFUSED['LF'], REFUSED['gzip'],
                 b'OPTIONS /version HTTP/1.1\r\nHost: x\r\n\r\n', post(length(60), b'{"prompt":"a","max_tokens":1,"stream":true}'.ljust(60))):
        own = ids_of(text)[1]
        if not re.fullmatch(r'req_[0-9a-f]{16,}', own): fault(f'an id for {text[:40]!r}: {own!r}')
        seen.add(own)
    expect('ids that differ', len(seen), 9)
    for own in 'abc-1', '9b4b2c1e-0000-4000-8000-123456789abc', 'x' * 128, '!"{}~':
        expect("the client's id", ids_of(get(head=KEY + b'X-Request-ID: ' + own.encode() + b' \r\n'))[1], own)
        expect("the client's id", ids_of(get(head=KEY + b'Request-Id: ' + own.encode() + b'\r\n'))[1], own)
        expect('the first of two ids', ids_of(get(head=KEY + b'request-id: b\r\nx-request-id: ' + own.encode() + b'\r\n'))[1], own)
        expect('the sound one of two ids', ids_of(get(head=KEY + b'x-request-id: a b\r\nrequest-id: ' + own.encode() + b'\r\n'))[1], own)
    for own in b'', b'x' * 129, b'a b', b'a\xffb', b'a\tb':
        got = ids_of(get(head=KEY + b'X-Request-ID: ' + own + b'\r\n'))[1]
        if not got.startswith('req_'): fault(f'an id that is not sound: {got!r}')
    for path, body in ('/v1/messages', b'{"messages":[]}'), ('/v1/messages', b'{'), ('/v1/messages/count_tokens', b'{}'), ('/v1/messages/', b'[]'):
        text = post(length(len(body)) + b'x-request-id: mine-7\r\n', body, f'POST {path} HTTP/1.1'.encode())
        status, _, got = ids_of(text)
        got = json.loads(got)
        if status != 400 or got.get('request_id') != 'mine-7' or got.get('type') != 'error': fault(f'{path}: {status} {got}')
        status, _, got = ids_of(text.replace(KEY, b''))
        got = json.loads(got)
        if status != 401 or got.get('request_id') != 'mine-7' or got['error']['type'] != 'authentication_error': fault(f'{path}: {status} {got}')
    if 'request_id' in json.loads(ids_of(post(length(1), b'{'))[2]): fault("an error of OpenAI's API has another form")
    ids_of(post(length(len(BODY)) + b'x-request-id: in-the-log\r\n'))
    ids_of(get(b'/nothing', KEY + b'x-request-id: there-too\r\n'))
    for _ in range(100):
        lines = [json.loads(l) for l in s.text().split('\n') if l.startswith('{')]
        logged = {l.get('request_id'): l for l in lines}
        if 'in-the-log' in logged and 'there-too' in logged: break
        time.sleep(0.05)
    expect('a generation in the log', logged.get('in-the-log', {}).get('completion_tokens'), 1)
    expect('a path in the log', logged.get('there-too', {}).get('status'), 404)


# ----------------------------------------------------------------------------------------------------- 4. gone clients

def gone_clients(s, open_one, what):
    """A client requests 30,000 tokens, pipelines `ahead` more requests, and disconnects: its generation must stop."""
    for stream in False, True:
        body = json.dumps({'prompt': 'a', 'max_tokens': 30000, 'ignore_eos': True, 'stream': stream}).encode()
        text = b'POST /v1/completions HTTP/1.1\r\nHost: x\r\n' + length(len(body)) + b'\r\n' + body
        for ahead in 0, 6000, 90000:  # number of requests of 33 bytes: none, 200 KB, 3 MB
            for reset in True, False:
                c = open_one()
                c.settimeout(20)
                c.sendall(text)
                s.until('vllm:num_requests_running', 1)
                try: c.sendall(b'GET /health HTTP/1.1\r\nHost: x\r\n\r\n' * ahead)
                except OSError as e: fault(f'{what}, {ahead} ahead: {e}')
                if reset: c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
                c.close()
                for _ in range(400):
                    if not s.metrics()['pagedinfer:generations']: break
                    time.sleep(0.01)
                else: fault(f'{what}: {ahead} requests ahead, stream {stream}, reset {reset}: the generation does not stop')
    # A client that pipelines too much but stays connected gets its answer; then the server closes the connection.
    with open_one() as c:
        c.settimeout(60)
        body = json.dumps({'prompt': 'a', 'max_tokens': 400, 'ignore_eos': True}).encode()
        c.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\n' + length(len(body)) + b'\r\n' + body + b'GET /health HTTP/1.1\r\nHost: x\r\n\r\n' * 50000)
        got = read_all(c)
        if not got.startswith(b'HTTP/1.1 200') or b'"completion_tokens":400' not in got: fault(f'{what}: {got[:100]!r}')
    s.quiet(what)


def part_gone(model, d):
    s = Server(model, '-c', '32768', '--kv-cache-tokens', '65536', '--parallel', '4')
    gone_clients(s, lambda: connect(s), 'TCP')
    s.end()
    path = os.path.join(d, 'serve.sock')
    s = Server(model, '-c', '32768', '--kv-cache-tokens', '65536', '--parallel', '4', '--unix-socket', path)
    def unix():
        c = socket.socket(socket.AF_UNIX)
        c.connect(path)
        return c
    gone_clients(s, unix, 'unix socket')
    s.end()


def part_gone_tls(model, d):
    cert, key = os.path.join(d, 'c.pem'), os.path.join(d, 'k.pem')
    made = subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', cert, '-days', '2', '-subj',
                           '/CN=127.0.0.1'], capture_output=True).returncode == 0
    if not made: return print('no openssl program: TLS is left out')
    s = Server(model, '-c', '32768', '--kv-cache-tokens', '65536', '--parallel', '4', '--ssl-cert-file', cert, '--ssl-key-file', key)
    ctx = ssl._create_unverified_context()
    urlopen = base.urllib.request.urlopen
    def encrypted(request):
        if isinstance(request, str): request = base.urllib.request.Request(request)
        request.full_url = request.full_url.replace('http:', 'https:')
        return urlopen(request, context=ctx)
    base.urllib.request.urlopen = encrypted
    try: gone_clients(s, lambda: ctx.wrap_socket(connect(s)), 'TLS')
    finally: base.urllib.request.urlopen = urlopen
    s.end()


# ------------------------------------------------------------------------------------------------------------ 5. files

def files(model, d):
    keys = os.path.join(d, 'keys')
    def put(make):
        if os.path.isdir(keys): os.rmdir(keys)
        elif os.path.lexists(keys): os.unlink(keys)
        make()
    def text(s):
        def make():
            with open(keys, 'w') as f: f.write(s)
        return make
    odd = {'a pipe': lambda: os.mkfifo(keys), 'a folder': lambda: os.mkdir(keys), 'a device': lambda: os.symlink('/dev/zero', keys),
           'a terminal': lambda: os.symlink('/dev/tty', keys), 'a large file': lambda: (text('a\n')(), os.truncate(keys, 1 << 30)),
           'nothing': lambda: None, 'a link to itself': lambda: os.symlink(keys, keys)}
    for what, make in odd.items():
        put(make)
        for flags in (['--api-key-file', keys], ['--ssl-cert-file', keys, '--ssl-key-file', keys]):
            r = subprocess.run([BIN, 'serve', '-m', model, '--port', '0', *flags], capture_output=True, text=True, timeout=60)
            expect(f'{what} for {flags[0]}', r.returncode, 78)
    put(text('one\n'))
    s = Server(model, '-c', '512', '--api-key-file', keys)
    for n, (what, make) in enumerate(odd.items()):
        put(make)
        s.p.send_signal(signal.SIGHUP)
        for _ in range(400):
            if s.text().count('API keys were not reloaded') == n + 1: break
            time.sleep(0.025)
        else: fault(f'SIGHUP with {what}: {s.text()[-200:]!r}')
        expect(f'the key after {what}', ask(s, '/version', headers='X-Api-Key: one\r\n')[0], 200)
    put(text('two\n'))
    s.p.send_signal(signal.SIGHUP)
    s.wait_for('API keys reloaded: 1')
    expect('keys', [ask(s, '/version', headers=f'X-Api-Key: {k}\r\n')[0] for k in ('one', 'two')], [401, 200])
    s.end()


def each_kind(s):
    for what, (path, body) in kinds.KINDS.items():
        status, got = kinds.once(s, path, body)
        if status != {'nothing': 404, 'an error': 400}.get(what, 200) or got.endswith(b'<cut>'): fault(f'{what}: {status} {got[:200]!r}')
    for path in '/v1/embeddings', '/embedding':
        for encoding in 'float', 'base64': expect(path, ask(s, path, {'input': ['a', [40, 41]], 'encoding_format': encoding})[0], 200)


def main():
    maker = base.tiny_maker()
    if not maker: return 77
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'tiny.gguf')
        subprocess.run([maker, model, '32768'], check=True)
        s = Server(model, '-c', '4096', '--kv-cache-tokens', '16384', '--parallel', '8', '--chat-template', HERMES)
        json_bodies(s)
        json_errors(s)
        each_kind(s)
        s.quiet('after JSON')
        s.end()
        s = Server(model, '-c', '4096', '--kv-cache-tokens', '16384', '--parallel', '8', '--chat-template', HERMES, '--log-json',
                   '--api-key', 'alpha,beta', '--cache-salt-by-key')
        http_strict(s)
        trailers(s)
        ids(s)
        s.end()
        part_gone(model, d)
        part_gone_tls(model, d)
        files(model, d)
    print(f'http: {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
