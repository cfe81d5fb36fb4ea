-- SPDX-License-Identifier: Apache-2.0
-- Attention of a verify step over the paged cache, then o-norm and gate.
local rules = include "attention/paged_rules.lua"

return provider "attention/paged" {
    doc = "y = rms(softmax(scale q k^T) v) per head * sigmoid(gate). Of a request of length n and "
        .. "q rows, query i stands at n - q + i and sees the keys up to its own, the last `window` "
        .. "of them where there is a window. Rows of a request of length 0 are zero",
    parts = { "attention", "o_norm_gate" },
    entry = "paged_attention",
    constants = rules.constants {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kRequests" { type = "int", min = 1, max = 32,
            doc = "requests of the step; each has kRows / kRequests rows" },
        const "kHeads" { type = "int", min = 1, max = 1024, doc = "query heads of this rank" },
        const "kKvHeads" { type = "int", min = 1, max = 1024, doc = "key heads of this rank" },
        const "kDim" { type = "int", min = 16, max = 128, doc = "channels of a head" },
    },
    args = rules.args {
        arg "q" { dir = "in", dtype = "bf16", shape = { "kRows", "kHeads", "kDim" },
            port = "attention.q" },
        arg "cache" { dir = "in", dtype = "bf16",
            shape = { "pages", "kKvHeads", "kPageTokens", "kPacked" },
            port = "attention.cache" },
        arg "block_tables" { dir = "in", dtype = "i32", shape = { "kRequests", "kTableWidth" },
            port = "attention.block_tables" },
        arg "seq_lens" { dir = "in", dtype = "i32", shape = { "kRequests" },
            port = "attention.seq_lens" },
        arg "gate" { dir = "in", dtype = "bf16", shape = { "kRows", "kHeads", "kDim" },
            port = "o_norm_gate.gate" },
    },
    launch = rules.launch(function() return 0 end),
    cost = rules.cost,
    tactics = rules.tactics,
    default = rules.default,
    unsupported = function(c, arch)
        if c.kPacked ~= 2 * c.kDim then
            return "a cache row must hold k and v: twice the head width"
        end
        return rules.unsupported(c)
    end,
    early = true,
    triggers = true,
}
