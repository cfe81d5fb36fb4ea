/* SPDX-License-Identifier: Apache-2.0
 * Owns: writing, awaiting and removing the file of an id. */
#include "id_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deadline.h"
#include "files.h"

#define POLL_NS 2000000
#define LARGEST 4096

static const char head[16] = "lathe nccl id 1\n";

static lathe_status fail_file(const char *path, int error, lathe_message_buffer message) {
    if (error == EEXIST)
        return lathe_fail(message, LATHE_INVALID,
                          "%s: found a file of another run, allowed: none there", path);
    return lathe_fail(message, LATHE_IO, "%s: %s", path, strerror(error));
}

lathe_status lathe_id_file_write(const char *path, const void *id, size_t bytes,
                                 lathe_message_buffer message) {
    char aside[4096], text[LARGEST];
    if (bytes > sizeof text - sizeof head ||
        (size_t)snprintf(aside, sizeof aside, "%s.part", path) >= sizeof aside)
        return fail_file(path, ENAMETOOLONG, message);
    memcpy(text, head, sizeof head);
    memcpy(text + sizeof head, id, bytes);
    int error = lathe_file_write(aside, text, sizeof head + bytes);
    if (!error && link(aside, path) != 0)
        error = errno;
    unlink(aside);
    return error ? fail_file(path, error, message) : LATHE_OK;
}

static lathe_status parse(const char *path, const char *text, size_t found, void *id, size_t bytes,
                          lathe_message_buffer message) {
    if (found != sizeof head + bytes || memcmp(text, head, sizeof head) != 0)
        return lathe_fail(message, LATHE_INVALID, "%s: found %zu bytes that are no id", path,
                          found);
    memcpy(id, text + sizeof head, bytes);
    return LATHE_OK;
}

lathe_status lathe_id_file_read(const char *path, void *id, size_t bytes, uint64_t timeout_ns,
                                lathe_message_buffer message) {
    lathe_deadline end = lathe_deadline_in(timeout_ns);
    char *text = NULL;
    size_t found = 0;
    int error;
    while ((error = lathe_file_read(path, LARGEST, &text, &found)) == ENOENT)
        if (!lathe_deadline_rest(&end, 0, POLL_NS))
            return lathe_fail(message, LATHE_PEER_LOST, "%s: rank 0 did not write it within %.1f s",
                              path, (double)timeout_ns * 1e-9);
    if (error)
        return fail_file(path, error, message);
    const lathe_status status = parse(path, text, found, id, bytes, message);
    free(text);
    return status;
}

void lathe_id_file_remove(const char *path) {
    unlink(path);
}
