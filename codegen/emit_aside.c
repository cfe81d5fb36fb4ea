/* SPDX-License-Identifier: Apache-2.0
 * Folders that generations write in, held by flock. */
#include "emit_aside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK ".lathe-"

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

void lathe_aside_remove(const char *path) {
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* The descriptor of the folder, locked; -1 where another holds it or it cannot be locked. */
static int hold(const char *path) {
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0 && flock(folder, LOCK_EX | LOCK_NB) == 0)
        return folder;
    if (folder >= 0)
        close(folder);
    return -1;
}

static void remove_abandoned(const char *target) {
    char parent[PATH_MAX], path[PATH_MAX + 300];
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    const size_t length = strlen(name);
    (void)snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - target) + 1 : 1,
                   slash ? target : ".");
    DIR *folder = opendir(parent);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (strncmp(e->d_name, name, length) != 0 ||
            strncmp(e->d_name + length, MARK, sizeof MARK - 1) != 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", parent, e->d_name);
        const int held = hold(path);
        if (held < 0)
            continue;
        lathe_aside_remove(path);
        close(held);
    }
    if (folder)
        closedir(folder);
}

/* Whether the path still leads to what is held: another generation may have removed it before. */
static bool stands(const char *path, int held) {
    struct stat named, opened;
    return stat(path, &named) == 0 && (held < 0 || fstat(held, &opened) != 0 ||
                                       (named.st_ino == opened.st_ino && opened.st_nlink > 0));
}

static _Noreturn void fail(lathe_arena *arena, const char *path) {
    const int error = errno;
    lathe_diag_fail(lathe_arena_diag(arena), (lathe_where){0}, "%s: cannot be made: %s", path,
                    strerror(error));
}

void lathe_aside_make(lathe_arena *arena, const char *target, const char **path, int *lock) {
    remove_abandoned(target);
    for (int tries = 0; tries < 16; tries++) {
        char *made = lathe_arena_print(arena, "%s" MARK "XXXXXX", target);
        if (!mkdtemp(made))
            fail(arena, made);
        *lock = hold(made);
        if (stands(made, *lock)) {
            *path = made;
            if (chmod(made, 0755) != 0)
                fail(arena, made);
            return;
        }
        if (*lock >= 0)
            close(*lock);
        *lock = -1;
    }
    errno = EBUSY;
    fail(arena, target);
}
