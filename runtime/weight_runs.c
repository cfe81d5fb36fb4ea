/* SPDX-License-Identifier: Apache-2.0
 * Local index i of the sharded axis, of `groups` groups of `share` each, stands at
 * i / share * group + rank * share + i % share of the whole axis: two dimensions of constant step.
 */
#include "weight_runs.h"

bool lathe_weight_runs_share(const lathe_step_source *s, int tp, int64_t *local) {
    for (int d = 0; d < s->shape.count; ++d) {
        local[d] = s->shape.dim[d];
        if (d != s->shard_axis)
            continue;
        if (s->shard_groups < 1 || local[d] % (s->shard_groups * tp) != 0)
            return false;
        local[d] /= tp;
    }
    return true;
}

static void add_dim(lathe_weight_runs *r, int64_t size, int64_t from_step, int64_t to_step) {
    r->size[r->dims] = size;
    r->from_step[r->dims] = from_step;
    r->to_step[r->dims++] = to_step;
    r->count *= size;
}

void lathe_weight_runs_find(const lathe_step_source *s, const lathe_step_shape *whole, int axis,
                            int64_t join, int rank, int tp, lathe_weight_runs *runs) {
    const lathe_step_shape *shape = &s->shape;
    const int inner = s->shard_axis > axis ? s->shard_axis : axis; /* from here on contiguous */
    int64_t from[LATHE_STEP_MAX_DIMS], to[LATHE_STEP_MAX_DIMS];
    int64_t from_all = 1, to_all = 1;
    for (int d = shape->count - 1; d >= 0; --d) {
        from[d] = from_all;
        to[d] = to_all;
        from_all *= shape->dim[d];
        to_all *= whole->dim[d];
    }
    *runs = (lathe_weight_runs){.count = 1, .length = 1};
    for (int d = 0; d < shape->count && d <= inner; ++d) {
        int64_t length = shape->dim[d];
        if (d == s->shard_axis) {
            const int64_t group = length / s->shard_groups;
            length = group / tp;
            runs->from += rank * length * from[d];
            add_dim(runs, s->shard_groups, group * from[d], length * to[d]);
        }
        if (d == inner)
            runs->length = length * from[d];
        else
            add_dim(runs, length, from[d], to[d]);
    }
    if (shape->count > 0)
        runs->to = join * to[axis];
}

void lathe_weight_runs_at(const lathe_weight_runs *r, int64_t n, int64_t *from, int64_t *to) {
    *from = r->from;
    *to = r->to;
    for (int d = r->dims; d-- > 0; n /= r->size[d]) {
        *from += n % r->size[d] * r->from_step[d];
        *to += n % r->size[d] * r->to_step[d];
    }
}
