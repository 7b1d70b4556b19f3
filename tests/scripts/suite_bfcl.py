#!/usr/bin/env python3
"""BFCL's tool lists (PyPI's bfcl-eval, installed with --no-deps): every list compiles, and every forced call
validates.

    suite_bfcl.py [--write] [--calls N] [--only PART]

Each list goes to /v1/chat/completions with tool_choice required and one token, so that the server builds the prompt
and the grammar. A tiny random model does that (tests/tool_tiny_model of PAGEDINFER_BUILD). For N entries of each file
(default 3; -1: all), PAGEDINFER_CHAT_MODEL generates the complete call. jsonschema checks the arguments; their sense
is not judged."""
import argparse, glob, importlib.util, json, os, subprocess, sys, tempfile
import jsonschema
import suites

TYPES = {'dict': 'object', 'float': 'number', 'tuple': 'array', 'any': None, 'list': 'array', 'String': 'string', 'char': 'string',
         'long': 'integer', 'double': 'number', 'Boolean': 'boolean', 'ArrayList': 'array', 'Array': 'array', 'HashMap': 'object',
         'Hashtable': 'object', 'Queue': 'array', 'Stack': 'array', 'byte': 'integer', 'short': 'integer', 'int': 'integer', 'Bigint':
         'integer', 'any[]': 'array'}


def typed(schema):
    """Converts BFCL's Python and Java types to JSON Schema's, like BFCL's own OpenAI handler."""
    if not isinstance(schema, dict): return schema
    out = {k: {n: typed(s) for n, s in v.items()} if k == 'properties' else typed(v) if k == 'items' else v
           for k, v in schema.items() if k not in ('optional', 'default', 'format', 'maximum')}
    t = schema.get('type')
    if isinstance(t, str):
        out['type'] = TYPES.get(t, t)
        if out['type'] not in ('object', 'array', 'string', 'integer', 'number', 'boolean', 'null'): out['type'] = 'string'
        if TYPES.get(t, t) is None: del out['type']
    return out


def lists():
    """Yields (file, id, tools, question) of every entry with functions."""
    root = importlib.util.find_spec('bfcl_eval').submodule_search_locations[0]
    for path in sorted(glob.glob(os.path.join(root, 'data', 'BFCL_v4_*.json')) + glob.glob(os.path.join(root, 'data/multi_turn_func_doc/*.json'))):
        if 'format_sensitivity' in path: continue # this file names entries of other files
        name, whole = os.path.basename(path)[:-5].removeprefix('BFCL_v4_'), []
        with open(path) as f: entries = [json.loads(line) for line in f if line.strip()]
        for e in entries:
            if e.get('function'): yield name, e['id'], e['function'], e.get('question')
            elif 'parameters' in e: whole.append(e)
        if whole: yield name, name, whole, None


def valid(tools, call):
    """Returns an error text if a call does not match its function's schema, else None."""
    try:
        schema = next(t['function']['parameters'] for t in tools if t['function']['name'] == call['function']['name'])
        jsonschema.validate(json.loads(call['function']['arguments']), schema)
    except Exception as e: return f'{call["function"]}: {type(e).__name__} {str(e)[:200]}'


def requests(only):
    for name, key, functions, question in lists():
        if only not in name: continue
        tools = [{'type': 'function', 'function': {**f, 'name': f['name'].replace('.', '_'), 'parameters': typed(f['parameters'])}}
                 for f in functions]
        yield name, key, {'messages': [{'role': 'user', 'content': str(question)[:300]}], 'tools': tools, 'tool_choice': 'required',
                          'temperature': 0, 'parallel_tool_calls': False}


def compile_all(o, counts, faults):
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, 'tiny.gguf')
        subprocess.run([os.path.join(os.environ['PAGEDINFER_BUILD'], 'tests/tool_tiny_model'), model, '65536'], check=True)
        with suites.Server(model, '-c', '65536', '--chat-template', suites.TOOL_TEMPLATE) as s:
            for name, key, ask in requests(o.only):
                c = counts.setdefault(name, {'lists': 0, 'compiled': 0, 'empty': 0, 'calls': 0, 'valid': 0})
                c['lists'] += 1
                text = json.dumps(ask['tools'], sort_keys=True)
                status, a = (200, None) if text in seen else s.ask('/v1/chat/completions', {**ask, 'max_tokens': 1})
                seen.add(text)
                # No value meets some schemas, for example a required array that is one of several strings. No call can
                # be forced then.
                empty = status == 400 and 'allows no text' in a['error']['message']
                c['compiled'] += status == 200
                c['empty'] += empty
                if status != 200 and not empty: faults.append(f'{key}: {status} {str(a)[:300]}')
    return len(seen)


def call_some(o, counts, faults):
    with suites.Server(os.environ['PAGEDINFER_CHAT_MODEL'], '-c', '16384', '--chat-template', suites.TOOL_TEMPLATE) as s:
        for name, key, ask in requests(o.only):
            c = counts[name]
            if 0 <= o.calls <= c['calls']: continue
            status, a = s.ask('/v1/chat/completions', {**ask, 'max_tokens': 300})
            if status != 200 or a['choices'][0]['finish_reason'] == 'length': continue
            for call in a['choices'][0]['message'].get('tool_calls', []):
                why = valid(ask['tools'], call)
                c['calls'] += 1
                c['valid'] += not why
                if why: faults.append(f'{key}: {why}')


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--write', action='store_true')
    p.add_argument('--calls', type=int, default=3)
    p.add_argument('--only', default='')
    o = p.parse_args()
    counts, faults = {}, []
    different = compile_all(o, counts, faults)
    if o.calls: call_some(o, counts, faults)
    for f in faults[:30]: print(f)
    total = {k: sum(c[k] for c in counts.values()) for k in ('lists', 'compiled', 'empty', 'calls', 'valid')}
    print(f'bfcl: {total["compiled"]} of {total["lists"]} tool lists ({different} different ones) compile, {total["empty"]} are met by no value, {total["valid"]} of '
          f'{total["calls"]} forced calls are valid, {len(faults)} faults')
    if o.write:
        rows = [(n, *c.values()) for n, c in counts.items()] + [('all', *total.values())]
        suites.publish('bfcl', f'Tool lists of bfcl-eval 2026.3.23 ({different} different ones), with `tool_choice` required. SmolLM2 135M '
                       'makes a sample of the calls; a call that exceeds 300 tokens is not counted.\n\n' +
                       suites.table(['file', 'lists', 'compile', 'met by no value', 'forced calls', 'valid'], rows))
    return 1 if faults else 0


sys.exit(main())
