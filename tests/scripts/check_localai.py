#!/usr/bin/env python3
"""Checks the LocalAI backend (integrations/localai) with a gRPC client and tiny random models.

    check_localai.py [--write] [--record FILE]

--write updates the table of options in docs/LOCALAI.md. --record FILE writes integrations/localai/fields.txt from
LocalAI's backend.proto. With PAGEDINFER_LOCALAI_PROTO, the client is generated from that file instead of ours.

1. Field numbers of backend.proto are those of fields.txt. The table in the page is the one that the program prints.
2. Every RPC: results against the tool, against each other, errors and their codes.
3. 32 streams at the same time, cancels, deadlines, Free during a stream, SIGTERM, the parent's end, the token.
4. package.sh makes a folder that runs.

Needs grpcio and grpcio-tools, and a build with the backend and tool_tiny_model; images need gguf too. Exit 77: one of
them is missing."""
import atexit, base64, faulthandler, importlib, json, os, re, signal, socket, subprocess, sys, tempfile, threading, time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
HERE, FOLDER, PAGE = os.path.join(ROOT, 'tests/scripts'), os.path.join(ROOT, 'integrations/localai'), os.path.join(ROOT, 'docs/LOCALAI.md')
BUILD = os.path.abspath(os.environ.get('PAGEDINFER_BUILD', os.path.join(ROOT, 'build')))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
BACKEND, TINY = os.path.join(BUILD, 'pagedinfer-localai'), os.path.join(BUILD, 'tests/tool_tiny_model')
PROTO = os.environ.get('PAGEDINFER_LOCALAI_PROTO', os.path.join(FOLDER, 'backend.proto'))
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
THINKING = TEMPLATE.replace('assistant: ', "assistant: <think>\n{% if enable_thinking is defined and not enable_thinking %}</think>\n{% endif %}")
TOOL = {'type': 'function', 'function': {'name': 'weather', 'parameters': {
    'type': 'object', 'properties': {'city': {'enum': ['Paris', 'Rome']}}, 'required': ['city'], 'additionalProperties': False}}}
faults = []


def fault(text):
    faults.append(text)
    if len(faults) < 30: print('  ' + text)


def expect(what, got, want):
    if got != want: fault(f'{what}: {str(got)[:300]!r}, not {str(want)[:300]!r}')


def close_to(what, got, want, tolerance=1e-4):
    if len(got) != len(want) or any(not abs(a - b) <= tolerance for a, b in zip(got, want)): fault(f'{what}: {got[:6]}, not {want[:6]}')


# ------------------------------------------------------------------------------------------------ 1. the protocol, the page
def fields_of(path):
    """["Message.Field = NUMBER TYPE", "rpc Name Input Output"] of a proto file."""
    with open(path, encoding='utf-8') as f: text = re.sub(r'//[^\n]*|/\*.*?\*/', '', f.read(), flags=re.S)
    out = [f'rpc {a} {" ".join(b.split())} {" ".join(c.split())}' for a, b, c in
           re.findall(r'rpc\s+(\w+)\s*\(([^)]*)\)\s*returns\s*\(([^)]*)\)', text)]
    stack = []
    for m in re.finditer(r'\b(message|enum|oneof|service)\s+(\w+)\s*\{|(\{)|(\})|([\w.<>, ]*?\w)\s*=\s*(-?\d+)\s*(?:\[[^]]*\])?;', text):
        if m[1]: stack.append(m[2] if m[1] in ('message', 'enum') else '')
        elif m[3]: stack.append('')
        elif m[4]: stack = stack[:-1]
        elif stack and stack[-1]:
            kind, _, name = ' '.join(m[5].split()).rpartition(' ')
            out.append(f'{stack[-1]}.{name} = {m[6]} {kind}'.rstrip())
    return out


def protocol(write, record):
    recorded = os.path.join(FOLDER, 'fields.txt')
    ours = fields_of(os.path.join(FOLDER, 'backend.proto'))
    if record:
        names = {f.split('.')[0] for f in ours}
        kept = [f for f in fields_of(record) if f.split('.')[0] in names or f in ours]
        with open(recorded, 'w') as f: f.write('\n'.join(kept) + '\n')
    with open(recorded) as f: theirs = set(f.read().split('\n'))
    for f in ours:
        if f not in theirs: fault(f'backend.proto: {f} is not in fields.txt')
    if len(ours) < 100: fault(f'backend.proto: only {len(ours)} fields were read')
    table = subprocess.run([BACKEND, '--options'], capture_output=True, text=True, check=True).stdout
    with open(PAGE, encoding='utf-8') as f: page = f.read()
    new = re.sub(r'(<!-- options -->\n).*?(?=\n\n)', lambda m: m[1] + table.rstrip(), page, flags=re.S)
    if write and new != page:
        with open(PAGE, 'w', encoding='utf-8') as f: f.write(new)
    elif new != page: fault('docs/LOCALAI.md: the table of options is old: run check_localai.py --write')


# -------------------------------------------------------------------------------------------------------- 2. the backend
def client(folder):
    """The modules that protoc makes."""
    from grpc_tools import protoc
    rc = protoc.main(['protoc', f'-I{os.path.dirname(os.path.abspath(PROTO))}', f'--python_out={folder}', f'--grpc_python_out={folder}', PROTO])
    if rc: sys.exit(f'protoc cannot read {PROTO}')
    sys.path.insert(0, folder)
    return importlib.import_module('backend_pb2'), importlib.import_module('backend_pb2_grpc')


class Backend:
    def __init__(self, command=(BACKEND,), address='127.0.0.1:0', token='', **env):
        self.log = tempfile.NamedTemporaryFile('w+', suffix='.log')
        env = {**os.environ, **({'LOCALAI_GRPC_AUTH_TOKEN': token} if token else {}), **env}
        self.p = subprocess.Popen([*command, '--addr', address], stdout=self.log, stderr=self.log, env=env)
        atexit.register(self.p.kill)
        for _ in range(1200):
            if m := re.search(r'listening on (\S+)', self.lines()): break
            if self.p.poll() is not None: sys.exit(f'the backend ended: {self.lines()}')
            time.sleep(0.025)
        self.address = m[1]
        self.channel = grpc.insecure_channel(self.address, options=[('grpc.max_receive_message_length', 50 << 20)])
        self.rpc = stub.BackendStub(self.channel)

    def lines(self):
        with open(self.log.name, errors='replace') as f: return f.read()

    def load(self, path, options=(), args=None, **fields):
        fields = {'Model': 'm', 'ModelFile': path, 'ContextSize': 1024, 'NBatch': 512, 'Threads': 1, 'NGPULayers': 9999, **fields}
        return self.rpc.LoadModel(pb.ModelOptions(Options=options, EngineArgs=json.dumps(args) if isinstance(args, dict) else args or '', **fields))

    def idle(self, seconds=5):
        """True once no request runs."""
        until = time.time() + seconds
        while time.time() < until:
            if self.rpc.Status(pb.HealthMessage()).state == pb.StatusResponse.READY: return True
            time.sleep(0.02)
        return False

    def close(self):
        self.channel.close()
        self.p.terminate()
        try: expect('the exit status after SIGTERM', self.p.wait(15), 0)
        except subprocess.TimeoutExpired:
            self.p.kill()
            fault('SIGTERM does not end the backend')


def refused(what, call, code, text=''):
    """The call ends with this status, and a message that contains text."""
    try: got = call()
    except grpc.RpcError as e:
        if e.code().name != code or text not in e.details(): fault(f'{what}: {e.code().name} {e.details()!r}, not {code} {text!r}')
        return
    if hasattr(got, '__next__'): return refused(what, lambda: list(got) and None, code, text)
    fault(f'{what}: accepted, {str(got)[:100]!r}')


def ask(prompt, **more):
    return pb.PredictOptions(**{'Prompt': prompt, 'Temperature': 0, 'Tokens': 12, 'ModelIdentity': 'm', **more})


def chat(text='the quick', **more):
    return ask('', **{'UseTokenizerTemplate': True, 'Messages': [pb.Message(role='user', content=text)], **more})


def joined(replies):
    """The sum of a stream: (message, content, reasoning, {index: [id, name, arguments]}, last reply)."""
    message, content, thoughts, calls, last = b'', '', '', {}, None
    for last in replies:
        message += last.message
        for d in last.chat_deltas:
            content, thoughts = content + d.content, thoughts + d.reasoning_content
            for t in d.tool_calls:
                c = calls.setdefault(t.index, ['', '', ''])
                for i, v in enumerate((t.id, t.name, t.arguments)): c[i] += v
    return message, content, thoughts, calls, last


def tool(*args):
    return subprocess.run([BIN, *args], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def before(b):
    expect('Health', b.rpc.Health(pb.HealthMessage()).message, b'OK')
    expect('Status without a model', b.rpc.Status(pb.HealthMessage()).state, pb.StatusResponse.UNINITIALIZED)
    for name in ('Predict', 'PredictStream', 'Embedding', 'TokenizeString'):
        refused(f'{name} without a model', lambda: getattr(b.rpc, name)(ask('the')), 'FAILED_PRECONDITION', 'model not loaded')
    for name, q in (('Detokenize', pb.DetokenizeRequest()), ('Rerank', pb.RerankRequest()), ('Score', pb.ScoreRequest()),
                    ('GetMetrics', pb.MetricsRequest()), ('ModelMetadata', pb.ModelOptions())):
        refused(f'{name} without a model', lambda: getattr(b.rpc, name)(q), 'FAILED_PRECONDITION', 'model not loaded')
    refused('a call of another backend', lambda: b.channel.unary_unary('/backend.Backend/TTS')(b''), 'UNIMPLEMENTED')
    refused('bytes that are no message', lambda: b.channel.unary_unary('/backend.Backend/Predict')(b'\xff\xff\xff'), 'INTERNAL')
    with socket.create_connection(b.address.rsplit(':', 1)) as s: s.sendall(b'GET / HTTP/1.1\r\n\r\n' + bytes(range(256)))


def loading(b, tiny):
    refused('no name', lambda: b.rpc.LoadModel(pb.ModelOptions()), 'INVALID_ARGUMENT', 'ModelFile')
    for what, options, args, text in (
            ('a bad value', ['parallel:zero'], None, 'parallel'), ('a bad value of engine_args', [], {'parallel': 0}, 'parallel'),
            ('an unknown key of engine_args', [], {'paralel': 2}, 'parallel'), ('engine_args that are a list', [], '[1]', 'JSON object'),
            ('engine_args that are no JSON', [], '{', 'not valid JSON'), ('a bad pooling', ['pooling:most'], None, 'pooling'),
            ('a bad reasoning format', ['reasoning_format:loud'], None, 'reasoning-format')):
        refused(what, lambda: b.load(tiny, options, args), 'INVALID_ARGUMENT', text)
    for what, path, more in (('a missing file', tiny + '.none', {}), ('a file that is no model', os.path.abspath(__file__), {}),
                             ('a missing drafter', tiny, {'DraftModel': tiny + '.none'})):
        r = b.load(path, **more)
        if r.success or not r.message: fault(f'{what}: {r}')
    if 'none' not in b.lines().strip().split('\n')[-1]: fault(f'the last line of the log is no reason: {b.lines()[-300:]}')
    options = ['n_parallel:32', 'draft_max:64', 'jinja:true', 'swa_full', 'cache_ram:0', 'mmproj_use_gpu:false', 'fit_params:enabled',
               'devices:CPU', 'companion:some/path', '--max-queue:64', 'n_predict:40', 'log_level:warn', f'chat_template:{TEMPLATE}']
    begun = len(b.lines())
    r = b.load(tiny, options, {'kv-cache-tokens': 16384, 'block_size': 32}, CacheTypeKey='F16', Overrides=['general.name=str:other'])
    expect('LoadModel', (r.success, r.message), (True, 'Loading succeeded'))
    for text in ('option swa_full has no effect', 'option companion is unknown'):
        if text not in b.lines(): fault(f'the log lacks {text!r}')
    expect('lines of an engine with log_level', 'info:' in b.lines()[begun:], False)
    memory = b.rpc.Status(pb.HealthMessage()).memory
    if not 0 < sum(memory.breakdown.values()) <= memory.total: fault(f'memory: {memory}')


def prompts(b, tiny):
    want = tool('run', '-m', tiny, '-p', 'the quick', '--temp', '0', '-n', '12', '--no-display-prompt')
    r = b.rpc.Predict(ask('the quick'))
    expect('Predict', r.message.decode(errors='replace').strip(), want.strip())
    n = b.rpc.TokenizeString(ask('the quick'))
    expect('counts', (r.tokens, r.prompt_tokens, n.length, len(n.tokens)), (12, n.length + 1, n.length, n.length))
    if not (r.timing_prompt_processing > 0 and r.timing_token_generation > 0): fault(f'times: {r}')
    got = list(b.rpc.PredictStream(ask('the quick')))
    message, content, _, _, last = joined(got)
    expect('PredictStream', (message, last.tokens, last.prompt_tokens, content), (r.message, 12, r.prompt_tokens, ''))
    expect('an answer by a seed', b.rpc.Predict(ask('the', Temperature=1, Seed=7)).message, b.rpc.Predict(ask('the', Temperature=1, Seed=7)).message)
    if len({b.rpc.Predict(ask('the', Temperature=2, Seed=i, Tokens=20)).message for i in range(4)}) == 1: fault('seeds have no effect')
    cut = r.message.decode()[4:7]
    expect('a stop text', b.rpc.Predict(ask('the quick', StopPrompts=[cut])).message.decode(), r.message.decode().split(cut)[0])
    expect('a grammar', b.rpc.Predict(ask('the', Grammar='root ::= "lazy" | "dog"')).message in (b'lazy', b'dog'), True)
    expect('its end in a chat', b.rpc.Predict(chat(Grammar='root ::= "lazy dog"', Tools=json.dumps([TOOL]))).message, b'lazy dog')
    one = n.tokens[0]
    expect('a bias', list(b.rpc.TokenizeString(ask(b.rpc.Predict(ask('a', LogitBias=json.dumps({one: 100}), Tokens=3)).message.decode())).tokens), [one] * 3)
    for what, q, text in (
            ('top_p', ask('the', TopP=1.5), 'top-p'), ('a bias without a number', ask('the', LogitBias='{"1": "x"}'), 'number'),
            ('a bias of no token', ask('the', LogitBias='{"the": 1}'), 'logit-bias'), ('a bias that is no object', ask('the', LogitBias='[]'), 'object'),
            ('a grammar with a fault', ask('the', Grammar='root ::= "a'), ''),
            ('a prompt beyond the context', ask('the quick ' * 2000), ''), ('an image without a vision model', ask('the', Images=['AAAA']), 'mmproj'),
            ('a video', ask('the', Videos=['AAAA']), 'Videos'), ('template variables', chat(Metadata={'chat_template_kwargs': '[1]'}), 'object'),
            ('tools', chat(Tools='{'), 'Tools'), ('temperature of a chat', chat(Temperature=2000), 'temp'),
            ('calls of a message', chat(Messages=[pb.Message(role='assistant', tool_calls='{')]), 'tool_calls')):
        for name in ('Predict', 'PredictStream'): refused(f'{name}: {what}', lambda: getattr(b.rpc, name)(q), 'INVALID_ARGUMENT', text)
    for name in ('Predict', 'PredictStream', 'TokenizeString', 'Embedding'):
        refused(f'{name} of another model', lambda: getattr(b.rpc, name)(ask('the', ModelIdentity='n')), 'NOT_FOUND', 'model identity mismatch')
    b.rpc.Predict(ask('the', ModelIdentity='', StopPrompts=['']))
    b.rpc.Predict(chat(StopPrompts=['']))


def logprobs(b):
    for what, q in (('prompt', ask('the quick', Logprobs=1, TopLogprobs=3)), ('chat', chat(Logprobs=1, TopLogprobs=3))):
        one = json.loads(b.rpc.Predict(q).logprobs)['content']
        parts = [json.loads(r.logprobs)['content'] for r in b.rpc.PredictStream(q) if r.logprobs]
        expect(f'{what}: log-probabilities of a stream', [t['token'] for p in parts for t in p], [t['token'] for t in one])
        if len(one) != 12 or any(len(t['top_logprobs']) != 3 or not t['logprob'] <= 0 for t in one): fault(f'{what}: log-probabilities: {one[:2]}')
    d = b.rpc.TokenizeString(ask('d')).tokens[0]  # the text of such an answer has the same tokens again
    r = b.rpc.Predict(ask('the quick', Logprobs=1, LogitBias=json.dumps({d: 1000}), Tokens=5))
    probs = [t['logprob'] for t in json.loads(r.logprobs)['content']]
    s = b.rpc.Score(pb.ScoreRequest(prompt='the quick', candidates=[r.message.decode(), 'lazy', '', r.message.decode()], include_token_logprobs=True,
                                    length_normalize=True, ModelIdentity='m')).candidates
    expect('Score: tokens', ([t.token for t in s[0].tokens], s[0].num_tokens), (['d'] * 5, 5))
    close_to('Score of an answer', [t.log_prob for t in s[0].tokens], probs)
    close_to('its sum', [s[0].log_prob, s[0].length_normalized_log_prob], [sum(probs), sum(probs) / len(probs)])
    expect('Score of no text', (s[2].log_prob, s[2].num_tokens), (0.0, 0))
    expect('Score of equal texts', s[3], s[0])
    every = b.rpc.Score(pb.ScoreRequest(prompt='the', candidates=['lazy'] * 80)).candidates
    expect('80 candidates', {c.log_prob for c in every} == {every[0].log_prob} and len(every), 80)
    refused('Score without candidates', lambda: b.rpc.Score(pb.ScoreRequest(prompt='the')), 'INVALID_ARGUMENT', 'candidates')
    refused('Score of another model', lambda: b.rpc.Score(pb.ScoreRequest(prompt='a', candidates=['b'], ModelIdentity='n')), 'NOT_FOUND', 'mismatch')


def chats(b):
    whole = joined([b.rpc.Predict(chat())])
    expect('a chat: message and content', whole[0].decode(), whole[1])
    got = joined(b.rpc.PredictStream(chat()))
    expect('its stream', (got[:4], got[4].tokens, got[4].prompt_tokens), (whole[:4], whole[4].tokens, whole[4].prompt_tokens))
    expect('tokens of a chat', b.rpc.TokenizeString(chat()).length, whole[4].prompt_tokens)
    for choice in ('required', '"required"', json.dumps({'type': 'function', 'function': {'name': 'weather'}})):
        q = chat(Tools=json.dumps([TOOL]), ToolChoice=choice, Tokens=80)
        calls = [joined(r)[3] for r in ([b.rpc.Predict(q)], b.rpc.PredictStream(q))]
        for c in calls:
            if len(c) < 1 or c[0][1] != 'weather' or json.loads(c[0][2])['city'] not in ('Paris', 'Rome') or not c[0][0]: fault(f'a call: {c}')
        expect('a streamed call', calls[1][0][1:], calls[0][0][1:])
    back = [pb.Message(role='user', content='the'), pb.Message(role='assistant', tool_calls=json.dumps(
        [{'id': 'a', 'type': 'function', 'function': {'name': 'weather', 'arguments': '{"city": "Rome"}'}}])),
        pb.Message(role='tool', tool_call_id='a', name='weather', content='rain')]
    if not b.rpc.Predict(chat(Messages=back, Tools=json.dumps([TOOL]))).prompt_tokens: fault('a second turn')


def thinking(b, tiny):
    """Reasoning is a delta of its own."""
    expect('loading again', b.load(tiny, [f'chat_template:{THINKING}']).success, True)
    meta = b.rpc.ModelMetadata(pb.ModelOptions())
    expect('ModelMetadata', (meta.supports_thinking, meta.rendered_template, meta.media_marker), (True, 'user: test\nassistant: <think>\n', ''))
    for q in (chat(), chat(Metadata={'enable_thinking': 'true'}), chat(Metadata={'chat_template_kwargs': '{"enable_thinking": true}'})):
        for r in ([b.rpc.Predict(q)], b.rpc.PredictStream(q)):
            message, content, thoughts, _, _ = joined(r)
            expect('an answer of thoughts', (message, content, bool(thoughts)), (b'', '', True))
    for q in (chat(Metadata={'enable_thinking': 'false'}), chat(Metadata={'enable_thinking': 'true', 'chat_template_kwargs': '{"enable_thinking": false}'})):
        _, content, thoughts, _, _ = joined(b.rpc.PredictStream(q))
        expect('an answer without thoughts', (bool(content), thoughts), (True, ''))


def texts(b):
    ids = list(b.rpc.TokenizeString(ask('the quick brown fox')).tokens)
    expect('Detokenize', b.rpc.Detokenize(pb.DetokenizeRequest(tokens=ids)).content, 'the quick brown fox')
    # One U+FFFD for each beginning of a character, as in the events of the library.
    expect('Detokenize parts of characters', b.rpc.Detokenize(pb.DetokenizeRequest(tokens=[4 + 0xe2, 4 + 0x82, 4 + 0xe2])).content, '\ufffd' * 2)
    for bad in ([-1], [1 << 30]): refused('Detokenize', lambda: b.rpc.Detokenize(pb.DetokenizeRequest(tokens=bad)), 'INVALID_ARGUMENT')
    r = b.rpc.GetMetrics(pb.MetricsRequest())
    if not (r.tokens_generated > 100 and r.prompt_tokens_processed > 10 and r.tokens_per_second > 0): fault(f'GetMetrics: {r}')


def vectors(b, folder, tiny):
    text = 'the quick brown fox'
    want = lambda model, *flags: [[float(x) for x in line.split()] for line in
                                  tool('embed', '-m', model, '-p', text, '--embd-output-format', 'raw', *flags).strip().split('\n')]
    for pooling, layout in (('mean', 1), ('none', 2)):
        expect('LoadModel', b.load(tiny, [f'pooling:{pooling}'], Embeddings=True).success, True)
        r, rows = b.rpc.Embedding(ask('', Embeddings=text)), want(tiny, '--pooling', pooling)
        expect(f'pooling {pooling}', (r.dim, r.tokens, r.layout), (64, len(rows), layout))
        close_to(f'pooling {pooling}', list(r.embeddings), [x for row in rows for x in row])
        ids = [2, *b.rpc.TokenizeString(ask(text)).tokens]
        expect('Embedding of ids', b.rpc.Embedding(ask('', EmbeddingTokens=ids)).embeddings == r.embeddings and r.prompt_tokens, len(ids))
    expect('Embedding of no text', b.rpc.Embedding(ask('')).prompt_tokens, 1)
    refused('Embedding of an id outside the vocabulary', lambda: b.rpc.Embedding(ask('', EmbeddingTokens=[1 << 30])), 'INVALID_ARGUMENT')
    refused('Rerank with a model without a classifier', lambda: b.rpc.Rerank(pb.RerankRequest(query='a', documents=['b'])), 'INVALID_ARGUMENT', 'classifier')
    rank, documents = os.path.join(folder, 'rank.gguf'), ['the lazy dog', 'fox', 'the quick brown fox', 'dog', 'over the'] * 8
    subprocess.run([TINY, rank, '512', 'bert', '0', 'F32', 'j=2 q=96 y=1'], check=True)
    expect('LoadModel of a reranker', b.load(rank, Reranking=True, ContextSize=512).success, True)
    r = b.rpc.Rerank(pb.RerankRequest(query='the fox', documents=documents, ModelIdentity='m'))
    scores = [d.relevance_score for d in r.results]
    expect('Rerank: order', (sorted(scores, reverse=True), sorted(d.index for d in r.results)), (scores, list(range(40))))
    if len(set(scores)) != 5 or any(d.text != documents[d.index] for d in r.results) or not r.usage.total_tokens: fault(f'Rerank: {r}')
    one = tool('embed', '-m', rank, '-p', 'the fox\t' + r.results[0].text, '--embd-output-format', 'raw')
    close_to('a score', scores[:1], [float(one.split()[0])])
    top = b.rpc.Rerank(pb.RerankRequest(query='the fox', documents=documents, top_n=3)).results
    expect('top_n', list(top), list(r.results[:3]))
    expect('no documents', len(b.rpc.Rerank(pb.RerankRequest(query='a')).results), 0)
    refused('a negative top_n', lambda: b.rpc.Rerank(pb.RerankRequest(query='a', documents=['b'], top_n=-1)), 'INVALID_ARGUMENT', 'top_n')


def images(b, folder):
    try: import gguf  # noqa: F401
    except ImportError: return print('  images: no gguf')
    sys.path.insert(0, HERE)
    import check_images
    text, mmproj = check_images.model(folder, 'gemma3')
    expect('LoadModel with a vision model', b.load(text, MMProj=mmproj, ContextSize=2048).success, True)
    expect('the marker', b.rpc.ModelMetadata(pb.ModelOptions()).media_marker, '<__media__>')
    data = [base64.b64encode(check_images.png(40, 30, s)).decode() for s in (1, 2)]
    probs = lambda r: [t['logprob'] for t in json.loads(r.logprobs)['content']]
    for what, q in (('prompt', lambda *i: ask('the ' + '<__media__>' * len(i) + ' fox', Images=i, Logprobs=1)),
                    ('chat', lambda *i: chat(Images=i, Logprobs=1)), ('grammar', lambda *i: chat(Images=i, Logprobs=1, Grammar='root ::= [a-z]+'))):
        a, c = b.rpc.Predict(q(data[0])), b.rpc.Predict(q(data[1]))
        if probs(a) == probs(c): fault(f'{what}: two images have the same answer')
        expect(f'{what}: an image as a data URL', probs(b.rpc.Predict(q('data:image/png;base64,' + data[0]))), probs(a))
        if b.rpc.Predict(q(*data)).prompt_tokens <= a.prompt_tokens: fault(f'{what}: two images')
        for bad in ('AAAA', '!', data[0][:80]): refused(f'{what}: a bad image', lambda: b.rpc.Predict(q(bad)), 'INVALID_ARGUMENT')
    refused('an image without a marker', lambda: b.rpc.Predict(ask('the', Images=data[:1])), 'INVALID_ARGUMENT', 'marker')


# ---------------------------------------------------------------------------------------------------- 3. many, and the end
def many(b, tiny):
    """32 streams at the same time give the answers of single calls."""
    expect('LoadModel', b.load(tiny, ['parallel:32', f'chat_template:{TEMPLATE}'], ContextSize=2048).success, True)
    words = ['the', 'quick', 'brown', 'fox', 'jumps', 'over', 'lazy', 'dog']
    calls = [(chat if i % 2 else ask)(' '.join(words[(i + k) % 8] for k in range(1 + i % 5)), Temperature=i % 3, Seed=i, Tokens=40, TopK=20) for i in range(32)]
    want, got = [joined([b.rpc.Predict(q)])[:2] for q in calls], [None] * 32

    def one(i): got[i] = joined(b.rpc.PredictStream(calls[i]))[:2]
    threads = [threading.Thread(target=one, args=(i,)) for i in range(32)]
    for t in threads: t.start()
    for t in threads: t.join()
    expect('32 streams', got, want)
    expect('idle after them', b.idle(), True)


def cancels(b):
    endless = dict(Tokens=0, IgnoreEOS=True, Temperature=1)
    for what, q in (('prompt', ask('the', **endless)), ('chat', chat(**endless))):
        streams = [b.rpc.PredictStream(q) for _ in range(8)]
        for s in streams: next(s)
        for s in streams: s.cancel()
        expect(f'{what}: idle after cancels', b.idle(), True)
        for name in ('Predict', 'PredictStream'):
            refused(f'{what}: {name} with a deadline', lambda: getattr(b.rpc, name)(q, timeout=0.05), 'DEADLINE_EXCEEDED')
        expect(f'{what}: idle after deadlines', b.idle(), True)
        f = b.rpc.Predict.future(q)
        time.sleep(0.02)
        f.cancel()
        expect(f'{what}: idle after a canceled Predict', b.idle(), True)


def freeing(b, tiny):
    s = b.rpc.PredictStream(ask('the', Tokens=100, IgnoreEOS=True))
    next(s)
    expect('Free during a stream', b.rpc.Free(pb.HealthMessage()).success, True)
    expect('tokens of that stream', joined(s)[4].tokens, 100)
    refused('Predict after Free', lambda: b.rpc.Predict(ask('the')), 'FAILED_PRECONDITION', 'model not loaded')
    expect('Free of nothing', b.rpc.Free(pb.HealthMessage()).success, True)
    expect('LoadModel after Free', b.load(tiny).success, True)
    s = b.rpc.PredictStream(ask('the', Tokens=0, IgnoreEOS=True))
    next(s)  # SIGTERM follows


def tokens(tiny):
    b = Backend(token='secret')
    every = [(n, lambda m, n=n, q=q: list(r) if hasattr(r := getattr(b.rpc, n)(q, metadata=m), '__next__') else r) for n, q in (
        ('Health', pb.HealthMessage()), ('Status', pb.HealthMessage()), ('Free', pb.HealthMessage()), ('LoadModel', pb.ModelOptions(ModelFile=tiny)),
        ('Predict', ask('the')), ('PredictStream', ask('the')), ('Embedding', ask('the')), ('TokenizeString', ask('the')),
        ('Detokenize', pb.DetokenizeRequest()), ('Rerank', pb.RerankRequest()), ('Score', pb.ScoreRequest()), ('GetMetrics', pb.MetricsRequest()),
        ('ModelMetadata', pb.ModelOptions()))]
    for name, call in every:
        for wrong in ((), (('authorization', 'Bearer secre'),), (('authorization', 'Bearer secrets'),), (('authorization', 'secret'),)):
            refused(f'{name} with {wrong}', lambda: call(wrong), 'UNAUTHENTICATED', 'LOCALAI_GRPC_AUTH_TOKEN')
    right = (('authorization', 'Bearer secret'),)
    expect('the token', b.rpc.Health(pb.HealthMessage(), metadata=right).message, b'OK')
    r = subprocess.run([BACKEND, '--addr', b.address], capture_output=True, text=True)
    expect('a port in use', (r.returncode, 'cannot listen' in r.stderr), (1, True))
    b.close()
    r = subprocess.run([BACKEND, '--addr', '0.0.0.0:0'], capture_output=True, text=True)
    expect('another host without a token', (r.returncode, 'LOCALAI_GRPC_AUTH_TOKEN' in r.stderr), (1, True))
    expect('a wrong argument', subprocess.run([BACKEND, '--port', '1'], capture_output=True).returncode, 2)


def orphans(folder):
    """The parent ends at once. The backend ends too, unless the variable forbids it."""
    pids = []
    for i, watch in enumerate(('true', 'false')):
        sock = f'unix:{folder}/orphan{i}'
        r = subprocess.run(['sh', '-c', f'"{BACKEND}" --addr {sock} >/dev/null 2>&1 & echo $!; sleep 1'], capture_output=True, text=True,
                           env={**os.environ, 'LOCALAI_BACKEND_PARENT_WATCH': watch})
        pids.append(int(r.stdout))

    def alive(pid):
        try:
            with open(f'/proc/{pid}/stat') as f: return f.read().rsplit(')', 1)[1].split()[0] != 'Z'
        except OSError: return False
    until = time.time() + 15
    while alive(pids[0]) and time.time() < until: time.sleep(0.1)
    expect('backends without their parent', [alive(p) for p in pids], [False, True])
    for p in pids:
        if alive(p): os.kill(p, signal.SIGTERM)


def packaged(folder, tiny):
    out = os.path.join(folder, 'package')
    subprocess.run(['bash', os.path.join(FOLDER, 'package.sh'), '--build', BUILD, out], check=True, stdout=subprocess.DEVNULL)
    names = set(os.listdir(os.path.join(out, 'lib')))
    for name in ('ld.so', 'libpagedinfer.so.0', 'libpagedinfer-openai.so.0', 'libc.so.6'):
        if name not in names: fault(f'package: no lib/{name}')
    b = Backend(command=(os.path.join(out, 'run.sh'),), LD_LIBRARY_PATH='')
    expect('LoadModel of the package', b.load(tiny).success, True)
    with open(f'/proc/{b.p.pid}/maps') as f: maps = set(re.findall(r' (/\S+)$', f.read(), re.M))
    outside = [m for m in maps if not m.startswith((out, '/dev/', '/sys/', '/memfd:')) and '.so' in m]
    expect('libraries outside the package', outside, [])
    b.close()
    try: import yaml
    except ImportError: return
    with open(os.path.join(FOLDER, 'gallery.yaml')) as f: entries = yaml.safe_load(f)
    named = {e['name'] for e in entries}
    for e in entries:
        for target in e.get('capabilities', {}).values():
            if target not in named: fault(f'gallery.yaml: {e["name"]} names {target}, which is no entry')
        if ('uri' in e) == ('capabilities' in e): fault(f'gallery.yaml: {e["name"]} needs either uri or capabilities')


def main():
    global grpc, pb, stub
    if not os.path.exists(BACKEND) or not os.path.exists(TINY): return print('no LocalAI backend in this build (gRPC), or no tool_tiny_model') or 77
    try: import grpc, grpc_tools  # noqa: F401
    except ImportError: return print('no grpcio or grpcio-tools: pip install grpcio grpcio-tools') or 77
    faulthandler.dump_traceback_later(600, exit=True)  # a call that never returns
    protocol('--write' in sys.argv, sys.argv[sys.argv.index('--record') + 1] if '--record' in sys.argv else '')
    with tempfile.TemporaryDirectory() as folder:
        pb, stub = client(folder)
        tiny = os.path.join(folder, 'tiny.gguf')
        subprocess.run([TINY, tiny, '2048'], check=True)
        watch = threading.Thread(target=orphans, args=(folder,), daemon=True)
        watch.start()
        b = Backend()
        start = time.time()
        for step, args in ((before, ()), (loading, (tiny,)), (prompts, (tiny,)), (logprobs, ()), (chats, ()), (texts, ()), (thinking, (tiny,)),
                           (vectors, (folder, tiny)), (images, (folder,)), (many, (tiny,)), (cancels, ()), (freeing, (tiny,))):
            step(b, *args)
            if os.environ.get('PAGEDINFER_TIMES'): print(f'  {step.__name__} {time.time() - start:.1f} s')
        b.close()
        for step, args in ((tokens, (tiny,)), (packaged, (folder, tiny)), (watch.join, ())):
            step(*args)
            if os.environ.get('PAGEDINFER_TIMES'): print(f'  {step.__name__} {time.time() - start:.1f} s')
    print('the LocalAI backend: ' + (f'{len(faults)} faults' if faults else 'every RPC, 32 streams, cancels, the token and the package work'))
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
