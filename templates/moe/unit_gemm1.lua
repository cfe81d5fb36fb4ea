-- SPDX-License-Identifier: Apache-2.0
-- First routed GEMM on packed NVFP4 units and NVFP4 activations, with SwiGLU and requantisation.

local unit = include "moe/unit.lua"

local function steps(c)
    return c.kBlocks * 16 // (unit.chunks(c) * 64)
end

-- moe/unit_gemm1.cuh: rings, tokens, sums, tiles, zeros, barriers.
local function shared(c)
    local warps = c.kTeams * c.kSplit
    return warps * c.kStages * c.kUnitBytes + c.kRows * unit.pitch(c.kBlocks, c.kExpanded) + warps * 512
        + unit.round(c.kMaxCtas * 4) + unit.zeros(c) + 8 * (warps * c.kStages + 4 * c.kTeams)
end

local wishes <const> = {
    { 2, 8, 2, 1 }, { 2, 8, 2, 0 }, { 1, 8, 2, 1 }, { 1, 8, 3, 1 }, { 1, 8, 2, 0 }, { 3, 4, 2, 1 }, { 2, 4, 2, 1 }, { 2, 4, 2, 0 },
    { 1, 4, 2, 1 }, { 1, 4, 2, 0 }, { 2, 2, 2, 1 }, { 2, 2, 2, 0 }, { 1, 2, 2, 1 }, { 1, 2, 2, 0 }, { 4, 1, 2, 1 },
    { 2, 1, 2, 1 }, { 2, 1, 2, 0 }, { 1, 1, 2, 0 },
}

-- Those that split k evenly and fit.
local function tactics(c, arch)
    local list = {}
    for _, wish in ipairs(wishes) do
        local t = { kTeams = wish[1], kSplit = wish[2], kStages = wish[3], kExpanded = wish[4] }
        local all = { kTeams = t.kTeams, kSplit = t.kSplit, kStages = t.kStages, kExpanded = t.kExpanded, kRows = c.kRows,
                      kBlocks = c.kBlocks, kMaxCtas = c.kMaxCtas, kUnitBytes = c.kUnitBytes }
        if steps(c) % t.kSplit == 0 and shared(all) <= arch.shared then
            table.insert(list, t)
        end
    end
    return list
end

return provider "moe/unit_gemm1" {
    doc = "codes2, scales2 = nvfp4(silu(x w_gate^T gate_alpha) * (x w_up^T up_alpha)) of every route, fp32 accumulation, "
        .. "on weights packed by prepare/expert_units",
    parts = { "nvfp4_gemm1", "swiglu_quantise" },
    entry = "unit_gemm1",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kCodeBytes" { type = "int", min = 32, doc = "bytes of a row's codes: half the expert input width" },
        const "kBlocks" { type = "int", min = 4, doc = "blocks of 16 along the expert input width" },
        const "kExperts" { type = "int", min = 1, doc = "experts of this rank" },
        const "kUnits" { type = "int", min = 2, doc = "units of an expert" },
        const "kUnitBytes" { type = "int", min = 576, doc = "bytes of a unit: 9 for each of its k" },
        const "kPermuted" { type = "int", min = 2, doc = "permuted rows and one guard element" },
        const "kMaxCtas" { type = "int", min = 1, doc = "most tiles" },
        const "kMaxRows" { type = "int", min = 1, doc = "permuted rows" },
        const "kOutBytes" { type = "int", min = 8, doc = "bytes of an output row's codes" },
        const "kOutBlocks" { type = "int", min = 1, doc = "blocks of 16 along the intermediate width" },
        const "kTile" { type = "int", from = "nvfp4_gemm1.tile", min = 8, doc = "tokens of a tile" },
        const "kTeams" { type = "int", tactic = true, min = 1, max = 8, doc = "teams of a block; each has a finishing warp too" },
        const "kSplit" { type = "int", tactic = true, min = 1, max = 16, doc = "warps of a team, which split the input width" },
        const "kStages" { type = "int", tactic = true, min = 1, max = 8, doc = "units in flight of a warp" },
        const "kExpanded" { type = "int", tactic = true, min = 0, max = 1, doc = "1: tokens stand in shared memory as bf16" },
        const "kChunks" { type = "int", value = unit.chunks, doc = "runs of 64 of k of a unit" },
        const "kSteps" { type = "int", value = steps, doc = "units along the input width" },
        const "kPitch" { type = "int", value = function(c) return unit.pitch(c.kBlocks, c.kExpanded) end,
                         doc = "bytes from token to token in shared memory" },
    },
    args = {
        arg "codes" { dir = "in", dtype = "u8", shape = { "kRows", "kCodeBytes" }, port = "nvfp4_gemm1.codes" },
        arg "scales" { dir = "in", dtype = "e4m3", shape = { "kRows", "kBlocks" }, port = "nvfp4_gemm1.scales" },
        arg "units" { dir = "in", dtype = "u8", shape = { "kExperts", "kUnits", "kUnitBytes" }, port = "nvfp4_gemm1.units" },
        arg "permuted_to_token" { dir = "in", settled = true, dtype = "i32", shape = { "kPermuted" },
                                  port = "nvfp4_gemm1.permuted_to_token" },
        arg "cta_expert" { dir = "in", settled = true, dtype = "i32", shape = { "kMaxCtas" }, port = "nvfp4_gemm1.cta_expert" },
        arg "cta_limit" { dir = "in", settled = true, dtype = "i32", shape = { "kMaxCtas" }, port = "nvfp4_gemm1.cta_limit" },
        arg "ctas" { dir = "in", settled = true, dtype = "i32", shape = { 1 }, port = "nvfp4_gemm1.ctas" },
        arg "gate_alpha" { dir = "in", dtype = "f32", shape = { "kExperts" }, port = "swiglu_quantise.gate_alpha" },
        arg "up_alpha" { dir = "in", dtype = "f32", shape = { "kExperts" }, port = "swiglu_quantise.up_alpha" },
        arg "codes2" { dir = "out", dtype = "u8", shape = { "kMaxRows", "kOutBytes" }, port = "swiglu_quantise.codes2" },
        arg "scales2" { dir = "out", dtype = "e4m3", shape = { "kMaxRows", "kOutBlocks" }, port = "swiglu_quantise.scales2" },
    },
    launch = function(c, arch)
        local warps = c.kTeams * (c.kSplit + 1)
        return { grid = { arch.multiprocessors, 1, 1 }, block = warps * 32, shared = shared(c),
                 registers = math.min(128, 65536 // (warps * 32) // 8 * 8) }
    end,
    -- The most that the routes can touch: one expert a tile.
    cost = function(c)
        local experts = math.min(c.kExperts, c.kMaxCtas)
        return {
            bytes = experts * c.kUnits * c.kUnitBytes + c.kMaxCtas * (c.kCodeBytes + c.kBlocks + c.kOutBytes + c.kOutBlocks),
            operations = 2 * c.kMaxCtas * c.kOutBlocks * 32 * c.kBlocks * 16,
        }
    end,
    tactics = tactics,
    -- The first that fits; the host runs a fibre per thread, so there the last but one.
    default = function(c, arch)
        local list = tactics(c, arch)
        return list[arch.name == "host" and math.max(1, #list - 1) or 1]
    end,
    unsupported = function(c, arch)
        if c.kCodeBytes ~= c.kBlocks * 8 or c.kOutBytes ~= c.kOutBlocks * 8 then
            return "codes and scales must be of one width, a multiple of 16 (one NVFP4 block)"
        end
        local why = unit.refuses(c.kUnitBytes, c.kBlocks)
        if why then
            return why
        end
        if c.kUnits ~= c.kOutBlocks * 2 * steps(c) then
            return "an expert must have gate and up units of all its intermediate columns"
        end
        if c.kTile ~= 8 then
            return "the tile must be 8 tokens"
        end
        if c.kMaxRows < c.kMaxCtas * c.kTile or c.kPermuted ~= c.kMaxCtas * c.kTile + 1 then
            return "the permuted space must have a row for each token of each tile"
        end
        if #tactics(c, arch) == 0 then
            return "the tokens of the step do not fit in shared memory"
        end
    end,
    early = true,
    triggers = true,
}
