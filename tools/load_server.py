#!/usr/bin/env python3
"""Loads a server with OpenAI's API and reports the clients' view: tokens per second, time to the first token, gaps,
memory.

    tools/load_server.py --model MODEL.gguf --bin build/pagedinfer [--peer llama-server] [--clients 16,64]
    tools/load_server.py --url http://127.0.0.1:8080 --clients 16

With --bin (and --peer) it starts the servers itself, one after the other, with the same model, context and number of
concurrent requests. It prints a table with one row per server and number of clients. Each client sends --requests
streams of mixed lengths, one after the other. A quarter of the clients start with the same long prefix. The load is
the same for every server and every run (--seed).

Tokens are counted by the server (usage). A gap is the time from one chunk with text to the next. One thread, which
only reads sockets, so that the clients take little from the server's cores. Standard library only."""
import argparse, json, os, random, selectors, signal, socket, subprocess, sys, time, urllib.parse, urllib.request

WORDS = ('time people way water day man year work world life hand part child eye woman place week case point company number '
         'group problem fact light house area money story month lot right study book word business issue side kind head').split()


def prompt(r, n):
    return 'Write on about this. ' + ' '.join(r.choice(WORDS) for _ in range(n))


def plan(clients, requests, seed):
    """Returns the requests of each client: [(prompt, tokens to generate)]."""
    r = random.Random(seed)
    common = prompt(r, 500)
    out = []
    for c in range(clients):
        mine = []
        for _ in range(requests):
            text = prompt(r, r.choice((20, 60, 200, 600)))
            mine.append((common + ' ' + text[:200] if c % 4 == 0 else text, r.choice((16, 48, 96, 160))))
        out.append(mine)
    return out


class Client:
    def __init__(self, host, port, todo):
        self.host, self.port, self.todo, self.s = host, port, todo, None

    def start(self, sel):
        text, n = self.todo.pop(0)
        body = json.dumps({'model': 'x', 'prompt': text, 'max_tokens': n, 'temperature': 0, 'ignore_eos': True, 'stream': True,
                           'stream_options': {'include_usage': True}}).encode()
        self.s = socket.create_connection((self.host, self.port))
        self.s.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n'
                       b'Content-Length: %d\r\n\r\n' % len(body) + body)
        self.s.setblocking(False)
        self.began, self.last, self.rest = time.perf_counter(), 0, b''
        sel.register(self.s, selectors.EVENT_READ, self)

    def read(self, sel, seen):
        """Reads from the socket. Returns False when the request is finished."""
        data = self.s.recv(262144)
        now = time.perf_counter()
        if not data:
            sel.unregister(self.s)
            self.s.close()
            return False
        lines = (self.rest + data).split(b'\n')
        self.rest = lines.pop()
        for line in lines:
            if line.startswith(b'HTTP/1.') and b' 200 ' not in line: seen['errors'] += 1
            if not line.startswith(b'data: {'): continue
            if b'"usage"' in line:
                u = json.loads(line[6:]).get('usage')
                if u:
                    seen['tokens'] += u['completion_tokens']
                    seen['prompt'] += u['prompt_tokens']
                    seen['cached'] += (u.get('prompt_tokens_details') or {}).get('cached_tokens', 0)
            if b'"text":""' in line or b'"choices":[]' in line: continue
            if self.last: seen['gaps'].append(now - self.last)
            else: seen['first'].append(now - self.began)
            self.last = now
        return True


def run(host, port, clients, requests, seed):
    sel, seen = selectors.DefaultSelector(), {'tokens': 0, 'prompt': 0, 'cached': 0, 'errors': 0, 'first': [], 'gaps': []}
    began, left = time.perf_counter(), clients
    for todo in plan(clients, requests, seed): Client(host, port, todo).start(sel)
    while left:
        for key, _ in sel.select():
            c = key.data
            if c.read(sel, seen): continue
            if c.todo: c.start(sel)
            else: left -= 1
    seen['seconds'] = time.perf_counter() - began
    return seen


def at(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * q))] if values else float('nan')


def memory(pid):
    with open(f'/proc/{pid}/status') as f:
        return next(int(l.split()[1]) / 1024 for l in f if l.startswith('VmHWM'))


def wait_ready(url, p):
    for _ in range(6000):
        try:
            with urllib.request.urlopen(url + '/health', timeout=5) as r:
                if r.status == 200: return
        except OSError: pass
        if p and p.poll() is not None: sys.exit(f'the server ended with status {p.returncode}')
        time.sleep(0.05)
    sys.exit('the server is not ready')


def row(name, clients, s, mib):
    print(f'| {name} | {clients} | {s["tokens"] / s["seconds"]:.1f} | {at(s["first"], .5):.2f} | {at(s["first"], .99):.2f} | '
          f'{at(s["gaps"], .5) * 1e3:.0f} | {at(s["gaps"], .99) * 1e3:.0f} | {s["cached"]} of {s["prompt"]} | {mib} | {s["errors"]} |',
          flush=True)


def one_server(name, argv, port, clients, a):
    p = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_ready(f'http://127.0.0.1:{port}', p)
        run('127.0.0.1', port, 2, 1, a.seed + 1)  # warm-up
        row(name, clients, run('127.0.0.1', port, clients, a.requests, a.seed), f'{memory(p.pid):.0f}')
    finally:
        p.send_signal(signal.SIGTERM)
        try: p.wait(20)
        except subprocess.TimeoutExpired: p.kill()


def main():
    o = argparse.ArgumentParser(description=__doc__.split('\n\n')[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    o.add_argument('--url')
    o.add_argument('--model')
    o.add_argument('--bin')
    o.add_argument('--peer')
    o.add_argument('--clients', default='16,64')
    o.add_argument('--requests', type=int, default=2)
    o.add_argument('--seed', type=int, default=1)
    o.add_argument('--rounds', type=int, default=1)
    o.add_argument('--context', type=int, default=1536, help='tokens of the longest request')
    o.add_argument('--at-once', type=int, default=16, help='maximum number of concurrent requests')
    o.add_argument('--port', type=int, default=18900)
    a = o.parse_args()
    if not a.url and not (a.model and a.bin): o.error('give --url, or --model and --bin')
    print('| server | clients | tokens/s | first p50 s | first p99 s | gap p50 ms | gap p99 ms | cached prompt tokens | RSS MiB | errors |')
    print('|---|---|---|---|---|---|---|---|---|---|')
    counts = [int(n) for n in a.clients.split(',')]
    if a.url:
        u = urllib.parse.urlparse(a.url)
        wait_ready(a.url, None)
        for n in counts: row(u.netloc, n, run(u.hostname, u.port or 80, n, a.requests, a.seed), '')
        return
    total = a.context * a.at_once
    ours = [a.bin, 'serve', '-m', a.model, '--port', str(a.port), '-c', str(a.context), '--kv-cache-tokens', str(total), '--parallel',
            str(a.at_once)]
    theirs = [a.peer, '-m', a.model, '--port', str(a.port), '-c', str(total), '-np', str(a.at_once)]
    for _ in range(a.rounds):
        for n in counts:
            one_server('pagedinfer', ours, a.port, n, a)
            if a.peer: one_server(os.path.basename(a.peer), theirs, a.port, n, a)


main()
