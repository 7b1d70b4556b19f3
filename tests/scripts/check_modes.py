#!/usr/bin/env python3
"""Measures how much accuracy quantised models lose in every matmul mode: mean KL divergence from the unquantised file.

    check_modes.py [--long] [NAME...]      compares with tests/simt/modes_peer.json.
    check_modes.py --peer DIR [NAME...]    writes that file, from DIR/llama-perplexity on the CPU with the same files.
    check_modes.py --doc FILE [NAME...]    runs all, and writes the table (docs/perf/modes.md).

`quantize` quantises reference models (check_goldens.py describes them). `eval` compares each with the unquantised file
on tests/golden/text.txt: on the CPU, and on the emulated CUDA backend in each of its modes. For Gemma 3 270M
(PAGEDINFER_MODEL) the original file is the reference. For each format, mode `auto` may have at most 1.1 times
llama.cpp's divergence, as the geometric mean over the models.
Without --long or PAGEDINFER_LONG, only the models and formats of FEW run. Standard library only. Exit 77: no models,
or no emulator in the build.
"""
import json, math, os, re, subprocess, sys, tempfile

from eval_runs import SECONDS, unpack

FORMATS = ['Q8_0', 'Q6_K', 'Q4_K_M', 'Q4_0', 'IQ4_XS', 'MXFP4', 'NVFP4']
MODELS = ['gemma4-dense-tiny', 'gemma4-moe-tiny', 'gemma4-e-tiny', 'qwen35-dense-tiny', 'qwen35-moe64-micro', 'dsv4-micro']
FEW = {'qwen35-moe64-micro': ['Q4_K_M', 'MXFP4', 'NVFP4']}
REAL, REAL_FORMATS = 'Gemma 3 270M', ['Q8_0', 'MXFP4', 'NVFP4']
MODES = {'cpu': ['--device', 'cpu'], 'auto': [], 'exact': ['--matmul', 'exact'], 'w4a4': ['--fp4-mode', 'w4a4'],
         'w4a8': ['--fp4-mode', 'w4a8'], 'w4a16': ['--fp4-mode', 'w4a16']}
# Modes that only some formats have. All formats have the other modes.
ONLY = {'w4a4': ['MXFP4', 'NVFP4'], 'w4a8': ['MXFP4'], 'w4a16': ['MXFP4', 'NVFP4']}
TEXT, REAL_TEXT = ['-c', '128', '--chunks', '2'], ['-c', '64', '--chunks', '2']
LIMIT = 1.1
HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.environ.get('PAGEDINFER_GOLDEN', os.path.join(HERE, '../../../shared/golden'))
EMULATED = os.path.join(os.environ.get('PAGEDINFER_BUILD', 'build'), 'tests', 'simt', 'pagedinfer_emu')
MODEL = os.environ.get('PAGEDINFER_MODEL', '')
PEER = os.path.join(HERE, '../simt/modes_peer.json')


def output(*argv):
    r = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
    text = r.stdout.decode(errors='replace')
    if r.returncode: sys.exit(f'{" ".join(argv)}: exit {r.returncode}: {text[-500:]}')
    return text


def mean_kl(evaluate, model, base, *flags):
    """Returns the mean KL divergence. With few tokens only the last chunk's line shows it. llama-perplexity may exit
    before its output is complete, so the run is repeated until the value appears."""
    for _ in range(20):
        text = output(*evaluate, '-m', model, '--kl-divergence-base', base, '--kl-divergence', *flags)
        found = re.findall(r'Mean +KLD: +(-?[0-9.]+)', text) or \
            re.findall(r'^ +\d+ +\S+ ± +\S+ +\S+ ± +\S+ +(-?[0-9.]+) ±', text, re.M)
        if found: return float(found[-1])
    sys.exit(f'{model}: no mean divergence')


def measure(name, kinds, modes, peer):
    """Returns {format: {mode: mean divergence}}."""
    rows = {}
    with tempfile.TemporaryDirectory() as to:
        model, base, other = MODEL if name == REAL else unpack(GOLDEN, name, to), os.path.join(to, 'base'), os.path.join(to, 'other')
        output(EMULATED, 'eval', '-m', model, '--device', 'cpu', '-f', os.path.join(HERE, '../golden/text.txt'),
               *(REAL_TEXT if name == REAL else TEXT), '--kl-divergence-base', base)
        for kind in kinds:
            output(EMULATED, 'quantize', '--allow-requantize', model, other, kind)
            if peer: rows[kind] = mean_kl([os.path.join(peer, 'llama-perplexity')], other, base)
            else:
                rows[kind] = {m: mean_kl([EMULATED, 'eval'], other, base, *(['--device', 'emu'] if m != 'cpu' else []), *MODES[m])
                              for m in modes if kind in ONLY.get(m, FORMATS)}
            print(name, kind, rows[kind], flush=True)
    return rows


def ratio_of(got, peer, kind, mode):
    """Returns (the geometric mean over the models of the divergence divided by llama.cpp's, the number of models)."""
    ratios = [math.log(rows[kind][mode] / peer[name][kind]) for name, rows in got.items()
              if name in peer and mode in rows.get(kind, {})]
    return math.exp(sum(ratios) / len(ratios)) if ratios else None, len(ratios)


def compare(got, peer):
    faults = []
    for kind in FORMATS:
        ratio, n = ratio_of(got, peer, kind, 'auto')
        if not n: continue
        print(f'{kind}: {ratio:.3f} of llama.cpp in mode auto, {n} models')
        if not ratio <= LIMIT: faults.append(f'{kind}: {ratio:.3f} of llama.cpp is more than {LIMIT}')
    return faults


def document(got, peer, path):
    with open(path, 'w') as f:
        f.write(INTRODUCTION)
        head = '| format | llama.cpp | ' + ' | '.join(MODES) + ' |\n' + '|---' * (2 + len(MODES)) + '|\n'
        f.write('\n## Relative to llama.cpp, geometric mean of all models\n\n' + head)
        for kind in FORMATS:
            ratios = [ratio_of(got, peer, kind, m)[0] for m in MODES]
            f.write(f'| {kind} | 1 | ' + ' | '.join(f'{r:.3f}' if r else '-' for r in ratios) + ' |\n')
        for name, rows in got.items():
            f.write(f'\n## {name}\n\n' + head)
            for kind, row in rows.items():
                theirs = f'{peer[name][kind]:.6f}' if name in peer else '-'
                f.write(f'| {kind} | {theirs} | ' + ' | '.join(f'{row[m]:.6f}' if m in row else '-' for m in MODES) + ' |\n')


INTRODUCTION = """# Cost of the matmul modes

Written by `tests/scripts/check_modes.py --doc`. Reference models are quantized by `pagedinfer quantize`. Values are the
mean KL divergence of the quantized file from the unquantized one. The reference is the CPU in float32, over 128 tokens
of tests/golden/text.txt.

| column | mode |
|---|---|
| llama.cpp | the same files on the CPU (`llama-perplexity`), with activations of 8 bits |
| cpu | CPU backend |
| auto | default on sm_120 and sm_121: w4a8 for MXFP4, 16-bit floats for the others (on other devices for all) |
| exact | `--matmul exact` |
| w4a4, w4a8, w4a16 | `--fp4-mode`: activations of FP4 matrices in FP4, FP8, 16-bit floats |

Columns after cpu are modes of the CUDA backend on the emulator. The models are small and not trained on this text:
only ratios are meaningful.
"""


def main():
    args = sys.argv[1:]
    value = lambda flag: args.pop(args.index(flag) + 1) if flag in args else None
    peer, doc, long = value('--peer'), value('--doc'), '--long' in args or bool(os.environ.get('PAGEDINFER_LONG'))
    names = [a for a in args if not a.startswith('--')]
    for path in (GOLDEN, EMULATED):
        if os.path.exists(path): continue
        print(f'no {path}')
        return 77
    everything = peer or doc or long
    kinds = {name: FORMATS for name in MODELS} if everything else FEW
    if everything and os.path.exists(MODEL): kinds[REAL] = REAL_FORMATS
    modes = list(MODES) if everything else ['auto']
    got = {name: measure(name, kinds[name], modes, peer) for name in names or kinds}
    if peer:
        old = json.load(open(PEER)) if os.path.exists(PEER) else {}
        with open(PEER, 'w') as f: f.write(json.dumps({**old, **got}, indent=1) + '\n')
        return 0
    want = json.load(open(PEER))
    if doc: document(got, want, doc)
    faults = compare(got, want)
    for fault in faults: print(fault)
    return 1 if faults else 0


sys.exit(main())
