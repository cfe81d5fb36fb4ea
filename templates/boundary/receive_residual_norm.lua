-- SPDX-License-Identifier: Apache-2.0
-- The boundary behind a product that published its result to every rank: it only receives.
local rows = include "boundary/rows.lua"

local constants = rows.stream_constants()
table.insert(constants, const "kColumns" { type = "int", default = 0, min = 0, max = 65536,
                                           doc = "a rank's columns of the branch; 0: ranks are summed" })
table.insert(constants, rows.ranks_constant())
table.insert(constants, const "kGroup" { type = "int", tactic = true, min = 1, max = 16, doc = "ranks polled together" })
table.insert(constants, rows.order_constant())

-- Exactly one of the two is bound.
local args = {
    arg "columns" { dir = "mailbox", exchange = "boundary", port = "gather.columns", form = "columns", dtype = "bf16",
                    shape = { "kRows", "kColumns" }, optional = true, bytes = function(c) return 2 * c.kRows * c.kColumns end },
    arg "parts" { dir = "mailbox", exchange = "boundary", port = "rank_sum.parts", form = "rank_partials", dtype = "bf16",
                  shape = { "kRows", "kHidden" }, optional = true, bytes = function(c) return 2 * c.kRows * c.kHidden end },
}
for _, a in ipairs(rows.stream_args()) do
    table.insert(args, a)
end

return provider "boundary/receive_residual_norm" {
    doc = "published branches summed over the ranks (ascending, order by option) or gathered by columns, then "
        .. "s_out = alpha s + beta rms(branch (center + gain)); x = r16(rms(s_out) (center + gain))",
    parts = { { "rank_sum", "residual", "norm" }, { "gather", "residual", "norm" } },
    entry = "receive_residual_norm",
    constants = constants,
    args = args,
    launch = function(c)
        return rows.split_launch(c, 128, rows.exchange_registers(c, c.kBlocks))
    end,
    cost = function(c)
        local n = c.kRows * c.kHidden
        return { bytes = n * (14 + 4 * c.kHasAux) + c.kHidden * (10 + 2 * c.kHasBranchGain), operations = n * 15 }
    end,
    tactics = rows.split_exchange_tactics,
    default = rows.split_exchange_default,
    unsupported = function(c)
        if c.kColumns % 8 ~= 0 or (c.kColumns > 0 and c.kHidden % c.kColumns ~= 0) then
            return "a rank's columns must divide the width in multiples of 8, found " .. c.kColumns .. " of " .. c.kHidden
        end
        return rows.split_unsupported(c)
    end,
    early = true,
    triggers = true,
}
