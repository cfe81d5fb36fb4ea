-- SPDX-License-Identifier: Apache-2.0
-- Expert input on several ranks: gather of the pooled columns by mailbox, norm, NVFP4 quantisation.
local pooled = include "moe/pooled.lua"
return provider "moe/exchange_norm_quantise"(pooled.norm_quantise(true))
