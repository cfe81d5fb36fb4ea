/* SPDX-License-Identifier: Apache-2.0
 * The text of step.json: sorted keys, one item a line, so that a change is a short diff. */
#include "emit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Between the items of a list: nothing before the first, a comma before the others. */
static void next_item(lathe_text *out, bool *first, int indent) {
    lathe_text_print(out, "%s\n%*s", *first ? "" : ",", indent, "");
    *first = false;
}

static void close_list(lathe_text *out, bool empty, int indent, const char *bracket) {
    if (!empty)
        lathe_text_print(out, "\n%*s", indent, "");
    lathe_text_print(out, "%s", bracket);
}

static void write_layers(lathe_text *out, const bool *layers, size_t count) {
    bool first = true;
    lathe_text_print(out, "\"layers\": [");
    for (size_t l = 0; l < count; l++)
        if (layers[l]) {
            lathe_text_print(out, "%s%zu", first ? "" : ", ", l);
            first = false;
        }
    lathe_text_print(out, "]");
}

static const char *const lifetimes[] = {
    [LATHE_LIFE_WEIGHT] = "weight",   [LATHE_LIFE_PREPARED] = "prepared",
    [LATHE_LIFE_BUILD] = "build",     [LATHE_LIFE_KV] = "kv",
    [LATHE_LIFE_SCRATCH] = "scratch", [LATHE_LIFE_PERSISTENT] = "persistent",
    [LATHE_LIFE_INPUT] = "input",     [LATHE_LIFE_OUTPUT] = "output",
};

static void write_buffer(const lathe_plan *plan, const lathe_buffer *b, lathe_text *out) {
    lathe_text_print(out, "{\"dtype\": \"%s\", \"form\": \"%s\"", lathe_dtype_name(b->dtype),
                     lathe_form_name(b->form));
    if (b->datum && b->datum->kind == LATHE_DATUM_CACHE) {
        lathe_text_print(out, ", \"group\": ");
        lathe_text_json(out, b->datum->group);
    }
    if (b->per_layer) {
        lathe_text_print(out, ", ");
        write_layers(out, b->layers, plan->model->layer_count);
    }
    lathe_text_print(out, ", \"lifetime\": \"%s\"", lifetimes[b->lifetime]);
    if (b->where.file) {
        lathe_text_print(out, ", \"line\": ");
        lathe_text_json(out, lathe_arena_print(plan->arena, "%s:%d", b->where.file, b->where.line));
    }
    lathe_text_print(out, ", \"name\": ");
    lathe_text_json(out, b->name);
    lathe_text_print(out, ", \"scope\": \"%s\", \"shape\": %s", b->per_layer ? "layer" : "step",
                     lathe_shape_text(plan->arena, &b->shape));
    if (b->zeroed)
        lathe_text_print(out, ", \"zeroed\": true");
    lathe_text_print(out, "}");
}

static int compare_buffers(const void *a, const void *b) {
    return strcmp((*(const lathe_buffer *const *)a)->name, (*(const lathe_buffer *const *)b)->name);
}

/* The buffers in use, sorted by name. */
static const lathe_buffer **sorted_buffers(const lathe_plan *plan, size_t *count) {
    const lathe_buffer **sorted =
        lathe_arena_alloc(plan->arena, plan->buffer_count + 1, sizeof *sorted);
    *count = 0;
    for (size_t i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].used)
            sorted[(*count)++] = &plan->buffers[i];
    qsort(sorted, *count, sizeof *sorted, compare_buffers);
    return sorted;
}

static void write_buffers(const lathe_plan *plan, lathe_text *out) {
    size_t count;
    const lathe_buffer **sorted = sorted_buffers(plan, &count);
    bool first = true;
    lathe_text_print(out, "  \"buffers\": [");
    for (size_t i = 0; i < count; i++) {
        next_item(out, &first, 4);
        write_buffer(plan, sorted[i], out);
    }
    close_list(out, first, 2, "],\n");
}

static void write_groups(const lathe_plan *plan, lathe_text *out) {
    const lathe_deployment *d = plan->deployment;
    bool first = true;
    lathe_text_print(out, "  \"groups\": [");
    for (size_t i = 0; i < plan->model->group_count; i++) {
        const lathe_group *g = &plan->model->groups[i];
        next_item(out, &first, 4);
        lathe_text_print(out, "{\"name\": ");
        lathe_text_json(out, g->name);
        lathe_text_print(out, ", \"table_width\": %" PRId64 ", \"window\": %" PRId64 "}",
                         (d->max_context + d->page_tokens - 1) / d->page_tokens, g->window);
    }
    close_list(out, first, 2, "],\n");
}

/* Constants of which `tactic` says whether they depend on the tactic, sorted by name. */
static void write_constants(const lathe_plan *plan, const lathe_provider *p,
                            const lathe_bound *values, bool tactic, lathe_text *out) {
    size_t *order = lathe_arena_alloc(plan->arena, p->constant_count + 1, sizeof *order);
    size_t count = 0;
    for (size_t i = 0; i < p->constant_count; i++) {
        const lathe_const_source source = p->constants[i].source;
        if ((source == LATHE_CONST_TACTIC || source == LATHE_CONST_COMPUTED) != tactic)
            continue;
        size_t at = count++;
        for (; at > 0 && strcmp(p->constants[order[at - 1]].name, p->constants[i].name) > 0; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    lathe_text_print(out, "{");
    for (size_t i = 0; i < count; i++) {
        const lathe_bound *b = &values[order[i]];
        lathe_text_print(out, "%s\"%s\": ", i ? ", " : "", p->constants[order[i]].name);
        if (p->constants[order[i]].real)
            lathe_text_print(out, "%s", lathe_text_real(plan->arena, b->real));
        else
            lathe_text_print(out, "%" PRId64, b->integer);
    }
    lathe_text_print(out, "}");
}

static void write_arg(const lathe_plan *plan, const lathe_arg *arg, const lathe_binding *b,
                      lathe_text *out) {
    const bool carries = arg->dir != LATHE_DIR_MAILBOX || arg->port_count;
    lathe_text_print(out, "{%s\"dir\": \"%s\"", arg->ahead ? "\"ahead\": true, " : "",
                     lathe_dir_name(arg->dir));
    if (carries)
        lathe_text_print(out, ", \"dtype\": \"%s\", \"form\": \"%s\"", lathe_dtype_name(arg->dtype),
                         lathe_form_name(arg->form));
    lathe_text_print(out, ", \"name\": \"%s\"", arg->name);
    if (carries && arg->dir == LATHE_DIR_MAILBOX)
        lathe_text_print(out, ", \"publishes\": %s", b->publishes ? "true" : "false");
    if (carries)
        lathe_text_print(out, ", \"shape\": %s", lathe_shape_text(plan->arena, &b->shape));
    lathe_text_print(out, "}");
}

static void write_tactic(const lathe_plan *plan, const lathe_kernel *k, size_t index,
                         lathe_text *out) {
    const lathe_tactic *t = &k->tactics[index];
    lathe_text_print(out, "{\"block\": %" PRId64 ", \"constants\": ", t->block);
    write_constants(plan, k->provider, t->constants, true, out);
    if (t->cluster > 1)
        lathe_text_print(out, ", \"cluster\": %" PRId64, t->cluster);
    lathe_text_print(out, ", \"cooperative\": %s, \"entry\": \"%s\", \"file\": \"%s\", ",
                     t->cooperative ? "true" : "false", lathe_emit_entry(plan, k, index),
                     lathe_emit_file(plan->arena, k, index));
    lathe_text_print(out, "\"grid\": [%" PRId64 ", %" PRId64 ", %" PRId64 "], \"name\": \"%s\", ",
                     t->grid[0], t->grid[1], t->grid[2], t->name);
    lathe_text_print(out, "\"registers\": %" PRId64 ", \"shared\": %" PRId64 "}", t->registers,
                     t->shared);
}

static void write_kernel(const lathe_plan *plan, const lathe_kernel *k, lathe_text *out) {
    const lathe_provider *p = k->provider;
    bool first = true;
    lathe_text_print(out, "{\"args\": [");
    for (size_t i = 0; i < p->arg_count; i++) {
        next_item(out, &first, 8);
        write_arg(plan, &p->args[i], &k->args[i], out);
    }
    close_list(out, first, 6, "],\n      ");
    lathe_text_print(out, "\"bytes\": %" PRId64 ", \"constants\": ", k->bytes);
    write_constants(plan, p, k->constants, false, out);
    lathe_text_print(out, ",\n      \"early\": %s, \"name\": \"%s\", \"operations\": %" PRId64 ", ",
                     p->early ? "true" : "false", k->name, k->operations);
    lathe_text_print(out, "\"parts\": [");
    for (size_t i = 0; i < k->part_count; i++) {
        lathe_text_print(out, "%s", i ? ", " : "");
        lathe_text_json(out, k->parts[i]);
    }
    lathe_text_print(out, "], \"provider\": \"%s\",\n      \"tactics\": [", p->name);
    first = true;
    for (size_t t = 0; t < k->tactic_count; t++) {
        next_item(out, &first, 8);
        write_tactic(plan, k, t, out);
    }
    close_list(out, first, 6, "],\n      ");
    if (p->spills) {
        lathe_text_print(out, "\"spills\": ");
        lathe_text_json(out, p->spills);
        lathe_text_print(out, ", ");
    }
    lathe_text_print(out, "\"triggers\": %s}", p->triggers ? "true" : "false");
}

static void write_kernels(const lathe_plan *plan, lathe_text *out) {
    bool first = true;
    lathe_text_print(out, "  \"kernels\": [");
    for (size_t i = 0; i < plan->kernel_count; i++) {
        if (!plan->kernels[i].used || plan->kernels[i].provider->collective)
            continue;
        next_item(out, &first, 4);
        write_kernel(plan, &plan->kernels[i], out);
    }
    close_list(out, first, 2, "],\n");
}

static void write_binding(const lathe_plan *plan, const lathe_binding *b, lathe_text *out) {
    if (b->mailbox >= 0 && b->datum) {
        lathe_text_print(out, "{\"mailbox\": ");
        lathe_text_json(out, plan->mailboxes[b->mailbox].name);
        lathe_text_print(out, ", \"value\": ");
        lathe_text_json(out, b->datum->name);
        lathe_text_print(out, "}");
    } else if (b->mailbox >= 0) {
        lathe_text_json(
            out, lathe_arena_print(plan->arena, "mailbox:%s", plan->mailboxes[b->mailbox].name));
    } else if (b->buffer < 0) {
        lathe_text_print(out, "null");
    } else if (b->previous) {
        lathe_text_print(out, "{\"buffer\": ");
        lathe_text_json(out, plan->buffers[b->buffer].name);
        lathe_text_print(out, ", \"layer\": -1}");
    } else {
        lathe_text_json(out, plan->buffers[b->buffer].name);
    }
}

/* Arguments sorted by name; the order of the parameters stands in the kernel. */
static void write_bindings(const lathe_plan *plan, const lathe_op *op, lathe_text *out) {
    const lathe_provider *p = plan->kernels[op->kernel].provider;
    bool *done = lathe_arena_alloc(plan->arena, p->arg_count + 1, sizeof *done);
    lathe_text_print(out, "{");
    for (size_t n = 0; n < p->arg_count; n++) {
        size_t least = p->arg_count;
        for (size_t i = 0; i < p->arg_count; i++)
            if (!done[i] &&
                (least == p->arg_count || strcmp(p->args[i].name, p->args[least].name) < 0))
                least = i;
        done[least] = true;
        lathe_text_print(out, "%s\"%s\": ", n ? ", " : "", p->args[least].name);
        write_binding(plan, &op->args[least], out);
    }
    lathe_text_print(out, "}");
}

/* What the library moves between ranks: `count` elements from each. */
static void write_collective(const lathe_plan *plan, const lathe_op *op, lathe_text *out) {
    const lathe_kernel *k = &plan->kernels[op->kernel];
    lathe_text_print(out, "{\"count\": %" PRId64 ", \"dtype\": \"%s\", \"from\": ",
                     lathe_shape_count(&k->args[0].shape),
                     lathe_dtype_name(k->provider->args[0].dtype));
    write_binding(plan, &op->args[0], out);
    lathe_text_print(out, ", \"kind\": \"%s\", \"op\": \"collective\", \"order\": \"library\", ",
                     k->provider->collective);
    lathe_text_print(out, "\"part\": ");
    lathe_text_json(out, op->part);
    lathe_text_print(out, ", \"stream\": %d, \"to\": ", op->stream);
    write_binding(plan, &op->args[1], out);
    lathe_text_print(out, "}");
}

static void write_op(const lathe_plan *plan, const lathe_op *op, bool prepare, lathe_text *out) {
    if (op->kind != LATHE_OP_LAUNCH) {
        lathe_text_print(out, "{\"op\": \"%s\", \"stream\": %d}",
                         op->kind == LATHE_OP_FORK ? "fork" : "join", op->stream);
        return;
    }
    if (plan->kernels[op->kernel].provider->collective) {
        write_collective(plan, op, out);
        return;
    }
    lathe_text_print(out, "{\"args\": ");
    write_bindings(plan, op, out);
    if (!prepare)
        lathe_text_print(out, ", \"early\": %s", op->early ? "true" : "false");
    lathe_text_print(out, ", \"kernel\": \"%s\", ", plan->kernels[op->kernel].name);
    if (prepare && op->layers) {
        write_layers(out, op->layers, plan->model->layer_count);
        lathe_text_print(out, ", ");
    }
    lathe_text_print(out, "\"op\": \"launch\"");
    if (!prepare)
        lathe_text_print(out, ", \"stream\": %d", op->stream);
    lathe_text_print(out, "}");
}

static void write_ops(const lathe_plan *plan, const lathe_ops *ops, bool prepare, int indent,
                      lathe_text *out) {
    bool first = true;
    lathe_text_print(out, "[");
    for (size_t i = 0; i < ops->count; i++) {
        next_item(out, &first, indent + 2);
        write_op(plan, &ops->ops[i], prepare, out);
    }
    close_list(out, first, indent, "]");
}

static int compare_kinds(const void *a, const void *b) {
    return strcmp((*(const lathe_part_list *const *)a)->name,
                  (*(const lathe_part_list *const *)b)->name);
}

/* The kinds that a layer has, sorted by name. */
static const lathe_part_list **sorted_kinds(const lathe_plan *plan, size_t *count) {
    const lathe_model *m = plan->model;
    const lathe_part_list **sorted =
        lathe_arena_alloc(plan->arena, m->kind_count + 1, sizeof *sorted);
    *count = 0;
    for (size_t k = 0; k < m->kind_count; k++)
        for (size_t l = 0; l < m->layer_count; l++)
            if (m->layers[l] == k) {
                sorted[(*count)++] = &m->kinds[k];
                break;
            }
    qsort(sorted, *count, sizeof *sorted, compare_kinds);
    return sorted;
}

static void write_variant(const lathe_plan *plan, const lathe_variant_ops *v, lathe_text *out) {
    size_t count;
    const lathe_part_list **kinds = sorted_kinds(plan, &count);
    lathe_text_print(out, "{\"epilogue\": ");
    write_ops(plan, &v->epilogue, false, 6, out);
    lathe_text_print(out, ",\n      \"kinds\": {");
    bool first = true;
    for (size_t k = 0; k < count; k++) {
        next_item(out, &first, 8);
        lathe_text_json(out, kinds[k]->name);
        lathe_text_print(out, ": ");
        write_ops(plan, &v->kinds[kinds[k] - plan->model->kinds], false, 8, out);
    }
    close_list(out, first, 6, "},\n      ");
    lathe_text_print(out, "\"name\": \"%s\", \"prologue\": ", v->variant->name);
    write_ops(plan, &v->prologue, false, 6, out);
    lathe_text_print(out, ",\n      \"q\": %" PRId64 ", \"requests\": %" PRId64 "}", v->variant->q,
                     v->variant->requests);
}

static void write_variants(const lathe_plan *plan, lathe_text *out) {
    bool first = true;
    lathe_text_print(out, "  \"variants\": [");
    for (size_t v = 0; v < plan->deployment->variant_count; v++) {
        next_item(out, &first, 4);
        write_variant(plan, &plan->variants[v], out);
    }
    close_list(out, first, 2, "],\n");
}

static void write_source(const lathe_plan *plan, const lathe_tensor *t, lathe_text *out) {
    lathe_text_print(out, "{\"dtype\": \"%s\"", lathe_dtype_name(t->dtype));
    if (t->init) {
        lathe_text_print(out, ", \"init\": ");
        lathe_text_json(out, t->init);
    }
    lathe_text_print(out, ", \"shape\": %s, \"shard\": ", lathe_shape_text(plan->arena, &t->shape));
    if (t->shard < 0)
        lathe_text_print(out, "null");
    else
        lathe_text_print(out, "{\"axis\": %d, \"groups\": %" PRId64 "}", t->shard, t->groups);
    lathe_text_print(out, ", \"tensor\": ");
    lathe_text_json(out, t->name);
    lathe_text_print(out, "}");
}

static void write_weights(const lathe_plan *plan, lathe_text *out) {
    size_t count;
    const lathe_buffer **sorted = sorted_buffers(plan, &count);
    bool first = true;
    lathe_text_print(out, "  \"weights\": [");
    for (size_t i = 0; i < count; i++) {
        const lathe_datum *d = sorted[i]->datum;
        if (!d || d->kind != LATHE_DATUM_WEIGHT)
            continue;
        next_item(out, &first, 4);
        lathe_text_print(out, "{\"axis\": %d, \"buffer\": ", d->axis);
        lathe_text_json(out, sorted[i]->name);
        if (d->held) {
            lathe_text_print(out, ", \"held\": ");
            lathe_text_json(out, d->held);
        }
        lathe_text_print(out, ", \"sources\": [");
        bool first_source = true;
        for (size_t s = 0; s < d->tensor_count; s++) {
            next_item(out, &first_source, 8);
            write_source(plan, &d->tensors[s], out);
        }
        close_list(out, first_source, 6, "]}");
    }
    close_list(out, first, 2, "]\n");
}

static void write_ceilings(const lathe_plan *plan, lathe_text *out) {
    const lathe_ceilings c = plan->table ? lathe_tactic_ceilings(plan->table) : (lathe_ceilings){0};
    if (c.read_gb_s)
        lathe_text_print(
            out, "  \"ceilings\": {\"bf16_tflops\": %" PRId64 ", \"read_gb_s\": %" PRId64 "},\n",
            c.bf16_tflops, c.read_gb_s);
}

static void write_limits(const lathe_plan *plan, lathe_text *out) {
    int64_t rows = 0, requests = 0;
    for (size_t v = 0; v < plan->deployment->variant_count; v++) {
        const lathe_variant *variant = &plan->deployment->variants[v];
        rows = variant->rows > rows ? variant->rows : rows;
        requests = variant->requests > requests ? variant->requests : requests;
    }
    lathe_text_print(out,
                     "  \"limits\": {\"max_context\": %" PRId64 ", \"max_requests\": %" PRId64
                     ", \"max_rows\": %" PRId64 ", \"page_tokens\": %" PRId64 "},\n",
                     plan->deployment->max_context, requests, rows, plan->deployment->page_tokens);
}

static void write_layer_kinds(const lathe_plan *plan, lathe_text *out) {
    bool first = true;
    lathe_text_print(out, "  \"layers\": [");
    for (size_t l = 0; l < plan->model->layer_count; l++) {
        next_item(out, &first, 4);
        lathe_text_json(out, plan->model->kinds[plan->model->layers[l]].name);
    }
    close_list(out, first, 2, "],\n");
}

static void write_mailboxes(const lathe_plan *plan, lathe_text *out) {
    bool first = true;
    lathe_text_print(out, "  \"mailboxes\": [");
    for (size_t i = 0; i < plan->mailbox_count; i++) {
        next_item(out, &first, 4);
        lathe_text_print(out, "{\"bytes\": %" PRId64 ", \"index\": %zu, \"name\": ",
                         plan->mailboxes[i].bytes, i);
        lathe_text_json(out, plan->mailboxes[i].name);
        lathe_text_print(out, "}");
    }
    close_list(out, first, 2, "],\n");
}

static void write_table(const lathe_plan *plan, const lathe_table *t, lathe_text *out);

static void write_node(const lathe_plan *plan, const lathe_node *n, lathe_text *out) {
    switch (n->kind) {
    case LATHE_NODE_BOOLEAN:
        lathe_text_print(out, "%s", n->boolean ? "true" : "false");
        break;
    case LATHE_NODE_INTEGER:
        lathe_text_print(out, "%" PRId64, n->integer);
        break;
    case LATHE_NODE_REAL:
        lathe_text_print(out, "%s", lathe_text_real(plan->arena, n->real));
        break;
    case LATHE_NODE_STRING:
        lathe_text_json(out, n->string);
        break;
    case LATHE_NODE_TABLE:
        write_table(plan, n->table, out);
        break;
    default:
        lathe_diag_fail(lathe_arena_diag(plan->arena), plan->model->where,
                        "checkpoint: found %s, allowed: numbers, strings, booleans and tables",
                        lathe_tree_found(plan->arena, n));
    }
}

/* A list where it has items, else an object. */
static void write_table(const lathe_plan *plan, const lathe_table *t, lathe_text *out) {
    const bool list = t->item_count > 0;
    lathe_text_print(out, list ? "[" : "{");
    for (size_t i = 0; i < (list ? t->item_count : t->field_count); i++) {
        lathe_text_print(out, i ? ", " : "");
        if (!list) {
            lathe_text_json(out, t->fields[i].key);
            lathe_text_print(out, ": ");
        }
        write_node(plan, list ? &t->items[i] : &t->fields[i].value, out);
    }
    lathe_text_print(out, list ? "]" : "}");
}

static void write_names(const lathe_plan *plan, const char *key, lathe_text *out) {
    const lathe_table *list = lathe_tree_table_or_null(plan->arena, plan->model->checkpoint, key);
    lathe_text_print(out, "    \"%s\": [", key);
    for (size_t i = 0; list && i < list->item_count; i++) {
        lathe_text_print(out, i ? ", " : "");
        write_node(plan, &list->items[i], out);
    }
    lathe_text_print(out, "]");
}

static void write_checkpoint(const lathe_plan *plan, lathe_text *out) {
    const lathe_table *c = plan->model->checkpoint;
    if (!c)
        return;
    const lathe_table *files = lathe_tree_table_or_null(plan->arena, c, "files");
    bool first = true;
    lathe_text_print(out, "  \"checkpoint\": {\n    \"files\": {");
    for (size_t i = 0; files && i < files->field_count; i++) {
        next_item(out, &first, 6);
        lathe_text_json(out, files->fields[i].key);
        lathe_text_print(out, ": ");
        write_node(plan, &files->fields[i].value, out);
    }
    close_list(out, first, 4, "},\n");
    write_names(plan, "names", out);
    lathe_text_print(out, ",\n");
    write_names(plan, "unread", out);
    lathe_text_print(out, "\n  },\n");
}

static void write_probe(const lathe_plan *plan, lathe_text *out) {
    const lathe_probe *p = &plan->model->probe;
    if (!plan->probe.count)
        return;
    lathe_text_print(out, "  \"probe\": {\"about\": ");
    lathe_text_json(out, p->about);
    lathe_text_print(out, ", \"layers\": [");
    for (size_t i = 0; i < p->layer_count; i++)
        lathe_text_print(out, "%s%zu", i ? ", " : "", p->layers[i]);
    lathe_text_print(out, "], \"limit\": %s, \"ops\": ", lathe_text_real(plan->arena, p->limit));
    write_ops(plan, &plan->probe, true, 4, out);
    lathe_text_print(out, ",\n    \"sums\": [");
    lathe_text_json(out, p->sums[0]);
    lathe_text_print(out, ", ");
    lathe_text_json(out, p->sums[1]);
    lathe_text_print(out, "]},\n");
}

lathe_text lathe_emit_step(const lathe_plan *plan, const char *only, const char *hash) {
    lathe_text out = {.arena = plan->arena};
    lathe_text_print(&out, "{\n  \"arch\": \"%s\",\n", plan->arch->name);
    write_buffers(plan, &out);
    write_ceilings(plan, &out);
    write_checkpoint(plan, &out);
    lathe_text_print(&out, "  \"deployment\": \"%s\",\n  \"format\": 1,\n", plan->deployment->name);
    write_groups(plan, &out);
    lathe_text_print(&out, "  \"hash\": \"%s\",\n", hash);
    write_kernels(plan, &out);
    write_layer_kinds(plan, &out);
    lathe_text_print(&out, "  \"layout\": \"%s\",\n", plan->layout->name);
    write_limits(plan, &out);
    write_mailboxes(plan, &out);
    if (only) {
        lathe_text_print(&out, "  \"only\": ");
        lathe_text_json(&out, only);
        lathe_text_print(&out, ",\n");
    }
    lathe_text_print(&out, "  \"prepare\": ");
    write_ops(plan, &plan->prepare, true, 2, &out);
    lathe_text_print(&out, ",\n");
    write_probe(plan, &out);
    if (plan->model->serves) {
        lathe_text_print(&out, "  \"serves\": ");
        write_table(plan, plan->model->serves, &out);
        lathe_text_print(&out, ",\n");
    }
    lathe_text_print(&out, "  \"tp\": %" PRId64 ",\n", plan->deployment->tp);
    write_variants(plan, &out);
    write_weights(plan, &out);
    lathe_text_print(&out, "}\n");
    return out;
}
