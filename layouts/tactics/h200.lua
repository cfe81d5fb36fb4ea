-- SPDX-License-Identifier: Apache-2.0
-- Tactics measured on an H200. How: launches back to back in one stream, none of them early, 20 a sample, 41 samples; four copies of
-- the weights in turn, so that none is in the L2 cache; medians and interquartile ranges of a launch. The floor of this one is 67 us.

return tactics "h200" {
    doc = "NVIDIA H200", arch = "sm_90a",
    ceilings = { read_gb_s = 4530, bf16_tflops = 989 }, -- a kernel that only reads, measured; dense, the data sheet's
    tactic "gemm/skinny" {
        shape = { kRows = 8, kN = 18432, kK = 8192, kPartials = 1 }, rows = 8,
        choose = {
            { kSplits = 1, kTiles = 1, kWarps = 4, kSteps = 1, kStages = 0 },
            { kSplits = 1, kTiles = 1, kWarps = 2, kSteps = 2, kStages = 0 },
        },
        record = {
            gpu = "NVIDIA H200", toolkit = "13.0", driver = "580.159.04", date = "2026-11-30", median_us = 75.818, spread_us = 0.19,
            losers = { -- all of one split, weights to registers
                { kTiles = 1, kWarps = 2, kSteps = 2, median_us = 76.462 }, { kTiles = 1, kWarps = 8, kSteps = 1, median_us = 77.538 },
                { kTiles = 2, kWarps = 4, kSteps = 1, median_us = 77.61 }, { kTiles = 2, kWarps = 8, kSteps = 1, median_us = 78.378 },
                { kTiles = 1, kWarps = 16, kSteps = 2, median_us = 79.043 }, { kTiles = 2, kWarps = 2, kSteps = 2, median_us = 79.432 },
                { kTiles = 3, kWarps = 16, kSteps = 2, median_us = 79.592 }, { kTiles = 2, kWarps = 16, kSteps = 2, median_us = 80.118 },
                { kTiles = 3, kWarps = 4, kSteps = 1, median_us = 80.365 }, { kTiles = 2, kWarps = 16, kSteps = 1, median_us = 81.251 },
                { kTiles = 3, kWarps = 8, kSteps = 1, median_us = 81.651 }, { kTiles = 4, kWarps = 16, kSteps = 2, median_us = 81.925 },
                { kTiles = 1, kWarps = 8, kSteps = 2, median_us = 82.325 }, { kTiles = 1, kWarps = 16, kSteps = 1, median_us = 82.363 },
                { kTiles = 4, kWarps = 8, kSteps = 1, median_us = 83.0 }, { kTiles = 3, kWarps = 2, kSteps = 2, median_us = 84.712 },
                { kTiles = 3, kWarps = 4, kSteps = 2, median_us = 85.328 }, { kTiles = 3, kWarps = 8, kSteps = 2, median_us = 85.486 },
                { kTiles = 1, kWarps = 4, kSteps = 2, median_us = 85.488 }, { kTiles = 4, kWarps = 8, kSteps = 2, median_us = 85.83 },
                { kTiles = 2, kWarps = 4, kSteps = 2, median_us = 86.029 }, { kTiles = 3, kWarps = 16, kSteps = 1, median_us = 87.165 },
                { kTiles = 2, kWarps = 8, kSteps = 2, median_us = 87.701 }, { kTiles = 4, kWarps = 4, kSteps = 2, median_us = 89.158 },
                { kTiles = 4, kWarps = 2, kSteps = 2, median_us = 94.981 }, { kTiles = 4, kWarps = 16, kSteps = 1, median_us = 104.99 },
                { kTiles = 1, kWarps = 2, kSteps = 1, median_us = 106.096 }, { kTiles = 1, kWarps = 1, kSteps = 2, median_us = 108.093 },
                { kTiles = 2, kWarps = 2, kSteps = 1, median_us = 116.416 }, { kTiles = 2, kWarps = 1, kSteps = 2, median_us = 124.763 },
                { kTiles = 3, kWarps = 2, kSteps = 1, median_us = 124.923 }, { kTiles = 4, kWarps = 4, kSteps = 1, median_us = 127.126 },
                { kTiles = 4, kWarps = 1, kSteps = 2, median_us = 150.891 }, { kTiles = 3, kWarps = 1, kSteps = 2, median_us = 159.117 },
                { kTiles = 1, kWarps = 1, kSteps = 1, median_us = 195.914 }, { kTiles = 2, kWarps = 1, kSteps = 1, median_us = 213.213 },
                { kTiles = 4, kWarps = 2, kSteps = 1, median_us = 226.408 }, { kTiles = 3, kWarps = 1, kSteps = 1, median_us = 229.176 },
            },
        },
    },
    -- First routed GEMM of 8 tokens, 57 experts touched.
    tactic "moe/unit_gemm1" {
        shape = { kRows = 8, kCodeBytes = 2048, kBlocks = 256, kExperts = 256, kUnits = 512, kUnitBytes = 4608,
                  kPermuted = 513, kMaxCtas = 64, kMaxRows = 512, kOutBytes = 256, kOutBlocks = 32, kTile = 8 }, rows = 8,
        choose = { { kTeams = 2, kSplit = 8, kStages = 2, kExpanded = 1 } },
        -- Graphs of eight launches, none early, weights of four layers in turn; 41 replays, twice. The second one is slower in the chain
        -- of both products too, 57.5 us for 55.5. `lathe tune` found it faster with a spread of 9 us.
        record = {
            gpu = "NVIDIA H200", toolkit = "13.0", driver = "580.159.04", date = "2026-11-30", median_us = 38.64, spread_us = 0.02,
            losers = {
                { kTeams = 3, kSplit = 4, kStages = 2, kExpanded = 1, median_us = 39.4 },
                { kTeams = 2, kSplit = 8, kStages = 2, kExpanded = 0, median_us = 42.04 },
            },
        },
    },
    -- The following: every launch early, weights and caches all distinct and larger than the L2 cache, a graph of 20 to 80 launches
    -- replayed 15 times, median of a launch; spreads are those of two such runs on two machines. Of products: with a small launch
    -- behind each that reads their slices and writes what the next one reads, both together.
    tactic "gemm/skinny" {
        shape = { kRows = 8, kN = 2304, kK = 8192, kPartials = 1 }, rows = 8,
        choose = { { kSplits = 2, kTiles = 3, kWarps = 8, kSteps = 4, kStages = 6 } },
        record = {
            gpu = "NVIDIA H200", toolkit = "13.0", driver = "580.159.04", date = "2026-11-30", median_us = 10.77, spread_us = 0.12,
            losers = {
                { kSplits = 4, kTiles = 6, kWarps = 8, kSteps = 4, kStages = 5, median_us = 10.78 },
                { kSplits = 2, kTiles = 3, kWarps = 16, kSteps = 2, kStages = 5, median_us = 10.94 },
                { kSplits = 4, kTiles = 6, kWarps = 8, kSteps = 4, kStages = 4, median_us = 11.07 },
                { kSplits = 4, kTiles = 6, kWarps = 16, kSteps = 2, kStages = 4, median_us = 11.25 },
                { kSplits = 8, kTiles = 9, kWarps = 8, kSteps = 4, kStages = 3, median_us = 11.92 },
                { kSplits = 8, kTiles = 9, kWarps = 8, kSteps = 4, kStages = 4, median_us = 12.28 },
                { kSplits = 8, kTiles = 9, kWarps = 8, kSteps = 4, kStages = 5, median_us = 12.69 },
                { kSplits = 1, kTiles = 2, kWarps = 8, kSteps = 4, kStages = 6, median_us = 12.71 },
                { kSplits = 4, kTiles = 1, kWarps = 16, kSteps = 2, kStages = 0, median_us = 13.49 },
                { kSplits = 8, kTiles = 3, kWarps = 16, kSteps = 2, kStages = 0, median_us = 14.4 },
                { kSplits = 8, kTiles = 1, kWarps = 16, kSteps = 2, kStages = 0, median_us = 14.49 },
            },
        },
    },
    tactic "gemm/skinny" {
        shape = { kRows = 1, kN = 2304, kK = 8192, kPartials = 1 }, rows = 1,
        choose = { { kSplits = 4, kTiles = 6, kWarps = 8, kSteps = 4, kStages = 6 } },
        record = {
            gpu = "NVIDIA H200", toolkit = "13.0", driver = "580.159.04", date = "2026-11-30", median_us = 10.51, spread_us = 0.12,
            losers = {
                { kSplits = 2, kTiles = 3, kWarps = 8, kSteps = 4, kStages = 6, median_us = 10.72 },
                { kSplits = 8, kTiles = 9, kWarps = 8, kSteps = 4, kStages = 5, median_us = 12.21 },
            },
        },
    },
    tactic "gemm/skinny" {
        shape = { kRows = 32, kN = 2304, kK = 8192, kPartials = 1 }, rows = 32,
        choose = { { kSplits = 8, kTiles = 9, kWarps = 4, kSteps = 8, kStages = 4 } },
        record = {
            gpu = "NVIDIA H200", toolkit = "13.0", driver = "580.159.04", date = "2026-11-30", median_us = 15.12, spread_us = 0.12,
            losers = {
                { kSplits = 8, kTiles = 6, kWarps = 8, kSteps = 4, kStages = 2, median_us = 18.11 },
                { kSplits = 4, kTiles = 6, kWarps = 8, kSteps = 4, kStages = 3, median_us = 18.18 },
                { kSplits = 4, kTiles = 1, kWarps = 16, kSteps = 2, kStages = 0, median_us = 24.71 },
            },
        },
    },
    tactic "moe/unit_gemm2" {
        shape = { kMaxRows = 512, kCodeBytes = 256, kBlocks = 32, kExperts = 256, kUnits = 256, kUnitBytes = 4608,
                  kWidth = 4096, kMaxCtas = 64, kOutRows = 512, kTile = 8, kRoutes = 64 }, rows = 8,
        choose = { { kWarps = 16, kStages = 2, kExpanded = 1 } },
        record = {
            gpu = "NVIDIA H200", toolkit = "13.0", driver = "580.159.04", date = "2026-11-30", median_us = 21.11,
            spread_us = 4.06, tried = 12,
            losers = {
                { kWarps = 8, kStages = 2, kExpanded = 1, median_us = 20.33 },
                { kWarps = 8, kStages = 3, kExpanded = 1, median_us = 21.0 },
                { kWarps = 12, kStages = 2, kExpanded = 1, median_us = 21.18 },
                { kWarps = 8, kStages = 4, kExpanded = 1, median_us = 21.59 },
                { kWarps = 12, kStages = 2, kExpanded = 0, median_us = 29.32 },
                { kWarps = 4, kStages = 2, kExpanded = 1, median_us = 37.83 },
                { kWarps = 8, kStages = 2, kExpanded = 0, median_us = 44.55 },
                { kWarps = 2, kStages = 2, kExpanded = 1, median_us = 51.0 },
                { kWarps = 4, kStages = 2, kExpanded = 0, median_us = 90.37 },
                { kWarps = 2, kStages = 2, kExpanded = 0, median_us = 131.57 },
                { kWarps = 1, kStages = 2, kExpanded = 0, median_us = 182.93 },
            },
        },
    },
}
