/* SPDX-License-Identifier: Apache-2.0 */
#include "library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES ((size_t)4096)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const folders[] = {
    "", "lib/", "lib64/", "nvidia/cu13/lib/", "nvidia/cuda_nvrtc/lib/", "nvidia/nccl/lib/"};
static const char *const places[] = {"/usr/local/cuda", "/usr/local", "/usr"};

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Lazily: resolving the symbols of 100 MB would cost a warm start more than all the rest. */
static void *open_file(const char *path) {
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

static void *open_in_folder(const lathe_library *l, const char *folder) {
    char path[PATH_BYTES + 64];
    for (size_t f = 0; f < COUNT(folders); ++f) {
        for (size_t n = 0; n < COUNT(l->names) && l->names[n]; ++n) {
            struct stat info;
            const int length =
                snprintf(path, sizeof path, "%s/%s%s", folder, folders[f], l->names[n]);
            if (length >= (int)sizeof path || stat(path, &info) != 0)
                continue;
            void *handle = open_file(path);
            if (handle)
                return handle;
        }
    }
    return NULL;
}

/* Where the scripts that build the program put what they fetch, since what the machine has is
 * missing or too old: `nvidia` beside the program. "" where the program cannot be told. */
static const char *fetched_folder(char path[PATH_BYTES]) {
    char own[PATH_BYTES - 16];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    const char *slash = strrchr(own, '/');
    snprintf(path, PATH_BYTES, "%.*s%s", slash ? (int)(slash - own) : 0, own,
             slash ? "/nvidia" : "");
    return path;
}

static void *open_default(const lathe_library *l) {
    char fetched[PATH_BYTES];
    void *handle = fetched_folder(fetched)[0] ? open_in_folder(l, fetched) : NULL;
    for (size_t n = 0; !handle && n < COUNT(l->names) && l->names[n]; ++n)
        handle = open_file(l->names[n]);
    for (size_t p = 0; !handle && p < COUNT(places); ++p)
        handle = open_in_folder(l, places[p]);
    return handle;
}

static const char *list_names(const lathe_library *l, char text[128]) {
    size_t used = 0;
    for (size_t n = 0; n < COUNT(l->names) && l->names[n]; ++n)
        used += (size_t)snprintf(text + used, 128 - used, "%s%s", n ? ", " : "", l->names[n]);
    return text;
}

lathe_status lathe_library_open(const lathe_library *l, const char *where, void **handle,
                                lathe_message_buffer message) {
    const char *env = getenv(l->variable);
    const char *named = where ? where : env && env[0] ? env : NULL;
    char names[128], fetched[PATH_BYTES];
    *handle = !named             ? open_default(l)
              : is_folder(named) ? open_in_folder(l, named)
                                 : open_file(named);
    if (*handle)
        return LATHE_OK;
    if (named)
        return lathe_fail(message, LATHE_NO_DEVICE,
                          "%s is missing: found none at %s (%s), allowed: %s or a folder that "
                          "holds it",
                          l->what, named, where ? "named by the caller" : l->variable,
                          list_names(l, names));
    return lathe_fail(message, LATHE_NO_DEVICE,
                      "%s is missing: %.400s, the loader's path, /usr/local/cuda, /usr/local and "
                      "/usr hold no %s; name it by %s",
                      l->what, fetched_folder(fetched), list_names(l, names), l->variable);
}

const char *lathe_library_resolve(void *handle, const lathe_library_call *calls, size_t count,
                                  void *table) {
    for (size_t i = 0; i < count; ++i) {
        void *address = dlsym(handle, calls[i].symbol);
        if (!address)
            return calls[i].symbol;
        memcpy((char *)table + calls[i].offset, &address, sizeof address);
    }
    return NULL;
}

/* The file of an open library. */
static const char *file_of(void *handle) {
    struct link_map *map = NULL;
    return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name ? map->l_name : "";
}

lathe_status lathe_library_take(const lathe_library *l, void *handle,
                                const lathe_library_call *calls, size_t count, void *table,
                                const char *oldest, lathe_message_buffer message) {
    const char *missing = lathe_library_resolve(handle, calls, count, table);
    bool any = false;
    if (!missing)
        return LATHE_OK;
    for (size_t i = 0; i < count && !any; ++i)
        any = dlsym(handle, calls[i].symbol) != NULL;
    if (any)
        return lathe_fail(message, LATHE_NO_DEVICE,
                          "%s is too old: %s lacks %s, allowed: %s or newer", l->what,
                          file_of(handle), missing, oldest);
    return lathe_fail(message, LATHE_NO_DEVICE,
                      "%s is no %s: found a library without %s, allowed: %s of version %s or newer",
                      file_of(handle), l->what, missing, l->what, oldest);
}

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
