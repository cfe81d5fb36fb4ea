-- SPDX-License-Identifier: Apache-2.0
-- Attention of a verify step from the QKV product on: QK norm, RoPE, new rows of the cache, attention, o-norm and gate.
local rules = include "attention/paged_rules.lua"

return provider "attention/front_paged" {
    doc = "q, k = rope(rms(q, k)) per head, bf16 after each; cache[slot] = k | v, a slot of -1 writes no cache row; then "
        .. "attention/paged of q over the cache, where the keys of the step's own rows come from the product, whatever their "
        .. "slots; a row whose position would be below zero has no slot",
    parts = { "qk_norm_rope", "kv_insert", "attention", "o_norm_gate" },
    entry = "front_paged",
    constants = rules.constants {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kRequests" { type = "int", min = 1, max = 32,
            doc = "requests of the step; each has kRows / kRequests rows" },
        const "kHeads" { type = "int", from = "qk_norm_rope.heads", min = 1, max = 1024,
            doc = "query heads of this rank" },
        const "kKvHeads" { type = "int", from = "qk_norm_rope.kv_heads", min = 1, max = 1024,
            doc = "key heads of this rank" },
        const "kDim" { type = "int", value = function(c) return c.kPacked // 2 end, doc = "channels of a head" },
        const "kWidth" { type = "int", min = 64, max = 1048576,
            doc = "columns of qkvg: q, k, v, gate" },
        const "kProductSplits" { type = "int", default = 0, min = 0, max = 64,
            doc = "partial sums of qkvg; 0: it comes whole" },
        const "kRope" { type = "int", has = "rope", doc = "1 where the layer has RoPE" },
        const "kPositions" { type = "int", default = 0, min = 0, max = 1048576,
            doc = "rows of the RoPE table; 0 without RoPE" },
        const "kQkEps" { type = "float", min = 1e-30, from = "qk_norm_rope.eps",
            doc = "added to the mean square of a query or key" },
    },
    args = rules.args {
        arg "qkvg" { dir = "in", dtype = "bf16", shape = { "kRows", "kWidth" },
            port = "qk_norm_rope.qkvg" },
        arg "qkvg_partials" { dir = "in", dtype = "f32", form = "k_partials",
            shape = { "kProductSplits", "kRows", "kWidth" },
            port = "qk_norm_rope.qkvg" },
        arg "positions" { dir = "in", dtype = "i64", shape = { "kRows" },
            port = "qk_norm_rope.positions" },
        arg "rope" { dir = "in", dtype = "f32", shape = { "kPositions", "kDim" },
            port = "qk_norm_rope.rope", optional = true },
        arg "slots" { dir = "in", dtype = "i64", shape = { "kRows" }, port = "kv_insert.slots" },
        -- Rows of former steps are read before grid_wait(): no launch of this step writes them.
        arg "cache" { dir = "inout", dtype = "bf16",
            shape = { "pages", "kKvHeads", "kPageTokens", "kPacked" },
            port = "kv_insert.cache" },
        arg "block_tables" { dir = "in", dtype = "i32", shape = { "kRequests", "kTableWidth" },
            port = "attention.block_tables" },
        arg "seq_lens" { dir = "in", dtype = "i32", shape = { "kRequests" },
            port = "attention.seq_lens" },
    },
    launch = rules.launch(function(c) return c.kProductSplits end),
    cost = function(c)
        local t = rules.cost(c)
        t.bytes = t.bytes + c.kRows * c.kWidth * math.max(2, 4 * c.kProductSplits)
        t.operations = t.operations + c.kRows * c.kWidth * (10 + c.kProductSplits)
        return t
    end,
    tactics = rules.tactics,
    default = rules.default,
    unsupported = function(c, arch)
        if c.kWidth ~= (c.kHeads + c.kKvHeads) * c.kPacked then
            return "the width of qkvg must be 2 (heads + kv_heads) head width"
        end
        return rules.unsupported(c)
    end,
    early = true,
    triggers = true,
}
