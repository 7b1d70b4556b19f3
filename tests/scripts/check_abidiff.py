#!/usr/bin/env python3
"""Compares the public headers with the recorded ones of tests/abi, by abidiff: programs compiled before must still run.

    check_abidiff.py            compares, and plants changes to show that each is found or accepted
    check_abidiff.py --record   writes tests/abi: for a release, or for an intended break (give the reason in the commit)

A header becomes a library of empty functions with debug information, so no build with debug information is needed. The
compiler ensures that the real library has the header's types; check_abi.sh compares its symbols.

Allowed: new functions, and new fields at the end of a struct that begins with `size` (docs/ABI.md). Exit 77: no
abidiff."""
import os, re, shutil, subprocess, sys, tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..')
HEADERS = ['pagedinfer', 'pagedinfer_openai']
CC = os.environ.get('CC', 'cc')
faults = []


def current(name):
    with open(os.path.join(ROOT, 'include', name + '.h'), encoding='utf-8') as f: return f.read()


def recorded(name): return os.path.join(ROOT, 'tests/abi', name + '.h')


def bare(text):
    """A header without comments and empty lines."""
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    return '\n'.join(l.rstrip() for l in text.split('\n') if l.strip(' \\')) + '\n'


def library(folder, headers):
    """Compiles a library of empty functions from {name: text}. Returns its path."""
    os.makedirs(folder)
    for name, text in headers.items():
        with open(f'{folder}/{name}.h', 'w', encoding='utf-8') as f: f.write(text)
    source = ''.join(f'#include <{n}.h>\n' for n in headers)
    r = subprocess.run([CC, '-E', '-P', '-I', folder, '-xc', '-'], input=source, capture_output=True, text=True)
    if r.returncode: sys.exit(r.stderr)
    empty = re.sub(r'(visibility\("default"\)[^;{}]*\))\s*;', r'\1 { __builtin_trap(); }', r.stdout)
    path = f'{folder}/lib.so'
    r = subprocess.run([CC, '-shared', '-fPIC', '-g', '-O0', '-fno-eliminate-unused-debug-types', '-w', '-xc', '-', '-o', path],
                       input=empty, capture_output=True, text=True)
    if r.returncode: sys.exit(r.stderr[:2000])
    return path


def growing(text):
    """Names of the structs that may grow: their first field is `size`."""
    return re.findall(r'struct (\w+) \{\s*uint32_t size;', bare(text))


BLOCK = re.compile(r"^'struct (\w+) at [^\n]*' changed:\n((?:  [^\n]*\n)+)\n?", re.M)


def appends(name, body, names):
    """True if the change only adds fields after the end of a struct that may grow."""
    m = re.fullmatch(r"  type size changed from (\d+) to \d+ \(in bits\)\n  \d+ data member insertions?:\n((?:    [^\n]*\n)+)", body)
    offsets = re.findall(r"^    '[^\n]*', at offset (\d+) \(in bits\)", m[2], re.M) if m else []
    return name in names and m and len(offsets) == m[2].count('\n') and all(int(o) >= int(m[1]) for o in offsets)


def compare(old, new):
    """The report of incompatible changes between two libraries; '' = none."""
    r = subprocess.run(['abidiff', '--leaf-changes-only', '--no-added-syms', old, new], capture_output=True, text=True)
    if r.returncode & 3: sys.exit(f'abidiff: {r.returncode}: {r.stderr}')
    names = growing(current('pagedinfer')) + growing(current('pagedinfer_openai'))
    rest = BLOCK.sub(lambda m: '' if appends(m[1], m[2], names) else m[0], r.stdout)
    rest = re.sub(r'^(Leaf changes|Changed leaf types|Removed/Changed/Added variables) summary: [^\n]*\n', '', rest, flags=re.M)
    rest = re.sub(r'^Removed/Changed/Added functions summary: 0 Removed, 0 Changed, [^\n]*\n', '', rest, flags=re.M)
    return rest.strip()


def plant(folder, old):
    """Changes of the header: (name, text, replacement, incompatible)."""
    changes = [
        ('a field in the middle', '    const char *name;      /* general.name', '    int more; const char *name;      /* general.name', True),
        ('a wider field', 'uint32_t n_vocab; ', 'uint64_t n_vocab; ', True),
        ('a field of a fixed struct', '    float logprob; ', '    double more; float logprob; ', True),
        ('a wider parameter', 'pi_engine_drain(pi_engine *e, int timeout_ms)', 'pi_engine_drain(pi_engine *e, long timeout_ms)', True),
        ('a removed function', 'PI_API int pi_poll_fd(const pi_engine *e);', '', True),
        ('a callback with one more argument', '(*pi_log_fn)(void *ud, int level, const char *msg)',
         '(*pi_log_fn)(void *ud, int level, const char *msg, int more)', True),
        ('another result', 'PI_API size_t pi_request_tokens(', 'PI_API uint32_t pi_request_tokens(', True),
        ('a field at the end', '} pi_info;', '    uint64_t more;\n} pi_info;', False),
        ('a new function', 'PI_API int pi_poll_fd(', 'PI_API int pi_more(void);\nPI_API int pi_poll_fd(', False)]
    for i, (name, text, more, bad) in enumerate(changes):
        if current('pagedinfer').count(text) != 1: sys.exit(f'{name}: the header does not have {text!r} once')
        headers = {n: current(n) for n in HEADERS}
        headers['pagedinfer'] = headers['pagedinfer'].replace(text, more)
        if bool(compare(old, library(f'{folder}/{i}', headers))) != bad:
            faults.append(f'{name}: ' + ('not found' if bad else 'refused'))
    return len(changes)


def main():
    if sys.argv[1:] == ['--record']:
        os.makedirs(os.path.join(ROOT, 'tests/abi'), exist_ok=True)
        for n in HEADERS:
            with open(recorded(n), 'w', encoding='utf-8') as f:
                f.write(f'/* {n}.h as recorded by tests/scripts/check_abidiff.py --record. */\n' + bare(current(n)))
        return 0
    if not shutil.which('abidiff'):
        print('no abidiff (Debian, Ubuntu: abigail-tools)')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        headers = {n: open(recorded(n), encoding='utf-8').read() for n in HEADERS}
        old, new = library(f'{folder}/old', headers), library(f'{folder}/new', {n: current(n) for n in HEADERS})
        if report := compare(old, new):
            faults.append(report + 'Programs compiled with the recorded header would break. Append fields and functions instead '
                          '(docs/ABI.md), or record an intended break: check_abidiff.py --record')
        n = plant(folder, new)
    for f in faults: print(f)
    print(f'abidiff: {len(HEADERS)} headers, {n} planted changes, {len(faults)} faults')
    return 1 if faults else 0


sys.exit(main())
