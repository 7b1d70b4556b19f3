#!/usr/bin/env python3
"""Checks `pagedinfer imatrix`: the sums of squared inputs, with a tiny model whose inputs Python can compute.

The attention output of the model's first layer is set to zero, so the inputs of that layer's matrices follow from the
embeddings: RMSNorm for q, k, v, gate and up, and gelu(gate) * up for down. A model with experts is checked in the same
way, with the router in Python, and so is the exact GELU of an encoder. Other checks: counts, metadata, the effect on
quantize, models and devices that are refused. PyPI's gguf package reads the file if it is installed. Standard library
only."""
import importlib.util, json, math, os, struct, subprocess, sys, tempfile

import check_cli
from check_cli import BIN, call, expect, faults, write_model

E = F = 64
TEXT = 'the quick brown fox jumps over the lazy dog and the cat sat on the mat ' * 12


def close(what, got, want):
    bad = [(i, g, w) for i, (g, w) in enumerate(zip(got, want)) if abs(g - w) > 2e-3 * abs(w) + 1e-6]
    if len(got) != len(want) or bad: faults.append(f'{what}: {len(got)} values, {bad[:3]}')


def tensors(path):
    """{name: (offset, shape)} of a model."""
    j = json.loads(expect(0, 'inspect', path, '--json', '--no-cost'))
    return {t['tensor']: (t['offset'], t['shape']) for t in j['tensors']}


def values(path, offset, n):
    with open(path, 'rb') as f:
        f.seek(offset)
        return struct.unpack(f'<{n}f', f.read(4 * n))


def sums_of(path):
    """{name: floats} of an importance matrix, parsed from the listing and the bytes."""
    import re
    text = call('inspect', path).stdout.decode()
    found = re.findall(r'^(\S+)\s+\[(\d+), (\d+)\]\s+F32\s.*offset (\d+)$', text, re.M)
    return {name: values(path, int(at), int(a) * int(b)) for name, a, b, at in found}, text


def norm(x): return [v / math.sqrt(sum(y * y for y in x) / len(x) + 1e-6) for v in x]
def times(m, x): return [sum(a * b for a, b in zip(m[i * len(x):(i + 1) * len(x)], x)) for i in range(len(m) // len(x))]
def gelu(x): return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def expected(model, ids):
    """Sums over the tokens: of the norm's output, and of gelu(gate) * up."""
    at = tensors(model)
    load = lambda name, n: values(model, at[name][0], n)
    emb = load('token_embd.weight', E * at['token_embd.weight'][1][1])
    gate, up = load('blk.0.ffn_gate.weight', E * F), load('blk.0.ffn_up.weight', E * F)
    rows = {}
    for i in set(ids):
        h = norm([8 * v for v in emb[i * E:(i + 1) * E]])  # embeddings are multiplied by sqrt(64)
        rows[i] = [v * v for v in h], [(gelu(g) * u) ** 2 for g, u in zip(times(gate, h), times(up, h))]
    return [[sum(rows[i][k][j] for i in ids) for j in range(E)] for k in range(2)]


def clear(model, name):
    """Sets a tensor of 32-bit floats to zero."""
    offset, shape = tensors(model)[name]
    with open(model, 'r+b') as f:
        f.seek(offset)
        f.write(bytes(4 * math.prod(shape)))


def layer_inputs(model, ids, weights):
    """{token: x} with the residual stream after layer 0's attention, and a reader of the model's tensors."""
    at = tensors(model)
    load = lambda name: values(model, at[name][0], math.prod(at[name][1]))
    n = at['token_embd.weight'][1][0]
    rows = {i: values(model, at['token_embd.weight'][0] + 4 * n * i, n) for i in set(ids)}
    return rows, {name: load(name) for name in weights}


def check_experts(maker, folder, text):
    """Routing, counts and sums of the experts of layer 0."""
    model, out = os.path.join(folder, 'moe.gguf'), os.path.join(folder, 'moe-im.gguf')
    subprocess.run([maker, model, '512', 'qwen3moe', '0', 'F32'], check=True)
    clear(model, 'blk.0.attn_output.weight')
    ids = json.loads(expect(0, 'tokenize', '-m', model, '-f', text, '--ids'))
    expect(0, 'imatrix', model, '-f', text, '-c', '64', '-o', out, '--chunks', '1', err='is written')
    names = [f'blk.0.ffn_{n}.weight' for n in ('norm', 'gate_inp', 'gate_exps', 'up_exps', 'down_exps')]
    rows, w = layer_inputs(model, ids[:64], names)
    n, n_ff, n_expert, n_used = len(w[names[0]]), 64, 8, 2
    sums = {k: [[0.0] * len_ for _ in range(n_expert)] for k, len_ in (('in', n), ('mid', n_ff))}
    counts = [0] * n_expert
    for i in ids[:64]:
        h = [a * b for a, b in zip(norm(rows[i]), w[names[0]])]
        logits = times(w[names[1]], h)
        for e in sorted(range(n_expert), key=lambda e: -logits[e])[:n_used]:
            part = lambda name: w[name][e * n * n_ff:(e + 1) * n * n_ff]
            mid = [g / (1 + math.exp(-g)) * u for g, u in zip(times(part(names[2]), h), times(part(names[3]), h))]
            counts[e] += 1
            for to, x in (sums['in'][e], h), (sums['mid'][e], mid):
                for k, v in enumerate(x): to[k] += v * v
    got = sums_of(out)[0]
    for name, of in ('gate', 'in'), ('up', 'in'), ('down', 'mid'):
        close(f'{name} of experts', got[f'blk.0.ffn_{name}_exps.weight.in_sum2'], sum(sums[of], []))
        close(f'counts of {name}', got[f'blk.0.ffn_{name}_exps.weight.counts'], counts)
    if got['blk.2.ffn_gate_inp.weight.counts'] != (64.0,): faults.append('the last layer: not all tokens')
    for name in 'with', 'without':
        expect(0, 'quantize', *(['--imatrix', out] if name == 'with' else []), model, os.path.join(folder, name), 'Q4_0')
    a, b = (open(os.path.join(folder, name), 'rb').read()[-20000:] for name in ('with', 'without'))
    if a == b: faults.append('experts: the matrix has no effect')


def check_heads(maker, folder, text):
    """Latent attention: a stack with a matrix per head has one count. quantize reads it."""
    model, out = os.path.join(folder, 'mla.gguf'), os.path.join(folder, 'mla-im.gguf')
    subprocess.run([maker, model, '512', 'deepseek2'], check=True)
    expect(0, 'imatrix', model, '-f', text, '-c', '64', '-o', out, '--chunks', '1', err='is written')
    got, (_, shape) = sums_of(out)[0], tensors(model)['blk.1.attn_k_b.weight']
    name = 'blk.1.attn_k_b.weight'
    if got[name + '.counts'] != (64.0,) or len(got[name + '.in_sum2']) != shape[0] * shape[2] or min(got[name + '.in_sum2']) < 0:
        faults.append(f'heads: {len(got[name + ".in_sum2"])} sums, counts {got[name + ".counts"]}')
    expect(0, 'quantize', '--imatrix', out, '--allow-requantize', '--pure', model, os.path.join(folder, 'mla-q.gguf'), 'Q4_0')


def check_exact_gelu(maker, folder):
    """ModernBERT: LayerNorm of the embedding, then gelu(gate) * up with the exact GELU."""
    model, out = os.path.join(folder, 'encoder.gguf'), os.path.join(folder, 'encoder-im.gguf')
    subprocess.run([maker, model, '512', 'modern-bert', '0', 'F32'], check=True)
    clear(model, 'blk.0.attn_output.weight')
    ids = json.loads(expect(0, 'tokenize', '-m', model, '-p', 'the quick brown fox', '--ids'))
    expect(0, 'embed', model, '-p', 'the quick brown fox', '--imatrix-file', out)
    names = ['token_embd_norm.weight', 'blk.0.ffn_norm.weight', 'blk.0.ffn_up.weight']
    rows, w = layer_inputs(model, ids, names)
    def layer_norm(x, scale):
        mean = sum(x) / len(x)
        var = sum((v - mean) ** 2 for v in x) / len(x)
        return [(v - mean) / math.sqrt(var + 1e-5) * s for v, s in zip(x, scale)]
    total = [0.0] * 96
    for i in ids:
        h = times(w[names[2]], layer_norm(layer_norm(rows[i], w[names[0]]), w[names[1]]))
        for k in range(96):
            g, u = h[k], h[k + 96]
            total[k] += (0.5 * g * (1 + math.erf(g / math.sqrt(2))) * u) ** 2
    close('exact GELU', sums_of(out)[0]['blk.0.ffn_down.weight.in_sum2'], total)


def main():
    with tempfile.TemporaryDirectory() as folder:
        model, text, out = (os.path.join(folder, n) for n in ('tiny.gguf', 'text', 'im.gguf'))
        write_model(model)
        clear(model, 'blk.0.attn_output.weight')
        with open(text, 'w') as f: f.write(TEXT)
        ids = json.loads(expect(0, 'tokenize', '-m', model, '-f', text, '--ids'))
        n = len(ids) // 64
        said = expect(0, 'imatrix', model, '-f', text, '-c', '64', '-o', out, err='is written')
        if 'Final estimate: PPL' not in said: faults.append(f'no perplexity: {said[:200]}')
        seen = [2 if i % 64 == 0 else t for i, t in enumerate(ids[:n * 64])]  # each chunk begins with BOS
        normed, gated = expected(model, seen)
        got, listing = sums_of(out)
        for name in ('attn_q', 'attn_k', 'attn_v', 'ffn_gate', 'ffn_up'): close(name, got[f'blk.0.{name}.weight.in_sum2'], normed)
        close('ffn_down', got['blk.0.ffn_down.weight.in_sum2'], gated)
        if len(got) != 28 or any(v != (n * 64,) for k, v in got.items() if k.endswith('counts')): faults.append(f'counts: {listing}')
        for key in ('general.type .*"imatrix"', f'imatrix.chunk_count .*{n}$', 'imatrix.chunk_size .*64$', r'imatrix.datasets .*\["' + text + '"'):
            if not __import__('re').search(key, listing, 8): faults.append(f'no {key}: {listing[:600]}')
        part = os.path.join(folder, 'part.gguf')
        expect(0, 'imatrix', model, '-f', text, '-c', '64', '-o', part, '--chunks', '1', '--imatrix-dataset', 'mine')
        if sums_of(part)[0]['blk.0.attn_q.weight.counts'] != (64.0,) or '"mine"' not in sums_of(part)[1]: faults.append('--chunks 1')
        files = [os.path.join(folder, n) for n in ('with.gguf', 'without.gguf')]
        expect(0, 'quantize', '--imatrix', out, model, files[0], 'Q4_0')
        expect(0, 'quantize', model, files[1], 'Q4_0')
        a, b = (open(f, 'rb').read() for f in files)
        if a[-20000:] == b[-20000:]: faults.append('quantize: the matrix has no effect')
        expect(0, 'run', model, '-p', 'the', '-n', '4', '--ignore-eos', '--imatrix-file', part)  # any command can count
        if sums_of(part)[0]['blk.0.attn_q.weight.counts'][0] not in (5.0, 4.0): faults.append(f'run: {sums_of(part)[0]["blk.0.attn_q.weight.counts"]}')
        expect(64, 'imatrix', model, err='no text')
        expect(64, 'imatrix', '-f', text, err='no model')
        expect(65, 'imatrix', model, '-p', 'short', '-o', part, err='has')
        expect(74, 'imatrix', model, '-f', text, '-c', '64', '-o', os.path.join(folder, 'no/im.gguf'), err='was not written')
        expect(69, 'imatrix', model, '-f', text, '-md', model, '-o', part, err='drafters')
        link = os.path.join(folder, 'llama-imatrix')
        os.symlink(BIN, link)
        expect(0, '-m', model, '-f', text, '-c', '64', '-o', part, name=link, out='PPL')
        maker = os.path.join(os.environ.get('PAGEDINFER_BUILD', 'build'), 'tests/tool_tiny_model')
        if os.path.exists(maker):
            check_experts(maker, folder, text)
            check_heads(maker, folder, text)
            check_exact_gelu(maker, folder)
        if importlib.util.find_spec('gguf'):
            import gguf
            r = gguf.GGUFReader(out)
            t = {x.name: x for x in r.tensors}
            close('the gguf package', [float(v) for v in t['blk.0.attn_q.weight.in_sum2'].data.flatten()], normed)
    for f in faults: print(f)
    print(f'importance matrices: {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__': sys.exit(main())
