/* SPDX-License-Identifier: Apache-2.0
 * Owns: one entry of a cache folder. Where a process dies, its lock goes with it and what it left
 * aside is removed by the next holder of the lock; nobody else ever looks there. */
#include "cache_entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "deadline.h"
#include "files.h"

#define LARGEST_FILE ((size_t)1 << 30)
#define LOCK_NS 600000000000u   /* then the holder is taken for stuck */
#define PATIENCE_NS 5000000000u /* then the wait is mentioned */
#define POLL_NS 10000000u
#define SOURCE "kernel.cu"
#define LOG "build.log"
#define KEY "key.txt"
#define DIGESTS "digests.txt"

void lathe_entry_name(const lathe_cache_request *request, char name[LATHE_ENTRY_NAME_BYTES]) {
    const unsigned long long hash = XXH3_64bits(request->key, request->key_bytes);
    snprintf(name, LATHE_ENTRY_NAME_BYTES, "%.160s-%016llx", request->kernel, hash);
}

static void format_digest(char line[128], const void *data, size_t bytes, const char *name) {
    const XXH128_hash_t digest = XXH3_128bits(data, bytes);
    snprintf(line, 128, "%016llx%016llx %zu %s\n", (unsigned long long)digest.high64,
             (unsigned long long)digest.low64, bytes, name);
}

/* Whether FOLDER/NAME is what `digests` says. */
static bool digest_holds(const char *folder, const char *name, const char *digests) {
    char path[4096], line[128], *data;
    size_t bytes;
    if (!lathe_path_join(path, sizeof path, folder, name) ||
        lathe_file_read(path, LARGEST_FILE, &data, &bytes) != 0)
        return false;
    format_digest(line, data, bytes, name);
    free(data);
    return strstr(digests, line) != NULL;
}

/* Whether `digests` has a line for the file at all. */
static bool lists(const char *digests, const char *name) {
    char end[128];
    snprintf(end, sizeof end, " %s\n", name);
    return strstr(digests, end) != NULL;
}

static bool key_holds(const char *folder, const lathe_cache_request *request) {
    char path[4096], *key;
    size_t bytes;
    if (!lathe_path_join(path, sizeof path, folder, KEY) ||
        lathe_file_read(path, LARGEST_FILE, &key, &bytes) != 0)
        return false;
    const bool same = bytes == request->key_bytes && memcmp(key, request->key, bytes) == 0;
    free(key);
    return same;
}

static lathe_entry_state damaged(lathe_message_buffer reason, const char *file) {
    snprintf(reason.text, reason.size, "%s", file);
    return LATHE_ENTRY_DAMAGED;
}

lathe_entry_state lathe_entry_check(const char *folder, const lathe_cache_request *request,
                                    lathe_message_buffer reason) {
    char path[4096], *digests;
    size_t bytes;
    struct stat info;
    if (stat(folder, &info) != 0)
        return LATHE_ENTRY_ABSENT;
    if (!lathe_path_join(path, sizeof path, folder, DIGESTS) ||
        lathe_file_read(path, LARGEST_FILE, &digests, &bytes) != 0)
        return damaged(reason, DIGESTS);
    const bool listed = lists(digests, request->artefact) && lists(digests, SOURCE);
    const bool artefact = digest_holds(folder, request->artefact, digests);
    const bool source = digest_holds(folder, SOURCE, digests);
    free(digests);
    if (!listed)
        return damaged(reason, DIGESTS);
    if (!artefact)
        return damaged(reason, request->artefact);
    if (!source)
        return damaged(reason, SOURCE);
    return key_holds(folder, request) ? LATHE_ENTRY_WHOLE : damaged(reason, KEY);
}

/* One line of digests: two words and the file's name. NULL where there is no such line. */
static char *digest_name(char *line) {
    char *name = strchr(line, ' ');
    name = name ? strchr(name + 1, ' ') : NULL;
    return name && name[1] && !strchr(name + 1, '/') ? name + 1 : NULL;
}

static lathe_entry_state intact(const char *folder, const char *digests, char *lines,
                                uint64_t *bytes, lathe_message_buffer reason) {
    int files = 0;
    for (char *rest, *line = strtok_r(lines, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest), ++files) {
        const char *name = digest_name(line);
        if (!name)
            return damaged(reason, DIGESTS);
        if (!digest_holds(folder, name, digests))
            return damaged(reason, name);
        *bytes += strtoull(strchr(line, ' ') + 1, NULL, 10);
    }
    return files == 2 && lists(digests, SOURCE) ? LATHE_ENTRY_WHOLE : damaged(reason, DIGESTS);
}

lathe_entry_state lathe_entry_intact(const char *folder, uint64_t *bytes,
                                     lathe_message_buffer reason) {
    char path[4096], *digests;
    size_t size;
    *bytes = 0;
    if (!lathe_path_join(path, sizeof path, folder, DIGESTS) ||
        lathe_file_read(path, LARGEST_FILE, &digests, &size) != 0)
        return damaged(reason, DIGESTS);
    char *lines = strdup(digests);
    const lathe_entry_state state =
        lines ? intact(folder, digests, lines, bytes, reason) : damaged(reason, "no memory");
    free(lines);
    free(digests);
    return state;
}

/* Whether the file behind `lock` still is the one at `path`: its last holder may have removed it.
 */
static bool lock_current(int lock, const char *path) {
    struct stat held, named;
    return fstat(lock, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

/* Waits for the lock; 0 or an errno. */
static int wait_lock(int lock, const char *name, lathe_logger *log) {
    lathe_deadline end = lathe_deadline_in(LOCK_NS), patience = lathe_deadline_in(PATIENCE_NS);
    bool said = false;
    while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return errno;
        if (!lathe_deadline_rest(&end, 0, POLL_NS))
            return ETIMEDOUT;
        if (!said && lathe_clock_ns() >= patience.end_ns) {
            lathe_logger_write(log, LATHE_LOG_NOTE, "waiting for another process to build %s",
                               name);
            said = true;
        }
    }
    return 0;
}

static bool lock_path(char path[4096], const char *root, const char *name) {
    char file[LATHE_ENTRY_NAME_BYTES + 8];
    snprintf(file, sizeof file, "%s.lock", name);
    return lathe_path_join(path, 4096, root, file);
}

int lathe_entry_lock(const char *root, const char *name, lathe_logger *log, int *error) {
    char path[4096];
    *error = lathe_folder_make(root);
    if (!*error && !lock_path(path, root, name))
        *error = ENAMETOOLONG;
    while (!*error) {
        const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (lock < 0) {
            *error = errno;
            break;
        }
        *error = wait_lock(lock, name, log);
        if (!*error && lock_current(lock, path))
            return lock;
        close(lock);
    }
    return -1;
}

void lathe_entry_unlock(const char *root, const char *name, int lock) {
    char path[4096];
    if (lock_path(path, root, name))
        unlink(path); /* while held: whoever waits on it will see that it is gone */
    close(lock);
}

static int write_part(const char *folder, const char *name, const void *data, size_t bytes) {
    char path[4096];
    return lathe_path_join(path, sizeof path, folder, name) ? lathe_file_write(path, data, bytes)
                                                            : ENAMETOOLONG;
}

/* Everything beside the artefact, which is there already. */
static int write_parts(const char *folder, const lathe_cache_request *r, const char *log) {
    char path[4096], digests[2][128], *artefact;
    size_t bytes;
    if (!lathe_path_join(path, sizeof path, folder, r->artefact))
        return ENAMETOOLONG;
    int error = lathe_file_sync(path);
    if (!error)
        error = lathe_file_read(path, LARGEST_FILE, &artefact, &bytes);
    if (error)
        return error;
    format_digest(digests[0], artefact, bytes, r->artefact);
    free(artefact);
    format_digest(digests[1], r->source, r->source_bytes, SOURCE);
    char both[256];
    snprintf(both, sizeof both, "%s%s", digests[0], digests[1]);
    error = write_part(folder, SOURCE, r->source, r->source_bytes);
    if (!error)
        error = write_part(folder, LOG, log ? log : "", log ? strlen(log) : 0);
    if (!error)
        error = write_part(folder, KEY, r->key, r->key_bytes);
    if (!error)
        error = write_part(folder, DIGESTS, both, strlen(both));
    return error ? error : lathe_file_sync(folder);
}

/* Whether the file system takes a few bytes more: a compiler that failed may have met a full disk.
 */
static bool takes_bytes(const char *folder) {
    static const char bytes[65536];
    return write_part(folder, "probe", bytes, sizeof bytes) == 0;
}

static lathe_status refuse(lathe_message_buffer message, const char *path, int error) {
    return lathe_fail(message, LATHE_IO, "%s: %s", path, strerror(error));
}

/* The new folder takes the name; what stood there is moved away first, since a rename needs an
 * empty place. */
static int put_in_place(const char *aside, const char *folder) {
    char old[4096];
    if (rename(aside, folder) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
        return errno;
    if (snprintf(old, sizeof old, "%s.old", folder) >= (int)sizeof old)
        return ENAMETOOLONG;
    int error = lathe_folder_remove(old);
    if (!error && rename(folder, old) != 0)
        error = errno;
    if (!error && rename(aside, folder) != 0)
        error = errno;
    lathe_folder_remove(old);
    return error;
}

static lathe_status build_aside(const char *aside, const lathe_cache_request *request,
                                lathe_cache_make make, void *context,
                                lathe_message_buffer message) {
    char path[4096], *log = NULL;
    if (!lathe_path_join(path, sizeof path, aside, request->artefact))
        return refuse(message, aside, ENAMETOOLONG);
    lathe_status status = make(context, path, &log, message);
    if (status != LATHE_OK && !takes_bytes(aside))
        status = LATHE_IO;
    const int error = status == LATHE_OK ? write_parts(aside, request, log) : 0;
    free(log);
    return error ? refuse(message, aside, error) : status;
}

lathe_status lathe_entry_build(const char *root, const char *name,
                               const lathe_cache_request *request, lathe_cache_make make,
                               void *context, lathe_message_buffer message) {
    char folder[4096], aside[4096];
    if (!lathe_path_join(folder, sizeof folder, root, name) ||
        snprintf(aside, sizeof aside, "%s.part", folder) >= (int)sizeof aside)
        return refuse(message, root, ENAMETOOLONG);
    int error = lathe_folder_remove(aside);
    if (!error && mkdir(aside, 0777) != 0)
        error = errno;
    if (error)
        return refuse(message, aside, error);
    const lathe_status status = build_aside(aside, request, make, context, message);
    if (status == LATHE_OK)
        error = put_in_place(aside, folder);
    if (status == LATHE_OK && !error)
        error = lathe_file_sync(root);
    if (status != LATHE_OK || error)
        lathe_folder_remove(aside);
    return error ? refuse(message, folder, error) : status;
}
