#!/usr/bin/env python3
"""Counts the instructions that op linear executes on AArch64, by weight type, instruction set and activation width.
qemu-user counts them with a plugin (tests/support/qemu_count.c). Prints the table of docs/perf/cpu_isa.md.

    python3 tests/scripts/arm_counts.py BUILD [TYPE ...]

BUILD: a Release build for aarch64 with tests (cmake --preset cross-aarch64). Needs a C compiler and qemu-aarch64.

Numbers are kernel instructions per product of a weight and an activation, including unpacking and rounding. With few
rows most of them are unpacking."""
import os
import re
import subprocess
import sys
import tempfile

N_IN, N_OUT = 1024, 256
ROWS = (1, 4, 64)
SETS = (("neon", "max"), ("i8mm", "max"), ("sve256", "max,sve-max-vq=2"))
TYPES = ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "Q2_K", "IQ4_XS", "MXFP4")
# Functions that are counted: kernels by type and kind, and rounding.
OURS = re.compile(r"^(mul_|direct_|unpack_|input_|rms_factor|pi__lin_decode_rows)")


def count(build, plugin, isa, cpu, bits, kind, rows):
    program = os.path.join(build, "tests", "tool_linear_once")
    out = subprocess.run(["qemu-aarch64", "-cpu", cpu, "-plugin", plugin, "-d", "plugin", program, isa, str(bits), kind,
                          str(N_IN), str(N_OUT), str(rows)], capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{isa}, {kind}: {out.stderr.strip()}")
    total = 0
    for line in out.stderr.splitlines():
        m = re.match(r"(\d+) (\S+)$", line)
        if m and OURS.match(m.group(2)):
            total += int(m.group(1))
    return total / (N_IN * N_OUT * rows)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build, types = sys.argv[1], sys.argv[2:] or TYPES
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as folder:
        plugin = os.path.join(folder, "qemu_count.so")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-o", plugin,
                        os.path.join(here, "..", "support", "qemu_count.c")], check=True)
        names = [f"{isa}, {n}" for n in ROWS for isa, _ in SETS]
        print("| type, bits | " + " | ".join(names) + " |")
        print("|---" * (len(names) + 1) + "|")
        for kind in types:
            for bits in (15, 8):
                cells = [f"{count(build, plugin, isa, cpu, bits, kind, n):.3f}" for n in ROWS for isa, cpu in SETS]
                print(f"| {kind}, {bits} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
