"""Rows of gen_reference.py for dense architectures that differ from others in a few settings.

NAMES: names of transformers' modules, by architecture. MODELS: class and additional configuration entries, by row.
MUTATIONS: (what, configuration changes, name parts of the weights to change): weights that contain the last part are
set to zero, or to one if the part starts with "=". PERMUTED: architectures in whose files the converter has reordered
the rows of queries and keys."""
import types

import torch, transformers

POST = {'post_attention_norm': 'post_attention_layernorm', 'post_ffw_norm': 'post_feedforward_layernorm'}
SHARED = lambda to: {f'ffn_{part}_shexp': f'mlp.{to}.{part}_proj' for part in ('gate', 'up', 'down')}
HEAD_NORMS = {'attn_q_norm': 'self_attn.query_layernorm', 'attn_k_norm': 'self_attn.key_layernorm'}
SIGMOID = {'exp_probs_b': 'mlp.gate.e_score_correction', **SHARED('shared_experts')}
LFM2 = {'token_embd_norm': 'model.embedding_norm', 'attn_norm': 'operator_norm', 'ffn_norm': 'ffn_norm', 'attn_output': 'self_attn.out_proj',
        'attn_q_norm': 'self_attn.q_layernorm', 'attn_k_norm': 'self_attn.k_layernorm', 'shortconv.in_proj': 'conv.in_proj',
        'shortconv.conv': 'conv.conv', 'shortconv.out_proj': 'conv.out_proj', 'ffn_gate': 'feed_forward.w1', 'ffn_up': 'feed_forward.w3',
        'ffn_down': 'feed_forward.w2', 'ffn_gate_inp': 'feed_forward.gate', 'exp_probs_b': 'feed_forward.expert'}
NAMES = {
    'lfm2': LFM2, 'lfm2moe': LFM2, 'seed_oss': {'post_attention_norm': 'post_attention_layernorm'}, 'olmo2': POST, 'exaone4': POST,
    'glm4': {'post_attention_norm': 'post_self_attn_layernorm', 'post_ffw_norm': 'post_mlp_layernorm',
             'ffn_up': 'mlp.gate_up_proj'},
    'ernie4_5-moe': {'exp_probs_b': 'mlp.gate.moe_statics.e_score_correction', **SHARED('shared_experts')},
    'hunyuan-dense': HEAD_NORMS,
    'hunyuan-moe': {**HEAD_NORMS, 'ffn_gate_inp': 'mlp.gate.wg', **SHARED('shared_mlp')},
    'dots1': SIGMOID, 'bailingmoe2': SIGMOID,
    'qwen2moe': {'ffn_gate_inp_shexp': 'mlp.shared_expert_gate', **SHARED('shared_expert')},
    'apertus': {'attn_norm': 'attention_layernorm', 'ffn_norm': 'feedforward_layernorm'},
    'starcoder2': {'ffn_up': 'mlp.c_fc', 'ffn_down': 'mlp.c_proj'},
    'phimoe': {'ffn_gate_inp': 'mlp.router'},
    'granite_swa': {'attn_sinks': 'self_attn.sinks', 'ffn_gate_inp': 'block_sparse_moe.router',
                    'ffn_gate_up_exps': 'block_sparse_moe.experts.gate_up_proj', 'ffn_down_exps': 'block_sparse_moe.experts.down_proj',
                    'ffn_up_shexp': 'shared_mlp.input_linear', 'ffn_down_shexp': 'shared_mlp.output_linear'},
    'afmoe': {**POST, 'ffn_norm': 'pre_mlp_layernorm', 'post_ffw_norm': 'post_mlp_layernorm', 'attn_gate': 'self_attn.gate_proj',
              'ffn_gate_inp': 'mlp.router.gate', 'exp_probs_b': 'mlp.expert_bias', **SHARED('shared_experts')},
    'muse-glimmer': {**POST, 'ffn_norm': 'pre_feedforward_layernorm', 'post_ffw_norm': 'post_feedforward_layernorm', 'attn_gate': 'self_attn.gate_proj'},
    'laguna': {'attn_gate': 'self_attn.g_proj', **SIGMOID},
    'step35': {'attn_gate': 'self_attn.g_proj', **SIGMOID},
    'mimo2': {'attn_sinks': 'self_attn.sinks', **SIGMOID},
    'hy_v3': {**SIGMOID, 'exp_probs_b': 'mlp.e_score_correction'},
    'exaone-moe': SIGMOID,
    'plamo3': {**POST, 'ffn_norm': 'pre_feedforward_layernorm', 'post_ffw_norm': 'post_feedforward_layernorm'},
}
PERMUTED = ('smollm3', 'arcee', 'minicpm', 'muse-glimmer', 'nanbeige', 'internlm2')


def causal(family):
    """Returns a class with the text model of a family that has no class for text only, and an LM head."""
    text = getattr(transformers, family + 'TextModel')

    class Model(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.model, self.config = text(config), config
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

        def forward(self, ids, use_cache=False):
            return types.SimpleNamespace(logits=self.lm_head(self.model(ids, use_cache=use_cache).last_hidden_state))
    Model.__name__ = family + 'ForCausalLM'
    return Model


class MuseGlimmerText(torch.nn.Module):
    """The text model of Muse Glimmer, whose own class has a vision model, too."""
    def __init__(self, config):
        super().__init__()
        self.model, self.config = transformers.MuseGlimmerTextModel(config), config
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, ids, use_cache=False):
        cap = self.config.final_logit_softcapping
        logits = self.lm_head(self.model(ids, use_cache=use_cache).last_hidden_state) * self.config.output_multiplier
        return types.SimpleNamespace(logits=torch.tanh(logits / cap) * cap)


class Nanbeige(transformers.LlamaForCausalLM):
    """Llama whose layers run several times, with the last norm between the runs."""
    def forward(self, ids, use_cache=False):
        x, n, m = self.model.embed_tokens(ids), ids.shape[1], self.model
        mask, pos = torch.full((n, n), float('-inf')).triu(1)[None, None], torch.arange(n)[None]
        for loop in range(self.config.num_loops):
            for layer in m.layers:
                out = layer(x, attention_mask=mask, position_ids=pos, position_embeddings=m.rotary_emb(x, pos))
                x = out[0] if isinstance(out, tuple) else out
            if loop == self.config.num_loops - 1 or self.config.loop_norm: x = m.norm(x)
        return types.SimpleNamespace(logits=self.lm_head(x))


class PlamoGemma(transformers.Gemma3ForCausalLM):
    """PLaMo 3 has the structure of Gemma 3, without its factor of embeddings and with SiLU. transformers looks for
    `truncate` beside the kinds of layers."""
    def __init__(self, config):
        rope = config.rope_parameters
        rope['truncate'] = rope['full_attention']['truncate']
        super().__init__(config)
        self.model.embed_tokens.embed_scale.fill_(1.0)


CLASSES = {'Plamo3': (transformers.Gemma3TextConfig, PlamoGemma), 'Nanbeige': (transformers.LlamaConfig, Nanbeige), 'MuseGlimmerText': (transformers.MuseGlimmerTextConfig, MuseGlimmerText)}


def first(value): return value[0] if isinstance(value, list) else value


def full_first(k): return ['sliding_attention' if i % 4 else 'full_attention' for i in range(k('block_count'))]


def kinds(k, every): return ['full_attention' if (i + 1) % every == 0 else 'sliding_attention' for i in range(k('block_count'))]


def rope(k, **more): return {'rope_type': 'default', 'rope_theta': k('rope.freq_base'), **more}


def routed(k, **more):
    return {'num_experts_per_tok': k('expert_used_count'), 'moe_intermediate_size': k('expert_feed_forward_length'), **more}


def sigmoid(k, **more):
    return routed(k, n_routed_experts=k('expert_count'), n_shared_experts=k('expert_shared_count'),
                  first_k_dense_replace=k('leading_dense_block_count'), routed_scaling_factor=k('expert_weights_scale'),
                  norm_topk_prob=True, **more)


def olmo3(k):
    yarn = {'rope_type': 'yarn', 'rope_theta': k('rope.freq_base'), 'factor': k('rope.scaling.factor'),
            'beta_fast': 32.0, 'beta_slow': 1.0, 'attention_factor': k('rope.scaling.yarn_attn_factor'),
            'original_max_position_embeddings': k('rope.scaling.original_context_length')}
    return {'sliding_window': k('attention.sliding_window'), 'layer_types': kinds(k, 4),
            'rope_parameters': {'full_attention': yarn, 'sliding_attention': rope(k)}}


def yarn(k):
    return {'rope_type': 'yarn', 'rope_theta': k('rope.freq_base'), 'factor': k('rope.scaling.factor'), 'beta_fast': 32.0,
            'beta_slow': 1.0, 'attention_factor': k('rope.scaling.yarn_attn_factor'),
            'original_max_position_embeddings': k('rope.scaling.original_context_length')}


def local_rope(k, **more): return {'rope_type': 'default', 'rope_theta': k('rope.freq_base_swa'), **more}


def mimo2(k):
    part = k('rope.dimension_count') / k('attention.key_length')
    return routed(k, n_routed_experts=k('expert_count'), v_head_dim=k('attention.value_length'), layer_types=full_first(k),
                  mlp_layer_types=['dense'] + ['sparse'] * (k('block_count') - 1), routed_scaling_factor=k('expert_weights_scale'),
                  sliding_window=k('attention.sliding_window') + 1, attention_value_scale=k('attention.value_scale'),
                  rope_parameters={'full_attention': rope(k, partial_rotary_factor=part),
                                   'sliding_attention': local_rope(k, partial_rotary_factor=part)})


def laguna(k, **more):
    return routed(k, num_experts=k('expert_count'), shared_expert_intermediate_size=k('expert_shared_feed_forward_length'),
                  mlp_layer_types=['dense'] + ['sparse'] * (k('block_count') - 1), moe_routed_scaling_factor=k('expert_weights_scale'),
                  attention_bias=False, **more)


def cohere(k, **more):
    return {'layer_norm_eps': k('attention.layer_norm_epsilon'), 'logit_scale': k('logit_scale'), 'use_qk_norm': False, **more}


def plamo3(k, theta=1e3, factor=8.0, truncate=False):
    return {'sliding_attention': {'rope_type': 'default', 'rope_theta': theta},
            'full_attention': {'rope_type': 'yarn', 'rope_theta': k('rope.freq_base'), 'factor': factor, 'beta_fast': 32.0, 'beta_slow': 1.0,
                               'truncate': truncate, 'original_max_position_embeddings': 64}}


def granite_swa(k):
    theta = [k('rope.freq_base') * used for used in k('attention.rope_pattern')]
    return {**granite(k), 'sliding_window': k('attention.sliding_window'), 'layer_types': full_first(k), 'layer_rope_theta': theta}


def granite(k):
    return {'embedding_multiplier': k('embedding_scale'), 'residual_multiplier': k('residual_scale'),
            'logits_scaling': k('logit_scale'), 'attention_multiplier': k('attention.scale')}


def lfm2(k, **more):
    return {'norm_eps': k('attention.layer_norm_rms_epsilon'), 'num_key_value_heads': max(k('attention.head_count_kv')),
            'conv_L_cache': k('shortconv.l_cache'), 'layer_types': ['full_attention' if n else 'conv' for n in k('attention.head_count_kv')], **more}


INDEXER = {'indexer.attn_q_b': 'self_attn.indexer.wq_b', 'indexer.attn_k': 'self_attn.indexer.wk',
           'indexer.proj': 'self_attn.indexer.weights_proj', 'indexer.k_norm': 'self_attn.indexer.k_norm'}


def indexed(k, **more):
    return {'index_topk': k('attention.indexer.top_k'), 'index_head_dim': k('attention.indexer.key_length'),
            'index_n_heads': k('attention.indexer.head_count'), 'norm_topk_prob': True, 'q_lora_rank': k('attention.q_lora_rank'), **more}


MODELS = {
    'lfm2': ('Lfm2', lambda k: lfm2(k, block_auto_adjust_ff_dim=False)),
    'lfm2moe': ('Lfm2Moe', lambda k: lfm2(k, **routed(k, num_experts=k('expert_count'), num_dense_layers=k('leading_dense_block_count')))),
    'smollm3': ('SmolLM3', lambda k: {}),
    'seed_oss': ('SeedOss', lambda k: {'attention_bias': True}),
    'olmo2': ('Olmo2', lambda k: {}), 'olmo3': ('Olmo3', olmo3),
    'exaone4': ('Exaone4', lambda k: {'sliding_window': None, 'layer_types': ['full_attention'] * k('block_count')}),
    'exaone4-large': ('Exaone4', lambda k: {'sliding_window': k('attention.sliding_window'), 'layer_types': kinds(k, 4)}),
    'glm4': ('Glm4', lambda k: {'attention_bias': True, 'rope_parameters': rope(k, partial_rotary_factor=0.5)}),
    'ernie4_5': ('Ernie4_5', lambda k: {}),
    'ernie4_5-moe': ('Ernie4_5_Moe', lambda k: routed(
        k, moe_num_experts=k('expert_count'), moe_k=k('expert_used_count'), moe_num_shared_experts=k('expert_shared_count'),
        moe_layer_start_index=k('leading_dense_block_count'), moe_layer_interval=k('interleave_moe_layer_step'),
        moe_layer_end_index=k('block_count') - 1)),
    'hunyuan-dense': ('HunYuanDenseV1', lambda k: {}),
    'hunyuan-moe': ('HunYuanMoEV1', lambda k: {'num_experts': k('expert_count'), 'moe_topk': k('expert_used_count')}),
    'dots1': ('Dots1', lambda k: sigmoid(k, sliding_window=None)),
    # Ling 2 has the structure of GLM 4.5 with stacked queries, keys and values, and expert groups
    'bailingmoe2': ('Glm4Moe', lambda k: sigmoid(
        k, n_group=k('expert_group_count'), topk_group=k('expert_group_used_count'), use_qk_norm=True, attention_bias=False,
        rope_parameters=rope(k, partial_rotary_factor=0.5))),
    'qwen2moe': ('Qwen2Moe', lambda k: routed(
        k, num_experts=k('expert_count'), shared_expert_intermediate_size=k('expert_shared_feed_forward_length'),
        norm_topk_prob=False, decoder_sparse_step=1)),
    'arcee': ('Arcee', lambda k: {}), 'apertus': ('Apertus', lambda k: {}),
    'starcoder2': ('Starcoder2', lambda k: {'norm_epsilon': k('attention.layer_norm_epsilon'), 'use_bias': True, 'sliding_window': None}),
    'command-r': ('Cohere', cohere),
    'cohere2': ('Cohere2', lambda k: cohere(k, sliding_window=k('attention.sliding_window'), layer_types=kinds(k, 4))),
    'mellum': ('Mellum', lambda k: routed(
        k, num_experts=k('expert_count'), norm_topk_prob=True, sliding_window=k('attention.sliding_window'), layer_types=kinds(k, 4),
        rope_parameters={'full_attention': rope(k), 'sliding_attention': {'rope_type': 'default', 'rope_theta': k('rope.freq_base_swa')}})),
    'phimoe': ('Phimoe', lambda k: {
        'num_local_experts': k('expert_count'), 'num_experts_per_tok': k('expert_used_count'), 'attention_bias': True,
        'lm_head_bias': True, 'sliding_window': None, 'rope_parameters': {
            'rope_type': 'longrope', 'rope_theta': k('rope.freq_base'), 'long_mscale': 1.243163121016122,
            'short_mscale': 1.243163121016122, 'original_max_position_embeddings': k('rope.scaling.original_context_length'),
            'long_factor': [1 + 0.25 * i for i in range(16)], 'short_factor': [1 + 0.03125 * i for i in range(16)]}}),
    'granite_swa': ('GraniteSWA', granite_swa),
    'granite_swa-moe': ('GraniteMoeSWA', lambda k: {
        **granite_swa(k), 'num_local_experts': k('expert_count'), 'num_experts_per_tok': k('expert_used_count'),
        'shared_intermediate_size': k('expert_shared_feed_forward_length')}),
    'afmoe': ('Afmoe', lambda k: routed(
        k, num_experts=k('expert_count'), num_shared_experts=k('expert_shared_count'), num_dense_layers=k('leading_dense_block_count'),
        route_scale=k('expert_weights_scale'), sliding_window=k('attention.sliding_window'), layer_types=kinds(k, 4),
        mup_enabled=True, attention_bias=False)),
    'muse-glimmer': ('MuseGlimmerText', lambda k: {
        'output_multiplier': k('logit_scale'), 'final_logit_softcapping': k('final_logit_softcapping'), 'qk_scale_factor': 1.5,
        'sliding_window': k('attention.sliding_window'), 'layer_types': kinds(k, 4), 'rope_parameters': rope(k)}),
    'laguna': ('Laguna', lambda k: laguna(
        k, layer_types=full_first(k), num_attention_heads_per_layer=k('attention.head_count'), gating='per-head',
        sliding_window=k('attention.sliding_window'),
        rope_parameters={'full_attention': {**yarn(k), 'partial_rotary_factor': 0.5}, 'sliding_attention': local_rope(k)})),
    'laguna-full': ('Laguna', lambda k: laguna(
        k, layer_types=['full_attention'] * k('block_count'), gating='per-element', sliding_window=0,
        rope_parameters={'full_attention': rope(k), 'sliding_attention': rope(k)})),
    'step35': ('Step3p7', lambda k: routed(
        k, pad_token_id=0, n_routed_experts=k('expert_count'), share_expert_dim=k('expert_shared_feed_forward_length'), layer_types=full_first(k),
        mlp_layer_types=['dense'] + ['sparse'] * (k('block_count') - 1), moe_router_scaling_factor=k('expert_weights_scale'),
        sliding_window=k('attention.sliding_window'), num_sliding_attention_heads=k('attention.head_count')[1],
        swiglu_limits=[float(x) for x in k('swiglu_clamp_exp')], swiglu_limits_shared=[float(x) for x in k('swiglu_clamp_shexp')],
        rope_parameters={'full_attention': rope(k, partial_rotary_factor=0.5), 'sliding_attention': local_rope(k)})),
    'mimo2': ('MiMoV2Flash', mimo2), 'mimo2-stacked': ('MiMoV2Flash', mimo2),
    'hy_v3': ('HYV3', lambda k: routed(
        k, num_hidden_layers=k('block_count') - k('nextn_predict_layers'), num_experts=k('expert_count'),
        num_shared_experts=k('expert_shared_feed_forward_length') // k('expert_feed_forward_length'),
        mlp_layer_types=['dense'] + ['sparse'] * (k('block_count') - 1), router_scaling_factor=k('expert_weights_scale'))),
    'jais2': ('Jais2', lambda k: {
        'layer_norm_eps': k('attention.layer_norm_epsilon'), 'hidden_act': 'relu2', 'attention_bias': True, 'mlp_bias': True}),
    'stablelm': ('StableLm', lambda k: {
        'layer_norm_eps': k('attention.layer_norm_epsilon'), 'use_qkv_bias': True, 'rope_parameters': rope(k, partial_rotary_factor=0.25)}),
    'pangu-embedded': ('Llama', lambda k: {'attention_bias': True}),
    'gemma': ('Gemma', lambda k: {}), 'internlm2': ('Llama', lambda k: {}),
    'olmoe': ('Olmoe', lambda k: {'num_experts': k('expert_count'), 'num_experts_per_tok': k('expert_used_count'), 'norm_topk_prob': False}),
    'nemotron': ('Nemotron', lambda k: {
        'norm_eps': k('attention.layer_norm_epsilon'), 'hidden_act': 'relu2', 'attention_bias': True, 'mlp_bias': True,
        'rope_parameters': rope(k, partial_rotary_factor=0.5)}),
    'exaone-moe': ('ExaoneMoe', lambda k: routed(
        k, num_experts=k('expert_count'), num_shared_experts=k('expert_shared_feed_forward_length') // k('expert_feed_forward_length'),
        first_k_dense_replace=k('leading_dense_block_count'), routed_scaling_factor=k('expert_weights_scale'), norm_topk_prob=True,
        sliding_window=k('attention.sliding_window'), layer_types=kinds(k, 4))),
    'plamo3': ('Plamo3', lambda k: {
        'hidden_activation': 'silu', 'query_pre_attn_scalar': k('attention.key_length'), 'sliding_window': k('attention.sliding_window'),
        'layer_types': kinds(k, k('attention.sliding_window_pattern')), 'rope_parameters': plamo3(k)}),
    'nanbeige': ('Nanbeige', lambda k: {'num_loops': k('num_loops'), 'loop_norm': True}),
    # MiniCPM has the structure of Granite
    'minicpm': ('Granite', granite),
}
SHARED_EXPERT = ('shared expert', {}, 'shared')
NORM_BIASES = ('input_layernorm.bias', 'post_attention_layernorm.bias', 'model.norm.bias')
NEMOTRON = [('activation', {'hidden_act': 'relu'}, None),
            *((part, {}, part) for part in ('o_proj.bias', 'up_proj.bias', 'down_proj.bias', *NORM_BIASES))]
MUTATIONS = {
    'deepseek32': [('selection', {'index_topk': 4096}, None), ('shift of keys', {}, 'k_norm.bias'), ('weights of heads', {}, 'weights_proj')],
    'glm-dsa': [('selection', {'index_topk': 4096}, None), ('last of the selection', {'index_topk': 19}, None)],
    'lfm2': [('norms of queries', {}, '=q_layernorm'), ('norms of keys', {}, '=k_layernorm'), ('convolutions', {}, 'conv.conv')],
    'lfm2moe': [('convolutions', {}, 'conv.conv'), ('correction', {}, 'expert_bias')],
    'nanbeige': [('runs of the layers', {'num_loops': 2}, None), ('norms between runs', {'loop_norm': False}, None)],
    'jais2': NEMOTRON, 'stablelm': [(part, {}, part) for part in NORM_BIASES], 'pangu-embedded': [('bias of the output', {}, 'o_proj.bias')],
    'gemma': [('activation', {'hidden_act': 'silu'}, None)],
    'olmoe': [('divided weights', {'norm_topk_prob': True}, None)],
    'nemotron': NEMOTRON,
    'exaone-moe': [('correction', {}, 'e_score_correction_bias'), ('scale of weights', {'routed_scaling_factor': 1.0}, None), SHARED_EXPERT,
                   ('all layers with a window', {'layer_types': ['sliding_attention'] * 4}, None)],
    'plamo3': [('all layers with a window', {'layer_types': ['sliding_attention'] * 4}, None), ('activation', {'hidden_activation': 'gelu_pytorch_tanh'}, None),
               *((what, {'rope_parameters': plamo3(lambda key: 1.5e5, **change)}, None) for what, change in (
                   ('base in windows', {'theta': 1e4}), ('stretched rotation', {'factor': 1.0}), ('fractions of pairs', {'truncate': True})))],
    'smollm3': [('layers without rotation', {'no_rope_layers': [1, 1, 1, 1]}, None)],
    'phimoe': [('bias of the output', {}, 'lm_head.bias'), ('bias of attention', {}, 'o_proj.bias'),
               ('bias of the last norm', {}, 'model.norm.bias')],
    'granite_swa': [('sinks', {}, 'sinks'), ('layers with a window', {'layer_types': ['full_attention'] * 4}, None),
                    ('layers without rotation', {'layer_rope_theta': [1e4] * 4}, None)],
    'granite_swa-moe': [('shared expert', {}, 'output_linear'), ('sinks', {}, 'sinks')],
    'afmoe': [('gates', {}, 'gate_proj'), ('factor of embeddings', {'mup_enabled': False}, None), ('correction', {}, 'expert_bias'),
              ('scale of weights', {'route_scale': 1.0}, None), ('all layers with a window', {'layer_types': ['sliding_attention'] * 4}, None),
              SHARED_EXPERT],
    'muse-glimmer': [('gates', {}, 'gate_proj'), ('scale of logits', {'output_multiplier': 1.0}, None), ('scale of queries', {'qk_scale_factor': 1.0}, None),
                     ('softcap', {'final_logit_softcapping': 400.0}, None), ('epsilon of norms', {'post_norm_eps': 1e-5}, None),
                     ('all layers with a window', {'layer_types': ['sliding_attention'] * 4}, None)],
    'laguna': [('gates', {}, 'g_proj'), ('correction', {}, 'e_score_correction_bias'), SHARED_EXPERT,
               ('scale of weights', {'moe_routed_scaling_factor': 1.0}, None)],
    'laguna-full': [('gates', {}, 'g_proj')],
    'step35': [('gates', {}, 'g_proj'), ('correction', {}, 'e_score_correction_bias'), SHARED_EXPERT,
               ('scale of weights', {'moe_router_scaling_factor': 1.0}, None), ('limits', {'swiglu_limits': [0.0] * 4}, None),
               ('limits of the shared expert', {'swiglu_limits_shared': [0.0] * 4}, None)],
    'mimo2': [('sinks', {}, 'sinks'), ('correction', {}, 'e_score_correction_bias'), ('scale of values', {'attention_value_scale': 1.0}, None),
              ('scale of weights', {'routed_scaling_factor': 1.0}, None)],
    'hy_v3': [('correction', {}, 'e_score_correction_bias'), ('scale of weights', {'router_scaling_factor': 1.0}, None), SHARED_EXPERT],
    'olmo3': [('all layers with a window', {'layer_types': ['sliding_attention'] * 4}, None)],
    'exaone4-large': [('all layers with a window', {'layer_types': ['sliding_attention'] * 4}, None)],
    'ernie4_5-moe': [('correction', {}, 'e_score_correction_bias'), SHARED_EXPERT],
    'hunyuan-dense': [('norms of queries', {}, '=query_layernorm'), ('norms of keys', {}, '=key_layernorm')],
    'hunyuan-moe': [('norms of queries', {}, '=query_layernorm'), SHARED_EXPERT],
    'dots1': [('correction', {}, 'e_score_correction_bias'), ('scale of weights', {'routed_scaling_factor': 1.0}, None), SHARED_EXPERT],
    'bailingmoe2': [('groups', {'topk_group': 4}, None)],
    'qwen2moe': [('divided weights', {'norm_topk_prob': True}, None), ('gate', {}, 'shared_expert_gate'), SHARED_EXPERT],
    'arcee': [('activation', {'hidden_act': 'relu'}, None)],
    'apertus': [('factor of positive values', {}, 'alpha_p'), ('factor of negative values', {}, 'alpha_n'), ('slope', {}, 'act_fn.beta')],
    'starcoder2': [('activation', {'hidden_act': 'relu'}, None)] + [
        (part, {}, part) for part in ('o_proj.bias', 'c_fc.bias', 'c_proj.bias', 'input_layernorm.bias',
                                      'post_attention_layernorm.bias', 'model.norm.bias')],
    'command-r': [('scale of logits', {'logit_scale': 1.0}, None)],
    'mellum': [('all layers with a window', {'layer_types': ['sliding_attention'] * 4}, None)],
    'cohere2': [('all layers with a window', {'layer_types': ['sliding_attention'] * 4}, None)],
}


def split_heads(out, field):
    """Splits matrices of queries, keys and values; heads of values have a size of their own."""
    heads, key, value = (field(f'mimo2.attention.{k}') for k in ('head_count', 'key_length', 'value_length'))
    for name in [n for n in out if n.endswith('attn_qkv.weight')]:
        w = out.pop(name)
        n_kv = (w.shape[0] - heads * key) // (key + value)
        for part, rows in zip('qkv', w.split([heads * key, n_kv * key, n_kv * value])):
            out[name.replace('attn_qkv', f'self_attn.{part}_proj')] = rows.contiguous()


def finish(out, arch, field):
    """Changes weights to transformers' shapes and adds parameters that files store as metadata."""
    for name in list(out):
        if name.endswith(('self_attn.sinks.weight', '.experts.gate_up_proj.weight', 'mlp.expert_bias.bias')):
            out[name.rsplit('.', 1)[0]] = out.pop(name)
            continue
        if arch == 'muse-glimmer' and name.endswith('layernorm.weight'): out[name] = out[name] - 1
        if arch == 'muse-glimmer' and '_norm.' in name: del out[name]
        if name.endswith('shared_expert_gate.weight'): out[name] = out[name].reshape(1, -1)
        elif name.endswith('conv.conv.weight'): out[name] = out[name].unsqueeze(1)
        elif arch == 'lfm2moe' and '.mlp.experts.' in name: out[name.replace('mlp', 'feed_forward')] = out.pop(name)
        elif name.endswith('feed_forward.expert.bias'): out[name.replace('expert.bias', 'expert_bias')] = out.pop(name)
        elif name.endswith('moe_statics.e_score_correction_bias'): out[name] = out[name].reshape(1, -1)
    if arch == 'mimo2': split_heads(out, field)
    for name in [n for n in out if arch == 'plamo3' and n.endswith('mlp.up_proj.weight')]:
        out[name.replace('up_proj', 'gate_proj')], out[name] = (w.contiguous() for w in out[name].chunk(2))
    if arch == 'apertus':
        for part, key in (('alpha_p', 'alpha_p'), ('alpha_n', 'alpha_n'), ('beta', 'beta'), ('eps', 'eps')):
            for i, value in enumerate(field(f'xielu.{key}')):
                v = type(next(iter(out.values())))([value])
                out[f'model.layers.{i}.mlp.act_fn.{part}'] = v if part.startswith('alpha') else v[0]
    return out


def change_of(part):
    """Returns the function that sets the weights of a mutation, or None."""
    if part is None: return None
    def change(model):
        for n, p in list(model.named_parameters()) + list(model.named_buffers()):
            if part.lstrip('=') in n: p.data.fill_(1.0 if part.startswith('=') else 0.0)
    return change
