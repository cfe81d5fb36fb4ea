/* SPDX-License-Identifier: Apache-2.0
 * The folder of --inputs before anything runs: every .npy file in it must have a place. */
#ifndef LATHE_INPUT_FILES_H
#define LATHE_INPUT_FILES_H

#include "step.h"

typedef struct {
    const char *folder;
    lathe_engine *const *engines; /* one per rank, built */
    int ranks;
    int variant; /* -1: all */
    bool check;  /* values within the step have a place too */
} lathe_input_files;

/* Refuses what is no folder. */
LATHE_CHECKED lathe_status lathe_input_files_open(const char *folder, char *message, size_t size);

/* Refuses a folder rN of a rank that the step has not: nobody would read it. */
LATHE_CHECKED lathe_status lathe_input_files_check_ranks(const char *folder, int ranks,
                                                         char *message, size_t size);

/* Refuses a file whose name is no step input and no value that a launch reads, and one of another
 * type or shape. *values: how many values within the step will be replaced. */
LATHE_CHECKED lathe_status lathe_input_files_check(const lathe_input_files *files, int *values,
                                                   char *message, size_t size);

/* Whether an array of the first shape may stand for the second: the same but for leading 1s, or
 * with neighbouring dimensions taken together or apart; the rows, `wanted`'s outermost dimension,
 * stay a dimension of their own. */
bool lathe_input_files_fit(const int64_t *found, int found_rank, const int64_t *wanted,
                           int wanted_rank);

#endif
