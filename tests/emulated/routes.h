// SPDX-License-Identifier: Apache-2.0
// Routing of tokens over experts for tests of the routed GEMMs, made without any of the code under
// test: one expert that nearly every token takes, experts that none takes, and rubbish wherever
// nothing is defined.
#ifndef LATHE_EMULATED_ROUTES_H
#define LATHE_EMULATED_ROUTES_H

#include <algorithm>
#include <cstdint>
#include <vector>

struct Routes {
    std::vector<int> token, expert, limit; // permuted_to_token, cta_expert, cta_limit
    int tiles = 0;
    int max_ctas = 0;

    bool live(int row, int tile) const {
        const int t = row / tile;
        return t < tiles && row < limit[static_cast<size_t>(t)];
    }
};

// Token t takes expert `busy` (but every fifth token does not) and then experts spread over the
// even ones.
inline std::vector<std::vector<int>> choose_experts(int rows, int experts, int top_k, int busy) {
    std::vector<std::vector<int>> tokens(static_cast<size_t>(experts)); // of each expert, ascending
    for (int t = 0; t < rows; t++) {
        std::vector<int> taken;
        if (t % 5 != 4)
            taken.push_back(busy);
        for (int i = 0; static_cast<int>(taken.size()) < top_k; i++) {
            const int e = (t * 7 + i * 2) % experts;
            if (std::find(taken.begin(), taken.end(), e) == taken.end())
                taken.push_back(e);
        }
        for (int e : taken)
            tokens[static_cast<size_t>(e)].push_back(t);
    }
    return tokens;
}

inline Routes make_routes(int rows, int experts, int top_k, int tile, int max_ctas, int busy) {
    const int rubbish = 0x3fffffff;
    Routes r;
    r.max_ctas = max_ctas;
    r.token.assign(static_cast<size_t>(max_ctas * tile + 1), rubbish);
    r.expert.assign(static_cast<size_t>(max_ctas), rubbish);
    r.limit.assign(static_cast<size_t>(max_ctas), rubbish);
    const auto tokens = choose_experts(rows, experts, top_k, busy);
    for (int e = 0; e < experts; e++) {
        const auto &list = tokens[static_cast<size_t>(e)];
        const int first = r.tiles * tile, end = first + static_cast<int>(list.size());
        for (size_t i = 0; i < list.size(); i++)
            r.token[static_cast<size_t>(first) + i] = list[i];
        for (; r.tiles * tile < end; r.tiles++) {
            r.expert[static_cast<size_t>(r.tiles)] = e;
            r.limit[static_cast<size_t>(r.tiles)] = std::min((r.tiles + 1) * tile, end);
        }
    }
    return r;
}

#endif
