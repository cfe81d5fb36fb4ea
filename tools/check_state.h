/* SPDX-License-Identifier: Apache-2.0
 * What the parts of the checker share while one step is checked. */
#ifndef LATHE_CHECK_STATE_H
#define LATHE_CHECK_STATE_H

#include "check.h"
#include "compare.h"
#include "image.h"
#include "named.h"
#include "reference_call.h"

#define LATHE_CHECK_OUTPUTS 32 /* of one launch */

/* Where the contents of a buffer come from, when not from a layer. */
enum { LATHE_FROM_NOWHERE = -3, LATHE_FROM_EPILOGUE = -1 };

/* What a launch wrote, kept for the whole-step comparison. */
typedef struct {
    void **values; /* per rank * argument; NULL where not kept */
} lathe_check_saved;

typedef struct {
    const lathe_check_options *options;
    lathe_check_result *result;
    const lathe_step_table *table;
    int ranks;
    const lathe_step_launch *launches[LATHE_REF_RANKS]; /* of the variant; a collective has the
                                                           kernel that check_collective.c gave it */
    int launch_count;
    lathe_image *weights[LATHE_REF_RANKS]; /* read once */
    lathe_image *start[LATHE_REF_RANKS]; /* inputs, caches and persistent buffers before the step */
    lathe_image *end[LATHE_REF_RANKS];   /* everything else after it */
    lathe_image *defined[LATHE_REF_RANKS]; /* 1 for every byte that a reference defines */
    lathe_check_saved *saved;              /* per launch */
    int *written;    /* per buffer, then per mailbox: the layer that wrote its value last */
    bool overridden; /* a value within the step came from a file */
    char *message;
    size_t size;
} lathe_check_state;

typedef struct {
    const lathe_step_value *value;
    int rank;
    lathe_comparison comparison;
    int64_t turned;  /* rows that are as expected with inner roundings turned at ties */
    int64_t changed; /* elements of an inout argument that should have stayed */
} lathe_check_output;

/* One row of the table. */
typedef struct {
    const lathe_step_launch *launch;
    int output_count;
    lathe_check_output outputs[LATHE_CHECK_OUTPUTS];
    const lathe_ref *ref;
    char note[320]; /* what else is wrong, or "" */
    bool pass;
} lathe_check_row;

/* What a value is called: a buffer's name, or that of what a mailbox carries. */
const char *lathe_check_value_name(const lathe_step_value *value);
bool lathe_check_publishes(const lathe_step_value *value);
bool lathe_check_receives(const lathe_step_value *value);

/* Sets the message and returns the status. */
__attribute__((format(printf, 3, 4))) lathe_status
lathe_check_refuse(lathe_check_state *c, lathe_status status, const char *format, ...);
/* The same with the message of rank's engine. */
lathe_status lathe_check_refuse_engine(lathe_check_state *c, int rank, lathe_status status);

/* The entry of `written` for the value. */
int *lathe_check_written(const lathe_check_state *c, const lathe_step_value *value);
/* The folder of rank's values within `folder`: itself where there is one rank. */
void lathe_check_folder(int ranks, const char *folder, int rank, char *path, size_t size);
/* The name of a value that `launch` writes, or that was written by layer `written`. */
void lathe_check_name(const lathe_step_value *value, int written, char *name, size_t size);
int lathe_check_writer(const lathe_step_launch *launch);

/* check_collective.c: the launches of a rank, with kernels in name for its collectives. NULL where
 * there is no memory. */
const lathe_step_launch *lathe_check_collectives(const lathe_step_launch *launches, int count);
void lathe_check_collectives_free(const lathe_step_launch *launches, int count);

/* One launch: inputs read back, outputs poisoned, launched, compared, reported, kept as
 * saved[index] (index -1: not). */
LATHE_CHECKED lathe_status lathe_check_launch(lathe_check_state *c,
                                              const lathe_step_launch *const *launch, int index);
/* check_rest.c: poisons what the buffer has behind the value that a launch writes. */
LATHE_CHECKED lathe_status lathe_check_rest_fill(lathe_check_state *c, int rank,
                                                 const lathe_step_value *value);
/* Whether the launch has left it so, or zero in a zeroed buffer. */
LATHE_CHECKED lathe_status lathe_check_rest_holds(lathe_check_state *c, int rank,
                                                  const lathe_step_value *value, bool *holds);
/* check_mail.c: what `source` sent through the mailbox of the value for the exchange that comes
 * next, as it lies at rank `owner`, in new memory. */
LATHE_CHECKED lathe_status lathe_check_read_slot(lathe_check_state *c, int owner, int source,
                                                 const lathe_step_value *value, void **to);
/* Puts `data` in the place of what `source` sent, at every rank. */
LATHE_CHECKED lathe_status lathe_check_write_slots(lathe_check_state *c, int source,
                                                   const lathe_step_value *value, const void *data);
/* Whether what rank `source` sent, `mine`, lies at every rank. *owner: where it does not. */
LATHE_CHECKED lathe_status lathe_check_arrival(lathe_check_state *c, int source,
                                               const lathe_step_value *value, const void *mine,
                                               int *owner);
/* Whether no slot of the value's mailbox at `owner` holds anything. */
LATHE_CHECKED lathe_status lathe_check_empty(lathe_check_state *c, int owner,
                                             const lathe_step_value *value, bool *empty);
/* check_alike.c: what the references of all ranks expect to be equal must be equal bit for bit
 * (design.md, line 5). Counts argument `index` in *count where they do; returns the first rank that
 * differs from rank 0, or 0. */
int lathe_check_alike(const lathe_ref *ref, int index, int *count);

/* check_ties.c: where the output keeps to its rule as a whole and a row of it does not, compares
 * that row, of `width` elements, with what the reference gives with inner roundings turned at their
 * ties. Returns how many rows keep to the rule so; the row in *comparison is the worst of those
 * left. */
int64_t lathe_check_ties(const lathe_ref *ref, int rank, int index, int64_t width,
                         lathe_comparison *comparison);

/* Whether a file may replace the value before a launch that has it as argument. */
bool lathe_check_may_override(const lathe_step_value *value);
/* Whether the value is partial sums and the file holds their sum: one slice, as bf16. */
bool lathe_check_is_sum(const lathe_step_value *value, const lathe_npy *array);
/* Replaces the values that the launch reads by those of the inputs folder. */
LATHE_CHECKED lathe_status lathe_check_override(lathe_check_state *c,
                                                const lathe_step_launch *const *launch);
/* The whole step against the chained reference. */
LATHE_CHECKED lathe_status lathe_check_chain(lathe_check_state *c);
/* The normal schedule and the graph against the launches one by one. */
LATHE_CHECKED lathe_status lathe_check_schedules(lathe_check_state *c);

/* The normal schedule twice with different contents in the rows of padding. Leaves other inputs
 * than it found. */
LATHE_CHECKED lathe_status lathe_check_padding(lathe_check_state *c);

void lathe_check_print_head(const lathe_check_state *c);
void lathe_check_print_row(const lathe_check_state *c, const lathe_check_row *row);

#endif
