#!/usr/bin/env python3
"""Runs small reference models: correct results, bitwise identical in every configuration.

    check_goldens.py [DIR [NAME...]]     DIR: $PAGEDINFER_GOLDEN, or ../shared/golden next to the checkout

A folder of DIR holds a model (golden.json names it, .gguf.xz), cases.json, expect.json (greedy tokens and the
reference's gap between its two highest logits at each) and NAME.f32 (the reference's logits). For each folder in
FOLDERS:

1. Greedy tokens are the reference's up to the first near tie. Logits are within TIGHT of the row's spread with an f32
   cache, and within LOOSE with the default cache (see CHAOTIC).

2. Logits and tokens are the same bytes for each step budget, block size and number of threads. They stay the same in a
   batch, with reused prefixes, and with a cache so small that requests are preempted.

3. If the folder has mtp.json or a drafter, its drafts (and a draft head's logits) are the reference's. With any number
   of drafts, tokens and logits are the plain run's, in fewer steps.

4. If MEDIAN_KL names the folder, quantised files stay close to the reference. Perplexity does not depend on the number
   of chunks per batch.

5. A file in the layout of another program (LAYOUT) has the reference's mean NLL. Its vocabulary is checked too.

The texts of DIR/tokenizer give the ids recorded there, for the available vocabularies.
Standard library only. Exit 77: no reference models.
"""
import array, json, lzma, math, os, shutil, statistics, subprocess, sys, tempfile, unicodedata

from eval_runs import BIN, crowd, differences, floats, run, unpack, worst_row

FOLDERS = ['gemma4-dense-tiny', 'gemma4-moe-tiny', 'gemma4-e-tiny', 'qwen35-dense-tiny', 'qwen35-mtp-tiny',
           'qwen35-moe64-micro', 'dsv4-micro']
# Random models in which rounding the cache to 16 bits changes some selections of a router or an indexer, and
# everything after them. With the default cache most rows are within LOOSE, and greedy tokens are not compared.
CHAOTIC = {'dsv4-micro'}
# Limits of the median KL divergence between the reference's rows and a file's in the format. They are
# about one and a half times the divergence of float arithmetic on the same file.
MEDIAN_KL = {'qwen35-dense-tiny': {'Q8_0': 2.5e-5, 'Q4_K_M': 3e-3, 'NVFP4': 7e-3}}
TIE, TIGHT, LOOSE = 1e-3, 5e-4, 5e-3
LAYOUT = 'dsv4-tiny'  # its golden.json has the mean NLL that a correct engine comes close to
HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(os.environ.get('PAGEDINFER_BUILD', 'build'), 'tests', 'tool_draft')


def against_reference(folder, width, result, tolerance, chaotic=False):
    faults, rows = [], []
    expect = {e['name']: e for e in json.load(open(os.path.join(folder, 'expect.json')))}
    for line, raw in zip(*result):
        e = expect[line['name']]
        for i, (want, gap) in enumerate([] if chaotic else zip(e['greedy'], e['gap'])):
            if i >= len(line['greedy']) or (line['greedy'][i] != want and gap >= TIE):
                faults.append(f"{e['name']}: token {i} is not {want} (gap {gap:.4f})")
            if i >= len(line['greedy']) or line['greedy'][i] != want: break
        reference = os.path.join(folder, e['name'] + '.f32')
        if not e.get('rows'): continue
        want, got = floats(open(reference, 'rb').read()), floats(raw)
        d = [worst_row(want[i:i + width], got[i:i + width], width) for i in range(0, max(len(want), len(got)), width)]
        rows += d
        if not chaotic and not max(d) <= tolerance: faults.append(f"{e['name']}: logits off by {max(d):.5f}")
    worst = statistics.median(rows) if chaotic else max(rows)
    if chaotic and not worst <= tolerance: faults.append(f'logits of half of the rows off by {worst:.5f}')
    return faults, worst


def ways(cases):
    """Returns (flags, cases) that must not change any bytes. The cache of the last one is too small for all its
    requests."""
    longest = max(len(c['ids']) + c['n'] for c in cases)
    short = [i for i, c in enumerate(cases) if len(c['ids']) < 100]
    everything = range(len(cases))
    return [(['-t', '1'], everything), (['-ub', '1'], short), (['-ub', '16'], everything), (['-ub', '64', '-t', '1'], everything),
            (['--block-size', '32'], everything), (['--block-size', '64', '-ub', '64'], everything),
            (['--parallel', '4', '-ub', '64'], everything),
            (['--parallel', '8', '--kv-cache-tokens', str((longest + 63) // 64 * 64 + 64)], everything)]


def drafting_ways(cases):
    longest = max(len(c['ids']) + c['n'] for c in cases)
    mtp = ['--spec-type', 'mtp', '--no-spec-adaptive', '--spec-draft-n-max']
    return [mtp + ['1', '-t', '1'], mtp + ['3'], mtp + ['8', '-ub', '64'], mtp + ['3', '-ub', '16', '--parallel', '16'],
            mtp + ['3', '--parallel', '8', '--kv-cache-tokens', str((longest + 63) // 64 * 64 + 64)]]


# The engine chooses the number of drafts; the choice depends on measured step times, so accepted drafts are not
# counted.
ADAPTIVE = ['--spec-type', 'mtp', '--parallel', '4']


def drafter(model, ids, start, step, drafts=3, beside=None):
    """Returns the drafter's logits for positions 1.., and its drafts after positions start, start + step, ..."""
    with tempfile.TemporaryDirectory() as d:
        rows = os.path.join(d, 'rows')
        r = subprocess.run([TOOL, model, rows, str(drafts), str(start), str(step), *([beside] if beside else [])],
                           input=' '.join(map(str, ids)), stdout=subprocess.PIPE, text=True, check=True)
        return floats(open(rows, 'rb').read()), [[int(x) for x in l.split()] for l in r.stdout.splitlines()][::-1]


def check_drafts(folder, model, width, cases):
    reference = json.load(open(os.path.join(folder, 'mtp.json')))
    greedy = {e['name']: e['greedy'] for e in json.load(open(os.path.join(folder, 'expect.json')))}
    ids = {c['name']: c['ids'] for c in cases}
    faults, worst, right, n = [], 0.0, {}, 0
    for name, want in reference.items():
        rows = os.path.join(folder, name + '.mtp_logits.f32')
        if os.path.exists(rows):
            got, _ = drafter(model, ids[name], len(ids[name]) - 1, 1)
            worst = max(worst, worst_row(floats(open(rows, 'rb').read()), got, width))
        if not name.startswith('draft_'): continue
        case, step = name[len('draft_'):], want['step']
        first, count = len(ids[case]), len(want['drafts3'])
        _, got = drafter(model, ids[case] + greedy[case][:(count - 1) * step + 1], first, step)
        if got != want['drafts3']: faults.append(f'{case}: other drafts than the reference')
        for i, drafts in enumerate(got):
            n += 1
            for k in (1, 2, 3):
                right[k] = right.get(k, 0) + (drafts[:k] == greedy[case][1 + i * step:1 + i * step + k])
    for k, share in reference['acceptance_prefix'].items():
        if abs(right[int(k)] / n - share) > 1e-9: faults.append(f'{k} drafts are right in {right[int(k)]} of {n}, not {share}')
    if not worst <= TIGHT: faults.append(f'logits of the draft head off by {worst:.6f}')
    print(f'{os.path.basename(folder)}: draft head within {worst:.6f}, first drafts right: '
          + ', '.join(f'{k} in {right[k] / n:.3f}' for k in right))
    return faults


def check_folder(folder, model):
    meta = json.load(open(os.path.join(folder, 'golden.json')))
    cases = json.load(open(os.path.join(folder, 'cases.json')))
    faults, tight = against_reference(folder, meta['vocab'], run(model, cases, '-ctk', 'f32', '-ctv', 'f32'), TIGHT)
    plain = ['-t', '2', '--no-prefix-cache']
    base = lines, logits = run(model, cases, *plain)
    more, loose = against_reference(folder, meta['vocab'], base, LOOSE, os.path.basename(folder) in CHAOTIC)
    faults += more
    n = 0
    for flags, which in ways(cases):
        want = [lines[i] for i in which], [logits[i] for i in which]
        faults += differences(' '.join(flags), run(model, [cases[i] for i in which], *plain, *flags), want)
        n += 1
    path = os.path.join(folder, 'mtp.json')
    # the draft head is in the model's own file
    if os.path.exists(path) and 'acceptance_prefix' in json.load(open(path)):
        faults += check_drafts(folder, model, meta['vocab'], cases)
        for flags in drafting_ways(cases):
            got = run(model, cases, *plain, *flags)
            faults += differences(' '.join(flags), got, base)
            accepted, tokens = sum(l['accepted'] for l in got[0]), sum(len(l['greedy']) for l in got[0])
            if accepted < tokens / 3: faults.append(f"{' '.join(flags)}: only {accepted} drafts of {tokens} tokens accepted")
            n += 1
        faults += differences(' '.join(ADAPTIVE), run(model, cases, *plain, *ADAPTIVE), base)
        n += 1
    many, want = crowd(cases, base, 3 * len(cases))
    for label, flags in (('', ['--no-prefix-cache']), (', prefixes reused', [])):
        got = run(model, many, *flags, '--parallel', '16', '--kv-cache-tokens', '16384')
        faults += differences('a batch' + label, got, want)
        if not flags and not any(l['cached_tokens'] for l in got[0]): faults.append('no prefix was reused')
        n += 1
    print(f'{os.path.basename(folder)}: {len(cases)} cases, {n + 2} ways to run them, logits within {tight:.6f} (f32 cache) '
          f'and {loose:.6f}, {len(faults)} faults')
    return faults


def divergence(p, q):
    a, b = [m + math.log(sum(math.exp(x - m) for x in row)) for row, m in ((p, max(p)), (q, max(q)))]
    return sum(math.exp(x - a) * ((x - a) - (y - b)) for x, y in zip(p, q))


def check_quantised(folder, model, width, limits):
    """Compares files in other formats with the reference. They are next to the F32 file, or quantised from it."""
    faults, name = [], os.path.basename(folder)
    cases = json.load(open(os.path.join(folder, 'cases.json')))
    for kind, most in limits.items():
        path = f'{model}-{kind}'
        packed = os.path.join(folder, f'{name}-{kind}.gguf.xz')
        if os.path.exists(packed):
            with lzma.open(packed) as i, open(path, 'wb') as o: shutil.copyfileobj(i, o)
        else:
            subprocess.run([BIN, 'quantize', model, path, kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kls = []
        for line, raw in zip(*run(path, cases)):
            reference = os.path.join(folder, line['name'] + '.f32')
            if not os.path.exists(reference): continue
            want, got = floats(open(reference, 'rb').read()), floats(raw)
            if len(want) == len(got): kls += [divergence(want[i:i + width], got[i:i + width]) for i in range(0, len(want), width)]
        os.unlink(path)
        median = statistics.median(kls)
        if not median <= most: faults.append(f'{kind}: median divergence {median:.6f}, at most {most} expected')
        print(f'{name} {kind}: median divergence {median:.6f} of {len(kls)} rows')
    return faults


def check_perplexity(model, text):
    out = set()
    for flags in (['--parallel', '1', '-ub', '16', '-t', '1'], ['--parallel', '4'], ['--parallel', '4', '-ub', '1024']):
        r = subprocess.run([BIN, 'eval', '-m', model, '-f', text, '-c', '256', '--chunks', '4', *flags],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        out.add(r.stdout)
    return [] if len(out) == 1 else ['the perplexity of a text depends on the other texts of the batch']


def check_assistant(folder, model, target):
    """A drafting model accepts as many drafts as the reference, and changes no token or logit."""
    faults, n = [], 0
    rounds = json.load(open(os.path.join(folder, 'golden.json')))['acceptance_greedy']
    cases = []
    for r in rounds:
        ids = array.array('i')
        ids.frombytes(open(os.path.join(folder, r['name'] + '.ids.i32'), 'rb').read())
        if sys.byteorder == 'big': ids.byteswap()
        # The last id is the first sampled token; each round adds the accepted drafts and one more token.
        cases.append({'name': r['name'], 'ids': list(ids)[:-1], 'n': sum(r['accepted']) + r['rounds'] + 1, 'rows': 'last'})
    drafts = ['-md', model, '--no-spec-adaptive', '--spec-draft-n-max']
    f32 = run(target, cases, '-ctk', 'f32', '-ctv', 'f32')
    got = run(target, cases, '-ctk', 'f32', '-ctv', 'f32', *drafts, '4')
    faults += differences('with a drafter', got, f32)
    for r, line in zip(rounds, got[0]):
        if line['accepted'] != sum(r['accepted']):
            faults.append(f"{r['name']}: {line['accepted']} drafts accepted, {sum(r['accepted'])} in the reference")
    base = run(target, cases, '--no-prefix-cache')
    longest = max(len(c['ids']) + c['n'] for c in cases)
    many, want = crowd(cases, base, 3 * len(cases))
    for flags in (['1', '-t', '1'], ['3', '-ub', '16'], ['16', '--block-size', '64'],
                  ['4', '--parallel', '16', '--kv-cache-tokens', str((longest + 63) // 64 * 64 + 64)]):
        faults += differences(' '.join(flags), run(target, many, *drafts, *flags), want)
        n += 1
    print(f'{os.path.basename(folder)}: {len(cases)} cases, {sum(l["accepted"] for l in got[0])} of '
          f'{sum(l["drafted"] for l in got[0])} drafts accepted, {n} ways to run them, {len(faults)} faults')
    return faults


def check_blocks(folder, target, cases, base, to):
    """Checks a block drafter: its logits and drafts are the reference's, and it changes no token or logit of the
    target."""
    faults, worst, name = [], 0.0, os.path.basename(folder)
    model, meta = unpack(os.path.dirname(folder), name, to, name + '-F32.gguf'), json.load(open(os.path.join(folder, 'golden.json')))
    for case in meta['cases']:
        ids = array.array('i')
        ids.frombytes(open(os.path.join(folder, case['name'] + '.ids.i32'), 'rb').read())
        if sys.byteorder == 'big': ids.byteswap()
        got, [drafts] = drafter(target, list(ids), 1, 1, meta['block_size'] - 1, beside=model)
        want = floats(open(os.path.join(folder, case['name'] + '.logits.f32'), 'rb').read())
        if drafts != case['slots_argmax'][1:]: faults.append(f"{case['name']}: drafts {drafts}, not the reference's")
        worst = max(worst, max(map(abs, map(float.__sub__, want, got))) if len(got) == len(want) else math.inf)
    if not worst <= TIGHT: faults.append(f'logits of its block off by {worst:.6f}')
    longest = max(len(c['ids']) + c['n'] for c in cases)
    many, expected = crowd(cases, base, 2 * len(cases))
    for flags in (['7', '-t', '1', '--no-prefix-cache'], ['7', '--parallel', '16', '--block-size', '64'],
                  ['3', '--parallel', '16', '--kv-cache-tokens', str((longest + 63) // 64 * 64 + 64)]):
        got = run(target, many, '-md', model, '--no-spec-adaptive', '--spec-draft-n-max', *flags)
        faults += differences('blocks of ' + ' '.join(flags), got, expected)
        if not sum(l['drafted'] for l in got[0]): faults.append('nothing was drafted')
    print(f"{name}: {len(meta['cases'])} blocks within {worst:.6f}, {len(faults)} faults")
    return faults


def check_head(folder, model, to):
    """Checks a draft head in a separate file: its logits are the reference's, and it changes no token or logit of the
    model."""
    faults, worst = [], 0.0
    meta = json.load(open(os.path.join(folder, 'golden.json')))
    width, head = meta['vocab'], os.path.join(to, 'head.gguf')
    with lzma.open(os.path.join(folder, meta['exact'].replace('-f32', '-mtp-f32') + '.xz')) as i, open(head, 'wb') as o:
        shutil.copyfileobj(i, o)
    for name, want in json.load(open(os.path.join(folder, 'mtp.json'))).items():
        got, _ = drafter(model, want['ids'], len(want['ids']) - 1, 1, beside=head)
        best = [max(range(i, i + width), key=got.__getitem__) - i for i in range(0, len(got), width)]
        if best != want['argmax']: faults.append(f'{name}: the draft head has other best tokens than the reference')
        rows = os.path.join(folder, name + '.mtp.f32')
        if os.path.exists(rows): worst = max(worst, worst_row(floats(open(rows, 'rb').read()), got, width))
    if not worst <= TIGHT: faults.append(f'logits of the draft head off by {worst:.6f}')
    cases = json.load(open(os.path.join(folder, 'cases.json')))
    base = run(model, cases, '--no-prefix-cache')
    many, want = crowd(cases, base, 2 * len(cases))
    drafted = accepted = 0
    for flags in (['1', '-t', '1'], ['3', '-ub', '16', '--parallel', '4'], ['8', '--block-size', '64', '--parallel', '16']):
        got = run(model, many, '-md', head, '--no-spec-adaptive', '--spec-draft-n-max', *flags)
        faults += differences(' '.join(['-md'] + flags), got, want)
        drafted += sum(l['drafted'] for l in got[0])
        accepted += sum(l['accepted'] for l in got[0])
    if not accepted: faults.append('no draft was accepted')
    print(f'{os.path.basename(folder)}: draft head within {worst:.6f}, {accepted} of {drafted} drafts accepted')
    return faults


def check_layout(golden, to):
    """Reads a file with ds4's types and names. The weights are random ones in 2 bits, so only the mean NLL is
    meaningful."""
    folder, path, head = os.path.join(golden, LAYOUT), os.path.join(to, 'layout.gguf'), os.path.join(to, 'head.gguf')
    for name, file in ((LAYOUT + '-ds4', path), (LAYOUT + '-ds4mtp', head)):
        with lzma.open(os.path.join(folder, name + '.gguf.xz')) as i, open(file, 'wb') as o: shutil.copyfileobj(i, o)
    ids = json.load(open(os.path.join(folder, 'eval4096.json')))
    [line], [raw] = run(path, [{'name': 'ids', 'ids': ids, 'n': 1, 'rows': 'all'}])
    rows = floats(raw)
    width, nll = len(rows) // len(ids), 0.0
    for i, want in enumerate(ids[1:]):
        row = rows[i * width:(i + 1) * width]
        nll += math.log(sum(map(math.exp, row))) - row[want]
    nll /= len(ids) - 1
    want = json.load(open(os.path.join(folder, 'golden.json')))['mean_nll_llama.cpp']['f16 cache']
    print(f'{LAYOUT}: mean NLL {nll:.4f}, {want:.4f} in the reference')
    texts = json.load(open(os.path.join(golden, 'tokenizer', 'deepseek4.json')))
    faults = check_texts(LAYOUT, path, texts, '--no-bos')
    short = [{'name': 'short', 'ids': ids[:200], 'n': 32, 'rows': 'last'}]
    faults += differences('ds4 with its draft head', run(path, short, '-md', head), run(path, short))
    return faults if abs(nll - want) < 0.05 else faults + [f'{LAYOUT}: mean NLL {nll:.4f}, not {want:.4f}']


def check_texts(label, model, texts, *flags):
    bad = []
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, 'text')
        for t in texts:
            with open(path, 'wb') as f: f.write(t['text'].encode('utf-8', 'surrogatepass'))
            r = subprocess.run([BIN, 'tokenize', '-m', model, '-f', path, '--ids', '--no-escape', *flags], stdout=subprocess.PIPE)
            if r.returncode or json.loads(r.stdout) != t['ids']: bad.append(f"{label}: {t['text'][:40]!r}")
    print(f'tokenizer {label}: {len(texts) - len(bad)} of {len(texts)} texts')
    return bad


def main():
    golden = sys.argv[1] if len(sys.argv) > 1 else os.environ.get('PAGEDINFER_GOLDEN', os.path.join(HERE, '../../../shared/golden'))
    if not os.path.isdir(golden):
        print(f'no {golden}')
        return 77
    faults = []
    with tempfile.TemporaryDirectory() as d:
        for name in sys.argv[2:] or FOLDERS:
            folder, model = os.path.join(golden, name), unpack(golden, name, d)
            faults += [f'{name}: {f}' for f in check_folder(folder, model)]
            if name == 'gemma4-dense-tiny':
                assistant = unpack(golden, 'gemma4-assistant-tiny', d)
                faults += check_assistant(os.path.join(golden, 'gemma4-assistant-tiny'), assistant, model)
                cases = json.load(open(os.path.join(folder, 'cases.json')))
                faults += check_blocks(os.path.join(golden, 'dflash-tiny'), model, cases, run(model, cases, '--no-prefix-cache'), d)
                sets = json.load(open(os.path.join(golden, 'tokenizer', 'gemma4.json')))['sets']
                faults += check_texts(name, model, sets['tok2048'])
                real = os.environ.get('PAGEDINFER_VOCAB', '') + '/ggml-vocab-gemma-4.gguf'
                if os.path.exists(real): faults += check_texts('gemma4', real, sets['real-gemma4'])
            if name in MEDIAN_KL:
                width = json.load(open(os.path.join(folder, 'golden.json')))['vocab']
                faults += check_quantised(folder, model, width, MEDIAN_KL[name])
                faults += check_perplexity(model, os.path.join(golden, 'text', 'eval.txt'))
            # the reference composes texts (NFC) before tokenizing, so other texts are skipped
            if name == 'qwen35-dense-tiny':
                texts = json.load(open(os.path.join(golden, 'tokenizer', 'qwen35.json')))
                faults += check_texts(name, model, [t for t in texts if unicodedata.is_normalized('NFC', t['text'])])
            if name == 'dsv4-micro': faults += check_head(folder, model, d) + check_layout(golden, d)
            os.unlink(model)
    for f in faults[:20]: print(f)
    return 1 if faults else 0


sys.exit(main())
