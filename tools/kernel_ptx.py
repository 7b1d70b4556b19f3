#!/usr/bin/env python3
"""Runs the kernel checks of the self-test with kernels from nvcc's PTX, on the emulator (tests/simt/ptx). Each launch
runs twice, also with the kernel that the host compiler built: both leave the same bytes in device memory.

    tools/kernel_ptx.py BUILD [FAMILY | FAMILY.CHECK]..

Needs nvcc (CUDACXX, PATH or /usr/local/cuda/bin); without it the exit status is 77. BUILD is a build directory with
tests. Its folder ptx keeps PTX between runs (nvcc.py); after kernel_report.py --check hardly anything is compiled
again. Mistakes in inline assembly that the host compiler cannot see (tests/simt/ptx/faults.cu) must be found. By
default all checks run for sm_120f, and wgmma's for sm_90a. With PAGEDINFER_LONG=1, those of RACES also run with a search
for races, those of VARIANTS for sm_90a and sm_80, and one check of the other families for sm_80.

A check that passed is run again only if its result can be different (agreed.py), so a run that was interrupted
continues where it was. Checks that the command line names are always run.
"""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import agreed
import nvcc as compiler

TARGET = "sm_120f"
OWN = compiler.ROOT / "tests" / "simt" / "ptx"
WGMMA = [s for s in compiler.sources() if "wgmma" in s.stem]  # files with kernels for sm_90a
VARIANTS = ["attention", "linear", "w16"]  # families whose kernels have code for one architecture
OLDEST = [*VARIANTS, "centroid_head.picks", "draw.kinds", "expert_cache.steps", "gdn.launches", "gemm.not_numbers",
          "key_blocks.choice", "lora.types", "mla.compress", "mma16.parts", "moe.choice", "moe_w16.heads", "rows.qkv",
          "scan.sizes", "short_conv.sizes", "tails.mixed", "top.greedy"]
RACES = ["rows", "top", "linear.inputs", "attention"]
PROCESSES = 2


def program_of(build):
    program = build / "tests" / "simt" / "ptx_checks"
    if not program.exists(): sys.exit(f"{program} does not exist: build {build} with -DPAGEDINFER_TESTS=ON first")
    return program


def start(build, folder, words):
    return subprocess.Popen([program_of(build), compiler.stored(build, folder, "x").parent, *words],
                            stdout=subprocess.PIPE, text=True)


def follow(run, passed):
    """Prints the lines of a program, and calls passed(check, seconds, kernels). Returns the exit status."""
    name, seconds = None, 0
    for line in run.stdout:
        if line.startswith("kernels"):
            passed(name, seconds, line.split()[1:])
            continue
        print(line, end="", flush=True)
        if m := re.match(r"ok +(\S+), ([\d.]+) s", line): name, seconds = m[1], float(m[2])
    return run.wait()


def run_checks(build, folder, words, mode=(), again=False):
    """Runs the checks that words select, except those that agreed before; again: also these. Returns the exit status."""
    lines = subprocess.run([program_of(build), "list"], capture_output=True, text=True, check=True).stdout.split()
    checks = [c for c in lines if not words or c in words or c.split(".")[0] in words]
    if not checks: sys.exit(f"no check is named {' '.join(words)}")
    record = agreed.record(build, folder, mode)
    pending = [c for c in checks if again or not record.holds(c)]
    if len(pending) < len(checks):
        print(f"{len(checks) - len(pending)} of {len(checks)} checks for {folder}{' with a search for races' * bool(mode)} "
              "passed before: nothing that they depend on changed", flush=True)
    shares = [[] for _ in range(PROCESSES)]
    for c in sorted(pending, key=record.seconds, reverse=True):
        shares[min(range(PROCESSES), key=lambda s: sum(map(record.seconds, shares[s])))].append(c)
    # A program without checks reads the PTX: an instruction that it does not have is an error.
    programs = [start(build, folder, [*mode, *s] if s else ["read"]) for s in shares if s or not pending]
    with ThreadPoolExecutor(max_workers=PROCESSES) as pool:
        return max(pool.map(lambda p: follow(p, record.add), programs))


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"): sys.exit(__doc__)
    build, words, nvcc = Path(sys.argv[1]), sys.argv[2:], compiler.find_nvcc()
    long = bool(os.environ.get("PAGEDINFER_LONG"))
    files = [(s, TARGET) for s in (*compiler.sources(), OWN / "device_math.cu")] + [(OWN / "faults.cu", "faults")]
    files += [(s, "sm_90a") for s in (*(compiler.sources() if long and not words else WGMMA), OWN / "device_math.cu")]
    if long and not words:
        files += [(s, "sm_80") for s in (*compiler.sources(), OWN / "device_math.cu") if s not in WGMMA]
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [pool.submit(compiler.compile_one, nvcc, build, target, source) for source, target in files]
        print(f"{sum(j.result() for j in jobs)} of {len(files)} files were compiled to PTX", flush=True)
    failed = follow(start(build, "faults", ["faults"]), None)
    failed |= run_checks(build, TARGET, words, again=bool(words))
    if not words: failed |= run_checks(build, "sm_90a", ["wgmma", *VARIANTS * long])
    if long and not words:
        failed |= run_checks(build, TARGET, RACES, ["races"])
        failed |= run_checks(build, "sm_80", OLDEST)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
