#!/usr/bin/env python3
"""Checks the size of the cache without cache options, with pagedinfer serve and run and tiny random models.

1. Eight prompts of about 545 tokens run at the same time with --max-model-len 2048 --max-num-seqs 8. Nothing waits.
2. The ready line, /v1/models, /props and /metrics state the capacity. With a pool of one context, waits are counted,
   and one line is logged.
3. A --ctx-size that does not fit exits with 78 and states the length that fits.
4. In a cgroup with a memory limit, default pools stay below it: the server fills its cache and is not killed. A model
   above the limit exits with 71 and numbers. This needs a writable memory controller of cgroups, version 1 or 2;
   otherwise it is left out.
Exit 77: there is no server, or no tiny model."""
import json, os, re, subprocess, sys, tempfile, threading, time, urllib.request

import check_server as base
from check_server import BIN, Server, expect, fault

MIB = 1 << 20
LIMIT = 256 * MIB
TOKEN_BYTES = 16 * 2 * 8 * 64 * 2  # of the model `wide`: layers, K and V, heads, values of a head, f16
WAITS = 'pagedinfer:cache_block_waits_total'


def get(s, path):
    with urllib.request.urlopen(s.url + path, timeout=60) as r: return json.load(r)


def complete(s, text, n):
    body = {'prompt': text, 'max_tokens': n, 'temperature': 0, 'ignore_eos': True}
    r = urllib.request.Request(s.url + '/v1/completions', json.dumps(body).encode(), {'Content-Type': 'application/json'})
    with urllib.request.urlopen(r, timeout=600) as a: return json.load(a)['usage']


def burst(s, tokens=544):
    """Runs eight prompts at the same time; returns the largest number that ran, and their usage."""
    usage, most = [None] * 8, 0
    def one(i): usage[i] = complete(s, chr(ord('A') + i) * tokens, 1000)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads: t.start()
    while any(t.is_alive() for t in threads): most = max(most, s.metrics()['vllm:num_requests_running'])
    return most, usage


def bursts(model):
    flags = ('--max-model-len', '2048', '--max-num-seqs', '8', '-t', '1')
    s = Server(model, *flags)
    ready = s.wait_for(r'ready: (\d+) tokens per request; the cache holds (\d+) requests of this length, or (\d+) of (\d+) tokens; '
                       r'at most (\d+) run at the same time; \d+ MiB of memory; for more requests raise --parallel')
    expect('the ready line', [int(x) for x in ready.groups()], [2048, 8, 16, 1024, 8])
    expect('max_model_len', get(s, '/v1/models')['data'][0]['max_model_len'], 2048)
    expect('n_ctx', get(s, '/props')['default_generation_settings']['n_ctx'], 2048)
    most, usage = burst(s)
    expect('requests that run at the same time', most, 8)
    expect('their tokens', {u['completion_tokens'] for u in usage if u}, {1000})
    if not all(u and 500 < u['prompt_tokens'] < 600 for u in usage): fault(f'prompts of another length: {usage}')
    m = s.metrics()
    expect('waits, requests of full length', (m[WAITS], m['pagedinfer:cache_full_requests']), (0, 8))
    s.end()
    s = Server(model, *flags, '--kv-cache-tokens', '2048')
    s.wait_for(r'the cache holds 1 request of this length, or 2 of 1024 .* raise --kv-cache-tokens')
    most, _ = burst(s)
    if not 1 <= most <= 3: fault(f'{most} requests run at the same time in a cache of one context')
    if not 1 <= s.metrics()[WAITS] <= 8: fault(f'{s.metrics()[WAITS]} requests have waited')
    expect('lines about waits', s.text().count('wait for cache blocks'), 1)
    s.end()
    s = Server(model, '--kv-cache-tokens', '1024', '-t', '1') # the model's context is longer
    expect('max_model_len of a small cache', get(s, '/v1/models')['data'][0]['max_model_len'], 1024)
    expect('n_ctx of a small cache', get(s, '/props')['default_generation_settings']['n_ctx'], 1024)
    s.wait_for('ready: 1024 tokens per request')
    s.end()


def run(model, *flags, **more):
    return subprocess.run([BIN, 'run', '-m', model, '-p', 'a', '-n', '1', '-t', '1', *flags], capture_output=True, text=True, **more)


def refusals(model):
    r = run(model, '-c', '4096', '--kv-cache-tokens', '2048')
    expect('-c above the cache', (r.returncode, 'lower ctx-size to 2048' in r.stderr), (78, True))
    r = run(model, '-c', '16384')
    expect('-c above the trained context', (r.returncode, 'trained for 8192' in r.stderr), (0, True))
    r = run(model, '--memory-utilization', '1.5')
    expect('--memory-utilization 1.5', (r.returncode, 'out of range' in r.stderr), (64, True))


# --------------------------------------------------------------------------------------------------------------- cgroups

class Group:
    """A cgroup with a memory limit, below the one of this process; None as path = it could not be created."""
    def __init__(self, limit):
        self.path = None
        name = f'pagedinfer-check-{os.getpid()}'
        for line in open('/proc/self/cgroup'):
            _, kinds, path = line.rstrip('\n').split(':', 2)
            v1 = 'memory' in kinds.split(',')
            if kinds and not v1: continue
            for root in (['/sys/fs/cgroup/memory'] if v1 else ['/sys/fs/cgroup', '/sys/fs/cgroup/unified']):
                for parent in (root + path.rstrip('/'), root):
                    if self.path or not os.path.isdir(parent): continue
                    self.create(os.path.join(parent, name), 'memory.limit_in_bytes' if v1 else 'memory.max', limit)

    def create(self, path, file, limit):
        try:
            os.mkdir(path)
            if os.path.exists(os.path.join(path, file)):
                with open(os.path.join(path, file), 'w') as f: f.write(str(limit))
                with open(os.path.join(path, file)) as f: self.path = path if int(f.read()) == limit else None
            if not self.path: os.rmdir(path)
        except OSError: pass

    def enter(self):
        """Moves the calling process; for preexec_fn."""
        with open(os.path.join(self.path, 'cgroup.procs'), 'w') as f: f.write(str(os.getpid()))

    def remove(self):
        for _ in range(100):
            try: return os.rmdir(self.path)
            except OSError: time.sleep(0.05)
        fault(f'{self.path} could not be removed')


class Limited(Server):
    """A server in a cgroup."""
    def __init__(self, group, model, *flags):
        self.log = tempfile.NamedTemporaryFile('w+', suffix='.log')
        self.p = subprocess.Popen([BIN, 'serve', '-m', model, '--port', '0', *flags], stdout=subprocess.DEVNULL, stderr=self.log,
                                  preexec_fn=group.enter)
        self.port = int(self.wait_for(r'listening on http://127\.0\.0\.1:(\d+)')[1])
        self.url = f'http://127.0.0.1:{self.port}'
        self.wait_for('is ready')


def limited(model, large):
    group = Group(LIMIT)
    if not group.path: return 'no cgroup can be created'
    try:
        # 32 KiB per token: the pool is what fits the limit, not 256 requests of 8192 tokens
        s = Limited(group, model, '--parallel', '256', '-t', '1')
        planned = s.metrics()['pagedinfer:memory_planned_bytes']
        if not LIMIT / 4 < planned < LIMIT: fault(f'planned {planned / MIB:.0f} MiB within a limit of {LIMIT // MIB} MiB')
        s.wait_for('for more requests raise --memory-utilization')
        ctx, filled = get(s, '/v1/models')['data'][0]['max_model_len'], 0
        while filled < 1.5 * planned / TOKEN_BYTES: # writes every block, and evicts
            filled += complete(s, chr(ord('A') + filled % 26) + f'{filled} ' * (min(ctx, 4000) // 12), 4)['prompt_tokens']
        if s.metrics().get('pagedinfer:blocks_evictedgroup="full"', 1) == 0: fault('the cache was not filled')
        s.end()
        r = run(model, '-c', '8000000', preexec_fn=group.enter)
        expect('-c above the limit', (r.returncode, 'lower ctx-size to' in r.stderr), (78, True))
        r = run(large, preexec_fn=group.enter)
        expect('a model above the limit', (r.returncode, 'MiB are available' in r.stderr), (71, True))
        r = subprocess.run([BIN, 'weights', '-m', large, '--socket', large + '.sock'], capture_output=True, text=True,
                           preexec_fn=group.enter, timeout=60)
        expect('weights above the limit', (r.returncode, 'the weights need 4' in r.stderr), (71, True))
    finally:
        group.remove()
    return f'cgroup {group.path}'


def main():
    maker = base.tiny_maker()
    if not maker: return 77
    with tempfile.TemporaryDirectory() as d:
        model, large = os.path.join(d, 'tiny.gguf'), os.path.join(d, 'large.gguf')
        subprocess.run([maker, model, '8192'], check=True)
        bursts(model)
        refusals(model)
        wide = os.path.join(d, 'wide.gguf')
        subprocess.run([maker, wide, '8192', 'llama2', '0', 'Q8_0', 'L=16 E=512 H=8 G=8 D=64'], check=True)
        subprocess.run([maker, large, '512', 'llama2', '0', 'F32', 'E=1024 H=16 G=16 D=64 F=8192 L=4'], check=True)
        how = limited(wide, large)
    print(f'memory: {how}, {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
