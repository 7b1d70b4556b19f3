#!/usr/bin/env python3
"""Checks pagedinfer serve with several models: a front end, and a process for each loaded model. Tiny random models.

1. Selection by name, alias and path; unknown and missing names; lists of OpenAI's, llama-server's and Ollama's API.
2. Loading and unloading: by request, by order, least recently used, within a budget, pinned, after idle time.
3. Faults: kill -9 of a process while others answer; a model that cannot be loaded; kill -9 of the front end.
4. Streams: whole and with disconnects, comments during a slow load; embeddings next to chat.
5. Prefixes: the second turn of a conversation after unloading has at least 90 % cached tokens, and the same text.
6. Clients that misbehave. With PAGEDINFER_LONG=1 large bodies that wait, and 100 loads and unloads under traffic without growth of the front end.
Exit 77: there is no server, or no tiny model."""
import json, os, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

import check_server as base
from check_server import BIN, ask, connect, events, expect, fault, read_all, read_answer, request

C, CHAT = '/v1/completions', '/v1/chat/completions'
COMMON = ['-c', '8192', '--kv-cache-tokens', '32768', '--parallel', '4', '--chat-template', 'chatml', '--no-models-cache']
BUSY = 7900  # tokens that take seconds
LONG = bool(os.environ.get('PAGEDINFER_LONG'))


class Front(base.Server):
    """A front end; unlike the base's, it starts without -m."""
    def __init__(self, *flags, env=None, wait=r'listening on'):
        self.log = tempfile.NamedTemporaryFile('w+', suffix='.log')
        self.p = subprocess.Popen([BIN, 'serve', '--port', '0', *flags], stdout=subprocess.DEVNULL, stderr=self.log,
                                  env={**{k: v for k, v in os.environ.items() if k != 'PAGEDINFER_MODEL'}, **(env or {})})
        self.port = int(self.wait_for(r'listening on https?://127\.0\.0\.1:(\d+)')[1])
        self.url = f'http://127.0.0.1:{self.port}'

    def models(self): return {m['id']: m for m in ask(self, '/v1/models')[2]['data']}
    def state(self, name): return self.models()[name]['status']['value']

    def reaches(self, name, value, seconds=20):
        for _ in range(int(seconds * 20)):
            if self.state(name) == value: return
            time.sleep(0.05)
        fault(f'{name} is {self.models()[name]["status"]}, never {value}: {self.text()[-600:]}')

    def children(self):
        with open(f'/proc/{self.p.pid}/task/{self.p.pid}/children') as f: return [int(x) for x in f.read().split()]

    def pid_of(self, name):
        """The process of a model: its options name the model."""
        for p in self.children():
            with open(f'/proc/{p}/cmdline', 'rb') as f: ini = f.read().split(b'\0')[3]
            with open(ini) as f:
                if re.search(rf'^alias = {re.escape(name)}(,|$)', f.read(), re.M): return p
        return None

    def kill(self, name):
        if not (pid := self.pid_of(name)): sys.exit(f'no process of {name}: {self.children()}, {self.text()[-1000:]}')
        os.kill(pid, signal.SIGKILL)


def text(model, tokens=8, **more): return {'model': model, 'prompt': 'abcdefgh ' * 4, 'max_tokens': tokens, 'ignore_eos': True, 'seed': 7, **more}


def occupy(s, name):
    """Keeps a model busy until the returned connection is closed. It has no stream, whose reader would be too slow."""
    c, before = connect(s, 60), s.models()[name]['status']['requests']
    c.sendall(request('POST', C, text(name, BUSY, n=4)))
    for _ in range(400):
        if s.models()[name]['status']['requests'] > before: return c
        time.sleep(0.01)
    sys.exit(f'{name} is not busy: {s.models()[name]}')


def order(s, what, name): return ask(s, '/models/' + what, {'model': name})


def gone(pids, seconds=10):
    for _ in range(int(seconds * 20)):
        left = [p for p in pids if os.path.exists(f'/proc/{p}') and open(f'/proc/{p}/stat').read().split(')')[1].split()[0] != 'Z']
        if not left: return True
        time.sleep(0.05)
    return False


# ------------------------------------------------------------------------------------------------------- 1. selection

def selection(s):
    expect('names', sorted(s.models()), ['a', 'b', 'embed', 'folder', 'twin'])
    expect('sources', {m['source'] for m in s.models().values()}, {'models_dir', 'preset'})
    expect('nothing is loaded', {m['status']['value'] for m in s.models().values()}, {'unloaded'})
    first = ask(s, C, text('a'))
    expect('a', (first[0], first[2].get('model')), (200, 'a'))
    expect('it is loaded', s.state('a'), 'loaded')
    m = s.models()['a']
    if not m.get('max_model_len') or not m['meta']['n_params']: fault(f'the entry of a loaded model: {m}')
    other = ask(s, C, text('b'))
    if other[0] != 200 or other[2]['choices'][0]['text'] == first[2]['choices'][0]['text']: fault(f'b answers as a: {other}')
    expect('an alias', ask(s, C, text('beta'))[2]['choices'], other[2]['choices'])
    expect('a tag', ask(s, C, text('b:latest'))[2]['choices'], other[2]['choices'])
    expect('an option of the preset', ask(s, '/props?model=twin')[2]['default_generation_settings']['n_ctx'], 512)
    expect('?model=', ask(s, '/tokenize?model=b', {'content': 'x'})[0], 200)
    for what, status, path, body in [
            ('unknown', 404, C, text('c')), ('unknown, Ollama', 404, '/api/show', {'model': 'c'}), ('a path', 404, C, text('../a')),
            ('no name', 400, C, {'prompt': 'x'}), ('a number', 400, C, text(7)), ('no JSON', 400, C, b'{"mod'), ('a list', 400, C, b'[]'),
            ('an empty body', 400, C, b''), ('no name in a query', 400, '/slots', None), ('unknown in a query', 404, '/props?model=c', None),
            ('unknown entry', 404, '/v1/models/c', None), ('load unknown', 404, '/models/load', {'model': 'c'}),
            ('load nothing', 400, '/models/load', {}), ('load a loaded one', 400, '/models/load', {'model': 'a'}),
            ('metrics do not load', 400, '/metrics?model=folder', None), ('autoload=false', 400, C + '?autoload=false', text('folder')),
            ('unload an unloaded one', 400, '/models/unload', {'model': 'folder'}), ('a wrong method', 405, '/models/load', None)]:
        got, _, answer = ask(s, path, body)
        if got != status or 'error' not in answer: fault(f'{what}: {got} {answer}, not {status}')
    near = ask(s, C, text('folded'))[2]['error']
    if 'folder' not in near['message'] or near['code'] != 'model_not_found': fault(f'no near name: {near}')
    expect('one entry', ask(s, '/v1/models/folder')[2]['id'], 'folder')
    expect('Ollama: tags', sorted(m['name'] for m in ask(s, '/api/tags')[2]['models']), sorted(s.models()))
    expect('Ollama: ps', sorted(m['name'] for m in ask(s, '/api/ps')[2]['models']),
           sorted(k for k, m in s.models().items() if m['status']['value'] == 'loaded'))
    expect('Ollama: show', ask(s, '/api/show', {'name': 'a'})[0], 200)
    expect('Ollama: chat', ask(s, '/api/chat', {'model': 'a', 'stream': False, 'messages': [{'role': 'user', 'content': 'x'}],
                                               'options': {'num_predict': 2}})[0], 200)
    expect('Anthropic', ask(s, '/v1/messages', {'model': 'a', 'max_tokens': 2, 'messages': [{'role': 'user', 'content': 'x'}]})[0], 200)
    expect('Responses', ask(s, '/v1/responses', {'model': 'a', 'input': 'x', 'max_output_tokens': 2})[0], 200)
    expect('health', [ask(s, p)[0] for p in ('/health', '/livez', '/readyz', '/version', '/openapi.json', '/api/version', '/')], [200] * 7)
    expect('role', ask(s, '/props')[2]['role'], 'router')
    got = ask(s, '/metrics')[2].decode()
    if 'pagedinfer:model_loaded{model_name="a"} 1' not in got or 'model_requests_total' not in got: fault(f'/metrics: {got[:500]}')
    if b'vllm:num_requests_running' not in ask(s, '/metrics?model=a')[2]: fault('/metrics?model=a')
    with connect(s) as c:  # HEAD, and the next request on the same connection
        f = c.makefile('rb')
        c.sendall(request('HEAD', '/slots?model=a') + request('POST', C, text('a', 2)))
        line = f.readline()
        while f.readline().strip(): pass
        expect('HEAD', (line.split()[1], read_answer(f)[0]), (b'200', 200))


def names(folder):
    """Names of split files, of folders with a vision part and a drafter, of folders with several models, and of the cache."""
    os.mkdir(folder)
    for path in ('x-00001-of-00002', 'x-00002-of-00002', 'y.Q4_0', 'v/model', 'v/mmproj-F16', 'v/mtp-model', 'two/c', 'two/d', 'com,ma',
                 '.hidden', 'mmproj-y', 'empty/readme'):
        path = os.path.join(folder, path + ('' if 'readme' in path else '.gguf'))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as f: f.write(b'GGUF')
    hub = os.path.join(folder, '.hub')
    blob, at = os.path.join(hub, 'models--u--n/blobs', 'a' * 64), os.path.join(hub, 'models--u--n/snapshots', 'b' * 40)
    for d in os.path.dirname(blob), at, os.path.join(hub, 'models--u--n/refs'): os.makedirs(d)
    with open(blob, 'wb') as f: f.write(b'GGUF')
    with open(os.path.join(hub, 'models--u--n/refs/main'), 'w') as f: f.write('b' * 40)
    os.symlink('../../blobs/' + 'a' * 64, os.path.join(at, 'n-Q8_0.gguf'))
    s = Front('--models-dir', folder, env={'LLAMA_CACHE': hub})
    expect('names', sorted(s.models()), ['two/c', 'two/d', 'u/n:Q8_0', 'v', 'x', 'y.Q4_0'])
    expect('sources', s.models()['u/n:Q8_0']['source'], 'cache')
    expect('a vision part', [k for k, m in s.models().items() if 'image' in m['architecture']['input_modalities']], ['v'])
    expect('an entry with a slash', ask(s, '/v1/models/two%2Fc')[2]['id'], 'two/c')
    if 'com,ma.gguf is left out' not in s.text(): fault(f'a comma: {s.text()}')
    s.end()
    s = Front(env={'LLAMA_CACHE': hub})  # no flags: the cache
    expect('the cache alone', list(s.models()), ['u/n:Q8_0'])
    s.end()


# ----------------------------------------------------------------------------------------------------------- 2. loading

def embeddings(s):
    got = ask(s, '/v1/embeddings', {'model': 'embed', 'input': ['x', 'y']})
    expect('embeddings', (got[0], len(got[2].get('data', []))), (200, 2))
    expect('chat next to it', ask(s, CHAT, {'model': 'a', 'messages': [{'role': 'user', 'content': 'x'}], 'max_tokens': 2})[0], 200)


def least_recent(s):
    """--models-max 2: the third model replaces the one that was used least recently, unless it is busy."""
    for name in 'a', 'b': expect(name, ask(s, C, text(name, 2))[0], 200)
    ask(s, C, text('a', 2))
    expect('folder', ask(s, C, text('folder', 2))[0], 200)
    expect('the least recent one is unloaded', (s.state('a'), s.state('b'), s.state('folder')), ('loaded', 'unloaded', 'loaded'))
    with occupy(s, 'a') as c, occupy(s, 'folder'):  # both models are busy: the third waits
        done = []
        t = threading.Thread(target=lambda: done.append(ask(s, C, text('b', 2))[0]))
        t.start()
        for _ in range(60):
            if s.models()['b']['status']['waiting'] == 1: break
            time.sleep(0.02)
        else: fault('b does not wait')
        expect('busy models stay', (s.state('a'), s.state('folder')), ('loaded', 'loaded'))
        c.close()  # a is cancelled, idle, and unloaded for b
        t.join(30)
        expect('b after the wait', done, [200])
        expect('the idle one is unloaded', (s.state('a'), s.state('folder')), ('unloaded', 'loaded'))
    order(s, 'unload', 'b')
    s.reaches('b', 'unloaded')
    expect('show does not load', (ask(s, '/api/show', {'model': 'b'})[2]['details']['family'], s.state('b')), ('qwen3', 'unloaded'))
    expect('load by order', order(s, 'load', 'b')[2], {'success': True})
    s.reaches('b', 'loaded')


def budget(folder):
    """--model-memory: two models fit, a third one replaces one; a model that is too large is refused with the numbers."""
    common = [x for x in COMMON if x not in ('--kv-cache-tokens', '32768')]
    probe = Front('--models-dir', folder, *COMMON)
    ask(probe, C, text('a', 2))
    one = probe.models()['a']['status']['memory_bytes']
    probe.end()
    preset = os.path.join(folder, 'budget.ini')
    with open(preset, 'w') as f: f.write('[*]\nkv-cache-tokens = 32768\n[a]\npin = true\n[twin]\nmodel = ' + folder + '/a.gguf\nkv-cache-tokens = 1048576\n')
    s = Front('--models-dir', folder, '--models-preset', preset, '--model-memory', str(int(one * 2.5)), '--models-wait', '3', *common)
    for name in 'a', 'b': expect(name, ask(s, C, text(name, 2))[0], 200)
    expect('folder', ask(s, C, text('folder', 2))[0], 200)
    expect('a pinned model stays', (s.state('a'), s.state('b'), s.state('folder')), ('loaded', 'unloaded', 'loaded'))
    got = ask(s, C, text('twin', 2))
    if got[0] != 503 or 'raise --model-memory' not in got[2]['error']['message']: fault(f'a model above the budget: {got}')
    expect('it was not loaded', (s.state('twin'), s.state('folder')), ('unloaded', 'loaded'))
    with occupy(s, 'folder'):  # folder is busy and a is pinned: b waits until --models-wait
        got = ask(s, C, text('b', 2))
        if got[0] != 503 or got[2]['error']['code'] != 'model_wait_timeout' or 'Retry-After' not in str(got[1]).title():
            fault(f'a wait without end: {got}')
    s.end()


def parts(folder):
    """A cache without explicit size shrinks to its model's part of the budget."""
    flags = ['--models-dir', folder, '--models-max', '2', '-c', '8192', '--parallel', '64', '--no-models-cache']
    sizes = []
    for limit in 4 << 30, 440 << 20:
        s = Front(*flags, '--model-memory', str(limit))
        for name in 'a', 'b': expect(name, ask(s, C, text(name, 2))[0], 200)
        m = s.models()
        expect('both are loaded', (s.state('a'), s.state('b')), ('loaded', 'loaded'))
        sizes.append(m['a']['status']['memory_bytes'])
        s.end()
    if not sizes[1] <= 220 << 20 < sizes[0]: fault(f'parts of the budget: {sizes}')


def sleeping(model):
    """One model with --sleep-idle-seconds: any name; unloaded after idle time; the next request wakes it."""
    s = Front('-m', model, '--sleep-idle-seconds', '1', *COMMON)
    name = list(s.models())[0]
    s.reaches(name, 'loaded')
    expect('any name', ask(s, C, text('gpt-4', 2))[0], 200)
    expect('no name', ask(s, C, {'prompt': 'x', 'max_tokens': 1})[0], 200)
    s.reaches(name, 'sleeping')
    expect('no process', s.children(), [])
    expect('awake again', (ask(s, C, text('x', 2))[0], s.state(name)), (200, 'loaded'))
    expect('slots', ask(s, '/slots')[0], 200)
    s.end()


# ------------------------------------------------------------------------------------------------------------ 3. faults

def killed(s):
    for name in 'a', 'b': ask(s, C, text(name, 2))
    whole = ask(s, C, text('a', 300))[2]['choices'][0]['text']
    with connect(s, 60) as c, connect(s, 60) as d, connect(s, 60) as e:
        c.sendall(request('POST', C, text('a', 300, stream=True)))
        d.sendall(request('POST', C, text('b', BUSY, stream=True)))
        e.sendall(request('POST', C, text('b', BUSY)))
        c.recv(10), d.recv(10)
        for _ in range(100):
            if s.models()['b']['status']['requests'] == 2: break
            time.sleep(0.01)
        s.kill('b')
        got = read_answer(e.makefile('rb'))
        expect('a request of the killed process', (got[0], json.loads(got[2])['error']['code']), (502, 'model_process_ended'))
        body = rest_of(d)
        if b'"model_process_ended"' not in body: fault(f'a stream of the killed process: {body[-300:]!r}')
        got = read_all_stream(c)
        expect('a stream of the other process', ''.join(x['choices'][0]['text'] for x in got if x['choices']), whole)
    m = s.models()['b']['status']
    expect('its state', (m['value'], m.get('failed'), m.get('exit_code')), ('unloaded', True, 137))
    expect('the next request', ask(s, C, text('b', 2))[0], 200)


def read_all_stream(c):
    """The events of a stream whose first bytes were read."""
    f, out = c.makefile('rb'), b''
    while (line := f.readline()):
        out += line
        if line.startswith(b'data: [DONE]'): break
    return [json.loads(m) for m in re.findall(rb'^data: (\{.*\})\r?$', out, re.M)]


def broken(folder):
    """A model that cannot be loaded: its last log lines, and no new attempt with each request."""
    bad = os.path.join(folder, 'bad')
    os.mkdir(bad)
    with open(os.path.join(bad, 'broken.gguf'), 'wb') as f: f.write(b'GGUF\3\0\0\0' + b'\xff' * 100)
    shutil.copy(os.path.join(folder, 'a.gguf'), bad)
    s = Front('--models-dir', bad, *COMMON)
    got = ask(s, C, text('broken'))
    if got[0] != 500 or 'exit status 65' not in got[2]['error']['message']: fault(f'a broken model: {got}')
    expect('the next one', ask(s, C, text('broken'))[0], 503)
    m = s.models()['broken']['status']
    if not m.get('failed') or m.get('exit_code') != 65 or not m.get('message'): fault(f'a broken model: {m}')
    expect('another model', ask(s, C, text('a', 2))[0], 200)
    s.end()
    for what, code, flags in [('no folder', 74, ['--models-dir', bad + '/none']), ('a model too', 64, ['--models-dir', bad, '-m', 'x']),
                              ('an unknown key', 78, ['--models-preset', 'nokey.ini']), ('no model in a section', 78, ['--models-preset', 'nomodel.ini']),
                              ('an alias twice', 78, ['--models-dir', bad, '--models-preset', 'alias.ini']), ('an alias', 64, ['--models-dir', bad, '-a', 'x'])]:
        for name, body in ('nokey.ini', '[a]\nmodel = x\nctx-sise = 1\n'), ('nomodel.ini', '[a]\nctx-size = 1\n'), ('alias.ini', '[a]\nalias = broken\n'):
            with open(os.path.join(bad, name), 'w') as f: f.write(body)
        r = subprocess.run([BIN, 'serve', '--port', '0', '--no-models-cache', *flags], cwd=bad, capture_output=True, text=True, timeout=60)
        if r.returncode != code or not r.stderr: fault(f'{what}: {r.returncode}, {r.stderr[-300:]!r}')


def orphans(folder, temp):
    """The front end is killed: its processes end, and the next front end removes its directory."""
    env = {'TMPDIR': temp}
    s = Front('--models-dir', folder, *COMMON, env=env)
    for name in 'a', 'b': ask(s, C, text(name, 2))
    pids = s.children()
    expect('processes', len(pids), 2)
    left = os.listdir(temp)
    expect('its directory', (len(left), oct(os.stat(os.path.join(temp, left[0])).st_mode)[-3:]), (1, '700'))
    s.p.kill()
    s.p.wait()
    if not gone(pids): fault('processes of a killed front end go on')
    s = Front('--models-dir', folder, *COMMON, env=env)
    expect('a new directory', len(set(os.listdir(temp)) - set(left)), 1)
    expect('the old one is removed', [x for x in left if x in os.listdir(temp)], [])
    pids = [s.p.pid] + s.children()
    s.end()
    expect('no directory is left', os.listdir(temp), [])


# ----------------------------------------------------------------------------------------------------------- 4. streams

def streams(s):
    whole = ask(s, C, text('a', 100))[2]['choices'][0]['text']
    with connect(s, 60) as c:
        c.sendall(request('POST', C, text('a', 100, stream=True)))
        status, h, body = read_answer(c.makefile('rb'))
    expect('a stream', (status, h['content-type'], ''.join(e['choices'][0]['text'] for e in events(body) if e['choices'])),
           (200, 'text/event-stream', whole))
    with connect(s, 60) as c:  # the client disconnects: the process cancels
        c.sendall(request('POST', C, text('a', BUSY, stream=True)))
        c.recv(100)
    for _ in range(100):
        m = ask(s, '/metrics?model=a')[2].decode()
        if re.search(r'^pagedinfer:gone_clients_total\{[^}]*\} [1-9]', m, re.M) and s.models()['a']['status']['requests'] <= 1: break
        time.sleep(0.05)
    else: fault(f'no cancel: {s.models()["a"]["status"]}')
    with connect(s, 60) as c:  # HTTP/1.0
        body = json.dumps(text('a', 4, stream=True)).encode()
        c.sendall(b'POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        got = read_all(c)
        if b'chunked' in got or not got.endswith(b'data: [DONE]\n\n'): fault(f'HTTP/1.0: {got[-200:]!r}')
    got = ask(s, C, b'{"model":"a","prompt":"' + b'x' * 400000 + b'"}')  # scanned on the pool, refused by the process
    expect('a large body', (got[0], got[2]['error']['code']), (400, 'context_length_exceeded'))
    h = 'x-request-id: from-client\r\n'
    expect('the client\'s id', ask(s, C, text('a', 1), h)[1]['x-request-id'], 'from-client')
    if not re.search(r'\[a\] \S+ 127\.0\.0\.1:\d+ - POST /v1/completions 200, prompt .* from-client', s.text()): fault('no log line with the client')


def draining(folder):
    """SIGTERM: a running stream is finished, and new requests are refused."""
    s = Front('--models-dir', folder, *COMMON)
    with connect(s, 60) as c, connect(s, 60) as idle:
        c.sendall(request('POST', C, text('a', 3000, stream=True)))
        head = c.recv(200)
        idle.sendall(request('GET', '/health'))
        expect('health', read_answer(idle.makefile('rb'))[0], 200)
        s.p.send_signal(signal.SIGTERM)
        s.wait_for('shutting down')
        expect('a new request', [ask(s, *x)[0] for x in ((C, text('a', 1)), ('/health',), ('/livez',))], [503, 503, 200])
        body = head + rest_of(c)
        if b'[DONE]' not in body: fault(f'a stream during the end: {body[-200:]!r}')
    pids = s.children()
    expect('exit status', s.p.wait(30), 0)
    if not gone(pids): fault('processes are left')


def slow_load(folder):
    """A stream whose model loads for longer than --sse-ping-interval gets comments; errors become events."""
    s = Front('--models-dir', folder, '--models-max', '1', '--sse-ping-interval', '1', '--drain-timeout', '5', *COMMON)
    with occupy(s, 'a'):
        with connect(s, 60) as c, connect(s, 60) as d, connect(s, 60) as watch:
            watch.sendall(request('GET', '/models/sse'))
            c.sendall(request('POST', C, text('b', 3, stream=True)))
            d.sendall(request('POST', C, text('b', 3, stream=True, temperature='hot')))
            c.settimeout(30)
            first = c.recv(300)
            if b'text/event-stream' not in first: fault(f'no stream begins: {first!r}')
            s.kill('a')  # frees the only place
            body = first + rest_of(c)
            if b': loading' not in body or b'data: [DONE]' not in body: fault(f'comments: {body[-300:]!r}')
            body = rest_of(d)
            if not re.search(rb'data: \{"error":.*temperature', body): fault(f'an error of a begun stream: {body[-300:]!r}')
            watch.settimeout(0.5)
            seen = read_all(watch).decode()
            for word in '"loading"', '"loaded"', '"failed":true':
                if word not in seen: fault(f'/models/sse has no {word}: {seen[-500:]}')
    s.end()


def rest_of(c):
    out = b''
    try:
        while not out.endswith(b'0\r\n\r\n') and (d := c.recv(65536)): out += d
    except (ConnectionError, TimeoutError, socket.timeout): pass
    return out


# ---------------------------------------------------------------------------------------------------------- 5. prefixes

def second_turn(s):
    """The conversation goes on after the model was unloaded and loaded again. Prints the times."""
    ask(s, C, text('b', 1))
    talk = [{'role': 'user', 'content': 'the first of many long words ' * 12}]
    one = {'model': 'a', 'messages': talk, 'max_tokens': 24, 'ignore_eos': True, 'seed': 7}
    ask(s, CHAT, one)
    first = ask(s, CHAT, one)[2]
    talk = talk + [first['choices'][0]['message'], {'role': 'user', 'content': 'and'}]
    for m in talk: m.pop('reasoning_content', None)
    want = ask(s, CHAT, {**one, 'messages': talk})[2]['choices'][0]['message']
    order(s, 'unload', 'a')
    s.reaches('a', 'unloaded')
    t = time.time()
    second = ask(s, CHAT, {**one, 'messages': talk, 'max_tokens': 24})[2]
    t = time.time() - t
    u = second['usage']
    cached, total = u['prompt_tokens_details']['cached_tokens'], first['usage']['total_tokens']
    if cached < 0.9 * min(total, u['prompt_tokens']): fault(f'second turn after unloading: {cached} of {u["prompt_tokens"]} tokens cached')
    expect('its text', second['choices'][0]['message'], want)
    return f'second turn after unloading: {cached} of {u["prompt_tokens"]} tokens cached, {t:.2f} s with the load'


# ----------------------------------------------------------------------------------------------------------- 6. hostile

def hostile(folder):
    s = Front('--models-dir', folder, '--max-body', '200000', '--header-timeout', '1', '--timeout', '2', '--max-connections', '40', *COMMON)
    ask(s, C, text('a', 2))
    expect('a huge body', ask(s, C, {'model': 'a', 'prompt': 'x' * 300000})[0], 413)
    expect('deep JSON', ask(s, C, b'{"model":"a","prompt":' + b'[' * 90000 + b'}')[0], 400)
    with connect(s) as c:
        c.sendall(b'POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"model"')
        expect('a slow body', read_all(c)[:12], b'HTTP/1.1 408')
    for name in ('a' * 5000, '\0', '%00', '../../etc/passwd', 'a\n', ''):
        got = ask(s, C, text(name))[0]
        if got not in (400, 404): fault(f'the name {name[:20]!r}: {got}')
    many = [connect(s) for _ in range(40)]
    time.sleep(0.2)
    with connect(s) as c:
        c.sendall(request('GET', '/health'))
        if not read_all(c).startswith(b'HTTP/1.1 503'): fault('too many connections: no 503')
    for c in many: c.close()
    time.sleep(0.3)
    for i in range(30):  # clients that ask and leave, at every stage
        with connect(s) as c:
            c.sendall(request('POST', C, text('ab'[i % 2], 50, stream=i % 3 == 0)))
            time.sleep(i * 0.004)
    with connect(s) as c:  # a client that does not read
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.sendall(request('POST', C, text('a', BUSY, stream=True, logprobs=5)))
        time.sleep(4)
        expect('others go on', ask(s, C, text('a', 2))[0], 200)
    for _ in range(100):
        if all(m['status']['requests'] == m['status']['waiting'] == 0 for m in s.models().values()): break
        time.sleep(0.05)
    else: fault(f'requests are left: {s.models()}')
    s.end()


def keys(folder):
    """Keys are checked by the front end; options files are private."""
    s = Front('--models-dir', folder, '--api-key', 'k1,k2', '--response-store', '4', *COMMON)
    expect('no key', [ask(s, p, b)[0] for p, b in ((C, text('a')), ('/v1/models', None), ('/models/load', {'model': 'a'}))], [401] * 3)
    auth = 'Authorization: Bearer k1\r\n'
    got = ask(s, '/v1/responses', {'model': 'a', 'input': 'x', 'max_output_tokens': 2}, auth)
    path = f'/v1/responses/{got[2]["id"]}?model=a'
    expect('a stored response', ask(s, path, None, auth)[0], 200)
    expect('of another key', ask(s, path, None, 'X-Api-Key: k2\r\n')[0], 404)
    with open(f'/proc/{s.children()[0]}/cmdline') as f: ini = f.read().split('\0')[3]
    expect('its options', (oct(os.stat(ini).st_mode)[-3:], 'k1' in open(ini).read()), ('600', False))
    s.end()


def many_bodies(folder):
    """Large bodies that wait for a model are limited in total."""
    s = Front('--models-dir', folder, '--models-max', '1', *COMMON)
    body = json.dumps({'model': 'b', 'prompt': 'x' * (16 << 20)}).encode()[:16 << 20]
    with occupy(s, 'a'):
        waiting = [connect(s, 60) for _ in range(17)]
        for c in waiting: c.sendall(request('POST', C, body))
        got = read_answer(waiting[-1].makefile('rb'))
        expect('the last one', (got[0], json.loads(got[2])['error']['code'], s.models()['b']['status']['waiting']), (429, 'too_many_waiting', 16))
        for c in waiting: c.close()
    s.end()


def soak(folder):
    """100 loads and unloads under traffic: the front end does not grow."""
    s = Front('--models-dir', folder, '--models-max', '2', *COMMON)
    stop, bad = threading.Event(), []

    def client(name):
        while not stop.is_set():
            got = ask(s, C, text(name, 4))
            if got[0] not in (200, 502, 503): bad.append(got)

    def memory():
        with open(f'/proc/{s.p.pid}/status') as f: return int(re.search(r'VmRSS:\s+(\d+)', f.read())[1])
    threads = [threading.Thread(target=client, args=(n,)) for n in ('a', 'b', 'folder')]
    for t in threads: t.start()
    sizes = []
    loads = lambda: sum(float(x) for x in re.findall(r'^pagedinfer:model_loads_total\{.*\} (\d+)', ask(s, '/metrics')[2].decode(), re.M))
    while loads() < 100:
        sizes.append(memory())
        time.sleep(0.2)
    stop.set()
    for t in threads: t.join()
    if bad: fault(f'under traffic: {bad[:3]}')
    if sizes[-1] > sizes[len(sizes) // 4] * 1.1 + 2048: fault(f'the front end grows: {sizes[len(sizes) // 4]} to {sizes[-1]} KiB')
    s.end()
    return f'100 loads: {sizes[len(sizes) // 4]} to {sizes[-1]} KiB'


def main():
    maker = base.tiny_maker()
    if not maker: return 77
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as temp:
        for i, name in enumerate(('a', 'b', 'folder/model', 'embed')):
            path = os.path.join(folder, name + '.gguf')
            os.makedirs(os.path.dirname(path), exist_ok=True)
            subprocess.run([maker, path, '8192', 'qwen3', str(i + 1)], check=True)
        plain = os.path.join(folder, 'plain')
        os.makedirs(plain)
        preset = os.path.join(temp, 'models.ini')
        with open(preset, 'w') as f:
            f.write(f'version = 1\n[*]\nload-on-startup = false\nctx-size = 8192\n[b]\nalias = beta\n[twin]\nmodel = {folder}/a.gguf\nctx-size = 512\n')
        flags = ['--models-dir', folder, '--models-preset', preset, *[x for x in COMMON if x not in ('-c', '8192', '--parallel', '4')], '--models-max']
        s = Front(*flags, '5', env={'LLAMA_ARG_PARALLEL': '4'})
        selection(s)
        embeddings(s)
        streams(s)
        killed(s)
        note = second_turn(s)
        s.end()
        s = Front(*flags, '2', env={'LLAMA_ARG_PARALLEL': '4'})
        least_recent(s)
        s.end()
        slow_load(folder)
        draining(folder)
        names(os.path.join(temp, 'names'))
        budget(folder)
        parts(folder)
        sleeping(os.path.join(folder, 'a.gguf'))
        broken(folder)
        private = os.path.join(temp, 't')
        os.mkdir(private)
        orphans(folder, private)
        keys(folder)
        hostile(folder)
        if LONG:
            many_bodies(folder)
            note += ', ' + soak(folder)
    print(f'router: {note}, {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
