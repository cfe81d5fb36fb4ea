/* SPDX-License-Identifier: Apache-2.0
 * Owns: the seams between the files that read step.json. Private to step_table.c, step_kernels.c
 * and step_ops.c. */
#ifndef LATHE_STEP_READ_H
#define LATHE_STEP_READ_H

#include "json_read.h"
#include "step_table.h"

#define LATHE_STEP_MAX_LAYERS 4096
#define LATHE_STEP_MAX_LIST 65536u

/* Names to numbers, open addressing. */
typedef struct {
    const char **names;
    int *numbers;
    size_t mask;
} lathe_step_index;

bool lathe_step_index_create(lathe_json *j, int count, lathe_step_index *index);
/* False with a message where the name is there already. */
bool lathe_step_index_add(lathe_json *j, lathe_step_index *index, const char *name, int number);
int lathe_step_index_find(const lathe_step_index *index, const char *name);

typedef struct {
    lathe_json json;
    lathe_step_table *table;
    lathe_step_index buffers, kernels, mailboxes;
} lathe_step_reader;

/* A shape under `shape`. `min`: smallest dimension allowed; the first one may be 0 where `pages`
 * says so. */
bool lathe_step_read_shape(lathe_json *j, const json_t *object, int64_t min, bool pages,
                           lathe_step_shape *shape);
bool lathe_step_read_scalar(lathe_json *j, const json_t *object, lathe_scalar *type);
bool lathe_step_read_form(lathe_json *j, const json_t *object, lathe_step_form *form);
/* Ascending layer numbers under `layers`. */
bool lathe_step_read_layers(lathe_step_reader *r, const json_t *object, const int **layers,
                            int *count);
/* Bytes of a shape, dimensions below `skip` left out; false with a message past 2^46. */
bool lathe_step_shape_bytes(lathe_json *j, const lathe_step_shape *shape, int skip,
                            lathe_scalar type, int64_t *bytes);

bool lathe_step_read_checkpoint(lathe_step_reader *r, const json_t *root);
bool lathe_step_read_weights(lathe_step_reader *r, const json_t *root);
bool lathe_step_read_kernels(lathe_step_reader *r, const json_t *root);
bool lathe_step_read_prepare(lathe_step_reader *r, const json_t *root);
bool lathe_step_read_probe(lathe_step_reader *r, const json_t *root);
bool lathe_step_read_variants(lathe_step_reader *r, const json_t *root);

#endif
