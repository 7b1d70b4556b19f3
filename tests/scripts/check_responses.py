#!/usr/bin/env python3
"""Checks stored responses of pagedinfer serve (--response-store), with a tiny random model.

1. A request with previous_response_id has the prompt and the answer of one with the complete conversation, also as a
   stream, after a restart of the chain, and for token counts.
2. GET returns the response, DELETE removes it; store: false keeps it out.
3. A key neither reads, continues nor deletes another key's responses.
4. The store has at most N responses, and at most its bytes.
5. PyPI's openai package, if it is installed or can be installed.
Exit 77: there is no server, or no tiny model."""
import json, os, subprocess, sys, tempfile

import check_server as base
from check_server import HERMES, Server, ask, events, expect, fault, have

R = '/v1/responses'
A, B = ('Authorization: Bearer %s\r\n' % k for k in ('alice-key', 'bob-key'))
BASE = {'temperature': 0, 'max_output_tokens': 6}


def make(s, key, **body):
    status, _, got = ask(s, R, {**BASE, **body}, key)
    if status != 200: fault(f'{str(body)[:200]}: {status} {str(got)[:300]}')
    return got


def text_of(r): return ''.join(c['text'] for i in r['output'] for c in i.get('content', []) if c['type'] == 'output_text')


def items_of(r): return [{'role': 'assistant', 'content': text_of(r)}]


def continued(s):
    one = make(s, A, input='first', instructions='Be brief.')
    expect('fields', (one['store'], one['previous_response_id']), (True, None))
    two = make(s, A, input='second', previous_response_id=one['id'])
    whole = [{'role': 'user', 'content': 'first'}, *items_of(one), {'role': 'user', 'content': 'second'}]
    same = make(s, A, input=whole, store=False)
    expect('the second turn', (text_of(two), two['usage']['input_tokens']), (text_of(same), same['usage']['input_tokens']))
    expect('its fields', (two['previous_response_id'], same['store'], same['previous_response_id']), (one['id'], False, None))
    if two['usage']['input_tokens'] <= one['usage']['input_tokens']: fault('the conversation does not grow')
    stream = events(ask(s, R, {**BASE, 'input': [{'role': 'user', 'content': 'third'}], 'previous_response_id': two['id'], 'stream': True}, A)[2])
    last = stream[-1]['response']
    whole += [*items_of(two), {'role': 'user', 'content': 'third'}]
    same = make(s, A, input=whole, store=False)
    expect('a stream', (text_of(last), last['usage']['input_tokens'], last['previous_response_id']), (text_of(same), same['usage']['input_tokens'], two['id']))
    expect('the start of a stream', stream[0]['response']['previous_response_id'], two['id'])
    kept = ask(s, f'{R}/{last["id"]}', None, A)
    expect('GET of a stream', (kept[0], kept[2]), (200, last))
    branch = make(s, A, input='other', previous_response_id=one['id'])  # a response can be continued twice
    same = make(s, A, input=[*whole[:2], {'role': 'user', 'content': 'other'}], store=False)
    expect('a branch', text_of(branch), text_of(same))
    count = ask(s, R + '/input_tokens', {'input': 'second', 'previous_response_id': one['id']}, A)[2]
    expect('a count', count.get('input_tokens'), two['usage']['input_tokens'])
    expect('a count of an unknown one', ask(s, R + '/input_tokens', {'input': 'x', 'previous_response_id': 'resp_x'}, A)[0], 400)
    # calls of tools are part of the conversation
    call = [{'type': 'function_call', 'call_id': 'c', 'name': 'f', 'arguments': '{}'}, {'type': 'function_call_output', 'call_id': 'c', 'output': 'seven'}]
    tool = make(s, A, input=[{'role': 'user', 'content': 'first'}, *call])
    expect('items', text_of(make(s, A, input='x', previous_response_id=tool['id'])),
           text_of(make(s, A, input=[{'role': 'user', 'content': 'first'}, *call, *items_of(tool), {'role': 'user', 'content': 'x'}])))


def read_and_deleted(s):
    one = make(s, A, input='first')
    path = f'{R}/{one["id"]}'
    expect('GET', ask(s, path, None, A)[::2], (200, one))
    expect('another path', ask(s, f'/responses/{one["id"]}', None, A)[0], 404)
    status, h, _ = ask(s, path, {}, A)
    expect('a wrong method, and the methods of the path', (status, h.get('allow')), (405, 'GET, HEAD, DELETE, OPTIONS'))
    expect('DELETE', ask(s, path, None, A, 'DELETE')[::2], (200, {'id': one['id'], 'object': 'response', 'deleted': True}))
    expect('after it', (ask(s, path, None, A)[0], ask(s, path, None, A, 'DELETE')[0]), (404, 404))
    status, _, got = ask(s, R, {**BASE, 'input': 'x', 'previous_response_id': one['id']}, A)
    expect('a deleted one', (status, got['error']['param']), (400, 'previous_response_id'))
    hidden = make(s, A, input='x', store=False)
    expect('store: false', ask(s, f'{R}/{hidden["id"]}', None, A)[0], 404)
    for bad in 'x' * 200, '%00', '..', 'resp_0': expect(f'id {bad[:9]}', ask(s, f'{R}/{bad}', None, A)[0], 404)
    for bad in 'x' * 500, 5, {'a': 1}, 'a\0b':
        status = ask(s, R, {**BASE, 'input': 'x', 'previous_response_id': bad}, A)[0]
        expect(f'previous {str(bad)[:9]}', status, 400)
    expect('no input', ask(s, R, {**BASE, 'previous_response_id': hidden['id'], 'input': 5}, A)[0], 400)
    expect('the body', ask(s, R, [1], A)[0], 400)


def separated(s):
    one = make(s, A, input='secret')
    path = f'{R}/{one["id"]}'
    expect("another key's GET", ask(s, path, None, B)[0], 404)
    expect("another key's DELETE", ask(s, path, None, B, 'DELETE')[0], 404)
    theirs, absent = (ask(s, R, {**BASE, 'input': 'x', 'previous_response_id': i}, B) for i in (one['id'], 'resp_' + '0' * 24))
    expect("another key's turn", (theirs[0], theirs[2]['error']['message'].replace(one['id'], 'ID')), (400, absent[2]['error']['message'].replace('resp_' + '0' * 24, 'ID')))
    expect('no key', ask(s, path)[0], 401)
    expect('the owner', ask(s, path, None, A)[0], 200)


def limits(model):
    s = Server(model, '-c', '2048', '--chat-template', HERMES, '--response-store', '3', '--response-store-bytes', '65536')
    ids = [make(s, '', input=f'n{i}')['id'] for i in range(3)]
    expect('used', ask(s, f'{R}/{ids[0]}')[0], 200)
    ids.append(make(s, '', input='n3')['id'])
    expect('the least recently used is dropped', [ask(s, f'{R}/{i}')[0] for i in ids], [200, 404, 200, 200])
    m = s.metrics()
    expect('metrics', (m['pagedinfer:stored_responses'], 1000 < m['pagedinfer:stored_response_bytes'] <= 65536), (3, True))
    big = make(s, '', input='x', metadata={'k': 'y' * 40000})
    expect('a large one', (ask(s, f'{R}/{big["id"]}')[0], s.metrics()['pagedinfer:stored_response_bytes'] <= 65536), (200, True))
    huge = make(s, '', input='x', metadata={'k': 'y' * 90000})
    expect('a too large one', ask(s, f'{R}/{huge["id"]}')[0], 404)
    if 'is not stored' not in s.text(): fault('the log does not say that a response is not stored')
    s.end()
    s = Server(model, '-c', '2048', '--chat-template', HERMES)  # without the option
    one = make(s, '', input='x')
    status, _, got = ask(s, R, {**BASE, 'input': 'x', 'previous_response_id': one['id']})
    expect('without a store', (one['store'], ask(s, f'{R}/{one["id"]}')[0], status, '--response-store' in got['error']['message']), (False, 404, 400, True))
    s.end()


def package(s):
    if not have('openai'): return 'no openai package'
    import openai
    c = openai.OpenAI(base_url=s.url + '/v1', api_key='alice-key')
    one = c.responses.create(model='m', input='first', max_output_tokens=4, temperature=0)
    two = c.responses.create(model='m', input='second', previous_response_id=one.id, max_output_tokens=4, temperature=0)
    expect('openai: retrieve', (c.responses.retrieve(two.id).output_text, c.responses.retrieve(two.id).previous_response_id), (two.output_text, one.id))
    c.responses.delete(one.id)
    try:
        c.responses.retrieve(one.id)
        fault('openai: a deleted response')
    except openai.NotFoundError: pass
    return 'with the openai package'


def main():
    maker = base.tiny_maker()
    if not maker: return 77
    with tempfile.TemporaryDirectory() as folder:
        model, keys = os.path.join(folder, 'tiny.gguf'), os.path.join(folder, 'keys')
        subprocess.run([maker, model, '4096'], check=True)
        with open(keys, 'w') as f: f.write('alice-key alice\nbob-key bob\n')
        s = Server(model, '-c', '2048', '--chat-template', HERMES, '--response-store', '100', '--api-key-file', keys)
        for part in continued, read_and_deleted, separated: part(s)
        how = package(s)
        s.end()
        limits(model)
    print(f'stored responses: {how}, {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
