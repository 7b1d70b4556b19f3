#!/usr/bin/env python3
"""Runs many concurrent requests through the tool with the real model.

bench --shared-prefix with 4 tenants: the shared tokens are computed exactly once and stored in the cache once. With
these counts, 32 tenants save a factor of 15 in prompt tokens and 10 in memory.

eval --concurrency-suite with up to 8 concurrent requests (PAGEDINFER_LONG: 16): no faults, the model names the words,
and the rounds are the expected ones: every size, with cancels, with and without cached tokens, and with preemptions in the small cache.
test_best_rows: with a large vocabulary, requests with different sampling settings get the same tokens in a batch as in
a batch of one.
Standard library only. Exit 77: no model to run.
"""
import json, os, re, subprocess, sys

BIN, MODEL = os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer'), os.environ.get('PAGEDINFER_MODEL', '')
TENANTS, PREFIX, TAIL, GEN, BLOCK = 4, 1024, 16, 16, 16
SIZES = [1, 2, 4, 8, 16] if os.environ.get('PAGEDINFER_LONG') else [1, 2, 4, 8]
OWN = -(-(TAIL + GEN - 1) // BLOCK)  # private blocks of a tenant
faults = []


def tool(*argv):
    r = subprocess.run([BIN, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    if r.returncode: faults.append(f'{" ".join(argv)}: exit {r.returncode}: {r.stderr[-300:]}')
    return r.stdout


def shared_prefix():
    out = tool('bench', '-m', MODEL, '--shared-prefix', '--tenants', str(TENANTS), '-o', 'jsonl')
    rows = {(r['order'], r['prefix_cache']): r for r in map(json.loads, out.splitlines())}
    if sorted(rows) != [(o, c) for o in ('at once', 'in turn') for c in (False, True)]:
        return faults.append(f'shared prefix: other rows: {out}')
    for (order, cache), r in rows.items():
        want = PREFIX + TENANTS * TAIL if cache else TENANTS * (PREFIX + TAIL)
        if r['prompt_tokens'] != TENANTS * (PREFIX + TAIL) or r['computed_tokens'] != want:
            faults.append(f'{order}: {r["computed_tokens"]} of {r["prompt_tokens"]} prompt tokens computed, not {want}')
        if r['n_preempted']: faults.append(f'{order}: {r["n_preempted"]} preemptions in a cache that is large enough')
    off, on = rows['at once', False], rows['at once', True]
    full, common = (off['peak_blocks']['full'], on['peak_blocks']['full']), PREFIX // BLOCK
    if full != (TENANTS * (common + OWN), common + TENANTS * OWN):
        faults.append(f'blocks of the group full at the peak: {full[0]} and {full[1]}')
    # Private tokens and blocks grow with the number of tenants; shared ones do not. This extrapolates to 32 tenants.
    tokens = off['computed_tokens'] * 32 / TENANTS, on['computed_tokens'] + (32 - TENANTS) * TAIL
    if tokens[0] < 15 * tokens[1]: faults.append(f'prompt tokens computed by 32 tenants: {tokens}')
    for name, n in on['peak_blocks'].items():
        held = off['peak_blocks'][name] * 32 / TENANTS, n + (32 - TENANTS) * OWN
        if held[0] < 10 * held[1]: faults.append(f'blocks that 32 tenants need in group {name}: {held}')
    print(f'shared prefix: {off["computed_tokens"]} -> {on["computed_tokens"]} tokens, {off["peak_bytes"]} -> '
          f'{on["peak_bytes"]} bytes, {off["t"]:.1f} -> {on["t"]:.1f} s')


def suite():
    out = tool('eval', '-m', MODEL, '--concurrency-suite', '--parallel', str(SIZES[-1]), '--seed', '5')
    print(out)
    names = re.search(r'^alone: (\d+) conversations, .* (\d+) answers name their word$', out, re.M)
    if not names or int(names[2]) < int(names[1]) * 3 / 4: faults.append('suite: the model does not know the words')
    rows = [[w.strip() for w in l.split('|')[1:-1]] for l in out.splitlines() if re.match(r'\| +\d', l)]
    for cache in ('on', 'off'):
        ample = [r for r in rows if r[1:3] == [cache, 'ample']]
        if [int(r[0]) for r in ample] != SIZES: faults.append(f'suite: other rounds with the prefix cache {cache}')
        if any((int(r[6]) > 0) != (cache == 'on') for r in ample): faults.append(f'suite: tokens from a cache that is {cache}')
        if not any(int(r[5]) for r in rows if r[1:3] == [cache, 'small']): faults.append('suite: no preemption')
    if any(int(r[4]) < 1 or int(r[7]) != max(8, int(r[0])) or int(r[8]) for r in rows): faults.append('suite: counts of a round')
    if not out.rstrip().endswith(f'{len(rows)} rounds, 0 faults'): faults.append('suite: no good end')


def sampled_together():
    program = os.path.join(os.environ.get('PAGEDINFER_BUILD', 'build'), 'tests', 'test_best_rows')
    r = subprocess.run([program, MODEL], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if r.returncode: faults.append(f'test_best_rows: exit {r.returncode}: {r.stdout[-300:]}')


def main():
    if not MODEL or not os.path.exists(MODEL):
        print('no model (PAGEDINFER_MODEL)')
        return 77
    shared_prefix()
    suite()
    sampled_together()
    for f in faults: print(f)
    print(f'concurrency: {len(faults)} faults')
    return bool(faults)


if __name__ == '__main__':
    sys.exit(main())
