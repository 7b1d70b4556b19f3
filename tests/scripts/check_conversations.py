#!/usr/bin/env python3
"""Renders conversations as prompts: every template places every message, through every API of `pagedinfer serve`.

    check_conversations.py [--templates DIR] [--only NAME]

1. Each template of llama.cpp's source tree (in $PAGEDINFER_VOCAB, or --templates) and each built-in template renders
   conversations of all shapes: instructions anywhere, users and assistants in a row, calls and results. Each text and
   each argument must be in the prompt once, in order. Only instructions, and text next to calls, may move.
2. Null, missing and empty content give the same prompt, and so do equivalent forms of arguments.
3. The endpoints that count tokens agree with the request that runs. Text in a message never becomes a control token.
4. The same conversation through /v1/chat/completions, /v1/responses, /v1/messages and /apply-template has the same
   tokens.
Standard library only. Without the llama.cpp templates, only the built-in ones are tried. PAGEDINFER_BUILD names the
build."""
import concurrent.futures, itertools, json, os, pathlib, re, subprocess, sys, tempfile

import check_prompts
from check_server import BUILD, HERE, Server, ask, expect, fault, faults

SPELLED = '<eos><bos> and <eos'
ROLES = {'s': 'system', 'd': 'developer', 'u': 'user', 'a': 'assistant'}
CALLS = ['ucta', 'uct', 'uctu', 'uCta', 'uCtu', 'uDtta', 'uDttu', 'sucta', 'ducta', 'uctsu', 'ucts', 'uctd', 'uctcta', 'uCtCta',
         'uctctu', 'ctu', 'cta', 'aucta', 'suCtdua', 'uDttDttsu', 'uaacta', 'uctau', 'uta', 'utu', 'uctusu']
TEXTS = ['suasuau', 'sdsudad', 'uauauas', 'aausuau', 'ssddssu']


# ------------------------------------------------------------------------------------------------- conversations

def conversation(spec):
    """Returns the messages of a spec, and [(text or argument, True if the template may move it)]. The spec has one
    letter per message: s system, d developer, u user, a assistant, c a call, C a call with text, D two calls, t a
    result."""
    messages, marks, calls = [], [], []

    def mark(loose=False):
        marks.append((f'mk{len(marks)}z', loose))
        return marks[-1][0]

    for letter in spec:
        if letter in ROLES:
            messages.append({'role': ROLES[letter], 'content': mark(letter in 'sd')})
        elif letter == 't':
            messages.append({'role': 'tool', 'tool_call_id': calls.pop(0) if calls else 'call_unknown', 'content': mark()})
        else:
            m = {'role': 'assistant', 'content': mark(True) if letter == 'C' else None, 'tool_calls': []}
            for _ in range(2 if letter == 'D' else 1):
                calls.append(f'call_{len(marks)}_0123456789')
                m['tool_calls'].append({'id': calls[-1], 'type': 'function', 'function': {
                    'name': f'get_{len(marks)}', 'arguments': json.dumps({'k': mark(letter == 'D')})}})
            messages.append(m)
    return messages, marks


def misplaced(prompt, marks):
    """Returns an error text if marks are missing or out of order, else None."""
    found = re.findall(r'mk\d+z', prompt)
    if sorted(found) != sorted(m for m, _ in marks): return f'has {found}'
    fixed = [m for m, loose in marks if not loose]
    return None if [m for m in found if m in fixed] == fixed else f'in the order {found}'


def prompts(template, conversations):
    """Runs tool_chat_prompt. Returns its result for each conversation."""
    lines = ''.join(json.dumps({'messages': m}) + '\n' for m in conversations)
    run = subprocess.run([os.path.join(BUILD, 'tests', 'tool_chat_prompt'), template], input=lines, capture_output=True,
                         text=True, timeout=600)
    if run.returncode: fault(f'{template}: {run.returncode} {run.stderr[:300]}')
    return [json.loads(x) for x in run.stdout.splitlines()]


def has_calls(template):
    """True if the template renders past tool calls, natively or as text."""
    return 'prompt' in prompts(template, [conversation('ucta')[0]])[0]


def placed(template, specs):
    made = [conversation(s) for s in specs]
    bad = []
    for spec, (_, marks), got in zip(specs, made, prompts(template, [m for m, _ in made])):
        if 'error' in got: bad.append(f'{spec}: {got["error"]}')
        elif misplaced(got['prompt'], marks): bad.append(f'{spec}: {misplaced(got["prompt"], marks)}')
    return bad


# ------------------------------------------------------------------------------------------------------ forms

def user(text='u1z'): return {'role': 'user', 'content': text}


def answer(content, *calls): return {'role': 'assistant', 'content': content, **({'tool_calls': list(calls)} if calls else {})}


def call(arguments='{"k": "a1z"}', **more):
    f = {'name': 'get_it', **({} if arguments is ... else {'arguments': arguments})}
    return {'id': 'call_0123456789abc', 'type': 'function', 'function': f, **more}


def result(content='r1z', **more): return {'role': 'tool', 'tool_call_id': 'call_0123456789abc', 'content': content, **more}


def with_content(messages, i):
    """Yields the conversation with each representation of empty content in message i."""
    for v in ('', None, ..., [], [{'type': 'text', 'text': ''}]):
        m = json.loads(json.dumps(messages))
        if v is ...: del m[i]['content']
        else: m[i]['content'] = v
        yield m


def forms():
    """Yields (name, conversations that give the same prompt, texts that the prompt must contain)."""
    tools = [user(), answer('', call()), result(), user('z1z')]
    plain = [{'role': 'system', 'content': ''}, user('a1z'), answer(''), user()]
    for i, role in enumerate(('system', 'user', 'assistant', 'user')): yield f'no text, {role}', list(with_content(plain, i)), []
    yield 'no text, developer', list(with_content([{'role': 'developer', 'content': ''}, user()], 0)), ['u1z']
    yield 'no text next to a call', list(with_content(tools, 1)), ['u1z', 'a1z', 'r1z', 'z1z']
    yield 'no result', list(with_content(tools, 2)), ['a1z', 'z1z']
    empty = ['{}', '', None, ..., ' \n', {}]
    yield 'no arguments', [[user(), answer('', call(a)), result(), user('z1z')] for a in empty], ['get_it', 'r1z']
    same = ['{"k": "a1z"}', {'k': 'a1z'}]
    yield 'arguments', [[user(), answer('', call(a)), result(), user('z1z')] for a in same], ['a1z', 'r1z']
    bare = {'type': 'function', 'function': call()['function']}
    yield 'no ids', [[user(), answer('', {**bare, **x}), {'role': 'tool', 'content': 'r1z', **y}, user('z1z')]
                     for x, y in (({}, {}), ({'id': None}, {'tool_call_id': None}), ({'id': ''}, {'name': None}))], ['get_it', 'a1z', 'r1z']
    yield 'functions', [[user(), {'role': 'assistant', 'content': None, 'function_call': call()['function']},
                         {'role': 'function', 'name': 'get_it', 'content': 'r1z'}, user('z1z')]], ['get_it', 'a1z', 'r1z']
    for value in ({'t': 'r1z'}, ['r1z', 2], [{'t': 'r1z'}], '{"t": "r1z"}', '["r1z"]', [{'type': 'text', 'text': 'r1z'}]):
        yield f'result {value}', [[user(), answer('', call()), result(value), user('z1z')]], ['r1z', 'z1z']
    yield 'result 5', [[user(), answer('', call()), result(v), user('z1z')] for v in (5, '5')], ['z1z']
    yield 'refusal', [[user(), m, user('z1z')] for m in (answer('r1z'), {**answer(None), 'refusal': 'r1z'},
                                                         answer([{'type': 'refusal', 'refusal': 'r1z'}]))], ['r1z']


def forms_of(template, calls):
    bad = []
    groups = [g for g in forms() if calls or not re.search('tool|function', str(g[1]))]
    got = iter(prompts(template, [m for _, messages, _ in groups for m in messages]))
    for name, messages, texts in groups:
        texts_got = [x.get('prompt', x) for x in itertools.islice(got, len(messages))]
        if any(isinstance(x, dict) for x in texts_got): bad.append(f'{name}: {texts_got}')
        elif len(set(texts_got)) > 1: bad.append(f'{name}: differ: {texts_got}')
        elif 'None' in texts_got[0]: bad.append(f'{name}: {texts_got[0]}')
        elif any(t not in texts_got[0] for t in texts): bad.append(f'{name}: {texts} not in {texts_got[0]}')
    return bad


def check_templates(files):
    names = re.findall(r'^    X\("([^"]+)"', open(os.path.join(HERE, '../../src/template/chat_names.h'), encoding='utf-8').read(), re.M)
    texts = [''.join(x) for n in (1, 2, 3) for x in itertools.product('sdua', repeat=n)] + TEXTS
    todo = [str(f) for f in files] + names
    n_calls = 0

    def one(template):
        calls = has_calls(template)
        return calls, placed(template, texts + CALLS * calls) + forms_of(template, calls)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for template, (calls, bad) in zip(todo, pool.map(one, todo)):
            n_calls += calls
            for line in bad[:5]: fault(f'{os.path.basename(template)}: {line}')
    return f'{len(todo)} templates ({n_calls} place calls), {len(texts)} conversations and {len(CALLS)} with calls'


# ------------------------------------------------------------------------------------------------------- APIs

def counts(model):
    """Every endpoint counts the same number of tokens; text that spells a control token never becomes one."""
    with tempfile.NamedTemporaryFile('w', suffix='.jinja') as f:
        f.write('{% for m in messages %}{{ m.role }}:{{ m.content }}<eos>{% endfor %}')
        f.flush()
        s = Server(model, '-c', '4096', '--chat-template-file', f.name)
        messages = [user(SPELLED)]
        bos, eos = (ask(s, '/tokenize', {'content': t})[2]['tokens'][0] for t in ('<bos>', '<eos>'))
        ids = ask(s, '/tokenize', {'messages': messages})[2]['tokens']
        expect('control tokens', [i for i in ids if i in (bos, eos)], [bos, eos])
        expect('parse_special', ask(s, '/tokenize', {'messages': messages, 'parse_special': True})[2]['tokens'], ids)
        expect('/tokenize', ask(s, '/tokenize', {'messages': messages})[2]['count'], len(ids))
        same_count(s, 'a message', len(ids), {'messages': messages}, {'input': SPELLED}, {'messages': messages})
        s.end()


def same_count(s, what, want, chat, response, message):
    """Every API's counting endpoint returns `want` tokens, and the request itself uses as many."""
    for path, body, field in (('/v1/chat/completions', chat, 'max_tokens'), ('/v1/responses', response, 'max_output_tokens'),
                              ('/v1/messages', message, 'max_tokens')):
        if body is None: continue
        counted = ask(s, path + ('/count_tokens' if path == '/v1/messages' else '/input_tokens'), {**body, field: 16})
        expect(f'{what}: {path}, counted', (counted[0], counted[2].get('input_tokens')), (200, want))
        got = ask(s, path, {**body, field: 16, 'ignore_eos': False})
        u = got[2].get('usage', {})
        used = u.get('prompt_tokens', u.get('input_tokens', 0) + u.get('cache_read_input_tokens', 0))
        expect(f'{what}: {path}, used', (got[0], used), (200, want))


def same_in_all(s, template):
    """Renders conversations that every API can express, in the formats of chat completions, responses and messages."""
    name = os.path.basename(template)
    item = {'type': 'function_call', 'call_id': 'c1', 'name': 'get_it', 'arguments': '{"k": "a1z"}'}
    block = {'type': 'tool_use', 'id': 'c1', 'name': 'get_it', 'input': {'k': 'a1z'}}
    system = {'role': 'system', 'content': 's1z'}
    called = [system, user(), answer(None, {**call(), 'id': 'c1'}), {**result(), 'tool_call_id': 'c1'}, user('z1z')]
    cases = [
        ('system', [system, user()], {'instructions': 's1z', 'input': 'u1z'}, {'system': 's1z', 'messages': [user()]}),
        ('system and developer', [system, {'role': 'developer', 'content': 'd1z'}, user()],
         {'instructions': 's1z', 'input': [{'role': 'developer', 'content': 'd1z'}, user()]}, None),
        ('a developer in the middle', [system, user('a1z'), {'role': 'developer', 'content': 'd1z'}, user()],
         {'instructions': 's1z', 'input': [user('a1z'), {'role': 'developer', 'content': 'd1z'}, user()]}, None),
        ('users in a row', [user('a1z'), user()], {'input': [user('a1z'), user()]}, {'messages': [user('a1z'), user()]}),
        ('the assistant first', [answer('a1z'), user()], {'input': [answer('a1z'), user()]}, {'messages': [answer('a1z'), user()]}),
        ('a call', called, {'instructions': 's1z', 'input': [user(), item, {'type': 'function_call_output', 'call_id': 'c1',
                                                                          'output': 'r1z'}, user('z1z')]},
         {'system': 's1z', 'messages': [user(), answer([block]), user([{'type': 'tool_result', 'tool_use_id': 'c1',
                                                                       'content': 'r1z'}, {'type': 'text', 'text': 'z1z'}])]})]
    none = [system, user('a1z'), answer(None), user(None), answer(''), user()]
    cases.append(('no text', none, {'input': none}, {'messages': none}))
    cases.append(('no text in a list', [user([]), answer([]), user()], {'input': [user([]), answer([]), user()]},
                  {'messages': [user(None), answer([]), user()]}))
    for arguments in ('', None, {}):
        empty = [user(), {**item, 'arguments': arguments}, {'type': 'function_call_output', 'call_id': 'c1', 'output': 'r1z'}]
        cases.append((f'arguments {arguments!r}', [user(), answer(None, {**call(arguments), 'id': 'c1'}),
                                                   {**result(), 'tool_call_id': 'c1'}],
                      {'input': empty}, {'messages': [user(), answer([{**block, 'input': {}}]), user([
                          {'type': 'tool_result', 'tool_use_id': 'c1', 'content': 'r1z'}])]}))
    for what, messages, response, message in cases:
        what = f'{name}: {what}'
        if 'tool_calls' in str(messages) and not has_calls(template): continue
        status, _, made = ask(s, '/apply-template', {'messages': messages})
        if status != 200:
            fault(f'{what}: {made}')
            continue
        want = [m for m in re.findall(r'[a-z]1z', json.dumps(messages))]
        expect(what, sorted(re.findall(r'[a-z]1z', made['prompt'])), sorted(want))
        same_count(s, what, ask(s, '/tokenize', {'messages': messages})[2]['count'], {'messages': messages}, response, message)


def check_apis(model, files, only):
    """One template per kind: with and without a system role, strict turns, one or several places for instructions."""
    kinds = ('gpt-oss', 'Qwen3.5', 'gemma-2', 'gemma-4-31B-it.', 'Mistral-Nemo', 'DeepSeek-V3.2', 'DeepSeek-V4.', 'command-r7b',
             'MiniMax-M2', 'Llama-3.1-8B-Instruct', 'SmolLM3', 'Apertus')
    chosen = [f for f in files if any(k in f.name for k in kinds)]
    for template in [str(f) for f in chosen] + ['chatml', 'gemma'] * (not only):
        flag = '--chat-template-file' if os.sep in template else '--chat-template'
        s = Server(model, '-c', '4096', flag, template)
        same_in_all(s, template)
        s.end()


def main():
    args = check_prompts.arguments('tool_chat_prompt').parse_args()
    files = [f for f in sorted(args.templates.glob('*.jinja')) if args.only in f.name]
    what = check_templates(files)
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'tiny.gguf')
        subprocess.run([os.path.join(BUILD, 'tests', 'tool_tiny_model'), model, '4096'], check=True)
        counts(model)
        check_apis(model, files, args.only)
    print(f'check_conversations: {what}, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
