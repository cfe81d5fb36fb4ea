/* SPDX-License-Identifier: Apache-2.0
 * Fills the weights of one rank: joins the sources of each, each sharded by its rule. Where the
 * elements come from is a reader's matter (a checkpoint, a generator); this file knows shapes and
 * ranges only. */
#ifndef LATHE_WEIGHTS_H
#define LATHE_WEIGHTS_H

#include "generator.h"
#include "lathe.h"
#include "safetensors.h"
#include "step_table.h"
#include "weight_runs.h"

/* Gives elements of checkpoint tensors. */
typedef struct {
    /* Copies `count` elements from element `offset` of the whole tensor `name` to `to`, in the
     * source's dtype. */
    lathe_status (*read)(void *context, const lathe_step_source *source, const char *name,
                         int64_t offset, int64_t count, void *to, char *message, size_t size);
    void *context;
    /* NULL, or: enqueues what writes the runs of the tensor to the weight at `memory` of the
     * generator's device, the same bits as `read`. */
    lathe_status (*generate)(void *context, lathe_generator *generator,
                             const lathe_step_source *source, const char *name,
                             const lathe_weight_runs *runs, void *memory, char *message,
                             size_t size);
} lathe_weight_reader;

typedef struct {
    const lathe_step_table *table;
    int rank;
    lathe_weight_reader reader;
} lathe_weights;

/* Reads from an open checkpoint. The reader is valid as long as the checkpoint. Elements of bf16
 * matrices too wide for lathe_checkpoint_check are looked at here: LATHE_INVALID where one is not
 * finite. */
lathe_weight_reader lathe_weights_checkpoint(lathe_safetensors *checkpoint);

/* Fills weight number `weight` for `layer` (-1: not per layer) in the rank's local shape. */
LATHE_CHECKED lathe_status lathe_weights_fill(const lathe_weights *weights, int weight, int layer,
                                              void *host, size_t bytes, char *message, size_t size);

/* `bytes` of it from byte `first` on, both multiples of its elements' size. */
LATHE_CHECKED lathe_status lathe_weights_fill_range(const lathe_weights *weights, int weight,
                                                    int layer, size_t first, size_t bytes,
                                                    void *host, char *message, size_t size);

/* Calls `visit` for every source of the weight, in their order, with what the rank holds of it. */
typedef lathe_status lathe_weight_visitor(void *context, const lathe_step_source *source,
                                          const char *name, const lathe_weight_runs *runs,
                                          char *message, size_t size);
LATHE_CHECKED lathe_status lathe_weights_visit(const lathe_weights *weights, int weight, int layer,
                                               lathe_weight_visitor *visit, void *context,
                                               char *message, size_t size);

/* Enqueues what writes to `memory` of the generator's device the bytes that lathe_weights_fill
 * gives. Only where the reader has `generate`. */
LATHE_CHECKED lathe_status lathe_weights_generate(const lathe_weights *weights,
                                                  lathe_generator *generator, int weight, int layer,
                                                  void *memory, char *message, size_t size);

/* The source that lathe_build takes; `weights` must outlive the build. It can fill every weight;
 * whoever wants experts by rank says so in the source's `experts`. */
lathe_weight_source lathe_weights_source(lathe_weights *weights);

/* What such a source was made of; NULL for any other. */
const lathe_weights *lathe_weights_of(const lathe_weight_source *source);

/* `pattern` with the layer's number in place of "{l}". False where the result does not fit. */
bool lathe_weights_name(const char *pattern, int layer, char *name, size_t size);

/* A source whose name holds "{e}" is stacked: its first dimension counts tensors of the checkpoint,
 * numbered from 0 in that place, each of the other dimensions. How many there are; 1 of any other
 * source. */
int64_t lathe_weights_parts(const lathe_step_source *source);
/* The name of one of them. False where it does not fit. */
bool lathe_weights_part_name(const char *name, int64_t part, char *to, size_t size);
/* The shape of one of them. */
lathe_step_shape lathe_weights_part_shape(const lathe_step_source *source);

#endif
