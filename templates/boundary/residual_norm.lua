-- SPDX-License-Identifier: Apache-2.0
-- The boundary between two blocks of layers where no rank waits for another: on one rank, or behind a collective of the library.
local alone <const> = include "collective/alone.lua"
local rows = include "boundary/rows.lua"

local constants = rows.residual_constants()
table.insert(constants, const "kRanks" { type = "int", default = 0, min = 0, max = 16, doc = "ranks whose columns were gathered; 0: none" })
table.insert(constants, const "kColumns" { type = "int", default = 0, min = 0, max = 65536, doc = "columns of each" })

-- Behind a collective the branch is what the collective wrote.
local ports = { "rank_sum.parts", "gather.columns", "residual.branch" }
local args = rows.residual_args({ "kRows", "kHidden" }, ports)
table.insert(args, 3, arg "branch_columns" { dir = "in", dtype = "bf16", form = "columns", shape = { "kRanks", "kRows", "kColumns" },
                                             port = ports })

return provider "boundary/residual_norm" {
    doc = "s_out = alpha s + beta rms(branch (center + gain)); x = r16(rms(s_out) (center + gain)). "
        .. "Partials are summed in fp32 from +0, ascending, and rounded to bf16 once",
    parts = { { "rank_sum", "residual", "norm" }, { "gather", "residual", "norm" }, { "residual", "norm" } },
    entry = "residual_norm",
    constants = constants,
    args = args,
    launch = function(c) return rows.split_launch(c, 0, rows.registers(c, c.kBlocks)) end,
    cost = function(c)
        local n = c.kRows * c.kHidden
        return { bytes = n * (rows.branch_bytes(c) + 10 + 4 * c.kHasAux) + c.kHidden * (10 + 2 * c.kHasBranchGain),
                 operations = n * (14 + c.kSplits) }
    end,
    tactics = rows.split_tactics,
    default = rows.split_default,
    unsupported = function(c, arch)
        local reason = alone(arch, { "rank_sum", "gather" })
        if reason then
            return reason
        end
        if c.kColumns % 8 ~= 0 or (c.kColumns > 0 and c.kRanks * c.kColumns ~= c.kHidden) then
            return "the ranks' columns must make the width in multiples of 8, found " .. c.kRanks .. " times " .. c.kColumns
                .. " of " .. c.kHidden
        end
        return rows.split_unsupported(c)
    end,
    early = true,
    triggers = true,
}
