/* SPDX-License-Identifier: Apache-2.0
 * Generates a layout into a temporary folder, by `lathe gen` itself. */
#include "generated.h"

#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

bool lathe_generated_is_layout(const char *target) {
    const size_t n = strlen(target);
    return n > 4 && strcmp(target + n - 4, ".lua") == 0;
}

static int make_folder(const char *command, lathe_generated *g) {
    const char *base = getenv("TMPDIR");
    if (asprintf(&g->temporary, "%s/lathe-XXXXXX", base && *base ? base : "/tmp") < 0) {
        g->temporary = NULL;
    } else if (!mkdtemp(g->temporary)) {
        free(g->temporary);
        g->temporary = NULL;
    } else if (asprintf(&g->directory, "%s/step", g->temporary) >= 0) {
        return LATHE_EXIT_OK;
    }
    g->directory = NULL;
    fprintf(stderr, "lathe %s: no temporary folder can be made: %s\n", command, strerror(errno));
    return LATHE_EXIT_USAGE;
}

/* The generator parses its arguments and does not write to them. */
static char *borrow(const char *text) {
    return (char *)(uintptr_t)text;
}

int lathe_generated_open(const char *command, const char *target, const char *tp, const char *arch,
                         const char *deployment, lathe_generated *g) {
    *g = (lathe_generated){NULL, NULL};
    if (!lathe_generated_is_layout(target)) {
        g->directory = strdup(target);
        return g->directory ? LATHE_EXIT_OK : LATHE_EXIT_USAGE;
    }
    const int status = make_folder(command, g);
    if (status != LATHE_EXIT_OK)
        return status;
    char *argv[] = {borrow(command),
                    borrow(target),
                    borrow("--tp"),
                    borrow(tp),
                    borrow("--arch"),
                    borrow(arch),
                    borrow("--out"),
                    g->directory,
                    borrow("--quiet"),
                    borrow("--deployment"),
                    borrow(deployment ? deployment : ""),
                    NULL};
    const int count = deployment ? 11 : 9;
    argv[count] = NULL;
    return lathe_cmd_gen(count, argv);
}

lathe_status lathe_generated_check(const lathe_generated *g, const char *target,
                                   const lathe_step_table *table, const char *tp, const char *arch,
                                   const char *deployment, char *message, size_t size) {
    char found[16];
    snprintf(found, sizeof found, "%d", table->tp);
    const struct {
        const char *name, *wanted, *found;
    } options[] = {{"--tp", tp, found},
                   {"--arch", arch, table->arch},
                   {"--deployment", deployment, table->deployment}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; ++i) {
        if (g->temporary || !options[i].wanted || strcmp(options[i].wanted, options[i].found) == 0)
            continue;
        snprintf(message, size, "%s '%s'; %s was generated with '%s'", options[i].name,
                 options[i].wanted, target, options[i].found);
        return LATHE_INVALID;
    }
    return LATHE_OK;
}

void lathe_generated_close(lathe_generated *g) {
    if (g->temporary)
        nftw(g->temporary, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(g->temporary);
    free(g->directory);
    *g = (lathe_generated){NULL, NULL};
}
