#!/usr/bin/env python3
"""Parses tool calls as the chat templates of real models write them.

    check_answers.py [--tool build/tests/tool_chat_answer] [--templates DIR] [--only NAME] [-v]

Each template of llama.cpp's source tree (in $PAGEDINFER_VOCAB, or --templates) renders conversations that end in an
assistant message: with and without calls, with null and other content, with arguments as an object and as text, and
with reasoning. The rendered text after the prompt is parsed in one piece and byte by byte. Both must give the original
calls and content. Templates with an unknown call format, or without tools, get the generic format. Exit 77: the
templates or the Python package gguf are missing.
"""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

import check_prompts

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather", "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "hot": {"type": "boolean"},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}}},
        "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time",
                                      "parameters": {"type": "object", "properties": {}}}}]
ARGS = {"city": "Zürich \"a\" <b> \\ x", "days": 3, "hot": True, "where": {"lat": 1.5}, "tags": ["x", "y z"]}
LINES = {"city": "two\n lines", "days": -1}
USER = {"role": "user", "content": "Weather?"}


def call(args, name="get_weather", ident="call12345", as_text=False):
    return {"id": ident, "type": "function",
            "function": {"name": name, "arguments": json.dumps(args, ensure_ascii=False) if as_text else args}}


def answers():
    """Yields (name, the assistant message, its calls, its content or None for any)."""
    yield "call", {"content": None, "tool_calls": [call(ARGS)]}, [("get_weather", ARGS)], ""
    yield "text arguments", {"content": None, "tool_calls": [call(ARGS, as_text=True)]}, [("get_weather", ARGS)], ""
    yield "lines", {"content": "", "tool_calls": [call(LINES)]}, [("get_weather", LINES)], ""
    yield "two", {"content": None, "tool_calls": [call(ARGS), call({}, "now", "call00002")]}, [
        ("get_weather", ARGS), ("now", {})], ""
    yield "content", {"content": "I look.", "tool_calls": [call({}, "now")]}, [("now", {})], "I look."
    yield "plain", {"content": "It is <fine> {\"a\": 1}."}, [], "It is <fine> {\"a\": 1}."


def main():
    ap = check_prompts.arguments("tool_chat_answer")
    ap.add_argument("-v", action="store_true", help="each template's form")
    args = ap.parse_args()
    try:
        import gguf  # noqa: F401
    except ImportError:
        print("check_answers: the Python package gguf is not installed")
        return 77
    files = [f for f in sorted(args.templates.glob("*.jinja")) if args.only in f.name]
    if not files:
        print(f"check_answers: no templates in {args.templates}")
        return 77
    bad, n, n_calls, forms = 0, 0, 0, {}
    with tempfile.TemporaryDirectory() as tmp, concurrent.futures.ThreadPoolExecutor(2) as pool:
        vocab = pathlib.Path(tmp) / "vocab.gguf"
        check_prompts.make_vocab(vocab, "")

        def check(item):
            template, (name, answer, calls, content) = item
            lines = [[USER], [USER, {"role": "assistant", **answer}], TOOLS, {}]
            run = subprocess.run([args.tool, vocab, template], capture_output=True, text=True, timeout=120,
                                 input="".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines))
            return template.name, name, calls, content, run

        for template, name, calls, content, run in pool.map(check, [(f, a) for f in files for a in answers()]):
            n += 1
            if run.returncode:
                bad += 1
                print(f"{template}: {name}: exit status {run.returncode}: {run.stderr[:400]}\n{run.stdout[:400]}")
                continue
            got = json.loads(run.stdout)
            if not got or name in got["splits"] or (name == "content" and "Nemotron-Nano-v2" in template):
                # The template splits this message into several, so no single answer can give it back.
                continue
            forms[template] = got["form"]
            found = [(c[0], c[1]) for c in got["calls"]]
            if not got["form"]:
                wrong = bool(found)
            else:
                # A map in Python's syntax is not JSON: the parser returns it as text.
                if "{'lat'" in got["text"] and got["form"] != "lfm2":
                    calls = [(c, {k: v if not isinstance(v, (dict, list)) else str(v) for k, v in a.items()})
                             for c, a in calls]
                # gpt-oss's template writes only one call; DeepSeek R1's writes none when there is content.
                calls = [c for c in calls if c[0] in got["text"]]
                wrong = found != calls or (not calls and content not in got["content"] + got["reasoning"])
            n_calls += len(found)
            if wrong:
                bad += 1
                print(f"{template} ({got['form']}): {name}:\n  text {got['text']!r}\n  got  {found} content {got['content']!r}")
    if args.v:
        for template, form in forms.items():
            print(f"  {form or '-':14} {template}")
    known = sum(1 for f in forms.values() if f)
    print(f"check_answers: {len(files)} templates, {known} with a form of calls that is known, {n} answers, {n_calls} calls, "
          f"{bad} wrong")
    return 1 if bad or not n_calls else 0


if __name__ == "__main__":
    sys.exit(main())
