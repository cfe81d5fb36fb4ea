-- SPDX-License-Identifier: Apache-2.0
-- Second routed GEMM on bf16 weights: one bf16 row a route, not finalised.

local routed = include "moe/routed.lua"

return provider "moe/bf16_gemm2" {
    doc = "rows = r16(act w2^T) of every route, fp32 accumulation",
    parts = { "bf16_gemm2" },
    entry = "bf16_gemm2",
    constants = {
        const "kMaxRows" { type = "int", min = 1, doc = "permuted rows" },
        const "kWidth" { type = "int", min = 16, doc = "intermediate width" },
        const "kExperts" { type = "int", min = 1, doc = "experts of this rank" },
        const "kColumns" { type = "int", min = 32, doc = "expert output width" },
        const "kMaxCtas" { type = "int", min = 1, doc = "most tiles" },
        const "kOutRows" { type = "int", min = 1, doc = "rows of the output buffer" },
        const "kTile" { type = "int", from = "bf16_gemm2.tile", min = 8,
                        doc = "tokens of a tile, worked on 8 at a time" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 16,
                         doc = "warps that split the intermediate width" },
        const "kHeld" { type = "int", tactic = true, min = 1, max = 4,
                        doc = "steps a warp holds in registers" },
        const "kSlices" { type = "int", tactic = true, min = 1, max = 64,
                          doc = "slices of 32 output columns of a block" },
        const "kStep" { type = "int", value = routed.bf16_step, doc = "k of one quad's load: 32 or 16" },
    },
    args = {
        arg "act" { dir = "in", dtype = "bf16", shape = { "kMaxRows", "kWidth" },
                    port = "bf16_gemm2.act" },
        arg "w2" { dir = "in", dtype = "bf16", shape = { "kExperts", "kColumns", "kWidth" },
                   port = "bf16_gemm2.w2" },
        arg "cta_expert" { dir = "in", dtype = "i32", shape = { "kMaxCtas" },
                           port = "bf16_gemm2.cta_expert" },
        arg "cta_limit" { dir = "in", dtype = "i32", shape = { "kMaxCtas" },
                          port = "bf16_gemm2.cta_limit" },
        arg "ctas" { dir = "in", dtype = "i32", shape = { 1 }, port = "bf16_gemm2.ctas" },
        arg "rows" { dir = "out", dtype = "bf16", shape = { "kOutRows", "kColumns" },
                     port = "bf16_gemm2.rows" },
    },
    launch = function(c, arch)
        return {
            grid = { c.kMaxCtas, (c.kColumns // 32 + c.kSlices - 1) // c.kSlices, 1 },
            block = c.kWarps * 32,
            shared = routed.shared(c), registers = 128,
        }
    end,
    -- The most that the routes can touch: one expert a tile.
    cost = function(c)
        local experts = math.min(c.kExperts, c.kMaxCtas)
        return {
            bytes = 2 * experts * c.kColumns * c.kWidth + 2 * c.kMaxCtas * (c.kWidth + c.kColumns),
            operations = 2 * c.kMaxCtas * c.kColumns * c.kWidth,
        }
    end,
    tactics = function(c, arch)
        return routed.tactics(routed.bf16_steps(c), c.kColumns, routed.bf16_wishes)
    end,
    -- Four steps take more than 128 registers where the target is newer than sm_90.
    default = function(c, arch)
        return routed.rule(arch, routed.bf16_steps(c), arch.name == "sm_90a" and 4 or 2, routed.slices(c.kColumns))
    end,
    unsupported = function(c, arch)
        if c.kWidth % 16 ~= 0 then
            return "the intermediate width must be a multiple of 16 (one tensor-core operation)"
        end
        if c.kColumns % 32 ~= 0 then
            return "the expert output width must be a multiple of 32 (one slice)"
        end
        if c.kTile % 8 ~= 0 then
            return "the tile must be a multiple of 8 tokens"
        end
        if c.kMaxRows < c.kMaxCtas * c.kTile or c.kOutRows < c.kMaxRows then
            return "the permuted space must have a row for each token of each tile"
        end
    end,
    early = true,
    triggers = true,
}
