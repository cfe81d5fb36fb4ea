/* SPDX-License-Identifier: Apache-2.0
 * The whole of `lathe gen`: from a layout file to a generated directory. */
#ifndef LATHE_GENERATE_H
#define LATHE_GENERATE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *layout; /* path of the layout file */
    const char *root;   /* holds layouts/ and templates/; NULL: found above the layout */
    int64_t tp;
    const char *deployment; /* NULL: the default one */
    const char *arch;       /* NULL: sm_90a */
    const char *tactics;    /* name of a table of layouts/tactics, NULL: none */
    const char *out;        /* NULL: generated/LAYOUT-tpN[-DEPLOYMENT]-ARCH */
    const char *before;     /* file with such a table, asked before `tactics`; NULL: none */
    size_t choices;         /* tactics of a kernel at most in lathe_generate_result.choices */
    const char *only;       /* glob over kernel names, NULL: all */
    bool no_scan;
} lathe_generate_options;

typedef struct {
    char message[8192];       /* why it failed */
    char directory[PATH_MAX]; /* what was written */
    char hash[17];
    size_t kernels, files;
    char *why; /* one line a kernel: which tactic, and why; the caller frees it */
    /* One line for every tactic that lathe_tactic_list gives of a kernel, fields with
     * tabs between: kernel, provider, rows, the integers that an entry of a table may name
     * ("kN=64,kK=128"), "default", "taken" (what the kernel's first tactic is), "both" or "-", the
     * tactic's name, threads of a block, bytes of shared memory. The caller frees it. */
    char *choices;
    char table[PATH_MAX];         /* of measured tactics, "" where none was asked for */
    char warning[PATH_MAX];       /* why nothing was taken of that table, else "" */
    size_t entries, entries_used; /* of that table; used by kernels of this step */
} lathe_generate_result;

/* True on success. */
bool lathe_generate(const lathe_generate_options *options, lathe_generate_result *result);

#endif
