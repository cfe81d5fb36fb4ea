-- SPDX-License-Identifier: Apache-2.0
-- Expert norm of the pooled rows and their NVFP4 quantisation, on one rank.
local pooled = include "moe/pooled.lua"
return provider "moe/norm_quantise"(pooled.norm_quantise(false))
