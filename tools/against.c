/* SPDX-License-Identifier: Apache-2.0
 * TP n against TP 1, EP against expert TP: the same weights and inputs through two deployments.
 * The other deployment follows the routes of the one that is checked, as a chained reference
 * does; where it chose otherwise is listed. */
#include "against.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "compare.h"
#include "generated.h"
#include "ranks.h"

#define LAYERS_MAX 256

struct lathe_against {
    lathe_generated generated;
    lathe_ranks ranks;
    const lathe_step_table *table;
};

#define DIGITS_MOST 15

/* Of "2" and "2-ep" the number of digits, else 0: it is a directory. */
static size_t count_digits(const char *what) {
    const size_t digits = strspn(what, "0123456789");
    return digits <= DIGITS_MOST && (!what[digits] || what[digits] == '-') ? digits : 0;
}

bool lathe_against_is_deployment(const char *what) {
    return count_digits(what) > 0;
}

static int generate(const lathe_against_what *w, lathe_generated *g) {
    char tp[DIGITS_MOST + 1];
    const size_t digits = count_digits(w->what);
    const char *name = w->what + digits;
    if (digits == 0)
        return lathe_generated_open("run", w->what, "1", w->arch, NULL, g);
    memcpy(tp, w->what, digits);
    tp[digits] = 0;
    return lathe_generated_open("run", w->layout, tp, w->arch, *name ? name + 1 : NULL, g);
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

/* What a launch of the routing read and chose, of one layer. */
typedef struct {
    int layer;
    float *logits;
    int32_t *ids;
    int64_t rows, experts, top_k;
} choice;

/* The choices of one deployment, which the other one follows, as a chained reference does. */
typedef struct {
    choice list[LAYERS_MAX];
    int count;
    FILE *out;
} choices;

static const lathe_step_value *find_value(const lathe_step_launch *l, const char *arg) {
    for (int i = 0; i < l->value_count; ++i)
        if (strcmp(l->values[i].arg->name, arg) == 0)
            return l->values[i].buffer ? &l->values[i] : NULL;
    return NULL;
}

static void free_choice(choice *c) {
    free(c->logits);
    free(c->ids);
    *c = (choice){0};
}

/* The logits that a launch reads: whole, or partial sums that it adds; NULL: it does not route. */
static const lathe_step_value *find_logits(const lathe_step_launch *l) {
    return find_value(l, "ids") ? find_value(l, "logits") : NULL;
}

/* Adds partial sums, [sums, rows, experts], into the first of them. */
static void add_partials(choice *c, size_t bytes) {
    const size_t whole = (size_t)(c->rows * c->experts);
    for (size_t i = whole; i < bytes / sizeof *c->logits; ++i)
        c->logits[i % whole] += c->logits[i];
}

static lathe_status read_choice(const lathe_outputs_step *s, const lathe_step_launch *l,
                                choice *c) {
    const lathe_step_value *logits = find_logits(l);
    const lathe_step_value *ids = find_value(l, "ids");
    *c = (choice){.layer = l->layer,
                  .logits = malloc(logits->bytes),
                  .ids = malloc(ids->bytes),
                  .rows = ids->shape.dim[0],
                  .experts = logits->shape.dim[logits->shape.count - 1],
                  .top_k = ids->shape.dim[1]};
    lathe_status status = c->logits && c->ids ? LATHE_OK : LATHE_NO_MEMORY;
    if (status == LATHE_OK)
        status = lathe_engine_read(s->engines[0], logits->buffer->name, logits->layer, 0, c->logits,
                                   logits->bytes);
    if (status == LATHE_OK)
        status =
            lathe_engine_read(s->engines[0], ids->buffer->name, ids->layer, 0, c->ids, ids->bytes);
    if (status == LATHE_OK)
        add_partials(c, logits->bytes);
    else
        free_choice(c);
    return status;
}

static lathe_status record(void *context, const lathe_outputs_step *s, const lathe_step_launch *l,
                           bool *again) {
    choices *c = context;
    (void)again;
    if (!find_logits(l) || c->count == LAYERS_MAX)
        return LATHE_OK;
    const lathe_status status = read_choice(s, l, &c->list[c->count]);
    c->count += status == LATHE_OK;
    return status;
}

static const choice *find_choice(const choices *c, int layer) {
    for (int i = 0; i < c->count; ++i)
        if (c->list[i].layer == layer)
            return &c->list[i];
    return NULL;
}

/* Takes the logits of rows that were routed otherwise from the first deployment; says whether any
 * were. */
static bool take_rows(const choices *c, const choice *first, choice *mine) {
    const size_t ids = (size_t)first->top_k * sizeof *first->ids;
    const size_t logits = (size_t)first->experts * sizeof *first->logits;
    bool any = false;
    for (int64_t row = 0; row < first->rows; ++row) {
        if (memcmp(first->ids + row * first->top_k, mine->ids + row * first->top_k, ids) == 0)
            continue;
        any = true;
        memcpy(mine->logits + row * first->experts, first->logits + row * first->experts, logits);
        fprintf(c->out, "    L%02d: row %lld is routed otherwise by the other deployment\n",
                first->layer, (long long)row);
    }
    return any;
}

static lathe_status follow(void *context, const lathe_outputs_step *s, const lathe_step_launch *l,
                           bool *again) {
    choice mine;
    const choices *c = context;
    const choice *first = find_logits(l) ? find_choice(c, l->layer) : NULL;
    if (!first)
        return LATHE_OK;
    lathe_status status = read_choice(s, l, &mine);
    if (status != LATHE_OK)
        return status;
    *again = take_rows(c, first, &mine);
    const lathe_step_value *v = find_logits(l);
    memset(mine.logits + mine.rows * mine.experts, 0,
           v->bytes - (size_t)(mine.rows * mine.experts) * sizeof *mine.logits);
    for (int rank = 0; *again && status == LATHE_OK && rank < s->ranks; ++rank)
        status = lathe_engine_write(s->engines[rank], v->buffer->name, v->layer, 0, mine.logits,
                                    v->bytes);
    free_choice(&mine);
    return status;
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
    choices routes = {.out = out};
    lathe_outputs_step first = *step;
    first.after = record;
    other.after = follow;
    first.after_context = other.after_context = &routes;
    lathe_outputs ours = {0}, theirs = {0};
    lathe_status status = lathe_outputs_run(&first, &ours, message, size);
    if (status == LATHE_OK)
        status = lathe_outputs_run(&other, &theirs, message, size);
    for (int i = 0; status == LATHE_OK && i < ours.count; ++i)
        compare_output(&theirs, &ours, i, allowance(a, step->ranks, noise), out, failed);
    for (int i = 0; i < routes.count; ++i)
        free_choice(&routes.list[i]);
    lathe_outputs_destroy(&ours);
    lathe_outputs_destroy(&theirs);
    return status;
}
