"""Reads the disassembly of a cubin: counts the instructions of kernels' main loops by class, and checks the code
around arrivals.

A backward branch closes a loop. If loops have tensor-core instructions, the main loop is the one with most of them,
among the innermost of these. (Small loops inside, which issue copies lane by lane, count as part of it.) Otherwise
the main loop is the innermost loop that moves most data. A kernel without loops counts completely.

Blocks that wait for other blocks (kernels/tail.cuh) read results that other multiprocessors wrote during the launch.
The caches of a multiprocessor are not coherent, so faults_of() checks for each function that polls a counter, that a
shared epilogue consists of, or that calls one after its own arrival (do_share, do_input_share):

  - no load is through the read-only path (LDG.CONSTANT, LD.CONSTANT): it may return bytes from before the launch
  - an arrival is MEMBAR (GPU), then an atomic addition, then CCTL.IVALL, which drops the first-level cache
  - a poll of the counter is followed by CCTL.IVALL

No main loop of a kernel may access local memory (STL, LDL): that is a spill, or an array that is not in registers.

Needs nvdisasm: NVDISASM, PATH, /usr/local/cuda/bin, or the PyPI package nvidia-cuda-nvdisasm in this Python.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CLASSES = ("mma", "shared", "global", "local", "float", "branch", "other")
PREFIXES = {
    "mma": ("IMMA", "HMMA", "HGMMA", "QMMA", "OMMA", "DMMA", "BMMA"),
    "shared": ("LDSM", "LDS", "STS", "ATOMS"),
    "global": ("LDGSTS", "LDG", "STG", "UBLKCP", "ATOMG", "RED", "LD.", "ST."),
    "local": ("LDL", "STL"),
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


# The epilogues that kernels share (PI_SHARED in kernels/tail.cuh). Files that define one have only epilogue code.
SHARED = ("run_tail", "do_share", "run_input_tail", "do_input_share")
SHARED_NAME = re.compile("|".join(f"_Z{len(n)}{n}RK10pi__k_tail" for n in SHARED))
AFTER_ARRIVAL = re.compile("|".join(f"_Z{len(n)}{n}RK10pi__k_tail" for n in SHARED if n.startswith("do_")))
# Kernels whose main loop may access local memory, with the reason.
# rope: cosf() of large angles has an array of digits; embed: decodes a block of 32 values into an array.
LOCAL = re.compile(r"4rows4rope|6linear5embed")
POLL = re.compile(r"LDG?\.E(\.\w+)*\.STRONG\.GPU")
ARRIVAL = re.compile(r"ATOMG?\.E\.ADD(\.\w+)*\.STRONG\.GPU")
FENCE = re.compile(r"MEMBAR\.(ALL|SC)(\.\w+)*\.(GPU|SYS)")
CONSTANT = re.compile(r"LDG?(\.\w+)*\.CONSTANT")
NEAR = 8  # instructions between a fence and its atomic, and between an atomic and the invalidation


def read(nvdisasm, cubin):
    """Returns parse() of a cubin."""
    return parse(subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout)


def parse(text):
    """Returns {mangled function: ([(opcode, operands, branch target or None, predicate or None)], {label: index})} of a
    disassembly."""
    found = {}
    for part in re.split(r"^\.text\.", text, flags=re.M)[1:]:
        name, code, labels = re.match(r"[\w$.]+", part)[0], [], {}
        for line in part.splitlines()[1:]:
            if m := re.match(r"\s*(\.L_x?_?\d+):", line):
                labels[m[1]] = len(code)
            elif m := re.match(r"\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)", line):
                to = re.search(r"`\((\.L_x?_?\d+)\)", m[3])
                if m[2] != "NOP":
                    code.append((m[2], m[3], to[1] if to and m[2].startswith("BRA") else None, m[1]))
            elif line.startswith("//-----"):
                break
        found[name] = (code, labels)
    return found


def loops_of(functions):
    """Returns {mangled function: {class: instructions}} for read()'s functions."""
    return {name: main_loop([(o, to) for o, _, to, _ in code], labels) for name, (code, labels) in functions.items()}


def arrival_faults(name, opcodes):
    """Checks the fences of a function that arrives and polls."""
    polls = [i for i, o in enumerate(opcodes) if POLL.fullmatch(o)]
    drops = lambda i: "CCTL.IVALL" in opcodes[i + 1:i + 1 + NEAR]
    out = [f"{name}: a poll of a counter without CCTL.IVALL" for i in polls if not drops(i)]
    arrivals = [i for i, o in enumerate(opcodes) if ARRIVAL.fullmatch(o)]
    fenced = [i for i in arrivals if any(FENCE.fullmatch(o) for o in opcodes[max(i - NEAR, 0):i])]
    if polls and not fenced: out.append(f"{name}: waits for other blocks, but arrives without a MEMBAR before the atomic")
    out += [f"{name}: an arrival without CCTL.IVALL" for i in fenced if not drops(i)]
    return out


def faults_of(functions, kernels):
    """Returns the faults of a cubin's functions as lines. kernels: names of functions that are kernels."""
    defines, out = any(SHARED_NAME.match(n) for n in functions), []
    for name, (code, labels) in functions.items():
        opcodes = [o for o, _, _, _ in code]
        calls = any(AFTER_ARRIVAL.search(text) for _, text, _, _ in code)
        polls = any(POLL.fullmatch(o) for o in opcodes)
        if defines or calls or polls:
            out += [f"{name}: {o}: results of other blocks may be read from before the launch"
                    for o in sorted({o for o in opcodes if CONSTANT.fullmatch(o)})]
        out += arrival_faults(name, opcodes)
        if SHARED_NAME.match(name) and "run_" in name and not polls: out.append(f"{name}: does not wait for other blocks")
        if name in kernels and not LOCAL.search(name):
            local = main_loop([(o, to) for o, _, to, _ in code], labels)["local"]
            if local: out.append(f"{name}: {local} accesses of local memory in the main loop")
    return out


def cell(counts):
    total = sum(counts.values())
    return f"{total}: " + ", ".join(f"{n} {c}" for c, n in counts.items() if n)
