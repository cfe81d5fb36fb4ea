-- SPDX-License-Identifier: Apache-2.0
-- Sizes of the golden case mini, so that tests/golden can compare with an independent model.

local muse_spark = include "muse_spark_model.lua"

local size = {
    layers = 4, hidden = 128, heads = 4, kv_heads = 2, head_dim = 32, experts = 8, top_k = 2, pooled = 64, inter = 64,
    vocab = 128, window = 24, full = { 1 }, bf16 = { 0, 3 },
}

local function serve(tp, name)
    return deployment { tp = tp, name = name, max_context = 64, variants = { { 1, 8 } },
                        set = { head = true, ep = name == "ep" }, provide = muse_spark.providers { tp = tp, splits = 0, ep = name == "ep" } }
end

return layout "mini" {
    doc = "Sizes of the golden case mini",
    deployments = { serve(1), serve(2), serve(2, "ep") },
    model = function(d)
        return muse_spark.build(size, d)
    end,
}
