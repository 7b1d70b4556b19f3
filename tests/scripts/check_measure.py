#!/usr/bin/env python3
"""Runs tools/measure_card.sh with the emulated tool and a tiny model: each step writes its file, a command that fails or
hangs is reported and does not end the script, and wrong arguments are refused.

usage: check_measure.py     PAGEDINFER_BUILD: build folder with tests; exit status 77 if it has no emulated tool
"""
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PAGEDINFER_BUILD", ROOT / "build")).resolve()
EMU, TINY = BUILD / "tests" / "simt" / "pagedinfer_emu", BUILD / "tests" / "tool_tiny_model"
SCRIPT = ROOT / "tools" / "measure_card.sh"
faults = []


def run(*flags):
    return subprocess.run(["bash", SCRIPT, *map(str, flags)], capture_output=True, text=True, timeout=1800)


def expect(ok, what):
    if not ok: faults.append(what)


if not EMU.exists() or not TINY.exists():
    print("the build has no emulated tool")
    sys.exit(77)
for flags in (["--scale", "0"], ["--scale", "x"], ["--nothing"], ["--tool"]):
    expect(run("--dry-run", *flags).returncode == 64, f"accepted: {flags}")
expect(run("--tool", "/nowhere").returncode == 66, "a tool that does not exist")
dry = run("--dry-run").stdout
for word in ("--pdl off", "--cuda-waiting-blocks 1", "--cuda-fuse off", "--stress 30", "racecheck", "synth.py"):
    expect(word in dry, f"the dry run has no {word}")
expect(all(": timeout " in line for line in dry.splitlines()), "a command without a time limit")
with tempfile.TemporaryDirectory() as folder:
    model, out = Path(folder) / "tiny.gguf", Path(folder) / "out"
    subprocess.run([TINY, model, "32768"], check=True, stdout=subprocess.DEVNULL)
    r = run("--tool", EMU, "--device", "emu", "--model", model, "--out", out, "--scale", 64, "selftest", "launch",
            "fuse", "keys", "prompts", "stress")
    expect(r.returncode == 0, f"exit status {r.returncode}:\n{r.stdout}{r.stderr}")
    counts = {"selftest.txt": 1, "launch.txt": 5, "fuse.txt": 3, "keys.txt": 2, "prompts.txt": 1, "stress.txt": 1}
    for name, count in counts.items():
        text = (out / name).read_text() if (out / name).exists() else ""
        expect(text.count("\nrc 0\n") == count, f"{name}: {text[-500:]}")
    expect('"schema":1' in (out / "selftest.json").read_text(), "selftest.json")
    # A tool that fails for bench, and never ends for selftest.
    bad = Path(folder) / "bad"
    bad.write_text("#!/bin/sh\n[ $1 = selftest ] && exec sleep 1000\nexit 3\n")
    bad.chmod(bad.stat().st_mode | stat.S_IXUSR)
    script = Path(folder) / "tools" / "measure_card.sh"
    script.parent.mkdir()
    script.write_text(SCRIPT.read_text().replace("run stress.txt 90", "run stress.txt 1"))
    r = subprocess.run(["bash", script, "--tool", bad, "--model", model, "--out", out / "bad", "--scale", "64",
                        "stress", "fuse"], capture_output=True, text=True, timeout=300)
    summary = (out / "bad" / "summary.txt").read_text()
    expect(r.returncode == 1 and "rc 124" in summary and summary.count("rc 3") == 3, f"failures: {r.returncode}\n{summary}")
if faults: sys.exit("\n".join(faults))
print("measure_card: all steps run on the emulated device")
