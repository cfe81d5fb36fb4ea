-- SPDX-License-Identifier: Apache-2.0
-- Tactics of the weight-streaming product (gemm/stream.cuh), shared by its providers.
-- A tactic is kTiles (16-row tiles of a block), kWarps, kSteps (steps of 32 k that a warp takes at once per tile), kSplits and
-- kStages (of the ring of weights in shared memory; 0: weights go to registers).
-- What a provider can do (`able`): slices, it has kSplits; partials, more than one of them here; ring, it has kStages; front,
-- bytes of shared memory that it takes for itself.
local stream = {}

local function ceil_div(a, b)
    return (a + b - 1) // b
end

-- The constants that a tactic of the shape has.
local function with(c, t, able)
    return { kRows = c.kRows, kN = c.kN, kK = c.kK, kTiles = t.kTiles, kWarps = t.kWarps, kSteps = t.kSteps,
             kSplits = able.slices and t.kSplits or 1, kStages = able.ring and t.kStages or 0 }
end

-- Passes of a block over its k, kWarps * kSteps steps each.
local function passes(all)
    return ceil_div(ceil_div(ceil_div(all.kK, 32), all.kSplits), all.kWarps * all.kSteps)
end

-- Bytes of every warp's sums, [kWarps][kRows][kTiles * 16 + 4] floats.
local function part_bytes(c)
    return c.kWarps * c.kRows * (c.kTiles * 16 + 4) * 4
end

-- Bytes of a stage with its two barriers: sixteen pieces of rows, 64 bytes between them.
local function stage_bytes(c)
    return 16 * (c.kWarps * c.kSteps * 64 + 64) + 16
end

-- Of a tactic with all its constants: bytes of shared memory, sums before the ring; and threads, a warp of which fills it.
local function shared_bytes(all)
    return part_bytes(all) + all.kStages * stage_bytes(all)
end

local function thread_count(all)
    return (all.kWarps + (all.kStages > 0 and 1 or 0)) * 32
end

-- Registers of a thread: weights and tokens in flight, sums, and what addresses take. The compiler wants more on whatever is
-- newer than sm_90.
local function needed(c, arch)
    local tokens = ceil_div(c.kRows, 8)
    local need
    if c.kStages > 0 then -- a tile at a time; the sums of all only where they live on
        local again = passes(c) > 1
        local at_once = c.kTiles == 1 and passes(c) * c.kSteps * tokens <= 16 -- the tokens of all passes
        local held = at_once and passes(c) or again and tokens <= 2 and 2 or 1
        need = c.kSteps * 8 + held * c.kSteps * tokens * 4 + (again and c.kTiles or 1) * tokens * 4 + 25
    else
        need = c.kTiles * c.kSteps * 8 + c.kSteps * tokens * 4 + c.kTiles * tokens * 4 + 14
    end
    return arch.name == "sm_90a" and need or need + 16
end

-- The next cap at which the compiler was seen not to spill.
local function cap(c, arch)
    local need = needed(c, arch)
    return need <= 66 and 64 or need <= 82 and 96 or need <= 126 and 128 or 255
end

-- Registers that a thread may have: they are given out to four warps at a time.
local function file_share(threads)
    return 65536 // (ceil_div(threads, 128) * 128) // 8 * 8
end

-- Blocks of a tactic that share a multiprocessor; `registers` of a thread, where they are not the cap.
function stream.room(c, arch, able, t, registers)
    local all = with(c, t, able)
    return math.min(65536 // ((registers or cap(all, arch)) * thread_count(all)),
                    (arch.shared + 1024) // ((able.front or 0) + shared_bytes(all) + 1024))
end

function stream.launch(c, arch, able)
    local all = with(c, c, able)
    local threads = thread_count(all)
    return { grid = { ceil_div(c.kN, c.kTiles * 16), all.kSplits, 1 }, block = threads,
             shared = (able.front or 0) + shared_bytes(all),
             registers = math.min(cap(all, arch), file_share(threads)) }
end

local function exists(c, arch, able, t)
    local all, steps = with(c, t, able), ceil_div(c.kK, 32)
    local threads = thread_count(all)
    local fits = (able.front or 0) + shared_bytes(all) <= arch.shared
        and t.kTiles * 16 <= math.max(16, c.kN)
        and all.kSplits <= steps
        and t.kWarps * t.kSteps <= math.max(2, ceil_div(steps, all.kSplits)) -- no warp is idle from the start
    if all.kStages > 0 then -- whole stages only
        local registers = math.min(cap(all, arch), file_share(threads))
        return fits and c.kN % (16 * t.kTiles) == 0 and c.kK % (32 * t.kWarps * t.kSteps * all.kSplits) == 0
            and needed(all, arch) <= registers
    end
    return fits and cap(all, arch) * threads <= 65536
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
    local all, mps = with(c, t, { slices = true }), arch.multiprocessors
    local blocks = ceil_div(c.kN, t.kTiles * 16) * all.kSplits
    local rounds = ceil_div(blocks, mps)
    local balance = c.kN // 16 * all.kSplits / (mps * rounds * t.kTiles)
    local traffic = blocks < mps and 1 or math.max(1, 0.75 * (1 + c.kRows / (16 * t.kTiles)))
    local threads = t.kWarps * 32
    local room = math.min(1536 // threads, 65536 // (cap(all, arch) * threads), arch.shared // shared_bytes(all))
    local flight = math.min(rounds, room) * threads * t.kTiles * t.kSteps * 32
    return traffic / balance * math.max(1, 65536 / flight) * (room > 1 and 1 or 1.05)
end

-- The host runs a fibre per thread: few warps, and two slices wherever there can be two, so that both forms are seen; weights
-- to registers in steps of one row, through a ring in others.
local function host_rule(c, arch, able)
    local steps = ceil_div(c.kK, 32)
    local t = { kTiles = 1, kWarps = math.min(2, steps), kSteps = 1 }
    if able.partials then
        t.kSplits = math.min(2, steps)
    end
    if able.ring then
        t.kStages = 2
        if c.kRows == 1 or not exists(c, arch, able, t) then
            t.kStages = 0
        end
    end
    return t
end

-- Every tactic of the shape without a ring; with `splits` empty, of a provider without slices.
local function list_registers(c, arch, able, splits)
    local list = {}
    for _, tiles in ipairs { 1, 2, 3, 4 } do
        for _, warps in ipairs { 16, 8, 4, 2, 1 } do
            for _, steps in ipairs { 2, 1 } do
                for i = 1, math.max(1, #splits) do
                    local t = { kTiles = tiles, kWarps = warps, kSteps = steps, kSplits = splits[i],
                                kStages = able.ring and 0 or nil }
                    if exists(c, arch, able, t) then
                        list[#list + 1] = t
                    end
                end
            end
        end
    end
    return list
end

-- As many stages as a block has loads, or as its shared memory holds.
local function most_stages(c, arch, able, t)
    local all = with(c, t, able)
    local room = (arch.shared - (able.front or 0) - part_bytes(all)) // stage_bytes(all)
    return math.min(t.kTiles * passes(all), room, 16)
end

-- Rings: a stage is 1024 k of 16 rows, or the largest power of two below that divides k. Many tokens in many tiles take few
-- warps, which leave fewer sums.
local function list_rings(c, arch, able, splits, piece)
    local list = {}
    piece = piece or 32
    while piece > 1 and c.kK % (32 * piece) ~= 0 do
        piece = piece // 2
    end
    for tiles = 1, 16 do
        local warps = math.min(c.kRows > 16 and tiles > 4 and 4 or 8, piece)
        for i = 1, math.max(1, #splits) do
            local t = { kTiles = tiles, kWarps = warps, kSteps = piece // warps, kSplits = splits[i], kStages = 1 }
            t.kStages = most_stages(c, arch, able, t)
            if t.kStages >= math.min(3, tiles * passes(with(c, t, able))) and exists(c, arch, able, t) then
                list[#list + 1] = t
                if t.kStages > 4 then -- leaves room for a block of the launch after it
                    list[#list + 1] = { kTiles = tiles, kWarps = warps, kSteps = t.kSteps, kSplits = t.kSplits, kStages = t.kStages - 1 }
                end
            end
        end
    end
    return list
end

-- The ring for a product that one wave of blocks serves with a dozen loads each, or nil: behind a dependency it has most of
-- its weights already. Seven multiprocessors of ten draw the full rate of memory, and each slice costs the consumer time; of
-- equals two small blocks a multiprocessor are better than one large.
local function rule_ring(c, arch, able)
    local best, most, mps = nil, 0.36, arch.multiprocessors
    for _, t in ipairs(list_rings(c, arch, able, able.partials and { 1, 2, 4, 8 } or {})) do
        local all = with(c, t, able)
        local blocks = c.kN // (16 * t.kTiles) * all.kSplits
        local room = arch.shared // ((able.front or 0) + shared_bytes(all)) > 1 and cap(all, arch) <= 96 and 2 or 1
        local worth = math.min(blocks / mps, 0.7) - 0.02 * all.kSplits + (room > 1 and 0.05 or 0)
        if blocks <= mps * room and t.kTiles * passes(all) <= 12 and worth > most then
            best, most = t, worth
        end
    end
    return best
end

-- Rings whose stages are 512 k of 16 rows: half as many registers, so that more blocks share a multiprocessor.
function stream.small_rings(c, arch, able)
    return list_rings(c, arch, able, able.partials and { 1, 2, 4, 8 } or {}, 16)
end

-- A tactic for where `t` does not build: one tile and one step in flight take few registers with any compiler.
local function careful(t)
    return { kTiles = 1, kWarps = t.kWarps, kSteps = 1, kSplits = t.kSplits, kStages = t.kStages and 0 }
end

-- The rule, then what is tried where that does not build: a ring where one serves; else the least estimate (of those within a
-- thousandth, the first).
function stream.rule(c, arch, able)
    if arch.name == "host" then
        return { host_rule(c, arch, able) }
    end
    local ring = able.ring and rule_ring(c, arch, able)
    if ring then
        return { ring, careful(ring) }
    end
    local best, least = nil, math.huge
    for _, t in ipairs(list_registers(c, arch, able, able.partials and { rule_splits(c, arch) } or {})) do
        local time = estimate(c, arch, t)
        if time < 0.999 * least then
            best, least = t, time
        end
    end
    return { best, careful(best) }
end

-- Every tactic that the shape admits.
function stream.tactics(c, arch, able)
    local splits = able.partials and { 1, 2, 4, 8 } or {}
    local list = list_registers(c, arch, able, splits)
    if able.ring then
        for _, t in ipairs(list_rings(c, arch, able, splits)) do
            list[#list + 1] = t
        end
    end
    return list
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
