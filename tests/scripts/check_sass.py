#!/usr/bin/env python3
"""Checks the checks of tools/sass.py: each planted fault in a disassembly is found, and correct code has none. Needs no
toolkit.

usage: check_sass.py
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import sass

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


def faults(shared, product):
    return sass.faults_of(sass.parse(shared), set()) + sass.faults_of(sass.parse(product), {"product"})


def main():
    if found := faults(SHARED, PRODUCT): sys.exit(f"correct code has faults: {found}")
    for what, old, new, message in PLANTED:
        if old not in SHARED + PRODUCT: sys.exit(f"{what}: the code to change was not found")
        found = faults(SHARED.replace(old, new, 1), PRODUCT if old in SHARED else PRODUCT.replace(old, new, 1))
        if not any(message in f for f in found): sys.exit(f"{what}: not found, but {found}")
    print(f"sass: {len(PLANTED)} planted faults are found")


main()
