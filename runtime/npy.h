/* SPDX-License-Identifier: Apache-2.0
 * Arrays in .npy files, version 1: little-endian, C order, the types below. bf16 travels as u16
 * bits, e4m3 and packed codes as u8. The header is untrusted: what does not parse, or does not fill
 * the file exactly, is refused. */
#ifndef LATHE_NPY_H
#define LATHE_NPY_H

#include "lathe.h"

#define LATHE_NPY_RANK 8

typedef enum {
    LATHE_NPY_F32,
    LATHE_NPY_F64,
    LATHE_NPY_I32,
    LATHE_NPY_I64,
    LATHE_NPY_U8,
    LATHE_NPY_U16,
    LATHE_NPY_U32,
    LATHE_NPY_TYPES /* how many there are */
} lathe_npy_type;

typedef struct {
    lathe_npy_type type;
    int rank;
    int64_t shape[LATHE_NPY_RANK];
    int64_t count; /* elements */
    void *data;    /* count * lathe_npy_item_bytes(type), owned */
} lathe_npy;

/* Bytes of one element. */
size_t lathe_npy_item_bytes(lathe_npy_type type);
/* The type's name in a header, "<f4". Never NULL. */
const char *lathe_npy_type_name(lathe_npy_type type);

/* Reads a whole file. On failure `array` is zero and `message` names the file and what is wrong
 * with it. */
LATHE_CHECKED lathe_status lathe_npy_read(const char *path, lathe_npy *array, char *message,
                                          size_t size);
/* The same without the data, which stays NULL: type and shape, and that the file is as long as they
 * say. */
LATHE_CHECKED lathe_status lathe_npy_read_header(const char *path, lathe_npy *array, char *message,
                                                 size_t size);
/* Writes a whole file: type, rank, shape and data of `array`. */
LATHE_CHECKED lathe_status lathe_npy_write(const char *path, const lathe_npy *array, char *message,
                                           size_t size);
/* Frees the data and clears `array`. Accepts a zero array. */
void lathe_npy_destroy(lathe_npy *array);

#endif
