-- SPDX-License-Identifier: Apache-2.0
-- The next token of every row: several blocks a row find candidates, the last to arrive picks among them.
local alone <const> = include "collective/alone.lua"
local blocks <const> = include "head/blocks.lua"

return provider "head/argmax" {
    doc = "token[row] = lowest id of the greatest logit; NaN is skipped, a row of NaN gives 0",
    parts = { "argmax" },
    entry = "argmax",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kVocab" { type = "int", min = 4, max = 1048576, doc = "logits of a row" },
        const "kBlocks" { type = "int", tactic = true, min = 1, max = 32, doc = "blocks of a row" },
        const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a block" },
    },
    args = {
        arg "logits" { dir = "in", dtype = "f32", shape = { "kRows", "kVocab" }, port = "argmax.logits" },
        arg "candidates" { dir = "workspace", dtype = "u32", shape = { "kRows", "kBlocks", 2 } },
        arg "counters" { dir = "workspace", dtype = "u32", shape = { "kRows" }, zeroed = true },
        arg "token" { dir = "out", dtype = "i32", shape = { "kRows" }, port = "argmax.token" },
    },
    launch = blocks.launch,
    cost = function(c) return { bytes = 4 * c.kRows * c.kVocab, operations = 2 * c.kRows * c.kVocab } end,
    tactics = blocks.tactics,
    default = blocks.default,
    unsupported = function(c, arch) return alone(arch, { "argmax" }) or blocks.unsupported(c) end,
    early = true,
    triggers = true,
}
