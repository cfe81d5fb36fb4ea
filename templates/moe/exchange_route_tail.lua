-- SPDX-License-Identifier: Apache-2.0
-- Tail of experts that every rank holds a slice of: the routes' rows are summed over the ranks by
-- mailbox, then normed, weighted and summed on every rank alike.
local tails = include "moe/tails.lua"
local rows = include "boundary/rows.lua"

local constants = tails.constants("other ranks polled together", "route_sum.order")
table.insert(constants, rows.ranks_constant())
table.insert(constants, const "kBlocks" { type = "int", tactic = true, min = 1, max = 8,
                                          doc = "blocks of a token, a cluster where they are several" })

-- Octets of all routes that fall to one of `blocks` blocks.
local function items(c, blocks)
    return c.kTopK * (c.kWidth // 8 // blocks)
end

-- Warps of a block whose threads have about `per` octets each.
local function warps(c, blocks, per)
    return math.max(1, math.min(16, (items(c, blocks) + per * 32 - 1) // (per * 32)))
end

-- Octets of a thread, which stay in registers; a packet of each polled rank comes on top.
local function held(c)
    return (items(c, c.kBlocks) + c.kWarps * 32 - 1) // (c.kWarps * 32)
end

-- Blocks that run at once whatever else does: each waits for the same token of the other ranks, so none may be left for later.
local most = 128

-- Whether blocks must share multiprocessors: clusters do not fill all of them, and one left over runs behind all others.
local function crowded(c, blocks)
    return c.kRows * blocks > most // 2
end

-- Most blocks of a token first: a multiprocessor moves only so much at a time.
local function tactics(c)
    local list = {}
    for _, blocks in ipairs { 8, 4, 2, 1 } do
        if c.kWidth // 8 % blocks == 0 and (blocks == 1 or items(c, blocks) >= 32 and c.kRows * blocks <= most) then
            local shared = crowded(c, blocks)
            for _, per in ipairs(shared and { 4, 8 } or { 1, 2 }) do
                for _, group in ipairs(shared and c.kRanks > 8 and { 4, 8 } or { 8, 4 }) do
                    table.insert(list, { kBlocks = blocks, kWarps = warps(c, blocks, per), kGroup = group })
                end
            end
        end
    end
    return list
end

return provider "moe/exchange_route_tail" {
    doc = "y = r16(sum over ranks of rows[row of route k]), ranks ascending, order by attribute, in "
        .. "(token, slot) order; m = r16(sum over k of weights[k] * rms((center + gain) * y))",
    parts = { "route_sum", "post_expert_norm", "weighted_sum" },
    entry = "exchange_route_tail",
    constants = constants,
    args = tails.args("route_sum.rows", "weighted_sum.partial",
                      function(c) return 2 * c.kRoutes * c.kWidth end, true),
    launch = function(c)
        return {
            grid = { c.kRows * c.kBlocks, 1, 1 }, cluster = c.kBlocks, block = c.kWarps * 32,
            shared = 128 + 16 + 20 * items(c, c.kBlocks) + 4 * c.kTopK * c.kBlocks,
            registers = math.min(65536 // ((crowded(c, c.kBlocks) and 2 or 1) * c.kWarps * 32) // 8 * 8, 255,
                                 72 + 8 * held(c) + 4 * math.min(c.kGroup, c.kRanks) + 3 * c.kTopK),
        }
    end,
    cost = tails.cost,
    tactics = tactics,
    default = function(c) return tactics(c)[1] end,
    unsupported = function(c)
        if c.kWidth % (8 * (c.kBlocks or 1)) ~= 0 then
            return "the expert output width must be a multiple of " .. 8 * (c.kBlocks or 1) .. " (16-byte packets)"
        end
        if c.kRoutes ~= c.kRows * c.kTopK then
            return "expanded_to_permuted must have one element a route"
        end
    end,
    early = true,
    triggers = true,
}
