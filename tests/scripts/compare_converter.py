#!/usr/bin/env python3
"""Compares the random models of gen_reference.py with the files that llama.cpp's converter writes for them.

    compare_converter.py NAME...    needs torch (CPU) and transformers; PAGEDINFER_BUILD: a build folder with
                                    tests/tool_tiny_model; LLAMA_CPP: a folder with llama.cpp's sources

For each NAME, transformers loads the weights of the random model and saves them as a checkpoint. The converter turns
the checkpoint into a GGUF file. Every tensor must have the same name, shape and values in both files. Keys that differ
are printed; they are a fault if the converter's value differs from ours. Not part of the test run."""
import json, logging, os, subprocess, sys, tempfile
from pathlib import Path

LLAMA = os.environ.get('LLAMA_CPP', '')
sys.path[:0] = [LLAMA, os.path.join(LLAMA, 'gguf-py')]

import gguf, numpy, safetensors.torch
import torch

import gen_reference
from conversion import get_model_class

IGNORED = ('general.', 'tokenizer.', 'GGUF.')
# Entries of config.json that the models' own code has and transformers does not; None = transformers' entry is left out
EXTRA = {'hunyuan-moe': {'moe_intermediate_size': [96, 96], 'moe_topk': [3, 3], 'num_shared_expert': [1, 1]},
         'cohere2': {'rotary_pct': 1.0},
         'granitehybrid': {'layer_types': ['mamba', 'attention', 'mamba']},
         'granitehybrid-dense': {'layer_types': ['mamba', 'attention', 'mamba']},
         'nemotron_h': {'hybrid_override_pattern': 'M-*M-', 'layers_block_type': None, 'num_experts_per_tok': None},
         'nemotron_h_moe': {'hybrid_override_pattern': 'ME*ME', 'layers_block_type': None},
         'nemotron_h_moe-latent': {'hybrid_override_pattern': 'ME*ME', 'layers_block_type': None},
         'nanbeige': {'architectures': ['NanbeigeForCausalLM'], 'loop_norm': None},
         'muse-glimmer': {'architectures': ['MuseGlimmerForConditionalGeneration']},
         'pangu-embedded': {'architectures': ['PanguEmbeddedForCausalLM']},
         'plamo3': {'architectures': ['Plamo3ForCausalLM'], 'window_size': 40, 'sliding_window_pattern': 3, 'sliding_window': None},
         # the converter knows the text model as a part of the vision model
         'mistral4': {'architectures': ['Mistral3ForConditionalGeneration']}}


# PLaMo's names of what the class of Gemma has, and the offset that its files add to the norm's weight
PLAMO = {'input_layernorm': ('pre_mixer_norm', 1), 'post_attention_layernorm': ('post_mixer_norm', 0.2), 'pre_feedforward_layernorm': ('pre_mlp_norm', 1),
         'post_feedforward_layernorm': ('post_mlp_norm', 5 ** -1.5), 'self_attn.q_norm': ('mixer.q_norm', 1), 'self_attn.k_norm': ('mixer.k_norm', 1),
         'self_attn.o_proj': ('mixer.o_proj', None), 'mlp.down_proj': ('mlp.down_proj', None)}


def plamo(weights):
    """Returns the weights of Gemma's class with the names and stacked matrices of PLaMo 3."""
    out = {n: weights[n] for n in ('model.embed_tokens.weight', 'model.norm.weight')}
    for n in range(1 + max(int(x.split('.')[2]) for x in weights if x.startswith('model.layers.'))):
        part, to = (lambda x: weights[f'model.layers.{n}.{x}.weight']), f'model.layers.layers.{n}.'
        for name, (own, offset) in PLAMO.items(): out[f'{to}{own}.weight'] = part(name) if offset is None else part(name) + (1 - offset)
        out[to + 'mixer.qkv_proj.weight'] = torch.cat([part(f'self_attn.{x}_proj') for x in 'qkv'])
        out[to + 'mlp.gate_up_proj.weight'] = torch.cat([part(f'mlp.{x}_proj') for x in ('gate', 'up')])
    return out


def save(name, model, folder):
    if hasattr(model, 'save_pretrained'): model.save_pretrained(folder)
    else: (Path(folder) / 'config.json').write_text(json.dumps(model.config.to_dict(), default=str))
    if hasattr(model, 'save_pretrained') and name != 'plamo3': return
    weights = plamo(model.state_dict()) if name == 'plamo3' else model.state_dict()
    safetensors.torch.save_file({n: w.contiguous() for n, w in weights.items()}, str(Path(folder) / 'model.safetensors'), {'format': 'pt'})


def convert(name, tiny, folder):
    """Writes the converter's file for the random model `tiny`, and returns its path."""
    save(name, gen_reference.load(name, tiny), folder)
    path, out = Path(folder) / 'config.json', Path(folder) / 'converted.gguf'
    config = {**json.loads(path.read_text()), **EXTRA.get(name, {})}
    for key, value in EXTRA.get(name, {}).items():
        if value is None: del config[key]
    path.write_text(json.dumps(config))
    converter = get_model_class(config['architectures'][0])
    for c in converter, getattr(converter, 'Mistral4Model', converter): c.set_vocab = lambda self: None
    raw = config if 'hybrid_override_pattern' in config else None # transformers would replace the pattern
    converter(Path(folder), gguf.LlamaFileType.ALL_F32, out, hparams=raw).write()
    return out


def tensors(reader): return {t.name: t for t in reader.tensors}
def values(t): return numpy.array(t.data, dtype=numpy.float32).ravel()
def shape(t): return [int(n) for n in t.shape if n != 1]
def keys(reader): return {k: f.contents() for k, f in reader.fields.items() if not k.startswith(IGNORED)}


def equal(name, a, b): # the converter computes ssm_a as -exp(A_log), and adds offsets to norms
    return numpy.allclose(a, b, rtol=1e-6) if name.endswith(('.ssm_a', '_norm.weight')) else numpy.array_equal(a, b)


def same(a, b): return a == b or (type(a) is type(b) and isinstance(a, (float, list)) and numpy.allclose(a, b, rtol=1e-6))


def compare(name):
    faults = []
    with tempfile.TemporaryDirectory() as d:
        tiny = os.path.join(d, 'tiny.gguf')
        subprocess.run([gen_reference.TOOL, tiny, '512', name], check=True)
        ours, theirs = gguf.GGUFReader(tiny), gguf.GGUFReader(str(convert(name, tiny, d)))
        a, b = tensors(ours), tensors(theirs)
        heads, last = [keys(ours).get(f"{ours.fields['general.architecture'].contents()}.{k}", 0) for k in ('nextn_predict_layers', 'block_count')]
        if heads: a = {n: t for n, t in a.items() if not n.startswith(f'blk.{last - 1}.')} # transformers has no draft heads
        for n in sorted({*a, *b}):
            if n not in a or n not in b: faults.append(f'{n}: only {"ours" if n in a else "the converter"} has it')
            elif shape(a[n]) != shape(b[n]) or not equal(n, values(a[n]), values(b[n])): faults.append(f'{n}: other values')
        a, b = keys(ours), keys(theirs)
        for k in sorted({*a, *b}):
            if k not in a or k not in b: print(f'{name}: {k}: only {"ours" if k in a else "the converter"} has it')
            elif k.endswith('.block_count') and a[k] == b[k] + heads: continue
            elif k.endswith('.context_length') and b[k] == 1 << 20: continue # the converter's value for Mamba
            elif not same(a[k], b[k]): faults.append(f'{k} is {a[k]}, the converter has {b[k]}')
        if ours.fields['general.architecture'].contents() != theirs.fields['general.architecture'].contents():
            faults.append('the architectures differ')
    for f in faults: print(f'{name}: {f}')
    print(f'{name}: {len(faults)} faults', flush=True)
    return len(faults)


if __name__ == '__main__':
    logging.disable(logging.WARNING)
    sys.exit(1 if sum(map(compare, sys.argv[1:])) else 0)
