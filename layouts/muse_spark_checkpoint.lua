-- SPDX-License-Identifier: Apache-2.0
-- What stands in a Muse Spark checkpoint beside the tensors that the step reads (section 11): the fields of its two records that
-- must say the same as the layout. `k` holds the numbers that every size shares.

return function(size, d, k)
    local types, sparse, theta = {}, {}, {}
    local modules, quantised = { "lm_head" }, {}
    for l = 1, size.layers do
        types[l], sparse[l], theta[l] = "sliding_attention", "sparse", k.theta
    end
    for _, l in ipairs(size.full) do
        types[l + 1], theta[l + 1] = "full_attention", 0
    end
    local in_bf16 = {}
    for _, l in ipairs(size.bf16) do
        in_bf16[l] = true
    end
    for l = 0, size.layers - 1 do
        table.insert(in_bf16[l] and modules or quantised, "model.language_model.layers." .. l .. ".mlp.experts")
    end
    local text = {
        hidden_size = size.hidden, num_hidden_layers = size.layers, num_attention_heads = size.heads,
        num_key_value_heads = size.kv_heads, head_dim = size.head_dim, vocab_size = size.vocab,
        rms_norm_eps = k.rms_eps, post_norm_eps = k.post_eps,
        rope_parameters = { rope_theta = k.theta, rope_type = "default", partial_rotary_factor = { optional = 1 }, others = {} },
        layer_rope_theta = theta, layer_types = types, mlp_layer_types = sparse, sliding_window = size.window,
        final_logit_softcapping = k.soft_cap, output_multiplier = k.output_multiplier, qk_scale_factor = k.qk_scale_factor,
        residual_gate_temperature = k.gate_temperature, num_local_experts = size.experts, num_experts_per_tok = size.top_k,
        moe_hidden_size = size.pooled, moe_intermediate_size = size.inter, routed_scaling_factor = 1, num_shared_experts = 0,
        -- What the mathematics here takes for granted, where a checkpoint says so.
        attention_bias = { optional = false }, mlp_bias = { optional = false }, tie_word_embeddings = { optional = false },
        hidden_act = { optional = "silu" }, hidden_activation = { optional = "silu" }, use_qk_norm = { optional = true },
        norm_topk_prob = { optional = true }, scoring_func = { optional = "sigmoid" }, n_group = { optional = 1 },
        topk_group = { optional = 1 }, partial_rotary_factor = { optional = 1 },
        -- What changes nothing of it. The length is asked for by a host; no layer is dense, and no training goes on.
        others = { "model_type", "architectures", "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
            "dtype", "torch_dtype", "transformers_version", "_*", "use_cache", "initializer_range", "attention_dropout",
            "intermediate_size", "output_router_logits", "router_*_coef" },
    }
    local nvfp4 = { optional = { quant_algo = { optional = "NVFP4" }, kv_cache_scheme = { nothing = true } } }
    local files = { ["config.json"] = { model_type = "muse_spark", text_config = text, tie_word_embeddings = { optional = false },
        quantization_config = d.set.bf16 and { nothing = true } or nvfp4 } }
    if not d.set.bf16 then
        files["hf_quant_config.json"] = {
            quantization = { quant_algo = "NVFP4", group_size = 16, kv_cache_quant_algo = { nothing = true },
                exclude_modules = { modules = modules, without = quantised }, others = {} } }
    end
    return {
        files = files,
        -- Vision, audio and tokenizer are other programs' business.
        names = { "model.language_model.*", "lm_head.*" },
        unread = d.set.w4a16 and { "*input_scale" } or {},
    }
end
