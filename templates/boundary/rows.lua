-- SPDX-License-Identifier: Apache-2.0
-- What the row kernels of this folder share: one block per row, eight neighbouring elements (an octet) at a time.
local rows = {}

-- Threads that leave each about one octet; more would idle.
local function threads(c)
    return math.min(1024, math.max(32, (c.kHidden // 8 + 31) // 32 * 32))
end

function rows.tactics(c)
    local list = { { kThreads = threads(c) } }
    for _, n in ipairs { 512, 256 } do
        if n < threads(c) then
            list[#list + 1] = { kThreads = n }
        end
    end
    return list
end

function rows.default(c)
    return { kThreads = threads(c) }
end

function rows.unsupported(c)
    if c.kHidden % 8 ~= 0 then
        return "the width must be a multiple of 8, found " .. c.kHidden
    end
end

return rows
