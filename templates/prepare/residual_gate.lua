-- SPDX-License-Identifier: Apache-2.0
-- Once at load: the two coefficients of a gated residual from its learned gate.
return provider "prepare/residual_gate" {
    doc = "u = gate / temperature; beta = sig(u), alpha = sqrt(max(sig(-u) (1 + sig(u)), clamp)): alpha^2 + beta^2 = 1 above the clamp",
    parts = { "residual_gate" },
    entry = "residual_gate",
    constants = {
        const "kHidden" { type = "int", min = 1, max = 65536, doc = "channels" },
        const "kTemperature" { type = "float", from = "residual_gate.temperature", doc = "divides the gate" },
        const "kClamp" { type = "float", from = "residual_gate.clamp", doc = "least alpha^2" },
    },
    args = {
        arg "gate" { dir = "in", dtype = "bf16", shape = { "kHidden" }, port = "residual_gate.gate" },
        arg "alpha" { dir = "out", dtype = "f32", shape = { "kHidden" }, port = "residual_gate.alpha" },
        arg "beta" { dir = "out", dtype = "f32", shape = { "kHidden" }, port = "residual_gate.beta" },
    },
    launch = function(c) return { grid = { (c.kHidden + 255) // 256, 1, 1 }, block = 256, shared = 0, registers = 64 } end,
    cost = function(c) return { bytes = 10 * c.kHidden, operations = 20 * c.kHidden } end,
}
