/* SPDX-License-Identifier: Apache-2.0
 * Scales what step.json counts. */
#include "bench_bytes.h"

#include <string.h>

/* As the checkpoint has them, or repacked by `prepare`. */
static bool is_weight(lathe_step_lifetime lifetime) {
    return lifetime == LATHE_LIFETIME_WEIGHT || lifetime == LATHE_LIFETIME_PREPARED;
}

int64_t lathe_bench_most_experts(const lathe_step_launch *l) {
    int64_t tiles = 0, experts = 0;
    for (int i = 0; i < l->value_count; ++i) {
        const lathe_step_value *v = &l->values[i];
        if (!v->buffer || v->arg->dir != LATHE_DIR_IN || v->shape.count < 1)
            continue;
        if (strcmp(v->arg->name, "cta_expert") == 0)
            tiles = v->shape.dim[0];
        else if (is_weight(v->buffer->lifetime) && v->shape.dim[0] > experts)
            experts = v->shape.dim[0];
    }
    return tiles < experts ? tiles : experts;
}

/* Keys that a launch reads of its cache as a share of the most that it could. */
static double share_of_keys(const lathe_step_launch *l, const lathe_bench_load *load) {
    for (int i = 0; i < l->value_count; ++i) {
        const lathe_step_value *v = &l->values[i];
        if (!v->buffer || v->buffer->lifetime != LATHE_LIFETIME_KV || v->arg->dir != LATHE_DIR_IN)
            continue;
        const int64_t window = load->table->groups[v->buffer->group].window;
        int64_t most = load->table->max_context;
        if (window > 0 && window + load->q - 1 < most)
            most = window + load->q - 1;
        return load->context < most ? (double)load->context / (double)most : 1;
    }
    return 1;
}

double lathe_bench_bytes(const lathe_step_launch *l, const lathe_bench_load *load) {
    if (l->kind != LATHE_OP_LAUNCH)
        return 0;
    const int64_t most = lathe_bench_most_experts(l);
    double share = share_of_keys(l, load);
    if (most > 0 && load->experts > 0 && load->experts < (double)most)
        share *= load->experts / (double)most;
    return share * (double)l->kernel->bytes;
}
