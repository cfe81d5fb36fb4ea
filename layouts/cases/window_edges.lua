-- SPDX-License-Identifier: Apache-2.0
-- Sizes of the golden case window_edges; its requests of one and of two tokens are two batches, so that tests/golden can compare with an independent model.

local muse_spark = include "muse_spark_model.lua"

local size = {
    layers = 5, hidden = 256, heads = 16, kv_heads = 16, head_dim = 16, experts = 32, top_k = 4, pooled = 128, inter = 128,
    vocab = 320, window = 24, full = { 1 }, bf16 = { 0, 4 },
}

local function serve(tp, name)
    return deployment { tp = tp, name = name, max_context = 80, variants = { { 2, 1 }, { 3, 2 } },
                        set = { head = true, ep = name == "ep" }, provide = muse_spark.providers { tp = tp, splits = 0, ep = name == "ep" } }
end

return layout "window_edges" {
    doc = "Sizes of the golden case window_edges; its requests of one and of two tokens are two batches",
    deployments = { serve(1), serve(2, "ep") },
    model = function(d)
        return muse_spark.build(size, d)
    end,
}
