-- SPDX-License-Identifier: Apache-2.0
-- Four layers of Muse Spark at full width with a fifth of its experts: 22 GB of weights in both formats, for the time that loading takes.

local muse_spark = include "muse_spark_model.lua"

local size = {
    layers = 4, hidden = 8192, heads = 128, kv_heads = 16, head_dim = 64, experts = 48, top_k = 8, pooled = 4096, inter = 4096,
    vocab = 202048, window = 2048, full = { 1, 3 }, bf16 = { 0, 3 },
}

return layout "loading" {
    doc = "22 GB of weights",
    deployments = {
        deployment { tp = 1, max_context = 4096, variants = { { 1, 8 } }, set = { head = true },
                     provide = muse_spark.providers { tp = 1, splits = 1 } },
    },
    model = function(d)
        return muse_spark.build(size, d)
    end,
}
