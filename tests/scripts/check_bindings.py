#!/usr/bin/env python3
"""Compiles and runs the C++ wrapper, the Rust crate and the Go package.

    check_bindings.py [cpp] [rust] [go]   default: all

C++: tests/bindings/cpp.cpp and the example with g++ and clang++, without warnings. Rust: src/sys.rs is what gen_sys.py
writes, its structs have the sizes of tests/scripts/abi.txt; cargo test and the example. Go: gofmt, go vet, go test and
the example. The examples print the texts of `pagedinfer run` for each prompt alone. A language whose tools are not
installed is left out with a line. Exit 77: none is installed, or there is no model."""
import os, re, shutil, subprocess, sys, tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
BUILD = os.path.abspath(os.environ.get('PAGEDINFER_BUILD', os.path.join(ROOT, 'build')))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
MODEL, CHAT = os.environ.get('PAGEDINFER_MODEL', ''), os.environ.get('PAGEDINFER_CHAT_MODEL', '')
PROMPTS = ['Once upon a time', 'The capital of France is', '1, 2, 3, 4,']
FLAGS = ['-std=c++17', '-O1', '-Wall', '-Wextra', '-Wpedantic', '-Wshadow', '-Wconversion', '-Werror']
ENV = {**os.environ, 'LD_LIBRARY_PATH': BUILD, 'PAGEDINFER_LIB_DIR': BUILD}
faults = []


def run(what, *command, folder=ROOT, env=None, code=0):
    """Runs a command; returns its standard output. Another status than code is a fault."""
    r = subprocess.run(command, cwd=folder, env={**ENV, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       errors='replace', timeout=900)
    if r.returncode != code: faults.append(f'{what}: status {r.returncode}: {(r.stdout + r.stderr)[-1500:]}')
    return r.stdout


def example(what, program, expected):
    """Checks an example: equal texts, wrong usage, a missing model."""
    got = run(what, program, MODEL, *PROMPTS)
    if got != expected: faults.append(f'{what}: {got!r}, not {expected!r}')
    run(f'{what} without arguments', program, code=2)
    run(f'{what} without a model', program, MODEL + '.none', 'a', code=1)


def cpp(folder, expected):
    compilers = [c for c in ('g++', 'clang++') if shutil.which(c)]
    for c in compilers:
        for source, name in (('tests/bindings/cpp.cpp', 'cpp'), ('tools/examples/first.cpp', 'first_cpp')):
            run(f'{c} {source}', c, *FLAGS, '-Iinclude', source, '-o', f'{folder}/{name}', f'-L{BUILD}', '-lpagedinfer', '-pthread')
        run(f'{c}: the calls of pagedinfer.hpp', f'{folder}/cpp', MODEL, CHAT)
        if c == compilers[0]: example('first.cpp', f'{folder}/first_cpp', expected)
    return ' and '.join(compilers)


def rust(folder, expected):
    if not shutil.which('cargo'): return None
    crate = os.path.join(ROOT, 'bindings/rust')
    run('gen_sys.py', sys.executable, f'{crate}/gen_sys.py', 'include/pagedinfer.h', f'{folder}/sys.rs')
    with open(f'{folder}/sys.rs') as a, open(f'{crate}/src/sys.rs') as b:
        if a.read() != b.read(): faults.append('bindings/rust/src/sys.rs differs from the header: run '
                                               'python3 bindings/rust/gen_sys.py include/pagedinfer.h bindings/rust/src/sys.rs')
    env = {'CARGO_TARGET_DIR': os.path.join(BUILD, 'rust'), 'CARGO_NET_OFFLINE': 'true', 'RUSTFLAGS': '-D warnings'}
    out = run('cargo test', 'cargo', 'test', '--offline', '--tests', '--examples', '--', '--nocapture', '--test-threads=1', folder=crate, env=env)
    with open(os.path.join(ROOT, 'tests/scripts/abi.txt')) as f: sizes = dict(re.findall(r'^struct (pi_\w+) (\d+)', f.read(), re.M))
    layout = dict(re.findall(r'layout (pi_\w+) (\d+)$', out, re.M))
    for name, size in sizes.items():
        if layout.get(name) != size: faults.append(f'Rust: {name} has {layout.get(name)} bytes, not {size}')
    run('cargo build --example', 'cargo', 'build', '--offline', '--examples', folder=crate, env=env)
    example('first.rs', os.path.join(BUILD, 'rust/debug/examples/first'), expected)
    return 'cargo'


def go(folder, expected):
    if not shutil.which('go') or not shutil.which('pkg-config'): return None
    with open(f'{folder}/pagedinfer.pc', 'w') as f:
        f.write(f'Name: pagedinfer\nDescription: build tree\nVersion: 0\nCflags: -I{ROOT}/include\nLibs: -L{BUILD} -lpagedinfer\n')
    package = os.path.join(ROOT, 'bindings/go')
    env = {'PKG_CONFIG_PATH': folder, 'GOCACHE': os.path.join(BUILD, 'go'), 'GOFLAGS': '-mod=mod', 'GOTOOLCHAIN': 'local', 'GOPROXY': 'off'}
    if shutil.which('gofmt') and (out := run('gofmt', 'gofmt', '-l', package)): faults.append(f'gofmt: {out}')
    run('go vet', 'go', 'vet', './...', folder=package, env=env)
    run('go test', 'go', 'test', '-count=1', './...', folder=package, env=env)
    run('go build', 'go', 'build', '-o', f'{folder}/example_go', './example', folder=package, env=env)
    example('the example in Go', f'{folder}/example_go', expected)
    return 'go'


def main():
    if not all(os.path.exists(m) for m in (MODEL, CHAT)):
        print('no models (PAGEDINFER_MODEL, PAGEDINFER_CHAT_MODEL)')
        return 77
    alone = [run(f'run -p {p}', BIN, 'run', '-m', MODEL, '-p', p, '--temp', '0', '-n', '48') for p in PROMPTS]
    if min(map(len, alone)) < 20: sys.exit(f'answers too short to compare: {alone}')
    done = []
    with tempfile.TemporaryDirectory() as folder:
        for part in (cpp, rust, go):
            if sys.argv[1:] and part.__name__ not in sys.argv[1:]: continue
            if tools := part(folder, ''.join(alone)): done.append(f'{part.__name__} ({tools})')
            else: print(f'{part.__name__}: left out, its tools are not installed')
    for f in faults: print(f)
    print(f'bindings: {", ".join(done)}: {len(faults)} faults')
    return 1 if faults else 0 if done else 77


sys.exit(main())
