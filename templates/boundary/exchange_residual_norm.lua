-- SPDX-License-Identifier: Apache-2.0
-- The boundary between two blocks of layers on several ranks: exchange of the branch, gated residual, next norm.
local rows = include "boundary/rows.lua"

local constants = rows.residual_constants()
table.insert(constants, const "kColumns" { type = "int", min = 8, max = 65536,
                                           doc = "a rank's columns of the branch; the whole width: ranks are summed" })
table.insert(constants, rows.ranks_constant())
table.insert(constants, const "kGroup" { type = "int", tactic = true, min = 1, max = 16, doc = "ranks polled together" })
table.insert(constants, rows.order_constant())
local args = rows.residual_args { "kRows", "kColumns" }
table.insert(args, arg "mailbox" { dir = "mailbox", exchange = "boundary",
                                   bytes = function(c) return 2 * c.kRows * c.kColumns end })

return provider "boundary/exchange_residual_norm" {
    doc = "branch summed over the ranks (ascending, order by option) or gathered by columns, then "
        .. "s_out = alpha s + beta rms(branch (center + gain)); x = r16(rms(s_out) (center + gain))",
    parts = { { "rank_sum", "residual", "norm" }, { "gather", "residual", "norm" } },
    entry = "exchange_residual_norm",
    constants = constants,
    args = args,
    launch = function(c)
        return rows.split_launch(c, 128, rows.exchange_registers(c, c.kBlocks))
    end,
    cost = function(c)
        local n = c.kRows * c.kHidden
        return { bytes = n * (rows.branch_bytes(c) + 14 + 4 * c.kHasAux) + c.kHidden * (10 + 2 * c.kHasBranchGain),
                 operations = n * (15 + c.kSplits) }
    end,
    tactics = rows.split_exchange_tactics,
    default = rows.split_exchange_default,
    unsupported = function(c)
        if c.kColumns % 8 ~= 0 or c.kHidden % c.kColumns ~= 0 then
            return "a rank's columns must divide the width in multiples of 8, found " .. c.kColumns .. " of " .. c.kHidden
        end
        return rows.split_unsupported(c)
    end,
    early = true,
    triggers = true,
}
