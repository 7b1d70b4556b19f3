#!/usr/bin/env python3
"""Writes docs/images/terminal.svg, a picture of a real terminal session.

    build/venv-docs/bin/pip install rich
    build/venv-docs/bin/python tools/gen/terminal_svg.py [--bin FILE] [--model FILE] [--out FILE]

Runs each line of SESSION with the tool and a chat model, and draws the lines with their output. The server listens on
a free port, which the picture shows as 8080. PAGEDINFER_BIN and PAGEDINFER_CHAT_MODEL are the defaults.

The log lines show the rates of that one run; they are no benchmark. Record on an idle machine."""
import argparse, os, re, signal, socket, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.expanduser('~/.cache/pagedinfer/SmolLM2-135M-Instruct.Q4_1.gguf')
WIDTH = 104
ASK = ("curl -s localhost:8080/v1/chat/completions -d '{\"temperature\": 0, \"max_tokens\": 24,\n"
       "    \"messages\": [{\"role\": \"user\", \"content\": \"%s\"}]}' | jq '.choices[0].message.content'")
SESSION = [
    'pagedinfer run -m smollm2.gguf -st -p "What is a lighthouse for?" -n 48 --temp 0 --no-perf',
    'pagedinfer inspect smollm2.gguf -c 2048 | tail -4',
    'pagedinfer serve -m smollm2.gguf &',
    ASK % 'Name a sea animal.',
    ASK % 'Name a land animal.',   # shares a prefix. No constraint: forced tokens would inflate the rate in the log line
]


class Server:
    """The server of the session: the lines of its log appear after the command that caused them."""
    def __init__(self, folder, env, port):
        self.log, self.seen = os.path.join(folder, 'log'), 0
        with open(self.log, 'w') as log:
            self.process = subprocess.Popen(['pagedinfer', 'serve', '-m', 'smollm2.gguf', '--port', str(port)], cwd=folder, env=env, stderr=log)

    def lines(self, n):
        """The next n lines of the log."""
        for _ in range(600):
            with open(self.log) as f: lines = f.read().split('\n')[:-1]
            if len(lines) >= self.seen + n: break
            time.sleep(0.1)
        out, self.seen = lines[self.seen:self.seen + n], self.seen + n
        return out

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def record(binary, model):
    """[(command, output)] of SESSION."""
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    shown, server = [], None
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(binary), os.path.join(folder, 'pagedinfer'))
        os.symlink(os.path.abspath(model), os.path.join(folder, 'smollm2.gguf'))
        env = {**os.environ, 'PATH': folder + ':' + os.environ['PATH'], 'COLUMNS': str(WIDTH), 'NO_COLOR': '1'}
        try:
            for line in SESSION:
                if line.endswith('&'):
                    server = Server(folder, env, port)
                    out = '\n'.join(server.lines(2))
                else:
                    r = subprocess.run(['bash', '-o', 'pipefail', '-c', line.replace('localhost:8080', f'localhost:{port}')], cwd=folder, env=env,
                                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
                    if r.returncode: raise SystemExit(f'{line}: exit status {r.returncode}: {r.stderr}')
                    out = '\n'.join([r.stdout.strip('\n')] + (server.lines(1) if server and 'curl' in line else []))
                shown.append((line, out.replace(str(port), '8080')))
        finally:
            if server: server.end()
    return shown


def draw(shown, path):
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text
    import rich._export_format as form
    console = Console(record=True, width=WIDTH, file=open(os.devnull, 'w'), force_terminal=True)
    for line, out in shown:
        console.print(Text('$ ', 'bold green') + Text(line, 'bold'), soft_wrap=False)
        for text in out.split('\n'): console.print(Text(text, 'cyan' if text.startswith('chatcmpl') else ''))
        if line is not shown[-1][0]: console.print()
    style = re.sub(r'@font-face \{\{.*?\}\}\s*', '', form.CONSOLE_SVG_FORMAT, flags=re.S)   # no files of other servers
    svg = console.export_svg(title='pagedinfer', theme=MONOKAI, code_format=style, unique_id='terminal')
    svg = re.sub(r'<!--.*?-->\s*', '', svg, flags=re.S)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as f: f.write(re.sub(r'[ \t]+\n', '\n', svg).rstrip() + '\n')
    return len(svg)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--bin', default=os.environ.get('PAGEDINFER_BIN', os.path.join(ROOT, 'build/pagedinfer')))
    p.add_argument('--model', default=os.environ.get('PAGEDINFER_CHAT_MODEL') or CACHE)
    p.add_argument('--out', default=os.path.join(ROOT, 'docs/images/terminal.svg'))
    a = p.parse_args()
    shown = record(a.bin, a.model)
    for line, out in shown: print(f'$ {line}\n{out}\n')
    n = draw(shown, a.out)
    print(f'{a.out}: {n} bytes', file=sys.stderr)
    return 0 if n < 60000 else 1


if __name__ == '__main__':
    sys.exit(main())
