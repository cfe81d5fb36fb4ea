# SPDX-License-Identifier: Apache-2.0
"""One rank's share of a Muse Spark layer in PyTorch under a CUDA graph: cuBLAS for the dense products, SDPA for attention,
experts.py for the experts. No exchange: what other ranks would send is left out, which favours the peer.

    python3 layer.py [--tp 8] [--context 8192] [--rows 1,8,32] [--layers 4] [--out FILE]

Prints a table; FILE receives it as JSON. Everything is compared with double precision before it is timed."""
import argparse
import json

import torch
from torch.nn.functional import linear, scaled_dot_product_attention

from experts import Experts
from timing import check, median_us

HIDDEN, WIDTH, EXPERTS, TOP, COLUMNS, HEADS, KV_HEADS, DIM, WINDOW = 8192, 4096, 256, 8, 4096, 128, 16, 64, 2048


def bf16(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16) / shape[-1] ** 0.5


def norm(x):
    return torch.nn.functional.rms_norm(x.float(), x.shape[-1:], eps=1e-5).to(torch.bfloat16)


class Layer:
    def __init__(self, tp, context, window, requests):
        self.heads, self.kv = HEADS // tp, max(1, KV_HEADS // tp)
        self.qkvg = bf16((2 * self.heads + 2 * self.kv) * DIM, HIDDEN)
        self.o = bf16(HIDDEN, self.heads * DIM)
        self.router, self.pool = bf16(EXPERTS, HIDDEN), bf16(WIDTH // tp, HIDDEN)
        self.unpool = bf16(HIDDEN // tp, WIDTH)
        self.experts = Experts(EXPERTS, WIDTH, COLUMNS // tp)
        keys = min(context, window) if window else context
        self.k, self.v = bf16(requests, self.kv, keys, DIM), bf16(requests, self.kv, keys, DIM)
        self.unpooled = bf16(1, HIDDEN)

    def mask(self, q):
        """Query i sees all keys but those of the queries after it."""
        keys = self.k.shape[2]
        return torch.arange(keys, device="cuda")[None] <= torch.arange(q, device="cuda")[:, None] + keys - q

    def attention(self, q, mask):
        """q [requests, heads, tokens, dim]."""
        return scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask if q.shape[2] > 1 else None, enable_gqa=True)

    def routed(self, x, ids, config):
        weights = torch.full(ids.shape, 1 / TOP, device="cuda")
        return self.experts(norm(linear(x, self.pool)).repeat(1, WIDTH // self.pool.shape[0]), ids, weights, config)

    def __call__(self, s, requests, mask, ids, config):
        x = norm(s)
        qkvg = linear(x, self.qkvg)
        q, gate = qkvg[:, :self.heads * DIM], qkvg[:, -self.heads * DIM:]
        q = q.view(requests, -1, self.heads, DIM).transpose(1, 2)
        y = self.attention(q, mask).transpose(1, 2).reshape(s.shape[0], -1) * torch.sigmoid(gate)
        s = s + linear(y, self.o).float()
        x = norm(s)
        scores = torch.sigmoid(linear(x, self.router).float())
        torch.topk(scores, TOP, dim=1)  # timed; the experts are those that were drawn
        m = norm(self.routed(x, ids, config))
        # This rank's columns of the unpooler stand for all.
        return s + linear(m, self.unpool).repeat(1, HIDDEN // self.unpool.shape[0]).float() * 0.1


def draw_ids(rows):
    return torch.stack([torch.randperm(EXPERTS, device="cuda")[:TOP] for _ in range(rows)])


def choose_config(layer, x, ids):
    """The fastest of a few shapes of the Triton kernel."""
    weights = torch.full(ids.shape, 1 / TOP, device="cuda")
    best = None
    for config in [(16, 64, 256, 4, 3), (16, 32, 256, 4, 4), (16, 32, 512, 4, 3), (16, 16, 512, 4, 4), (32, 64, 128, 4, 3)]:
        if config[0] < int(torch.bincount(ids.flatten()).max()):
            continue
        us = median_us(lambda i: layer.experts(x, ids, weights, config), 1, 20)
        best = min(best or (us, config), (us, config))
    return best[1]


def check_all(layer, rows, requests, ids, config):
    x, w = bf16(rows, HIDDEN), torch.rand((rows, TOP), device="cuda")
    far = {"qkv": check("qkv", linear(x, layer.qkvg), x.double() @ layer.qkvg.double().T, 4e-3)}
    q = bf16(requests, layer.heads, rows // requests, DIM)
    mask = layer.mask(rows // requests)
    k, v = (t.double().repeat_interleave(layer.heads // layer.kv, 1) for t in (layer.k, layer.v))
    p = (q.double() @ k.transpose(2, 3) * DIM ** -0.5).masked_fill(~mask, float("-inf")).softmax(-1)
    far["attention"] = check("attention", layer.attention(q, mask), p @ v, 8e-3)
    y = bf16(rows, WIDTH) * 8
    far["experts"] = check("experts", layer.experts(y, ids, w, config), layer.experts.reference(y, ids, w), 8e-3)
    return far


def parts_of(layers, rows, requests, ids, config):
    n, x, y = len(layers), bf16(rows, HIDDEN), bf16(rows, WIDTH)
    o, weights = bf16(rows, layers[0].heads * DIM), torch.full(ids[0].shape, 1 / TOP, device="cuda")
    q, mask = bf16(requests, layers[0].heads, rows // requests, DIM), layers[0].mask(rows // requests)
    at = lambda i: layers[i % n]
    calls = {
        "qkv": lambda i: linear(x, at(i).qkvg),
        "o_proj": lambda i: linear(o, at(i).o),
        "router": lambda i: linear(x, at(i).router),
        "pooler": lambda i: linear(x, at(i).pool),
        "unpooler": lambda i: linear(y, at(i).unpool),
        "attention": lambda i: at(i).attention(q, mask),
        "experts": lambda i: at(i).experts(y, ids[i % n], weights, config),
    }
    # The small weights of a few layers fit the L2 cache: something large passes between them.
    flush = torch.empty(96 << 20, dtype=torch.uint8, device="cuda")
    empty = median_us(lambda i: flush.zero_(), n)
    return {name: median_us(lambda i: (flush.zero_(), call(i)), n) - empty for name, call in calls.items()}


def measure(o, rows, requests, window):
    layers = [Layer(o.tp, o.context, window, requests) for _ in range(o.layers)]
    ids = [draw_ids(rows) for _ in layers]
    config = choose_config(layers[0], bf16(rows, WIDTH), ids[0])
    far = check_all(layers[0], rows, requests, ids[0], config)
    mask, s = layers[0].mask(rows // requests), torch.randn((rows, HIDDEN), device="cuda")

    def step(_):
        t = s
        for layer, i in zip(layers, ids):
            t = layer(t, requests, mask, i, config)

    us = median_us(step, 1) / len(layers)
    distinct = sum(len(torch.unique(i)) for i in ids) / len(ids)
    return {"layer_us": us, "experts_distinct": distinct, "triton": config, "distances": far,
            "parts_us": parts_of(layers, rows, requests, ids, config)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tp", type=int, default=8, choices=[1, 2, 4, 8, 16])
    p.add_argument("--context", type=int, default=8192)
    p.add_argument("--rows", default="1,8,32")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--out")
    o = p.parse_args()
    torch.manual_seed(1)
    record = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "tp": o.tp, "context": o.context, "variants": {}}
    for rows in map(int, o.rows.split(",")):
        requests = 4 if rows == 32 else 1
        variant = f"{requests}x{rows // requests}"
        record["variants"][variant] = {}
        for kind, window in (("sliding", WINDOW), ("full", 0)):
            r = measure(o, rows, requests, window)
            record["variants"][variant][kind] = r
            parts = ", ".join(f"{name} {us:.1f}" for name, us in r["parts_us"].items())
            print(f"{variant} {kind}: layer {r['layer_us']:.1f} us, {r['experts_distinct']:.1f} experts; {parts}", flush=True)
            torch.cuda.empty_cache()
    if o.out:
        with open(o.out, "w", encoding="utf-8") as f:
            json.dump(record, f, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
