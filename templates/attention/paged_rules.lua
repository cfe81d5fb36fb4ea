-- SPDX-License-Identifier: Apache-2.0
-- What the providers of attention over the paged cache share: constants, workspaces, tactics.
-- The context is split over blocks. How many splits there are is fixed by the longest context,
-- which keys a split takes by each request's length, so that one graph serves every length. With the
-- option `anchored` the splits take chunks in turn from the start of the context on: then the order of a
-- row's sums does not depend on how many rows stand behind it, but every split reads from all pages.

local CHUNK <const> = 16 -- keys a warp takes at a time
local SPLITS_MAX <const> = 64

local function dim(c)
    return c.kPacked // 2
end

local function ceil_div(a, b)
    return (a + b - 1) // b
end

-- Query rows of one kv head, in tiles of 16.
local function query_tiles(c)
    return ceil_div(c.kRows // c.kRequests * (c.kHeads // c.kKvHeads), 16)
end

local function slices(c)
    return ceil_div(query_tiles(c), c.kTiles)
end

-- Keys that the queries of one request can see together.
local function visible(c)
    if c.kWindow == 0 then
        return c.kMaxContext
    end
    return math.min(c.kMaxContext, c.kWindow + c.kRows // c.kRequests - 1)
end

-- Rounds of a block's warps over the keys; a window need not begin at a chunk.
local function rounds(c, warps)
    return ceil_div(ceil_div(visible(c), CHUNK) + (c.kWindow > 0 and 1 or 0), warps)
end

local function shared_bytes(c, warps, tiles)
    return warps * tiles * 16 * ((dim(c) + 4) * 4 + 8) + 16
end

-- What nvcc 13 needs without spilling on sm_90a and sm_120a, rounded up.
local function registers(c)
    return (dim(c) > 64 or c.kTiles * dim(c) > 64) and 255 or 248
end

-- Most tiles of a block: those that fit a thread's registers. `widest`: of heads that may have two.
local function tiles_max(c, widest)
    return dim(c) > widest and 1 or math.min(2, query_tiles(c))
end

-- One block of eight warps a multiprocessor, as far as there are keys for them: the launch is a matter of latency, and the last
-- block folds the splits. Where one request sees everything, or a window is all there is, a block takes one tile, which divides
-- the queries over more of them; else two, which read the keys half as often. Two splits at least: one request may be far longer
-- than the others.
local function default(c, arch, widest)
    local one = c.kWindow > 0 or c.kRequests == 1
    local t = { kWarps = arch.name == "host" and 2 or 8, kTiles = one and 1 or tiles_max(c, widest) }
    local blocks = c.kRequests * c.kKvHeads * ceil_div(query_tiles(c), t.kTiles)
    local wanted = math.max(2, math.min(33, arch.multiprocessors // blocks))
    t.kSplits = math.max(1, math.min(wanted, rounds(c, t.kWarps)))
    return t
end

local function tactics(c, arch, widest)
    local all, rule = {}, default(c, arch, widest).kSplits
    for _, warps in ipairs { 2, 4, 8 } do
        for tiles = 1, tiles_max(c, widest) do
            local listed = {}
            for _, splits in ipairs { 1, 2, 4, 8, 16, 32, 64, rule } do
                if splits <= math.max(rounds(c, warps), rule) and not listed[splits]
                    and shared_bytes(c, warps, tiles) <= arch.shared then
                    listed[splits] = true
                    table.insert(all, { kWarps = warps, kTiles = tiles, kSplits = splits })
                end
            end
        end
    end
    return all
end

local rules = {}

function rules.tactics(widest)
    return function(c, arch) return tactics(c, arch, widest) end
end

function rules.default(widest)
    return function(c, arch) return default(c, arch, widest) end
end

-- Sizes that every provider finds in its arguments' shapes, then what it is told.
function rules.constants(list)
    for _, item in ipairs {
        const "kPageTokens" { type = "int", min = 16, max = 1024, doc = "tokens of a cache page" },
        const "kPacked" { type = "int", min = 32, max = 256,
            doc = "elements of a cache row: k, then v" },
        const "kTableWidth" { type = "int", min = 1, max = 1048576,
            doc = "pages of a block table" },
        const "kOut" { type = "int", min = 16, max = 131072,
            doc = "columns of y: every head's channels" },
        const "kWindow" { type = "int", from = "attention.window", default = 0, min = 0,
            max = 1048576, doc = "keys a query sees, its own included; 0: all" },
        const "kMaxContext" { type = "int", from = "attention.max_context", min = 1, max = 1048576,
            doc = "longest request" },
        const "kScale" { type = "float", from = "attention.scale", doc = "factor of q k^T" },
        const "kEps" { type = "float", min = 1e-30, from = "o_norm_gate.eps",
            doc = "added to the mean square of a head" },
        const "kAnchored" { type = "int", option = "anchored", default = 0, min = 0, max = 1,
            doc = "1: which warp of which split takes a key follows from the key's position alone" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 16,
            doc = "warps of a block; they take turns at chunks of keys" },
        const "kTiles" { type = "int", tactic = true, neutral = true, min = 1, max = 4,
            doc = "tiles of 16 query rows of a block" },
        const "kSplits" { type = "int", tactic = true, min = 1, max = SPLITS_MAX,
            doc = "blocks that share the keys of a request" },
        const "kSlices" { type = "int", value = slices,
            doc = "blocks that share the query rows of a kv head" },
    } do
        table.insert(list, item)
    end
    return list
end

-- The output and the workspaces, behind a provider's own arguments.
function rules.args(list)
    for _, item in ipairs {
        arg "y" { dir = "out", dtype = "bf16", shape = { "kRows", "kOut" },
            port = "o_norm_gate.y" },
        arg "partial_o" { dir = "workspace", dtype = "f32",
            shape = { "kSplits", "kRows", "kHeads", "kDim" } },
        arg "partial_sums" { dir = "workspace", dtype = "f32",
            shape = { "kSplits", "kRows", "kHeads", 2 } },
        arg "counters" { dir = "workspace", dtype = "u32", zeroed = true,
            shape = { "kRequests", "kKvHeads", "kSlices" } },
    } do
        table.insert(list, item)
    end
    return list
end

function rules.launch(c)
    return { grid = { c.kSplits, c.kKvHeads * slices(c), c.kRequests }, block = c.kWarps * 32,
             shared = shared_bytes(c, c.kWarps, c.kTiles), registers = registers(c) }
end

function rules.cost(c)
    local keys = c.kRequests * visible(c)
    local rows = c.kRows // c.kRequests * c.kHeads
    return { bytes = 2 * keys * c.kKvHeads * c.kPacked + 6 * c.kRows * c.kOut,
             operations = 4 * keys * rows * dim(c) }
end

function rules.unsupported(c)
    if dim(c) ~= 16 and dim(c) ~= 32 and dim(c) ~= 64 and dim(c) ~= 128 then
        return "the head width must be 16, 32, 64 or 128"
    end
    if c.kHeads % c.kKvHeads ~= 0 then
        return "the query heads must be a multiple of the kv heads"
    end
    if c.kRows % c.kRequests ~= 0 then
        return "every request must have as many rows"
    end
    if c.kPageTokens % CHUNK ~= 0 then
        return "a cache page must hold a multiple of 16 tokens"
    end
    if c.kMaxContext > c.kTableWidth * c.kPageTokens then
        return "the block table must hold the longest context"
    end
    if c.kOut ~= c.kHeads * dim(c) then
        return "the width of y must be heads times head width"
    end
end

return rules
