#!/usr/bin/env python3
"""Checks the cost of structured output in pagedinfer serve, with a tiny random model.

1. Long lists of values, of every kind and by every field; limits that no answer can reach; the codes of errors.
2. A constraint with slow masks next to short requests: all end, each with the same answer as in a batch of one.
3. Clients that disconnect while a mask is computed; the server shuts down while one is computed.
Exit 77: there is no server, or no tiny model."""
import json, os, subprocess, sys, tempfile, threading

import check_server as base
from check_server import Server, ask, connect, expect, fault, request

C = '/v1/completions'
SLOW = '|'.join('[^0-9]{9,%d}%d' % (500 + i, i) for i in range(2000))  # 2000 alternatives make each mask slow
QUICK = {'type': 'object', 'properties': {'a': {'type': 'string', 'maxLength': 9}}, 'required': ['a']}


def body(**more): return {'prompt': 'ab', 'max_tokens': 24, 'temperature': 1, 'seed': 5, **more}


def answer(s, b):
    status, _, got = ask(s, C, b)
    if status != 200: fault(f'{str(b)[:100]}: {status} {got}')
    return got['choices'][0] if status == 200 else None


def long_lists(s):
    n = 20000
    texts = [f'value {i * 7919 % 100003}' for i in range(n)]
    for what, more, valid in [
            ('texts', {'json_schema': {'enum': texts}}, lambda t: json.loads(t) in texts),
            ('numbers', {'json_schema': {'enum': list(range(1, n))}}, lambda t: 1 <= json.loads(t) < n),
            ('objects', {'json_schema': {'enum': [{'a': i, 'b': [i]} for i in range(n)]}}, lambda t: json.loads(t)['a'] < n),
            ('choices', {'guided_choice': texts}, lambda t: t in texts),
            ('the same value', {'json_schema': {'enum': ['x'] * n}}, lambda t: json.loads(t) == 'x')]:
        got = answer(s, body(**more))
        if got and got['finish_reason'] == 'stop' and not valid(got['text']): fault(f'{what}: {got["text"]!r}')


def limits(s):
    for k in 100001, 10 ** 6, 10 ** 9, 2 ** 31 - 1, 2 ** 32, 10 ** 18:
        for schema in {'type': 'string', 'maxLength': k}, {'type': 'array', 'items': {'type': 'null'}, 'maxItems': k}, \
                {'type': 'string', 'pattern': '^[a-z]{0,%d}$' % k}:
            answer(s, body(json_schema=schema))
    answer(s, body(grammar='root ::= "a"{0,4000000000}'))
    answer(s, body(guided_regex='(ab|c){0,99999999999}'))
    for more in [{'json_schema': {'type': 'string', 'minLength': 10 ** 12}}, {'guided_regex': 'a{99999999}'},
                 {'json_schema': {'type': 'array', 'items': {'type': 'null'}, 'minItems': 10 ** 12}},
                 {'grammar': 'root ::= ' + ' | '.join(f'r{i}' for i in range(9000)) +
                  ''.join(f'\nr{i} ::= [a-z]+ "{i}"' for i in range(9000))}]:
        status, _, got = ask(s, C, body(**more))
        expect(f'{str(more)[:60]}: status and code', (status, got['error']['code']), (400, None))


def slow_masks(s):
    slow, quick = body(guided_regex=SLOW), [body(json_schema=QUICK, seed=i) for i in range(8)]
    want_slow, want = answer(s, slow), [answer(s, b) for b in quick]
    s.end()
    s = Server(s.model, *s.flags)
    got = []
    t = threading.Thread(target=lambda: got.append(answer(s, slow)))
    t.start()
    for b, w in zip(quick, want): expect('a short request next to slow masks', answer(s, b), w)
    t.join()
    expect('the request with slow masks', got[0], want_slow)
    for i in range(6):  # each constraint is a new one, so its masks are not cached yet
        b = json.dumps(body(guided_regex=SLOW + '|x%d' % i)).encode()
        with connect(s) as c: c.sendall(request('POST', C, b))
    expect('a short request after clients left', answer(s, quick[0]), want[0])
    b = json.dumps(body(guided_regex=SLOW + '|y')).encode()
    with connect(s) as c:
        c.sendall(request('POST', C, b))
        s.end()


def main():
    maker = base.tiny_maker()
    if not maker: return 77
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'tiny.gguf')
        subprocess.run([maker, model, '32768'], check=True)
        flags = ['-c', '2048', '--kv-cache-tokens', '8192', '--parallel', '4', '-t', '1']
        s = Server(model, *flags)
        s.model, s.flags = model, flags
        long_lists(s)
        limits(s)
        slow_masks(s)
    print(f'masks: {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
