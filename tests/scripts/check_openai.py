#!/usr/bin/env python3
"""Compares libpagedinfer-openai with the server: equal responses for the same requests, ids and times aside.

    check_openai.py [NAME...]   names of cases, to run only these

1. Requests of all kinds (streams, tools, schemas, logprobs, n, stop, errors) go to `pagedinfer serve` and to
   pi_chat_completions, by queue and by callback. Pieces of a stream are joined first, because their sizes depend on time.
2. Images as data URLs, with a small random model.
3. Many completions from several threads, cancels, frees at any time, wrong use, and a failed allocation at each point.

Needs the chat model; part 2 needs tool_tiny_model and gguf. Exit 77: nothing could be run."""
import base64, ctypes, json, os, re, select, signal, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(HERE, '../../build'))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
CHAT = os.environ.get('PAGEDINFER_CHAT_MODEL', '')
faults = []


def fault(text):
    faults.append(text)
    if len(faults) < 30: print('  ' + text)


def expect(what, got, want):
    if got != want: fault(f'{what}: {str(got)[:400]!r}, not {str(want)[:400]!r}')


# ---------------------------------------------------------------------------------------------------------- the library
class Chunk(ctypes.Structure):
    _fields_ = [('size', ctypes.c_uint32), ('completion', ctypes.c_void_p), ('user', ctypes.c_void_p), ('json', ctypes.c_void_p),
                ('len', ctypes.c_size_t), ('status', ctypes.c_int), ('code', ctypes.c_int), ('last', ctypes.c_bool)]


class Error(ctypes.Structure):
    _fields_ = [('code', ctypes.c_int), ('msg', ctypes.c_char * 240)]


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Chunk))


class Params(ctypes.Structure):
    _fields_ = [('size', ctypes.c_uint32), ('fn', CALLBACK), ('ud', ctypes.c_void_p), ('user', ctypes.c_void_p),
                ('work', ctypes.c_void_p), ('tenant', ctypes.c_char_p)]


def load():
    core = ctypes.CDLL(os.path.join(BUILD, 'libpagedinfer.so'), mode=ctypes.RTLD_GLOBAL)
    lib = ctypes.CDLL(os.path.join(BUILD, 'libpagedinfer-openai.so'))
    P, PP = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
    for f, kinds in {'pi_options_set': [P, ctypes.c_char_p, ctypes.c_char_p, P], 'pi_options_free': [P], 'pi_engine_open': [PP, P, P],
                     'pi_engine_close': [P], 'pi_work_free': [P], 'pi_work_new': [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int]}.items():
        getattr(core, f).argtypes = kinds
    core.pi_options_new.restype = core.pi_work_new.restype = P
    for f, kinds in {'pi_openai_new': [PP, P, P], 'pi_openai_set': [P, ctypes.c_char_p, ctypes.c_char_p, P], 'pi_openai_free': [P],
                     'pi_chat_completions': [PP, P, ctypes.c_char_p, ctypes.c_size_t, P, P], 'pi_completion_cancel': [P],
                     'pi_completion_free': [P], 'pi_openai_poll': [P, ctypes.POINTER(ctypes.POINTER(Chunk)), ctypes.c_size_t, ctypes.c_int],
                     'pi_openai_poll_fd': [P], 'pi_chunk_release': [P]}.items():
        getattr(lib, f).argtypes = kinds
    for f in ('pi_options_free', 'pi_engine_close', 'pi_work_free'): getattr(core, f).restype = None
    for f in ('pi_openai_free', 'pi_completion_cancel', 'pi_completion_free', 'pi_chunk_release'): getattr(lib, f).restype = None
    return core, lib


core, lib = load()


class Openai:
    """An engine with a handle."""
    def __init__(self, settings=(), **options):
        err, o, self.e, self.o = Error(), core.pi_options_new(), ctypes.c_void_p(), ctypes.c_void_p()
        for k, v in options.items():
            if core.pi_options_set(o, k.replace('_', '-').encode(), str(v).encode(), ctypes.byref(err)): sys.exit(err.msg.decode())
        if core.pi_engine_open(ctypes.byref(self.e), o, ctypes.byref(err)): sys.exit(err.msg.decode())
        core.pi_options_free(o)
        if lib.pi_openai_new(ctypes.byref(self.o), self.e, ctypes.byref(err)): sys.exit(err.msg.decode())
        for k, v in settings: expect(f'setting {k}', lib.pi_openai_set(self.o, k.encode(), v.encode(), ctypes.byref(err)), 0)

    def start(self, body, fn=None, user=0, work=None):
        text, c, err = body if isinstance(body, bytes) else json.dumps(body).encode(), ctypes.c_void_p(), Error()
        p = Params(ctypes.sizeof(Params), fn or CALLBACK(), None, user, work)
        if rc := lib.pi_chat_completions(ctypes.byref(c), self.o, text, len(text), ctypes.byref(p), ctypes.byref(err)):
            fault(f'pi_chat_completions: {rc} {err.msg}')
        return c

    def poll(self, timeout=-1, cap=16):
        """[(user, json, status, code, last)]"""
        buf = (ctypes.POINTER(Chunk) * cap)()
        n = lib.pi_openai_poll(self.o, buf, cap, timeout)
        if n < 0: fault(f'pi_openai_poll: {n}')
        out = []
        for i in range(max(n, 0)):
            out.append(parts(buf[i].contents))
            lib.pi_chunk_release(buf[i])
        return out

    def all(self, body):
        """(status, [json]) by the queue."""
        c, got = self.start(body), []
        while chunks := self.poll(): got += chunks
        lib.pi_completion_free(c)
        return self.checked(got)

    def by_callback(self, body):
        got, done = [], threading.Event()

        @CALLBACK
        def fn(_, chunk):
            got.append(parts(chunk.contents))
            if chunk.contents.last:
                lib.pi_completion_free(chunk.contents.completion)
                done.set()
        self.start(body, fn)
        if not done.wait(120): fault('no last chunk within two minutes')
        time.sleep(0.01)  # the callback returns
        return self.checked(got)

    @staticmethod
    def checked(got):
        if [c[4] for c in got] != [False] * (len(got) - 1) + [True]: fault(f'not exactly one last chunk: {[c[4] for c in got]}')
        if any(c[2] != 200 or c[3] for c in got[:-1]): fault('an error before the last chunk')
        return got[-1][2] if got else 0, [c[1] for c in got if c[1]]

    def close(self):
        lib.pi_openai_free(self.o)
        core.pi_engine_close(self.e)


def parts(c): return c.user or 0, ctypes.string_at(c.json, c.len).decode(), c.status, c.code, c.last


# ----------------------------------------------------------------------------------------------------------- the server
class Server:
    def __init__(self, *flags):
        self.log = tempfile.NamedTemporaryFile('w+', suffix='.log')
        self.p = subprocess.Popen([BIN, 'serve', '--port', '0', *flags], stdout=subprocess.DEVNULL, stderr=self.log)
        for _ in range(2400):
            with open(self.log.name, errors='replace') as f: text = f.read()
            m = re.search(r'listening on http://127\.0\.0\.1:(\d+)', text)
            if m and 'is ready' in text: break
            if self.p.poll() is not None: sys.exit(f'the server ended: {text[-2000:]}')
            time.sleep(0.025)
        self.url = f'http://127.0.0.1:{m[1]}/v1/chat/completions'

    def all(self, body):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url, text, {'Content-Type': 'application/json'}), timeout=120) as r:
                status, kind, text = r.status, r.headers['Content-Type'], r.read().decode()
        except urllib.error.HTTPError as e: status, kind, text = e.code, 'application/json', e.read().decode()
        if 'event-stream' not in kind: return status, [text]
        lines = [l[6:] for l in text.split('\n') if l.startswith('data: ')]
        if lines[-1] != '[DONE]': fault(f'the server\'s stream ends with {lines[-1][:80]}')
        return status, lines[:-1]

    def close(self):
        self.p.send_signal(signal.SIGTERM)
        self.p.wait(30)


# ----------------------------------------------------------------------------------------------------------- comparison
def plain(v):
    """Without ids, times and counts of the cache."""
    if isinstance(v, dict):
        return {k: 'call' if k == 'id' else plain(x) for k, x in v.items()
                if k not in ('created', 'timings', 'prompt_tokens_details') and not (k == 'id' and str(x).startswith('chatcmpl'))}
    return [plain(x) for x in v] if isinstance(v, list) else v


def join(status, texts):
    """A response with the pieces of each choice joined."""
    out, choices = [], {}
    for v in map(json.loads, texts):
        v = plain(v)
        if v.get('object') != 'chat.completion.chunk': out.append(v)
        elif not v['choices']: out.append({**v, 'choices': []})
        for c in v.get('choices', []) if v.get('object') == 'chat.completion.chunk' else []:
            to = choices.setdefault(c['index'], {'frame': {k: x for k, x in v.items() if k not in ('choices', 'usage')}, 'logprobs': [],
                                                 'finish': [], 'ids': [], 'calls': {}})
            d = c['delta']
            for k in ('role', 'content', 'reasoning_content'): to[k] = to.get(k, '') + (d.get(k) or '')
            for call in d.get('tool_calls', []):
                t = to['calls'].setdefault(call['index'], {'name': '', 'arguments': ''})
                for k in t: t[k] += call['function'].get(k, '')
            to['logprobs'] += (c.get('logprobs') or {}).get('content', [])
            to['ids'] += c.get('token_ids', [])
            if c['finish_reason']: to['finish'].append((c['finish_reason'], c.get('stop_reason')))
    return status, out, choices


def said(text, **more): return {'messages': [{'role': 'user', 'content': text}], 'temperature': 0, 'max_tokens': 24, **more}


TOOLS = [{'type': 'function', 'function': {'name': 'weather', 'description': 'Weather of a city', 'parameters': {
    'type': 'object', 'properties': {'city': {'type': 'string', 'maxLength': 12}, 'days': {'type': 'integer'}},
    'required': ['city', 'days']}}}]
SCHEMA = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 8}, 'age': {'type': 'integer'}}, 'required': ['name', 'age']}
CASES = {
    'plain': said('What is a lighthouse for?'),
    'stream': said('What is a lighthouse for?', stream=True),
    'usage': said('Count to ten.', stream=True, stream_options={'include_usage': True, 'continuous_usage_stats': False}),
    'samples': said('Name a city.', n=3, temperature=1, seed=5),
    'samples stream': said('Name a city.', n=3, temperature=1, seed=5, stream=True),
    'logprobs': said('Name a river.', logprobs=True, top_logprobs=3, max_tokens=8),
    'logprobs stream': said('Name a river.', logprobs=True, top_logprobs=3, max_tokens=8, stream=True, return_token_ids=True),
    'stop': said('Count: 1, 2, 3, 4, 5', stop=['3', ' the'], include_stop_str_in_output=True),
    'tools': said('Weather in Rome?', tools=TOOLS, tool_choice='required', max_tokens=80),
    'tools stream': said('Weather in Rome?', tools=TOOLS, tool_choice={'type': 'function', 'function': {'name': 'weather'}}, max_tokens=80, stream=True),
    'tool results': {'messages': [{'role': 'user', 'content': 'Weather?'}, {'role': 'assistant', 'tool_calls': [
        {'id': 'c1', 'type': 'function', 'function': {'name': 'weather', 'arguments': '{"city":"Rome","days":1}'}}]},
        {'role': 'tool', 'tool_call_id': 'c1', 'content': 'sunny'}], 'tools': TOOLS, 'temperature': 0, 'max_tokens': 16},
    'schema': said('A person.', response_format={'type': 'json_schema', 'json_schema': {'name': 'p', 'schema': SCHEMA}}, max_tokens=60),
    'object': said('A JSON object.', response_format={'type': 'json_object'}, max_tokens=30, stream=True),
    'bias': said('Yes or no?', logit_bias={'42': -100, ' yes': 5}, presence_penalty=0.5, top_p=0.9, max_tokens=4),
    'prefill': {'messages': [{'role': 'user', 'content': 'Count.'}, {'role': 'assistant', 'content': '1, 2,'}], 'temperature': 0, 'max_tokens': 8, 'echo': True},
    'parts': {'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'Hello'}, {'type': 'text', 'text': 'there'}]}], 'temperature': 0, 'max_tokens': 4},
    'no text': b'', 'no JSON': b'{"messages": [', 'a list': b'[]', 'no messages': {'messages': []}, 'bad type': said('a', temperature='hot'),
    'bad range': said('a', top_p=7), 'refused': said('a', audio={'voice': 'x'}), 'bad schema': said('a', response_format={'type': 'json_schema', 'json_schema': {
        'name': 'p', 'schema': {'type': 'nothing'}}}), 'too long': said('a ' * 9000), 'image': {'messages': [{'role': 'user', 'content': [
        {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,AAAA'}}]}]},
}


def compare(server, o, cases):
    for name, body in cases.items():
        want = join(*server.all(body))
        expect(f'{name}, by queue', join(*o.all(body)), want)
        expect(f'{name}, by callback', join(*o.by_callback(body)), want)
        if want[0] == 200 and not want[1] and not want[2]: fault(f'{name}: the server\'s response is empty')


# ------------------------------------------------------------------------------------------------------------- behaviour
def many(o):
    """Four threads start 32 completions with the same answer; two threads poll."""
    want = join(*o.all(said('Name a colour.', stream=True)))
    got, lock, made = {}, threading.Lock(), []

    def start(base):
        for i in range(8):
            c = o.start(said('Name a colour.', stream=True), user=base + i)
            with lock: made.append(c)

    def poll():
        while True:
            chunks = o.poll(200, 3)
            with lock:
                for user, text, status, _, last in chunks: got.setdefault(user, []).append((text, last))
                if sum(x[1] for v in got.values() for x in v) == 32: return
    threads = [threading.Thread(target=start, args=(1 + 8 * i,)) for i in range(4)] + [threading.Thread(target=poll)]
    for t in threads: t.start()
    for t in threads: t.join()
    for user, chunks in got.items():
        expect(f'completion {user} of 32', join(200, [c[0] for c in chunks if c[0]])[2], want[2])
    for c in made: lib.pi_completion_free(c)
    expect('a poll without completions', o.poll(-1), [])


def ends(o):
    """Cancels, frees, descriptors, budgets."""
    endless = said('Tell a story.', stream=True, ignore_eos=True, max_tokens=100000)
    c = o.start(endless)
    fd = lib.pi_openai_poll_fd(o.o)
    expect('the descriptor of a running completion', select.select([fd], [], [], 60)[0], [fd])
    got = o.poll()
    lib.pi_completion_cancel(c)
    while chunks := o.poll(): got += chunks
    expect('a canceled completion', (got[-1][2:], json.loads(got[-1][1])['error']['message']), ((499, -9, True), 'the client canceled'))
    lib.pi_completion_cancel(c)
    lib.pi_completion_free(c)
    expect('the descriptor without completions', select.select([fd], [], [], 0)[0], [])
    for delay in (0, 0.05, 0.3):
        c = o.start(endless)
        time.sleep(delay)
        lib.pi_completion_free(c)
        expect(f'a poll after a free, {delay} s', o.poll(-1), [])
    work = core.pi_work_new(10, 0, -1)
    c = o.start(said('a ' * 3000), work=work)
    got = o.poll()
    expect('a small work budget', got[-1][3], -7)
    lib.pi_completion_free(c)
    core.pi_work_free(work)
    c = o.start(said('a'))  # an unread response is dropped
    time.sleep(0.5)
    lib.pi_completion_free(c)
    expect('a dropped response', o.poll(-1), [])


def wrong_use(o):
    err, c = Error(), ctypes.c_void_p(7)
    expect('no handle', (lib.pi_chat_completions(ctypes.byref(c), None, b'{}', 2, None, None), c.value), (-1, None))
    expect('no output', lib.pi_chat_completions(None, o.o, b'{}', 2, None, None), -1)
    expect('an unknown setting', lib.pi_openai_set(o.o, b'port', b'1', ctypes.byref(err)), -1)
    expect('its text', b'media-path' in err.msg, True)
    expect('a wrong value', lib.pi_openai_set(o.o, b'reasoning', b'maybe', ctypes.byref(err)), -1)
    expect('a late setting', lib.pi_openai_set(o.o, b'alias', b'x', ctypes.byref(err)), -8)
    expect('a poll of nothing', lib.pi_openai_poll(o.o, None, 4, 0), -1)
    lib.pi_chunk_release(None)
    lib.pi_completion_free(None)
    lib.pi_completion_cancel(None)
    lib.pi_openai_free(None)




def images(cases):
    """Images as data URLs, on a random model."""
    sys.path.insert(0, HERE)
    try: import gguf  # noqa: F401
    except ImportError: return print('  images: no gguf')
    if not os.path.exists(os.path.join(BUILD, 'tests/tool_tiny_model')): return print('  images: no tool_tiny_model')
    import check_images
    with tempfile.TemporaryDirectory() as folder:
        text, mmproj = check_images.model(folder, 'gemma3')
        urls = ['data:image/png;base64,' + base64.b64encode(check_images.png(40, 30, s)).decode() for s in (1, 2)]
        ask = lambda *u, **m: {'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'the'}, *(
            {'type': 'image_url', 'image_url': {'url': x}} for x in u)]}], 'temperature': 0, 'max_tokens': 6, 'logprobs': True, **m}
        s = Server('-m', text, '--mmproj', mmproj, '--alias', 'm', '--max-images', '2')
        o = Openai([('alias', 'm'), ('max-images', '2')], model=text, mmproj=mmproj)
        compare(s, o, {'one image': ask(urls[0]), 'two images': ask(*urls, stream=True), 'three images': ask(*urls, urls[0]),
                       'damaged image': ask(urls[0][:80]), 'remote image': ask('http://127.0.0.1/a.png'), 'a file': ask('file:///etc/passwd')})
        if o.all(ask(urls[0]))[1] == o.all(ask(urls[1]))[1]: fault('two images have the same answer')
        s.close()
        o.close()


def out_of_memory():
    """Each allocation of a completion fails in turn."""
    tiny, shim = (os.path.join(BUILD, 'tests', n) for n in ('tool_tiny_model', 'failing_malloc.so'))
    if not os.path.exists(tiny) or not os.path.exists(shim): return print('  out of memory: no tool_tiny_model or failing_malloc')
    with tempfile.TemporaryDirectory() as folder:
        program, model, control = (os.path.join(folder, n) for n in ('oom', 'tiny.gguf', 'control'))
        subprocess.run([os.environ.get('CC', 'cc'), '-std=gnu11', '-Wall', '-Wextra', '-Werror', '-O1', '-I', f'{HERE}/../../include',
                        f'{HERE}/../bindings/openai_oom.c', '-o', program, f'-L{BUILD}', '-lpagedinfer-openai', '-lpagedinfer'], check=True)
        subprocess.run([tiny, model, '512'], check=True)
        with open(control, 'wb') as f: f.write(bytes(64))
        ask = dict(messages=[{'role': 'user', 'content': 'the other'}], temperature=0, max_tokens=3, ignore_eos=True, logprobs=True)
        r = subprocess.run([program, model, json.dumps(ask), json.dumps({**ask, 'stream': True})], capture_output=True, text=True, timeout=300,
                           env={**os.environ, 'LD_PRELOAD': shim, 'FAILING_MALLOC': control, 'LD_LIBRARY_PATH': BUILD})
        if r.returncode: fault(f'out of memory: status {r.returncode}: {r.stdout[-1500:]}{r.stderr[-500:]}')
        print('  out of memory: ' + ', '.join(r.stdout.split('\n')[:2]))


def main():
    if not CHAT or not os.path.exists(CHAT):
        print('no chat model (PAGEDINFER_CHAT_MODEL)')
        return 77
    cases = {k: v for k, v in CASES.items() if not sys.argv[1:] or k in sys.argv[1:]}
    s = Server('-m', CHAT, '--alias', 'm', '-c', '2048', '--threads', '2')
    o = Openai([('alias', 'm')], model=CHAT, ctx_size=2048, threads=2)
    compare(s, o, cases)
    s.close()
    for part in (many, ends, wrong_use): part(o)
    o.close()
    images(cases)
    out_of_memory()
    print(f'openai: {len(cases)} requests by queue and callback, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__': sys.exit(main())
