-- SPDX-License-Identifier: Apache-2.0
-- Logits of this rank's vocabulary: product, multiplier and soft cap in one launch.
local stream = include "gemm/tactics.lua"

return provider "head/logits" {
    doc = "z = multiplier (x w^T), logits = cap tanh(z / cap), fp32 accumulation and fp32 output",
    parts = { { "logits", "soft_cap" } },
    entry = "capped_logits",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kN" { type = "int", min = 4, max = 1048576, doc = "rows of the vocabulary" },
        const "kK" { type = "int", min = 16, max = 1048576, doc = "width of the stream" },
        const "kMultiplier" { type = "float", from = "logits.multiplier", doc = "of the product" },
        const "kCap" { type = "float", from = "soft_cap.cap", doc = "bound of a logit" },
        const "kTiles" { type = "int", tactic = true, min = 1, max = 8, doc = "16-row tiles of a block" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 32, doc = "warps of a block; they split k" },
        const "kSteps" { type = "int", tactic = true, min = 1, max = 4, doc = "steps of 32 k in flight per warp and tile" },
    },
    args = {
        arg "x" { dir = "in", dtype = "bf16", shape = { "kRows", "kK" }, port = "logits.x" },
        arg "w" { dir = "in", dtype = "bf16", shape = { "kN", "kK" }, port = "logits.w" },
        arg "logits" { dir = "out", dtype = "f32", shape = { "kRows", "kN" }, port = "soft_cap.logits" },
    },
    launch = function(c, arch) return stream.launch(c, arch, {}) end,
    cost = function(c)
        return { bytes = 2 * c.kN * c.kK + 2 * c.kRows * c.kK + 4 * c.kRows * c.kN,
                 operations = 2 * c.kRows * c.kN * c.kK + 20 * c.kRows * c.kN }
    end,
    tactics = function(c, arch) return stream.tactics(c, arch, {}) end,
    default = function(c, arch) return stream.rule(c, arch, {}) end,
    unsupported = stream.unsupported_ragged,
    early = true,
    triggers = true,
}
