-- SPDX-License-Identifier: Apache-2.0
-- Rows of the table where each rank holds a shard of it: what the ranks sum is each token's row.
local rows = include "boundary/rows.lua"

return provider "embedding/lookup" {
    doc = "partial[rows, hidden] = this rank's row of the token, zero where the token is another rank's (ranks' shards in ascending "
        .. "order). A token outside the whole table sets bit 1 of faults[0]",
    parts = { "lookup" },
    entry = "lookup",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kVocab" { type = "int", min = 1, max = 2147483647, doc = "rows of a rank's shard of the table" },
        const "kHidden" { type = "int", min = 8, max = 65536, doc = "width of the stream" },
        const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a row" },
    },
    args = {
        arg "tokens" { dir = "in", dtype = "i32", shape = { "kRows" }, port = "lookup.tokens" },
        arg "table" { dir = "in", dtype = "bf16", shape = { "kVocab", "kHidden" }, port = "lookup.table" },
        arg "rank" { dir = "in", dtype = "i32", shape = { 2 }, port = "lookup.rank" },
        arg "faults" { dir = "inout", dtype = "i32", shape = { 16 }, port = "lookup.faults" },
        arg "partial" { dir = "out", dtype = "bf16", shape = { "kRows", "kHidden" }, port = "lookup.partial" },
    },
    launch = function(c) return { grid = { c.kRows, 1, 1 }, block = c.kThreads, shared = 0, registers = 32 } end,
    cost = function(c) return { bytes = c.kRows * c.kHidden * 4, operations = 0 } end,
    tactics = rows.tactics,
    default = rows.default,
    unsupported = rows.unsupported,
    early = true,
    triggers = true,
}
