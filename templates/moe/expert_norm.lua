-- SPDX-License-Identifier: Apache-2.0
-- Expert norm of the pooled rows for bf16 experts, on one rank.
local pooled = include "moe/pooled.lua"
return provider "moe/expert_norm"(pooled.expert_norm(false))
