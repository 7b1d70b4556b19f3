#!/usr/bin/env python3
"""Runs SmolLM2 135M Instruct (Q4_1) through the tool: tokens, perplexity, and answers of `chat` with its own template.

1. The ids of TEXTS are llama-tokenize's.
2. The perplexity of tests/golden/text.txt is within PEER of llama-perplexity's, and within EXACT of float32 arithmetic
   on the file's weights (computed with transformers). llama.cpp's number comes from
       llama-perplexity -m SmolLM2-135M-Instruct.Q4_1.gguf -f tests/golden/text.txt -c 512
   llama.cpp rounds activations to 8 bits, and is 0.46 % above the exact number.
3. Greedy answers contain the words of ANSWERS. They are the same each time and with one thread.
4. Logits and tokens are the same bytes for other step budgets, and in a batch with other requests.
Standard library only. Exit 77: no model (PAGEDINFER_CHAT_MODEL)."""
import json, os, re, subprocess, sys, tempfile

from eval_runs import BIN, crowd, differences, run

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL, TEXT = os.environ.get('PAGEDINFER_CHAT_MODEL', ''), os.path.join(HERE, '../golden', 'text.txt')
TEXTS = [
    ('The capital of France is Paris.', [504, 3575, 282, 4649, 314, 7042, 30]),
    ('It costs $1,234.50 (or 20% less) in 2025!', [1589, 3499, 1885, 33, 28, 34, 35, 36, 30, 37, 32, 365, 270, 216, 34, 32, 21,
                                                  1181, 25, 281, 216, 34, 32, 34, 37, 17]),
    ('  def f(x):\n\treturn x ** 2\n\n\n', [216, 753, 275, 24, 104, 727, 198, 197, 5406, 1792, 1903, 216, 34, 16506]),
    ('Ünïcödé: naïve café, 日本語, Привет, 😀🎉', [142, 246, 94, 25972, 83, 7466, 84, 2756, 42, 15486, 46494, 37366, 28, 17097,
                                                241, 115, 40993, 179, 120, 248, 28, 5470, 249, 46879, 16464, 32547, 28, 40303,
                                                218, 10813, 232, 227]),
    ("I'll say it's 12:30; they've gone, we'd SHOUT'S", [57, 3060, 1643, 357, 506, 216, 33, 34, 42, 35, 32, 43, 502, 3543, 7270,
                                                        28, 392, 6737, 334, 21953, 23, 67]),
    ('<|im_start|>user\nhello<|im_end|>\n', [1, 4093, 198, 28120, 2, 198]),
    ('a   b    c\r\n\r\nd  ', [81, 256, 278, 333, 265, 7209, 198, 84, 256]),
]
LLAMA_CPP, PEER, FLOAT32, EXACT = 16.6601, 0.006, 16.5846, 0.001
ANSWERS = [('What is the capital of France?', ['Paris']), ('Name the days of the week.', ['Monday', 'Wednesday', 'Sunday']),
           ('What color is the sky on a clear day?', ['blue']),
           ('Write a Python function that adds two numbers.', ['def ', 'return'])]
faults = []


def tool(*argv, stdin=''):
    r = subprocess.run([BIN, *argv], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    if r.returncode: sys.exit(f'{" ".join(argv)}: exit {r.returncode}: {r.stderr[-500:]}')
    return r.stdout


def tokens():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, 'text')
        for text, ids in TEXTS:
            with open(path, 'wb') as f: f.write(text.encode())
            got = json.loads(tool('tokenize', '-m', MODEL, '-f', path, '--ids', '--no-escape'))
            if got != ids: faults.append(f'tokens of {text!r}: {got}')


def perplexity():
    out = tool('eval', '-m', MODEL, '-f', TEXT, '-c', '512', '--parallel', '4')
    found = re.search(r'^Final estimate: PPL = ([0-9.]+)', out, re.M)
    got = float(found[1]) if found else 0
    for what, want, most in (('llama-perplexity', LLAMA_CPP, PEER), ('float32 arithmetic', FLOAT32, EXACT)):
        if not abs(got / want - 1) <= most: faults.append(f'perplexity {got}, {want} by {what}')
    return got


def answers():
    for question, words in ANSWERS:
        chat = ['chat', '-m', MODEL, '--temp', '0', '-n', '80', '-c', '512', '-st', '-p', question]
        text = tool(*chat)
        if not all(w in text for w in words): faults.append(f'{question} {text!r}')
        if tool(*chat, '-t', '1') != text: faults.append(f'{question} another answer with one thread')


def same_bits():
    ids = json.loads(tool('tokenize', '-m', MODEL, '-f', TEXT, '--ids', '--no-escape'))
    cases = [{'name': f'{n}', 'ids': ids[n:2 * n], 'n': 8, 'rows': 'last'} for n in (1, 40, 150)]
    base = run(MODEL, cases, '--no-prefix-cache')
    for flags in (['-ub', '16', '-t', '1'], ['--block-size', '64', '--parallel', '3']):
        faults.extend(differences(' '.join(flags), run(MODEL, cases, '--no-prefix-cache', *flags), base))
    many, want = crowd(cases, base, 9)
    faults.extend(differences('a batch', run(MODEL, many, '--parallel', '9', '--kv-cache-tokens', '4096'), want))


def main():
    if not MODEL or not os.path.exists(MODEL):
        print('no model (PAGEDINFER_CHAT_MODEL)')
        return 77
    tokens()
    got = perplexity()
    answers()
    same_bits()
    for f in faults[:20]: print(f)
    print(f'SmolLM2: perplexity {got:.4f} ({LLAMA_CPP} by llama.cpp), {len(TEXTS)} texts, {len(ANSWERS)} answers, '
          f'{len(faults)} faults')
    return 1 if faults else 0


sys.exit(main())
