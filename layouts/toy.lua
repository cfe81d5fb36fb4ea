-- SPDX-License-Identifier: Apache-2.0
-- The smallest whole layout: a norm, then two layers of two matrix products each. No model has its sizes.

local HIDDEN <const> = 96
local INNER <const> = 224
local LAYERS <const> = 2

-- The weight of one product, its rows split over the ranks or its columns.
local function product(name, rows, columns, shard)
    local n = { rows, columns }
    n[shard + 1] = split(n[shard + 1], name .. " " .. (shard == 0 and "rows" or "columns"), 16)
    return weight(name) { "bf16", n[1], n[2],
        from = { tensor("layers.{l}." .. name .. ".weight") { "bf16", rows, columns, shard = shard, init = "weight" } } }
end

local function build()
    local mlp = {
        part "up" "gemm" { reads = { x = "x", w = "up" }, writes = { y = "h" } },
        part "down" "gemm" { reads = { x = "h", w = "down" }, writes = { y = "x" } },
    }
    local layers = {}
    for l = 1, LAYERS do
        layers[l] = "mlp"
    end
    return model {
        values = {
            value "s" { "f32", rows, HIDDEN, input = true },
            value "x" { "bf16", rows, HIDDEN, output = true },
            value "h" { "bf16", rows, split(INNER, "inner width", 16) },
        },
        weights = {
            weight "gain" { "bf16", HIDDEN, from = { tensor "norm.weight" { "bf16", HIDDEN, init = "offset" } } },
            product("up", INNER, HIDDEN, 0),
            product("down", HIDDEN, INNER, 1),
        },
        prologue = {
            part "norm" "norm" { reads = { s = "s", gain = "gain" }, writes = { x = "x" }, set = { eps = 1e-5, center = 1 } },
        },
        kinds = { kind "mlp" { parts = mlp } },
        layers = layers,
    }
end

return layout "toy" {
    doc = "A norm and four matrix products",
    deployments = {
        deployment { tp = 1, max_context = 64, variants = { { 1, 1 }, { 1, 8 }, { 4, 8 } }, provide = {
            use "boundary/norm" { parts = { "norm" } },
            use "gemm/skinny" { parts = { "up" } },
            use "gemm/skinny" { parts = { "down" } },
        } },
    },
    model = build,
}
