/* SPDX-License-Identifier: Apache-2.0
 * What --weights names, opened: a checkpoint that fits the step, or a kind of synthetic weights. */
#ifndef LATHE_OPENED_WEIGHTS_H
#define LATHE_OPENED_WEIGHTS_H

#include "synthetic.h"
#include "weights.h"

typedef struct {
    lathe_safetensors *checkpoint; /* NULL where synthetic */
    lathe_synthetic synthetic;
    bool is_synthetic;
    lathe_weight_reader reader;
} lathe_opened_weights;

/* `what`: a folder, an index or a file of safetensors, calm:SEED or unkind:SEED. A checkpoint is
 * compared with the step whole; the message lists everything that differs. The reader lives as long
 * as *weights. */
LATHE_CHECKED lathe_status lathe_opened_weights_open(const char *what,
                                                     const lathe_step_table *table,
                                                     lathe_opened_weights *weights, char *message,
                                                     size_t size);
void lathe_opened_weights_close(lathe_opened_weights *weights);

#endif
