#!/usr/bin/env python3
"""llama.cpp's own server tests against pagedinfer serve, through a program that takes llama-server's arguments.

    suite_llama_server.py --llama DIR [--write] [--only WORD] [FILE...]

DIR: a checkout of llama.cpp. The models that its tests name are not fetched: every one is replaced by
PAGEDINFER_CHAT_MODEL, so that a test which knows its model's words, or its number of tokens, fails; those are counted
apart. Options that have no meaning here are dropped. Needs pytest, requests, openai, aiohttp, filelock, numpy, wget and
prometheus-client. The result of each test, and why it failed, goes to standard output."""
import argparse, os, re, shutil, subprocess, sys, tempfile, xml.etree.ElementTree as tree
import suites

FILES = ['basic', 'chat_completion', 'compat_anthropic', 'compat_oai_responses', 'completion', 'ctx_shift', 'embedding', 'ignore_eos',
         'infill', 'rerank', 'security', 'slot_save', 'speculative', 'stream', 'template', 'tokenize', 'tool_call']
# What a test says that is about its own model, which is not here: its words, its number of tokens, its kind.
MODEL = re.compile(r'match_regex|re\.search|n_prompt|prompt_tokens|tokens_evaluated|prompt_n|cached|input_tokens|n_embd|no classifier|len\(res|'
                   r'embedding|FIM|fill|infill|logprob|timings|slots?\b|predicted_n|stories|tinyllama|content.*==|text.*==|n_vocab|tokens_predicted')
WRAPPER = r'''#!/usr/bin/env python3
import os, sys
one = {'--hf-repo': '--model', '--hf-file': None, '--model-url': None, '--mmproj-url': None, '--tags': None, '--sleep-idle-seconds': None,
       '--model-draft': None, '--spec-draft-n-max': None, '--spec-draft-n-min': None, '--spec-type': None, '--slot-save-path': None,
       '--lora': None, '--cors-origins': None, '--models-dir': None, '--models-max': None, '--media-path': None, '--seed': '--seed'}
none = {'--offline', '--no-mmproj', '--kv-unified', '--swa-full', '--context-shift', '--no-cache-idle-slots', '--no-ui', '--backend_sampling',
        '--embedding', '--verbose', '--reranking'}
out, args, i = [], sys.argv[1:], 0
while i < len(args):
    if args[i] in none: i += 1
    elif args[i] in one:
        if one[args[i]] == '--model': out += ['--model', os.environ['SUITE_MODEL']]
        elif one[args[i]]: out += args[i:i + 2]
        i += 2
    else:
        out.append(args[i])
        i += 1
os.execv(os.environ['SUITE_PROGRAM'], [os.environ['SUITE_PROGRAM'], *out, '-t', '1'])
'''


def prepare(o, folder):
    """The tests, with local models and short waits."""
    tests = os.path.join(folder, 'tests')
    shutil.copytree(os.path.join(o.llama, 'tools/server/tests'), tests)
    path = os.path.join(tests, 'utils.py')
    with open(path) as f: text = f.read()
    text, n = re.subn(r'(def load_all\(\) -> None:\n)', r'\1        return\n', text)
    if n != 1: raise SystemExit('this checkout of llama.cpp has other tests: utils.py has no load_all')
    with open(path, 'w') as f: f.write(text)
    wrapper = os.path.join(folder, 'llama-server')
    with open(wrapper, 'w') as f: f.write(WRAPPER)
    os.chmod(wrapper, 0o755)
    # Templates are read from ../../../models.
    os.makedirs(os.path.join(folder, 'x/y'), exist_ok=True)
    shutil.move(tests, os.path.join(folder, 'x/y/tests'))
    os.symlink(os.path.join(os.path.abspath(o.llama), 'models'), os.path.join(folder, 'models'))
    return os.path.join(folder, 'x/y/tests'), wrapper


def run(o, tests, wrapper, name):
    build = os.environ['PAGEDINFER_BUILD']
    xml = os.path.join(tests, f'{name}.xml')
    env = {**os.environ, 'LLAMA_SERVER_BIN_PATH': wrapper, 'SUITE_MODEL': os.environ['PAGEDINFER_CHAT_MODEL'], 'PORT': '8471',
           'SUITE_PROGRAM': os.environ.get('SUITE_PROGRAM', os.path.join(build, 'llama-names/llama-server'))}
    subprocess.run([sys.executable, '-m', 'pytest', '-q', '-x' if o.first else '-q', '--timeout=120' if o.timeout else '-q', '-m', 'not slow',
                    *(['-k', o.only] if o.only else []), f'--junitxml={xml}', f'unit/test_{name}.py'], cwd=tests, env=env, timeout=1800,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    result = {'passed': 0, 'skipped': 0, 'model': 0, 'failed': 0}
    if not os.path.exists(xml): return {**result, 'failed': 1}
    for case in tree.parse(xml).iter('testcase'):
        bad = case.find('failure') if case.find('failure') is not None else case.find('error')
        if case.find('skipped') is not None: kind = 'skipped'
        elif bad is None: kind = 'passed'
        else:
            lines = [l for l in (bad.text or '').split('\n') if l.startswith(('E  ', '>'))]
            kind = 'model' if MODEL.search(' '.join(lines[:3])) else 'failed'
            print(f'{kind}: {name} {case.get("name")}: {" / ".join(l[1:].strip() for l in lines[:3])[:300]}')
        result[kind] += 1
    return result


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--llama', required=True)
    p.add_argument('--write', action='store_true')
    p.add_argument('--only', default='')
    p.add_argument('--first', action='store_true', help='stop a file at its first failure')
    p.add_argument('--timeout', action='store_true', help='needs pytest-timeout')
    p.add_argument('files', nargs='*')
    o = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tests, wrapper = prepare(o, folder)
        for name in o.files or FILES:
            r = run(o, tests, wrapper, name)
            rows.append((name, r['passed'], r['model'], r['failed'], r['skipped']))
            print(f'{name}: {r}', flush=True)
    total = [sum(r[i] for r in rows) for i in range(1, 5)]
    print(f'llama-server: {total[0]} passed, {total[1]} need their model, {total[2]} failed, {total[3]} skipped')
    if o.write:
        suites.publish('llama-server', 'SmolLM2 135M stands for all models. Tests of llama.cpp that know the words or the number of tokens '
                       'of their own model, or need another kind of model, are in the third column.\n\n' +
                       suites.table(['file', 'passed', 'need their model', 'failed', 'skipped'], [*rows, ('all', *total)]))
    return 1 if total[2] else 0


sys.exit(main())
