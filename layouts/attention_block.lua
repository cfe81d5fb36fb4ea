-- SPDX-License-Identifier: Apache-2.0
-- One attention block behind a norm, twice, its sum over ranks made by the boundary through mailboxes: the smallest step in
-- which ranks depend on each other.

local HIDDEN <const> = 192
local HEADS <const> = 8
local KV_HEADS <const> = 4
local HEAD_DIM <const> = 32
local WINDOW <const> = 24
local EPS <const> = 1e-5
local LAYER <const> = "layers.{l}."

local function vector(name, init)
    return weight(name) { "bf16", HIDDEN, from = { tensor(LAYER .. name) { "bf16", HIDDEN, init = init } } }
end

local function build(d)
    local heads, kv_heads = split(HEADS, "query heads"), split(KV_HEADS, "kv heads")
    local q_dim, kv_dim = heads * HEAD_DIM, kv_heads * HEAD_DIM
    local function projection(name, count)
        return tensor(LAYER .. name) { "bf16", count * HEAD_DIM, HIDDEN, shard = 0, init = "weight" }
    end
    -- The last layer's branch has a gain, and its stream is also kept.
    local function block(last)
        local gain, kept = last and "post" or nil, last and "kept" or nil
        return {
            part "qkv" "gemm" { reads = { x = "x", w = "qkvg.w" }, writes = { y = "qkvg" } },
            part "rope" "qk_norm_rope" {
                reads = { qkvg = "qkvg", positions = "positions", rope = "rope" }, writes = { q = "q", gate = "gate", k = "k" },
                set = { eps = EPS, heads = heads, kv_heads = kv_heads } },
            part "insert" "kv_insert" { reads = { k = "k", slots = "slot_mapping.all" }, writes = { cache = "kv" } },
            part "core" "attention" {
                reads = { q = "q", cache = "kv", block_tables = "block_tables.all", seq_lens = "seq_lens.all" }, writes = { o = "o" },
                set = { window = WINDOW, scale = 1 / math.sqrt(HEAD_DIM), max_context = d.max_context } },
            part "gated" "o_norm_gate" { reads = { o = "o", gate = "gate" }, writes = { y = "y" }, set = { eps = EPS } },
            part "proj" "gemm" { reads = { x = "y", w = "o.w" }, writes = { y = "parts" } },
            part "sum" "rank_sum" { reads = { parts = "parts" }, writes = { a = "a" }, set = { order = d.set.order } },
            part "residual" "residual" {
                reads = { branch = "a", s = "s", alpha = "alpha", beta = "beta", gain = gain },
                writes = { s_out = "s_next", aux = kept }, set = { eps = 1e-8 } },
            part "norm" "norm" { reads = { s = "s_next", gain = "gain" }, writes = { x = "x" }, set = { eps = EPS, center = 1 } },
        }
    end
    return model {
        groups = { group "all" { window = WINDOW } },
        values = {
            value "s" { "f32", rows, HIDDEN, input = true },
            value "s_next" { "f32", rows, HIDDEN, output = true },
            value "x" { "bf16", rows, HIDDEN, output = true },
            value "kept" { "f32", rows, HIDDEN, output = true },
            value "qkvg" { "bf16", rows, 2 * (q_dim + kv_dim) },
            value "q" { "bf16", rows, heads, HEAD_DIM },
            value "gate" { "bf16", rows, heads, HEAD_DIM },
            value "y" { "bf16", rows, q_dim },
            value "parts" { "bf16", rows, HIDDEN },
            value "a" { "bf16", rows, HIDDEN },
            value "rope" { "f32", d.max_context, HEAD_DIM, per = "step" },
            value "alpha" { "f32", HIDDEN, per = "layer" },
            value "beta" { "f32", HIDDEN, per = "layer" },
        },
        weights = {
            vector("gain", "offset"),
            vector("post", "offset"),
            vector("mix", "gate"),
            weight "qkvg.w" { "bf16", 2 * (q_dim + kv_dim), HIDDEN, axis = 0, from = {
                projection("q", HEADS), projection("k", KV_HEADS), projection("v", KV_HEADS), projection("g", HEADS) } },
            weight "o.w" { "bf16", HIDDEN, q_dim,
                from = { tensor(LAYER .. "o") { "bf16", HIDDEN, HEADS * HEAD_DIM, shard = 1, init = "weight" } } },
        },
        caches = { cache "kv" { "bf16", "pages", kv_heads, d.page_tokens, 2 * HEAD_DIM, group = "all" } },
        prepare = {
            part "table" "rope_table" { writes = { table = "rope" }, set = { theta = 10000.0 } },
            part "mixing" "residual_gate" {
                reads = { gate = "mix" }, writes = { alpha = "alpha", beta = "beta" }, set = { temperature = 0.3, clamp = 1e-3 } },
        },
        prologue = {
            part "first" "norm" { reads = { s = "s", gain = "gain" }, writes = { x = "x" }, set = { eps = EPS, center = 1 } },
        },
        kinds = { kind "attention" { parts = block(false) }, kind "last" { parts = block(true) } },
        layers = { "attention", "last" },
    }
end

-- How the ranks' parts are summed: the boundary pushes and sums them; or the product publishes them straight into every rank's
-- mailbox; or a library sums them. One rank alone has nothing to wait for.
local function sum_by(way)
    local partials = { partials = 1 }
    if way == "publish" then
        return { use "gemm/publish" { parts = { "proj" } },
                 use "boundary/receive_residual_norm" { parts = { "sum", "residual", "norm" } } }
    elseif way == "nccl" then
        return { use "gemm/skinny" { parts = { "proj" } },
                 use "collective/all_reduce" { parts = { "sum" } },
                 use "boundary/residual_norm" { parts = { "residual", "norm" } } }
    end
    return { use "gemm/skinny" { parts = { "proj" }, options = partials },
             use(way == "alone" and "boundary/residual_norm" or "boundary/exchange_residual_norm") {
                 parts = { "sum", "residual", "norm" } } }
end

-- From the QKV product to the gated output: in one launch behind a whole product (`joined`), or in two behind K-split sums.
local function attention(joined, anchored)
    if joined then
        return { use "gemm/skinny" { parts = { "qkv" } },
                 use "attention/front_paged" { parts = { "rope", "insert", "core", "gated" } } }
    end
    return { use "gemm/skinny" { parts = { "qkv" }, options = { partials = 1 } },
             use "attention/qkv_front" { parts = { "rope", "insert" } },
             use "attention/paged" { parts = { "core", "gated" }, options = { anchored = anchored and 1 or 0 } } }
end

local function provide(way, tp)
    local list = sum_by(way)
    for _, u in ipairs(attention(tp == 4, way == "bf16_each")) do
        table.insert(list, u)
    end
    for _, u in ipairs {
        use "boundary/norm" { parts = { "first" } },
        use "prepare/rope_table" { parts = { "table" } },
        use "prepare/residual_gate" { parts = { "mixing" } },
    } do
        table.insert(list, u)
    end
    return list
end

-- Named deployments: `publish`, `nccl`, and `bf16_each` for that order of the sum, with keys anchored to warps; four ranks join
-- attention with its front.
local function serve(tp, name)
    return deployment { tp = tp, name = name, max_context = 96, variants = { { 1, 1 }, { 2, 4 } },
                        set = { order = name == "bf16_each" and name or nil }, provide = provide(tp == 1 and "alone" or name, tp) }
end

return layout "attention_block" {
    doc = "Two attention blocks, their sum over ranks exchanged through mailboxes",
    deployments = { serve(1), serve(2), serve(2, "publish"), serve(2, "bf16_each"), serve(2, "nccl"), serve(4) },
    model = build,
}
