/* SPDX-License-Identifier: Apache-2.0
 * The loop of decoding. Knows the names that every step has (runtime/README.md, implicit inputs)
 * and two outputs: `next_tokens` and, where there is one, `logits`. */
#include "decode.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode_pages.h"
#include "inject.h"
#include "named.h"
#include "step_files.h"
#include "step_inputs.h"

typedef struct {
    const lathe_decode_options *o;
    const lathe_step_table *table;
    lathe_decode_result *result;
    lathe_decode_pages *pages; /* per group */
    int32_t *known;            /* prompt and what was yielded */
    int64_t count;             /* of them */
    int64_t length;  /* of them, from the front, whose keys and values are in the caches */
    int64_t rows, q; /* of the step being run */
    int32_t *next;   /* [max_rows] */
    float *logits;   /* of a row over all ranks, or NULL */
    char *message;
    size_t size;
} decoder;

__attribute__((format(printf, 4, 5))) static lathe_status
refuse(char *message, size_t size, lathe_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(message, size, format, list);
    va_end(list);
    return status;
}

static lathe_status fail(const decoder *d, int rank, lathe_status status) {
    return refuse(d->message, d->size, status, "%s", lathe_message(d->o->engines[rank]));
}

static const lathe_step_buffer *find_output(const lathe_step_table *t, const char *name) {
    const int i = lathe_step_table_find_buffer(t, name);
    return i >= 0 && t->buffers[i].lifetime == LATHE_LIFETIME_OUTPUT ? &t->buffers[i] : NULL;
}

bool lathe_decode_has_logits(const lathe_step_table *t) {
    const lathe_step_buffer *b = find_output(t, "logits");
    return b && b->dtype == LATHE_SCALAR_F32 && b->shape.count == 2;
}

/* ---- whether it can be done ---- */

static lathe_status check_tokens(const int32_t *tokens, int64_t count, int32_t least,
                                 int64_t vocabulary, const char *what, char *message, size_t size) {
    for (int64_t i = 0; i < count; ++i)
        if (tokens[i] < least || tokens[i] >= vocabulary)
            return refuse(message, size, LATHE_INVALID,
                          "%s: token %" PRId64 " is %" PRId32 "; allowed: 0 to %" PRId64, what, i,
                          tokens[i], vocabulary - 1);
    return LATHE_OK;
}

static lathe_status check_step(const lathe_step_table *t, char *message, size_t size) {
    const lathe_step_buffer *next = find_output(t, "next_tokens");
    if (!next || next->dtype != LATHE_SCALAR_I32 || next->shape.count != 1)
        return refuse(message, size, LATHE_UNSUPPORTED,
                      "%s has no output next_tokens, i32 [rows]: its layout ends before the head",
                      t->layout);
    for (int i = 0; i < t->buffer_count; ++i)
        if (t->buffers[i].lifetime == LATHE_LIFETIME_INPUT &&
            !lathe_step_files_implicit(t->buffers[i].name))
            return refuse(message, size, LATHE_UNSUPPORTED,
                          "%s has the input %s, which tokens do not give", t->layout,
                          t->buffers[i].name);
    return LATHE_OK;
}

lathe_status lathe_decode_check(const lathe_step_table *t, const lathe_decode_options *o,
                                char *message, size_t size) {
    const int64_t vocabulary = lathe_step_inputs_vocabulary(t, 0);
    int64_t least = INT64_MAX;
    lathe_status status = check_step(t, message, size);
    if (status == LATHE_OK)
        status = check_tokens(o->prompt, o->prompt_count, 0, vocabulary, "--tokens", message, size);
    if (status == LATHE_OK)
        status = check_tokens(o->draft, o->draft_count, LATHE_DECODE_NONE, vocabulary, "--draft",
                              message, size);
    if (status != LATHE_OK)
        return status;
    if (o->prompt_count < 1 || o->steps < 1)
        return refuse(message, size, LATHE_INVALID, "a prompt and a step are needed");
    for (int v = 0; v < t->variant_count; ++v)
        least = t->variants[v].q < least ? t->variants[v].q : least;
    /* The token yielded last goes through no step; the one before may be first of a step's. */
    const int64_t most = t->max_context - least - o->prompt_count + 2;
    if (o->steps > most)
        return refuse(message, size, LATHE_INVALID,
                      "context: found %" PRId64 " tokens of prompt and %" PRId64
                      " steps, allowed: at most %" PRId64 " steps (max_context %" PRId64
                      ", at least %" PRId64 " tokens a step)",
                      o->prompt_count, o->steps, most > 0 ? most : 0, t->max_context, least);
    return LATHE_OK;
}

/* ---- one step ---- */

static lathe_status put(const decoder *d, const char *name, const void *data, size_t bytes) {
    if (lathe_step_table_find_buffer(d->table, name) < 0)
        return LATHE_OK; /* buffers that a layout does not use do not exist */
    for (int r = 0; r < d->o->ranks; ++r) {
        const lathe_status status = lathe_engine_write(d->o->engines[r], name, -1, 0, data, bytes);
        if (status != LATHE_OK)
            return fail(d, r, status);
    }
    return LATHE_OK;
}

/* The request's rows are the first of the batch; requests beyond it are padding. */
static lathe_status write_group(const decoder *d, int group, int64_t requests) {
    char name[LATHE_NAMED_BYTES];
    const lathe_step_group *g = &d->table->groups[group];
    const lathe_decode_pages *p = &d->pages[group];
    int32_t *lengths = calloc((size_t)requests, sizeof *lengths);
    int32_t *tables = calloc((size_t)(requests * g->table_width) + 1, sizeof *tables);
    int64_t *slots = calloc((size_t)d->rows, sizeof *slots);
    lathe_status status = LATHE_NO_MEMORY;
    if (lengths && tables && slots) {
        lengths[0] = (int32_t)(d->length + d->q);
        memcpy(tables, p->table, (size_t)g->table_width * sizeof *tables);
        for (int64_t i = 0; i < d->rows; ++i)
            slots[i] = i < d->q ? lathe_decode_pages_slot(p, d->length + i) : -1;
        snprintf(name, sizeof name, "seq_lens.%s", g->name);
        status = put(d, name, lengths, (size_t)requests * sizeof *lengths);
        snprintf(name, sizeof name, "slot_mapping.%s", g->name);
        if (status == LATHE_OK)
            status = put(d, name, slots, (size_t)d->rows * sizeof *slots);
        snprintf(name, sizeof name, "block_tables.%s", g->name);
        if (status == LATHE_OK)
            status = put(d, name, tables, (size_t)(requests * g->table_width) * sizeof *tables);
    }
    free(lengths);
    free(tables);
    free(slots);
    return status;
}

/* `tokens` [q] stand at positions length, length + 1, ... */
static lathe_status write_inputs(const decoder *d, const int32_t *tokens, int64_t requests) {
    int32_t *ids = calloc((size_t)d->rows, sizeof *ids);
    int64_t *positions = calloc((size_t)d->rows, sizeof *positions);
    lathe_status status = LATHE_NO_MEMORY;
    if (ids && positions) {
        memcpy(ids, tokens, (size_t)d->q * sizeof *ids);
        for (int64_t i = 0; i < d->q; ++i)
            positions[i] = d->length + i;
        status = put(d, "tokens", ids, (size_t)d->rows * sizeof *ids);
        if (status == LATHE_OK)
            status = put(d, "positions", positions, (size_t)d->rows * sizeof *positions);
    }
    free(ids);
    free(positions);
    for (int g = 0; status == LATHE_OK && g < d->table->group_count; ++g) {
        if (!lathe_decode_pages_reserve(&d->pages[g], d->length + d->q))
            return refuse(d->message, d->size, LATHE_NO_MEMORY,
                          "group %s: no free page for %" PRId64 " tokens", d->table->groups[g].name,
                          d->length + d->q);
        status = write_group(d, g, requests);
    }
    return status;
}

static lathe_status plan(const decoder *d, lathe_step_plan *plans) {
    lathe_batch batch = {.size = sizeof batch,
                         .requests = 1,
                         .q = d->q,
                         .longest = d->length + d->q,
                         .page_tokens = d->table->page_tokens};
    for (int g = 0; g < d->table->group_count; ++g)
        if (d->table->groups[g].table_width > batch.table_width)
            batch.table_width = d->table->groups[g].table_width;
    for (int r = 0; r < d->o->ranks; ++r) {
        const lathe_status status = lathe_plan(d->o->engines[r], &batch, &plans[r]);
        if (status != LATHE_OK)
            return fail(d, r, status);
    }
    return LATHE_OK;
}

/* The same on every rank, by whatever way they agreed. */
static lathe_status read_next(const decoder *d) {
    const size_t bytes = (size_t)d->rows * sizeof *d->next;
    int32_t *other = malloc(bytes);
    lathe_status status = other ? LATHE_OK : LATHE_NO_MEMORY;
    for (int r = 0; status == LATHE_OK && r < d->o->ranks; ++r) {
        int32_t *to = r ? other : d->next;
        status = lathe_engine_read(d->o->engines[r], "next_tokens", -1, 0, to, bytes);
        if (status != LATHE_OK)
            status = fail(d, r, status);
        else if (r && memcmp(other, d->next, bytes) != 0)
            status = refuse(d->message, d->size, LATHE_DISAGREE,
                            "rank %d yields other tokens than rank 0", r);
    }
    free(other);
    return status;
}

static lathe_status run(decoder *d, const int32_t *tokens) {
    lathe_step_plan plans[LATHE_GROUP_MAX];
    lathe_status statuses[LATHE_GROUP_MAX];
    lathe_inject_cost cost = {0};
    int rank = 0;
    lathe_status status = plan(d, plans);
    if (status != LATHE_OK)
        return status;
    d->rows = plans[0].rows;
    status = write_inputs(d, tokens, plans[0].requests);
    if (status != LATHE_OK)
        return status;
    status = lathe_inject_run(NULL, 0, d->o->engines, plans, d->o->ranks, statuses, &rank, &cost);
    if (status != LATHE_OK)
        return fail(d, rank, status);
    ++d->result->steps;
    return read_next(d);
}

/* ---- the sequence ---- */

/* The smallest q that takes `wanted` tokens, else the largest; none where the context ends. */
static int64_t choose_q(const decoder *d, int64_t wanted) {
    int64_t best = 0;
    for (int v = 0; v < d->table->variant_count; ++v) {
        const int64_t q = d->table->variants[v].q;
        if (d->length + q > d->table->max_context)
            continue;
        if (best == 0 || (best < wanted ? q > best : q >= wanted && q < best))
            best = q;
    }
    return best;
}

/* Row `row` of the logits, the ranks' shares side by side. */
static lathe_status read_logits(const decoder *d, int64_t row, int64_t *count) {
    const lathe_step_buffer *b = find_output(d->table, "logits");
    const int64_t share = b->shape.dim[1];
    *count = 0;
    for (int r = 0; r < d->o->ranks; ++r) {
        const size_t bytes = (size_t)share * sizeof(float);
        const lathe_status status = lathe_engine_read(
            d->o->engines[r], "logits", -1, (size_t)row * bytes, d->logits + *count, bytes);
        if (status != LATHE_OK)
            return fail(d, r, status);
        *count += share;
    }
    return LATHE_OK;
}

/* The greatest of logits that are no numbers is no token. */
static lathe_status check_logits(const decoder *d, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
        if (!isfinite(d->logits[i]))
            return refuse(d->message, d->size, LATHE_INVALID,
                          "the logits behind position %" PRId64 " are not finite (%s, of token "
                          "%" PRId64 "): these weights give no token there",
                          d->count - 1, isnan(d->logits[i]) ? "NaN" : "infinite", i);
    return LATHE_OK;
}

static lathe_status yield_token(decoder *d, int64_t row) {
    int64_t vocabulary = 0;
    if (d->logits) {
        lathe_status status = read_logits(d, row, &vocabulary);
        if (status == LATHE_OK)
            status = check_logits(d, vocabulary);
        if (status != LATHE_OK)
            return status;
    }
    const int32_t token = d->next[row];
    if (d->o->emit)
        d->o->emit(d->o->context, d->count - d->o->prompt_count, token, d->logits, vocabulary);
    d->known[d->count++] = token;
    return LATHE_OK;
}

/* Proposals for the tokens after the last known one, at most `most`. */
static int64_t propose(const decoder *d, int64_t most, int32_t *to) {
    const int64_t first = d->count - d->o->prompt_count;
    const int64_t left = d->o->steps - first - 1; /* the last token needs no proposal behind it */
    int64_t n = 0;
    while (n < most && n < left && first + n < d->o->draft_count &&
           d->o->draft[first + n] != LATHE_DECODE_NONE) {
        to[n] = d->o->draft[first + n];
        ++n;
    }
    return n;
}

/* What of a step's rows is new: the token after the last known one, and one more after each
 * proposal that was right. */
static lathe_status accept(decoder *d, int64_t last, const int32_t *proposals, int64_t count) {
    lathe_status status = yield_token(d, last);
    for (int64_t i = 0; status == LATHE_OK && i < count; ++i) {
        if (proposals[i] != d->known[d->count - 1])
            break;
        ++d->result->accepted;
        status = yield_token(d, last + 1 + i);
    }
    return status;
}

static int64_t largest_q(const lathe_step_table *t) {
    int64_t q = 1;
    for (int v = 0; v < t->variant_count; ++v)
        q = t->variants[v].q > q ? t->variants[v].q : q;
    return q;
}

/* Known tokens that are in no cache yet, then proposals, then whatever fills the rows: a row sees
 * none behind it, and what these leave in the caches is written over. */
static lathe_status advance(decoder *d, int32_t *tokens) {
    const int64_t pending = d->count - d->length;
    const int64_t room = largest_q(d->table) - pending;
    int64_t proposed = propose(d, room > 0 ? room : 0, tokens + (room > 0 ? pending : 0));
    d->q = choose_q(d, pending + proposed);
    const int64_t fed = pending < d->q ? pending : d->q;
    if (proposed > d->q - fed)
        proposed = d->q - fed;
    memcpy(tokens, d->known + d->length, (size_t)fed * sizeof *tokens);
    for (int64_t i = fed + proposed; i < d->q; ++i)
        tokens[i] = tokens[fed - 1];
    lathe_status status = run(d, tokens);
    if (status != LATHE_OK || fed < pending) {
        d->length += fed;
        return status;
    }
    d->result->proposed += proposed;
    status = accept(d, fed - 1, tokens + fed, proposed);
    d->length = d->count - 1;
    for (int g = 0; g < d->table->group_count; ++g)
        lathe_decode_pages_rewind(&d->pages[g], d->length);
    return status;
}

static lathe_status open_decoder(decoder *d) {
    const size_t most = (size_t)(d->o->prompt_count + d->o->steps);
    d->known = calloc(most, sizeof *d->known);
    d->next = calloc((size_t)d->table->max_rows, sizeof *d->next);
    d->pages = calloc((size_t)d->table->group_count + 1, sizeof *d->pages);
    bool ok = d->known && d->next && d->pages;
    if (lathe_decode_has_logits(d->table)) {
        const int64_t share = find_output(d->table, "logits")->shape.dim[1];
        d->logits = calloc((size_t)(share * d->o->ranks), sizeof *d->logits);
        ok = ok && d->logits;
    }
    for (int g = 0; ok && g < d->table->group_count; ++g)
        ok = lathe_decode_pages_open(&d->pages[g], d->o->engines[0], g);
    if (!ok)
        return refuse(d->message, d->size, LATHE_NO_MEMORY, "no memory for a sequence");
    memcpy(d->known, d->o->prompt, (size_t)d->o->prompt_count * sizeof *d->known);
    d->count = d->o->prompt_count;
    return LATHE_OK;
}

lathe_status lathe_decode(const lathe_decode_options *o, lathe_decode_result *result, char *message,
                          size_t size) {
    const lathe_step_table *t = lathe_engine_table(o->engines[0]);
    decoder d = {.o = o, .table = t, .result = result, .message = message, .size = size};
    *result = (lathe_decode_result){0, 0, 0};
    lathe_status status = open_decoder(&d);
    int32_t *tokens = calloc((size_t)largest_q(t), sizeof *tokens);
    if (status == LATHE_OK && !tokens)
        status = refuse(message, size, LATHE_NO_MEMORY, "no memory for a sequence");
    while (status == LATHE_OK && d.count - o->prompt_count < o->steps)
        status = advance(&d, tokens);
    free(tokens);
    free(d.known);
    free(d.next);
    free(d.logits);
    for (int g = 0; d.pages && g < t->group_count; ++g)
        lathe_decode_pages_close(&d.pages[g]);
    free(d.pages);
    return status;
}
