-- SPDX-License-Identifier: Apache-2.0
-- What the four providers of the norm in front of the experts share. A block holds a row; the
-- pooler's output is whole or in K-split sums, on one rank or in columns over the ranks. The launch may have one block more,
-- which routes: it needs the router's logits only and waits for no rank.
local routing_part <const> = include "moe/routing_part.lua"
local alone <const> = include "collective/alone.lua"
local pooled = {}

-- Warps whose threads each get a slot of sixteen values, at most `most`.
local function warps(c, most)
    return math.max(1, math.min(most, (c.kWidth // 16 + 31) // 32))
end

function pooled.constants(exchange)
    local list = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step" },
        const "kWidth" { type = "int", min = 16, max = 16384, doc = "expert input width" },
        const "kSplits" { type = "int", min = 0, doc = "K-split sums to add; 0: h0 is whole" },
        const "kEps" { type = "float", min = 1e-30, from = "expert_norm.eps", doc = "added to the mean square" },
        const "kCenter" { type = "int", from = "expert_norm.center", min = 0, max = 1,
                          doc = "the gain is center + w" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 32,
                         doc = "warps of the block that holds a row" },
    }
    if exchange then
        table.insert(list, const "kColumns" { type = "int", min = 16, max = 16384,
                                              doc = "a rank's columns of the width" })
    else
        table.insert(list, const "kRanks" { type = "int", default = 0, min = 0, max = 16,
                                            doc = "ranks whose columns a library gathered; 0: none" })
        table.insert(list, const "kColumns" { type = "int", default = 0, min = 0, max = 16384,
                                              doc = "columns of each" })
    end
    return pooled.append(list, routing_part.constants(true))
end

-- The pooler's output in its two forms; or what a library gathered, rank by rank.
function pooled.inputs(exchange)
    local columns = exchange and "kColumns" or "kWidth"
    local port = exchange and "pool_gather.columns" or { "pool_gather.columns", "expert_norm.h0" }
    local list = {
        arg "columns" { dir = "in", dtype = "bf16", shape = { "kRows", columns }, port = port },
        arg "partials" { dir = "in", dtype = "f32", form = "k_partials",
                         shape = { "kSplits", "kRows", columns }, port = port },
        arg "gain" { dir = "in", dtype = "bf16", shape = { "kWidth" }, port = "expert_norm.gain" },
    }
    if not exchange then
        table.insert(list, 3, arg "gathered" { dir = "in", dtype = "bf16", form = "columns",
                                               shape = { "kRanks", "kRows", "kColumns" }, port = port })
    end
    return list
end

function pooled.mailbox()
    return arg "mailbox" { dir = "mailbox", exchange = "pool",
                           bytes = function(c) return 2 * c.kRows * c.kColumns end }
end

function pooled.append(list, more)
    for _, item in ipairs(more) do
        table.insert(list, item)
    end
    return list
end

-- Before the scratch of the row's sum, or what routing needs, lie the pointers of an exchange.
function pooled.launch(exchange)
    local pointers = exchange and 128 or 0
    return function(c, arch)
        local routes = c.kRoutes > 0
        return {
            grid = { c.kRows + (routes and 1 or 0), 1, 1 }, block = c.kWarps * 32,
            shared = pointers + math.max(c.kWarps * 4, routes and routing_part.shared_bytes(c) or 0),
            registers = math.min(128, 65536 // (c.kWarps * 32)),
        }
    end
end

-- What the kinds of parts `main` cost and, where the launch routes, routing with them.
local function with_routing(cost)
    return function(c)
        local t = cost(c)
        if c.kRoutes > 0 then
            t.bytes = t.bytes + routing_part.bytes(c)
            t.operations = t.operations + routing_part.operations(c)
        end
        return t
    end
end

-- Every list of kinds of parts, with and without routing.
local function kinds(...)
    local list = {}
    for _, with in ipairs { false, true } do
        for _, names in ipairs { ... } do
            local all = with and { "routing" } or {}
            table.insert(list, pooled.append(all, names))
        end
    end
    return list
end

function pooled.input_bytes(c)
    return c.kSplits == 0 and 2 or 4 * c.kSplits
end

function pooled.tactics(c, arch)
    local list = {}
    for _, most in ipairs { 8, 16, 4, 2 } do
        local n = warps(c, most)
        if c.kWidth <= n * 32 * 64 and (most == 8 or n ~= warps(c, 8)) then
            table.insert(list, { kWarps = n })
        end
    end
    for _, n in ipairs { 32, 16 } do -- more than the row wants, for the block that routes
        if c.kRoutes > 0 and n <= c.kRows and n > warps(c, 16) then
            table.insert(list, { kWarps = n })
        end
    end
    return list
end

-- A routing block takes a token a warp where registers allow it (for sm_120a nvcc 13 does not do with the 64 of 32 warps): the
-- launches behind it wait for that block.
function pooled.default(c, arch)
    local list = { { kWarps = warps(c, 8) } }
    for _, n in ipairs(arch.name == "sm_120a" and { 16 } or { 16, 32 }) do
        if arch.name ~= "host" and c.kRoutes > 0 and n <= c.kRows and n > list[1].kWarps then
            table.insert(list, 1, { kWarps = n })
        end
    end
    return arch.name == "host" and list[1] or list
end

function pooled.unsupported(exchange)
    return function(c, arch)
        local reason = not exchange and alone(arch, { "pool_gather" })
        if reason then
            return reason
        end
        if c.kWidth % 16 ~= 0 then
            return "the expert input width must be a multiple of 16 (one NVFP4 block)"
        end
        if not exchange and (c.kColumns % 16 ~= 0 or (c.kColumns > 0 and c.kRanks * c.kColumns ~= c.kWidth)) then
            return "the ranks' columns must make the width in multiples of 16, found "
                .. c.kRanks .. " times " .. c.kColumns .. " of " .. c.kWidth
        end
        if exchange and (c.kColumns % 16 ~= 0 or c.kWidth % c.kColumns ~= 0) then
            return "a rank's columns must divide the width in multiples of 16, found "
                .. c.kColumns .. " of " .. c.kWidth
        end
        if c.kWarps and c.kWidth > c.kWarps * 32 * 64 then
            return "more than 64 values a thread: take more warps"
        end
        if c.kRoutes > 0 then
            return routing_part.unsupported(c)
        end
    end
end

-- The provider that writes h1 alone.
function pooled.expert_norm(exchange)
    local columns = exchange and "kColumns" or "kWidth"
    local args = pooled.inputs(exchange)
    table.insert(args, arg "h1" { dir = "out", dtype = "bf16", shape = { "kRows", "kWidth" },
                                  port = "expert_norm.h1" })
    pooled.append(args, routing_part.args(true))
    if exchange then
        table.insert(args, pooled.mailbox())
    end
    return {
        doc = "h1 = r16(rms(h0) * (center + gain))"
            .. (exchange and ", h0 gathered by columns over the ranks" or ""),
        parts = exchange and kinds { "pool_gather", "expert_norm" }
            or kinds({ "pool_gather", "expert_norm" }, { "expert_norm" }),
        entry = exchange and "exchange_expert_norm" or "expert_norm",
        constants = pooled.constants(exchange),
        args = args,
        launch = pooled.launch(exchange),
        cost = with_routing(function(c)
            return {
                bytes = c.kRows * (c[columns] * pooled.input_bytes(c) + 2 * c.kWidth)
                    + 2 * c.kWidth,
                operations = 5 * c.kRows * c.kWidth,
            }
        end),
        tactics = pooled.tactics,
        default = pooled.default,
        unsupported = pooled.unsupported(exchange),
        early = true,
        triggers = true,
    }
end

-- The provider that quantises as well.
function pooled.norm_quantise(exchange)
    local columns = exchange and "kColumns" or "kWidth"
    local constants = pooled.append(pooled.constants(exchange), {
        const "kCodeBytes" { type = "int", min = 8, doc = "bytes of a row's codes" },
        const "kBlocks" { type = "int", min = 1, doc = "blocks of 16 values in a row" },
    })
    local args = pooled.append(pooled.inputs(exchange), {
        arg "input_gscale" { dir = "in", dtype = "f32", shape = { 1 },
                             port = "quantise.input_gscale" },
        arg "codes" { dir = "out", dtype = "u8", shape = { "kRows", "kCodeBytes" },
                      port = "quantise.codes" },
        arg "scales" { dir = "out", dtype = "e4m3", shape = { "kRows", "kBlocks" },
                       port = "quantise.scales" },
    })
    pooled.append(args, routing_part.args(true))
    if exchange then
        table.insert(args, pooled.mailbox())
    end
    local refused = pooled.unsupported(exchange)
    return {
        doc = "h1 = r16(rms(h0) * (center + gain)); codes, scales = nvfp4(h1, input_gscale)"
            .. (exchange and "; h0 gathered by columns over the ranks" or ""),
        parts = exchange and kinds { "pool_gather", "expert_norm", "quantise" }
            or kinds({ "pool_gather", "expert_norm", "quantise" }, { "expert_norm", "quantise" }),
        entry = exchange and "exchange_norm_quantise" or "norm_quantise",
        constants = constants,
        args = args,
        launch = pooled.launch(exchange),
        cost = with_routing(function(c)
            return {
                bytes = c.kRows * (c[columns] * pooled.input_bytes(c) + c.kCodeBytes + c.kBlocks)
                    + 2 * c.kWidth,
                operations = 8 * c.kRows * c.kWidth,
            }
        end),
        tactics = pooled.tactics,
        default = pooled.default,
        unsupported = function(c, arch)
            local reason = refused(c, arch)
            if reason then
                return reason
            end
            if c.kCodeBytes * 2 ~= c.kWidth or c.kBlocks * 16 ~= c.kWidth then
                return "codes and scales must have width / 2 and width / 16 elements a row"
            end
        end,
        early = true,
        triggers = true,
    }
end

return pooled
