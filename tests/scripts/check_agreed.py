#!/usr/bin/env python3
"""Checks tools/agreed.py: a check that passed is run again if its kernels, their launches, the check or the emulator
changed, and only then. Needs no toolkit.

usage: check_agreed.py
"""
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import agreed

HEAD = ".version 9.0\n.target sm_120f\n.address_size 64\n\n"
ENTRY = """	// .globl	{name}
.visible .entry {name}(
	.param .u64 {name}_param_0
)
.maxntid 256
{{
	.reg .pred 	%p<2>;
	@%p1 bra 	$L__BB{i}_2;
	{body}
$L__BB{i}_2:
	ret;
}}
"""
STATIC = "__nv_static_{n}__{h}_11_launch_a_cu_{h}_{process}_Z4helpPf"
HELP = ".func {name}(\n\t.param .b64 {name}_param_0\n)\n{{\n\t{body}\n\tret;\n}}\n"
SHARED = ".extern .func (.param .b32 func_retval0) shared\n(\n\t.param .b64 shared_param_0\n)\n;\n"
DEFINED = ".visible .func (.param .b32 func_retval0) shared(\n\t.param .b64 shared_param_0\n)\n{{\n\t{body}\n\tret;\n}}\n"
TABLE = ".global .align 4 .b8 codes[4] = {{{values}}};\n"


def module_a(first=0, h="568a2123", process="", help_body="add.s32 %r1, %r2, %r3;", values="1, 2, 3, 4", one="mov.u32 %r1, codes;"):
    name = STATIC.format(h=h, process=process, n=33 + len(process))
    return (HEAD + SHARED + TABLE.format(values=values) + HELP.format(name=name, body=help_body) +
            ENTRY.format(name="one", i=first, body=one) +
            ENTRY.format(name="two", i=first + 1, body=f"call.uni {name}, (param0);") +
            ENTRY.format(name="three", i=first + 2, body="call.uni (retval0), shared, (param0);"))


def module_b(body="mul.f32 %f1, %f2, %f3;"): return HEAD + DEFINED.format(body=body)


PTX, CUDA, OTHER = "ptx/sm_120f/{}.ptx", "src/backend/cuda/{}", "src/selftest/check_{}.cpp"
BASE = {
    PTX.format("launch_a"): module_a(), PTX.format("launch_b"): module_b(), PTX.format("device_math"): HEAD,
    CUDA.format("launch_a.cu"): "a", CUDA.format("launch_b.cu"): "b", CUDA.format("launch.cuh"): "c", CUDA.format("plan.c"): "d",
    OTHER.format("rows"): "e", OTHER.format("top"): "f", "src/selftest/check.h": "g",
    "tests/simt/simt.cpp": "h", "tests/simt/test_simt.cpp": "i", "tests/simt/ptx/emit.cpp": "j",
}
CHECKS = {"rows.first": ["one"], "rows.second": ["two"], "top.third": ["three"]}
ALL = list(CHECKS)
# (change, file, new text, checks to run again)
CHANGES = [
    ("nothing", CUDA.format("plan.c"), "x", []),
    ("numbers of labels, names of a static function", PTX.format("launch_a"), module_a(first=7, h="0123abcd", process="1234_"), []),
    ("a comment", PTX.format("launch_a"), "// comment\n" + module_a(), []),
    ("an instruction of a kernel", PTX.format("launch_a"), module_a(one="mov.u32 %r1, 7;"), ["rows.first"]),
    ("a table", PTX.format("launch_a"), module_a(values="1, 2, 3, 5"), ["rows.first"]),
    ("a called function", PTX.format("launch_a"), module_a(help_body="sub.s32 %r1, %r2, %r3;"), ["rows.second"]),
    ("a function of another file", PTX.format("launch_b"), module_b("add.f32 %f1, %f2, %f3;"), ["top.third"]),
    ("a kernel that is gone", PTX.format("launch_a"), module_a().replace("entry two", "entry four"), ["rows.second"]),
    ("nvcc's functions", PTX.format("device_math"), HEAD + HELP.format(name="expf", body="ex2.approx.f32 %f1, %f2;"), ALL),
    ("the file that launches", CUDA.format("launch_a.cu"), "x", ALL),
    ("a file that launches no kernel of these", CUDA.format("launch_b.cu"), "x", []),
    ("a header of launches", CUDA.format("launch.cuh"), "x", ALL),
    ("a check", OTHER.format("rows"), "x", ["rows.first", "rows.second"]),
    ("a header of checks", "src/selftest/check.h", "x", ALL),
    ("the emulator", "tests/simt/simt.cpp", "x", ALL),
    ("the front end", "tests/simt/ptx/emit.cpp", "x", ALL),
    ("a test of the emulator", "tests/simt/test_simt.cpp", "x", []),
]


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def pending(root, mode=()):
    record = agreed.record(root, "sm_120f", mode)
    return [c for c in CHECKS if not record.holds(c)]


def main():
    bad = []

    def expect(what, expected, found):
        if found != expected: bad.append(f"{what}: runs {found}, expected {expected}")

    with tempfile.TemporaryDirectory() as tmp:
        root = agreed.ROOT = Path(tmp)
        write(root, BASE)
        expect("no record", ALL, pending(root))
        record = agreed.record(root, "sm_120f", ())
        for check, kernels in CHECKS.items(): record.add(check, 1.5, kernels)
        if agreed.record(root, "sm_120f", ()).seconds("top.third") != 1.5: bad.append("the time of a check is lost")
        expect("another mode", ALL, pending(root, ["races"]))
        for what, name, text, expected in CHANGES:
            write(root, {name: text})
            expect(what, expected, pending(root))
            write(root, {name: BASE[name]})
            expect(f"{what}, undone", [], pending(root))
        record.add("top.third", 1, ["three", "missing"])
        expect("a kernel that no file has", [], pending(root))
        write(root, {PTX.format("launch_c"): HEAD + ENTRY.format(name="missing", i=0, body="exit;")})
        expect("the kernel in a new file", ["top.third"], pending(root))
        record.path.write_text("{")
        expect("a record that is cut off", ALL, pending(root))
    print("\n".join(bad) or f"{len(CHANGES)} changes: exactly the checks whose result can be different run again")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
