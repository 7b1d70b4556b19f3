#!/usr/bin/env python3
"""Writes GGUFs of real models' shapes with random weights, for benchmarks without the models.

    tools/synth.py SHAPE TYPE OUT.gguf [--layers N] [--vocab FILE.gguf] [--seed N]
    tools/synth.py --list

SHAPE is a name of --list; TYPE one of f32, f16, bf16, q4_0, q8_0, q4_k, q6_k, iq4_xs, mxfp4, nvfp4, or one of the mixtures q4_k_m and
q5_k_m, which give some matrices more bits as llama.cpp's quantize does. Where a row is no multiple of a type's block another type is
taken, as there. --layers writes fewer of them, in their order. Every block has random values and one scale, so that a row's
standard deviation is about 1 over the root of its length: speeds and memory are those of the real model, logits are finite and mean
nothing. The vocabulary is made up (bytes, and words that no text has), or that of another file, whose size it then has.

Any engine that reads the architecture can load the file. Needs as much disk as the model, and little memory. Standard library only.
"""
import argparse
import math
import os
import random
import struct
import sys
from pathlib import Path

from shapes import (BF16, F16, F32, I32, IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q4_0, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, BLOCK, SHAPES, size_of,
                    tensors_of, write_model)

TYPES = {"f32": F32, "f16": F16, "bf16": BF16, "q4_0": Q4_0, "q8_0": Q8_0, "q4_k": Q4_K, "q6_k": Q6_K, "iq4_xs": IQ4_XS,
         "mxfp4": MXFP4, "nvfp4": NVFP4}
FILE_TYPE = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7, "q4_k": 14, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18, "iq4_xs": 30, "bf16": 32}
MIXTURES = {"q4_k_m": Q4_K, "q5_k_m": Q5_K}  # with Q6_K for some
NARROW = {Q4_K: Q5_0, Q5_K: Q5_0, Q6_K: Q8_0, IQ4_XS: IQ4_NL, NVFP4: Q8_0, MXFP4: Q8_0}  # where rows do not fit
CHUNK = 1 << 13  # blocks at a time


# ---- types

def more_bits(i, n):
    """Layers whose values and down matrices are Q6_K in a mixture."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def type_of(wanted, name, dims, n_layers):
    """The type of a matrix whose type is open."""
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
    """For bytes with a sign: the sign and the low bits in keep are random, the others are high's."""
    return bytes((b & (0x80 | keep)) | high for b in range(256))


def exponent(std, bias):
    """A biased exponent for values of about this size."""
    return bias + math.floor(math.log2(std))


def ue4m3(x):
    """An 8-bit float without a sign, 2^-9 at least, near x."""
    return max(1, round(x * 512)) if x < 2 ** -6 else exponent(x, 7) << 3


def fixed_bytes(kind, std):
    """[(offset in a block, byte or table of 256)]: what is not random there. Levels are evenly likely."""
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
    if kind in (Q4_K, Q5_K):  # scales and minima of 32 in all eight parts: 4 and 6 bits of each are where the format wants them
        levels = 15 if kind == Q4_K else 31
        deviation = 4.61 if kind == Q4_K else 9.23
        d = std / deviation / 32
        return const(0, half(d)) + const(2, half(d * levels / 2)) + const(4, b"\xa0" * 8 + b"\0" * 4)
    if kind == Q6_K:
        return const(192, b"\x20" * 16) + const(208, half(std / 18.5 / 32))
    if kind == IQ4_NL:
        return const(0, half(std / 69))
    if kind == IQ4_XS:  # scales of 48, of which 32 are taken: 6 bits
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
        elif len(dims) == 1:  # norms, biases and their like
            f.write(struct.pack("<f", -0.1 if name.endswith("ssm_a") else 0.1 if "bias" in name else 1.0) * dims[0])
        else:
            write_random(f, kind, dims, rng, dims[0] ** -0.5)
    return one


# ---- vocabularies

def made_up(n):
    """Keys of a byte-level BPE vocabulary of n tokens."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, other = {b: chr(b) for b in visible}, 256
    for b in range(256):
        if b not in letters:
            letters[b] = chr(other)
            other += 1
    tokens = [letters[b] for b in range(256)] + ["<|endoftext|>", letters[32] + "t"]
    tokens += [f"w{i:06d}" for i in range(n - len(tokens))]
    kinds = [1] * n
    kinds[256] = 3
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": [letters[32] + " t"], "tokenizer.ggml.eos_token_id": 256,
            "tokenizer.ggml.bos_token_id": 256, "tokenizer.ggml.add_bos_token": False}


SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of GGUF's types of values


def vocabulary_of(path):
    """(keys as they are in the file, number of tokens)."""
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
    p.add_argument("shape", nargs="?", choices=SHAPES, metavar="SHAPE")
    p.add_argument("type", nargs="?", choices=[*TYPES, *MIXTURES], metavar="TYPE")
    p.add_argument("out", nargs="?", type=Path, metavar="OUT.gguf")
    p.add_argument("--layers", type=int)
    p.add_argument("--vocab", type=Path)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--list", action="store_true", help="names of shapes, with layers and billions of weights")
    a = p.parse_args()
    if a.list:
        for name, shape in SHAPES.items():
            model = shape(F32)
            kinds = [k for k, n in model["layers"].items() for _ in range(n)]
            print(f"{name:20} {len(kinds):3} layers {sum(size_of(F32, d) for _, t, d in tensors_of(model, kinds, F32) if t == F32) / 4e9:7.2f} B")
        return
    if not a.out:
        p.error("SHAPE, TYPE and OUT.gguf are needed; --list names shapes")
    model = SHAPES[a.shape](None)
    n = a.layers or sum(model["layers"].values())
    kinds = [model["order"][i % len(model["order"])] for i in range(n)]
    keys = {"general.name": f"{a.shape} with random weights"}
    if a.type in FILE_TYPE:
        keys["general.file_type"] = FILE_TYPE[a.type]
    if a.vocab:
        more, model["vocab"] = vocabulary_of(a.vocab)
    else:
        more = made_up(model["vocab"])
    tensors = [(name, type_of(a.type, name, dims, n) if t is None else t, dims) for name, t, dims in tensors_of(model, kinds, None)]
    write_model(a.out, model, kinds, tensors, fill(random.Random(a.seed), model), {**keys, **more})


main()
