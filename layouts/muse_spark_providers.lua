-- SPDX-License-Identifier: Apache-2.0
-- Which provider covers which parts of the Muse Spark step (muse_spark_model.lua), for a TP size and the ways of its exchanges.

local function append(list, more)
    for _, item in ipairs(more) do
        table.insert(list, item)
    end
end

-- Providers of everything but the experts, on one rank: weights stream through tensor-core GEMMs that leave K-split partial
-- sums to the next launch where that launch can add them in its prologue.
local function dense_on_one_rank(partials)
    return {
        use "embedding/embed" { parts = { "embed.lookup", "embed.sum", "embed.norm" } },
        use "boundary/residual_norm" { parts = { "in.gather", "in.residual", "in.norm" } },
        use "gemm/skinny" { parts = { "attn.proj" }, options = partials },
        use "boundary/residual_norm" { parts = { "mid.sum", "mid.residual", "mid.norm" } },
        use "gemm/skinny" { parts = { "moe.unpool" }, options = partials },
        use "boundary/residual_norm" { parts = { "final.gather", "final.residual", "final.norm" } },
        use "head/argmax" { parts = { "head.argmax" } },
    }
end

-- How the attention's parts are summed over the ranks: the boundary pushes and sums, the output projection publishes and
-- the boundary sums, or a library sums.
local attention_sums <const> = {
    push = function(partials)
        return {
            use "gemm/skinny" { parts = { "attn.proj" }, options = partials },
            use "boundary/exchange_residual_norm" { parts = { "mid.sum", "mid.residual", "mid.norm" } },
        }
    end,
    publish = function()
        return {
            use "gemm/publish" { parts = { "attn.proj" } },
            use "boundary/receive_residual_norm" { parts = { "mid.sum", "mid.residual", "mid.norm" } },
        }
    end,
    library = function()
        return {
            use "gemm/skinny" { parts = { "attn.proj" } },
            use "collective/all_reduce" { parts = { "mid.sum" } },
            use "boundary/residual_norm" { parts = { "mid.residual", "mid.norm" } },
        }
    end,
}

-- How the unpooler's columns come together.
local unpooler_gathers <const> = {
    publish = function()
        return {
            use "boundary/receive_residual_norm" { parts = { "in.gather", "in.residual", "in.norm" } },
            use "gemm/publish" { parts = { "moe.unpool" }, options = { columns = 1 } },
            use "boundary/receive_residual_norm" { parts = { "final.gather", "final.residual", "final.norm" } },
        }
    end,
    library = function()
        return {
            use "collective/all_gather" { parts = { "in.gather" } },
            use "boundary/residual_norm" { parts = { "in.residual", "in.norm" } },
            use "gemm/skinny" { parts = { "moe.unpool" } },
            use "collective/all_gather" { parts = { "final.gather" } },
            use "boundary/residual_norm" { parts = { "final.residual", "final.norm" } },
        }
    end,
}

-- Embedding and head where the library sums and gathers: no rank writes into another's memory.
local function ends_by_library()
    return {
        use "embedding/lookup" { parts = { "embed.lookup" } },
        use "collective/all_reduce" { parts = { "embed.sum" } },
        use "embedding/norm" { parts = { "embed.norm" } },
        use "head/best" { parts = { "head.best" } },
        use "collective/all_gather_i32" { parts = { "head.gather" } },
        use "head/pick" { parts = { "head.pick" } },
    }
end

local function ends_by_mailbox()
    return {
        use "embedding/exchange_embed" { parts = { "embed.lookup", "embed.sum", "embed.norm" } },
        use "head/exchange_argmax" { parts = { "head.argmax" } },
    }
end

local function pick(table_of, name, what)
    return table_of[name] or error("unknown way '" .. tostring(name) .. "' of " .. what)
end

-- A boundary that pushes by itself waits for fewer launches, a published product overlaps its pushes; the pushes of a rank grow
-- with the ranks, and from 16 on the library's sum is left to itself; its order may change with the number of rows.
local function attention_way(c)
    if c.attention or c.by_nccl then
        return c.attention or "library"
    end
    return c.tp < 8 and "push" or (c.tp < 16 or c.invariant) and "publish" or "library"
end

-- `c`: tp; splits (1: launches are joined, products leave K-split sums; 0: every value of the reference traces stands in a buffer);
-- by_nccl: the library sums and gathers everything (the model's `set.by_nccl` says so too); invariant (true: a row's sums have one
-- order whatever the batch); attention ("push", "publish", "library"), unpooler ("publish", "library"), which stand for the sum of
-- attention and the columns of the unpooler on several ranks.
local function dense_providers(c)
    local partials, list = { partials = c.splits }, {}
    if c.tp == 1 then
        append(list, dense_on_one_rank(partials))
    else
        append(list, c.by_nccl and ends_by_library() or ends_by_mailbox())
        append(list, pick(unpooler_gathers, c.unpooler or c.by_nccl and "library" or "publish", "gathering the unpooler's columns")())
        append(list, pick(attention_sums, attention_way(c), "summing attention")(partials))
    end
    append(list, {
        use "boundary/norm" { parts = { "in.norm" } }, -- of the first layer, where nothing precedes it
        use "gemm/skinny" { parts = { "attn.qkv" }, options = partials },
        use "head/logits" { parts = { "head.logits", "head.cap" } },
        use "prepare/residual_gate" { parts = { "prepare.attn_gate" } },
        use "prepare/residual_gate" { parts = { "prepare.ffn_gate" } },
        use "prepare/rope_table" { parts = { "prepare.rope" } },
    })
    local anchored = { anchored = c.invariant and 1 or 0 }
    append(list, c.splits == 1 and {
        use "attention/front_paged" { parts = { "attn.rope", "attn.insert", "attn.core", "attn.gated" }, options = anchored },
    } or {
        use "attention/qkv_front" { parts = { "attn.rope", "attn.insert" } },
        use "attention/paged" { parts = { "attn.core", "attn.gated" }, options = anchored },
    })
    return list
end

-- From the pooled columns to the experts' input: `gather` (parts: how the ranks' columns come together, where a provider does
-- both), norm and, for W4A4, quantisation. Where launches are joined (`c.splits` 1), routing is a block of them.
local function expert_inputs(c, exchange, gather)
    local list, prefix = {}, exchange and "moe/exchange_" or "moe/"
    local function cover(provider, routing, ...)
        local parts = { table.unpack(gather) }
        append(parts, c.splits == 1 and { routing } or {})
        append(parts, { ... })
        table.insert(list, use(prefix .. provider) { parts = parts })
    end
    cover("expert_norm", "edge.routing", "edge.norm")
    if c.w4a16 then
        cover("expert_norm", "moe.routing", "moe.norm")
    elseif not c.bf16 then
        cover("norm_quantise", "moe.routing", "moe.norm", "moe.quantise")
    end
    return list
end

-- How the pooler's columns come together and the experts' outputs are summed. The rows of sliced experts (without `ep`, on
-- several ranks) are summed before their norm.
local expert_exchanges <const> = {
    alone = function(c)
        local list = expert_inputs(c, false, { "moe.gather" })
        append(list, { use "moe/tail" { parts = { "moe.post_norm", "moe.sum", "moe.combine" } } })
        return list
    end,
    push = function(c)
        local list = expert_inputs(c, true, { "moe.gather" })
        append(list, { use "moe/exchange_tail" { parts = { "moe.post_norm", "moe.sum", "moe.combine" } } })
        if not c.ep and not c.bf16 then
            append(list, { use "moe/exchange_route_tail" { parts = { "moe.route_sum", "moe.post_norm", "moe.sum" } } })
        end
        return list
    end,
    library = function(c)
        local list = { use "collective/all_gather" { parts = { "moe.gather" } } }
        append(list, expert_inputs(c, false, {}))
        append(list, {
            use "moe/tail" { parts = { "moe.post_norm", "moe.sum" } },
            use "collective/all_reduce" { parts = { "moe.combine" } },
        })
        if not c.ep and not c.bf16 then
            append(list, { use "collective/all_reduce" { parts = { "moe.route_sum" } } })
        end
        return list
    end,
}

-- Router and pooler: one launch, or the router and what follows it beside the pooler.
local function routers(c, way)
    local partials, list = { partials = way == "library" and 0 or c.splits }, {}
    if c.splits == 1 then
        list = { use "moe/pool_router" { parts = { "edge.router", "moe.pool" }, options = partials } }
        append(list, c.bf16 and {} or { use "moe/pool_router" { parts = { "moe.router", "moe.pool" }, options = partials } })
        return list
    end
    list = {
        use "moe/router" { parts = { "edge.router" } },
        use "moe/routing" { parts = { "edge.routing" } },
        use "gemm/skinny" { parts = { "moe.pool" }, options = partials },
    }
    append(list, c.bf16 and {} or {
        use "moe/router" { parts = { "moe.router" }, stream = "side" },
        use "moe/routing" { parts = { "moe.routing" }, stream = "side" },
    })
    return list
end

-- Providers of the pooler and the experts. `c`: also w4a16 (true: NVFP4 weights, bf16 activations), ep
-- (true: every rank has whole NVFP4 experts of its own), bf16 (true: there are no NVFP4 experts), packed (true: NVFP4 weights are
-- packed at load).
local function moe_providers(c)
    local way = c.experts or (c.tp == 1 and "alone" or c.by_nccl and "library" or "push")
    local list = routers(c, way)
    append(list, {
        use "moe/bf16_gemm1" { parts = { "edge.gemm1", "edge.swiglu" } },
        use "moe/bf16_gemm2" { parts = { "edge.gemm2" } },
    })
    append(list, c.bf16 and {} or {
        use(c.w4a16 and "moe/nvfp4_gemm1_bf16" or c.packed and "moe/unit_gemm1" or "moe/nvfp4_gemm1") {
            parts = { "moe.gemm1", "moe.swiglu" } },
        use(c.w4a16 and "moe/nvfp4_gemm2_bf16" or c.packed and "moe/unit_gemm2" or "moe/nvfp4_gemm2") { parts = { "moe.gemm2" } },
        use(c.w4a16 and "prepare/weight_scalars" or "prepare/expert_scalars") { parts = { "prepare.scalars" } },
    })
    if c.packed then
        append(list, {
            use "prepare/expert_units" { parts = { "prepare.units13" } },
            use "prepare/expert_units" { parts = { "prepare.units2" } },
        })
    end
    if c.tp > 1 and not c.ep and not c.bf16 then
        append(list, {
            use "probe/routes" { parts = { "probe.routes" } },
            use "probe/rows" { parts = { "probe.inputs" } },
            use(c.w4a16 and "prepare/weight_scalars" or "prepare/expert_scalars") { parts = { "probe.scalars" } },
            use(c.w4a16 and "moe/nvfp4_gemm1_bf16" or "moe/nvfp4_gemm1") { parts = { "probe.gemm1", "probe.swiglu" } },
            use(c.w4a16 and "moe/nvfp4_gemm2_bf16" or "moe/nvfp4_gemm2") { parts = { "probe.gemm2" } },
        })
    end
    append(list, pick(expert_exchanges, way, "exchanging around the experts")(c))
    return list
end

local providers = {}

function providers.all(c)
    local list = dense_providers(c)
    append(list, moe_providers(c))
    return list
end

return providers
