#!/usr/bin/env python3
"""Checks tools/cards.py: docs/CARDS.md has the table of docs/cards/*.json; a report of the self-test is accepted, and
damaged reports are refused with their file's name.

usage: check_cards.py     PAGEDINFER_BUILD: build folder; its emulated tool writes a report, if the build has one
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import cards

BUILD = Path(os.environ.get("PAGEDINFER_BUILD", ROOT / "build"))
faults = []


def expect(ok, what):
    if not ok: faults.append(what)


def refused(folder, report, what):
    path = Path(folder) / "report.json"
    path.write_text(report if isinstance(report, str) else json.dumps(report), encoding="utf-8")
    try:
        cards.row(cards.read(path), ROOT / "docs" / "cards" / "report.json")
        faults.append(f"accepted: {what}")
    except cards.Fault as e:
        expect(str(path) in str(e), f"{what}: the error does not name the file: {e}")


run = subprocess.run([sys.executable, ROOT / "tools" / "cards.py", "--check"], capture_output=True, text=True)
expect(run.returncode == 0, run.stderr)
good = json.loads(next((ROOT / "docs" / "cards").glob("*.json")).read_text())
with tempfile.TemporaryDirectory() as folder:
    refused(folder, "{", "no JSON")
    refused(folder, "[]", "no object")
    refused(folder, {**good, "schema": 2}, "another schema")
    for key in ("device", "version", "result"):
        refused(folder, {k: v for k, v in good.items() if k != key}, f"no {key}")
    for key in ("driver", "features", "rates", "result", "device"):
        refused(folder, {**good, key: "text"}, f"{key} is text")
    refused(folder, {**good, "result": {"done": "many", "failed": 0}}, "a number is text")
    hostile = {**good, "device": {**good["device"], "model": "H200 | <script>[x](y)"}}
    path = ROOT / "docs" / "cards" / "report.json"
    expect(not set("|<>[]") & set(cards.row(hostile, path)[0]), "a cell contains markup")
    expect(cards.row({**good, "result": {"done": 9, "failed": 2}}, path)[3] == "2 of 9 FAILED", "failed checks")
    tool = BUILD / "tests" / "simt" / "pagedinfer_emu"
    if tool.exists():
        run = subprocess.run([tool, "selftest", "--device", "emu", "--checks", "rows.rope,rates", "--json"],
                             capture_output=True, text=True, timeout=600)
        expect(run.returncode == 0, run.stderr)
        own = Path(folder) / "own.json"
        own.write_text(run.stdout)
        cells = cards.row(cards.read(own), path)
        expect(cells[0] == "emu" and cells[3] == "1 pass" and cells[5] == "", f"the tool's report: {cells}")
        names = {r["name"] for r in json.loads(run.stdout)["rates"]}
        weights = [n for _, n in cards.RATES if "weights" in n]
        expect(set(weights) <= names, f"rates of the table that the tool does not measure: {set(weights) - names}")
if faults: sys.exit("\n".join(faults))
print("cards: the table is the reports' one")
