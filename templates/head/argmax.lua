-- SPDX-License-Identifier: Apache-2.0
-- The next token of every row: several blocks a row find candidates, the last to arrive picks among them.
-- A block for 4096 logits, no more than fill the machine once. The host takes two wherever it can, to see the hand-over.
local alone <const> = include "collective/alone.lua"
local function rule(c, arch)
    local blocks = math.min(32, math.max(1, c.kVocab // 4096), math.max(1, arch.multiprocessors // c.kRows))
    if arch.name == "host" then
        blocks = c.kVocab >= 64 and 2 or 1
    end
    local threads = math.min(256, math.max(32, (c.kVocab // blocks // 4 + 31) // 32 * 32))
    return { kBlocks = blocks, kThreads = threads }
end

return provider "head/argmax" {
    doc = "token[row] = lowest id of the greatest logit; NaN is skipped, a row of NaN gives 0",
    parts = { "argmax" },
    entry = "argmax",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kVocab" { type = "int", min = 4, max = 1048576, doc = "logits of a row" },
        const "kBlocks" { type = "int", tactic = true, min = 1, max = 32, doc = "blocks of a row" },
        const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a block" },
    },
    args = {
        arg "logits" { dir = "in", dtype = "f32", shape = { "kRows", "kVocab" }, port = "argmax.logits" },
        arg "candidates" { dir = "workspace", dtype = "u32", shape = { "kRows", "kBlocks", 2 } },
        arg "counters" { dir = "workspace", dtype = "u32", shape = { "kRows" }, zeroed = true },
        arg "token" { dir = "out", dtype = "i32", shape = { "kRows" }, port = "argmax.token" },
    },
    launch = function(c) return { grid = { c.kBlocks, c.kRows, 1 }, block = c.kThreads, shared = 384, registers = 64 } end,
    cost = function(c) return { bytes = 4 * c.kRows * c.kVocab, operations = 2 * c.kRows * c.kVocab } end,
    tactics = function(c, arch)
        local list = { rule(c, arch) }
        for _, blocks in ipairs { 1, 8, 32 } do
            for _, threads in ipairs { 256, 1024 } do
                if blocks * threads * 4 <= c.kVocab then
                    list[#list + 1] = { kBlocks = blocks, kThreads = threads }
                end
            end
        end
        return list
    end,
    default = rule,
    unsupported = function(c, arch)
        local reason = alone(arch, { "argmax" })
        if reason then
            return reason
        end
        if c.kVocab % 4 ~= 0 then
            return "the vocabulary must be a multiple of 4, found " .. c.kVocab
        end
    end,
    early = true,
    triggers = true,
}
