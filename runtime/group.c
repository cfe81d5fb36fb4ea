/* SPDX-License-Identifier: Apache-2.0
 * Owns: what every group offers, made from one primitive, the all-gather. */
#include "group.h"

#include <inttypes.h>
#include <stdio.h>

lathe_status lathe_group_all_gather(lathe_group *g, const void *mine, size_t bytes, void *all) {
    return g->ops->all_gather(g, mine, bytes, all);
}

lathe_status lathe_group_barrier(lathe_group *g) {
    return g->ops->all_gather(g, NULL, 0, NULL);
}

void lathe_group_destroy(lathe_group *group) {
    if (group)
        group->ops->destroy(group);
}

lathe_status lathe_group_agree_min(lathe_group *g, int64_t *value) {
    int64_t all[LATHE_GROUP_MAX];
    const lathe_status status = lathe_group_all_gather(g, value, sizeof *value, all);
    if (status != LATHE_OK)
        return status;
    for (int r = 0; r < g->world; r++)
        if (all[r] < *value)
            *value = all[r];
    return LATHE_OK;
}

lathe_status lathe_group_agree_hash(lathe_group *g, uint64_t hash, const char *what) {
    uint64_t all[LATHE_GROUP_MAX];
    const lathe_status status = lathe_group_all_gather(g, &hash, sizeof hash, all);
    if (status != LATHE_OK)
        return status;
    size_t used = 0;
    bool differ = false;
    for (int r = 1; r < g->world; r++) {
        if (all[r] == all[0])
            continue;
        if (!differ)
            used = (size_t)snprintf(g->message, sizeof g->message,
                                    "%s of rank 0 is %016" PRIx64 "; it differs on rank", what,
                                    all[0]);
        differ = true;
        if (used < sizeof g->message)
            used += (size_t)snprintf(g->message + used, sizeof g->message - used, " %d", r);
    }
    return differ ? LATHE_DISAGREE : LATHE_OK;
}
