-- SPDX-License-Identifier: Apache-2.0
-- The next token of every row where each rank has the logits of its share of the vocabulary.
local RESIDENT <const> = 32 -- blocks that wait for peers must all be running

local function threads(c, blocks)
    return math.min(1024, math.max(32, (c.kVocab // blocks // 4 + 31) // 32 * 32))
end

-- A block for 4096 logits. The host takes two wherever it can, to see the hand-over.
local function rule(c, arch)
    local most = math.max(1, RESIDENT // c.kRows)
    local blocks = math.min(most, math.max(1, c.kVocab // 4096))
    if arch.name == "host" then
        blocks = c.kVocab >= 64 and math.min(2, most) or 1
    end
    return { kBlocks = blocks, kThreads = math.min(threads(c, blocks), arch.name == "host" and 64 or 1024) }
end

return provider "head/exchange_argmax" {
    doc = "token[row] = lowest id of the greatest logit over all ranks' shards; NaN is skipped, a row of NaN gives 0",
    parts = { "argmax" },
    entry = "exchange_argmax",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kVocab" { type = "int", min = 4, max = 1048576, doc = "logits of a row on one rank" },
        const "kBlocks" { type = "int", tactic = true, min = 1, max = 32, doc = "blocks of a row" },
        const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a block" },
    },
    args = {
        arg "logits" { dir = "in", dtype = "f32", shape = { "kRows", "kVocab" }, port = "argmax.logits" },
        arg "candidates" { dir = "workspace", dtype = "u32", shape = { "kRows", "kBlocks", 2 } },
        arg "counters" { dir = "workspace", dtype = "u32", shape = { "kRows" }, zeroed = true },
        arg "token" { dir = "out", dtype = "i32", shape = { "kRows" }, port = "argmax.token" },
        arg "mailbox" { dir = "mailbox", exchange = "head", bytes = function(c) return 16 * c.kRows end },
    },
    launch = function(c) return { grid = { c.kBlocks, c.kRows, 1 }, block = c.kThreads, shared = 384, registers = 64 } end,
    cost = function(c) return { bytes = 4 * c.kRows * c.kVocab, operations = 2 * c.kRows * c.kVocab } end,
    tactics = function(c, arch)
        local list = { rule(c, arch) }
        for _, blocks in ipairs { 1, 4, 8, 32 } do
            if blocks * c.kRows <= RESIDENT and blocks * 1024 <= c.kVocab then
                list[#list + 1] = { kBlocks = blocks, kThreads = 256 }
                list[#list + 1] = { kBlocks = blocks, kThreads = threads(c, blocks) }
            end
        end
        return list
    end,
    default = rule,
    unsupported = function(c)
        if c.kVocab % 4 ~= 0 then
            return "a rank's share of the vocabulary must be a multiple of 4, found " .. c.kVocab
        end
        if c.kBlocks and c.kBlocks * c.kRows > RESIDENT then
            return "at most " .. RESIDENT .. " blocks may wait for peers, found " .. c.kBlocks * c.kRows
        end
    end,
    early = true,
    triggers = true,
}
