#!/usr/bin/env python3
"""Compares this engine with llama.cpp, and optionally ik_llama.cpp, on this machine: speed, memory, accuracy.

    python3 tools/compare_peers.py -m MODEL [-m MODEL...] [--peer FOLDER] [--ik FOLDER] [--out FOLDER] [options]
    python3 tools/compare_peers.py --suite FOLDER [-m MODEL...] [--ik FOLDER] [--out FOLDER] [options]

--peer names a folder with llama.cpp's programs (llama-bench, llama-batched-bench, llama-perplexity, llama-quantize).
Without it the script builds them once from the source distribution of llama-cpp-python on PyPI (VERSION below; 77 MB,
about 15 minutes on two cores; needs pip, CMake, Make and a C++ compiler). --ik names a folder with ik_llama.cpp's
programs (llama-bench, llama-batched-bench), or its source tree, which is then built; without --ik its column is left
out. `pagedinfer` is the one in build/ (--bin names another). --activation-bits 15,8 measures it with both widths.

All engines get the same flags. Within a round they run one after the other, in alternating order, so that other load
on the machine affects all of them. The report has the medians of the rounds and their spread:

    prompts and answers of one request       llama-bench's test: -p, -n
    1 to 32 concurrent requests              llama-batched-bench's test: --npp, --ntg, --npl
    memory                                   peak resident set of the largest of these tests, and bytes of its KV cache
    accuracy (--text)                        mean KL divergence from llama.cpp's logits on the same weights as F32

--suite also measures real shapes with random weights of tools/synth.py (SUITE below; 4.3 GB), after the models of -m.
Missing files are written to FOLDER. Its defaults are three rounds, -p 512 -n 64 --npp 32 --ntg 32 --npl 4,16,32. The
accuracy of random weights is left out.

Prints a table of ratios for each model, and before them one of all models if there are several. A "-" means that
ik_llama.cpp gave no number, or not in every round. --out also gets the report as compare.md, all numbers as
compare.json, and plots (compare.svg) if matplotlib or gnuplot is installed. Run nothing else meanwhile: with fewer
free cores than threads, spinning threads make all results useless. Standard library only."""
import argparse, json, os, re, statistics, subprocess, sys, tarfile, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = '0.3.36' # version of llama-cpp-python
OURS, PEER, IK = 'pagedinfer', 'llama.cpp', 'ik_llama.cpp'
PROGRAMS = {PEER: ['llama-bench', 'llama-batched-bench', 'llama-perplexity', 'llama-quantize'],
            IK: ['llama-bench', 'llama-batched-bench']}
BUILD_FLAGS = {PEER: ['-DLLAMA_CURL=OFF', '-DLLAMA_OPENSSL=OFF', '-DLLAMA_BUILD_TESTS=OFF', '-DLLAMA_BUILD_UI=OFF'],
               IK: ['-DLLAMA_CURL=OFF', '-DLLAMA_BUILD_TESTS=OFF', '-DGGML_IQK_FA_ALL_QUANTS=OFF']}
ISA_FLAGS = {None: ['-DGGML_NATIVE=ON'],
             'avx2': ['-DGGML_NATIVE=OFF', '-DGGML_AVX2=ON', '-DGGML_FMA=ON', '-DGGML_F16C=ON', '-DGGML_BMI2=ON', '-DGGML_AVX512=OFF']}
# shape, type, number of layers (None: all)
SUITE = [('qwen3.5-0.8b', 'q4_k_m', None), ('qwen3.5-0.8b', 'q8_0', None), ('qwen3.5-0.8b', 'q4_0', None),
         ('qwen3.5-0.8b', 'iq4_xs', None), ('qwen3-30b-a3b', 'q4_k_m', 4)]
SUITE_DEFAULTS = dict(rounds=3, prompt=512, gen=64, npp=32, ntg=32, npl='4,16,32')
commands = [] # each distinct command that was run, for the report


def fail(text):
    sys.exit(f'compare_peers.py: {text}')


def note(text):
    print(text, file=sys.stderr, flush=True)


class Run:
    """A finished program: its output, its errors and its peak resident set in bytes."""
    def __init__(self, *argv, limit=3600, may_fail=False, cwd=None):
        argv = [str(a) for a in argv]
        if argv not in commands: commands.append(argv)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd)
            end = time.monotonic() + limit
            pid = 0
            while not pid:
                pid, status, usage = os.wait4(p.pid, os.WNOHANG)
                if pid: break
                if time.monotonic() > end: p.kill()
                time.sleep(0.02)
            self.code = p.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0), err.seek(0)
            self.out, self.err = out.read().decode(errors='replace'), err.read().decode(errors='replace')
        self.rss = usage.ru_maxrss * 1024
        if not self.code: return
        text = f'{" ".join(argv)}: exit {self.code}\n{self.out[-1000:]}{self.err[-1000:]}'
        if not may_fail: fail(text)
        note(text)


class Engine:
    """One column of the report: the first words of its test commands, and its kind (OURS, PEER or IK)."""
    def __init__(self, name, kind, bench, batch, perplexity=None):
        self.name, self.kind, self.bench, self.batch, self.perplexity = name, kind, bench, batch, perplexity

    def run(self, program, model, *flags):
        if self.kind != IK: return Run(*program, '-m', model, *flags)
        with tempfile.TemporaryDirectory() as d: # ik_llama.cpp writes llama.log into its working directory
            return Run(*program, '-m', Path(model).resolve(), *flags, may_fail=True, cwd=d)


# ----------------------------------------------------------------------------------------------------------- the peers

def step(log, what, *argv):
    note(f'{what} (log: {log})')
    with open(log, 'a') as f:
        if subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=f, stderr=f).returncode:
            fail(f'{" ".join(map(str, argv))} failed, see {log}; --peer and --ik accept folders of existing programs')


def fetch_peer(work, log):
    """Returns the folder of llama.cpp's source; fetches it if it is missing."""
    source = work / 'llama.cpp'
    if source.exists(): return source
    pip = [sys.executable, '-m', 'pip']
    if subprocess.run([*pip, '--version'], capture_output=True).returncode:
        step(log, 'making a virtual environment', sys.executable, '-m', 'venv', work / 'venv')
        pip = [work / 'venv/bin/python', '-m', 'pip']
    step(log, 'fetching the source distribution', *pip, 'download', '-q', '--disable-pip-version-check', '--no-deps',
         '--no-binary', ':all:', '-d', work, f'llama-cpp-python=={VERSION}')
    with tarfile.open(next(work.glob('llama_cpp_python-*.tar.gz'))) as t, tempfile.TemporaryDirectory(dir=work) as d:
        t.extractall(d, members=[m for m in t if '/vendor/llama.cpp/' in m.name and not m.issym() and not m.islnk()
                                 and '..' not in Path(m.name).parts and not m.name.startswith('/')])
        next(Path(d).glob('*/vendor/llama.cpp')).rename(source)
    return source


def build(kind, source, folder, isa, log):
    """Builds a peer's programs into folder/bin, for this processor or for an instruction set of ISA_FLAGS."""
    # Make, not Ninja: the archive's files have old time stamps, with which Ninja would configure again and again.
    step(log, f'configuring {kind}', 'cmake', '-S', source, '-B', folder, '-G', 'Unix Makefiles', '-DCMAKE_BUILD_TYPE=Release',
         *ISA_FLAGS[isa], *BUILD_FLAGS[kind])
    step(log, f'building {kind}, minutes the first time', 'cmake', '--build', folder, '-j', os.cpu_count(), '--target',
         *PROGRAMS[kind])


def lacks(kind, folder):
    return [p for p in PROGRAMS[kind] if not (folder / p).is_file()]


def peer_folder(o):
    """Returns the folder of llama.cpp's programs; builds them if necessary."""
    folder = o.peer or o.work / ('build' + (f'-{o.cpu_isa}' if o.cpu_isa else '')) / 'bin'
    if not o.peer and lacks(PEER, folder):
        o.work.mkdir(parents=True, exist_ok=True)
        log = o.work / 'build.log'
        build(PEER, fetch_peer(o.work, log), folder.parent, o.cpu_isa, log)
    if lacks(PEER, folder): fail(f'{folder} lacks {", ".join(lacks(PEER, folder))}: give another --peer, or omit it to build them')
    return folder


def ik_folder(o):
    """Returns the folder of ik_llama.cpp's programs. A source tree is built each time, because it may have changed."""
    folder = o.ik
    if (folder / 'CMakeLists.txt').is_file():
        folder = o.work / ('ik' + (f'-{o.cpu_isa}' if o.cpu_isa else '')) / 'bin'
        o.work.mkdir(parents=True, exist_ok=True)
        build(IK, o.ik, folder.parent, o.cpu_isa, o.work / 'build-ik.log')
    if lacks(IK, folder):
        fail(f'{folder} lacks {", ".join(lacks(IK, folder))}: --ik is a folder of these programs, or the source tree of ik_llama.cpp')
    return folder.resolve() # the programs run in another working directory


def version_of(program):
    r = subprocess.run([program, '--version'], capture_output=True, text=True)
    text = re.search(r'version: (.*)', r.stdout + r.stderr)
    return text[1] if text else 'of unknown version'


def engines_of(o):
    """Returns ([Engine], {kind: version})."""
    engines = []
    for bits in o.activation_bits or [None]:
        flags = (['--cpu-isa', o.cpu_isa] if o.cpu_isa else []) + (['--activation-bits', bits] if bits else [])
        name = f'{OURS}, {bits} bits' if bits == '8' and len(o.activation_bits) > 1 else OURS
        engines.append(Engine(name, OURS, [o.bin, 'bench', *flags], [o.bin, 'bench', *flags], [o.bin, 'eval', *flags]))
    peer = peer_folder(o)
    engines.append(Engine(PEER, PEER, *([peer / p] for p in PROGRAMS[PEER][:3])))
    own = subprocess.run([o.bin, '--version'], capture_output=True, text=True).stdout.splitlines() or ['?']
    versions = {OURS: own[0].removeprefix('pagedinfer '), PEER: version_of(peer / 'llama-perplexity') if o.peer else
                f'as in the source distribution of llama-cpp-python {VERSION}'}
    if o.ik:
        ik = ik_folder(o)
        engines.append(Engine(IK, IK, *([ik / p] for p in PROGRAMS[IK])))
        versions[IK] = version_of(ik / 'llama-batched-bench')
    return engines, versions


# ----------------------------------------------------------------------------------------------------------- the models

def suite(folder):
    """Returns the files of SUITE; writes the missing ones."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for shape, kind, layers in SUITE:
        file = folder / (f'{shape}-{kind}' + (f'-{layers}-layers' if layers else '') + '.gguf')
        files.append(file)
        if file.exists(): continue
        note(f'writing {file}')
        part = file.with_suffix('.part')
        argv = [sys.executable, ROOT / 'tools/synth.py', shape, kind, part, *(['--layers', str(layers)] if layers else [])]
        if subprocess.run(argv).returncode: fail(f'{file} cannot be written; --suite names another folder')
        part.rename(file)
    return files


# -------------------------------------------------------------------------------------------------------- measurements

def tests(o):
    """Returns the names of the measurements of each round."""
    return [name for name, n in (('prefill', o.prompt), ('decode', o.gen)) if n] + [
        f'{kind}, {n} at once' for n in o.npl for kind in ('prefill', 'decode')]


def single(engine, model, o):
    """Returns {'prefill' or 'decode': tokens per second} of one request."""
    r = engine.run(engine.bench, model, '-p', o.prompt, '-n', o.gen, '-r', '1', '-t', o.threads, '-o', 'json')
    try: rows = json.loads(r.out[r.out.index('['):])
    except ValueError: rows = []
    return {('prefill' if row['n_prompt'] else 'decode'): row['avg_ts'] for row in rows}


def many(engine, model, o, levels, log=()):
    """Returns ({measurement: tokens per second} for each number of concurrent requests in levels, the run)."""
    more = {OURS: ['-o', 'jsonl', '--kv-stats', '-np', max(levels)], PEER: ['--output-format', 'jsonl', *log], IK: []}[engine.kind]
    r = engine.run(engine.batch, model, '-npp', o.npp, '-ntg', o.ntg, '-npl', ','.join(map(str, levels)), '-t', o.threads,
                   '-c', (o.npp + o.ntg) * max(levels), *more)
    # ik_llama.cpp prints a table with its errors: PP, TG, B, N_KV, T_PP s, S_PP t/s, T_TG s, S_TG t/s
    if engine.kind == IK:
        cells = re.findall(r'^\| *\d+ \| *\d+ \| *(\d+) \| *\d+ \|[ \d.]+\| *([\d.]+) \|[ \d.]+\| *([\d.]+) \|', r.out + r.err, re.M)
    else:
        rows = [json.loads(line) for line in r.out.splitlines() if line.startswith('{')]
        cells = [(row['pl'], row['speed_pp'], row['speed_tg']) for row in rows]
    return {f'{what}, {n} at once': float(v) for n, pp, tg in cells for what, v in (('prefill', pp), ('decode', tg))}, r


def kv_bytes(r):
    """Returns the KV cache's bytes from --kv-stats, llama.cpp's log or ik_llama.cpp's; None if the output has none."""
    ours = re.findall(r'^\w+(?: +\d+){6} +([\d.]+) ([KMG])iB', r.err, re.M)
    theirs = re.findall(r'llama_kv_cache.*: size = +([\d.]+) (M)iB|KV self size += +([\d.]+) (M)iB', r.err + r.out)
    found = ours or [(n or m, u or v) for n, u, m, v in theirs]
    return sum(float(n) * {'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}[unit] for n, unit in found) or None


def speeds(engines, model, o):
    """Returns {engine: {measurement: [one number per round]}}, {engine: peak bytes}, {engine: bytes of the cache}."""
    found, rss, kv = {e.name: {what: [] for what in tests(o)} for e in engines}, {}, {}
    for i in range(o.rounds):
        for e in engines if i % 2 == 0 else engines[::-1]:
            note(f'{Path(model).stem}, round {i + 1} of {o.rounds}: {e.name}')
            numbers = {**single(e, model, o), **many(e, model, o, o.npl)[0]}
            lost = [what for what in tests(o) if what not in numbers]
            if lost: (note if e.kind == IK else fail)(f'{e.name} reports no speed for: {"; ".join(lost)} ({model})')
            for what in tests(o): found[e.name][what] += [numbers[what]] if what in numbers else []
    for e in engines: # the largest number of requests alone, so that smaller ones do not count
        _, r = many(e, model, o, [max(o.npl)], log=('-lv', '4')) # with -lv 4 llama.cpp reports its cache
        rss[e.name], kv[e.name] = (None, None) if r.code else (r.rss, kv_bytes(r))
    return found, rss, kv


def accuracy(engines, model, o):
    """Returns {engine: (mean KL divergence, percentage of positions with the same first token)}, against F32
    logits."""
    peer = next(e for e in engines if e.kind == PEER).perplexity
    with tempfile.TemporaryDirectory(dir=o.scratch) as d:
        f32, base, found = os.path.join(d, 'f32.gguf'), os.path.join(d, 'base'), {}
        Run(Path(peer[0]).parent / 'llama-quantize', '--allow-requantize', model, f32, 'F32')
        text = ['-f', o.text, '-c', o.kl_ctx, '--chunks', o.chunks]
        Run(*peer, '-t', o.threads, '-m', f32, *text, '--kl-divergence-base', base)
        os.unlink(f32)
        for e in engines:
            if not e.perplexity: continue
            for _ in range(20): # llama-perplexity may exit before its output is complete
                r = Run(*e.perplexity, '-t', o.threads, '-m', model, '--kl-divergence-base', base, '--kl-divergence')
                kl = re.search(r'Mean +KLD: +(-?[0-9.]+)', r.out + r.err)
                top = re.search(r'Same top p: +([0-9.]+)', r.out + r.err)
                if kl: break
            else:
                fail(f'{e.name}: no mean divergence; give more --chunks')
            found[e.name] = float(kl[1]), float(top[1]) if top else None
    return found


# -------------------------------------------------------------------------------------------------------------- report

def machine():
    try: cpu = re.search(r'model name\s*: (.*)', Path('/proc/cpuinfo').read_text())[1]
    except (OSError, TypeError): cpu = os.uname().machine
    return f'{cpu}, {os.cpu_count()} threads, {os.uname().sysname} {os.uname().release}'


def spread(values):
    m = statistics.median(values)
    return max(abs(v - m) for v in values) / m if m else 0


def median(result, model, engine, what):
    """Returns the median of the rounds; None if a round is missing."""
    values = model['speeds'][engine][what]
    return statistics.median(values) if len(values) == result['rounds'] else None


def number(value, form):
    return '-' if value is None else format(value, form)


def pairs_of(result):
    return [(a, b) for a in result['ours'] for b in result['peers']]


def line(result, name, values, form, wide=None):
    """Returns a row of a model's table: each engine's number and the ratios; wide(engine) is the spread of its
    rounds."""
    ratios = []
    for a, b in pairs_of(result):
        known = form and values.get(a) is not None and values.get(b)
        more = f' (± {100 * max(wide(a), wide(b)):.0f} %)' if known and wide else ''
        ratios.append(f'{values[a] / values[b]:.2f}{more}' if known else '')
    return f'| {" | ".join([name, *(number(values.get(e), form) for e in result["ours"] + result["peers"]), *ratios])} |'


def table(result, model):
    """Returns the Markdown table of a model's measurements."""
    engines, pairs = result['ours'] + result['peers'], pairs_of(result)
    ratios = ['ratio'] if len(pairs) == 1 else [f'{a} / {b}' for a, b in pairs]
    lines = [f'| | {" | ".join(engines + ratios)} |', '|---' * (1 + len(engines + ratios)) + '|']
    speed = model['speeds']
    for what in speed[OURS]:
        lines.append(line(result, f'{what}, t/s', {e: median(result, model, e, what) for e in engines}, '.1f',
                          lambda e: spread(speed[e][what])))
    for what, name in (('rss', 'peak resident set, MiB'), ('kv', 'KV cache, MiB')):
        lines.append(line(result, name, {e: v and v / (1 << 20) for e, v in model[what].items()}, '.1f'))
    if model.get('kl'):
        lines.append(line(result, 'mean KL divergence from F32', {e: kl for e, (kl, _) in model['kl'].items()}, '.6f'))
        lines.append(line(result, 'same first token as F32, %', {e: top for e, (_, top) in model['kl'].items()}, '.3f'))
    return lines


def summary(result):
    """Returns a Markdown table with one line per model, each followed by its ratios to the peers."""
    columns = [w for w in result['models'][0]['speeds'][OURS] if not w.startswith('prefill,')]
    names = {'prefill': f'pp{result["prompt"]}', 'decode': f'tg{result["gen"]}'}
    titles = [names.get(w) or re.sub(r'decode, (\d+) at once', r'decode at \1', w) for w in columns]
    lines = [f'Tokens per second: {" / ".join(result["ours"] + result["peers"])}; below them the ratios of '
             f'{" / ".join(result["ours"])} to each other engine.', '', f'| | {" | ".join(titles)} |', '|---' * (1 + len(columns)) + '|']
    for model in result['models']:
        m = lambda e, w: median(result, model, e, w)
        row = lambda name, cell: lines.append(f'| {" | ".join([name, *map(cell, columns)])} |')
        row(Path(model['model']).stem, lambda w: ' / '.join(number(m(e, w), '.1f') for e in result['ours'] + result['peers']))
        for b in result['peers']:
            row(f'ratio to {b}', lambda w: ' / '.join(f'{m(a, w) / m(b, w):.2f}' if m(b, w) else '-' for a in result['ours']))
    return [*lines, '']


def command(argv, models):
    """Returns a command as the report prints it."""
    text = ' '.join(argv)
    for m in models: text = text.replace(str(Path(m).resolve()), 'MODEL').replace(str(m), 'MODEL')
    return text.replace(str(Path.home()), '~')


def report(result):
    models = [m['model'] for m in result['models']]
    lines = [f'Machine: {result["machine"]}. {result["date"]}.',
             ' '.join(f'{kind}: {version}.' for kind, version in result['versions'].items()),
             f'{result["rounds"]} rounds, interleaved; medians, and the largest deviation of a round from them.', '']
    if len(models) > 1: lines += summary(result)
    for model in result['models']: lines += [f'Model: {Path(model["model"]).name}.', '', *table(result, model), '']
    quoted = dict.fromkeys(command(c, models) for c in result['commands'])
    return '\n'.join([*lines, 'Commands:', '', *('    ' + q for q in quoted), ''])


def plot(result, model, file):
    """Plots tokens per second over concurrent requests as an SVG. Returns the file, or None without a plotting
    program."""
    levels = {kind: [(int(w.split()[1]), w) for w in model['speeds'][OURS] if w.startswith(kind + ',')]
              for kind in ('prefill', 'decode')}
    points = {kind: {e: [(n, median(result, model, e, w)) for n, w in levels[kind] if median(result, model, e, w) is not None]
                     for e in result['ours'] + result['peers']} for kind in levels}
    points = {kind: {e: at for e, at in found.items() if at} for kind, found in points.items()}
    try:
        import matplotlib
        matplotlib.use('Agg')
        import matplotlib.pyplot as plt
    except ImportError:
        return plot_gnuplot(points, file)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5))
    for ax, kind in zip(axes, levels):
        for e, at in points[kind].items(): ax.plot(*zip(*at), marker='o', label=e)
        ax.set(title=kind, xlabel='concurrent requests', ylabel='tokens per second', xscale='log', ylim=(0, None))
        ax.set_xticks([n for n, _ in levels[kind]], [str(n) for n, _ in levels[kind]], minor=False)
        ax.legend()
    figure.tight_layout()
    figure.savefig(file)
    return file


def plot_gnuplot(points, file):
    text = [f'set terminal svg size 900,350; set output "{file}"; set multiplot layout 1,2; set logscale x 2',
            'set yrange [0:*]; set xlabel "concurrent requests"; set ylabel "tokens per second"']
    for kind, found in points.items():
        text.append(f'set title "{kind}"; plot ' + ', '.join(f'"-" with linespoints title "{e}"' for e in found))
        for at in found.values(): text += [f'{n} {v}' for n, v in at] + ['e']
    try: done = subprocess.run(['gnuplot'], input='\n'.join(text) + '\n', text=True).returncode == 0
    except OSError: done = False
    return file if done else None


def write(result, out):
    out.mkdir(parents=True, exist_ok=True)
    (out / 'compare.md').write_text(report(result))
    (out / 'compare.json').write_text(json.dumps(result, indent=1) + '\n')
    for model in result['models']:
        name = 'compare' if len(result['models']) == 1 else f'compare-{Path(model["model"]).stem}'
        note(f'plots: {plot(result, model, out / (name + ".svg")) or "neither matplotlib nor gnuplot is installed"}')


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get('PAGEDINFER_CACHE') or Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache') / 'pagedinfer')
    p.add_argument('-m', '--model', action='append', default=[], help='GGUF to measure; may be repeated')
    p.add_argument('--suite', type=Path, metavar='FOLDER', help='also measure shapes of real models; tools/synth.py writes them here')
    p.add_argument('--peer', type=Path, metavar='FOLDER', help='programs of llama.cpp (default: build them)')
    p.add_argument('--ik', type=Path, metavar='FOLDER', help='programs of ik_llama.cpp, or its source tree to build')
    p.add_argument('--work', type=Path, default=cache / 'peer', help='folder for builds (%(default)s)')
    p.add_argument('--cpu-isa', choices=['avx2'], help='limit all engines to this instruction set; programs of --peer and --ik '
                   'must have been built like that')
    p.add_argument('--activation-bits', metavar='N[,N]', help='activation width of pagedinfer: 8, 15 (its default), or 15,8 for both; '
                   'peers have 8')
    p.add_argument('--bin', type=Path, default=ROOT / 'build' / 'pagedinfer', help='%(default)s')
    p.add_argument('--out', type=Path, help='folder for compare.md, compare.json, compare.svg')
    p.add_argument('--text', type=Path, default=ROOT / 'tests' / 'golden' / 'text.txt', help='for accuracy (%(default)s)')
    p.add_argument('--scratch', help='folder for the temporary F32 file, four bytes per weight')
    p.add_argument('--no-kl', action='store_true', help='do not measure accuracy')
    p.add_argument('-t', '--threads', type=int, default=len(os.sched_getaffinity(0)), help='%(default)s')
    p.add_argument('--rounds', type=int, default=5, help='%(default)s')
    p.add_argument('-p', '--prompt', type=int, default=512, help='prompt tokens of the single request (%(default)s)')
    p.add_argument('-n', '--gen', type=int, default=128, help='generated tokens of the single request (%(default)s)')
    p.add_argument('--npp', type=int, default=128, help='prompt tokens of each concurrent request (%(default)s)')
    p.add_argument('--ntg', type=int, default=64, help='generated tokens of each concurrent request (%(default)s)')
    p.add_argument('--npl', default='1,2,4,8,16,32', help='numbers of concurrent requests (%(default)s)')
    p.add_argument('--kl-ctx', type=int, default=256, help='tokens of a chunk of the text (%(default)s)')
    p.add_argument('--chunks', type=int, default=4, help='chunks of the text (%(default)s)')
    if p.parse_known_args()[0].suite: p.set_defaults(**SUITE_DEFAULTS)
    o = p.parse_args()
    try: o.npl = [int(n) for n in o.npl.split(',')]
    except ValueError: p.error('--npl is a list of numbers: 1,8,32')
    if min(o.npl + [o.rounds]) < 1: p.error('--npl and --rounds are at least 1')
    o.activation_bits = o.activation_bits.split(',') if o.activation_bits else []
    if sorted(o.activation_bits) not in ([], ['8'], ['15'], ['15', '8']): p.error('--activation-bits is 15, 8 or 15,8')
    if not o.model and not o.suite: p.error('which model? -m names a file (several: -m A -m B), --suite a folder for shapes of models')
    for m in o.model:
        if not Path(m).is_file(): p.error(f'no such file: {m}')
    if not o.bin.is_file(): p.error(f'{o.bin} does not exist: build it (cmake -B build && cmake --build build), or give --bin')
    return o


def main():
    o = arguments()
    engines, versions = engines_of(o)
    shapes = suite(o.suite) if o.suite else []
    if os.getloadavg()[0] > 0.5: note(f'warning: this machine is busy (load {os.getloadavg()[0]:.1f}); the numbers will be unreliable')
    result = {'machine': machine(), 'date': time.strftime('%Y-%m-%d'), 'rounds': o.rounds, 'prompt': o.prompt, 'gen': o.gen,
              'versions': versions, 'ours': [e.name for e in engines if e.kind == OURS],
              'peers': [e.name for e in engines if e.kind != OURS], 'models': [], 'commands': commands}
    for m in o.model + shapes:
        found = {'model': str(m)}
        found['speeds'], found['rss'], found['kv'] = speeds(engines, m, o)
        if not o.no_kl and m not in shapes: found['kl'] = accuracy(engines, m, o)
        result['models'].append(found)
    print(report(result))
    if o.out: write(result, o.out)


if __name__ == '__main__':
    main()
