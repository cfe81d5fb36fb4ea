-- SPDX-License-Identifier: Apache-2.0
-- Second routed GEMM on packed NVFP4 units and NVFP4 activations: one bf16 row a route, not finalised.

local unit = include "moe/unit.lua"

local function steps(c)
    return c.kBlocks * 16 // (unit.chunks(c) * 64)
end

-- moe/unit_gemm2.cuh: rings, rows, tiles, sources, zeros, barriers.
local function shared(c)
    return unit.round(c.kWarps * c.kStages * c.kUnitBytes + c.kRoutes * unit.pitch(c.kBlocks, c.kExpanded)
        + (c.kMaxCtas + 1) * 4 + c.kRoutes * 2) + unit.zeros(c) + 8 * c.kWarps * c.kStages
end

local wishes <const> = {
    { 16, 2, 1 }, { 16, 2, 0 }, { 12, 2, 1 }, { 12, 3, 1 }, { 12, 2, 0 }, { 8, 3, 1 }, { 8, 4, 1 }, { 8, 2, 1 }, { 8, 2, 0 },
    { 4, 2, 1 }, { 4, 2, 0 }, { 2, 2, 1 }, { 2, 2, 0 }, { 1, 2, 0 },
}

local function tactics(c, arch)
    local list = {}
    for _, wish in ipairs(wishes) do
        local t = { kWarps = wish[1], kStages = wish[2], kExpanded = wish[3] }
        local all = { kWarps = t.kWarps, kStages = t.kStages, kExpanded = t.kExpanded, kRoutes = c.kRoutes, kBlocks = c.kBlocks,
                      kMaxCtas = c.kMaxCtas, kUnitBytes = c.kUnitBytes }
        if shared(all) <= arch.shared then
            table.insert(list, t)
        end
    end
    return list
end

return provider "moe/unit_gemm2" {
    doc = "rows = r16(act w2^T alpha) of every route, fp32 accumulation, on weights packed by prepare/expert_units",
    parts = { "nvfp4_gemm2" },
    entry = "unit_gemm2",
    constants = {
        const "kMaxRows" { type = "int", min = 1, doc = "permuted rows" },
        const "kCodeBytes" { type = "int", min = 32, doc = "bytes of a row's codes: half the intermediate width" },
        const "kBlocks" { type = "int", min = 4, doc = "blocks of 16 along the intermediate width" },
        const "kExperts" { type = "int", min = 1, doc = "experts of this rank" },
        const "kUnits" { type = "int", min = 1, doc = "units of an expert" },
        const "kUnitBytes" { type = "int", min = 576, doc = "bytes of a unit: 9 for each of its k" },
        const "kWidth" { type = "int", min = 16, doc = "expert output width" },
        const "kMaxCtas" { type = "int", min = 1, doc = "most tiles" },
        const "kOutRows" { type = "int", min = 1, doc = "rows of the output buffer" },
        const "kTile" { type = "int", from = "nvfp4_gemm2.tile", min = 8, doc = "tokens of a tile" },
        const "kRoutes" { type = "int", from = "nvfp4_gemm2.routes", min = 1, doc = "most rows that are filled" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 24, doc = "warps that multiply" },
        const "kStages" { type = "int", tactic = true, min = 1, max = 8, doc = "units in flight of a warp" },
        const "kExpanded" { type = "int", tactic = true, min = 0, max = 1, doc = "1: rows stand in shared memory as bf16" },
        const "kChunks" { type = "int", value = unit.chunks, doc = "runs of 64 of k of a unit" },
        const "kSteps" { type = "int", value = steps, doc = "units along the intermediate width" },
        const "kPitch" { type = "int", value = function(c) return unit.pitch(c.kBlocks, c.kExpanded) end,
                         doc = "bytes from row to row in shared memory" },
    },
    args = {
        arg "codes2" { dir = "in", dtype = "u8", shape = { "kMaxRows", "kCodeBytes" }, port = "nvfp4_gemm2.codes2" },
        arg "scales2" { dir = "in", dtype = "e4m3", shape = { "kMaxRows", "kBlocks" }, port = "nvfp4_gemm2.scales2" },
        arg "units" { dir = "in", dtype = "u8", shape = { "kExperts", "kUnits", "kUnitBytes" }, port = "nvfp4_gemm2.units" },
        arg "alpha" { dir = "in", dtype = "f32", shape = { "kExperts" }, port = "nvfp4_gemm2.alpha" },
        arg "cta_expert" { dir = "in", settled = true, dtype = "i32", shape = { "kMaxCtas" }, port = "nvfp4_gemm2.cta_expert" },
        arg "cta_limit" { dir = "in", settled = true, dtype = "i32", shape = { "kMaxCtas" }, port = "nvfp4_gemm2.cta_limit" },
        arg "ctas" { dir = "in", settled = true, dtype = "i32", shape = { 1 }, port = "nvfp4_gemm2.ctas" },
        arg "rows" { dir = "out", dtype = "bf16", shape = { "kOutRows", "kWidth" }, port = "nvfp4_gemm2.rows" },
    },
    launch = function(c, arch)
        return { grid = { arch.multiprocessors, 1, 1 }, block = c.kWarps * 32, shared = shared(c),
                 registers = math.min(128, 65536 // (c.kWarps * 32) // 8 * 8) }
    end,
    -- The most that the routes can touch: one expert a tile.
    cost = function(c)
        local experts = math.min(c.kExperts, c.kMaxCtas)
        return {
            bytes = experts * c.kUnits * c.kUnitBytes + c.kMaxCtas * (c.kCodeBytes + c.kBlocks + 2 * c.kWidth),
            operations = 2 * c.kMaxCtas * c.kWidth * c.kBlocks * 16,
        }
    end,
    tactics = tactics,
    -- The first that fits; the host runs a fibre per thread, so there the last but one.
    default = function(c, arch)
        local list = tactics(c, arch)
        return list[arch.name == "host" and math.max(1, #list - 1) or 1]
    end,
    unsupported = function(c, arch)
        if c.kCodeBytes ~= c.kBlocks * 8 then
            return "codes and scales must be of one width, a multiple of 16 (one NVFP4 block)"
        end
        local why = unit.refuses(c.kUnitBytes, c.kBlocks)
        if why then
            return why
        end
        if c.kWidth % 16 ~= 0 or c.kUnits ~= c.kWidth // 16 * steps(c) then
            return "an expert must have units of all its output columns"
        end
        if c.kTile ~= 8 then
            return "the tile must be 8 tokens"
        end
        if c.kMaxRows < c.kMaxCtas * c.kTile or c.kOutRows < c.kMaxRows then
            return "the permuted space must have a row for each token of each tile"
        end
        if #tactics(c, arch) == 0 then
            return "the rows of the step do not fit in shared memory"
        end
    end,
    early = true,
    triggers = true,
}
