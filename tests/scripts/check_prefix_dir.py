#!/usr/bin/env python3
"""Checks servers that share a folder of prefixes (--prefix-cache-dir): one server reuses another's computed prefixes.

    check_prefix_dir.py

For models with full attention, with windows and with recurrent layers:
1. One server computes prompts; another, which has never seen them, answers. It has as many cached tokens as the first
   one when that gets the prompts again. Its tokens and log-probabilities equal a server's without the folder.
2. The first server is killed while it computes and writes. The other's answers stay the same with any files that it
   finds.
3. The logits of `eval` with the folder are bitwise identical to those without it, and most of each prompt came from
   it.
Exit 77: the build has no server, or no tests. Standard library only."""
import json, os, random, signal, subprocess, sys, tempfile, threading, time, urllib.request

BIN = os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer')
TINY = os.path.join(os.environ.get('PAGEDINFER_BUILD', 'build'), 'tests', 'tool_tiny_model')
N_PROMPT = 300
faults = []


class Server:
    def __init__(self, model, *flags):
        self.p = subprocess.Popen([BIN, 'serve', '-m', model, '--port', '0', '--parallel', '4', '-t', '1', '-c', '1024', *flags],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = ''
        for line in self.p.stdout:
            said += line
            if 'http://' in line: break
        else:
            print(said[-2000:])
            sys.exit('the server does not start')
        self.url = 'http://' + line.split('http://')[1].split()[0].rstrip('/')
        threading.Thread(target=self.p.stdout.read, daemon=True).start()
        for _ in range(1200):
            try:
                urllib.request.urlopen(self.url + '/health', timeout=10).read()
                break
            except OSError: time.sleep(0.02)

    def ask(self, ids):
        """Returns the answer's choices, and the number of cached prompt tokens."""
        body = {'prompt': ids, 'max_tokens': 8, 'ignore_eos': True, 'temperature': 0, 'logprobs': 5}
        q = urllib.request.Request(self.url + '/v1/completions', json.dumps(body).encode(), {'Content-Type': 'application/json'})
        with urllib.request.urlopen(q, timeout=120) as r: answer = json.load(r)
        return answer['choices'], answer['usage']['prompt_tokens_details']['cached_tokens']

    def end(self, how=signal.SIGTERM):
        self.p.send_signal(how)
        code = self.p.wait(60)
        if how == signal.SIGTERM and code: faults.append(f'a server exited with {code}')


def files(folder): return sum(len(names) for _, _, names in os.walk(folder))


def settle(folder):
    """Waits until no file has been added for 0.4 s."""
    last, since = -1, time.time()
    while time.time() - since < 0.4:
        n = files(folder)
        if n != last: last, since = n, time.time()
        time.sleep(0.02)


def prompts_of(rng, n): return [[rng.randrange(3, 300) for _ in range(N_PROMPT)] for _ in range(n)]


def by_servers(arch, model, folder):
    rng = random.Random(7)
    prompts, late = prompts_of(rng, 4), prompts_of(rng, 12)
    plain = Server(model)
    want, want_late = [plain.ask(p)[0] for p in prompts], [plain.ask(p)[0] for p in late]
    plain.end()
    a, b = Server(model, '--prefix-cache-dir', folder), Server(model, '--prefix-cache-dir', folder)
    for p in prompts: a.ask(p)
    settle(folder)
    known = [a.ask(p)[1] for p in prompts]
    # This request makes b read the folder: a request waits up to a second for that.
    b.ask(prompts_of(rng, 1)[0])
    for p, w, k in zip(prompts, want, known):
        choices, cached = b.ask(p)
        if choices != w: faults.append(f'{arch}: another answer from the folder')
        if cached != k or k < N_PROMPT // 2: faults.append(f'{arch}: {cached} tokens from the folder, {k} where they were computed')
    # The writer is killed while it writes.
    def ask_all():
        for p in late:
            try: a.ask(p)
            except OSError: return
    before, end, t = files(folder), time.time() + 120, threading.Thread(target=ask_all)
    t.start()
    while files(folder) < before + 6 * N_PROMPT // 16 and time.time() < end: time.sleep(0.002)
    a.end(signal.SIGKILL)
    t.join()
    b.ask(prompts_of(rng, 1)[0])
    cached = 0
    for p, w in zip(late, want_late):
        choices, n = b.ask(p)
        cached += n
        if choices != w: faults.append(f'{arch}: another answer when the writer was killed')
    if not cached: faults.append(f'{arch}: nothing of the killed writer is found')
    b.end()
    return f'{sum(known)} of {N_PROMPT * len(prompts)} tokens from the other server, {cached} of {N_PROMPT * len(late)} from a killed one'


def by_eval(arch, model, folder, to):
    """Compares logits of cases without the folder, with an empty one, and with the prefixes it then has."""
    cases, out = [{'name': f'c{i}', 'ids': p, 'n': 4, 'rows': 'last'} for i, p in enumerate(prompts_of(random.Random(8), 3))], []
    path = os.path.join(to, 'cases.json')
    with open(path, 'w') as f: json.dump(cases, f)
    for i, flags in enumerate(([], ['--prefix-cache-dir', folder], ['--prefix-cache-dir', folder])):
        rows = os.path.join(to, f'{arch}{i}')
        os.mkdir(rows)
        r = subprocess.run([BIN, 'eval', '-m', model, '--cases', path, '--logits-dir', rows, '-t', '1', *flags], capture_output=True,
                           text=True, timeout=120)
        if r.returncode: return faults.append(f'{arch}: eval: {r.stderr[-500:]}')
        lines = [json.loads(line) for line in r.stdout.splitlines()]
        out.append(([line['greedy'] for line in lines], [open(os.path.join(rows, f'{c["name"]}.f32'), 'rb').read() for c in cases]))
        if i == 2 and min(line['cached_tokens'] for line in lines) < N_PROMPT // 2: faults.append(f'{arch}: eval found {lines}')
    if out[0] != out[1] or out[0] != out[2]: faults.append(f'{arch}: other logits with the folder')


def main():
    if not os.path.exists(TINY):
        print('no tool_tiny_model: configure with -DPAGEDINFER_TESTS=ON')
        sys.exit(77)
    if 'serve' not in subprocess.run([BIN, '--help'], capture_output=True, text=True).stdout:
        print('the build has no server')
        sys.exit(77)
    with tempfile.TemporaryDirectory() as d:
        for arch in 'llama3', 'gemma3', 'qwen35':
            start, model = time.time(), os.path.join(d, arch + '.gguf')
            subprocess.run([TINY, model, '4096', arch], check=True)
            told = by_servers(arch, model, os.path.join(d, 'prefixes'))
            by_eval(arch, model, os.path.join(d, 'prefixes'), d)
            print(f'{arch}: {told}; {time.time() - start:.1f} s', flush=True)
    for f in faults: print(f)
    sys.exit(bool(faults))


if __name__ == '__main__': main()
