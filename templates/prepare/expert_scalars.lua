-- SPDX-License-Identifier: Apache-2.0
-- Once at load: the NVFP4 scalars of a layer's experts, folded. The greatest input scales are those of all experts, because
-- one quantised input feeds all ranks; the scalars are those of this rank's experts.
return provider "prepare/expert_scalars" {
    doc = "a13, a2 = greatest input scales of all experts; input_gscale = 1 / a13, gate_alpha = a13 s_gate, "
        .. "up_alpha = (a13 s_up) / a2, alpha = a2 s_down; every product and quotient rounded to fp32",
    parts = { "expert_scalars" },
    entry = "expert_scalars",
    constants = {
        const "kExperts" { type = "int", min = 1, max = 65536, doc = "experts of all ranks" },
        const "kScaled" { type = "int", min = 1, max = 65536, doc = "experts whose weight scales are given: all, or this rank's" },
        const "kLocal" { type = "int", min = 1, max = 65536, doc = "experts of this rank" },
    },
    args = {
        arg "scale13" { dir = "in", dtype = "f32", shape = { "kScaled", 2 }, port = "expert_scalars.scale13" },
        arg "input13" { dir = "in", dtype = "f32", shape = { "kExperts", 2 }, port = "expert_scalars.input13" },
        arg "scale2" { dir = "in", dtype = "f32", shape = { "kScaled" }, port = "expert_scalars.scale2" },
        arg "input2" { dir = "in", dtype = "f32", shape = { "kExperts" }, port = "expert_scalars.input2" },
        arg "rank" { dir = "in", dtype = "i32", shape = { 2 }, port = "expert_scalars.rank" },
        arg "input_gscale" { dir = "out", dtype = "f32", shape = { 1 }, port = "expert_scalars.input_gscale" },
        arg "gate_alpha" { dir = "out", dtype = "f32", shape = { "kLocal" }, port = "expert_scalars.gate_alpha" },
        arg "up_alpha" { dir = "out", dtype = "f32", shape = { "kLocal" }, port = "expert_scalars.up_alpha" },
        arg "alpha" { dir = "out", dtype = "f32", shape = { "kLocal" }, port = "expert_scalars.alpha" },
    },
    launch = function() return { grid = { 1, 1, 1 }, block = 32, shared = 0, registers = 64 } end,
    cost = function(c) return { bytes = 24 * c.kExperts + 12 * c.kLocal, operations = 8 * c.kExperts } end,
    unsupported = function(c)
        if c.kScaled % c.kLocal ~= 0 then
            return "the local experts must divide those with scales, found " .. c.kLocal .. " of " .. c.kScaled
        end
    end,
}
