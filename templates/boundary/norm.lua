-- SPDX-License-Identifier: Apache-2.0
-- x = r16(rms(s) * (center + gain)): a norm of the stream with no branch before it.
local rows = include "boundary/rows.lua"

return provider "boundary/norm" {
    doc = "x[rows, hidden] = r16(rms(s, eps) * (center + gain)), all in fp32, one block per row",
    parts = { "norm" },
    entry = "norm",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kHidden" { type = "int", min = 8, max = 65536, doc = "width of the stream" },
        const "kEps" { type = "float", min = 1e-30, from = "norm.eps", doc = "added to the mean of squares" },
        const "kCenter" { type = "int", from = "norm.center", min = 0, max = 1, doc = "gain is center + w" },
        const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a row" },
    },
    args = {
        arg "s" { dir = "in", dtype = "f32", shape = { "kRows", "kHidden" }, port = "norm.s" },
        arg "gain" { dir = "in", dtype = "bf16", shape = { "kHidden" }, port = "norm.gain" },
        arg "x" { dir = "out", dtype = "bf16", shape = { "kRows", "kHidden" }, port = "norm.x" },
    },
    launch = function(c) return { grid = { c.kRows, 1, 1 }, block = c.kThreads, shared = 128, registers = 64 } end,
    cost = function(c) return { bytes = c.kRows * c.kHidden * 6 + c.kHidden * 2, operations = c.kRows * c.kHidden * 5 } end,
    tactics = rows.tactics,
    default = rows.default,
    unsupported = rows.unsupported,
    early = true,
    triggers = true,
}
