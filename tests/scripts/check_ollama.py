#!/usr/bin/env python3
"""Checks Ollama's API of pagedinfer serve, with a tiny random model.

1. Answers: each equals the one of OpenAI's API; streams of JSON lines equal complete answers; options, formats, tools,
   reasoning, embeddings; errors.
2. The request sequence of VS Code's Copilot Chat with an Ollama server.
3. PyPI's ollama package, if it is installed or can be installed.
Exit 77: there is no server, or no tiny model."""
import json, os, re, subprocess, sys, tempfile

import check_server as base
from check_server import HERMES, Server, ask, expect, fault, have, connect, request, read_answer

CHAT, GENERATE = '/api/chat', '/api/generate'
HI = [{'role': 'user', 'content': 'abc'}]
GREEDY = {'temperature': 0, 'num_predict': 12, 'seed': 1}
TOOL = {'type': 'function', 'function': {'name': 'f', 'description': 'd', 'parameters': {'type': 'object', 'properties': {'x': {'type': 'integer'}}}}}
TIMES = ('total_duration', 'load_duration', 'prompt_eval_count', 'prompt_eval_duration', 'eval_count', 'eval_duration')
STAMP = r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z'


def rows(s, path, body):
    """The objects of a stream."""
    status, h, got = ask(s, path, body)
    if status != 200: fault(f'{path} {str(body)[:200]}: {status} {str(got)[:300]}')
    if h.get('content-type') != 'application/x-ndjson': fault(f'{path}: {h.get("content-type")}')
    lines = (got if isinstance(got, bytes) else json.dumps(got).encode()).decode().rstrip('\n').split('\n')
    return [json.loads(l) for l in lines]


def one(s, path, body):
    status, _, got = ask(s, path, {**body, 'stream': False})
    if status != 200: fault(f'{path} {str(body)[:200]}: {status} {str(got)[:300]}')
    return got if status == 200 else {}


def openai(s, messages, **more):
    body = {'messages': messages, 'temperature': 0, 'max_tokens': 12, 'seed': 1, **more}
    return ask(s, '/v1/chat/completions', body)[2]['choices'][0]


def answers(s):
    want = openai(s, HI)['message']['content']
    a = one(s, CHAT, {'model': 'tiny', 'messages': HI, 'options': GREEDY})
    expect('chat', a['message'], {'role': 'assistant', 'content': want})
    expect('its end', (a['model'], a['done'], a['done_reason'], bool(re.fullmatch(STAMP, a['created_at']))), ('tiny', True, 'length', True))
    if any(not isinstance(a[t], int) or a[t] < 0 for t in TIMES) or a['eval_count'] != 12 or a['prompt_eval_count'] < 5: fault(f'counts: {a}')
    parts = rows(s, CHAT, {'model': 'tiny', 'messages': HI, 'options': GREEDY})
    expect('a stream', ''.join(p['message']['content'] for p in parts), want)
    expect('its last line', (parts[-1]['done_reason'], parts[-1]['eval_count'], parts[-1]['message']['content']), ('length', 12, ''))
    g = one(s, GENERATE, {'model': 'tiny', 'prompt': 'abc', 'options': GREEDY})
    expect('generate', g['response'], want)
    parts = rows(s, GENERATE, {'model': 'tiny', 'prompt': 'abc', 'options': GREEDY})
    expect('generate, a stream', (''.join(p['response'] for p in parts), parts[-1]['done'], len(parts) > 1), (want, True, True))
    system = openai(s, [{'role': 'system', 'content': 'zz'}, *HI])['message']['content']
    expect('a system text', one(s, GENERATE, {'prompt': 'abc', 'system': 'zz', 'options': GREEDY})['response'], system)
    raw = ask(s, '/v1/completions', {'prompt': 'abc', 'temperature': 0, 'max_tokens': 12, 'seed': 1})[2]['choices'][0]['text']
    expect('raw', one(s, GENERATE, {'prompt': 'abc', 'raw': True, 'options': GREEDY})['response'], raw)
    parts = rows(s, GENERATE, {'prompt': 'abc', 'raw': True, 'options': GREEDY})
    expect('raw, a stream', ''.join(p['response'] for p in parts), raw)
    cut = openai(s, HI, stop=want[2:4])['message']['content']
    a = one(s, CHAT, {'messages': HI, 'options': {**GREEDY, 'stop': [want[2:4]], 'num_ctx': 4096, 'num_gpu': 1}})
    expect('stop', (a['message']['content'], a['done_reason']), (cut, 'stop'))
    warm = [one(s, CHAT, {'messages': HI, 'options': {'num_predict': 12, 'temperature': 5, 'top_k': 0, 'top_p': 1, 'min_p': 0, 'seed': i}})['message']['content'] for i in (1, 1, 2)]
    expect('seed', (warm[0] == warm[1], warm[0] == warm[2]), (True, False))
    many = rows(s, CHAT, {'messages': HI, 'options': {**GREEDY, 'num_predict': 2000}})
    if len(many) < 3 or any(p['done'] for p in many[:-1]): fault(f'a long stream has {len(many)} lines')
    loaded = [one(s, CHAT, {'model': 'tiny', 'messages': []}), one(s, CHAT, {'model': 'tiny'}), one(s, GENERATE, {'model': 'tiny', 'keep_alive': 0}),
              one(s, GENERATE, {'model': 'tiny', 'prompt': ''})]
    expect('requests that load', [(a['done'], a['done_reason'], a['model']) for a in loaded], [(True, 'load', 'tiny')] * 4)


def formats(s):
    schema = {'type': 'object', 'properties': {'a': {'type': 'boolean'}}, 'required': ['a'], 'additionalProperties': False}
    options = {'temperature': 0, 'num_predict': 200}
    text = one(s, CHAT, {'messages': HI, 'format': schema, 'options': options})['message']['content']
    if json.loads(text) not in ({'a': True}, {'a': False}): fault(f'format: {text}')
    text = one(s, GENERATE, {'prompt': 'abc', 'format': schema, 'options': options})['response']
    if json.loads(text) not in ({'a': True}, {'a': False}): fault(f'format: {text}')
    text = ''.join(p['message']['content'] for p in rows(s, CHAT, {'messages': HI, 'format': 'json', 'options': options}))
    if not text.lstrip().startswith('{'): fault(f'format json: {text[:50]}')


def conversations(s):
    """Messages become those of OpenAI's API: the rendered prompts have the same number of tokens and the same answer."""
    call = {'role': 'assistant', 'content': '', 'tool_calls': [{'function': {'name': 'f', 'arguments': {'x': 5}}}]}
    theirs = {'role': 'assistant', 'content': '', 'tool_calls': [{'id': 'call_0', 'type': 'function', 'function': {'name': 'f', 'arguments': '{"x": 5}'}}]}
    mine = [*HI, call, {'role': 'tool', 'tool_name': 'f', 'content': 'seven'}]
    other = [*HI, theirs, {'role': 'tool', 'tool_call_id': 'call_0', 'name': 'f', 'content': 'seven'}]
    a = one(s, CHAT, {'messages': mine, 'tools': [TOOL], 'options': GREEDY})
    b = ask(s, '/v1/chat/completions', {'messages': other, 'tools': [TOOL], 'temperature': 0, 'max_tokens': 12, 'seed': 1})[2]
    expect('calls and results', (a['message']['content'], a['prompt_eval_count']), (b['choices'][0]['message']['content'], b['usage']['prompt_tokens']))
    for bad, word in (({'messages': [{'content': 'x'}]}, 'role'), ({'messages': 'x'}, 'messages'), ({'messages': [{'role': 'user', 'content': 5}]}, 'content'),
                      ({'messages': [{'role': 'user', 'content': 'x', 'images': 'y'}]}, 'images'), ({'messages': [5]}, 'role'),
                      ({'messages': [{'role': 'assistant', 'tool_calls': [{'function': {}}]}]}, 'function name'),
                      ({'messages': [{'role': 'assistant', 'tool_calls': 'x'}]}, 'abc'), ({'messages': HI, 'options': 3}, 'options'),
                      ({'messages': HI, 'options': {'temperature': 'hot'}}, 'temperature'), ({'messages': HI, 'format': 'xml'}, 'format'),
                      ({'messages': HI, 'think': 3}, 'think'), ({'messages': HI, 'stream': 'x'}, 'stream'), ({'messages': HI, 'logprobs': True}, 'logprobs'),
                      ({'messages': HI, 'options': {'num_predict': 'x'}}, 'max_tokens'), ({'messages': HI, 'tools': 'x'}, 'tools')):
        status, _, got = ask(s, CHAT, bad)
        if word == 'abc': continue
        if status != 400 or not isinstance(got, dict) or not isinstance(got.get('error'), str) or word not in got['error']: fault(f'{bad}: {status} {got}')
    for bad, word in (({'prompt': 5}, 'prompt'), ({'prompt': 'x', 'context': [1, 2]}, 'context'), ({'prompt': 'x', 'template': 'y'}, 'template'),
                      ({'prompt': 'x', 'images': [5]}, 'images'), ([1], 'object')):
        status, _, got = ask(s, GENERATE, bad)
        if status != 400 or word not in got.get('error', ''): fault(f'{bad}: {status} {got}')
    status, _, got = ask(s, GENERATE, b'{')
    expect('no JSON', (status, 'not JSON' in got['error']), (400, True))
    expect('an unknown path', (ask(s, '/api/pull', {'model': 'x'})[0], type(ask(s, '/api/pull', {'model': 'x'})[2]['error'])), (404, str))
    expect('a wrong method', ask(s, '/api/tags', {})[0], 405)
    long = ask(s, CHAT, {'messages': [{'role': 'user', 'content': 'abc' * 9000}]})
    expect('too long', (long[0], isinstance(long[2].get('error'), str)), (400, True))


def calls(model):
    """The random model calls the tool; a stream has each call in one line. With a budget, its reasoning ends."""
    # With a grammar and tools, a random model that cannot follow the grammar's text calls the tool.
    s = Server(model, '-c', '2048', '--chat-template', HERMES, '--grammar', 'root ::= "<tool_call>" [a-z]')
    body = {'model': 'tiny', 'messages': HI, 'options': {'temperature': 0, 'num_predict': 300}}
    options = {'temperature': 0, 'num_predict': 300}
    theirs = ask(s, '/v1/chat/completions', {'messages': HI, 'tools': [TOOL], 'temperature': 0, 'max_tokens': 300})[2]['choices'][0]['message']
    if len(theirs.get('tool_calls', [])) < 2: fault(f'no tool calls: {theirs}')
    want = [{'function': {'name': 'f', 'index': i, 'arguments': json.loads(c['function']['arguments'])}} for i, c in enumerate(theirs.get('tool_calls', []))]
    a = one(s, CHAT, {**body, 'tools': [TOOL], 'options': options})
    expect('calls', (a['message'].get('tool_calls'), a['message']['content']), (want, theirs['content'] or ''))
    parts = rows(s, CHAT, {**body, 'tools': [TOOL], 'options': options})
    expect('calls in a stream', [c for p in parts for c in p['message'].get('tool_calls', [])], want)
    expect('its text', ''.join(p['message']['content'] for p in parts).strip(), (theirs['content'] or '').strip())
    s.end()
    thinks = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %}+{% endif %}<think>\n"
    s = Server(model, '-c', '2048', '--chat-template', thinks, '--grammar', 'root ::= "yes"', '--reasoning-budget', '4')
    a = one(s, CHAT, {**body, 'think': True})
    expect('reasoning', (len(a['message'].get('thinking', '')) > 0, a['message']['content']), (True, 'yes'))
    parts = rows(s, CHAT, {**body, 'think': True})
    expect('its stream', (''.join(p['message'].get('thinking', '') for p in parts), ''.join(p['message']['content'] for p in parts)), (a['message'].get('thinking'), 'yes'))
    g = one(s, GENERATE, {'prompt': 'abc', 'think': True, 'options': {'temperature': 0}})
    expect('reasoning of generate', (g.get('thinking'), g['response']), (a['message'].get('thinking'), 'yes'))
    parts = rows(s, GENERATE, {'prompt': 'abc', 'think': 'high', 'options': {'temperature': 0}})
    expect('its stream', (''.join(p.get('thinking', '') for p in parts), ''.join(p['response'] for p in parts)), (a['message'].get('thinking'), 'yes'))
    counts = [one(s, CHAT, {**body, 'think': t})['prompt_eval_count'] for t in (True, False)]
    expect('think', counts[0] - counts[1], 1)
    expect('its capability', 'thinking' in ask(s, '/api/show', {'model': 'tiny.gguf'})[2]['capabilities'], True)
    s.end()


def embeddings(s):
    theirs = ask(s, '/v1/embeddings', {'input': ['abc', 'x']})[2]
    a = ask(s, '/api/embed', {'model': 'tiny', 'input': ['abc', 'x']})[2]
    expect('embed', a['embeddings'], [d['embedding'] for d in theirs['data']])
    expect('its counts', (a['prompt_eval_count'], a['model']), (theirs['usage']['prompt_tokens'], 'tiny'))
    expect('one text', ask(s, '/api/embed', {'input': 'abc'})[2]['embeddings'], a['embeddings'][:1])
    expect('the older path', ask(s, '/api/embeddings', {'prompt': 'abc'})[2], {'embedding': a['embeddings'][0]})
    long = {'input': 'abc' * 9000}
    expect('truncate', [ask(s, '/api/embed', {**long, **m})[0] for m in ({}, {'truncate': False})], [200, 400])
    expect('no input', ask(s, '/api/embed', {})[0], 400)


def vscode(s):
    """VS Code asks for the version, the models, and the properties of each; then it uses OpenAI's API."""
    version = ask(s, '/api/version')[2]['version']
    if not re.fullmatch(r'\d+\.\d+\.\d+', version) or tuple(map(int, version.split('.'))) < (0, 6, 4): fault(f'version {version}')
    models = ask(s, '/api/tags')[2]['models']
    expect('models', [m['model'] for m in models], ['tiny.gguf'])
    shown = ask(s, '/api/show', {'model': models[0]['model']})[2]
    info = shown['model_info']
    arch = info['general.architecture']
    expect('context', info[f'{arch}.context_length'], 4096)
    expect('capabilities', shown['capabilities'], ['completion', 'tools'])
    if not shown['details']['family'] == arch or not info['general.parameter_count'] > 1000: fault(f'show: {shown}')
    r = ask(s, '/v1/chat/completions', {'model': models[0]['model'], 'messages': HI, 'stream': True, 'stream_options': {'include_usage': True}, 'tools': [TOOL], 'max_tokens': 4})
    expect('a chat', (r[0], r[2].endswith(b'data: [DONE]\n\n')), (200, True))


def information(s):
    m = ask(s, '/api/tags')[2]['models'][0]
    if not re.fullmatch(STAMP, m['modified_at']) or m['size'] < 1000 or m['details']['format'] != 'gguf': fault(f'tags: {m}')
    p = ask(s, '/api/ps')[2]['models'][0]
    expect('ps', (p['name'], p['context_length'], p['size'] > m['size'], p['size_vram'] in (0, p['size'])), ('tiny.gguf', 4096, True, True))
    plain, full = (ask(s, '/api/show', {'model': 'tiny.gguf:latest', 'verbose': v})[2]['model_info'] for v in (False, True))
    expect('the vocabulary', (plain['tokenizer.ggml.tokens'], isinstance(full['tokenizer.ggml.tokens'], list)), (None, True))
    if not any(isinstance(v, (int, float)) and not isinstance(v, bool) for k, v in plain.items() if k.endswith('block_count')): fault(f'model_info: {plain}')
    expect('another model', (ask(s, '/api/show', {'model': 'other'})[0], type(ask(s, '/api/show', {'name': 'other'})[2]['error'])), (404, str))
    for bad in ({}, {'model': 5}, b'[', b'{"model": "' + b'x' * 70000 + b'"}'): expect(f'show {bad[:20] if isinstance(bad, bytes) else bad}', ask(s, '/api/show', bad)[0], 400)
    if not re.search(r'^temperature +0\.8$', ask(s, '/api/show', {'model': 'tiny.gguf'})[2]['parameters'], re.M): fault('parameters')


def package(s):
    if not have('ollama'): return 'no ollama package'
    import ollama
    c = ollama.Client(host=s.url)
    want = openai(s, HI)['message']['content']
    expect('ollama: chat', c.chat(model='tiny', messages=HI, options=GREEDY).message.content, want)
    expect('ollama: a stream', ''.join(p.message.content for p in c.chat(model='tiny', messages=HI, options=GREEDY, stream=True)), want)
    g = c.generate(model='tiny', prompt='abc', options=GREEDY)
    expect('ollama: generate', (g.response, g.done_reason, g.eval_count), (want, 'length', 12))
    expect('ollama: its stream', ''.join(p.response for p in c.generate(model='tiny', prompt='abc', options=GREEDY, stream=True)), want)
    expect('ollama: embed', len(c.embed(model='tiny', input=['a', 'b']).embeddings), 2)
    expect('ollama: embeddings', len(c.embeddings(model='tiny', prompt='a').embedding) > 1, True)
    expect('ollama: list', [m.model for m in c.list().models], ['tiny.gguf'])
    expect('ollama: ps', [m.model for m in c.ps().models], ['tiny.gguf'])
    expect('ollama: show', c.show('tiny.gguf').capabilities, ['completion', 'tools'])
    def f(x: int) -> int:
        """Doubles a number."""
        return 2 * x
    expect('ollama: tools', c.chat(model='tiny', messages=HI, tools=[f], options=GREEDY).done, True)
    text = c.chat(model='tiny', messages=HI, format={'type': 'object', 'properties': {'a': {'enum': [7]}}, 'required': ['a'], 'additionalProperties': False},
                  options={'temperature': 0}).message.content
    expect('ollama: format', json.loads(text), {'a': 7})
    try:
        c.show('other')
        fault('ollama: an unknown model is shown')
    except ollama.ResponseError as e: expect('ollama: an error', (e.status_code, 'not found' in e.error), (404, True))
    try:
        c.chat(model='tiny', messages=[{'role': 'user', 'content': 'abc' * 9000}])
        fault('ollama: a long prompt is accepted')
    except ollama.ResponseError as e: expect('ollama: a long prompt', (e.status_code, '{' in e.error), (400, False))
    return 'with the ollama package'


def main():
    maker = base.tiny_maker()
    if not maker: return 77
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, 'tiny.gguf')
        subprocess.run([maker, model, '4096'], check=True)
        s = Server(model, '-c', '4096', '--chat-template', HERMES, '--kv-cache-tokens', '16384', '--prefill-assistant')
        for part in answers, formats, conversations, embeddings, vscode, information: part(s)
        with connect(s) as c:  # the client vanishes during a stream: the generation ends
            c.sendall(request('POST', CHAT, {'messages': HI, 'options': {'num_predict': 3000}}))
            c.recv(100)
        s.quiet('after a vanished client')
        how = package(s)
        s.end()
        s = Server(model, '-c', '512', '--api-key', 'k', '--chat-template', HERMES)
        expect('without a key', [ask(s, p, b)[0] for p, b in ((CHAT, {'messages': HI}), ('/api/tags', None))], [401, 401])
        expect('with a key', ask(s, '/api/tags', None, 'Authorization: Bearer k\r\n')[0], 200)
        s.end()
        calls(model)
    print(f"Ollama's API: {how}, {len(base.faults)} faults")
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
