/* SPDX-License-Identifier: Apache-2.0 */
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *lathe_library_path(lathe_symbol symbol, char *path, size_t size) {
    Dl_info info;
    void *address;
    memcpy(&address, &symbol, sizeof address);
    if (!symbol || !dladdr(address, &info) || !info.dli_fname) {
        snprintf(path, size, "%s", "");
        return path;
    }
    char *real = realpath(info.dli_fname, NULL);
    snprintf(path, size, "%s", real ? real : info.dli_fname);
    free(real);
    return path;
}
