/* SPDX-License-Identifier: Apache-2.0 */
#include "tune_choices.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tactic_file.h"

#define FIELDS 8

/* ---- reading ---- */

/* The fields of a line; false at the end of the text. */
static bool next_line(const char **text, lathe_pool *pool, char *fields[FIELDS]) {
    const size_t n = strcspn(*text, "\n");
    char *line = n ? lathe_pool_format(pool, "%.*s", (int)n, *text) : NULL;
    if (!line)
        return false;
    *text += n + ((*text)[n] == '\n');
    for (int i = 0; i < FIELDS; ++i)
        fields[i] = strsep(&line, "\t");
    return fields[FIELDS - 1] != NULL;
}

static int count_lines(const char *text) {
    int lines = 1;
    for (const char *c = text; *c; ++c)
        lines += *c == '\n';
    return lines;
}

/* Whether a is simpler than b. */
static bool is_simpler(const lathe_tune_choice *a, const lathe_tune_choice *b) {
    if (a->rule != b->rule)
        return a->rule;
    if (a->shared != b->shared)
        return a->shared < b->shared;
    return a->threads != b->threads ? a->threads < b->threads : a < b;
}

static void rank(lathe_tune_kernel *k) {
    for (int i = 0; i < k->count; ++i) {
        k->choices[i].simple = 0;
        for (int j = 0; j < k->count; ++j)
            k->choices[i].simple += j != i && is_simpler(&k->choices[j], &k->choices[i]);
    }
}

int lathe_tune_choices_read(const char *text, lathe_pool *pool, lathe_tune_kernel **kernels) {
    const size_t lines = (size_t)count_lines(text);
    lathe_tune_choice *choices = lathe_pool_alloc(pool, lines, sizeof *choices);
    lathe_tune_kernel *k = lathe_pool_alloc(pool, lines, sizeof *k);
    char *f[FIELDS];
    int count = 0;
    if (!choices || !k)
        return -1;
    for (; next_line(&text, pool, f); ++choices) {
        if (count == 0 || strcmp(k[count - 1].name, f[0]) != 0)
            k[count++] = (lathe_tune_kernel){.name = f[0],
                                             .provider = f[1],
                                             .rows = atoll(f[2]),
                                             .shape = f[3],
                                             .choices = choices};
        const bool both = strcmp(f[4], "both") == 0;
        *choices = (lathe_tune_choice){.name = f[5],
                                       .threads = atoll(f[6]),
                                       .shared = atoll(f[7]),
                                       .rule = both || strcmp(f[4], "default") == 0,
                                       .taken = both || strcmp(f[4], "taken") == 0};
        ++k[count - 1].count;
    }
    for (int i = 0; i < count; ++i)
        rank(&k[i]);
    *kernels = k;
    return count;
}

/* ---- writing ---- */

json_t *lathe_tune_constants(const char *text) {
    json_t *object = json_object();
    while (*text && strchr(text, '=')) {
        const size_t name = strcspn(text, "=");
        char *end;
        const double value = strtod(text + name + 1, &end);
        const bool whole = value == floor(value) && fabs(value) < 9e15;
        json_object_setn_new(object, text, name,
                             whole ? json_integer((json_int_t)value) : json_real(value));
        text = *end == ',' ? end + 1 : end;
    }
    return object;
}

static json_t *microseconds(double us) {
    return json_real(round(us * 100) / 100);
}

typedef struct {
    const char *name;
    double median;
} loser;

static int by_time(const void *a, const void *b) {
    const loser *x = a, *y = b;
    const double xr = round(x->median * 100), yr = round(y->median * 100);
    return xr != yr ? (xr > yr) - (xr < yr) : strcmp(x->name, y->name);
}

static json_t *list_losers(const lathe_tune_kernel *k, const lathe_tune_measured *m) {
    loser *losers = calloc((size_t)k->count + 1, sizeof *losers);
    json_t *list = json_array();
    int count = 0;
    for (int i = 0; losers && i < k->count; ++i)
        if (i != m->taken && !isnan(m->medians[i]))
            losers[count++] = (loser){k->choices[i].name, m->medians[i]};
    if (count > 0)
        qsort(losers, (size_t)count, sizeof *losers, by_time);
    for (int i = 0; i < count; ++i) {
        json_t *one = lathe_tune_constants(losers[i].name);
        json_object_set_new(one, "median_us", microseconds(losers[i].median));
        json_array_append_new(list, one);
    }
    free(losers);
    return list;
}

static json_t *make_entry(const lathe_tune_kernel *k, int choice, json_t *record) {
    return json_pack("{s:o,s:I,s:[o],s:o}", "shape", lathe_tune_constants(k->shape), "rows",
                     (json_int_t)k->rows, "choose", lathe_tune_constants(k->choices[choice].name),
                     "record", record);
}

json_t *lathe_tune_entry(const lathe_tune_kernel *k, const lathe_tune_measured *m) {
    int tried = 0;
    for (int i = 0; i < k->count; ++i)
        tried += !isnan(m->medians[i]);
    return make_entry(k, m->taken,
                      json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:i,s:o}", "gpu", m->gpu, "toolkit",
                                m->toolkit, "driver", m->driver, "date", m->date, "median_us",
                                microseconds(m->medians[m->taken]), "spread_us",
                                microseconds(m->spread), "tried", tried, "losers",
                                list_losers(k, m)));
}

char *lathe_tune_override(const lathe_tune_kernel *k, int choice) {
    json_t *fields =
        make_entry(k, choice,
                   json_pack("{s:s,s:s,s:s,s:s,s:i,s:i,s:[]}", "gpu", "", "toolkit", "", "driver",
                             "", "date", "", "median_us", 0, "spread_us", 0, "losers"));
    char *entry = fields ? lathe_tactic_file_print(k->provider, fields) : NULL, *text = NULL;
    if (entry && asprintf(&text, "return tactics \"tune\" { doc = \"\", %s }\n", entry) < 0)
        text = NULL;
    free(entry);
    json_decref(fields);
    return text;
}
