#!/usr/bin/env python3
"""Renders chat templates of real models with this library and with Python's jinja2, configured as in transformers.

    check_templates.py [--tool build/tests/tool_chat_template] [--templates DIR] [FILE.gguf ...]

The templates are those of llama.cpp's source tree (models/templates/*.jinja; by default from the peer's cache folder)
and of the given GGUF files. Each is rendered for conversations of all kinds, with and without tools, with thinking on
and off. Both must write the same bytes, or both must fail. Exit 77: jinja2 or the templates are missing.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

NOW = 1770000000

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city, \"now\".\nIn °C.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "Name of the city"},
            "days": {"type": "integer", "default": 1, "minimum": 0},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "nullable": True},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                      "required": ["lat"]},
            "tags": {"type": "array", "items": {"type": "string"}}},
            "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time",
                                      "parameters": {"type": "object", "properties": {}}}},
]
ARGS = {"city": "Zürich", "days": 3, "deep": {"a": [1, 2.5, None, True], "b": "x\"y"}, "unit": None}


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(args, name="get_weather", ident="call12345"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": args}}


def tool(text, ident="call12345", name="get_weather"):
    return {"role": "tool", "content": text, "tool_call_id": ident, "name": name}


def parts(*texts):
    return [{"type": "text", "text": t} for t in texts]


def conversations():
    """Yields (name, template variables) of each conversation."""
    plain = [user("Hello, wörld! <b>&'\"\n  two  lines  ")]
    turns = [system("  Be brief.\n"), user("One?"), assistant("1"), user("Two?"), assistant("  2\n\n"), user("Three?")]
    think = [system("Be brief."), user("One?"), assistant("<think>\nHm, one.\n</think>\n\n1"), user("Two?"),
             assistant("2", reasoning_content="It is two."), user("Three?")]
    last_think = [user("One?"), assistant("1", reasoning_content="Hm.\nOne.")]
    calls = [system("Use tools."), user("Weather?"), assistant("", tool_calls=[call(ARGS)]), tool("{\"t\": 21}"),
             assistant("21 degrees."), user("And the time?"),
             assistant("I look.", tool_calls=[call({}, "now", "call00002"), call(ARGS, ident="call00003")],
                       reasoning_content="Need the clock."),
             tool("12:00", "call00002", "now"), tool("rain", "call00003")]
    text_calls = json.loads(json.dumps(calls))
    for m in text_calls:
        for c in m.get("tool_calls", []):
            c["function"]["arguments"] = json.dumps(c["function"]["arguments"], ensure_ascii=False)
    null_calls = json.loads(json.dumps(calls))
    null_calls[2]["content"] = None
    named = {"plain": plain, "turns": turns, "no_system": turns[1:], "think": think, "last_think": last_think,
             "system_only": [system("Alone.")], "empty": [], "two_users": [user("a"), user("b")],
             "developer": [{"role": "developer", "content": "Dev."}, user("x")],
             "parts": [system("S"), {"role": "user", "content": parts("first", " second")}, assistant("a"), user("b")],
             "all_parts": [{**m, "content": parts(m["content"])} for m in turns],
             "image": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}],
             "strange_role": [user("a"), {"role": "narrator", "content": "b"}],
             "calls": calls, "text_calls": text_calls, "null_calls": null_calls,
             "calls_then": calls + [assistant("ok"), user("t")]}
    for name, messages in named.items():
        for tools in (None, TOOLS):
            for extra in ({}, {"enable_thinking": False}, {"enable_thinking": True, "thinking": True}):
                v = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": True,
                     "bos_token": "<s>", "eos_token": "</s>", **extra}
                yield f"{name}{'+tools' if tools else ''}{extra or ''}", v
    yield "no_generation_prompt", {"messages": turns, "tools": None, "documents": None, "bos_token": "<s>",
                                   "eos_token": "</s>", "add_generation_prompt": False}
    yield "kwargs", {"messages": turns, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True,
                     "reasoning_effort": "high", "date_string": "1 Jan 2026", "response_format": {"type": "json"},
                     "builtin_tools": ["browser", "python", "code_interpreter"], "preserve_thinking": True}


def environment(jinja2):
    from jinja2.ext import Extension
    from jinja2.sandbox import SandboxedEnvironment

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

        @staticmethod
        def _body(caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    # Templates of llama.cpp append to lists, which transformers' ImmutableSandboxedEnvironment forbids.
    env = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                               extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    # There is no HTML escaping here, so "safe" does nothing. jinja2's own filter would escape text appended to its
    # result.
    env.filters["safe"] = str
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(f)
    return env


def gguf_templates(paths):
    for path in paths:
        import gguf
        field = gguf.GGUFReader(path).get_field("tokenizer.chat_template")
        if field:
            yield os.path.basename(path), field.contents()


def check(env, tool_path, name, text, tmp):
    """Returns (lines that describe differences, number of conversations, number that the template refuses)."""
    bad, n, refused = [], 0, 0
    path = pathlib.Path(tmp) / (name.replace("/", "_") + ".jinja")
    path.write_bytes(text.encode())
    try:
        template = env.from_string(text)
    except Exception as e:  # any error of jinja2
        template, why = None, repr(e)
    for conv, variables in conversations():
        n += 1
        data = path.with_suffix(".json")
        data.write_text(json.dumps(variables, ensure_ascii=False))
        try:
            want = template.render(**json.loads(json.dumps(variables))) if template else None
        except Exception as e:  # noqa: BLE001
            want, why = None, repr(e)
        refused += want is None
        run = subprocess.run([tool_path, path, data, str(NOW)], capture_output=True, timeout=120)
        got = run.stdout.decode() if run.returncode == 0 else None
        if run.returncode not in (0, 1):
            bad.append(f"{name}: {conv}: exit status {run.returncode}: {run.stderr.decode()}")
        elif want is None and "generator is not JSON" in why:
            pass  # map and select give lists here; in jinja2 they need "| list"
        elif got != want:
            at = next((i for i, (a, b) in enumerate(zip(got or "", want or "")) if a != b), 0)
            bad.append(f"{name}: {conv}:\n  jinja2 {why if want is None else repr(want[max(0, at - 40):at + 80])}\n  here   "
                       f"{run.stderr.decode().strip() if got is None else repr(got[max(0, at - 40):at + 80])}")
    return bad, n, refused


def main():
    ap = argparse.ArgumentParser()
    build = os.environ.get("PAGEDINFER_BUILD", "build")
    ap.add_argument("--tool", default=os.path.join(build, "tests", "tool_chat_template"))
    ap.add_argument("--templates", default=os.path.expanduser("~/.cache/pagedinfer-peer/llama.cpp/models/templates"))
    ap.add_argument("--only", default="", help="part of a template's name")
    ap.add_argument("gguf", nargs="*")
    args = ap.parse_args()
    try:
        import jinja2
    except ImportError:
        print("check_templates: jinja2 is not installed")
        return 77
    files = sorted(pathlib.Path(args.templates).glob("*.jinja"))
    if not files and not args.gguf:
        print(f"check_templates: no templates in {args.templates}")
        return 77
    os.environ["TZ"] = "UTC"
    env = environment(jinja2)
    todo = [(f.name, f.read_text()) for f in files] + list(gguf_templates(args.gguf))
    todo = [t for t in todo if args.only in t[0]]
    n_bad = n_all = n_refused = 0
    with tempfile.TemporaryDirectory() as tmp, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for bad, n, refused in pool.map(lambda t: check(env, args.tool, t[0], t[1], tmp), todo):
            n_all += n
            n_refused += refused
            n_bad += len(bad)
            for line in bad[:3]:
                print(line)
            if len(bad) > 3:
                print(f"  ... and {len(bad) - 3} more")
    print(f"check_templates: {len(todo)} templates, {n_all} renderings ({n_refused} refused), {n_bad} differ")
    return 1 if n_bad or not n_all else 0


if __name__ == "__main__":
    sys.exit(main())
