#!/usr/bin/env python3
"""Checks pagedinfer serve under failures: no memory, a step that takes too long, tenants that run concurrently.

1. Requests of every kind while one allocation of the server fails, and while 30 in a row fail
   (support/failing_malloc.c). Each request gets its normal answer, or 500 or 503, or the connection ends. A stream
   that has begun reports the error or breaks off. Afterwards /health is 200, nothing runs and every block of the cache
   is free. One allocation in several fails in turn; PAGEDINFER_LONG=1 lets each of them fail.
2. /health and the log while a step is slower than --hang-timeout, and after it.
3. Two tenants with the same prompt at the same time: each has its own cache blocks.
Exit 77: there is no server, or no tiny model."""
import json, mmap, os, re, struct, subprocess, sys, tempfile, threading, time

import check_server as base
from check_server import BIN, BUILD, HERMES, TOOLS, Server, ask, connect, events, expect, fault, read_all, read_answer, request

SHIM = os.path.join(BUILD, 'tests', 'failing_malloc.so')
LONG = bool(os.environ.get('PAGEDINFER_LONG'))
PER_KIND = 24  # faults of each sort, unless all are tried


class Faults:
    """Counts the allocations of a server that runs with the shim, and makes some fail."""
    def __init__(self, path):
        with open(path, 'wb') as f: f.write(bytes(32))
        self.file = open(path, 'r+b')
        self.map = mmap.mmap(self.file.fileno(), 32)

    def arm(self, first, count):
        self.map[8:32] = struct.pack('qqq', 0, first, count)
        self.map[0:8] = struct.pack('q', 1)

    def disarm(self):
        self.map[0:8] = struct.pack('q', 0)
        return struct.unpack('q', self.map[8:16])[0]


CHAT = {'messages': [{'role': 'user', 'content': 'Weather?'}], 'temperature': 0, 'max_tokens': 24, 'ignore_eos': True}
KINDS = {
    'chat': ('/v1/chat/completions', CHAT),
    'chat stream': ('/v1/chat/completions', {**CHAT, 'stream': True, 'n': 2, 'return_token_ids': True, 'logprobs': True,
                                             'top_logprobs': 2, 'stream_options': {'include_usage': True}}),
    'calls': ('/v1/chat/completions', {**CHAT, 'tools': TOOLS, 'tool_choice': 'required', 'max_tokens': 60}),
    'calls stream': ('/v1/chat/completions', {**CHAT, 'tools': TOOLS, 'tool_choice': 'required', 'max_tokens': 60, 'stream': True}),
    'completion': ('/v1/completions', {'prompt': ['a', [40, 41]], 'n': 2, 'temperature': 0, 'max_tokens': 8, 'echo': True, 'logprobs': 2,
                                       'stop': ['zzz'], 'logit_bias': {'40': -1}, 'return_token_ids': True}),
    'completion stream': ('/v1/completions', {'prompt': 'a', 'temperature': 0, 'max_tokens': 8, 'stream': True, 'logprobs': 1}),
    'native': ('/completion', {'prompt': 'a', 'temperature': 0, 'n_predict': 8, 'n_probs': 2, 'return_tokens': True}),
    'native stream': ('/completion', {'prompt': 'a', 'temperature': 0, 'n_predict': 8, 'stream': True, 'n_probs': 2}),
    'schema': ('/v1/completions', {'prompt': 'a', 'temperature': 0, 'max_tokens': 20, 'guided_choice': ['left', 'right', 'middle']}),
    'responses': ('/v1/responses', {'input': 'a', 'temperature': 0, 'max_output_tokens': 8, 'metadata': {'a': 'b'}}),
    'responses stream': ('/v1/responses', {'input': 'a', 'temperature': 0, 'max_output_tokens': 8, 'stream': True, 'top_logprobs': 1}),
    'messages': ('/v1/messages', {**CHAT, 'system': 'b'}),
    'messages stream': ('/v1/messages', {**CHAT, 'stream': True}),
    'count': ('/v1/messages/count_tokens', CHAT),
    'embeddings': ('/v1/embeddings', {'input': ['a', 'b'], 'encoding_format': 'base64'}),
    'vectors': ('/embedding', {'content': ['a', 'b']}),
    'tokenize': ('/tokenize', {'content': 'abc ö', 'with_pieces': True}),
    'detokenize': ('/detokenize', {'tokens': [40, 41, 42]}),
    'template': ('/apply-template', {'messages': CHAT['messages']}),
    'mixed': ('/completion', {'prompt': [['a b', 40], 'c', {'prompt_string': ['d', 41]}], 'n_predict': 4, 'temperature': 0, 'n_probs': 2,
                              'logit_bias': [['ab cd', -1], [50, False]], 'bad_words': ['zz', 'ab'], 'post_sampling_probs': True}),
    'cut': ('/v1/completions', {'prompt': ['abc def', [40, 41, 42]], 'truncate_prompt_tokens': 2, 'temperature': 0, 'max_tokens': 4,
                                'prompt_logprobs': 1, 'logit_bias': {'ab': -1}, 'stop': ['q'], 'include_stop_str_in_output': True}),
    'continued': ('/v1/chat/completions', {**CHAT, 'messages': [*CHAT['messages'], {'role': 'assistant', 'content': 'b'}]}),
    'tokens of a chat': ('/tokenize', {'messages': CHAT['messages'], 'return_token_strs': True}),
    'mixed tokens': ('/tokenize', {'content': ['a', 40, 'b'], 'with_pieces': True}), 'counted': ('/v1/responses/input_tokens', {'input': 'a'}),
    'models': ('/v1/models', None), 'props': ('/props', None), 'slots': ('/slots', None), 'metrics': ('/metrics', None),
    'health': ('/health', None), 'page': ('/', None), 'nothing': ('/none', {}), 'an error': ('/v1/completions', {'prompt': 5}),
}
CHANGES = {'metrics', 'slots'}  # kinds with a different response each time
VARIES = re.compile(r'(chatcmpl-|cmpl-|resp_|msg_|rs_|fc_|call_|item_)[0-9a-zA-Z]+|"(created|created_at|\w+_ms|\w+_per_second|'
                    r'cached_tokens|cache_n|cache_read_input_tokens|input_tokens|prompt_n)":\s*[-0-9.e+]+')


def once(s, path, body):
    """Returns (status, body); status 0 if the connection ended. A body that broke off ends in b'<cut>'."""
    try:
        with connect(s) as c:
            c.sendall(request('GET' if body is None else 'POST', path, b'' if body is None else body, 'Connection: close\r\n'))
            raw = read_all(c)
    except ConnectionError: return 0, b''
    head, _, rest = raw.partition(b'\r\n\r\n')
    if not head.startswith(b'HTTP/1.1 '): return 0, rest
    if b'TimeoutError' in raw[-40:] or b'<timeout>' in raw[-40:]: return -1, raw
    status = int(head.split()[1])
    if b'chunked' in head:
        out, whole = b'', False
        while rest:
            n, _, rest = rest.partition(b'\r\n')
            try: n = int(n, 16)
            except ValueError: break
            whole = n == 0
            out += rest[:n]
            rest = rest[n + 2:]
        return status, out + (b'' if whole else b'<cut>')
    m = re.search(rb'Content-Length: (\d+)', head)
    return status, rest + (b'' if m and len(rest) == int(m[1]) else b'<cut>')


def texts(o):
    """Yields the texts of an event. The split of a stream into events depends on timing, so only texts are
    compared."""
    for k, v in o.items() if isinstance(o, dict) else enumerate(o) if isinstance(o, list) else ():
        if isinstance(v, str) and k in ('content', 'text', 'delta', 'arguments', 'partial_json', 'finish_reason', 'stop_reason'): yield v
        elif isinstance(v, (dict, list)) and k not in ('response', 'item', 'part', 'logprobs'): yield from texts(v)


def plain(text):
    text = text.decode(errors='replace')
    if '\ndata: ' not in '\n' + text: return VARIES.sub('#', text)
    lines = [l[6:] for l in text.split('\n') if l.startswith('data: ')]
    out = {}
    for e in (json.loads(l) for l in lines if l != '[DONE]'):
        key = (e.get('choices') or [{}])[0].get('index', 0) if isinstance(e.get('choices'), list) else 0
        if not str(e.get('type', '')).endswith('.done'): out[key] = out.get(key, '') + ''.join(texts(e))
    return VARIES.sub('#', str(sorted(out.items())) + lines[-1][:12])


def one_fault(s, faults, kind, want, first, count):
    path, body = KINDS[kind]
    faults.arm(first, count)
    status, got = once(s, path, body)
    seen = faults.disarm()
    what = f'{kind}, allocation {first} of {seen} and {count} in all'
    if s.p.poll() is not None: sys.exit(f'{what}: the server died ({s.p.returncode}): {s.text()[-3000:]}')
    if status in (0, 500, 503) or got.endswith(b'<cut>') or kind in CHANGES: return seen
    if status < 0: fault(f'{what}: no answer in 20 s')
    elif b'stream' in kind.encode() and b'out of memory' in got: pass
    elif status != want[0] or plain(got) != plain(want[1]):
        at = next((i for i, (a, b) in enumerate(zip(plain(got), plain(want[1]))) if a != b), 0)
        fault(f'{what}: {status}, from {at} on {plain(got)[at:at + 150]!r}, not {want[0]}, {plain(want[1])[at:at + 150]!r}')
    return seen


def no_memory(model, folder):
    if not os.path.exists(SHIM): return 0
    template = os.path.join(folder, 'hermes.jinja')
    with open(template, 'w') as f: f.write(HERMES)
    faults = Faults(os.path.join(folder, 'faults'))
    s = Server(model, '-c', '2048', '--kv-cache-tokens', '8192', '--parallel', '4', '--chat-template-file', template,
               env={'LD_PRELOAD': SHIM, 'FAILING_MALLOC': os.path.join(folder, 'faults')})
    done = 0
    for kind, (path, body) in KINDS.items():
        for _ in range(2): want = once(s, path, body)
        faults.arm(1 << 60, 1)
        once(s, path, body)
        n = faults.disarm()
        if n < 1: fault(f'{kind}: no allocation was counted')
        for count in (1, 30):
            step = 1 if LONG else max(1, n // PER_KIND)
            # allocation 1 is the connection's: the server waits for memory then
            for first in range((1 if count == 1 else 2) + done % step, n + 2, step):
                one_fault(s, faults, kind, want, first, count)
                done += 1
        expect(f'/health after {kind}', ask(s, '/health')[0], 200)
    s.quiet('after requests without memory')
    s.end()
    return done


def slow_step(maker, folder):
    """Runs a model with steps of some tenths of a second, and a --hang-timeout far below that."""
    model = os.path.join(folder, 'slow.gguf')
    subprocess.run([maker, model, '32768', 'gemma3', '0', 'Q8_0', 'L=4 E=512 F=2048'], check=True)
    s = Server(model, '-c', '32768', '--hang-timeout', '0.02', '-t', '1', '-b', '32768', '--step-target-ms', '0')
    expect('/health at rest', ask(s, '/health')[0], 200)
    answer = []
    body = {'prompt': [40 + i % 200 for i in range(1500)], 'max_tokens': 1}
    t = threading.Thread(target=lambda: answer.append(ask(s, '/v1/completions', body)[0]))
    t.start()
    said = []
    while t.is_alive():
        status, _, a = ask(s, '/health')
        if status == 503: said.append(a['error']['message'])
    t.join()
    expect('the slow request', answer, [200])
    said = set(said) - {'the preparation of a request takes too long'} # on a very slow machine
    expect('/health while a step is slow', said, {'a step takes too long'})
    expect('/health after it', ask(s, '/health')[0], 200)
    s.end()


def tenants(model):
    """Compares the cache blocks of two concurrent requests with one prompt. They share the prompt's blocks only with
    the same key and salt."""
    s = Server(model, '-c', '8192', '--kv-cache-tokens', '32768', '--parallel', '4', '--cache-salt-by-key', '--api-key', 'alpha,beta')
    key = lambda k: f'Authorization: Bearer {k}\r\n'
    used = lambda: sum(v * (1 if 'blocksgroup' in k else -1) for k, v in metrics().items()
                       if k.startswith('pagedinfer:blocksgroup=') or k.startswith('pagedinfer:blocks_freegroup='))
    def metrics():
        status, _, text = ask(s, '/metrics', headers=key('alpha'))
        return {m[1] + (m[2] or ''): float(m[3]) for m in re.finditer(
            r'^([a-z_:]+)(?:\{model_name="[^"]*"(?:,([^}]*))?\})? (\S+)$', text.decode(), re.M)}
    def together(one, two, prompt):
        """Returns (blocks that the second request adds, blocks of the first)."""
        open_, seen = [], []
        for k, salt in (one, two):
            c = connect(s, 60)
            c.sendall(request('POST', '/v1/completions', {'prompt': prompt, 'max_tokens': 4000, 'ignore_eos': True, 'stream': True,
                                                          **({'cache_salt': salt} if salt else {})}, key(k)))
            c.recv(4096)
            open_.append(c)
            seen.append(used())
        for c in open_: c.close()
        for _ in range(400):
            if metrics()['pagedinfer:generations'] == 0: break
            time.sleep(0.02)
        return seen[1] - seen[0], seen[0]
    for what, one, two, shared in (('one key', ('alpha', None), ('alpha', None), True), ('two keys', ('alpha', None), ('beta', None), False),
                                   ('one salt', ('alpha', 'x'), ('alpha', 'x'), True), ('two salts', ('alpha', 'x'), ('alpha', 'y'), False),
                                   ('one salt of two keys', ('alpha', 'x'), ('beta', 'x'), False)):
        more, first = together(one, two, [40 + (len(what) + i) % 150 for i in range(3000)])
        if (more < 0.6 * first) != shared: fault(f'{what}: {first} blocks for the first, {more} for the second')
    bodies = set()
    for k in ('alph', 'alphA', 'alphaa', 'x', 'alpha ' + 'y' * 200, '\xff'):
        status, h, b = ask(s, '/v1/completions', {'prompt': 'a'}, f'Authorization: Bearer {k}\r\n')
        bodies.add(json.dumps([status, sorted((n, v) for n, v in h.items() if 'request-id' not in n), b]))
    expect('responses to a wrong key', len(bodies), 1)
    s.end()


def main():
    if subprocess.run([BIN, 'serve', '-m', '/none'], capture_output=True, text=True).returncode == 69:
        print('this build has no server')
        return 77
    maker = os.path.join(BUILD, 'tests', 'tool_tiny_model')
    if not os.path.exists(maker):
        print('this build has no tests')
        return 77
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'tiny.gguf')
        subprocess.run([maker, model, '32768'], check=True)
        n = no_memory(model, d)
        slow_step(maker, d)
        tenants(model)
    print(f'server: {n} requests with allocations that fail, a slow step, tenants, {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
