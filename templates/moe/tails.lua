-- SPDX-License-Identifier: Apache-2.0
-- What the tails of the experts share: one block a token, whose routes' rows stay in registers.
local tails = {}

local function vectors(c, warps)
    return (c.kWidth // 8 + warps * 32 - 1) // (warps * 32)
end

-- Warps with which a thread keeps its share of all routes in 64 registers.
local function fits(c, warps)
    return vectors(c, warps) * c.kTopK * 4 <= 64
end

function tails.warps(c)
    local list = {}
    for _, warps in ipairs { 16, 8, 4, 2, 1 } do
        local fewer = warps // 2 -- would do as well
        if fits(c, warps) and (warps == 1 or vectors(c, fewer) > vectors(c, warps)) then
            table.insert(list, { kWarps = warps })
        end
    end
    return list
end

-- Each choice of warps with each number of packets polled together.
function tails.grouped(groups)
    return function(c, arch)
        local list = {}
        for _, t in ipairs(tails.warps(c)) do
            for _, group in ipairs(groups) do
                table.insert(list, { kWarps = t.kWarps, kGroup = group })
            end
        end
        return list
    end
end

-- `group`: what is polled together; `order`: attribute with the order of the sum over ranks.
function tails.constants(group, order)
    local list = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kWidth" { type = "int", min = 8, doc = "expert output width" },
        const "kTopK" { type = "int", min = 1, max = 32, doc = "routes of a token" },
        const "kRoutes" { type = "int", min = 1, doc = "kRows * kTopK" },
        const "kExpertRows" { type = "int", min = 1, doc = "rows of the permuted space" },
        const "kEps" { type = "float", min = 1e-30, from = "post_expert_norm.eps",
                       doc = "added to the mean square" },
        const "kCenter" { type = "int", from = "post_expert_norm.center", min = 0, max = 1,
                          doc = "the gain is center + w" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 16,
                         doc = "warps of the block that holds a token" },
    }
    if group then
        table.insert(list, const "kGroup" { type = "int", tactic = true, min = 1, max = 16,
                                            doc = group })
        table.insert(list, const "kBf16Each" { type = "int", from = order, default = 0, min = 0,
                                               max = 1,
                                               doc = "sum over ranks: 0 fp32 from +0, rounded once; "
                                                   .. "1 from rank 0's value, rounded each time" })
    end
    return list
end

-- `rows` and `m`: the ports they stand at; `payload`: bytes that a rank sends to a peer, or nil; `settled`: the kernel reads
-- what routing left before it waits.
function tails.args(rows, m, payload, settled)
    local list = {
        arg "rows" { dir = "in", dtype = "bf16", shape = { "kExpertRows", "kWidth" }, port = rows },
        arg "expanded_to_permuted" { dir = "in", settled = settled, dtype = "i32", shape = { "kRoutes" },
                                     port = "post_expert_norm.expanded_to_permuted" },
        arg "gain" { dir = "in", dtype = "bf16", shape = { "kWidth" },
                     port = "post_expert_norm.gain" },
        arg "weights" { dir = "in", settled = settled, dtype = "f32", shape = { "kRows", "kTopK" },
                        port = "weighted_sum.weights" },
        arg "m" { dir = "out", dtype = "bf16", shape = { "kRows", "kWidth" }, port = m },
    }
    if payload then
        table.insert(list, arg "mailbox" { dir = "mailbox", exchange = "tail", bytes = payload })
    end
    return list
end

-- Before the scratch of the sums lie the pointers of an exchange.
function tails.launch(exchange)
    local pointers = exchange and 128 or 0
    return function(c, arch)
        return {
            grid = { c.kRows, 1, 1 }, block = c.kWarps * 32,
            shared = pointers + c.kWarps * c.kTopK * 4, registers = 128,
        }
    end
end

function tails.cost(c)
    return {
        bytes = 2 * (c.kRoutes + c.kRows + 1) * c.kWidth + 8 * c.kRoutes,
        operations = 6 * c.kRoutes * c.kWidth,
    }
end

function tails.unsupported(c, arch)
    if c.kWidth % 8 ~= 0 then
        return "the expert output width must be a multiple of 8 (16-byte loads)"
    end
    if c.kRoutes ~= c.kRows * c.kTopK then
        return "expanded_to_permuted must have one element a route"
    end
    if not fits(c, 16) then
        return "a token's rows do not fit the registers of 16 warps: "
            .. "the width times the routes of a token must be at most 65536"
    end
end

return tails
