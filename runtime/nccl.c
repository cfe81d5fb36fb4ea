/* SPDX-License-Identifier: Apache-2.0
 * Owns: finding NCCL's library and its entry points. */
#include "nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LIBRARY "libnccl.so.2"
#define OLDEST 21700 /* the first with all of the configuration that is used */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *symbol;
    size_t offset;
} calls[] = {
#define LATHE_NCCL_ENTRY(member, symbol, parameters) {#symbol, offsetof(lathe_nccl, member)},
    LATHE_NCCL_CALLS(LATHE_NCCL_ENTRY)
#undef LATHE_NCCL_ENTRY
        {"ncclGetErrorString", offsetof(lathe_nccl, result_text)},
    {"ncclGetLastError", offsetof(lathe_nccl, last_error)},
};

static const char *const folders[] = {"", "lib/", "lib64/", "nvidia/nccl/lib/"};
static const char *const places[] = {"/usr/local/cuda", "/usr/local", "/usr"};

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Lazily: resolving 200 MB of symbols would take longer than all that is done with them. */
static void *open_library(const char *path) {
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

static void *open_in_folder(const char *folder) {
    char path[4096];
    for (size_t f = 0; f < COUNT(folders); ++f) {
        struct stat info;
        const int length = snprintf(path, sizeof path, "%s/%s" LIBRARY, folder, folders[f]);
        if (length >= (int)sizeof path || stat(path, &info) != 0)
            continue;
        void *library = open_library(path);
        if (library)
            return library;
    }
    return NULL;
}

static void *open_default(void) {
    void *library = open_library(LIBRARY);
    for (size_t p = 0; !library && p < COUNT(places); ++p)
        library = open_in_folder(places[p]);
    return library;
}

static lathe_status find_library(const char *where, void **library, lathe_message_buffer message) {
    const char *env = getenv("LATHE_NCCL");
    const char *named = where ? where : env && env[0] ? env : NULL;
    *library = !named             ? open_default()
               : is_folder(named) ? open_in_folder(named)
                                  : open_library(named);
    if (*library)
        return LATHE_OK;
    if (named)
        return lathe_fail(message, LATHE_NO_DEVICE,
                          "NCCL is missing: found none at %s (%s), allowed: " LIBRARY
                          " or a folder that holds it",
                          named, where ? "named by the caller" : "LATHE_NCCL");
    return lathe_fail(
        message, LATHE_NO_DEVICE,
        "NCCL is missing: neither the loader's path nor /usr/local/cuda holds " LIBRARY
        "; name it by LATHE_NCCL");
}

static const char *missing_symbol(lathe_nccl *n) {
    for (size_t i = 0; i < COUNT(calls); ++i) {
        void *address = dlsym(n->library, calls[i].symbol);
        if (!address)
            return calls[i].symbol;
        memcpy((char *)n + calls[i].offset, &address, sizeof address);
    }
    return NULL;
}

static lathe_status check_version(lathe_nccl *n, lathe_message_buffer message) {
    const char *missing = missing_symbol(n);
    if (missing)
        return lathe_fail(message, LATHE_NO_DEVICE,
                          "NCCL is too old: it lacks %s, allowed: 2.17 or newer", missing);
    if (n->get_version(&n->version) != NCCL_OK)
        return lathe_fail(message, LATHE_NO_DEVICE, "NCCL does not tell its version");
    if (n->version < OLDEST)
        return lathe_fail(message, LATHE_NO_DEVICE,
                          "NCCL is too old: found number %d, allowed: %d (2.17) or newer",
                          n->version, OLDEST);
    return LATHE_OK;
}

lathe_status lathe_nccl_open(const char *where, lathe_nccl *n, lathe_message_buffer message) {
    *n = (lathe_nccl){0};
    lathe_status status = find_library(where, &n->library, message);
    if (status == LATHE_OK)
        status = check_version(n, message);
    if (status != LATHE_OK)
        lathe_nccl_close(n);
    return status;
}

/* The library stays: it keeps threads of its own. */
void lathe_nccl_close(lathe_nccl *n) {
    *n = (lathe_nccl){0};
}

lathe_status lathe_nccl_make_id(const lathe_nccl *n, nccl_id *id, lathe_message_buffer message) {
    const nccl_result result = n->make_id(id);
    if (result == NCCL_OK)
        return LATHE_OK;
    return lathe_fail(message, LATHE_DEVICE_FAULT, "ncclGetUniqueId: %s (%d)",
                      n->result_text(result), result);
}
