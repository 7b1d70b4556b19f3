#!/usr/bin/env python3
"""Checks reranking: scores of `pagedinfer embed` and POST /v1/rerank, on a random model with a classifier head.

    check_rank.py

1. embed: llama-embedding's lines, formats, separators; the emulated CUDA device, split with the CPU, and two devices.
2. serve: the request formats of Jina, Cohere, llama-server and text-embeddings-inference; errors; concurrent requests
   of other kinds; /metrics counts every step.
3. Against llama-server --rerank, if PAGEDINFER_PEER names it or its folder: scores on the same file.
Standard library only. PAGEDINFER_BIN names the tool. PAGEDINFER_BUILD names the build folder, which has
tool_tiny_model."""
import json, math, os, re, socket, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request

BUILD = os.environ.get('PAGEDINFER_BUILD', 'build')
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
EMULATED = os.path.join(BUILD, 'tests', 'simt', 'pagedinfer_emu')
PEER = os.environ.get('PAGEDINFER_PEER', '')
QUERY = 'the quick one'
DOCS = ['you and the other', 'on', 'the quick one and you', 'a b c d e f g h and some more of the same that is longer', 'the']
faults = []


def fault(text): faults.append(text)


def expect(what, got, want):
    if got != want: fault(f'{what}: {str(got)[:300]!r}, not {str(want)[:300]!r}')


def write(path, arch, sizes):
    subprocess.run([os.path.join(BUILD, 'tests', 'tool_tiny_model'), path, '512', arch, '0', 'F32', sizes], check=True)


def embed(model, *args, text, bin=BIN, code=0):
    r = subprocess.run([bin, 'embed', '-m', model, '-p', text, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if r.returncode != code: fault(f'embed {" ".join(args)}: exit {r.returncode}, not {code}: {r.stderr[-300:]}')
    return r.stdout if not code else r.stderr


def raw(model, *args, bin=BIN, between='\t', docs=DOCS):
    text = '\n'.join(QUERY + between + d for d in docs)
    return [[float(x) for x in l.split()] for l in embed(model, '--embd-output-format', 'raw', *args, text=text, bin=bin).splitlines()]


def far(a, b):
    if not a or [len(x) for x in a] != [len(x) for x in b]: return math.inf
    return max(abs(x - y) for v, w in zip(a, b) for x, y in zip(v, w))


# ----------------------------------------------------------------------------------------------------------- 1. embed

def printed(model):
    """Checks the printed scores of every format. Returns the scores of the label "yes"."""
    want = raw(model)
    expect('scores of a text', [len(v) for v in want], [2] * len(DOCS))
    if any(abs(sum(v) - 1) > 1e-5 for v in want): fault(f'no probabilities: {want}')
    if len({round(v[0], 4) for v in want}) < len(DOCS): fault(f'documents have the same score: {want}')
    lines = embed(model, text='\n'.join(QUERY + '\t' + d for d in DOCS)).splitlines()
    expect('lines', lines, [f'rerank score {i}: {v:8.3f} [{n}]' for i, s in enumerate(want) for v, n in zip(s, ('yes', 'no'))])
    if far(raw(model, '--cls-separator', '<#>', between='<#>'), want): fault('another separator, other scores')
    if far(raw(model, '--pooling', 'rank', '--parallel', '1', '--ubatch-size', '3'), want): fault('other steps, other scores')
    vectors = raw(model, '--pooling', 'last')
    if any(abs(sum(x * x for x in v) - 1) > 1e-5 for v in vectors): fault('pooling last of a reranker gives no vectors')
    return [v[0] for v in want]


def devices(model):
    want = raw(model, docs=DOCS[:2])
    for where in ['emu'], ['emu', '-ngl', '2'], ['emu,emu', '-sm', 'tensor', '--no-prefix-cache']:
        d = far(raw(model, '--device', *where, bin=EMULATED, docs=DOCS[:2]), want)
        if not d < 5e-4: fault(f'device {" ".join(where)}: off by {d}')


# ----------------------------------------------------------------------------------------------------------- 2. serve

class Server:
    def __init__(self, command, ready):
        self.log = tempfile.NamedTemporaryFile('w+')
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            self.port = s.getsockname()[1]
        self.p = subprocess.Popen([*command, '--port', str(self.port)], stdout=self.log, stderr=self.log)
        for _ in range(1200):
            if self.p.poll() is not None or self.ready(ready): break
            time.sleep(0.05)
        if self.p.poll() is not None: sys.exit(f'{command[0]} ended: {open(self.log.name).read()[-2000:]}')

    def ready(self, path):
        try: return self.ask(path)[0] == 200
        except OSError: return False

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f'http://127.0.0.1:{self.port}{path}', data)) as r:
                text, status = r.read().decode(), r.status
        except urllib.error.HTTPError as e: text, status = e.read().decode(), e.code
        try: return status, json.loads(text)
        except ValueError: return status, text

    def end(self):
        self.p.terminate()
        return self.p.wait(30)


def scores_of(answer, n, name='relevance_score'):
    out = [None] * n
    for x in answer: out[x['index']] = x[name]
    return out


def forms(s, want):
    body = {'query': QUERY, 'documents': DOCS, 'model': 'any'}
    status, a = s.ask('/v1/rerank', body)
    expect('status', status, 200)
    order = sorted(range(len(DOCS)), key=lambda i: -want[i])
    expect('order', [x['index'] for x in a['results']], order)
    if max(abs(x['relevance_score'] - want[x['index']]) for x in a['results']) > 1e-6: fault(f'other scores than embed: {a} {want}')
    expect('fields', sorted(a['results'][0]), ['index', 'relevance_score'])
    if a['object'] != 'list' or not a['usage']['prompt_tokens'] == a['usage']['total_tokens'] > 40: fault(f'envelope: {a}')
    for path in '/rerank', '/reranking', '/v1/reranking', '/v2/rerank': expect(path, s.ask(path, body)[1]['results'], a['results'])
    b = s.ask('/v1/rerank', {**body, 'documents': [{'text': d} for d in DOCS], 'top_n': 2, 'return_documents': True})[1]
    expect('top_n', b['results'], [{**x, 'document': {'text': DOCS[x['index']]}} for x in a['results'][:2]])
    expect('top_n above all', s.ask('/v1/rerank', {**body, 'top_n': 100})[1]['results'], a['results'])
    t = s.ask('/rerank', {'query': QUERY, 'texts': DOCS, 'return_text': True})[1]
    expect('texts', t, [{'index': x['index'], 'score': x['relevance_score'], 'text': DOCS[x['index']]} for x in a['results']])
    same = s.ask('/v1/rerank', {'query': QUERY, 'documents': ['on', 'the', 'on']})[1]['results']
    expect('a tie keeps the order', [x['index'] for x in same if x['relevance_score'] == same[0 if same[0]['index'] != 1 else 1]['relevance_score']], [0, 2])


def refused(s):
    for what, body in (('no query', {'documents': ['a']}), ('query', {'query': 1, 'documents': ['a']}), ('none', {'query': 'a'}),
                       ('empty', {'query': 'a', 'documents': []}), ('text', {'query': 'a', 'documents': 'b'}),
                       ('number', {'query': 'a', 'documents': [1]}), ('object', {'query': 'a', 'documents': [{}]}),
                       ('top_n 0', {'query': 'a', 'documents': ['a'], 'top_n': 0}), ('many', {'query': 'a', 'documents': ['a'] * 2000}),
                       ('flag', {'query': 'a', 'documents': ['a'], 'return_documents': 1}),
                       ('long', {'query': 'a', 'documents': ['a ' * 4000]})):
        status, a = s.ask('/v1/rerank', body)
        if status != 400 or not a['error']['message']: fault(f'{what}: {status} {a}')


def beside(s, want):
    """Scores are bitwise identical while other requests generate; other endpoints of a reranker work as usual."""
    alone = s.ask('/v1/rerank', {'query': QUERY, 'documents': DOCS})[1]['results']
    busy = [threading.Thread(target=s.ask, args=('/v1/completions', {'prompt': 'the' * i, 'max_tokens': 60})) for i in range(1, 5)]
    for t in busy: t.start()
    for _ in range(4): expect('next to others', s.ask('/v1/rerank', {'query': QUERY, 'documents': DOCS})[1]['results'], alone)
    for t in busy: t.join()
    c = s.ask('/v1/completions', {'prompt': 'the', 'max_tokens': 4})[1]
    expect('a completion', c['usage']['completion_tokens'], 4)
    v = s.ask('/v1/embeddings', {'input': 'the'})[1]['data'][0]['embedding']
    if len(v) != 96 or abs(sum(x * x for x in v) - 1) > 1e-4: fault(f'a vector of a reranker: {len(v)} values')
    expect('/embeddings', s.ask('/embeddings', {'content': 'the'}), (200, [{'index': 0, 'embedding': [v]}]))
    most = s.ask('/embedding', {'input': 'the', 'embd_normalize': 0})[1][0]['embedding'][0]
    if abs(max(abs(x) for x in most) - 32760) > 1: fault(f'embd_normalize 0: {most}')
    text = s.ask('/metrics')[1]
    number = lambda pattern: float(re.search(pattern + r' (\S+)$', text, re.M)[1])
    steps = number('^llamacpp:n_decode_total')
    expect('steps in the histogram', number(r'^vllm:step_time_seconds_count\S*'), steps)
    expect('steps of any duration', number(r'^vllm:step_time_seconds_bucket\{\S*le="\+Inf"\}'), steps)
    if not number(r'^vllm:step_time_seconds_sum\S*') > 0 or steps < 60: fault(f'{steps} steps took no time')


def serve(model, plain, want):
    s = Server([BIN, 'serve', '-m', model, '--reranking', '--embeddings', '--pooling', 'rank'], '/health')
    forms(s, want)
    refused(s)
    beside(s, want)
    expect('exit status', s.end(), 0)
    r = subprocess.run([BIN, 'serve', '-m', plain, '--rerank', '--port', '0'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if r.returncode != 65 or 'no classifier' not in r.stdout: fault(f'--rerank of a plain model: {r.returncode} {r.stdout}')
    s = Server([BIN, 'serve', '-m', plain, '--pooling', 'none'], '/health')
    n = len(s.ask('/tokenize', {'content': 'you and the', 'add_special': True})[1]['tokens'])
    rows = s.ask('/embeddings', {'input': ['you and the', 'on']})[1]
    expect('vectors of tokens', (len(rows), len(rows[0]['embedding'])), (2, n))
    expect('one vector of OpenAI', len(s.ask('/v1/embeddings', {'input': 'the'})[1]['data']), 1)
    expect('a completion', s.ask('/v1/completions', {'prompt': 'the', 'max_tokens': 4, 'ignore_eos': True})[1]['usage']['completion_tokens'], 4)
    status, a = s.ask('/v1/rerank', {'query': 'a', 'documents': ['b']})
    if status != 400 or 'classifier' not in a['error']['message']: fault(f'rerank of a plain model: {status} {a}')
    expect('exit status', s.end(), 0)


# ------------------------------------------------------------------------------------------------------------ 3. peer

def peer(model, want):
    program = os.path.join(PEER, 'llama-server') if os.path.isdir(PEER) else PEER
    s = Server([program, '-m', model, '--rerank', '--no-webui', '-c', '2048', '-t', '2'], '/health')
    got = scores_of(s.ask('/v1/rerank', {'query': QUERY, 'documents': DOCS})[1]['results'], len(DOCS))
    s.end()
    off = max(abs(x - y) for x, y in zip(got, want))
    print(f'llama-server: scores off by at most {off:.2g}')
    if not off < 1e-3: fault(f'llama-server scores {got}, not {want}')


def main():
    with tempfile.TemporaryDirectory() as folder:
        model, plain = os.path.join(folder, 'rank.gguf'), os.path.join(folder, 'plain.gguf')
        write(model, 'qwen3', 'j=2')
        write(plain, 'gemma3', 'L=3')
        want = printed(model)
        serve(model, plain, want)
        if PEER: peer(model, want)
        if os.path.exists(EMULATED):
            write(plain, 'qwen3', 'L=2 E=64 F=64 j=2')
            devices(plain)
    for f in faults: print(f)
    print(f'reranking: {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
