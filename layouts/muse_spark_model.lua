-- SPDX-License-Identifier: Apache-2.0
-- The decode step of the Muse Spark family: parts, values and weights for given sizes; muse_spark_providers.lua covers the parts.
-- Returns a function of the sizes; muse_spark.lua and its small sisters differ in nothing else.
-- Value names are those of the reference traces (in.s, attn.q, moe.codes2, ...), section numbers those of the model's mathematics.

local providers = include "muse_spark_providers.lua"

-- Section 1: numbers that every size shares.
local RMS_EPS <const> = 1e-5 -- pre-norms, embedding norm, final norm, QK norm, o-norm, expert norm
local POST_EPS <const> = 1e-8 -- norms of a branch before it joins the stream
local QK_SCALE_FACTOR <const> = 5.4730064863875
local OUTPUT_MULTIPLIER <const> = 2 ^ -2.5 -- final logits and router logits
local SOFT_CAP <const> = 20.0
local GATE_TEMPERATURE <const> = 0.3
local GATE_CLAMP <const> = 1e-3
local ROPE_THETA <const> = 500000.0
local ROUTE_EPS <const> = 1e-15
local TILE <const> = 8 -- tokens of one routed tile; the default of section 9 for every batch served here

local PREFIX <const> = "model.language_model."
local LAYER <const> = PREFIX .. "layers.{l}."

local function append(list, more)
    for _, item in ipairs(more) do
        table.insert(list, item)
    end
end

-- Length of a packed unit of NVFP4 weights along a width: the longest that divides it.
local function unit_length(width)
    for _, length in ipairs { 512, 256, 128, 64 } do
        if width % length == 0 then
            return length
        end
    end
    error("packed experts: a width must be a multiple of 64, found " .. width)
end

local function contains(list, item)
    for _, v in ipairs(list) do
        if v == item then
            return true
        end
    end
    return false
end

-- Section 10: upper bounds of tiles and permuted rows for `v.rows` tokens.
local function max_ctas(size, v)
    local routes = v.rows * size.top_k
    local filled = math.min(size.experts, routes)
    return filled + (routes - filled) // TILE
end
local function max_rows(size)
    return function(v)
        return max_ctas(size, v) * TILE
    end
end

-- Shapes of one rank. `split` refuses a TP size that does not serve them.
-- NVFP4 experts are whole on one rank each where the deployment sets `ep`, and on one rank; else every rank has a slice of the
-- intermediate width of all of them. Those of the bf16 edge layers are always whole.
local function local_sizes(size, d)
    local n = {}
    n.heads = split(size.heads, "query heads")
    n.kv_heads = split(size.kv_heads, "kv heads")
    n.q_dim = n.heads * size.head_dim
    n.qkvg = 2 * n.q_dim + 2 * n.kv_heads * size.head_dim
    n.pooled = split(size.pooled, "pooler rows", 16)
    n.hidden = split(size.hidden, "unpooler rows", 16)
    n.vocab = split(size.vocab, "vocabulary rows", 4)
    n.experts = split(size.experts, "experts")
    n.fp4 = #size.bf16 < size.layers
    n.sliced = n.fp4 and d.tp > 1 and not d.set.ep
    n.fp4_experts = n.sliced and size.experts or n.experts
    n.inter = n.sliced and split(size.inter, "intermediate width of the experts", 16) or size.inter
    return n
end

local function declare_values(size, n, d)
    local rows_max = max_rows(size)
    local function ctas(v)
        return max_ctas(size, v)
    end
    local function rows_guard(v)
        return rows_max(v) + 1
    end
    local function gemm2_rows(v)
        return math.max(rows_max(v), 16)
    end
    local function routes(v)
        return v.rows * size.top_k
    end
    local H, P, I = size.hidden, size.pooled, size.inter
    local values = {
        value "in.s" { "f32", rows, H },
        value "in.f" { "bf16", rows, H },
        value "in.x" { "bf16", rows, H },
        value "attn.qkvg" { "bf16", rows, n.qkvg },
        value "attn.q" { "bf16", rows, n.heads, size.head_dim },
        value "attn.gate" { "bf16", rows, n.heads, size.head_dim },
        value "attn.y" { "bf16", rows, n.q_dim },
        value "attn.parts" { "bf16", rows, H },
        value "attn.a" { "bf16", rows, H },
        value "mid.s" { "f32", rows, H },
        value "mid.x" { "bf16", rows, H },
        value "moe.logits" { "f32", rows, size.experts },
        value "moe.ids" { "i32", rows, size.top_k },
        value "moe.weights" { "f32", rows, size.top_k },
        value "meta.total_padded" { "i32", 1 },
        value "meta.expanded_to_permuted" { "i32", routes },
        value "meta.permuted_to_token" { "i32", rows_guard },
        value "meta.histogram" { "i32", math.max(2 * size.experts, 512) },
        value "meta.counts" { "i32", size.experts },
        value "meta.cta_expert" { "i32", ctas },
        value "meta.cta_limit" { "i32", ctas },
        value "meta.ctas" { "i32", 1 },
        value "moe.h0" { "bf16", rows, n.pooled },
        value "moe.h0.all" { "bf16", rows, P },
        value "moe.h1" { "bf16", rows, P },
        value "moe.act" { "bf16", rows_max, I },
        value "moe.rows" { "bf16", gemm2_rows, P },
        value "moe.parts" { "bf16", rows, P },
        value "moe.m" { "bf16", rows, P },
        value "moe.f" { "bf16", rows, n.hidden },
        value "final.f" { "bf16", rows, H },
        value "final.s" { "f32", rows, H },
        value "hidden" { "bf16", rows, H, output = true },
        value "rope" { "f32", d.max_context, size.head_dim, per = "step" },
        value "attn.alpha" { "f32", H, per = "layer" },
        value "attn.beta" { "f32", H, per = "layer" },
        value "ffn.alpha" { "f32", H, per = "layer" },
        value "ffn.beta" { "f32", H, per = "layer" },
    }
    if d.set.by_nccl then -- what a library moves lies in buffers
        table.insert(values, value "embed.partial" { "bf16", rows, H })
        table.insert(values, value "embed.e" { "bf16", rows, H })
    end
    if d.set.head and d.set.by_nccl then
        table.insert(values, value "head.best" { "i32", rows, 2 })
        table.insert(values, value "head.best.all" { "i32", rows, 2 * d.tp })
    end
    if d.set.packed then
        local along, across = unit_length(P), unit_length(n.inter)
        append(values, {
            value "expert.units13" { "u8", n.fp4_experts, n.inter // 8 * (P // along), 9 * along, per = "layer" },
            value "expert.units2" { "u8", n.fp4_experts, P // 16 * (n.inter // across), 9 * across, per = "layer" },
        })
    end
    if n.fp4 then
        append(values, {
            value "expert.gate_alpha" { "f32", n.fp4_experts, per = "layer" },
            value "expert.up_alpha" { "f32", n.fp4_experts, per = "layer" },
            value "expert.alpha" { "f32", n.fp4_experts, per = "layer" },
        })
    end
    if n.fp4 and not d.set.w4a16 then
        append(values, {
            value "moe.codes" { "u8", rows, P // 2 },
            value "moe.scales" { "e4m3", rows, P // 16 },
            value "moe.codes2" { "u8", rows_max, n.inter // 2 },
            value "moe.scales2" { "e4m3", rows_max, n.inter // 16 },
            value "expert.input_gscale" { "f32", 1, per = "layer" },
        })
    end
    if n.sliced then
        append(values, {
            value "moe.rows.all" { "bf16", gemm2_rows, P },
            value "probe.cta_expert" { "i32", ctas },
            value "probe.cta_limit" { "i32", ctas },
            value "probe.gate_alpha" { "f32", n.experts },
            value "probe.up_alpha" { "f32", n.experts },
            value "probe.alpha" { "f32", n.experts },
            value "probe.rows" { "bf16", gemm2_rows, P },
        })
        append(values, d.set.w4a16 and {
            value "moe.act.slice" { "bf16", rows_max, n.inter },
            value "probe.act" { "bf16", rows_max, I },
        } or {
            value "probe.input_gscale" { "f32", 1 },
            value "probe.codes2" { "u8", rows_max, I // 2 },
            value "probe.scales2" { "e4m3", rows_max, I // 16 },
        })
    end
    if d.set.head then
        table.insert(values, value "logits" { "f32", rows, n.vocab, output = true })
        table.insert(values, value "next_tokens" { "i32", rows, output = true })
    end
    if #d.aux > 0 then
        table.insert(values, value "aux" { "f32", rows, H, per = "layer", output = true })
    end
    return values
end

-- Where a checkpoint keeps the gate and up rows of its experts, [E, 2 I, width], and their `down`, [E, P, width]: all experts of a
-- layer in one tensor, or a tensor for each expert and projection. `what` ends the names: "", "_weight_scale", ...
local fused <const> = {
    gate_up = function(what, dtype, E, I, width, o)
        return { tensor(LAYER .. "mlp.experts.gate_up_proj" .. what) { dtype, E, 2 * I, width, shard = o.shard, groups = o.groups,
                                                                       init = o.init } }
    end,
    down = function(what, dtype, E, P, width, o)
        return { tensor(LAYER .. "mlp.experts.down_proj" .. what) { dtype, E, P, width, shard = o.shard, init = o.init } }
    end,
    gate_up_scalar = function(what, E, o)
        return { tensor(LAYER .. "mlp.experts.gate_up_proj" .. what) { "f32", E, 2, shard = o.shard, init = o.init } }
    end,
    down_scalar = function(what, E, o)
        return { tensor(LAYER .. "mlp.experts.down_proj" .. what) { "f32", E, shard = o.shard, init = o.init } }
    end,
}
local function one(projection, what)
    return LAYER .. "mlp.experts.{e}." .. projection .. "." .. (what == "" and "weight" or string.sub(what, 2))
end
local apart <const> = {
    gate_up = function(what, dtype, E, I, width, o)
        return { tensor(one("gate_proj", what)) { dtype, E, I, width, shard = o.shard, init = o.init },
                 tensor(one("up_proj", what)) { dtype, E, I, width, shard = o.shard, init = o.init } }
    end,
    down = function(what, dtype, E, P, width, o)
        return { tensor(one("down_proj", what)) { dtype, E, P, width, shard = o.shard, init = o.init } }
    end,
    gate_up_scalar = function(what, E, o)
        return { tensor(one("gate_proj", what)) { "f32", E, 1, shard = o.shard, init = o.init },
                 tensor(one("up_proj", what)) { "f32", E, 1, shard = o.shard, init = o.init } }
    end,
    down_scalar = function(what, E, o)
        return { tensor(one("down_proj", what)) { "f32", E, shard = o.shard, init = o.init } }
    end,
}

-- The experts of the NVFP4 layers: whole experts, or of each expert a slice of its gate rows and of its up rows, and the same
-- columns of `down` (section 7). Sliced ones can be made from whole experts: held.X is this rank's part of expert.X.
local function declare_experts(size, n, names, w4a16)
    local P, I, E, F = size.pooled, size.inter, size.experts, n.fp4_experts
    local list = {}
    local function declare(name, dtype, here, whole, from)
        local held = n.sliced and "held." .. name or nil
        table.insert(list, weight("expert." .. name) { dtype, here[1], here[2], here[3], axis = 1, held = held,
                                                       from = from(n.sliced) })
        if held then
            table.insert(list, weight(held) { dtype, n.experts, whole[1], whole[2], from = from(false) })
        end
    end
    local function gate_up(name, what, dtype, init, width)
        declare(name, dtype, { F, 2 * n.inter, width }, { 2 * I, width }, function(sliced)
            return names.gate_up(what, dtype, E, I, width, { shard = sliced and 1 or 0, groups = sliced and 2 or 1, init = init })
        end)
    end
    local function down(name, what, dtype, init, share)
        declare(name, dtype, { F, P, n.inter // share }, { P, I // share }, function(sliced)
            return names.down(what, dtype, E, P, I // share, { shard = sliced and 2 or 0, init = init })
        end)
    end
    gate_up("w13", "", "u8", "codes", P // 2)
    gate_up("w13.scales", "_weight_scale", "e4m3", "scales", P // 16)
    down("w2", "", "u8", "codes", 2)
    down("w2.scales", "_weight_scale", "e4m3", "scales", 16)
    -- All ranks have those of all experts.
    local function scalars(what, init, gate_up_name, down_name)
        local held = n.sliced and "held." or nil
        append(list, {
            weight("expert." .. gate_up_name) { "f32", E, 2, axis = 1, held = held and held .. gate_up_name,
                                                from = names.gate_up_scalar(what, E, { init = init }) },
            weight("expert." .. down_name) { "f32", E, held = held and held .. down_name,
                                             from = names.down_scalar(what, E, { init = init }) },
        })
        if held then
            append(list, {
                weight(held .. gate_up_name) { "f32", n.experts, 2, from = names.gate_up_scalar(what, E, { shard = 0, init = init }) },
                weight(held .. down_name) { "f32", n.experts, from = names.down_scalar(what, E, { shard = 0, init = init }) },
            })
        end
    end
    scalars("_weight_scale_2", "global_scale", "scale13", "scale2")
    if not w4a16 then
        scalars("_input_scale", "input_scale", "input13", "input2")
    end
    return list
end

-- Section 11 (names) and section 7 (shards).
local function declare_weights(size, n, names, w4a16)
    local H, P, I, E = size.hidden, size.pooled, size.inter, size.experts
    local q_rows, kv_rows = size.heads * size.head_dim, size.kv_heads * size.head_dim
    local function vector(name, suffix, width, init)
        return weight(name) { "bf16", width, from = { tensor(LAYER .. suffix) { "bf16", width, init = init } } }
    end
    local list = {
        weight "embed" { "bf16", n.vocab, H,
            from = { tensor(PREFIX .. "embed_tokens.weight") { "bf16", size.vocab, H, shard = 0, init = "embedding" } } },
        weight "final.gain" { "bf16", H, from = { tensor(PREFIX .. "norm.weight") { "bf16", H, init = "gain" } } },
        weight "head.w" { "bf16", n.vocab, H,
            from = { tensor "lm_head.weight" { "bf16", size.vocab, H, shard = 0, init = "head:" .. PREFIX .. "embed_tokens.weight" } } },
        vector("attn.gain", "input_layernorm.weight", H, "offset"),
        vector("ffn.gain", "pre_feedforward_layernorm.weight", H, "offset"),
        vector("ffn.post.gain", "post_feedforward_layernorm.weight", H, "offset"),
        vector("attn.gate.w", "post_attention_residual_gate.gate", H, "gate"),
        vector("ffn.gate.w", "post_feedforward_residual_gate.gate", H, "gate"),
        vector("pre_expert.gain", "mlp.pre_expert_norm.weight", P, "offset"),
        vector("post_expert.gain", "mlp.experts.post_expert_norm.weight", P, "offset"),
        weight "attn.qkvg.w" { "bf16", n.qkvg, H, axis = 0, from = {
            tensor(LAYER .. "self_attn.q_proj.weight") { "bf16", q_rows, H, shard = 0, init = "weight" },
            tensor(LAYER .. "self_attn.k_proj.weight") { "bf16", kv_rows, H, shard = 0, init = "weight" },
            tensor(LAYER .. "self_attn.v_proj.weight") { "bf16", kv_rows, H, shard = 0, init = "weight" },
            tensor(LAYER .. "self_attn.gate_proj.weight") { "bf16", q_rows, H, shard = 0, init = "weight" } } },
        weight "attn.o.w" { "bf16", H, n.q_dim,
            from = { tensor(LAYER .. "self_attn.o_proj.weight") { "bf16", H, q_rows, shard = 1, init = "weight" } } },
        weight "router.w" { "f32", E, H,
            from = { tensor(LAYER .. "mlp.gate.weight") { "f32", E, H, init = "router" } } },
        weight "router.bias" { "f32", E,
            from = { tensor(LAYER .. "mlp.gate.e_score_correction_bias") { "f32", E, init = "bias" } } },
        weight "pool.w" { "bf16", n.pooled, H,
            from = { tensor(LAYER .. "mlp.pre_expert_proj.weight") { "bf16", P, H, shard = 0, init = "weight" } } },
        weight "unpool.w" { "bf16", n.hidden, P,
            from = { tensor(LAYER .. "mlp.post_expert_proj.weight") { "bf16", H, P, shard = 0, init = "weight" } } },
        -- bf16 edge layers
        weight "edge.w13" { "bf16", n.experts, 2 * I, P, axis = 1,
            from = names.gate_up("", "bf16", E, I, P, { shard = 0, groups = 1, init = "weight" }) },
        weight "edge.w2" { "bf16", n.experts, P, I, from = names.down("", "bf16", E, P, I, { shard = 0, init = "weight" }) },
    }
    if n.fp4 then
        append(list, declare_experts(size, n, names, w4a16))
    end
    return list
end

-- Section 3.1, section 6.1 (`fp4`: there are NVFP4 experts), the angles of RoPE and, where they are packed, the experts' units,
-- once at load.
local function prepare_parts(fp4, w4a16, packed)
    local gates = { temperature = GATE_TEMPERATURE, clamp = GATE_CLAMP }
    local parts = {
        part "prepare.rope" "rope_table" { writes = { table = "rope" }, set = { theta = ROPE_THETA } },
        part "prepare.attn_gate" "residual_gate" {
            reads = { gate = "attn.gate.w" }, writes = { alpha = "attn.alpha", beta = "attn.beta" }, set = gates },
        part "prepare.ffn_gate" "residual_gate" {
            reads = { gate = "ffn.gate.w" }, writes = { alpha = "ffn.alpha", beta = "ffn.beta" }, set = gates },
    }
    if not fp4 then
        return parts
    end
    table.insert(parts, w4a16 and part "prepare.scalars" "weight_scalars" {
            reads = { scale13 = "expert.scale13", scale2 = "expert.scale2", rank = "rank" },
            writes = { gate_alpha = "expert.gate_alpha", up_alpha = "expert.up_alpha", alpha = "expert.alpha" } }
        or part "prepare.scalars" "expert_scalars" {
            reads = { scale13 = "expert.scale13", input13 = "expert.input13", scale2 = "expert.scale2", input2 = "expert.input2",
                      rank = "rank" },
            writes = { input_gscale = "expert.input_gscale", gate_alpha = "expert.gate_alpha",
                       up_alpha = "expert.up_alpha", alpha = "expert.alpha" } })
    if packed then
        append(parts, {
            part "prepare.units13" "expert_units" {
                reads = { codes = "expert.w13", scales = "expert.w13.scales", faults = "faults" },
                writes = { units = "expert.units13" }, set = { paired = 1 } },
            part "prepare.units2" "expert_units" {
                reads = { codes = "expert.w2", scales = "expert.w2.scales", faults = "faults" },
                writes = { units = "expert.units2" }, set = { paired = 0 } },
        })
    end
    return parts
end

-- The boundary that ends the layer before (post-feedforward residual) and begins this one (input norm).
local function input_boundary(k)
    local norm = part "in.norm" "norm" {
        reads = { s = "in.s", gain = "attn.gain" }, writes = { x = "in.x" }, set = { eps = RMS_EPS, center = 1 } }
    if k.first then
        return { norm }
    end
    local updated = { s_out = "in.s" }
    if k.aux then
        updated.aux = "aux"
    end
    return {
        part "in.gather" "gather" { reads = { columns = "moe.f" }, writes = { f = "in.f" } },
        part "in.residual" "residual" {
            reads = { branch = "in.f", s = "mid.s", alpha = prev "ffn.alpha", beta = prev "ffn.beta", gain = prev "ffn.post.gain" },
            writes = updated, set = { eps = POST_EPS, center = 1 } },
        norm,
    }
end

-- Section 4.
local function attention(size, n, d, k)
    local group = k.full and "full" or "sliding"
    local rope_reads = { qkvg = "attn.qkvg", positions = "positions" }
    if not k.full then
        rope_reads.rope = "rope"
    end
    return {
        part "attn.qkv" "gemm" { reads = { x = "in.x", w = "attn.qkvg.w" }, writes = { y = "attn.qkvg" } },
        part "attn.rope" "qk_norm_rope" {
            reads = rope_reads, writes = { q = "attn.q", gate = "attn.gate", k = "attn.k" },
            set = { eps = RMS_EPS, heads = n.heads, kv_heads = n.kv_heads } },
        part "attn.insert" "kv_insert" {
            reads = { k = "attn.k", slots = "slot_mapping." .. group }, writes = { cache = "kv." .. group } },
        part "attn.core" "attention" {
            reads = { q = "attn.q", cache = "kv." .. group, block_tables = "block_tables." .. group,
                      seq_lens = "seq_lens." .. group },
            writes = { o = "attn.o" },
            set = { window = k.full and 0 or size.window, scale = QK_SCALE_FACTOR / math.sqrt(size.head_dim),
                    max_context = d.max_context } },
        part "attn.gated" "o_norm_gate" {
            reads = { o = "attn.o", gate = "attn.gate" }, writes = { y = "attn.y" }, set = { eps = RMS_EPS } },
        part "attn.proj" "gemm" { reads = { x = "attn.y", w = "attn.o.w" }, writes = { y = "attn.parts" } },
    }
end

local function attention_boundary(d)
    return {
        part "mid.sum" "rank_sum" { reads = { parts = "attn.parts" }, writes = { a = "attn.a" }, set = { order = d.set.order } },
        part "mid.residual" "residual" {
            reads = { branch = "attn.a", s = "in.s", alpha = "attn.alpha", beta = "attn.beta" },
            writes = { s_out = "mid.s" }, set = { eps = POST_EPS } },
        part "mid.norm" "norm" {
            reads = { s = "mid.s", gain = "ffn.gain" }, writes = { x = "mid.x" }, set = { eps = RMS_EPS, center = 1 } },
    }
end

-- Values and weights of the routed GEMMs: those of the step, and those of the probe's whole experts.
local function step_names(size, n, packed)
    return { routes = packed and function(v) return v.rows * size.top_k end or nil,
             part = "moe", w = "expert", alpha = "expert", act = n.sliced and "moe.act.slice" or "moe.act", value = "moe",
             cta_expert = "meta.cta_expert", cta_limit = "meta.cta_limit" }
end
local probe_names <const> = { part = "probe", w = "held", alpha = "probe", act = "probe.act", value = "probe",
                              cta_expert = "probe.cta_expert", cta_limit = "probe.cta_limit" }

-- Weights as they are loaded or, with `o.routes` (most rows that are filled), as packed units.
local function nvfp4_experts(o)
    local gemm1 = { codes = "moe.codes", scales = "moe.scales", permuted_to_token = "meta.permuted_to_token",
                    cta_expert = o.cta_expert, cta_limit = o.cta_limit, ctas = "meta.ctas" }
    local gemm2 = { codes2 = o.value .. ".codes2", scales2 = o.value .. ".scales2", alpha = o.alpha .. ".alpha",
                    cta_expert = o.cta_expert, cta_limit = o.cta_limit, ctas = "meta.ctas" }
    if o.routes then
        gemm1.units, gemm2.units = o.w .. ".units13", o.w .. ".units2"
    else
        gemm1.w13, gemm1.w13_scales = o.w .. ".w13", o.w .. ".w13.scales"
        gemm2.w2, gemm2.w2_scales = o.w .. ".w2", o.w .. ".w2.scales"
    end
    return {
        part(o.part .. ".gemm1") "nvfp4_gemm1" { reads = gemm1, writes = { gu = "moe.gu" }, set = { tile = TILE } },
        part(o.part .. ".swiglu") "swiglu_quantise" {
            reads = { gu = "moe.gu", gate_alpha = o.alpha .. ".gate_alpha", up_alpha = o.alpha .. ".up_alpha" },
            writes = { codes2 = o.value .. ".codes2", scales2 = o.value .. ".scales2" } },
        part(o.part .. ".gemm2") "nvfp4_gemm2" {
            reads = gemm2, writes = { rows = o.value .. ".rows" }, set = { tile = TILE, routes = o.routes } },
    }
end

-- Section 6.4: NVFP4 weights and bf16 activations, both global scales applied after the sums.
local function w4a16_experts(o)
    return {
        part(o.part .. ".gemm1") "nvfp4_gemm1_bf16" {
            reads = { h1 = "moe.h1", w13 = o.w .. ".w13", w13_scales = o.w .. ".w13.scales",
                      permuted_to_token = "meta.permuted_to_token", cta_expert = o.cta_expert, cta_limit = o.cta_limit,
                      ctas = "meta.ctas" },
            writes = { gu = "moe.gu" }, set = { tile = TILE } },
        part(o.part .. ".swiglu") "swiglu" {
            reads = { gu = "moe.gu", gate_alpha = o.alpha .. ".gate_alpha", up_alpha = o.alpha .. ".up_alpha" },
            writes = { act = o.act } },
        part(o.part .. ".gemm2") "nvfp4_gemm2_bf16" {
            reads = { act = o.act, w2 = o.w .. ".w2", w2_scales = o.w .. ".w2.scales", alpha = o.alpha .. ".alpha",
                      cta_expert = o.cta_expert, cta_limit = o.cta_limit, ctas = "meta.ctas" },
            writes = { rows = o.value .. ".rows" }, set = { tile = TILE } },
    }
end

-- Sections 6.3 and 13.4: expert TP against EP, once at load, on seeded rows and routes: the slices of all experts with the kernels
-- of the step, and this rank's whole experts. Summed over the ranks both give all rows.
local PROBE_LIMIT <const> = 1e-2 -- relative L2; the sum of the slices is a few 1e-3 off, for it is made of rows in bf16

-- The smallest batch whose routes reach all experts, else the largest.
local function probe_variant(size, d)
    local best
    for _, v in ipairs(d.variants) do
        local rows = v[1] * v[2]
        local reaches = rows * size.top_k >= size.experts
        if not best or (reaches and (not best.reaches or rows < best.rows)) or (not reaches and not best.reaches and rows > best.rows) then
            best = { name = v[1] .. "x" .. v[2], rows = rows, reaches = reaches }
        end
    end
    return best.name
end

local function probe_inputs(size, n, w4a16)
    return {
        part "probe.routes" "probe_routes" {
            reads = { rank = "rank" },
            writes = { permuted_to_token = "meta.permuted_to_token", cta_expert = "meta.cta_expert", cta_limit = "meta.cta_limit",
                       ctas = "meta.ctas", own_expert = "probe.cta_expert", own_limit = "probe.cta_limit" },
            set = { routes = function(v) return v.rows * size.top_k end, top_k = size.top_k, experts = size.experts,
                    local_experts = n.experts, tile = TILE } },
        w4a16 and part "probe.inputs" "probe_rows" { writes = { h1 = "moe.h1" } }
        or part "probe.inputs" "probe_rows" {
            reads = { input_gscale = "expert.input_gscale" }, writes = { codes = "moe.codes", scales = "moe.scales" } },
        w4a16 and part "probe.scalars" "weight_scalars" {
            reads = { scale13 = "held.scale13", scale2 = "held.scale2", rank = "rank" },
            writes = { gate_alpha = "probe.gate_alpha", up_alpha = "probe.up_alpha", alpha = "probe.alpha" } }
        or part "probe.scalars" "expert_scalars" {
            reads = { scale13 = "held.scale13", input13 = "expert.input13", scale2 = "held.scale2", input2 = "expert.input2",
                      rank = "rank" },
            writes = { input_gscale = "probe.input_gscale", gate_alpha = "probe.gate_alpha", up_alpha = "probe.up_alpha",
                       alpha = "probe.alpha" } },
    }
end

local function probe_experts(size, n, d)
    if not n.sliced then
        return nil
    end
    local layers, experts = {}, d.set.w4a16 and w4a16_experts or nvfp4_experts
    for l = 0, size.layers - 1 do
        if not contains(size.bf16, l) then
            table.insert(layers, l)
        end
    end
    if #layers == 0 then
        return nil
    end
    local parts = probe_inputs(size, n, d.set.w4a16)
    append(parts, experts(step_names(size, n, d.set.packed)))
    append(parts, experts(probe_names))
    return probe {
        about = size.experts .. " NVFP4 experts at intermediate width " .. n.inter .. " of " .. size.inter .. " a rank, "
            .. #layers .. " layers of them, " .. size.layers - #layers .. " of bf16 experts by rank",
        limit = PROBE_LIMIT, variant = probe_variant(size, d), layers = layers, sums = { "moe.rows", "probe.rows" }, parts = parts,
    }
end

local function bf16_experts()
    return {
        part "edge.gemm1" "bf16_gemm1" {
            reads = { h1 = "moe.h1", w13 = "edge.w13", permuted_to_token = "meta.permuted_to_token",
                      cta_expert = "meta.cta_expert", cta_limit = "meta.cta_limit", ctas = "meta.ctas" },
            writes = { gu = "moe.gu" }, set = { tile = TILE } },
        part "edge.swiglu" "swiglu" { reads = { gu = "moe.gu" }, writes = { act = "moe.act" } },
        part "edge.gemm2" "bf16_gemm2" {
            reads = { act = "moe.act", w2 = "edge.w2", cta_expert = "meta.cta_expert", cta_limit = "meta.cta_limit",
                      ctas = "meta.ctas" },
            writes = { rows = "moe.rows" }, set = { tile = TILE } },
    }
end

-- Section 5.1. Rows of sliced experts are complete only after their sum over the ranks, and then each rank has the whole output;
-- whole experts are normed and weighted where they lie, and the ranks' outputs are summed.
local function tail(sliced)
    local parts, rows, partial = {}, "moe.rows", "moe.parts"
    if sliced then
        parts, rows, partial = {
            part "moe.route_sum" "route_sum" { reads = { rows = "moe.rows" }, writes = { y = "moe.rows.all" } },
        }, "moe.rows.all", "moe.m"
    end
    append(parts, {
        part "moe.post_norm" "post_expert_norm" {
            reads = { rows = rows, expanded_to_permuted = "meta.expanded_to_permuted", gain = "post_expert.gain" },
            writes = { n = "moe.n" }, set = { eps = POST_EPS, center = 1 } },
        part "moe.sum" "weighted_sum" { reads = { n = "moe.n", weights = "moe.weights" }, writes = { partial = partial } },
    })
    if not sliced then
        table.insert(parts, part "moe.combine" "combine" { reads = { partial = "moe.parts" }, writes = { m = "moe.m" } })
    end
    return parts
end

-- Section 5. Parts stand in an order in which router and pooler, and what follows each of them, may share a launch.
local function moe(size, n, k, set)
    local w4a16 = set.w4a16
    local group = k.full and "full" or "sliding"
    local name = k.bf16 and "edge." or "moe."
    local h1 = (k.bf16 or w4a16) and "moe.h1" or "moe.h1.all"
    local parts = {
        part(name .. "router") "router" { reads = { x = "mid.x", w = "router.w" }, writes = { logits = "moe.logits" } },
        part "moe.pool" "gemm" { reads = { x = "mid.x", w = "pool.w" }, writes = { y = "moe.h0" } },
        part "moe.gather" "pool_gather" { reads = { columns = "moe.h0" }, writes = { h0 = "moe.h0.all" } },
        part(name .. "routing") "routing" {
            reads = { logits = "moe.logits", bias = "router.bias", rank = "rank", slots = "slot_mapping." .. group },
            writes = { ids = "moe.ids", weights = "moe.weights", total_padded = "meta.total_padded",
                       expanded_to_permuted = "meta.expanded_to_permuted", permuted_to_token = "meta.permuted_to_token",
                       histogram = "meta.histogram", counts = "meta.counts", cta_expert = "meta.cta_expert",
                       cta_limit = "meta.cta_limit", ctas = "meta.ctas" },
            set = { scale = OUTPUT_MULTIPLIER, bf16_weights = k.bf16 and 1 or 0,
                    local_experts = k.bf16 and n.experts or n.fp4_experts,
                    tile = TILE, epsilon = ROUTE_EPS } },
        part(name .. "norm") "expert_norm" {
            reads = { h0 = "moe.h0.all", gain = "pre_expert.gain" }, writes = { h1 = h1 }, set = { eps = RMS_EPS, center = 1 } },
    }
    if not k.bf16 and not w4a16 then
        table.insert(parts, part "moe.quantise" "quantise" {
            reads = { h1 = "moe.h1.all", input_gscale = "expert.input_gscale" },
            writes = { codes = "moe.codes", scales = "moe.scales" } })
    end
    append(parts, k.bf16 and bf16_experts() or (w4a16 and w4a16_experts or nvfp4_experts)(step_names(size, n, set.packed)))
    append(parts, tail(n.sliced and not k.bf16))
    table.insert(parts, part "moe.unpool" "gemm" { reads = { x = "moe.m", w = "unpool.w" }, writes = { y = "moe.f" } })
    return parts
end

-- Section 2: the embedding before the layers, the final boundary and the head after them.
local function embedding(d)
    return {
        part "embed.lookup" "lookup" {
            reads = { tokens = "tokens", table = "embed", faults = "faults", rank = d.set.by_nccl and "rank" or nil },
            writes = { partial = "embed.partial" } },
        part "embed.sum" "rank_sum" { reads = { parts = "embed.partial" }, writes = { a = "embed.e" } },
        part "embed.norm" "embed_norm" { reads = { e = "embed.e" }, writes = { s = "in.s" }, set = { eps = RMS_EPS } },
    }
end

-- The next tokens: of all ranks' logits at once, or of each rank's, and a library gathers those.
local function next_tokens(n, d)
    if not d.set.by_nccl then
        return { part "head.argmax" "argmax" { reads = { logits = "logits" }, writes = { token = "next_tokens" } } }
    end
    return {
        part "head.best" "best" { reads = { logits = "logits" }, writes = { best = "head.best" } },
        part "head.gather" "best_gather" { reads = { best = "head.best" }, writes = { all = "head.best.all" } },
        part "head.pick" "pick" { reads = { best = "head.best.all" }, writes = { token = "next_tokens" }, set = { vocab = n.vocab } },
    }
end

local function final(n, d)
    local parts = {
        part "final.gather" "gather" { reads = { columns = "moe.f" }, writes = { f = "final.f" } },
        part "final.residual" "residual" {
            reads = { branch = "final.f", s = "mid.s", alpha = prev "ffn.alpha", beta = prev "ffn.beta", gain = prev "ffn.post.gain" },
            writes = { s_out = "final.s" }, set = { eps = POST_EPS, center = 1 } },
        part "final.norm" "norm" {
            reads = { s = "final.s", gain = "final.gain" }, writes = { x = "hidden" }, set = { eps = RMS_EPS, center = 0 } },
    }
    if d.set.head then
        append(parts, {
            part "head.logits" "logits" {
                reads = { x = "hidden", w = "head.w" }, writes = { z = "head.z" }, set = { multiplier = OUTPUT_MULTIPLIER } },
            part "head.cap" "soft_cap" { reads = { z = "head.z" }, writes = { logits = "logits" }, set = { cap = SOFT_CAP } },
        })
        append(parts, next_tokens(n, d))
    end
    return parts
end

local function layer_kind(size, d, l)
    local k = { first = l == 0, full = contains(size.full, l), bf16 = contains(size.bf16, l), aux = contains(d.aux, l) }
    k.name = (k.first and "first_" or "") .. (k.full and "full_" or "sliding_") .. (k.bf16 and "bf16" or "nvfp4")
        .. (k.aux and not k.first and "_aux" or "")
    return k
end

-- The sizes of a checkpoint whose layers all have bf16 experts.
local function in_bf16(size)
    local same = {}
    for key, value in pairs(size) do
        same[key] = value
    end
    same.bf16 = {}
    for l = 0, size.layers - 1 do
        table.insert(same.bf16, l)
    end
    return same
end

-- `d.set.bf16`: the checkpoint is the one without NVFP4.
local function build_model(sizes, d)
    local size = d.set.bf16 and in_bf16(sizes) or sizes
    local n = local_sizes(size, d)
    local kinds, layers, seen = {}, {}, {}
    for l = 0, size.layers - 1 do
        local k = layer_kind(size, d, l)
        if not seen[k.name] then
            seen[k.name] = true
            local parts = input_boundary(k)
            append(parts, attention(size, n, d, k))
            append(parts, attention_boundary(d))
            append(parts, moe(size, n, k, d.set))
            table.insert(kinds, kind(k.name) { parts = parts })
        end
        table.insert(layers, k.name)
    end
    local kv = function(name, group_name)
        return cache(name) { "bf16", "pages", n.kv_heads, d.page_tokens, 2 * size.head_dim, group = group_name }
    end
    return model {
        groups = { group "sliding" { window = size.window }, group "full" { window = 0 } },
        values = declare_values(size, n, d),
        weights = declare_weights(size, n, d.set.experts_apart and apart or fused, d.set.w4a16),
        caches = { kv("kv.sliding", "sliding"), kv("kv.full", "full") },
        prepare = prepare_parts(n.fp4, d.set.w4a16, d.set.packed),
        probe = probe_experts(size, n, d),
        prologue = embedding(d),
        kinds = kinds,
        layers = layers,
        epilogue = final(n, d),
        checkpoint = include "muse_spark_checkpoint.lua" (size, d, {
            rms_eps = RMS_EPS, post_eps = POST_EPS, qk_scale_factor = QK_SCALE_FACTOR, output_multiplier = OUTPUT_MULTIPLIER,
            soft_cap = SOFT_CAP, gate_temperature = GATE_TEMPERATURE, theta = ROPE_THETA }),
        serves = {
            architecture = "muse_spark", dense_layers = 0, shared_experts = 0, expert_groups = 0, routing = "sigmoid_bias",
            route_scale = 1, rope_theta = ROPE_THETA, rope_type = "default", swiglu_limit = 0, swiglu_alpha = 1, swiglu_beta = 0,
            norm_size = size.hidden },
    }
end

return {
    build = build_model,
    providers = providers.all,
}
