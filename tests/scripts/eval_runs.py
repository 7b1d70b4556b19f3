"""Runs `pagedinfer eval --cases` for checks that compare its results with a reference or with another run."""
import array, json, lzma, math, os, shutil, subprocess, sys, tempfile

BIN = os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer')
SECONDS = 3600 if os.environ.get('PAGEDINFER_LONG') else 900 # time limit of one run


def run(model, cases, *flags):
    """Runs the cases. Returns (result lines, bytes of each case's logits)."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, 'cases.json')
        with open(path, 'w') as f: json.dump(cases, f)
        r = subprocess.run([BIN, 'eval', '-m', model, '--cases', path, '--logits-dir', d, *flags],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
        if r.returncode:
            print(r.stderr[-2000:])
            sys.exit(f'eval {" ".join(flags)} exited with {r.returncode}')
        lines = [json.loads(l) for l in r.stdout.splitlines()]
        if [l['name'] for l in lines] != [c['name'] for c in cases]: sys.exit('eval: other cases, or another order')
        return lines, [open(os.path.join(d, c['name'] + '.f32'), 'rb').read() for c in cases]


def differences(label, got, want):
    """Returns fault texts where two runs of the same cases are not bitwise identical."""
    faults = []
    for a, b, x, y in zip(got[0], want[0], got[1], want[1]):
        if x != y: faults.append(f"{label}: logits of {a['name']} differ from the plain run")
        if a['greedy'] != b['greedy']: faults.append(f"{label}: tokens of {a['name']} differ from the plain run")
    return faults


def crowd(cases, run_of_cases, n):
    """Returns n requests that repeat the cases round-robin, and their expected results."""
    many = [dict(cases[i % len(cases)], name=f"{cases[i % len(cases)]['name']}_{i}") for i in range(n)]
    lines, logits = run_of_cases
    return many, ([lines[i % len(cases)] for i in range(n)], [logits[i % len(cases)] for i in range(n)])


def floats(raw):
    a = array.array('f')
    a.frombytes(raw)
    if sys.byteorder == 'big': a.byteswap()
    return a


def worst_row(want, got, width):
    """Returns the largest difference of a logit, in units of its row's standard deviation (at least 1)."""
    worst = math.inf if len(want) != len(got) or len(want) % width else 0.0
    for i in range(0, len(want), width):
        p, q = want[i:i + width], got[i:i + width]
        mean = sum(p) / width
        spread = max(1.0, math.sqrt(sum((x - mean) ** 2 for x in p) / width))
        d = max(abs(a - b) for a, b in zip(p, q)) / spread
        worst = max(worst, d if d == d else math.inf)
    return worst


def unpack(golden, name, to, file=None):
    """Unpacks the exact file of a reference model, or the named one from the same folder, into folder `to`."""
    folder, path = os.path.join(golden, name), os.path.join(to, file or name + '.gguf')
    exact = file or json.load(open(os.path.join(folder, 'golden.json'))).get('exact') or name + '-BF16.gguf'
    with lzma.open(os.path.join(folder, exact + '.xz')) as i, open(path, 'wb') as o: shutil.copyfileobj(i, o)
    return path
