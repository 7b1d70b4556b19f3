#!/usr/bin/env python3
"""Checks images from file to answer: the library, the tool and every API of the server, with small random models.

    check_images.py [KIND...]   PAGEDINFER_BUILD: a build folder with tests/tool_tiny_model

The text models and vision parts are those of tool_tiny_model; their vocabularies get the tokens of images and a chat
template. Answers of random models have no meaning, but log-probabilities show if two prompts are equal. Needs gguf.
Exit 77: no tool_tiny_model, or no gguf."""
import base64, ctypes, http.server, json, os, re, signal, struct, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request, zlib

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(HERE, '../../build'))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
TINY = os.path.join(BUILD, 'tests', 'tool_tiny_model')
FILES = os.path.join(HERE, '../fuzz/corpus/image')
# text model, vision part, its sizes, begin, soft and end token, the template's text for an image
KINDS = {
    'gemma3': ('gemma3', 'vision-gemma3', None, '<start_of_image>', '<image_soft_token>', '<end_of_image>', '<start_of_image>'),
    'qwen35': ('qwen35', 'vision-qwen35', None, '<|vision_start|>', '<|image_pad|>', '<|vision_end|>',
               '<|vision_start|><|image_pad|><|vision_end|>'),
    'qwen3vl': ('qwen3vl', 'vision-qwen3vl', 'O=96', '<|vision_start|>', '<|image_pad|>', '<|vision_end|>',
                '<|vision_start|><|image_pad|><|vision_end|>'),
    'qwen25vl': ('qwen2vl', 'vision-qwen25vl', 'O=128', '<|vision_start|>', '<|image_pad|>', '<|vision_end|>',
                 '<|vision_start|><|image_pad|><|vision_end|>'),
    'pixtral': ('mistral3', 'vision-pixtral', 'O=96', None, '[IMG]', '[IMG_END]', '[IMG]'),
    'gemma4': ('gemma4-vision', 'vision-gemma4', None, '<|image>', '<|image|>', '<image|>', '<|image|>'),
}
TEMPLATE = ("{%% for m in messages %%}{{ m.role }}: {%% if m.content is string %%}{{ m.content }}{%% else %%}{%% for c in m.content %%}"
            "{%% if c.type == 'image' %%}%s{%% else %%}{{ c.text }}{%% endif %%}{%% endfor %%}{%% endif %%}\n{%% endfor %%}"
            "{%% if add_generation_prompt %%}assistant: {%% endif %%}")
faults = []


def fault(text):
    faults.append(text)
    if len(faults) < 30: print('  ' + text)


def expect(what, ok, more=''):
    if not ok: fault(f'{what}: {str(more)[:300]}' if more != '' else what)


# ------------------------------------------------------------------------------------------------------------- files
def png(w, h, seed):
    """A PNG with smooth colors that depend on the seed."""
    return png_of(w, h, bytes(v for y in range(h) for x in range(w)
                              for v in ((x * (3 + seed) + y) & 255, (y * (5 + seed)) & 255, (x * y + 90 * seed) & 255)))


def png_of(w, h, rgb):
    """A PNG with the pixels rgb."""
    row = lambda y: rgb[y * w * 3:(y + 1) * w * 3]
    chunk = lambda name, data: struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', w, h, 8, 2, 0, 0, 0)) +
            chunk(b'IDAT', zlib.compress(b''.join(b'\0' + row(y) for y in range(h)))) + chunk(b'IEND', b''))


def model(folder, kind, tower_sizes=None):
    """Writes the text model with tokens and template, and the vision part. Returns both paths. tower_sizes: sizes of the
    vision part instead of those of KINDS."""
    import gguf
    arch, vision, sizes, begin, soft, end, shown = KINDS[kind]
    sizes = tower_sizes or sizes
    raw, text, mmproj = (os.path.join(folder, f'{kind}{x}.gguf') for x in ('-raw', '', '-mmproj'))
    subprocess.run([TINY, raw, '2048', arch, *(['0', 'F16'] if kind == 'qwen35' else [])], check=True)
    subprocess.run([TINY, mmproj, '512', vision, *(['0', 'F32', sizes] if sizes else [])], check=True)
    r = gguf.GGUFReader(raw)
    field = lambda name: r.fields[name].contents()
    tokens, types = field('tokenizer.ggml.tokens'), field('tokenizer.ggml.token_type')
    free = [i for i, t in enumerate(types) if t == 1][-3:]
    for i, token in zip(free, (begin, soft, end)):
        if token: tokens[i], types[i] = token, 3
    w = gguf.GGUFWriter(text, field('general.architecture'))
    for name, f in r.fields.items():
        if name.startswith('GGUF.') or name == 'general.architecture': continue
        kinds = f.types
        if name == 'tokenizer.ggml.tokens': w.add_token_list(tokens)
        elif name == 'tokenizer.ggml.token_type': w.add_token_types(types)
        elif name == 'tokenizer.ggml.merges': w.add_token_merges([m for m in f.contents() if m.replace(' ', '') not in (begin, soft, end)])
        elif name != 'tokenizer.chat_template': w.add_key_value(name, f.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None)
    w.add_chat_template(TEMPLATE % shown)
    for t in r.tensors: w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    for step in (w.write_header_to_file, w.write_kv_data_to_file, w.write_tensors_to_file, w.close): step()
    return text, mmproj


# ------------------------------------------------------------------------------------------------------------ server
class Server:
    def __init__(self, *args, env=None):
        self.log = tempfile.NamedTemporaryFile('w+', suffix='.log')
        self.p = subprocess.Popen([BIN, 'serve', '--port', '0', '-c', '1024', '-lv', '3', *args], stdout=subprocess.DEVNULL,
                                  stderr=self.log, env={**os.environ, **(env or {})})
        for _ in range(2400):
            text = self.text()
            m = re.search(r'listening on http://127\.0\.0\.1:(\d+)', text)
            if m and 'is ready' in text: break
            if self.p.poll() is not None: sys.exit(f'no server: {text[-3000:]}')
            time.sleep(0.025)
        self.url = f'http://127.0.0.1:{m[1]}'

    def text(self):
        with open(self.log.name, errors='replace') as f: return f.read()

    def ask(self, path, body=None, key=None):
        data = None if body is None else json.dumps(body).encode()
        q = urllib.request.Request(self.url + path, data, {'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(q, timeout=120) as r: return r.status, json.load(r)
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read() or b'{}')

    def end(self):
        self.p.send_signal(signal.SIGTERM)
        code = self.p.wait(60)
        expect('exit of the server', code == 0, f'{code} {self.text()[-2000:]}')


def url_of(data, kind='png'): return f'data:image/{kind};base64,' + base64.b64encode(data).decode()
def image_url(data): return {'type': 'image_url', 'image_url': {'url': data if isinstance(data, str) else url_of(data)}}
def text(t): return {'type': 'text', 'text': t}


class Chat:
    """Answers of a server, by prompts of parts."""
    def __init__(self, server): self.s = server

    def __call__(self, *parts, want=200, **more):
        body = {'messages': more.pop('messages', [{'role': 'user', 'content': list(parts)}]), 'temperature': 0, 'max_tokens': 4,
                'logprobs': True, 'top_logprobs': 5, **more}
        status, r = self.s.ask('/v1/chat/completions', body)
        expect('status of a chat', status == want, f'{status} {json.dumps(r)[:300]}')
        self.usage = r.get('usage', {})
        self.cached = self.usage.get('prompt_tokens_details', {}).get('cached_tokens')
        if status != 200: return r.get('error', {}).get('message', '')
        return [(t['token'], round(t['logprob'], 4)) for c in r['choices'][0]['logprobs']['content'] for t in c['top_logprobs']]


def close(a, b): return len(a) == len(b) and all(x[0] == y[0] and abs(x[1] - y[1]) < 2e-4 for x, y in zip(a, b))


def prompts(s, kind, a, b):
    """Order, identity, cache and counts of prompts with images."""
    chat = Chat(s)
    begin, soft, end, shown = KINDS[kind][3:]
    after = text(' on' * 30) # an image whose tokens see each other is reused only as a whole: a full block must follow it
    one = chat(text('the '), image_url(a), after); n_one = chat.usage['prompt_tokens']
    expect(f'{kind}: cached tokens of a new image', not chat.cached, chat.cached)
    again = chat(text('the '), image_url(a), after)
    expect(f'{kind}: the same prompt', close(one, again), f'{one} {again}')
    expect(f'{kind}: cached tokens of the same prompt', chat.cached >= n_one - 17, f'{chat.cached} of {n_one}')
    other = chat(text('the '), image_url(b), after)
    expect(f'{kind}: another image has the same answer', not close(one, other))
    expect(f'{kind}: cached tokens of another image', chat.cached < 16 + 16, chat.cached)
    none = chat(text('the '), after); n_none = chat.usage['prompt_tokens']
    expect(f'{kind}: an image has no tokens', n_one > n_none + 4, f'{n_one} {n_none}')
    ab, ba = chat(image_url(a), image_url(b)), None
    n_two = chat.usage['prompt_tokens']
    ba = chat(image_url(b), image_url(a))
    expect(f'{kind}: the order of images does not matter', not close(ab, ba))
    expect(f'{kind}: tokens of two images', chat.usage['prompt_tokens'] == n_two)
    # a second question in the conversation computes only the new text
    first = [{'role': 'user', 'content': [image_url(a), text('the ' * 30)]}]
    chat(messages=first); n_first = chat.usage['prompt_tokens']
    chat(messages=first + [{'role': 'assistant', 'content': 'on'}, {'role': 'user', 'content': 'and ' * 4}])
    expect(f'{kind}: cached tokens of a second question', chat.cached >= n_first - 33, f'{chat.cached} of {n_first}')
    # text is never an image
    for word in filter(None, (begin, soft, end, shown, '<__media__>')):
        chat(text('the ' + word))
        expect(f'{kind}: text {word} became an image', chat.usage['prompt_tokens'] < n_none + 64, chat.usage)
        got = chat(text('the ' + word), image_url(a))
        expect(f'{kind}: text {word} next to an image', isinstance(got, list), got)
    # tokens of an image have no probability
    status, r = s.ask('/v1/chat/completions', {'messages': [{'role': 'user', 'content': [text('the '), image_url(a), after]}],
                                               'max_tokens': 1, 'temperature': 0, 'prompt_logprobs': 2})
    rows = [[t['logprob'] for t in row.values()] for row in r.get('prompt_logprobs', []) if row]
    soft_rows = [row for row in rows if row[0] in (None, -9999.0)]
    expect(f'{kind}: probabilities of the prompt', status == 200 and len(rows) == n_one - 1, f'{status} {len(rows)} {n_one}')
    expect(f'{kind}: probabilities of soft tokens', 0 < len(soft_rows) <= n_one - n_none and all(len(row) == 1 for row in soft_rows),
           f'{len(soft_rows)} of {n_one - n_none}')
    # tenants
    chat(image_url(a), text('you ' * 20), cache_salt='x')
    chat(image_url(a), text('you ' * 20), cache_salt='y')
    expect(f'{kind}: another tenant finds the prefix', not chat.cached, chat.cached)
    chat(image_url(a), text('you ' * 20), cache_salt='y')
    expect(f'{kind}: a tenant does not find its own prefix', chat.cached)


def same_everywhere(s, kind, a):
    """The APIs agree on tokens and answers."""
    url, b64 = url_of(a), base64.b64encode(a).decode()
    status, chat = s.ask('/v1/chat/completions', {'messages': [{'role': 'user', 'content': [text('the '), image_url(a)]}],
                                                   'temperature': 0, 'max_tokens': 6})
    expect(f'{kind}: chat', status == 200, chat)
    n, said = chat['usage']['prompt_tokens'], chat['choices'][0]['message']['content']
    status, r = s.ask('/v1/responses', {'input': [{'role': 'user', 'content': [{'type': 'input_text', 'text': 'the '},
                                                  {'type': 'input_image', 'image_url': url}]}], 'temperature': 0, 'max_output_tokens': 6})
    expect(f'{kind}: responses', status == 200 and r['usage']['input_tokens'] == n, r)
    parts = [p for o in r.get('output', []) for p in o.get('content') or []]
    expect(f'{kind}: the text of responses', ''.join(p.get('text', '') for p in parts) == said, f'{parts} {said}')
    content = [text('the '), {'type': 'image', 'source': {'type': 'base64', 'media_type': 'image/png', 'data': b64}}]
    message = {'messages': [{'role': 'user', 'content': content}], 'temperature': 0, 'max_tokens': 6}
    status, r = s.ask('/v1/messages', message)
    total = sum(r.get('usage', {}).get(k) or 0 for k in ('input_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens'))
    expect(f'{kind}: messages', status == 200 and total == n, r)
    status, r = s.ask('/v1/messages/count_tokens', message)
    expect(f'{kind}: count_tokens', status == 200 and r['input_tokens'] == n, f'{r} {n}')
    result = [{'role': 'user', 'content': 'the'}, {'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 't1', 'name': 'f', 'input': {}}]},
              {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 't1', 'content': [text('on'), content[1]]}]}]
    status, with_image = s.ask('/v1/messages/count_tokens', {'messages': result})
    expect(f'{kind}: an image in a result', status == 200 and with_image['input_tokens'] > 16, with_image)
    status, r = s.ask('/v1/messages', {'messages': result, 'max_tokens': 2})
    expect(f'{kind}: an answer to a result with an image', status == 200, r)
    ollama = {'model': 'm', 'stream': False, 'options': {'temperature': 0, 'num_predict': 6}}
    status, r = s.ask('/api/chat', {**ollama, 'messages': [{'role': 'user', 'content': 'the ', 'images': [b64]}]})
    expect(f'{kind}: Ollama chat', status == 200 and abs(r['prompt_eval_count'] - n) <= 1 and r['message']['content'], f'{r} {n}')
    status, r = s.ask('/api/chat', {**ollama, 'messages': [{'role': 'user', 'content': 'the ', 'images': [b64[:40]]}]})
    expect(f'{kind}: Ollama chat with a damaged image', status == 400 and 'damaged' in json.dumps(r), r)
    status, r = s.ask('/api/generate', {**ollama, 'prompt': 'the ', 'images': [b64]})
    expect(f'{kind}: Ollama generate', status == 200 and r['prompt_eval_count'] > 10, r)
    name = s.ask('/api/tags')[1]['models'][0]['name']
    status, r = s.ask('/api/show', {'model': name})
    expect(f'{kind}: Ollama capabilities', 'vision' in r.get('capabilities', []), r)
    status, props = s.ask('/props')
    marker = props['media_marker']
    expect(f'{kind}: modalities', props['modalities']['vision'] is True, props['modalities'])
    ask = lambda t, data: s.ask('/completion', {'prompt': {'prompt_string': t, 'multimodal_data': data}, 'temperature': 0, 'n_predict': 4})
    status, r = ask(f'user: the {marker}\nassistant: ', [b64])
    expect(f'{kind}: completion', status == 200 and abs(r['tokens_evaluated'] - n) <= 4, f"{r.get('tokens_evaluated')} {n} {r.get('error')}")
    for t, data in (('the', [b64]), (f'{marker} {marker}', [b64]), ('the <__media__>', [b64])):
        status, r = ask(t, data)
        expect(f'{kind}: completion with {t!r}', status == 400 and 'marker' in json.dumps(r), r)
    status, r = ask(f'the {marker}', [])
    expect(f'{kind}: a marker without images is text', status == 200, r)
    status, r = s.ask('/v1/models')
    expect(f'{kind}: capabilities', 'multimodal' in r['models'][0]['capabilities'], r)


def packages(s, a):
    """The packages of OpenAI, Anthropic, Ollama and LangChain, if they are installed."""
    try:
        import openai
        r = openai.OpenAI(base_url=s.url + '/v1', api_key='x').chat.completions.create(
            model='m', messages=[{'role': 'user', 'content': [text('the'), image_url(a)]}], max_tokens=2)
        expect('openai', r.usage.prompt_tokens > 10, r)
    except ImportError: print('  no package openai')
    try:
        import anthropic
        r = anthropic.Anthropic(base_url=s.url, api_key='x').messages.create(model='m', max_tokens=2, messages=[{'role': 'user', 'content': [
            {'type': 'image', 'source': {'type': 'base64', 'media_type': 'image/png', 'data': base64.b64encode(a).decode()}}, text('the')]}])
        expect('anthropic', r.usage.output_tokens >= 1, r)
    except ImportError: print('  no package anthropic')
    try:
        import ollama
        r = ollama.Client(host=s.url).chat('m', messages=[{'role': 'user', 'content': 'the', 'images': [a]}], options={'num_predict': 2})
        expect('ollama', r.prompt_eval_count > 10 and r.message.content, r)
    except ImportError: print('  no package ollama')
    try:
        import langchain_openai
        chat = langchain_openai.ChatOpenAI(base_url=s.url + '/v1', api_key='x', model='m', max_tokens=2)
        r = chat.invoke([('user', [text('the'), image_url(a)])])
        expect('langchain', r.usage_metadata['input_tokens'] > 10 and r.content, r)
        said = ''.join(part.content for part in chat.stream([('user', [text('the'), image_url(a)])]))
        expect('langchain, streamed', said != '')
    except ImportError: print('  no package langchain_openai')


def refused(s, a, folder):
    """Hostile and wrong input gives 400 with a reason, and the server lives on."""
    chat = Chat(s)
    bomb = b'\x89PNG\r\n\x1a\n' + struct.pack('>I', 13) + b'IHDR' + struct.pack('>IIBBBBB', 60000, 60000, 8, 2, 0, 0, 0) + bytes(4)
    wide = png(1000, 1, 1)
    cases = [
        (url_of(b'', 'png'), 'empty'), ('data:image/png;base64,@@@', 'base64'), ('data:image/png,abc', 'data URL'),
        (url_of(a[:len(a) // 2]), 'damaged'), (url_of(a[:20]), 'damaged header'), (url_of(bomb), '60000 x 60000'),
        (url_of(b'hello'), 'no known format'), (url_of(b'<svg xmlns="x"></svg>'), 'SVG'),
        (url_of(b'\0\0\0\x18ftypheic' + bytes(12)), 'HEIC'), ('https://example.org/a.png', 'not allowed'),
        ('http://127.0.0.1:9/a.png', 'not allowed'), ('file:///etc/passwd', 'below --media-path'), ('file://../x.png', 'below --media-path'),
        ('file://link.png', 'below --media-path'), ('ftp://x/y', 'base64'),
    ]
    for url, word in cases:
        got = chat(text('the'), image_url(url), want=400)
        expect(f'refusal of {url[:60]}', word in str(got), got)
    got = chat(*[image_url(a)] * 9, want=400)
    expect('too many images', '--max-images' in str(got), got)
    got = chat({'type': 'image'}, want=400)
    expect('an image without data', 'without data' in str(got), got)
    got = chat(*[image_url(png(600, 600, i)) for i in range(8)], want=400)
    expect('images that exceed the context', 'more than the context' in str(got), got)
    got = chat(image_url(png(1000, 1, 1)), want=400)
    expect('a long line of pixels', 'long side' in str(got), got)
    ok = chat(text('the'), image_url('file://inside.png'))
    expect('a file below --media-path', isinstance(ok, list), ok)
    for name in sorted(os.listdir(FILES)):
        with open(os.path.join(FILES, name), 'rb') as f: data = f.read()
        status, r = s.ask('/v1/chat/completions', {'messages': [{'role': 'user', 'content': [image_url(url_of(data, 'x'))]}], 'max_tokens': 1})
        named = status == 400 and 'lacks its library' in json.dumps(r)
        expect(f'the file {name}', status == 200 or named, r)
    expect('the server is well', s.ask('/health')[0] == 200)


class Host(http.server.BaseHTTPRequestHandler):
    data, seen = b'', []

    def do_GET(self):
        Host.seen.append(self.path)
        if self.path == '/far.png':
            self.send_response(302)
            self.send_header('Location', '/near.png')
            self.end_headers()
            return
        body = Host.data if self.path == '/near.png' else bytes(3 << 20)
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        try: self.wfile.write(body)
        except OSError: pass

    def log_message(self, *args): pass


def fetched(text_model, mmproj, a):
    """URLs of an allowed host."""
    Host.data = a
    host = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Host)
    threading.Thread(target=host.serve_forever, daemon=True).start()
    at = f'http://127.0.0.1:{host.server_port}'
    s = Server('-m', text_model, '--mmproj', mmproj, '--allowed-media-domains', 'images.example,127.0.0.1', '--max-image-bytes', '2000000')
    chat = Chat(s)
    got = chat(text('the'), image_url(at + '/near.png'))
    if 'this build fetches no URLs' not in str(got):
        expect('a URL of an allowed host', isinstance(got, list), got)
        local = chat(text('the'), image_url(a))
        expect('the fetched image is another one', got == local, f'{got} {local}')
        expect('a redirect', 'redirect' in str(chat(image_url(at + '/far.png'), want=400)))
        expect('a large file', 'too large' in str(chat(image_url(at + '/large.png'), want=400)))
        Host.seen.clear()
        for url in (at.replace('127.0.0.1', 'localhost') + '/near.png', at.replace('http://', 'http://127.0.0.1@') + '/x',
                    f'http://images.example.evil@127.0.0.1:{host.server_port}/x'):
            chat(image_url(url), want=400)
        expect('requests to hosts that are not allowed', not Host.seen, Host.seen)
    s.end()
    host.shutdown()


# ---------------------------------------------------------------------------------------------------------------- page
def page(text_model, mmproj, a, b, folder):
    """Attachments of the page at /: pasted, removed, sent, kept over an edit; hidden without a vision part."""
    import check_page
    if not check_page.CHROMIUM:
        print('  no Chromium: the page is not checked')
        return
    drop = """(() => { const d = new DataTransfer(), bytes = Uint8Array.from(atob('%s'), c => c.charCodeAt(0));
        d.items.add(new File([bytes], 'b.png', {type: 'image/png'}));
        $('%s').dispatchEvent(new %s('%s', {%s: d, bubbles: true, cancelable: true})); })()"""
    coded = lambda data: base64.b64encode(data).decode()
    s = Server('-m', text_model, '--mmproj', mmproj, '-n', '8', '--ignore-eos')
    w = check_page.Browser(os.path.join(folder, 'profile'))
    w.open(s.url + '/', 1280, 800)
    w.wait("$('state').textContent === 'Ready' && models.length && !$('attach').hidden")
    w.js(drop % (coded(a), 'text', 'ClipboardEvent', 'paste', 'clipboardData'))
    w.js(drop % (coded(b), 'chat', 'DragEvent', 'drop', 'dataTransfer'))
    w.wait("pics.length === 2 && [...document.querySelectorAll('#pics img')].every(i => i.naturalWidth)")
    w.js("document.querySelector('#pics button').click()")
    expect('page: an image is removed', w.js('pics.length') == 1)
    w.js("$('text').value = 'the'; $('form').requestSubmit()")
    w.wait("!jobs.size && branch(conv).length === 2")
    expect('page: the answer', w.js("branch(conv)[1].error?.title || ''") == '', w.js("JSON.stringify(branch(conv)[1].error || '')"))
    expect('page: the image is shown', w.js("document.querySelector('.user img').naturalWidth") > 20)
    expect('page: pending images are gone', w.js("pics.length + document.querySelectorAll('#pics img').length") == 0)
    said = w.js("JSON.stringify(messagesTo(conv, branch(conv)[0].id))")
    expect('page: the request has an image', '"image_url"' in said and 'data:image/png;base64,' in said, said[:200])
    w.js("edit(branch(conv)[0]); document.querySelector('.edit').value = 'and'; document.querySelector('.user .btn.main').click()")
    w.wait("!jobs.size && branch(conv).length === 2 && branch(conv)[0].content === 'and'")
    expect('page: an edited message keeps its image', w.js("branch(conv)[0].images.length") == 1)
    w.picture('images')
    plain = Server('-m', text_model)
    w.load(plain.url + '/')
    w.wait("$('state').textContent === 'Ready' && models.length")
    expect('page: attachments without a vision part', w.js("$('attach').hidden"))
    w.js(drop % (coded(a), 'text', 'ClipboardEvent', 'paste', 'clipboardData'))
    expect('page: a pasted image without a vision part', w.js('pics.length') == 0)
    expect('page: the console', not w.errors, w.errors)
    w.end()
    plain.end()
    s.end()


def without(text_model):
    """A server without a vision part."""
    s = Server('-m', text_model)
    chat = Chat(s)
    got = chat(text('the'), image_url(png(8, 8, 1)), want=400)
    expect('an image without a vision part', '--mmproj' in str(got), got)
    status, r = s.ask('/completion', {'prompt': {'prompt_string': 'a', 'multimodal_data': ['eA==']}})
    expect('multimodal_data without a vision part', status == 400 and '--mmproj' in json.dumps(r), r)
    expect('modalities without a vision part', s.ask('/props')[1]['modalities']['vision'] is False)
    s.end()


# -------------------------------------------------------------------------------------------------------------- tool
def run(*args, want=0, stdin=''):
    r = subprocess.run([BIN, *args], input=stdin, capture_output=True, text=True, timeout=300)
    expect(f'exit of {args[:2]}', r.returncode == want, f'{r.returncode} {r.stderr[-600:]}')
    return r.stdout, r.stderr


def tool(text_model, mmproj, folder):
    a, b = (os.path.join(folder, n) for n in ('inside.png', 'other.png'))
    more = ('-m', text_model, '--temp', '0', '-n', '8', '-c', '1024', '-t', '1')
    tokens = lambda *images: int(re.search(r'prompt (\d+) tokens', run('run', *more, '--perf', '--mmproj', mmproj, '--image',
                                                                         ','.join(images), '-p', 'the')[1])[1])
    none, one, two = tokens(), tokens(a), tokens(a, b)
    expect('run: tokens of images', none + 4 < one < two, f'{none} {one} {two}')
    err = subprocess.run([BIN, 'run', *more, '--image', a, '-p', 'the'], capture_output=True, text=True)
    expect('run: an image without a vision part', err.returncode and 'mmproj' in err.stderr, err.stderr)
    bad = subprocess.run([BIN, 'run', *more, '--mmproj', mmproj, '--image', text_model, '-p', 'the'], capture_output=True, text=True)
    expect('run: a file that is no image', bad.returncode and 'no known format' in bad.stderr, bad.stderr)
    bad = subprocess.run([BIN, 'run', *more, '--mmproj', text_model, '--image', a, '-p', 'the'], capture_output=True, text=True)
    expect('run: a text model as vision part', bad.returncode and 'mmproj' in bad.stderr, bad.stderr)
    saved = os.path.join(folder, 'saved.json')
    out, err = run('chat', *more, '--mmproj', mmproj, stdin=f'/image {a}\nthe\nand\n/save {saved}\n/exit\n')
    with open(saved) as f: messages = json.load(f)
    expect('chat: the saved image', messages[0]['content'][0] == {'type': 'image', 'path': os.path.realpath(a)}, messages)
    expect('chat: answers', len(messages) == 4, messages)
    out2, _ = run('chat', *more, '--mmproj', mmproj, '--image', a, '-p', 'the', '-st')
    expect('chat: --image and /image differ', messages[1]['content'] == out2.strip(), f'{messages[1]} {out2!r}')
    _, err = run('chat', *more, '--mmproj', mmproj, stdin=f'/load {saved}\nyou\n/image none.png\n/exit\n')
    expect('chat: a loaded conversation', 'none.png' in err and '4 messages' in err, err)


# --------------------------------------------------------------------------------------------------------------- C
class Error(ctypes.Structure): _fields_ = [('code', ctypes.c_int), ('msg', ctypes.c_char * 240)]


class Image(ctypes.Structure):
    _fields_ = [('size', ctypes.c_uint32), ('width', ctypes.c_uint32), ('height', ctypes.c_uint32), ('rgb', ctypes.c_char_p),
                ('source', ctypes.c_void_p), ('source_len', ctypes.c_size_t), ('min_tokens', ctypes.c_uint32), ('max_tokens', ctypes.c_uint32)]


lib, err = None, Error()
E = ctypes.byref(err)
LogitsFn = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_float), ctypes.c_size_t)


def said(): return err.msg.decode()


def open_library():
    global lib
    lib = ctypes.CDLL(os.path.join(BUILD, 'libpagedinfer.so'))
    for name in ('pi_options_new', 'pi_request_new'): getattr(lib, name).restype = ctypes.c_void_p
    lib.pi_request_tokens.restype = ctypes.c_size_t


def engine(**options):
    o, e = ctypes.c_void_p(lib.pi_options_new()), ctypes.c_void_p()
    for k, v in options.items(): expect('option', not lib.pi_options_set(o, k.replace('_', '-').encode(), v.encode(), E), said())
    rc = lib.pi_engine_open(ctypes.byref(e), o, E)
    lib.pi_options_free(o)
    expect('opening', not rc, said())
    return e


def image_of(w, h):
    """The image of gen_towers.py: a gradient plus noise."""
    out, s = bytearray(w * h * 3), w * 65536 + h
    for i in range(w * h * 3):
        s = (s * 1103515245 + 12345) & 0x7fffffff
        c, x, y = i % 3, i // 3 % w, i // 3 // w
        out[i] = (x * 255 // max(w - 1, 1) * (c + 1) // 3 + y * (3 - c) * 40 // h + (s >> 16) % 64) % 256
    return bytes(out)


def reference(kind, text_model, mmproj):
    """Logits after prompts with images equal those of transformers (gen_image_answers.py), whatever the steps are cut into."""
    with open(os.path.join(HERE, '../golden/image_answers.json')) as f: want = json.load(f).get(kind)
    if not want: return
    for ubatch, cache in (('512', 'f16'), ('64', 'f16'), ('512', 'f32')):
        e, got = engine(model=text_model, mmproj=mmproj, ctx_size='1024', threads='1', ubatch_size=ubatch, batch_size=ubatch,
                        parallel='1', cache_type_k=cache, cache_type_v=cache), []
        r = ctypes.c_void_p(lib.pi_request_new(e))
        for k, v in (('max-tokens', '1'), ('logits', 'last'), ('temp', '0')): lib.pi_request_set(r, k.encode(), v.encode(), E)
        for w, h in want['images']:
            image = Image(size=ctypes.sizeof(Image), width=w, height=h, rgb=image_of(w, h), min_tokens=want['budget'][0],
                          max_tokens=want['budget'][1])
            expect(f'{kind}: an image', not lib.pi_request_image(r, ctypes.byref(image), E), said())
        n = len(want['ids'])
        expect(f'{kind}: the prompt', not lib.pi_request_prompt_tokens(r, (ctypes.c_int32 * n)(*want['ids']), n, E), said())
        rows = LogitsFn(lambda ud, pos, logits, k: got.append((pos, logits[:k])))
        lib.pi_request_on_logits(r, rows, None)
        expect(f'{kind}: submit', not lib.pi_request_submit(r, E), said())
        lib.pi_request_wait(r, 60000)
        lib.pi_request_free(r)
        lib.pi_engine_close(e)
        expect(f'{kind}: the length of the prompt', got and got[0][0] == want['n_prompt'] - 1, f"{got and got[0][0]} {want['n_prompt']}")
        far = max((abs(a - b) for a, b in zip(got[0][1], want['logits'])), default=9) if got else 9
        print(f'  {kind}: steps of {ubatch} tokens, {cache} cache: logits differ by {far:.1e} from transformers')
        # the small Gemma 4 amplifies differences of an image's rows by 50; causal images would move its logits by 1.9
        limit = {'f16': 2e-3, 'f32': 5e-5}[cache] * (15 if kind == 'gemma4' else 1)
        expect(f'{kind}: logits', far < limit, far)


def library(text_model, mmproj):
    """The calls of pagedinfer.h, their order and their errors."""
    rgb = bytes((x * 7) & 255 for x in range(40 * 30 * 3))
    image = lambda **k: ctypes.byref(Image(size=ctypes.sizeof(Image), **{'width': 40, 'height': 30, 'rgb': rgb, **k}))
    plain = engine(model=text_model, ctx_size='512', threads='1')
    n, r = ctypes.c_uint32(), ctypes.c_void_p(lib.pi_request_new(plain))
    expect('an image without mmproj', lib.pi_request_image(r, image(), E) == -6 and 'mmproj' in said(), said())
    expect('tokens without mmproj', lib.pi_image_tokens(plain, 40, 30, 0, 0, ctypes.byref(n), E) == -6, said())
    lib.pi_request_free(r)
    lib.pi_engine_close(plain)
    e = engine(model=text_model, mmproj=mmproj, ctx_size='512', threads='1')
    expect('tokens', not lib.pi_image_tokens(e, 40, 30, 0, 0, ctypes.byref(n), E) and n.value > 2, said())

    def prompt(ids, images=1, **k):
        r = ctypes.c_void_p(lib.pi_request_new(e))
        for key, v in (('temp', '0'), ('max-tokens', '6'), ('seed', '1')): lib.pi_request_set(r, key.encode(), v.encode(), E)
        for _ in range(images): expect('an image', not lib.pi_request_image(r, image(**k), E), said())
        return r, lib.pi_request_prompt_tokens(r, (ctypes.c_int32 * len(ids))(*ids), len(ids), E)
    for ids, images, word in (([5, 6], 1, '0 of the request'), ([5, -1, -1], 1, 'twice'), ([5, -2], 1, 'image 1'), ([5, -1], 0, '')):
        r, rc = prompt(ids, images)
        expect(f'the ids {ids}', rc == -1 and word in said(), said())
        lib.pi_request_free(r)
    r, rc = prompt([5, -1, 6])
    expect('a prompt with an image', not rc, said())
    expect('an image after the prompt', lib.pi_request_image(r, image(), E) == -1 and 'before' in said(), said())
    expect('submit', not lib.pi_request_submit(r, E), said())
    expect('the end', not lib.pi_request_wait(r, 60000))
    out = (ctypes.c_int32 * 8)()
    got = lib.pi_request_tokens(r, out, 8)
    expect('tokens of the answer', 1 <= got <= 6, got)
    lib.pi_request_free(r)
    for k, word in (({'width': 0}, ''), ({'rgb': None}, 'NULL'), ({'size': 0}, '')):
        r = ctypes.c_void_p(lib.pi_request_new(e))
        bad = Image(size=ctypes.sizeof(Image), width=40, height=30, rgb=rgb)
        for key, v in k.items(): setattr(bad, key, v)
        expect(f'an image with {k}', lib.pi_request_image(r, ctypes.byref(bad), E) == -1 and word in said(), said())
        lib.pi_request_free(r)
    lib.pi_engine_close(e)


def main():
    if not os.path.exists(TINY): print('no tool_tiny_model: configure with -DPAGEDINFER_TESTS=ON'); sys.exit(77)
    try: import gguf # noqa: F401
    except ImportError: print('no Python package gguf'); sys.exit(77)
    a, b = png(40, 30, 1), png(33, 51, 2)
    with tempfile.TemporaryDirectory() as d:
        folder = os.path.join(d, 'media')
        os.mkdir(folder)
        for name, data in (('inside.png', a), ('other.png', b)):
            with open(os.path.join(folder, name), 'wb') as f: f.write(data)
        os.symlink('/etc/hostname', os.path.join(folder, 'link.png'))
        models = {kind: model(d, kind) for kind in sys.argv[1:] or KINDS}
        open_library()
        for kind, (text_model, mmproj) in models.items():
            reference(kind, text_model, mmproj)
            s = Server('-m', text_model, '--mmproj', mmproj, '--media-path', folder, '--max-images', '8', '--kv-cache-tokens', '8192')
            prompts(s, kind, a, b)
            same_everywhere(s, kind, a)
            if kind == 'gemma3': packages(s, a)
            if kind == 'qwen35': refused(s, a, folder)
            s.end()
        if sys.argv[1:]: models = {}
        if models: others(models, a, b, d, folder)
    print(f'{len(faults)} faults')
    sys.exit(bool(faults))


def others(models, a, b, d, folder):
    """Checks that one model is enough for."""
    page(*models['qwen35'], a, b, d)
    fetched(*models['gemma3'], a)
    without(models['gemma3'][0])
    tool(*models['gemma3'], folder)
    library(*models['gemma3'])


if __name__ == '__main__': main()
