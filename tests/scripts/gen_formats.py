#!/usr/bin/env python3
"""Writes formats_expected.h: hashes of the values that the reference package (pip install gguf) reads from
pseudo-random blocks.

usage: python3 tests/scripts/gen_formats.py > tests/support/formats_expected.h

For each format a linear congruential generator, seeded with the type's number, makes the bytes of N_BLOCKS blocks. The
hash is FNV-1a (64 bits) over the bits of the floats, with every NaN counted as 0x7fc00000. test_formats.c does the
same.
"""
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

N_BLOCKS = 200
TYPES = ("F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S "
         "IQ3_XXS IQ3_S IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4 NVFP4").split()
MASK = (1 << 64) - 1


def random_bytes(seed, n):
    out = bytearray()
    for _ in range(n):
        seed = (seed * 6364136223846793005 + 1442695040888963407) & MASK
        out.append(seed >> 56)
    return np.frombuffer(bytes(out), dtype=np.uint8)


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & MASK
    return h


def main():
    np.seterr(all="ignore")
    print("/* Written by gen_formats.py: hashes of the values that the reference package reads. */")
    print("#include <stdint.h>\n")
    print(f"#define EXPECTED_N_BLOCKS {N_BLOCKS}")
    print("static const struct {\n    int32_t type;\n    const char *name;\n    uint32_t blck_size, type_size;")
    print("    uint64_t hash;\n} expected[] = {")
    for name in TYPES:
        kind = GGMLQuantizationType[name]
        blck_size, type_size = GGML_QUANT_SIZES[kind]
        values = quants.dequantize(random_bytes(int(kind), N_BLOCKS * type_size).reshape(1, -1), kind)
        bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32)).astype("<u4")
        print(f'    {{{int(kind)}, "{name}", {blck_size}, {type_size}, 0x{fnv1a(bits.tobytes()):016x}u}},')
    print("};")


if __name__ == "__main__":
    main()
