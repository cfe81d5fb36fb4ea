-- SPDX-License-Identifier: Apache-2.0
-- The embedded stream on several ranks, each with a shard of the table: lookup, sum over ranks by mailbox, norm.
local rows = include "boundary/rows.lua"

return provider "embedding/exchange_embed" {
    doc = "s[rows, hidden] = fp32(r16(rms(e, eps))), e: row of the whole table (ranks' shards in ascending order), summed over ranks "
        .. "in fp32. A token outside the table zeroes its row and sets bit 1 of faults[0]",
    parts = { { "lookup", "rank_sum", "embed_norm" } },
    entry = "exchange_embed",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kVocab" { type = "int", min = 1, max = 2147483647, doc = "rows of a rank's shard of the table" },
        const "kHidden" { type = "int", min = 8, max = 65536, doc = "width of the stream" },
        const "kEps" { type = "float", min = 1e-30, from = "embed_norm.eps", doc = "added to the mean of squares" },
        const "kRanks" { type = "int", ranks = true, doc = "ranks" },
        const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a row" },
        const "kGroup" { type = "int", tactic = true, min = 1, max = 16, doc = "ranks polled together" },
    },
    args = {
        arg "tokens" { dir = "in", dtype = "i32", shape = { "kRows" }, port = "lookup.tokens" },
        arg "table" { dir = "in", dtype = "bf16", shape = { "kVocab", "kHidden" }, port = "lookup.table" },
        arg "faults" { dir = "inout", dtype = "i32", shape = { 16 }, port = "lookup.faults" },
        arg "s" { dir = "out", dtype = "f32", shape = { "kRows", "kHidden" }, port = "embed_norm.s" },
        arg "mailbox" { dir = "mailbox", exchange = "embed", bytes = function(c) return 2 * c.kRows * c.kHidden end },
    },
    launch = function(c)
        return { grid = { c.kRows, 1, 1 }, block = c.kThreads, shared = 384, registers = rows.exchange_registers(c, 1) }
    end,
    cost = function(c) return { bytes = c.kRows * c.kHidden * 8, operations = c.kRows * c.kHidden * 5 } end,
    tactics = rows.exchange_tactics,
    default = rows.exchange_default,
    unsupported = rows.unsupported,
    early = true,
    triggers = true,
}
