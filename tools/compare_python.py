#!/usr/bin/env python3
"""Compares the throughput of LLM.generate with the one of `pagedinfer bench -npl`, on this machine.

    PAGEDINFER_LIB=build/libpagedinfer.so python3 tools/compare_python.py -m MODEL.gguf [--bin build/pagedinfer]
        [--prompts 256] [-p 32] [-n 32] [--rounds 3]

Both run the same number of concurrent requests with the same options: prompts of -p random tokens, then -n tokens each,
without the prefix cache. They take turns, so that other load on the machine affects both. The report has the medians
of the rounds. LLM.generate includes everything that a caller waits for: making requests, texts, and output objects.

The Python threads of a process (the caller's and the one that waits for events) take processor time from the engine.
The report has this time as a share of the processor time of the run; unlike throughput it hardly depends on other load.
Exit status 1 if throughput is below --limit of the tool's (default: no limit). Needs numpy and the package
(docs/PYTHON.md)."""
import argparse, json, os, random, shutil, statistics, subprocess, sys, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def bench(a):
    """Tokens per second of the tool."""
    r = subprocess.run([a.bin, 'bench', '-m', a.model, '-p', str(a.p), '-n', str(a.n), '-npl', str(a.prompts), '-o', 'jsonl'],
                       stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(r.stdout.splitlines()[-1])['speed']


def thread_seconds(thread):
    """Processor time of a thread of this process, by its kernel id."""
    with open(f'/proc/self/task/{thread}/stat') as f: fields = f.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def generate(a):
    """Prints tokens per second of LLM.generate, and the share of the Python threads in its processor time."""
    from pagedinfer import LLM, SamplingParams
    longest = a.p + a.n + 2
    llm = LLM(a.model, max_num_seqs=a.prompts, ctx_size=longest, prefix_cache=False,
              kv_cache_tokens=a.prompts * ((longest + 63) // 64 * 64 + 64))
    r, n_vocab = random.Random(1), llm.engine.info['n_vocab']
    prompts = [[r.randrange(n_vocab) for _ in range(a.p)] for _ in range(a.prompts)]
    params = SamplingParams(temperature=0, max_tokens=a.n + 1, extra_args={'no-stop': True})
    llm.generate(prompts[:1], SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)
    poll = llm.engine._core.thread.native_id
    begin, cpu, own, others = time.perf_counter(), time.process_time(), time.thread_time(), thread_seconds(poll)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    python = time.thread_time() - own + thread_seconds(poll) - others
    got = sum(len(o.outputs[0].token_ids) for o in outputs)
    if got != a.prompts * (a.n + 1): sys.exit(f'{got} tokens, not {a.prompts * (a.n + 1)}')
    print(json.dumps({'speed': a.prompts * (a.p + a.n) / seconds, 'share': python / cpu, 'python': python}))


def worker(a, package):
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([package, *filter(None, [os.environ.get('PYTHONPATH')])]))
    r = subprocess.run([sys.executable, os.path.abspath(__file__), *sys.argv[1:], '--worker'], env=env, stdout=subprocess.PIPE,
                       check=True, text=True)
    return json.loads(r.stdout.splitlines()[-1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('-m', dest='model', required=True)
    p.add_argument('--bin', default=os.environ.get('PAGEDINFER_BIN', str(ROOT / 'build/pagedinfer')))
    for name, value in (('--prompts', 256), ('-p', 32), ('-n', 32), ('--rounds', 3)): p.add_argument(name, type=int, default=value)
    p.add_argument('--limit', type=float, default=0, help='lowest ratio, for example 0.97')
    p.add_argument('--worker', action='store_true', help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker: return generate(a)
    with tempfile.TemporaryDirectory() as package:
        # The package of the sources, with its declarations.
        shutil.copytree(ROOT / 'python/pagedinfer', f'{package}/pagedinfer')
        subprocess.run([sys.executable, ROOT / 'python/gen_abi.py', ROOT / 'include/pagedinfer.h', ROOT / 'include/pagedinfer_openai.h',
                        f'{package}/pagedinfer/_abi.py'], check=True)
        tool, own = [], []
        for i in range(a.rounds):
            for run in (0, 1) if i % 2 == 0 else (1, 0):
                if run: own.append(worker(a, package))
                else: tool.append(bench(a))
            print(f'round {i + 1}: tool {tool[-1]:.0f} tokens/s, LLM.generate {own[-1]["speed"]:.0f} tokens/s', file=sys.stderr)
    ratio = statistics.median(o['speed'] for o in own) / statistics.median(tool)
    print(f'{a.prompts} prompts of {a.p} tokens, {a.n} generated: tool {statistics.median(tool):.0f} tokens/s, LLM.generate '
          f'{statistics.median(o["speed"] for o in own):.0f} tokens/s, ratio {ratio:.3f}')
    print(f'Python threads: {statistics.median(o["python"] for o in own) * 1000:.0f} ms of processor time, '
          f'{statistics.median(o["share"] for o in own):.1%} of the run')
    return 1 if ratio < a.limit else 0


if __name__ == '__main__':
    sys.exit(main())
