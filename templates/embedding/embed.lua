-- SPDX-License-Identifier: Apache-2.0
-- The embedded stream on one rank: row of the table, norm, rounded to bf16 and held as fp32.
local alone <const> = include "collective/alone.lua"
local rows <const> = include "boundary/rows.lua"

return provider "embedding/embed" {
    doc = "s[rows, hidden] = fp32(r16(rms(table[token], eps))). A token outside the table zeroes its row and sets bit 1 of faults[0]",
    parts = { { "lookup", "rank_sum", "embed_norm" } },
    entry = "embed",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kVocab" { type = "int", min = 1, max = 2147483647, doc = "rows of the table" },
        const "kHidden" { type = "int", min = 8, max = 65536, doc = "width of the stream" },
        const "kEps" { type = "float", min = 1e-30, from = "embed_norm.eps", doc = "added to the mean of squares" },
        const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a row" },
    },
    args = {
        arg "tokens" { dir = "in", dtype = "i32", shape = { "kRows" }, port = "lookup.tokens" },
        arg "table" { dir = "in", dtype = "bf16", shape = { "kVocab", "kHidden" }, port = "lookup.table" },
        arg "faults" { dir = "inout", dtype = "i32", shape = { 16 }, port = "lookup.faults" },
        arg "s" { dir = "out", dtype = "f32", shape = { "kRows", "kHidden" }, port = "embed_norm.s" },
    },
    launch = function(c) return { grid = { c.kRows, 1, 1 }, block = c.kThreads, shared = 256, registers = 64 } end,
    cost = function(c) return { bytes = c.kRows * c.kHidden * 6, operations = c.kRows * c.kHidden * 4 } end,
    tactics = rows.tactics,
    default = rows.default,
    unsupported = function(c, arch) return alone(arch, { "rank_sum" }) or rows.unsupported(c) end,
    early = true,
    triggers = true,
}
