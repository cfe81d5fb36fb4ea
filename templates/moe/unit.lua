-- SPDX-License-Identifier: Apache-2.0
-- Sizes of packed units (moe/unit.cuh) and of the shared memory of the products that stream them.
local unit = {}

-- Bytes of 16 rows over 64 of k: codes and scales.
unit.CHUNK = 576

function unit.chunks(c)
    return c.kUnitBytes // unit.CHUNK
end

-- Why units of `bytes` do not fit a width of `blocks` blocks; nil where they do.
function unit.refuses(bytes, blocks)
    if bytes % unit.CHUNK ~= 0 then
        return "a unit must be whole chunks of " .. unit.CHUNK .. " bytes, found " .. bytes
    end
    local chunks = bytes // unit.CHUNK
    if chunks ~= 1 and chunks ~= 2 and chunks ~= 4 and chunks ~= 8 then
        return "a unit must be 64, 128, 256 or 512 of k long, found " .. chunks * 64
    end
    if blocks % (chunks * 4) ~= 0 then
        return "the width must be a multiple of " .. chunks * 64 .. " (one unit), found " .. blocks * 16
    end
end

-- Bytes from token to token in shared memory so that eight of them lie in different banks: bf16, or codes and scales.
function unit.pitch(blocks, expanded)
    if expanded == 1 then
        return blocks * 32 + 16
    end
    local bytes = blocks * 9
    return bytes + (32 - bytes) % 128
end

-- Bytes of zero that stand for a unit of a token.
function unit.zeros(c)
    return unit.chunks(c) * (c.kExpanded == 1 and 128 or 32)
end

function unit.round(bytes)
    return (bytes + 15) // 16 * 16
end

return unit
