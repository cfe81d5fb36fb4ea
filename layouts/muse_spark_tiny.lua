-- SPDX-License-Identifier: Apache-2.0
-- Muse Spark with small numbers: one layer of each kind, every size divisible by 16 ranks, a context longer than the window.

local muse_spark = include "muse_spark_model.lua"

local size = {
    layers = 4, hidden = 256, heads = 32, kv_heads = 16, head_dim = 32, experts = 32, top_k = 4, pooled = 256, inter = 256,
    vocab = 512, window = 40, full = { 1, 3 }, bf16 = { 0, 3 },
}

local function serve(tp, name)
    local packed = name == "packed" -- as the slices of the large model are from 8 ranks on
    local invariant = name == "invariant"
    local apart = name == "apart" -- a checkpoint with tensors of its own for each expert
    return deployment { tp = tp, name = name, max_context = 128, variants = { { 1, 1 }, { 1, 8 }, { 4, 8 } }, aux = { 2 },
                        invariant = invariant,
                        set = { head = true, ep = name == "ep" or apart, experts_apart = apart, w4a16 = name == "w4a16",
                                by_nccl = name == "nccl",
                                packed = packed, bf16 = name == "bf16" },
                        provide = muse_spark.providers { tp = tp, splits = 1, ep = name == "ep" or apart,
                                                         w4a16 = name == "w4a16", by_nccl = name == "nccl", packed = packed,
                                                         invariant = invariant, bf16 = name == "bf16" } }
end

return layout "muse_spark_tiny" {
    doc = "Muse Spark in miniature, for machines without a GPU",
    deployments = {
        serve(1), serve(2), serve(4), serve(8), serve(16),
        serve(2, "nccl"), serve(16, "nccl"), serve(2, "packed"),
        serve(1, "apart"), serve(2, "apart"),
        serve(1, "bf16"), serve(2, "bf16"), serve(4, "bf16"), serve(8, "bf16"), serve(16, "bf16"),
        serve(1, "invariant"), serve(2, "invariant"), serve(4, "invariant"), serve(8, "invariant"), serve(16, "invariant"),
        serve(2, "ep"), serve(4, "ep"), serve(8, "ep"), serve(16, "ep"),
        serve(1, "w4a16"), serve(2, "w4a16"), serve(4, "w4a16"), serve(8, "w4a16"), serve(16, "w4a16"),
    },
    model = function(d)
        return muse_spark.build(size, d)
    end,
}
