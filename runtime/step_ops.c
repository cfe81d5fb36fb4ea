/* SPDX-License-Identifier: Apache-2.0
 * Owns: the operations of step.json: what is launched where, and that every argument fits the
 * buffer it is bound to in every layer in which the operation runs. */
#include <string.h>

#include "step_read.h"

#define MAILBOX_PREFIX "mailbox:"
#define SIDE 1 /* the one stream beside the main one */

/* A list of operations while it is read: in which layers it runs and what its streams hold. */
typedef struct {
    const int *layers; /* -1 in it: no layer */
    int layer_count;
    bool epilogue; /* "the layer before" is the last one */
    bool prepare;  /* each op names its layers */
    bool probe;
    bool forked;   /* the side stream is open */
    bool moved[2]; /* the last operation of the stream is a collective */
    bool fresh[2]; /* nothing was launched on the stream since its fork or join */
} op_context;

static bool fail_layer(lathe_step_reader *r, const lathe_step_buffer *b, int layer) {
    return lathe_json_fail(&r->json, "found \"%.60s\", which layer %d does not have", b->name,
                           layer);
}

/* The buffer has an instance for each layer in which the operation runs. */
static bool check_layers(lathe_step_reader *r, const lathe_step_binding *binding, const int *layers,
                         int count, bool epilogue) {
    const lathe_step_buffer *b = &r->table->buffers[binding->buffer];
    if (!b->per_layer)
        return true;
    for (int i = 0; i < count; ++i) {
        const int layer = layers[i] - (binding->previous && !epilogue ? 1 : 0);
        if (layer < 0 || lathe_step_buffer_instance(b, layer) < 0)
            return fail_layer(r, b, layer);
    }
    return true;
}

/* What lives while the step is built is there for the probe alone. */
static bool check_lifetime(lathe_step_reader *r, const op_context *c, const lathe_step_binding *b) {
    const lathe_step_buffer *buffer = &r->table->buffers[b->buffer];
    return c->probe || buffer->lifetime != LATHE_LIFETIME_BUILD ||
           lathe_json_fail(&r->json, "found \"%.60s\" of lifetime build, allowed: in the probe",
                           buffer->name);
}

/* Equal, save that the front of a larger buffer will do. */
static bool check_fit(lathe_step_reader *r, const lathe_step_arg *a, const lathe_step_buffer *b) {
    lathe_json *j = &r->json;
    const bool kv = b->lifetime == LATHE_LIFETIME_KV;
    const int skip = kv ? 1 : 0;
    int64_t bytes = 0;
    if (a->dtype != b->dtype)
        return lathe_json_fail(j, "found \"%.60s\" of %s, allowed: %s", b->name,
                               lathe_scalar_name(b->dtype), lathe_scalar_name(a->dtype));
    if (a->form != b->form)
        return lathe_json_fail(j, "found the form %s of \"%.60s\", allowed: %s",
                               lathe_step_form_name(b->form), b->name,
                               lathe_step_form_name(a->form));
    if (kv && a->shape.count == 0)
        return lathe_json_fail(j, "found the cache \"%.60s\" for an argument without pages",
                               b->name);
    if (!lathe_step_shape_bytes(j, &a->shape, skip, a->dtype, &bytes))
        return false;
    if (bytes < 1 || (kv ? bytes != b->fixed_bytes : bytes > b->fixed_bytes))
        return lathe_json_fail(j, "the argument has %lld bytes, the buffer \"%.60s\" %lld%s",
                               (long long)bytes, b->name, (long long)b->fixed_bytes,
                               kv ? " in a page" : "");
    return true;
}

static bool bind_name(lathe_step_reader *r, const lathe_step_arg *a, const char *name,
                      lathe_step_binding *b) {
    lathe_json *j = &r->json;
    const size_t prefix = strlen(MAILBOX_PREFIX);
    if (a->carries)
        return lathe_json_fail(j, "found \"%.60s\", allowed: {mailbox, value} or null", name);
    if (a->dir == LATHE_DIR_MAILBOX) {
        b->mailbox = strncmp(name, MAILBOX_PREFIX, prefix) == 0
                         ? lathe_step_index_find(&r->mailboxes, name + prefix)
                         : -1;
        return b->mailbox >= 0 ||
               lathe_json_fail(j, "found \"%.60s\", allowed: mailbox:NAME of mailboxes", name);
    }
    b->buffer = lathe_step_index_find(&r->buffers, name);
    if (b->buffer < 0)
        return lathe_json_fail(j, "found \"%.60s\", allowed: a name in buffers", name);
    return check_fit(r, a, &r->table->buffers[b->buffer]);
}

/* A value in a mailbox: what one rank contributes fits what it sends. */
static bool read_carried(lathe_step_reader *r, const json_t *value, const lathe_step_arg *a,
                         lathe_step_binding *b) {
    lathe_json *j = &r->json;
    const char *name;
    int64_t bytes;
    if (!lathe_json_object(j, value, "mailbox value") ||
        !lathe_json_name(j, value, "mailbox", LATHE_NAME_WORD, &name) ||
        !lathe_json_name(j, value, "value", LATHE_NAME_WORD, &b->value))
        return false;
    b->mailbox = lathe_step_index_find(&r->mailboxes, name);
    if (b->mailbox < 0)
        return lathe_json_fail_at(j, "mailbox", "found \"%.60s\", allowed: a name in mailboxes",
                                  name);
    if (!lathe_step_shape_bytes(j, &a->shape, 0, a->dtype, &bytes))
        return false;
    const lathe_step_mailbox *box = &r->table->mailboxes[b->mailbox];
    if (bytes < 1 || bytes > box->bytes)
        return lathe_json_fail(j, "the argument has %lld bytes, mailbox \"%.60s\" %lld",
                               (long long)bytes, box->name, (long long)box->bytes);
    return true;
}

static bool read_binding(lathe_step_reader *r, const json_t *value, const lathe_step_arg *a,
                         lathe_step_binding *b) {
    lathe_json *j = &r->json;
    char found[64];
    *b = (lathe_step_binding){.buffer = -1, .mailbox = -1};
    if (json_is_null(value))
        return true;
    if (json_is_string(value))
        return bind_name(r, a, json_string_value(value), b);
    const char *name;
    int64_t layer;
    if (json_is_object(value) && a->carries)
        return read_carried(r, value, a, b);
    if (!json_is_object(value))
        return lathe_json_fail(j, "found %s, allowed: a buffer, {buffer, layer} or null",
                               lathe_json_show(value, found));
    if (!lathe_json_object(j, value, "buffer layer") ||
        !lathe_json_name(j, value, "buffer", LATHE_NAME_WORD, &name) ||
        !lathe_json_int(j, value, "layer", -1, -1, &layer))
        return false;
    b->previous = true;
    return bind_name(r, a, name, b);
}

static bool check_args_known(lathe_json *j, const json_t *args, const lathe_step_kernel *k) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)args, key, value) {
        int i = 0;
        while (i < k->arg_count && strcmp(k->args[i].name, key) != 0)
            ++i;
        if (i == k->arg_count)
            return lathe_json_fail_at(j, key, "kernel \"%.60s\" has no such argument", k->name);
    }
    return true;
}

static bool read_bindings(lathe_step_reader *r, const json_t *op, const op_context *c,
                          const lathe_step_kernel *k, lathe_step_op *out) {
    lathe_json *j = &r->json;
    const json_t *args = json_object_get(op, "args");
    char found[64];
    lathe_step_binding *list = lathe_json_alloc(j, k->arg_count, sizeof *list);
    if (!list)
        return false;
    if (!json_is_object(args))
        return lathe_json_fail_at(j, "args", "found %s, allowed: an object",
                                  lathe_json_show(args, found));
    const size_t mark = lathe_json_enter(j, "args");
    static const int once[] = {-1};
    const bool own = c->prepare && out->layer_count;
    const int *layers = own ? out->layers : c->prepare ? once : c->layers;
    const int count = own ? out->layer_count : c->prepare ? 1 : c->layer_count;
    for (int i = 0; i < k->arg_count; ++i) {
        const json_t *value = json_object_get(args, k->args[i].name);
        const size_t inner = lathe_json_enter(j, k->args[i].name);
        if (!value)
            return lathe_json_fail(j, "is missing; an unbound argument is null");
        if (!read_binding(r, value, &k->args[i], &list[i]) ||
            (list[i].buffer >= 0 && (!check_layers(r, &list[i], layers, count, c->epilogue) ||
                                     !check_lifetime(r, c, &list[i]))))
            return false;
        lathe_json_leave(j, inner);
    }
    if (!check_args_known(j, args, k))
        return false;
    lathe_json_leave(j, mark);
    out->bindings = list;
    return true;
}

/* An early launch waits inside the kernel for its predecessor in the stream, so there must be one
 * and it must wait. */
static bool check_early(lathe_json *j, const op_context *c, const lathe_step_kernel *k,
                        const lathe_step_op *op) {
    if (!op->early)
        return true;
    if (!k->early)
        return lathe_json_fail_at(j, "early", "found true, but kernel \"%.60s\" does not wait",
                                  k->name);
    if (c->fresh[op->stream])
        return lathe_json_fail_at(j, "early",
                                  "found true on the first launch after a fork or a join");
    if (c->moved[op->stream])
        return lathe_json_fail_at(j, "early", "found true after a collective");
    for (int i = 0; i < k->tactic_count; ++i)
        if (k->tactics[i].cooperative)
            return lathe_json_fail_at(j, "early", "found true on a cooperative kernel");
    return true;
}

static bool read_launch(lathe_step_reader *r, const json_t *value, op_context *c,
                        lathe_step_op *op) {
    lathe_json *j = &r->json;
    const char *name;
    int64_t stream = 0;
    if (!lathe_json_object(j, value,
                           c->prepare ? "op kernel args layers? early? stream?"
                                      : "op kernel args early? stream?") ||
        !lathe_json_name(j, value, "kernel", LATHE_NAME_FOLDER, &name) ||
        !lathe_json_bool(j, value, "early", &op->early) ||
        (json_object_get(value, "stream") && !lathe_json_int(j, value, "stream", 0, SIDE, &stream)))
        return false;
    op->stream = (int)stream;
    op->kernel = lathe_step_index_find(&r->kernels, name);
    if (op->kernel < 0)
        return lathe_json_fail_at(j, "kernel", "found \"%.60s\", allowed: a name in kernels", name);
    if (op->stream == SIDE && !c->forked)
        return lathe_json_fail_at(j, "stream", "found %d, which no fork has opened", SIDE);
    const lathe_step_kernel *k = &r->table->kernels[op->kernel];
    if (!check_early(j, c, k, op) ||
        (c->prepare && !lathe_step_read_layers(r, value, &op->layers, &op->layer_count)))
        return false;
    c->fresh[op->stream] = c->moved[op->stream] = false;
    return read_bindings(r, value, c, k, op);
}

/* One side of a collective: elements at the front of a buffer. */
static bool read_side(lathe_step_reader *r, const json_t *object, const op_context *c,
                      const char *key, const lathe_step_arg *side, lathe_step_binding *b) {
    lathe_json *j = &r->json;
    const json_t *value = json_object_get(object, key);
    const size_t mark = lathe_json_enter(j, key);
    if (!value || json_is_null(value))
        return lathe_json_fail(j, "is missing");
    if (!read_binding(r, value, side, b) ||
        !check_layers(r, b, c->layers, c->layer_count, c->epilogue) || !check_lifetime(r, c, b))
        return false;
    lathe_json_leave(j, mark);
    return true;
}

static bool read_sides(lathe_step_reader *r, const json_t *value, const op_context *c,
                       lathe_step_collective *out) {
    lathe_json *j = &r->json;
    const int64_t ranks = out->gather ? r->table->tp : 1;
    lathe_step_arg side = {.dtype = out->dtype, .shape = {.count = 1, .dim = {out->count}}};
    if (!read_side(r, value, c, "from", &side, &out->from))
        return false;
    side.dir = LATHE_DIR_OUT;
    side.form = out->gather ? LATHE_FORM_COLUMNS : LATHE_FORM_WHOLE;
    side.shape.dim[0] = ranks * out->count;
    if (!read_side(r, value, c, "to", &side, &out->to))
        return false;
    return out->from.buffer != out->to.buffer ||
           lathe_json_fail_at(j, "to", "found the buffer that is also \"from\"");
}

static bool read_collective(lathe_step_reader *r, const json_t *value, op_context *c,
                            lathe_step_op *op) {
    lathe_json *j = &r->json;
    lathe_step_collective *out = lathe_json_alloc(j, 1, sizeof *out);
    int64_t stream;
    int kind = -1, order = -1;
    if (!out)
        return false;
    if (c->prepare || r->table->tp == 1)
        return lathe_json_fail(j, "found a collective %s",
                               c->prepare ? "in prepare" : "of one rank");
    if (!lathe_json_object(j, value, "op kind dtype from to count stream order part") ||
        !lathe_json_choice(j, value, "kind", "all_reduce all_gather", &kind) ||
        !lathe_json_choice(j, value, "order", "library", &order) ||
        !lathe_step_read_scalar(j, value, &out->dtype) ||
        !lathe_json_int(j, value, "count", 1, (int64_t)1 << 36, &out->count) ||
        !lathe_json_int(j, value, "stream", 0, SIDE, &stream) ||
        !lathe_json_name(j, value, "part", LATHE_NAME_TEXT, &out->part))
        return false;
    op->stream = (int)stream;
    if (op->stream == SIDE && !c->forked)
        return lathe_json_fail_at(j, "stream", "found %d, which no fork has opened", SIDE);
    out->gather = kind == 1;
    c->fresh[op->stream] = false;
    c->moved[op->stream] = true;
    op->collective = out;
    return read_sides(r, value, c, out);
}

static bool read_fork_join(lathe_step_reader *r, const json_t *value, op_context *c,
                           lathe_step_op *op) {
    lathe_json *j = &r->json;
    int64_t stream;
    if (!lathe_json_object(j, value, "op stream") ||
        !lathe_json_int(j, value, "stream", SIDE, SIDE, &stream))
        return false;
    op->stream = (int)stream;
    const bool fork = op->kind == LATHE_OP_FORK;
    if (fork == c->forked)
        return lathe_json_fail(j, fork ? "found a fork of a stream that is open"
                                       : "found a join of a stream that no fork has opened");
    if (!fork && c->fresh[SIDE])
        return lathe_json_fail(j, "found a join of a stream without a launch");
    c->forked = fork;
    c->fresh[fork ? SIDE : 0] = true;
    return true;
}

static bool read_op(lathe_step_reader *r, const json_t *value, op_context *c, lathe_step_op *op) {
    lathe_json *j = &r->json;
    int kind = -1;
    char found[64];
    if (!json_is_object(value))
        return lathe_json_fail(j, "found %s, allowed: an object", lathe_json_show(value, found));
    if (!lathe_json_choice(j, value, "op", "launch fork join collective", &kind))
        return false;
    if (kind < 0)
        return lathe_json_fail(j, "key \"op\" is missing");
    op->kind = (lathe_step_op_kind)kind;
    op->kernel = -1;
    if (kind == LATHE_OP_COLLECTIVE)
        return read_collective(r, value, c, op);
    return kind == LATHE_OP_LAUNCH ? read_launch(r, value, c, op) : read_fork_join(r, value, c, op);
}

static bool read_ops(lathe_step_reader *r, const json_t *object, const char *key, op_context *c,
                     lathe_step_ops *out) {
    lathe_json *j = &r->json;
    const json_t *array;
    if (!lathe_json_array(j, object, key, 0, LATHE_STEP_MAX_LIST, &array, &out->count))
        return false;
    lathe_step_op *ops = lathe_json_alloc(j, out->count, sizeof *ops);
    if (!ops)
        return false;
    const size_t mark = lathe_json_enter(j, key);
    for (int i = 0; i < out->count; ++i) {
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (!read_op(r, json_array_get(array, (size_t)i), c, &ops[i]))
            return false;
        lathe_json_leave(j, inner);
    }
    if (c->forked)
        return lathe_json_fail(j, "found a fork without its join");
    lathe_json_leave(j, mark);
    out->ops = ops;
    return true;
}

bool lathe_step_read_prepare(lathe_step_reader *r, const json_t *root) {
    op_context c = {.prepare = true};
    return read_ops(r, root, "prepare", &c, &r->table->prepare);
}

/* The probe exchanges nothing: what goes on between the ranks is the build's affair. */
static bool check_probe_op(lathe_step_reader *r, const lathe_step_op *op) {
    lathe_json *j = &r->json;
    if (op->kind != LATHE_OP_LAUNCH || op->stream != 0)
        return lathe_json_fail(j, "allowed: a launch on stream 0");
    for (int i = 0; i < r->table->kernels[op->kernel].arg_count; ++i)
        if (op->bindings[i].mailbox >= 0)
            return lathe_json_fail(j, "found a mailbox, allowed: a launch without any");
    return true;
}

static bool read_sums(lathe_step_reader *r, const json_t *object, int *sums) {
    lathe_json *j = &r->json;
    const json_t *array;
    int count;
    if (!lathe_json_array(j, object, "sums", 2, 2, &array, &count))
        return false;
    const size_t mark = lathe_json_enter(j, "sums");
    for (int i = 0; i < 2; ++i) {
        const char *name;
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (!lathe_json_name_value(j, json_array_get(array, (size_t)i), LATHE_NAME_WORD, &name))
            return false;
        sums[i] = lathe_step_index_find(&r->buffers, name);
        const lathe_step_buffer *b = sums[i] < 0 ? NULL : &r->table->buffers[sums[i]];
        if (!b || b->dtype != LATHE_SCALAR_BF16 || b->per_layer ||
            (b->lifetime != LATHE_LIFETIME_SCRATCH && b->lifetime != LATHE_LIFETIME_BUILD))
            return lathe_json_fail(j,
                                   "found \"%.60s\", allowed: a bf16 buffer of scope step and "
                                   "lifetime scratch or build",
                                   name);
        lathe_json_leave(j, inner);
    }
    lathe_json_leave(j, mark);
    return true;
}

static bool read_limit(lathe_json *j, const json_t *object, double *limit) {
    const json_t *value = json_object_get(object, "limit");
    char found[64];
    *limit = json_number_value(value);
    return (*limit > 0 && *limit < 1) ||
           lathe_json_fail_at(j, "limit", "found %s, allowed: a number between 0 and 1",
                              lathe_json_show(value, found));
}

bool lathe_step_read_probe(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    lathe_step_probe *p = &r->table->probe;
    const json_t *object = json_object_get(root, "probe");
    if (!object)
        return true;
    const size_t mark = lathe_json_enter(j, "probe");
    if (r->table->tp == 1)
        return lathe_json_fail(j, "found a probe of one rank");
    if (!lathe_json_object(j, object, "about layers limit ops sums") ||
        !lathe_json_name(j, object, "about", LATHE_NAME_TEXT, &p->about) ||
        !read_limit(j, object, &p->limit) ||
        !lathe_step_read_layers(r, object, &p->layers, &p->layer_count) ||
        !read_sums(r, object, p->sums))
        return false;
    op_context c = {.layers = p->layers, .layer_count = p->layer_count, .probe = true};
    if (!read_ops(r, object, "ops", &c, &p->ops))
        return false;
    for (int i = 0; i < p->ops.count; ++i) {
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (!check_probe_op(r, &p->ops.ops[i]))
            return false;
        lathe_json_leave(j, inner);
    }
    lathe_json_leave(j, mark);
    return true;
}

static bool read_kinds(lathe_step_reader *r, const json_t *value, lathe_step_variant *v) {
    lathe_json *j = &r->json;
    const lathe_step_table *t = r->table;
    const json_t *map = json_object_get(value, "kinds");
    lathe_step_ops *kinds = lathe_json_alloc(j, t->kind_count, sizeof *kinds);
    int *layers = lathe_json_alloc(j, t->layer_count, sizeof *layers);
    if (!kinds || !layers)
        return false;
    const size_t mark = lathe_json_enter(j, "kinds");
    if (!json_is_object(map) || json_object_size(map) != (size_t)t->kind_count)
        return lathe_json_fail(j, "found %zu kinds, allowed: the %d that layers name",
                               json_object_size(map), t->kind_count);
    for (int k = 0; k < t->kind_count; ++k) {
        op_context c = {.layers = layers};
        for (int l = 0; l < t->layer_count; ++l)
            if (t->layer_kinds[l] == k)
                layers[c.layer_count++] = l;
        if (!json_object_get(map, t->kind_names[k]))
            return lathe_json_fail_at(j, t->kind_names[k], "is missing");
        if (!read_ops(r, map, t->kind_names[k], &c, &kinds[k]))
            return false;
    }
    lathe_json_leave(j, mark);
    v->kinds = kinds;
    return true;
}

static bool read_variant(lathe_step_reader *r, const json_t *value, lathe_step_variant *v) {
    lathe_json *j = &r->json;
    const lathe_step_table *t = r->table;
    const int first = 0, last = t->layer_count - 1;
    op_context prologue = {.layers = &first, .layer_count = 1};
    op_context epilogue = {.layers = &last, .layer_count = 1, .epilogue = true};
    if (!lathe_json_object(j, value, "name requests q prologue kinds epilogue") ||
        !lathe_json_name(j, value, "name", LATHE_NAME_FOLDER, &v->name) ||
        !lathe_json_int(j, value, "requests", 1, t->max_requests, &v->requests) ||
        !lathe_json_int(j, value, "q", 1, t->max_rows, &v->q))
        return false;
    if (v->requests * v->q > t->max_rows)
        return lathe_json_fail(j, "found %lld rows, allowed: at most max_rows = %lld",
                               (long long)(v->requests * v->q), (long long)t->max_rows);
    return read_ops(r, value, "prologue", &prologue, &v->prologue) && read_kinds(r, value, v) &&
           read_ops(r, value, "epilogue", &epilogue, &v->epilogue);
}

bool lathe_step_read_variants(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    lathe_step_table *t = r->table;
    const json_t *array;
    lathe_step_index names;
    if (!lathe_json_array(j, root, "variants", 1, 256, &array, &t->variant_count) ||
        !lathe_step_index_create(j, t->variant_count, &names))
        return false;
    lathe_step_variant *variants = lathe_json_alloc(j, t->variant_count, sizeof *variants);
    if (!variants)
        return false;
    t->variants = variants;
    for (int i = 0; i < t->variant_count; ++i) {
        const size_t mark = lathe_json_enter(j, "variants");
        lathe_json_enter_index(j, (size_t)i);
        if (!read_variant(r, json_array_get(array, (size_t)i), &variants[i]) ||
            !lathe_step_index_add(j, &names, variants[i].name, i))
            return false;
        lathe_json_leave(j, mark);
    }
    return true;
}
