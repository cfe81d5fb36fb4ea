-- SPDX-License-Identifier: Apache-2.0
-- Once at load: routes over all experts, as metadata of the routed GEMMs: of all experts, and of those of this rank.

return provider "probe/routes" {
    doc = "route n of R takes expert floor(n E / R), or n mod E where there are more routes than experts; tiles as routing makes them. "
        .. "own_expert and own_limit name the same tiles for a rank that holds E / tp whole experts: another rank's tile has no row",
    parts = { "probe_routes" },
    entry = "probe_routes",
    constants = {
        const "kRoutes" { type = "int", from = "probe_routes.routes", min = 1, max = 1024, doc = "tokens times experts a token takes" },
        const "kTopK" { type = "int", from = "probe_routes.top_k", min = 1, max = 32, doc = "experts a token takes" },
        const "kExperts" { type = "int", from = "probe_routes.experts", min = 1, max = 1024, doc = "experts of all ranks" },
        const "kLocal" { type = "int", from = "probe_routes.local_experts", min = 1, doc = "whole experts of this rank" },
        const "kTile" { type = "int", from = "probe_routes.tile", min = 1, doc = "tokens of one tile" },
        const "kPermuted" { type = "int", min = 2, doc = "permuted rows and one guard element" },
        const "kMaxCtas" { type = "int", min = 1, doc = "most tiles the routes can need" },
    },
    args = {
        arg "rank" { dir = "in", dtype = "i32", shape = { 2 }, port = "probe_routes.rank" },
        arg "permuted_to_token" { dir = "out", dtype = "i32", shape = { "kPermuted" }, port = "probe_routes.permuted_to_token" },
        arg "cta_expert" { dir = "out", dtype = "i32", shape = { "kMaxCtas" }, port = "probe_routes.cta_expert" },
        arg "cta_limit" { dir = "out", dtype = "i32", shape = { "kMaxCtas" }, port = "probe_routes.cta_limit" },
        arg "ctas" { dir = "out", dtype = "i32", shape = { 1 }, port = "probe_routes.ctas" },
        arg "own_expert" { dir = "out", dtype = "i32", shape = { "kMaxCtas" }, port = "probe_routes.own_expert" },
        arg "own_limit" { dir = "out", dtype = "i32", shape = { "kMaxCtas" }, port = "probe_routes.own_limit" },
    },
    launch = function(c) return { grid = { (c.kExperts + 31) // 32, 1, 1 }, block = 32, shared = 0, registers = 64 } end,
    cost = function(c)
        return { bytes = 4 * (c.kRoutes + 4 * c.kMaxCtas), operations = c.kExperts * c.kExperts }
    end,
    unsupported = function(c)
        if c.kTopK > c.kExperts or c.kRoutes % c.kTopK ~= 0 or c.kExperts % c.kLocal ~= 0 then
            return "a token cannot take more experts than there are, and ranks hold equally many"
        end
        local filled = math.min(c.kExperts, c.kRoutes)
        if c.kMaxCtas < filled + (c.kRoutes - filled) // c.kTile or c.kPermuted ~= c.kMaxCtas * c.kTile + 1 then
            return "cta_expert and permuted_to_token must have room for the tiles that the routes can need"
        end
    end,
}
