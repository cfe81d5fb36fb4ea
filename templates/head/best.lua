-- SPDX-License-Identifier: Apache-2.0
-- What a rank gives to an arg-max over ranks: the best of its own logits.
local blocks <const> = include "head/blocks.lua"

return provider "head/best" {
    doc = "best[row] = (bits of the greatest logit as fp32, its lowest id among this rank's); NaN is skipped, a row of NaN gives (-inf, -1)",
    parts = { "best" },
    entry = "best_of_rank",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kVocab" { type = "int", min = 4, max = 1048576, doc = "logits of a row on one rank" },
        const "kBlocks" { type = "int", tactic = true, min = 1, max = 32, doc = "blocks of a row" },
        const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a block" },
    },
    args = {
        arg "logits" { dir = "in", dtype = "f32", shape = { "kRows", "kVocab" }, port = "best.logits" },
        arg "candidates" { dir = "workspace", dtype = "u32", shape = { "kRows", "kBlocks", 2 } },
        arg "counters" { dir = "workspace", dtype = "u32", shape = { "kRows" }, zeroed = true },
        arg "best" { dir = "out", dtype = "i32", shape = { "kRows", 2 }, port = "best.best" },
    },
    launch = blocks.launch,
    cost = function(c) return { bytes = 4 * c.kRows * c.kVocab, operations = 2 * c.kRows * c.kVocab } end,
    tactics = blocks.tactics,
    default = blocks.default,
    unsupported = blocks.unsupported,
    early = true,
    triggers = true,
}
