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

import gguf, numpy
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
         # the converter knows the text model as a part of the vision model
         'mistral4': {'architectures': ['Mistral3ForConditionalGeneration']}}


def convert(name, tiny, folder):
    """Writes the converter's file for the random model `tiny`, and returns its path."""
    gen_reference.load(name, tiny).save_pretrained(folder)
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


def equal(name, a, b): # the converter computes ssm_a as -exp(A_log)
    return numpy.allclose(a, b, rtol=1e-6) if name.endswith('.ssm_a') else numpy.array_equal(a, b)


def same(a, b): return a == b or (type(a) is type(b) and isinstance(a, (float, list)) and numpy.allclose(a, b, rtol=1e-6))


def compare(name):
    faults = []
    with tempfile.TemporaryDirectory() as d:
        tiny = os.path.join(d, 'tiny.gguf')
        subprocess.run([gen_reference.TOOL, tiny, '512', name], check=True)
        ours, theirs = gguf.GGUFReader(tiny), gguf.GGUFReader(str(convert(name, tiny, d)))
        a, b = tensors(ours), tensors(theirs)
        for n in sorted({*a, *b}):
            if n not in a or n not in b: faults.append(f'{n}: only {"ours" if n in a else "the converter"} has it')
            elif shape(a[n]) != shape(b[n]) or not equal(n, values(a[n]), values(b[n])): faults.append(f'{n}: other values')
        a, b = keys(ours), keys(theirs)
        for k in sorted({*a, *b}):
            if k not in a or k not in b: print(f'{name}: {k}: only {"ours" if k in a else "the converter"} has it')
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
