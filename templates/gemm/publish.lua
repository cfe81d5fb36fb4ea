-- SPDX-License-Identifier: Apache-2.0
-- y = x w^T for few rows, published to every rank: option columns = 1: a rank holds columns of the whole; else its part of a sum.
local stream = include "gemm/tactics.lua"

local PEERS <const> = 160 -- bytes of shared memory in front of the sums: what collective/lamport.cuh lays down
local ABLE <const> = { ring = true, front = PEERS }

local function bytes(c)
    return 2 * c.kRows * c.kN
end

local function published(columns, form)
    return { dir = "mailbox", exchange = "boundary", port = "gemm.y", form = form, dtype = "bf16", shape = { "kRows", "kN" },
             bytes = bytes, when = function(c) return c.kColumns == columns end }
end

return provider "gemm/publish" {
    doc = "y[rows, n] = x[rows, k] w[n, k]^T, fp32 accumulation, rounded to bf16 and written into every rank's mailbox; NaN is 0x7fff",
    parts = { "gemm" },
    entry = "publish_gemm",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kN" { type = "int", min = 16, max = 1048576, doc = "weight rows" },
        const "kK" { type = "int", min = 16, max = 1048576, doc = "length of a weight row" },
        const "kColumns" { type = "int", option = "columns", default = 0, min = 0, max = 1,
                           doc = "1: the ranks' results lie side by side; 0: they are summed" },
        const "kTiles" { type = "int", tactic = true, min = 1, max = 16, doc = "16-row tiles of a block" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 32, doc = "warps that multiply; they split k" },
        const "kSteps" { type = "int", tactic = true, min = 1, max = 8, doc = "steps of 32 k that a warp takes at once per tile" },
        const "kStages" { type = "int", tactic = true, min = 0, max = 16, doc = "stages of the ring of weights; 0: they go to registers" },
    },
    args = {
        arg "x" { dir = "in", dtype = "bf16", shape = { "kRows", "kK" }, port = "gemm.x" },
        arg "w" { dir = "in", dtype = "bf16", shape = { "kN", "kK" }, port = "gemm.w" },
        arg "y_columns"(published(1, "columns")),
        arg "y_parts"(published(0, "rank_partials")),
    },
    launch = function(c, arch) return stream.launch(c, arch, ABLE) end,
    cost = function(c)
        return { bytes = 2 * c.kN * c.kK + 2 * c.kRows * c.kK + bytes(c), operations = 2 * c.kRows * c.kN * c.kK }
    end,
    tactics = function(c, arch) return stream.tactics(c, arch, ABLE) end,
    default = function(c, arch) return stream.rule(c, arch, ABLE) end,
    unsupported = stream.unsupported,
    early = true,
    triggers = true,
}
