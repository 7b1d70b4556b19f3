#!/usr/bin/env python3
"""What one gives for what, measured: drafters, fewer layers, fewer experts, types of the cache.

    tools/tradeoffs.py -m MODEL.gguf -f TEXT [--parts drafts,layers,experts,cache,long] [--bin build/pagedinfer]

Prints tables in Markdown, each with the commands that it is made of:

drafts    bench --spec: how often drafts are right, tokens a step, speed beside none. --md FILE,... are drafting models;
          with several -f the texts are columns. -p 0 takes each text whole as the prompt, else so many tokens of it.
layers    --n-layer-exit at 100, 75 and 50 % of the layers: KL divergence from all of them, perplexity, speed
experts   --moe-n-expert at 100, 75 and 50 % of the experts a token: the same
cache     --cache-type: bytes a token, KL divergence from an f32 cache, perplexity
long      decoding behind --depth tokens, q4_0 and tq4_0 in turns

Speeds are by processor time of one thread, since machines are shared: that of a run with generation less that of one
without. Rounds alternate what is compared; medians are shown. Standard library only.
"""
import argparse, json, os, re, resource, statistics, subprocess, sys, tempfile

CACHE = ['*:f16', '*:q8_0', 'first2:f16,last2:f16,*:tq4_0', '*.k:q8_0,*.v:tq3_0', '*:tq4_0', '*:q4_0', '*:tq3_0']


def run(a, *args):
    """Output and processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    r = subprocess.run([a.bin, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if r.returncode: sys.exit(f'{" ".join(map(str, args))}: {r.stderr[-600:]}')
    return r.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def inspect(a, *flags): return json.loads(run(a, 'inspect', '-m', a.model, '--json', *flags)[0])


def quality(a, text, base, *flags):
    """Mean KL divergence from the file base, how often the first token is the same, perplexity."""
    out = run(a, 'eval', '-m', a.model, '-f', text, '-c', a.context, '-t', a.threads, '--kl-divergence', '--kl-divergence-base', base,
              *flags)[0]
    number = lambda name: float(re.search(name + r' *: *([0-9.]+)', out).group(1))
    return number('Mean +KLD'), number('Same top p'), number(r'Mean PPL\(Q\)')


def base_of(a, text, to, *flags):
    run(a, 'eval', '-m', a.model, '-f', text, '-c', a.context, '-t', a.threads, '--kl-divergence-base', to, *flags)


def decode_ms(a, n, depth, ways):
    """Processor milliseconds of a decoded token for each list of flags in ways: medians of rounds that alternate them."""
    got = [[] for _ in ways]
    for r in range(a.rounds):
        order = range(len(ways)) if r % 2 == 0 else reversed(range(len(ways)))
        for i in order:
            common = ['bench', '-m', a.model, '-t', 1, '-p', 0, '-d', depth, '-r', 1, '-o', 'json', *ways[i]]
            with_n, few = run(a, *common, '-n', n + 8)[1], run(a, *common, '-n', 8)[1]
            got[i].append((with_n - few) / n * 1000)
    return [statistics.median(g) for g in got]


def drafts(a):
    print('\n| text | drafter | drafts | right, % | tokens a step | speed, by CPU |\n|---|---|---|---|---|---|')
    for text in a.file:
        for spec, flags in [('ngram', []), ('layer-exit', []), ('mtp', [])] + [('draft', ['-md', f]) for f in a.md]:
            if spec == 'mtp' and not a.mtp: continue
            name = f'{spec} ({os.path.basename(flags[1])})' if flags else spec
            out, _ = run(a, 'bench', '-m', a.model, '-f', text, '-t', 1, '-p', a.prompt, '-n', a.generate, '-r', a.rounds,
                         '--spec', spec, *flags)
            row = [c.strip() for c in [l for l in out.splitlines() if l.startswith('| ' + spec)][0].strip('|').split('|')]
            print(f'| {os.path.basename(text)} | {name} | {row[7]} | {row[8].rstrip("%")} | {row[9]} | {row[6]} |', flush=True)


def fewer(a, most, option, what):
    """Tables of 100, 75 and 50 %."""
    ns = sorted({most, -(-most * 3 // 4), -(-most // 2)}, reverse=True)
    speeds = decode_ms(a, a.generate, 0, [[option, n] for n in ns]) if a.speed else [None] * len(ns)
    print(f'\n| {what} | perplexity | mean KL divergence | same first token, % | ms a token | speed |\n|---|---|---|---|---|---|')
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
    fewer(a, meta[meta['general.architecture'] + '.expert_used_count'], '--moe-n-expert', 'experts a token')


def cache(a):
    print('\n| `--cache-type` | bytes a token | perplexity | mean KL divergence | same first token, % |\n|---|---|---|---|---|')
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
    print(f'\nDecoding behind {a.depth} tokens: {got[0]:.2f} ms a token with q4_0, {got[1]:.2f} ms with tq4_0 ({got[1] / got[0]:.3f})')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('-m', '--model', required=True)
    p.add_argument('-f', '--file', action='append', required=True, help='text; several for drafts')
    p.add_argument('--bin', default='build/pagedinfer')
    p.add_argument('--parts', default='drafts,layers,cache')
    p.add_argument('--md', default=[], type=lambda s: s.split(','), help='drafting models, with commas between')
    p.add_argument('--mtp', action='store_true', help='the model has a draft head: measure it, too')
    p.add_argument('-p', '--prompt', type=int, default=512, help='tokens of a prompt for drafts; 0: all of the text')
    p.add_argument('-n', '--generate', type=int, default=128)
    p.add_argument('-c', '--context', type=int, default=512)
    p.add_argument('-t', '--threads', type=int, default=1)
    p.add_argument('-d', '--depth', type=int, default=32768)
    p.add_argument('-r', '--rounds', type=int, default=3)
    p.add_argument('--no-speed', dest='speed', action='store_false', help='layers and experts: no speeds')
    a = p.parse_args()
    for part in a.parts.split(','):
        if part not in ('drafts', 'layers', 'experts', 'cache', 'long'): p.error(f'no part named {part}')
        print(f'\n### {part}: {os.path.basename(a.model)}')
        globals()[part](a)


main()
