/* SPDX-License-Identifier: Apache-2.0
 * Owns: what a fault of an exchange means: which launch of the step it was, and the message.
 *
 * Epochs count launches of one exchange. All variants of a deployment have the same exchanges, and
 * warming up runs whole steps, so the epoch modulo the launches of a step names the launch. */
#include <stdio.h>

#include "engine.h"

static bool exchanges(const lathe_step_launch *l, int index) {
    for (int i = 0; i < l->value_count; ++i)
        if (l->values[i].mailbox && l->values[i].mailbox->index == index)
            return !l->values[i].arg->publishes; /* the receiver advances the epoch */
    return false;
}

/* NULL where the step has no such exchange. */
static const lathe_step_launch *find_launch(const lathe_engine *e, const lathe_engine_fault *f) {
    const lathe_launch_list *list = &e->variants[e->running];
    uint32_t count = 0;
    for (int i = 0; i < list->count; ++i)
        count += exchanges(&list->launches[i], f->exchange);
    uint32_t left = count ? f->epoch % count : 0;
    for (int i = 0; i < list->count; ++i)
        if (exchanges(&list->launches[i], f->exchange) && left-- == 0)
            return &list->launches[i];
    return NULL;
}

/* "layer 3, norm_1x8 (sum + residual + norm)" */
static const char *name_launch(const lathe_step_launch *l, char *text, size_t size) {
    size_t used = 0;
    if (!l) {
        snprintf(text, size, "an exchange that the step does not have");
        return text;
    }
    const bool prologue = l->section == LATHE_SECTION_PROLOGUE;
    if (l->section == LATHE_SECTION_LAYER)
        used = (size_t)snprintf(text, size, "layer %d, ", l->layer);
    else
        used = (size_t)snprintf(text, size, "%s, ", prologue ? "prologue" : "epilogue");
    used += (size_t)snprintf(text + used, size - used, "%s (", l->kernel->name);
    for (int i = 0; i < l->kernel->part_count && used < size; ++i)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i ? " + " : "", l->kernel->parts[i]);
    if (used < size)
        snprintf(text + used, size - used, ")");
    return text;
}

static const char *name_exchange(const lathe_step_table *t, int index) {
    for (int i = 0; i < t->mailbox_count; ++i)
        if (t->mailboxes[i].index == index)
            return t->mailboxes[i].name;
    return "?";
}

lathe_status lathe_engine_check_peers(lathe_engine *e) {
    lathe_engine_fault f;
    char where[256], who[64] = "";
    const lathe_status status = lathe_engine_read_fault(e, &f);
    if (status != LATHE_OK || f.flag == 0)
        return status;
    const int rank = e->options.rank;
    name_launch(find_launch(e, &f), where, sizeof where);
    const char *exchange = name_exchange(e->table, f.exchange);
    if (f.flag == 2)
        return lathe_engine_fail(e, LATHE_DISAGREE,
                                 "rank %d: %s: ranks %d and %d are not at the same exchange "
                                 "(%s, number %u of rank %d)",
                                 rank, where, f.peer, f.by, exchange, f.epoch, f.by);
    if (f.by != rank)
        snprintf(who, sizeof who, ", says rank %d", f.by);
    return lathe_engine_fail(
        e, LATHE_PEER_LOST, "rank %d: %s: %s %d did not come in time%s (%s, number %u)", rank,
        where, f.peer == rank ? "this rank," : "rank", f.peer, who, exchange, f.epoch);
}
