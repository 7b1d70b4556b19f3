#!/usr/bin/env python3
"""Checks the tool's command line: exit codes, streams, flags, environment, symlink names, signals.

    check_cli.py [PAGEDINFER]

Uses a tiny random model that the script writes itself. Standard library only; PAGEDINFER_BIN names the tool if the
argument is missing."""
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

BIN = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ.get('PAGEDINFER_BIN', 'build/pagedinfer'))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
faults = []


def gguf_string(s):
    b = s.encode()
    return struct.pack('<Q', len(b)) + b


def gguf_value(v):
    if isinstance(v, bool): return struct.pack('<IB', 7, v)
    if isinstance(v, int): return struct.pack('<II', 4, v)
    if isinstance(v, float): return struct.pack('<If', 6, v)
    if isinstance(v, str): return struct.pack('<I', 8) + gguf_string(v)
    kind, pack = {str: (8, gguf_string), float: (6, lambda x: struct.pack('<f', x)),
                  int: (5, lambda x: struct.pack('<i', x))}[type(v[0])]
    return struct.pack('<IIQ', 9, kind, len(v)) + b''.join(map(pack, v))


def write_model(path, tensors=True, wide=64):
    """Writes a gemma3 model with one local and one global layer, in F32 with random weights. The vocabulary is bytes
    and a few letters. A model with another `wide` has zeros instead."""
    rng = random.Random(7)
    pieces = ['\u2581'] + [chr(c) for c in range(ord('a'), ord('z') + 1)] + ['th', 'the', '\u2581the']
    vocab = ['<pad>', '<eos>', '<bos>', '<unk>'] + ['<0x%02X>' % b for b in range(256)] + pieces
    E, H, D, F, V = 64, 2, 32, wide, len(vocab)
    a = 'gemma3.'
    kv = {'general.architecture': 'gemma3', 'general.name': 'tiny', a + 'block_count': 2, a + 'context_length': 4096,
          a + 'embedding_length': E, a + 'feed_forward_length': F, a + 'attention.head_count': H,
          a + 'attention.head_count_kv': 1, a + 'attention.key_length': D, a + 'attention.value_length': D,
          a + 'attention.sliding_window': 32, a + 'attention.sliding_window_pattern': 2,
          a + 'attention.layer_norm_rms_epsilon': 1e-6, a + 'rope.freq_base': 1e6, 'tokenizer.ggml.model': 'llama',
          'tokenizer.ggml.tokens': vocab, 'tokenizer.ggml.scores': [0.0] * 260 + [float(-i) for i in range(len(pieces))],
          'tokenizer.ggml.token_type': [3, 3, 3, 2] + [6] * 256 + [1] * len(pieces), 'tokenizer.ggml.bos_token_id': 2,
          'tokenizer.ggml.eos_token_id': 1, 'tokenizer.ggml.unknown_token_id': 3, 'tokenizer.ggml.add_bos_token': True,
          'tokenizer.ggml.add_space_prefix': False}
    shapes = [('token_embd', (E, V)), ('output_norm', (E,))]
    for i in range(2):
        shapes += [('blk.%d.%s' % (i, n), s) for n, s in (
            ('attn_norm', (E,)), ('attn_q', (E, H * D)), ('attn_k', (E, D)), ('attn_v', (E, D)), ('attn_q_norm', (D,)),
            ('attn_k_norm', (D,)), ('attn_output', (H * D, E)), ('post_attention_norm', (E,)), ('ffn_norm', (E,)),
            ('ffn_gate', (E, F)), ('ffn_up', (E, F)), ('ffn_down', (F, E)), ('post_ffw_norm', (E,)))]
    if not tensors: shapes = []
    head = b'GGUF' + struct.pack('<IQQ', 3, len(shapes), len(kv))
    head += b''.join(gguf_string(k) + gguf_value(v) for k, v in kv.items())
    data, size = b'', 0
    for name, shape in shapes:
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        head += gguf_string(name + '.weight') + struct.pack('<I', len(shape)) + struct.pack('<%dQ' % len(shape), *shape)
        head += struct.pack('<IQ', 0, size)
        size += (4 * n + 31) // 32 * 32
        if wide > 64: continue
        scale = 2 / shape[0] ** 0.5
        row = [1.0] * n if len(shape) == 1 else [scale * (rng.random() - 0.5) for _ in range(n)]
        data += struct.pack('<%df' % n, *row)
        data += bytes(-len(data) % 32)
    with open(path, 'wb') as f:
        f.write(head + bytes(-len(head) % 32) + data)
        f.truncate(len(head) + -len(head) % 32 + size)


def call(*args, env=None, stdin='', name=None, stdout=subprocess.PIPE):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(('LLAMA_', 'PAGEDINFER_'))}
    return subprocess.run([name or BIN, *args], input=stdin if isinstance(stdin, bytes) else stdin.encode(), stdout=stdout, stderr=subprocess.PIPE,
                          env={**clean, **(env or {})}, timeout=120)


def expect(code, *args, out=None, err=None, no_err=None, **how):
    r = call(*args, **how)
    stdout, stderr = (r.stdout or b'').decode(errors='replace'), r.stderr.decode(errors='replace')
    what = ' '.join(args)[:100]
    if r.returncode != code: faults.append(f'{what}: exit {r.returncode}, not {code}: {stderr[-300:]}')
    if out is not None and out not in stdout: faults.append(f'{what}: stdout lacks {out!r}: {stdout[:300]!r}')
    if err is not None and err not in stderr: faults.append(f'{what}: stderr lacks {err!r}: {stderr[:300]!r}')
    if no_err is not None and no_err in stderr: faults.append(f'{what}: stderr has {no_err!r}')
    if b'Sanitizer' in r.stderr: faults.append(f'{what}: {stderr[-2000:]}')
    if code in (64, 78) and stdout: faults.append(f'{what}: an error that writes to stdout')
    return stdout


def cpu_only():
    return not any(' not usable' not in line for line in call('run', '--list-devices').stdout.decode().splitlines()
                   if not line.startswith('cpu:'))


def usage(model):
    expect(64)
    expect(64, 'no-such-command', err='no-such-command')
    expect(0, '--version', out='pagedinfer ')
    expect(0, 'run', '--list-devices', out='cpu: ')
    expect(0, 'version', out='pagedinfer ')
    expect(0, 'help', out='tokenize')
    for cmd in 'run bench eval imatrix inspect quantize tokenize pull list rm selftest weights'.split():
        short, full = expect(0, cmd, '--help', out='Usage:'), expect(0, cmd, '--help', 'all', out='Usage:')
        if len(full) <= len(short): faults.append(f'{cmd}: --help all is not longer than --help')
        expect(0, 'help', cmd, out='Usage:')
    expect(0, 'run', '--help', 'kv', out='--cache-type-k')
    expect(64, 'run', '--help', 'nothing', err='sections are')
    expect(64, 'run', '--help', '', err='sections are')
    expect(64, 'run', '--tmep', '1', err='--temp')
    expect(64, 'run', '--top_kk', '1', err='--top-k')
    expect(64, 'run', '--n-pormpt', '1', err='unknown option --n-pormpt')
    if '--n-prompt' in call('run', '--n-pormpt').stderr.decode().split(';')[-1].split('\n')[0]:
        faults.append('the nearest flag is one of another subcommand')
    expect(64, 'bench', '--n-pormpt', '1', err='--n-prompt')
    expect(64, 'run', '-gnl', '1', err='is -ngl')
    expect(64, 'run', '--rpc', 'x', err='--rpc is not built yet')
    expect(64, 'run', '--completion-bash', err='no meaning here')
    expect(64, 'run', '-m', err='needs a value')
    expect(64, 'run', '-m', model, '-p', 'x', '--top-p', '2', err='0..1')
    expect(64, 'run', '-m', model, '-p', 'x', '-n', 'many', err='max-tokens')
    expect(64, 'run', '-m', model, '-p', 'x', 'stray', err='stray')
    expect(64, 'run', '-p', 'x', err='no model')
    expect(64, 'tokenize', '-m', model, '--temp', '1', err='sampling')
    expect(64, 'tokenize', '-m', model, err='no text')
    expect(64, 'quantize', model, err='TYPE')
    expect(64, 'quantize', model, 'out.gguf', 'Q77', err='Q8_0')
    expect(64, 'inspect', err='no model')
    expect(0, 'run', '--help', 'compat', out='Not built yet:')


def one_op():
    op = 'bench', '--op', 'gdn', '--op-shape', '2,4,32,1', '-t', '1'
    rows = [json.loads(l) for l in expect(0, *op, '-o', 'jsonl').splitlines()]
    times = [(r['what'], r['n_seqs']) for r in rows]
    if times != [('decode', n) for n in (1, 2, 4, 8, 16)] + [('prompt', 1), ('prompt', 16), ('save', 1), ('load', 1)]:
        faults.append(f'bench --op gdn: other rows: {times}')
    if any(not r['ns'] > 0 or not r['bytes'] > 0 for r in rows): faults.append(f'bench --op gdn: {rows}')
    expect(0, *op, out='| decode |        16 |')
    expect(64, 'bench', '--op', 'warp', err='give gdn or rates')
    expect(64, 'bench', '--op', 'gdn', '--op-shape', '1,2', err='HEAD_SIZE')
    expect(64, *op, '-o', 'csv', err='md or jsonl')
    expect(69, 'bench', '--op', 'gdn', '--op-shape', '2,4,33,1', err='not supported')


def files(model, folder):
    bad = os.path.join(folder, 'bad.gguf')
    with open(bad, 'wb') as f: f.write(b'GGUF' + struct.pack('<IQQ', 3, 1, 1) + bytes(1000))
    gone = os.path.join(folder, 'gone.gguf')
    for args in (['run', '-p', 'x', '-m'], ['tokenize', '-p', 'x', '-m'], ['inspect']):
        expect(66, *args, gone, err='gone.gguf')
        expect(65, *args, bad, err='bad.gguf')
    expect(69, 'run', '-m', model, '-p', 'x', '--device', 'warp-drive', err='warp-drive')
    other = os.path.join(folder, 'other.gguf')
    with open(model, 'rb') as f: data = f.read()
    with open(other, 'wb') as f: f.write(data.replace(b'\x06\0\0\0\0\0\0\0gemma3', b'\x06\0\0\0\0\0\0\0gamma9', 1))
    expect(69, 'run', '-m', other, '-p', 'x', err='gamma9')
    expect(66, 'run', '-m', model, '-f', gone, err='gone.gguf')
    with open('/dev/full', 'wb') as full:
        expect(74, 'run', '-m', model, '-p', 'the', '-n', '3', '--ignore-eos', stdout=full)
        expect(74, 'tokenize', '-m', model, '-p', 'the', stdout=full)
        expect(74, 'run', '--help', stdout=full)
    expect(78, 'run', '-m', model, '-p', 'x' * 9000, err='4096')
    expect(0, 'selftest', '--device', 'cpu', out='RESULT: all')
    expect(64, 'selftest', '--checks', 'nothing', err='unknown check')
    expect(0, 'inspect', model, out='gemma3')
    expect(0, 'inspect', model, out='Memory to run it')
    j = json.loads(expect(0, 'inspect', '-m', model, '--json', '-c', '256', '--no-tensors'))
    p = j['plan']
    if p['ctx_size'] != 256 or p['total_bytes'] != p['weights_bytes'] + p['kv_bytes'] + p['scratch_bytes']:
        faults.append(f'inspect --json: {p}')
    m, h = j['metadata'], j['hyperparameters']
    if (m['general.architecture'], m['tokenizer.ggml.add_bos_token'], h['context_length'], j['kind']) != ('gemma3', True, 4096, 'model'):
        faults.append(f'inspect --json: metadata {m} {h}')
    cut = m['tokenizer.ggml.scores']
    if cut['length'] < 260 or not all(isinstance(x, float) for x in cut['first']) or not isinstance(h['rope.freq_base'], float):
        faults.append(f'inspect --json: numbers {cut} {h}')
    if 'tensors' in j: faults.append('inspect --json --no-tensors has tensors')
    j = json.loads(expect(0, 'inspect', model, '--json', '--all', '--no-cost'))
    if len(j['metadata']['tokenizer.ggml.tokens']) != cut['length'] or 'plan' in j: faults.append('inspect --json --all cuts arrays')
    t = {t['tensor']: t for t in j['tensors']}['blk.0.attn_k.weight']
    if t != {'tensor': 'blk.0.attn_k.weight', 'type': 'F32', 'shape': [64, 32], 'bytes': 8192, 'file': 0, 'offset': t['offset']}:
        faults.append(f'inspect --json: tensor {t}')
    if j['totals']['tensors'] != len(j['tensors']) or j['totals']['types']['F32']['bytes'] != j['totals']['bytes']:
        faults.append(f'inspect --json: totals {j["totals"]}')
    expect(0, 'run', '-m', model, '-p', 'the', '-n', '1', '-ngl', '20', err='gpu-layers' if cpu_only() else None)
    expect(0, 'run', '-m', model, '-p', 'the', '-n', '1', '-ngl', '0', no_err='gpu-layers')
    out = os.path.join(folder, 'q8.gguf')
    expect(0, 'quantize', model, out, 'q8_0', '2')
    expect(0, 'inspect', out, out='Q8_0')
    expect(0, 'run', '-m', out, '-p', 'the', '-n', '4', '--ignore-eos')


def quantising(model, folder):
    """quantize: types by name and number, rules from a file, metadata, dry runs."""
    expect(0, 'quantize', '--help', out='15  Q4_K_M')
    # Rows of 64 values fit no block of 256, so quantize falls back to a type with smaller blocks.
    for word, kind in (('7', 'Q8_0'), ('IQ4_XS', 'IQ4_NL'), ('IQ2_XXS', 'IQ4_NL'), ('Q4_K', 'Q5_0')):
        out = os.path.join(folder, 'q.gguf')
        expect(0, 'quantize', model, out, word, '2')
        expect(0, 'inspect', out, out=f' {kind} ')
    gone = os.path.join(folder, 'ggml-model-Q8_0.gguf')
    expect(0, 'quantize', '--dry-run', model, 'Q8_0', err='quantized size')
    if os.path.exists(gone): faults.append('quantize --dry-run writes')
    expect(0, 'quantize', model, '7')
    if not os.path.exists(gone): faults.append('quantize IN 7: not named after Q8_0')
    rules = os.path.join(folder, 'rules')
    with open(rules, 'w') as f: f.write('attn_q=q8_0\n ffn_up=Q4_1  ')
    said = call('quantize', '--tensor-type-file', rules, '--tensor-type', 'ffn_down=F16', model, out, 'Q5_0').stderr.decode()
    for name, kind in (('attn_q', 'Q8_0'), ('ffn_up', 'Q4_1'), ('ffn_down', 'F16'), ('ffn_gate', 'Q5_0')):
        if not re.search(rf'blk\.0\.{name}\.weight .* -> {kind},', said): faults.append(f'quantize: {name}: {said[:600]}')
    expect(0, 'quantize', '--override-kv', 'gemma3.context_length=int:77', '--override-kv', 'general.name=str:other',
           model, out, 'COPY')
    for line in (r'gemma3.context_length\s+u32\s+77', r'general.name\s+str\s+"other"', r'blk.0.attn_q.weight .*F32'):
        if not re.search(line, call('inspect', out).stdout.decode()): faults.append(f'quantize COPY: no {line}')
    expect(64, 'quantize', model, out, 'TQ1_0', err='cannot be written yet')
    expect(64, 'quantize', model, out, '999', err='is not a type')
    expect(78, 'quantize', '--include-weights', 'a', '--exclude-weights', 'b', model, out, 'Q8_0', err='exclude each other')
    expect(78, 'quantize', '--override-kv', 'nonsense', model, out, 'Q8_0', err='expected KEY')
    expect(64, 'quantize', '--keep-split', model, out, 'Q8_0', err='not built yet')


def tokens(model, vocab, folder):
    text = os.path.join(folder, 'text')
    with open(text, 'w') as f: f.write('the end\n')
    ids = expect(0, 'tokenize', '-m', vocab, '-f', text, '--ids', '--no-bos', '--no-escape')
    if ids != str(json.loads(ids)) + '\n' or len(json.loads(ids)) != 6: faults.append(f'tokenize --ids: {ids!r}')
    with_bos = json.loads(expect(0, 'tokenize', '-m', model, '-f', text, '--ids'))
    if with_bos != [2] + json.loads(ids): faults.append(f'tokenize: BOS: {with_bos}')
    piped = expect(0, 'tokenize', '-m', vocab, '--stdin', '--ids', '--no-bos', stdin='the end\n')
    if piped != ids: faults.append('tokenize --stdin differs from -f')
    expect(0, 'tokenize', '-m', vocab, '-p', 'the', '--show-count', out="-> 'the'\nTotal number of tokens: 2\n")
    expect(0, 'tokenize', '-m', vocab, '-p', r'a\nb', '--ids', '--no-bos', out=', 14, ')
    expect(0, 'tokenize', '-m', vocab, '-p', r'a\nb', '--ids', '--no-bos', '--no-escape', out=', 96, ')
    expect(0, 'tokenize', '-m', vocab, '-p', '<eos>', '--ids', '--no-bos', out='[1]\n')
    if expect(0, 'tokenize', '-m', vocab, '-p', '<eos>', '--ids', '--no-bos', '--no-parse-special') == '[1]\n':
        faults.append('tokenize --no-parse-special takes control tokens')


def profile(model):
    """bench --ops: each op of a step has a time, and its counts match the requested work."""
    ops = ['bench', '-m', model, '-npp', '8', '-ntg', '6', '-t', '1', '--ops']
    linear = {}
    # Three requests that are submitted one after the other may start in different steps: then the loop tries again.
    for n in (1, *[3] * 10):
        if n in linear and all(linear[n].get(op) == (calls, n * x) for op, (calls, x) in linear[1].items()): break
        rows = [json.loads(l) for l in expect(0, *ops, '-npl', str(n), '-o', 'jsonl').splitlines()]
        if not all(rows[0].get(k, 0) > 0 for k in ('read', 'integers', 'floats')): faults.append(f'bench --ops: rates {rows[0]}')
        of = [r for r in rows if 'op' in r and r['decode'] and r['steps'] == 6]
        if n == 3 and not of: continue
        names = {r['op'].split(' ')[0] for r in of}
        if not {'linear', 'attention', 'qkv', 'embed', '(tokens)'} <= names: faults.append(f'bench --ops: {names}')
        if any(r['ns'] <= 0 or r['bytes'] < 0 for r in of if r['op'].startswith('linear')): faults.append(f'bench --ops: {of}')
        linear[n] = {r['op']: (r['calls'], r['integers'] + r['floats']) for r in of if r['op'].startswith('linear')}
    for op, (calls, products) in linear[1].items():
        if linear.get(3, {}).get(op) != (calls, 3 * products): faults.append(f'bench --ops: {op}: {linear}')
    expect(0, *ops, '-npl', '1', out='| of bound |')
    expect(64, *ops, '-npl', '1', '-o', 'csv', err='md or jsonl')
    expect(64, 'bench', '-m', model, '--ops', '--shared-prefix', err='omit')


def bench_lists(model):
    """llama-bench's lists, ranges and 0/1 values, and the names of its output columns."""
    base = ['bench', '-m', model, '-p', '4', '-n', '2', '-r', '1', '-t', '1', '-o', 'jsonl']
    rows = [json.loads(l) for l in expect(0, *base, '-nkvo', '0,1', '-mmp', '1,0', '-fa', '0,1', '--repack', '1', '-nopo', '0',
                                          '--no-host', '0', '-embd', '0', '-ngl', '0-1', '-b', '64', '-ub', '32',
                                          err='flash-attn is not needed').splitlines()]
    got = [(r['load_mode'], r['no_kv_offload'], r['n_gpu_layers'], r['n_prompt']) for r in rows]
    want = [(m, k, g, p) for g in (0, 1) for k in (False, True) for m in ('mmap', 'read') for p in (4, 0)]
    if sorted(got) != sorted(want): faults.append(f'bench: lists: {got}')
    if any(r['use_mmap'] != (r['load_mode'] == 'mmap') or r['n_ubatch'] != 32 for r in rows): faults.append(f'bench: {rows[0]}')
    if not re.fullmatch('[0-9a-f]{8,}|unknown', rows[0]['build_commit']): faults.append(f'bench: commit {rows[0]}')
    row = json.loads(expect(0, *base, '-ot', 'ffn_up=cpu;ffn_gate=cpu', '-dev', 'cpu', '-n', '0').split('\n')[0])
    if row['tensor_buft_overrides'] != 'ffn_up=cpu,ffn_gate=cpu' or row['devices'] != 'cpu': faults.append(f'bench -ot: {row}')
    expect(0, 'bench', '-m', model, '-p', '4', '-n', '0', '-r', '1', '-t', '1', out='build: ')
    expect(64, *base, '-embd', '0,1', err='not built yet')
    expect(64, *base, '-mmp', '2', err='not 0 or 1')
    expect(64, *base, '-mmp', '1', '-lm', 'read', err='--load-mode')
    profile(model)
    several = ['bench', '-m', model, '-npp', '100', '-ntg', '6', '-npl', '3', '-t', '1', '-o', 'jsonl']
    for flags, n_kv, cached in (([], 318, 0), (['-pps'], 118, 192), (['-tgs'], 318, 0), (['-pps', '-tgs'], 118, 192)):
        row = json.loads(expect(0, *several, *flags))
        if (row['n_kv'], row['cached_tokens']) != (n_kv, cached) or row['t_pp'] <= 0: faults.append(f'bench {flags}: {row}')
        if (row['is_pp_shared'], row['is_tg_separate']) != ('-pps' in flags, '-tgs' in flags): faults.append(f'bench {flags}: {row}')
    expect(64, 'bench', '-m', model, '-pps', err='give it too')
    expect(0, 'bench', '-m', model, '-npp', '4', '-ntg', '2', '-npl', '1,2', '-t', '1', '--output-format', 'jsonl', out='"pl": 2')


def config(model, folder):
    """--config and --print-config: sections, precedence, sources, errors with their line."""
    ini = os.path.join(folder, 'models.ini')

    def write(text):
        with open(ini, 'w') as f: f.write(text)

    def settings(*args, **how):
        rows = {}
        for line in expect(0, 'run', *args, '--config', ini, '--print-config', **how).splitlines()[2:]:
            m = re.fullmatch(r'(?:; )?([a-z0-9-]+) = (.*?) +; (.*)', line) or re.fullmatch(r'; (\S+) is (set): (.*)', line)
            if not m: faults.append(f'--print-config: {line!r}')
            else: rows[m[1]] = (m[2], m[3])
        return rows

    write(f"""\ufeff; comment
version = 1
threads = 2            ; for all
[*]
ctx-size = 512
temp = 0.5
seed = 3
log_prefix = yes
stop = z
[little]
model = {model}
c = 256                # the short spelling
LLAMA_ARG_UBATCH_SIZE = 32
direct-io = off
no-mmap = true
load-on-startup = true
no-escape = on
stop = "a ; b\\n"
stop = c
port = 9999
n-predict = 3
[ other ]
hf-repo = org/name
ctx-size = 1024
""")
    got = settings('little', '--seed', '5', env={'PAGEDINFER_CTX_SIZE': '128'})
    for key, want in {'threads': ('2', 'file'), 'ctx-size': ('128', 'environment'), 'temp': ('0.5', 'file'), 'seed': ('5', 'command line'),
                      'log-prefix': ('true', 'file'), 'model': (model, 'file'), 'ubatch-size': ('32', 'file'), 'load-mode': ('read', 'file'),
                      'escape': ('false', 'file'), 'top-k': ('40', 'default'), 'predict': ('3', 'file'), 'stop': ('c', 'file')}.items():
        if got.get(key) != want: faults.append(f'--print-config: {key} is {got.get(key)}, not {want}')
    stops = re.findall(r'^stop = (\S+)', expect(0, 'run', 'little', '--config', ini, '--print-config'), re.M)
    if stops != ['"a', 'c']: faults.append(f'--config: the list of the section does not replace that of [*]: {stops}')
    if 'port' in got: faults.append('--print-config: run has a port')
    if settings('little')['ctx-size'] != ('256', 'file'): faults.append('--config: the section does not override [*]')
    if settings('-m', model)['ctx-size'] != ('512', 'file'): faults.append('--config: -m with another name takes a section')
    text = expect(0, 'run', 'little', '--config', ini, '--ignore-eos', '-p', 'the', '--temp', '0')
    same = expect(0, 'run', '-m', model, '-n', '3', '--ignore-eos', '-p', 'the', '--temp', '0', '-c', '256')
    if text != same: faults.append(f'--config: {text!r}, not {same!r}')
    printed = os.path.join(folder, 'printed.ini')
    with open(printed, 'w') as f: f.write(expect(0, 'run', 'little', '--config', ini, '--print-config', '--stop', ' x;"\n # '))
    first = [l for l in expect(0, 'run', 'little', '--config', ini, '--print-config', '--stop', ' x;"\n # ').splitlines() if '; file' not in l]
    again = expect(0, 'run', '--config', printed, '--print-config').splitlines()
    values = lambda lines: {re.sub(r' +; (file|command line)$', '', l) for l in lines if l[:1] not in ';[' and '; command line' in l}
    if not values(first) or not values(first) <= {re.sub(r' +; file$', '', l) for l in again}: faults.append(f'--print-config: not read again: {values(first)}')
    expect(78, 'run', '--config', ini, '-p', 'x', err='has several models')
    expect(66, 'run', 'nowhere', '--config', ini, '-p', 'x', err='no such file')
    secret = expect(0, 'serve', '-m', model, '--api-key', 'secret-7', '--print-config', out='; api-key is set: command line')
    if 'secret-7' in secret: faults.append('--print-config prints a key')
    for text, what in (('[x\n', ':1: expected [NAME]'), ('a b = 1\n', 'invalid characters'), ('\nctx-size\n', ':2: expected KEY'),
                       ('ctx-sise = 1\n', ':1: unknown key ctx-sise; the nearest known one is ctx-size'), ('ctx-size = many\n', ':1: ctx-size'),
                       ('mlock = perhaps\n', 'neither true nor false'), ('rpc = x\n', 'is not built yet'), ('stop = "a\n', 'closing'),
                       ('stop = "a" b\n', 'follows'), ('a\0 = 1\n', 'NUL'), ('[]\n', 'empty'), ('x' * (1 << 21), '1 MiB')):
        write(text)
        expect(78, 'run', '-m', model, '-p', 'x', '--config', ini, err=what)
    write(f'[only]\nmodel = {model}\nn-predict = 2\nprompt = one \\\ntwo\nfit = off\n')
    if settings()['prompt'][0] != '"one \\ntwo"': faults.append(f'--config: a continued line: {settings()["prompt"]}')
    expect(0, 'run', '--config', ini, '-p', 'the')
    expect(66, 'run', '--config', ini + '.gone', err='models.ini.gone')
    write('[org/name:Q8_0]\nctx-size = 64\n')
    if settings()['hf-repo'] != ('org/name:Q8_0', 'file'): faults.append('--config: a section is not the repository')


def answers(model):
    base = ['run', '-m', model, '-p', 'the quick', '-n', '12', '--ignore-eos']
    greedy = expect(0, *base, '--temp', '0', err='t/s')
    same = [['-t', '1'], ['--ubatch_size', '4'], ['--no-mmap'], ['-dio'], ['--block-size=32'], ['--no-prefix-cache'],
            ['--cpu-isa', 'generic', '-ctk', 'F16'], ['-c', '64', '-np', '2', '--seed', '4']]
    for flags in same:
        if expect(0, *base, '--temp', '0', *flags) != greedy: faults.append(f'{flags} changes a greedy answer')
    one, again, other = (expect(0, *base, '-s', s) for s in ('1', '1', '2'))
    if one != again: faults.append('the same seed gives another answer')
    if one == other == greedy: faults.append('the seed changes nothing')
    many = expect(0, *base, '--temp', '0', '--copies', '5')
    if many != greedy * 5: faults.append(f'--copies: {many!r}')
    if expect(0, 'run', '-m', model, '-n', '12', '--ignore-eos', '--temp', '0', stdin='the quick\n') != greedy:
        faults.append('a prompt on standard input gives another answer')
    expect(0, *base, '--temp', '0', '--display-prompt', out='the quick' + greedy)
    expect(0, *base, '--no-perf', no_err='t/s')
    expect(0, *base, '-v', err='cached')
    expect(0, *base, '-cb', '-fa', '-ngl', '99', '--mlock', '-b', '2048', '-fa', 'on', err='cont-batching')
    for seed in range(50):  # search for an answer with a letter in it
        flags = base + ['-s', str(seed)]
        text = expect(0, *flags)
        letters = [c for c in text if c.isalpha() and c.isascii()]
        if letters: break
    if not letters: faults.append('50 random answers without a letter')
    elif expect(0, *flags, '--stop', letters[0]) != text[:text.index(letters[0])] + '\n': faults.append('--stop')


def scores(model, folder):
    """--prompt-logprobs of run and of eval --cases, compared with full rows of logits."""
    ids = json.loads(expect(0, 'tokenize', '-m', model, '-p', 'the quick', '--ids'))
    lines = expect(0, 'run', '-m', model, '-p', 'the quick', '-n', '0', '--prompt-logprobs', '2', '--copies', '2').split('\n')
    got = json.loads(lines[0])['prompt_logprobs']
    if lines[1:] != ['', '', '']: faults.append(f'run --prompt-logprobs: {lines[1:]}')
    path = os.path.join(folder, 'scores.json')
    with open(path, 'w') as f: json.dump([{'name': 'scores', 'ids': ids, 'n': 1, 'rows': 'all'}], f)
    line = json.loads(expect(0, 'eval', '-m', model, '--cases', path, '--logits-dir', folder, '--prompt-logprobs', '2'))
    if line['prompt_logprobs'] != got: faults.append('eval --cases: other prompt_logprobs than run')
    if [t['id'] for t in got] != ids[1:]: faults.append(f'--prompt-logprobs: ids {got}')
    if ''.join(t['text'] for t in got).strip() != 'the quick': faults.append(f'--prompt-logprobs: text {got}')
    with open(os.path.join(folder, 'scores.f32'), 'rb') as f: data = f.read()
    width = len(data) // len(ids)
    for i, t in enumerate(got):
        row = struct.unpack(f'<{width // 4}f', data[i * width:(i + 1) * width])
        log_sum = math.log(sum(math.exp(x) for x in row))
        best = sorted(range(len(row)), key=lambda k: (-row[k], k))[:2]
        if abs(t['logprob'] - row[t['id']] + log_sum) > 1e-4: faults.append(f'--prompt-logprobs: token {i} {t}')
        if [x['id'] for x in t['top']] != best: faults.append(f'--prompt-logprobs: top {i} {t}, not {best}')
    part = expect(0, 'run', '-m', model, '-p', 'the quick', '-n', '0', '--prompt-logprobs', '0', '--logits-from', '2')
    part = json.loads(part.split('\n')[0])['prompt_logprobs']
    if [t['logprob'] for t in part] != [t['logprob'] for t in got[2:]]: faults.append(f'--logits-from: {part}')
    expect(64, 'run', '-m', model, '-p', 'x', '--prompt-logprobs', '65', err='-1..64')
    # --logprobs: the tokens of each answer, equal to those of the prompt that contains the answer
    greedy = ['run', '-m', model, '-p', 'the quick', '-n', '5', '--ignore-eos', '--temp', '0', '--logprobs', '2', '-sp']
    answer, probs = expect(0, *greedy).rstrip('\n').rsplit('\n', 1)
    tokens = json.loads(probs)['logprobs']
    if len(tokens) != 5 or any(len(t['top']) != 2 or t['top'][0]['id'] != t['id'] for t in tokens): faults.append(f'--logprobs: {tokens}')
    with open(path, 'w') as f: json.dump([{'name': 'x', 'ids': ids + [t['id'] for t in tokens], 'n': 1}], f)
    same = json.loads(expect(0, 'eval', '-m', model, '--cases', path, '--prompt-logprobs', '2'))['prompt_logprobs'][-5:]
    if [(t['id'], round(t['logprob'], 4)) for t in same] != [(t['id'], round(t['logprob'], 4)) for t in tokens]: faults.append(f'--logprobs: {tokens} {same}')
    several = expect(0, *greedy, '--copies', '3').rstrip('\n')
    if several != '\n'.join([answer + '\n' + probs] * 3): faults.append(f'--logprobs with --copies: {several}')


def environment(model):
    base = ['run', '-p', 'the', '--ignore-eos', '--temp', '0']
    expect(0, *base, env={'LLAMA_ARG_MODEL': model, 'LLAMA_ARG_N_PREDICT': '3'}, err='generated 3 tokens')
    expect(0, *base, env={'PAGEDINFER_MODEL': model, 'LLAMA_ARG_N_PREDICT': '3', 'PAGEDINFER_N_PREDICT': '4'},
           err='generated 4 tokens')
    expect(0, *base, '-n', '5', env={'LLAMA_ARG_MODEL': model, 'LLAMA_ARG_N_PREDICT': '3'}, err='generated 5 tokens')
    expect(78, *base, '-m', model, env={'LLAMA_ARG_N_PREDICT': 'x'}, err='LLAMA_ARG_N_PREDICT')
    expect(78, *base, '-m', model, env={'LLAMA_ARG_RPC': 'x'}, err='LLAMA_ARG_RPC sets an option that is not built yet')
    expect(0, *base, '-m', model, '-n', '1', env={'LLAMA_ARG_RPC': '', 'LLAMA_ARG_NO_MMAP': '1'})
    expect(0, 'quantize', '--help', env={'LLAMA_ARG_RPC': 'x'})
    unknown_variables(['tokenize', '-m', model, '-p', 'x'])


def variables():
    """Variables of this project that a program of the tree reads by name."""
    read = r'environ(?:\.get\(|\[)[\'"](PAGEDINFER_[A-Z_]+)|getenv\("(PAGEDINFER_[A-Z_]+)|\$\{?(PAGEDINFER_[A-Z_]+)'
    found = set()
    for folder in ('src', 'tools', 'tests'):
        for at, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                if not name.endswith(('.c', '.h', '.cu', '.cpp', '.py', '.sh')): continue
                with open(os.path.join(at, name), encoding='utf-8') as f: found |= {''.join(m) for m in re.findall(read, f.read())}
    return found


def unknown_variables(base):
    """A PAGEDINFER_* variable that nothing reads gives one warning with the nearest known name."""
    for name, words in (('PAGEDINFER_CTX_SIZEE', 'unknown and has no effect; the nearest known one is PAGEDINFER_CTX_SIZE\n'),
                        ('PAGEDINFER_RANKKEY', 'the nearest known one is PAGEDINFER_RANK_KEY\n'),
                        ('PAGEDINFER_PROMPT', 'PAGEDINFER_PROMPT has no effect: give --prompt'),
                        ('PAGEDINFER_', 'PAGEDINFER_ is unknown'), ('PAGEDINFER_ZZZZZZZZZZZZZZZZZZZZ', 'no effect\n')):
        said = call(*base, env={name: '1'}).stderr.decode()
        if said.count('warning: environment variable') != 1 or words not in said: faults.append(f'{name}: {said}')
        for quiet in (['--help'], ['--version'], ['--list-devices'], ['--log-disable']):
            if call(*base, *quiet, env={name: '1'}).stderr: faults.append(f'{name} {quiet}: a warning')
    names = variables()
    if len(names) < 15 or 'PAGEDINFER_RANK_KEY' not in names: faults.append(f'variables of the tree: {names}')
    for name in [*sorted(names), 'PAGEDINFER_CTX_SIZE', 'PAGEDINFER_PORT', 'PAGEDINFER_RPC', 'PAGEDINFER_NO_MMAP', 'PAGEDINFER_LOG_FILE']:
        value = {'PAGEDINFER_LOG_FILE': '/dev/null', 'PAGEDINFER_DEVICE': 'cpu', 'PAGEDINFER_RPC': ''}.get(name, '1')
        expect(0, *base, env={name: value}, no_err='environment variable')


def log_lines(model, folder):
    """The prefix, the timestamp and the formats of log lines."""
    base = ['run', '-m', model, '-p', 'the', '-n', '2', '--ignore-eos', '--no-perf', '-v']
    for flags, pattern in (([], r'request 1: '), (['--log-prefix'], r'I request 1: '),
                           (['--log-timestamps'], r'\d+\.\d\d\.\d{3}\.\d{3} request 1: '),
                           (['--log-prefix', '--log-timestamps', '-lv', '4'], r'0\.\d\d\.\d{3}\.\d{3} I request 1: '),
                           (['--log-disable'], None)):
        lines = call(*base, *flags).stderr.decode().split('\n')
        if pattern and not any(re.match(pattern, l) for l in lines): faults.append(f'{flags}: no line of {pattern}: {lines}')
        if not pattern and any(lines): faults.append(f'{flags}: {lines}')
    odd = os.path.join(folder.encode(), b'"odd\\\xff".gguf')
    shutil.copy(model, odd)
    rows = [json.loads(l) for l in call(*base[:2], odd, *base[3:], '--log-jsonl', '--log-prefix', '-lv', '4').stderr.decode().splitlines()]
    if not any(r['msg'].startswith('request 1: ') and r['level'] == 'info' for r in rows): faults.append(f'--log-jsonl: {rows}')
    if any(r['type'] != 'log' or not 0 <= r['time'] < 1e9 for r in rows): faults.append(f'--log-jsonl: {rows}')
    bad = ['run', '-m', model, '-p', 'the', '-n', '1', '--ignore-eos', '--log-level', 'debug', '--trace-ops']
    if '\033[2m' not in call(*bad, '--log-colors', 'on').stderr.decode(): faults.append('--log-colors on: no colours')
    for off in ([], ['--log-colors', 'off'], ['--log-colors', 'auto']):
        if '\033' in call(*bad, *off).stderr.decode(): faults.append(f'colours without a terminal: {off}')
    path = os.path.join(folder, 'log')
    expect(0, *base, '--log-file', path, no_err='request 1')
    if 'request 1' not in open(path).read(): faults.append('--log-file: empty')


def broken_pipe(model):
    """When the reader of its output goes away, the tool ends silently with exit code 141."""
    for args in (['run', '-m', model, '-p', 'the', '-n', '2000', '--ignore-eos'], ['run', '--help', 'all'], ['help'],
                 ['tokenize', '-m', model, '-p', 'the end ' * 9000], ['inspect', model]):
        read_end, write_end = os.pipe()
        os.close(read_end)
        p = subprocess.Popen([BIN, *args], stdout=write_end, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        os.close(write_end)
        err = p.communicate(timeout=60)[1].decode()
        lines = [l for l in err.split('\n') if l and 't/s' not in l]
        if p.returncode != 141 or lines: faults.append(f'{args[0]}: a broken pipe: exit {p.returncode}: {lines}')


def prompts(model, folder):
    """--verbose-prompt, --prompt-cache, and the flags that make `run` a conversation."""
    base = ['run', '-m', model, '-p', 'the quick brown fox ' * 8, '-n', '2', '--temp', '0', '--ignore-eos']
    expect(0, *base, '--verbose-prompt', err="     2 -> '<bos>'\n")
    kept = os.path.join(folder, 'kept')
    first = expect(0, *base, '--prompt-cache', kept, '--prompt-cache-all')
    if expect(0, *base, '--prompt-cache', kept, err='cached)') != first: faults.append('--prompt-cache: another answer')
    expect(78, *base, '--prompt-cache', model, err='is a file')
    files = sum(len(f) for _, _, f in os.walk(kept))
    other = ['run', '-m', model, '-p', 'lazy dogs ' * 9, '-n', '2', '--ignore-eos', '--prompt-cache', kept]
    expect(0, *other, '--prompt-cache-ro')
    if sum(len(f) for _, _, f in os.walk(kept)) != files: faults.append('--prompt-cache-ro writes')
    expect(0, *base, '--prompt-cache', kept, '--prompt-cache-ro', err='cached)')
    expect(0, *other, '--no-perf')
    if sum(len(f) for _, _, f in os.walk(kept)) <= files: faults.append('--prompt-cache writes nothing')
    expect(0, *base, '-ncffn', '2')
    chat = ['--chat-template', 'chatml', '-st', '-n', '2', '--ignore-eos']
    expect(0, 'run', '-m', model, '-p', 'the', '-cnv', *chat, '--verbose-prompt', err='<|im_start|>user')
    effort = ['--chat-template', '{{ reasoning_effort }} {{ enable_thinking }}', '--verbose-prompt', '-st', '-n', '1']
    expect(0, 'run', '-m', model, '-p', 'the', '-cnv', '--reasoning-effort', 'high', '-rea', 'on', *effort, err="'high True'")
    expect(0, 'run', '-m', model, '-p', 'the', '-sys', 'end', *chat, '--verbose-prompt', err='<|im_start|>system')
    completion = os.path.join(folder, 'llama-completion')
    os.symlink(BIN, completion)
    expect(0, '-m', model, '-p', 'the', '-n', '2', '--ignore-eos', name=completion, out='the')
    expect(0, '-m', model, '-p', 'the', '-n', '2', '--no-display-prompt', name=completion, no_err='im_start')
    expect(0, '-m', model, '-p', 'the', *chat, '--verbose-prompt', name=completion, err='<|im_start|>user')
    expect(0, '-m', model, '-p', 'the', '-no-cnv', '-n', '2', '--chat-template', 'chatml', '--verbose-prompt', name=completion,
           no_err='<|im_start|>')


def names(model, folder):
    for name, args in (('llama-cli', ['-m', model, '-p', 'the', '-n', '2', '-no-cnv']), ('llama-tokenize', ['-m', model, '-p', 'x']),
                       ('llama-quantize', ['--help']), ('llama-batched-bench', ['--help']), ('llama-bench', ['--help']), ('llama-perplexity', ['--help'])):
        link = os.path.join(folder, name)
        os.symlink(BIN, link)
        expect(0, *args, name=link)


def model_arguments(model, folder):
    """The model as an argument: a file or a folder. Names of repositories and addresses: check_download.py."""
    one, two, hf, empty = (os.path.join(folder, n) for n in ('one', 'two', 'hf', 'empty'))
    for d in (one, two, hf, empty): os.mkdir(d)
    for at in ('one/m-00001-of-00001.gguf', 'one/mmproj-m.gguf', 'two/a.gguf', 'two/b.gguf', 'two/mmproj-a.gguf'): shutil.copy(model, os.path.join(folder, at))
    for at in ('hf/config.json', 'hf/model-00001-of-00002.safetensors', 'one/notes.txt', 'empty/m-00002-of-00002.gguf'):
        with open(os.path.join(folder, at), 'w') as f: f.write('{}')
    text = ['-p', 'the', '-n', '2', '--ignore-eos', '--temp', '0']
    first = expect(0, 'run', '-m', model, *text)
    for args in ([model], [one], [one + '/'], ['-m', one], ['--', model]):
        if expect(0, 'run', *text, *args) != first: faults.append(f'run {args}: another answer')
    expect(0, 'tokenize', model, '-p', 'the', out="'")
    expect(0, 'bench', one, '-p', '4', '-n', '2', '-r', '1', out='tg2')
    expect(0, 'inspect', one, '--no-cost', out='gemma3')
    expect(0, 'eval', model, '-f', model, '--chunks', '1', '-c', '64', out='PPL')
    expect(0, 'embed', model, '-p', 'the', '--pooling', 'last')
    expect(0, 'chat', model, '--chat-template', 'chatml', '-st', *text)
    for var in ('PAGEDINFER_MODEL', 'LLAMA_ARG_MODEL', 'PAGEDINFER_HF_REPO', 'PAGEDINFER_MODEL_URL'):
        if expect(0, 'run', model, *text, env={var: 'none/none'}) != first: faults.append(f'run MODEL with {var}: another answer')
    for flag, value in (('-m', model), ('-hf', 'o/m'), ('-mu', 'http://127.0.0.1:9/m.gguf')):
        for cmd in ('run', 'inspect', 'serve'): expect(64, cmd, 'stray.gguf', flag, value, err=f"'stray.gguf' and {flag} {value} both name a model")
    expect(64, 'run', model, 'stray', err="unexpected argument 'stray'")
    expect(64, 'run', '', err='name is empty')
    expect(66, 'run', two, err='  a.gguf\n  b.gguf\n', no_err='mmproj')
    expect(66, 'run', empty, err='m-00002-of-00002.gguf')
    for path in (os.path.join(folder, 'none.gguf'), 'none', 'a/b/c', '../none/none', 'none/none.gguf', 'none/none.safetensors', 'ftp://x/y.gguf'):
        expect(66, 'run', path, err=path + ': no such file or folder')
    for args in ([hf], ['-m', hf], [hf + '/model-00001-of-00002.safetensors'], ['-m', hf + '/model-00001-of-00002.safetensors']):
        expect(65, 'inspect', *args, err='convert_hf_to_gguf.py ' + hf)
    link = os.path.join(folder, 'llama-embedding')
    os.symlink(BIN, link)
    expect(64, model, '-p', 'x', name=link, err='unexpected argument')


def foreign_names(model, folder):
    """Names of tools without a subcommand are refused. Versions and paths do not count; other names are pagedinfer."""
    for name, nearest in (('llama-export-lora', 'run --lora'), ('llama-speculative', 'run -md'), ('main', 'pagedinfer run'),
                          ('server', 'pagedinfer serve'), ('vllm', 'pagedinfer serve'), ('llama-perplexitty', 'pagedinfer eval'),
                          ('llama-retrieval-b4567', 'pagedinfer embed'), ('llama-', 'pagedinfer help'), ('llama-' + 'x' * 200, 'pagedinfer help'),
                          ('imatrix', 'pagedinfer imatrix'), ('llama-gguf', 'pagedinfer inspect')):
        link = os.path.join(folder, name)
        os.symlink(BIN, link)
        for args in (['-m', model, '-p', 'the', '-n', '2'], ['--version'], []):
            expect(64, *args, name=link, err=name[:40])
            expect(64, *args, name=link, err=nearest)
    for name in ('pagedinfer-0.1.0', 'pagedinfer', 'my-main', 'simple', 'pi', '-1'):
        link = os.path.join(folder, name)
        os.symlink(BIN, link)
        expect(0, '-m', model, '-p', 'the', '-n', '2', name=link)
        expect(0, 'tokenize', '-m', model, '-p', 'x', name=link)
    for name in ('llama-tokenize-1.2', 'llama-tokenize-b4567', 'llama-tokenize-v3'):
        link = os.path.join(folder, name)
        os.symlink(BIN, link)
        expect(0, '-m', model, '-p', 'x', '--ids', name=link, out='[')


def signals(model):
    for sig in (signal.SIGINT, signal.SIGTERM):
        p = subprocess.Popen([BIN, 'run', '-m', model, '-p', 'the', '-n', '4000', '--ignore-eos', '--copies', '4'],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.read(1)  # generation has started
        p.send_signal(sig)
        out, err = p.communicate(timeout=60)
        if p.returncode != 128 + sig: faults.append(f'{sig.name}: exit {p.returncode}, not {128 + sig}')
        if b't/s' not in err: faults.append(f'{sig.name}: the end was not clean: {err[-200:]!r}')


def canceled(folder):
    """Ctrl-C while a 200 MB model loads: the tool catches the signal and stops loading immediately, without output."""
    wide = os.path.join(folder, 'wide.gguf')
    write_model(wide, wide=131072)
    for mode in ('mmap', 'read'):
        p = subprocess.Popen([BIN, 'run', '-m', wide, '-p', 'the', '-n', '1', '-t', '1', '-lm', mode], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.time() + 60
        while time.time() < until:
            with open(f'/proc/{p.pid}/status') as f: caught = int(f.read().split('SigCgt:')[1].split()[0], 16)
            if caught >> (signal.SIGINT - 1) & 1: break
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        if (p.returncode, out, err) != (130, b'', b''): faults.append(f'Ctrl-C while loading ({mode}): exit {p.returncode}, {out} {err}')
    os.unlink(wide)


def main():
    with tempfile.TemporaryDirectory() as folder:
        model, vocab = os.path.join(folder, 'tiny.gguf'), os.path.join(folder, 'vocab.gguf')
        write_model(model)
        write_model(vocab, tensors=False)
        start = time.time()
        usage(model)
        one_op()
        files(model, folder)
        quantising(model, folder)
        tokens(model, vocab, folder)
        bench_lists(model)
        config(model, folder)
        answers(model)
        scores(model, folder)
        environment(model)
        names(model, folder)
        foreign_names(model, folder)
        model_arguments(model, folder)
        log_lines(model, folder)
        broken_pipe(model)
        prompts(model, folder)
        signals(model)
        canceled(folder)
    for f in faults: print(f)
    print(f'command line: {len(faults)} faults, {time.time() - start:.1f} s')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
