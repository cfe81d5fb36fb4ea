-- SPDX-License-Identifier: Apache-2.0
-- Tactics of the weight-streaming product (gemm/stream.cuh), shared by its providers.
-- A tactic is kTiles (16-row tiles of a block), kWarps, kSteps (steps of 32 k in flight per warp and tile) and kSplits.
local stream = {}

local function ceil_div(a, b)
    return (a + b - 1) // b
end

-- Bytes of shared memory: every warp's sums, [kWarps][kRows][kTiles * 16 + 4] floats.
function stream.shared(c)
    return c.kWarps * c.kRows * (c.kTiles * 16 + 4) * 4
end

-- Registers a thread needs: weights and tokens in flight, sums, and what addresses take; measured, then rounded up.
function stream.registers(c)
    local tokens = ceil_div(c.kRows, 8)
    local need = c.kTiles * c.kSteps * 8 + c.kSteps * tokens * 4 + c.kTiles * tokens * 4 + 24
    return math.min(need <= 64 and 64 or need <= 96 and 96 or need <= 128 and 128 or 255, 65536 // (c.kWarps * 32))
end

function stream.grid(c, splits)
    return { ceil_div(c.kN, c.kTiles * 16), splits, 1 }
end

local function exists(c, arch, t)
    local steps = ceil_div(c.kK, 32)
    local all = { kRows = c.kRows, kTiles = t.kTiles, kWarps = t.kWarps, kSteps = t.kSteps }
    return stream.shared(all) <= arch.shared and t.kTiles * 16 <= math.max(16, c.kN)
        and (t.kSplits or 1) <= steps
        and ceil_div(c.kRows, 8) * (t.kSteps + t.kTiles) <= 16 -- registers
        and t.kWarps * t.kSteps <= math.max(2, ceil_div(steps, t.kSplits or 1)) -- no warp is idle from the start
end

-- Slices of k so that the grid fills the machine twice; the consumer pays for each, so no more than 8.
local function rule_splits(c, arch)
    local tiles, splits = ceil_div(c.kN, 16), 1
    while splits < 8 and tiles * splits < 2 * arch.multiprocessors and c.kK // (splits * 2) >= 512 do
        splits = splits * 2
    end
    return splits
end

-- The host runs a fibre per thread: few warps, and two slices wherever there can be two, so that both forms are seen.
local function host_rule(c, partials)
    local steps = ceil_div(c.kK, 32)
    local t = { kTiles = 1, kWarps = math.min(2, steps), kSteps = 1 }
    if partials then
        t.kSplits = math.min(2, steps)
    end
    return t
end

-- The largest tile count that still leaves a block for every multiprocessor, deep enough to hide latency.
function stream.rule(c, arch, partials)
    if arch.name == "host" then
        return host_rule(c, partials)
    end
    local splits = partials and rule_splits(c, arch) or 1
    local tiles = ceil_div(c.kN, 16) * splits
    for _, n in ipairs { 4, 2, 1 } do
        for _, warps in ipairs { 16, 8, 4, 2, 1 } do
            local t = { kTiles = n, kWarps = warps, kSteps = c.kRows > 16 and 1 or 2, kSplits = partials and splits or nil }
            if (n == 1 or tiles // n >= arch.multiprocessors) and exists(c, arch, t) then
                return t
            end
        end
    end
    return host_rule(c, partials)
end

-- Every tactic that the shape admits.
function stream.tactics(c, arch, partials)
    local list = {}
    for _, tiles in ipairs { 1, 2, 4 } do
        for _, warps in ipairs { 1, 2, 4, 8, 16 } do
            for _, steps in ipairs { 1, 2 } do
                for _, splits in ipairs(partials and { 1, 2, 4, 8 } or { 1 }) do
                    local t = { kTiles = tiles, kWarps = warps, kSteps = steps, kSplits = partials and splits or nil }
                    if exists(c, arch, t) then
                        list[#list + 1] = t
                    end
                end
            end
        end
    end
    return list
end

-- Why a shape cannot be served, or nil.
function stream.unsupported(c)
    if c.kN % 16 ~= 0 then
        return "N must be a multiple of 16, found " .. c.kN
    end
    if c.kK % 16 ~= 0 then
        return "K must be a multiple of 16, found " .. c.kK
    end
end

return stream
