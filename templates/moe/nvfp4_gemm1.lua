-- SPDX-License-Identifier: Apache-2.0
-- First routed GEMM on NVFP4 weights and activations, with SwiGLU and requantisation.

local routed = include "moe/routed.lua"

return provider "moe/nvfp4_gemm1" {
    doc = "codes2, scales2 = nvfp4(silu(x w_gate^T gate_alpha) * (x w_up^T up_alpha)) of every "
        .. "route, fp32 accumulation",
    parts = { "nvfp4_gemm1", "swiglu_quantise" },
    entry = "nvfp4_gemm1",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kCodeBytes" { type = "int", min = 8,
                             doc = "bytes of a row's codes: half the expert input width" },
        const "kBlocks" { type = "int", min = 1,
                          doc = "blocks of 16 along the expert input width" },
        const "kExperts" { type = "int", min = 1, doc = "experts of this rank" },
        const "kGateUp" { type = "int", min = 32,
                          doc = "gate rows, then up rows: twice the intermediate width" },
        const "kPermuted" { type = "int", min = 2, doc = "permuted rows and one guard element" },
        const "kMaxCtas" { type = "int", min = 1, doc = "most tiles" },
        const "kMaxRows" { type = "int", min = 1, doc = "permuted rows" },
        const "kOutBytes" { type = "int", min = 8, doc = "bytes of an output row's codes" },
        const "kOutBlocks" { type = "int", min = 1,
                             doc = "blocks of 16 along the intermediate width" },
        const "kTile" { type = "int", from = "nvfp4_gemm1.tile", min = 8,
                        doc = "tokens of a tile, worked on 8 at a time" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 16,
                         doc = "warps that split the input width" },
        const "kHeld" { type = "int", tactic = true, min = 1, max = 4,
                        doc = "steps a warp holds in registers" },
        const "kSlices" { type = "int", tactic = true, min = 1, max = 64,
                          doc = "slices of 16 intermediate columns of a block" },
        const "kStep" { type = "int", value = routed.nvfp4_step,
                        doc = "k of one quad's load: 128, 64 or 16" },
    },
    args = {
        arg "codes" { dir = "in", dtype = "u8", shape = { "kRows", "kCodeBytes" },
                      port = "nvfp4_gemm1.codes" },
        arg "scales" { dir = "in", dtype = "e4m3", shape = { "kRows", "kBlocks" },
                       port = "nvfp4_gemm1.scales" },
        arg "w13" { dir = "in", dtype = "u8", shape = { "kExperts", "kGateUp", "kCodeBytes" },
                    port = "nvfp4_gemm1.w13" },
        arg "w13_scales" { dir = "in", dtype = "e4m3", shape = { "kExperts", "kGateUp", "kBlocks" },
                           port = "nvfp4_gemm1.w13_scales" },
        arg "permuted_to_token" { dir = "in", dtype = "i32", shape = { "kPermuted" },
                                  port = "nvfp4_gemm1.permuted_to_token" },
        arg "cta_expert" { dir = "in", dtype = "i32", shape = { "kMaxCtas" },
                           port = "nvfp4_gemm1.cta_expert" },
        arg "cta_limit" { dir = "in", dtype = "i32", shape = { "kMaxCtas" },
                          port = "nvfp4_gemm1.cta_limit" },
        arg "ctas" { dir = "in", dtype = "i32", shape = { 1 }, port = "nvfp4_gemm1.ctas" },
        arg "gate_alpha" { dir = "in", dtype = "f32", shape = { "kExperts" },
                           port = "swiglu_quantise.gate_alpha" },
        arg "up_alpha" { dir = "in", dtype = "f32", shape = { "kExperts" },
                         port = "swiglu_quantise.up_alpha" },
        arg "codes2" { dir = "out", dtype = "u8", shape = { "kMaxRows", "kOutBytes" },
                       port = "swiglu_quantise.codes2" },
        arg "scales2" { dir = "out", dtype = "e4m3", shape = { "kMaxRows", "kOutBlocks" },
                        port = "swiglu_quantise.scales2" },
    },
    launch = function(c, arch)
        return {
            grid = { c.kMaxCtas, (c.kOutBlocks + c.kSlices - 1) // c.kSlices, 1 },
            block = c.kWarps * 32,
            shared = routed.shared(c), registers = c.kHeld > 2 and 255 or 128,
        }
    end,
    -- The most that the routes can touch: one expert a tile.
    cost = function(c)
        local experts = math.min(c.kExperts, c.kMaxCtas)
        return {
            bytes = experts * c.kGateUp * (c.kCodeBytes + c.kBlocks)
                + c.kMaxCtas * (c.kCodeBytes + c.kBlocks + c.kOutBytes + c.kOutBlocks),
            operations = 2 * c.kMaxCtas * c.kGateUp * c.kBlocks * 16,
        }
    end,
    tactics = function(c, arch)
        return routed.tactics(routed.nvfp4_steps(c), c.kOutBlocks * 16, routed.nvfp4_wishes)
    end,
    default = function(c, arch)
        return routed.rule(arch, routed.nvfp4_steps(c), 2, routed.slices(c.kOutBlocks * 16))
    end,
    unsupported = function(c, arch)
        if c.kCodeBytes ~= c.kBlocks * 8 or c.kOutBytes ~= c.kOutBlocks * 8 then
            return "codes and scales must be of one width, a multiple of 16 (one NVFP4 block)"
        end
        if c.kGateUp ~= c.kOutBlocks * 32 then
            return "w13 must have as many gate rows and up rows as there are intermediate columns"
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
