#!/usr/bin/env python3
"""Checks changes of the list of models of pagedinfer serve, with tiny random models and a local hub.

1. GET /models?reload=1: new, changed and removed files; a preset that is wrong; requests during a reload.
2. POST and DELETE /models: downloads with progress, cancellation, unknown repositories, removal of a loaded model.
3. Adapters of several models, as the field model, before and after loading.
4. Stored responses, found without the model's name.
5. The default budget for models with explicit cache sizes.
Exit 77: there is no server, or no tiny model."""
import os, shutil, subprocess, sys, tempfile, threading, time

import check_server as base
from check_download import Hub
from check_router import C, COMMON, Front, text
from check_server import ask, connect, expect, fault, request


def reload(s): return ask(s, '/models?reload=1')


class Watch:
    """A client of /models/sse; waits for events."""
    def __init__(self, s):
        self.c, self.seen = connect(s, 30), ''
        self.c.sendall(request('GET', '/models/sse'))
        self.reaches('event-stream')

    def reaches(self, word):
        while word not in self.seen:
            got = self.c.recv(65536).decode()
            if not got: return fault(f'/models/sse never has {word}: {self.seen[-600:]}')
            self.seen += got


# --------------------------------------------------------------------------------------------------------- 1. reload

def reloads(folder, tiny):
    preset = os.path.join(folder, 'models.ini')

    def write(more=''):
        with open(preset, 'w') as f: f.write(f'[twin]\nmodel = {tiny["a"]}\nctx-size = 512\n' + more)
    write()
    os.mkdir(dir := os.path.join(folder, 'dir'))
    for name in 'a', 'b': shutil.copy(tiny[name], os.path.join(dir, name + '.gguf'))
    s = Front('--models-dir', dir, '--models-preset', preset, *COMMON)
    w = Watch(s)
    for name in 'a', 'b', 'twin': expect(name, ask(s, C, text(name, 2))[0], 200)
    pids = {name: s.pid_of(name) for name in ('a', 'b', 'twin')}
    expect('nothing is new', sorted(m['id'] for m in reload(s)[2]['data']), ['a', 'b', 'twin'])
    w.reaches('models_reload')
    expect('the same processes', {name: s.pid_of(name) for name in pids}, pids)
    shutil.copy(tiny['b'], os.path.join(dir, 'c.gguf'))
    expect('unknown before the reload', ask(s, C, text('c', 2))[0], 404)
    os.unlink(os.path.join(dir, 'b.gguf'))
    write('temp = 0.5\n[new]\nmodel = ' + tiny['b'] + '\nload-on-startup = true\n')
    whole = ask(s, C, text('a', 800))[2]['choices'][0]['text']
    done = []
    t = threading.Thread(target=lambda: done.append(ask(s, C, text('a', 800))))
    t.start()
    got = reload(s)
    expect('the new list', (got[0], sorted(m['id'] for m in got[2]['data'])), (200, ['a', 'c', 'new', 'twin']))
    t.join()
    expect('a request during the reload', (done[0][0], done[0][2]['choices'][0]['text']), (200, whole))
    expect('the unchanged process', s.pid_of('a'), pids['a'])
    expect('the new file', ask(s, C, text('c', 2))[0], 200)
    expect('the removed file', ask(s, C, text('b', 2))[0], 404)
    expect('the changed section', (ask(s, C, text('twin', 2))[0], s.pid_of('twin') != pids['twin']), (200, True))
    s.reaches('new', 'loaded')
    for _ in range(100):
        if not os.path.exists(f'/proc/{pids["b"]}'): break
        time.sleep(0.05)
    else: fault('the process of a removed file goes on')
    shutil.copy(tiny['b'], os.path.join(dir, 'b.gguf'))
    write('ctx-sise = 1\n')
    got = reload(s)
    expect('a wrong preset', (got[0], got[2]['error']['code'], sorted(s.models())), (500, 'reload_failed', ['a', 'c', 'new', 'twin']))
    write()
    got = [None] * 8
    threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, reload(s)[0])) for i in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    expect('many reloads', (got, sorted(s.models())), ([200] * 8, ['a', 'b', 'c', 'twin']))
    expect('the file that is back', ask(s, C, text('b', 2))[0], 200)
    expect('not allowed', (ask(s, '/models', {'model': 'o/m'})[0], ask(s, '/models?model=a', method='DELETE')[0]), (403, 403))
    s.end()


# -------------------------------------------------------------------------------------------------------- 2. downloads

def downloads(folder, tiny):
    hub = Hub()
    with open(tiny['a'], 'rb') as f: data = f.read()
    hub.repos['o/m'] = {'m-Q4_K_M.gguf': data, 'm-Q8_0.gguf': data + b'8' * 32}
    cache = os.path.join(folder, 'cache')
    os.mkdir(cache)
    flags = [x for x in COMMON if x != '--no-models-cache']
    s = Front('--models-dir', folder, '--models-updates', *flags, env={'MODEL_ENDPOINT': hub.url, 'LLAMA_CACHE': cache})
    w = Watch(s)
    for body, status in ({}, 400), ({'model': 'x'}, 400), ({'model': '../x'}, 400), ({'model': 'o/none'}, (404, 502)), ({'model': 'o/m:Q9'}, 404):
        got = ask(s, '/models', body)
        if got[0] not in (status if isinstance(status, tuple) else (status,)) or not got[2]['error']['message']: fault(f'{body}: {got}')
    expect('nothing is left', [n for n in os.listdir(cache) if n.startswith('models--o--none')], [])
    expect('the order', ask(s, '/models', {'model': 'o/m:Q4_K_M'})[2], {'success': True})
    w.reaches('download_finished')
    w.reaches('models_reload')
    if '"download_progress"' not in w.seen or f'"done":{len(data)}' not in w.seen.replace(' ', ''): fault(f'progress: {w.seen[-600:]}')
    m = s.models()['o/m:Q4_K_M']
    expect('its entry', (m['source'], m['can_remove'], m['status']['value']), ('cache', True, 'unloaded'))
    expect('the model', ask(s, C, text('o/m:Q4_K_M', 2))[0], 200)
    expect('it exists', ask(s, '/models', {'model': 'o/m:Q4_K_M'})[0], 400)
    # A download that is canceled: listed until then.
    hub.behave['m-Q8_0.gguf'] = ['slow'] * 9
    expect('the second order', ask(s, '/models', {'model': 'o/m:Q8_0'})[0], 200)
    m = s.models()['o/m:Q8_0']['status']
    expect('its state', m['value'], 'downloading')
    expect('twice', ask(s, '/models', {'model': 'o/m:Q8_0'})[0], 400)
    expect('cancel', ask(s, '/models/unload', {'model': 'o/m:Q8_0'})[2], {'success': True})
    w.reaches('download_failed')
    expect('it is gone', 'o/m:Q8_0' in s.models(), False)
    # Removal of a loaded model; a model of a folder stays.
    pid = s.pid_of('o/m:Q4_K_M')
    expect('unknown', ask(s, '/models?model=o/none', method='DELETE')[0], 404)
    expect('no name', ask(s, '/models', method='DELETE')[0], 400)
    expect('a file of the folder', ask(s, '/models?model=a', method='DELETE')[0], 400)
    expect('the removal', ask(s, '/models?model=o%2Fm:Q4_K_M', method='DELETE')[2], {'success': True})
    w.reaches('model_remove')
    expect('no process', os.path.exists(f'/proc/{pid}'), False)
    expect('no file', [f for _, _, fs in os.walk(cache) for f in fs if f.endswith('.gguf')], [])
    expect('the list', (sorted(s.models()), ask(s, C, text('o/m:Q4_K_M', 2))[0]), (['a', 'b'], 404))
    s.end()


# --------------------------------------------------------------------------------------------- 3. adapters, 4. responses

def adapters(folder, tiny, maker):
    x, y = (os.path.join(folder, n + '.lora') for n in 'xy')
    subprocess.run([maker, x, tiny['a'], '8', '1', '12'], check=True)
    subprocess.run([maker, y, tiny['b'], '8', '2', '12'], check=True)
    preset = os.path.join(folder, 'lora.ini')
    with open(preset, 'w') as f:
        f.write(f'[a]\nlora-modules = style={x}\nlora-updates = true\nresponse-store = 4\n[b]\nlora = {y}\nlora-init-without-apply = true\nresponse-store = 4\n')
    s = Front('--models-dir', folder, '--models-preset', preset, *COMMON)
    expect('the adapter of an unloaded model', ask(s, C, text('style', 2))[2].get('model'), 'style')
    expect('its model', (s.state('a'), s.state('b')), ('loaded', 'unloaded'))
    expect('the name of a file', (ask(s, C, text('y.lora', 2))[0], s.state('b')), (200, 'loaded'))
    plain, styled = (ask(s, C, text(n, 12))[2]['choices'][0]['text'] for n in ('a', 'style'))
    if plain == styled: fault('the adapter has no effect')
    m = s.models()
    expect('its entry', (m['style']['parent'], m['style']['status']['value'], m['y.lora']['parent']), ('a', 'loaded', 'b'))
    expect('unknown', ask(s, C, text('late', 2))[0], 404)
    expect('load', ask(s, '/v1/load_lora_adapter?model=a', {'lora_name': 'late', 'lora_path': x})[0], 200)
    expect('a later adapter', ask(s, C, text('late', 12))[2]['choices'][0]['text'], styled)
    expect('unload', ask(s, '/v1/unload_lora_adapter?model=a', {'lora_name': 'late'})[0], 200)
    expect('no adapter', ask(s, C, text('late', 2))[0], 404)

    ids = {n: ask(s, '/v1/responses', {'model': n, 'input': 'x', 'max_output_tokens': 2})[2]['id'] for n in ('a', 'b')}
    expect('stored responses', [ask(s, f'/v1/responses/{i}')[2].get('id') for i in ids.values()], list(ids.values()))
    expect('an unknown one', ask(s, '/v1/responses/resp_none')[0], 404)
    expect('deleted', [ask(s, f'/v1/responses/{ids["b"]}', method='DELETE')[0] for _ in range(2)], [200, 404])
    expect('the other one', ask(s, f'/v1/responses/{ids["a"]}')[0], 200)
    ask(s, '/models/unload', {'model': 'b'})
    expect('after unloading the other model', ask(s, f'/v1/responses/{ids["a"]}')[0], 200)
    limit = float(ask(s, '/metrics')[2].decode().split('\npagedinfer:models_memory_limit_bytes ')[1].split('\n')[0])
    if not limit: fault('explicit cache sizes: no default budget')  # COMMON has --kv-cache-tokens
    s.end()


def main():
    maker, adapter = base.tiny_maker(), os.path.join(base.BUILD, 'tests', 'tool_adapter')
    if not maker or not os.path.exists(adapter): return 77
    with tempfile.TemporaryDirectory() as temp:
        tiny = {}
        os.mkdir(folder := os.path.join(temp, 'models'))
        for i, name in enumerate('ab'):
            tiny[name] = os.path.join(folder, name + '.gguf')
            subprocess.run([maker, tiny[name], '8192', 'qwen3', str(i + 1)], check=True)
        os.mkdir(os.path.join(temp, 'reload'))
        reloads(os.path.join(temp, 'reload'), tiny)
        adapters(folder, tiny, adapter)
        downloads(folder, tiny)
    print(f'changes of models: {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
