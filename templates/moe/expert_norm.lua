-- SPDX-License-Identifier: Apache-2.0
-- Expert norm of the pooled rows for bf16 experts; the pooler's output is whole or in K-split sums.
local alone <const> = include "collective/alone.lua"

local function warps(c, most)
    return math.max(1, math.min(most, (c.kWidth // 16 + 31) // 32))
end

return provider "moe/expert_norm" {
    doc = "h1 = r16(rms(h0) * (center + gain))",
    parts = { "pool_gather", "expert_norm" },
    entry = "expert_norm",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kWidth" { type = "int", min = 16, max = 16384, doc = "expert input width" },
        const "kSplits" { type = "int", min = 0, doc = "K-split sums to add; 0: h0 is whole" },
        const "kEps" { type = "float", from = "expert_norm.eps", doc = "added to the mean square" },
        const "kCenter" { type = "int", from = "expert_norm.center", min = 0, max = 1,
                          doc = "the gain is center + w" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 16,
                         doc = "warps of the block that holds a row" },
    },
    args = {
        arg "columns" { dir = "in", dtype = "bf16", shape = { "kRows", "kWidth" },
                        port = "pool_gather.columns" },
        arg "partials" { dir = "in", dtype = "f32", form = "k_partials",
                         shape = { "kSplits", "kRows", "kWidth" },
                         port = "pool_gather.columns" },
        arg "gain" { dir = "in", dtype = "bf16", shape = { "kWidth" }, port = "expert_norm.gain" },
        arg "h1" { dir = "out", dtype = "bf16", shape = { "kRows", "kWidth" },
                   port = "expert_norm.h1" },
    },
    launch = function(c, arch)
        return {
            grid = { c.kRows, 1, 1 }, block = c.kWarps * 32, shared = c.kWarps * 4, registers = 128,
        }
    end,
    cost = function(c)
        local input = c.kSplits == 0 and 2 or 4 * c.kSplits
        return {
            bytes = c.kRows * c.kWidth * (input + 2) + 2 * c.kWidth,
            operations = 5 * c.kRows * c.kWidth,
        }
    end,
    tactics = function(c, arch)
        local list = {}
        for _, most in ipairs { 8, 16, 4, 2 } do
            local n = warps(c, most)
            if c.kWidth <= n * 32 * 64 and (most == 8 or n ~= warps(c, 8)) then
                table.insert(list, { kWarps = n })
            end
        end
        return list
    end,
    default = function(c, arch) return { kWarps = warps(c, 8) } end,
    unsupported = function(c, arch)
        local reason = alone(arch, { "pool_gather" })
        if reason then
            return reason
        end
        if c.kWidth % 16 ~= 0 then
            return "the expert input width must be a multiple of 16"
        end
        if c.kWarps and c.kWidth > c.kWarps * 32 * 64 then
            return "more than 64 values a thread: take more warps"
        end
    end,
    early = true,
    triggers = true,
}
