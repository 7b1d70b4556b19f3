"""Encoders that transformers does not have, for gen_vectors.py: Jina Embeddings 2 (also its kind for code), Nomic Embed 2
and NeoBERT, after the code that their authors publish with the weights. Tensors have the names of llama.cpp's converter
and its order of rows. A dot in a name is an underscore in the module."""
import math

import torch
from torch.nn import functional as F


def slopes(n_head):
    """Returns ALiBi's slopes (arXiv 2108.12409): those of the next lower power of two, then every second one of twice that."""
    def powers(n): return [2 ** (-8 / n * (i + 1)) for i in range(n)]
    near = 2 ** math.floor(math.log2(n_head))
    return powers(near) + powers(2 * near)[0::2][:n_head - near]


class Encoder(torch.nn.Module):
    """field(key): the file's metadata. tensors: by name."""
    def __init__(self, arch, field, tensors):
        super().__init__()
        self.arch, self.field, self.names = arch, field, set(tensors)
        self.n_layer, self.n_head = field('block_count'), field('attention.head_count')
        if arch == 'jina-bert-v2': self.register_parameter('alibi_slopes', torch.nn.Parameter(torch.tensor(slopes(self.n_head))))
        for name, t in tensors.items(): self.register_parameter(name.replace('.', '_'), torch.nn.Parameter(t))

    def has(self, name): return name in self.names
    def w(self, name): return getattr(self, name.replace('.', '_')) if self.has(name) else None
    def linear(self, name, x): return F.linear(x, self.w(name + '.weight'), self.w(name + '.bias'))

    def norm(self, name, x):
        if self.arch == 'neo-bert':
            eps = self.field('attention.layer_norm_rms_epsilon')
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.w(name + '.weight')
        return F.layer_norm(x, x.shape[-1:], self.w(name + '.weight'), self.w(name + '.bias'), self.field('attention.layer_norm_epsilon'))

    def heads(self, x): return x.view(x.shape[0], self.n_head, -1).transpose(0, 1)

    def qkv(self, at, x):
        """Returns queries, keys and values [heads, tokens, values]."""
        if not self.has(at + 'attn_qkv.weight'):
            q, k, v = (self.linear(f'{at}attn_{p}', x) for p in 'qkv')
            if self.has(at + 'attn_q_norm.weight'): q, k = self.norm(at + 'attn_q_norm', q), self.norm(at + 'attn_k_norm', k)
            return self.heads(q), self.heads(k), self.heads(v)
        if self.arch == 'neo-bert': return self.heads(self.linear(at + 'attn_qkv', x)).chunk(3, -1)
        return [self.heads(part) for part in self.linear(at + 'attn_qkv', x).chunk(3, -1)]

    def rotate(self, x):
        """Pairs are adjacent values in NeoBERT, else the halves of a head."""
        n, dim = x.shape[-2:]
        angle = torch.outer(torch.arange(n).float(), self.field('rope.freq_base') ** (-torch.arange(0, dim, 2).float() / dim))
        pairs = x.unflatten(-1, (-1, 2)) if self.arch == 'neo-bert' else x.unflatten(-1, (2, -1)).transpose(-1, -2)
        a, b = pairs.unbind(-1)
        out = torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)
        return (out if self.arch == 'neo-bert' else out.transpose(-1, -2)).flatten(-2)

    def alibi(self, n):
        at = torch.arange(n)
        return -self.alibi_slopes[:, None, None] * (at[None, :] - at[:, None]).abs()

    def attention(self, at, x):
        q, k, v = self.qkv(at, x)
        if self.arch != 'jina-bert-v2': q, k = self.rotate(q), self.rotate(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if self.arch == 'jina-bert-v2': scores = scores + self.alibi(x.shape[0])
        return self.linear(at + 'attn_output', (scores.softmax(-1) @ v).transpose(0, 1).flatten(1))

    def experts(self, at, x):
        """A token's weights are the largest values of the softmax over all experts."""
        weight, chosen = F.linear(x, self.w(at + 'ffn_gate_inp.weight')).softmax(-1).topk(self.field('expert_used_count'), -1)
        up, down, out = self.w(at + 'ffn_up_exps.weight'), self.w(at + 'ffn_down_exps.weight'), torch.zeros_like(x)
        for t in range(x.shape[0]):
            for w, i in zip(weight[t], chosen[t]): out[t] += w * (down[i] @ F.gelu(up[i] @ x[t]))
        return out

    def feed_forward(self, at, x):
        if self.has(at + 'ffn_gate_inp.weight'): return self.experts(at, x)
        up = self.linear(at + 'ffn_up', x)
        if self.arch == 'nomic-bert-moe': up = F.gelu(up)
        elif self.arch == 'neo-bert': up = F.silu(up.chunk(2, -1)[0]) * up.chunk(2, -1)[1]
        elif self.has(at + 'ffn_gate.weight'): up = F.gelu(self.linear(at + 'ffn_gate', x)) * up
        else: up = up.chunk(2, -1)[0] * F.gelu(up.chunk(2, -1)[1])  # the kind for code
        return self.linear(at + 'ffn_down', up)

    def forward(self, ids):
        x = F.embedding(ids[0], self.w('token_embd.weight'))
        if self.arch == 'neo-bert':
            for i in range(self.n_layer):
                x = x + self.attention(f'blk.{i}.', self.norm(f'blk.{i}.attn_norm', x))
                x = x + self.feed_forward(f'blk.{i}.', self.norm(f'blk.{i}.ffn_norm', x))
            return self.norm('enc.output_norm', x)
        x = self.norm('token_embd_norm', x + self.w('token_types.weight')[0])
        for i in range(self.n_layer):
            at = f'blk.{i}.'
            y = self.norm(at + 'attn_output_norm', x + self.attention(at, x))
            x = self.norm(at + 'attn_norm_2', x + y) if self.has(at + 'attn_norm_2.weight') else y
            x = self.norm(at + 'layer_output_norm', x + self.feed_forward(at, x))
        return x
