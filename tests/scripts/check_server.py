#!/usr/bin/env python3
"""Checks pagedinfer serve with real clients.

1. With raw sockets and a tiny random model: HTTP (keep-alive, pipelining, chunks, limits, garbage, half-open clients),
   errors and their statuses, API keys, preflights, text aligned with token ids. Then cancel, draining, a model that is
   still loading, and for some seconds (30 minutes with PAGEDINFER_LONG=1) clients that misbehave in every way
   concurrently. Afterwards the cache's pools are full again and nothing runs.

2. With PyPI's openai package and SmolLM2: streams, stop, seed, n, logprobs, cancel, errors. The same part runs against
   llama-server if PAGEDINFER_PEER names its program, to show that it needs nothing specific to this server.

3. With PyPI's anthropic package: /v1/messages.

LangChain's and LiteLLM's clients are checked too if they are installed. Parts 2 and 3 need the model. Each is left out
if its package is missing and cannot be installed (PAGEDINFER_NO_PIP=1: no try). Exit 77: nothing could be run."""
import array, base64, importlib.util, json, os, random, re, shutil, signal, socket, ssl, struct, subprocess, sys, tempfile, threading, time, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(HERE, '../../build'))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
CHAT, PEER = os.environ.get('PAGEDINFER_CHAT_MODEL', ''), os.environ.get('PAGEDINFER_PEER', '')
SOAK = 1800 if os.environ.get('PAGEDINFER_LONG') else 5
faults = []


def fault(text):
    faults.append(text)
    if len(faults) < 30: print('  ' + text)


def expect(what, got, want):
    if got != want: fault(f'{what}: {str(got)[:300]!r}, not {str(want)[:300]!r}')


class Server:
    """A server process; its port is read from the line that it prints."""
    headers = {}  # of requests for metrics

    def __init__(self, model, *flags, ready=True, env=None):
        self.log = tempfile.NamedTemporaryFile('w+', suffix='.log')
        self.p = subprocess.Popen([BIN, 'serve', '-m', model, '--port', '0', *flags], stdout=subprocess.DEVNULL,
                                  stderr=self.log, env={**os.environ, **(env or {})})
        self.port = int(self.wait_for(r'listening on https?://127\.0\.0\.1:(\d+)')[1])
        self.url = f'http://127.0.0.1:{self.port}'
        if ready: self.wait_for(r'is ready')

    def text(self):
        with open(self.log.name, errors='replace') as f: return f.read()

    def wait_for(self, pattern):
        for _ in range(2400):
            m = re.search(pattern, self.text())
            if m: return m
            if self.p.poll() is not None: break
            time.sleep(0.025)
        sys.exit(f'no {pattern!r} from the server (exit {self.p.poll()}): {self.text()[-2000:]}')

    def end(self, how=signal.SIGTERM, code=0, within=30):
        if self.p.poll() is None: self.p.send_signal(how)
        try: self.p.wait(within)
        except subprocess.TimeoutExpired:
            self.p.kill()
            fault(f'the server did not end: {self.text()[-500:]}')
            return
        expect('exit status of the server', self.p.returncode, code)
        if 'Sanitizer' in self.text(): fault(self.text()[-3000:])

    def metrics(self):
        with urllib.request.urlopen(urllib.request.Request(self.url + '/metrics', headers=self.headers)) as r: text = r.read().decode()
        return {m[1] + (m[2] or ''): float(m[3]) for m in re.finditer(r'^([a-z_:]+)(?:\{model_name="[^"]*"(?:,([^}]*))?\})? (\S+)$',
                                                                    text, re.M)}

    def quiet(self, what):
        """Waits until nothing runs and every block is free."""
        for _ in range(200):
            m = self.metrics()
            blocks = sum(v for k, v in m.items() if k.startswith('pagedinfer:blocksgroup='))
            free = sum(v for k, v in m.items() if k.startswith('pagedinfer:blocks_freegroup='))
            if m['pagedinfer:generations'] == m['vllm:num_requests_running'] == 0 and blocks == free > 0: return
            time.sleep(0.05)
        fault(f'{what}: {m["pagedinfer:generations"]} requests left, {free} of {blocks} blocks free')

    def until(self, name, value):
        for _ in range(400):
            if self.metrics().get(name) == value: return
            time.sleep(0.01)
        fault(f'{name} is never {value}')


def tiny_maker():
    """Returns the program that writes tiny models. None, after a line with the reason: a build without it or the server."""
    maker = os.path.join(BUILD, 'tests', 'tool_tiny_model')
    if subprocess.run([BIN, 'serve', '-m', '/none'], capture_output=True).returncode != 69 and os.path.exists(maker): return maker
    print('this build has no server, or no tiny model')
    return None


def connect(s, timeout=20):
    c = socket.create_connection(('127.0.0.1', s.port), timeout)
    return c


def read_all(c):
    out = b''
    try:
        while True:
            d = c.recv(65536)
            if not d: return out
            out += d
    except (ConnectionError, TimeoutError, socket.timeout) as e:
        return out + f'<{type(e).__name__}>'.encode()


def read_answer(f):
    """Reads one response from a socket's file. Returns (status, headers, body)."""
    line = f.readline()
    if not line: return 0, {}, b''
    status, headers = int(line.split()[1]), {}
    while (line := f.readline().strip()):
        k, v = line.split(b':', 1)
        headers[k.decode().lower()] = v.strip().decode()
    if headers.get('transfer-encoding') == 'chunked':
        body = b''
        while (n := int(f.readline(), 16)):
            body += f.read(n)
            f.readline()
        f.readline()
        return status, headers, body
    return status, headers, f.read(int(headers.get('content-length', 0)))


def request(method, path, body=b'', headers=''):
    if isinstance(body, (dict, list)): body = json.dumps(body).encode()
    length = f'Content-Length: {len(body)}\r\n' if body or method == 'POST' else ''
    return f'{method} {path} HTTP/1.1\r\nHost: x\r\n{length}{headers}\r\n'.encode() + body


def ask(s, path, body=None, headers='', method=None):
    with connect(s) as c:
        c.sendall(request(method or ('GET' if body is None else 'POST'), path, b'' if body is None else body, headers))
        status, h, b = read_answer(c.makefile('rb'))
    try: return status, h, json.loads(b)
    except ValueError: return status, h, b


def events(body):
    return [json.loads(l[6:]) for l in body.decode().split('\n') if l.startswith('data: ') and l != 'data: [DONE]']


# --------------------------------------------------------------------------------------------------- 1. the tiny model

def http_forms(s):
    with connect(s) as c:
        f = c.makefile('rb')
        for i in range(3):  # keep-alive
            c.sendall(request('GET', '/health'))
            expect('keep-alive', read_answer(f)[0], 200)
        # Pipelined requests: responses come in order, though the first one takes the longest.
        c.sendall(request('POST', '/v1/completions', {'prompt': 'a', 'max_tokens': 20, 'ignore_eos': True}) +
                  request('GET', '/health') + request('GET', '/none') + request('POST', '/tokenize', {'content': 'x'}))
        got = [read_answer(f) for _ in range(4)]
        expect('pipelined', [g[0] for g in got], [200, 200, 404, 200])
        expect('the first of them', json.loads(got[0][2])['object'], 'text_completion')
        # A body in chunks, sent byte by byte.
        body = b'{"content": "hello"}'
        for b in (b'POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n' +
                  b''.join(b'1\r\n%c\r\n' % x for x in body) + b'0\r\n\r\n'):
            c.sendall(bytes([b]))
        expect('a chunked body', read_answer(f)[0], 200)
        c.sendall(request('HEAD', '/health'))
        line = f.readline()
        while f.readline().strip(): pass
        expect('HEAD', line.split()[1], b'200')
        c.sendall(request('POST', '/tokenize', b'', 'Expect: 100-continue\r\n').replace(b'Content-Length: 0', b'Content-Length: 15'))
        expect('100-continue', f.readline(), b'HTTP/1.1 100 Continue\r\n')
        f.readline()
        c.sendall(b'{"content":"x"}')
        expect('after it', read_answer(f)[0], 200)
    with connect(s) as c:  # HTTP/1.0: the response has no chunks, and the connection ends
        body = json.dumps({'prompt': 'a', 'max_tokens': 4, 'stream': True, 'ignore_eos': True}).encode()
        c.sendall(b'POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        got = read_all(c)
        if b'chunked' in got or not got.endswith(b'data: [DONE]\n\n'): fault(f'HTTP/1.0: {got[-200:]!r}')


def limits(s):
    expect('a long header', ask(s, '/health', headers='X: ' + 'y' * 5000 + '\r\n')[0], 431)
    expect('a long path', ask(s, '/' + 'y' * 5000)[0], 431)
    with connect(s) as c:  # refused before the body is sent
        c.sendall(b'POST /tokenize HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n')
        expect('a large body', read_answer(c.makefile('rb'))[0], 413)
    with connect(s) as c:  # refused while the body is sent: the client still receives the response
        c.sendall(b'POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n')
        try:
            for _ in range(64): c.sendall(b'10000\r\n' + b'x' * 65536 + b'\r\n')
        except ConnectionError: pass
        expect('a large body in chunks', read_answer(c.makefile('rb'))[0], 413)
    t = time.time()
    with connect(s) as c:  # a header that never ends
        c.sendall(b'GET /health HTTP/1.1\r\nX: ')
        expect('a slow header', read_all(c)[:12], b'HTTP/1.1 408')
    if not 0.5 < time.time() - t < 6: fault(f'a slow header: closed after {time.time() - t:.1f} s, not 1')
    t = time.time()
    with connect(s) as c: expect('an idle connection', read_all(c), b'')
    if not 1 < time.time() - t < 8: fault(f'an idle connection: closed after {time.time() - t:.1f} s, not 2')
    many = [connect(s) for _ in range(40)]
    time.sleep(0.1)
    with connect(s) as c:
        c.sendall(request('GET', '/health'))
        if not read_all(c).startswith(b'HTTP/1.1 503'): fault('too many connections: no 503')
    for c in many: c.close()
    time.sleep(0.2)
    expect('after that', ask(s, '/health')[0], 200)


def garbage(s):
    r = random.Random(1)
    for i in range(60):
        text = (bytes(r.randrange(256) for _ in range(r.randrange(1, 400))) if i % 3 else
                b'POST /v1/completions HTTP/1.1\r\n' + bytes(r.randrange(32, 127) for _ in range(50)) + b'\r\n\r\n')
        with connect(s) as c:
            c.sendall(text + b'\r\n\r\n')
            c.shutdown(socket.SHUT_WR)
            read_all(c)
    for text in (b'GET / HTTP/2.0\r\n\r\n', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', b'CONNECT a:1 HTTP/1.1\r\n\r\n', b'\x16\x03\x01\x02\x00',
                 b'POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n', b'GET /health HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n',
                 b'POST /tokenize HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'):
        with connect(s) as c:
            c.sendall(text)
            got = read_all(c)
            if not got.startswith(b'HTTP/1.1 4') and not got.startswith(b'HTTP/1.1 505'): fault(f'{text!r}: {got[:60]!r}')
    expect('after garbage', ask(s, '/health')[0], 200)


def errors(s):
    c = '/v1/completions'
    for what, status, path, body in [
            ('no JSON', 400, c, b'{"prompt": '), ('not an object', 400, c, b'[1]'), ('an empty body', 400, c, b''),
            ('no prompt', 400, c, {}), ('temperature as text', 400, c, {'prompt': 'a', 'temperature': 'hot'}),
            ('temperature too high', 400, c, {'prompt': 'a', 'temperature': 1e9}), ('n of 0', 400, c, {'prompt': 'a', 'n': 0}),
            ('an id outside', 400, c, {'prompt': [99999999]}), ('mixed lists', 400, c, {'prompt': [1, [2]]}),
            ('an object', 400, c, {'prompt': {'text': 'a'}}), ('an id outside, mixed', 400, c, {'prompt': ['a', 99999999]}),
            ('an image', 400, '/completion', {'prompt': {'prompt_string': 'a', 'multimodal_data': ['eA==']}}),
            ('an image that is not in a list', 400, '/completion', {'prompt': {'prompt_string': 'a', 'multimodal_data': 'eA=='}}),
            ('prompt_logprobs of a stream', 400, c, {'prompt': 'a', 'prompt_logprobs': 1, 'stream': True}),
            ('truncate_prompt_tokens', 400, c, {'prompt': 'a', 'truncate_prompt_tokens': 0}),
            ('a long prompt', 400, c, {'prompt': 'abcdefgh ' * 5000}), ('stop of numbers', 400, c, {'prompt': 'a', 'stop': [1]}),
            ('suffix', 400, c, {'prompt': 'a', 'suffix': 'b'}), ('logit_bias', 400, c, {'prompt': 'a', 'logit_bias': {'': 1}}), ('logit_bias', 400, c, {'prompt': 'a', 'logit_bias': [['a', 'b']]}),
            ('bad UTF-8', 400, c, b'{"prompt": "\xff"}'),
            ('deep JSON', 400, c, b'{"prompt":' + b'[' * 90000 + b']' * 90000 + b'}'),
            ('no messages', 400, '/v1/chat/completions', {'messages': []}),
            ('no such path', 404, '/v1/nothing', {}), ('no such model', 404, '/v1/models/none', None),
            ('a wrong method', 405, c, None), ('images', 400, '/v1/chat/completions', {'messages': [
                {'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': 'x'}}]}]}),
            ('a schema of nothing', 400, c, {'prompt': 'a', 'response_format': {'type': 'json_schema', 'json_schema': {
                'schema': {'type': 'nonsense'}}}}), ('a grammar', 400, c, {'prompt': 'a', 'grammar': 'root ::= "a'}),
            ('encoding_format', 400, '/v1/embeddings', {'input': 'a', 'encoding_format': 'x'}), ('no input', 400, '/v1/embeddings', {}),
            ('previous_response_id', 400, '/v1/responses', {'input': 'a', 'previous_response_id': 'r'}),
            ('a call without arguments', 400, '/v1/responses', {'input': [{'type': 'function_call', 'name': 'f'}]}),
            ('a user without content', 400, '/v1/messages', {'max_tokens': 1, 'messages': [{'role': 'user', 'content': []}]}),
            ('a call without a name', 400, '/v1/messages', {'max_tokens': 1, 'messages': [
                {'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 'a', 'input': {}}]}]}),
            ('tokens', 400, '/detokenize', {'tokens': [1 << 30]}), ('content', 400, '/tokenize', {'content': 5}),
            ('content', 400, '/tokenize', {'content': ['a', 1 << 30]}), ('nothing', 400, '/tokenize', {})]:
        got, _, answer = ask(s, path, body)
        expect(what, got, status)
        e = answer.get('error', {}) if isinstance(answer, dict) else {}
        if not e.get('message') or 'type' not in e: fault(f'{what}: {answer!r}')
    expect('a field that is named', ask(s, c, {'prompt': 'a', 'top_k': 'x'})[2]['error']['param'], 'top_k')
    for path, allow in (c, 'POST, OPTIONS'), ('/lora-adapters', 'GET, HEAD, POST, OPTIONS'):
        status, h, _ = ask(s, path, None, method='DELETE')
        expect(f'methods of {path}', (status, h.get('allow')), (405, allow))


def aligned(s):
    """The ids and text of every chunk belong together, on a model with many tokens that are parts of characters."""
    def text_of(ids):
        return ask(s, '/detokenize', {'tokens': ids})[2]['content']
    for seed in range(12):
        body = {'prompt': 'Hello', 'max_tokens': 60, 'seed': seed, 'temperature': 1.5, 'return_token_ids': True, 'logprobs': 1,
                'ignore_eos': True, 'stop': ['" ', '\x20\x20']}
        whole = ask(s, '/v1/completions', body)[2]['choices'][0]
        chunks = [e['choices'][0] for e in events(ask(s, '/v1/completions', {**body, 'stream': True})[2])]
        expect(f'seed {seed}: text', ''.join(c['text'] for c in chunks), whole['text'])
        expect(f'seed {seed}: ids', [i for c in chunks for i in c['token_ids']], whole['token_ids'])
        for c in chunks[:-1]:
            ids = [0] * 0 + c['token_ids']
            if not c['text'] and ids: fault(f'seed {seed}: ids without text {c}')
            got = text_of([36] + ids)  # after another token: the first token of a text loses its space
            # the repair of broken characters depends on the neighbouring tokens
            if '�' in got or '�' in c['text']: continue
            if not got.endswith(c['text']): fault(f'seed {seed}: {ids} is {got!r}, with it came {c["text"]!r}')
        for c in chunks:
            if len(c['logprobs']['tokens'] if c['logprobs'] else []) != len(c['token_ids']): fault(f'seed {seed}: logprobs {c}')
        expect('usage', ask(s, '/v1/completions', {**body, 'ignore_eos': False})[2]['usage']['prompt_tokens'], 6)


def forms(s):
    c = '/v1/completions'
    two = ask(s, c, {'prompt': ['a', 'b'], 'n': 2, 'max_tokens': 5, 'seed': 3, 'temperature': 1})[2]['choices']
    expect('indices', [x['index'] for x in two], [0, 1, 2, 3])
    one = ask(s, c, {'prompt': 'b', 'n': 2, 'max_tokens': 5, 'seed': 3, 'temperature': 1})[2]['choices']
    expect('the second prompt', [x['text'] for x in two[2:]], [x['text'] for x in one])
    ids = ask(s, '/tokenize', {'content': 'b', 'add_special': True})[2]['tokens']
    got = ask(s, c, {'prompt': ids, 'n': 2, 'max_tokens': 5, 'seed': 3, 'temperature': 1})[2]['choices']
    expect('a prompt of ids', [x['text'] for x in got], [x['text'] for x in one])
    echo = ask(s, c, {'prompt': 'abc', 'max_tokens': 3, 'echo': True, 'logprobs': 1, 'ignore_eos': True})[2]['choices'][0]
    if not echo['text'].startswith('abc'): fault(f'echo: {echo}')
    p = echo['logprobs']
    if not len(p['tokens']) == len(p['token_logprobs']) == len(p['top_logprobs']) == len(p['text_offset']) > 5 or \
            p['token_logprobs'][0] is not None or None in p['token_logprobs'][1:]: fault(f'echo: {p}')
    end = events(ask(s, c, {'prompt': 'a', 'max_tokens': 3, 'stream': True, 'stream_options': {'include_usage': True},
                            'ignore_eos': True})[2])[-1]
    expect('usage of a stream', (end['choices'], end['usage']['completion_tokens']), ([], 3))
    expect('a forbidden token', all(36 not in x['token_ids'] for x in ask(s, c, {
        'prompt': 'a', 'n': 8, 'max_tokens': 30, 'return_token_ids': True, 'logit_bias': {'36': -100}})[2]['choices']), True)
    got = ask(s, '/completion', {'prompt': 'a', 'n_predict': 4, 'ignore_eos': True, 'return_tokens': True})[2]
    expect('/completion', (got['stop_type'], got['tokens_predicted'], len(got['tokens'])), ('limit', 4, 4))
    got = events(ask(s, '/completion', {'prompt': 'a', 'n_predict': 4, 'ignore_eos': True, 'stream': True})[2])
    expect('/completion as a stream', (got[-1]['stop'], sum(len(x['tokens']) for x in got)), (True, 4))
    expect('tokens so far', ([x['tokens_predicted'] for x in got], {x['tokens_evaluated'] for x in got}),
           ([sum(len(y['tokens']) for y in got[:k + 1]) for k in range(len(got))], {got[-1]['tokens_evaluated']}))
    top = ask(s, '/completion', {'prompt': 'a', 'n_predict': 1, 'n_probs': 2})[2]['completion_probabilities'][0]
    expect('bytes of tokens', [bytes(x['bytes']).decode(errors='replace') for x in (top, *top['top_logprobs'])],
           [x['token'] for x in (top, *top['top_logprobs'])])
    pieces = ask(s, '/tokenize', {'content': 'a ö', 'with_pieces': True})[2]['tokens']
    if not any(isinstance(x['piece'], list) for x in pieces): fault(f'pieces: {pieces}')
    got = ask(s, '/completion', {'prompt': [40, 41], 'n_predict': 3, 'mirostat': 2, 'mirostat_tau': 4.5, 'response_fields': [
        'content', 'prompt', 'generation_settings/mirostat_tau', 'generation_settings/n_predict', 'no/such', 'timings']})[2]
    of = lambda name: got[f'generation_settings/{name}']  # llama-server uses the same names
    expect('response_fields', (sorted(got), got['prompt'], of('mirostat_tau'), of('n_predict'), got['timings']['predicted_n']),
           (['content', 'generation_settings/mirostat_tau', 'generation_settings/n_predict', 'prompt', 'timings'], '$%', 4.5, 3, 3))
    expect('a whole number with a point', ask(s, '/completion', {'prompt': 'a', 'n_predict': 2.0, 'top_k': 40.0})[2]['tokens_predicted'], 2)
    expect('no whole number', [ask(s, '/completion', {'prompt': 'a', 'top_k': x})[0] for x in (1.5, 1e300)], [400, 400])
    expect('n_predict and max_tokens', ask(s, '/completion', {'prompt': 'a', 'n_predict': 2, 'max_tokens': 5})[2]['tokens_predicted'], 2)
    expect('n_cmpl', len(ask(s, '/completion', {'prompt': 'a', 'n_predict': 2, 'n_cmpl': 3})[2]), 3)
    got = events(ask(s, c, {'prompt': 'a', 'max_tokens': 6, 'stream': True, 'ignore_eos': True, 'timings_per_token': True})[2])
    expect('timings_per_token', ('timings' in got[0], got[-1]['timings']['predicted_n']), (True, 6))
    expect('structured_outputs', (ask(s, c, {'prompt': 'a', 'structured_outputs': {'regex': '[0-9]{3}'}})[2]['choices'][0]['text'].isdigit(),
                                  ask(s, c, {'prompt': 'a', 'structured_outputs': {'choice': 'x'}})[0]), (True, 400))
    expect('structured_outputs of other kinds', (ask(s, c, {'prompt': 'a', 'max_tokens': 1, 'structured_outputs': {'json_object': True}})[2]['choices'][0]['text'][:1],
                                                 ask(s, c, {'prompt': 'a', 'structured_outputs': {'structural_tag': {}}})[0]), ('{', 400))
    for skip, want in ((True, ''), (False, '<bos><bos>')):
        expect(f'skip_special_tokens {skip}', ask(s, c, {'prompt': 'a', 'max_tokens': 2, 'logit_bias': {'2': 100}, 'skip_special_tokens': skip})
               [2]['choices'][0]['text'], want)
    v = ask(s, '/embedding', {'content': ['a', 'b']})[2]
    expect('/embedding', ([x['index'] for x in v], v[1]['embedding'][0]),
           ([0, 1], ask(s, '/v1/embeddings', {'input': 'b'})[2]['data'][0]['embedding']))
    models = ask(s, '/v1/models')[2]['data']
    expect('/v1/models/NAME', ask(s, '/v1/models/' + models[0]['id'])[0], 200)
    expect('/props', ask(s, '/props')[2]['default_generation_settings']['n_ctx'], 4096)
    lines = {'prompt': 'a', 'n_predict': 60, 'grammar': 'root ::= "a\\n    b\\n  cdefgh\\n    i"'}
    for n, want in ((0, 'a\n    b\n  cdefgh\n    i'), (2, 'a\n    b\n  cdefgh\n    i'), (3, 'a\n    b\n  ')):
        body = {**lines, 'n_indent': n}
        a = ask(s, '/completion', body)[2]
        expect(f'n_indent {n}', (a['content'], a['stop_type']), (want, 'limit' if n > 2 else 'eos'))
        expect(f'n_indent {n} of a stream', ''.join(e['content'] for e in events(ask(s, '/completion', {**body, 'stream': True})[2])), want)
        expect(f'n_indent {n} of two', [a['content'] for a in ask(s, '/completion', {**body, 'n_cmpl': 2})[2]], [want] * 2)
    builds = [ask(s, '/props')[2]['build_info'], ask(s, c, {'prompt': 'a', 'max_tokens': 1})[2]['system_fingerprint']]
    expect('the build', (builds[0] == builds[1], bool(re.fullmatch(r'b\d+-[\w.]+', builds[0]))), (True, True))
    expect('/slots', len(ask(s, '/slots')[2]), 8)
    status, h, page = ask(s, '/')
    expect('the page', (status, b'</html>' in page, "default-src 'none'" in h.get('content-security-policy', '')), (200, True, True))
    if b'http://' in page or b'//cdn' in page: fault('the page names outside resources')
    e = ask(s, '/v1/embeddings', {'input': ['a', 'b', [4, 5]]})[2]
    expect('embeddings', [x['index'] for x in e['data']], [0, 1, 2])
    if any(abs(sum(v * v for v in x['embedding']) - 1) > 1e-3 for x in e['data']): fault(f'embeddings: no unit vectors {e}')
    packed = ask(s, '/v1/embeddings', {'input': 'b', 'encoding_format': 'base64'})[2]['data'][0]['embedding']
    got = array.array('f', base64.b64decode(packed)).tolist()
    if max(abs(a - b) for a, b in zip(got, e['data'][1]['embedding'])) > 1e-6: fault('embeddings: base64 says something else')
    shape = {'type': 'object', 'properties': {'a': {'type': 'boolean'}}, 'required': ['a'], 'additionalProperties': False}
    got = ask(s, '/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'b'}], 'max_tokens': 60, 'response_format': {
        'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': shape}}})[2]['choices'][0]
    if got['finish_reason'] == 'stop' and list(json.loads(got['message']['content'])) != ['a']: fault(f'a schema: {got}')
    expect('a choice', ask(s, c, {'prompt': 'a', 'guided_choice': ['left', 'right'], 'max_tokens': 20})[2]['choices'][0]['text']
           in ('left', 'right'), True)
    a = ask(s, '/v1/responses', {'input': 'hi', 'max_output_tokens': 8, 'temperature': 0, 'ignore_eos': True})[2]
    expect('/v1/responses', (a['object'], a['status'], a['output'][-1]['type']), ('response', 'incomplete', 'message'))
    k = {'input': 'hi', 'max_output_tokens': 8, 'temperature': 0, 'ignore_eos': True, 'top_logprobs': 2, 'include': ['message.output_text.logprobs']}
    p = ask(s, '/v1/responses', k)[2]['output'][-1]['content'][0]['logprobs']
    parts = [e['logprobs'] for e in events(ask(s, '/v1/responses', {**k, 'stream': True})[2]) if e['type'] == 'response.output_text.delta']
    expect('logprobs of /v1/responses', ([len(t['top_logprobs']) for t in p], sum(parts, [])), ([2] * 8, p))


def greedy(s, path='/completion', n=6, **body):
    """Returns the ids of an answer, or a list of them."""
    a = ask(s, path, {'n_predict': n, 'temperature': 0, 'ignore_eos': True, 'return_tokens': True, 'return_token_ids': True, **body})[2]
    if path == '/v1/completions': return [x['token_ids'] for x in a['choices']]
    return [x['tokens'] for x in a] if isinstance(a, list) else a['tokens']


def vocabulary(s):
    """Prompts of mixed texts and ids, truncated prompts, biases and forbidden texts."""
    of = lambda text, add: ask(s, '/tokenize', {'content': text, 'add_special': add})[2]['tokens']
    first, inner = of('ab cd', True), of('ab cd', False)
    if first[1:] != inner: fault(f'BOS: {first}, {inner}')
    same = {'"ab cd", 40': (['ab cd', 40], first + [40]), '40, "ab cd"': ([40, 'ab cd'], [40] + inner), 'text': ('ab cd', first),
            'two texts': ([40, 'ab cd', 'ab cd'], [40] + inner + inner), 'object': ({'prompt_string': 'ab cd'}, first),
            'object of a list': ({'prompt_string': ['ab cd', 41]}, first + [41]), 'object of ids': ({'prompt_string': first}, first)}
    for what, (mixed, ids) in same.items():
        expect(what, greedy(s, prompt=mixed), greedy(s, prompt=ids))
        expect(f'/v1/completions, {what}', greedy(s, '/v1/completions', prompt=mixed), [greedy(s, prompt=ids)])
        if isinstance(mixed, dict): continue
        expect(f"/tokenize, {what}", ask(s, '/tokenize', {'content': mixed, 'add_special': True})[2]['tokens'], ids)
    several = [same['40, "ab cd"'][0], 'ab cd', {'prompt_string': 'ab cd'}, [42, 43]]
    want = [greedy(s, prompt=x) for x in (same['40, "ab cd"'][1], first, first, [42, 43])]
    for path in ('/completion', '/v1/completions'): expect(f'several in {path}', greedy(s, path, prompt=several), want)
    expect('two texts are two', len(greedy(s, '/v1/completions', prompt=['a', 'b'])), 2)
    e = ask(s, '/v1/embeddings', {'input': [['ab cd', 40], first + [40]]})[2]['data']
    expect('embeddings of a mixed list', e[0]['embedding'], e[1]['embedding'])
    echo = ask(s, '/v1/completions', {'prompt': [40, 'ab'], 'echo': True, 'max_tokens': 1})[2]['choices'][0]['text']
    expect('echo of a mixed list', echo.startswith(ask(s, '/detokenize', {'tokens': [40] + of('ab', False)})[2]['content']), True)
    # truncated prompts
    text = 'abcd efgh ijkl mnop'
    ids = of(text, True)
    expect('truncate_prompt_tokens', greedy(s, prompt=text, truncate_prompt_tokens=4), greedy(s, prompt=ids[:1] + ids[-3:]))
    expect('truncate_prompt_tokens of ids', greedy(s, prompt=ids, truncate_prompt_tokens=4), greedy(s, prompt=ids[-4:]))
    expect('of more than there are', greedy(s, prompt=ids, truncate_prompt_tokens=400), greedy(s, prompt=ids))
    long = [40 + i % 50 for i in range(9000)]
    expect('truncate_prompt_tokens -1', len(greedy(s, prompt=long, truncate_prompt_tokens=-1)), 6)
    expect('without it', ask(s, '/completion', {'prompt': long})[0], 400)
    expect('add_special_tokens false', greedy(s, prompt=text, add_special_tokens=False), greedy(s, prompt=ids[1:]))
    # vLLM's form of /tokenize
    expect('its default', ask(s, '/tokenize', {'prompt': text, 'return_token_strs': True})[2], {
        'tokens': ids, 'count': len(ids), 'max_model_len': 4096,
        'token_strs': [x['piece'] for x in ask(s, '/tokenize', {'content': ids, 'with_pieces': True})[2]['tokens']]})
    m = [{'role': 'user', 'content': 'a'}]
    t = ask(s, '/apply-template', {'messages': m})[2]['prompt']
    expect('of messages', ask(s, '/tokenize', {'messages': m})[2]['tokens'], of(t, True))
    for path, body in (('/v1/chat/completions/input_tokens', {'messages': m}), ('/v1/responses/input_tokens', {'input': 'a'})):
        expect(path, ask(s, path, body)[2], {'object': 'response.input_tokens', 'input_tokens': len(of(t, True))})
    # bad_words of several tokens and of one
    for seed in range(50):
        drawn = {'prompt': 'x', 'n': 12, 'temperature': 1.5, 'seed': seed}
        ids = greedy(s, **drawn)
        pairs, ones = ([ask(s, '/detokenize', {'tokens': ids[k:k + n]})[2]['content'] for k in range(11)] for n in (2, 1))
        k = next((k for k in range(11) if of(pairs[k], False) == ids[k:k + 2] and of(ones[k], False) == ids[k:k + 1] and
                  pairs[k][0] != ' '), None)
        if k is not None: break
    else: fault('no two tokens that their text tokenizes to')
    pair, one = pairs[k], ones[k]
    got = greedy(s, **drawn, bad_words=[pair])
    expect('bad_words up to there', got[:k + 1], ids[:k + 1])
    if any(got[i:i + 2] == ids[k:k + 2] for i in range(11)): fault(f'bad_words {pair!r}: {got}')
    if ids[k] in greedy(s, **drawn, bad_words=['zz', one]): fault(f'bad_words {one!r}')
    expect('they share a batch', greedy(s, '/v1/completions', **{**drawn, 'prompt': ['x', 'y', 'x']}, bad_words=[pair])[::2], [got, got])
    # biases
    a, b = of('ab', False)[-1], of('cd', False)[-1]
    for form in ([['ab', 100]], {'ab': 100}, [[a, 50], ['ab', 50]]):
        if not set(greedy(s, prompt='x', logit_bias=form)) <= set(of('ab', False)): fault(f'{form} has no effect')
    both = [['ab', 100], [b, 100], ['ab', False]]
    expect('false forbids', set(greedy(s, prompt='x', logit_bias=both)) & set(of('ab', False)), set())


def probabilities(s):
    """Probabilities after sampling filters (post_sampling_probs), and log-probabilities of the prompt."""
    body = {'prompt': 'abc', 'n_predict': 8, 'n_probs': 6, 'ignore_eos': True, 'post_sampling_probs': True, 'seed': 1}
    for what, more, n in (('three', {'temperature': 1.3, 'top_k': 3}, 3), ('the best', {'temperature': 0}, 1), ('all', {'temperature': 2, 'top_k': 0,
                          'top_p': 1, 'min_p': 0}, 6), ('a grammar', {'temperature': 1, 'top_k': 2, 'grammar': 'root ::= [a-z]+'}, 2)):
        got = ask(s, '/completion', {**body, **more})[2]['completion_probabilities']
        for t in got:
            top = [x['prob'] for x in t['top_probs']]
            own = [x['prob'] for x in t['top_probs'] if x['id'] == t['id']]
            if 'logprob' in t or not len(top) <= n or top != sorted(top, reverse=True) or own not in ([t['prob']], []) or sum(top) > 1.0001 or \
                    (n < 6 and (not own or abs(sum(top) - 1) > 1e-4)): fault(f'post_sampling_probs, {what}: {t}')
        if what in ('three', 'the best') and any(len(t['top_probs']) != n for t in got): fault(f'post_sampling_probs, {what}: {got}')
        parts = events(ask(s, '/completion', {**body, **more, 'stream': True})[2])
        expect(f'post_sampling_probs of a stream, {what}', sum([x.get('completion_probabilities', []) for x in parts], []), got)
    raw = ask(s, '/completion', {**body, 'temperature': 1.3, 'top_k': 3, 'post_sampling_probs': False})[2]
    expect('the same tokens', [t['id'] for t in raw['completion_probabilities']],
           [t['id'] for t in ask(s, '/completion', {**body, 'temperature': 1.3, 'top_k': 3})[2]['completion_probabilities']])
    ids = ask(s, '/tokenize', {'content': 'abc d', 'add_special': True})[2]['tokens']
    body = {'prompt': 'abc d', 'max_tokens': 2, 'temperature': 0, 'n': 2}
    echo = ask(s, '/v1/completions', {**body, 'echo': True, 'logprobs': 2})[2]['choices'][1]['logprobs']
    for p in (x['prompt_logprobs'] for x in ask(s, '/v1/completions', {**body, 'prompt_logprobs': 2})[2]['choices']):
        expect('prompt_logprobs', [x and x[str(i)]['logprob'] for x, i in zip(p, ids)], echo['token_logprobs'][:len(ids)])
        expect('their ranks', [sorted(y['rank'] for y in x.values() if y['rank']) for x in p[1:]], [[1, 2]] * (len(ids) - 1))
    more = ask(s, '/v1/completions', {**body, 'echo': True, 'logprobs': 1, 'prompt_logprobs': 3})[2]['choices'][0]
    expect('both', ({len(x) for x in more['logprobs']['top_logprobs'][1:]} <= {1, 2}, {len(x) for x in more['prompt_logprobs'][1:]} <= {3, 4}), (True, True))
    a = ask(s, '/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 1, 'prompt_logprobs': 0})[2]
    expect('prompt_logprobs of a chat', (len(a['prompt_logprobs']), a['prompt_logprobs'][0]), (a['usage']['prompt_tokens'], None))


def told(s):
    """Timings in complete answers and in the last event of a stream; server information; continued answers."""
    m = [{'role': 'user', 'content': 'abc'}]
    for path, body in (('/v1/chat/completions', {'messages': m}), ('/v1/completions', {'prompt': 'abc'}), ('/completion', {'prompt': 'abc', 'n_predict': 4})):
        body = {**body, 'max_tokens': 4, 'ignore_eos': True}
        t = ask(s, path, body)[2]['timings']
        if t['predicted_n'] != 4 or t['prompt_n'] + t['cache_n'] < 2 or t['predicted_ms'] <= 0: fault(f'timings of {path}: {t}')
        for usage in (False, True):
            got = events(ask(s, path, {**body, 'stream': True, 'stream_options': {'include_usage': usage}})[2])
            expect(f'timings of a stream of {path}', [i for i, e in enumerate(got) if 'timings' in e], [len(got) - 1])
            expect('their number', got[-1]['timings']['predicted_n'], 4)
    for path, body, of in (('/v1/completions', {'prompt': 'abc'}, lambda c: c['text']), ('/v1/chat/completions', {'messages': m}, lambda c: c['message']['content'])):
        body = {**body, 'max_tokens': 40, 'temperature': 0, 'grammar': 'root ::= "one two three four"', 'stop': ['three']}
        for keep, want in ((False, 'one two '), (True, 'one two three')):
            c = ask(s, path, {**body, 'include_stop_str_in_output': keep})[2]['choices'][0]
            expect(f'include_stop_str_in_output {keep}', (of(c), c['stop_reason']), (want, 'three'))
            last = events(ask(s, path, {**body, 'include_stop_str_in_output': keep, 'stream': True})[2])[-1]['choices'][0]
            expect('its stream', last['stop_reason'], 'three')
    t = ask(s, '/v1/completions', {'prompt': 'abc', 'max_tokens': 1, 'logprobs': 1, 'return_tokens_as_token_ids': True})[2]['choices'][0]['logprobs']
    if not re.fullmatch(r'token_id:\d+', t['tokens'][0]): fault(f'return_tokens_as_token_ids: {t}')
    goes_on = m + [{'role': 'assistant', 'content': 'xy'}]
    prompt = ask(s, '/apply-template', {'messages': goes_on})[2]['prompt']
    expect('a continued answer', prompt, ask(s, '/apply-template', {'messages': m})[2]['prompt'] + 'xy')
    new = ask(s, '/apply-template', {'messages': goes_on, 'add_generation_prompt': True})[2]['prompt']
    if not new.startswith(prompt + '<|im_end|>') or not new.endswith('assistant\n'): fault(f'a new answer: {new!r}')
    expect('asked for', ask(s, '/apply-template', {'messages': goes_on, 'continue_final_message': True})[2]['prompt'], prompt)
    expect('not wanted', ask(s, '/apply-template', {'messages': goes_on, 'continue_final_message': False})[2]['prompt'], new)
    expect('both', ask(s, '/apply-template', {'messages': goes_on, 'continue_final_message': True, 'add_generation_prompt': True})[0], 400)
    expect('nothing to continue', ask(s, '/v1/chat/completions', {'messages': m, 'continue_final_message': True})[0], 400)
    chat = {'max_tokens': 8, 'temperature': 0, 'ignore_eos': True}
    text = ask(s, '/completion', {**chat, 'prompt': prompt, 'n_predict': 8})[2]['content']
    expect('it continues', ask(s, '/v1/chat/completions', {**chat, 'messages': goes_on})[2]['choices'][0]['message']['content'], text)
    c = ask(s, '/v1/chat/completions', {**chat, 'messages': goes_on, 'echo': True, 'logprobs': True})[2]['choices'][0]
    expect('a continued answer with echo', (c['message']['content'], len(c['logprobs']['content'])), ('xy' + text, 8))
    got = events(ask(s, '/v1/chat/completions', {**chat, 'messages': goes_on, 'echo': True, 'stream': True})[2])
    expect('its stream', ''.join(e['choices'][0]['delta'].get('content', '') for e in got), 'xy' + text)
    expect('nothing to echo', ask(s, '/v1/chat/completions', {**chat, 'messages': m, 'echo': True})[2]['choices'][0]['message']['content'],
           ask(s, '/v1/chat/completions', {**chat, 'messages': m})[2]['choices'][0]['message']['content'])
    expect('in /v1/messages', ask(s, '/v1/messages', {**chat, 'messages': goes_on})[2]['content'][0]['text'], text)
    with urllib.request.urlopen(s.url + '/metrics') as r: text = r.read().decode()
    names = dict(re.findall(r'^llamacpp:(\w+) (\S+)$', text, re.M))
    if not all(float(names[k]) > 0 for k in ('prompt_tokens_seconds', 'predicted_tokens_seconds', 'n_busy_slots_per_decode', 'n_tokens_max')):
        fault(f'/metrics: {names}')
    m = s.metrics()
    expect('step target', m['pagedinfer:step_target_seconds'], 0.2)
    if not m.get('pagedinfer:prefix_misses_totalreason="not in the cache"'): fault('/metrics: no miss is counted')
    expect('/version', sorted(ask(s, '/version')[2]), ['version'])
    expect('/ping', [ask(s, '/ping', body)[0] for body in (None, {})], [200, 200])
    expect('/responses', ask(s, '/responses', {'input': 'a', 'max_output_tokens': 2})[2]['object'], 'response')
    one = ask(s, '/v1/models')[2]
    expect('/v1/models', (one['data'][0]['meta']['n_ctx'], one['models'][0]['model'], one['models'][0]['capabilities']),
           (4096, one['data'][0]['id'], ['completion']))
    p = ask(s, '/props')[2]
    d = p['default_generation_settings']['params']
    expect('/props', (p['bos_token'], p['eos_token'], d['samplers'][0], d['stop'], d['n_probs'], d['post_sampling_probs']),
           ('<bos>', '<eos>', 'penalties', [], 0, False))
    g = ask(s, '/completion', {'prompt': 'a', 'n_predict': 1, 'stop': ['q', 'w'], 'samplers': ['top_k', 'temperature'], 'n_probs': 2})[2]['generation_settings']
    expect('generation_settings', (g['stop'], g['samplers'], g['n_probs']), (['q', 'w'], ['top_k', 'temperature'], 2))
    with connect(s) as c:
        c.sendall(request('POST', '/completion', {'prompt': 'a', 'n_predict': 3000, 'ignore_eos': True, 'stop': 'secret words', 'stream': True}))
        c.recv(100)
        slots = ask(s, '/slots')[2]
        busy = [x for x in slots if x['is_processing']]
        if len(busy) != 1 or busy[0]['params']['n_predict'] != 3000 or not busy[0]['next_token'][0]['has_next_token'] or 'secret' in str(slots):
            fault(f'/slots: {slots}')
        expect('a free slot', ask(s, '/slots?fail_on_no_slot=1')[0], 200)
    with connect(s) as c:
        c.sendall(request('POST', '/v1/completions', {'prompt': 'a', 'n': 8, 'max_tokens': 3000, 'ignore_eos': True, 'stream': True}))
        c.recv(100)
        expect('no free slot', (ask(s, '/slots?fail_on_no_slot=1')[0], ask(s, '/slots')[0]), (503, 200))


def cancel(s):
    """A client that disconnects ends its own request, and no other."""
    before = s.metrics()['pagedinfer:gone_clients_total']
    slow = {'prompt': 'a', 'max_tokens': 3500, 'ignore_eos': True, 'stream': True}
    stay = connect(s, 60)
    stay.sendall(request('POST', '/v1/completions', {**slow, 'max_tokens': 800}))
    gone = [connect(s) for _ in range(4)]
    for i, c in enumerate(gone): c.sendall(request('POST', '/v1/completions', {**slow, 'stream': i % 2 == 0}))
    time.sleep(0.2)
    for c in gone: c.close()
    status, _, body = read_answer(stay.makefile('rb'))
    ids = len(events(body))
    if status != 200 or ids < 100: fault(f'the connected client: {status}, {ids} events')
    s.quiet('after clients went away')
    expect('clients that went away', s.metrics()['pagedinfer:gone_clients_total'] - before, 4)


def slow_reader(s):
    """A client that does not read: the server cancels its request, and others continue."""
    before = s.metrics()['pagedinfer:slow_clients_total']
    with socket.socket() as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(('127.0.0.1', s.port))
        c.sendall(request('POST', '/v1/completions', {'prompt': 'a', 'n': 8, 'max_tokens': 3900, 'ignore_eos': True,
                                                      'stream': True, 'logprobs': 5}))
        for _ in range(400):
            if s.metrics()['pagedinfer:slow_clients_total'] > before: break
            time.sleep(0.05)
        else: fault('a slow reader was not ended')
        expect('next to a slow reader', ask(s, '/v1/completions', {'prompt': 'b', 'max_tokens': 3})[0], 200)
    s.quiet('after a slow reader')


def keys(model):
    with tempfile.NamedTemporaryFile('w', suffix='.keys') as f:
        f.write('# mine\nalpha\n\nbeta\n')
        f.flush()
        s = Server(model, '--api-key-file', f.name, '--api-key', 'gamma', '--cache-salt-by-key', '--cors', '*', '-c', '4096',
                   '--no-slots', '--no-ui')
        body = {'prompt': 'a shared prefix that is longer than a block of the cache ' * 3, 'max_tokens': 2}
        for path in ('/v1/models', '/v1/completions', '/none', '/metrics'):
            for h in ('', 'Authorization: Bearer alph\r\n', 'Authorization: Bearer alphaa\r\n', 'Authorization: Bearer \r\n'):
                expect(f'{path} with {h!r}', ask(s, path, headers=h)[0], 401)
        expect('/health', ask(s, '/health')[0], 200)
        status, _, a = ask(s, '/slots', headers='Authorization: Bearer gamma\r\n')
        expect('--no-slots', (status, a['error']['type']), (501, 'not_supported_error'))
        expect('--no-ui', ask(s, '/')[0], 404)
        with connect(s) as c:  # a client without a key is refused before it sends a body
            c.sendall(b'POST /v1/completions HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n')
            expect('a body without a key', read_answer(c.makefile('rb'))[0], 401)
        def cached(h):
            status, _, a = ask(s, '/v1/completions', body, h)
            return a['usage']['prompt_tokens_details']['cached_tokens'] > 0 if status == 200 else status
        expect('the first', cached('Authorization: Bearer alpha\r\n'), False)
        expect('the same key', cached('X-Api-Key: alpha\r\n'), True)
        expect('another key', cached('Authorization: Bearer beta\r\n'), False)
        body['cache_salt'] = 'x'
        expect('another salt', cached('Authorization: Bearer alpha\r\n'), False)
        f.seek(0)
        f.truncate()
        f.write('delta\n')
        f.flush()
        s.p.send_signal(signal.SIGHUP)
        s.wait_for('reloaded')
        expect('a key that was taken out', cached('Authorization: Bearer alpha\r\n'), 401)
        expect('a new key', cached('Authorization: Bearer delta\r\n'), False)
        status, h, _ = ask(s, '/v1/chat/completions', headers='Origin: http://a\r\nAccess-Control-Request-Headers: x-y\r\n',
                           method='OPTIONS')
        expect('a preflight', (status, h.get('access-control-allow-headers'), h.get('access-control-allow-origin')),
               (200, 'x-y', '*'))
        s.end()


def life(model):
    s = Server(model, '-c', '4096', '--parallel', '1', '--max-queue', '1', '--log-json', ready=False)
    if ask(s, '/health')[0] not in (200, 503): fault('/health while loading')
    s.wait_for('is ready')
    slow = request('POST', '/v1/completions', {'prompt': 'a', 'max_tokens': 3000, 'ignore_eos': True, 'stream': True})
    running, waiting = connect(s, 60), connect(s, 60)
    running.sendall(slow)
    s.until('vllm:num_requests_running', 1)
    waiting.sendall(request('POST', '/v1/completions', {'prompt': 'a', 'max_tokens': 2, 'ignore_eos': True}))
    s.until('vllm:num_requests_waiting', 1)
    status, h, _ = ask(s, '/v1/completions', {'prompt': 'a'})
    expect('a full queue', (status, h.get('retry-after')), (429, '1'))
    s.p.send_signal(signal.SIGTERM)
    s.wait_for('shutting down')
    expect('new while draining', ask(s, '/v1/completions', {'prompt': 'a'})[0], 503)
    expect('/health while draining', ask(s, '/health')[0], 503)
    status, _, body = read_answer(running.makefile('rb'))
    if status != 200 or not body.endswith(b'data: [DONE]\n\n'): fault(f'a stream while draining: {body[-200:]!r}')
    expect('the waiting request', read_answer(waiting.makefile('rb'))[0], 200)
    s.end(0)  # without a second signal
    lines = [json.loads(l) for l in s.text().split('\n') if l.startswith('{')]
    if not any(l.get('completion_tokens') == 3000 for l in lines): fault(f'--log-json: {lines[-3:]}')
    s = Server(model, '-c', '32768')
    c = connect(s)
    c.sendall(slow.replace(b'3000', b'9000'))
    c.recv(100)
    s.p.send_signal(signal.SIGTERM)
    s.wait_for('shutting down')
    s.end(code=143, within=10)  # the second signal ends the server immediately
    r = subprocess.run([BIN, 'serve', '-m', '/nowhere.gguf', '--port', '0'], capture_output=True, text=True, timeout=60)
    expect('no such model', r.returncode, 66)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, 'sock')
        p = subprocess.Popen([BIN, 'serve', '-m', model, '--unix-socket', path, '-c', '1024'], stderr=subprocess.DEVNULL)
        for _ in range(200):
            if os.path.exists(path): break
            time.sleep(0.05)
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(path)
            c.sendall(request('GET', '/health'))
            if read_answer(c.makefile('rb'))[0] not in (200, 503): fault('--unix-socket')
        time.sleep(1)
        p.send_signal(signal.SIGTERM)
        p.wait(20)
        if os.path.exists(path): fault('the socket file was not removed')


def notified(model):
    """systemd's protocols: readiness, watchdog, and a socket that systemd has opened."""
    with tempfile.TemporaryDirectory() as d, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n, socket.socket() as l:
        n.bind(os.path.join(d, 'notify'))
        n.settimeout(20)
        l.bind(('127.0.0.1', 0))
        l.listen()
        env = {**os.environ, 'NOTIFY_SOCKET': os.path.join(d, 'notify'), 'WATCHDOG_USEC': '400000', 'LISTEN_FDS': '1'}
        def before():
            os.dup2(l.fileno(), 3, inheritable=True)
        sh = 'export LISTEN_PID=$$; exec "$@"'
        p = subprocess.Popen(['sh', '-c', sh, 'sh', BIN, 'serve', '-m', model, '-c', '1024'], stderr=subprocess.DEVNULL,
                             env=env, preexec_fn=before, close_fds=False)
        seen = b''
        while b'READY=1' not in seen or b'WATCHDOG=1' not in seen: seen += n.recv(400) + b'\n'
        with socket.create_connection(l.getsockname(), 10) as c:
            c.sendall(request('GET', '/health'))
            expect('a socket of systemd', read_answer(c.makefile('rb'))[0], 200)
        p.send_signal(signal.SIGTERM)
        while b'STOPPING=1' not in seen: seen += n.recv(400)
        expect('exit status', p.wait(20), 0)


def encrypted(model):
    """TLS, if it is built in and openssl can make a certificate."""
    if not shutil.which('openssl'): return
    with tempfile.TemporaryDirectory() as d:
        cert, key = os.path.join(d, 'c.pem'), os.path.join(d, 'k.pem')
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', cert, '-days', '2', '-subj',
                        '/CN=localhost'], check=True, capture_output=True)
        flags = ['serve', '-m', model, '-c', '4096', '--port', '0', '--ssl-cert-file', cert]
        r = subprocess.run([BIN, *flags, '--ssl-key-file', cert], capture_output=True, text=True, timeout=60)
        expect('an invalid key', r.returncode, 78)
        if 'this build has no TLS' in r.stderr: return
        s = Server(model, '-c', '4096', '--ssl-cert-file', cert, '--ssl-key-file', key)
        c = ssl.create_default_context(cafile=cert)
        with c.wrap_socket(connect(s), server_hostname='localhost') as t:
            f = t.makefile('rb')
            t.sendall(request('POST', '/v1/completions', {'prompt': 'a', 'max_tokens': 900, 'ignore_eos': True, 'stream': True}) +
                      request('POST', '/tokenize', {'content': 'b' * 100000}))
            status, _, body = read_answer(f)
            expect('a stream over TLS', (status, body[-14:]), (200, b'data: [DONE]\n\n'))
            expect('a large body over TLS', len(json.loads(read_answer(f)[2])['tokens']) > 1000, True)
        with connect(s) as t:
            t.sendall(request('GET', '/health'))
            expect('no TLS', read_all(t).startswith(b'HTTP'), False)
        for i in range(20):
            with connect(s) as t: t.sendall(b'\x16\x03\x01' + bytes(random.Random(i).randrange(256) for _ in range(300)))
        s.p.send_signal(signal.SIGHUP)
        s.wait_for('reloaded')
        with c.wrap_socket(connect(s), server_hostname='localhost') as t:
            t.sendall(request('GET', '/health'))
            expect('after SIGHUP', read_answer(t.makefile('rb'))[0], 200)
        s.end()


# ------------------------------------------------------------------------------------------------------ misbehaviour

def misbehave(s, seed, until, counts):
    r = random.Random(seed)
    def body(**k):
        text, chat = {'prompt': 'a' * r.randrange(1, 300)}, {'messages': [{'role': 'user', 'content': 'b'}]}
        path, own = r.choice([('/v1/completions', text), ('/v1/chat/completions', chat), ('/completion', text),
                              ('/v1/messages', chat), ('/v1/responses', {'input': 'c'})])
        n = 1 + (r.random() < .1 and 'comp' in path)
        return request('POST', path, {**own, 'max_tokens': r.randrange(1, 300), 'n': n, **k})
    def leave():
        c.sendall(body(stream=True, ignore_eos=True))
        c.recv(r.randrange(1, 2000))
    def leave_at_once(): c.sendall(body(stream=r.random() < .5))
    def garble(): c.sendall(bytes(r.randrange(256) for _ in range(r.randrange(2000))))
    def half_open():
        c.sendall(body()[:r.randrange(1, 200)])
        time.sleep(r.random() * 0.5)
    def half_closed():
        c.sendall(body(stream=True))
        c.shutdown(socket.SHUT_WR)
        read_all(c)
    def oversize(): c.sendall(b'POST /tokenize HTTP/1.1\r\nContent-Length: 400000000\r\n\r\n' + b'x' * r.randrange(100000))
    def slow():
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        c.sendall(body(stream=True, ignore_eos=True, max_tokens=2000))
        for _ in range(5):
            c.recv(100)
            time.sleep(0.1)
    def pipeline():
        n = r.randrange(2, 6)
        c.sendall(b''.join(body(max_tokens=3) for _ in range(n)) + request('GET', '/health'))
        if r.random() < .5: return
        f = c.makefile('rb')
        for _ in range(n): read_answer(f)
        if read_answer(f)[0] != 200: fault('pipelined: the last answer is missing')
    def well():
        c.sendall(body(max_tokens=5))
        if read_answer(c.makefile('rb'))[0] not in (200, 429, 503): fault('a good client was refused')
    ways = [leave, leave_at_once, garble, half_open, half_closed, oversize, slow, pipeline, well, well]
    while time.time() < until:
        way = r.choice(ways)
        try:
            with connect(s) as c:
                way()
                counts[way.__name__] = counts.get(way.__name__, 0) + 1
        except (OSError, ValueError, IndexError):
            if way is well: counts['refused'] = counts.get('refused', 0) + 1


def soak(s):
    counts, until = {}, time.time() + SOAK
    threads = [threading.Thread(target=misbehave, args=(s, i, until, counts)) for i in range(50)]
    for t in threads: t.start()
    while time.time() < until:
        time.sleep(min(1, SOAK / 4))
        try: expect('/health', ask(s, '/health')[0], 200)
        except OSError as e: fault(f'/health: {e}')
        if s.p.poll() is not None: sys.exit(f'the server died: {s.text()[-3000:]}')
    for t in threads: t.join()
    s.quiet('after all of that')
    return sum(counts.values())


def progress(s):
    """Progress of a long prompt in each API; an answer that exceeds its time limit ends after a line."""
    base = [5 + i % 30 for i in range(1500)]
    for path, body, end in (('/completion', {'prompt': base, 'n_predict': 3}, lambda e: e.get('stop')),
                            ('/v1/completions', {'prompt': base[::-1], 'max_tokens': 3}, lambda e: e['choices'][0]['finish_reason']),
                            ('/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'ab ' * 800}], 'max_tokens': 3},
                             lambda e: e['choices'][0]['finish_reason'])):
        for cached in (False, True):
            got = events(ask(s, path, {**body, 'stream': True, 'ignore_eos': True, 'return_progress': True})[2])
            told = [e['prompt_progress'] for e in got if 'prompt_progress' in e]
            done = [p['processed'] for p in told]
            if not told or done != sorted(set(done)) or done[-1] != told[0]['total'] or (told[0]['cache'] > 1000) != cached or \
                    any(p['cache'] > p['processed'] or p['time_ms'] < 0 for p in told) or not cached and told[0]['total'] < 1000:
                fault(f'{path}, cached {cached}: progress {told}')
            texts = [i for i, e in enumerate(got) if e.get('content') or e.get('choices', [{}])[0].get('text')]
            if not end(got[-1]) or texts and 'prompt_progress' in got[texts[0]]: fault(f'{path}: {got}')
        if any('prompt_progress' in e for e in events(ask(s, path, {**body, 'stream': True})[2])): fault(f'{path}: progress was not asked for')
    if 'prompt_progress' in ask(s, '/completion', {'prompt': base, 'n_predict': 3, 'return_progress': True})[2]: fault('progress without a stream')
    busy = [connect(s) for _ in range(20)]  # 80 samples; 8 of them run concurrently
    for c in busy: c.sendall(request('POST', '/v1/completions', {'prompt': 'a', 'n': 4, 'max_tokens': 3500, 'ignore_eos': True}))
    time.sleep(.2)
    waits = connect(s, 60)
    waits.sendall(request('POST', '/v1/completions', {'prompt': 'a', 'max_tokens': 2, 'stream': True, 'sse_ping_interval': 1}))
    got = b''
    while b'\r\n:\n\n' not in got and b'[DONE]' not in got: got += waits.recv(4096)
    for c in busy: c.close()
    while b'[DONE]' not in got: got += waits.recv(4096)
    if not got.split(b'\r\n\r\n', 1)[1].startswith(b'3\r\n:\n\n\r\n'): fault(f'no ping in a silent stream: {got}')
    waits.close()
    line = next(i for i in range(300) if ask(s, '/detokenize', {'tokens': [i]})[2]['content'] == '\n')
    body = {'prompt': 'a', 'n_predict': 3000, 'ignore_eos': True, 'logit_bias': [[line, 100]], 't_max_predict_ms': 20}
    got = ask(s, '/completion', body)[2]
    if not 0 < got['tokens_predicted'] < 3000 or got['stop_type'] != 'limit': fault(f't_max_predict_ms: {str(got)[:300]}')
    got = ask(s, '/v1/completions', {**body, 'max_tokens': 3000, 'n': 2})[2]['choices']
    expect('t_max_predict_ms with samples', [x['finish_reason'] for x in got], ['length'] * 2)
    got = ask(s, '/completion', {**body, 'n_predict': 300, 'logit_bias': [[line, False]]})[2]
    expect('t_max_predict_ms without a line', got['tokens_predicted'], 300)

def tiny(model):
    common = ['-c', '4096', '--kv-cache-tokens', '65536', '--parallel', '8', '--chat-template', 'chatml', '--max-header', '4096']
    s = Server(model, *common, '--max-connections', '40', '--header-timeout', '1', '--timeout', '2', '--max-body', '200000',
               '--send-buffer', '40000')
    for part in (http_forms, errors, forms, vocabulary, probabilities, told, progress, aligned, garbage, limits, cancel, slow_reader): part(s)
    s.quiet('at the end')
    s.end()
    with tempfile.NamedTemporaryFile('w', suffix='.jinja') as f:
        f.write(HERMES)
        f.flush()
        s = Server(model, '-c', '4096', '--chat-template-file', f.name)
        tools(s)
        thinking(s)
        s.end()
        with_tag(model, model + '.tag')
        s = Server(model + '.tag', '-c', '4096', '--chat-template-file', f.name)
        growing(s)
        s.quiet('after tools')
        s.end()
    infill(model)
    efforts(model)
    prefixed(model)
    keys(model)
    life(model)
    notified(model)
    encrypted(model)
    s = Server(model, *common, '--header-timeout', '1', '--timeout', '3', '--max-queue', '2000')
    n = soak(s)
    s.end()
    return n


# ------------------------------------------------------------------------------------------------------ tools

HERMES = '''{%- if tools %}<|im_start|>system
Functions: <tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>
Call one with <tool_call>
{"name": NAME, "arguments": OBJECT}
</tool_call><|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}'''
CALL = 'root ::= "<tool_call>\\n{\\"name\\": \\"weather\\", \\"arguments\\": {\\"city\\": \\"Paris\\"}}\\n</tool_call>"'
SCHEMA = {'type': 'object', 'properties': {'city': {'type': 'string', 'enum': ['Paris']}}, 'required': ['city'], 'additionalProperties': False}
TOOLS = [{'type': 'function', 'function': {'name': 'weather', 'description': 'The weather', 'parameters': SCHEMA}}]


def tools(s):
    """Function calls in every API. The schema allows one value and the function is named, so any model makes the
    call."""
    chat = {'messages': [{'role': 'user', 'content': 'Weather?'}], 'tools': TOOLS, 'max_tokens': 200,
            'tool_choice': {'type': 'function', 'function': {'name': 'weather'}}}
    def named(f): return f and (f.get('name'), json.loads(f.get('arguments') or 'null'))
    a = ask(s, '/v1/chat/completions', chat)[2]['choices'][0]
    m = a['message']
    expect('a call', (a['finish_reason'], m['content'], named(m.get('tool_calls', [{}])[0].get('function'))),
           ('tool_calls', None, ('weather', {'city': 'Paris'})))
    name = args = ''
    chunks = [e['choices'][0] for e in events(ask(s, '/v1/chat/completions', {**chat, 'stream': True, 'return_token_ids': True})[2])]
    for c in chunks:
        for t in c['delta'].get('tool_calls', []):
            name += t['function'].get('name', '')
            args += t['function']['arguments']
            expect('index of the call', t['index'], 0)
    expect('a call as a stream', (name, json.loads(args), chunks[-1]['finish_reason']), ('weather', {'city': 'Paris'}, 'tool_calls'))
    if sum(len(c.get('token_ids', [])) for c in chunks) < 10: fault('a call as a stream: token ids are missing')
    second = [*chat['messages'], m, {'role': 'tool', 'tool_call_id': m['tool_calls'][0]['id'], 'content': 'sunny'}]
    expect('a second turn', ask(s, '/v1/chat/completions', {'messages': second, 'tools': TOOLS, 'max_tokens': 4})[0], 200)
    # here the library makes the grammar
    for how in ('required', {'type': 'function', 'function': {'name': 'weather'}}):
        body = {**chat, 'tool_choice': how, 'max_tokens': 400, 'temperature': 1, 'seed': 3}
        a = ask(s, '/v1/chat/completions', body)[2]['choices'][0]
        chunks = [e['choices'][0] for e in events(ask(s, '/v1/chat/completions', {**body, 'stream': True})[2])]
        args = ''.join(t['function']['arguments'] for c in chunks for t in c['delta'].get('tool_calls', []) if not t['index'])
        if a['finish_reason'] == 'length': continue  # a random model may never end its list of calls
        got = a['message']['tool_calls'][0]['function']
        expect(f'tool_choice {how}', (a['finish_reason'], got['name'], sorted(json.loads(got['arguments']))),
               ('tool_calls', 'weather', ['city']))
        expect('the same as a stream', args, got['arguments'])
    both = ask(s, '/v1/chat/completions', {**chat, 'grammar': 'root ::= "no"'})[2]['choices'][0]
    expect('a required call with a grammar', both['finish_reason'], 'tool_calls')
    none = ask(s, '/v1/chat/completions', {**chat, 'grammar': CALL, 'tool_choice': 'none'})[2]['choices'][0]
    if none['finish_reason'] != 'stop' or 'weather' not in none['message']['content']: fault(f'tool_choice none: {none}')
    cut = ask(s, '/v1/chat/completions', {**chat, 'max_tokens': 12})[2]['choices'][0]
    if cut['finish_reason'] != 'length' or cut['message'].get('tool_calls'): fault(f'a call that was cut: {cut}')
    a = ask(s, '/v1/responses', {'input': 'Weather?', 'tools': [{'type': 'function', **TOOLS[0]['function']}],
                                   'tool_choice': {'type': 'function', 'name': 'weather'}})[2]
    call = a['output'][-1]
    expect('a call of /v1/responses', (call['type'], named(call)), ('function_call', ('weather', {'city': 'Paris'})))
    back = [{'role': 'user', 'content': 'Weather?'}, call, {'type': 'function_call_output', 'call_id': call['call_id'], 'output': 'rain'}]
    expect('its second turn', ask(s, '/v1/responses', {'input': back, 'max_output_tokens': 4})[0], 200)
    k = {'max_tokens': 200, 'messages': [{'role': 'user', 'content': 'Weather?'}], 'tool_choice': {'type': 'tool', 'name': 'weather'},
         'tools': [{'name': 'weather', 'input_schema': SCHEMA}]}
    a = ask(s, '/v1/messages', k)[2]
    expect('a call of /v1/messages', (a['stop_reason'], a['content'][-1]['type'], a['content'][-1].get('input')),
           ('tool_use', 'tool_use', {'city': 'Paris'}))
    got = events(ask(s, '/v1/messages', {**k, 'stream': True})[2])
    expect('its stream', json.loads(''.join(e['delta']['partial_json'] for e in got if e['type'] == 'content_block_delta'
                                             and e['delta']['type'] == 'input_json_delta')), {'city': 'Paris'})
    back = [*k['messages'], {'role': 'assistant', 'content': a['content']}, {'role': 'user', 'content': [
        {'type': 'tool_result', 'tool_use_id': a['content'][-1]['id'], 'content': 'rain'}]}]
    expect('its second turn', ask(s, '/v1/messages', {**k, 'messages': back, 'tool_choice': None, 'max_tokens': 4})[0], 200)


def with_tag(model, out):
    """Writes the tiny model with <tool_call> as its token 0. Shortening the name of an unneeded key frees the
    bytes."""
    with open(model, 'rb') as f: b = f.read()
    for old, new in ((b'<pad>', b'<tool_call>'), (b'tokenizer.ggml.add_space_prefix', b'tokenizer.ggml.add_space_')):
        old, new = (struct.pack('<Q', len(x)) + x for x in (old, new))
        if b.count(old) != 1: sys.exit(f'{old} in the tiny model: {b.count(old)} times')
        b = b.replace(old, new)
    with open(out, 'wb') as f: f.write(b)


def again(once, grew):
    """Repeats a request until it grows in several pieces: a busy machine may send everything in one piece."""
    for _ in range(40):
        got = once()
        if grew(got): break
    return got

def growing(s):
    """With tool_choice auto, a call streams while it is generated, in every API. A bias makes the tag the first token;
    after it the library's grammar allows only a call."""
    shape = {'type': 'object', 'properties': {'city': {'type': 'string', 'minLength': 12, 'maxLength': 40}, 'days': {'type': 'integer'}},
             'required': ['city', 'days'], 'additionalProperties': False}
    tool = {'name': 'weather', 'description': 'The weather', 'parameters': shape}
    common = {'logit_bias': {'0': 100}, 'max_tokens': 400, 'temperature': 1, 'tool_choice': 'auto'}
    messages = [{'role': 'user', 'content': 'Weather?'}]
    chat = {**common, 'messages': messages, 'tools': [{'type': 'function', 'function': tool}]}
    grown = 0
    for seed in range(6):
        for single in (False, True):
            body = {**chat, 'seed': seed, 'parallel_tool_calls': not single}
            a = ask(s, '/v1/chat/completions', body)[2]['choices'][0]
            if a['finish_reason'] == 'length': continue  # numbers may be long
            want = [c['function'] for c in a['message']['tool_calls']]
            if single: expect(f'parallel_tool_calls false, seed {seed}', len(want), 1)
            chunks = [e['choices'][0] for e in events(ask(s, '/v1/chat/completions', {**body, 'stream': True})[2])]
            got, pieces, ids = [], [], set()
            for t in (t for c in chunks for t in c['delta'].get('tool_calls', [])):
                if t['index'] == len(got):
                    got.append({'name': t['function']['name'], 'arguments': ''})
                    pieces.append(0)
                    ids.add(t['id'])
                    expect('the name comes first', t['function']['arguments'], '')
                    continue
                got[t['index']]['arguments'] += t['function']['arguments']
                pieces[t['index']] += 1
            expect(f'a growing call, seed {seed}', (got, chunks[-1]['finish_reason']), (want, 'tool_calls'))
            expect('ids', len(ids), len(want))
            for f in got:
                value = json.loads(f['arguments'])
                if sorted(value) != ['city', 'days'] or not 12 <= len(value['city']) <= 40: fault(f'arguments: {f}')
            grown += min(pieces) > 3
            grew = body
    deltas = lambda: [e['choices'][0]['delta'] for e in events(ask(s, '/v1/chat/completions', {**grew, 'stream': True})[2])]
    if not grown and sum('tool_calls' in d for d in again(deltas, lambda got: sum('tool_calls' in d for d in got) > 4)) <= 4:
        fault('no call grew in a stream')
    cut = {**chat, 'seed': 1, 'max_tokens': 20}
    chunks = [e['choices'][0] for e in events(ask(s, '/v1/chat/completions', {**cut, 'stream': True})[2])]
    text = ''.join(c['delta'].get('content') or '' for c in chunks)
    whole = ask(s, '/v1/chat/completions', cut)[2]['choices'][0]
    expect('a call that was cut', (chunks[-1]['finish_reason'], text, whole['finish_reason'], whole['message'].get('tool_calls')),
           ('length', whole['message']['content'], 'length', None))
    r = {**common, 'seed': 1, 'input': 'Weather?', 'tools': [{'type': 'function', **tool}], 'max_output_tokens': 400, 'parallel_tool_calls': False}
    got = again(lambda: events(ask(s, '/v1/responses', {**r, 'stream': True})[2]),
                lambda got: sum(e['type'] == 'response.function_call_arguments.delta' for e in got) > 3)
    parts = [e['delta'] for e in got if e['type'] == 'response.function_call_arguments.delta']
    done = [e['arguments'] for e in got if e['type'] == 'response.function_call_arguments.done']
    if len(parts) < 4 or ''.join(parts) != ''.join(done): fault(f'/v1/responses, a growing call: {parts}, {done}')
    k = {**common, 'seed': 1, 'messages': messages, 'tools': [{'name': 'weather', 'input_schema': shape}], 'tool_choice': {'type': 'auto', 'disable_parallel_tool_use': True}}
    def parts_of_inputs():
        inputs = {}
        for e in events(ask(s, '/v1/messages', {**k, 'stream': True})[2]):
            if e['type'] == 'content_block_delta' and e['delta']['type'] == 'input_json_delta':
                inputs.setdefault(e['index'], []).append(e['delta']['partial_json'])
        return inputs
    inputs = again(parts_of_inputs, lambda got: min(map(len, got.values())) > 3)
    want = [b['input'] for b in ask(s, '/v1/messages', k)[2]['content'] if b['type'] == 'tool_use']
    if min(map(len, inputs.values())) < 4: fault(f'/v1/messages, a growing call: {inputs}')
    expect('/v1/messages, growing calls', [json.loads(''.join(x)) for x in inputs.values()], want)


def prefixed(model):
    """--api-prefix: every path starts with it, and needs the same keys."""
    s = Server(model, '-c', '4096', '--api-prefix', '/models/a/', '--api-key', 'k', '--alias', 'it,that')
    key = 'Authorization: Bearer k\r\n'
    for path, status in (('/models/a/health', 200), ('/models/a/', 200), ('/models/a/props', 200), ('/models/a/v1/models', 200),
                         ('/models/a/v1/models/that', 200), ('/models/a/v1/models/none', 404), ('/health', 404), ('/', 404), ('/models/ahealth', 404),
                         ('/models/a', 404), ('/models/a/slots?fail_on_no_slot=1', 200), ('/v1/models', 404)):
        expect(f'GET {path}', ask(s, path, headers=key)[0], status)
    expect('without a key', [ask(s, path)[0] for path in ('/models/a/health', '/health', '/models/a/props')], [200, 401, 401])
    expect('a completion', ask(s, '/models/a/v1/completions', {'prompt': 'a', 'max_tokens': 1}, key)[0], 200)
    s.end()
    r = subprocess.run([BIN, 'serve', '-m', model, '--api-prefix', 'a'], capture_output=True, text=True)
    if not r.returncode or 'begin with /' not in r.stderr: fault(f'--api-prefix a: {r.returncode}, {r.stderr}')


def efforts(model):
    """Template variables from the server's options, and their overrides in a request."""
    with tempfile.NamedTemporaryFile('w', suffix='.jinja') as f:
        f.write('{{ reasoning_effort }}|{{ enable_thinking }}|{{ messages[0].content }}')
        f.flush()
        s = Server(model, '-c', '4096', '--chat-template-file', f.name, '--reasoning-effort', 'low', '--reasoning', 'off')
        chat = {'messages': [{'role': 'user', 'content': 'b'}]}
        expect('--reasoning-effort', ask(s, '/apply-template', chat)[2]['prompt'], 'low|False|b')
        own = {**chat, 'chat_template_kwargs': {'reasoning_effort': 'high', 'enable_thinking': True}}
        expect('reasoning_effort', ask(s, '/apply-template', own)[2]['prompt'], 'high|True|b')
        used = ask(s, '/v1/chat/completions', {**chat, 'max_tokens': 1})[2]['usage']['prompt_tokens']
        expect('tokens counted as used', ask(s, '/v1/messages/count_tokens', {**chat, 'max_tokens': 1})[2]['input_tokens'], used)
        s.end()


def infill(model):
    """Fill in the middle: the answer equals that of a prompt made of the parts' token ids."""
    pre, suf, mid, sep = range(260, 264)
    of = lambda *flags: Server(model, '-c', '512', '--override-kv', f'tokenizer.ggml.fim_pre_token_id=int:{pre}', '--override-kv',
                               f'tokenizer.ggml.fim_suf_token_id=int:{suf}', '--override-kv', f'tokenizer.ggml.fim_mid_token_id=int:{mid}',
                               '--override-kv', f'tokenizer.ggml.fim_sep_token_id=int:{sep}', *flags)
    def same(what, s, body, ids, path='/infill'):
        common = {'temperature': 0, 'n_predict': 12, 'ignore_eos': True}
        got = ask(s, path, {**common, 'max_tokens': 12, **body})
        want = ask(s, '/completion', {**common, 'prompt': ids})[2]
        if path == '/infill': got = got[0], (got[2].get('content'), got[2].get('tokens_evaluated'))
        else: got = got[0], (got[2]['choices'][0]['text'], got[2]['usage']['prompt_tokens'])
        expect(what, got, (200, (want['content'], len(ids))))

    s = of()
    ids = lambda text: ask(s, '/tokenize', {'content': text, 'parse_special': False})[2]['tokens']
    bos = ask(s, '/tokenize', {'content': 'a', 'add_special': True})[2]['tokens'][0]
    body = {'input_prefix': 'int main() {', 'input_suffix': '}\n'}
    head = [sep, *ids('filename\n'), bos]
    same('infill', s, body, [*head, pre, *ids(body['input_prefix']), suf, *ids(body['input_suffix']), mid])
    same('infill, typed', s, {**body, 'prompt': ' ret'}, [*head, pre, *ids(body['input_prefix']), *ids(' ret'), suf, *ids('}\n'), mid])
    extra = [{'filename': 'a.h', 'text': 'int f();'}, {'text': 'int g();'}]
    files = [sep, *ids('a.h\n'), *ids('int f();'), sep, *ids('tmp\n'), *ids('int g();')]
    same('infill, files', s, {**body, 'input_extra': extra}, [*files, *head, pre, *ids(body['input_prefix']), suf, *ids('}\n'), mid])
    same('suffix of a completion', s, {'prompt': 'int', 'suffix': '}'}, [*head, pre, *ids('int'), suf, *ids('}'), mid], '/v1/completions')
    long = ''.join(chr(97 + i * i % 26) for i in range(4000))
    a = ask(s, '/infill', {'input_prefix': long, 'input_suffix': long, 'input_extra': extra, 'n_predict': 100, 'temperature': 0})
    expect('infill, no room for all', (a[0], a[2].get('tokens_evaluated')), (200, 412))
    text = ''.join(e.get('content', '') for e in events(ask(s, '/infill', {**body, 'n_predict': 12, 'temperature': 0, 'stream': True})[2]))
    expect('infill in a stream', text, ask(s, '/infill', {**body, 'n_predict': 12, 'temperature': 0})[2]['content'])
    for bad, field in (({'input_prefix': 'a'}, 'input_suffix'), ({**body, 'input_prefix': 1}, 'input_prefix'), ({**body, 'prompt': [1]}, 'prompt'),
                       ({**body, 'input_extra': {}}, 'input_extra'), ({**body, 'input_extra': [{'text': 1}]}, 'input_extra'),
                       ({**body, 'input_extra': ['a']}, 'input_extra'), ({**body, 'prompt': long}, 'tokens')):
        a = ask(s, '/infill', bad)
        if a[0] != 400 or field not in a[2]['error']['message']: fault(f'infill of {str(bad)[:80]}: {a[0]} {str(a[2])[:200]}')
    expect('suffix, many prompts', ask(s, '/v1/completions', {'prompt': ['a', 'b'], 'suffix': 'c'})[0], 400)
    s.quiet('after infill')
    s.end()
    s = of('--spm-infill')
    same('infill, the suffix first', s, body, [*head, suf, *ids('}\n'), pre, *ids(body['input_prefix']), mid])
    s.end()
    s = Server(model, '-c', '512')
    a = ask(s, '/infill', body)
    if a[0] != 501 and a[0] != 400 or 'fill-in-the-middle' not in a[2]['error']['message']: fault(f'infill without tokens: {a}')
    s.end()


def thinking(s):
    """Reasoning is separated from the answer in every format."""
    grammar = 'root ::= "<think>\\nhm\\n</think>\\n\\nyes"'
    chat = {'messages': [{'role': 'user', 'content': 'a'}], 'grammar': grammar, 'max_tokens': 100}
    m = ask(s, '/v1/chat/completions', chat)[2]['choices'][0]['message']
    expect('thoughts', (m.get('reasoning_content', '').strip(), m['content'].strip()), ('hm', 'yes'))
    for how, want in (('none', [None, True]), ('hidden', [None, False])):
        m = ask(s, '/v1/chat/completions', {**chat, 'reasoning_format': how})[2]['choices'][0]['message']
        expect(f'reasoning_format {how}', [m.get('reasoning_content'), 'hm' in m['content']], want)
    deltas = [e['choices'][0]['delta'] for e in events(ask(s, '/v1/chat/completions', {**chat, 'stream': True})[2])]
    expect('thoughts in a stream', ''.join(d.get('content') or '' for d in deltas).strip(), 'yes')
    blocks = ask(s, '/v1/messages', {**chat})[2]['content']
    expect('thoughts of /v1/messages', [b['type'] for b in blocks], ['thinking', 'text'])


# ------------------------------------------------------------------------------------------------------ 2. openai

def openai_part(url, model, ours):
    import openai
    o = openai.OpenAI(base_url=url + '/v1', api_key='none', max_retries=0, timeout=120)
    m = [{'role': 'user', 'content': 'What is the capital of France?'}]
    chat = lambda **k: o.chat.completions.create(**{'model': model, 'messages': m, 'temperature': 0, 'max_tokens': 24, **k})
    a = chat()
    reason = a.choices[0].finish_reason
    if ours and ('Paris' not in a.choices[0].message.content or reason != 'stop'): fault(f'a chat: {a}')
    text, finish, usage = '', None, None
    for c in chat(stream=True, stream_options={'include_usage': True}):
        if c.usage: usage = c.usage
        if c.choices:
            text += c.choices[0].delta.content or ''
            finish = c.choices[0].finish_reason or finish
    expect('a stream', (text, finish), (a.choices[0].message.content, reason))
    expect('its usage', (usage.prompt_tokens, usage.completion_tokens), (a.usage.prompt_tokens, a.usage.completion_tokens))
    expect('length', chat(max_tokens=2).choices[0].finish_reason, 'length')
    stopped = chat(stop=['is']).choices[0]
    if 'is' in stopped.message.content or stopped.finish_reason != 'stop': fault(f'stop: {stopped}')
    one, two = (chat(temperature=1.2, seed=7).choices[0].message.content for _ in range(2))
    expect('a seed', one, two)
    p = chat(logprobs=True, top_logprobs=3, max_tokens=4).choices[0].logprobs.content
    if len(p) != 4 or any(len(t.top_logprobs) != 3 or abs(t.top_logprobs[0].logprob - t.logprob) > 1e-4 for t in p):
        fault(f'logprobs: {p}')
    expect('their text', bytes(b for t in p for b in t.bytes).decode(), a.choices[0].message.content[:len(''.join(t.token for t in p))])
    q = chat(messages=m + [{'role': 'assistant', 'content': a.choices[0].message.content},
                           {'role': 'user', 'content': 'And of Italy?'}])
    if 'Rome' not in q.choices[0].message.content and ours: fault(f'a second turn: {q}')
    c = o.completions.create(model=model, prompt='The capital of France is', temperature=0, max_tokens=5)
    if ours and 'Paris' not in c.choices[0].text: fault(f'a completion: {c}')
    try: chat(messages='hello')
    except openai.APIStatusError: pass
    else: fault('invalid messages: no error')
    stream = chat(stream=True, max_tokens=400)
    next(iter(stream))
    stream.close()  # the client disconnects in the middle
    if not ours: return
    vectors = [o.embeddings.create(model=model, input=['Paris', 'Rome'], **k).data for k in ({}, {'encoding_format': 'float'})]
    if max(abs(a - b) for x, y in zip(*vectors) for a, b in zip(x.embedding, y.embedding)) > 1e-6: fault('embeddings differ')
    shape = {'type': 'object', 'properties': {'city': {'type': 'string', 'maxLength': 12}, 'large': {'type': 'boolean'}},
             'required': ['city', 'large'], 'additionalProperties': False}
    got = json.loads(chat(max_tokens=64, response_format={'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': shape}})
                     .choices[0].message.content)
    if sorted(got) != ['city', 'large'] or not isinstance(got['large'], bool): fault(f'a schema: {got}')
    expect('cached tokens', chat().usage.prompt_tokens_details.cached_tokens >= 32, True)
    n = chat(n=3, temperature=1.2, seed=5)
    expect('n', len({c.message.content for c in n.choices}), 3)
    chunks = list(chat(stream=True, extra_body={'return_token_ids': True}))
    ids = [c.choices[0].model_extra.get('token_ids', []) for c in chunks]
    whole = chat(extra_body={'return_token_ids': True}).choices[0].model_extra['token_ids']
    expect('return_token_ids', sum(ids, []), whole)
    try: o.models.retrieve('nothing')
    except openai.NotFoundError: pass
    else: fault('no such model: no error')
    r = o.responses.create(model=model, input='What is the capital of France?', temperature=0, max_output_tokens=24)
    expect('responses', r.output_text, a.choices[0].message.content)
    kinds, text = [], ''
    for e in o.responses.create(model=model, input='What is the capital of France?', temperature=0, stream=True):
        kinds.append(e.type)
        if e.type == 'response.output_text.delta': text += e.delta
    expect('responses as a stream', (kinds[0], kinds[-1], text), ('response.created', 'response.completed', r.output_text))


def anthropic_part(url, want):
    import anthropic
    a = anthropic.Anthropic(base_url=url, api_key='none', max_retries=0, timeout=120)
    k = {'model': 'x', 'max_tokens': 40, 'extra_body': {'temperature': 0}, 'messages': [{'role': 'user', 'content': [
        {'type': 'text', 'text': 'What is the capital of France?'}]}]}
    got = a.messages.create(**k)
    expect('/v1/messages', (got.content[0].text, got.stop_reason), (want, 'end_turn'))
    with a.messages.stream(**k) as s: text = ''.join(s.text_stream)
    final = s.get_final_message()
    expect('its stream', (text, final.stop_reason, final.usage.output_tokens), (want, 'end_turn', got.usage.output_tokens))
    expect('max_tokens', a.messages.create(**{**k, 'max_tokens': 2}).stop_reason, 'max_tokens')
    expect('stop_sequences', a.messages.create(**k, stop_sequences=['France']).stop_sequence, 'France')
    expect('count_tokens', a.messages.count_tokens(model='x', messages=k['messages']).input_tokens,
           got.usage.input_tokens + (got.usage.cache_read_input_tokens or 0))
    try: a.messages.create(**{**k, 'messages': [{'role': 'user', 'content': [{'type': 'image', 'source': {}}]}]})
    except anthropic.BadRequestError: pass
    else: fault('an image: no error')


def langchain_part(url):
    """One request and one stream, if LangChain is installed."""
    from langchain_openai import ChatOpenAI
    c = ChatOpenAI(base_url=url + '/v1', api_key='none', model='x', temperature=0, max_tokens=24, max_retries=0)
    got = c.invoke('What is the capital of France?').content
    if 'Paris' not in got: fault(f'LangChain: {got}')
    expect('its stream', ''.join(x.content for x in c.stream('What is the capital of France?')), got)


def calls_of_a_model():
    """After examples of calls in the conversation, the model makes a call by itself after some text; both stream."""
    with tempfile.NamedTemporaryFile('w', suffix='.jinja') as f:
        f.write(HERMES)
        f.flush()
        s = Server(CHAT, '-c', '2048', '--chat-template-file', f.name)
    messages = []
    for city in ('Rome', 'Oslo', 'Madrid'):
        messages += [{'role': 'user', 'content': f'Weather in {city}?'},
                     {'role': 'assistant', 'content': 'Let me look.\n', 'tool_calls': [{'id': 'a', 'type': 'function', 'function': {
                         'name': 'weather', 'arguments': json.dumps({'city': city})}}]},
                     {'role': 'tool', 'tool_call_id': 'a', 'content': 'sunny'}, {'role': 'assistant', 'content': f'It is sunny in {city}.'}]
    body = {'messages': messages + [{'role': 'user', 'content': 'Weather in Paris?'}], 'tools': TOOLS, 'max_tokens': 80, 'temperature': 0}
    a = ask(s, '/v1/chat/completions', body)[2]['choices'][0]
    deltas = [e['choices'][0]['delta'] for e in events(ask(s, '/v1/chat/completions', {**body, 'stream': True})[2])]
    args = [t['function']['arguments'] for d in deltas for t in d.get('tool_calls', []) if not t['index']]
    expect('a call of the model', (a['message']['content'], a['message']['tool_calls'][0]['function'], a['finish_reason']),
           ('Let me look.', {'name': 'weather', 'arguments': '{"city": "Paris"}'}, 'tool_calls'))
    expect('the same as a stream', (''.join(d.get('content') or '' for d in deltas).strip(), ''.join(args), len(args) > 3),
           ('Let me look.', '{"city": "Paris"}', True))
    s.end()


def litellm_part(url):
    """Requests in OpenAI's and Anthropic's formats, a stream and embeddings, if LiteLLM is installed."""
    # otherwise LiteLLM fetches a price list from the network
    os.environ.setdefault('LITELLM_LOCAL_MODEL_COST_MAP', 'True')
    import litellm
    litellm.suppress_debug_info = True
    k = {'api_key': 'none', 'temperature': 0, 'max_tokens': 24, 'num_retries': 0,
         'messages': [{'role': 'user', 'content': 'What is the capital of France?'}]}
    got = litellm.completion(model='openai/x', api_base=url + '/v1', **k)
    if 'Paris' not in got.choices[0].message.content: fault(f'LiteLLM: {got}')
    text = ''.join(c.choices[0].delta.content or '' for c in litellm.completion(model='openai/x', api_base=url + '/v1', stream=True, **k))
    expect('its stream', text, got.choices[0].message.content)
    a = litellm.completion(model='anthropic/x', api_base=url, **k)
    expect("LiteLLM by Anthropic's form", (a.choices[0].message.content, a.choices[0].finish_reason), (text, got.choices[0].finish_reason))
    v = litellm.embedding(model='openai/x', api_base=url + '/v1', api_key='none', input=['Paris', 'Rome'], encoding_format='float').data
    expect('its vectors', [len(x['embedding']) for x in v], [576, 576])


def have(package):
    try:
        __import__(package)
        return True
    except ImportError: pass
    if os.environ.get('PAGEDINFER_NO_PIP'): return False
    r = subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', '--disable-pip-version-check', '--no-input', '--retries', '2',
                        package], capture_output=True, timeout=200)
    return r.returncode == 0


def clients():
    if not CHAT or not os.path.exists(CHAT): return 'no chat model (PAGEDINFER_CHAT_MODEL)'
    s, done = Server(CHAT, '-c', '2048', '--kv-cache-tokens', '8192'), []
    if have('openai'):
        openai_part(s.url, 'x', True)
        done.append('openai')
        if PEER: peer()
    if importlib.util.find_spec('langchain_openai'):
        langchain_part(s.url)
        done.append('langchain')
    if importlib.util.find_spec('litellm'):
        litellm_part(s.url)
        done.append('litellm')
    if have('anthropic'):
        k = {'messages': [{'role': 'user', 'content': 'What is the capital of France?'}], 'temperature': 0, 'max_tokens': 40}
        anthropic_part(s.url, ask(s, '/v1/chat/completions', k)[2]['choices'][0]['message']['content'])
        done.append('anthropic')
    s.quiet('after the clients')
    s.end()
    calls_of_a_model()
    return ' and '.join(done) if done else 'no client packages'


def peer():
    port = 18000 + os.getpid() % 1000
    p = subprocess.Popen([PEER, '-m', CHAT, '-c', '2048', '--port', str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f'http://127.0.0.1:{port}/health')
                break
            except OSError: time.sleep(0.1)
        openai_part(f'http://127.0.0.1:{port}', 'x', False)
        print('the same against llama-server')
    finally:
        p.terminate()
        p.wait(20)


def main():
    if subprocess.run([BIN, 'serve', '-m', '/none'], capture_output=True, text=True).returncode == 69:
        print('this build has no server')
        return 77
    maker = os.path.join(BUILD, 'tests', 'tool_tiny_model')
    n = 0
    if os.path.exists(maker):
        with tempfile.TemporaryDirectory() as d:
            model = os.path.join(d, 'tiny.gguf')
            subprocess.run([maker, model, '32768'], check=True)
            n = tiny(model)
    with_clients = clients()
    print(f'server: {n} clients that misbehave in {SOAK} s, {with_clients}, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__': sys.exit(main())
