-- SPDX-License-Identifier: Apache-2.0
-- What the row kernels share: a row is the work of one block, or of a cluster of blocks, eight neighbouring elements (an octet) at a time.
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

-- Threads of each of `blocks` blocks of a row, about one octet for each, or `per` of them.
local function threads_of(c, blocks, per)
    local octets = c.kHidden // 8 // blocks
    return math.min(1024, math.max(32, (octets + per * 32 - 1) // (per * 32) * 32))
end

-- Most blocks of a row: a multiprocessor moves only so much at a time, but a block of less than 16 octets is not worth its sum.
local function most_blocks(c)
    local blocks = 8
    while blocks > 1 and (c.kHidden // 8 % blocks ~= 0 or c.kHidden // 8 // blocks < 16) do
        blocks = blocks // 2
    end
    return blocks
end

-- Tactics of a row that is split over the blocks of a cluster.
function rows.split_tactics(c)
    local list, seen = {}, {}
    local blocks = most_blocks(c)
    while blocks >= 1 do
        for _, per in ipairs { 1, 2 } do
            local t = { kBlocks = blocks, kThreads = threads_of(c, blocks, per) }
            local name = t.kBlocks * 2048 + t.kThreads
            if not seen[name] then
                seen[name] = true
                list[#list + 1] = t
            end
        end
        blocks = blocks // 2
    end
    return list
end

-- Two octets a thread where nothing is waited for: half the warps have half the partials to add.
function rows.split_default(c)
    local blocks = most_blocks(c)
    return { kBlocks = blocks, kThreads = threads_of(c, blocks, 2) }
end

-- Registers of a thread that holds `per` octets of a gated residual: weights, stream and branch of each.
function rows.registers(c, blocks)
    local per = (c.kHidden // 8 // blocks + c.kThreads - 1) // c.kThreads
    local need = per <= 1 and 96 or per == 2 and 128 or per == 3 and 168 or 255
    return math.min(need, 65536 // c.kThreads // 8 * 8)
end

-- Shared memory of row_sums(): two rounds of four sums, a partial of each from every warp (boundary/row.cuh).
function rows.sum_bytes(c)
    local partials = c.kThreads // 32 * c.kBlocks
    return 16 + 2 * 4 * 4 * ((partials + 31) // 32 * 32 + 8)
end

function rows.threads_constant()
    return const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a block" }
end

function rows.blocks_constant()
    return const "kBlocks" { type = "int", tactic = true, min = 1, max = 8, doc = "blocks of a row, a cluster where they are several" }
end

-- The launch of rows over clusters; `shared` bytes stand before those of the sums.
function rows.split_launch(c, shared, registers)
    return { grid = { c.kRows * c.kBlocks, 1, 1 }, cluster = c.kBlocks, block = c.kThreads,
             shared = shared + rows.sum_bytes(c), registers = registers }
end

function rows.default(c)
    return { kThreads = threads(c) }
end

function rows.unsupported(c)
    if c.kHidden % 8 ~= 0 then
        return "the width must be a multiple of 8, found " .. c.kHidden
    end
end

-- The same of rows over clusters: each block has whole octets.
function rows.split_unsupported(c)
    if c.kHidden % (8 * (c.kBlocks or 1)) ~= 0 then
        return "the width must be a multiple of " .. 8 * (c.kBlocks or 1) .. ", found " .. c.kHidden
    end
end

-- Constants of a gated residual with the norm after it, however the branch comes.
function rows.stream_constants()
    return {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kHidden" { type = "int", min = 8, max = 65536, doc = "width of the stream" },
        const "kBranchEps" { type = "float", min = 1e-30, from = "residual.eps", doc = "of the norm of the branch" },
        const "kBranchCenter" { type = "int", from = "residual.center", default = 1, min = 0, max = 1,
                                doc = "gain before the branch's norm is center + w" },
        const "kHasBranchGain" { type = "int", has = "branch_gain", doc = "1 where the branch has a gain" },
        const "kEps" { type = "float", min = 1e-30, from = "norm.eps", doc = "of the norm of the stream" },
        const "kCenter" { type = "int", from = "norm.center", min = 0, max = 1, doc = "gain after the norm is center + w" },
        const "kHasAux" { type = "int", has = "aux", doc = "1 where the updated stream is also kept" },
        rows.threads_constant(),
        rows.blocks_constant(),
    }
end

-- The same with a branch in this rank's memory.
function rows.residual_constants()
    local list = rows.stream_constants()
    table.insert(list, const "kSplits" { type = "int", min = 0, max = 16,
                                         doc = "partials of the branch over k; 0: the branch is whole" })
    return list
end

-- Order of a sum over ranks: codegen numbers the known ones.
function rows.order_constant()
    return const "kBf16Each" { type = "int", from = "rank_sum.order", default = 0, min = 0, max = 1,
                               doc = "0 (ascending): fp32 from +0, rounded once; 1 (bf16_each): from rank 0's value, rounded after each addition" }
end

-- Arguments but for the branch.
function rows.stream_args()
    local width, stream = { "kHidden" }, { "kRows", "kHidden" }
    return {
        arg "s" { dir = "in", dtype = "f32", shape = stream, port = "residual.s" },
        arg "alpha" { dir = "in", dtype = "f32", shape = width, port = "residual.alpha" },
        arg "beta" { dir = "in", dtype = "f32", shape = width, port = "residual.beta" },
        arg "branch_gain" { dir = "in", dtype = "bf16", shape = width, port = "residual.gain", optional = true },
        arg "gain" { dir = "in", dtype = "bf16", shape = width, port = "norm.gain" },
        arg "s_out" { dir = "out", dtype = "f32", shape = stream, port = "residual.s_out" },
        arg "aux" { dir = "out", dtype = "f32", shape = stream, port = "residual.aux", optional = true },
        arg "x" { dir = "out", dtype = "bf16", shape = stream, port = "norm.x" },
    }
end

-- All arguments; `branch` is the shape of the branch on this rank, `ports` where it may come from.
function rows.residual_args(branch, ports)
    local port = ports or { "rank_sum.parts", "gather.columns" }
    local list = {
        arg "branch" { dir = "in", dtype = "bf16", shape = branch, port = port },
        arg "branch_partials" { dir = "in", dtype = "f32", form = "k_partials", shape = { "kSplits", branch[1], branch[2] },
                                port = port },
    }
    for _, a in ipairs(rows.stream_args()) do
        table.insert(list, a)
    end
    return list
end

-- The packets of kGroup ranks come on top of what a local boundary holds.
function rows.exchange_registers(c, blocks)
    return math.min(rows.registers(c, blocks) + 16 * math.min(c.kGroup, c.kRanks), 65536 // c.kThreads // 8 * 8, 255)
end

-- A tactic of an exchange: how many ranks are polled together.
local function with_group(t, group)
    return { kThreads = t.kThreads, kBlocks = t.kBlocks, kGroup = group }
end

local function with_groups(tactics)
    local list = {}
    for _, t in ipairs(tactics) do
        for _, group in ipairs { 4, 2, 8 } do
            list[#list + 1] = with_group(t, group)
        end
    end
    return list
end

function rows.exchange_tactics(c)
    return with_groups(rows.tactics(c))
end

function rows.split_exchange_tactics(c)
    return with_groups(rows.split_tactics(c))
end

-- Bytes read per element of the branch.
function rows.branch_bytes(c)
    return c.kSplits == 0 and 2 or 4 * c.kSplits
end

function rows.exchange_default(c)
    return with_group({ kThreads = math.min(rows.default(c).kThreads, 512) }, 4) -- with 1024 threads the packets spill
end

-- One octet a thread: each waits for its own packets.
function rows.split_exchange_default(c)
    local blocks = most_blocks(c)
    return with_group({ kBlocks = blocks, kThreads = threads_of(c, blocks, 1) }, 8)
end

function rows.ranks_constant()
    return const "kRanks" { type = "int", ranks = true, doc = "ranks" }
end

return rows
