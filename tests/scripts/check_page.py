#!/usr/bin/env python3
"""Opens the page at / in headless Chromium, at the widths of a phone, a tablet and a desktop, with keyboard and script.

1. A conversation: send, stats, stop, regenerate, edit, branches, storage over a reload, list, search, export and import.
2. Markdown, thoughts, calls and links become nodes, never HTML. Nothing may be wider than the window.
3. The engine view draws blocks, requests and charts, and reads nothing while it is hidden.
4. Every control has a name, text has a contrast of 4.5 in both colour schemes, the first Tab reaches the skip link.
5. A server with a key: a wrong key, then the right one. A server that has ended: an error that says what to do.
6. With PAGEDINFER_CHAT_MODEL: a conversation with SmolLM2; its screenshot page-real.png is the one in docs/images.
7. A server of several models: their states in the list, and the choice of one.

The console must have no error. A tiny random model answers, so its text is random. Screenshots go to build/test/log.
Chromium is controlled over its debugging pipe; standard library only. Exit 77: no Chromium (PAGEDINFER_CHROMIUM), or no
server in this build."""
import base64, json, os, shutil, subprocess, sys, tempfile, time, urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_router, check_server as base

CHROMIUM = os.environ.get('PAGEDINFER_CHROMIUM') or shutil.which('chromium') or shutil.which('google-chrome') or ''
LOG = os.path.join(base.BUILD, '..', 'log')    # of tests/run.sh; screenshots go there
SIZES = ((390, 844), (820, 1180), (1440, 900)) # phone, tablet, desktop
MARKDOWN = """# H

a **b** `c` [l](https://e.org/a_b) [no](javascript:alert(1)) <img src=x onerror=alert(1)> https://e.org/x_y_z

- one
  - nested
- two

```c
int x = 1; /* < */
```

| a | b |
|---|---|
| 1 | 2 |

> q
"""
TAGS = {'h3': 1, 'strong': 1, 'code': 2, 'li': 3, 'li li': 1, 'pre': 2, 'td': 2, 'blockquote': 1, 'a[rel~=noopener]': 2, 'a': 2, 'img': 0,
        'script': 0, 'pre .k': 1, 'pre .c': 1, 'pre .n': 1}
# Text colours and their grounds.
PAIRS = (('ink', 'bg'), ('ink', 'panel'), ('ink', 'soft'), ('ink', 'tint'), ('dim', 'bg'), ('dim', 'panel'), ('dim', 'soft'), ('accent', 'bg'),
         ('accent', 'panel'), ('on-accent', 'accent'), ('bad', 'bad-tint'), ('dim', 'bad-tint'))


class Browser:
    def __init__(self, folder):
        to, self.out = os.pipe()
        self.back, back = os.pipe()
        def pipes():
            os.dup2(to, 13), os.dup2(back, 14)
            os.dup2(13, 3, inheritable=True), os.dup2(14, 4, inheritable=True)
        self.p = subprocess.Popen([CHROMIUM, '--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe', '--no-first-run',
                                   '--user-data-dir=' + folder, 'about:blank'], preexec_fn=pipes, close_fds=False,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to), os.close(back)
        self.n, self.rest, self.session, self.errors = 0, b'', None, []

    def message(self):
        while b'\0' not in self.rest:
            data = os.read(self.back, 65536)
            if not data: sys.exit('Chromium ended')
            self.rest += data
        one, self.rest = self.rest.split(b'\0', 1)
        return json.loads(one)

    def call(self, method, **params):
        self.n += 1
        m = {'id': self.n, 'method': method, 'params': params, **({'sessionId': self.session} if self.session else {})}
        os.write(self.out, json.dumps(m).encode() + b'\0')
        while True:
            m = self.message()
            if m.get('method') == 'Runtime.exceptionThrown':
                d = m['params']['exceptionDetails']
                self.errors.append(d.get('exception', {}).get('description') or d.get('text', ''))
            if m.get('method') == 'Log.entryAdded' and m['params']['entry']['level'] == 'error':
                self.errors.append(m['params']['entry']['text'])
            if m.get('id') != self.n: continue
            if 'error' in m: sys.exit(f'{method}: {m["error"]}')
            return m['result']

    def js(self, code):
        r = self.call('Runtime.evaluate', expression=code, awaitPromise=True, returnByValue=True)
        if 'exceptionDetails' in r: sys.exit(f'{code[:200]}: {r["exceptionDetails"]}')
        return r['result'].get('value')

    def wait(self, code, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            if self.js(f'!!({code})'): return True
            time.sleep(0.1)
        base.fault(f'never: {code}')
        return False

    def key(self, name, code=0, text='', modifiers=0):
        """Presses a key as a keyboard does."""
        one = {'key': name, 'windowsVirtualKeyCode': code, 'modifiers': modifiers}
        self.call('Input.dispatchKeyEvent', type='keyDown', **one, **({'text': text} if text else {}))
        self.call('Input.dispatchKeyEvent', type='keyUp', **one)

    def type(self, text): self.call('Input.insertText', text=text)

    def picture(self, name):
        """Writes a screenshot to the log folder, if it exists."""
        if not os.path.isdir(LOG): return
        with open(os.path.join(LOG, f'page-{name}.png'), 'wb') as f:
            f.write(base64.b64decode(self.call('Page.captureScreenshot', format='png')['data']))

    def colours(self, name):
        self.call('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': name}])

    def load(self, url):
        self.call('Page.navigate', url=url)
        time.sleep(0.2)   # until the old page has gone
        self.wait("typeof jobs === 'object' && document.readyState === 'complete'")

    def open(self, url, width, height, scale=2):
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for part in ('Page', 'Runtime', 'Log'): self.call(part + '.enable')
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        self.load(url)

    def end(self):
        self.session = None
        os.write(self.out, json.dumps({'id': 0, 'method': 'Browser.close'}).encode() + b'\0')
        try: self.p.wait(20)
        except subprocess.TimeoutExpired: self.p.kill()

ENTER, ESCAPE, TAB, UP, DOWN, F2, DELETE = (('Enter', 13, '\r'), ('Escape', 27), ('Tab', 9), ('ArrowUp', 38), ('ArrowDown', 40), ('F2', 113),
                                            ('Delete', 46))
IDLE = '!jobs.size'
TEXTS = "branch(conv).map(n => n.role + ':' + n.content).join('|')"


def fits(b, what, width):
    """A phone widens its window to content that does not fit, so the emulated width counts."""
    wide = b.js(f"""[...document.querySelectorAll('#app *, dialog[open] *')].filter(e => e.checkVisibility() && !e.closest('pre, .grid, #side') &&
        e.getBoundingClientRect().right > {width} + 0.5).map(e => e.tagName + '#' + e.id + '.' + e.className).slice(0, 3).join()""")
    base.expect(f'{what}: too wide', (wide, b.js('document.documentElement.scrollWidth'), b.js('innerWidth')), ('', width, width))


def send(b, text):
    b.js('$("text").focus()')
    b.type(text)
    b.key(*ENTER)
    b.wait(f'{IDLE} && branch(conv).length % 2 === 0 && branch(conv).length')


def conversation(b, what):
    send(b, 'Hello')
    base.expect(f'{what}: messages', b.js("[...document.querySelectorAll('.msg')].map(m => m.className).join()"), 'msg user,msg assistant')
    base.expect(f'{what}: error shown', b.js("document.querySelector('#talk .fault')?.textContent"), None)
    stats = b.js("document.querySelector('.assistant .stats').textContent")
    for part in ('tokens/s', 'to first token', 'cached'):
        if part not in stats: base.fault(f'{what}: no {part!r} in {stats!r}')
    first = b.js(TEXTS)
    b.js("settings.max_tokens = 6000; document.querySelector('.assistant [title^=Regenerate]').click()")
    b.wait("jobs.size && branch(conv)[1].content")
    b.key(*ESCAPE)
    b.wait(IDLE)
    b.js('delete settings.max_tokens')
    base.expect(f'{what}: stopped', b.js("branch(conv)[1].end"), 'stopped')
    base.expect(f'{what}: branches', b.js("document.querySelector('.assistant .at').textContent"), '2/2')
    b.js("document.querySelector('.assistant [title^=Previous]').click()")
    base.expect(f'{what}: the old branch', b.js(TEXTS), first)
    base.expect(f'{what}: it is shown', b.js("document.querySelector('.assistant .at').textContent"), '1/2')
    b.js('$("text").focus()')
    b.key(*UP)
    b.wait("document.activeElement.className === 'edit'")
    b.type(' again')
    b.key(*ENTER)
    b.wait(f"{IDLE} && branch(conv).length === 2")
    base.expect(f'{what}: edited', b.js("branch(conv)[0].content + document.querySelector('.user .at').textContent"), 'Hello again2/2')
    base.expect(f'{what}: all branches are kept', b.js("conv.nodes.map(n => n.role[0]).join('')"), 'uaaua')
    send(b, 'And more')
    base.expect(f'{what}: a second turn', b.js("branch(conv).length"), 4)


def storage(b, what, url, narrow):
    """The conversation survives a reload; the list works by keyboard."""
    text = b.js(TEXTS)
    b.wait('!dirty.size')
    b.load(url)
    b.wait("models.length && document.querySelector('[data-conv]')")
    if narrow: b.js('$("menu").click()')
    b.js('$("find").focus()')
    b.type('hello again')
    b.wait("document.querySelectorAll('[data-conv]').length === 1")
    b.key(*DOWN)
    b.key(*ENTER)
    b.wait('branch(conv).length')
    base.expect(f'{what}: reloaded', b.js(TEXTS), text)
    if narrow: base.expect(f'{what}: the drawer is closed', b.js("$('app').className"), '')
    if narrow: b.js('$("menu").click()')
    b.js("document.querySelector('[data-conv]').focus()")
    b.key(*F2)
    b.wait("document.activeElement.value === 'Hello'")
    time.sleep(0.1) # the page selects the old name
    b.type('Renamed')
    b.key(*ENTER)
    b.wait("document.querySelector('[data-conv]').textContent === 'Renamed'")
    b.js("$('find').value = ''; $('find').dispatchEvent(new Event('input'))")
    n = b.js("document.querySelectorAll('[data-conv]').length")
    b.js("document.querySelector('[data-conv]').focus()")
    b.key(*DELETE)
    base.expect(f'{what}: deleted', b.js("document.querySelectorAll('[data-conv]').length"), n - 1)
    b.js("document.querySelector('#toast button').click()")
    base.expect(f'{what}: undone', (b.js("document.querySelectorAll('[data-conv]').length"), b.js(TEXTS)), (n, text))
    b.js("""file = JSON.stringify({conversations: [...all.values()].map(c => ({...c, updated: c.updated + 1})).concat({id: 'x', nodes: 3})});
            all.clear(); importAll(file)""")
    base.expect(f'{what}: imported', b.js("document.querySelectorAll('[data-conv]').length"), n)
    b.js("openConversation([...all.values()].find(c => c.title === 'Renamed'))")
    base.expect(f'{what}: imported text', b.js(TEXTS), text)
    b.js('drawer(false)')


def drawing(b, what, width):
    """The engine view with running requests."""
    b.js('setView("engine"); demo(1500)')
    b.wait("document.querySelectorAll('#running canvas').length > 3 && document.querySelector('#pools canvas')")
    b.wait("last.steps.length && stepMean() !== null && rates(m => m.generation_tokens_total).length > 1")
    drawn = """[...document.querySelectorAll('#engine canvas')].filter(c => !c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(x => x))
               .map(c => c.id).join()"""
    base.expect(f'{what}: empty drawings', b.js(drawn), '')
    base.expect(f'{what}: step target', b.js("$('t-step-more').textContent"), 'target 200 ms')
    for name in ('light', 'dark'):
        b.colours(name)
        time.sleep(0.7)
        b.picture(f'{width}-{name}-engine')
    fits(b, f'{what}: engine', width)
    b.wait("last.num_requests_running === 0 && Object.keys(last.reasons).length")
    base.expect(f'{what}: misses are listed', b.js("document.querySelectorAll('#misses tr').length > 1"), True)
    b.js('setView("chat")')
    time.sleep(0.6)
    reads = "performance.getEntriesByType('resource').filter(e => /metrics|slots/.test(e.name)).length"
    n = b.js(reads)
    time.sleep(2)
    base.expect(f'{what}: reads while hidden', b.js(reads) - n, 0)


def rendering(b, what, width):
    b.js(f"""openConversation(newConversation()); conv.title = 'Rendering';
        addNode(conv, '', {{role: 'user', content: '{'x' * 300}'}});
        addNode(conv, '1', {{role: 'assistant', content: {json.dumps(MARKDOWN)}, reasoning: 'thought', end: 'stop',
            calls: [{{id: 'c', name: 'weather', args: '{{"city":"Rome"}}'}}], probs: [['a', -0.1, [['a', -0.1], ['b', -3]]]]}});
        show(); box = document.querySelector('.assistant .body')""")
    got = json.loads(b.js(f'JSON.stringify(Object.fromEntries({json.dumps(list(TAGS))}.map(t => [t, box.querySelectorAll(t).length])))'))
    base.expect(f'{what}: markdown', got, TAGS)
    base.expect(f'{what}: thoughts are folded', b.js("box.querySelector('details').open"), False)
    base.expect(f'{what}: the call', b.js("box.querySelectorAll('details')[1].querySelector('pre').textContent"), '{\n  "city": "Rome"\n}')
    base.expect(f'{what}: field for the result', b.js("box.querySelectorAll('textarea').length"), 1)
    b.js("document.querySelector('[title=\"Token probabilities\"]').click(); document.querySelector('.probs button').focus()")
    base.expect(f'{what}: alternatives', b.js("document.querySelectorAll('.probs tr').length"), 2)
    fits(b, f'{what}: messages', width)
    b.js("""job = {conv, nodes: [{content: '', reasoning: '', calls: [], probs: []}], began: 0};
        for (const d of [{reasoning_content: 'a'}, {reasoning_content: 'b'}, {content: 'c'}, {tool_calls: [{index: 0, id: 'i', function: {name: 'f'}}]},
                         {tool_calls: [{index: 0, function: {arguments: '{"a":'}}]}, {tool_calls: [{index: 0, function: {arguments: '1}'}}]}])
            take(job, {choices: [{index: 0, delta: d}]})""")
    base.expect(f'{what}: a streamed call', json.loads(b.js('JSON.stringify(job.nodes[0])')),
                {'content': 'c', 'reasoning': 'ab', 'calls': [{'id': 'i', 'name': 'f', 'args': '{"a":1}'}], 'probs': []})
    themes = [b.js("$('theme').click(); document.documentElement.dataset.theme + getComputedStyle(document.documentElement).colorScheme") for _ in range(3)]
    base.expect(f'{what}: colour switch', themes, ['lightlight', 'darkdark', 'undefinedlight dark'])
    b.js('openSettings()')
    fits(b, f'{what}: settings', width)
    names = """[...document.querySelectorAll('button, input:not([hidden]), select, textarea, canvas')].filter(e => e.isConnected &&
        !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map(e => e.outerHTML.slice(0, 80)).join()"""
    base.expect(f'{what}: controls without a name', b.js(names), '')
    b.key(*ESCAPE)
    base.expect(f'{what}: Escape closes settings', b.js("$('settings').open"), False)


def contrasts(b, scheme):
    b.colours(scheme)
    b.js('paints.clear()')
    def light(name):
        rgb = [int(float(x)) / 255 for x in b.js(f"paint('{name}').match(/[\\d.]+/g).slice(0, 3).join()").split(',')]
        return sum(k * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for k, c in zip((0.2126, 0.7152, 0.0722), rgb))
    for text, ground in PAIRS:
        hi, lo = sorted((light(text), light(ground)), reverse=True)
        ratio = (hi + 0.05) / (lo + 0.05)
        if ratio < 4.5: base.fault(f'{scheme}: {text} on {ground}: contrast {ratio:.2f}')


def page(b, url, width, height):
    what, narrow = str(width), width < 992
    b.errors = []
    b.open(url, width, height)
    b.colours('light')
    b.wait("$('model').value.endsWith('.gguf') && $('state').textContent === 'Ready' && document.querySelector('.hello')")
    b.js('start = el("a"); start.tabIndex = 0; document.body.prepend(start); start.focus()')
    b.key(*TAB)
    base.expect(f'{what}: the first Tab', b.js("document.activeElement.className + getComputedStyle(document.activeElement).outlineStyle"), 'skipsolid')
    b.key('/', 191, '/')
    base.expect(f'{what}: / focuses', b.js('document.activeElement.id + $("text").value'), 'text')
    fits(b, f'{what}: empty', width)
    b.picture(f'{width}-light-empty')
    conversation(b, what)
    fits(b, f'{what}: conversation', width)
    storage(b, what, url, narrow)
    rendering(b, what, width)
    b.js('$("talk").scrollTop = 0')
    for name in ('light', 'dark'):
        b.colours(name)
        time.sleep(0.2)
        b.picture(f'{width}-{name}-chat')
    drawing(b, what, width)
    base.expect(f'{what}: foreign requests', b.js(
        "performance.getEntriesByType('resource').filter(e => !e.name.startsWith(location.origin)).length"), 0)
    base.expect(f'{what}: errors in the console', b.errors, [])
    b.js('for (const id of all.keys()) dirty.add(id); all.clear(); flush()')


def keys(b, model):
    """A wrong key, then the right one; afterwards the server ends."""
    s = base.Server(model, '-c', '2048', '--api-key', 'right', '--chat-template', 'chatml', '-n', '8')
    b.open(s.url + '/', 1440, 900)
    b.wait("$('keybox').open")
    b.key(*ESCAPE)
    b.wait("/API key/.test($('state').textContent)")
    time.sleep(1.5)
    base.expect('a closed key dialog', b.js("$('keybox').open"), False)
    b.js('$("text").focus()')
    b.type('Hi')
    b.key(*ENTER)
    for key in ('wrong', 'right'):
        b.wait("$('keybox').open")
        b.js('$("key").focus()')
        b.type(key)
        b.key(*ENTER)
        b.wait("!$('keybox').open" if key == 'right' else "/refused/.test($('key-why').textContent)")
    b.wait("$('state').textContent === 'Ready'")
    send(b, 'Hi')
    base.expect('with a key', b.js("!branch(conv)[1].error && branch(conv)[1].content.length > 0"), True)
    s.end()
    send(b, 'Still here?')
    base.expect('an ended server', b.js("document.querySelector('#talk .fault b').textContent + document.querySelector('#talk .fault .btn').textContent"),
                'No connection to the serverTry again')


def real(b):
    """A picture of real use: two turns of a conversation while other requests share a prefix."""
    s = base.Server(base.CHAT, '-c', '4096', '--parallel', '16')
    b.open(s.url + '/', 1280, 880, 1)
    b.colours('light')
    b.wait("$('state').textContent === 'Ready' && models.length")
    b.js("setView('split'); settings.temperature = 0; showTuned(); demo()")
    b.wait("tracks.size === 8 && [...tracks.values()].every(k => k.end)")
    for text in ('Write a haiku about the sea.', 'Write a Python function that checks if a number is prime.'): send(b, text)
    base.expect('a real answer has code', b.js("document.querySelectorAll('.code').length > 0"), True)
    base.expect('the second turn reuses the first', b.js('branch(conv)[3].stats.cached > 16'), True)
    b.js('demo()')
    b.wait("[...tracks.values()].filter(k => !k.end && k.cached && k.tokens > 40).length > 5")
    b.js("document.querySelectorAll('.msg')[2].scrollIntoView()")
    time.sleep(0.3)
    base.expect('the window does not scroll', b.js('document.scrollingElement.scrollTop'), 0)
    b.picture('real')
    s.end()


def several(b, model, folder):
    """A server of several models: the list shows their states, and a message loads the chosen one."""
    os.mkdir(folder)
    for name in 'ab': os.symlink(model, f'{folder}/{name}.gguf')
    s = check_router.Front('--models-dir', folder, '-c', '2048', '--kv-cache-tokens', '8192', '--parallel', '2', '--chat-template', 'chatml',
                           '-n', '20', '--no-models-cache')
    b.open(s.url + '/', 1280, 880, 1)
    b.wait("$('model').options.length === 2 && $('state').textContent === 'Model unloaded'")
    b.js("$('model').value = 'b'; $('model').dispatchEvent(new Event('change')); setView('split')")
    b.wait("/not loaded/.test($('trouble').textContent)")
    send(b, 'Hi')
    b.wait("$('state').textContent === 'Ready' && !$('trouble').textContent && last?.num_requests_running === 0")
    base.expect('states of models', b.js("[...$('model').options].map(o => o.text).join()"), 'a (unloaded),b (loaded)')
    base.expect('the model of the answer', (b.js('branch(conv)[1].model'), s.state('a'), s.state('b')), ('b', 'unloaded', 'loaded'))
    s.end()


def main():
    maker = os.path.join(base.BUILD, 'tests', 'tool_tiny_model')
    if not CHROMIUM or not os.path.exists(maker) or subprocess.run([base.BIN, 'serve', '-m', '/none'], capture_output=True).returncode == 69:
        print('no Chromium, or no server')
        return 77
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as d:
        model = os.path.join(d, 'tiny.gguf')
        subprocess.run([maker, model, '32768'], check=True)
        name = 'a-model-with-' + 'a_long_' * 26 + 'name.gguf'
        s = base.Server(model, '-c', '8192', '--alias', name, '--chat-template', 'chatml', '-n', '600', '--ignore-eos')
        with urllib.request.urlopen(s.url + '/') as r:
            size, policy = len(r.read()), r.headers['Content-Security-Policy']
        if size >= 100000: base.fault(f'the page has {size} bytes')
        if "default-src 'none'" not in policy or 'unsafe-eval' in policy: base.fault(policy)
        b = Browser(os.path.join(d, 'profile'))
        for width, height in SIZES: page(b, s.url + '/', width, height)
        for scheme in ('light', 'dark'): contrasts(b, scheme)
        if base.CHAT: real(b)
        keys(b, model)
        several(b, model, os.path.join(d, 'models'))
        b.end()
        s.end()
    print(f'page: {len(SIZES)} widths, {size} bytes, {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
