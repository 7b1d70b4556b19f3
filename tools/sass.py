"""Counts the instructions of kernels' main loops, by class, from the disassembly of a cubin.

A backward branch closes a loop. If loops have tensor-core instructions, the main loop is the one with most of them,
among the innermost of these. (Small loops inside, which issue copies lane by lane, count as part of it.) Otherwise
the main loop is the innermost loop that moves most data. A kernel without loops counts completely. Needs nvdisasm:
NVDISASM, PATH, /usr/local/cuda/bin, or the PyPI package nvidia-cuda-nvdisasm in this Python.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CLASSES = ("mma", "shared", "global", "float", "branch", "other")
PREFIXES = {
    "mma": ("IMMA", "HMMA", "HGMMA", "QMMA", "OMMA", "DMMA", "BMMA"),
    "shared": ("LDSM", "LDS", "STS", "ATOMS"),
    "global": ("LDGSTS", "LDG", "STG", "UBLKCP", "ATOMG", "RED", "LD.", "ST."),
    "branch": ("BRA", "BRX", "BSSY", "BSYNC", "BREAK", "BAR", "WARPSYNC", "EXIT", "CALL", "RET", "SYNCS", "DEPBAR", "LDGDEPBAR"),
    "float": ("FADD", "FMUL", "FFMA", "FMNMX", "FSET", "FSEL", "FSWZ", "MUFU", "F2", "I2F", "HADD", "HMUL", "HFMA", "HMNMX", "HSET",
              "DADD", "DMUL", "DFMA", "DSET", "FCHK"),
}


def find_nvdisasm():
    """Returns the path of nvdisasm, or None."""
    places = [os.environ.get("NVDISASM"), shutil.which("nvdisasm"), "/usr/local/cuda/bin/nvdisasm"]
    places += [str(f) for p in sys.path if p for f in Path(p).glob("nvidia/*/bin/nvdisasm")]
    return next((p for p in places if p and os.access(p, os.X_OK)), None)


def class_of(opcode):
    return next((c for c, prefixes in PREFIXES.items() if opcode.startswith(prefixes)), "other")


def count(opcodes):
    out = dict.fromkeys(CLASSES, 0)
    for o in opcodes:
        out[class_of(o)] += 1
    return out


def main_loop(code, labels):
    """Returns {class: instructions} of the main loop. code is [(opcode, branch target or None)]; labels is {name:
    index}."""
    loops = sorted({(labels[to], i) for i, (o, to) in enumerate(code) if to in labels and labels[to] < i})
    innermost = lambda some: [(a, b) for a, b in some if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in some)]
    counts_of = lambda some: [count(o for o, _ in code[a:b + 1]) for a, b in some]
    # The compiler places the slow path of waits after a kernel's EXIT. A branch back from there closes no loop.
    ends = [i for i, (o, _) in enumerate(code) if o == "EXIT"]
    loops = [(x, y) for x, y in loops if not any(x <= i <= y for i in ends)] or loops
    with_mma = [loop for loop, c in zip(loops, counts_of(loops)) if c["mma"]]
    if with_mma:
        return max(counts_of(innermost(with_mma)), key=lambda c: c["mma"])
    counts = counts_of(innermost(loops))
    moving = [c for c in counts if c["shared"] + c["global"]]
    return max(moving, key=lambda c: c["shared"] + c["global"]) if moving else count(o for o, _ in code)


def loops_of(nvdisasm, cubin):
    """Returns {mangled kernel: {class: instructions}} of a cubin."""
    text = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    found = {}
    for part in re.split(r"^\.text\.", text, flags=re.M)[1:]:
        name, code, labels = re.match(r"[\w$.]+", part)[0], [], {}
        for line in part.splitlines()[1:]:
            if m := re.match(r"\s*(\.L_x?_?\d+):", line):
                labels[m[1]] = len(code)
            elif m := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)", line):
                to = re.search(r"`\((\.L_x?_?\d+)\)", m[2])
                if m[1] != "NOP":
                    code.append((m[1], to[1] if to and m[1].startswith("BRA") else None))
            elif line.startswith("//-----"):
                break
        found[name] = main_loop(code, labels)
    return found


def cell(counts):
    total = sum(counts.values())
    return f"{total}: " + ", ".join(f"{n} {c}" for c, n in counts.items() if n)
