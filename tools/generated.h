/* SPDX-License-Identifier: Apache-2.0
 * A generated directory for a command: the one that was named, or one generated from a layout for
 * as long as the command runs. */
#ifndef LATHE_GENERATED_H
#define LATHE_GENERATED_H

typedef struct {
    char *directory; /* that holds step.json */
    char *temporary; /* removed on close; NULL where the directory was named */
} lathe_generated;

/* `target` is a directory, or a layout (its name ends in .lua). Returns an exit status; what is
 * wrong has been printed. */
int lathe_generated_open(const char *target, const char *tp, const char *arch,
                         const char *deployment, lathe_generated *generated);
void lathe_generated_close(lathe_generated *generated);

#endif
