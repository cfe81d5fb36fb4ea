-- SPDX-License-Identifier: Apache-2.0
-- Second routed GEMM on NVFP4 weights and activations: one bf16 row a route, not finalised.

local routed = include "moe/routed.lua"

return provider "moe/nvfp4_gemm2" {
    doc = "rows = r16(act w2^T alpha) of every route, fp32 accumulation",
    parts = { "nvfp4_gemm2" },
    entry = "nvfp4_gemm2",
    constants = {
        const "kMaxRows" { type = "int", min = 1, doc = "permuted rows" },
        const "kCodeBytes" { type = "int", min = 8,
                             doc = "bytes of a row's codes: half the intermediate width" },
        const "kBlocks" { type = "int", min = 1,
                          doc = "blocks of 16 along the intermediate width" },
        const "kExperts" { type = "int", min = 1, doc = "experts of this rank" },
        const "kWidth" { type = "int", min = 32, doc = "expert output width" },
        const "kMaxCtas" { type = "int", min = 1, doc = "most tiles" },
        const "kOutRows" { type = "int", min = 1, doc = "rows of the output buffer" },
        const "kTile" { type = "int", from = "nvfp4_gemm2.tile", min = 8,
                        doc = "tokens of a tile, worked on 8 at a time" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 16,
                         doc = "warps that split the intermediate width" },
        const "kHeld" { type = "int", tactic = true, min = 1, max = 4,
                        doc = "steps a warp holds in registers" },
        const "kSlices" { type = "int", tactic = true, min = 1, max = 64,
                          doc = "slices of 32 output columns of a block" },
        const "kStep" { type = "int", value = routed.nvfp4_step,
                        doc = "k of one quad's load: 128, 64 or 16" },
    },
    args = {
        arg "codes2" { dir = "in", dtype = "u8", shape = { "kMaxRows", "kCodeBytes" },
                       port = "nvfp4_gemm2.codes2" },
        arg "scales2" { dir = "in", dtype = "e4m3", shape = { "kMaxRows", "kBlocks" },
                        port = "nvfp4_gemm2.scales2" },
        arg "w2" { dir = "in", dtype = "u8", shape = { "kExperts", "kWidth", "kCodeBytes" },
                   port = "nvfp4_gemm2.w2" },
        arg "w2_scales" { dir = "in", dtype = "e4m3", shape = { "kExperts", "kWidth", "kBlocks" },
                          port = "nvfp4_gemm2.w2_scales" },
        arg "alpha" { dir = "in", dtype = "f32", shape = { "kExperts" },
                      port = "nvfp4_gemm2.alpha" },
        arg "cta_expert" { dir = "in", dtype = "i32", shape = { "kMaxCtas" },
                           port = "nvfp4_gemm2.cta_expert" },
        arg "cta_limit" { dir = "in", dtype = "i32", shape = { "kMaxCtas" },
                          port = "nvfp4_gemm2.cta_limit" },
        arg "ctas" { dir = "in", dtype = "i32", shape = { 1 }, port = "nvfp4_gemm2.ctas" },
        arg "rows" { dir = "out", dtype = "bf16", shape = { "kOutRows", "kWidth" },
                     port = "nvfp4_gemm2.rows" },
    },
    launch = function(c, arch)
        return {
            grid = { c.kMaxCtas, (c.kWidth // 32 + c.kSlices - 1) // c.kSlices, 1 },
            block = c.kWarps * 32,
            shared = routed.shared(c), registers = c.kHeld > 2 and 255 or 128,
        }
    end,
    -- The most that the routes can touch: one expert a tile.
    cost = function(c)
        local experts = math.min(c.kExperts, c.kMaxCtas)
        return {
            bytes = experts * c.kWidth * (c.kCodeBytes + c.kBlocks)
                + c.kMaxCtas * (c.kCodeBytes + c.kBlocks + 2 * c.kWidth),
            operations = 2 * c.kMaxCtas * c.kWidth * c.kBlocks * 16,
        }
    end,
    tactics = function(c, arch)
        return routed.tactics(routed.nvfp4_steps(c), c.kWidth, routed.nvfp4_wishes)
    end,
    default = function(c, arch)
        return routed.rule(arch, routed.nvfp4_steps(c), 2, routed.slices(c.kWidth))
    end,
    unsupported = function(c, arch)
        if c.kCodeBytes ~= c.kBlocks * 8 then
            return "codes and scales must be of one width, a multiple of 16 (one NVFP4 block)"
        end
        if c.kWidth % 32 ~= 0 then
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
