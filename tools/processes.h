/* SPDX-License-Identifier: Apache-2.0
 * The ranks of a run as processes of this program, started and collected by the command itself. */
#ifndef LATHE_PROCESSES_H
#define LATHE_PROCESSES_H

typedef struct {
    int count;            /* ranks */
    char *const *options; /* of `lathe run`, NULL-ended, that every rank gets after `target` */
    const char *target;   /* the generated directory */
} lathe_processes;

/* Starts this program once per rank as `lathe run TARGET OPTIONS --rank R --meet FOLDER`, waits
 * for all, prints what rank 0 said and why others failed. Once a rank has ended badly the others
 * have half a minute to end by themselves, then they are ended. Returns the worst exit status. */
int lathe_processes_run(const lathe_processes *p);

#endif
