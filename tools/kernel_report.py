#!/usr/bin/env python3
"""Compiles the kernels (src/backend/cuda/launch_*.cu) for every target. Reports ptxas's numbers for each kernel, and
the occupancy of a device.

    tools/kernel_report.py [--check] [--out FILE] BUILD

Needs nvcc (CUDACXX, PATH or /usr/local/cuda/bin); without it the exit status is 77. BUILD is a build directory with
tests: BUILD/tests/simt/launches reports the launch shapes. Its folder ptx keeps what nvcc compiled, and only files
that changed are compiled again (nvcc.py). The report is BUILD/kernels.md unless --out names another
file. If nvdisasm is available (sass.py says where it is searched), the report has the instructions of the main loops.

A kernel that spills registers is an error, and so are a kernel that launches.cpp does not launch, wrong code around
arrivals (sass.py), and too many waits in a kernel of few rows (sass_chain.py). --check writes no report. It compiles for sm_120f, and kernels of one target for theirs; with PAGEDINFER_LONG for all targets.
"""
import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nvcc as compiler
import sass
import sass_chain
from nvcc import RELOCATABLE, ROOT, TARGETS, find_nvcc, version_of, without_file

LOOPS = "sm_120f"  # target of the main-loop column
# Launch files with kernels for one target only.
ELSEWHERE = {name: "sm_90a" for name in ("launch_wgmma", "launch_wgmma_glu", "launch_attention_wgmma")}
LOOPS_TEXT = (f"Last columns, for {LOOPS}: waits for global memory that follow one another, and barriers, in the kernel's "
              "own code (tools/sass_chain.py); instructions of the main loop, by class (tools/sass.py).")
NO_LOOPS_TEXT = "Main loops and waits are left out: nvdisasm was not found."
# Bytes of code of one kernel, without the functions that kernels share: of any kernel, and of the kernels of few rows,
# which run once per layer and token and find their code in no instruction cache.
MAX_CODE, MAX_CODE_FEW = 240 * 1024, 48 * 1024
# Waits and barriers of the kernels of few rows, without the functions that kernels share, and of each shared function.
# Launches of few rows are short, and waits are most of their time.
MAX_WAITS_FEW, MAX_BARRIERS_FEW = 36, 12
MAX_WAITS_SHARED, MAX_BARRIERS_SHARED = 300, 14
FEW = re.compile(r"w16_few|w16_glu_few|linear::linear|fp4_few|fp4_glu_few|heads_w16|mma16_few|experts_w16_few")

# Limits of a multiprocessor, from the compute capabilities table of the CUDA programming guide: threads, blocks, KiB
# of shared memory.
LIMITS = {"sm_80": (2048, 32, 164), "sm_90a": (2048, 32, 228), "sm_120f": (1536, 24, 100)}
REGISTERS = 65536


def kernels_of(source):
    """Returns the file of kernels/ that a launch file includes, directly or through the .cuh of its launches; None = the
    file has no kernels."""
    for part in (source, source.with_suffix(".cuh"), *(source.parent / i for i in re.findall(
            r'#include "backend/cuda/(launch_\w+\.cuh)"', source.read_text()))):
        if part.exists() and (m := re.search(r'#include "(\w+_kernels\.cuh)"', part.read_text())):
            return m[1]
    return None


def demangle(names):
    tool = shutil.which("cu++filt") or shutil.which("c++filt")
    if not tool:
        return dict(zip(names, names))
    out = subprocess.run([tool, *names], capture_output=True, text=True, check=True).stdout.splitlines()
    return {n: re.sub(r"\(.*\)$", "", re.sub(r"\((?:int|bool|unsigned int)\)", "", o)).removeprefix("void ")
            for n, o in zip(names, out)}


def compile_one(nvcc, build, source, target):
    """Returns the path of the cubin, not linked yet, {mangled kernel: spilled bytes}, and {mangled kernel: (registers,
    stack bytes)}."""
    compiler.compile_one(nvcc, build, target, source, cubin=True)
    text = compiler.stored(build, target, source.stem, ".log").read_text()
    if m := re.search(r".*Potential Performance Loss.*", text): sys.exit(f"{source.name}, {target}: {m[0]}")
    found, numbers, name, spill, stack = {}, {}, None, 0, 0
    for line in text.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            name = without_file(m[1])
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spill = int(m[1]), int(m[2]) + int(m[3])
        elif (m := re.search(r"Used (\d+) registers", line)) and name:
            if "pi_mark" not in name: # an empty kernel of every file (device.cuh)
                found[name], numbers[name] = spill, (int(m[1]), stack)
            name = None
    return compiler.stored(build, target, source.stem, ".cubin"), found, numbers


def launched(build):
    """Returns {demangled kernel: (threads per block, maximum bytes of shared memory per block)}."""
    program = build / "tests" / "simt" / "launches"
    if not program.exists():
        sys.exit(f"{program} does not exist: build {build} with -DPAGEDINFER_TESTS=ON first")
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    at = {int(a, 16): (int(t), int(b)) for a, t, b in (line.split() for line in lines)}
    table = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = {int(a, 16): n for a, kind, n in (line.split() for line in table if line[0] != " ") if kind in "TtWw"}
    names = demangle([symbols[a] for a in at])
    return {names[symbols[a]]: shape for a, shape in at.items()}


def occupancy(target, registers, threads, shared):
    """Returns the resident warps of a multiprocessor, in percent of the maximum. Registers are allocated in units of
    256 per warp, warps in units of four. Shared memory is allocated in units of 128 bytes, plus 1 KiB per block."""
    most, blocks, room = LIMITS[target]
    warps = (threads + 31) // 32
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256) // 4 * 4 // warps
    by_shared = room * 1024 // (-(-shared // 128) * 128 + 1024)
    return 100 * min(blocks, most // 32 // warps, by_registers, by_shared) * warps * 32 // most


def compile_and_read(nvcc, nvdisasm, build, source, target):
    """Returns compile_one()'s results, {mangled function: main loop}, {mangled function: (waits, barriers)}, and faults of
    the code (sass.py)."""
    cubin, found, numbers = compile_one(nvcc, build, source, target)
    if not nvdisasm or target != ELSEWHERE.get(source.stem, LOOPS): return cubin, found, numbers, {}, {}, []
    functions = {without_file(n): f for n, f in sass.read(nvdisasm, cubin).items()}
    faults = [f"{source.name}, {target}: {f}" for f in sass.faults_of(functions, found)]
    return cubin, found, numbers, sass.loops_of(functions), sass_chain.chains_of(functions), faults


def code_of(cubin):
    """Returns {function: bytes of code} of a cubin, from the sections .text.FUNCTION of the ELF file."""
    data = Path(cubin).read_bytes()
    at, = struct.unpack_from("<Q", data, 0x28)
    size, n, names = struct.unpack_from("<HHH", data, 0x3a)
    sections = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(n)]
    text_at = lambda i: sections[names][4] + sections[i][0]
    named = {data[text_at(i):data.index(0, text_at(i))].decode(): sections[i][5] for i in range(n)}
    return {without_file(name[len(".text."):]): bytes_ for name, bytes_ in named.items() if name.startswith(".text.")}


def link(nvcc, target, cubins, out):
    """Links the files of a target. Returns {mangled kernel: (registers, stack bytes, code bytes)}, and the bytes of the
    functions that kernels share. A kernel has the registers and the stack of the functions that it calls."""
    nvlink = Path(os.path.realpath(nvcc)).parent / "nvlink"
    run = subprocess.run([nvlink, f"-arch={target}", "-v", "-o", out, *cubins], capture_output=True, text=True)
    text = run.stdout + run.stderr
    if run.returncode: sys.exit(f"{target}: the device linker failed\n{text[-4000:]}")
    code, found = code_of(out), {}
    for name, registers, stack in re.findall(r"Function properties for '(\S+)':\n.*?used (\d+) registers.*?(\d+) stack", text):
        if "pi_mark" not in name: found[without_file(name)] = (int(registers), int(stack), code[without_file(name)])
    return found, sum(n for name, n in code.items() if name not in found)


def too_many_waits(name, chain, max_waits, max_barriers):
    """Returns a list of the fault, if any. chain: (waits, barriers), or None."""
    if not chain or (chain[0] <= max_waits and chain[1] <= max_barriers): return []
    return [f"{name} has {chain[0]} waits and {chain[1]} barriers one after the other: at most {max_waits} and {max_barriers}"]


def shared_chains(chains):
    """Returns {function that kernels share: (waits, barriers)}."""
    return {n: chains[m] for n in sass.SHARED for m in chains if re.search(rf"_Z{len(n)}{n}RK10pi__k_tail", m)}


def shared_waits(chains):
    """Returns the sentence on the waits of functions that kernels share."""
    return "Functions that kernels share, all kinds of epilogues together: " + ", ".join(
        f"{n} {waits}, {barriers}" for n, (waits, barriers) in shared_chains(chains).items()) + "."


def report(nvcc, build, targets):
    """Returns the report's text."""
    shapes, nvdisasm, version = launched(build), sass.find_nvdisasm(), version_of(nvcc)
    sources = sorted((ROOT / "src" / "backend" / "cuda").glob("launch_*.cu"))
    missing, rows, seen, loops, chains, shared = [], {}, {}, {}, {}, {}
    linked = {t: [] for t in targets}
    with tempfile.TemporaryDirectory() as tmp, ThreadPoolExecutor(max_workers=2) as pool:
        jobs = {(s, t): pool.submit(compile_and_read, nvcc, nvdisasm, build, s, t) for s in sources for t in targets}
        for (s, t), job in jobs.items():
            cubin, spills, numbers, some, waits, faults = job.result()
            if RELOCATABLE.match(s.stem):
                linked[t].append(cubin)
            else:
                code = code_of(cubin)
                for name, own in numbers.items(): seen.setdefault(name, {})[t] = (*own, code[name])
            loops.update(some)
            chains.update(waits)
            missing += faults
            for name, spill in spills.items():
                if spill: sys.exit(f"{s.name}: {name} spills {spill} bytes for {t}")
                rows.setdefault(kernels_of(s), set()).add(name)
        for t in targets:
            found, shared[t] = link(nvcc, t, linked[t], f"{tmp}/linked.{t}")
            for name, numbers in found.items(): seen.setdefault(name, {})[t] = numbers
    for name, readable in demangle(list(seen)).items():
        limit = MAX_CODE_FEW if FEW.search(readable) else MAX_CODE
        for t, (_, _, code) in seen[name].items():
            if code > limit: missing.append(f"{readable} has {code} bytes of code for {t}: at most {limit}")
        if FEW.search(readable): missing += too_many_waits(readable, chains.get(name), MAX_WAITS_FEW, MAX_BARRIERS_FEW)
    for name, chain in shared_chains(chains).items():
        missing += too_many_waits(name, chain, MAX_WAITS_SHARED, MAX_BARRIERS_SHARED)
    lines = ["# Kernels", "",
             f"Written by tools/kernel_report.py with nvcc {version}. Columns: threads per block, and maximum bytes of shared "
             "memory per block at the shapes of large models. For each target: registers per thread, bytes of stack if any, "
             "KiB of code, and occupancy (resident warps of a multiprocessor, in percent). No kernel spills. Functions that "
             "kernels share have " + ", ".join(f"{n / 1024:.0f} KiB ({t})" for t, n in shared.items()) + ". " +
             (LOOPS_TEXT + " " + shared_waits(chains) if nvdisasm else NO_LOOPS_TEXT), ""]
    for file in sorted(rows):
        lines += [f"## kernels/{file}", "",
                  "| kernel | threads | shared | " + " | ".join(targets) + (" | waits, barriers | main loop |" if nvdisasm else " |"),
                  "|---" * (len(targets) + 3 + 2 * bool(nvdisasm)) + "|"]
        names = demangle(sorted(rows[file]))
        for n in sorted(rows[file]):
            if names[n] not in shapes:
                missing.append(f"kernels/{file}: tests/simt/launches.cpp does not launch {names[n]}")
                continue
            threads, bytes_ = shapes[names[n]]
            cells = [f"{r}" + (f" + {s} B" if s else "") + f", {code / 1024:.1f} KiB, {occupancy(t, r, threads, bytes_)} %"
                     for t, (r, s, code) in ((t, seen[n][t]) for t in targets)]
            if nvdisasm: cells += ["{}, {}".format(*chains[n]), sass.cell(loops[n])] if n in loops else ["-", "-"]
            lines.append(f"| `{names[n]}` | {threads} | {bytes_} | " + " | ".join(cells) + " |")
        lines.append("")
    if missing:
        sys.exit("\n".join(missing))
    most = max(code for by_target in seen.values() for _, _, code in by_target.values())
    return "\n".join(lines).rstrip() + "\n", most


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    p.add_argument("build", type=Path)
    p.add_argument("--out", type=Path, help="report to write; default BUILD/kernels.md")
    a = p.parse_args()
    nvcc, long = find_nvcc(), bool(os.environ.get("PAGEDINFER_LONG"))
    if not a.check:
        (a.out or a.build / "kernels.md").write_text(report(nvcc, a.build, TARGETS)[0])
        return
    targets = TARGETS if long else [LOOPS]
    text, most = report(nvcc, a.build, targets)
    for stem, target in ELSEWHERE.items():
        if target in targets: continue
        source = ROOT / "src" / "backend" / "cuda" / f"{stem}.cu"
        _, found, _, _, _, faults = compile_and_read(nvcc, sass.find_nvdisasm(), a.build, source, target)
        if any(found.values()): sys.exit(f"{stem}.cu spills for {target}")
        if faults: sys.exit("\n".join(faults))
    rows = text.count(chr(10) + "| `")
    if not sass.find_nvdisasm(): print("nvdisasm not found (pip install nvidia-cuda-nvdisasm): the code around arrivals is not checked")
    print(f"{rows} kernels compile for {', '.join(targets)} without spills, with at most {most / 1024:.0f} KiB of code")


if __name__ == "__main__":
    main()
