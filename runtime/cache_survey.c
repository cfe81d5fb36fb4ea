/* SPDX-License-Identifier: Apache-2.0 */
#include "cache_survey.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

static bool ends_in(const char *name, const char *end) {
    const size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* NAME-HASH, 16 hexadecimal digits. */
static bool names_entry(const char *name) {
    const char *dash = strrchr(name, '-');
    return dash && dash > name && strlen(dash + 1) == 16 &&
           strspn(dash + 1, "0123456789abcdef") == 16;
}

static void add_damaged(lathe_cache_survey *s, const char *name, const char *file) {
    char text[sizeof s->first];
    s->damaged++;
    snprintf(text, sizeof text, "%.180s: %.60s", name, file);
    if (s->damaged == 1 || strcmp(text, s->first) < 0)
        snprintf(s->first, sizeof s->first, "%s", text);
}

static void add_entry(lathe_cache_survey *s, const char *folder, const char *name) {
    char path[4096], reason[128] = "";
    uint64_t bytes = 0;
    s->entries++;
    if (!lathe_path_join(path, sizeof path, folder, name) ||
        lathe_entry_intact(path, &bytes, (lathe_message_buffer){reason, sizeof reason}) !=
            LATHE_ENTRY_WHOLE)
        add_damaged(s, name, reason);
    s->bytes += bytes;
}

/* Whether files can be made in the folder, by making one. */
static int try_write(const char *folder) {
    char path[4096];
    if (!lathe_path_join(path, sizeof path, folder, ".doctor"))
        return ENAMETOOLONG;
    const int error = lathe_file_write(path, "x", 1);
    unlink(path);
    return error;
}

lathe_status lathe_cache_survey_read(const char *folder, lathe_cache_survey *s,
                                     lathe_message_buffer message) {
    *s = (lathe_cache_survey){0};
    DIR *directory = opendir(folder);
    if (!directory && errno == ENOENT)
        return LATHE_OK;
    if (!directory)
        return lathe_fail(message, LATHE_IO, "%s: %s", folder, strerror(errno));
    s->there = true;
    for (const struct dirent *item; (item = readdir(directory));) {
        if (names_entry(item->d_name))
            add_entry(s, folder, item->d_name);
        else if (ends_in(item->d_name, ".part") || ends_in(item->d_name, ".old"))
            s->left++;
    }
    closedir(directory);
    s->error = try_write(folder);
    return LATHE_OK;
}
