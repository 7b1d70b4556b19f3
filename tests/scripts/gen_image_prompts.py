#!/usr/bin/env python3
"""Writes tests/golden/images_NAME.txt: results of transformers, in float32, for prompts with images.

    gen_image_prompts.py [NAME...]     needs torch (CPU), transformers and gguf; PAGEDINFER_BUILD: a build folder with
                                tests/tool_tiny_model

The models are those of gen_reference.py. The rows of an image are random values, seeded by a number; tests/unit/
test_images.c makes the same ones. A case is a list of lines:

    t N id..          N tokens of text        i ROWS COLS SEED   an image
    greedy id..       12 greedy tokens        row POS logit..    logits after a position
    end

Each case also runs with single features left out (mutations). If that changes no logit by CLEAR, the script fails."""
import os, subprocess, sys, tempfile

import gguf, numpy, torch, transformers

import gen_reference as ref
from gen_reference import GAP, HERE, TOOL

CLEAR = 2e-3 # four times the tolerance of the test
N_GEN, SOFT = 12, 7
# Items of the prompts: a number of text tokens, or (rows, columns, seed).
CASES = [[12, (3, 5, 1), 9], [(4, 4, 2), 3, (2, 7, 3), 20], [60, (5, 8, 4), 70, (6, 6, 1), (1, 4, 5), 2]]


def random_rows(seed, n, n_embd, width):
    """The rows of tests/unit/test_images.c."""
    state, out = 1000 + seed, numpy.empty(n * width, dtype=numpy.float32)
    for i in range(n * width):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        amp = 1.0 if i % width < n_embd else 0.5
        out[i] = (numpy.float32(state >> 40) / numpy.float32(2**23) - numpy.float32(1)) * numpy.float32(amp)
    return torch.from_numpy(out.reshape(n, width))


class Prompt:
    """ids, the rows of images, and for each token the number of its image, or -1."""
    def __init__(self, items, vocab, rng, n_embd, width):
        self.ids, self.image, self.rows, self.lines, self.grid = [], [], [], [], []
        for item in items:
            if isinstance(item, int):
                ids = [int(x) for x in rng.integers(0, vocab, item)]
                self.lines.append('t ' + ' '.join(map(str, [item, *ids])))
                self.ids += ids
                self.image += [-1] * item
                continue
            rows, cols, seed = item
            self.lines.append(f'i {rows} {cols} {seed}')
            self.ids += [SOFT] * (rows * cols)
            self.image += [len(self.grid)] * (rows * cols)
            self.grid.append((rows, cols))
            self.rows.append(random_rows(seed, rows * cols, n_embd, width))

    def positions(self, n):
        """[3, n] time, row and column of the prompt's tokens, and of those generated after them."""
        out, p, i = [], 0, 0
        while i < n:
            k = self.image[i] if i < len(self.image) else -1
            if k < 0: out.append((p, p, p)); p += 1; i += 1; continue
            rows, cols = self.grid[k]
            out += [(p, p + r, p + c) for r in range(rows) for c in range(cols)]
            p, i = p + max(rows, cols), i + rows * cols
        return torch.tensor(out).T


def run(model, prompt, ids, what):
    """Logits [n, V] of the prompt and the ids after it."""
    n, E, model.answer = len(prompt.ids) + len(ids), model.n_embd, ids
    seen = torch.tensor([k >= 0 for k in prompt.image] + [False] * len(ids))
    with torch.no_grad():
        x = model.text.embed_tokens(torch.tensor([prompt.ids + ids]))
        rows = torch.cat(prompt.rows)
        x[0, seen] = rows[:, :E] * (getattr(model, 'scale', 1.0) if what == 'no scale' else 1.0)
        hidden = model.forward(model, x, prompt, n, seen, rows, what)
        return model.head(hidden)[0].numpy()


def gemma3(model, x, prompt, n, seen, rows, what):
    from transformers.masking_utils import blockwise_overlay, create_causal_mask, sliding_window_overlay
    c = model.text.config
    blocks = torch.tensor([prompt.image + [-1] * (n - len(prompt.image))])
    if what == 'one block': blocks = torch.where(blocks >= 0, 0, -1)
    if what == 'causal': blocks[:] = -1
    kw = {'config': c, 'inputs_embeds': x, 'attention_mask': None, 'cache': None, 'position_ids': None}
    full = create_causal_mask(**kw, block_sequence_ids=None if what == 'causal in global layers' else blocks)
    local = create_causal_mask(**kw, or_mask_function=blockwise_overlay(blocks),
                               and_mask_function=sliding_window_overlay(c.sliding_window))
    return model.text(inputs_embeds=x, attention_mask={'full_attention': full, 'sliding_attention': local},
                      use_cache=False).last_hidden_state


def qwenvl(model, x, prompt, n, seen, rows, what):
    pos, E = prompt.positions(n), model.n_embd
    if what == 'text positions': pos = torch.arange(n).expand(3, n)
    if what == 'rows as columns': pos = pos[[0, 2, 1]]
    if what == 'time as rows': pos = pos[[1, 0, 2]]
    deep = [rows[:, E * k:E * (k + 1)] for k in range(1, rows.shape[1] // E)]
    if what == 'no deepstack': deep = None
    if what == 'deepstack order': deep = deep[::-1]
    more = {'visual_pos_masks': seen[None], 'deepstack_visual_embeds': deep} if deep else {}
    return model.text(inputs_embeds=x, position_ids=pos[:, None], use_cache=False, **more).last_hidden_state


def plain(model, x, prompt, n, seen, rows, what):
    return model.text(inputs_embeds=x, use_cache=False).last_hidden_state


def gemma4(model, x, prompt, n, seen, rows, what):
    from transformers.masking_utils import blockwise_overlay, create_causal_mask, sliding_window_overlay
    c = model.text.config
    blocks = torch.tensor([prompt.image + [-1] * (n - len(prompt.image))])
    whole = what != 'causal' and not c.hidden_size_per_layer_input or what == 'whole images'
    kw = {'config': c, 'inputs_embeds': x, 'attention_mask': None, 'cache': None, 'position_ids': None}
    full = create_causal_mask(**kw, **({'block_sequence_ids': blocks} if what == 'global layers, too' else {}))
    local = create_causal_mask(**kw, and_mask_function=sliding_window_overlay(c.sliding_window),
                               **({'or_mask_function': blockwise_overlay(blocks)} if whole else {}))
    more = {}
    if c.hidden_size_per_layer_input:
        ids = torch.tensor([prompt.ids + model.answer])
        if what != 'ids of soft tokens': ids[0, seen] = 0
        of = model.text.embed_tokens(ids) if what == 'projection of the pad row' else x
        both = model.text.get_per_layer_inputs(ids, x)
        if what == 'projection of the pad row':
            model.text.project_per_layer_inputs = lambda e, p: type(model.text).project_per_layer_inputs(model.text, of, p)
        more = {'per_layer_inputs': both}
    out = model.text(inputs_embeds=x, attention_mask={'full_attention': full, 'sliding_attention': local}, use_cache=False,
                     **more).last_hidden_state
    model.text.__dict__.pop('project_per_layer_inputs', None)
    return out


def gemma4_config(k, has):
    n, P = k('block_count'), has('embedding_length_per_layer_input', 0)
    return {'head_dim': k('attention.key_length_swa'), 'global_head_dim': k('attention.key_length'), 'attention_k_eq_v': False,
            'num_global_key_value_heads': None, 'hidden_size_per_layer_input': P, 'vocab_size_per_layer_input': 313,
            'num_kv_shared_layers': has('attention.shared_kv_layers', 0), 'sliding_window': k('attention.sliding_window'),
            'layer_types': ['sliding_attention' if x else 'full_attention' for x in k('attention.sliding_window_pattern')],
            'use_bidirectional_attention': None if P else 'vision', 'enable_moe_block': False, 'pad_token_id': 0,
            'rope_parameters': {'sliding_attention': {'rope_type': 'default', 'rope_theta': k('rope.freq_base_swa')},
                                'full_attention': {'rope_type': 'proportional', 'partial_rotary_factor': 0.25,
                                                   'rope_theta': k('rope.freq_base')}}}


GEMMA4 = {'post_attention_norm': 'post_attention_layernorm', 'ffn_norm': 'pre_feedforward_layernorm',
          'post_ffw_norm': 'post_feedforward_layernorm', 'inp_gate': 'per_layer_input_gate', 'proj': 'per_layer_projection',
          'post_norm': 'post_per_layer_input_norm', 'per_layer_token_embd': 'model.embed_tokens_per_layer',
          'per_layer_model_proj': 'model.per_layer_model_projection', 'per_layer_proj_norm': 'model.per_layer_projection_norm'}
QWEN = ['text positions', 'rows as columns', 'time as rows']
SECTIONS = lambda k: {'rope_type': 'default', 'rope_theta': k('rope.freq_base'), 'mrope_section': k('rope.dimension_sections')[:3]}


def qwen35_weights(reader, weights, field):
    """Converts delta nets: transformers has the value heads of a key head adjacent."""
    keys, values, dim = (field('ssm.' + k) for k in ('group_count', 'time_step_rank', 'state_size'))
    heads = torch.tensor([h % (values // keys) * keys + h // (values // keys) for h in range(values)])
    wide = (heads[:, None] * dim + torch.arange(dim)).flatten()
    out, C = {}, 2 * keys * dim
    rest = lambda w: torch.cat([w[:C], w[C:][wide]])
    for name, w in weights.items():
        p, stem = name.rsplit('.', 2)[0], name.rsplit('.', 2)[-2]
        net = p + '.linear_attn.'
        if name.endswith('attn_qkv.weight'): out[net + 'in_proj_qkv.weight'] = rest(w)
        elif name.endswith('attn_gate.weight'): out[net + 'in_proj_z.weight'] = w[wide]
        elif name.endswith('ssm_alpha.weight'): out[net + 'in_proj_a.weight'] = w[heads]
        elif name.endswith('ssm_beta.weight'): out[net + 'in_proj_b.weight'] = w[heads]
        elif name.endswith('ssm_conv1d.weight'): out[net + 'conv1d.weight'] = rest(w).unsqueeze(1)
        elif name.endswith('ssm_dt.bias'): out[net + 'dt_bias'] = w[heads]
        elif name.endswith('ssm_a.weight'): out[net + 'A_log'] = torch.log(-w)[heads]
        elif name.endswith('ssm_norm.weight'): out[net + 'norm.weight'] = w
        elif name.endswith('ssm_out.weight'): out[net + 'out_proj.weight'] = w[:, wide]
        elif name.endswith('_norm.weight') or name.endswith('norm.weight') or 'layernorm' in name: out[name] = w - 1
        else: out[name] = w
    return out


def qwen35_config(k):
    return {'num_hidden_layers': k('block_count') - 1, 'linear_conv_kernel_dim': k('ssm.conv_kernel'),
            'linear_key_head_dim': k('ssm.state_size'), 'linear_value_head_dim': k('ssm.state_size'),
            'linear_num_key_heads': k('ssm.group_count'), 'linear_num_value_heads': k('ssm.time_step_rank'),
            'layer_types': ['linear_attention' if x else 'full_attention' for x in k('attention.recurrent_layers')[:-1]],
            'rope_parameters': {**SECTIONS(k), 'mrope_interleaved': True,
                                'partial_rotary_factor': k('rope.dimension_count') / k('attention.key_length')}}


# NAME: text model, its configuration, forward function, further entries of the configuration, mutations (none: images are
# like text, so gen_image_answers.py is enough)
MODELS = {
    'gemma3': ('Gemma3TextModel', 'Gemma3TextConfig', gemma3, ref.MODELS['gemma3'][1],
               ['causal', 'causal in global layers', 'one block', 'no scale']),
    'gemma4-e': ('Gemma4TextModel', 'Gemma4TextConfig', gemma4, gemma4_config,
                 ['whole images', 'no scale', 'ids of soft tokens', 'projection of the pad row']),
    'gemma4-vision': ('Gemma4TextModel', 'Gemma4TextConfig', gemma4, gemma4_config, ['causal', 'global layers, too', 'no scale']),
    'qwen2vl': ('Qwen2VLTextModel', 'Qwen2VLTextConfig', qwenvl, lambda k: {'rope_parameters': SECTIONS(k)}, QWEN),
    'qwen3vl': ('Qwen3VLTextModel', 'Qwen3VLTextConfig', qwenvl,
                lambda k: {'rope_parameters': {**SECTIONS(k), 'mrope_interleaved': True}},
                [*QWEN, 'no deepstack', 'deepstack order']),
    'qwen3vlmoe': ('Qwen3VLMoeTextModel', 'Qwen3VLMoeTextConfig', qwenvl,
                   lambda k: {'rope_parameters': {**SECTIONS(k), 'mrope_interleaved': True}, 'num_experts': k('expert_count'),
                              'num_experts_per_tok': k('expert_used_count'), 'mlp_only_layers': [], 'decoder_sparse_step': 1,
                              'moe_intermediate_size': k('expert_feed_forward_length')}, [*QWEN, 'no deepstack']),
    'qwen35': ('Qwen3_5TextModel', 'Qwen3_5TextConfig', qwenvl, qwen35_config, QWEN),
    'mistral3': ('Ministral3Model', 'Ministral3Config', plain, ref.MODELS['mistral3'][1], []),
}


def load(name, path):
    reader = gguf.GGUFReader(path)
    arch = reader.fields['general.architecture'].contents()
    field = lambda key: reader.fields[f'{arch}.{key}'].contents()
    has = lambda key, otherwise: field(key) if f'{arch}.{key}' in reader.fields else otherwise
    family, config_name, forward, more, _ = MODELS[name]
    heads = has('nextn_predict_layers', 0)
    left_out = f"blk.{field('block_count') - 1}." if heads else 'none'
    weights = tensors(reader, arch, field, left_out, name)
    head = weights.pop('lm_head.weight', weights['embed_tokens.weight'])
    config = dict(vocab_size=head.shape[0], hidden_size=field('embedding_length'), intermediate_size=has('feed_forward_length', 64),
                  num_hidden_layers=field('block_count'), num_attention_heads=field('attention.head_count'),
                  num_key_value_heads=field('attention.head_count_kv'),
                  head_dim=has('attention.key_length', field('embedding_length') // field('attention.head_count')),
                  max_position_embeddings=field('context_length'), rms_norm_eps=field('attention.layer_norm_rms_epsilon'),
                  pad_token_id=None, attn_implementation='eager', dtype=torch.float32)
    config.update(more(field, has) if more is gemma4_config else more(field))
    model = type('Model', (), {})()
    text_config = getattr(module_of(name, 'configuration'), config_name)(**config)
    model.text = getattr(module_of(name), family)(text_config).float().eval()
    model.text.load_state_dict(weights, strict=True)
    cap = has('final_logit_softcapping', 0)
    model.head = lambda h: cap * torch.tanh(h @ head.T / cap) if cap else h @ head.T
    model.n_embd, model.forward = config['hidden_size'], forward
    model.scale = config['hidden_size'] ** 0.5
    model.width = model.n_embd * (1 + has('n_deepstack_layers', 0))
    return model


MODULES = {'gemma3': 'gemma3', 'gemma4-e': 'gemma4', 'gemma4-vision': 'gemma4', 'qwen2vl': 'qwen2_vl', 'qwen3vl': 'qwen3_vl', 'qwen3vlmoe': 'qwen3_vl_moe', 'qwen35': 'qwen3_5',
           'mistral3': 'ministral3'}


def module_of(name, part='modeling'):
    import importlib
    return importlib.import_module(f'transformers.models.{MODULES[name]}.{part}_{MODULES[name]}')


def tensors(reader, arch, field, left_out, name):
    names = {**ref.NAMES, 'post_attention_norm': 'post_attention_layernorm'}
    if arch == 'gemma4':
        weights, names = {}, {**names, **GEMMA4}
        for t in reader.tensors:
            if t.name.startswith('rope_f'): continue
            stem, kind = t.name.rsplit('.', 1)
            layer = ''
            if stem.startswith('blk.'): layer, stem = 'model.layers.' + stem.split('.')[1] + '.', stem.split('.', 2)[2]
            w = torch.tensor(numpy.array(t.data, dtype=numpy.float32))
            weights[f'{layer}layer_scalar' if stem == 'layer_output_scale' else f'{layer}{names.get(stem, stem)}.{kind}'] = w
    elif name != 'qwen35':
        weights = ref.tensors_of(reader, arch, field('attention.head_count'), field('attention.head_count_kv'), left_out)
    else:
        weights = {}
        for t in reader.tensors:
            if t.name.startswith(left_out): continue
            stem, kind = (t.name + '.weight' if t.name.endswith('ssm_a') else t.name).rsplit('.', 1)
            layer = ''
            if stem.startswith('blk.'): layer, stem = 'model.layers.' + stem.split('.')[1] + '.', stem.split('.', 2)[2]
            w = gguf.quants.dequantize(t.data, t.tensor_type).astype(numpy.float32)
            weights[f'{layer}{names.get(stem, stem)}.{kind}'] = torch.from_numpy(numpy.ascontiguousarray(w))
        weights = qwen35_weights(reader, weights, field)
    return {k.removeprefix('model.'): v for k, v in weights.items()}


def golden(name, path):
    model, rng, text = load(name, path), numpy.random.default_rng(17), []
    vocab = model.text.config.vocab_size
    moved = dict.fromkeys(MODELS[name][4], 0.0)
    for items in CASES:
        while True:
            prompt, greedy, gaps = Prompt(items, vocab, rng, model.n_embd, model.width), [], []
            for _ in range(N_GEN):
                rows = run(model, prompt, greedy, '')
                a, b = numpy.sort(rows[-1])[:-3:-1]
                gaps.append(a - b)
                greedy.append(int(rows[-1].argmax()))
                if gaps[-1] < GAP: break
            if min(gaps) >= GAP: break
        rows, n = run(model, prompt, [], ''), len(prompt.ids)
        at = sorted({n - 1, prompt.image.index(0), prompt.image.index(0) + 2, n // 2})
        text += [*prompt.lines, 'greedy ' + ' '.join(map(str, greedy))]
        text += [f'row {p} ' + ' '.join(f'{x:.7g}' for x in rows[p]) for p in at] + ['end']
        for what in moved: moved[what] = max(moved[what], abs(run(model, prompt, [], what) - rows)[at].max())
    for what, by in moved.items():
        print(f'{name}: {what}: logits move by {by:.4f}')
        if by < CLEAR: sys.exit(f'{name}: {what} would not be missed')
    return '\n'.join(text) + '\n'


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or [n for n, m in MODELS.items() if m[4]]:
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, 'model.gguf')
            subprocess.run([TOOL, path, '512', name, *(['0', 'F16'] if name == 'qwen35' else [])], check=True)
            text = golden(name, path)
        out = os.path.join(HERE, '../golden', f'images_{name}.txt')
        with open(out, 'w') as f: f.write(text)
        print(f'{os.path.relpath(out)}: {len(text)} bytes, transformers {transformers.__version__}')


if __name__ == '__main__': main()
