/* SPDX-License-Identifier: Apache-2.0
 * The table that a check prints: block and parts, launch, the output nearest to its bound, verdict.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check_state.h"

lathe_status lathe_check_refuse(lathe_check_state *c, lathe_status status, const char *format,
                                ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(c->message, c->size, format, list);
    va_end(list);
    return status;
}

lathe_status lathe_check_refuse_engine(lathe_check_state *c, int rank, lathe_status status) {
    return lathe_check_refuse(c, status, "rank %d: %s", rank,
                              lathe_message(c->options->engines[rank]));
}

static void format_place(const lathe_step_launch *launch, char *text, size_t size) {
    switch (launch->section) {
    case LATHE_SECTION_PREPARE:
        snprintf(text, size, launch->layer < 0 ? "prepare" : "prepare L%02d", launch->layer);
        break;
    case LATHE_SECTION_PROLOGUE:
        snprintf(text, size, "prologue");
        break;
    case LATHE_SECTION_LAYER:
        snprintf(text, size, "L%02d", launch->layer);
        break;
    case LATHE_SECTION_EPILOGUE:
        snprintf(text, size, "epilogue");
        break;
    }
}

/* "attn.rope+attn.insert", cut to `size`. */
static void format_parts(const lathe_step_kernel *k, char *text, size_t size) {
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < k->part_count && n < size; ++i)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? "+" : "", k->parts[i]);
    if (n >= size)
        memcpy(text + size - 3, "..", 3);
}

/* The output that fails, else the one that uses most of its allowance. */
static const lathe_check_output *find_worst(const lathe_check_row *row) {
    const lathe_check_output *worst = NULL;
    double most = -1;
    for (int i = 0; i < row->output_count; ++i) {
        const lathe_check_output *o = &row->outputs[i];
        const lathe_comparison *q = &o->comparison;
        double used = q->allowed > 0 ? q->relative / q->allowed : q->relative;
        if (!q->pass || o->changed)
            used += 1e30;
        if (!worst || used > most || (used == most && q->compared > worst->comparison.compared)) {
            worst = o;
            most = used;
        }
    }
    return worst;
}

static void format_result(const lathe_check_output *o, char *text, size_t size) {
    const lathe_comparison *q = &o->comparison;
    if (q->rule == LATHE_RULE_EXACT)
        snprintf(text, size, q->wrong ? "%s: %lld wrong" : "%s exact",
                 lathe_check_value_name(o->value), (long long)q->wrong);
    else
        snprintf(text, size, "%s %.1e (%.0e)", lathe_check_value_name(o->value), q->relative,
                 q->allowed);
}

/* Elements are counted where each must be right; of the others, those that no distance tells of. */
static void print_measure(FILE *out, const lathe_comparison *q) {
    const bool counts =
        q->rule == LATHE_RULE_EXACT || q->rule == LATHE_RULE_CODES || q->rule == LATHE_RULE_SCALES;
    if (!counts)
        fprintf(out, "relative %.3e, worst row %.3e, allowed %.0e", q->relative, q->row,
                q->allowed);
    if (counts || q->wrong)
        fprintf(out, "%s%lld of %lld elements %s", counts ? "" : "; ", (long long)q->wrong,
                (long long)q->compared, counts ? "wrong" : "NaN or infinite on one side only");
}

static void print_failure(FILE *out, const lathe_check_output *o) {
    const lathe_comparison *q = &o->comparison;
    fprintf(out, "    %s, rank %d: ", lathe_check_value_name(o->value), o->rank);
    print_measure(out, q);
    if (q->worst >= 0)
        fprintf(out, "; element %lld is %.9g, expected %.9g", (long long)q->worst, q->found_worst,
                q->expected_worst);
    if (o->changed)
        fprintf(out, "; %lld elements changed that must not", (long long)o->changed);
    fputc('\n', out);
}

void lathe_check_print_head(const lathe_check_state *c) {
    FILE *out = c->options->out;
    if (!out || c->options->failures_only)
        return;
    fprintf(out, "%-12s %-34s %-30s %-32s %s\n", "block", "parts", "launch",
            "relative L2 (allowed)", "verdict");
}

void lathe_check_print_row(const lathe_check_state *c, const lathe_check_row *row) {
    FILE *out = c->options->out;
    if (!out || (c->options->failures_only && row->pass))
        return;
    char place[16];
    char parts[35];
    char result[128] = "";
    format_place(row->launch, place, sizeof place);
    format_parts(row->launch->kernel, parts, sizeof parts);
    const lathe_check_output *worst = find_worst(row);
    if (worst)
        format_result(worst, result, sizeof result);
    fprintf(out, "%-12s %-34s %-30s %-32s %s\n", place, parts, row->launch->kernel->name, result,
            row->pass ? "ok" : "FAILED");
    for (int i = 0; i < row->output_count; ++i)
        if (!row->outputs[i].comparison.pass || row->outputs[i].changed)
            print_failure(out, &row->outputs[i]);
    for (int i = 0; i < row->output_count; ++i)
        if (row->outputs[i].turned)
            fprintf(out,
                    "    %s, rank %d: %lld rows as expected with a tie inside the launch turned\n",
                    lathe_check_value_name(row->outputs[i].value), row->outputs[i].rank,
                    (long long)row->outputs[i].turned);
    if (row->note[0])
        fprintf(out, "    %s\n", row->note);
    for (int i = 0; row->ref && i < row->ref->flip_count && i < LATHE_REF_FLIPS; ++i)
        fprintf(out, "    rank %d, row %lld: another choice than the reference's, %.3g ulp apart\n",
                row->ref->flips[i].rank, (long long)row->ref->flips[i].row,
                row->ref->flips[i].ulps);
}
