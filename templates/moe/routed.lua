-- SPDX-License-Identifier: Apache-2.0
-- Tactics that the routed GEMMs share. A block's warps split k in runs of `held` steps and work
-- through `slices` slices of rows.
local routed = {}

-- Largest power of two of warps, at most `most`, that all have a run of steps.
local function warps(runs, most)
    local n = 1
    while n * 2 <= math.min(most, runs) do
        n = n * 2
    end
    return n
end

-- k of one quad's load of NVFP4 rows of kBlocks blocks of 16, and how many such steps there are.
function routed.nvfp4_step(c)
    local k = c.kBlocks * 16
    return k % 128 == 0 and 128 or k % 64 == 0 and 64 or 16
end

function routed.nvfp4_steps(c)
    return c.kBlocks * 16 // routed.nvfp4_step(c)
end

-- The same of bf16 rows of kWidth values.
function routed.bf16_step(c)
    return c.kWidth % 32 == 0 and 32 or 16
end

function routed.bf16_steps(c)
    return c.kWidth // routed.bf16_step(c)
end

-- Tactics worth trying: pairs of warps and held steps.
routed.nvfp4_wishes = { { 16, 2 }, { 8, 2 }, { 8, 4 }, { 4, 2 }, { 16, 1 }, { 8, 1 }, { 4, 1 } }
routed.bf16_wishes = { { 16, 4 }, { 16, 2 }, { 8, 4 }, { 8, 2 }, { 4, 4 }, { 8, 1 }, { 4, 1 } }

-- What is left of a wish after fitting it to the number of steps.
function routed.fit(steps, most, held, slices)
    held = math.min(held, steps)
    return { kWarps = warps((steps + held - 1) // held, most), kHeld = held, kSlices = slices }
end

-- Slices of a block for an output of `width`: enough blocks to fill the machine, few enough that a
-- block's start is seldom.
function routed.slices(width)
    return width >= 2048 and 8 or width >= 512 and 4 or 1
end

-- All tactics for a number of steps and an output width; wishes are pairs of warps and held steps.
function routed.tactics(steps, width, wishes)
    local list, seen = {}, {}
    local slices = routed.slices(width)
    for _, wish in ipairs(wishes) do
        for _, n in ipairs { slices, 2 * slices, 1 } do
            local new = routed.fit(steps, wish[1], wish[2], n)
            local key = new.kWarps .. "," .. new.kHeld .. "," .. new.kSlices
            if not seen[key] then
                seen[key] = true
                table.insert(list, new)
            end
        end
    end
    return list
end

-- The rule: few warps on the host, which runs a fibre per thread; elsewhere `held` steps a warp and, for where that
-- does not build, half the warps with one step each, which take few registers.
function routed.rule(arch, steps, held, slices)
    if arch.name == "host" then
        return { routed.fit(steps, 4, 1, slices) }
    end
    return { routed.fit(steps, 16, held, slices), routed.fit(steps, 8, 1, slices) }
end

-- Two buffers of every warp's sums: two sets of 16 rows, eight tokens, 20 floats apart.
function routed.shared(c)
    return 2 * c.kWarps * 2 * 8 * 20 * 4
end

return routed
