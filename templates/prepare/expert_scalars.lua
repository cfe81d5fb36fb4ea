-- SPDX-License-Identifier: Apache-2.0
-- Once at load: the NVFP4 scalars of a layer's experts, folded.
return provider "prepare/expert_scalars" {
    doc = "a13, a2 = greatest input scales of all experts; input_gscale = 1 / a13, gate_alpha = a13 s_gate, "
        .. "up_alpha = (a13 s_up) / a2, alpha = a2 s_down; every product and quotient rounded to fp32",
    parts = { "expert_scalars" },
    entry = "expert_scalars",
    constants = {
        const "kExperts" { type = "int", min = 1, max = 65536, doc = "experts" },
    },
    args = {
        arg "scale13" { dir = "in", dtype = "f32", shape = { "kExperts", 2 }, port = "expert_scalars.scale13" },
        arg "input13" { dir = "in", dtype = "f32", shape = { "kExperts", 2 }, port = "expert_scalars.input13" },
        arg "scale2" { dir = "in", dtype = "f32", shape = { "kExperts" }, port = "expert_scalars.scale2" },
        arg "input2" { dir = "in", dtype = "f32", shape = { "kExperts" }, port = "expert_scalars.input2" },
        arg "input_gscale" { dir = "out", dtype = "f32", shape = { 1 }, port = "expert_scalars.input_gscale" },
        arg "gate_alpha" { dir = "out", dtype = "f32", shape = { "kExperts" }, port = "expert_scalars.gate_alpha" },
        arg "up_alpha" { dir = "out", dtype = "f32", shape = { "kExperts" }, port = "expert_scalars.up_alpha" },
        arg "alpha" { dir = "out", dtype = "f32", shape = { "kExperts" }, port = "expert_scalars.alpha" },
    },
    launch = function() return { grid = { 1, 1, 1 }, block = 32, shared = 0, registers = 64 } end,
    cost = function(c) return { bytes = 36 * c.kExperts, operations = 8 * c.kExperts } end,
}
