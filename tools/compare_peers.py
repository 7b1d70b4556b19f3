#!/usr/bin/env python3
"""Compares this engine with llama.cpp, side by side on this machine: speed, memory, accuracy.

    python3 tools/compare_peers.py -m MODEL [--peer FOLDER] [--out FOLDER] [options]

FOLDER has llama.cpp's programs (llama-bench, llama-batched-bench, llama-perplexity, llama-quantize). Without --peer they
are built, once, from the source distribution of llama-cpp-python on PyPI (VERSION below; 77 MB, about 15 minutes on two
cores; needs pip, CMake, Make and a C++ compiler). `pagedinfer` is that of build/ (--bin names another).

Measured, both with the same flags, each in turn within a round and in changing order, so that what else the machine
does falls on both; medians of the rounds are told, and how far they spread:
    prompts and answers of one request       llama-bench's test: -p, -n
    1 to 32 requests at once                 llama-batched-bench's test: --npp, --ntg, --npl
    memory                                   peak resident set of the largest of these tests, and bytes of its KV cache
    accuracy                                 mean KL divergence from llama.cpp's logits on the same weights as F32 (--text)

Prints a table of ratios; --out also gets it as compare.md, all numbers as compare.json, and plots (compare.svg) where
matplotlib or gnuplot is installed. Let nothing else run meanwhile: threads that wait for each other in a spin make
everything worthless when there are fewer cores than threads. Standard library only."""
import argparse, json, os, re, statistics, subprocess, sys, tarfile, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = '0.3.36' # of llama-cpp-python
PROGRAMS = ['llama-bench', 'llama-batched-bench', 'llama-perplexity', 'llama-quantize']
PEER_FLAGS = {None: ['-DGGML_NATIVE=ON'],
              'avx2': ['-DGGML_NATIVE=OFF', '-DGGML_AVX2=ON', '-DGGML_FMA=ON', '-DGGML_F16C=ON', '-DGGML_BMI2=ON', '-DGGML_AVX512=OFF']}
OURS, PEER = 'pagedinfer', 'llama.cpp'
commands = [] # each different command that was run, for the report


def fail(text):
    sys.exit(f'compare_peers.py: {text}')


class Run:
    """A program that ended: its output, its errors and its peak resident set in bytes."""
    def __init__(self, *argv, limit=3600):
        argv = [str(a) for a in argv]
        if argv not in commands: commands.append(argv)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            end = time.monotonic() + limit
            pid = 0
            while not pid:
                pid, status, usage = os.wait4(p.pid, os.WNOHANG)
                if pid: break
                if time.monotonic() > end: p.kill()
                time.sleep(0.02)
            p.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0), err.seek(0)
            self.out, self.err = out.read().decode(errors='replace'), err.read().decode(errors='replace')
        self.rss = usage.ru_maxrss * 1024
        if p.returncode: fail(f'{" ".join(argv)}: exit {p.returncode}\n{self.out[-1000:]}{self.err[-1000:]}')


# ------------------------------------------------------------------------------------------------------------ the peer

def build_peer(work, isa):
    """llama.cpp's programs for this processor, in work/build/bin; or for processors with an instruction set of PEER_FLAGS."""
    build = work / ('build' + (f'-{isa}' if isa else ''))
    bin_dir = build / 'bin'
    if all((bin_dir / p).exists() for p in PROGRAMS): return bin_dir
    work.mkdir(parents=True, exist_ok=True)
    log = work / 'build.log'

    def step(what, *argv):
        print(f'{what} (log: {log})', file=sys.stderr, flush=True)
        with open(log, 'a') as f:
            if subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=f, stderr=f).returncode:
                fail(f'{" ".join(map(str, argv))} failed, see {log}; --peer names a folder of programs built elsewhere')
    source = work / 'llama.cpp'
    if not source.exists():
        pip = [sys.executable, '-m', 'pip']
        if subprocess.run([*pip, '--version'], capture_output=True).returncode:
            step('making a virtual environment', sys.executable, '-m', 'venv', work / 'venv')
            pip = [work / 'venv/bin/python', '-m', 'pip']
        step('fetching the source distribution', *pip, 'download', '-q', '--disable-pip-version-check', '--no-deps',
             '--no-binary', ':all:', '-d', work, f'llama-cpp-python=={VERSION}')
        with tarfile.open(next(work.glob('llama_cpp_python-*.tar.gz'))) as t, tempfile.TemporaryDirectory(dir=work) as d:
            t.extractall(d, members=[m for m in t if '/vendor/llama.cpp/' in m.name and not m.issym() and not m.islnk()
                                     and '..' not in Path(m.name).parts and not m.name.startswith('/')])
            next(Path(d).glob('*/vendor/llama.cpp')).rename(source)
    # Make: the time stamps of the archive are old, and Ninja would configure again and again.
    step('configuring', 'cmake', '-S', source, '-B', build, '-G', 'Unix Makefiles', '-DCMAKE_BUILD_TYPE=Release',
         *PEER_FLAGS[isa], '-DLLAMA_CURL=OFF', '-DLLAMA_OPENSSL=OFF', '-DLLAMA_BUILD_TESTS=OFF', '-DLLAMA_BUILD_UI=OFF')
    step('building, minutes', 'cmake', '--build', build, '-j', str(os.cpu_count()), '--target', *PROGRAMS)
    return bin_dir


# -------------------------------------------------------------------------------------------------------- measurements

def single(program, o):
    """{('prefill' or 'decode'): tokens a second} of one request."""
    r = Run(*program, '-m', o.model, '-p', o.prompt, '-n', o.gen, '-r', '1', '-t', o.threads, '-o', 'json')
    rows = json.loads(r.out[r.out.index('['):])
    return {('prefill' if row['n_prompt'] else 'decode'): row['avg_ts'] for row in rows}


def many(program, o, levels, log=()):
    """({level: (tokens of prompts a second, of answers)}, the run) of so many requests at once."""
    more = ['-o', 'jsonl', '--kv-stats', '-np', max(levels)] if program[1:] else ['--output-format', 'jsonl', *log]
    r = Run(*program, '-m', o.model, '-npp', o.npp, '-ntg', o.ntg, '-npl', ','.join(map(str, levels)), '-t', o.threads,
            '-c', (o.npp + o.ntg) * max(levels), *more)
    rows = [json.loads(line) for line in r.out.splitlines() if line.startswith('{')]
    return {row['pl']: (row['speed_pp'], row['speed_tg']) for row in rows}, r


def kv_bytes(r):
    """Bytes of the KV cache, of our --kv-stats or of llama.cpp's log."""
    ours = re.findall(r'^\w+(?: +\d+){6} +([\d.]+) ([KMG])iB', r.err, re.M)
    theirs = re.findall(r'llama_kv_cache.*: size = +([\d.]+) (M)iB', r.err + r.out)
    return sum(float(n) * {'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}[unit] for n, unit in ours or theirs)


def speeds(tools, o):
    """{engine: {what: [a number a round]}}, {engine: peak bytes}, {engine: bytes of the cache}"""
    found, rss, kv = {OURS: {}, PEER: {}}, {}, {}
    for i in range(o.rounds):
        for engine in (OURS, PEER) if i % 2 == 0 else (PEER, OURS):
            print(f'round {i + 1} of {o.rounds}: {engine}', file=sys.stderr, flush=True)
            for what, speed in single(tools[engine]['bench'], o).items():
                found[engine].setdefault(what, []).append(speed)
            levels, _ = many(tools[engine]['batch'], o, o.npl)
            for n, (pp, tg) in levels.items():
                found[engine].setdefault(f'prefill, {n} at once', []).append(pp)
                found[engine].setdefault(f'decode, {n} at once', []).append(tg)
    for engine in (OURS, PEER): # the largest alone, so that smaller ones before it do not count
        _, r = many(tools[engine]['batch'], o, [max(o.npl)], log=('-lv', '4')) # where llama.cpp tells of its cache
        rss[engine], kv[engine] = r.rss, kv_bytes(r)
    return found, rss, kv


def accuracy(tools, o):
    """{engine: (mean KL divergence, share of positions with the same first token)} from the same weights as F32."""
    with tempfile.TemporaryDirectory(dir=o.scratch) as d:
        f32, base, found = os.path.join(d, 'f32.gguf'), os.path.join(d, 'base'), {}
        Run(tools[PEER]['quantize'], '--allow-requantize', o.model, f32, 'F32')
        text = ['-f', o.text, '-c', o.kl_ctx, '--chunks', o.chunks]
        Run(tools[PEER]['eval'], '-t', o.threads, '-m', f32, *text, '--kl-divergence-base', base)
        os.unlink(f32)
        for engine, program in ((OURS, tools[OURS]['eval']), (PEER, [tools[PEER]['eval']])):
            for _ in range(20): # llama-perplexity may end before all that it prints is out
                r = Run(*program, '-t', o.threads, '-m', o.model, '--kl-divergence-base', base, '--kl-divergence')
                kl = re.search(r'Mean +KLD: +(-?[0-9.]+)', r.out + r.err)
                top = re.search(r'Same top p: +([0-9.]+)', r.out + r.err)
                if kl: break
            else:
                fail(f'{engine}: no mean divergence; give more --chunks')
            found[engine] = float(kl[1]), float(top[1]) if top else None
    return found


# -------------------------------------------------------------------------------------------------------------- report

def machine():
    try: cpu = re.search(r'model name\s*: (.*)', Path('/proc/cpuinfo').read_text())[1]
    except (OSError, TypeError): cpu = os.uname().machine
    return f'{cpu}, {os.cpu_count()} threads, {os.uname().sysname} {os.uname().release}'


def spread(values):
    m = statistics.median(values)
    return max(abs(v - m) for v in values) / m if m else 0


def table(result):
    """Lines of Markdown."""
    lines = [f'| | {OURS} | {PEER} | ratio |', '|---|---|---|---|']
    speed = result['speeds']
    for what in speed[OURS]:
        a, b = [statistics.median(speed[e][what]) for e in (OURS, PEER)]
        wide = max(spread(speed[e][what]) for e in (OURS, PEER))
        lines.append(f'| {what}, t/s | {a:.1f} | {b:.1f} | {a / b:.2f} (± {100 * wide:.0f} %) |')
    for what, name in (('rss', 'peak resident set, MiB'), ('kv', 'KV cache, MiB')):
        a, b = [result[what][e] / (1 << 20) for e in (OURS, PEER)]
        lines.append(f'| {name} | {a:.1f} | {b:.1f} | {a / b:.2f} |' if b else f'| {name} | {a:.1f} | | |')
    if result.get('kl'):
        (a, at), (b, bt) = [result['kl'][e] for e in (OURS, PEER)]
        lines.append(f'| mean KL divergence from F32 | {a:.6f} | {b:.6f} | {a / b:.2f} |' if b else
                     f'| mean KL divergence from F32 | {a:.6f} | {b:.6f} | |')
        if at is not None and bt is not None: lines.append(f'| same first token as F32, % | {at:.3f} | {bt:.3f} | |')
    return lines


def report(result):
    quoted = [' '.join(c).replace(str(Path.home()), '~') for c in result['commands']]
    return '\n'.join([f'Machine: {result["machine"]}. {result["date"]}.',
                      f'{OURS}: {result["versions"][OURS]}. {PEER}: {result["versions"][PEER]}.',
                      f'Model: {Path(result["model"]).name}. {result["rounds"]} rounds, interleaved; medians, and the widest '
                      'distance of a round from them.', '', *table(result), '', 'Commands:', '',
                      *('    ' + q for q in quoted), ''])


def plot(result, out):
    """out/compare.svg: tokens a second over requests at once; None where nothing can draw it."""
    levels = {kind: [(int(w.split()[1]), w) for w in result['speeds'][OURS] if w.startswith(kind + ',')]
              for kind in ('prefill', 'decode')}
    points = {(e, kind): [(n, statistics.median(result['speeds'][e][w])) for n, w in levels[kind]]
              for e in (OURS, PEER) for kind in levels}
    file = out / 'compare.svg'
    try:
        import matplotlib
        matplotlib.use('Agg')
        import matplotlib.pyplot as plt
    except ImportError:
        return plot_gnuplot(points, file)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5))
    for ax, kind in zip(axes, levels):
        for e in (OURS, PEER): ax.plot(*zip(*points[e, kind]), marker='o', label=e)
        ax.set(title=kind, xlabel='requests at once', ylabel='tokens a second', xscale='log', ylim=(0, None))
        ax.set_xticks([n for n, _ in levels[kind]], [str(n) for n, _ in levels[kind]], minor=False)
        ax.legend()
    figure.tight_layout()
    figure.savefig(file)
    return file


def plot_gnuplot(points, file):
    text = [f'set terminal svg size 900,350; set output "{file}"; set multiplot layout 1,2; set logscale x 2',
            'set yrange [0:*]; set xlabel "requests at once"; set ylabel "tokens a second"']
    for kind in ('prefill', 'decode'):
        text.append(f'set title "{kind}"; plot ' + ', '.join(f'"-" with linespoints title "{e}"' for e in (OURS, PEER)))
        for e in (OURS, PEER): text += [f'{n} {v}' for n, v in points[e, kind]] + ['e']
    try: done = subprocess.run(['gnuplot'], input='\n'.join(text) + '\n', text=True).returncode == 0
    except OSError: done = False
    return file if done else None


def peer_version(folder, built):
    if built: return f'as in the source distribution of llama-cpp-python {VERSION}'
    r = subprocess.run([folder / 'llama-perplexity', '--version'], capture_output=True, text=True)
    text = re.search(r'version: (.*)', r.stdout + r.stderr)
    return text[1] if text else 'of unknown version'


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get('PAGEDINFER_CACHE') or Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache') / 'pagedinfer')
    p.add_argument('-m', '--model', required=True)
    p.add_argument('--peer', type=Path, help='folder with the programs of llama.cpp; none: they are built')
    p.add_argument('--work', type=Path, default=cache / 'peer', help='where they are built (%(default)s)')
    p.add_argument('--cpu-isa', choices=['avx2'], help='both for processors that have this instruction set, and none after it; '
                   'where --peer is given, it is to be built like that')
    p.add_argument('--activation-bits', choices=['8', '15'], help="pagedinfer's (its default); llama.cpp has 8")
    p.add_argument('--bin', type=Path, default=ROOT / 'build' / 'pagedinfer', help='%(default)s')
    p.add_argument('--out', type=Path, help='folder for compare.md, compare.json, compare.svg')
    p.add_argument('--text', type=Path, default=ROOT / 'tests' / 'golden' / 'text.txt', help='for accuracy (%(default)s)')
    p.add_argument('--scratch', help='where the F32 file goes meanwhile, four bytes a weight')
    p.add_argument('--no-kl', action='store_true', help='leave accuracy out')
    p.add_argument('-t', '--threads', type=int, default=len(os.sched_getaffinity(0)), help='%(default)s')
    p.add_argument('--rounds', type=int, default=5, help='%(default)s')
    p.add_argument('-p', '--prompt', type=int, default=512, help='tokens of the one prompt (%(default)s)')
    p.add_argument('-n', '--gen', type=int, default=128, help='tokens of the one answer (%(default)s)')
    p.add_argument('--npp', type=int, default=128, help='tokens of each prompt of many (%(default)s)')
    p.add_argument('--ntg', type=int, default=64, help='tokens of each answer of many (%(default)s)')
    p.add_argument('--npl', default='1,2,4,8,16,32', help='requests at once (%(default)s)')
    p.add_argument('--kl-ctx', type=int, default=256, help='tokens of a chunk of the text (%(default)s)')
    p.add_argument('--chunks', type=int, default=4, help='chunks of the text (%(default)s)')
    o = p.parse_args()
    try: o.npl = [int(n) for n in o.npl.split(',')]
    except ValueError: p.error('--npl is a list of numbers: 1,8,32')
    if min(o.npl + [o.rounds]) < 1: p.error('--npl and --rounds are at least 1')
    if not Path(o.model).is_file(): p.error(f'no such file: {o.model}')
    if not o.bin.is_file(): p.error(f'{o.bin} is not there: build it (cmake -B build && cmake --build build), or give --bin')
    return o


def main():
    o = arguments()
    folder = o.peer or build_peer(o.work, o.cpu_isa)
    ours = ['--cpu-isa', o.cpu_isa] if o.cpu_isa else []
    if o.activation_bits: ours += ['--activation-bits', o.activation_bits]
    missing = [p for p in PROGRAMS if not (folder / p).is_file()]
    if missing: fail(f'{folder} lacks {", ".join(missing)}: give another --peer, or none to have it built')
    if os.getloadavg()[0] > 0.5: print(f'warning: this machine is busy (load {os.getloadavg()[0]:.1f}); the numbers will not be '
                                       'worth much', file=sys.stderr)
    tools = {OURS: {'bench': [o.bin, 'bench', *ours], 'batch': [o.bin, 'bench', *ours], 'eval': [o.bin, 'eval', *ours]},
             PEER: {'bench': [folder / 'llama-bench'], 'batch': [folder / 'llama-batched-bench'],
                    'eval': folder / 'llama-perplexity', 'quantize': folder / 'llama-quantize'}}
    version = subprocess.run([o.bin, '--version'], capture_output=True, text=True).stdout.splitlines() or ['?']
    result = {'machine': machine(), 'date': time.strftime('%Y-%m-%d'), 'model': str(o.model), 'rounds': o.rounds,
              'versions': {OURS: version[0].removeprefix('pagedinfer '), PEER: peer_version(folder, not o.peer)}}
    result['speeds'], result['rss'], result['kv'] = speeds(tools, o)
    if not o.no_kl: result['kl'] = accuracy(tools, o)
    result['commands'] = commands
    text = report(result)
    print(text)
    if o.out:
        o.out.mkdir(parents=True, exist_ok=True)
        (o.out / 'compare.md').write_text(text)
        (o.out / 'compare.json').write_text(json.dumps(result, indent=1) + '\n')
        print(f'plots: {plot(result, o.out) or "neither matplotlib nor gnuplot is here"}', file=sys.stderr)


if __name__ == '__main__':
    main()
