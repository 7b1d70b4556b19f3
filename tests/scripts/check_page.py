#!/usr/bin/env python3
"""Opens the page at / in headless Chromium, at the width of a phone and of a desktop. Checks a conversation, markdown
as nodes (never as HTML), stop, regenerate and the drawing of the engine. Nothing may be wider than the window, and the
console must have no error.

A tiny random model answers, so its text is random; markdown is checked separately. Chromium is controlled over its
debugging pipe; standard library only. Exit 77: no Chromium (PAGEDINFER_CHROMIUM), or no server in this build."""
import json, os, shutil, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_server as base

CHROMIUM = os.environ.get('PAGEDINFER_CHROMIUM') or shutil.which('chromium') or shutil.which('google-chrome') or ''
MARKDOWN = '# H\n\na **b** `c` <img src=x onerror=alert(1)>\n\n- one\n- two\n\n```\nx < y\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> q\n'


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
            if m.get('method') == 'Runtime.exceptionThrown': self.errors.append(m['params']['exceptionDetails'].get('text', ''))
            if m.get('method') == 'Log.entryAdded' and m['params']['entry']['level'] == 'error':
                self.errors.append(m['params']['entry']['text'])
            if m.get('id') != self.n: continue
            if 'error' in m: sys.exit(f'{method}: {m["error"]}')
            return m['result']

    def js(self, code):
        r = self.call('Runtime.evaluate', expression=code, awaitPromise=True, returnByValue=True)
        if 'exceptionDetails' in r: sys.exit(f'{code[:200]}: {r["exceptionDetails"]}')
        return r['result'].get('value')

    def wait(self, code, seconds=120):
        end = time.time() + seconds
        while time.time() < end:
            if self.js(f'!!({code})'): return True
            time.sleep(0.1)
        base.fault(f'never: {code}')
        return False

    def open(self, url, width, height):
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for part in ('Page', 'Runtime', 'Log'): self.call(part + '.enable')
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=2, mobile=width < 600)
        self.call('Page.navigate', url=url)

    def end(self):
        self.session = None
        os.write(self.out, json.dumps({'id': 0, 'method': 'Browser.close'}).encode() + b'\0')
        try: self.p.wait(20)
        except subprocess.TimeoutExpired: self.p.kill()


def page(b, url, width, height):
    b.errors = []
    b.open(url, width, height)
    b.wait("document.getElementById('model')?.textContent.endsWith('.gguf')")
    # A phone widens its window to content that does not fit. So the checks compare with the emulated width, not the
    # window's.
    fits = f"""document.documentElement.scrollWidth <= {width} && innerWidth === {width} &&
               ['model', 'clear', 'more', 'send'].every(id => document.getElementById(id).getBoundingClientRect().right <= {width})"""
    base.expect(f'{width}: width with a long name', b.js(fits), True)
    b.js("text.value = 'Hello'; send.click()")
    b.wait("document.querySelectorAll('.turn').length === 2 && document.querySelector('.note')")
    b.wait("send.textContent === 'Send' && !again.disabled")
    base.expect(f'{width}: error shown', b.js("document.querySelectorAll('.error').length"), 0)
    base.expect(f'{width}: messages', b.js('messages.map(m => m.role).join()'), 'user,assistant')
    b.js('again.click()')
    b.wait("send.textContent === 'Stop'")
    b.js('send.click()')
    b.wait("send.textContent === 'Send'")
    base.expect(f'{width}: turns after regenerate', b.js("document.querySelectorAll('.turn').length"), 2)
    if width < 600: b.js('more.click()')
    b.wait("document.querySelector('#groups canvas')")
    b.wait("document.getElementById('requests').textContent.includes('running')")
    drawn = "[...document.querySelectorAll('#groups canvas')].every(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(x => x))"
    base.expect(f'{width}: blocks are drawn', b.js(drawn), True)
    base.expect(f'{width}: width of the page', b.js(fits), True)
    b.js(f'box = add(el("div", undefined, "turn")); show(box, {{content: {json.dumps(MARKDOWN)}, reasoning: "t"}})')
    tags = "['h3', 'strong', 'code', 'li', 'pre', 'td', 'blockquote', 'details', 'img', 'script'].map(t => box.querySelectorAll(t).length).join()"
    base.expect(f'{width}: markdown', b.js(tags), '1,1,2,2,1,2,1,1,0,0')
    base.expect(f'{width}: width with it', b.js(fits), True)
    base.expect(f'{width}: errors in the console', b.errors, [])


def main():
    maker = os.path.join(base.BUILD, 'tests', 'tool_tiny_model')
    if not CHROMIUM or not os.path.exists(maker) or subprocess.run([base.BIN, 'serve', '-m', '/none'], capture_output=True).returncode == 69:
        print('no Chromium, or no server')
        return 77
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'tiny.gguf')
        subprocess.run([maker, model, '32768'], check=True)
        name = 'a-model-with-' + 'a-long-' * 12 + 'name.gguf'
        s = base.Server(model, '-c', '4096', '--alias', name, '--chat-template', 'chatml', '-n', '1500', '--ignore-eos')
        b = Browser(os.path.join(d, 'profile'))
        for width, height in ((390, 844), (1280, 800)): page(b, s.url + '/', width, height)
        b.end()
        s.end()
    print(f'page: two widths, {len(base.faults)} faults')
    return 1 if base.faults else 0


sys.exit(main())
