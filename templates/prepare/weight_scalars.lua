-- SPDX-License-Identifier: Apache-2.0
-- Once at load, W4A16: the global scales of the experts that this rank holds, taken apart.
return provider "prepare/weight_scalars" {
    doc = "gate_alpha = s_gate, up_alpha = s_up, alpha = s_down of this rank's experts; activations have no scale",
    parts = { "weight_scalars" },
    entry = "weight_scalars",
    constants = {
        const "kScaled" { type = "int", min = 1, max = 65536, doc = "experts whose scales are given: all, or this rank's" },
        const "kLocal" { type = "int", min = 1, max = 65536, doc = "experts of this rank" },
    },
    args = {
        arg "scale13" { dir = "in", dtype = "f32", shape = { "kScaled", 2 }, port = "weight_scalars.scale13" },
        arg "scale2" { dir = "in", dtype = "f32", shape = { "kScaled" }, port = "weight_scalars.scale2" },
        arg "rank" { dir = "in", dtype = "i32", shape = { 2 }, port = "weight_scalars.rank" },
        arg "gate_alpha" { dir = "out", dtype = "f32", shape = { "kLocal" }, port = "weight_scalars.gate_alpha" },
        arg "up_alpha" { dir = "out", dtype = "f32", shape = { "kLocal" }, port = "weight_scalars.up_alpha" },
        arg "alpha" { dir = "out", dtype = "f32", shape = { "kLocal" }, port = "weight_scalars.alpha" },
    },
    launch = function() return { grid = { 1, 1, 1 }, block = 32, shared = 0, registers = 64 } end,
    cost = function(c) return { bytes = 24 * c.kLocal, operations = 0 } end,
    unsupported = function(c)
        if c.kScaled % c.kLocal ~= 0 then
            return "the local experts must divide those with scales, found " .. c.kLocal .. " of " .. c.kScaled
        end
    end,
}
