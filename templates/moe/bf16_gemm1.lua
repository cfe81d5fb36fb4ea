-- SPDX-License-Identifier: Apache-2.0
-- First routed GEMM on bf16 weights, with SwiGLU in its epilogue.

local function step(c)
    return c.kWidth % 32 == 0 and 32 or 16
end

-- Largest power of two of warps, at most `most`, that all have a step.
local function warps(steps, most)
    local n = 1
    while n * 2 <= math.min(most, steps) do
        n = n * 2
    end
    return n
end

-- Slices of one block: enough blocks to fill the machine, few enough that the routing is read seldom.
local function slices(c)
    return c.kColumns >= 2048 and 8 or c.kColumns >= 512 and 4 or 1
end

local function tactic(c, most, held, n)
    local steps = c.kWidth // step(c)
    held = math.min(held, steps)
    return { kWarps = warps((steps + held - 1) // held, most), kHeld = held, kSlices = n }
end

-- Warps at most, steps held, slices: what is left of each after fitting it to the shape, without repetition.
local function tactics(c, arch)
    local list, seen = {}, {}
    for _, t in ipairs { { 16, 4 }, { 8, 4 }, { 16, 2 }, { 8, 2 }, { 4, 2 }, { 8, 1 }, { 4, 1 } } do
        for _, n in ipairs { slices(c), 2 * slices(c), 1 } do
            local new = tactic(c, t[1], t[2], n)
            local key = new.kWarps .. "," .. new.kHeld .. "," .. new.kSlices
            if not seen[key] then
                seen[key] = true
                table.insert(list, new)
            end
        end
    end
    return list
end

return provider "moe/bf16_gemm1" {
    doc = "act = r16(silu(x w_gate^T) * (x w_up^T)) of every route, fp32 accumulation",
    parts = { "bf16_gemm1", "swiglu" },
    entry = "bf16_gemm1",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kWidth" { type = "int", min = 16, doc = "expert input width" },
        const "kExperts" { type = "int", min = 1, doc = "experts of this rank" },
        const "kGateUp" { type = "int", min = 32, doc = "gate rows, then up rows" },
        const "kPermuted" { type = "int", min = 2, doc = "permuted rows and one guard element" },
        const "kMaxCtas" { type = "int", min = 1, doc = "most tiles" },
        const "kMaxRows" { type = "int", min = 1, doc = "permuted rows" },
        const "kColumns" { type = "int", min = 16, doc = "intermediate width" },
        const "kTile" { type = "int", from = "bf16_gemm1.tile", min = 8, doc = "tokens of a tile, worked on 8 at a time" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 16, doc = "warps that split the input width" },
        const "kHeld" { type = "int", tactic = true, min = 1, max = 4, doc = "steps a warp holds in registers" },
        const "kSlices" { type = "int", tactic = true, min = 1, max = 64, doc = "slices of 16 intermediate columns of a block" },
        const "kStep" { type = "int", value = step, doc = "k of one quad's load: 32 or 16" },
    },
    args = {
        arg "h1" { dir = "in", dtype = "bf16", shape = { "kRows", "kWidth" }, port = "bf16_gemm1.h1" },
        arg "w13" { dir = "in", dtype = "bf16", shape = { "kExperts", "kGateUp", "kWidth" }, port = "bf16_gemm1.w13" },
        arg "permuted_to_token" { dir = "in", dtype = "i32", shape = { "kPermuted" }, port = "bf16_gemm1.permuted_to_token" },
        arg "cta_expert" { dir = "in", dtype = "i32", shape = { "kMaxCtas" }, port = "bf16_gemm1.cta_expert" },
        arg "cta_limit" { dir = "in", dtype = "i32", shape = { "kMaxCtas" }, port = "bf16_gemm1.cta_limit" },
        arg "ctas" { dir = "in", dtype = "i32", shape = { 1 }, port = "bf16_gemm1.ctas" },
        arg "act" { dir = "out", dtype = "bf16", shape = { "kMaxRows", "kColumns" }, port = "swiglu.act" },
    },
    launch = function(c, arch)
        return {
            grid = { c.kMaxCtas, (c.kColumns // 16 + c.kSlices - 1) // c.kSlices, 1 }, block = c.kWarps * 32,
            shared = 2 * c.kWarps * 2 * 8 * 20 * 4, registers = c.kWarps > 8 and 128 or 168,
        }
    end,
    -- The most that the routes can touch: one expert a tile.
    cost = function(c)
        local experts = math.min(c.kExperts, c.kMaxCtas)
        return {
            bytes = 2 * experts * c.kGateUp * c.kWidth + 2 * c.kMaxCtas * (c.kWidth + c.kColumns),
            operations = 2 * c.kMaxCtas * c.kGateUp * c.kWidth,
        }
    end,
    tactics = tactics,
    default = function(c, arch)
        if arch.name == "host" then
            return tactic(c, 4, 1, slices(c))
        end
        return tactic(c, 16, 4, slices(c))
    end,
    unsupported = function(c, arch)
        if c.kWidth % 16 ~= 0 then
            return "the expert input width must be a multiple of 16 (one tensor-core operation)"
        end
        if c.kGateUp ~= 2 * c.kColumns or c.kColumns % 16 ~= 0 then
            return "w13 must have as many gate rows and up rows as there are intermediate columns, a multiple of 16"
        end
        if c.kTile % 8 ~= 0 then
            return "the tile must be a multiple of 8 tokens"
        end
        if c.kMaxRows < c.kMaxCtas * c.kTile or c.kPermuted ~= c.kMaxCtas * c.kTile + 1 then
            return "the permuted space must have a row for each token of each tile"
        end
    end,
    early = true,
    triggers = true,
}
