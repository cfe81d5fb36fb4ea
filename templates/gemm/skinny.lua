-- SPDX-License-Identifier: Apache-2.0
-- y = x w^T for few rows. With option partials = 1 the sum over slices of k is left to the consumer: slice s holds the
-- products of k in [s L, (s + 1) L), L = 32 ceil(ceil(K / 32) / kSplits).
local stream = include "gemm/tactics.lua"

local function with_splits(list)
    for _, t in ipairs(list) do
        t.kSplits = t.kSplits or 1
    end
    return list
end

local function able(c)
    return { slices = true, partials = c.kPartials == 1, ring = true }
end

local function tactics(c, arch)
    return with_splits(stream.tactics(c, arch, able(c)))
end

local function default(c, arch)
    return with_splits(stream.rule(c, arch, able(c)))
end

return provider "gemm/skinny" {
    doc = "y[rows, n] = x[rows, k] w[n, k]^T, fp32 accumulation; whole in bf16, or fp32 partials over slices of k",
    parts = { "gemm" },
    entry = "skinny_gemm",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kN" { type = "int", min = 16, max = 1048576, doc = "weight rows" },
        const "kK" { type = "int", min = 16, max = 1048576, doc = "length of a weight row" },
        const "kPartials" { type = "int", option = "partials", default = 0, min = 0, max = 1, doc = "1: fp32 partials" },
        const "kSplits" { type = "int", tactic = true, min = 1, max = 16, doc = "slices of k" },
        const "kTiles" { type = "int", tactic = true, min = 1, max = 16, doc = "16-row tiles of a block" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 32, doc = "warps that multiply; they split the block's k" },
        const "kSteps" { type = "int", tactic = true, min = 1, max = 8, doc = "steps of 32 k that a warp takes at once per tile" },
        const "kStages" { type = "int", tactic = true, min = 0, max = 16, doc = "stages of the ring of weights; 0: they go to registers" },
    },
    args = {
        arg "x" { dir = "in", dtype = "bf16", shape = { "kRows", "kK" }, port = "gemm.x" },
        arg "w" { dir = "in", dtype = "bf16", shape = { "kN", "kK" }, port = "gemm.w" },
        arg "y" { dir = "out", dtype = "bf16", shape = { "kRows", "kN" }, port = "gemm.y",
                  when = function(c) return c.kPartials == 0 end },
        arg "y_partials" { dir = "out", dtype = "f32", form = "k_partials", shape = { "kSplits", "kRows", "kN" },
                           port = "gemm.y", when = function(c) return c.kPartials == 1 end },
    },
    launch = function(c, arch) return stream.launch(c, arch, able(c)) end,
    cost = function(c)
        local out = c.kPartials == 1 and 4 * c.kSplits or 2
        return { bytes = 2 * c.kN * c.kK + 2 * c.kRows * c.kK + out * c.kRows * c.kN,
                 operations = 2 * c.kRows * c.kN * c.kK }
    end,
    tactics = tactics,
    default = default,
    unsupported = stream.unsupported,
    early = true,
    triggers = true,
}
