-- SPDX-License-Identifier: Apache-2.0
-- Tail of experts that lie whole on different ranks: norm and weighted sum of the local routes,
-- rounded to bf16, summed over the ranks by mailbox.
local tails = include "moe/tails.lua"

local tactics = tails.grouped { 4, 2, 8 }

return provider "moe/exchange_tail" {
    doc = "partial = r16(sum over local k of weights[k] * rms((center + gain) * rows[row of route "
        .. "k])); m = r16(sum over ranks of partial), ranks ascending, order by attribute",
    parts = { "post_expert_norm", "weighted_sum", "combine" },
    entry = "exchange_tail",
    constants = tails.constants("ranks polled together", "combine.order"),
    args = tails.args("post_expert_norm.rows", "combine.m",
                      function(c) return 2 * c.kRows * c.kWidth end),
    launch = tails.launch(true),
    cost = tails.cost,
    tactics = tactics,
    default = function(c, arch) return tactics(c, arch)[1] end,
    unsupported = tails.unsupported,
    early = true,
    triggers = true,
}
