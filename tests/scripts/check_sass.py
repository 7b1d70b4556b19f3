#!/usr/bin/env python3
"""Checks tools/sass.py and tools/sass_chain.py: each planted fault in a disassembly is found, correct code has none, and
waits are counted as a warp waits. Needs no toolkit.

usage: check_sass.py
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import sass
import sass_chain

EPILOGUE = "_Z8run_tailRK10pi__k_tailPh"
SHARED = f"""
.text.{EPILOGUE}:
        /*0000*/                   MEMBAR.ALL.CTA;
        /*0010*/                   MEMBAR.ALL.GPU ;
        /*0020*/                   ERRBAR;
        /*0030*/                   ATOMG.E.ADD.STRONG.GPU PT, R3, desc[UR4][R72.64], R3 ;
        /*0040*/                   CCTL.IVALL ;
.L_x_1:
        /*0050*/                   LDG.E.STRONG.GPU R0, desc[UR4][R72.64] ;
        /*0060*/                   CCTL.IVALL ;
        /*0070*/              @P0  BRA `(.L_x_1) ;
        /*0080*/                   LD.E R2, desc[UR4][R4.64] ;
        /*0090*/                   EXIT ;
//-----
"""
PRODUCT = f"""
.text.product:
        /*0000*/                   LDG.E.CONSTANT R2, desc[UR4][R4.64] ;
.L_x_2:
        /*0010*/                   LDS R2, [R4] ;
        /*0020*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0030*/              @P0  BRA `(.L_x_2) ;
        /*0040*/                   CALL.ABS.NOINC `({EPILOGUE}) ;
        /*0050*/                   EXIT ;
"""
# (fault, old text, new text, part of the message)
PLANTED = [
    ("a load through the read-only path", "LD.E R2", "LD.E.CONSTANT R2", "LD.E.CONSTANT"),
    ("no fence", "MEMBAR.ALL.GPU", "MEMBAR.ALL.CTA", "without a MEMBAR"),
    ("no invalidation after the arrival", "/*0040*/                   CCTL.IVALL ;",
     "/*0040*/ MOV R1, R2 ;\n" * 8, "an arrival without CCTL"),
    ("no invalidation after the poll", "/*0060*/                   CCTL.IVALL", "/*0060*/ MOV R1, R2",
     "a poll of a counter without CCTL"),
    ("no poll", "LDG.E.STRONG.GPU", "LDG.E", "does not wait"),
    ("local memory in the main loop", "LDS R2", "LDL R2", "local memory"),
    ("a product that polls itself", "LDS R2, [R4]", "LDG.E.STRONG.GPU R2, desc[UR4][R4.64]", "LDG.E.CONSTANT"),
]


# (code, waits, barriers)
CHAINS = [
    ("two loads under way at the same time", "LDG.E R2, desc[UR4][R8.64] ;\nLDG.E R4, desc[UR4][R10.64] ;\n"
     "FADD R6, R2, R4 ;\nEXIT ;", 1, 0),
    ("an address that is loaded", "LDG.E.64 R2, desc[UR4][R8.64] ;\nLDG.E R4, desc[UR4][R2.64] ;\nFADD R6, R4, R4 ;\nEXIT ;", 2, 0),
    ("a load whose result is not used", "LDG.E R2, desc[UR4][R8.64] ;\nEXIT ;", 0, 0),
    ("a store of a result", "LDG.E R2, desc[UR4][R8.64] ;\nSTG.E desc[UR4][R10.64], R2 ;\nBAR.SYNC 0x0 ;\nEXIT ;", 1, 1),
    ("the second half of a wide result", "LDG.E.64 R2, desc[UR4][R8.64] ;\nFADD R6, R3, R3 ;\nEXIT ;", 1, 0),
    ("a predicate", "LDG.E R2, desc[UR4][R8.64] ;\nISETP.NE.AND P0, PT, R2, RZ, PT ;\n@P0 EXIT ;\nEXIT ;", 1, 0),
    ("loads before the wait for earlier kernels", "LDG.E R2, desc[UR4][R8.64] ;\nFADD R6, R2, R2 ;\nBAR.SYNC 0x0 ;\nACQBULK ;\n"
     "LDG.E R4, desc[UR4][R8.64] ;\nFADD R6, R4, R4 ;\nEXIT ;", 1, 0),
    ("copies, of which the last group may be under way", "LDGSTS.E [R2], desc[UR4][R8.64] ;\nLDGDEPBAR ;\n"
     "LDG.E R4, desc[UR4][R8.64] ;\nFADD R6, R4, R4 ;\nLDGSTS.E [R2], desc[UR4][R8.64] ;\nLDGDEPBAR ;\n"
     "DEPBAR.LE SB0, 0x1 ;\nEXIT ;", 1, 0),
    ("copies, all of them", "LDG.E R4, desc[UR4][R8.64] ;\nFADD R6, R4, R4 ;\nLDGSTS.E [R2], desc[UR4][R8.64] ;\nLDGDEPBAR ;\n"
     "DEPBAR.LE SB0, 0x0 ;\nEXIT ;", 2, 0),
    ("a loop, whose body is before its condition", "BRA `(.L_x_2) ;\n.L_x_1:\nLDG.E R2, desc[UR4][R8.64] ;\nFADD R8, R2, R2 ;\n"
     ".L_x_2:\n@P0 BRA `(.L_x_1) ;\nEXIT ;", 1, 0),
    ("the longer of two branches", "@P0 BRA `(.L_x_1) ;\nBAR.SYNC 0x0 ;\nBRA `(.L_x_2) ;\n.L_x_1:\nLDG.E R2, desc[UR4][R8.64] ;\n"
     "FADD R8, R2, R2 ;\nBAR.SYNC 0x0 ;\nBAR.SYNC 0x0 ;\n.L_x_2:\nEXIT ;", 1, 2),
    ("a fence and an atomic", "MEMBAR.ALL.GPU ;\nATOMG.E.ADD.STRONG.GPU PT, R3, desc[UR4][R72.64], R3 ;\n"
     "ISETP.NE.AND P0, PT, R3, RZ, PT ;\nEXIT ;", 2, 0),
    ("a call", "LDG.E R2, desc[UR4][R8.64] ;\nFADD R6, R2, R2 ;\nCALL.REL.NOINC `(callee) ;\nEXIT ;", 3, 1),
]
CALLEE = "LDG.E R2, desc[UR4][R8.64] ;\nFADD R6, R2, R2 ;\nBAR.SYNC 0x0 ;\nLDG.E R2, desc[UR4][R8.64] ;\nFADD R6, R2, R2 ;\nRET.REL.NODEC R4 ;"


def text_of(name, code):
    """Returns code as nvdisasm prints it."""
    return f".text.{name}:\n" + "\n".join(c if c.endswith(":") else f"  /*0000*/  {c}" for c in code.split("\n")) + "\n"


def check_chains():
    for what, code, waits, barriers in CHAINS:
        found = sass_chain.chains_of(sass.parse(text_of("kernel", code) + text_of("callee", CALLEE)))["kernel"]
        if found != (waits, barriers): sys.exit(f"{what}: {found} waits and barriers instead of {(waits, barriers)}")


def faults(shared, product):
    return sass.faults_of(sass.parse(shared), set()) + sass.faults_of(sass.parse(product), {"product"})


def main():
    if found := faults(SHARED, PRODUCT): sys.exit(f"correct code has faults: {found}")
    for what, old, new, message in PLANTED:
        if old not in SHARED + PRODUCT: sys.exit(f"{what}: the code to change was not found")
        found = faults(SHARED.replace(old, new, 1), PRODUCT if old in SHARED else PRODUCT.replace(old, new, 1))
        if not any(message in f for f in found): sys.exit(f"{what}: not found, but {found}")
    check_chains()
    print(f"sass: {len(PLANTED)} planted faults are found, {len(CHAINS)} chains of waits are counted")


main()
