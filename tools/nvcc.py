"""nvcc, its flags for kernels, and a store of PTX. For tools/kernel_report.py and tools/kernel_ptx.py.

BUILD/ptx/TARGET/NAME.ptx is the PTX of launch_NAME.cu, and NAME.key next to it has the hash of everything that it was
made from. kernel_report.py leaves the PTX of its compilations there, so that kernel_ptx.py compiles nothing again.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ["sm_80", "sm_90a", "sm_120f"]
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-I", str(ROOT / "src"), "-I", str(ROOT / "include"),
         "-I", str(ROOT / "kernels")]
# Files that call functions of other files are relocatable and linked; others are not (cmake/PagedInferCuda.cmake).
RELOCATABLE = re.compile(r"launch_(?!.*wgmma|fp4$|fp4_glu$|moe_fp4$)")


def find_nvcc():
    for c in (os.environ.get("CUDACXX"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if c and os.access(c, os.X_OK):
            return c
    print("nvcc not found: set CUDACXX, or install the CUDA toolkit (13.0 or newer)")
    sys.exit(77)


def version_of(nvcc):
    run = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    return re.search(r"release [\d.]+, V([\d.]+)", run.stdout)[1]


def sources():
    return sorted((ROOT / "src" / "backend" / "cuda").glob("launch_*.cu"))


def headers_hash(nvcc):
    """Returns the hash of the compiler, its flags and all files that a launch file may include."""
    h = hashlib.sha256(repr([version_of(nvcc), FLAGS[:3]]).encode())
    for folder, pattern in (("kernels", "*.cuh"), ("src/backend/cuda", "*.cuh"), ("src", "**/*.h"),
                            ("include", "**/*.h")):
        for f in sorted((ROOT / folder).glob(pattern)): h.update(f.name.encode() + f.read_bytes())
    return h


def key_of(source, headers):
    h = headers.copy()
    h.update(Path(source).read_bytes())
    return h.hexdigest()


def stored(build, target, stem):
    """Returns the path of a file's PTX."""
    return Path(build) / "ptx" / target / f"{stem}.ptx"


def is_fresh(build, target, source, headers):
    ptx = stored(build, target, source.stem)
    key = ptx.with_suffix(".key")
    return ptx.exists() and key.exists() and key.read_text() == key_of(source, headers)


def store(build, target, source, headers, ptx):
    """Moves the PTX of a launch file into the store."""
    to = stored(build, target, source.stem)
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(ptx, to)
    to.with_suffix(".key").write_text(key_of(source, headers))
