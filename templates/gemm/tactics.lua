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

-- Registers of a thread: weights and tokens in flight, sums, and what addresses take; then the next cap at which the
-- compiler was seen not to spill. It wants more on whatever is newer than sm_90.
local function cap(c, arch)
    local tokens = ceil_div(c.kRows, 8)
    local need = c.kTiles * c.kSteps * 8 + c.kSteps * tokens * 4 + c.kTiles * tokens * 4 + 14
    if arch.name ~= "sm_90a" then
        need = need + 16
    end
    return need <= 66 and 64 or need <= 82 and 96 or need <= 126 and 128 or 255
end

function stream.registers(c, arch)
    return math.min(cap(c, arch), 65536 // (c.kWarps * 32))
end

function stream.grid(c, splits)
    return { ceil_div(c.kN, c.kTiles * 16), splits, 1 }
end

-- The constants that a tactic of the shape has.
local function with(c, t)
    return { kRows = c.kRows, kN = c.kN, kK = c.kK, kTiles = t.kTiles, kWarps = t.kWarps, kSteps = t.kSteps,
             kSplits = t.kSplits or 1 }
end

local function exists(c, arch, t)
    local all, steps = with(c, t), ceil_div(c.kK, 32)
    return stream.shared(all) <= arch.shared
        and t.kTiles * 16 <= math.max(16, c.kN)
        and all.kSplits <= steps
        and cap(all, arch) * t.kWarps * 32 <= 65536
        and t.kWarps * t.kSteps <= math.max(2, ceil_div(steps, all.kSplits)) -- no warp is idle from the start
end

-- Slices of k so that the grid fills the machine twice; the consumer pays for each, so no more than 8.
local function rule_splits(c, arch)
    local tiles, splits = ceil_div(c.kN, 16), 1
    while splits < 8 and tiles * splits < 2 * arch.multiprocessors and c.kK // (splits * 2) >= 512 do
        splits = splits * 2
    end
    return splits
end

-- A model of the time, 1 where the weights stream at full rate. A multiprocessor with one block more than the mean
-- makes the others wait; tokens read again by every block share the way from L2, which is a third wider than memory;
-- less than 64 KB in flight on a multiprocessor leaves memory idle, and so does a lone block while it starts and ends.
-- Tables of measurements overrule it.
local function estimate(c, arch, t)
    local all, mps = with(c, t), arch.multiprocessors
    local blocks = ceil_div(c.kN, t.kTiles * 16) * all.kSplits
    local rounds = ceil_div(blocks, mps)
    local balance = c.kN // 16 * all.kSplits / (mps * rounds * t.kTiles)
    local traffic = blocks < mps and 1 or math.max(1, 0.75 * (1 + c.kRows / (16 * t.kTiles)))
    local threads = t.kWarps * 32
    local room = math.min(1536 // threads, 65536 // (cap(all, arch) * threads), arch.shared // stream.shared(all))
    local flight = math.min(rounds, room) * threads * t.kTiles * t.kSteps * 32
    return traffic / balance * math.max(1, 65536 / flight) * (room > 1 and 1 or 1.05)
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

-- Every tactic of the shape with one of `splits`; {} stands for a provider without slices.
local function list_tactics(c, arch, splits)
    local list = {}
    for _, tiles in ipairs { 1, 2, 3, 4 } do
        for _, warps in ipairs { 16, 8, 4, 2, 1 } do
            for _, steps in ipairs { 2, 1 } do
                for i = 1, math.max(1, #splits) do
                    local t = { kTiles = tiles, kWarps = warps, kSteps = steps, kSplits = splits[i] }
                    if exists(c, arch, t) then
                        list[#list + 1] = t
                    end
                end
            end
        end
    end
    return list
end

-- A tactic for where `t` does not build: one tile and one step in flight take few registers with any compiler.
local function careful(t)
    return { kTiles = 1, kWarps = t.kWarps, kSteps = 1, kSplits = t.kSplits }
end

-- The least estimate (of those within a thousandth, the first), then what is tried where that one does not build.
function stream.rule(c, arch, partials)
    if arch.name == "host" then
        return { host_rule(c, partials) }
    end
    local best, least = nil, math.huge
    for _, t in ipairs(list_tactics(c, arch, partials and { rule_splits(c, arch) } or {})) do
        local time = estimate(c, arch, t)
        if time < 0.999 * least then
            best, least = t, time
        end
    end
    return { best, careful(best) }
end

-- Every tactic that the shape admits.
function stream.tactics(c, arch, partials)
    return list_tactics(c, arch, partials and { 1, 2, 4, 8 } or {})
end

-- Why a shape cannot be served, or nil. `unit`: what N must be a multiple of.
local function unsupported(c, unit)
    if c.kN % unit ~= 0 then
        return "N must be a multiple of " .. unit .. ", found " .. c.kN
    end
    if c.kK % 16 ~= 0 then
        return "K must be a multiple of 16, found " .. c.kK
    end
end

function stream.unsupported(c)
    return unsupported(c, 16)
end

-- With a last tile of fewer rows: the vocabulary of 202048 over 8 and 16 ranks.
function stream.unsupported_ragged(c)
    return unsupported(c, 4)
end

return stream
