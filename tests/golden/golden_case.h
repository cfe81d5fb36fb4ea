/* SPDX-License-Identifier: Apache-2.0
 * A golden case: its sizes, its recorded noise, and its traces as the step's named values. A trace
 * by route becomes one by permuted row; requests of other lengths of query than the step's are left
 * out. */
#ifndef GOLDEN_CASE_H
#define GOLDEN_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "npy.h"

#define GOLDEN_LAYERS 16
#define GOLDEN_REQUESTS 32

typedef struct {
    char path[1024];
    char run[16];
    int tp;
    bool ep; /* ranks hold whole experts; else a part of every one, save in the bf16 edge layers */
    int layers;
    int64_t heads, kv_heads, head_dim, experts, top_k, tile;
    bool full[GOLDEN_LAYERS];
    bool bf16[GOLDEN_LAYERS]; /* edge layers */
    double stream_noise[GOLDEN_LAYERS];
    double hidden_noise, logits_noise;
    int64_t rows, requests; /* of the whole case */
    int64_t pages;          /* of its caches */
    int64_t q_lens[GOLDEN_REQUESTS];
} golden_case;

/* The requests that one batch serves: all of query length q. */
typedef struct {
    int64_t q, requests, rows;
    int64_t request[GOLDEN_REQUESTS]; /* their numbers in the case */
    int64_t row[GOLDEN_REQUESTS * 8]; /* their rows in the case */
} golden_split;

/* How a trace is indexed. */
typedef enum { GOLDEN_BY_ROW, GOLDEN_BY_ROUTE } golden_index;

/* What a rank holds of a trace. */
typedef enum {
    GOLDEN_WHOLE,
    GOLDEN_COLUMNS, /* its part of the columns */
    GOLDEN_QKVG,    /* the same of q, k, v and gate apart */
    GOLDEN_EXPERT,  /* columns where experts are spread over the ranks, else whole */
    GOLDEN_RANKED   /* the trace has a first axis of ranks */
} golden_share;

typedef struct {
    const char *value; /* the step's name */
    const char *trace; /* the case's */
    golden_index index;
    golden_share share;
} golden_trace;

extern const golden_trace golden_layer_traces[]; /* end: value NULL */
extern const golden_trace golden_final_traces[];

/* All abort the test with a message where the case is damaged. */
void golden_case_open(golden_case *c, const char *folder, const char *run);
int golden_case_split(const golden_case *c, golden_split *splits, int limit);
/* Tokens, positions, tables, lengths, slots and caches, as the step names them. */
void golden_case_write_inputs(const golden_case *c, const golden_split *s, const char *folder);
/* Every trace of every layer, in place of what the step computes: of each rank in a folder of its
 * own where there are several. */
void golden_case_write_values(const golden_case *c, const golden_split *s, const char *folder);

/* The folder of a rank's values within `folder`. */
void golden_case_folder(const golden_case *c, const char *folder, int rank, char *path,
                        size_t size);
/* Whether ranks hold whole experts in this layer. */
bool golden_case_is_ep(const golden_case *c, int layer);

/* What `rank` holds of a trace of the run, rows of the split only; data NULL where the case has
 * none. layer -1: not of a layer. */
lathe_npy golden_case_read(const golden_case *c, const golden_split *s, int rank, int layer,
                           const golden_trace *trace);
/* The permuted row of each route on a rank: routes in the order of experts, each expert from a new
 * tile; -1 where the expert is elsewhere. */
void golden_case_permute(const golden_case *c, const golden_split *s, int rank, int layer,
                         int32_t *row);

#endif
