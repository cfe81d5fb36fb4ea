-- SPDX-License-Identifier: Apache-2.0
-- From expert rows to the MoE output on one rank: norm of each route's row, weighted sum, rounding.
-- Without `combine` the sum is the output as it is, or another launch adds the ranks' sums.
local alone <const> = include "collective/alone.lua"
local tails = include "moe/tails.lua"

return provider "moe/tail" {
    doc = "m = r16(sum over k of weights[k] * rms((center + gain) * rows[row of route k]))",
    parts = { { "post_expert_norm", "weighted_sum", "combine" },
              { "post_expert_norm", "weighted_sum" } },
    entry = "tail",
    constants = tails.constants(),
    args = tails.args("post_expert_norm.rows", { "combine.m", "weighted_sum.partial" }),
    launch = tails.launch(false),
    cost = tails.cost,
    tactics = tails.warps,
    default = function(c, arch) return tails.warps(c)[1] end,
    unsupported = function(c, arch) return alone(arch, { "combine" }) or tails.unsupported(c, arch) end,
    early = true,
    triggers = true,
}
