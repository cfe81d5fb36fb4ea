/* SPDX-License-Identifier: Apache-2.0
 * Writes the generated directory aside and renames it. Whatever fails on the way, the old directory
 * stands. */
#include "emit.h"
#include "emit_aside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static _Noreturn void fail(lathe_arena *arena, const char *path, const char *what) {
    const int error = errno;
    lathe_diag_fail(lathe_arena_diag(arena), (lathe_where){0}, "%s: %s: %s", path, what,
                    strerror(error));
}

/* Makes every folder above `path`, from character `from` on. */
static void make_parents(lathe_arena *arena, const char *path, size_t from) {
    char *copy = lathe_arena_copy(arena, path, strlen(path));
    for (char *slash = strchr(copy + from, '/'); slash; slash = strchr(slash + 1, '/')) {
        if (slash == copy)
            continue;
        *slash = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            fail(arena, copy, "cannot be made");
        *slash = '/';
    }
}

static void write_file(lathe_arena *arena, const char *path, const lathe_file *file) {
    FILE *out = fopen(path, "wb");
    if (!out)
        fail(arena, path, "cannot be written");
    const bool written = fwrite(file->text, 1, file->size, out) == file->size;
    if (fclose(out) != 0 || !written)
        fail(arena, path, "cannot be written");
}

/* Whether the generator wrote a file of this name at the top: step.json tells. */
static bool is_listed(lathe_arena *arena, const char *step, const char *name) {
    return strcmp(name, "step.json") == 0 ||
           strstr(step, lathe_arena_print(arena, "\"file\": \"%s\"", name)) != NULL;
}

static bool is_header(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".cuh") == 0 || strcmp(dot, ".h") == 0);
}

/* Nothing but what was generated: files of step.json, headers below templates/. `below` is the
 * folder within the directory, "" for itself. */
static void check_generated(lathe_arena *arena, const char *directory, const char *below,
                            const char *step) {
    struct dirent **entries;
    const int count =
        scandir(lathe_arena_print(arena, "%s/%s", directory, below), &entries, NULL, alphasort);
    if (count < 0)
        fail(arena, directory, "cannot be read");
    const char *foreign = NULL;
    const char **folders = lathe_arena_alloc(arena, (size_t)count + 1, sizeof *folders);
    size_t folder_count = 0;
    for (int i = 0; i < count; i++) {
        struct stat info;
        const char *name = entries[i]->d_name;
        const char *inner = lathe_arena_print(arena, "%s%s", below, name);
        const bool stands = lstat(lathe_arena_print(arena, "%s/%s", directory, inner), &info) == 0;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !foreign) {
            if (stands && S_ISDIR(info.st_mode) && (*below || strcmp(name, "templates") == 0))
                folders[folder_count++] = lathe_arena_print(arena, "%s/", inner);
            else if (!stands || !S_ISREG(info.st_mode) ||
                     !(*below ? is_header(name) : is_listed(arena, step, name)))
                foreign = inner;
        }
        free(entries[i]);
    }
    free(entries);
    if (foreign)
        lathe_diag_fail(lathe_arena_diag(arena), (lathe_where){0},
                        "%s/%s: was not generated and would be lost; move it or name another "
                        "directory",
                        directory, foreign);
    for (size_t i = 0; i < folder_count; i++)
        check_generated(arena, directory, folders[i], step);
}

/* A directory we may replace: absent, empty, or one with a step.json of ours and nothing else. */
static void check_replaceable(lathe_arena *arena, const char *directory) {
    struct stat info;
    if (lstat(directory, &info) != 0)
        return;
    lathe_diag *diag = lathe_arena_diag(arena);
    if (!S_ISDIR(info.st_mode))
        lathe_diag_fail(diag, (lathe_where){0}, "%s: exists and is no directory", directory);
    lathe_text step = {.arena = arena};
    const char *path = lathe_arena_print(arena, "%s/step.json", directory);
    if (lathe_text_read(&step, path) &&
        strncmp(lathe_text_string(&step), "{\n  \"arch\": ", 12) == 0) {
        check_generated(arena, directory, "", lathe_text_string(&step));
        return;
    }
    if (rmdir(directory) != 0)
        lathe_diag_fail(diag, (lathe_where){0},
                        "%s: exists and was not generated (it has no step.json of ours); remove it "
                        "or name another directory",
                        directory);
}

/* `directory` without slashes at its end. */
static const char *trim(lathe_arena *arena, const char *directory) {
    size_t length = strlen(directory);
    while (length > 1 && directory[length - 1] == '/')
        length--;
    return lathe_arena_copy(arena, directory, length);
}

void lathe_emit_write(const lathe_files *files, const char *directory, const char **made,
                      int *lock) {
    lathe_arena *arena = files->arena;
    const char *target = trim(arena, directory);
    check_replaceable(arena, target);
    make_parents(arena, target, 0);
    lathe_aside_make(arena, target, made, lock);
    for (size_t i = 0; i < files->count; i++) {
        const char *path = lathe_arena_print(arena, "%s/%s", *made, files->files[i].name);
        make_parents(arena, path, strlen(*made) + 1);
        write_file(arena, path, &files->files[i]);
    }
}

void lathe_emit_publish(lathe_arena *arena, const char *aside, const char *directory) {
    const char *target = trim(arena, directory);
    if (rename(aside, target) == 0)
        return;
    if (renameat2(AT_FDCWD, aside, AT_FDCWD, target, RENAME_EXCHANGE) == 0) {
        lathe_aside_remove(aside); /* now the old files */
        return;
    }
    /* A file system without exchange: the old directory steps aside first. */
    const char *old = lathe_arena_print(arena, "%s.old", aside);
    if (rename(target, old) != 0)
        fail(arena, target, "cannot be replaced");
    if (rename(aside, target) != 0) {
        (void)rename(old, target);
        fail(arena, target, "cannot be replaced");
    }
    lathe_aside_remove(old);
}
