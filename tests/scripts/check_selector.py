#!/usr/bin/env python3
"""Compares block drafters with convolutions and a selector (DFlash2) with double precision.

For random models (tool_tiny_model), a Qwen 3 target and its drafter, numpy computes three things: the target's
features, the drafter's block, and the path that its selector takes, as "DFlash2" defines them. tool_draft's logits are
within 1e-3 of the row's spread. Its drafts are equal wherever the reference's choice is not a near tie. On the
emulated device as many drafts are made and accepted as on the CPU. Exit 77: no gguf or numpy.
"""
import json, os, subprocess, sys, tempfile

try:
    import numpy as np
    from gguf import GGUFReader, dequantize
except ImportError as e:
    print(f'cannot check: {e}')
    sys.exit(77)

BUILD = os.environ.get('PAGEDINFER_BUILD', 'build')
TINY, DRAFT, EMULATED = (os.path.join(BUILD, 'tests', t) for t in ('tool_tiny_model', 'tool_draft', 'simt/pagedinfer_emu'))
SIZES = {'plain': 'g=1 v=1 k=3 i=4 R=32', 'long taps, few tokens': 'g=1 v=1 k=11 i=5 R=64 K=40 p=1 J=1',
         'a window, a head of its own': 'g=1 v=1 k=2 i=8 R=32 o=1 w=1', 'capped': 'g=1 v=1 k=3 i=6 R=32 t=1 l=1'}
N_DRAFTS = 7


class File:
    def __init__(self, path):
        r = GGUFReader(path)
        self.arch = r.get_field('general.architecture').contents()
        self.meta = {f.name: f.contents() for f in r.fields.values() if not f.name.startswith('tokenizer.ggml.to')}
        self.tensor = {t.name: t for t in r.tensors}

    def key(self, name, default=None): return self.meta.get(f'{self.arch}.{name}', default)

    def __contains__(self, name): return name in self.tensor

    def __getitem__(self, name):
        """Returns the tensor in numpy's order: rows first."""
        t = self.tensor[name]
        x = t.data if t.data.dtype in (np.float32, np.int64) else dequantize(t.data, t.tensor_type)
        return x.reshape([int(n) for n in reversed(t.shape)]).astype(np.float64)


def rms(x, w, eps=1e-6): return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def turn(x, pos, base):
    """Applies RoPE to [n, heads, D] in pairs i, i + D/2."""
    half = x.shape[-1] // 2
    angle = pos[:, None, None] * base ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


def attend(q, k, v, seen):
    """Attention with q [n, H, D], k and v [m, G, D], and the mask seen [n, m]."""
    rep = q.shape[1] // k.shape[1]
    s = np.einsum('nhd,mhd->hnm', q, np.repeat(k, rep, 1)) / np.sqrt(q.shape[-1])
    s = np.where(seen[None], s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum('hnm,mhd->nhd', p / p.sum(-1, keepdims=True), np.repeat(v, rep, 1)).reshape(q.shape[0], -1)


def silu(x): return x / (1 + np.exp(-x))


def gelu(x): return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def qkv(f, n, h, pos, base, dim):
    q, k, v = ((h @ f[f'blk.{n}.attn_{c}.weight'].T).reshape(len(h), -1, dim) for c in 'qkv')
    return (turn(rms(q, f[f'blk.{n}.attn_q_norm.weight']), pos, base), turn(rms(k, f[f'blk.{n}.attn_k_norm.weight']), pos, base), v)


def features(f, ids, layers):
    """Returns the residual stream before these layers of a Qwen 3, concatenated along the columns."""
    dim, base, n = f.key('attention.key_length'), f.key('rope.freq_base'), len(ids)
    pos, x, got = np.arange(n), f['token_embd.weight'][ids], {}
    for i in range(f.key('block_count')):
        got[i] = x
        q, k, v = qkv(f, i, rms(x, f[f'blk.{i}.attn_norm.weight']), pos, base, dim)
        x = x + attend(q, k, v, pos[None] <= pos[:, None]) @ f[f'blk.{i}.attn_output.weight'].T
        z = rms(x, f[f'blk.{i}.ffn_norm.weight'])
        x = x + (silu(z @ f[f'blk.{i}.ffn_gate.weight'].T) * (z @ f[f'blk.{i}.ffn_up.weight'].T)) @ f[f'blk.{i}.ffn_down.weight'].T
    got[f.key('block_count')] = x
    return np.concatenate([got[j] for j in layers], -1)


def conv(x, own, base, group):
    """Causal convolution of x [n, E]: each token's taps own [n, K, E / group] are added to base [K, E]."""
    out = np.zeros_like(x)
    for s in range(len(x)):
        for tap in range(min(s + 1, len(base))): out[s] += (base[tap] + np.repeat(own[s, tap], group)) * x[s - tap]
    return out


def around(f, n, kind, x, group):
    """Returns a function (rows, side) that applies the convolution before (0) or after (1) attention or
    feed-forward."""
    base = f[f'blk.{n}.{kind}_conv_base']
    own = (x @ f[f'blk.{n}.{kind}_conv_proj.weight'].T).reshape(len(x), 2, len(base[0]), -1)
    return lambda rows, side: conv(rows, own[:, side], base[side], group)


def block(f, target, ids, n_drafts):
    """Returns (logits of the block, [(draft, its margin)]). The block follows ids[:-1] and begins with the last id."""
    dim, base, last = f.key('attention.key_length'), f.key('rope.freq_base'), len(ids) - 1
    g = rms(features(target, ids[:last], f.key('target_layers')) @ f['fc.weight'].T, f['enc.output_norm.weight'])
    embd = (f if 'token_embd.weight' in f else target)['token_embd.weight']
    x = embd[[ids[-1]] + [f.meta['tokenizer.ggml.mask_token_id']] * n_drafts] * f.key('embedding_scale', 1)
    past, pos, group = np.arange(last), last + np.arange(n_drafts + 1), f.key('conv_group_size')
    act = gelu if f.key('hidden_activation', 'silu').startswith('gelu') else silu
    for i in range(f.key('block_count')):
        _, k0, v0 = qkv(f, i, g, past, base, dim)
        local = f.key('attention.sliding_window') if f.key('attention.sliding_window_pattern', [0] * 9)[i] else 1 << 30
        h = rms(x, f[f'blk.{i}.attn_norm.weight'])
        c = around(f, i, 'attn', h, group)
        q, k, v = qkv(f, i, c(h, 0), pos, base, dim)
        keys = np.concatenate([past, pos])
        a = attend(q, np.concatenate([k0, k]), np.concatenate([v0, v]), pos[:, None] - keys[None] < local)
        y = c(a @ f[f'blk.{i}.attn_output.weight'].T, 1)
        x = x + (rms(y, f[f'blk.{i}.post_attention_norm.weight']) if f'blk.{i}.post_attention_norm.weight' in f else y)
        z = rms(x, f[f'blk.{i}.ffn_norm.weight'])
        c = around(f, i, 'ffn', z, group)
        z = c(z, 0)
        y = c((act(z @ f[f'blk.{i}.ffn_gate.weight'].T) * (z @ f[f'blk.{i}.ffn_up.weight'].T)) @ f[f'blk.{i}.ffn_down.weight'].T, 1)
        x = x + (rms(y, f[f'blk.{i}.post_ffw_norm.weight']) if f'blk.{i}.post_ffw_norm.weight' in f else y)
        if f'blk.{i}.layer_output_scale.weight' in f: x = x * f[f'blk.{i}.layer_output_scale.weight']
    hidden = rms(x, f['output_norm.weight'])
    head = f['output.weight'] if 'output.weight' in f else embd
    if 'output.weight' not in f and 'token_embd.weight' not in f and 'output.weight' in target: head = target['output.weight']
    logits = hidden @ head.T
    return logits, walk(f, logits, hidden @ f['selector_hidden.weight'].T, ids[-1], n_drafts)


def walk(f, logits, gate, token, n_drafts):
    before, after, out = f['selector_predecessor.weight'], f['selector_successor.weight'], []
    name = f['d2t'].astype(int) if 'd2t' in f else np.arange(logits.shape[1])
    unary, cap = logits * f.key('logit_scale', 1), f.key('final_logit_softcapping', 0)
    if cap: unary = cap * np.tanh(unary / cap)
    for s in range(1, n_drafts + 1):
        order = np.argsort(-unary[s], kind='stable')
        best = order[:f.key('selector_top_k')]
        score = unary[s][best] + after[name[best]] @ (before[token] * gate[s])
        rank = np.argsort(-score, kind='stable')
        edge = unary[s][best[-1]] - unary[s][order[len(best)]] if len(best) < len(order) else 1
        out.append((int(name[best[rank[0]]]), min(edge, score[rank[0]] - score[rank[1]])))
        token = out[-1][0]
    return out


def check(name, sizes, d):
    faults, paths = [], [os.path.join(d, f) for f in ('target.gguf', 'draft.gguf', 'rows')]
    subprocess.run([TINY, paths[0], '512', 'qwen3', '3', 'F32', 'L=5 E=64'], check=True)
    subprocess.run([TINY, paths[1], '512', 'dflash', '5', 'F32', sizes], check=True)
    target, f, worst, n = File(paths[0]), File(paths[1]), 0.0, 0
    for length in (2, 19, 75):
        ids = [(7 * i * i + 13 * i + length) % 300 for i in range(length)]
        got = subprocess.run([DRAFT, paths[0], paths[2], str(N_DRAFTS), '1', '1', paths[1]], input=' '.join(map(str, ids)),
                             stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        want, drafts = block(f, target, ids, N_DRAFTS)
        rows = np.fromfile(paths[2], np.float32).reshape(want.shape)
        worst = max(worst, float((np.abs(rows - want).max(1) / (want.max(1) - want.min(1))).max()))
        for (token, gap), other in zip(drafts, got):
            if gap < 1e-4: break
            n += 1
            if int(other) != token: faults.append(f'{name}: {length} tokens: drafts {got}, expected {[t for t, _ in drafts]}')
            if int(other) != token: break
    if not worst < 1e-3: faults.append(f'{name}: logits off by {worst:.6f} of their spread')
    if n < 15: faults.append(f'{name}: only {n} drafts were no near ties')
    print(f'{name}: logits within {worst:.1e} of their spread, {n} drafts')
    return faults + emulated(name, paths, d)


def emulated(name, paths, d):
    """A device makes and accepts as many drafts as the CPU."""
    cases, counts = os.path.join(d, 'cases.json'), []
    if not os.path.exists(EMULATED) or name != 'plain': return []
    json.dump([{'name': str(n), 'ids': [(7 * i * i + 13 * i) % 300 for i in range(n)], 'n': 6} for n in (9, 33)], open(cases, 'w'))
    for device in ('cpu', 'emu'):
        out = subprocess.run([EMULATED, 'eval', '-m', paths[0], '-md', paths[1], '--cases', cases, '--device', device, '-t', '1',
                              '-ctk', 'f32', '-ctv', 'f32', '--spec-draft-n-max', '5', '--no-spec-adaptive'],
                             capture_output=True, text=True)
        if out.returncode: return [f'{name} on {device}: {out.stderr[-300:]}']
        lines = [json.loads(l) for l in out.stdout.splitlines() if l.startswith('{')]
        counts.append([(l['greedy'], l['drafted'], l['accepted']) for l in lines])
    return [] if counts[0] == counts[1] and sum(c[1] for c in counts[0]) else [f'{name}: on a device {counts[1]}, on the CPU {counts[0]}']


def main():
    faults = []
    with tempfile.TemporaryDirectory() as d:
        for name, sizes in SIZES.items(): faults += check(name, sizes, d)
    for f in faults: print(f)
    return 1 if faults else 0


sys.exit(main())
