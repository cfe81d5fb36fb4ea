/* SPDX-License-Identifier: Apache-2.0
 * Owns: the texts that a kernel is compiled from: its .cu and every header it includes, found by
 * following #include lines (those in disabled branches too: a header too many only makes a key
 * longer). */
#ifndef LATHE_SOURCES_H
#define LATHE_SOURCES_H

#include "log.h"

typedef struct {
    const char *name; /* as #include writes it */
    const char *text;
    size_t bytes;
} lathe_source_header;

typedef struct {
    const char *file; /* relative to the directory */
    const char *text;
    size_t bytes;
    int header_count;
    const lathe_source_header *headers; /* in the order in which they are first met */
} lathe_source;

typedef struct lathe_sources lathe_sources;

/* `side`: "cuda" or "host", the folder of templates/prims that bare names are looked up in. */
LATHE_CHECKED lathe_status lathe_sources_create(const char *directory, const char *side,
                                                lathe_sources **sources,
                                                lathe_message_buffer message);
void lathe_sources_destroy(lathe_sources *sources);

/* A file is read once. What is returned lives as long as `sources`. One thread at a time. */
LATHE_CHECKED lathe_status lathe_sources_read(lathe_sources *sources, const char *file,
                                              const lathe_source **source,
                                              lathe_message_buffer message);

#endif
