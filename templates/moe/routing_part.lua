-- SPDX-License-Identifier: Apache-2.0
-- Routing as a part of a launch: its constants, arguments, shared memory and refusals, for the provider of it alone and for those
-- that give it a block of their own. Where the launch has no such part, its constants are 0.
local routing_part = {}

-- `optional`: the launch may lack the part.
function routing_part.constants(optional)
    local function number(name, t)
        t.type = t.type or "int"
        t.default = optional and 0 or nil
        t.min = t.type == "int" and (optional and 0 or t.min) or nil
        return const(name)(t)
    end
    return {
        number("kExperts", { min = 1, max = 1024, doc = "experts of all ranks" }),
        number("kTopK", { min = 1, max = 32, doc = "experts a token takes" }),
        number("kRoutes", { min = 1, doc = "kRows * kTopK" .. (optional and "; 0: nothing is routed here" or "") }),
        number("kPermuted", { min = 2, doc = "permuted rows and one guard element" }),
        number("kHistogram", { min = 1, doc = "elements of the histogram, left zero" }),
        number("kMaxCtas", { min = 1, doc = "most tiles the routes can need" }),
        optional and const "kLogitSplits" { type = "int", default = 0, min = 0, max = 16, doc = "partial sums of the logits" }
            or const "kLogitSplits" { type = "int", value = function() return 0 end, doc = "the logits come whole" },
        number("kScale", { type = "float", from = "routing.scale", doc = "of the logits" }),
        number("kEpsilon", { type = "float", from = "routing.epsilon", doc = "in the renormalisation" }),
        number("kBf16Weights", { from = "routing.bf16_weights", min = 0, max = 1, doc = "1: weights rounded to bf16" }),
        number("kLocal", { from = "routing.local_experts", min = 1, doc = "experts of this rank; kExperts: all" }),
        number("kTile", { from = "routing.tile", min = 1, doc = "tokens of one tile" }),
    }
end

function routing_part.args(optional)
    local function argument(name, dir, dtype, shape, form)
        return arg(name) { dir = dir, dtype = dtype, shape = shape, form = form, optional = optional or nil,
                           ahead = dir == "out" or nil, port = "routing." .. name }
    end
    return {
        optional and argument("logits", "in", "f32", { "kLogitSplits", "kRows", "kExperts" }, "k_partials")
            or argument("logits", "in", "f32", { "kRows", "kExperts" }),
        argument("bias", "in", "f32", { "kExperts" }),
        argument("rank", "in", "i32", { 2 }),
        argument("slots", "in", "i64", { "kRows" }), -- a token with slot -1 routes nowhere
        argument("ids", "out", "i32", { "kRows", "kTopK" }),
        argument("weights", "out", "f32", { "kRows", "kTopK" }),
        argument("total_padded", "out", "i32", { 1 }),
        argument("expanded_to_permuted", "out", "i32", { "kRoutes" }),
        argument("permuted_to_token", "out", "i32", { "kPermuted" }),
        argument("histogram", "out", "i32", { "kHistogram" }),
        argument("counts", "out", "i32", { "kExperts" }),
        argument("cta_expert", "out", "i32", { "kMaxCtas" }),
        argument("cta_limit", "out", "i32", { "kMaxCtas" }),
        argument("ctas", "out", "i32", { 1 }),
    }
end

function routing_part.shared_bytes(c)
    return 4 * (2 * c.kLocal + c.kRoutes + c.kMaxCtas + 2 + c.kExperts)
end

function routing_part.bytes(c)
    return 4 * (c.kRows * c.kExperts * math.max(1, c.kLogitSplits) + c.kExperts * 2 + c.kRoutes * 3 + c.kPermuted
        + c.kHistogram + 2 * c.kMaxCtas)
end

function routing_part.operations(c)
    return c.kRows * c.kExperts * (c.kTopK + 4)
end

function routing_part.unsupported(c)
    if c.kTopK > c.kExperts then
        return "a token cannot take more experts than there are"
    end
    if c.kRoutes ~= c.kRows * c.kTopK then
        return "expanded_to_permuted must have one element a route"
    end
    if c.kExperts % c.kLocal ~= 0 then
        return "the local experts must divide the experts"
    end
    local filled = math.min(c.kExperts, c.kRoutes)
    if c.kMaxCtas < filled + (c.kRoutes - filled) // c.kTile then
        return "cta_expert is shorter than the tiles the routes can need"
    end
    if c.kPermuted ~= c.kMaxCtas * c.kTile + 1 then
        return "permuted_to_token must have kMaxCtas * tile + 1 elements"
    end
end

return routing_part
