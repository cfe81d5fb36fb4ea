/* SPDX-License-Identifier: Apache-2.0
 * Owns: plan and run, and the same one operation at a time. Nothing here allocates; only finish and
 * synchronize wait. */
#include "step.h"

#include <stdio.h>
#include <string.h>

#include "engine.h"

static lathe_status check_built(lathe_engine *e, const char *call) {
    static const char *const reasons[] = {
        [LATHE_ENGINE_CREATED] = "the engine is not built",
        [LATHE_ENGINE_FAILED] = "the build failed",
        [LATHE_ENGINE_LOST] = "a peer was lost and the ranks have not rejoined since"};
    if (e->state == LATHE_ENGINE_BUILT)
        return LATHE_OK;
    return lathe_engine_fail(e, LATHE_INVALID, "%s: %s", call, reasons[e->state]);
}

/* "1x1, 1x8, 4x8" */
static const char *name_variants(const lathe_step_table *t, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int v = 0; v < t->variant_count && used < size; ++v)
        used += (size_t)snprintf(text + used, size - used, "%s%lldx%lld", v ? ", " : "",
                                 (long long)t->variants[v].requests, (long long)t->variants[v].q);
    return text;
}

static lathe_status refuse_batch(lathe_engine *e, const lathe_batch *b) {
    const lathe_step_table *t = e->table;
    char text[512];
    int64_t most = 0;
    for (int v = 0; v < t->variant_count; ++v)
        if (t->variants[v].q == b->q && t->variants[v].requests > most)
            most = t->variants[v].requests;
    name_variants(t, text, sizeof text);
    if (most == 0)
        return lathe_engine_fail(e, LATHE_UNSUPPORTED,
                                 "q: found %lld, no variant has it; declared (requests x q): %s",
                                 (long long)b->q, text);
    return lathe_engine_fail(
        e, LATHE_UNSUPPORTED,
        "rows: found %lld requests of q %lld, allowed: at most %lld; declared (requests x q): %s",
        (long long)b->requests, (long long)b->q, (long long)most, text);
}

static lathe_status check_tables(lathe_engine *e, const lathe_batch *b) {
    const lathe_step_table *t = e->table;
    if (t->group_count == 0)
        return LATHE_OK; /* no cache: tables mean nothing */
    if (b->page_tokens != t->page_tokens)
        return lathe_engine_fail(e, LATHE_UNSUPPORTED,
                                 "KV layout: found pages of %lld tokens, allowed: %lld",
                                 (long long)b->page_tokens, (long long)t->page_tokens);
    const int64_t needed = (b->longest + t->page_tokens - 1) / t->page_tokens;
    int64_t widest = 0;
    for (int g = 0; g < t->group_count; ++g)
        if (t->groups[g].table_width > widest)
            widest = t->groups[g].table_width;
    if (b->table_width < needed || b->table_width > widest)
        return lathe_engine_fail(e, LATHE_UNSUPPORTED,
                                 "table width: found %lld pages for a longest request of %lld "
                                 "tokens, allowed: %lld to %lld",
                                 (long long)b->table_width, (long long)b->longest,
                                 (long long)needed, (long long)widest);
    return LATHE_OK;
}

static lathe_status check_batch(lathe_engine *e, const lathe_batch *b) {
    const lathe_step_table *t = e->table;
    if (b->requests < 1 || b->q < 1)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "found %lld requests of q %lld, allowed: 1 or more",
                                 (long long)b->requests, (long long)b->q);
    if (b->longest < b->q || b->longest > t->max_context)
        return lathe_engine_fail(e, LATHE_UNSUPPORTED,
                                 "length: found %lld tokens, allowed: q = %lld to %lld",
                                 (long long)b->longest, (long long)b->q, (long long)t->max_context);
    return check_tables(e, b);
}

/* The keys that a request's last q tokens see lie in pages of their own. */
static lathe_status check_pages(lathe_engine *e, int buffer, const lathe_batch *batch) {
    const lathe_step_buffer *b = &e->table->buffers[buffer];
    const int64_t window = e->table->groups[b->group].window, unit = e->table->page_tokens;
    const int64_t before = batch->longest - batch->q - window + 1; /* that none of them sees */
    const int64_t first = window > 0 && before > 0 ? before : 0;
    const int64_t needed = (batch->longest - 1) / unit - first / unit + 1;
    for (int n = 0; n < lathe_engine_instances(b); ++n)
        if (lathe_engine_pages(e, buffer, n) < needed)
            return lathe_engine_fail(
                e, LATHE_UNSUPPORTED,
                "KV cache %s of layer %d: found %lld pages, a request of %lld tokens wants %lld",
                b->name, b->per_layer ? b->layers[n] : -1,
                (long long)lathe_engine_pages(e, buffer, n), (long long)batch->longest,
                (long long)needed);
    return LATHE_OK;
}

static lathe_status check_caches(lathe_engine *e, const lathe_batch *batch) {
    int layer = -1;
    const int unbound = lathe_engine_unbound_cache(e, &layer);
    if (unbound >= 0)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "KV cache %s of layer %d: no real cache is bound",
                                 e->table->buffers[unbound].name, layer);
    lathe_status status = check_batch(e, batch);
    for (int i = 0; status == LATHE_OK && i < e->table->buffer_count; ++i)
        if (e->table->buffers[i].lifetime == LATHE_LIFETIME_KV)
            status = check_pages(e, i, batch);
    return status;
}

/* What only lathe_plan of this engine gives for the variant. */
static uint64_t ticket_of(const lathe_engine *e, int variant) {
    uint64_t x =
        e->table->digest ^ (e->serial * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)variant + 1);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 27);
}

lathe_status lathe_plan(lathe_engine *e, const lathe_batch *batch, lathe_step_plan *plan) {
    if (!e || !batch || !plan)
        return lathe_engine_fail_null(e, "lathe_plan");
    *plan = (lathe_step_plan){.variant = -1};
    if (batch->size != sizeof *batch)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "lathe_plan: found a batch of %zu bytes, allowed: %zu",
                                 batch->size, sizeof *batch);
    lathe_status status = check_built(e, "lathe_plan");
    if (status == LATHE_OK)
        status = check_caches(e, batch);
    if (status != LATHE_OK)
        return status;
    const lathe_step_table *t = e->table;
    int best = -1;
    for (int v = 0; v < t->variant_count; ++v)
        if (t->variants[v].q == batch->q && t->variants[v].requests >= batch->requests &&
            (best < 0 || t->variants[v].requests < t->variants[best].requests))
            best = v;
    if (best < 0)
        return refuse_batch(e, batch);
    const int64_t requests = t->variants[best].requests;
    *plan = (lathe_step_plan){best, requests, batch->q, requests * batch->q, ticket_of(e, best)};
    return LATHE_OK;
}

static lathe_status check_run(lathe_engine *e, const lathe_step_plan *plan, const char *call) {
    const lathe_status status = check_built(e, call);
    if (status != LATHE_OK)
        return status;
    if (plan->variant < 0 || plan->variant >= e->table->variant_count ||
        plan->ticket != ticket_of(e, plan->variant))
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "%s: the plan is none that lathe_plan gave for this engine", call);
    return LATHE_OK;
}

lathe_status lathe_run(lathe_engine *e, const lathe_step_plan *plan) {
    if (!e || !plan)
        return lathe_engine_fail_null(e, "lathe_run");
    const lathe_status status = check_run(e, plan, "lathe_run");
    if (status != LATHE_OK)
        return status;
    return e->graphs ? lathe_engine_replay(e, plan->variant)
                     : lathe_engine_launch_all(e, plan->variant);
}

lathe_status lathe_enqueue(lathe_engine *e, const lathe_step_plan *plan) {
    if (!e || !plan)
        return lathe_engine_fail_null(e, "lathe_enqueue");
    const lathe_status status = check_run(e, plan, "lathe_enqueue");
    return status == LATHE_OK ? lathe_engine_launch_all(e, plan->variant) : status;
}

/* Waits for the step. Where the library lost a rank that a mailbox missed too, the mailbox knows
 * which and where. */
static lathe_status wait_for_peers(lathe_engine *e) {
    char text[sizeof e->message];
    const lathe_status status = lathe_engine_synchronize(e);
    if (status != LATHE_OK && status != LATHE_PEER_LOST)
        return status;
    memcpy(text, e->message, sizeof text);
    const lathe_status peers = lathe_engine_check_peers(e);
    if (status == LATHE_OK || peers == LATHE_PEER_LOST || peers == LATHE_DISAGREE)
        return peers;
    return lathe_engine_fail(e, status, "%s", text);
}

lathe_status lathe_finish(lathe_engine *e) {
    if (!e)
        return LATHE_INVALID;
    lathe_status status = check_built(e, "lathe_finish");
    if (status == LATHE_OK)
        status = wait_for_peers(e);
    if (status == LATHE_PEER_LOST || status == LATHE_DISAGREE)
        e->state = LATHE_ENGINE_LOST; /* the epochs of the ranks no longer agree */
    if (status != LATHE_OK || lathe_step_table_find_buffer(e->table, "faults") < 0)
        return status;
    int32_t word = 0;
    status = lathe_engine_read(e, "faults", -1, 0, &word, sizeof word);
    if (status != LATHE_OK || word == 0)
        return status;
    status = lathe_engine_clear_faults(e);
    if (status != LATHE_OK)
        return status;
    if (word & LATHE_FAULT_PEER)
        return lathe_engine_fail(e, LATHE_PEER_LOST, "a rank did not answer in time");
    if (word & LATHE_FAULT_TOKEN)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "a token id is outside the vocabulary; its row was taken as zero");
    return lathe_engine_fail(e, LATHE_DEVICE_FAULT, "a kernel recorded fault %#x", (unsigned)word);
}

lathe_status lathe_rejoin(lathe_engine *e) {
    if (!e)
        return LATHE_INVALID;
    if (e->state != LATHE_ENGINE_BUILT && e->state != LATHE_ENGINE_LOST)
        return check_built(e, "lathe_rejoin");
    if (e->state == LATHE_ENGINE_LOST && lathe_engine_has_collectives(e))
        return lathe_engine_fail(e, LATHE_UNSUPPORTED,
                                 "lathe_rejoin: the step's collectives are captured with a "
                                 "communicator that is gone; build anew");
    lathe_status status = lathe_engine_synchronize(e);
    if (status == LATHE_OK)
        status = lathe_engine_reset_mailboxes(e);
    e->state = status == LATHE_OK ? LATHE_ENGINE_BUILT : LATHE_ENGINE_LOST;
    return status;
}

/* "norm_1x8 (layer 3)" */
static const char *describe(const lathe_step_launch *l, char *text, size_t size) {
    if (l->kind == LATHE_OP_COLLECTIVE)
        snprintf(text, size, "%s (layer %d)", l->collective->part, l->layer);
    else if (l->kind != LATHE_OP_LAUNCH)
        snprintf(text, size, "%s", l->kind == LATHE_OP_FORK ? "fork" : "join");
    else if (l->layer < 0)
        snprintf(text, size, "%s", l->kernel->name);
    else
        snprintf(text, size, "%s (layer %d)", l->kernel->name, l->layer);
    return text;
}

lathe_status lathe_engine_launch(lathe_engine *e, const lathe_step_launch *l) {
    const lathe_device_ops *ops = e->device->ops;
    lathe_status status;
    switch (l->kind) {
    case LATHE_OP_FORK:
        status = ops->fork(e->device, l->stream);
        break;
    case LATHE_OP_JOIN:
        status = ops->join(e->device, l->stream);
        break;
    case LATHE_OP_COLLECTIVE:
        status = ops->collective(
            e->device, l->stream,
            l->collective->gather ? LATHE_COLLECTIVE_ALL_GATHER : LATHE_COLLECTIVE_ALL_REDUCE,
            l->collective->dtype, l->addresses[0], l->addresses[1], (size_t)l->collective->count);
        break;
    default:
        status = ops->launch(e->device, l->stream, l->loaded, &l->geometry, l->addresses,
                             l->value_count);
    }
    if (status == LATHE_OK)
        return LATHE_OK;
    char text[200];
    return lathe_engine_fail_device(e, status, describe(l, text, sizeof text));
}

lathe_status lathe_engine_launch_all(lathe_engine *e, int variant) {
    int count;
    const lathe_step_launch *launches = lathe_engine_launches(e, variant, &count);
    if (!launches)
        return lathe_engine_fail(e, LATHE_INVALID, "there are no launches of variant %d", variant);
    e->running = variant;
    for (int i = 0; i < count; ++i) {
        const lathe_status status = lathe_engine_launch(e, &launches[i]);
        if (status != LATHE_OK)
            return status;
    }
    return LATHE_OK;
}

lathe_status lathe_engine_replay(lathe_engine *e, int variant) {
    const lathe_status built = check_built(e, "replay");
    if (built != LATHE_OK)
        return built;
    if (!e->graphs || variant < 0 || variant >= e->table->variant_count)
        return lathe_engine_fail(e, LATHE_INVALID, "there is no graph of variant %d", variant);
    e->running = variant;
    const lathe_status status = e->device->ops->replay(e->device, e->graphs[variant]);
    return status == LATHE_OK
               ? LATHE_OK
               : lathe_engine_fail_device(e, status, e->table->variants[variant].name);
}

lathe_status lathe_engine_synchronize(lathe_engine *e) {
    const lathe_status status = e->device->ops->synchronize(e->device);
    return status == LATHE_OK ? LATHE_OK : lathe_engine_fail_device(e, status, "synchronize");
}
