/* SPDX-License-Identifier: Apache-2.0
 * The folder beside a generated directory in which its files are written before they take its
 * place. Its maker holds a lock on it: what a killed one left is told from what is being written.
 */
#ifndef LATHE_EMIT_ASIDE_H
#define LATHE_EMIT_ASIDE_H

#include "arena.h"

/* Makes TARGET.lathe-XXXXXX and removes those that nobody holds. `*path` is set as soon as it
 * stands; the descriptor `*lock` holds it until it is closed. */
void lathe_aside_make(lathe_arena *arena, const char *target, const char **path, int *lock);
/* Removes it, or another folder, with all in it. Never fails. */
void lathe_aside_remove(const char *path);

#endif
