/* SPDX-License-Identifier: Apache-2.0
 * Owns: reading, writing and removing files, with every error seen. */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An error whose number got lost is still an error. */
static int error_number(void) {
    return errno ? errno : EIO;
}

static int read_all(int fd, char *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = read(fd, data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? error_number() : EIO; /* shorter than its size */
        done += (size_t)n;
    }
    return 0;
}

int lathe_file_read(const char *path, size_t most, char **data, size_t *bytes) {
    struct stat info;
    *data = NULL;
    *bytes = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* no pipe is waited for */
    if (fd < 0)
        return error_number();
    int error = fstat(fd, &info) ? error_number() : 0;
    if (!error && !S_ISREG(info.st_mode))
        error = S_ISDIR(info.st_mode) ? EISDIR : ENOTSUP;
    if (!error && (size_t)info.st_size > most)
        error = EFBIG;
    char *text = error ? NULL : malloc((size_t)info.st_size + 1);
    if (!error && !text)
        error = ENOMEM;
    if (!error)
        error = read_all(fd, text, (size_t)info.st_size);
    close(fd);
    if (error) {
        free(text);
        return error;
    }
    text[info.st_size] = '\0';
    *data = text;
    *bytes = (size_t)info.st_size;
    return 0;
}

static int write_all(int fd, const char *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = write(fd, data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_number();
        done += (size_t)n;
    }
    return 0;
}

int lathe_file_write(const char *path, const void *data, size_t bytes) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_number();
    int error = write_all(fd, data, bytes);
    if (!error && fsync(fd) != 0)
        error = error_number();
    if (close(fd) != 0 && !error)
        error = error_number();
    return error;
}

int lathe_file_sync(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_number();
    /* some file systems cannot sync a folder and say EINVAL: nothing more can be done there */
    const int error = fsync(fd) != 0 && errno != EINVAL ? error_number() : 0;
    close(fd);
    return error;
}

int lathe_folder_make(const char *path) {
    char part[4096];
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return ENAMETOOLONG;
    memcpy(part, path, length + 1);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
            return error_number();
        *slash = '/';
    }
    struct stat info;
    if (mkdir(part, 0777) != 0 && (errno != EEXIST || stat(part, &info) || !S_ISDIR(info.st_mode)))
        return error_number();
    return 0;
}

static int remove_entry(int folder, const char *name);

static int remove_entries(int fd) {
    DIR *dir = fdopendir(fd);
    int error = 0;
    if (!dir) {
        close(fd);
        return error_number();
    }
    for (struct dirent *entry; !error && (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = remove_entry(dirfd(dir), entry->d_name);
    closedir(dir);
    return error;
}

static int remove_entry(int folder, const char *name) {
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
        return 0;
    const int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_number();
    const int error = remove_entries(fd);
    if (error)
        return error;
    return unlinkat(folder, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : error_number();
}

int lathe_folder_remove(const char *path) {
    return remove_entry(AT_FDCWD, path);
}

int lathe_folder_make_private(const char *base, char *path, size_t size) {
    if (!lathe_path_join(path, size, base, "lathe-XXXXXX"))
        return ENAMETOOLONG;
    return mkdtemp(path) ? 0 : error_number();
}

bool lathe_path_join(char *path, size_t size, const char *folder, const char *name) {
    const int n = snprintf(path, size, "%s/%s", folder, name);
    return n >= 0 && (size_t)n < size;
}

int lathe_file_replace(const char *path, const void *data, size_t bytes) {
    char aside[4096];
    if (snprintf(aside, sizeof aside, "%s.part", path) >= (int)sizeof aside)
        return ENAMETOOLONG;
    int error = lathe_file_write(aside, data, bytes);
    if (!error && rename(aside, path) != 0)
        error = errno;
    if (error)
        unlink(aside);
    return error;
}
