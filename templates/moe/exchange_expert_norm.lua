-- SPDX-License-Identifier: Apache-2.0
-- Expert norm for bf16 experts on several ranks: gather of the pooled columns by mailbox, norm.
local pooled = include "moe/pooled.lua"
return provider "moe/exchange_expert_norm"(pooled.expert_norm(true))
