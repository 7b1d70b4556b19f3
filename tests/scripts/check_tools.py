#!/usr/bin/env python3
"""Checks tools with the chat templates of real models: generated calls are valid for any model weights.

    check_tools.py [--templates DIR] [--only NAME] [--all]

A server runs SmolLM2 ($PAGEDINFER_CHAT_MODEL) with templates of llama.cpp's source tree (in $PAGEDINFER_VOCAB, or
--templates). By default there is one template per call format; --all (PAGEDINFER_LONG=1) runs every template.

1. tool_choice required: each generated call names a given tool, with arguments that match its schema.
2. A named choice: exactly that call, once. parallel_tool_calls false: at most one call.
3. An answer cut after any number of tokens has only complete calls and no markup as content, with and without a
   stream.
4. Tools and response_format: auto gives a call or the format, required a call, none the format; on all three APIs.
Exit 77: the model, the templates or the package jsonschema are missing."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import check_prompts

FEW = ["Qwen-Qwen3-0.6B", "google-gemma-4-31B-it.", "Kimi-K3", "LFM2-8B", "DeepSeek-V3.1", "gpt-oss"]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]},
                                               "days": {"type": "integer", "minimum": 1, "maximum": 3}},
              "required": ["city"], "additionalProperties": False}
NONE = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": PARAMETERS}},
         {"type": "function", "function": {"name": "now", "description": "The time", "parameters": NONE}}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
FORM = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": FORM, "strict": True}}
MARKUP = re.compile(r"tool_call|TOOL|<\||<\uff5c|\[ARGS\]|function=|arg_key|\"parameters\"|\"arguments\"|minimax:|seed:|<$|<t")
faults = 0


def fault(what):
    global faults
    faults += 1
    print(f"FAULT: {what}")


class Server:
    def __init__(self, binary, model, template, folder):
        self.log = pathlib.Path(folder) / "log"
        command = [binary, "serve", "-m", model, "--port", "0", "-c", "4096"]
        if template:
            command += ["--chat-template-file", template]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log.open("w"))
        end = time.time() + 300
        while True:
            text = self.log.read_text()
            found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", text)
            if found and "is ready" in text:
                self.url = found[1]
                return
            if self.process.poll() is not None or time.time() > end:
                raise SystemExit(f"check_tools: the server did not start: {text[-400:]}")
            time.sleep(0.05)

    def post(self, path, body, stream=False):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                if not stream:
                    return json.load(answer)
                return [json.loads(line[6:]) for line in answer if line.startswith(b"data: {")]
        except urllib.error.HTTPError as error:
            fault(f"{path}: {error.code} {error.read()[:300]}")
            return None

    def stop(self):
        self.process.terminate()
        self.process.wait()


def body(**more):
    # Reasoning is off. A template without that switch rarely produces a reasoning token.
    return {"messages": [{"role": "user", "content": "What is the weather in Paris?"}], "tools": TOOLS, "max_tokens": 40,
            "temperature": 0, "chat_template_kwargs": {"enable_thinking": False, "thinking": False}, **more}


def check_calls(what, calls, validate):
    schemas = {t["function"]["name"]: t["function"]["parameters"] for t in TOOLS}
    for call in calls:
        function = call["function"]
        try:
            validate(json.loads(function["arguments"]), schemas[function["name"]])
        except Exception as error:  # errors of json, jsonschema and this script
            fault(f"{what}: {function}: {error}")


def message_of(answer):
    choice = answer["choices"][0]
    return choice["message"], choice["message"].get("tool_calls") or [], choice["finish_reason"]


def required(s, name, validate):
    answer = s.post("/v1/chat/completions", body(tool_choice="required"))
    if answer:
        message, calls, finish = message_of(answer)
        check_calls(f"{name}: required", calls, validate)
        if not calls and finish != "length" or message["content"]:
            fault(f"{name}: required: {message} {finish}")
    for more in {"tool_choice": NAMED}, {"tool_choice": "required", "parallel_tool_calls": False}:
        answer = s.post("/v1/chat/completions", body(max_tokens=200, **more))
        if not answer:
            continue
        message, calls, finish = message_of(answer)
        check_calls(f"{name}: {more}", calls, validate)
        thinks = message.get("reasoning_content") and finish == "length"
        if len(calls) != 1 and not thinks or message["content"] or (more["tool_choice"] is NAMED and
                                                                   any(c["function"]["name"] != "get_weather" for c in calls)):
            fault(f"{name}: {more}: {message} {finish}")


def cut(s, name, validate, steps):
    for n in steps:
        b = body(tool_choice="required", max_tokens=n)
        answer = s.post("/v1/chat/completions", b)
        if not answer:
            return
        message, calls, finish = message_of(answer)
        check_calls(f"{name}: {n} tokens", calls, validate)
        if message["content"] or MARKUP.search(message.get("reasoning_content") or ""):
            fault(f"{name}: {n} tokens: {message}")
        if finish not in ("length", "tool_calls"):
            fault(f"{name}: {n} tokens: finish_reason {finish}")
        events = s.post("/v1/chat/completions", {**b, "stream": True}, stream=True) or []
        content = "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])
        ends = [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]]
        if content or ends != [finish]:
            fault(f"{name}: {n} tokens in a stream: content {content!r}, finish_reason {ends}, {finish} as a whole")


def with_form(s, name, validate):
    for choice in "auto", "required", "none":
        answer = s.post("/v1/chat/completions", body(tool_choice=choice, response_format=FORMAT, max_tokens=50))
        if not answer:
            continue
        message, calls, finish = message_of(answer)
        check_calls(f"{name}: a form, {choice}", calls, validate)
        if message["content"] and finish != "length":
            try:
                validate(json.loads(message["content"]), FORM)
            except Exception as error:  # errors of json and jsonschema
                fault(f"{name}: a form, {choice}: {message['content']!r}: {error}")
        if choice == "none" and calls or choice == "required" and message["content"] or calls and message["content"]:
            fault(f"{name}: a form, {choice}: {message} {finish}")


def other_apis(s, name, validate):
    flat = [{"type": "function", **t["function"]} for t in TOOLS]
    answer = s.post("/v1/responses", {"input": "What is the weather in Paris?", "tools": flat, "tool_choice": "required",
                                      "text": {"format": {"type": "json_schema", "name": "a", "schema": FORM}},
                                      "max_output_tokens": 60, "temperature": 0})
    kinds = [i["type"] for i in answer["output"]] if answer else []
    if "function_call" not in kinds or "message" in kinds:
        fault(f"{name}: /v1/responses: {answer}")
    tools = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
    answer = s.post("/v1/messages", {"messages": body()["messages"], "tools": tools, "max_tokens": 200, "temperature": 0,
                                     "tool_choice": {"type": "any", "disable_parallel_tool_use": True}})
    blocks = [b for b in answer["content"] if b["type"] == "tool_use"] if answer else []
    if len(blocks) != 1 or answer["stop_reason"] != "tool_use":
        fault(f"{name}: /v1/messages: {answer}")


def history(s, name):
    """Past calls and results are in the prompt, with and without tools."""
    call = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Qx7\"}"}}
    messages = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call00001", "content": "Zr9 degrees"}, {"role": "user", "content": "Again."}]
    for tools in TOOLS, None:
        answer = s.post("/apply-template", {"messages": messages, **({"tools": tools} if tools else {})})
        for word in ["Qx7", "Zr9", "Again."] + (["get_weather", "Weather of a city"] if tools else []):
            if answer and word not in answer["prompt"]:
                fault(f"{name}: the prompt {'with' if tools else 'without'} tools has no {word}: {answer['prompt'][-400:]!r}")


def main():
    ap = check_prompts.arguments("tool_chat_answer")
    ap.add_argument("--all", action="store_true", default=os.environ.get("PAGEDINFER_LONG") == "1")
    ap.add_argument("--bin", default=os.path.join(os.environ.get("PAGEDINFER_BUILD", "build"), "pagedinfer"))
    args = ap.parse_args()
    model = os.environ.get("PAGEDINFER_CHAT_MODEL", "")
    try:
        from jsonschema import validate
    except ImportError:
        print("check_tools: the Python package jsonschema is not installed")
        return 77
    files = sorted(args.templates.glob("*.jinja"))
    if not os.path.exists(model) or not files:
        print("check_tools: no model in PAGEDINFER_CHAT_MODEL, or no templates")
        return 77
    if args.only:
        chosen = [f for f in files if args.only in f.name]
    else:
        chosen = [None] + [f for f in files if args.all or any(w in f.name for w in FEW)]
    for template in chosen:
        name = template.name if template else "the model's own"
        with tempfile.TemporaryDirectory() as folder:
            s = Server(args.bin, model, template, folder)
            try:
                required(s, name, validate)
                cut(s, name, validate, range(1, 25) if not template or args.all else (1, 3, 6, 21))
                with_form(s, name, validate)
                history(s, name)
                if not template:
                    other_apis(s, name, validate)
            finally:
                s.stop()
    print(f"check_tools: {len(chosen)} templates, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
