/* SPDX-License-Identifier: Apache-2.0
 * Runs the rules of the scan over templates and generated files, one unit of work each, on several
 * threads, and reports what they found in a fixed order. */
#include "scan.h"

#ifndef LATHE_SCAN

bool lathe_scan_available(void) {
    return false;
}

int lathe_scan(const lathe_scan_input *input, lathe_scan_report report, void *context) {
    report(context, input->shown, 0,
           "the libclang checks were left out of this build (LATHE_SCAN=OFF); use --no-scan");
    return -1;
}

#else

#include "scan_unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 8

typedef struct {
    const lathe_scan_input *in;
    lathe_scan_unit *units; /* providers, then files */
    size_t count;
    atomic_size_t next;
} work;

static void *run(void *data) {
    work *w = data;
    for (size_t i = w->next++; i < w->count; i = w->next++) {
        if (i < w->in->provider_count)
            lathe_scan_template(&w->units[i], w->in, &w->in->providers[i]);
        else
            lathe_scan_output(&w->units[i], w->in, &w->in->files[i - w->in->provider_count]);
    }
    return NULL;
}

/* A thread that cannot be had is done without: the caller's thread takes what is left. */
static void run_all(work *w) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int count = w->in->threads > 0 ? w->in->threads : processors > 0 ? (int)processors : 1;
    count = count > MAX_THREADS ? MAX_THREADS : count;
    pthread_t threads[MAX_THREADS];
    int started = 0;
    while (started < count - 1 && pthread_create(&threads[started], NULL, run, w) == 0)
        started++;
    run(w);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

/* Order within a unit: file, then line, then as found. */
static int compare(const void *a, const void *b) {
    const lathe_finding *x = a, *y = b;
    const int files = strcmp(x->file, y->file);
    if (files || x->line != y->line)
        return files ? files : x->line < y->line ? -1 : 1;
    return strcmp(x->message, y->message);
}

/* A header of several templates is scanned with each: the same finding is reported once. */
static bool is_repeated(const work *w, size_t unit, size_t finding) {
    const lathe_finding *f = &w->units[unit].findings[finding];
    for (size_t u = 0; u <= unit; u++) {
        const size_t end = u < unit ? w->units[u].finding_count : finding;
        for (size_t i = 0; i < end; i++)
            if (compare(f, &w->units[u].findings[i]) == 0)
                return true;
    }
    return false;
}

static int report_unit(const work *w, size_t unit, lathe_scan_report report, void *context) {
    lathe_scan_unit *u = &w->units[unit];
    if (u->failed) {
        report(context, w->in->shown, 0, "no memory for the libclang checks");
        return -1;
    }
    if (u->finding_count)
        qsort(u->findings, u->finding_count, sizeof *u->findings, compare);
    int count = 0;
    for (size_t i = 0; i < u->finding_count; i++) {
        if (is_repeated(w, unit, i))
            continue;
        report(context, u->findings[i].file, u->findings[i].line, u->findings[i].message);
        count++;
    }
    return count;
}

/* Rule 4 between launches: an early launch follows one that triggers. */
static int report_early(const lathe_scan_input *in, lathe_scan_report report, void *context) {
    int count = 0;
    for (size_t i = 0; i < in->early_count; i++) {
        const lathe_scan_early *e = &in->early[i];
        const lathe_scan_provider *p = &in->providers[e->provider];
        char message[512];
        if (e->predecessor == SIZE_MAX)
            snprintf(message, sizeof message,
                     "%s is launched early but nothing precedes it in its stream", p->name);
        else if (!in->providers[e->predecessor].triggers)
            snprintf(message, sizeof message,
                     "%s is launched early behind %s, which does not trigger (%s:%d)", p->name,
                     in->providers[e->predecessor].name, in->providers[e->predecessor].spec,
                     in->providers[e->predecessor].line);
        else if (!p->early)
            snprintf(message, sizeof message,
                     "%s is launched early; its spec does not declare it early (%s:%d)", p->name,
                     p->spec, p->line);
        else
            continue;
        report(context, e->file, e->line, message);
        count++;
    }
    return count;
}

bool lathe_scan_available(void) {
    return true;
}

int lathe_scan(const lathe_scan_input *input, lathe_scan_report report, void *context) {
    work w = {.in = input, .count = input->provider_count + input->file_count};
    w.units = calloc(w.count ? w.count : 1, sizeof *w.units);
    if (!w.units) {
        report(context, input->shown, 0, "no memory for the libclang checks");
        return -1;
    }
    run_all(&w);
    int total = 0;
    bool failed = false;
    for (size_t i = 0; i < w.count; i++) {
        const int found = report_unit(&w, i, report, context);
        failed |= found < 0;
        total += found < 0 ? 0 : found;
    }
    total += report_early(input, report, context);
    for (size_t i = 0; i < w.count; i++)
        lathe_scan_unit_destroy(&w.units[i]);
    free(w.units);
    return failed ? -1 : total;
}

#endif
