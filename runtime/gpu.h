/* SPDX-License-Identifier: Apache-2.0
 * Owns: what the runtime knows of architectures. */
#ifndef LATHE_GPU_H
#define LATHE_GPU_H

#include <stdint.h>

typedef struct {
    const char *name;             /* "sm_90a" */
    int major, minor;             /* compute capability */
    uint32_t shared_bytes;        /* that a block may opt into */
    int nvrtc_major, nvrtc_minor; /* the first that compiles for it */
} lathe_gpu;

/* NULL where the runtime does not know it. */
const lathe_gpu *lathe_gpu_find(const char *name);
const lathe_gpu *lathe_gpu_find_capability(int major, int minor);

/* "sm_90a, sm_100a, ..." */
#define LATHE_GPU_NAMES "sm_90a, sm_100a, sm_103a, sm_120a"

#endif
