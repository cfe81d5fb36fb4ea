-- SPDX-License-Identifier: Apache-2.0
-- The next token of every row from the best of every rank, as a library gathered them.
return provider "head/pick" {
    doc = "token[row] = lowest id of the greatest value over the ranks, ids counted on from rank to rank; no id anywhere gives 0",
    parts = { "pick" },
    entry = "pick",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kRanks" { type = "int", min = 2, max = 16, doc = "ranks" },
        const "kVocab" { type = "int", min = 1, max = 1048576, from = "pick.vocab", doc = "logits of a row on one rank" },
    },
    args = {
        arg "best" { dir = "in", dtype = "i32", form = "columns", shape = { "kRanks", "kRows", 2 }, port = "pick.best" },
        arg "token" { dir = "out", dtype = "i32", shape = { "kRows" }, port = "pick.token" },
    },
    launch = function(c) return { grid = { c.kRows, 1, 1 }, block = 32, shared = 0, registers = 32 } end,
    cost = function(c) return { bytes = 8 * c.kRanks * c.kRows, operations = 2 * c.kRanks * c.kRows } end,
    early = true,
    triggers = true,
}
