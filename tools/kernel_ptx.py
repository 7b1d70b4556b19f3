#!/usr/bin/env python3
"""Runs the kernel checks of the self-test with kernels from nvcc's PTX, on the emulator (tests/simt/ptx). Each launch
runs twice, also with the kernel that the host compiler built: both leave the same bytes in device memory.

    tools/kernel_ptx.py BUILD [FAMILY | FAMILY.CHECK]..

Needs nvcc (CUDACXX, PATH or /usr/local/cuda/bin); without it the exit status is 77. BUILD is a build directory with
tests. Its folder ptx keeps PTX between runs (nvcc.py); after kernel_report.py --check hardly anything is compiled
again. Mistakes in inline assembly that the host compiler cannot see (tests/simt/ptx/faults.cu) must be found. By
default the checks except those of SLOW run for sm_120f, and wgmma's for sm_90a. With PAGEDINFER_LONG=1 all of them run,
those of RACES with a search for races, and those of OLDEST, one of each family, for sm_80.
"""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nvcc as compiler

TARGET = "sm_120f"
OWN = compiler.ROOT / "tests" / "simt" / "ptx"
WGMMA = [s for s in compiler.sources() if "wgmma" in s.stem]  # files with kernels for sm_90a
SLOW = []
OLDEST = ["attention.odd_heads", "centroid_head.picks", "draw.kinds", "expert_cache.steps", "gdn.launches",
          "gemm.not_numbers", "key_blocks.choice", "linear.embed", "lora.types", "mla.compress", "mma16.parts",
          "moe.choice", "moe_w16.heads", "rows.qkv", "scan.sizes", "short_conv.sizes", "tails.mixed", "top.greedy", "w16.together"]
RACES = ["rows", "top", "linear.inputs", "attention"]


def run(build, folder, words):
    """Runs the program; returns its exit status."""
    program = build / "tests" / "simt" / "ptx_checks"
    if not program.exists(): sys.exit(f"{program} does not exist: build {build} with -DPAGEDINFER_TESTS=ON first")
    sys.stdout.flush()
    return subprocess.run([program, compiler.stored(build, folder, "x").parent, *words], check=False).returncode


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"): sys.exit(__doc__)
    build, words, nvcc = Path(sys.argv[1]), sys.argv[2:], compiler.find_nvcc()
    long = bool(os.environ.get("PAGEDINFER_LONG"))
    files = [(s, TARGET) for s in (*compiler.sources(), OWN / "device_math.cu")] + [(OWN / "faults.cu", "faults")]
    files += [(s, "sm_90a") for s in (*WGMMA, OWN / "device_math.cu")]
    if long and not words:
        files += [(s, "sm_80") for s in (*compiler.sources(), OWN / "device_math.cu") if s not in WGMMA]
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [pool.submit(compiler.compile_one, nvcc, build, target, source) for source, target in files]
        print(f"{sum(j.result() for j in jobs)} of {len(files)} files were compiled to PTX")
    failed = run(build, "faults", ["faults"])
    failed |= run(build, TARGET, words or ([] if long else [f"-{c}" for c in SLOW]))
    if not words: failed |= run(build, "sm_90a", ["wgmma"])
    if long and not words:
        failed |= run(build, TARGET, ["races", *RACES])
        failed |= run(build, "sm_80", OLDEST)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
