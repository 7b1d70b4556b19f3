"""Rows of gen_reference.py for models with Kimi delta attention. NAMES, MODELS and MUTATIONS: as in reference_shelf.py;
these models have no other mutations. CLASSES: configuration and model of families that transformers lacks."""
import torch, transformers
from torch import nn
from transformers.models.kimi_linear import modeling_kimi_linear as kimi

MLA = {f'attn_{file}': f'self_attn.{name}' for file, name in (
    ('q_a', 'q_a_proj'), ('q_a_norm', 'q_a_layernorm'), ('q_b', 'q_b_proj'), ('kv_a_mqa', 'kv_a_proj_with_mqa'),
    ('kv_a_norm', 'kv_a_layernorm'), ('gate', 'g_proj'))}
KDA = {f'ssm_{file}': f'self_attn.{name}' for file, name in (
    ('f_a', 'forget_gate.f_a_proj'), ('f_b', 'forget_gate.f_b_proj'), ('dt', 'forget_gate.dt'), ('a', 'forget_gate.A_log'),
    ('g_a', 'g_a_proj'), ('g_b', 'g_b_proj'), ('beta', 'b_proj'), ('norm', 'o_norm'))}
EXPERTS = {'exp_probs_b': 'mlp.gate.e_score_correction',
           **{f'ffn_{part}_shexp': f'mlp.shared_experts.{part}_proj' for part in ('gate', 'up', 'down')}}
NAMES = {arch: {**MLA, **KDA, **EXPERTS} for arch in ('kimi-linear', 'bailingmoe3')}


class Decays(kimi.KimiLinearForgetGate):
    """Log decays between 0 and a bound, from one matrix."""
    def __init__(self, config):
        super().__init__(config)
        self.f_a_proj, self.f_b_proj = nn.Linear(config.hidden_size, self.qkv_dim, bias=False), nn.Identity()
        self.bound = config.decay_bound

    def forward(self, x):
        g = (self.f_a_proj(x) + self.dt_bias).unflatten(-1, (-1, self.head_dim))
        return self.bound * torch.sigmoid(self.A_log.exp() * g)


class Attention(kimi.KimiLinearAttention):
    """Latent attention with rotated parts in interleaved pairs, and one gate per head."""
    def __init__(self, config, layer):
        super().__init__(config, layer)
        self.g_proj = nn.Linear(config.hidden_size, config.num_attention_heads, bias=False)
        self.base, self.gated = config.rope_base, config.gated

    def rotated(self, x):
        n = x.shape[-1]
        angle = torch.arange(x.shape[-2])[:, None] * self.base ** (-torch.arange(0, n, 2) / n)
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)

    def forward(self, hidden_states, **_):
        x, n, T = hidden_states, self.qk_nope_head_dim, hidden_states.shape[1]
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))).unflatten(-1, (-1, self.qk_head_dim)).transpose(1, 2)
        latent, rot = self.kv_a_proj_with_mqa(x).split([self.kv_lora_rank, self.qk_rope_head_dim], -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).unflatten(-1, (-1, n + self.v_head_dim)).transpose(1, 2)
        scores = q[..., :n] @ kv[..., :n].mT + self.rotated(q[..., n:]) @ self.rotated(rot[:, None]).mT
        scores = scores * self.qk_head_dim ** -0.5 + torch.full((T, T), float('-inf')).triu(1)
        heads = (scores.softmax(-1) @ kv[..., n:]).transpose(1, 2)
        if self.gated: heads = heads * self.g_proj(x).sigmoid()[..., None]
        return self.o_proj(heads.flatten(-2)), None


def limited(gate, up, limit):
    act = nn.functional.silu(gate)
    return act.clamp(max=limit) * up.clamp(-limit, limit) if limit else act * up


class Experts(kimi.KimiLinearExperts):
    limit = 0
    def forward(self, x, chosen, weights):
        w = torch.zeros(x.shape[0], self.num_experts).scatter(1, chosen, weights)
        gate, up = torch.einsum('te,xfe->txf', x, self.gate_up_proj).chunk(2, -1)
        return torch.einsum('tx,txf,xef->te', w, limited(gate, up, self.limit), self.down_proj)


class SharedExpert(kimi.KimiLinearMLP):
    limit = 0
    def forward(self, x): return self.down_proj(limited(self.gate_proj(x), self.up_proj(x), self.limit))


class Ling3Config(transformers.KimiLinearConfig):
    def __init__(self, decay_bound=-1.0, rope_base=1e4, gated=True, limits=None, n_ff_shared=0, **rest):
        super().__init__(**rest)
        self.decay_bound, self.rope_base, self.gated, self.limits = decay_bound, rope_base, gated, limits
        self.n_ff_shared = n_ff_shared


class Ling3ForCausalLM(kimi.KimiLinearForCausalLM):
    config_class = Ling3Config
    def __init__(self, config):
        super().__init__(config)
        for i, layer in enumerate(self.model.layers):
            if config.layer_types[i] == 'full_attention': layer.self_attn = Attention(config, i)
            else:
                layer.self_attn.forget_gate = Decays(config)
                layer.self_attn.g_a_proj = nn.Linear(config.hidden_size, layer.self_attn.qkv_dim, bias=False)
                layer.self_attn.g_b_proj = nn.Identity()
            if config.mlp_layer_types[i] == 'sparse':
                layer.mlp.experts = Experts(config)
                layer.mlp.shared_experts = SharedExpert(config, config.n_ff_shared)
                if config.limits: layer.mlp.experts.limit, layer.mlp.shared_experts.limit = (x[i] for x in config.limits)


CLASSES = {'Ling3': (Ling3Config, Ling3ForCausalLM)}


def kimi_linear(k, **more):
    n = k('block_count')
    return {'kv_lora_rank': k('attention.kv_lora_rank'), 'qk_rope_head_dim': k('rope.dimension_count'),
            'qk_nope_head_dim': k('attention.key_length_mla') - k('rope.dimension_count'), 'v_head_dim': k('attention.value_length_mla'),
            'num_key_value_heads': k('attention.head_count'), 'num_local_experts': k('expert_count'),
            'num_experts_per_tok': k('expert_used_count'), 'n_group': k('expert_group_count'), 'topk_group': k('expert_group_used_count'),
            'moe_intermediate_size': k('expert_feed_forward_length'), 'n_shared_experts': k('expert_shared_count'),
            'routed_scaling_factor': k('expert_weights_scale'), 'norm_topk_prob': True, 'linear_head_dim': k('kda.head_dim'),
            'linear_num_heads': k('attention.head_count'), 'linear_conv_kernel_dim': k('ssm.conv_kernel'),
            'layer_types': ['full_attention' if x else 'linear_attention' for x in k('attention.head_count_kv')],
            'mlp_layer_types': ['dense' if i < k('leading_dense_block_count') else 'sparse' for i in range(n)], **more}


MODELS = {
    'kimi-linear': ('KimiLinear', kimi_linear),
    'bailingmoe3': ('Ling3', lambda k: kimi_linear(
        k, q_lora_rank=k('attention.q_lora_rank'), decay_bound=k('kda.gate_lower_bound'), rope_base=k('rope.freq_base'),
        limits=[k('swiglu_clamp_exp'), k('swiglu_clamp_shexp')], n_ff_shared=k('expert_shared_feed_forward_length'))),
}
COMMON = [(part, {}, part) for part in ('dt_bias', 'A_log', 'b_proj', 'g_a_proj', 'e_score_correction_bias')]
COMMON += [('norm of heads', {}, '=o_norm'), ('norm of latents', {}, '=kv_a_layernorm'), ('shared experts', {}, 'shared_experts'),
           ('scale of weights', {'routed_scaling_factor': 1.0}, None), ('divided weights', {'norm_topk_prob': False}, None)]
MUTATIONS = {
    'kimi-linear': [*COMMON, ('second matrix of decays', {}, 'f_b_proj'), ('second matrix of gates', {}, 'g_b_proj')],
    'bailingmoe3': [*COMMON, ('bound of decays', {'decay_bound': -1.0}, None), ('rotation', {'rope_base': 1e30}, None),
                    ('gates of heads', {'gated': False}, None), ('limits', {'limits': None}, None), ('groups', {'topk_group': 4}, None)],
}


def finish(out):
    """Changes the weights of Kimi delta attention to transformers' names and shapes."""
    for name in list(out):
        if name.endswith('forget_gate.dt.bias'): out[name.replace('dt.bias', 'dt_bias')] = out.pop(name)
        elif name.endswith('A_log.weight'): out[name[:-len('.weight')]] = out.pop(name).abs().log().reshape(1, 1, -1, 1)
        elif name.endswith('ssm_conv1d_q.weight'):
            parts = [out.pop(name.replace('conv1d_q', f'conv1d_{x}')) for x in 'qkv']
            out[name.replace('ssm_conv1d_q', 'self_attn.conv1d')] = torch.cat([p.reshape(-1, 1, p.shape[-1]) for p in parts])
    return out
