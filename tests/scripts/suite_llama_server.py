#!/usr/bin/env python3
"""Runs llama.cpp's own server tests against pagedinfer serve, through a program that takes llama-server's arguments.

    suite_llama_server.py --llama DIR [--write] [--only WORD] [FILE...]

DIR: a checkout of llama.cpp. The models that its tests name are not fetched: PAGEDINFER_CHAT_MODEL replaces each of
them. A test that expects its own model's texts or token counts therefore fails. These tests are counted separately,
and so are intended differences (DESIGN). Options without a meaning here are dropped. Needs pytest, requests, openai,
aiohttp, filelock, numpy, wget and prometheus-client.

Each test's result, and the reason of a failure, goes to standard output. Files about features that are not supported
are left out: the router, built-in tools, MCP, proxies, images, sleeping and Vertex AI's API."""
import argparse, os, re, shutil, subprocess, sys, tempfile, xml.etree.ElementTree as tree
import suites

FILES = ['basic', 'chat_completion', 'compat_anthropic', 'compat_oai_responses', 'completion', 'ctx_shift', 'embedding', 'ignore_eos',
         'infill', 'kv_keep_only_active', 'lora', 'metrics', 'rerank', 'security', 'slot_save', 'speculative', 'stream', 'template',
         'tokenize', 'tool_call']
# Parts of messages about the test's own model, which is not used: its texts, token counts and kind.
MODEL = re.compile(r'match_regex|re\.search|n_prompt|prompt_tokens|tokens_evaluated|prompt_n|cached|input_tokens|n_embd|no classifier|len\(res|'
                   r'embedding|FIM|fill|infill|logprob|timings|predicted_n|stories|tinyllama|content.*==|text.*==|n_vocab|tokens_predicted|'
                   r'getaddrinfo|download_file')
# Tests that fail only because of the model: rerankers, infill, prompts that fit into this model's context.
MODEL_TESTS = re.compile(r'rerank test_rerank|infill test_infill_with|tokenize test_tokenize_with_bos|completion test_nocache_long_input|'
                         r'ctx_shift test_ctx_shift_disabled_long_prompt|completion test_completion_parallel_slots|'
                         r'completion test_completion_response_fields|(lora|speculative) ')
# Intended differences: file and test, text of the failure, and the reason for docs/SUITES.md.
DESIGN = [(re.compile(test), re.compile(text), why) for test, text, why in [
    ('security test_access_static', 'sw.js', 'The page at / is one file; there is no service worker, manifest or version.json.'),
    ('security test_cors_options|security test_cors_origins', 'in res.headers|KeyError|headers\\[|in \\{', 'No origin is allowed '
     'unless --cors names it; llama-server reflects any origin.'),
    ('security test_cors_(origins_defaults|proxy)', 'return code 64', 'There are no built-in tools and no proxy; '
     'the options are refused at the start.'),
    ('security test_local_media|compat_anthropic .*(vision|image)', '', 'Without a vision part the server reads text only: images give '
     '400, and in tool results a note replaces them.'),
    ('basic test_server_multiple_addresses', '', 'A server listens on one address.'),
    ('basic test_server_(props|slots)', 'n_ctx', 'A request may fill the whole context; --parallel does not divide it.'),
    ('basic test_server_model_aliases', '', 'The first name of --alias is the id, as in vLLM; `aliases` has the others.'),
    ('^stream ', '', 'There is no router, and an abandoned stream cannot be resumed.'),
    ('template test_reasoning.*-auto-', '', 'With --reasoning auto, templates get no enable_thinking, as in Transformers and vLLM. '
     'llama-server sets it to true; use --reasoning on here.'),
    ('template test_date', '', 'Templates get no date_string, as in Transformers and vLLM; chat_template_kwargs can set it. '
     'Firefunction\'s datetime includes the time of day.'),
    ('', "'' is None|non empty content delta", 'The first delta of a chat has content "", as in the streams of OpenAI and vLLM; llama-server '
     'writes null.'),
    ('', '__verbose', 'There is no `__verbose`; /apply-template shows the prompt.'),
    ('chat_completion test_chat_completion\\[.*not a chat template', 'return code 78', 'A template that shows no message is refused at start.'),
    ('chat_completion test_invalid.*messages7', '', 'Two assistant messages at the end are accepted.'),
    ('context_size_exceeded', '', 'A prompt that is too long gives an invalid_request_error with code context_length_exceeded, as '
     'OpenAI\'s API does.'),
    ('(return|prompt)_progress', 'assert', 'prompt_progress follows each step; none precedes the first.'),
    ('compat_oai_responses .*telemetry', 'completed is not None', 'An answer that max_output_tokens ends sends response.incomplete, as OpenAI\'s API does.'),
    ('compat_anthropic test_anthropic_empty_messages', '', 'An empty list of messages is refused, as in Anthropic\'s API.'),
    ('embedding test_embedding_mixed_input\\[-', '', 'An empty text has no vector, as in OpenAI\'s API.'),
    ('embedding test_embedding_(mixed_input|content_text)', '', 'A text to embed is a string, ids or prompt_string; content parts are not supported.'),
    ('embedding test_embedding_pooling_none_oai', '', '/v1/embeddings uses mean pooling if --pooling is none.'),
    ('embedding test_embedding_error', 'too large', 'The error has another wording.'),
    ('ignore_eos ', 'logit_bias', '`generation_settings` lists ignore_eos separately; logit_bias contains only the requested '
     'biases.'),
    ('^metrics ', 'Process-Start-Time-Unix|== 501', '/metrics is always available, with its own names and without the header Process-Start-Time-Unix.'),
    ('^slot_save ', '', 'Prefixes are stored by content, not by slot; --prefix-cache-dir stores them on disk.'),
]]
WRAPPER = r'''#!/usr/bin/env python3
import os, sys
one = {'--hf-repo': '--model', '--hf-file': None, '--model-url': None, '--mmproj-url': None, '--tags': None, '--sleep-idle-seconds': None,
       '--model-draft': None, '--spec-draft-n-max': None, '--spec-draft-n-min': None, '--spec-type': None, '--slot-save-path': None,
       '--lora': None, '--cors-origins': None, '--models-dir': None, '--models-max': None, '--media-path': None, '--seed': '--seed'}
none = {'--offline', '--no-mmproj', '--kv-unified', '--swa-full', '--context-shift', '--no-cache-idle-slots', '--backend_sampling',
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
    """Copies the tests and makes them use local models. Returns the tests' folder and the wrapper program."""
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
    # The tests read templates from ../../../models.
    os.makedirs(os.path.join(folder, 'x/y'), exist_ok=True)
    shutil.move(tests, os.path.join(folder, 'x/y/tests'))
    os.symlink(os.path.join(os.path.abspath(o.llama), 'models'), os.path.join(folder, 'models'))
    return os.path.join(folder, 'x/y/tests'), wrapper


def kind_of(test, said):
    """Returns ('design', reason), ('model', '') or ('failed', '') for a failed test."""
    for name, text, why in DESIGN:
        if name.search(test) and text.search(said): return 'design', why
    return 'model' if MODEL_TESTS.search(test) or MODEL.search(said) else 'failed', ''


def run(o, tests, wrapper, name, reasons):
    build = os.environ['PAGEDINFER_BUILD']
    xml = os.path.join(tests, f'{name}.xml')
    env = {**os.environ, 'LLAMA_SERVER_BIN_PATH': wrapper, 'SUITE_MODEL': os.environ['PAGEDINFER_CHAT_MODEL'], 'PORT': '8471',
           'SUITE_PROGRAM': os.environ.get('SUITE_PROGRAM', os.path.join(build, 'llama-names/llama-server'))}
    subprocess.run([sys.executable, '-m', 'pytest', '-q', '-x' if o.first else '-q', '--timeout=120' if o.timeout else '-q', '-m', 'not slow',
                    *(['-k', o.only] if o.only else []), f'--junitxml={xml}', f'unit/test_{name}.py'], cwd=tests, env=env, timeout=1800,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    result = {'passed': 0, 'skipped': 0, 'model': 0, 'design': 0, 'failed': 0}
    if not os.path.exists(xml): return {**result, 'failed': 1}
    for case in tree.parse(xml).iter('testcase'):
        bad = case.find('failure') if case.find('failure') is not None else case.find('error')
        if case.find('skipped') is not None: kind = 'skipped'
        elif bad is None: kind = 'passed'
        else:
            lines = [l for l in (bad.text or '').split('\n') if l.startswith(('E  ', '>'))]
            kind, why = kind_of(f'{name} {case.get("name")}', ' '.join(lines[:3]))
            if why: reasons.setdefault(why, []).append(case.get('name'))
            print(f'{kind}: {name} {case.get("name")}: {why or " / ".join(l[1:].strip() for l in lines[:3])[:300]}')
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
    rows, reasons = [], {}
    with tempfile.TemporaryDirectory() as folder:
        tests, wrapper = prepare(o, folder)
        for name in o.files or FILES:
            r = run(o, tests, wrapper, name, reasons)
            rows.append((name, r['passed'], r['model'], r['design'], r['failed'], r['skipped']))
            print(f'{name}: {r}', flush=True)
    total = [sum(r[i] for r in rows) for i in range(1, 6)]
    print(f'llama-server: {total[0]} passed, {total[1]} need their model, {total[2]} differ by design, {total[3]} failed, {total[4]} skipped')
    if o.write:
        suites.publish('llama-server', 'SmolLM2 135M replaces all models. The third column counts tests that expect texts or token '
                       'counts of their own model, or need another kind of model. The fourth counts intended differences.\n\n' +
                       suites.table(['file', 'passed', 'need their model', 'differ by design', 'failed', 'skipped'], [*rows, ('all', *total)]) +
                       '\n\nDifferences by design:\n\n' + ''.join(f'- {why} ({len(names)})\n' for why, names in reasons.items()))
    return 1 if total[3] else 0


sys.exit(main())
