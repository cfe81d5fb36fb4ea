-- SPDX-License-Identifier: Apache-2.0
-- The ranks' integers gathered by the library, one rank after the other.
return provider "collective/all_gather_i32" {
    doc = "to[r] = from of rank r",
    collective = "all_gather",
    parts = { "best_gather" },
    constants = {
        const "kRows" { type = "int", min = 1, doc = "tokens of the step" },
        const "kColumns" { type = "int", min = 1, doc = "a rank's columns" },
        const "kRanks" { type = "int", ranks = true, min = 2, doc = "ranks" },
    },
    args = {
        arg "from" { dir = "in", dtype = "i32", shape = { "kRows", "kColumns" }, port = "best_gather.best" },
        arg "to" { dir = "out", dtype = "i32", form = "columns", shape = { "kRanks", "kRows", "kColumns" }, port = "best_gather.all" },
    },
}
