#!/usr/bin/env python3
"""Writes tests/support/tower_expected.h: rows of images that transformers computes in float32, for random vision models.

    gen_towers.py     needs torch (CPU), transformers, Pillow and gguf; PAGEDINFER_BUILD: a build folder with
                      tests/tool_tiny_model

The weights come from the files that tool_tiny_model writes for the rows of tests/support/random_towers.c. An image has
smooth and noisy parts, drawn from a fixed seed: image_of here and in tests/unit/test_tower.c are equal. Sizes and
pixels come from the image processors of transformers with Pillow."""
import os, subprocess, sys, tempfile

import PIL, gguf, numpy, torch, transformers
from PIL import Image

assert int(PIL.__version__.split('.')[0]) < 13, 'give a Pillow below 13: see gen_images.py'

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(os.environ.get('PAGEDINFER_BUILD', os.path.join(HERE, '../../build')), 'tests', 'tool_tiny_model')
OUT = os.path.join(HERE, '../support/tower_expected.h')


def image_of(w, h):
    """[h, w, 3] bytes: a gradient plus noise from a linear congruential generator."""
    out, s = numpy.zeros(w * h * 3, numpy.uint8), w * 65536 + h
    for i in range(w * h * 3):
        s = (s * 1103515245 + 12345) & 0x7fffffff
        c, x, y = i % 3, i // 3 % w, i // 3 // w
        out[i] = (x * 255 // max(w - 1, 1) * (c + 1) // 3 + y * (3 - c) * 40 // h + (s >> 16) % 64) % 256
    return out.reshape(h, w, 3)


class File:
    """A GGUF file: metadata and tensors as numpy arrays in the order of torch."""
    def __init__(self, path):
        r = gguf.GGUFReader(path)
        self.tensors = {t.name: torch.tensor(numpy.array(t.data, numpy.float32).reshape(
            [int(n) for n in reversed(t.shape)])) for t in r.tensors}
        self.r = r

    def __call__(self, key):
        f = self.r.fields['clip.' + key]
        v = [f.parts[i][0].item() for i in f.data]
        return v if len(v) > 1 else v[0]

    def get(self, name):
        return self.tensors[name]


def load(module, pairs):
    """Copies (parameter, tensor) pairs; every parameter of the module has to be among them."""
    state = module.state_dict()
    left = {k for k in state if not k.endswith('position_ids') and 'inv_freq' not in k} - {k for k, _ in pairs}
    assert not left, left
    for k, v in pairs:
        assert state[k].numel() == v.numel(), (k, state[k].shape, v.shape)
        state[k] = v.reshape(state[k].shape)
    module.load_state_dict(state)
    return module.eval()


def both(ours, theirs, f):
    return [(theirs + s, f.get(ours + s)) for s in ('.weight', '.bias') if ours + s in f.tensors]


def gemma3(f, images):
    from transformers.models.gemma3 import modeling_gemma3 as g
    vision = dict(hidden_size=f('vision.embedding_length'), intermediate_size=f('vision.feed_forward_length'),
                  num_hidden_layers=f('vision.block_count'), num_attention_heads=f('vision.attention.head_count'),
                  image_size=f('vision.image_size'), patch_size=f('vision.patch_size'), vision_use_head=False)
    side = f('vision.image_size') // f('vision.patch_size') // f('vision.projector.scale_factor')
    c = transformers.Gemma3Config(vision_config=vision, mm_tokens_per_image=side * side,
                                  text_config=dict(hidden_size=f('vision.projection_dim')))
    v = transformers.SiglipVisionModel._from_config(c.vision_config, attn_implementation='eager')
    names = both('v.patch_embd', 'embeddings.patch_embedding', f) + both('v.post_ln', 'post_layernorm', f)
    names += [('embeddings.position_embedding.weight', f.get('v.position_embd.weight'))]
    part = {'ln1': 'layer_norm1', 'ln2': 'layer_norm2', 'attn_q': 'self_attn.q_proj', 'attn_k': 'self_attn.k_proj',
            'attn_v': 'self_attn.v_proj', 'attn_out': 'self_attn.out_proj', 'ffn_up': 'mlp.fc1', 'ffn_down': 'mlp.fc2'}
    for i in range(f('vision.block_count')):
        for ours, theirs in part.items():
            names += both(f'v.blk.{i}.{ours}', f'encoder.layers.{i}.{theirs}', f)
    prefix = 'vision_model.' if any(k.startswith('vision_model.') for k in v.state_dict()) else ''
    load(v, [(prefix + k, t) for k, t in names])
    p = load(g.Gemma3MultiModalProjector(c), [
        ('mm_input_projection_weight', f.get('mm.input_projection.weight')),
        ('mm_soft_emb_norm.weight', f.get('mm.soft_emb_norm.weight') - 1)])
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
    n = f('vision.image_size')
    proc = Gemma3ImageProcessorPil(size=dict(height=n, width=n), image_mean=f('vision.image_mean'),
                                   image_std=f('vision.image_std'))
    for im in images:
        x = proc(images=[im], return_tensors='pt')['pixel_values'].float()
        yield p(v(x).last_hidden_state)[0]


def qwen3vl(f, images):
    from transformers.models.qwen3_vl import modeling_qwen3_vl as q
    deep = [i for i in range(f('vision.block_count')) if f'v.deepstack.{i}.fc1.weight' in f.tensors]
    c = transformers.Qwen3VLConfig().vision_config.__class__(
        depth=f('vision.block_count'), hidden_size=f('vision.embedding_length'),
        intermediate_size=f('vision.feed_forward_length'), num_heads=f('vision.attention.head_count'),
        patch_size=f('vision.patch_size'), spatial_merge_size=f('vision.spatial_merge_size'), temporal_patch_size=2,
        out_hidden_size=f('vision.projection_dim'), num_position_embeddings=f.get('v.position_embd.weight').shape[0],
        deepstack_visual_indexes=deep)
    c._attn_implementation = 'eager'
    m = q.Qwen3VLVisionModel(c)
    conv = torch.stack([f.get('v.patch_embd.weight'), f.get('v.patch_embd.weight.1')], 2)
    names = [('patch_embed.proj.weight', conv), ('patch_embed.proj.bias', f.get('v.patch_embd.bias')),
             ('pos_embed.weight', f.get('v.position_embd.weight'))]
    part = {'ln1': 'norm1', 'ln2': 'norm2', 'attn_qkv': 'attn.qkv', 'attn_out': 'attn.proj', 'ffn_up': 'mlp.linear_fc1',
            'ffn_down': 'mlp.linear_fc2'}
    for i in range(f('vision.block_count')):
        for ours, theirs in part.items():
            names += both(f'v.blk.{i}.{ours}', f'blocks.{i}.{theirs}', f)
    names += both('v.post_ln', 'merger.norm', f) + both('mm.0', 'merger.linear_fc1', f)
    names += both('mm.2', 'merger.linear_fc2', f)
    for k, i in enumerate(deep):
        for ours, theirs in (('norm', 'norm'), ('fc1', 'linear_fc1'), ('fc2', 'linear_fc2')):
            names += both(f'v.deepstack.{i}.{ours}', f'deepstack_merger_list.{k}.{theirs}', f)
    load(m, names)
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    unit = (f('vision.patch_size') * f('vision.spatial_merge_size'))**2
    proc = Qwen2VLImageProcessorPil(
        patch_size=f('vision.patch_size'), merge_size=f('vision.spatial_merge_size'), temporal_patch_size=2,
        image_mean=f('vision.image_mean'), image_std=f('vision.image_std'),
        size=dict(shortest_edge=4 * unit, longest_edge=24 * unit))
    for im in images:
        x = proc(images=[im], return_tensors='pt')
        r = m(x['pixel_values'].float(), grid_thw=x['image_grid_thw'])
        yield torch.cat([r.pooler_output] + list(r.deepstack_features or []), 1)


def gemma4_pixels(f, im):
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
    proc = Gemma4ImageProcessorPil(patch_size=f('vision.patch_size'), max_soft_tokens=70,
                                   pooling_kernel_size=f('vision.projector.scale_factor'))
    x = proc(images=[im], return_tensors='pt')
    n = int(x['num_soft_tokens_per_image'][0]) * f('vision.projector.scale_factor')**2
    return x['pixel_values'][:, :n].float(), x['image_position_ids'][:, :n]


def gemma4(f, images):
    from transformers.models.gemma4 import modeling_gemma4 as g
    std, k = 'v.std_bias' in f.tensors, f('vision.projector.scale_factor')
    heads, E = f('vision.attention.head_count'), f('vision.embedding_length')
    table = f.get('v.position_embd.weight')
    c = transformers.Gemma4VisionConfig(
        hidden_size=E, intermediate_size=f('vision.feed_forward_length'), num_hidden_layers=f('vision.block_count'),
        num_attention_heads=heads, num_key_value_heads=heads, head_dim=E // heads, patch_size=f('vision.patch_size'),
        pooling_kernel_size=k, position_embedding_size=table.shape[1], standardize=std,
        use_clipped_linears='v.blk.0.attn_q.input_min' in f.tensors)
    c._attn_implementation = 'eager'
    m = g.Gemma4VisionModel(c)
    names = [('patch_embedder.input_proj.weight', f.get('v.patch_embd.weight').permute(0, 2, 3, 1)),
             ('patch_embedder.position_embedding_table', table)]
    if std:
        names += [('std_bias', f.get('v.std_bias')), ('std_scale', f.get('v.std_scale'))]
    part = {'ln1': 'input_layernorm', 'ln2': 'pre_feedforward_layernorm', 'attn_post_norm': 'post_attention_layernorm',
            'ffn_post_norm': 'post_feedforward_layernorm', 'attn_q_norm': 'self_attn.q_norm',
            'attn_k_norm': 'self_attn.k_norm'}
    linear = {'attn_q': 'self_attn.q_proj', 'attn_k': 'self_attn.k_proj', 'attn_v': 'self_attn.v_proj',
              'attn_out': 'self_attn.o_proj', 'ffn_gate': 'mlp.gate_proj', 'ffn_up': 'mlp.up_proj',
              'ffn_down': 'mlp.down_proj'}
    for i in range(f('vision.block_count')):
        for ours, theirs in part.items():
            names += both(f'v.blk.{i}.{ours}', f'encoder.layers.{i}.{theirs}', f)
        for ours, theirs in linear.items():
            names += both(f'v.blk.{i}.{ours}', f'encoder.layers.{i}.{theirs}.linear', f)
            for end in ('input_min', 'input_max', 'output_min', 'output_max'):
                if f'v.blk.{i}.{ours}.{end}' in f.tensors:
                    names.append((f'encoder.layers.{i}.{theirs}.{end}', f.get(f'v.blk.{i}.{ours}.{end}')))
    load(m, names)
    p = load(g.Gemma4MultimodalEmbedder(c, transformers.Gemma4TextConfig(hidden_size=f('vision.projection_dim'))),
             [('embedding_projection.weight', f.get('mm.input_projection.weight'))])
    for im in images:
        x, pos = gemma4_pixels(f, im)
        yield p(m(x, pixel_position_ids=pos).last_hidden_state)


def gemma4u(f, images):
    from transformers.models.gemma4_unified import modeling_gemma4_unified as g
    from transformers.models.gemma4_unified.configuration_gemma4_unified import (Gemma4UnifiedTextConfig,
                                                                                 Gemma4UnifiedVisionConfig)
    E, k = f('vision.embedding_length'), f('vision.projector.scale_factor')
    patch, table = k * f('vision.patch_size'), f.get('v.position_embd.weight')
    c = Gemma4UnifiedVisionConfig(patch_size=f('vision.patch_size'), pooling_kernel_size=k, model_patch_size=patch,
                                  mm_embed_dim=E, mm_posemb_size=table.shape[1], output_proj_dims=E)
    m = g.Gemma4UnifiedVisionEmbedder(c, Gemma4UnifiedTextConfig(
        hidden_size=f.get('mm.input_projection.weight').shape[0]))
    last = lambda t: t.reshape(-1, 3, patch, patch).permute(0, 2, 3, 1)
    names = [('patch_dense.weight', last(f.get('v.patch_embd.weight'))), ('patch_dense.bias', f.get('v.patch_embd.bias')),
             ('patch_ln1.weight', last(f.get('v.patch_norm.1.weight'))), ('patch_ln1.bias', last(f.get('v.patch_norm.1.bias'))),
             ('pos_embedding', table.permute(1, 0, 2)),
             ('multimodal_embedder.embedding_projection.weight', f.get('mm.input_projection.weight'))]
    load(m, names + both('v.patch_norm.2', 'patch_ln2', f) + both('v.patch_norm.3', 'pos_norm', f))
    for im in images:
        x, pos = gemma4_pixels(f, im)
        cols, rows, p = int(pos[0, :, 0].max()) + 1, int(pos[0, :, 1].max()) + 1, f('vision.patch_size')
        x = x.reshape(rows // k, k, cols // k, k, p, p, 3).permute(0, 2, 1, 4, 3, 5, 6).reshape(1, -1, 3 * patch * patch)
        grid = torch.tensor([[[i % (cols // k), i // (cols // k)] for i in range(x.shape[1])]])
        yield m(x, image_position_ids=grid).pooler_output[0]


def rows_of_heads(w, heads):
    """Adjacent pairs of a rotation become pairs (i, i + d/2), as transformers has them."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(w.shape)


def pixtral(f, images):
    from transformers.models.mistral3 import modeling_mistral3 as g
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
    k, heads, O = f('vision.spatial_merge_size'), f('vision.attention.head_count'), f('vision.projection_dim')
    vision = transformers.PixtralVisionConfig(
        hidden_size=f('vision.embedding_length'), intermediate_size=f('vision.feed_forward_length'),
        num_hidden_layers=f('vision.block_count'), num_attention_heads=heads, image_size=f('vision.image_size'),
        patch_size=f('vision.patch_size'), hidden_act='silu')
    vision._attn_implementation = 'eager'
    m = transformers.PixtralVisionModel(vision)
    names = both('v.patch_embd', 'patch_conv', f) + both('v.pre_ln', 'ln_pre', f)
    part = {'ln1': 'attention_norm', 'ln2': 'ffn_norm', 'attn_v': 'attention.v_proj', 'attn_out': 'attention.o_proj',
            'ffn_gate': 'feed_forward.gate_proj', 'ffn_up': 'feed_forward.up_proj', 'ffn_down': 'feed_forward.down_proj'}
    for i in range(f('vision.block_count')):
        for ours, theirs in part.items():
            names += both(f'v.blk.{i}.{ours}', f'transformer.layers.{i}.{theirs}', f)
        for n in 'qk':
            names.append((f'transformer.layers.{i}.attention.{n}_proj.weight',
                          rows_of_heads(f.get(f'v.blk.{i}.attn_{n}.weight'), heads)))
    load(m, names)
    merges = 'mm.patch_merger.weight' in f.tensors
    c = transformers.Mistral3Config(vision_config=vision, spatial_merge_size=k, multimodal_projector_bias=not merges,
                                    text_config=transformers.MistralConfig(hidden_size=O, rms_norm_eps=1e-5))
    p = g.Mistral3MultiModalProjector(c)
    names = both('mm.1', 'linear_1', f) + both('mm.2', 'linear_2', f)
    if merges:
        names += both('mm.input_norm', 'norm', f) + both('mm.patch_merger', 'patch_merger.merging_layer', f)
    else:
        names += [('norm.weight', torch.ones(1)), ('patch_merger.merging_layer.weight', torch.ones(1))]
        p.norm = torch.nn.RMSNorm(1)
        p.patch_merger = torch.nn.Module()
        p.patch_merger.merging_layer = torch.nn.Linear(1, 1, bias=False)
    load(p, names)
    unit = k * f('vision.patch_size')
    proc = PixtralImageProcessorPil(patch_size=dict(height=unit, width=unit), size=dict(longest_edge=f('vision.image_size')),
                                    image_mean=f('vision.image_mean'), image_std=f('vision.image_std'))
    for im in images:
        x = proc(images=[im], return_tensors='pt')
        h, w = (int(n) for n in x['image_sizes'][0])
        y = m(x['pixel_values'].float(), image_sizes=x['image_sizes']).last_hidden_state[0]
        y = p(y, x['image_sizes']) if merges else p.linear_2(p.act(p.linear_1(y)))
        y = y.reshape(h // unit, w // unit, O)
        end = f.get('v.token_embd.img_break').reshape(1, 1, O).expand(y.shape[0], 1, O)
        yield torch.cat([y, end], 1).reshape(-1, O)[:-1]


def qwen2(f, images):
    """Qwen2.5-VL if the file has gates, else Qwen2-VL."""
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as q25
    from transformers.models.qwen2_vl import modeling_qwen2_vl as q2
    L, E, F = f('vision.block_count'), f('vision.embedding_length'), f('vision.feed_forward_length')
    gated = 'v.blk.0.ffn_gate.weight' in f.tensors
    both_have = dict(depth=L, patch_size=f('vision.patch_size'), spatial_merge_size=f('vision.spatial_merge_size'),
                     temporal_patch_size=2, num_heads=f('vision.attention.head_count'), in_channels=3)
    if gated:
        c = q25.Qwen2_5_VLVisionConfig(hidden_size=E, intermediate_size=F, out_hidden_size=f('vision.projection_dim'),
                                       window_size=f('vision.window_size'),
                                       fullatt_block_indexes=[i for i in range(L) if (i + 1) % f('vision.n_wa_pattern') == 0],
                                       **both_have)
        m, mlp = q25.Qwen2_5_VisionTransformerPretrainedModel, {
            'ffn_gate': 'mlp.gate_proj', 'ffn_up': 'mlp.up_proj', 'ffn_down': 'mlp.down_proj'}
    else:
        c = q2.Qwen2VLVisionConfig(embed_dim=E, hidden_size=f('vision.projection_dim'), mlp_ratio=F // E, **both_have)
        m, mlp = q2.Qwen2VisionTransformerPretrainedModel, {'ffn_down': 'mlp.fc1', 'ffn_up': 'mlp.fc2'}
    c._attn_implementation = 'eager'
    m = m(c)
    names = [('patch_embed.proj.weight', torch.stack([f.get('v.patch_embd.weight'), f.get('v.patch_embd.weight.1')], 2))]
    names += both('v.post_ln', 'merger.ln_q', f) + both('mm.0', 'merger.mlp.0', f) + both('mm.2', 'merger.mlp.2', f)
    for i in range(L):
        for ours, theirs in {'ln1': 'norm1', 'ln2': 'norm2', 'attn_out': 'attn.proj', **mlp}.items():
            names += both(f'v.blk.{i}.{ours}', f'blocks.{i}.{theirs}', f)
        for s in ('weight', 'bias'):
            names.append((f'blocks.{i}.attn.qkv.{s}', torch.cat([f.get(f'v.blk.{i}.attn_{n}.{s}') for n in 'qkv'])))
    load(m, names)
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    unit = (f('vision.patch_size') * f('vision.spatial_merge_size'))**2
    proc = Qwen2VLImageProcessorPil(
        patch_size=f('vision.patch_size'), merge_size=f('vision.spatial_merge_size'), temporal_patch_size=2,
        image_mean=f('vision.image_mean'), image_std=f('vision.image_std'),
        size=dict(shortest_edge=4 * unit, longest_edge=24 * unit))
    for im in images:
        x = proc(images=[im], return_tensors='pt')
        yield m(x['pixel_values'].float(), grid_thw=x['image_grid_thw']).pooler_output


# Row of random_towers.c, function, images (width, height)
CASES = [('vision-gemma3', gemma3, [(24, 24), (61, 37)]),
         ('vision-qwen3vl', qwen3vl, [(33, 20), (90, 70)]),
         ('vision-qwen35', qwen3vl, [(16, 24), (50, 11)]),
         ('vision-gemma4', gemma4, [(61, 37), (7, 300)]),
         ('vision-gemma4-std', gemma4, [(30, 30)]), ('vision-gemma4u', gemma4u, [(90, 40)]),
         ('vision-pixtral', pixtral, [(37, 21), (10, 90)]), ('vision-pixtral12', pixtral, [(12, 21)]),
         ('vision-qwen25vl', qwen2, [(40, 24), (17, 8)]), ('vision-qwen2vl', qwen2, [(24, 32)])]
MOST = 12 # rows of an image that are recorded: the first, the last and some between


def main():
    torch.manual_seed(1)
    lines = ['/* Written by tests/scripts/gen_towers.py. Rows of images, computed by transformers %s. */'
             % transformers.__version__, '#ifndef TOWER_EXPECTED_H', '#define TOWER_EXPECTED_H', '',
             'typedef struct tower_case {', '    const char *tower;   /* row of random_towers.c */',
             '    int width, height;   /* of the image */', '    int n_tokens, n;     /* rows, values of a row */',
             '    int step;            /* rows 0, step, 2 step, .. are recorded */',
             '    const float *rows;   /* [rows recorded, n] */', '} tower_case;', '']
    table = []
    for name, run, sizes in CASES:
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, 'tower.gguf')
            subprocess.run([TOOL, path, '512', name], check=True)
            with torch.no_grad():
                for (w, h), all in zip(sizes, run(File(path), [Image.fromarray(image_of(*s)) for s in sizes])):
                    step = (all.shape[0] + MOST - 2) // (MOST - 1)
                    rows = all[::step]
                    sym = f'{name.replace("-", "_")}_{w}x{h}'
                    lines.append(f'static const float {sym}[] = {{')
                    flat = [f'{v:.6g}f' if '.' in f'{v:.6g}' or 'e' in f'{v:.6g}' else f'{v:.6g}.0f'
                            for v in rows.flatten().tolist()]
                    lines += ['    ' + ', '.join(flat[i:i + 8]) + ',' for i in range(0, len(flat), 8)] + ['};']
                    table.append(f'    {{"{name}", {w}, {h}, {all.shape[0]}, {rows.shape[1]}, {step}, {sym}}},')
                    print(name, w, h, tuple(all.shape), float(rows.abs().max()))
    lines += ['', 'static const tower_case tower_cases[] = {'] + table + ['};', '', '#endif', '']
    with open(OUT, 'w') as f:
        f.write('\n'.join(lines))


if __name__ == '__main__': main()
