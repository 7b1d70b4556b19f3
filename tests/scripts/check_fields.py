#!/usr/bin/env python3
"""Checks the fields of the HTTP APIs: each one is honoured, accepted or refused, as the server's own description says.

    check_fields.py [--write]        --write: docs/FIELDS.md from the description

1. /openapi.json is valid. It covers every route of tools/serve/routes.c and every field of docs/FIELDS.md.
2. At every API, each refused field is refused by name, except for its harmless values. Each accepted field is
   accepted.
3. Structured output, tools, documents, images and other servers' items work by raw HTTP at each API, and through the
   openai and anthropic packages if they are installed.
Exit 77: no chat model."""
import base64, importlib.util, json, os, re, signal, subprocess, sys, tempfile, time, urllib.error, urllib.request

from suites import TOOL_TEMPLATE

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, '../..')
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(ROOT, 'build'))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
CHAT = os.environ.get('PAGEDINFER_CHAT_MODEL', '')
DOC = os.path.join(ROOT, 'docs/FIELDS.md')
SCHEMA = {'type': 'object', 'properties': {'a': {'type': 'boolean'}}, 'required': ['a'], 'additionalProperties': False}
NOTE = 'omitted: this server reads text only]'
BODIES = {  # name in the description -> (path, a minimal request)
    'ChatRequest': ('/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'hi'}], 'max_tokens': 1}),
    'CompletionRequest': ('/v1/completions', {'prompt': 'hi', 'max_tokens': 1}),
    'ResponseRequest': ('/v1/responses', {'input': 'hi', 'max_output_tokens': 1}),
    'MessageRequest': ('/v1/messages', {'messages': [{'role': 'user', 'content': 'hi'}], 'max_tokens': 1}),
    'NativeRequest': ('/completion', {'prompt': 'hi', 'max_tokens': 1}),
}
TITLES = {'InfillRequest': '/infill', 'EmbeddingsRequest': '/v1/embeddings', 'VectorsRequest': '/embedding', 'RerankRequest':
          '/v1/rerank', 'TokenizeRequest': '/tokenize', 'DetokenizeRequest': '/detokenize', 'LoadAdapterRequest':
          '/v1/load_lora_adapter', 'UnloadAdapterRequest': '/v1/unload_lora_adapter', 'OllamaChatRequest': '/api/chat',
          'OllamaGenerateRequest': '/api/generate', 'OllamaEmbedRequest': '/api/embed', 'OllamaShowRequest': '/api/show', 'ModelRequest': '/models/load', **{k: v[0] for k, v in BODIES.items()}}
faults = []


def fault(text):
    faults.append(text)
    if len(faults) < 30: print('  ' + text)


def expect(what, got, want):
    if got != want: fault(f'{what}: {str(got)[:400]!r}, not {str(want)[:400]!r}')


def start(*flags):
    log = tempfile.NamedTemporaryFile('w+', suffix='.log')
    p = subprocess.Popen([BIN, 'serve', '-m', CHAT, '-c', '4096', '--port', '0', *flags], stdout=subprocess.DEVNULL, stderr=log)
    for _ in range(2400):
        with open(log.name, errors='replace') as f: text = f.read()
        m = re.search(r'listening on http://127\.0\.0\.1:(\d+)', text)
        if m and 'is ready' in text: return p, log, f'http://127.0.0.1:{m[1]}'
        if p.poll() is not None: break
        time.sleep(0.025)
    sys.exit(f'no server: {text[-2000:]}')


def ask(url, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, {'Content-Type': 'application/json'}), timeout=120) as r:
            text, status = r.read(), r.status
    except urllib.error.HTTPError as e: text, status = e.read(), e.code
    try: return status, json.loads(text)
    except ValueError: return status, text.decode()


def ok(url, path, body, what=None):
    status, a = ask(url, path, body)
    if status != 200: fault(f'{what or json.dumps(body)[:200]}: {status} {str(a)[:300]}')
    return a if status == 200 else None


def refused(url, path, body, param, words):
    status, a = ask(url, path, body)
    e = a.get('error', {}) if isinstance(a, dict) else {}
    if (status, e.get('param')) != (400, param) or words not in e.get('message', ''):
        fault(f'{path} {json.dumps(body)[:200]}: {status} {str(a)[:300]}, not 400 of {param} with {words!r}')


# ----------------------------------------------------------------------------------------------- 1. the description

def page_of(d):
    """docs/FIELDS.md."""
    out = ['# Request fields', '', 'Written by `tests/scripts/check_fields.py --write` from `/openapi.json`, which the server builds from',
           'the table in tools/serve/fields.c.', '', '| effect | meaning |', '|---|---|',
           '| honoured | the field has its documented effect |', '| accepted | the field has no effect on the answer |',
           '| refused | 400 that names the field; null, false and empty values are accepted |', '',
           'A field that constrains the answer is honoured or refused. Unlisted fields are ignored.', '']
    for name, path in TITLES.items():
        fields = d['components']['schemas'][name]['properties']
        out += [f'## {path}', '', '| field | effect | notes |', '|---|---|---|']
        for effect in ('honoured', 'accepted', 'refused'):
            out += [f'| `{k}` | {effect} | {v["description"]} |' for k, v in fields.items() if v['x-pagedinfer-effect'] == effect]
        out += ['']
    return '\n'.join(out)


def description(d):
    import jsonschema
    for name, schema in d['components']['schemas'].items(): jsonschema.Draft202012Validator.check_schema(schema)
    refs = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(d)))
    expect('references', refs - set(d['components']['schemas']), set())
    if importlib.util.find_spec('openapi_spec_validator'):
        import openapi_spec_validator
        openapi_spec_validator.validate(d)
    with open(os.path.join(ROOT, 'tools/serve/routes.c')) as f:
        routes = set(re.findall(r'^    \{"(/[^"]*)", HTTP_(\w+),', f.read(), re.M))
    described = {(p, m.upper()) for p, ops in d['paths'].items() for m in ops} - {('/v1/models/{model}', 'GET')}
    expect('routes', described, routes)
    with open(DOC) as f: page = f.read()
    if page != page_of(d): fault('docs/FIELDS.md is out of date: run tests/scripts/check_fields.py --write')
    code = ''
    for name in sorted(os.listdir(os.path.join(ROOT, 'tools/serve'))):
        if name.endswith('.c') and name not in ('fields.c', 'openapi.c'):
            with open(os.path.join(ROOT, 'tools/serve', name)) as f: code += f.read()
    with open(os.path.join(ROOT, 'tools/serve/fields.c')) as f: table = f.read()
    for name in re.findall(r'READ\("(\w+)"', table):
        if f'"{name}"' not in code: fault(f'{name} is said to be honoured, and nothing reads it')


# ---------------------------------------------------------------------------------------------------- 2. each field

def each_field(url, d):
    values = ['x', 3, True, ['x'], {'x': 1}]
    for body, (path, base) in BODIES.items():
        harmless, taken = {}, [{}, {}]
        for name, p in d['components']['schemas'][body]['properties'].items():
            if p['x-pagedinfer-effect'] == 'refused':
                for v in values:
                    if v not in p['enum']: refused(url, path, {**base, name: v}, name, 'is not supported')
                harmless[name] = [v for v in p['enum'] if v is not None]
            elif p['x-pagedinfer-effect'] == 'accepted':
                for i, t in enumerate(taken): t[name] = values[i * 2]
        for i in range(max(map(len, harmless.values()))):
            ok(url, path, {**base, **{k: v[i % len(v)] for k, v in harmless.items()}}, f'{path}: harmless values {i}')
        for t in taken: ok(url, path, {**base, **t}, f'{path}: accepted fields')


# ----------------------------------------------------------------------------------------------------- 3. behaviour

def meets(what, text):
    try: a = json.loads(text)
    except ValueError: a = None
    if not isinstance(a, dict) or list(a) != ['a'] or not isinstance(a['a'], bool): fault(f'{what}: {text!r} is not in the schema')


def structured(url):
    user, form = [{'role': 'user', 'content': 'Tell me a joke.'}], {'type': 'json_schema', 'schema': SCHEMA}
    m = {'messages': user, 'max_tokens': 40, 'temperature': 0}
    for more in ({'output_config': {'format': form}}, {'output_format': form}, {'response_format': form},
                 {'output_config': {'format': form, 'effort': 'low'}, 'output_format': form}):
        a = ok(url, '/v1/messages', {**m, **more})
        if a: meets(f'/v1/messages {more}', a['content'][-1]['text'])
    status, a = ask(url, '/v1/messages', {**m, 'stream': True, 'output_config': {'format': form}})
    meets('a stream', ''.join(re.findall(r'"type":"text_delta","text":"((?:[^"\\]|\\.)*)"', a)).encode().decode('unicode_escape'))
    a = ok(url, '/v1/responses', {'input': 'Tell me a joke.', 'max_output_tokens': 40, 'temperature': 0, 'text': {'format': {**form, 'name': 'n'}}})
    if a: meets('/v1/responses', a['output'][-1]['content'][0]['text'])
    a = ok(url, '/v1/chat/completions', {**m, 'response_format': {'type': 'json_schema', 'json_schema': {'name': 'n', 'schema': SCHEMA}}})
    if a: meets('/v1/chat/completions', a['choices'][0]['message']['content'])
    refused(url, '/v1/messages', {**m, 'output_config': {'format': {'type': 'xml'}}}, 'output_config.format', 'xml')


def echoes(url):
    """/v1/responses repeats the request's fields."""
    sent = {'input': 'hi', 'max_output_tokens': 1, 'instructions': 'Be brief.', 'metadata': {'k': 'v'}, 'temperature': 0.5, 'top_p': 0.5,
            'truncation': 'auto', 'user': 'u', 'service_tier': 'flex', 'parallel_tool_calls': False, 'max_tool_calls': 3,
            'safety_identifier': 's', 'prompt_cache_key': 'p', 'tool_choice': 'auto', 'top_logprobs': 2,
            'tools': [{'type': 'function', 'name': 'f', 'parameters': {'type': 'object'}, 'strict': True}, {'type': 'web_search'}]}
    a = ok(url, '/v1/responses', sent) or {}
    sent['tools'][0]['description'] = None
    for k, v in sent.items():
        if k != 'input': expect(f'echo of {k}', a.get(k), v)
    a = ok(url, '/v1/responses', {'input': 'hi', 'max_output_tokens': 1, 'reasoning': {'effort': 'low'}, 'text': {'verbosity': 'low'}}) or {}
    expect('echo of reasoning, text', (a.get('reasoning'), a.get('text')),
           ({'effort': 'low', 'summary': None}, {'format': {'type': 'text'}, 'verbosity': 'low'}))
    for k in ('background', 'conversation', 'error', 'incomplete_details', 'instructions', 'max_output_tokens', 'metadata', 'model',
              'parallel_tool_calls', 'previous_response_id', 'prompt', 'reasoning', 'service_tier', 'store', 'temperature', 'text',
              'tool_choice', 'tools', 'top_logprobs', 'top_p', 'truncation', 'user', 'completed_at', 'usage'):
        if k not in a: fault(f'/v1/responses: {k} is missing')
    told = ask(url, '/v1/responses', {'input': 'hi', 'max_output_tokens': 2, 'stream': True, 'return_progress': True, 'timings_per_token': True})[1]
    expect('progress and times', ['"prompt_progress":{' in told, told.count('"timings":{') > 1], [True, True])
    expect('defaults', [a.get(k) for k in ('background', 'store', 'service_tier', 'truncation')], [False, False, 'default', 'disabled'])
    if not isinstance(a.get('temperature'), float): fault(f'temperature {a.get("temperature")}')


def other_tools(url, log):
    """Tools and items that only other servers support."""
    function = {'type': 'function', 'name': 'f', 'parameters': {'type': 'object', 'properties': {}}}
    space = {'type': 'namespace', 'name': 'mcp', 'description': 'd', 'tools': [{**function, 'name': 'g'}, {'type': 'custom', 'name': 'c'}]}
    others = [{'type': t} for t in ('web_search', 'local_shell', 'code_interpreter', 'image_generation', 'file_search', 'shell')]
    base = {'input': 'hi', 'max_output_tokens': 60, 'temperature': 0}
    ok(url, '/v1/responses', {**base, 'max_output_tokens': 2, 'tools': [function, space, *others, {'type': 'mcp', 'server_label': 'x'}]})
    with open(log.name) as f: text = f.read()
    for word in ('web_search', 'custom', 'mcp'):
        if not re.search(f'ignored.*{word}', text): fault(f'the log does not say that {word} is ignored')
    for choice in ({'type': 'function', 'name': 'g'}, {'type': 'function', 'name': 'g', 'namespace': 'mcp'}):
        a = ok(url, '/v1/responses', {**base, 'tools': [function, space], 'tool_choice': choice})
        calls = [i for i in (a or {}).get('output', []) if i['type'] == 'function_call']
        expect(f'a call by {choice}', [(c['name'], c.get('namespace')) for c in calls], [('g', 'mcp')])
    refused(url, '/v1/responses', {**base, 'tools': others, 'tool_choice': 'required'}, 'tool_choice', 'no function')
    refused(url, '/v1/responses', {**base, 'tools': others, 'tool_choice': {'type': 'web_search'}}, 'tool_choice', 'web_search')
    items = [{'type': 'web_search_call', 'id': 'w', 'status': 'completed'}, {'type': 'item_reference', 'id': 'x'}, {'type':
             'custom_tool_call', 'call_id': '1', 'name': 'apply_patch', 'input': 'p'}, {'type': 'custom_tool_call_output', 'call_id':
             '1', 'output': 'done'}, {'type': 'compaction', 'encrypted_content': 'x'}, {'role': 'user', 'content': 'hi'}]
    ok(url, '/v1/responses', {'input': items, 'max_output_tokens': 1})
    m = {'messages': [{'role': 'user', 'content': 'hi'}], 'max_tokens': 2}
    own = [{'type': 'web_search_20250305', 'name': 'web_search'}, {'type': 'bash_20250124', 'name': 'bash'}, {'type':
           'text_editor_20250728', 'name': 'str_replace_based_edit_tool'}, {'type': 'computer_20250124', 'name': 'computer'}]
    ok(url, '/v1/messages', {**m, 'tools': [*own, {'name': 'f', 'input_schema': {'type': 'object'}}], 'tool_choice': {'type': 'auto'}})
    refused(url, '/v1/messages', {**m, 'tools': own, 'tool_choice': {'type': 'any'}}, 'tool_choice', 'no function')
    a = ok(url, '/v1/messages', {**m, 'max_tokens': 60, 'tools': [*own, {'name': 'f', 'input_schema': {'type': 'object', 'properties': {}}}],
                                 'tool_choice': {'type': 'tool', 'name': 'f', 'disable_parallel_tool_use': True}})
    expect('a call of /v1/messages', [(b['type'], b.get('name')) for b in (a or {}).get('content', [])], [('tool_use', 'f')])


def content(url):
    """Documents and media: the token counts show the prompt's content."""
    def tokens(path, body): return (ok(url, path, body) or {}).get('input_tokens', 0)
    image = {'type': 'image', 'source': {'type': 'base64', 'media_type': 'image/png', 'data': 'eA=='}}
    text = lambda t: {'type': 'document', 'source': {'type': 'text', 'media_type': 'text/plain', 'data': t}}
    def user(*blocks): return {'messages': [{'role': 'user', 'content': list(blocks)}], 'max_tokens': 1}
    count = '/v1/messages/count_tokens'
    words = 'one two three four five six seven eight nine ten'
    short, long = tokens(count, user(text('one'))), tokens(count, user(text(words)))
    if not short + 8 < long: fault(f'documents: {short} and {long} tokens')
    coded = {'type': 'document', 'source': {'type': 'base64', 'media_type': 'text/plain', 'data': base64.b64encode(words.encode()).decode()}}
    expect('a document in base64', tokens(count, user(coded)), long)
    refused(url, '/v1/messages', user(image), 'messages', 'image')
    refused(url, '/v1/messages', user({'type': 'document', 'source': {'type': 'base64', 'media_type': 'application/pdf', 'data': 'eA=='}}),
            'messages', 'PDF')
    call = {'role': 'assistant', 'content': [{'type': 'tool_use', 'id': '1', 'name': 'f', 'input': {}}]}
    def result(c): return {'messages': [{'role': 'user', 'content': 'hi'}, call, {'role': 'user', 'content': [{'type': 'tool_result',
                           'tool_use_id': '1', 'content': c}]}], 'max_tokens': 1}
    expect('an image in a result', tokens(count, result([image])), tokens(count, result('[image ' + NOTE)))
    ok(url, '/v1/messages', result([image]))
    items = lambda out: {'input': [{'role': 'user', 'content': 'hi'}, {'type': 'function_call', 'call_id': '1', 'name': 'f', 'arguments': '{}'},
                                   {'type': 'function_call_output', 'call_id': '1', 'output': out}], 'max_output_tokens': 1}
    count = '/v1/responses/input_tokens'
    expect('an image in an output', tokens(count, items([{'type': 'input_image', 'image_url': 'data:image/png;base64,eA=='}])),
           tokens(count, items('[image ' + NOTE)))
    refused(url, '/v1/responses', {'input': [{'role': 'user', 'content': [{'type': 'input_image', 'image_url': 'x'}]}]}, 'input', 'image')
    chat = lambda c: {'messages': [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'tool_calls': [{'id': '1', 'type': 'function',
                      'function': {'name': 'f', 'arguments': '{}'}}]}, {'role': 'tool', 'tool_call_id': '1', 'content': c}], 'max_tokens': 1}
    ok(url, '/v1/chat/completions', chat([{'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,eA=='}}]))
    ok(url, '/v1/messages', {'max_tokens': 1, 'messages': [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'yo'},
                             {'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'who'}]})


def numbers(url):
    """Seeds, partial characters, stop strings, alternative tokens."""
    texts = {}
    for path, base in BODIES.values():
        for seed in (-5, -2**63, 2**63 - 1, -1, 7): ok(url, path, {**base, 'seed': seed})
        for seed in (2**64 - 1, -2**63 - 1): refused(url, path, {**base, 'seed': seed}, 'seed', 'seed')
    for seed in (-5, -6):
        texts[seed] = [ok(url, '/v1/completions', {'prompt': 'Once', 'max_tokens': 12, 'seed': seed})['choices'][0]['text'] for _ in range(2)]
    expect('one seed, one text', [len(set(t)) for t in texts.values()], [1, 1])
    if texts[-5] == texts[-6]: fault('two negative seeds give one text')
    p = ok(url, '/v1/completions', {'prompt': 'x', 'max_tokens': 4, 'temperature': 0, 'logprobs': 2, 'grammar': 'root ::= "\u65e5\u672c \U0001f60a\xe9"'})
    p = p['choices'][0]['logprobs']
    for token, own, top in zip(p['tokens'], p['token_logprobs'], p['top_logprobs']):
        expect(f'{token} among its alternatives', top.get(token), own)
    expect('parts of characters', p['tokens'], ['bytes:\\xe6', 'bytes:\\x97', 'bytes:\\xa5', 'bytes:\\xe6'])
    expect('their alternatives', [len(t) for t in p['top_logprobs']][::3], [2, 2])
    a = ok(url, '/v1/completions', {'prompt': 'x', 'max_tokens': 8, 'grammar': 'root ::= "abcdef"', 'stop': [f'{i:05}' for i in range(4000)] + ['de']})
    expect('many stop strings', a and a['choices'][0]['text'], 'abc')
    refused(url, '/v1/completions', {'prompt': 'x', 'stop': ['x' * 4000] * 20}, 'stop', '65536')
    refused(url, '/v1/completions', {'prompt': 'x', 'stop_token_ids': [1] * 4097}, 'stop_token_ids', '4096')
    refused(url, '/completion', {'prompt': 'x', 'dry_sequence_breakers': ['x'] * 257}, 'dry_sequence_breakers', '256')
    refused(url, '/completion', {'prompt': 'x', 'logit_bias': [[1, 1]] * 300000}, 'logit_bias', 'name each token once')
    refused(url, '/completion', {'prompt': 'x', 'logit_bias': [['two words', 1]] * 50000}, 'logit_bias', 'name each token once')
    a = ok(url, '/completion', {'prompt': 'x', 'n_predict': 2, 'n_probs': 300})
    expect('n_probs', a and [len(t['top_logprobs']) for t in a['completion_probabilities']], [300, 300])
    refused(url, '/completion', {'prompt': 'x', 'n_predict': 2000, 'n_probs': 300}, 'logprobs', 'max_tokens')


def packages(url):
    """Structured output through the anthropic and openai packages' own parsers."""
    used = []
    if importlib.util.find_spec('anthropic'):
        import anthropic, pydantic
        class A(pydantic.BaseModel): a: bool
        c = anthropic.Anthropic(base_url=url, api_key='x')
        k = {'model': 'm', 'max_tokens': 40, 'messages': [{'role': 'user', 'content': 'Yes or no?'}], 'extra_body': {'temperature': 0}}
        if hasattr(c.messages, 'parse'):
            expect('anthropic, parse', type(c.messages.parse(**k, output_format=A).parsed_output), A)
            used.append('anthropic')
    if importlib.util.find_spec('openai'):
        import openai, pydantic
        class B(pydantic.BaseModel): a: bool
        c = openai.OpenAI(base_url=url + '/v1', api_key='x')
        r = c.responses.parse(model='m', input='Yes or no?', max_output_tokens=40, temperature=0, text_format=B)
        expect('openai, responses.parse', (type(r.output_parsed), r.text.format.type, r.background), (B, 'json_schema', False))
        with c.responses.stream(model='m', input='hi', max_output_tokens=3) as s: kinds = [e.type for e in s]
        expect('openai, a stream', (kinds[0], kinds[-1] in ('response.completed', 'response.incomplete')), ('response.created', True))
        used.append('openai')
    return used


def main():
    if not CHAT:
        print('no chat model (PAGEDINFER_CHAT_MODEL)')
        return 77
    p, log, url = start('--chat-template', TOOL_TEMPLATE)
    try:
        d = ok(url, '/openapi.json', None)
        if '--write' in sys.argv:
            with open(DOC, 'w') as f: f.write(page_of(d))
            return 0
        description(d)
        each_field(url, d)
        structured(url)
        echoes(url)
        content(url)
        numbers(url)
        other_tools(url, log)
        used = packages(url)
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait(30)
    print(f'fields: {sum(len(b["properties"]) for n, b in d["components"]["schemas"].items() if n in TITLES)} rows, '
          f'{", ".join(used) or "no packages"}, {len(faults)} faults')
    return 1 if faults else 0


sys.exit(main())
