#!/usr/bin/env python3
"""Compares the tool's eval and bench with sums computed here.

1. The perplexity of a chunk equals exp(mean(-log p)) over the logits that --cases writes for the same tokens. The last
   row of "all" equals the row of "last".
2. The base-logits file has llama-perplexity's layout: tokens, and log-probabilities within half a step of 16 bits. A
   model compared with itself has no divergence. A file with wrong sizes in its header is refused.
3. Bad cases.json, ids outside the vocabulary, short texts, wrong lists: the right exit code and a message that names
   it.
4. bench: every format parses and has one row per combination; speeds are tokens divided by time.
Standard library only. Exit 77: no model to run.
"""
import array, csv, io, json, math, os, re, sqlite3, struct, subprocess, sys, tempfile

BIN, MODEL = os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer'), os.environ.get('PAGEDINFER_MODEL', '')
CTX = 64
faults = []


def tool(*argv, code=0, says='', stdin=''):
    r = subprocess.run([BIN, *argv], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    if r.returncode != code: faults.append(f'{" ".join(argv)}: exit {r.returncode}, not {code}: {r.stderr[-300:]}')
    if says not in r.stderr: faults.append(f'{" ".join(argv)}: no "{says}" in {r.stderr[-300:]}')
    return r.stdout


def write(path, text):
    with open(path, 'w') as f: f.write(text)
    return path


def rows_of(path, width):
    a = array.array('f')
    with open(path, 'rb') as f: a.frombytes(f.read())
    return [a[i:i + width] for i in range(0, len(a), width)]


def log_sum(row):
    m = max(row)
    return m + math.log(sum(math.exp(x - m) for x in row))


def perplexity(d, text, ids, width):
    """Compares --cases and the printed perplexity of the text's first chunk. The chunk's first token is BOS
    already."""
    chunk = ids[:CTX]
    cases = [{'name': 'all', 'ids': chunk, 'n': 1, 'rows': 'all'}, {'name': 'last', 'ids': chunk, 'n': 1, 'rows': 'last'}]
    path = write(os.path.join(d, 'cases.json'), json.dumps(cases))
    lines = [json.loads(l) for l in tool('eval', '-m', MODEL, '--cases', path, '--logits-dir', d, '--parallel', '2').splitlines()]
    if [l['name'] for l in lines] != ['all', 'last']: faults.append('cases: another order')
    if any(l['prompt_tokens'] != CTX or len(l['greedy']) != 1 for l in lines): faults.append('cases: other counts')
    rows, last = rows_of(os.path.join(d, 'all.f32'), width), rows_of(os.path.join(d, 'last.f32'), width)
    if len(rows) != CTX or len(last) != 1 or rows[-1] != last[0]: faults.append('logits: rows "all" and "last" disagree')
    if max(range(width), key=last[0].__getitem__) != lines[1]['greedy'][0]: faults.append('the token is not the likeliest one')
    scored = range(CTX // 2, CTX - 1)
    nll = [log_sum(rows[i]) - rows[i][chunk[i + 1]] for i in scored]
    base = os.path.join(d, 'base.bin')
    out = tool('eval', '-m', MODEL, '-f', text, '-c', str(CTX), '--chunks', '1', '--kl-divergence-base', base)
    want, got = math.exp(sum(nll) / len(nll)), re.search(r'^\[1\]([0-9.]+),$', out, re.M)
    if not got or abs(float(got[1]) - want) > 2e-4 * want: faults.append(f'perplexity {want:.4f}, but printed: {out}')
    if not re.search(r'^Final estimate: PPL = [0-9]+\.[0-9]{4} \+/- [0-9]+\.[0-9]{5}$', out, re.M):
        faults.append(f'no final estimate: {out}')
    return base, rows[CTX // 2], nll[0], chunk


def base_file(base, row, nll, chunk, width):
    raw = open(base, 'rb').read()
    n_ctx, n_vocab, n_chunk = struct.unpack_from('<Iii', raw, 8)
    stride, at = 8 + (width + 1) // 2 * 4, 20 + 4 * CTX
    if raw[:8] != b'_logits_' or (n_ctx, n_vocab, n_chunk) != (CTX, width, 1) or len(raw) != at + (CTX - 1 - CTX // 2) * stride:
        faults.append(f'base file: {raw[:8]} {n_ctx} {n_vocab} {n_chunk}, {len(raw)} bytes')
        return
    if list(struct.unpack_from(f'<{CTX}i', raw, 20)) != chunk: faults.append('base file: other tokens')
    scale, low = struct.unpack_from('<ff', raw, at)
    total = log_sum(row)
    for i in range(0, width, 97):
        want = max(row[i], max(row) - 16) - total
        got = scale * struct.unpack_from('<H', raw, at + 8 + 2 * i)[0] + low
        if abs(got - want) > 0.51 * scale + 1e-5: return faults.append(f'base file: log p of {i} is {got}, not {want}')


def divergence(d, base, text):
    pairs = os.path.join(d, 'pairs.bin')
    tool('eval', '-m', MODEL, '-f', text, '-c', str(CTX), '--kl-divergence-base', pairs)
    out = tool('eval', '-m', MODEL, '--kl-divergence-base', pairs, '--kl-divergence')
    for pattern in (r'Mean    KLD: +-?0\.0000', r'Same top p: 100\.000 ', r'Maximum Δp: +-?0\.0', r'Mean PPL\(Q\)  +: +[0-9.]+ ±'):
        if not re.search(pattern, out): faults.append(f'with itself: no {pattern} in {out[-1500:]}')
    raw = open(base, 'rb').read()
    for name, data in (('short', raw[:-1]), ('cut', raw[:30]), ('empty', b''), ('chunks', raw[:16] + b'\xff\xff\xff\x7f' + raw[20:]),
                       ('ctx', raw[:8] + b'\xff\xff\xff\xff' + raw[12:]), ('vocab', raw[:12] + b'\x07\0\0\0' + raw[16:]),
                       ('token', raw[:20] + b'\xff\xff\xff\x7f' + raw[24:])):
        path = os.path.join(d, name + '.bin')
        with open(path, 'wb') as f: f.write(data)
        tool('eval', '-m', MODEL, '--kl-divergence-base', path, '--kl-divergence', code=65, says=name + '.bin')


def refusals(d, width):
    good = {'name': 'a', 'ids': [2], 'n': 1}
    for change, says in (({'ids': [width]}, f'is {width}'), ({'ids': []}, 'empty'), ({'n': -1}, '"n" is -1'),
                         ({'name': '../a'}, 'name'), ({'rows': 'some'}, 'rows')):
        path = write(os.path.join(d, 'bad.json'), json.dumps([{**good, **change}]))
        tool('eval', '-m', MODEL, '--cases', path, code=65, says=says)
    tool('eval', '-m', MODEL, '--cases', write(os.path.join(d, 'bad.json'), '[{"name":'), code=65, says='line 1')
    tool('eval', '-m', MODEL, '--cases', os.path.join(d, 'none.json'), code=66, says='none.json')
    tool('eval', '-m', MODEL, '-f', write(os.path.join(d, 'short.txt'), 'too short'), code=65, says='1024')
    tool('eval', '-m', MODEL, '--kl-divergence', code=64, says='--kl-divergence-base')
    tool('eval', '-m', MODEL, '--kl-divergence', '--kl-divergence-base', os.path.join(d, 'none.bin'), code=66, says='none.bin')
    for flags, says in ((['-p', 'x'], 'n-prompt'), (['-pg', '5'], '-pg'), (['-ctk', 'f16,f17'], 'f17'), (['-r', '0'], 'repetitions'),
                        (['-p', '8-1'], 'range'), (['-p', '0', '-n', '0'], 'nothing'), (['-npl', '0'], '-npl')):
        tool('bench', '-m', MODEL, *flags, code=64, says=says)


def bench():
    flags = ['bench', '-m', MODEL, '-p', '16', '-n', '20', '-d', '0,32', '-ub', '16,32', '-r', '2']
    n = 8
    tests = [(16, 0, 0), (0, 20, 0), (16, 0, 32), (0, 20, 32)] * 2
    results = json.loads(tool(*flags, '-o', 'json'))
    if [(r['n_prompt'], r['n_gen'], r['n_depth']) for r in results] != tests: faults.append('bench: other tests')
    if [r['n_ubatch'] for r in results] != [16] * 4 + [32] * 4: faults.append('bench: other combinations')
    for r in results:
        speed = [(r['n_prompt'] + r['n_gen']) * 1e9 / ns for ns in r['samples_ns']]
        if len(speed) != 2 or abs(sum(speed) / 2 - r['avg_ts']) > 1e-3 * r['avg_ts']: faults.append(f'bench: speeds {r}')
        if (r['steady_avg_ts'] > 0) != (r['n_gen'] > 16): faults.append(f'bench: steady speed {r}')
    lines = tool(*flags, '-o', 'jsonl').splitlines()
    if [json.loads(l)['n_ubatch'] for l in lines] != [16] * 4 + [32] * 4: faults.append('bench: jsonl')
    table = list(csv.DictReader(io.StringIO(tool(*flags, '-o', 'csv'))))
    if len(table) != n or any(t['model_filename'] != MODEL or float(t['avg_ts']) <= 0 for t in table): faults.append('bench: csv')
    db = sqlite3.connect(':memory:')
    db.executescript(tool(*flags, '-o', 'sql'))
    if db.execute('select count(*), min(avg_ts) > 0 from llama_bench').fetchone() != (n, 1): faults.append('bench: sql')
    md = [l for l in tool(*flags).splitlines() if l.startswith('|')]
    if len(md) != n + 2 or len({len(l) for l in md}) != 1: faults.append('bench: table ' + '\n'.join(md))
    if not re.search(r'\| +pp16 @ d32 \| +[0-9.]+ ± [0-9.]+ \|', '\n'.join(md)): faults.append('bench: table ' + '\n'.join(md))
    npl = tool('bench', '-m', MODEL, '-p', '16', '-n', '4', '-npl', '1,3', '-o', 'jsonl').splitlines()
    if [(json.loads(l)['pl'], json.loads(l)['n_kv']) for l in npl] != [(1, 20), (3, 60)]: faults.append(f'bench: npl {npl}')


def main():
    if not MODEL or not os.path.exists(MODEL):
        print('no model (PAGEDINFER_MODEL)')
        return 77
    with tempfile.TemporaryDirectory() as d:
        text = write(os.path.join(d, 'text.txt'), ''.join(f'The {i}th day of the {i * 7 % 31}th month was as long as the night '
                                                           f'before it, said the old man with {i % 13} sons.\n' for i in range(12)))
        ids = json.loads(tool('tokenize', '-m', MODEL, '-f', text, '--ids', '--no-parse-special'))
        width = 262144
        base, row, nll, chunk = perplexity(d, text, ids, width)
        base_file(base, row, nll, chunk, width)
        divergence(d, base, text)
        refusals(d, width)
    bench()
    for f in faults: print(f)
    print(f'eval and bench: {len(faults)} faults')
    return bool(faults)


if __name__ == '__main__':
    sys.exit(main())
