#!/usr/bin/env python3
"""Checks that one client's heavy requests do not slow another client's small ones, with pagedinfer serve and a tiny
random model.

1. Two clients send each kind of heavy request (schemas, grammars, templates, tokens, vectors, tools, JSON) for a
   second or two (20 s with PAGEDINFER_LONG=1). One of them disconnects before its response. Meanwhile a client with
   another key requests two tokens at a time. The script prints the 99th percentile of its latency with and without the
   heavy clients. The difference must not exceed BOUND.
2. Work stops when its client disconnects, at --prepare-timeout and --deadline, and at shutdown.
3. /health and /metrics report work in progress.
4. Large responses: memory per input byte, slow readers, clients that disconnect.
5. Keys are served round-robin; --priority-range; aged requests.
Exit 77: there is no server, or no tiny model."""
import http.client, json, multiprocessing, os, re, subprocess, sys, tempfile, threading, time

import check_server as base
from check_server import BIN, Server, ask, connect, expect, fault, read_answer, request

LONG = bool(os.environ.get('PAGEDINFER_LONG'))
SECONDS = 20 if LONG else 1
BOUND = 50 if LONG else 1000  # ms; a slow machine with two busy cores meets the second value
HEAVY, SMALL = 'Authorization: Bearer heavy\r\n', 'Authorization: Bearer small\r\n'
METRIC = re.compile(r'^([a-z_:]+)(?:\{model_name="[^"]*"(?:,([^}]*))?\})? (\S+)$', re.M)
C, CHAT = '/v1/completions', '/v1/chat/completions'


class Keyed(Server):
    """A server with a key for /metrics."""
    def metrics(self):
        text = ask(self, '/metrics', headers=SMALL)[2].decode()
        return {m[1] + (m[2] or ''): float(m[3]) for m in METRIC.finditer(text)}


# ------------------------------------------------------------------------------------------------- kinds of heavy work

def short(**more):
    return {'prompt': 'a', 'max_tokens': 2, 'temperature': 0, **more}


def nested(depth, k):
    """Returns a schema with a choice of two objects at each level, linked by references."""
    levels = {f'l{i}': {'anyOf': [{'type': 'object', 'properties': {x: {'$ref': f'#/$defs/l{i + 1}'}}, 'required': [x]}
                                  for x in (f'a{k}', f'b{k}')]} for i in range(depth)}
    return {'$defs': {**levels, f'l{depth}': {'type': 'string'}}, '$ref': '#/$defs/l0'}


def function(name, n):
    return {'type': 'function', 'function': {'name': name, 'description': 'x' * 100, 'parameters': {
        'type': 'object', 'properties': {f'p{i}': {'type': 'string', 'enum': [f'{name}{i}{j}' for j in range(4)]}
                                         for i in range(n)}}}}


def chat(content, **more):
    return {'messages': [{'role': 'user', 'content': content}], 'max_tokens': 2, **more}


KINDS = {
    'enum': lambda k: (C, short(json_schema={'enum': [f'{k}-{i}' for i in range(40000)]})),
    'enum of objects': lambda k: (C, short(json_schema={'enum': [{'k': f'{k}-{i}'} for i in range(10000)]})),
    'deep schema': lambda k: (C, short(json_schema=nested(2000, k))),
    'combined schema': lambda k: (C, short(json_schema={'allOf': [{'anyOf': [
        {'type': 'object', 'properties': {f'p{i}{j}{k}': {'type': 'integer'}}} for j in range(4)]} for i in range(12)]})),
    'regex': lambda k: (C, short(guided_regex='|'.join(f'({k}x{i}[a-z]{{1,20}})+' for i in range(4000)))),
    'grammar': lambda k: (C, short(grammar='root ::= ' + ' | '.join(f'r{i}' for i in range(20000)) + '\n' + '\n'.join(
        f'r{i} ::= "{k}-{i}" [a-z]*' for i in range(20000)))),
    'choice': lambda k: (C, short(guided_choice=[f'{k}-{i}' for i in range(40000)])),
    'template': lambda k: (CHAT, {'messages': [{'role': 'user', 'content': f'{k} {i}'} for i in range(40000)], 'max_tokens': 2}),
    'long prompt': lambda k: (C, short(prompt=f'{k} b ' * 1000000)),
    'long word': lambda k: (C, short(prompt=f'{k}x' * 1000000)),
    'tokenize': lambda k: ('/tokenize', {'content': f'{k} b ' * 500000, 'with_pieces': True}),
    'detokenize': lambda k: ('/detokenize', {'tokens': [65 + k % 20] * 1000000}),
    'embeddings': lambda k: ('/v1/embeddings', {'input': [f'{k} {i} b c d' for i in range(300)]}),
    'tools': lambda k: (CHAT, chat('a', tools=[function(f'f{k}x{i}', 4) for i in range(1000)], tool_choice='required')),
    'breakers': lambda k: (C, short(dry_multiplier=1, dry_sequence_breakers=[f'{k}-{i}' for i in range(256)])),
    'bias': lambda k: (C, short(logit_bias=[[f'word {k} {i}', 1] for i in range(20000)])),
    'JSON': lambda k: (C, short(unread=[[{'a': i}] for i in range(400000)])),
}


def attack(port, bodies, leaves, results):
    """Sends requests as one client, in a process of its own, until the parent terminates it."""
    n = 0
    while True:
        path, body = bodies[n % len(bodies)]
        n += 1
        try:
            c = http.client.HTTPConnection('127.0.0.1', port, timeout=0.2 if leaves else 300)
            c.request('POST', path, body, {'Authorization': 'Bearer heavy'})
            r = c.getresponse()
            while r.read(1 << 20): pass
            results.put(r.status)
        except OSError: results.put(0)
        except http.client.HTTPException: results.put(0)
        c.close()


def probe(port, seconds):
    """Returns the sorted milliseconds of consecutive requests for two tokens each."""
    c = http.client.HTTPConnection('127.0.0.1', port, timeout=300)
    body, took, end = json.dumps({'prompt': 'b', 'max_tokens': 2}), [], time.monotonic() + seconds
    while time.monotonic() < end or len(took) < 5:
        start = time.monotonic()
        c.request('POST', C, body, {'Authorization': 'Bearer small'})
        r = c.getresponse()
        r.read()
        took.append((time.monotonic() - start) * 1e3)
        if r.status != 200: fault(f'a small request: {r.status}')
    c.close()
    return sorted(took)


def percentile(v, p): return v[min(len(v) - 1, int(len(v) * p))]


def beside(s, kind, alone):
    bodies = [[(path, json.dumps(body)) for path, body in (KINDS[kind](10 * c + i) for i in range(3))] for c in range(2)]
    results = multiprocessing.SimpleQueue()
    clients = [multiprocessing.Process(target=attack, args=(s.port, bodies[c], c == 1, results)) for c in range(2)]
    for c in clients: c.start()
    time.sleep(0.2)
    took = probe(s.port, SECONDS)
    statuses = []
    while not results.empty(): statuses.append(results.get())
    for c in clients:
        c.terminate() # this leaves a request in progress
        c.join()
    p99 = percentile(took, 0.99)
    said = ', '.join(f'{statuses.count(x)} x {x or "left"}' for x in sorted(set(statuses)))
    print(f'  {kind:16} p50 {percentile(took, 0.5):6.1f} ms, p99 {p99:6.1f} ms ({p99 - alone:+.1f}), {len(took):4} small;'
          f' heavy: {said}', flush=True)
    if p99 - alone > BOUND: fault(f'{kind}: small requests take {p99:.0f} ms, {alone:.0f} ms alone')
    if 500 in statuses or 503 in statuses: fault(f'{kind}: {said}')


def kinds(s):
    only = os.environ.get('PAGEDINFER_KINDS')
    alone = percentile(probe(s.port, min(SECONDS, 5)), 0.99)
    print(f'  alone            p99 {alone:6.1f} ms')
    for kind in KINDS:
        if not only or kind in only.split(','): beside(s, kind, alone)
    s.quiet('after heavy requests')


# -------------------------------------------------------------------------------------------------------------- stops

def cpu(s):
    with open(f'/proc/{s.p.pid}/stat') as f: v = f.read().rsplit(')', 1)[1].split()
    return (int(v[11]) + int(v[12])) / os.sysconf('SC_CLK_TCK')


def memory(s):
    with open(f'/proc/{s.p.pid}/status') as f: return {l.split(':')[0]: l.split()[1] for l in f if l.startswith('Vm')}


ENDLESS = {'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 1}
LOOP = '{% for a in range(9999) %}{% for b in range(9999) %}{% if b < 0 %}x{% endif %}{% endfor %}{% endfor %}'


def gone_from_pool(s, seconds=20):
    for _ in range(int(seconds * 20)):
        m = s.metrics()
        if not m['pagedinfer:preparations_running'] and not m['pagedinfer:preparations_waiting']: return True
        time.sleep(0.05)
    return False


def stops(model):
    """Stops a template that never ends. A budget of steps would stop it after some seconds; these limits act
    earlier."""
    with tempfile.NamedTemporaryFile('w', suffix='.jinja') as t:
        t.write("{% if messages[0]['content'] == 'a' %}" + LOOP * 20 + '{% endif %}x')
        t.flush()
        s = Keyed(model, '-c', '512', '--chat-template-file', t.name, '--api-key', 'heavy,small', '--prepare-timeout', '1.5')
        answer = ask(s, CHAT, ENDLESS, HEAVY)
        # A fast machine uses up the budget of steps (400) before the time (504).
        expect('--prepare-timeout', answer[0] == 400 or (answer[0] == 504 and 'time limit' in answer[2]['error']['message']), True)
        for path, body in (CHAT, ENDLESS), ('/apply-template', ENDLESS), ('/v1/messages', ENDLESS):
            c = connect(s)
            c.sendall(request('POST', path, body, HEAVY))
            s.until('pagedinfer:preparations_running', 1)
            h = ask(s, '/health')
            expect('/health meanwhile', (h[0], h[2]['status'], h[2]['preparation']['running']), (200, 'ok', 1))
            expect('a small one meanwhile', ask(s, C, {'prompt': 'b', 'max_tokens': 2}, SMALL)[0], 200)
            c.close()
            if not gone_from_pool(s, 1.2): fault(f'{path}: preparation continues after its client disconnected')
        clients = [connect(s) for _ in range(6)]
        for c in clients: c.sendall(request('POST', CHAT, ENDLESS, HEAVY))
        s.until('pagedinfer:preparations_waiting', 5)
        expect('small requests next to six', [ask(s, C, {'prompt': 'b', 'max_tokens': 2}, SMALL)[0] for _ in range(3)], [200] * 3)
        ended = [read_answer(c.makefile('rb'))[0] for c in clients]
        expect('the waiting requests', set(ended) <= {400, 504} and ended.count(504) >= 3, True)
        for c in clients: c.close()
        s.quiet('after timeouts')
        c = connect(s)
        c.sendall(request('POST', CHAT, ENDLESS, HEAVY))
        s.until('pagedinfer:preparations_running', 1)
        s.end(within=20)
        for flags, status in ((('--deadline', '0.5'), (504,)), (('--hang-timeout', '0.05', '--prepare-timeout', '3'), (400, 504))):
            s = Keyed(model, '-c', '512', '--chat-template-file', t.name, *flags)
            c = connect(s)
            c.sendall(request('POST', CHAT, ENDLESS))
            if '--hang-timeout' in flags:
                s.until('pagedinfer:preparations_running', 1)
                time.sleep(0.3)
                h = ask(s, '/health')
                expect('/health of stuck work', (h[0], 'preparation' in h[2]['error']['message']), (503, True))
            expect(f'{flags}', read_answer(c.makefile('rb'))[0] in status, True)
            expect('/health afterwards', ask(s, '/health')[0], 200)
            c.close()
            s.end()


# ------------------------------------------------------------------------------------------------------- large answers

def large(s):
    text = 'a b ' * 500000
    before = int(memory(s)['VmRSS'])
    with connect(s, 300) as c:
        c.sendall(request('POST', '/tokenize', {'content': text, 'with_pieces': True}, HEAVY))
        status, h, body = read_answer(c.makefile('rb'))
    tokens = json.loads(body)
    grown = (int(memory(s)['VmHWM']) - before) * 1024 / len(text)
    print(f'  /tokenize with pieces: {grown:.0f} bytes of memory a byte of text, {len(body) / len(text):.0f} of answer')
    expect('tokens', (status, tokens['count'], len(tokens['tokens'])), (200, len(tokens['tokens']), tokens['count']))
    expect('their text', ''.join(t['piece'] for t in tokens['tokens'][1:]) in text, True)
    if grown > 100: fault(f'/tokenize with pieces takes {grown:.0f} bytes a byte of its text')
    with connect(s, 300) as c: # two pipelined responses, read slowly
        ask_one = request('POST', '/tokenize', {'content': 'a b ' * 100000}, HEAVY)
        c.sendall(ask_one + ask_one)
        time.sleep(0.3)
        f = c.makefile('rb')
        one, two = read_answer(f), read_answer(f)
        expect('pipelined', (one[0], len(one[2]) > 500000, one[2] == two[2]), (200, True, True))
    for _ in range(5):
        with connect(s) as c:
            c.sendall(request('POST', '/tokenize', {'content': text}, HEAVY))
            c.recv(1000)
    with connect(s) as c:
        c.sendall(request('POST', '/tokenize', {'content': 'a b ' * 100000}, HEAVY).replace(b'1.1', b'1.0', 1))
        expect('HTTP/1.0', read_answer(c.makefile('rb'))[2] == one[2], True)
    expect('after that', ask(s, C, {'prompt': 'b', 'max_tokens': 2}, SMALL)[0], 200)
    s.quiet('after large answers')


# --------------------------------------------------------------------------------------------------------- priorities

def hogs(s, n, **fields):
    """Starts n clients that request many tokens each. Returns a function that ends them."""
    stop = []
    def one():
        while not stop: ask(s, C, {'prompt': [40] * 20, 'max_tokens': 200, 'ignore_eos': True, **fields}, HEAVY)
    threads = [threading.Thread(target=one) for _ in range(n)]
    for t in threads: t.start()
    s.until('vllm:num_requests_running', 2)
    def end():
        stop.append(1)
        for t in threads: t.join()
    return end


def priorities(model):
    flags = ('-c', '512', '--kv-cache-tokens', '2048', '--parallel', '2', '--api-key', 'heavy,small', '--priority-aging', '1')
    s = Keyed(model, *flags, '--policy', 'priority')
    status, _, a = ask(s, C, short(priority=-1), HEAVY)
    expect('a priority below the range', (status, a['error']['param'], '0 to 2147483647' in a['error']['message']),
           (400, 'priority', True))
    end = hogs(s, 8, priority=0)
    expect('the same priority', ask(s, C, short(priority=0), SMALL)[0], 200)
    expect('a lower one, in the end', ask(s, C, short(priority=1000), SMALL)[0], 200)
    end()
    s.end()
    s = Keyed(model, *flags, '--policy', 'priority', '--priority-range', '-10..10')
    expect('within -10..10', [ask(s, C, short(priority=p), SMALL)[0] for p in (-11, -10, 10, 11)], [400, 200, 200, 400])
    end = hogs(s, 8, priority=-10)
    expect('after higher priorities', ask(s, C, short(priority=10), SMALL)[0], 200)
    end()
    s.end()
    s = Keyed(model, *flags)
    expect('fcfs takes any', ask(s, C, short(priority=-5), SMALL)[0], 200)
    end = hogs(s, 24)
    finished = s.metrics()['vllm:request_success_totalfinished_reason="length"']
    expect('next to 24 of another key', ask(s, C, short(), SMALL)[0], 200)
    passed = s.metrics()['vllm:request_success_totalfinished_reason="length"'] - finished
    if passed > 8: fault(f'fcfs: {passed:.0f} requests of another key came first')
    end()
    s.quiet('after priorities')
    s.end()
    for bad in 'x', '1', '5..2', '1..':
        r = subprocess.run([BIN, 'serve', '-m', model, '--priority-range', bad], capture_output=True, text=True)
        expect(f'--priority-range {bad}', (r.returncode, 'LO..HI' in r.stderr), (64, True))


def main():
    maker = base.tiny_maker()
    if not maker: return 77
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'tiny.gguf')
        subprocess.run([maker, model, '8192'], check=True)
        s = Keyed(model, '-c', '2048', '--kv-cache-tokens', '16384', '--parallel', '8', '-t', '1', '--chat-template', base.HERMES,
                   '--api-key', 'heavy,small')
        large(s)
        kinds(s)
        s.end()
        stops(model)
        priorities(model)
    print(f'isolation: {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
