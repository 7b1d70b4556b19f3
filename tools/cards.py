#!/usr/bin/env python3
"""Writes the table of docs/CARDS.md from the reports in docs/cards/*.json.

    tools/cards.py            print the table
    tools/cards.py --write    replace the table in docs/CARDS.md
    tools/cards.py --check    exit status 1 if the table in docs/CARDS.md is another one

A report is the output of `pagedinfer selftest --device cuda --json`, unchanged. A report may lack sections: the
table then has an empty cell. A report with another schema, without a device, or with text that is no JSON is an error.
"""
import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = 1
BEGIN, END = "<!-- cards: begin -->", "<!-- cards: end -->"
# Columns with rates: title, and the name of the rate in the report.
RATES = [("Q8_0, 1 row, GB/s", "Q8_0 in 16 bits, weights, 1 row"),
         ("Q4_K, 1 row, GB/s", "Q4_K in 16 bits, weights, 1 row"),
         ("NVFP4, 1 row, GB/s", "NVFP4 in 16 bits, weights, 1 row"),
         ("attention, keys, GB/s", "attention, 8 sequences x 8192 keys"),
         ("attention, a prompt, TFLOPS", "attention, a prompt of 4096 tokens")]


class Fault(Exception):
    pass


def need(report, name, kind, path):
    if not isinstance(report.get(name), kind):
        raise Fault(f"{path}: no \"{name}\": add the unchanged output of `pagedinfer selftest --json`")
    return report[name]


def read(path):
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise Fault(f"{path}: {e}") from None
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise Fault(f"{path}: schema is not {SCHEMA}")
    device = need(report, "device", dict, path)
    for key in ("model", "compute_capability"):
        need(device, key, str, path)
    need(report, "version", str, path)
    for key, kind in (("driver", dict), ("features", list), ("rates", list)):
        if key in report: need(report, key, kind, path)
    result = need(report, "result", dict, path)
    for key in ("done", "failed"):
        need(result, key, int, path)
    return report


def plain(text):
    """Reports come from anywhere: no cell may contain markup."""
    return "".join(c if c.isalnum() or c in " .,()-+/:" else " " for c in str(text))[:60].strip()


def row(report, path):
    device, result = report["device"], report["result"]
    rates = {r.get("name"): r for r in report.get("rates", []) if isinstance(r, dict)}
    off = [f for f in report.get("features", []) if isinstance(f, dict) and f.get("enabled") is False]
    driver = report.get("driver", {}).get("cuda", "")
    checks = f"{result['failed']} of {result['done']} FAILED" if result["failed"] else f"{result['done']} pass"
    n_off = str(len(off)) if "features" in report else ""
    cells = [plain(device["model"]), plain(device["compute_capability"]), plain(driver), checks, n_off]
    for _, name in RATES:
        rate = rates.get(name, {}).get("rate")
        cells.append(f"{rate:,.0f}" if isinstance(rate, (int, float)) else "")
    return cells + [plain(report["version"]), f"[report]({path.relative_to(ROOT / 'docs').as_posix()})"]


def table(folder):
    titles = ["card", "capability", "driver, CUDA", "checks", "features off", *(t for t, _ in RATES), "version",
              "report"]
    rows = [row(read(p), p) for p in sorted(folder.glob("*.json"))]
    return "\n".join("| " + " | ".join(r) + " |" for r in [titles, ["---"] * len(titles), *rows])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--write", action="store_true")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    page = ROOT / "docs" / "CARDS.md"
    try:
        new = table(ROOT / "docs" / "cards")
    except Fault as e:
        sys.exit(str(e))
    if not a.write and not a.check:
        print(new)
        return
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    if a.check and old.strip() != new:
        sys.exit("docs/CARDS.md: the table is not the reports' one: run tools/cards.py --write")
    if a.write:
        page.write_text(f"{before}{BEGIN}\n{new}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
