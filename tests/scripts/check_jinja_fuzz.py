#!/usr/bin/env python3
"""Compares template rendering with Python's jinja2: every character's case and class, then random small expressions.

    check_jinja_fuzz.py [--tool build/tests/tool_chat_template] [--n 1500] [--seed 1]

Both must print the same text, or both must fail. Intended differences are left out: integers have 64 bits here,
jinja2's generators and views are lists here, and functions and the like print differently. Only characters
that both Unicode versions define are compared. Exit 77: jinja2 is not installed.
"""
import argparse
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
import warnings

import check_templates

# Code points per template: the library limits the work of one rendering.
CHUNK = 8192
CASES = ("{% for c in s %}{{ c.upper() }} {{ c.lower() }} {{ c.title() }} {{ c | title }} {{ [c] }} {{ c.isalpha() }}"
         "{{ c.isalnum() }}{{ c.isdigit() }}{{ c.isdecimal() }}{{ c.isspace() }}{{ c.isupper() }}{{ c.islower() }}"
         "{{ ('a' ~ c ~ 'Σ').lower() }} {{ ('aΣ' ~ c ~ 'a') | lower }} {{ ('aΣ' ~ c) | capitalize }} {{ (c ~ '1') | int }}"
         "{{ ('a' ~ c ~ 'b') | wordcount }}{{ ('a' ~ c ~ 'b').splitlines() | length }}\n{% endfor %}")
STRINGS = ["", "a", "Hello, World", "größe", "ΌΣΟΣ ΣΑΣ", "it's", "12", " 7 ", "-3.5", "1_000", "0x1F", "1e3", "inf", "٣", "ǆabc",
           "a\nb\n\nc", "x\u2028y\rz\r\n", "  two  words ", "ﬁ-(ß)[i", "tab\there", "日本 語\u3000", "%s|%d", "\u200b\U0001F600",
           "{}", "true", "a,b,,c", "İI"]
NAMES = {"s": "Hello, World", "u": "straße", "n": 7, "f": 2.5, "t": True, "no": None, "l": [3, 1, 2], "ls": ["b", "A", "c"],
         "d": {"b": 1, "a": {"x": [10]}}, "rows": [{"k": "x", "v": 1}, {"k": "y", "v": 2, "o": True}], "e": "", "z": 0}
UNARY = ["upper", "lower", "title", "capitalize", "trim", "string", "length", "list", "first", "last", "reverse | list", "sort",
         "int", "float", "abs", "round", "tojson", "wordcount", "indent", "join", "unique | list", "min", "max", "sum",
         "int(5)", "int(0, 16)", "int(0, 0)", "float(1)", "round(1)", "round(0, 'floor')", "default('d')", "default('d', true)",
         "indent(2)", "indent(true)", "indent('>', true)", "indent(1, blank=true)", "join('-')", "replace('a', 'b')",
         "replace('l', 'L', true)", "map('upper') | list", "map('int') | list", "map(attribute='k') | list", "select | list",
         "select('string') | list", "reject('none') | list", "selectattr('o') | list", "selectattr('v', 'gt', true) | list",
         "sort(reverse=true)", "sort(case_sensitive=true)", "dictsort", "items | list", "tojson(indent=true)", "sum(start=true)",
         "format(1, true)", "center(9)", "batch(2) | list"]
METHODS = ["upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip('aH')", "split()", "split(',', true)", "split('l')",
           "rsplit(none, 1)", "splitlines()", "splitlines(true)", "isdigit()", "isalpha()", "isupper()", "islower()", "isalnum()",
           "startswith('a')", "endswith(('d', 'e'))", "find('l')", "rfind('l')", "count('l')", "replace('l', '')", "join(ls)",
           "format(1, true)", "removeprefix('a')", "items() | list", "keys() | list", "values() | list", "get('b')", "get(t)",
           "index(1)", "count(1)", "copy()", "a", "b", "x", "isspace()"]
TESTS = ["defined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "false",
         "odd", "even", "divisibleby(2)", "divisibleby(t)", "lower", "upper", "in [1, 'a']", "eq 1", "gt 1", "sameas true", "callable"]


class Maker:
    """Makes random expressions."""

    def __init__(self, rnd):
        self.rnd = rnd

    def text(self):
        return "'" + self.rnd.choice(STRINGS).replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r") + "'"

    def leaf(self):
        r = self.rnd.random()
        if r < 0.3:
            return self.text()
        if r < 0.6:
            return self.rnd.choice(list(NAMES) + ["missing"])
        if r < 0.9:
            return self.rnd.choice(["0", "1", "-1", "3", "2.5", "true", "false", "none", "1e20", "0.1", "10", "-0.0", "1.0"])
        return self.rnd.choice(["[]", "{}", "()", "range(3) | list", "range(t) | list", "[true, 1]", "{true: 'a', 'b': 2}", "dict(a=1, **d)"])

    def expr(self, depth):
        if depth <= 0 or self.rnd.random() < 0.1:
            return self.leaf()
        a, b = self.expr(depth - 1), self.expr(depth - self.rnd.choice([1, 2]))
        kind = self.rnd.randrange(11)
        if kind == 0:
            return f"({a} {self.rnd.choice(['+', '-', '*', '/', '//', '%', '~', '+', '~'])} {b})"
        if kind == 1:
            return f"({a} {self.rnd.choice(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in', 'and', 'or'])} {b})"
        if kind in (2, 3, 4):
            return f"({a} | {self.rnd.choice(UNARY)})"
        if kind in (5, 6):
            return f"({a}).{self.rnd.choice(METHODS)}"
        if kind == 7:
            return f"({a} is {self.rnd.choice(['', '', 'not '])}{self.rnd.choice(TESTS)})"
        if kind == 8:
            return f"({a})[{self.rnd.choice(['0', '-1', 't', '1:', ':t', '::-1', '::2', '-2:', repr('a'), b])}]"
        if kind == 9:
            return self.rnd.choice([f"[{a}, {b}]", f"({a}, {b})", f"{{'k': {a}, 1: {b}}}", f"({a} if {b} else 0)", f"(not {a})", f"(-({a}))"])
        return f"({a} | {self.rnd.choice(['join(' + b + ')', 'default(' + b + ')', 'int(' + b + ')', 'indent(' + b + ')', 'round(' + b + ')'])})"

    def template(self):
        e = self.expr(self.rnd.choice([1, 2, 2, 3, 3, 4]))
        if self.rnd.random() < 0.15:
            return ("{% macro m(a, b=2) %}{{ a }}{{ b }}" + self.rnd.choice(["", "{{ varargs }}", "{{ kwargs }}{{ varargs }}"]) +
                    "{% endmacro %}{{ m(" + self.rnd.choice([e, f"*{e}", f"1, *[{e}]", f"**{e}", f"b={e}", f"1, 2, {e}"]) + ") }}")
        if self.rnd.random() < 0.15:
            return "{% for i in " + e + " %}{{ loop.cycle('a', t) }}{{ loop.changed(i) }}{{ i }}{% endfor %}"
        return "{{ " + e + " }}"


def render(tool, tmp, name, text, variables):
    """Returns the library's output, or None and its error message."""
    path = os.path.join(tmp, name)
    with open(path, "w") as f:
        f.write(text)
    with open(path + ".json", "w") as f:
        json.dump(variables, f)
    run = subprocess.run([tool, path, path + ".json", str(check_templates.NOW)], capture_output=True, timeout=120)
    if run.returncode not in (0, 1):
        return None, f"exit status {run.returncode}: {run.stderr.decode()}"
    return (run.stdout.decode(), "") if run.returncode == 0 else (None, run.stderr.decode().strip())


def wanted(env, text, variables):
    try:
        return env.from_string(text).render(**json.loads(json.dumps(variables))), ""
    except Exception as e:  # any exception counts as an error
        return None, repr(e)


def on_purpose(want, why, said):
    """True if the two results may differ on purpose."""
    if want is None:
        return "generator" in why or "dict_" in why or "Exceeds the limit" in why or "Unhandled" in why
    if "cannot be sliced" in said or "slice's bounds" in said:
        return True  # jinja2 makes an undefined value of this, but only if all operands are constant
    return "too large" in said or any(x in want for x in ("<generator", "<bound", "<built", "<function", "<Loop", "<Macro", "dict_items(",
                                                          "dict_keys(", "dict_values(", "range(", "<class", "Undefined"))


def same_unicode():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/base/unicode_tables.h")
    with open(here) as f:
        return f"Unicode {unicodedata.unidata_version} " in f.readline().replace(":", " :")


def check_characters(env, tool, tmp, pool):
    chars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    if not same_unicode():
        print("check_jinja_fuzz: Python and the tables have different Unicode versions: unassigned characters are left out")
        chars = [c for c in chars if unicodedata.category(c) not in ("Cn", "Co")]
    else:  # characters without expected differences are sampled
        chars = [c for c in chars if ord(c) < 0x20000 or ord(c) >> 16 == 14 and ord(c) & 0xFFFF < 0x400 or ord(c) % 97 == 0]
        chars = [c for c in chars if unicodedata.category(c) not in ("Lo", "Co", "Cn") or ord(c) < 0x3000 or ord(c) % 11 == 0]
    todo = [chars[i:i + CHUNK] for i in range(0, len(chars), CHUNK)]

    def one(i):
        v = {"s": "".join(todo[i])}
        want, why = wanted(env, CASES, v)
        got, said = render(tool, tmp, f"chars{i}", CASES, v)
        if want is None or got is None:
            return [f"characters from U+{ord(todo[i][0]):04X}: {why or said}"]
        # split("\n") keeps the lines of both in step, even where a character is a line break in Python.
        return [f"{x!r}, expected {y!r}" for x, y in zip(got.split("\n"), want.split("\n")) if x != y]
    bad = [line for lines in pool.map(one, range(len(todo))) for line in lines]
    return len(chars), bad


def check_expressions(env, tool, tmp, pool, n, seed):
    makers = [Maker(random.Random(seed * 1000003 + i)) for i in range(n)]
    templates = [m.template() for m in makers]

    def one(i):
        want, why = wanted(env, templates[i], NAMES)
        got, said = render(tool, tmp, f"expr{i}", templates[i], NAMES)
        if got == want and "exit status" not in said or on_purpose(want, why, said):
            return []
        return [f"{templates[i]}\n  jinja2 {why if want is None else repr(want)}\n  here   {said if got is None else repr(got)}"]
    return [line for lines in pool.map(one, range(n)) for line in lines]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tool", default=os.path.join(os.environ.get("PAGEDINFER_BUILD", "build"), "tests", "tool_chat_template"))
    ap.add_argument("--n", type=int, default=1500)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    try:
        import jinja2
    except ImportError:
        print("check_jinja_fuzz: jinja2 is not installed")
        return 77
    warnings.simplefilter("ignore")  # warnings about (1)[0] and similar expressions
    env = check_templates.environment(jinja2)
    del env.filters["center"], env.filters["batch"]  # filters that the library does not have
    with tempfile.TemporaryDirectory() as tmp, concurrent.futures.ThreadPoolExecutor(2) as pool:
        n_chars, bad = check_characters(env, args.tool, tmp, pool)
        bad_chars = len(bad)
        bad += check_expressions(env, args.tool, tmp, pool, args.n, args.seed)
    for line in bad[:40]:
        print(line)
    print(f"check_jinja_fuzz: {n_chars} characters, {bad_chars} differ; {args.n} expressions, {len(bad) - bad_chars} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
