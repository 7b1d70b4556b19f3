#!/usr/bin/env python3
"""Compares the block readers with the reference package on random blocks. Where the writers must agree, they are
compared bit for bit.

usage: check_formats.py [SEED]     PAGEDINFER_BUILD: build folder with tests/tool_formats (default: build); needs gguf
"""
import os
import subprocess
import sys

try:
    import numpy as np
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
except ImportError as missing:
    print(f"the Python package {missing.name} is not there")
    sys.exit(77)

from gen_formats import TYPES

TOOL = os.path.join(os.environ.get("PAGEDINFER_BUILD", "build"), "tests", "tool_formats")
N_BLOCKS = 20000
EXACT_WRITERS = "F32 F16 BF16 Q8_0".split()


def run(args, data):
    return subprocess.run([TOOL, *args], input=data.tobytes(), stdout=subprocess.PIPE, check=True).stdout


def same_floats(got, want):
    if got.shape != want.shape:
        return False
    nan = np.isnan(want)
    return np.isnan(got[nan]).all() and (got.view(np.uint32)[~nan] == want.view(np.uint32)[~nan]).all()


def check_reader(rng, name):
    kind = GGMLQuantizationType[name]
    blocks = rng.integers(0, 256, (N_BLOCKS, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    want = quants.dequantize(blocks, kind).ravel()
    return same_floats(np.frombuffer(run([name], blocks), dtype=np.float32), want)


def check_writer(rng, name):
    kind = GGMLQuantizationType[name]
    values = (rng.standard_normal((N_BLOCKS, 32)) * 10.0 ** rng.uniform(-4, 3, (N_BLOCKS, 1))).astype(np.float32)
    return run(["-w", name], values) == quants.quantize(values, kind).tobytes()


def main():
    np.seterr(all="ignore")
    rng = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    bad = [name for name in TYPES if not check_reader(rng, name)]
    bad += ["writing " + name for name in EXACT_WRITERS if not check_writer(rng, name)]
    total = len(TYPES) + len(EXACT_WRITERS)
    print(f"check_formats: {total - len(bad)} of {total} agree" + (", not: " + ", ".join(bad) if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
