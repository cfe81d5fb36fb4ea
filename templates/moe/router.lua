-- SPDX-License-Identifier: Apache-2.0
-- Router logits: every token against every expert, fp32 weights as stored.

-- Chunks of four k that a thread holds at a time: all in flight before the first is used.
local HELD_MOST <const> = 8
local SUMS_MOST <const> = 64 -- a thread's; one for each token and expert of the block

local function chunks_per_thread(c)
    return (c.kHidden // 4 + c.kWarps * 32 - 1) // (c.kWarps * 32)
end

local function tactics(c, arch)
    local list = {}
    for _, experts in ipairs { 2, 1, 4 } do
        for _, warps in ipairs { 8, 4, 2, 1 } do
            local fits = c.kExperts % experts == 0 and experts * c.kRows <= SUMS_MOST
            if fits and (warps == 1 or warps * 32 * 4 <= c.kHidden) then
                table.insert(list, { kBlockExperts = experts, kWarps = warps })
            end
        end
    end
    return list
end

-- The first; where that does not build, one expert a block, which takes the fewest registers.
local function default(c, arch)
    local first = tactics(c, arch)[1]
    local careful = { kBlockExperts = 1, kWarps = first.kWarps }
    return arch.name == "host" and first or { first, careful }
end

return provider "moe/router" {
    doc = "logits[rows, experts] = x[rows, hidden] w[experts, hidden]^T, exact products, fp32 sums",
    parts = { "router" },
    entry = "router",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kHidden" { type = "int", min = 4, doc = "hidden width" },
        const "kExperts" { type = "int", min = 1, doc = "experts of all ranks" },
        const "kBlockExperts" { type = "int", tactic = true, min = 1, max = 4,
                                doc = "experts of one block" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 8,
                         doc = "warps that split the hidden width" },
        const "kHeld" { type = "int", doc = "chunks of four weights a thread holds of each expert",
                        value = function(c) return math.min(HELD_MOST, chunks_per_thread(c)) end },
    },
    args = {
        arg "x" { dir = "in", dtype = "bf16", shape = { "kRows", "kHidden" }, port = "router.x" },
        arg "w" { dir = "in", dtype = "f32", shape = { "kExperts", "kHidden" }, port = "router.w" },
        arg "logits" { dir = "out", dtype = "f32", shape = { "kRows", "kExperts" },
                       port = "router.logits" },
    },
    launch = function(c, arch)
        return {
            grid = { c.kExperts // c.kBlockExperts, 1, 1 }, block = c.kWarps * 32,
            shared = c.kWarps * c.kBlockExperts * c.kRows * 4,
            registers = c.kBlockExperts * c.kRows <= 16 and 128 or 255,
        }
    end,
    cost = function(c)
        return {
            bytes = 4 * c.kExperts * c.kHidden + 2 * c.kRows * c.kHidden + 4 * c.kRows * c.kExperts,
            operations = 2 * c.kRows * c.kExperts * c.kHidden,
        }
    end,
    tactics = tactics,
    default = default,
    unsupported = function(c, arch)
        if c.kHidden % 4 ~= 0 then
            return "the hidden width must be a multiple of 4 (16-byte loads)"
        end
        if c.kBlockExperts and c.kBlockExperts * c.kRows > SUMS_MOST then
            return "more than 64 sums a thread: take fewer experts a block"
        end
    end,
    early = true,
    triggers = true,
}
