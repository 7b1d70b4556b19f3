"""Writes results of external suites to docs/SUITES.md; imported by the suites' scripts."""
import json, os, re, signal, subprocess, tempfile, time, urllib.error, urllib.request

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../docs/SUITES.md')


def publish(name, markdown):
    """Replaces the section of suite `name` in docs/SUITES.md with the given Markdown."""
    with open(PAGE) as f: page = f.read()
    section = re.compile(rf'(<!-- suite: {re.escape(name)} -->\n).*?(<!-- end -->)', re.S)
    page, n = section.subn(lambda m: m[1] + markdown.rstrip('\n') + '\n' + m[2], page)
    if n != 1: raise SystemExit(f'{PAGE}: {n} sections are named {name}; there must be one')
    with open(PAGE, 'w') as f: f.write(page)


def table(head, rows):
    """Returns a Markdown table."""
    line = lambda cells: '| ' + ' | '.join(str(c) for c in cells) + ' |'
    return '\n'.join([line(head), line(['---'] * len(head)), *map(line, rows)])


class Server:
    """Runs pagedinfer serve with a model on a free port; used in a `with` statement."""
    def __init__(self, model, *flags, program=None):
        build = os.environ.get('PAGEDINFER_BUILD', os.path.join(os.path.dirname(PAGE), '../build'))
        self.log = tempfile.NamedTemporaryFile('w+', suffix='.log')
        command = [program or os.environ.get('PAGEDINFER_BIN', os.path.join(build, 'pagedinfer')), 'serve', '-m', model, '--port', '0']
        self.p = subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL, stderr=self.log)
        self.url = None

    def text(self):
        with open(self.log.name, errors='replace') as f: return f.read()

    def __enter__(self):
        for _ in range(2400):
            m = re.search(r'listening on (http://127\.0\.0\.1:\d+)', self.text())
            if m and 'is ready' in self.text():
                self.url = m[1]
                return self
            if self.p.poll() is not None: break
            time.sleep(0.05)
        raise SystemExit(f'the server does not start: {self.text()[-2000:]}')

    def __exit__(self, *_):
        if self.p.poll() is None: self.p.send_signal(signal.SIGTERM)
        self.p.wait(60)

    def ask(self, path, body=None, timeout=600):
        """Returns the status, and the body as JSON or text."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as r: status, text = r.status, r.read()
        except urllib.error.HTTPError as e: status, text = e.code, e.read()
        try: return status, json.loads(text)
        except ValueError: return status, text.decode()


# A chat template with tools, for models without one of their own.
TOOL_TEMPLATE = """{% if tools %}<|im_start|>system
<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools> Call one as <tool_call>
{"name": NAME, "arguments": OBJECT}
</tool_call><|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
