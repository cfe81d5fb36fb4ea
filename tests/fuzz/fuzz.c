/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "files.h"

bool fuzz_taken;
static char folder[] = "/tmp/lathe-fuzz-XXXXXX";

void fuzz_require(bool holds, const char *format, ...) {
    va_list values;
    if (holds)
        return;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    abort();
}

static void remove_folder(void) {
    lathe_folder_remove(folder);
}

const char *fuzz_folder(void) {
    static bool made;
    if (!made) {
        fuzz_require(mkdtemp(folder) != NULL, "%s cannot be made", folder);
        made = atexit(remove_folder) == 0;
    }
    return folder;
}

const char *fuzz_path(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    return path;
}

void fuzz_write(const char *name, const void *data, size_t size) {
    FILE *file = fopen(fuzz_path(name), "wb");
    const bool written = file && fwrite(data, 1, size, file) == size;
    fuzz_require(file && fclose(file) == 0 && written, "%s cannot be written", fuzz_path(name));
}

char *fuzz_read(const char *path, size_t *size) {
    char *bytes;
    fuzz_require(lathe_file_read(path, SIZE_MAX, &bytes, size) == 0, "%s cannot be read", path);
    return bytes;
}
