#!/usr/bin/env python3
"""MaskBench: counts the real-world JSON schemas that compile, and checks that valid and invalid instances are
distinguished.

    suite_maskbench.py FOLDER|ARCHIVE [--sample N] [--list] [--write] [--model FILE.gguf]

Reads MaskBench's data (github.com/guidance-ai/jsonschemabench, maskbench/data): one file per schema, with valid and
invalid instances. Each schema is compiled. The automaton reads the bytes of each instance, as compact JSON in the
order of the file. An accepted invalid instance is an error. A rejected valid one is counted with its reason:
generation writes properties in the schema's order, and others only if the schema mentions them.

--sample N takes every N-th schema. --list names refusals and instances. --model adds compile and mask times with the
vocabulary of a model. --write puts the results into docs/SUITES.md.
"""
import argparse
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

import suites
from check_schemas import BUILD, SCHEMA, Tool


def in_order(value, orders):
    """Returns the value with each object's properties in the order of the best-matching properties keyword."""
    if isinstance(value, list):
        return [in_order(v, orders) for v in value]
    if not isinstance(value, dict):
        return value
    best = max(orders, key=lambda o: sum(k in o for k in value), default={})
    return {k: in_order(value[k], orders) for k in sorted(value, key=lambda k: best.get(k, len(best)))}


def orders_of(schema, out):
    """Appends {name: position} of each properties keyword of the schema to `out`. Returns `out`."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            out.append({k: i for i, k in enumerate(schema["properties"])})
        for v in schema.values():
            orders_of(v, out)
    elif isinstance(schema, list):
        for v in schema:
            orders_of(v, out)
    return out


def without_paths(why):
    """Returns the reason of a refusal without names and numbers of the schema."""
    why = re.sub(r"^json-schema: (at #\S*: )?", "", why)
    return re.sub(r'"[^"]*"|\d+', "_", why)[:90]


def run(tool, files, count, show):
    refused, never, bad = collections.defaultdict(list), [], []
    for path in files:
        name = os.path.basename(path)[:-5]
        with open(path, encoding="utf-8") as f:
            case = json.load(f)
        tests = case.get("tests", [])
        count["schemas"] += 1
        texts = [json.dumps(t["data"], ensure_ascii=False) for t in tests]
        orders = orders_of(case["schema"], [])
        moved = [json.dumps(in_order(t["data"], orders), ensure_ascii=False) for t in tests]
        answer = tool.ask("match", SCHEMA, json.dumps(case["schema"]), texts + moved)
        if isinstance(answer, dict):
            if "allows no text" in answer["error"] and not any(t["valid"] for t in tests):
                count["nothing"] += 1
                continue
            count["refused"] += 1
            refused[without_paths(answer["error"])].append("%s (%s)" % (name, answer["error"][:160]))
            continue
        wrong = False
        for test, text, as_is, ordered in zip(tests, texts, answer, answer[len(texts):]):
            if test["valid"]:
                count["valid"] += 1
                count["kept"] += as_is
                count["moved"] += ordered and not as_is
                if not as_is and not ordered:
                    count["never"] += 1
                    wrong = True
                    never.append("%s: %s" % (name, text[:300]))
            else:
                count["invalid"] += 1
                if as_is or ordered:
                    bad.append("%s: %s" % (name, text[:300]))
        count["passing"] += not wrong
    if show:
        for why, names in sorted(refused.items(), key=lambda x: -len(x[1])):
            print("%4d %s\n       %s" % (len(names), why, "\n       ".join(names[:12])))
        for n in never:
            print("never: " + n)
    for b in bad:
        print("BAD: invalid, but accepted: " + b)
    count["bad"] = len(bad)
    return refused


class Model(Tool):
    """Runs tool_grammar on the vocabulary of a model."""

    def __init__(self, model):
        self.process = subprocess.Popen([os.path.join(BUILD, "tests/tool_grammar"), model], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, encoding="utf-8")


def measure(model, files):
    """Measures compile and mask times as CPU time; each valid instance is processed token by token."""
    tool = Model(model)
    slow = []
    for path in files:
        with open(path, encoding="utf-8") as f:
            case = json.load(f)
        orders = orders_of(case["schema"], [])
        texts = [json.dumps(in_order(t["data"], orders), ensure_ascii=False) for t in case.get("tests", []) if t["valid"]]
        answer = tool.ask("bench", SCHEMA, json.dumps(case["schema"]), texts)
        if "compile_ms" in answer:
            slow.append((answer["compile_ms"], answer["max_us"], os.path.basename(path)[:-5]))
    totals = tool.ask("totals")
    tool.process.stdin.close()
    tool.process.wait(60)
    for kind, key in (("compile, ms", 0), ("mask, us", 1)):
        worst = sorted(slow, key=lambda s, k=key: -s[k])[:8]
        print("slowest " + kind + ": " + ", ".join("%s %.1f" % (s[2], s[key]) for s in worst))
    return totals


# Published by the authors of MaskBench for all 10,163 schemas, with another vocabulary (128,256 tokens) and machine.
PEERS = """| engine | schemas refused, or failed otherwise | invalid instances accepted (schemas) | schemas with a valid instance refused | \
compile median | compile p99 | mask median | mask p99 |
|---|---|---|---|---|---|---|---|
%s
| llguidance 0.6.7 | 2,373 of 10,163 (23.3 %%) | 0 | 25 | 0.99 ms | 14 ms | 36 us | 0.46 ms |
| xgrammar 0.1.10, default | 2,289 (22.5 %%) | 1,249 | 1,409 | 535 ms | 62,151 ms | 8 us | 4.9 ms |
| llama.cpp (llama-cpp-python 0.3.6) | 1,293 (12.7 %%) | 649 | 2,745 | 0.31 ms | 31 ms | 14,483 us | 57 ms |
| outlines 0.1.13 | 4,641 (45.7 %%) | 614 | 649 | 6,987 ms | 621,694 ms | 118 us | 358 ms |
"""


def page(count, totals, model):
    n, refused = count["schemas"], count["refused"]
    ours = "| this tree | %d of %s (%.1f %%) | %d | %d | %s |" % (
        refused, format(n, ","), 100 * refused / n, count["bad"], n - refused - count["nothing"] - count["passing"],
        "%.2f ms | %.1f ms | %.0f us | %.2f ms" % (totals["compile_ms"], totals["compile_p99_ms"], totals["median_us"],
                                                   totals["p99_us"] / 1e3) if totals else "- | - | - | -")
    text = ["%s schemas of [MaskBench](https://github.com/guidance-ai/jsonschemabench/tree/main/maskbench) (a quarter of it), with "
            "%s valid and %s invalid instances; `tests/scripts/suite_maskbench.py DATA --model MODEL --write`." % (
                format(n, ","), format(count["valid"], ","), format(count["invalid"], ",")), "", PEERS.replace("\\\n", "") % ours]
    text.append("Numbers of other engines are from maskbench/README.md of that repository. They cover all of its "
                "schemas, treat formats as the engine does, and are wall times of another machine. Ours are CPU times%s. "
                "Of %s valid instances, %s pass unchanged and %s with their properties in the schema's order. The other "
                "%s are never generated: nearly all have a property that the schema does not name. "
                "Unnamed properties are written only with additionalProperties or patternProperties." % (
                    " with the vocabulary of " + os.path.basename(model) if model else "", format(count["valid"], ","),
                    format(count["kept"], ","), format(count["moved"], ","), format(count["never"], ",")))
    return "\n".join(text)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("data")
    p.add_argument("--sample", type=int, default=1)
    p.add_argument("--list", action="store_true")
    p.add_argument("--write", action="store_true")
    p.add_argument("--model")
    p.add_argument("--only", help="a regular expression of file names")
    a = p.parse_args()
    count = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        data = a.data
        if os.path.isfile(data):
            with tarfile.open(data) as t:
                t.extractall(folder + "/data", filter="data")
            data = folder + "/data"
        files = sorted(glob.glob(os.path.join(data, "**/*.json"), recursive=True))[::a.sample]
        if a.only:
            files = [f for f in files if re.search(a.only, f)]
        tool = Tool(folder)
        run(tool, files, count, a.list)
        tool.process.stdin.close()
        ok = tool.process.wait(60) == 0
        print(dict(count))
        totals = measure(a.model, files) if a.model else None
    if totals:
        print(totals)
    if a.write:
        suites.publish("maskbench", page(count, totals, a.model))
    return 0 if ok and not count["bad"] else 1


if __name__ == "__main__":
    sys.exit(main())
