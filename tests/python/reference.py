# SPDX-License-Identifier: Apache-2.0
"""Muse Spark in numpy, from its mathematics alone: no kernel, layout or line of the library is used.

A checkpoint as Hugging Face writes it (bf16, or NVFP4 as ModelOpt writes it) and a whole sequence of tokens give the logits
after each of them. Products are in double; values are rounded where the model rounds: to bf16, fp32, e4m3 or e2m1. With
`ranks` the sums that tensor parallelism splits (attention's output projection, the second product of sliced NVFP4 experts)
are made of parts that are rounded to bf16 each, as that many ranks would send them.
"""

import json
import os

import numpy as np

ITEMS = {"BF16": np.uint16, "F32": np.float32, "U8": np.uint8, "F8_E4M3": np.uint8}


def bf16(x):
    """The nearest bf16, ties to even, as float64."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32).astype(np.float64)


def f32(x):
    return np.asarray(x, np.float32).astype(np.float64)


def nearest(grid, x):
    """Index into an ascending grid whose even indices win ties; beyond its end the last."""
    middle = (grid[1:] + grid[:-1]) / 2
    low, high = np.searchsorted(middle, x, "left"), np.searchsorted(middle, x, "right")
    return np.where(low % 2 == 0, low, high)


E4M3 = np.array([(n & 7) * 2.0**-9 if n < 8 else (8 + (n & 7)) * 2.0**((n >> 3) - 10) for n in range(127)])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
SIGNED_E4M3 = np.concatenate([E4M3, [np.nan], -E4M3, [np.nan]])
SIGNED_E2M1 = np.concatenate([E2M1, -E2M1])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rms(x, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps)


def quantise(y, gain):
    """NVFP4 of rows in blocks of 16: the values that the codes stand for, times `gain`'s inverse."""
    blocks = y.reshape(*y.shape[:-1], -1, 16)
    most = np.abs(blocks).max(-1, keepdims=True)
    scale = E4M3[nearest(E4M3, f32(gain * f32(most / 6)))]
    inverse = np.divide(1, f32(scale / gain), out=np.zeros_like(scale), where=scale != 0)
    exact = f32(blocks * f32(inverse))
    return (np.sign(exact) * E2M1[nearest(E2M1, np.abs(exact))] * scale).reshape(y.shape)


class Checkpoint:
    """Tensors of a folder of safetensors by name: numbers as float64, packed codes as bytes."""

    def __init__(self, folder):
        self.entries, self.decoded = {}, {}
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)["text_config"]
        for name in sorted(os.listdir(folder)):
            if name.endswith(".safetensors"):
                data = np.memmap(os.path.join(folder, name), np.uint8, "r")
                end = 8 + int(data[:8].view(np.uint64)[0])
                for tensor, entry in json.loads(bytes(data[8:end])).items():
                    if tensor != "__metadata__":
                        first, last = entry["data_offsets"]
                        self.entries[tensor] = entry["dtype"], entry["shape"], data[end + first:end + last]

    def __contains__(self, name):
        return name in self.entries

    def __getitem__(self, name):
        if name not in self.decoded:
            dtype, shape, data = self.entries[name]
            array = np.array(data).view(ITEMS[dtype]).reshape(shape)
            if dtype == "BF16":
                array = (array.astype(np.uint32) << 16).view(np.float32)
            self.decoded[name] = SIGNED_E4M3[array] if dtype == "F8_E4M3" else array if dtype == "U8" else array.astype(np.float64)
        return self.decoded[name]


class Experts:
    """The routed experts of one layer on rows that were normed."""

    def __init__(self, model, prefix, ranks):
        self.c, self.prefix, self.ranks = model.checkpoint, prefix + "mlp.experts.", ranks
        self.packed = self.prefix + "gate_up_proj_weight_scale" in self.c
        self.width = model.k["moe_intermediate_size"]
        self.activations, self.unpacked = model.activations, {}
        if self.packed and self.activations == "nvfp4":
            self.input13 = self.c[self.prefix + "gate_up_proj_input_scale"].max()
            self.input2 = self.c[self.prefix + "down_proj_input_scale"].max()

    def unpack(self, name, expert):
        """Weights of an expert without its global scales."""
        weight = self.c[self.prefix + name][expert]
        if not self.packed:
            return weight
        if (name, expert) not in self.unpacked:
            codes = np.stack([weight & 15, weight >> 4], -1).reshape(len(weight), -1)
            scales = np.repeat(self.c[self.prefix + name + "_weight_scale"][expert], 16, -1)
            self.unpacked[name, expert] = SIGNED_E2M1[codes] * scales
        return self.unpacked[name, expert]

    def down(self, act, expert, factor):
        """The second product; sliced over the ranks where NVFP4 experts are."""
        weight = self.unpack("down_proj", expert)
        ranks = self.ranks if self.packed else 1
        share, total = self.width // ranks, 0.0
        for r in range(ranks):
            at = slice(r * share, (r + 1) * share)
            total = f32(total + bf16(act[at] @ weight[:, at].T * factor))
        return bf16(total)

    def __call__(self, h1, expert):
        width, w13 = self.width, self.unpack("gate_up_proj", expert)
        if not self.packed:
            gate, up = w13[:width] @ h1, w13[width:] @ h1
            return self.down(bf16(gate * sigmoid(gate) * up), expert, 1)
        scale13 = self.c[self.prefix + "gate_up_proj_weight_scale_2"][expert]
        scale2 = self.c[self.prefix + "down_proj_weight_scale_2"][expert]
        if self.activations == "bf16":
            gate, up = w13[:width] @ h1 * scale13[0], w13[width:] @ h1 * scale13[1]
            return self.down(bf16(gate * sigmoid(gate) * up), expert, scale2)
        codes = quantise(h1, f32(1 / self.input13))
        gate = w13[:width] @ codes * f32(self.input13 * scale13[0])
        up = w13[width:] @ codes * f32(f32(self.input13 * scale13[1]) / self.input2)
        return self.down(quantise(f32(gate * sigmoid(gate) * up), 1.0), expert, f32(self.input2 * scale2))


class Model:
    """`activations`: of NVFP4 experts, "nvfp4" or "bf16" (W4A16)."""

    def __init__(self, folder, ranks=1, activations="nvfp4"):
        self.checkpoint, self.ranks, self.activations = Checkpoint(folder), ranks, activations
        self.k = self.checkpoint.config
        self.margins = []  # of every routed row: the last score chosen over the first that was not
        self.routes = []

    def gate(self, name):
        u = self.checkpoint[name] / self.k["residual_gate_temperature"]
        beta = f32(sigmoid(u))
        return f32(np.sqrt(np.maximum(sigmoid(-u) * (1 + sigmoid(u)), 1e-3))), beta

    def rotate(self, x):
        """Section 4: pairs (j, j + half) of a head."""
        half = x.shape[-1] // 2
        theta = np.arange(len(x))[:, None] * self.k["rope_parameters"]["rope_theta"] ** (-np.arange(half) / half)
        cos, sin = f32(np.cos(theta))[:, None], f32(np.sin(theta))[:, None]
        a, b = x[..., :half], x[..., half:]
        return bf16(np.concatenate([a * cos - b * sin, a * sin + b * cos], -1))

    def attention(self, prefix, layer, x):
        k, c, rows = self.k, self.checkpoint, len(x)
        heads, kv, dim = k["num_attention_heads"], k["num_key_value_heads"], k["head_dim"]
        q, key, value, gate = (bf16(x @ c[f"{prefix}self_attn.{n}_proj.weight"].T).reshape(rows, -1, dim)
                               for n in ("q", "k", "v", "gate"))
        q, key = (bf16(rms(a, k["rms_norm_eps"])) for a in (q, key))
        if k["layer_rope_theta"][layer]:
            q, key = self.rotate(q), self.rotate(key)
        sliding = k["layer_types"][layer] == "sliding_attention"
        behind = np.arange(rows)[:, None] - np.arange(rows)[None]
        seen = (behind >= 0) & (behind < k["sliding_window"] if sliding else True)
        y = np.empty((rows, heads, dim))
        for h in range(heads):
            g = h // (heads // kv)
            score = k["qk_scale_factor"] / np.sqrt(dim) * (q[:, h] @ key[:, g].T)
            score = np.where(seen, score, -np.inf)
            p = np.exp(score - score.max(-1, keepdims=True))
            y[:, h] = p @ value[:, g] / p.sum(-1, keepdims=True)
        y = bf16(rms(y, k["rms_norm_eps"]) * sigmoid(gate)).reshape(rows, -1)
        o, share, total = c[prefix + "self_attn.o_proj.weight"], heads * dim // self.ranks, 0.0
        for r in range(self.ranks):
            at = slice(r * share, (r + 1) * share)
            total = f32(total + bf16(y[:, at] @ o[:, at].T))
        return bf16(total)

    def route(self, prefix, x):
        k, c = self.k, self.checkpoint
        top = k["num_experts_per_tok"]
        score = f32(sigmoid(f32(k["output_multiplier"] * f32(x @ c[prefix + "mlp.gate.weight"].T))))
        rank = f32(score + c[prefix + "mlp.gate.e_score_correction_bias"])
        order = np.argsort(-rank, -1, kind="stable")
        ids = order[:, :top]
        sorted_rank = np.take_along_axis(rank, order, -1)
        self.margins.append(sorted_rank[:, top - 1] - sorted_rank[:, top])
        self.routes.append(np.sort(ids, -1))
        weight = np.take_along_axis(score, ids, -1)
        return ids, f32(weight / (weight.sum(-1, keepdims=True) + 1e-15))

    def experts(self, prefix, x):
        k, c = self.k, self.checkpoint
        ids, weights = self.route(prefix, x)
        h0 = bf16(x @ c[prefix + "mlp.pre_expert_proj.weight"].T)
        h1 = bf16(rms(h0, k["rms_norm_eps"]) * (1 + c[prefix + "mlp.pre_expert_norm.weight"]))
        run = Experts(self, prefix, self.ranks)
        if not run.packed:
            weights = bf16(weights)
        gain = 1 + c[prefix + "mlp.experts.post_expert_norm.weight"]
        m = np.zeros_like(h1)
        for row, chosen in enumerate(ids):
            for e, w in zip(chosen, weights[row]):
                m[row] += w * rms(gain * run(h1[row], e), k["post_norm_eps"])
        return bf16(bf16(m) @ c[prefix + "mlp.post_expert_proj.weight"].T)

    def logits(self, tokens):
        """[tokens, vocabulary] fp32: after each token, with all before it seen."""
        k, c = self.k, self.checkpoint
        self.margins, self.routes = [], []
        s = bf16(rms(c["model.language_model.embed_tokens.weight"][tokens], k["rms_norm_eps"]))
        for layer in range(k["num_hidden_layers"]):
            prefix = f"model.language_model.layers.{layer}."
            x = bf16(rms(s, k["rms_norm_eps"]) * (1 + c[prefix + "input_layernorm.weight"]))
            alpha, beta = self.gate(prefix + "post_attention_residual_gate.gate")
            s = f32(alpha * s + beta * rms(self.attention(prefix, layer, x), k["post_norm_eps"]))
            x = bf16(rms(s, k["rms_norm_eps"]) * (1 + c[prefix + "pre_feedforward_layernorm.weight"]))
            alpha, beta = self.gate(prefix + "post_feedforward_residual_gate.gate")
            f = (1 + c[prefix + "post_feedforward_layernorm.weight"]) * self.experts(prefix, x)
            s = f32(alpha * s + beta * rms(f, k["post_norm_eps"]))
        h = bf16(rms(s, k["rms_norm_eps"]) * c["model.language_model.norm.weight"])
        z = f32(f32(h @ c["lm_head.weight"].T) * k["output_multiplier"])
        cap = k["final_logit_softcapping"]
        return f32(cap * np.tanh(z / cap))
