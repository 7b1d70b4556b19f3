#!/usr/bin/env python3
"""Runs the programs of tools/examples on the real model: every answer equals `pagedinfer run`'s for its prompt alone.

poll, callback, two_engines, epoll, glib: standard output is exactly the answers in the order of the prompts. libuv cancels its last
request, so that request's text must be a prefix of the endless answer that `run` gives with --ignore-eos. The programs
print nothing else. Failures are explained on standard error and exit with 1; wrong usage exits with 2.
Standard library only. Exit 77: no model to run.
"""
import os, subprocess, sys

BUILD = os.environ.get('PAGEDINFER_BUILD', 'build')
BIN, MODEL = os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer'), os.environ.get('PAGEDINFER_MODEL', '')
PROMPTS = ['Once upon a time', 'The capital of France is', 'Die drei größten Städte Deutschlands sind',
           '1, 2, 3, 4,', 'Dear Sir or Madam,', 'A recipe for bread: ']
LONG = 512  # tokens; more than any machine generates before libuv's timer fires
faults = []


def command(*argv):
    r = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    return r.returncode, r.stdout, r.stderr.decode(errors='replace')


def alone(prompt, *flags):
    rc, out, err = command(BIN, 'run', '-m', MODEL, '-p', prompt, '--temp', '0', *flags)
    if rc: sys.exit(f'run -p {prompt!r} exited with {rc}: {err}')
    return out


def example(name): return os.path.join(BUILD, 'examples', name)


def check(name, prompts, want, begins=None):
    """want: the start of standard output. begins: None, or a text: a nonempty prefix of it, and a newline, must
    follow."""
    rc, out, err = command(example(name), MODEL, *prompts)
    if rc: return faults.append(f'{name}: exited with {rc}: {err}')
    if begins is None:
        if err: faults.append(f'{name}: standard error: {err}')
        if out != want: faults.append(f'{name}, {len(prompts)} prompts: {out!r}\n  alone: {want!r}')
        return
    if err != f'{name}: prompt {len(prompts)}: canceled\n': faults.append(f'{name}: standard error: {err}')
    rest = out[len(want):]
    if not out.startswith(want) or rest[-1:] != b'\n' or not begins.startswith(rest[:-1]):
        faults.append(f'{name}, {len(prompts)} prompts: {out!r}\n  alone: {want!r}\n  the last: {begins[:len(rest)]!r}')


def check_failures(name):
    rc, out, err = command(example(name), MODEL)
    if rc != 2 or out or 'usage' not in err: faults.append(f'{name} without prompts: {rc}, {out!r}, {err!r}')
    rc, out, err = command(example(name), MODEL + '.none', 'x')
    if rc != 1 or out or 'no such file' not in err: faults.append(f'{name} without a model: {rc}, {out!r}, {err!r}')
    rc, out, err = command(example(name), MODEL, PROMPTS[0], 'x ' * 60000)
    if rc != 1 or 'does not fit' not in err: faults.append(f'{name} with too long a prompt: {rc}, {out!r}, {err!r}')


def main():
    if not MODEL or not os.path.exists(MODEL):
        print('no model (PAGEDINFER_MODEL)')
        return 77
    answers = [alone(p, '-n', '48') for p in PROMPTS]
    if min(len(a) for a in answers) < 20: sys.exit(f'answers too short to say anything: {answers}')
    n = 0
    for name in ('poll', 'callback', 'two_engines', 'epoll', 'glib'):
        if name in ('epoll', 'glib') and not os.path.exists(example(name)):
            print(f'{name} was not built')
            continue
        check(name, PROMPTS, b''.join(answers))
        check(name, PROMPTS[:1], answers[0])
        check_failures(name)
        n += 1
    if os.path.exists(example('libuv')):
        endless = alone(PROMPTS[-1], '-n', str(LONG), '--ignore-eos')
        check('libuv', PROMPTS, b''.join(answers[:-1]), endless)
        check('libuv', PROMPTS[-1:], b'', endless)
        check_failures('libuv')
        n += 1
    else:
        print('libuv was not built')
    for f in faults: print(f)
    print(f'examples: {n} programs, {len(PROMPTS)} prompts at once, {len(faults)} faults')
    return 1 if faults else 0


sys.exit(main())
