#!/usr/bin/env python3
"""Gives every flag of llama.cpp's tools to ours under the same program name, and the flags of vLLM's server to
`pagedinfer serve`, and classifies the result.

    check_flags.py [--write]

Reads tests/golden/llama_flags.json (gen_llama_flags.py) and calls the tool for each spelling. tests/golden/
vllm_flags.json is written by hand: spellings, and a value of vLLM's documentation for each flag that takes one. A flag is accepted,
accepted with a line that names its replacement, refused as not built yet, or refused as having no meaning here. An
unknown flag is a fault, and so is a flag that takes a value in llama.cpp but not here. The table is docs/FLAGS.md:
--write writes it anew; without --write a difference is a fault. PAGEDINFER_BIN names the tool. Standard library
only."""
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(os.environ.get('PAGEDINFER_BIN', os.path.join(ROOT, 'build/pagedinfer')))
PAGE = os.path.join(ROOT, 'docs/FLAGS.md')
OURS = {'llama-cli': 'chat', 'llama-completion': 'run', 'llama-perplexity': 'eval', 'llama-bench': 'bench',
        'llama-batched-bench': 'bench', 'llama-quantize': 'quantize', 'llama-tokenize': 'tokenize',
        'llama-server': 'serve', 'vllm serve': 'serve'}
KINDS = ('accepted', 'noted', 'not yet', 'no meaning')
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(('LLAMA_', 'PAGEDINFER_', 'HF_'))}
CLEAN['LLAMA_ARG_OFFLINE'] = '1'  # the tool must fetch nothing
SCRATCH = tempfile.TemporaryDirectory()  # for files that flags create
faults = []


def call(tool, *args, env=None):
    """Runs the tool under the name `tool`, as a symlink would."""
    r = subprocess.run([tool, *args], executable=BIN, stdin=subprocess.DEVNULL, capture_output=True, cwd=SCRATCH.name,
                       env={**CLEAN, **(env or {})}, timeout=60)
    return r.returncode, r.stdout.decode(), r.stderr.decode()


def judge(tool, flag, name):
    """Returns (kind, explanation of the tool) for one spelling of a flag."""
    value = {'yes': ['1'], 'may': ['on'], 'no': []}[flag['value']]
    code, out, err = call(tool, name, *value, '--version')
    first = err.split('\n')[0]
    if m := re.search(r'is not built yet: (.*)', first): return 'not yet', m.group(1)
    if m := re.search(r'has no meaning here: (.*)', first): return 'no meaning', m.group(1)
    if value and 'unexpected argument' in first:
        faults.append(f'{tool} {name}: takes a value there and none here')
    elif code or not out:
        faults.append(f'{tool} {name}: exit {code}: {first}')
        return 'not yet', '?'
    if m := re.search(r'is not needed: (.*)', first): return 'noted', m.group(1)
    if 'has no effect here' in first: return 'noted', f"nothing that '{OURS[tool]}' does depends on it"
    return 'accepted', ''


def check_env(tool, flag, kind):
    """The environment variable acts like its flag: a refused flag and a bad value give an error that names the
    variable."""
    var = flag['env']
    if not var.startswith('LLAMA_'): return  # HF_TOKEN and similar variables also belong to other programs
    if kind in ('not yet', 'no meaning'):
        code, _, err = call(tool, env={var: 'x'})
        if code != 78 or var not in err: faults.append(f'{tool}: {var} sets a refused flag, but exit is {code}: {err[:200]}')
    elif kind == 'accepted' and flag['value'] == 'yes':
        said = call(tool, flag['names'][-1], '@')[2].split('\n')[0]
        if "'@' is" not in said: return  # a text: any value is valid
        code, _, err = call(tool, env={var: '@'})
        if said not in err and (code != 78 or var not in err): faults.append(f'{tool}: {var}=@: exit {code}: {err[:200]}')


def sweep(tool, flags):
    rows = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [(f, [pool.submit(judge, tool, f, n) for n in f['names']]) for f in flags]
        for f, results in jobs:
            by_kind = {}
            for name, r in zip(f['names'], results): by_kind.setdefault(r.result(), []).append(name)
            rows += [(kind, names, why, f) for (kind, why), names in by_kind.items()]
        if tool == 'llama-cli':
            list(pool.map(lambda r: check_env(tool, r[3], r[0]), [r for r in rows if 'env' in r[3]]))
    return rows


def judge_vllm(name, value):
    """Like judge, for a flag of vLLM. Without --version, so that the value is checked too: the tool then reports the
    missing model as the only error."""
    files = {'MODEL': os.path.join(SCRATCH.name, 'model.gguf'), 'TEMPLATE': os.path.join(SCRATCH.name, 'template.jinja')}
    value = [] if value is None else [files.get(value, value)]
    last = 'no such file' if name == '--model' else 'no model'
    code, _, err = call('pagedinfer', 'serve', name, *value)
    lines = [l for l in err.split('\n') if l]
    if m := re.search(r'is not built yet: (.*)', err): return 'not yet', m.group(1)
    if m := re.search(r'has no meaning here: (.*)', err): return 'no meaning', m.group(1)
    error = [l for l in lines if 'is not needed' not in l and not l.startswith(('Try', 'listening'))]
    if code not in (64, 66) or not any(last in l for l in error) or len(error) > 1:
        faults.append(f'pagedinfer serve {name} {value}: exit {code}: {err[:300]}')
    if m := re.search(r'is not needed: (.*)', err): return 'noted', m.group(1)
    return 'accepted', ''


def sweep_vllm(flags):
    with open(os.path.join(SCRATCH.name, 'template.jinja'), 'w') as f: f.write('{{ messages }}')
    rows = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for f in flags:
            kinds = [pool.submit(judge_vllm, n, f.get('value')) for n in f['names']]
            if len({k.result() for k in kinds}) != 1: faults.append(f'{f["names"]}: spellings differ')
            rows.append((*kinds[0].result(), f['names'], f))
    return [(kind, names, why, f) for kind, why, names, f in rows]


def code(names): return ', '.join(f'`{n}`' for n in names)


def page(results):
    text = ['# Flags of llama.cpp and vLLM', '',
            'Written by `tests/scripts/check_flags.py --write`. The script calls the tool by the name of each tool of '
            'llama.cpp, with each of its flags, and `pagedinfer serve` with the flags of `vllm serve`. Flags of older '
            'versions are included.', '',
            '| column | meaning |', '|---|---|',
            '| accepted | same effect |',
            '| noted | accepted without effect; a line on standard error gives the reason |',
            '| not yet | known, not implemented: exit status 64 |',
            '| no meaning | refused; will not be implemented |', '',
            '| tool | here | accepted | noted | not yet | no meaning |', '|---|---|---:|---:|---:|---:|']
    for tool, rows in results.items():
        n = [sum(r[0] == k for r in rows) for k in KINDS]
        text.append(f'| {tool} | {OURS[tool]} | ' + ' | '.join(map(str, n)) + ' |')
    for tool, rows in results.items():
        text += ['', f'## {tool}', '']
        for kind, title in zip(KINDS[1:], ('Noted', 'Not yet', 'No meaning')):
            by_why = {}
            for k, names, why, _ in rows:
                if k == kind: by_why.setdefault(why, []).extend(names)
            if not by_why: continue
            text += [f'| {title} | |', '|---|---|']
            text += [f'| {code(names)} | {why} |' for why, names in by_why.items()] + ['']
        text.append('Accepted: ' + '; '.join(code(r[1]) for r in rows if r[0] == 'accepted') + '.')
    return '\n'.join(text) + '\n'


def check_refused(results):
    """Each row of REFUSED_OPTIONS must still refuse some flag; a flag that works by now has to leave that table."""
    table = ''
    for name, macro in (('options_table.h', 'REFUSED_OPTIONS'), ('vllm_table.h', 'VLLM_REFUSED')):
        with open(os.path.join(ROOT, 'tools', name)) as f: table += f.read().split('#define ' + macro)[1]
    used = {n for rows in results.values() for kind, names, _, _ in rows if kind in KINDS[2:] for n in names}
    for row in re.findall(r'(?:LATER|NEVER)\((.*?)\)(?: *\\)?\n', table, re.S):
        flags = ''.join(re.findall(r'"([^"]*)"\s*\\?\s*', row.split('",')[0] + '"')).split()
        if not used & set(flags): faults.append(f'{flags[0]}: that row of refused options refuses nothing')


def main():
    with open(os.path.join(ROOT, 'tests/golden/llama_flags.json')) as f: facts = json.load(f)
    results = {tool: sweep(tool, flags) for tool, flags in facts.items()}
    with open(os.path.join(ROOT, 'tests/golden/vllm_flags.json')) as f: results['vllm serve'] = sweep_vllm(json.load(f))
    check_refused(results)
    text = page(results)
    if '--write' in sys.argv[1:]:
        with open(PAGE, 'w') as f: f.write(text)
    old = open(PAGE).read() if os.path.exists(PAGE) else ''
    if old != text:
        new = [l for l in text.split('\n') if l not in old.split('\n')]
        faults.append('docs/FLAGS.md is out of date; check_flags.py --write makes it anew. New there: ' + '\n'.join(new[:5]))
    for f in faults: print(f)
    total = [sum(r[0] == k for rows in results.values() for r in rows) for k in KINDS]
    print("flags of llama.cpp and vLLM: " + ', '.join(f'{n} {k}' for n, k in zip(total, KINDS)) + f'; {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
