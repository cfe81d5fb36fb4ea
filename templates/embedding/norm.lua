-- SPDX-License-Identifier: Apache-2.0
-- The norm of embedded rows that a library summed over the ranks.
local rows = include "boundary/rows.lua"

return provider "embedding/norm" {
    doc = "s[rows, hidden] = fp32(r16(rms(e, eps))), one block per row",
    parts = { "embed_norm" },
    entry = "embed_norm",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kHidden" { type = "int", min = 8, max = 65536, doc = "width of the stream" },
        const "kEps" { type = "float", min = 1e-30, from = "embed_norm.eps", doc = "added to the mean of squares" },
        const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a row" },
    },
    args = {
        arg "e" { dir = "in", dtype = "bf16", shape = { "kRows", "kHidden" }, port = "embed_norm.e" },
        arg "s" { dir = "out", dtype = "f32", shape = { "kRows", "kHidden" }, port = "embed_norm.s" },
    },
    launch = function(c) return { grid = { c.kRows, 1, 1 }, block = c.kThreads, shared = 256, registers = 64 } end,
    cost = function(c) return { bytes = c.kRows * c.kHidden * 6, operations = c.kRows * c.kHidden * 4 } end,
    tactics = rows.tactics,
    default = rows.default,
    unsupported = rows.unsupported,
    early = true,
    triggers = true,
}
