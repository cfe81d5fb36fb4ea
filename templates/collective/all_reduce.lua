-- SPDX-License-Identifier: Apache-2.0
-- A sum over the ranks by the library.
return provider "collective/all_reduce" {
    doc = "to = from summed over the ranks, in the library's order",
    collective = "all_reduce",
    parts = { { "rank_sum" }, { "route_sum" }, { "combine" } },
    constants = {
        const "kRows" { type = "int", min = 1, doc = "tokens of the step" },
        const "kWidth" { type = "int", min = 1, doc = "width of a row" },
    },
    args = {
        arg "from" { dir = "in", dtype = "bf16", shape = { "kRows", "kWidth" }, port = { "rank_sum.parts", "route_sum.rows", "combine.partial" } },
        arg "to" { dir = "out", dtype = "bf16", shape = { "kRows", "kWidth" }, port = { "rank_sum.a", "route_sum.y", "combine.m" } },
    },
}
