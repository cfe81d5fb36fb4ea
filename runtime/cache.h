/* SPDX-License-Identifier: Apache-2.0
 * Owns: compiled kernels on disk. A folder per kernel, NAME-HASH/, holds kernel.cu, the artefact,
 * build.log, key.txt and digests.txt. An entry is built aside under a lock, forced to the disk and
 * renamed, so that it is there whole or not at all: many processes compile it once, and one killed
 * in the middle leaves nothing that counts.
 *
 * Every use checks the key text whole and the digests; a damaged entry is rebuilt, and the log says
 * so. Where the cache cannot be written, what is missing goes to a private temporary folder
 * instead, removed with the cache. */
#ifndef LATHE_CACHE_H
#define LATHE_CACHE_H

#include "lathe.h"
#include "log.h"

typedef struct lathe_cache lathe_cache;

/* `folder` NULL: LATHE_CACHE, else XDG_CACHE_HOME/lathe, else HOME/.cache/lathe, else a private
 * folder. Touches no disk. */
LATHE_CHECKED lathe_status lathe_cache_create(const char *folder, lathe_logger *log,
                                              lathe_cache **cache, lathe_message_buffer message);
void lathe_cache_destroy(lathe_cache *cache);

typedef struct {
    const char *kernel;   /* in front of the hash: a folder name */
    const char *artefact; /* "kernel.cubin", "kernel.so" */
    const char *source;
    size_t source_bytes;
    const char *key; /* all that the artefact follows from */
    size_t key_bytes;
} lathe_cache_request;

/* Writes the artefact to `path`. *log may be set to text that the cache keeps and frees. LATHE_IO
 * where `path` cannot be written: the cache then tries elsewhere. */
typedef lathe_status (*lathe_cache_make)(void *context, const char *path, char **log,
                                         lathe_message_buffer message);

typedef struct {
    char path[4096]; /* of the artefact; valid while the cache exists */
    bool made;       /* by this call */
} lathe_cache_entry;

/* Finds or makes. Safe from several threads. Fails only as `make` does, or where no folder at all
 * can be written. */
LATHE_CHECKED lathe_status lathe_cache_get(lathe_cache *cache, const lathe_cache_request *request,
                                           lathe_cache_make make, void *context,
                                           lathe_cache_entry *entry, lathe_message_buffer message);

/* Finds only. False where there is no whole entry. */
bool lathe_cache_find(lathe_cache *cache, const lathe_cache_request *request,
                      lathe_cache_entry *entry);

/* The folder in use first, for messages. */
const char *lathe_cache_folder(const lathe_cache *cache);

#endif
