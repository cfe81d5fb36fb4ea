/* SPDX-License-Identifier: Apache-2.0
 * Named values as .npy files: NAME.npy for what a step has once, L03.NAME.npy for what layer 3 has.
 * bf16 stands in a file as u16 bits, e4m3 as u8. */
#ifndef LATHE_NAMED_H
#define LATHE_NAMED_H

#include "npy.h"
#include "step_table.h"

#define LATHE_NAMED_BYTES 256

/* The file type that holds elements of `dtype`. */
lathe_npy_type lathe_named_type(lathe_scalar dtype);
/* "NAME", or "L03.NAME" for layer >= 0. */
void lathe_named_format(const char *buffer, int layer, char *name, size_t size);

/* Reads FOLDER/NAME.npy. A missing file is no failure: array->data is NULL then. */
LATHE_CHECKED lathe_status lathe_named_read(const char *folder, const char *name, lathe_npy *array,
                                            char *message, size_t size);
/* Type and shape of FOLDER/NAME.npy without its data; *found: there is such a file. */
LATHE_CHECKED lathe_status lathe_named_read_header(const char *folder, const char *name,
                                                   lathe_npy *array, bool *found, char *message,
                                                   size_t size);
/* Refuses an array of another type or number of elements. */
LATHE_CHECKED lathe_status lathe_named_check(const char *name, const lathe_npy *array,
                                             lathe_scalar dtype, int64_t count, char *message,
                                             size_t size);
LATHE_CHECKED lathe_status lathe_named_write(const char *folder, const char *name,
                                             lathe_scalar dtype, const lathe_step_shape *shape,
                                             void *data, char *message, size_t size);

#endif
