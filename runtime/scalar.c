/* SPDX-License-Identifier: Apache-2.0
 * Owns: the one table of element types. */
#include "scalar.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} scalars[] = {
    [LATHE_SCALAR_BF16] = {"bf16", 2},       [LATHE_SCALAR_F32] = {"f32", 4},
    [LATHE_SCALAR_F64] = {"f64", 8},         [LATHE_SCALAR_I32] = {"i32", 4},
    [LATHE_SCALAR_I64] = {"i64", 8},         [LATHE_SCALAR_U8] = {"u8", 1},
    [LATHE_SCALAR_U32] = {"u32", 4},         [LATHE_SCALAR_E4M3] = {"e4m3", 1},
    [LATHE_SCALAR_MAILBOX] = {"mailbox", 0},
};

size_t lathe_scalar_bytes(lathe_scalar type) {
    return scalars[type].bytes;
}

const char *lathe_scalar_name(lathe_scalar type) {
    return scalars[type].name;
}

bool lathe_scalar_find(const char *name, lathe_scalar *type) {
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; ++i) {
        if (strcmp(scalars[i].name, name) == 0) {
            *type = (lathe_scalar)i;
            return true;
        }
    }
    return false;
}
