"""Shapes of models: the contents of their files, and a writer for them. For tools/roofline.py and
tools/synth.py.

A shape comes from the model's published configuration. Names of keys and tensors are GGUF's.
"""
import math
import struct

F32, F16, Q4_0, Q5_0, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, I32, BF16, MXFP4, NVFP4 = 0, 1, 2, 6, 8, 12, 13, 14, 20, 23, 26, 30, 39, 40
BLOCK = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q5_0: (32, 22), Q8_0: (32, 34), Q4_K: (256, 144), Q5_K: (256, 176), Q6_K: (256, 210),
         # values, bytes
         IQ4_NL: (32, 18), IQ4_XS: (256, 136), I32: (1, 4), BF16: (1, 2), MXFP4: (32, 17), NVFP4: (64, 36)}


def size_of(kind, dims):
    values, size = BLOCK[kind]
    return math.prod(dims) // values * size


# ---- models. Each function returns the keys, tensors, kinds of layers with their numbers, and the repeating order of
# kinds. A tensor is (name, type, dimensions), columns first. The parameter `weights` is the type of the matrices; None
# leaves the choice to the caller.

def qwen(moe, e, f, h, g, u, layers, weights, x=0, y=0, tied=False):
    d, t, s = 256, 16, 128

    def keys(kinds):
        k = {"embedding_length": e, "attention.head_count": h, "attention.head_count_kv": g, "attention.key_length": d,
             "attention.value_length": d, "rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0], "ssm.conv_kernel": 4, "ssm.state_size": s,
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

    # attention: {kind: (query heads, KV heads, head size, window)}; state: {kind: number of values of a state}
    return dict(arch="qwen35moe" if moe else "qwen35", keys=keys, layer=layer, e=e, vocab=248320, tied=tied, order=HYBRID,
                head=[("output_norm.weight", F32, [e])], layers=layers, used=8 if moe else 0, experts=x,
                attention={"attention": (h, g, d, 0)}, state={"delta": u * s * s})


def gemma4(e, f, h, g, layers, weights, x=0, y=0):
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

    return dict(arch="gemma4", keys=keys, layer=layer, order=WINDOWED, e=e, vocab=262144, tied=True, used=8 if x else 0, experts=x,
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

    return dict(arch="gemma3", keys=keys, layer=layer, order=WINDOWED, e=e, vocab=262144, tied=True, used=0, experts=0,
                head=[("output_norm.weight", F32, [e])], layers=layers,
                attention={"window": (h, g, d, window), "global": (h, g, d, 0)}, state={})


def deepseek4(e, h, d, q, g, o, x, used, f, index, layers, weights=MXFP4):
    """weights: type of the experts; other matrices are Q8_0. Kinds of layers: tokens per cache entry (0, 4, 128), and
    whether a table chooses the experts. index: the indexer's number of heads, head size and top-k."""
    ih, i_dim, top = index
    kind_of = {"window, by table": (0, True), "ratio 4, by table": (4, True), "ratio 128": (128, False), "ratio 4": (4, False)}

    def keys(kinds):
        return {"embedding_length": e, "attention.head_count": h, "attention.head_count_kv": 1, "attention.key_length": d,
                "attention.value_length": d, "rope.dimension_count": 64, "attention.q_lora_rank": q,
                "attention.sliding_window": 128, "expert_count": x, "expert_used_count": used, "expert_gating_func": 4,
                "expert_feed_forward_length": f, "expert_shared_count": 1, "expert_weights_norm": True,
                "expert_weights_scale": 1.5, "attention.indexer.head_count": ih, "attention.indexer.key_length": i_dim,
                "attention.indexer.top_k": top, "attention.output_group_count": g, "attention.output_lora_rank": o,
                "hyper_connection.count": 4, "hyper_connection.sinkhorn_iterations": 20, "hyper_connection.epsilon": 1e-6,
                "hash_layer_count": sum(kind_of[k][1] for k in kinds), "rope.freq_base": 1e4,
                "attention.compress_rope_freq_base": 1.6e5, "attention.compress_ratios": [kind_of[k][0] for k in kinds],
                "rope.scaling.type": "yarn", "rope.scaling.factor": 16.0, "rope.scaling.original_context_length": 65536,
                "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0, "swiglu_clamp_exp": 10.0}

    def compressor(name, ratio, dim):
        w = 2 * dim if ratio == 4 else dim
        return [(f"{name}_compressor_kv.weight", BF16, [e, w]), (f"{name}_compressor_gate.weight", BF16, [e, w]),
                (f"{name}_compressor_ape.weight", F32, [w, ratio]), (f"{name}_compressor_norm.weight", F32, [dim])]

    def layer(kind):
        ratio, table = kind_of[kind]
        out = [(f"hc_{b}_{n}", F32, dims) for b in ("attn", "ffn")
               for n, dims in (("fn.weight", [4 * e, 24]), ("base.weight", [24]), ("scale.weight", [3]))]
        out += [("attn_norm.weight", F32, [e]), ("attn_q_a.weight", Q8_0, [e, q]), ("attn_q_a_norm.weight", F32, [q]),
                ("attn_q_b.weight", Q8_0, [q, h * d]), ("attn_kv.weight", Q8_0, [e, d]), ("attn_kv_a_norm.weight", F32, [d]),
                ("attn_sinks.weight", F32, [h]), ("attn_output_a.weight", Q8_0, [h * d // g, o * g]),
                ("attn_output_b.weight", Q8_0, [g * o, e])]
        out += compressor("attn", ratio, d) if ratio else []
        if ratio == 4:
            out += compressor("indexer", 4, i_dim) + [("indexer.attn_q_b.weight", BF16, [q, ih * i_dim]),
                                                      ("indexer.proj.weight", BF16, [e, ih])]
        out += [("ffn_norm.weight", F32, [e]), ("ffn_gate_inp.weight", F32, [e, x])]
        out.append(("ffn_gate_tid2eid.weight", I32, [used, 129280]) if table else ("exp_probs_b.bias", F32, [x]))
        return out + [("ffn_gate_exps.weight", weights, [e, f, x]), ("ffn_up_exps.weight", weights, [e, f, x]),
                      ("ffn_down_exps.weight", weights, [f, e, x]), ("ffn_gate_shexp.weight", Q8_0, [e, f]),
                      ("ffn_up_shexp.weight", Q8_0, [e, f]), ("ffn_down_shexp.weight", Q8_0, [f, e])]

    head = [("output_norm.weight", F32, [e]), ("output_hc_fn.weight", F32, [4 * e, 4]), ("output_hc_base.weight", F32, [4]),
            ("output_hc_scale.weight", F32, [1])]
    return dict(arch="deepseek4", keys=keys, layer=layer, order=list(layers), e=e, vocab=129280, tied=False, head=head, layers=layers, used=used,
                experts=x, attention={}, state={}, latent={k: (h, d, kind_of[k][0], index) for k in layers})


def dense(arch, e, f, h, g, d, layers, vocab, tied, base, weights, x=0, y=0):
    """Models with one kind of layer: llama, qwen3, qwen3vl, qwen3moe. The last has x experts of width y, 8 of them
    active."""
    def keys(_):
        k = {"embedding_length": e, "attention.head_count": h, "attention.head_count_kv": g, "attention.key_length": d,
             "attention.value_length": d, "rope.dimension_count": d, "rope.freq_base": base, "feed_forward_length": f or y}
        if arch == "qwen3vl":
            k |= {"rope.dimension_sections": [24, 20, 20, 0], "n_deepstack_layers": DEEPSTACK}
        return {**k, **({"expert_count": x, "expert_used_count": 8, "expert_feed_forward_length": y} if x else {})}

    def layer(_):
        out = [("attn_norm.weight", F32, [e]), ("ffn_norm.weight", F32, [e]), ("attn_q.weight", weights, [e, h * d]),
               ("attn_k.weight", weights, [e, g * d]), ("attn_v.weight", weights, [e, g * d]), ("attn_output.weight", weights, [h * d, e])]
        if arch != "llama":
            out += [("attn_q_norm.weight", F32, [d]), ("attn_k_norm.weight", F32, [d])]
        if x:
            return out + [("ffn_gate_inp.weight", F32, [e, x]), ("ffn_gate_exps.weight", weights, [e, y, x]),
                          ("ffn_up_exps.weight", weights, [e, y, x]), ("ffn_down_exps.weight", weights, [y, e, x])]
        return out + [("ffn_gate.weight", weights, [e, f]), ("ffn_up.weight", weights, [e, f]), ("ffn_down.weight", weights, [f, e])]

    return dict(arch=arch, keys=keys, layer=layer, order=["attention"], e=e, vocab=vocab, tied=tied, used=8 if x else 0, experts=x,
                head=[("output_norm.weight", F32, [e])], layers={"attention": layers}, attention={"attention": (h, g, d, 0)}, state={})


def lfm2(e, f, h, g, order, vocab, weights):
    """order: kinds of the layers, "conv" or "attention"."""
    def keys(kinds):
        return {"embedding_length": e, "feed_forward_length": f, "attention.head_count": h,
                "attention.head_count_kv": [g if k == "attention" else 0 for k in kinds], "rope.freq_base": 1e6, "shortconv.l_cache": 3}

    def layer(kind):
        d = e // h
        out = [("attn_norm.weight", F32, [e]), ("ffn_norm.weight", F32, [e]), ("ffn_gate.weight", weights, [e, f]),
               ("ffn_up.weight", weights, [e, f]), ("ffn_down.weight", weights, [f, e])]
        if kind == "conv":
            return out + [("shortconv.in_proj.weight", weights, [e, 3 * e]), ("shortconv.conv.weight", F32, [3, e]),
                          ("shortconv.out_proj.weight", weights, [e, e])]
        return out + [("attn_q.weight", weights, [e, e]), ("attn_k.weight", weights, [e, g * d]), ("attn_v.weight", weights, [e, g * d]),
                      ("attn_q_norm.weight", F32, [d]), ("attn_k_norm.weight", F32, [d]), ("attn_output.weight", weights, [e, e])]

    return dict(arch="lfm2", keys=keys, layer=layer, order=order, e=e, vocab=vocab, tied=True, used=0, experts=0, context=128000,
                head=[("token_embd_norm.weight", F32, [e])], layers=of_layers(order, len(order)),
                attention={"attention": (h, g, e // h, 0)}, state={})


def ssm(e, heads, d, state, groups, weights):
    """Returns the keys and tensors of a Mamba-2 mixer with these heads of d values."""
    inner, shared = heads * d, groups * state
    keys = {"ssm.conv_kernel": 4, "ssm.state_size": state, "ssm.group_count": groups, "ssm.time_step_rank": heads, "ssm.inner_size": inner}
    return keys, [("ssm_in.weight", weights, [e, 2 * inner + 2 * shared + heads]), ("ssm_conv1d.weight", F32, [4, inner + 2 * shared]),
                  ("ssm_conv1d.bias", F32, [inner + 2 * shared]), ("ssm_dt.bias", F32, [heads]), ("ssm_a", F32, [1, heads]),
                  ("ssm_d", F32, [1, heads]), ("ssm_norm.weight", F32, [inner // groups, groups]), ("ssm_out.weight", weights, [inner, e])]


def self_attention(e, h, g, d, weights):
    return [("attn_q.weight", weights, [e, h * d]), ("attn_k.weight", weights, [e, g * d]), ("attn_v.weight", weights, [e, g * d]),
            ("attn_output.weight", weights, [h * d, e])]


def nemotron_h_moe(e, h, g, d, mixer, x, used, y, shared, order, vocab, weights):
    """order: kinds of the layers, "mamba", "attention" or "experts"; mixer: heads, their size, state, groups."""
    more, tensors = ssm(e, *mixer, weights)

    def keys(kinds):
        return {"embedding_length": e, "attention.head_count": h, "attention.key_length": d, "attention.value_length": d,
                "attention.head_count_kv": [g if k == "attention" else 0 for k in kinds], **more,
                "feed_forward_length": [y if k == "experts" else 0 for k in kinds], "attention.layer_norm_epsilon": 1e-5,
                "expert_count": x, "expert_used_count": used, "expert_feed_forward_length": y, "expert_shared_count": 1,
                "expert_shared_feed_forward_length": shared, "expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_group_count": 1}

    def layer(kind):
        out = [("attn_norm.weight", F32, [e])]
        if kind == "mamba":
            return out + tensors
        if kind == "attention":
            return out + self_attention(e, h, g, d, weights)
        return out + [("ffn_gate_inp.weight", F32, [e, x]), ("exp_probs_b.bias", F32, [x]), ("ffn_up_exps.weight", weights, [e, y, x]),
                      ("ffn_down_exps.weight", weights, [y, e, x]), ("ffn_up_shexp.weight", weights, [e, shared]),
                      ("ffn_down_shexp.weight", weights, [shared, e])]

    return dict(arch="nemotron_h_moe", keys=keys, layer=layer, order=order, e=e, vocab=vocab, tied=False, used=used, experts=x,
                context=1048576, head=[("output_norm.weight", F32, [e])], layers=of_layers(order, len(order)),
                attention={"attention": (h, g, d, 0)}, state={"mamba": mixer[0] * mixer[1] * mixer[2]})


def granite_hybrid(e, h, g, d, mixer, x, used, y, shared, order, vocab, weights):
    """Like nemotron_h_moe, but each layer also has experts."""
    more, tensors = ssm(e, *mixer, weights)

    def keys(kinds):
        return {"embedding_length": e, "attention.head_count": h, "attention.head_count_kv": [g if k == "attention" else 0 for k in kinds],
                **more, "feed_forward_length": y, "expert_count": x, "expert_used_count": used, "expert_shared_feed_forward_length": shared,
                "attention.scale": 1 / 128, "embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 6.0,
                "rope.dimension_count": d, "rope.freq_base": 1e4, "rope.scaling.finetuned": False}

    def layer(kind):
        return [("attn_norm.weight", F32, [e]), *(tensors if kind == "mamba" else self_attention(e, h, g, d, weights)),
                ("ffn_norm.weight", F32, [e]), ("ffn_gate_inp.weight", F32, [e, x]), ("ffn_gate_exps.weight", weights, [e, y, x]),
                ("ffn_up_exps.weight", weights, [e, y, x]), ("ffn_down_exps.weight", weights, [y, e, x]),
                ("ffn_gate_shexp.weight", weights, [e, shared]), ("ffn_up_shexp.weight", weights, [e, shared]),
                ("ffn_down_shexp.weight", weights, [shared, e])]

    return dict(arch="granitehybrid", keys=keys, layer=layer, order=order, e=e, vocab=vocab, tied=True, used=used, experts=x,
                context=131072, head=[("output_norm.weight", F32, [e])], layers=of_layers(order, len(order)),
                attention={"attention": (h, g, d, 0)}, state={"mamba": mixer[0] * mixer[1] * mixer[2]})


def gpt_oss(layers, x, weights=MXFP4):
    """weights: type of the experts, 4 of them active; other matrices are Q8_0."""
    e, h, g, d, y = 2880, 64, 8, 64, 2880

    def keys(_):
        return {"embedding_length": e, "attention.head_count": h, "attention.head_count_kv": g, "attention.key_length": d,
                "attention.value_length": d, "attention.sliding_window": 128, "feed_forward_length": y, "rope.freq_base": 1.5e5,
                "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096,
                "expert_count": x, "expert_used_count": 4, "expert_feed_forward_length": y}

    def layer(_):
        out = [("attn_norm.weight", F32, [e]), ("post_attention_norm.weight", F32, [e]), ("attn_sinks.weight", F32, [h])]
        for name, n_in, n_out in (("attn_q", e, h * d), ("attn_k", e, g * d), ("attn_v", e, g * d), ("attn_output", h * d, e)):
            out += [(f"{name}.weight", Q8_0, [n_in, n_out]), (f"{name}.bias", F32, [n_out])]
        out += [("ffn_gate_inp.weight", F32, [e, x]), ("ffn_gate_inp.bias", F32, [x])]
        for name, n_in, n_out in (("ffn_gate", e, y), ("ffn_up", e, y), ("ffn_down", y, e)):
            out += [(f"{name}_exps.weight", weights, [n_in, n_out, x]), (f"{name}_exps.bias", F32, [n_out, x])]
        return out

    return dict(arch="gpt-oss", keys=keys, layer=layer, order=["window", "global"], e=e, vocab=201088, tied=False, used=4, experts=x,
                head=[("output_norm.weight", F32, [e])], layers=of_layers(["window", "global"], layers), state={},
                attention={"window": (h, g, d, 128), "global": (h, g, d, 0)})


def deepseek2(e, f, h, q, x, used, y, shared, groups, scale, lead, layers, vocab, v3, weights):
    """All sizes have keys of 128 plus 64 rotated values, values of 128, and cache rows of 512 plus 64. q: rank of the
    queries (0: no low rank). groups: (expert groups, groups used per token). lead: number of first layers without
    experts."""
    nope, rot, v, rank = 128, 64, 128, 512

    def keys(kinds):
        k = {"embedding_length": e, "feed_forward_length": f, "attention.head_count": h, "attention.head_count_kv": 1,
             "attention.key_length": rank + rot, "attention.value_length": rank, "attention.key_length_mla": nope + rot,
             "attention.value_length_mla": v, "attention.kv_lora_rank": rank, "rope.dimension_count": rot, "rope.freq_base": 1e4,
             "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0, "rope.scaling.original_context_length": 4096,
             "rope.scaling.yarn_log_multiplier": 0.1 if v3 else 0.0707, "expert_count": x, "expert_used_count": used,
             "expert_feed_forward_length": y, "expert_shared_count": shared, "expert_weights_scale": scale,
             "expert_weights_norm": v3, "expert_gating_func": 2 if v3 else 1, "leading_dense_block_count": kinds.count("dense")}
        more = {"expert_group_count": groups[0], "expert_group_used_count": groups[1]} if groups else {}
        return {**k, **more, **({"attention.q_lora_rank": q} if q else {})}

    def layer(kind):
        wide = h * (nope + rot)
        out = [("attn_norm.weight", F32, [e]), ("ffn_norm.weight", F32, [e])]
        out += [("attn_q_a.weight", weights, [e, q]), ("attn_q_a_norm.weight", F32, [q]),
                ("attn_q_b.weight", weights, [q, wide])] if q else [("attn_q.weight", weights, [e, wide])]
        out += [("attn_kv_a_mqa.weight", weights, [e, rank + rot]), ("attn_kv_a_norm.weight", F32, [rank]),
                ("attn_k_b.weight", weights, [nope, rank, h]), ("attn_v_b.weight", weights, [rank, v, h]),
                ("attn_output.weight", weights, [h * v, e])]
        if kind == "dense":
            return out + [("ffn_gate.weight", weights, [e, f]), ("ffn_up.weight", weights, [e, f]), ("ffn_down.weight", weights, [f, e])]
        out += [("ffn_gate_inp.weight", F32, [e, x])] + ([("exp_probs_b.bias", F32, [x])] if v3 else [])
        for name, n_in, n_out in (("ffn_gate", e, y), ("ffn_up", e, y), ("ffn_down", y, e)):
            both = [shared * n_in, n_out] if name == "ffn_down" else [n_in, shared * n_out]
            out += [(f"{name}_exps.weight", weights, [n_in, n_out, x]), (f"{name}_shexp.weight", weights, both)]
        return out

    order = ["dense"] * lead + ["experts"] * (layers - lead)
    return dict(arch="deepseek2", keys=keys, layer=layer, order=order, e=e, vocab=vocab, tied=False, used=used, experts=x, context=163840,
                head=[("output_norm.weight", F32, [e])], layers=of_layers(order, layers), attention={}, state={}, mla=(h, rank + rot, rank))


# ---- files

def text(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


def value(v):
    if isinstance(v, bytes):  # already encoded, from another file
        return v
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if isinstance(v, list) and isinstance(v[0], str):
        return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(text, v))
    if isinstance(v, list) and isinstance(v[0], bool):
        return struct.pack("<IIQ", 9, 7, len(v)) + bytes(v)
    if isinstance(v, list) and isinstance(v[0], float):
        return struct.pack("<IIQ", 9, 6, len(v)) + struct.pack(f"<{len(v)}f", *v)
    if isinstance(v, list):
        return struct.pack("<IIQ", 9, 5, len(v)) + struct.pack(f"<{len(v)}i", *v)
    if isinstance(v, bool):
        return struct.pack("<IB", 7, v)
    return struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v)


def tensors_of(model, kinds, ends=Q8_0):
    """Returns all tensors. Embeddings and the output matrix have type `ends`."""
    if model["arch"] == "clip":
        return model["head"] + [(f"v.blk.{i}.{name}", t, dims) for i in range(len(kinds)) for name, t, dims in model["layer"]("vit")]
    e, v = model["e"], model["vocab"]
    out = [("token_embd.weight", ends, [e, v])] + ([] if model["tied"] else [("output.weight", ends, [e, v])]) + model["head"]
    for i, kind in enumerate(kinds):
        out += [(f"blk.{i}.{name}", t, dims) for name, t, dims in model["layer"](kind)]
    return out


def write_model(path, model, kinds, tensors, fill, more=()):
    """Writes a GGUF with these layers and tensors; `more` adds keys. fill(file, name, type, dims) writes a tensor's
    data, or leaves a hole."""
    arch, at, infos, places = model["arch"], 0, [], []
    keys = {"general.architecture": arch, "general.alignment": 32, f"{arch}.block_count": len(kinds),
            f"{arch}.context_length": model.get("context", 262144), f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
            **{f"{arch}.{k}": v for k, v in model["keys"](kinds).items()}, **dict(more)}
    for name, kind, dims in tensors:
        infos.append(text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}QIQ", *dims, kind, at))
        places.append(at)
        at += -(-size_of(kind, dims) // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(text(k) + value(v) for k, v in keys.items()) + b"".join(infos)
    start = -(-len(head) // 32) * 32
    with open(path, "wb") as f:
        f.write(head)
        for (name, kind, dims), place in zip(tensors, places):
            f.seek(start + place)
            fill(f, name, kind, dims)
        f.truncate(start + at)


# ---- vision models, which have files of their own

def vit(projector, e, f, h, layers, out, patch, weights, more, head, fused=False):
    """A vision model whose layers have LayerNorms and biases. out: width of the text model."""
    norm = lambda name: [(f"{name}.weight", F32, [e]), (f"{name}.bias", F32, [e])]
    matrix = lambda name, n_in, n_out: [(f"{name}.weight", weights, [n_in, n_out]), (f"{name}.bias", F32, [n_out])]

    def keys(kinds):
        return {"has_vision_encoder": True, "projector_type": projector, "vision.block_count": len(kinds),
                "vision.embedding_length": e, "vision.feed_forward_length": f, "vision.attention.head_count": h,
                "vision.projection_dim": out, "vision.patch_size": patch, "vision.attention.layer_norm_epsilon": 1e-6,
                "vision.image_mean": [0.5] * 3, "vision.image_std": [0.5] * 3, **more}

    def layer(kind):
        qkv = matrix("attn_qkv", e, 3 * e) if fused else [t for c in "qkv" for t in matrix(f"attn_{c}", e, e)]
        return (norm("ln1") + norm("ln2") + qkv + matrix("attn_out", e, e) + matrix("ffn_up", e, f) +
                matrix("ffn_down", f, e))

    first = [("v.patch_embd.weight", F16, [patch, patch, 3, e]), ("v.patch_embd.bias", F32, [e])] + norm("v.post_ln")
    return dict(arch="clip", keys=keys, layer=layer, order=["vit"], layers={"vit": layers}, e=e, head=first + head,
                vocab=0)


def siglip(out, weights):
    """Gemma 3's: 896 x 896 pixels, 256 tokens."""
    return vit("gemma3", 1152, 4304, 16, 27, out, 14, weights, {"vision.image_size": 896, "vision.projector.scale_factor": 4},
               [("v.position_embd.weight", F32, [1152, 4096]), ("mm.soft_emb_norm.weight", F32, [1152]),
                ("mm.input_projection.weight", F16, [out, 1152])])


def qwen3vl(e, f, layers, out, deep, weights):
    """Qwen3-VL's; deep: layers with DeepStack (none in Qwen 3.5)."""
    def mlp(first, second):
        return [(f"{first}.weight", weights, [4 * e, 4 * e]), (f"{first}.bias", F32, [4 * e]),
                (f"{second}.weight", weights, [4 * e, out]), (f"{second}.bias", F32, [out])]

    head = [("v.patch_embd.weight.1", F16, [16, 16, 3, e]), ("v.position_embd.weight", F32, [e, 2304])] + mlp("mm.0", "mm.2")
    for i in deep:
        head += [(f"v.deepstack.{i}.norm.weight", F32, [4 * e]), (f"v.deepstack.{i}.norm.bias", F32, [4 * e])]
        head += mlp(f"v.deepstack.{i}.fc1", f"v.deepstack.{i}.fc2")
    return vit("qwen3vl_merger", e, f, 16, layers, out, 16, weights, {"vision.image_size": 768, "vision.spatial_merge_size": 2},
               head, fused=True)


# ---- names

def of_layers(order, n):
    """Returns {kind: number of layers} for n layers in this order."""
    kinds = [order[i % len(order)] for i in range(n)]
    return {k: kinds.count(k) for k in dict.fromkeys(order) if k in kinds}


DEEPSTACK = 3  # layers of Qwen3-VL's text models that add rows of images
HYBRID, WINDOWED = ["delta"] * 3 + ["attention"], ["window"] * 5 + ["global"]
GRANITE = (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4
NEMOTRON = [{"M": "mamba", "E": "experts", "*": "attention"}[c] for c in "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"]
LFM2 = (["conv"] * 2 + ["attention"]) * 3 + ["conv", "attention"] * 3 + ["conv"]

# Shape name: function of the matrices' type.
SHAPES = {
    "llama-3.2-1b": lambda w: dense("llama", 2048, 8192, 32, 8, 64, 16, 128256, True, 5e5, w),
    "llama-3.2-3b": lambda w: dense("llama", 3072, 8192, 24, 8, 128, 28, 128256, True, 5e5, w),
    "llama-3.1-8b": lambda w: dense("llama", 4096, 14336, 32, 8, 128, 32, 128256, False, 5e5, w),
    "qwen3-0.6b": lambda w: dense("qwen3", 1024, 3072, 16, 8, 128, 28, 151936, True, 1e6, w),
    "qwen3-1.7b": lambda w: dense("qwen3", 2048, 6144, 16, 8, 128, 28, 151936, True, 1e6, w),
    "qwen3-4b": lambda w: dense("qwen3", 2560, 9728, 32, 8, 128, 36, 151936, True, 1e6, w),
    "qwen3-8b": lambda w: dense("qwen3", 4096, 12288, 32, 8, 128, 36, 151936, False, 1e6, w),
    "qwen3-vl-2b": lambda w: dense("qwen3vl", 2048, 6144, 16, 8, 128, 28, 151936, True, 5e6, w),
    "qwen3-30b-a3b": lambda w: dense("qwen3moe", 2048, 0, 32, 4, 128, 48, 151936, False, 1e6, w, 128, 768),
    "qwen3.5-0.8b": lambda w: qwen(False, 1024, 3584, 8, 2, 16, of_layers(HYBRID, 24), w, tied=True),
    "qwen3.5-4b": lambda w: qwen(False, 2560, 9216, 16, 4, 32, of_layers(HYBRID, 32), w, tied=True),
    "qwen3.5-9b": lambda w: qwen(False, 4096, 12288, 16, 4, 32, of_layers(HYBRID, 32), w),
    "qwen3.6-27b": lambda w: qwen(False, 5120, 17408, 24, 4, 48, of_layers(HYBRID, 64), w),
    "qwen3.6-35b-a3b": lambda w: qwen(True, 2048, 0, 16, 2, 32, of_layers(HYBRID, 40), w, 256, 512),
    "gemma-3-270m": lambda w: gemma3(640, 2048, 4, 1, 256, 512, of_layers(WINDOWED, 18), w),
    "gemma-3-1b": lambda w: gemma3(1152, 6912, 4, 1, 256, 512, of_layers(WINDOWED, 26), w),
    "gemma-3-4b": lambda w: gemma3(2560, 10240, 8, 4, 256, 1024, of_layers(WINDOWED, 34), w),
    "gemma-4-31b": lambda w: gemma4(5376, 21504, 32, (16, 4), of_layers(WINDOWED, 60), w),
    "gemma-4-26b-a4b": lambda w: gemma4(2816, 2112, 16, (8, 2), of_layers(WINDOWED, 30), w, 128, 704),
    "lfm2-1.2b": lambda w: lfm2(2048, 8192, 32, 8, LFM2, 65536, w),
    "nemotron-3-nano-30b-a3b": lambda w: nemotron_h_moe(2688, 32, 2, 128, (64, 64, 128, 8), 128, 6, 1856, 3712, NEMOTRON, 131072, w),
    "granite-4.0-h-tiny": lambda w: granite_hybrid(1536, 12, 4, 128, (48, 64, 128, 1), 64, 6, 512, 1024, GRANITE, 100352, w),
    "gpt-oss-20b": lambda w: gpt_oss(24, 32, w),
    "gpt-oss-120b": lambda w: gpt_oss(36, 128, w),
    "deepseek-v2-lite": lambda w: deepseek2(2048, 10944, 16, 0, 64, 6, 1408, 2, None, 1.0, 1, 27, 102400, False, w),
    "deepseek-v3": lambda w: deepseek2(7168, 18432, 128, 1536, 256, 8, 2048, 1, (8, 4), 2.5, 3, 61, 129280, True, w),
    "deepseek-v4-flash": lambda w: deepseek4(4096, 64, 512, 1024, 8, 1024, 256, 6, 2048, (64, 128, 512), {
        "window, by table": 2, "ratio 4, by table": 1, "ratio 128": 20, "ratio 4": 20}, w),
}

# Likewise for vision models: files for --mmproj.
TOWERS = {
    "gemma-3-4b-mmproj": lambda w: siglip(2560, w),
    "gemma-3-27b-mmproj": lambda w: siglip(5376, w),
    "qwen3-vl-2b-mmproj": lambda w: qwen3vl(1024, 4096, 24, 2048, (5, 11, 17), w),
    "qwen3-vl-4b-mmproj": lambda w: qwen3vl(1024, 4096, 24, 2560, (5, 11, 17), w),
    "qwen3-vl-8b-mmproj": lambda w: qwen3vl(1152, 4304, 27, 4096, (8, 16, 24), w),
    "qwen3.5-4b-mmproj": lambda w: qwen3vl(1024, 4096, 24, 2560, (), w),
}
