-- SPDX-License-Identifier: Apache-2.0
-- Once at load: experts' NVFP4 weights packed into the units that moe/unit_gemm1 and moe/unit_gemm2 stream.

local unit = include "moe/unit.lua"

return provider "prepare/expert_units" {
    doc = "units of 16 rows, codes then scales, each fetched by one bulk copy; exact for every e4m3 scale that is a number and "
        .. "not negative; any other sets bit 4 of faults[0]",
    parts = { "expert_units" },
    entry = "expert_units",
    constants = {
        const "kExperts" { type = "int", min = 1, doc = "experts of this rank" },
        const "kRows" { type = "int", min = 16, doc = "rows of an expert's matrix" },
        const "kCodeBytes" { type = "int", min = 32, doc = "bytes of a row's codes" },
        const "kBlocks" { type = "int", min = 4, doc = "blocks of 16 of a row" },
        const "kUnits" { type = "int", min = 1, doc = "units of an expert" },
        const "kUnitBytes" { type = "int", min = 576, doc = "bytes of a unit: 9 for each of its k" },
        const "kPaired" { type = "int", from = "expert_units.paired", min = 0, max = 1,
                          doc = "1: the first half of the rows are gates, the second ups, and units of one place stand together" },
        const "kChunks" { type = "int", value = unit.chunks, doc = "runs of 64 of k of a unit" },
        const "kSteps" { type = "int", value = function(c) return c.kBlocks // (unit.chunks(c) * 4) end, doc = "units of a row" },
    },
    args = {
        arg "codes" { dir = "in", dtype = "u8", shape = { "kExperts", "kRows", "kCodeBytes" }, port = "expert_units.codes" },
        arg "scales" { dir = "in", dtype = "e4m3", shape = { "kExperts", "kRows", "kBlocks" }, port = "expert_units.scales" },
        arg "faults" { dir = "inout", dtype = "i32", shape = { 16 }, port = "expert_units.faults" },
        arg "units" { dir = "out", dtype = "u8", shape = { "kExperts", "kUnits", "kUnitBytes" }, port = "expert_units.units" },
    },
    launch = function(c, arch)
        local blocks = (c.kExperts * c.kUnits * unit.chunks(c) * 32 + 127) // 128
        return { grid = { math.min(blocks, 16 * arch.multiprocessors), 1, 1 }, block = 128, shared = 0, registers = 64 }
    end,
    cost = function(c)
        return { bytes = 2 * c.kExperts * c.kRows * (c.kCodeBytes + c.kBlocks), operations = 0 }
    end,
    unsupported = function(c)
        if c.kCodeBytes ~= c.kBlocks * 8 then
            return "codes and scales must be of one width, a multiple of 16 (one NVFP4 block)"
        end
        local why = unit.refuses(c.kUnitBytes, c.kBlocks)
        if why then
            return why
        end
        if c.kRows % (c.kPaired == 1 and 32 or 16) ~= 0 then
            return "the rows must be whole sets of 16, found " .. c.kRows
        end
        if c.kUnits ~= c.kRows // 16 * (c.kBlocks // (unit.chunks(c) * 4)) then
            return "an expert must have a unit for each 16 rows and each run of k"
        end
    end,
}
