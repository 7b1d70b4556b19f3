#!/usr/bin/env python3
"""Tokenizes rendered prompts: the ids equal the plain text's, and no message can insert a control token.

    check_prompts.py [--tool build/tests/tool_chat_tokens] [--templates DIR] [--per N] [--only NAME] [FILE.gguf ...]

Templates are those of llama.cpp's source tree (in $PAGEDINFER_VOCAB, or --templates). Each gets a vocabulary made for
it: bytes, and as control tokens everything in the template that looks like one; some of them are user-defined. If that
tree has the vocabulary of a template's model, the template is also tried with it. GGUF files are tried with their own
templates. Per conversation, N prompts (3) have the text of random control tokens in messages, tools and their results.
PAGEDINFER_LONG=1: 10, more than 10,000 in all. Exit 77: the templates or the Python package gguf are missing.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

REAL = {"qwen2": "Qwen-Qwen|QwQ|Hermes-2", "qwen35": "Qwen3", "llama-bpe": "Llama-3|llama-3|R1-Distill-Llama",
        "gemma-4": "gemma", "phi-3": "Phi", "llama-spm": "Mistral|rwkv|gemma-2", "command-r": "Cohere",
        "deepseek-llm": "deepseek"}


def tool(name):
    return {"type": "function", "function": {
        "name": name, "description": "What @@ it does.@@", "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "@@a city @@\n"}, "n": {"type": "integer", "enum": [1, 2]}},
            "required": ["city"]}}}


def conversations():
    call = {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Z @@ü"}}}
    texts = [{"role": "system", "content": "Be @@ brief.@@"}, {"role": "user", "content": "@@One?\n\n@@"},
             {"role": "assistant", "content": "\n1 @@"}, {"role": "user", "content": " Two <b>@@</b>  "}]
    calls = texts[:2] + [{"role": "assistant", "content": None, "tool_calls": [call]},
                         {"role": "tool", "tool_call_id": "call12345", "name": "get_weather", "content": "@@21@@"},
                         {"role": "assistant", "content": "It is 21@@.", "reasoning_content": "Hm.@@"},
                         {"role": "user", "content": "And now?@@"}]
    parts = [{"role": "user", "content": [{"type": "text", "text": "a@@"}, {"type": "text", "text": "@@b"}]}]
    named = json.loads(json.dumps(calls))
    named[2]["tool_calls"][0]["function"]["name"] = "f@@"
    for messages in (texts, texts[1:], parts):
        yield messages, None, {}
    for messages in (texts, calls, named):
        for options in ({}, {"enable_thinking": False}, {"enable_thinking": True, "thinking": True}):
            yield messages, [tool("get_weather"), tool("n@@ow")], options
    yield texts, None, {"add_generation_prompt": False}
    yield texts, None, {"system_prompt": "x@@", "date_string": "@@"}


def byte_words():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    extra = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(extra)) for b in range(256)]


def make_vocab(path, template):
    import gguf
    marks = sorted(set(re.findall(r"<[|\uff5c/]?[^<>{}'\"\s]{1,40}?[|\uff5c]?>|\[/?[A-Z_]{3,30}\]", template)))
    marks = [m for m in marks if m not in ("<s>", "</s>")]
    control = [m for m in marks if "|" in m or "\uff5c" in m or m.startswith("[")] + [
        "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<s>", "</s>"]
    words = list(dict.fromkeys(byte_words() + ["he", "\u0120t", "\u010a\u010a"] + control + marks))
    kinds = [3 if w in control else 4 if w in marks else 1 for w in words]
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("default")
    w.add_token_list(words)
    w.add_token_types(kinds)
    w.add_token_merges(["h e", "\u0120 t", "\u010a \u010a"])
    w.add_bos_token_id(words.index("<s>"))
    w.add_eos_token_id(words.index("</s>"))
    w.add_add_bos_token(True)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def arguments(tool):
    """Returns the argument parser of the checks over llama.cpp's templates; PAGEDINFER_VOCAB names their folder."""
    ap = argparse.ArgumentParser()
    build, vocab = os.environ.get("PAGEDINFER_BUILD", "build"), os.environ.get("PAGEDINFER_VOCAB", "models")
    ap.add_argument("--tool", default=os.path.join(build, "tests", tool))
    ap.add_argument("--templates", type=pathlib.Path, default=pathlib.Path(vocab) / "templates")
    ap.add_argument("--only", default="", help="part of a template's name")
    return ap


def main():
    ap = arguments("tool_chat_tokens")
    ap.add_argument("--per", type=int, default=10 if os.environ.get("PAGEDINFER_LONG") == "1" else 3)
    ap.add_argument("gguf", nargs="*", type=pathlib.Path, help="models to try with their own template")
    args = ap.parse_args()
    try:
        import gguf
    except ImportError:
        print("check_prompts: the Python package gguf is not installed")
        return 77
    files = [f for f in sorted(args.templates.glob("*.jinja")) if args.only in f.name]
    if not files and not args.gguf:
        print(f"check_prompts: no templates in {args.templates}")
        return 77
    sums, bad = [0, 0, 0, 0], 0
    with tempfile.TemporaryDirectory() as tmp, concurrent.futures.ThreadPoolExecutor(2) as pool:
        lines = pathlib.Path(tmp) / "conversations"
        lines.write_text("".join(json.dumps(x, ensure_ascii=False) + "\n" for c in conversations() for x in c))

        def check(item):
            n, (template, vocab) = item
            if not vocab:
                vocab = pathlib.Path(tmp) / (template.name + ".gguf")
                make_vocab(vocab, template.read_text())
            run = subprocess.run([args.tool, vocab, template, lines, str(args.per), str(n)], capture_output=True,
                                 text=True, errors="replace", timeout=900)
            return template.name, vocab.name, run

        todo = [(f, None) for f in files]
        for name, which in REAL.items():
            real = args.templates.parent / f"ggml-vocab-{name}.gguf"
            todo += [(f, real) for f in files if real.exists() and re.search(which, f.name)]
        for path in args.gguf:
            field = gguf.GGUFReader(path).get_field("tokenizer.chat_template")
            if field:
                own = pathlib.Path(tmp) / (path.name + ".jinja")
                own.write_bytes(field.contents().encode())
                todo.append((own, path))
        for name, vocab, run in pool.map(check, enumerate(todo)):
            found = re.search(r"same (\d+) hijack (\d+) looked (\d+) refused (\d+)", run.stdout)
            if found:
                sums = [a + int(b) for a, b in zip(sums, found.groups())]
            if run.returncode:
                bad += 1
                print(f"{name} ({vocab}): exit status {run.returncode}\n{run.stdout[:1500]}{run.stderr[:500]}")
    print(f"check_prompts: {len(todo)} templates with a vocabulary, {sums[0]} prompts as in plain text, {sums[1]} with "
          f"control tokens in messages ({sums[2]} where the template looks at them, {sums[3]} refused), {bad} bad")
    return 1 if bad or not sums[1] else 0


if __name__ == "__main__":
    sys.exit(main())
