#!/usr/bin/env python3
"""Checks LoRA adapters on the command line and in the server, with random adapters for a tiny random model.

The tool: --lora, --lora-scaled, refused arguments. The server: adapters as models, the field "lora", /lora-adapters,
and loading and unloading while clients send requests. Answers equal those of the same adapter in a batch of one, and
each adapter has its own prefixes. With PAGEDINFER_PEER (the folder of llama.cpp's programs, or its llama-server) and
PAGEDINFER_MODEL, llama-server with the same adapter file gives close log-probabilities.
Exit 77: the tiny models could not be made."""
import json, os, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(HERE, '../../build'))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
sys.path.insert(0, HERE)
from check_server import Server, fault, faults, expect  # noqa: E402


def ask(s, path, body=None, method=None):
    r = urllib.request.Request(s.url + path, method=method, data=None if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(r, timeout=300) as a: return a.status, json.load(a)
    except urllib.error.HTTPError as e: return e.code, json.load(e)


def answer(s, **fields):
    """Returns (tokens of a greedy answer, number of cached prompt tokens, the model's name)."""
    status, a = ask(s, '/v1/completions', {'prompt': [1 + i * 7 % 250 for i in range(90)], 'max_tokens': 12, 'temperature': 0,
                                           'ignore_eos': True, 'return_token_ids': True, **fields})
    if status != 200: return status, a['error']
    return a['choices'][0]['token_ids'], a['usage']['prompt_tokens_details']['cached_tokens'], a['model']


def tool(model, a, b):
    def run(*flags):
        r = subprocess.run([BIN, 'run', '-m', model, '-p', 'abc', '-n', '12', '--temp', '0', '--ignore-eos', *flags],
                           capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
        return r.returncode, r.stdout, r.stderr.decode()
    base, with_a, half = run(), run('--lora', a), run('--lora-scaled', a + ':0.5')
    for r in (base, with_a, half): expect('exit of run', r[0], 0)
    if len({r[1] for r in (base, with_a, half)}) != 3: fault(f'an adapter changes no answer: {base[1]} {with_a[1]} {half[1]}')
    expect('--lora-scaled 1', run('--lora-scaled', a + ':1')[1], with_a[1])
    expect('--lora FILE:0.5', run('--lora', a + ':0.5')[1], half[1])
    expect('two adapters in either order', run('--lora', f'{a},{b}')[1], run('--lora', b, '--lora', a)[1])
    expect('--lora-init-without-apply', run('--lora', a, '--lora-init-without-apply')[1], base[1])
    expect('--lora-modules', run('--lora-modules', 'x=' + a)[1], base[1])
    expect('--lora-use', run('--lora-modules', 'x=' + a, '--lora-use', 'x:0.5')[1], half[1])
    expect('--lora-use none', run('--lora', a, '--lora-use', 'none')[1], base[1])
    for flags, why in ((('--lora', '/nowhere.gguf'), '/nowhere.gguf'), (('--lora', model), 'not an adapter'),
                       (('--lora-modules', 'x'), 'NAME=FILE'),
                       (('--lora', a, '--lora', a), 'already loaded'),
                       (('--lora-use', 'y'), "adapter 'y' is not loaded")):
        r = run(*flags)
        if not r[0] or why not in r[2]: fault(f'{flags}: exit {r[0]}, {r[2][-200:]!r} does not say {why!r}')


def server(model, a, b):
    s = Server(model, '-c', '2048', '--alias', 'base,other,third', '--lora-modules', 'a=' + a, '--lora-modules', 'b=' + b, '--lora-updates',
               '--parallel', '8')
    base = answer(s)
    expect('model', base[2], 'base')
    expect('models', [m['id'] for m in ask(s, '/v1/models')[1]['data']], ['base', 'a', 'b'])
    expect('its other names', (ask(s, '/v1/models')[1]['data'][0]['aliases'], [ask(s, '/v1/models/' + x)[0] for x in ('other', 'third', 'othe', 'bas')]),
           (['other', 'third'], [200, 200, 404, 404]))
    expect('a model', ask(s, '/v1/models/b')[1]['parent'], 'base')
    expect('no model', ask(s, '/v1/models/c')[0], 404)
    of = {name: answer(s, model=name) for name in 'ab'}
    for name in 'ab':
        expect('found of another', of[name][1], 0)
        expect('model', of[name][2], name)
        again = answer(s, model=name)
        expect('again', again[0], of[name][0])
        if not again[1]: fault(f'{name} does not find its own prefix')
    if len({tuple(x[0]) for x in (base, *of.values())}) != 3: fault('adapters change no answer')
    expect('by id', answer(s, lora=[{'id': 1, 'scale': 1}])[0], of['b'][0])
    expect('by name', answer(s, lora=[{'name': 'a'}])[0], of['a'][0])
    expect('by id, without a name', answer(s, lora=[{'id': 1, 'name': None}])[0], of['b'][0])
    expect('none of a model', answer(s, model='a', lora=[])[0], base[0])
    half = answer(s, lora=[{'id': 0, 'scale': 0.5}])
    expect('another scale finds nothing', half[1], 0)
    for bad in ([{'id': 2, 'scale': 1}], [{'id': -1}], [{'scale': 1}], {'id': 0}, [{'name': 'c'}], [{'id': 0, 'scale': '1'}],
                [{'id': 0, 'scale': 1e39}], [{'id': 0}, {'id': 0}], [1]):
        r = answer(s, lora=bad)
        if r[0] != 400 or 'lora' not in str(r[1]) and 'adapter' not in str(r[1]): fault(f'lora {bad}: {r}')

    # The server's default scales apply to requests without the field "lora".
    expect('scales', ask(s, '/lora-adapters', [{'id': 0, 'scale': 0.5}]), (200, {'success': True}))
    expect('adapters', [(x['id'], x['name'], x['scale'], x['rank']) for x in ask(s, '/lora-adapters')[1]],
           [(0, 'a', 0.5, 8), (1, 'b', 0.0, 4)])
    expect('by the scale of all', answer(s)[0], half[0])
    expect('bad scales', ask(s, '/lora-adapters', [{'id': 0}, {'id': 7}])[0], 400)
    expect('bad scales', ask(s, '/lora-adapters', {'id': 0})[0], 400)
    expect('by the scale of all, still', answer(s)[0], half[0])
    expect('scales', ask(s, '/lora-adapters', [])[0], 200)
    expect('none again', answer(s)[0], base[0])

    # Adapters are loaded and unloaded while other threads send requests.
    stop = threading.Event()

    def company():
        while not stop.is_set():
            for name in ('a', 'b', 'base'):
                expect('in a batch', answer(s, model=name)[0], (of.get(name) or base)[0])

    # The name "moving" always has an adapter, however often another one replaces it.
    def moving():
        while not stop.is_set():
            got = answer(s, model='moving')[0]
            if got not in (of['a'][0], of['b'][0]): fault(f'while it is replaced: {got}')
    expect('load', ask(s, '/v1/load_lora_adapter', {'lora_name': 'moving', 'lora_path': a})[0], 200)
    asking = [threading.Thread(target=company) for _ in range(2)] + [threading.Thread(target=moving)]
    for t in asking: t.start()
    for i in range(20):
        expect('replace', ask(s, '/v1/load_lora_adapter', {'lora_name': 'moving', 'lora_path': (b, a)[i % 2], 'load_inplace': True})[0], 200)
        expect('its place', ask(s, '/lora-adapters')[1][2]['name'], 'moving')
        expect('load', ask(s, '/v1/load_lora_adapter', {'lora_name': 'c', 'lora_path': a})[0], 200)
        expect('loaded', answer(s, model='c')[0], of['a'][0])
        expect('load again', ask(s, '/v1/load_lora_adapter', {'lora_name': 'c', 'lora_path': b})[0], 400)
        expect('load in place', ask(s, '/v1/load_lora_adapter', {'lora_name': 'c', 'lora_path': b, 'load_inplace': True})[0], 200)
        expect('loaded in place', answer(s, model='c')[0], of['b'][0])
        expect('no file in place', ask(s, '/v1/load_lora_adapter', {'lora_name': 'c', 'lora_path': model, 'load_inplace': True})[0], 400)
        expect('the old adapter', answer(s, model='c')[0], of['b'][0])
        expect('unload', ask(s, '/v1/unload_lora_adapter', {'lora_name': 'c'})[0], 200)
        expect('unload again', ask(s, '/v1/unload_lora_adapter', {'lora_name': 'c'})[0], 404)
    stop.set()
    for t in asking: t.join()
    for body, status in (({'lora_name': 'x'}, 400), ({'lora_name': 'x', 'lora_path': '/none'}, 404), ({'lora_name': 'base', 'lora_path': a}, 400),
                         ({'lora_name': 'x', 'lora_path': 'y' * 9000}, 400), ({'lora_name': 'x', 'lora_path': model}, 400), ({'lora_name': 'x,y', 'lora_path': a}, 400), ([], 400)):
        expect(f'load {body}', ask(s, '/v1/load_lora_adapter', body)[0], status)
    s.quiet('after adapters')
    s.end()
    s = Server(model, '-c', '2048', '--lora', a)
    expect('not allowed', ask(s, '/v1/load_lora_adapter', {'lora_name': 'x', 'lora_path': b})[0], 403)
    expect('not allowed', ask(s, '/v1/unload_lora_adapter', {'lora_name': 'a'})[0], 403)
    expect('applied to all', answer(s)[0], of['a'][0])
    s.end()


TEXT = 'The history of the city begins at the river, where two roads met and a market was held every week. In the'.split()


def first_tokens(s, scale):
    """For each beginning of a text, returns its most likely next token and the log-probabilities of the top ones."""
    out = []
    for n in range(4, len(TEXT) + 1):
        a = ask(s, '/completion', {'prompt': ' '.join(TEXT[:n]), 'n_predict': 1, 'temperature': 0, 'n_probs': 20,
                                   'lora': [{'id': 0, 'scale': scale}]})[1]
        top = a['completion_probabilities'][0]['top_logprobs']
        out.append((top[0]['id'], {x['id']: x['logprob'] for x in top}))
    return out


def distance(a, b):
    """Returns the mean difference of the log-probabilities of tokens that are in both top lists."""
    d = [abs(p[k] - q[k]) for (_, p), (_, q) in zip(a, b) for k in p if k in q]
    return sum(d) / len(d)


def peer(maker, d):
    """Compares with llama-server and the same file: log-probabilities are much closer to ours than an adapter's
    effect."""
    program, model = os.environ.get('PAGEDINFER_PEER', ''), os.environ.get('PAGEDINFER_MODEL', '')
    if os.path.isdir(program): program = os.path.join(program, 'llama-server')
    if not os.path.exists(program) or not os.path.exists(model): return 'no peer'
    # The adapter changes layers only: llama-server exits if one changes an embedding that is also the output matrix.
    a = os.path.join(d, 'real.gguf')
    subprocess.run([maker, a, model, '16', '3', '5', 'F16', 'blk.'], check=True)
    p = subprocess.Popen([program, '-m', model, '--lora', a, '--port', '18471', '-c', '1024', '--no-webui', '--parallel', '1',
                          '-t', '1'],  # one thread: several would wait for each other on a busy machine
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    class Peer: url = 'http://127.0.0.1:18471'
    try:
        for _ in range(1200): # llama-server repacks the model's matrices first
            try:
                if ask(Peer, '/health')[0] == 200: break
            except OSError: pass
            if p.poll() is not None: break
            time.sleep(0.25)
        else: fault('the peer does not answer')
        if faults or p.poll() is not None: return fault('the peer does not run with the adapter')
        theirs = [first_tokens(Peer, scale) for scale in (0, 1)]
    finally:
        p.terminate()
        p.wait()
    s = Server(model, '-c', '1024', '--lora', a)
    ours = [first_tokens(s, scale) for scale in (0, 1)]
    s.end()
    same = [sum(x[0] == y[0] for x, y in zip(*both)) for both in zip(ours, theirs)]
    off, does = [distance(*both) for both in zip(ours, theirs)], distance(*theirs)
    print(f'  peer: {same[0]} and with the adapter {same[1]} of {len(TEXT) - 3} tokens the same; log-probabilities differ by '
          f'{off[0]:.3f} and {off[1]:.3f}, the adapter changes them by {does:.3f}')
    if off[1] > 2 * off[0] + 0.02 or off[1] > does / 4: fault("differs from the peer's result with the adapter")
    return 'the peer'


def main():
    maker, tiny = (os.path.join(BUILD, 'tests', x) for x in ('tool_adapter', 'tool_tiny_model'))
    if not os.path.exists(maker) or subprocess.run([BIN, 'serve', '-m', '/none'], capture_output=True).returncode == 69: return 77
    with tempfile.TemporaryDirectory() as d:
        model, a, b = (os.path.join(d, x) for x in ('tiny.gguf', 'a.gguf', 'b.gguf'))
        subprocess.run([tiny, model, '2048'], check=True)
        subprocess.run([maker, a, model, '8', '1', '12'], check=True)
        subprocess.run([maker, b, model, '4', '2', '12', 'F16'], check=True)
        tool(model, a, b)
        server(model, a, b)
        print(f'adapters: {peer(maker, d)}, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__': sys.exit(main())
