/* SPDX-License-Identifier: Apache-2.0
 * Cuts checkpoint tensors for one rank and joins them: shapes only, the bytes are the runtime's. */
#include "shard.h"

#include <inttypes.h>

lathe_shape lathe_shard_local(lathe_lua *lua, const lathe_tensor *tensor, int64_t tp) {
    lathe_shape shape = tensor->shape;
    if (tensor->shard < 0)
        return shape;
    lathe_arena *arena = lathe_lua_arena(lua);
    int64_t *size = &shape.dims[tensor->shard];
    if (*size % tensor->groups != 0)
        lathe_diag_fail(lathe_arena_diag(arena), tensor->where,
                        "tensor \"%s\": axis %d has %" PRId64
                        " elements, no multiple of groups = %" PRId64,
                        tensor->name, tensor->shard, *size, tensor->groups);
    if (*size / tensor->groups % tp != 0)
        lathe_lua_refuse(lua, tensor->where,
                         lathe_arena_print(arena,
                                           "tensor \"%s\": %" PRId64
                                           " elements of axis %d in %" PRId64
                                           " group(s) do not divide by %" PRId64 " ranks",
                                           tensor->name, *size, tensor->shard, tensor->groups, tp));
    *size /= tp;
    return shape;
}

static _Noreturn void fail_join(lathe_arena *arena, const lathe_datum *weight,
                                const lathe_tensor *tensor, const lathe_shape *local,
                                const char *why) {
    lathe_diag_fail(lathe_arena_diag(arena), tensor->where,
                    "weight \"%s\": tensor \"%s\", %s %s on one rank, %s", weight->name,
                    tensor->name, lathe_dtype_name(tensor->dtype), lathe_shape_text(arena, local),
                    why);
}

void lathe_shard_check(lathe_lua *lua, const lathe_deployment *deployment,
                       const lathe_datum *weight) {
    lathe_arena *arena = lathe_lua_arena(lua);
    lathe_shape joined = {0};
    if (!weight->tensor_count)
        lathe_diag_fail(lathe_arena_diag(arena), weight->where,
                        "weight \"%s\": field 'from': found none, allowed: tensors", weight->name);
    for (size_t i = 0; i < weight->tensor_count; i++) {
        const lathe_tensor *tensor = &weight->tensors[i];
        const lathe_shape local = lathe_shard_local(lua, tensor, deployment->tp);
        if (tensor->dtype != weight->dtype)
            fail_join(arena, weight, tensor, &local,
                      lathe_arena_print(arena, "does not have the weight's dtype %s",
                                        lathe_dtype_name(weight->dtype)));
        if (i == 0) {
            joined = local;
            continue;
        }
        lathe_shape like = local;
        if (like.rank == joined.rank)
            like.dims[weight->axis] = joined.dims[weight->axis];
        if (!lathe_shape_equal(&like, &joined))
            fail_join(arena, weight, tensor, &local,
                      lathe_arena_print(arena, "cannot be joined to %s along axis %d",
                                        lathe_shape_text(arena, &joined), weight->axis));
        joined.dims[weight->axis] += local.dims[weight->axis];
    }
    size_t refused;
    (void)lathe_lua_refusals(lua, &refused);
    const lathe_shape declared = lathe_layout_shape(lua, deployment, weight, NULL);
    if (!refused && !lathe_shape_equal(&declared, &joined))
        lathe_diag_fail(
            lathe_arena_diag(arena), weight->where,
            "weight \"%s\": declared as %s, but its tensors give %s on one rank of %" PRId64,
            weight->name, lathe_shape_text(arena, &declared), lathe_shape_text(arena, &joined),
            deployment->tp);
}
