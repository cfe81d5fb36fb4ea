-- SPDX-License-Identifier: Apache-2.0
-- Once at load: expert inputs out of nothing, the same on every rank.

local BLOCK <const> = 128

return provider "probe/rows" {
    doc = "h1 = r16(x), x of about unit RMS, hashed from the number of the element; quantised as expert inputs are where codes are asked for",
    parts = { "probe_rows" },
    entry = "probe_rows",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens" },
        const "kQuantised" { type = "int", has = "codes", doc = "1: codes and scales, 0: bf16" },
        const "kCodeBytes" { type = "int", default = 0, min = 0, doc = "bytes of a row's codes" },
        const "kBlocks" { type = "int", default = 0, min = 0, doc = "blocks of 16 of a row's codes" },
        const "kWidth" { type = "int", default = 0, min = 0, doc = "elements of a bf16 row" },
    },
    args = {
        arg "input_gscale" { dir = "in", dtype = "f32", shape = { 1 }, port = "probe_rows.input_gscale", optional = true },
        arg "codes" { dir = "out", dtype = "u8", shape = { "kRows", "kCodeBytes" }, port = "probe_rows.codes", optional = true },
        arg "scales" { dir = "out", dtype = "e4m3", shape = { "kRows", "kBlocks" }, port = "probe_rows.scales", optional = true },
        arg "h1" { dir = "out", dtype = "bf16", shape = { "kRows", "kWidth" }, port = "probe_rows.h1", optional = true },
    },
    launch = function(c)
        local blocks = c.kBlocks + c.kWidth // 16
        return { grid = { (blocks + BLOCK - 1) // BLOCK, c.kRows, 1 }, block = BLOCK, shared = 0, registers = 128 }
    end,
    cost = function(c)
        return { bytes = c.kRows * (c.kCodeBytes + c.kBlocks + 2 * c.kWidth), operations = 16 * c.kRows * (16 * c.kBlocks + c.kWidth) }
    end,
    unsupported = function(c)
        if (c.kWidth > 0) == (c.kQuantised == 1) then
            return "either codes or h1 must be asked for"
        end
        if c.kWidth % 16 ~= 0 or c.kCodeBytes ~= c.kBlocks * 8 then
            return "the width must be a multiple of 16 (one NVFP4 block), and codes and scales of one width"
        end
    end,
}
