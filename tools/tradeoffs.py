#!/usr/bin/env python3
"""Measures trade-offs of accuracy, speed and memory: drafters, fewer layers, fewer experts, cache types, sparse
prefill.

    tools/tradeoffs.py -m MODEL.gguf -f TEXT [--parts drafts,floor,layers,experts,cache,memory,long,sparse,needle]
                       [--bin build/pagedinfer]

Prints Markdown tables of these parts:

drafts    bench --spec: share of accepted drafts, tokens per step, and speed relative to no drafting. Once with the
          engine's choice of draft length, once with the maximum (--no-spec-adaptive). --md FILE,... are drafting
          models. -p 0 uses each complete text as the prompt, otherwise -p tokens of it.

floor     The same where drafting cannot help: random words, 1 and 16 sequences, by processor time.

layers    --n-layer-exit at 100, 75 and 50 % of the layers: KL divergence from all layers, perplexity, speed.

experts   --moe-n-expert at 100, 75 and 50 % of the experts per token: the same columns.

cache     --cache-type: bytes per token, KL divergence from an f32 cache, perplexity.

memory    Memory of fully committed pools of each of these types, compared with the plan.

long      Decoding after --depth tokens, q4_0 and tq4_0 in alternation.

sparse    --prefill-sparsity: contexts of --context tokens, with the second half scored. KL divergence from dense
          prefill, and time.

needle    --prefill-sparsity: a number occurs somewhere in a prompt of about --context tokens, and is asked for at its
          end.

Speeds are by processor time of one thread, because machines are shared: the time of a run with generation minus that
of one without. Rounds alternate the compared variants; medians are printed. Standard library only.
"""
import argparse, json, os, random, re, resource, statistics, subprocess, sys, tempfile

CACHE = ['*:f16', '*:q8_0', 'first2:f16,last2:f16,*:tq4_0', '*.k:q8_0,*.v:tq3_0', '*:tq4_0', '*:q4_0', '*:tq3_0']


def run(a, *args):
    """Runs the tool. Returns (output, processor seconds)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    r = subprocess.run([a.bin, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if r.returncode: sys.exit(f'{" ".join(map(str, args))}: {r.stderr[-600:]}')
    return r.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def inspect(a, *flags): return json.loads(run(a, 'inspect', '-m', a.model, '--json', *flags)[0])


def quality(a, text, base, *flags):
    """Returns (mean KL divergence from the file base, percentage of equal first tokens, perplexity)."""
    out = run(a, 'eval', '-m', a.model, '-f', text, '-c', a.context, '-t', a.threads, '--kl-divergence', '--kl-divergence-base', base,
              *flags)[0]
    number = lambda name: float(re.search(name + r' *: *(-?[0-9.]+)', out).group(1))
    return number('Mean +KLD'), number('Same top p'), number(r'Mean PPL\(Q\)')


def base_of(a, text, to, *flags):
    run(a, 'eval', '-m', a.model, '-f', text, '-c', a.context, '-t', a.threads, '--kl-divergence-base', to, *flags)


def decode_ms(a, n, depth, ways):
    """Returns the processor milliseconds per decoded token for each list of flags in ways. They are medians of rounds
    that alternate the lists."""
    got = [[] for _ in ways]
    for r in range(a.rounds):
        order = range(len(ways)) if r % 2 == 0 else reversed(range(len(ways)))
        for i in order:
            common = ['bench', '-m', a.model, '-t', 1, '-p', 0, '-d', depth, '-r', 1, '-o', 'json', *ways[i]]
            with_n, few = run(a, *common, '-n', n + 8)[1], run(a, *common, '-n', 8)[1]
            got[i].append((with_n - few) / n * 1000)
    return [statistics.median(g) for g in got]


def drafters(a):
    """Returns [(drafter, its name in tables, its flags)]."""
    ways = [('ngram', []), ('layer-exit', [])] + [('mtp', [])] * a.mtp + [('draft', ['-md', f]) for f in a.md]
    return [(spec, f'{spec} ({os.path.basename(flags[1])})' if flags else spec, flags) for spec, flags in ways]


def spec_rows(a, text, spec, n_prompt, *flags):
    """Returns the result rows of bench --spec for a drafter, one per number of sequences."""
    out, _ = run(a, 'bench', '-m', a.model, '-f', text, '-t', 1, '--poll', 0, '-p', n_prompt, '-n', a.generate, '-r', a.rounds,
                 '-o', 'jsonl', '--spec', spec, *flags)
    return [r for r in map(json.loads, out.splitlines()) if r['spec'] == spec]


def drafts(a):
    print('\n| text | drafter | drafts | accepted, % | tokens per step | speed, by CPU |\n|---|---|---|---|---|---|')
    for text in a.file:
        for spec, name, flags in drafters(a):
            for most in [], ['--no-spec-adaptive']:
                r = spec_rows(a, text, spec, a.prompt, *flags, *most)[0]
                print(f'| {os.path.basename(text)} | {name}{", always" if most else ""} | {r["drafted"]} | '
                      f'{100 * r["accepted"] / max(r["drafted"], 1):.1f} | {r["tokens_per_step"]:.2f} | {r["cpu_speedup"]:.3f} |',
                      flush=True)


def floor(a):
    rng = random.Random(1)
    words = [w for w in re.findall(r'[A-Za-z]{3,}', open(a.file[0], encoding='utf-8').read())]
    print('\n| drafter | sequences | drafts | accepted, % | speed, by CPU | speed |\n|---|---|---|---|---|---|')
    with tempfile.NamedTemporaryFile('w', suffix='.txt') as f:
        f.write(' '.join(rng.choice(words) for _ in range(40 * a.prompt)))
        f.flush()
        for spec, name, flags in drafters(a):
            for r in spec_rows(a, f.name, spec, a.prompt, '-npl', '1,16', *flags):
                print(f'| {name} | {r["pl"]} | {r["drafted"]} | {100 * r["accepted"] / max(r["drafted"], 1):.1f} | '
                      f'{r["cpu_speedup"]:.3f} | {r["speedup"]:.3f} |', flush=True)


def fewer(a, most, option, what):
    """Prints a table for 100, 75 and 50 % of `most` layers or experts."""
    ns = sorted({most, -(-most * 3 // 4), -(-most // 2)}, reverse=True)
    speeds = decode_ms(a, a.generate, 0, [[option, n] for n in ns]) if a.speed else [None] * len(ns)
    print(f'\n| {what} | perplexity | mean KL divergence | same first token, % | ms per token | speed |\n|---|---|---|---|---|---|')
    with tempfile.TemporaryDirectory() as d:
        base = os.path.join(d, 'base')
        base_of(a, a.file[0], base)
        for n, ms in zip(ns, speeds):
            kl, same, ppl = quality(a, a.file[0], base, option, n)
            cells = [f'{ms:.2f}', f'{speeds[0] / ms:.2f}'] if ms else ['', '']
            print(f'| {n} | {ppl:.2f} | {kl:.4f} | {same:.1f} | {" | ".join(cells)} |', flush=True)


def layers(a):
    meta = inspect(a)['metadata']
    most = meta[meta['general.architecture'] + '.block_count'] - meta.get(meta['general.architecture'] + '.nextn_predict_layers', 0)
    fewer(a, most, '--n-layer-exit', 'layers')


def experts(a):
    meta = inspect(a)['metadata']
    fewer(a, meta[meta['general.architecture'] + '.expert_used_count'], '--moe-n-expert', 'experts per token')


def peak(a, *flags):
    """Returns the peak resident set, in bytes, of a request for one token."""
    p = subprocess.Popen([a.bin, 'run', '-m', a.model, '-p', 'a', '-n', '1', '-no-cnv', '-t', '1', *flags],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode: sys.exit(f'run {" ".join(flags)}: exit status {p.returncode}')
    return used.ru_maxrss * 1024


def memory(a):
    """Prints the measured memory of fully committed pools: the difference from an engine that has committed none."""
    print(f'\n| `--cache-type` | bytes per token, planned | pools of {a.context} tokens, planned, MiB | added resident set, MiB | measured / planned |\n|---|---|---|---|---|')
    for rules in CACHE:
        flags = ['--cache-type', rules, '-c', str(a.context), '--parallel', '8', '--kv-cache-tokens', str(a.context)]
        plan = inspect(a, *flags)['plan']
        size = sum(g['block_bytes'] // g['block_size'] for g in plan['groups'] if g['name'] != 'recurrent')
        more = peak(a, *flags, '--kv-commit', 'full') - peak(a, *flags)
        print(f'| `{rules}` | {size} | {plan["kv_bytes"] / 2**20:.1f} | {more / 2**20:.1f} | {more / plan["kv_bytes"]:.3f} |', flush=True)


def cache(a):
    print('\n| `--cache-type` | bytes per token | perplexity | mean KL divergence | same first token, % |\n|---|---|---|---|---|')
    with tempfile.TemporaryDirectory() as d:
        base = os.path.join(d, 'base')
        base_of(a, a.file[0], base, '-ctk', 'f32', '-ctv', 'f32')
        for rules in CACHE:
            kl, same, ppl = quality(a, a.file[0], base, '--cache-type', rules)
            groups = inspect(a, '--cache-type', rules)['plan']['groups']
            size = sum(g['block_bytes'] // g['block_size'] for g in groups if g['name'] != 'recurrent')
            print(f'| `{rules}` | {size} | {ppl:.2f} | {kl:.5f} | {same:.1f} |', flush=True)


def long(a):
    ways = [['-ctk', t, '-ctv', t] for t in ('q4_0', 'tq4_0')]
    got = decode_ms(a, 24, a.depth, ways)
    print(f'\nDecoding after {a.depth} tokens: {got[0]:.2f} ms per token with q4_0, {got[1]:.2f} ms with tq4_0 ({got[1] / got[0]:.3f})')


def sparse(a):
    print('\n| `--prefill-sparsity` | perplexity | mean KL divergence | same first token, % | CPU, s |\n|---|---|---|---|---|')
    with tempfile.TemporaryDirectory() as d:
        base = os.path.join(d, 'base')
        run(a, "eval", "-m", a.model, "-f", a.file[0], "-c", a.context, "-t", a.threads, "--chunks", 1,
            '--kl-divergence-base', base)
        for share in '0', '0.12', '0.25':
            before = os.times()
            kl, same, ppl = quality(a, a.file[0], base, '--prefill-sparsity', share, '--prefill-sparsity-from', 2048)
            after = os.times()
            took = after.children_user + after.children_system - before.children_user - before.children_system
            print(f'| {share} | {ppl:.2f} | {kl:.4f} | {same:.1f} | {took:.1f} |', flush=True)


def needle(a):
    rng = random.Random(2)
    text = open(a.file[0], encoding='utf-8').read()
    size = a.context * len(text) // len(json.loads(run(a, 'tokenize', '-m', a.model, '-f', a.file[0], '--ids')[0]))
    print('\n| position in the prompt | `--prefill-sparsity` | found | CPU, s |\n|---|---|---|---|')
    for depth in 0.1, 0.3, 0.5, 0.7, 0.9:
        code = f'{rng.randrange(10000, 100000)}'
        at = text.index('\n', int(depth * size))
        prompt = f'{text[:at]}\nThe code of the harbour is {code}.\n{text[at:size]}\nAs said before, the code of the harbour is'
        with tempfile.NamedTemporaryFile('w', suffix='.txt') as f:
            f.write(prompt)
            f.flush()
            for share in '0', '0.12', '0.25':
                out, took = run(a, 'run', '-m', a.model, '-f', f.name, '-n', 8, '--temp', 0, '-t', a.threads,
                                '--prefill-sparsity', share, '--prefill-sparsity-from', 2048)
                print(f'| {depth} | {share} | {"yes" if code in out else "no"} | {took:.1f} |', flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('-m', '--model', required=True)
    p.add_argument('-f', '--file', action='append', required=True, help='text; may be repeated for drafts')
    p.add_argument('--bin', default='build/pagedinfer')
    p.add_argument('--parts', default='drafts,layers,cache')
    p.add_argument('--md', default=[], type=lambda s: s.split(','), help='drafting models, separated by commas')
    p.add_argument('--mtp', action='store_true', help="also measure the model's own draft head")
    p.add_argument('-p', '--prompt', type=int, default=512, help='prompt tokens for drafts; 0: the complete text')
    p.add_argument('-n', '--generate', type=int, default=128)
    p.add_argument('-c', '--context', type=int, default=512)
    p.add_argument('-t', '--threads', type=int, default=1)
    p.add_argument('-d', '--depth', type=int, default=32768)
    p.add_argument('-r', '--rounds', type=int, default=3)
    p.add_argument('--no-speed', dest='speed', action='store_false', help='do not measure speeds of layers and experts')
    a = p.parse_args()
    for part in a.parts.split(','):
        if part not in ('drafts', 'floor', 'layers', 'experts', 'cache', 'memory', 'long', 'sparse', 'needle'): p.error(f'no part named {part}')
        print(f'\n### {part}: {os.path.basename(a.model)}')
        globals()[part](a)


main()
