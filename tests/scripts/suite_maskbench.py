#!/usr/bin/env python3
"""MaskBench: which real-world JSON schemas compile, and whether their instances are told apart.

    suite_maskbench.py FOLDER|ARCHIVE [--sample N] [--list] [--write] [--model FILE.gguf]

Reads MaskBench's data (github.com/guidance-ai/jsonschemabench, maskbench/data): one file per schema, with instances that
are valid or invalid. Each schema is compiled; the bytes of each instance go through the automaton, as compact JSON in the
order of the file. An invalid instance that gets through is an error. A valid one that does not is counted, with its
reason: a generator writes properties in the schema's order, and no others unless the schema speaks of them.

--sample N takes every N-th schema. --list names refusals and instances. --model adds compile and mask times with the
vocabulary of a model. --write puts the results into docs/SUITES.md.
"""
import argparse
import collections
import glob
import json
import os
import re
import sys
import tarfile
import tempfile

import suites
from check_schemas import SCHEMA, Tool


def in_order(value, orders):
    """The value with each object's properties in the order of the properties keyword that has most of them."""
    if isinstance(value, list):
        return [in_order(v, orders) for v in value]
    if not isinstance(value, dict):
        return value
    best = max(orders, key=lambda o: sum(k in o for k in value), default={})
    return {k: in_order(value[k], orders) for k in sorted(value, key=lambda k: best.get(k, len(best)))}


def orders_of(schema, out):
    """The places of names in each properties keyword of the schema."""
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
    """The reason of a refusal without names and numbers of the schema."""
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


def main():
    p = argparse.ArgumentParser()
    p.add_argument("data")
    p.add_argument("--sample", type=int, default=1)
    p.add_argument("--list", action="store_true")
    p.add_argument("--write", action="store_true")
    p.add_argument("--model")
    p.add_argument("--only")
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
    return 0 if ok and not count["bad"] else 1


if __name__ == "__main__":
    sys.exit(main())
