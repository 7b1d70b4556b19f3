#!/usr/bin/env python3
"""Checks `pagedinfer imatrix`: the sums of squared inputs, with a tiny model whose inputs Python can compute.

The attention output of the model's first layer is set to zero, so the inputs of that layer's matrices follow from the
embeddings: RMSNorm for q, k, v, gate and up, and gelu(gate) * up for down. Other checks: counts, metadata, the effect on
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


def main():
    with tempfile.TemporaryDirectory() as folder:
        model, text, out = (os.path.join(folder, n) for n in ('tiny.gguf', 'text', 'im.gguf'))
        write_model(model)
        offset = tensors(model)['blk.0.attn_output.weight'][0]
        with open(model, 'r+b') as f:
            f.seek(offset)
            f.write(bytes(4 * E * E))
        with open(text, 'w') as f: f.write(TEXT)
        ids = json.loads(expect(0, 'tokenize', '-m', model, '-f', text, '--ids'))
        n = len(ids) // 64
        said = expect(0, 'imatrix', model, '-f', text, '-c', '64', '-o', out, err='is written')
        if 'Final estimate: PPL' not in said: faults.append(f'no perplexity: {said[:200]}')
        # Each chunk begins with BOS; its last token is only scored.
        seen = [2 if i % 64 == 0 else t for i, t in enumerate(ids[:n * 64]) if i % 64 < 63]
        normed, gated = expected(model, seen)
        got, listing = sums_of(out)
        for name in ('attn_q', 'attn_k', 'attn_v', 'ffn_gate', 'ffn_up'): close(name, got[f'blk.0.{name}.weight.in_sum2'], normed)
        close('ffn_down', got['blk.0.ffn_down.weight.in_sum2'], gated)
        if len(got) != 28 or any(v != (n * 63,) for k, v in got.items() if k.startswith('blk.0') and k.endswith('counts')): faults.append(f'counts: {listing}')
        for key in ('general.type .*"imatrix"', f'imatrix.chunk_count .*{n}$', 'imatrix.chunk_size .*64$', r'imatrix.datasets .*\["' + text + '"'):
            if not __import__('re').search(key, listing, 8): faults.append(f'no {key}: {listing[:600]}')
        part = os.path.join(folder, 'part.gguf')
        expect(0, 'imatrix', model, '-f', text, '-c', '64', '-o', part, '--chunks', '1', '--imatrix-dataset', 'mine')
        if sums_of(part)[0]['blk.0.attn_q.weight.counts'] != (63.0,) or '"mine"' not in sums_of(part)[1]: faults.append('--chunks 1')
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
            experts = os.path.join(folder, 'moe.gguf')
            subprocess.run([maker, experts, '512', 'qwen3moe'], check=True)
            expect(69, 'imatrix', experts, '-f', text, '-c', '64', '-o', part, err='experts')
        if importlib.util.find_spec('gguf'):
            import gguf
            r = gguf.GGUFReader(out)
            t = {x.name: x for x in r.tensors}
            close('the gguf package', [float(v) for v in t['blk.0.attn_q.weight.in_sum2'].data.flatten()], normed)
    for f in faults: print(f)
    print(f'importance matrices: {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__': sys.exit(main())
