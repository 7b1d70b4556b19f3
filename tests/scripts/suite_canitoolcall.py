#!/usr/bin/env python3
"""Parses the fixtures of the package canitoolcall (answers of real models with tool calls) with the library.

    suite_canitoolcall.py [--tool build/tests/tool_chat_parse] [--templates DIR] [--only TEXT] [-v] [--write]

Each fixture is parsed in one piece and split in 8 ways: by bytes, by characters, at tags, and at random places. The
package's checks compare the parses with the fixture's expectation and with each other. Templates are those of
llama.cpp's source tree (in $PAGEDINFER_VOCAB, or --templates). Models without one there get a short template of the
same format. --write puts the results into docs/SUITES.md. Exit 77: the templates or the package are missing.
"""
import collections
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import check_prompts
import suites

# Results of other engines, published with version 0.1.1 of the package: engine, fixtures it supports, pass, soft pass,
# fail.
SOURCE = "the description of the package, version 0.1.1"
PUBLISHED = [("vLLM 0.30.0", 469, 268, 86, 115), ("SGLang 0.5.20", 448, 189, 62, 197), ("llama.cpp a25c9865", 438, 278, 46, 114),
             ("Ollama 7af39318", 261, 224, 10, 27), ("HF transformers 5.17.0", 48, 33, 7, 8)]
# Failing fixtures and the reasons.
EXCEPTIONS = {
    "gemma4/vllm-text-before-call": "expects the space before a call to be dropped; gemma4/sglang-text-before-call expects "
                                    "it in the content",
    "llama/l4-truncated-missing-close-bracket": "expects no call if the second of two is cut off. Complete calls are kept "
                                                "here, as the package's rule for parallel calls requires",
}

SHOWS = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}{{ m.tool_calls or '' }}\n{% endfor %}"
         "{% if tools %}{{ tools | tojson }}{% endif %}")
V41 = "<\uff5cDSML\uff5c calls>\n<\uff5cDSML\uff5c invoke name=\"f\">"
# The template of a model. The first pair with a key in the model's name counts: (key, file name or format text).
TEMPLATES = [
    ("DeepSeek-V3-0324", "<\uff5ctool\u2581calls\u2581begin\uff5c> ```json"),
    ("DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.1.jinja"),
    ("DeepSeek-V3.2", "deepseek-ai-DeepSeek-V3.2.jinja"),
    ("DeepSeek-V4.1", V41),
    ("DeepSeek-V4", "deepseek-ai-DeepSeek-V4.jinja"),
    ("gemma-4", "google-gemma-4-31B-it.jinja"),
    ("GLM-4.5", "GLM-4.6.jinja"),
    ("GLM-4.7", "GLM-4.7-Flash.jinja"),
    ("GLM-5.3", "GLM-4.7-Flash.jinja"),
    ("gpt-oss", "openai-gpt-oss-120b.jinja"),
    ("Kimi-K2-Instruct", "Kimi-K2-Instruct.jinja"),
    ("Kimi-K2.6", "<|tool_calls_section_begin|><think>"),
    ("Kimi-K3", "Kimi-K3.jinja"),
    ("Llama-3.3", "meta-llama-Llama-3.3-70B-Instruct.jinja"),
    ("Llama-4", "<|python_start|><|header_start|>"),
    ("Mistral-7B", "[TOOL_CALLS] [{\"name\": \"f\"}]"),
    ("Mistral-Small-3.2", "Mistral-Small-3.2-24B-Instruct-2506.jinja"),
    ("Devstral", "unsloth-mistral-Devstral-Small-2507.jinja"),
    ("Magistral-Small-2506", "[TOOL_CALLS][ARGS]<think>"),
    ("stral", "mistralai-Ministral-3-14B-Reasoning-2512.jinja"),
    ("Qwen3-4B-Thinking", "<tool_call>{\"name\"}</tool_call><think>"),
    ("Qwen3-4B-Instruct", "<tool_call>{\"name\"}</tool_call>"),
    ("Qwen3-Coder", "Qwen3-Coder.jinja"),
    ("Qwen3.", "Qwen3.5-4B.jinja"),
    ("Qwen3-", "Qwen-Qwen3-0.6B.jinja"),
]
N_SPLITS = 8


def template_of(fixture, folder):
    model = fixture["models"][0]
    for word, text in TEMPLATES:
        if word not in model:
            continue
        if text.endswith(".jinja"):
            return (folder / text).read_text()
        prompt = fixture.get("generation_prompt") or ("<think>" if fixture.get("thinking") else "<|assistant|>")
        return "{#" + text.replace("#}", "") + "#}" + SHOWS + "{{ " + json.dumps(prompt, ensure_ascii=False) + " }}"
    return None


def splits(text):
    """Returns lists of byte counts: tags, words, characters, bytes, and four random splits."""
    tags = [len(p.encode()) for p in re.split(r"(<[^<>\s]{1,40}>|\[/?[A-Z_]+\])", text) if p]
    words = [len(p.encode()) for p in re.findall(r"\s*\S+|\s+", text)]
    characters = [len(c.encode()) for c in text]
    size = len(text.encode())
    out = [tags, words, characters, [1] * size]
    for seed in range(N_SPLITS - len(out)):
        r = random.Random(seed)
        cut = []
        while sum(cut) < size:
            cut.append(r.randint(1, 4 << seed))
        out.append(cut)
    return out


def options_of(fixture):
    thinking = fixture.get("thinking")
    return {} if thinking is None else {"enable_thinking": thinking, "thinking": thinking}


def result_of(parse):
    from canitoolcall.results import ParsedToolCall, ParseResult
    return ParseResult(content=parse["content"] or None, reasoning_content=parse["reasoning"] or None,
                       tool_calls=tuple(ParsedToolCall(n, a) for n, a in parse["calls"]))


def main():
    ap = check_prompts.arguments("tool_chat_parse")
    ap.add_argument("-v", action="store_true", help="each fixture that is not passed, with its parse")
    ap.add_argument("--write", action="store_true", help="write the results to docs/SUITES.md")
    args = ap.parse_args()
    try:
        import gguf  # noqa: F401
        from canitoolcall import checks, fixtures
        from canitoolcall.results import Observation
    except ImportError:
        print("suite_canitoolcall: the Python packages canitoolcall and gguf are not installed")
        return 77
    if not list(args.templates.glob("*.jinja")):
        print(f"suite_canitoolcall: no templates in {args.templates}")
        return 77
    root = fixtures.default_fixtures_dir()
    raw = {}
    for path in sorted(root.glob("*/*.jsonl")):
        for line in path.read_text().splitlines():
            d = json.loads(line)
            if args.only in d["id"]:
                raw[d["id"]] = d
    known = {f.id: f for f in fixtures.load_fixtures([root])}
    families = fixtures.load_families(root)
    asked = []
    for f in raw.values():
        asked.append({"template": template_of(f, args.templates), "tools": f["tools"], "options": options_of(f),
                      "cut": "truncated" in f["tags"], "text": f["raw_output"], "splits": splits(f["raw_output"])})
    with tempfile.TemporaryDirectory() as tmp:
        vocab = pathlib.Path(tmp) / "vocab.gguf"
        check_prompts.make_vocab(vocab, "")
        run = subprocess.run([args.tool, vocab], capture_output=True, text=True, timeout=300,
                             input="".join(json.dumps(a) + "\n" for a in asked))
    if run.returncode:
        print(f"suite_canitoolcall: {args.tool} ended with {run.returncode}: {run.stderr[-400:]}")
        return 1
    count = collections.defaultdict(collections.Counter)
    failed = set()
    lines = run.stdout.splitlines()
    assert len(lines) == len(raw), (len(lines), len(raw))
    for (ident, d), line in zip(raw.items(), lines):
        parses = [result_of(p) for p in json.loads(line)]
        seen = Observation(nonstream=parses[0], streams={f"rand:{i}:8": p for i, p in enumerate(parses[1:])})
        rows = checks.run_checks(known[ident], families[d["family"]], seen)
        status = checks.case_status(rows).value
        count[d["family"]][status] += 1
        if status != "pass":
            failed.add(ident)
        if status == "pass" or not args.v:
            continue
        print(f"{ident} ({d['models'][0]}): {status}")
        why = [r for r in rows if r.status.value == status]
        print(f"   text {d['raw_output']!r}\n   {why[0].check} {why[0].strategy}: {why[0].detail}")
        print(f"   whole {json.loads(line)[0]}  expected {d.get('expected') or d.get('expected_error')}")
    total = sum(sum(c.values()) for c in count.values())
    passed = sum(c["pass"] for c in count.values())
    for family, c in sorted(count.items()):
        print(f"  {family:14} {c['pass']:3} of {sum(c.values()):3}" + "".join(f", {k} {v}" for k, v in c.items() if k != "pass"))
    print(f"suite_canitoolcall: {passed} of {total} fixtures pass, whole and split {N_SPLITS} ways")
    wrong = failed - set(EXCEPTIONS)
    for ident in sorted(wrong):
        print(f"suite_canitoolcall: {ident} fails; -v --only {ident} shows it")
    if args.write and not args.only:
        write(count, total, failed)
    return 1 if wrong or not total else 0


def write(count, total, failed):
    sums = collections.Counter()
    for c in count.values():
        sums.update(c)
    rows = [("pagedinfer", total, sums["pass"], sums["soft_pass"], sums["fail"] + sums["error"])] + PUBLISHED
    lines = [f"Package canitoolcall 0.1.1: answers of models with tool calls, parsed as a whole and split {N_SPLITS} ways. Figures of "
             f"the other engines: {SOURCE}. Engines support different parts of the fixtures.", "",
             "| engine | fixtures | pass | soft pass | fail |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {name} | {n} | {p} | {soft} | {fail} |" for name, n, p, soft, fail in rows]
    lines += ["", "| family | pass | of |", "|---|---:|---:|"]
    lines += [f"| {family} | {c['pass']} | {sum(c.values())} |" for family, c in sorted(count.items())]
    if failed:
        lines += ["", "Not passed:", ""] + [f"- {i}: {EXCEPTIONS.get(i, 'a fault')}." for i in sorted(failed)]
    suites.publish("canitoolcall", "\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
