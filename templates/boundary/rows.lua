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

-- Registers of a thread that holds `per` octets of a gated residual: weights, stream and branch of each.
function rows.registers(c)
    local per = (c.kHidden // 8 + c.kThreads - 1) // c.kThreads
    local need = per <= 1 and 64 or per == 2 and 128 or per == 3 and 168 or 255
    return math.min(need, 65536 // c.kThreads // 8 * 8)
end

function rows.default(c)
    return { kThreads = threads(c) }
end

function rows.unsupported(c)
    if c.kHidden % 8 ~= 0 then
        return "the width must be a multiple of 8, found " .. c.kHidden
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
        const "kThreads" { type = "int", tactic = true, min = 32, max = 1024, doc = "threads of a row" },
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
function rows.exchange_registers(c)
    return math.min(rows.registers(c) + 16 * c.kGroup, 65536 // c.kThreads // 8 * 8, 255)
end

-- A tactic of an exchange: how many ranks are polled together.
local function with_group(t, group)
    return { kThreads = t.kThreads, kGroup = group }
end

function rows.exchange_tactics(c)
    local list = {}
    for _, t in ipairs(rows.tactics(c)) do
        for _, group in ipairs { 4, 2, 8 } do
            list[#list + 1] = with_group(t, group)
        end
    end
    return list
end

-- Bytes read per element of the branch.
function rows.branch_bytes(c)
    return c.kSplits == 0 and 2 or 4 * c.kSplits
end

function rows.exchange_default(c)
    return with_group({ kThreads = math.min(rows.default(c).kThreads, 512) }, 4) -- with 1024 threads the packets spill
end

return rows
