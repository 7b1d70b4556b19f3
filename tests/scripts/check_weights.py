#!/usr/bin/env python3
"""Checks weights that servers share, with a 500 MB model. Two servers with one owner use the memory of one, open
within OPEN_SECONDS, and give the same answers.

    check_weights.py      PAGEDINFER_CHAT_MODEL: SmolLM2, which is rewritten with F32 matrices

Memory is the proportional set size of /proc/PID/smaps_rollup, which divides shared pages by the number of their users.
With PAGEDINFER_LONG, the owner and the servers are killed and started again 100 times. If the build has an emulated
CUDA device, a small model is checked on it. Owner and engines are processes, some are killed, and the answers are
those of an engine that loads the weights itself (100 times with PAGEDINFER_LONG).
Standard library only. Exit 77: no model, no server in the build, and no emulator."""
import json, os, signal, subprocess, sys, tempfile, time, urllib.request

BIN = os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer')
MODEL = os.environ.get('PAGEDINFER_CHAT_MODEL', '')
FLAGS = ['--port', '0', '--kv-cache-tokens', '1024', '--threads', '2', '--device', 'cpu']
OPEN_SECONDS, MEMORY = 2.0, 1.15
TESTS = os.path.join(os.environ.get('PAGEDINFER_BUILD', 'build'), 'tests')
EMULATED, TINY = os.path.join(TESTS, 'simt', 'pagedinfer_emu'), os.path.join(TESTS, 'tool_tiny_model')
CASE = {'name': 'one', 'ids': [2, 292, 300], 'n': 3, 'rows': 'all'}


def start(*argv, binary=BIN):
    return subprocess.Popen([binary, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def line_with(process, text):
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line: return line
    sys.exit(f'no "{text}" in: {"".join(seen)[-1500:]}')


def serve(model, *flags):
    """Starts a server. Returns (process, address, seconds until it answers)."""
    begin = time.time()
    process = start('serve', '-m', model, *FLAGS, *flags)
    line = line_with(process, 'http://')
    url = 'http://' + line.split('http://')[1].split()[0].rstrip('/')
    while True:
        try:
            urllib.request.urlopen(url + '/health', timeout=10).read()
            return process, url, time.time() - begin
        except OSError: time.sleep(0.01)


def answer(url):
    body = json.dumps({'prompt': 'Once upon a time', 'max_tokens': 16, 'temperature': 0}).encode()
    r = urllib.request.Request(url + '/v1/completions', body, {'Content-Type': 'application/json'})
    return json.load(urllib.request.urlopen(r, timeout=60))['choices'][0]['text']


def pss(process):
    for line in open(f'/proc/{process.pid}/smaps_rollup'):
        if line.startswith('Pss:'): return int(line.split()[1]) / 1024


def end(process, how=signal.SIGTERM):
    process.send_signal(how)
    process.wait(60)


def again_and_again(model, socket, want):
    faults = []
    for i in range(100):
        owner = start('weights', '-m', model, '--socket', socket)
        line_with(owner, '--weights-from')
        a, url, _ = serve(model, '--weights-from', socket)
        end(owner, signal.SIGKILL if i % 2 else signal.SIGTERM)
        if answer(url) != want: faults.append(f'another answer in round {i}')
        end(a, signal.SIGKILL if i % 3 else signal.SIGTERM)
    return faults


def check(model, to):
    socket, faults = os.path.join(to, 'socket'), []
    plain, url, seconds_plain = serve(model)
    want, one = answer(url), pss(plain)
    end(plain)
    owner = start('weights', '-m', model, '--socket', socket)
    line_with(owner, '--weights-from')
    both = [serve(model, '--weights-from', socket) for _ in range(2)]
    for process, url, seconds in both:
        if answer(url) != want: faults.append('an answer differs from that without an owner')
        if seconds > OPEN_SECONDS: faults.append(f'{seconds:.2f} s until it answered')
    end(owner, signal.SIGKILL)
    memory = sum(pss(p) for p, _, _ in both)
    if answer(both[0][1]) != want: faults.append('another answer when the owner is gone')
    for process, _, _ in both: end(process)
    print(f'one server: {one:.0f} MiB, {seconds_plain:.2f} s; two on an owner: {memory:.0f} MiB together ({memory / one:.2f}), '
          f'{both[0][2]:.2f} and {both[1][2]:.2f} s')
    if memory > MEMORY * one: faults.append(f'two take {memory / one:.2f} of the memory of one')
    if os.environ.get('PAGEDINFER_LONG'): faults += again_and_again(model, socket, want)
    return faults


def check_served(to):
    model = os.path.join(to, 'f32.gguf')
    r = subprocess.run([BIN, 'quantize', '--allow-requantize', MODEL, model, 'F32'], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    return ['the model cannot be rewritten'] if r.returncode else check(model, to)


def emulated_answers(model, *flags):
    """Returns (the small model's answers, None) or (None, an error text)."""
    r = subprocess.run([EMULATED, 'eval', '-m', model, '--cases', model + '.json', *flags], capture_output=True, text=True, timeout=300)
    return (r.stdout, None) if r.returncode == 0 else (None, r.stderr)


def check_emulated(to):
    """CUDA backend, alone and with layers on the CPU. The owner, an engine, and a second engine that is killed are
    processes."""
    model, socket, faults, want = os.path.join(to, 'tiny.gguf'), os.path.join(to, 'emulated'), [], []
    subprocess.run([TINY, model, '32768'], check=True, stdout=subprocess.DEVNULL)
    json.dump([CASE], open(model + '.json', 'w'))
    for round in range(100 if os.environ.get('PAGEDINFER_LONG') else 2):
        device = ['--device', 'emu', '-ngl', '2' if round % 2 else '99']
        if round < 2: want.append(emulated_answers(model, *device)[0])
        owner = start('weights', '-m', model, '--socket', socket, *device, binary=EMULATED)
        line_with(owner, '--weights-from')
        descriptors = len(os.listdir(f'/proc/{owner.pid}/fd'))
        victim = start('eval', '-m', model, '--cases', model + '.json', *device, '--weights-from', socket, binary=EMULATED)
        got, error = emulated_answers(model, *device, '--weights-from', socket)
        if got is None or got != want[round % 2]: faults.append(f'{device}: {error or "other answers than without an owner"}')
        end(victim, signal.SIGKILL)
        if round == 0:
            error = emulated_answers(model, '--device', 'cpu', '--weights-from', socket)[1] or ''
            if 'give both the same device' not in error: faults.append(f'an engine of another device: {error}')
        for _ in range(100): # the owner may still be sending to the killed engine
            if len(os.listdir(f'/proc/{owner.pid}/fd')) == descriptors: break
            time.sleep(0.01)
        else: faults.append('the owner has more descriptors than before')
        end(owner, signal.SIGTERM if round % 3 == 1 else signal.SIGKILL)
    print('emulated device: answers are the same with and without an owner')
    return faults


def main():
    served = os.path.exists(MODEL) and 'serve' in subprocess.run([BIN, '--help'], stdout=subprocess.PIPE, text=True).stdout
    emulated = os.path.exists(EMULATED) and os.path.exists(TINY)
    with tempfile.TemporaryDirectory() as to:
        faults = (check_served(to) if served else []) + (check_emulated(to) if emulated else [])
    for f in faults: print(f)
    if not served: print('no model, or no server')
    return 1 if faults else 0 if served or emulated else 77


sys.exit(main())
