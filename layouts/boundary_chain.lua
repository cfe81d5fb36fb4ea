-- SPDX-License-Identifier: Apache-2.0
-- Nothing but attention boundaries at full width, each one's branch what the one before made: a chain of dependent exchanges, to
-- be timed.

local HIDDEN <const> = 8192
local LAYERS <const> = 32

local function vector(name, init)
    return weight(name) { "bf16", HIDDEN, from = { tensor("layers.{l}." .. name) { "bf16", HIDDEN, init = init } } }
end

-- From branch `x` and stream `s` to branch `y` and stream `t`.
local function boundary(name, x, s, y, t)
    return part(name .. ".sum") "rank_sum" { reads = { parts = x }, writes = { a = name .. ".a" } },
        part(name .. ".residual") "residual" {
            reads = { branch = name .. ".a", s = s, alpha = "alpha", beta = "beta" }, writes = { s_out = t }, set = { eps = 1e-6 } },
        part(name .. ".norm") "norm" {
            reads = { s = t, gain = "gain" }, writes = { x = y }, set = { eps = 1e-5, center = 1 } }
end

-- A layer: there and back. The first one's stream is the step's input.
local function layer(s)
    local parts = { boundary("there", "x", s, "y", "t") }
    for _, p in ipairs { boundary("back", "y", "t", "x", "s") } do
        table.insert(parts, p)
    end
    return parts
end

local function build()
    local layers = { "first" }
    while #layers < LAYERS do
        table.insert(layers, "boundaries")
    end
    return model {
        values = {
            value "start" { "f32", rows, HIDDEN, input = true },
            value "s" { "f32", rows, HIDDEN, output = true },
            value "t" { "f32", rows, HIDDEN },
            value "x" { "bf16", rows, HIDDEN, output = true },
            value "y" { "bf16", rows, HIDDEN },
            value "there.a" { "bf16", rows, HIDDEN },
            value "back.a" { "bf16", rows, HIDDEN },
            value "alpha" { "f32", HIDDEN, per = "layer" },
            value "beta" { "f32", HIDDEN, per = "layer" },
        },
        weights = { vector("gain", "offset"), vector("mix", "gate") },
        prepare = {
            part "mixing" "residual_gate" {
                reads = { gate = "mix" }, writes = { alpha = "alpha", beta = "beta" }, set = { temperature = 0.3, clamp = 1e-3 } },
        },
        prologue = {
            part "norm" "norm" { reads = { s = "start", gain = "gain" }, writes = { x = "x" }, set = { eps = 1e-5, center = 1 } },
        },
        kinds = { kind "first" { parts = layer("start") }, kind "boundaries" { parts = layer("s") } },
        layers = layers,
    }
end

-- The ranks' parts are summed by the boundary itself, or (nccl) by a library before it.
local function provide(name)
    local list = { use "boundary/norm" { parts = { "norm" } }, use "prepare/residual_gate" { parts = { "mixing" } } }
    for _, way in ipairs { "there", "back" } do
        local sum, rest = way .. ".sum", { way .. ".residual", way .. ".norm" }
        if name == "nccl" then
            table.insert(list, use "collective/all_reduce" { parts = { sum } })
            table.insert(list, use "boundary/residual_norm" { parts = rest })
        else
            table.insert(list, use "boundary/exchange_residual_norm" { parts = { sum, rest[1], rest[2] } })
        end
    end
    return list
end

local function serve(tp, name)
    return deployment { tp = tp, name = name, max_context = 64, variants = { { 1, 1 }, { 1, 8 }, { 4, 8 } }, provide = provide(name) }
end

return layout "boundary_chain" {
    doc = "Dependent attention boundaries and nothing else",
    deployments = { serve(2), serve(4), serve(8), serve(2, "nccl"), serve(4, "nccl"), serve(8, "nccl") },
    model = build,
}
