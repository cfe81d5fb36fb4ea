/* SPDX-License-Identifier: Apache-2.0
 * Tells a checkpoint from a kind of synthetic weights, and opens either. */
#include "opened_weights.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint_check.h"

static bool is_synthetic_name(const char *what) {
    struct stat st;
    return (strncmp(what, "calm", 4) == 0 || strncmp(what, "unkind", 6) == 0) &&
           stat(what, &st) != 0;
}

lathe_status lathe_opened_weights_open(const char *what, const lathe_step_table *table,
                                       lathe_opened_weights *weights, char *message, size_t size) {
    memset(weights, 0, sizeof *weights);
    weights->is_synthetic = lathe_synthetic_parse(what, &weights->synthetic);
    if (weights->is_synthetic) {
        weights->reader = lathe_synthetic_reader(&weights->synthetic);
        return LATHE_OK;
    }
    if (is_synthetic_name(what)) {
        snprintf(message, size,
                 "--weights '%s'; allowed: calm:SEED, unkind:SEED with a seed from 0 to 2^64 - 1, "
                 "or a checkpoint",
                 what);
        return LATHE_INVALID;
    }
    lathe_status status = lathe_safetensors_open(what, &weights->checkpoint, message, size);
    if (status == LATHE_OK)
        status = lathe_checkpoint_check(table, weights->checkpoint, message, size);
    if (status == LATHE_OK)
        weights->reader = lathe_weights_checkpoint(weights->checkpoint);
    return status;
}

void lathe_opened_weights_close(lathe_opened_weights *weights) {
    lathe_safetensors_close(weights->checkpoint);
    weights->checkpoint = NULL;
}
