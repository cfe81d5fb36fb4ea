-- SPDX-License-Identifier: Apache-2.0
-- Routing: scores, selection, route weights and the metadata of the routed GEMMs, in one block.
local routing_part = include "moe/routing_part.lua"

local function warps(c, most)
    return math.min(most, c.kRows)
end

local constants = routing_part.constants(false)
table.insert(constants, 1, const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step; one bit each" })
table.insert(constants, const "kWarps" { type = "int", tactic = true, min = 1, max = 32,
                                         doc = "a warp selects for one token at a time" })

return provider "moe/routing" {
    doc = "top-k of sigmoid(scale * logits) + bias, renormalised weights, tiles of local experts",
    parts = { "routing" },
    entry = "routing",
    constants = constants,
    args = routing_part.args(false),
    launch = function(c, arch)
        return { grid = { 1, 1, 1 }, block = c.kWarps * 32, shared = routing_part.shared_bytes(c), registers = 64 }
    end,
    cost = function(c)
        return { bytes = routing_part.bytes(c), operations = routing_part.operations(c) }
    end,
    tactics = function(c, arch)
        local list = { { kWarps = warps(c, 32) } }
        for _, most in ipairs { 16, 8, 4 } do
            if c.kRows > most then
                table.insert(list, { kWarps = most })
            end
        end
        return list
    end,
    default = function(c, arch) return { kWarps = warps(c, arch.name == "host" and 4 or 32) } end,
    unsupported = function(c, arch) return routing_part.unsupported(c) end,
    early = true,
    triggers = true,
}
