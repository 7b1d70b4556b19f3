#!/usr/bin/env python3
"""Checks the store of tools/nvcc.py in a small tree with two launch files: only files whose results can be different
are compiled again. Needs nvcc; without it the exit status is 77.

usage: check_nvcc_store.py
"""
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import nvcc as compiler

FILES = {
    "include/pagedinfer.h": "#define N 1\n",
    "kernels/both.cuh": "#include \"pagedinfer.h\"\nstatic __device__ float both(float x) { return x + N; }\n",
    "kernels/a.cuh": "#include \"both.cuh\"\n__global__ void a(float *x) { *x = both(*x); }\n",
    "kernels/b.cuh": "#include \"both.cuh\"\n__global__ void b(float *x) { *x = 2 * both(*x); }\n",
    "kernels/unused.cuh": "#error this file must not be read\n",
    "src/backend/cuda/launch_a.cu": "#include \"a.cuh\"\n",
    "src/backend/cuda/launch_fp4.cu": "#include \"b.cuh\"\n",
}
A, B = "launch_a", "launch_fp4"  # relocatable, and not


def append(root, name, text):
    """Appends to a file, as an editor would have a while ago."""
    path = root / name
    path.write_text(path.read_text() + text)
    old = time.time() - 60
    os.utime(path, (old, old))


def main():
    nvcc, bad = compiler.find_nvcc(), []
    with tempfile.TemporaryDirectory() as tmp:
        root, build = Path(tmp).resolve() / "tree", Path(tmp).resolve() / "build"
        compiler.FLAGS[:] = [f.replace(str(compiler.ROOT), str(root)) for f in compiler.FLAGS]
        compiler.ROOT = root
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("")
            append(root, name, text)

        def compiled(cubin, target="sm_80"):
            return [s.stem for s in compiler.sources() if compiler.compile_one(nvcc, build, target, s, cubin)]

        def expect(what, expected, found):
            if found != expected: bad.append(f"{what}: compiled {found}, expected {expected}")

        expect("an empty store", [A, B], compiled(False))
        expect("nothing changed", [], compiled(False))
        expect("another target", [A, B], compiled(False, "sm_120f"))
        expect("cubins, with PTX in the store", [A, B], compiled(True))
        expect("PTX, with cubins in the store", [], compiled(False))
        expect("cubins, nothing changed", [], compiled(True))
        for suffix in (".ptx", ".cubin", ".log"):
            if not compiler.stored(build, "sm_80", A, suffix).exists(): bad.append(f"no {A}{suffix}")
        if "Used " not in compiler.stored(build, "sm_80", A, ".log").read_text(): bad.append("no registers in the log")
        for name, expected in (("kernels/unused.cuh", []), ("kernels/a.cuh", [A]), ("kernels/b.cuh", [B]),
                               ("kernels/both.cuh", [A, B]), ("include/pagedinfer.h", [A, B]),
                               (f"src/backend/cuda/{A}.cu", [A])):
            append(root, name, "// changed\n")
            expect(f"{name} changed", expected, compiled(True))
            expect(f"{name} changed, second run", [], compiled(True))
        append(root, "kernels/a.cuh", "// changed\n")
        expect("PTX of a changed file", [A], compiled(False))
        expect("cubins after PTX alone", [A], compiled(True))
        compiler.REGISTER_LIMITS[A] = 64
        expect("a limit of registers", [A], compiled(True))
        shutil.move(root / "kernels/b.cuh", root / "kernels/c.cuh")
        (root / f"src/backend/cuda/{B}.cu").write_text("#include \"c.cuh\"\n")
        append(root, f"src/backend/cuda/{B}.cu", "")
        expect("a header with a new name", [B], compiled(True))
        later = time.time() + 3600
        os.utime(root / "kernels/c.cuh", (later, later))
        append(root, f"src/backend/cuda/{B}.cu", "// changed\n")
        expect("a header that changes while nvcc runs", [B], compiled(True))
        expect("the run after it", [B], compiled(True))
    print("\n".join(bad) or "the store of PTX compiles exactly the files that changed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
