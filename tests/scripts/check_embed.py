#!/usr/bin/env python3
"""Checks pagedinfer embed: formats, separators and pooling. Vectors must be the same on the emulated CUDA device,
split with the CPU, and on two devices. Vectors of encoders, and a cross-encoder's scores, must match transformers
(tests/golden/vectors_*.json, written by gen_vectors.py).

    check_embed.py

Uses a tiny random model. Standard library only. PAGEDINFER_BIN names the tool. PAGEDINFER_BUILD names the build
folder; its emulator is used if it was built."""
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

import check_cli
from check_cli import BIN

HERE, BUILD = os.path.dirname(os.path.abspath(__file__)), os.environ.get('PAGEDINFER_BUILD', 'build')
EMULATED, TOOL = os.path.join(BUILD, 'tests', 'simt', 'pagedinfer_emu'), os.path.join(BUILD, 'tests', 'tool_tiny_model')
TEXTS = ['the quick brown fox', 'jumps over', 'the', 'lazy dog and the other one that is quite a bit longer than all of those before']
faults = []


def embed(model, *args, text='\n'.join(TEXTS), bin=BIN, code=0):
    r = subprocess.run([bin, 'embed', '-m', model, '-p', text, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if r.returncode != code: faults.append(f'embed {" ".join(args)}: exit {r.returncode}, not {code}: {r.stderr[-300:]}')
    return r.stdout if not code else r.stderr


def raw(model, *args, **kw):
    return [[float(x) for x in line.split()] for line in embed(model, '--embd-output-format', 'raw', *args, **kw).splitlines()]


def worst(a, b):
    if [len(x) for x in a] != [len(x) for x in b] or not a: return math.inf
    return max(abs(x - y) for v, w in zip(a, b) for x, y in zip(v, w))


def formats(model):
    want = raw(model, '--pooling', 'mean')
    if len(want) != len(TEXTS): faults.append(f'{len(want)} vectors of {len(TEXTS)} texts')
    if any(abs(sum(x * x for x in v) - 1) > 1e-5 for v in want): faults.append('vectors do not have length 1')
    lines = embed(model, '--pooling', 'mean').splitlines()
    if [l.split(':')[0] for l in lines] != [f'embedding {i}' for i in range(len(TEXTS))]: faults.append(f'lines: {lines}')
    if worst([[float(x) for x in l.split(':')[1].split()] for l in lines], want): faults.append('lines: other values')
    if worst(json.loads(embed(model, '--pooling', 'mean', '--embd-output-format', 'array')), want): faults.append('array: other values')
    d = json.loads(embed(model, '--pooling', 'mean', '--embd-output-format', 'json+'))
    if worst([x['embedding'] for x in d['data']], want): faults.append('json: other values')
    for i, row in enumerate(d['cosineSimilarity']):
        for k, c in enumerate(row):
            if abs(c - sum(x * y for x, y in zip(want[i], want[k]))) > 1e-5: faults.append(f'similarity of {i} and {k}: {c}')
    if worst(raw(model, '--pooling', 'mean', '--embd-separator', '<#>', text='<#>'.join(TEXTS)), want): faults.append('another separator')
    if worst(raw(model, '--pooling', 'mean', '--parallel', '1', '--ubatch-size', '3'), want): faults.append('other steps, other values')
    # More texts than the engine runs concurrently.
    many = raw(model, '--pooling', 'mean', text='\n'.join(TEXTS * 100))
    if worst(many, want * 100): faults.append('many texts: other values')
    if embed(model, text='', code=64).find('no text') < 0: faults.append('no error for an empty text')
    if embed(model, '--dimensions', '10000', code=78).find('values') < 0: faults.append('dimensions are not refused')


def devices(model):
    for pool in 'mean', 'last', 'none':
        want = raw(model, '--pooling', pool)
        for where in ['--device', 'emu'], ['--device', 'emu', '-ngl', '1'], ['--device', 'emu,emu', '-sm', 'tensor', '--no-prefix-cache']:
            d = worst(raw(model, '--pooling', pool, *where, bin=EMULATED), want)
            if not d < 5e-4: faults.append(f'{pool} with {" ".join(where)}: off by {d}')


def against(label, want, got, tolerance):
    d = worst(want, got)
    if not d <= tolerance: faults.append(f'{label}: off by {d}')


def golden(path, folder):
    name = os.path.basename(path)[len('vectors_'):-len('.json')]
    model, rank = os.path.join(folder, name + '.gguf'), os.path.join(folder, 'rank.gguf')
    subprocess.run([TOOL, model, '512', name], check=True)
    with open(path) as f: g = json.load(f)
    f32, cases = ['-ctk', 'f32', '-ctv', 'f32', '--embd-normalize', '-1', '--embd-separator', '|'], g['cases']
    together = '|'.join(c['text'] for c in cases)
    means = raw(model, '--pooling', 'mean', *f32, text=together)
    against(f'{name}: means', [c['mean'] for c in cases], means, 1e-4)
    for i, c in enumerate(cases):
        ids = subprocess.run([BIN, 'tokenize', '-m', model, '--ids', '-p', c['text']], stdout=subprocess.PIPE).stdout
        if json.loads(ids) != c['ids']: faults.append(f"{name}: tokens of '{c['text']}': {ids}")
        rows = raw(model, '--pooling', 'none', *f32, text=c['text'])
        if len(rows) != len(c['ids']): faults.append(f'{name}: {len(rows)} vectors of {len(c["ids"])} tokens')
        else: against(f'{name}: a token', [c['token']], [rows[c['row']]], 1e-4)
        against(f'{name}: a text alone', means[i:i + 1], raw(model, '--pooling', 'mean', *f32, text=c['text']), 0)
    against(f'{name}: one at a time', means, raw(model, '--pooling', 'mean', *f32, '--parallel', '1', text=together), 0)
    if embed(model, *f32, '-ub', '8', text=cases[-1]['text'], code=78).find('raise ubatch-size') < 0: faults.append(f'{name}: a small step')
    if os.path.exists(EMULATED):
        few = '|'.join(c['text'] for c in cases[:2])
        got = raw(model, '--pooling', 'mean', *f32, '--device', 'emu', text=few, bin=EMULATED)
        against(f'{name}: emulated', means[:2], got, 1e-4)
        against(f'{name}: emulated, alone', got[1:], raw(model, '--pooling', 'mean', *f32, '--device', 'emu', text=cases[1]['text'], bin=EMULATED), 0)
        for where in ['-ngl', '1'], ['--device', 'emu,emu', '-sm', 'tensor', '--no-prefix-cache']:
            against(f'{name}: {where}', means[:1], raw(model, '--pooling', 'mean', *f32, '--device', 'emu', *where, text=cases[0]['text'], bin=EMULATED), 5e-4)
    if 'pair' not in g: return
    subprocess.run([TOOL, rank, '512', name, '0', 'F32', 'j=2 q=96 y=1'], check=True)
    got = raw(rank, *f32, text=g['pair']['query'] + '\t' + g['pair']['document'])
    against(f'{name}: scores', [g['pair']['scores']], got, 1e-4)


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, 'tiny.gguf')
        check_cli.write_model(model)
        formats(model)
        if os.path.exists(EMULATED): devices(model)
        if os.path.exists(TOOL):
            for path in sorted(glob.glob(os.path.join(HERE, '../golden/vectors_*.json'))): golden(path, folder)
    for f in faults: print(f)
    print(f'vectors: {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
