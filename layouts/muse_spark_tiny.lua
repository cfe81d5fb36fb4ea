-- SPDX-License-Identifier: Apache-2.0
-- Muse Spark with small numbers: one layer of each kind, every size divisible by 16 ranks, a context longer than the window.

local muse_spark = include "muse_spark_model.lua"

local size = {
    layers = 4, hidden = 256, heads = 32, kv_heads = 16, head_dim = 32, experts = 32, top_k = 4, pooled = 256, inter = 256,
    vocab = 512, window = 40, full = { 1, 3 }, bf16 = { 0, 3 },
}

return layout "muse_spark_tiny" {
    doc = "Muse Spark in miniature, for machines without a GPU",
    deployments = {
        deployment { tp = 1, max_context = 128, variants = { { 1, 1 }, { 1, 8 }, { 4, 8 } }, aux = { 2 },
                     set = { head = true }, provide = muse_spark.local_providers(1) },
    },
    model = function(d)
        return muse_spark.build(size, d)
    end,
}
