#!/usr/bin/env python3
"""Images in the prompts of llama.cpp's templates: each image becomes one place, in order, for users and results of tools.

    check_image_templates.py [--tool build/tests/tool_chat_images] [--templates DIR] [--only NAME]

Each template gets a vocabulary made for it (check_prompts.py). Templates write images themselves ("typed"), or the
images are inserted at their place in the text. Exit 77: the templates or the Python package gguf are missing."""
import os, pathlib, subprocess, sys, tempfile

from check_prompts import arguments, make_vocab

# Templates of vision models, and their text for an image
TYPED = {'Qwen3.5-4B.jinja': '<|vision_start|><|image_pad|><|vision_end|>', 'google-gemma-4-31B-it.jinja': '<|image|>',
         'Mistral-Small-3.2-24B-Instruct-2506.jinja': '[IMG]', 'Kimi-K3.jinja': '<|kimi_image_placeholder|>'}


def main():
    ap = arguments('tool_chat_images')
    args = ap.parse_args()
    try:
        import gguf # noqa: F401
    except ImportError:
        print('check_image_templates: the Python package gguf is not installed')
        return 77
    files = [f for f in sorted(args.templates.glob('*.jinja')) if args.only in f.name]
    if not files:
        print(f'check_image_templates: no templates in {args.templates}')
        return 77
    typed, bad = [], 0
    with tempfile.TemporaryDirectory() as tmp:
        for f in files:
            vocab = os.path.join(tmp, f.name + '.gguf')
            make_vocab(vocab, f.read_text())
            run = subprocess.run([args.tool, vocab, f], capture_output=True, text=True, errors='replace', timeout=300)
            first = run.stdout.split('\n')[0]
            if first.startswith('typed'): typed.append(f.name)
            wanted = TYPED.get(f.name)
            if run.returncode or (wanted and first.split()[:2] != ['typed', wanted]):
                bad += 1
                print(f'{f.name}: exit status {run.returncode}\n{run.stdout[:800]}{run.stderr[:300]}')
            elif os.environ.get('PAGEDINFER_VERBOSE'): print(f'{f.name}: {first}')
    print(f'check_image_templates: {len(files)} templates, {len(typed)} write images themselves, {bad} bad')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
