-- SPDX-License-Identifier: Apache-2.0
-- What the providers of attention over the paged cache share: constants, workspaces, tactics.
-- The context is split over blocks. How many splits there are is fixed by the longest context,
-- which keys a split takes by each request's length, so that one graph serves every length. With the
-- option `anchored` the splits take chunks in turn from the start of the context on: then the order of a
-- row's sums does not depend on how many rows stand behind it, but every split reads from all pages.

local UNIT <const> = 16 -- neighbouring keys of a page; a chunk is one or more
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

-- Rounds of a block's teams over the keys; a window need not begin at a chunk.
local function rounds(c, teams, chunk)
    return ceil_div(ceil_div(visible(c), chunk) + (c.kWindow > 0 and 1 or 0), teams)
end

-- PagedShape of attention/paged_block.cuh: the ring or what the warps leave, what the cluster's blocks send, mbarrier and flag.
local function shared_bytes(c, t)
    local ring = t.kTeams * t.kStages * t.kChunk * 4 * dim(c)
    local left = t.kTeams * t.kTiles * 16 * ((dim(c) + 8) * 4 + 8)
    local sent = t.kCluster > 1 and t.kTiles * 16 * (dim(c) // 4 + 1) * 16 or 0
    return math.max(ring, left) + sent + 16
end

-- 128 leave room for the next launch on the multiprocessor, where they are enough without spilling: nvcc 13 for sm_90a, few slices of
-- the product.
local function registers(c, arch, slices_of_product)
    return arch.name == "sm_90a" and dim(c) <= 64 and slices_of_product <= 2 and 128 or 255
end

-- A team's chunks in shared memory: as many as keep a second block of attention off a multiprocessor, where clusters would meet,
-- and leave the next launch a share.
local function stages(c, arch, t)
    t.kStages = 2
    while t.kStages < 8 and 2 * shared_bytes(c, t) <= arch.shared do
        t.kStages = t.kStages + 1
    end
    while t.kStages > 2 and shared_bytes(c, t) > arch.shared do
        t.kStages = t.kStages - 1
    end
end

-- Splits and clusters that fit beside each other, one block a multiprocessor; of clusters of eight and four one or two fewer than
-- the number of multiprocessors says, since they do not end where a group of them does (a cluster too many waits for another to
-- end). `blocks` share the keys of a split. A smaller cluster leaves more to fold behind it, and must be worth a quarter more splits.
local function divide(arch, t, blocks, most)
    t.kSplits, t.kCluster = 0, 1
    for _, cluster in ipairs { 8, 4, 2 } do
        local clusters = arch.multiprocessors // cluster - (cluster > 2 and 8 // cluster or 0)
        local splits = math.min(clusters // blocks * cluster, most // cluster * cluster)
        if 4 * splits > 5 * t.kSplits then
            t.kSplits, t.kCluster = splits, cluster
        end
    end
    if t.kSplits < 2 then
        t.kSplits, t.kCluster = math.min(2, most), math.min(2, most)
    end
end

-- One block of eight warps a multiprocessor, as far as there are keys for them. Behind a window the launch is a matter of latency:
-- one cluster folds all splits, a block takes one tile, which divides the queries over more of them. Where all keys are seen, a
-- block takes up to four tiles, so that keys are read once. Two splits at least: one request may be far longer than the others.
local function default(c, arch)
    if arch.name == "host" then
        local t = { kTeams = 2, kTiles = math.min(2, query_tiles(c)), kChunk = UNIT, kStages = 2 }
        t.kSplits = math.min(2, rounds(c, t.kTeams, t.kChunk))
        t.kCluster = t.kSplits
        return t
    end
    local tiles = c.kWindow > 0 and 1 or query_tiles(c) > 2 and 4 or query_tiles(c)
    local t = { kTeams = 8 // tiles, kTiles = tiles, kChunk = tiles == 1 and UNIT or 2 * UNIT }
    divide(arch, t, c.kRequests * c.kKvHeads * ceil_div(query_tiles(c), tiles),
           math.min(c.kWindow > 0 and 8 or SPLITS_MAX, rounds(c, t.kTeams, t.kChunk)))
    stages(c, arch, t)
    return t
end

-- `all` begins with the rule; those of the list below differ from each other, so only the rule can come
-- twice.
local function add(all, c, arch, t)
    local rule = all[1]
    local same = rule and rule.kTeams == t.kTeams and rule.kTiles == t.kTiles and rule.kSplits == t.kSplits
        and rule.kCluster == t.kCluster and rule.kChunk == t.kChunk and rule.kStages == t.kStages
    if not same and shared_bytes(c, t) <= arch.shared and t.kSplits % t.kCluster == 0 then
        table.insert(all, t)
    end
end

local function tactics(c, arch)
    local all, rule = {}, default(c, arch)
    add(all, c, arch, rule)
    for _, warps in ipairs { 2, 4, 8 } do
        for _, tiles in ipairs { 1, 2, 4 } do
            for _, chunk in ipairs { UNIT, 2 * UNIT } do
                for _, splits in ipairs { 1, 2, 4, 8, 16, 32, 56, 64 } do
                    for _, cluster in ipairs { 1, 2, 4, 8 } do
                        local teams = warps // tiles
                        if tiles <= math.min(warps, query_tiles(c)) and splits <= math.max(rounds(c, teams, chunk), rule.kSplits) then
                            for _, number in ipairs { 2, 3, 4, 7 } do
                                add(all, c, arch, { kTeams = teams, kTiles = tiles, kSplits = splits, kCluster = cluster,
                                                    kChunk = chunk, kStages = number })
                            end
                        end
                    end
                end
            end
        end
    end
    return all
end

local rules = {}

rules.tactics = tactics
rules.default = default

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
            doc = "1: which team of which split takes a key follows from the key's position alone" },
        const "kTeams" { type = "int", tactic = true, min = 1, max = 15,
            doc = "teams of warps of a block; they take turns at chunks of keys" },
        const "kTiles" { type = "int", tactic = true, neutral = true, min = 1, max = 4,
            doc = "tiles of 16 query rows of a block, each a warp's of every team" },
        const "kSplits" { type = "int", tactic = true, min = 1, max = SPLITS_MAX,
            doc = "blocks that share the keys of a request" },
        const "kCluster" { type = "int", tactic = true, min = 1, max = 8,
            doc = "of them, those that fold what they have among themselves" },
        const "kChunk" { type = "int", tactic = true, min = 16, max = 64, doc = "keys that a team takes at a time" },
        const "kStages" { type = "int", tactic = true, neutral = true, min = 2, max = 8,
            doc = "chunks of a team in shared memory" },
        const "kWarps" { type = "int", value = function(c) return c.kTeams * c.kTiles end, doc = "warps of a block" },
        const "kParts" { type = "int", value = function(c) return c.kSplits // c.kCluster end,
            doc = "results of a row that the last cluster folds" },
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
            shape = { "kParts", "kRows", "kHeads", "kDim" } },
        arg "partial_sums" { dir = "workspace", dtype = "f32",
            shape = { "kParts", "kRows", "kHeads", 2 } },
        arg "counters" { dir = "workspace", dtype = "u32", zeroed = true,
            shape = { "kRequests", "kKvHeads", "kSlices", "kCluster" } },
    } do
        table.insert(list, item)
    end
    return list
end

-- `slices_of_product`: of a configuration, how many a block adds up.
function rules.launch(slices_of_product)
    return function(c, arch)
        return { grid = { c.kSplits, c.kKvHeads * slices(c), c.kRequests }, block = c.kTeams * c.kTiles * 32,
                 shared = shared_bytes(c, c), registers = registers(c, arch, slices_of_product(c)), cluster = c.kCluster }
    end
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
    if c.kScale <= 0 then
        return "the scale must be positive"
    end
    if c.kPageTokens % UNIT ~= 0 then
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
