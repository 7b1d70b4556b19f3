#!/usr/bin/env python3
"""Weights once a machine, with a model of 500 MB: two servers on one owner take the memory of one, open in a moment, and answer the same.

    check_weights.py      PAGEDINFER_CHAT_MODEL: SmolLM2, which is rewritten with F32 matrices

Memory is the proportional set size of /proc/PID/smaps_rollup, where shared pages count by their users. With PAGEDINFER_LONG
set, owner and servers are killed and started again 20 times. Standard library only. Exit 77: no model, or no server in the build."""
import json, os, signal, subprocess, sys, tempfile, time, urllib.request

BIN = os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer')
MODEL = os.environ.get('PAGEDINFER_CHAT_MODEL', '')
FLAGS = ['--port', '0', '--kv-cache-tokens', '1024', '--threads', '2', '--device', 'cpu']
OPEN_SECONDS, MEMORY = 2.0, 1.15


def start(*argv):
    return subprocess.Popen([BIN, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def line_with(process, text):
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line: return line
    sys.exit(f'no "{text}" in: {"".join(seen)[-1500:]}')


def serve(model, *flags):
    """The process, its address, and seconds until it answers."""
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
    for i in range(20):
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


def main():
    if not os.path.exists(MODEL) or 'serve' not in subprocess.run([BIN, '--help'], stdout=subprocess.PIPE, text=True).stdout:
        print('no model, or no server')
        return 77
    with tempfile.TemporaryDirectory() as to:
        model = os.path.join(to, 'f32.gguf')
        r = subprocess.run([BIN, 'quantize', '--allow-requantize', MODEL, model, 'F32'], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        if r.returncode: return 1
        faults = check(model, to)
    for f in faults: print(f)
    return 1 if faults else 0


sys.exit(main())
