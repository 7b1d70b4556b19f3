"""Rows of gen_reference.py for models with mixers of Mamba and Mamba-2, and those of reference_kimi.py. NAMES, MODELS and MUTATIONS: as in reference_shelf.py; these
models have no other mutations."""
import torch

import reference_kimi


def mixer(to): return {'ssm_in': f'{to}.in_proj', 'ssm_conv1d': f'{to}.conv1d', 'ssm_dt': f'{to}.dt', 'ssm_a': f'{to}.A_log',
                       'ssm_d': f'{to}.D', 'ssm_norm': f'{to}.norm', 'ssm_out': f'{to}.out_proj'}


def first_mixer(to): return {'ssm_in': f'{to}.in_proj', 'ssm_conv1d': f'{to}.conv1d', 'ssm_x': f'{to}.x_proj', 'ssm_dt': f'{to}.dt_proj',
                             'ssm_a': f'{to}.A_log', 'ssm_d': f'{to}.D', 'ssm_out': f'{to}.out_proj',
                             **{f'ssm_{x}_norm': f'{to}.{x}_layernorm' for x in ('dt', 'b', 'c')}}


SHARED = {f'ffn_{part}_shexp': f'mixer.shared_experts.{part}_proj' for part in ('up', 'down')}
NEMOTRON = {**mixer('mixer'), 'token_embd': 'model.embeddings', 'output_norm': 'model.norm_f', 'attn_norm': 'norm',
            **{f'attn_{part}': f'mixer.{part}_proj' for part in 'qkv'}, 'attn_output': 'mixer.o_proj', **SHARED,
            'ffn_up': 'mixer.up_proj', 'ffn_down': 'mixer.down_proj', 'ffn_gate_inp': 'mixer.gate',
            'exp_probs_b': 'mixer.gate.e_score_correction', 'ffn_up_exps': 'mixer.experts.up_proj',
            'ffn_down_exps': 'mixer.experts.down_proj', 'ffn_latent_down': 'mixer.fc1_latent_proj', 'ffn_latent_up': 'mixer.fc2_latent_proj'}
NAMES = {
    'granitehybrid': {**mixer('mamba'), 'ffn_gate_inp': 'block_sparse_moe.router', 'ffn_down': 'shared_mlp.output_linear',
                      'ffn_down_exps': 'block_sparse_moe.experts.down_proj', 'ffn_down_shexp': 'shared_mlp.output_linear'},
    'nemotron_h': NEMOTRON, 'nemotron_h_moe': NEMOTRON,
    'falcon-h1': {**mixer('mamba'), 'ffn_norm': 'pre_ff_layernorm', 'output_norm': 'model.final_layernorm',
                  **{f'ffn_{part}': f'feed_forward.{part}_proj' for part in ('gate', 'up', 'down')}},
    'mamba2': {**mixer('mixer'), 'token_embd': 'model.embeddings', 'output_norm': 'model.norm_f', 'attn_norm': 'norm'},
    'mamba': {**first_mixer('mixer'), 'token_embd': 'model.embeddings', 'output_norm': 'model.norm_f', 'attn_norm': 'norm'},
    'jamba': {**first_mixer('mamba'), 'ffn_norm': 'pre_ff_layernorm', 'output_norm': 'model.final_layernorm', 'ffn_gate_inp': 'feed_forward.router',
              'ffn_down_exps': 'mlp.experts.down_proj', **{f'ffn_{part}': f'feed_forward.{part}_proj' for part in ('gate', 'up', 'down')}},
    **reference_kimi.NAMES,
}
PERMUTED = ('granitehybrid', 'nemotron_h', 'nemotron_h_moe') # Nemotron's attention has no rotation


def head_values(k): return k('ssm.inner_size') // k('ssm.time_step_rank')


def granite(k, **more):
    return {'embedding_multiplier': k('embedding_scale'), 'residual_multiplier': k('residual_scale'), 'logits_scaling': k('logit_scale'),
            'attention_multiplier': k('attention.scale'), 'mamba_n_heads': k('ssm.time_step_rank'), 'mamba_d_head': head_values(k),
            'mamba_n_groups': k('ssm.group_count'), 'mamba_d_state': k('ssm.state_size'), 'mamba_d_conv': 4, 'mamba_expand': 2,
            'layer_types': ['attention' if x else 'mamba' for x in k('attention.head_count_kv')], **more}


def nemotron(k, **more):
    kinds = zip(k('attention.head_count_kv'), k('feed_forward_length'))
    return {'layers_block_type': ['full_attention' if a else 'linear_attention' if not f else 'moe' if more else 'mlp' for a, f in kinds],
            'intermediate_size': max(k('feed_forward_length')), 'layer_norm_epsilon': 1e-5, 'ssm_state_size': k('ssm.state_size'),
            'n_groups': k('ssm.group_count'), 'mamba_num_heads': k('ssm.time_step_rank'), 'mamba_head_dim': head_values(k),
            'conv_kernel': 4, 'expand': 2, 'time_step_min': 1e-12, 'num_hidden_layers': k('block_count'), **more}


def nemotron_moe(k, latent=None):
    return nemotron(k, n_routed_experts=k('expert_count'), num_experts_per_tok=k('expert_used_count'), moe_latent_size=latent,
                    moe_intermediate_size=k('expert_feed_forward_length'), n_shared_experts=1, norm_topk_prob=True,
                    moe_shared_expert_intermediate_size=k('expert_shared_feed_forward_length'),
                    routed_scaling_factor=k('expert_weights_scale'), n_group=1, topk_group=1)


def falcon(k, norm):
    return {'mamba_d_ssm': k('ssm.inner_size'), 'mamba_n_heads': k('ssm.time_step_rank'), 'mamba_d_head': head_values(k),
            'mamba_n_groups': k('ssm.group_count'), 'mamba_d_state': k('ssm.state_size'), 'mamba_d_conv': 4, 'mamba_rms_norm': norm,
            'mamba_norm_before_gate': False}


def mamba(k): return {'state_size': k('ssm.state_size'), 'time_step_rank': k('ssm.time_step_rank'), 'conv_kernel': 4, 'expand': 2,
                      'intermediate_size': k('ssm.inner_size'), 'layer_norm_epsilon': 1e-5}


def jamba(k):
    return {'mamba_d_state': k('ssm.state_size'), 'mamba_d_conv': 4, 'mamba_expand': 2, 'mamba_dt_rank': k('ssm.time_step_rank'),
            'num_experts': k('expert_count'), 'num_experts_per_tok': k('expert_used_count'), 'expert_layer_period': 2,
            'expert_layer_offset': 1, 'attn_layer_period': 4, 'attn_layer_offset': 2}


MODELS = {
    'mamba': ('Mamba', mamba), 'falcon-mamba': ('FalconMamba', mamba), 'jamba': ('Jamba', jamba), 'jamba-dense': ('Jamba', jamba),
    'granitehybrid': ('GraniteMoeHybrid', lambda k: granite(
        k, num_local_experts=k('expert_count'), num_experts_per_tok=k('expert_used_count'),
        shared_intermediate_size=k('expert_shared_feed_forward_length'), position_embedding_type='nope')),
    'granitehybrid-dense': ('GraniteMoeHybrid', lambda k: granite(
        k, num_local_experts=0, shared_intermediate_size=k('feed_forward_length'), position_embedding_type='rope')),
    'nemotron_h': ('NemotronH', nemotron), 'nemotron_h_moe': ('NemotronH', nemotron_moe),
    'nemotron_h_moe-latent': ('NemotronH', lambda k: nemotron_moe(k, k('moe_latent_size'))),
    'falcon-h1': ('FalconH1', lambda k: falcon(k, False)), 'falcon-h1-norm': ('FalconH1', lambda k: falcon(k, True)),
    'mamba2': ('Mamba2', lambda k: {'state_size': k('ssm.state_size'), 'num_heads': k('ssm.time_step_rank'), 'head_dim': head_values(k),
                                    'n_groups': k('ssm.group_count'), 'conv_kernel': 4, 'expand': 2, 'layer_norm_epsilon': 1e-5,
                                    'time_step_limit': (0.0, float('inf'))}),
    **reference_kimi.MODELS,
}
MIXER = [(part, {}, part) for part in ('dt_bias', 'A_log', 'conv1d.weight', 'conv1d.bias')]
SHARED_EXPERT = ('shared expert', {}, 'shared')
GRANITE = [(part, {part: 1.0}, None) for part in ('embedding_multiplier', 'residual_multiplier', 'logits_scaling', 'attention_multiplier')]
GRANITE += [*MIXER, ('skipped values', {}, 'mamba.D'), ('norm of the mixer', {}, '=mamba.norm'), ('eps', {'rms_norm_eps': 1e-6}, None)]
NEMOTRON_H = [*MIXER, ('skipped values', {}, 'mixer.D'), ('norm of the mixer', {}, '=mixer.norm')]
MOE = [('correction', {}, 'e_score_correction_bias'), ('scale of weights', {'routed_scaling_factor': 1.0}, None),
       ('divided weights', {'norm_topk_prob': False}, None), SHARED_EXPERT]
MAMBA = [(part, {}, part) for part in ('dt_proj.bias', 'dt_proj.weight', 'A_log', 'conv1d.weight', 'conv1d.bias', 'x_proj')]
MAMBA += [('skipped values', {}, '.D')]
JAMBA = [*MAMBA, ('attention', {}, 'o_proj'), *((f'norm of {x}', {}, f'={x}_layernorm') for x in ('dt', 'b', 'c'))]
MUTATIONS = {
    'mamba': MAMBA, 'falcon-mamba': MAMBA, 'jamba': [*JAMBA, ('number of experts', {'num_experts_per_tok': 1}, None)], 'jamba-dense': JAMBA,
    'granitehybrid': [*GRANITE, SHARED_EXPERT, ('no rotation', {'position_embedding_type': 'rope'}, None)],
    'granitehybrid-dense': [*GRANITE, ('rotation', {'position_embedding_type': 'nope'}, None)],
    'nemotron_h': NEMOTRON_H, 'nemotron_h_moe': NEMOTRON_H + MOE, 'nemotron_h_moe-latent': NEMOTRON_H + MOE,
    'falcon-h1': [*MIXER, ('skipped values', {}, 'mamba.D'), ('attention', {}, 'o_proj'), ('mixer', {}, 'out_proj')],
    'falcon-h1-norm': [*MIXER, ('norm of the mixer', {}, '=mamba.norm')],
    'mamba2': NEMOTRON_H, **reference_kimi.MUTATIONS,
}


def finish(out, arch):
    """Changes the weights of mixers and experts to transformers' names and shapes."""
    if arch in reference_kimi.NAMES: return reference_kimi.finish(out)
    for name in list(out):
        stem = name.rsplit('.', 1)[0]
        if name.endswith('conv1d.weight'): out[name] = out[name].unsqueeze(1)
        elif name.endswith('.dt.bias'): out[stem[:-len('.dt')] + '.dt_bias'] = out.pop(name)
        elif name.endswith('A_log.weight'): out[stem] = torch.log(-out.pop(name)).squeeze(1)
        elif name.endswith('.D.weight'): out[stem] = out.pop(name).flatten()
        elif name.endswith(('mamba.norm.weight', 'mixer.norm.weight')): out[name] = out[name].flatten()
        elif name.endswith(('experts.up_proj.weight', 'experts.down_proj.weight')) and 'shared' not in name: out[stem] = out.pop(name)
        elif name.endswith('e_score_correction.bias'): out[stem + '_bias'] = out.pop(name)
        elif arch == 'granitehybrid' and name.endswith('mlp.gate_proj.weight'):
            both = [out.pop(name), out.pop(name.replace('gate_proj', 'up_proj'))]
            out[name.replace('mlp.gate_proj', 'shared_mlp.input_linear')] = torch.cat(both, 0)
    if arch == 'jamba': out = {name.replace('mlp.experts', 'feed_forward.experts'): w for name, w in out.items()}
    if arch in ('mamba', 'mamba2'): out = {name.replace('model.', 'backbone.'): w for name, w in out.items()}
    return out
