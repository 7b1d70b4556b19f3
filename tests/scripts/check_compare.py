#!/usr/bin/env python3
"""Checks tools/compare_peers.py with fake engines that only print numbers: medians, ratios, missing values, builds.

1. Three engines, two activation widths, two models: medians of three rounds, ratios, alternating order, and the flags
   that each program received. A "-" where ik_llama.cpp has no number in some round. The JSON has all of it too.
2. Two engines, one model: the table with one ratio, memory and accuracy.
3. --suite uses the existing files, with its own defaults. --ik with a source tree builds it; a fake CMake records its
   flags.
4. A failing or silent llama.cpp, and wrong arguments: the right exit status, and a message that names the cause.
Standard library only; takes seconds.
"""
import json, os, re, subprocess, sys, tempfile
from pathlib import Path

TOOL = Path(__file__).resolve().parent.parent.parent / 'tools' / 'compare_peers.py'
# Speeds are the engine's `base` times 1, 3 and 2 in the rounds, so the median is twice `base`. Each call adds a line
# to calls.txt.
FAKE = f'''#!{sys.executable} -IS
import json, sys
from pathlib import Path
me, argv = Path(sys.argv[0]), sys.argv[1:]
folder = me.parent
value = lambda flag, other='': argv[argv.index(flag) + 1] if flag in argv else other
bits = value('--activation-bits')
if argv == ['--version']: sys.exit(print('pagedinfer 1.2.3' if folder.name == 'ours' else 'version: 7 (abc)'))
with open(folder.parent / 'calls.txt', 'a') as f: print(folder.name, me.name, *argv, file=f)
if folder.joinpath('fails').exists(): sys.exit('no such luck')
if folder.joinpath('mute').exists(): sys.exit(0)
base = {{'ours': 400, 'peer': 100, 'ik': 250}}.get(folder.name, 1000) * (2 if bits == '8' else 1)
levels = value('-npl')
count = folder / f'{{Path(value("-m")).stem}}-{{levels or "one"}}-{{bits}}.count'
if '--kl-divergence' in argv: print('Mean KLD: 0.5' if folder.name == 'ours' else 'Mean KLD: 2.0', 'Same top p: 90.0', sep=chr(10))
if 'F32' in argv: Path(argv[2]).touch()
if not levels and '-p' not in argv: sys.exit(0)
count.open('a').write('x')
speed = base * [1, 3, 2][(count.stat().st_size - 1) % 3]
if not levels:
    print(json.dumps([{{'n_prompt': int(value('-p')), 'avg_ts': speed}}, {{'n_prompt': 0, 'avg_ts': speed / 10}}]))
for n in map(int, levels.split(',')) if levels else ():
    if folder.name in ('ours', 'peer'): print(json.dumps({{'pl': n, 'speed_pp': speed, 'speed_tg': speed * n}}))
    elif n == 16 and count.stat().st_size == 2: sys.exit(134)
    else: print(f'|    32 |     32 | {{n:4}} | {{64 * n:6}} |    0.333 | {{speed:8.2f}} |    1.075 | {{speed * n:8.2f}} |', file=sys.stderr)
if folder.name == 'peer' and '-lv' in argv: print('llama_kv_cache: size = 2.00 MiB', file=sys.stderr)
if folder.name == 'ik': print('llama_init_from_model: KV self size  =    3.00 MiB, K (f16):    1.50 MiB', file=sys.stderr)
'''
CMAKE = '''#!/bin/sh
echo "$@" >>"$FOLDER/cmake.txt"
[ "$1" = --build ] || exit 0
mkdir -p "$2/bin" && cp "$FOLDER"/ik/llama-* "$2/bin"
'''
faults = []


def expect(what, ok):
    if not ok: faults.append(what)


def programs(folder):
    for name in ('ours/pagedinfer', *(f'peer/llama-{p}' for p in ('bench', 'batched-bench', 'perplexity', 'quantize')),
                 'ik/llama-bench', 'ik/llama-batched-bench', 'bin/cmake'):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(CMAKE if name == 'bin/cmake' else FAKE)
        file.chmod(0o755)
    for name in ('a.gguf', 'b.gguf'): (folder / name).touch()


def compare(folder, *argv, code=0, says=''):
    """Runs the tool with all round counts reset. Returns (its standard output, the lines of calls.txt)."""
    for f in [*folder.glob('*/*.count'), folder / 'calls.txt']: f.unlink(missing_ok=True)
    argv = ['--bin', 'ours/pagedinfer', '--peer', 'peer', '--work', 'work', '-t', '1', *argv]
    r = subprocess.run([sys.executable, TOOL, *argv], cwd=folder, capture_output=True, text=True, timeout=120,
                       env={**os.environ, 'PATH': f'{folder / "bin"}:{os.environ["PATH"]}', 'FOLDER': str(folder)})
    expect(f'{" ".join(argv)}: exit {r.returncode}, not {code}: {r.stderr[-600:]}', r.returncode == code)
    expect(f'{" ".join(argv)}: no "{says}" in {r.stderr[-300:]}', says in r.stderr)
    calls = folder / 'calls.txt'
    return r.stdout, calls.read_text().splitlines() if calls.exists() else []


def has(text, *lines):
    for line in lines: expect(f'no line {line} in\n{text}', line in text.splitlines())


def three_engines(folder):
    text, calls = compare(folder, '-m', 'a.gguf', '-m', 'b.gguf', '--ik', 'ik', '--activation-bits', '15,8', '--rounds', '3',
                          '-p', '512', '-n', '64', '--npl', '4,16', '--no-kl', '--out', 'out', says='ik_llama.cpp reports no speed for')
    row = '800.0 / 1600.0 / 200.0 / 500.0 | 80.0 / 160.0 / 20.0 / 50.0 | '
    row += '3200.0 / 6400.0 / 800.0 / 2000.0 | 12800.0 / 25600.0 / 3200.0 / - |'
    has(text, '| | pp512 | tg64 | decode at 4 | decode at 16 |', f'| a | {row}', f'| b | {row}',
        '| ratio to llama.cpp | 4.00 / 8.00 | 4.00 / 8.00 | 4.00 / 8.00 | 4.00 / 8.00 |',
        '| ratio to ik_llama.cpp | 1.60 / 3.20 | 1.60 / 3.20 | 1.60 / 3.20 | - / - |',
        '| decode, 16 at once, t/s | 12800.0 | 25600.0 | 3200.0 | - | 4.00 (± 50 %) |  | 8.00 (± 50 %) |  |')
    result = json.loads((folder / 'out/compare.json').read_text())
    expect('the JSON has another median', result['models'][1]['speeds']['pagedinfer, 8 bits']['prefill'] == [800, 2400, 1600])
    expect('the JSON lacks a round that was run', len(result['models'][0]['speeds']['ik_llama.cpp']['decode, 16 at once']) == 2)
    expect('ik_llama.cpp has another cache', result['models'][0]['kv']['ik_llama.cpp'] == 3 << 20)
    expect('compare.md differs from the printed report', (folder / 'out/compare.md').read_text() == text.removesuffix('\n'))
    order = [c.split()[0] for c in calls if re.search(r' -p 512 .*a\.gguf|a\.gguf -p 512 ', c)]
    expect(f'the order of the rounds: {order}', order == ['ours', 'ours', 'peer', 'ik', 'ik', 'peer', 'ours', 'ours'] + order[:4])
    expect('8 bits are not asked for', any(c.startswith('ours pagedinfer bench --activation-bits 8 ') for c in calls))
    expect('ik_llama.cpp is given flags that it does not know', not any('jsonl' in c for c in calls if c.startswith('ik ')))
    expect('commands name the models', 'MODEL' in text and 'a.gguf -p' not in text)


def two_engines(folder):
    text, calls = compare(folder, '-m', 'a.gguf', '--activation-bits', '8', '--rounds', '3', '--npl', '4')
    has(text, '| | pagedinfer | llama.cpp | ratio |', '|---|---|---|---|', '| prefill, t/s | 1600.0 | 200.0 | 8.00 (± 50 %) |',
        '| KV cache, MiB | - | 2.0 |  |', '| mean KL divergence from F32 | 0.500000 | 2.000000 | 0.25 |')
    expect('a table of several models where there is one', 'decode at 4' not in text)
    expect('another engine ran', not any(c.startswith('ik ') for c in calls))


def shapes(folder):
    names = ['qwen3.5-0.8b-q4_k_m', 'qwen3.5-0.8b-q8_0', 'qwen3.5-0.8b-q4_0', 'qwen3.5-0.8b-iq4_xs', 'qwen3-30b-a3b-q4_k_m-4-layers']
    (folder / 'suite').mkdir()
    for name in names: (folder / f'suite/{name}.gguf').touch()
    text, calls = compare(folder, '-m', 'a.gguf', '--suite', 'suite', '--rounds', '1')
    has(text, '| | pp512 | tg64 | decode at 4 | decode at 16 | decode at 32 |')
    expect(f'the lines are others:\n{text}', re.findall(r'^\| (\S+) \| [\d.]+ / ', text, re.M) == ['a', *names])
    expect('accuracy of random weights', sum('--kl-divergence-base' in c and '--kl-divergence ' in c + ' ' for c in calls) == 2)
    expect('prompts of another length', any('-npp 32 -ntg 32 -npl 4,16,32' in c for c in calls))


def built(folder):
    (folder / 'source').mkdir()
    (folder / 'source/CMakeLists.txt').touch()
    text, _ = compare(folder, '-m', 'a.gguf', '--ik', 'source', '--cpu-isa', 'avx2', '--rounds', '1', '--npl', '4', '--no-kl')
    has(text, '| decode, 4 at once, t/s | 1600.0 | 400.0 | 4000.0 | 4.00 (± 0 %) | 0.40 (± 0 %) |')
    lines = (folder / 'cmake.txt').read_text().splitlines()
    for flag in ('-DCMAKE_BUILD_TYPE=Release', '-DGGML_AVX2=ON', '-DGGML_NATIVE=OFF', '-DLLAMA_CURL=OFF', '-DGGML_IQK_FA_ALL_QUANTS=OFF'):
        expect(f'no {flag} in {lines[0]}', flag in lines[0].split())
    expect(f'targets: {lines[1]}', lines[1].endswith('--target llama-bench llama-batched-bench'))


def mistakes(folder):
    compare(folder, code=2, says='which model?')
    compare(folder, '-m', 'c.gguf', code=2, says='no such file: c.gguf')
    compare(folder, '-m', 'a.gguf', '--activation-bits', '15,4', code=2, says='--activation-bits is 15, 8 or 15,8')
    compare(folder, '-m', 'a.gguf', '--ik', 'bin', code=1, says='lacks llama-bench, llama-batched-bench')
    for way, says in (('fails', 'exit 1\nno such luck'), ('mute', 'llama.cpp reports no speed for: prefill; decode; prefill, 4 at once')):
        (folder / 'peer' / way).touch()
        text, _ = compare(folder, '-m', 'a.gguf', '--rounds', '1', '--npl', '4', '--no-kl', code=1, says=says)
        expect(f'a table although llama.cpp {way}', not text)
        (folder / 'peer' / way).unlink()
    (folder / 'ik/fails').touch()
    text, _ = compare(folder, '-m', 'a.gguf', '--ik', 'ik', '--rounds', '1', '--npl', '4', '--no-kl', says='exit 1\nno such luck')
    has(text, '| decode, t/s | 40.0 | 10.0 | - | 4.00 (± 0 %) |  |')
    expect('memory of a program that failed', re.search(r'^\| peak resident set, MiB \| [\d.]+ \| [\d.]+ \| - \|', text, re.M))


with tempfile.TemporaryDirectory() as d:
    programs(Path(d).resolve())
    for check in (three_engines, two_engines, shapes, built, mistakes): check(Path(d).resolve())
if faults: sys.exit('\n'.join(faults))
print('compare: tables of two and three engines, of one and several models; builds; mistakes')
