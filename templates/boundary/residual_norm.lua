-- SPDX-License-Identifier: Apache-2.0
-- The boundary between two blocks of layers on one rank: gated residual, then the next norm.
local alone <const> = include "collective/alone.lua"
local rows = include "boundary/rows.lua"

local constants = rows.residual_constants()
local args = rows.residual_args { "kRows", "kHidden" }

return provider "boundary/residual_norm" {
    doc = "s_out = alpha s + beta rms(branch (center + gain)); x = r16(rms(s_out) (center + gain)); one block per row. "
        .. "Partials are summed in fp32 from +0, ascending, and rounded to bf16 once",
    parts = { { "rank_sum", "residual", "norm" }, { "gather", "residual", "norm" } },
    entry = "residual_norm",
    constants = constants,
    args = args,
    launch = function(c) return { grid = { c.kRows, 1, 1 }, block = c.kThreads, shared = 256, registers = rows.registers(c) } end,
    cost = function(c)
        local n = c.kRows * c.kHidden
        return { bytes = n * (rows.branch_bytes(c) + 10 + 4 * c.kHasAux) + c.kHidden * (10 + 2 * c.kHasBranchGain),
                 operations = n * (14 + c.kSplits) }
    end,
    tactics = rows.tactics,
    default = rows.default,
    unsupported = function(c, arch) return alone(arch, { "rank_sum", "gather" }) or rows.unsupported(c) end,
    early = true,
    triggers = true,
}
