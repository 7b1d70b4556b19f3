#!/usr/bin/env python3
"""Checks that files of tools/synth.py run, and behave like random weights: no token is much more likely than the
others.

usage: check_synth.py     PAGEDINFER_BIN: the tool; PAGEDINFER_CHAT_MODEL: the source of the vocabulary
"""
import os
import re
import subprocess
import sys
import tempfile

BIN = os.environ.get("PAGEDINFER_BIN", "build/pagedinfer")
VOCAB = os.environ.get("PAGEDINFER_CHAT_MODEL", "")
TEXT = "README.md"
CASES = ["qwen3.5-0.8b q4_k_m 4", "gpt-oss-20b mxfp4 1", "gemma-3-1b q8_0 6", "llama-3.2-1b nvfp4 1", "qwen3-0.6b iq4_xs 1", "lfm2-1.2b q4_0 3"]

if not VOCAB:
    print("no vocabulary: the chat model could not be fetched")
    sys.exit(77)
for case in CASES:
    shape, kind, layers = case.split()
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model.gguf"
        subprocess.run([sys.executable, "tools/synth.py", shape, kind, model, "--layers", layers, "--vocab", VOCAB], check=True)
        out = subprocess.run([BIN, "eval", "-m", model, "-f", TEXT, "-c", "64", "--chunks", "1", "-t", "1"], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    found = re.search(r"PPL = ([0-9.]+)", out.stdout)
    if out.returncode or not found or not 1e4 < float(found[1]) < 1e6:
        sys.exit(f"{case}: {out.stdout[-500:]}")
print(f"synth: {len(CASES)} files of real shapes run")
