#!/usr/bin/env python3
"""Writes iq_codes.h: the codebooks of the IQ formats, taken from the reference package (pip install gguf).

usage: python3 src/formats/gen_iq_tables.py > src/formats/iq_codes.h
"""
from gguf import quants

HEAD = """/* Codebooks of the IQ formats as lists of numbers, for tables of hosts and devices (see iq_tables.h). Written by
 * gen_iq_tables.py. */
#ifndef PI__IQ_CODES_H
#define PI__IQ_CODES_H
"""

TABLES = (("pi__iq2xxs_codes", quants.IQ2_XXS, 2), ("pi__iq2xs_codes", quants.IQ2_XS, 2), ("pi__iq2s_codes", quants.IQ2_S, 2),
          ("pi__iq3xxs_codes", quants.IQ3_XXS, 4), ("pi__iq3s_codes", quants.IQ3_S, 4), ("pi__iq1_codes", quants.IQ1_S, 2))


def pack(cls, bits):
    """Packs each point of the grid: the indices of its values in the level table, `bits` each, the first one lowest."""
    cls.init_grid()
    level = {float(v): i for i, v in enumerate(cls.grid_map)}
    return [sum(level[float(v)] << bits * i for i, v in enumerate(point)) for point in cls.grid.reshape(cls.grid_shape)]


print(HEAD, end="")
for name, cls, bits in TABLES:
    codes = pack(cls, bits)
    rows = [", ".join(f"0x{c:04x}" for c in codes[i:i + 14]) for i in range(0, len(codes), 14)]
    print(f"\n#define {name.upper()} \\\n    " + ", \\\n    ".join(rows))
print("\n#endif")
