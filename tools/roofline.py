#!/usr/bin/env python3
"""Counts what a step of large models launches on the CUDA backend, without a device and without the models, and says what is the least.

    tools/roofline.py [--models NAME,...] [--json FILE] [--out docs/roofline.md] BUILD
    tools/roofline.py --check [--bless] BUILD

BUILD is a build directory with tests (BUILD/tests/simt/roofline). Of each model a file is written with the real shapes, few layers
and holes for weights; the backend runs its step on the emulator, of large launches a sample of blocks (tests/simt/counters.h).
What one more layer of a kind adds is multiplied by how many the model has. Takes about a quarter of an hour; --models and --json
allow parts: results are kept in the file, and those of other models stay.

--check counts a few small steps whole and compares them with tests/simt/roofline_bounds.json: more launches, bytes or conflicts
are an error. --bless writes that file anew.
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

ROOT = Path(__file__).resolve().parent.parent
BOUNDS = ROOT / "tests" / "simt" / "roofline_bounds.json"
SMS = 188   # multiprocessors of the device that is emulated: an RTX PRO 6000
SAMPLE = 5  # blocks of the grid's first dimension, of the others at most two

F32, Q8_0, Q4_K, NVFP4 = 0, 8, 12, 40  # GGUF types
BLOCK = {F32: (1, 4), Q8_0: (32, 34), Q4_K: (256, 144), NVFP4: (64, 36)}  # values, bytes


def size_of(kind, dims):
    values, size = BLOCK[kind]
    return math.prod(dims) // values * size


# ---- models: keys, tensors, kinds of layers. A tensor: name, type, dimensions (first the columns)

def qwen(moe, e, f, h, g, u, layers, x=0, y=0, weights=NVFP4):
    d, t, s = 256, 16, 128

    def keys(kinds):
        k = {"embedding_length": e, "attention.head_count": h, "attention.head_count_kv": g, "attention.key_length": d,
             "attention.value_length": d, "rope.dimension_count": 64, "ssm.conv_kernel": 4, "ssm.state_size": s,
             "ssm.group_count": t, "ssm.time_step_rank": u, "ssm.inner_size": u * s, "rope.freq_base": 1e7,
             "attention.recurrent_layers": [i == "delta" for i in kinds]}
        more = {"expert_count": x, "expert_used_count": 8, "expert_feed_forward_length": y,
                "expert_shared_feed_forward_length": y} if moe else {"feed_forward_length": f}
        return {**k, **more}

    def layer(kind):
        out = [("attn_norm.weight", F32, [e]), ("post_attention_norm.weight", F32, [e])]
        if kind == "delta":
            c = (2 * t + u) * s
            out += [("attn_qkv.weight", weights, [e, c]), ("attn_gate.weight", weights, [e, u * s]),
                    ("ssm_alpha.weight", Q8_0, [e, u]), ("ssm_beta.weight", Q8_0, [e, u]), ("ssm_conv1d.weight", F32, [4, c]),
                    ("ssm_dt.bias", F32, [u]), ("ssm_a", F32, [u]), ("ssm_norm.weight", F32, [s]),
                    ("ssm_out.weight", weights, [u * s, e])]
        else:
            out += [("attn_q.weight", weights, [e, 2 * h * d]), ("attn_k.weight", weights, [e, g * d]),
                    ("attn_v.weight", weights, [e, g * d]), ("attn_q_norm.weight", F32, [d]), ("attn_k_norm.weight", F32, [d]),
                    ("attn_output.weight", weights, [h * d, e])]
        if not moe:
            return out + [("ffn_gate.weight", weights, [e, f]), ("ffn_up.weight", weights, [e, f]),
                          ("ffn_down.weight", weights, [f, e])]
        return out + [("ffn_gate_inp.weight", F32, [e, x]), ("ffn_gate_exps.weight", weights, [e, y, x]),
                      ("ffn_up_exps.weight", weights, [e, y, x]), ("ffn_down_exps.weight", weights, [y, e, x]),
                      ("ffn_gate_inp_shexp.weight", F32, [e]), ("ffn_gate_shexp.weight", weights, [e, y]),
                      ("ffn_up_shexp.weight", weights, [e, y]), ("ffn_down_shexp.weight", weights, [y, e])]

    # attention: heads of queries, of keys, their size, window; delta: values of a state
    return dict(arch="qwen35moe" if moe else "qwen35", keys=keys, layer=layer, e=e, vocab=248320, tied=False,
                head=[("output_norm.weight", F32, [e])], layers=layers, used=8 if moe else 0, experts=x,
                attention={"attention": (h, g, d, 0)}, state={"delta": u * s * s})


def gemma4(e, f, h, g, layers, x=0, y=0, weights=NVFP4):
    small, large = 256, 512

    def keys(kinds):
        local = [k == "window" for k in kinds]
        k = {"embedding_length": e, "attention.head_count": h, "attention.key_length": large, "attention.value_length": large,
             "attention.key_length_swa": small, "attention.value_length_swa": small, "rope.dimension_count": large,
             "rope.dimension_count_swa": small, "attention.sliding_window": 1024, "attention.shared_kv_layers": 0,
             "embedding_length_per_layer_input": 0, "attention.sliding_window_pattern": local,
             "attention.head_count_kv": [g[0] if i else g[1] for i in local], "feed_forward_length": f,
             "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "final_logit_softcapping": 30.0}
        return {**k, **({"expert_count": x, "expert_used_count": 8, "expert_feed_forward_length": y} if x else {})}

    def layer(kind):
        d, n = (small, g[0]) if kind == "window" else (large, g[1])
        out = [(f"{i}.weight", F32, [e]) for i in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")]
        out += [("attn_q.weight", weights, [e, h * d]), ("attn_k.weight", weights, [e, n * d]), ("attn_q_norm.weight", F32, [d]),
                ("attn_k_norm.weight", F32, [d]), ("attn_output.weight", weights, [h * d, e]),
                ("ffn_gate.weight", weights, [e, f]), ("ffn_up.weight", weights, [e, f]), ("ffn_down.weight", weights, [f, e]),
                ("layer_output_scale.weight", F32, [1])]
        if kind == "window":
            out.append(("attn_v.weight", weights, [e, n * d]))
        if x:
            out += [(f"{i}.weight", F32, [e]) for i in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")]
            out += [("ffn_gate_inp.weight", F32, [e, x]), ("ffn_gate_inp.scale", F32, [e]),
                    ("ffn_gate_up_exps.weight", weights, [e, 2 * y, x]), ("ffn_down_exps.weight", weights, [y, e, x]),
                    ("ffn_down_exps.scale", F32, [x])]
        return out

    return dict(arch="gemma4", keys=keys, layer=layer, e=e, vocab=262144, tied=True, used=8 if x else 0, experts=x,
                head=[("output_norm.weight", F32, [e]), ("rope_freqs.weight", F32, [large // 2])], layers=layers,
                attention={"window": (h, g[0], small, 1024), "global": (h, g[1], large, 0)}, state={})


def gemma3(e, f, h, g, d, window, layers, weights):
    def keys(kinds):
        return {"embedding_length": e, "feed_forward_length": f, "attention.head_count": h, "attention.head_count_kv": g,
                "attention.key_length": d, "attention.value_length": d, "attention.sliding_window": window,
                "attention.sliding_window_pattern": [k == "window" for k in kinds], "rope.freq_base": 1e6}

    def layer(_):
        out = [(f"{i}.weight", F32, [e]) for i in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")]
        return out + [("attn_q.weight", weights, [e, h * d]), ("attn_k.weight", weights, [e, g * d]),
                      ("attn_v.weight", weights, [e, g * d]), ("attn_q_norm.weight", F32, [d]), ("attn_k_norm.weight", F32, [d]),
                      ("attn_output.weight", weights, [h * d, e]), ("ffn_gate.weight", weights, [e, f]),
                      ("ffn_up.weight", weights, [e, f]), ("ffn_down.weight", weights, [f, e])]

    return dict(arch="gemma3", keys=keys, layer=layer, e=e, vocab=262144, tied=True, used=0, experts=0,
                head=[("output_norm.weight", F32, [e])], layers=layers,
                attention={"window": (h, g, d, window), "global": (h, g, d, 0)}, state={})


MODELS = {
    "Qwen3.6-27B, NVFP4": qwen(False, 5120, 17408, 24, 4, 48, {"delta": 48, "attention": 16}),
    "Qwen3.6-35B-A3B, NVFP4": qwen(True, 2048, 0, 16, 2, 32, {"delta": 30, "attention": 10}, 256, 512),
    "Gemma 4 31B, Q4_K": gemma4(5376, 21504, 32, (16, 4), {"window": 50, "global": 10}, weights=Q4_K),
    "Gemma 4 26B-A4B, NVFP4": gemma4(2816, 2112, 16, (8, 2), {"window": 25, "global": 5}, 128, 704),
    "Gemma 3 270M, Q8_0": gemma3(640, 2048, 4, 1, 256, 512, {"window": 15, "global": 3}, Q8_0),
}

# Steps: name, parts of (sequences, tokens each, tokens in the cache then)
CHUNK = 2048
STEPS = {f"decode, {n}": [(n, 1, 2000)] for n in (1, 8, 32, 128)}
STEPS["prefill of 2,048"] = [(1, CHUNK, CHUNK)]
STEPS["prefill of 8,192"] = [(1, CHUNK, c) for c in range(CHUNK, 4 * CHUNK + 1, CHUNK)]
LONG = {"decode, 1 at 128k": [(1, 1, 131000)]}


def steps_of(name):
    return {**STEPS, **(LONG if name.startswith("Qwen3.6-27B") else {})}


# ---- files with holes

def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def value(v):
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if isinstance(v, list) and isinstance(v[0], bool):
        return struct.pack("<IIQ", 9, 7, len(v)) + bytes(v)
    if isinstance(v, list):
        return struct.pack("<IIQ", 9, 5, len(v)) + struct.pack(f"<{len(v)}i", *v)
    return struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v)


def floats(rng, n):
    """Between -1 and -0.5 or 0.5 and 1."""
    bits = int.from_bytes(rng.randbytes(4 * n), "little")
    keep = int.from_bytes(struct.pack("<I", 0x807fffff) * n, "little")
    return (bits & keep | int.from_bytes(struct.pack("<I", 0x3f000000) * n, "little")).to_bytes(4 * n, "little")


def contents(name, kind, dims, rng):
    """What has to be there: vectors; routers, and rows of tokens, that differ; of the rest holes will do."""
    if name == "token_embd.weight":
        return b"".join(b"\0\x24" + rng.randbytes(32) for _ in range(dims[0] // 32 * 64))
    if name.endswith("ffn_gate_inp.weight"):
        return floats(rng, math.prod(dims))
    if kind == F32:
        return struct.pack("<f", -0.1 if name.endswith("ssm_a") else 1.0) * math.prod(dims)
    return b""


def tensors_of(model, kinds):
    e, v = model["e"], model["vocab"]
    out = [("token_embd.weight", Q8_0, [e, v])] + ([] if model["tied"] else [("output.weight", Q8_0, [e, v])]) + model["head"]
    for i, kind in enumerate(kinds):
        out += [(f"blk.{i}.{name}", t, dims) for name, t, dims in model["layer"](kind)]
    return out


def write_model(path, model, kinds):
    rng, arch = random.Random(1), model["arch"]
    keys = {"general.architecture": arch, "general.alignment": 32, f"{arch}.block_count": len(kinds),
            f"{arch}.context_length": 262144, f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
            **{f"{arch}.{k}": v for k, v in model["keys"](kinds).items()}}
    tensors, at, infos, places = tensors_of(model, kinds), 0, b"", []
    for name, kind, dims in tensors:
        infos += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}QIQ", *dims, kind, at)
        places.append(at)
        at += -(-size_of(kind, dims) // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(text(k) + value(v) for k, v in keys.items()) + infos
    start = -(-len(head) // 32) * 32
    with open(path, "wb") as f:
        f.write(head)
        for (name, kind, dims), place in zip(tensors, places):
            f.seek(start + place)
            f.write(contents(name, kind, dims, rng))
        f.truncate(start + at)


# ---- counting

def run(build, model, kinds, parts, sample):
    """[{kernel: counts}] of the steps."""
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/model.gguf"
        write_model(path, model, kinds)
        command = [build / "tests" / "simt" / "roofline", path, str(sample), str(SMS), *(f"{s}x{n}x{c}" for s, n, c in parts)]
        out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{out.stderr}")
    return [json.loads(t)["kernels"] for t in re.split(r"\n(?=\{)", out.stdout.strip())]


def added(a, b, factor=1.0):
    """a + factor * b, by kernel."""
    out = {k: dict(v) for k, v in a.items()}
    for kernel, counts in b.items():
        mine = out.setdefault(kernel, {})
        for what, n in counts.items():
            mine[what] = mine.get(what, 0) + factor * n
    return out


def count_model(build, model, steps):
    """{step: {kernel: counts}} of the whole model, from one layer of each kind, and one more of each."""
    parts = list(dict.fromkeys(p for step in steps.values() for p in step))
    kinds = list(model["layers"])
    base = run(build, model, kinds, parts, SAMPLE)
    total = [dict(b) for b in base]
    for i, kind in enumerate(kinds):
        more = run(build, model, kinds[:i] + [kind] + kinds[i:], parts, SAMPLE)
        for p in range(len(parts)):
            layer = added(more[p], base[p], -1)
            total[p] = added(total[p], layer, model["layers"][kind] - 1)
    out = {}
    for name, step in steps.items():
        sums = {}
        for p in step:
            sums = added(sums, total[parts.index(p)])
        out[name] = {k: {w: max(0, round(n)) for w, n in c.items()} for k, c in sums.items()}
    return out
