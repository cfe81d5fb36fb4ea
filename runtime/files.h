/* SPDX-License-Identifier: Apache-2.0
 * Owns: whole files and flat folders. Failures are errno values, 0 is success. */
#ifndef LATHE_FILES_H
#define LATHE_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* The whole file, with a zero byte after its end; the caller frees *data. EFBIG past `most` bytes,
 * ENOTSUP where it is neither a file nor a folder. */
int lathe_file_read(const char *path, size_t most, char **data, size_t *bytes);

/* Writes a new file and forces it to the disk. What was there is replaced; a failure may leave a
 * part. */
int lathe_file_write(const char *path, const void *data, size_t bytes);

/* The same by way of PATH.part: the file is there whole, or as it was before. */
int lathe_file_replace(const char *path, const void *data, size_t bytes);

/* Forces a file or a folder to the disk. */
int lathe_file_sync(const char *path);

/* Makes a folder and those above it. */
int lathe_folder_make(const char *path);

/* Removes a folder and all in it; symbolic links are not followed. 0 where it is not there. */
int lathe_folder_remove(const char *path);

/* A fresh folder in `base` that only this user may enter; its path, at most `size` bytes, in
 * `path`. */
int lathe_folder_make_private(const char *base, char *path, size_t size);

/* "FOLDER/NAME" in `path`; false where it does not fit. */
bool lathe_path_join(char *path, size_t size, const char *folder, const char *name);

#endif
