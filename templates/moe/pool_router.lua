-- SPDX-License-Identifier: Apache-2.0
-- Pooler and router in one launch: y = x w^T of the pooler's rows, logits = x router_w^T of all experts.
local stream = include "gemm/tactics.lua"

local HELD_MOST <const> = 16 -- slices of the router's k

local function able(c)
    return { slices = true, partials = c.kPartials == 1, ring = true }
end

local function ceil_div(a, b)
    return (a + b - 1) // b
end

local function blocks(c, t)
    return ceil_div(c.kN, 16 * t.kTiles) * t.kSplits + ceil_div(c.kExperts, 16) * t.kRouterSplits
end

-- Passes of a router's block over its k; fp32 are twice as long.
local function router_passes(c, t)
    return 2 * c.kK // (32 * t.kWarps * t.kSteps * t.kRouterSplits)
end

-- Whether a router's block has work for all warps and, with a ring, whole stages only.
local function serves(c, t)
    if t.kStages == 0 then
        return t.kRouterSplits * t.kWarps * t.kSteps <= math.max(2 * t.kRouterSplits, 2 * c.kK // 32)
    end
    return c.kExperts % 16 == 0 and 2 * c.kK % (32 * t.kWarps * t.kSteps * t.kRouterSplits) == 0
end

-- The tactics with slices of the router's k such that its blocks have about as many bytes as the pooler's, or twice as many.
local function with_router(c, tactics)
    local list = {}
    for _, t in ipairs(tactics) do
        local splits, last = t.kSplits or 1, nil
        for _, share in ipairs { 2, 1 } do
            local r = { kSplits = splits, kTiles = t.kTiles, kWarps = t.kWarps, kSteps = t.kSteps, kStages = t.kStages,
                        kRouterSplits = math.max(1, math.min(HELD_MOST, share * splits // t.kTiles)) }
            while r.kRouterSplits > 1 and not serves(c, r) do
                r.kRouterSplits = r.kRouterSplits // 2
            end
            if serves(c, r) and r.kRouterSplits ~= last then
                last = r.kRouterSplits
                table.insert(list, r)
            end
        end
    end
    return list
end

local function tactics(c, arch)
    local list = with_router(c, stream.tactics(c, arch, able(c)))
    for _, t in ipairs(with_router(c, stream.small_rings(c, arch, able(c)))) do
        table.insert(list, t)
    end
    return list
end

-- Of a thread with small stages, as compiled for sm_90a.
local function registers(c, t)
    if t.kStages == 0 or t.kSteps > 2 then
        return nil
    end
    local passes = c.kK // (32 * t.kWarps * t.kSteps * t.kSplits)
    return c.kRows <= 8 and t.kTiles == 1 and passes * t.kSteps <= 8 and 72 or 112
end

-- Multiprocessors that the boundary before may still hold. With many tokens that wait is short beside what a block has to do: what
-- counts is that the router's blocks, whose weights are fp32, have no more of it than the pooler's.
local function reserved(c)
    return c.kRows > 8 and 4 or 8
end

-- A launch that has its weights before what it waits for is there: every block resident, every stage of the pooler's filled
-- once, and where that can be the router's. Of those the one with the fewest slices, which the launches after it add.
local function rule_resident(c, arch)
    local best, least = nil, math.huge
    for _, t in ipairs(with_router(c, stream.small_rings(c, arch, able(c)))) do
        local pool_loads = t.kTiles * (c.kK // (32 * t.kWarps * t.kSteps * t.kSplits))
        local resident = stream.room(c, arch, able(c), t, registers(c, t)) * (arch.multiprocessors - reserved(c))
        local worth = t.kSplits + t.kRouterSplits + (router_passes(c, t) > t.kStages and 16 or 0)
        if pool_loads <= t.kStages and router_passes(c, t) <= 2 * t.kStages and blocks(c, t) <= resident and worth < least then
            best, least = t, worth
        end
    end
    return best
end

local function default(c, arch)
    local list = with_router(c, stream.rule(c, arch, able(c)))
    if arch.name ~= "host" then
        local resident = rule_resident(c, arch)
        if resident then
            table.insert(list, 1, resident)
        end
    end
    return arch.name == "host" and list[1] or list
end

return provider "moe/pool_router" {
    doc = "y[rows, n] = x[rows, k] w[n, k]^T, whole in bf16 or fp32 partials over slices of k; "
        .. "logits[rows, experts] = x[rows, k] router_w[experts, k]^T, exact products, fp32 partials over slices of k",
    parts = { "router", "gemm" },
    entry = "pool_router",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kN" { type = "int", min = 16, max = 1048576, doc = "rows of the pooler" },
        const "kK" { type = "int", min = 16, max = 524288, doc = "length of a weight row" },
        const "kExperts" { type = "int", min = 4, max = 1024, doc = "experts of all ranks" },
        const "kPartials" { type = "int", option = "partials", default = 0, min = 0, max = 1, doc = "1: fp32 partials of y" },
        const "kSplits" { type = "int", tactic = true, min = 1, max = 16, doc = "slices of the pooler's k" },
        const "kRouterSplits" { type = "int", tactic = true, min = 1, max = HELD_MOST, doc = "slices of the router's k" },
        const "kTiles" { type = "int", tactic = true, min = 1, max = 16, doc = "16-row tiles of a pooler's block; a router's has one" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 32, doc = "warps that multiply; they split the block's k" },
        const "kSteps" { type = "int", tactic = true, min = 1, max = 8,
                         doc = "steps of 32 k that a warp takes at once per tile; of 16 in a router's block" },
        const "kStages" { type = "int", tactic = true, min = 0, max = 16, doc = "stages of the ring of weights; 0: they go to registers" },
    },
    args = {
        arg "x" { dir = "in", dtype = "bf16", shape = { "kRows", "kK" }, port = "gemm.x" },
        arg "w" { dir = "in", dtype = "bf16", shape = { "kN", "kK" }, port = "gemm.w" },
        arg "router_x" { dir = "in", dtype = "bf16", shape = { "kRows", "kK" }, port = "router.x" },
        arg "router_w" { dir = "in", dtype = "f32", shape = { "kExperts", "kK" }, port = "router.w" },
        arg "y" { dir = "out", dtype = "bf16", shape = { "kRows", "kN" }, port = "gemm.y",
                  when = function(c) return c.kPartials == 0 end },
        arg "y_partials" { dir = "out", dtype = "f32", form = "k_partials", shape = { "kSplits", "kRows", "kN" },
                           port = "gemm.y", when = function(c) return c.kPartials == 1 end },
        arg "logits" { dir = "out", dtype = "f32", form = "k_partials", shape = { "kRouterSplits", "kRows", "kExperts" },
                       port = "router.logits" },
    },
    launch = function(c, arch)
        local t = stream.launch(c, arch, able(c))
        t.grid = { blocks(c, c), 1, 1 }
        t.registers = arch.name == "sm_90a" and registers(c, c) or t.registers
        return t
    end,
    cost = function(c)
        local out = c.kPartials == 1 and 4 * c.kSplits or 2
        return { bytes = (2 * c.kN + 4 * c.kExperts) * c.kK + 2 * c.kRows * c.kK + out * c.kRows * c.kN
                     + 4 * c.kRouterSplits * c.kRows * c.kExperts,
                 operations = 2 * c.kRows * (c.kN + c.kExperts) * c.kK }
    end,
    tactics = tactics,
    default = default,
    unsupported = function(c, arch)
        if c.kExperts % 4 ~= 0 then
            return "the experts must be a multiple of 4, found " .. c.kExperts
        end
        return stream.unsupported(c)
    end,
    early = true,
    triggers = true,
}
