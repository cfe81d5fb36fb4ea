/* SPDX-License-Identifier: Apache-2.0
 * TP n against TP 1, EP against expert TP: the same weights and inputs through two deployments. */
#include "against.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "compare.h"
#include "generated.h"
#include "ranks.h"

struct lathe_against {
    lathe_generated generated;
    lathe_ranks ranks;
    const lathe_step_table *table;
};

/* "2-ep" as size and name; anything else is a directory. */
static int generate(const lathe_against_what *w, lathe_generated *g) {
    char tp[16];
    const size_t digits = strspn(w->what, "0123456789");
    const char *name = w->what + digits;
    if (digits == 0 || digits >= sizeof tp || (*name && *name != '-'))
        return lathe_generated_open(w->what, "1", w->arch, NULL, g);
    memcpy(tp, w->what, digits);
    tp[digits] = 0;
    return lathe_generated_open(w->layout, tp, w->arch, *name ? name + 1 : NULL, g);
}

static lathe_status build(lathe_against *a, lathe_weight_reader reader, char *message,
                          size_t size) {
    lathe_weights weights[LATHE_GROUP_MAX];
    lathe_weight_source sources[LATHE_GROUP_MAX];
    for (int rank = 0; rank < a->ranks.count; ++rank) {
        weights[rank] = (lathe_weights){a->table, rank, reader};
        sources[rank] = lathe_weights_source(&weights[rank]);
    }
    return lathe_ranks_build(&a->ranks, sources, message, size);
}

lathe_status lathe_against_open(const lathe_against_what *what, lathe_against **against,
                                char *message, size_t size) {
    lathe_against *a = calloc(1, sizeof *a);
    *against = a;
    if (!a) {
        snprintf(message, size, "no memory for another deployment");
        return LATHE_NO_MEMORY;
    }
    if (generate(what, &a->generated) != LATHE_EXIT_OK) {
        snprintf(message, size, "--against %s cannot be generated", what->what);
        return LATHE_INVALID;
    }
    lathe_options o = *what->options;
    o.directory = a->generated.directory;
    const lathe_status status = lathe_ranks_create(&o, &a->ranks, message, size);
    if (status != LATHE_OK)
        return status;
    a->table = lathe_engine_table(a->ranks.engines[0]);
    return build(a, what->reader, message, size);
}

void lathe_against_close(lathe_against *a) {
    if (!a)
        return;
    lathe_ranks_destroy(&a->ranks);
    lathe_generated_close(&a->generated);
    free(a);
}

static int find_variant(const lathe_step_table *t, const lathe_step_variant *v) {
    for (int i = 0; i < t->variant_count; ++i)
        if (t->variants[i].requests == v->requests && t->variants[i].q == v->q)
            return i;
    return -1;
}

/* Line 4: of equal size they differ in how experts are spread. */
static double allowance(const lathe_against *a, int ranks, double noise) {
    return a->ranks.count == ranks ? LATHE_EXPERTS_TOLERANCE
                                   : fmax(LATHE_STEP_TOLERANCE, LATHE_STEP_NOISE_FACTOR * noise);
}

/* Token ids follow from the logits and are listed only. */
static void compare_output(const lathe_outputs *theirs, const lathe_outputs *ours, int index,
                           double allowed, FILE *out, int *failed) {
    const lathe_step_value *v = ours->list[index].value;
    const int other = lathe_outputs_find(theirs, v->buffer->name, v->layer);
    const bool listed = v->arg->dtype == LATHE_SCALAR_I32 || v->arg->dtype == LATHE_SCALAR_I64;
    const double distance =
        other < 0 ? (double)NAN : lathe_outputs_distance(theirs, other, ours, index);
    const bool pass = listed || distance <= allowed;
    *failed += !pass;
    fprintf(out, "%-12s %-34s %d ranks against %-14d %.1e (%.1e)%*s %s\n", "deployments",
            v->buffer->name, ours->ranks, theirs->ranks, distance, listed ? 1.0 : allowed, 15, "",
            pass ? "ok" : "FAILED");
}

lathe_status lathe_against_compare(lathe_against *a, const lathe_outputs_step *step, double noise,
                                   FILE *out, int *failed, char *message, size_t size) {
    const lathe_step_table *table = lathe_engine_table(step->engines[0]);
    lathe_outputs_step other = *step;
    other.engines = a->ranks.engines;
    other.ranks = a->ranks.count;
    other.variant = find_variant(a->table, &table->variants[step->variant]);
    if (other.variant < 0) {
        snprintf(message, size, "--against: the other deployment has no variant %s",
                 table->variants[step->variant].name);
        return LATHE_INVALID;
    }
    lathe_outputs ours = {0}, theirs = {0};
    lathe_status status = lathe_outputs_run(step, &ours, message, size);
    if (status == LATHE_OK)
        status = lathe_outputs_run(&other, &theirs, message, size);
    for (int i = 0; status == LATHE_OK && i < ours.count; ++i)
        compare_output(&theirs, &ours, i, allowance(a, step->ranks, noise), out, failed);
    lathe_outputs_destroy(&ours);
    lathe_outputs_destroy(&theirs);
    return status;
}
