#!/usr/bin/env python3
"""Writes tests/support/image_expected.h: pixels that Pillow computes, and sizes that transformers computes.

    gen_images.py     needs Pillow below 13, numpy and transformers

Pillow 13 may run the vertical pass first, which changes the last bit of some pixels: the reference are the versions with
which the models were trained. image_of is that of gen_towers.py."""
import hashlib, os

import PIL, numpy
from PIL import Image
from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size
from transformers.models.pixtral.image_processing_pil_pixtral import get_resize_output_image_size
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

assert int(PIL.__version__.split('.')[0]) < 13, 'give a Pillow below 13'
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../support/image_expected.h')
FILTERS = [Image.BILINEAR, Image.BICUBIC, Image.LANCZOS]
RESIZES = [(33, 20, 32, 16), (100, 70, 37, 90), (1, 50, 48, 3), (50, 1, 7, 48), (61, 37, 24, 24), (24, 24, 61, 37),
           (7, 7, 7, 3), (7, 7, 3, 7), (300, 3, 17, 3), (1, 1, 5, 4), (640, 11, 64, 22), (9, 8, 9, 8)]
SIZES = [(1, 1), (1, 200), (80, 48), (512, 512), (1000, 700), (640, 480), (4032, 3024), (3000, 31), (17, 3000), (65535, 65535),
         (333, 777), (144, 144), (48, 9000), (1540, 1541), (99, 2000), (336, 592)]


def image_of(w, h):
    out, s = numpy.zeros(w * h * 3, numpy.uint8), w * 65536 + h
    for i in range(w * h * 3):
        s = (s * 1103515245 + 12345) & 0x7fffffff
        c, x, y = i % 3, i // 3 % w, i // 3 // w
        out[i] = (x * 255 // max(w - 1, 1) * (c + 1) // 3 + y * (3 - c) * 40 // h + (s >> 16) % 64) % 256
    return out.reshape(h, w, 3)


def qwen(w, h):
    h, w = smart_resize(h, w, 32, 64 * 1024, 4096 * 1024)
    return w, h


def gemma(w, h, budget):
    h, w = get_aspect_ratio_preserving_size(h, w, 16, budget * 9, 3)
    return w, h


def pixtral(w, h):
    h, w = get_resize_output_image_size(numpy.zeros((3, h, w), numpy.bool_), 1540, 28, 'channels_first')
    return w, h


def sizes():
    for w, h in SIZES:
        if max(w, h) <= 200 * min(w, h):
            yield 'ALIGNED', 0, w, h, *qwen(w, h)
        for budget in (70, 280, 1120):
            yield 'FILLED', budget, w, h, *gemma(w, h, budget)
        if w < 60000:
            yield 'LONGEST', 0, w, h, *pixtral(w, h)


def main():
    lines = ['/* Written by tests/scripts/gen_images.py with Pillow and transformers. */', '#ifndef IMAGE_EXPECTED_H',
             '#define IMAGE_EXPECTED_H', '', '/* A resize by one filter, and the SHA-256 of the result. */',
             'static const struct { int w, h, to_w, to_h, filter; const char *hash; } resized[] = {']
    for w, h, to_w, to_h in RESIZES:
        for f, r in enumerate(FILTERS):
            hashed = hashlib.sha256(Image.fromarray(image_of(w, h)).resize((to_w, to_h), r).tobytes()).hexdigest()
            lines.append(f'    {{{w}, {h}, {to_w}, {to_h}, {f},\n     "{hashed}"}},')
    lines += ['};', '', '/* Sizes of images in pixels, by kind of sizing; max: tokens that are asked for, 0 = the default. */',
              'static const struct { int sizing, max, w, h, to_w, to_h; } sized[] = {']
    lines += [f'    {{PI__SIZING_{k}, {b}, {w}, {h}, {x}, {y}}},' for k, b, w, h, x, y in sizes()]
    with open(OUT, 'w') as f:
        f.write('\n'.join(lines + ['};', '', '#endif', '']))


main()
