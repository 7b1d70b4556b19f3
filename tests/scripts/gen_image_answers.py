#!/usr/bin/env python3
"""Writes tests/golden/image_answers.json: logits after prompts with images, from pixels to the last position.

    gen_image_answers.py [KIND...]     needs torch (CPU), transformers, Pillow below 13 and gguf; PAGEDINFER_BUILD: a build folder
                             with tests/tool_tiny_model

transformers resizes the image, runs the vision model (gen_towers.py) and the text model (gen_image_prompts.py), all with
the weights of tool_tiny_model. check_images.py compares the library's logits. The image is image_of of gen_towers.py."""
import json, os, subprocess, sys, tempfile

import gguf, torch
from PIL import Image

import gen_image_prompts as prompts
import gen_towers as towers

OUT = os.path.join(prompts.HERE, '../golden/image_answers.json')
NEW_LINES = [14, 14] # "\n\n" in the SentencePiece vocabulary of the small models
# text model, vision model, its sizes, its function, budget, ids around an image, images
KINDS = {
    'gemma3': ('gemma3', 'vision-gemma3', None, towers.gemma3, (0, 0), NEW_LINES, [(40, 30), (21, 57)]),
    'qwen35': ('qwen35', 'vision-qwen35', None, towers.qwen3vl, (4, 24), [], [(40, 30), (61, 37)]),
    'qwen3vl': ('qwen3vl', 'vision-qwen3vl', 'O=96', towers.qwen3vl, (4, 24), [], [(40, 30), (9, 50)]),
    'gemma4': ('gemma4-vision', 'vision-gemma4', None, towers.gemma4, (0, 70), [], [(40, 30), (50, 31)]),
    'qwen25vl': ('qwen2vl', 'vision-qwen25vl', 'O=128', towers.qwen2, (4, 24), [], [(40, 30), (61, 37)]),
    'pixtral': ('mistral3', 'vision-pixtral', 'O=96', towers.pixtral, (0, 0), [], [(40, 30), (21, 57)]),
}


def answer(kind, d):
    arch, vision, sizes, rows_of, budget, around, images = KINDS[kind]
    text, mmproj = os.path.join(d, 'text.gguf'), os.path.join(d, 'vision.gguf')
    subprocess.run([prompts.TOOL, text, '2048', arch, *(['0', 'F16'] if kind == 'qwen35' else [])], check=True)
    subprocess.run([prompts.TOOL, mmproj, '512', vision, *(['0', 'F32', sizes] if sizes else [])], check=True)
    model, f = prompts.load(arch, text), towers.File(mmproj)
    types = gguf.GGUFReader(text).fields['tokenizer.ggml.token_type'].contents()
    begin, soft, end = [i for i, t in enumerate(types) if t == 1][-3:]
    p = type('Prompt', (), {'ids': [], 'image': [], 'rows': [], 'grid': [], 'positions': prompts.Prompt.positions})()
    ids = []
    def add(tokens, image=-1):
        p.ids += tokens
        p.image += [image] * len(tokens)
    with torch.no_grad():
        all_rows = list(rows_of(f, [Image.fromarray(towers.image_of(*s)) for s in images]))
    for k, ((w, h), rows) in enumerate(zip(images, all_rows)):
        before = [40 + 7 * k + i for i in range(6 + 5 * k)]
        ids += [*before, -1 - k]
        add(before + around + ([] if kind == 'pixtral' else [begin]))
        add([soft] * len(rows), k)
        add([end] + around)
        p.rows.append(rows)
        p.grid.append(grid_of(f, kind, (w, h), len(rows)))
    last = [60, 61, 62, 90]
    ids += last
    add(last)
    model.answer = []
    logits = prompts.run(model, p, [], '')[-1]
    return {'images': images, 'budget': budget, 'ids': ids, 'n_prompt': len(p.ids), 'logits': [float(f'{x:.6g}') for x in logits]}


def grid_of(f, kind, size, n):
    """Rows and columns of tokens."""
    if kind.startswith('gemma') or kind == 'pixtral': return 1, n # positions are plain
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
    unit = f('vision.patch_size') * f('vision.spatial_merge_size')
    h, w = smart_resize(size[1], size[0], factor=unit, min_pixels=4 * unit**2, max_pixels=24 * unit**2)
    assert h // unit * (w // unit) == n, (h, w, n)
    return h // unit, w // unit


def main():
    torch.set_num_threads(1)
    out = {}
    if sys.argv[1:]: # keeps the others
        with open(OUT) as f: out = json.load(f)
    for kind in sys.argv[1:] or KINDS:
        with tempfile.TemporaryDirectory() as d: out[kind] = answer(kind, d)
        print(kind, out[kind]['n_prompt'], max(out[kind]['logits']))
    with open(OUT, 'w') as f: f.write('{\n' + ',\n'.join(f' "{k}": {json.dumps(v)}' for k, v in out.items()) + '\n}\n')


main()
