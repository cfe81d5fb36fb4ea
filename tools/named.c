/* SPDX-License-Identifier: Apache-2.0
 * Names of values, and their files. */
#include "named.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

lathe_npy_type lathe_named_type(lathe_scalar dtype) {
    switch (dtype) {
    case LATHE_SCALAR_BF16:
        return LATHE_NPY_U16;
    case LATHE_SCALAR_F32:
        return LATHE_NPY_F32;
    case LATHE_SCALAR_F64:
        return LATHE_NPY_F64;
    case LATHE_SCALAR_I32:
        return LATHE_NPY_I32;
    case LATHE_SCALAR_I64:
        return LATHE_NPY_I64;
    case LATHE_SCALAR_U32:
        return LATHE_NPY_U32;
    default:
        return LATHE_NPY_U8;
    }
}

void lathe_named_format(const char *buffer, int layer, char *name, size_t size) {
    if (layer < 0)
        snprintf(name, size, "%s", buffer);
    else
        snprintf(name, size, "L%02d.%s", layer, buffer);
}

static lathe_status format_path(const char *folder, const char *name, char *path, char *message,
                                size_t size) {
    const int n = snprintf(path, PATH_BYTES, "%s/%s.npy", folder, name);
    if (n < PATH_BYTES && !strchr(name, '/'))
        return LATHE_OK;
    snprintf(message, size, "%s: no file can have this name", name);
    return LATHE_INVALID;
}

lathe_status lathe_named_read(const char *folder, const char *name, lathe_npy *array, char *message,
                              size_t size) {
    char path[PATH_BYTES];
    memset(array, 0, sizeof *array);
    const lathe_status status = format_path(folder, name, path, message, size);
    if (status != LATHE_OK || access(path, F_OK) != 0)
        return status;
    return lathe_npy_read(path, array, message, size);
}

lathe_status lathe_named_read_header(const char *folder, const char *name, lathe_npy *array,
                                     bool *found, char *message, size_t size) {
    char path[PATH_BYTES];
    memset(array, 0, sizeof *array);
    const lathe_status status = format_path(folder, name, path, message, size);
    *found = status == LATHE_OK && access(path, F_OK) == 0;
    return *found ? lathe_npy_read_header(path, array, message, size) : status;
}

lathe_status lathe_named_check(const char *name, const lathe_npy *array, lathe_scalar dtype,
                               int64_t count, char *message, size_t size) {
    const lathe_npy_type type = lathe_named_type(dtype);
    if (array->type == type && array->count == count)
        return LATHE_OK;
    snprintf(message, size, "%s.npy: %lld elements of type %s; the step has %lld of %s", name,
             (long long)array->count, lathe_npy_type_name(array->type), (long long)count,
             lathe_npy_type_name(type));
    return LATHE_INVALID;
}

lathe_status lathe_named_write(const char *folder, const char *name, lathe_scalar dtype,
                               const lathe_step_shape *shape, void *data, char *message,
                               size_t size) {
    char path[PATH_BYTES];
    lathe_npy array = {.type = lathe_named_type(dtype), .rank = shape->count, .data = data};
    array.count = lathe_step_shape_count(shape, 0);
    for (int d = 0; d < shape->count; ++d)
        array.shape[d] = shape->dim[d];
    const lathe_status status = format_path(folder, name, path, message, size);
    return status == LATHE_OK ? lathe_npy_write(path, &array, message, size) : status;
}
