#!/usr/bin/env python3
"""eval --hellaswag, --winogrande, --multiple-choice: compares each task's scores with sums computed here.

    check_choices.py [PAGEDINFER]

`run --prompt-logprobs` gives the model's log-probabilities of a text. The script computes again which tokens count and
which scores are printed. It checks strided perplexity the same way. Uses a tiny random model. Standard library
only."""
import json
import math
import os
import random
import re
import struct
import sys
import tempfile
import time

import check_cli
from check_cli import expect, faults

rng = random.Random(11)


def probs(model, text):
    """Returns the tokens of a text, and the log-probability of each one except the first."""
    ids = json.loads(expect(0, 'tokenize', '-m', model, '--ids', '--no-escape', '-p', text))
    line = expect(0, 'run', '-m', model, '-p', text, '--no-escape', '--prompt-logprobs', '0', '-n', '0', '--no-perf').splitlines()[0]
    return ids, [None] + [p['logprob'] for p in json.loads(line)['prompt_logprobs'][-(len(ids) - 1):]]


def prefix(seqs):
    n = 0
    while n < min(map(len, seqs)) - 1 and len({s[n] for s in seqs}) == 1: n += 1
    return n


def mean(values): return sum(values) / len(values)


def best_of(model, texts):
    """Returns the index of the text with the highest mean log-probability after the common prefix; a tie gives the
    first."""
    got = [probs(model, t) for t in texts]
    at = prefix([ids for ids, _ in got])
    scores = [mean(p[at:]) for _, p in got]
    return scores.index(max(scores))


def words(n): return ' '.join(rng.choice(('the', 'cat', 'sat', 'on', 'a', 'mat', 'zoo')) for _ in range(n))


def hellaswag(model, path):
    right = 0
    lines = []
    for _ in range(7):
        task = [words(12), str(rng.randrange(4))] + [words(rng.randrange(1, 6)) + str(i) for i in range(4)]
        lines += task
        right += best_of(model, [task[0] + ' ' + e for e in task[2:]]) == int(task[1])
    with open(path, 'w') as f: f.write('\n'.join(lines) + '\n')
    base = ['eval', '-m', model, '-f', path, '--hellaswag']
    out = re.findall(r'^(\d+)\t([\d.]+)%\t\[(-?[\d.]+)%, ([\d.]+)%\]$', expect(0, *base), re.M)
    if [int(l[0]) for l in out] != list(range(1, 8)): faults.append(f'hellaswag: lines {out}')
    p, n, z = right / 7, 7, 1.95996398454
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    want = [100 * p] + [100 * (p + z * z / (2 * n) + s * half) / (1 + z * z / n) for s in (-1, 1)]
    if not out or any(abs(float(a) - b) > 1e-3 for a, b in zip(out[-1][1:], want)): faults.append(f'hellaswag: {out[-1:]}, not {want}')
    three = re.findall(r'^\d+\t.*$', expect(0, *base, '--hellaswag-tasks', '3', '--parallel', '1'), re.M)
    if three != re.findall(r'^\d+\t.*$', expect(0, *base), re.M)[:3]: faults.append(f'hellaswag: the first three are {three}')
    stats = check_cli.call(*base, '--kv-stats').stderr.decode()
    if ' 0 of ' in stats or 'requests found a prefix' not in stats: faults.append(f'hellaswag: contexts are not shared: {stats}')
    with open(path, 'a') as f: f.write('x\n')
    expect(65, *base, err='43 lines')


def winogrande(model, path):
    """The tool prints each task's scores, so each one is compared."""
    rows = []
    for i in range(8):
        rows.append((words(4), words(2), words(1), rng.choice(('.', ' it.', ' ' + words(6) + '.')), rng.randrange(1, 3)))
    with open(path, 'w') as f:
        f.write(''.join(f'{i},{a} _{z},{x},{y},{r}\n' for i, (a, x, y, z, r) in enumerate(rows)) + 'no task\n')
    out = re.findall(r'^(\d+)\t([\d.]+)\t *(-?[\d.]+) +(-?[\d.]+)  (\d)  (\d)$',
                     expect(0, 'eval', '-m', model, '-f', path, '--winogrande', err='1 malformed lines were skipped'), re.M)
    right = 0
    for i, (a, x, y, z, r) in enumerate(rows):
        got = [probs(model, f'{a} {k}{z}') for k in (x, y)]
        at = prefix([ids for ids, _ in got])
        starts = [at, at]
        if all(len(ids) - at > 3 for ids, _ in got):
            starts = [len(json.loads(expect(0, 'tokenize', '-m', model, '--ids', '-p', f'{a} {k}'))) for k in (x, y)]
        scores = [mean(p[s:len(p) - (len(p) - s > 1)]) for s, (_, p) in zip(starts, got)]
        best = 1 if scores[0] > scores[1] else 2
        right += best == r
        want = (i + 1, 100 * right / (i + 1), *scores, best, r)
        if len(out) <= i or any(abs(float(g) - w) > 1e-4 for g, w in zip(out[i], want)): faults.append(f'winogrande: {out[i:i + 1]}, not {want}')
    picked = expect(0, 'eval', '-m', model, '-f', path, '--winogrande', '--winogrande-tasks', '3')
    if len(re.findall(r'^\d+\t', picked, re.M)) != 3: faults.append(f'winogrande: three tasks are {picked}')


def multiple_choice(model, path):
    def text(s): return struct.pack('<I', len(s)) + s.encode()
    tasks, right, answers_n = [], 0, 0
    want = []
    for i in range(6):
        question, answers = words(10), [words(rng.randrange(1, 5)) + str(k) for k in range(2 + i % 4)]
        label = rng.randrange(len(answers))
        labels = struct.pack(f'<{len(answers)}i', *(int(k == label) for k in range(len(answers))))
        tasks.append(text(question) + struct.pack('<I', len(answers)) + b''.join(map(text, answers)) + labels + struct.pack('<I', 0))
        right += best_of(model, [f'{question} {a}' for a in answers]) == label
        answers_n += len(answers)
        want.append(f'{i + 1}\t{100 * right / (i + 1):.8f}')
    at = [4 + 4 * len(tasks) + sum(map(len, tasks[:i])) for i in range(len(tasks))]
    data = struct.pack(f'<I{len(tasks)}I', len(tasks), *at) + b''.join(tasks)
    with open(path, 'wb') as f: f.write(data)
    base = ['eval', '-m', model, '-bf', path, '--multiple-choice']
    out = expect(0, *base)
    if re.findall(r'^\d+\t[\d.]+$', out, re.M) != want: faults.append(f'multiple choice: {out}, not {want}')
    p = right / 6
    final = f'Final result: {100 * p:.4f} +/- {100 * math.sqrt(p * (1 - p) / 5):.4f}'
    if final not in out or f'Random chance: {600 / answers_n:.4f}' not in out: faults.append(f'multiple choice: no "{final}" in {out}')
    with open(path, 'wb') as f: f.write(data[:-60])
    expect(65, *base, err='task ')
    expect(64, *base, '--winogrande', err='give only one')
    expect(64, 'eval', '-m', model, '--hellaswag', err='--file')
    expect(66, 'eval', '-m', model, '--hellaswag', '-f', path + '.gone', err='gone')


def strided(model, path):
    """Chunks of c + s/2 tokens start every s tokens; the last s tokens of each chunk are scored."""
    text = words(70)
    with open(path, 'w') as f: f.write(text)
    ids = json.loads(expect(0, 'tokenize', '-m', model, '--ids', '-p', text))
    c, s = 32, 16
    n = c + s // 2
    nll, want = [], []
    for start in range(0, len(ids) - n, s):
        chunk = [2] + ids[start + 1:start + n]
        cases = os.path.join(os.path.dirname(path), 'cases.json')
        with open(cases, 'w') as f: json.dump([{'name': 'x', 'ids': chunk, 'n': 1}], f)
        line = json.loads(expect(0, 'eval', '-m', model, '--cases', cases, '--prompt-logprobs', '0'))
        nll += [-p['logprob'] for p in line['prompt_logprobs'][-s:]]
        want.append((start, math.exp(mean(nll))))
    out = expect(0, 'eval', '-m', model, '-f', path, '-c', str(c), '--ppl-stride', str(s), '--ppl-output-type', '1')
    got = [(int(a), float(b)) for a, b in re.findall(r'^ *(\d+)  ([\d.]+)$', out, re.M)]
    if len(got) != len(want) or any(a != b or abs(x - y) > 1e-3 * y for (a, x), (b, y) in zip(got, want)):
        faults.append(f'stride: {got}, not {want}')
    out = expect(0, 'eval', '-m', model, '-f', path, '-c', str(c), '--ppl-stride', str(s), '--chunks', '2')
    if not re.search(r'^\[1\][\d.]+,\[2\][\d.]+,$', out, re.M): faults.append(f'stride: {out}')
    out = expect(0, 'eval', '-m', model, '-f', path, '-c', str(c), '--ppl-output-type', '1', '--chunks', '2')
    if len(re.findall(r'^ *(0|32)(  [\d.]+){3}$', out, re.M)) != 2: faults.append(f'output type: {out}')
    expect(64, 'eval', '-m', model, '-f', path, '-c', '32', '--ppl-stride', '33', err='--ppl-stride')
    expect(64, 'eval', '-m', model, '-f', path, '--ppl-stride', '33', '--kl-divergence-base', path, err='--ppl-stride')


def main():
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        model, path = os.path.join(folder, 'tiny.gguf'), os.path.join(folder, 'tasks')
        check_cli.write_model(model)
        hellaswag(model, path)
        winogrande(model, path)
        multiple_choice(model, path)
        strided(model, path)
    for f in faults: print(f)
    print(f'choices: {len(faults)} faults, {time.time() - start:.1f} s')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
