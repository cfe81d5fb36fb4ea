-- SPDX-License-Identifier: Apache-2.0
-- The ranks' columns gathered by the library, one rank after the other.
return provider "collective/all_gather" {
    doc = "to[r] = from of rank r",
    collective = "all_gather",
    parts = { { "gather" }, { "pool_gather" } },
    constants = {
        const "kRows" { type = "int", min = 1, doc = "tokens of the step" },
        const "kColumns" { type = "int", min = 1, doc = "a rank's columns" },
        const "kRanks" { type = "int", ranks = true, min = 2, doc = "ranks" },
    },
    args = {
        arg "from" { dir = "in", dtype = "bf16", shape = { "kRows", "kColumns" }, port = { "gather.columns", "pool_gather.columns" } },
        arg "to" { dir = "out", dtype = "bf16", form = "columns", shape = { "kRanks", "kRows", "kColumns" },
                   port = { "gather.f", "pool_gather.h0" } },
    },
}
