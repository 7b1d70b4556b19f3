#!/usr/bin/env python3
"""Checks tokenization against the vocabulary tests of a llama.cpp tree.

    check_tokenizers.py [--bin build/pagedinfer] [--cmd 'CMD -m {model} -f {file}'] [--peer llama-tokenize]
                        [--text FILE]... [--random SEED] [--pre] MODELS_DIR [NAME...]

MODELS_DIR holds ggml-vocab-NAME.gguf with .inp (texts, separated by a marker line) and .out (their ids, one line
each). Each given NAME must exist; without names all families that the library reads are checked. Each .inp text is
tokenized without BOS. With --peer, both programs also tokenize each --text file in one piece, and the ids are
compared. --random adds a random text of words, scripts, white space and special tokens. --pre does that for every
pre-tokenizer that src/tokenizer/pretok.c names, by writing its name into a copy of the llama-bpe vocabulary.
With PAGEDINFER_LIB, the library opens each vocabulary once and tokenizes all texts. Only one text in TOOL_EACH also
goes through the program, which opens the vocabulary anew each time. Standard library only."""
import argparse
import ctypes
import json
import os
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

MARK = b"\n__ggml_vocab_test__\n"
TOOL_EACH = 12
SPECIAL = 2  # PI_TOK_SPECIAL
FAMILIES = ("llama-spm", "phi-3", "llama-bpe", "gpt-2", "qwen2", "qwen35", "deepseek-llm", "deepseek-coder", "gemma-4",
            "falcon", "starcoder", "refact", "command-r", "mpt", "bert-bge")


def run(cmd, model, path):
    words = [w.format(model=model, file=path) for w in shlex.split(cmd)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise SystemExit("%s: exit %d\n%s" % (" ".join(words), done.returncode, done.stderr.decode(errors="replace")))
    return json.loads(done.stdout)


class Library:
    """A vocabulary opened through libpagedinfer.so."""
    def __init__(self, lib, model):
        self.lib, self.v = ctypes.CDLL(lib), ctypes.c_void_p()
        self.lib.pi_vocab_tokenize.restype = ctypes.c_int64
        err = ctypes.create_string_buffer(4 + 240)
        if self.lib.pi_vocab_open(ctypes.byref(self.v), os.fsencode(model), err):
            raise SystemExit("%s: %s" % (model, err.raw[4:].split(b"\0")[0].decode(errors="replace")))

    def tokenize(self, text):
        ids = (ctypes.c_int32 * (len(text) + 8))()
        n = self.lib.pi_vocab_tokenize(self.v, text, ctypes.c_size_t(len(text)), SPECIAL, ids, ctypes.c_size_t(len(ids)))
        return list(ids[:n]) if 0 <= n <= len(ids) else ["error or more tokens than bytes", n]

    def close(self):
        self.lib.pi_vocab_free(self.v)


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


WORDS = ["the", "I'm", "we'VE", "they'll", "größe", "日本語", "한국어", "привет", "मार्च", "ไทย", "עברית", "العربية", "123", "4567", "3.14",
         "x86_64", "$$$", "...", "—", "“q”", "e\u0301", "\u200b", "\u00a0", "\u3000", "\U0001F600", "Ⅷ", "½", "٣٤", "ﬁ", "\u2028", "func(a,b);",
         "\\n", "/*", "http://a.b/c?d=e", "CamelCaseWord", "ALLCAPS", "İstanbul", "a" * 40, "=" * 30, "▁", "<|im_start|>", "<|im_end|>",
         "<|eot_id|>", "<s>", "</s>", "<start_of_turn>", "[INST]", "<|user|>", "<|endoftext|>", "<|start_header_id|>", "<0x0A>"]
SPACES = ["\n", "\n\n", "\r\n", " \n", "\t", "  ", " " * 17, "\n\n\n \n"]
SCRIPTS = [(32, 127), (0xA0, 0x600), (0x900, 0x3200), (0x4E00, 0x9FFF), (0xAC00, 0xD7A0), (0x1F300, 0x1FA00)]


def random_text(seed, n=4000):
    rnd, out = random.Random(seed), []
    for _ in range(n):
        r = rnd.random()
        if r < 0.65:
            out.append(rnd.choice(WORDS))
        elif r < 0.75:
            out += [chr(rnd.randrange(*rnd.choice(SCRIPTS))) for _ in range(rnd.randrange(1, 8))]
        else:
            out.append(rnd.choice(SPACES))
        out.append(rnd.choice(["", " ", " ", " "]))
    return "".join(out)


def pre_tokenizers():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../../src/tokenizer/pretok.c")) as f:
        return re.findall(r'^    \{"([^"]+)", SET_', f.read(), re.M)


def with_pre(vocab, name):
    """Returns the bytes of a vocabulary without tensors, with another tokenizer.ggml.pre."""
    key = b"tokenizer.ggml.pre"
    at = vocab.index(key) + len(key) + 4  # after the value type, which is a string
    n = struct.unpack_from("<Q", vocab, at)[0]
    return vocab[:at] + struct.pack("<Q", len(name)) + name.encode() + vocab[at + 8 + n:]


def check_pre(a, cmd, peer):
    n_bad, names = 0, pre_tokenizers()
    with open(os.path.join(a.models_dir, "ggml-vocab-llama-bpe.gguf"), "rb") as f:
        vocab = f.read()
    with tempfile.TemporaryDirectory() as tmp:
        model, text = os.path.join(tmp, "model.gguf"), os.path.join(tmp, "text")
        with open(text, "w", newline="") as f:
            f.write(random_text(a.random or 1))
        for name in names:
            with open(model, "wb") as f:
                f.write(with_pre(vocab, name))
            n_bad += differ(name, "random text", run(cmd, model, text), run(peer, model, text))
    print("%d of %d pre-tokenizers agree" % (len(names) - n_bad, len(names)))
    return n_bad


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
    p.add_argument("--random", type=int, metavar="SEED")
    p.add_argument("--pre", action="store_true")
    p.add_argument("models_dir")
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    cmd = a.cmd or shlex.quote(a.bin) + " tokenize -m {model} -f {file} --ids --no-bos --no-escape"
    peer = a.peer and shlex.quote(a.peer) + " -m {model} -f {file} --ids --no-bos --no-escape --log-disable"
    n_cases = n_bad = 0
    if (a.pre or a.random) and not peer:
        p.error("--pre and --random need --peer")
    if a.random:
        made = tempfile.NamedTemporaryFile("w", suffix=".txt", newline="")
        made.write(random_text(a.random))
        made.flush()
        a.text.append(made.name)
    if a.pre:
        n_bad += check_pre(a, cmd, peer)
    for name in a.names or FAMILIES:
        model = os.path.join(a.models_dir, "ggml-vocab-%s.gguf" % name)
        cases = read_cases(model)
        bad, some = 0, range(len(cases))
        if os.environ.get("PAGEDINFER_LIB") and not a.cmd:
            library = Library(os.environ["PAGEDINFER_LIB"], model)
            wrong = [i for i, (text, ids) in enumerate(cases)
                     if differ(name, "text %d %r" % (i, text[:40]), library.tokenize(text), ids)]
            library.close()
            bad, some = len(wrong), [i for i in some[::TOOL_EACH] if i not in wrong]
        with tempfile.TemporaryDirectory() as tmp, ThreadPoolExecutor(os.cpu_count()) as pool:
            def check(i):
                text, ids = cases[i]
                path = os.path.join(tmp, str(i))
                with open(path, "wb") as f:
                    f.write(text)
                return differ(name, "text %d %r" % (i, text[:40]), run(cmd, model, path), ids)
            bad += sum(pool.map(check, some))
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
