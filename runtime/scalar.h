/* SPDX-License-Identifier: Apache-2.0
 * Owns: the element types of buffers. */
#ifndef LATHE_SCALAR_H
#define LATHE_SCALAR_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    LATHE_SCALAR_BF16,
    LATHE_SCALAR_F32,
    LATHE_SCALAR_F64,
    LATHE_SCALAR_I32,
    LATHE_SCALAR_I64,
    LATHE_SCALAR_U8,
    LATHE_SCALAR_U32,
    LATHE_SCALAR_E4M3,
    LATHE_SCALAR_MAILBOX /* only of kernel arguments: a pointer to a Mailbox struct */
} lathe_scalar;

/* Bytes of one element; 0 for LATHE_SCALAR_MAILBOX. */
size_t lathe_scalar_bytes(lathe_scalar type);

/* "bf16", "f32", ... as step.json writes it. */
const char *lathe_scalar_name(lathe_scalar type);

/* False where no type has that name. */
bool lathe_scalar_find(const char *name, lathe_scalar *type);

#endif
