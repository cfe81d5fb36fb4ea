/* SPDX-License-Identifier: Apache-2.0
 * Reads the tiles that routing laid out: the arrays `cta_expert` and `ctas` of its launch. */
#include "bench_routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lathe_bench_routes_distinct(const int32_t *tiles, int64_t count) {
    int distinct = 0;
    for (int64_t i = 0; i < count; ++i) {
        bool seen = false;
        for (int64_t k = 0; k < i && !seen; ++k)
            seen = tiles[k] == tiles[i];
        distinct += !seen;
    }
    return distinct;
}

static const lathe_step_value *find_out(const lathe_step_launch *l, const char *name) {
    for (int i = 0; l->kind == LATHE_OP_LAUNCH && i < l->value_count; ++i) {
        const lathe_step_value *v = &l->values[i];
        if (v->buffer && v->arg->dir == LATHE_DIR_OUT && v->arg->dtype == LATHE_SCALAR_I32 &&
            strcmp(v->arg->name, name) == 0)
            return v;
    }
    return NULL;
}

static lathe_status read_layer(lathe_device *d, const lathe_step_launch *l,
                               lathe_bench_routes *routes) {
    const lathe_step_value *ctas = find_out(l, "ctas"), *expert = find_out(l, "cta_expert");
    int32_t count = 0;
    if (!ctas || !expert)
        return LATHE_OK;
    const int64_t room = (int64_t)(expert->bytes / sizeof(int32_t));
    int32_t *tiles = malloc(expert->bytes + 1);
    if (!tiles)
        return LATHE_NO_MEMORY;
    lathe_status status = d->ops->copy_out(d, &count, ctas->address, sizeof count);
    if (status == LATHE_OK)
        status = d->ops->copy_out(d, tiles, expert->address, expert->bytes);
    if (status == LATHE_OK)
        routes->of_layer[l->layer] +=
            lathe_bench_routes_distinct(tiles, count < room ? count : room);
    free(tiles);
    return status;
}

static bool ends_layer(const lathe_step_launch *l, int i, int count) {
    return i + 1 == count || l[i].section != l[i + 1].section || l[i].layer != l[i + 1].layer;
}

static lathe_status fail(const lathe_ranks *ranks, int rank, lathe_status status, char *message,
                         size_t size) {
    snprintf(message, size, "counting experts: rank %d: %s", rank,
             lathe_message(ranks->engines[rank]));
    return status;
}

/* Launches first to last on every rank and waits for them. */
static lathe_status run_range(const lathe_bench_launches *own, int first, int last, char *message,
                              size_t size) {
    int rank = 0;
    for (int r = 0; r < own->ranks->count; ++r)
        for (int i = first; i <= last; ++i) {
            const lathe_status status =
                lathe_engine_launch(own->ranks->engines[r], &own->of_rank[r][i]);
            if (status != LATHE_OK)
                return fail(own->ranks, r, status, message, size);
        }
    const lathe_status status =
        lathe_ranks_synchronize(own->ranks->engines, own->ranks->count, &rank);
    return status == LATHE_OK ? status : fail(own->ranks, rank, status, message, size);
}

lathe_status lathe_bench_routes_count(const lathe_bench_launches *own, lathe_bench_routes *routes,
                                      char *message, size_t size) {
    const lathe_step_launch *l = own->of_rank[0];
    lathe_device *d = lathe_engine_device(own->ranks->engines[0]);
    int first = 0;
    for (int i = 0; i < own->count; ++i) {
        if (!ends_layer(l, i, own->count))
            continue;
        lathe_status status = run_range(own, first, i, message, size);
        if (status != LATHE_OK)
            return status;
        for (int k = first; k <= i && status == LATHE_OK; ++k)
            status = read_layer(d, &l[k], routes);
        if (status != LATHE_OK) {
            snprintf(message, size, "counting experts: %s", d->message);
            return status;
        }
        first = i + 1;
    }
    ++routes->runs;
    return LATHE_OK;
}
