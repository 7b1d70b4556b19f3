#!/usr/bin/env python3
"""Checks that quantised models lose no more accuracy than llama.cpp's: mean KL divergence from the F32 file.

    check_quantised.py [NAME...]
    check_quantised.py --peer DIR [NAME...]     prints the numbers for PEER (llama-quantize, llama-perplexity in DIR)

`quantize` quantises an F32 file, and `eval` compares both on tests/golden/text.txt. One F32 file is SmolLM2's
(PAGEDINFER_CHAT_MODEL, rewritten; left out if it is missing). Each row in ROWS (of tests/support/random_rows.c, wide
enough for K-quants) is the mean of SEEDS random models. The rows of LATER run with PAGEDINFER_LONG, or if they are
named.

PEER has the results of llama-quantize and llama-perplexity for the same files (llama.cpp as in llama-cpp-python
0.3.36, CPU). SmolLM2 and the sum over all rows must not be worse. A single row may be worse by a factor of NOISE,
because its models have few directions in which an error counts.
Standard library only. Exit 77: no tool_tiny_model."""
import os, re, subprocess, sys, tempfile

from eval_runs import BIN

ROWS = {name: 'E=256 H=4 G=2 D=64 F=256' + more for name, more in
        (('llama3', ' R=32'), ('qwen2', ''), ('qwen3', ''), ('gemma2', ''), ('qwen3moe', ''), ('gpt-oss', ''),
         ('glm4moe', ' F=96 Z=256 R=32 N=0 L=3'), ('phi3', ' R=32'), ('mistral3', ''), ('minimax-m2', ' R=32'), ('granite', ''),
         ('granitemoe', ' Z=256'), ('qwen3next', ''), ('deepseek3', ' q=256 K=128 O=64 R=32 A=256 Z=256 N=0 L=3'),
         ('deepseek2', ' q=256 K=128 O=64 R=32 A=256 Z=256'))}
LATER = [n for n in list(ROWS)[4:] if n != 'deepseek3'] # deepseek3, which has per-head matrices, always runs
SEEDS, NOISE = range(1, 7), 1.05
PEER = {
    'llama3': {'Q4_K_M': 0.005077, 'Q8_0': 0.000047},
    'qwen2': {'Q4_K_M': 0.001691, 'Q8_0': 0.000025},
    'qwen3': {'Q4_K_M': 0.004226, 'Q8_0': 0.000058},
    'gemma2': {'Q4_K_M': 0.004158, 'Q8_0': 0.000062},
    'qwen3moe': {'Q4_K_M': 0.005779, 'Q8_0': 0.000611},
    'gpt-oss': {'Q4_K_M': 0.012000, 'Q8_0': 0.002140},
    'glm4moe': {'Q4_K_M': 0.001067, 'Q8_0': 0.000057},
    'phi3': {'Q4_K_M': 0.005250, 'Q8_0': 0.000046},
    'mistral3': {'Q4_K_M': 0.005206, 'Q8_0': 0.000046},
    'minimax-m2': {'Q4_K_M': 0.003570, 'Q8_0': 0.000252},
    'granite': {'Q4_K_M': 0.000832, 'Q8_0': 0.000015},
    'granitemoe': {'Q4_K_M': 0.000887, 'Q8_0': 0.000054},
    'qwen3next': {'Q4_K_M': 0.084029, 'Q8_0': 0.007120},
    'deepseek3': {'Q4_K_M': 0.012294, 'Q8_0': 0.000550},
    'deepseek2': {'Q4_K_M': 0.010437, 'Q8_0': 0.000265},
    'SmolLM2': {'Q4_K_M': 0.048372, 'Q8_0': 0.003337},
}
MODEL = os.environ.get('PAGEDINFER_CHAT_MODEL', '')
HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(os.environ.get('PAGEDINFER_BUILD', 'build'), 'tests', 'tool_tiny_model')
TEXT = os.path.join(HERE, '../golden', 'text.txt')
FORMATS = ['Q4_K_M', 'Q8_0']


def output(*argv):
    r = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    text = r.stdout.decode(errors='replace')
    if r.returncode: sys.exit(f'{" ".join(argv)}: exit {r.returncode}: {text[-500:]}')
    return text


def mean_kl(evaluate, model, base):
    for _ in range(20): # llama-perplexity may exit before its output is complete
        found = re.search(r'Mean +KLD: +(-?[0-9.]+)', output(*evaluate, '-m', model, '--kl-divergence-base', base, '--kl-divergence'))
        if found: return float(found[1])
    sys.exit(f'{model}: no mean divergence')


def divergences(f32, to, evaluate, quantize, text):
    """Returns {format: mean divergence}."""
    base, other, out = os.path.join(to, 'base'), os.path.join(to, 'other'), {}
    output(*evaluate, '-m', f32, '-f', TEXT, *text, '--kl-divergence-base', base)
    for kind in FORMATS:
        output(*quantize, f32, other, kind)
        out[kind] = mean_kl(evaluate, other, base)
    return out


def measure(name, to, how):
    f32 = os.path.join(to, 'f32')
    if name == 'SmolLM2':
        output(*how[1], '--allow-requantize', MODEL, f32, 'F32')
        return divergences(f32, to, *how, ['-c', '256', '--chunks', '4'])
    found = []
    for seed in SEEDS:
        output(TOOL, f32, '512', name, str(seed), 'F32', ROWS[name])
        found.append(divergences(f32, to, *how, ['-c', '128', '--chunks', '8']))
    return {kind: sum(f[kind] for f in found) / len(found) for kind in FORMATS}


def compare(got):
    faults = [f'{name} {k}: {v:.6f}, {PEER[name][k]} by llama.cpp' for name, row in got.items() for k, v in row.items()
              if not v <= PEER[name][k] * (NOISE if name in ROWS else 1)]
    for k in FORMATS:
        ours, theirs = [sum(table[n][k] for n in ROWS if n in got) for table in (got, PEER)]
        if not ours <= theirs: faults.append(f'{k}: {ours:.6f} in all, {theirs:.6f} by llama.cpp')
    return faults


def main():
    args = sys.argv[1:]
    peer = args[1] if args[:1] == ['--peer'] else None
    names = (args[2:] if peer else args) or [n for n in (*ROWS, 'SmolLM2') if n not in LATER or os.environ.get('PAGEDINFER_LONG')]
    if not os.path.exists(TOOL):
        print(f'no {TOOL}')
        return 77
    if not os.path.exists(MODEL): names = [n for n in names if n != 'SmolLM2']
    how = ([BIN, 'eval'], [BIN, 'quantize'])
    if peer: how = ([os.path.join(peer, 'llama-perplexity'), '-t', '2'], [os.path.join(peer, 'llama-quantize')])
    got, faults = {}, []
    for name in names:
        try:
            with tempfile.TemporaryDirectory() as d: got[name] = measure(name, d, how)
            print(f'    {name!r}: {{' + ', '.join(f'{k!r}: {v:.6f}' for k, v in got[name].items()) + '},', flush=True)
        except SystemExit as e: # a subprocess failed
            faults.append(f'{name}: {e}')
    if not peer: faults += compare(got)
    for f in faults: print(f)
    print(f'{len(names)} models, {len(faults)} faults')
    return 1 if faults else 0


sys.exit(main())
