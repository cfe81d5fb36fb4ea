-- SPDX-License-Identifier: Apache-2.0
-- Between the QKV GEMM and attention: QK norm, RoPE where the layer has it, and the new rows of the
-- KV cache.

local VECTOR <const> = 8 -- channels a thread owns

return provider "attention/qkv_front" {
    doc = "q, k = rope(rms(q, k)) per head, bf16 after each; gate as it is; cache[slot] = k | v; "
        .. "a slot of -1 writes no cache row",
    parts = { "qk_norm_rope", "kv_insert" },
    entry = "qkv_front",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kHeads" { type = "int", from = "qk_norm_rope.heads", min = 1, max = 1024,
            doc = "query heads of this rank" },
        const "kKvHeads" { type = "int", from = "qk_norm_rope.kv_heads", min = 1, max = 1024,
            doc = "key heads of this rank" },
        const "kDim" { type = "int", min = 16, max = 128, doc = "channels of a head" },
        const "kWidth" { type = "int", min = 64, max = 1048576,
            doc = "columns of qkvg: q, k, v, gate" },
        const "kSplits" { type = "int", default = 0, min = 0, max = 64,
            doc = "partial sums of qkvg; 0: it comes whole" },
        const "kPageTokens" { type = "int", min = 1, max = 1024, doc = "tokens of a cache page" },
        const "kPacked" { type = "int", min = 32, max = 256,
            doc = "elements of a cache row: k, then v" },
        const "kRope" { type = "int", has = "rope", doc = "1 where the layer has RoPE" },
        const "kPositions" { type = "int", default = 0, min = 0, max = 1048576,
            doc = "rows of the RoPE table; 0 without RoPE" },
        const "kEps" { type = "float", min = 1e-30, from = "qk_norm_rope.eps",
            doc = "added to the mean square of a head" },
        const "kThreads" { type = "int", tactic = true, min = 32, max = 256,
            doc = "threads of a block" },
    },
    args = {
        arg "qkvg" { dir = "in", dtype = "bf16", shape = { "kRows", "kWidth" },
            port = "qk_norm_rope.qkvg" },
        arg "qkvg_partials" { dir = "in", dtype = "f32", form = "k_partials",
            shape = { "kSplits", "kRows", "kWidth" },
            port = "qk_norm_rope.qkvg" },
        arg "positions" { dir = "in", dtype = "i64", shape = { "kRows" },
            port = "qk_norm_rope.positions" },
        arg "rope" { dir = "in", dtype = "f32", shape = { "kPositions", "kDim" },
            port = "qk_norm_rope.rope", optional = true },
        arg "slots" { dir = "in", dtype = "i64", shape = { "kRows" }, port = "kv_insert.slots" },
        arg "q" { dir = "out", dtype = "bf16", shape = { "kRows", "kHeads", "kDim" },
            port = "qk_norm_rope.q" },
        arg "gate" { dir = "out", dtype = "bf16", shape = { "kRows", "kHeads", "kDim" },
            port = "qk_norm_rope.gate" },
        arg "cache" { dir = "inout", dtype = "bf16",
            shape = { "pages", "kKvHeads", "kPageTokens", "kPacked" },
            port = "kv_insert.cache" },
    },
    launch = function(c, arch)
        local vectors = c.kRows * c.kWidth // VECTOR
        return { grid = { (vectors + c.kThreads - 1) // c.kThreads, 1, 1 }, block = c.kThreads,
                 shared = 0, registers = 64 }
    end,
    cost = function(c)
        local elements = c.kRows * c.kWidth
        local read = c.kSplits > 0 and 4 * c.kSplits or 2
        return { bytes = elements * (read + 2) + 4 * c.kRope * c.kRows * c.kDim,
                 operations = elements * (10 + c.kSplits) }
    end,
    tactics = function(c, arch)
        return { { kThreads = 64 }, { kThreads = 128 }, { kThreads = 256 } }
    end,
    default = function(c, arch)
        return { kThreads = 128 }
    end,
    unsupported = function(c, arch)
        if c.kDim ~= 16 and c.kDim ~= 32 and c.kDim ~= 64 and c.kDim ~= 128 then
            return "the head width must be 16, 32, 64 or 128"
        end
        if c.kWidth ~= 2 * (c.kHeads + c.kKvHeads) * c.kDim then
            return "the width of qkvg must be 2 (heads + kv_heads) head width"
        end
        if c.kPacked ~= 2 * c.kDim then
            return "a cache row must hold k and v: twice the head width"
        end
    end,
    early = true,
    triggers = true,
}
