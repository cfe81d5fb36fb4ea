# SPDX-License-Identifier: Apache-2.0
"""A decode step on PyTorch's memory, inside a PyTorch CUDA graph, against the same model in plain PyTorch.

    lathe gen layouts/muse_spark_tiny.lua --tp 1 --deployment bf16 --arch sm_90a --out build/tiny
    python3 torch_step.py build/tiny                  (--arch host above and --device host here: on a CPU, without a graph)

Weights and KV caches are tensors that PyTorch allocated; the step reads and writes them where they lie. Its inputs and logits
are the engine's, seen as tensors. Sixteen tokens go through two steps of eight; the second one's logits are compared.
"""

import argparse
import ctypes

import lathe
import torch

TOLERANCE = 1.5e-2  # relative L2
PRE_EPS, POST_EPS, QK_SCALE, MULTIPLIER, CAP, THETA = 1e-5, 1e-8, 5.4730064863875, 2**-2.5, 20.0, 500000.0
WINDOW, TOP_K, PAGE = 40, 4, 16
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32, "i64": torch.int64}


# ---- the model, plainly ----

def rms(x, eps):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def gated(s, gate, branch, gain=1):
    """The residual stream with a branch: alpha^2 + beta^2 = 1 in every channel."""
    beta = torch.sigmoid(gate.float() / 0.3)
    alpha = (1 - beta.square()).clamp(min=1e-3).sqrt()
    return alpha * s + beta * rms(gain * branch.float(), POST_EPS)


def rotate(x):
    half = x.shape[-1] // 2
    angle = torch.arange(len(x), device=x.device)[:, None] * THETA ** (-torch.arange(half, device=x.device) / half)
    cos, sin, (a, b) = angle.cos()[:, None], angle.sin()[:, None], x.float().split(half, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).bfloat16()


def attention(x, w, heads, kv_heads, dim, sliding):
    q, k, v, gate = (part.unflatten(-1, (-1, dim)) for part in
                     (x @ w["attn.qkvg.w"].T).split([heads * dim, kv_heads * dim, kv_heads * dim, heads * dim], -1))
    q, k = rms(q, PRE_EPS).bfloat16(), rms(k, PRE_EPS).bfloat16()
    if sliding:
        q, k = rotate(q), rotate(k)
    behind = torch.arange(len(x), device=x.device)[:, None] - torch.arange(len(x), device=x.device)
    hidden = (behind < 0) | (behind >= WINDOW) if sliding else behind < 0
    k, v = (a.float().repeat_interleave(heads // kv_heads, 1) for a in (k, v))
    score = torch.einsum("qhd,khd->hqk", q.float(), k) * (QK_SCALE / dim**0.5)
    o = torch.einsum("hqk,khd->qhd", score.masked_fill(hidden, -torch.inf).softmax(-1), v)
    y = (rms(o, PRE_EPS) * torch.sigmoid(gate.float())).bfloat16()
    return y.flatten(1) @ w["attn.o.w"].T


def experts(x, w):
    score = torch.sigmoid(MULTIPLIER * (x.float() @ w["router.w"].T))
    ids = (score + w["router.bias"]).topk(TOP_K, -1).indices
    weight = score.gather(-1, ids)
    weight = (weight / weight.sum(-1, keepdim=True)).bfloat16().float()
    h1 = (rms(x @ w["pool.w"].T, PRE_EPS) * (1 + w["pre_expert.gain"].float())).bfloat16()
    rows = []
    for row, chosen in zip(h1, ids):
        gate, up = (w["edge.w13"][chosen].float() @ row.float()).chunk(2, -1)
        act = (torch.nn.functional.silu(gate) * up).bfloat16()
        y = torch.einsum("epi,ei->ep", w["edge.w2"][chosen].float(), act.float()).bfloat16()
        rows.append(rms((1 + w["post_expert.gain"].float()) * y.float(), POST_EPS))
    m = (weight[..., None] * torch.stack(rows)).sum(1).bfloat16()
    return m @ w["unpool.w"].T


def model(tokens, weights, shape):
    """Logits [tokens, vocabulary]; `weights` by name and layer."""
    s = rms(weights["embed", -1][tokens], PRE_EPS).bfloat16().float()
    for layer, sliding in enumerate(shape["sliding"]):
        w = {name: tensor for (name, at), tensor in weights.items() if at == layer}
        x = (rms(s, PRE_EPS) * (1 + w["attn.gain"].float())).bfloat16()
        s = gated(s, w["attn.gate.w"], attention(x, w, shape["heads"], shape["kv_heads"], shape["dim"], sliding))
        x = (rms(s, PRE_EPS) * (1 + w["ffn.gain"].float())).bfloat16()
        s = gated(s, w["ffn.gate.w"], experts(x, w), 1 + w["ffn.post.gain"].float())
    h = (rms(s, PRE_EPS) * weights["final.gain", -1].float()).bfloat16()
    return CAP * torch.tanh(MULTIPLIER * (h.float() @ weights["head.w", -1].float().T) / CAP)


# ---- the same by a step ----

def make_weight(array, device):
    """Small branches and small gains, so that rounding is all that two correct models differ by."""
    t = torch.randn(array.shape, device=device)
    last = array.shape[-1]
    scale, middle = {"embed": (0.0625, 0), "final.gain": (0.1, 1), "router.w": (8 / last**0.5, 0), "router.bias": (0.1, 0)}.get(
        array.name, (0.3, -1.2) if array.name.endswith("gate.w") else (0.1, 0) if array.name.endswith("gain") else (last**-0.5, 0))
    return (t * scale + middle).to(DTYPES[array.dtype])


class Memory:
    """What PyTorch takes as a tensor on the GPU, in place."""

    def __init__(self, array):
        kind = {"i32": "<i4", "i64": "<i8", "f32": "<f4"}[array.dtype]
        self.__cuda_array_interface__ = {"shape": array.shape, "typestr": kind, "data": (array.address, False), "version": 3}


def view(array, device):
    """The engine's memory as a tensor."""
    if device == "cuda":
        return torch.as_tensor(Memory(array), device=device)
    count = torch.Size(array.shape).numel()
    raw = (ctypes.c_char * (count * DTYPES[array.dtype].itemsize)).from_address(array.address)
    return torch.frombuffer(raw, dtype=DTYPES[array.dtype]).reshape(array.shape)


def write_inputs(inputs, tokens, first, pages):
    """One request's `tokens` at positions first, first + 1, ...; page p of the request is page p of the caches."""
    rows = len(tokens)
    positions = torch.arange(first, first + rows)
    inputs["tokens"][:rows].copy_(tokens)
    inputs["positions"][:rows].copy_(positions)
    for group in ("sliding", "full"):
        inputs["block_tables." + group][0].copy_(torch.arange(pages))
        inputs["seq_lens." + group][:1].fill_(first + rows)
        inputs["slot_mapping." + group][:rows].copy_(positions)


def run(directory, device):
    torch.manual_seed(1)
    stream = torch.cuda.Stream() if device == "cuda" else None
    engine = lathe.Engine(directory, device="cuda" if stream else "host", external_caches=True, stream=stream.cuda_stream if stream else 0)
    refused = engine.unsupported()
    if refused:
        raise SystemExit(refused)
    weights = {(a.name, a.layer): make_weight(a, device) for a in engine.arrays("weight")}
    info, kv = engine.info(), engine.arrays("kv")
    pages = info.groups["full"][1]
    caches = {(a.name, a.layer): torch.zeros(pages, *a.shape[1:], dtype=torch.bfloat16, device=device) for a in kv}
    if stream:
        torch.cuda.synchronize()
    engine.bind_weights(weights)
    engine.bind_caches(caches)
    engine.build()

    inputs = {a.name: view(a, device) for a in engine.arrays("input") if a.name != "rank"}
    logits = view(engine.find("logits"), device)
    tokens = torch.randint(logits.shape[-1], (16,))
    plans = [engine.plan(requests=1, q=8, longest=n) for n in (8, 16)]
    graph = None
    if stream:  # the step and a copy of its logits become PyTorch's own graph
        kept = torch.empty(8, logits.shape[-1], device=device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            engine.enqueue(plans[0])
            kept.copy_(logits[:8])
    for step, plan in enumerate(plans):
        write_inputs(inputs, tokens[8 * step:8 * step + 8], 8 * step, pages)
        if graph:
            torch.cuda.synchronize()
            graph.replay()
            torch.cuda.synchronize()
        else:
            engine.run(plan)
        engine.finish()

    kv_heads, dim = kv[0].shape[1], kv[0].shape[3] // 2
    shape = {"heads": weights["attn.o.w", 0].shape[1] // dim, "kv_heads": kv_heads, "dim": dim,
             "sliding": [any(a.layer == l and a.name == "kv.sliding" for a in kv) for l in range(info.layers)]}
    wanted = model(tokens.to(device), weights, shape)[8:]
    found = (kept if graph else logits[:8]).clone()
    engine.close()
    apart = ((found - wanted).norm() / wanted.norm()).item()
    same = (found.argmax(-1) == wanted.argmax(-1)).sum().item()
    print(f"{'graph' if graph else 'step'} on {device}: logits {apart:.2e} apart (allowed {TOLERANCE}), {same} of 8 tokens the same")
    return apart <= TOLERANCE


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A step on PyTorch's memory against plain PyTorch.")
    parser.add_argument("directory", help="generated from layouts/muse_spark_tiny.lua, deployment bf16")
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    options = parser.parse_args()
    raise SystemExit(0 if run(options.directory, "cuda" if options.device == "cuda" else "cpu") else 1)
