-- SPDX-License-Identifier: Apache-2.0
-- Tail of experts that every rank holds a slice of: the routes' rows are summed over the ranks by
-- mailbox, then normed, weighted and summed on every rank alike.
local tails = include "moe/tails.lua"

local tactics = tails.grouped { 4, 2, 8 }

return provider "moe/exchange_route_tail" {
    doc = "y = r16(sum over ranks of rows[row of route k]), ranks ascending, order by attribute, in "
        .. "(token, slot) order; m = r16(sum over k of weights[k] * rms((center + gain) * y))",
    parts = { "route_sum", "post_expert_norm", "weighted_sum" },
    entry = "exchange_route_tail",
    constants = tails.constants("routes polled together", "route_sum.order"),
    args = tails.args("route_sum.rows", "weighted_sum.partial",
                      function(c) return 2 * c.kRoutes * c.kWidth end),
    launch = tails.launch(true),
    cost = tails.cost,
    tactics = tactics,
    default = function(c, arch) return tactics(c, arch)[1] end,
    unsupported = tails.unsupported,
    early = true,
    triggers = true,
}
