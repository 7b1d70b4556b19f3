#!/usr/bin/env python3
"""Checks processes that work as one engine (--ranks): bitwise identical results, and clean exits when a process dies.

    check_ranks.py [DIR]     DIR: $PAGEDINFER_GOLDEN, or ../shared/golden next to the checkout

1. Cases of reference models give bitwise identical tokens and logits with mpirun and 2 or 4 ranks as with one process.
   So do the drafts of a draft head, and a batch of requests in small steps. Only rank 0 reads the model. (The shortest
   cases of some models.)

2. `run` and `serve` give the same text.

3. Emulated GPUs, one per process, give the results of one: prompts, captured decode steps and the rest.

4. A rank that is killed ends the other ranks' run with an error within --rank-timeout; so does rank 0. No process is
   left.

5. Processes started with only torchrun's variables (WORLD_SIZE, RANK, MASTER_ADDR, MASTER_PORT) give the same bits
   over TCP, even if strangers connect to that port. If one is killed, the other exits. This part needs no MPI.

6. If a rank dies or hangs while NCCL joins the emulated GPUs of three processes, the other two exit within
   --rank-timeout.

--long: all cases of all reference models with 2 and 4 ranks, deaths at many moments, and a rank that is stopped.
Exit 77: no Open MPI, no reference models, or a build without MPI. Standard library only.
"""
import json, os, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time, urllib.request

from eval_runs import BIN, crowd, differences, run, unpack

LONG = '--long' in sys.argv or bool(os.environ.get('PAGEDINFER_LONG'))
MPIRUN = ['mpirun', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none',
          '--mca', 'mpi_yield_when_idle', '0', '--mca', 'btl', 'self,vader', '--mca', 'btl_vader_single_copy_mechanism', 'none']
QUICK = [('gemma4-dense-tiny', 2, []), ('qwen35-moe64-micro', 2, []), ('dsv4-micro', 4, []),
         ('qwen35-mtp-tiny', 2, ['--spec-type', 'mtp', '--no-spec-adaptive', '--spec-draft-n-max', '3'])]
ALL = ['gemma4-dense-tiny', 'gemma4-moe-tiny', 'gemma4-e-tiny', 'qwen35-dense-tiny', 'qwen35-mtp-tiny', 'qwen35-moe64-micro',
       'dsv4-micro']
TIMEOUT = 3 # seconds of --rank-timeout in the tests in which a rank dies
BUILD = os.environ.get('PAGEDINFER_BUILD', 'build')
HERE = os.path.dirname(os.path.abspath(__file__))


def ranked(n, model, cases, *flags):
    """Runs eval --cases with n ranks, like eval_runs.run. Only rank 0 is in a folder with the model."""
    with tempfile.TemporaryDirectory() as d:
        path, alone = os.path.join(d, 'cases.json'), os.path.join(d, 'alone')
        with open(path, 'w') as f: json.dump(cases, f)
        os.mkdir(alone)
        command = [os.path.abspath(BIN), 'eval', '-m', model, '--cases', path, '--logits-dir', d, *flags]
        other = [os.path.abspath(BIN), 'eval', '-m', 'not-here.gguf', '--cases', 'not-here.json']
        r = subprocess.run([*MPIRUN, '-n', '1', *command, ':', '-n', str(n - 1), '-wdir', alone, *other],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
        if r.returncode:
            print(r.stderr[-2000:])
            sys.exit(f'eval with {n} ranks exited with {r.returncode}')
        lines = [json.loads(l) for l in r.stdout.splitlines()]
        if [l['name'] for l in lines] != [c['name'] for c in cases]: sys.exit('eval: other cases, or another order')
        return lines, [open(os.path.join(d, c['name'] + '.f32'), 'rb').read() for c in cases]


def same_bits(golden, tmp, name, n, flags, many=False):
    model = unpack(golden, name, tmp)
    cases = json.load(open(os.path.join(golden, name, 'cases.json')))
    if not LONG: cases = sorted(cases, key=lambda c: len(c['ids']))[:3]
    plain = run(model, cases, *flags)
    faults = differences(f'{name} by {n} ranks', ranked(n, model, cases, *flags), plain)
    if many:
        some, want = crowd(cases, plain, 12)
        faults += differences(f'{name}, a batch by {n} ranks', ranked(n, model, some, '--parallel', '6', '-ub', '48'), want)
    return faults


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def set_for(n, port, rank, **more):
    """Returns the environment of a rank that torchrun started."""
    return dict(os.environ, WORLD_SIZE=str(n), RANK=str(rank), LOCAL_RANK=str(rank), MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), **more)


def by_variables(golden, tmp):
    """Runs eval --cases with 2 processes. Meanwhile strangers connect to the port; one sends nothing, one sends
    text."""
    model, port, n = unpack(golden, 'gemma4-dense-tiny', tmp), free_port(), 2
    cases = sorted(json.load(open(os.path.join(golden, 'gemma4-dense-tiny', 'cases.json'))), key=lambda c: len(c['ids']))[:1]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, 'cases.json')
        with open(path, 'w') as f: json.dump(cases, f)
        own = [BIN, 'eval', '-m', model, '--cases', path, '--logits-dir', d]
        other = [BIN, 'eval', '-m', 'not-here.gguf', '--cases', 'not-here.json']
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        ranks, strangers = [subprocess.Popen(own, env=set_for(n, port, 0), **pipes)], []
        try:
            for words in (b'', b'GET / HTTP/1.1\r\n\r\n'):
                for _ in range(400):
                    try: strangers.append(socket.create_connection(('127.0.0.1', port), 5))
                    except OSError:
                        time.sleep(0.05)
                        continue
                    strangers[-1].sendall(words)
                    break
            ranks += [subprocess.Popen(other, env=set_for(n, port, r), **pipes) for r in range(1, n)]
            said = [p.communicate(timeout=240) for p in ranks]
        finally:
            for p in ranks: p.kill()
            for s in strangers: s.close()
        for r, p in enumerate(ranks):
            if p.returncode: return [f'variables of torchrun: rank {r} exited with {p.returncode}: {said[r][1][-500:]}']
        lines = [json.loads(l) for l in said[0][0].splitlines()]
        got = lines, [open(os.path.join(d, c['name'] + '.f32'), 'rb').read() for c in cases]
    return differences('variables of torchrun', got, run(model, cases))


def variables_death(golden, tmp, victim):
    """Kills one of two processes: the other must exit by itself."""
    model, port = unpack(golden, 'gemma4-dense-tiny', tmp), free_port()
    own = [BIN, 'run', '-m', model, '-p', 'abc', '-n', '100000', '-c', '100100', '--ignore-eos', '--temp', '0', '-no-cnv', '--rank-timeout', '20']
    ranks = [subprocess.Popen(own, env=set_for(2, port, r), stdout=subprocess.PIPE, stderr=subprocess.PIPE) for r in range(2)]
    try:
        if not ranks[0].stdout.read(1): return [f'torchrun, rank {victim} killed: no answer: {ranks[0].stderr.read()[-500:]}']
        start = time.time()
        ranks[victim].kill()
        errors = ranks[1 - victim].communicate(timeout=60)[1]
        took = time.time() - start
        if ranks[1 - victim].returncode <= 0 or b'rank-timeout' not in errors:
            return [f'torchrun, rank {victim} killed: the other exited with {ranks[1 - victim].returncode}: {errors[-500:]}']
        return [f'torchrun, rank {victim} killed: the other ended after {took:.1f} s'] if took > 10 else []
    finally:
        for p in ranks:
            p.kill()
            p.communicate()


def text_of(golden, tmp):
    """`run` with 2 ranks gives the same text as with one process."""
    model = unpack(golden, 'gemma4-dense-tiny', tmp)
    command = [BIN, 'run', '-m', model, '-p', 'abc', '-n', '24', '--temp', '0', '--ignore-eos', '-no-cnv']
    plain = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    both = subprocess.run([*MPIRUN, '-n', '2', *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if plain.returncode or both.returncode: return [f'run: exit status {plain.returncode} and {both.returncode}: {both.stderr[-500:]}']
    return [] if plain.stdout == both.stdout else [f'run: {both.stdout!r} instead of {plain.stdout!r}']


def tiny(tmp):
    """Returns the tool with emulated GPUs, and the path of a model for it."""
    emu, make, model = os.path.join(BUILD, 'tests/simt/pagedinfer_emu'), os.path.join(BUILD, 'tests/tool_tiny_model'), os.path.join(tmp, 'tiny.gguf')
    if not os.path.exists(emu) or not os.path.exists(make): sys.exit('no emulator in the build')
    subprocess.run([make, model, '32768'], check=True)
    return emu, model


def emulated(tmp):
    """Compares a tiny model's cases on one emulated device and on two processes with a device each."""
    emu, model = tiny(tmp)
    out = []
    for n in (1, 2):
        rows = os.path.join(tmp, f'rows{n}')
        os.mkdir(rows)
        command = [emu, 'eval', '-m', model, '--cases', os.path.join(HERE, '../simt/cases.json'), '--device', 'emu', '--logits-dir', rows]
        launch = [*MPIRUN, '-x', 'LD_LIBRARY_PATH', '-n', str(n)] if n > 1 else []
        r = subprocess.run(launch + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=280,
                           env=dict(os.environ, LD_LIBRARY_PATH=os.path.abspath(BUILD)))
        if r.returncode: return [f'emulated devices of {n} processes: exit status {r.returncode}: {r.stderr[-500:]}']
        out.append((r.stdout, {f: open(os.path.join(rows, f), 'rb').read() for f in sorted(os.listdir(rows))}))
    return [] if out[0] == out[1] and len(out[0][1]) == 3 else ['emulated devices of two processes: not the bits of one']


def joining(tmp, wrong, n=3):
    """Of n processes with emulated GPUs, the last one dies or hangs while NCCL joins them (tests/simt/nccl_twin.c
    reads `wrong` from the environment). All must exit in time: rank 0 with an error that names the reason, and also
    the ranks that receive no command to exit."""
    emu, model = tiny(tmp)
    port, command = free_port(), [emu, 'eval', '-m', model, '--cases', os.path.join(HERE, '../simt/cases.json'), '--device', 'emu',
                                  '--rank-timeout', str(TIMEOUT)]
    start = time.time()
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=set_for(n, port, r, **({'NCCL_TWIN': wrong} if r == n - 1 else {}))) for r in range(n)]
    faults = []
    try:
        for r, p in enumerate(ranks):
            errors = p.communicate(timeout=120)[1]
            if wrong == 'dies' and r == n - 1: ok = p.returncode == 9 # the twin's own exit status
            elif wrong == 'dies' or r == 0: ok = p.returncode > 0 and (b'NCCL' if r == 0 else b'rank-timeout') in errors
            else: ok = p.returncode == 0 # rank 0 has told it to exit
            if not ok: faults.append(f'NCCL, the last one {wrong}: rank {r} exited with {p.returncode}: {errors[-500:]}')
        took = time.time() - start
        if took > 2 * TIMEOUT + 8: faults.append(f'NCCL, the last one {wrong}: all had ended after {took:.1f} s')
    finally:
        for p in ranks:
            p.kill()
            p.communicate()
    return faults


# ---- death

def ranks_of(parent):
    """Returns {rank: pid} of the tool's processes that mpirun started."""
    found = {}
    for p in filter(str.isdigit, os.listdir('/proc')):
        try:
            stat = open(f'/proc/{p}/stat').read().rsplit(')', 1)[1].split()
            env = dict(e.split('=', 1) for e in open(f'/proc/{p}/environ').read().split('\0') if '=' in e)
        except (OSError, IndexError):
            continue
        if int(stat[1]) == parent and stat[0] != 'Z' and 'OMPI_COMM_WORLD_RANK' in env:
            found[int(env['OMPI_COMM_WORLD_RANK'])] = int(p)
    return found


def answered(port, body, timeout):
    """Returns the status and body of a completion."""
    q = urllib.request.Request(f'http://127.0.0.1:{port}/completion', json.dumps(body).encode(), {'Content-Type': 'application/json'})
    try:
        with urllib.request.urlopen(q, timeout=timeout) as r: return r.status, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


def ready(port, p):
    for _ in range(600):
        try:
            with urllib.request.urlopen(f'http://127.0.0.1:{port}/health', timeout=5) as r:
                if r.status == 200: return True
        except OSError:
            pass
        if p.poll() is not None: return False
        time.sleep(0.05)
    return False


def a_death(golden, tmp, victim, how, delay):
    """Kills or stops one of a server's 2 ranks while it answers. --enable-recovery: mpirun lets the other one
    continue."""
    model = unpack(golden, 'gemma4-dense-tiny', tmp)
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    label, log = f'rank {victim}, {how.name}', open(os.path.join(tmp, 'death.log'), 'w+')
    p = subprocess.Popen([*MPIRUN, '--enable-recovery', '-n', '2', BIN, 'serve', '-m', model, '--port', str(port),
                          '--rank-timeout', str(TIMEOUT), '-c', '4096'], stdout=log, stderr=log, start_new_session=True)
    faults, result = [], []
    try:
        if not ready(port, p): return [f'{label}: the server is not ready: {open(log.name).read()[-500:]}']
        pids = ranks_of(p.pid)
        want = answered(port, {'prompt': 'abc', 'n_predict': 8, 'temperature': 0}, 60)
        if want[0] != 200: faults.append(f'{label}: status {want[0]} before')
        def ask():
            try: result.append(answered(port, {'prompt': 'abc', 'n_predict': 4000, 'temperature': 0, 'ignore_eos': True}, 60))
            except OSError as e: result.append((0, str(e)))
        t = threading.Thread(target=ask)
        t.start()
        time.sleep(delay)
        os.kill(pids[victim], how)
        start, other = time.time(), pids[1 - victim]
        t.join(60)
        took = time.time() - start
        if not result: faults.append(f'{label}: the request never ended')
        elif victim and (result[0][0] != 500 or b'rank-timeout' not in result[0][1]): faults.append(f'{label}: the answer is {result[0]}')
        if took > TIMEOUT + 5: faults.append(f'{label}: the request ended after {took:.1f} s')
        if victim:
            status = answered(port, {'prompt': 'abc', 'n_predict': 8}, 30)[0]
            if status == 200: faults.append(f'{label}: the server still answers')
            if how == signal.SIGSTOP: os.kill(pids[1], signal.SIGKILL)
            os.kill(other, signal.SIGTERM)
        start = time.time()
        while other in ranks_of(p.pid).values() and time.time() - start < TIMEOUT + 10: time.sleep(0.05)
        if other in ranks_of(p.pid).values(): faults.append(f'{label}: the other process is still running')
        def said():
            log.seek(0)
            return 'rank-timeout' in log.read()
        # mpirun forwards the log
        while not victim and not said() and time.time() - start < TIMEOUT + 20: time.sleep(0.05)
        if not victim and not said(): faults.append(f'{label}: the other one does not say why it ended')
    finally:
        try: os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError: pass
        for pid in ranks_of(p.pid).values(): os.kill(pid, signal.SIGKILL)
        p.wait()
    return faults


def no_mpi():
    """Returns the reason why ranks over MPI cannot be checked, or an empty string if they can."""
    if not shutil.which('mpirun'): return 'no Open MPI (openmpi-bin): ranks by MPI are not checked'
    if not os.path.exists(os.path.join(os.path.dirname(os.path.abspath(BIN)), 'libpagedinfer-mpi.so')):
        return 'the build has no plug-in for MPI (libopenmpi-dev): ranks by MPI are not checked'
    return ''


def main():
    dirs = [a for a in sys.argv[1:] if not a.startswith('-')]
    golden = dirs[0] if dirs else os.environ.get('PAGEDINFER_GOLDEN', os.path.join(HERE, '../../../shared/golden'))
    if not os.path.isdir(golden):
        print(f'no reference models in {golden}')
        sys.exit(77)
    faults = []
    with tempfile.TemporaryDirectory() as tmp:
        start = time.time()
        faults += by_variables(golden, tmp)
        for victim in (1, 0): faults += variables_death(golden, tmp, victim)
        print(f'variables of torchrun: {time.time() - start:.1f} s', flush=True)
        start = time.time()
        for wrong in ('dies', 'stays away'): faults += joining(tmp, wrong)
        print(f'joining over NCCL: {time.time() - start:.1f} s', flush=True)
        lacks = no_mpi()
        if lacks:
            for f in faults: print(f)
            print(lacks)
            sys.exit(1 if faults else 77)
        jobs = [(name, n, []) for name in ALL for n in (2, 4)] + QUICK if LONG else QUICK
        for name, n, flags in jobs:
            start = time.time()
            faults += same_bits(golden, tmp, name, n, flags, many=LONG or name == 'qwen35-moe64-micro')
            print(f'{name}: {n} ranks, {time.time() - start:.1f} s', flush=True)
        faults += text_of(golden, tmp)
        start = time.time()
        faults += emulated(tmp)
        print(f'emulated devices: {time.time() - start:.1f} s', flush=True)
        deaths = [(1, signal.SIGKILL, 0.3), (0, signal.SIGKILL, 0.3)]
        if LONG: deaths += [(1, signal.SIGSTOP, 0.3)] + [(1, signal.SIGKILL, i / 20) for i in range(12)]
        for victim, how, delay in deaths:
            start = time.time()
            faults += a_death(golden, tmp, victim, how, delay)
            print(f'rank {victim}, {how.name}: {time.time() - start:.1f} s', flush=True)
    for f in faults: print(f)
    sys.exit(bool(faults))


if __name__ == '__main__': main()
