-- SPDX-License-Identifier: Apache-2.0
-- Once at load: cosines and sines of every position.
return provider "prepare/rope_table" {
    doc = "table[p, j] = cos(p theta^(-2j/D)), table[p, D/2 + j] = sin of the same, j < D/2; the angle in double",
    parts = { "rope_table" },
    entry = "rope_table",
    constants = {
        const "kPositions" { type = "int", min = 1, max = 16777216, doc = "positions" },
        const "kWidth" { type = "int", min = 2, max = 512, doc = "width of a head" },
        const "kTheta" { type = "float", from = "rope_table.theta", doc = "base of the wavelengths" },
    },
    args = {
        arg "table" { dir = "out", dtype = "f32", shape = { "kPositions", "kWidth" }, port = "rope_table.table" },
    },
    launch = function(c) return { grid = { (c.kPositions + 63) // 64, 1, 1 }, block = 256, shared = 0, registers = 128 } end,
    cost = function(c) return { bytes = 4 * c.kPositions * c.kWidth, operations = 60 * c.kPositions * c.kWidth } end,
    unsupported = function(c)
        if c.kWidth % 2 ~= 0 then
            return "the head width must be even, found " .. c.kWidth
        end
    end,
}
