#!/usr/bin/env python3
"""Gemma 3 270M through the tool: right, and the same to the bit however it is run.

1. Against golden/gemma3-270m.json (float32 arithmetic on the same weights): tokens equal up to the first position where
   the reference's two highest logits are closer than TIE; the reference's 10 highest logits met within TOP10. Engines
   with 8-bit activations miss those by 0.16 to 0.86.
2. The logits after the prompt and every token are the same bytes for each step budget, block size, number of threads,
   number of requests at once, and with prefixes reused.
Standard library only. Exit 77: no model to run.
"""
import array, json, os, subprocess, sys, tempfile

TIE, TOP10 = 0.05, 0.02
HERE = os.path.dirname(os.path.abspath(__file__))
BIN, MODEL = os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer'), os.environ.get('PAGEDINFER_MODEL', '')
faults = []


def run(cases, *flags):
    """Result lines and the bytes of each case's logits."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, 'cases.json')
        with open(path, 'w') as f: json.dump(cases, f)
        r = subprocess.run([BIN, 'eval', '-m', MODEL, '--cases', path, '--logits-dir', d, *flags],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
        if r.returncode:
            print(r.stderr[-2000:])
            sys.exit(f'eval {" ".join(flags)} exited with {r.returncode}')
        lines = [json.loads(l) for l in r.stdout.splitlines()]
        if [l['name'] for l in lines] != [c['name'] for c in cases]: sys.exit('eval: other cases, or another order')
        return lines, [open(os.path.join(d, c['name'] + '.f32'), 'rb').read() for c in cases]


def against_reference(golden, lines, logits):
    worst = 0.0
    for g, line, raw in zip(golden, lines, logits):
        for i, (want, gap) in enumerate(zip(g['greedy'], g['gap'])):
            if gap < TIE: break
            if line['greedy'][i] != want: faults.append(f"{g['name']}: token {i} is {line['greedy'][i]}, not {want}")
        row = array.array('f')
        row.frombytes(raw)
        for token, value in g.get('top', [])[:10]:
            worst = max(worst, abs(row[token] - value))
    if worst > TOP10: faults.append(f'top-10 logits off by {worst:.4f}')
    return worst


def same(label, lines, logits, base_lines, base_logits):
    for a, b, x, y in zip(lines, base_lines, logits, base_logits):
        if x != y: faults.append(f"{label}: logits of {a['name']} differ from the plain run")
        if a['greedy'] != b['greedy']: faults.append(f"{label}: tokens of {a['name']} differ from the plain run")


def main():
    if not MODEL or not os.path.exists(MODEL):
        print('no model (PAGEDINFER_MODEL)')
        return 77
    golden = json.load(open(os.path.join(HERE, 'golden', 'gemma3-270m.json')))
    cases = [{k: g[k] for k in ('name', 'ids', 'n', 'rows')} for g in golden]
    lines, logits = run(cases, '-t', '2', '--no-prefix-cache')
    worst = against_reference(golden, lines, logits)
    plain = ['--no-prefix-cache']
    variants = [['-t', '1'], ['-ub', '16'], ['-ub', '64'], ['--block-size', '32'], ['--block-size', '64'],
                ['--parallel', '4'], ['--parallel', '4', '-ub', '64', '--block-size', '32', '-t', '1']]
    for v in variants: same(' '.join(v), *run(cases, *plain, *v), lines, logits)
    one = [i for i, c in enumerate(cases) if len(c['ids']) < 100]
    same('-ub 1', *run([cases[i] for i in one], *plain, '-ub', '1'), [lines[i] for i in one], [logits[i] for i in one])
    # each case in a crowd of 32, prefixes reused or not
    crowd = [dict(cases[i % len(cases)], name=f"{cases[i % len(cases)]['name']}_{i}") for i in range(32)]
    many = [i % len(cases) for i in range(32)]
    for v in (plain, []):
        same('32 at once' + (', prefixes reused' if not v else ''), *run(crowd, *v, '--parallel', '32', '--kv-cache-tokens', '32768'),
             [lines[i] for i in many], [logits[i] for i in many])
    for f in faults[:20]: print(f)
    print(f'gemma3: {len(cases)} cases, {len(variants) + 3} ways to run them, top-10 logits within {worst:.4f}, {len(faults)} faults')
    return 1 if faults else 0


sys.exit(main())
