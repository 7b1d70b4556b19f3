#!/usr/bin/env python3
"""Fetches models from a local HTTP server that imitates a hub, both well-behaved and faulty.

    check_download.py [PAGEDINFER]

Standard library only; PAGEDINFER_BIN names the tool if the argument is missing. A tool built without libcurl must say
so."""
import hashlib
import http.server
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_cli import write_model  # noqa: E402

BIN = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer'))
COMMIT = '0123456789abcdef0123456789abcdef01234567'
TOKEN = 'hf_abcdefghijklmnopqrstuvwxyz0123456789'
faults = []


class Hub(http.server.ThreadingHTTPServer):
    """Repositories are {path: bytes}. `behave` maps a path's end to a list of faults, one per request."""
    daemon_threads = True

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.repos, self.files, self.behave, self.seen, self.private, self.gated = {}, {}, {}, [], set(), set()
        self.elsewhere, self.page_size, self.sha = None, 0, {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a client that disconnected

    @property
    def url(self):
        return 'http://127.0.0.1:%d/' % self.server_address[1]

    def asked(self, method, end):
        return [s for s in self.seen if s[0] == method and s[1].split('?')[0].endswith(end)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def answer(self, status, body=b'', headers=(), cut=None):
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header('Content-Length', str(len(body)))
        if cut is not None: self.send_header('Connection', 'close')
        self.end_headers()
        if self.command != 'HEAD': self.wfile.write(body if cut is None else body[:cut])
        if cut is not None: self.close_connection = True

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server
        path = self.path.split('?')[0].lstrip('/')
        hub.seen.append((self.command, self.path, dict(self.headers)))
        how = next((hub.behave[k] for k in hub.behave if path.endswith(k) and hub.behave[k]), None)
        word = how.pop(0) if how else None
        if word and word.isdigit(): return self.answer(int(word), b'{"error": "%s"}' % word.encode())
        if word == 'drop': return self.close_quietly()
        if path.startswith('api/models/'): return self.listing(path.split('/'))
        if '/resolve/' in path: return self.resolve(path, word)
        if path in hub.files: return self.data(hub.files[path], word, hub.sha.get(path))
        return self.answer(404, b'{"error": "not found"}')

    def close_quietly(self):
        self.close_connection = True

    def may(self, repo):
        auth = self.headers.get('Authorization')
        if repo in self.server.private and auth != 'Bearer ' + TOKEN: return self.answer(401, b'{"error": "no"}')
        if repo in self.server.gated: return self.answer(403, b'{"error": "gated"}')
        return True

    def listing(self, part):
        hub, repo = self.server, '/'.join(part[2:4])
        if repo not in hub.repos: return self.answer(401, b'{"error": "Repository not found"}')
        if self.may(repo) is not True: return None
        if part[4] == 'refs':
            return self.answer(200, json.dumps({'branches': [{'name': 'dev', 'targetCommit': 'f' * 40},
                                                             {'name': 'main', 'targetCommit': COMMIT}]}).encode())
        tree = [{'type': 'directory', 'path': 'sub'}]
        for name, data in hub.repos[repo].items():
            git = hashlib.sha1(b'blob %d\0' % len(data) + data).hexdigest()
            f = {'type': 'file', 'path': name, 'size': len(data), 'oid': git}
            if name.endswith('.gguf') and 'small' not in name:
                f['lfs'] = {'oid': hashlib.sha256(data).hexdigest(), 'size': len(data)}
            tree.append(f)
        if not hub.page_size: return self.answer(200, json.dumps(tree).encode())
        at = int(self.path.split('cursor=')[1]) if 'cursor=' in self.path else 0
        more = at + hub.page_size
        link = [('Link', '<%s%s?recursive=true&cursor=%d>; rel="next"' % (hub.url, '/'.join(part), more))]
        return self.answer(200, json.dumps(tree[at:more]).encode(), link if more < len(tree) else ())

    def resolve(self, path, word):
        repo, name = path.split('/resolve/')[0], path.split('/resolve/')[1].split('/', 1)[1].replace('%20', ' ')
        if self.may(repo) is not True: return None
        data = self.server.repos[repo][name]
        if not self.server.elsewhere: return self.data(data, word)
        self.server.elsewhere.files['blob/' + name] = data
        return self.answer(302, b'moved', [('Location', self.server.elsewhere.url + 'blob/' + name),
                                           ('X-Linked-Etag', '"%s"' % hashlib.sha256(data).hexdigest()),
                                           ('X-Linked-Size', str(len(data)))])

    def data(self, data, word, sha=None):
        etag = [('ETag', '"%s"' % hashlib.md5(data).hexdigest()), ('Accept-Ranges', 'bytes')]
        if sha: etag.append(('X-Linked-Etag', '"%s"' % sha))
        sent = bytes(b ^ (i % 64 == 5) for i, b in enumerate(data)) if word == 'garble' else data
        ask, same = self.headers.get('Range'), self.headers.get('If-Range')
        first = int(ask.split('=')[1].split('-')[0]) if ask and (not same or same == etag[0][1]) and word != 'norange' else 0
        if first > len(data): return self.answer(416)
        cut = (len(data) - first) // 2 if word == 'cut' else None
        if word == 'huge': etag.append(('X-Linked-Size', str(1 << 60)))
        if word == 'slow': return self.slowly(data, etag)
        if first: return self.answer(206, sent[first:], etag + [('Content-Range', 'bytes %d-%d/%d' % (first, len(data) - 1, len(data)))], cut)
        return self.answer(200, sent, etag, cut)

    def slowly(self, data, headers):
        self.send_response(200)
        for k, v in headers + [('Content-Length', str(len(data)))]:
            self.send_header(k, v)
        self.end_headers()
        try:
            for i in range(0, len(data), 4096):
                self.wfile.write(data[i:i + 4096])
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            self.close_connection = True


def call(*args, env=None, **how):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(('LLAMA_', 'PAGEDINFER_', 'HF_', 'XDG_', 'MODEL_')) and
             k.lower() not in ('http_proxy', 'https_proxy', 'all_proxy')}
    return subprocess.Popen([BIN, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**clean, **env}, **how)


class Test:
    """A hub and an empty cache folder."""

    def __init__(self, dir, model):
        self.hub, self.cache, self.model = Hub(), os.path.join(dir, 'cache-%d' % time.monotonic_ns()), model
        os.mkdir(self.cache)
        self.env = {'MODEL_ENDPOINT': self.hub.url, 'LLAMA_CACHE': self.cache}

    def run(self, code, *args, out=None, err=None, cmd='inspect', env=None):
        tail = ('--no-tensors', '--no-cost') if cmd == 'inspect' else ()
        p = call(cmd, *args, *tail, env={**self.env, **(env or {})})
        stdout, stderr = (x.decode(errors='replace') for x in p.communicate(timeout=60))
        what = ' '.join((cmd,) + args)[:120]
        if p.returncode != code: faults.append(f'{what}: exit {p.returncode}, not {code}: {stderr[-500:]}')
        if out is not None and out not in stdout: faults.append(f'{what}: stdout lacks {out!r}: {stdout[:500]!r}')
        if err is not None and err not in stderr: faults.append(f'{what}: stderr lacks {err!r}: {stderr[:700]!r}')
        if 'Sanitizer' in stderr: faults.append(f'{what}: {stderr[-2000:]}')
        if TOKEN in stderr + stdout: faults.append(f'{what}: the token is shown')
        self.stderr = stderr
        return stdout

    def path(self, *parts):
        return os.path.join(self.cache, *parts)

    def check(self, true, what):
        if not true: faults.append(f'{what}; {self.stderr[-300:]}')

    def empty(self):
        shutil.rmtree(self.cache)
        os.mkdir(self.cache)
        self.hub.seen.clear()


def layout(t):
    """Files are stored as llama.cpp and huggingface_hub store them; the second run fetches nothing."""
    t.hub.repos['org/tiny-GGUF'] = {'README.md': b'hello', 'mmproj-tiny-Q4_K_M.gguf': b'x', 'tiny-F16.gguf': b'y',
                                    'tiny-Q4_K_M.gguf': t.model, 'tiny-Q8_0.gguf': b'z'}
    dry = t.run(0, '-hf', 'org/tiny-GGUF', '--dry-run', out='%d bytes  tiny-Q4_K_M.gguf -> ' % len(t.model))
    t.check('mmproj' not in dry and not os.listdir(t.cache), 'a dry run that leaves something, or wants more than the model')
    t.run(0, '-hf', 'org/tiny-GGUF', out='gemma3', err='downloading tiny-Q4_K_M.gguf')
    dir = t.path('models--org--tiny-GGUF')
    oid = hashlib.sha256(t.model).hexdigest()
    t.check(open(os.path.join(dir, 'refs', 'main')).read() == COMMIT, 'refs/main is not the commit')
    link = os.path.join(dir, 'snapshots', COMMIT, 'tiny-Q4_K_M.gguf')
    t.check(os.path.islink(link) and os.readlink(link) == '../../blobs/' + oid, 'snapshots/ has no link to the blob')
    t.check(open(link, 'rb').read() == t.model, 'other bytes than the hub has')
    t.check(os.listdir(os.path.join(dir, 'blobs')) == [oid], 'other blobs than the one')
    t.hub.seen.clear()
    t.run(0, '-hf', 'org/tiny-GGUF:q4_k_m', out='gemma3')
    t.run(0, '-hf', 'org/tiny-GGUF', '--dry-run', out='nothing to fetch')
    t.run(0, '-hf', 'org/tiny-GGUF', '--offline', out='gemma3')
    t.run(0, '--no-warmup', '-hf', 'org/tiny-GGUF', '-p', 'the', '-n', '1', '--offline', cmd='run')
    t.run(0, '-hf', 'org/tiny-GGUF', '-p', 'the', '--ids', '--offline', cmd='tokenize', out='[')
    t.run(0, '-hf', 'org/tiny-GGUF', '--offline', t.path('out.gguf'), 'F16', '1', cmd='quantize')
    t.check(os.path.getsize(t.path('out.gguf')) > 1000, 'quantize of a fetched model wrote nothing')
    t.check(not t.hub.asked('GET', '.gguf'), 'fetched a second time')
    env = {'LLAMA_CACHE': '', 'HOME': t.cache, 'XDG_CACHE_HOME': t.path('xdg'), 'HF_HOME': t.path('hf')}
    for names, at in (((), t.path('hf', 'hub')), (('HF_HOME',), t.path('xdg', 'huggingface', 'hub')),
                      (('HF_HOME', 'XDG_CACHE_HOME'), t.path('.cache', 'huggingface', 'hub'))):
        t.run(0, '-hf', 'org/tiny-GGUF', '--dry-run', out=at, env={**env, **{k: '' for k in names}})


def choice(t):
    t.hub.repos['o/m'] = {'a.gguf': t.model + b'0', 'm-Q8_0.gguf': t.model + b'8', 'sub/my model-Q5_K_M.gguf': t.model + b'5',
                          'mtp-m-Q8_0.gguf': t.model + b'm', 'small-Q2_K.gguf': t.model + b's', '../evil-Q3_K.gguf': b'e'}
    for args, want in ((('-hf', 'o/m'), 'm-Q8_0.gguf'), (('-hf', 'o/m:q5_k_m'), 'sub/my model-Q5_K_M.gguf'),
                       (('-hf', 'o/m', '-hff', 'a.gguf'), 'a.gguf'), (('-hf', 'o/m:Q2_K'), 'small-Q2_K.gguf')):
        t.run(0, *args, '--dry-run', out=want + ' -> ')
    t.run(0, '-hf', 'o/m:Q5_K_M', out='gemma3')
    t.check(os.path.exists(t.path('models--o--m/snapshots', COMMIT, 'sub/my model-Q5_K_M.gguf')), 'a file in a folder')
    t.run(0, '-hf', 'o/m:Q2_K', out='gemma3')  # this blob is named by git's hash
    t.run(0, '-hf', 'o/m', '-hfd', 'o/m', '--dry-run', out='mtp-m-Q8_0.gguf -> ')
    t.run(66, '-hf', 'o/m:Q6_K', err='sub/my model-Q5_K_M.gguf')
    t.run(66, '-hf', 'o/m:Q3_K', err='no GGUF model with Q3_K')
    t.run(66, '-hf', 'o/m', '-hff', 'b.gguf', err='has no file b.gguf')
    t.hub.page_size = 2
    t.run(0, '-hf', 'o/m:Q2_K', '--dry-run', out='small-Q2_K.gguf')
    for bad in ('nothing', 'a/b/c', '../x', 'a/..', '-a/b', 'a/b:', 'a/b:c/d'):
        t.run(64, '-hf', bad, err='is not a repository name')
    t.run(64, '-hf', 'o/m', '-m', 'x.gguf', err='give one of them')
    t.run(64, '-hff', 'x.gguf', err='-hf')
    t.run(64, '-hf', 'o/m', '-hft', 'a b', err='token')


def arguments(t):
    """USER/NAME[:QUANT] and an address as the argument of a command."""
    t.hub.repos['o/m'] = {'m-Q4_K_M.gguf': t.model, 'm-Q8_0.gguf': t.model + b'8'}
    t.hub.files['d/a.gguf'] = t.model
    t.run(0, 'o/m', out='gemma3', err='downloading m-Q4_K_M.gguf')
    t.run(0, 'o/m:q8_0', '--dry-run', out='m-Q8_0.gguf -> ')
    t.run(0, 'o/m', '-hff', 'm-Q8_0.gguf', '--dry-run', out='m-Q8_0.gguf -> ')
    t.run(0, t.hub.url + 'd/a.gguf?download=true', out='gemma3')
    t.run(0, '--no-warmup', 'o/m', '-p', 'the', '-n', '1', '--offline', cmd='run')
    t.run(0, 'o/m', '-p', 'the', '--ids', '--offline', cmd='tokenize', out='[')
    for var in ('PAGEDINFER_MODEL', 'LLAMA_ARG_HF_REPO', 'PAGEDINFER_MODEL_URL'):
        t.run(0, 'o/m', '--dry-run', env={var: 'http://127.0.0.1:9/x.gguf'}, out='m-Q4_K_M.gguf -> ')
        t.run(0, t.hub.url + 'd/a.gguf', '--dry-run', env={var: 'x/y'}, out='a.gguf -> ')
    t.run(66, 'o/m:Q2_K', err='no GGUF model with Q2_K')
    t.run(64, 'o/m', '-hf', 'o/m', err='both name a model')
    t.run(66, '../o/m', err='no such file or folder')


def vision(t):
    """-hf finds the vision part of a model: the deepest folder around it, then the nearest number of bits."""
    t.hub.repos['o/v'] = {'mmproj-Q4_K_M.gguf': b'root', 'sub/mmproj-BF16.gguf': b'far', 'sub/mmproj-v-Q8_0.gguf': b'near',
                          'sub/deep/mmproj-Q4_K_M.gguf': b'below', 'other/mmproj-Q4_K_M.gguf': b'x', 'sub/v-Q4_K_M.gguf': t.model,
                          'w-Q8_0.gguf': t.model + b'w', 'mmproj.txt': b'x'}
    t.run(0, 'o/v', '--dry-run', cmd='pull', out='sub/mmproj-v-Q8_0.gguf -> ')
    t.run(0, 'o/v', '--no-mmproj', cmd='pull', out='sub/v-Q4_K_M.gguf')
    t.check('vision part' not in t.stderr, 'pull --no-mmproj has a vision part')
    t.run(0, '-hf', 'o/v')
    t.check(not any('mmproj' in n for _, _, names in os.walk(t.path('models--o--v')) for n in names), 'inspect fetches a vision part')
    t.run(0, 'o/v', cmd='pull', out='sub/v-Q4_K_M.gguf', err='vision part: ' + t.path('models--o--v/snapshots', COMMIT, 'sub/mmproj-v-Q8_0.gguf'))
    t.run(0, 'o/v', '-hff', 'w-Q8_0.gguf', cmd='pull', err='/mmproj-Q4_K_M.gguf')
    rows = {r['file']: r['mmproj'] for r in json.loads(t.run(0, '--json', cmd='list'))}
    t.check(rows == {'sub/v-Q4_K_M.gguf': 'sub/mmproj-v-Q8_0.gguf', 'w-Q8_0.gguf': 'mmproj-Q4_K_M.gguf', 'mmproj-Q4_K_M.gguf': None,
                     'sub/mmproj-v-Q8_0.gguf': None}, f'list --json: {rows}')
    t.check(t.run(0, cmd='list').count('(reads images)') == 2, 'list marks other models')
    t.hub.files['d/a.gguf'], t.hub.files['d/mmproj-a.gguf'] = t.model, b'v'
    t.run(0, '-mu', t.hub.url + 'd/a.gguf', '-mmu', t.hub.url + 'd/mmproj-a.gguf', cmd='pull', err='vision part: ' + t.path('mmproj-a.gguf'))


def age(path, seconds):
    os.utime(path, (seconds, seconds))


def cached(t):
    """pull, list and rm; two snapshots share a blob, and a model has parts."""
    t.hub.repos['o/m'] = {'m-Q4_K_M.gguf': t.model, 'm-Q8_0.gguf': t.model + b'8', 'mtp-m-Q8_0.gguf': t.model + b'm', 'README.md': b'x'}
    t.hub.repos['o/s'] = {'m-q5_k_m-%05d-of-00002.gguf' % i: t.model + b'%d' % i for i in (1, 2)}
    t.hub.repos['o/plain'] = {'plain.gguf': t.model + b'p'}
    t.hub.files['d/a-Q6_K.gguf'] = t.model
    if t.run(0, cmd='list').split() != ['name', 'size', 'quant', 'last', 'used']: faults.append('an empty cache has models')
    t.check(t.run(0, '--json', cmd='list') == '[]\n', 'list --json of an empty cache')
    snap = t.path('models--o--m/snapshots', COMMIT)
    t.check(t.run(0, 'o/m', cmd='pull') == snap + '/m-Q4_K_M.gguf\n', 'pull prints another path')
    for args in (['o/m:Q8_0'], ['-hf', 'o/m', '-hff', 'mtp-m-Q8_0.gguf'], ['o/s'], ['o/plain'], [t.hub.url + 'd/a-Q6_K.gguf']):
        t.check(os.path.exists(t.run(0, *args, cmd='pull').strip()), f'pull {args} prints no file')
    t.run(0, 'o/m', '--dry-run', cmd='pull', out='nothing to fetch')
    t.run(64, cmd='pull', err='no model')
    t.run(64, t.path('a-Q6_K.gguf'), cmd='pull', err='nothing to download')
    size = len(t.model)
    expected = {'o/m:Q4_K_M': ('Q4_K_M', size), 'o/m:Q8_0': ('Q8_0', size + 1), 'o/m/mtp-m-Q8_0.gguf': ('Q8_0', size + 1),
                'o/s:Q5_K_M': ('Q5_K_M', 2 * size + 2), 'o/plain': (None, size + 1), 'a-Q6_K.gguf': ('Q6_K', size)}
    rows = {r['name']: r for r in json.loads(t.run(0, '--json', cmd='list'))}
    t.check({n: (r['quantization'], r['bytes']) for n, r in rows.items()} == expected, f'list --json: {rows}')
    t.check(all(os.path.isfile(r['path']) and r['file'] in r['path'] for r in rows.values()), f'list --json: paths {rows}')
    table = t.run(0, cmd='list')
    t.check([l.split()[0] for l in table.splitlines()] == ['name', *sorted(expected)], f'list: {table}')
    blob = os.path.realpath(rows['o/m:Q8_0']['path'])
    age(blob, 86400)
    last = {r['name']: r['last_used'] for r in json.loads(t.run(0, '--json', cmd='list'))}['o/m:Q8_0']
    t.check(last == 86400, f'last use {last}')
    t.run(0, 'o/m:Q8_0', cmd='pull')  # reads no model
    last = {r['name']: r['last_used'] for r in json.loads(t.run(0, '--json', cmd='list'))}['o/m:Q8_0']
    t.check(abs(last - time.time()) < 600 and os.stat(blob).st_mtime == 86400, f'a use is not recorded: {last}')
    removal(t, snap, blob)


def removal(t, snap, blob):
    names = lambda: sorted(r['name'] for r in json.loads(t.run(0, '--json', cmd='list')))
    before = names()
    for arg, words in (('o/m', '3 cached models match'), ('none', '  o/m:Q4_K_M\n'), ('o/m:Q2_K', 'no cached model'), ('/etc/passwd', 'no cached model'),
                       ('o', 'no cached'), ('../a-Q6_K.gguf', 'no cached'), ('o/m/../m/m-Q8_0.gguf', 'no cached'), (t.cache, 'no cached'),
                       ('m-Q8_0.gguf', 'no cached'), ('models--o--m', 'no cached'), ('o/m/README.md', 'no cached')):
        t.run(66, arg, cmd='rm', err=words)
    t.run(64, cmd='rm', err='no model')
    t.run(64, '', cmd='rm', err='no model')
    t.check(names() == before, 'a refused rm removed something')
    other = os.path.join(os.path.dirname(snap), 'f' * 40) # another commit with the same blob, as a file of another name
    os.mkdir(other)
    os.symlink('../../blobs/' + os.path.basename(blob), other + '/m-Q8_0.gguf')
    os.symlink('../../blobs/' + os.path.basename(blob), other + '/copy-Q8_0.gguf')
    t.run(66, 'o/m:q8_0', cmd='rm', err='2 cached models match')
    t.check({r['bytes'] for r in json.loads(t.run(0, '--json', cmd='list')) if 'm-Q8_0' in r['name']} == {len(t.model) + 1},
            'two links to a blob count twice')
    t.run(0, 'o/m/m-Q8_0.gguf', cmd='rm', err='removed o/m')
    t.check(os.path.exists(blob) and not os.path.lexists(snap + '/m-Q8_0.gguf') and os.listdir(other) == ['copy-Q8_0.gguf'],
            'rm removed a blob in use, or kept a link')
    t.run(0, 'o/m/copy-Q8_0.gguf', cmd='rm')
    t.check(not os.path.exists(blob) and not os.path.exists(other), 'rm kept the blob or an empty folder')
    t.run(0, 'o/s', cmd='rm', err='o/s:Q5_K_M')
    t.check(not os.path.exists(t.path('models--o--s')), 'rm kept a part or the folder of the repository')
    t.run(0, snap + '/m-Q4_K_M.gguf', cmd='rm', err='removed o/m:Q4_K_M')
    t.check(names() == ['a-Q6_K.gguf', 'o/m/mtp-m-Q8_0.gguf', 'o/plain'], f'after rm of a path: {names()}')
    t.run(0, 'a-Q6_K.gguf', cmd='rm')
    t.check(not [f for f in os.listdir(t.cache) if 'Q6_K' in f], 'rm kept a file of a URL or its ETag')
    t.run(0, 'o/m', cmd='rm')
    t.run(0, 'o/plain', cmd='rm')
    t.check(os.listdir(t.cache) == [], f'left in the cache: {os.listdir(t.cache)}')


def hostile_cache(t):
    """Links in the cache lead outside: the files behind them are neither listed nor removed."""
    outside = t.path('outside')
    t.env['LLAMA_CACHE'] = root = t.path('root')
    precious = [os.path.join(outside, f) for f in ('p-Q8_0.gguf', 'snapshots/%s/q-Q8_0.gguf' % COMMIT, 'blobs/' + 'a' * 64, 'refs/main')]
    for f in precious:
        os.makedirs(os.path.dirname(f), exist_ok=True)
        with open(f, 'wb') as out: out.write(t.model)
    def link(target, *at):
        at = os.path.join(root, *at)
        os.makedirs(os.path.dirname(at), exist_ok=True)
        os.symlink(target, at)
    link(outside, 'models--x--repo')
    link(os.path.join(outside, 'snapshots'), 'models--x--snapshots', 'snapshots')
    link(os.path.join(outside, 'snapshots', COMMIT), 'models--x--commit', 'snapshots', COMMIT)
    link(outside, 'models--x--sub', 'snapshots', COMMIT, 'sub')
    link(precious[0], 'models--x--file', 'snapshots', COMMIT, 'f-Q8_0.gguf')
    link('../../../../outside/blobs/' + 'a' * 64, 'models--x--up', 'snapshots', COMMIT, 'u-Q8_0.gguf')
    os.makedirs(os.path.join(root, 'models--x--up/blobs'))
    shutil.copy(precious[0], os.path.join(root, 'models--x--up/blobs', 'a' * 64))
    link('../../blobs/' + 'a' * 64, 'models--x--blobs', 'snapshots', COMMIT, 'b-Q8_0.gguf')
    link(os.path.join(outside, 'blobs'), 'models--x--blobs', 'blobs')
    link('../../blobs/' + 'b' * 64, 'models--x--blob', 'snapshots', COMMIT, 'b-Q8_0.gguf')
    link(precious[0], 'models--x--blob', 'blobs', 'b' * 64)
    link(precious[0], 'url-Q8_0.gguf')
    os.makedirs(os.path.join(root, 'models--x--dots/snapshots', COMMIT, 'bad\x1b[31m'))
    for name in ('models--..--x', 'models--x', 'models--x--y--z', 'models--x--a:b', 'models----', 'models--x--\x1b'):
        at = os.path.join(root, name, 'snapshots', COMMIT)
        os.makedirs(at)
        shutil.copy(precious[0], at)
    os.makedirs(os.path.join(root, 'models--x--good/snapshots', COMMIT, 'sub'))
    for name in ('good-Q8_0.gguf', 'sub/e\x1b[31m-Q4_0.gguf', 'caf\xe9-Q6_K.gguf'):
        shutil.copy(precious[0], os.path.join(root, 'models--x--good/snapshots', COMMIT, name))
    os.mkfifo(os.path.join(root, 'models--x--good/snapshots', COMMIT, 'fifo-Q8_0.gguf'))
    shutil.copy(precious[0], os.path.join(root.encode(), b'bytes\xff-F16.gguf'))
    shutil.copy(precious[0], os.path.join(root, 'c\x9b31m-F16.gguf'))
    text = t.run(0, '--json', cmd='list')
    rows = {r['name']: r['file'] for r in json.loads(text)}
    t.check(text.isascii(), 'list --json prints other bytes than ASCII')
    t.check(set(rows) == {'x/good:Q8_0', 'x/good:Q6_K', 'bytes?-F16.gguf', 'c\x9b31m-F16.gguf'}, f'a hostile cache lists {rows}')
    table = t.run(0, cmd='list')
    t.check('\x1b' not in table and '\nbytes?-F16.gguf ' in table and '\nc??31m-F16.gguf ' in table and len(table.splitlines()) == 5, f'a hostile cache lists {table!r}')
    for arg in ('x/repo', 'x/snapshots', 'x/commit', 'x/sub', 'x/file', 'x/up', 'x/blobs', 'x/blob', 'url-Q8_0.gguf', 'x/file/f-Q8_0.gguf',
                os.path.join(root, 'url-Q8_0.gguf'), precious[0], 'x/good/fifo-Q8_0.gguf', '../x', 'x/sub/sub/p-Q8_0.gguf'):
        t.run(66, arg, cmd='rm', err='no cached model')
    t.run(0, 'x/good:Q8_0', cmd='rm')
    t.run(0, 'x/good', cmd='rm')
    t.check(all(os.path.isfile(f) for f in precious), 'a file outside of the cache is removed')
    t.check(os.path.isdir(os.path.join(root, 'models--x--good')), 'rm removed a folder that is not empty')
    t.run(74, cmd='list', env={'LLAMA_CACHE': precious[0]}, err='Not a directory')


def splits(t):
    part = ['m-Q4_K_M-%05d-of-00003.gguf' % i for i in (1, 2, 3)]
    t.hub.repos['o/s'] = {p: t.model + p.encode() for p in part}
    t.run(0, '-hf', 'o/s', '--dry-run', out=part[2])
    t.run(0, '-hf', 'o/s', err=part[2])
    for p in part:
        at = t.path('models--o--s/snapshots', COMMIT, p)
        t.check(os.path.exists(at) and open(at, 'rb').read() == t.model + p.encode(), p)
    del t.hub.repos['o/s'][part[1]]
    shutil.rmtree(t.path('models--o--s'))
    t.run(65, '-hf', 'o/s', err='part 2 of 3')


def resume(t):
    """Truncated responses, partial files of an earlier run, servers without ranges, and wrong files."""
    t.hub.repos['o/r'] = {'r-Q4_K_M.gguf': t.model}
    oid = hashlib.sha256(t.model).hexdigest()
    blob = t.path('models--o--r/blobs', oid)
    t.hub.behave['r-Q4_K_M.gguf'] = ['cut', 'cut']
    t.run(0, '-hf', 'o/r', out='gemma3')
    asked = t.hub.asked('GET', 'r-Q4_K_M.gguf')
    t.check(len(asked) == 3 and [a[2].get('Range') for a in asked] == [None, 'bytes=%d-' % (len(t.model) // 2), 'bytes=%d-' % (
        len(t.model) // 2 + (len(t.model) - len(t.model) // 2) // 2)], 'truncated responses are not resumed: %s' % [a[2].get('Range') for a in asked])
    for begun, behave, requests in ((t.model[:1000], [], 1), (t.model[:1000], ['norange'], 1), (b'wrong' * 200, [], 2),
                                    (t.model + b'more', [], 1), (t.model, [], 0), (b'', ['garble'], 2)):
        t.empty()
        os.makedirs(os.path.dirname(blob))
        open(blob + '.downloadInProgress', 'wb').write(begun)
        t.hub.behave['r-Q4_K_M.gguf'] = behave
        t.run(0, '-hf', 'o/r', out='gemma3')
        t.check(len(t.hub.asked('GET', 'r-Q4_K_M.gguf')) == requests, 'begun with %d bytes: %d requests, not %d' % (
            len(begun), len(t.hub.asked('GET', 'r-Q4_K_M.gguf')), requests))
        t.check(open(blob, 'rb').read() == t.model, 'resumed to another file')
        t.check(not os.path.exists(blob + '.downloadInProgress'), 'a part is left')
    t.empty()
    t.hub.behave['r-Q4_K_M.gguf'] = ['garble', 'garble']
    t.run(65, '-hf', 'o/r', err='wrong checksum')
    t.check(not os.path.exists(blob) and not os.path.exists(blob + '.downloadInProgress'), 'a wrong file is left')
    t.run(0, '-hf', 'o/r', out='gemma3')
    os.truncate(blob, 77)  # damage to a cached blob is noticed, and the file is fetched again
    t.run(0, '-hf', 'o/r', out='gemma3')


def statuses(t):
    t.hub.repos['o/p'] = {'p-Q4_K_M.gguf': t.model}
    t.hub.behave['r-none'] = []
    t.hub.behave['/refs'] = ['500']
    t.hub.behave['p-Q4_K_M.gguf'] = ['503', 'drop', '500']
    t.run(0, '-hf', 'o/p', out='gemma3')
    t.run(78, '-hf', 'o/none', err='HF_TOKEN')
    t.hub.private.add('o/p')
    t.empty()
    t.run(78, '-hf', 'o/p', err='(401)')
    t.run(78, '-hf', 'o/p', '-hft', 'hf_wrong', err='is invalid')
    t.run(0, '-hf', 'o/p', env={'HF_TOKEN': TOKEN}, out='gemma3')
    t.run(0, '-hf', 'o/p', out='gemma3', err='continuing with the cached files')  # refused, but it is there
    t.hub.gated.add('o/p')
    t.empty()
    t.run(78, '-hf', 'o/p', '--hf-token', TOKEN, err='accept its terms at ' + t.hub.url + 'o/p')
    t.hub.gated.clear(), t.hub.private.clear()
    t.hub.behave['p-Q4_K_M.gguf'] = ['404']
    t.run(66, '-hf', 'o/p', err='(404)')
    t.run(66, '-hf', 'o/p', '--offline', err='--offline prevents')
    t.check(not t.hub.asked('HEAD', ''), 'asked offline')
    nobody = {'MODEL_ENDPOINT': 'http://127.0.0.1:9/'}
    t.run(0, '-hf', 'o/p', out='gemma3')
    t.run(0, '-hf', 'o/p', env=nobody, out='gemma3', err='continuing with the cached files')


def redirects(t):
    """The token goes to the hub only, not to the host that the hub redirects to."""
    t.hub.elsewhere, t.hub.repos['o/x'] = Hub(), {'x-Q4_K_M.gguf': t.model}
    t.hub.private.add('o/x')
    t.run(0, '-hf', 'o/x', '-hft', TOKEN, out='gemma3')
    t.check([s[2].get('Authorization') for s in t.hub.asked('GET', 'x-Q4_K_M.gguf')] == ['Bearer ' + TOKEN], 'the hub got no token')
    got = t.hub.elsewhere.seen
    t.check(len(got) == 1 and not any('uthorization' in k for s in got for k in s[2]), 'the token went on to another host')
    t.hub.private.clear()
    t.run(0, '-mu', t.hub.url + 'o/x/resolve/main/x-Q4_K_M.gguf', out='gemma3')
    t.hub.elsewhere.behave['x-Q4_K_M.gguf'] = ['200ok', 'garble', 'garble']
    os.unlink(t.path('x-Q4_K_M.gguf'))
    t.run(65, '-mu', t.hub.url + 'o/x/resolve/main/x-Q4_K_M.gguf', err='wrong checksum')


def addresses(t):
    """-mu: a file is kept by its ETag and fetched again when that changes. Only a part with the current ETag is
    resumed."""
    t.hub.files['d/m.gguf'] = t.model
    url = t.hub.url + 'd/m.gguf'
    t.run(0, '-mu', url, '--dry-run', out='%d bytes  m.gguf -> %s' % (len(t.model), t.path('m.gguf')))
    t.run(0, '-mu', url + '?download=true', out='gemma3')
    t.check(open(t.path('m.gguf.etag')).read() == '"%s"' % hashlib.md5(t.model).hexdigest(), 'm.gguf.etag is not the ETag')
    t.run(0, '-mu', url, out='gemma3')
    t.check(len(t.hub.asked('GET', 'm.gguf')) == 1, 'fetched again, though the ETag is the same')
    t.hub.files['d/m.gguf'] = t.model + b'new'
    t.run(0, '-mu', url, out='gemma3')
    t.check(open(t.path('m.gguf'), 'rb').read() == t.model + b'new', 'not fetched again, though the ETag changed')
    t.run(0, '-mu', url, '--offline', out='gemma3')
    t.hub.behave['m.gguf'] = ['404']
    t.run(0, '-mu', url, out='gemma3', err='continuing with the existing file')
    t.run(66, '-mu', t.hub.url + 'd/none.gguf', err='(404)')
    t.run(66, '-mu', t.hub.url + 'd/none.gguf', '--offline', err='--offline prevents')
    t.run(0, '-mu', url, '-m', t.path('named.gguf'), out='gemma3')
    t.check(os.path.exists(t.path('named.gguf')), '-m is not where -mu goes')
    for begun, etag, ranged in ((t.model[:500], t.model + b'new', True), (b'old' * 100, b'old', False), (b'old' * 100, None, False)):
        os.unlink(t.path('m.gguf'))
        open(t.path('m.gguf.downloadInProgress'), 'wb').write(begun)
        if etag: open(t.path('m.gguf.downloadInProgress.etag'), 'w').write('"%s"' % hashlib.md5(etag).hexdigest())
        t.hub.seen.clear()
        t.run(0, '-mu', url, out='gemma3')
        t.check([('Range' in s[2]) for s in t.hub.asked('GET', 'm.gguf')] == [ranged], 'a part, ETag %s' % etag)
        t.check(open(t.path('m.gguf'), 'rb').read() == t.model + b'new', 'a part of another file was resumed')
    for i in (1, 2): t.hub.files['d/s-%05d-of-00002.gguf' % i] = t.model + b'%d' % i
    t.run(0, '-mu', t.hub.url + 'd/s-00001-of-00002.gguf', out='gemma3', err='s-00002-of-00002.gguf')
    t.check(open(t.path('s-00002-of-00002.gguf'), 'rb').read() == t.model + b'2', 'part 2 of an address')
    for bad in ('ftp://x/y.gguf', 'm.gguf', 'http://127.0.0.1/'):
        t.run(64, '-mu', bad, err='--model-url')
    # a file where the cache folder should be
    t.run(74, '-mu', url, env={'LLAMA_CACHE': t.path('m.gguf')}, err='m.gguf')


def interrupts(t):
    """Ctrl-C keeps the received part; two concurrent runs fetch the same file once; a full disk is reported."""
    t.hub.repos['o/i'] = {'i-Q4_K_M.gguf': t.model}
    oid = hashlib.sha256(t.model).hexdigest()
    part = t.path('models--o--i/blobs', oid + '.downloadInProgress')
    t.hub.behave['i-Q4_K_M.gguf'] = ['slow', 'slow']
    p = call('inspect', '-hf', 'o/i', env=t.env)
    until = time.monotonic() + 20
    while time.monotonic() < until and not (os.path.exists(part) and os.path.getsize(part) > 8192): time.sleep(0.02)
    p.send_signal(signal.SIGINT)
    err = p.communicate(timeout=20)[1].decode()
    t.stderr = err
    t.check(p.returncode == 130, 'Ctrl-C: exit %d' % p.returncode)
    t.check(os.path.exists(part) and 8192 <= os.path.getsize(part) < len(t.model), 'Ctrl-C: the part is gone')
    os.unlink(part)
    on_terminal(t)
    both = [call('inspect', '-hf', 'o/i', '--no-cost', env=t.env) for _ in range(2)]
    said = [b.communicate(timeout=60)[1].decode() for b in both]
    t.stderr = ' '.join(said)
    t.check([b.returncode for b in both] == [0, 0], 'two concurrent runs: exits %s' % [b.returncode for b in both])
    t.check(len(t.hub.asked('GET', 'i-Q4_K_M.gguf')) == 2,
            'two concurrent runs: %d requests' % (len(t.hub.asked('GET', 'i-Q4_K_M.gguf')) - 1))
    os.symlink('/dev/full', t.path('f.gguf.downloadInProgress'))
    t.hub.files.update({'f.gguf': t.model, 'huge.gguf': t.model})
    t.run(74, '-mu', t.hub.url + 'f.gguf', err='f.gguf.downloadInProgress')
    t.hub.behave['huge.gguf'] = ['huge']
    t.run(74, '-mu', t.hub.url + 'huge.gguf', err='the disk is too small')
    full_disk(t)


def on_terminal(t):
    """On a terminal one line shows the progress, and is erased at the end."""
    name = 'a' * 50 + '-' + 'b' * 50 + '.gguf'
    t.hub.files[name], t.hub.behave[name] = t.model, [None, 'slow']
    pid, fd = pty.fork()
    if not pid: os.execve(BIN, [BIN, 'inspect', '-mu', t.hub.url + name, '--no-tensors', '--no-cost'], {**os.environ, **t.env})
    text = b''
    try:
        while True:
            got = os.read(fd, 4096)
            text += got
            if not got: break
    except OSError:
        pass
    t.stderr = text.decode(errors='replace')
    lines = t.stderr.split('\r\x1b[K')[1:-1]
    t.check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, 'on a terminal: not fetched')
    t.check(len(lines) > 2 and all(p.startswith('...') and 'b.gguf  ' in p and ' % ' in p and ' of ' in p and len(p) < 80
                             for p in lines), 'no line on the terminal, or one too long for it: %s' % lines[:3])
    t.check(any('/s  ' in p and ' left' in p for p in lines), 'the line has no rate or time')


def full_disk(t):
    """A full file system: a small tmpfs, where an unprivileged user may mount one."""
    dir, url = t.path('small'), t.hub.url + 'full.gguf'
    os.mkdir(dir)
    mount = 'mount -t tmpfs -o size=128k none "$1" && echo mounted && exec "$2" inspect -mu "$3"'
    # the size is unknown until the body arrives
    t.hub.files['full.gguf'], t.hub.behave['full.gguf'] = t.model, ['405']
    env = {**os.environ, **t.env, 'LLAMA_CACHE': dir}
    p = subprocess.run(['unshare', '-rm', 'sh', '-c', mount, 'sh', dir, BIN, url], env=env, capture_output=True, timeout=60)
    t.stderr = p.stderr.decode()
    if b'mounted' not in p.stdout: return
    t.check(p.returncode == 74 and 'the disk is full' in t.stderr and 'LLAMA_CACHE' in t.stderr, 'a full disk: exit %d' % p.returncode)


def without_curl(t):
    t.run(69, '-hf', 'o/none', err='PAGEDINFER_CURL=ON')
    t.run(69, '-mu', 'http://127.0.0.1:9/m.gguf', err='PAGEDINFER_CURL=ON')
    dir = t.path('models--o--c')
    os.makedirs(os.path.join(dir, 'refs'))
    os.makedirs(os.path.join(dir, 'snapshots', COMMIT))
    open(os.path.join(dir, 'refs', 'main'), 'w').write(COMMIT)
    open(os.path.join(dir, 'snapshots', COMMIT, 'c-Q4_K_M.gguf'), 'wb').write(t.model)
    t.run(0, '-hf', 'o/c', out='gemma3')


def main():
    with tempfile.TemporaryDirectory() as dir:
        path = os.path.join(dir, 'tiny.gguf')
        write_model(path)
        with open(path, 'rb') as f: model = f.read()
        probe = Test(dir, model)
        probe.run(69 if b'PAGEDINFER_CURL' in call('inspect', '-hf', 'o/none', env=probe.env).communicate()[1] else 78, '-hf', 'o/none')
        tests = (without_curl,) if 'PAGEDINFER_CURL' in probe.stderr else (layout, choice, arguments, vision, cached, hostile_cache, splits, resume, statuses, redirects,
                                                                          addresses, interrupts)
        for test in tests:
            start = time.monotonic()
            test(Test(dir, model))
            if os.environ.get('PAGEDINFER_VERBOSE'): print('%-14s %.1f s' % (test.__name__, time.monotonic() - start))
    for f in faults:
        print(f)
    print('check_download: %s' % ('%d faults' % len(faults) if faults else 'passed' if len(tests) > 1 else
                                  'passed, as far as a build without libcurl goes'))
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
