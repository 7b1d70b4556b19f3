"""Runs of `pagedinfer eval --cases` for the checks that compare them with a reference or with each other."""
import json, os, subprocess, sys, tempfile

BIN = os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer')


def run(model, cases, *flags):
    """Result lines and the bytes of each case's logits."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, 'cases.json')
        with open(path, 'w') as f: json.dump(cases, f)
        r = subprocess.run([BIN, 'eval', '-m', model, '--cases', path, '--logits-dir', d, *flags],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
        if r.returncode:
            print(r.stderr[-2000:])
            sys.exit(f'eval {" ".join(flags)} exited with {r.returncode}')
        lines = [json.loads(l) for l in r.stdout.splitlines()]
        if [l['name'] for l in lines] != [c['name'] for c in cases]: sys.exit('eval: other cases, or another order')
        return lines, [open(os.path.join(d, c['name'] + '.f32'), 'rb').read() for c in cases]


def differences(label, got, want):
    """Faults, as text, where two runs of the same cases are not the same bytes."""
    faults = []
    for a, b, x, y in zip(got[0], want[0], got[1], want[1]):
        if x != y: faults.append(f"{label}: logits of {a['name']} differ from the plain run")
        if a['greedy'] != b['greedy']: faults.append(f"{label}: tokens of {a['name']} differ from the plain run")
    return faults


def crowd(cases, run_of_cases, n):
    """n requests made of the cases in turn, and what they should give."""
    many = [dict(cases[i % len(cases)], name=f"{cases[i % len(cases)]['name']}_{i}") for i in range(n)]
    lines, logits = run_of_cases
    return many, ([lines[i % len(cases)] for i in range(n)], [logits[i % len(cases)] for i in range(n)])
