/* SPDX-License-Identifier: Apache-2.0
 * Owns: one entry of a cache folder: checking it, locking it, building it. Private to cache.c and
 * cache_entry.c. */
#ifndef LATHE_CACHE_ENTRY_H
#define LATHE_CACHE_ENTRY_H

#include "cache.h"

typedef enum { LATHE_ENTRY_ABSENT, LATHE_ENTRY_WHOLE, LATHE_ENTRY_DAMAGED } lathe_entry_state;

/* NAME-HASH of a request. */
#define LATHE_ENTRY_NAME_BYTES 192
void lathe_entry_name(const lathe_cache_request *request, char name[LATHE_ENTRY_NAME_BYTES]);

/* What stands at `folder`; `reason` says what is damaged. */
lathe_entry_state lathe_entry_check(const char *folder, const lathe_cache_request *request,
                                    lathe_message_buffer reason);

/* The same without a request: every file that the entry's digests list is there and unchanged, an
 * artefact and the source among them. `bytes` are those of the files read. */
lathe_entry_state lathe_entry_intact(const char *folder, uint64_t *bytes,
                                     lathe_message_buffer reason);

/* The lock of ROOT/NAME: one holder among all processes and threads. -1 where it cannot be had:
 * *error is an errno. */
int lathe_entry_lock(const char *root, const char *name, lathe_logger *log, int *error);
void lathe_entry_unlock(const char *root, const char *name, int lock);

/* Under the lock: makes the artefact aside and puts the entry in place, in place of a damaged one.
 * LATHE_IO where the file system refuses. */
lathe_status lathe_entry_build(const char *root, const char *name,
                               const lathe_cache_request *request, lathe_cache_make make,
                               void *context, lathe_message_buffer message);

#endif
