/* SPDX-License-Identifier: Apache-2.0
 * Owns: what a host would have a step do against what the step does. A table: a field, how it is
 * compared, and how the answer begins. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine.h"

typedef enum {
    FLAG,   /* bool: never done */
    ONE,    /* count: at most one */
    COUNT,  /* count: what the layout serves under that name; without a word of it, none */
    NUMBER, /* real: what the layout serves under that name, where it says so */
    TEXT,   /* the same, a word */
    NONE    /* a word: none is served */
} comparison;

typedef struct {
    comparison kind;
    size_t offset;
    const char *name;    /* of `serves` */
    const char *message; /* FLAG: all of it; else its beginning */
} rule;

#define AT(field) offsetof(lathe_serving, field)

static const rule rules[] = {
    {TEXT, AT(architecture), "architecture", "architecture"},
    {ONE, AT(data_parallel), "", "data parallelism"},
    {ONE, AT(pipeline_parallel), "", "pipeline parallelism"},
    {ONE, AT(context_parallel), "", "context parallelism"},
    {COUNT, AT(dense_layers), "dense_layers", "dense layers"},
    {COUNT, AT(shared_experts), "shared_experts", "shared experts"},
    {COUNT, AT(expert_groups), "expert_groups", "expert groups"},
    {TEXT, AT(routing), "routing", "routing method"},
    {NUMBER, AT(route_scale), "route_scale", "route scale"},
    {NUMBER, AT(rope_theta), "rope_theta", "RoPE theta"},
    {TEXT, AT(rope_type), "rope_type", "RoPE type"},
    {NUMBER, AT(swiglu_limit), "swiglu_limit", "SwiGLU clamp"},
    {NUMBER, AT(swiglu_alpha), "swiglu_alpha", "SwiGLU alpha"},
    {NUMBER, AT(swiglu_beta), "swiglu_beta", "SwiGLU beta"},
    {NUMBER, AT(norm_size), "norm_size", "norm size"},
    {FLAG, AT(attention_temperature), "",
     "attention temperature: queries are not scaled by their position"},
    {FLAG, AT(kv_sharing), "", "KV sharing: every layer reads its own cache"},
    {FLAG, AT(fp32_router_input), "", "router input: found fp32, allowed: bf16"},
    {FLAG, AT(sequence_parallel), "",
     "sequence parallelism: every rank has all rows between the exchanges"},
    {NONE, AT(moe_backend), "", "expert back end"},
    {FLAG, AT(expert_load_balancing), "", "expert load balancing: experts stay where they are"},
    {FLAG, AT(routed_expert_capture), "",
     "routed experts: the ids of the chosen experts are no output of the step"},
    {FLAG, AT(lora), "", "LoRA: adapters are not applied"},
    {FLAG, AT(unreduced_output), "", "output: it is summed over the ranks, never a rank's part"},
};

static const lathe_step_served *find_served(const lathe_step_table *t, const char *name) {
    for (int i = 0; i < t->served_count; ++i)
        if (strcmp(t->served[i].name, name) == 0)
            return &t->served[i];
    return NULL;
}

static int64_t count_at(const lathe_serving *s, size_t offset) {
    int64_t value;
    memcpy(&value, (const char *)s + offset, sizeof value);
    return value;
}

static const char *text_at(const lathe_serving *s, size_t offset) {
    const char *value;
    memcpy((void *)&value, (const char *)s + offset, sizeof value);
    return value;
}

/* norm_size is a count, the others are real. */
static double number_at(const lathe_serving *s, size_t offset) {
    double value;
    if (offset == AT(norm_size))
        return (double)s->norm_size;
    memcpy(&value, (const char *)s + offset, sizeof value);
    return value;
}

static bool flag_at(const lathe_serving *s, size_t offset) {
    return *((const char *)s + offset) != 0;
}

/* Writes why the rule is broken, or leaves `text` empty. */
static void compare(const lathe_step_table *t, const lathe_serving *s, const rule *r, char *text,
                    size_t size) {
    const lathe_step_served *served = find_served(t, r->name);
    if (r->kind == FLAG && flag_at(s, r->offset)) {
        snprintf(text, size, "%s", r->message);
    } else if (r->kind == ONE && count_at(s, r->offset) > 1) {
        snprintf(text, size, "%s: found %lld, allowed: 1; the step is one group of ranks",
                 r->message, (long long)count_at(s, r->offset));
    } else if (r->kind == NONE && text_at(s, r->offset)) {
        snprintf(text, size, "%s: found %s, allowed: none; the step moves the experts' rows itself",
                 r->message, text_at(s, r->offset));
    } else if (r->kind == COUNT &&
               count_at(s, r->offset) != (served ? (int64_t)served->number : 0)) {
        if (count_at(s, r->offset) != 0)
            snprintf(text, size, "%s: found %lld, allowed: %lld", r->message,
                     (long long)count_at(s, r->offset),
                     (long long)(served ? (int64_t)served->number : 0));
    } else if (r->kind == NUMBER && served && !served->text) {
        const double x = number_at(s, r->offset);
        if (fabs(x) > 0 && fabs(x - served->number) > 1e-9 * fabs(served->number))
            snprintf(text, size, "%s: found %.10g, allowed: %.10g", r->message, x, served->number);
    } else if (r->kind == TEXT && served && served->text) {
        const char *x = text_at(s, r->offset);
        if (x && strcmp(x, served->text) != 0)
            snprintf(text, size, "%s: found %s, allowed: %s", r->message, x, served->text);
    }
}

typedef struct {
    size_t offset;
    const char *message;
} count_field;

/* Counts that no rule above compares with a word of `serves`. */
static const count_field counts[] = {
    {AT(norm_size), "norm size"},
    {AT(requests), "requests"},
    {AT(q), "q"},
    {AT(max_context), "context"},
    {AT(kv_page_tokens), "KV page size"},
    {AT(tensor_parallel), "tensor parallelism"},
};

static void refuse_negative(const lathe_serving *s, size_t offset, const char *message, char *text,
                            size_t size) {
    if (count_at(s, offset) < 0)
        snprintf(text, size, "%s: found %lld, allowed: 0 or more", message,
                 (long long)count_at(s, offset));
}

/* What no step could be asked: counts below 0, numbers that are none, one of requests and q. */
static void check_sense(const lathe_serving *s, char *text, size_t size) {
    for (size_t i = 0; !text[0] && i < sizeof counts / sizeof counts[0]; ++i)
        refuse_negative(s, counts[i].offset, counts[i].message, text, size);
    for (size_t i = 0; !text[0] && i < sizeof rules / sizeof rules[0]; ++i) {
        const rule *r = &rules[i];
        if (r->kind == COUNT || r->kind == ONE)
            refuse_negative(s, r->offset, r->message, text, size);
        else if (r->kind == NUMBER && !isfinite(number_at(s, r->offset)))
            snprintf(text, size, "%s: found %g, allowed: a finite number", r->message,
                     number_at(s, r->offset));
    }
    if (!text[0] && (s->requests == 0) != (s->q == 0))
        snprintf(text, size, "batch: found %lld requests of q %lld, allowed: both or none",
                 (long long)s->requests, (long long)s->q);
}

static void compare_ranks(const lathe_step_table *t, const lathe_serving *s, char *text,
                          size_t size) {
    if (s->tensor_parallel && s->tensor_parallel != t->tp)
        snprintf(text, size, "tensor parallelism: found %lld, allowed: %d",
                 (long long)s->tensor_parallel, t->tp);
}

static void compare_batch(const lathe_step_table *t, const lathe_serving *s, char *text,
                          size_t size) {
    bool held = s->requests == 0;
    size_t used = (size_t)snprintf(text, size,
                                   "batch: found %lld requests of q %lld, allowed "
                                   "(requests x q):",
                                   (long long)s->requests, (long long)s->q);
    for (int v = 0; v < t->variant_count; ++v) {
        const lathe_step_variant *x = &t->variants[v];
        held = held || (x->q == s->q && x->requests >= s->requests);
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, " %lldx%lld", (long long)x->requests,
                                     (long long)x->q);
    }
    if (held)
        text[0] = '\0';
}

static void compare_context(const lathe_step_table *t, const lathe_serving *s, char *text,
                            size_t size) {
    if (s->max_context > t->max_context)
        snprintf(text, size, "context: found %lld tokens, allowed: at most %lld",
                 (long long)s->max_context, (long long)t->max_context);
}

static const lathe_step_buffer *find_cache(const lathe_step_table *t) {
    for (int i = 0; i < t->buffer_count; ++i)
        if (t->buffers[i].lifetime == LATHE_LIFETIME_KV)
            return &t->buffers[i];
    return NULL;
}

static void compare_cache(const lathe_step_table *t, const lathe_serving *s, char *text,
                          size_t size) {
    static const char layout[] = "[pages, kv_heads, page_tokens, 2 * head_dim]";
    const lathe_step_buffer *b = find_cache(t);
    if (!b)
        return;
    if (s->kv_dtype && strcmp(s->kv_dtype, lathe_scalar_name(b->dtype)) != 0)
        snprintf(text, size, "KV dtype: found %s, allowed: %s", s->kv_dtype,
                 lathe_scalar_name(b->dtype));
    else if (s->kv_layout && strcmp(s->kv_layout, layout) != 0)
        snprintf(text, size, "KV layout: found %s, allowed: %s", s->kv_layout, layout);
    else if (s->kv_page_tokens && s->kv_page_tokens != t->page_tokens)
        snprintf(text, size, "KV page size: found %lld tokens, allowed: %lld",
                 (long long)s->kv_page_tokens, (long long)t->page_tokens);
}

void lathe_serving_compare(const lathe_step_table *table, const lathe_serving *serving, char *text,
                           size_t size) {
    static void (*const parts[])(const lathe_step_table *, const lathe_serving *, char *,
                                 size_t) = {compare_ranks, compare_batch, compare_context,
                                            compare_cache};
    text[0] = '\0';
    if (serving->size != sizeof *serving) {
        snprintf(text, size, "serving: found %zu bytes, allowed: %zu", serving->size,
                 sizeof *serving);
        return;
    }
    check_sense(serving, text, size);
    for (size_t i = 0; !text[0] && i < sizeof rules / sizeof rules[0]; ++i)
        compare(table, serving, &rules[i], text, size);
    for (size_t i = 0; !text[0] && i < sizeof parts / sizeof parts[0]; ++i)
        parts[i](table, serving, text, size);
}
