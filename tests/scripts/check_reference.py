#!/usr/bin/env python3
"""Compares random models of each dense architecture with transformers: tokens and logits, bitwise identical in every
configuration.

    check_reference.py [NAME...]     default: each tests/golden/reference_NAME.json

tool_tiny_model writes each golden's model anew (tests/scripts/gen_reference.py wrote the goldens). Then:
1. With an f32 cache, greedy tokens are the reference's and its logits are met within TIGHT; with the default cache,
   within LOOSE.
2. Logits and tokens are the same bytes for each step budget, block size and number of threads. They stay the same in a
   batch, with reused prefixes, and with a cache so small that requests are preempted. With a q8_0 cache, logits are
   met within ROUNDED on average, and are the same bytes in a batch and in other steps. With PAGEDINFER_LONG each change
   has a run of its own; without it, a run has several.

3. On the emulated CUDA device, also with an f32 cache: the reference's tokens, and logits within TIGHT. A case has the
   same bytes in a batch as in a batch of one. Without an emulator in the build this part is left out, with a message.
A refused architecture is a fault. Standard library only. Exit 77: no tool_tiny_model."""
import glob, json, os, subprocess, sys, tempfile, time

import eval_runs
from eval_runs import crowd, differences, floats, run

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('PAGEDINFER_BUILD', 'build')
TOOL, EMULATED = os.path.join(BUILD, 'tests', 'tool_tiny_model'), os.path.join(BUILD, 'tests', 'simt', 'pagedinfer_emu')
CPU = eval_runs.BIN
TIGHT, LOOSE, ROUNDED = 5e-4, 5e-3, 0.05
# One model of each kind whose results change with the context's length: windows, rotations, the indexer, states. On the
# slow emulated device only these have the longest case, unless PAGEDINFER_LONG is set.
LONGEST = ('deepseek32', 'gemma3', 'gpt-oss', 'lfm2', 'llama32', 'mimo2', 'phi3-long', 'qwen3next', 'mamba2', 'kimi-linear')
# Models with an indexer: rounded keys change the selected rows, so only means are compared, within INDEXED.
INDEXERS, INDEXED = ('deepseek32', 'glm-dsa'), 0.15
# Configurations whose bits must be those of one thread's steps of up to 512 rows, one change at a time and together.
# SMALL: a cache in which requests are preempted.
LONG = bool(os.environ.get('PAGEDINFER_LONG'))
EACH = (['-t', '1'], ['-ub', '1'], ['-ub', '16'], ['-ub', '61', '-t', '1'], ['--block-size', '32'],
        ['--block-size', '64', '-ub', '64'], ['--parallel', '3', '-ub', '32'], ['--parallel', '8', '--kv-cache-tokens', 'SMALL'])
TOGETHER = (['-ub', '13', '-t', '1', '--block-size', '32'], ['--parallel', '8', '-ub', '61', '--kv-cache-tokens', 'SMALL'])
F32 = ['-ctk', 'f32', '-ctv', 'f32', '--no-prefix-cache']


def against_reference(label, golden, result, tolerance):
    faults, worst = [], 0.0
    for want, line, raw in zip(golden, *result):
        if line['greedy'] != want['greedy']: faults.append(f"{label}: tokens of {want['name']} are not the reference's")
        rows = floats(raw)
        width = len(rows) // len(want['ids'])
        for at, row in want['logits'].items():
            got = rows[int(at) * width:(int(at) + 1) * width]
            d = max(map(lambda a, b: abs(a - b), row, got)) if len(row) == len(got) else float('inf')
            worst = max(worst, d if d == d else float('inf'))
    if not worst <= tolerance: faults.append(f'{label}: logits off by {worst:.6f}')
    return faults, worst


def mean_difference(golden, result):
    """The mean absolute difference of all recorded logits. (A rounded key can change the choice of an expert.)"""
    off = []
    for want, raw in zip(golden, result[1]):
        rows = floats(raw)
        width = len(rows) // len(want['ids'])
        for at, row in want['logits'].items(): off += map(lambda a, b: abs(a - b), row, rows[int(at) * width:(int(at) + 1) * width])
    return sum(off) / len(off)


def check_cpu(model, golden, cases):
    faults, tight = against_reference('f32 cache', golden, run(model, cases, *F32), TIGHT)
    plain = ['-t', '2', '--no-prefix-cache']
    base = run(model, cases, *plain)
    indexed = os.path.basename(model)[:-len('.gguf')] in INDEXERS
    if not indexed: faults += against_reference('default cache', golden, base, LOOSE)[0]
    elif not mean_difference(golden, base) <= ROUNDED: faults.append('default cache: logits off')
    small = str((max(len(c['ids']) + c['n'] for c in cases) + 63) // 64 * 64 + 64)
    for flags in EACH if LONG else TOGETHER:
        faults += differences(' '.join(flags), run(model, cases, *plain, *(small if f == 'SMALL' else f for f in flags)), base)
    quantized = [*plain, '-ctk', 'q8_0', '-ctv', 'q8_0']
    rounded = run(model, cases, *quantized)
    off = mean_difference(golden, rounded)
    if not off <= (INDEXED if indexed else ROUNDED): faults.append(f'q8_0 cache: logits off by {off:.6f} on average')
    for flags in (['-ub', '16', '-t', '1'], ['--block-size', '32', '--parallel', '3'])[not LONG:]:
        faults += differences('q8_0 cache ' + ' '.join(flags), run(model, cases, *quantized, *flags), rounded)
    many, want = crowd(cases, base, 12)
    for flags in (['--no-prefix-cache'], [])[not LONG:]:
        got = run(model, many, *flags, '--parallel', '12', '--kv-cache-tokens', '8192')
        faults += differences(' '.join(['a batch', *flags]), got, want)
    return faults, tight


def check_emulated(model, golden, cases):
    flags = ['--device', 'emu', *F32]
    together = run(model, cases, *flags, '--parallel', '3', '-ub', '64')
    faults, worst = against_reference('emulated', golden, together, TIGHT)
    alone = run(model, cases[1:2], *flags, '--parallel', '1')
    return faults + differences('emulated, alone', alone, [x[1:2] for x in together]), worst


def check(path, to):
    name, start = os.path.basename(path)[len('reference_'):-len('.json')], time.time()
    golden = json.load(open(path))['cases']
    cases = [{'name': c['name'], 'ids': c['ids'], 'n': c['n'], 'rows': 'all'} for c in golden]
    model = os.path.join(to, name + '.gguf')
    subprocess.run([TOOL, model, '512', name], check=True)
    # The "-whole" rows differ only in the order of rows in the file, which the device never sees.
    faults, worst, emulated = [], [], os.path.exists(EMULATED) and not name.endswith('-whole')
    try:
        for binary, part in ((CPU, check_cpu), (EMULATED, check_emulated))[:1 + emulated]:
            eval_runs.BIN = binary
            n = 2 if part is check_emulated and name not in LONGEST and not LONG else len(cases)
            more, off = part(model, golden[:n], cases[:n])
            faults += more
            worst.append(f'{off:.6f}')
    except SystemExit as e: # a subprocess failed
        faults.append(str(e))
    os.unlink(model)
    print(f'{name}: logits within {" and ".join(worst) or "nothing"} (CPU{" and emulated" if emulated else ""}), '
          f'{len(faults)} faults, {time.time() - start:.0f} s', flush=True)
    return [f'{name}: {f}' for f in faults]


def main():
    if not os.path.exists(TOOL):
        print(f'no {TOOL}')
        return 77
    paths = sorted(glob.glob(os.path.join(HERE, '../golden', 'reference_*.json')))
    if sys.argv[1:]: paths = [os.path.join(HERE, '../golden', f'reference_{name}.json') for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as d: faults = [f for path in paths for f in check(path, d)]
    if not os.path.exists(EMULATED): print(f'no {EMULATED}: the emulated device is left out')
    for f in faults[:20]: print(f)
    print(f'{len(paths)} models, {len(faults)} faults')
    return 1 if faults or not paths else 0


sys.exit(main())
