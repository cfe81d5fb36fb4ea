/* SPDX-License-Identifier: Apache-2.0
 * Owns: the table of architectures. */
#include "gpu.h"

#include <stddef.h>
#include <string.h>

static const lathe_gpu archs[] = {
    {"sm_90a", 9, 0, 232448, 12, 0},
    {"sm_100a", 10, 0, 232448, 12, 8},
    {"sm_103a", 10, 3, 232448, 12, 9},
    {"sm_120a", 12, 0, 101376, 12, 8},
};
#define COUNT (sizeof archs / sizeof archs[0])

const lathe_gpu *lathe_gpu_find(const char *name) {
    for (size_t i = 0; i < COUNT; ++i)
        if (strcmp(archs[i].name, name) == 0)
            return &archs[i];
    return NULL;
}

const lathe_gpu *lathe_gpu_find_capability(int major, int minor) {
    for (size_t i = 0; i < COUNT; ++i)
        if (archs[i].major == major && archs[i].minor == minor)
            return &archs[i];
    return NULL;
}
