/* SPDX-License-Identifier: Apache-2.0
 * Owns: the file through which one rank gives the others the id of a communicator. */
#ifndef LATHE_ID_FILE_H
#define LATHE_ID_FILE_H

#include "log.h"

/* Written aside and linked to its name, so that nobody reads a part; a file that is there already
 * is another run's and is refused. */
LATHE_CHECKED lathe_status lathe_id_file_write(const char *path, const void *id, size_t bytes,
                                               lathe_message_buffer message);
/* Waits for it; LATHE_PEER_LOST where it does not come in time. */
LATHE_CHECKED lathe_status lathe_id_file_read(const char *path, void *id, size_t bytes,
                                              uint64_t timeout_ns, lathe_message_buffer message);
void lathe_id_file_remove(const char *path);

#endif
