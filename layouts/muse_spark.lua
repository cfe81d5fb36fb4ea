-- SPDX-License-Identifier: Apache-2.0
-- Muse Spark Open 816B-A42B: 62 MoE layers, every fourth one with full attention, NVFP4 experts but in the edge layers 0 and 61.

local muse_spark = include "muse_spark_model.lua"

local full = {}
for l = 1, 61, 4 do
    table.insert(full, l)
end

local size = {
    layers = 62, hidden = 8192, heads = 128, kv_heads = 16, head_dim = 64, experts = 256, top_k = 8, pooled = 4096, inter = 4096,
    vocab = 202048, window = 2048, full = full, bf16 = { 0, 61 },
}

-- The slices of 8 ranks and more leave room for all rows of a step in shared memory. Packed experts stand in memory beside the
-- weights that they were packed from: 109 GB a rank at 8.
local function serve(tp, name)
    local packed = tp >= 8 and (not name or name == "invariant")
    local invariant = name == "invariant"
    return deployment { tp = tp, name = name, max_context = 33024, variants = { { 1, 1 }, { 1, 8 }, { 4, 8 } },
                        invariant = invariant,
                        aux = { 1, 16, 30, 44, 59 },
                        set = { head = true, ep = name == "ep", w4a16 = name == "w4a16", by_nccl = name == "nccl",
                                packed = packed, bf16 = name == "bf16" },
                        provide = muse_spark.providers { tp = tp, splits = 1, ep = name == "ep",
                                                         w4a16 = name == "w4a16", by_nccl = name == "nccl", packed = packed,
                                                         invariant = invariant, bf16 = name == "bf16" } }
end

return layout "muse_spark" {
    doc = "Muse Spark Open, text decoder, decode steps of up to 32 rows",
    deployments = {
        serve(1), serve(2), serve(4), serve(8), serve(16),
        serve(2, "ep"), serve(4, "ep"), serve(8, "ep"), serve(16, "ep"), serve(16, "nccl"),
        serve(8, "bf16"), serve(16, "bf16"), -- checkpoints without NVFP4: 1.6 TB
        serve(1, "invariant"), serve(2, "invariant"), serve(4, "invariant"), serve(8, "invariant"), serve(16, "invariant"),
        serve(1, "w4a16"), serve(2, "w4a16"), serve(4, "w4a16"), serve(8, "w4a16"), serve(16, "w4a16"),
    },
    model = function(d)
        return muse_spark.build(size, d)
    end,
}
