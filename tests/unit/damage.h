/* SPDX-License-Identifier: Apache-2.0
 * Damage of a file's text at seeded places, and every way to cut it short. */
#ifndef LATHE_TESTS_DAMAGE_H
#define LATHE_TESTS_DAMAGE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What becomes of damaged text: `length` bytes and a zero byte, not the text's own. */
typedef void damage_visit(char *text, size_t length);

/* Every prefix that lacks something, each `step`th of them. */
static inline void damage_cut(const char *text, size_t length, size_t step, damage_visit *visit) {
    for (size_t n = 0; n < length; n += step) {
        char *copy = malloc(n + 1);
        memcpy(copy, text, n);
        copy[n] = '\0';
        visit(copy, n);
        free(copy);
    }
}

/* One to three bytes become others, `times` times. */
static inline void damage_bytes(const char *text, size_t length, int times, damage_visit *visit) {
    static const char bytes[] = "0123456789-.,:;[](){}\"'=aeFRx# \n\\\x80\xff";
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < times; ++i) {
        char *copy = malloc(length + 1);
        memcpy(copy, text, length);
        copy[length] = '\0';
        for (int k = 0; k < 1 + i % 3; ++k) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            copy[random % length] = bytes[(random >> 32) % (sizeof bytes - 1)];
        }
        visit(copy, length);
        free(copy);
    }
}

#endif
