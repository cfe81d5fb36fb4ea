/* SPDX-License-Identifier: Apache-2.0
 * Which use covers which parts of a list. */
#ifndef LATHE_COVER_H
#define LATHE_COVER_H

#include "bind.h"

/* Fails where a use names a part that the model has not, or covers nothing in any list. */
void lathe_cover_check(lathe_plan *plan);

/* The launches of a list, in the order of their first parts. Every part is covered exactly once, or
 * it fails. */
lathe_launch *lathe_cover(lathe_plan *plan, const lathe_part_list *list, size_t *count);

#endif
