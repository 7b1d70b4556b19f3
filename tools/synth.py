#!/usr/bin/env python3
"""Writes GGUFs with real models' shapes and random weights, for benchmarks without the models.

    tools/synth.py SHAPE TYPE OUT.gguf [--layers N] [--vocab FILE.gguf] [--seed N]
    tools/synth.py --list

SHAPE is a name from --list. TYPE is one of f32, f16, bf16, q4_0, q8_0, q4_k, q6_k, iq4_xs, mxfp4, nvfp4, or one of the
mixtures q4_k_m and q5_k_m, which give some matrices more bits as llama.cpp's quantize does. If a row is no multiple of
a type's block, another type is used, also as there. --layers writes fewer layers, in their order.

Every block has random values and one scale, so that a row's standard deviation is about 1 over the root of its length.
Speed and memory equal the real model's; logits are finite but meaningless. The vocabulary is made up (bytes, and words
that occur in no text), or copied from --vocab with its size.

Shapes with -mmproj in their names are vision models, which have files of their own.

Any engine that supports the architecture can load the file. Needs as much disk as the model, and little memory.
Standard library only.
"""
import argparse
import math
import os
import random
import struct
import sys
from pathlib import Path

from shapes import (BF16, F16, F32, I32, IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q4_0, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, BLOCK, SHAPES, TOWERS, size_of,
                    tensors_of, write_model)

TYPES = {"f32": F32, "f16": F16, "bf16": BF16, "q4_0": Q4_0, "q8_0": Q8_0, "q4_k": Q4_K, "q6_k": Q6_K, "iq4_xs": IQ4_XS,
         "mxfp4": MXFP4, "nvfp4": NVFP4}
FILE_TYPE = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7, "q4_k": 14, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18, "iq4_xs": 30, "bf16": 32}
MIXTURES = {"q4_k_m": Q4_K, "q5_k_m": Q5_K}  # some matrices are Q6_K instead
# types for rows that are no multiple of the block
NARROW = {Q4_K: Q5_0, Q5_K: Q5_0, Q6_K: Q8_0, IQ4_XS: IQ4_NL, NVFP4: Q8_0, MXFP4: Q8_0}
CHUNK = 1 << 13  # blocks written in one piece


# ---- types

def more_bits(i, n):
    """True if layer i of n has Q6_K values and down matrices in a mixture."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def type_of(wanted, name, dims, n_layers):
    """Returns the type of a matrix for the requested TYPE."""
    kind = TYPES.get(wanted, MIXTURES.get(wanted))
    ends = name in ("token_embd.weight", "output.weight")
    if ends and kind in (MXFP4, NVFP4):
        kind = Q8_0
    elif ends and (wanted in MIXTURES or kind in (Q4_K, IQ4_XS, Q4_0)):
        kind = Q6_K
    elif wanted in MIXTURES and ("attn_v." in name or "ffn_down" in name) and more_bits(int(name.split(".")[1]), n_layers):
        kind = Q6_K
    while dims[0] % BLOCK[kind][0]:
        kind = NARROW[kind] if kind in NARROW else F16
    return kind


def half(x): return struct.pack("<e", x)


def sign_and(high, keep):
    """Returns a byte table that keeps the sign bit and the bits of `keep` random, and sets the bits of `high`."""
    return bytes((b & (0x80 | keep)) | high for b in range(256))


def exponent(std, bias):
    """Returns a biased exponent for values of about size std."""
    return bias + math.floor(math.log2(std))


def ue4m3(x):
    """Returns an unsigned 8-bit float near x, at least 2^-9."""
    return max(1, round(x * 512)) if x < 2 ** -6 else exponent(x, 7) << 3


def fixed_bytes(kind, std):
    """Returns [(offset in a block, byte or 256-byte table)] of the bytes that are not fully random. All levels are
    equally likely."""
    const = lambda at, data: [(at + i, b) for i, b in enumerate(data)]
    if kind == F32:
        e = exponent(std, 127)
        return [(3, sign_and(e >> 1, 0)), (2, bytes(b & 0x7f | (e & 1) << 7 for b in range(256)))]
    if kind == BF16:
        e = exponent(std, 127)
        return [(1, sign_and(e >> 1, 0)), (0, bytes(b & 0x7f | (e & 1) << 7 for b in range(256)))]
    if kind == F16:
        return [(1, sign_and(max(1, exponent(std, 15)) << 2, 3))]
    if kind == Q8_0:
        return const(0, half(std / 73.9))
    if kind == Q4_0:
        return const(0, half(std / 4.64))
    if kind == Q5_0:
        return const(0, half(std / 9.24))
    # A scale of 32 and a minimum of 32 for all eight parts, packed as the format requires (4 and 6 bits each).
    if kind in (Q4_K, Q5_K):
        levels = 15 if kind == Q4_K else 31
        deviation = 4.61 if kind == Q4_K else 9.23
        d = std / deviation / 32
        return const(0, half(d)) + const(2, half(d * levels / 2)) + const(4, b"\xa0" * 8 + b"\0" * 4)
    if kind == Q6_K:
        return const(192, b"\x20" * 16) + const(208, half(std / 18.5 / 32))
    if kind == IQ4_NL:
        return const(0, half(std / 69))
    if kind == IQ4_XS:  # 6-bit scales with an offset of 32; all are 48, which gives 16
        return const(0, half(std / 69 / 16)) + const(2, b"\xff\xff") + const(4, b"\0" * 4)
    if kind == MXFP4:
        return const(0, bytes([exponent(std / 2.9, 127)]))
    if kind == NVFP4:
        return const(0, bytes([ue4m3(std / 2.9)]) * 4)
    raise ValueError(kind)


def write_random(f, kind, dims, rng, std):
    values, size = BLOCK[kind]
    left, fixed = size_of(kind, dims) // size, fixed_bytes(kind, std)
    while left:
        n = min(left, CHUNK)
        data = bytearray(rng.randbytes(n * size))
        for at, what in fixed:
            data[at::size] = bytes([what]) * n if isinstance(what, int) else data[at::size].translate(what)
        f.write(data)
        left -= n


def fill(rng, model):
    def one(f, name, kind, dims):
        if kind == I32:
            top = model["experts"] or 1
            f.write(struct.pack(f"<{dims[0] * dims[1]}i", *(rng.randrange(top) for _ in range(dims[0] * dims[1]))))
        elif len(dims) == 1 or dims[0] == 1 or "norm" in name:  # norms, biases and similar vectors
            f.write(struct.pack("<f", -0.1 if name.endswith("ssm_a") else 0.1 if "bias" in name else 1.0) * math.prod(dims))
        else:
            write_random(f, kind, dims, rng, dims[0] ** -0.5)
    return one


# ---- vocabularies

# Control tokens around images; every made-up vocabulary has them.
IMAGE_TOKENS = ["<start_of_image>", "<end_of_image>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]


def made_up(n):
    """Returns the keys of a byte-level BPE vocabulary of n tokens."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, other = {b: chr(b) for b in visible}, 256
    for b in range(256):
        if b not in letters:
            letters[b] = chr(other)
            other += 1
    tokens = [letters[b] for b in range(256)] + ["<|endoftext|>", letters[32] + "t", *IMAGE_TOKENS]
    tokens += [f"w{i:06d}" for i in range(n - len(tokens))]
    kinds = [1] * n
    for i in (256, *range(258, 258 + len(IMAGE_TOKENS))):
        kinds[i] = 3
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": [letters[32] + " t"], "tokenizer.ggml.eos_token_id": 256,
            "tokenizer.ggml.bos_token_id": 256, "tokenizer.ggml.add_bos_token": False}


SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # GGUF scalar value types: bytes


def vocabulary_of(path):
    """Returns (tokenizer keys with their encoded values, number of tokens)."""
    with open(path, "rb") as f:
        number = lambda form: struct.unpack("<" + form, f.read(struct.calcsize("<" + form)))[0]
        if f.read(4) != b"GGUF" or number("I") not in (2, 3):
            sys.exit(f"{path}: not a GGUF of version 2 or 3")

        def skip(kind):
            if kind == 8:
                f.seek(number("Q"), os.SEEK_CUR)
            elif kind == 9:
                inner, n = number("I"), number("Q")
                if inner in SCALARS:
                    f.seek(SCALARS[inner] * n, os.SEEK_CUR)
                else:
                    for _ in range(n):
                        skip(inner)
            else:
                f.seek(SCALARS[kind], os.SEEK_CUR)

        number("Q")
        keys, n_tokens = {}, 0
        for _ in range(number("Q")):
            key = f.read(number("Q")).decode()
            start = f.tell()
            skip(number("I"))
            end = f.tell()
            if not key.startswith("tokenizer."):
                continue
            f.seek(start)
            keys[key] = f.read(end - start)
            if key == "tokenizer.ggml.tokens":
                n_tokens = struct.unpack_from("<Q", keys[key], 8)[0]
    if not n_tokens:
        sys.exit(f"{path}: has no tokenizer.ggml.tokens")
    return keys, n_tokens


# ---- the tool

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = {**SHAPES, **TOWERS}
    p.add_argument("shape", nargs="?", choices=shapes, metavar="SHAPE")
    p.add_argument("type", nargs="?", choices=[*TYPES, *MIXTURES], metavar="TYPE")
    p.add_argument("out", nargs="?", type=Path, metavar="OUT.gguf")
    p.add_argument("--layers", type=int)
    p.add_argument("--vocab", type=Path)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--list", action="store_true", help="list shapes with their layers and billions of weights")
    a = p.parse_args()
    if a.list:
        for name, shape in shapes.items():
            model = shape(F32)
            kinds = [k for k, n in model["layers"].items() for _ in range(n)]
            print(f"{name:20} {len(kinds):3} layers {sum(size_of(F32, d) for _, t, d in tensors_of(model, kinds, F32) if t == F32) / 4e9:7.2f} B")
        return
    if not a.out:
        p.error("give SHAPE, TYPE and OUT.gguf; --list lists shapes")
    model = shapes[a.shape](None)
    n = a.layers or sum(model["layers"].values())
    kinds = [model["order"][i % len(model["order"])] for i in range(n)]
    keys = {"general.name": f"{a.shape} with random weights"}
    if a.type in FILE_TYPE:
        keys["general.file_type"] = FILE_TYPE[a.type]
    if a.shape in TOWERS:
        more = {}
    elif a.vocab:
        more, model["vocab"] = vocabulary_of(a.vocab)
    else:
        more = made_up(model["vocab"])
    tensors = [(name, type_of(a.type, name, dims, n) if t is None else t, dims) for name, t, dims in tensors_of(model, kinds, None)]
    write_model(a.out, model, kinds, tensors, fill(random.Random(a.seed), model), {**keys, **more})


main()
