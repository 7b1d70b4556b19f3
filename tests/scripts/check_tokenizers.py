#!/usr/bin/env python3
"""Checks tokenization against the vocabulary tests of a llama.cpp tree.

    check_tokenizers.py [--bin build/pagedinfer] [--cmd 'CMD -m {model} -f {file}'] [--peer llama-tokenize]
                        [--text FILE]... MODELS_DIR [NAME...]

MODELS_DIR holds ggml-vocab-NAME.gguf with .inp (texts, split by a marker line) and .out (their ids, a line each). A
NAME that is given must be there; without names all families that the library reads are checked. Each .inp text is
tokenized without BOS. With --peer, each --text file is also tokenized whole by both programs and the ids are compared.
Standard library only."""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

MARK = b"\n__ggml_vocab_test__\n"
FAMILIES = ("llama-spm", "phi-3", "llama-bpe", "gpt-2", "qwen2", "qwen35", "deepseek-llm", "deepseek-coder", "gemma-4",
            "falcon", "starcoder", "refact", "command-r", "mpt")


def run(cmd, model, path):
    words = [w.format(model=model, file=path) for w in shlex.split(cmd)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise SystemExit("%s: exit %d\n%s" % (" ".join(words), done.returncode, done.stderr.decode(errors="replace")))
    return json.loads(done.stdout)


def read_cases(path):
    with open(path + ".inp", "rb") as f:
        texts = f.read().split(MARK)
    if texts and texts[-1] == b"":
        texts.pop()
    with open(path + ".out") as f:
        ids = [[int(x) for x in line.split()] for line in f]
    if len(texts) != len(ids):
        raise SystemExit("%s: %d texts, but %d lines of ids" % (path, len(texts), len(ids)))
    return list(zip(texts, ids))


def differ(name, what, got, want):
    if got == want:
        return 0
    i = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    print("%s: %s: differs at token %d: %s, expected %s" % (name, what, i, got[i:i + 8], want[i:i + 8]))
    return 1


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", default="build/pagedinfer")
    p.add_argument("--cmd", help="prints a JSON array of ids; {model} and {file} are replaced")
    p.add_argument("--peer", help="llama-tokenize, for --text")
    p.add_argument("--text", action="append", default=[])
    p.add_argument("models_dir")
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    cmd = a.cmd or shlex.quote(a.bin) + " tokenize -m {model} -f {file} --ids --no-bos --no-escape"
    peer = a.peer and shlex.quote(a.peer) + " -m {model} -f {file} --ids --no-bos --no-escape --log-disable"
    n_cases = n_bad = 0
    for name in a.names or FAMILIES:
        model = os.path.join(a.models_dir, "ggml-vocab-%s.gguf" % name)
        cases = read_cases(model)
        bad = 0
        with tempfile.TemporaryDirectory() as tmp, ThreadPoolExecutor(os.cpu_count()) as pool:
            def check(i):
                text, ids = cases[i]
                path = os.path.join(tmp, str(i))
                with open(path, "wb") as f:
                    f.write(text)
                return differ(name, "text %d %r" % (i, text[:40]), run(cmd, model, path), ids)
            bad += sum(pool.map(check, range(len(cases))))
        for text in a.text if peer else []:
            bad += differ(name, text, run(cmd, model, text), run(peer, model, text))
        n = len(cases) + (len(a.text) if peer else 0)
        print("%-16s %d of %d" % (name, n - bad, n))
        n_cases += n
        n_bad += bad
    print("%d of %d texts agree" % (n_cases - n_bad, n_cases))
    return 1 if n_bad or not n_cases else 0


if __name__ == "__main__":
    sys.exit(main())
