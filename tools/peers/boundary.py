# SPDX-License-Identifier: Apache-2.0
"""What a boundary costs with NCCL: an all-reduce of [rows, 8192] bf16 over two GPUs, then residual and norm in PyTorch, in a
dependent chain under a CUDA graph.

    python3 boundary.py [--rows 1,8,32] [--out FILE]        exit status 77 where there are fewer than two GPUs"""
import argparse
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from timing import check, median_us

HIDDEN, CHAIN = 8192, 50


def boundary(x, s):
    dist.all_reduce(x)
    s.add_(x)
    x.copy_(torch.nn.functional.rms_norm(s, (HIDDEN,), eps=1e-5))


def work(rank, rows_list, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    record = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version())),
              "boundary_us": {}}
    for rows in rows_list:
        x = torch.full((rows, HIDDEN), rank + 1.0, device="cuda", dtype=torch.bfloat16)
        s = torch.zeros((rows, HIDDEN), device="cuda")
        boundary(x, s)
        check("all-reduce", s, torch.full_like(s, 3.0), 1e-6)
        us = median_us(lambda i: boundary(x, s), CHAIN)
        record["boundary_us"][str(rows)] = us
        if rank == 0:
            print(f"NCCL + residual + norm, {rows} rows: {us:.1f} us", flush=True)
    dist.destroy_process_group()
    if rank == 0 and out:
        with open(out, "w", encoding="utf-8") as f:
            json.dump(record, f, indent=1, sort_keys=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", default="1,8,32")
    p.add_argument("--out")
    o = p.parse_args()
    if torch.cuda.device_count() < 2:
        print("fewer than two GPUs")
        sys.exit(77)
    mp.spawn(work, args=([int(r) for r in o.rows.split(",")], o.out), nprocs=2)
