# SPDX-License-Identifier: Apache-2.0
"""Lathe beside its peers: a record of `lathe bench --rank-slice --record` and one of layer.py, both of one run.

    python3 compare.py BENCH.json PEERS.json"""
import json
import sys

# A part: what the peers call it, and the kernels of Lathe that do it by the beginnings of their names, as far as they exist.
# The peers' experts sort the routes and sum what comes out; of Lathe those are the two products.
PARTS = {
    "qkv": (["qkv"], ["attn_qkv"]),
    "o_proj": (["o_proj"], ["attn_proj"]),
    "router and pooler": (["router", "pooler"], ["edge_router", "moe_pool"]),
    "unpooler": (["unpooler"], ["moe_unpool"]),
    "experts": (["experts"], ["moe_gemm1", "moe_gemm2"]),
}
# Attention alone, else in one launch with what rotates the queries.
ATTENTION = {"sliding": ["attn_core_first_sliding", "attn_core_sliding", "attn_rope_first_sliding"], "full": ["attn_core_full", "attn_rope_full"]}


def read(path, what):
    try:
        with open(path, encoding="utf-8") as f:
            record = json.load(f)
    except (OSError, ValueError) as e:
        raise SystemExit(f"compare.py: {path}: {e}")
    if "variants" not in record:
        raise SystemExit(f"compare.py: {path}: found something else, allowed: {what}")
    return record


def time_of(variant, names):
    """Sum over the kernels that there are, one launch of each; None where there is none."""
    found = [[k for k in variant["kernels"] if k["name"].startswith(name) and "in_order_us" in k] for name in names]
    found = [k[0] for k in found if k]
    if not found:
        return None, None
    return sum(k["in_order_us"] for k in found), sum(k["floor_us"] for k in found)


def attention_of(variant, kind):
    for name in ATTENTION[kind]:
        found = time_of(variant, [name])
        if found[0] is not None:
            return found
    return None, None


def layer_of(variant, kind):
    for k in variant["kinds"]:
        if k["name"] == f"{kind}_nvfp4" and "median_us" in k:
            return k["median_us"], k["floor_us"]
    return None, None


def rows_of(variant, peers):
    for kind in ("sliding", "full"):
        ours, floor = layer_of(variant, kind)
        yield f"layer, {kind} attention", ours, floor, peers[kind]["layer_us"]
    for part, (theirs, names) in PARTS.items():
        ours, floor = time_of(variant, names)
        yield part, ours, floor, sum(peers["sliding"]["parts_us"][t] for t in theirs)
    for kind in ("sliding", "full"):
        ours, floor = attention_of(variant, kind)
        yield f"attention, {kind}", ours, floor, peers[kind]["parts_us"]["attention"]


def main(bench, peers):
    bench, peers = read(bench, "a record of lathe bench"), read(peers, "a record of layer.py")
    print(f"{bench['machine']['gpu']}, driver {bench['machine']['driver']}, {bench['machine']['date']}; PyTorch {peers['torch']}")
    for variant in bench["variants"]:
        if variant["name"] not in peers["variants"]:
            continue
        print(f"\n{variant['name']:28} {'floor':>8} {'Lathe':>8} {'of floor':>8} {'peer':>8} {'peer/Lathe':>10}   us")
        for name, ours, floor, theirs in rows_of(variant, peers["variants"][variant["name"]]):
            if ours is None:
                print(f"{name:28} {'':8} {'-':>8} {'':8} {theirs:8.1f}")
            else:
                share, ratio = (floor / ours, theirs / ours) if ours > 0 else (0, 0)
                print(f"{name:28} {floor:8.1f} {ours:8.1f} {share:8.2f} {theirs:8.1f} {ratio:10.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
