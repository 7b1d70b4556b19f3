#!/usr/bin/env python3
"""Checks deploy/nginx/pagedinfer.conf with Debian's nginx, two servers and a tiny random model.

1. A stream reaches the client while the server still generates it. nginx does not store answers, also without the
   server's field X-Accel-Buffering.
2. A client that disconnects ends its generation on the server.
3. Keys and request ids pass; a missing key gives 401; /metrics is refused for other addresses.
4. 16 clients get the answers that the servers give without nginx.
5. Retries: a server that loads, shuts down or refuses connections costs no request. A request whose connection is lost
   runs again once, except on routes that change state.
Exit 77: no nginx, no server, or no tiny model."""
import atexit, concurrent.futures, json, os, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

import check_server as base
from check_server import Server, ask, connect, events, expect, fault, read_answer, request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NGINX = shutil.which('nginx', path=os.environ.get('PATH', '') + ':/usr/sbin:/sbin')
C = '/v1/completions'
KEY = 'Authorization: Bearer secret-a\r\n'
LONG = {'prompt': 'abcdefgh', 'max_tokens': 8000, 'ignore_eos': True, 'stream': True}


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Nginx:
    """nginx with the configuration of this tree; only its port and its list of servers are replaced."""
    def __init__(self, folder, ports):
        self.port = free_port()
        with open(os.path.join(ROOT, 'deploy/nginx/pagedinfer.conf')) as f: site = f.read()
        servers = ''.join(f'server 127.0.0.1:{p} max_fails=2 fail_timeout=5s;\n' for p in ports)
        site, n = re.subn(r'(?m)^ +server 127\.0\.0\.1:8080 .*$', servers, site)
        site, m = re.subn(r'(?m)^    listen 80;$', f'listen 127.0.0.1:{self.port};', site)
        expect('the directives that the test replaces', (n, m), (1, 1))
        conf = os.path.join(folder, 'nginx.conf')
        with open(conf, 'w') as f:
            f.write(f'daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 2;\n'
                    + ('user root;\n' if os.getuid() == 0 else '')
                    + 'events { worker_connections 512; }\nhttp { access_log off;\n'
                    + ''.join(f'{k}_temp_path {folder}/{k};\n' for k in ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'))
                    + site + '}\n')
        self.p = subprocess.Popen([NGINX, '-e', f'{folder}/error.log', '-p', folder, '-c', conf])
        atexit.register(self.end)
        for _ in range(200):
            try: return connect(self).close()
            except OSError: time.sleep(0.05)
        sys.exit(f'nginx does not start: {open(f"{folder}/error.log").read()[-2000:]}')

    def end(self):
        self.p.terminate()
        self.p.wait(20)


def begin_stream(n, headers=KEY):
    """Sends a long request and returns the connection and its file after the first event."""
    c = connect(n, 60)
    c.sendall(request('POST', C, LONG, headers))
    f = c.makefile('rb')
    status = f.readline()
    if b' 200 ' not in status: sys.exit(f'a stream: {status!r}')
    while f.readline().strip(): pass
    while (line := f.readline()) and not line.startswith(b'data: '): pass
    return c, f


class Flood(threading.Thread):
    """A server that sends one event and then 32 MiB, unless the connection takes nothing for half a second."""
    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port, self.stopped, self.done = self.listener.getsockname()[1], None, threading.Event()
        self.start()

    def run(self):
        with self.listener.accept()[0] as c:
            data = b''
            while b'\r\n\r\n' not in data and (more := c.recv(65536)): data += more
            c.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n'
                      b'a\r\ndata: one\n\r\n')
            c.settimeout(0.5)
            try:
                for _ in range(512): c.sendall(b'10000\r\n' + bytes(65536) + b'\r\n')
                self.stopped = False
            except TimeoutError: self.stopped = True
            self.done.set()


def unbuffered(folder):
    """A client that does not read stops the server: nginx stores no answers, in memory or in files."""
    flood = Flood()
    os.mkdir(inner := os.path.join(folder, 'flood'))
    n = Nginx(inner, [flood.port])
    with connect(n, 60) as c:
        c.sendall(request('POST', C, {'prompt': 'a'}, KEY))
        f = c.makefile('rb')
        while (line := f.readline()) and not line.startswith(b'data: '): pass
        expect('the first event', line, b'data: one\n')
        flood.done.wait(60)
        expect('a server whose client does not read is stopped', flood.stopped, True)
    n.end()


def generating(servers): return sum(s.metrics()['vllm:num_requests_running'] for s in servers)


def canceled(what, servers):
    """Expects that a disconnect has ended the only long request before its last token."""
    for s in servers: s.quiet(what)
    logs = re.findall(r'POST /v1/completions \d+, .*generated (\d+)', ''.join(s.text() for s in servers))
    if not logs or int(logs[-1]) >= LONG['max_tokens']: fault(f'{what} did not cancel: tokens {logs}')


def streams(n, servers):
    c, f = begin_stream(n)
    expect('requests that run after the first event', generating(servers), 1.0)
    f.close()
    c.close()
    canceled('a disconnect in a stream', servers)
    with connect(n) as c:
        c.sendall(request('POST', C, {**LONG, 'stream': False}, KEY))
        for _ in range(400):
            if generating(servers): break
            time.sleep(0.01)
    canceled('a disconnect before the answer', servers)


def access(n, servers):
    expect('no key', ask(n, C, {'prompt': 'a'})[0], 401)
    status, h, _ = ask(n, C, {'prompt': 'a', 'max_tokens': 1}, 'X-Api-Key: secret-b\r\nX-Request-Id: chosen\r\n')
    expect('X-Api-Key and the request id', (status, h.get('x-request-id')), (200, 'chosen'))
    status, h, _ = ask(n, C, {'prompt': 'a', 'max_tokens': 1}, KEY)
    expect('an id by nginx', bool(re.fullmatch('[0-9a-f]{32}', h.get('x-request-id', ''))), True)
    expect('metrics for this machine', ask(n, '/metrics', headers=KEY)[0], 200)
    with open(os.path.join(ROOT, 'deploy/nginx/pagedinfer.conf')) as f:
        expect('metrics for others', 'deny all;' in f.read(), True)
    expect('a large body', ask(n, C, b'x' * (17 << 20), KEY)[0], 413)
    sessions = {ask(n, C, {'prompt': 'a', 'max_tokens': 1}, KEY + 'X-Session-Id: one\r\nX-Request-Id: affine\r\n')[0] for _ in range(8)}
    expect('requests of a session', sessions, {200})
    expect('servers of a session', sum('affine' in s.text() for s in servers), 1)


def many(n, servers):
    def one(i, where):
        body = {'prompt': f'{i} ' * (i + 1), 'max_tokens': 40, 'temperature': 0, 'ignore_eos': True, 'stream': i % 2 == 0}
        with connect(where, 60) as c:
            c.sendall(request('POST', C, body, KEY + f'X-Session-Id: {i}\r\n'))
            status, _, got = read_answer(c.makefile('rb'))
        parts = events(got) if body['stream'] else [json.loads(got)]
        return status, ''.join(p['choices'][0]['text'] for p in parts if p['choices'])
    direct = [one(i, servers[0]) for i in range(16)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        through = list(pool.map(lambda i: one(i, n), range(16)))
    expect('answers through nginx', through, direct)


class Lossy(threading.Thread):
    """A server that reads each request and closes the connection without a response."""
    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port, self.paths = self.listener.getsockname()[1], []
        self.start()

    def run(self):
        while True:
            try: c, _ = self.listener.accept()
            except OSError: return
            with c:
                data = b''
                while b'\r\n\r\n' not in data and (more := c.recv(65536)): data += more
                if data: self.paths.append(data.split()[1].decode())


def sent(n, path, count=12):
    """Statuses of requests of several sessions, so that each server is the first for some of them."""
    body = {'prompt': 'a', 'input': 'a', 'max_tokens': 2, 'max_output_tokens': 2}
    return [ask(n, path, body, KEY + f'X-Session-Id: s{i}\r\n')[0] for i in range(count)]


def retries(folder, model, servers, keys):
    lossy = Lossy()
    for name, ports in ('refused', [free_port(), servers[0].port]), ('lost', [lossy.port, servers[0].port]):
        inner = os.path.join(folder, name)
        os.mkdir(inner)
        n = Nginx(inner, ports)
        expect(f'{name}: generations', sent(n, C), [200] * 12)
        if name == 'lost': expect('lost: sent to the first server', bool(lossy.paths), True)
        n.end()
    os.mkdir(inner := os.path.join(folder, 'state'))
    lossy.paths.clear()
    n = Nginx(inner, [lossy.port, servers[0].port])
    got = sent(n, '/v1/responses')
    expect('lost: a request that changes state runs once', got.count(502), len(lossy.paths))
    expect('lost: such requests', bool(lossy.paths), True)
    n.end()
    lossy.listener.close()
    draining = Server(model, '-c', '8192', '--api-key-file', keys, '--drain-timeout', '20')
    os.mkdir(inner := os.path.join(folder, 'draining'))
    n = Nginx(inner, [draining.port, servers[0].port])
    c, f = begin_stream(draining)
    draining.p.send_signal(signal.SIGTERM)
    draining.wait_for('shutting down|signal')
    expect('one server shuts down', sent(n, C), [200] * 12)
    f.close()
    c.close()
    draining.p.wait(30)  # a second signal would end it at once
    draining.end()
    n.end()


def main():
    if not NGINX:
        print('nginx is not installed (Debian: nginx-light)')
        return 77
    maker = base.tiny_maker()
    if not maker: return 77
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        model, keys = os.path.join(folder, 'tiny.gguf'), os.path.join(folder, 'keys')
        subprocess.run([maker, model, '8192'], check=True)
        with open(keys, 'w') as f: f.write('secret-a alice\nsecret-b\n')
        Server.headers = dict([KEY.strip().split(': ')])
        servers = [Server(model, '-c', '8192', '--api-key-file', keys) for _ in range(2)]
        for s in servers: atexit.register(s.p.kill)
        os.mkdir(inner := os.path.join(folder, 'two'))
        n = Nginx(inner, [s.port for s in servers])
        streams(n, servers)
        access(n, servers)
        many(n, servers)
        n.end()
        unbuffered(folder)
        retries(folder, model, servers, keys)
        for s in servers: s.end()
    print(f'nginx: two servers, {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__':
    sys.exit(main())
