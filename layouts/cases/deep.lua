-- SPDX-License-Identifier: Apache-2.0
-- The layers of the whole model with small widths: as many nodes as a real step has, for the host time that enqueueing one takes.

local muse_spark = include "muse_spark_model.lua"

local full = {}
for l = 1, 61, 4 do
    table.insert(full, l)
end

local size = {
    layers = 62, hidden = 256, heads = 32, kv_heads = 16, head_dim = 32, experts = 32, top_k = 4, pooled = 256, inter = 256,
    vocab = 512, window = 40, full = full, bf16 = { 0, 61 },
}

return layout "deep" {
    doc = "62 layers of small widths",
    deployments = {
        deployment { tp = 1, max_context = 128, variants = { { 1, 1 }, { 1, 8 } }, set = { head = true },
                     provide = muse_spark.providers { tp = 1, splits = 1 } },
    },
    model = function(d)
        return muse_spark.build(size, d)
    end,
}
