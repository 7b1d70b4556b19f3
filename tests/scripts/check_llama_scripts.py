#!/usr/bin/env python3
"""Runs a shell script written for llama.cpp's tools (llama_script.sh) with our tools under the same names.

If PAGEDINFER_PEER names a folder with llama.cpp's tools, the script also runs with them, and the outputs are compared:
the same keys, equal tokens and counts, perplexities within 3 %. If llama.cpp's source tree is the parent of that
folder, and GitPython and tabulate are installed, its compare-llama-bench.py reads our output in every format.
PAGEDINFER_BIN names the tool, PAGEDINFER_MODEL a model. Standard library only."""
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.abspath(os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer'))
NAMES = 'llama-cli llama-completion llama-bench llama-batched-bench llama-perplexity llama-quantize llama-tokenize'.split()
EQUAL = 'ids n_tokens md_rows sql_rows npl_rows'.split()
faults = []


def run(folder, model, tmp):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(('LLAMA_', 'PAGEDINFER_'))}
    text = os.path.join(HERE, '../golden/text.txt')
    r = subprocess.run(['sh', os.path.join(HERE, 'llama_script.sh'), folder, model, text, tmp], capture_output=True,
                       env=clean, timeout=2400)
    out = r.stdout.decode()
    print(out, end='')
    if r.returncode: faults.append(f'{folder}: exit {r.returncode} after {out.strip()[-60:]!r}: {r.stderr.decode()[-500:]}')
    return dict(line.split('=', 1) for line in out.splitlines())


def compare(ours, theirs):
    if list(ours) != list(theirs): faults.append(f'other names: {list(ours)} and {list(theirs)}')
    for key in EQUAL:
        if ours.get(key) != theirs.get(key): faults.append(f'{key}: {ours.get(key)} and {theirs.get(key)}')
    a, b = float(ours.get('ppl', 0)), float(theirs.get('ppl', 0))
    if not abs(a - b) <= 0.03 * b: faults.append(f'perplexity: {a} and {b}')


def compare_llama_bench(script, bench, model, tmp):
    """Makes files with two builds, as that script expects them: the second one is a copy with another commit."""
    files = {}
    for form in 'json', 'jsonl', 'csv', 'sql':
        out = subprocess.run([bench, '-m', model, '-p', '8', '-n', '2', '-r', '1', '-t', '2', '-o', form], capture_output=True)
        files[form] = out.stdout.decode()
    commit = json.loads(files['json'])[0]['build_commit']
    other = 'f' * len(commit)
    both = {form: (text, text.replace(commit, other)) for form, text in files.items()}
    path = {form: os.path.join(tmp, 'both.' + form) for form in files}
    with open(path['json'], 'w') as f: json.dump([row for text in both['json'] for row in json.loads(text)], f)
    with open(path['jsonl'], 'w') as f: f.write(''.join(both['jsonl']))
    with open(path['csv'], 'w') as f: f.write(both['csv'][0] + both['csv'][1].split('\n', 1)[1])
    db = sqlite3.connect(path['sql'])
    for text in both['sql']: db.executescript(text)
    db.commit()
    db.close()
    for form, file in path.items():
        r = subprocess.run([sys.executable, script, '--tool', 'llama-bench', '-i', file, '-b', commit, '-c', other],
                           capture_output=True, cwd=tmp)
        rows = [l for l in r.stdout.decode().split('\n') if '| pp8 ' in l or '| tg2 ' in l]
        if r.returncode or len(rows) != 2: faults.append(f'compare-llama-bench.py, {form}: {r.stderr.decode()[-300:]}')


def main():
    model, peer = os.environ.get('PAGEDINFER_MODEL', ''), os.environ.get('PAGEDINFER_PEER', '')
    if not model:
        print('no model')
        return 77
    with tempfile.TemporaryDirectory() as tmp:
        ours = os.path.join(tmp, 'names')
        os.mkdir(ours)
        for name in NAMES: os.symlink(BIN, os.path.join(ours, name))
        got = run(ours, model, tmp)
        if peer:
            compare(got, run(os.path.abspath(peer), model, tmp))
            script = os.path.join(os.path.realpath(peer), '../../llama.cpp/scripts/compare-llama-bench.py')
            if os.path.exists(script) and importlib.util.find_spec('git') and importlib.util.find_spec('tabulate'):
                compare_llama_bench(script, os.path.join(ours, 'llama-bench'), model, tmp)
                print('compare-llama-bench.py read every format')
    for f in faults: print(f)
    print(f"llama.cpp's script: {len(got)} results{' with both' if peer else ''}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
