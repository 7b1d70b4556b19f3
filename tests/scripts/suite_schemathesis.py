#!/usr/bin/env python3
"""schemathesis (PyPI) against pagedinfer serve: no 5xx, no response that violates its schema.

    suite_schemathesis.py [--openai FILE] [--examples N] [--seed N] [--write]

Generates valid and invalid requests from the server's own /openapi.json. With --openai it also uses OpenAI's published
description (openapi.json of openai/openai-openapi), limited to the paths that the server has. A tiny random model
answers (tests/tool_tiny_model of PAGEDINFER_BUILD). OpenAI's description has no schema for 4xx, so only their status
is checked."""
import argparse, json, os, re, shutil, subprocess, sys, tempfile
import suites

PATHS = ['/chat/completions', '/completions', '/responses', '/embeddings', '/models', '/models/{model}', '/responses/input_tokens']
CHECKS = 'not_a_server_error,response_schema_conformance,content_type_conformance'


def reachable(d):
    """Returns the description with only the server's paths and the schemas that they need."""
    paths = {p: {m: o for m, o in ops.items() if m == 'post' or (p.startswith('/models') and m == 'get')} for p, ops in d['paths'].items() if p in PATHS}
    names, queue = set(), [json.dumps(paths)]
    while queue:
        for kind, name in re.findall(r'#/components/(\w+)/([\w.-]+)', queue.pop()):
            if (kind, name) in names: continue
            names.add((kind, name))
            queue.append(json.dumps(d['components'][kind][name]))
    components = {}
    for kind, name in names: components.setdefault(kind, {})[name] = d['components'][kind][name]
    return {'openapi': d['openapi'], 'info': d['info'], 'paths': paths, 'components': components}


def run(url, schema, folder, o, name):
    path, out = os.path.join(folder, f'{name}.json'), os.path.join(folder, f'{name}.txt')
    with open(path, 'w') as f: json.dump(schema, f)
    program = shutil.which('schemathesis') or os.path.join(os.path.dirname(sys.executable), 'schemathesis')
    command = [program, 'run', path, '--url', url, '--checks', CHECKS, '-n', str(o.examples), '--seed', str(o.seed), '--phases',
               o.phases, '--continue-on-failure', '--no-color', '--warnings', 'off', '--request-timeout', '120',
               '--suppress-health-check', 'all', '--exclude-path', '/lora-adapters', '--exclude-path', '/metrics']
    with open(out, 'w') as f: status = subprocess.run(command, stdout=f, stderr=f, timeout=3600, cwd=folder).returncode
    with open(out) as f: text = f.read()
    cases = re.search(r'(\d+) generated', text)
    failures = re.findall(r'^- (.*)$', text, re.M)
    print(f'{name}: exit {status}, {cases[1] if cases else "?"} requests')
    if status: print(text[-6000:])
    return name, cases[1] if cases else '?', 'none' if not status else str(len(failures))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--openai')
    p.add_argument('--examples', type=int, default=30)
    p.add_argument('--phases', default='fuzzing', help='coverage,fuzzing: takes an hour')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--write', action='store_true')
    o = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, 'tiny.gguf')
        subprocess.run([os.path.join(os.environ['PAGEDINFER_BUILD'], 'tests/tool_tiny_model'), model, '512'], check=True)
        with suites.Server(model, '-n', '16', '--chat-template', suites.TOOL_TEMPLATE) as server:
            rows.append(run(server.url, server.ask('/openapi.json')[1], folder, o, 'own'))
            if o.openai:
                with open(o.openai) as f: published = json.load(f)
                rows.append(run(server.url + '/v1', reachable(published), folder, o, 'OpenAI'))
            if server.p.poll() is not None: rows.append(('the server ended', '', '1'))
    if o.write:
        suites.publish('schemathesis', f'schemathesis 4.32.5, {o.examples} examples for each operation, seed {o.seed}.\n\n' +
                       suites.table(['description', 'requests', '5xx, or outside its schema'], rows))
    return 1 if any(r[2] != 'none' for r in rows) else 0


sys.exit(main())
