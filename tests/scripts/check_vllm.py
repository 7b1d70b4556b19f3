#!/usr/bin/env python3
"""Checks command lines of vLLM's server with `pagedinfer serve`, and a tiny random model.

1. The `command:` of compose files for vLLM starts a server without changes, except for the model; names, key, defaults
   of requests and the cache type have effect.
2. Values of flags: JSON objects, several words, names of repositories, folders of downloads; errors name the flag.
Exit 77: there is no server, or no tiny model."""
import json, os, re, shlex, signal, socket, subprocess, sys, tempfile, time, urllib.error, urllib.request

import check_server as base
from check_server import BIN, expect, fault

# As in guides for vLLM: Qwen with tools, a reasoning model with a drafter, and a plain one.
COMPOSE = {
    'tools': '''--model MODEL --served-model-name chat --host 0.0.0.0 --port PORT --dtype auto --max-model-len 512
        --gpu-memory-utilization 0.3 --max-num-seqs 4 --tensor-parallel-size 1 --trust-remote-code --api-key secret
        --enable-auto-tool-choice --tool-call-parser hermes --disable-log-requests --swap-space 4
        --enable-prefix-caching --enable-chunked-prefill --max-num-batched-tokens 256 --chat-template=TEMPLATE''',
    'reasoning': '''MODEL --served-model-name chat other --host 127.0.0.1 --port PORT --max-model-len 512 -tp 1
        --kv-cache-dtype fp8 --reasoning-parser qwen3 --generation-config vllm --max-num-seqs 2
        --override-generation-config '{"temperature": 0.25, "top_k": 7}' --limit-mm-per-prompt '{"image": 0}'
        --speculative-config '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
        --chat-template TEMPLATE --allowed-origins '["*"]' --enforce-eager --uvicorn-log-level info''',
    'plain': '''--model=MODEL --port=PORT --max_model_len=256 --block-size 16 --seed 0 --quantization gptq --revision main
        --load-format auto --tokenizer-mode auto --download-dir DIR --no-enable-prefix-caching''',
}


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Composed:
    def __init__(self, command, **names):
        self.port = free_port()
        for k, v in {**names, 'PORT': str(self.port)}.items(): command = re.sub(rf'\b{k}\b', v, command)
        self.log = tempfile.NamedTemporaryFile('w+', suffix='.log')
        self.p = subprocess.Popen([BIN, 'serve', *shlex.split(command)], stdout=subprocess.DEVNULL, stderr=self.log)
        for _ in range(1200):
            with open(self.log.name) as f: self.text = f.read()
            if 'is ready' in self.text or self.p.poll() is not None: break
            time.sleep(0.025)
        if 'is ready' not in self.text: fault(f'{command[:60]}: did not start: {self.text[-600:]}')

    def ask(self, path, body=None, key=None, headers={}):
        h = {'Content-Type': 'application/json', **headers, **({'Authorization': 'Bearer ' + key} if key else {})}
        r = urllib.request.Request(f'http://127.0.0.1:{self.port}{path}', json.dumps(body).encode() if body else None, h)
        try:
            with urllib.request.urlopen(r, timeout=60) as a: return a.status, json.loads(a.read()), a.headers
        except urllib.error.HTTPError as e: return e.code, {}, e.headers
        except OSError as e: return 0, {'error': str(e)}, {}

    def end(self):
        if self.p.poll() is None: self.p.send_signal(signal.SIGTERM)
        expect('exit status', self.p.wait(60), 0)


def chat(model): return {'model': model, 'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 4}


def compose(model, folder):
    template = os.path.join(folder, 'template.jinja')
    with open(template, 'w') as f: f.write("{% for m in messages %}{{ m.content }}x{% endfor %}")
    s = Composed(COMPOSE['tools'], MODEL=model, TEMPLATE=template)
    expect('a key is required', s.ask('/v1/models')[0], 401)
    expect('names', [m['id'] for m in s.ask('/v1/models', key='secret')[1].get('data', [])][:1], ['chat'])
    expect('an answer', s.ask('/v1/chat/completions', chat('chat'), 'secret')[0], 200)
    props = s.ask('/props', key='secret')[1]
    expect('context', props['default_generation_settings']['n_ctx'], 512)
    s.end()
    s = Composed(COMPOSE['reasoning'], MODEL=model, TEMPLATE=template)
    status, got, headers = s.ask('/v1/chat/completions', chat('other'), headers={'Origin': 'http://page'})
    expect('the second name', status, 200)
    expect('CORS', headers.get('Access-Control-Allow-Origin'), '*')
    prompt = s.ask('/apply-template', {'messages': chat('chat')['messages']})[1]
    expect('the template of the file', prompt.get('prompt'), 'ax')
    defaults = s.ask('/props')[1]['default_generation_settings']['params']
    expect('defaults', (defaults['temperature'], defaults['top_k']), (0.25, 7))
    s.end()
    s = Composed(COMPOSE['plain'], MODEL=model, DIR=folder)
    expect('a plain answer', s.ask('/v1/completions', {'prompt': 'a', 'max_tokens': 4})[0], 200)
    s.end()


def refuse(code, text, *args, command='serve'):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(('LLAMA_', 'PAGEDINFER_', 'HF_'))}
    r = subprocess.run([BIN, command, *args], capture_output=True, text=True, env=clean, timeout=60)
    if r.returncode != code or text not in r.stderr + r.stdout:
        fault(f'{" ".join(args)[:120]}: exit {r.returncode}, not {code}; no {text!r} in {r.stderr[:400]!r}')


def values(model, folder):
    refuse(64, 'is not a JSON object', '-m', model, '--speculative-config', 'ngram')
    refuse(64, "member 'beam' is unknown", '-m', model, '--override-generation-config', '{"beam": 4}')
    refuse(64, "'temperature' has a wrong type", '-m', model, '--override-generation-config', '{"temperature": [1]}')
    refuse(64, 'temp', '-m', model, '--override-generation-config', '{"temperature": "hot"}')
    refuse(64, 'needs a "model"', '-m', model, '--speculative-config', '{"method": "eagle", "num_speculative_tokens": 3}')
    refuse(64, 'exclude each other', '-m', model, '-tp', '2', '-pp', '2')
    refuse(64, 'needs "name" and "path"', '-m', model, '--lora-modules', '{"name": "a"}')
    refuse(64, 'one origin', '-m', model, '--allowed-origins', '["a", "b"]')
    refuse(64, '1..1', '-m', model, '--data-parallel-size', '2')
    refuse(64, 'clients are not asked for certificates', '-m', model, '--ssl-ca-certs', 'x')
    refuse(64, 'auto|gguf', '-m', model, '--load-format', 'safetensors')
    refuse(64, 'rope-scaling', '-m', model, '--rope-scaling', '{"rope_type": "dynamic", "factor": 2}')
    refuse(64, 'has no rope_type', '-m', model, '--rope-scaling', '{"factor": 2}')
    refuse(69, 'cuda7', '-m', model, '--port', '0', '-tp', '8') if not os.path.exists('/dev/nvidia7') else None
    refuse(66, 'gone.gguf', '-m', model, '--port', '0', '--lora-modules', '{"name": "a", "path": "gone.gguf"}')
    refuse(66, 'gone2.gguf', '-m', model, '--port', '0', '--lora-modules', 'a=gone2.gguf', 'b=gone2.gguf')
    refuse(64, 'unexpected argument', model, '--host', '127.0.0.1', 'stray')
    # --model with the name of a repository, and a folder of downloads
    cache = os.path.join(folder, 'models--org--name-GGUF')
    for d in ('blobs', 'refs', 'snapshots/' + 'a' * 40): os.makedirs(os.path.join(cache, d))
    oid = 'b' * 64
    with open(model, 'rb') as f, open(os.path.join(cache, 'blobs', oid), 'wb') as g: g.write(f.read())
    with open(os.path.join(cache, 'refs/main'), 'w') as f: f.write('a' * 40)
    os.symlink(f'../../blobs/{oid}', os.path.join(cache, 'snapshots', 'a' * 40, 'name-Q8_0.gguf'))
    refuse(0, 'org/name-GGUF:Q8_0', '--download-dir', folder, command='list')
    s = Composed(f'--model org/name-GGUF --offline --download-dir {folder} --max-model-len 256 --port PORT')
    expect('a repository', s.ask('/v1/completions', {'prompt': 'a', 'max_tokens': 4})[0], 200)
    s.end()
    refuse(66, 'org/other', '--model', 'org/other', '--offline', '--download-dir', folder)


def main():
    maker = base.tiny_maker()
    if not maker: return 77
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, 'tiny.gguf')
        subprocess.run([maker, model, '4096'], check=True)
        compose(model, folder)
        values(model, folder)
    print(f"vLLM's command lines: {len(base.faults)} faults")
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
