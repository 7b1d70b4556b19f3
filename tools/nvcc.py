"""nvcc, its flags for kernels, and a store of what it compiled. For tools/kernel_report.py and tools/kernel_ptx.py.

BUILD/ptx/TARGET has three results of a launch file: NAME.ptx, NAME.cubin (not linked) and NAME.log, the messages of
ptxas. kernel_ptx.py compiles the PTX alone. NAME.key next to them has a hash of the compiler, its flags and the files
of this tree that were read, and the names of these files. A file whose hash is still the same is not compiled again.
"""
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ["sm_80", "sm_90a", "sm_120f"]
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-I", str(ROOT / "src"), "-I", str(ROOT / "include"),
         "-I", str(ROOT / "kernels")]
# Files that call functions of other files are relocatable and linked; others are not (cmake/PagedInferCuda.cmake).
RELOCATABLE = re.compile(r"launch_(?!.*wgmma|fp4$|fp4_glu$|moe_fp4$)|device_math|faults")
# Files with functions of many kernels have the limits of registers of these kernels.
REGISTER_LIMITS = {"launch_tail_products": 128, "launch_tail_input": 64}


def find_nvcc():
    for c in (os.environ.get("CUDACXX"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if c and os.access(c, os.X_OK):
            return c
    print("nvcc not found: set CUDACXX, or install the CUDA toolkit (13.0 or newer)")
    sys.exit(77)


@functools.cache
def version_of(nvcc):
    run = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    return re.search(r"release [\d.]+, V([\d.]+)", run.stdout)[1]


def without_file(text):
    """Returns text without the parts of mangled names that tell functions of files apart, which nvcc gives to functions
    with internal linkage in relocatable code: __nv_static_N__ with N characters, and N_INTERNAL_, N characters with it.
    They may contain the number of a process."""
    out, at = [], 0
    for m in re.finditer(r"__nv_static_(\d+)__|(\d+)_INTERNAL_", text):
        out.append(text[at:m.start()])
        at = m.end(1) + 2 + int(m[1]) if m[1] else m.end(2) + int(m[2])
    return "".join(out) + text[at:]


def sources():
    return sorted((ROOT / "src" / "backend" / "cuda").glob("launch_*.cu"))


def flags_of(source):
    """Returns the flags of one file."""
    limit = REGISTER_LIMITS.get(source.stem)
    return ["-rdc=true"] * bool(RELOCATABLE.match(source.stem)) + ([f"-maxrregcount={limit}"] if limit else [])


def hash_of(nvcc, source, files):
    """Returns the hash of the compiler, its flags and the contents of these files; None if one is missing."""
    h = hashlib.sha256(repr([version_of(nvcc), FLAGS[:FLAGS.index("-I")], flags_of(source)]).encode())
    for f in files:
        if not (ROOT / f).is_file(): return None
        h.update(f.encode() + b"\0" + (ROOT / f).read_bytes())
    return h.hexdigest()


def files_in(dependencies):
    """Returns the files of this tree that a dependency file of make names."""
    names = {Path(n).resolve() for n in dependencies.split(":", 1)[1].replace("\\\n", " ").split()}
    return sorted(str(n.relative_to(ROOT)) for n in names if ROOT in n.parents)


def stored(build, target, stem, suffix=".ptx"):
    """Returns the path of a file's result."""
    return Path(build) / "ptx" / target / f"{stem}{suffix}"


def is_fresh(nvcc, build, target, source, cubin):
    ptx, key = (stored(build, target, source.stem, suffix) for suffix in (".ptx", ".key"))
    if not ptx.exists() or not key.exists() or (cubin and not ptx.with_suffix(".cubin").exists()): return False
    first, *files = key.read_text().splitlines() or [""]
    return first == hash_of(nvcc, source, files)


def compile_one(nvcc, build, target, source, cubin=False):
    """Compiles a file, unless the store has its PTX, and its cubin if that is wanted. Returns True if it did. A target
    that is no name of an architecture is a folder of its own, with code for the last of TARGETS."""
    if is_fresh(nvcc, build, target, source, cubin): return False
    arch, to, begin = target if target in TARGETS else TARGETS[-1], stored(build, target, source.stem), time.time()
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        what = (["-cubin", f"-arch={arch}", "-Xptxas=-v", "-Werror=all-warnings", "--keep", "--keep-dir", tmp]
                if cubin else ["-ptx", f"-arch={arch.replace('sm', 'compute')}"])
        out = Path(tmp) / f"{source.stem}{'.cubin' if cubin else '.ptx'}"
        run = subprocess.run([nvcc, *FLAGS, *flags_of(source), *what, "-MD", "-MF", f"{tmp}/files", "-o", out, source],
                             capture_output=True, text=True)
        if run.returncode: sys.exit(f"{source.name} does not compile for {target}\n{run.stdout}{run.stderr}")
        files = files_in(Path(f"{tmp}/files").read_text())
        for suffix in (".key", ".cubin", ".log"): to.with_suffix(suffix).unlink(missing_ok=True)
        if cubin:
            shutil.move(out, to.with_suffix(".cubin"))
            to.with_suffix(".log").write_text(run.stdout + run.stderr)
        shutil.move(out.with_suffix(".ptx"), to)
        # Without a key the next run compiles a file again. So it does if a file changed in the meantime.
        if all((ROOT / f).stat().st_mtime < begin for f in files):
            to.with_suffix(".key").write_text("\n".join([hash_of(nvcc, source, files), *files]) + "\n")
    return True
