-- SPDX-License-Identifier: Apache-2.0
-- Four layers of Muse Spark at full width, one of each kind, so that one GPU can check every kernel of the whole model.

local muse_spark = include "muse_spark_model.lua"

local size = {
    layers = 4, hidden = 8192, heads = 128, kv_heads = 16, head_dim = 64, experts = 256, top_k = 8, pooled = 4096, inter = 4096,
    vocab = 202048, window = 2048, full = { 1, 3 }, bf16 = { 0, 3 },
}

local function serve(tp, name)
    local packed, by_nccl = tp >= 8, name == "nccl"
    return deployment { tp = tp, name = name, max_context = 33024, variants = { { 1, 1 }, { 1, 8 }, { 4, 8 } }, aux = { 2 },
                        set = { head = true, packed = packed, by_nccl = by_nccl },
                        provide = muse_spark.providers { tp = tp, splits = 1, packed = packed, by_nccl = by_nccl } }
end

return layout "muse_spark_slice" {
    doc = "One layer of each kind of Muse Spark Open at full width",
    deployments = { serve(1), serve(2), serve(4), serve(8), serve(2, "nccl"), serve(4, "nccl"), serve(8, "nccl") },
    model = function(d)
        return muse_spark.build(size, d)
    end,
}
