#!/usr/bin/env python3
"""Runs Gemma 3 270M through the tool: correct results, bitwise identical in every configuration.

1. Against golden/gemma3-270m.json (float32 arithmetic on the same weights): tokens are equal up to the first position
   where the reference's two highest logits are closer than TIE. The reference's 10 highest logits are met within
   TOP10. Engines with 8-bit activations miss them by 0.16 to 0.86.
2. The logits after the prompt and every token are the same bytes for each step budget, block size, number of threads
   and number of concurrent requests, and with reused prefixes. With PAGEDINFER_LONG each of these alone, too.
Standard library only. Exit 77: no model to run.
"""
import array, json, os, sys

from eval_runs import crowd, differences, run

TIE, TOP10 = 0.05, 0.02
HERE = os.path.dirname(os.path.abspath(__file__))
MODEL, LONG = os.environ.get('PAGEDINFER_MODEL', ''), bool(os.environ.get('PAGEDINFER_LONG'))
faults = []


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


def same(label, got, want): faults.extend(differences(label, got, want))


def main():
    if not MODEL or not os.path.exists(MODEL):
        print('no model (PAGEDINFER_MODEL)')
        return 77
    golden = json.load(open(os.path.join(HERE, '..', 'golden', 'gemma3-270m.json')))
    cases = [{k: g[k] for k in ('name', 'ids', 'n', 'rows')} for g in golden]
    base = lines, logits = run(MODEL, cases, '-t', '2', '--no-prefix-cache')
    worst = against_reference(golden, lines, logits)
    plain = ['--no-prefix-cache']
    variants = [['-ub', '16', '--block-size', '64'], ['--parallel', '4', '-ub', '64', '--block-size', '32', '-t', '1']]
    if LONG: variants += [['-t', '1'], ['-ub', '16'], ['-ub', '64'], ['--block-size', '32'], ['--block-size', '64'], ['--parallel', '4']]
    for v in variants: same(' '.join(v), run(MODEL, cases, *plain, *v), base)
    one = [i for i, c in enumerate(cases) if len(c['ids']) < 100]
    same('-ub 1', run(MODEL, [cases[i] for i in one], *plain, '-ub', '1'), ([lines[i] for i in one], [logits[i] for i in one]))
    # Each case runs in a batch of 32 with reused prefixes, and without.
    many, want = crowd(cases, base, 32)
    for v in (plain, [])[not LONG:]:
        same('batch of 32' + (', prefixes reused' if not v else ''),
             run(MODEL, many, *v, '--parallel', '32', '--kv-cache-tokens', '32768'), want)
    for f in faults[:20]: print(f)
    print(f'gemma3: {len(cases)} cases, {len(variants) + 2 + LONG} configurations, top-10 logits within {worst:.4f}, {len(faults)} faults')
    return 1 if faults else 0


sys.exit(main())
