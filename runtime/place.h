/* SPDX-License-Identifier: Apache-2.0
 * Owns: where a rank runs: which machine, which process of it. */
#ifndef LATHE_PLACE_H
#define LATHE_PLACE_H

#include <stdint.h>

typedef struct {
    uint64_t machine; /* equal on one machine until it is started again */
    uint64_t process; /* random: process numbers repeat where containers have their own */
} lathe_place;

lathe_place lathe_place_here(void);

#endif
