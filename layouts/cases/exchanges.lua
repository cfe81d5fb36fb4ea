-- SPDX-License-Identifier: Apache-2.0
-- The least that ranks can do together: a product whose parts the boundary pushes and sums, then one that publishes them; for
-- the tests of faults, which take thousands of steps.

local HIDDEN <const> = 64
local EPS <const> = 1e-5

local function vector(name, init)
    return weight(name) { "bf16", HIDDEN, from = { tensor("layers.{l}." .. name) { "bf16", HIDDEN, init = init } } }
end

local function block(way, from, to)
    local function named(name)
        return name .. "_" .. way
    end
    return {
        part(named "proj") "gemm" { reads = { x = "x", w = "w" }, writes = { y = named "parts" } },
        part(named "sum") "rank_sum" { reads = { parts = named "parts" }, writes = { a = "a" } },
        part(named "residual") "residual" {
            reads = { branch = "a", s = from, alpha = "alpha", beta = "beta" }, writes = { s_out = to }, set = { eps = 1e-8 } },
        part(named "norm") "norm" { reads = { s = to, gain = "gain" }, writes = { x = "x" }, set = { eps = EPS, center = 1 } },
    }
end

local function build(d)
    return model {
        values = {
            value "s" { "f32", rows, HIDDEN, input = true },
            value "s1" { "f32", rows, HIDDEN },
            value "s2" { "f32", rows, HIDDEN, output = true },
            value "x" { "bf16", rows, HIDDEN, output = true },
            value "parts_push" { "bf16", rows, HIDDEN },
            value "parts_publish" { "bf16", rows, HIDDEN },
            value "alpha" { "f32", HIDDEN, per = "layer" },
            value "beta" { "f32", HIDDEN, per = "layer" },
        },
        weights = {
            vector("gain", "offset"),
            vector("mix", "gate"),
            weight "w" { "bf16", HIDDEN, HIDDEN,
                from = { tensor "layers.{l}.w" { "bf16", HIDDEN, d.tp * HIDDEN, shard = 1, init = "weight" } } },
        },
        prepare = {
            part "mixing" "residual_gate" {
                reads = { gate = "mix" }, writes = { alpha = "alpha", beta = "beta" }, set = { temperature = 0.3, clamp = 1e-3 } },
        },
        prologue = {
            part "first" "norm" { reads = { s = "s", gain = "gain" }, writes = { x = "x" }, set = { eps = EPS, center = 1 } },
        },
        kinds = { kind "push" { parts = block("push", "s", "s1") }, kind "publish" { parts = block("publish", "s1", "s2") } },
        layers = { "push", "publish" },
    }
end

local function serve(tp)
    return deployment { tp = tp, max_context = 96, variants = { { 1, 1 }, { 2, 4 } }, provide = {
        use "boundary/norm" { parts = { "first" } },
        use "gemm/skinny" { parts = { "proj_push" } },
        use "boundary/exchange_residual_norm" { parts = { "sum_push", "residual_push", "norm_push" } },
        use "gemm/publish" { parts = { "proj_publish" } },
        use "boundary/receive_residual_norm" { parts = { "sum_publish", "residual_publish", "norm_publish" } },
        use "prepare/residual_gate" { parts = { "mixing" } },
    } }
end

return layout "exchanges" {
    doc = "Two products and their sums over ranks through mailboxes",
    deployments = { serve(2), serve(4) },
    model = build,
}
