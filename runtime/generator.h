/* SPDX-License-Identifier: Apache-2.0
 * Owns: synthetic weights made on a device by templates/synthetic/fill.cuh, the bits of
 * runtime/synthetic.c. */
#ifndef LATHE_GENERATOR_H
#define LATHE_GENERATOR_H

#include "compile.h"
#include "device.h"
#include "weight_runs.h"

typedef struct lathe_generator lathe_generator;

/* Finds the kernel in the cache or compiles it. LATHE_IO where the generated directory has none. */
LATHE_CHECKED lathe_status lathe_generator_compile(lathe_compiler *compiler,
                                                   lathe_compiled *compiled,
                                                   lathe_message_buffer message);

/* Loads the kernel. Device and compiler outlive the generator; one thread at a time. */
LATHE_CHECKED lathe_status lathe_generator_open(lathe_device *device, lathe_compiler *compiler,
                                                lathe_generator **generator,
                                                lathe_message_buffer message);
/* After the device was synchronised. NULL is allowed. */
void lathe_generator_close(lathe_generator *generator);

struct lathe_synthetic_tensor;

/* Enqueues on stream 0 what writes the runs of a tensor to the weight at `memory`. */
LATHE_CHECKED lathe_status lathe_generator_fill(lathe_generator *generator,
                                                const struct lathe_synthetic_tensor *tensor,
                                                lathe_scalar dtype, const lathe_weight_runs *runs,
                                                void *memory, lathe_message_buffer message);

#endif
