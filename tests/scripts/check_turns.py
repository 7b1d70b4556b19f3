#!/usr/bin/env python3
"""Checks that later turns of a long conversation compute only new tokens.

    check_turns.py [DIR]     DIR: $PAGEDINFER_GOLDEN, or ../shared/golden next to the checkout

Small models have windows, recurrent states, or entries made of 128 tokens; some run with drafting. The first turn has
4,000 tokens and an answer. Then the conversation continues, continues with the answer cut short (as templates do that
drop the reasoning), is repeated, and is edited in its middle. Each turn finds all reusable tokens in the cache; with
recurrent states at most one interval between snapshots is missing. It gives the tokens and logits of a run without a
cache. Standard library only. Exit 77: no reference models.
"""
import json, lzma, os, random, shutil, sys, tempfile

from eval_runs import differences, run

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST, ANSWER, NEW, INTERVAL = 4000, 90, 40, 512
MODELS = {'gemma4-dense-tiny': [[]], 'gemma4-e-tiny': [[]], 'qwen35-dense-tiny': [[]], 'qwen35-moe64-micro': [[]],
          'dsv4-micro': [[]], 'qwen35-mtp-tiny': [[], ['--spec-type', 'mtp', '--spec-draft-n-max', '3']]}


def check(name, model, vocab, more):
    rnd = random.Random(7)
    ids = lambda n: [rnd.randrange(300, vocab) for _ in range(n)]
    flags = ['--parallel', '1', '-c', '6144', '--kv-cache-tokens', '32768', *more]
    first = {'name': 'first', 'ids': ids(FIRST), 'n': ANSWER, 'rows': 'last'}
    alone = run(model, [first], '--no-prefix-cache', *flags)
    answer = alone[0][0]['greedy']
    edited = list(first['ids'])
    edited[FIRST // 2] = (edited[FIRST // 2] + 1 - 300) % (vocab - 300) + 300
    turns = [dict(first, name='next', n=8, ids=first['ids'] + answer + ids(NEW)),
             dict(first, name='cut', n=8, ids=first['ids'] + answer[-20:] + ids(NEW)),
             dict(first, name='again', n=8),
             dict(first, name='edited', n=8, ids=edited)]
    cached = run(model, [first] + turns, *flags)
    faults = differences('with prefixes', cached, run(model, [first] + turns, '--no-prefix-cache', *flags))
    # Cached tokens are whole blocks, and the answer's last token was never computed. Window blocks are kept only where
    # a prompt ended, not in its middle.
    states, block = name.startswith('qwen'), 128 if name.startswith('dsv4') else 16
    least = {'first': 0, 'next': FIRST + ANSWER - 1 - block, 'cut': FIRST - block, 'again': FIRST - 1 - block,
             'edited': FIRST // 2 - 16 - INTERVAL if states else 0}
    for line in cached[0]:
        if line['cached_tokens'] < least[line['name']]:
            faults.append(f"{line['name']}: only {line['cached_tokens']} of {line['prompt_tokens']} prompt tokens from the cache")
    drafts = f", {sum(l['accepted'] for l in cached[0])} drafts accepted" if more else ''
    print(f'{name}: ' + ', '.join(f"{l['name']} {l['cached_tokens']} of {l['prompt_tokens']}" for l in cached[0]) + drafts)
    return [f'{name}: {f}' for f in faults]


def main():
    golden = sys.argv[1] if len(sys.argv) > 1 else os.environ.get('PAGEDINFER_GOLDEN', os.path.join(HERE, '../../../shared/golden'))
    if not os.path.isdir(golden):
        print(f'no {golden}')
        return 77
    faults = []
    with tempfile.TemporaryDirectory() as d:
        for name, ways in MODELS.items():
            folder, model = os.path.join(golden, name), os.path.join(d, name + '.gguf')
            meta = json.load(open(os.path.join(folder, 'golden.json')))
            with lzma.open(os.path.join(folder, meta['exact'] + '.xz')) as i, open(model, 'wb') as o: shutil.copyfileobj(i, o)
            for more in ways: faults += check(name, model, meta['vocab'], more)
            os.unlink(model)
    for f in faults[:20]: print(f)
    return 1 if faults else 0


sys.exit(main())
