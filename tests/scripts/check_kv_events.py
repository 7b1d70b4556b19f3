#!/usr/bin/env python3
"""Subscribes to pagedinfer serve --kv-events as a router does. The subscriber uses PyPI's pyzmq and msgspec, reads
only the stream, and tracks the set of blocks that the server has cached.

1. Thousands of random requests with shared prefixes through a small cache (10,000 with PAGEDINFER_LONG=1), for a model
   with full attention, one with windows and one with recurrent layers. The server must report as cached_tokens the
   number that the subscriber expects of a prompt. After missed and replayed batches the subscriber has the same set of
   blocks. A subscriber that never reads slows nothing.
2. Replay: from any batch number on, of batches that are no longer stored, and malformed requests.
3. Long conversations over two servers. Routing by the stream must give at least 1.8 times as many cached tokens as
   round-robin routing.
4. The index of PyPI's ai-dynamo-runtime, if it is installed, subscribes to the same server and must report the same.
Exit 77: the build has no KV events, or a package is missing."""
import json, http.client, os, random, re, signal, socket, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(HERE, '../../build'))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
LONG = bool(os.environ.get('PAGEDINFER_LONG'))
try:
    import msgspec, zmq
except ImportError as e:
    print(f'needs pyzmq and msgspec: {e}')
    sys.exit(77)
ZMQ = zmq.Context()
END = 2 ** 64 - 1
faults = []


def fault(text):
    faults.append(text)
    if len(faults) < 20: print('  ' + text)


def expect(what, got, want):
    if got != want: fault(f'{what}: {str(got)[:300]}, not {str(want)[:300]}')


class Server:
    def __init__(self, model, *flags, topic='', keep='100000'):
        self.log = tempfile.NamedTemporaryFile('w+', suffix='.log')
        self.p = subprocess.Popen([BIN, 'serve', '-m', model, '--port', '0', '--parallel', '4', '-t', '1', '--threads-http', '1',
                                   '--kv-events', 'tcp://127.0.0.1:*', '--kv-events-replay', 'tcp://127.0.0.1:*',
                                   '--kv-events-topic', topic, '--kv-events-buffer', keep, *flags],
                                  stdout=subprocess.DEVNULL, stderr=self.log)
        m = self.wait_for(r'KV events at (\S+), replay at (\S+)\n(?:.*\n)*listening on http://127\.0\.0\.1:(\d+)')
        self.events, self.replay, self.port = m[1], m[2], int(m[3])
        self.local = threading.local()

    def text(self):
        with open(self.log.name, errors='replace') as f: return f.read()

    def wait_for(self, pattern):
        for _ in range(1200):
            m = re.search(pattern, self.text())
            if m: return m
            if self.p.poll() is not None: break
            time.sleep(0.025)
        if 'this build has no KV events' in self.text():
            print('this build has no KV events (PAGEDINFER_KV_EVENTS)')
            sys.exit(77)
        self.p.kill()
        sys.exit(f'no {pattern!r} from the server (exit {self.p.poll()}): {self.text()[-2000:]}')

    def end(self):
        self.p.send_signal(signal.SIGTERM)
        try: expect('exit status of the server', self.p.wait(30), 0)
        except subprocess.TimeoutExpired:
            self.p.kill()
            fault('the server did not end')
        if 'Sanitizer' in self.text(): fault(self.text()[-3000:])

    def metric(self, name):
        with urllib.request.urlopen(f'http://127.0.0.1:{self.port}/metrics') as r: text = r.read().decode()
        return float(re.search(rf'^{name}\{{.*\}} (\S+)$', text, re.M)[1])

    def ask(self, ids, n=1, **more):
        """Returns the cached tokens of this prompt. Each thread has its own connection."""
        for again in (True, False):
            c = getattr(self.local, 'c', None)
            if not c: c = self.local.c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=60)
            try:
                c.request('POST', '/v1/completions', json.dumps({'prompt': ids, 'max_tokens': n, 'ignore_eos': True, 'temperature': 0, **more}))
                r = c.getresponse()
                body = json.loads(r.read())
                break
            except (ConnectionError, http.client.HTTPException):
                self.local.c = None
                if not again: raise
        if r.status != 200: fault(f'{r.status}: {body}')
        return body['usage']['prompt_tokens_details']['cached_tokens'] if r.status == 200 else 0


class Index:
    """The blocks that a server has reported as stored, tracked from its stream only."""
    def __init__(self, server, topic=''):
        self.s, self.topic, self.blocks, self.block, self.next = server, topic, {}, 0, None
        self.gaps = 0
        self.children = {}   # hash of a block (None: the empty prefix) -> {tokens of the next block: its hash}
        self.connect()
        self.replay(0)

    def connect(self):
        self.sub = ZMQ.socket(zmq.SUB)
        self.sub.setsockopt(zmq.RCVHWM, 0)
        self.sub.setsockopt_string(zmq.SUBSCRIBE, self.topic)
        self.sub.connect(self.s.events)

    def replay(self, first):
        """Applies the batches from number `first` on that the server still stores. Returns their numbers."""
        d = ZMQ.socket(zmq.DEALER)
        d.setsockopt(zmq.RCVHWM, 0)
        d.connect(self.s.replay)
        d.send_multipart([b'', first.to_bytes(8, 'big')])
        seen = []
        while True:
            if not d.poll(20000):
                fault('a replay does not end')
                break
            empty, number, payload = d.recv_multipart()
            expect('first frame of a replay', empty, b'')
            n = int.from_bytes(number, 'big')
            if n == END:
                expect('payload of the end', payload, b'')
                break
            seen.append(n)
            self.batch(n, payload)
        d.close(0)
        return seen

    def close(self): self.sub.close(0)

    def batch(self, n, payload):
        if self.next is not None and n < self.next: return  # already applied by a replay
        if n != (self.next or 0): self.gaps += 1
        self.next = n + 1
        when, events, rank = msgspec.msgpack.decode(payload)
        if abs(when - time.time()) > 600 or rank != 0: fault(f'time {when}, rank {rank}')
        for e in events: getattr(self, e[0])(*e[1:])

    def BlockStored(self, hashes, parent, tokens, block, lora, medium, lora_name):
        expect('lora_id, medium, lora_name', (lora, medium, lora_name), (None, 'GPU', None))
        expect('tokens of blocks', len(tokens), len(hashes) * block)
        if self.block and block != self.block: fault(f'blocks of {block}, then {self.block}')
        self.block = block
        if parent is not None and parent not in self.blocks and not self.gaps: fault(f'the block before {hashes[0]} is not known')
        for i, h in enumerate(hashes):
            t = tuple(tokens[i * block:(i + 1) * block])
            if h in self.blocks: fault(f'{h} is stored twice')
            self.blocks[h] = (parent, t)
            self.children.setdefault(parent, {})[t] = h
            parent = h

    def BlockRemoved(self, hashes, medium):
        expect('medium', medium, 'GPU')
        for h in hashes:
            if h not in self.blocks:
                if not self.gaps: fault(f'{h} is removed and was not there')
                continue
            parent, t = self.blocks.pop(h)
            del self.children[parent][t]

    def AllBlocksCleared(self):
        self.blocks, self.children = {}, {}

    def read(self, wait=0):
        while self.sub.poll(wait):
            topic, number, payload = self.sub.recv_multipart()
            expect('topic', topic, self.topic.encode())
            self.batch(int.from_bytes(number, 'big'), payload)

    def settle(self):
        """Reads until no batch is missing and no more arrive."""
        for _ in range(500):
            sent = self.s.metric('pagedinfer:kv_event_batches_total')
            if self.sub.poll(15): self.read(5)
            elif self.next == sent == self.s.metric('pagedinfer:kv_event_batches_total'): return
            elif self.next is not None and self.next < sent and not self.sub.poll(200): self.replay(self.next)
        fault(f'{self.next} batches arrive of {sent}')

    def match(self, ids):
        """Returns the number of tokens of the longest known prefix, and True if no block is known after it."""
        at, n = None, 0
        while self.block and n + self.block < len(ids):
            h = self.children.get(at, {}).get(tuple(ids[n:n + self.block]))
            if h is None: break
            at, n = h, n + self.block
        return n, not self.children.get(at)


def prompts(r, n):
    """Yields prompts with shared prefixes: a random one, or the beginning of an earlier one followed by new tokens."""
    known = []
    for _ in range(n):
        base = r.choice(known)[:r.randrange(8, 220)] if known and r.random() < 0.8 else []
        p = (base + [r.randrange(3, 200) for _ in range(r.randrange(4, 90))])[:300]
        if len(known) < 60: known.append(p)
        else: known[r.randrange(60)] = p
        yield p


def load(s, ps, seed, index):
    """Sends the prompts, four at a time; a few have a salt and must not appear in the stream. Reads `index`
    meanwhile."""
    r = random.Random(seed)
    left, lock, done = iter(ps), threading.Lock(), threading.Event()

    def work():
        while True:
            with lock:
                p, n, salt = next(left, None), r.randrange(1, 6), r.random() < 0.05
            if p is None: return
            s.ask(p, n, **({'cache_salt': 'x'} if salt else {}))
    t = [threading.Thread(target=work) for _ in range(4)]
    for x in t: x.start()
    while any(x.is_alive() for x in t):
        if index: index.read(20)
        else: time.sleep(0.05)
    for x in t: x.join()
    if index: index.settle()


def probe(s, index, ps, full, what):
    """The number of cached tokens that the index expects must be the number that the server reports."""
    hits = exact = 0
    for p in ps:
        index.settle()
        want, is_last = index.match(p)
        got = s.ask(p)
        if got > want: fault(f'{what}: {got} tokens cached, {want} known')
        # A prefix inside a longer one cannot always be reused, unless all attention layers are full.
        if (full or is_last or not want) and got != want: fault(f'{what}: {got} tokens cached of {len(p)}, {want} expected')
        hits += got > 0
        exact += got == want
    if hits < len(ps) // 8: fault(f'{what}: only {hits} of {len(ps)} prompts found anything')
    return f'{hits} hits, {exact} of {len(ps)} exact'


def state(index): return {h: v for h, v in index.blocks.items()}


def same_set(model, full, n):
    s = Server(model, '-c', '512', '--kv-cache-tokens', '4096', topic='kv@test@tiny')
    index = Index(s, 'kv@')  # a prefix of the topic is enough for a subscription
    index.topic = 'kv@test@tiny'
    asleep = ZMQ.socket(zmq.SUB)  # this subscriber never reads
    asleep.setsockopt(zmq.RCVHWM, 1)
    asleep.setsockopt(zmq.RCVBUF, 4096)
    asleep.setsockopt_string(zmq.SUBSCRIBE, '')
    asleep.connect(s.events)
    other = ZMQ.socket(zmq.SUB)   # a subscription to another topic
    other.setsockopt_string(zmq.SUBSCRIBE, 'kv@none')
    other.connect(s.events)
    s.wait_for('is ready')
    r, name = random.Random(n), os.path.basename(model)
    ps = list(prompts(r, n))
    told = []
    for part in range(2):
        load(s, ps[part * n // 2:(part + 1) * n // 2], part, index)
        told.append(probe(s, index, [r.choice(ps[(part + 1) * n // 2 - 50:(part + 1) * n // 2]) for _ in range(24)], full, f'{name}, part {part}'))
    # Batches are missed while no subscriber listens. The replay starts at the last known one.
    index.settle()
    fresh = Index(s, 'kv@test@tiny')
    fresh.settle()
    expect(f'{name}: a replay from the first batch on', state(fresh) == state(index), True)
    index.close()
    load(s, list(prompts(r, max(40, n // 10))), 3, fresh)
    index.connect()
    index.replay(index.next)
    index.settle()
    expect(f'{name}: the set after a replay', state(fresh) == state(index), True)
    expect(f'{name}: gaps', (index.gaps, fresh.gaps), (0, 0))
    expect(f'{name}: lost', s.metric('pagedinfer:kv_events_lost_total'), 0)
    expect(f'{name}: batches of another topic', other.poll(0), 0)
    m = re.search(r'block_size="(\d+)",num_gpu_blocks="(\d+)"', urllib.request.urlopen(f'http://127.0.0.1:{s.port}/metrics').read().decode())
    expect(f'{name}: block_size in /metrics', int(m[1]), fresh.block)
    if full and len(fresh.blocks) > int(m[2]): fault(f'{len(fresh.blocks)} blocks known, the cache has {m[2]}')
    print(f'{name}: {n} requests, {index.next} batches, {len(index.blocks)} blocks known at the end; {"; ".join(told)}')
    for x in (index, fresh): x.close()
    for x in (asleep, other): x.close(0)
    s.end()


def replays(model):
    s = Server(model, '-c', '512', '--kv-cache-tokens', '2048', keep='5')
    index = Index(s)
    s.wait_for('is ready')
    for i in range(12):
        s.ask([3 + i] * 40)
        index.settle()
    last = index.next - 1
    d = ZMQ.socket(zmq.DEALER)
    d.connect(s.replay)
    for wrong in ([b'x'], [b''], [b'', b'short'], [b'', bytes(8), b''], [b'', bytes(9)], [b'x', bytes(8)], [b'', b'', bytes(8)]):
        d.send_multipart(wrong)
    d.send_multipart([b'', (last - 1).to_bytes(8, 'big')])  # the only valid request
    got = []
    while not got or got[-1] != END:
        if not d.poll(10000):
            fault('no answer after malformed requests')
            break
        got.append(int.from_bytes(d.recv_multipart()[1], 'big'))
    expect('a replay after malformed requests', got, [last - 1, last, END])
    expect('nothing else', d.poll(100), 0)
    d.send_multipart([b'', (last + 5).to_bytes(8, 'big')])
    expect('a replay of future batches', d.poll(10000) and d.recv_multipart()[1], END.to_bytes(8, 'big'))
    d.close(0)
    late = Index(s)  # subscribes too late: only the last five batches are stored
    expect('the stored batches', (late.next - 1, late.gaps), (last, 1))
    late.close()
    index.close()
    gone = Index(s)  # a peer requests replays and disconnects
    x = ZMQ.socket(zmq.DEALER)
    x.connect(s.replay)
    for _ in range(50): x.send_multipart([b'', bytes(8)])
    x.close(0)
    gone.settle()
    gone.close()
    expect('the server after that', s.ask([9] * 40), 32)
    s.end()
    r = subprocess.run([BIN, 'serve', '-m', model, '--port', '0', '--kv-events', s.events.replace('tcp', 'udp')],
                       capture_output=True, text=True, timeout=60)
    expect('an invalid endpoint', (r.returncode, 'give tcp://' in r.stderr), (78, True))
    # here the server connects and the subscriber listens, like a subscriber that is a service
    with tempfile.TemporaryDirectory() as d:
        sub = ZMQ.socket(zmq.SUB)
        sub.setsockopt_string(zmq.SUBSCRIBE, '')
        port = sub.bind_to_random_port('tcp://127.0.0.1')
        p = subprocess.Popen([BIN, 'serve', '-m', model, '-c', '512', '--unix-socket', os.path.join(d, 's'), '--kv-events', f'tcp://localhost:{port}',
                              '--kv-events-replay', f'ipc://{d}/replay'], stderr=subprocess.PIPE, text=True)
        line = p.stderr.readline()
        if 'KV events to tcp://localhost:' not in line: fault(f'an endpoint elsewhere: {line!r}')
        while line and 'is ready' not in line: line = p.stderr.readline()
        c = http.client.HTTPConnection('localhost')
        for _ in range(40):  # until the connection is established
            c.sock = socket.socket(socket.AF_UNIX)
            c.sock.connect(os.path.join(d, 's'))
            c.request('POST', '/v1/completions', json.dumps({'prompt': [random.randrange(3, 200) for _ in range(40)], 'max_tokens': 1}))
            c.getresponse().read()
            c.close()
            if sub.poll(100): break
        else: fault('nothing arrives at a subscriber that listens')
        sub.close(0)
        p.send_signal(signal.SIGTERM)
        expect('exit status', p.wait(20), 0)
        p.stderr.close()
        expect('files left in the folder', sorted(os.listdir(d)), [])


def conversations(model, by_index):
    """Returns the cached tokens of long conversations over two servers; each server can store half of them."""
    n, turns = 16, 12
    servers = [Server(model, '-c', '1024', '--kv-cache-tokens', '4736') for _ in range(2)]
    indexes = [Index(s) for s in servers]
    for s in servers: s.wait_for('is ready')
    r = random.Random(5)
    talk = [[r.randrange(3, 200) for _ in range(400)] for _ in range(n)]
    cached = total = sent = to = 0
    given = [0, 0]  # prompt tokens that each server had to compute
    for _ in range(turns):
        order = list(range(n))
        r.shuffle(order)  # clients reply in a different order in each turn
        for i in order:
            talk[i] += [r.randrange(3, 200) for _ in range(16)]
            if by_index:
                indexes[to].settle()  # the other server has no new events
                known = [x.match(talk[i])[0] for x in indexes]
                to = known.index(max(known)) if known[0] != known[1] else given.index(min(given))
            else: to = sent % 2
            got = servers[to].ask(talk[i], 4)
            given[to] += len(talk[i]) - got
            cached, total, sent = cached + got, total + len(talk[i]), sent + 1
    for x in indexes: x.close()
    for s in servers: s.end()
    return cached, total


def routed(model):
    (turn, total), (index, _) = conversations(model, False), conversations(model, True)
    print(f'two servers, 16 conversations of 12 turns, {total} tokens of prompts: {turn} cached in turn, {index} by the index '
          f'({index / max(1, turn):.2f} times)')
    if index < 1.8 * turn: fault(f'by the index {index} tokens are cached, in turn {turn}')


def dynamo(model):
    """Runs the index of NVIDIA's router as a program, subscribed to the same stream."""
    try: import dynamo._core
    except ImportError:
        print('ai-dynamo-runtime is not installed: its index is not compared')
        return
    s = Server(model, '-c', '512', '--kv-cache-tokens', '4096')
    index = Index(s)
    s.wait_for('is ready')
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    p = subprocess.Popen([sys.executable, '-m', 'dynamo.indexer', '--port', str(port), '--threads', '1'], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)

    def call(path, body):
        r = urllib.request.Request(f'http://127.0.0.1:{port}{path}', json.dumps(body).encode(), {'Content-Type': 'application/json'})
        for wait in range(200):
            try:
                with urllib.request.urlopen(r) as a: return json.loads(a.read())
            except urllib.error.URLError as e:
                if isinstance(e, urllib.error.HTTPError) or wait == 199: raise
                time.sleep(0.05)
    call('/register', {'instance_id': 1, 'endpoint': s.events, 'replay_endpoint': s.replay, 'model_name': 'm', 'block_size': 16})
    r = random.Random(8)
    ps = list(prompts(r, 400))
    load(s, ps, 8, index)
    same = 0
    for i in range(40):
        ids = r.choice(ps[-150:])
        for wait in range(50):  # the index reads in a thread of its own
            index.settle()
            theirs = call('/query', {'token_ids': ids, 'model_name': 'm'})['scores'].get('1', {}).get('0', 0)
            ours = index.match(ids + [0])[0]  # the index also counts the last block of a prompt
            if theirs == ours: break
            time.sleep(0.02)
        expect('tokens that its index knows of a prompt', theirs, ours)
        same += theirs > 0
        expect('cached tokens', s.ask(ids), min(theirs, (len(ids) - 1) // 16 * 16))
    print(f"ai-dynamo-runtime's index: the same for 40 prompts, {same} of them known")
    p.terminate()
    p.wait(20)
    index.close()
    s.end()


def raw_peer(endpoint, kind):
    """Returns a socket and file of a peer that has completed the ZMTP 3.0 handshake."""
    host, port = endpoint[len('tcp://'):].rsplit(':', 1)
    c = socket.create_connection((host, int(port)), 20)
    c.sendall(b'\xff' + bytes(7) + b'\1\x7f\3\0NULL' + bytes(16) + b'\0' + bytes(31))
    f = c.makefile('rb')
    f.read(64)
    ready = b'\x05READY\x0bSocket-Type' + len(kind).to_bytes(4, 'big') + kind + b'\x08Identity' + bytes(4)
    c.sendall(b'\4' + bytes([len(ready)]) + ready)
    f.read(1)
    f.read(f.read(1)[0])
    return c, f


def memory(s, what):
    with open(f'/proc/{s.p.pid}/status') as f: return int(re.search(rf'{what}:\s+(\d+)', f.read())[1]) // 1024


def hostile(model):
    """Endless frames, a million topics, silent peers: the server's memory stays bounded, and subscribers are
    served."""
    s = Server(model, '-c', '512', '--kv-cache-tokens', '2048')
    index = Index(s)
    s.wait_for('is ready')
    s.ask([3] * 40)
    index.settle()
    before = memory(s, 'VmRSS')
    silent = [socket.create_connection(('127.0.0.1', int(e.rsplit(':', 1)[1]))) for e in (s.events, s.replay) for _ in range(20)]
    for endpoint, kind in (s.replay, b'DEALER'), (s.events, b'SUB'):
        c, f = raw_peer(endpoint, kind)
        sent = 0
        try:
            c.sendall(b'\2' + (1 << 30).to_bytes(8, 'big'))
            for _ in range(256):
                c.sendall(bytes(1 << 20))
                sent += 1
            fault(f'{endpoint}: {sent} MB of one frame were taken')
        except OSError: pass
        c.close()
    c, f = raw_peer(s.events, b'SUB')
    n = 0
    try:
        for i in range(400):  # a million topics
            c.sendall(b''.join(b'\0\x21\1' + (i * 2500 + j).to_bytes(8, 'big') * 4 for j in range(2500)))
            n += 2500
    except OSError: pass
    c.close()
    if n > 900000: fault(f'{n} topics of one peer were taken')
    grown = memory(s, 'VmHWM') - before
    if grown > 100: fault(f'peers made the server grow by {grown} MB')
    for i in range(100):  # the subscriber reconnects by itself
        s.ask([5 + i] * 40)
        if index.sub.poll(200): break
    else: fault('the subscriber gets nothing any more')
    index.settle()        # and requests the missed batches
    expect('blocks that the subscriber knows', index.match([5 + i] * 40)[0], 32)
    expect('lost changes', s.metric('pagedinfer:kv_events_lost_total'), 0)
    for x in silent: x.close()
    index.close()
    expect('the server after that', s.ask([199] * 40), 0)
    s.end()


def main():
    tool = os.path.join(BUILD, 'tests', 'tool_tiny_model')
    if not os.path.exists(tool):
        print('no tool_tiny_model: configure with -DPAGEDINFER_TESTS=ON')
        sys.exit(77)
    only = sys.argv[1:]
    with tempfile.TemporaryDirectory() as d:
        def tiny(arch):
            path = os.path.join(d, arch + '.gguf')
            if not os.path.exists(path): subprocess.run([tool, path, '4096', arch], check=True)
            return path
        n, some = (10000, 10000) if LONG else (1500, 500)
        parts = {'full': lambda: same_set(tiny('llama3'), True, n), 'window': lambda: same_set(tiny('gemma3'), False, some),
                 'recurrent': lambda: same_set(tiny('qwen35'), False, some), 'replays': lambda: replays(tiny('llama3')),
                 'routed': lambda: routed(tiny('llama3')), 'dynamo': lambda: dynamo(tiny('llama3'))}
        parts['hostile'] = lambda: hostile(tiny('llama3'))
        for name, f in parts.items():
            if only and name not in only: continue
            t, c = time.time(), os.times()
            f()
            e = os.times()
            print(f'{name}: {time.time() - t:.1f} s, {e.user + e.system - c.user - c.system + e.children_user + e.children_system - c.children_user - c.children_system:.1f} s of CPU')
    print(f'KV events: {len(faults)} faults' if faults else 'KV events: passed')
    sys.exit(1 if faults else 0)


if __name__ == '__main__': main()
