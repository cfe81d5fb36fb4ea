-- SPDX-License-Identifier: Apache-2.0
-- First routed GEMM on bf16 weights, with SwiGLU in its epilogue.

local routed = include "moe/routed.lua"

return provider "moe/bf16_gemm1" {
    doc = "act = r16(silu(x w_gate^T) * (x w_up^T)) of every route, fp32 accumulation",
    parts = { "bf16_gemm1", "swiglu" },
    entry = "bf16_gemm1",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kWidth" { type = "int", min = 16, doc = "expert input width" },
        const "kExperts" { type = "int", min = 1, doc = "experts of this rank" },
        const "kGateUp" { type = "int", min = 32, doc = "gate rows, then up rows" },
        const "kPermuted" { type = "int", min = 2, doc = "permuted rows and one guard element" },
        const "kMaxCtas" { type = "int", min = 1, doc = "most tiles" },
        const "kMaxRows" { type = "int", min = 1, doc = "permuted rows" },
        const "kColumns" { type = "int", min = 16, doc = "intermediate width" },
        const "kTile" { type = "int", from = "bf16_gemm1.tile", min = 8,
                        doc = "tokens of a tile, worked on 8 at a time" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 16,
                         doc = "warps that split the input width" },
        const "kHeld" { type = "int", tactic = true, min = 1, max = 4,
                        doc = "steps a warp holds in registers" },
        const "kSlices" { type = "int", tactic = true, min = 1, max = 64,
                          doc = "slices of 16 intermediate columns of a block" },
        const "kStep" { type = "int", value = routed.bf16_step, doc = "k of one quad's load: 32 or 16" },
    },
    args = {
        arg "h1" { dir = "in", dtype = "bf16", shape = { "kRows", "kWidth" },
                   port = "bf16_gemm1.h1" },
        arg "w13" { dir = "in", dtype = "bf16", shape = { "kExperts", "kGateUp", "kWidth" },
                    port = "bf16_gemm1.w13" },
        arg "permuted_to_token" { dir = "in", dtype = "i32", shape = { "kPermuted" },
                                  port = "bf16_gemm1.permuted_to_token" },
        arg "cta_expert" { dir = "in", dtype = "i32", shape = { "kMaxCtas" },
                           port = "bf16_gemm1.cta_expert" },
        arg "cta_limit" { dir = "in", dtype = "i32", shape = { "kMaxCtas" },
                          port = "bf16_gemm1.cta_limit" },
        arg "ctas" { dir = "in", dtype = "i32", shape = { 1 }, port = "bf16_gemm1.ctas" },
        arg "act" { dir = "out", dtype = "bf16", shape = { "kMaxRows", "kColumns" },
                    port = "swiglu.act" },
    },
    launch = function(c, arch)
        return {
            grid = { c.kMaxCtas, (c.kColumns // 16 + c.kSlices - 1) // c.kSlices, 1 },
            block = c.kWarps * 32,
            shared = routed.shared(c), registers = 128,
        }
    end,
    -- The most that the routes can touch: one expert a tile.
    cost = function(c)
        local experts = math.min(c.kExperts, c.kMaxCtas)
        return {
            bytes = 2 * experts * c.kGateUp * c.kWidth + 2 * c.kMaxCtas * (c.kWidth + c.kColumns),
            operations = 2 * c.kMaxCtas * c.kGateUp * c.kWidth,
        }
    end,
    tactics = function(c, arch)
        return routed.tactics(routed.bf16_steps(c), c.kColumns, routed.bf16_wishes)
    end,
    default = function(c, arch)
        return routed.rule(arch, routed.bf16_steps(c), 4, routed.slices(c.kColumns))
    end,
    unsupported = function(c, arch)
        if c.kWidth % 16 ~= 0 then
            return "the expert input width must be a multiple of 16 (one tensor-core operation)"
        end
        if c.kGateUp ~= 2 * c.kColumns or c.kColumns % 16 ~= 0 then
            return "w13 must have a gate row and an up row for each column of act, a multiple of 16"
        end
        if c.kTile % 8 ~= 0 then
            return "the tile must be a multiple of 8 tokens"
        end
        if c.kMaxRows < c.kMaxCtas * c.kTile or c.kPermuted ~= c.kMaxCtas * c.kTile + 1 then
            return "the permuted space must have a row for each token of each tile"
        end
    end,
    early = true,
    triggers = true,
}
