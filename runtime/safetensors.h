/* SPDX-License-Identifier: Apache-2.0
 * A checkpoint in safetensors files: one file, or several named by model.safetensors.index.json.
 * Files are mapped, not read; a tensor's data is valid until the checkpoint is closed. Headers and
 * the index are untrusted: dtype, shape, offsets, order, names and file names are all checked
 * before a tensor can be found, and a tensor may be in one file only. Tensors that an index leaves
 * out are found too. */
#ifndef LATHE_SAFETENSORS_H
#define LATHE_SAFETENSORS_H

#include "lathe.h"

#define LATHE_SAFETENSORS_RANK 8

typedef struct lathe_safetensors lathe_safetensors;

typedef struct {
    const char *name;  /* as in the header */
    const char *dtype; /* as in the header: "BF16", "F32", "U8", "F8_E4M3", ... */
    const char *file;  /* path of the file that holds it */
    int rank;
    int64_t shape[LATHE_SAFETENSORS_RANK];
    const unsigned char *data; /* any alignment */
    size_t bytes;
} lathe_safetensor;

/* Opens `path`: a folder with an index or with one model.safetensors, an index file, or one
 * safetensors file. On failure `message` lists all that is wrong; the status is the first's. */
LATHE_CHECKED lathe_status lathe_safetensors_open(const char *path, lathe_safetensors **checkpoint,
                                                  char *message, size_t size);
void lathe_safetensors_close(lathe_safetensors *checkpoint);

/* The folder that the files lie in. */
const char *lathe_safetensors_folder(const lathe_safetensors *checkpoint);
/* The tensor of that name, or NULL. */
const lathe_safetensor *lathe_safetensors_find(const lathe_safetensors *checkpoint,
                                               const char *name);
/* Tensors in the order of their names. */
size_t lathe_safetensors_count(const lathe_safetensors *checkpoint);
const lathe_safetensor *lathe_safetensors_at(const lathe_safetensors *checkpoint, size_t index);

#endif
