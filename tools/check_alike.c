/* SPDX-License-Identifier: Apache-2.0
 * Bits on every rank (design.md, line 5). Which values are replicated no file says; it follows from
 * the references: what they expect of every rank alike, computed from what each rank read. By
 * induction over the launches, the first launch whose bits differ is the one that is reported. */
#include <string.h>

#include "check_state.h"

static bool is_replicated(const lathe_ref *ref, int index, int64_t count) {
    const double *first = ref->values[0][index].out;
    for (int rank = 1; rank < ref->ranks; ++rank)
        if (memcmp(first, ref->values[rank][index].out, (size_t)count * sizeof *first) != 0)
            return false;
    return true;
}

static bool is_same(const lathe_ref *ref, int index, int64_t count, int rank) {
    const size_t item = lathe_scalar_bytes(ref->launch->values[index].arg->dtype);
    const lathe_ref_value *ours = &ref->values[0][index];
    const char *theirs = ref->values[rank][index].after;
    for (int64_t i = 0; i < count; ++i) {
        const size_t at = (size_t)i * item;
        if (!lathe_ref_is_unset(ours->out[i]) &&
            memcmp((const char *)ours->after + at, theirs + at, item) != 0)
            return false;
    }
    return true;
}

int lathe_check_alike(const lathe_ref *ref, int index, int *count) {
    const int64_t elements = lathe_step_shape_count(&ref->launch->values[index].shape, 0);
    if (ref->ranks == 1)
        return 0;
    for (int rank = 0; rank < ref->ranks; ++rank)
        if (!ref->values[rank][index].out || !ref->values[rank][index].after)
            return 0;
    if (!is_replicated(ref, index, elements))
        return 0;
    ++*count;
    for (int rank = 1; rank < ref->ranks; ++rank)
        if (!is_same(ref, index, elements, rank))
            return rank;
    return 0;
}
