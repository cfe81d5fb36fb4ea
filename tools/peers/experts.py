# SPDX-License-Identifier: Apache-2.0
"""A plain grouped GEMM in Triton: NVFP4 weights (e2m1 codes, e4m3 scales of 16), bf16 activations, fp32 sums."""
import torch
import triton
import triton.language as tl


@triton.jit
def decode(code, scale):
    """Values of 4-bit codes times their scales, in bf16: the magnitude's bits are those of a bf16 times 2^-126."""
    bits = ((code & 8) << 12 | (code & 7) << 6).to(tl.int16)
    return (bits.to(tl.bfloat16, bitcast=True).to(tl.float32) * scale).to(tl.bfloat16)


@triton.jit
def grouped(x, codes, scales, scalars, order, counts, firsts, y, n, k, x_of_token, TOP: tl.constexpr,
            BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """y[row of the sorted routes, n] of one expert (axis 0) and a block of its rows (axis 1)."""
    expert = tl.program_id(0)
    count = tl.load(counts + expert)
    if count == 0:
        return
    first = tl.load(firsts + expert)
    m = tl.arange(0, BLOCK_M)
    route = tl.load(order + first + m, mask=m < count, other=0)
    row = tl.where(x_of_token != 0, route // TOP, first + m).to(tl.int64)
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight = (expert * n + rows).to(tl.int64)
    half = tl.arange(0, BLOCK_K // 2)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for at in range(0, k, BLOCK_K):
        byte = tl.load(codes + weight[:, None] * (k // 2) + at // 2 + half[None, :]).to(tl.int32)
        # Eight bytes share a scale: the loads are as many as of codes, most of them of the L1 cache.
        scale = tl.load(scales + weight[:, None] * (k // 16) + at // 16 + half[None, :] // 8).to(tl.float32) * 8.507059e37
        low = decode(byte, scale)
        high = decode(byte >> 4, scale)
        from_x = x + row[:, None] * k + at + 2 * half[None, :]
        even = tl.load(from_x, mask=(m < count)[:, None], other=0.0)
        odd = tl.load(from_x + 1, mask=(m < count)[:, None], other=0.0)
        total = tl.dot(even, tl.trans(low), total)
        total = tl.dot(odd, tl.trans(high), total)
    total = total * tl.load(scalars + expert)
    to = y + (first + m).to(tl.int64)[:, None] * n + rows[None, :]
    tl.store(to, total.to(tl.bfloat16), mask=(m < count)[:, None])


class Experts:
    """The routed experts of one layer of one rank: gate and up rows [experts, 2 * columns, width], then down."""

    def __init__(self, experts, width, columns, device="cuda"):
        self.experts, self.width, self.columns = experts, width, columns
        self.w13, self.s13 = self.draw(2 * columns, width, device)
        self.w2, self.s2 = self.draw(width, columns, device)
        self.scalar = torch.full((experts,), 1.0 / 64, device=device)

    def draw(self, n, k, device):
        codes = torch.randint(0, 256, (self.experts, n, k // 2), dtype=torch.uint8, device=device)
        scales = torch.rand((self.experts, n, k // 16), device=device).add_(0.5).to(torch.float8_e4m3fn)
        return codes, scales

    def multiply(self, x, codes, scales, order, counts, firsts, top, of_token, config):
        n, k = codes.shape[1], 2 * codes.shape[2]
        block_m, block_n, block_k, warps, stages = config
        block_k = min(block_k, k)
        y = torch.empty((order.shape[0], n), dtype=torch.bfloat16, device=x.device)
        grouped[(self.experts, n // block_n)](x, codes, scales, self.scalar, order, counts, firsts, y, n, k, int(of_token),
                                              TOP=top, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
                                              num_warps=warps, num_stages=stages)
        return y

    def __call__(self, x, ids, weights, config):
        """x [rows, width] bf16, ids and weights [rows, top]: the weighted sum of the experts' outputs, bf16."""
        top = ids.shape[1]
        flat = ids.flatten()
        order = torch.argsort(flat, stable=True).to(torch.int32)
        counts = (flat[:, None] == torch.arange(self.experts, device=x.device)).sum(0, dtype=torch.int32)
        firsts = torch.cumsum(counts, 0, dtype=torch.int32) - counts
        h = self.multiply(x, self.w13, self.s13, order, counts, firsts, top, True, config)
        gate, up = h.float().chunk(2, dim=1)
        act = (torch.nn.functional.silu(gate) * up).to(torch.bfloat16)
        y = self.multiply(act, self.w2, self.s2, order, counts, firsts, top, False, config)
        back = torch.empty_like(y).index_copy_(0, order.long(), y)
        return (back.view(x.shape[0], top, -1).float() * weights[:, :, None]).sum(1).to(torch.bfloat16)

    def values(self, codes, scales, expert):
        """The expert's weights in double."""
        table = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], device=codes.device).double()
        byte = codes[expert].long()
        pairs = torch.stack([table[byte & 15], table[byte >> 4]], dim=-1).flatten(1)
        return pairs * scales[expert].double().repeat_interleave(16, dim=1) * float(self.scalar[expert])

    def reference(self, x, ids, weights):
        y = torch.zeros((x.shape[0], self.width), dtype=torch.float64, device=x.device)
        for t in range(x.shape[0]):
            for j in range(ids.shape[1]):
                e = int(ids[t, j])
                h = self.values(self.w13, self.s13, e) @ x[t].double()
                gate, up = h.to(torch.bfloat16).double().chunk(2)
                act = (torch.nn.functional.silu(gate) * up).to(torch.bfloat16).double()
                y[t] += float(weights[t, j]) * (self.values(self.w2, self.s2, e) @ act)
        return y
