/* SPDX-License-Identifier: Apache-2.0
 * Owns: which folders a cache tries, in order: the one asked for, then private ones where that
 * cannot be written. A folder that refused once is still read, never written again. */
#include "cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_entry.h"
#include "files.h"

#define ROOTS 4

typedef struct {
    char path[3072];
    char base[256]; /* a private root is made below it when first written; "" for the one asked for
                     */
    bool there;     /* path is set */
    bool refused;
} cache_root;

struct lathe_cache {
    lathe_logger *log;
    pthread_mutex_t lock; /* of the roots */
    int count;
    cache_root roots[ROOTS];
};

/* A root that is made privately below `base` when it is first written. */
static void add_private_root(lathe_cache *c, const char *base) {
    cache_root *root = &c->roots[c->count];
    if (!base || strlen(base) >= sizeof root->base)
        return;
    snprintf(root->base, sizeof root->base, "%s", base);
    c->count++;
}

static const char *get_env(const char *name) {
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* The first root; false where the path does not fit. */
static bool add_wanted(lathe_cache *c, const char *folder) {
    cache_root *root = &c->roots[0];
    const char *wanted = folder ? folder : get_env("LATHE_CACHE");
    int n = 0;
    if (wanted)
        n = snprintf(root->path, sizeof root->path, "%s", wanted);
    else if (get_env("XDG_CACHE_HOME"))
        n = snprintf(root->path, sizeof root->path, "%s/lathe", get_env("XDG_CACHE_HOME"));
    else if (get_env("HOME"))
        n = snprintf(root->path, sizeof root->path, "%s/.cache/lathe", get_env("HOME"));
    root->there = n > 0;
    c->count = n > 0 ? 1 : 0;
    return n >= 0 && (size_t)n < sizeof root->path - 512;
}

lathe_status lathe_cache_create(const char *folder, lathe_logger *log, lathe_cache **cache,
                                lathe_message_buffer message) {
    lathe_cache *c = calloc(1, sizeof *c);
    *cache = NULL;
    if (!c)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for the cache");
    if (!add_wanted(c, folder)) {
        free(c);
        return lathe_fail(message, LATHE_INVALID, "the path of the cache is too long");
    }
    add_private_root(c, get_env("TMPDIR"));
    add_private_root(c, "/tmp");
    add_private_root(c, "/dev/shm");
    c->log = log;
    pthread_mutex_init(&c->lock, NULL);
    *cache = c;
    return LATHE_OK;
}

void lathe_cache_destroy(lathe_cache *c) {
    if (!c)
        return;
    for (int i = 0; i < c->count; ++i)
        if (c->roots[i].base[0] && c->roots[i].there)
            lathe_folder_remove(c->roots[i].path);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

const char *lathe_cache_folder(const lathe_cache *c) {
    return c->count && c->roots[0].there ? c->roots[0].path : "a private folder";
}

/* Marks a root as one that is not written again, and says so once. */
static void give_up(lathe_cache *c, int i, const char *reason) {
    pthread_mutex_lock(&c->lock);
    const bool first = !c->roots[i].refused;
    c->roots[i].refused = true;
    pthread_mutex_unlock(&c->lock);
    if (first)
        lathe_logger_write(c->log, LATHE_LOG_WARNING,
                           "the cache cannot be written (%s); using a private temporary folder",
                           reason);
}

/* Whether root i can be tried for writing; makes a private one. */
static bool open_root(lathe_cache *c, int i) {
    cache_root *root = &c->roots[i];
    pthread_mutex_lock(&c->lock);
    const bool first = !root->there && !root->refused;
    if (first) {
        root->refused = lathe_folder_make_private(root->base, root->path, sizeof root->path) != 0;
        root->there = !root->refused;
    }
    const bool usable = !root->refused;
    pthread_mutex_unlock(&c->lock);
    if (first && usable && c->roots[0].base[0])
        lathe_logger_write(c->log, LATHE_LOG_WARNING,
                           "the cache has no folder (LATHE_CACHE, XDG_CACHE_HOME and HOME are "
                           "unset); using a private temporary folder, all is compiled again each "
                           "time");
    return usable;
}

static bool root_there(lathe_cache *c, int i) {
    pthread_mutex_lock(&c->lock);
    const bool there = c->roots[i].there;
    pthread_mutex_unlock(&c->lock);
    return there;
}

/* Fills entry->path with the artefact's place in root i. */
static bool place(const lathe_cache *c, int i, const char *name, const lathe_cache_request *request,
                  char folder[4096], lathe_cache_entry *entry) {
    return lathe_path_join(folder, 4096, c->roots[i].path, name) &&
           lathe_path_join(entry->path, sizeof entry->path, folder, request->artefact);
}

static void say_damaged(lathe_cache *c, const char *name, const char *file, const char *what) {
    lathe_logger_write(c->log, LATHE_LOG_WARNING, "the cache entry %s is damaged (%s)%s", name,
                       file, what);
}

/* `say`: nobody builds an entry that is found damaged, so it is named here. */
static bool find(lathe_cache *c, const lathe_cache_request *request, bool say,
                 lathe_cache_entry *entry) {
    char name[LATHE_ENTRY_NAME_BYTES], folder[4096], reason[128];
    lathe_entry_name(request, name);
    entry->made = false;
    for (int i = 0; i < c->count; ++i) {
        if (!root_there(c, i) || !place(c, i, name, request, folder, entry))
            continue;
        const lathe_entry_state state =
            lathe_entry_check(folder, request, (lathe_message_buffer){reason, sizeof reason});
        if (state == LATHE_ENTRY_WHOLE)
            return true;
        if (say && state == LATHE_ENTRY_DAMAGED)
            say_damaged(c, name, reason, "");
    }
    return false;
}

bool lathe_cache_find(lathe_cache *c, const lathe_cache_request *request,
                      lathe_cache_entry *entry) {
    return find(c, request, true, entry);
}

/* With the lock held: another process may have been first. */
static lathe_status build_locked(lathe_cache *c, int i, const char *name,
                                 const lathe_cache_request *request, lathe_cache_make make,
                                 void *context, lathe_cache_entry *entry,
                                 lathe_message_buffer message) {
    char folder[4096], reason[128];
    if (!place(c, i, name, request, folder, entry))
        return lathe_fail(message, LATHE_IO, "%s: the path is too long", c->roots[i].path);
    const lathe_entry_state state =
        lathe_entry_check(folder, request, (lathe_message_buffer){reason, sizeof reason});
    entry->made = state != LATHE_ENTRY_WHOLE;
    if (state == LATHE_ENTRY_WHOLE)
        return LATHE_OK;
    if (state == LATHE_ENTRY_DAMAGED)
        say_damaged(c, name, reason, ": it is built again");
    return lathe_entry_build(c->roots[i].path, name, request, make, context, message);
}

static lathe_status build_in(lathe_cache *c, int i, const char *name,
                             const lathe_cache_request *request, lathe_cache_make make,
                             void *context, lathe_cache_entry *entry,
                             lathe_message_buffer message) {
    const char *root = c->roots[i].path;
    int error;
    const int lock = lathe_entry_lock(root, name, c->log, &error);
    if (lock < 0)
        return lathe_fail(message, LATHE_IO, "%s: %s", root, strerror(error));
    const lathe_status status = build_locked(c, i, name, request, make, context, entry, message);
    lathe_entry_unlock(root, name, lock);
    return status;
}

/* Of a root that cannot be written: an entry that is damaged stays so. */
static void say_irreplaceable(lathe_cache *c, int i, const char *name,
                              const lathe_cache_request *request) {
    char folder[4096], reason[128];
    lathe_cache_entry entry;
    if (root_there(c, i) && place(c, i, name, request, folder, &entry) &&
        lathe_entry_check(folder, request, (lathe_message_buffer){reason, sizeof reason}) ==
            LATHE_ENTRY_DAMAGED)
        say_damaged(c, name, reason, " and cannot be replaced");
}

lathe_status lathe_cache_get(lathe_cache *c, const lathe_cache_request *request,
                             lathe_cache_make make, void *context, lathe_cache_entry *entry,
                             lathe_message_buffer message) {
    char name[LATHE_ENTRY_NAME_BYTES];
    lathe_status status = LATHE_IO;
    if (find(c, request, false, entry))
        return LATHE_OK;
    lathe_entry_name(request, name);
    lathe_fail(message, LATHE_IO, "no folder for the cache can be written");
    for (int i = 0; i < c->count && status == LATHE_IO; ++i) {
        const bool open = open_root(c, i);
        if (open)
            status = build_in(c, i, name, request, make, context, entry, message);
        if (open && status == LATHE_IO)
            give_up(c, i, message.text);
        if (status == LATHE_IO)
            say_irreplaceable(c, i, name, request);
    }
    return status;
}
