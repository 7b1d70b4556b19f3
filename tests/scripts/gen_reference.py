#!/usr/bin/env python3
"""Writes tests/golden/reference_NAME.json: results of transformers, in float32, with the weights of random models.

    gen_reference.py [NAME...]     needs torch (CPU), transformers and gguf; PAGEDINFER_BUILD: a build folder
                                   with tests/tool_tiny_model

The weights come from the GGUF that tool_tiny_model writes for the row NAME of tests/support/random_rows.c. The script
undoes the changes of llama.cpp's converter (in q and k of `llama` the pairs of a rotation are adjacent; the norms of
Gemma have 1 added).

A golden has a few cases: greedy tokens, the gap between the two highest logits at each, and the logits of some
positions of the prompt. Prompts are drawn anew until no gap is below GAP. Each model also runs with single features
left out (MUTATIONS). If that changes no logit by CLEAR, the script fails: the golden would not test the feature.
tests/scripts/check_reference.py runs the goldens."""
import json, os, subprocess, sys, tempfile

import gguf, numpy, torch, transformers

import reference_hybrid, reference_kimi, reference_shelf

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(os.environ.get('PAGEDINFER_BUILD', os.path.join(HERE, '../../build')), 'tests', 'tool_tiny_model')
GAP, CLEAR = 2e-3, 5e-3
# Name, prompt length, number of generated tokens, positions with recorded logits. The longest passes every window.
CASES = [('one', 1, 6, [0]), ('short', 17, 12, [16]), ('long', 203, 8, [60, 131, 202])]
NAMES = {'token_embd': 'model.embed_tokens', 'output_norm': 'model.norm', 'output': 'lm_head', 'attn_norm': 'input_layernorm',
         'attn_q': 'self_attn.q_proj', 'attn_k': 'self_attn.k_proj', 'attn_v': 'self_attn.v_proj',
         'attn_output': 'self_attn.o_proj', 'attn_q_norm': 'self_attn.q_norm', 'attn_k_norm': 'self_attn.k_norm',
         'ffn_gate_inp': 'mlp.gate', 'ffn_down_exps': 'mlp.experts.down_proj', 'ffn_gate': 'mlp.gate_proj', 'ffn_up': 'mlp.up_proj', 'ffn_down': 'mlp.down_proj', 'ffn_norm': 'post_attention_layernorm'}
GEMMA = {'post_attention_norm': 'post_attention_layernorm', 'ffn_norm': 'pre_feedforward_layernorm',
         'post_ffw_norm': 'post_feedforward_layernorm'}
OSS = {'ffn_gate_inp': 'mlp.router', 'post_attention_norm': 'post_attention_layernorm', 'attn_sinks': 'self_attn.sinks',
       'ffn_down_exps': 'mlp.experts.down_proj'}
GLM = {'post_attention_norm': 'post_attention_layernorm', 'exp_probs_b': 'mlp.gate.e_score_correction', 'ffn_gate_shexp': 'mlp.shared_experts.gate_proj',
       'ffn_up_shexp': 'mlp.shared_experts.up_proj', 'ffn_down_shexp': 'mlp.shared_experts.down_proj'}
NEXT = {'post_attention_norm': 'post_attention_layernorm', 'ssm_in': 'linear_attn.in_proj_qkvz', 'ssm_ba': 'linear_attn.in_proj_ba',
        'ssm_conv1d': 'linear_attn.conv1d', 'ssm_dt': 'linear_attn.dt', 'ssm_a': 'linear_attn.A_log', 'ssm_norm': 'linear_attn.norm',
        'ssm_out': 'linear_attn.out_proj', 'ffn_gate_inp_shexp': 'mlp.shared_expert_gate', 'ffn_gate_shexp': 'mlp.shared_expert.gate_proj',
        'ffn_up_shexp': 'mlp.shared_expert.up_proj', 'ffn_down_shexp': 'mlp.shared_expert.down_proj',
        'ffn_gate_up_exps': 'mlp.experts.gate_up_proj'}
MLA = {**{k: v for k, v in GLM.items() if k != 'post_attention_norm'}, 'attn_q_a': 'self_attn.q_a_proj', 'attn_q_a_norm': 'self_attn.q_a_layernorm',
       'attn_q_b': 'self_attn.q_b_proj', 'attn_kv_a_mqa': 'self_attn.kv_a_proj_with_mqa', 'attn_kv_a_norm': 'self_attn.kv_a_layernorm',
       'attn_kv_b': 'self_attn.kv_b_proj'}
MINIMAX = {'exp_probs_b': 'mlp.e_score_correction'}
GRANITE = {'ffn_gate_inp': 'block_sparse_moe.router', 'ffn_down_exps': 'block_sparse_moe.experts.down_proj',
           'ffn_down_shexp': 'shared_mlp.output_linear'}
PHI = {'attn_qkv': 'self_attn.qkv_proj', 'ffn_up': 'mlp.gate_up_proj'}
LLAMA3 = {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,
          'original_max_position_embeddings': 256}
HEADS = ('glm4moe', 'qwen3next', 'deepseek3', 'hy_v3') # models with a draft head that is also computed
# NAME: (class, additional configuration entries)
MODELS = {
    'gemma3': ('Gemma3', lambda k: {'query_pre_attn_scalar': k('attention.key_length'), 'sliding_window': k('attention.sliding_window'),
                                    'layer_types': layers(k, lambda i: (i + 1) % k('attention.sliding_window_pattern')),
                                    'rope_parameters': {'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e4},
                                                        'full_attention': {'rope_type': 'default', 'rope_theta': 1e6}}}),
    'gemma2': ('Gemma2', lambda k: {'query_pre_attn_scalar': k('attention.key_length'), 'sliding_window': k('attention.sliding_window'),
                                    'layer_types': layers(k, lambda i: i % 2 == 0),
                                    'attn_logit_softcapping': k('attn_logit_softcapping'),
                                    'final_logit_softcapping': k('final_logit_softcapping')}),
    'llama2': ('Llama', lambda k: {}), 'smollm': ('Llama', lambda k: {}),
    'llama3': ('Llama', lambda k: {'rope_parameters': dict(LLAMA3, rope_theta=k('rope.freq_base'))}),
    'llama32': ('Llama', lambda k: {'rope_parameters': dict(LLAMA3, rope_theta=k('rope.freq_base'))}),
    'llama-bias': ('Llama', lambda k: {'attention_bias': True}),
    'mixtral': ('Mixtral', lambda k: {'num_local_experts': k('expert_count'), 'num_experts_per_tok': k('expert_used_count'),
                                      'sliding_window': None}),
    'mistral3': ('Ministral3', lambda k: {'sliding_window': None, 'rope_parameters': {
        'rope_type': 'yarn', 'rope_theta': 1e6, 'factor': 16.0, 'original_max_position_embeddings': k('rope.scaling.original_context_length'),
        'beta_fast': 32.0, 'beta_slow': 1.0, 'mscale': 1.0, 'mscale_all_dim': 1.0, 'llama_4_scaling_beta': 0.25}}),
    'mistral': ('Mistral', lambda k: {'sliding_window': k('attention.sliding_window')}),
    'qwen2': ('Qwen2', lambda k: {}), 'qwen2-large': ('Qwen2', lambda k: {}),
    'phi3': ('Phi3', lambda k: {'sliding_window': k('attention.sliding_window')}),
    'phi3-short': ('Phi3', lambda k: longrope(0.03125)), 'phi3-long': ('Phi3', lambda k: longrope(0.25)),
    'qwen3moe': ('Qwen3Moe', lambda k: {'num_experts': k('expert_count'), 'num_experts_per_tok': k('expert_used_count'),
                                        'moe_intermediate_size': k('expert_feed_forward_length'), 'norm_topk_prob': True}),
    'gpt-oss': ('GptOss', lambda k: {
        'num_local_experts': k('expert_count'), 'num_experts_per_tok': k('expert_used_count'), 'sliding_window': k('attention.sliding_window'),
        'layer_types': layers(k, lambda i: i % 2 == 0),
        'rope_parameters': {'rope_type': 'yarn', 'rope_theta': k('rope.freq_base'), 'factor': k('rope.scaling.factor'), 'beta_fast': 32.0,
                            'beta_slow': 1.0, 'truncate': False,
                            'original_max_position_embeddings': k('rope.scaling.original_context_length')}}),
    'glm4moe': ('Glm4Moe', lambda k: {
        'num_hidden_layers': k('block_count') - k('nextn_predict_layers'), 'n_routed_experts': k('expert_count'),
        'num_experts_per_tok': k('expert_used_count'), 'moe_intermediate_size': k('expert_feed_forward_length'),
        'n_shared_experts': k('expert_shared_count'), 'first_k_dense_replace': k('leading_dense_block_count'),
        'routed_scaling_factor': k('expert_weights_scale'), 'norm_topk_prob': True, 'use_qk_norm': True, 'attention_bias': True,
        'rope_parameters': {'rope_type': 'default', 'rope_theta': k('rope.freq_base'), 'partial_rotary_factor': 0.5}}),
    'deepseek3': ('DeepseekV3', lambda k: latent(k, 1.0, q_lora_rank=k('attention.q_lora_rank'), norm_topk_prob=True,
                                                         num_hidden_layers=k('block_count') - k('nextn_predict_layers'))),
    'deepseek2': ('DeepseekV2', lambda k: latent(k, 0.707, q_lora_rank=None, topk_method='group_limited_greedy', norm_topk_prob=False)),
    'deepseek2-old': ('DeepseekV2', lambda k: latent(k, 0.707, '', q_lora_rank=None, topk_method='group_limited_greedy', norm_topk_prob=False)),
    'mistral4': ('Mistral4', lambda k: latent(
        k, 1.0, q_lora_rank=k('attention.q_lora_rank'), norm_topk_prob=True, head_dim=k('attention.key_length_mla'), beta=k('attention.temperature_scale'))),
    'deepseek32': ('DeepseekV32', lambda k: latent(k, 1.0, **reference_shelf.indexed(k))),
    'glm-dsa': ('GlmMoeDsa', lambda k: latent(k, 1.0, **reference_shelf.indexed(
        k, indexer_types=['full' if x else 'shared' for x in k('attention.indexer.types')]))),
    'minimax-m2': ('MiniMaxM2', lambda k: {
        'num_local_experts': k('expert_count'), 'num_experts_per_tok': k('expert_used_count'),
        'rope_parameters': {'rope_type': 'default', 'rope_theta': k('rope.freq_base'), 'partial_rotary_factor': 0.5}}),
    'granite': ('Granite', lambda k: granite(k)), 'granite-nope': ('Granite', lambda k: granite(k, attention_bias=True)),
    'granitemoe': ('GraniteMoeShared', lambda k: granite(k, num_local_experts=k('expert_count'), num_experts_per_tok=k('expert_used_count'), shared_intermediate_size=k('expert_shared_feed_forward_length'))),
    'qwen3next': ('Qwen3Next', lambda k: qwen3next(k)), 'qwen3next-whole': ('Qwen3Next', lambda k: qwen3next(k)),
    'qwen3': ('Qwen3', lambda k: {}), 'qwen3-large': ('Qwen3', lambda k: {}),
    **reference_shelf.MODELS, **reference_hybrid.MODELS,
}


def latent(k, mscale, mla='_mla', beta=None, **more):
    return {'num_key_value_heads': k('attention.head_count'), 'head_dim': k('rope.dimension_count'), 'kv_lora_rank': k('attention.kv_lora_rank'),
            'qk_rope_head_dim': k('rope.dimension_count'), 'qk_nope_head_dim': k('attention.key_length' + mla) - k('rope.dimension_count'),
            'v_head_dim': k('attention.value_length' + mla), 'n_routed_experts': k('expert_count'), 'num_experts_per_tok': k('expert_used_count'),
            'n_group': k('expert_group_count'), 'topk_group': k('expert_group_used_count'), 'moe_intermediate_size': k('expert_feed_forward_length'),
            'n_shared_experts': k('expert_shared_count'), 'first_k_dense_replace': k('leading_dense_block_count'),
            'routed_scaling_factor': k('expert_weights_scale'),
            'rope_parameters': {'rope_type': 'yarn', 'rope_theta': k('rope.freq_base'), 'factor': k('rope.scaling.factor'), 'beta_fast': 32.0,
                                'beta_slow': 1.0, 'mscale': mscale, 'mscale_all_dim': mscale,
                                **({'llama_4_scaling_beta': beta} if beta else {}),
                                'original_max_position_embeddings': k('rope.scaling.original_context_length')}, **more}


def qwen3next(k):
    return {'num_hidden_layers': k('block_count') - 1, 'num_experts': k('expert_count'), 'num_experts_per_tok': k('expert_used_count'),
            'moe_intermediate_size': k('expert_feed_forward_length'), 'shared_expert_intermediate_size': k('expert_shared_feed_forward_length'),
            'norm_topk_prob': True, 'linear_conv_kernel_dim': k('ssm.conv_kernel'), 'linear_key_head_dim': k('ssm.state_size'),
            'linear_value_head_dim': k('ssm.state_size'), 'linear_num_key_heads': k('ssm.group_count'),
            'linear_num_value_heads': k('ssm.time_step_rank'),
            'layer_types': ['linear_attention' if x else 'full_attention' for x in k('attention.recurrent_layers')[:-1]],
            'rope_parameters': {'rope_type': 'default', 'rope_theta': k('rope.freq_base'),
                                'partial_rotary_factor': k('rope.dimension_count') / k('attention.key_length')}}


def granite(k, **more):
    return {'embedding_multiplier': k('embedding_scale'), 'residual_multiplier': k('residual_scale'), 'logits_scaling': k('logit_scale'),
            'attention_multiplier': k('attention.scale'), **more}


def longrope(step):
    """Both kinds of factors are equal: transformers chooses per request, an engine once."""
    factors = [1 + step * i for i in range(12)]
    return {'rope_parameters': {'rope_type': 'longrope', 'rope_theta': 1e4, 'long_factor': factors, 'short_factor': factors,
                                'attention_factor': 1.1875, 'original_max_position_embeddings': 128, 'partial_rotary_factor': 0.75}}


def layers(k, local): return ['sliding_attention' if local(i) else 'full_attention' for i in range(k('block_count'))]


def tensors_of(reader, arch, n_head, n_head_kv, left_out):
    """Returns the weights with transformers' names and layouts, before llama.cpp's conversion."""
    own = {'phi3': PHI, 'gpt-oss': OSS, 'glm4moe': GLM, 'qwen3next': NEXT, 'minimax-m2': MINIMAX, 'granitemoe': GRANITE,
           'deepseek2': MLA, 'mistral4': {**MLA, 'ffn_gate_up_exps': 'mlp.experts.gate_up_proj'},
           'deepseek32': {**MLA, **reference_shelf.INDEXER}, 'glm-dsa': {**MLA, **reference_shelf.INDEXER},
           **reference_shelf.NAMES, **reference_hybrid.NAMES}
    names, out = {**NAMES, **(GEMMA if arch in ('gemma2', 'gemma3') else own.get(arch, {}))}, {}
    for t in reader.tensors:
        if t.name.startswith(('rope_f', left_out)): continue
        suffix = '' if t.name.endswith(('.weight', '.bias')) else '.bias' if t.name.endswith('exp_probs_b') else '.weight'
        stem, kind = (t.name + suffix).rsplit('.', 1)
        layer = ''
        if stem.startswith('blk.'): layer, stem = 'model.layers.' + stem.split('.')[1] + '.', stem.split('.', 2)[2]
        w = numpy.array(t.data, dtype=numpy.float32)
        heads = w.shape[0] // max(n_head + 2 * n_head_kv, 1)
        of = {stem: w}
        if stem == 'attn_qkv' and arch not in ('phi3', 'qwen3next', 'mimo2'): of = dict(zip(('attn_q', 'attn_k', 'attn_v'), numpy.split(w, [n_head * heads, (n_head + n_head_kv) * heads])))
        for stem, w in of.items():
            if arch in ('llama', 'mistral3', 'granite', 'granitemoe', 'granite_swa', *reference_shelf.PERMUTED, *reference_hybrid.PERMUTED) and stem in ('attn_q', 'attn_k'):
                n = n_head if stem == 'attn_q' else n_head_kv
                w = w.reshape(n, w.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)
            if (arch.startswith('gemma') or arch in ('step35', 'plamo3', 'nemotron') or arch == 'qwen3next' and stem != 'ssm_norm') and stem.endswith('_norm') and kind == 'weight': w = w - 1
            out[f'{layer}{names.get(stem, stem)}.{kind}'] = torch.from_numpy(numpy.ascontiguousarray(w))
    if own.get(arch, {}).get('attn_kv_b'): return both_latent(together(out))
    if arch in reference_hybrid.NAMES: return reference_hybrid.finish(together(out) if arch in ('granitehybrid', 'jamba') else both_latent(together(out)) if arch in reference_kimi.NAMES else out, arch)
    return woven(out) if arch == 'gpt-oss' else by_key_head(together(out), reader) if arch == 'qwen3next' else together(out)


def together(out):
    """Joins gate and up of experts into one matrix, and removes ".weight" from the experts' parameter names."""
    for name in list(out):
        if name.endswith('ffn_gate_exps.weight'):
            up = out.pop(name.replace('gate_exps', 'up_exps'))
            block = 'block_sparse_moe' if name.replace('ffn_gate_exps', 'block_sparse_moe.router') in out else 'mlp'
            out[name.replace('ffn_gate_exps.weight', f'{block}.experts.gate_up_proj')] = torch.cat([out.pop(name), up], 1)
        elif name.endswith('ffn_gate_shexp.weight'):
            up = out.pop(name.replace('gate_shexp', 'up_shexp'))
            out[name.replace('ffn_gate_shexp', 'shared_mlp.input_linear')] = torch.cat([out.pop(name), up], 0)
        elif name.endswith(('.experts.down_proj.weight', '.experts.gate_up_proj.weight')): out[name[:-len('.weight')]] = out.pop(name)
        elif name.endswith('e_score_correction.bias'): out[name.replace('.bias', '_bias')] = out.pop(name)
    return out


def both_latent(out):
    """Joins the matrices that make keys and values from latents: for each head its keys, then its values."""
    for name in list(out):
        if not name.endswith('attn_k_b.weight'): continue
        parts = torch.cat([out.pop(name).mT, out.pop(name.replace('k_b', 'v_b'))], 1)
        out[name.replace('attn_k_b', 'self_attn.kv_b_proj')] = parts.flatten(0, 1).contiguous()
    return out


def woven(out):
    """Converts to gpt-oss's layout: columns of gate and up alternate, matrices transposed, biases; sinks without
    ".weight"."""
    both = lambda gate, up: torch.stack([gate, up], -1).flatten(-2)
    for name in list(out):
        experts, part = name.rsplit('.', 2)[0] + '.mlp.experts.', name.rsplit('.', 2)[1:]
        if part[0] == 'ffn_gate_exps':
            up = out.pop(name.replace('gate_exps', 'up_exps'))
            gate, bias = out.pop(name), part[1] == 'bias'
            out[experts + 'gate_up_proj' + ('_bias' if bias else '')] = both(gate, up) if bias else both(gate.mT, up.mT)
        elif name.endswith('experts.down_proj.weight'): out[name[:-len('.weight')]] = out.pop(name).mT
        elif name.endswith('experts.down_proj.bias'): out[name[:-len('.bias')] + '_bias'] = out.pop(name)
        elif name.endswith('sinks.weight'): out[name[:-len('.weight')]] = out.pop(name)
    return {name: w.contiguous() for name, w in out.items()}


def by_key_head(out, reader):
    """Converts delta nets to Qwen3-Next's layout: rows of queries, keys, values and z of each key head are
    adjacent."""
    keys, dim = (reader.fields[f'qwen3next.ssm.{k}'].contents() for k in ('group_count', 'state_size'))
    for name in list(out):
        if name.endswith('attn_qkv.weight'):
            w = out.pop(name)
            q, k, v = torch.split(w, [keys * dim, keys * dim, w.shape[0] - 2 * keys * dim])
            parts = [w.reshape(keys, -1, w.shape[1]) for w in (q, k, v, out.pop(name.replace('qkv', 'gate')))]
            out[name.replace('attn_qkv', 'linear_attn.in_proj_qkvz')] = torch.cat(parts, 1).flatten(0, 1)
        elif name.endswith('conv1d.weight'): out[name] = out[name].unsqueeze(1)
        elif name.endswith('shared_expert_gate.weight'): out[name] = out[name].reshape(1, -1)
        elif name.endswith('linear_attn.dt.bias'): out[name.replace('dt.bias', 'dt_bias')] = out.pop(name)
        elif name.endswith('A_log.weight'): out[name[:-len('.weight')]] = torch.log(-out.pop(name))
        elif name.endswith('experts.gate_up_proj.weight'): out[name[:-len('.weight')]] = out.pop(name)
    return out


def load(name, path, **changes):
    reader = gguf.GGUFReader(path)
    arch = reader.fields['general.architecture'].contents()
    field = lambda key: reader.fields[f'{arch}.{key}'].contents()
    family, more = MODELS[name]
    heads = field('nextn_predict_layers') if f'{arch}.nextn_predict_layers' in reader.fields else 0
    left_out = f"blk.{field('block_count') - 1}." if heads else 'none'
    has = lambda key, otherwise: field(key) if f'{arch}.{key}' in reader.fields else otherwise
    number = lambda key, otherwise=0: max(x) if isinstance(x := has(key, otherwise), list) else x # the largest of all layers
    n_head, n_head_kv = reference_shelf.first(field('attention.head_count')), (number if arch in reference_hybrid.NAMES or arch.startswith('lfm2') else lambda key: reference_shelf.first(field(key)))('attention.head_count_kv')
    weights = tensors_of(reader, arch, n_head, n_head_kv, left_out)
    weights = reference_shelf.finish(weights, arch, lambda key: reader.fields[key].contents())
    tied = 'lm_head.weight' not in weights
    if tied: weights['lm_head.weight'] = weights[next(n for n in weights if n.endswith(('embed_tokens.weight', 'embeddings.weight')))]
    config = dict(vocab_size=weights['lm_head.weight'].shape[0], hidden_size=field('embedding_length'),
                  intermediate_size=number('feed_forward_length', 64), num_hidden_layers=field('block_count'),
                  num_attention_heads=n_head, num_key_value_heads=n_head_kv,
                  head_dim=has('attention.key_length', field('embedding_length') // max(n_head, 1)),
                  max_position_embeddings=field('context_length'), rms_norm_eps=has('attention.layer_norm_rms_epsilon', 1e-5),
                  rope_parameters={'rope_type': 'default', 'rope_theta': has('rope.freq_base', 1e4)},
                  tie_word_embeddings=tied, pad_token_id=None, attn_implementation='eager', dtype=torch.float32)
    config.update(more(field))
    config.update(changes)
    own = reference_kimi.CLASSES.get(family) or reference_shelf.CLASSES.get(family)
    config_class = own[0] if own else getattr(transformers, family + ('TextConfig' if family in ('Gemma3', 'Step3p7') else 'Config'))
    model_class = own[1] if own else getattr(transformers, family + 'ForCausalLM', None) or reference_shelf.causal(family)
    model = model_class(config_class(**config)).float().eval()
    if not has('rope.scaling.finetuned', True) and arch == 'granite': model.model.rotary_emb.inv_freq.zero_()
    if getattr(model.config, 'attention_bias', False) and arch in ('llama', 'granite'):
        for n, p in model.named_parameters():
            if n.endswith('o_proj.bias'): weights[n] = torch.zeros_like(p)
    model.load_state_dict(weights, strict=True)
    return model


def logits_of(model, ids):
    with torch.no_grad(): return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def generate(model, ids, n):
    greedy, gaps, ids = [], [], list(ids)
    for _ in range(n):
        row = logits_of(model, ids)[-1]
        a, b = numpy.sort(row)[:-3:-1]
        greedy.append(int(row.argmax()))
        gaps.append(float(a - b))
        ids.append(greedy[-1])
    return greedy, gaps


def mutations(model):
    """Yields (name, configuration changes, function or None): each leaves out or breaks one feature of this model."""
    def zero(part): return lambda m: [p.data.zero_() for n, p in m.named_parameters() if n.endswith(part)]
    def ones(part): return lambda m: [p.data.fill_(0.0 if any(x in type(m).__name__ for x in ('Gemma', 'Next', 'Step')) else 1.0) for n, p in m.named_parameters() if part in n]
    def pairs_of_two(m):
        for n, p in m.named_parameters():
            if n.endswith(('q_proj.weight', 'k_proj.weight')):
                h = p.shape[0] // m.config.head_dim
                p.data = p.data.reshape(h, 2, -1, p.shape[1]).transpose(1, 2).reshape(p.shape).contiguous()
    def pairs_of_one(m): # for q and k in one matrix
        for n, p in m.named_parameters():
            if not n.endswith('qkv_proj.weight'): continue
            d, h = m.config.head_dim, m.config.num_attention_heads + m.config.num_key_value_heads
            p.data[:h * d] = p.data[:h * d].reshape(h, 2, -1, p.shape[1]).transpose(1, 2).reshape(h * d, -1)
    c = model.config
    def pairs_of_latent(m): # for the rotated part of the queries, and of the shared keys
        for n, p in m.named_parameters():
            h = 1 if n.endswith('kv_a_proj_with_mqa.weight') else c.num_attention_heads if n.endswith(('q_proj.weight', 'q_b_proj.weight')) else 0
            if not h: continue
            rows, r = p.data.reshape(h, -1, p.shape[1]).clone(), c.qk_rope_head_dim
            rows[:, -r:] = rows[:, -r:].reshape(h, 2, r // 2, -1).transpose(1, 2).flatten(1, 2)
            p.data = rows.reshape(p.shape)
    pairs = pairs_of_latent if hasattr(c, 'qk_rope_head_dim') else pairs_of_one if any('qkv_proj' in n for n, _ in model.named_parameters()) else pairs_of_two
    if (c.rope_parameters or {}).get('rope_type') == 'longrope':
        r = c.rope_parameters
        same = [1.0] * len(r['long_factor'])
        yield 'factors of the rotation', {'rope_parameters': {**r, 'long_factor': same, 'short_factor': same}}, None
        for key in ('attention_factor', 'short_mscale'):
            if key in r: yield 'factor of attention', {'rope_parameters': {**r, key: 1.0}}, None
    if (c.rope_parameters or {}).get('rope_type') == 'yarn':
        r = c.rope_parameters
        if 'llama_4_scaling_beta' in r: yield 'sharper queries', {'rope_parameters': {**r, 'llama_4_scaling_beta': 0.0}}, None
        yield 'stretched rotation', {'rope_parameters': {**r, 'factor': 1.0}}, None
        yield 'no factor of attention', {'rope_parameters': {**r, 'mscale_all_dim': 0.0}}, None
    yield 'pairs of the rotation', {}, pairs
    yield 'norms', {}, ones('layernorm')
    if getattr(c, 'sliding_window', None) and 'Qwen' not in type(model).__name__:
        yield 'window', {'sliding_window': 4096}, None
        yield 'the last of the window', {'sliding_window': c.sliding_window - 1}, None
    if any(n.endswith('q_proj.bias') for n, _ in model.named_parameters()):
        turned = not hasattr(model.model, 'rotary_emb') or bool(model.model.rotary_emb.inv_freq.any())
        for x in 'qkv' if turned else 'qv': # without RoPE, the bias of k adds the same value to all scores
            yield f'bias of {x}', {}, zero(f'{x}_proj.bias')
    if any('q_norm' in n for n, _ in model.named_parameters()):
        for x in 'qk': yield f'norm of {x}', {}, ones(f'{x}_norm')
    if (c.rope_parameters or {}).get('rope_type') == 'llama3':
        yield 'scaled rotation', {'rope_parameters': {'rope_type': 'default', 'rope_theta': c.rope_parameters['rope_theta']}}, None
    if type(model).__name__ == 'GptOssForCausalLM':
        def sinks(m): [p.data.fill_(-1e4) for n, p in m.named_parameters() if n.endswith('sinks')]
        def limit(m): [setattr(e, 'limit', 1e4) for n, e in m.named_modules() if n.endswith('experts')]
        def alpha(m): [setattr(e, 'alpha', 1.0) for n, e in m.named_modules() if n.endswith('experts')]
        yield 'sinks', {}, sinks
        yield 'limit', {}, limit
        yield 'alpha', {}, alpha
        for part in ('o_proj.bias', 'router.bias', 'gate_up_proj_bias', 'down_proj_bias'): yield part, {}, zero(part)
        yield 'scaled rotation', {'rope_parameters': {'rope_type': 'default', 'rope_theta': c.rope_parameters['rope_theta']}}, None
        yield 'fractions of pairs', {'rope_parameters': {**c.rope_parameters, 'truncate': True}}, None
    if getattr(c, 'norm_topk_prob', False): yield 'weights that add up to one', {'norm_topk_prob': False}, None
    if 'Next' in type(model).__name__:
        def other_heads(m):
            for n, p in m.named_parameters():
                if n.endswith('in_proj_ba.weight'): p.data = p.data.reshape(2, 2, 2, -1).transpose(0, 2).flatten(0, 2).contiguous()
        yield 'shared expert', {}, zero('shared_expert.down_proj.weight')
        yield 'gate of the shared expert', {}, zero('shared_expert_gate.weight')
        yield 'order of heads', {}, other_heads
        for part in ('dt_bias', 'A_log', 'linear_attn.norm.weight', 'conv1d.weight'): yield part, {}, zero(part)
    if type(model).__name__ == 'Glm4MoeForCausalLM':
        yield 'shared expert', {}, zero('shared_experts.down_proj.weight')
        yield 'scale of weights', {'routed_scaling_factor': 1.0}, None
        yield 'part of the rotation', {'rope_parameters': {**c.rope_parameters, 'partial_rotary_factor': 1.0}}, None
        yield 'correction', {}, lambda m: [p.data.zero_() for n, p in m.named_buffers() if n.endswith('e_score_correction_bias')]
    if hasattr(c, 'qk_rope_head_dim'):
        yield 'shared experts', {}, zero('shared_experts.down_proj.weight')
        yield 'norm of latents', {}, ones('kv_a_layernorm')
        if c.q_lora_rank: yield 'norm of low queries', {}, ones('q_a_layernorm')
        yield 'scale of weights', {'routed_scaling_factor': 1.0}, None
        if c.n_group > 1: yield 'groups', {'topk_group': c.n_group}, None
        if c.rope_parameters['mscale'] < 1: yield 'share of attention', {'rope_parameters': {**c.rope_parameters, 'mscale': 1.0, 'mscale_all_dim': 1.0}}, None
        if 'V3' in type(model).__name__ or 'Dsa' in type(model).__name__:
            yield 'correction', {}, lambda m: [p.data.zero_() for n, p in m.named_buffers() if n.endswith('e_score_correction_bias')]
    if 'MiniMax' in type(model).__name__:
        def each_head(m):
            for n, norm in m.named_modules():
                if n.endswith(('q_norm', 'k_norm')): norm.forward = lambda x, norm=norm: norm.weight * torch.nn.functional.rms_norm(
                    x.unflatten(-1, (-1, c.head_dim)), (c.head_dim,), eps=norm.variance_epsilon).flatten(-2)
        yield 'norms of all heads together', {}, each_head
        yield 'part of the rotation', {'rope_parameters': {**c.rope_parameters, 'partial_rotary_factor': 1.0}}, None
        yield 'correction', {}, lambda m: [p.data.zero_() for n, p in m.named_buffers() if n.endswith('e_score_correction_bias')]
    if 'Granite' in type(model).__name__:
        for part in ('embedding_multiplier', 'residual_multiplier', 'logits_scaling', 'attention_multiplier'): yield part, {part: 1.0}, None
        yield 'eps', {'rms_norm_eps': 1e-6}, None
        if 'Shared' in type(model).__name__: yield 'shared expert', {}, zero('shared_mlp.output_linear.weight')
    if 'Muse' in type(model).__name__: yield 'norm of embeddings', {}, lambda m: setattr(m.model.embed_tokens, 'embed_norm', torch.nn.Identity())
    for cap in ('attn_logit_softcapping', 'final_logit_softcapping'):
        if getattr(c, cap, None) and 'Muse' not in type(model).__name__: yield cap, {cap: None}, None


def draft_head(model, path, ids):
    """Returns the logits [n - 1, V] of the file's draft head after each token from the second on. The head is a
    decoder layer of the model's own kind, applied to [norm(embedding), norm(previous hidden state)]. transformers has
    no class for it."""
    reader = gguf.GGUFReader(path)
    arch = reader.fields['general.architecture'].contents()
    field, last = lambda key: reader.fields[f'{arch}.{key}'].contents(), reader.fields[f'{arch}.block_count'].contents() - 1
    with_head = tensors_of(reader, arch, field('attention.head_count'), field('attention.head_count_kv'), 'none')
    prefix = f'model.layers.{last}.'
    own = {k[len(prefix):]: v for k, v in with_head.items() if k.startswith(prefix)}
    plain = {t.name: torch.tensor(numpy.array(t.data, dtype=numpy.float32)) for t in reader.tensors if '.nextn.' in t.name}
    part = lambda what: plain[f'blk.{last}.nextn.{what}.weight']
    config = type(model.config)(**{**model.config.to_dict(), 'num_hidden_layers': last + 1,
                                   **({'layer_types': [*model.config.layer_types, 'full_attention']} if arch == 'qwen3next' else {})})
    config._attn_implementation = 'eager'
    block = type(model.model.layers[-1])(config, last).float().eval()
    block.load_state_dict({k: v for k, v in own.items() if not k.startswith('nextn.')}, strict=True)
    norm = lambda x, w: torch.nn.functional.rms_norm(x, x.shape[-1:], w, config.rms_norm_eps)
    with torch.no_grad():
        t, n = torch.tensor([ids]), len(ids)
        hidden, embedded = model.model(t, use_cache=False).last_hidden_state, model.model.embed_tokens(t)
        both = torch.cat([norm(embedded[:, 1:], part('enorm')), norm(hidden[:, :-1], part('hnorm'))], -1)
        x, pos = both @ part('eh_proj').T, torch.arange(1, n)[None]
        mask = torch.full((n - 1, n - 1), float('-inf')).triu(1)[None, None]
        x = block(x, attention_mask=mask, position_ids=pos, position_embeddings=model.model.rotary_emb(x, pos))
        return model.lm_head(norm(x[0] if isinstance(x, tuple) else x, part('shared_head_norm')))[0].numpy()


def drafts_of(name, path, model):
    """Returns the head's logits at some positions of a random text, and its drafts after start, start + step, ..."""
    start, step, rng = 20, 7, numpy.random.default_rng(29)
    while True:
        ids = [int(x) for x in rng.integers(0, model.config.vocab_size, 61)]
        rows = draft_head(model, path, ids)
        best = numpy.sort(rows)[:, :-3:-1]
        if (best[:, 0] - best[:, 1])[start - 1::step].min() >= GAP: break
    return {'ids': ids, 'start': start, 'step': step, 'drafts': [[int(rows[p - 1].argmax())] for p in range(start, len(ids), step)],
            'logits': {str(p): [float(f'{x:.7g}') for x in rows[p - 1]] for p in (1, 2, 33, 60)}}


def golden(name, path):
    model, cases, rng = load(name, path), [], numpy.random.default_rng(13)
    for label, length, n, rows in CASES:
        while True:
            ids = [int(x) for x in rng.integers(0, model.config.vocab_size, length)]
            greedy, gaps = generate(model, ids, n)
            if min(gaps) >= GAP: break
        logits = logits_of(model, ids)
        cases.append({'name': label, 'ids': ids, 'n': n, 'greedy': greedy, 'gap': [round(g, 6) for g in gaps],
                      'logits': {str(r): [float(f'{x:.7g}') for x in logits[r]] for r in rows}})
    hybrid = name in reference_hybrid.MODELS
    rows = (reference_hybrid if hybrid else reference_shelf).MUTATIONS.get(name, [])
    own = [(what, changes, reference_shelf.change_of(part)) for what, changes, part in rows]
    for what, changes, change in [*(() if hybrid else mutations(model)), *own]:
        other = load(name, path, **changes)
        if change: change(other)
        moved = abs(logits_of(other, cases[-1]['ids']) - logits_of(model, cases[-1]['ids']))[CASES[-1][3]].max()
        print(f'{name}: without {what} logits move by {moved:.4f}')
        if moved < CLEAR: sys.exit(f'{name}: {what} would not be missed')
    drafts = {'drafts': drafts_of(name, path, model)} if name in HEADS else {}
    return {'transformers': transformers.__version__, 'model': type(model).__name__, 'cases': cases, **drafts}


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, 'model.gguf')
            subprocess.run([TOOL, path, '512', name], check=True)
            text = json.dumps(golden(name, path), separators=(',', ':')).replace('{"name"', '\n{"name"')
        out = os.path.join(HERE, '../golden', f'reference_{name}.json')
        with open(out, 'w') as f: f.write(text + '\n')
        print(f'{os.path.relpath(out)}: {len(text)} bytes')


if __name__ == '__main__': main()
