-- SPDX-License-Identifier: Apache-2.0
-- Routing: scores, selection, route weights and the metadata of the routed GEMMs, in one block.

local function warps(c, most)
    return math.min(most, c.kRows)
end

return provider "moe/routing" {
    doc = "top-k of sigmoid(scale * logits) + bias, renormalised weights, tiles of local experts",
    parts = { "routing" },
    entry = "routing",
    constants = {
        const "kRows" { type = "int", min = 1, max = 32, doc = "tokens of the step; one bit each" },
        const "kExperts" { type = "int", min = 1, max = 1024, doc = "experts of all ranks" },
        const "kTopK" { type = "int", min = 1, max = 32, doc = "experts a token takes" },
        const "kRoutes" { type = "int", min = 1, doc = "kRows * kTopK" },
        const "kPermuted" { type = "int", min = 2, doc = "permuted rows and one guard element" },
        const "kHistogram" { type = "int", min = 1, doc = "elements of the histogram, left zero" },
        const "kMaxCtas" { type = "int", min = 1, doc = "most tiles the routes can need" },
        const "kScale" { type = "float", from = "routing.scale", doc = "of the logits" },
        const "kEpsilon" { type = "float", from = "routing.epsilon",
                           doc = "in the renormalisation" },
        const "kBf16Weights" { type = "int", from = "routing.bf16_weights", min = 0, max = 1,
                               doc = "1: weights rounded to bf16" },
        const "kLocal" { type = "int", from = "routing.local_experts", min = 1,
                         doc = "experts of this rank; kExperts: all" },
        const "kTile" { type = "int", from = "routing.tile", min = 1, doc = "tokens of one tile" },
        const "kWarps" { type = "int", tactic = true, min = 1, max = 32,
                         doc = "a warp selects for one token at a time" },
    },
    args = {
        arg "logits" { dir = "in", dtype = "f32", shape = { "kRows", "kExperts" },
                       port = "routing.logits" },
        arg "bias" { dir = "in", dtype = "f32", shape = { "kExperts" }, port = "routing.bias" },
        arg "rank" { dir = "in", dtype = "i32", shape = { 2 }, port = "routing.rank" },
        arg "slots" { dir = "in", dtype = "i64", shape = { "kRows" },
                      port = "routing.slots" }, -- a token with slot -1 routes nowhere
        arg "ids" { dir = "out", dtype = "i32", shape = { "kRows", "kTopK" },
                    port = "routing.ids" },
        arg "weights" { dir = "out", dtype = "f32", shape = { "kRows", "kTopK" },
                        port = "routing.weights" },
        arg "total_padded" { dir = "out", dtype = "i32", shape = { 1 },
                             port = "routing.total_padded" },
        arg "expanded_to_permuted" { dir = "out", dtype = "i32", shape = { "kRoutes" },
                                     port = "routing.expanded_to_permuted" },
        arg "permuted_to_token" { dir = "out", dtype = "i32", shape = { "kPermuted" },
                                  port = "routing.permuted_to_token" },
        arg "histogram" { dir = "out", dtype = "i32", shape = { "kHistogram" },
                          port = "routing.histogram" },
        arg "counts" { dir = "out", dtype = "i32", shape = { "kExperts" },
                       port = "routing.counts" },
        arg "cta_expert" { dir = "out", dtype = "i32", shape = { "kMaxCtas" },
                           port = "routing.cta_expert" },
        arg "cta_limit" { dir = "out", dtype = "i32", shape = { "kMaxCtas" },
                          port = "routing.cta_limit" },
        arg "ctas" { dir = "out", dtype = "i32", shape = { 1 }, port = "routing.ctas" },
    },
    launch = function(c, arch)
        return {
            grid = { 1, 1, 1 }, block = c.kWarps * 32,
            shared = 4 * (2 * c.kLocal + c.kRoutes + c.kMaxCtas + 1), registers = 64,
        }
    end,
    cost = function(c)
        return {
            bytes = 4 * (c.kRows * c.kExperts + c.kExperts * 2 + c.kRoutes * 3 + c.kPermuted
                + c.kHistogram + 2 * c.kMaxCtas),
            operations = c.kRows * c.kExperts * (c.kTopK + 4),
        }
    end,
    tactics = function(c, arch)
        local list = { { kWarps = warps(c, 32) } }
        for _, most in ipairs { 16, 8, 4 } do
            if c.kRows > most then
                table.insert(list, { kWarps = most })
            end
        end
        return list
    end,
    default = function(c, arch) return { kWarps = warps(c, arch.name == "host" and 4 or 32) } end,
    unsupported = function(c, arch)
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
    end,
    early = true,
    triggers = true,
}
