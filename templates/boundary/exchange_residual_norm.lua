-- SPDX-License-Identifier: Apache-2.0
-- The boundary between two blocks of layers on several ranks: exchange of the branch, gated residual, next norm.
local rows = include "boundary/rows.lua"

local constants = rows.residual_constants()
table.insert(constants, const "kColumns" { type = "int", min = 8, max = 65536,
                                           doc = "a rank's columns of the branch; the whole width: ranks are summed" })
table.insert(constants, const "kGroup" { type = "int", tactic = true, min = 1, max = 16, doc = "ranks polled together" })
local args = rows.residual_args { "kRows", "kColumns" }
table.insert(args, arg "mailbox" { dir = "mailbox", exchange = "boundary",
                                   bytes = function(c) return 2 * c.kRows * c.kColumns end })

-- The packets of kGroup ranks come on top of what a local boundary holds.
local function registers(c)
    return math.min(rows.registers(c) + 16 * c.kGroup, 65536 // c.kThreads // 8 * 8, 255)
end

local function with_group(t, group)
    return { kThreads = t.kThreads, kGroup = group }
end

return provider "boundary/exchange_residual_norm" {
    doc = "branch summed over the ranks (fp32 from +0, ranks ascending, rounded to bf16 once) or gathered by columns, then "
        .. "s_out = alpha s + beta rms(branch (center + gain)); x = r16(rms(s_out) (center + gain)); one block per row",
    parts = { { "rank_sum", "residual", "norm" }, { "gather", "residual", "norm" } },
    entry = "exchange_residual_norm",
    constants = constants,
    args = args,
    launch = function(c) return { grid = { c.kRows, 1, 1 }, block = c.kThreads, shared = 384, registers = registers(c) } end,
    cost = function(c)
        local n = c.kRows * c.kHidden
        return { bytes = n * (rows.branch_bytes(c) + 14 + 4 * c.kHasAux) + c.kHidden * (10 + 2 * c.kHasBranchGain),
                 operations = n * (15 + c.kSplits) }
    end,
    tactics = function(c)
        local list = {}
        for _, t in ipairs(rows.tactics(c)) do
            for _, group in ipairs { 4, 2, 8 } do
                list[#list + 1] = with_group(t, group)
            end
        end
        return list
    end,
    default = function(c)
        local t = rows.default(c)
        return with_group({ kThreads = math.min(t.kThreads, 512) }, 4) -- with 1024 threads the packets spill
    end,
    unsupported = function(c)
        if c.kColumns % 8 ~= 0 or c.kHidden % c.kColumns ~= 0 then
            return "a rank's columns must divide the width in multiples of 8, found " .. c.kColumns .. " of " .. c.kHidden
        end
        return rows.unsupported(c)
    end,
    early = true,
    triggers = true,
}
