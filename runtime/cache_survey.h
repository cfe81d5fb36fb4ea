/* SPDX-License-Identifier: Apache-2.0
 * Owns: what stands in a cache folder, for reports. */
#ifndef LATHE_CACHE_SURVEY_H
#define LATHE_CACHE_SURVEY_H

#include <stdint.h>

#include "cache_entry.h"

typedef struct {
    bool there;      /* the folder exists */
    int error;       /* errno of trying to write there; 0: it can be written */
    int entries;     /* whole and damaged ones */
    int damaged;     /* a file is missing or is not what the entry's digests say */
    int left;        /* aside folders of builds that run, or were killed */
    uint64_t bytes;  /* of the artefacts and sources */
    char first[256]; /* "NAME: FILE" of the first damaged one by name */
} lathe_cache_survey;

/* Reads every entry of `folder` and compares it with its own digests; keys are not compared, since
 * nobody asks for a kernel here. Makes no folder. LATHE_IO where the folder cannot be read. */
LATHE_CHECKED lathe_status lathe_cache_survey_read(const char *folder, lathe_cache_survey *survey,
                                                   lathe_message_buffer message);

#endif
