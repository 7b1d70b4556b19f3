#!/usr/bin/env python3
"""Checks draft heads after the last layer (NextN, MTP) of random models: their results, and that correct drafts are
accepted.

    check_nextn.py [NAME...]     default: each tests/golden/reference_NAME.json that has "drafts"

1. The head's logits for each position of a text, and its drafts at some positions, are the reference's.
   tests/scripts/gen_reference.py made them with transformers' own decoder layer.
2. Answers and logits are the same bytes with and without drafts: in small steps, in a batch, and with reused prefixes.
3. Constructed models count tokens up. A head that knows the next token from the token alone, or from the hidden state
   alone, has every draft accepted. A head that counts wrong has none accepted. If the build has an emulated device,
   drafts run there too.
Needs gguf and numpy. Exit 77: no tool_tiny_model, or no gguf."""
import glob, json, os, shutil, subprocess, sys, tempfile

import eval_runs
from eval_runs import crowd, differences, floats, run

try:
    import gguf, numpy
except ImportError:
    print('no gguf or numpy')
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('PAGEDINFER_BUILD', 'build')
TINY, DRAFT = (os.path.join(BUILD, 'tests', t) for t in ('tool_tiny_model', 'tool_draft'))
EMULATED = os.path.join(BUILD, 'tests', 'simt', 'pagedinfer_emu')
TIGHT = 5e-4
MTP = ['--spec-type', 'mtp', '--no-spec-adaptive', '--spec-draft-n-max']
COUNT = 40 # tokens that a constructed model counts through


def check_reference(model, want):
    """Compares the head's logits and drafts with the reference. Returns (faults, largest difference of a logit)."""
    with tempfile.TemporaryDirectory() as d:
        rows = os.path.join(d, 'rows')
        r = subprocess.run([DRAFT, model, rows, '3', str(want['start']), str(want['step'])], input=' '.join(map(str, want['ids'])),
                           stdout=subprocess.PIPE, text=True, check=True)
        got, drafts = floats(open(rows, 'rb').read()), [[int(x) for x in l.split()] for l in r.stdout.splitlines()][::-1]
    width, worst, faults = len(got) // (len(want['ids']) - 1), 0.0, []
    for at, row in want['logits'].items():
        mine = got[(int(at) - 1) * width:int(at) * width] # rows begin with position 1
        worst = max([worst] + [abs(a - b) if a == a and b == b else float('inf') for a, b in zip(row, mine)])
        if len(mine) != len(row): faults.append(f'logits of the head at {at}: {len(mine)} values')
    if not worst <= TIGHT: faults.append(f'logits of the head are off by {worst:.6f}')
    if [d[:1] for d in drafts] != want['drafts']: faults.append('other drafts than the reference')
    return faults, worst


def check_same(model, cases, ways):
    plain = ['--no-prefix-cache']
    base, faults = run(model, cases, *plain), []
    for flags in ways: faults += differences(' '.join(flags), run(model, cases, *plain, *MTP, *flags), base)
    many, want = crowd(cases, base, 9)
    return faults + differences('a batch', run(model, many, *MTP, '3', '--parallel', '9', '--kv-cache-tokens', '4096'), want)


def counting(path, to, by):
    """Writes a copy of the model in which token i + 1 (mod COUNT) follows token i. Mixers and feed-forwards give zero,
    embeddings are unit vectors, and row i + 1 of the output matrix is unit vector i. The head's block gives zero too.
    Its input is the embedding (by 'token'), the hidden state advanced by one ('state'), or the embedding advanced by
    one, which counts one too far ('wrong')."""
    shutil.copy(path, to)
    reader = gguf.GGUFReader(to, 'r+')
    t = {x.name: x.data for x in reader.tensors}
    n = t['token_embd.weight'].shape[1]
    for name, w in t.items():
        if name.endswith(('attn_output.weight', 'ssm_out.weight', 'ffn_down.weight', 'ffn_down_exps.weight', 'ffn_down_shexp.weight')): w[:] = 0
        if 'norm' in name and w.shape == (n,): w[:] = 1
    for name in ('token_embd.weight', 'output.weight'): t[name][:] = 0
    for i in range(COUNT):
        t['token_embd.weight'][i, i] = 1
        t['output.weight'][(i + 1) % COUNT, i] = 1
    proj, on = next(w for name, w in t.items() if name.endswith('eh_proj.weight')), numpy.zeros((n, n), numpy.float32)
    for i in range(COUNT): on[(i + 1) % COUNT, i] = 1
    proj[:] = 0
    if by == 'token': proj[:, :n] = numpy.eye(n)
    elif by == 'state': proj[:, n:] = on
    else: proj[:, :n] = on
    for w in t.values(): w.flush()


def check_counting(path, d):
    faults = []
    cases = [{'name': f'from_{n}', 'ids': [(n + i) % COUNT for i in range(n)], 'n': 30, 'rows': 'all'} for n in (1, 9, 37)]
    for by in ('token', 'state', 'wrong'):
        model = os.path.join(d, by + '.gguf')
        counting(path, model, by)
        for n_max in ('1', '3'):
            lines = run(model, cases, *MTP, n_max, '--no-prefix-cache')[0]
            for c, l in zip(cases, lines):
                if l['greedy'] != [(c['ids'][-1] + 1 + i) % COUNT for i in range(c['n'])]: faults.append(f'{by}: it does not count')
                drafted, right = l['drafted'], l['accepted']
                # All drafts are right, but some of the last step may exceed the requested number of tokens.
                if by != 'wrong' and not (drafted - int(n_max) <= right and right >= c['n'] * int(n_max) // (int(n_max) + 1) - int(n_max)):
                    faults.append(f"{by}, {n_max} drafts: {right} of {drafted} drafts accepted in {c['n']} tokens")
                if by == 'wrong' and (right or not drafted): faults.append(f'{by}: {right} of {drafted} drafts accepted')
    return faults


def check(golden, d):
    name = os.path.basename(golden)[len('reference_'):-len('.json')]
    path, g = os.path.join(d, name + '.gguf'), json.load(open(golden))
    subprocess.run([TINY, path, '512', name], check=True)
    cases = [{'name': c['name'], 'ids': c['ids'], 'n': c['n'], 'rows': 'all'} for c in g['cases']]
    faults, worst = check_reference(path, g['drafts'])
    cpu = eval_runs.BIN
    faults += check_same(path, cases, (['1', '-t', '1'], ['3', '-ub', '16'], ['8', '--parallel', '3', '-ub', '64']))
    faults += check_counting(path, d)
    if os.path.exists(EMULATED):
        eval_runs.BIN = EMULATED
        base = run(path, cases[1:2], '--device', 'emu', '--no-prefix-cache')
        faults += differences('emulated', run(path, cases[1:2], '--device', 'emu', '--no-prefix-cache', *MTP, '2'), base)
        eval_runs.BIN = cpu
    print(f"{name}: draft head within {worst:.6f}, {len(faults)} faults", flush=True)
    return [f'{name}: {f}' for f in faults]


def main():
    if not os.path.exists(TINY) or not os.path.exists(DRAFT):
        print(f'no {TINY}, or no {DRAFT}')
        return 77
    paths = [os.path.join(HERE, '../golden', f'reference_{n}.json') for n in sys.argv[1:]] or \
        [p for p in sorted(glob.glob(os.path.join(HERE, '../golden', 'reference_*.json'))) if 'drafts' in json.load(open(p))]
    with tempfile.TemporaryDirectory() as d: faults = [f for p in paths for f in check(p, d)]
    for f in faults[:20]: print(f)
    print(f'{len(paths)} models, {len(faults)} faults')
    return 1 if faults or not paths else 0


if __name__ == '__main__': sys.exit(main())
