#!/usr/bin/env python3
"""Counts the work of a step of large models on the CUDA backend, without a device or the models, and computes its
minimum.

    tools/roofline.py [--models NAME;...] [--json FILE] [--before FILE] [--out FILE] BUILD
    tools/roofline.py --steps STEP;... [--models NAME;...] BUILD
    tools/roofline.py --check [--bless] BUILD

BUILD is a build directory with tests (BUILD/tests/simt/roofline). For each model the script writes a file with the
real shapes, few layers and holes for weights. The backend runs its step on the emulator; a sample of blocks stands for
a large launch (tests/simt/counters.h). The launches of one layer of a kind are multiplied by the kind's number of
layers.

A run takes about a quarter of an hour; --models allows parts. The file of --json keeps results. Models that are
neither counted nor in it keep their tables of the old document. --before names a document of an earlier revision, to
compare steps and kernels with; without it the document's old comparison stays. --steps counts some steps ("prefill of
2,048") and changes only their lines in the document.

--check counts a few small steps completely and compares them with tests/simt/roofline_bounds.json. More launches,
bytes or conflicts are an error. --bless writes that file anew.
"""
import argparse
import json
import math
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from shapes import F32, I32, MXFP4, NVFP4, Q4_K, Q8_0, SHAPES, gemma3, qwen, size_of, tensors_of, write_model

ROOT = Path(__file__).resolve().parent.parent
BOUNDS = ROOT / "tests" / "simt" / "roofline_bounds.json"
SMS = 188   # multiprocessors of the emulated device: an RTX PRO 6000
SAMPLE = 6  # sampled blocks of a grid's first dimension; of the other dimensions 2

MODELS = {name: SHAPES[shape](weights) for name, shape, weights in (
    ("Qwen3.6-27B, NVFP4", "qwen3.6-27b", NVFP4), ("Qwen3.6-35B-A3B, NVFP4", "qwen3.6-35b-a3b", NVFP4),
    ("Gemma 4 31B, Q4_K", "gemma-4-31b", Q4_K), ("Gemma 4 26B-A4B, NVFP4", "gemma-4-26b-a4b", NVFP4),
    ("DeepSeek V4 Flash, MXFP4 and Q8_0", "deepseek-v4-flash", MXFP4), ("DeepSeek V3, NVFP4", "deepseek-v3", NVFP4),
    ("Gemma 3 270M, Q8_0", "gemma-3-270m", Q8_0))}

# Steps: name, and [((sequences, tokens per sequence, cached tokens at the end), repetitions)]. Positions are in the
# middle of a chunk of delta-net layers. Of the longer prefill's four chunks the first and the last are counted, twice
# each, because attention's reads grow linearly.
CHUNK = 2048
STEPS = {f"decode, {n}": [((n, 1, 1992), 1)] for n in (1, 8, 32, 128)}
STEPS["prefill of 2,048"] = [((1, CHUNK, CHUNK), 1)]
STEPS["prefill of 8,192"] = [((1, CHUNK, CHUNK), 2), ((1, CHUNK, 4 * CHUNK), 2)]
LONG = {"decode, 1 at 128k": [((1, 1, 131064), 1)]}


def steps_of(name):
    return {**STEPS, **(LONG if name.startswith("Qwen3.6-27B") else {})}


# ---- files with holes

def floats(rng, n):
    """Returns n random F32 values with magnitudes between 0.5 and 1."""
    bits = int.from_bytes(rng.randbytes(4 * n), "little")
    keep = int.from_bytes(struct.pack("<I", 0x807fffff) * n, "little")
    return (bits & keep | int.from_bytes(struct.pack("<I", 0x3f000000) * n, "little")).to_bytes(4 * n, "little")


def contents(name, kind, dims, rng):
    """Returns the data of a tensor that needs some: vectors, and distinct rows of routers and tokens. Others get a
    hole."""
    if name == "token_embd.weight":
        return b"".join(b"\0\x24" + rng.randbytes(32) for _ in range(dims[0] // 32 * 64))
    if name.endswith("ffn_gate_inp.weight"):
        return floats(rng, math.prod(dims))
    if kind == I32:
        return struct.pack(f"<{math.prod(dims)}i", *rng.choices(range(256), k=math.prod(dims)))
    if kind == F32:
        return struct.pack("<f", -0.1 if name.endswith("ssm_a") else 1.0) * math.prod(dims)
    return b""


def fill(rng):
    return lambda f, name, kind, dims: f.write(contents(name, kind, dims, rng))


# ---- counting

def run(build, model, kinds, steps, sample):
    """Runs the steps on the emulator. Returns [{part: {kernel: counts}}], one entry per step."""
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/model.gguf"
        write_model(path, model, kinds, tensors_of(model, kinds), fill(random.Random(1)))
        command = [build / "tests" / "simt" / "roofline", path, str(sample), str(SMS), *(f"{s}x{n}x{c}" for s, n, c in steps)]
        out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{out.stderr}")
    return [json.loads("{" + t)["parts"] for t in out.stdout.split("\n{")] if out.stdout[0] != "{" else \
        [json.loads("{" + t)["parts"] for t in ("\n" + out.stdout).split("\n{")[1:]]


def add(total, part, factor):
    """Adds factor * part to total, by kernel."""
    for kernel, counts in part.items():
        mine = total.setdefault(kernel, {})
        for what, n in counts.items():
            mine[what] = mine.get(what, 0) + factor * n


def count_model(build, model, steps):
    """Returns {step: {kernel: counts}} of the complete model. Counted are the first layer (no layer before it packs
    its input), one layer of each kind, and the last one (only few of its tokens are needed)."""
    parts = list(dict.fromkeys(p for step in steps.values() for p, _ in step))
    kinds = list(model["layers"])
    many = [1, *(model["layers"][k] for k in kinds), 1]
    kinds = [kinds[0], *kinds, kinds[-1]]
    many[1] -= 1
    many[-2] -= 1
    counted = dict(zip(parts, run(build, model, kinds, parts, SAMPLE)))
    out = {}
    for name, step in steps.items():
        sums = {}
        for p, times in step:
            for part, kernels in counted[p].items():
                layer = int(part)
                add(sums, kernels, times * (many[layer] if 0 <= layer < len(kinds) else 1))
        out[name] = sums
    return out


# ---- the minimum, and the resulting time

# mma_tf32 takes as long as a product of 16-bit floats. Values are (operations, peak rate of CARDS).
MMA = {"mma_bf16": (4096, "half"), "mma_f16": (4096, "half"), "mma_tf32": (4096, "half"),
       "mma_s8_k16": (4096, "int8"), "mma_s8_k32": (8192, "int8"),
       "mma_nvfp4": (16384, "fp4"), "mma_mxfp4": (16384, "fp4"), "mma_mx8": (8192, "fp8"),
       "wgmma": (65536, "half")}
MEMORY = ("ldmatrix", "lds", "sts", "ldg", "stg", "cp_async", "bulk")

# Published numbers: bytes per second, multiprocessors, clock, operations per second of dense products.
CARDS = {
    "GB10": dict(bytes=273e9, sms=48, clock=2.418e9, half=119e12, int8=238e12, fp8=238e12, fp4=475e12),
    "RTX PRO 6000": dict(bytes=1.792e12, sms=188, clock=2.617e9, half=503.8e12, int8=1007.6e12, fp8=1007.6e12, fp4=2015.2e12),
    # F16 with F32 sums, which the kernels use, has half the rate of F16 sums; so has FP8.
    "RTX 5090": dict(bytes=1.792e12, sms=170, clock=2.407e9, half=209.5e12, int8=838e12, fp8=419e12, fp4=1676e12),
    "H100 SXM": dict(bytes=3.35e12, sms=132, clock=1.83e9, half=989.4e12, int8=1978.9e12, fp8=1978.9e12, fp4=None),
}
LAUNCH = 1.5e-6  # assumed seconds from one kernel's end to the start of the next one's work, in a graph
L2_BYTES, ISSUES = 64, 4  # a multiprocessor's maximum bytes and instructions per clock


def loops_of_report(path):
    """Returns {kernel: {class: instructions}} of the main loops in kernel_report.py's document."""
    found = {}
    for line in path.read_text().splitlines():
        if m := re.match(r"\| `([^`]+)` \|.*\| \d+: ([^|]+) \|$", line):
            found[m[1]] = {c: int(n) for n, c in (part.split() for part in m[2].split(", "))}
    return found


def of_each_mma(loop):
    return sum(loop.values()) / loop["mma"]


def issue_slots(kernel, counts, loops):
    """Returns the warp instructions of a kernel: the counted ones, scaled by the other instructions of the main loop.
    For `mixed` the report has only the loop of BF16 matrices. Packed types, here all F16, use the loop of w16_few for
    Q4_K, which is the longest."""
    seen = sum(counts.get(k, 0) for k in (*MMA, *MEMORY))
    loop = loops.get(kernel)
    mma = sum(counts.get(k, 0) for k in MMA)
    if loop and loop.get("mma") and mma:
        packed = counts.get("mma_f16", 0) if (m := re.match(r"mixed::mixed<(\d), (\d)>", kernel)) else 0
        more = packed * of_each_mma(loops[f"w16_few<12, {m[2]}, {m[1]}>"]) if m else 0
        return more + (mma - packed) * of_each_mma(loop)
    known = loop and loop.get("mma", 0) + loop.get("shared", 0) + loop.get("global", 0)
    return seen * (sum(loop.values()) / known if known else 4)


def bounds(counts, slots, card):
    """Returns {limit: seconds} for each resource that a kernel needs, taken alone."""
    working = (counts["blocks"] - counts["empty"]) / max(1, counts["launches"])
    sms = max(1.0, min(card["sms"], working))
    part = sms / card["sms"]
    out = {"memory": 32 * (counts["touched_read"] + counts["touched_written"]) / card["bytes"],
           "L2": 32 * (counts["read"] + counts["written"]) / (L2_BYTES * card["clock"] * sms),
           "shared memory": counts["wavefronts"] / (card["clock"] * sms),
           "issue": slots / (ISSUES * card["clock"] * sms)}
    rates = {}
    for kind, (n, rate) in MMA.items():
        rates[rate] = rates.get(rate, 0) + n * counts.get(kind, 0)
    out["tensor cores"] = sum(n / ((card[r] or card["fp8"]) * part) for r, n in rates.items())
    return out


def latent_rows(shape, each, ctx):
    """Returns (bytes of rows, entries and indexer keys that a sequence's step reads, operations per token). Values are
    F16; all heads share one row."""
    h, d, ratio, (ih, i_dim, top) = shape
    entries = ctx // ratio if ratio else 0
    seen = min(entries, top) if ratio == 4 else entries
    rows = 128 + each + (seen if each == 1 else entries)
    index = entries * i_dim if ratio == 4 else 0
    return 2 * (rows * d + index), 4 * h * d * (min(ctx, 128) + seen) + 2 * ih * index


def least(model, step):
    """Returns the minimum bytes and operations of a step: used weights once, caches and states once, product
    operations."""
    size = work = 0
    for (seqs, each, ctx), times in step:
        rows = seqs * each
        logits = seqs
        for kind, n_layers in model["layers"].items():
            for name, t, dims in model["layer"](kind):
                if len(dims) == 3 and "_exps" in name:
                    x = dims[2]
                    share = 1 - (1 - model["used"] / x) ** rows
                    size += times * n_layers * share * size_of(t, dims)
                    work += times * n_layers * 2 * rows * model["used"] * dims[0] * dims[1]
                else:
                    size += times * n_layers * size_of(t, dims)
                    work += times * n_layers * 2 * rows * math.prod(dims) if len(dims) > 1 else 0
            if kind in model["state"]:
                writes = 1 / 16 if each == 1 else 1
                size += times * n_layers * seqs * 4 * model["state"][kind] * (1 + writes)
                work += times * n_layers * rows * 6 * model["state"][kind]
            if kind in model.get("latent", {}):
                held, seen = latent_rows(model["latent"][kind], each, ctx)
                size += times * n_layers * seqs * held
                work += times * n_layers * rows * seen
            if "mla" in model:
                h, width, values = model["mla"]
                seen = sum(ctx - each + i + 1 for i in range(each))
                size += times * n_layers * seqs * 2 * width * (ctx + each)
                work += times * n_layers * seqs * seen * 2 * h * (width + values)
            if kind in model["attention"]:
                h, g, d, window = model["attention"][kind]
                held = min(ctx, window + each) if window else ctx
                seen = sum(min(ctx - each + i + 1, window or ctx) for i in range(each))
                size += times * n_layers * seqs * 4 * g * d * (held + each)
                work += times * n_layers * seqs * seen * 4 * h * d
        size += times * (size_of(Q8_0, [model["e"], model["vocab"]]) + 4 * logits * model["vocab"])
        work += times * 2 * logits * model["e"] * model["vocab"]
    return size, work


# ---- the document

NOTES = "**Of which tree.**"
HEAD = """# Rooflines

Written by tools/roofline.py from counts of the emulator; nothing here was measured on a device. The tables show the
work of a step of the current backend, and compare it with the minimum that the model needs.

**Counts.** The backend runs the real step (forward and logits, without sampling) of a model with the real shapes on
the emulator. The emulator is set to sm_120 with {sms} multiprocessors. Weights are zeros, caches F16, embeddings and
output matrices Q8_0. Options are the defaults (fp4-mode auto: MXFP4 with activations in FP8). One layer of each kind
is counted and multiplied.

Of launches with more than {few} blocks, up to {sample} blocks run in the grid's first dimension and 2 in the others;
they stand for all. Attention in decode runs all its blocks (tests/simt/counters.h). Counts of tensor-core
instructions, asynchronous copies and ldmatrix are exact for the blocks that run. Plain loads and stores are the host
compiler's, which keeps fewer values in registers than nvcc. Their requests are therefore an upper bound: by about a
tenth in matmul kernels, by more in the delta net's.

Decode has 1,992 tokens per sequence. Steps are padded like captured ones, so 1 and 8 sequences see up to 2,047 keys.
A prefill step has 2,048 tokens; a prefill of 8,192 is four steps.

| column | meaning |
|---|---|
| bytes | memory that each launch touches; each 32-byte sector counts once per launch |
| least | weights (experts as random rows select them), caches and states once; delta-net states written every 16 tokens |
| requested | sectors by request, from the L2 cache |
| operations | of the tensor-core instructions; a multiply-add is two. The minimum is that of the products |
| issue slots | warp instructions, see below |

**Issue slots** are the counted tensor-core instructions, or else the counted loads, stores and copies. Each is scaled
by the other instructions of the main loop (tools/kernel_report.py's report). The result is accurate to a quarter in the first case,
and to a factor of two in the second. A kernel without a main loop there has four slots per counted instruction
(marked *). Attention's numbers are too low, because work between its inner loops is outside the main loop.

**Time** of a kernel is the slowest of these, plus {launch} us per launch, which is assumed: bytes by memory
bandwidth, requests by {l2} bytes per clock and multiprocessor, shared-memory wavefronts by one, issue slots by
{issues}, operations by the peak. Only multiprocessors with blocks count. No kernel reaches these limits, so a real
step takes longer. H100's mma.sync reaches about two thirds of the peak, which is wgmma's.

Peaks (dense): {cards}. They are from NVIDIA's data sheets (GB10's operations follow from 1 PFLOP of FP4 with
sparsity).
"""


def number(n):
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= limit:
            return f"{n / limit:.3g} {unit}"
    return f"{n:.3g}"


def micro(seconds):
    return f"{seconds * 1e6:,.0f}" if seconds < 0.01 else f"{seconds * 1e6:,.0f}"


def times_of(kernels, slots, card):
    """Returns {kernel: (seconds including launches, limiting resource)}."""
    out = {}
    for k, c in kernels.items():
        b = bounds(c, slots[k], card)
        what = max(b, key=b.get)
        launches = c["launches"] * LAUNCH
        out[k] = (b[what] + launches, what if b[what] > launches else "launches")
    return out


def model_text(name, counted, loops):
    model = MODELS[name]
    lines = [f"## {name}", "", "| step | launches | bytes | least | operations | least | issue slots | " +
             " | ".join(f"{c}, ms | least" for c in CARDS) + " |", "|---" * (7 + 2 * len(CARDS)) + "|"]
    details = []
    for step, kernels in counted.items():
        slots = {k: issue_slots(k, c, loops) for k, c in kernels.items()}
        size = 32 * sum(c["touched_read"] + c["touched_written"] for c in kernels.values())
        work = sum(n * c.get(k, 0) for c in kernels.values() for k, (n, _) in MMA.items())
        least_size, least_work = least(model, steps_of(name)[step])
        cells = [step, f"{sum(c['launches'] for c in kernels.values()):,.0f}", number(size) + "B", number(least_size) + "B",
                 number(work), number(least_work), number(sum(slots.values()))]
        for card in CARDS.values():
            total = sum(t for t, _ in times_of(kernels, slots, card).values())
            peak = card["half"] if not card["fp4"] else card["fp4"] if "NVFP4" in name else card["fp8"] if "MXFP4" in name else card["half"]
            best = max(least_size / card["bytes"], least_work / peak)
            cells += [f"{total * 1e3:,.2f}", f"{best * 1e3:,.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
        details += step_text(step, kernels, slots, loops)
    return lines + [""] + details


def step_text(step, kernels, slots, loops):
    lines = [f"### {step}", "", "| kernel | launches | blocks a launch | empty | bytes | requested | mma | conflicts | issue slots | " +
             " | ".join(f"{c}, us | by" for c in CARDS) + " |", "|---" * (9 + 2 * len(CARDS)) + "|"]
    times = {c: times_of(kernels, slots, card) for c, card in CARDS.items()}
    for k, c in sorted(kernels.items(), key=lambda i: -times["RTX PRO 6000"][i[0]][0]):
        touched, asked = 32 * (c["touched_read"] + c["touched_written"]), 32 * (c["read"] + c["written"])
        mma = sum(c.get(m, 0) for m in MMA)
        cells = [f"`{k}`", f"{c['launches']:,.0f}", f"{c['blocks'] / c['launches']:,.0f}", f"{100 * c['empty'] / c['blocks']:.0f} %",
                 number(touched) + "B", number(asked) + "B", number(mma) if mma else "",
                 f"{c['wavefronts'] / c['least']:.2f}" if c["least"] else "", number(slots[k]) + ("" if k in loops else "*")]
        for card in CARDS:
            t, what = times[card][k]
            cells += [f"{t * 1e6:,.0f}", what]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + [""]


# ---- before and after

COMPARED = "## Before and after"


def cells_of(line):
    return [c.strip() for c in line.strip().strip("|").split("|")]


def tables_of(text):
    """Parses a document. Returns {model: {step: ({column: cell}, {kernel: {column: cell}})}}."""
    out, model, step, names = {}, None, None, []
    for line in text.splitlines():
        if line.startswith("#"):
            model, step = (model, line[4:]) if line.startswith("### ") else (line[3:], None)
            names = []
        elif line.startswith("|---"):
            continue
        elif line.startswith("|") and not names:
            names = cells_of(line)
        elif line.startswith("|") and model in MODELS:
            cells = dict(zip(names, cells_of(line)))
            if step is None:
                out.setdefault(model, {})[cells["step"]] = (cells, {})
            else:
                out[model][step][1][cells["kernel"]] = cells
    return out


def figure(cell):
    return float(cell.replace(",", ""))


def families(kernels, card):
    """Returns {kernel name without template arguments: (launches, microseconds)}."""
    out = {}
    for k, cells in kernels.items():
        n, t = out.get(name := k.strip("`").split("<")[0], (0, 0))
        out[name] = (n + figure(cells["launches"]), t + figure(cells[f"{card}, us"]))
    return out


def compared(before, now):
    """Returns a table of steps, and one of the kernels with a time that changed by a tenth and by a hundredth of its
    step's."""
    card = "RTX PRO 6000"
    lines = ["| step | launches | bytes | operations | issue slots | GB10, ms | RTX PRO 6000, ms | H100 SXM, ms |", "|---" * 8 + "|"]
    kernels = [f"| step | kernels | launches | {card}, us |", "|---" * 4 + "|"]
    for model in MODELS:
        for step, (new, new_kernels) in now.get(model, {}).items():
            old, old_kernels = before.get(model, {}).get(step, ({}, {}))
            if not old:
                continue
            lines.append(f"| {model}: {step} | " + " | ".join(f"{old[c]} -> {new[c]}" for c in cells_of(lines[0])[1:]) + " |")
            a, b = families(old_kernels, card), families(new_kernels, card)
            for k in {**a, **b}:
                (n, x), (m, y) = a.get(k, (0, 0)), b.get(k, (0, 0))
                if abs(x - y) > max(10 * figure(old[f"{card}, ms"]), 0.1 * max(x, y)):
                    kernels.append(f"| {model}: {step} | `{k}` | {n:,.0f} -> {m:,.0f} | {x:,.0f} -> {y:,.0f} |")
    return lines + [""] + (kernels + [""] if len(kernels) > 2 else [])


def comparison(out, before, after):
    """Returns the comparison section: against the document `before`, or the section of the file `out`."""
    if before:
        text = before.read_text()
        return [COMPARED, "", "An earlier tree (left) and this one, for the steps that both counted.", "",
                *compared(tables_of(text), tables_of(after))]
    old = out.read_text() if out.exists() else ""
    return [COMPARED + old.split(COMPARED, 1)[1].rstrip(), ""] if COMPARED in old else []


# Types with 16-bit float products (kernels/w16.cuh): type number of their kernels, bytes of 32 weights.
W16 = {"Q8_0": (8, 34), "Q4_0": (2, 18), "Q4_K": (12, 18), "Q6_K": (14, 26.25), "IQ4_XS": (23, 17), "MXFP4": (39, 17), "NVFP4": (40, 18)}
# Column: (groups of rows, tiles of W).
W16_LOOPS = {"8 rows, small": (1, 1), "8 rows": (1, 4), "16": (2, 4), "32": (4, 4), "64": (8, 4)}
TYPES = "Products of few rows, by type"


def types_text(loops):
    """Returns a table of w16_few() by type: main-loop instructions per byte of W, and their share of the issue
    slots."""
    cards = {n: c["sms"] * ISSUES * c["clock"] / c["bytes"] for n, c in CARDS.items() if n in ("GB10", "RTX PRO 6000")}
    lines = [f"## {TYPES}", "",
             "Instructions of w16_few's main loop (tools/kernel_report.py's report, sm_120f) per byte of W, and their share of the issue slots that pass",
             f"while memory delivers that byte ({' and '.join(f'{v:.2f} on {n}' for n, v in cards.items())}). Small matrices with few rows use",
             "blocks of one tile of 16 rows of W, others blocks of four.", "",
             "| type | " + " | ".join(f"{n}{'' if 'rows' in n else ' rows'}" for n in W16_LOOPS) + " |", "|---" * (1 + len(W16_LOOPS)) + "|"]
    for name, (number_of, size) in W16.items():
        cells = []
        for groups, tiles in W16_LOOPS.values():
            loop = loops[f"w16_few<{number_of}, {groups}, {tiles}>"]
            # A tile's 32 columns are two instructions per group.
            each = sum(loop.values()) / (loop["mma"] / (2 * groups)) / (16 * size)
            cells.append(f"{each:.2f}: " + ", ".join(f"{100 * each / v:.0f} %" for v in cards.values()))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def section(text, name):
    """Returns the lines of a section with this heading."""
    found = re.search(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", text, re.M | re.S)
    return found[0].rstrip().split("\n") + [""] if found else []


def notes(text):
    """Returns the hand-written notes after the head of a document."""
    found = re.search(rf"^{re.escape(NOTES)}.*?(?=^## |\Z)", text, re.M | re.S)
    return [found[0].rstrip(), ""] if found else []


def document(counts, kernels, before):
    loops = loops_of_report(kernels)
    cards = "; ".join(f"{n} {c['bytes'] / 1e9:,.0f} GB/s, {c['sms']} multiprocessors at {c['clock'] / 1e9:.2f} GHz, {c['half'] / 1e12:,.0f} "
                      f"TFLOPS of F16 and BF16, {c['int8'] / 1e12:,.0f} TOPS of int8" +
                      (f", {c['fp4'] / 1e12:,.0f} TFLOPS of FP4" if c["fp4"] else "") for n, c in CARDS.items())
    lines = [HEAD.format(sms=SMS, few=2 * SAMPLE, sample=SAMPLE, l2=L2_BYTES, issues=ISSUES, launch=LAUNCH * 1e6, cards=cards),
             *notes(before), *types_text(loops)]
    missing = [name for name in MODELS if name not in counts and not section(before, name)]
    if missing:
        lines += [f"Not counted: {', '.join(missing)}.", ""]
    for name in MODELS:
        if name in counts:
            lines += model_text(name, counts[name], loops)
        else:
            lines += section(before, name)
    return "\n".join(lines).rstrip() + "\n"


def with_steps(text, name, counted, loops):
    """Returns the document with a model's steps replaced by the new counts."""
    new, old = "\n".join(model_text(name, counted, loops)), "\n".join(section(text, name))
    if not old:
        sys.exit(f"{name} is not in the document yet")
    made = old
    for step in counted:
        for pattern, end in ((rf"(?m)^\| {re.escape(step)} \|.*$", ""), (rf"(?ms)^### {re.escape(step)}\n.*?(?=^### |\Z)", "\n\n")):
            now = re.search(pattern, new)[0].rstrip() + end
            made, n = re.subn(pattern, lambda _: now, made, count=1)
            if not n:
                sys.exit(f"{name} has no step {step!r} in the document yet")
    return text.replace(old.rstrip(), made.rstrip())


# ---- the bound

SMALL = {"dense": {**gemma3(256, 512, 4, 1, 256, 512, {"window": 1, "global": 1}, Q8_0), "vocab": 1024},
         "experts": {**qwen(True, 256, 0, 4, 2, 16, {"delta": 1, "attention": 1}, NVFP4, 16, 64), "vocab": 1024}}
SMALL_STEPS = [(1, 1, 200), (8, 1, 200), (32, 1, 200), (1, 40, 200)]


def small_counts(build):
    out = {}
    for name, model in SMALL.items():
        for step, parts in zip(SMALL_STEPS, run(build, model, list(model["layers"]), SMALL_STEPS, 0)):
            sums = {}
            for kernels in parts.values():
                add(sums, kernels, 1)
            every = sums.values()
            out[f"{name} {'x'.join(map(str, step))}"] = {
                "launches": sum(c["launches"] for c in every),
                "bytes": 32 * sum(c["touched_read"] + c["touched_written"] for c in every),
                "requested": 32 * sum(c["read"] + c["written"] for c in every),
                "conflicts": sum(c["wavefronts"] - c["least"] for c in every),
                "mma": sum(c.get(m, 0) for c in every for m in MMA)}
    return out


def check(build, bless):
    """Fails if a count exceeds the file's by a twentieth. The file's numbers are of one compiler and one choice of
    experts."""
    now = small_counts(build)
    if bless:
        BOUNDS.write_text(json.dumps(now, indent=1) + "\n")
        return
    before = json.loads(BOUNDS.read_text())
    worse = [f"{step}: {what} {n:,.0f}, where {BOUNDS.name} has {before[step][what]:,.0f}" for step, c in now.items()
             for what, n in c.items() if n > 1.05 * before[step][what]]
    if worse:
        sys.exit("\n".join(worse) + "\nA step needs more than before. If that is intended: tools/roofline.py --check --bless BUILD")
    print(f"{len(now)} steps need no more than {BOUNDS.name} allows")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", help="names, separated by ';'; '' for none: make the document from the --json file only")
    p.add_argument("--steps", help="count only these steps, separated by ';'")
    p.add_argument("--json", type=Path, help="file that keeps counts")
    p.add_argument("--before", type=Path, help="document of an earlier revision to compare with")
    p.add_argument("--out", type=Path, help="document to write; default BUILD/roofline.md")
    p.add_argument("--kernels", type=Path, help="report of kernel_report.py with the main loops; default BUILD/kernels.md")
    p.add_argument("--check", action="store_true")
    p.add_argument("--bless", action="store_true")
    p.add_argument("build", type=Path)
    a = p.parse_args()
    if a.check:
        check(a.build, a.bless)
        return
    a.out, a.kernels = a.out or a.build / "roofline.md", a.kernels or a.build / "kernels.md"
    models = [n for n in a.models.split(";") if n] if a.models is not None else MODELS
    if a.steps:
        text, loops = a.out.read_text(), loops_of_report(a.kernels)
        for name in models:
            steps = {s: parts for s, parts in steps_of(name).items() if s in a.steps.split(";")}
            text = with_steps(text, name, count_model(a.build, MODELS[name], steps), loops)
        a.out.write_text(text.replace("\n".join(section(text, TYPES)), "\n".join(types_text(loops))))
        return
    known = json.loads(a.json.read_text()) if a.json and a.json.exists() else {}
    for name in models:
        known[name] = count_model(a.build, MODELS[name], steps_of(name))
        if a.json:
            a.json.write_text(json.dumps(known))
    text = document(known, a.kernels, a.out.read_text() if a.out.exists() else "")
    a.out.write_text("\n".join([text, *comparison(a.out, a.before, text)]).rstrip() + "\n")


if __name__ == "__main__":
    main()
