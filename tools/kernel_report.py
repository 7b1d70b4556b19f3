#!/usr/bin/env python3
"""Compiles the kernels (src/backend/cuda/launch_*.cu) for every target. Reports ptxas's numbers for each kernel, and
the occupancy of a device.

    tools/kernel_report.py [--check] [--out FILE] BUILD

Needs nvcc (CUDACXX, PATH or /usr/local/cuda/bin); without it the exit status is 77. BUILD is a build directory with
tests: BUILD/tests/simt/launches reports the launch shapes. The report is BUILD/kernels.md unless --out names another
file. If nvdisasm is available (sass.py says where it is searched), the report has the instructions of the main loops.

A kernel that spills registers is an error, and so is a kernel that launches.cpp does not launch. --check writes no
report. It compiles for sm_120f, and kernels of one target for theirs; with PAGEDINFER_LONG for all targets.
"""
import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sass

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ["sm_80", "sm_90a", "sm_120f"]
LOOPS = "sm_120f"  # target of the main-loop column
# Launch files with kernels for one target only.
ELSEWHERE = {name: "sm_90a" for name in ("launch_wgmma", "launch_wgmma_glu", "launch_attention_wgmma")}
LOOPS_TEXT = f"Last column, for {LOOPS}: instructions of the main loop, by class (tools/sass.py)."
NO_LOOPS_TEXT = "Main loops are left out: nvdisasm was not found."
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-Xptxas=-v", "-Werror=all-warnings", "-I", str(ROOT / "src"),
         "-I", str(ROOT / "include"), "-I", str(ROOT / "kernels"), "-cubin"]

# Limits of a multiprocessor, from the compute capabilities table of the CUDA programming guide: threads, blocks, KiB
# of shared memory.
LIMITS = {"sm_80": (2048, 32, 164), "sm_90a": (2048, 32, 228), "sm_120f": (1536, 24, 100)}
REGISTERS = 65536


def kernels_of(source):
    """Returns the file of kernels/ that a launch file includes, directly or through the .cuh of its launches."""
    for part in (source, source.with_suffix(".cuh"), *(source.parent / i for i in re.findall(
            r'#include "backend/cuda/(launch_\w+\.cuh)"', source.read_text()))):
        if part.exists() and (m := re.search(r'#include "(\w+_kernels\.cuh)"', part.read_text())):
            return m[1]
    sys.exit(f"{source.name} includes no kernels/*_kernels.cuh")


def sources_of(source, found=None):
    """Returns {path: text} of the source and all files of this tree that it includes. Comments, spaces and functions
    of the public interface are removed, because they change no kernel."""
    found = {} if found is None else found
    if source in found: return found
    text = source.read_bytes()
    bare = re.sub(rb"/\*.*?\*/|//[^\n]*|\bPI_API [^;{]*;", b" ", text, flags=re.S)
    found[source] = re.sub(rb"\s+", b" ", bare)
    for name in re.findall(rb'^ *# *include "([^"]+)"', text, re.M):
        for folder in (source.parent, ROOT / "src", ROOT / "include", ROOT / "kernels"):
            path = (folder / name.decode()).resolve()
            if path.exists():
                sources_of(path, found)
                break
    return found


def stamp(version, sources):
    """Returns a line with a hash of all inputs of the table of these sources."""
    found, h = {}, hashlib.sha256(repr((version, [f for f in FLAGS if str(ROOT) not in f], TARGETS)).encode())
    for s in sources: sources_of(s.resolve(), found)
    for tool in (Path(__file__), Path(sass.__file__)): found[tool.resolve()] = tool.read_bytes()
    for path in sorted(found): h.update(f"{path.relative_to(ROOT)} {len(found[path])}\n".encode() + found[path])
    return f"Made from sources with the hash {h.hexdigest()[:16]}."


def find_nvcc():
    for c in (os.environ.get("CUDACXX"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if c and os.access(c, os.X_OK):
            return c
    print("nvcc not found: set CUDACXX, or install the CUDA toolkit (13.0 or newer)")
    sys.exit(77)


def demangle(names):
    tool = shutil.which("cu++filt") or shutil.which("c++filt")
    if not tool:
        return dict(zip(names, names))
    out = subprocess.run([tool, *names], capture_output=True, text=True, check=True).stdout.splitlines()
    return {n: re.sub(r"\(.*\)$", "", re.sub(r"\((?:int|bool|unsigned int)\)", "", o)).removeprefix("void ")
            for n, o in zip(names, out)}


def compile_one(nvcc, source, target, out):
    """Returns {mangled kernel: (registers, stack bytes, spilled bytes)}. The cubin stays at out."""
    run = subprocess.run([nvcc, *FLAGS, f"-arch={target}", "-o", out, str(source)], capture_output=True, text=True)
    text = run.stdout + run.stderr
    if run.returncode:
        print(text)
        sys.exit(f"{source.name} does not compile for {target}")
    found, name, stack, spill = {}, None, 0, 0
    for line in text.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            name = m[1]
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spill = int(m[1]), int(m[2]) + int(m[3])
        elif (m := re.search(r"Used (\d+) registers", line)) and name:
            if "pi_mark" in name:  # an empty kernel that every file has (device.cuh)
                continue
            found[name] = (int(m[1]), stack, spill)
            name = None
    return found


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


def compile_and_read(nvcc, nvdisasm, source, target, out):
    found = compile_one(nvcc, source, target, out)
    return found, sass.loops_of(nvdisasm, out) if nvdisasm and target == ELSEWHERE.get(source.stem, LOOPS) else {}


def version_of(nvcc):
    run = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    return re.search(r"release [\d.]+, V([\d.]+)", run.stdout)[1]


def sections_of(text):
    """Returns {file of kernels/: its section of a report}."""
    return {part.split("\n", 1)[0]: f"## kernels/{part}".rstrip() for part in text.split("## kernels/")[1:]}


def stands(section, line, shapes):
    """True if a section of a report is up to date: made from these sources, with the same launch shapes."""
    rows = re.findall(r"^\| `(.*?)` \| (\d+) \| (\d+) \|", section, re.M)
    return line in section and bool(rows) and all(shapes.get(n) == (int(t), int(b)) for n, t, b in rows)


def report(nvcc, build, targets, old):
    """Returns the report's text and the files that were compiled. Sections of old that are up to date are kept."""
    shapes, nvdisasm, version, known = launched(build), sass.find_nvdisasm(), version_of(nvcc), sections_of(old)
    lines = ["# Kernels", "",
             f"Written by tools/kernel_report.py with nvcc {version}. Columns: threads per block, and maximum bytes of shared "
             "memory per block at the shapes of large models. For each target: registers per thread, bytes of stack if any, and "
             "occupancy (resident warps of a multiprocessor, in percent). No kernel spills. " +
             (LOOPS_TEXT if nvdisasm else NO_LOOPS_TEXT), ""]
    missing = []
    sources = sorted((ROOT / "src" / "backend" / "cuda").glob("launch_*.cu"))
    files = {file: [s for s in sources if kernels_of(s) == file] for file in map(kernels_of, sources)}
    stamps = {file: stamp(version, parts) for file, parts in files.items()}
    todo = [f for f in files if not stands(known.get(f, ""), stamps[f], shapes)]
    with tempfile.TemporaryDirectory() as tmp, ThreadPoolExecutor(max_workers=2) as pool:
        jobs = {(s, t): pool.submit(compile_and_read, nvcc, nvdisasm, s, t, f"{tmp}/{s.stem}.{t}")
                for f in todo for s in files[f] for t in targets}
        for file, parts in files.items():
            if file not in todo:
                lines += [known[file], ""]
                continue
            seen, loops = {}, {}
            for source, t in ((s, t) for s in parts for t in targets):
                counts, some = jobs[source, t].result()
                loops.update(some)
                for name, (regs, stack, spill) in counts.items():
                    if spill:
                        sys.exit(f"kernels/{file}: {name} spills {spill} bytes for {t}")
                    seen.setdefault(name, {})[t] = (regs, stack)
            names = demangle(sorted(seen))
            lines += [f"## kernels/{file}", "", stamps[file], "",
                      "| kernel | threads | shared | " + " | ".join(targets) + (" | main loop |" if nvdisasm else " |"),
                      "|---" * (len(targets) + 3 + bool(nvdisasm)) + "|"]
            for n in sorted(seen):
                if names[n] not in shapes:
                    missing.append(f"kernels/{file}: tests/simt/launches.cpp does not launch {names[n]}")
                    continue
                threads, shared = shapes[names[n]]
                cells = [f"{r}" + (f" + {s} B" if s else "") + f", {occupancy(t, r, threads, shared)} %"
                         for t, (r, s) in ((t, seen[n][t]) for t in targets)]
                cells += [sass.cell(loops[n]) if n in loops else "-"] if nvdisasm else []
                lines.append(f"| `{names[n]}` | {threads} | {shared} | " + " | ".join(cells) + " |")
            lines.append("")
    if missing:
        sys.exit("\n".join(missing))
    return "\n".join(lines).rstrip() + "\n", todo


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    p.add_argument("build", type=Path)
    p.add_argument("--out", type=Path, help="report to write; default BUILD/kernels.md")
    a = p.parse_args()
    nvcc, long = find_nvcc(), bool(os.environ.get("PAGEDINFER_LONG"))
    if not a.check:
        out = a.out or a.build / "kernels.md"
        old = out.read_text() if out.exists() and not long else ""
        out.write_text(report(nvcc, a.build, TARGETS, old if bool(sass.find_nvdisasm()) == (LOOPS_TEXT in old) else "")[0])
        return
    targets = TARGETS if long else [LOOPS]
    text, _ = report(nvcc, a.build, targets, "")
    with tempfile.TemporaryDirectory() as tmp:
        for stem, target in ELSEWHERE.items():
            if target in targets: continue
            found = compile_one(nvcc, ROOT / "src" / "backend" / "cuda" / f"{stem}.cu", target, f"{tmp}/{stem}")
            if any(spill for _, _, spill in found.values()): sys.exit(f"{stem}.cu spills for {target}")
    rows = text.count(chr(10) + "| `")
    print(f"{rows} kernels compile for {', '.join(targets)} without spills")


if __name__ == "__main__":
    main()
