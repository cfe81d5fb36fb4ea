-- SPDX-License-Identifier: Apache-2.0
-- Blocks and threads of a row's arg-max that waits for no other rank: a block for 4096 logits, no more than fill the machine once.
-- The host takes two wherever it can, to see the hand-over.
local blocks = {}

function blocks.default(c, arch)
    local count = math.min(32, math.max(1, c.kVocab // 4096), math.max(1, arch.multiprocessors // c.kRows))
    if arch.name == "host" then
        count = c.kVocab >= 64 and 2 or 1
    end
    local threads = math.min(256, math.max(32, (c.kVocab // count // 4 + 31) // 32 * 32))
    return { kBlocks = count, kThreads = threads }
end

function blocks.tactics(c, arch)
    local list = { blocks.default(c, arch) }
    for _, count in ipairs { 1, 8, 32 } do
        for _, threads in ipairs { 256, 1024 } do
            if count * threads * 4 <= c.kVocab then
                list[#list + 1] = { kBlocks = count, kThreads = threads }
            end
        end
    end
    return list
end

function blocks.launch(c)
    return { grid = { c.kBlocks, c.kRows, 1 }, block = c.kThreads, shared = 384, registers = 64 }
end

function blocks.unsupported(c)
    if c.kVocab % 4 ~= 0 then
        return "the vocabulary must be a multiple of 4, found " .. c.kVocab
    end
end

return blocks
