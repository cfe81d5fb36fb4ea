-- SPDX-License-Identifier: Apache-2.0
-- x = r16(rms(s) * (center + gain)): a norm of the stream with no branch before it.
local rows = include "boundary/rows.lua"

return provider "boundary/norm" {
    doc = "x[rows, hidden] = r16(rms(s, eps) * (center + gain)), all in fp32",
    parts = { "norm" },
    entry = "norm",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kHidden" { type = "int", min = 8, max = 65536, doc = "width of the stream" },
        const "kEps" { type = "float", min = 1e-30, from = "norm.eps", doc = "added to the mean of squares" },
        const "kCenter" { type = "int", from = "norm.center", min = 0, max = 1, doc = "gain is center + w" },
        rows.threads_constant(),
        rows.blocks_constant(),
    },
    args = {
        arg "s" { dir = "in", dtype = "f32", shape = { "kRows", "kHidden" }, port = "norm.s" },
        arg "gain" { dir = "in", dtype = "bf16", shape = { "kHidden" }, port = "norm.gain" },
        arg "x" { dir = "out", dtype = "bf16", shape = { "kRows", "kHidden" }, port = "norm.x" },
    },
    launch = function(c) return rows.split_launch(c, 0, 64) end,
    cost = function(c) return { bytes = c.kRows * c.kHidden * 6 + c.kHidden * 2, operations = c.kRows * c.kHidden * 5 } end,
    tactics = rows.split_tactics,
    default = rows.split_default,
    unsupported = rows.split_unsupported,
    early = true,
    triggers = true,
}
