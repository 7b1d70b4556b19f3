#!/usr/bin/env python3
"""Compares structured output with python-jsonschema: every text that the masks allow is valid, and valid texts are
allowed.

    check_schemas.py [--n 1000] [--seed 1] [--suite FOLDER] [--list]

Part 1: JSON-Schema-Test-Suite, the required tests of draft 2020-12 (in the sdist of PyPI package jsonschema). A schema
is refused by name or enforced. An enforced schema must reject every invalid instance, given as JSON in the order of
the schema's properties. A valid instance that it rejects is never generated. The script counts these instances; --list
names them. They have types that the keywords do not mention, or properties or items that the schema does not describe.

Part 2: --n random schemas (PAGEDINFER_LONG: 10,000). Random tokens under each schema's masks make a text, which must
be valid.

Exit 77: jsonschema is not installed.
"""
import argparse
import glob
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("PAGEDINFER_BUILD", os.path.join(HERE, "../../build"))
# Files of the suite about features that no schema here can have.
REMOTE = {"refRemote.json", "vocabulary.json", "dynamicRef.json"}
SCHEMA = 1
UNSUPPORTED = -6  # PI_EUNSUPPORTED


class Tool:
    """Runs tool_grammar on a tiny vocabulary that has every byte."""

    def __init__(self, folder):
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tests/tool_tiny_model"), model], check=True, stdout=subprocess.DEVNULL)
        self.process = subprocess.Popen([os.path.join(BUILD, "tests/tool_grammar"), model], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("tool_grammar ended at %s" % json.dumps(command)[:2000])
        return json.loads(line)


# ----------------------------------------------------------------------------------------------------------- the suite

def ordered(value, schema):
    """Returns the value with its properties in the order in which the schema first names them."""
    if isinstance(value, list):
        return [ordered(v, schema) for v in value]
    if not isinstance(value, dict):
        return value
    order = []

    def look(s):
        if isinstance(s, dict):
            order.extend(k for k in s.get("properties", {}) if isinstance(s.get("properties"), dict))
            for v in s.values():
                look(v)
        elif isinstance(s, list):
            for v in s:
                look(v)
    look(schema)
    keys = sorted(value, key=lambda k: order.index(k) if k in order else len(order))
    return {k: ordered(value[k], schema) for k in keys}


def as_text(value, schema):
    return json.dumps(ordered(value, schema), ensure_ascii=False)


def suite(tool, folder, names):
    count = {"schemas": 0, "refused": 0, "valid": 0, "never": 0, "invalid": 0}
    refused, never, bad = {}, [], []
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        if os.path.basename(path) in REMOTE:
            continue
        for case in json.load(open(path, encoding="utf-8")):
            count["schemas"] += 1
            texts = [as_text(t["data"], case["schema"]) for t in case["tests"]]
            answer = tool.ask("match", SCHEMA, json.dumps(case["schema"]), texts)
            name = "%s: %s" % (os.path.basename(path)[:-5], case["description"])
            if isinstance(answer, dict):
                if "allows no text" in answer["error"] and not any(t["valid"] for t in case["tests"]):
                    continue
                count["refused"] += 1
                refused.setdefault(answer["error"][:70], []).append(name)
                continue
            for test, text, got in zip(case["tests"], texts, answer):
                if test["valid"]:
                    count["valid"] += got
                    count["never"] += not got
                    if not got:
                        never.append("%s: %s: %s" % (name, test["description"], text[:80]))
                else:
                    count["invalid"] += 1
                    if got:
                        bad.append("%s: %s: %s got through" % (name, test["description"], text[:80]))
    print("suite: %(schemas)d schemas, %(refused)d refused by name; of the others %(valid)d valid instances get through, %(never)d "
          "are never generated, %(invalid)d invalid ones" % count)
    kinds = {}
    for why, cases in refused.items():
        kind = re.search(r"the keyword (\w+)|(\$ref|oneOf|unevaluatedProperties)", why)
        kind = (kind[1] or kind[2]) if kind else why
        kinds[kind] = kinds.get(kind, 0) + len(cases)
    print("refused: " + ", ".join("%s %d" % k for k in sorted(kinds.items(), key=lambda k: (-k[1], k[0]))))
    if names:
        for why, cases in sorted(refused.items()):
            print("  refused, %s (%d): %s" % (why, len(cases), "; ".join(cases)[:300]))
        for n in never:
            print("  never: " + n)
    for b in bad:
        print("  BAD: " + b)
    return not bad and count["valid"] > 200 and count["schemas"] - count["refused"] > 100


# ------------------------------------------------------------------------------------------------------ random schemas

class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def name(self):
        return self.r.choice(["a", "b", "name", "näme", "x y", "q\"uote", "back\\slash", "", "ab", "abc", "n", "\n", "日本"])

    def value(self, depth=0):
        r = self.r
        kind = r.randrange(8 if depth < 2 else 6)
        if kind == 6:
            return [self.value(depth + 1) for _ in range(r.randrange(3))]
        if kind == 7:
            return {self.name(): self.value(depth + 1) for _ in range(r.randrange(3))}
        return r.choice([None, True, False, r.randrange(-50, 50), round(r.uniform(-9, 9), 2), self.name(), "", 1e20, 0.1])

    def bounds(self, s, low, high, span):
        r = self.r
        a = r.choice([r.randint(-span, span), round(r.uniform(-span, span), r.randrange(4))])
        b = a + r.choice([0, 1, r.randint(0, span), round(r.uniform(0, span), r.randrange(4))])
        if r.random() < 0.7:
            s[r.choice(low)] = a
        if r.random() < 0.7:
            s[r.choice(high)] = b

    def text(self):
        r = self.r
        s = {"type": "string"}
        k = r.randrange(6)
        if k == 0:
            s["pattern"] = r.choice(["^[a-z]+$", "^\\d{2,4}(-x)?$", "ab", "^a|b$", "^(foo|bar)+\\s?$", "[^a-z]", "^.{2}$", "\\\\", "^\"", "\\n"])
        elif k == 1:
            s["format"] = r.choice(["date", "time", "date-time", "uuid", "ipv4", "email"])
        else:
            if r.random() < 0.5:
                s["minLength"] = r.randrange(5)
            if r.random() < 0.5:
                s["maxLength"] = s.get("minLength", 0) + r.randrange(9)
        return s

    def obj(self, depth):
        r = self.r
        s = {"type": "object"}
        if r.random() < 0.9:
            s["properties"] = {self.name(): self.schema(depth + 1) for _ in range(r.randrange(6))}
        names = list(s.get("properties", {})) + [self.name()]
        if r.random() < 0.6:
            s["required"] = r.sample(names, r.randint(0, len(names)))
        if r.random() < 0.4:
            s["additionalProperties"] = r.choice([False, True, self.schema(depth + 1)])
        if r.random() < 0.2:
            s["minProperties"] = r.randrange(3)
        if r.random() < 0.2:
            s["maxProperties"] = r.randrange(5)
        return s

    def arr(self, depth):
        r = self.r
        s = {"type": "array"}
        if r.random() < 0.7:
            s["items"] = self.schema(depth + 1)
        if r.random() < 0.3:
            s["prefixItems"] = [self.schema(depth + 1) for _ in range(r.randint(1, 3))]
        if r.random() < 0.4:
            s["minItems"] = r.randrange(4)
        if r.random() < 0.5:
            s["maxItems"] = s.get("minItems", 0) + r.randrange(4)
        return s

    def schema(self, depth=0):
        r = self.r
        k = r.randrange(16 if depth < 3 else 9)
        if k < 2:
            return self.text()
        if k < 4:
            s = {"type": r.choice(["integer", "number"])}
            self.bounds(s, ["minimum", "exclusiveMinimum"], ["maximum", "exclusiveMaximum"], r.choice([3, 120, 100000]))
            return s
        if k == 4:
            return {"type": r.choice(["null", "boolean", ["string", "null"], ["integer", "boolean"]])}
        if k == 5:
            return {"enum": [self.value() for _ in range(r.randint(1, 5))]}
        if k == 6:
            return {"const": self.value()}
        if k == 7:
            return r.choice([{}, True, {"description": "anything"}])
        if k == 8:
            return {"$ref": "#/$defs/" + r.choice(["p", "q"])}
        if k < 12:
            return self.obj(depth)
        if k < 14:
            return self.arr(depth)
        if k == 14:
            return {"anyOf": [self.schema(depth + 1) for _ in range(r.randint(1, 3))]}
        both = [self.obj(depth), self.obj(depth)] if r.random() < 0.5 else [{"minimum": r.randrange(9)}, {"type": "number", "maximum": 20}]
        return {r.choice(["allOf", "allOf", "oneOf"]): both}

    def whole(self):
        s = self.schema()
        if s is True:
            s = {}
        s = dict(s)
        s["$defs"] = {"p": self.schema(1), "q": {"type": "object", "properties": {"next": {"$ref": "#/$defs/q"}, "v": self.schema(2)},
                                                 "required": ["v"]}}
        return s


def as_written(text):
    """Parses JSON; a number that is not finite raises ValueError. A repeated key keeps its last value."""
    def pairs(p):
        return dict(p)
    value = json.loads(text, object_pairs_hook=pairs)

    def finite(v):
        if isinstance(v, float) and not math.isfinite(v):
            raise ValueError("a number out of range")
        for x in v.values() if isinstance(v, dict) else v if isinstance(v, list) else ():
            finite(x)
    finite(value)
    return value


def random_schemas(tool, n, seed, jsonschema):
    done = unfinished = nothing = 0
    refused = {}
    checker = jsonschema.FormatChecker(["date", "ipv4", "uuid"])
    for i in range(n):
        schema = Maker(seed * 1000003 + i).whole()
        answer = tool.ask("generate", SCHEMA, json.dumps(schema), i, 600)
        if "error" in answer:
            if answer.get("code") == UNSUPPORTED:
                why = answer["error"][:60]
                refused[why] = refused.get(why, 0) + 1
            elif "allows no text" in answer["error"]:
                nothing += 1
            else:
                print("BAD: %s\n  %s" % (answer["error"], json.dumps(schema)))
                return False
            continue
        if not answer["done"]:
            unfinished += 1
            continue
        try:
            value = as_written(answer["text"])
            jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)
        except Exception as e:  # pylint: disable=broad-except
            print("BAD: seed %d\n  %s\n  %s\n  %s" % (i, json.dumps(schema), answer["text"], str(e)[:300]))
            return False
        done += 1
    print("random schemas: %d of %d gave a text, all of them valid; %d texts were longer than 600 tokens, %d schemas allow nothing, %d are "
          "refused" % (done, n, unfinished, nothing, sum(refused.values())))
    for why, k in sorted(refused.items(), key=lambda x: -x[1]):
        print("  %4d %s" % (k, why))
    return done > n * 0.6


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=10000 if os.environ.get("PAGEDINFER_LONG") else 1000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--suite", default=os.environ.get("PAGEDINFER_JSON_SUITE"))
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    try:
        import jsonschema  # pylint: disable=import-outside-toplevel
    except ImportError:
        print("PyPI package jsonschema is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        tool = Tool(folder)
        ok = random_schemas(tool, a.n, a.seed, jsonschema)
        if a.suite and os.path.exists(os.path.join(a.suite, "type.json")):
            ok = suite(tool, a.suite, a.list) and ok
        else:
            print("JSON-Schema-Test-Suite could not be fetched: that part is left out")
        tool.process.stdin.close()
        ok = tool.process.wait(60) == 0 and ok
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
