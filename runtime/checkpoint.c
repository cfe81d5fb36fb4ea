/* SPDX-License-Identifier: Apache-2.0
 * Owns: a checkpoint for lathe_build, opened and compared with the engine's step. */
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint_check.h"
#include "engine.h"
#include "synthetic.h"
#include "weights.h"

struct lathe_checkpoint {
    lathe_safetensors *files; /* NULL where synthetic */
    lathe_synthetic synthetic;
    lathe_weights weights;
    lathe_weight_source source;
};

lathe_status lathe_checkpoint_open(lathe_engine *e, const char *path, lathe_checkpoint **checkpoint,
                                   char *message, size_t size) {
    const lathe_message_buffer out = {message, size};
    if (!checkpoint)
        return lathe_fail(out, LATHE_INVALID, "checkpoint is NULL");
    *checkpoint = NULL;
    if (!e || !path)
        return lathe_fail(out, LATHE_INVALID, "found no engine or no path, allowed: both");
    lathe_checkpoint *c = calloc(1, sizeof *c);
    if (!c)
        return lathe_fail(out, LATHE_NO_MEMORY, "no memory for a checkpoint");
    lathe_status status = LATHE_OK;
    c->weights = (lathe_weights){.table = e->table, .rank = e->options.rank};
    if (lathe_synthetic_parse(path, &c->synthetic)) {
        c->weights.reader = lathe_synthetic_reader(&c->synthetic);
    } else {
        status = lathe_safetensors_open(path, &c->files, message, size);
        if (status == LATHE_OK)
            status = lathe_checkpoint_check(e->table, c->files, message, size);
        if (status == LATHE_OK)
            c->weights.reader = lathe_weights_checkpoint(c->files);
    }
    c->source = lathe_weights_source(&c->weights);
    if (status == LATHE_OK)
        *checkpoint = c;
    else
        lathe_checkpoint_close(c);
    return status;
}

const lathe_weight_source *lathe_checkpoint_source(const lathe_checkpoint *c) {
    return c ? &c->source : NULL;
}

void lathe_checkpoint_close(lathe_checkpoint *c) {
    if (!c)
        return;
    lathe_safetensors_close(c->files);
    free(c);
}
